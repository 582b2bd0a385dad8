/* Plans worked out by hand: arena sizes, what backward keeps; the plan checker on right and on damaged plans; arrays of
 * wrong types.
 *
 * Tests compile.c, lower/inline.c, lower/lower.c, lower/lower_scan.c, lower/order.c, lower/widen.c, memory/alias.c,
 * analysis/phase.c, memory/bind_addresses.c, memory/check.c, memory/overwrite.c, report/count.c, report/print.c,
 * run/run.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/plan/ir.h"
#include "tests/unit/support/threaded_context.h"
#include "tow/autodiff.h"
#include "tow/ops.h"
#include "tow/program.h"

static tow_type f32(int rank, int64_t a, int64_t b, int64_t c)
{
    return tow_make_type(TOW_F32, rank, (int64_t[]){a, b, c});
}

/* ---- plans worked out by hand ------------------------------------------------------------------------------------ */

enum {
    SIZE = 1024 * sizeof(float)
}; /* of f32[1024] */

static const tow_compile_options separate = TOW_COMPILE_OPTIONS(.no_fusion = true);

static tow_program *compile(tow_function function, size_t n_in, const tow_type *types, size_t n_out,
                            const tow_compile_options *options)
{
    tow_graph *g;
    tow_program *p;
    OK(tow_trace_function(ctx, function, NULL, n_in, types, NULL, n_out, &g));
    OK(tow_compile(ctx, g, options, &p));
    tow_graph_release(g);
    OK(tow_program_check(p));
    return p;
}

/* arena: bytes if every instruction is a step; fused: if chains are one step */
static void expect_plan(tow_function function, size_t n_in, const tow_type *types, size_t n_out, size_t arena,
                        size_t fused, const char *counted, uint64_t count)
{
    for (int i = 0; i < 2; i++) {
        tow_program *p = compile(function, n_in, types, n_out, i ? NULL : &separate);
        assert_int_equal(tow_program_get_bytes(p).arena, i ? fused : arena);
        assert_int_equal(tow_program_get_bytes(p).lower_bound, i ? fused : arena);
        assert_int_equal(tow_program_operation_count(p, counted), count);
        tow_program_free(p);
    }
}

static void chain(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_neg(tow_exp(tow_sin(x[0])));
}

static void chain_to_sum(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_reduce_sum(tow_exp(tow_sin(x[0])), 0, NULL);
}

static void three_alive(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    tow_value a = tow_sin(x[0]), b = tow_cos(x[0]), c = tow_exp(x[0]);
    tow_value ab = tow_mul(a, b); /* nothing dies here */
    y[0] = tow_reduce_sum(tow_add(ab, tow_mul(tow_sub(b, c), a)), 0, NULL);
}

static void same_twice(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = y[1] = tow_sin(x[0]);
    y[2] = x[0];
}

/* carry - x: one buffer, which is the result */
static void accumulate_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_sub(x[0], x[1]);
}

static void accumulate(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_scan_function(t, accumulate_body, NULL, NULL, 1, x, 1, x + 1, 0, y, NULL);
}

/* carry + x: one sum over all steps instead of a loop */
static void add_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_add(x[0], x[1]);
}

static void add_up(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_scan_function(t, add_body, NULL, NULL, 1, x, 1, x + 1, 0, y, NULL);
}

/* carry + sin(carry): sin(carry) is the only temporary, the new carry may overwrite the old one */
static void recur_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_add(x[0], tow_sin(x[0]));
    y[1] = tow_neg(x[1]);
}

static void recur(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_scan_function(t, recur_body, NULL, NULL, 1, x, 1, x + 1, 1, y, y + 1);
}

/* (a, b) -> (b, a): a needs a second buffer of 4 KiB, b does not */
static void swap_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = x[1];
    y[1] = x[0];
}

static void swap(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = 7, .has_length = true);
    tow_scan_function(t, swap_body, NULL, &options, 2, x, 0, NULL, 0, y, NULL);
}

/* sin(carry), keeping every carry: it lives in the rows of ys, and only init is copied */
static void keep_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_sin(x[0]);
    y[1] = x[0];
}

