/* Sequences behind prompts of different lengths, each beside what it is alone, and what calls allocate, tell and
 * refuse. Their values are in test_generation.c.
 * Tests beams.c, generate_sequences.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/language_models.h"

/* ---- beside what each sequence is alone -------------------------------------------------------------------------- */

static const int32_t prompts[3][9] = {{3, 1, 4, 1, 5, 9, 2, 6, 5}, {8, 9}, {7, 9, 3, 2, 3}};
static const int64_t lengths[3] = {9, 2, 5};
static const int32_t answers[3][4] = {{11, 2, 4, 4}, {5}, {21, 20}};
static const int64_t answer_lengths[3] = {4, 1, 2};

/* Two turns of conversation: what is generated, and the logits behind the last token. */
typedef struct turns {
    int32_t tokens[2][12];
    int64_t counts[2];
    float logits[V];
} turns;

/* Those of prompts [first, first + n), in one batch. The second prompt begins with the last token of the first result.
 * */
static void talk(tow_context *context, const tow_params *params, int k, int64_t first, int64_t n, bool left,
                 tow_generator_options options, turns *result)
{
    tow_generator *g;
    int32_t padded[3 * 9], tokens[3 * 12];
    int64_t counts[3], next_lengths[3];
    options.batch = n;
    options.seed += (uint64_t)first;
    if (tow_generator_create(context, TOW_MODULE(&models[k]), params, &options, &g) != TOW_OK)
        fail_msg("%s", tow_context_error(context));
    for (int turn = 0; turn < 2; turn++) {
        const int64_t width = turn == 0 ? 9 : 5;
        for (int64_t b = 0; b < n; b++) {
            int32_t own[9];
            const int64_t more = turn == 0 ? lengths[first + b] : answer_lengths[first + b];
            const int32_t *said = turn == 0 ? prompts[first + b] : answers[first + b];
            if (turn == 1) own[0] = tokens[b * 12 + counts[b] - 1];
            memcpy(own + turn, said, (size_t)more * sizeof *own);
            next_lengths[b] = more + turn;
            const int64_t place = left ? width - next_lengths[b] : 0;
            for (int64_t i = 0; i < width; i++) padded[b * width + i] = 27;
            memcpy(padded + b * width + place, own, (size_t)next_lengths[b] * sizeof *own);
        }
        const tow_generation call =
            TOW_GENERATION(.n = width, .prompts = padded, .lengths = next_lengths, .left_padded = left, .limit = 12,
                           .tokens = tokens, .counts = counts);
        if (tow_generate_with(g, &call) != TOW_OK) fail_msg("%s", tow_context_error(context));
        for (int64_t b = 0; b < n; b++) {
            memcpy(result[b].tokens[turn], tokens + b * 12, sizeof result[b].tokens[turn]);
            result[b].counts[turn] = counts[b];
        }
    }
    for (int64_t b = 0; b < n; b++)
        memcpy(result[b].logits, (const float *)tow_array_data(tow_generator_logits(g)) + b * V,
               sizeof result[b].logits);
    tow_generator_free(g);
}

/* With portable bits each sequence has the tokens and, where it has not ended, the logits that it has alone: greedy and
 * drawn, padded left and right, with learned positions and RoPE, with ends at different times, however prompts are cut
 * into calls. */
