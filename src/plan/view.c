/* Primitives that only rearrange elements become views: offset and strides, no step and no copy. */
#include "src/plan/plan.h"

static bool view_broadcast(const void *params, const tow__view *x, tow_type type, tow__view *y)
{
    const tow__broadcast_params *p = params;
    for (int i = 0; i < type.rank; i++) y->strides[i] = 0;
    for (int i = 0; i < x->type.rank; i++)
        if (x->type.dims[i] == type.dims[p->axes.v[i]]) y->strides[p->axes.v[i]] = x->strides[i];
    return true;
}

static bool view_transpose(const void *params, const tow__view *x, tow_type type, tow__view *y)
{
    const tow__transpose_params *p = params;
    for (int i = 0; i < type.rank; i++) y->strides[i] = x->strides[p->permutation.v[i]];
    return true;
}

/* Offsets stay inside the storage when the result is empty; a stride between no two elements may be any number. */
static bool view_slice(const void *params, const tow__view *x, tow_type type, tow__view *y)
{
    const tow__slice_params *p = params;
    for (int i = 0; i < type.rank; i++) {
        int64_t stride = i < p->stride.n && type.dims[i] > 1 ? p->stride.v[i] : 1;
        if (tow_type_count(type)) y->offset += p->start.v[i] * x->strides[i];
        y->strides[i] = x->strides[i] * stride;
    }
    return true;
}

static bool view_rev(const void *params, const tow__view *x, tow_type type, tow__view *y)
{
    const tow__axes_params *p = params;
    for (int i = 0; i < p->axes.n; i++) {
        int64_t axis = p->axes.v[i];
        if (tow_type_count(type)) y->offset += (type.dims[axis] - 1) * x->strides[axis];
        y->strides[axis] = -x->strides[axis];
    }
    return true;
}

static bool view_reshape(const void *params, const tow__view *x, tow_type type, tow__view *y)
{
    (void)params;
    return tow__view_reshape(x, type, y);
}

static const struct {
    const char *primitive;
    bool (*view)(const void *params, const tow__view *x, tow_type type, tow__view *y);
} moves[] = {
    {"broadcast_in_dim", view_broadcast}, {"reshape", view_reshape}, {"rev", view_rev}, {"slice", view_slice},
    {"transpose", view_transpose},
};

bool tow__view_is_move(const tow_primitive *primitive)
{
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        if (strcmp(moves[i].primitive, primitive->name) == 0) return true;
    return false;
}

bool tow__view_of(const tow__equation *e, const tow__view *x, tow_type type, tow__view *y)
{
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        if (strcmp(moves[i].primitive, e->primitive->name) != 0) continue;
        *y = *x;
        y->type = type;
        return moves[i].view(e->params, x, type, y);
    }
    return false;
}

/* Walks both shapes from the front: a group of axes of x that holds as many elements as a group of axes of y must be
 * evenly strided to be split or merged. */
bool tow__view_reshape(const tow__view *x, tow_type type, tow__view *y)
{
    tow__view result = *x;
    int64_t dims[TOW_MAX_RANK], strides[TOW_MAX_RANK];
    int n = 0;
    result.type = type;
    for (int i = 0; i < TOW_MAX_RANK; i++) result.strides[i] = 0;
    if (tow_type_count(type) == 0) {
        *y = tow__view_whole(x->storage, type);
        return true;
    }
    for (int i = 0; i < x->type.rank;
         i++) { /* axes of size 1 say nothing; neighbours that are evenly strided are one axis */
        if (x->type.dims[i] == 1) continue;
        if (n && strides[n - 1] == x->strides[i] * x->type.dims[i]) {
            dims[n - 1] *= x->type.dims[i];
            strides[n - 1] = x->strides[i];
        } else {
            dims[n] = x->type.dims[i];
            strides[n++] = x->strides[i];
        }
    }
    int axis = type.rank - 1;
    for (int i = n - 1; i >= 0; i--) { /* each such axis of x is split into axes of y */
        int64_t rest = dims[i], stride = strides[i];
        while (rest > 1) {
            while (axis >= 0 && type.dims[axis] == 1) axis--;
            if (axis < 0 || rest % type.dims[axis]) return false;
            result.strides[axis] = stride;
            stride *= type.dims[axis];
            rest /= type.dims[axis--];
        }
    }
    *y = result;
    return true;
}

tow__view tow__view_whole(uint32_t storage, tow_type type)
{
    tow__view view = {.storage = storage, .type = type};
    int64_t stride = 1;
    for (int i = type.rank - 1; i >= 0; i--) {
        view.strides[i] = stride;
        stride *= type.dims[i];
    }
    return view;
}

bool tow__view_contiguous(const tow__view *x)
{
    int64_t stride = 1;
    for (int i = x->type.rank - 1; i >= 0; i--) {
        if (x->type.dims[i] != 1 && x->strides[i] != stride) return false;
        stride *= x->type.dims[i];
    }
    return true;
}

bool tow__view_same(const tow__view *x, const tow__view *y)
{
    if (x->storage != y->storage || x->offset != y->offset || !tow_type_equal(x->type, y->type)) return false;
    for (int i = 0; i < x->type.rank; i++)
        if (x->type.dims[i] != 1 && x->strides[i] != y->strides[i]) return false;
    return true;
}

tow__buffer tow__view_buffer(const tow__view *x)
{
    tow__buffer buffer = {.dtype = x->type.dtype, .rank = x->type.rank};
    memcpy(buffer.dims, x->type.dims, sizeof buffer.dims);
    memcpy(buffer.strides, x->strides, sizeof buffer.strides);
    return buffer;
}

bool tow__is_whole(const tow_program *p, const tow__view *x)
{
    return x->offset == 0 && tow__view_contiguous(x) && p->storages[x->storage].bytes == tow_type_bytes(x->type);
}
