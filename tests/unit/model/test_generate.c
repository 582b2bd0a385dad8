/* Generation: tokens that JAX draws (tests/oracle/sampling_golden.py), and a generator against a model without a cache.
 * Tests choice.c, decoder.c, generate.c, sample.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

/* ---- sampling ---------------------------------------------------------------------------------------------------- */

enum {
    V = 23
};

static void record_sample(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = tow_sample_logits(in[0], in[1], user);
}

static tow_array *sample(int64_t rows, uint64_t seed, tow_sampling sampling)
{
    tow_type types[2] = {tow_make_type(TOW_F32, 2, (int64_t[]){rows, V}), tow_make_type(TOW_U32, 1, (int64_t[]){2})};
    tow_array *in[2], *out;
    tow_graph *graph;
    for (int i = 0; i < 2; i++) OK(tow_array_create(ctx, types[i], &in[i]));
    for (int64_t i = 0; i < rows * V; i++) ((float *)tow_array_data(in[0]))[i] = (float)((i * 7919) % 257 - 128) / 64;
    tow_random_host_key(seed, tow_array_data(in[1]));
    OK(tow_trace_function(ctx, record_sample, &sampling, 2, types, NULL, 1, &graph));
    OK(tow_evaluate(graph, in, &out));
    for (int i = 0; i < 2; i++) tow_array_release(in[i]);
    tow_graph_release(graph);
    return out;
}

static void test_sampling(void **unused)
{
    (void)unused;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/sampling.txt", "r");
    assert_non_null(file);
    int rows, lines = 0;
    unsigned seed;
    tow_sampling s;
    long long k;
    for (; fscanf(file, "%d %u %lf %lld %lf", &rows, &seed, &s.temperature, &k, &s.top_p) == 5; lines++) {
        s.top_k = k;
        tow_array *tokens = sample(rows, seed, s);
        for (int i = 0; i < rows; i++) {
            int expected, found = ((int32_t *)tow_array_data(tokens))[i];
            assert_int_equal(fscanf(file, "%d", &expected), 1);
            if (found != expected)
                fail_msg("temperature %g, top_k %lld, top_p %g, row %d: expected %d, found %d", s.temperature, k,
                         s.top_p, i, expected, found);
        }
        tow_array_release(tokens);
    }
    assert_true(feof(file) && lines == 26);
    fclose(file);
}

/* Logits of a type, each row the same, and the tokens that 400 draws give: bit v is set if token v was drawn. */
static uint32_t support(tow_dtype dtype, int64_t n, const double *logits, tow_sampling sampling)
{
    enum {
        ROWS = 400
    };
    tow_type types[2] = {tow_make_type(dtype, 2, (int64_t[]){ROWS, n}), tow_make_type(TOW_U32, 1, (int64_t[]){2})};
    tow_array *in[2], *out;
    tow_graph *graph;
    uint32_t drawn = 0;
    double *rows = malloc((size_t)(ROWS * n) * sizeof *rows);
    assert_non_null(rows);
    for (int64_t i = 0; i < ROWS * n; i++) rows[i] = logits[i % n];
    for (int i = 0; i < 2; i++) OK(tow_array_create(ctx, types[i], &in[i]));
    tow_array *wide;
    OK(tow_array_from_data(ctx, tow_make_type(TOW_F64, 2, types[0].dims), rows, &wide));
    tow_array_release(in[0]);
    OK(tow_array_convert(wide, dtype, &in[0]));
    tow_random_host_key(3, tow_array_data(in[1]));
    OK(tow_trace_function(ctx, record_sample, &sampling, 2, types, NULL, 1, &graph));
    OK(tow_evaluate(graph, in, &out));
    for (int i = 0; i < ROWS; i++) drawn |= 1u << ((int32_t *)tow_array_data(out))[i];
    tow_array_release(wide);
    for (int i = 0; i < 2; i++) tow_array_release(in[i]);
    tow_array_release(out);
    tow_graph_release(graph);
    free(rows);
    return drawn;
}

/* Tests which tokens can be drawn, in every type. 16-bit logits are computed in f32: all these numbers are exact in
 * bf16. */
