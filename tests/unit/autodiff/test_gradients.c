/* Values of derivatives, in double precision: against central differences, to second order, through remat and scan; and
 * the same bits whatever is kept or repeated, rolled or unrolled, on one thread or two. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/threaded_context.h"
#include "tow/autodiff.h"
#include "tow/ops.h"
#include "tow/program.h"

/* ---- the model: a recurrent net over T steps, with a shared weight used twice per step --------------------------- */

enum {
    T = 5,
    H = 4,
    X = 3,
    INPUTS = 4
};

typedef struct options {
    bool unrolled, remat_step, remat_loop, reverse;
    const tow_policy *step_policy, *loop_policy;
} options;

typedef struct scope {
    const options *o;
    tow_value wh, wx;
} scope;

/* in: h, x, Wh, Wx */
static void step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    tow_value pre = tow_checkpoint_name(tow_add(tow_dot(in[0], in[2]), tow_dot(in[1], in[3])), "pre");
    tow_value gate = tow_logistic(tow_dot(tow_sin(in[0]), in[2]));
    out[0] = tow_mul(gate, tow_checkpoint_name(tow_tanh(pre), "h"));
    out[1] = tow_reduce_sum(tow_mul(out[0], tow_exp(tow_neg(gate))), 0, NULL);
}

static void body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    scope *s = user;
    tow_value operands[] = {in[0], in[1], s->wh, s->wx};
    if (s->o->remat_step)
        tow_remat_function(t, step, NULL, s->o->step_policy, 4, operands, 2, out);
    else
        step(t, operands, out, NULL);
}

/* in: Wh [H,H], Wx [X,H], h0 [H], xs [T,X] -> loss [], final h */
static void loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const options *o = user;
    scope s = {o, in[0], in[1]};
    tow_value h = in[2], losses;
    if (o->unrolled) {
        tow_value terms[T];
        for (int i = 0; i < T; i++) {
            int k = o->reverse ? T - 1 - i : i;
            tow_value x[2] = {h, tow_reshape(
                                     tow_slice_axis(in[3], 0, k, k + 1), 1, (int64_t[]) { X })},
                      y[2];
            body(t, x, y, &s);
            h = y[0];
            terms[k] = tow_expand_dims(y[1], 0);
        }
        losses = tow_concatenate(T, terms, 0);
    } else {
        tow_scan_options so = TOW_SCAN_OPTIONS(.reverse = o->reverse);
        tow_value h0 = h;
        tow_scan_function(t, body, &s, &so, 1, &h0, 1, &in[3], 1, &h, &losses);
    }
    out[0] = tow_add(tow_reduce_sum(losses, 0, NULL), tow_reduce_sum(tow_square(h), 0, NULL));
}

static void loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const options *o = user;
    if (o->remat_loop)
        tow_remat_function(t, loop, user, o->loop_policy, INPUTS, in, 1, out);
    else
        loop(t, in, out, user);
}

static const int64_t shapes[INPUTS][2] = {{H, H}, {X, H}, {H, 0}, {T, X}};
static const int ranks[INPUTS] = {2, 2, 1, 2};

static tow_graph *trace_loss(const options *o, tow_dtype dtype)
{
    tow_type types[INPUTS];
    const char *names[] = {"Wh", "Wx", "h0", "xs"};
    for (int i = 0; i < INPUTS; i++) types[i] = tow_make_type(dtype, ranks[i], shapes[i]);
    tow_graph *g;
    OK(tow_trace_function(ctx, loss, (void *)(uintptr_t)o, INPUTS, types, names, 1, &g));
    return g;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static double noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (1 << 24) - 0.5;
}

static void make_inputs(const tow_graph *g, uint32_t seed, tow_array **in)
{
    for (size_t i = 0; i < tow_graph_input_count(g); i++) {
        tow_type type = tow_graph_input_type(g, i);
        OK(tow_array_create(ctx, type, &in[i]));
        for (int64_t j = 0; j < tow_type_element_count(type); j++) {
            double value = 1.5 * noise(&seed);
            if (type.dtype == TOW_F64) ((double *)tow_array_data(in[i]))[j] = value;
            if (type.dtype == TOW_F32) ((float *)tow_array_data(in[i]))[j] = (float)value;
        }
    }
}

static void release(size_t n, tow_array **arrays)
{
    for (size_t i = 0; i < n; i++) tow_array_release(arrays[i]);
}

static double value_at(const tow_graph *g, tow_array *const *in)
{
    tow_array *out[8];
    OK(tow_evaluate(g, in, out));
    double v = *(double *)tow_array_data(out[0]);
    release(tow_graph_output_count(g), out);
    return v;
}

