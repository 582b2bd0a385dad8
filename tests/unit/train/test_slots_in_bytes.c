/* Slots in 8 bits: what momentum keeps is what plain loops make of the map, codes are found for every number, small
 * parameters and copies of parameters stay as they are, training goes on from its file, and Adam learns with
 * them.
 * Tests slots_in_bytes.c. Tests kernels/quantized/dynamic.c, kernels/quantized/dynamic_map.c. */
#include "src/kernels/quantized/dynamic_map.h"
#include "tests/unit/support/training.h"

static tow_context *context_of(void **state) { return ((const fixture *)*state)->ctx; }

/* The nearest number, the lower one of two that are as near: in f32 as the map says. */
static int nearest(const tow__dynamic_map *map, float x)
{
    int code = 0;
    while (code < TOW__CODES - 1 && x > map->between[code]) code++;
    return code;
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

static void quantize(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    tow_quantize_dynamic(in[0], *(const bool *)user, &out[0], &out[1]);
}

/* Numbers around all steps of the map, and everywhere else. */
static void codes_are_nearest(void **state)
{
    tow_context *ctx = context_of(state);
    for (int kind = 0; kind < 2; kind++) {
        bool nonnegative = kind == 1;
        const tow__dynamic_map *map = tow__dynamic_map_get(nonnegative);
        enum {
            ROWS_OF_X = 1 + 5 * TOW__CODES,
            SIZE = 64
        };
        const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS_OF_X, SIZE});
        tow_array *x, *found[2] = {NULL, NULL};
        tow_graph *g;
        assert_int_equal(tow_array_create(ctx, type, &x), TOW_OK);
        float *numbers = tow_array_data(x);
        uint32_t random = 1;
        for (int64_t i = 0; i < ROWS_OF_X * SIZE; i++) {
            random = random * 1664525u + 1013904223u;
            const double share = ldexp((double)(random >> 8), -24);
            numbers[i] = (float)(pow(10, -9 * share) * ((random >> 7 & 1) && !nonnegative ? -1 : 1));
            if (i % SIZE == 0) numbers[i] = 1; /* sizes are 1 */
        }
        for (int k = 0; k + 1 < TOW__CODES; k++) {
            const float middle = map->between[k];
            float *row = numbers + (1 + 5 * k) * SIZE;
            row[1] = middle;
            row[2] = nextafterf(middle, 2);
            row[3] = nextafterf(middle, nonnegative ? 0 : -2);
            row[4] = map->values[k];
        }
        numbers[5] = 0;
        numbers[6] = 0x1p-149F;
        assert_int_equal(tow_trace_function(ctx, quantize, &nonnegative, 1, &type, NULL, 2, &g), TOW_OK);
        assert_int_equal(tow_evaluate(g, &x, found), TOW_OK);
        for (int64_t i = 0; i < ROWS_OF_X * SIZE; i++) {
            const int code = ((const uint8_t *)tow_array_data(found[0]))[i], expected = nearest(map, numbers[i]);
            if (code != expected) fail_msg("%.9g: expected code %d, found %d", (double)numbers[i], expected, code);
        }
        tow_array_release(x);
        tow_array_release(found[0]);
        tow_array_release(found[1]);
        tow_graph_release(g);
    }
}

/* Only 0 becomes 0 where there are no negative numbers, even if a number over its row's largest one is below all of
 * f32. */
static void small_shares_are_not_zero(void **state)
{
    tow_context *ctx = context_of(state);
    bool nonnegative = true;
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){4});
    tow_array *x, *found[2] = {NULL, NULL};
    tow_graph *g;
    assert_int_equal(tow_array_from_data(ctx, type, (const float[]){1e10F, 1.2e-38F, 0, 1}, &x), TOW_OK);
    assert_int_equal(tow_trace_function(ctx, quantize, &nonnegative, 1, &type, NULL, 2, &g), TOW_OK);
    assert_int_equal(tow_evaluate(g, &x, found), TOW_OK);
    const uint8_t *codes = tow_array_data(found[0]);
    assert_true(codes[0] == TOW__CODES - 1 && codes[1] == 1 && codes[2] == 0 && codes[3] == 1);
    tow_array_release(found[0]);
    tow_array_release(found[1]);
    tow_array_release(x);
    tow_graph_release(g);
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

