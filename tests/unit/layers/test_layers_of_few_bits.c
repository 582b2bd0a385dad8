/* Layers with weights in blocks of few bits: which parameters they ask for, initial values, outputs against products
 * written out, whole models against the same model in f32, conversion of lists, and refusals.
 * Tests scope/blocks.c, params/params_convert.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

static const tow_dtype kinds[] = {TOW_Q8_0, TOW_Q4_0};
enum {
    KINDS = sizeof kinds / sizeof *kinds,
    N = 32,
    VOCABULARY = 50,
    WIDTH = 64,
    TIME = 6
};

/* ---- a model: a table used twice, blocks in a scan, a norm ------------------------------------------------------- */

typedef struct gpt {
    tow_module module;
    tow_embed tokens;
    tow_scan blocks;
    tow_layer_norm norm;
} gpt;

static void call_gpt(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    const gpt *m = (const gpt *)module;
    (void)n_in, (void)n_out;
    tow_value x = tow_apply(scope, "blocks", &m->blocks, tow_apply(scope, "tokens", &m->tokens, in[0]));
    out[0] = tow_embed_attend(scope, "tokens", &m->tokens, tow_apply(scope, "norm", &m->norm, x));
}
static const tow_module_class gpt_class = {.name = "GPT", .call = call_gpt};

typedef struct models {
    tow_transformer_block block;
    gpt plain;
    tow_precision quantized;
} models;

static void make_models(models *m, tow_dtype dtype)
{
    m->block = TOW_TRANSFORMER_BLOCK(.heads = 2, .mlp_features = 96, .causal = true);
    m->plain = (gpt){.module = {&gpt_class, 0},
                     .tokens = TOW_EMBED(.num_embeddings = VOCABULARY, .features = WIDTH),
                     .blocks = TOW_SCAN(&m->block, .length = 3),
                     .norm = TOW_LAYER_NORM()};
    m->quantized = TOW_PRECISION(&m->plain, .param_dtype = dtype);
}

static const tow_type tokens_type = {.dtype = TOW_I32, .rank = 2, .dims = {2, TIME}};

static tow_params *initialized(const tow_module *model)
{
    tow_params *params;
    OK(tow_model_init(ctx, model, 7, 1, &tokens_type, &params));
    return params;
}

static tow_array *logits(const tow_module *model, const tow_params *params)
{
    int32_t tokens[2 * TIME];
    tow_array *in[64], *out;
    tow_graph *graph;
    const size_t n = tow_params_count(params);
    for (int i = 0; i < 2 * TIME; i++) tokens[i] = i * 7919 % VOCABULARY;
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(params, i);
    OK(tow_array_from_data(ctx, tokens_type, tokens, &in[n]));
    OK(tow_model_forward_graph(model, params, 1, &tokens_type, NULL, &graph));
    OK(tow_evaluate(graph, in, &out));
    tow_graph_release(graph);
    tow_array_release(in[n]);
    return out;
}

static void parameters_are_turned_and_blocked(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        tow_type type;
    } expected[] = {
        {"tokens/embedding", {TOW_Q4_0, 2, {VOCABULARY, WIDTH / N}}},
        {"blocks/{}/attn/query/kernel", {TOW_Q4_0, 3, {3, WIDTH, WIDTH / N}}},
        {"blocks/{}/attn/query/bias", {TOW_F32, 3, {3, 2, WIDTH / 2}}},
        {"blocks/{}/attn/out/kernel", {TOW_Q4_0, 3, {3, WIDTH, WIDTH / N}}},
        {"norm/scale", {TOW_F32, 1, {WIDTH}}},
    };
    models m;
    make_models(&m, TOW_Q4_0);
    tow_params *params = initialized(&m.quantized.module), *plain = initialized(&m.plain.module);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        tow_array *found = tow_params_find(params, expected[i].path);
        if (!found) fail_msg("there is no %s", expected[i].path);
        assert_true(tow_type_equal(tow_array_type(found), expected[i].type));
    }
    assert_int_equal(tow_params_element_count(params, NULL), tow_params_element_count(plain, NULL));
    tow_params_free(params), tow_params_free(plain);
}

