/* The plan of a process that is not there says how much it will hold, send and receive, and the process then does so
 * to the byte: in each stage of sharding, for each rank of 2, 3 and 4 processes. A memory limit is one of each process.
 * Tests plan/report/exchange.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/base/base.h"
#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/row_models.h"

enum {
    MOST = 4, /* processes */
    STAGES = TOW_SHARD_PARAMETERS + 1,
    STEPS = 1
};

/* ---- memory of arrays and arenas, as it is asked for ------------------------------------------------------------- */

/* Arrays of a few numbers, such as keys and constants of graphs, are left out: several graphs have the same ones. */
enum {
    FEW = 64 /* bytes */
};
static size_t held, most_held;

static void hold(size_t bytes)
{
    if (bytes >= FEW) held += bytes;
    if (held > most_held) most_held = held;
}

void *__real_tow__alloc_aligned(tow_context *context, size_t bytes);
void *__wrap_tow__alloc_aligned(tow_context *context, size_t bytes);
void *__wrap_tow__alloc_aligned(tow_context *context, size_t bytes)
{
    hold(bytes);
    return __real_tow__alloc_aligned(context, bytes);
}

void *__real_tow__alloc_raw(tow_context *context, size_t bytes);
void *__wrap_tow__alloc_raw(tow_context *context, size_t bytes);
void *__wrap_tow__alloc_raw(tow_context *context, size_t bytes)
{
    hold(bytes);
    return __real_tow__alloc_raw(context, bytes);
}

void __real_tow__free_aligned(tow_context *context, void *pointer, size_t bytes);
void __wrap_tow__free_aligned(tow_context *context, void *pointer, size_t bytes);
void __wrap_tow__free_aligned(tow_context *context, void *pointer, size_t bytes)
{
    if (pointer && bytes >= FEW) held -= bytes;
    __real_tow__free_aligned(context, pointer, bytes);
}

/* ---- a small GPT ------------------------------------------------------------------------------------------------- */

typedef struct job {
    int stage;
    size_t limit;
    tow_train_bytes said[MOST];
    size_t large[MOST]; /* of said: without arrays of a few numbers */
} job;

static tow_status create(tow_context *context, tow_group *group, const job *j, tow_train_state **state)
{
    static const tow_module_class class = {.name = "Model", .call = call_model};
    static const model m = {.module = {.cls = &class}, .kind = GPT};
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){B, 6});
    const char *const streams[] = {"dropout", NULL};
    const tow_model_options options = TOW_MODEL_OPTIONS(.streams = streams);
    const tow_train_options train =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01), .clip_norm = 0.5}, .seed = 3,
                          .n_inputs = 1, .input_types = &type, .n_extra = 1, .extra_types = &type,
                          .loss = loss_function, .n_aux = 2, .model = &options, .row_groups = ROW_GROUPS,
                          .group = group, .shard = j->stage, .memory_limit = j->limit);
    return tow_train_create(context, &m.module, &train, state);
}

/* Asks for the bytes of a rank in a process that is alone. Returns how many gathers it says there are at once. */
static int64_t plan_rank(int rank, int count, job *j)
{
    tow_context *own;
    tow_group *group;
    tow_train_state *state;
    OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &own));
    OK(tow_group_plan_only(own, rank, count, NULL, &group));
    if (create(own, group, j, &state) != TOW_OK) fail_msg("%s", tow_context_error(own));
    const tow_train_bytes bytes = tow_train_get_bytes(state);
    const tow_program *step = tow_train_program(state);
    const int64_t gathers = tow_program_get_exchange(step, 0, 0).gathers_in_flight;
    j->said[rank] = bytes;
    j->large[rank] = bytes.parameters + bytes.optimizer + bytes.batch + tow_program_get_bytes(step).arena +
                     bytes.batch / 2; /* a loss for each token */
    assert_true(j->large[rank] <= bytes.total && bytes.total - j->large[rank] < 1024);
    tow_train_free(state);
    tow_group_free(group);
    tow_context_free(own);
    return gathers;
}

/* ---- said and done ----------------------------------------------------------------------------------------------- */

static int counts_differ(const tow_group *group, const char *what, unsigned long long found, unsigned long long said)
{
    fprintf(stderr, "rank %d of %d: %s: %llu bytes, said were %llu\n", tow_group_rank(group), tow_group_count(group),
            what, found, said);
    return 1;
}

