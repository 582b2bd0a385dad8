/* Summaries of models against Flax's tabulate, captured outputs against its capture_intermediates
 * (tests/oracle/flax_tabulate.py).
 * Tests flops.c, summary.c, summary_text.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "src/model/summary.h"
#include "tests/unit/support/running_layer.h"

/* ---- the models of the oracle ------------------------------------------------------------------------------------ */

static const tow_dense up = {.module = {&tow_dense_class, sizeof(tow_dense)}, .features = 6},
                       head = {.module = {&tow_dense_class, sizeof(tow_dense)}, .features = 3};

typedef struct plain_block {
    tow_module module;
} plain_block;

static void call_block(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    const tow_dense down = TOW_DENSE(.features = tow_value_type(in[0]).dims[1]);
    tow_value h = tow_tanh(tow_apply(s, "up", &up, in[0]));
    out[0] = tow_add(in[0], tow_apply(s, "down", &down, h));
}
static const tow_module_class block_class = {"Block", call_block};
static const plain_block block = {{&block_class}};

static void call_plain(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    const tow_layer_norm norm = TOW_LAYER_NORM();
    tow_value x = tow_apply(s, "first", &block, in[0]);
    x = tow_apply(s, "second", &block, x);
    x = tow_apply(s, "second", &block, x);
    out[0] = tow_apply(s, "head", &head, tow_apply(s, "norm", &norm, x));
}
static const tow_module_class plain_class = {"Plain", call_plain};
static const bare plain = {{&plain_class}};

static void call_stacked(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    const tow_remat cheap = TOW_REMAT(&block);
    const tow_scan blocks = TOW_SCAN(&cheap, .length = 3);
    out[0] = tow_apply(s, "head", &head, tow_apply(s, "blocks", &blocks, in[0]));
}
static const tow_module_class stacked_class = {"Stacked", call_stacked};
static const bare stacked = {{&stacked_class}};

static tow_model_summary *summary_of(const tow_module *model, tow_type type)
{
    tow_params *params = NULL;
    tow_model_summary *summary = NULL;
    OK(tow_model_init(ctx, model, 3, 1, &type, &params));
    OK(tow_model_summary_create(model, params, 1, &type, NULL, &summary));
    tow_params_free(params);
    return summary;
}

static tow_layer_summary layer_at(const tow_model_summary *summary, const char *path)
{
    size_t i = 0;
    while (i < tow_model_summary_layer_count(summary) && strcmp(tow_model_summary_layer(summary, i).path, path) != 0)
        i++;
    if (i == tow_model_summary_layer_count(summary)) fail_msg("no layer %s", path);
    return tow_model_summary_layer(summary, i);
}

static FILE *open_golden(void)
{
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/flax_tabulate.txt", "r");
    assert_non_null(file);
    return file;
}

/* Operations that Tow counts and XLA does not, or elsewhere: per call. */
static void expected_beside_flax(const char *model, const char *path, double *forward, double *backward)
{
    const char *name = strrchr(path, '/');
    if (strcmp(path, "first") == 0 || strcmp(path, "second") == 0)
        *forward = 2 * 6; /* tanh, which XLA counts apart, as a transcendental */
    else if (name && strcmp(name, "/up") == 0)
        *backward =
            2 * 4; /* the sum of the two cotangents of the block's input, which Flax's row of `up` does not have */
    else if (strcmp(path, "query") == 0 || strcmp(path, "key") == 0)
        *backward = 2 * 6 * 8; /* likewise, of three */
    else if (strcmp(model, "conv") == 0)
        *backward = 2. * 2 * (8 * 7 - 6 * 5) * 3 * 3 * 4 * 5; /* of the input: products with padding count as others */
}

/* A layer's flops as Flax has them, and with its backward pass: Flax's figure is that of forward and backward pass, and
 * adds one for each parameter, because its vjp adds the gradient to zeros. Rows of a layer that is called twice are of
 * one call. */
