/* Rows of operands for kernels that work along one axis, and the row arithmetic of lanes.inc for both float types.
 *
 * Normalization (norm.c), softmax and its relatives (softmax.c) and the cross-entropy of a product
 * (linear_cross_entropy.c) are made of it.
 *
 * Bits. Sums along a row have the order of reductions/reduce.h, whether a row is worked on alone or with others. Sums
 * over rows have parts that the shape fixes and that are added in order. Exponentials and logarithms are those of
 * math_f32.h in f32, of libm in f64. Every instruction set divides as tow__divided_f32 does, by reciprocals.
 *
 * Engines. TOW__CLONES compiles what works on rows once per instruction set, and the loader picks the version. The
 * products of linear_cross_entropy.c run on the engines that tow__gemm_choose finds (products/gemm.h). */
#ifndef TOW_SRC_KERNELS_ROWS_H
#define TOW_SRC_KERNELS_ROWS_H

#include <string.h>

#include "src/kernels/halves.h"
#include "src/kernels/math_f32.h"
#include "src/kernels/reductions/reduce.h"

/* Rows of an operand along one axis: row r starts at element r of `rest`, which has the other axes. */
typedef struct tow__row_view {
    tow__strided rest;
    tow_dtype dtype;
    int64_t length, stride; /* of a row */
} tow__row_view;

static inline tow__row_view tow__rows_of(const tow__buffer *x, int64_t axis)
{
    int64_t dims[TOW_MAX_RANK], strides[TOW_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < x->rank; i++) {
        if (i == axis) continue;
        dims[rank] = x->dims[i];
        strides[rank++] = x->strides[i];
    }
    return (tow__row_view){tow__strided_of(x->data, x->dtype, rank, dims, strides), x->dtype, x->dims[axis],
                           x->strides[axis]};
}

static inline bool tow__rows_contiguous(const tow__row_view *rows) { return rows->stride == 1 || rows->length <= 1; }

/* Row r in place if it is contiguous, else copied to `buffer`; widened there if it has 16 bits. */
static inline const void *tow__row(const tow__row_view *rows, int64_t r, void *buffer)
{
    char *data = rows->rest.data + tow__strided_offset(&rows->rest, r) * (int64_t)rows->rest.size;
    if (tow__is_half(rows->dtype)) {
        tow__widen_run(rows->dtype, rows->length, data, rows->stride, buffer);
        return buffer;
    }
    if (tow__rows_contiguous(rows)) return data;
    tow__strided row = tow__strided_of(data, rows->dtype, 1, &rows->length, &rows->stride);
    tow__strided_read(&row, 0, rows->length, buffer);
    return buffer;
}

/* Bytes for one row as it is computed, rounded up to whole cache lines. */
static inline size_t tow__row_bytes(int64_t length, tow_dtype dtype)
{
    return ((size_t)length * tow__element_bytes(tow__wide(dtype)) + 63) / 64 * 64;
}

/* Element i of operand x, of which s is the view; widened in *room if it has 16 bits. */
static inline const void *tow__element_of(const tow__strided *s, const tow__buffer *x, int64_t i, f32 *room)
{
    return tow__widened(x->dtype, s->data + tow__strided_offset(s, i) * (int64_t)s->size, room);
}

TOW__INLINE f64 tow__exp_f64(f64 x) { return exp(x); }
TOW__INLINE f64 tow__exp_down_f64(f64 x) { return exp(x); }
TOW__INLINE f64 tow__log_f64(f64 x) { return log(x); }
TOW__INLINE f64 tow__abs_f64(f64 x) { return fabs(x); }
TOW__INLINE f64 tow__sqrt_f64(f64 x) { return sqrt(x); }
/* x / y, with r = 1 / y: the quotients of a row by one number need no further division. */
TOW__INLINE f32 tow__divided_f32(f32 x, f32 y, f32 r)
{
    f32 q = x * r;
    return tow__fma(tow__fma(-y, q, x), r, q);
}
TOW__INLINE f64 tow__divided_f64(f64 x, f64 y, f64 r)
{
    (void)r;
    return x / y;
}
TOW__INLINE f32 tow__abs_f32(f32 x) { return fabsf(x); }
TOW__INLINE f32 tow__sqrt_f32(f32 x) { return sqrtf(x); }

#define REAL       f32
#define BITS       i32
#define NAME(name) name##_f32
#include "src/kernels/norms/lanes.inc"

#define REAL       f64
#define BITS       int64_t
#define NAME(name) name##_f64
#include "src/kernels/norms/lanes.inc"

#endif
