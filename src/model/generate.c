/* The generator: making it, and feeding tokens. generate_sequences.c and beams.c make the sequences. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/options.h"
#include "src/model/generator.h"
#include "src/model/init.h"
#include "src/scope/tree.h"
#include "tow/random.h"

/* ---- making and freeing ------------------------------------------------------------------------------------------ */

static tow_status fail_option(tow_context *ctx, const char *name, double value, const char *expected)
{
    return tow__fail(ctx, TOW_INVALID_ARGUMENT, "tow_generator_create: .%s = %g; expected %s", name, value, expected);
}

static tow_status check_options(tow_context *ctx, const tow_generator_options *o)
{
    const struct {
        bool good;
        const char *name;
        double value;
        const char *expected;
    } checks[] = {
        {o->batch > 0, "batch", (double)o->batch, "a positive number, or 0 for the default"},
        {o->chunk > 0, "chunk", (double)o->chunk, "a positive number, or 0 for the default"},
        {o->sequences > 0, "sequences", (double)o->sequences, "a positive number, or 0 for the default"},
        {o->beams > 0, "beams", (double)o->beams, "a positive number, or 0 for the default"},
        {o->beams == 1 || o->sequences <= o->beams, "sequences", (double)o->sequences, "at most as many as .beams"},
        {o->beams == 1 || o->sampling.temperature == 0, "beams", (double)o->beams, "no temperature beside it"},
        {o->sampling.temperature >= 0 && isfinite(o->sampling.temperature), "sampling.temperature",
         o->sampling.temperature, "a number that is not negative"},
        {o->min_tokens >= 0, "min_tokens", (double)o->min_tokens, "no negative number"},
        {o->repetition_penalty >= 0 && isfinite(o->repetition_penalty), "repetition_penalty", o->repetition_penalty,
         "a positive number, or 0 for the default"},
        {isfinite(o->presence_penalty), "presence_penalty", o->presence_penalty, "a finite number"},
        {isfinite(o->frequency_penalty), "frequency_penalty", o->frequency_penalty, "a finite number"},
        {isfinite(o->length_penalty), "length_penalty", o->length_penalty, "a finite number"},
        {(unsigned)o->early_stopping <= TOW_STOP_SURE_BEST, "early_stopping", o->early_stopping,
         "one of enum tow_beam_stopping"},
        {o->n_inputs <= TOW__MODEL_INPUTS, "n_inputs", (double)o->n_inputs, "at most 8"},
        {o->n_inputs == 0 || o->input_types, "n_inputs", (double)o->n_inputs, "types for them in .input_types"},
        {o->n_ends == 0 || o->ends, "n_ends", (double)o->n_ends, "tokens in .ends"},
        {o->n_stops == 0 || o->stops, "n_stops", (double)o->n_stops, "sequences in .stops"}};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (!checks[i].good) return fail_option(ctx, checks[i].name, checks[i].value, checks[i].expected);
    for (size_t i = 0; i < o->n_stops; i++)
        if (o->stops[i].n < 1 || !o->stops[i].tokens)
            return fail_option(ctx, "stops", (double)i, "sequences of at least one token; this one has none");
    const int64_t most = INT32_MAX / (o->beams > o->sequences ? o->beams : o->sequences);
    return o->batch <= most ? TOW_OK : fail_option(ctx, "batch", (double)o->batch, "less than 2^31 sequences");
}

/* A copy of the given variables, or those of the model as it is initialized. */
static tow_status make_state(const tow_generator *g, const tow_module *model, tow_params **state)
{
    tow_type types[1 + TOW__MODEL_INPUTS] = {tow_make_type(TOW_I32, 2, (int64_t[]){g->batch, 1})};
    if (g->options.state) {
        tow_params *given = NULL;
        tow_status status = tow__params_shared(g->ctx, g->options.state, &given);
        if (status == TOW_OK) status = tow_params_copy(given, state);
        tow_params_free(given);
        return status;
    }
    for (size_t i = 0; i < g->options.n_inputs; i++) types[1 + i] = g->options.input_types[i];
    return tow__model_init_state(g->ctx, model, 1 + g->options.n_inputs, types, state);
}