static void test_support(void **unused)
{
    const double equal[] = {0, 0, 0, 0}, last[] = {1, 2, 3, 3}, far[] = {-2, 5, 4.9375, 5}, three[] = {3, 1, 3, 2, 3};
    const double large[] = {-3e38, 2e38, 3e38, 1e38}, masked[] = {-INFINITY, 1, -INFINITY, 1};
    const struct {
        const double *logits;
        int64_t n;
        tow_sampling sampling;
        uint32_t expected;
    } cases[] = {{equal, 4, {.temperature = 1, .top_p = 0.5}, 3}, /* two of 1/4 each reach 1/2: those of least index */
                 {equal, 4, {.temperature = 1, .top_p = 0.51}, 7},
                 {equal, 4, {.temperature = 1, .top_p = 0.25}, 1},
                 {equal, 4, {.temperature = 1, .top_p = 1e-9}, 1},
                 {equal, 4, {.temperature = 1, .top_p = 1e-60}, 1},
                 {equal, 4, {.temperature = 1}, 15},
                 {last, 4, {.temperature = 1, .top_p = 1e-9}, 4},
                 {three, 5, {.temperature = 0.1, .top_p = 0.6}, 5}, /* 1/3 each, nearly */
                 {three, 5, {.temperature = 0.1, .top_k = 2}, 21},  /* equals of the second stay */
                 {three, 5, {.temperature = 1, .top_k = 2, .top_p = 0.5}, 5},
                 {last, 4, {.temperature = 1e-45}, 12},
                 {far, 4, {.temperature = 1e-45}, 10},
                 {far, 4, {.temperature = 1e-300}, 10},
                 {far, 4, {.temperature = 1e-39, .top_p = 0.9}, 10},
                 {far, 4, {.temperature = 1e-39, .top_p = 0.4}, 2},
                 {far, 4, {.temperature = 1e-39, .top_k = 1}, 10},
                 {masked, 4, {.temperature = 1e-45}, 10},
                 {masked, 4, {.temperature = 1e60}, 10},
                 {masked, 4, {.temperature = 1, .top_p = 0.5}, 2},
                 {masked, 4, {.temperature = 1, .top_p = 0.99999999999}, 10},
                 {far, 4, {.temperature = 1e300}, 15}};
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int type = 0; type < 4; type++) {
            const tow_dtype dtypes[] = {TOW_F32, TOW_F64, TOW_BF16, TOW_F16};
            const uint32_t found = support(dtypes[type], cases[i].n, cases[i].logits, cases[i].sampling);
            if (found != cases[i].expected)
                fail_msg("case %zu, type %d: expected %x, found %x", i, type, cases[i].expected, found);
        }
    for (int type = 0; type < 3; type++) { /* logits near the end of f32's range, as hot as that they differ */
        const tow_dtype dtypes[] = {TOW_F32, TOW_F64, TOW_BF16};
        assert_int_equal(support(dtypes[type], 4, large, (tow_sampling){.temperature = 0.5}), 4);
        assert_int_equal(support(dtypes[type], 4, large, (tow_sampling){.temperature = 1, .top_p = 0.5}), 4);
    }
}

static void test_sampling_errors(void **unused)
{
    const tow_sampling wrong[] = {{.temperature = -1}, {.top_k = -2}, {.top_p = 1.5}, {.top_p = -0.1}};
    tow_type types[2] = {tow_make_type(TOW_F32, 2, (int64_t[]){2, V}), tow_make_type(TOW_U32, 1, (int64_t[]){2})};
    tow_graph *graph;
    (void)unused;
    for (int i = 0; i < 4; i++)
        assert_int_equal(tow_trace_function(ctx, record_sample, (void *)&wrong[i], 2, types, NULL, 1, &graph),
                         TOW_INVALID_ARGUMENT);
    types[0].rank = 0;
    assert_int_equal(tow_trace_function(ctx, record_sample, NULL, 2, types, NULL, 1, &graph), TOW_INVALID_ARGUMENT);
}

/* ---- a language model -------------------------------------------------------------------------------------------- */

enum {
    LENGTH = 24
};

typedef struct language {
    tow_module module;
    bool decode, last_only;
} language;

