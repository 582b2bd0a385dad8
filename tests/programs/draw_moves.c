/* Operations that rearrange and repeat elements. */
#include "tests/programs/draw.h"

static tow_value draw_pad(drawing *d, tow_value x)
{
    const tow_type type = tow_value_type(x);
    int64_t low[TOW_MAX_RANK], high[TOW_MAX_RANK], interior[TOW_MAX_RANK];
    tow_value value = draw(d, 2) ? tow_scalar(d->t, type.dtype, 0) : tow_mul_scalar(tow_reduce_sum(x, 0, NULL), 0.125);
    for (int i = 0; i < type.rank; i++) {
        low[i] = draw(d, 4) - 1;
        high[i] = draw(d, 4) - 1;
        interior[i] = draw(d, 4) == 0;
        const int64_t size = type.dims[i] + (type.dims[i] ? (type.dims[i] - 1) * interior[i] : 0);
        if (size + low[i] + high[i] < 0) low[i] = high[i] = 0;
    }
    return tow_pad(x, value, low, high, draw(d, 2) ? interior : NULL);
}

static tow_value draw_slice(drawing *d, tow_value x)
{
    const tow_type type = tow_value_type(x);
    int64_t start[TOW_MAX_RANK], limit[TOW_MAX_RANK], stride[TOW_MAX_RANK];
    for (int i = 0; i < type.rank; i++) {
        start[i] = draw(d, (int)type.dims[i] / 2 + 1);
        limit[i] = start[i] + draw(d, (int)(type.dims[i] - start[i]) + 1);
        if (draw(d, 2)) limit[i] = type.dims[i];
        stride[i] = 1 + draw(d, 2);
    }
    return tow_slice(x, start, limit, draw(d, 2) ? stride : NULL);
}

/* Another order of the axes. */
static tow_value draw_transpose(drawing *d, tow_value x)
{
    int order[TOW_MAX_RANK];
    const int rank = tow_value_type(x).rank;
    for (int i = 0; i < rank; i++) order[i] = i;
    for (int i = rank - 1; i > 0; i--) {
        const int j = draw(d, i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    return tow_transpose(x, rank, order);
}

/* Two neighboring axes become one, one becomes two, or all one. */
static tow_value draw_reshape(drawing *d, tow_value x)
{
    tow_type type = tow_value_type(x);
    const int axis = draw_axis(d, x);
    if (axis + 1 < type.rank && draw(d, 2)) {
        type.dims[axis] *= type.dims[axis + 1];
        for (int i = axis + 1; i + 1 < type.rank; i++) type.dims[i] = type.dims[i + 1];
        type.rank--;
    } else if (type.rank < MOST_AXES && type.dims[axis] % 2 == 0) {
        for (int i = type.rank; i > axis; i--) type.dims[i] = type.dims[i - 1];
        type.rank++;
        type.dims[axis] = 2;
        type.dims[axis + 1] /= 2;
    } else {
        type = tow_make_type(type.dtype, 1, (int64_t[]){tow_type_element_count(type)});
    }
    return tow_reshape(x, type.rank, type.dims);
}

tow_value draw_move(drawing *d)
{
    tow_value x = draw(d, 6) ? draw_ranked(d, 1) : draw_of(d, draw(d, 2) ? TOW_I32 : TOW_U32);
    if (tow_value_type(x).rank == 0) return tow_expand_dims(x, 0);
    const bool is_float = tow_value_type(x).dtype == d->floats;
    int axis = draw_axis(d, x);
    switch (draw(d, 12)) {
    case 0:
    case 1:
        return draw_transpose(d, x);
    case 2:
    case 3:
        return draw_reshape(d, x);
    case 4:
        return tow_rev(x, 1, &axis);
    case 5:
        return is_float ? draw_pad(d, x) : tow_rev(x, 0, NULL);
    case 6:
        return draw_slice(d, x);
    case 7:
        return tow_expand_dims(x, axis);
    case 8:
        return size_of(x, axis) == 1 ? tow_squeeze(x, axis) : tow_slice_axis(x, axis, 0, size_of(x, axis) / 2);
    case 9:
        return tow_roll(x, draw(d, 5) - 2, axis);
    case 10:
        return tow_value_type(x).rank >= 2 && is_float ? tow_tril(x, draw(d, 3) - 1) : tow_rev(x, 1, &axis);
    default: {
        tow_value parts[] = {x, tow_rev(x, 1, &axis), x};
        return tow_concatenate(2 + (size_t)draw(d, 2), parts, axis);
    }
    }
}

tow_value draw_broadcast(drawing *d)
{
    tow_value x = draw_float(d);
    const tow_type type = tow_value_type(x);
    switch (draw(d, 5)) {
    case 0: /* new axes in front */
        return tow_broadcast_to(
            x, type.rank + 1,
            (int64_t[]){d->sizes[draw(d, 3)], type.dims[0], type.dims[1], type.dims[2], type.dims[3]});
    case 1: { /* and behind */
        int64_t shape[TOW_MAX_RANK + 1];
        int axes[TOW_MAX_RANK];
        for (int i = 0; i < type.rank; i++) shape[i] = type.dims[i], axes[i] = i;
        shape[type.rank] = d->sizes[draw(d, 3)];
        return tow_broadcast_in_dim(x, type.rank + 1, shape, axes);
    }
    case 2:
        return tow_repeat(type.rank ? x : tow_expand_dims(x, 0), draw(d, 3), 0);
    case 3:
        return tow_tile(x, 1, (int64_t[]){draw(d, 3)});
    default: { /* numbers from nothing */
        tow_type same = type;
        same.dtype = d->floats;
        tow_value made = type.rank ? tow_iota(d->t, same, draw(d, type.rank)) : tow_full(d->t, same, 0.75);
        return tow_add(tow_mul_scalar(made, 0.125), x);
    }
    }
}
