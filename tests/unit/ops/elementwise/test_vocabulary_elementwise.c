/* Elementwise functions against JAX, on ordinary and on special numbers (tests/oracle/vocabulary_elementwise.py), and
 * what they refuse.
 * Tests binary.c, compare.c, representation.c, special.c, trigonometry.c, unary.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/golden_cases.h"
#include "tests/unit/support/plain_context.h"

#define FUNCTIONS(X)                                                                                                   \
    X(tan, 1, tow_tan(in[0]))                                                                                          \
    X(asin, 1, tow_asin(in[0]))                                                                                        \
    X(acos, 1, tow_acos(in[0]))                                                                                        \
    X(atan, 1, tow_atan(in[0]))                                                                                        \
    X(sinh, 1, tow_sinh(in[0]))                                                                                        \
    X(cosh, 1, tow_cosh(in[0]))                                                                                        \
    X(asinh, 1, tow_asinh(in[0]))                                                                                      \
    X(acosh, 1, tow_acosh(in[0]))                                                                                      \
    X(atanh, 1, tow_atanh(in[0]))                                                                                      \
    X(erfc, 1, tow_erfc(in[0]))                                                                                        \
    X(cbrt, 1, tow_cbrt(in[0]))                                                                                        \
    X(exp2, 1, tow_exp2(in[0]))                                                                                        \
    X(lgamma, 1, tow_lgamma(in[0]))                                                                                    \
    X(digamma, 1, tow_digamma(in[0]))                                                                                  \
    X(polygamma1, 1, tow_polygamma(in[0], 1))                                                                          \
    X(polygamma4, 1, tow_polygamma(in[0], 4))                                                                          \
    X(atan2, 1, tow_atan2(in[0], in[1]))                                                                               \
    X(nextafter, 1, tow_nextafter(in[0], in[1]))                                                                       \
    X(is_finite, 1, tow_is_finite(in[0]))                                                                              \
    X(to_f16, 1, tow_reduce_precision(in[0], 5, 10))                                                                   \
    X(to_bf16, 1, tow_reduce_precision(in[0], 8, 7))                                                                   \
    X(to_1_0, 1, tow_reduce_precision(in[0], 1, 0))                                                                    \
    X(population_count, 1, tow_population_count(in[0]))                                                                \
    X(clz, 1, tow_clz(in[0]))                                                                                          \
    X(shift_right_arithmetic, 1, tow_shift_right_arithmetic(in[0], in[1]))                                             \
    X(shift_right, 1, tow_shift_right(in[0], in[1]))                                                                   \
    X(shift_left, 1, tow_shift_left(in[0], in[1]))                                                                     \
    X(div, 1, tow_div(in[0], in[1]))                                                                                   \
    X(rem, 1, tow_rem(in[0], in[1]))                                                                                   \
    X(abs, 1, tow_abs(in[0]))                                                                                          \
    X(square, 1, tow_square(in[0]))                                                                                    \
    X(cube, 1, tow_integer_pow(in[0], 3))                                                                              \
    X(select_n3, 1, tow_select_n(in[0], 3, in + 1))                                                                    \
    X(select_n2, 1, tow_select_n(in[0], 2, in + 1))
GOLDEN_TESTS(FUNCTIONS, "vocabulary_elementwise.txt")

/* ---- errors ------------------------------------------------------------------------------------------------------ */

#define I32 tow_full(trace, tow_make_type(TOW_I32, 1, (int64_t[]){3}), 1)
#define F32 tow_full(trace, tow_make_type(TOW_F32, 1, (int64_t[]){3}), 1)

#define REFUSALS(X)                                                                                                    \
    X(tan_of_integers, tow_tan(I32), "operand 0 must be of type f32, f64")                                             \
    X(clz_of_floats, tow_clz(F32), "operand 0 must be of type i32, u32")                                               \
    X(order_101, tow_polygamma(F32, 101), "the order must be in [0, 100], found 101")                                  \
    X(order_minus_1, tow_polygamma(F32, -1), "found -1")                                                               \
    X(no_exponent, tow_reduce_precision(F32, 0, 3), "at least 1 bit of exponent")                                      \
    X(inverse_of_integers, tow_integer_pow(I32, -1), "operand 0 must be of type f32, f64")                             \
    X(no_cases, tow_select_n(I32, 0, (tow_value[]){F32}), "select_n: expected at least one case")                      \
    X(null_cases, tow_select_n(I32, 2, NULL), "select_n: expected at least one case")                                  \
    X(float_choice, tow_select_n(F32, 2, (tow_value[]){F32, F32}), "select_n: expected an integer")                    \
    X(bool_among_3, tow_select_n(tow_eq(I32, I32), 3, (tow_value[]){F32, F32, F32}), "select_n: expected an integer")  \
    X(cases_of_two_types, tow_select_n(I32, 2, (tow_value[]){F32, I32}), "select_n: all cases must have one type")     \
    X(choice_of_another_shape, tow_select_n(tow_reshape(I32, 2, (int64_t[]){3, 1}), 2, (tow_value[]){F32, F32}),       \
      "must be a scalar or have the shape of the cases")
REFUSAL_TEST(REFUSALS, 0, NULL)

GOLDEN_FUNCTION(next, 1, tow_reduce_sum(tow_nextafter(in[0], in[0]), 0, NULL))

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
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(refusals),
        cmocka_unit_test(nextafter_has_no_derivative),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
