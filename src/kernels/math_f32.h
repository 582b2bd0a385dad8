/* Transcendental functions in single precision without branches, tables or calls, so that loops over them become vector
 * code. No fused multiply-adds are used: every instruction set gives the same bits.
 *
 * Largest errors in units in the last place over the whole range, denormals and special values included, as
 * tests/unit/vector_math.h demands them and test_kernels_math_long.c measured them:
 *
 *   exp log log1p 1    expm1 erf sin cos 2    tanh logistic 2.5    silu 4, gelu 6 (below 1e-36: of 1e-36)
 *   gelu with tanh 4 (of at least 2^-26: the rounded argument of a large exponential)    slopes 4 (of at least 2^-24)
 *   erf_inv 5, beside what XLA's approximation, whose bits it has, rounds away of x^2 at first
 *
 * Polynomials are weighted minimax fits (relative error of the function below 1e-8 unless said otherwise). */
#ifndef TOW_SRC_KERNELS_MATH_F32_H
#define TOW_SRC_KERNELS_MATH_F32_H

#include "src/kernels/math.h"

TOW__INLINE f32 tow__from_bits(u32 bits)
{
    union {
        u32 u;
        f32 f;
    } v = {bits};
    return v.f;
}
TOW__INLINE u32 tow__to_bits(f32 x)
{
    union {
        f32 f;
        u32 u;
    } v = {x};
    return v.u;
}

/* x = n ln 2 + r with |r| <= ln(2)/2. n comes out as the low bits of n + 1.5 2^23, which also rounds. */
typedef struct tow__reduced {
    f32 r;
    i32 n;
} tow__reduced;

TOW__INLINE tow__reduced tow__reduce_exp(f32 x)
{
    const f32 shift = 12582912.0f; /* 1.5 2^23 */
    f32 shifted = x * 1.44269504f + shift, n = shifted - shift;
    f32 r = x - n * 0.693359375f; /* the first factor has few bits: exact for |n| < 256 */
    return (tow__reduced){r - n * -2.12194440e-4f, (i32)(tow__to_bits(shifted) - 0x4B400000u)};
}

/* (e^r - 1 - r) / r^2 */
TOW__INLINE f32 tow__exp_tail(f32 r)
{
    f32 p = 0.000199183618f;
    p = p * r + 0.00139460748f, p = p * r + 0.00833326485f, p = p * r + 0.0416662693f;
    return (p * r + 0.166666672f) * r + 0.5f;
}

/* 2^n for -126 <= n <= 127 */
TOW__INLINE f32 tow__power_of_two(i32 n) { return tow__from_bits((u32)(n + 127) << 23); }

TOW__INLINE f32 tow__exp_f32(f32 x)
{
    f32 clamped = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x; /* beyond: infinity and 0, as at the limits */
    tow__reduced e = tow__reduce_exp(clamped);
    f32 y = (tow__exp_tail(e.r) * (e.r * e.r) + e.r) + 1.0f;
    i32 half = e.n >> 1; /* two steps reach denormals and 2^128 with one rounding */
    y = y * tow__power_of_two(half) * tow__power_of_two(e.n - half);
    return x != x ? x : y;
}

TOW__INLINE f32 tow__expm1_f32(f32 x)
{
    f32 clamped = x > 89.0f ? 89.0f : x < -25.0f ? -25.0f : x;
    tow__reduced e = tow__reduce_exp(clamped);
    f32 m = tow__exp_tail(e.r) * (e.r * e.r) + e.r; /* e^r - 1 */
    /* 2^n m + (2^n - 1), halved so that 2^128 does not overflow */
    f32 scale = tow__power_of_two(e.n - 1), y = (scale * m + (scale - 0.5f)) * 2.0f;
    return fabsf(x) < 1e-9f || x != x ? x : y; /* also keeps denormals and -0 */
}

/* log(1 + f) - f for sqrt(1/2) <= 1 + f < sqrt(2) */
TOW__INLINE f32 tow__log_tail(f32 f)
{
    f32 p = 0.0674659163f;
    p = p * f - 0.116756387f, p = p * f + 0.118881777f, p = p * f - 0.124055922f, p = p * f + 0.142195508f;
    p = p * f - 0.166679963f, p = p * f + 0.200021192f, p = p * f - 0.250000089f, p = p * f + 0.333333135f;
    return p * f * (f * f) - 0.5f * (f * f);
}

