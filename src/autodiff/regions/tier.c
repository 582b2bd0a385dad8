/* Kept states of which the first ones are in a file (src/ops/spill.c): slot i < file_rows is there, the others are rows
 * of a stack. See schedule.h. */
#include "src/autodiff/regions/schedule.h"

/* The row of a stack. */
static tow_type row_type(tow_value stack)
{
    tow_type type = tow_value_type(stack);
    type.rank--;
    memmove(type.dims, type.dims + 1, (size_t)type.rank * sizeof type.dims[0]);
    type.dims[type.rank] = 0;
    return type;
}

tow_value tow__empty_stack(tow_trace *t, tow_type row, int64_t n)
{
    const tow_type type = tow__stack_of(row, n);
    tow__empty_params p = {.dtype = type.dtype, .shape = {.n = type.rank}};
    memcpy(p.shape.v, type.dims, sizeof p.shape.v);
    return tow__bind1(t, &tow__empty_p, &p, 0, NULL);
}

bool tow__tier_begin(tow_trace *t, tow__tier *tier, int64_t file_rows, size_t n, const tow_type *states)
{
    tow_value *values = file_rows > 0 ? tow__trace_alloc(t, 2 * n, sizeof *values) : NULL;
    *tier = (tow__tier){.file_rows = file_rows, .values = values};
    if (file_rows == 0) return true;
    for (size_t c = 0; values && c < n; c++) {
        const tow_type row = tow__stack_row(states[c]);
        tow__spill_params p = {.dtype = row.dtype, .shape = {.n = row.rank}, .file_rows = file_rows};
        memcpy(p.shape.v, row.dims, sizeof p.shape.v);
        tow__bind(t, &tow__spill_p, &p, 0, NULL, 2, values + 2 * c);
    }
    return values && !tow__failed(t);
}

tow_value tow__tier_read(tow_trace *t, const tow__tier *tier, size_t c, tow_value stack, tow_value slot, tow_type type)
{
    const tow__spill_rows_params p = {.file_rows = tier->file_rows};
    if (tier->file_rows == 0) return tow__row_at(stack, slot, type);
    const tow_value operands[] = {tow__import(t, stack), slot, tow__import(t, tier->values[2 * c]),
                                  tow__import(t, tier->values[2 * c + 1])};
    return tow__in_shape(tow__bind1(t, &tow__spill_read_p, &p, 4, operands), type);
}

tow_value tow__tier_write(tow_trace *t, const tow__tier *tier, size_t c, tow_value stack, tow_value state,
                          tow_value slot)
{
    const tow__spill_rows_params p = {.file_rows = tier->file_rows};
    if (tier->file_rows == 0) return tow__with_row(t, stack, state, slot);
    const tow_value operands[] = {stack, tow__in_shape(state, row_type(stack)), slot,
                                  tow__import(t, tier->values[2 * c]), tow__import(t, tier->values[2 * c + 1])};
    return tow__bind1(t, &tow__spill_write_p, &p, 5, operands);
}
