/* Draws from distributions, and random orders, as jax.random makes them. The formula of each stands above it; u is
 * uniform in [0, 1), made of as many random bits as the type has behind the binary point. */
#include <math.h>

#include "src/base/dtypes.h"
#include "src/ops/random/random.h"
#include "src/ops/rules.h"
#include "tow/numpy.h"
#include "tow/random.h"

/* ---- bits -------------------------------------------------------------------------------------------------------- */

/* u64: the first word above the second */
static tow_value bits_of_64(tow_value key, int rank, const int64_t *shape)
{
    tow_value words[2];
    tow__random_words(key, rank, shape, words);
    if (tow__any_null(2, words)) return tow__null();
    for (int i = 0; i < 2; i++) words[i] = tow_convert(words[i], TOW_U64);
    return tow_or(tow_shift_left(words[0], tow_full_like(words[0], 32)), words[1]);
}

tow_value tow_random_bits_with(tow_value key, int width, int rank, const int64_t *shape)
{
    if (tow_is_null(key)) return key;
    if (width == 64) return bits_of_64(key, rank, shape);
    if (width != 8 && width != 16 && width != 32)
        return tow__op_fail(key, "random_bits_of", TOW_INVALID_ARGUMENT, "expected 8, 16, 32 or 64 bits, found %d",
                            width);
    tow_value bits = tow_random_bits(key, rank, shape);
    if (width == 16) return tow_and(bits, tow_full_like(bits, 0xFFFF));
    return width == 8 ? tow_convert(bits, TOW_U8) : bits;
}

/* ---- numbers of a float type, on the host ------------------------------------------------------------------------ */

/* Bits of fraction, and the exponent of the least normal number. */
typedef struct float_format {
    int fraction, least;
} float_format;
static const float_format formats[TOW_DTYPE_END] = {
    [TOW_F32] = {23, -126}, [TOW_F64] = {52, -1022}, [TOW_BF16] = {7, -126}, [TOW_F16] = {10, -14}};

static double round_to(tow_dtype dtype, double x)
{
    uint64_t element = 0;
    tow__store_element(dtype, &element, 0, x);
    return tow__load_element(dtype, &element, 0).f;
}

/* The next number towards `to`, for a number x of the type. */
static double next_after(tow_dtype dtype, double x, double to)
{
    const float_format *f = &formats[dtype];
    int exponent;
    if (x == to || isinf(x)) return x;
    const double mantissa = frexp(x, &exponent); /* x = mantissa 2^exponent, mantissa in [1/2, 1) */
    const bool outwards = x == 0 || (to > x) == (x > 0), power = fabs(mantissa) == 0.5;
    exponent = x == 0 ? f->least : exponent - 1;
    if (power && !outwards && exponent > f->least) exponent--; /* below a power of 2 numbers are twice as dense */
    if (exponent < f->least) exponent = f->least;
    const double step = ldexp(1, exponent - f->fraction);
    return x + (to > x ? step : -step);
}

/* The root of 2 as a number of the type. */
static double root_of_2(tow_dtype dtype) { return round_to(dtype, 1.41421356237309504880); }

/* ---- uniform ----------------------------------------------------------------------------------------------------- */

static bool is_float(tow_value key, const char *op, tow_type type)
{
    if (tow_dtype_is_float(type.dtype)) return true;
    tow__op_fail(key, op, TOW_TYPE_MISMATCH, "it draws floats, found %s; convert what it draws",
                 tow__type_name(type).text);
    return false;
}

/* f64 in [0, 1): the 52 upper ones of 64 bits, of two words. */
static tow_value unit_uniform_f64(tow_value key, tow_type type)
{
    tow_value words[2];
    tow__random_words(key, type.rank, type.dims, words);
    if (tow__any_null(2, words)) return tow__null();
    tow_value high = tow_convert(words[0], TOW_F64);
    tow_value low = tow_convert(tow_shift_right(words[1], tow_full_like(words[1], 12)), TOW_F64);
    return tow_add(tow_mul_scalar(high, 0x1p-32), tow_mul_scalar(low, 0x1p-52));
}

/* 16-bit floats in [0, 1): the upper ones of 16 random bits, of 8 for bf16, times a power of 2. */
static tow_value unit_uniform_half(tow_value key, tow_type type)
{
    const int width = type.dtype == TOW_BF16 ? 8 : 16, fraction = formats[type.dtype].fraction;
    tow_value bits = tow_random_bits(key, type.rank, type.dims);
    if (tow_is_null(bits)) return bits;
    bits = tow_and(bits, tow_full_like(bits, ldexp(1, width) - 1));
    bits = tow_shift_right(bits, tow_full_like(bits, width - fraction));
    return tow_mul_scalar(tow_convert(bits, type.dtype), ldexp(1, -fraction));
}

