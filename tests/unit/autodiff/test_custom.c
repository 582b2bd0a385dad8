/* Calls with rules of their own: what JAX does with the same functions (jax.custom_jvp, jax.custom_vjp), and errors.
 * Values of right rules in all transformations are in tests/property/cases_custom.c, residuals under policies in
 * tests/graphs. Tests regions/custom*.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

static tow_status trace(tow_function function, void *user, size_t n, const tow_type *types, tow_graph **graph)
{
    tow_context_clear_error(ctx);
    return tow_trace_function(ctx, function, user, n, types, NULL, 1, graph);
}

/* f at a scalar; the graph is released. */
static float value_at(tow_graph *graph, float x)
{
    tow_array *in = NULL, *out = NULL;
    tow_program *program = NULL;
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 0, NULL), &in));
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 0, NULL), &out));
    *(float *)tow_array_data(in) = x;
    OK(tow_compile(ctx, graph, NULL, &program));
    OK(tow_program_run(program, (tow_array *const[]){in}, (tow_array *const[]){out}));
    float y = *(float *)tow_array_data(out);
    tow_program_free(program);
    tow_array_release(in);
    tow_array_release(out);
    tow_graph_release(graph);
    return y;
}

static tow_graph *gradient(tow_graph *graph)
{
    tow_graph *result;
    OK(tow_grad(graph, 1, (const size_t[]){0}, false, &result));
    OK(tow_graph_check(result));
    tow_graph_release(graph);
    return result;
}

static void expect_error(tow_status status, const char *part)
{
    assert_int_not_equal(status, TOW_OK);
    if (!strstr(tow_context_error(ctx), part)) fail_msg("\"%s\" is not in: %s", part, tow_context_error(ctx));
}

/* ---- orders of derivatives --------------------------------------------------------------------------------------- */

static void cube(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_mul(tow_mul(in[0], in[0]), in[0]);
}

static void cube_forward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    cube(t, in, out, user);
    out[1] = in[0];
}

static void seven_backward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_mul(tow_mul_scalar(in[0], 7), in[1]);
}

static void seven(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_custom_vjp_function(t, cube, cube_forward, seven_backward, NULL, NULL, 1, in, 1, 1, out);
}

/* z^3 with the gradient 7 z: at 2 jax gives 8, 14 and, of the gradient, 7. */
static void test_orders_of_vjp(void **state)
{
    (void)state;
    tow_graph *f, *g;
    tow_type scalar = tow_make_type(TOW_F32, 0, NULL);
    OK(trace(seven, NULL, 1, &scalar, &f));
    g = gradient(tow_graph_retain(f));
    assert_true(value_at(tow_graph_retain(f), 2) == 8);
    assert_true(value_at(tow_graph_retain(g), 2) == 14);
    assert_true(value_at(gradient(g), 2) == 7);
    tow_graph_release(f);
}

static void cube_rule(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add_scalar(in[0], 1);
    out[1] = tow_mul(tow_mul_scalar(in[0], 7), in[1]);
}

static void seven_forward_mode(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_custom_jvp_function(t, cube, cube_rule, NULL, NULL, 1, in, 1, out);
}

/* Under differentiation the value is that of the rule, z + 1. */
static void test_orders_of_jvp(void **state)
{
    (void)state;
    tow_graph *f, *g, *both;
    tow_type scalar = tow_make_type(TOW_F32, 0, NULL);
    OK(trace(seven_forward_mode, NULL, 1, &scalar, &f));
    OK(tow_value_and_grad(f, 1, (const size_t[]){0}, false, &both));
    assert_int_equal(tow_graph_primitive_count(f, "custom_jvp"), 1);
    assert_int_equal(tow_graph_primitive_count(both, "custom_jvp"), 0);
    tow_graph_release(both);
    assert_true(value_at(tow_graph_retain(f), 2) == 8);
    g = gradient(f);
    assert_true(value_at(tow_graph_retain(g), 2) == 14);
    assert_true(value_at(gradient(g), 2) == 7);
}

/* ---- inputs that are not differentiated -------------------------------------------------------------------------- */

static void times(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_mul(in[0], in[1]);
}

