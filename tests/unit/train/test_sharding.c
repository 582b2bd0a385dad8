/* Training states of which each process has its share: losses, parameters and checkpoints have the bits of one process
 * that has all, for every number of processes, stage, and way to write layers. Tests
 * autodiff/sharding/analysis.c, autodiff/sharding/inline.c, autodiff/sharding/bodies.c, params/params_shares.c,
 * plan/loop/pipeline_exchanges.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "src/model/init.h"
#include "src/params/params.h"
#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/row_models.h"

enum {
    STAGES = TOW_SHARD_PARAMETERS /* that there are */
};

/* ---- all models -------------------------------------------------------------------------------------------------- */

typedef struct comparison {
    int kind;
    setting s;
    trained expected;
} comparison;

static int train_and_compare(tow_context *context, tow_group *group, void *user)
{
    const comparison *c = user;
    trained found;
    if (train(context, group, c->kind, ROW_GROUPS, &c->s, &found) != TOW_OK)
        tow_group_abort(group, 1, "%s", tow_context_error(context));
    if (memcmp(found.losses, c->expected.losses, sizeof found.losses) != 0) return differs(group, "the loss");
    return found.numbers == c->expected.numbers ? 0 : differs(group, "a parameter");
}

static void compare(int kind, size_t n, const setting *settings, size_t n_counts, const int *counts)
{
    comparison c = {.kind = kind, .s = {.micro_batches = 1, .threads = 1, .variant = settings[0].variant}};
    OK(train(ctx, NULL, kind, ROW_GROUPS, &c.s, &c.expected));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_counts; k++)
            for (int stage = TOW_SHARD_GRADIENTS; stage <= STAGES; stage++) {
                tow_context *own;
                c.s = settings[i];
                c.s.shard = stage;
                OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = settings[i].threads), &own));
                if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = counts[k]), train_and_compare, &c) != TOW_OK)
                    fail_msg("model %d, setting %zu, %d processes, stage %d: %s", kind, i, counts[k], stage,
                             tow_context_error(own));
                tow_context_free(own);
            }
}

static const int all_counts[] = {1, 2, 3, 4, 8}, few_counts[] = {2, 3};
static const setting plain = {1, 0, 1, false, NULL};

static void test_counts(void **state)
{
    (void)state;
    for (int kind = 0; kind < MODELS; kind++)
        compare(kind, 1, &plain, kind == GPT ? 5 : 1, kind == GPT ? all_counts : few_counts + 1);
}

static void test_settings(void **state)
{
    (void)state;
    const tow_policy nothing = tow_nothing_saveable();
    const setting mlp[] = {{2, 0, 1, false, NULL}, {8, 0, 2, false, NULL}};
    const setting gpt[] = {{1, 0, 2, true, NULL}, {4, 0, 1, false, NULL}, {8, 0, 1, true, &nothing}};
    compare(MLP, 2, mlp, 1, few_counts + 1);
    compare(LSTM, 1, mlp, 1, few_counts);
    compare(GPT, 3, gpt, 1, few_counts + 1);
    for (variant v = EARLY; v <= WEIGHTED; v++) {
        const setting s = {1, 0, 1, false, NULL, v, false};
        compare(MLP, 1, &s, 1, few_counts);
    }
    const setting early = {1, 0, 1, false, NULL, EARLY, false};
    compare(GPT, 1, &early, 1, few_counts);
}

/* ---- steps, and what is kept of them ----------------------------------------------------------------------------- */

typedef struct job {
    int kind, stage, from, to; /* steps */
    bool unrolled;
    const tow_gradient_transform *transform; /* NULL: AdamW with clipping */
    int slot_bits;
    const tow_schedule_free *mixed;      /* the parameters that it is evaluated with are compared; or NULL */
    bool all;                            /* that checkpoints may have: averages, and the scale of the loss */
    const char *load, *save;             /* NULL: neither */
    uint64_t numbers;                    /* of parameters, or what they must be */
    size_t slots, gradients, parameters; /* bytes, or as many at most; 0: any */
} job;