static void test_alone(void **unused)
{
    tow_context *context;
    (void)unused;
    OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 2, .portable_bits = true), &context));
    for (int k = 0; k <= WINDOWED; k += 1 + k % 2) { /* but BART */
        tow_params *params = params_of(context, k == WINDOWED ? LLAMA : (kind)k);
        for (int way = 0; way < 8; way++) {
            const int32_t ends[] = {24, 10};
            const tow_generator_options options =
                TOW_GENERATOR_OPTIONS(.seed = 5,
                                      .sampling = {.temperature = way & 1 ? 1.5 : 0, .top_p = 0.9, .top_k = 20},
                                      .repetition_penalty = way & 4 ? 1.2 : 0, .chunk = way & 2 ? 0 : 2, .ends = ends,
                                      .n_ends = way & 4 ? 2 : 0, .min_tokens = way & 4 ? 3 : 0);
            turns together[3] = {0}, alone[3] = {0};
            talk(context, params, k, 0, 3, way & 2, options, together);
            for (int64_t b = 0; b < 3; b++) talk(context, params, k, b, 1, false, options, &alone[b]);
            int64_t last = 0;
            for (int b = 0; b < 3; b++)
                if (together[b].counts[1] > last) last = together[b].counts[1];
            for (int b = 0; b < 3; b++) {
                if (memcmp(together[b].tokens, alone[b].tokens, sizeof alone[b].tokens) != 0)
                    fail_msg("model %d, way %d: sequence %d has other tokens than alone", k, way, b);
                assert_memory_equal(together[b].counts, alone[b].counts, sizeof alone[b].counts);
                if (together[b].counts[1] == last)
                    assert_memory_equal(together[b].logits, alone[b].logits, sizeof alone[b].logits);
            }
        }
        tow_params_free(params);
    }
    tow_context_free(context);
}

/* Several sequences for a prompt are those of as many equal prompts, and the prompts go through the model once. */
static void test_several(void **unused)
{
    tow_params *params = params_of(ctx, LLAMA);
    int32_t equal[6][9], two[2][9], a[6][12], b[6][12];
    int64_t counts[6];
    tow_generator *g;
    tow_generator_options options = TOW_GENERATOR_OPTIONS(.batch = 6, .seed = 9, .sampling = {.temperature = 2});
    (void)unused;
    for (int r = 0; r < 6; r++) memcpy(equal[r], prompts[r / 3], sizeof equal[r]);
    for (int r = 0; r < 2; r++) memcpy(two[r], prompts[r], sizeof two[r]);
    const int64_t equal_lengths[6] = {9, 9, 9, 2, 2, 2};
    OK(tow_generator_create(ctx, TOW_MODULE(&models[LLAMA]), params, &options, &g));
    OK(tow_generate_with(g, &TOW_GENERATION(.n = 9, .prompts = equal[0], .lengths = equal_lengths, .limit = 12,
                                            .tokens = a[0], .counts = counts)));
    tow_generator_free(g);
    options.batch = 2;
    options.sequences = 3;
    OK(tow_generator_create(ctx, TOW_MODULE(&models[LLAMA]), params, &options, &g));
    OK(tow_generate_with(g,
                         &TOW_GENERATION(.n = 9, .prompts = two[0], .lengths = lengths, .limit = 12, .tokens = b[0])));
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a[0], a[1], sizeof a[0]);
    OK(tow_generate_with(g,
                         &TOW_GENERATION(.n = 9, .prompts = two[0], .lengths = lengths, .limit = 12, .tokens = a[0])));
    assert_memory_not_equal(a, b, sizeof a); /* draws go on */
    tow_generator_free(g);
    tow_params_free(params);
}

/* ---- streaming --------------------------------------------------------------------------------------------------- */

typedef struct listener {
    int64_t calls, until;
    int32_t heard[2][16];
    int64_t *counts;
} listener;

static bool listen(int64_t index, const int32_t *tokens, void *user)
{
    listener *l = user;
    assert_int_equal(index, l->calls);
    for (int b = 0; b < 2; b++) l->heard[b][index] = tokens[b];
    if (l->counts) assert_int_equal(l->counts[0], index + 1);
    return ++l->calls < l->until;
}

