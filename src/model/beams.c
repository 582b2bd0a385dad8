/* Beam search, with the rules of Hugging Face's generate: each step has the best candidates of all beams of a prompt;
 * those among the first `beams` that end are compared by log-probability / n^length_penalty with the sequences that
 * have ended before, and the best that do not end run on. */
#include <math.h>
#include <string.h>

#include "src/model/generator.h"

/* Sequences of one prompt, best first: those that run, or those that have ended. */
typedef struct beam_list {
    int32_t *tokens;          /* [beams, limit] */
    float *log_probabilities; /* [beams, limit] */
    float *scores;            /* [beams]: of running ones the log-probability */
    int64_t *counts;          /* [beams]; of those that have ended, else as many as there were steps */
    tow_ending *endings;      /* [beams] */
    int64_t n;                /* how many there are */
} beam_list;

typedef struct search {
    tow_generator *g;
    const tow_generation *call;
    const tow__prompts *prompts;
    int64_t beams, limit, V, K; /* K candidates of a prompt */
    beam_list *running, *ended; /* [batch] */
    beam_list next;             /* what running becomes */
    bool *over;                 /* [batch] */
    int64_t *from;              /* [rows] */
    int32_t *feed;              /* [rows] */
    char *scratch;
    double length_penalty;
} search;

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void free_list(const search *s, beam_list *l)
{
    const size_t n = (size_t)s->beams, all = n * (size_t)s->limit;
    tow_context *ctx = s->g->ctx;
    if (l->tokens) tow__free(ctx, l->tokens, all, sizeof *l->tokens);
    if (l->log_probabilities) tow__free(ctx, l->log_probabilities, all, sizeof *l->log_probabilities);
    if (l->scores) tow__free(ctx, l->scores, n, sizeof *l->scores);
    if (l->counts) tow__free(ctx, l->counts, n, sizeof *l->counts);
    if (l->endings) tow__free(ctx, l->endings, n, sizeof *l->endings);
}

static bool make_list(const search *s, beam_list *l)
{
    const size_t n = (size_t)s->beams, all = n * (size_t)s->limit;
    tow_context *ctx = s->g->ctx;
    l->tokens = tow__alloc(ctx, all, sizeof *l->tokens);
    l->log_probabilities = tow__alloc(ctx, all, sizeof *l->log_probabilities);
    l->scores = tow__alloc(ctx, n, sizeof *l->scores);
    l->counts = tow__alloc(ctx, n, sizeof *l->counts);
    l->endings = tow__alloc(ctx, n, sizeof *l->endings);
    return l->tokens && l->log_probabilities && l->scores && l->counts && l->endings;
}

static void close_search(search *s)
{
    tow_context *ctx = s->g->ctx;
    const size_t batch = (size_t)s->g->batch, rows = (size_t)s->g->rows, bytes = tow__row_bytes(s->g->sequences);
    for (size_t b = 0; b < batch; b++) {
        if (s->running) free_list(s, &s->running[b]);
        if (s->ended) free_list(s, &s->ended[b]);
    }
    free_list(s, &s->next);
    if (s->running) tow__free(ctx, s->running, batch, sizeof *s->running);
    if (s->ended) tow__free(ctx, s->ended, batch, sizeof *s->ended);
    if (s->over) tow__free(ctx, s->over, batch, sizeof *s->over);
    if (s->from) tow__free(ctx, s->from, rows, sizeof *s->from);
    if (s->feed) tow__free(ctx, s->feed, rows, sizeof *s->feed);
    if (s->scratch) tow__free(ctx, s->scratch, bytes, 1);
}

