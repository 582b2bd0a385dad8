/* Losses and gradients of 16 bits whose parts are computed in f32, against arithmetic in double precision: a loss with
 * few classes behind a product, whose logits 16 bits do not hold, and gradients of products of many factors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    CLASSES = 5,
    FEATURES = 12,
    FACTORS = 65
};

static const tow_dtype halves[] = {TOW_F16, TOW_BF16};

/* Half a unit in the last place, relative to the number. */
static double half_ulp(tow_dtype dtype) { return dtype == TOW_F16 ? 0x1p-11 : 0x1p-8; }

/* The numbers rounded to the type, in `values` as well. */
static tow_array *rounded(tow_dtype dtype, int rank, const int64_t *dims, double *values)
{
    const tow_type type = tow_make_type(TOW_F64, rank, dims);
    tow_array *x, *result, *back;
    OK(tow_array_create(ctx, type, &x));
    memcpy(tow_array_data(x), values, tow_type_bytes(type));
    OK(tow_array_convert(x, dtype, &result));
    OK(tow_array_convert(result, TOW_F64, &back));
    memcpy(values, tow_array_data(back), tow_type_bytes(type));
    tow_array_release(x);
    tow_array_release(back);
    return result;
}

static void assert_close(const tow_array *found, int64_t n, const double *expected, double relative, double absolute)
{
    tow_array *wide;
    OK(tow_array_convert(found, TOW_F64, &wide));
    const double *y = tow_array_data(wide);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(y[i] - expected[i]) <= relative * fabs(expected[i]) + absolute))
            fail_msg("number %d: expected %.9g, found %.9g", (int)i, expected[i], y[i]);
    tow_array_release(wide);
}

/* ---- cross-entropy behind a product ------------------------------------------------------------------------------ */

static void mean_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = tow_mean(tow_linear_cross_entropy(in[0], in[1], *(const bool *)user, in[2]), 0, NULL);
}

/* The loss of one row x and its gradients. w is [CLASSES, FEATURES]. */
static double exact_loss(const double *x, const double *w, int label, double *dx, double *dw)
{
    double logits[CLASSES] = {0}, sum = 0, largest = -INFINITY;
    for (int c = 0; c < CLASSES; c++) {
        for (int k = 0; k < FEATURES; k++) logits[c] += x[k] * w[c * FEATURES + k];
        largest = fmax(largest, logits[c]);
    }
    for (int c = 0; c < CLASSES; c++) sum += exp(logits[c] - largest);
    for (int k = 0; k < FEATURES; k++) dx[k] = 0;
    for (int c = 0; c < CLASSES; c++) {
        const double dl = exp(logits[c] - largest) / sum - (c == label);
        for (int k = 0; k < FEATURES; k++) {
            dx[k] += dl * w[c * FEATURES + k];
            dw[c * FEATURES + k] = dl * x[k];
        }
    }
    return largest + log(sum) - logits[label];
}