static void keep(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = 7, .has_length = true);
    tow_scan_function(t, keep_body, NULL, &options, 1, x, 0, NULL, 1, y, y + 1);
}

static void test_hand_worked(void **state)
{
    (void)state;
    tow_type vector = f32(1, 1024, 0, 0), rows[] = {vector, f32(2, 6, 1024, 0)}, pair[] = {vector, vector};
    expect_plan(chain, 1, &vector, 1, 0, 0, NULL, 3);              /* all in the output */
    expect_plan(chain_to_sum, 1, &vector, 1, SIZE, 0, NULL, 3);    /* exp overwrites sin; or both exist as tiles only */
    expect_plan(three_alive, 1, &vector, 1, 4 * SIZE, 0, NULL, 8); /* a, b, c, and the first product */
    expect_plan(same_twice, 1, &vector, 3, 0, 0, "copy", 2);
    expect_plan(accumulate, 2, rows, 1, 0, 0, "sub", 6);
    expect_plan(add_up, 2, rows, 1, 0, 0, NULL, 1);
    expect_plan(recur, 2, rows, 2, SIZE, 0, "copy", 0); /* sin(carry) exists as a tile only */
    expect_plan(swap, 2, pair, 2, SIZE, SIZE, "copy", 14);
    expect_plan(keep, 1, &vector, 2, 0, 0, NULL, 8);
}

/* (c, s) -> -c, keeping c and max(-c, s), where s is also the init value: the result must not take its memory */
static void shared_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t;
    const tow_value *s = user;
    y[0] = tow_neg(x[0]);
    y[1] = x[0];
    y[2] = tow_max(y[0], *s);
}

static void shared(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_value s = tow_mul_scalar(x[0], 0.5), ys[2];
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = 3, .has_length = true);
    tow_scan_function(t, shared_body, &s, &options, 1, &s, 0, NULL, 2, y, ys);
    y[1] = ys[1];
}

static void test_shared_init(void **state)
{
    (void)state;
    tow_type vector = f32(1, 1024, 0, 0);
    tow_program *p = compile(shared, 1, &vector, 2, NULL);
    tow_array *x, *y[2];
    OK(tow_array_create(ctx, vector, &x));
    OK(tow_array_create(ctx, vector, &y[0]));
    OK(tow_array_create(ctx, f32(2, 3, 1024, 0), &y[1]));
    for (int i = 0; i < 1024; i++) ((float *)tow_array_data(x))[i] = (float)(i - 512);
    OK(tow_program_run(p, &x, y));
    for (int i = 0; i < 1024; i++) {
        float s = 0.5f * (float)(i - 512), most = s > -s ? s : -s;
        assert_true(((float *)tow_array_data(y[0]))[i] == -s);
        for (int row = 0; row < 3; row++)
            assert_true(((float *)tow_array_data(y[1]))[row * 1024 + i] == (row == 1 ? s : most));
    }
    tow_array_release(x);
    tow_array_release(y[0]);
    tow_array_release(y[1]);
    tow_program_free(p);
}

/* c -> c + x, keeping c before and after: one array of a row more than steps, unless a caller provides one of the two
 * */
typedef struct stacks {
    bool reverse, handed_out;
} stacks;

static void stack_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = y[2] = y[3] = tow_add(x[0], x[1]);
    y[1] = x[0];
}

static void stack(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    const stacks *s = user;
    tow_scan_options options = TOW_SCAN_OPTIONS(.reverse = s->reverse);
    tow_value ys[3];
    tow_scan_function(t, stack_body, NULL, &options, 1, x, 1, x + 1, 3, y, ys);
    y[1] = tow_sub(ys[0], tow_mul_scalar(ys[1], 2));
    y[2] = s->handed_out ? tow_reshape(ys[2], 1, (int64_t[]){6 * 1024}) : tow_reduce_sum(ys[2], 2, (int[]){0, 1});
}

