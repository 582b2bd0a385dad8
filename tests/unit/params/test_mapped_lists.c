/* Mapped and tied layers outside of a trace: names on disk, files, partial loading, summaries, parts of models, other
 * element types and sizes of zero, noise, variables without a type. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/mapped_layers.h"

#define TRANSPOSED .trans_in = transpose, .trans_out = transpose

static const tow_type x24 = {.dtype = TOW_F32, .rank = 2, .dims = {2, 4}};

static void expect_tensor(const tow_tensors *tensors, const char *name, tow_type type)
{
    tow_array *array = tow_tensors_find(tensors, name);
    if (!array) fail_msg("no tensor %s", name);
    assert_true(tow_type_equal(tow_array_type(array), type));
}

/* A dense layer, and an output that is tied to it. */
MODEL(pair)
{
    tow_dense dense = TOW_DENSE(.features = 3);
    out[0] = tow_apply_module(s, "output", layers[0], tow_apply(s, "dense", &dense, x));
}

/* ---- life times -------------------------------------------------------------------------------------------------- */

static tow_value times(tow_value v, const tow_variable_request *asked, const void *user)
{
    (void)asked;
    return tow_mul_scalar(v, *(const double *)user);
}

/* Initial values are drawn when the layers of a call, and what they point to, are gone. */
static tow_value short_lived(tow_scope *scope, tow_value x)
{
    double quarter = 0.25, four = 4;
    tow_dense dense = TOW_DENSE(.features = 3);
    tow_map_variables inner = TOW_MAP_VARIABLES(&dense, .variables = KERNELS, TRANSPOSED),
                      outer = TOW_MAP_VARIABLES(&inner, .variables = KERNELS, .trans_in = times, .user = &quarter,
                                                .trans_out = times);
    tow_value y = tow_apply(scope, "mapped", &outer, x);
    inner.trans_out = outer.trans_out = NULL;
    quarter = four;
    return y;
}

static tow_value long_lived(tow_scope *scope, tow_value x)
{
    tow_dense dense = TOW_DENSE(.features = 3);
    return tow_apply(scope, "mapped", &dense, x);
}

static void test_layers_of_a_call(void **unused)
{
    (void)unused;
    const tow_function_layer mapped = TOW_FUNCTION(short_lived), plain = TOW_FUNCTION(long_lived);
    tow_params *params[2];
    OK(tow_model_init(ctx, TOW_MODULE(&mapped), 7, 1, &x24, &params[0]));
    OK(tow_model_init(ctx, TOW_MODULE(&plain), 7, 1, &x24, &params[1]));
    const float *found = tow_array_data(tow_params_find(params[0], "mapped/kernel")),
                *drawn = tow_array_data(tow_params_find(params[1], "mapped/kernel"));
    for (int i = 0; i < 12; i++) assert_true(found[i % 3 * 4 + i / 3] == drawn[i] * 0.25F);
    tow_params_free(params[0]);
    tow_params_free(params[1]);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Files hold what is stored, layer by layer, loops and layers written out alike; the tied kernel is there once. */
static void test_names_on_disk(void **unused)
{
    (void)unused;
    const tow_dense output = TOW_DENSE(.features = 4);
    const tow_tied tied = TOW_TIED(&output, .to = "../dense/kernel", .transposed = true);
    const built pair = BUILT(pair, TOW_MODULE(&tied));
    const tow_map_variables mapped = TOW_MAP_VARIABLES(&pair, .variables = KERNELS, TRANSPOSED);
    tow_scan scan = TOW_SCAN(&mapped, .length = 2);
    for (int i = 0; i < 2; i++) {
        tow_params *params, *other;
        scan.unrolled = i;
        OK(tow_model_init(ctx, TOW_MODULE(&STACK(&scan)), 1, 1, &x24, &params));
        tow_tensors *tensors = tensors_of(params);
        assert_int_equal(tow_tensors_count(tensors), 6);
        expect_tensor(tensors, "stack/0/dense/kernel", TYPE(TOW_F32, 3, 4));
        expect_tensor(tensors, "stack/1/dense/bias", TYPE(TOW_F32, 3));
        expect_tensor(tensors, "stack/1/output/bias", TYPE(TOW_F32, 4));
        scan.unrolled = !i;
        OK(tow_model_init(ctx, TOW_MODULE(&STACK(&scan)), 2, 1, &x24, &other));
        OK(tow_params_from_tensors(other, "", tensors));
        expect_same_list("loaded", params, other);
        tow_tensors_free(tensors);
        tow_params_free(params);
        tow_params_free(other);
    }
}

/* A file of the plain layer, into a mapped one: the bias fits, the kernel has another shape. */
static void test_partial_loading(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 3);
    const tow_map_variables mapped = TOW_MAP_VARIABLES(&dense, .variables = KERNELS, TRANSPOSED);
    tow_params *plain, *params, *before;
    OK(tow_model_init(ctx, TOW_MODULE(&STACK(&dense)), 1, 1, &x24, &plain));
    OK(tow_model_init(ctx, TOW_MODULE(&STACK(&mapped)), 2, 1, &x24, &params));
    OK(tow_params_copy(params, &before));
    tow_load_report report;
    tow_load_options options = TOW_LOAD_OPTIONS(.report = &report);
    tow_tensors *tensors = tensors_of(plain);
    expect_error(tow_params_from_tensors_with(params, "", tensors, &options), TOW_TYPE_MISMATCH,
                 "stack/kernel: expected f32[3,4], found f32[4,3]");
    tow_load_report_free(&report);
    assert_true(tow_params_equal(params, before));
    options.allow_mismatch = true;
    OK(tow_params_from_tensors_with(params, "", tensors, &options));
    assert_int_equal(report.loaded, 1);
    assert_int_equal(report.mismatched, 1);
    tow_load_report_free(&report);
    tow_tensors_free(tensors);
    tow_params_free(plain);
    tow_params_free(params);
    tow_params_free(before);
}

