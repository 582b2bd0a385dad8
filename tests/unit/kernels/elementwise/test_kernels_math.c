/* The vector functions of one variable against libm in double precision, in units in the last place, on inputs spread
 * over all exponents and on special values; and compiled for each instruction set, whose bits must agree.
 * Tests elementwise.c. */
#include "tests/unit/support/tried.h"
#include "tests/unit/support/vector_math.h"

#include "src/kernels/math_f32.h"

enum {
    SPREAD = 200000 / SLOWDOWN
};

static const float specials[] = {
    0.0f,    -0.0f,   1e-45f,  -1e-45f, 1.17549435e-38f, -1.17549435e-38f, 1e-30f,         1.0f,     -1.0f,     0.5f,
    -0.5f,   0.625f,  0.9f,    87.0f,   88.72f,          88.73f,           89.0f,          -87.3f,   -87.4f,    -103.0f,
    -103.9f, -104.0f, -105.0f, 1e4f,    -1e4f,           3.4028235e38f,    -3.4028235e38f, INFINITY, -INFINITY, NAN,
    2.0f,    -2.0f,   10.0f,   -10.0f,  16777216.0f,     -5.34855413f /* where gelu is worst of all floats */};
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

static void functions_of_one_variable(void **state)
{
    (void)state;
    for (int f = 0; f < VECTOR_FUNCTIONS; f++) {
        const struct vector_function *v = &vector_functions[f];
        for (int twin = 0; twin < 2; twin++) {
            tow__buffer x = inputs(TOW_F32), y = make(TOW_F32, 1, x.dims, ROW_MAJOR);
            const tow__kernel *kernel =
                twin ? tow__kernel_reference(v->name, TOW_F32) : tow__kernel_find(v->name, TOW_F32);
            run_kernel(kernel, 1, &x, 1, &y, vector_params(v));
            double worst = 0, at = 0,
                   limit = twin && v->limit > 0.5 && v->limit < 4 ? 4 : v->limit; /* libm knows its own bounds */
            struct vector_function w = *v;
            if (twin && w.least > 0) w.least = 0x1p-21; /* and the twins take no care of squares */
            for (int64_t i = 0; i < INPUTS; i++) {
                double error = error_of(&w, get(&y, i), get(&x, i));
                if (error > worst) worst = error, at = get(&x, i);
            }
            print_message("%-9s %-9s %.2f ulps\n", v->name, kernel->engine, worst);
            if (worst > limit)
                fail_msg("%s (%s): %.3g ulps at %.9g, allowed %g", v->name, kernel->engine, worst, at, limit);
            release_all();
        }
    }
}

/* Floats of all exponents and both signs. */
static void all_exponents(void **state)
{
    (void)state;
    for (int f = 0; f < VECTOR_FUNCTIONS; f++) expect_bounds(&vector_functions[f], (uint64_t)f, 4099);
}

/* ---- multiply-adds ----------------------------------------------------------------------------------------------- */

/* Numbers of all exponents, and sums that cancel or lie next to the middle between two floats. */
static void multiply_adds(void **state)
{
    (void)state;
    for (int i = 0; i < 4000000 / SLOWDOWN; i++) {
        union {
            uint32_t bits;
            float f;
        } x = {random_bits()}, y = {random_bits()}, z = {random_bits()}, got, want;
        if (i < SPECIALS * SPECIALS * SPECIALS) {
            x.f = specials[i % SPECIALS];
            y.f = specials[i / SPECIALS % SPECIALS];
            z.f = specials[i / (SPECIALS * SPECIALS)];
        } else if (i % 4 == 0) {
            z.f = -(x.f * y.f);
        } else if (i % 4 == 1) {
            z.f = ldexpf(x.f * y.f, (int)(random_bits() % 64) - 32);
        } else if (i % 4 == 2) {
            x.bits &= 0xFFFFF000u, y.bits &= 0xFFFF8000u; /* few bits: products of 25 and ties */
            float product = x.f * y.f;
            int exponent = isfinite(product) && product != 0 ? ilogbf(product) : 0;
            z.f = ldexpf(1 + (float)(random_bits() % 4), exponent + (int)(random_bits() % 28) - 2);
        }
        got.f = tow__fma_of_doubles(x.f, y.f, z.f);
        want.f = fmaf(x.f, y.f, z.f);
        if (got.bits != want.bits && !(isnan(got.f) && isnan(want.f)))
            fail_msg("%.9g * %.9g + %.9g: %.9g, not %.9g", (double)x.f, (double)y.f, (double)z.f, (double)got.f,
                     (double)want.f);
    }
}

