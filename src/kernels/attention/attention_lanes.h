/* Sixteen floats that are worked on together, for three instruction sets: one AVX-512 register, two AVX2 registers, or
 * an array. All sets round alike, multiply-adds are fused in all of them, and maxima take the second operand if they
 * cannot decide; so code written once over these functions gives the same bits with every set.
 *
 * A set S consists of the type lanes_S and the functions below, each NAME_S. attention_f32.c includes its code once per
 * set. */
#ifndef TOW_SRC_KERNELS_ATTENTION_LANES_H
#define TOW_SRC_KERNELS_ATTENTION_LANES_H

#include "src/kernels/math_f32.h"

enum {
    LANES = 16
};

/* ---- plain C ---------------------------------------------------------------------------------------------------- */

typedef struct lanes_plain {
    f32 x[LANES];
} lanes_plain;

#define EACH_LANE for (int l = 0; l < LANES; l++)

TOW__INLINE lanes_plain all_plain(f32 x)
{
    lanes_plain y;
    EACH_LANE y.x[l] = x;
    return y;
}
TOW__INLINE lanes_plain load_plain(const f32 *p)
{
    lanes_plain y;
    EACH_LANE y.x[l] = p[l];
    return y;
}
TOW__INLINE void store_plain(f32 *p, lanes_plain x) { EACH_LANE p[l] = x.x[l]; }
TOW__INLINE lanes_plain add_plain(lanes_plain x, lanes_plain y)
{
    EACH_LANE x.x[l] += y.x[l];
    return x;
}
TOW__INLINE lanes_plain sub_plain(lanes_plain x, lanes_plain y)
{
    EACH_LANE x.x[l] -= y.x[l];
    return x;
}
TOW__INLINE lanes_plain mul_plain(lanes_plain x, lanes_plain y)
{
    EACH_LANE x.x[l] *= y.x[l];
    return x;
}
/* x y + z, rounded once */
TOW__INLINE lanes_plain fma_plain(lanes_plain x, lanes_plain y, lanes_plain z)
{
    EACH_LANE z.x[l] = fmaf(x.x[l], y.x[l], z.x[l]);
    return z;
}
/* x > y ? x : y */
TOW__INLINE lanes_plain max_plain(lanes_plain x, lanes_plain y)
{
    EACH_LANE y.x[l] = x.x[l] > y.x[l] ? x.x[l] : y.x[l];
    return y;
}
/* `instead` where x < limit, else y. */
TOW__INLINE lanes_plain unless_below_plain(lanes_plain x, lanes_plain limit, lanes_plain instead, lanes_plain y)
{
    EACH_LANE y.x[l] = x.x[l] < limit.x[l] ? instead.x[l] : y.x[l];
    return y;
}
/* 0 where x < limit, else y z */
TOW__INLINE lanes_plain product_from_plain(lanes_plain x, lanes_plain limit, lanes_plain y, lanes_plain z)
{
    EACH_LANE y.x[l] = x.x[l] < limit.x[l] ? 0 : y.x[l] * z.x[l];
    return y;
}
/* 2^n, n the low bits of x + 1.5 2^23 */
TOW__INLINE lanes_plain power_plain(lanes_plain x)
{
    EACH_LANE x.x[l] = tow__from_bits((tow__to_bits(x.x[l]) << 23) + 0x3F800000u);
    return x;
}
/* to [16, ld_to] = transpose of from [16, ld_from] times factor */
TOW__INLINE void transpose_plain(const f32 *from, int64_t ld_from, f32 factor, f32 *to, int64_t ld_to)
{
    for (int i = 0; i < LANES; i++) EACH_LANE to[i * ld_to + l] = from[l * ld_from + i] * factor;
}

#ifdef __x86_64__
#include <immintrin.h>

/* ---- AVX2 and FMA ----------------------------------------------------------------------------------------------- */

#define TARGET_AVX2 __attribute__((target("avx2,fma")))
#define INLINE_AVX2 static inline __attribute__((always_inline, target("avx2,fma")))