/* log of a positive, finite x, plus `correction` */
TOW__INLINE f32 tow__log_positive(f32 x, f32 correction)
{
    bool tiny = x < 1.17549435e-38f; /* denormal: scaled by 2^24 */
    u32 bits = tow__to_bits(tiny ? x * 16777216.0f : x);
    u32 above = bits - 0x3F3504F3u; /* of sqrt(1/2): the exponent then splits at sqrt(2) */
    f32 n = (f32)((i32)above >> 23) - (tiny ? 24.0f : 0.0f);
    f32 f = tow__from_bits((above & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f;
    f32 low = (tow__log_tail(f) + n * -2.12194440e-4f) + correction;
    return n * 0.693359375f + (f + low);
}

TOW__INLINE f32 tow__log_f32(f32 x)
{
    f32 y = tow__log_positive(x, 0.0f);
    y = x > 3.40282347e38f ? x : y;
    y = x < 0.0f ? (f32)NAN : y;
    return x == 0.0f ? -INFINITY : x != x ? x : y;
}

/* log(u) + (x - (u - 1)) / u with u = 1 + x rounded: the second term is what the rounding lost. */
TOW__INLINE f32 tow__log1p_f32(f32 x)
{
    f32 u = 1.0f + x, y = tow__log_positive(u, (x - (u - 1.0f)) / u);
    y = x > 3.40282347e38f ? x : y;
    y = x < -1.0f ? (f32)NAN : y;
    y = x == -1.0f ? -INFINITY : y;
    return fabsf(x) < 1e-8f || x != x ? x : y;
}

/* 1 / (1 + e^-x), as e^x / (1 + e^x) for negative x, which keeps the small values. */
TOW__INLINE f32 tow__logistic_f32(f32 x)
{
    f32 e = tow__exp_f32(-fabsf(x));
    return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

/* d / (d + 2) with d = e^2|x| - 1; 1 from |x| = 9.02 on. */
TOW__INLINE f32 tow__tanh_f32(f32 x)
{
    f32 a = fabsf(x), clamped = a < 10.0f ? a : 10.0f;
    tow__reduced e = tow__reduce_exp(2.0f * clamped);
    f32 scale = tow__power_of_two(e.n), d = scale * (tow__exp_tail(e.r) * (e.r * e.r) + e.r) + (scale - 1.0f);
    return x != x ? x : copysignf(d / (d + 2.0f), x);
}

/* What rounding x * x to `square` lost: with x in two halves of 12 bits, all products are exact. */
TOW__INLINE f32 tow__square_rest(f32 x, f32 square)
{
    f32 high = tow__from_bits(tow__to_bits(x) & 0xFFFFF000u), low = x - high;
    return ((high * high - square) + 2.0f * high * low) + low * low;
}
/* e^(-scale x^2) for |x| < 20, scale a power of two: an error of the square would count |x|^2 times. */
TOW__INLINE f32 tow__exp_square(f32 x, f32 scale)
{
    f32 square = x * x, e = tow__exp_f32(-scale * square);
    return e - e * (scale * tow__square_rest(x, square));
}

/* erfc(t) / e^(-t^2) for t >= 0 as P((t - 2.5) / (t + 2.5)) / (1 + 2t); relative error of P 2e-8. */
TOW__INLINE f32 tow__erfc_factor(f32 t)
{
    f32 s = t > 12.0f ? 12.0f : t; /* erfc(12) is 0 */
    f32 u = (s - 2.5f) / (s + 2.5f), p = 0.000448334933f;
    p = p * u + 0.000313407421f, p = p * u - 0.00429461757f, p = p * u + 0.00103387015f, p = p * u + 0.0327457003f;
    p = p * u - 0.102989055f, p = p * u + 0.157630846f, p = p * u - 0.0990229249f, p = p * u - 0.12235678f;
    p = p * u + 1.26483822f;
    return p / (1.0f + 2.0f * s);
}

TOW__INLINE f32 tow__erf_f32(f32 x)
{
    f32 a = fabsf(x), z = x * x, p = 8.53883685e-05f;
    p = p * z - 0.000818192668f, p = p * z + 0.0052044359f, p = p * z - 0.0268607531f, p = p * z + 0.112837195f;
    p = p * z - 0.376126349f, p = p * z + 0.128379166f;
    f32 near = p * x + x, s = a > 12.0f ? 12.0f : a;
    f32 far = copysignf(1.0f - tow__exp_square(s, 1.0f) * tow__erfc_factor(a), x);
    return a < 0.9f ? near : far;
}

TOW__INLINE f32 tow__silu_f32(f32 x) { return x * tow__logistic_f32(x); }
/* s (1 + x (1 - s)) with 1 - s = logistic(-x); far out x (1 - s) is 0 times infinity, and 0 */
TOW__INLINE f32 tow__silu_slope_f32(f32 x)
{
    f32 s = tow__logistic_f32(x), rest = tow__logistic_f32(-x);
    return s + (s * rest == 0.0f ? 0.0f : x * (s * rest));
}

/* Logistic of 2u, u = sqrt(2/pi)(x + 0.044715 x^3): then 0.5 x (1 + tanh u) = x logistic(2u). */
TOW__INLINE f32 tow__gelu_tanh_f32(f32 x) { return x * tow__logistic_f32(1.59576912f * (x + 0.044715f * x * x * x)); }
TOW__INLINE f32 tow__gelu_tanh_slope_f32(f32 x)
{
    f32 u2 = 1.59576912f * (x + 0.044715f * x * x * x), du2 = 1.59576912f * (1.0f + 0.134145f * x * x);
    f32 e = tow__exp_f32(-fabsf(u2)), d = 1.0f + e, s = (u2 >= 0.0f ? 1.0f : e) / d;
    f32 tail = x * (e / (d * d) * du2); /* s' = e / (1 + e)^2; far out 0 times infinity, there the slope is s */
    return e == 0.0f ? s : s + tail;
}

/* 0.5 erfc(-x / sqrt 2): the normal distribution function. */
TOW__INLINE f32 tow__normal_cdf_f32(f32 x)
{
    f32 a = fabsf(x), s = a > 15.0f ? 15.0f : a; /* 0 below -15 */
    f32 tail = tow__exp_square(s, 0.5f) * (0.5f * tow__erfc_factor(a * 0.707106781f));
    f32 z = x * x, p = 0.000101800986f;
    p = p * z - 0.0011798389f, p = p * z + 0.009971736f, p = p * z - 0.0664901957f, p = p * z + 0.398942262f;
    return a < 0.75f ? p * x + 0.5f : x < 0.0f ? tail : 1.0f - tail;
}
TOW__INLINE f32 tow__gelu_erf_f32(f32 x) { return x * tow__normal_cdf_f32(x); }
TOW__INLINE f32 tow__gelu_erf_slope_f32(f32 x)
{
    f32 a = fabsf(x), density = 0.398942280f * tow__exp_square(a > 15.0f ? 15.0f : a, 0.5f);
    return tow__normal_cdf_f32(x) + (density == 0.0f ? 0.0f : x * density);
}

/* ---- sine and cosine ---------------------------------------------------------------------------------------------- */

/* x = quadrant pi/2 + r with |r| <= pi/4; the quadrant counts modulo 4. */
typedef struct tow__turned {
    f32 r;
    i32 quadrant;
} tow__turned;

#define TOW__TURN_LIMIT 1048576.0f /* up to here tow__turn does */

/* In double: pi/2 in three parts, of which the first two times a quadrant are exact. */
TOW__INLINE tow__turned tow__turn(f32 x)
{
    const f64 shift = 6755399441055744.0; /* 1.5 2^52: the low bits of a sum are those of the quadrant */
    union {
        f64 f;
        int64_t i;
    } shifted = {(f64)x * 0.6366197723675814 + shift};
    f64 n = shifted.f - shift;
    f64 r = ((f64)x - n * 1.5707963267341256) - n * 6.077100506303966e-11;
    return (tow__turned){(f32)(r - n * 2.0222662487959506e-21), (i32)shifted.i};
}

/* For larger x = m 2^e: only the bits of 2/pi count that do not make whole turns with 2^e; 96 of them are enough. */
static inline tow__turned tow__turn_large(f32 x)
{
    static const u32 two_over_pi[] = {0,           0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u,
                                      0xF534DDC0u, 0xDB629599u, 0x3C439041u, 0xFE5163ABu};
    if (!(fabsf(x) < INFINITY)) return (tow__turned){(f32)NAN, 0};
    u32 bits = tow__to_bits(x), m = (bits & 0x7FFFFFu) | 0x800000u;
    u32 skipped = (bits >> 23 & 255u) - 150u + 30u, shift = skipped % 32, word[3];
    for (u32 i = 0; i < 3; i++) {
        const u32 *w = &two_over_pi[skipped / 32 + i];
        word[i] = (u32)(((uint64_t)w[0] << 32 | w[1]) << shift >> 32);
    }
    uint64_t low = (uint64_t)m * word[2], middle = (uint64_t)m * word[1] + (low >> 32);
    uint64_t turns =
        (uint64_t)(m * word[0] + (u32)(middle >> 32)) << 32 | (u32)middle; /* the upper 2 bits are quadrants */
    uint64_t rest = turns << 2 | (low >> 30 & 3u);                         /* of a quadrant, in 2^-64 */
    i32 quadrant = (i32)(turns >> 62) + (i32)(rest >> 63);
    f64 part = rest >> 63 ? -(f64)(0u - rest) : (f64)rest;
    f32 r = (f32)(part * (1.5707963267948966 / 18446744073709551616.0));
    return x < 0.0f ? (tow__turned){-r, -quadrant} : (tow__turned){r, quadrant};
}

/* sin(r + quadrant pi/2) */
TOW__INLINE f32 tow__sin_turned(f32 r, i32 quadrant)
{
    f32 z = r * r, s = (-0.000195151195f * z + 0.00833215937f) * z - 0.166666552f;
    f32 c = (2.44329694e-05f * z - 0.00138873141f) * z + 0.0416666456f;
    f32 sine = z < 1e-8f ? r : (s * z) * r + r, cosine = (c * z - 0.5f) * z + 1.0f; /* keeps -0 */
    f32 y = quadrant & 1 ? cosine : sine;
    return tow__from_bits(tow__to_bits(y) ^ ((u32)quadrant & 2u) << 30);
}
TOW__INLINE f32 tow__sin_f32(f32 x)
{
    tow__turned t = tow__turn(x);
    return tow__sin_turned(t.r, t.quadrant);
}
TOW__INLINE f32 tow__cos_f32(f32 x)
{
    tow__turned t = tow__turn(x);
    return tow__sin_turned(t.r, t.quadrant + 1);
}

#endif