static void expect_stacks(const stacks *s, size_t arena)
{
    tow_type in[] = {f32(1, 1024, 0, 0), f32(2, 6, 1024, 0)};
    tow_type out[] = {in[0], in[1], s->handed_out ? f32(1, 6 * 1024, 0, 0) : f32(0, 0, 0, 0)};
    tow_graph *g;
    tow_program *p;
    tow_array *x[2], *y[3];
    OK(tow_trace_function(ctx, stack, (void *)(uintptr_t)s, 2, in, NULL, 3, &g));
    OK(tow_compile(ctx, g, NULL, &p));
    assert_int_equal(tow_program_get_bytes(p).arena, arena);
    for (int i = 0; i < 2; i++) OK(tow_array_create(ctx, in[i], &x[i]));
    for (int i = 0; i < 3; i++) OK(tow_array_create(ctx, out[i], &y[i]));
    for (int i = 0; i < 1024; i++) ((float *)tow_array_data(x[0]))[i] = (float)i;
    for (int i = 0; i < 6 * 1024; i++) ((float *)tow_array_data(x[1]))[i] = (float)(1 + i / 1024);
    for (int run = 0; run < 2; run++) {
        OK(tow_program_run(p, x, y));
        double sum = 0;
        for (int i = 0; i < 1024; i++) {
            float before = (float)i;
            for (int k = 0; k < 6; k++) {
                int row = s->reverse ? 5 - k : k;
                float after = before + (float)(row + 1);
                assert_true(((float *)tow_array_data(y[1]))[row * 1024 + i] == before - 2 * after);
                if (s->handed_out) assert_true(((float *)tow_array_data(y[2]))[row * 1024 + i] == after);
                sum += after;
                before = after;
            }
            assert_true(((float *)tow_array_data(y[0]))[i] == before);
        }
        if (!s->handed_out) assert_float_equal(((float *)tow_array_data(y[2]))[0], sum, 8);
    }
    for (int i = 0; i < 2; i++) tow_array_release(x[i]);
    for (int i = 0; i < 3; i++) tow_array_release(y[i]);
    tow_program_free(p);
    tow_graph_release(g);
}

static void test_joined_stacks(void **state)
{
    (void)state;
    for (int reverse = 0; reverse < 2; reverse++) {
        expect_stacks(&(stacks){reverse, false}, 7 * SIZE);
        expect_stacks(&(stacks){reverse, true}, 7 * SIZE); /* before and after joined; after, once more, a copy */
    }
}

/* c -> c w: after the last iteration, the product knows where the row after the last one would be. */
static void multiply_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_matmul(x[0], x[1]);
}

static void multiply(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    tow_scan_options options = TOW_SCAN_OPTIONS(.reverse = user != NULL);
    tow_scan_function(t, multiply_body, NULL, &options, 1, x, 1, x + 1, 0, y, NULL);
}

static void test_next_operands(void **state)
{
    (void)state;
    for (int reverse = 0; reverse < 2; reverse++) {
        tow_type in[] = {f32(2, 8, 8, 0), f32(3, 6, 8, 8)};
        tow_graph *g;
        tow_program *p;
        tow_array *x[2], *y[1];
        OK(tow_trace_function(ctx, multiply, reverse ? &in : NULL, 2, in, NULL, 1, &g));
        OK(tow_compile(ctx, g, NULL, &p));
        for (int i = 0; i < 2; i++) OK(tow_array_create(ctx, in[i], &x[i]));
        OK(tow_array_create(ctx, in[0], &y[0]));
        OK(tow_program_run(p, x, y));
        assert_int_equal(p->top->n_insts, 1);
        assert_non_null(p->top->insts[0].loop);
        const tow__code *body = &p->executable.code.calls[0].loop->codes[0];
        const float *weights = tow_array_data(x[1]);
        assert_int_equal(body->n, 1);
        assert_ptr_equal(body->calls[0].arguments.in[1].data, weights + (reverse ? 0 : 5 * 64));
        assert_ptr_equal(body->calls[0].arguments.next_operand,
                         (const char *)weights + (reverse ? -64 : 6 * 64) * (int)sizeof(float));
        for (int i = 0; i < 2; i++) tow_array_release(x[i]);
        tow_array_release(y[0]);
        tow_program_free(p);
        tow_graph_release(g);
    }
}

