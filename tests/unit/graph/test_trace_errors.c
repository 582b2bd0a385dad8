/* Errors while tracing: values of other traces and bodies, traces that have ended, unbalanced bodies. The first error
 * stays, with its source line and scope.
 * Tests builder.c, function.c, trace.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "src/graph/builder.h"
#include "tests/unit/support/tracing.h"
#include "tow/autodiff.h"
#include "tow/numpy.h"
#include "tow/ops.h"

static tow_value escaped, foreign;

static void leak_value(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    (void)user;
    escaped = tow_sin(in[0]);
    out[0] = in[0];
}

static void use_escaped(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_call_function(t, leak_value, NULL, "f", 1, in, 1, out);
    out[0] = tow_add(out[0], escaped);
}

static void never_written(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    (void)user;
    out[0] = in[0];
}

static void from_another_trace(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    (void)user;
    out[0] = tow_add(in[0], foreign);
}

static void output_of_another_trace(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    (void)in;
    (void)user;
    out[0] = foreign;
}

/* A value that was kept from one call to the next: the new trace often has the address of the old one. */
static void from_an_earlier_trace(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    (void)user;
    tow_value kept = in[0];
    kept.serial--;
    out[0] = tow_add(in[0], kept);
}

static void wrong_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_trace_push_scope(t, "mlp");
    const int64_t shape[1] = {4};
    out[0] = tow_sin(tow_reshape(in[0], 1, shape));
    tow_trace_fail(t, TOW_NOT_FOUND, "a later error");
    tow_trace_pop_scope(t);
}

static void wrong_operation(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_trace_push_scope(t, "block");
    tow_call_function(t, wrong_body, NULL, "f", 1, in, 1, out);
    tow_trace_pop_scope(t);
    out[0] = tow_exp(out[0]);
}

static void fails_itself(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    out[0] = in[0];
    tow_trace_push_scope(t, "layer");
    tow_trace_fail(t, TOW_UNSUPPORTED, "width %d", 7);
    tow_trace_fail(t, TOW_NOT_FOUND, "ignored");
}

static void too_many_pops(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    out[0] = in[0];
    tow_trace_pop_scope(t);
}

/* The things that a caller kept of a trace that has ended: a value, a value of a closed body, the trace itself. */
static struct memory {
    tow_value value, inner;
    tow_trace *trace;
} old;

static void negate(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    old.inner = out[0] = tow_neg(in[0]);
}

static void remember(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    old.trace = t;
    tow_call_function(t, negate, NULL, "f", 1, in, 1, out);
    old.value = out[0] = tow_exp(out[0]);
}

/* Inside another trace: the next one takes the place of that, not of the one that is remembered. */
static void remember_inside(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = in[0];
    tow_graph_release(trace(remember, 1, 1));
}

typedef struct reuse {
    tow_value (*record)(tow_trace *t, tow_value x);
    bool of_trace; /* uses the trace, not a value of it */
    bool alone;    /* fails without a trace around it, too */
} reuse;

#define REUSE(name, ...)                                                                                               \
    static tow_value name(tow_trace *t, tow_value x)                                                                   \
    {                                                                                                                  \
        tow_value y = {0};                                                                                             \
        (void)t, (void)x;                                                                                              \
        __VA_ARGS__;                                                                                                   \
        return y;                                                                                                      \
    }
REUSE(old_output, y = old.value)
REUSE(old_sin, y = tow_sin(old.value))
REUSE(old_second, y = tow_add(x, old.value))
REUSE(old_first, y = tow_add(old.value, x))
REUSE(old_product, y = tow_matmul(old.value, x))
REUSE(old_shape, y = tow_reshape(old.value, 1, ((int64_t[]){3})))
REUSE(old_axis, y = tow_reduce_sum(old.value, 1, ((int[]){0})))
REUSE(old_like, y = tow_zeros_like(old.value))
REUSE(old_iota, y = tow_iota_like(old.value, 0))
REUSE(old_inner, y = tow_checkpoint_name(old.inner, "name"))
REUSE(inner_like, y = tow_full_like(old.inner, 2))
REUSE(old_remat, tow_remat_function(t, negate, NULL, NULL, 1, &old.value, 1, &y))
REUSE(old_carry,
      tow_scan_function(t, negate, NULL, &TOW_SCAN_OPTIONS(.length = 2), 1, &old.value, 0, NULL, 0, &y, NULL))
REUSE(old_scalar, y = tow_scalar(old.trace, TOW_F32, 1))
REUSE(old_constant, y = tow_iota(old.trace, vector(3), 0))
REUSE(old_scope, tow_trace_push_scope(old.trace, "scope"); tow_trace_pop_scope(old.trace))
REUSE(old_failure, tow_trace_fail(old.trace, TOW_NOT_FOUND, "a message for nobody"))
REUSE(old_call, tow_call_function(old.trace, negate, NULL, "f", 1, &x, 1, &y))

