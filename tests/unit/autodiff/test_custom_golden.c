/* Functions with derivatives of their own against JAX (tests/oracle/custom_rules.py): rules that call their own
 * function, each other, or hold other calls; under control flow, remat and vmap; values, gradients, and gradients of
 * gradients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/golden_cases.h"
#include "tests/unit/support/plain_context.h"

/* F(name) { ... } gets trace, in, out and user. */
#define F(name) static void name(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
#define UNUSED  (void)trace, (void)in, (void)user /* as not all functions need all */

static tow_value mul3(tow_value x, tow_value y, tow_value z) { return tow_mul(tow_mul(x, y), z); }
static tow_value scaled(double k, tow_value x) { return tow_mul_scalar(x, k); }
static tow_value sum(tow_value x) { return tow_reduce_sum(x, 0, NULL); }
static tow_value is_positive(tow_value x) { return tow_gt(sum(x), scaled(0, sum(x))); }

/* ---- the functions ----------------------------------------------------------------------------------------------- */

F(wave_value) { UNUSED, out[0] = tow_sin(in[0]); }
F(wave);
F(wave_rule) { wave(trace, in, out, user), out[1] = mul3(in[1], scaled(1.5, in[0]), out[0]); }
F(wave) { tow_custom_jvp_function(trace, wave_value, wave_rule, user, NULL, 1, in, 1, out); }

/* The rule calls the function in the branches of a choice. in: x, dx */
F(choosy);
F(choosy_positive) { choosy(trace, in, out, user), out[0] = mul3(in[1], out[0], in[0]); }
F(choosy_negative)
{
    tow_value twice = scaled(2, in[0]);
    choosy(trace, &twice, out, user);
    out[0] = scaled(3, tow_mul(in[1], out[0]));
}
F(choosy_rule)
{
    choosy(trace, in, out, user);
    tow_cond_function(trace, is_positive(in[0]), choosy_positive, choosy_negative, user, 2, in, 1, &out[1]);
}
F(choosy) { tow_custom_jvp_function(trace, wave_value, choosy_rule, user, NULL, 1, in, 1, out); }

F(gate);
F(gate_value) { UNUSED, out[0] = tow_mul(tow_tanh(in[0]), in[1]); }
F(gate_forward) { gate(trace, in, out, user), out[1] = in[0], out[2] = in[1]; }
F(gate_backward)
{
    tow_value y;
    gate(trace, in, &y, user);
    out[0] = mul3(in[2], y, in[0]);
    out[1] = scaled(2, tow_mul(in[2], tow_tanh(in[0])));
}
F(gate) { tow_custom_vjp_function(trace, gate_value, gate_forward, gate_backward, user, NULL, 2, in, 2, 1, out); }

/* Rules that call each other. */
F(sine);
F(cosine);
F(cosine_value) { UNUSED, out[0] = tow_cos(in[0]); }
F(sine_rule)
{
    sine(trace, in, out, user), cosine(trace, in, &out[1], user), out[1] = scaled(0.75, tow_mul(out[1], in[1]));
}
F(cosine_rule)
{
    cosine(trace, in, out, user);
    sine(trace, in, &out[1], user);
    out[1] = scaled(-1.25, tow_mul(out[1], in[1]));
}
F(sine) { tow_custom_jvp_function(trace, wave_value, sine_rule, user, NULL, 1, in, 1, out); }
F(cosine) { tow_custom_jvp_function(trace, cosine_value, cosine_rule, user, NULL, 1, in, 1, out); }
F(sine_of_cosine)
{
    tow_value x;
    cosine(trace, in, &x, user);
    sine(trace, &x, out, user);
}

/* A custom_jvp in a custom_vjp, and the reverse. */
F(outer_vjp_value) { wave(trace, in, out, user), out[0] = tow_mul(out[0], in[0]); }
F(outer_vjp_forward) { outer_vjp_value(trace, in, out, user), out[1] = in[0], wave(trace, in, &out[2], user); }
F(outer_vjp_backward)
{
    tow_value y;
    wave(trace, in, &y, user);
    out[0] = tow_add(mul3(in[2], in[1], y), in[2]);
}
F(outer_vjp)
{
    tow_custom_vjp_function(trace, outer_vjp_value, outer_vjp_forward, outer_vjp_backward, user, NULL, 1, in, 2, 1,
                            out);
}
F(outer_jvp);
F(outer_jvp_rule)
{
    tow_value y;
    outer_jvp(trace, in, out, user);
    outer_vjp(trace, in, &y, user);
    out[0] = tow_add(out[0], y);
    out[1] = scaled(2, tow_mul(y, in[1]));
}
F(outer_jvp) { tow_custom_jvp_function(trace, cosine_value, outer_jvp_rule, user, NULL, 1, in, 1, out); }

