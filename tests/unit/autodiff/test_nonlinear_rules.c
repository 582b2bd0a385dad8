/* Rules of users that are not linear in their tangents: reverse mode and linearize say which operation is not, whatever
 * is around the call; forward mode runs them. Tests linear.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

/* dy from x and dx, f32[3] */
typedef tow_value (*tangent_of)(tow_value x, tow_value dx);

static tow_value squared(tow_value x, tow_value dx) { return tow_mul(tow_mul(dx, dx), x); }
static tow_value divided(tow_value x, tow_value dx) { return tow_div(x, dx); }
static tow_value ratio(tow_value x, tow_value dx) { return tow_div(dx, tow_add(dx, x)); }
static tow_value dotted(tow_value x, tow_value dx) { return tow_mul(tow_dot(dx, dx), x); }
static tow_value chosen(tow_value x, tow_value dx)
{
    (void)x;
    return tow_where(tow_gt_scalar(dx, 0), dx, tow_neg(dx));
}
static tow_value masked(tow_value x, tow_value dx)
{
    return tow_mul(x, tow_convert(tow_not(tow_lt_scalar(dx, 0)), TOW_F32));
}
static tow_value rounded(tow_value x, tow_value dx)
{
    return tow_mul(x, tow_convert(tow_convert(dx, TOW_I32), TOW_F32));
}
static tow_value cubed(tow_value x, tow_value dx) { return tow_mul(x, tow_integer_pow(dx, 3)); }
static tow_value largest(tow_value x, tow_value dx) { return tow_mul(x, tow_reduce_max(dx, 0, NULL)); }
static tow_value updated(tow_value x, tow_value dx)
{
    return tow_dynamic_update_slice(dx, tow_slice_axis(tow_mul(dx, dx), 0, 0, 1),
                                    (tow_value[]){tow_scalar(tow_value_trace(x), TOW_I32, 1)});
}

typedef struct step {
    tangent_of f;
} step;

static void step_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = ((const step *)user)->f(in[0], in[1]);
}
static void step_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = tow_mul_scalar(in[0], 2);
    out[1] = ((const step *)user)->f(in[0], in[1]);
}
static tow_value in_remat(tow_value x, tow_value dx)
{
    tow_value y = {0};
    tow_remat_function(tow_value_trace(x), step_body, &(step){squared}, NULL, 2, (tow_value[]){x, dx}, 1, &y);
    return y;
}
static tow_value in_scan(tow_value x, tow_value dx)
{
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = 2, .has_length = true);
    tow_value y[2] = {{0}};
    tow_scan_function(tow_value_trace(x), step_loop, &(step){squared}, &options, 2, (tow_value[]){x, dx}, 0, NULL, 0, y,
                      NULL);
    return y[1];
}
static tow_value in_cond(tow_value x, tow_value dx)
{
    tow_value y = {0}, positive = tow_gt_scalar(tow_reduce_sum(x, 0, NULL), 0);
    tow_cond_function(tow_value_trace(x), positive, step_body, step_body, &(step){squared}, 2, (tow_value[]){x, dx}, 1,
                      &y);
    return y;
}
static tow_value by_cond(tow_value x, tow_value dx)
{
    tow_value y = {0}, positive = tow_gt_scalar(tow_reduce_sum(dx, 0, NULL), 0);
    tow_cond_function(tow_value_trace(x), positive, step_body, step_body, &(step){tow_mul}, 2, (tow_value[]){x, dx}, 1,
                      &y);
    return y;
}
/* These are linear. */
static tow_value scaled(tow_value x, tow_value dx) { return tow_mul(tow_sub(dx, tow_neg(dx)), tow_sin(x)); }
static tow_value summed(tow_value x, tow_value dx)
{
    return tow_concatenate(2, (tow_value[]){tow_slice_axis(dx, 0, 0, 2), tow_expand_dims(tow_dot(x, dx), 0)}, 0);
}
static tow_value kept(tow_value x, tow_value dx)
{
    return tow_where(tow_gt_scalar(x, 0), tow_div(dx, x), tow_zeros_like(dx));
}

typedef struct rule {
    tangent_of tangent;
    const char *error; /* NULL: linear */
} rule;

