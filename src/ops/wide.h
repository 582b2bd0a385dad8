/* Floats of 16 bits are computed in f32: which equations are, and how they are written then.
 *
 *   y: bf16 = f x: bf16   =>   y = convert (f (convert x to f32)) to bf16
 *
 * So every primitive has them, results are rounded once, and whatever is done to f32 programs is done to these. Moves
 * and conversions have kernels of their own, which touch no bits that they need not. */
#ifndef TOW_SRC_OPS_WIDE_H
#define TOW_SRC_OPS_WIDE_H

#include "src/graph/primitive.h"

/* A float type of 16 bits among n types; TOW_DTYPE_END: there is none. */
tow_dtype tow__half_among(size_t n, const tow_type *types);
/* The element type that a product is asked to sum in (parameter `preferred`); TOW_DTYPE_END: none. */
tow_dtype tow__preferred(const tow_primitive *primitive, const void *params);
/* False for regions, calls with custom rules and primitives of users: they have rules and kernels for what they
 * take. */
bool tow__may_be_widened(const tow__equation *e);
/* The last conversions to wider types. Equations next to each other that read one value share its conversion (a
 * function and its slope, which then have their exponential in common); what is further away converts again, so that
 * no wide value lives long. */
typedef struct tow__conversions {
    struct {
        tow_value from, to;
    } last[4];
    uint32_t n; /* in all */
} tow__conversions;
/* Records the equation in the types in which it is computed, and conversions around it. out: types of its results. */
void tow__bind_wide(tow_trace *t, const tow__equation *e, const tow_type *out, const tow_value *x, tow_value *y,
                    tow__conversions *conversions);
/* Records the decomposition of the equation on x, in f32 where there are floats of 16 bits. */
void tow__decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y);

#endif
