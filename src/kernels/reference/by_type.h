/* Tables of functions by element type: entries for the functions NAME_f32, NAME_i8, ... that a file makes from a
 * macro. */
#ifndef TOW_SRC_KERNELS_REFERENCE_BY_TYPE_H
#define TOW_SRC_KERNELS_REFERENCE_BY_TYPE_H

#include "tow/base.h"

#define FLOATS(name) [TOW_F32] = name##_f32, [TOW_F64] = name##_f64
#define INTEGERS(name)                                                                                                 \
    [TOW_I8] = name##_i8, [TOW_U8] = name##_u8, [TOW_I32] = name##_i32, [TOW_U32] = name##_u32,                        \
    [TOW_I64] = name##_i64, [TOW_U64] = name##_u64
/* Of sums, products and bit operations, which are those of unsigned integers. */
#define WORDS(name)                                                                                                    \
    [TOW_I8] = name##_u8, [TOW_U8] = name##_u8, [TOW_I32] = name##_u32, [TOW_U32] = name##_u32,                        \
    [TOW_I64] = name##_u64, [TOW_U64] = name##_u64

#endif
