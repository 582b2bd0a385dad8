/* Equality with Flax: parameters drawn from a seed bit for bit, outputs and gradients to float rounding. The golden
 * files are written by tests/oracle/flax_init.py and flax_forward.py with the real Flax. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/shape_text.h"
#include "tow/autodiff.h"
#include "tow/layers.h"
#include "tow/model.h"
#include "tow/transforms.h"

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* A layer under a name. */
typedef struct named {
    tow_module module;
    const char *name;
    const tow_module *inner;
} named;

static void call_named(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    const named *m = (const named *)module;
    tow_apply_module_n(s, m->name, m->inner, n_in, in, n_out, out);
}
static const tow_module_class named_class = {"named", call_named};
#define NAMED(child, layer) ((named){{&named_class}, (child), TOW_MODULE(layer)})

/* Parameters before a child. */
static void call_first(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_type type = tow_value_type(in[0]);
    tow_value gain = tow_param(s, "gain", 2, (int64_t[]){type.dims[1], 3}, tow_init_normal(0.5));
    tow_value shift = tow_param(s, "shift", 1, (int64_t[]){3}, tow_init_uniform(2.0));
    tow_dense after = TOW_DENSE(.features = 5);
    out[0] = tow_apply(s, "after", &after, tow_add(tow_matmul(in[0], gain), shift));
}
static const tow_module_class first_class = {"first", call_first};

/* Cross attention to fixed keys with a mask, as in flax_forward.py. */
static float fraction(int64_t i) { return (float)((i * 7919) % 257 - 128) / 64; }
static void call_masked(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    float kv[48];
    bool mask[12];
    for (int i = 0; i < 48; i++) kv[i] = fraction(i);
    for (int i = 0; i < 12; i++) mask[i] = (i % 4 + i / 4) % 3 != 0;
    tow_trace *t = tow_scope_trace(s);
    tow_value x[] = {in[0], tow_constant_data(t, tow_make_type(TOW_F32, 3, (int64_t[]){2, 4, 6}), kv),
                     tow_constant_data(t, tow_make_type(TOW_BOOL, 4, (int64_t[]){1, 1, 3, 4}), mask)};
    tow_multi_head_attention attention = TOW_MULTI_HEAD_ATTENTION(.heads = 2);
    tow_apply_n(s, "attn", &attention, 3, x, 1, out);
}
static const tow_module_class masked_class = {"masked", call_masked};

/* x plus a row of a table, whose name begins with a digit. */
static void call_lookup(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_type type = tow_value_type(in[0]);
    tow_embed table = TOW_EMBED(.num_embeddings = 11, .features = type.dims[1]);
    tow_value zeros = tow_full(tow_scope_trace(s), tow_make_type(TOW_I32, 1, type.dims), 0);
    out[0] = tow_add(in[0], tow_apply(s, "3x3", &table, zeros));
}
static const tow_module_class lookup_class = {"lookup", call_lookup};
typedef struct lookup {
    tow_module module;
} lookup;

/* Names that end and begin with digits, without a scan. */
static void call_digits(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_dense dense = TOW_DENSE(.features = 3);
    out[0] = in[0];
    for (int i = 0; i < 2; i++) {
        tow_scope *child = tow_scope_begin(s, i ? "2" : "block_1");
        out[0] = tow_apply(child, "3x3", &dense, out[0]);
        out[0] = tow_apply(child, "1", &dense, out[0]);
        tow_scope_end(child);
    }
}
static const tow_module_class digits_class = {"digits", call_digits};

static const struct {
    const char *name;
    tow_initializer (*make)(void);
} plain_initializers[] = {{"lecun_uniform", tow_init_lecun_uniform},   {"he_normal", tow_init_he_normal},
                          {"he_uniform", tow_init_he_uniform},         {"glorot_normal", tow_init_glorot_normal},
                          {"glorot_uniform", tow_init_glorot_uniform}, {NULL, NULL}};

