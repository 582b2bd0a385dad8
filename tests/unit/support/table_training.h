/* Models whose table of tokens has several blocks of rows, and their training, for tests that compare bits: alone, and
 * as one of the processes of a group, each of which may have its share of the table. */
#ifndef TOW_TESTS_TABLE_TRAINING_H
#define TOW_TESTS_TABLE_TRAINING_H

#include "tests/unit/support/row_models.h"

enum {
    VOCABULARY = 1300, /* three blocks, of which the last one is short */
    FEATURES = 12,     /* a share ends within a row */
    TOKENS = 3,        /* of a row */
    STEPS = 2
};

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* Readers of the table. */
enum {
    TIED,     /* by lookups and by the loss */
    UNTIED,   /* by lookups alone */
    ATTENDED, /* by a product that needs all of it, too */
    STACKED,  /* as TIED, around layers of a loop */
    READERS
};

typedef struct table_setting {
    int64_t vocabulary, features;
    int reader;
    tow_dtype dtype, param_dtype;
    bool unrolled, in_bytes; /* in_bytes: slots of 8 bits */
    size_t micro_batches, row_groups;
    int threads;
} table_setting;

typedef struct reading {
    tow_module module;
    const table_setting *s;
} reading;

static tow_value call_blocks(tow_scope *s, const table_setting *w, tow_value x)
{
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2, .causal = true, .dropout_rate = 0.1,
                                                        .dtype = w->dtype, .param_dtype = w->param_dtype);
    tow_scan blocks = TOW_SCAN(&block, .length = 3, .unrolled = w->unrolled);
    return tow_apply(s, "blocks", &blocks, x);
}

/* Losses of labels in[1] behind tokens in[0]. */
static void call_reading(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    const table_setting *w = ((const reading *)(const void *)module)->s;
    const tow_embed tokens = TOW_EMBED(.num_embeddings = w->vocabulary, .features = w->features, .dtype = w->dtype,
                                       .param_dtype = w->param_dtype);
    const tow_dense dense = TOW_DENSE(.features = w->features, .dtype = w->dtype, .param_dtype = w->param_dtype),
                    logits = TOW_DENSE(.features = 1300, .dtype = w->dtype, .param_dtype = w->param_dtype);
    (void)n_in, (void)n_out;
    tow_value x = tow_apply(s, "tokens", &tokens, in[0]);
    if (w->reader == STACKED) x = call_blocks(s, w, x);
    x = tow_tanh(tow_apply(s, "dense", &dense, x));
    if (w->reader == UNTIED)
        out[0] = tow_softmax_cross_entropy(tow_apply(s, "logits", &logits, x), in[1]);
    else if (w->reader == ATTENDED)
        out[0] = tow_softmax_cross_entropy(tow_embed_attend(s, "tokens", &tokens, x), in[1]);
    else
        out[0] = tow_embed_cross_entropy(s, "tokens", &tokens, x, in[1]);
}

static void mean_of_losses(tow_trace *t, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                           void *user)
{
    (void)t, (void)extra, (void)user;
    aux[0] = out[0];
    *loss = tow_mean(tow_convert(out[0], TOW_F32), 0, NULL);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

typedef struct job {
    table_setting s;
    int stage;
    double losses[STEPS];
    uint64_t numbers;
} job;

static inline tow_status create(tow_context *context, tow_group *group, const job *j, tow_train_state **state)
{
    static const tow_module_class class = {.name = "Reading", .call = call_reading};
    const reading m = {.module = {.cls = &class}, .s = &j->s};
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){B, TOKENS});
    const char *const streams[] = {"dropout", NULL};
    const tow_model_options streams_of_model = TOW_MODEL_OPTIONS(.streams = streams);
    const bool halves = j->s.param_dtype != TOW_F32;
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.05), .clip_norm = 0.5}, .seed = 3,
                          .n_inputs = 2, .input_types = (tow_type[]){type, type}, .loss = mean_of_losses, .n_aux = 1,
                          .model = &streams_of_model, .row_groups = j->s.row_groups,
                          .micro_batches = j->s.micro_batches, .master = halves,
                          .loss_scale = j->s.dtype == TOW_F16 ? 64 : 0, .slot_bits = j->s.in_bytes ? 8 : 0,
                          .slot_bits_least = j->s.in_bytes ? 1 : 0, .group = group, .shard = j->stage);
    return tow_train_create(context, &m.module, &options, state);
}

