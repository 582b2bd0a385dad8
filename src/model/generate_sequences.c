/* Sequences behind prompts: the likeliest tokens or draws, when a sequence ends, and what the caller gets. */
#include <string.h>

#include "src/base/options.h"
#include "src/model/generator.h"

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static tow_status check_lengths(const tow_generator *g, const tow_generation *c)
{
    for (int64_t b = 0; b < g->batch; b++) {
        const int64_t n = c->lengths ? c->lengths[b] : c->n, position = g->repeats > 1 ? 0 : g->positions[b];
        if (n < 1 || n > c->n)
            return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                             "tow_generate_with: prompt %lld has a length of %lld; expected 1 to %lld", (long long)b,
                             (long long)n, (long long)c->n);
        if (n > g->length - position || c->limit - 1 > g->length - position - n)
            return tow__fail(
                g->ctx, TOW_INVALID_ARGUMENT,
                "tow_generate_with: a prompt of %lld tokens and a limit of %lld behind %lld positions of "
                "sequence %lld; expected %lld together, which the cache of %lld has left, and the last token "
                "needs none; give a lower .limit, reset the generator, or give a longer .cache_length",
                (long long)n, (long long)c->limit, (long long)position, (long long)b,
                (long long)(g->length - position + 1), (long long)g->length);
    }
    return TOW_OK;
}

static tow_status check_inputs(const tow_generator *g, const tow_generation *c)
{
    const size_t n = g->options.n_inputs;
    if (n == 0 || (!c->inputs && !g->fresh && g->repeats == 1)) return TOW_OK;
    for (size_t i = 0; i < n; i++) {
        const tow_type expected = g->options.input_types[i];
        if (c->inputs && c->inputs[i] && tow_type_equal(expected, tow_array_type(c->inputs[i]))) continue;
        return tow__fail(g->ctx, c->inputs && c->inputs[i] ? TOW_TYPE_MISMATCH : TOW_INVALID_ARGUMENT,
                         "tow_generate_with: input %zu: expected %s, found %s", i, tow__type_name(expected).text,
                         c->inputs && c->inputs[i] ? tow__type_name(tow_array_type(c->inputs[i])).text : "NULL");
    }
    return TOW_OK;
}

static tow_status check_call(const tow_generator *g, const tow_generation *c)
{
    if (!c || c->n < 1 || !c->prompts || !c->tokens || c->limit < 1)
        return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                         "tow_generate_with: %lld tokens%s, a limit of %lld%s; expected prompts of at least one "
                         "token, a limit of at least 1, and a place for the result",
                         c ? (long long)c->n : 0, c && c->prompts ? "" : " at NULL", c ? (long long)c->limit : 0,
                         c && c->tokens ? "" : " and .tokens = NULL");
    if (c->log_probabilities && !g->options.log_probabilities)
        return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                         "tow_generate_with: log-probabilities are asked for; set .log_probabilities of the "
                         "generator's options");
    const tow_status status = check_inputs(g, c);
    return status == TOW_OK ? check_lengths(g, c) : status;
}

/* Copies the model's inputs, for several sequences with each row of axis 0 repeated. */
static void copy_inputs(tow_generator *g, const tow_generation *c)
{
    for (size_t i = 0; i < g->options.n_inputs && c->inputs; i++) {
        const tow_type type = tow_array_type(c->inputs[i]);
        const char *from = tow_array_data(c->inputs[i]);
        const size_t bytes = tow_type_bytes(type);
        memcpy(tow_array_data(g->inputs[i]), from, bytes);
        if (!g->repeated[i]) continue;
        char *to = tow_array_data(g->repeated[i]);
        const bool by_rows = tow_type_bytes(tow_array_type(g->repeated[i])) != bytes;
        const size_t row = by_rows ? bytes / (size_t)g->batch : bytes;
        const int64_t rows = by_rows ? g->rows : 1;
        for (int64_t r = 0; r < rows; r++) memcpy(to + (size_t)r * row, from + (size_t)(r / g->repeats) * row, row);
    }
}

