/* The training loop and its functions; early stopping beside Flax (tests/oracle/training_golden.py). Tests loop.c,
 * early_stopping.c. */
#include "tests/unit/support/training.h"

/* ---- early stopping ---------------------------------------------------------------------------------------------- */

static tow_train_options options_for(tow_type types[2])
{
    types[0] = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, 3});
    types[1] = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, 2});
    return (tow_train_options){.optimizer = {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.125}},
                               .evaluation = true};
}

static training make(const fixture *f, const tow_dense *model)
{
    tow_type types[2];
    tow_train_options options = options_for(types);
    options.average.decay = 0.5;
    return start(f->ctx, TOW_MODULE(model), 3, 2, options);
}

static void rule_is_that_of_flax(void **state)
{
    const fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    training t = make(f, &model);
    static char line[1 << 14];
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/training.txt", "r");
    int found = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        int read, more, improves, stops;
        long patience;
        double delta, metric;
        if (sscanf(line, "early_stopping %ld %lf%n", &patience, &delta, &read) != 2) continue;
        for (int larger = 0; larger < 2; larger++) {
            tow_early_stopping *e;
            const tow_early_stopping_options options = {
                .patience = patience, .min_delta = delta, .larger_is_better = larger};
            assert_int_equal(tow_early_stopping_create(t.state, &options, &e), TOW_OK);
            assert_true(isnan(tow_early_stopping_best(e, NULL)));
            for (const char *at = line + read; sscanf(at, "%lf %d %d%n", &metric, &improves, &stops, &more) == 3;
                 at += more) {
                bool improved, stop;
                assert_int_equal(tow_early_stopping_update(e, larger ? -metric : metric, &improved, &stop), TOW_OK);
                assert_true(improved == improves && stop == stops);
                found++;
            }
            tow_early_stopping_free(e);
        }
    }
    fclose(file);
    assert_int_equal(found, 2 * 4 * 14);
    stop(&t);
}

static void nan_is_never_better(void **state)
{
    const fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    training t = make(f, &model);
    tow_early_stopping *e;
    bool improved, stops;
    assert_int_equal(tow_early_stopping_create(t.state, &(tow_early_stopping_options){.patience = 1}, &e), TOW_OK);
    assert_int_equal(tow_early_stopping_update(e, NAN, &improved, &stops), TOW_OK);
    assert_true(!improved && !stops);
    assert_int_equal(tow_early_stopping_update(e, 3, &improved, &stops), TOW_OK);
    assert_true(improved && !stops);
    assert_int_equal(tow_early_stopping_update(e, NAN, &improved, &stops), TOW_OK);
    assert_int_equal(tow_early_stopping_update(e, NAN, &improved, &stops), TOW_OK);
    assert_true(!improved && stops && tow_early_stopping_best(e, NULL) == 3);
    assert_int_equal(tow_early_stopping_restore(e), TOW_INVALID_ARGUMENT);
    assert_message(f, "set .restore_best");
    tow_early_stopping_free(e);
    assert_int_equal(tow_early_stopping_create(t.state, &(tow_early_stopping_options){.patience = -1}, &e),
                     TOW_INVALID_ARGUMENT);
    assert_null(e);
    stop(&t);
}

