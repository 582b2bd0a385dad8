/* Incomplete gamma and beta functions in double precision, and what derivatives of them need.
 *
 * Two ideas keep digits where textbook formulas lose them. Products of powers are not exponentials of large logarithms:
 * with phi(u) = u - log(1 + u) >= 0 and gamma*(a) = gamma(a) / (sqrt(2 pi) a^(a - 1/2) e^-a), which is near 1,
 *
 *     x^a e^-x / gamma(a + 1) = e^(-a phi(u)) / (sqrt(2 pi a) gamma*(a)),  u = (x - a) / a
 *     x^a (1 - x)^b / B(a, b) = sqrt(a b / (2 pi (a + b))) e^-(a phi(u) + b phi(v))
 *                               gamma*(a + b) / (gamma*(a) gamma*(b)), u = d / a, v = -d / b, d = x (a + b) - a
 *
 * And where series are long, x near a large a, the incomplete gamma function has Temme's uniform expansion. Errors are
 * some units in the last place of f64; where a result is below 1e-20, relative to it, up to a few hundred, because
 * e^-z loses z units. Arguments that are not in the domain give NaN, the ends of the domain limits, as in lax. */
#ifndef TOW_SRC_KERNELS_INCOMPLETE_H
#define TOW_SRC_KERNELS_INCOMPLETE_H

#include "src/kernels/special.h"

enum {
    TOW__TEMME_TERMS = 7,
    TOW__TEMME_POWERS = 18
};

/* phi(u) = u - log(1 + u), u > -1, where `one_more` is 1 + u without the error that the sum would have. With r = u /
 * (2 + u): log(1 + u) = 2 (r + r^3/3 + ...) and u - 2r = u r. */
static inline f64 tow__phi(f64 u, f64 one_more)
{
    if (!(fabs(u) < 0.5)) return u - log(one_more);
    const f64 r = u / (2 + u), z = r * r;
    f64 power = 2 * r * z, sum = 0;
    for (int k = 3; k < 60; k += 2, power *= z) {
        const f64 next = sum + power / k;
        if (next == sum) break;
        sum = next;
    }
    return u * r - sum;
}

/* log gamma*(a) = 1/12a - 1/360a^3 + ... for a >= 10 (Abramowitz and Stegun 6.1.41) */
static inline f64 tow__stirling(f64 a)
{
    const f64 r = 1 / a, z = r * r;
    f64 p = -3617.0 / 122400;
    p = p * z + 1.0 / 156, p = p * z - 691.0 / 360360, p = p * z + 1.0 / 1188, p = p * z - 1.0 / 1680;
    p = p * z + 1.0 / 1260, p = p * z - 1.0 / 360, p = p * z + 1.0 / 12;
    return p * r;
}

#define TOW__ROOT_2_PI 2.50662827463100050242

/* gamma*(a) for a > 0; below 1 by gamma(a) = gamma(a + 1) / a */
static inline f64 tow__gamma_star(f64 a)
{
    if (a >= 10) return exp(tow__stirling(a));
    if (a < 1) return tgamma(a + 1) * exp(a) / (TOW__ROOT_2_PI * pow(a, a + 0.5));
    return tgamma(a) * exp(a) / (TOW__ROOT_2_PI * pow(a, a - 0.5));
}

/* log gamma(1 + a), 0 <= a <= 1/2, relative to it: -log(1 + a) + (1 - Euler's constant) a + sum (-1)^k (zeta(k) - 1)
 * a^k / k */
static inline f64 tow__lgamma1p(f64 a)
{
    static const f64 c[] = {
        0.3224670334241132,     -0.067352301053198102,   0.020580808427784546,   -0.0073855510286739857,
        0.0028905103307415234,  -0.001192753911703261,   0.00050966952474304245, -0.00022315475845357939,
        9.9457512781808531e-05, -4.4926236738133142e-05, 2.0507212775670691e-05, -9.4394882752683967e-06,
        4.3748667899074882e-06, -2.0392157538013662e-06, 9.5514121304074194e-07, -4.4924691987645662e-07,
        2.1207184805554665e-07, -1.0043224823968099e-07, 4.7698101693639804e-08, -2.2711094608943164e-08,
        1.0838659214896955e-08, -5.1834750419700466e-09, 2.4836745438024785e-09, -1.1921401405860912e-09,
        5.7313672416788623e-10, -2.7595228851242334e-10, 1.3304764374244489e-10, -6.4229645638380996e-11};
    f64 sum = 0;
    for (int k = (int)(sizeof c / sizeof *c) - 1; k >= 0; k--) sum = (sum + c[k]) * a;
    return (sum + 0.42278433509846713939) * a - log1p(a);
}

