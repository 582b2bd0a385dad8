/* tow/numpy.h against jax.nn (tests/oracle/vocabulary_activations.py), corners of functions included, and what is
 * refused. Tests activation.c, activations.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/golden_cases.h"
#include "tests/unit/support/plain_context.h"

#define AXES(...)                                                                                                      \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[]) { __VA_ARGS__ }
#define X0 in[0]

#define FUNCTIONS(X)                                                                                                   \
    X(relu6, 1, tow_relu6(X0))                                                                                         \
    X(leaky_relu, 1, tow_leaky_relu(X0))                                                                               \
    X(elu, 1, tow_elu(X0))                                                                                             \
    X(selu, 1, tow_selu(X0))                                                                                           \
    X(celu, 1, tow_celu(X0))                                                                                           \
    X(softplus, 1, tow_softplus(X0))                                                                                   \
    X(log_sigmoid, 1, tow_log_sigmoid(X0))                                                                             \
    X(mish, 1, tow_mish(X0))                                                                                           \
    X(squareplus, 1, tow_squareplus(X0))                                                                               \
    X(soft_sign, 1, tow_soft_sign(X0))                                                                                 \
    X(hard_tanh, 1, tow_hard_tanh(X0))                                                                                 \
    X(hard_sigmoid, 1, tow_hard_sigmoid(X0))                                                                           \
    X(hard_silu, 1, tow_hard_silu(X0))                                                                                 \
    X(sparse_plus, 1, tow_sparse_plus(X0))                                                                             \
    X(sparse_sigmoid, 1, tow_sparse_sigmoid(X0))                                                                       \
    X(gelu_tanh, 1, tow_gelu(X0))                                                                                      \
    X(gelu_erf, 1, tow_gelu_erf(X0))                                                                                   \
    X(softplus_infinite, 1, tow_softplus(X0))                                                                          \
    X(elu_infinite, 1, tow_elu(X0))                                                                                    \
    X(leaky_relu_infinite, 1, tow_leaky_relu(X0))                                                                      \
    X(hard_tanh_infinite, 1, tow_hard_tanh(X0))                                                                        \
    X(leaky_relu_of, 1, tow_leaky_relu_with(X0, 0.3))                                                                  \
    X(elu_of, 1, tow_elu_with(X0, 0.5))                                                                                \
    X(celu_of, 1, tow_celu_with(X0, 1.5))                                                                              \
    X(squareplus_of, 1, tow_squareplus_with(X0, 0.5))                                                                  \
    X(glu, 1, tow_glu(X0, -1))                                                                                         \
    X(glu_first, 1, tow_glu(X0, 0))                                                                                    \
    X(standardize, 1, tow_standardize(X0, AXES(-1), 1e-5))                                                             \
    X(standardize_axes, 1, tow_standardize(X0, AXES(0, 2), 0.1))                                                       \
    X(standardize_all, 1, tow_standardize(X0, 0, NULL, 1e-3))
GOLDEN_TESTS(FUNCTIONS, "vocabulary_activations.txt")

#define OF(dtype, ...)                                                                                                 \
    tow_full(trace,                                                                                                    \
             tow_make_type(dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__}), 0)

#define REFUSALS(X)                                                                                                    \
    X(glu_odd, tow_glu(OF(TOW_F32, 2, 3), -1), "which 2 parts do not divide")                                          \
    X(glu_axis, tow_glu(OF(TOW_F32, 2, 4), 2), "axis 2")                                                               \
    X(standardize_axis, tow_standardize(OF(TOW_F32, 2, 4), AXES(-3), 0), "axis -3")                                    \
    X(standardize_ints, tow_standardize(OF(TOW_I32, 2, 4), AXES(-1), 0), "i32[2,4]")                                   \
    X(softplus_ints, tow_softplus(OF(TOW_I32, 4)), "i32[4]")                                                           \
    X(leaky_relu_ints, tow_leaky_relu(OF(TOW_I32, 4)), "the constant 0.01 is not a number of type i32")
REFUSAL_TEST(REFUSALS, 0, NULL)

/* Branches meet at 0 with all derivatives: the second one of softplus is logistic(x) (1 - logistic(x)). */
static void softplus_of_one(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_softplus(in[0]);
}

static void softplus_is_smooth(void **state)
{
    (void)state;
    const tow_type type = tow_make_type(TOW_F64, 0, NULL);
    const double at[] = {0, -0.0, 0.5, -3}, expected[] = {0.25, 0.25, 0.2350037122015945, 0.04517665973091214};
    tow_graph *graph = NULL, *second = NULL;
    OK(tow_trace_function(ctx, softplus_of_one, NULL, 1, &type, NULL, 1, &graph));
    OK(tow_hessian(graph, 0, NULL, &second));
    for (int i = 0; i < 4; i++) {
        tow_array *x = NULL, *y = NULL;
        OK(tow_array_create(ctx, type, &x));
        *(double *)tow_array_data(x) = at[i];
        OK(tow_evaluate(second, &x, &y));
        assert_true(fabs(*(double *)tow_array_data(y) - expected[i]) < 1e-15);
        tow_array_release(x);
        tow_array_release(y);
    }
    tow_graph_release(second);
    tow_graph_release(graph);
}

static void celu_of_one(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_celu(in[0]);
}

/* As of jax.nn.celu, also where it meets the identity and of what is no number. */
static void celu_has_the_slopes_of_jax(void **state)
{
    (void)state;
    const tow_type type = tow_make_type(TOW_F64, 0, NULL);
    const double at[] = {0, 2, -INFINITY, INFINITY, NAN}, expected[] = {1, 1, 0, 1, NAN};
    tow_graph *graph = NULL, *slope = NULL;
    OK(tow_trace_function(ctx, celu_of_one, NULL, 1, &type, NULL, 1, &graph));
    OK(tow_grad(graph, 0, NULL, false, &slope));
    for (int i = 0; i < 5; i++) {
        tow_array *x = NULL, *y = NULL;
        OK(tow_array_create(ctx, type, &x));
        *(double *)tow_array_data(x) = at[i];
        OK(tow_evaluate(slope, &x, &y));
        const double found = *(double *)tow_array_data(y);
        assert_true(isnan(expected[i]) ? isnan(found) : found == expected[i]);
        tow_array_release(x);
        tow_array_release(y);
    }
    tow_graph_release(slope);
    tow_graph_release(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(refusals),
        cmocka_unit_test(softplus_is_smooth),
        cmocka_unit_test(celu_has_the_slopes_of_jax),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
