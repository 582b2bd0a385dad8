/* Parameters that are stored in other types than layers ask for: rules by path, and weights in blocks of few bits under
 * LoRA and layers that change parameters, which see their numbers. Tests storage.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/fractions.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    WIDTH = 64,
    ROWS = 6,
    MOST = 64
};

/* A stack of MLPs. */
typedef struct model {
    tow_mlp mlp;
    tow_scan layers;
    tow_dense head;
    tow_named names[2];
    const tow_module *list[2];
    tow_sequential whole;
} model;

static void make_model(model *m, bool unrolled)
{
    m->mlp = TOW_MLP(.features = {96, WIDTH});
    m->layers = TOW_SCAN(&m->mlp, .length = 2, .unrolled = unrolled);
    m->head = TOW_DENSE(.features = 32);
    m->names[0] = TOW_NAMED("layers", &m->layers);
    m->names[1] = TOW_NAMED("head", &m->head);
    for (int i = 0; i < 2; i++) m->list[i] = TOW_MODULE(&m->names[i]);
    m->whole = TOW_SEQUENTIAL_OF(m->list);
}

static tow_type input_type(void) { return tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, WIDTH}); }

static tow_params *draw(const tow_module *layer)
{
    const tow_type type = input_type();
    tow_params *params;
    OK(tow_model_init(ctx, layer, 3, 1, &type, &params));
    return params;
}

static tow_array *run(const tow_module *layer, const tow_params *params)
{
    const tow_type type = input_type();
    const size_t n = tow_params_count(params);
    tow_array *in[MOST], *out;
    tow_graph *graph;
    OK(tow_model_forward_graph(layer, params, 1, &type, NULL, &graph));
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(params, i);
    OK(tow_array_create(ctx, type, &in[n]));
    for (int i = 0; i < ROWS * WIDTH; i++) ((float *)tow_array_data(in[n]))[i] = (float)fraction(i);
    OK(tow_evaluate(graph, in, &out));
    tow_array_release(in[n]);
    tow_graph_release(graph);
    return out;
}

static void expect_bits(tow_array *x, tow_array *y)
{
    assert_true(tow_type_equal(tow_array_type(x), tow_array_type(y)));
    assert_memory_equal(tow_array_data(x), tow_array_data(y), tow_type_bytes(tow_array_type(x)));
    tow_array_release(x), tow_array_release(y);
}

/* |x - y| / |y| */
static double difference(tow_array *x, tow_array *y)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(x)); i++) {
        const double a = (double)((float *)tow_array_data(x))[i], b = (double)((float *)tow_array_data(y))[i];
        error += (a - b) * (a - b);
        size += b * b;
    }
    tow_array_release(x), tow_array_release(y);
    return sqrt(error / size);
}