/* The initial values of the model in f32, quantized row by row of the turned kernels. */
static void initial_values_are_those_of_f32(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        models m;
        make_models(&m, kinds[k]);
        tow_params *plain = initialized(&m.plain.module), *params = initialized(&m.quantized.module), *made;
        OK(tow_params_zeros_like(params, &made));
        OK(tow_params_convert(made, plain));
        assert_true(tow_params_equal(made, params));
        /* one kernel, [inputs, heads, features of one], by hand */
        tow_array *kernel = tow_params_find(plain, "blocks/{}/attn/value/kernel"), *turned, *expected,
                  *found = tow_params_find(params, "blocks/{}/attn/value/kernel");
        OK(tow_array_create(ctx, tow_make_type(TOW_F32, 3, (int64_t[]){3, WIDTH, WIDTH}), &turned));
        for (int l = 0; l < 3; l++)
            for (int i = 0; i < WIDTH; i++)
                for (int o = 0; o < WIDTH; o++)
                    ((float *)tow_array_data(turned))[(l * WIDTH + o) * WIDTH + i] =
                        ((float *)tow_array_data(kernel))[(l * WIDTH + i) * WIDTH + o];
        OK(tow_array_convert(turned, kinds[k], &expected));
        assert_memory_equal(tow_array_data(found), tow_array_data(expected), tow_type_bytes(tow_array_type(expected)));
        tow_array_release(turned), tow_array_release(expected);
        tow_params_free(plain), tow_params_free(params), tow_params_free(made);
    }
}

/* The model in f32 with the numbers of the blocks differs by the rounding of activations alone: 1 / 254 of the largest
 * of 32, at most. */
static void outputs_are_those_of_the_numbers(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        models m;
        make_models(&m, kinds[k]);
        tow_params *plain = initialized(&m.plain.module), *params = initialized(&m.quantized.module);
        OK(tow_params_convert(plain, params));
        tow_array *expected = logits(&m.plain.module, plain), *found = logits(&m.quantized.module, params);
        double error = 0, size = 0;
        for (int i = 0; i < 2 * TIME * VOCABULARY; i++) {
            const double y = (double)((float *)tow_array_data(expected))[i];
            error += pow((double)((float *)tow_array_data(found))[i] - y, 2);
            size += y * y;
        }
        assert_true(size > 0 && sqrt(error / size) < 0.02);
        assert_true(error > 0); /* they are not the same products */
        tow_array_release(expected), tow_array_release(found);
        tow_params_free(plain), tow_params_free(params);
    }
}

/* ---- single layers ----------------------------------------------------------------------------------------------- */

/* The output of a layer for x, with its initial parameters, which become the caller's. */
static tow_array *output(const tow_module *layer, tow_array *x, tow_params **params)
{
    tow_type type = tow_array_type(x);
    tow_array *in[8], *out;
    tow_graph *graph;
    OK(tow_model_init(ctx, layer, 1, 1, &type, params));
    OK(tow_model_forward_graph(layer, *params, 1, &type, NULL, &graph));
    for (size_t i = 0; i < tow_params_count(*params); i++) in[i] = tow_params_array(*params, i);
    in[tow_params_count(*params)] = x;
    OK(tow_evaluate(graph, in, &out));
    tow_graph_release(graph);
    return out;
}

static tow_array *fractions(int rank, const int64_t *dims, tow_dtype dtype)
{
    tow_array *x, *y;
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, rank, dims), &x));
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(x)); i++)
        ((float *)tow_array_data(x))[i] = (float)(i * 7919 % 257 - 128) / 64;
    OK(tow_array_convert(x, dtype, &y));
    tow_array_release(x);
    return y;
}

static void product(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_quantized_dot(in[0], in[1]);
}