/* Gathered parameters are those of one process. */
static tow_status check_gathered(const tow_train_state *state, uint64_t numbers)
{
    tow_params *whole = NULL;
    tow_status status = tow_params_gather(tow_train_params(state), &whole);
    if (!status && hash_of_list(whole) != numbers) status = TOW_CHECK_FAILED;
    tow_params_free(whole);
    return status;
}

static tow_status hash_mixed(const tow_train_state *state, const tow_schedule_free *transform, uint64_t *numbers)
{
    tow_params *mixed = NULL;
    const tow_status status = tow_schedule_free_params(tow_train_optimizer(state), transform, &mixed);
    if (!status) *numbers = hash_of_list(mixed);
    tow_params_free(mixed);
    return status;
}

static tow_status take_step(tow_context *context, tow_train_state *state, const tow_type *types, int kind, int step,
                            int64_t first, int64_t count)
{
    tow_array *own[2] = {NULL, NULL};
    drawn = 1000 + (uint32_t)step;
    for (int k = 0; k < 2; k++) {
        tow_array *whole = random_array(context, types[k]);
        for (int64_t i = 0; whole && kind != GPT && k == 1 && i < B; i++) ((int32_t *)tow_array_data(whole))[i] %= 3;
        if (whole) own[k] = own_rows(context, whole, first, count);
        tow_array_release(whole);
    }
    const tow_status status = own[0] && own[1] ? tow_train_step(state, own, NULL) : TOW_OUT_OF_MEMORY;
    for (int k = 0; k < 2; k++) tow_array_release(own[k]);
    return status;
}

/* Takes the steps of a job; *result: what came of them. */
static tow_status work(tow_context *context, tow_group *group, const job *j, job *result)
{
    static const tow_module_class class = {.name = "Model", .call = call_model};
    const model m = {.module = {.cls = &class}, .kind = j->kind, .unrolled = j->unrolled};
    const tow_type types[2] = {j->kind == GPT ? tow_make_type(TOW_I32, 2, (int64_t[]){B, 6}) : F32(B, 5),
                               tow_make_type(TOW_I32, j->kind == GPT ? 2 : 1, (int64_t[]){B, 6})};
    const char *const streams[] = {"dropout", NULL};
    const tow_model_options options = TOW_MODEL_OPTIONS(.streams = streams);
    tow_train_options train =
        TOW_TRAIN_OPTIONS(.seed = 3, .n_inputs = 1, .input_types = &types[0], .n_extra = 1, .extra_types = &types[1],
                          .loss = loss_function, .n_aux = 2, .model = &options, .row_groups = ROW_GROUPS,
                          .group = group, .shard = j->stage, .transform = j->transform, .slot_bits = j->slot_bits,
                          .slot_bits_least = 64);
    const tow_average_options average = TOW_AVERAGE_OPTIONS(.decay = 0.75, .debias = true);
    if (j->all) {
        train.average = &average;
        train.loss_scale = 1024;
        train.loss_scale_period = 3;
    }
    if (!j->transform) {
        train.optimizer.learning_rate = tow_schedule_constant(0.01);
        train.optimizer.clip_norm = 0.5;
    }
    tow_train_state *state = NULL;
    int begin = 0, end = ROW_GROUPS;
    if (group) tow_group_rows(tow_group_rank(group), tow_group_count(group), ROW_GROUPS, &begin, &end);
    tow_status status = tow_train_create(context, &m.module, &train, &state);
    if (!status && j->load) status = tow_train_load(state, j->load);
    for (int i = j->from; i < j->to && !status; i++)
        status = take_step(context, state, types, j->kind, i, begin * B / ROW_GROUPS, (end - begin) * B / ROW_GROUPS);
    if (!status && j->save) status = tow_train_save_all(state, group, j->save);
    if (!status) {
        const tow_train_bytes bytes = tow_train_get_bytes(state);
        result->numbers = hash_of_all(context, group, j->stage, tow_train_params(state));
        result->parameters = bytes.parameters;
        result->slots = bytes.optimizer;
        result->gradients = bytes.gradients;
    }
    if (!status) status = check_gathered(state, result->numbers);
    if (!status && j->mixed) status = hash_mixed(state, j->mixed, &result->numbers);
    tow_train_free(state);
    return status;
}

