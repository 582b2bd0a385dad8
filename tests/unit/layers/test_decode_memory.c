/* Decoding with a memory: calls that recall it give the bits of calls that project it, project nothing of it, and leave
 * its keys and values in place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

/* ---- calls ------------------------------------------------------------------------------------------------------- */

enum {
    MOST = 96,
    LAYERS = 2,
    D = 8,
    S = 5,
    T = 6
};

static const char *const caches[] = {"cache", NULL};

static tow_type x_type(int64_t n, int64_t features) { return tow_make_type(TOW_F32, 3, (int64_t[]){2, n, features}); }

/* Positions [first, first + n) of a sequence [2, n + ?, features] of exact fractions. */
static tow_array *positions_of(int64_t first, int64_t n, int64_t features)
{
    tow_array *x;
    OK(tow_array_create(ctx, x_type(n, features), &x));
    float *to = tow_array_data(x);
    for (int64_t b = 0; b < 2; b++)
        for (int64_t i = 0; i < n * features; i++)
            *to++ = (float)(((b * 1000 + first * features + i) * 7919) % 257 - 128) / 64;
    return x;
}

/* [2, S], the last two positions of the second row are padding. */
static tow_array *source_mask(void)
{
    tow_array *mask;
    OK(tow_array_create(ctx, tow_make_type(TOW_BOOL, 2, (int64_t[]){2, S}), &mask));
    bool *to = tow_array_data(mask);
    for (int i = 0; i < 2 * S; i++) to[i] = i < 2 * S - 2;
    return mask;
}

/* The program of one call; the variables, if there are any, are donated. threads 0: those of the context. */
static tow_program *compile(const tow_module *model, const tow_params *params, const tow_params *state, size_t n_in,
                            tow_array **in, int threads)
{
    size_t n = tow_params_count(params), n_state = state ? tow_params_count(state) : 0;
    tow_model_options options = TOW_MODEL_OPTIONS(.state = state, .mutable_collections = state ? caches : NULL);
    tow_donation donations[MOST];
    tow_type types[4];
    tow_graph *graph;
    tow_program *program;
    for (size_t i = 0; i < n_in; i++) types[i] = tow_array_type(in[i]);
    for (size_t i = 0; i < n_state; i++) donations[i] = (tow_donation){.output = 1 + i, .input = n + i};
    OK(tow_model_forward_graph(model, params, n_in, types, &options, &graph));
    OK(tow_compile(ctx, graph, &TOW_COMPILE_OPTIONS(.donations = donations, .n_donations = n_state, .threads = threads),
                   &program));
    OK(tow_program_check(program));
    tow_graph_release(graph);
    return program;
}

/* One call: the output, of the type of the target, becomes the caller's; the variables go on in place. */
static tow_array *call(const tow_module *model, const tow_params *params, tow_params *state, size_t n_in,
                       tow_array **in, tow_type output)
{
    size_t n = tow_params_count(params), n_state = state ? tow_params_count(state) : 0;
    tow_program *program = compile(model, params, state, n_in, in, 0);
    tow_array *all[2 * MOST], *out[MOST] = {0}, *y;
    OK(tow_array_create(ctx, output, &y));
    out[0] = y;
    for (size_t i = 0; i < n; i++) all[i] = tow_params_array(params, i);
    for (size_t i = 0; i < n_state; i++) all[n + i] = tow_params_array(state, i);
    for (size_t i = 0; i < n_in; i++) all[n + n_state + i] = in[i];
    OK(tow_program_run(program, all, out));
    tow_program_free(program);
    return y;
}

