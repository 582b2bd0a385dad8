/* Transcendental functions in single precision without branches or tables, so that loops over them become vector code;
 * on processors without multiply-adds these are calls (math.h). Multiply-adds are fused where they are written so and
 * nowhere else: every instruction set gives the same bits.
 *
 * Largest errors in units in the last place over the whole range, denormals and special values included, as
 * tests/unit/support/vector_math.h demands them and test_kernels_math_long.c measured them:
 *
 *   exp log log1p 1    expm1 tanh erf sin cos 2    logistic 2.5    silu 4, gelu 6.5 (below 1e-36: of 1e-36)
 *   gelu with tanh 4 (of at least 2^-26: the rounded argument of a large exponential)    slopes 4 (of at least 2^-24)
 *   erf_inv 5, besides what XLA's approximation, whose bits it has, rounds away of x^2 at first
 *
 * Functions that are not here (tan, atan2, sinh, cbrt, lgamma and the like) are those of the C library in f64, rounded
 * once (reference/float.inc): 0.501.
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

/* x = n ln 2 + r with |r| <= ln(2)/2. The low bits of `shifted` = n + 1.5 2^23 are those of n: the sum also rounds. */
typedef struct tow__reduced {
    f32 r, shifted;
} tow__reduced;

/* r is off by -1.9e-9 n, which matters for results that are a small power. */
TOW__INLINE tow__reduced tow__reduce_exp_roughly(f32 x)
{
    const f32 shift = 12582912.0f; /* 1.5 2^23 */
    f32 shifted = tow__fma(x, 1.44269504f, shift);
    return (tow__reduced){tow__fma(shifted - shift, -0.693147182f, x), shifted}; /* exact */
}
TOW__INLINE tow__reduced tow__reduce_exp(f32 x)
{
    tow__reduced e = tow__reduce_exp_roughly(x);
    e.r = tow__fma(e.shifted - 12582912.0f, 1.90465430e-9f, e.r);
    return e;
}

/* 2^n times the power of two with the bits `one` */
TOW__INLINE f32 tow__power_of_two(f32 shifted, u32 one) { return tow__from_bits((tow__to_bits(shifted) << 23) + one); }

#define TOW__POWER_64       0x5F800000u /* bits of 2^64 */
#define TOW__POWER_MINUS_64 0x1F800000u
#define TOW__POWER_0        0x3F800000u
#define TOW__POWER_MINUS_1  0x3F000000u

/* (e^r - 1 - r) / r^2 */
TOW__INLINE f32 tow__exp_tail(f32 r)
{
    f32 p = tow__fma(0.0013882522f, r, 0.008366515f);
    p = tow__fma(p, r, 0.0416672f), p = tow__fma(p, r, 0.16666543f);
    return tow__fma(p, r, 0.49999997f);
}
TOW__INLINE f32 tow__exp_reduced(f32 r) { return tow__fma(tow__fma(tow__exp_tail(r), r, 1.0f), r, 1.0f); }
TOW__INLINE f32 tow__expm1_reduced(f32 r) { return tow__fma(tow__exp_tail(r) * r, r, r); }

/* One rounding, also of denormals. */
TOW__INLINE f32 tow__exp_scaled(tow__reduced e)
{
    return tow__exp_reduced(e.r) * tow__power_of_two(e.shifted, TOW__POWER_64) * 0x1p-64f;
}
/* e^x for x <= 43: the bits of tow__exp_f32, with less to do. */
TOW__INLINE f32 tow__exp_down_f32(f32 x)
{
    return tow__exp_scaled(tow__reduce_exp(x < -104.0f ? -104.0f : x)); /* 0 from there on */
}
/* e^-|x| for sums with something much larger where it is small: relative error 2e-9 |x| more. */
TOW__INLINE f32 tow__exp_minus_roughly(f32 x)
{
    f32 down = tow__from_bits(tow__to_bits(x) | 0x80000000u);
    return tow__exp_scaled(tow__reduce_exp_roughly(down < -104.0f ? -104.0f : down));
}

TOW__INLINE f32 tow__exp_f32(f32 x)
{
    f32 clamped = x > 89.0f ? 89.0f : x; /* infinity from there on */
    tow__reduced e = tow__reduce_exp(clamped < -104.0f ? -104.0f : clamped);
    u32 down = tow__to_bits(x) >> 1 & (TOW__POWER_64 ^ TOW__POWER_MINUS_64); /* swaps the two powers for negative x */
    f32 scale = tow__power_of_two(e.shifted, TOW__POWER_MINUS_64 ^ down);
    return tow__exp_reduced(e.r) * scale * tow__from_bits(TOW__POWER_64 ^ down);
}

