/* Special functions that the C library lacks, in double precision, and rounding to fewer bits.
 *
 * Errors are a few units in the last place of f64, except next to zeros of digamma, where they are relative to the
 * terms
 * that cancel. */
#ifndef TOW_SRC_KERNELS_SPECIAL_H
#define TOW_SRC_KERNELS_SPECIAL_H

#include <math.h>
#include <string.h>

#include "src/base/params.h"
#include "src/kernels/strided.h"

/* log |gamma(x)|; lgamma would write to a variable that threads share. */
static inline f64 tow__lgamma(f64 x)
{
    int sign;
    return lgamma_r(x, &sign);
}

#define TOW__PI 3.14159265358979323846

/* cot(pi x), of which only the distance from the next whole number counts. */
static inline f64 tow__cot_pi(f64 x) { return 1 / tan(TOW__PI * (x - rint(x))); }

/* psi(x) = log x - 1/2x - sum B_2k / (2k x^2k) for x >= 10 (Abramowitz and Stegun 6.3.18), whose first missing term is
 * 4e-17; psi(x) = psi(x + 1) - 1/x (6.3.5) goes there, psi(x) = psi(1 - x) - pi cot(pi x) (6.3.7) leaves the negative
 * numbers. NaN at the poles 0, -1, -2, ... */
static inline f64 tow__digamma(f64 x)
{
    f64 sum = 0;
    if (x <= 0) {
        if (x == floor(x)) return (f64)NAN;
        sum = -TOW__PI * tow__cot_pi(x);
        x = 1 - x;
    }
    for (; x < 10; x += 1) sum -= 1 / x;
    f64 r = 1 / x, z = r * r, p = 1.0 / 12;
    p = p * z - 691.0 / 32760, p = p * z + 1.0 / 132, p = p * z - 1.0 / 240, p = p * z + 1.0 / 252;
    p = p * z - 1.0 / 120, p = p * z + 1.0 / 12;
    return sum + (log(x) - r / 2 - p * z);
}

/* The Hurwitz zeta function sum_k (q + k)^-s for s > 1 and q > 0: a sum up to a = q + N >= 10, then a^(1-s)/(s-1) +
 * a^-s/2 and terms B_2j/(2j)! s (s+1) ... (s+2j-2) a^(1-s-2j) of the Euler-Maclaurin formula. */
static inline f64 tow__hurwitz_zeta(f64 s, f64 q)
{
    static const f64 bernoulli[] = {/* B_2j / (2j)! */
                                    8.33333333333333333e-02,  -1.38888888888888889e-03, 3.30687830687830688e-05,
                                    -8.26719576719576720e-07, 2.08767569878680990e-08,  -5.28419013868749318e-10,
                                    1.33825365306846788e-11,  -3.38968029632258287e-13, 8.58606205627784456e-15,
                                    -2.17486869855806187e-16, 5.50900282836022952e-18,  -1.39544646858125233e-19};
    const f64 enough = 10 + floor(s / 2); /* terms of the tail shrink from there on, whatever s is */
    f64 sum = 0, a = q;
    for (; a < enough; a += 1) {
        const f64 term = pow(a, -s);
        sum += term;
        if (s > TOW__POLYGAMMA_ORDERS + 1 && !(term > 1e-17 * sum)) return sum; /* the next are smaller still */
    }
    f64 power = pow(a, 1 - s), factor = s * (power / a) / a;
    sum += power / (s - 1) + power / a / 2;
    for (int j = 0; j < (int)(sizeof bernoulli / sizeof *bernoulli); j++) {
        f64 term = bernoulli[j] * factor;
        sum += term;
        if (fabs(term) <= 1e-17 * fabs(sum)) break;
        factor *= (s + 2 * j + 1) / a * ((s + 2 * j + 2) / a);
    }
    return sum;
}

/* The derivative of pi cot(pi x) of the given order, with c = cot(pi x): polynomials P with P_0 = pi c and
 * P_k+1 = -pi P_k' (1 + c^2). */
