/* Training by several processes: losses and parameters have the bits that one process gets with all rows, for every
 * number of processes, micro-batches, threads, policies of remat and ways to write layers. Tests
 * autodiff/rows/processes.c, ops/collective.c, kernels/collective.c, plan/memory/defer_waits.c,
 * plan/remat/one_choice.c. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/printing_processes.h"
#include "tests/unit/support/row_models.h"

/* ---- one process and many ---------------------------------------------------------------------------------------- */

typedef struct comparison {
    int kind;
    setting s;
    trained expected;
} comparison;

static int train_and_compare(tow_context *context, tow_group *group, void *user)
{
    const comparison *c = user;
    const trained *e = &c->expected;
    trained found;
    int begin, end;
    if (train(context, group, c->kind, ROW_GROUPS, &c->s, &found) != TOW_OK)
        tow_group_abort(group, 1, "%s", tow_context_error(context));
    tow_group_rows(tow_group_rank(group), tow_group_count(group), ROW_GROUPS, &begin, &end);
    const int64_t n = c->kind == GPT ? 6 : 1, first = begin * n * B / ROW_GROUPS,
                  count = (end - begin) * n * B / ROW_GROUPS;
    if (memcmp(found.losses, e->losses, sizeof found.losses) != 0) return differs(group, "the loss");
    if (memcmp(found.greatest, e->greatest, sizeof found.greatest) != 0) return differs(group, "the greatest loss");
    for (int i = 0; i < RUNS; i++)
        if (memcmp(&found.each[i][first], &e->each[i][first], (size_t)count * sizeof(float)) != 0)
            return differs(group, "the loss of a row");
    return found.numbers == e->numbers ? 0 : differs(group, "a parameter");
}

static void compare(int kind, size_t n, const setting *settings, size_t n_counts, const int *counts)
{
    comparison c = {.kind = kind, .s = {.micro_batches = 1, .threads = 1, .variant = settings[0].variant}};
    OK(train(ctx, NULL, kind, ROW_GROUPS, &c.s, &c.expected));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_counts; k++) {
            tow_context *own;
            c.s = settings[i];
            OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = settings[i].threads), &own));
            if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = counts[k]), train_and_compare, &c) != TOW_OK)
                fail_msg("model %d, setting %zu, %d processes: %s", kind, i, counts[k], tow_context_error(own));
            tow_context_free(own);
        }
}

static const int all_counts[] = {1, 2, 3, 4, 8}, few_counts[] = {2, 3};
static const setting plain = {1, 0, 1, false, NULL};

static void test_counts(void **state)
{
    (void)state;
    for (int kind = 0; kind < MODELS; kind++)
        compare(kind, 1, &plain, kind == GPT || kind == MLP ? 5 : 2,
                kind == GPT || kind == MLP ? all_counts : few_counts);
}

static void test_settings(void **state)
{
    (void)state;
    const tow_policy nothing = tow_nothing_saveable();
    const setting mlp[] = {{2, 0, 1, false, NULL}, {8, 0, 2, false, NULL}};
    const setting gpt[] = {{1, 0, 2, true, NULL},
                           {4, 0, 1, false, NULL},
                           {8, 0, 1, true, &nothing},
                           {1, 0, 1, false, &nothing},
                           {1, 600000, 1, false, NULL}};
    compare(MLP, 2, mlp, 2, few_counts);
    compare(LSTM, 2, mlp, 2, few_counts);
    compare(GPT, 5, gpt, 2, few_counts);
}

/* ---- steps of a function of one's own ---------------------------------------------------------------------------- */

