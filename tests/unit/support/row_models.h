/* Small models of every kind and their training, for tests that compare bits however the rows of a batch are cut. */
#ifndef TOW_TESTS_ROW_MODELS_H
#define TOW_TESTS_ROW_MODELS_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tow/tow.h"

#define F32(...)                                                                                                       \
    tow_make_type(TOW_F32, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

enum {
    B = 16, /* rows of a batch */
    ROW_GROUPS = 8
};

/* In a process: what it has and one process would not. */
static inline int differs(const tow_group *group, const char *what)
{
    fprintf(stderr, "rank %d of %d: %s differs from that of one process\n", tow_group_rank(group),
            tow_group_count(group), what);
    return 1;
}

static uint32_t drawn;
static float draw(void)
{
    drawn = drawn * 1664525u + 1013904223u;
    return (float)(drawn >> 8) / (float)(1 << 23) - 1;
}

/* NULL: no memory. */
static tow_array *random_array(tow_context *context, tow_type type)
{
    tow_array *array = NULL;
    if (tow_array_create(context, type, &array) != TOW_OK) return NULL;
    const int64_t n = tow_type_element_count(type);
    for (int64_t i = 0; i < n && type.dtype == TOW_F32; i++) ((float *)tow_array_data(array))[i] = draw();
    for (int64_t i = 0; i < n && type.dtype == TOW_I32; i++) {
        draw();
        ((int32_t *)tow_array_data(array))[i] = (int32_t)(drawn >> 16) % 11;
    }
    return array;
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

typedef struct model {
    tow_module module;
    int kind;
    bool unrolled, cheap;
    const tow_policy *policy;
    int64_t unroll; /* of loops over one layer */
} model;

enum {
    MLP,
    CONV,
    NORMALIZED, /* by statistics of the batch */
    LSTM,
    GPT,
    EMBED,   /* of a table with more rows than a batch has tokens */
    GROUPED, /* convolutions with groups of features, of which the first is depthwise */
    LOOP,    /* over one layer with a norm, whose scale and bias all iterations share */
    MODELS
};

static void call_mlp(tow_scope *s, const tow_value *in, tow_value *out)
{
    tow_dense hidden = TOW_DENSE(.features = 24), last = TOW_DENSE(.features = 3);
    tow_dropout dropout = TOW_DROPOUT(.rate = 0.25);
    tow_layer_norm norm = TOW_LAYER_NORM();
    tow_value x = tow_relu(tow_apply(s, "hidden", &hidden, in[0]));
    out[0] = tow_apply(s, "last", &last, tow_apply(s, "norm", &norm, tow_apply(s, "dropout", &dropout, x)));
}

static void call_conv(tow_scope *s, bool statistics, const tow_value *in, tow_value *out)
{
    tow_conv first = TOW_CONV(.features = 8, .kernel_size = {3, 3});
    tow_batch_norm norm = TOW_BATCH_NORM();
    tow_dense last = TOW_DENSE(.features = 3);
    tow_value x = tow_apply(s, "first", &first, in[0]);
    if (statistics) x = tow_apply(s, "norm", &norm, x);
    x = tow_max_pool(tow_relu(x), &TOW_POOL_OPTIONS(.spatial = 2, .window = {2, 2}, .strides = {2, 2}));
    const tow_type type = tow_value_type(x);
    x = tow_reshape(x, 2, (int64_t[]){type.dims[0], tow_type_element_count(type) / type.dims[0]});
    out[0] = tow_apply(s, "last", &last, x);
}

static void call_lstm(tow_scope *s, const model *m, const tow_value *in, tow_value *out)
{
    tow_lstm_cell cell = TOW_LSTM_CELL(.features = 12);
    tow_remat cheap = TOW_REMAT(&cell, .policy = m->policy ? *m->policy : tow_nothing_saveable());
    tow_rnn rnn = m->policy ? TOW_RNN(&cheap, .unroll = m->unroll) : TOW_RNN(&cell, .unroll = m->unroll);
    tow_dense last = TOW_DENSE(.features = 3);
    tow_value x = tow_apply(s, "rnn", &rnn, in[0]); /* [B, T, 12] */
    out[0] = tow_apply(s, "last", &last, tow_mean(x, 1, (int[]){1}));
}

static void call_gpt(tow_scope *s, const model *m, const tow_value *in, tow_value *out)
{
    tow_embed tokens = TOW_EMBED(.num_embeddings = 11, .features = 16);
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2, .causal = true, .dropout_rate = 0.1);
    tow_remat cheap = TOW_REMAT(&block, .policy = m->policy ? *m->policy : tow_nothing_saveable());
    tow_scan blocks = m->policy ? TOW_SCAN(&cheap, .length = 2, .unrolled = m->unrolled)
                                : TOW_SCAN(&block, .length = 2, .unrolled = m->unrolled);
    tow_value x = tow_apply(s, "blocks", &blocks, tow_apply(s, "tokens", &tokens, in[0]));
    out[0] = tow_embed_attend(s, "tokens", &tokens, x);
}

static void call_embed(tow_scope *s, const tow_value *in, tow_value *out)
{
    tow_embed tokens = TOW_EMBED(.num_embeddings = 1000, .features = 8);
    tow_dense last = TOW_DENSE(.features = 3);
    out[0] = tow_apply(s, "last", &last, tow_tanh(tow_mean(tow_apply(s, "tokens", &tokens, in[0]), 1, (int[]){1})));
}

static void call_grouped(tow_scope *s, const tow_value *in, tow_value *out)
{
    tow_conv depthwise = TOW_CONV(.features = 4, .kernel_size = {3, 3}, .groups = 2),
             grouped = TOW_CONV(.features = 6, .kernel_size = {2, 2}, .strides = {2, 2}, .groups = 2);
    tow_dense last = TOW_DENSE(.features = 3);
    tow_value x = tow_relu(tow_apply(s, "depthwise", &depthwise, in[0]));
    x = tow_mean(tow_apply(s, "grouped", &grouped, x), 2, (int[]){1, 2});
    out[0] = tow_apply(s, "last", &last, x);
}

static void call_iteration(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                           tow_value *out)
{
    tow_layer_norm norm = TOW_LAYER_NORM();
    tow_dense dense = TOW_DENSE(.features = 5);
    (void)module, (void)n_in, (void)n_out;
    out[0] = tow_tanh(tow_apply(s, "dense", &dense, tow_apply(s, "norm", &norm, in[0])));
}

static void call_loop(tow_scope *s, const model *m, const tow_value *in, tow_value *out)
{
    static const tow_module_class class = {.name = "Iteration", .call = call_iteration};
    const model iteration = {.module = {.cls = &class}};
    tow_remat cheap = TOW_REMAT(&iteration, .policy = m->policy ? *m->policy : tow_nothing_saveable());
    tow_scan loop = TOW_SCAN(&iteration, .length = 3, .variables = TOW_RULES({"params", TOW_SHARED}));
    if (m->policy) loop.inner = &cheap.module;
    loop.unroll = m->unroll;
    tow_dense last = TOW_DENSE(.features = 3);
    out[0] = tow_apply(s, "last", &last, tow_apply(s, "loop", &loop, in[0]));
}

static void call_model(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    const model *m = (const model *)(const void *)module;
    (void)n_in, (void)n_out;
    if (m->kind == MLP) call_mlp(s, in, out);
    if (m->kind == CONV || m->kind == NORMALIZED) call_conv(s, m->kind == NORMALIZED, in, out);
    if (m->kind == LSTM) call_lstm(s, m, in, out);
    if (m->kind == EMBED) call_embed(s, in, out);
    if (m->kind == GROUPED) call_grouped(s, in, out);
    if (m->kind == LOOP) call_loop(s, m, in, out);
    if (m->kind == GPT) call_gpt(s, m, in, out);
}

/* A model with a dense layer. */
static inline void call_small(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                              tow_value *out)
{
    tow_dense last = TOW_DENSE(.features = 3);
    (void)module, (void)n_in, (void)n_out;
    out[0] = tow_apply(s, "last", &last, in[0]);
}

static void loss_function(tow_trace *t, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                          void *user)
{
    (void)t, (void)user;
    tow_value losses = tow_softmax_cross_entropy(out[0], extra[0]);
    *loss = tow_mean(losses, 0, NULL);
    aux[0] = losses;
    aux[1] = tow_reduce_max(losses, 0, NULL);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* The way of training, which says what comes out. */
typedef enum variant {
    CLIPPED,
    EARLY,   /* updates inside the backward pass */
    SKIPPED, /* averages, checks, and a first step that is left out for what is not finite */
    WEIGHTED
} variant;

/* A mean over rows whose label is not 0. */
static void weighted_loss(tow_trace *t, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                          void *user)
{
    (void)t, (void)user;
    const tow_value losses = tow_softmax_cross_entropy(out[0], extra[0]);
    const tow_value counts = tow_convert(tow_ne_scalar(extra[0], 0), TOW_F32);
    aux[0] = tow_reduce_sum(counts, 0, NULL);
    aux[1] = tow_reduce_max(losses, 0, NULL);
    *loss = tow_div(tow_reduce_sum(tow_mul(losses, counts), 0, NULL), aux[0]);
}

/* The settings of a run, which, but for the variant, do not say what comes out. */
typedef struct setting {
    size_t micro_batches, memory_limit;
    int threads;
    bool unrolled;
    const tow_policy *policy;
    variant variant;
    bool verify;
    int shard;
    tow_dtype dtype; /* of the activations; 0: f32 */
    int64_t unroll;  /* of loops over one layer */
} setting;

enum {
    RUNS = 3, /* two steps, and an evaluation */
    MOST_LOSSES = B * 6
};

/* The results of a training. */
typedef struct trained {
    double losses[RUNS];
    float each[RUNS][MOST_LOSSES]; /* of rows; a process writes those of its own */
    double greatest[RUNS];         /* of all rows */
    uint64_t numbers;              /* of parameters and variables */
} trained;

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

static uint64_t hash_of_list(const tow_params *list)
{
    uint64_t numbers = 0;
    for (size_t i = 0; i < tow_params_count(list); i++) {
        const tow_array *array = tow_params_array(list, i);
        const uint32_t *words = tow_array_data(array);
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(array)); k++) /* stacked or not */
            numbers += hash(14695981039346656037u, &words[k], sizeof words[k]);
    }
    return numbers;
}