/* Two inputs, two results. */
F(two);
F(two_value) { UNUSED, out[0] = tow_mul(in[0], in[1]), out[1] = tow_add(in[0], in[1]); }
F(two_rule)
{
    tow_value y[2];
    two_value(trace, in, out, user);
    two(trace, in, y, user);
    out[2] = tow_add(scaled(3, tow_mul(in[2], in[1])), tow_mul(in[0], in[3]));
    out[3] = tow_sub(tow_mul(in[2], y[0]), in[3]);
}
F(two) { tow_custom_jvp_function(trace, two_value, two_rule, user, NULL, 2, in, 2, out); }
F(one_tangent) { two(trace, (const tow_value[]){in[0], tow_cos(tow_stop_gradient(in[0]))}, out, user); }
F(no_tangent)
{
    tow_value y[2], x = tow_stop_gradient(in[0]);
    two(trace, (const tow_value[]){x, x}, y, user);
    out[0] = tow_mul(in[0], y[1]);
}

F(fixed_second);
F(fixed_rule)
{
    fixed_second(trace, in, out, user);
    out[1] = mul3(in[2], scaled(5, in[1]), out[0]);
}
F(fixed_value) { UNUSED, out[0] = tow_mul(in[0], in[1]); }
F(fixed_second)
{
    const tow_custom_options options = TOW_CUSTOM_OPTIONS(.fixed = (const bool[]){false, true});
    tow_custom_jvp_function(trace, fixed_value, fixed_rule, user, &options, 2, in, 1, out);
}
F(fixed) { fixed_second(trace, (const tow_value[]){in[0], in[0]}, out, user); }

/* The rule uses an outer value that the function does not, and calls the function in a choice. user: w, v */
F(captured_value) { UNUSED, out[0] = tow_mul(tow_sin(in[0]), *(const tow_value *)user); }
F(captured_call);
F(captured_positive)
{
    captured_call(trace, in, out, user);
    out[0] = mul3(in[1], out[0], ((const tow_value *)user)[1]);
}
F(captured_negative) { UNUSED, out[0] = tow_mul(in[1], ((const tow_value *)user)[1]); }
F(captured_rule)
{
    captured_call(trace, in, out, user);
    tow_cond_function(trace, is_positive(in[0]), captured_positive, captured_negative, user, 2, in, 1, &out[1]);
}
F(captured_call) { tow_custom_jvp_function(trace, captured_value, captured_rule, user, NULL, 1, in, 1, out); }
F(captured_function)
{
    tow_value outer[] = {tow_stop_gradient(in[1]), tow_stop_gradient(in[2])};
    (void)user;
    captured_call(trace, in, out, outer);
}

/* ---- derivatives as functions ------------------------------------------------------------------------------------ */

/* Records a graph that a transformation made of a function of n inputs: its first result. */
static void record(tow_trace *trace, tow_status status, tow_graph *made, const tow_value *in, tow_value *out)
{
    tow_context *context = tow_trace_context(trace);
    if (status == TOW_OK)
        tow_inline(trace, made, in, out);
    else
        tow_trace_fail(trace, status, "%s", tow_context_error(context));
    tow_graph_release(made);
}

typedef struct summed {
    tow_function function;
    size_t n_out;
} summed;

F(sum_of_results)
{
    const summed *s = user;
    tow_value y[2] = {{0}};
    s->function(trace, in, y, NULL);
    out[0] = s->n_out == 2 ? tow_add(sum(y[0]), sum(y[1])) : sum(y[0]);
}

/* The derivative of the sum of all results with respect to input wrt. */
static void derivative(tow_trace *trace, summed s, size_t n, const tow_value *in, size_t wrt, tow_value *out)
{
    tow_type types[3];
    tow_graph *graph = NULL, *gradient = NULL;
    for (size_t i = 0; i < n; i++) types[i] = tow_value_type(in[i]);
    tow_status status = tow_trace_function(tow_trace_context(trace), sum_of_results, &s, n, types, NULL, 1, &graph);
    if (status == TOW_OK) status = tow_grad(graph, 1, &wrt, false, &gradient);
    record(trace, status, gradient, in, out);
    tow_graph_release(graph);
}