TOW__INLINE f32 tow__expm1_f32(f32 x)
{
    f32 clamped = x > 89.0f ? 89.0f : x;
    tow__reduced e = tow__reduce_exp(clamped < -25.0f ? -25.0f : clamped);
    /* 2^n m + (2^n - 1), halved so that 2^128 does not overflow */
    f32 m = tow__expm1_reduced(e.r), scale = tow__power_of_two(e.shifted, TOW__POWER_MINUS_1);
    f32 y = tow__fma(scale, m, scale - 0.5f) * 2.0f;
    return fabsf(x) < 1e-9f ? x : y; /* denormals and -0 */
}

/* log(1 + f) - f for sqrt(1/2) <= 1 + f < sqrt(2) */
TOW__INLINE f32 tow__log_tail(f32 f)
{
    f32 p = tow__fma(0.0674659163f, f, -0.116756387f), square = f * f;
    p = tow__fma(p, f, 0.118881777f), p = tow__fma(p, f, -0.124055922f), p = tow__fma(p, f, 0.142195508f);
    p = tow__fma(p, f, -0.166679963f), p = tow__fma(p, f, 0.200021192f), p = tow__fma(p, f, -0.250000089f);
    p = tow__fma(p, f, 0.333333135f);
    return tow__fma(p * f, square, -0.5f * square);
}

