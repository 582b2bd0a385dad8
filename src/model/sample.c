/* Choosing a token: logits / temperature, cut to the k largest, then to the likeliest of probability p, then a draw. */
#include <float.h>
#include <math.h>

#include "src/scope/layer.h"
#include "tow/generate.h"
#include "tow/numpy.h"
#include "tow/ops.h"
#include "tow/random.h"

/* logits where they are at least least [..., 1], else -infinity */
static tow_value cut_below(tow_value logits, tow_value least)
{
    tow_type type = tow_value_type(logits);
    if (tow_is_null(logits) || tow_is_null(least)) return (tow_value){0};
    least = tow_broadcast_to(least, type.rank, type.dims);
    return tow_where(tow_ge(logits, least), logits, tow_full_like(logits, -INFINITY));
}

/* logits / temperature. If the largest quotient of a row is far from zero, so that it swallows the noise of the draw
 * or is no finite number, (logits - largest) / temperature, which has the same softmax. */
static tow_value heat(tow_value logits, double temperature)
{
    const bool twice = tow_value_type(logits).dtype == TOW_F64;
    const double least = twice ? DBL_MIN : (double)FLT_MIN, most = twice ? DBL_MAX : (double)FLT_MAX;
    const tow_type type = tow_value_type(logits);
    const int last = type.rank - 1;
    temperature = fmin(fmax(temperature, least), most); /* in programs that take subnormal numbers for zeros, too */
    if (temperature == 1) return logits;
    tow_value quotient = tow_div_scalar(logits, temperature);
    if (temperature > 1) return quotient;
    tow_value largest = tow_reduce_max_keepdims(logits, 1, &last);
    tow_value near = tow_lt_scalar(tow_abs(tow_div_scalar(largest, temperature)), 4096);
    tow_value far = tow_and(tow_is_finite(largest), tow_not(near));
    if (tow_is_null(far)) return far;
    far = tow_broadcast_to(far, type.rank, type.dims);
    return tow_where(far, tow_div_scalar(tow_sub(logits, largest), temperature), quotient);
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

/* i32 [..., 1]: how many elements of each row of a bool are true */
static tow_value count_true(tow_value x)
{
    const int last = tow_value_type(x).rank - 1;
    return tow_reduce_sum_keepdims(tow_convert(x, TOW_I32), 1, &last);
}

/* A token stays if those before it, in descending order and equal ones in that of their indices, have a probability
 * below p together: the first one always does. So n tokens stay: all above the n-th one, and as many of its equals as
 * there is room for. */
static tow_value cut_to_p(tow_value logits, double p)
{
    if (tow_is_null(logits)) return logits;
    const int last = tow_value_type(logits).rank - 1;
    const int64_t V = tow_value_type(logits).dims[last];
    tow_value sorted = tow_sort(logits, last, true), sum = tow_cumsum(tow_softmax(sorted, last), last, false);
    if (tow_is_null(sum)) return sum;
    tow_value first = tow_full_like(tow_slice_axis(sum, last, 0, 1), -1); /* below any p */
    tow_value before = tow_concatenate(2, (tow_value[]){first, tow_slice_axis(sum, last, 0, V - 1)}, last);
    tow_value stays = tow_lt_scalar(before, p), n = count_true(stays);
    tow_value least = tow_reduce_min_keepdims(tow_where(stays, sorted, tow_full_like(sorted, INFINITY)), 1, &last);
    tow_value above = tow_gt(logits, least), equal = tow_eq(logits, least);
    tow_value place = tow_cumsum(tow_convert(equal, TOW_I32), last, false); /* among its equals, from 1 on */
    tow_value kept = tow_or(above, tow_and(equal, tow_le(place, tow_sub(n, count_true(above)))));
    return tow_where(kept, logits, tow_full_like(logits, -INFINITY));
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
    if (tow_dtype_size(type.dtype) < 4) logits = tow_convert(logits, TOW_F32);
    logits = heat(logits, s.temperature);
    if (s.top_k > 0) logits = cut_to_k(logits, s.top_k);
    if (s.top_p > 0 && s.top_p < 1) logits = cut_to_p(logits, s.top_p);
    return tow_random_categorical(key, logits, last, 0, NULL);
}