/* DenseGeneral over two axes that are not the last ones. x [2, 4, 3, 16], over axes 1 and 3: 64 inputs. */
static void axes_are_contracted_in_their_order(void **state)
{
    (void)state;
    tow_array *x = fractions(4, (int64_t[]){2, 4, 3, 16}, TOW_F32), *rows, *expected, *w;
    tow_dense_general layer =
        TOW_DENSE_GENERAL(.features = {2, 5}, .n_axes = 2, .axes = {1, 3}, .no_bias = true, .param_dtype = TOW_Q8_0);
    tow_params *params;
    tow_array *found = output(&layer.module, x, &params);
    assert_true(tow_type_equal(tow_array_type(found), tow_make_type(TOW_F32, 4, (int64_t[]){2, 3, 2, 5})));
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){6, 64}), &rows));
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < 4; i++)
            for (int t = 0; t < 3; t++)
                for (int j = 0; j < 16; j++)
                    ((float *)tow_array_data(rows))[(b * 3 + t) * 64 + i * 16 + j] =
                        ((float *)tow_array_data(x))[((b * 4 + i) * 3 + t) * 16 + j];
    w = tow_params_find(params, "kernel");
    assert_true(tow_type_equal(tow_array_type(w), tow_make_type(TOW_Q8_0, 2, (int64_t[]){10, 2})));
    const tow_type types[] = {tow_array_type(rows), tow_array_type(w)};
    tow_graph *graph;
    OK(tow_trace_function(ctx, product, NULL, 2, types, NULL, 1, &graph));
    OK(tow_evaluate(graph, (tow_array *[]){rows, w}, &expected));
    assert_memory_equal(tow_array_data(found), tow_array_data(expected), 60 * sizeof(float));
    tow_graph_release(graph);
    tow_array_release(x), tow_array_release(rows), tow_array_release(expected), tow_array_release(found);
    tow_params_free(params);
}

/* Layers compute in 16 bits: results are those of f32, rounded once. */
static void inputs_may_have_16_bits(void **state)
{
    (void)state;
    tow_dense narrow = TOW_DENSE(.features = 7, .no_bias = true, .param_dtype = TOW_Q8_0, .dtype = TOW_BF16),
              wide = TOW_DENSE(.features = 7, .no_bias = true, .param_dtype = TOW_Q8_0);
    tow_array *x = fractions(2, (int64_t[]){5, 64}, TOW_BF16), *same = fractions(2, (int64_t[]){5, 64}, TOW_F32),
              *rounded;
    tow_params *a, *b;
    tow_array *found = output(&narrow.module, x, &a), *y = output(&wide.module, same, &b);
    assert_true(tow_params_equal(a, b));
    OK(tow_array_convert(y, TOW_BF16, &rounded));
    assert_true(tow_type_equal(tow_array_type(found), tow_array_type(rounded)));
    assert_memory_equal(tow_array_data(found), tow_array_data(rounded), 35 * sizeof(uint16_t));
    tow_array_release(x), tow_array_release(same), tow_array_release(found), tow_array_release(y),
        tow_array_release(rounded);
    tow_params_free(a), tow_params_free(b);
}

