/* Processes of a group do the same: what differs is refused or agreed on, and what does not differ is not refused.
 * Tests group/collective.c, train/loop.c, train/state.c, train/programs.c, plan/remat/one_choice.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "src/train/state.h"
#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/row_models.h"

static int say(tow_context *context, const tow_group *group, tow_status status)
{
    fprintf(stderr, "rank %d: status %d: %s\n", tow_group_rank(group), (int)status, tow_context_error(context));
    return 1;
}

static void run(int count, int (*body)(tow_context *context, tow_group *group, void *user), void *user)
{
    if (tow_processes_run(ctx, &TOW_PROCESSES_OPTIONS(.count = count, .watchdog = 10), body, user) != TOW_OK)
        fail_msg("%s", tow_context_error(ctx));
}

/* ---- options of a small model ------------------------------------------------------------------------------------ */

static void call_dense(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    tow_dense last = TOW_DENSE(.features = 3);
    (void)module, (void)n_in, (void)n_out;
    out[0] = tow_apply(s, "last", &last, in[0]);
}

static const tow_module_class dense_class = {.name = "Model", .call = call_dense};
static const tow_module dense = {.cls = &dense_class};
static tow_type types[2];

static tow_train_options small_options(tow_group *group)
{
    types[0] = F32(B, 5);
    types[1] = tow_make_type(TOW_I32, 1, (int64_t[]){B});
    return TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01)}, .n_inputs = 1,
                             .input_types = &types[0], .n_extra = 1, .extra_types = &types[1], .loss = loss_function,
                             .n_aux = 2, .row_groups = ROW_GROUPS, .group = group);
}

/* ---- what does not differ ---------------------------------------------------------------------------------------- */

/* Of eight row groups, rank 0 has four and the others two, so with four micro-batches it alone sums in a loop: the
 * sources of its sums are other ones. */
static int scale_the_loss(tow_context *context, tow_group *group, void *user)
{
    tow_train_state *state = NULL;
    tow_train_options o = small_options(group);
    (void)user;
    o.micro_batches = 4;
    o.loss_scale = 1024;
    const tow_status status = tow_train_create(context, &dense, &o, &state);
    tow_train_free(state);
    return status == TOW_OK ? 0 : say(context, group, status);
}

static void test_sources(void **state)
{
    (void)state;
    run(3, scale_the_loss, NULL);
}

/* ---- states that differ ------------------------------------------------------------------------------------------ */

typedef enum difference {
    NOTHING,
    RATE,
    LATER_RATE,
    ONE_RATE, /* that of step 2 alone */
    CLIP,
    DECAY,
    FINITE,
    SKIPS,
    PERIOD,
    EVALUATION,
    SHAPES,
    AVERAGE,
    AVERAGE_DECAY,
    MODEL,
    LOSS,
    TRANSFORM, /* a constant in one of the caller's own */
    DIFFERENCES
} difference;

static void call_relu(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    call_dense(s, module, n_in, in, n_out, out);
    out[0] = tow_relu(out[0]);
}

static void scaled_loss(tow_trace *t, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                        void *user)
{
    loss_function(t, out, extra, loss, aux, user);
    *loss = tow_mul_scalar(*loss, 0.5);
}

/* -factor g */
typedef struct descent {
    tow_gradient_transform base;
    double factor;
} descent;

static tow_value descend(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)u, (void)p;
    return tow_mul_scalar(g, -((const descent *)(const void *)self)->factor);
}

static double same(int64_t step, const void *user) { return (void)step, (void)user, 0.01; }
static double other_at_2(int64_t step, const void *user) { return (void)user, step == 2 ? 0.02 : 0.01; }

