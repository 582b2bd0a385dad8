/* Sums of products over steps for AVX-512: tiles of 6 x 32. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))),                   \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#include <immintrin.h>
#include <string.h>

#include "src/kernels/steps.h"
#include "src/kernels/strided.h"

enum {
    W = 16 /* elements of a vector */
};
typedef __m512 vector;

TOW__INLINE vector zero(void) { return _mm512_setzero_ps(); }
TOW__INLINE vector load(const f32 *x) { return _mm512_loadu_ps(x); }
TOW__INLINE void store(f32 *x, vector v) { _mm512_storeu_ps(x, v); }
TOW__INLINE vector add(vector x, vector y) { return _mm512_add_ps(x, y); }
/* Three instructions in this order: compilers that may move them apart run out of registers. */
TOW__INLINE void multiply_row(const f32 *x, vector y0, vector y1, vector *sum0, vector *sum1)
{
    vector every;
    __asm__ volatile("vbroadcastss %5, %0\n\tvfmadd231ps %3, %0, %1\n\tvfmadd231ps %4, %0, %2"
                     : "=&v"(every), "+v"(*sum0), "+v"(*sum1)
                     : "v"(y0), "v"(y1), "m"(*x));
}

#define ROWS 7
#define SUM  tow__steps_sum_avx512
#include "src/kernels/steps.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
