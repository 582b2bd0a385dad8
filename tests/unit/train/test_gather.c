/* Accumulation of gradients and updates that are left out, beside Optax (tests/oracle/training_golden.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "src/train/gather.h"
#include "tests/unit/support/golden_parameters.h"

enum {
    CALLS = 20
};

static const tow_scale_by_learning_rate rate = {
    .base = {&tow_scale_by_learning_rate_class, sizeof(tow_scale_by_learning_rate)},
    .schedule = {.kind = TOW_SCHEDULE_CONSTANT, .peak_value = 0.01}};
static const tow_scale_by_adam adam = {.base = {&tow_scale_by_adam_class, sizeof(tow_scale_by_adam)}};
static const tow_add_decayed_weights decay = {
    {&tow_add_decayed_weights_class, sizeof(tow_add_decayed_weights)}, 0.1, true};
static const tow_trace_gradients momentum = {{&tow_trace_gradients_class, sizeof(tow_trace_gradients)}, 0.9, false};

typedef struct wrapped {
    const char *name;
    const tow_gradient_transform *transforms[3];
    tow_optimizer_options options;
    int64_t updates, skipped;
} wrapped;

static const wrapped cases[] = {
    {"multi_steps", {&adam.base, &decay.base, &rate.base}, {.every = 4}, 5, 0},
    {"multi_steps_odd", {&adam.base, &decay.base, &rate.base}, {.every = 3}, 6, 0},
    {"multi_steps_sum", {&momentum.base, &rate.base}, {.every = 3, .sum = true}, 6, 0},
    {"if_finite", {&adam.base, &decay.base, &rate.base}, {.skip_not_finite = 3}, 16, 4},
    {"if_finite_applied", {&rate.base}, {.skip_not_finite = 2}, 17, 3},
};

static void run_case(const wrapped *c, tow_dtype dtype, double tolerance)
{
    size_t n = 0;
    while (n < 3 && c->transforms[n]) n++;
    const tow_chain chain = {.base = {&tow_chain_class, sizeof(tow_chain)}, .transforms = c->transforms, .n = n};
    golden_problem p = make_golden_problem(dtype);
    tow_optimizer_state *o;
    tow_optimizer_options options = c->options;
    options.size = sizeof options;
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&chain), p.params, &options, &o));
    for (int call = 0; call < CALLS; call++) {
        fill_gradients(&p, call);
        const bool bad = strncmp(c->name, "if_finite", 9) == 0 && (call == 9 || (call >= 3 && call <= 5));
        if (bad && dtype == TOW_F64) *(double *)tow_array_data(p.gradients[2]) = NAN;
        if (bad && dtype == TOW_F32) *(float *)tow_array_data(p.gradients[2]) = NAN;
        OK(tow_optimizer_update(o, p.gradients));
        if (c->options.every) assert_int_equal(tow_optimizer_gathered_count(o), (size_t)(call + 1) % c->options.every);
    }
    assert_int_equal(compare_lines("training.txt", c->name, tolerance, p.parameters), PARAMETERS);
    assert_int_equal(tow_optimizer_step_count(o), c->updates);
    assert_int_equal(tow_optimizer_skipped_count(o, NULL), c->skipped);
    tow_optimizer_free(o);
    free_golden_problem(&p);
}

/* Optax's mean is a running one, acc + (g - acc)/k. If gradients cancel to 0 exactly, as they do here, some 1e-17
 * are left of that, of which Adam makes 1e-9 times the rate. In f32 bias corrections are rounded besides. */
static void wrappers_are_those_of_optax(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_case(&cases[i], TOW_F32, 3e-6);
        run_case(&cases[i], TOW_F64, cases[i].options.every ? 1e-9 : 1e-13);
    }
}