/* gradients (outputs of `gradient`, one per input) of the scalar function `g` along a random direction, against a
 * central difference. The tolerance is the difference's own: what halving the step changes, plus rounding. */
static void check_gradient(const tow_graph *g, const tow_graph *gradient, uint32_t seed)
{
    tow_array *in[8], *moved[8], *out[8];
    size_t n = tow_graph_input_count(g);
    make_inputs(g, seed, in);
    make_inputs(g, seed + 17, moved); /* the direction, then the moved point */
    OK(tow_evaluate(gradient, in, out));
    assert_int_equal(tow_graph_output_count(gradient), n);
    double along = 0, difference[2], *direction[8];
    for (size_t i = 0; i < n; i++) {
        int64_t count = tow_type_element_count(tow_graph_input_type(g, i));
        direction[i] = malloc((size_t)count * sizeof(double));
        memcpy(direction[i], tow_array_data(moved[i]), (size_t)count * sizeof(double));
        for (int64_t j = 0; j < count; j++) along += direction[i][j] * ((double *)tow_array_data(out[i]))[j];
    }
    for (int pass = 0; pass < 2; pass++) {
        double h = pass ? 5e-6 : 1e-5, v[2];
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < n; i++)
                for (int64_t j = 0; j < tow_type_element_count(tow_graph_input_type(g, i)); j++)
                    ((double *)tow_array_data(moved[i]))[j] =
                        ((double *)tow_array_data(in[i]))[j] + (side ? h : -h) * direction[i][j];
            v[side] = value_at(g, moved);
        }
        difference[pass] = (v[1] - v[0]) / (2 * h);
    }
    double tolerance = 4 * fabs(difference[0] - difference[1]) + 1e-9 * (1 + fabs(along));
    if (fabs(along - difference[1]) > tolerance)
        fail_msg("gradient along the direction is %.12g, central differences say %.12g (tolerance %.2g)", along,
                 difference[1], tolerance);
    assert_true(fabs(along) > 1e-3); /* the comparison compares something */
    for (size_t i = 0; i < n; i++) free(direction[i]);
    release(n, in);
    release(n, moved);
    release(n, out);
}

/* ---- variants ---------------------------------------------------------------------------------------------------- */

static const tow_policy everything = {.kind = TOW_POLICY_EVERYTHING}, dots = {.kind = TOW_POLICY_DOTS};
static const char *const h_names[] = {"h", NULL};
static const tow_policy names = {.kind = TOW_POLICY_ONLY_NAMES, .names = h_names};
static const tow_policy except_names = {.kind = TOW_POLICY_ANYTHING_EXCEPT_NAMES, .names = h_names};

static const options variants[] = {
    {0},
    {.remat_step = true},
    {.remat_step = true, .step_policy = &everything},
    {.remat_step = true, .step_policy = &dots},
    {.remat_step = true, .step_policy = &names},
    {.remat_step = true, .step_policy = &except_names},
    {.remat_loop = true},
    {.remat_loop = true, .loop_policy = &everything},
    {.remat_loop = true, .loop_policy = &dots},
    {.remat_loop = true, .loop_policy = &names},
    {.remat_loop = true, .loop_policy = &except_names},
    {.remat_loop = true, .remat_step = true},
    {.remat_loop = true, .remat_step = true, .loop_policy = &names, .step_policy = &dots},
};
enum {
    VARIANTS = sizeof variants / sizeof *variants
};
static const size_t all_inputs[] = {0, 1, 2, 3};

static void test_first_order(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * VARIANTS; i++) {
        options o = variants[i / 2];
        o.reverse = i % 2;
        tow_graph *g = trace_loss(&o, TOW_F64), *gradient;
        OK(tow_grad(g, INPUTS, all_inputs, false, &gradient));
        check_gradient(g, gradient, 3);
        tow_graph_release(g);
        tow_graph_release(gradient);
    }
}

/* The scalar sum of c_i * gradient_i with fixed coefficients, so that its gradient is a product with the Hessian. */
typedef struct contraction {
    const tow_graph *gradient;
} contraction;

static void contract(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_graph *g = ((contraction *)user)->gradient;
    tow_value ct[INPUTS];
    tow_inline(t, g, in, ct);
    for (int i = 0; i < INPUTS; i++) {
        tow_value term = tow_reduce_sum(tow_mul(ct[i], tow_sin(in[i])), 0, NULL);
        out[0] = i ? tow_add(out[0], term) : term;
    }
}

