/* X(name, T, identity, COMBINE) for every reduction over windows and each of its types, which by_type.h collects:
 * FLOATS and WORDS of sum, FLOATS and INTEGERS of max and min. */
#ifndef TOW_SRC_KERNELS_WINDOW_REDUCTIONS_H
#define TOW_SRC_KERNELS_WINDOW_REDUCTIONS_H

#include "src/kernels/math.h"
#include "src/kernels/reference/by_type.h"

#define ADD(a, b)     ((a) + (b))
#define GREATER(a, b) ((a) > (b) ? (a) : (b))
#define LESS(a, b)    ((a) < (b) ? (a) : (b))

#define WINDOW_REDUCTIONS_OF_FLOATS(X, T)                                                                              \
    X(sum, T, 0, ADD)                                                                                                  \
    X(max, T, -(T)INFINITY, tow__max_##T)                                                                              \
    X(min, T, (T)INFINITY, tow__min_##T)
#define WINDOW_REDUCTIONS_OF_INTEGERS(X, T, LEAST, MOST)                                                               \
    X(max, T, LEAST, GREATER)                                                                                          \
    X(min, T, MOST, LESS)
#define WINDOW_REDUCTIONS(X)                                                                                           \
    WINDOW_REDUCTIONS_OF_FLOATS(X, f32)                                                                                \
    WINDOW_REDUCTIONS_OF_FLOATS(X, f64)                                                                                \
    X(sum, u8, 0, ADD)                                                                                                 \
    X(sum, u32, 0, ADD)                                                                                                \
    X(sum, u64, 0, ADD)                                                                                                \
    WINDOW_REDUCTIONS_OF_INTEGERS(X, i8, INT8_MIN, INT8_MAX)                                                           \
    WINDOW_REDUCTIONS_OF_INTEGERS(X, u8, 0, UINT8_MAX)                                                                 \
    WINDOW_REDUCTIONS_OF_INTEGERS(X, i32, INT32_MIN, INT32_MAX)                                                        \
    WINDOW_REDUCTIONS_OF_INTEGERS(X, u32, 0, UINT32_MAX)                                                               \
    WINDOW_REDUCTIONS_OF_INTEGERS(X, i64, INT64_MIN, INT64_MAX)                                                        \
    WINDOW_REDUCTIONS_OF_INTEGERS(X, u64, 0, UINT64_MAX)

#endif