/* ---- summaries, parts -------------------------------------------------------------------------------------------- */

static void test_summary(void **unused)
{
    (void)unused;
    const tow_dense output = TOW_DENSE(.features = 4);
    const tow_tied tied = TOW_TIED(&output, .to = "../dense/kernel", .transposed = true);
    const built pair = BUILT(pair, TOW_MODULE(&tied));
    const tow_map_variables mapped =
        TOW_MAP_VARIABLES(&pair, .variables = KERNELS, .trans_in = as_asked, .trans_out = flat);
    tow_params *params;
    tow_model_summary *summary;
    char text[8192];
    OK(tow_model_init(ctx, TOW_MODULE(&mapped), 1, 1, &x24, &params));
    OK(tow_model_summary_create(TOW_MODULE(&mapped), params, 1, &x24, NULL, &summary));
    assert_true(tow_model_summary_text(summary, NULL, text, sizeof text) < sizeof text);
    assert_int_equal(tow_model_summary_layer(summary, 0).parameters, 12 + 3 + 4);
    bool found = false;
    for (size_t i = 0; i < tow_model_summary_layer_count(summary); i++) {
        tow_layer_summary layer = tow_model_summary_layer(summary, i);
        if (strcmp(layer.path, "output") != 0) continue;
        found = true;
        assert_int_equal(layer.own_parameters, 4); /* the kernel is the other layer's */
        assert_non_null(strstr(layer.name, "Dense"));
        assert_non_null(strstr(layer.name, "tied"));
    }
    assert_true(found);
    assert_true(tow_model_summary_json(summary, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "f32[12]"));
    tow_model_summary_free(summary);
    tow_params_free(params);
}