static tow_graph *contracted(tow_graph *gradient)
{
    tow_type types[INPUTS];
    for (int i = 0; i < INPUTS; i++) types[i] = tow_make_type(TOW_F64, ranks[i], shapes[i]);
    tow_graph *g;
    OK(tow_trace_function(ctx, contract, &(contraction){gradient}, INPUTS, types, NULL, 1, &g));
    return g;
}

/* A region that keeps everything repeats nothing, so its gradient needs none. */
static bool repeats(const options *o)
{
    return (o->remat_step && o->step_policy != &everything) || (o->remat_loop && o->loop_policy != &everything);
}

static void test_second_order(void **state)
{
    (void)state;
    for (int i = 0; i < VARIANTS; i++) {
        tow_graph *g = trace_loss(&variants[i], TOW_F64), *gradient, *second;
        OK(tow_grad(g, INPUTS, all_inputs, false, &gradient));
        tow_graph *h = contracted(gradient);
        OK(tow_grad(h, INPUTS, all_inputs, false, &second));
        check_gradient(h, second, 5);
        assert_int_equal(repeats(&variants[i]), tow_graph_primitive_count(second, "remat") > 0);
        tow_graph_release(g);
        tow_graph_release(gradient);
        tow_graph_release(h);
        tow_graph_release(second);
    }
}

/* jvp, and the linear program of linearize, give the gradient's product with the direction. */
static void test_forward_mode(void **state)
{
    (void)state;
    for (int i = 0; i < VARIANTS; i++) {
        tow_graph *g = trace_loss(&variants[i], TOW_F64), *gradient, *jvp, *forward, *linear;
        OK(tow_grad(g, INPUTS, all_inputs, false, &gradient));
        OK(tow_jvp(g, INPUTS, all_inputs, &jvp));
        OK(tow_linearize(g, INPUTS, all_inputs, &forward, &linear));
        tow_array *in[2 * INPUTS], *out[INPUTS], *y[2], *mid[64], *lin[64], *dy[1];
        make_inputs(jvp, 11, in);
        OK(tow_evaluate(gradient, in, out));
        OK(tow_evaluate(jvp, in, y));
        double along = 0;
        for (int k = 0; k < INPUTS; k++)
            for (int64_t j = 0; j < tow_type_element_count(tow_array_type(in[k])); j++)
                along += ((double *)tow_array_data(out[k]))[j] * ((double *)tow_array_data(in[INPUTS + k]))[j];
        double found = *(double *)tow_array_data(y[1]);
        assert_true(fabs(found - along) < 1e-12 * (1 + fabs(along)));
        OK(tow_evaluate(forward, in, mid));
        size_t n_res = tow_graph_output_count(forward) - 1;
        for (size_t k = 0; k < n_res; k++) lin[k] = mid[1 + k];
        for (int k = 0; k < INPUTS; k++) lin[n_res + (size_t)k] = in[INPUTS + k];
        OK(tow_evaluate(linear, lin, dy));
        found = *(double *)tow_array_data(dy[0]);
        assert_true(fabs(found - along) < 1e-12 * (1 + fabs(along)));
        release(2 * INPUTS, in);
        release(INPUTS, out);
        release(2, y);
        release(n_res + 1, mid);
        release(1, dy);
        tow_graph_release(g);
        tow_graph_release(gradient);
        tow_graph_release(jvp);
        tow_graph_release(forward);
        tow_graph_release(linear);
    }
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static void run_bits(const options *o, int threads, tow_array **out)
{
    tow_graph *g = trace_loss(o, TOW_F32), *gradient;
    OK(tow_value_and_grad(g, INPUTS, all_inputs, false, &gradient));
    tow_array *in[INPUTS];
    make_inputs(g, 7, in);
    tow_program *program;
    OK(tow_compile(ctx, gradient, &TOW_COMPILE_OPTIONS(.threads = threads), &program));
    OK(tow_program_check(program));
    for (size_t i = 0; i < 1 + INPUTS; i++) OK(tow_array_create(ctx, tow_graph_output_type(gradient, i), &out[i]));
    OK(tow_program_run(program, in, out));
    tow_program_free(program);
    release(INPUTS, in);
    tow_graph_release(g);
    tow_graph_release(gradient);
}

static void test_bits(void **state)
{
    (void)state;
    for (int reverse = 0; reverse < 2; reverse++) {
        tow_array *expected[1 + INPUTS], *found[1 + INPUTS];
        options plain = {.reverse = reverse};
        run_bits(&plain, 1, expected);
        for (int i = 0; i < 4 * VARIANTS; i++) {
            options o = variants[i / 4];
            o.reverse = reverse;
            o.unrolled = i / 2 % 2;
            run_bits(&o, 1 + i % 2, found);
            for (int k = 0; k < 1 + INPUTS; k++)
                if (memcmp(tow_array_data(expected[k]), tow_array_data(found[k]),
                           tow_type_bytes(tow_array_type(found[k]))) != 0)
                    fail_msg("variant %d (reverse %d, unrolled %d): output %d differs in its bits", i / 4, reverse,
                             o.unrolled, k);
            release(1 + INPUTS, found);
        }
        release(1 + INPUTS, expected);
    }
}

/* Layers in a row, as scan over stacked weights and unrolled: x <- x + tanh(x W_i + b) with shared b. */
typedef struct stack {
    bool unrolled, remat;
    tow_value b;
} stack;

static void block(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add(in[0], tow_tanh(tow_add(tow_dot(in[0], in[1]), in[2])));
}

static void stack_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    stack *s = user;
    tow_value operands[] = {in[0], in[1], s->b};
    if (s->remat)
        tow_remat_function(t, block, NULL, NULL, 3, operands, 1, out);
    else
        block(t, operands, out, NULL);
}

