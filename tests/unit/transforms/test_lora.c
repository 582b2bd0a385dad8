/* LoRA: outputs and gradients are those of the layer with w + alpha/rank a b, whatever computes the product; names and
 * initial values are the layer's own; folding in and out.
 * Tests lora.c, lora_merge.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/fractions.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    MOST = 96
};

static void fill(tow_array *array, int64_t first, double scale)
{
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(array)); i++)
        ((float *)tow_array_data(array))[i] = (float)(fraction(first + i) * scale);
}

static tow_params *draw(const tow_module *model, tow_type type)
{
    tow_params *params;
    OK(tow_model_init(ctx, model, 3, 1, &type, &params));
    return params;
}

/* b is zeros at first; here it is not. */
static void fill_updates(tow_params *params)
{
    for (size_t i = 0; i < tow_params_count(params); i++) {
        const char *path = tow_params_path(params, i);
        if (strstr(path, "LoRA/") && strcmp(path + strlen(path) - 2, "/b") == 0)
            fill(tow_params_array(params, i), 17 * (int64_t)i, 0.25);
    }
}

static tow_array *run(const tow_module *model, const tow_params *params, tow_type type)
{
    size_t n = tow_params_count(params);
    tow_array *in[MOST], *out;
    tow_graph *graph;
    OK(tow_model_forward_graph(model, params, 1, &type, NULL, &graph));
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(params, i);
    OK(tow_array_create(ctx, type, &in[n]));
    fill(in[n], 0, 1);
    OK(tow_evaluate(graph, in, &out));
    tow_array_release(in[n]);
    tow_graph_release(graph);
    return out;
}

static void expect_near(const char *what, tow_array *x, tow_array *y, double limit)
{
    double error = 0, largest = 1;
    assert_true(tow_type_equal(tow_array_type(x), tow_array_type(y)));
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(x)); i++) {
        double a = ((float *)tow_array_data(x))[i], difference = fabs(a - ((float *)tow_array_data(y))[i]);
        if (!(difference <= error)) error = difference; /* a NaN stays */
        largest = fmax(largest, fabs(a));
    }
    if (!(error <= limit * largest)) fail_msg("%s: differs by %g, largest element %g", what, error, largest);
}

static bool is_update(const char *path) { return strstr(path, "LoRA/") != NULL; }

/* The parameters of the layer itself, which the list shares. */
static tow_params *own_params(const tow_params *params)
{
    tow_params *updates, *rest;
    OK(tow_params_split(params, TOW_NAMES("**LoRA**"), &updates, &rest));
    tow_params_free(updates);
    return rest;
}

/* At first the output has the bits of the layer's own up to the sum with 0; folded in, the layer gives what the LoRA
 * gave. */
static void expect_lora(const char *what, const tow_module *lora, const tow_module *inner, tow_type type, double alpha,
                        size_t updates)
{
    tow_params *params = draw(lora, type), *plain = draw(inner, type), *own = own_params(params), *before;
    assert_int_equal(tow_params_count(own), tow_params_count(plain));
    assert_int_equal(tow_params_count(params), tow_params_count(plain) + 2 * updates);
    for (size_t i = 0; i < tow_params_count(plain); i++) {
        assert_string_equal(tow_params_path(own, i), tow_params_path(plain, i));
        assert_memory_equal(tow_array_data(tow_params_array(own, i)), tow_array_data(tow_params_array(plain, i)),
                            tow_type_bytes(tow_array_type(tow_params_array(plain, i))));
    }
    tow_array *x = run(inner, plain, type), *y = run(lora, params, type);
    expect_near(what, x, y, 0);
    tow_array_release(y);
    fill_updates(params);
    y = run(lora, params, type);
    OK(tow_params_copy(params, &before));
    OK(tow_lora_merge(params, alpha));
    tow_array *z = run(inner, own, type);
    expect_near(what, y, z, 2e-5);
    bool differs = false;
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(x)); i++)
        differs = differs || fabsf(((float *)tow_array_data(x))[i] - ((float *)tow_array_data(y))[i]) > 1e-3f;
    assert_true(differs);
    OK(tow_lora_unmerge(params, alpha));
    for (size_t i = 0; i < tow_params_count(params); i++)
        expect_near(tow_params_path(params, i), tow_params_array(before, i), tow_params_array(params, i), 1e-6);
    tow_array_release(x);
    tow_array_release(y);
    tow_array_release(z);
    tow_params_free(before);
    tow_params_free(own);
    tow_params_free(plain);
    tow_params_free(params);
}

