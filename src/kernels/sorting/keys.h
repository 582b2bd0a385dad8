/* Elements as unsigned integers of the same order, for sorting.
 *
 * tow__sort_key_T: -0 equals 0, all NaNs are equal and above the rest. tow__total_key_T: the total order of IEEE 754,
 * in which a NaN with sign is below and one without above all numbers, and -0 below 0. */
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

/* Floats of 16 bits are their bits. INFINITE: those of infinity. */
#define TOW__HALF_KEYS(T, INFINITE)                                                                                    \
    TOW__INLINE uint64_t tow__total_key_##T(T x) { return (T)(x >> 15 ? ~x : x | 0x8000); }                            \
    TOW__INLINE uint64_t tow__sort_key_##T(T x)                                                                        \
    {                                                                                                                  \
        const T magnitude = x & 0x7FFF;                                                                                \
        return magnitude > (INFINITE) ? (T)-1 : tow__total_key_##T(magnitude == 0 ? 0 : x);                            \
    }
TOW__HALF_KEYS(bf16, 0x7F80)
TOW__HALF_KEYS(f16, 0x7C00)
#undef TOW__HALF_KEYS

#define TOW__INTEGER_KEYS(T, U, FLIP)                                                                                  \
    TOW__INLINE uint64_t tow__total_key_##T(T x) { return (U)((U)x ^ (FLIP)); }                                        \
    TOW__INLINE uint64_t tow__sort_key_##T(T x) { return tow__total_key_##T(x); }
TOW__INTEGER_KEYS(i8, u8, 0x80U)
TOW__INTEGER_KEYS(u8, u8, 0U)
TOW__INTEGER_KEYS(i32, u32, 0x80000000U)
TOW__INTEGER_KEYS(u32, u32, 0U)
TOW__INTEGER_KEYS(i64, u64, 0x8000000000000000U)
TOW__INTEGER_KEYS(u64, u64, 0U)
#undef TOW__INTEGER_KEYS
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
