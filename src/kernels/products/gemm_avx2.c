/* The own kernel of matrix products for AVX2 with FMA: tiles of 6 x 16. Processors with AVX2 convert f16, too. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#include <immintrin.h>

#include "src/kernels/halves.h"
#include "src/kernels/products/gemm_own.h"

typedef f32 element;
enum {
    W = 8,
    ROWS = 6,
    BLOCK = 192,
    MASKS_FREE = 0
};
typedef __m256 vector;
typedef __m256i lanes;

TOW__INLINE lanes first_lanes(int64_t n)
{
    static const int32_t table[2 * W] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const lanes *)(const void *)(table + W - tow__max(0, tow__min(n, W))));
}
TOW__INLINE vector zero(void) { return _mm256_setzero_ps(); }
TOW__INLINE vector splat(const f32 *x) { return _mm256_broadcast_ss(x); }
TOW__INLINE vector load(const f32 *x) { return _mm256_loadu_ps(x); }
TOW__INLINE vector load_lanes(const f32 *x, lanes l) { return _mm256_maskload_ps(x, l); }
TOW__INLINE void store(f32 *x, vector v) { _mm256_storeu_ps(x, v); }
TOW__INLINE void store_lanes(f32 *x, lanes l, vector v) { _mm256_maskstore_ps(x, l, v); }
TOW__INLINE vector add(vector x, vector y) { return _mm256_add_ps(x, y); }
TOW__INLINE vector multiply_add(vector x, vector y, vector z) { return _mm256_fmadd_ps(x, y, z); }

TOW__INLINE void transpose(vector r[W])
{
    vector t[W];
#pragma GCC unroll 8
    for (int i = 0; i < W; i += 2) { /* pairs of rows: elements of the low and the high halves of each 128 bits */
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < W; i += 4) { /* columns j and j + 4 of four rows */
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
#pragma GCC unroll 8
    for (int i = 0; i < W / 2; i++) {
        vector low = r[i], high = r[i + 4];
        r[i] = _mm256_permute2f128_ps(low, high, 0x20);
        r[i + 4] = _mm256_permute2f128_ps(low, high, 0x31);
    }
}

#define HALVES
TOW__INLINE vector load_bf16(const uint16_t *x)
{
    const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)x);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
TOW__INLINE vector load_f16(const uint16_t *x)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)x));
}
TOW__INLINE void widen_bf16_pairs(vector pairs, vector y[2])
{
    const __m256i x = _mm256_castps_si256(pairs);
    y[0] = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
    y[1] = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xFFFF0000)));
}
TOW__INLINE void widen_f16_halves(const vector *words, vector y[2])
{
    const uint16_t *x = (const uint16_t *)(const void *)words; /* which intrinsics may read as what they like */
    y[0] = load_f16(x);
    y[1] = load_f16(x + W);
}
TOW__INLINE vector split_pairs(vector pairs)
{
    const __m256i from =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m256i x = _mm256_shuffle_epi8(_mm256_castps_si256(pairs), from);
    return _mm256_castsi256_ps(_mm256_permute4x64_epi64(x, 0xD8));
}
/* NaNs lose their payload, as everywhere. */
TOW__INLINE void store_f16(uint16_t *x, vector v)
{
    const vector quiet = _mm256_or_ps(_mm256_and_ps(v, _mm256_set1_ps(-0.0F)), _mm256_set1_ps(__builtin_nanf("")));
    v = _mm256_blendv_ps(v, quiet, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    _mm_storeu_si128((__m128i *)(void *)x, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#include "src/kernels/products/multiply_row.inc"

#define TILE_ROWS 6
#define VERSION   tow__gemm_avx2_version
#define TEXT      "own kernel, AVX2"
#include "src/kernels/products/gemm_own.inc"

#define LANES_VERSION tow__conv_lanes_avx2
#include "src/kernels/conv/lanes.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