static int work_and_compare(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    job found = *j;
    if (work(context, group, j, &found) != TOW_OK) tow_group_abort(group, 1, "%s", tow_context_error(context));
    if (found.numbers != j->numbers) return differs(group, "a parameter");
    if (j->parameters > 0 && found.parameters > j->parameters) return differs(group, "the bytes of parameters");
    if ((j->slots == 0 || found.slots <= j->slots) && (j->gradients == 0 || found.gradients <= j->gradients)) return 0;
    fprintf(stderr, "rank %d: slots take %zu bytes and gradients %zu, expected at most %zu and %zu\n",
            tow_group_rank(group), found.slots, found.gradients, j->slots, j->gradients);
    return 1;
}

static void work_together(int count, job *j)
{
    tow_context *own;
    OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &own));
    if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = count), work_and_compare, j) != TOW_OK)
        fail_msg("%d processes, stage %d: %s", count, j->stage, tow_context_error(own));
    tow_context_free(own);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* The share of n elements is n / N, and a line of 16 at most. The model has 17 arrays, each with a gradient and two
 * slots, and 23 layers of them. Of one gradient two sums are added, of which one is whole. */
static void test_bytes(void **state)
{
    (void)state;
    job whole = {.kind = GPT, .from = 0, .to = 1};
    OK(work(ctx, NULL, &whole, &whole));
    for (int count = 2; count <= 8; count *= 2)
        for (int stage = count == 2 ? TOW_SHARD_SLOTS : TOW_SHARD_GRADIENTS; stage <= STAGES; stage++) {
            job j = whole;
            j.stage = stage;
            j.slots = whole.slots / (size_t)count + 2 * 23 * 31 * sizeof(float);
            j.gradients = whole.gradients / (size_t)count + (23 * 31 + 11 * 16) * sizeof(float);
            j.parameters =
                stage < TOW_SHARD_PARAMETERS ? 0 : whole.parameters / (size_t)count + 23 * 31 * sizeof(float);
            if (stage == TOW_SHARD_PARAMETERS) j.gradients += 1024 * sizeof(float); /* the largest one of a layer */
            work_together(count, &j);
        }
}

/* ---- optimizers -------------------------------------------------------------------------------------------------- */

/* Norms of updates, of layers and of parameters are made of what is gathered; other slots than those of elements stay
 * in every process. */
