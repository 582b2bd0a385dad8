/* The training loop and its functions; early stopping beside Flax (tests/oracle/training_golden.py). Tests loop.c,
 * loop_metrics.c, early_stopping.c. */
#include "tests/unit/support/training.h"

/* ---- early stopping ---------------------------------------------------------------------------------------------- */

static tow_train_options options_for(tow_type types[2])
{
    types[0] = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, 3});
    types[1] = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, 2});
    return TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.125}},
                             .evaluation = true);
}

static training make(const fixture *f, const tow_dense *model)
{
    tow_type types[2];
    tow_train_options options = options_for(types);
    options.average = &TOW_AVERAGE_OPTIONS(.decay = 0.5);
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
            const tow_early_stopping_options options =
                TOW_EARLY_STOPPING_OPTIONS(.patience = patience, .min_delta = delta, .larger_is_better = larger);
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
    assert_int_equal(tow_early_stopping_create(t.state, &TOW_EARLY_STOPPING_OPTIONS(.patience = 1), &e), TOW_OK);
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
    assert_int_equal(tow_early_stopping_create(t.state, &TOW_EARLY_STOPPING_OPTIONS(.patience = -1), &e),
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
    assert_int_equal(tow_early_stopping_create(t.state, &TOW_EARLY_STOPPING_OPTIONS(.restore_best = true), &e), TOW_OK);
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

static tow_status next_batch(tow_train_state *state, tow_array **inputs, bool *end, void *user)
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

static tow_status two_batches(tow_train_state *state, int64_t index, tow_array **inputs, bool *end, void *user)
{
    record *l = user;
    (void)state;
    *end = index == 2;
    inputs[0] = l->batch[0];
    inputs[1] = l->batch[1];
    return TOW_OK;
}

static tow_status after_step(tow_train_progress *p, void *user)
{
    record *l = user;
    l->steps++;
    assert_int_equal(p->calls, l->steps);
    assert_int_equal(p->examples, ROWS * l->steps);
    if (l->stop_at == tow_train_step_count(p->state)) p->stop = true;
    return l->failure;
}

static tow_status after_evaluation_batch(tow_train_progress *p, tow_array *const *inputs, void *user)
{
    record *l = user;
    (void)p;
    assert_ptr_equal(inputs[0], l->batch[0]);
    l->evaluation_batches++;
    return TOW_OK;
}

static tow_status after_evaluation(tow_train_progress *p, void *user)
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
    tow_train_loop loop =
        TOW_TRAIN_LOOP(.user = &l, .batch = next_batch, .steps = 7, .on_step = after_step, .evaluate_every = 3,
                       .evaluation_batch = two_batches, .on_evaluation_batch = after_evaluation_batch,
                       .on_evaluation = after_evaluation, .save_every = 5, .path = f->a);
    tow_train_progress last;
    assert_int_equal(tow_train_run(t.state, &loop, &last), TOW_OK);
    assert_int_equal(tow_train_step_count(t.state), 7);
    assert_true(l.batches == 7 && l.steps == 7 && l.evaluations == 3 && l.evaluation_batches == 6); /* 3, 6, 7 */
    assert_true(last.calls == 7 && isfinite(last.loss) && isfinite(last.evaluation) && last.seconds > 0);
    training u = make(f, &model);
    assert_int_equal(tow_train_load(u.state, f->a), TOW_OK);
    assert_int_equal(tow_train_step_count(u.state), 7);
    l = (record){.batch = t.batch, .left = 2}; /* batches end first */
    loop.steps = 0;
    assert_int_equal(tow_train_run(t.state, &loop, NULL), TOW_OK);
    assert_int_equal(tow_train_step_count(t.state), 9);
    assert_true(l.batches == 3 && l.evaluations == 1);
    l = (record){.batch = t.batch, .left = -1, .stop_at = 13};
    assert_int_equal(tow_train_run(t.state, &loop, &last), TOW_OK);
    assert_int_equal(tow_train_step_count(t.state), 13);
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
    const tow_early_stopping_options stopping = TOW_EARLY_STOPPING_OPTIONS(.patience = 1, .restore_best = true);
    const tow_train_loop loop =
        TOW_TRAIN_LOOP(.user = &l, .batch = next_batch, .steps = 100, .evaluate_every = 2,
                       .evaluation_batch = two_batches, .on_evaluation = after_evaluation, .early_stopping = &stopping);
    tow_train_progress last;
    assert_int_equal(tow_train_run(t.state, &loop, &last), TOW_OK);
    assert_true(l.evaluations == 4 && last.stop && !last.improved && last.metric == 4);
    assert_int_equal(tow_train_step_count(t.state), 8);
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
        tow_train_loop loop = cases[i].loop;
        loop.size = sizeof loop;
        assert_int_equal(tow_train_run(t.state, &loop, NULL), TOW_INVALID_ARGUMENT);
        assert_message(f, cases[i].message);
    }
    assert_int_equal(tow_train_run(NULL, &cases[0].loop, NULL), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_train_run(t.state, NULL, NULL), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_train_step_count(t.state), 0);
    stop(&t);
}