enum {
    LAYERS = 2,
    ELEMENTS = 300, /* two blocks, of which the second one is not full */
    BLOCKS = 2,
    BLOCK = 256
};

/* m = g + m / 2, p -= m: two layers in a stack, and a bias that is too small. */
static void momentum_is_that_of_loops(void **state)
{
    tow_context *ctx = context_of(state);
    const tow__dynamic_map *map = tow__dynamic_map_get(false);
    const char *const paths[2] = {"blocks/{}/w", "bias"};
    const tow_type types[2] = {tow_make_type(TOW_F32, 3, (int64_t[]){LAYERS, 3, 100}),
                               tow_make_type(TOW_F32, 1, (int64_t[]){8})};
    static float m[LAYERS][BLOCKS * BLOCK], p[LAYERS][ELEMENTS];
    static uint8_t codes[LAYERS][BLOCKS * BLOCK];
    float sizes[LAYERS][BLOCKS];
    tow_array *w[2], *g[2];
    tow_params *params;
    tow_optimizer_state *o;
    tow_trace_gradients momentum = TOW_TRACE_GRADIENTS(.decay = 0.5);
    tow_scale minus = TOW_SCALE(.factor = -1);
    tow_chain chain = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&momentum), TOW_GRADIENT_TRANSFORM(&minus));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tow_array_create(ctx, types[i], &w[i]), TOW_OK);
        assert_int_equal(tow_array_create(ctx, types[i], &g[i]), TOW_OK);
        memset(tow_array_data(w[i]), 0, tow_type_bytes(types[i]));
        memset(tow_array_data(g[i]), 0, tow_type_bytes(types[i]));
    }
    memset(m, 0, sizeof m);
    memset(p, 0, sizeof p);
    assert_int_equal(tow_params_from_arrays(ctx, 2, paths, w, &params), TOW_OK);
    assert_int_equal(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&chain), params,
                                          &TOW_OPTIMIZER_OPTIONS(.slot_bits = 8, .slot_bits_least = 256), &o),
                     TOW_OK);
    assert_int_equal(tow_optimizer_bytes(o), LAYERS * BLOCKS * (BLOCK + 4) + 8 * 4);
    for (int step = 0; step < 4; step++) {
        float *gradient = tow_array_data(g[0]);
        for (int64_t i = 0; i < LAYERS * ELEMENTS; i++)
            gradient[i] = (float)((i * 7919 + step * 131) % 257 - 128) / 64 * (i % ELEMENTS < BLOCK ? 1 : 1e-4F);
        assert_int_equal(tow_optimizer_update(o, g), TOW_OK);
        for (int l = 0; l < LAYERS; l++) {
            for (int i = 0; i < ELEMENTS; i++) {
                m[l][i] = gradient[l * ELEMENTS + i] + m[l][i] * 0.5f;
                p[l][i] -= m[l][i];
            }
            for (int b = 0; b < BLOCKS; b++) {
                float *block = m[l] + b * BLOCK, size = 0;
                for (int i = 0; i < BLOCK; i++) size = fmaxf(size, fabsf(block[i]));
                sizes[l][b] = size;
                for (int i = 0; i < BLOCK; i++) {
                    codes[l][b * BLOCK + i] = (uint8_t)nearest(map, block[i] / size);
                    block[i] = map->values[codes[l][b * BLOCK + i]] * size;
                }
            }
        }
    }
    tow_params *slot = tow_optimizer_find_slot(o, "sgd/trace/"),
               *of_sizes = tow_optimizer_find_slot(o, "sgd/trace_sizes/");
    assert_non_null(slot);
    assert_non_null(of_sizes);
    assert_memory_equal(tow_array_data(tow_params_find(slot, paths[0])), codes, sizeof codes);
    assert_memory_equal(tow_array_data(tow_params_find(of_sizes, paths[0])), sizes, sizeof sizes);
    assert_int_equal(tow_array_type(tow_params_find(slot, paths[1])).dtype, TOW_F32);
    assert_memory_equal(tow_array_data(w[0]), p, sizeof p);
    tow_optimizer_free(o);
    tow_params_free(params);
    for (int i = 0; i < 2; i++) tow_array_release(w[i]), tow_array_release(g[i]);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static tow_train_options adamw(int bits)
{
    const tow_standard_optimizer optimizer = {.kind = TOW_ADAMW, .learning_rate = tow_schedule_constant(0.01)};
    return TOW_TRAIN_OPTIONS(.optimizer = optimizer, .seed = 3, .slot_bits = bits, .slot_bits_least = 64);
}