/* Three steps; *numbers: of the parameters. */
static tow_status take_steps(tow_context *context, tow_group *group, uint64_t *numbers)
{
    const tow_mlp mlp = TOW_MLP(.features = {8, 3});
    const tow_type types[2] = {F32(B, 5), tow_make_type(TOW_I32, 1, (int64_t[]){B})};
    const tow_scale_by_learning_rate rate = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(0.1));
    const int axes[] = {TOW_NOT_MAPPED, TOW_NOT_MAPPED, TOW_NOT_MAPPED, TOW_NOT_MAPPED, 0, 0};
    const tow_row_groups_options groups =
        TOW_ROW_GROUPS_OPTIONS(.groups = ROW_GROUPS, .micro_batches = 2, .in_axes = axes, .group = group);
    const int64_t rows = B / tow_group_count(group), first = rows * tow_group_rank(group);
    tow_params *params = NULL;
    tow_graph *loss = NULL;
    tow_optimizer_state *optimizer = NULL;
    tow_step *step = NULL;
    drawn = 5;
    tow_array *whole[2] = {random_array(context, types[0]), random_array(context, types[1])}, *batch[2], *out[3];
    tow_status status = tow_model_init(context, TOW_MODULE(&mlp), 0, 1, types, &params);
    for (int64_t k = 0; k < B; k++) ((int32_t *)tow_array_data(whole[1]))[k] %= 3;
    for (int k = 0; k < 2; k++) batch[k] = own_rows(context, whole[k], first, rows);
    for (int k = 0; k < 3; k++) tow_array_create(context, tow_make_type(TOW_F32, k == 1, &rows), &out[k]);
    if (!status)
        status =
            tow_model_loss_graph(TOW_MODULE(&mlp), params, 1, types, 1, types + 1, loss_function, NULL, 2, NULL, &loss);
    if (!status) status = tow_optimizer_create(context, TOW_GRADIENT_TRANSFORM(&rate), params, NULL, &optimizer);
    if (!status) status = tow_step_create(optimizer, params, loss, &TOW_STEP_OPTIONS(.row_groups = &groups), &step);
    for (int i = 0; i < 3 && !status; i++) status = tow_step_run(step, batch, out);
    *numbers = status ? 0 : hash_of_list(params);
    tow_step_free(step);
    tow_optimizer_free(optimizer);
    tow_graph_release(loss);
    tow_params_free(params);
    for (int k = 0; k < 2; k++) tow_array_release(whole[k]), tow_array_release(batch[k]);
    for (int k = 0; k < 3; k++) tow_array_release(out[k]);
    return status;
}

static int step_and_compare(tow_context *context, tow_group *group, void *user)
{
    uint64_t numbers;
    if (take_steps(context, group, &numbers) != TOW_OK) tow_group_abort(group, 1, "%s", tow_context_error(context));
    return numbers == *(const uint64_t *)user ? 0 : differs(group, "a parameter");
}

static void test_step(void **state)
{
    (void)state;
    uint64_t expected;
    OK(take_steps(ctx, NULL, &expected));
    for (int count = 2; count <= 8; count *= 2) {
        tow_context *own;
        OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &own));
        if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = count), step_and_compare, &expected) != TOW_OK)
            fail_msg("%d processes: %s", count, tow_context_error(own));
        tow_context_free(own);
    }
}

/* ---- loops with loaders and checkpoints -------------------------------------------------------------------------- */

typedef struct looped {
    const char *path, *best;
    bool alone; /* the metric of functions is that of the own rows */
    double loss, evaluation;
    double metrics[TOW_MAX_METRICS];
    uint64_t numbers;
} looped;

static void loss_with_scores(tow_trace *t, const tow_value *out, const tow_value *extra, tow_value *loss,
                             tow_value *aux, void *user)
{
    loss_function(t, out, extra, loss, aux, user);
    aux[2] = out[0];
}

/* Counts rows. */
typedef struct row_count {
    tow_context *context;
    tow_group *group; /* over which the count is summed; NULL: of the own rows alone */
    double rows;
} row_count;

static void begin_count(void *user) { ((row_count *)user)->rows = 0; }

static tow_status add_count(tow_train_state *state, tow_array *const *inputs, void *user)
{
    (void)state;
    ((row_count *)user)->rows += (double)tow_array_type(inputs[0]).dims[0];
    return TOW_OK;
}

static double value_of_count(void *user)
{
    const row_count *c = user;
    tow_array *sum = NULL;
    double rows = NAN;
    if (tow_array_create(c->context, tow_make_type(TOW_F64, 0, NULL), &sum) != TOW_OK) return NAN;
    *(double *)tow_array_data(sum) = c->rows;
    if (tow_group_all_reduce(c->group, ROW_GROUPS, sum) == TOW_OK) rows = *(double *)tow_array_data(sum);
    tow_array_release(sum);
    return rows;
}

enum {
    OF_ROWS,
    OF_ALL,
    RIGHT,
    PERPLEXITY,
    COUNT,
    N_METRICS
};