/* The arrays that choices read, in both decoders. */
static tow_status make_choice_inputs(tow_generator *g)
{
    const tow_generator_options *o = &g->options;
    tow_type types[TOW__CHOICE_INPUTS];
    tow_array **places[TOW__CHOICE_INPUTS];
    size_t n = 0;
    if (o->sampling.temperature > 0) places[n++] = &g->keys;
    if (tow__has_history(o)) places[n++] = &g->history;
    if (tow__has_early(o)) places[n++] = &g->early;
    if (o->beams > 1) places[n++] = &g->scores;
    tow__choice_inputs(&g->prompts.choice, g->prompts.classes, types);
    for (size_t i = 0; i < n; i++) {
        const tow_status status = tow_array_create(g->ctx, types[i], places[i]);
        if (status != TOW_OK) return status;
        tow__decoder_tokens(&g->prompts)[1 + o->n_inputs + i] = *places[i];
        if (g->sequences == &g->several) tow__decoder_tokens(&g->several)[1 + o->n_inputs + i] = *places[i];
    }
    return TOW_OK;
}

/* The model's inputs, which calls fill: of a decoder for so many rows. */
static tow_status make_inputs(tow_generator *g, tow__decoder *d, tow_array **inputs)
{
    for (size_t i = 0; i < g->options.n_inputs; i++) {
        tow_type type = g->options.input_types[i];
        if (type.rank > 0 && type.dims[0] == g->batch) type.dims[0] = d->choice.rows;
        const tow_status status = tow_array_create(g->ctx, type, &inputs[i]);
        if (status != TOW_OK) return status;
        tow__decoder_tokens(d)[1 + i] = inputs[i];
    }
    return TOW_OK;
}

/* The decoder of several sequences for each prompt. */
static tow_status make_several(tow_generator *g, const tow_module *model)
{
    tow_params *state = NULL;
    tow_status status = tow__repeat_state(g->ctx, g->prompts.state, g->batch, g->repeats, &state);
    if (status == TOW_OK)
        status = tow__decoder_open(&g->several, g->ctx, model, g->params, &g->options, g->rows, 1, state);
    if (status == TOW_OK) status = make_inputs(g, &g->several, g->repeated);
    g->sequences = &g->several;
    return status;
}

static tow_status make_rows(tow_generator *g)
{
    g->positions = tow__alloc(g->ctx, (size_t)g->rows, sizeof *g->positions);
    g->starts = tow__alloc(g->ctx, (size_t)g->rows, sizeof *g->starts);
    g->roots = tow__alloc(g->ctx, (size_t)g->rows, sizeof *g->roots);
    g->fed = tow__alloc(g->ctx, (size_t)(g->batch * g->length), sizeof *g->fed);
    g->draws = tow__alloc(g->ctx, (size_t)g->rows, sizeof *g->draws);
    g->work = tow__alloc(g->ctx, 7 * (size_t)g->rows, sizeof *g->work);
    if (!g->fed || !g->positions || !g->starts || !g->roots || !g->draws || !g->work) return TOW_OUT_OF_MEMORY;
    for (int64_t r = 0; r < g->rows; r++) tow_random_host_key(g->options.seed + (uint64_t)r, g->roots[r]);
    return TOW_OK;
}

static tow_status read_options(tow_generator *g, const tow_generator_options *options)
{
    tow_generator_options *o = &g->options;
    if (options) *o = *options;
    g->compile = TOW_COMPILE_OPTIONS();
    if (!TOW__OPTIONS_TAKE(g->ctx, tow_compile_options, o->compile, &g->compile)) return TOW_INVALID_ARGUMENT;
    if (o->batch == 0) o->batch = 1;
    if (o->chunk == 0) o->chunk = 512;
    if (o->sequences == 0) o->sequences = 1;
    if (o->beams == 0) o->beams = 1;
    if (!g->compile.shared_arena) g->compile.shared_arena = g->shared_arena;
    o->compile = &g->compile;
    return TOW_OK;
}

