/* Elements as C has them: their types, and how one becomes another. Tables by dtype are written with
 * TOW__DTYPE_TYPES. */
#ifndef TOW_SRC_NUMBERS_H
#define TOW_SRC_NUMBERS_H

#include <math.h>
#include <string.h>

#include "src/base/dtypes.h"

typedef float f32;
typedef double f64;
typedef int32_t i32;
typedef uint32_t u32;
typedef uint8_t b8;         /* a bool in memory: 0 or 1 */
typedef uint16_t bf16, f16; /* floats of 16 bits, as their bits */
typedef int8_t i8;
typedef uint8_t u8;
typedef int64_t i64;
typedef uint64_t u64;

/* X(dtype, its elements in C) */
#define TOW__FLOAT_TYPES(X)                                                                                            \
    X(TOW_F32, f32)                                                                                                    \
    X(TOW_F64, f64)                                                                                                    \
    X(TOW_BF16, bf16)                                                                                                  \
    X(TOW_F16, f16)
#define TOW__SIGNED_TYPES(X)                                                                                           \
    X(TOW_I32, i32)                                                                                                    \
    X(TOW_I8, i8)                                                                                                      \
    X(TOW_I64, i64)
#define TOW__UNSIGNED_TYPES(X)                                                                                         \
    X(TOW_U32, u32)                                                                                                    \
    X(TOW_U8, u8)                                                                                                      \
    X(TOW_U64, u64)
#define TOW__INTEGER_TYPES(X) TOW__SIGNED_TYPES(X) TOW__UNSIGNED_TYPES(X)
#define TOW__DTYPE_TYPES(X)   TOW__FLOAT_TYPES(X) TOW__INTEGER_TYPES(X) X(TOW_BOOL, b8)

/* ---- floats of 16 bits ------------------------------------------------------------------------------------------- */

/* All of this is integer arithmetic, so subnormal numbers survive where arithmetic flushes them. */

static inline u32 tow__bits_of_f32(f32 x)
{
    union {
        f32 f;
        u32 u;
    } v = {x};
    return v.u;
}
static inline f32 tow__f32_of_bits(u32 bits)
{
    union {
        u32 u;
        f32 f;
    } v = {bits};
    return v.f;
}

static inline f32 tow__from_bf16(bf16 x) { return tow__f32_of_bits((u32)x << 16); }

/* To nearest, ties to even; a NaN becomes the quiet one of its sign. */
static inline bf16 tow__bits_to_bf16(u32 bits)
{
    const u32 nan = (bits >> 16 & 0x8000) | 0x7FC0, rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return (bf16)((bits & 0x7FFFFFFF) > 0x7F800000 ? nan : rounded);
}

/* A subnormal f16 is a multiple of 2^-24. The sign goes back in by its bit: the other bits tell nothing of it. */
static inline f32 tow__from_f16(f16 x)
{
    const u32 sign = (u32)(x & 0x8000) << 16, magnitude = x & 0x7FFF;
    const u32 normal = (magnitude << 13) + 0x38000000, special = (magnitude << 13) | 0x7F800000;
    const u32 small = tow__bits_of_f32((f32)(i32)magnitude * 0x1p-24F);
    return tow__f32_of_bits(sign | (magnitude >= 0x7C00 ? special : magnitude >= 0x400 ? normal : small));
}

/* To nearest, ties to even. Numbers below 2^-14 are rounded to a multiple of 2^-24 by adding a number whose last bit
 * that is. */
static inline f16 tow__bits_to_f16(u32 bits)
{
    const u32 sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    const u32 small = tow__bits_of_f32(tow__f32_of_bits(magnitude) + 0.5F) - 0x3F000000;
    const u32 normal = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    const u32 finite = magnitude < 0x38800000 ? small : normal;
    const u32 special = magnitude > 0x7F800000 ? 0x7E00 : 0x7C00;
    return (f16)(sign | (magnitude >= 0x477FF000 ? special : finite)); /* from 65520 on: infinite */
}

/* The bits of x as an f32, rounded to odd: what lies between two numbers becomes the one whose last bit is 1. Rounding
 * that once more, to a type with at least two bits less, gives what rounding x once gives. */
static inline u32 tow__odd_of_f64(f64 x)
{
    union {
        f64 f;
        u64 u;
    } v = {x};
    const u32 sign = (u32)(v.u >> 32) & 0x80000000U;
    const u64 magnitude = v.u & INT64_MAX, mantissa = (magnitude & 0xFFFFFFFFFFFFF) | 0x10000000000000;
    const int exponent = (int)(magnitude >> 52);
    if (magnitude > 0x7FF0000000000000) return sign | 0x7FC00000;
    if (magnitude == 0x7FF0000000000000) return sign | 0x7F800000;
    if (exponent >= 1023 + 128) return sign | 0x7F7FFFFF;
    if (exponent > 1023 - 127)
        return sign | (u32)((magnitude - ((u64)(1023 - 127) << 52)) >> 29) | ((magnitude & 0x1FFFFFFF) != 0);
    const int shift = 926 - exponent; /* subnormal: multiples of 2^-149 */
    if (shift >= 53) return sign | (magnitude != 0);
    return sign | (u32)(mantissa >> shift) | ((mantissa & (((u64)1 << shift) - 1)) != 0);
}

/* The same of an integer. */
static inline u32 tow__odd_of_u64(u64 x, bool negative)
{
    const int shift = x >> 25 == 0 ? 0 : 39 - __builtin_clzll(x); /* 25 bits are kept */
    const u64 kept = (x >> shift) | ((x & (((u64)1 << shift) - 1)) != 0);
    const f64 value = (f64)(i64)kept * (f64)((u64)1 << shift);
    return tow__odd_of_f64(negative ? -value : value);
}
static inline u32 tow__odd_of_i64(i64 x) { return tow__odd_of_u64(x < 0 ? 0 - (u64)x : (u64)x, x < 0); }

/* ---- floats to integers: toward zero, saturating, NaN to 0 ------------------------------------------------------- */

#define TOW__TO_INTEGER(T, LEAST, MOST, ABOVE)                                                                         \
    static inline T tow__to_##T(f64 x)                                                                                 \
    {                                                                                                                  \
        if (x != x) return 0;                                                                                          \
        return x <= (f64)(LEAST) ? (LEAST) : x >= (ABOVE) ? (MOST) : (T)x;                                             \
    }
TOW__TO_INTEGER(i8, INT8_MIN, INT8_MAX, 0x1p7)
TOW__TO_INTEGER(u8, 0, UINT8_MAX, 0x1p8)
TOW__TO_INTEGER(i32, INT32_MIN, INT32_MAX, 0x1p31)
TOW__TO_INTEGER(u32, 0, UINT32_MAX, 0x1p32)
TOW__TO_INTEGER(i64, INT64_MIN, INT64_MAX, 0x1p63)
TOW__TO_INTEGER(u64, 0, UINT64_MAX, 0x1p64)
#undef TOW__TO_INTEGER

#endif