/* ---- loaders, metrics, the best checkpoint ----------------------------------------------------------------------- */

enum {
    EXAMPLES = 24
};

/* Scores as aux value 0, the mean score as aux value 1. */
static void cross_entropy(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,
                          tow_value *aux, void *user)
{
    (void)trace, (void)user;
    *loss = tow_mean(tow_softmax_cross_entropy(out[0], extra[0]), 0, NULL);
    if (!aux) return;
    aux[0] = out[0];
    aux[1] = tow_mean(out[0], 0, NULL);
}

typedef struct files {
    tow_source *points, *labels;
    tow_loader *training, *evaluation;
} files;

static files open_files(tow_context *ctx)
{
    files l = {0};
    tow_array *x = exact_fractions(ctx, EXAMPLES, 3), *y;
    assert_int_equal(tow_array_create(ctx, tow_make_type(TOW_I32, 1, (int64_t[]){EXAMPLES}), &y), TOW_OK);
    for (int i = 0; i < EXAMPLES; i++) ((int32_t *)tow_array_data(y))[i] = ((float *)tow_array_data(x))[3 * i] > 0;
    assert_int_equal(tow_source_array(ctx, x, &l.points), TOW_OK);
    assert_int_equal(tow_source_array(ctx, y, &l.labels), TOW_OK);
    const tow_field fields[2] = {{.source = l.points}, {.source = l.labels, .dtype = TOW_I32}};
    tow_loader_options options =
        TOW_LOADER_OPTIONS(.n_fields = 2, .fields = fields, .batch = ROWS, .shuffle = true, .seed = 1);
    assert_int_equal(tow_loader_create(ctx, &options, &l.training), TOW_OK);
    options.shuffle = false;
    assert_int_equal(tow_loader_create(ctx, &options, &l.evaluation), TOW_OK);
    tow_array_release(x);
    tow_array_release(y);
    return l;
}

static void close_files(files *l)
{
    tow_loader_free(l->training);
    tow_loader_free(l->evaluation);
    tow_source_release(l->points);
    tow_source_release(l->labels);
}

static tow_train_state *classifier(tow_context *ctx, const tow_dense *model, size_t micro_batches)
{
    const tow_type types[2] = {tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, 3}),
                               tow_make_type(TOW_I32, 1, (int64_t[]){ROWS})};
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.5}}, .n_inputs = 1,
                          .input_types = &types[0], .n_extra = 1, .extra_types = &types[1], .loss = cross_entropy,
                          .n_aux = 2, .evaluation = true, .micro_batches = micro_batches);
    tow_train_state *s;
    if (tow_train_create(ctx, TOW_MODULE(model), &options, &s) != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    return s;
}

/* A metric of functions: it counts the batches. */
static void no_batches(void *user) { *(int *)user = 0; }
static double count_of(void *user) { return *(int *)user; }
static tow_status one_more(tow_train_state *state, tow_array *const *inputs, void *user)
{
    (void)state, (void)inputs;
    ++*(int *)user;
    return TOW_OK;
}

/* Accuracy and mean score of all examples, computed here. */
static void count_by_hand(tow_train_state *s, const files *l, double *accuracy, double *mean, double *loss)
{
    int correct = 0;
    *mean = *loss = 0;
    assert_int_equal(tow_loader_seek(l->evaluation, 0), TOW_OK);
    for (int b = 0; b < EXAMPLES / ROWS; b++) {
        tow_array *const *batch;
        double of_batch;
        assert_int_equal(tow_loader_next(l->evaluation, &batch), TOW_OK);
        assert_int_equal(tow_train_evaluate(s, batch, &of_batch), TOW_OK);
        *loss += of_batch / (EXAMPLES / ROWS);
        const float *scores = tow_array_data(tow_train_aux(s, 0));
        for (int i = 0; i < ROWS; i++) {
            const int larger = scores[2 * i + 1] > scores[2 * i];
            correct += larger == ((int32_t *)tow_array_data(batch[1]))[i];
            *mean += ((double)scores[2 * i] + (double)scores[2 * i + 1]) / (2 * EXAMPLES);
        }
    }
    *accuracy = (double)correct / EXAMPLES;
}

