/* Tests what choices and loops promise: memory of the largest branch, no allocation in a run, nothing run that is not
 * chosen, second derivatives, a place in a training step, and clear errors.
 * Tests regions/cond_partial.c, regions/cond_slots.c, reach.c. */
#include "tests/unit/support/training.h"

#include "tests/unit/support/graph_runs.h"

#define F(name) static void name(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
#define UNUSED  (void)trace, (void)in, (void)user /* as not all functions need all */

enum {
    WIDE = 64
};

static tow_graph *traced(problem *p, tow_function function, size_t n_in, const tow_type *types)
{
    tow_graph *graph = NULL;
    OK(p, tow_trace_function(p->ctx, function, NULL, n_in, types, NULL, 1, &graph));
    return graph;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Residuals of [WIDE, WIDE], of two half rows of it, and of nothing. */
F(one_large) { UNUSED, out[0] = tow_reduce_sum(tow_sin(in[0]), 0, NULL); }
F(two_small)
{
    tow_value half = tow_slice_axis(in[0], 0, 0, WIDE / 2), other = tow_slice_axis(in[0], 0, WIDE / 2, WIDE);
    (void)trace, (void)user;
    other = tow_reshape(other, 1, (int64_t[]){-1});
    out[0] = tow_add(tow_reduce_sum(tow_cos(half), 0, NULL), tow_reduce_sum(tow_cos(other), 0, NULL));
}
F(nothing) { UNUSED, out[0] = tow_reduce_sum(in[0], 0, NULL); }
F(choose)
{
    const tow_branch branches[] = {{one_large, NULL}, {two_small, NULL}, {nothing, NULL}};
    (void)user;
    tow_switch_function(trace, in[0], 3, branches, 1, &in[1], 1, out);
}

static void branches_share_memory(void **state)
{
    problem p;
    tow_residuals residuals;
    const size_t wrt = 1;
    const tow_type types[] = {tow_make_type(TOW_I32, 0, NULL), tow_make_type(TOW_F32, 2, (int64_t[]){WIDE, WIDE})};
    (void)state;
    start_context(&p);
    tow_graph *graph = traced(&p, choose, 2, types), *gradient = NULL;
    OK(&p, tow_saved_residuals(graph, 1, &wrt, &residuals));
    assert_int_equal(residuals.bytes - residuals.argument_bytes, WIDE * WIDE * sizeof(float));
    tow_residuals_free(&residuals);
    OK(&p, tow_grad(graph, 1, &wrt, false, &gradient));
    tow_graph_release(graph);
    set_graph(&p, gradient, 1);
    for (int k = 0; k < 3; k++) {
        tow_program *program = NULL;
        OK(&p, tow_compile(p.ctx, p.graph, NULL, &program));
        OK(&p, tow_program_check(program));
        assert_in_range(tow_program_get_bytes(program).residuals, 0, WIDE * WIDE * sizeof(float) + 64);
        *(int32_t *)tow_array_data(p.inputs[0]) = k;
        const long calls = p.count.calls;
        OK(&p, tow_program_run(program, p.inputs, p.outputs));
        assert_int_equal(p.count.calls, calls); /* nothing is allocated */
        const float *x = tow_array_data(p.inputs[1]), *dx = tow_array_data(p.outputs[0]);
        for (int i = 0; i < WIDE * WIDE; i++) {
            const double expected = k == 0 ? cos((double)x[i]) : k == 1 ? -sin((double)x[i]) : 1;
            assert_true(fabs((double)dx[i] - expected) < 1e-6);
        }
        tow_program_free(program);
    }
    end(&p);
}

/* ---- second derivatives ------------------------------------------------------------------------------------------ */

F(cube) { UNUSED, out[0] = tow_mul(tow_mul(in[0], in[0]), in[0]); }
F(wave) { UNUSED, out[0] = tow_sin(in[0]); }
F(is_below_ten) { UNUSED, out[0] = tow_lt(in[0], tow_full_like(in[0], 10)); }
F(square_it) { UNUSED, out[0] = tow_mul(in[0], in[0]); }
F(cube_or_wave)
{
    tow_value positive = tow_gt(in[0], tow_full_like(in[0], 0)), y[1];
    (void)user;
    tow_cond_function(trace, positive, cube, wave, NULL, 1, in, 1, y);
    out[0] = y[0];
}
F(square_until_ten)
{
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = 6);
    (void)user;
    tow_while_function(trace, is_below_ten, square_it, NULL, &options, 1, in, out);
}

static double second_derivative(tow_function function, double x, const tow_policy *policy)
{
    problem p;
    const tow_type type = tow_make_type(TOW_F64, 0, NULL);
    tow_graph *once = NULL, *twice = NULL, *around = NULL;
    tow_array *in = NULL, *out = NULL;
    start_context(&p);
    tow_graph *graph = traced(&p, function, 1, &type);
    OK(&p, tow_remat_whole(graph, policy, &around));
    OK(&p, tow_grad(around, 0, NULL, false, &once));
    OK(&p, tow_grad(once, 0, NULL, false, &twice));
    OK(&p, tow_array_from_data(p.ctx, type, &x, &in));
    OK(&p, tow_evaluate(twice, &in, &out));
    const double result = *(double *)tow_array_data(out);
    tow_array_release(in);
    tow_array_release(out);
    tow_graph_release(graph);
    tow_graph_release(around);
    tow_graph_release(once);
    tow_graph_release(twice);
    tow_context_free(p.ctx);
    assert_int_equal(p.count.blocks, 0);
    return result;
}

