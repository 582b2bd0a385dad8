/* Requests that join and leave a running batch: each has the tokens of a generator of its own.
 * Tests batcher.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/language_models.h"

enum {
    REQUESTS = 7,
    LONGEST = 12
};

static const int32_t prompts[REQUESTS][9] = {
    {3, 1, 4, 1, 5, 9, 2, 6, 5}, {8, 9}, {7, 9, 3, 2, 3}, {1}, {2, 7, 1, 8}, {28, 0, 28}, {5, 5}};
static const int64_t lengths[REQUESTS] = {9, 2, 5, 1, 4, 3, 2};
static const int64_t limits[REQUESTS] = {12, 3, 1, 9, 5, 12, 7};

static int setup_portable(void **state)
{
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.threads = 2, .portable_bits = true);
    (void)state;
    return tow_context_create(&options, &ctx) != TOW_OK;
}
static int teardown_portable(void **state)
{
    (void)state;
    tow_context_free(ctx);
    return 0;
}

/* ---- what requests were told ------------------------------------------------------------------------------------- */

typedef struct told {
    int32_t tokens[REQUESTS][LONGEST];
    int64_t counts[REQUESTS], ends[REQUESTS]; /* ends: how often */
    tow_status status[REQUESTS];
    tow_ending ending[REQUESTS];
    int64_t stop_at;  /* on_token of request 0 returns false after so many; 0: never */
    tow_batcher *add; /* request 1 adds the last one when it ends */
} told;

static bool on_token(int64_t id, int32_t token, void *user)
{
    told *t = user;
    t->tokens[id][t->counts[id]++] = token;
    return id != 0 || t->counts[0] != t->stop_at;
}

static tow_batch_request request_of(int i, told *t);

static void on_end(int64_t id, tow_status status, tow_ending ending, int64_t count, void *user)
{
    told *t = user;
    assert_int_equal(count, t->counts[id]);
    t->ends[id]++;
    t->status[id] = status;
    t->ending[id] = ending;
    if (id != 1 || !t->add) return;
    const tow_batch_request late = request_of(REQUESTS - 1, t);
    OK(tow_batcher_add(t->add, &late, NULL));
}

static tow_batch_request request_of(int i, told *t)
{
    return TOW_BATCH_REQUEST(.n = lengths[i], .prompt = prompts[i], .limit = limits[i], .seed = (uint64_t)(100 + i),
                             .on_token = on_token, .on_end = on_end, .user = t);
}

/* ---- beside generators ------------------------------------------------------------------------------------------- */

static const int32_t ends[] = {11, 4};

static tow_generator_options options_of(bool draws)
{
    tow_generator_options o = TOW_GENERATOR_OPTIONS(.ends = ends, .n_ends = 2, .repetition_penalty = 1.3);
    if (draws) o.sampling = (tow_sampling){.temperature = 1.5, .top_k = 12, .top_p = 0.9};
    return o;
}

static void expect_as_alone(const tow_params *params, int k, bool draws, int i, const told *t)
{
    tow_generator_options options = options_of(draws);
    tow_generator *g;
    int32_t tokens[LONGEST];
    int64_t count;
    options.seed = (uint64_t)(100 + i);
    OK(tow_generator_create(ctx, TOW_MODULE(&models[k]), params, &options, &g));
    OK(tow_generate(g, lengths[i], prompts[i], limits[i], tokens, &count));
    assert_int_equal(t->ends[i], 1);
    assert_int_equal(t->status[i], TOW_OK);
    assert_int_equal(t->counts[i], count);
    assert_memory_equal(t->tokens[i], tokens, (size_t)count * sizeof *tokens);
    tow_generator_free(g);
}

