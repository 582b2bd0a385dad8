/* Gradients of a bias of attention, summed over the axes along which it is broadcast, against JAX
 * (tests/oracle/attention_bias.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/rnn_cells.h"
#include "tests/unit/support/shape_text.h"

enum {
    B = 2,
    T = 3,
    S = 4,
    H = 4,
    G = 2,
    D = 3,
    MOST = B * H * T * S
};

static void loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const bool *causal = user;
    tow_array *weights = fractions(TYPE(tow_value_type(in[0]).dtype, B, T, H, D), 400);
    tow_value y = tow_attention(in[0], in[1], in[2], (&TOW_ATTENTION_OPTIONS(.causal = *causal, .bias = in[3])));
    out[0] = tow_reduce_sum(tow_mul(y, tow_constant(t, weights)), 0, NULL);
    tow_array_release(weights);
}

/* The gradient of the bias alone, or of q, k and v as well. */
static tow_array *gradient_of(tow_dtype dtype, tow_type bias, bool causal, bool all)
{
    const size_t wrt[] = {0, 1, 2, 3}, n = all ? 4 : 1;
    const tow_type types[] = {TYPE(dtype, B, T, H, D), TYPE(dtype, B, S, G, D), TYPE(dtype, B, S, G, D), bias};
    tow_graph *graph, *gradient;
    tow_array *in[4], *out[4];
    OK(tow_trace_function(ctx, loss, &causal, 4, types, NULL, 1, &graph));
    OK(tow_grad(graph, n, all ? wrt : wrt + 3, false, &gradient));
    for (int i = 0; i < 4; i++) in[i] = fractions(types[i], 100 * i);
    OK(tow_evaluate(gradient, in, out));
    for (int i = 0; i < 4; i++) tow_array_release(in[i]);
    for (size_t i = 0; i + 1 < n; i++) tow_array_release(out[i]);
    tow_graph_release(gradient);
    tow_graph_release(graph);
    return out[n - 1];
}

static void compare(const double *expected, tow_dtype dtype, tow_type bias, bool causal, bool all)
{
    char found[128];
    tow_array *gradient = gradient_of(dtype, bias, causal, all), *wide;
    if (!tow_type_equal(tow_array_type(gradient), bias))
        fail_msg("expected the shape of the bias, found %s", shape_text(tow_array_type(gradient), found));
    OK(tow_array_convert(gradient, TOW_F64, &wide));
    for (int64_t i = 0; i < tow_type_element_count(bias); i++) {
        double x = ((const double *)tow_array_data(wide))[i], limit = dtype == TOW_F64 ? 1e-12 : 2e-5;
        if (!(fabs(x - expected[i]) <= limit * fmax(1, fabs(expected[i]))))
            fail_msg("bias %s, causal %d: gradient %d is %g, expected %g", shape_text(bias, found), causal, (int)i, x,
                     expected[i]);
    }
    tow_array_release(wide);
    tow_array_release(gradient);
}

static void test_golden(void **unused)
{
    (void)unused;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/attention_bias.txt", "r");
    assert_non_null(file);
    int causal, lines = 0, dims[4];
    double expected[MOST];
    for (; fscanf(file, "%d %dx%dx%dx%d", &causal, &dims[0], &dims[1], &dims[2], &dims[3]) == 5; lines++) {
        tow_type bias = TYPE(TOW_F64, dims[0], dims[1], dims[2], dims[3]);
        for (int64_t i = 0; i < tow_type_element_count(bias); i++)
            assert_int_equal(fscanf(file, "%lf", &expected[i]), 1);
        for (int k = 0; k < 4; k++) {
            bias.dtype = k % 2 ? TOW_F32 : TOW_F64;
            compare(expected, bias.dtype, bias, causal, k / 2);
        }
    }
    assert_true(feof(file));
    assert_int_equal(lines, 32);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_golden, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