static void use_again(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    assert_int_equal(tow_value_type(old.value).rank, 0);
    out[0] = ((const reuse *)user)->record(t, in[0]);
}

/* A trace that has ended is told apart without a look at memory that is gone, also where another one has its place. */
static void test_ended_traces(void **state)
{
    (void)state;
    static const reuse all[] = {
        {old_output, .alone = false},
        {old_sin, .alone = true},
        {old_second, .alone = false},
        {old_first, .alone = false},
        {old_product, .alone = false},
        {old_shape, .alone = true},
        {old_axis, .alone = true},
        {old_like, .alone = true},
        {old_iota, .alone = true},
        {old_inner, .alone = true},
        {inner_like, .alone = true},
        {old_remat, .alone = false},
        {old_carry, .alone = false},
        {old_scalar, .alone = true, .of_trace = true},
        {old_constant, .alone = true, .of_trace = true},
        {old_scope, .alone = true, .of_trace = true},
        {old_failure, .alone = true, .of_trace = true},
        {old_call, .alone = true, .of_trace = true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        reuse one = all[i];
        for (int same_place = 0; same_place < 2; same_place++) {
            const tow_type type = vector(3);
            tow_graph *g = NULL;
            tow_graph_release(trace(same_place ? remember : remember_inside, 1, 1));
            tow_context_clear_error(ctx);
            assert_true(tow_is_null(one.record(NULL, (tow_value){0})) || i == 0);
            if (one.alone && !strstr(tow_context_error(ctx), "has ended")) fail_msg("%zu alone", i);
            if (same_place && one.of_trace) continue; /* then the address is that of a trace that lives */
            assert_int_equal(tow_trace_function(ctx, use_again, &one, 1, &type, NULL, 1, &g), TOW_INVALID_ARGUMENT);
            assert_null(g);
            if (!strstr(tow_context_error(ctx), "has ended")) fail_msg("%zu: %s", i, tow_context_error(ctx));
        }
    }
}

static void fails_without_error(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    out[0] = in[0];
    tow_trace_push_scope(t, "layer");
    tow_trace_fail(t, TOW_OK, "width %d", 7);
    tow_trace_pop_scope(t);
}
static void fails_with_no_status(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    out[0] = in[0];
    tow_trace_fail(t, (tow_status)99, "width 7");
}
static void fails_without_text(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    out[0] = in[0];
    tow_trace_fail(t, TOW_NOT_FOUND, "%s", "");
}
/* The result of operations on no values reaches an output, another operation, or an operation with a value. */
#define OF_NONE(name, expression)                                                                                      \
    static void name(tow_trace *t, const tow_value *in, tow_value *out, void *user)                                    \
    {                                                                                                                  \
        (void)t, (void)in, (void)user;                                                                                 \
        out[0] = (expression);                                                                                         \
    }
OF_NONE(concatenates_none, tow_concatenate(0, NULL, 0))
OF_NONE(sine_of_none, tow_sin(tow_reshape(tow_expand_dims(tow_stack(0, NULL, 0), 0), 1, ((int64_t[]){1}))))
OF_NONE(adds_none, tow_add(in[0], tow_einsum("i->i", 0, NULL)))
OF_NONE(sums_none, tow_reduce_sum(tow_concatenate(0, in, 0), 1, ((int[]){0})))
OF_NONE(joins_none, tow_concatenate(2, ((tow_value[]){in[0], tow_stack(0, in, 0)}), 0))
static void remat_of_none(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(t, concatenates_none, user, NULL, 1, in, 1, out);
}

static void test_trace_errors(void **state)
{
    (void)state;
    static const struct {
        tow_function function;
        size_t n_outputs;
        tow_status status;
        const char *parts[5];
    } cases[] = {
        {use_escaped, 1, TOW_INVALID_ARGUMENT, {"a value escaped from the body it was traced in", "make it an output"}},
        {never_written, 2, TOW_INVALID_ARGUMENT, {"output 1 was never written"}},
        {from_another_trace, 1, TOW_INVALID_ARGUMENT, {"another trace"}},
        {output_of_another_trace, 1, TOW_INVALID_ARGUMENT, {"another trace"}},
        {from_an_earlier_trace, 1, TOW_INVALID_ARGUMENT, {"test_trace_errors.c:", "an earlier trace"}},
        {wrong_operation, 1, TOW_SHAPE_MISMATCH, {"test_trace_errors.c:", "block/mlp", "reshape", "f32[3]", "4"}},
        {fails_itself, 1, TOW_UNSUPPORTED, {"layer: width 7"}},
        {too_many_pops, 1, TOW_INVALID_ARGUMENT, {"never pushed"}},
        {fails_without_error, 1, TOW_INVALID_ARGUMENT, {"layer: width 7"}},
        {fails_with_no_status, 1, TOW_INVALID_ARGUMENT, {"width 7"}},
        {fails_without_text, 1, TOW_NOT_FOUND, {"not found"}},
        {concatenates_none, 1, TOW_INVALID_ARGUMENT, {"output 0 is what tow_concatenate makes of no values"}},
        {sine_of_none, 1, TOW_INVALID_ARGUMENT, {"output 0 is what tow_stack makes of no values"}},
        {sums_none, 1, TOW_INVALID_ARGUMENT, {"output 0 is what tow_concatenate makes of no values"}},
        {adds_none,
         1,
         TOW_INVALID_ARGUMENT,
         {"test_trace_errors.c:", "add: operand 1 is what tow_einsum makes of no values"}},
        {joins_none, 1, TOW_INVALID_ARGUMENT, {"concatenate: operand 1 is what tow_stack makes of no values"}},
        {remat_of_none, 1, TOW_INVALID_ARGUMENT, {"output 0 of 1 is what tow_concatenate makes of no values"}},
    };
    tow_trace *other = tow__trace_begin(ctx);
    foreign = tow__input(other, vector(3), NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_graph *g = NULL;
        const tow_type type = vector(3);
        tow_status status = tow_trace_function(ctx, cases[i].function, NULL, 1, &type, NULL, cases[i].n_outputs, &g);
        assert_null(g);
        assert_int_equal(status, cases[i].status);
        assert_int_equal(tow_context_status(ctx), status);
        for (size_t j = 0; j < 5 && cases[i].parts[j]; j++)
            if (!strstr(tow_context_error(ctx), cases[i].parts[j]))
                fail_msg("case %zu: '%s' is not in: %s", i, cases[i].parts[j], tow_context_error(ctx));
    }
    tow__trace_abandon(other);
}

static void never_wrong(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_sin(in[0]);
}

static void test_error_survives_other_calls(void **state)
{
    (void)state;
    tow_trace *t = tow__trace_begin(ctx);
    tow_value x = tow__input(t, vector(3), NULL), y;
    tow_trace_fail(t, TOW_NOT_FOUND, "the first");
    tow_graph *g = trace(never_wrong, 1, 1); /* clears the context's error */
    tow_graph_release(g);
    y = tow_sin(x);
    assert_true(tow_is_null(y));
    assert_true(tow_is_null(tow_sin(y)));
    assert_int_equal(tow__trace_end(t, 1, &y, true, &g), TOW_NOT_FOUND);
    assert_string_equal(tow_context_error(ctx), "the first");
}

static void test_malformed_input_type(void **state)
{
    (void)state;
    tow_graph *g;
    tow_type type = vector(-3);
    assert_int_equal(tow_trace_function(ctx, never_written, NULL, 1, &type, NULL, 1, &g), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "f32[-3]"));
    type = (tow_type){.dtype = TOW_F32, .rank = 100};
    assert_int_equal(tow_trace_function(ctx, never_written, NULL, 1, &type, NULL, 1, &g), TOW_INVALID_ARGUMENT);
}