#define TYPE(...)                                                                                                      \
    tow_make_type(TOW_F32, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
#define LORA(text, inner, alpha_of_it, updates, options, ...)                                                          \
    do {                                                                                                               \
        tow_lora lora = TOW_LORA(&inner, .rank = 3, .alpha = alpha_of_it, options);                                    \
        expect_lora(text, TOW_MODULE(&lora), TOW_MODULE(&inner), TYPE(__VA_ARGS__), alpha_of_it, updates);             \
    } while (0)

static void test_layers(void **unused)
{
    (void)unused;
    tow_dense dense = TOW_DENSE(.features = 6);
    tow_dense_general heads = TOW_DENSE_GENERAL(.features = {2, 4}),
                      out = TOW_DENSE_GENERAL(.features = {5}, .n_axes = 2, .axes = {-2, -1}),
                      batched = TOW_DENSE_GENERAL(.features = {3, 2}, .n_batch_dims = 1);
    tow_einsum_layer einsum = TOW_EINSUM(.spec = "btd,dhk->bthk", .shape = {6, 2, 4}),
                     shared = TOW_EINSUM(.spec = "bhd,hdk->bkh", .shape = {3, 4, 5}),
                     dots = TOW_EINSUM(.spec = "...d,dk->...k", .shape = {4, 3}),
                     other = TOW_EINSUM(.spec = "btd,hdk->bthk", .shape = {2, 6, 4});
    tow_conv conv = TOW_CONV(.features = 4, .kernel_size = {3});
    tow_mlp mlp = TOW_MLP(.features = {7, 4});
    LORA("dense", dense, 5, 1, .b_init = tow_initializer_zeros(), 3, 5);
    LORA("dense, a vector", dense, 0, 1, .b_init = tow_initializer_zeros(), 5);
    LORA("dense, rank 4", dense, 0, 1, .b_init = tow_initializer_zeros(), 2, 1, 3, 5);
    LORA("heads", heads, 2, 1, .b_init = tow_initializer_zeros(), 2, 3, 5);
    LORA("out", out, 2, 1, .b_init = tow_initializer_zeros(), 2, 3, 4, 2);
    LORA("batched", batched, 2, 1, .b_init = tow_initializer_zeros(), 2, 4, 5);
    LORA("einsum", einsum, 1, 1, .b_init = tow_initializer_zeros(), 2, 3, 6);
    LORA("einsum with shared axes", shared, 1, 1, .b_init = tow_initializer_zeros(), 2, 3, 4);
    LORA("einsum with dots", dots, 1, 1, .b_init = tow_initializer_zeros(), 2, 2, 4);
    LORA("einsum of another order", other, 1, 1, .b_init = tow_initializer_zeros(), 2, 3, 6);
    LORA("conv", conv, 1, 1, .b_init = tow_initializer_zeros(), 2, 7, 3);
    LORA("mlp", mlp, 1, 2, .b_init = tow_initializer_zeros(), 3, 5);
    LORA("half of an mlp", mlp, 1, 1, .filter = TOW_NAMES("Dense_1/kern*"), 3, 5);
}

static void test_models(void **unused)
{
    (void)unused;
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2, .mlp_features = 12, .causal = true, .rope = true);
    tow_remat cheap = TOW_REMAT(&block);
    tow_scan loop = TOW_SCAN(&cheap, .length = 2), unrolled = TOW_SCAN(&block, .length = 2, .unrolled = true);
    LORA("block", block, 6, 6, .b_init = tow_initializer_zeros(), 2, 5, 8);
    LORA("scan", loop, 6, 6, .b_init = tow_initializer_zeros(), 2, 5, 8);
    LORA("scan unrolled", unrolled, 6, 12, .b_init = tow_initializer_zeros(), 2, 5, 8);
    LORA("queries and values", loop, 6, 2, .filter = TOW_NAMES("**/query/kernel", "**/value/kernel"), 2, 5, 8);
    tow_lora within = TOW_LORA(&block, .rank = 3, .alpha = 6);
    tow_scan around = TOW_SCAN(&within, .length = 2);
    tow_scan plain = TOW_SCAN(&block, .length = 2);
    expect_lora("scan around", TOW_MODULE(&around), TOW_MODULE(&plain), TYPE(2, 5, 8), 6, 6);
}