static void expect_same(const tow_array *a, const tow_array *b)
{
    assert_memory_equal(tow_array_data((tow_array *)a), tow_array_data((tow_array *)b),
                        tow_type_bytes(tow_array_type(a)));
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

/* Positions [first, first + n) of y [2, n, D] and of whole [2, T, D] differ by sums in other orders: 2e-5. */
static void expect_near(tow_array *y, tow_array *whole, int64_t first, int64_t n)
{
    const float *p = tow_array_data(y), *q = tow_array_data(whole);
    for (int64_t b = 0; b < 2; b++)
        for (int64_t i = 0; i < n * D; i++) {
            double found = p[b * n * D + i], expected = q[(b * T + first) * D + i];
            if (!(fabs(found - expected) <= 2e-5 * fmax(1, fabs(expected))))
                fail_msg("position %d: expected %g, found %g", (int)(first + i / D), expected, found);
        }
}

/* A prompt of 3 positions, then one after the other. A sequence that is decoded with the memory of the first call has
 * the bits of what is decoded with that of every call, as have the caches, and is near the model that has no cache.
 * Later calls that recall get another source, which they do not read. */
static void expect_decoding(tow_transformer_block write, bool unrolled, bool masked)
{
    tow_transformer_block read = TOW_TRANSFORMER_BLOCK(.heads = 2), decoding = write;
    decoding.decode = true;
    decoding.cache_length = T;
    tow_encoder_decoder whole =
                            TOW_ENCODER_DECODER(.encoder = TOW_MODULE(&read), .decoder = TOW_MODULE(&write),
                                                .encoder_length = 1, .decoder_length = LAYERS, .unrolled = unrolled),
                        model = whole, recalling = whole;
    tow_transformer_block recall = decoding;
    recall.recall = true;
    model.decoder = TOW_MODULE(&decoding);
    recalling.decoder = TOW_MODULE(&recall);
    const size_t n_in = masked ? 3 : 2;
    tow_array *other = positions_of(70, S, D), *source = positions_of(100, S, D), *mask = source_mask(),
              *target = positions_of(0, T, D);
    tow_type types[] = {x_type(S, D), x_type(3, D), tow_array_type(mask)};
    tow_params *params, *given, *kept;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 3, n_in, types, NULL, &params, &given));
    OK(tow_params_copy(given, &kept));
    tow_array *expected =
        call(TOW_MODULE(&whole), params, NULL, n_in, (tow_array *[]){source, target, mask}, tow_array_type(target));
    for (int64_t first = 0, n = 3; first < T; first += n, n = 1) {
        tow_array *part = positions_of(first, n, D), *in[] = {source, part, mask}, *later[] = {other, part, mask};
        tow_array *a = call(TOW_MODULE(&model), params, given, n_in, in, x_type(n, D)),
                  *b = first == 0 ? call(TOW_MODULE(&model), params, kept, n_in, in, x_type(n, D))
                                  : call(TOW_MODULE(&recalling), params, kept, n_in, later, x_type(n, D));
        expect_same(a, b);
        expect_near(b, expected, first, n);
        for (size_t i = 0; i < tow_params_count(kept); i++)
            expect_same(tow_params_array(given, i), tow_params_array(kept, i));
        tow_array_release(part);
        tow_array_release(a);
        tow_array_release(b);
    }
    tow_array_release(expected);
    tow_array_release(source);
    tow_array_release(other);
    tow_array_release(target);
    tow_array_release(mask);
    tow_params_free(params);
    tow_params_free(given);
    tow_params_free(kept);
}

static void test_bits(void **unused)
{
    (void)unused;
    tow_transformer_block plain = TOW_TRANSFORMER_BLOCK(.heads = 2, .causal = true, .cross = true),
                          more = TOW_TRANSFORMER_BLOCK(.heads = 4, .kv_heads = 2, .causal = true, .cross = true,
                                                       .rope = true, .window = 4, .logit_cap = 2, .head_gates = true,
                                                       .qk_norm = TOW_QK_RMS_NORM, .post_norm = true);
    for (int i = 0; i < 4; i++) {
        expect_decoding(plain, i % 2, i / 2);
        expect_decoding(more, i % 2, i / 2);
    }
}

/* A second source replaces the first. */
static void test_another_memory(void **unused)
{
    (void)unused;
    tow_multi_head_attention m = TOW_MULTI_HEAD_ATTENTION(.heads = 2, .decode = true), fresh = m, recall = m;
    tow_array *x = positions_of(0, 1, D), *key = positions_of(9, S, D), *value = positions_of(50, S, 3),
              *other = positions_of(20, S, D), *zero;
    OK(tow_array_create(ctx, x_type(S, D), &zero));
    memset(tow_array_data(zero), 0, tow_type_bytes(x_type(S, D)));
    fresh.decode = false;
    recall.recall = true;
    tow_type types[] = {x_type(1, D), x_type(S, D), x_type(S, 3)};
    tow_params *params, *state;
    OK(tow_model_init_with(ctx, TOW_MODULE(&m), 3, 3, types, NULL, &params, &state));
    assert_int_equal(tow_params_count(state), 2); /* no positions are counted */
    for (int i = 0; i < 2; i++) {
        tow_array *in[] = {x, i ? other : key, value};
        tow_array *expected = call(TOW_MODULE(&fresh), params, NULL, 3, in, types[0]),
                  *first = call(TOW_MODULE(&m), params, state, 3, in, types[0]);
        expect_same(expected, first);
        for (int again = 0; again < 2; again++) {
            tow_array *next = call(TOW_MODULE(&recall), params, state, 3, (tow_array *[]){x, zero, value}, types[0]);
            expect_same(expected, next);
            tow_array_release(next);
        }
        tow_array_release(expected);
        tow_array_release(first);
    }
    tow_array_release(x);
    tow_array_release(key);
    tow_array_release(value);
    tow_array_release(other);
    tow_array_release(zero);
    tow_params_free(params);
    tow_params_free(state);
}