/* log of a positive, finite x, plus `correction` */
TOW__INLINE f32 tow__log_positive(f32 x, f32 correction)
{
    bool tiny = x < 1.17549435e-38f; /* denormal: scaled by 2^24 */
    u32 bits = tow__to_bits(tiny ? x * 16777216.0f : x);
    u32 above = bits - 0x3F3504F3u; /* of sqrt(1/2): the exponent then splits at sqrt(2) */
    f32 n = (f32)((i32)above >> 23) - (tiny ? 24.0f : 0.0f);
    f32 f = tow__from_bits((above & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f;
    f32 low = tow__fma(n, -2.12194440e-4f, tow__log_tail(f)) + correction;
    return tow__fma(n, 0.693359375f, f + low);
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

/* 1/y for 1 <= y <= 2, relative error 5.1e-5: a parabola, off by 1 %, and a step of Newton's method towards as much
 * above 1/y as the parabola's error leaves it below. Division would be what loops wait for. */
TOW__INLINE f32 tow__reciprocal_near(f32 y)
{
    f32 r = tow__fma(tow__fma(0.323232323f, y, -1.45454545f), y, 2.12121212f);
    return tow__fma(tow__fma(-y, r, 1.000051f), r, r);
}
/* One more step: 3e-9, before rounding. */
TOW__INLINE f32 tow__reciprocal(f32 y)
{
    f32 r = tow__reciprocal_near(y);
    return tow__fma(tow__fma(-y, r, 1.0f), r, r);
}
/* x/y for a finite x, as exact: what is left of x goes through the reciprocal once more. */
TOW__INLINE f32 tow__quotient(f32 x, f32 y)
{
    f32 r = tow__reciprocal_near(y), q = x * r;
    return tow__fma(tow__fma(-y, q, x), r, q);
}

/* 1 / (1 + e^-x), as e^x / (1 + e^x) for negative x, which keeps the small values. */
TOW__INLINE f32 tow__logistic_f32(f32 x)
{
    f32 e = tow__exp_down_f32(-fabsf(x));
    return tow__quotient(x >= 0.0f ? 1.0f : e, 1.0f + e);
}

/* (1 - e) / (1 + e) with e = e^-2|x| = 2^n (1 + m); 1 from |x| = 9.02 on. */
TOW__INLINE f32 tow__tanh_f32(f32 x)
{
    f32 a = -2.0f * fabsf(x);
    tow__reduced e = tow__reduce_exp_roughly(a < -20.0f ? -20.0f : a);
    f32 m = tow__expm1_reduced(e.r), scale = tow__power_of_two(e.shifted, TOW__POWER_0);
    return copysignf(tow__quotient(tow__fma(-scale, m, 1.0f - scale), tow__fma(scale, m, 1.0f + scale)), x);
}

/* e^(-scale x^2) for |x| < 20, scale a power of two: an error of the square would count |x|^2 times. */
TOW__INLINE f32 tow__exp_square(f32 x, f32 scale)
{
    f32 square = x * x, e = tow__exp_down_f32(-scale * square);
    return tow__fma(-e, scale * tow__fma(x, x, -square), e);
}

/* erfc(t) / e^(-t^2) for t = c x >= 0 as P((t - 2.5) / (t + 2.5)) / (1 + 2t); relative error of P 2e-8. Given are x,
 * 2.5 / c and 2c. One division makes both quotients. */
TOW__INLINE f32 tow__erfc_factor(f32 x, f32 center, f32 twice)
{
    f32 a = x + center, b = tow__fma(twice, x, 1.0f), inverse = 1.0f / (a * b);
    f32 u = (x - center) * (b * inverse), p = tow__fma(0.000448334933f, u, 0.000313407421f);
    p = tow__fma(p, u, -0.00429461757f), p = tow__fma(p, u, 0.00103387015f), p = tow__fma(p, u, 0.0327457003f);
    p = tow__fma(p, u, -0.102989055f), p = tow__fma(p, u, 0.157630846f), p = tow__fma(p, u, -0.0990229249f);
    p = tow__fma(p, u, -0.12235678f), p = tow__fma(p, u, 1.26483822f);
    f32 r = a * inverse; /* 1/b */
    return p * tow__fma(tow__fma(-b, r, 1.0f), r, r);
}

TOW__INLINE f32 tow__erf_f32(f32 x)
{
    f32 a = fabsf(x), z = x * x, p = tow__fma(8.53883685e-05f, z, -0.000818192668f);
    p = tow__fma(p, z, 0.0052044359f), p = tow__fma(p, z, -0.0268607531f), p = tow__fma(p, z, 0.112837195f);
    p = tow__fma(p, z, -0.376126349f), p = tow__fma(p, z, 0.128379166f);
    f32 near = tow__fma(p, x, x), s = a > 12.0f ? 12.0f : a;
    f32 far = copysignf(tow__fma(-tow__exp_square(s, 1.0f), tow__erfc_factor(s, 2.5f, 2.0f), 1.0f), x);
    return a < 0.9f ? near : far;
}

TOW__INLINE f32 tow__silu_f32(f32 x) { return x * tow__logistic_f32(x); }
/* s + x s (1 - s) with s = logistic(x); far out s (1 - s) is 0 and x may be infinite */
TOW__INLINE f32 tow__silu_slope_f32(f32 x)
{
    f32 e = tow__exp_minus_roughly(x), large = tow__reciprocal(1.0f + e), small = e * large;
    f32 s = x >= 0.0f ? large : small;
    return e == 0.0f ? s : tow__fma(x, large * small, s);
}

/* Logistic of 2u, u = sqrt(2/pi)(x + 0.044715 x^3): then 0.5 x (1 + tanh u) = x logistic(2u). */
TOW__INLINE f32 tow__gelu_tanh_f32(f32 x)
{
    f32 u2 = x * tow__fma(x * x, 0.0713548163f, 1.59576912f), e = tow__exp_minus_roughly(u2);
    return x * tow__quotient(u2 >= 0.0f ? 1.0f : e, 1.0f + e);
}
TOW__INLINE f32 tow__gelu_tanh_slope_f32(f32 x)
{
    f32 z = x * x, u2 = x * tow__fma(z, 0.0713548163f, 1.59576912f), du2 = tow__fma(z, 0.214064449f, 1.59576912f);
    f32 e = tow__exp_minus_roughly(u2), large = tow__reciprocal(1.0f + e), small = e * large;
    f32 s = u2 >= 0.0f ? large : small; /* s' = s (1 - s); far out 0 times infinity, there the slope is s */
    return e == 0.0f ? s : tow__fma(x * du2, large * small, s);
}

/* 0.5 erfc(-x / sqrt 2): the normal distribution function. */
TOW__INLINE f32 tow__normal_cdf_f32(f32 x)
{
    f32 a = fabsf(x), s = a > 15.0f ? 15.0f : a; /* 0 below -15 */
    f32 tail = tow__exp_square(s, 0.5f) * (0.5f * tow__erfc_factor(s, 3.53553391f, 1.41421356f));
    f32 z = x * x, p = tow__fma(0.000101800986f, z, -0.0011798389f);
    p = tow__fma(p, z, 0.009971736f), p = tow__fma(p, z, -0.0664901957f), p = tow__fma(p, z, 0.398942262f);
    return a < 0.75f ? tow__fma(p, x, 0.5f) : x < 0.0f ? tail : 1.0f - tail;
}
TOW__INLINE f32 tow__gelu_erf_f32(f32 x) { return x * tow__normal_cdf_f32(x); }
TOW__INLINE f32 tow__gelu_erf_slope_f32(f32 x)
{
    f32 a = fabsf(x), density = 0.398942280f * tow__exp_square(a > 15.0f ? 15.0f : a, 0.5f);
    f32 cdf = tow__normal_cdf_f32(x);
    return density == 0.0f ? cdf : tow__fma(x, density, cdf);
}

/* ---- sine and cosine --------------------------------------------------------------------------------------------- */

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
    f32 z = r * r, s = tow__fma(tow__fma(-0.000195151195f, z, 0.00833215937f), z, -0.166666552f);
    f32 c = tow__fma(tow__fma(2.44329694e-05f, z, -0.00138873141f), z, 0.0416666456f);
    f32 sine = z < 1e-8f ? r : tow__fma(s * z, r, r), cosine = tow__fma(tow__fma(c, z, -0.5f), z, 1.0f); /* keeps -0 */
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
