/* Rows of arrays along any axis. */
#ifndef TOW_TESTS_ROWS_H
#define TOW_TESTS_ROWS_H

#include <string.h>

#include "tow/base.h"

/* Copies row r of `all`, whose batch axis is `axis`, to `row` or back. */
static inline void copy_row(tow_array *all, int axis, int64_t r, tow_array *row, bool back)
{
    const tow_type type = tow_array_type(row), whole = tow_array_type(all);
    size_t size = tow_dtype_size(type.dtype), before = 1, after = 1;
    if (axis < 0) axis += whole.rank;
    for (int d = 0; d < type.rank; d++) *(d < axis ? &before : &after) *= (size_t)type.dims[d];
    for (size_t i = 0; i < before; i++) {
        char *x = (char *)tow_array_data(all) + (i * (size_t)whole.dims[axis] + (size_t)r) * after * size;
        char *y = (char *)tow_array_data(row) + i * after * size;
        memcpy(back ? x : y, back ? y : x, after * size);
    }
}

#endif