static void test_optimizers(void **state)
{
    (void)state;
    tow_scale_by_learning_rate rate = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(0.01));
    tow_scale_by_adam adam = TOW_SCALE_BY_ADAM();
    tow_scale_by_trust_ratio ratio = TOW_SCALE_BY_TRUST_RATIO();
    tow_trace_gradients momentum = TOW_TRACE_GRADIENTS(.decay = 0.9);
    tow_scale_by_factored_rms factored = TOW_SCALE_BY_FACTORED_RMS(.min_dim_size_to_factor = 4);
    tow_clip_by_block_rms block = TOW_CLIP_BY_BLOCK_RMS(.threshold = 1);
    tow_scale_by_muon muon = TOW_SCALE_BY_MUON();
    tow_centralize centralize = TOW_CENTRALIZE();
    tow_chain lamb = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&adam), TOW_GRADIENT_TRANSFORM(&ratio),
                               TOW_GRADIENT_TRANSFORM(&rate)),
              lars = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&ratio), TOW_GRADIENT_TRANSFORM(&momentum),
                               TOW_GRADIENT_TRANSFORM(&rate)),
              adafactor = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&factored), TOW_GRADIENT_TRANSFORM(&block),
                                    TOW_GRADIENT_TRANSFORM(&momentum), TOW_GRADIENT_TRANSFORM(&rate)),
              matrices = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&muon), TOW_GRADIENT_TRANSFORM(&rate)),
              centered = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&centralize), TOW_GRADIENT_TRANSFORM(&adam),
                                   TOW_GRADIENT_TRANSFORM(&rate));
    const tow_partition_rule rules[] = {
        {"//kernel", TOW_GRADIENT_TRANSFORM(&matrices)}, {"//bias", NULL}, {"**", TOW_GRADIENT_TRANSFORM(&lamb)}};
    tow_partition orthogonal = TOW_PARTITION(.rules = rules, .n = 3);
    tow_lookahead ahead = TOW_LOOKAHEAD(&centered, .sync_period = 2);
    const tow_gradient_transform *all[] = {TOW_GRADIENT_TRANSFORM(&lamb),      TOW_GRADIENT_TRANSFORM(&lars),
                                           TOW_GRADIENT_TRANSFORM(&adafactor), TOW_GRADIENT_TRANSFORM(&orthogonal),
                                           TOW_GRADIENT_TRANSFORM(&centered),  TOW_GRADIENT_TRANSFORM(&ahead),
                                           TOW_GRADIENT_TRANSFORM(&rate)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        job j = {.kind = i == 3 ? MLP : GPT, .from = 0, .to = 3, .transform = all[i]}; /* Muon: of matrices */
        OK(work(ctx, NULL, &j, &j));
        j.slots = j.gradients = j.parameters = 0;
        for (j.stage = STAGES - 1; j.stage <= STAGES; j.stage++) work_together(3, &j);
    }
    tow_schedule_free free_rate = TOW_SCHEDULE_FREE(&rate, .b1 = 0.9);
    job mixed = {.kind = GPT, .from = 0, .to = 3, .transform = TOW_GRADIENT_TRANSFORM(&free_rate), .mixed = &free_rate};
    OK(work(ctx, NULL, &mixed, &mixed));
    mixed.slots = mixed.gradients = mixed.parameters = 0;
    for (mixed.stage = STAGES - 1; mixed.stage <= STAGES; mixed.stage++) work_together(3, &mixed);
    job bytes = {.kind = GPT, .from = 0, .to = 2, .slot_bits = 8};
    OK(work(ctx, NULL, &bytes, &bytes));
    bytes.slots = bytes.gradients = bytes.parameters = 0;
    bytes.stage = STAGES;
    work_together(2, &bytes);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static size_t read_file(const char *path, char **data)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    const size_t size = (size_t)ftell(file);
    rewind(file);
    *data = malloc(size);
    assert_true(*data && fread(*data, 1, size, file) == size);
    fclose(file);
    return size;
}

static void expect_same_files(const char *a, const char *b)
{
    char *x, *y;
    const size_t n = read_file(a, &x);
    assert_int_equal(read_file(b, &y), n);
    assert_memory_equal(x, y, n);
    free(x), free(y);
}

/* Any stage and number of processes write one file, and go on from it; unrolled layers have it in another order. */
static void test_checkpoints(void **state)
{
    (void)state;
    static const struct {
        int count, stage;
        bool unrolled;
    } ways[] = {{2, 1, false}, {3, 0, true}, {8, STAGES, true}, {3, STAGES, false}};
    char folder[] = "/tmp/tow_sharding_XXXXXX", one[64], many[64], last[64];
    assert_non_null(mkdtemp(folder));
    snprintf(one, sizeof one, "%s/one", folder);
    snprintf(many, sizeof many, "%s/many", folder);
    snprintf(last, sizeof last, "%s/last", folder);
    job first = {.kind = GPT, .from = 0, .to = 2, .all = true, .slot_bits = 8, .save = one}, second = first;
    second.from = 2, second.to = 4;
    OK(work(ctx, NULL, &first, &first));
    second.load = one, second.save = last;
    OK(work(ctx, NULL, &second, &second));
    first.slots = first.gradients = first.parameters = 0;
    second.slots = second.gradients = second.parameters = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const size_t next = (i + 1) % (sizeof ways / sizeof *ways);
        first.save = many, first.stage = ways[i].stage, first.unrolled = ways[i].unrolled;
        work_together(ways[i].count, &first);
        if (!ways[i].unrolled) expect_same_files(one, many);
        second.load = many, second.save = many, second.stage = ways[next].stage, second.unrolled = ways[next].unrolled;
        work_together(ways[next].count, &second);
        if (!ways[next].unrolled) expect_same_files(last, many);
    }
    unlink(one), unlink(many), unlink(last), rmdir(folder);
}

