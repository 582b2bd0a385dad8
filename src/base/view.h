/* The places of the elements of a value: what rules about layouts and tiling see of an operand or a result. */
#ifndef TOW_SRC_VIEW_H
#define TOW_SRC_VIEW_H

#include "tow/base.h"

/* Elements of a storage: `offset` and `strides` count elements of type.dtype. */
typedef struct tow__view {
    uint32_t storage; /* the plan's number of it */
    tow_type type;
    int64_t offset;
    int64_t strides[TOW_MAX_RANK];
} tow__view;

/* Row-major view of a whole storage. */
tow__view tow__view_whole(uint32_t storage, tow_type type);
/* True if y, which is x with another shape of as many elements, can be a view: fills it. */
bool tow__view_reshape(const tow__view *x, tow_type type, tow__view *y);
bool tow__view_contiguous(const tow__view *x);
/* The same elements in the same order. */
bool tow__view_same(const tow__view *x, const tow__view *y);

#endif
