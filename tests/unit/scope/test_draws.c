/* Parameters drawn from seeds, by paths, shapes and initializers, bit for bit those of Flax
 * (tests/oracle/flax_draws.py). Tests draws.c, streams.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/shape_text.h"
#include "tow/attention.h"
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
    tow_value gain = tow_param(s, "gain", 2, (int64_t[]){type.dims[1], 3}, tow_initializer_normal(0.5));
    tow_value shift = tow_param(s, "shift", 1, (int64_t[]){3}, tow_initializer_uniform(2.0));
    tow_dense after = TOW_DENSE(.features = 5);
    out[0] = tow_apply(s, "after", &after, tow_add(tow_matmul(in[0], gain), shift));
}
static const tow_module_class first_class = {"first", call_first};

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
} plain_initializers[] = {
    {"lecun_uniform", tow_initializer_lecun_uniform},   {"he_normal", tow_initializer_he_normal},
    {"he_uniform", tow_initializer_he_uniform},         {"glorot_normal", tow_initializer_glorot_normal},
    {"glorot_uniform", tow_initializer_glorot_uniform}, {NULL, NULL}};

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
        *init = tow_initializer_variance_scaling(number, strcmp(mode, "in") == 0 ? TOW_FAN_IN : TOW_FAN_AVG,
                                                 (tow_distribution)i);
        return true;
    }
    if (sscanf(name, "normal_%lf", &number) == 1)
        *init = tow_initializer_normal(number);
    else if (sscanf(name, "truncated_%lf", &number) == 1)
        *init = tow_initializer_truncated_normal(number);
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
        *init = tow_initializer_normal(0.02);
    else if (strcmp(name, "uniform") == 0)
        *init = tow_initializer_uniform(0.3);
    else if (strcmp(name, "truncated_normal") == 0)
        *init = tow_initializer_truncated_normal(0.7);
    else if (strcmp(name, "constant") == 0)
        *init = tow_initializer_constant(0.1);
    else if (strcmp(name, "fan_out") == 0)
        *init = tow_initializer_variance_scaling(0.5, TOW_FAN_OUT, TOW_NORMAL);
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
    dense6.kernel_init = tow_initializer_normal(0.02);
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
    OK(tow_model_init(ctx, model, g->seed, 1, &input, &params));
    tow_array *array = find_param(params, g->path);
    if (!array) fail_msg("%s: no parameter %s", g->name, g->path);
    tow_type type = tow_array_type(array);
    char words[128] = "", shape[128];
    if (strcmp(shape_text(type, shape), g->shape) != 0)
        fail_msg("%s %s: expected the shape %s, found %s", g->name, g->path, g->shape, shape);
    const uint32_t *bits = tow_array_data(array);
    for (int64_t i = 0; i < 8 && i < tow_type_element_count(type); i++)
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
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/flax_draws.txt", "r");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_initial_values),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