/* ---- incomplete gamma functions: P(a, x), Q = 1 - P -------------------------------------------------------------- */

/* x^a e^-x / gamma(a + 1), a > 0, x > 0 */
static inline f64 tow__gamma_power(f64 a, f64 x)
{
    if (a >= 10) return exp(-a * tow__phi((x - a) / a, x / a)) / (TOW__ROOT_2_PI * sqrt(a) * exp(tow__stirling(a)));
    const f64 half = exp(-x / 2);
    return pow(x, a) * half / tgamma(a + 1) * half;
}

/* Temme's expansion is used for a >= 200 and |u| <= 0.3, u = (x - a) / a: with eta^2 / 2 = phi(u) and eta's sign that
 * of u,
 *   Q = erfc(eta sqrt(a/2)) / 2 + e^(-a eta^2 / 2) / sqrt(2 pi a) sum_k c_k(eta) a^-k        (DLMF 8.12.4)
 * t: the sum; t_eta, t_a: its derivatives with respect to eta, and to a at fixed eta. */
typedef struct tow__temme {
    f64 u, eta, t, t_eta, t_a;
} tow__temme;

static inline bool tow__temme_fits(f64 a, f64 x) { return a >= 200 && fabs(x - a) <= 0.3 * a; }

static inline tow__temme tow__temme_of(f64 a, f64 x)
{
    static const f64 c[TOW__TEMME_TERMS][TOW__TEMME_POWERS] = {
        /* c_k(eta) = sum_n c[k][n] eta^n */
        {-0.33333333333333331, 0.083333333333333329, -0.014814814814814815, 0.0011574074074074073,
         0.00035273368606701942, -0.0001787551440329218, 3.9192631785224377e-05, -2.185448510679992e-06,
         -1.85406221071516e-06, 8.2967113409530865e-07, -1.7665952736826078e-07, 6.7078535434014984e-09,
         1.0261809784240309e-08, -4.3820360184533529e-09, 9.1476995822367902e-10, -2.5514193994946248e-11,
         -5.8307721325504256e-11, 2.4361948020667415e-11},
        {-0.0018518518518518519, -0.003472222222222222, 0.0026455026455026454, -0.00099022633744855963,
         0.00020576131687242798, -4.018775720164609e-07, -1.8098550334489977e-05, 7.6491609160811098e-06,
         -1.6120900894563446e-06, 4.647127802807434e-09, 1.3786334469157209e-07, -5.7525456035177047e-08,
         1.1951628599778148e-08, -1.7543241719747647e-11, -1.0091543710600413e-09, 4.1627929918425828e-10,
         -8.5639070264929801e-11},
        {0.0041335978835978834, -0.0026813271604938273, 0.0007716049382716049, 2.0093878600823047e-06,
         -0.0001073665322636516, 5.2923448829120125e-05, -1.2760635188618728e-05, 3.4235787340961378e-08,
         1.3721957309062934e-06, -6.2989921383800548e-07, 1.4280614206064242e-07, -2.0477098421990866e-10,
         -1.409252991086752e-08, 6.2289740849220218e-09, -1.3670488396617114e-09, 9.428356159014678e-13},
        {0.00064943415637860077, 0.00022947209362139917, -0.0004691894943952557, 0.00026772063206283885,
         -7.5618016718839766e-05, -2.3965051138672968e-07, 1.1082654115347302e-05, -5.6749528269915965e-06,
         1.4230900732435883e-06, -2.7861080291528143e-11, -1.6958404091930278e-07, 8.0994649053880827e-08,
         -1.9111168485973655e-08, 2.3928620439808118e-12, 2.0620131815488797e-09},
        {-0.00086188829091671173, 0.00078403922172006662, -0.00029907248030319018, -1.4638452578843418e-06,
         6.6414982154651219e-05, -3.9683650471794347e-05, 1.1375726970678419e-05, 2.5074972262375329e-10,
         -1.6954149536558305e-06, 8.9075075322053094e-07, -2.2929348340008049e-07, 2.9567941375440492e-11,
         2.8865829742708783e-08, -1.4189739437803219e-08},
        {-0.00033679855336635813, -6.9728137583658571e-05, 0.00027727532449593918, -0.00019932570516188847,
         6.797780477937208e-05, 1.4190629206439671e-07, -1.3594048189768693e-05, 8.018470256334202e-06,
         -2.2914811765080952e-06, -3.2524735512984538e-10, 3.4652846491085265e-07, -1.8447187191171344e-07,
         4.8240967037894184e-08},
        {0.00053130793646399225, -0.00059216643735369393, 0.0002708782096718045, 7.9023532326603281e-07,
         -8.1539693675619691e-05, 5.6116827531062497e-05, -1.8329116582843375e-05, -3.0796134506033047e-09,
         3.4651553688036091e-06, -2.0291327396058603e-06, 5.7887928631490039e-07, 2.3386306738266568e-13}};
    const f64 u = (x - a) / a, root = sqrt(2 * tow__phi(u, x / a)), eta = u < 0 ? -root : root, r = 1 / a;
    tow__temme y = {u, eta, 0, 0, 0};
    for (int k = TOW__TEMME_TERMS - 1; k >= 0; k--) {
        f64 value = 0, slope = 0;
        for (int n = TOW__TEMME_POWERS - 1; n >= 0; n--) {
            slope = slope * eta + value;
            value = value * eta + c[k][n];
        }
        y.t_a = y.t_a * r - k * value;
        y.t = y.t * r + value;
        y.t_eta = y.t_eta * r + slope;
    }
    y.t_a *= r;
    return y;
}