/* Tokens of all blocks, the same ones often, and some that mean rows from the end, as others do from the front. */
static tow_array *draw_tokens(tow_context *context, int64_t vocabulary, bool labels)
{
    tow_array *tokens = random_array(context, tow_make_type(TOW_I32, 2, (int64_t[]){B, TOKENS}));
    for (int i = 0; tokens && i < B * TOKENS; i++) {
        int32_t *x = &((int32_t *)tow_array_data(tokens))[i];
        *x = (int32_t)(*x % 2 ? *x * (vocabulary - 1) / 10 : *x);
        if (!labels && i % 7 == 0) *x = i % 2 ? -1 : (int32_t)(i % 3 == 0 ? vocabulary - 1 : vocabulary / 2);
    }
    return tokens;
}

/* Of whole parameters, by the places of their elements. */
static tow_status hash_places(tow_group *group, int stage, const tow_params *params, uint64_t *numbers)
{
    tow_params *whole = NULL;
    const bool shares = group && stage == TOW_SHARD_PARAMETERS;
    const tow_status status = shares ? tow_params_gather(params, &whole) : TOW_OK;
    const tow_params *list = shares ? whole : params;
    *numbers = 14695981039346656037u;
    for (size_t i = 0; !status && i < tow_params_count(list); i++) {
        const tow_array *array = tow_params_array(list, i);
        *numbers = hash(*numbers, tow_array_data(array), tow_type_bytes(tow_array_type(array)));
    }
    tow_params_free(whole);
    return status;
}

/* Bytes that travelled are those that the plan says. */
static bool as_said(const tow_group *group, const tow_group_bytes *before, tow_train_bytes said)
{
    const tow_group_bytes now = tow_group_get_bytes(group);
    const bool same =
        now.sent - before->sent == STEPS * said.sent && now.received - before->received == STEPS * said.received;
    if (!same)
        fprintf(stderr, "rank %d: sent %llu, received %llu bytes in %d steps of %llu and %llu\n", tow_group_rank(group),
                (unsigned long long)(now.sent - before->sent), (unsigned long long)(now.received - before->received),
                STEPS, (unsigned long long)said.sent, (unsigned long long)said.received);
    return same;
}

static inline tow_status work(tow_context *context, tow_group *group, job *j)
{
    tow_train_state *state = NULL;
    const int groups = (int)j->s.row_groups;
    int begin = 0, end = groups;
    if (group) tow_group_rows(tow_group_rank(group), tow_group_count(group), groups, &begin, &end);
    tow_status status = create(context, group, j, &state);
    const tow_group_bytes before = tow_group_get_bytes(group);
    drawn = 5;
    for (int i = 0; i < STEPS && !status; i++) {
        tow_array *own[2] = {NULL, NULL};
        for (int k = 0; k < 2; k++) {
            tow_array *whole = draw_tokens(context, j->s.vocabulary, k == 1);
            if (whole) own[k] = own_rows(context, whole, begin * B / groups, (end - begin) * B / groups);
            tow_array_release(whole);
        }
        status = own[0] && own[1] ? tow_train_step(state, own, &j->losses[i]) : TOW_OUT_OF_MEMORY;
        for (int k = 0; k < 2; k++) tow_array_release(own[k]);
    }
    if (!status && group && !as_said(group, &before, tow_train_get_bytes(state))) status = TOW_CHECK_FAILED;
    if (!status) status = hash_places(group, j->stage, tow_train_params(state), &j->numbers);
    tow_train_free(state);
    return status;
}

static const table_setting plain = {VOCABULARY, FEATURES, TIED, TOW_F32, TOW_F32, false, false, 1, ROW_GROUPS, 1};

#endif