/* Rank 1 has the same parameters, but another option, model or loss. */
static int be_refused(tow_context *context, tow_group *group, void *user)
{
    static const char *const says[] = {[RATE] = "learning_rate/value 0.01,",
                                       [LATER_RATE] = "learning_rate/value 0.01,",
                                       [ONE_RATE] = "learning_rate/value 0.01,",
                                       [CLIP] = "clip norm 0,",
                                       [DECAY] = "weight decay 0,",
                                       [FINITE] = ".check_finite",
                                       [SKIPS] = ".skip_not_finite 3",
                                       [PERIOD] = "loss scale 1024, period 7",
                                       [EVALUATION] = "averages is 0 of .other_shapes at rank 0 (",
                                       [SHAPES] = "averages is 0 of .other_shapes at rank 0 (",
                                       [AVERAGE] = "averages is 0 of .other_shapes at rank 0 (",
                                       [AVERAGE_DECAY] = ".average with decay 0.5 at rank 0 (",
                                       [MODEL] = "the graph of model and loss is ",
                                       [LOSS] = "the graph of model and loss is ",
                                       [TRANSFORM] = "the graph of the optimizer's update is "};
    static const tow_gradient_transform_class descent_class = {.name = "descent", .each = descend};
    static const tow_module_class relu_class = {.name = "Model", .call = call_relu};
    const tow_module relu = {.cls = &relu_class};
    const difference d = tow_group_rank(group) == 1 ? *(const difference *)user : NOTHING;
    const difference all = *(const difference *)user;
    tow_train_state *state = NULL;
    tow_train_options o = small_options(group);
    const tow_average_options average = TOW_AVERAGE_OPTIONS(.decay = d == AVERAGE_DECAY ? 0.9 : 0.5);
    if (d == RATE) o.optimizer.learning_rate = tow_schedule_constant(0.1);
    if (d == LATER_RATE) o.optimizer.learning_rate = tow_schedule_linear(0.01, 0, 1000, 0);
    if (all == ONE_RATE) o.optimizer.learning_rate = tow_schedule_function(d == ONE_RATE ? other_at_2 : same, NULL);
    if (d == CLIP) o.optimizer.clip_norm = 0.5;
    if (d == DECAY) o.optimizer.weight_decay = 0.5;
    if (d == FINITE) o.check_finite = true;
    if (d == SKIPS) o.skip_not_finite = 3;
    if (all == PERIOD) o.loss_scale = 1024;
    if (d == PERIOD) o.loss_scale_period = 7;
    if (d == EVALUATION) o.evaluation = true;
    if (d == SHAPES) o.other_shapes = 1;
    if (d == AVERAGE || all == AVERAGE_DECAY) o.average = &average;
    if (d == LOSS) o.loss = scaled_loss;
    const descent own = {{&descent_class, sizeof own}, d == TRANSFORM ? 0.25 : 0.5};
    if (all == TRANSFORM) o.optimizer = (tow_standard_optimizer){0};
    if (all == TRANSFORM) o.transform = TOW_GRADIENT_TRANSFORM(&own);
    const tow_status status = tow_train_create(context, d == MODEL ? &relu : &dense, &o, &state);
    tow_train_free(state);
    if (all == NOTHING) return status == TOW_OK ? 0 : say(context, group, status);
    return status == TOW_INVALID_ARGUMENT && strstr(tow_context_error(context), says[all])
               ? 0
               : say(context, group, status);
}

static void test_states(void **state)
{
    (void)state;
    for (difference d = NOTHING; d < DIFFERENCES; d++) run(2, be_refused, &d);
}

/* ---- memory limits of some processes ----------------------------------------------------------------------------- */

typedef struct limited {
    int rank; /* that has it */
    size_t limit;
} limited;

/* The others look for the plan with it, as if they had a limit without end: all are made, or none. */
static int limit_one(tow_context *context, tow_group *group, void *user)
{
    const limited *l = user;
    tow_train_state *state = NULL;
    tow_train_options o = small_options(group);
    if (tow_group_rank(group) == l->rank) o.memory_limit = l->limit;
    const tow_status status = tow_train_create(context, &dense, &o, &state);
    bool right =
        l->limit > 1 ? status == TOW_OK : status == TOW_INVALID_ARGUMENT && strstr(tow_context_error(context), "limit");
    if (state && tow_group_rank(group) == l->rank) right = right && tow_train_get_bytes(state).total <= l->limit;
    tow_train_free(state);
    return right ? 0 : say(context, group, status);
}