/* Values that are made of constants alone are computed once, with the modes of the program: there a subnormal number
 * may be 0. Large results are made in each run. */
static void test_constants_of_constants(void **state)
{
    (void)state;
    static const char text[] = "{ lambda ; x:f32[3]. let\n"
                               "    a:f32[] = const[value=f32[] (1e-30)]\n"
                               "    b:f32[] = const[value=f32[] (1e-10)]\n"
                               "    c:f32[] = mul a b\n"
                               "    d:f32[3] = broadcast_in_dim[shape=(3) axes=()] c\n"
                               "    e:f32[3] = neg d\n"
                               "    f:f32[3] = const[value=f32[3] (1, 2, 3)]\n"
                               "    g:f32[3] = div f d\n"
                               "    h:f32[3] = add x e\n"
                               "    i:f32[64,64] = broadcast_in_dim[shape=(64,64) axes=()] a\n"
                               "    j:f32[64,64] = exp i\n"
                               "  in (h, g, c, j) }";
    tow_graph *g;
    tow_array *x, *y[4];
    if (tow_graph_parse(ctx, text, &g) != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    OK(tow_array_create(ctx, tow_graph_input_type(g, 0), &x));
    for (int i = 0; i < 3; i++) ((float *)tow_array_data(x))[i] = 0;
    for (size_t i = 0; i < 4; i++) OK(tow_array_create(ctx, tow_graph_output_type(g, i), &y[i]));
    for (int flush = 0; flush < 2; flush++) {
        tow_program *p;
        OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.flush_subnormals = flush == 1), &p));
        assert_int_equal(tow_program_operation_count(p, "mul") + tow_program_operation_count(p, "neg") +
                             tow_program_operation_count(p, "div"),
                         0);
        assert_int_equal(tow_program_operation_count(p, "add"), 1);
        assert_int_equal(tow_program_operation_count(p, "exp"), 1);
        assert_int_equal(tow_program_get_bytes(p).constants, (2 + 3 + 1 + 3 + 3) * sizeof(float));
        OK(tow_program_run(p, &x, y));
        const float *h = tow_array_data(y[0]), *q = tow_array_data(y[1]);
        assert_true(flush ? h[2] == 0 : h[2] == -(1e-30f * 1e-10f));
        assert_true(flush ? q[2] == INFINITY : q[2] == 3 / (1e-30f * 1e-10f));
        assert_true(*(float *)tow_array_data(y[2]) == (flush ? 0 : 1e-30f * 1e-10f));
        tow_program_free(p);
    }
    for (size_t i = 0; i < 4; i++) tow_array_release(y[i]);
    tow_array_release(x);
    tow_graph_release(g);
}

/* Empty arrays everywhere: as carry, rows, results and operands of a reduction. */
static void empty_body(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_neg(x[0]);
    y[1] = tow_add(x[1], tow_reduce_sum(x[2], 0, NULL));
    y[2] = x[0];
    y[3] = tow_sin(x[2]);
}

static void empty(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_scan_function(t, empty_body, NULL, NULL, 2, x, 1, x + 2, 2, y, y + 2);
    y[4] = tow_transpose(tow_exp(x[2]), 0, NULL);
}

static void test_empty_arrays(void **state)
{
    (void)state;
    tow_type types[] = {f32(1, 0, 0, 0), f32(0, 0, 0, 0), f32(2, 3, 0, 0)};
    tow_graph *g;
    OK(tow_trace_function(ctx, empty, NULL, 3, types, NULL, 5, &g));
    tow_array *x[3], *y[5];
    for (int i = 0; i < 3; i++) OK(tow_array_create(ctx, types[i], &x[i]));
    *(float *)tow_array_data(x[1]) = 2.5f;
    OK(tow_evaluate(g, x, y));
    assert_true(*(float *)tow_array_data(y[1]) == 2.5f);
    for (int i = 0; i < 3; i++) tow_array_release(x[i]);
    for (int i = 0; i < 5; i++) tow_array_release(y[i]);
    tow_graph_release(g);
}

/* ---- forward and backward ---------------------------------------------------------------------------------------- */