static void forgotten_gradients_leave_nothing(void **state)
{
    (void)state;
    golden_problem a = make_golden_problem(TOW_F32), b = make_golden_problem(TOW_F32);
    const tow_optimizer_options options = TOW_OPTIMIZER_OPTIONS(.every = 2);
    tow_optimizer_state *of_a, *of_b;
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&rate), a.params, &options, &of_a));
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&rate), b.params, &options, &of_b));
    fill_gradients(&a, 9);
    OK(tow_optimizer_update(of_a, a.gradients));
    assert_int_equal(tow_optimizer_gathered_count(of_a), 1);
    tow_optimizer_forget_gradients(of_a);
    assert_int_equal(tow_optimizer_gathered_count(of_a), 0);
    for (int call = 0; call < 2; call++) {
        fill_gradients(&a, call);
        fill_gradients(&b, call);
        OK(tow_optimizer_update(of_a, a.gradients));
        OK(tow_optimizer_update(of_b, b.gradients));
    }
    for (size_t i = 0; i < PARAMETERS; i++)
        assert_memory_equal(tow_array_data(a.parameters[i]), tow_array_data(b.parameters[i]),
                            tow_type_bytes(type_of(i, TOW_F32)));
    tow_optimizer_free(of_a);
    tow_optimizer_free(of_b);
    free_golden_problem(&a);
    free_golden_problem(&b);
}

/* bf16 gradients of 1 and of 1/256: their sum in bf16 would stay 1, in f32 the mean of four of them is exact. */
static void halves_are_added_in_f32(void **state)
{
    (void)state;
    const tow_type type = tow_make_type(TOW_BF16, 1, (int64_t[]){1});
    const float numbers[] = {1, 0.00390625f, 0.00390625f, 0.9921875f};
    const char *const path = "x";
    tow_array *x, *gradient, *wide;
    tow_params *params;
    tow_optimizer_state *o;
    static const tow_scale minus = {{&tow_scale_class, sizeof(tow_scale)}, -1};
    OK(tow_array_create(ctx, type, &x));
    OK(tow_params_from_arrays(ctx, 1, &path, &x, &params));
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&minus), params, &TOW_OPTIMIZER_OPTIONS(.every = 4), &o));
    for (int i = 0; i < 4; i++) {
        OK(tow_array_from_data(ctx, tow_make_type(TOW_F32, 1, (int64_t[]){1}), &numbers[i], &wide));
        OK(tow_array_convert(wide, TOW_BF16, &gradient));
        OK(tow_optimizer_update(o, &gradient));
        tow_array_release(wide);
        tow_array_release(gradient);
    }
    OK(tow_array_convert(x, TOW_F32, &wide));
    assert_true(*(const float *)tow_array_data(wide) == -0.5f);
    tow_array_release(wide);
    tow_optimizer_free(o);
    tow_params_free(params);
    tow_array_release(x);
}

/* The square of the largest f32 is finite in f64; that of a large f64 is not, but the gradient is. */
static void large_is_not_infinite(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        golden_problem p = make_golden_problem(wide ? TOW_F64 : TOW_F32);
        tow__norm *norm;
        double value;
        bool finite;
        OK(tow__norm_create(ctx, p.params, &norm));
        for (size_t i = 0; i < PARAMETERS; i++)
            memset(tow_array_data(p.gradients[i]), 0, tow_type_bytes(tow_array_type(p.gradients[i])));
        float *narrow_element = tow_array_data(p.gradients[1]);
        double *wide_element = tow_array_data(p.gradients[1]);
        if (wide)
            wide_element[23] = 1e300;
        else
            narrow_element[23] = 3e38f;
        OK(tow__norm_run(norm, p.gradients, &value, &finite));
        assert_true(finite);
        assert_true(wide ? fabs(value / 1e300 - 1) < 1e-15 : value == (double)3e38f);
        if (wide)
            wide_element[22] = -INFINITY;
        else
            narrow_element[22] = -INFINITY;
        OK(tow__norm_run(norm, p.gradients, &value, &finite));
        assert_false(finite);
        tow__norm_free(norm);
        free_golden_problem(&p);
    }
}

static void refused(void **state)
{
    (void)state;
    golden_problem p = make_golden_problem(TOW_F32);
    tow_optimizer_state *o;
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&rate), p.params, &TOW_OPTIMIZER_OPTIONS(.every = 2), &o));
    tow_array *none[PARAMETERS] = {0};
    expect_error(tow_optimizer_update(o, none), TOW_INVALID_ARGUMENT, "the gradient of params/b: expected f32[7]");
    assert_int_equal(tow_optimizer_gathered_count(o), 0);
    tow_optimizer_free(o);
    free_golden_problem(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(wrappers_are_those_of_optax, setup, teardown),
        cmocka_unit_test_setup_teardown(forgotten_gradients_leave_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(halves_are_added_in_f32, setup, teardown),
        cmocka_unit_test_setup_teardown(large_is_not_infinite, setup, teardown),
        cmocka_unit_test_setup_teardown(refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
