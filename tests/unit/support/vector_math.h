/* The vector functions of one f32 variable: what they should be, in double, and how far they may be off. Shared by the
 * everyday test and the long one. */
#ifndef TOW_TESTS_VECTOR_MATH_H
#define TOW_TESTS_VECTOR_MATH_H

#include "tests/unit/support/kernels.h"

#include "src/kernels/tables.h"

/* Distance of got from want in units of the last place of want as a float, of 2^-149 or `least` at least. */
static double ulps(double got, double want, double least)
{
    if (got == want || (isnan(got) && isnan(want))) return 0;
    if (isnan(got) || isnan(want)) return 1e30;
    double largest = 340282346638528859811704183484516925440.0,
           limit = largest + ldexp(1, 103); /* rounds to infinity */
    if (fabs(want) >= limit) return isinf(got) && (got > 0) == (want > 0) ? 0 : fabs(got) == largest ? 1 : 1e30;
    if (isinf(got)) return fabs(want) > largest * (1 - ldexp(1, -22)) ? 1 : 1e30;
    double unit = ulp_of(want);
    return fabs(got - want) / (unit > least ? unit : least);
}

static double reference_logistic(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double reference_silu(double x) { return x * reference_logistic(x); }
static double reference_silu_grad(double x)
{
    double s = reference_logistic(x), both = s * reference_logistic(-x);
    return both == 0 ? s : s + x * both;
}
static double reference_lgamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}
static double reference_rsqrt(double x) { return 1 / sqrt(x); }
static double reference_neg(double x) { return -x; }
static double reference_square(double x) { return x * x; }
static double reference_relu(double x) { return isnan(x) ? x : x > 0 ? x : 0; }
static double reference_sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
static double reference_normal(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static double reference_gelu_erf(double x) { return x * reference_normal(x); }
static double reference_gelu_erf_grad(double x)
{
    double density = 0.39894228040143267794 * exp(-0.5 * x * x);
    return reference_normal(x) + (density == 0 ? 0 : x * density);
}
static double reference_inner(double x) { return 1.5957691216057307117 * (x + 0.044715 * x * x * x); }
static double reference_gelu_tanh(double x) { return x * reference_logistic(reference_inner(x)); }
static double reference_gelu_tanh_grad(double x)
{
    double u = reference_inner(x), s = reference_logistic(u), both = s * reference_logistic(-u);
    return both == 0 ? s : s + x * both * 1.5957691216057307117 * (1 + 3 * 0.044715 * x * x);
}
/* Newton's method on erf, and on erfc next to 1, from an approximation in f64 of another kind than the kernel's. */
static double reference_erf_inv(double x)
{
    double a = fabs(x), l = a < 1 ? log1p(-a * a) : 0, t = 2 / (3.14159265358979323846 * 0.147) + l / 2;
    if (!(a < 1)) return a == 1 ? x * (double)INFINITY : (double)NAN;
    double y = sqrt(sqrt(t * t - l / 0.147) - t); /* Winitzki: two digits */
    if (a < 1e-4) return x * (0.88622692545275801365 + 0.23201366653465449 * a * a);
    for (int i = 0; i < 6; i++) {
        double error = a < 0.5 ? erf(y) - a : (1 - a) - erfc(y);
        y -= error / (1.1283791670955125739 * exp(-y * y));
    }
    return copysign(y, x);
}

/* XLA's approximation, whose bits the kernel has, begins with x^2 in single precision: what that rounds away, half a
 * unit of 2^-24, is an error of x. */
static double rounded_square(double x)
{
    double y = reference_erf_inv(x);
    return fabs(x) < 1 ? 0x1p-26 * 0.88622692545275801365 * exp(y * y) : 0;
}

/* limit: largest error in ulps of f32. least: what counts as an ulp at least, where results cross 0 or where the
 * argument of an exponential, large and rounded, makes the error. */
static const struct vector_function {
    const char *name;
    double (*function)(double);
    double limit, least;
    bool approximate;         /* gelu */
    double (*lost)(double x); /* more that counts as an ulp; or NULL */
} vector_functions[] = {
    {"exp", exp, 1, 0, false, NULL},
    {"expm1", expm1, 2, 0, false, NULL},
    {"log", log, 1, 0, false, NULL},
    {"log1p", log1p, 1, 0, false, NULL},
    {"tanh", tanh, 2, 0, false, NULL},
    {"erf", erf, 2, 0, false, NULL},
    {"erf_inv", reference_erf_inv, 5, 0, false, rounded_square},
    {"sqrt", sqrt, 0.5, 0, false, NULL},
    {"rsqrt", reference_rsqrt, 1.5, 0, false, NULL},
    {"sin", sin, 2, 0, false, NULL},
    {"cos", cos, 2, 0, false, NULL},
    {"logistic", reference_logistic, 2.5, 0, false, NULL},
    {"silu", reference_silu, 4, 1e-36 / (1 << 24), false, NULL}, /* below it is x times a denormal logistic */
    {"silu_grad", reference_silu_grad, 4, 0x1p-24, false, NULL},
    {"gelu", reference_gelu_erf, 6.5, 1e-36 / (1 << 24), false, NULL},
    {"gelu", reference_gelu_tanh, 4, 0x1p-26, true, NULL},
    {"gelu_grad", reference_gelu_erf_grad, 4, 0x1p-24, false, NULL},
    {"gelu_grad", reference_gelu_tanh_grad, 4, 0x1p-24, true, NULL},
    /* rounded once from f64 */
    {"tan", tan, 0.501, 0, false, NULL},
    {"asin", asin, 0.501, 0, false, NULL},
    {"acos", acos, 0.501, 0, false, NULL},
    {"atan", atan, 0.501, 0, false, NULL},
    {"sinh", sinh, 0.501, 0, false, NULL},
    {"cosh", cosh, 0.501, 0, false, NULL},
    {"asinh", asinh, 0.501, 0, false, NULL},
    {"acosh", acosh, 0.501, 0, false, NULL},
    {"atanh", atanh, 0.501, 0, false, NULL},
    {"cbrt", cbrt, 0.501, 0, false, NULL},
    {"exp2", exp2, 0.501, 0, false, NULL},
    {"erfc", erfc, 0.501, 0, false, NULL},
    {"lgamma", reference_lgamma, 0.501, 0, false, NULL},
    {"floor", floor, 0, 0, false, NULL},
    {"ceil", ceil, 0, 0, false, NULL},
    {"abs", fabs, 0, 0, false, NULL},
    {"neg", reference_neg, 0, 0, false, NULL},
    {"round", rint, 0, 0, false, NULL},
    {"square", reference_square, 0.5, 0, false, NULL},
    {"relu", reference_relu, 0, 0, false, NULL},
    {"sign", reference_sign, 0, 0, false, NULL},
};
enum {
    VECTOR_FUNCTIONS = sizeof vector_functions / sizeof *vector_functions
};

static double error_of(const struct vector_function *f, double got, double x)
{
    double least = f->lost ? f->lost(x) : 0;
    return ulps(got, f->function(x), least > f->least ? least : f->least);
}

static const void *vector_params(const struct vector_function *f)
{
    static const tow__gelu_params params[] = {{false}, {true}};
    return strncmp(f->name, "gelu", 4) == 0 ? &params[f->approximate] : NULL;
}

/* The largest error of the kernel over the floats whose bits are first, first + stride, ... below 2^32. */
static void expect_bounds(const struct vector_function *f, uint64_t first, uint64_t stride)
{
    enum {
        CHUNK = 4096
    };
    static float x[CHUNK], y[CHUNK];
    const tow__kernel *kernel = tow__kernel_find(f->name, TOW_F32);
    assert_non_null(kernel);
    const void *params = vector_params(f);
    tow__buffer in = {.data = x, .dtype = TOW_F32, .rank = 1, .dims = {CHUNK}, .strides = {1}}, out = in;
    out.data = y;
    tow__team alone = {1};
    double worst = 0, at = 0;
    while (first >> 32 == 0) {
        int64_t n = 0;
        for (; n < CHUNK && first >> 32 == 0; n++, first += stride) {
            uint32_t bits = (uint32_t)first;
            memcpy(&x[n], &bits, sizeof bits);
        }
        in.dims[0] = out.dims[0] = n;
        kernel->run(
            &(tow__kernel_call){.n_in = 1, .n_out = 1, .in = &in, .out = &out, .params = params, .team = &alone});
        for (int64_t i = 0; i < n; i++) {
            double error = error_of(f, (double)y[i], (double)x[i]);
            if (error > worst) worst = error, at = (double)x[i];
        }
    }
    print_message("%-9s%s %.2f ulps, at %.9g\n", f->name, f->approximate ? " approximate" : "", worst, at);
    if (worst > f->limit) fail_msg("%s: %.3g ulps at %.9g, allowed %g", f->name, worst, at, f->limit);
}

#endif
