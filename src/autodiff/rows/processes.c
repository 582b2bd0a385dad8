/* Sums over rows of which other processes have some: see rows.h. Floats and integers are added up by collectives. What
 * joins otherwise, maxima for instance, is gathered first, as a sum of arrays in which each process has a row of its
 * own, as bits among zeros; then all join all rows in the order of the tree. */
#include "src/autodiff/rows/part.h"
#include "src/autodiff/rows/rows.h"
#include "src/base/dtypes.h"
#include "src/ops/collective.h"
#include "src/ops/rules.h"
#include "tow/numpy.h"
#include "tow/ops.h"

tow_status tow__row_share_of(tow_context *ctx, tow_group *group, int64_t groups, tow__row_share *share)
{
    int begin, end;
    *share = (tow__row_share){.groups = groups, .count = groups};
    if (tow_group_count(group) == 1) return TOW_OK;
    share->group = group;
    if (groups < 1 || groups > TOW__MOST_ROW_GROUPS ||
        tow_group_rows(tow_group_rank(group), tow_group_count(group), (int)groups, &begin, &end) != TOW_OK)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "row groups: expected a power of two, at least the number of processes, %d, found %lld; "
                         "each process owns a subtree of groups",
                         tow_group_count(group), (long long)groups);
    share->first = begin;
    share->count = end - begin;
    return TOW_OK;
}

/* The unsigned integers of as many bits; u8 for bool. */
static tow_dtype bits_of(tow_dtype dtype)
{
    const size_t size = tow_dtype_size(dtype);
    return size == 8 ? TOW_U64 : size == 4 ? TOW_U32 : TOW_U8;
}

/* Rows [first, first + count) of what ranks brought, x [ranks, ...], as the tree over row groups joins them. */
static tow_value join_ranks(tow_value x, const tow_primitive *join, int first, int count)
{
    if (count == 1)
        return tow_reshape(tow_slice_axis(x, 0, first, first + 1), tow_value_type(x).rank - 1,
                           tow_value_type(x).dims + 1);
    const int left = count / 2;
    const tow_value a = join_ranks(x, join, first, left), b = join_ranks(x, join, first + left, count - left);
    return tow__op(join, NULL, 2, (tow_value[]){a, b});
}

/* x [...] of this process, as row `rank` of [ranks, ...]. */
static tow_value gather(tow_trace *t, const tow_group *group, int64_t groups, tow_value x)
{
    const tow_type type = tow_value_type(x);
    const bool is_bool = type.dtype == TOW_BOOL, halves = !is_bool && tow_dtype_size(type.dtype) == 2;
    int64_t dims[TOW_MAX_RANK + 1] = {1};
    tow_value start[TOW_MAX_RANK + 1];
    for (int a = 0; a < type.rank; a++) dims[1 + a] = type.dims[a];
    for (int a = 0; a <= type.rank; a++) start[a] = tow_scalar(t, TOW_I32, a == 0 ? tow_group_rank(group) : 0);
    x = tow_reshape(x, type.rank + 1, dims);
    if (is_bool) x = tow_convert(x, TOW_U8);
    if (halves) x = tow_convert(x, TOW_F32); /* exact, and so is the way back */
    if (!is_bool) x = tow_bitcast(x, bits_of(tow_value_type(x).dtype));
    dims[0] = tow_group_count(group);
    const tow_value rows = tow_full(t, tow_make_type(tow_value_type(x).dtype, type.rank + 1, dims), 0);
    x = tow__all_reduce(t, group, groups, tow_dynamic_update_slice(rows, x, start));
    if (is_bool) return tow_ne_scalar(x, 0);
    x = tow_bitcast(x, halves ? TOW_F32 : type.dtype);
    return halves ? tow_convert(x, type.dtype) : x;
}

tow_value tow__rows_of_all(tow_trace *t, const tow_group *group, int64_t groups, const tow_primitive *join, tow_value x)
{
    if (tow_is_null(x) || tow_group_count(group) == 1) return x;
    if (join == &tow__add_p) return tow__all_reduce(t, group, groups, x);
    if (tow_value_type(x).rank == TOW_MAX_RANK) {
        tow_trace_fail(t, TOW_UNSUPPORTED, "%s over the rows of all processes, of values with %d axes; reshape them",
                       join->name, TOW_MAX_RANK);
        return tow__null();
    }
    return join_ranks(gather(t, group, groups, x), join, 0, tow_group_count(group));
}
