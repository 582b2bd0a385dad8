/* The own kernel of matrix products for AVX-512: tiles of 14 x 32. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))),                   \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#include <immintrin.h>

#include "src/kernels/products/gemm_own.h"

typedef f32 element;
enum {
    W = 16,        /* elements of a vector */
    ROWS = 14,     /* of a tile; two vectors wide. Also TILE_ROWS */
    BLOCK = 448,   /* rows of A that stay in the second cache */
    MASKS_FREE = 1 /* masked loads and stores cost no more than others */
};
typedef __m512 vector;
typedef __mmask16 lanes;

TOW__INLINE lanes first_lanes(int64_t n) { return (lanes)(n >= W ? 0xFFFFu : n <= 0 ? 0u : (1u << n) - 1); }
TOW__INLINE vector zero(void) { return _mm512_setzero_ps(); }
TOW__INLINE vector splat(const f32 *x) { return _mm512_set1_ps(*x); }
TOW__INLINE vector load(const f32 *x) { return _mm512_loadu_ps(x); }
TOW__INLINE vector load_lanes(const f32 *x, lanes l) { return _mm512_maskz_loadu_ps(l, x); }
TOW__INLINE void store(f32 *x, vector v) { _mm512_storeu_ps(x, v); }
TOW__INLINE void store_lanes(f32 *x, lanes l, vector v) { _mm512_mask_storeu_ps(x, l, v); }
TOW__INLINE vector add(vector x, vector y) { return _mm512_add_ps(x, y); }
TOW__INLINE vector multiply_add(vector x, vector y, vector z) { return _mm512_fmadd_ps(x, y, z); }

#include "src/kernels/products/multiply_row.inc"
#include "src/kernels/products/transpose_avx512.inc"

#define TILE_ROWS 14
#define VERSION   tow__gemm_avx512_version
#define TEXT      "own kernel, AVX-512"
#include "src/kernels/products/gemm_own.inc"

#define LANES_VERSION tow__conv_lanes_avx512
#include "src/kernels/conv/lanes.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
