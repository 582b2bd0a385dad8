/* The vocabulary of jax.numpy: scalars on either side, choices, quotients, statistics with kept axes, indices. */
#include "tow/numpy.h"

#include "src/ops/indexing/indexing.h"
#include "src/ops/rules.h"
#include "src/ops/shapes/broadcast.h"

/* ---- scalars ----------------------------------------------------------------------------------------------------- */

#define X(name)                                                                                                        \
    tow_value tow_##name##_scalar(tow_value x, double y) { return tow_##name(x, tow_full_like(x, y)); }
TOW_SCALAR_LIST(X)
#undef X

tow_value tow_rsub_scalar(tow_value x, double y) { return tow_sub(tow_full_like(x, y), x); }
tow_value tow_rdiv_scalar(tow_value x, double y) { return tow_div(tow_full_like(x, y), x); }
tow_value tow_rpow_scalar(tow_value x, double y) { return tow_pow(tow_full_like(x, y), x); }

/* ---- elementwise ------------------------------------------------------------------------------------------------- */

tow_value tow_clip(tow_value x, tow_value low, tow_value high)
{
    if (tow_is_null(x)) return x;
    if (!tow_is_null(low)) x = tow_max(low, x);
    return tow_is_null(high) ? x : tow_min(high, x);
}

tow_value tow_isnan(tow_value x) { return tow_ne(x, x); }

tow_value tow_isinf(tow_value x) { return tow_is_null(x) ? x : tow_and(tow_not(tow_is_finite(x)), tow_eq(x, x)); }

tow_value tow_reciprocal(tow_value x) { return tow_integer_pow(x, -1); }

/* Divisors 0 of integers count as 1, whose remainder is 0. */
tow_value tow_mod(tow_value x, tow_value y)
{
    if (tow_is_null(x) || tow_is_null(y)) return tow__null();
    if (!tow_dtype_is_float(tow__dtype(y))) y = tow_where(tow_eq(y, tow_zeros_like(y)), tow_full_like(y, 1), y);
    tow_value rest = tow_rem(x, y), zero = tow_zeros_like(rest);
    tow_value y_negative = tow_lt(y, tow_zeros_like(y));
    tow_value differ = tow_ne(tow_lt(rest, zero), y_negative);
    return tow_where(tow_and(differ, tow_ne(rest, zero)), tow_add(rest, y), rest);
}

/* Integers: the quotient towards zero, less 1 where signs differ and something is left. Floats: (x - rest) / y,
 * rounded. */
tow_value tow_floor_divide(tow_value x, tow_value y)
{
    if (tow_is_null(x) || tow_is_null(y)) return tow__null();
    tow_value rest = tow_rem(x, y), zero = tow_zeros_like(rest), left = tow_ne(rest, zero);
    if (tow_dtype_is_float(tow__dtype(y))) {
        tow_value quotient = tow_div(tow_sub(x, rest), y);
        tow_value differ = tow_ne(tow_sign(y), tow_sign(rest));
        return tow_round(tow_where(tow_and(left, differ), tow_add_scalar(quotient, -1), quotient));
    }
    tow_value quotient = tow_div(x, y), differ = tow_ne(tow_sign(x), tow_sign(y));
    if (tow__dtype_in(tow__dtype(x), TOW__UNSIGNED)) return quotient;
    return tow_where(tow_and(left, differ), tow_add_scalar(quotient, -1), quotient);
}