/* max(low, u (high - low) + low), rounded once, as XLA computes it, but for floats of 16 bits, which it rounds each
 * time; bounds and span are numbers of the type. */
tow_value tow_random_uniform_with(tow_value key, tow_type type, double low, double high)
{
    if (tow_is_null(key) || !is_float(key, "random_uniform_of", type)) return tow__null();
    if (type.dtype == TOW_F32) return tow_random_uniform(key, type.rank, type.dims, low, high);
    const bool half = tow__is_half(type.dtype);
    tow_value u = half ? unit_uniform_half(key, type) : unit_uniform_f64(key, type);
    if (tow_is_null(u) || (low == 0 && high == 1)) return u;
    low = round_to(type.dtype, low);
    const double span = round_to(type.dtype, round_to(type.dtype, high) - low);
    tow_value scaled =
        half ? tow_add_scalar(tow_mul_scalar(u, span), low) : tow_fma(u, tow_full_like(u, span), tow_full_like(u, low));
    return tow_max_scalar(scaled, low);
}

/* ---- through inverse functions ----------------------------------------------------------------------------------- */

/* sqrt(2) erf_inv(u), u from (-1, 1) */
tow_value tow_random_normal_with(tow_value key, tow_type type)
{
    if (tow_is_null(key) || !is_float(key, "random_normal_of", type)) return tow__null();
    tow_value u = tow_random_uniform_with(key, type, next_after(type.dtype, -1, 0), 1);
    return tow_is_null(u) ? u : tow_mul_scalar(tow_erf_inv(u), root_of_2(type.dtype));
}

/* erf(x / sqrt(2)) in the type's precision */
static double half_of_normal(tow_dtype dtype, double x)
{
    return round_to(dtype, erf(round_to(dtype, round_to(dtype, x) / root_of_2(dtype))));
}

/* sqrt(2) erf_inv(u), u from [erf(low / sqrt(2)), erf(high / sqrt(2))), clipped to (low, high) */
tow_value tow_random_truncated_normal(tow_value key, tow_type type, double low, double high)
{
    if (tow_is_null(key) || !is_float(key, "random_truncated_normal", type)) return tow__null();
    low = round_to(type.dtype, low);
    high = round_to(type.dtype, high);
    double a = half_of_normal(type.dtype, low), b = half_of_normal(type.dtype, high);
    tow_value u = tow_random_uniform_with(key, type, a, b);
    if (tow_is_null(u)) return u;
    tow_value x = tow_mul_scalar(tow_erf_inv(u), root_of_2(type.dtype));
    tow_value least = tow_full_like(x, next_after(type.dtype, low, (double)INFINITY));
    tow_value most = tow_full_like(x, next_after(type.dtype, high, -(double)INFINITY));
    return tow_clip(x, least, most);
}

/* u < p */
tow_value tow_random_bernoulli_with(tow_value key, tow_value p)
{
    if (tow_is_null(key) || tow_is_null(p)) return tow__null();
    tow_value u = tow_random_uniform_with(key, tow_value_type(p), 0, 1);
    return tow_lt(u, p);
}

/* -log(-log(u)), u from [the smallest normal number, 1) */
tow_value tow_random_gumbel(tow_value key, tow_type type)
{
    if (tow_is_null(key) || !is_float(key, "random_gumbel", type)) return tow__null();
    tow_value u = tow_random_uniform_with(key, type, ldexp(1, formats[type.dtype].least), 1);
    return tow_neg(tow_log(tow_neg(tow_log(u))));
}

/* -log(1 - u) */
tow_value tow_random_exponential(tow_value key, tow_type type)
{
    return tow_neg(tow_log1p(tow_neg(tow_random_uniform_with(key, type, 0, 1))));
}

/* sign(u) log(1 - |u|), u from (-1, 1) */
tow_value tow_random_laplace(tow_value key, tow_type type)
{
    if (tow_is_null(key) || !is_float(key, "random_laplace", type)) return tow__null();
    tow_value u = tow_random_uniform_with(key, type, next_after(type.dtype, -1, 0), 1);
    return tow_is_null(u) ? u : tow_mul(tow_sign(u), tow_log1p(tow_neg(tow_abs(u))));
}

