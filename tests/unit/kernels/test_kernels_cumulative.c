/* Cumulative operations: the order that cumulative.c promises, bit for bit, in all layouts, along every axis and in
 * both directions; and the errors of long ones, which a chain of operations would not have. */
#include "tests/unit/support/kernels.h"
#include "tests/unit/support/tried.h"

static double plus(double a, double b, tow_dtype dtype) { return as_type(a + b, dtype); }
static double times(double a, double b, tow_dtype dtype) { return as_type(a * b, dtype); }

/* y[t] from x[t] by the definition: blocks of 16, whose totals are scanned in the same way. */
static void scan(int64_t n, const double *x, double *y, tow_dtype dtype, double (*step)(double, double, tow_dtype))
{
    enum {
        BLOCK = 16
    };
    const int64_t blocks = (n + BLOCK - 1) / BLOCK;
    double *totals = calloc((size_t)blocks, sizeof *totals), *before = calloc((size_t)blocks, sizeof *before);
    assert_true(totals && before);
    for (int64_t t = 0; t < n; t++) {
        y[t] = t % BLOCK == 0 ? x[t] : step(y[t - 1], x[t], dtype);
        totals[t / BLOCK] = y[t];
    }
    if (blocks > 1) scan(blocks, totals, before, dtype, step);
    for (int64_t t = BLOCK; t < n; t++) y[t] = step(before[t / BLOCK - 1], y[t], dtype);
    free(totals);
    free(before);
}

/* Integers have the chain, which wraps. */
static void chain(int64_t n, const double *x, double *y, tow_dtype dtype, double (*step)(double, double, tow_dtype))
{
    for (int64_t t = 0; t < n; t++) y[t] = t == 0 ? x[t] : step(y[t - 1], x[t], dtype);
}

/* Along axis 1 of [outer, n, inner], both ways. */
static void check_axis(const char *op, double (*step)(double, double, tow_dtype), tow_dtype dtype, const int64_t *dims,
                       layout how)
{
    tow__buffer x = random_operand(dtype, 3, dims, how), y = make(dtype, 3, dims, ROW_MAJOR);
    const int64_t n = dims[1], inner = dims[2];
    double *in = calloc((size_t)n + 1, sizeof *in), *out = calloc((size_t)n + 1, sizeof *out);
    assert_true(in && out);
    for (int reverse = 0; reverse < 2; reverse++) {
        run_kernel(tow__kernel_find(op, dtype), 1, &x, 1, &y, &(tow__cumsum_params){1, reverse});
        for (int64_t r = 0; r < dims[0] * inner; r++) {
            const int64_t base = r / inner * n * inner + r % inner;
            for (int64_t t = 0; t < n; t++) in[t] = get(&x, base + (reverse ? n - 1 - t : t) * inner);
            (dtype == TOW_F32 || dtype == TOW_F64 ? scan : chain)(n, in, out, dtype, step);
            for (int64_t t = 0; t < n; t++) {
                const int64_t element = base + (reverse ? n - 1 - t : t) * inner;
                assert_close(get(&y, element), out[t], 0, op, element);
            }
        }
    }
    free(in);
    free(out);
    release_all();
}

static void order(void **state)
{
    (void)state;
    static const tow_dtype dtypes[] = {TOW_F32, TOW_F64, TOW_I32, TOW_U32};
    static const int64_t shapes[][3] = {{2, 1, 3},   {2, 16, 1},  {3, 17, 1}, {1, 300, 1},
                                        {2, 273, 5}, {1, 40, 70}, {0, 5, 2},  {1, 4113, 1}};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int how = (int)(s + d) % SLOWDOWN; how < LAYOUTS; how += SLOWDOWN) {
                check_axis("cumsum", plus, dtypes[d], shapes[s], (layout)how);
                if (dtypes[d] <= TOW_F64) check_axis("cumprod", times, dtypes[d], shapes[s], (layout)how);
            }
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Whole numbers up to 2^24 are exact, and so are those above that the format has, such as 2^24 + 1000. One number is
 * repeated by a stride of 0. */
static void ones(void **state)
{
    (void)state;
    const int64_t n = (1 << 24) + 1000;
    const float one = 1;
    tow__buffer x = {.dtype = TOW_F32, .rank = 1, .dims = {n}, .strides = {0}, .data = (char *)(uintptr_t)&one}, y = x;
    y.strides[0] = 1;
    y.data = malloc((size_t)n * sizeof(float));
    assert_non_null(y.data);
    run_once(tow__kernel_find("cumsum", TOW_F32), 1, &x, 1, &y, &(tow__cumsum_params){0, false}, 2);
    const float *sums = (const float *)(void *)y.data;
    assert_true(sums[n - 1] == 16778216 && sums[1 << 24] >= 16777216 && sums[(1 << 24) - 1] == 16777216);
    free(y.data);
}

static double sum_of(double a, double b) { return a + b; }
static double log_sum_of(double a, double b) { return fmax(a, b) + log1p(exp(-fabs(a - b))); }

/* The largest error of a result, relative to it. */
static double worst_error(const char *op, const tow__buffer *x, double start, double (*exact)(double, double))
{
    tow__buffer y = make(TOW_F32, 1, x->dims, ROW_MAJOR);
    double want = start, worst = 0;
    run_kernel(tow__kernel_find(op, TOW_F32), 1, x, 1, &y, &(tow__cumsum_params){0, false});
    for (int64_t t = 0; t < x->dims[0]; t++) {
        want = exact(want, get(x, t));
        worst = fmax(worst, fabs(get(&y, t) - want) / fabs(want));
    }
    return worst;
}

/* Of 2 10^6 numbers between 0 and 1 jax.lax.cumsum errs by 2.9e-7 and jax.lax.cumlogsumexp by 2.4e-7, where chains err
 * by 2e-5. A result of either has at most 16 roundings for each of 6 levels, most of them of numbers that are much
 * smaller. */
static void many(void **state)
{
    (void)state;
    const int64_t n = 2000000;
    tow__buffer x = make(TOW_F32, 1, &n, ROW_MAJOR);
    for (int64_t t = 0; t < n; t++) set(&x, t, (random_unit() + 1) / 2);
    assert_true(worst_error("cumsum", &x, 0, sum_of) < 5e-7);
    assert_true(worst_error("cumlogsumexp", &x, -(double)INFINITY, log_sum_of) < 5e-7);
    release_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order),
        cmocka_unit_test(ones),
        cmocka_unit_test(many),
    };
    return cmocka_run_group_tests_name("cumulative", tests, NULL, NULL);
}