static tow_dtype dtype_at(const tow_params *params, const char *path)
{
    tow_array *array = tow_params_find(params, path);
    if (!array) fail_msg("there is no %s", path);
    return tow_array_type(array).dtype;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

/* The first rule that matches counts, kinds are known, and values are those of the types' own rounding. */
static void each_parameter_has_its_type(void **state)
{
    (void)state;
    model m;
    make_model(&m, false);
    tow_precision mixed = TOW_PRECISION(
        &m.whole, .param_dtypes = TOW_DTYPES({"layers/*/Dense_0/kernel", TOW_Q4_0}, {"layers/**kernel", TOW_Q8_0},
                                             {"//bias/head/**", TOW_BF16}, {"head/kernel", TOW_F16}));
    tow_params *params = draw(&mixed.module), *plain = draw(&m.whole.module), *again;
    const size_t n = tow_params_count(plain);
    assert_int_equal(tow_params_count(params), n);
    tow_dtype expected = TOW_F32;
    for (size_t i = 0; i < n; i++) {
        const char *path = tow_params_path(plain, i);
        const bool layer = strncmp(path, "layers/", 7) == 0, kernel = strstr(path, "kernel") != NULL;
        expected = layer && kernel ? (strstr(path, "0/kernel") ? TOW_Q4_0 : TOW_Q8_0)
                   : layer         ? TOW_F32
                   : kernel        ? TOW_F16
                                   : TOW_BF16;
        if (dtype_at(params, path) != expected) fail_msg("%s", path);
    }
    OK(tow_params_zeros_like(params, &again));
    OK(tow_params_convert(again, plain));
    for (size_t i = 0; i < n; i++) { /* draws of 16 bits are others, not rounded ones */
        const tow_array *a = tow_params_array(again, i), *b = tow_params_array(params, i);
        const tow_type type = tow_array_type(a);
        if (type.dtype == TOW_BF16 || type.dtype == TOW_F16) continue;
        assert_memory_equal(tow_array_data(a), tow_array_data(b), tow_type_bytes(type));
    }
    OK(tow_params_convert(plain, params));
    assert_true(difference(run(&mixed.module, params), run(&m.whole.module, plain)) < 0.02);
    tow_params_free(params), tow_params_free(plain), tow_params_free(again);
}

/* Floats of another type are widened: the bits of the numbers in f32. Layers that are unrolled have their own rules. */
static void floats_are_widened(void **state)
{
    (void)state;
    model m;
    make_model(&m, true);
    tow_precision mixed =
        TOW_PRECISION(&m.whole, .param_dtypes = TOW_DTYPES({"layers/1/**kernel", TOW_BF16}, {"head/*", TOW_F16}));
    tow_params *params = draw(&mixed.module), *plain = draw(&m.whole.module);
    size_t narrow = 0;
    for (size_t i = 0; i < tow_params_count(params); i++)
        narrow += tow_array_type(tow_params_array(params, i)).dtype != TOW_F32;
    assert_int_equal(narrow, 4);
    OK(tow_params_convert(plain, params));
    expect_bits(run(&mixed.module, params), run(&m.whole.module, plain));
    tow_params_free(params), tow_params_free(plain);
}

/* Rules within count before those around them; a copy of a model has them, too. */
static void rules_nest(void **state)
{
    (void)state;
    tow_dense dense = TOW_DENSE(.features = 32, .param_dtype = TOW_BF16);
    tow_precision inner = TOW_PRECISION(&dense, .param_dtypes = TOW_DTYPES({"kernel", TOW_Q8_0})),
                  outer = TOW_PRECISION(&inner, .param_dtypes = TOW_DTYPES({"bias", TOW_F32}));
    tow_module *copy;
    OK(tow_module_copy(ctx, &outer.module, &copy));
    tow_params *params = draw(copy);
    assert_int_equal(dtype_at(params, "kernel"), TOW_Q8_0);
    assert_int_equal(dtype_at(params, "bias"), TOW_F32);
    tow_params_free(params);
    tow_module_free(copy);
}

static void expect_refusal(const tow_module *layer, tow_status status, const char *said)
{
    const tow_type type = input_type();
    tow_params *params = NULL;
    assert_int_equal(tow_model_init(ctx, layer, 1, 1, &type, &params), status);
    assert_null(params);
    if (!strstr(tow_context_error(ctx), said)) fail_msg("%s", tow_context_error(ctx));
}

static void rules_are_refused(void **state)
{
    (void)state;
    tow_dense dense = TOW_DENSE(.features = 32);
    tow_layer_norm norm = TOW_LAYER_NORM();
    tow_precision p = TOW_PRECISION(&dense, .param_dtypes = TOW_DTYPES({"kernal", TOW_Q8_0}));
    expect_refusal(&p.module, TOW_NOT_FOUND, "\"kernal\" matches no parameter");
    p = TOW_PRECISION(&dense, .param_dtypes = TOW_DTYPES({"kernel", TOW_I32}));
    expect_refusal(&p.module, TOW_INVALID_ARGUMENT, "expected a float type or one of blocks, TOW_Q8_0");
    p = TOW_PRECISION(&dense, .param_dtypes = TOW_DTYPES({"**", TOW_Q8_0}));
    expect_refusal(&p.module, TOW_UNSUPPORTED, "parameter \"bias\": it is not stored as q8_0");
    p = TOW_PRECISION(&norm, .param_dtypes = TOW_DTYPES({"scale", TOW_Q8_0}));
    expect_refusal(&p.module, TOW_UNSUPPORTED, "parameter \"scale\"");
}

/* ---- layers around blocks ---------------------------------------------------------------------------------------- */

static tow_value twice(tow_value stored, const tow_variable_request *asked, const void *user)
{
    (void)asked, (void)user;
    return tow_mul_scalar(stored, 2);
}

/* Each sees the numbers, and its product is that of floats: the bits of the same layer over the numbers in f32. */
static void views_see_numbers(void **state)
{
    (void)state;
    tow_dense in_blocks = TOW_DENSE(.features = 32, .param_dtype = TOW_Q4_0), in_floats = TOW_DENSE(.features = 32);
    const tow_dense *layers[2] = {&in_blocks, &in_floats};
    for (int kind = 0; kind < 3; kind++) {
        tow_params *params[2];
        tow_array *y[2];
        for (int i = 0; i < 2; i++) {
            tow_map_variables map =
                TOW_MAP_VARIABLES(layers[i], .variables = TOW_NAMES("params/kernel"), .trans_in = twice);
            tow_weight_norm weight = TOW_WEIGHT_NORM(layers[i]);
            tow_spectral_norm spectral = TOW_SPECTRAL_NORM(layers[i], .keep_stats = true);
            const tow_module *views[] = {&map.module, &weight.module, &spectral.module};
            const tow_type type = input_type();
            tow_params *variables = NULL;
            OK(tow_model_init_with(ctx, views[kind], 3, 1, &type, NULL, &params[i], &variables));
            if (i == 1) OK(tow_params_convert(params[1], params[0]));
            if (kind < 2) y[i] = run(views[kind], params[i]);
            tow_params_free(variables);
        }
        assert_int_equal(dtype_at(params[0], "kernel"), TOW_Q4_0);
        if (kind < 2) expect_bits(y[0], y[1]);
        tow_params_free(params[0]), tow_params_free(params[1]);
    }
}

/* A head that is the table of tokens, turned. */
typedef struct tied_model {
    tow_module module;
    tow_embed tokens;
    tow_dense dense;
    tow_tied head;
} tied_model;

static void call_tied(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    const tied_model *m = (const tied_model *)module;
    (void)n_in, (void)n_out;
    const tow_value tokens = tow_convert(tow_abs(tow_slice_axis(in[0], 1, 0, 1)), TOW_I32);
    const tow_value x = tow_apply(scope, "tokens", &m->tokens, tokens);
    out[0] = tow_apply(scope, "head", &m->head, tow_reshape(x, 2, (int64_t[]){ROWS, WIDTH}));
}
static const tow_module_class tied_class = {.name = "Tied", .call = call_tied};

static void tied_heads_are_turned_tables(void **state)
{
    (void)state;
    tied_model m = {.module = {&tied_class, 0}, .tokens = TOW_EMBED(.num_embeddings = 40, .features = WIDTH)};
    m.dense = TOW_DENSE(.features = 40, .no_bias = true);
    m.head = TOW_TIED(&m.dense, .to = "../tokens/embedding", .transposed = true);
    tow_precision blocks = TOW_PRECISION(&m, .param_dtype = TOW_Q8_0);
    tow_params *params = draw(&blocks.module), *plain = draw(&m.module);
    assert_int_equal(tow_params_count(params), 1);
    assert_int_equal(dtype_at(params, "tokens/embedding"), TOW_Q8_0);
    OK(tow_params_convert(plain, params));
    expect_bits(run(&blocks.module, params), run(&m.module, plain));
    tow_params_free(params), tow_params_free(plain);
}

/* ---- LoRA -------------------------------------------------------------------------------------------------------- */

/* At first the product with the blocks alone; updates are floats, and are not folded into blocks. */
static void lora_leaves_blocks_alone(void **state)
{
    (void)state;
    model m;
    make_model(&m, false);
    tow_lora lora = TOW_LORA(&m.whole, .rank = 4);
    tow_precision base = TOW_PRECISION(&m.whole, .param_dtype = TOW_Q8_0),
                  around = TOW_PRECISION(&lora, .param_dtype = TOW_Q8_0);
    tow_params *own = draw(&base.module), *params = draw(&around.module);
    assert_int_equal(tow_params_count(params), tow_params_count(own) + 6);
    assert_int_equal(dtype_at(params, "head/kernel"), TOW_Q8_0);
    assert_true(tow_type_equal(tow_array_type(tow_params_find(params, "head/LoRA/kernel/a")),
                               tow_make_type(TOW_F32, 2, (int64_t[]){WIDTH, 4})));
    assert_true(tow_type_equal(tow_array_type(tow_params_find(params, "head/LoRA/kernel/b")),
                               tow_make_type(TOW_F32, 2, (int64_t[]){4, 32})));
    expect_bits(run(&around.module, params), run(&base.module, own));
    assert_int_equal(tow_lora_merge(params, 0), TOW_UNSUPPORTED);
    assert_non_null(strstr(tow_context_error(ctx), "would round the update away"));
    tow_params_free(own), tow_params_free(params);
}

static void loss_of(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                    void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(tow_square(tow_add_scalar(out[0], -1)), 0, NULL);
}

enum {
    STEPS = 20
};

/* Losses of steps that train updates alone. */
static void train(const tow_module *layer, tow_params *params, double *losses)
{
    const tow_type type = input_type();
    tow_scale scale = TOW_SCALE(.factor = -0.05);
    tow_graph *loss;
    tow_optimizer_state *optimizer;
    tow_step *step;
    tow_array *x, *y;
    OK(tow_params_freeze(params, NULL, true));
    OK(tow_params_freeze(params, TOW_NAMES("**LoRA**"), false));
    OK(tow_model_loss_graph(layer, params, 1, &type, 0, NULL, loss_of, NULL, 0, NULL, &loss));
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&scale), params, NULL, &optimizer));
    OK(tow_step_create(optimizer, params, loss, NULL, &step));
    OK(tow_array_create(ctx, type, &x));
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 0, NULL), &y));
    for (int i = 0; i < ROWS * WIDTH; i++) ((float *)tow_array_data(x))[i] = (float)fraction(i);
    for (int i = 0; i < STEPS; i++) {
        OK(tow_step_run(step, &x, &y));
        losses[i] = (double)*(float *)tow_array_data(y);
    }
    tow_array_release(x), tow_array_release(y);
    tow_step_free(step);
    tow_optimizer_free(optimizer);
    tow_graph_release(loss);
}