static int train_as_said(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    const tow_train_bytes *said = &j->said[tow_group_rank(group)];
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){B, 6});
    const size_t large = j->large[tow_group_rank(group)];
    tow_train_state *state;
    int begin, end;
    held = most_held = 0;
    if (create(context, group, j, &state) != TOW_OK) tow_group_abort(group, 2, "%s", tow_context_error(context));
    const tow_train_bytes bytes = tow_train_get_bytes(state);
    if (bytes.total != said->total || bytes.sent != said->sent || bytes.received != said->received ||
        bytes.exchange != said->exchange || bytes.gradients != said->gradients)
        return counts_differ(group, "the plan of a run", bytes.total, said->total);
    tow_group_rows(tow_group_rank(group), tow_group_count(group), ROW_GROUPS, &begin, &end);
    const tow_group_bytes before = tow_group_get_bytes(group);
    most_held = held;
    for (int i = 0; i < STEPS; i++) {
        tow_array *own[2];
        for (int k = 0; k < 2; k++) {
            tow_array *whole = random_array(context, type);
            own[k] = own_rows(context, whole, begin * B / ROW_GROUPS, (end - begin) * B / ROW_GROUPS);
            tow_array_release(whole);
        }
        most_held = held;
        if (tow_train_step(state, own, NULL) != TOW_OK) tow_group_abort(group, 3, "%s", tow_context_error(context));
        for (int k = 0; k < 2; k++) tow_array_release(own[k]);
        if (most_held != large) return counts_differ(group, "arrays and arena", most_held, large);
    }
    const tow_group_bytes after = tow_group_get_bytes(group);
    if (after.sent - before.sent != STEPS * said->sent)
        return counts_differ(group, "sent", after.sent - before.sent, STEPS * said->sent);
    if (after.received - before.received != STEPS * said->received)
        return counts_differ(group, "received", after.received - before.received, STEPS * said->received);
    tow_train_free(state);
    return 0;
}

static void run_together(int count, job *j)
{
    tow_context *own;
    OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &own));
    if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = count), train_as_said, j) != TOW_OK)
        fail_msg("%d processes, stage %d: %s", count, j->stage, tow_context_error(own));
    tow_context_free(own);
}

static void test_said_and_done(void **state)
{
    (void)state;
    for (int count = 2; count <= MOST; count++)
        for (int stage = 0; stage < STAGES; stage++) {
            job j = {.stage = stage};
            size_t sent = 0, received = 0;
            for (int r = 0; r < count; r++) {
                const int64_t gathers = plan_rank(r, count, &j);
                sent += j.said[r].sent;
                received += j.said[r].received;
                assert_true(stage == 0 ? gathers == 0 : gathers > 0);
            }
            assert_true(sent > 0);
            assert_int_equal(sent, received);
            run_together(count, &j);
        }
}

/* Collectives one by one are all that is sent. */
static void test_collectives(void **state)
{
    (void)state;
    for (int stage = 0; stage < STAGES; stage++) {
        const job j = {.stage = stage};
        tow_group *group;
        tow_train_state *made;
        tow_program_collective c;
        uint64_t sent = 0, received = 0;
        int64_t sums = 0, gathers = 0, in_loops = 0;
        OK(tow_group_plan_only(ctx, 1, 3, NULL, &group));
        OK(create(ctx, group, &j, &made));
        const tow_program *step = tow_train_program(made);
        for (size_t i = 0; tow_program_get_collective(step, i, &c); i++) {
            sent += c.sent * (uint64_t)c.runs;
            received += c.received * (uint64_t)c.runs;
            *(strcmp(c.kind, "all_gather") == 0 ? &gathers : &sums) += c.runs;
            in_loops += c.length == 2 && c.runs >= 1;
            const bool whole = strcmp(c.kind, "all_reduce") == 0;
            assert_true(stage > 0 || whole);
            /* From gradients as shares on, sums of the whole are small ones, which travel together. */
            assert_true(stage == 0 || !whole || tow_type_element_count(c.type) <= 64);
        }
        const tow_program_exchange x = tow_program_get_exchange(step, 1e9, 1e-5);
        assert_int_equal(x.sent, sent);
        assert_int_equal(x.received, received);
        assert_int_equal(x.sums, sums);
        assert_int_equal(x.gathers, gathers);
        assert_true(in_loops >= (stage == TOW_SHARD_PARAMETERS ? 32 : 16)); /* 16 parameters of a block */
        assert_true(x.seconds > tow_program_get_exchange(step, 0, 0).seconds);
        assert_true(x.waiting > 0 && x.waiting <= x.communication * (1 + 1e-9));
        /* A network of no bandwidth to speak of hides next to nothing: the step is its time. */
        const tow_program_exchange slow = tow_program_get_exchange(step, 1, 0);
        assert_true(slow.waiting > 0.999 * slow.communication);
        tow_train_free(made);
        tow_group_free(group);
    }
}