/* The same of a step of a function of one's own. */
static int limit_one_step(tow_context *context, tow_group *group, void *user)
{
    const limited *l = user;
    const int axes[] = {TOW_NOT_MAPPED, TOW_NOT_MAPPED, 0, 0};
    const tow_row_groups_options groups = TOW_ROW_GROUPS_OPTIONS(.groups = ROW_GROUPS, .in_axes = axes, .group = group);
    const tow_scale_by_learning_rate rate = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(0.1));
    tow_params *params = NULL;
    tow_graph *loss = NULL;
    tow_optimizer_state *optimizer = NULL;
    tow_step *step = NULL;
    small_options(group);
    tow_status status = tow_model_init(context, &dense, 0, 1, types, &params);
    if (!status)
        status = tow_model_loss_graph(&dense, params, 1, types, 1, types + 1, loss_function, NULL, 2, NULL, &loss);
    if (!status) status = tow_optimizer_create(context, TOW_GRADIENT_TRANSFORM(&rate), params, NULL, &optimizer);
    if (!status)
        status = tow_step_create(
            optimizer, params, loss,
            &TOW_STEP_OPTIONS(.row_groups = &groups, .memory_limit = tow_group_rank(group) == l->rank ? l->limit : 0),
            &step);
    tow_step_free(step);
    tow_optimizer_free(optimizer);
    tow_graph_release(loss);
    tow_params_free(params);
    return (status == TOW_OK) == (l->limit > 1) ? 0 : say(context, group, status);
}

static void test_limits(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++)
        for (int fits = 0; fits < 2; fits++) {
            limited l = {.rank = rank, .limit = fits ? 1 << 20 : 1};
            run(2, limit_one, &l);
            run(2, limit_one_step, &l);
        }
}

/* ---- loops that one process ends --------------------------------------------------------------------------------- */

enum {
    RANKS = 3,
    ENDS = 3 /* a step */
};

/* The ways in which rank 1 differs from the others. */
typedef enum way {
    STOPS,
    STOPS_IN_EVALUATION,
    HAS_NO_MORE_BATCHES,
    HAS_NO_MORE_EVALUATION_BATCHES,
    WRITES_A_METRIC,
    TAKES_MORE_STEPS,
    WAYS
} way;

typedef struct loop_case {
    way way;
    const char *path;
    int rank, batches, evaluation_batches;
    tow_array *batch[2];
} loop_case;

static bool is_odd(const loop_case *c, way which) { return c->rank == 1 && c->way == which; }

static tow_status next_batch(tow_train_state *state, tow_array **inputs, bool *end, void *user)
{
    loop_case *c = user;
    (void)state;
    memcpy(inputs, c->batch, sizeof c->batch);
    *end = is_odd(c, HAS_NO_MORE_BATCHES) && c->batches++ == ENDS;
    return TOW_OK;
}

static tow_status evaluation_batch(tow_train_state *state, int64_t index, tow_array **inputs, bool *end, void *user)
{
    loop_case *c = user;
    (void)state;
    memcpy(inputs, c->batch, sizeof c->batch);
    *end = index == (is_odd(c, HAS_NO_MORE_EVALUATION_BATCHES) ? 1 : 2);
    c->evaluation_batches += !*end;
    return TOW_OK;
}

static tow_status on_step(tow_train_progress *p, void *user)
{
    if (is_odd(user, STOPS) && p->calls == ENDS) p->stop = true;
    return TOW_OK;
}

static tow_status on_evaluation(tow_train_progress *p, void *user)
{
    if (is_odd(user, STOPS_IN_EVALUATION) && p->calls == ENDS) p->stop = true;
    if (is_odd(user, WRITES_A_METRIC)) p->metric = 7;
    return TOW_OK;
}