static void call_language(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    const language *m = (const language *)module;
    tow_embed embed = TOW_EMBED(.num_embeddings = V, .features = 16);
    tow_learned_positions positions = TOW_LEARNED_POSITIONS(.max_length = LENGTH, .decode = m->decode);
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 4, .kv_heads = 2, .causal = true, .rope = true,
                                                        .decode = m->decode, .cache_length = LENGTH);
    tow_scan blocks = TOW_SCAN(&block, .length = 2);
    (void)n_in, (void)n_out;
    tow_value x = tow_apply(s, "positions", &positions, tow_apply(s, "embed", &embed, in[0]));
    x = tow_apply(s, "blocks", &blocks, x);
    int64_t n = tow_value_type(x).dims[1];
    if (m->last_only) x = tow_slice_axis(x, 1, n - 1, n);
    out[0] = tow_embed_attend(s, "embed", &embed, x);
}
static const tow_module_class language_class = {.name = "language", .call = call_language};

static const language plain = {{&language_class}, false, false}, decoding = {{&language_class}, true, false},
                      decoding_last = {{&language_class}, true, true};

static tow_params *draw_params(void)
{
    tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){1, 4});
    tow_params *params;
    OK(tow_model_init(ctx, TOW_MODULE(&plain), 5, 1, &type, &params));
    return params;
}

/* The likeliest token behind tokens [n], by the model without a cache. */
static int32_t next_of(const tow_params *params, int64_t n, const int32_t *tokens)
{
    tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){1, n});
    tow_array *in[64], *out;
    tow_graph *graph;
    size_t n_params = tow_params_count(params);
    OK(tow_model_forward_graph(TOW_MODULE(&plain), params, 1, &type, NULL, &graph));
    for (size_t i = 0; i < n_params; i++) in[i] = tow_params_array(params, i);
    OK(tow_array_create(ctx, type, &in[n_params]));
    memcpy(tow_array_data(in[n_params]), tokens, (size_t)n * sizeof *tokens);
    OK(tow_evaluate(graph, in, &out));
    const float *logits = (const float *)tow_array_data(out) + (n - 1) * V;
    int32_t best = 0;
    for (int32_t v = 1; v < V; v++)
        if (logits[v] > logits[best]) best = v;
    tow_array_release(in[n_params]);
    tow_array_release(out);
    tow_graph_release(graph);
    return best;
}

static const int32_t prompts[2][7] = {{3, 1, 4, 1, 5, 9, 2}, {6, 5, 3, 5, 8, 9, 7}};

/* However a prompt is cut into calls, greedy generation of both sequences is that of the model without a cache. */
static void expect_greedy(const tow_params *params, const tow_module *model, int64_t chunk)
{
    tow_generator_options options = TOW_GENERATOR_OPTIONS(.batch = 2, .chunk = chunk);
    tow_generator *g;
    int32_t tokens[2][10], all[LENGTH];
    int64_t count;
    OK(tow_generator_create(ctx, model, params, &options, &g));
    assert_int_equal(tow_generator_length(g), LENGTH);
    for (int again = 0; again < 2; again++) {
        OK(tow_generate(g, 7, &prompts[0][0], 10, &tokens[0][0], &count));
        assert_int_equal(count, 10);
        assert_int_equal(tow_generator_position(g), 16);
        for (int row = 0; row < 2; row++) {
            memcpy(all, prompts[row], sizeof prompts[row]);
            for (int i = 0; i < 10; i++) {
                all[7 + i] = next_of(params, 7 + i, all);
                assert_int_equal(tokens[row][i], all[7 + i]);
            }
        }
        tow_generator_reset(g);
        assert_int_equal(tow_generator_position(g), 0);
    }
    tow_generator_free(g);
}

static void test_greedy(void **unused)
{
    (void)unused;
    tow_params *params = draw_params();
    expect_greedy(params, TOW_MODULE(&decoding), 0);
    expect_greedy(params, TOW_MODULE(&decoding), 1);
    expect_greedy(params, TOW_MODULE(&decoding_last), 3);
    tow_params_free(params);
}

static bool stop_after_three(int64_t index, const int32_t *tokens, void *user)
{
    (void)user, (void)tokens;
    return index < 2;
}