/* e^(-a eta^2 / 2) / sqrt(2 pi a) */
static inline f64 tow__temme_density(f64 a, const tow__temme *t)
{
    return exp(-a * (t->eta * t->eta / 2)) / (TOW__ROOT_2_PI * sqrt(a));
}

/* (dQ/da) / tow__temme_density at fixed x, from d(eta)/da = -u / (a eta) and d(a eta^2 / 2)/da = -log(x/a). */
static inline f64 tow__temme_slope(f64 a, const tow__temme *t)
{
    const f64 ratio = t->eta == 0 ? 1 : t->u / t->eta;
    return ratio - t->eta / 2 + (log1p(t->u) - 0.5 / a) * t->t - ratio / a * t->t_eta + t->t_a;
}

/* sum_n x^n / ((a + 1) ... (a + n)), so that P = tow__gamma_power times it; *slope: its derivative with respect to a.
 * */
static inline f64 tow__gamma_series(f64 a, f64 x, f64 *slope)
{
    f64 term = 1, sum = 1, dterm = 0, dsum = 0;
    for (int n = 1; n < 10000; n++) {
        const f64 factor = x / (a + n);
        dterm = (dterm - term / (a + n)) * factor;
        term *= factor;
        sum += term;
        dsum += dterm;
        if (term <= 1e-17 * sum && fabs(dterm) <= 1e-17 * fabs(dsum)) break;
    }
    *slope = dsum;
    return sum;
}

/* Q / (x^a e^-x / gamma(a)) as a continued fraction by forward recurrence, x > a + 1; *slope: its derivative with
 * respect to a (DLMF 8.9.2, as in Cephes and lax). */
static inline f64 tow__gamma_fraction(f64 a, f64 x, f64 *slope)
{
    f64 y = 1 - a, z = x + y + 1, p2 = 1, q2 = x, p1 = x + 1, q1 = z * x, dp2 = 0, dq2 = 0, dp1 = 0, dq1 = -x;
    f64 value = p1 / q1, d = (dp1 - value * dq1) / q1;
    for (int n = 1; n < 10000; n++) {
        y += 1;
        z += 2;
        const f64 c = n, yc = y * c, p = p1 * z - p2 * yc, q = q1 * z - q2 * yc;
        const f64 dp = dp1 * z - p1 - dp2 * yc + p2 * c, dq = dq1 * z - q1 - dq2 * yc + q2 * c;
        const f64 old = value, old_d = d;
        p2 = p1, p1 = p, q2 = q1, q1 = q, dp2 = dp1, dp1 = dp, dq2 = dq1, dq1 = dq;
        if (q != 0) {
            value = p / q;
            d = (dp - value * dq) / q;
            if (fabs(value - old) <= 1e-16 * value && fabs(d - old_d) <= 1e-16 * fabs(d)) break;
        }
        if (fabs(p) > 1e100) {
            const f64 small = 1e-100;
            p2 *= small, p1 *= small, q2 *= small, q1 *= small, dp2 *= small, dp1 *= small, dq2 *= small, dq1 *= small;
        }
    }
    *slope = d;
    return value;
}