/* Only one process has these functions: the others end with it, or all are refused. */
static int run_loop(tow_context *context, tow_group *group, void *user)
{
    loop_case c = *(const loop_case *)user;
    tow_train_state *state = NULL;
    tow_train_progress last = {.calls = 0};
    int begin = 0, end = 0;
    c.rank = tow_group_rank(group);
    tow_train_options o = small_options(group);
    o.evaluation = true;
    tow_status status = tow_train_create(context, &dense, &o, &state);
    if (status) return say(context, group, status);
    tow_group_rows(c.rank, RANKS, ROW_GROUPS, &begin, &end);
    for (int k = 0; k < 2; k++) {
        tow_type type = types[k];
        type.dims[0] = (end - begin) * B / ROW_GROUPS;
        if (tow_array_create(context, type, &c.batch[k]) != TOW_OK) return 1;
        memset(tow_array_data(c.batch[k]), 0, tow_type_bytes(type));
    }
    const tow_train_loop loop =
        TOW_TRAIN_LOOP(.batch = next_batch, .steps = is_odd(&c, TAKES_MORE_STEPS) ? 6 : 5,
                       .on_step = c.rank == 1 ? on_step : NULL, .evaluate_every = ENDS,
                       .evaluation_batch = evaluation_batch, .on_evaluation = c.rank == 1 ? on_evaluation : NULL,
                       .path = c.path, .user = &c);
    status = tow_train_run(state, &loop, &last);
    const bool refused = c.way == WRITES_A_METRIC || c.way == TAKES_MORE_STEPS;
    const char *says = c.way == WRITES_A_METRIC ? "the metric behind .on_evaluation" : "5 steps";
    const int steps = c.way == HAS_NO_MORE_EVALUATION_BATCHES ? 5 : ENDS;
    bool right = refused ? status == TOW_INVALID_ARGUMENT && strstr(tow_context_error(context), says)
                         : status == TOW_OK && last.calls == steps && tow_train_step_count(state) == steps;
    if (c.way == HAS_NO_MORE_EVALUATION_BATCHES && c.rank == 1) right = right && c.evaluation_batches == 2;
    tow_train_free(state);
    for (int k = 0; k < 2; k++) tow_array_release(c.batch[k]);
    if (!right) fprintf(stderr, "way %d: %d steps\n", (int)c.way, (int)last.calls);
    return right ? 0 : say(context, group, status);
}

static void test_ends(void **state)
{
    (void)state;
    char folder[] = "/tmp/tow_same_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/last", folder);
    for (way w = STOPS; w < WAYS; w++) {
        run(RANKS, run_loop, &(loop_case){.way = w, .path = path});
        assert_int_equal(access(path, R_OK), w == WRITES_A_METRIC || w == TAKES_MORE_STEPS ? -1 : 0);
        unlink(path);
    }
    rmdir(folder);
}

/* ---- loaders that end at different batches ----------------------------------------------------------------------- */

typedef enum loader_difference {
    FEWER_BATCHES,
    FEWER_EPOCHS,
    FEWER_EVALUATION_BATCHES,
    LOADER_DIFFERENCES
} loader_difference;

/* The data and loaders of a process; index 0: training, 1: evaluation. */
typedef struct loading {
    tow_array *data[2][2];
    tow_source *sources[2][2];
    tow_loader *loaders[2];
} loading;

static tow_status make_loader(tow_context *context, const tow_group *group, int64_t batches, int64_t epochs,
                              tow_array **data, tow_source **sources, tow_loader **loader)
{
    tow_field fields[2] = {{.keep_type = true}, {.keep_type = true}};
    tow_status status = TOW_OK;
    for (int k = 0; k < 2 && !status; k++) {
        tow_type type = types[k];
        type.dims[0] = batches * B;
        status = tow_array_create(context, type, &data[k]);
        if (!status) memset(tow_array_data(data[k]), 0, tow_type_bytes(type));
        if (!status) status = tow_source_array(context, data[k], &sources[k]);
        fields[k].source = sources[k];
    }
    if (status) return status;
    return tow_loader_create(context,
                             &TOW_LOADER_OPTIONS(.n_fields = 2, .fields = fields, .batch = B, .epochs = epochs,
                                                 .rank = tow_group_rank(group), .ranks = tow_group_count(group),
                                                 .row_groups = ROW_GROUPS, .no_thread = true),
                             loader);
}

