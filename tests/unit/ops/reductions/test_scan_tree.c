/* tow_associative_scan_function: values, gradients and rows of a linear recurrence beside jax.lax.associative_scan, and
 * errors. Inputs are such that all results are exact. Tests scan_tree.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

/* h = a h + b: (a1, b1) then (a2, b2) is (a1 a2, a2 b1 + b2). */
static void combine(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_mul(in[0], in[2]);
    out[1] = tow_add(tow_mul(in[2], in[1]), in[3]);
}

static void recurrence(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value h[2];
    tow_associative_scan_function(t, combine, NULL, -1, *(const bool *)user, 2, in, h);
    out[0] = h[1];
}

/* The sum of h[t] (t + 1), whose gradients are compared. */
static void loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    recurrence(t, in, out, user);
    if (tow_is_null(out[0])) return;
    tow_value weights = tow_add_scalar(tow_iota(t, tow_value_type(out[0]), 0), 1);
    out[0] = tow_reduce_sum(tow_mul(out[0], weights), 0, NULL);
}

enum {
    MOST = 7
};

typedef struct recurrence_case {
    int64_t n;
    bool reverse;
    double h[MOST], da[MOST], db[MOST]; /* of jax 0.10.2 */
} recurrence_case;

static const recurrence_case cases[] = {
    {1, false, {-1.5}, {0}, {1}},
    {2, false, {-1.5, -2.375}, {0, -3}, {2.5, 2}},
    {2, true, {-0.25, -1.25}, {-1.25, 0}, {1, 1}},
    {7,
     false,
     {-1.5, -2.375, -1.890625, -0.75, -0.21875, -0.0859375, -0.0859375},
     {0, -4.6875, -7.125, -10.93017578125, 3.5625, -2.84375, -0.6015625},
     {3.34375, 3.125, 3, 5.78125, -4.75, 13, 7}},
    {7,
     true,
     {0.7109375, -2.2109375, -1.28125, -0.75, -0.40625, -0.25, 0},
     {-2.2109375, -1.28125, -2.8125, -2.1962890625, -1.25, 0, 0},
     {1, 1, 3.75, 5.40625, 5, 4.125, 3.90625}},
};

/* Element i of operand k: ((7919 i) mod 17 - 8) / 8 and ((104729 i) mod 13 - 6) / 4. */
static float operand(int k, int64_t i)
{
    return k == 0 ? (float)(7919 * i % 17 - 8) / 8 : (float)(104729 * i % 13 - 6) / 4;
}

static void check_values(const tow_graph *g, const recurrence_case *c, int64_t rows, size_t n_out,
                         const double *const *want)
{
    tow_array *in[2], *out[2] = {NULL};
    for (int k = 0; k < 2; k++) {
        OK(tow_array_create(ctx, tow_graph_input_type(g, (size_t)k), &in[k]));
        for (int64_t i = 0; i < rows * c->n; i++) ((float *)tow_array_data(in[k]))[i] = operand(k, i % c->n);
    }
    OK(tow_evaluate(g, in, out));
    for (size_t j = 0; j < n_out; j++)
        for (int64_t i = 0; i < rows * c->n; i++)
            if ((double)((const float *)tow_array_data(out[j]))[i] != want[j][i % c->n])
                fail_msg("n %d, reverse %d, output %zu, element %d", (int)c->n, c->reverse, j, (int)i);
    for (int k = 0; k < 2; k++) tow_array_release(in[k]), tow_array_release(out[k]);
}

static void test_recurrence(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        recurrence_case c = cases[i];
        const tow_type type = tow_make_type(TOW_F32, 1, &c.n), types[] = {type, type};
        tow_graph *g, *rows, *gradient, *f;
        OK(tow_trace_function(ctx, recurrence, &c.reverse, 2, types, NULL, 1, &g));
        OK(tow_graph_check(g));
        check_values(g, &c, 1, 1, (const double *const[]){c.h});
        OK(tow_vmap(g, 3, NULL, NULL, &rows));
        check_values(rows, &c, 3, 1, (const double *const[]){c.h});
        OK(tow_trace_function(ctx, loss, &c.reverse, 2, types, NULL, 1, &f));
        OK(tow_grad(f, 0, NULL, false, &gradient));
        check_values(gradient, &c, 1, 2, (const double *const[]){c.da, c.db});
        tow_graph_release(g);
        tow_graph_release(rows);
        tow_graph_release(f);
        tow_graph_release(gradient);
    }
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void halves(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_convert(in[0], TOW_BF16);
}
static void nothing(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)in, (void)out, (void)user;
}

typedef struct wrong_call {
    tow_function function;
    int axis;
    size_t n;
    const char *message;
} wrong_call;

static void call_wrongly(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const wrong_call *w = user;
    tow_value y[2];
    tow_associative_scan_function(t, w->function, NULL, w->axis, false, w->n, in, y);
    out[0] = y[0];
}

static void test_errors(void **state)
{
    (void)state;
    static const wrong_call calls[] = {
        {combine, 1, 2, "axis 1 is outside [-1, 1)"},
        {combine, 0, 2, "operand 1, f32[4], has 4 elements along axis 0 and operand 0, f32[3], has 3"},
        {halves, 0, 1, "output 0 of the function must have the type of its operands, f32[1], found bf16[1]"},
        {nothing, 0, 1, "the function never wrote output 0"},
        {NULL, 0, 1, "expected a function"},
    };
    const tow_type types[] = {tow_make_type(TOW_F32, 1, (int64_t[]){3}), tow_make_type(TOW_F32, 1, (int64_t[]){4})};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        tow_graph *g;
        tow_context_clear_error(ctx);
        assert_int_not_equal(tow_trace_function(ctx, call_wrongly, (void *)(uintptr_t)&calls[i], 2, types, NULL, 1, &g),
                             TOW_OK);
        if (!strstr(tow_context_error(ctx), calls[i].message))
            fail_msg("\"%s\" is not in: %s", calls[i].message, tow_context_error(ctx));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recurrence),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests_name("scan_tree", tests, setup, teardown);
}