static void test_streaming(void **unused)
{
    tow_params *params = params_of(ctx, GPT2);
    int32_t tokens[4][9];
    int64_t counts[4];
    listener l = {.until = 5, .counts = counts};
    tow_ending endings[4];
    tow_generator *g;
    tow_generator_options options = TOW_GENERATOR_OPTIONS(.batch = 2, .on_token = listen, .user = &l);
    const tow_generation call = TOW_GENERATION(.n = 9, .prompts = prompts[0], .lengths = lengths, .limit = 9,
                                               .tokens = tokens[0], .counts = counts, .endings = endings);
    (void)unused;
    OK(tow_generator_create(ctx, TOW_MODULE(&models[GPT2]), params, &options, &g));
    OK(tow_generate_with(g, &call));
    assert_true(l.calls == 5 && counts[0] == 5 && counts[1] == 5 && endings[0] == TOW_NOT_ENDED);
    for (int b = 0; b < 2; b++) assert_memory_equal(tokens[b], l.heard[b], 5 * sizeof(int32_t));
    assert_true(tokens[0][5] == 0 && tokens[1][8] == 0);
    tow_generator_free(g);
    options.beams = 2;
    options.sequences = 2;
    l = (listener){.until = 3};
    OK(tow_generator_create(ctx, TOW_MODULE(&models[GPT2]), params, &options, &g));
    OK(tow_generate_with(g, &call));
    assert_true(l.calls == 3 && counts[0] == 3 && counts[3] == 3);
    for (int b = 0; b < 2; b++) /* the beams of the first prompt, best first */
        assert_int_equal(tokens[b][2], l.heard[b][2]);
    tow_generator_free(g);
    tow_params_free(params);
}

/* ---- what calls allocate ----------------------------------------------------------------------------------------- */

/* Allocations of a call with this limit, after one that has made the programs. */
static long count_allocations(const tow_params *params, tow_generator_options options, int64_t limit)
{
    counting c;
    tow_context_options context_options = counting_options(&c, -1);
    tow_context *own;
    tow_generator *g;
    int32_t *tokens = malloc(sizeof(int32_t) * 64 * 8);
    assert_non_null(tokens);
    options.batch = 2;
    OK(tow_context_create(&context_options, &own));
    OK(tow_generator_create(own, TOW_MODULE(&models[LLAMA]), params, &options, &g));
    const tow_generation call =
        TOW_GENERATION(.n = 9, .prompts = prompts[0], .lengths = lengths, .limit = limit, .tokens = tokens);
    OK(tow_generate_with(g, &call));
    tow_generator_reset(g);
    const long before = c.calls;
    OK(tow_generate_with(g, &call));
    const long calls = c.calls - before;
    tow_generator_free(g);
    tow_context_free(own);
    assert_int_equal(c.blocks, 0);
    assert_int_equal(c.wrong_sizes, 0);
    free(tokens);
    return calls;
}

static void test_allocations(void **unused)
{
    tow_params *params = params_of(ctx, LLAMA);
    const int32_t end = 28;
    const tow_generator_options ways[] = {
        TOW_GENERATOR_OPTIONS(.sampling = {.temperature = 1, .top_p = 0.9}, .repetition_penalty = 1.1),
        TOW_GENERATOR_OPTIONS(.sequences = 3, .log_probabilities = true),
        TOW_GENERATOR_OPTIONS(.beams = 4, .sequences = 2, .ends = &end, .n_ends = 1, .presence_penalty = 1)};
    (void)unused;
    for (int i = 0; i < 3; i++)
        assert_int_equal(count_allocations(params, ways[i], 3), count_allocations(params, ways[i], 30));
    tow_params_free(params);
}

/* The programs that tow_generator_prepare has compiled are not compiled again: the first call behind it allocates as
 * often as later ones. */
static void test_prepare(void **unused)
{
    tow_params *params = params_of(ctx, LLAMA);
    counting c;
    tow_context_options context_options = counting_options(&c, -1);
    tow_context *own;
    tow_generator *g;
    int32_t tokens[12];
    long calls[2];
    (void)unused;
    OK(tow_context_create(&context_options, &own));
    OK(tow_generator_create(own, TOW_MODULE(&models[LLAMA]), params, NULL, &g));
    assert_int_equal(tow_generator_prepare(g, 0), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_generator_prepare(g, tow_generator_length(g) + 1), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_generator_prepare(NULL, 1), TOW_INVALID_ARGUMENT);
    OK(tow_generator_prepare(g, 9));
    for (int i = 0; i < 2; i++) {
        const long before = c.calls;
        OK(tow_generate(g, 9, prompts[0], 12, tokens, NULL));
        calls[i] = c.calls - before;
        tow_generator_reset(g);
    }
    assert_int_equal(calls[0], calls[1]);
    tow_generator_free(g);
    tow_context_free(own);
    tow_params_free(params);
}