static void gradients_of_gradients(void **state)
{
    const tow_policy policies[] = {{.kind = TOW_POLICY_NOTHING}, {.kind = TOW_POLICY_EVERYTHING}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_true(fabs(second_derivative(cube_or_wave, 2, &policies[i]) - 12) < 1e-12);
        assert_true(fabs(second_derivative(cube_or_wave, -2, &policies[i]) + sin(-2)) < 1e-12);
        /* 2 -> 4 -> 16: x^4 */
        assert_true(fabs(second_derivative(square_until_ten, 2, &policies[i]) - 48) < 1e-12);
        assert_true(fabs(second_derivative(square_until_ten, 11, &policies[i])) < 1e-12); /* no iteration */
    }
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

F(row) { UNUSED, out[0] = tow_reduce_sum(in[0], 1, (int[]){0}); }
F(same) { UNUSED, out[0] = in[0]; }
F(other_types) { (void)user, tow_cond_function(trace, tow_scalar(trace, TOW_BOOL, 1), row, same, NULL, 1, in, 1, out); }
F(no_scalar) { (void)user, tow_cond_function(trace, in[0], same, same, NULL, 1, in, 1, out); }
F(float_index)
{
    const tow_branch branches[] = {{same, NULL}, {same, NULL}};
    (void)user;
    tow_switch_function(trace, tow_scalar(trace, TOW_F32, 1), 2, branches, 1, in, 1, out);
}
F(no_branch) { (void)user, tow_switch_function(trace, tow_scalar(trace, TOW_I32, 1), 0, NULL, 1, in, 1, out); }
F(no_condition) { (void)user, tow_while_function(trace, same, same, NULL, NULL, 1, in, out); }
F(all_true) { UNUSED, out[0] = tow_scalar(trace, TOW_BOOL, 1); }
F(other_carry) { (void)user, tow_while_function(trace, all_true, row, NULL, NULL, 1, in, out); }
F(negative_bound)
{
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = -1);
    (void)user;
    tow_while_function(trace, all_true, same, NULL, &options, 1, in, out);
}
F(missing_function)
{
    (void)user, tow_cond_function(trace, tow_scalar(trace, TOW_BOOL, 1), same, NULL, NULL, 1, in, 1, out);
}
F(wide_bounds) { (void)user, tow_fori_function(trace, 0, INT64_MAX, same, NULL, NULL, 1, in, out); }

static void refusals(void **state)
{
    static const struct {
        tow_function record;
        const char *says;
    } cases[] = {
        {other_types, "output 0 is f32[2,3] in if_false and f32[3] in if_true"},
        {no_scalar, "the predicate must be a scalar, found f32[2,3]"},
        {float_index, "the index must be an integer scalar (i32[], say), found f32[]"},
        {no_branch, "expected one branch or more, found 0"},
        {no_condition, "the condition must write one value of type bool[], found f32[2,3]"},
        {other_carry, "carry 0 enters the body as f32[2,3] and leaves it as f32[3]"},
        {negative_bound, "max_iterations is -1"},
        {missing_function, "expected a function"},
        {wide_bounds, "expected numbers that i32 holds"},
    };
    const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){2, 3});
    problem p;
    (void)state;
    start_context(&p);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_graph *graph = NULL;
        tow_context_clear_error(p.ctx);
        assert_int_not_equal(tow_trace_function(p.ctx, cases[i].record, NULL, 1, &type, NULL, 1, &graph), TOW_OK);
        if (!strstr(tow_context_error(p.ctx), cases[i].says))
            fail_msg("expected '%s', found '%s'", cases[i].says, tow_context_error(p.ctx));
    }
    tow_context_free(p.ctx);
    assert_int_equal(p.count.blocks, 0);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

typedef struct choosing_model {
    tow_module module;
    tow_dense first, second;
} choosing_model;

F(tanh_of) { UNUSED, out[0] = tow_tanh(in[0]); }
F(halve) { UNUSED, out[0] = tow_mul_scalar(in[0], 0.5); }
F(is_long)
{
    UNUSED;
    tow_value norm = tow_reduce_sum(tow_square(in[0]), 0, NULL);
    out[0] = tow_gt(norm, tow_full_like(norm, 4));
}

/* Rows that are too long are halved until they are not; then one of two activations. */
static void choosing_call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    const choosing_model *m = (const choosing_model *)module;
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = 8);
    tow_trace *trace = tow_value_trace(in[0]);
    (void)n_in, (void)n_out;
    tow_value h = tow_apply(scope, "first", &m->first, in[0]), y[1] = {{0}}, mean;
    tow_while_function(trace, is_long, halve, NULL, &options, 1, &h, y);
    mean = tow_mean(y[0], 0, NULL);
    tow_cond_function(trace, tow_gt(mean, tow_full_like(mean, 0)), tanh_of, wave, NULL, 1, y, 1, &h);
    out[0] = tow_apply(scope, "second", &m->second, h);
}

static void a_training_step(void **state)
{
    static const tow_module_class choosing = {.name = "Choosing", .call = choosing_call};
    const choosing_model model = {{&choosing}, TOW_DENSE(.features = 8), TOW_DENSE(.features = 2)};
    const tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.05)});
    const fixture *f = *state;
    double first, last;
    training t = start(f->ctx, &model.module, 3, 2, options);
    assert_int_equal(tow_train_step(t.state, t.batch, &first), TOW_OK);
    step(&t, 40);
    assert_int_equal(tow_train_step(t.state, t.batch, &last), TOW_OK);
    assert_true(last < 0.7 * first);
    stop(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches_share_memory),
        cmocka_unit_test(gradients_of_gradients),
        cmocka_unit_test(refusals),
        cmocka_unit_test_setup_teardown(a_training_step, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