/* Q for x <= 1.1 and small a, where P is near 1: 1 - x^a / gamma(a + 1) (1 + sum_n a (-x)^n / ((a + n) n!)) */
static inline f64 tow__gamma_rest(f64 a, f64 x)
{
    f64 power = 1, sum = 0;
    for (int n = 1; n < 100; n++) {
        power *= -x / n;
        const f64 term = power * a / (a + n);
        sum += term;
        if (fabs(term) <= 1e-17 * fabs(sum)) break;
    }
    const f64 exponent = a * log(x) - (a <= 0.5 ? tow__lgamma1p(a) : tow__lgamma(1 + a));
    return -expm1(exponent) - exp(exponent) * sum;
}

/* P, or Q with `upper` */
static inline f64 tow__incomplete_gamma(f64 a, f64 x, bool upper)
{
    f64 unused;
    if (x != x || a != a || x < 0 || a < 0 || (a == 0 && x == 0)) return (f64)NAN;
    if (x == 0 || a == (f64)INFINITY) return x == (f64)INFINITY ? !upper : upper;
    if (a == 0 || x == (f64)INFINITY) return !upper;
    if (tow__temme_fits(a, x)) {
        const tow__temme t = tow__temme_of(a, x);
        const f64 side = upper ? 1 : -1;
        return erfc(side * t.eta * sqrt(a / 2)) / 2 + side * tow__temme_density(a, &t) * t.t;
    }
    if (upper && x <= 1.1 && (x <= 0.5 ? a <= -0.4 / log(x) : a <= 1.1 * x)) return tow__gamma_rest(a, x);
    if (x > a + 1) {
        const f64 rest = tow__gamma_power(a, x) * a * tow__gamma_fraction(a, x, &unused);
        return upper ? rest : 1 - rest;
    }
    const f64 below = tow__gamma_power(a, x) * tow__gamma_series(a, x, &unused);
    return upper ? 1 - below : below;
}

static inline f64 tow__igamma(f64 a, f64 x) { return tow__incomplete_gamma(a, x, false); }
static inline f64 tow__igammac(f64 a, f64 x) { return tow__incomplete_gamma(a, x, true); }

/* (dP/da) / (x^a e^-x / gamma(a + 1)), for 0 < a, 0 < x, both finite */
static inline f64 tow__igamma_slope(f64 a, f64 x)
{
    f64 slope;
    if (tow__temme_fits(a, x)) {
        const tow__temme t = tow__temme_of(a, x);
        return -tow__temme_slope(a, &t) * exp(tow__stirling(a));
    }
    if (x > a + 1) {
        const f64 value = tow__gamma_fraction(a, x, &slope);
        return -a * (value * (log(x) - tow__digamma(a)) + slope);
    }
    const f64 value = tow__gamma_series(a, x, &slope);
    return value * (log(x) - tow__digamma(a + 1)) + slope;
}

/* True if the slopes of igamma with respect to a are numbers; else *y is what they are, 0 at x = 0 and infinity. */
static inline bool tow__igamma_inside(f64 a, f64 x, f64 *y)
{
    if (x != x || a != a || x < 0 || !(a > 0)) return *y = (f64)NAN, false;
    if (x == 0 || x == (f64)INFINITY || a == (f64)INFINITY) return *y = 0, false;
    return true;
}

/* dP/da */
static inline f64 tow__igamma_grad_a(f64 a, f64 x)
{
    f64 y;
    if (!tow__igamma_inside(a, x, &y)) return y;
    const f64 power = tow__gamma_power(a, x);
    return power == 0 ? 0 : power * tow__igamma_slope(a, x);
}

/* dx/da of a sample x of the gamma distribution with shape a, by implicit differentiation: -(dP/da) / (dP/dx), where
 * dP/dx = x^(a-1) e^-x / gamma(a) (Figurnov et al., 2018) */
static inline f64 tow__random_gamma_grad(f64 a, f64 x)
{
    f64 y;
    if (!tow__igamma_inside(a, x, &y)) return y;
    return -tow__igamma_slope(a, x) * (x / a);
}

/* ---- the regularized incomplete beta function -------------------------------------------------------------------- */