/* Cancels the context after so many tokens. */
typedef struct canceller {
    int64_t after;
} canceller;
static bool cancel_after(int64_t index, const int32_t *tokens, void *user)
{
    const canceller *c = user;
    (void)tokens;
    if (index + 1 == c->after) tow_context_cancel(ctx);
    return true;
}

/* A conversation that is cancelled and goes on has the tokens of one that was stopped by its limit. */
static void test_cancelled(void **unused)
{
    tow_params *params = params_of(ctx, LLAMA);
    canceller c = {.after = 3};
    const tow_generator_options options = TOW_GENERATOR_OPTIONS(.on_token = cancel_after, .user = &c);
    tow_generator *stopped, *limited;
    int32_t first[12], second[12], expected[12], more[2];
    int64_t counts = 0;
    (void)unused;
    OK(tow_generator_create(ctx, TOW_MODULE(&models[LLAMA]), params, &options, &stopped));
    OK(tow_generator_create(ctx, TOW_MODULE(&models[LLAMA]), params, NULL, &limited));
    assert_int_equal(tow_generate_with(stopped, &TOW_GENERATION(.n = 9, .prompts = prompts[0], .limit = 12,
                                                                .tokens = first, .counts = &counts)),
                     TOW_CANCELLED);
    assert_int_equal(counts, 3);
    c.after = -1;
    /* still cancelled: a prompt is not fed */
    more[0] = first[2], more[1] = 7;
    assert_int_equal(tow_generate(stopped, 2, more, 5, second, NULL), TOW_CANCELLED);
    tow_context_cancel_reset(ctx);
    assert_int_equal(tow_generator_position(stopped), 9 + 2);
    OK(tow_generate(stopped, 2, more, 5, second, NULL));
    OK(tow_generate(limited, 9, prompts[0], 3, expected, NULL));
    assert_memory_equal(first, expected, 3 * sizeof *first);
    OK(tow_generate(limited, 2, more, 5, expected, NULL));
    assert_memory_equal(second, expected, 5 * sizeof *second);
    tow_generator_free(stopped);
    tow_generator_free(limited);
    tow_params_free(params);
}

/* Rows with positions of their own stay in place as one position for all does: no call copies the cache. */
static void test_in_place(void **unused)
{
    enum {
        POSITIONS = 4096
    };
    tow_multi_head_attention layer =
        TOW_MULTI_HEAD_ATTENTION(.heads = 2, .decode = true, .cache_length = POSITIONS, .rope = true);
    tow_scan layers = TOW_SCAN(&layer, .length = 3);
    const tow_type x = tow_make_type(TOW_F32, 3, (int64_t[]){2, 1, 8});
    const char *const every[] = {"cache", NULL};
    tow_params *params, *state;
    size_t arena[2];
    (void)unused;
    OK(tow_model_init_with(ctx, TOW_MODULE(&layers), 0, 1, &x, NULL, &params, &state));
    for (int own = 0; own < 2; own++) {
        const size_t n = tow_params_count(params), n_state = tow_params_count(state);
        tow_donation donations[3];
        const char *paths[3];
        tow_array *arrays[3];
        assert_int_equal(n_state, 3);
        for (size_t i = 0; i < 3; i++) {
            donations[i] = (tow_donation){.output = 1 + i, .input = n + i};
            paths[i] = tow_params_path(state, i);
            arrays[i] = tow_array_retain(tow_params_array(state, i));
            if (own && strstr(paths[i], "cache_index")) {
                tow_array_release(arrays[i]);
                OK(tow_array_create(ctx, tow_make_type(TOW_I32, 2, (int64_t[]){3, 2}), &arrays[i]));
            }
        }
        tow_params *given;
        tow_graph *graph;
        tow_program *program;
        OK(tow_params_from_arrays(ctx, 3, paths, arrays, &given));
        const tow_model_options options = TOW_MODEL_OPTIONS(.state = given, .mutable_collections = every);
        OK(tow_model_forward_graph(TOW_MODULE(&layers), params, 1, &x, &options, &graph));
        OK(tow_compile(ctx, graph, &TOW_COMPILE_OPTIONS(.donations = donations, .n_donations = 3), &program));
        arena[own] = tow_program_get_bytes(program).arena;
        tow_program_free(program);
        tow_graph_release(graph);
        for (int i = 0; i < 3; i++) tow_array_release(arrays[i]);
        tow_params_free(given);
    }
    /* both have the workspace of attention; the keys of one sequence and layer are more than what else may differ */
    assert_true(arena[1] < arena[0] + (size_t)POSITIONS * 8 * sizeof(float));
    tow_params_free(params);
    tow_params_free(state);
}