/* A part of a model that is tied to another part is called alone with the parameters of the whole. */
static void test_part(void **unused)
{
    (void)unused;
    const tow_type h = TYPE(TOW_F32, 2, 3);
    const tow_dense output = TOW_DENSE(.features = 4, .no_bias = true);
    const tow_tied tied = TOW_TIED(&output, .to = "../dense/kernel", .transposed = true);
    const built pair = BUILT(pair, TOW_MODULE(&tied));
    const tow_model_options at = TOW_MODEL_OPTIONS(.at = "output");
    tow_params *params, *none;
    tow_graph *graph;
    OK(tow_model_init(ctx, TOW_MODULE(&pair), 1, 1, &x24, &params));
    OK(tow_model_forward_graph(TOW_MODULE(&tied), params, 1, &h, &at, &graph));
    tow_array *in[8], *out, *x = exact_fractions(ctx, h);
    size_t n = tow_params_count(params);
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(params, i);
    in[n] = x;
    OK(tow_evaluate(graph, in, &out));
    const float *kernel = tow_array_data(tow_params_find(params, "dense/kernel")), *y = tow_array_data(out),
                *v = tow_array_data(x);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++) {
            double sum = 0;
            for (int k = 0; k < 3; k++) sum += (double)v[i * 3 + k] * (double)kernel[j * 3 + k];
            assert_float_equal(y[i * 4 + j], (float)sum, 1e-5f);
        }
    tow_array_release(x);
    tow_array_release(out);
    tow_graph_release(graph);
    expect_error(tow_model_forward_graph(TOW_MODULE(&tied), params, 1, &h, NULL, &graph), TOW_INVALID_ARGUMENT,
                 "../dense/kernel");
    expect_error(tow_model_init_with(ctx, TOW_MODULE(&tied), 0, 1, &h, &at, &none, NULL), TOW_NOT_FOUND,
                 "params/dense/kernel", "a layer is tied to it");
    tow_params_free(params);
}

/* ---- types, sizes, noise ----------------------------------------------------------------------------------------- */

static void test_types_and_sizes(void **unused)
{
    (void)unused;
    const tow_type types[] = {TYPE(TOW_F64, 2, 4), TYPE(TOW_F32, 0, 4), TYPE(TOW_BF16, 3, 5), TYPE(TOW_F32, 2, 0)};
    for (int i = 0; i < 4; i++) {
        const bool wide = types[i].dtype == TOW_F64;
        const tow_dense dense = TOW_DENSE(.features = 3, .param_dtype = wide ? TOW_F64 : 0);
        const tow_map_variables mapped = TOW_MAP_VARIABLES(&dense, .variables = KERNELS, TRANSPOSED);
        tow_params *plain, *params;
        OK(tow_model_init(ctx, TOW_MODULE(&dense), 1, 1, &types[i], &plain));
        OK(tow_model_init(ctx, TOW_MODULE(&mapped), 1, 1, &types[i], &params));
        tow_array *a = tow_params_find(plain, "kernel"), *b = tow_params_find(params, "kernel");
        for (int r = 0; r < types[i].dims[1]; r++)
            for (int c = 0; c < 3; c++)
                assert_true(array_element(a, r * 3 + c) == array_element(b, c * types[i].dims[1] + r));
        tow_graph *graph;
        OK(tow_model_forward_graph(TOW_MODULE(&mapped), params, 1, &types[i], NULL, &graph));
        OK(tow_graph_check(graph));
        tow_graph_release(graph);
        tow_params_free(plain);
        tow_params_free(params);
    }
}

/* A mask drawn anew in each call, as DropConnect has it. */
static tow_value dropped(tow_scope *scope, const tow_variable_request *asked, const void *user)
{
    (void)user;
    tow_value w = tow_request_variable(scope, asked);
    return tow_scope_is_deterministic(scope) ? w : tow_dropout_with_key(w, tow_make_rng(scope, "noise"), 0.5, 0, NULL);
}

static void test_noise(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 3);
    const tow_map_variables mapped = TOW_MAP_VARIABLES(&dense, .variables = KERNELS, .make = dropped);
    lift_run a, b, c;
    run_lifted(&a, TOW_MODULE(&STACK(&dense)), 1, &x24, 1, NULL);
    run_lifted(&b, TOW_MODULE(&STACK(&mapped)), 1, &x24, 1, NULL);
    run_lifted(&c, TOW_MODULE(&STACK(&mapped)), 1, &x24, 1, &TOW_MODEL_OPTIONS(.deterministic = true));
    expect_same_list("noise", a.params, b.params);
    const size_t bytes = tow_type_bytes(tow_array_type(a.outputs[0]));
    assert_true(memcmp(tow_array_data(a.outputs[0]), tow_array_data(b.outputs[0]), bytes) != 0);
    assert_memory_equal(tow_array_data(a.outputs[0]), tow_array_data(c.outputs[0]), bytes);
    free_lift_run(&a);
    free_lift_run(&b);
    free_lift_run(&c);
}