static void best_is_restored(void **state)
{
    const fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    training t = make(f, &model);
    tow_early_stopping *e;
    int64_t at;
    assert_int_equal(tow_early_stopping_create(t.state, &(tow_early_stopping_options){.restore_best = true}, &e),
                     TOW_OK);
    step(&t, 2);
    assert_int_equal(tow_early_stopping_update(e, 1, NULL, NULL), TOW_OK);
    save(f, &t, f->a);
    step(&t, 3);
    assert_int_equal(tow_early_stopping_update(e, 2, NULL, NULL), TOW_OK);
    assert_int_equal(tow_early_stopping_restore(e), TOW_OK);
    assert_true(tow_early_stopping_best(e, &at) == 1 && at == 2);
    training u = make(f, &model);
    assert_int_equal(tow_train_load(u.state, f->a), TOW_OK);
    for (size_t i = 0; i < 2; i++) {
        const tow_params *const lists[2][2] = {{tow_train_params(t.state), tow_train_params(u.state)},
                                               {tow_train_averages(t.state), tow_train_averages(u.state)}};
        for (size_t k = 0; k < 2; k++) {
            const tow_array *a = tow_params_array(lists[i][0], k), *b = tow_params_array(lists[i][1], k);
            assert_memory_equal(tow_array_data(a), tow_array_data(b), tow_type_bytes(tow_array_type(a)));
        }
    }
    tow_early_stopping_free(e);
    stop(&t);
    stop(&u);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

typedef struct record {
    tow_array *const *batch;
    int64_t batches, steps, evaluations, evaluation_batches;
    int64_t left; /* batches until the end; negative: never */
    double metrics[8];
    int64_t stop_at; /* step that stops; 0: none */
    tow_status failure;
} record;

static tow_status next_batch(void *user, tow_train_state *state, tow_array **inputs, bool *end)
{
    record *l = user;
    (void)state;
    *end = l->left == 0;
    if (l->left > 0) l->left--;
    l->batches++;
    inputs[0] = l->batch[0];
    inputs[1] = l->batch[1];
    return TOW_OK;
}

static tow_status two_batches(void *user, tow_train_state *state, int64_t index, tow_array **inputs, bool *end)
{
    record *l = user;
    (void)state;
    *end = index == 2;
    inputs[0] = l->batch[0];
    inputs[1] = l->batch[1];
    return TOW_OK;
}

static tow_status after_step(void *user, tow_train_progress *p)
{
    record *l = user;
    l->steps++;
    assert_int_equal(p->calls, l->steps);
    assert_int_equal(p->examples, ROWS * l->steps);
    if (l->stop_at == tow_train_step_number(p->state)) p->stop = true;
    return l->failure;
}

static tow_status after_evaluation_batch(void *user, tow_train_progress *p, tow_array *const *inputs)
{
    record *l = user;
    (void)p;
    assert_ptr_equal(inputs[0], l->batch[0]);
    l->evaluation_batches++;
    return TOW_OK;
}

static tow_status after_evaluation(void *user, tow_train_progress *p)
{
    record *l = user;
    double loss;
    assert_int_equal(tow_train_evaluate(p->state, l->batch, &loss), TOW_OK);
    assert_true(fabs(p->evaluation - loss) <= 1e-12);
    if (l->metrics[0] != 0) p->metric = l->metrics[l->evaluations];
    l->evaluations++;
    return TOW_OK;
}

static void ends_and_counts(void **state)
{
    const fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    training t = make(f, &model);
    record l = {.batch = t.batch, .left = -1};
    tow_train_loop loop = {.user = &l,
                           .batch = next_batch,
                           .steps = 7,
                           .on_step = after_step,
                           .evaluate_every = 3,
                           .evaluation_batch = two_batches,
                           .on_evaluation_batch = after_evaluation_batch,
                           .on_evaluation = after_evaluation,
                           .save_every = 5,
                           .path = f->a};
    tow_train_progress last;
    assert_int_equal(tow_train_run(t.state, &loop, &last), TOW_OK);
    assert_int_equal(tow_train_step_number(t.state), 7);
    assert_true(l.batches == 7 && l.steps == 7 && l.evaluations == 3 && l.evaluation_batches == 6); /* 3, 6, 7 */
    assert_true(last.calls == 7 && isfinite(last.loss) && isfinite(last.evaluation) && last.seconds > 0);
    training u = make(f, &model);
    assert_int_equal(tow_train_load(u.state, f->a), TOW_OK);
    assert_int_equal(tow_train_step_number(u.state), 7);
    l = (record){.batch = t.batch, .left = 2}; /* batches end first */
    loop.steps = 0;
    assert_int_equal(tow_train_run(t.state, &loop, NULL), TOW_OK);
    assert_int_equal(tow_train_step_number(t.state), 9);
    assert_true(l.batches == 3 && l.evaluations == 1);
    l = (record){.batch = t.batch, .left = -1, .stop_at = 13};
    assert_int_equal(tow_train_run(t.state, &loop, &last), TOW_OK);
    assert_int_equal(tow_train_step_number(t.state), 13);
    assert_true(last.stop);
    l = (record){.batch = t.batch, .left = -1, .failure = TOW_INTERRUPTED};
    assert_int_equal(tow_train_run(t.state, &loop, &last), TOW_INTERRUPTED);
    assert_int_equal(last.calls, 1);
    stop(&t);
    stop(&u);
}

/* Metrics 3 2 4 4 5: with patience 1 the loop ends after the fourth evaluation, with the parameters of the second. */
static void stops_early(void **state)
{
    const fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    training t = make(f, &model), u = make(f, &model);
    record l = {.batch = t.batch, .left = -1, .metrics = {3, 2, 4, 4, 5}};
    const tow_early_stopping_options stopping = {.patience = 1, .restore_best = true};
    const tow_train_loop loop = {.user = &l,
                                 .batch = next_batch,
                                 .steps = 100,
                                 .evaluate_every = 2,
                                 .evaluation_batch = two_batches,
                                 .on_evaluation = after_evaluation,
                                 .early_stopping = &stopping};
    tow_train_progress last;
    assert_int_equal(tow_train_run(t.state, &loop, &last), TOW_OK);
    assert_true(l.evaluations == 4 && last.stop && !last.improved && last.metric == 4);
    assert_int_equal(tow_train_step_number(t.state), 8);
    step(&u, 4);
    for (size_t i = 0; i < 2; i++) {
        const tow_array *a = tow_params_array(tow_train_params(t.state), i),
                        *b = tow_params_array(tow_train_params(u.state), i);
        assert_memory_equal(tow_array_data(a), tow_array_data(b), tow_type_bytes(tow_array_type(a)));
    }
    stop(&t);
    stop(&u);
}

static void refused(void **state)
{
    const fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    training t = make(f, &model);
    record l = {.batch = t.batch};
    const struct {
        tow_train_loop loop;
        const char *message;
    } cases[] = {{{.user = &l}, "expected .batch"},
                 {{.user = &l, .batch = next_batch, .steps = -1}, "0 or more"},
                 {{.user = &l, .batch = next_batch, .evaluate_every = 1}, "expected .evaluation_batch"},
                 {{.user = &l, .batch = next_batch, .save_every = 1}, "expected .path"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(tow_train_run(t.state, &cases[i].loop, NULL), TOW_INVALID_ARGUMENT);
        assert_message(f, cases[i].message);
    }
    assert_int_equal(tow_train_run(NULL, &cases[0].loop, NULL), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_train_run(t.state, NULL, NULL), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_train_step_number(t.state), 0);
    stop(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rule_is_that_of_flax, setup, teardown),
        cmocka_unit_test_setup_teardown(nan_is_never_better, setup, teardown),
        cmocka_unit_test_setup_teardown(best_is_restored, setup, teardown),
        cmocka_unit_test_setup_teardown(ends_and_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(stops_early, setup, teardown),
        cmocka_unit_test_setup_teardown(refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
