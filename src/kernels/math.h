/* Scalar arithmetic that both the reference and the vector kernels use: what C leaves undefined, defined as in XLA. */
#ifndef TOW_SRC_KERNELS_MATH_H
#define TOW_SRC_KERNELS_MATH_H

#include <math.h>

#include "src/kernels/strided.h"

/* Floats as integers of the same order, -0 below +0; NaNs, whatever their sign and payload, become `nan`. All tests are
 * those of integers, of which compilers make vector code. */
TOW__INLINE i32 tow__order_f32(f32 x, i32 nan)
{
    union {
        f32 f;
        i32 i;
    } v = {x};
    return (v.i & INT32_MAX) > 0x7F800000 ? nan : v.i ^ (v.i >> 31 & INT32_MAX);
}
TOW__INLINE f32 tow__unorder_f32(i32 key)
{
    union {
        i32 i;
        f32 f;
    } v = {key ^ (key >> 31 & INT32_MAX)};
    return v.f != v.f ? (f32)NAN : v.f;
}
TOW__INLINE int64_t tow__order_f64(f64 x, int64_t nan)
{
    union {
        f64 f;
        int64_t i;
    } v = {x};
    return (v.i & INT64_MAX) > 0x7FF0000000000000 ? nan : v.i ^ (v.i >> 63 & INT64_MAX);
}
TOW__INLINE f64 tow__unorder_f64(int64_t key)
{
    union {
        int64_t i;
        f64 f;
    } v = {key ^ (key >> 63 & INT64_MAX)};
    return v.f != v.f ? (f64)NAN : v.f;
}

/* The maximum and minimum of IEEE 754-2019: NaN propagates, -0 is below +0. So neither order nor grouping matters. */
#define TOW__EXTREMES(T, U)                                                                                            \
    TOW__INLINE T tow__equal_zeros_##T(T x, T y, bool max)                                                             \
    {                                                                                                                  \
        union {                                                                                                        \
            T f;                                                                                                       \
            U u;                                                                                                       \
        } a = {x}, b = {y};                                                                                            \
        a.u = max ? a.u & b.u : a.u | b.u; /* of equal numbers only the signs of zeros can differ */                   \
        return a.f;                                                                                                    \
    }                                                                                                                  \
    TOW__INLINE T tow__max_##T(T x, T y)                                                                               \
    {                                                                                                                  \
        T equal = tow__equal_zeros_##T(x, y, true), nan = x == y ? equal : (T)NAN;                                     \
        return x > y ? x : x < y ? y : nan;                                                                            \
    }                                                                                                                  \
    TOW__INLINE T tow__min_##T(T x, T y)                                                                               \
    {                                                                                                                  \
        T equal = tow__equal_zeros_##T(x, y, false), nan = x == y ? equal : (T)NAN;                                    \
        return x < y ? x : x > y ? y : nan;                                                                            \
    }
TOW__EXTREMES(f32, u32)
TOW__EXTREMES(f64, uint64_t)
#undef TOW__EXTREMES

/* Integers wrap. Division by zero gives -1 (all bits set), the remainder is then x; the least number / -1 wraps. Powers
 * square and multiply; negative exponents give the exact inverse of 1 and -1, else 0. W: unsigned, as wide as
 * arithmetic is. */
#define TOW__UNSIGNED_ARITHMETIC(T, W)                                                                                 \
    static inline T tow__div_##T(T x, T y) { return (T)(y == 0 ? (T)-1 : x / y); }                                     \
    static inline T tow__rem_##T(T x, T y) { return (T)(y == 0 ? x : x % y); }                                         \
    static inline T tow__power_##T(T x, u64 exponent)                                                                  \
    {                                                                                                                  \
        W result = 1, power = x;                                                                                       \
        for (; exponent != 0; exponent >>= 1) {                                                                        \
            if (exponent & 1) result *= power;                                                                         \
            power *= power;                                                                                            \
        }                                                                                                              \
        return (T)result;                                                                                              \
    }                                                                                                                  \
    static inline T tow__pow_##T(T x, T y) { return tow__power_##T(x, y); }