static void three_sines(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_sin(tow_sin(tow_sin(x[0])));
}

static void sum_of_sines(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    tow_value sines;
    if (user)
        tow_remat_function(t, three_sines, NULL, user, 1, x, 1, &sines);
    else
        three_sines(t, x, &sines, NULL);
    y[0] = tow_reduce_sum(sines, 0, NULL);
}

static tow_program *gradient(tow_policy *policy, const tow_compile_options *options)
{
    tow_type vector = f32(1, 1024, 0, 0);
    tow_graph *g, *with_gradient;
    tow_program *p;
    OK(tow_trace_function(ctx, sum_of_sines, policy, 1, &vector, NULL, 1, &g));
    OK(tow_value_and_grad(g, 0, NULL, false, &with_gradient));
    OK(tow_compile(ctx, with_gradient, options, &p));
    OK(tow_program_check(p));
    tow_graph_release(g);
    tow_graph_release(with_gradient);
    return p;
}

/* The graph that transforms make of a gradient has a forward and a backward pass, too. */
static void test_residuals_of_transformed_gradients(void **state)
{
    (void)state;
    const tow_type vector = f32(1, 1024, 0, 0);
    tow_graph *g, *with_gradient, *rows, *jvp, *both;
    tow_program *p;
    OK(tow_trace_function(ctx, sum_of_sines, NULL, 1, &vector, NULL, 1, &g));
    OK(tow_value_and_grad(g, 0, NULL, false, &with_gradient));
    OK(tow_vmap(with_gradient, 4, NULL, NULL, &rows));
    OK(tow_jvp(with_gradient, 0, NULL, &jvp));
    OK(tow_vmap(jvp, 4, NULL, NULL, &both));
    OK(tow_compile(ctx, rows, &separate, &p)); /* the two cosines of test_recomputation_comes_late, of four rows */
    assert_int_equal(tow_program_get_bytes(p).residuals, 4 * 2 * SIZE);
    tow_program_free(p);
    OK(tow_compile(ctx, jvp, &separate, &p)); /* three cosines and their tangents, of which two may wait in outputs */
    const size_t residuals = tow_program_get_bytes(p).residuals;
    assert_in_range(residuals, 4 * SIZE, 6 * SIZE);
    tow_program_free(p);
    OK(tow_compile(ctx, both, &separate, &p));
    assert_int_equal(tow_program_get_bytes(p).residuals, 4 * residuals);
    tow_program_free(p);
    tow_graph_release(g);
    tow_graph_release(with_gradient);
    tow_graph_release(rows);
    tow_graph_release(jvp);
    tow_graph_release(both);
}

static void test_recomputation_comes_late(void **state)
{
    (void)state;
    tow_program *p = gradient(NULL, &separate);
    assert_int_equal(tow_program_get_bytes(p).residuals,
                     2 * SIZE); /* cos of x, of sin x; that of sin sin x waits in the output */
    assert_int_equal(tow_program_operation_count(p, "sin"), 3);
    tow_program_free(p);

    p = gradient(&tow_nothing_saveable(), &separate);
    assert_int_equal(tow_program_get_bytes(p).residuals, 0);
    assert_int_equal(tow_program_operation_count(p, "sin"), 5);
    for (uint32_t i = 0; i < p->top->n_insts; i++) /* each coefficient directly before the product that reads it */
        if (strcmp(p->top->insts[i].op->name, "cos") == 0) assert_string_equal(p->top->insts[i + 1].op->name, "mul");
    tow_program_free(p);
    p = gradient(&tow_nothing_saveable(), NULL);
    assert_int_equal(tow_program_get_bytes(p).residuals, 0);
    assert_int_equal(tow_program_operation_count(p, "sin"), 5);
    assert_int_equal(tow_program_operation_count(p, "cos"), 3);

    char text[4096], start[16];
    size_t length = tow_program_text(p, text, sizeof text);
    assert_true(length < sizeof text && strlen(text) == length);
    assert_int_equal(tow_program_text(p, start, sizeof start), length);
    assert_true(strlen(start) == sizeof start - 1 && strncmp(start, text, sizeof start - 1) == 0);
    assert_non_null(strstr(text, "= fused(sin, sin, sin, reduce_sum)(#0 f32[1024] input 0)"));
    tow_program_free(p);
}