static void test_no_memory(void **unused)
{
    tow_params *params = params_of(ctx, GPT2);
    (void)unused;
    for (long fail_at = 0, done = 0; !done; fail_at += 1 + fail_at / 30) {
        counting c;
        tow_context_options options = counting_options(&c, fail_at);
        const tow_generator_options beams =
            TOW_GENERATOR_OPTIONS(.batch = 2, .beams = 2, .sequences = 2, .repetition_penalty = 1.5);
        tow_context *own = NULL;
        tow_generator *g = NULL;
        int32_t tokens[4 * 3];
        tow_status status = tow_context_create(&options, &own);
        if (status == TOW_OK) status = tow_generator_create(own, TOW_MODULE(&models[GPT2]), params, &beams, &g);
        if (status == TOW_OK)
            status = tow_generate_with(
                g, &TOW_GENERATION(.n = 9, .prompts = prompts[0], .lengths = lengths, .limit = 3, .tokens = tokens));
        if (status != TOW_OK) assert_int_equal(status, TOW_OUT_OF_MEMORY);
        done = status == TOW_OK;
        tow_generator_free(g);
        tow_context_free(own);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
    }
    tow_params_free(params);
}

/* ---- mistakes ---------------------------------------------------------------------------------------------------- */

#define expect_message(part)                                                                                           \
    do {                                                                                                               \
        if (!strstr(tow_context_error(ctx), part))                                                                     \
            fail_msg("expected \"%s\" in \"%s\"", part, tow_context_error(ctx));                                       \
    } while (0)

/* A language model all of whose logits are -infinity. */
typedef struct mute {
    tow_module module;
    const tow_module *inner;
} mute;
static void call_mute(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)n_in, (void)n_out;
    const tow_value logits = tow_apply_module(s, "inner", ((const mute *)module)->inner, in[0]);
    out[0] = tow_is_null(logits) ? logits : tow_full_like(logits, -INFINITY);
}
static const tow_module_class mute_class = {.name = "mute", .call = call_mute};

static void test_no_token(void **unused)
{
    const mute model = {{&mute_class}, TOW_MODULE(&models[GPT2])};
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){1, 1});
    tow_params *params, *state;
    int32_t tokens[4];
    (void)unused;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 0, 1, &type, NULL, &params, &state));
    for (int way = 0; way < 3; way++) {
        tow_generator *g;
        OK(tow_generator_create(
            ctx, TOW_MODULE(&model), params,
            &TOW_GENERATOR_OPTIONS(.sampling = {.temperature = way == 1}, .beams = way == 2 ? 3 : 1), &g));
        assert_int_equal(tow_generate(g, 2, prompts[0], 4, tokens, NULL), TOW_CHECK_FAILED);
        expect_message("no token can follow position 1 of sequence 0: all logits are -infinity");
        tow_generator_free(g);
    }
    tow_params_free(params);
    tow_params_free(state);
}