/* ---- one source, several instruction sets ------------------------------------------------------------------------ */

#define FUNCTIONS(X)                                                                                                   \
    X(exp)                                                                                                             \
    X(expm1)                                                                                                           \
    X(log)                                                                                                             \
    X(log1p)                                                                                                           \
    X(tanh)                                                                                                            \
    X(erf)                                                                                                             \
    X(erf_inv)                                                                                                         \
    X(logistic)                                                                                                        \
    X(silu)                                                                                                            \
    X(silu_slope)                                                                                                      \
    X(gelu_tanh)                                                                                                       \
    X(gelu_tanh_slope)                                                                                                 \
    X(gelu_erf)                                                                                                        \
    X(gelu_erf_slope)                                                                                                  \
    X(sin)                                                                                                             \
    X(cos)

#if defined(__x86_64__) && defined(__GNUC__)
#define LOOP(name, level, attribute)                                                                                   \
    attribute static void name##_##level(int64_t n, float *y, const float *x)                                          \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) y[i] = tow__##name##_f32(x[i]);                                                \
    }
#define X(name)                                                                                                        \
    LOOP(name, plain, )                                                                                                \
    LOOP(name, v3, __attribute__((target("arch=x86-64-v3"))))                                                          \
    LOOP(name, v4, __attribute__((target("arch=x86-64-v4"))))
FUNCTIONS(X)
#undef X

static const struct {
    const char *name;
    void (*plain)(int64_t n, float *y, const float *x), (*v3)(int64_t n, float *y, const float *x),
        (*v4)(int64_t n, float *y, const float *x);
} levels[] = {
#define X(name) {#name, name##_plain, name##_v3, name##_v4},
    FUNCTIONS(X)
#undef X
};

static void expect_bits(const char *name, const char *level, int64_t n, const float *x, const float *y, const float *z)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&y[i], &z[i], sizeof *y) != 0 && !(isnan(y[i]) && isnan(z[i])))
            fail_msg("%s at %.9g: %.9g, with %s %.9g", name, (double)x[i], (double)y[i], level, (double)z[i]);
}

static void instruction_sets(void **state)
{
    (void)state;
    tow__buffer in = inputs(TOW_F32);
    const float *x = in.data;
    float *y = take(INPUTS * sizeof *y), *z = take(INPUTS * sizeof *z);
    for (size_t f = 0; f < sizeof levels / sizeof *levels; f++) {
        levels[f].plain(INPUTS, y, x);
        if (tow__has_avx2()) {
            levels[f].v3(INPUTS, z, x);
            expect_bits(levels[f].name, "AVX2", INPUTS, x, y, z);
        }
        if (tow__has_avx512()) {
            levels[f].v4(INPUTS, z, x);
            expect_bits(levels[f].name, "AVX-512", INPUTS, x, y, z);
        }
    }
    release_all();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_of_one_variable),
        cmocka_unit_test(all_exponents),
        cmocka_unit_test(multiply_adds),
#if defined(__x86_64__) && defined(__GNUC__)
        cmocka_unit_test(instruction_sets),
#endif
    };
    return cmocka_run_group_tests_name("vector functions", tests, NULL, NULL);
}
