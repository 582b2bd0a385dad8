/* Rows outside of a table in the linear graph of linearize; tests/graphs/rows_outside.tow has forward mode and
 * gradients. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

/* The results of jax.linearize for jnp.take with table [1 2 3], indices [1 7 -9 -1] and the direction [1 10 100]: rows
 * outside are NaN, their tangents zeros, wherever they are read. */
static void twice_rows(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_mul_scalar(tow_gather(in[0], in[1]), 2);
}

static void rows_in_remat(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(t, twice_rows, user, NULL, 2, in, 1, out);
}

static void row_step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    tow_value row = tow_gather(*(const tow_value *)user, in[1]);
    out[0] = tow_add(in[0], row);
    out[1] = tow_mul_scalar(row, 2);
}

static void rows_in_scan(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_value sum, zero = tow_scalar(t, TOW_F32, 0);
    tow_scan_function(t, row_step, (void *)in, NULL, 1, &zero, 1, in + 1, 1, &sum, out);
    out[1] = sum;
}

static void expect_rows(tow_function function, size_t n_out)
{
    const tow_type types[] = {tow_make_type(TOW_F32, 1, (int64_t[]){3}), tow_make_type(TOW_I32, 1, (int64_t[]){4})};
    const float table[] = {1, 2, 3}, direction[] = {1, 10, 100}, expected[] = {20, 0, 0, 200}, expected_sum = 110;
    const int32_t rows[] = {1, 7, -9, -1};
    tow_graph *g, *forward, *linear, *again, *backward, *by_vjp;
    size_t n_res, first = 0;
    OK(tow_trace_function(ctx, function, NULL, 2, types, NULL, n_out, &g));
    OK(tow_linearize(g, 1, &first, &forward, &linear));
    n_res = tow_graph_output_count(forward) - n_out;
    tow_array *in[8], *out[8] = {NULL}, *dy[2] = {NULL};
    assert_true(tow_graph_output_count(forward) <= 8 && tow_graph_input_count(linear) == n_res + 1);
    OK(tow_array_from_data(ctx, types[0], table, &in[0]));
    OK(tow_array_from_data(ctx, types[1], rows, &in[1]));
    OK(tow_evaluate(forward, in, out));
    const float *y = tow_array_data(out[0]);
    assert_true(y[0] == 4 && isnan(y[1]) && isnan(y[2]) && y[3] == 6);
    tow_array *operands[8];
    for (size_t i = 0; i < n_res; i++) operands[i] = out[n_out + i];
    OK(tow_array_from_data(ctx, types[0], direction, &operands[n_res]));
    OK(tow_evaluate(linear, operands, dy));
    for (int i = 0; i < 4; i++) assert_true(((const float *)tow_array_data(dy[0]))[i] == expected[i]);
    if (n_out > 1) assert_true(*(const float *)tow_array_data(dy[1]) == expected_sum);
    /* gradients read and write rows as before: what is for tangents is not in them */
    OK(tow_vjp(g, 1, &first, &by_vjp, &backward));
    assert_int_equal(
        tow_graph_primitive_count(backward, "gather_jvp") + tow_graph_primitive_count(by_vjp, "gather_jvp"), 0);
    assert_int_equal(tow_graph_primitive_count(backward, "select"), 0);
    OK(tow_jvp(linear, 0, NULL, &again));
    tow_graph *const graphs[] = {g, forward, linear, again, backward, by_vjp};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        OK(tow_graph_check(graphs[i]));
        tow_graph_release(graphs[i]);
    }
    tow_array_release(in[0]);
    tow_array_release(in[1]);
    tow_array_release(operands[n_res]);
    for (size_t i = 0; i < 8; i++) tow_array_release(out[i]);
    for (size_t i = 0; i < n_out; i++) tow_array_release(dy[i]);
}

static void test_rows_outside(void **state)
{
    (void)state;
    expect_rows(twice_rows, 1);
    expect_rows(rows_in_remat, 1);
    expect_rows(rows_in_scan, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_outside)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
