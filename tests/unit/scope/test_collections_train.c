/* Collections in training: steps change variables once, the optimizer ignores them, checkpoints hold them layer by
 * layer, and a resumed run gives the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <unistd.h>

#include "tests/unit/support/running_layer.h"

/* ---- training ---------------------------------------------------------------------------------------------------- */

typedef struct training {
    tow_train_state *state;
    tow_array *batch[2];
} training;

static void mean_squared_error(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,
                               tow_value *aux, void *user)
{
    (void)trace, (void)aux, (void)user;
    *loss = tow_mean(tow_square(tow_sub(out[0], extra[0])), 0, NULL);
}

static tow_status create(tow_context *c, const tow_module *model, bool evaluation, tow_train_state **state)
{
    const tow_model_options with_dropout = TOW_MODEL_OPTIONS(.streams = (const char *const[]){"dropout", NULL});
    return tow_train_create(c, model,
                            &TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01),
                                                             .weight_decay = 0.1,
                                                             .clip_norm = 0.5},
                                               .seed = 2, .n_inputs = 1, .input_types = &small, .n_extra = 1,
                                               .extra_types = &small, .loss = mean_squared_error,
                                               .model = &with_dropout, .evaluation = evaluation),
                            state);
}

static training start(const tow_module *model)
{
    training t = {.batch = {exact_fractions(ctx, small), exact_fractions(ctx, small)}};
    OK(create(ctx, model, true, &t.state));
    return t;
}

static void step(training *t, int count)
{
    double loss;
    for (int i = 0; i < count; i++) {
        OK(tow_train_step(t->state, t->batch, &loss));
        assert_true(isfinite(loss));
    }
}

static void stop(training *t)
{
    tow_train_free(t->state);
    tow_array_release(t->batch[0]);
    tow_array_release(t->batch[1]);
}

static void assert_equal_files(const char *a, const char *b)
{
    char command[256];
    snprintf(command, sizeof command, "cmp '%s' '%s'", a, b);
    assert_int_equal(system(command), 0);
}

