/* Choosing a token: logits / temperature, cut to the k largest, then to the likeliest of probability p, then a draw. */
#include <math.h>

#include "layers/layer.h"
#include "tow/generate.h"
#include "tow/indexing.h"
#include "tow/numpy.h"
#include "tow/random.h"

/* logits where they are at least least [..., 1], else -infinity */
static tow_value cut_below(tow_value logits, tow_value least)
{
    tow_type type = tow_value_type(logits);
    if (tow_is_null(logits) || tow_is_null(least)) return (tow_value){0};
    least = tow_broadcast_to(least, type.rank, type.dims);
    return tow_select(tow_ge(logits, least), logits, tow_full_like(logits, -INFINITY));
}

static tow_value cut_to_k(tow_value logits, int64_t k)
{
    tow_type type = tow_value_type(logits);
    int last = type.rank - 1;
    tow_value largest, places;
    if (tow_is_null(logits) || k >= type.dims[last]) return logits;
    tow_top_k(logits, k, last, &largest, &places);
    return cut_below(logits, tow_slice_axis(largest, last, k - 1, k));
}

/* A token stays if those before it, in descending order, have a probability below p together: the first one always does. */
static tow_value cut_to_p(tow_value logits, double p)
{
    if (tow_is_null(logits)) return logits;
    int last = tow_value_type(logits).rank - 1;
    tow_value sorted = tow_sort(logits, last, true), share = tow_softmax(sorted, last);
    tow_value before = tow_sub(tow_cumsum(share, last, false), share);
    tow_value kept = tow_select(tow_lt_scalar(before, p), sorted, tow_full_like(sorted, INFINITY));
    return cut_below(logits, tow_reduce_min_keepdims(kept, 1, &last));
}

static bool check(tow_value logits, tow_value key, const tow_sampling *s)
{
    tow_type type = tow_value_type(logits);
    const char *fault = NULL;
    if (!tow_dtype_is_float(type.dtype) || type.rank < 1 || type.dims[type.rank - 1] < 1)
        fault = "logits must be floats [..., V] of at least one token";
    if (!(s->temperature >= 0 && isfinite(s->temperature))) fault = ".temperature must not be negative";
    if (s->top_k < 0) fault = ".top_k must not be negative";
    if (!(s->top_p >= 0 && s->top_p <= 1)) fault = ".top_p must be in [0, 1]";
    if (s->temperature > 0 && tow_is_null(key)) fault = "a temperature needs a key u32[2]";
    if (!fault) return true;
    tow_trace_fail(tow_value_trace(logits), TOW_INVALID_ARGUMENT,
                   "sampling: %s; found logits %s, temperature %g, top_k %lld, top_p %g", fault,
                   tow__type_name(type).text, s->temperature, (long long)s->top_k, s->top_p);
    return false;
}

tow_value tow_sample_logits(tow_value logits, tow_value key, const tow_sampling *sampling)
{
    tow_sampling s = sampling ? *sampling : (tow_sampling){0};
    if (tow_is_null(logits) || !check(logits, key, &s)) return (tow_value){0};
    tow_type type = tow_value_type(logits);
    int last = type.rank - 1;
    if (s.temperature == 0) return tow_argmax(logits, last);
    if (s.temperature != 1) logits = tow_div_scalar(logits, s.temperature);
    if (s.top_k > 0) logits = cut_to_k(logits, s.top_k);
    if (s.top_p > 0 && s.top_p < 1) logits = cut_to_p(logits, s.top_p);
    return tow_random_categorical(key, logits, last, 0, NULL);
}
