/* The layers: initial values, outputs, gradients and running statistics against Flax and PyTorch
 * (tests/oracle/flax_catalogue.py), and the same bits under remat, vmap and scan. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/shape_text.h"
#include "tow/tow.h"

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* The child "layer", with a mask of its own (i mod 3 != 0) where rank > 0. */
typedef struct masked {
    tow_module module;
    const tow_module *inner;
    int rank;
    int64_t dims[4];
} masked;

static void call_masked(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const masked *m = (const masked *)module;
    tow_type type = tow_make_type(TOW_BOOL, m->rank, m->dims);
    bool mask[64];
    assert_true(n_in == 1 && n_out == 1 && tow_type_count(type) <= 64);
    for (int i = 0; i < 64; i++) mask[i] = i % 3 != 0;
    tow_value x[2] = {in[0], tow_constant_data(tow_scope_trace(s), type, mask)};
    tow_apply_module_n(s, "layer", m->inner, m->rank ? 2 : 1, x, 1, out);
}
static const tow_module_class masked_class = {.name = "masked", .call = call_masked};

/* The layer by itself has the shape of its input and no mask: it can be stacked. */
typedef void (*case_use)(void *user, const char *name, const tow_module *model, tow_type input);

/* Calls use(user, ...) for the case of this name, or for every case (NULL); false if there is none. */
static bool with_case(const char *name, tow_dtype dtype, case_use use, void *user)
{
    bool found = false;
#define MASKED(text, layer, mask_rank, mask_dims, ...)                                                                 \
    if (!name || strcmp(name, text) == 0) {                                                                            \
        int64_t dims[] = {__VA_ARGS__};                                                                                \
        masked model = {{&masked_class}, TOW_MODULE(&(layer)), mask_rank, mask_dims};                                  \
        use(user, text, TOW_MODULE(&model), tow_make_type(dtype, (int)(sizeof dims / sizeof *dims), dims));            \
        found = true;                                                                                                  \
    }
#define LIST(...)              {__VA_ARGS__}
#define CASE(text, layer, ...) MASKED(text, layer, 0, LIST(0), __VA_ARGS__)
    CASE("dense", TOW_DENSE(.features = 6), 3, 5)
    CASE("general", TOW_DENSE_GENERAL(.features = {3, 2}, .n_batch_dims = 1), 2, 4, 5)
    CASE("mlp", TOW_MLP(.features = {7, 6, 4}), 3, 5)
    CASE("layer_norm", TOW_LAYER_NORM(), 3, 9)
    CASE("rms_norm", TOW_RMS_NORM(), 3, 9)
    CASE("attention", TOW_MULTI_HEAD_ATTENTION(.heads = 2), 2, 5, 8)
    CASE("block", TOW_TRANSFORMER_BLOCK(.heads = 2, .mlp_features = 16, .causal = true), 2, 5, 8)
    CASE("conv", TOW_CONV(.features = 5, .kernel_size = {3, 3}), 2, 6, 5, 3)
    CASE("conv_1d", TOW_CONV(.features = 4, .kernel_size = {3}, .no_bias = true), 2, 7, 3)
    CASE("conv_3d", TOW_CONV(.features = 2, .kernel_size = {2, 3, 2}, .strides = {1, 2, 1}), 1, 3, 4, 3, 2)
    CASE("conv_valid_strides",
         TOW_CONV(.features = 4, .kernel_size = {3, 2}, .strides = {2, 1}, .padding = TOW_CONV_VALID), 2, 7, 5, 3)
    CASE("conv_same_lower", TOW_CONV(.features = 3, .kernel_size = {4}, .strides = {2}, .padding = TOW_CONV_SAME_LOWER),
         2, 7, 2)
    CASE("conv_causal", TOW_CONV(.features = 3, .kernel_size = {3}, .padding = TOW_CONV_CAUSAL, .kernel_dilation = {2}),
         2, 8, 2)
    CASE("conv_circular", TOW_CONV(.features = 3, .kernel_size = {4, 3}, .padding = TOW_CONV_CIRCULAR), 2, 5, 4, 2)
    CASE("conv_circular_far",
         TOW_CONV(.features = 2, .kernel_size = {7}, .padding = TOW_CONV_CIRCULAR, .kernel_dilation = {2},
                  .strides = {2}),
         1, 4, 2)
    CASE("conv_reflect", TOW_CONV(.features = 3, .kernel_size = {4, 3}, .padding = TOW_CONV_REFLECT, .strides = {2}), 1,
         5, 6, 2)
    CASE("conv_reflect_far", TOW_CONV(.features = 2, .kernel_size = {8}, .padding = TOW_CONV_REFLECT), 1, 3, 2)
    CASE("conv_explicit",
         TOW_CONV(.features = 3, .kernel_size = {3, 2}, .padding = TOW_CONV_EXPLICIT, .low = {2, -1}, .high = {0, 3},
                  .kernel_dilation = {1, 2}),
         2, 5, 6, 2)
    CASE("conv_input_dilation",
         TOW_CONV(.features = 3, .kernel_size = {3}, .padding = TOW_CONV_EXPLICIT, .low = {1}, .high = {2},
                  .input_dilation = {3}),
         2, 4, 2)
    CASE("conv_groups", TOW_CONV(.features = 6, .kernel_size = {3}, .groups = 2), 2, 5, 4)
    CASE("conv_depthwise", TOW_CONV(.features = 6, .kernel_size = {3, 3}, .groups = 3), 1, 4, 4, 3)
    CASE("conv_batches", TOW_CONV(.features = 2, .kernel_size = {3}), 2, 2, 5, 3)
    CASE("conv_no_batch", TOW_CONV(.features = 2, .kernel_size = {3, 3}), 5, 4, 3)
    CASE("conv_init",
         TOW_CONV(.features = 3, .kernel_size = {3}, .kernel_init = tow_init_normal(0.5),
                  .bias_init = tow_init_uniform(0.3)),
         2, 5, 2)
    MASKED("conv_mask", TOW_CONV(.features = 3, .kernel_size = {3}), 3, LIST(3, 2, 3), 2, 5, 2)
    CASE("conv_large_kernel", TOW_CONV(.features = 3, .kernel_size = {5}, .padding = TOW_CONV_VALID), 2, 3, 2)
    CASE("conv_transpose", TOW_CONV_TRANSPOSE(.features = 3, .kernel_size = {3, 3}, .strides = {2}), 1, 3, 4, 2)
    CASE("conv_transpose_valid",
         TOW_CONV_TRANSPOSE(.features = 3, .kernel_size = {4}, .strides = {3}, .padding = TOW_CONV_VALID), 2, 4, 2)
    CASE("conv_transpose_short", TOW_CONV_TRANSPOSE(.features = 2, .kernel_size = {2}, .strides = {3}), 2, 3, 2)
    CASE("conv_transpose_circular",
         TOW_CONV_TRANSPOSE(.features = 2, .kernel_size = {4, 3}, .strides = {2, 1}, .padding = TOW_CONV_CIRCULAR), 1,
         3, 4, 2)
    CASE("conv_transpose_flipped",
         TOW_CONV_TRANSPOSE(.features = 3, .kernel_size = {4}, .strides = {2}, .transpose_kernel = true), 2, 4, 2)
    CASE("conv_transpose_flipped_circular",
         TOW_CONV_TRANSPOSE(.features = 3, .kernel_size = {4}, .strides = {2}, .padding = TOW_CONV_CIRCULAR,
                            .transpose_kernel = true),
         2, 3, 2)
    CASE("conv_transpose_explicit",
         TOW_CONV_TRANSPOSE(.features = 2, .kernel_size = {3}, .strides = {2}, .padding = TOW_CONV_EXPLICIT, .low = {1},
                            .high = {2}, .kernel_dilation = {2}),
         2, 4, 2)
    CASE("conv_transpose_no_batch", TOW_CONV_TRANSPOSE(.features = 2, .kernel_size = {3}, .no_bias = true), 4, 3)
    CASE("pool_max", TOW_POOL(.window = {2, 3}, .strides = {2, 1}, .padding = TOW_PAD_SAME), 2, 5, 6, 2)
    CASE("pool_avg", TOW_POOL(.kind = TOW_POOL_AVG, .window = {3}, .strides = {2}, .padding = TOW_PAD_SAME), 2, 6, 2)
    CASE("pool_avg_inside",
         TOW_POOL(.kind = TOW_POOL_AVG, .window = {3}, .strides = {2}, .padding = TOW_PAD_EXPLICIT, .low = {1},
                  .high = {2}, .exclude_padding = true),
         2, 6, 2)
    CASE("pool_min", TOW_POOL(.kind = TOW_POOL_MIN, .window = {2, 2}), 1, 4, 3, 2)
    CASE("adaptive_avg", TOW_ADAPTIVE_POOL(.kind = TOW_POOL_AVG, .size = {3, 2}), 2, 5, 7, 2)
    CASE("adaptive_avg_global", TOW_ADAPTIVE_POOL(.kind = TOW_POOL_AVG, .size = {1, 1}), 2, 5, 4, 3)
    CASE("adaptive_avg_even", TOW_ADAPTIVE_POOL(.kind = TOW_POOL_AVG, .size = {3}), 2, 6, 3)
    CASE("adaptive_avg_larger", TOW_ADAPTIVE_POOL(.kind = TOW_POOL_AVG, .size = {5}), 2, 3, 2)
    CASE("adaptive_avg_kept", TOW_ADAPTIVE_POOL(.kind = TOW_POOL_AVG, .size = {-1, 2}), 1, 3, 5, 2)
    CASE("adaptive_max", TOW_ADAPTIVE_POOL(.size = {2, 3}), 2, 5, 4, 2)
    CASE("adaptive_max_3d", TOW_ADAPTIVE_POOL(.size = {2, 1, 2}), 1, 3, 2, 5, 2)
    CASE("space_to_depth", TOW_SPACE_TO_DEPTH(.block = {2, 3}), 2, 4, 6, 2)
    CASE("depth_to_space", TOW_SPACE_TO_DEPTH(.block = {2, 3}, .inverse = true), 1, 2, 2, 12)
    CASE("batch_norm", TOW_BATCH_NORM(), 4, 3, 5)
    CASE("batch_norm_axes",
         TOW_BATCH_NORM(.n_axes = 2, .axes = {-1, 1}, .momentum = 0.75, .epsilon = 0.01, .no_bias = true), 4, 3, 2, 3)
    MASKED("batch_norm_mask", TOW_BATCH_NORM(.no_scale = true), 2, LIST(6, 1), 6, 4)
    CASE("batch_norm_frozen", TOW_BATCH_NORM(.use_running_average = true), 4, 5)
    CASE("batch_norm_init", TOW_BATCH_NORM(.scale_init = tow_init_normal(0.5), .bias_init = tow_init_uniform(0.3)), 4,
         5)
    CASE("group_norm", TOW_GROUP_NORM(.groups = 3), 2, 4, 3, 6)
    CASE("group_norm_size", TOW_GROUP_NORM(.group_size = 2, .no_bias = true, .epsilon = 0.1), 2, 5, 4)
    CASE("group_norm_default", TOW_GROUP_NORM(), 2, 64)
    MASKED("group_norm_mask", TOW_GROUP_NORM(.groups = 2), 3, LIST(2, 4, 4), 2, 4, 4)
    CASE("instance_norm", TOW_INSTANCE_NORM(), 2, 4, 3, 2)
    CASE("instance_norm_axes", TOW_INSTANCE_NORM(.n_axes = 2, .axes = {1, -1}, .no_scale = true), 2, 2, 5, 3)
    CASE("instance_norm_rows", TOW_INSTANCE_NORM(.bias_init = tow_init_normal(1.0)), 3, 4)
    MASKED("instance_norm_mask", TOW_INSTANCE_NORM(), 3, LIST(2, 5, 1), 2, 5, 3)
    CASE("prelu", TOW_PRELU(), 3, 5)
    CASE("prelu_init", TOW_PRELU(.slope_init = tow_init_constant(0.25)), 3, 5)
    tow_dense dense = TOW_DENSE(.features = 4);
    tow_conv conv = TOW_CONV(.features = 4, .kernel_size = {3}),
             conv_bias = TOW_CONV(.features = 4, .kernel_size = {3}, .bias_init = tow_init_normal(1.0));
    tow_mlp mlp = TOW_MLP(.features = {4, 3});
    CASE("weight_norm", TOW_WEIGHT_NORM(&dense), 3, 5)
    CASE("weight_norm_everything", TOW_WEIGHT_NORM(&conv_bias, .everything = true), 2, 5, 3)
    CASE("weight_norm_axes", TOW_WEIGHT_NORM(&conv, .n_axes = 2, .axes = {-1, 0}, .scale_init = tow_init_constant(1.5)),
         2, 5, 3)
    CASE("weight_norm_whole", TOW_WEIGHT_NORM(&dense, .whole = true, .epsilon = 0.1), 3, 5)
    CASE("weight_norm_no_scale", TOW_WEIGHT_NORM(&dense, .no_scale = true), 3, 5)
    CASE("weight_norm_filter", TOW_WEIGHT_NORM(&mlp, .filter = TOW_NAMES("Dense_1")), 3, 5)
    CASE("spectral_norm", TOW_SPECTRAL_NORM(&dense), 3, 5)
    CASE("spectral_norm_steps", TOW_SPECTRAL_NORM(&conv, .n_steps = 3, .epsilon = 1e-3), 2, 5, 3)
    CASE("spectral_norm_mlp", TOW_SPECTRAL_NORM(&mlp), 3, 5)
    CASE("einsum", TOW_EINSUM(.spec = "btd,dhk->bthk", .shape = {6, 2, 4}), 2, 3, 6)
    CASE("einsum_mixed", TOW_EINSUM(.spec = "btd , dkt -> bkt", .shape = {5, 2, 3}, .bias_init = tow_init_normal(1.0)),
         2, 3, 5)
    CASE("einsum_dots", TOW_EINSUM(.spec = "...d,dk->...k", .shape = {4, 3}), 2, 2, 3, 4)
    CASE("einsum_no_bias", TOW_EINSUM(.spec = "ab,bc->ca", .shape = {3, 2}, .no_bias = true), 4, 3)
    return found;
#undef CASE
#undef MASKED
#undef LIST
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static double fraction(int64_t i) { return (double)((i * 7919) % 257 - 128) / 64; }

static tow_array *fractions(tow_type type, int64_t first)
{
    tow_array *array;
    OK(tow_array_create(ctx, type, &array));
    for (int64_t i = 0; i < tow_type_count(type); i++) {
        if (type.dtype == TOW_F64)
            ((double *)tow_array_data(array))[i] = fraction(first + i);
        else
            ((float *)tow_array_data(array))[i] = (float)fraction(first + i);
    }
    return array;
}

static double element(const tow_array *array, int64_t i)
{
    const void *data = tow_array_data((tow_array *)array);
    return tow_array_type(array).dtype == TOW_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

/* sum(output * fractions), and the output */
static void weighted_sum(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                         tow_value *aux, void *user)
{
    (void)extra, (void)user;
    tow_type type = tow_value_type(outputs[0]);
    tow_array *weights = fractions(type, 0);
    *loss = tow_reduce_sum(tow_mul(outputs[0], tow_constant(t, weights)), 0, NULL);
    aux[0] = outputs[0];
    tow_array_release(weights);
}

enum {
    MOST = 64
};
/* What one call of a model gives in training. */
typedef struct results {
    tow_params *params, *state;
    size_t n;
    tow_array *arrays[MOST]; /* loss, output, new variables, gradients of parameters and of the input */
    tow_array *eval;         /* the output with the new variables */
} results;

static void evaluate_again(results *r, const tow_module *model, tow_type type, tow_array *x)
{
    size_t n = tow_params_count(r->params), n_state = tow_params_count(r->state);
    tow_model_options options = {.state = r->state, .deterministic = true};
    tow_array *in[MOST];
    tow_graph *graph;
    OK(tow_forward(model, r->params, 1, &type, &options, &graph));
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(r->params, i);
    for (size_t i = 0; i < n_state; i++) in[n + i] = r->arrays[2 + i];
    in[n + n_state] = x;
    OK(tow_evaluate(graph, in, &r->eval));
    tow_graph_release(graph);
}

static void compute(results *r, const tow_module *model, tow_type type)
{
    static const char *const every[] = {TOW_EVERY_COLLECTION, NULL};
    OK(tow_init_with_options(ctx, model, 3, 1, &type, NULL, &r->params, &r->state));
    size_t n = tow_params_count(r->params), n_state = tow_params_count(r->state), wrt[MOST], n_wrt = 0;
    tow_model_options options = {.state = r->state, .mutable_collections = n_state ? every : NULL};
    tow_graph *loss, *gradient;
    OK(tow_loss(model, r->params, 1, &type, 0, NULL, weighted_sum, NULL, 1, &options, &loss));
    for (size_t i = 0; i < n; i++) wrt[n_wrt++] = i;
    wrt[n_wrt++] = n + n_state;
    OK(tow_value_and_grad(loss, n_wrt, wrt, true, &gradient));
    r->n = 2 + n_state + n_wrt;
    tow_array *x = fractions(type, 0), *in[MOST];
    assert_true(r->n <= MOST);
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(r->params, i);
    for (size_t i = 0; i < n_state; i++) in[n + i] = tow_params_array(r->state, i);
    in[n + n_state] = x;
    OK(tow_evaluate(gradient, in, r->arrays));
    if (n_state) evaluate_again(r, model, type, x);
    tow_array_release(x);
    tow_graph_release(loss);
    tow_graph_release(gradient);
}

static void release(results *r)
{
    for (size_t i = 0; i < r->n; i++) tow_array_release(r->arrays[i]);
    tow_array_release(r->eval);
    tow_params_free(r->params);
    tow_params_free(r->state);
    *r = (results){0};
}

/* ---- against Flax and PyTorch ------------------------------------------------------------------------------------ */

static void compute_case(void *user, const char *name, const tow_module *model, tow_type input)
{
    (void)name;
    compute(user, model, input);
}

static tow_array *result_called(const results *r, const char *what)
{
    size_t n_state = tow_params_count(r->state);
    if (strcmp(what, "output") == 0) return r->arrays[1];
    if (strcmp(what, "input") == 0) return r->arrays[r->n - 1];
    if (strcmp(what, "eval") == 0) return r->eval;
    for (size_t i = 0; i < tow_params_count(r->params); i++) {
        if (strncmp(what, "param/", 6) == 0 && strcmp(tow_params_path(r->params, i), what + 6) == 0)
            return tow_params_array(r->params, i);
        if (strncmp(what, "grad/", 5) == 0 && strcmp(tow_params_path(r->params, i), what + 5) == 0)
            return r->arrays[2 + n_state + i];
    }
    for (size_t i = 0; i < n_state; i++)
        if ((strncmp(what, "state/", 6) == 0 || strncmp(what, "start/", 6) == 0) &&
            strcmp(tow_params_path(r->state, i), what + 6) == 0)
            return strncmp(what, "start/", 6) == 0 ? tow_params_array(r->state, i) : r->arrays[2 + i];
    fail_msg("nothing is called %s", what);
    return NULL;
}

/* Initial values have the same bits. Sums are taken in other orders: 2e-5 of the largest element of an array in f32, 1e-12 in
 * f64, whose running statistics are f32. */
static void test_golden(void **unused)
{
    (void)unused;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/flax_catalogue.txt", "r");
    assert_non_null(file);
    char name[64], dtype[8], what[128], shape[128], found[128], last[80] = "", now[80];
    int lines = 0;
    results r = {0};
    while (fscanf(file, "%63s %7s %127s %127s", name, dtype, what, shape) == 4) {
        bool is_double = strcmp(dtype, "f64") == 0;
        snprintf(now, sizeof now, "%s %s", name, dtype);
        if (strcmp(now, last) != 0) {
            release(&r);
            if (!with_case(name, is_double ? TOW_F64 : TOW_F32, compute_case, &r)) fail_msg("no case %s", name);
            strcpy(last, now);
        }
        tow_array *array = result_called(&r, what);
        if (strcmp(shape_text(tow_array_type(array), found), shape) != 0)
            fail_msg("%s %s %s: expected the shape %s, found %s", name, dtype, what, shape, found);
        bool exact = strncmp(what, "param/", 6) == 0 || strncmp(what, "start/", 6) == 0;
        double largest = 1, error = 0, expected;
        for (int64_t i = 0; i < tow_type_count(tow_array_type(array)); i++) {
            assert_int_equal(fscanf(file, "%lf", &expected), 1);
            if (exact && (float)expected != (float)element(array, i))
                fail_msg("%s %s %s[%d]: expected %.9g, found %.9g", name, dtype, what, (int)i, expected,
                         element(array, i));
            largest = fmax(largest, fabs(expected));
            double difference = fabs(expected - element(array, i));
            if (!(difference <= error)) error = difference; /* a NaN stays */
        }
        double limit = is_double && tow_array_type(array).dtype == TOW_F64 ? 1e-12 : 2e-5;
        if (strcmp(what, "eval") == 0 && is_double) limit = 1e-7; /* by running statistics in f32 */
        if (strstr(name, "weight_norm") || strstr(name, "spectral_norm"))
            limit = 2e-5; /* parameters are normalised in f32 */
        if (!(error <= limit * largest))
            fail_msg("%s %s %s: differs by %g, largest element %g", name, dtype, what, error, largest);
        ++lines;
    }
    assert_true(feof(file));
    fclose(file);
    assert_true(lines > 300);
    release(&r);
}

/* ---- the same bits under every wrapping -------------------------------------------------------------------------- */

static void expect_equal(const char *name, const char *where, const results *a, const results *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        assert_true(tow_type_equal(tow_array_type(a->arrays[i]), tow_array_type(b->arrays[i])));
        if (memcmp(tow_array_data(a->arrays[i]), tow_array_data(b->arrays[i]),
                   tow_type_bytes(tow_array_type(a->arrays[i]))))
            fail_msg("%s %s: result %zu has other bits", name, where, i);
    }
}

static void check_remat(void *user, const char *name, const tow_module *model, tow_type input)
{
    const tow_policy policies[] = {tow_nothing_saveable(), tow_dots_saveable(), tow_everything_saveable()};
    results plain = {0}, wrapped = {0};
    (void)user;
    compute(&plain, model, input);
    for (int i = 0; i < 3; i++) {
        tow_remat remat = {.module = {&tow_remat_class}, .inner = model, .policy = policies[i]};
        compute(&wrapped, TOW_MODULE(&remat), input);
        expect_equal(name, "in remat", &plain, &wrapped);
        release(&wrapped);
    }
    release(&plain);
}

static bool keeps_its_type(const tow_module *model, tow_type input)
{
    results r = {0};
    compute(&r, model, input);
    bool same = tow_type_equal(tow_array_type(r.arrays[1]), input);
    release(&r);
    return same;
}

/* Parameters and variables of the loop are stacked: [length, ...] beside "0/...", "1/..." */
static void check_scan(void *user, const char *name, const tow_module *model, tow_type input)
{
    int *stacked = user;
    if (!keeps_its_type(model, input)) return;
    ++*stacked;
    tow_remat region = {.module = {&tow_remat_class}, .inner = model};
    tow_scan loop = TOW_SCAN(&region, .length = 2), unrolled = TOW_SCAN(&region, .length = 2, .unrolled = true);
    results a = {0}, b = {0};
    compute(&a, TOW_MODULE(&loop), input);
    compute(&b, TOW_MODULE(&unrolled), input);
    size_t last = a.n - 1, end = b.n - 1;
    if (memcmp(tow_array_data(a.arrays[1]), tow_array_data(b.arrays[1]), tow_type_bytes(input)) ||
        memcmp(tow_array_data(a.arrays[last]), tow_array_data(b.arrays[end]), tow_type_bytes(input)))
        fail_msg("%s in a scan: output or gradient has other bits than unrolled", name);
    for (size_t i = 0; i < tow_params_count(a.state); i++) { /* variables of each iteration change once */
        size_t bytes = tow_type_bytes(tow_array_type(a.arrays[2 + i])) / 2;
        for (size_t k = 0; k < 2; k++) {
            char path[128];
            const char *stack = tow_params_path(a.state, i), *mark = strstr(stack, "{}");
            snprintf(path, sizeof path, "%.*s%zu%s", (int)(mark - stack), stack, k, mark + 2);
            for (size_t j = 0; j < tow_params_count(b.state); j++)
                if (strcmp(tow_params_path(b.state, j), path) == 0 &&
                    memcmp((char *)tow_array_data(a.arrays[2 + i]) + k * bytes, tow_array_data(b.arrays[2 + j]), bytes))
                    fail_msg("%s in a scan: %s has other bits than unrolled", name, path);
        }
    }
    release(&a);
    release(&b);
}

/* Row r of the batched forward pass has the bits of the pass on row r. */
static void check_vmap(void *user, const char *name, const tow_module *model, tow_type input)
{
    static const char *const every[] = {TOW_EVERY_COLLECTION, NULL};
    tow_params *params, *state;
    tow_graph *one, *both;
    tow_array *in[MOST], *x, *rows[2], *out[MOST], *expected[MOST];
    (void)user;
    OK(tow_init_with_options(ctx, model, 3, 1, &input, NULL, &params, &state));
    size_t n = tow_params_count(params), n_state = tow_params_count(state), n_out = 1 + n_state;
    tow_model_options options = {.state = state, .mutable_collections = n_state ? every : NULL};
    OK(tow_forward(model, params, 1, &input, &options, &one));
    int axes[MOST];
    for (size_t i = 0; i < n + n_state; i++) axes[i] = TOW_NOT_MAPPED;
    axes[n + n_state] = 0;
    OK(tow_vmap(one, 2, axes, NULL, &both));
    tow_type types = input;
    memmove(types.dims + 1, types.dims, (size_t)input.rank * sizeof *types.dims);
    types.dims[0] = 2;
    types.rank++;
    x = fractions(types, 0);
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(params, i);
    for (size_t i = 0; i < n_state; i++) in[n + i] = tow_params_array(state, i);
    in[n + n_state] = x;
    OK(tow_evaluate(both, in, out));
    for (int row = 0; row < 2; row++) {
        rows[row] = fractions(input, row * tow_type_count(input));
        in[n + n_state] = rows[row];
        OK(tow_evaluate(one, in, expected));
        for (size_t i = 0; i < n_out; i++) {
            size_t bytes = tow_type_bytes(tow_array_type(expected[i]));
            if (memcmp((char *)tow_array_data(out[i]) + (size_t)row * bytes, tow_array_data(expected[i]), bytes))
                fail_msg("%s under vmap: row %d of result %zu has other bits", name, row, i);
            tow_array_release(expected[i]);
        }
        tow_array_release(rows[row]);
    }
    for (size_t i = 0; i < n_out; i++) tow_array_release(out[i]);
    tow_array_release(x);
    tow_graph_release(one);
    tow_graph_release(both);
    tow_params_free(params);
    tow_params_free(state);
}

static void test_remat(void **unused)
{
    (void)unused;
    assert_true(with_case(NULL, TOW_F32, check_remat, NULL));
    assert_true(with_case(NULL, TOW_F64, check_remat, NULL));
}

static void test_scan(void **unused)
{
    int stacked = 0;
    (void)unused;
    with_case(NULL, TOW_F32, check_scan, &stacked);
    assert_true(stacked > 10);
}

static int portable_setup(void **unused)
{
    (void)unused;
    tow_context_options options = {.portable_bits = true};
    return tow_context_create(&options, &ctx) == TOW_OK ? 0 : -1;
}

static void test_vmap(void **unused)
{
    (void)unused;
    with_case(NULL, TOW_F32, check_vmap, NULL);
    with_case(NULL, TOW_F64, check_vmap, NULL);
}

/* ---- views of parameters ----------------------------------------------------------------------------------------- */

/* Applies one Dense so many times. */
typedef struct repeated {
    tow_module module;
    int times;
} repeated;

static void call_repeated(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    tow_dense dense = TOW_DENSE(.features = tow_value_type(in[0]).dims[1]);
    (void)n_in, (void)n_out;
    out[0] = in[0];
    for (int i = 0; i < ((const repeated *)module)->times; i++) out[0] = tow_apply(s, "dense", &dense, out[0]);
}
static const tow_module_class repeated_class = {.name = "repeated", .call = call_repeated};

/* However often a layer asks for a parameter in one call, SpectralNorm makes its iterations once: four products. */
static void test_a_parameter_is_viewed_once(void **unused)
{
    static const char *const every[] = {TOW_EVERY_COLLECTION, NULL};
    tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){2, 4});
    (void)unused;
    for (int times = 1; times <= 3; times++) {
        repeated layer = {{&repeated_class}, times};
        tow_spectral_norm spectral = TOW_SPECTRAL_NORM(&layer);
        tow_weight_norm model = TOW_WEIGHT_NORM(&spectral);
        tow_params *params, *state;
        tow_graph *graph;
        OK(tow_init_with_options(ctx, TOW_MODULE(&model), 0, 1, &type, NULL, &params, &state));
        assert_int_equal(tow_params_count(params), 3);
        assert_string_equal(tow_params_path(params, 1), "dense/WeightNorm/kernel/scale");
        tow_model_options options = {.state = state, .mutable_collections = every};
        OK(tow_forward(TOW_MODULE(&model), params, 1, &type, &options, &graph));
        assert_int_equal(tow_graph_count(graph, "dot_general"), 4 + times);
        tow_graph_release(graph);
        tow_params_free(params);
        tow_params_free(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_remat),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_vmap),
        cmocka_unit_test(test_a_parameter_is_viewed_once),
    };
    return cmocka_run_group_tests(tests, portable_setup, teardown);
}
