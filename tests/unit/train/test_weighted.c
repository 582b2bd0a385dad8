/* Micro-batches of unequal weights: a step is that of the mean over all tokens, by arithmetic. Tests gather.c,
 * step.c. */
#include "tests/unit/support/training.h"

enum {
    TOKENS = 3
};

/* Token j of row i counts if the mask says so; row 1 has none, row 2 has one, the others have all. */
static const float masks[ROWS][TOKENS] = {{1, 1, 1}, {0, 0, 0}, {0, 1, 0}, {1, 1, 1}};

/* Mean squared error over the tokens that count, and their number as aux value 0. */
static void mean_of_tokens(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,
                           tow_value *aux, void *user)
{
    (void)trace;
    const tow_value error = tow_square(tow_sub(out[0], extra[0]));
    const tow_value count = tow_reduce_sum(extra[1], 0, NULL);
    const tow_value sum = tow_reduce_sum(tow_mul(error, extra[1]), 0, NULL);
    *loss = tow_div(sum, user ? count : tow_max(count, tow_scalar(trace, TOW_F32, 1)));
    if (aux) aux[0] = count;
}

typedef struct setup_of {
    size_t micro_batches;
    bool weighted, zero_by_zero;
    float mask_scale;
} setup_of;

typedef struct outcome {
    float before, after;
    double loss, evaluation;
    tow_status status, evaluated;
} outcome;

static float only_weight(const tow_train_state *s)
{
    return *(const float *)tow_array_data(tow_params_array(tow_train_params(s), 0));
}

/* One step of SGD with rate 0.5 of y = w x, labels 3 x + 1. */
static outcome run(const fixture *f, setup_of o)
{
    outcome r = {0};
    tow_dense model = TOW_DENSE(.features = 1, .no_bias = true);
    const tow_type cube = tow_make_type(TOW_F32, 3, (int64_t[]){ROWS, TOKENS, 1});
    const tow_type types[2] = {cube, cube};
    static char yes = 1;
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_SGD, .learning_rate = tow_schedule_constant(0.5)}, .n_inputs = 1,
                          .input_types = &cube, .n_extra = 2, .extra_types = types, .loss = mean_of_tokens,
                          .loss_user = o.zero_by_zero ? &yes : NULL, .n_aux = 1, .evaluation = true,
                          .micro_batches = o.micro_batches, .weighted = o.weighted);
    float x[ROWS * TOKENS], y[ROWS * TOKENS], m[ROWS * TOKENS];
    for (int i = 0; i < ROWS * TOKENS; i++) {
        x[i] = (float)(i % 5 - 2) / 4;
        y[i] = 3 * x[i] + 1;
        m[i] = masks[i / TOKENS][i % TOKENS] * o.mask_scale;
    }
    tow_array *batch[3];
    tow_train_state *s;
    assert_int_equal(tow_array_from_data(f->ctx, cube, x, &batch[0]), TOW_OK);
    assert_int_equal(tow_array_from_data(f->ctx, cube, y, &batch[1]), TOW_OK);
    assert_int_equal(tow_array_from_data(f->ctx, cube, m, &batch[2]), TOW_OK);
    if (tow_train_create(f->ctx, TOW_MODULE(&model), &options, &s) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
    r.before = only_weight(s);
    r.evaluated = tow_train_evaluate(s, batch, &r.evaluation);
    r.status = tow_train_step(s, batch, &r.loss);
    r.after = only_weight(s);
    tow_train_free(s);
    for (int i = 0; i < 3; i++) tow_array_release(batch[i]);
    return r;
}

/* The loss and its derivative in double precision. */
static void expect_mean_of_tokens(const outcome *r)
{
    double loss = 0, slope = 0, count = 0;
    for (int i = 0; i < ROWS * TOKENS; i++) {
        const double x = (i % 5 - 2) / 4.0, error = (double)r->before * x - (3 * x + 1);
        const double m = (double)masks[i / TOKENS][i % TOKENS];
        loss += m * error * error;
        slope += m * 2 * error * x;
        count += m;
    }
    assert_int_equal(r->status, TOW_OK);
    assert_true(count == 7);
    assert_true(fabs(r->loss - loss / count) < 1e-6 && fabs(r->evaluation - loss / count) < 1e-6);
    assert_true(fabs((double)r->after - ((double)r->before - 0.5 * slope / count)) < 1e-6);
}