static inline f64 tow__cot_derivative(int order, f64 c)
{
    f64 p[TOW__POLYGAMMA_ORDERS + 3] = {0, TOW__PI};
    for (int k = 0; k < order; k++) {
        f64 below = 0, here = 0; /* coefficients i - 2 and i - 1 of P', shifted by one */
        for (int i = 0; i <= k + 2; i++) {
            f64 slope = i + 1 <= k + 1 ? (i + 1) * p[i + 1] : 0;
            p[i] = -TOW__PI * (slope + below);
            below = here;
            here = slope;
        }
    }
    f64 sum = 0;
    for (int i = order + 1; i >= 0; i--) sum = sum * c + p[i];
    return sum;
}

/* The derivative of digamma of order n: (-1)^(n+1) n! zeta(n+1, x) for x > 0, and by reflection
 * (-1)^n psi_n(1 - x) - d^n/dx^n pi cot(pi x) below (Abramowitz and Stegun 6.4.10, 6.4.7). At the poles infinite,
 * and NaN for even n, whose sides differ in sign. */
static inline f64 tow__polygamma(int n, f64 x)
{
    if (n == 0) return tow__digamma(x);
    f64 sign = n % 2 ? 1 : -1;
    if (x != x) return x;
    if (x <= 0) {
        if (x == floor(x)) return n % 2 ? (f64)INFINITY : (f64)NAN;
        f64 right = tow__polygamma(n, 1 - x);
        return -sign * right - tow__cot_derivative(n, tow__cot_pi(x));
    }
    if (x == (f64)INFINITY) return sign * 0.0;
    return sign * tgamma(n + 1.0) * tow__hurwitz_zeta(n + 1, x);
}

/* The Hurwitz zeta function for any s and q: infinite at s = 1, NaN below; where q <= 0 a number for whole s alone,
 * and at
 * 0, -1, -2, ... infinite for even s. */
static inline f64 tow__zeta(f64 s, f64 q)
{
    if (s != s || q != q || s < 1) return (f64)NAN;
    if (s == 1) return (f64)INFINITY;
    if (q > 0)
        return q == (f64)INFINITY ? 0 : s == (f64)INFINITY ? (q > 1 ? 0 : q < 1 ? s : 1) : tow__hurwitz_zeta(s, q);
    if (s != floor(s) || s == (f64)INFINITY) return (f64)NAN;
    const bool even = fmod(s, 2) == 0;
    if (q == floor(q)) return even ? (f64)INFINITY : (f64)NAN;
    if (s <= TOW__POLYGAMMA_ORDERS + 1) return (even ? 1 : -1) * tow__polygamma((int)s - 1, q) / tgamma(s);
    return pow(q - floor(q), -s) + pow(q - ceil(q), -s); /* the terms next to 0; all others are below 3^-101 of them */
}

/* x rounded to a float of so many bits, to nearest even, and kept in its type: what is too large becomes infinite, what
 * is below the smallest normal number of that format a zero with x's sign. NaN stays as it is. */
#define TOW__REDUCE_PRECISION(T, U, MANTISSA, EXPONENT)                                                                \
    static inline T tow__reduce_precision_##T(T x, int64_t exponent_bits, int64_t mantissa_bits)                       \
    {                                                                                                                  \
        const U one = 1, sign = one << (MANTISSA + EXPONENT), field = (((one << EXPONENT) - 1)) << MANTISSA;           \
        U u;                                                                                                           \
        if (x != x) return x;                                                                                          \
        memcpy(&u, &x, sizeof u);                                                                                      \
        if (mantissa_bits < MANTISSA) {                                                                                \
            const U last = one << (MANTISSA - mantissa_bits);                                                          \
            u += (last >> 1) - 1 + (u & last ? 1 : 0);                                                                 \
            u &= ~(last - 1);                                                                                          \
        }                                                                                                              \
        if (exponent_bits < EXPONENT) {                                                                                \
            const U bias = (one << (EXPONENT - 1)) - 1, reduced = (one << (exponent_bits - 1)) - 1;                    \
            const U exponent = u & field, signed_zero = u & sign;                                                      \
            if (exponent > (bias + reduced) << MANTISSA) u = signed_zero | field;                                      \
            if (exponent <= (bias - reduced) << MANTISSA) u = signed_zero;                                             \
        }                                                                                                              \
        memcpy(&x, &u, sizeof u);                                                                                      \
        return x;                                                                                                      \
    }
TOW__REDUCE_PRECISION(f32, u32, 23, 8)
TOW__REDUCE_PRECISION(f64, uint64_t, 52, 11)
#undef TOW__REDUCE_PRECISION

#endif
