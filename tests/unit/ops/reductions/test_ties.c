/* Gradients that are divided by a count, of which 16-bit floats hold no more than 65504 (f16) or 256 (bf16). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    MANY = 70000
};

static const tow_dtype halves[] = {TOW_F16, TOW_BF16};

/* Evaluates g at the inputs, which are released, and gives output 0 as f64. */
static void evaluate(tow_graph *g, size_t n, tow_array **in, int64_t count, double *out)
{
    tow_array *y[3] = {NULL}, *wide = NULL;
    OK(tow_evaluate(g, in, y));
    assert_int_equal(tow_type_element_count(tow_array_type(y[0])), count);
    OK(tow_array_convert(y[0], TOW_F64, &wide));
    for (int64_t i = 0; i < count; i++) out[i] = ((const double *)tow_array_data(wide))[i];
    tow_array_release(wide);
    for (size_t i = 0; i < tow_graph_output_count(g); i++) tow_array_release(y[i]);
    for (size_t i = 0; i < n; i++) tow_array_release(in[i]);
    tow_graph_release(g);
}

static tow_array *array(tow_dtype dtype, int64_t count, double value)
{
    const tow_type wide = tow_make_type(TOW_F64, count > 1, &count);
    tow_array *x, *result;
    OK(tow_array_create(ctx, wide, &x));
    for (int64_t i = 0; i < count; i++) ((double *)tow_array_data(x))[i] = value;
    OK(tow_array_convert(x, dtype, &result));
    tow_array_release(x);
    return result;
}

static void repeated_max(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_reduce_max(tow_broadcast_to(in[0], 1, (int64_t[]){MANY}), 0, NULL);
}
static void repeated_min(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_reduce_min(tow_broadcast_to(in[0], 1, (int64_t[]){MANY}), 0, NULL);
}

/* One value, MANY times: the derivative is 1, in both modes. The share of each is 1 / 70000, which f16 holds as 240
 * times 2^-24 (0.14 % too much), bf16 to 2^-9. */
static void test_extrema(void **state)
{
    (void)state;
    static const tow_function functions[] = {repeated_max, repeated_min};
    for (size_t i = 0; i < 4; i++) {
        const tow_dtype dtype = halves[i % 2];
        const tow_type scalar = tow_make_type(dtype, 0, NULL);
        tow_graph *g, *gradient, *jvp;
        double d, both[2];
        OK(tow_trace_function(ctx, functions[i / 2], NULL, 1, &scalar, NULL, 1, &g));
        OK(tow_grad(g, 0, NULL, false, &gradient));
        OK(tow_jvp(g, 0, NULL, &jvp));
        tow_graph_release(g);
        evaluate(gradient, 1, (tow_array *[]){array(dtype, 1, 3)}, 1, &d);
        assert_true(fabs(d - 1) < 0.005);
        tow_array *in[] = {array(dtype, 1, 3), array(dtype, 1, 1)}, *out[2] = {NULL}, *wide;
        OK(tow_evaluate(jvp, in, out));
        OK(tow_array_convert(out[1], TOW_F64, &wide));
        both[1] = *(const double *)tow_array_data(wide);
        assert_true(both[1] == 1);
        for (int k = 0; k < 2; k++) tow_array_release(in[k]), tow_array_release(out[k]);
        tow_array_release(wide);
        tow_graph_release(jvp);
    }
}

static void scattered_max(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    const tow_scatter_dims dims = {.n_inserted = 1, .n_index = 1}; /* of axis 0 */
    tow_value at = tow_full(t, tow_make_type(TOW_I32, 2, (int64_t[]){MANY, 1}), 0);
    tow_value updates = tow_broadcast_to(in[0], 1, (int64_t[]){MANY});
    tow_value x = tow_full(t, tow_make_type(tow_value_type(in[0]).dtype, 1, (int64_t[]){1}), 0);
    out[0] =
        tow_reduce_sum(tow_scatter_general(TOW_SCATTER_MAX, x, at, updates, &dims, TOW_INDEX_FILL, false), 0, NULL);
}

/* MANY updates that all win. */
static void test_scattered(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const tow_type scalar = tow_make_type(halves[i], 0, NULL);
        tow_graph *g, *gradient;
        double d;
        OK(tow_trace_function(ctx, scattered_max, NULL, 1, &scalar, NULL, 1, &g));
        OK(tow_grad(g, 0, NULL, false, &gradient));
        tow_graph_release(g);
        evaluate(gradient, 1, (tow_array *[]){array(halves[i], 1, 3)}, 1, &d);
        assert_true(fabs(d - 1) < 0.005);
    }
}

static void pooled(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    const tow_pool_options o = TOW_POOL_OPTIONS(.spatial = 1, .window = {MANY}, .exclude_padding = *(const bool *)user);
    tow_value x = tow_broadcast_to(in[0], 3, (int64_t[]){1, MANY, 1});
    out[0] = tow_reshape(tow_avg_pool(x, &o), 0, NULL);
}

/* The average of MANY numbers whose sum f16 does not hold. */
static void test_averages(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        const tow_dtype dtype = halves[i % 2];
        const tow_type scalar = tow_make_type(dtype, 0, NULL);
        bool exclude = i / 2 == 1;
        tow_graph *g, *gradient;
        double y, d;
        OK(tow_trace_function(ctx, pooled, &exclude, 1, &scalar, NULL, 1, &g));
        OK(tow_grad(g, 0, NULL, false, &gradient));
        evaluate(g, 1, (tow_array *[]){array(dtype, 1, 3)}, 1, &y);
        assert_true(y == 3);
        evaluate(gradient, 1, (tow_array *[]){array(dtype, 1, 3)}, 1, &d);
        assert_true(fabs(d - 1) < 0.005);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_extrema),
        cmocka_unit_test(test_scattered),
        cmocka_unit_test(test_averages),
    };
    return cmocka_run_group_tests_name("ties", tests, setup, teardown);
}