static void parts_have_the_step_of_the_whole(void **state)
{
    const fixture *f = *state;
    for (size_t n = 1; n <= 4; n *= 2) {
        const outcome r = run(f, (setup_of){.micro_batches = n, .weighted = true, .mask_scale = 1});
        expect_mean_of_tokens(&r);
    }
    const outcome scaled = run(f, (setup_of){.micro_batches = 4, .weighted = true, .mask_scale = 0.25});
    assert_int_equal(scaled.status, TOW_OK); /* weights need not be whole numbers: 0.75, 0, 0.25, 0.75 */
    const outcome unweighted = run(f, (setup_of){.micro_batches = 4, .mask_scale = 1});
    const outcome whole = run(f, (setup_of){.micro_batches = 1, .mask_scale = 1});
    assert_true(fabsf(unweighted.after - whole.after) > 1e-3f); /* the mean of means is another one */
}

/* Row 1 has no token: its mean is 0/0, which counts for nothing. */
static void parts_without_weight_count_for_nothing(void **state)
{
    const fixture *f = *state;
    const outcome r = run(f, (setup_of){.micro_batches = 4, .weighted = true, .zero_by_zero = true, .mask_scale = 1});
    expect_mean_of_tokens(&r);
}

static void batches_without_weight_are_refused(void **state)
{
    const fixture *f = *state;
    for (size_t n = 1; n <= 4; n *= 4) {
        const outcome r = run(f, (setup_of){.micro_batches = n, .weighted = true, .mask_scale = 0});
        assert_true(r.status == TOW_INVALID_ARGUMENT && r.evaluated == TOW_INVALID_ARGUMENT);
        assert_message(f, "above 0, found 0");
        assert_true(r.before == r.after);
    }
    const outcome negative = run(f, (setup_of){.micro_batches = 4, .weighted = true, .mask_scale = -1});
    assert_int_equal(negative.status, TOW_INVALID_ARGUMENT);
}

/* Loops of one's own: gradients 1 and 4 with weights 3 and 1 are 7/4 in the mean and 7 in the sum. */
static void optimizers_take_weights(void **state)
{
    const fixture *f = *state;
    for (int sum = 0; sum < 2; sum++) {
        const tow_type type = tow_make_type(TOW_F32, 0, NULL);
        tow_scale_by_learning_rate sgd = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(1));
        tow_params *params;
        tow_optimizer_state *o;
        tow_array *x, *g;
        assert_int_equal(tow_array_from_data(f->ctx, type, &(float){10}, &x), TOW_OK);
        assert_int_equal(tow_array_from_data(f->ctx, type, &(float){1}, &g), TOW_OK);
        const char *const paths[] = {"x"};
        assert_int_equal(tow_params_from_arrays(f->ctx, 1, paths, &x, &params), TOW_OK);
        const tow_optimizer_options options = TOW_OPTIMIZER_OPTIONS(.every = 2, .weighted = true, .sum = sum);
        if (tow_optimizer_create(f->ctx, TOW_GRADIENT_TRANSFORM(&sgd), params, &options, &o) != TOW_OK)
            fail_msg("%s", tow_context_error(f->ctx));
        tow_optimizer_set_weight(o, 3);
        assert_int_equal(tow_optimizer_update(o, &g), TOW_OK);
        *(float *)tow_array_data(g) = 4;
        tow_optimizer_set_weight(o, -1);
        assert_int_equal(tow_optimizer_update(o, &g), TOW_INVALID_ARGUMENT);
        assert_message(f, "a finite weight of 0 or more, found -1");
        tow_optimizer_set_weight(o, 1);
        assert_int_equal(tow_optimizer_update(o, &g), TOW_OK);
        assert_true(*(float *)tow_array_data(tow_params_array(params, 0)) == (sum ? 3.0f : 8.25f));
        tow_optimizer_free(o);
        tow_params_free(params);
        tow_array_release(x);
        tow_array_release(g);
    }
}

static void refused(void **state)
{
    const fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    assert_refused(f, TOW_MODULE(&model), 2,
                   TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = {.peak_value = 1}}, .weighted = true),
                   "expected .n_aux of 1 or more with .weighted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts_have_the_step_of_the_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(parts_without_weight_count_for_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(batches_without_weight_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(optimizers_take_weights, setup, teardown),
        cmocka_unit_test_setup_teardown(refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
