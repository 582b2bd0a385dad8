/* The own kernel of matrix products for AVX-512: tiles of 14 x 32. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))),                   \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#include <immintrin.h>

#include "src/kernels/halves.h"
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

#define HALVES
TOW__INLINE vector load_bf16(const uint16_t *x)
{
    const __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
TOW__INLINE vector load_f16(const uint16_t *x)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x));
}
TOW__INLINE void widen_bf16_pairs(vector pairs, vector y[2])
{
    const __m512i x = _mm512_castps_si512(pairs);
    y[0] = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    y[1] = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xFFFF0000)));
}
TOW__INLINE void widen_f16_halves(const vector *words, vector y[2])
{
    const uint16_t *x = (const uint16_t *)(const void *)words; /* which intrinsics may read as what they like */
    y[0] = load_f16(x);
    y[1] = load_f16(x + W);
}
TOW__INLINE vector split_pairs(vector pairs)
{
    const __m512i from = _mm512_set_epi32(0x1F001D, 0x1B0019, 0x170015, 0x130011, 0xF000D, 0xB0009, 0x70005, 0x30001,
                                          0x1E001C, 0x1A0018, 0x160014, 0x120010, 0xE000C, 0xA0008, 0x60004, 0x20000);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(from, _mm512_castps_si512(pairs)));
}
/* NaNs lose their payload, as everywhere. */
TOW__INLINE void store_f16(uint16_t *x, vector v)
{
    const vector quiet = _mm512_or_ps(_mm512_and_ps(v, _mm512_set1_ps(-0.0F)), _mm512_set1_ps(__builtin_nanf("")));
    v = _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
    _mm256_storeu_si256((__m256i *)(void *)x, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

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
