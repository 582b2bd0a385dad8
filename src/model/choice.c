/* The choice of tokens behind a model: penalties, tokens that may not come yet, a draw or the candidates of beam
 * search, and what the host wants to know of the logits. */
#include <math.h>
#include <string.h>

#include "src/model/decoder.h"
#include "src/scope/calls.h"
#include "tow/autodiff.h"
#include "tow/numpy.h"
#include "tow/ops.h"

/* ---- which inputs there are -------------------------------------------------------------------------------------- */

bool tow__has_history(const tow_generator_options *o)
{
    return (o->repetition_penalty != 0 && o->repetition_penalty != 1) || o->presence_penalty != 0 ||
           o->frequency_penalty != 0;
}

size_t tow__n_ends(const tow_generator_options *o) { return o->n_ends + (o->stop_at_end ? 1 : 0); }

int32_t tow__end(const tow_generator_options *o, size_t i) { return i < o->n_ends ? o->ends[i] : o->end; }

bool tow__has_early(const tow_generator_options *o) { return o->min_tokens > 0 && tow__n_ends(o) > 0; }

static bool draws(const tow_generator_options *o) { return o->sampling.temperature > 0; }

int64_t tow__candidates(const tow_generator_options *o, int64_t V)
{
    const int64_t ends = (int64_t)tow__n_ends(o), wanted = (ends > 1 ? 1 + ends : 2) * o->beams;
    return wanted < o->beams * V ? wanted : o->beams * V;
}

size_t tow__choice_inputs(const tow__token_choice *c, int64_t V, tow_type *types)
{
    const int64_t R = c->rows * c->repeats;
    size_t n = 0;
    if (draws(c->options)) types[n++] = tow_make_type(TOW_U32, 2, (int64_t[]){R, 2});
    if (tow__has_history(c->options)) types[n++] = tow_make_type(TOW_F32, 2, (int64_t[]){R, V});
    if (tow__has_early(c->options)) types[n++] = tow_make_type(TOW_BOOL, 0, NULL);
    if (c->options->beams > 1) types[n++] = tow_make_type(TOW_F32, 1, &R);
    return n;
}

/* The choice's inputs by name; null values: there is none. */
typedef struct choice_values {
    tow_value keys, history, early, scores;
} choice_values;

static choice_values read_inputs(const tow__token_choice *c, const tow_value *in)
{
    choice_values v = {0};
    if (draws(c->options)) v.keys = *in++;
    if (tow__has_history(c->options)) v.history = *in++;
    if (tow__has_early(c->options)) v.early = *in++;
    if (c->options->beams > 1) v.scores = *in;
    return v;
}

/* ---- what is done to logits -------------------------------------------------------------------------------------- */

static tow_value broadcast_like(tow_value x, tow_value like)
{
    const tow_type type = tow_value_type(like);
    return tow_is_null(x) || tow_is_null(like) ? (tow_value){0} : tow_broadcast_to(x, type.rank, type.dims);
}

/* x [rows, n] -> [rows * repeats, n] */
static tow_value repeat_rows(tow_value x, int64_t repeats)
{
    const tow_type type = tow_value_type(x);
    if (tow_is_null(x) || repeats == 1) return x;
    x = tow_broadcast_to(tow_expand_dims(x, 1), 3, (int64_t[]){type.dims[0], repeats, type.dims[1]});
    return tow_reshape(x, 2, (int64_t[]){type.dims[0] * repeats, type.dims[1]});
}

/* l of tokens that were there becomes l / penalty above 0 and l * penalty below (Keskar et al., "CTRL", 2019); then
 * l - frequency * count - presence * (count > 0) of those that were generated. */
static tow_value penalize(const tow_generator_options *o, tow_value l, tow_value history)
{
    if (tow_is_null(history) || tow_is_null(l)) return l;
    const tow_value zero = tow_zeros_like(l), count = tow_floor(history);
    if (o->repetition_penalty != 0 && o->repetition_penalty != 1) {
        tow_value less = tow_where(tow_lt(l, zero), tow_mul_scalar(l, o->repetition_penalty),
                                   tow_div_scalar(l, o->repetition_penalty));
        l = tow_where(tow_gt(history, zero), less, l);
    }
    if (o->frequency_penalty != 0) l = tow_sub(l, tow_mul_scalar(count, o->frequency_penalty));
    if (o->presence_penalty != 0)
        l = tow_sub(l, tow_where(tow_gt(count, zero), tow_full_like(l, o->presence_penalty), zero));
    return l;
}

