/* Elementwise functions against JAX, on ordinary and on special numbers (tests/oracle/vocabulary_elementwise.py), and
 * what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/golden_cases.h"
#include "tests/unit/support/plain_context.h"

#define FUNCTION(name, expression)                                                                                     \
    static void record_##name(tow_trace *trace, const tow_value *in, tow_value *out, void *user)                       \
    {                                                                                                                  \
        (void)trace, (void)in, (void)user;                                                                             \
        out[0] = expression;                                                                                           \
    }
#define FUNCTIONS(X)                                                                                                   \
    X(tan, tow_tan(in[0]))                                                                                             \
    X(asin, tow_asin(in[0]))                                                                                           \
    X(acos, tow_acos(in[0]))                                                                                           \
    X(atan, tow_atan(in[0]))                                                                                           \
    X(sinh, tow_sinh(in[0]))                                                                                           \
    X(cosh, tow_cosh(in[0]))                                                                                           \
    X(asinh, tow_asinh(in[0]))                                                                                         \
    X(acosh, tow_acosh(in[0]))                                                                                         \
    X(atanh, tow_atanh(in[0]))                                                                                         \
    X(erfc, tow_erfc(in[0]))                                                                                           \
    X(cbrt, tow_cbrt(in[0]))                                                                                           \
    X(exp2, tow_exp2(in[0]))                                                                                           \
    X(lgamma, tow_lgamma(in[0]))                                                                                       \
    X(digamma, tow_digamma(in[0]))                                                                                     \
    X(polygamma1, tow_polygamma(in[0], 1))                                                                             \
    X(polygamma4, tow_polygamma(in[0], 4))                                                                             \
    X(atan2, tow_atan2(in[0], in[1]))                                                                                  \
    X(nextafter, tow_nextafter(in[0], in[1]))                                                                          \
    X(is_finite, tow_is_finite(in[0]))                                                                                 \
    X(to_f16, tow_reduce_precision(in[0], 5, 10))                                                                      \
    X(to_bf16, tow_reduce_precision(in[0], 8, 7))                                                                      \
    X(to_1_0, tow_reduce_precision(in[0], 1, 0))                                                                       \
    X(population_count, tow_population_count(in[0]))                                                                   \
    X(clz, tow_clz(in[0]))                                                                                             \
    X(shift_right_arithmetic, tow_shift_right_arithmetic(in[0], in[1]))                                                \
    X(shift_right, tow_shift_right(in[0], in[1]))                                                                      \
    X(shift_left, tow_shift_left(in[0], in[1]))                                                                        \
    X(div, tow_div(in[0], in[1]))                                                                                      \
    X(rem, tow_rem(in[0], in[1]))                                                                                      \
    X(abs, tow_abs(in[0]))                                                                                             \
    X(square, tow_square(in[0]))                                                                                       \
    X(cube, tow_integer_pow(in[0], 3))                                                                                 \
    X(select_n3, tow_select_n(in[0], 3, in + 1))                                                                       \
    X(select_n2, tow_select_n(in[0], 2, in + 1))
FUNCTIONS(FUNCTION)

static void golden(void **state)
{
    (void)state;
#define X(name, expression) {#name, record_##name, 1},
    static const golden_function table[] = { FUNCTIONS(X) };
#undef X
    check_golden_cases(ctx, TOW_TEST_DATA "/oracle/golden/vocabulary_elementwise.txt", table,
                       sizeof table / sizeof *table);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

#define I32 tow_full(trace, tow_make_type(TOW_I32, 1, (int64_t[]){3}), 1)
#define F32 tow_full(trace, tow_make_type(TOW_F32, 1, (int64_t[]){3}), 1)

FUNCTION(tan_of_integers, tow_tan(I32))
FUNCTION(clz_of_floats, tow_clz(F32))
FUNCTION(order_101, tow_polygamma(F32, 101))
FUNCTION(order_minus_1, tow_polygamma(F32, -1))
FUNCTION(no_exponent, tow_reduce_precision(F32, 0, 3))
FUNCTION(inverse_of_integers, tow_integer_pow(I32, -1))
FUNCTION(no_cases, tow_select_n(I32, 0, (tow_value[]){F32}))
FUNCTION(null_cases, tow_select_n(I32, 2, NULL))
FUNCTION(float_choice, tow_select_n(F32, 2, (tow_value[]){F32, F32}))
FUNCTION(bool_among_3, tow_select_n(tow_eq(I32, I32), 3, (tow_value[]){F32, F32, F32}))
FUNCTION(cases_of_two_types, tow_select_n(I32, 2, (tow_value[]){F32, I32}))
FUNCTION(choice_of_another_shape, tow_select_n(tow_reshape(I32, 2, (int64_t[]){3, 1}), 2, (tow_value[]){F32, F32}))

static void refusals(void **state)
{
    (void)state;
    static const struct {
        tow_function record;
        const char *says;
    } cases[] = {
        {record_tan_of_integers, "operand 0 must be of type f32, f64"},
        {record_clz_of_floats, "operand 0 must be of type i32, u32"},
        {record_order_101, "the order must be in [0, 100], found 101"},
        {record_order_minus_1, "found -1"},
        {record_no_exponent, "at least 1 bit of exponent"},
        {record_inverse_of_integers, "operand 0 must be of type f32, f64"},
        {record_no_cases, "select_n: expected at least one case"},
        {record_null_cases, "select_n: expected at least one case"},
        {record_float_choice, "select_n: expected an i32 or u32"},
        {record_bool_among_3, "select_n: expected an i32 or u32"},
        {record_cases_of_two_types, "select_n: all cases must have one type"},
        {record_choice_of_another_shape, "must be a scalar or have the shape of the cases"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_graph *graph = NULL;
        tow_context_clear_error(ctx);
        assert_int_not_equal(tow_trace_function(ctx, cases[i].record, NULL, 0, NULL, NULL, 1, &graph), TOW_OK);
        if (!strstr(tow_context_error(ctx), cases[i].says))
            fail_msg("expected '%s', found '%s'", cases[i].says, tow_context_error(ctx));
    }
}

FUNCTION(next, tow_reduce_sum(tow_nextafter(in[0], in[0]), 0, NULL))

static void nextafter_has_no_derivative(void **state)
{
    (void)state;
    tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){3});
    tow_graph *graph = NULL, *gradient = NULL;
    OK(tow_trace_function(ctx, record_next, NULL, 1, &type, NULL, 1, &graph));
    assert_int_equal(tow_grad(graph, 0, NULL, false, &gradient), TOW_UNSUPPORTED);
    assert_non_null(strstr(tow_context_error(ctx), "nextafter: it has no derivative"));
    tow_graph_release(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(refusals),
        cmocka_unit_test(nextafter_has_no_derivative),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