/* Rows of a table alone are decoded, and an index outside gives NaN. */
static void tables_give_their_numbers(void **state)
{
    (void)state;
    tow_embed layer = TOW_EMBED(.num_embeddings = 5, .features = 64, .param_dtype = TOW_Q4_0);
    tow_params *params;
    tow_array *x, *numbers;
    OK(tow_array_from_data(ctx, tow_make_type(TOW_I32, 1, (int64_t[]){3}), (int32_t[]){4, 9, -5}, &x));
    tow_array *found = output(&layer.module, x, &params);
    OK(tow_array_convert(tow_params_find(params, "embedding"), TOW_F32, &numbers));
    const float *y = tow_array_data(found), *table = tow_array_data(numbers);
    assert_memory_equal(y, table + 4 * 64, 64 * sizeof *y);
    for (int i = 0; i < 64; i++) assert_true(isnan(y[64 + i]));
    assert_memory_equal(y + 128, table, 64 * sizeof *y);
    tow_array_release(x), tow_array_release(found), tow_array_release(numbers);
    tow_params_free(params);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

static void loss_of(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                    void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(tow_square(out[0]), 0, NULL);
}

/* Gradients are those with respect to parameters of floats; optimizers say what to do with others. */
static void floats_alone_have_gradients(void **state)
{
    (void)state;
    models m;
    make_models(&m, TOW_Q8_0);
    tow_params *params = initialized(&m.quantized.module);
    tow_graph *loss, *grad;
    tow_optimizer_state *optimizer = NULL;
    tow_scale scale = TOW_SCALE(.factor = -1);
    OK(tow_model_loss_graph(&m.quantized.module, params, 1, &tokens_type, 0, NULL, loss_of, NULL, 0, NULL, &loss));
    OK(tow_value_and_grad(loss, 0, NULL, false, &grad));
    size_t floats = 0;
    for (size_t i = 0; i < tow_params_count(params); i++)
        floats += tow_dtype_is_float(tow_array_type(tow_params_array(params, i)).dtype);
    assert_true(floats > 0 && floats < tow_params_count(params));
    assert_int_equal(tow_graph_output_count(grad), 1 + floats);
    tow_graph_release(loss), tow_graph_release(grad);
    assert_int_equal(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&scale), params, NULL, &optimizer),
                     TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "params/tokens/embedding"));
    assert_non_null(strstr(tow_context_error(ctx), "tow_params_freeze"));
    assert_null(optimizer);
    tow_params_free(params);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void check_refusal(const tow_module *layer, int rank, const int64_t *dims, tow_status status, const char *said)
{
    const tow_type type = tow_make_type(TOW_F32, rank, dims);
    tow_params *params = NULL;
    assert_int_equal(tow_model_init(ctx, layer, 1, 1, &type, &params), status);
    assert_null(params);
    if (!strstr(tow_context_error(ctx), said)) fail_msg("%s", tow_context_error(ctx));
}

static void what_cannot_have_blocks_says_so(void **state)
{
    (void)state;
    tow_dense dense = TOW_DENSE(.features = 4, .param_dtype = TOW_Q8_0);
    check_refusal(&dense.module, 2, (int64_t[]){2, 48}, TOW_SHAPE_MISMATCH, "found 48 of them");
    tow_dense_general batched =
        TOW_DENSE_GENERAL(.features = {4}, .n_batch_dims = 1, .param_dtype = TOW_Q8_0, .no_bias = true);
    check_refusal(&batched.module, 2, (int64_t[]){2, 64}, TOW_UNSUPPORTED, "batch axes");
    tow_conv conv = TOW_CONV(.features = 4, .kernel_size = {3, 3}, .param_dtype = TOW_Q4_0);
    check_refusal(&conv.module, 4, (int64_t[]){1, 8, 8, 32}, TOW_UNSUPPORTED, "Conv: .param_dtype = q4_0");
    tow_layer_norm norm = TOW_LAYER_NORM(.param_dtype = TOW_Q4_0);
    check_refusal(&norm.module, 2, (int64_t[]){2, 64}, TOW_UNSUPPORTED, "LayerNorm");
    dense = TOW_DENSE(.features = 4, .dtype = TOW_Q8_0);
    check_refusal(&dense.module, 2, (int64_t[]){2, 64}, TOW_INVALID_ARGUMENT, ".dtype");
    tow_embed embed = TOW_EMBED(.num_embeddings = 5, .features = 40, .param_dtype = TOW_Q4_0);
    const tow_type index = tow_make_type(TOW_I32, 0, NULL);
    tow_params *params = NULL;
    assert_int_equal(tow_model_init(ctx, &embed.module, 1, 1, &index, &params), TOW_SHAPE_MISMATCH);
    assert_null(params);
}

/* Around layers blocks are for those that have weights in them. */
static void others_stay_f32_under_a_precision(void **state)
{
    (void)state;
    tow_conv conv = TOW_CONV(.features = 32, .kernel_size = {3});
    tow_dense dense = TOW_DENSE(.features = 4);
    tow_sequential both = TOW_SEQUENTIAL(&conv.module, &dense.module);
    tow_precision model = TOW_PRECISION(&both, .param_dtype = TOW_Q8_0);
    tow_array *x = fractions(3, (int64_t[]){1, 9, 8}, TOW_F32);
    tow_params *params;
    tow_array *y = output(&model.module, x, &params);
    size_t in_blocks = 0;
    for (size_t i = 0; i < tow_params_count(params); i++)
        in_blocks += tow_array_type(tow_params_array(params, i)).dtype == TOW_Q8_0;
    assert_int_equal(in_blocks, 1);
    tow_array_release(x), tow_array_release(y);
    tow_params_free(params);
}

