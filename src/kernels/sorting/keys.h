/* Elements as unsigned integers of the same order, for sorting.
 *
 * tow__sort_key_T: -0 equals 0, all NaNs are equal and above the rest. tow__total_key_T: the total order of IEEE 754, in
 * which a NaN with sign is below and one without above all numbers, and -0 below 0. */
#ifndef TOW_SRC_KERNELS_SORTING_KEYS_H
#define TOW_SRC_KERNELS_SORTING_KEYS_H

#include <string.h>

#include "src/kernels/strided.h"

#define TOW__FLOAT_KEYS(T, U, BITS)                                                                                    \
    TOW__INLINE uint64_t tow__total_key_##T(T x)                                                                       \
    {                                                                                                                  \
        U u;                                                                                                           \
        memcpy(&u, &x, sizeof u);                                                                                      \
        return (U)(u >> (BITS - 1) ? ~u : u | (U)1 << (BITS - 1));                                                     \
    }                                                                                                                  \
    TOW__INLINE uint64_t tow__sort_key_##T(T x) { return x != x ? (U)-1 : tow__total_key_##T(x == 0 ? (T)0 : x); }
TOW__FLOAT_KEYS(f32, u32, 32)
TOW__FLOAT_KEYS(f64, uint64_t, 64)
#undef TOW__FLOAT_KEYS

TOW__INLINE uint64_t tow__total_key_i32(i32 x) { return (u32)x ^ 0x80000000u; }
TOW__INLINE uint64_t tow__sort_key_i32(i32 x) { return tow__total_key_i32(x); }
TOW__INLINE uint64_t tow__total_key_u32(u32 x) { return x; }
TOW__INLINE uint64_t tow__sort_key_u32(u32 x) { return x; }
TOW__INLINE uint64_t tow__sort_key_b8(b8 x) { return x; }

/* Offset in elements of the first element of row r, the rows being those along `axis` in row-major order. */
static inline int64_t tow__row_offset(const tow__buffer *b, int axis, int64_t r)
{
    int64_t offset = 0;
    for (int d = b->rank - 1; d >= 0; d--) {
        if (d == axis) continue;
        offset += r % b->dims[d] * b->strides[d];
        r /= b->dims[d];
    }
    return offset;
}

/* Rows along the axis. */
static inline int64_t tow__row_count(const tow__buffer *b, int axis)
{
    int64_t rows = 1;
    for (int d = 0; d < b->rank; d++) rows *= d == axis ? 1 : b->dims[d];
    return rows;
}

#endif
