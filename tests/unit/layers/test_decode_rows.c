/* Decoding where each row has a position of its own: "cache_index" i32 [B]. Each row has the result, the cache and the
 * weights that it has alone with a scalar; what stands at negative positions, or behind the end, leaves no trace in the
 * cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    B = 3,
    T = 4,
    D = 8,
    LENGTH = 16,
    MOST = 32
};

static tow_context *portable;

/* The results of a call: y, and then by their paths the new variables and what was sown. */
typedef struct result {
    tow_array *y;
    tow_params *updates;
} result;

static void free_result(result *r)
{
    tow_array_release(r->y);
    tow_params_free(r->updates);
}

static float number(int64_t row, int64_t position, int64_t i)
{
    return (float)(((row * 1013 + position * 89 + i) * 7919) % 257 - 128) / 128;
}

/* Rows [first, first + n) of the sequences, T positions from starts[row] on. scalar: one index for all. */
static result call(const tow_module *model, const tow_params *params, const tow_params *state, int64_t first, int64_t n,
                   const int32_t *starts, bool scalar, bool sows)
{
    static const char *const caches[] = {"cache", NULL}, *const sown[] = {"cache", "intermediates", NULL};
    const tow_type type = tow_make_type(TOW_F32, 3, (int64_t[]){n, T, D});
    const size_t n_params = tow_params_count(params), n_state = tow_params_count(state);
    tow_array *in[MOST], *out[MOST] = {0}, *arrays[8];
    const char *paths[8];
    tow_params *given;
    result r = {0};
    tow_graph *graph;
    for (size_t i = 0; i < n_state; i++) {
        tow_type own = tow_array_type(tow_params_array(state, i));
        paths[i] = tow_params_path(state, i);
        if (own.rank == 4) own.dims[0] = n;
        if (own.rank < 4 && !scalar) own = tow_make_type(TOW_I32, 1, &n);
        OK(tow_array_create(portable, own, &arrays[i]));
        float *x = tow_array_data(arrays[i]);
        if (own.rank == 4) /* what earlier calls have left */
            for (int64_t k = 0; k < tow_type_element_count(own); k++)
                x[k] = number(first + k / (tow_type_element_count(own) / n), 77, k % (tow_type_element_count(own) / n));
        else
            memcpy(x, starts + first, (size_t)(scalar ? 1 : n) * sizeof *starts);
    }
    OK(tow_params_from_arrays(portable, n_state, paths, arrays, &given));
    const tow_model_options options =
        TOW_MODEL_OPTIONS(.state = given, .mutable_collections = sows ? sown : caches, .updates = &r.updates);
    if (tow_model_forward_graph(model, params, 1, &type, &options, &graph) != TOW_OK)
        fail_msg("%s", tow_context_error(portable));
    for (size_t i = 0; i < n_params; i++) in[i] = tow_params_array(params, i);
    for (size_t i = 0; i < n_state; i++) in[n_params + i] = arrays[i];
    OK(tow_array_create(portable, type, &in[n_params + n_state]));
    float *x = tow_array_data(in[n_params + n_state]);
    for (int64_t b = 0; b < n; b++)
        for (int64_t i = 0; i < T * D; i++) *x++ = number(first + b, starts[first + b] + i / D, i % D);
    OK(tow_evaluate(graph, in, out));
    r.y = out[0];
    for (size_t i = 0; i < tow_params_count(r.updates); i++) {
        tow_array *to = tow_params_array(r.updates, i);
        memcpy(tow_array_data(to), tow_array_data(out[1 + i]), tow_type_bytes(tow_array_type(to)));
        tow_array_release(out[1 + i]);
    }
    tow_graph_release(graph);
    tow_array_release(in[n_params + n_state]);
    tow_params_free(given);
    for (size_t i = 0; i < n_state; i++) tow_array_release(arrays[i]);
    return r;
}

/* Row b of an array whose rows are along axis 0. */
static const char *row_of(const tow_array *x, int64_t b, size_t *bytes)
{
    const tow_type type = tow_array_type(x);
    *bytes = tow_type_bytes(type) / (size_t)type.dims[0];
    return (const char *)tow_array_data((tow_array *)x) + (size_t)b * *bytes;
}