static void expect_flops(const char *model, const tow_layer_summary *l, double flops, double vjp_flops)
{
    const double calls = (double)l->calls;
    double forward = 0, backward = 0;
    expected_beside_flax(model, l->path, &forward, &backward);
    forward += flops;
    backward += vjp_flops - flops - (double)l->parameters;
    if (l->flops != calls * forward)
        fail_msg("%s %s: %.0f flops, expected %.0f times %.0f", model, l->path, l->flops, calls, forward);
    /* Gradients of two calls are added. */
    backward = calls * backward + (calls - 1) * (double)l->parameters;
    if (l->backward_flops != backward)
        fail_msg("%s %s: %.0f flops backward, expected %.0f", model, l->path, l->backward_flops, backward);
}

/* Products, convolutions and their biases count exactly as in XLA. Layers with normalizations and softmax do not: XLA's
 * counts follow what JAX writes them as. */
static void flops_and_parameters_are_those_of_flax(void **state)
{
    (void)state;
    const tow_dense dense = TOW_DENSE(.features = 4), batch = TOW_DENSE(.features = 8),
                    no_bias = TOW_DENSE(.features = 8, .no_bias = true);
    const tow_conv conv = TOW_CONV(.features = 5, .kernel_size = {3, 3}, .padding = TOW_CONV_VALID);
    const tow_layer_norm norm = TOW_LAYER_NORM();
    const tow_multi_head_attention attention = TOW_MULTI_HEAD_ATTENTION(.heads = 2);
    const struct {
        const char *name;
        const tow_module *model;
        tow_type type;
    } models[] = {
        {"dense", TOW_MODULE(&dense), TYPE(TOW_F32, 1, 9)},
        {"dense_batch", TOW_MODULE(&batch), TYPE(TOW_F32, 32, 16)},
        {"dense_no_bias", TOW_MODULE(&no_bias), TYPE(TOW_F32, 32, 16)},
        {"conv", TOW_MODULE(&conv), TYPE(TOW_F32, 2, 8, 7, 4)},
        {"layer_norm", TOW_MODULE(&norm), TYPE(TOW_F32, 4, 16)},
        {"attention", TOW_MODULE(&attention), TYPE(TOW_F32, 2, 6, 8)},
        {"plain", TOW_MODULE(&plain), TYPE(TOW_F32, 2, 4)},
    };
    FILE *file = open_golden();
    char name[64], path[64], class_name[64];
    double own, flops, vjp_flops;
    int rows = 0, exact = 0;
    while (fscanf(file, "layer %63s %63s %63s %lf %lf %lf ", name, path, class_name, &own, &flops, &vjp_flops) == 6) {
        size_t m = 0;
        while (strcmp(models[m].name, name) != 0) m++;
        tow_model_summary *summary = summary_of(models[m].model, models[m].type);
        const tow_layer_summary l = layer_at(summary, strcmp(path, ".") == 0 ? "" : path);
        assert_int_equal(l.own_parameters, (int64_t)own);
        if (strcmp(class_name, "Dense") == 0 || strcmp(class_name, "Conv") == 0 ||
            strcmp(class_name, "DenseGeneral") == 0 || strcmp(class_name, "Block") == 0) {
            if (strcmp(class_name, "Block") != 0) assert_string_equal(l.name, class_name);
            expect_flops(name, &l, flops, vjp_flops);
            exact++;
        } else {
            assert_in_range((int64_t)(100 * l.flops / flops), 80, 130);
        }
        rows++;
        tow_model_summary_free(summary);
    }
    assert_int_equal(rows, 19);
    assert_int_equal(exact, 15);
    fclose(file);
}