/* -infinity for the tokens that end a sequence, where `early` is true. */
static tow_value forbid_ends(tow_scope *scope, const tow_generator_options *o, tow_value l, tow_value early)
{
    tow_trace *t = tow_scope_trace(scope);
    if (tow_is_null(early) || tow_is_null(l)) return l;
    int64_t V = tow_value_type(l).dims[1];
    bool *is_end = tow__trace_alloc(t, (size_t)V, sizeof *is_end);
    if (!is_end) return (tow_value){0};
    for (size_t i = 0; i < tow__n_ends(o); i++) {
        const int32_t end = tow__end(o, i);
        if (end < 0 || end >= V) {
            tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "generator: the end %d is no token; expected 0 to %lld",
                           (int)end, (long long)V - 1);
            return (tow_value){0};
        }
        is_end[end] = true;
    }
    const tow_value ends = tow_constant_data(t, tow_make_type(TOW_BOOL, 1, &V), is_end);
    const tow_value forbidden = tow_and(broadcast_like(ends, l), broadcast_like(early, l));
    return tow_where(forbidden, tow_full_like(l, -INFINITY), l);
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

/* key u32[2], logits [V] -> i32[] */
static void draw_row(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = tow_sample_logits(in[1], in[0], user);
}

/* l [R, V] -> i32 [R]; each row is drawn by itself with a key of its own, as if it were alone. */
static tow_value choose(tow_trace *t, const tow_generator_options *o, tow_value l, tow_value keys)
{
    tow_value chosen = {0};
    if (tow_is_null(l)) return l;
    if (o->sampling.temperature == 0) return tow_sample_logits(l, (tow_value){0}, &o->sampling);
    if (tow_value_type(l).dims[0] == 1) return tow_sample_logits(l, tow_reshape(keys, 1, (int64_t[]){2}), &o->sampling);
    tow_sampling sampling = o->sampling;
    tow_vmap_function(t, draw_row, &sampling, NULL, 2, (tow_value[]){keys, l}, 1, &chosen);
    return chosen;
}

/* Log-probabilities l [R, V] and those of the beams so far, [R] -> the best candidates of each prompt, in descending
 * order: totals f32 [prompts, K], chosen i32 [prompts, K], beam * V + token. */
static void choose_candidates(const tow__token_choice *c, tow_value l, tow_value scores, tow_value *chosen,
                              tow_value *totals)
{
    const int64_t beams = c->options->beams, R = c->rows * c->repeats, V = tow_value_type(l).dims[1];
    if (tow_is_null(l)) return;
    l = tow_add(l, broadcast_like(tow_expand_dims(scores, 1), l));
    l = tow_reshape(l, 2, (int64_t[]){R / beams, beams * V});
    tow_top_k(l, tow__candidates(c->options, V), 1, totals, chosen);
}

/* The logits of the last position, f32 [rows, V]; null: an error, reported. */
static tow_value last_logits(tow_scope *scope, const tow__token_choice *c, tow_value logits)
{
    const tow_type type = tow_value_type(logits);
    if (tow__scope_failed(scope)) return (tow_value){0};
    if (!tow_dtype_is_float(type.dtype) || type.rank != 3 || type.dims[0] != c->rows || type.dims[1] < 1 ||
        type.dims[2] < 1) {
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                       "generator: expected logits [%lld,time,V] or [%lld,1,V] of the model, found %s",
                       (long long)c->rows, (long long)c->rows, tow__type_name(type).text);
        return (tow_value){0};
    }
    logits = tow_squeeze(tow_slice_axis(logits, 1, type.dims[1] - 1, type.dims[1]), 1);
    return type.dtype == TOW_F32 ? logits : tow_convert(logits, TOW_F32);
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow__chooser *m = (const tow__chooser *)module;
    const tow__token_choice *c = m->choice;
    const tow_generator_options *o = c->options;
    const bool beams = o->beams > 1;
    const int axis = 1;
    tow_trace *t = tow_scope_trace(scope);
    tow_value logits = {0};
    (void)n_in, (void)n_out;
    tow__call_here(scope, m->inner, 1 + c->n_inputs, in, 1, &logits);
    logits = last_logits(scope, c, logits);
    if (tow_is_null(logits)) return;
    const choice_values v = read_inputs(c, in + 1 + c->n_inputs);
    tow_value most = tow_reduce_max_keepdims(logits, 1, &axis), sum = tow_zeros_like(most);
    tow_value shifted = {0};
    if (beams || o->log_probabilities) {
        shifted = tow_sub(logits, broadcast_like(most, logits));
        sum = tow_log(tow_reduce_sum_keepdims(tow_exp(shifted), 1, &axis));
    }
    tow_value l = beams ? tow_sub(shifted, broadcast_like(sum, shifted)) : logits;
    l = penalize(o, repeat_rows(l, c->repeats), v.history);
    l = forbid_ends(scope, o, l, v.early);
    out[1] = tow_full(t, tow_make_type(TOW_F32, 1, (int64_t[]){0}), 0);
    if (beams)
        choose_candidates(c, l, v.scores, &out[0], &out[1]);
    else
        out[0] = choose(t, o, l, v.keys);
    out[2] = logits;
    out[3] = tow_concatenate(2, (tow_value[]){most, sum}, 1);
}

const tow_module_class tow__chooser_class = {.name = "Generator", .call = call};
