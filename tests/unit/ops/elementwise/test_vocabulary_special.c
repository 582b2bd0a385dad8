/* Special functions of the families of Bessel, gamma, beta and zeta against JAX and SciPy
 * (tests/oracle/vocabulary_special.py), and the derivatives that they do not have.
 * Tests incomplete.c, ops/products/ragged_dot.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/golden_cases.h"
#include "tests/unit/support/plain_context.h"

/* The a and b of betainc_of_x, whose derivatives there are none of. */
static tow_value matrix(tow_value x, const double *numbers)
{
    float narrow[6];
    for (int i = 0; i < 6; i++) narrow[i] = (float)numbers[i]; /* exact */
    tow_trace *trace = tow_value_trace(x);
    tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){2, 3});
    return tow_convert(tow_constant_data(trace, type, narrow), tow_value_type(x).dtype);
}
static const double betas_a[] = {0.5, 2, 1.5, 3, 5, 0.75}, betas_b[] = {0.5, 3, 0.5, 1, 4, 6};

#define FUNCTIONS(X)                                                                                                   \
    X(bessel_i0e, 1, tow_bessel_i0e(in[0]))                                                                            \
    X(bessel_i1e, 1, tow_bessel_i1e(in[0]))                                                                            \
    X(igamma, 1, tow_igamma(in[0], in[1]))                                                                             \
    X(igammac, 1, tow_igammac(in[0], in[1]))                                                                           \
    X(igamma_grad_a, 1, tow_igamma_grad_a(in[0], in[1]))                                                               \
    X(random_gamma_grad, 1, tow_random_gamma_grad(in[0], in[1]))                                                       \
    X(betainc, 1, tow_betainc(in[0], in[1], in[2]))                                                                    \
    X(betainc_of_x, 1, tow_betainc(matrix(in[0], betas_a), matrix(in[0], betas_b), in[0]))                             \
    X(zeta, 1, tow_zeta(in[0], in[1]))
GOLDEN_TESTS(FUNCTIONS, "vocabulary_special.txt")

/* ---- errors ------------------------------------------------------------------------------------------------------ */

#define F32(...)                                                                                                       \
    tow_full(trace,                                                                                                    \
             tow_make_type(TOW_F32, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__}), 1)
#define I32(n) tow_full(trace, tow_make_type(TOW_I32, 1, (int64_t[]){n}), 1)

#define REFUSALS(X)                                                                                                    \
    X(gamma_of_integers, tow_igamma(I32(3), I32(3)), "operand 0 must be of type f32, f64")                             \
    X(gamma_of_two_types, tow_igammac(F32(3), I32(3)), "igammac")                                                      \
    X(sizes_are_floats, tow_ragged_dot(F32(4, 3), F32(2, 3, 5), F32(2)), "sizes must be integers, found f32[2]")       \
    X(rows_of_another_length, tow_ragged_dot(F32(4, 2), F32(2, 3, 5), I32(2)), "expected x [m, k], y [g, k, n]")       \
    X(sizes_of_other_groups, tow_ragged_dot(F32(4, 3), F32(2, 3, 5), I32(3)), "and g sizes, found")                    \
    X(other_rows, tow_ragged_dot_contract(F32(4, 3), F32(5, 3), I32(2)), "with equal rows")                            \
    X(no_matrix, tow_ragged_dot(F32(4), F32(2, 3, 5), I32(2)), "operand 0 must have rank 2")
REFUSAL_TEST(REFUSALS, 0, NULL)

#define SUM(...) tow_reduce_sum(__VA_ARGS__, 0, NULL)
#define UNKNOWN(X)                                                                                                     \
    X(beta_by_a, SUM(tow_betainc(in[0], in[0], tow_stop_gradient(in[0]))),                                             \
      "betainc: it has a derivative with respect to x")                                                                \
    X(zeta_by_s, SUM(tow_zeta(in[0], in[0])), "zeta: it has a derivative with respect to q alone")                     \
    X(sample_twice, SUM(tow_random_gamma_grad(in[0], in[0])), "random_gamma_grad: a second derivative")                \
    X(gamma_by_a_twice, SUM(tow_igamma_grad_a(in[0], in[0])), "igamma_grad_a: a second derivative")
#define RECORD(name, expression, says) GOLDEN_FUNCTION(name, 1, expression)
UNKNOWN(RECORD)

static void derivatives_that_there_are_not(void **state)
{
    (void)state;
    static const struct {
        tow_function record;
        const char *says;
    } table[] = {
#define ROW(name, expression, says) {record_##name, says},
        UNKNOWN(ROW)};
    tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){3});
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        tow_graph *graph = NULL, *gradient = NULL;
        OK(tow_trace_function(ctx, table[i].record, NULL, 1, &type, NULL, 1, &graph));
        assert_int_equal(tow_grad(graph, 0, NULL, false, &gradient), TOW_UNSUPPORTED);
        assert_non_null(strstr(tow_context_error(ctx), table[i].says));
        tow_graph_release(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(refusals),
        cmocka_unit_test(derivatives_that_there_are_not),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
