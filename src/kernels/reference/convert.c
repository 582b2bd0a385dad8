/* convert, from every element type to every other: floats are rounded once, to nearest with ties to even; floats become
 * integers toward zero, saturating, NaN 0; integers wrap; a bool is what is not 0. NaNs that become floats of 16 bits
 * lose their payload and keep their sign, subnormal numbers stay what they are. */
#include "src/kernels/reference/convert.h"

#include "src/kernels/halves.h"

#define CONVERT(FROM, TO, expression)                                                                                  \
    TOW__CLONES static void FROM##_to_##TO(int64_t n, void *const *out, const void *const *in, const void *params)     \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const FROM *px = in[0];                                                                                        \
        TO *y = out[0];                                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const FROM x = px[i];                                                                                      \
            y[i] = (TO)(expression);                                                                                   \
        }                                                                                                              \
    }

/* value: x as a number of C; odd: as an f32 that is rounded to odd where it is not exact */
#define FROM_FLOAT(F, value)                                                                                           \
    CONVERT(F, i32, tow__to_i32((f64)value))                                                                           \
    CONVERT(F, u32, tow__to_u32((f64)value))                                                                           \
    CONVERT(F, i8, tow__to_i8((f64)value))                                                                             \
    CONVERT(F, u8, tow__to_u8((f64)value))                                                                             \
    CONVERT(F, i64, tow__to_i64((f64)value))                                                                           \
    CONVERT(F, u64, tow__to_u64((f64)value))                                                                           \
    CONVERT(F, b8, (value) != 0)
#define FROM_INTEGER(F, odd)                                                                                           \
    CONVERT(F, f32, x)                                                                                                 \
    CONVERT(F, f64, x)                                                                                                 \
    CONVERT(F, bf16, tow__bits_to_bf16(odd))                                                                           \
    CONVERT(F, f16, tow__bits_to_f16(odd))                                                                             \
    CONVERT(F, i32, x)                                                                                                 \
    CONVERT(F, u32, x)                                                                                                 \
    CONVERT(F, i8, x)                                                                                                  \
    CONVERT(F, u8, x)                                                                                                  \
    CONVERT(F, i64, x)                                                                                                 \
    CONVERT(F, u64, x)                                                                                                 \
    CONVERT(F, b8, x != 0)

FROM_FLOAT(f32, x)
CONVERT(f32, f32, x)
CONVERT(f32, f64, x)
CONVERT(f32, bf16, tow__rounded_to_bf16(tow__bits_of_f32(x)) >> 16)
CONVERT(f32, f16, tow__bits_to_f16(tow__bits_of_f32(x)))

FROM_FLOAT(f64, x)
CONVERT(f64, f32, x)
CONVERT(f64, f64, x)
CONVERT(f64, bf16, tow__bits_to_bf16(tow__odd_of_f64(x)))
CONVERT(f64, f16, tow__bits_to_f16(tow__odd_of_f64(x)))

FROM_FLOAT(bf16, tow__from_bf16(x))
CONVERT(bf16, f32, tow__from_bf16(x))
CONVERT(bf16, f64, tow__from_bf16(x))
CONVERT(bf16, bf16, x)
CONVERT(bf16, f16, tow__bits_to_f16((u32)x << 16))

FROM_FLOAT(f16, tow__from_f16(x))
CONVERT(f16, f32, tow__from_f16(x))
CONVERT(f16, f64, tow__from_f16(x))
CONVERT(f16, bf16, tow__bits_to_bf16(tow__bits_of_f32(tow__from_f16(x))))
CONVERT(f16, f16, x)

FROM_INTEGER(i32, tow__odd_of_i64(x))
FROM_INTEGER(u32, tow__odd_of_u64(x, false))
FROM_INTEGER(i8, tow__bits_of_f32(x))
FROM_INTEGER(u8, tow__bits_of_f32(x))
FROM_INTEGER(i64, tow__odd_of_i64(x))
FROM_INTEGER(u64, tow__odd_of_u64(x, false))
FROM_INTEGER(b8, tow__bits_of_f32(x))

/* clang-format off */
#define ROW(FROM)                                                                                                      \
    {[TOW_F32] = FROM##_to_f32, [TOW_F64] = FROM##_to_f64, [TOW_BF16] = FROM##_to_bf16, [TOW_F16] = FROM##_to_f16,     \
     [TOW_I32] = FROM##_to_i32, [TOW_U32] = FROM##_to_u32, [TOW_I8] = FROM##_to_i8, [TOW_U8] = FROM##_to_u8,           \
     [TOW_I64] = FROM##_to_i64, [TOW_U64] = FROM##_to_u64, [TOW_BOOL] = FROM##_to_b8}
/* clang-format on */

tow__tile tow__convert_tile(tow_dtype from, tow_dtype to)
{
#define X(symbol, T) [symbol] = ROW(T),
    static const tow__tile tiles[TOW_DTYPE_END][TOW_DTYPE_END] = { TOW__DTYPE_TYPES(X) };
#undef X
    return tiles[from][to];
}