static void check_loss(tow_dtype dtype, double size, bool rows, int label)
{
    double x[FEATURES], w[CLASSES * FEATURES], turned[CLASSES * FEATURES], dx[FEATURES], dw[CLASSES * FEATURES],
        turned_dw[CLASSES * FEATURES];
    for (int k = 0; k < FEATURES; k++) x[k] = size;
    for (int i = 0; i < CLASSES * FEATURES; i++) {
        const int c = rows ? i / FEATURES : i % CLASSES, k = rows ? i % FEATURES : i / CLASSES;
        turned[i] = c > 1 ? -4 : c == 1 && k == 0 ? 4 - 0x1p-5 : 4;
    }
    const int64_t x_dims[2] = {1, FEATURES}, w_dims[2] = {rows ? CLASSES : FEATURES, rows ? FEATURES : CLASSES},
                  one = 1;
    tow_array *in[3] = {rounded(dtype, 2, x_dims, x), rounded(dtype, 2, w_dims, turned)}, *out[3] = {NULL};
    OK(tow_array_create(ctx, tow_make_type(TOW_I32, 1, &one), &in[2]));
    *(int32_t *)tow_array_data(in[2]) = label;
    for (int c = 0; c < CLASSES; c++)
        for (int k = 0; k < FEATURES; k++) w[c * FEATURES + k] = turned[rows ? c * FEATURES + k : k * CLASSES + c];
    const double loss = exact_loss(x, w, label, dx, dw);
    for (int c = 0; c < CLASSES; c++)
        for (int k = 0; k < FEATURES; k++) turned_dw[rows ? c * FEATURES + k : k * CLASSES + c] = dw[c * FEATURES + k];
    tow_type types[3];
    for (int i = 0; i < 3; i++) types[i] = tow_array_type(in[i]);
    tow_graph *g, *gradients;
    OK(tow_trace_function(ctx, mean_loss, &rows, 3, types, NULL, 1, &g));
    OK(tow_value_and_grad(g, 2, (size_t[]){0, 1}, false, &gradients));
    OK(tow_evaluate(gradients, in, out));
    /* f32 keeps 24 bits of logits near 12 * 4 * size */
    const double absolute = 12 * 4 * size * 0x1p-22;
    assert_int_equal(tow_array_type(out[0]).dtype, dtype);
    assert_close(out[0], 1, &loss, half_ulp(dtype), absolute);
    assert_close(out[1], FEATURES, dx, half_ulp(dtype), 4 * absolute);
    assert_close(out[2], CLASSES * FEATURES, turned_dw, half_ulp(dtype), size * absolute);
    for (int i = 0; i < 3; i++) tow_array_release(in[i]), tow_array_release(out[i]);
    tow_graph_release(g);
    tow_graph_release(gradients);
}

/* Logits of 240 and 2400, whose units in 16 bits are larger than the loss, and of 72000 beyond f16. */
static void test_losses(void **state)
{
    (void)state;
    static const double sizes[] = {5, 50, 1500};
    for (int i = 0; i < 24; i++) check_loss(halves[i % 2], sizes[i / 8], i / 2 % 2, i / 4 % 2);
}

/* ---- products of many factors ------------------------------------------------------------------------------------ */

static void product_of_all(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_convert(tow_reduce_prod(in[0], 0, NULL), TOW_F32);
}
static void sum_of_products(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = tow_reduce_sum(tow_convert(tow_cumprod(in[0], 0, *(const bool *)user), TOW_F32), 0, NULL);
}

static void assert_gradient(tow_dtype dtype, tow_function f, bool reverse, tow_array *x, const double *expected)
{
    const tow_type type = tow_array_type(x);
    tow_graph *g, *gradient;
    tow_array *dx = NULL;
    OK(tow_trace_function(ctx, f, &reverse, 1, &type, NULL, 1, &g));
    OK(tow_grad(g, 0, NULL, false, &gradient));
    OK(tow_evaluate(gradient, &x, &dx));
    assert_close(dx, FACTORS, expected, 1.01 * half_ulp(dtype), 0);
    tow_array_release(dx);
    tow_graph_release(g);
    tow_graph_release(gradient);
}

/* All factors are positive: nothing cancels, and f32 adds less than a hundredth of the rounding. */
static void test_products(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int64_t n = FACTORS;
        double x[FACTORS], up[FACTORS] = {0}, all[FACTORS], from[FACTORS], to[FACTORS], product = 1;
        for (int k = 0; k < FACTORS; k++) x[k] = 1 + 0.1 * sin(1.7 * k);
        tow_array *array = rounded(halves[i], 1, &n, x);
        for (int k = 0; k < FACTORS; k++) up[k] = product *= x[k];
        for (int k = 0; k < FACTORS; k++) all[k] = product / x[k];
        for (int k = 0; k < FACTORS; k++) {
            from[k] = to[k] = 0;
            for (int j = k; j < FACTORS; j++) from[k] += up[j] / x[k];
            for (int j = 0; j <= k; j++) to[k] += product / up[j] * x[j] / x[k];
        }
        assert_gradient(halves[i], product_of_all, false, array, all);
        assert_gradient(halves[i], sum_of_products, false, array, from);
        assert_gradient(halves[i], sum_of_products, true, array, to);
        tow_array_release(array);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_losses), cmocka_unit_test(test_products)};
    return cmocka_run_group_tests_name("rounded_once", tests, setup, teardown);
}