TOW__OWN_FRAME tow_status tow_generator_create(tow_context *context, const tow_module *model, const tow_params *params,
                                               const tow_generator_options *options, tow_generator **generator)
{
    tow_status status = TOW_OK;
    tow_params *state = NULL;
    if (generator) *generator = NULL;
    if (!context) return TOW_INVALID_ARGUMENT;
    if (!model || !params || !generator)
        return tow__fail(context, TOW_INVALID_ARGUMENT,
                         "tow_generator_create: the model, the parameters or the result is NULL");
    tow_generator_options own;
    if (!TOW__OPTIONS_TAKE(context, tow_generator_options, options, &own)) return TOW_INVALID_ARGUMENT;
    const void *frame = TOW__CALLERS_FRAME;
    if (!tow__check_stack(context, __func__, model, frame) ||
        !tow__check_stack(context, __func__, options ? options->further : NULL, frame))
        return tow_context_status(context);
    tow_generator *g = tow__alloc(context, 1, sizeof *g);
    if (!g) return TOW_OUT_OF_MEMORY;
    *g = (tow_generator){.ctx = context, .fresh = true};
    TRY(tow_shared_arena_create(context, &g->shared_arena));
    TRY(read_options(g, options));
    TRY(check_options(context, &g->options));
    g->batch = g->options.batch;
    g->repeats = g->options.beams > 1 ? g->options.beams : g->options.sequences;
    g->rows = g->batch * g->repeats;
    TRY(tow__params_shared(context, params, &g->params));
    TRY(make_state(g, model, &state));
    TRY(tow__decoder_open(&g->prompts, context, model, g->params, &g->options, g->batch, g->repeats, state));
    g->length = g->prompts.length;
    if (g->length == 0)
        TRY(tow__fail(
            context, TOW_INVALID_ARGUMENT,
            "tow_generator_create: the model has no variable \"cached_key\"; give its attention .decode = true and "
            ".cache_length"));
    TRY(make_inputs(g, &g->prompts, g->inputs));
    g->sequences = &g->prompts;
    if (g->repeats > 1) TRY(make_several(g, model));
    TRY(make_choice_inputs(g));
    TRY(make_rows(g));
    TRY(tow__decoder_prepare(&g->prompts, true, 0)); /* errors of the model show here */
    *generator = g;
    return TOW_OK;
done:
    tow_generator_free(g);
    return status;
}

void tow_generator_free(tow_generator *g)
{
    if (!g) return;
    tow__decoder_close(&g->prompts);
    tow__decoder_close(&g->several);
    tow_shared_arena_release(g->shared_arena);
    tow_params_free(g->params);
    for (size_t i = 0; i < TOW__MODEL_INPUTS; i++) {
        tow_array_release(g->inputs[i]);
        tow_array_release(g->repeated[i]);
    }
    tow_array_release(g->keys);
    tow_array_release(g->history);
    tow_array_release(g->early);
    tow_array_release(g->scores);
    if (g->positions) tow__free(g->ctx, g->positions, (size_t)g->rows, sizeof *g->positions);
    if (g->starts) tow__free(g->ctx, g->starts, (size_t)g->rows, sizeof *g->starts);
    if (g->fed) tow__free(g->ctx, g->fed, (size_t)(g->batch * g->length), sizeof *g->fed);
    if (g->draws) tow__free(g->ctx, g->draws, (size_t)g->rows, sizeof *g->draws);
    if (g->work) tow__free(g->ctx, g->work, 7 * (size_t)g->rows, sizeof *g->work);
    if (g->roots) tow__free(g->ctx, g->roots, (size_t)g->rows, sizeof *g->roots);
    tow__free(g->ctx, g, 1, sizeof *g);
}

void tow__forget(tow_generator *g)
{
    tow__decoder_reset(&g->prompts);
    memset(g->positions, 0, (size_t)g->rows * sizeof *g->positions);
    if (g->history) memset(tow_array_data(g->history), 0, tow_type_bytes(tow_array_type(g->history)));
    g->last = NULL;
    g->fresh = true;
}

void tow_generator_reset(tow_generator *g)
{
    if (!g) return;
    tow__forget(g);
    memset(g->draws, 0, (size_t)g->rows * sizeof *g->draws);
}

const tow_array *tow_generator_logits(const tow_generator *g) { return g && g->last ? g->last->out[2] : NULL; }

int64_t tow_generator_position(const tow_generator *g)
{
    int64_t most = 0;
    for (int64_t r = 0; g && r < g->rows; r++)
        if (g->positions[r] > most) most = g->positions[r];
    return most;
}

int64_t tow_generator_length(const tow_generator *g) { return g ? g->length : 0; }

/* ---- feeding ----------------------------------------------------------------------------------------------------- */

/* Keys of the draws, and whether a sequence may end. */
static void fill_choice_inputs(tow_generator *g, int64_t index)
{
    if (g->keys) {
        uint32_t *keys = tow_array_data(g->keys);
        for (int64_t r = 0; r < g->rows; r++) tow_random_host_fold_in(g->roots[r], g->draws[r], keys + 2 * r);
    }
    if (g->early) *(bool *)tow_array_data(g->early) = index < g->options.min_tokens;
}

