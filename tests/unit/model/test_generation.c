/* Sequences behind prompts of different lengths: greedy, beams, penalties and endings beside transformers' generate
 * (tests/oracle/generation_golden.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/language_models.h"

static const language recalling = {{&language_class}, BART, true, false};

/* ---- beside transformers ----------------------------------------------------------------------------------------- */

typedef struct one_case {
    kind kind;
    tow_generator_options options;
    int64_t limit, batch, longest;
    int32_t ends[4], stops[4][8];
    tow_stop stop[4];
    int64_t lengths[4], source_lengths[4];
    int32_t prompts[4][MOST], sources[4][MOST];
} one_case;

static int64_t read_tokens(FILE *file, int32_t *tokens)
{
    long long n = 0;
    assert_int_equal(fscanf(file, "%lld", &n), 1);
    for (long long i = 0; i < n; i++) assert_int_equal(fscanf(file, "%d", &tokens[i]), 1);
    return n;
}

static bool read_case(FILE *file, one_case *c)
{
    char name[16];
    long long sequences, beams, least, limit, n;
    int early;
    tow_generator_options *o = &c->options;
    *c = (one_case){0};
    if (fscanf(file, "%15s %lld %lld %lf %d %lf %lf %lf %lld %lld", name, &sequences, &beams, &o->length_penalty,
               &early, &o->repetition_penalty, &o->presence_penalty, &o->frequency_penalty, &least, &limit) != 10)
        return false;
    c->kind = strcmp(name, "gpt2") == 0 ? GPT2 : strcmp(name, "llama") == 0 ? LLAMA : BART;
    o->sequences = sequences, o->beams = beams, o->min_tokens = least, c->limit = limit;
    o->no_length_penalty = o->length_penalty == 0;
    o->early_stopping = (tow_beam_stopping)early;
    o->n_ends = (size_t)read_tokens(file, c->ends);
    o->ends = c->ends;
    assert_int_equal(fscanf(file, "%lld", &n), 1);
    o->n_stops = (size_t)n;
    o->stops = c->stop;
    for (long long i = 0; i < n; i++) c->stop[i] = (tow_stop){read_tokens(file, c->stops[i]), c->stops[i]};
    assert_int_equal(fscanf(file, "%lld", &n), 1);
    c->batch = o->batch = n;
    for (int64_t b = 0; b < n; b++) {
        c->lengths[b] = read_tokens(file, c->prompts[b]);
        if (c->lengths[b] > c->longest) c->longest = c->lengths[b];
        if (c->kind == BART) c->source_lengths[b] = read_tokens(file, c->sources[b]);
    }
    o->log_probabilities = true;
    return true;
}

/* The sources with their masks, from prompt `first` on. */
static void make_sources(const one_case *c, int64_t first, int64_t batch, tow_type *types, tow_array **inputs)
{
    source_types(batch, types);
    for (int i = 0; i < 2; i++) OK(tow_array_create(ctx, types[i], &inputs[i]));
    for (int64_t b = 0; b < batch; b++)
        for (int64_t k = 0; k < c->source_lengths[first + b]; k++) {
            ((int32_t *)tow_array_data(inputs[0]))[b * SOURCE + k] = c->sources[first + b][k];
            ((bool *)tow_array_data(inputs[1]))[b * SOURCE + k] = true;
        }
}

/* The sequences that a generator makes of prompts [first, first + batch), padded on one side. */
typedef struct made {
    int64_t counts[16];
    int32_t tokens[16][MOST];
    float each[16][MOST], scores[16];
} made;

static made make(const one_case *c, const tow_params *params, int64_t first, int64_t batch, bool left)
{
    made m = {0};
    tow_generator_options options = c->options;
    options.size = sizeof options;
    tow_array *inputs[2] = {0};
    tow_type types[2];
    tow_generator *g;
    int32_t prompts[4 * MOST], tokens[16 * MOST];
    float each[16 * MOST];
    int64_t longest = 0;
    for (int64_t b = 0; b < batch; b++)
        if (c->lengths[first + b] > longest) longest = c->lengths[first + b];
    for (int i = 0; i < 4 * MOST; i++) prompts[i] = -1; /* padding is not read */
    for (int64_t b = 0; b < batch; b++) {
        const int64_t n = c->lengths[first + b];
        memcpy(prompts + b * longest + (left ? longest - n : 0), c->prompts[first + b], (size_t)n * sizeof *prompts);
    }
    options.batch = batch;
    if (c->kind == BART) {
        make_sources(c, first, batch, types, inputs);
        options.n_inputs = 2;
        options.input_types = types;
        options.further = TOW_MODULE(&recalling);
    }
    OK(tow_generator_create(ctx, TOW_MODULE(&models[c->kind]), params, &options, &g));
    for (int again = 0; again < 2; again++) {
        tow_generator_reset(g);
        OK(tow_generate_with(g, &TOW_GENERATION(.n = longest, .prompts = prompts, .lengths = c->lengths + first,
                                                .left_padded = left, .inputs = c->kind == BART ? inputs : NULL,
                                                .limit = c->limit, .tokens = tokens, .counts = m.counts,
                                                .log_probabilities = each, .scores = m.scores)));
    }
    for (int64_t r = 0; r < batch * c->options.sequences; r++) {
        memcpy(m.tokens[r], tokens + r * c->limit, (size_t)c->limit * sizeof *tokens);
        memcpy(m.each[r], each + r * c->limit, (size_t)c->limit * sizeof *each);
    }
    tow_generator_free(g);
    for (int i = 0; i < 2; i++) tow_array_release(inputs[i]);
    return m;
}

/* Numbers are computed in f32 here and in f64 there: what goes through two layers agrees to 2e-4. */
static void expect_results(FILE *file, const one_case *c, const made *m, int index)
{
    for (int64_t r = 0; r < c->batch * c->options.sequences; r++) {
        int32_t expected[MOST];
        const int64_t n = read_tokens(file, expected);
        for (int64_t i = 0; i < n && i < m->counts[r]; i++)
            if (expected[i] != m->tokens[r][i])
                fail_msg("case %d, sequence %d, token %d: expected %d, found %d", index, (int)r, (int)i, expected[i],
                         m->tokens[r][i]);
        if (m->counts[r] != n)
            fail_msg("case %d, sequence %d: expected %d tokens, found %d", index, (int)r, (int)n, (int)m->counts[r]);
        for (int64_t i = 0; i <= n; i++) {
            float value, found = i < n ? m->each[r][i] : m->scores[r];
            assert_int_equal(fscanf(file, "%f", &value), 1);
            if (!(fabsf(value - found) < 2e-4f) && (i < n || c->options.beams > 1))
                fail_msg("case %d, sequence %d, number %d: expected %g, found %g", index, (int)r, (int)i, (double)value,
                         (double)found);
        }
    }
}

static void test_beside_transformers(void **unused)
{
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/generation.txt", "r");
    tow_params *params[3];
    one_case c;
    int cases = 0;
    (void)unused;
    assert_non_null(file);
    for (int k = 0; k < 3; k++) params[k] = params_of(ctx, (kind)k);
    for (; read_case(file, &c); cases++) {
        const made m = make(&c, params[c.kind], 0, c.batch, cases % 2 == 1);
        expect_results(file, &c, &m, cases);
    }
    assert_true(feof(file));
    assert_int_equal(cases, 54);
    for (int k = 0; k < 3; k++) tow_params_free(params[k]);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_transformers),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
