/* Rounding of many floats to 16 bits: what numbers.h says of one, in steps that have 32 bits each, so that loops over
 * them become vector instructions of one width. */
#ifndef TOW_SRC_KERNELS_HALVES_H
#define TOW_SRC_KERNELS_HALVES_H

#include "src/base/numbers.h"

/* The bits of a bf16 in the upper half; the lower half is of no meaning. Adding half of the last place, less 1 if the
 * number above is even, rounds to nearest; a NaN becomes the quiet one of its sign. */
static inline u32 tow__rounded_to_bf16(u32 bits)
{
    const u32 rounded = bits + 0x7FFF + (bits >> 16 & 1), nan = (bits & 0x80000000U) | 0x7FC00000;
    return (i32)(bits & 0x7FFFFFFF) > 0x7F800000 ? nan : rounded;
}

#endif