/* A layer counts its parts in total, and what remat computes again: everything but the last product and sum. */
static void a_scan_counts_all_iterations(void **state)
{
    (void)state;
    tow_model_summary *summary = summary_of(TOW_MODULE(&stacked), TYPE(TOW_F32, 2, 4));
    const tow_layer_summary model = layer_at(summary, ""), scan = layer_at(summary, "blocks"),
                            body = layer_at(summary, "blocks/{}"), dense = layer_at(summary, "blocks/{}/up");
    assert_string_equal(model.name, "Stacked");
    assert_string_equal(body.name, "remat(Block)");
    assert_int_equal(model.depth, 0);
    assert_int_equal(dense.depth, 3);
    assert_int_equal(body.calls, 1);
    assert_int_equal(dense.own_parameters, 3 * 30);
    assert_int_equal(body.parameters, 3 * 58);
    assert_int_equal(scan.parameter_bytes, 3 * 58 * 4);
    assert_true(tow_type_equal(dense.outputs[0], TYPE(TOW_F32, 2, 6)));
    assert_true(dense.flops == 3 * 108 && body.flops == 3 * (220 + 12) && model.flops == 3 * (220 + 12) + 54);
    /* Flax's backward figure, the sum of two cotangents, and the product of `up` once more in each iteration. */
    assert_true(dense.backward_flops == 3 * (336 - 108 - 30 + 8 + 108));
    /* Only carries cross: the inputs of three blocks, f32[2,4], and that of the head. */
    assert_int_equal(dense.kept_bytes, 0);
    assert_int_equal(scan.kept_bytes, (3 + 1) * 2 * 4 * 4);
    tow_model_summary_free(summary);
}

/* Iterations in one turn of a loop have scopes of their own, "{1+2}" and "2", and belong to the body all the same. */
static void iterations_in_one_turn_count(void **state)
{
    (void)state;
    const tow_type type = TYPE(TOW_F32, 2, 4);
    for (int64_t unroll = 1; unroll <= 4; unroll++) {
        const tow_scan inner = TOW_SCAN(&block, .length = 3, .unroll = unroll),
                       outer = TOW_SCAN(&inner, .length = 2, .unroll = unroll - 1);
        tow_model_summary *summary = summary_of(TOW_MODULE(&outer), type);
        const tow_layer_summary body = layer_at(summary, "{}/{}"), dense = layer_at(summary, "{}/{}/up");
        assert_int_equal(dense.parameters, 6 * 30);
        assert_true(dense.flops == 6 * 108 && body.flops == 6 * (220 + 12)); /* as above */
        assert_true(dense.backward_flops == 6 * (336 - 108 - 30 + 8));
        tow_model_summary_free(summary);
    }
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void tables_and_json(void **state)
{
    (void)state;
    tow_model_summary *summary = summary_of(TOW_MODULE(&stacked), TYPE(TOW_F32, 2, 4));
    char text[8192];
    tow_model_summary_text(summary, &TOW_SUMMARY_TEXT_OPTIONS(.depth = 1), text, sizeof text);
    assert_non_null(strstr(text, "\nblocks   scan     f32[2,4]  f32[2,4]         174    696    696"));
    assert_non_null(strstr(text, "\nhead     Dense    f32[2,4]  f32[2,3]          15     60     54"));
    assert_non_null(strstr(text, "\ntotal "));
    assert_null(strstr(text, "{}"));
    assert_null(strstr(text, "kept for"));
    const size_t whole = tow_model_summary_text(summary, NULL, NULL, 0);
    assert_int_equal(tow_model_summary_text(summary, NULL, text, sizeof text), whole);
    assert_non_null(strstr(text, "\nblocks/{}/up    Dense"));
    tow_model_summary_text(summary, &TOW_SUMMARY_TEXT_OPTIONS(.kept = true), text, sizeof text);
    assert_non_null(strstr(text, "\nkept for the backward pass\n  blocks: f32[3,2,4], 96 bytes: scan of the carry"));

    tow_model_summary_json(summary, text, sizeof text);
    assert_non_null(
        strstr(text, "{\"path\": \"blocks/{}/up\", \"layer\": \"Dense\", \"calls\": 1, \"inputs\": [\"f32[2,4]\"], "
                     "\"outputs\": [\"f32[2,6]\"], \"parameters\": [{\"path\": \"blocks/{}/up/kernel\", "
                     "\"kind\": \"kernel\", \"type\": \"f32[3,4,6]\", \"count\": 72, \"bytes\": 288}"));
    assert_non_null(strstr(text, "\"what\": \"scan of the carry at index 0\""));
    assert_non_null(strstr(text, "\"total\": {\"parameter_count\": 189, \"parameter_bytes\": 756,"));
    tow_model_summary_free(summary);
}

static void is_small(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    out[0] = tow_lt(tow_reduce_sum(in[0], 0, NULL), tow_scalar(trace, TOW_F32, 10));
}

static void twice(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_add(in[0], in[0]);
}

static void call_hidden(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_value x = tow_apply(s, "dense", &up, in[0]);
    tow_while_function(tow_scope_trace(s), is_small, twice, NULL, NULL, 1, &x, out);
}
static const tow_module_class hidden_class = {"Loop", call_hidden};

/* Variables, and a model that has no gradient. */
static void other_models(void **state)
{
    (void)state;
    const running model = RUNNING(.drops = 0);
    tow_params *params = NULL, *variables = NULL;
    tow_model_summary *summary = NULL;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 3, 1, &small, NULL, &params, &variables));
    const tow_model_options calls = TOW_MODEL_OPTIONS(.deterministic = true, .state = variables);
    OK(tow_model_summary_create(TOW_MODULE(&model), params, 1, &small, &calls, &summary));
    assert_int_equal(layer_at(summary, "").variable_bytes, 4 * 4 + 4);
    assert_int_equal(layer_at(summary, "dense").variable_bytes, 0);
    char text[4096];
    tow_model_summary_json(summary, text, sizeof text);
    assert_non_null(strstr(text, "\"variables\": [{\"path\": \"batch_stats/mean\", \"type\": \"f32[4]\""));
    tow_model_summary_free(summary);
    expect_error(tow_model_summary_create(TOW_MODULE(&model), params, 1, &small, NULL, &summary), TOW_NOT_FOUND,
                 "batch_stats/mean");
    assert_null(summary);
    tow_params_free(params);
    tow_params_free(variables);

    const bare loop = {{&hidden_class}};
    summary = summary_of(TOW_MODULE(&loop), small);
    const tow_layer_summary l = layer_at(summary, "dense");
    assert_true(l.flops == 2 * 2 * 4 * 6 + 12 && isnan(l.backward_flops));
    assert_non_null(tow_model_summary_no_gradient(summary));
    tow_model_summary_text(summary, NULL, text, sizeof text);
    assert_non_null(strstr(text, "no backward pass: "));
    tow_model_summary_json(summary, text, sizeof text);
    assert_non_null(strstr(text, "\"backward_flops\": null"));
    assert_int_equal(tow_context_status(ctx), TOW_OK);
    tow_model_summary_free(summary);
}