static void loaders_and_metrics(void **state)
{
    const fixture *f = *state;
    for (size_t micro_batches = 1; micro_batches <= 2; micro_batches++) {
        tow_dense model = TOW_DENSE(.features = 2);
        files l = open_files(f->ctx);
        tow_train_state *s = classifier(f->ctx, &model, micro_batches);
        int batches;
        const tow_metric metrics[] = {{.name = "accuracy", .kind = TOW_METRIC_ACCURACY, .labels = 1},
                                      {.name = "score", .kind = TOW_METRIC_MEAN, .aux = 1},
                                      {.name = "perplexity", .kind = TOW_METRIC_PERPLEXITY},
                                      {.name = "batches",
                                       .kind = TOW_METRIC_FUNCTIONS,
                                       .user = &batches,
                                       .begin = no_batches,
                                       .add = one_more,
                                       .value = count_of}};
        const tow_train_loop loop = TOW_TRAIN_LOOP(.loader = l.training, .evaluation_loader = l.evaluation, .steps = 9,
                                                   .evaluate_every = 4, .n_metrics = 4, .metrics = metrics);
        tow_train_progress last;
        double accuracy, mean, loss;
        if (tow_train_run(s, &loop, &last) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
        assert_int_equal(tow_train_data_position(s), 9);
        count_by_hand(s, &l, &accuracy, &mean, &loss);
        assert_true(tow_train_metric(&last, "accuracy") == accuracy);
        assert_true(fabs(tow_train_metric(&last, "score") - mean) < 1e-6);
        assert_true(fabs(tow_train_metric(&last, "loss") - loss) < 1e-12);
        assert_true(fabs(tow_train_metric(&last, "perplexity") - exp(loss)) < 1e-9);
        assert_true(tow_train_metric(&last, "batches") == EXAMPLES / ROWS && last.metrics[3] == EXAMPLES / ROWS);
        assert_true(isnan(tow_train_metric(&last, "other")) && last.metric == last.evaluation);
        tow_train_free(s);
        close_files(&l);
    }
}

/* A state that is loaded goes on with the batch that comes next, whatever its loader gave out before. */
static void loaders_follow_checkpoints(void **state)
{
    const fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    files l = open_files(f->ctx);
    tow_train_state *whole = classifier(f->ctx, &model, 1), *parts = classifier(f->ctx, &model, 1);
    tow_train_loop loop = TOW_TRAIN_LOOP(.loader = l.training, .steps = 11, .path = f->a);
    assert_int_equal(tow_train_run(whole, &loop, NULL), TOW_OK);
    loop.steps = 4;
    loop.path = f->b;
    assert_int_equal(tow_train_run(parts, &loop, NULL), TOW_OK);
    tow_train_free(parts);
    parts = classifier(f->ctx, &model, 1);
    assert_int_equal(tow_train_load(parts, f->b), TOW_OK);
    loop.steps = 11;
    assert_int_equal(tow_train_run(parts, &loop, NULL), TOW_OK);
    for (size_t i = 0; i < 2; i++) {
        const tow_array *a = tow_params_array(tow_train_params(whole), i),
                        *b = tow_params_array(tow_train_params(parts), i);
        assert_memory_equal(tow_array_data(a), tow_array_data(b), tow_type_bytes(tow_array_type(a)));
    }
    tow_train_free(whole);
    tow_train_free(parts);
    close_files(&l);
}

/* Values that a metric takes one after the other, and what on_evaluation saw. */
typedef struct series {
    const double *values;
    int evaluations;
    bool improved[8];
} series;

static void nothing(void *user) { (void)user; }
static double next_of_series(void *user)
{
    const series *v = user;
    return v->values[v->evaluations];
}
static tow_status no_sum(tow_train_state *state, tow_array *const *inputs, void *user)
{
    (void)user, (void)state, (void)inputs;
    return TOW_OK;
}
static tow_status note_verdict(tow_train_progress *p, void *user)
{
    series *v = user;
    assert_true(p->metric == v->values[v->evaluations]);
    v->improved[v->evaluations++] = p->improved;
    return TOW_OK;
}

static void run_series(tow_train_state *s, const files *l, const char *best, int64_t steps, series *v)
{
    const tow_metric metric = {.name = "series",
                               .kind = TOW_METRIC_FUNCTIONS,
                               .user = v,
                               .begin = nothing,
                               .add = no_sum,
                               .value = next_of_series};
    const tow_train_loop loop =
        TOW_TRAIN_LOOP(.user = v, .loader = l->training, .evaluation_loader = l->evaluation, .steps = steps,
                       .evaluate_every = 1, .on_evaluation = note_verdict, .n_metrics = 1, .metrics = &metric,
                       .watch = "series", .larger_is_better = true, .best_path = best);
    assert_int_equal(tow_train_run(s, &loop, NULL), TOW_OK);
}

/* Metrics 1 3 2, then 2.5 4 1 of a run that goes on: the file has step 2, and then step 5. */
static void the_best_checkpoint(void **state)
{
    const fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    files l = open_files(f->ctx);
    tow_train_state *s = classifier(f->ctx, &model, 1), *best = classifier(f->ctx, &model, 1);
    series first = {.values = (double[]){1, 3, 2}}, second = {.values = (double[]){2.5, 4, 1}};
    run_series(s, &l, f->a, 3, &first);
    assert_true(first.evaluations == 3 && first.improved[0] && first.improved[1] && !first.improved[2]);
    assert_int_equal(tow_train_load(best, f->a), TOW_OK);
    assert_int_equal(tow_train_step_count(best), 2);
    run_series(s, &l, f->a, 6, &second);
    assert_true(second.evaluations == 3 && !second.improved[0] && second.improved[1] && !second.improved[2]);
    assert_int_equal(tow_train_load(best, f->a), TOW_OK);
    assert_int_equal(tow_train_step_count(best), 5);
    series other = {.values = (double[]){0.5}}; /* a new run does not ask what an old one left */
    tow_train_state *new = classifier(f->ctx, &model, 1);
    run_series(new, &l, f->a, 1, &other);
    assert_int_equal(tow_train_load(best, f->a), TOW_OK);
    assert_int_equal(tow_train_step_count(best), 1);
    tow_train_free(s);
    tow_train_free(new);
    tow_train_free(best);
    close_files(&l);
}

static void loaders_and_metrics_refused(void **state)
{
    const fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    files l = open_files(f->ctx);
    tow_train_state *s = classifier(f->ctx, &model, 1);
    tow_loader *one;
    const tow_field field = {.source = l.points};
    const tow_loader_options options = TOW_LOADER_OPTIONS(.n_fields = 1, .fields = &field, .batch = ROWS);
    assert_int_equal(tow_loader_create(f->ctx, &options, &one), TOW_OK);
    static const tow_metric twice[] = {{.name = "a", .kind = TOW_METRIC_PERPLEXITY}, {.name = "a"}},
                            unnamed[] = {{.kind = TOW_METRIC_MEAN}}, reserved[] = {{.name = "loss"}},
                            aux[] = {{.name = "a", .aux = 2}},
                            labels[] = {{.name = "a", .kind = TOW_METRIC_ACCURACY, .labels = 2}},
                            kind[] = {{.name = "a", .kind = (tow_metric_kind)9}},
                            functions[] = {{.name = "a", .kind = TOW_METRIC_FUNCTIONS}};
#define BOTH .loader = l.training, .evaluation_loader = l.evaluation
    const struct {
        tow_train_loop loop;
        const char *message;
    } cases[] = {{{.loader = l.training, .batch = next_batch}, "expected .batch or .loader, found both"},
                 {{BOTH, .evaluation_batch = two_batches}, "found both"},
                 {{.loader = l.training, .evaluation_loader = l.training}, "expected two loaders"},
                 {{.loader = one},
                  "expected .loader to give batches of 2 arrays, the inputs of the model and of the "
                  "loss, found 1"},
                 {{.loader = l.training, .best_path = "x"}, "expected .evaluation_batch or .evaluation_loader"},
                 {{BOTH, .watch = "a"}, "'loss' or the name of one of the 0 metrics, found 'a'"},
                 {{BOTH, .n_metrics = 2, .metrics = twice}, "metric 1: expected a name of its own"},
                 {{BOTH, .n_metrics = 1, .metrics = unnamed}, "found 'NULL'"},
                 {{BOTH, .n_metrics = 1, .metrics = reserved}, "other than 'loss'"},
                 {{BOTH, .n_metrics = 1, .metrics = aux}, "expected .aux below the 2 aux values"},
                 {{BOTH, .n_metrics = 1, .metrics = labels}, "below the 2 arrays of a batch, found 2"},
                 {{BOTH, .n_metrics = 1, .metrics = kind}, "expected a kind below 4, found 9"},
                 {{BOTH, .n_metrics = 1, .metrics = functions}, "expected .begin, .add and .value"},
                 {{BOTH, .n_metrics = 17, .metrics = aux}, "at most 16 metrics, found 17"},
                 {{BOTH, .n_metrics = 1}, "found NULL and 1"}};
#undef BOTH
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_train_loop loop = cases[i].loop;
        loop.size = sizeof loop;
        assert_int_equal(tow_train_run(s, &loop, NULL), TOW_INVALID_ARGUMENT);
        assert_message(f, cases[i].message);
    }
    assert_int_equal(tow_train_step_count(s), 0);
    tow_loader_free(one);
    tow_train_free(s);
    close_files(&l);
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
        cmocka_unit_test_setup_teardown(loaders_and_metrics, setup, teardown),
        cmocka_unit_test_setup_teardown(loaders_follow_checkpoints, setup, teardown),
        cmocka_unit_test_setup_teardown(the_best_checkpoint, setup, teardown),
        cmocka_unit_test_setup_teardown(loaders_and_metrics_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