static void run(int k, bool draws, int64_t batch)
{
    tow_params *params = params_of(ctx, (kind)k);
    tow_generator_options options = options_of(draws);
    tow_batcher *b;
    told t = {0};
    int64_t left = 1, id, steps = 0;
    options.batch = batch;
    OK(tow_batcher_create(ctx, TOW_MODULE(&models[k]), params, &options, &b));
    t.add = b;
    for (int i = 0; i < REQUESTS - 1; i++) {
        const tow_batch_request request = request_of(i, &t);
        if (i == 4) OK(tow_batcher_step(b, NULL)); /* two come later */
        OK(tow_batcher_add(b, &request, &id));
        assert_int_equal(id, i);
    }
    for (; left > 0; steps++) OK(tow_batcher_step(b, &left));
    OK(tow_batcher_step(b, &left)); /* nothing to do */
    assert_int_equal(left, 0);
    if (batch >= REQUESTS) assert_true(steps <= 2 * LONGEST);
    for (int i = 0; i < REQUESTS; i++) expect_as_alone(params, k, draws, i, &t);
    tow_batcher_free(b);
    tow_params_free(params);
}

static void test_as_alone(void **state)
{
    (void)state;
    for (int k = GPT2; k <= LLAMA; k++)
        for (int draws = 0; draws < 2; draws++)
            for (int64_t batch = 1; batch <= 8; batch = 2 * batch + 1) run(k, draws, batch);
}

/* ---- requests that end early ------------------------------------------------------------------------------------- */