/* ---- beginning --------------------------------------------------------------------------------------------------- */

/* Copies the cache of the prompts to their sequences. */
static void spread_prompts(tow_generator *g)
{
    const int64_t fed = tow_generator_position(g);
    int64_t *from = g->work + 6 * g->rows;
    for (int64_t r = 0; r < g->rows; r++) from[r] = r / g->repeats;
    tow__decoder_copy_rows(&g->several, &g->prompts, from, fed, g->work, NULL);
    for (int64_t r = g->rows - 1; r >= 0; r--) g->positions[r] = g->positions[r / g->repeats];
}

tow_status tow__begin_sequences(tow_generator *g, const tow__prompts *p)
{
    tow_status status = TOW_OK;
    const bool several = g->sequences == &g->several;
    TRY(tow__feed_prompts(g, p, 0));
    if (several && g->prompts.own_positions) TRY(tow__decoder_part_rows(&g->several));
    TRY(tow__decoder_prepare(g->sequences, false, 0));
    if (several) spread_prompts(g);
done:
    return status;
}

bool tow__tell(const tow_generator *g, int64_t index, const int32_t *tokens)
{
    return !g->options.on_token || g->options.on_token(index, tokens, g->options.user);
}

/* ---- endings ----------------------------------------------------------------------------------------------------- */

tow_ending tow__ending_of(const tow_generator *g, const int32_t *tokens, int64_t n)
{
    const tow_generator_options *o = &g->options;
    if (n == 0) return TOW_NOT_ENDED;
    for (size_t i = 0; i < tow__n_ends(o); i++)
        if (tokens[n - 1] == tow__end(o, i)) return TOW_END_TOKEN;
    for (size_t i = 0; i < o->n_stops && n >= o->min_tokens; i++) {
        const tow_stop *stop = &o->stops[i];
        if (stop->n <= n && memcmp(tokens + n - stop->n, stop->tokens, (size_t)stop->n * sizeof *tokens) == 0)
            return TOW_STOP_SEQUENCE;
    }
    return TOW_NOT_ENDED;
}

/* ---- greedy, and draws ------------------------------------------------------------------------------------------- */

/* The sequences that are generated so far. */
typedef struct sequences {
    tow_generator *g;
    const tow_generation *call;
    int64_t *counts;
    tow_ending *endings;
} sequences;

/* Token i of each sequence goes to the result; *ended if all have ended. next: those that were chosen, then what is
 * fed. */
static tow_status put_tokens(const sequences *s, const tow__prompts *p, int64_t i, int32_t *next, bool *ended)
{
    tow_generator *g = s->g;
    const tow_generation *c = s->call;
    *ended = true;
    for (int64_t r = 0; r < g->rows; r++)
        if (s->endings[r] == TOW_NOT_ENDED) {
            const tow_status status = tow__check_logits(g, r, p);
            if (status != TOW_OK) return status;
        }
    for (int64_t r = 0; r < g->rows; r++) {
        int32_t *tokens = c->tokens + r * c->limit;
        if (s->endings[r] != TOW_NOT_ENDED) {
            next[r] = g->options.end;
            continue;
        }
        tokens[i] = next[r];
        g->draws[r]++;
        if (c->log_probabilities) c->log_probabilities[r * c->limit + i] = tow__log_probability(g, r, next[r]);
        tow__note_generated(g, r, next[r]);
        s->counts[r] = i + 1;
        s->endings[r] = tow__ending_of(g, tokens, i + 1);
        if (s->endings[r] == TOW_NOT_ENDED) *ended = false;
    }
    return TOW_OK;
}

static tow_status go_on(const sequences *s, const tow__prompts *p, int32_t *next)
{
    tow_generator *g = s->g;
    tow_status status = tow__begin_sequences(g, p);
    bool ended = false;
    for (int64_t i = 0; i < s->call->limit && status == TOW_OK; i++) {
        if (i > 0) status = tow__feed_tokens(g, next, i);
        if (status != TOW_OK) break;
        memcpy(next, tow_array_data(g->last->out[0]), (size_t)g->rows * sizeof *next);
        status = put_tokens(s, i == 0 ? p : NULL, i, next, &ended);
        if (status != TOW_OK || !tow__tell(g, i, next) || ended) break;
    }
    return status;
}