static void times_rule(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = tow_mul(in[0], in[1]);
    if (!tow_is_null(in[2])) tow_trace_fail(t, TOW_INTERNAL_ERROR, "a fixed input has a tangent");
    out[1] = tow_mul(in[0], in[3]);
    if (user) out[1] = *(const tow_value *)user;
}

/* x x with the first factor fixed: the gradient is x. */
static void half_square(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_custom_options options = TOW_CUSTOM_OPTIONS(.name = "half", .fixed = (const bool[]){true, false});
    tow_custom_jvp_function(t, times, times_rule, user, &options, 2, (const tow_value[]){in[0], in[0]}, 1, out);
}

static void test_fixed(void **state)
{
    (void)state;
    tow_graph *f;
    tow_type scalar = tow_make_type(TOW_F32, 0, NULL);
    OK(trace(half_square, NULL, 1, &scalar, &f));
    assert_true(value_at(tow_graph_retain(f), 3) == 9);
    assert_true(value_at(gradient(f), 3) == 3);
}

static void writes_nothing(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)in, (void)out, (void)user;
}

static void stopped(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_custom_vjp_function(t, cube, cube_forward, writes_nothing, NULL, NULL, 1, in, 1, 1, out);
}

static void test_writes_nothings_are_zero(void **state)
{
    (void)state;
    tow_graph *f;
    tow_type scalar = tow_make_type(TOW_F32, 0, NULL);
    OK(trace(stopped, NULL, 1, &scalar, &f));
    assert_true(value_at(gradient(f), 3) == 0);
}

/* An integer input and an integer output: table[row], row + 1. */
static void pick(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_gather(in[0], in[1]);
    out[1] = tow_add_scalar(in[1], 1);
}

static void pick_forward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    pick(t, in, out, user);
    out[2] = in[1];
}

static void pick_backward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_type type = *(const tow_type *)user;
    if (!tow_is_null(in[2])) tow_trace_fail(t, TOW_INTERNAL_ERROR, "an integer output has a cotangent");
    out[0] = tow_mul_scalar(tow_scatter_add(in[0], in[1], type.dims[0]), 2);
}

static void picked(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value y[2];
    tow_custom_vjp_function(t, pick, pick_forward, pick_backward, user, NULL, 2, in, 1, 2, y);
    out[0] = tow_reduce_sum(y[0], 0, NULL);
}

static void test_integers(void **state)
{
    (void)state;
    tow_graph *f, *g;
    tow_array *in[2], *out;
    tow_program *program;
    tow_type types[] = {tow_make_type(TOW_F32, 1, (int64_t[]){3}), tow_make_type(TOW_I32, 1, (int64_t[]){2})};
    OK(trace(picked, &types[0], 2, types, &f));
    g = gradient(f);
    for (int i = 0; i < 2; i++) OK(tow_array_create(ctx, types[i], &in[i]));
    OK(tow_array_create(ctx, types[0], &out));
    memcpy(tow_array_data(in[0]), (float[]){1, 2, 3}, 12);
    memcpy(tow_array_data(in[1]), (int32_t[]){2, 2}, 8);
    OK(tow_compile(ctx, g, NULL, &program));
    OK(tow_program_run(program, in, &out));
    const float expected[] = {0, 0, 4};
    assert_memory_equal(tow_array_data(out), expected, sizeof expected);
    for (int i = 0; i < 2; i++) tow_array_release(in[i]);
    tow_array_release(out);
    tow_program_free(program);
    tow_graph_release(g);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void wrong_rule(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = in[0];
    out[1] = tow_reduce_sum(in[1], 0, NULL);
}

static void wrong_forward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_convert(in[0], TOW_F64);
    out[1] = in[0];
}

static void short_forward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = in[0];
}

static void wrong_backward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_stack(2, (const tow_value[]){in[0], in[0]}, 0);
}

typedef struct functions {
    tow_function rule, forward, backward;
} functions;

static void call(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    static const tow_custom_options options = TOW_CUSTOM_OPTIONS(.name = "f");
    const functions *f = user;
    if (f->rule)
        tow_custom_jvp_function(t, cube, f->rule, NULL, &options, 1, in, 1, out);
    else
        tow_custom_vjp_function(t, cube, f->forward, f->backward, NULL, &options, 1, in, 1, 1, out);
}