/* Rank 1 has fewer batches than the others, which would wait for it. */
static int run_out_of_batches(tow_context *context, tow_group *group, void *user)
{
    const loader_difference d = *(const loader_difference *)user;
    static const char *const says[] = {
        "batches of .loader is 3 from batch 0 on, in each of 2 epochs at rank 0",
        "batches of .loader is 3 from batch 0 on, in each of 2 epochs at rank 0",
        "batches of .evaluation_loader is 2 from batch 0 on, in each of 1 epochs at rank 0"};
    const bool odd = tow_group_rank(group) == 1;
    loading l = {{{NULL}}};
    tow_train_state *state = NULL;
    tow_train_options o = small_options(group);
    o.evaluation = true;
    tow_status status = tow_train_create(context, &dense, &o, &state);
    if (!status)
        status = make_loader(context, group, odd && d == FEWER_BATCHES ? 2 : 3, odd && d == FEWER_EPOCHS ? 1 : 2,
                             l.data[0], l.sources[0], &l.loaders[0]);
    if (!status)
        status = make_loader(context, group, odd && d == FEWER_EVALUATION_BATCHES ? 1 : 2, 1, l.data[1], l.sources[1],
                             &l.loaders[1]);
    if (status) return say(context, group, status);
    const tow_train_loop loop = TOW_TRAIN_LOOP(.loader = l.loaders[0], .evaluation_loader = l.loaders[1]);
    status = tow_train_run(state, &loop, NULL);
    tow_train_free(state);
    for (int i = 0; i < 2; i++) {
        tow_loader_free(l.loaders[i]);
        for (int k = 0; k < 2; k++) {
            tow_source_release(l.sources[i][k]);
            tow_array_release(l.data[i][k]);
        }
    }
    if (d == LOADER_DIFFERENCES) return status == TOW_OK ? 0 : say(context, group, status);
    return status == TOW_INVALID_ARGUMENT && strstr(tow_context_error(context), says[d]) ? 0
                                                                                         : say(context, group, status);
}

static void test_loaders(void **state)
{
    (void)state;
    for (loader_difference d = FEWER_BATCHES; d <= LOADER_DIFFERENCES; d++) run(2, run_out_of_batches, &d);
}

/* ---- a search, for which others wait ----------------------------------------------------------------------------- */

/* Another process that sends what it is sent: it agrees with all that this one says. */
typedef struct echo {
    int goes_on, ended; /* messages that a search goes on, that it has ended */
} echo;

static tow_status echo_exchange(tow_message *messages, size_t n, int tag, void **request, void *user)
{
    echo *e = user;
    const tow_message *sent = NULL;
    (void)tag;
    for (size_t i = 0; i < n; i++) {
        if (!messages[i].sends) continue;
        sent = &messages[i];
        if (sent->bytes == 1) ++*(*(const char *)sent->data ? &e->goes_on : &e->ended);
    }
    for (size_t i = 0; i < n; i++) {
        messages[i].done = true;
        if (!messages[i].sends && sent && sent->bytes == messages[i].bytes)
            memcpy(messages[i].data, sent->data, sent->bytes);
    }
    *request = user;
    return TOW_OK;
}

static tow_status echo_test(void *request, double seconds, size_t *left, void *user)
{
    (void)request, (void)seconds, (void)user;
    *left = 0;
    return TOW_OK;
}

static void echo_abort(int exit_status, void *user)
{
    (void)user;
    exit(exit_status);
}

/* Each plan that rank 0 makes in a search within a limit tells the others that it goes on, and the last message that it
 * has ended: a watchdog sees that something moves, however long the search takes. */
static void test_search(void **state)
{
    (void)state;
    echo e = {0};
    tow_group *group;
    tow_train_state *made;
    tow_memory_point point;
    size_t n = 0;
    assert_int_equal(tow_group_create(ctx,
                                      &TOW_GROUP_FUNCTIONS(.rank = 0, .count = 2, .exchange = echo_exchange,
                                                           .test = echo_test, .abort = echo_abort, .user = &e),
                                      NULL, &group),
                     TOW_OK);
    tow_train_options o = small_options(group);
    o.memory_limit = 1 << 20;
    if (tow_train_create(ctx, &dense, &o, &made) != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    assert_int_equal(e.ended, 1);
    assert_true(e.goes_on > 1 && (uint64_t)e.goes_on == made->frontiers.plans);
    const int told = e.goes_on;
    assert_int_equal(tow_train_memory_curve(made, 1, &point, &n), TOW_OK); /* which this process lists alone */
    assert_int_equal(e.goes_on, told);
    tow_train_free(made);
    tow_group_free(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sources), cmocka_unit_test(test_states),
                                       cmocka_unit_test(test_limits),  cmocka_unit_test(test_ends),
                                       cmocka_unit_test(test_loaders), cmocka_unit_test(test_search)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