/* ---- what travels during which iteration ------------------------------------------------------------------------- */

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

/* A block has kernel and bias of query, key, value, out, up and down, and scale and bias of two norms. The forward pass
 * reads all 16, the backward pass all but the 8 that are added; each has a sum. */
static int begin_ahead(tow_context *context, tow_group *group, void *user)
{
    static char text[1 << 20];
    static const tow_module_class class = {.name = "Model", .call = call_model};
    const int stage = *(const int *)user;
    const model m = {.module = {.cls = &class}, .kind = GPT};
    const tow_type types[2] = {tow_make_type(TOW_I32, 2, (int64_t[]){B, 6}),
                               tow_make_type(TOW_I32, 2, (int64_t[]){B, 6})};
    const char *const streams[] = {"dropout", NULL};
    const tow_model_options options = TOW_MODEL_OPTIONS(.streams = streams);
    const tow_train_options train =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01), .clip_norm = 1}, .n_inputs = 1,
                          .input_types = &types[0], .n_extra = 1, .extra_types = &types[1], .loss = loss_function,
                          .n_aux = 2, .model = &options, .row_groups = ROW_GROUPS, .group = group, .shard = stage);
    tow_train_state *state = NULL;
    if (tow_train_create(context, &m.module, &train, &state) != TOW_OK) return 1;
    if (tow_program_text(tow_train_program(state), text, sizeof text) >= sizeof text) return 2;
    if (tow_program_check(tow_train_program(state)) != TOW_OK)
        tow_group_abort(group, 3, "%s", tow_context_error(context));
    tow_train_free(state);
    const int ahead = count(text, "begins an iteration ahead"), later = count(text, "ends in the next iteration");
    /* Input 0 is the table of tokens, which serves the first layer, the last product and its gradient. */
    if (count(text, "all_gather_start(#0 ") != (stage == TOW_SHARD_PARAMETERS)) return 5;
    if (ahead == (stage == TOW_SHARD_PARAMETERS ? 16 + 8 : 0) && later == 16) return 0;
    fprintf(stderr, "stage %d: %d gathers begin ahead, %d sums end in the next iteration:\n%s", stage, ahead, later,
            text);
    return 4;
}

static void test_travels(void **state)
{
    (void)state;
    for (int stage = 1; stage <= STAGES; stage++)
        for (int count = 2; count <= 3; count++) {
            tow_context *own;
            OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &own));
            if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = count), begin_ahead, &stage) != TOW_OK)
                fail_msg("%d processes, stage %d: %s", count, stage, tow_context_error(own));
            tow_context_free(own);
        }
}

/* ---- initial values ---------------------------------------------------------------------------------------------- */

enum {
    SCRATCH = 200 << 10 /* bytes of what describes the model */
};

/* A table and eight layers. */
static void call_wide(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    tow_embed tokens = TOW_EMBED(.num_embeddings = 4096, .features = 128);
    tow_dense layer = TOW_DENSE(.features = 128);
    tow_scan layers = TOW_SCAN(&layer, .length = 8);
    (void)module, (void)n_in, (void)n_out;
    out[0] = tow_apply(s, "layers", &layers, tow_apply(s, "tokens", &tokens, in[0]));
}

static const tow_module_class wide_class = {.name = "Wide", .call = call_wide};
static const tow_module wide = {.cls = &wide_class};