/* ---- 1 / N, and two iterations' rows ----------------------------------------------------------------------------- */

/* Bytes of the parameters of the whole model, counted by the shape of each. */
typedef struct counted {
    size_t whole, share, rows, outside; /* all; of this rank; of one iteration of the loop; outside of it */
    size_t arrays;
} counted;

static counted count_parameters(const tow_graph *loss, size_t n, int rank, int count)
{
    counted c = {.arrays = n};
    for (size_t i = 0; i < n; i++) {
        const tow_type type = tow_graph_input_type(loss, i);
        const int64_t layers = strstr(tow_graph_input_name(loss, i), "blocks") ? type.dims[0] : 1;
        int64_t offset, length;
        OK(tow_group_share(rank, count, tow_type_element_count(type) / layers, &offset, &length));
        c.whole += tow_type_bytes(type);
        c.share += (size_t)(layers * length) * sizeof(float);
        *(layers > 1 ? &c.rows : &c.outside) += tow_type_bytes(type) / (size_t)layers;
    }
    return c;
}

/* A process has its share of what a stage shares, and no more. Two iterations' rows and arrays outside of loops are
 * gathered, or arrive; a gradient that is summed whole, that of the table, which also makes the logits, is
 * one of these. Each buffer begins with a number of 64 bytes, and is a multiple of as many. */
static void test_shares(void **state)
{
    (void)state;
    for (int count = 2; count <= MOST; count++)
        for (int stage = 0; stage < STAGES; stage++) {
            const job j = {.stage = stage};
            tow_group *group;
            tow_train_state *made;
            OK(tow_group_plan_only(ctx, count - 1, count, NULL, &group));
            OK(create(ctx, group, &j, &made));
            const tow_train_bytes bytes = tow_train_get_bytes(made);
            const counted c = count_parameters(tow_train_loss_graph(made), tow_params_count(tow_train_params(made)),
                                               count - 1, count);
            const size_t numbers = 4 * 2 * 64 * c.arrays;
            assert_int_equal(bytes.parameters, stage == TOW_SHARD_PARAMETERS ? c.share : c.whole);
            assert_int_equal(bytes.optimizer, 2 * (stage == TOW_SHARD_NOTHING ? c.whole : c.share));
            if (stage >= TOW_SHARD_GRADIENTS) assert_true(bytes.gradients <= c.share + c.rows + c.outside + numbers);
            assert_true(bytes.exchange <=
                        (stage == TOW_SHARD_PARAMETERS ? 2 * c.rows : c.rows) + 2 * c.outside + numbers);
            tow_train_free(made);
            tow_group_free(group);
        }
}

/* ---- layers that are no loop ------------------------------------------------------------------------------------- */

enum {
    LAYERS = 16,
    WIDTH = 96,
    LAYER = (WIDTH * WIDTH + WIDTH) * (int)sizeof(float)
};

static void call_layers(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const tow_dense dense = TOW_DENSE(.features = WIDTH);
    tow_value x = in[0];
    (void)module, (void)n_in, (void)n_out;
    for (int i = 0; i < LAYERS; i++) {
        char name[24];
        snprintf(name, sizeof name, "layer%d", i);
        x = tow_tanh(tow_apply(s, name, &dense, x));
    }
    out[0] = x;
}

static void mean_of_squares(tow_trace *t, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                            void *user)
{
    (void)t, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(tow_reduce_sum(tow_mul(out[0], out[0]), 1, (int[]){1}), 0, NULL);
}

/* At most two gathers are in flight, two sums of which a process gets its share, the sum of the loss, and small sums in
 * one. So there are never more whole parameters than those of three layers, where all would be 16. Two whole gradients
 * are in flight, each with memory for half of it that arrives, while the next one is made in a tree over a process's
 * row groups, as three arrays at most. Layers keep their results for the backward pass. */