/* ---- captured outputs -------------------------------------------------------------------------------------------- */

static void call_with_capture(const tow_module *model, const char *const *capture, tow_model_function **f,
                              tow_model_results *results)
{
    tow_params *params = NULL;
    tow_type type = TYPE(TOW_F32, 2, 4);
    tow_array *x = NULL;
    OK(tow_model_init(ctx, model, 3, 1, &type, &params));
    const tow_model_options calls = TOW_MODEL_OPTIONS(.capture = capture);
    const tow_model_function_options options = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .model = &calls);
    OK(tow_model_function_create(model, params, &options, f));
    OK(tow_array_create(ctx, type, &x));
    for (int i = 0; i < 8; i++) ((float *)tow_array_data(x))[i] = (float)((i * 7919) % 257 - 128) / 64;
    OK(tow_model_function_call(*f, &TOW_MODEL_ARGUMENTS(.inputs = &x), results));
    tow_array_release(x);
    tow_params_free(params);
}

/* Flax's entries of a scan stand under the path of the scan, Tow's under that of its body, "blocks/{}". Outputs of a
 * block in a scan are its carry. */
static void captured_outputs_are_those_of_flax(void **state)
{
    (void)state;
    const tow_module *models[2] = {TOW_MODULE(&plain), TOW_MODULE(&stacked)};
    tow_model_function *f[2] = {NULL};
    tow_model_results results[2];
    for (int m = 0; m < 2; m++) call_with_capture(models[m], TOW_NAMES("**"), &f[m], &results[m]);
    FILE *file = open_golden();
    char line[4096], name[64], path[96], shape[64];
    int n[2] = {0};
    while (fgets(line, sizeof line, file)) {
        int used = 0;
        if (sscanf(line, "capture %63s %95s %63s %n", name, path, shape, &used) < 3) continue;
        const int m = strcmp(name, "stacked") == 0;
        char full[128];
        const bool in_scan = strncmp(path, "blocks/", 7) == 0;
        snprintf(full, sizeof full, "intermediates/%s%s", in_scan ? "blocks/{}/" : "", in_scan ? path + 7 : path);
        tow_array *array = tow_params_find(results[m].sown, full);
        if (!array) fail_msg("%s is missing", full);
        const char *at = line + used;
        for (int64_t i = 0; i < tow_type_element_count(tow_array_type(array)); i++) {
            char *end;
            const double expected = strtod(at, &end), found = (double)((float *)tow_array_data(array))[i];
            assert_true(end != at);
            at = end;
            /* Six layers of f32, whose sums XLA adds in another order. */
            if (fabs(found - expected) > 1e-5 * fmax(1, fabs(expected)))
                fail_msg("%s[%d]: %g, %g", full, (int)i, found, expected);
        }
        n[m]++;
    }
    fclose(file);
    assert_int_equal(n[0], 12);
    assert_int_equal(n[1], 5);
    assert_int_equal(tow_params_count(results[0].sown), 12);
    assert_int_equal(tow_params_count(results[1].sown), 6); /* that of the scan itself besides */
    assert_non_null(tow_params_find(results[1].sown, "intermediates/blocks/__call__/0"));
    for (int m = 0; m < 2; m++) tow_model_function_free(f[m]);
}

