/* Elementwise primitives of floats. Ranges keep clear of kinks and poles where derivatives are compared.
 * Tests kernels/reference/elementwise.c, kernels/reference/convert.c. */
#include <math.h>

#include "tests/property/property.h"

static double negate(double x) { return -x; }
static double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
static double same(double x) { return x; }
static double nonzero(double x) { return x != 0; }
static double inverse_root(double x) { return 1 / sqrt(x); }
static double logistic(double x) { return 1 / (1 + exp(-x)); }
static double relu(double x) { return x > 0 ? x : 0; }
static double silu(double x) { return x / (1 + exp(-x)); }
static double silu_slope(double x) { return logistic(x) * (1 + x * (1 - logistic(x))); }
static double gelu_erf(double x) { return 0.5 * x * (1 + erf(x / sqrt(2.0))); }
static double gelu_erf_slope(double x) { return 0.5 * (1 + erf(x / sqrt(2.0))) + x * exp(-x * x / 2) / sqrt(2 * M_PI); }
static double gelu_tanh(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
static double gelu_tanh_slope(double x)
{
    const double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), du = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + tanh(u)) + 0.5 * x * (1 - tanh(u) * tanh(u)) * du;
}

/* Newton's iteration on erf(y) = x, from Winitzki's approximation. */
static double erf_inverse(double x)
{
    const double a = 0.147, l = log((1 - x) * (1 + x)), b = 2 / (M_PI * a) + l / 2;
    double y = (x < 0 ? -1 : 1) * sqrt(sqrt(b * b - l / a) - b);
    for (int i = 0; i < 4; i++) y -= (erf(y) - x) * sqrt(M_PI) / 2 * exp(y * y);
    return y;
}

static double cube(double x) { return x * x * x; }
static double square(double x) { return x * x; }
static double one(double x) { return (void)x, 1; }
static double reciprocal(double x) { return 1 / x; }
static double inverse_square(double x) { return 1 / (x * x); }

/* psi(x) as a sum over 1/k - 1/(k + x - 1) up to K and the integral of the rest, whose error is below 1e-15 */
static double psi(double x)
{
    const int terms = 100000;
    double sum = -0.57721566490153286061, n = terms;
    for (int k = terms; k >= 1; k--) sum += 1.0 / k - 1 / (k + x - 1);
    /* sum over k > n of f(k), f(t) = 1/t - 1/(t + x - 1): the integral from n + 1/2 and f'(n + 1/2) / 24 */
    const double t = n + 0.5, u = t + x - 1;
    return sum + log(u / t) + (-1 / (t * t) + 1 / (u * u)) / 24;
}

/* psi'(x), psi''(x): sums over (x + k)^-2 and -2 (x + k)^-3, the rest likewise */
static double psi1(double x)
{
    double sum = 0;
    for (int k = 99999; k >= 0; k--) sum += 1 / ((x + k) * (x + k));
    const double u = x + 99999.5;
    return sum + 1 / u - -2 / (u * u * u) / -24;
}
static double psi2(double x)
{
    double sum = 0;
    for (int k = 99999; k >= 0; k--) sum += -2 / ((x + k) * (x + k) * (x + k));
    const double u = x + 99999.5;
    return sum - 1 / (u * u);
}

/* Modified Bessel functions by their power series, whose terms are positive. */
static double scaled_bessel(int order, double x)
{
    double term = order == 0 ? 1 : x / 2, sum = term;
    for (int k = 1; k < 400; k++) sum += term *= x * x / 4 / k / (k + order);
    return sum * exp(-fabs(x));
}
static double i0e(double x) { return scaled_bessel(0, x); }
static double i1e(double x) { return scaled_bessel(1, x); }