static void test_cancelled(void **state)
{
    tow_params *params = params_of(ctx, LLAMA);
    tow_generator_options options = options_of(false);
    tow_batcher *b;
    told t = {.stop_at = 2};
    int64_t left = 1;
    (void)state;
    options.batch = 2;
    options.n_ends = 0;
    OK(tow_batcher_create(ctx, TOW_MODULE(&models[LLAMA]), params, &options, &b));
    for (int i = 0; i < 6; i++) {
        const tow_batch_request request = request_of(i, &t);
        OK(tow_batcher_add(b, &request, NULL));
    }
    OK(tow_batcher_step(b, &left));
    tow_batcher_cancel(b, 1);  /* runs */
    tow_batcher_cancel(b, 5);  /* waits */
    tow_batcher_cancel(b, 99); /* is none */
    /* cancelled as a whole, it goes on afterwards as if nothing had been */
    tow_context_cancel(ctx);
    assert_int_equal(tow_batcher_step(b, &left), TOW_CANCELLED);
    tow_context_cancel_reset(ctx);
    while (left > 0) OK(tow_batcher_step(b, &left));
    for (int i = 0; i < 6; i++) {
        const bool stopped = i == 0 || i == 1 || i == 5;
        assert_int_equal(t.ends[i], 1);
        assert_int_equal(t.status[i], stopped ? TOW_CANCELLED : TOW_OK);
        assert_int_equal(t.counts[i], i == 0 ? 2 : i == 1 ? 1 : i == 5 ? 0 : limits[i]);
    }
    tow_batcher_free(b);
    tow_params_free(params);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void expect_error(tow_status status, tow_status expected, const char *message)
{
    assert_int_equal(status, expected);
    if (!strstr(tow_context_error(ctx), message)) fail_msg("'%s' is not in '%s'", message, tow_context_error(ctx));
    tow_context_clear_error(ctx);
}

static void test_errors(void **state)
{
    tow_params *params = params_of(ctx, LLAMA);
    const tow_module *model = TOW_MODULE(&models[LLAMA]);
    tow_batcher *b = NULL;
    (void)state;
    const tow_generator_options wrong[] = {TOW_GENERATOR_OPTIONS(.sequences = 2), TOW_GENERATOR_OPTIONS(.beams = 2),
                                           TOW_GENERATOR_OPTIONS(.min_tokens = 1), TOW_GENERATOR_OPTIONS(.batch = -1)};
    const char *const messages[] = {".sequences of the options", ".beams of the options", ".min_tokens of the options",
                                    ".batch = -1"};
    for (int i = 0; i < 4; i++) {
        expect_error(tow_batcher_create(ctx, model, params, &wrong[i], &b), TOW_INVALID_ARGUMENT, messages[i]);
        assert_null(b);
    }
    OK(tow_batcher_create(ctx, model, params, NULL, &b));
    const tow_batch_request requests[] = {TOW_BATCH_REQUEST(.n = 0, .prompt = prompts[0], .limit = 1),
                                          TOW_BATCH_REQUEST(.n = 1, .limit = 1),
                                          TOW_BATCH_REQUEST(.n = 1, .prompt = prompts[0]),
                                          TOW_BATCH_REQUEST(.n = 9, .prompt = prompts[0], .limit = LENGTH - 9 + 2)};
    for (int i = 0; i < 4; i++)
        expect_error(tow_batcher_add(b, &requests[i], NULL), TOW_INVALID_ARGUMENT, "which the cache of 40 has");
    expect_error(tow_batcher_add(b, NULL, NULL), TOW_INVALID_ARGUMENT, "the request is NULL");
    assert_int_equal(tow_batcher_step(NULL, NULL), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_batcher_add(NULL, &requests[0], NULL), TOW_INVALID_ARGUMENT);
    tow_batcher_cancel(NULL, 0);
    tow_batcher_free(NULL);
    tow_batcher_free(b);
    tow_params_free(params);
}

/* A prompt with a token outside of the vocabulary ends alone. */
static void test_not_finite(void **state)
{
    tow_params *params = params_of(ctx, GPT2);
    tow_generator_options options = options_of(false);
    const int32_t outside[] = {3, V + 5};
    tow_batcher *b;
    told t = {0};
    int64_t left = 1;
    (void)state;
    options.batch = 2;
    OK(tow_batcher_create(ctx, TOW_MODULE(&models[GPT2]), params, &options, &b));
    tow_batch_request request = request_of(0, &t);
    OK(tow_batcher_add(b, &request, NULL));
    request = request_of(1, &t);
    request.n = 2;
    request.prompt = outside;
    OK(tow_batcher_add(b, &request, NULL));
    while (left > 0) OK(tow_batcher_step(b, &left));
    assert_int_equal(t.status[1], TOW_CHECK_FAILED);
    assert_int_equal(t.counts[1], 0);
    expect_as_alone(params, GPT2, false, 0, &t);
    tow_context_clear_error(ctx);
    tow_batcher_free(b);
    tow_params_free(params);
}

/* ---- memory that is missing -------------------------------------------------------------------------------------- */

static tow_status run_with(const tow_context_options *context_options, const tow_params *params)
{
    tow_context *own;
    tow_batcher *b = NULL;
    int64_t left = 1;
    tow_status status = tow_context_create(context_options, &own);
    if (status != TOW_OK) return status;
    const tow_generator_options options = TOW_GENERATOR_OPTIONS(.batch = 2);
    status = tow_batcher_create(own, TOW_MODULE(&models[LLAMA]), params, &options, &b);
    for (int i = 3; i < 5 && status == TOW_OK; i++)
        status =
            tow_batcher_add(b, &TOW_BATCH_REQUEST(.n = lengths[i], .prompt = prompts[i], .limit = 2, .seed = 1), NULL);
    while (left > 0 && status == TOW_OK) status = tow_batcher_step(b, &left);
    tow_batcher_free(b);
    tow_context_free(own);
    return status;
}

static void test_no_memory(void **state)
{
    tow_params *params = params_of(ctx, LLAMA);
    counting c;
    tow_context_options options = counting_options(&c, -1);
    (void)state;
    OK(run_with(&options, params));
    const long calls = c.calls;
    for (long allowed = 0; allowed < calls; allowed += 1 + calls / 40) {
        options = counting_options(&c, allowed);
        assert_int_equal(run_with(&options, params), TOW_OUT_OF_MEMORY);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
    }
    tow_params_free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_alone), cmocka_unit_test(test_cancelled),
                                       cmocka_unit_test(test_errors), cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, setup_portable, teardown_portable);
}