/* A state goes on from its file with the bits of one that was not stopped, and learns. */
static void training_resumes(void **state)
{
    const fixture *f = *state;
    tow_mlp mlp = TOW_MLP(.features = {32, 32, 3});
    training whole = start(f->ctx, TOW_MODULE(&mlp), 5, 3, adamw(8)),
             part = start(f->ctx, TOW_MODULE(&mlp), 5, 3, adamw(8)),
             plain = start(f->ctx, TOW_MODULE(&mlp), 5, 3, adamw(0));
    double first, loss = 0;
    step(&part, 3);
    save(f, &part, f->a);
    stop(&part);
    part = start(f->ctx, TOW_MODULE(&mlp), 5, 3, adamw(8));
    assert_int_equal(tow_train_load(part.state, f->a), TOW_OK);
    step(&part, 3);
    step(&whole, 6);
    save(f, &part, f->a);
    save(f, &whole, f->b);
    assert_equal_files(f->a, f->b);
    assert_int_equal(tow_train_step(plain.state, plain.batch, &first), TOW_OK);
    for (int i = 0; i < 60; i++) assert_int_equal(tow_train_step(whole.state, whole.batch, &loss), TOW_OK);
    if (!(loss < first / 8)) fail_msg("the loss fell from %g to %g", first, loss);
    assert_true(2 * tow_optimizer_bytes(tow_train_optimizer(whole.state)) <
                tow_optimizer_bytes(tow_train_optimizer(plain.state)));
    stop(&whole);
    stop(&part);
    stop(&plain);
}

/* Masters are copies of parameters: moments are in 8 bits, they are not. */
static void masters_stay(void **state)
{
    const fixture *f = *state;
    tow_mlp mlp = TOW_MLP(.features = {32, 3});
    tow_precision half = TOW_PRECISION(&mlp, .dtype = TOW_BF16, .param_dtype = TOW_BF16, .output_dtype = TOW_F32);
    tow_train_options options = adamw(8);
    options.master = true;
    training t = start(f->ctx, TOW_MODULE(&half), 5, 3, options);
    step(&t, 3);
    const tow_optimizer_state *o = tow_train_optimizer(t.state);
    const tow_params *masters = tow_optimizer_find_slot(o, "master/weights/"),
                     *mu = tow_optimizer_find_slot(o, "adam/mu/");
    assert_int_equal(tow_array_type(tow_params_array(masters, 1)).dtype, TOW_F32);
    bool in_bytes = false;
    for (size_t i = 0; i < tow_params_count(mu); i++)
        in_bytes |= tow_array_type(tow_params_array(mu, i)).dtype == TOW_U8;
    assert_true(in_bytes);
    stop(&t);
}

static void wrong_bits_are_refused(void **state)
{
    const fixture *f = *state;
    tow_dense dense = TOW_DENSE(.features = 3);
    tow_train_options options = adamw(4);
    assert_refused(f, TOW_MODULE(&dense), 3, options, "expected .slot_bits of 8, or 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_shares_are_not_zero, setup, teardown),
        cmocka_unit_test_setup_teardown(codes_are_nearest, setup, teardown),
        cmocka_unit_test_setup_teardown(momentum_is_that_of_loops, setup, teardown),
        cmocka_unit_test_setup_teardown(training_resumes, setup, teardown),
        cmocka_unit_test_setup_teardown(masters_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_bits_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests_name("slots_in_bytes", tests, NULL, NULL);
}