/* normal_STDDEV, truncated_STDDEV, DISTRIBUTION_SCALE_MODE */
static bool read_initializer(const char *name, tow_initializer *init)
{
    static const char *const distributions[] = {"truncated_normal_", "normal_", "uniform_"};
    double number;
    char mode[16];
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(distributions[i]);
        if (strncmp(name, distributions[i], length) != 0) continue;
        if (sscanf(name + length, "%lf_fan_%15s", &number, mode) != 2) break;
        *init =
            tow_init_variance_scaling(number, strcmp(mode, "in") == 0 ? TOW_FAN_IN : TOW_FAN_AVG, (tow_distribution)i);
        return true;
    }
    if (sscanf(name, "normal_%lf", &number) == 1)
        *init = tow_init_normal(number);
    else if (sscanf(name, "truncated_%lf", &number) == 1)
        *init = tow_init_truncated_normal(number);
    else
        return false;
    return true;
}

static bool find_initializer(const char *name, tow_initializer *init)
{
    for (int i = 0; plain_initializers[i].name; i++)
        if (strcmp(name, plain_initializers[i].name) == 0) {
            *init = plain_initializers[i].make();
            return true;
        }
    if (strcmp(name, "normal") == 0)
        *init = tow_init_normal(0.02);
    else if (strcmp(name, "uniform") == 0)
        *init = tow_init_uniform(0.3);
    else if (strcmp(name, "truncated_normal") == 0)
        *init = tow_init_truncated_normal(0.7);
    else if (strcmp(name, "constant") == 0)
        *init = tow_init_constant(0.1);
    else if (strcmp(name, "fan_out") == 0)
        *init = tow_init_variance_scaling(0.5, TOW_FAN_OUT, TOW_NORMAL);
    else
        return read_initializer(name, init);
    return true;
}