static void test_layers(void **state)
{
    (void)state;
    static const tow_module_class class = {.name = "Layers", .call = call_layers};
    static const tow_module module = {.cls = &class};
    const tow_type type = F32(B, WIDTH);
    for (int count = 2; count <= MOST; count += 2)
        for (int stage = 0; stage < STAGES; stage++) {
            tow_group *group;
            tow_train_state *made;
            const bool shares = stage == TOW_SHARD_PARAMETERS;
            OK(tow_group_plan_only(ctx, 0, count, NULL, &group));
            const tow_train_options train =
                TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01)}, .n_inputs = 1,
                                  .input_types = &type, .loss = mean_of_squares, .row_groups = ROW_GROUPS,
                                  .group = group, .shard = stage);
            OK(tow_train_create(ctx, &module, &train, &made));
            const tow_train_bytes bytes = tow_train_get_bytes(made);
            const tow_program *step = tow_train_program(made);
            const tow_program_exchange x = tow_program_get_exchange(step, 0, 0);
            const counted c =
                count_parameters(tow_train_loss_graph(made), tow_params_count(tow_train_params(made)), 0, count);
            const size_t arena = tow_program_get_bytes(step).arena;
            const size_t gathered = shares ? 3 * LAYER : 0, sums = 2 * (LAYER + LAYER / 2) + 3 * LAYER;
            assert_int_equal(bytes.parameters, shares ? c.share : LAYERS * LAYER);
            /* Of kernels, of all biases together, and of the loss, which its mean reads before. */
            assert_int_equal(x.sums, LAYERS + 2);
            assert_true(stage == 0 || x.sums_in_flight <= 4);
            if (shares) assert_true(x.gathers_in_flight <= 2);
            assert_true(stage == 0 || bytes.exchange <= gathered + LAYER + LAYERS * WIDTH * 4);
            if (stage > 0 && arena > bytes.residuals + gathered + sums)
                fail_msg("%d processes, stage %d: an arena of %zu bytes, of which %zu are residuals", count, stage,
                         arena, bytes.residuals);
            tow_train_free(made);
            tow_group_free(group);
        }
}

/* ---- a table that reads the input and makes the logits ----------------------------------------------------------- */

enum {
    WORDS = 1024,
    TABLE = WORDS * 16 * (int)sizeof(float)
};

static void call_tied(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    tow_embed tokens = TOW_EMBED(.num_embeddings = WORDS, .features = 16);
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2, .causal = true);
    tow_scan blocks = TOW_SCAN(&block, .length = 3);
    tow_layer_norm norm = TOW_LAYER_NORM();
    (void)module, (void)n_in, (void)n_out;
    tow_value x = tow_apply(s, "blocks", &blocks, tow_apply(s, "tokens", &tokens, in[0]));
    out[0] = tow_embed_attend(s, "tokens", &tokens, tow_apply(s, "norm", &norm, x));
}

/* Its gradient is summed in two places, in front of the loop of the backward pass and behind it: the first sum, which
 * travels beside the loop, has ended when the second one begins. So the memory where half of an array arrives is there
 * once, and so is a whole gradient. Small sums, those of the norm, travel in between, or later. */
static void test_tied_table(void **state)
{
    (void)state;
    static const tow_module_class class = {.name = "Tied", .call = call_tied};
    static const tow_module module = {.cls = &class};
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){B, 6});
    for (int count = 2; count <= MOST; count += 2)
        for (int stage = TOW_SHARD_SLOTS; stage <= TOW_SHARD_GRADIENTS; stage++) {
            tow_group *group;
            tow_train_state *made;
            OK(tow_group_plan_only(ctx, 0, count, NULL, &group));
            const tow_train_options train =
                TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01)}, .n_inputs = 1,
                                  .input_types = &type, .n_extra = 1, .extra_types = &type, .loss = loss_function,
                                  .n_aux = 2, .row_groups = ROW_GROUPS, .group = group, .shard = stage);
            OK(tow_train_create(ctx, &module, &train, &made));
            const tow_train_bytes bytes = tow_train_get_bytes(made);
            const counted c =
                count_parameters(tow_train_loss_graph(made), tow_params_count(tow_train_params(made)), 0, count);
            if (bytes.exchange > TABLE / 2 + c.rows + 4096)
                fail_msg("%d processes, stage %d: %zu bytes arrive at once, of a table of %d and rows of %zu", count,
                         stage, bytes.exchange, TABLE, c.rows);
            tow_train_free(made);
            tow_group_free(group);
        }
}