static const rule rules[] = {
    {squared, "mul is not linear in operands 0 and 1, which depend on tangents"},
    {divided, "div is not linear in operand 1, which depends on tangents"},
    {ratio, "div is not linear in operands 0 and 1, which depend on tangents"},
    {dotted, "dot_general is not linear in operands 0 and 1, which depend on tangents"},
    {chosen, "gt is applied to a tangent and is not linear"},
    {masked, "lt is applied to a tangent and is not linear"},
    {rounded, "convert is applied to a tangent and is not linear"},
    {cubed, "is not linear"},
    {largest, "reduce_max is applied to a tangent and is not linear"},
    {updated, "mul is not linear in operands 0 and 1"},
    {in_remat, "mul is not linear in operands 0 and 1"},
    {in_scan, "mul is not linear in operands 0 and 1"},
    {in_cond, "mul is not linear in operands 0 and 1"},
    {by_cond, "gt is applied to a tangent and is not linear"},
    {scaled, NULL},
    {summed, NULL},
    {kept, NULL},
};

static void sine(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_sin(in[0]);
}

static void sine_rule(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    sine(t, in, out, user);
    out[1] = ((const rule *)user)->tangent(in[0], in[1]);
}

static void call(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_custom_jvp_function(t, sine, sine_rule, user, NULL, 1, in, 1, out);
}

/* The contexts of the call. */
static void plain(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    call(t, in, out, user);
    out[0] = tow_reduce_sum(tow_mul(out[0], out[0]), 0, NULL);
}
static void under_remat(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_policy everything = tow_everything_saveable();
    tow_remat_function(t, plain, user, &everything, 1, in, 1, out);
}
static void in_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = 3, .has_length = true);
    tow_scan_function(t, call, user, &options, 1, in, 0, NULL, 0, out, NULL);
    out[0] = tow_reduce_sum(out[0], 0, NULL);
}
static void in_branch(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value positive = tow_gt_scalar(tow_reduce_sum(in[0], 0, NULL), 0);
    tow_cond_function(t, positive, plain, plain, user, 1, in, 1, out);
}

static void expect(tow_status status, const rule *r, size_t number, const char *transform)
{
    if (!r->error && status != TOW_OK) fail_msg("rule %zu, %s: %s", number, transform, tow_context_error(ctx));
    if (r->error && (status == TOW_OK || !strstr(tow_context_error(ctx), r->error)))
        fail_msg("rule %zu, %s: expected \"%s\", found \"%s\"", number, transform, r->error,
                 status == TOW_OK ? "ok" : tow_context_error(ctx));
    tow_context_clear_error(ctx);
}

/* All that linearizes the rules. */
static void check(const tow_graph *g, const rule *r, size_t number)
{
    tow_graph *first = NULL, *second = NULL;
    tow_residuals residuals;
    expect(tow_grad(g, 0, NULL, false, &first), r, number, "grad");
    tow_graph_release(first);
    expect(tow_vjp(g, 0, NULL, &first, &second), r, number, "vjp");
    tow_graph_release(first);
    tow_graph_release(second);
    expect(tow_linearize(g, 0, NULL, &first, &second), r, number, "linearize");
    tow_graph_release(first);
    tow_graph_release(second);
    expect(tow_jacrev(g, 0, NULL, &first), r, number, "jacrev");
    tow_graph_release(first);
    expect(tow_hessian(g, 0, NULL, &first), r, number, "hessian");
    tow_graph_release(first);
    expect(tow_saved_residuals(g, 0, NULL, &residuals), r, number, "residuals");
    tow_residuals_free(&residuals);
    OK(tow_jvp(g, 0, NULL, &first)); /* any rule */
    OK(tow_graph_check(first));
    tow_graph_release(first);
}

static void test_rules(void **state)
{
    (void)state;
    static const tow_function around[] = {plain, under_remat, in_loop, in_branch};
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){3});
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
            tow_graph *g, *rows;
            OK(tow_trace_function(ctx, around[k], (void *)(uintptr_t)&rules[i], 1, &type, NULL, 1, &g));
            check(g, &rules[i], i);
            OK(tow_vmap(g, 2, NULL, NULL, &rows));
            tow_graph_release(g);
            tow_residuals residuals;
            expect(tow_saved_residuals(rows, 0, NULL, &residuals), &rules[i], i, "residuals of rows");
            tow_residuals_free(&residuals);
            tow_graph_release(rows);
        }
}

/* The derivative of a jvp with respect to the tangent is one: there dx is a value like any other. */
static void test_derivative_by_the_tangent(void **state)
{
    (void)state;
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){3});
    tow_graph *g, *jvp, *gradient;
    OK(tow_trace_function(ctx, plain, (void *)(uintptr_t)&rules[0], 1, &type, NULL, 1, &g));
    OK(tow_jvp(g, 0, NULL, &jvp));
    OK(tow_grad(jvp, 1, (size_t[]){1}, true, &gradient));
    tow_graph_release(g);
    tow_graph_release(jvp);
    tow_graph_release(gradient);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_derivative_by_the_tangent),
    };
    return cmocka_run_group_tests_name("nonlinear_rules", tests, setup, teardown);
}