/* As the logsumexp of two, whose gradient at a tie is one half each. */
tow_value tow_logaddexp(tow_value x, tow_value y)
{
    tow_value v[2] = {x, y};
    return tow__broadcast_all(2, v) ? tow_logsumexp(tow_stack(2, v, 0), 0) : tow__null();
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* y, whose axes vanished, with these axes of x as axes of size 1. */
static tow_value keep_dims(tow_value y, tow_value x, int n_axes, const int *axes)
{
    tow__ints list;
    tow_type type = tow_value_type(x);
    if (tow_is_null(y) || !tow__normal_axes(x, "keepdims", n_axes, axes, &list)) return tow__null();
    for (int i = 0; i < list.n; i++) type.dims[list.v[i]] = 1;
    return tow_reshape(y, type.rank, type.dims);
}

#define KEEP(name)                                                                                                     \
    tow_value tow_##name##_keepdims(tow_value x, int n_axes, const int *axes)                                          \
    {                                                                                                                  \
        return keep_dims(tow_##name(x, n_axes, axes), x, n_axes, axes);                                                \
    }
#define X(name) KEEP(reduce_##name)
TOW_REDUCTION_LIST(X)
#undef X
KEEP(mean)

tow_value tow_var(tow_value x, int n_axes, const int *axes, double correction, bool keepdims)
{
    if (!tow_is_null(x) && tow__is_half(tow__dtype(x))) /* in f32, rounded once */
        return tow_convert(tow_var(tow_at(tow_convert(x, TOW_F32), x.here), n_axes, axes, correction, keepdims),
                           tow__dtype(x));
    tow_value mean = tow_mean_keepdims(x, n_axes, axes);
    if (tow_is_null(mean)) return mean;
    tow_value squares = tow_square(tow_sub(x, mean));
    tow_value sum = keepdims ? tow_reduce_sum_keepdims(squares, n_axes, axes) : tow_reduce_sum(squares, n_axes, axes);
    int64_t all = tow_type_element_count(tow_value_type(x)), kept = tow_type_element_count(tow_value_type(mean));
    return tow_div_scalar(sum, (kept > 0 ? (double)all / (double)kept : 0) - correction);
}

tow_value tow_std(tow_value x, int n_axes, const int *axes, double correction, bool keepdims)
{
    return tow_sqrt(tow_var(x, n_axes, axes, correction, keepdims));
}

tow_value tow_norm(tow_value x, int n_axes, const int *axes, bool keepdims)
{
    tow_value squares = tow_square(x);
    return tow_sqrt(keepdims ? tow_reduce_sum_keepdims(squares, n_axes, axes) : tow_reduce_sum(squares, n_axes, axes));
}

/* ---- indices ----------------------------------------------------------------------------------------------------- */

/* Negative indices, which count from the end of an axis of n places, from its beginning. */
static tow_value from_the_end(tow_value indices, int64_t n)
{
    indices = tow__index_words(indices);
    if (!tow__dtype_in(tow__dtype(indices), TOW__SIGNED)) return indices;
    tow_value wrapped = tow_add(indices, tow_full_like(indices, (double)n));
    return tow_where(tow_lt(indices, tow_zeros_like(indices)), wrapped, indices);
}

static bool are_indices(tow_value x, tow_value indices, const char *op, int64_t size)
{
    tow_dtype dtype = tow__dtype(indices);
    if (!tow_dtype_is_integer(dtype) || size > INT32_MAX) {
        tow__op_fail(x, op, TOW_TYPE_MISMATCH,
                     "indices must be integers and the axis shorter than 2^31, found %s and %lld",
                     tow__type_name(tow_value_type(indices)).text, (long long)size);
        return false;
    }
    return true;
}

tow_value tow_take(tow_value x, tow_value indices, int axis)
{
    tow_type type = tow_value_type(x), at = tow_value_type(indices);
    int64_t along = 0, sizes[TOW_MAX_RANK];
    if (tow__any_null(2, (tow_value[]){x, indices})) return tow__null();
    if (!tow__normal_axis(x, "take", axis, type.rank, &along)) return tow__null();
    if (!are_indices(x, indices, "take", type.dims[along])) return tow__null();
    if (along == 0 && tow_dtype_is_float(type.dtype)) return tow_gather(x, indices);
    if (type.rank - 1 + at.rank > TOW_MAX_RANK || at.rank == TOW_MAX_RANK)
        return tow__op_fail(x, "take", TOW_SHAPE_MISMATCH, "the result would have rank %d; reshape the indices",
                            type.rank - 1 + at.rank);
    tow_gather_dims dims = {.n_collapsed = 1, .collapsed_slice_dims = {(int)along}, .n_index = 1};
    dims.start_index_map[0] = (int)along;
    for (int d = 0; d < type.rank; d++) {
        sizes[d] = d == along ? 1 : type.dims[d];
        if (d != along) dims.offset_dims[dims.n_offset++] = d < along ? d : d - 1 + at.rank;
    }
    tow_value vectors = tow_expand_dims(from_the_end(indices, type.dims[along]), -1);
    return tow_gather_general(x, vectors, &dims, sizes, TOW_INDEX_FILL, NULL);
}

tow_value tow_take_along_axis(tow_value x, tow_value indices, int axis)
{
    const int64_t ones[TOW_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    tow_type a = tow_value_type(x), b = tow_value_type(indices), whole;
    int64_t along = 0;
    if (tow__any_null(2, (tow_value[]){x, indices})) return tow__null();
    if (!tow__normal_axis(x, "take_along_axis", axis, a.rank, &along)) return tow__null();
    if (!are_indices(x, indices, "take_along_axis", a.dims[along])) return tow__null();
    int64_t size = a.dims[along], count = b.dims[along];
    a.dims[along] = b.dims[along] = 1;
    if (a.rank != b.rank || a.rank == TOW_MAX_RANK || !tow__broadcast_type(2, (tow_type[]){a, b}, &whole))
        return tow__op_fail(x, "take_along_axis", TOW_SHAPE_MISMATCH,
                            "operand and indices must have one rank, at most %d, and broadcast but for axis %d, found "
                            "%s and %s",
                            TOW_MAX_RANK - 1, axis, tow__type_name(tow_value_type(x)).text,
                            tow__type_name(tow_value_type(indices)).text);
    whole.dims[along] = size;
    x = tow_broadcast_to(x, whole.rank, whole.dims);
    whole.dims[along] = count;
    indices = tow_broadcast_to(from_the_end(indices, size), whole.rank, whole.dims);
    tow_gather_dims dims = tow__along_dims(whole.rank, (int)along);
    return tow_gather_general(x, tow_expand_dims(indices, -1), &dims, ones, TOW_INDEX_FILL, NULL);
}