#define TOW__SIGNED_ARITHMETIC(T, U, W)                                                                                \
    static inline T tow__div_##T(T x, T y)                                                                             \
    {                                                                                                                  \
        if (y == 0) return -1;                                                                                         \
        if (y == -1) return (T)(0 - (W)x);                                                                             \
        return (T)(x / y);                                                                                             \
    }                                                                                                                  \
    static inline T tow__rem_##T(T x, T y)                                                                             \
    {                                                                                                                  \
        if (y == 0) return x;                                                                                          \
        return (T)(y == -1 ? 0 : x % y);                                                                               \
    }                                                                                                                  \
    static inline T tow__power_##T(T x, u64 exponent) { return (T)tow__power_##U((U)x, exponent); }                    \
    static inline T tow__pow_##T(T x, T y)                                                                             \
    {                                                                                                                  \
        if (y >= 0) return tow__power_##T(x, (u64)y);                                                                  \
        if (x == 1) return 1;                                                                                          \
        return x == -1 ? ((y & 1) != 0 ? -1 : 1) : 0;                                                                  \
    }
TOW__UNSIGNED_ARITHMETIC(u8, u32)
TOW__UNSIGNED_ARITHMETIC(u32, u32)
TOW__UNSIGNED_ARITHMETIC(u64, u64)
TOW__SIGNED_ARITHMETIC(i8, u8, u32)
TOW__SIGNED_ARITHMETIC(i32, u32, u32)
TOW__SIGNED_ARITHMETIC(i64, u64, u64)
#undef TOW__UNSIGNED_ARITHMETIC
#undef TOW__SIGNED_ARITHMETIC

/* Threefry 2x32 with 20 rounds (Salmon et al., 2011): the block cipher behind all random bits. x: counters in, bits
 * out. */
TOW__INLINE void tow__threefry2x32(u32 k0, u32 k1, u32 *x0, u32 *x1)
{
    const u32 key[3] = {k0, k1, k0 ^ k1 ^ 0x1BD11BDAu};
    u32 a = *x0 + k0, b = *x1 + k1;
#define ROUND(r)  (a += b, b = (b << (r) | b >> (32 - (r))) ^ a)
#define INJECT(i) (a += key[(i) % 3], b += key[((i) + 1) % 3] + (i))
    ROUND(13), ROUND(15), ROUND(26), ROUND(6), INJECT(1);
    ROUND(17), ROUND(29), ROUND(16), ROUND(24), INJECT(2);
    ROUND(13), ROUND(15), ROUND(26), ROUND(6), INJECT(3);
    ROUND(17), ROUND(29), ROUND(16), ROUND(24), INJECT(4);
    ROUND(13), ROUND(15), ROUND(26), ROUND(6), INJECT(5);
#undef ROUND
#undef INJECT
    *x0 = a;
    *x1 = b;
}

/* x y + z, rounded once, without an instruction for it: the product is exact in double precision; the sum is rounded to
 * odd (if it is inexact, its last bit becomes 1), and with 53 >= 2 * 24 + 2 bits a second rounding then gives what one
 * rounding gives. */
TOW__INLINE f32 tow__fma_of_doubles(f32 x, f32 y, f32 z)
{
    f64 p = (f64)x * (f64)y, c = (f64)z, sum = p + c, part = sum - p, error = (p - (sum - part)) + (c - part);
    union {
        f64 f;
        int64_t i;
    } v = {sum};
    int64_t odd = ((error < 0) | (error > 0)) & ~v.i; /* NaN, which infinities leave, is neither */
    v.i += odd - 2 * (odd & ((error < 0) ^ (sum < 0)));
    return (f32)v.f;
}
/* The same as an instruction, or as a call where a function for processors without it is compiled beside others. Where
 * none are, loops with calls would not become vector code. */
TOW__INLINE f32 tow__fma(f32 x, f32 y, f32 z)
{
#if defined(TOW__HAVE_CLONES) || defined(__FP_FAST_FMAF)
    return fmaf(x, y, z);
#else
    return tow__fma_of_doubles(x, y, z);
#endif
}

static inline f32 tow__fma_f32(f32 x, f32 y, f32 z) { return tow__fma(x, y, z); }
static inline f64 tow__fma_f64(f64 x, f64 y, f64 z) { return fma(x, y, z); }

/* erf_inv for f32: Giles, "Approximating the erfinv function" (2010), single precision, with the logarithm and the
 * fused multiply-adds of XLA's CPU code, so that normal draws equal JAX's bit for bit. */