/* argmax(logits + gumbel) */
tow_value tow_random_categorical(tow_value key, tow_value logits, int axis, int prefix_rank, const int64_t *prefix)
{
    tow_type type = tow_value_type(logits), drawn = type;
    int64_t along = 0;
    if (tow_is_null(key) || tow_is_null(logits)) return tow__null();
    if (!tow__normal_axis(logits, "random_categorical", axis, type.rank, &along)) return tow__null();
    if (!tow__given(logits, "random_categorical", prefix_rank <= 0 || prefix, "axes in front")) return tow__null();
    if (prefix_rank < 0 || prefix_rank + type.rank > TOW_MAX_RANK)
        return tow__op_fail(logits, "random_categorical", TOW_INVALID_ARGUMENT,
                            "%d axes in front of %d make a rank that is outside [0, %d]", prefix_rank, type.rank,
                            TOW_MAX_RANK);
    drawn.rank += prefix_rank;
    for (int d = 0; d < drawn.rank; d++) drawn.dims[d] = d < prefix_rank ? prefix[d] : type.dims[d - prefix_rank];
    return tow_argmax(tow_add(tow_random_gumbel(key, drawn), logits), (int)along + prefix_rank);
}

/* ---- integers ---------------------------------------------------------------------------------------------------- */

/* Key i of the two that a key is split into. */
static tow_value half_key(tow_value keys, int64_t i)
{
    return tow_reshape(tow_slice_axis(keys, 0, i, i + 1), 1, (int64_t[]){2});
}

static bool bounds_fit(tow_value key, tow_dtype dtype, int64_t low, int64_t high)
{
    const int bits = 8 * (int)tow_dtype_size(dtype);
    const bool is_signed = tow__dtype_in(dtype, TOW__SIGNED);
    const int64_t most = bits == 64 ? INT64_MAX : (INT64_C(1) << (bits - is_signed)) - 1;
    const int64_t least = is_signed ? -most - 1 : 0;
    if (low >= least && low <= most && high >= least && (high <= most || high - 1 == most)) return true;
    tow__op_fail(key, "random_randint", TOW_INVALID_ARGUMENT,
                 "the bounds of %s must be in [%lld, %lld]%s, found %lld and %lld", tow_dtype_name(dtype),
                 (long long)least, (long long)most, bits == 64 ? "" : " and at most one more", (long long)low,
                 (long long)high);
    return false;
}

/* The low bits of `bits` everywhere, as integers of x's type, which has no sign. */
static tow_value full_bits(tow_value x, uint64_t bits)
{
    const tow_type type = tow_value_type(x);
    uint64_t element = 0;
    tow__convert_elements(type.dtype, &element, TOW_U64, &bits, 1);
    tow_value scalar = tow_constant_data(x.trace, tow_make_type(type.dtype, 0, NULL), &element);
    return tow_broadcast_to(scalar, type.rank, type.dims);
}

/* low + ((h mod span) m + l mod span) mod span, m = (2^(n/2) mod span)^2 mod span, all modulo 2^n, for two draws h, l
 * of n bits, as many as the type has. Types of 8 bits are drawn as i32. A span of 2^n is 0, and x mod 0 is x. */
tow_value tow_random_randint(tow_value key, tow_type type, int64_t low, int64_t high)
{
    if (tow_is_null(key)) return key;
    if (!tow_dtype_is_integer(type.dtype))
        return tow__op_fail(key, "random_randint", TOW_TYPE_MISMATCH, "it draws integers, found %s",
                            tow__type_name(type).text);
    if (!bounds_fit(key, type.dtype, low, high)) return tow__null();
    if (tow_dtype_size(type.dtype) == 1) { /* of few bits multiples of the span would be too unequal */
        tow_type wide = type;
        wide.dtype = TOW_I32;
        return tow_convert(tow_random_randint(key, wide, low, high), type.dtype);
    }
    tow_value keys = tow_random_split(key, 2);
    if (tow_is_null(keys)) return keys;
    const int n = 8 * (int)tow_dtype_size(type.dtype);
    tow_value h = tow_random_bits_with(half_key(keys, 0), n, type.rank, type.dims);
    tow_value l = tow_random_bits_with(half_key(keys, 1), n, type.rank, type.dims);
    if (tow_is_null(h) || tow_is_null(l)) return tow__null();
    const uint64_t mask = UINT64_MAX >> (64 - n), span = high <= low ? 1 : ((uint64_t)high - (uint64_t)low) & mask;
    const uint64_t half = span ? (UINT64_C(1) << n / 2) % span : UINT64_C(1) << n / 2, square = half * half & mask;
    tow_value s = full_bits(h, span), sum = tow_mul(tow_rem(h, s), full_bits(h, span ? square % span : square));
    sum = tow_rem(tow_add(sum, tow_rem(l, s)), s);
    return tow_bitcast(tow_add(sum, full_bits(sum, (uint64_t)low)), type.dtype);
}