static tow_status run_loop(tow_context *context, tow_group *group, looped *result)
{
    static const tow_module_class class = {.name = "Model", .call = call_small};
    const tow_module module = {.cls = &class};
    const tow_type types[2] = {F32(B, 5), tow_make_type(TOW_I32, 1, (int64_t[]){B})};
    tow_array *data[2] = {NULL, NULL};
    tow_source *sources[2] = {NULL, NULL};
    tow_loader *loaders[2] = {NULL, NULL};
    tow_train_state *state = NULL;
    tow_train_progress last = {.loss = 0};
    tow_status status = TOW_OK;
    drawn = 11;
    data[0] = random_array(context, F32(3 * B, 5));
    data[1] = random_array(context, tow_make_type(TOW_I32, 1, (int64_t[]){3 * B}));
    for (int64_t k = 0; k < 3 * B; k++) ((int32_t *)tow_array_data(data[1]))[k] %= 3;
    for (int k = 0; k < 2 && !status; k++) status = tow_source_array(context, data[k], &sources[k]);
    const tow_field fields[2] = {{.source = sources[0]}, {.source = sources[1], .keep_type = true}};
    for (int k = 0; k < 2 && !status; k++)
        status = tow_loader_create(context,
                                   &TOW_LOADER_OPTIONS(.n_fields = 2, .fields = fields, .batch = B, .shuffle = true,
                                                       .rank = tow_group_rank(group), .no_thread = true,
                                                       .ranks = tow_group_count(group), .row_groups = ROW_GROUPS),
                                   &loaders[k]);
    if (!status)
        status = tow_train_create(context, &module,
                                  &TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.1)},
                                                     .n_inputs = 1, .input_types = &types[0], .n_extra = 1,
                                                     .extra_types = &types[1], .loss = loss_with_scores, .n_aux = 3,
                                                     .row_groups = ROW_GROUPS, .group = group, .evaluation = true),
                                  &state);
    row_count count = {.context = context, .group = result->alone ? NULL : group};
    const tow_metric metrics[N_METRICS] = {
        [OF_ROWS] = {.name = "of rows", .kind = TOW_METRIC_MEAN, .aux = 0},
        [OF_ALL] = {.name = "of all", .kind = TOW_METRIC_MEAN, .aux = 1},
        [RIGHT] = {.name = "right", .kind = TOW_METRIC_ACCURACY, .aux = 2, .labels = 1},
        [PERPLEXITY] = {.name = "perplexity", .kind = TOW_METRIC_PERPLEXITY},
        [COUNT] = {.name = "count",
                   .kind = TOW_METRIC_FUNCTIONS,
                   .begin = begin_count,
                   .add = add_count,
                   .value = value_of_count,
                   .user = &count}};
    if (!status)
        status = tow_train_run(state,
                               &TOW_TRAIN_LOOP(.loader = loaders[0], .evaluation_loader = loaders[1], .steps = 5,
                                               .evaluate_every = 2, .path = result->path, .best_path = result->best,
                                               .metrics = metrics, .n_metrics = N_METRICS, .watch = "right",
                                               .larger_is_better = true),
                               &last);
    if (!status && last.examples != 5 * B) status = tow_group_fail(context, TOW_CHECK_FAILED, "examples");
    memcpy(result->metrics, last.metrics, sizeof result->metrics);
    result->loss = last.loss;
    result->evaluation = last.evaluation;
    result->numbers = status ? 0 : hash_of_list(tow_train_params(state));
    tow_train_free(state);
    for (int k = 0; k < 2; k++) {
        tow_loader_free(loaders[k]);
        tow_source_release(sources[k]);
        tow_array_release(data[k]);
    }
    return status;
}

static int loop_and_compare(tow_context *context, tow_group *group, void *user)
{
    const looped *expected = user;
    looped found = {.path = expected->path, .best = expected->best};
    if (run_loop(context, group, &found) != TOW_OK) tow_group_abort(group, 1, "%s", tow_context_error(context));
    if (found.loss != expected->loss) return differs(group, "the loss of a loop");
    if (found.evaluation != expected->evaluation) return differs(group, "the evaluation");
    if (memcmp(found.metrics, expected->metrics, N_METRICS * sizeof *found.metrics) != 0)
        return differs(group, "a metric");
    return found.numbers == expected->numbers ? 0 : differs(group, "a parameter");
}