/* in: x, dx. out: y, dy */
static void forward_mode(tow_trace *trace, tow_function function, const tow_value *in, tow_value *out)
{
    tow_type type = tow_value_type(in[0]);
    tow_graph *graph = NULL, *jvp = NULL;
    tow_status status = tow_trace_function(tow_trace_context(trace), function, NULL, 1, &type, NULL, 1, &graph);
    if (status == TOW_OK) status = tow_jvp(graph, 0, NULL, &jvp);
    record(trace, status, jvp, in, out);
    tow_graph_release(graph);
}

#define DERIVATIVE(name, of, n_in, wrt, n_out)                                                                         \
    F(name) { (void)user, derivative(trace, (summed){of, n_out}, n_in, in, wrt, out); }

DERIVATIVE(wave1, wave, 1, 0, 1)
DERIVATIVE(wave2, wave1, 1, 0, 1)
DERIVATIVE(choosy1, choosy, 1, 0, 1)
DERIVATIVE(gate1, gate, 2, 0, 1)
DERIVATIVE(gate_by_y, gate, 2, 1, 1)
DERIVATIVE(gate2, gate_by_y, 2, 0, 1)
DERIVATIVE(sine1, sine_of_cosine, 1, 0, 1)
DERIVATIVE(only_sine1, sine, 1, 0, 1)
DERIVATIVE(sine2, only_sine1, 1, 0, 1)
DERIVATIVE(outer_vjp1, outer_vjp, 1, 0, 1)
DERIVATIVE(outer_jvp1, outer_jvp, 1, 0, 1)
DERIVATIVE(captured, captured_function, 3, 0, 1)
F(sine_forward) { (void)user, forward_mode(trace, sine, in, out); }
/* d2y/dx2 dx dx: dx is a constant of the inner derivative. in: x, dx */
F(forward_of_forward)
{
    const size_t wrt = 0;
    tow_value all[] = {in[0], in[1], in[1]}, results[4] = {{0}};
    tow_type type = tow_value_type(in[0]);
    tow_graph *graph = NULL, *once = NULL, *again = NULL;
    tow_status status = tow_trace_function(tow_trace_context(trace), wave, user, 1, &type, NULL, 1, &graph);
    if (status == TOW_OK) status = tow_jvp(graph, 0, NULL, &once);
    if (status == TOW_OK) status = tow_jvp(once, 1, &wrt, &again);
    record(trace, status, again, all, results);
    out[0] = results[3];
    tow_graph_release(graph);
    tow_graph_release(once);
}

/* ---- control flow, remat, vmap ----------------------------------------------------------------------------------- */

/* in: x, y */
F(gate_of_wave)
{
    tow_value x;
    wave(trace, in, &x, NULL);
    gate(trace, (const tow_value[]){x, in[1]}, out, NULL);
    (void)user;
}
F(choosy_second) { (void)user, choosy(trace, &in[1], out, NULL); }
F(wave_first) { (void)user, wave(trace, in, out, NULL); }
F(gate_both) { (void)user, gate(trace, in, out, NULL); }
F(two_first)
{
    tow_value y[2];
    (void)user, two(trace, in, y, NULL);
    out[0] = y[0];
}
F(cond) { (void)user, tow_cond_function(trace, in[0], gate_of_wave, choosy_second, NULL, 2, &in[1], 1, out); }
F(switch_)
{
    const tow_branch branches[] = {{wave_first, NULL}, {gate_both, NULL}, {two_first, NULL}};
    (void)user;
    tow_switch_function(trace, in[0], 3, branches, 2, &in[1], 1, out);
}

F(below_four)
{
    tow_value most = tow_reduce_max(in[0], 0, NULL);
    UNUSED, out[0] = tow_lt(most, tow_full_like(most, 4));
}
F(grow) { (void)user, wave(trace, in, out, NULL), out[0] = tow_add(scaled(1.25, in[0]), scaled(0.25, out[0])); }
F(while_)
{
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = 8);
    (void)user;
    tow_while_function(trace, below_four, grow, NULL, &options, 1, in, out);
}
DERIVATIVE(while_grad, while_, 1, 0, 1)

