/* Floats of 16 bits in kernels of f32.
 *
 * Rounding of many floats: what numbers.h says of one, in steps that have 32 bits each, so that loops over them become
 * vector instructions of one width.
 *
 * Operands that are stored in 16 bits (`halves` of a kernel): pieces of them are widened while they are read into rows,
 * tiles and panels. Each number is exact, so the bits are those of the kernel on the widened array. */
#ifndef TOW_SRC_KERNELS_HALVES_H
#define TOW_SRC_KERNELS_HALVES_H

#include "src/base/dtypes.h"
#include "src/base/numbers.h"

/* The bits of a bf16 in the upper half; the lower half is of no meaning. Adding half of the last place, less 1 if the
 * number above is even, rounds to nearest; a NaN becomes the quiet one of its sign. */
static inline u32 tow__rounded_to_bf16(u32 bits)
{
    const u32 rounded = bits + 0x7FFF + (bits >> 16 & 1), nan = (bits & 0x80000000U) | 0x7FC00000;
    return (i32)(bits & 0x7FFFFFFF) > 0x7F800000 ? nan : rounded;
}

/* A tow__gemm names the type of an operand or result if that has 16 bits. */
static inline tow_dtype tow__half_or_none(tow_dtype dtype) { return tow__is_half(dtype) ? dtype : (tow_dtype)0; }

/* y[i] = x[i * stride], n numbers of 16 bits. */
void tow__widen_run(tow_dtype dtype, int64_t n, const void *x, int64_t stride, f32 *y);
/* One number of a float type, in the type in which it is computed: where it lies, or widened in *room. */
const void *tow__widened(tow_dtype dtype, const void *x, f32 *room);

#endif