/* Functions that keep to the rows of their process would let processes judge differently. */
static int count_alone(tow_context *context, tow_group *group, void *user)
{
    looped found = *(const looped *)user;
    const tow_status status = run_loop(context, group, &found);
    if (status == TOW_INVALID_ARGUMENT && strstr(tow_context_error(context), "metric 'count'")) return 0;
    fprintf(stderr, "status %d: %s\n", (int)status, tow_context_error(context));
    return 1;
}

static void test_loop(void **state)
{
    (void)state;
    char folder[] = "/tmp/tow_loop_XXXXXX", path[64], best[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/last", folder);
    snprintf(best, sizeof best, "%s/best", folder);
    looped expected = {.path = path, .best = best};
    OK(run_loop(ctx, NULL, &expected));
    assert_true(fabs(expected.metrics[OF_ROWS] - expected.evaluation) < 1e-6);
    assert_true(fabs(expected.metrics[PERPLEXITY] - exp(expected.evaluation)) < 1e-6);
    assert_true(expected.metrics[OF_ALL] > expected.metrics[OF_ROWS]);
    assert_true(expected.metrics[RIGHT] > 0.2 &&
                expected.metrics[RIGHT] * 3 * B == floor(expected.metrics[RIGHT] * 3 * B + 0.5));
    assert_true(expected.metrics[COUNT] == 3 * B);
    for (int count = 2; count <= 4; count++) {
        tow_context *own;
        unlink(path), unlink(best);
        OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &own));
        if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = count), loop_and_compare, &expected) != TOW_OK)
            fail_msg("%d processes: %s", count, tow_context_error(own));
        tow_context_free(own);
        assert_int_equal(access(path, R_OK), 0);
        assert_int_equal(access(best, R_OK), 0);
    }
    looped alone = {.path = path, .best = best, .alone = true};
    if (tow_processes_run(ctx, &TOW_PROCESSES_OPTIONS(.count = 3), count_alone, &alone) != TOW_OK)
        fail_msg("%s", tow_context_error(ctx));
    unlink(path), unlink(best), rmdir(folder);
}

/* ---- what else a step does --------------------------------------------------------------------------------------- */

static void test_variants(void **state)
{
    (void)state;
    const tow_policy nothing = tow_nothing_saveable();
    for (variant v = EARLY; v <= WEIGHTED; v++) {
        const setting s[] = {{1, 0, 1, false, NULL, v, false}, {4, 0, 1, false, NULL, v, false}};
        compare(MLP, v == WEIGHTED ? 1 : 2, s, 2, few_counts); /* rows of parts cannot wait for the weight of all */
    }
    const setting verified = {1, 0, 1, false, &nothing, CLIPPED, true}, early = {1, 0, 1, false, NULL, EARLY, false};
    compare(GPT, 1, &verified, 1, few_counts);
    compare(GPT, 1, &early, 1, few_counts);
    compare(NORMALIZED, 1, &early, 1, few_counts);
}

/* ---- what is not finite ------------------------------------------------------------------------------------------ */

static void call_log(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    tow_dense last = TOW_DENSE(.features = 3);
    (void)module, (void)n_in, (void)n_out;
    out[0] = tow_apply(s, "last", &last, tow_log(in[0]));
}

/* A row of rank 1 has a logarithm of -1. All refuse the step, and rank 1 says where that began. */
static int find_not_finite(tow_context *context, tow_group *group, void *user)
{
    static const tow_module_class class = {.name = "Model", .call = call_log};
    const tow_module module = {.cls = &class};
    const tow_type types[2] = {F32(B, 5), tow_make_type(TOW_I32, 1, (int64_t[]){B})};
    const int rank = tow_group_rank(group);
    tow_train_state *state = NULL;
    tow_array *batch[2] = {NULL, NULL};
    double loss;
    const int shard = *(const int *)user;
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01)}, .n_inputs = 1,
                          .input_types = &types[0], .n_extra = 1, .extra_types = &types[1], .loss = loss_function,
                          .n_aux = 2, .row_groups = 2, .group = group, .check_finite = true, .shard = shard);
    if (tow_train_create(context, &module, &options, &state) != TOW_OK) return 1;
    if (tow_array_create(context, F32(B / 2, 5), &batch[0]) != TOW_OK) return 1;
    if (tow_array_create(context, tow_make_type(TOW_I32, 1, (int64_t[]){B / 2}), &batch[1]) != TOW_OK) return 1;
    for (int i = 0; i < B / 2 * 5; i++) ((float *)tow_array_data(batch[0]))[i] = rank == 1 && i == 7 ? -1 : 2;
    memset(tow_array_data(batch[1]), 0, B / 2 * sizeof(int32_t));
    const tow_status status = tow_train_step(state, batch, &loss);
    const char *error = tow_context_error(context);
    const bool says = strstr(error, rank == 1 ? "made by log" : "rows of rank 0") && strstr(error, "'last/bias'");
    if (status != TOW_CHECK_FAILED || !says) {
        fprintf(stderr, "rank %d: status %d: %s\n", rank, (int)status, error);
        return 1;
    }
    for (int k = 0; k < 2; k++) tow_array_release(batch[k]);
    tow_train_free(state);
    return 0;
}

