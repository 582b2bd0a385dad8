/* The own kernel of matrix products for AVX-512: tiles of 14 x 32. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))),                   \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#include <immintrin.h>

#include "src/kernels/gemm_own.h"

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

TOW__INLINE void transpose(vector r[W])
{
    vector t[W];
#pragma GCC unroll 16
    for (int i = 0; i < W; i += 2) { /* pairs of rows: elements of the low and the high halves of each 128 bits */
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; i += 4) { /* four rows: row i + c has columns c, c + 4, c + 8, c + 12 */
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xEE);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
#pragma GCC unroll 16
    for (int c = 0; c < 4; c++) { /* a 4 x 4 transpose of pieces of 128 bits for each c */
        vector even_low = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88),
               odd_low = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xDD);
        vector even_high = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
        vector odd_high = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xDD);
        t[c] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
        t[4 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
        t[8 + c] = _mm512_shuffle_f32x4(even_low, even_high, 0xDD);
        t[12 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xDD);
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; i++) r[i] = t[i];
}

#include "src/kernels/multiply_row.inc"

#define TILE_ROWS 14
#define VERSION   tow__gemm_avx512_version
#define TEXT      "own kernel, AVX-512"
#include "src/kernels/gemm_own.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