/* ---- in choices and loops ---------------------------------------------------------------------------------------- */

/* A choice between two layers, and a loop of at most 3 iterations around what was chosen. */
MODEL(chosen)
{
    const tow_cond cond = TOW_COND(.yes = layers[0], .no = layers[1]);
    tow_value y, in[] = {tow_gt(tow_reduce_sum(x, 0, NULL), tow_scalar(tow_scope_trace(s), TOW_F32, 100)), x};
    tow_apply_n(s, "cond", &cond, 2, in, 1, &y);
    out[0] = y;
}

/* Mapped in the branches and around the choice: the bits of the choice without maps. */
static void test_choice(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 3, .bias_init = tow_initializer_normal(0.5));
    const tow_map_variables mapped = TOW_MAP_VARIABLES(&dense, .variables = KERNELS, TRANSPOSED);
    const tow_named plain[] = {TOW_NAMED("a", &dense), TOW_NAMED("b", &dense)},
                    inside[] = {TOW_NAMED("a", &mapped), TOW_NAMED("b", &mapped)};
    const built models[] = {BUILT(chosen, TOW_MODULE(&plain[0]), TOW_MODULE(&plain[1])),
                            BUILT(chosen, TOW_MODULE(&inside[0]), TOW_MODULE(&inside[1]))};
    const tow_map_variables around = TOW_MAP_VARIABLES(&models[0], .variables = KERNELS, TRANSPOSED);
    lift_run a, b;
    run_lifted(&a, TOW_MODULE(&models[0]), 1, &x24, 1, NULL);
    for (int i = 0; i < 2; i++) {
        run_lifted(&b, i ? TOW_MODULE(&around) : TOW_MODULE(&models[1]), 1, &x24, 1, NULL);
        assert_int_equal(tow_params_count(b.params), 4);
        assert_memory_equal(tow_array_data(a.outputs[0]), tow_array_data(b.outputs[0]), 24);
        assert_memory_equal(tow_array_data(a.in_grads[0]), tow_array_data(b.in_grads[0]), 32);
        free_lift_run(&b);
    }
    free_lift_run(&a);
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

/* Declares a variable, and reads it without saying its type. */
MODEL(reader)
{
    (void)layers;
    tow_variable(s, "cache", "v", TYPE(TOW_F32, 2, 4), tow_initializer_ones());
    tow_value v = tow_get_variable(s, "cache", "v");
    out[0] = tow_add(x, v);
    if (tow_is_mutable(s, "cache")) tow_set_variable(s, "cache", "v", tow_add(v, v));
    if (tow_is_mutable(s, "cache")) out[0] = tow_add(out[0], tow_get_variable(s, "cache", "v"));
}

/* A cache that is stored as bytes. A read without a type has the type that the layer declared. */
MAP(as_i8, tow_convert(v, TOW_I8))
MAP(as_f32, tow_convert(v, TOW_F32))

static void test_variables_of_other_types(void **unused)
{
    (void)unused;
    const built reader = BUILT(reader);
    const tow_map_variables maps[] = {
        TOW_MAP_VARIABLES(&reader, .variables = TOW_NAMES("cache"), .trans_in = as_f32, .trans_out = as_i8),
        TOW_MAP_VARIABLES(&reader, .variables = TOW_NAMES("cache/*"), .trans_in = as_dtype_asked, .trans_out = as_i8)};
    tow_array *x = exact_fractions(ctx, x24);
    for (int i = 0; i < 2; i++) {
        lift_run r;
        run_lifted(&r, TOW_MODULE(&STACK(&maps[i])), 1, &x24, 1, NULL);
        tow_array *v = tow_params_find(r.state, "cache/stack/v");
        assert_int_equal(tow_array_type(v).dtype, TOW_I8);
        for (int k = 0; k < 8; k++) { /* of the second call: 2, then 4 */
            assert_true(array_element(v, k) == 4);
            assert_true(array_element(r.outputs[0], k) == array_element(x, k) + 2 + 4);
        }
        free_lift_run(&r);
    }
    tow_array_release(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_of_a_call),
        cmocka_unit_test(test_names_on_disk),
        cmocka_unit_test(test_partial_loading),
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_part),
        cmocka_unit_test(test_types_and_sizes),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_variables_of_other_types),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
