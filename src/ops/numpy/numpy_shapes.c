/* The vocabulary of jax.numpy: stacking, cutting, repeating, moving axes, triangles, constants. */
#include "src/ops/rules.h"
#include "tow/numpy.h"

/* ---- stack, split ------------------------------------------------------------------------------------------------ */

tow_value tow_stack(size_t n, const tow_value *x, int axis)
{
    if (n == 0 || !x) return tow__null_because(TOW__NULL_STACK);
    if (tow__any_null(n, x)) return tow__null_of("stack", n, x);
    tow_value *rows = tow__trace_alloc(x[0].trace, n, sizeof *rows);
    int64_t at = 0;
    tow_type type = tow_value_type(x[0]);
    if (!rows || !tow__normal_axis(x[0], "stack", axis, type.rank + 1, &at)) return tow__null();
    for (size_t i = 0; i < n; i++) {
        if (!tow_type_equal(tow_value_type(x[i]), type))
            return tow__op_fail(x[0], "stack", TOW_SHAPE_MISMATCH, "operands must have one type, found %s and %s",
                                tow__type_name(type).text, tow__type_name(tow_value_type(x[i])).text);
        rows[i] = tow_expand_dims(x[i], (int)at);
    }
    return tow_concatenate(n, rows, (int)at);
}

tow_value tow_split_at(tow_value x, size_t n, const int64_t *at, int axis, tow_value *parts)
{
    int64_t along = 0, start = 0;
    for (size_t i = 0; parts && i <= n; i++) parts[i] = tow__null();
    if (tow_is_null(x) || !tow__normal_axis(x, "split", axis, tow_value_type(x).rank, &along)) return tow__null_from(x);
    if (!tow__given(x, "split", parts && (n == 0 || at), "positions and room for the parts")) return tow__null();
    int64_t size = tow_value_type(x).dims[along];
    for (size_t i = 0; i <= n; i++) {
        int64_t end = i < n ? at[i] : size;
        if (end < start || end > size)
            return tow__op_fail(x, "split", TOW_INVALID_ARGUMENT,
                                "positions must increase within [0, %lld], found %lld after %lld", (long long)size,
                                (long long)end, (long long)start);
        parts[i] = tow_slice_axis(x, (int)along, start, end);
        start = end;
    }
    return parts[0];
}

tow_value tow_split(tow_value x, size_t n, int axis, tow_value *parts)
{
    int64_t along = 0;
    for (size_t i = 0; parts && i < n; i++) parts[i] = tow__null();
    if (tow_is_null(x) || !tow__normal_axis(x, "split", axis, tow_value_type(x).rank, &along)) return tow__null_from(x);
    if (!tow__given(x, "split", parts != NULL, "room for the parts")) return tow__null();
    int64_t size = tow_value_type(x).dims[along];
    if (n == 0 || (uint64_t)size % n != 0)
        return tow__op_fail(x, "split", TOW_INVALID_ARGUMENT,
                            "axis %d has %lld elements, which %zu parts do not divide; use tow_split_at", axis,
                            (long long)size, n);
    int64_t each = size / (int64_t)n;
    for (size_t i = 0; i < n; i++) parts[i] = tow_slice_axis(x, (int)along, (int64_t)i * each, (int64_t)(i + 1) * each);
    return parts[0];
}

/* ---- repeating --------------------------------------------------------------------------------------------------- */

/* Axis `axis` of x repeated: as a whole, or each element. */
static tow_value repeated(tow_value x, const char *op, int64_t times, int axis, bool whole)
{
    tow_type type = tow_value_type(x);
    int64_t before = 1, after = 1, size = type.dims[axis];
    if (times < 0)
        return tow__op_fail(x, op, TOW_INVALID_ARGUMENT, "expected a number of copies, found %lld", (long long)times);
    if (times == 1) return x;
    for (int d = 0; d < axis; d++) before *= type.dims[d];
    for (int d = axis + 1; d < type.rank; d++) after *= type.dims[d];
    if (__builtin_mul_overflow(size, times, &type.dims[axis]))
        return tow__op_fail(x, op, TOW_INVALID_ARGUMENT, "%lld copies of %lld elements are too many", (long long)times,
                            (long long)size);
    tow_value rows = tow_reshape(x, 3, (int64_t[]){before, size, after});
    int64_t shape[4] = {before, whole ? times : size, whole ? size : times, after};
    rows = tow_broadcast_in_dim(rows, 4, shape, whole ? (int[]){0, 2, 3} : (int[]){0, 1, 3});
    return tow_reshape(rows, type.rank, type.dims);
}