static void test_not_finite(void **unused)
{
    tow_params *params = params_of(ctx, GPT2);
    int32_t wrong[2][4] = {{1, 2, 3, 4}, {1, 2, 29, 4}}, tokens[2][5], next[2];
    tow_generator *g;
    tow_generator_options options = TOW_GENERATOR_OPTIONS(.batch = 2);
    (void)unused;
    for (int way = 0; way < 3; way++) {
        options.sampling.temperature = way == 1;
        options.beams = way == 2 ? 2 : 0;
        OK(tow_generator_create(ctx, TOW_MODULE(&models[GPT2]), params, &options, &g));
        assert_int_equal(tow_generate(g, 4, wrong[0], 5, tokens[0], NULL), TOW_CHECK_FAILED);
        if (way == 2)
            expect_message(
                "no token can follow position 3 of sequence 2: logits are NaN: token 29 at position 2, expected 0 "
                "to 28");
        else
            expect_message(
                "no token can follow position 3 of sequence 1: logits are NaN: token 29 at position 2, expected 0 "
                "to 28");
        if (way < 2) {
            tow_generator_reset(g);
            OK(tow_generator_feed(g, 4, wrong[0], NULL)); /* nothing is chosen */
            assert_int_equal(tow_generator_feed(g, 1, tokens[0], next), TOW_CHECK_FAILED);
            expect_message("no token can follow position 4 of sequence 1: logits are NaN");
        }
        tow_generator_free(g);
    }
    float *table = tow_array_data(tow_params_find(params, "tokens/embedding")), before = table[7 * D];
    table[7 * D] = NAN; /* one logit of all */
    OK(tow_generator_create(ctx, TOW_MODULE(&models[GPT2]), params, NULL, &g));
    assert_int_equal(tow_generate(g, 4, wrong[0], 5, tokens[0], NULL), TOW_CHECK_FAILED);
    expect_message("no token can follow position 3 of sequence 0: logits are NaN");
    tow_generator_free(g);
    table[7 * D] = before;
    float *norm = tow_array_data(tow_params_find(params, "norm/bias"));
    norm[3] = INFINITY;
    OK(tow_generator_create(ctx, TOW_MODULE(&models[GPT2]), params, NULL, &g));
    assert_int_equal(tow_generate(g, 4, wrong[0], 5, tokens[0], NULL), TOW_CHECK_FAILED);
    expect_message("no token can follow position 3 of sequence 0: logits are infinite");
    tow_generator_free(g);
    tow_params_free(params);
}

/* A language model with a variable of its own in the cache, of which nobody knows what it is. */
static void call_counted(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    (void)n_in, (void)n_out;
    const tow_value calls = tow_variable(s, "cache", "calls", tow_make_type(TOW_I32, 0, NULL), tow_initializer_zeros());
    if (!tow_is_null(calls)) tow_set_variable(s, "cache", "calls", tow_add_scalar(calls, 1));
    out[0] = tow_apply_module(s, "inner", ((const mute *)module)->inner, in[0]);
}
static const tow_module_class counted_class = {.name = "counted", .call = call_counted};

static void test_unknown_variables(void **unused)
{
    const mute model = {{&counted_class}, TOW_MODULE(&models[LLAMA])};
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){2, 1});
    const int64_t equal[2] = {4, 4};
    tow_params *params, *state;
    tow_generator *g;
    int32_t tokens[2 * 9];
    tow_generator_options options = TOW_GENERATOR_OPTIONS(.batch = 2);
    tow_generation call = TOW_GENERATION(.n = 9, .prompts = prompts[0], .lengths = equal, .limit = 9, .tokens = tokens);
    (void)unused;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 0, 1, &type, NULL, &params, &state));
    OK(tow_generator_create(ctx, TOW_MODULE(&model), params, &options, &g));
    OK(tow_generate_with(g, &call));
    tow_generator_reset(g);
    call.lengths = lengths;
    assert_int_equal(tow_generate_with(g, &call), TOW_UNSUPPORTED);
    expect_message("variable \"cache/calls\" i32[]: rows at different positions");
    assert_int_equal(tow_generator_position(g), 0);
    tow_generator_free(g);
    options.sequences = 2;
    assert_int_equal(tow_generator_create(ctx, TOW_MODULE(&model), params, &options, &g), TOW_UNSUPPORTED);
    expect_message("variable \"cache/calls\" i32[]: several sequences");
    tow_params_free(params);
    tow_params_free(state);
}

