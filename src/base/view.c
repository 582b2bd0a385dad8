/* Views that need no plan: whole values, reshaping, comparing. */
#include "src/base/view.h"

/* Walks both shapes from the front: a group of axes of x that holds as many elements as a group of axes of y must be
 * evenly strided to be split or merged. */
bool tow__view_reshape(const tow__view *x, tow_type type, tow__view *y)
{
    tow__view result = *x;
    int64_t dims[TOW_MAX_RANK], strides[TOW_MAX_RANK];
    int n = 0;
    result.type = type;
    for (int i = 0; i < TOW_MAX_RANK; i++) result.strides[i] = 0;
    if (tow_type_element_count(type) == 0) {
        *y = tow__view_whole(x->storage, type);
        return true;
    }
    for (int i = 0; i < x->type.rank;
         i++) { /* axes of size 1 say nothing; neighbors that are evenly strided are one axis */
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