/* ---- orders ------------------------------------------------------------------------------------------------------ */

/* x sorted along the axis by random words, so often that equal words do not matter. */
static tow_value shuffled(tow_value key, tow_value x, int axis, int64_t count)
{
    tow_type type = tow_value_type(x);
    int rounds = (int)ceil(3 * log(count > 1 ? (double)count : 1) / log((double)UINT32_MAX));
    for (int i = 0; i < rounds && !tow_is_null(x); i++) {
        tow_value keys = tow_random_split(key, 2);
        if (tow_is_null(keys)) return keys;
        key = half_key(keys, 0);
        tow_value v[2] = {tow_random_bits(half_key(keys, 1), type.rank, type.dims), x}, sorted[2];
        if (tow_is_null(tow_sort_together(2, v, 1, axis, sorted))) return tow__null();
        x = sorted[1];
    }
    return x;
}

tow_value tow_random_permutation(tow_value key, int64_t n)
{
    key = tow__checked_key(key, "random_permutation");
    if (tow_is_null(key)) return key;
    if (n < 0 || n > INT32_MAX)
        return tow__op_fail(key, "random_permutation", TOW_INVALID_ARGUMENT,
                            "it orders 0 to 2^31 - 1 numbers, found %lld", (long long)n);
    return shuffled(key, tow_iota(key.trace, tow_make_type(TOW_I32, 1, &n), 0), 0, n);
}

tow_value tow_random_shuffle(tow_value key, tow_value x, int axis, bool independent)
{
    tow_type type = tow_value_type(x);
    int64_t along = 0;
    if (tow_is_null(key) || tow_is_null(x)) return tow__null();
    if (!tow__normal_axis(x, "random_shuffle", axis, type.rank, &along)) return tow__null();
    if (independent || type.rank == 1) return shuffled(key, x, (int)along, tow_type_element_count(type));
    return tow_take(x, tow_random_permutation(key, type.dims[along]), (int)along);
}

/* With probabilities: the place of c (1 - u) in the sums of p, the last of which is c; without repetition: the largest
 * of log(p) + gumbel. */
static tow_value choose_by(tow_value key, tow_type drawn, bool replace, tow_value p)
{
    tow_type type = tow_value_type(p);
    if (!replace) {
        tow_value indices = tow__null();
        tow_top_k(tow_add(tow_random_gumbel(key, type), tow_log(p)), tow_type_element_count(drawn), 0, NULL, &indices);
        return indices;
    }
    drawn.dtype = type.dtype;
    tow_value sums = tow_cumsum(p, 0, false), u = tow_random_uniform_with(key, drawn, 0, 1);
    if (tow_is_null(sums) || tow_is_null(u)) return tow__null();
    tow_value all = tow_reshape(tow_slice_axis(sums, 0, type.dims[0] - 1, type.dims[0]), 0, NULL);
    return tow_searchsorted(sums, tow_mul(tow_rsub_scalar(u, 1), all), false);
}

tow_value tow_random_choice(tow_value key, int64_t n, int rank, const int64_t *shape, bool replace, tow_value p)
{
    key = tow__checked_key(key, "random_choice");
    if (tow_is_null(key)) return key;
    if (!tow__given(key, "random_choice", rank <= 0 || shape, "a shape")) return tow__null();
    tow_type type = tow_make_type(TOW_I32, rank, shape), weights = tow_value_type(p);
    int64_t count = rank >= 0 && rank <= TOW_MAX_RANK ? tow_type_element_count(type) : -1;
    if (count < 0 || n < (count > 0) || n > INT32_MAX || (!replace && count > n))
        return tow__op_fail(key, "random_choice", TOW_INVALID_ARGUMENT, "cannot draw %s from %lld places%s",
                            tow__type_name(type).text, (long long)n, replace ? "" : " without repetition");
    if (!tow_is_null(p) && (!tow_dtype_is_float(weights.dtype) || weights.rank != 1 || weights.dims[0] != n))
        return tow__op_fail(key, "random_choice", TOW_SHAPE_MISMATCH,
                            "expected the probabilities of %lld places, floats [%lld], found %s", (long long)n,
                            (long long)n, tow__type_name(weights).text);
    if (!tow_is_null(p)) return tow_reshape(choose_by(key, type, replace, p), rank, shape);
    if (replace) return tow_random_randint(key, type, 0, n);
    return tow_reshape(tow_slice_axis(tow_random_permutation(key, n), 0, 0, count), rank, shape);
}