static void test_errors_of_types(void **state)
{
    (void)state;
    static const struct {
        functions f;
        const char *message;
    } cases[] = {
        {{.rule = wrong_rule}, "custom_jvp f: the tangent of output 0 of the rule must be f32[3], found f32[]"},
        {{.rule = writes_nothing}, "custom_jvp f: output 0 was never written by the rule"},
        {{.forward = wrong_forward, .backward = writes_nothing},
         "custom_vjp f: output 0 of the forward function must be f32[3], found f64[3]"},
        {{.forward = short_forward, .backward = writes_nothing}, "custom_vjp f: residual 0 of 1 was never written"},
        {{.forward = cube_forward, .backward = wrong_backward},
         "custom_vjp f: the cotangent of input 0 of the backward function must be f32[3], found f32[2,3]"},
        {{.forward = cube_forward}, "custom_vjp: expected a function"},
    };
    tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){3});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_graph *graph;
        functions f = cases[i].f;
        expect_error(trace(call, &f, 1, &type, &graph), cases[i].message);
        assert_null(graph);
    }
}

/* The rule of x y uses an outer x. */
static void outer_function(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = tow_mul(in[0], *(const tow_value *)user);
}

static void outer_rule(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    outer_function(t, in, out, user);
    outer_function(t, in + 1, out + 1, user);
}

static void closes_over(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value x = in[0];
    (void)user;
    tow_custom_jvp_function(t, outer_function, outer_rule, &x, NULL, 1, &in[1], 1, out);
}

static void test_captured_value_is_differentiated(void **state)
{
    (void)state;
    const tow_type types[] = {tow_make_type(TOW_F32, 0, NULL), tow_make_type(TOW_F32, 0, NULL)};
    tow_graph *f, *g;
    OK(trace(closes_over, NULL, 2, types, &f));
    OK(tow_grad(f, 1, (const size_t[]){1}, false, &g));
    tow_graph_release(g);
    expect_error(tow_grad(f, 1, (const size_t[]){0}, false, &g), "outer value (f32[]) that is differentiated");
    tow_graph_release(f);
}

static void test_forward_mode_of_vjp(void **state)
{
    (void)state;
    tow_graph *f, *a = NULL, *b = NULL;
    tow_type scalar = tow_make_type(TOW_F32, 0, NULL);
    OK(trace(seven, NULL, 1, &scalar, &f));
    expect_error(tow_jvp(f, 0, NULL, &a), "forward mode");
    expect_error(tow_linearize(f, 0, NULL, &a, &b), "custom_vjp");
    assert_true(!a && !b);
    tow_graph_release(f);
}

/* ---- calls in calls ---------------------------------------------------------------------------------------------- */

static void own_value(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_custom_jvp_function(t, own_value, cube_rule, user, NULL, 1, in, 1, out);
}

static void through_a_choice(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_cond_function(t, tow_gt(in[0], tow_full_like(in[0], 0)), own_value, cube, user, 1, in, 1, out);
}

static void choosing_value(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_custom_jvp_function(t, through_a_choice, cube_rule, user, NULL, 1, in, 1, out);
}

static void fresh_user_rule(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const int other = 1 + *(const int *)user;
    tow_custom_jvp_function(t, cube, fresh_user_rule, (void *)&other, NULL, 1, in, 1, out);
    out[1] = tow_mul(in[1], out[0]);
}

static void fresh_user(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const int first = 0;
    (void)user;
    tow_custom_jvp_function(t, cube, fresh_user_rule, (void *)&first, NULL, 1, in, 1, out);
}

static void test_functions_without_end(void **state)
{
    (void)state;
    tow_graph *graph;
    tow_type scalar = tow_make_type(TOW_F32, 0, NULL);
    expect_error(trace(own_value, NULL, 1, &scalar, &graph),
                 "custom_jvp function: the function calls itself, which never ends; only its rule may call it");
    expect_error(trace(choosing_value, NULL, 1, &scalar, &graph), "the function calls itself");
    expect_error(trace(fresh_user, NULL, 1, &scalar, &graph), "with the same functions and the same user");
}

/* A rule of forward mode that goes through a custom_vjp: forward mode fails, reverse mode too, as that differentiates a
 * tangent. */