static void test_not_finite(void **state)
{
    (void)state;
    tow_context *own;
    OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &own));
    for (int shard = TOW_SHARD_NOTHING; shard <= TOW_SHARD_PARAMETERS; shard++)
        if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = 2), find_not_finite, &shard) != TOW_OK)
            fail_msg("stage %d: %s", shard, tow_context_error(own));
    tow_context_free(own);
}

/* ---- when processes wait ----------------------------------------------------------------------------------------- */

static void call_mlp_module(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                            tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    call_mlp(s, in, out);
}

/* Line of the first, or of the last, instruction of this kind at the outermost level; -1: there is none. */
static int line_of(const char *text, const char *kind, bool last)
{
    int found = -1, line = 0;
    for (const char *at = text; at && *at; line++) {
        const char *end = strchr(at, '\n'), *hit = strstr(at, kind);
        if (hit && (!end || hit < end) && (found < 0 || last)) found = line;
        at = end ? end + 1 : NULL;
    }
    return found;
}

/* No process waits before the last product of its backward pass: sums travel meanwhile. */
static int wait_late(tow_context *context, tow_group *group, void *user)
{
    static char text[1 << 20];
    static const tow_module_class class = {.name = "Model", .call = call_mlp_module};
    static const tow_module module = {.cls = &class};
    const tow_type types[2] = {F32(B, 5), tow_make_type(TOW_I32, 1, (int64_t[]){B})};
    const char *const streams[] = {"dropout", NULL};
    const tow_model_options with_dropout = TOW_MODEL_OPTIONS(.streams = streams);
    tow_train_state *state = NULL;
    (void)user;
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01), .clip_norm = 1}, .n_inputs = 1,
                          .input_types = &types[0], .n_extra = 1, .extra_types = &types[1], .loss = loss_function,
                          .n_aux = 2, .model = &with_dropout, .row_groups = 2, .group = group);
    if (tow_train_create(context, &module, &options, &state) != TOW_OK) return 1;
    if (tow_program_text(tow_train_program(state), text, sizeof text) >= sizeof text) return 2;
    const int start = line_of(text, "all_reduce_start", false), product = line_of(text, "dot_general", true),
              wait = line_of(text, "all_reduce_wait", false);
    tow_train_free(state);
    if (start >= 0 && start < product && product < wait) return 0;
    fprintf(stderr, "start %d, last product %d, wait %d:\n%s", start, product, wait, text);
    return 3;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

/* The gradients of a loop over layers travel during the next iteration, which also updates parameters with them. */
static int wait_in_next_iteration(tow_context *context, tow_group *group, void *user)
{
    static char text[1 << 20];
    static const tow_module_class class = {.name = "Model", .call = call_model};
    const bool early = *(const bool *)user;
    const model m = {.module = {.cls = &class}, .kind = GPT};
    const tow_type types[2] = {tow_make_type(TOW_I32, 2, (int64_t[]){B, 6}),
                               tow_make_type(TOW_I32, 2, (int64_t[]){B, 6})};
    const char *const streams[] = {"dropout", NULL};
    const tow_model_options with_dropout = TOW_MODEL_OPTIONS(.streams = streams);
    tow_train_state *state = NULL;
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01), .clip_norm = early ? 0 : 1},
                          .n_inputs = 1, .input_types = &types[0], .n_extra = 1, .extra_types = &types[1],
                          .loss = loss_function, .n_aux = 2, .model = &with_dropout, .row_groups = 2, .group = group,
                          .early_update = early);
    if (tow_train_create(context, &m.module, &options, &state) != TOW_OK) return 1;
    if (tow_program_text(tow_train_program(state), text, sizeof text) >= sizeof text) return 2;
    if (tow_program_check(tow_train_program(state)) != TOW_OK) {
        fprintf(stderr, "%s\n", tow_context_error(context));
        return 4;
    }
    tow_train_free(state);
    /* of a block: kernel and bias of query, key, value, out, fc and proj; scale and bias of two norms */
    const int deferred = count(text, "ends in the next iteration"), updates = count(text, "for the iteration before");
    if (deferred == 16 && updates == (early ? 16 : 0)) return 0;
    fprintf(stderr, "%d sums end in the next iteration, and %d updates:\n%s", deferred, updates, text);
    return 3;
}

