/* Averages of parameters beside Optax (tests/oracle/training_golden.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/golden_parameters.h"

static const tow_scale_by_learning_rate rate = {
    .base = {&tow_scale_by_learning_rate_class, sizeof(tow_scale_by_learning_rate)},
    .schedule = {.kind = TOW_SCHEDULE_CONSTANT, .peak_value = 0.01}};
static const tow_trace_gradients momentum = {{&tow_trace_gradients_class, sizeof(tow_trace_gradients)}, 0.9, false};

static void compare_with_optax(const char *name, bool debias, tow_dtype dtype, double tolerance)
{
    static const tow_gradient_transform *const list[] = {&momentum.base, &rate.base};
    const tow_chain chain = {.base = {&tow_chain_class, sizeof(tow_chain)}, .transforms = list, .n = 2};
    golden_problem p = make_golden_problem(dtype);
    tow_optimizer_state *o;
    tow_average *average;
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&chain), p.params, NULL, &o));
    OK(tow_average_create(ctx, p.params, &TOW_AVERAGE_OPTIONS(.decay = 0.9, .debias = debias), &average));
    for (int call = 0; call < 20; call++) {
        fill_gradients(&p, call);
        OK(tow_optimizer_update(o, p.gradients));
        OK(tow_average_update(average));
    }
    tow_array *averages[PARAMETERS];
    for (size_t i = 0; i < PARAMETERS; i++) {
        assert_string_equal(tow_params_path(tow_average_params(average), i), paths[i]);
        averages[i] = tow_params_array(tow_average_params(average), i);
    }
    assert_int_equal(compare_lines("training.txt", name, tolerance, averages), PARAMETERS);
    tow_average_free(average);
    tow_optimizer_free(o);
    free_golden_problem(&p);
}

/* f32: Optax adds up first and divides at the end, in f32. */
static void averages_are_those_of_optax(void **state)
{
    (void)state;
    compare_with_optax("ema", true, TOW_F32, 3e-6);
    compare_with_optax("ema", true, TOW_F64, 1e-13);
    compare_with_optax("incremental", false, TOW_F32, 3e-6);
    compare_with_optax("incremental", false, TOW_F64, 1e-13);
}

/* A step of 1/1024 of the way is lost in bf16, where the next number after 1 is 1 + 1/128. */
static void halves_are_averaged_in_f32(void **state)
{
    (void)state;
    static const float one = 1, two = 2;
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){1});
    const char *const path = "x";
    tow_array *from, *x, *wide, *target;
    tow_params *params;
    tow_average *average;
    OK(tow_array_from_data(ctx, type, &one, &from));
    OK(tow_array_convert(from, TOW_BF16, &x));
    OK(tow_params_from_arrays(ctx, 1, &path, &x, &params));
    OK(tow_average_create(ctx, params, &TOW_AVERAGE_OPTIONS(.decay = 1 - 1.0 / 1024), &average));
    tow_array_release(from);
    OK(tow_array_from_data(ctx, type, &two, &from));
    OK(tow_array_convert(from, TOW_BF16, &target));
    memcpy(tow_array_data(x), tow_array_data(target), 2);
    for (int i = 0; i < 1024; i++) OK(tow_average_update(average));
    assert_int_equal(tow_array_type(tow_params_array(tow_average_params(average), 0)).dtype, TOW_BF16);
    OK(tow_array_convert(tow_params_array(tow_average_params(average), 0), TOW_F32, &wide));
    assert_true(fabsf(*(const float *)tow_array_data(wide) - (2 - expf(-1))) < 1.0f / 128); /* (1 - 1/n)^n */
    tow_array_release(wide);
    tow_array_release(target);
    tow_array_release(from);
    tow_average_free(average);
    tow_params_free(params);
    tow_array_release(x);
}

static void refused(void **state)
{
    (void)state;
    golden_problem p = make_golden_problem(TOW_F32);
    tow_average *average;
    const double bad[] = {-0.5, 0, 1, 1.5, NAN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_error(tow_average_create(ctx, p.params, &TOW_AVERAGE_OPTIONS(.decay = bad[i]), &average),
                     TOW_INVALID_ARGUMENT, "expected .decay between 0 and 1");
        assert_null(average);
    }
    assert_int_equal(tow_average_update(NULL), TOW_INVALID_ARGUMENT);
    tow_average_free(NULL);
    free_golden_problem(&p);
    const char *const path = "n";
    tow_array *n;
    tow_params *params;
    OK(tow_array_create(ctx, tow_make_type(TOW_I32, 0, NULL), &n));
    OK(tow_params_from_arrays(ctx, 1, &path, &n, &params));
    expect_error(tow_average_create(ctx, params, &TOW_AVERAGE_OPTIONS(.decay = 0.5), &average), TOW_TYPE_MISMATCH,
                 "params/n: expected a float type");
    tow_params_free(params);
    tow_array_release(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(averages_are_those_of_optax, setup, teardown),
        cmocka_unit_test_setup_teardown(halves_are_averaged_in_f32, setup, teardown),
        cmocka_unit_test_setup_teardown(refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