/* Views see what views around them made: WeightNorm in LoRA normalizes the sum, LoRA in WeightNorm adds to what is
 * normalized. */
static void test_with_weight_norm(void **unused)
{
    (void)unused;
    tow_dense dense = TOW_DENSE(.features = 6);
    tow_weight_norm normed = TOW_WEIGHT_NORM(&dense);
    tow_lora outside = TOW_LORA(&normed, .rank = 3);
    expect_lora("WeightNorm in LoRA", TOW_MODULE(&outside), TOW_MODULE(&normed), TYPE(3, 5), 0, 1);
    tow_lora inside = TOW_LORA(&dense, .rank = 3);
    tow_weight_norm around = TOW_WEIGHT_NORM(&inside);
    tow_params *params = draw(TOW_MODULE(&around), TYPE(3, 5)), *own;
    fill_updates(params);
    tow_array *x = run(TOW_MODULE(&around), params, TYPE(3, 5)), *a = tow_params_find(params, "LoRA/kernel/a"),
              *b = tow_params_find(params, "LoRA/kernel/b"), *y;
    own = own_params(params);
    y = run(TOW_MODULE(&normed), own, TYPE(3, 5));
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 6; j++)
            for (int r = 0; r < 3; r++)
                for (int k = 0; k < 5; k++)
                    ((float *)tow_array_data(y))[i * 6 + j] += (float)fraction(i * 5 + k) *
                                                               ((float *)tow_array_data(a))[k * 3 + r] *
                                                               ((float *)tow_array_data(b))[r * 6 + j];
    expect_near("LoRA in WeightNorm", x, y, 2e-5);
    tow_array_release(x);
    tow_array_release(y);
    tow_params_free(own);
    tow_params_free(params);
}

static void sum_of_squares(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                           tow_value *aux, void *user)
{
    (void)t, (void)extra, (void)aux, (void)user;
    *loss = tow_reduce_sum(tow_square(outputs[0]), 0, NULL);
}

/* Only updates are trained; no product a b is made, forward or backward: all products have the rank among their sizes
 * or are those of the layer itself. */
static void test_training(void **unused)
{
    (void)unused;
    tow_dense dense = TOW_DENSE(.features = 40, .no_bias = true);
    tow_lora lora = TOW_LORA(&dense, .rank = 2);
    tow_type type = TYPE(8, 50);
    tow_params *params = draw(TOW_MODULE(&lora), type), *before;
    tow_model_function *function;
    tow_model_results results;
    OK(tow_params_freeze(params, NULL, true));
    OK(tow_params_freeze(params, TOW_NAMES("**LoRA**"), false));
    OK(tow_params_copy(params, &before));
    OK(tow_model_function_create_value_and_grad(
        TOW_MODULE(&lora), params, &TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .loss = sum_of_squares), &function));
    tow_scale sgd = TOW_SCALE(.factor = -2e-3);
    tow_optimizer_state *optimizer;
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&sgd), params, NULL, &optimizer));
    tow_array *x;
    OK(tow_array_create(ctx, type, &x));
    fill(x, 0, 1);
    double first = 0;
    for (int step = 0; step < 5; step++) {
        OK(tow_model_function_call(function, &TOW_MODEL_ARGUMENTS(.inputs = &x), &results));
        if (step == 0) first = results.loss;
        assert_int_equal(tow_params_count(results.gradients), 2);
        OK(tow_optimizer_update(optimizer, tow_params_arrays(results.gradients)));
    }
    if (!(results.loss < 0.9 * first)) fail_msg("the loss goes from %g to %g", first, results.loss);
    for (size_t i = 0; i < tow_params_count(params); i++) {
        tow_array *a = tow_params_array(params, i), *b = tow_params_array(before, i);
        bool same = memcmp(tow_array_data(a), tow_array_data(b), tow_type_bytes(tow_array_type(a))) == 0;
        assert_true(same == !is_update(tow_params_path(params, i)));
    }
    tow_model_program program = tow_model_function_program(function, 0);
    char text[20000];
    assert_true(tow_graph_text(program.gradient, text, sizeof text) < sizeof text);
    assert_null(strstr(text, "f32[50,40] = dot_general")); /* neither a b nor a gradient of the kernel */
    tow_optimizer_free(optimizer);
    tow_model_function_free(function);
    tow_array_release(x);
    tow_params_free(before);
    tow_params_free(params);
}