static void expect_rows(const tow_module *model, const tow_params *params, const tow_params *state, bool sows)
{
    const int32_t starts[B] = {5, 0, 11};
    result together = call(model, params, state, 0, B, starts, false, sows);
    for (int64_t b = 0; b < B; b++) {
        result alone = call(model, params, state, b, 1, starts, true, sows);
        size_t bytes;
        const char *found = row_of(together.y, b, &bytes);
        assert_memory_equal(found, tow_array_data(alone.y), bytes);
        assert_int_equal(tow_params_count(together.updates), tow_params_count(alone.updates));
        for (size_t i = 0; i < tow_params_count(alone.updates); i++) {
            tow_array *one = tow_params_array(alone.updates, i);
            found = row_of(tow_params_array(together.updates, i), b, &bytes);
            assert_int_equal(bytes, tow_type_bytes(tow_array_type(one)));
            assert_memory_equal(found, tow_array_data(one), bytes);
        }
        free_result(&alone);
    }
    free_result(&together);
}

/* Grouped queries, windows, norms, and weights that are written out. */
static void test_rows(void **unused)
{
    const tow_multi_head_attention layers[] = {
        TOW_MULTI_HEAD_ATTENTION(.heads = 2, .decode = true, .cache_length = LENGTH, .rope = true),
        TOW_MULTI_HEAD_ATTENTION(.heads = 4, .kv_heads = 2, .decode = true, .cache_length = LENGTH, .window = 3),
        TOW_MULTI_HEAD_ATTENTION(.heads = 2, .decode = true, .cache_length = LENGTH, .sow_weights = true, .window = 6,
                                 .rope = true),
        TOW_MULTI_HEAD_ATTENTION(.heads = 2, .decode = true, .cache_length = LENGTH, .logit_cap = 3,
                                 .qk_norm = TOW_QK_RMS_NORM)};
    const tow_type x = tow_make_type(TOW_F32, 3, (int64_t[]){1, T, D});
    (void)unused;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        tow_params *params, *state;
        OK(tow_model_init_with(portable, TOW_MODULE(&layers[i]), 1, 1, &x, NULL, &params, &state));
        expect_rows(TOW_MODULE(&layers[i]), params, state, layers[i].sow_weights);
        tow_params_free(params);
        tow_params_free(state);
    }
}

static void test_positions(void **unused)
{
    const tow_learned_positions learned = TOW_LEARNED_POSITIONS(.max_length = LENGTH, .decode = true);
    const tow_sinusoidal_positions sines = TOW_SINUSOIDAL_POSITIONS(.decode = true);
    const tow_module *layers[] = {TOW_MODULE(&learned), TOW_MODULE(&sines)};
    const tow_type x = tow_make_type(TOW_F32, 3, (int64_t[]){1, T, D});
    (void)unused;
    for (size_t i = 0; i < 2; i++) {
        tow_params *params, *state;
        OK(tow_model_init_with(portable, layers[i], 1, 1, &x, NULL, &params, &state));
        expect_rows(layers[i], params, state, false);
        tow_params_free(params);
        tow_params_free(state);
    }
}

/* Of a row at -3 one position goes into the cache, of one at LENGTH - 1 one, of one at LENGTH none. */
static void test_outside(void **unused)
{
    const tow_multi_head_attention layer = TOW_MULTI_HEAD_ATTENTION(.heads = 2, .decode = true, .cache_length = LENGTH);
    const tow_type x = tow_make_type(TOW_F32, 3, (int64_t[]){1, T, D});
    const int32_t starts[B] = {-3, LENGTH - 1, LENGTH};
    const int64_t kept[B] = {1, 1, 0}, place[B] = {0, LENGTH - 1, 0};
    tow_params *params, *state;
    (void)unused;
    OK(tow_model_init_with(portable, TOW_MODULE(&layer), 1, 1, &x, NULL, &params, &state));
    result r = call(TOW_MODULE(&layer), params, state, 0, B, starts, false, false);
    const float *keys = tow_array_data(tow_params_find(r.updates, "cache/cached_key"));
    for (int64_t b = 0; b < B; b++) {
        int64_t changed = 0;
        for (int64_t p = 0; p < LENGTH; p++) {
            bool differs = false;
            for (int64_t i = 0; i < D; i++)
                differs = differs || keys[(b * LENGTH + p) * D + i] != number(b, 77, p * D + i);
            changed += differs;
            if (differs) assert_int_equal(p, place[b]);
        }
        assert_int_equal(changed, kept[b]);
    }
    free_result(&r);
    tow_params_free(params);
    tow_params_free(state);
}

static int set_up(void **state)
{
    return setup(state) || tow_context_create(&TOW_CONTEXT_OPTIONS(.portable_bits = true), &portable) != TOW_OK;
}
static int tear_down(void **state)
{
    tow_context_free(portable);
    return teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_positions),
                                       cmocka_unit_test(test_outside)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