static tow_params *list(const char *path, tow_type type)
{
    tow_array *array;
    tow_params *params;
    OK(tow_array_create(ctx, type, &array));
    OK(tow_params_from_arrays(ctx, 1, &path, &array, &params));
    tow_array_release(array);
    return params;
}

static void lists_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *to_path, *from_path;
        tow_type to, from;
        tow_status status;
    } cases[] = {
        {"a/kernel", "a/kernel", {TOW_Q8_0, 2, {6, 2}}, {TOW_F32, 3, {64, 2, 3}}, TOW_OK},
        {"a/kernel", "a/kernel", {TOW_Q8_0, 2, {6, 2}}, {TOW_BF16, 3, {4, 16, 6}}, TOW_OK},
        {"a/kernel", "a/kernel", {TOW_F16, 3, {4, 16, 6}}, {TOW_Q4_0, 2, {6, 2}}, TOW_OK},
        {"a/kernel", "a/kernel", {TOW_BF16, 2, {6, 2}}, {TOW_F32, 2, {6, 2}}, TOW_OK},
        {"a/kernel", "a/kernel", {TOW_Q8_0, 2, {6, 2}}, {TOW_F32, 2, {6, 64}}, TOW_SHAPE_MISMATCH}, /* not turned */
        {"embedding", "embedding", {TOW_Q8_0, 2, {6, 2}}, {TOW_F32, 2, {6, 64}}, TOW_OK},
        {"embedding", "embedding", {TOW_Q8_0, 2, {6, 2}}, {TOW_F32, 2, {64, 6}}, TOW_SHAPE_MISMATCH},
        {"b/{}/kernel", "b/{}/kernel", {TOW_Q4_0, 3, {3, 6, 1}}, {TOW_F32, 3, {3, 32, 6}}, TOW_OK},
        {"b/{}/kernel", "b/{}/kernel", {TOW_Q4_0, 3, {3, 6, 1}}, {TOW_F32, 3, {2, 32, 6}}, TOW_SHAPE_MISMATCH},
        {"a/kernel", "a/kernel", {TOW_Q4_0, 2, {6, 1}}, {TOW_Q8_0, 2, {6, 1}}, TOW_TYPE_MISMATCH},
        {"a/kernel", "a/kernel", {TOW_Q4_0, 2, {6, 1}}, {TOW_I8, 2, {32, 6}}, TOW_TYPE_MISMATCH},
        {"a/kernel", "b/kernel", {TOW_Q4_0, 2, {6, 1}}, {TOW_F32, 2, {32, 6}}, TOW_NOT_FOUND},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_params *to = list(cases[i].to_path, cases[i].to), *from = list(cases[i].from_path, cases[i].from);
        assert_int_equal(tow_params_convert(to, from), cases[i].status);
        if (cases[i].status != TOW_OK) assert_non_null(strstr(tow_context_error(ctx), cases[i].to_path));
        tow_params_free(to), tow_params_free(from);
    }
    assert_int_equal(tow_params_convert(NULL, NULL), TOW_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_turned_and_blocked), cmocka_unit_test(initial_values_are_those_of_f32),
        cmocka_unit_test(outputs_are_those_of_the_numbers),  cmocka_unit_test(axes_are_contracted_in_their_order),
        cmocka_unit_test(inputs_may_have_16_bits),           cmocka_unit_test(tables_give_their_numbers),
        cmocka_unit_test(floats_alone_have_gradients),       cmocka_unit_test(what_cannot_have_blocks_says_so),
        cmocka_unit_test(others_stay_f32_under_a_precision), cmocka_unit_test(lists_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