static int64_t length_of(const tow__prompts *p, int64_t b) { return p->lengths ? p->lengths[b] : p->n; }

static int64_t longest(const tow_generator *g, const tow__prompts *p)
{
    int64_t most = 0;
    for (int64_t b = 0; b < g->batch; b++)
        if (length_of(p, b) > most) most = length_of(p, b);
    return most;
}

/* Token i of prompt b. */
static int32_t token_of(const tow__prompts *p, int64_t b, int64_t i)
{
    const int64_t first = p->left_padded ? p->n - length_of(p, b) : 0;
    return p->tokens[b * p->n + first + i];
}

/* True if a row would stand elsewhere than the others. */
static bool differs(const tow_generator *g, const tow__prompts *p)
{
    for (int64_t b = 1; b < g->batch; b++)
        if (length_of(p, b) != length_of(p, 0) || g->positions[b] != g->positions[0]) return true;
    return false;
}

/* The entry of a token in the history: see choice.c. */
static float *history_of(const tow_generator *g, int64_t r, int32_t token)
{
    const int64_t V = g->prompts.classes;
    if (!g->history || token < 0 || token >= V) return NULL;
    return (float *)tow_array_data(g->history) + r * V + token;
}

static void note_prompt(tow_generator *g, const tow__prompts *p)
{
    for (int64_t r = 0; r < g->rows && g->history; r++)
        for (int64_t i = 0; i < length_of(p, r / g->repeats); i++) {
            float *seen = history_of(g, r, token_of(p, r / g->repeats, i));
            if (seen && *seen == floorf(*seen)) *seen += 0.5f;
        }
}

void tow__note_generated(tow_generator *g, int64_t r, int32_t token)
{
    float *seen = history_of(g, r, token);
    if (seen) *seen += 1;
}

/* Positions [done, done + 2^size) of the longest prompt. Shorter ones end with it: what is in front of them is what the
 * row was fed before, whose keys and values are made again, or padding at negative positions, which leave no trace. */
static void fill_call(tow_generator *g, const tow__prompts *p, int64_t most, int64_t done, int size)
{
    const int64_t piece = (int64_t)1 << size;
    int32_t *to = tow_array_data(g->prompts.tokens[size]);
    for (int64_t b = 0; b < g->batch; b++) {
        const int64_t first = done - (most - length_of(p, b)); /* of the call among the tokens of the prompt */
        const int32_t *fed = g->fed + b * g->length + g->positions[b];
        g->starts[b] = g->positions[b] + first;
        for (int64_t i = 0; i < piece; i++)
            to[b * piece + i] = first + i >= 0 ? token_of(p, b, first + i) : g->starts[b] + i >= 0 ? fed[first + i] : 0;
    }
}

/* The prompts are behind what was fed before. */
static void note_fed(tow_generator *g, const tow__prompts *p)
{
    for (int64_t b = 0; b < g->batch; b++)
        for (int64_t i = 0; i < length_of(p, b); i++) g->fed[b * g->length + g->positions[b]++] = token_of(p, b, i);
}

/* The programs for n positions. */
static tow_status prepare_prompt(tow_generator *g, int64_t n)
{
    tow__decoder *d = &g->prompts;
    tow_status status = TOW_OK;
    bool first = g->fresh;
    for (int64_t rest = n; rest > 0 && status == TOW_OK; first = false) {
        const int size = tow__call_size(d, rest);
        status = tow__decoder_prepare(d, first, size);
        rest -= (int64_t)1 << size;
    }
    return status;
}

tow_status tow_generator_prepare(tow_generator *g, int64_t n)
{
    if (!g) return TOW_INVALID_ARGUMENT;
    if (n < 1 || n > g->length)
        return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                         "tow_generator_prepare: a prompt of %lld tokens; expected 1 to %lld, which the cache has",
                         (long long)n, (long long)g->length);
    const tow_status status = prepare_prompt(g, n);
    return status == TOW_OK ? tow__decoder_prepare(g->sequences, false, 0) : status;
}