static void test_errors(void **unused)
{
    (void)unused;
    tow_dense dense = TOW_DENSE(.features = 6);
    tow_lora none = TOW_LORA(&dense), nothing = TOW_LORA(&dense, .rank = 2, .filter = TOW_NAMES("*/kernel")),
             bias = TOW_LORA(&dense, .rank = 2, .filter = TOW_NAMES("bias"));
    tow_type type = TYPE(3, 5);
    tow_params *params;
    assert_int_equal(tow_model_init(ctx, TOW_MODULE(&none), 0, 1, &type, &params), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_model_init(ctx, TOW_MODULE(&nothing), 0, 1, &type, &params), TOW_NOT_FOUND);
    assert_int_equal(tow_model_init(ctx, TOW_MODULE(&bias), 0, 1, &type, &params), TOW_INVALID_ARGUMENT);
    const tow_lora once = TOW_LORA(&dense, .rank = 2), twice = TOW_LORA(&once, .rank = 2);
    const tow_weight_norm norm = TOW_WEIGHT_NORM(&dense), norms = TOW_WEIGHT_NORM(&norm);
    const tow_spectral_norm spectral = TOW_SPECTRAL_NORM(&dense), spectrals = TOW_SPECTRAL_NORM(&spectral);
    const tow_module *const nested[] = {TOW_MODULE(&twice), TOW_MODULE(&norms), TOW_MODULE(&spectrals)};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tow_model_init(ctx, nested[i], 0, 1, &type, &params), TOW_INVALID_ARGUMENT);
        assert_non_null(strstr(tow_context_error(ctx), "around this one takes \"kernel\" too"));
    }
    params = draw(TOW_MODULE(&dense), type);
    assert_int_equal(tow_lora_merge(params, 1), TOW_NOT_FOUND);
    assert_int_equal(tow_lora_merge(NULL, 1), TOW_INVALID_ARGUMENT);
    tow_array *arrays[3] = {tow_params_find(params, "kernel"), tow_params_find(params, "kernel"), NULL};
    tow_params *wrong;
    const tow_lora infinite = TOW_LORA(&dense, .rank = 2, .alpha = INFINITY);
    assert_int_equal(tow_model_init(ctx, TOW_MODULE(&infinite), 0, 1, &type, &wrong), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "LoRA: .alpha = inf"));
    tow_params *updated = draw(TOW_MODULE(&once), type);
    assert_int_equal(tow_lora_merge(updated, NAN), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "finite"));
    tow_params_free(updated);
    OK(tow_params_from_arrays(ctx, 2, (const char *const[]){"kernel", "LoRA/kernel/a"}, arrays, &wrong));
    assert_int_equal(tow_lora_merge(wrong, 1), TOW_NOT_FOUND);
    tow_params_free(wrong);
    arrays[2] = arrays[0];
    OK(tow_params_from_arrays(ctx, 3, (const char *const[]){"kernel", "LoRA/kernel/a", "LoRA/kernel/b"}, arrays,
                              &wrong));
    assert_int_equal(tow_lora_unmerge(wrong, 1), TOW_SHAPE_MISMATCH);
    tow_params_free(wrong);
    tow_params_free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),   cmocka_unit_test(test_models), cmocka_unit_test(test_with_weight_norm),
        cmocka_unit_test(test_training), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