static void test_waits(void **state)
{
    (void)state;
    if (run(2, 0, wait_late, NULL) != TOW_OK) fail_msg("%s", printed);
    for (int early = 0; early < 2; early++)
        if (run(2, 0, wait_in_next_iteration, &(bool){early != 0}) != TOW_OK) fail_msg("%s", printed);
}

/* ---- within a limit ---------------------------------------------------------------------------------------------- */

/* Ranks that would choose different plans. */
typedef struct choice {
    size_t limit;
    bool machines_differ; /* on the machine of rank 1, work costs nothing and memory much */
    bool poor;            /* rank 1 has less memory */
} choice;

/* All take the plan of rank 0 that keeps the limits of all: the same products are made again. */
static int choose_one_plan(tow_context *context, tow_group *group, void *user)
{
    static const tow_module_class class = {.name = "Model", .call = call_model};
    const choice *c = user;
    const model m = {.module = {.cls = &class}, .kind = GPT, .unrolled = true};
    const tow_type types[2] = {tow_make_type(TOW_I32, 2, (int64_t[]){B, 6}),
                               tow_make_type(TOW_I32, 2, (int64_t[]){B, 6})};
    const char *const streams[] = {"dropout", NULL};
    const tow_model_options with_dropout = TOW_MODEL_OPTIONS(.streams = streams);
    const bool odd = tow_group_rank(group) == 1;
    const size_t limit = c->poor && odd ? c->limit * 3 / 4 : c->limit;
    tow_train_state *state = NULL;
    char flops[40];
    if (c->machines_differ && odd)
        setenv("TOW_MACHINE", "l1=64K,l2=64K,l3=64K,vector=64,threads=1,f32=1000,functions=1000,memory_rate=0.1", 1);
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01)}, .n_inputs = 1,
                          .input_types = &types[0], .n_extra = 1, .extra_types = &types[1], .loss = loss_function,
                          .n_aux = 2, .model = &with_dropout, .row_groups = 2, .group = group, .memory_limit = limit);
    if (tow_train_create(context, &m.module, &options, &state) != TOW_OK) {
        if (!odd) fprintf(stderr, "refused: %s\n", tow_context_error(context));
        tow_group_barrier(group); /* the end of one process ends the others, whatever they still print */
        return 1;
    }
    const tow_memory_point point = tow_program_memory_point(tow_train_program(state));
    snprintf(flops, sizeof flops, "%.0f", point.flops);
    const tow_group_fact fact = {"operations of products", flops};
    const tow_status status = tow_group_check_same(group, 1, &fact);
    if (status != TOW_OK && !odd) fprintf(stderr, "limit %zu: %s\n", c->limit, tow_context_error(context));
    tow_train_free(state);
    return status != TOW_OK || point.bytes > limit;
}

static void test_limits(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        choice c = {.limit = i < 2 ? 200000 : 300000, .machines_differ = i % 2 == 0, .poor = i == 3};
        if (i == 1) c.poor = true; /* there, nobody can keep three quarters */
        const tow_status expected = i == 1 ? TOW_INTERRUPTED : TOW_OK;
        if (run(2, 0, choose_one_plan, &c) != expected) fail_msg("limit %zu: %s", c.limit, printed);
        if (i == 1) expect_printed("refused: rank 1 (");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),   cmocka_unit_test(test_settings), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_step),     cmocka_unit_test(test_loop),     cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_variants), cmocka_unit_test(test_waits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