static void test_training(void **state)
{
    (void)state;
    char directory[] = "/tmp/tow-test-collections-XXXXXX", a[64], b[64], other[64], command[64];
    assert_non_null(mkdtemp(directory));
    snprintf(a, sizeof a, "%s/a", directory);
    snprintf(b, sizeof b, "%s/b", directory);
    snprintf(other, sizeof other, "%s/other", directory);
    running layer = RUNNING(.drops = 0.25);
    tow_remat inner = TOW_REMAT(&layer);
    static const tow_lift_rule counters[] = {{"counters", TOW_CARRIED}, {.pattern = NULL}};
    for (int shared = 0; shared < 2; shared++) {
        const tow_lift_rule *rules = shared ? counters : NULL;
        tow_scan scan = TOW_SCAN(&layer, .length = 3, .variables = rules),
                 scan_remat = TOW_SCAN(&inner, .length = 3, .variables = rules),
                 unrolled = TOW_SCAN(&layer, .length = 3, .unrolled = true, .variables = rules);
        tow_remat both = TOW_REMAT(&scan_remat);
        const tow_module *models[] = {TOW_MODULE(&unrolled), TOW_MODULE(&scan), TOW_MODULE(&scan_remat),
                                      TOW_MODULE(&both)};
        for (int m = 0; m < 4; m++) {
            training whole = start(models[m]);
            step(&whole, 3);
            OK(tow_train_save(whole.state, a));
            double before, after;
            OK(tow_train_evaluate(whole.state, whole.batch, &before)); /* reads the variables, changes nothing */
            training resumed = start(models[(m + 1) % 4]);             /* files hold layers one by one */
            step(&resumed, 1);
            OK(tow_train_load(resumed.state, a));
            OK(tow_train_evaluate(resumed.state, resumed.batch, &after));
            assert_true(before == after);
            step(&whole, 4);
            step(&resumed, 4);
            const char *path = shared ? "counters/calls" : m == 0 ? "counters/1/calls" : "counters/{}/calls";
            assert_non_null(tow_params_find(tow_train_variables(whole.state), path));
            assert_int_equal(*(int32_t *)tow_array_data(tow_params_find(tow_train_variables(whole.state), path)),
                             shared ? 21 : 7);
            OK(tow_train_save(resumed.state, b));
            training again = start(models[m]); /* in the order of this model */
            OK(tow_train_load(again.state, b));
            OK(tow_train_save(again.state, b));
            OK(tow_train_save(whole.state, a));
            assert_equal_files(a, b);
            if (m == 0) OK(tow_train_save(whole.state, other));
            tow_tensors *x, *y;
            OK(tow_safetensors_read(ctx, a, &x));
            OK(tow_safetensors_read(ctx, other, &y));
            expect_same_tensors("every wrapping", x, y);
            assert_non_null(tow_tensors_find(x, "state/batch_stats/1/mean"));
            assert_non_null(tow_tensors_find(x, shared ? "state/counters/calls" : "state/counters/2/calls"));
            assert_null(tow_tensors_find(x, "adam/mu/batch_stats/1/mean"));
            tow_tensors_free(x);
            tow_tensors_free(y);
            stop(&whole);
            stop(&resumed);
            stop(&again);
        }
    }
    /* Bytes: three means of four floats and a count. */
    tow_scan scan = TOW_SCAN(&layer, .length = 3, .variables = counters);
    training t = start(TOW_MODULE(&scan));
    tow_train_bytes bytes = tow_train_get_bytes(t.state);
    assert_int_equal(bytes.variables, 3 * 4 * 4 + 4);
    assert_int_equal(bytes.batch,
                     tow_type_bytes(tow_array_type(t.batch[0])) + tow_type_bytes(tow_array_type(t.batch[1])));
    assert_int_equal(bytes.total, bytes.parameters + bytes.variables + bytes.optimizer + bytes.residuals +
                                      bytes.workspace + bytes.evaluation + bytes.batch);
    /* A file with other variables is refused, and nothing changes. */
    OK(tow_train_load(t.state, other));
    OK(tow_train_save(t.state, a));
    tow_scan own = TOW_SCAN(&layer, .length = 3);
    training u = start(TOW_MODULE(&own));
    expect_error(tow_train_load(u.state, a), TOW_NOT_FOUND, a, "state/counters/0/calls: missing");
    assert_int_equal(count_at(tow_train_variables(u.state), "counters/0/calls"), 0);
    tow_dense dense = TOW_DENSE(.features = 4);
    tow_scan stack = TOW_SCAN(&dense, .length = 3);
    training plain = start(TOW_MODULE(&stack));
    assert_int_equal(tow_params_count(tow_train_variables(plain.state)), 0);
    assert_int_not_equal(tow_train_load(plain.state, a), TOW_OK);
    stop(&t);
    stop(&u);
    stop(&plain);
    /* Options that the state sets itself cannot be given; a layer that writes while evaluating is found when the state
     * is made. */
    tow_train_state *none;
    tow_model_options options = TOW_MODEL_OPTIONS(.mutable_collections = (const char *const[]){"counters", NULL});
    expect_error(tow_train_create(ctx, TOW_MODULE(&layer),
                                  &TOW_TRAIN_OPTIONS(.n_inputs = 1, .input_types = &small, .loss = mean_squared_error,
                                                     .model = &options),
                                  &none),
                 TOW_INVALID_ARGUMENT, ".mutable_collections");
    options = TOW_MODEL_OPTIONS(.capture = (const char *const[]){"counters", NULL});
    expect_error(tow_train_create(ctx, TOW_MODULE(&layer),
                                  &TOW_TRAIN_OPTIONS(.n_inputs = 1, .input_types = &small, .loss = mean_squared_error,
                                                     .model = &options),
                                  &none),
                 TOW_INVALID_ARGUMENT, ".capture");
    running always = RUNNING(.always = true);
    expect_error(create(ctx, TOW_MODULE(&always), true, &none), TOW_INVALID_ARGUMENT,
                 "batch_stats/mean: cannot be written");
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    assert_int_equal(system(command), 0);
}

static tow_status use_training(tow_context *c)
{
    running layer = RUNNING();
    tow_train_state *s;
    tow_status status = create(c, TOW_MODULE(&layer), false, &s);
    char path[] = "/tmp/tow-test-collections-XXXXXX";
    int file = status ? -1 : mkstemp(path);
    if (!status) status = tow_train_save(s, path);
    if (!status) status = tow_train_load(s, path);
    if (file >= 0) {
        close(file);
        unlink(path);
    }
    tow_train_free(s);
    return status;
}

static void test_every_allocation_failing(void **state)
{
    (void)state;
    fail_in_turn(use_training);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_every_allocation_failing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