/* P(a, x) = sum_n x^(a+n) e^-x / gamma(a + n + 1) (DLMF 8.7.1), Q, dP/da, -(dP/da) / (dP/dx) */
static double gamma_below(double a, double x)
{
    double sum = 0;
    for (int n = 200; n >= 0; n--) sum += exp((a + n) * log(x) - x - lgamma(a + n + 1));
    return sum;
}
static double gamma_above(double a, double x) { return 1 - gamma_below(a, x); }
static double gamma_below_by_a(double a, double x)
{
    double sum = 0;
    for (int n = 60; n >= 0; n--) sum += exp((a + n) * log(x) - x - lgamma(a + n + 1)) * (log(x) - psi(a + n + 1));
    return sum;
}
static double gamma_sample_by_a(double a, double x)
{
    return -gamma_below_by_a(a, x) / exp((a - 1) * log(x) - x - lgamma(a));
}

/* I_x(a, b) = x^a / B(a, b) sum_n (1 - b)(2 - b)...(n - b) x^n / (n! (a + n)) (DLMF 8.17.7) */
static void beta_below(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) {
        const double a = in[0][i], b = in[1][i], x = in[2][i];
        double power = 1, sum = 1 / a;
        for (int n = 1; n < 400; n++) sum += (power *= (n - b) * x / n) / (a + n);
        out[0][i] = exp(a * log(x) + lgamma(a + b) - lgamma(a) - lgamma(b)) * sum;
    }
}

/* sum (q + k)^-s, the rest by the midpoint rule */
static double hurwitz(double s, double q)
{
    double sum = 0;
    for (int k = 9999; k >= 0; k--) sum += pow(q + k, -s);
    const double u = q + 9999.5;
    return sum + pow(u, 1 - s) / (s - 1) - s / 24 * pow(u, -s - 1);
}

static double is_number(double x) { return isfinite(x); }
/* 4 bits of mantissa: 1 + k/16 below 2 and 2 + k/8 from there on, halves to even */
static double rounded(double x)
{
    const double unit = ldexp(1, ilogb(x) - 4);
    return rint(x / unit) * unit;
}
static double next(double x, double y) { return nextafterf((float)x, (float)y); }

static double add(double x, double y) { return x + y; }
static double sub(double x, double y) { return x - y; }
static double mul(double x, double y) { return x * y; }
static double divide(double x, double y) { return x / y; }

static const tow__integer_pow_params power0 = {0}, power1 = {1}, power2 = {2}, power3 = {3}, power_1 = {-1},
                                     power_2 = {-2};
static const tow__polygamma_params zeroth = {0}, first = {1}, second = {2};
static const tow__precision_params half_precision = {5, 4}, as_it_is = {11, 52};
static const tow__gelu_params exact = {false}, approximate = {true};
static const tow__dtype_params to_f32 = {TOW_F32}, to_f64 = {TOW_F64}, to_i32 = {TOW_I32}, to_bool = {TOW_BOOL};

/* min(max(x, low), high) */
static void clamp(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[1]); i++) out[0][i] = fmin(fmax(in[1][i], in[0][i]), in[2][i]);
}

static void multiply_add(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) out[0][i] = fma(in[0][i], in[1][i], in[2][i]);
}

static void choose(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) out[0][i] = in[0][i] != 0 ? in[1][i] : in[2][i];
}

#define UNARY(name, function, lo, hi)                                                                                  \
    {                                                                                                                  \
        .primitive = name, .n_in = 1, .unary = function, .in = { {.dtype = TOW_F64, S2(3, 5), .low = lo, .high = hi} } \
    }
#define STEP(name, function)                                                                                           \
    {                                                                                                                  \
        .primitive = name, .n_in = 1, .unary = function, .in = { {.dtype = TOW_F64, S2(3, 5), .low = -4, .high = 4} }  \
    }
#define POWER(text, p, function, lo, hi)                                                                               \
    {                                                                                                                  \
        .primitive = "integer_pow", .label = text, .params = &p, .n_in = 1, .unary = function, .in = {                 \
            {.dtype = TOW_F64, S1(7), .low = lo, .high = hi}                                                           \
        }                                                                                                              \
    }
