/* Matrix products of test buffers. */
#ifndef TOW_TESTS_GEMM_PRODUCTS_H
#define TOW_TESTS_GEMM_PRODUCTS_H

#include "tests/unit/support/kernels.h"

#include "src/kernels/products/gemm.h"

/* c = a b: [m, k] and [k, n], laid out in any way; rows of c may be longer than n. */
static inline tow__gemm product_of(const tow__buffer *a, const tow__buffer *b, const tow__buffer *c)
{
    return (tow__gemm){.dtype = a->dtype,
                       .threads = 1,
                       .m = a->dims[0],
                       .n = b->dims[1],
                       .k = a->dims[1],
                       .a = a->data,
                       .a_row = a->strides[0],
                       .a_column = a->strides[1],
                       .b = b->data,
                       .b_row = b->strides[0],
                       .b_column = b->strides[1],
                       .c = c->data,
                       .ldc = c->dims[1]};
}

#endif
