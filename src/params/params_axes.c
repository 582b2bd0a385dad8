/* The axes of layers in the arrays of stacks, and single layers: views where these axes are in front, else copies.
 *
 *   path "blocks/{@1}/kernel", array [2, n, 4]  ->  axes {1};  in front: [n, 2, 4];  layer i: [:, i, :] */
#include "src/io/tensors.h"
#include "src/params/params.h"
#include "tow/ops.h"

/* Some axes of an array, walked over in this order. */
typedef struct walk {
    int rank;
    size_t size; /* of an element */
    int64_t dims[TOW_MAX_RANK], strides[TOW_MAX_RANK];
} walk;

/* Elements from `axis` on, one after the other in `*row`, to or from their places. */
static void move(const walk *w, int axis, char *whole, char **row, bool put)
{
    const bool last = axis + 1 >= w->rank, together = last && (w->rank == 0 || w->strides[axis] == 1);
    const int64_t n = w->rank == 0 ? 1 : w->dims[axis];
    if (last) {
        const size_t bytes = w->size * (together ? (size_t)n : 1);
        for (int64_t i = 0; i < (together ? 1 : n) && bytes > 0; i++, *row += bytes) {
            char *there = together ? whole : whole + (size_t)(i * w->strides[axis]) * w->size;
            memcpy(put ? there : *row, put ? *row : there, bytes);
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) move(w, axis + 1, whole + (size_t)(i * w->strides[axis]) * w->size, row, put);
}

/* A walk over all axes of `type` but the first n of `axes`, before which these n stand if `front` says so. */
static walk make_walk(tow_type type, int n, const int *axes, bool front, int64_t *strides)
{
    walk w = {.size = tow_dtype_size(type.dtype)};
    bool taken[TOW_MAX_RANK] = {false};
    int64_t stride = 1;
    for (int i = type.rank - 1; i >= 0; --i) {
        strides[i] = stride;
        stride *= type.dims[i];
    }
    for (int i = 0; i < n; i++) {
        taken[axes[i]] = true;
        if (!front) continue;
        w.dims[w.rank] = type.dims[axes[i]];
        w.strides[w.rank++] = strides[axes[i]];
    }
    for (int i = 0; i < type.rank; i++) {
        if (taken[i]) continue;
        w.dims[w.rank] = type.dims[i];
        w.strides[w.rank++] = strides[i];
    }
    return w;
}

/* The first n axes of layers are in front already. */
static bool are_in_front(int n, const int *axes)
{
    int i = 0;
    while (i < n && axes[i] == i) i++;
    return i == n;
}

/* The order of all axes with the n in front. */
static void order_axes(int rank, int n, const int *axes, int *order)
{
    bool taken[TOW_MAX_RANK] = {false};
    for (int l = 0; l < n; l++) {
        order[l] = axes[l];
        taken[axes[l]] = true;
    }
    for (int i = 0; i < rank; i++)
        if (!taken[i]) order[n++] = i;
}

/* ---- whole arrays ------------------------------------------------------------------------------------------------ */

bool tow__path_in_front(const char *path, int rank)
{
    int axes[TOW_MAX_RANK];
    return are_in_front(tow__path_axes(path, rank, axes), axes);
}

tow_type tow__type_in_front(const char *path, tow_type type)
{
    int axes[TOW_MAX_RANK];
    int64_t strides[TOW_MAX_RANK];
    const walk w = make_walk(type, tow__path_axes(path, type.rank, axes), axes, true, strides);
    return tow_make_type(type.dtype, w.rank, w.dims);
}

tow_type tow__type_from_front(const char *path, tow_type front)
{
    int axes[TOW_MAX_RANK], order[TOW_MAX_RANK];
    tow_type type = front;
    order_axes(front.rank, tow__path_axes(path, front.rank, axes), axes, order);
    for (int i = 0; i < front.rank; i++) type.dims[order[i]] = front.dims[i];
    return type;
}

void tow__put_from_front(const char *path, tow_array *array, const void *front)
{
    int axes[TOW_MAX_RANK];
    int64_t strides[TOW_MAX_RANK];
    const tow_type type = tow_array_type(array);
    const walk w = make_walk(type, tow__path_axes(path, type.rank, axes), axes, true, strides);
    char *from = (char *)(uintptr_t)front; /* only read */
    if (tow_type_element_count(type) > 0) move(&w, 0, tow_array_data(array), &from, true);
}

tow_status tow__array_in_front(tow_context *ctx, const char *path, tow_array *array, tow_array **front)
{
    int axes[TOW_MAX_RANK];
    int64_t strides[TOW_MAX_RANK];
    const tow_type type = tow_array_type(array);
    const int levels = tow__path_axes(path, type.rank, axes);
    *front = NULL;
    if (are_in_front(levels, axes)) {
        *front = tow_array_retain(array);
        return TOW_OK;
    }
    const walk w = make_walk(type, levels, axes, true, strides);
    tow_status status = tow_array_create(ctx, tow_make_type(type.dtype, w.rank, w.dims), front);
    if (status || tow_type_element_count(type) == 0) return status;
    char *to = tow_array_data(*front);
    move(&w, 0, tow_array_data(array), &to, false);
    return TOW_OK;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

tow_value tow__axes_to_front(tow_value x, int n, const int *axes)
{
    int order[TOW_MAX_RANK];
    if (are_in_front(n, axes) || tow_is_null(x)) return x;
    const int rank = tow_value_type(x).rank;
    order_axes(rank, n, axes, order);
    return tow_transpose(x, rank, order);
}

tow_value tow__axes_from_front(tow_value x, int n, const int *axes)
{
    int order[TOW_MAX_RANK], back[TOW_MAX_RANK];
    if (are_in_front(n, axes) || tow_is_null(x)) return x;
    const int rank = tow_value_type(x).rank;
    order_axes(rank, n, axes, order);
    for (int i = 0; i < rank; i++) back[order[i]] = i;
    return tow_transpose(x, rank, back);
}

/* ---- single layers ----------------------------------------------------------------------------------------------- */

/* The place of the layer in the data, if it has one. */
static char *layer_data(const tow_params *p, uint32_t i, int levels, const int *axes, const int64_t *strides,
                        const int64_t *index)
{
    int64_t at = 0;
    for (int l = 0; l < levels; l++) at += index[l] * strides[axes[l]];
    return (char *)tow_array_data(p->arrays[i]) + (size_t)at * tow_dtype_size(p->types[i].dtype);
}

tow_status tow__array_layer(tow_context *ctx, tow_array *array, int levels, const int64_t *index, tow_array **view)
{
    *view = tow_array_retain(array);
    for (int i = 0; i < levels; i++) {
        tow_array *row = NULL;
        tow_status status = tow__array_row(ctx, *view, index[i], &row);
        tow_array_release(*view);
        *view = row;
        if (status) return status;
    }
    return TOW_OK;
}

tow_status tow__params_layer(const tow_params *p, uint32_t i, int levels, const int64_t *index, tow_array **layer)
{
    int axes[TOW_MAX_RANK];
    int64_t strides[TOW_MAX_RANK];
    const tow_type type = p->types[i];
    tow__path_axes(p->names.names[i], type.rank, axes);
    if (are_in_front(levels, axes)) return tow__array_layer(p->ctx, p->arrays[i], levels, index, layer);
    *layer = NULL;
    for (int l = 0; l < levels; l++)
        if (index[l] < 0 || index[l] >= type.dims[axes[l]]) return TOW_INVALID_ARGUMENT;
    const walk w = make_walk(type, levels, axes, false, strides);
    tow_status status = tow_array_create(p->ctx, tow_make_type(type.dtype, w.rank, w.dims), layer);
    if (status || tow_type_element_count(tow_array_type(*layer)) == 0) return status;
    char *to = tow_array_data(*layer);
    move(&w, 0, layer_data(p, i, levels, axes, strides, index), &to, false);
    return TOW_OK;
}

void tow__params_put_layer(const tow_params *p, uint32_t i, const int64_t *index, const void *layer)
{
    int axes[TOW_MAX_RANK];
    int64_t strides[TOW_MAX_RANK];
    const int levels = tow__path_axes(p->names.names[i], p->types[i].rank, axes);
    const walk w = make_walk(p->types[i], levels, axes, false, strides);
    char *from = (char *)(uintptr_t)layer; /* only read */
    if (tow_type_element_count(tow_make_type(p->types[i].dtype, w.rank, w.dims)) > 0)
        move(&w, 0, layer_data(p, i, levels, axes, strides, index), &from, true);
}

/* The number of layers of an array along each of its axes of layers; returns how many axes these are. */
static int layer_dims(const tow_params *p, uint32_t i, int64_t *dims)
{
    int axes[TOW_MAX_RANK];
    const int levels = tow__path_axes(p->names.names[i], p->types[i].rank, axes);
    for (int l = 0; l < levels; l++) dims[l] = p->types[i].dims[axes[l]];
    return levels;
}

int64_t tow__params_rows(const tow_params *p, uint32_t i)
{
    int64_t rows = 1, dims[TOW_MAX_RANK];
    for (int l = layer_dims(p, i, dims) - 1; l >= 0; --l) rows *= dims[l];
    return rows;
}

void tow__params_row_index(const tow_params *p, uint32_t i, int64_t row, int64_t *index)
{
    int64_t dims[TOW_MAX_RANK];
    for (int l = layer_dims(p, i, dims) - 1; l >= 0; --l) {
        index[l] = row % dims[l];
        row /= dims[l];
    }
}

void tow__params_put_copies(const tow_params *p, const tow_tensors *tensors)
{
    size_t next = 0;
    for (uint32_t i = 0; i < p->names.count; i++) {
        const int64_t rows = tow__params_rows(p, i);
        const bool views = tow__path_in_front(p->names.names[i], p->types[i].rank);
        for (int64_t row = 0; row < rows; row++, next++) {
            int64_t index[TOW_MAX_RANK];
            if (views) continue;
            tow__params_row_index(p, i, row, index);
            tow__params_put_layer(p, i, index, tow_array_data(tensors->items[next].array));
        }
    }
}