#define WITH(name, text, p, function, lo, hi)                                                                          \
    {                                                                                                                  \
        .primitive = name, .label = text, .params = p, .n_in = 1, .unary = function, .in = {                           \
            {.dtype = TOW_F64, S1(9), .low = lo, .high = hi}                                                           \
        }                                                                                                              \
    }
#define BINARY(name, function)                                                                                         \
    {                                                                                                                  \
        .primitive = name, .n_in = 2, .binary = function, .in = {                                                      \
            {.dtype = TOW_F64, S2(3, 5)},                                                                              \
            {.dtype = TOW_F64, S2(3, 5)}                                                                               \
        }                                                                                                              \
    }
/* Long enough for every path of a vector loop; far arguments. */
#define LONG(name, function, lo, hi)                                                                                   \
    {                                                                                                                  \
        .primitive = name, .label = "long", .n_in = 1, .unary = function, .no_derivative = true, .loose = 2, .in = {   \
            {.dtype = TOW_F64, S1(1003), .low = lo, .high = hi}                                                        \
        }                                                                                                              \
    }

static const property_case cases[] = {
    UNARY("neg", negate, -2, 2),
    UNARY("abs", fabs, 0.1, 2),
    {.primitive = "abs",
     .label = "negative",
     .n_in = 1,
     .unary = fabs,
     .in = {{.dtype = TOW_F64, S0, .low = -2, .high = -1}}},
    STEP("sign", sign),
    STEP("floor", floor),
    STEP("ceil", ceil),
    STEP("round", rint),
    {.primitive = "round",
     .label = "halves go to even",
     .n_in = 1,
     .unary = rint,
     .no_derivative = true,
     .in = {{.dtype = TOW_F64, S0, .low = 2.5, .high = 2.5}}},
    {.primitive = "stop_gradient",
     .n_in = 1,
     .unary = same,
     .no_derivative = true,
     .in = {{.dtype = TOW_F64, S2(2, 3)}}},
    UNARY("exp", exp, -3, 3),
    LONG("exp", exp, -80, 80),
    UNARY("expm1", expm1, -2, 2),
    {.primitive = "expm1",
     .label = "near 0",
     .n_in = 1,
     .unary = expm1,
     .no_derivative = true,
     .in = {{.dtype = TOW_F64, S1(5), .low = -1e-6, .high = 1e-6}}},
    UNARY("log", log, 0.2, 5),
    LONG("log", log, 1e-30, 1e4),
    UNARY("log1p", log1p, -0.5, 4),
    {.primitive = "log1p",
     .label = "near 0",
     .n_in = 1,
     .unary = log1p,
     .no_derivative = true,
     .in = {{.dtype = TOW_F64, S1(5), .low = -1e-6, .high = 1e-6}}},
    UNARY("sqrt", sqrt, 0.3, 9),
    UNARY("rsqrt", inverse_root, 0.3, 9),
    UNARY("sin", sin, -4, 4),
    LONG("sin", sin, -100, 100),
    UNARY("cos", cos, -4, 4),
    LONG("cos", cos, -100, 100),
    UNARY("tanh", tanh, -2, 2),
    LONG("tanh", tanh, -30, 30),
    UNARY("logistic", logistic, -3, 3),
    LONG("logistic", logistic, -40, 40),
    UNARY("erf", erf, -2, 2),
    LONG("erf", erf, -6, 6),
    /* The slope is steep at the ends and the reference is a Newton iteration. */
    {.primitive = "erf_inv",
     .n_in = 1,
     .unary = erf_inverse,
     .loose = 4,
     .loose_f64 = 1e4,
     .in = {{.dtype = TOW_F64, S2(3, 5), .low = -0.9, .high = 0.9}}},
    UNARY("erfc", erfc, -2, 2),
    LONG("erfc", erfc, -6, 9),
    UNARY("cbrt", cbrt, 0.3, 9),
    LONG("cbrt", cbrt, -1e30, 1e30),
    UNARY("exp2", exp2, -3, 3),
    LONG("exp2", exp2, -120, 120),
    UNARY("tan", tan, -1.3, 1.3),
    LONG("tan", tan, -100, 100),
    UNARY("asin", asin, -0.9, 0.9),
    UNARY("acos", acos, -0.9, 0.9),
    UNARY("atan", atan, -3, 3),
    LONG("atan", atan, -1e6, 1e6),
    UNARY("sinh", sinh, -3, 3),
    UNARY("cosh", cosh, -3, 3),
    UNARY("asinh", asinh, -3, 3),
    LONG("asinh", asinh, -1e30, 1e30),
    UNARY("acosh", acosh, 1.2, 5),
    UNARY("atanh", atanh, -0.8, 0.8),
    UNARY("lgamma", lgamma, 0.3, 9),
    {.primitive = "lgamma",
     .label = "negative",
     .n_in = 1,
     .unary = lgamma,
     .in = {{.dtype = TOW_F64, S1(9), .low = -2.7, .high = -2.2}}},
    /* The sums of the references lose digits. */
    {.primitive = "digamma",
     .n_in = 1,
     .unary = psi,
     .loose_f64 = 100,
     .in = {{.dtype = TOW_F64, S2(3, 5), .low = 0.4, .high = 12}}},
    {.primitive = "digamma",
     .label = "negative",
     .n_in = 1,
     .unary = psi,
     .loose_f64 = 1000,
     .in = {{.dtype = TOW_F64, S1(9), .low = -3.7, .high = -3.2}}},
    {.primitive = "polygamma",
     .label = "0",
     .params = &zeroth,
     .n_in = 1,
     .unary = psi,
     .loose_f64 = 100,
     .in = {{.dtype = TOW_F64, S1(9), .low = 2, .high = 5}}},
    {.primitive = "polygamma",
     .label = "1",
     .params = &first,
     .n_in = 1,
     .unary = psi1,
     .loose_f64 = 100,
     .in = {{.dtype = TOW_F64, S2(3, 5), .low = 0.4, .high = 12}}},
    {.primitive = "polygamma",
     .label = "2, negative",
     .params = &second,
     .n_in = 1,
     .unary = psi2,
     .loose_f64 = 100,
     .in = {{.dtype = TOW_F64, S1(9), .low = -1.8, .high = -1.4}}},
    UNARY("bessel_i0e", i0e, -6, 6),
    LONG("bessel_i0e", i0e, -60, 60),
    UNARY("bessel_i1e", i1e, -6, 6),
    LONG("bessel_i1e", i1e, -60, 60),
    {.primitive = "igamma",
     .n_in = 2,
     .binary = gamma_below,
     .loose = 4,
     .loose_f64 = 100,
     .in = {{.dtype = TOW_F64, S2(3, 5), .low = 0.3, .high = 6, .constant = true},
            {.dtype = TOW_F64, S2(3, 5), .low = 0.2, .high = 9}}},
    {.primitive = "igammac",
     .n_in = 2,
     .binary = gamma_above,
     .loose = 4,
     .loose_f64 = 100,
     .in = {{.dtype = TOW_F64, S2(3, 5), .low = 2, .high = 6, .constant = true},
            {.dtype = TOW_F64, S2(3, 5), .low = 0.2, .high = 6}}},
    {.primitive = "igamma_grad_a",
     .n_in = 2,
     .binary = gamma_below_by_a,
     .loose = 4,
     .loose_f64 = 1000, /* of the sums of the reference */
     .in = {{.dtype = TOW_F64, S1(7), .low = 0.5, .high = 4, .constant = true},
            {.dtype = TOW_F64, S1(7), .low = 0.5, .high = 6}}},
    {.primitive = "random_gamma_grad",
     .n_in = 2,
     .binary = gamma_sample_by_a,
     .no_derivative = true,
     .loose = 4,
     .loose_f64 = 1000,
     .in = {{.dtype = TOW_F64, S1(7), .low = 0.5, .high = 4, .constant = true},
            {.dtype = TOW_F64, S1(7), .low = 0.5, .high = 6, .constant = true}}},
    {.primitive = "betainc",
     .n_in = 3,
     .value = beta_below,
     .loose = 4,
     .loose_f64 = 100,
     .in = {{.dtype = TOW_F64, S2(3, 5), .low = 0.5, .high = 4, .constant = true},
            {.dtype = TOW_F64, S2(3, 5), .low = 0.5, .high = 4, .constant = true},
            {.dtype = TOW_F64, S2(3, 5), .low = 0.1, .high = 0.8}}},
    {.primitive = "zeta",
     .n_in = 2,
     .binary = hurwitz,
     .loose_f64 = 100,
     .in = {{.dtype = TOW_F64, S1(9), .low = 1.5, .high = 5, .constant = true},
            {.dtype = TOW_F64, S1(9), .low = 0.5, .high = 4}}},
    {.primitive = "is_finite", .n_in = 1, .unary = is_number, .in = {{.dtype = TOW_F64, S2(3, 5)}}},
    {.primitive = "reduce_precision",
     .label = "to 4 bits",
     .params = &half_precision,
     .n_in = 1,
     .unary = rounded,
     .no_derivative = true, /* it is taken as linear, which differences do not see */
     .in = {{.dtype = TOW_F64, S2(3, 5), .low = 1, .high = 4, .constant = true}}},
    {.primitive = "reduce_precision",
     .label = "to as many bits as there are",
     .params = &as_it_is,
     .n_in = 1,
     .unary = same,
     .in = {{.dtype = TOW_F64, S1(9)}}},
    {.primitive = "nextafter",
     .n_in = 2,
     .binary = next,
     .no_derivative = true,
     .loose_f64 = 1e8, /* the reference takes the steps of f32 */
     .in = {{.dtype = TOW_F64, S1(9), .constant = true}, {.dtype = TOW_F64, S1(9), .constant = true}}},
    {.primitive = "atan2",
     .n_in = 2,
     .binary = atan2,
     .in = {{.dtype = TOW_F64, S2(3, 5), .low = 0.4, .high = 2}, {.dtype = TOW_F64, S2(3, 5), .low = -2, .high = 3}}},
    {.primitive = "atan2",
     .label = "constant x, further than a quarter",
     .n_in = 2,
     .binary = atan2,
     .in = {{.dtype = TOW_F64, S1(5), .low = -2, .high = -0.5},
            {.dtype = TOW_F64, S1(5), .low = -2, .high = -1, .constant = true}}},
    {.primitive = "integer_pow",
     .label = "of integers",
     .params = &power3,
     .n_in = 1,
     .unary = cube,
     .in = {{.dtype = TOW_I32, S1(6), .low = -9, .high = 9}}},
    POWER("0", power0, one, -2, 2),
    POWER("1", power1, same, -2, 2),
    POWER("2", power2, square, -2, 2),
    POWER("3", power3, cube, -2, 2),
    POWER("-1", power_1, reciprocal, 0.5, 2),
    POWER("-2", power_2, inverse_square, -2, -0.5),
    UNARY("relu", relu, 0.01, 2),
    {.primitive = "relu",
     .label = "both sides",
     .n_in = 1,
     .unary = relu,
     .in = {{.dtype = TOW_F64, S2(3, 5), .low = -2, .high = 2}}},
    UNARY("silu", silu, -3, 3),
    UNARY("silu_grad", silu_slope, -3, 3),
    WITH("gelu", "erf", &exact, gelu_erf, -3, 3),
    WITH("gelu", "tanh", &approximate, gelu_tanh, -3, 3),
    WITH("gelu_grad", "erf", &exact, gelu_erf_slope, -3, 3),
    WITH("gelu_grad", "tanh", &approximate, gelu_tanh_slope, -3, 3),

    BINARY("add", add),
    BINARY("sub", sub),
    BINARY("mul", mul),
    BINARY("max", fmax),
    BINARY("min", fmin),
    {.primitive = "add",
     .label = "one element",
     .n_in = 2,
     .binary = add,
     .in = {{.dtype = TOW_F64, S0}, {.dtype = TOW_F64, S0}}},
    {.primitive = "mul",
     .label = "no elements",
     .n_in = 2,
     .binary = mul,
     .in = {{.dtype = TOW_F64, S2(0, 3)}, {.dtype = TOW_F64, S2(0, 3)}}},
    {.primitive = "div",
     .n_in = 2,
     .binary = divide,
     .in = {{.dtype = TOW_F64, S2(3, 5)}, {.dtype = TOW_F64, S2(3, 5), .low = 0.5, .high = 2}}},
    {.primitive = "div",
     .label = "constant numerator",
     .n_in = 2,
     .binary = divide,
     .in = {{.dtype = TOW_F64, S1(5), .constant = true}, {.dtype = TOW_F64, S1(5), .low = 0.5, .high = 2}}},
    {.primitive = "rem",
     .n_in = 2,
     .binary = fmod,
     .in = {{.dtype = TOW_F64, S2(3, 3), .low = 2.2, .high = 2.8},
            {.dtype = TOW_F64, S2(3, 3), .low = 0.95, .high = 1.05}}},
    {.primitive = "rem",
     .label = "negative",
     .n_in = 2,
     .binary = fmod,
     .in = {{.dtype = TOW_F64, S2(3, 3), .low = -2.8, .high = -2.2},
            {.dtype = TOW_F64, S2(3, 3), .low = 0.95, .high = 1.05}}},
    {.primitive = "pow",
     .n_in = 2,
     .binary = pow,
     .loose = 4,
     .in = {{.dtype = TOW_F64, S2(3, 5), .low = 0.4, .high = 2}, {.dtype = TOW_F64, S2(3, 5), .low = -2, .high = 3}}},
    {.primitive = "fma",
     .n_in = 3,
     .value = multiply_add,
     .in = {{.dtype = TOW_F64, S2(3, 5)}, {.dtype = TOW_F64, S2(3, 5)}, {.dtype = TOW_F64, S2(3, 5)}}},
    {.primitive = "clamp",
     .n_in = 3,
     .value = clamp,
     .in = {{.dtype = TOW_F64, S1(9), .low = -0.5, .high = -0.3},
            {.dtype = TOW_F64, S1(9)},
            {.dtype = TOW_F64, S1(9), .low = 0.3, .high = 0.5}}},
    {.primitive = "select",
     .n_in = 3,
     .value = choose,
     .in = {{.dtype = TOW_BOOL, S2(3, 5)}, {.dtype = TOW_F64, S2(3, 5)}, {.dtype = TOW_F64, S2(3, 5)}}},
    {.primitive = "select",
     .label = "one branch differentiated",
     .n_in = 3,
     .value = choose,
     .in = {{.dtype = TOW_BOOL, S1(6)}, {.dtype = TOW_F64, S1(6)}, {.dtype = TOW_F64, S1(6), .constant = true}}},

    {.primitive = "convert",
     .label = "to f64",
     .params = &to_f64,
     .n_in = 1,
     .unary = same,
     .in = {{.dtype = TOW_F64, S1(6)}}},
    {.primitive = "convert",
     .label = "to f32",
     .params = &to_f32,
     .n_in = 1,
     .unary = same,
     .no_derivative = true,
     .loose_f64 = 1e7,
     .in = {{.dtype = TOW_F64, S1(6)}}},
    {.primitive = "convert",
     .label = "to i32, towards zero",
     .params = &to_i32,
     .n_in = 1,
     .unary = trunc,
     .no_derivative = true,
     .in = {{.dtype = TOW_F64, S1(6), .low = -5, .high = 5}}},
    {.primitive = "convert",
     .label = "i32 to float",
     .params = &to_f32,
     .n_in = 1,
     .unary = same,
     .in = {{.dtype = TOW_I32, S1(6), .low = -100000, .high = 100000}}},
    {.primitive = "convert",
     .label = "i32 to bool",
     .params = &to_bool,
     .n_in = 1,
     .unary = nonzero,
     .in = {{.dtype = TOW_I32, S1(6)}}},
};

const property_table elementwise_cases = TABLE(cases);
