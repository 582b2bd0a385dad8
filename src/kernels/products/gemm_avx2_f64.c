/* The own kernel of matrix products for AVX2 with FMA in double precision: tiles of 4 x 8. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#include <immintrin.h>

#include "src/kernels/products/gemm_own.h"

#define DOUBLES
typedef f64 element;
enum {
    W = 4,
    ROWS = 4,
    BLOCK = 96,
    MASKS_FREE = 0
};
typedef __m256d vector;
typedef __m256i lanes;

TOW__INLINE lanes first_lanes(int64_t n)
{
    static const int64_t table[2 * W] = {-1, -1, -1, -1};
    return _mm256_loadu_si256((const lanes *)(const void *)(table + W - tow__max(0, tow__min(n, W))));
}
TOW__INLINE vector zero(void) { return _mm256_setzero_pd(); }
TOW__INLINE vector splat(const f64 *x) { return _mm256_broadcast_sd(x); }
TOW__INLINE vector load(const f64 *x) { return _mm256_loadu_pd(x); }
TOW__INLINE vector load_lanes(const f64 *x, lanes l) { return _mm256_maskload_pd(x, l); }
TOW__INLINE void store(f64 *x, vector v) { _mm256_storeu_pd(x, v); }
TOW__INLINE void store_lanes(f64 *x, lanes l, vector v) { _mm256_maskstore_pd(x, l, v); }
TOW__INLINE vector add(vector x, vector y) { return _mm256_add_pd(x, y); }
TOW__INLINE vector multiply_add(vector x, vector y, vector z) { return _mm256_fmadd_pd(x, y, z); }

TOW__INLINE void transpose(vector r[W])
{
    vector t[W];
#pragma GCC unroll 4
    for (int i = 0; i < W; i += 2) { /* pairs of rows: pairs of elements of each 128 bits */
        t[i] = _mm256_unpacklo_pd(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_pd(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        r[i] = _mm256_permute2f128_pd(t[i], t[i + 2], 0x20);
        r[i + 2] = _mm256_permute2f128_pd(t[i], t[i + 2], 0x31);
    }
}

#include "src/kernels/products/multiply_row.inc"

#define TILE_ROWS 4
#define VERSION   tow__gemm_avx2_f64_version
#define TEXT      "own kernel, AVX2"
#include "src/kernels/products/gemm_own.inc"

#define LANES_VERSION tow__conv_lanes_avx2_f64
#include "src/kernels/conv/lanes.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