/* 1 / (1 + d1 / (1 + d2 / ...)) by Lentz's method (DLMF 8.17.22), x < (a + 1) / (a + b + 2) */
static inline f64 tow__beta_fraction(f64 a, f64 b, f64 x)
{
    const f64 tiny = 1e-300;
    f64 c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    f64 value = d;
    for (int m = 1; m < 100000; m++) {
        f64 factor = 1;
        for (int odd = 0; odd < 2; odd++) {
            const f64 a2 = a + 2 * m;
            const f64 term = odd ? -(a + m) / a2 * ((a + b + m) / (a2 + 1)) * x : m / (a2 - 1) * ((b - m) / a2) * x;
            d = 1 + term * d;
            c = 1 + term / c;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = fabs(c) < tiny ? tiny : c;
            factor *= c * d;
            value *= c * d;
        }
        if (fabs(factor - 1) <= 1e-16) break;
    }
    return value;
}

/* x (a + b) - a, rounded once: next to the mean nothing is left of its terms. */
static inline f64 tow__beta_distance(f64 a, f64 b, f64 x)
{
    const f64 n = a + b, t = n - a, lost = (a - (n - t)) + (b - t); /* what rounding took from the sum */
    return fma(x, n, -a) + x * lost;
}

/* I_x(a, b), or with `swap` 1 - I_x(a, b), inside of its domain */
static inline f64 tow__beta_side(f64 a, f64 b, f64 x, bool swap)
{
    const f64 p = swap ? b : a, q = swap ? a : b, y = swap ? 1 - x : x, rest = swap ? x : 1 - x;
    const f64 n = p + q, distance = tow__beta_distance(a, b, x), d = swap ? -distance : distance;
    const f64 exponent = p * tow__phi(d / p, y * (n / p)) + q * tow__phi(-d / q, rest * (n / q));
    const f64 stars = tow__gamma_star(n) / tow__gamma_star(p) / tow__gamma_star(q);
    const f64 power = sqrt(p / n * q) / TOW__ROOT_2_PI * exp(-exponent) * stars; /* x^a (1 - x)^b / B(a, b) */
    return power / p * tow__beta_fraction(p, q, y);
}

/* I_x(a, b) where a and b are at least 1e9, for which the fraction is too long: Temme's expansion of one term, with
 * n = a + b, x0 = a / n, and eta^2 / 2 = (a phi(u) + b phi(v)) / n, whose sign is that of x - x0,
 *     I = erfc(-eta sqrt(n/2)) / 2 + e^(-n eta^2 / 2) / sqrt(2 pi n) (1/eta - sqrt(x0 (1 - x0)) / (x - x0))
 * (Temme, 1982). The terms that are left out are below 1e-13. */
static inline f64 tow__beta_expanded(f64 a, f64 b, f64 x)
{
    const f64 n = a + b, x0 = a / n, y0 = b / n, root = sqrt(x0 * y0), d = tow__beta_distance(a, b, x) / n; /* x - x0 */
    const f64 half = x0 * tow__phi(d / x0, x / x0) + y0 * tow__phi(-d / y0, (1 - x) / y0);
    const f64 eta = (d < 0 ? -1 : 1) * sqrt(2 * half);
    const f64 factor = fabs(eta) < 1e-8 ? (1 - 2 * x0) / (3 * root) : 1 / eta - root / d;
    return erfc(-eta * sqrt(n / 2)) / 2 + exp(-n * half) / (TOW__ROOT_2_PI * sqrt(n)) * factor;
}

/* I_x(a, b). The fraction converges best below the mean; beyond it 1 - I is computed, unless it is so near 1 that the
 * difference would lose digits. */
static inline f64 tow__betainc(f64 a, f64 b, f64 x)
{
    const bool no_a = a == 0 || b == (f64)INFINITY, no_b = b == 0 || a == (f64)INFINITY; /* all weight is at one end */
    if (a != a || b != b || x != x || a < 0 || b < 0 || x < 0 || x > 1 || (no_a && no_b)) return (f64)NAN;
    if (no_a || no_b || x == 0 || x == 1) return no_a ? x > 0 : x == 1;
    if (a < 1e-300 || b < 1e-300) return b / (a + b); /* that nearly */
    if (a >= 1e9 && b >= 1e9) return tow__beta_expanded(a, b, x);
    if (x < (a + 1) / (a + b + 2)) return tow__beta_side(a, b, x, false);
    const f64 above = tow__beta_side(a, b, x, true);
    return above > 0.9 && x < 0.99 ? tow__beta_side(a, b, x, false) : 1 - above;
}

#endif