static void capture_takes_patterns(void **state)
{
    (void)state;
    tow_model_function *f = NULL;
    tow_model_results results;
    call_with_capture(TOW_MODULE(&plain), TOW_NAMES("*/up", "head"), &f, &results);
    assert_int_equal(tow_params_count(results.sown), 4);
    assert_non_null(tow_params_find(results.sown, "intermediates/second/up/__call__/1"));
    tow_model_function_free(f);
    call_with_capture(TOW_MODULE(&plain), TOW_NAMES(""), &f, &results);
    assert_int_equal(tow_params_count(results.sown), 1);
    assert_memory_equal(tow_array_data(tow_params_array(results.sown, 0)), tow_array_data(results.outputs[0]), 6 * 4);
    tow_model_function_free(f);

    const running model = RUNNING(.drops = 0); /* what it sows itself is in the same collection */
    tow_params *params = NULL, *variables = NULL, *updates = NULL;
    tow_graph *graph = NULL;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 3, 1, &small, NULL, &params, &variables));
    tow_model_options calls = TOW_MODEL_OPTIONS(.deterministic = true, .state = variables,
                                                .capture = TOW_NAMES("dense"), .updates = &updates);
    OK(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &small, &calls, &graph));
    assert_int_equal(tow_params_count(updates), 3);
    tow_graph_release(graph);
    tow_params_free(updates);
    calls.capture = TOW_NAMES("dense", "tense");
    expect_error(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &small, &calls, &graph), TOW_NOT_FOUND,
                 "capture", "\"tense\"");
    tow_params_free(params);
    tow_params_free(variables);
}

static void call_in_function(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = tow_apply((tow_scope *)user, "inner", &up, in[0]);
}

static void call_hiding(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_value x = tow_apply(s, "outer", &head, in[0]), y;
    tow_remat_function(tow_scope_trace(s), call_in_function, s, NULL, 1, &x, 1, &y);
    out[0] = y;
}
static const tow_module_class hiding_class = {.name = "Hiding", .call = call_hiding};