/* The same of all processes, each of which has its share of every array; 0: they cannot be reached. */
static uint64_t hash_of_shares(tow_context *context, tow_group *group, const tow_params *list)
{
    tow_array *sum = NULL;
    uint64_t numbers = 0;
    if (tow_array_create(context, tow_make_type(TOW_U64, 0, NULL), &sum) != TOW_OK) return 0;
    *(uint64_t *)tow_array_data(sum) = hash_of_list(list);
    if (tow_group_all_reduce(group, ROW_GROUPS, sum) == TOW_OK) numbers = *(uint64_t *)tow_array_data(sum);
    tow_array_release(sum);
    return numbers;
}

static uint64_t hash_of_all(tow_context *context, tow_group *group, int stage, const tow_params *list)
{
    return stage < TOW_SHARD_PARAMETERS ? hash_of_list(list) : hash_of_shares(context, group, list);
}

/* Rows [first, first + count) of B. NULL: no memory. */
static tow_array *own_rows(tow_context *context, tow_array *whole, int64_t first, int64_t count)
{
    tow_type type = tow_array_type(whole);
    const size_t row = tow_type_bytes(type) / B;
    tow_array *own = NULL;
    type.dims[0] = count;
    if (tow_array_create(context, type, &own) == TOW_OK)
        memcpy(tow_array_data(own), (const char *)tow_array_data(whole) + (size_t)first * row, (size_t)count * row);
    return own;
}