tow_value tow_repeat(tow_value x, int64_t repeats, int axis)
{
    int64_t along = 0;
    if (tow_is_null(x) || !tow__normal_axis(x, "repeat", axis, tow_value_type(x).rank, &along))
        return tow__null_from(x);
    return repeated(x, "repeat", repeats, (int)along, false);
}

tow_value tow_tile(tow_value x, int n, const int64_t *reps)
{
    tow_type type = tow_value_type(x);
    if (tow_is_null(x)) return x;
    if (n < 0 || n > TOW_MAX_RANK)
        return tow__op_fail(x, "tile", TOW_INVALID_ARGUMENT, "%d repetitions given, expected 0 to %d", n, TOW_MAX_RANK);
    if (!tow__given(x, "tile", n == 0 || reps, "how often each axis is repeated")) return tow__null();
    while (type.rank < n) {
        for (int d = type.rank++; d > 0; d--) type.dims[d] = type.dims[d - 1];
        type.dims[0] = 1;
    }
    x = tow_reshape(x, type.rank, type.dims);
    for (int i = 0; i < n && !tow_is_null(x); i++) x = repeated(x, "tile", reps[i], type.rank - n + i, true);
    return x;
}

tow_value tow_roll(tow_value x, int64_t shift, int axis)
{
    int64_t along = 0;
    if (tow_is_null(x) || !tow__normal_axis(x, "roll", axis, tow_value_type(x).rank, &along)) return tow__null_from(x);
    int64_t size = tow_value_type(x).dims[along];
    if (size == 0 || shift % size == 0) return x;
    int64_t cut = size - (shift % size + size) % size;
    tow_value parts[2] = {tow_slice_axis(x, (int)along, cut, size), tow_slice_axis(x, (int)along, 0, cut)};
    return tow_concatenate(2, parts, (int)along);
}

/* ---- moving axes ------------------------------------------------------------------------------------------------- */

tow_value tow_moveaxis(tow_value x, int from, int to)
{
    int64_t a = 0, b = 0;
    int permutation[TOW_MAX_RANK] = {0}, rank = tow_value_type(x).rank;
    if (tow_is_null(x) || !tow__normal_axis(x, "moveaxis", from, rank, &a)) return tow__null_from(x);
    if (!tow__normal_axis(x, "moveaxis", to, rank, &b)) return tow__null();
    for (int d = 0, next = 0; d < rank; d++) {
        if (next == a) next++;
        permutation[d] = d == b ? (int)a : next++;
    }
    return tow_transpose(x, rank, permutation);
}

tow_value tow_swapaxes(tow_value x, int axis1, int axis2)
{
    int64_t a = 0, b = 0;
    int permutation[TOW_MAX_RANK] = {0}, rank = tow_value_type(x).rank;
    if (tow_is_null(x) || !tow__normal_axis(x, "swapaxes", axis1, rank, &a)) return tow__null_from(x);
    if (!tow__normal_axis(x, "swapaxes", axis2, rank, &b)) return tow__null();
    for (int d = 0; d < rank; d++) permutation[d] = d == a ? (int)b : d == b ? (int)a : d;
    return tow_transpose(x, rank, permutation);
}

tow_value tow_ravel(tow_value x)
{
    int64_t count = tow_is_null(x) ? 0 : tow_type_element_count(tow_value_type(x));
    return tow_reshape(x, 1, &count);
}

/* ---- triangles --------------------------------------------------------------------------------------------------- */

