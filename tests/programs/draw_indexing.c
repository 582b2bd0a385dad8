/* Operations that read and write by index, and sorts. */
#include "tests/programs/draw.h"

/* A start for each axis, and sizes that fit. */
static void draw_start(drawing *d, tow_value x, tow_value *start, int64_t *sizes)
{
    const tow_type type = tow_value_type(x);
    tow_value index = draw_index(d);
    for (int i = 0; i < type.rank; i++) {
        start[i] = i == 0 ? index : tow_scalar(d->t, TOW_I32, draw(d, 3) - 1);
        sizes[i] = draw(d, 2) ? type.dims[i] : draw(d, (int)type.dims[i] + 1);
    }
}

static tow_value draw_scatter(drawing *d, tow_value x, tow_value indices)
{
    const tow_type rows = tow_value_type(x), which = tow_value_type(indices);
    tow_type type = {.dtype = rows.dtype, .rank = which.rank + rows.rank - 1};
    for (int i = 0; i < which.rank; i++) type.dims[i] = which.dims[i];
    for (int i = 1; i < rows.rank; i++) type.dims[which.rank + i - 1] = rows.dims[i];
    if (type.rank > MOST_AXES) return (tow_value){0};
    tow_value updates = tow_sin(fitted(draw_float(d), type));
    const int how = draw(d, 6);
    if (how == 0) return tow_scatter_add(indices, updates, rows.dims[0]);
    if (how == 1) return tow_index_add(x, indices, updates);
    tow_scatter_dims dims = {.n_window = rows.rank - 1, .n_inserted = 1, .n_index = 1};
    for (int i = 0; i + 1 < rows.rank; i++) dims.update_window_dims[i] = which.rank + i;
    const tow_scatter_kind kinds[] = {TOW_SCATTER_SET, TOW_SCATTER_ADD, TOW_SCATTER_MIN, TOW_SCATTER_MAX};
    tow_value vectors = tow_expand_dims(indices, which.rank);
    return tow_scatter_general(kinds[how - 2], x, vectors, updates, &dims, draw(d, 2) ? TOW_INDEX_FILL : TOW_INDEX_CLIP,
                               false);
}

tow_value draw_indexed(drawing *d)
{
    tow_value x = draw_ranked(d, 1), start[TOW_MAX_RANK];
    int64_t sizes[TOW_MAX_RANK];
    const int axis = draw_axis(d, x);
    if (tow_value_type(x).rank == 0) return tow_expand_dims(x, 0);
    const int64_t n = size_of(x, 0);
    draw_start(d, x, start, sizes);
    switch (draw(d, 8)) {
    case 0:
        return tow_dynamic_slice(x, start, sizes);
    case 1: {
        int64_t zeros[TOW_MAX_RANK] = {0};
        return tow_dynamic_update_slice(x, tow_sin(tow_slice(x, zeros, sizes, NULL)), start);
    }
    case 2:
        return n > 0 ? tow_gather(x, draw_indices(d, n)) : x;
    case 3:
        return size_of(x, axis) > 0 ? tow_take(x, draw_indices(d, size_of(x, axis)), axis) : x;
    case 4: { /* an index for each element, from the order of others */
        tow_value order = tow_argsort(tow_cos(x), axis, draw(d, 2));
        return tow_take_along_axis(x, order, axis);
    }
    case 5:
        return tow_one_hot(draw_of(d, TOW_I32), d->sizes[draw(d, 3)], -1, d->floats);
    default:
        return n > 0 ? draw_scatter(d, x, draw_indices(d, n)) : x;
    }
}

tow_value draw_sorted(drawing *d)
{
    tow_value x = draw_ranked(d, 1);
    if (tow_value_type(x).rank == 0) return tow_expand_dims(x, 0);
    const int axis = draw_axis(d, x);
    switch (draw(d, 6)) {
    case 0:
        return tow_sort(x, axis, draw(d, 2));
    case 1:
        return tow_argsort(x, axis, draw(d, 2));
    case 2: {
        tow_value both[] = {tow_sin(x), x};
        tow_sort_together(2, both, 1 + (size_t)draw(d, 2), axis, both);
        return both[draw(d, 2)];
    }
    case 3: {
        tow_value values, indices;
        tow_top_k(x, draw(d, (int)size_of(x, axis) + 1), axis, &values, &indices);
        return draw(d, 3) ? values : indices;
    }
    case 4: {
        tow_value flat = tow_reshape(x, 1, (int64_t[]){-1});
        return count_of(x) ? tow_searchsorted(tow_sort(flat, 0, false), draw_float(d), draw(d, 2)) : x;
    }
    default: {
        const bool empty = size_of(x, axis) == 0;
        return empty ? x : draw(d, 2) ? tow_argmin(x, axis) : tow_argmax(x, axis);
    }
    }
}