static tow_status run_one(tow_context *context, tow_train_state *state, const tow_type *types, int kind, int run,
                          int64_t first, int64_t count, bool spoil, trained *result)
{
    tow_array *batch[2] = {random_array(context, types[0]), random_array(context, types[1])}, *own[2] = {NULL, NULL};
    tow_status status = batch[0] && batch[1] ? TOW_OK : TOW_OUT_OF_MEMORY;
    for (int64_t k = 0; !status && kind != GPT && k < B; k++) ((int32_t *)tow_array_data(batch[1]))[k] %= 3;
    if (!status && spoil) ((float *)tow_array_data(batch[0]))[7] = NAN;
    for (int k = 0; !status && k < 2; k++)
        if (!(own[k] = own_rows(context, batch[k], first, count))) status = TOW_OUT_OF_MEMORY;
    if (!status)
        status = run < 2 ? tow_train_step(state, own, &result->losses[run])
                         : tow_train_evaluate(state, own, &result->losses[run]);
    if (!status) {
        const tow_array *losses = tow_train_aux(state, 0);
        if (isnan(result->losses[run])) result->losses[run] = 0; /* the sign of NaN is anything */
        const int64_t n = tow_type_element_count(tow_array_type(losses)) / count;
        memcpy(&result->each[run][first * n], tow_array_data(losses), (size_t)(n * count) * sizeof(float));
        result->greatest[run] = (double)*(const float *)tow_array_data(tow_train_aux(state, 1));
        for (int64_t k = first * n; k < (first + count) * n; k++)
            if (isnan(result->each[run][k])) result->each[run][k] = 0;
        if (isnan(result->greatest[run])) result->greatest[run] = 0;
    }
    for (int k = 0; k < 2; k++) tow_array_release(batch[k]), tow_array_release(own[k]);
    return status;
}

