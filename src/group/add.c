/* Sums of two arrays, element by element: the nodes of the tree over row groups. */
#include "src/base/clones.h"
#include "src/base/numbers.h"
#include "src/group/group.h"

/* Sums are made in place, which vectorizes: into[i] = into[i] + other[i], or other[i] + into[i]. The order of the
 * operands shows in nothing but the bits of NaN. */
#define ADD(T, name, expression)                                                                                       \
    TOW__CLONES static void add_##name(void *into, const void *other, bool other_is_left, int64_t n)                   \
    {                                                                                                                  \
        T *restrict s = into;                                                                                          \
        const T *restrict o = other;                                                                                   \
        for (int64_t i = 0; other_is_left && i < n; i++) {                                                             \
            const T a = o[i], b = s[i];                                                                                \
            s[i] = expression;                                                                                         \
        }                                                                                                              \
        for (int64_t i = 0; !other_is_left && i < n; i++) {                                                            \
            const T a = s[i], b = o[i];                                                                                \
            s[i] = expression;                                                                                         \
        }                                                                                                              \
    }
ADD(f32, f32, a + b)
ADD(f64, f64, a + b)
ADD(bf16, bf16, tow__bits_to_bf16(tow__bits_of_f32(tow__from_bf16(a) + tow__from_bf16(b))))
ADD(f16, f16, tow__bits_to_f16(tow__bits_of_f32(tow__from_f16(a) + tow__from_f16(b))))
/* Unsigned arithmetic wraps, and so do signed integers of the same bits. */
ADD(u8, u8, (u8)(a + b))
ADD(u32, u32, a + b)
ADD(u64, u64, a + b)
#undef ADD

static void (*const add[TOW_DTYPE_END])(void *into, const void *other, bool other_is_left, int64_t n) = {
    [TOW_F32] = add_f32, [TOW_F64] = add_f64, [TOW_BF16] = add_bf16, [TOW_F16] = add_f16, [TOW_I8] = add_u8,
    [TOW_U8] = add_u8,   [TOW_I32] = add_u32, [TOW_U32] = add_u32,   [TOW_I64] = add_u64, [TOW_U64] = add_u64};

void tow__add_elements(tow_dtype dtype, void *into, const void *other, bool other_is_left, int64_t n)
{
    if (n > 0) add[dtype](into, other, other_is_left, n);
}