/* Calls use(user, model, input type) for the case of this name; false if there is none. */
typedef void (*model_use)(void *user, const tow_module *model, tow_type input);
static bool with_model(const char *name, model_use use, void *user)
{
#define CASE(text, layer, dtype, ...)                                                                                  \
    if (strcmp(name, text) == 0) {                                                                                     \
        int64_t dims[] = {__VA_ARGS__};                                                                                \
        use(user, TOW_MODULE(&(layer)), tow_make_type(dtype, (int)(sizeof dims / sizeof *dims), dims));                \
        return true;                                                                                                   \
    }
    CASE("dense", TOW_DENSE(.features = 32), TOW_F32, 4, 16)
    CASE("dense_odd", TOW_DENSE(.features = 7, .no_bias = true), TOW_F32, 3, 13)
    CASE("dense_large", TOW_DENSE(.features = 513), TOW_F32, 2, 300)
    CASE("general_split", TOW_DENSE_GENERAL(.features = {4, 8}), TOW_F32, 2, 12)
    CASE("general_join", TOW_DENSE_GENERAL(.features = {10}, .n_axes = 2, .axes = {-2, -1}), TOW_F32, 2, 4, 8)
    CASE("general_order", TOW_DENSE_GENERAL(.features = {3, 2}, .n_axes = 2, .axes = {-1, 1}), TOW_F32, 2, 4, 5, 6)
    CASE("general_equal", TOW_DENSE_GENERAL(.features = {3, 2}, .n_axes = 2, .axes = {-1, 1}), TOW_F32, 2, 4, 4)
    CASE("general_all", TOW_DENSE_GENERAL(.features = {5}, .n_axes = 3, .axes = {2, 0, -2}), TOW_F32, 4, 3, 2)
    CASE("general_batch_order", TOW_DENSE_GENERAL(.features = {3}, .n_axes = 2, .axes = {-1, -3}, .n_batch_dims = 1),
         TOW_F32, 2, 3, 4, 5)
    CASE("general_batch", TOW_DENSE_GENERAL(.features = {3, 2}, .n_batch_dims = 1), TOW_F32, 4, 5, 6)
    CASE("mlp", TOW_MLP(.features = {24, 24, 5}), TOW_F32, 2, 9)
    tow_embed embed = TOW_EMBED(.num_embeddings = 65, .features = 48);
    CASE("embed", NAMED("tokens", &embed), TOW_I32, 2, 3)
    tow_embed large = TOW_EMBED(.num_embeddings = 1000, .features = 96);
    CASE("embed_large", NAMED("tokens", &large), TOW_I32, 2, 3)
    CASE("layer_norm", TOW_LAYER_NORM(), TOW_F32, 2, 10)
    CASE("rms_norm", TOW_RMS_NORM(), TOW_F32, 2, 10)
    CASE("attention", TOW_MULTI_HEAD_ATTENTION(.heads = 4), TOW_F32, 2, 5, 32)
    CASE("attention_sizes",
         TOW_MULTI_HEAD_ATTENTION(.heads = 3, .qkv_features = 12, .out_features = 7, .no_bias = true), TOW_F32, 2, 5,
         10)
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2, .mlp_features = 16, .causal = true);
    CASE("block", block, TOW_F32, 2, 5, 8)
    tow_remat remat = TOW_REMAT(&block);
    CASE("remat", NAMED("block", &remat), TOW_F32, 2, 5, 8)
    CASE("first", ((struct { tow_module module; }){{&first_class}}), TOW_F32, 2, 6)
    tow_dense dense6 = TOW_DENSE(.features = 6), dense5 = TOW_DENSE(.features = 5, .no_bias = true);
    tow_scan scan6 = TOW_SCAN(&dense6, .length = 4, .keys = TOW_KEYS_FLAX);
    CASE("scan_flax", NAMED("stack", &scan6), TOW_F32, 2, 6)
    tow_scan scan5 = TOW_SCAN(&dense5, .length = 3, .keys = TOW_KEYS_FLAX);
    CASE("scan_flax_no_bias", NAMED("stack", &scan5), TOW_F32, 2, 5)
    tow_scan inner6 = TOW_SCAN(&dense6, .length = 3, .keys = TOW_KEYS_FLAX);
    tow_scan outer6 = TOW_SCAN(&inner6, .length = 2, .keys = TOW_KEYS_FLAX);
    CASE("scan_flax_nested", NAMED("stack", &outer6), TOW_F32, 2, 6)
    tow_scan middle5 = TOW_SCAN(&scan5, .length = 1, .keys = TOW_KEYS_FLAX);
    tow_scan outer5 = TOW_SCAN(&middle5, .length = 2, .keys = TOW_KEYS_FLAX);
    CASE("scan_flax_nested_no_bias", NAMED("stack", &outer5), TOW_F32, 2, 5)
    dense6.kernel_init = tow_init_normal(0.02);
    CASE("scan_flax_normal", NAMED("stack", &outer6), TOW_F32, 2, 6)
    lookup rows = {{&lookup_class}};
    tow_remat rows_again = TOW_REMAT(&rows, .policy = tow_nothing_saveable());
    tow_scan lookups = TOW_SCAN(&rows, .length = 3, .keys = TOW_KEYS_FLAX);
    CASE("scan_flax_embed", NAMED("stack_1", &lookups), TOW_F32, 2, 13)
    lookups.inner = TOW_MODULE(&rows_again);
    CASE("scan_flax_remat_embed", NAMED("stack_1", &lookups), TOW_F32, 2, 13)
    CASE("digits", ((lookup){{&digits_class}}), TOW_F32, 2, 5)
    tow_initializer init;
    bool scanned = strncmp(name, "scan_init_", 10) == 0;
    if (!scanned && strncmp(name, "init_", 5) != 0) return false;
    if (!find_initializer(name + (scanned ? 10 : 5), &init)) return false;
    if (!scanned) CASE(name, TOW_DENSE(.features = 33, .kernel_init = init), TOW_F32, 2, 17)
    tow_dense dense29 = TOW_DENSE(.features = 29, .no_bias = true, .kernel_init = init);
    tow_scan scan29 = TOW_SCAN(&dense29, .length = 2, .keys = TOW_KEYS_FLAX);
    CASE(name, NAMED("stack", &scan29), TOW_F32, 2, 29)
    return false;
#undef CASE
}

/* ---- initial values ---------------------------------------------------------------------------------------------- */

static uint64_t fnv1a(const void *data, size_t size)
{
    uint64_t h = 0xCBF29CE484222325U;
    for (size_t i = 0; i < size; i++) h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001B3U;
    return h;
}