/* ---- the program of one token ------------------------------------------------------------------------------------ */

/* With a memory of 4096 positions a token makes the products of one position only: of its block, query, key, value, out
 * of the self-attention, query and out of the cross attention, up and down. None of the memory is copied: the arena is
 * smaller than the keys of a layer. */
static void expect_nothing_of_memory(bool unrolled)
{
    const int64_t features = 64, length = 4096;
    tow_transformer_block read = TOW_TRANSFORMER_BLOCK(.heads = 2),
                          write = TOW_TRANSFORMER_BLOCK(.heads = 2, .causal = true, .cross = true, .decode = true,
                                                        .cache_length = 16);
    tow_encoder_decoder model =
                            TOW_ENCODER_DECODER(.encoder = TOW_MODULE(&read), .decoder = TOW_MODULE(&write),
                                                .encoder_length = 1, .decoder_length = LAYERS, .unrolled = unrolled),
                        recalling = model;
    tow_transformer_block recall = write;
    recall.recall = true;
    recalling.decoder = TOW_MODULE(&recall);
    tow_type types[] = {x_type(length, features), x_type(1, features)};
    tow_params *params, *state;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 3, 2, types, NULL, &params, &state));
    tow_array *source = positions_of(0, length, features), *x = positions_of(3, 1, features);
    tow_program *with = compile(TOW_MODULE(&model), params, state, 2, (tow_array *[]){source, x}, 1),
                *token = compile(TOW_MODULE(&recalling), params, state, 2, (tow_array *[]){source, x}, 1);
    const size_t kept = LAYERS * 2 * 2 * (size_t)(length * features) * sizeof(float);
    uint64_t products = tow_program_operation_count(token, "dot_general");
    assert_int_equal(products, 8 * LAYERS);
    assert_int_equal(tow_program_operation_count(with, "dot_general"), 10 * LAYERS + 6);
    assert_true(tow_program_operation_count(token, "copy") <= LAYERS);   /* of the indices */
    assert_true(tow_program_get_bytes(token).arena < kept / LAYERS / 2); /* logits of one thread */
    tow_array_release(source);
    tow_array_release(x);
    tow_program_free(with);
    tow_program_free(token);
    tow_params_free(params);
    tow_params_free(state);
}

static void test_program(void **unused)
{
    (void)unused;
    expect_nothing_of_memory(false);
    expect_nothing_of_memory(true);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void expect_error(tow_status status, tow_status expected, const char *text)
{
    assert_int_equal(status, expected);
    if (!strstr(tow_context_error(ctx), text)) fail_msg("expected \"%s\" in: %s", text, tow_context_error(ctx));
}

static void test_errors(void **unused)
{
    (void)unused;
    tow_params *params = NULL, *state = NULL;
    tow_graph *graph;
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2, .cross = true, .decode = true, .cache_length = 4),
                          recall = block;
    recall.recall = true;
    tow_type types[] = {x_type(2, D), x_type(S, D)}, longer[] = {x_type(2, D), x_type(S + 1, D)};
    OK(tow_model_init_with(ctx, TOW_MODULE(&block), 0, 2, types, NULL, &params, &state));
    tow_model_options options = TOW_MODEL_OPTIONS(.state = state, .mutable_collections = caches);
    expect_error(tow_model_forward_graph(TOW_MODULE(&block), params, 2, longer, &options, &graph), TOW_SHAPE_MISMATCH,
                 "memory_key");
    expect_error(tow_model_forward_graph(TOW_MODULE(&recall), params, 2, longer, &options, &graph), TOW_SHAPE_MISMATCH,
                 "memory_key");
    tow_params_free(params);
    tow_params_free(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_another_memory),
        cmocka_unit_test(test_program),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