static void stack_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user) /* Ws, b, x */
{
    stack *s = user;
    s->b = in[1];
    tow_value x = in[2];
    for (int i = 0; s->unrolled && i < T; i++) {
        tow_value operands[] = {x, tow_squeeze(tow_slice_axis(in[0], 0, i, i + 1), 0)};
        stack_body(t, operands, &x, s);
    }
    if (!s->unrolled) {
        tow_value x0 = x;
        tow_scan_function(t, stack_body, s, NULL, 1, &x0, 1, in, 0, &x, NULL);
    }
    out[0] = tow_reduce_sum(tow_mul(x, x), 0, NULL);
}

static void test_scan_equals_unrolled(void **state)
{
    (void)state;
    tow_array *expected[4];
    for (int i = 0; i < 4; i++) {
        stack s = {.unrolled = i / 2, .remat = i % 2};
        tow_type types[] = {tow_make_type(TOW_F32, 3, (int64_t[]){T, 8, 8}), tow_make_type(TOW_F32, 1, (int64_t[]){8}),
                            tow_make_type(TOW_F32, 2, (int64_t[]){6, 8})};
        tow_graph *g, *gradient;
        OK(tow_trace_function(ctx, stack_loss, &s, 3, types, NULL, 1, &g));
        OK(tow_value_and_grad(g, 3, all_inputs, false, &gradient));
        tow_array *in[3], *out[4];
        make_inputs(g, 23, in);
        OK(tow_evaluate(gradient, in, out));
        for (int k = 0; k < 4 && i > 0; k++)
            assert_memory_equal(tow_array_data(expected[k]), tow_array_data(out[k]),
                                tow_type_bytes(tow_array_type(out[k])));
        if (i == 0)
            memcpy(expected, out, sizeof out);
        else
            release(4, out);
        release(3, in);
        tow_graph_release(g);
        tow_graph_release(gradient);
    }
    release(4, expected);
}

/* ---- lengths 0 and 1 --------------------------------------------------------------------------------------------- */

static void short_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_mul(in[0], in[1]);
    out[1] = tow_sin(in[0]);
}

static void short_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_value c, ys;
    tow_scan_function(t, short_body, NULL, NULL, 1, in, 1, &in[1], 1, &c, &ys);
    out[0] = tow_add(c, tow_reduce_sum(ys, 0, NULL));
}

static void test_short_loops(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 2; n++) {
        tow_type types[] = {tow_make_type(TOW_F64, 0, NULL), tow_make_type(TOW_F64, 1, &n)};
        tow_graph *g, *gradient;
        OK(tow_trace_function(ctx, short_loop, NULL, 2, types, NULL, 1, &g));
        OK(tow_value_and_grad(g, 2, all_inputs, false, &gradient));
        tow_array *in[2], *out[3];
        make_inputs(g, 2, in);
        OK(tow_evaluate(gradient, in, out));
        double c = *(double *)tow_array_data(in[0]), x = n ? *(double *)tow_array_data(in[1]) : 1;
        assert_true(fabs(*(double *)tow_array_data(out[0]) - (n ? c * x + sin(c) : c)) < 1e-15);
        assert_true(fabs(*(double *)tow_array_data(out[1]) - (n ? x + cos(c) : 1)) < 1e-15);
        if (n) assert_true(fabs(*(double *)tow_array_data(out[2]) - c) < 1e-15);
        release(2, in);
        release(3, out);
        tow_graph_release(g);
        tow_graph_release(gradient);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_order),          cmocka_unit_test(test_second_order),
        cmocka_unit_test(test_forward_mode),         cmocka_unit_test(test_bits),
        cmocka_unit_test(test_scan_equals_unrolled), cmocka_unit_test(test_short_loops),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
