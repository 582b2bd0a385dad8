/* The rows of a part, of values that do not depend on rows: see rows.h. */
#include "src/autodiff/rows/rows.h"
#include "src/ops/rules.h"
#include "tow/numpy.h"
#include "tow/ops.h"

tow_value tow__rows_cut(const tow__row_walk *w, uint32_t var, int axis)
{
    const tow__row_blocks *b = w->blocks;
    const tow_value x = w->values[var].value;
    if (!tow__is_part(b) || tow_is_null(x)) return x;
    const tow_type type = tow_value_type(x);
    const int64_t rows = type.dims[axis] / b->groups;
    tow_value start[TOW_MAX_RANK];
    for (int a = 0; a < type.rank; a++)
        start[a] = a == axis ? tow_mul_scalar(b->first, (double)rows) : tow_scalar(w->t, TOW_I32, 0);
    return tow_dynamic_slice(x, start, tow__rows_type(b, type, axis).dims);
}