/* The same steps over the numbers of the blocks in f32: products with blocks round activations to 1 / 254 of the
 * largest of 32, which moves outputs by less than 2 % (outputs_are_those_of_the_numbers), and so losses by less than 4
 * %. Blocks stay as they are. */
static void updates_are_trained_over_blocks(void **state)
{
    (void)state;
    static const tow_dtype kinds[] = {TOW_Q8_0, TOW_Q4_0};
    for (int k = 0; k < 2; k++) {
        model m;
        double found[STEPS], expected[STEPS];
        make_model(&m, false);
        tow_lora lora = TOW_LORA(&m.whole, .rank = 4);
        tow_precision blocks = TOW_PRECISION(&lora, .param_dtype = kinds[k]);
        tow_params *params = draw(&blocks.module), *plain = draw(&lora.module), *before;
        OK(tow_params_convert(plain, params));
        OK(tow_params_copy(params, &before));
        train(&blocks.module, params, found);
        train(&lora.module, plain, expected);
        for (int i = 0; i < STEPS; i++)
            if (!(fabs(found[i] - expected[i]) <= 0.04 * expected[i]))
                fail_msg("step %d: %g, expected %g", i, found[i], expected[i]);
        assert_true(found[STEPS - 1] < 0.5 * found[0]);
        for (size_t i = 0; i < tow_params_count(params); i++) {
            const tow_array *a = tow_params_array(params, i), *b = tow_params_array(before, i);
            const bool equal = memcmp(tow_array_data(a), tow_array_data(b), tow_type_bytes(tow_array_type(a))) == 0;
            assert_int_equal(equal, strstr(tow_params_path(params, i), "LoRA") == NULL);
        }
        tow_params_free(params), tow_params_free(plain), tow_params_free(before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_parameter_has_its_type),
        cmocka_unit_test(floats_are_widened),
        cmocka_unit_test(rules_nest),
        cmocka_unit_test(rules_are_refused),
        cmocka_unit_test(views_see_numbers),
        cmocka_unit_test(tied_heads_are_turned_tables),
        cmocka_unit_test(lora_leaves_blocks_alone),
        cmocka_unit_test(updates_are_trained_over_blocks),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