/* Two steps and an evaluation, as one of the processes of a group; NULL: alone. */
static inline tow_status train(tow_context *context, tow_group *group, int kind, size_t groups, const setting *s,
                               trained *result)
{
    static const tow_module_class class = {.name = "Model", .call = call_model};
    const model m = {
        .module = {.cls = &class}, .kind = kind, .unrolled = s->unrolled, .policy = s->policy, .unroll = s->unroll};
    const tow_type inputs[MODELS] = {[MLP] = F32(B, 5),
                                     [LOOP] = F32(B, 5),
                                     [CONV] = F32(B, 8, 8, 2),
                                     [NORMALIZED] = F32(B, 8, 8, 2),
                                     [LSTM] = F32(B, 5, 4),
                                     [GPT] = tow_make_type(TOW_I32, 2, (int64_t[]){B, 6}),
                                     [EMBED] = tow_make_type(TOW_I32, 2, (int64_t[]){B, 5}),
                                     [GROUPED] = F32(B, 6, 6, 2)};
    const tow_type types[2] = {inputs[kind], tow_make_type(TOW_I32, kind == GPT ? 2 : 1, (int64_t[]){B, 6})};
    const char *const streams[] = {"dropout", NULL};
    const tow_model_options options = TOW_MODEL_OPTIONS(.streams = streams);
    const variant v = s->variant;
    const tow_average_options average = TOW_AVERAGE_OPTIONS(.decay = 0.5);
    tow_train_options train =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01), .clip_norm = 0.5}, .seed = 3,
                          .n_inputs = 1, .input_types = &types[0], .n_extra = 1, .extra_types = &types[1],
                          .loss = loss_function, .n_aux = 2, .model = &options, .micro_batches = s->micro_batches,
                          .row_groups = groups, .memory_limit = s->memory_limit, .evaluation = true, .group = group,
                          .shard = s->shard);
    const tow_precision precise = TOW_PRECISION(&m, .dtype = s->dtype, .output_dtype = TOW_F32);
    tow_train_state *state = NULL;
    int begin = 0, end = ROW_GROUPS;
    if (v != CLIPPED) train.optimizer.clip_norm = 0;
    train.early_update = v == EARLY;
    train.check_finite = v == SKIPPED;
    train.skip_not_finite = v == SKIPPED ? 1 : 0;
    train.average = v == SKIPPED ? &average : NULL;
    train.weighted = v == WEIGHTED;
    if (v == WEIGHTED) train.loss = weighted_loss;
    train.verify = s->verify;
    *result = (trained){.numbers = 0};
    if (group) tow_group_rows(tow_group_rank(group), tow_group_count(group), (int)groups, &begin, &end);
    const int64_t first = begin * B / ROW_GROUPS, count = (end - begin) * B / ROW_GROUPS;
    drawn = 77;
    tow_status status = tow_train_create(context, s->dtype ? &precise.module : &m.module, &train, &state);
    for (int i = 0; i < RUNS && !status; i++)
        status = run_one(context, state, types, kind, i, first, count, v == SKIPPED && i == 0, result);
    if (!status)
        result->numbers = hash_of_all(context, group, s->shard, tow_train_params(state)) +
                          31 * hash_of_list(tow_train_variables(state));
    if (!status && tow_train_averages(state))
        result->numbers += 17 * hash_of_all(context, group, s->shard, tow_train_averages(state));
    tow_train_free(state);
    return status;
}

#endif
