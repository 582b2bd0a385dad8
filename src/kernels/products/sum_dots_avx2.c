/* Sums of products over steps for AVX2 with FMA: tiles of 3 x 16. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#include <immintrin.h>
#include <string.h>

#include "src/kernels/products/sum_dots.h"
#include "src/kernels/strided.h"

typedef f32 element;
enum {
    W = 8 /* elements of a vector */
};
typedef __m256 vector;

TOW__INLINE vector splat(f32 x) { return _mm256_set1_ps(x); }
TOW__INLINE vector load(const f32 *x) { return _mm256_loadu_ps(x); }
TOW__INLINE void store(f32 *x, vector v) { _mm256_storeu_ps(x, v); }
TOW__INLINE vector add(vector x, vector y) { return _mm256_add_ps(x, y); }

#include "src/kernels/products/multiply_row.inc"

#define ROWS 3
#define SUM  tow__sum_dots_avx2
#include "src/kernels/products/sum_dots.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