/* A process draws its share, with the bits of the whole, and never has more memory than for that. */
static int draw_share(tow_context *context, tow_group *group, void *user)
{
    const uint64_t expected = *(const uint64_t *)user;
    const tow_type type = tow_make_type(TOW_I32, 1, (int64_t[]){4});
    tow_params *params = NULL, *state = NULL;
    counting c;
    tow_context *own;
    size_t bytes = 0;
    const tow_context_options options = counting_options(&c, -1);
    if (tow_context_create(&options, &own) != TOW_OK) return 1;
    const size_t before = c.bytes;
    if (tow__model_init_shares(own, &wide, 5, 1, &type, NULL, group, &params, &state) != TOW_OK) return 2;
    const size_t peak = c.peak;
    for (size_t i = 0; i < tow_params_count(params); i++) bytes += tow_type_bytes(params->types[i]);
    const size_t whole = (4096 * 128 + 8 * 129 * 128) * sizeof(float);
    if (bytes > whole / (size_t)tow_group_count(group) + 10 * 31 * sizeof(float)) return 3;
    if (peak > before + bytes + SCRATCH) {
        fprintf(stderr, "peak %zu, share %zu\n", peak - before, bytes);
        return 4;
    }
    const uint64_t numbers = hash_of_shares(context, group, params);
    tow_params_free(params), tow_params_free(state);
    tow_context_free(own);
    return numbers == expected ? 0 : differs(group, "an initial value");
}

static void test_initial_values(void **state)
{
    (void)state;
    const tow_type type = tow_make_type(TOW_I32, 1, (int64_t[]){4});
    tow_params *params;
    tow_context *own;
    OK(tow_model_init(ctx, &wide, 5, 1, &type, &params));
    uint64_t numbers = hash_of_list(params);
    tow_params_free(params);
    for (int count = 2; count <= 4; count++) {
        OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &own));
        if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = count), draw_share, &numbers) != TOW_OK)
            fail_msg("%d processes: %s", count, tow_context_error(own));
        tow_context_free(own);
    }
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static int save_alone(tow_context *context, tow_group *group, void *user)
{
    job j = {.kind = MLP, .stage = 1};
    (void)user;
    if (work(context, group, &j, &j) != TOW_OK) return 1;
    static const tow_module_class class = {.name = "Model", .call = call_model};
    const model m = {.module = {.cls = &class}, .kind = MLP};
    const tow_type types[2] = {F32(B, 5), tow_make_type(TOW_I32, 1, (int64_t[]){B})};
    const char *const streams[] = {"dropout", NULL};
    const tow_model_options options = TOW_MODEL_OPTIONS(.streams = streams);
    tow_train_options train =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01)}, .n_inputs = 1,
                          .input_types = &types[0], .n_extra = 1, .extra_types = &types[1], .loss = loss_function,
                          .n_aux = 2, .model = &options, .row_groups = ROW_GROUPS, .group = group, .shard = 1);
    tow_train_state *state;
    if (tow_train_create(context, &m.module, &train, &state) != TOW_OK) return 2;
    if (tow_train_save(state, "/tmp/tow_sharding_alone") != TOW_INVALID_ARGUMENT) return 3;
    tow_train_free(state);
    train.shard = 2 + tow_group_rank(group);
    if (tow_train_create(context, &m.module, &train, &state) != TOW_INVALID_ARGUMENT) return 4;
    if (!strstr(tow_context_error(context), "stage of sharding")) return 5;
    train.shard = 4;
    return tow_train_create(context, &m.module, &train, &state) == TOW_INVALID_ARGUMENT ? 0 : 6;
}

static void test_refused(void **state)
{
    (void)state;
    tow_context *own;
    OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &own));
    if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = 2), save_alone, NULL) != TOW_OK)
        fail_msg("%s", tow_context_error(own));
    tow_context_free(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),     cmocka_unit_test(test_settings),       cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_optimizers), cmocka_unit_test(test_initial_values), cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_travels),    cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