static void seven_of_tangent(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    cube(t, in, out, user);
    seven(t, &in[1], &out[1], NULL);
}

static void seven_inside(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_custom_jvp_function(t, cube, seven_of_tangent, NULL, NULL, 1, in, 1, out);
}

static void seven_in_a_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = 2, .has_length = true);
    tow_scan_function(t, seven, user, &options, 1, in, 0, NULL, 0, out, NULL);
}

static void seven_when_positive(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_cond_function(t, tow_gt(in[0], tow_full_like(in[0], 0)), seven, cube, user, 1, in, 1, out);
}

static void seven_under_remat(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(t, seven, user, NULL, 1, in, 1, out);
}

static void test_forward_mode_inside(void **state)
{
    (void)state;
    static const tow_function calls[] = {seven_in_a_loop, seven_when_positive, seven_under_remat};
    tow_type scalar = tow_make_type(TOW_F32, 0, NULL);
    tow_graph *f, *g;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        OK(trace(calls[i], NULL, 1, &scalar, &f));
        expect_error(tow_jvp(f, 0, NULL, &g), "has a rule for reverse mode only");
        OK(tow_grad(f, 0, NULL, false, &g));
        tow_graph_release(g);
        tow_graph_release(f);
    }
    OK(trace(seven_inside, NULL, 1, &scalar, &f));
    expect_error(tow_grad(f, 0, NULL, false, &g), "custom_vjp is applied to a tangent");
    tow_graph_release(f);
}

/* ---- what a rule makes of zeros ---------------------------------------------------------------------------------- */

static void bilinear_rule(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    times(t, in, out, user);
    out[1] = tow_add(tow_mul(tow_sin(in[1]), in[2]), tow_sub(tow_mul(tow_cos(in[0]), in[3]), tow_div(in[3], in[0])));
}

static void bilinear(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_custom_jvp_function(t, times, bilinear_rule, user, NULL, 2, in, 1, out);
}

/* With one tangent only, the terms of the other one are not recorded. */
static void test_zero_tangents(void **state)
{
    (void)state;
    const tow_type types[] = {tow_make_type(TOW_F32, 0, NULL), tow_make_type(TOW_F32, 0, NULL)};
    tow_graph *f, *g;
    OK(trace(bilinear, NULL, 2, types, &f));
    OK(tow_grad(f, 1, (const size_t[]){0}, false, &g));
    assert_int_equal(tow_graph_primitive_count(g, "sin"), 1);
    assert_int_equal(tow_graph_primitive_count(g, "cos") + tow_graph_primitive_count(g, "div") +
                         tow_graph_primitive_count(g, "sub"),
                     0);
    tow_graph_release(g);
    OK(tow_grad(f, 1, (const size_t[]){1}, false, &g));
    assert_int_equal(tow_graph_primitive_count(g, "sin"), 0);
    assert_int_equal(tow_graph_primitive_count(g, "cos"), 1);
    tow_graph_release(g);
    tow_graph_release(f);
}

static void sine_of_tangent(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = in[0];
    out[1] = tow_sin(in[1]);
}

static void not_linear(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_custom_jvp_function(t, cube, sine_of_tangent, NULL, NULL, 1, in, 1, out);
}

/* Forward mode runs it; reverse mode cannot transpose it. */
static void test_rule_is_not_linear(void **state)
{
    (void)state;
    tow_graph *f, *g;
    tow_type scalar = tow_make_type(TOW_F32, 0, NULL);
    OK(trace(not_linear, NULL, 1, &scalar, &f));
    OK(tow_jvp(f, 0, NULL, &g));
    tow_graph_release(g);
    expect_error(tow_grad(f, 0, NULL, false, &g), "sin is applied to a tangent and is not linear");
    tow_graph_release(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders_of_vjp),
        cmocka_unit_test(test_orders_of_jvp),
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_writes_nothings_are_zero),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_errors_of_types),
        cmocka_unit_test(test_captured_value_is_differentiated),
        cmocka_unit_test(test_forward_mode_of_vjp),
        cmocka_unit_test(test_rule_is_not_linear),
        cmocka_unit_test(test_functions_without_end),
        cmocka_unit_test(test_forward_mode_inside),
        cmocka_unit_test(test_zero_tangents),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
