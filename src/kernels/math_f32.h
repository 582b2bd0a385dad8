/* Transcendental functions in single precision without branches, tables or calls, so that loops over them become vector
 * code. No fused multiply-adds are used: every instruction set gives the same bits. Errors are at most 4 units in the
 * last place over the whole range, denormals and special values included (tests/unit/test_kernels_math.c).
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

TOW__INLINE f32 tow__tanh_f32(f32 x)
{
    f32 a = fabsf(x), z = x * x, p = 0.00214753975f;
    p = p * z - 0.00818267744f, p = p * z + 0.0217029694f, p = p * z - 0.0539472029f, p = p * z + 0.133332103f;
    p = p * z - 0.333333313f;
    f32 near = (p * z) * x + x;
    f32 far = copysignf(1.0f - 2.0f / (tow__exp_f32(2.0f * a) + 1.0f), x);
    return a < 0.625f ? near : far;
}

/* erfc(t) for t >= 0 as e^(-t^2) P((t - 2.5) / (t + 2.5)) / (1 + 2t); relative error 2e-8 + 6e-8 t^2. */
TOW__INLINE f32 tow__erfc_tail(f32 t)
{
    f32 s = t > 12.0f ? 12.0f : t; /* erfc(12) is 0 */
    f32 u = (s - 2.5f) / (s + 2.5f), p = 0.000448334933f;
    p = p * u + 0.000313407421f, p = p * u - 0.00429461757f, p = p * u + 0.00103387015f, p = p * u + 0.0327457003f;
    p = p * u - 0.102989055f, p = p * u + 0.157630846f, p = p * u - 0.0990229249f, p = p * u - 0.12235678f;
    p = p * u + 1.26483822f;
    return tow__exp_f32(-s * s) * (p / (1.0f + 2.0f * s));
}

TOW__INLINE f32 tow__erf_f32(f32 x)
{
    f32 a = fabsf(x), z = x * x, p = 8.53883685e-05f;
    p = p * z - 0.000818192668f, p = p * z + 0.0052044359f, p = p * z - 0.0268607531f, p = p * z + 0.112837195f;
    p = p * z - 0.376126349f, p = p * z + 0.128379166f;
    f32 near = p * x + x, far = copysignf(1.0f - tow__erfc_tail(a), x);
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
    f32 tail = 0.5f * tow__erfc_tail(fabsf(x) * 0.707106781f);
    return x < 0.0f ? tail : 1.0f - tail;
}
TOW__INLINE f32 tow__gelu_erf_f32(f32 x) { return x * tow__normal_cdf_f32(x); }
TOW__INLINE f32 tow__gelu_erf_slope_f32(f32 x)
{
    f32 density = 0.398942280f * tow__exp_f32(-0.5f * x * x);
    return tow__normal_cdf_f32(x) + (density == 0.0f ? 0.0f : x * density);
}

#endif