/* ---- a limit ----------------------------------------------------------------------------------------------------- */

/* More than stage 3 takes, and less than any plan of stage 0. */
static void test_limit(void **state)
{
    (void)state;
    enum {
        COUNT = 4
    };
    job none = {.stage = TOW_SHARD_NOTHING}, all = {.stage = TOW_SHARD_PARAMETERS};
    tow_group *group;
    tow_train_state *made;
    tow_memory_point least;
    size_t n;
    OK(tow_group_plan_only(ctx, 0, COUNT, NULL, &group));
    OK(create(ctx, group, &none, &made));
    OK(tow_train_memory_curve(made, 1, &least, &n));
    tow_train_free(made);
    for (int r = 0; r < COUNT; r++) plan_rank(r, COUNT, &all);
    assert_true(all.said[0].total < least.bytes);
    none.limit = all.limit = (all.said[0].total + least.bytes) / 2;
    assert_int_equal(create(ctx, group, &none, &made), TOW_INVALID_ARGUMENT);
    char expected[80];
    snprintf(expected, sizeof expected, "expected at least %zu bytes, found %zu", least.bytes, none.limit);
    static const char *const kinds[] = {"parameters ", "slots ", "gradient ", "exchange ", "by layer: "};
    assert_non_null(strstr(tow_context_error(ctx), expected));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strstr(tow_context_error(ctx), kinds[i])) fail_msg("no %s in: %s", kinds[i], tow_context_error(ctx));
    OK(create(ctx, group, &all, &made));
    assert_true(tow_train_get_bytes(made).total <= all.limit);
    tow_train_free(made);
    tow_group_free(group);
    for (int r = 0; r < COUNT; r++) plan_rank(r, COUNT, &all); /* within the limit */
    run_together(COUNT, &all);
}

/* ---- processes that are not there -------------------------------------------------------------------------------- */

static void test_plan_only(void **state)
{
    (void)state;
    tow_group *group = NULL;
    tow_array *x;
    const tow_group_fact fact = {"a fact", "of this one alone"};
    assert_int_equal(tow_group_plan_only(NULL, 0, 1, NULL, &group), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_group_plan_only(ctx, 0, 1, NULL, NULL), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_group_plan_only(ctx, 3, 3, NULL, &group), TOW_INVALID_ARGUMENT);
    assert_null(group);
    OK(tow_group_plan_only(ctx, 2, 3, "others", &group));
    assert_int_equal(tow_group_rank(group), 2);
    assert_int_equal(tow_group_count(group), 3);
    assert_string_equal(tow_group_name(group), "others");
    OK(tow_group_check_same(group, 1, &fact));
    OK(tow_array_create(ctx, F32(64), &x));
    assert_int_equal(tow_group_all_reduce(group, 4, x), TOW_UNSUPPORTED);
    assert_non_null(strstr(tow_context_error(ctx), "plans alone"));
    assert_int_equal(tow_group_get_bytes(NULL).sent, 0);
    tow_array_release(x);
    tow_group_free(group);
    /* So does a step. */
    const job j = {.stage = TOW_SHARD_GRADIENTS};
    tow_train_state *made;
    tow_array *batch[2];
    OK(tow_group_plan_only(ctx, 0, 2, NULL, &group));
    OK(create(ctx, group, &j, &made));
    for (int k = 0; k < 2; k++) batch[k] = random_array(ctx, tow_make_type(TOW_I32, 2, (int64_t[]){B / 2, 6}));
    assert_int_equal(tow_train_step(made, batch, NULL), TOW_UNSUPPORTED);
    for (int k = 0; k < 2; k++) tow_array_release(batch[k]);
    tow_train_free(made);
    tow_group_free(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_said_and_done), cmocka_unit_test(test_collectives), cmocka_unit_test(test_shares),
        cmocka_unit_test(test_layers),        cmocka_unit_test(test_tied_table),  cmocka_unit_test(test_limit),
        cmocka_unit_test(test_plan_only),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
