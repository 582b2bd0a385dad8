/* Sums of products over steps for AVX-512: tiles of 7 x 32. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))),                   \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#include <immintrin.h>
#include <string.h>

#include "src/kernels/products/sum_dots.h"
#include "src/kernels/strided.h"

typedef f32 element;
enum {
    W = 16 /* elements of a vector */
};
typedef __m512 vector;

TOW__INLINE vector splat(f32 x) { return _mm512_set1_ps(x); }
TOW__INLINE vector load(const f32 *x) { return _mm512_loadu_ps(x); }
TOW__INLINE void store(f32 *x, vector v) { _mm512_storeu_ps(x, v); }
TOW__INLINE vector add(vector x, vector y) { return _mm512_add_ps(x, y); }

#include "src/kernels/products/multiply_row.inc"

#define ROWS 7
#define SUM  tow__sum_dots_avx512
#include "src/kernels/products/sum_dots.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