TOW__INLINE f32 tow__giles_log1p(f32 t)
{
    /* near zero: a rational of Cephes; else log(1 + t) of Cephes; both computed, one chosen */
    f32 p = 4.527e-05f, q = 1.0f, t2 = t * t;
    p = tow__fma(p, t, 0.49854103f), p = tow__fma(p, t, 6.5787325f), p = tow__fma(p, t, 29.911919f);
    p = tow__fma(p, t, 60.94967f), p = tow__fma(p, t, 57.112965f), p = tow__fma(p, t, 20.039553f);
    q = tow__fma(q, t, 15.062909f), q = tow__fma(q, t, 83.04757f), q = tow__fma(q, t, 221.7624f);
    q = tow__fma(q, t, 309.09872f), q = tow__fma(q, t, 216.42789f), q = tow__fma(q, t, 60.11866f);
    f32 near = t + tow__fma(-0.5f, t2, (t * t2) * (p / q));

    union {
        f32 f;
        u32 u;
    } v = {1.0f + t}, m;
    f32 e = (f32)((i32)(v.u >> 23) - 126);
    m.u = (v.u & 0x7fffffu) | 0x3f000000u; /* v = m 2^e, 0.5 <= m < 1 */
    bool low = m.f < 0.70710677f;
    f32 x = low ? (m.f - 1.0f) + m.f : m.f - 1.0f;
    e = low ? e - 1.0f : e;
    f32 x2 = x * x, x3 = x2 * x;
    f32 a = tow__fma(tow__fma(0.070376836f, x, -0.1151461f), x, 0.116769984f);
    f32 b = tow__fma(tow__fma(-0.12420141f, x, 0.14249323f), x, -0.16668057f);
    f32 c = tow__fma(tow__fma(0.20000714f, x, -0.24999994f), x, 0.3333333f);
    f32 y = tow__fma(tow__fma(a, x3, b), x3, c);
    y = tow__fma(y, x3, e * -2.1219444e-04f);
    f32 far = tow__fma(e, 0.693359375f, tow__fma(-0.5f, x2, x) + y);
    return fabsf(t) < 0.41421357f ? near : far;
}

TOW__INLINE f32 tow__erf_inv_f32(f32 x)
{
    f32 l = tow__giles_log1p(-(x * x));
    bool near = l > -5.0f;
    f32 w = near ? -2.5f - l : sqrtf(near ? 5.0f : -l) - 3.0f;
#define STEP(a, b) p = tow__fma(p, w, near ? (a) : (b))
    f32 p = near ? 2.8102264e-08f : -2.0021426e-04f;
    STEP(3.4327394e-07f, 1.0095056e-04f), STEP(-3.5233877e-06f, 1.3493432e-03f);
    STEP(-4.3915065e-06f, -3.6734284e-03f), STEP(2.1858087e-04f, 5.7395077e-03f);
    STEP(-1.253725e-03f, -7.6224613e-03f), STEP(-4.1776816e-03f, 9.4388705e-03f);
    STEP(0.24664073f, 1.001674f), STEP(1.5014094f, 2.8329768f);
#undef STEP
    f32 inside = p * x;
    f32 edge = x != x || fabsf(x) > 1.0f ? NAN : x * INFINITY;
    return fabsf(x) < 1.0f ? inside : edge;
}

/* The same approximation in double, then steps of Halley's method on erf(y) - x (with erfc in the tails): two where the
 * approximation holds, up to seven next to 1. Cubic: after a step of 1e-6 nothing is left to gain. */
static inline f64 tow__erf_inv_f64(f64 x)
{
    f64 a = fabs(x);
    if (!(a < 1)) return a == 1 ? x * (f64)INFINITY : (f64)NAN;
    if (a < 1e-8) return x * 0.88622692545275801365; /* sqrt(pi)/2 */
    f64 l = log((1 - a) * (1 + a)), y;
    if (l > -5) {
        f64 w = -2.5 - l;
        y = 2.81022636e-08, y = y * w + 3.43273939e-07, y = y * w - 3.5233877e-06, y = y * w - 4.39150654e-06;
        y = y * w + 0.00021858087, y = y * w - 0.00125372503, y = y * w - 0.00417768164, y = y * w + 0.246640727;
        y = y * w + 1.50140941;
    } else {
        f64 w = sqrt(-l) - 3;
        y = -0.000200214257, y = y * w + 0.000100950558, y = y * w + 0.00134934322, y = y * w - 0.00367342844;
        y = y * w + 0.00573950773, y = y * w - 0.0076224613, y = y * w + 0.00943887047, y = y * w + 1.00167406;
        y = y * w + 2.83297682;
    }
    y *= a;
    f64 step = y;
    for (int i = 0; i < 8 && fabs(step) > 1e-6 * y; i++) {
        f64 error = a < 0.5 ? erf(y) - a : (1 - a) - erfc(y);
        f64 slope = 1.1283791670955125739 * exp(-y * y); /* 2/sqrt(pi) exp(-y^2) */
        step = error / (slope + y * error);
        y -= step;
    }
    return copysign(y, x);
}

#endif