/* Bodies pushed after an error are popped without harm; bodies left open are an error. */
static void test_unbalanced_bodies(void **state)
{
    (void)state;
    size_t n;
    tow_value *captures;
    tow_graph *g;
    tow_trace *t = tow__trace_begin(ctx);
    tow__push(t);
    tow_trace_fail(t, TOW_NOT_FOUND, "stop");
    tow__push(t);
    assert_null(tow__pop(t, 0, NULL, &n, &captures));
    assert_null(tow__pop(t, 0, NULL, &n, &captures));
    assert_int_equal(tow__trace_end(t, 0, NULL, false, &g), TOW_NOT_FOUND);
    t = tow__trace_begin(ctx);
    tow__push(t);
    assert_int_equal(tow__trace_end(t, 0, NULL, false, &g), TOW_INTERNAL_ERROR);
    t = tow__trace_begin(ctx);
    assert_null(tow__pop(t, 0, NULL, &n, &captures));
    assert_int_equal(tow__trace_end(t, 0, NULL, false, &g), TOW_INTERNAL_ERROR);
}

int main(void)
{
    setenv("TOW_CHECK", "1", 1); /* what passes make is checked, also where nobody else sets it */
    const struct CMUnitTest tests[] = {
        TEST(test_trace_errors),         TEST(test_ended_traces),      TEST(test_error_survives_other_calls),
        TEST(test_malformed_input_type), TEST(test_unbalanced_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
