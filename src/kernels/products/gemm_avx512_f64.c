/* The own kernel of matrix products for AVX-512 in double precision: tiles of 8 x 16. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))),                   \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#include <immintrin.h>

#include "src/kernels/products/gemm_own.h"

#define DOUBLES
typedef f64 element;
enum {
    W = 8,         /* elements of a vector */
    ROWS = 8,      /* of a tile; two vectors wide. Also TILE_ROWS */
    BLOCK = 224,   /* rows of A that stay in the second cache */
    MASKS_FREE = 1 /* masked loads and stores cost no more than others */
};
typedef __m512d vector;
typedef __mmask8 lanes;

TOW__INLINE lanes first_lanes(int64_t n) { return (lanes)(n >= W ? 0xFFu : n <= 0 ? 0u : (1u << n) - 1); }
TOW__INLINE vector zero(void) { return _mm512_setzero_pd(); }
TOW__INLINE vector splat(const f64 *x) { return _mm512_set1_pd(*x); }
TOW__INLINE vector load(const f64 *x) { return _mm512_loadu_pd(x); }
TOW__INLINE vector load_lanes(const f64 *x, lanes l) { return _mm512_maskz_loadu_pd(l, x); }
TOW__INLINE void store(f64 *x, vector v) { _mm512_storeu_pd(x, v); }
TOW__INLINE void store_lanes(f64 *x, lanes l, vector v) { _mm512_mask_storeu_pd(x, l, v); }
TOW__INLINE vector add(vector x, vector y) { return _mm512_add_pd(x, y); }
TOW__INLINE vector multiply_add(vector x, vector y, vector z) { return _mm512_fmadd_pd(x, y, z); }

TOW__INLINE void transpose(vector r[W])
{
    vector t[W];
#pragma GCC unroll 8
    for (int i = 0; i < W; i += 2) { /* pairs of rows: pairs of elements of each 128 bits */
        t[i] = _mm512_unpacklo_pd(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_pd(r[i], r[i + 1]);
    }
#pragma GCC unroll 8
    for (int c = 0; c < 2; c++) { /* a 4 x 4 transpose of pieces of 128 bits for each c */
        vector even_low = _mm512_shuffle_f64x2(t[c], t[2 + c], 0x88),
               odd_low = _mm512_shuffle_f64x2(t[c], t[2 + c], 0xDD);
        vector even_high = _mm512_shuffle_f64x2(t[4 + c], t[6 + c], 0x88);
        vector odd_high = _mm512_shuffle_f64x2(t[4 + c], t[6 + c], 0xDD);
        r[c] = _mm512_shuffle_f64x2(even_low, even_high, 0x88);
        r[2 + c] = _mm512_shuffle_f64x2(odd_low, odd_high, 0x88);
        r[4 + c] = _mm512_shuffle_f64x2(even_low, even_high, 0xDD);
        r[6 + c] = _mm512_shuffle_f64x2(odd_low, odd_high, 0xDD);
    }
}

#include "src/kernels/products/multiply_row.inc"

#define TILE_ROWS 8
#define VERSION   tow__gemm_avx512_f64_version
#define TEXT      "own kernel, AVX-512"
#include "src/kernels/products/gemm_own.inc"

#define LANES_VERSION tow__conv_lanes_avx512_f64
#include "src/kernels/conv/lanes.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
