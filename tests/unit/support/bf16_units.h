/* The definition of the bits of units for bf16 (src/kernels/products/gemm_bf16.h), for one element of a product. */
#ifndef TOW_TESTS_BF16_UNITS_H
#define TOW_TESTS_BF16_UNITS_H

#include <math.h>
#include <stdint.h>

static inline float flushed(float x) { return fabsf(x) < 0x1p-126F ? copysignf(0, x) : x; }

static inline float multiply_add(float x, float y, float sum) { return flushed(fmaf(flushed(x), flushed(y), sum)); }

/* a, b: the elements of a row and of a column. */
static inline float by_matrix_unit(const float *a, const float *b, int64_t k)
{
    float sum = 0;
    for (int64_t first = 0; first < k; first += 32) {
        float chain[2] = {0, 0};
        for (int64_t p = first; p < first + 32; p++)
            chain[p % 2] = multiply_add(p < k ? a[p] : 0, p < k ? b[p] : 0, chain[p % 2]);
        sum = flushed(sum + flushed(chain[0] + chain[1]));
    }
    return sum;
}

static inline float by_dots(const float *a, const float *b, int64_t k)
{
    float sum = 0;
    for (int64_t p = 0; p < k; p += 2) {
        sum = multiply_add(p + 1 < k ? a[p + 1] : 0, p + 1 < k ? b[p + 1] : 0, sum);
        sum = multiply_add(a[p], b[p], sum);
    }
    return sum;
}

#endif