static void test_errors(void **unused)
{
    tow_params *params = params_of(ctx, GPT2);
    const int32_t end = 29, token = 1;
    const tow_stop empty = {0, &token};
    const tow_type types[9] = {{0}};
    const tow_generator_options wrong[] = {TOW_GENERATOR_OPTIONS(.beams = 2, .sequences = 3),
                                           TOW_GENERATOR_OPTIONS(.beams = 2, .sampling = {.temperature = 1}),
                                           TOW_GENERATOR_OPTIONS(.beams = -1),
                                           TOW_GENERATOR_OPTIONS(.sequences = -1),
                                           TOW_GENERATOR_OPTIONS(.repetition_penalty = -1),
                                           TOW_GENERATOR_OPTIONS(.presence_penalty = NAN),
                                           TOW_GENERATOR_OPTIONS(.length_penalty = INFINITY),
                                           TOW_GENERATOR_OPTIONS(.early_stopping = (tow_beam_stopping)7),
                                           TOW_GENERATOR_OPTIONS(.min_tokens = -1),
                                           TOW_GENERATOR_OPTIONS(.min_tokens = 2, .ends = &end, .n_ends = 1),
                                           TOW_GENERATOR_OPTIONS(.n_ends = 1),
                                           TOW_GENERATOR_OPTIONS(.n_stops = 1),
                                           TOW_GENERATOR_OPTIONS(.stops = &empty, .n_stops = 1),
                                           TOW_GENERATOR_OPTIONS(.n_inputs = 9, .input_types = types),
                                           TOW_GENERATOR_OPTIONS(.n_inputs = 1)};
    int32_t tokens[2 * LENGTH];
    tow_generator *g;
    (void)unused;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(tow_generator_create(ctx, TOW_MODULE(&models[GPT2]), params, &wrong[i], &g),
                         TOW_INVALID_ARGUMENT);
        assert_null(g);
    }
    const double temperatures[] = {-1, NAN, INFINITY};
    for (size_t i = 0; i < 3; i++) {
        const tow_generator_options cold = TOW_GENERATOR_OPTIONS(.sampling = {.temperature = temperatures[i]});
        assert_int_equal(tow_generator_create(ctx, TOW_MODULE(&models[GPT2]), params, &cold, &g), TOW_INVALID_ARGUMENT);
        assert_non_null(strstr(tow_context_error(ctx), ".sampling.temperature"));
    }
    OK(tow_generator_create(ctx, TOW_MODULE(&models[GPT2]), params, &TOW_GENERATOR_OPTIONS(.batch = 2), &g));
    const tow_generation good =
        TOW_GENERATION(.n = 9, .prompts = prompts[0], .lengths = lengths, .limit = 32, .tokens = tokens);
    tow_generation bad[6] = {good, good, good, good, good, good};
    const int64_t zero[2] = {9, 0}, long_one[2] = {9, 10};
    bad[0].lengths = zero, bad[1].lengths = long_one, bad[2].limit = 33, bad[3].limit = 0, bad[4].tokens = NULL;
    bad[5].log_probabilities = (float *)tokens;
    for (int i = 0; i < 6; i++) assert_int_equal(tow_generate_with(g, &bad[i]), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_generate_with(g, NULL), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_generate_with(NULL, &good), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_generator_position(g), 0);
    OK(tow_generate_with(g, &good));
    assert_int_equal(tow_generator_position(g), LENGTH);
    tow_generator_free(g);
    tow_params_free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),     cmocka_unit_test(test_several),
        cmocka_unit_test(test_streaming), cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_in_place),  cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_no_token),  cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_errors),    cmocka_unit_test(test_unknown_variables),
        cmocka_unit_test(test_prepare),   cmocka_unit_test(test_cancelled),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