static tow_status open_search(search *s)
{
    tow_context *ctx = s->g->ctx;
    const size_t batch = (size_t)s->g->batch, rows = (size_t)s->g->rows, bytes = tow__row_bytes(s->g->sequences);
    s->running = tow__alloc(ctx, batch, sizeof *s->running);
    s->ended = tow__alloc(ctx, batch, sizeof *s->ended);
    s->over = tow__alloc(ctx, batch, sizeof *s->over);
    s->from = tow__alloc(ctx, rows, sizeof *s->from);
    s->feed = tow__alloc(ctx, rows, sizeof *s->feed);
    s->scratch = tow__alloc(ctx, bytes, 1);
    bool good = s->running && s->ended && s->over && s->from && s->feed && s->scratch && make_list(s, &s->next);
    for (size_t b = 0; good && b < batch; b++) good = make_list(s, &s->running[b]) && make_list(s, &s->ended[b]);
    return good ? TOW_OK : TOW_OUT_OF_MEMORY;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* A candidate: beam k of the prompt goes on with `token`, which makes `total` its log-probability. */
typedef struct candidate {
    int64_t k;
    int32_t token;
    float total, log_probability;
    tow_ending ending;
    bool ends; /* it has ended, or the limit is there */
} candidate;

static double normalized(const search *s, float total, int64_t n)
{
    return (float)(total / pow((double)n, s->length_penalty));
}

/* Sequence k of `from`, of n tokens, with the candidate's token behind it becomes sequence `place` of `to`. */
static void put_sequence(const search *s, const beam_list *from, const candidate *x, int64_t n, beam_list *to,
                         int64_t place)
{
    const size_t source = (size_t)(x->k * s->limit), target = (size_t)(place * s->limit);
    memcpy(to->tokens + target, from->tokens + source, (size_t)n * sizeof *to->tokens);
    memcpy(to->log_probabilities + target, from->log_probabilities + source, (size_t)n * sizeof(float));
    to->tokens[target + (size_t)n] = x->token;
    to->log_probabilities[target + (size_t)n] = x->log_probability;
    to->scores[place] = x->total;
    to->counts[place] = n + 1;
    to->endings[place] = x->ending;
}

static void move_sequence(const search *s, beam_list *l, int64_t to, int64_t from)
{
    const size_t target = (size_t)(to * s->limit), source = (size_t)(from * s->limit), n = (size_t)l->counts[from];
    memcpy(l->tokens + target, l->tokens + source, n * sizeof *l->tokens);
    memcpy(l->log_probabilities + target, l->log_probabilities + source, n * sizeof(float));
    l->scores[to] = l->scores[from];
    l->counts[to] = l->counts[from];
    l->endings[to] = l->endings[from];
}

/* Puts a sequence among those that have ended, if it is one of the best. */
static void add_ended(const search *s, int64_t b, const candidate *x, int64_t n)
{
    beam_list *l = &s->ended[b];
    const float score = (float)normalized(s, x->total, n + 1);
    int64_t place = l->n;
    while (place > 0 && l->scores[place - 1] < score) place--;
    if (place == s->beams) return;
    if (l->n < s->beams) l->n++;
    for (int64_t k = l->n - 1; k > place; k--) move_sequence(s, l, k, k - 1);
    put_sequence(s, &s->running[b], x, n, l, place);
    l->scores[place] = score;
}

static candidate read_candidate(search *s, int64_t b, int64_t i, int64_t n)
{
    const tow__decoder *d = s->g->last;
    const int32_t chosen = ((const int32_t *)tow_array_data(d->out[0]))[b * s->K + i];
    candidate x = {.k = chosen / s->V,
                   .token = (int32_t)(chosen % s->V),
                   .total = ((const float *)tow_array_data(d->out[1]))[b * s->K + i]};
    x.log_probability = tow__log_probability(s->g, b * s->beams + x.k, x.token);
    int32_t *tokens = s->running[b].tokens + x.k * s->limit;
    tokens[n] = x.token;
    x.ending = tow__ending_of(s->g, tokens, n + 1);
    x.ends = x.ending != TOW_NOT_ENDED || n + 1 == s->limit;
    return x;
}

/* True if no running beam of the prompt can come among the best that have ended, by the rule that was chosen. n: tokens
 * so far. */
static bool cannot_improve(const search *s, int64_t b, int64_t n)
{
    const tow_generator_options *o = &s->g->options;
    const beam_list *ended = &s->ended[b];
    if (ended->n < s->beams) return false;
    if (o->early_stopping == TOW_STOP_WHEN_ENOUGH) return true;
    if (o->early_stopping == TOW_STOP_SURE_BEST && s->length_penalty > 0) n = s->limit;
    return normalized(s, s->running[b].scores[0], n) <= (double)ended->scores[s->beams - 1];
}

/* Token n of the beams of prompt b. Rows of the cache that the beams go on from are noted in s->from. */
static void step_prompt(search *s, int64_t b, int64_t n)
{
    beam_list *running = &s->running[b];
    int64_t kept = 0, ends = 0;
    for (int pass = 0; pass < 2; pass++) /* those that end run on only where there are too few others, and come last */
        for (int64_t i = 0; i < s->K; i++) {
            candidate x = read_candidate(s, b, i, n);
            if (pass == 0 && x.ends && i < s->beams && !s->over[b]) add_ended(s, b, &x, n);
            if (pass == 0) ends += x.ends;
            if (kept == s->beams || x.ends != (pass == 1)) continue;
            if (pass == 1) x.total += -1e9f;
            put_sequence(s, running, &x, n, &s->next, kept);
            s->from[b * s->beams + kept] = b * s->beams + x.k;
            s->feed[b * s->beams + kept] = x.token;
            kept++;
        }
    const beam_list old = *running;
    *running = s->next;
    s->next = old;
    running->n = kept;
    s->over[b] = s->over[b] || cannot_improve(s, b, n + 1) || ends == s->K;
}

/* The history of the beams' tokens goes along with them. */
static void move_history(search *s)
{
    tow_generator *g = s->g;
    if (!g->history) return;
    const int64_t V = g->prompts.classes;
    float *rows = tow_array_data(g->history);
    for (int64_t r = 0; r < g->rows; r++) {
        const int64_t b = r / s->beams;
        const beam_list *l = &s->running[b];
        float *row = rows + r * V;
        for (int64_t v = 0; v < V; v++) row[v] -= floorf(row[v]); /* of the prompt */
        for (int64_t i = 0; i < l->counts[r % s->beams]; i++)
            tow__note_generated(g, r, l->tokens[(r % s->beams) * s->limit + i]);
    }
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

static tow_status check_prompts(const search *s, int64_t n)
{
    for (int64_t r = 0; r < s->g->rows; r++) {
        if (s->over[r / s->beams]) continue;
        const tow_status status = tow__check_logits(s->g, r, n == 0 ? s->prompts : NULL);
        if (status != TOW_OK) return status;
    }
    return TOW_OK;
}

/* Makes the next token of all beams; *done if no prompt needs more. */
static tow_status step(search *s, int64_t n, bool *done)
{
    tow_generator *g = s->g;
    tow_status status = check_prompts(s, n);
    *done = true;
    for (int64_t b = 0; b < g->batch && status == TOW_OK; b++) {
        step_prompt(s, b, n);
        *done = *done && s->over[b];
    }
    return status;
}

/* The part of the beams that the next choice reads. */
static void hand_over(search *s)
{
    tow_generator *g = s->g;
    float *scores = tow_array_data(g->scores);
    for (int64_t r = 0; r < g->rows; r++) scores[r] = s->running[r / s->beams].scores[r % s->beams];
    move_history(s);
    tow__decoder_copy_rows(g->sequences, g->sequences, s->from, tow_generator_position(g), g->work, s->scratch);
}

/* Sequences that run when the callback ends the search count as ended. */
static void end_running(search *s, int64_t n)
{
    for (int64_t b = 0; b < s->g->batch; b++) {
        const beam_list *l = &s->running[b];
        for (int64_t k = 0; k < l->n && !s->over[b]; k++) {
            const int64_t last = k * s->limit + n - 1;
            const candidate x = {
                .k = k, .token = l->tokens[last], .total = l->scores[k], .log_probability = l->log_probabilities[last]};
            add_ended(s, b, &x, n - 1);
        }
    }
}

static void hand_out(const search *s)
{
    const tow_generator *g = s->g;
    const tow_generation *c = s->call;
    const int64_t wanted = g->options.sequences;
    for (int64_t r = 0; r < g->batch * wanted; r++) {
        const beam_list *l = &s->ended[r / wanted];
        const int64_t k = r % wanted, n = k < l->n ? l->counts[k] : 0;
        for (int64_t i = 0; i < c->limit; i++) {
            c->tokens[r * c->limit + i] = i < n ? l->tokens[k * s->limit + i] : g->options.end;
            if (c->log_probabilities)
                c->log_probabilities[r * c->limit + i] = i < n ? l->log_probabilities[k * s->limit + i] : 0;
        }
        if (c->counts) c->counts[r] = n;
        if (c->endings) c->endings[r] = n > 0 ? l->endings[k] : TOW_NOT_ENDED;
        if (c->scores) c->scores[r] = n > 0 ? l->scores[k] : -INFINITY;
    }
}

static tow_status run_search(search *s)
{
    tow_generator *g = s->g;
    tow_status status = TOW_OK;
    bool done = false;
    float *scores = tow_array_data(g->scores);
    for (int64_t r = 0; r < g->rows; r++) scores[r] = r % s->beams == 0 ? 0 : -1e9f; /* at first all beams are one */
    TRY(tow__begin_sequences(g, s->prompts));
    s->V = tow_array_type(g->last->out[2]).dims[1];
    s->K = tow__candidates(&g->options, s->V);
    for (int64_t n = 0; n < s->limit && !done; n++) {
        if (n > 0) {
            hand_over(s);
            TRY(tow__feed_tokens(g, s->feed, n));
        }
        TRY(step(s, n, &done));
        if (tow__tell(g, n, s->feed)) continue;
        if (!done) end_running(s, n + 1);
        break;
    }
done:
    return status;
}

tow_status tow__search_beams(tow_generator *g, const tow_generation *call, const tow__prompts *p)
{
    const double penalty = g->options.length_penalty;
    search s = {.g = g,
                .call = call,
                .prompts = p,
                .beams = g->options.beams,
                .limit = call->limit,
                .length_penalty = g->options.no_length_penalty ? 0
                                  : penalty != 0               ? penalty
                                                               : 1};
    tow_status status = open_search(&s);
    if (status == TOW_OK) status = run_search(&s);
    if (status == TOW_OK) hand_out(&s);
    close_search(&s);
    return status;
}