/* in: i, c */
F(fori_step)
{
    tow_value c;
    gate(trace, (const tow_value[]){in[1], *(const tow_value *)user}, out, NULL);
    wave(trace, &in[1], &c, NULL);
    out[0] = tow_add(out[0], tow_mul(c, tow_convert(in[0], tow_value_type(c).dtype)));
}
F(fori)
{
    tow_value y = in[1];
    (void)user;
    tow_fori_function(trace, 0, 3, fori_step, &y, NULL, 1, in, out);
}
F(scan_step) { (void)user, gate(trace, in, out, NULL), wave(trace, in, &out[1], NULL); }
F(scan) { (void)user, tow_scan_function(trace, scan_step, NULL, NULL, 1, in, 1, &in[1], 1, out, &out[1]); }
DERIVATIVE(scan1, scan, 2, 0, 2)

F(sine_of_gate) { gate_of_wave(trace, in, out, user), out[0] = tow_sin(out[0]); }
F(remat_nothing) { (void)user, tow_remat_function(trace, sine_of_gate, NULL, NULL, 2, in, 1, out); }
F(remat_everything)
{
    const tow_policy policy = tow_everything_saveable();
    (void)user;
    tow_remat_function(trace, sine_of_gate, NULL, &policy, 2, in, 1, out);
}
DERIVATIVE(remat1, remat_nothing, 2, 0, 1)

/* user: y */
F(row)
{
    tow_value x, y;
    choosy(trace, in, &x, NULL);
    gate(trace, (const tow_value[]){x, *(const tow_value *)user}, out, NULL);
    wave(trace, in, &y, NULL);
    out[0] = tow_add(out[0], y);
}
F(vmap)
{
    tow_value y = in[1];
    (void)user;
    tow_vmap_function(trace, row, &y, NULL, 1, in, 1, out);
}
F(gate_of_choosy)
{
    tow_value x;
    (void)user, choosy(trace, in, &x, NULL);
    gate(trace, (const tow_value[]){x, in[1]}, out, NULL);
}
DERIVATIVE(row1, gate_of_choosy, 2, 0, 1)
F(vmap1)
{
    const tow_vmap_options options = TOW_VMAP_OPTIONS(.in_axes = (const int[]){1, TOW_NOT_MAPPED});
    (void)user;
    tow_vmap_function(trace, row1, NULL, &options, 2, in, 1, out);
}
/* A captured value of which each row has its own, and one that all rows share. */
F(captured_rows)
{
    const tow_vmap_options options = TOW_VMAP_OPTIONS(.in_axes = (const int[]){0, 0, TOW_NOT_MAPPED});
    (void)user;
    tow_vmap_function(trace, captured, NULL, &options, 3, in, 1, out);
}
F(choosy_rows) { (void)user, tow_vmap_function(trace, choosy, NULL, NULL, 1, in, 1, out); }
DERIVATIVE(grad_of_vmap, choosy_rows, 1, 0, 1)

#define ROW(name, n)                                                                                                   \
    {                                                                                                                  \
#name, name, n                                                                                                 \
    }

static const golden_function table[] = {
    ROW(wave, 1),
    ROW(wave1, 1),
    ROW(wave2, 1),
    ROW(choosy, 1),
    ROW(choosy1, 1),
    ROW(gate, 1),
    ROW(gate1, 1),
    ROW(gate2, 1),
    ROW(sine1, 1),
    ROW(sine2, 1),
    ROW(outer_vjp, 1),
    ROW(outer_vjp1, 1),
    ROW(outer_jvp, 1),
    ROW(outer_jvp1, 1),
    ROW(captured, 1),
    ROW(captured_rows, 1),
    ROW(forward_of_forward, 1),
    ROW(one_tangent, 2),
    ROW(no_tangent, 1),
    ROW(fixed, 1),
    ROW(cond, 1),
    ROW(while_grad, 1),
    ROW(fori, 1),
    ROW(scan, 2),
    ROW(scan1, 1),
    ROW(remat_nothing, 1),
    ROW(remat1, 1),
    ROW(vmap, 1),
    ROW(remat_everything, 1),
    ROW(vmap1, 1),
    ROW(grad_of_vmap, 1),
    {"sine", sine_of_cosine, 1},
    {"forward_mode", sine_forward, 2},
    {"both_tangents", two, 2},
    {"switch", switch_, 1},
    {"while", while_, 1},
};

#define CASES TOW_TEST_DATA "/oracle/golden/custom_rules.txt"

static void test_golden(void **state)
{
    (void)state;
    check_golden_cases(ctx, CASES, table, sizeof table / sizeof *table);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    check_golden_failing(ctx, CASES, table, sizeof table / sizeof *table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_failing_allocations)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