/* bool [rows, columns]: row + k >= column, or for `equal` row + k == column */
static tow_value diagonal_mask(tow_trace *trace, int64_t rows, int64_t columns, int64_t k, bool equal)
{
    const int64_t far = INT64_C(1) << 30;
    tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){rows, columns});
    tow_value row = tow_iota(trace, type, 0), column = tow_iota(trace, type, 1);
    if (tow_is_null(row) || tow_is_null(column)) return tow__null();
    tow_value moved = tow_add_scalar(row, (double)(k > far ? far : k < -far ? -far : k));
    return equal ? tow_eq(moved, column) : tow_ge(moved, column);
}

static tow_value triangle(tow_value x, const char *op, int64_t k, bool lower)
{
    tow_type type = tow_value_type(x);
    if (tow_is_null(x)) return x;
    if (type.rank < 2)
        return tow__op_fail(x, op, TOW_SHAPE_MISMATCH, "expected a matrix, found %s", tow__type_name(type).text);
    tow_value below =
        diagonal_mask(x.trace, type.dims[type.rank - 2], type.dims[type.rank - 1], lower ? k : k - 1, false);
    below = tow_broadcast_to(below, type.rank, type.dims);
    tow_value zeros = tow_zeros_like(x);
    return lower ? tow_where(below, x, zeros) : tow_where(below, zeros, x);
}

tow_value tow_tril(tow_value x, int64_t k) { return triangle(x, "tril", k, true); }
tow_value tow_triu(tow_value x, int64_t k) { return triangle(x, "triu", k, false); }

/* ---- constants --------------------------------------------------------------------------------------------------- */

tow_value tow_one_hot(tow_value indices, int64_t n, int axis, tow_dtype dtype)
{
    tow_type type = tow_value_type(indices);
    int64_t at = 0;
    if (tow_is_null(indices) || !tow__normal_axis(indices, "one_hot", axis, type.rank + 1, &at)) return tow__null();
    if (!tow_dtype_is_integer(type.dtype) || n < 0 || type.rank == TOW_MAX_RANK)
        return tow__op_fail(indices, "one_hot", TOW_TYPE_MISMATCH,
                            "expected integer indices of rank below %d and at least 0 places, found %s and %lld",
                            TOW_MAX_RANK, tow__type_name(type).text, (long long)n);
    indices = tow__index_words(indices);
    type.dtype = tow__dtype(indices);
    for (int d = type.rank++; d > at; d--) type.dims[d] = type.dims[d - 1];
    type.dims[at] = n;
    tow_value places = tow_iota(indices.trace, type, (int)at);
    tow_value here = tow_broadcast_to(tow_expand_dims(indices, (int)at), type.rank, type.dims);
    return tow_convert(tow_eq(here, places), dtype);
}

tow_value tow_eye(tow_trace *trace, tow_dtype dtype, int64_t rows, int64_t columns, int64_t k)
{
    return trace ? tow_convert(diagonal_mask(trace, rows, columns, k, true), dtype) : tow__null();
}

tow_value tow_arange(tow_trace *trace, tow_dtype dtype, double start, double step, int64_t n)
{
    tow_value x = tow_iota(trace, tow_make_type(dtype, 1, &n), 0);
    if (tow_is_null(x)) return x;
    if (step != 1) x = tow_mul_scalar(x, step);
    return start != 0 ? tow_add_scalar(x, start) : x;
}

/* start (1 - t) + stop t with t = i / (n - 1); the last number is stop. */
tow_value tow_linspace(tow_trace *trace, tow_dtype dtype, double start, double stop, int64_t n)
{
    tow_value i = tow_iota(trace, tow_make_type(dtype, 1, &n), 0);
    if (tow_is_null(i)) return i;
    if (!tow_dtype_is_float(dtype))
        return tow__op_fail(i, "linspace", TOW_TYPE_MISMATCH, "expected a float type, found %s", tow_dtype_name(dtype));
    if (n < 2) return tow_full_like(i, start);
    tow_value t = tow_div_scalar(i, (double)(n - 1)), rest = tow_rsub_scalar(t, 1);
    tow_value x = tow_add(tow_mul_scalar(rest, start), tow_mul_scalar(t, stop));
    return tow_where(tow_eq_scalar(i, (double)(n - 1)), tow_full_like(i, stop), x);
}