typedef struct lanes_avx2 {
    __m256 low, high;
} lanes_avx2;

#define HALVES(operation) ((lanes_avx2){operation(low), operation(high)})

INLINE_AVX2 lanes_avx2 all_avx2(f32 x)
{
    __m256 y = _mm256_set1_ps(x);
    return (lanes_avx2){y, y};
}
INLINE_AVX2 lanes_avx2 load_avx2(const f32 *p) { return (lanes_avx2){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE_AVX2 void store_avx2(f32 *p, lanes_avx2 x)
{
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
}
INLINE_AVX2 lanes_avx2 add_avx2(lanes_avx2 x, lanes_avx2 y)
{
#define F(half) _mm256_add_ps(x.half, y.half)
    return HALVES(F);
#undef F
}
INLINE_AVX2 lanes_avx2 sub_avx2(lanes_avx2 x, lanes_avx2 y)
{
#define F(half) _mm256_sub_ps(x.half, y.half)
    return HALVES(F);
#undef F
}
INLINE_AVX2 lanes_avx2 mul_avx2(lanes_avx2 x, lanes_avx2 y)
{
#define F(half) _mm256_mul_ps(x.half, y.half)
    return HALVES(F);
#undef F
}
INLINE_AVX2 lanes_avx2 fma_avx2(lanes_avx2 x, lanes_avx2 y, lanes_avx2 z)
{
#define F(half) _mm256_fmadd_ps(x.half, y.half, z.half)
    return HALVES(F);
#undef F
}
INLINE_AVX2 lanes_avx2 max_avx2(lanes_avx2 x, lanes_avx2 y)
{
#define F(half) _mm256_max_ps(x.half, y.half)
    return HALVES(F);
#undef F
}
INLINE_AVX2 lanes_avx2 unless_below_avx2(lanes_avx2 x, lanes_avx2 limit, lanes_avx2 instead, lanes_avx2 y)
{
#define F(half) _mm256_blendv_ps(y.half, instead.half, _mm256_cmp_ps(x.half, limit.half, _CMP_LT_OQ))
    return HALVES(F);
#undef F
}
INLINE_AVX2 lanes_avx2 product_from_avx2(lanes_avx2 x, lanes_avx2 limit, lanes_avx2 y, lanes_avx2 z)
{
#define F(half) _mm256_andnot_ps(_mm256_cmp_ps(x.half, limit.half, _CMP_LT_OQ), _mm256_mul_ps(y.half, z.half))
    return HALVES(F);
#undef F
}
INLINE_AVX2 lanes_avx2 power_avx2(lanes_avx2 x)
{
    const __m256i one = _mm256_set1_epi32(0x3F800000);
#define F(half) _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(x.half), 23), one))
    return HALVES(F);
#undef F
}

INLINE_AVX2 void transpose_8_avx2(const f32 *from, int64_t ld_from, f32 factor, f32 *to, int64_t ld_to)
{
    __m256 a[8], b[8], f = _mm256_set1_ps(factor);
    for (int i = 0; i < 8; i++) a[i] = _mm256_mul_ps(_mm256_loadu_ps(from + i * ld_from), f);
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int c = 0; c < 2; c++) {
            a[i + 2 * c] = _mm256_shuffle_ps(b[i + c], b[i + 2 + c], 0x44);
            a[i + 2 * c + 1] = _mm256_shuffle_ps(b[i + c], b[i + 2 + c], 0xEE);
        }
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * ld_to, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * ld_to, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
}
INLINE_AVX2 void transpose_avx2(const f32 *from, int64_t ld_from, f32 factor, f32 *to, int64_t ld_to)
{
    for (int i = 0; i < LANES; i += 8)
        for (int j = 0; j < LANES; j += 8)
            transpose_8_avx2(from + i * ld_from + j, ld_from, factor, to + j * ld_to + i, ld_to);
}

/* ---- AVX-512 ---------------------------------------------------------------------------------------------------- */

#define TARGET_AVX512 __attribute__((target("avx512f")))
#define INLINE_AVX512 static inline __attribute__((always_inline, target("avx512f")))

typedef __m512 lanes_avx512;

INLINE_AVX512 lanes_avx512 all_avx512(f32 x) { return _mm512_set1_ps(x); }
INLINE_AVX512 lanes_avx512 load_avx512(const f32 *p) { return _mm512_loadu_ps(p); }
INLINE_AVX512 void store_avx512(f32 *p, lanes_avx512 x) { _mm512_storeu_ps(p, x); }
INLINE_AVX512 lanes_avx512 add_avx512(lanes_avx512 x, lanes_avx512 y) { return _mm512_add_ps(x, y); }
INLINE_AVX512 lanes_avx512 sub_avx512(lanes_avx512 x, lanes_avx512 y) { return _mm512_sub_ps(x, y); }
INLINE_AVX512 lanes_avx512 mul_avx512(lanes_avx512 x, lanes_avx512 y) { return _mm512_mul_ps(x, y); }
INLINE_AVX512 lanes_avx512 fma_avx512(lanes_avx512 x, lanes_avx512 y, lanes_avx512 z)
{
    return _mm512_fmadd_ps(x, y, z);
}
INLINE_AVX512 lanes_avx512 max_avx512(lanes_avx512 x, lanes_avx512 y) { return _mm512_max_ps(x, y); }
INLINE_AVX512 lanes_avx512 unless_below_avx512(lanes_avx512 x, lanes_avx512 limit, lanes_avx512 instead, lanes_avx512 y)
{
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, limit, _CMP_LT_OQ), instead);
}
INLINE_AVX512 lanes_avx512 product_from_avx512(lanes_avx512 x, lanes_avx512 limit, lanes_avx512 y, lanes_avx512 z)
{
    return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), y, z);
}
INLINE_AVX512 lanes_avx512 power_avx512(lanes_avx512 x)
{
    __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(x), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_set1_epi32(0x3F800000)));
}
/* Pairs of numbers, then of pairs, then of quarters of registers. */
INLINE_AVX512 void transpose_avx512(const f32 *from, int64_t ld_from, f32 factor, f32 *to, int64_t ld_to)
{
    __m512 a[16], f = _mm512_set1_ps(factor);
    __m512d b[16], c[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_mul_ps(_mm512_loadu_ps(from + i * ld_from), f);
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_castps_pd(_mm512_unpacklo_ps(a[i], a[i + 1]));
        b[i + 1] = _mm512_castps_pd(_mm512_unpackhi_ps(a[i], a[i + 1]));
    }
    for (int i = 0; i < 16; i += 4) {
        for (int k = 0; k < 2; k++) {
            c[i + 2 * k] = _mm512_unpacklo_pd(b[i + k], b[i + 2 + k]);
            c[i + 2 * k + 1] = _mm512_unpackhi_pd(b[i + k], b[i + 2 + k]);
        }
    }
    for (int i = 0; i < 4; i++) {
        __m512d low = _mm512_shuffle_f64x2(c[i], c[i + 4], 0x44),
                low2 = _mm512_shuffle_f64x2(c[i + 8], c[i + 12], 0x44);
        __m512d top = _mm512_shuffle_f64x2(c[i], c[i + 4], 0xEE),
                top2 = _mm512_shuffle_f64x2(c[i + 8], c[i + 12], 0xEE);
        _mm512_storeu_ps(to + i * ld_to, _mm512_castpd_ps(_mm512_shuffle_f64x2(low, low2, 0x88)));
        _mm512_storeu_ps(to + (i + 4) * ld_to, _mm512_castpd_ps(_mm512_shuffle_f64x2(low, low2, 0xDD)));
        _mm512_storeu_ps(to + (i + 8) * ld_to, _mm512_castpd_ps(_mm512_shuffle_f64x2(top, top2, 0x88)));
        _mm512_storeu_ps(to + (i + 12) * ld_to, _mm512_castpd_ps(_mm512_shuffle_f64x2(top, top2, 0xDD)));
    }
}
#endif

#endif