/* ---- the checker sees damage ------------------------------------------------------------------------------------- */

static void test_checker(void **state)
{
    (void)state;
    tow_type vector = f32(1, 1024, 0, 0), rows[] = {vector, f32(2, 6, 1024, 0)};
    tow_program *p = compile(three_alive, 1, &vector, 1, &separate);
    uint32_t a = p->top->insts[0].out[0].storage, b = p->top->insts[1].out[0].storage;
    size_t offset = p->storages[a].offset;
    p->storages[a].offset = p->storages[b].offset; /* cos overwrites sin */
    assert_int_equal(tow_program_check(p), TOW_INTERNAL_ERROR);
    assert_non_null(strstr(tow_context_error(ctx), "overwritten"));
    p->storages[a].offset = offset;
    OK(tow_program_check(p));
    p->storages[a].offset = p->top->bytes - SIZE / 2;
    assert_int_equal(tow_program_check(p), TOW_INTERNAL_ERROR);
    p->storages[a].offset = offset;
    tow__instruction first = p->top->insts[0]; /* a step that comes too late */
    p->top->insts[0] = p->top->insts[3];
    p->top->insts[3] = first;
    assert_int_equal(tow_program_check(p), TOW_INTERNAL_ERROR);
    tow_program_free(p);

    p = compile(swap, 2, (tow_type[]){vector, vector}, 2, NULL);
    tow__loop *loop = p->top->insts[0].loop;
    assert_int_equal(loop->carry[0].storage, TOW__CARRY_ALTERNATES);
    loop->carry[0].storage = TOW__CARRY_IN_PLACE; /* the first copy destroys what the second one reads */
    assert_int_equal(tow_program_check(p), TOW_INTERNAL_ERROR);
    tow_program_free(p);

    p = compile(recur, 2, rows, 2, &separate);
    p->top->insts[0].loop->body->n_insts--; /* the row of ys is not written */
    assert_int_equal(tow_program_check(p), TOW_INTERNAL_ERROR);
    tow_program_free(p);
}

/* ---- bad arrays -------------------------------------------------------------------------------------------------- */

static void test_bad_arrays(void **state)
{
    (void)state;
    tow_type vector = f32(1, 4, 0, 0);
    tow_graph *g;
    tow_program *p;
    tow_array *x, *wrong, *y;
    const char *name = "image";
    OK(tow_trace_function(ctx, chain, NULL, 1, &vector, &name, 1, &g));
    OK(tow_compile(ctx, g, NULL, &p));
    OK(tow_array_create(ctx, vector, &x));
    OK(tow_array_create(ctx, vector, &y));
    OK(tow_array_create(ctx, f32(2, 4, 5, 0), &wrong));
    assert_int_equal(tow_program_run(p, &wrong, &y), TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "input 0 image: expected f32[4], found f32[4,5]"));
    assert_int_equal(tow_program_run(p, &x, &wrong), TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "output 0: expected f32[4], found f32[4,5]"));
    assert_int_equal(tow_program_run(p, &(tow_array *){NULL}, &y), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_program_run(p, NULL, &y), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_program_run(p, &x, NULL), TOW_INVALID_ARGUMENT);
    OK(tow_program_run(p, &x, &y));
    tow_array_release(x);
    tow_array_release(y);
    tow_array_release(wrong);
    tow_program_free(p);
    tow_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hand_worked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shared_init, setup, teardown),
        cmocka_unit_test_setup_teardown(test_joined_stacks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_next_operands, setup, teardown),
        cmocka_unit_test_setup_teardown(test_constants_of_constants, setup, teardown),
        cmocka_unit_test_setup_teardown(test_empty_arrays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recomputation_comes_late, setup, teardown),
        cmocka_unit_test_setup_teardown(test_residuals_of_transformed_gradients, setup, teardown),
        cmocka_unit_test_setup_teardown(test_checker, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_arrays, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