/* A function hands out its own outputs: the layer in it is left out, and asking for it alone is an error. */
/* A path gives the result of the outermost layer there, once. */
static void wrappers_are_captured_once(void **state)
{
    (void)state;
    const tow_dense same = TOW_DENSE(.features = 4);
    const tow_remat cheap = TOW_REMAT(&same);
    const tow_residual_layer residual = TOW_RESIDUAL(&cheap);
    const tow_precision half = TOW_PRECISION(&same, .dtype = TOW_BF16, .output_dtype = TOW_F32);
    const tow_sequential both =
        TOW_SEQUENTIAL(TOW_MODULE(&TOW_NAMED("sum", &residual)), TOW_MODULE(&TOW_NAMED("half", &half)));
    const tow_module *models[] = {TOW_MODULE(&residual), TOW_MODULE(&half), TOW_MODULE(&both)};
    for (int m = 0; m < 3; m++) {
        tow_model_function *f = NULL;
        tow_model_results r;
        call_with_capture(models[m], TOW_NAMES("**"), &f, &r);
        assert_int_equal(tow_params_count(r.sown), m == 2 ? 3 : 1);
        const tow_array *whole = tow_params_find(r.sown, "intermediates/__call__/0");
        assert_non_null(whole);
        assert_true(tow_type_equal(tow_array_type(whole), tow_array_type(r.outputs[0])));
        assert_memory_equal(tow_array_data((tow_array *)whole), tow_array_data(r.outputs[0]),
                            tow_type_bytes(tow_array_type(whole)));
        if (m == 2) assert_non_null(tow_params_find(r.sown, "intermediates/sum/__call__/0"));
        if (m == 2)
            assert_int_equal(tow_array_type(tow_params_find(r.sown, "intermediates/half/__call__/0")).dtype, TOW_F32);
        tow_model_function_free(f);
    }
    tow_model_summary *summary = summary_of(TOW_MODULE(&both), TYPE(TOW_F32, 2, 4));
    assert_string_equal(layer_at(summary, "").name, "Sequential");
    assert_string_equal(layer_at(summary, "sum").name, "Residual(remat(Dense))");
    assert_int_equal(tow_model_summary_layer_count(summary), 3);
    tow_model_summary_free(summary);
}

static void layers_in_functions_are_not_captured(void **state)
{
    (void)state;
    const bare model = {{&hiding_class}};
    tow_params *params = NULL, *updates = NULL;
    tow_graph *graph = NULL;
    OK(tow_model_init(ctx, TOW_MODULE(&model), 3, 1, &small, &params));
    tow_model_options calls = TOW_MODEL_OPTIONS(.capture = TOW_NAMES("**"), .updates = &updates);
    OK(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &small, &calls, &graph));
    assert_int_equal(tow_params_count(updates), 2);
    assert_string_equal(tow_params_path(updates, 0), "intermediates/outer/__call__/0");
    assert_string_equal(tow_params_path(updates, 1), "intermediates/__call__/0");
    tow_params_free(updates);
    tow_graph_release(graph);
    calls.capture = TOW_NAMES("outer", "inn*");
    expect_error(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &small, &calls, &graph), TOW_UNSUPPORTED,
                 "\"inn*\"", "inner", "TOW_REMAT");
    tow_params_free(params);
}

/* ---- failing allocations ----------------------------------------------------------------------------------------- */

static tow_status summarize(tow_context *c)
{
    const tow_type type = TYPE(TOW_F32, 2, 4);
    tow_params *params = NULL;
    tow_model_summary *summary = NULL;
    tow_graph *graph = NULL;
    char text[4096];
    tow_status status = tow_model_init(c, TOW_MODULE(&stacked), 3, 1, &type, &params);
    if (!status) status = tow_model_summary_create(TOW_MODULE(&stacked), params, 1, &type, NULL, &summary);
    const tow_summary_text_options kept = TOW_SUMMARY_TEXT_OPTIONS(.kept = true);
    if (!status && tow_model_summary_text(summary, &kept, text, sizeof text) == 0) status = TOW_OUT_OF_MEMORY;
    if (!status && tow_model_summary_json(summary, text, sizeof text) == 0) status = TOW_OUT_OF_MEMORY;
    const tow_model_options calls = TOW_MODEL_OPTIONS(.capture = TOW_NAMES("blocks/**"));
    if (!status) status = tow_model_forward_graph(TOW_MODULE(&stacked), params, 1, &type, &calls, &graph);
    tow_graph_release(graph);
    tow_model_summary_free(summary);
    tow_params_free(params);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    fail_in_turn(summarize);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flops_and_parameters_are_those_of_flax),
        cmocka_unit_test(a_scan_counts_all_iterations),
        cmocka_unit_test(iterations_in_one_turn_count),
        cmocka_unit_test(tables_and_json),
        cmocka_unit_test(other_models),
        cmocka_unit_test(captured_outputs_are_those_of_flax),
        cmocka_unit_test(capture_takes_patterns),
        cmocka_unit_test(wrappers_are_captured_once),
        cmocka_unit_test(layers_in_functions_are_not_captured),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