/* Our path of Flax's: "stack/kernel" under a scan is "stack/{}/kernel". */
static tow_array *find_param(const tow_params *params, const char *path)
{
    for (size_t i = 0; i < tow_params_count(params); i++) {
        char plain[256];
        snprintf(plain, sizeof plain, "%s", tow_params_path(params, i));
        for (char *level; (level = strstr(plain, "{}/"));) memmove(level, level + 3, strlen(level + 3) + 1);
        if (strcmp(plain, path) == 0) return tow_params_array(params, i);
    }
    return NULL;
}

typedef struct golden {
    char name[64], path[128], shape[128];
    unsigned long long seed, hash;
    char words[128];
} golden;

static void compare_init(void *user, const tow_module *model, tow_type input)
{
    const golden *g = user;
    tow_params *params;
    OK(tow_init(ctx, model, g->seed, 1, &input, &params));
    tow_array *array = find_param(params, g->path);
    if (!array) fail_msg("%s: no parameter %s", g->name, g->path);
    tow_type type = tow_array_type(array);
    char words[128] = "", shape[128];
    if (strcmp(shape_text(type, shape), g->shape) != 0)
        fail_msg("%s %s: expected the shape %s, found %s", g->name, g->path, g->shape, shape);
    const uint32_t *bits = tow_array_data(array);
    for (int64_t i = 0; i < 8 && i < tow_type_count(type); i++)
        sprintf(words + strlen(words), "%s%08x", i ? " " : "", bits[i]);
    if (strcmp(words, g->words) != 0)
        fail_msg("%s seed %llu %s: expected %s, found %s", g->name, g->seed, g->path, g->words, words);
    if (fnv1a(bits, tow_type_bytes(type)) != g->hash)
        fail_msg("%s seed %llu %s: values differ after the first eight", g->name, g->seed, g->path);
    tow_params_free(params);
}

static void test_initial_values(void **state)
{
    (void)state;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/flax_init.txt", "r");
    assert_non_null(file);
    golden g;
    int lines = 0;
    while (fscanf(file, "%63s %llu %127s %127s %llx %127[0-9a-f ]", g.name, &g.seed, g.path, g.shape, &g.hash,
                  g.words) == 6) {
        if (!with_model(g.name, compare_init, &g)) fail_msg("no model for case %s", g.name);
        ++lines;
    }
    assert_true(feof(file));
    fclose(file);
    assert_true(lines > 300);
}

/* ---- outputs and gradients --------------------------------------------------------------------------------------- */

static bool with_forward_model(const char *name, model_use use, void *user)
{
#define CASE(text, layer, ...)                                                                                         \
    if (strcmp(name, text) == 0) {                                                                                     \
        int64_t dims[] = {__VA_ARGS__};                                                                                \
        use(user, TOW_MODULE(&(layer)), tow_make_type(TOW_F32, (int)(sizeof dims / sizeof *dims), dims));              \
        return true;                                                                                                   \
    }
    CASE("dense", TOW_DENSE(.features = 6), 3, 5)
    CASE("general", TOW_DENSE_GENERAL(.features = {3, 2}, .n_batch_dims = 1), 2, 4, 5)
    CASE("general_order", TOW_DENSE_GENERAL(.features = {3, 2}, .n_axes = 2, .axes = {-1, 1}), 2, 4, 4)
    CASE("general_batch_order", TOW_DENSE_GENERAL(.features = {5}, .n_axes = 2, .axes = {-1, 2}, .n_batch_dims = 1), 2,
         3, 4, 4)
    CASE("mlp", TOW_MLP(.features = {7, 6, 4}), 3, 5)
    CASE("layer_norm", TOW_LAYER_NORM(), 3, 9)
    CASE("rms_norm", TOW_RMS_NORM(), 3, 9)
    CASE("attention", TOW_MULTI_HEAD_ATTENTION(.heads = 2), 2, 5, 8)
    CASE("cross", ((struct { tow_module module; }){{&masked_class}}), 2, 3, 8)
    CASE("block", TOW_TRANSFORMER_BLOCK(.heads = 2, .mlp_features = 16, .causal = true), 2, 5, 8)
    CASE("block_open", TOW_TRANSFORMER_BLOCK(.heads = 4, .mlp_features = 12), 1, 4, 8)
    return false;
#undef CASE
}