tow_status tow__feed_prompts(tow_generator *g, const tow__prompts *p, int64_t index)
{
    tow_status status = TOW_OK;
    const int64_t most = longest(g, p);
    tow__decoder *d = &g->prompts;
    if (differs(g, p)) TRY(tow__decoder_part_rows(d));
    TRY(prepare_prompt(g, most));
    note_prompt(g, p);
    fill_choice_inputs(g, index);
    for (int64_t done = 0; done < most;) {
        const int size = tow__call_size(d, most - done);
        fill_call(g, p, most, done, size);
        TRY(tow__decoder_run(d, g->fresh, size, g->starts));
        g->fresh = false;
        done += (int64_t)1 << size;
    }
    note_fed(g, p);
    g->last = d;
done:
    return status;
}

tow_status tow__feed_tokens(tow_generator *g, const int32_t *tokens, int64_t index)
{
    tow__decoder *d = g->sequences;
    fill_choice_inputs(g, index);
    memcpy(tow_array_data(d->tokens[0]), tokens, (size_t)g->rows * sizeof *tokens);
    const tow_status status = tow__decoder_run(d, false, 0, g->positions);
    if (status != TOW_OK) return status;
    for (int64_t r = 0; r < g->rows; r++) {
        if (d == &g->prompts) g->fed[r * g->length + g->positions[r]] = tokens[r];
        g->positions[r]++;
    }
    g->last = d;
    return TOW_OK;
}

tow_status tow_generator_feed(tow_generator *g, int64_t n, const int32_t *tokens, int32_t *next)
{
    if (!g) return TOW_INVALID_ARGUMENT;
    if (g->repeats > 1 || (g->fresh && g->options.n_inputs > 0))
        return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                         "tow_generator_feed: the generator has %s; call tow_generate_with",
                         g->repeats > 1 ? "several sequences for a prompt" : "inputs besides tokens");
    if (n < 1 || !tokens || n > g->length - tow_generator_position(g))
        return tow__fail(
            g->ctx, TOW_INVALID_ARGUMENT,
            "tow_generator_feed: %lld positions%s behind %lld; expected 1 to %lld, which the cache of %lld "
            "has left; reset the generator, or give a longer .cache_length",
            (long long)n, tokens ? "" : " at NULL", (long long)tow_generator_position(g),
            (long long)(g->length - tow_generator_position(g)), (long long)g->length);
    const tow__prompts p = {.n = n, .tokens = tokens};
    tow_status status = tow__feed_prompts(g, &p, INT64_MAX);
    for (int64_t b = 0; b < g->batch; b++) g->draws[b]++;
    for (int64_t b = 0; b < g->batch && next && status == TOW_OK; b++) status = tow__check_logits(g, b, &p);
    if (next && status == TOW_OK) memcpy(next, tow_array_data(g->last->out[0]), (size_t)g->batch * sizeof *next);
    return status;
}

/* ---- what logits say --------------------------------------------------------------------------------------------- */

/* "; token 25 at position 3 is outside of 0 to 19", if a token of the prompt is. */
static void name_outside(const tow_generator *g, int64_t r, const tow__prompts *p, char *text, size_t size)
{
    const int64_t b = r / g->repeats;
    const tow_type logits = tow_array_type(g->last->out[2]);
    text[0] = '\0';
    for (int64_t i = 0; p && i < length_of(p, b); i++) {
        const int32_t token = token_of(p, b, i);
        if (token >= 0 && token < logits.dims[1]) continue;
        snprintf(text, size, ": token %d at position %lld, expected 0 to %lld", (int)token,
                 (long long)(g->positions[r] - length_of(p, b) + i), (long long)logits.dims[1] - 1);
        return;
    }
}

tow_status tow__check_logits(const tow_generator *g, int64_t r, const tow__prompts *p)
{
    char outside[100];
    const float most = ((const float *)tow_array_data(g->last->out[3]))[2 * tow__row_of(g, r)];
    if (isfinite(most)) return TOW_OK;
    name_outside(g, r, p, outside, sizeof outside);
    return tow__fail(g->ctx, TOW_CHECK_FAILED, "generator: no token can follow position %lld of sequence %lld: %s%s",
                     (long long)g->positions[r] - 1, (long long)r,
                     isnan(most) ? "logits are NaN"
                     : most > 0  ? "logits are infinite"
                                 : "all logits are -infinity",
                     outside);
}

float tow__log_probability(const tow_generator *g, int64_t r, int32_t token)
{
    const int64_t row = tow__row_of(g, r), V = tow_array_type(g->last->out[2]).dims[1];
    const float *statistics = (const float *)tow_array_data(g->last->out[3]) + 2 * row;
    return ((const float *)tow_array_data(g->last->out[2]))[row * V + token] - statistics[0] - statistics[1];
}
