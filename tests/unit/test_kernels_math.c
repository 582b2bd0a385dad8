/* The vector functions of one variable against libm in double precision, in units in the last place, on inputs spread
 * over all exponents and on special values. */
#include "tests/unit/kernels.h"

#include "src/kernels/tables.h"

enum {
    SPREAD = 200000
};

static const float specials[] = {
    0.0f,    -0.0f,   1e-45f,  -1e-45f, 1.17549435e-38f, -1.17549435e-38f, 1e-30f,         1.0f,     -1.0f,     0.5f,
    -0.5f,   0.625f,  0.9f,    87.0f,   88.72f,          88.73f,           89.0f,          -87.3f,   -87.4f,    -103.0f,
    -103.9f, -104.0f, -105.0f, 1e4f,    -1e4f,           3.4028235e38f,    -3.4028235e38f, INFINITY, -INFINITY, NAN,
    2.0f,    -2.0f,   10.0f,   -10.0f,  16777216.0f};
enum {
    SPECIALS = sizeof specials / sizeof specials[0],
    INPUTS = SPREAD * 2 + SPECIALS
};

/* Every exponent and both signs, then uniformly in [-12, 12), then the special values. */
static tow__buffer inputs(tow_dtype dtype)
{
    tow__buffer x = make(dtype, SHAPE(INPUTS), ROW_MAJOR);
    for (int64_t i = 0; i < SPREAD; i++) {
        uint32_t bits =
            (uint32_t)((uint64_t)i * 0xFF000000u / SPREAD) ^ (random_bits() & 0x3FFFu) ^ (uint32_t)(i & 1) << 31;
        float value;
        memcpy(&value, &bits, sizeof value);
        set(&x, i, isnan(value) ? 0.1 : (double)value);
        set(&x, SPREAD + i, random_unit() * 12);
    }
    for (int64_t i = 0; i < SPECIALS; i++) set(&x, 2 * SPREAD + i, (double)specials[i]);
    return x;
}

/* Distance of got from want in units of the last place of want as a float, 2^-149 at least. */
static double ulps(double got, double want)
{
    if (got == want || (isnan(got) && isnan(want))) return 0;
    if (isnan(got) || isnan(want)) return 1e30;
    double largest = 340282346638528859811704183484516925440.0,
           limit = largest + ldexp(1, 103); /* rounds to infinity */
    if (fabs(want) >= limit) return isinf(got) && (got > 0) == (want > 0) ? 0 : fabs(got) == largest ? 1 : 1e30;
    if (isinf(got)) return fabs(want) > largest * (1 - ldexp(1, -22)) ? 1 : 1e30;
    int exponent;
    frexp(want, &exponent);
    return fabs(got - want) / ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
}

static double reference_logistic(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double reference_silu(double x) { return x * reference_logistic(x); }
static double reference_rsqrt(double x) { return 1 / sqrt(x); }
static double reference_neg(double x) { return -x; }
static double reference_square(double x) { return x * x; }
static double reference_relu(double x) { return isnan(x) ? x : x > 0 ? x : 0; }
static double reference_sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

/* Largest error allowed in ulps of f32. */
static const struct {
    const char *name;
    double (*function)(double);
    double limit;
} functions[] = {
    {"exp", exp, 4},
    {"expm1", expm1, 4},
    {"log", log, 4},
    {"log1p", log1p, 4},
    {"tanh", tanh, 4},
    {"erf", erf, 4},
    {"sqrt", sqrt, 0.5},
    {"rsqrt", reference_rsqrt, 4},
    {"sin", sin, 4},
    {"cos", cos, 4},
    {"floor", floor, 0},
    {"logistic", reference_logistic, 4},
    {"ceil", ceil, 0},
    {"abs", fabs, 0},
    {"neg", reference_neg, 0},
    {"round", rint, 0},
    {"silu", reference_silu, 6},
    {"square", reference_square, 0.5},
    {"relu", reference_relu, 0},
    {"sign", reference_sign, 0},
};

static void functions_of_one_variable(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++) {
        for (int twin = 0; twin < 2; twin++) {
            tow__buffer x = inputs(TOW_F32), y = make(TOW_F32, 1, x.dims, ROW_MAJOR);
            const tow__kernel *kernel =
                twin ? tow__kernel_reference(functions[f].name, TOW_F32) : tow__kernel_find(functions[f].name, TOW_F32);
            run_kernel(kernel, 1, &x, 1, &y, NULL);
            double worst = 0, at = 0;
            for (int64_t i = 0; i < INPUTS; i++) {
                double want = functions[f].function(get(&x, i)), error = ulps(get(&y, i), want);
                /* below, silu is x times a denormal logistic, whose last place counts x times */
                if (functions[f].function == reference_silu && fabs(want) < 1e-36) continue;
                if (error > worst) worst = error, at = get(&x, i);
            }
            print_message("%-9s %-9s %.2f ulps\n", functions[f].name, kernel->engine, worst);
            if (worst > functions[f].limit)
                fail_msg("%s (%s): %.3g ulps at %.9g, allowed %g", functions[f].name, kernel->engine, worst, at,
                         functions[f].limit);
            release_all();
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_of_one_variable),
    };
    return cmocka_run_group_tests_name("vector functions", tests, NULL, NULL);
}