/* sum(output * fractions), and the output */
static void weighted_sum(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                         tow_value *aux, void *user)
{
    (void)extra, (void)user;
    tow_type type = tow_value_type(outputs[0]);
    float weights[256];
    assert_true(tow_type_count(type) <= 256);
    for (int64_t i = 0; i < tow_type_count(type); i++) weights[i] = fraction(i);
    *loss = tow_reduce_sum(tow_mul(outputs[0], tow_constant_data(t, type, weights)), 0, NULL);
    aux[0] = outputs[0];
}

/* Values of one case: output, gradients of parameters, gradient of the input. */
typedef struct results {
    tow_params *params;
    size_t n;
    tow_array *arrays[64]; /* loss, output, then gradients of parameters and of the input */
} results;

static void compute(void *user, const tow_module *model, tow_type input)
{
    results *r = user;
    OK(tow_init(ctx, model, 3, 1, &input, &r->params));
    tow_graph *loss, *gradient;
    OK(tow_loss(model, r->params, 1, &input, 0, NULL, weighted_sum, NULL, 1, NULL, &loss));
    size_t n = tow_params_count(r->params), wrt[64];
    for (size_t i = 0; i <= n; i++) wrt[i] = i;
    OK(tow_value_and_grad(loss, n + 1, wrt, true, &gradient));
    tow_array *x, *in[64];
    OK(tow_array_create(ctx, input, &x));
    for (int64_t i = 0; i < tow_type_count(input); i++) ((float *)tow_array_data(x))[i] = fraction(i);
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(r->params, i);
    in[n] = x;
    OK(tow_evaluate(gradient, in, r->arrays));
    r->n = n + 3;
    tow_array_release(x);
    tow_graph_release(loss);
    tow_graph_release(gradient);
}

static tow_array *result_called(const results *r, const char *what)
{
    if (strcmp(what, "output") == 0) return r->arrays[1];
    if (strcmp(what, "input") == 0) return r->arrays[r->n - 1];
    for (size_t i = 0; i < tow_params_count(r->params); i++)
        if (strcmp(tow_params_path(r->params, i), what) == 0) return r->arrays[2 + i];
    fail_msg("nothing is called %s", what);
    return NULL;
}

static void release(results *r)
{
    for (size_t i = 0; i < r->n; i++) tow_array_release(r->arrays[i]);
    tow_params_free(r->params);
    r->params = NULL;
    r->n = 0;
}

/* Both sides compute in float32 with sums in different orders: 2e-5 of the largest element of the array. */
static void test_outputs_and_gradients(void **state)
{
    (void)state;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/flax_forward.txt", "r");
    assert_non_null(file);
    char name[64], what[128], shape[128], found[128], last[64] = "";
    int lines = 0;
    results r = {0};
    while (fscanf(file, "%63s %127s %127s", name, what, shape) == 3) {
        if (strcmp(name, last) != 0) {
            release(&r);
            if (!with_forward_model(name, compute, &r)) fail_msg("no model for case %s", name);
            strcpy(last, name);
        }
        tow_array *array = result_called(&r, what);
        int64_t count = tow_type_count(tow_array_type(array));
        if (strcmp(shape_text(tow_array_type(array), found), shape) != 0)
            fail_msg("%s %s: expected the shape %s, found %s", name, what, shape, found);
        double expected[1024], largest = 0, error = 0;
        assert_true(count <= 1024);
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(fscanf(file, "%lf", &expected[i]), 1);
            largest = fmax(largest, fabs(expected[i]));
            error = fmax(error, fabs(expected[i] - (double)((float *)tow_array_data(array))[i]));
        }
        if (!(error <= 2e-5 * fmax(largest, 1)))
            fail_msg("%s %s: differs by %g, largest element %g", name, what, error, largest);
        ++lines;
    }
    assert_true(feof(file));
    fclose(file);
    assert_true(lines > 50);
    release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_initial_values),
        cmocka_unit_test(test_outputs_and_gradients),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
