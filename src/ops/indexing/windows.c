/* Checks of dimension numbers, which gather_general and the scatters share; see windows.h. */
#include "src/ops/indexing/windows.h"

#include "src/ops/rules.h"

bool tow__no_window_axis(const tow__ints *collapsed, const tow__ints *batching, int64_t axis)
{
    return tow__ints_contain(collapsed, axis) || tow__ints_contain(batching, axis);
}

bool tow__list(int n, const int *axes, tow__ints *list)
{
    *list = (tow__ints){0};
    if (n < 0 || n > TOW_MAX_RANK) return false;
    for (list->n = 0; list->n < n; list->n++) list->v[list->n] = axes[list->n];
    return true;
}

bool tow__holds(tow_dtype dtype, double value)
{
    if (dtype == TOW_U64 && value == 0x1p64) return true; /* becomes the greatest, which is no double */
    return tow__dtype_holds(dtype, value);
}

tow_status tow__require_distinct(const tow__typing *ty, const char *name, const tow__ints *list, int rank, bool sorted)
{
    bool used[TOW_MAX_RANK] = {false};
    for (int i = 0; i < list->n; i++) {
        int64_t axis = list->v[i];
        if (axis < 0 || axis >= rank)
            return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "%s: axis %lld is outside [0, %d)", name, (long long)axis,
                                  rank);
        if (used[axis] || (sorted && i > 0 && axis < list->v[i - 1]))
            return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "%s must name each axis once%s, found %lld at place %d",
                                  name, sorted ? ", in increasing order" : "", (long long)axis, i);
        used[axis] = true;
    }
    return TOW_OK;
}

static tow_status require_disjoint(const tow__typing *ty, const tow__ints *a, const tow__ints *b, const char *what)
{
    for (int i = 0; i < a->n; i++)
        if (tow__ints_contain(b, a->v[i]))
            return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "axis %lld of operand 0 is %s", (long long)a->v[i], what);
    return TOW_OK;
}

static tow_status require_batching(const tow__typing *ty, const tow__windows *w)
{
    tow_type x = ty->in[0], indices = ty->in[1];
    if (w->operand_batching->n != w->indices_batching->n)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "batching axes come in pairs, found %d of operand 0 and %d of the indices",
                              w->operand_batching->n, w->indices_batching->n);
    for (int i = 0; i < w->operand_batching->n; i++) {
        int64_t a = w->operand_batching->v[i], b = w->indices_batching->v[i];
        if (x.dims[a] != indices.dims[b])
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                  "batching axes must have equal sizes: axis %lld of %s and axis %lld of %s",
                                  (long long)a, tow__type_name(x).text, (long long)b, tow__type_name(indices).text);
    }
    return TOW_OK;
}

tow_status tow__require_windows(const tow__typing *ty, const tow__windows *w)
{
    tow_type x = ty->in[0], indices = ty->in[1];
    tow_status status = tow__require_dtype(ty, 1, TOW__INTEGERS);
    if (status != TOW_OK) return status;
    if (indices.rank == 0)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "the last axis of the indices holds index vectors, found %s; add an axis of size 1",
                              tow__type_name(indices).text);
    if (w->index_map->n != indices.dims[indices.rank - 1])
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "index vectors of %lld elements (the last axis of %s) need so many axes of operand 0, "
                              "found %d",
                              (long long)indices.dims[indices.rank - 1], tow__type_name(indices).text, w->index_map->n);
    status = tow__require_distinct(ty, "collapsed or inserted axes", w->collapsed, x.rank, true);
    if (status == TOW_OK)
        status = tow__require_distinct(ty, "operand_batching_dims", w->operand_batching, x.rank, true);
    if (status == TOW_OK)
        status =
            tow__require_distinct(ty, "batching axes of the indices", w->indices_batching, indices.rank - 1, false);
    if (status == TOW_OK) status = tow__require_distinct(ty, "axes of index vectors", w->index_map, x.rank, false);
    if (status == TOW_OK)
        status = require_disjoint(ty, w->collapsed, w->operand_batching, "collapsed and a batching axis");
    if (status == TOW_OK)
        status = require_disjoint(ty, w->index_map, w->operand_batching, "a batching axis and has indices");
    return status == TOW_OK ? require_batching(ty, w) : status;
}