/* Fills what is behind the sequences, and takes back what was fed behind their ends. before: positions of the prompts;
 * NULL: they stay. */
static void finish(const sequences *s, const int64_t *before)
{
    const tow_generation *c = s->call;
    tow_generator *g = s->g;
    for (int64_t r = 0; r < g->rows; r++) {
        for (int64_t i = s->counts[r]; i < c->limit; i++) {
            c->tokens[r * c->limit + i] = g->options.end;
            if (c->log_probabilities) c->log_probabilities[r * c->limit + i] = 0;
        }
        const int64_t b = r / g->repeats, n = c->lengths ? c->lengths[b] : c->n;
        if (before) g->positions[r] = before[b] + n + s->counts[r] - 1;
        if (c->counts) c->counts[r] = s->counts[r];
        if (c->endings) c->endings[r] = s->endings[r];
    }
}

tow_status tow_generate_with(tow_generator *g, const tow_generation *c)
{
    if (!g) return TOW_INVALID_ARGUMENT;
    tow_generation own;
    if (!TOW__OPTIONS_TAKE(g->ctx, tow_generation, c, &own)) return TOW_INVALID_ARGUMENT;
    tow_status status = check_call(g, c);
    if (status != TOW_OK) return status;
    if (g->repeats > 1) tow__forget(g);
    copy_inputs(g, c);
    const tow__prompts p = {c->n, c->prompts, c->lengths, c->left_padded};
    if (g->options.beams > 1) return tow__search_beams(g, c, &p);
    const size_t R = (size_t)g->rows;
    sequences s = {g, c, c->counts ? c->counts : tow__alloc(g->ctx, R, sizeof(int64_t)),
                   c->endings ? c->endings : tow__alloc(g->ctx, R, sizeof(tow_ending))};
    int32_t *next = tow__alloc(g->ctx, R, sizeof *next);
    int64_t *before = tow__alloc(g->ctx, R, sizeof *before);
    if (s.counts && s.endings && next && before) {
        memcpy(before, g->positions, R * sizeof *before);
        memset(s.counts, 0, R * sizeof *s.counts);
        for (size_t r = 0; r < R; r++) s.endings[r] = TOW_NOT_ENDED;
        status = go_on(&s, &p, next);
        finish(&s, status == TOW_OK ? before : NULL);
    } else {
        status = TOW_OUT_OF_MEMORY;
    }
    if (before) tow__free(g->ctx, before, R, sizeof *before);
    if (next) tow__free(g->ctx, next, R, sizeof *next);
    if (!c->counts && s.counts) tow__free(g->ctx, s.counts, R, sizeof(int64_t));
    if (!c->endings && s.endings) tow__free(g->ctx, s.endings, R, sizeof(tow_ending));
    return status;
}

tow_status tow_generate(tow_generator *g, int64_t n, const int32_t *prompt, int64_t limit, int32_t *tokens,
                        int64_t *count)
{
    if (count) *count = 0;
    if (!g) return TOW_INVALID_ARGUMENT;
    const size_t R = (size_t)g->rows;
    int64_t *counts = tow__alloc(g->ctx, R, sizeof *counts), most = 0;
    if (!counts) return TOW_OUT_OF_MEMORY;
    const tow_status status = tow_generate_with(
        g, &TOW_GENERATION(.n = n, .prompts = prompt, .limit = limit, .tokens = tokens, .counts = counts));
    for (size_t r = 0; r < R; r++)
        if (counts[r] > most) most = counts[r];
    if (count) *count = most;
    /* all sequences go on at one position, those that have ended behind their ends */
    most = tow_generator_position(g);
    for (size_t r = 0; r < R && status == TOW_OK && !g->prompts.own_positions; r++) g->positions[r] = most;
    tow__free(g->ctx, counts, R, sizeof *counts);
    return status;
}