/* The same seed draws the same tokens; the end, and the caller, end a sequence. */
static void test_draws(void **unused)
{
    tow_params *params = draw_params();
    tow_generator_options options = TOW_GENERATOR_OPTIONS(.sampling = {.temperature = 1.5, .top_k = 9}, .seed = 11);
    int32_t first[12], second[12];
    int64_t count;
    tow_generator *g;
    (void)unused;
    OK(tow_generator_create(ctx, TOW_MODULE(&decoding), params, &options, &g));
    OK(tow_generate(g, 2, prompts[0], 12, first, &count));
    tow_generator_reset(g);
    OK(tow_generate(g, 2, prompts[0], 12, second, &count));
    assert_memory_equal(first, second, sizeof first);
    tow_generator_free(g);
    options.stop_at_end = true;
    options.end = first[4];
    int64_t expected = 0;
    while (first[expected] != options.end) expected++;
    OK(tow_generator_create(ctx, TOW_MODULE(&decoding), params, &options, &g));
    OK(tow_generate(g, 2, prompts[0], 12, second, &count));
    assert_int_equal(count, expected + 1);
    tow_generator_free(g);
    options.on_token = stop_after_three;
    options.stop_at_end = false;
    OK(tow_generator_create(ctx, TOW_MODULE(&decoding), params, &options, &g));
    OK(tow_generate(g, 2, prompts[0], 12, second, &count));
    assert_int_equal(count, 3);
    tow_generator_free(g);
    tow_params_free(params);
}

static void test_errors(void **unused)
{
    tow_params *params = draw_params();
    tow_generator *g;
    int32_t tokens[LENGTH + 1] = {0}, next;
    (void)unused;
    assert_int_equal(tow_generator_create(ctx, TOW_MODULE(&plain), params, NULL, &g), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "cached_key"));
    assert_null(g);
    assert_int_equal(tow_generator_create(ctx, TOW_MODULE(&decoding), params, &TOW_GENERATOR_OPTIONS(.batch = -1), &g),
                     TOW_INVALID_ARGUMENT);
    assert_int_equal(
        tow_generator_create(ctx, TOW_MODULE(&decoding), params, &TOW_GENERATOR_OPTIONS(.sampling = {.top_p = 2}), &g),
        TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_generator_create(ctx, NULL, params, NULL, &g), TOW_INVALID_ARGUMENT);
    OK(tow_generator_create(ctx, TOW_MODULE(&decoding), params, NULL, &g));
    assert_null(tow_generator_logits(g));
    assert_int_equal(tow_generator_feed(g, LENGTH + 1, tokens, &next), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_generator_feed(g, 0, tokens, &next), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_generator_feed(g, 1, NULL, &next), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_generator_position(g), 0);
    OK(tow_generator_feed(g, LENGTH - 1, tokens, NULL));
    assert_int_equal(tow_type_element_count(tow_array_type(tow_generator_logits(g))), V);
    assert_int_equal(tow_generate(g, 1, tokens, 2, tokens, NULL), TOW_INVALID_ARGUMENT);
    OK(tow_generate(g, 1, tokens, 1, tokens, NULL));
    assert_int_equal(tow_generator_feed(g, 1, tokens, &next), TOW_INVALID_ARGUMENT);
    tow_generator_free(g);
    tow_generator_free(NULL);
    tow_params_free(params);
}

/* Allocations fail one after the other, early ones each, later ones at growing distances: a status, and nothing is left
 * behind. */
static void test_no_memory(void **unused)
{
    tow_params *params = draw_params();
    (void)unused;
    for (long fail_at = 0, done = 0; !done; fail_at += 1 + fail_at / 40) {
        counting c;
        tow_context_options options = counting_options(&c, fail_at);
        tow_context *own = NULL;
        tow_generator *g = NULL;
        int32_t tokens[4];
        tow_status status = tow_context_create(&options, &own);
        if (status == TOW_OK) status = tow_generator_create(own, TOW_MODULE(&decoding), params, NULL, &g);
        if (status == TOW_OK) status = tow_generate(g, 3, prompts[0], 4, tokens, NULL);
        if (status != TOW_OK) assert_int_equal(status, TOW_OUT_OF_MEMORY);
        done = status == TOW_OK;
        tow_generator_free(g);
        tow_context_free(own);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
    }
    tow_params_free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sampling),  cmocka_unit_test(test_support), cmocka_unit_test(test_sampling_errors),
        cmocka_unit_test(test_greedy),    cmocka_unit_test(test_draws),   cmocka_unit_test(test_errors),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
