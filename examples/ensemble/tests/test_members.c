/* Members of an ensemble against the plain network, trained alone from the same keys on the same batches: the same
 * bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ensemble/model.h"

enum {
    MEMBERS = 5,
    WIDTH = 24,
    BATCH = 13,
    STEPS = 40
};

static tow_context *context;

static void must(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "ensemble test: %s: %s\n", what, context ? tow_context_error(context) : "no context");
    exit(1);
}

/* ---- one network in the place of a member ------------------------------------------------------------------------ */

/* The same path as member `at` has, without vmap. Logits are [1, batch, 10], as ensemble_loss wants them. */
typedef struct alone {
    tow_module module;
    const tow_mlp *member;
    const char *at;
} alone;

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const alone *m = (const alone *)module;
    const tow_type type = tow_value_type(in[0]);
    (void)n_in, (void)n_out;
    tow_value x = tow_reshape(in[0], 2, (int64_t[]){type.dims[0], PIXELS});
    tow_scope *members = tow_scope_begin(scope, "members");
    tow_value logits = tow_apply(members, m->at, m->member, x);
    tow_scope_end(members);
    out[0] = tow_reshape(logits, 3, (int64_t[]){1, type.dims[0], CLASSES});
}

static const tow_module_class alone_class = {.name = "Alone", .call = call};

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* Batch number `step`: images of any numbers, of which none is near another, and labels. */
static void fill_batch(int step, tow_array *const *batch)
{
    float *images = tow_array_data(batch[0]);
    int32_t *labels = tow_array_data(batch[1]);
    for (int i = 0; i < BATCH * PIXELS; i++) images[i] = (float)((step * BATCH * PIXELS + i) * 7919LL % 1009) / 1009;
    for (int i = 0; i < BATCH; i++) labels[i] = (step * 31 + i * i) % CLASSES;
}

static tow_train_state *start(const tow_module *model, const int64_t *unseen, tow_array *const *batch)
{
    const tow_type images = tow_array_type(batch[0]), labels = tow_array_type(batch[1]);
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_cosine(1e-2, STEPS, 0, 0), .weight_decay = 1e-2},
                          .seed = 7, .n_inputs = 1, .input_types = &images, .n_extra = 1, .extra_types = &labels,
                          .loss = ensemble_loss, .loss_user = (void *)(uintptr_t)unseen);
    tow_train_state *state = NULL;
    must(tow_train_create(context, model, &options, &state) == TOW_OK, "train state");
    return state;
}

static void train(tow_train_state *state, tow_array *const *batch)
{
    for (int step = 0; step < STEPS; step++) {
        fill_batch(step, batch);
        must(tow_train_step(state, batch, NULL) == TOW_OK, "step");
    }
}

/* The parameters of the member at `path`, row by row of the stacked ones, against those of the plain network. */
static void compare(const char *when, const tow_train_state *together, const tow_train_state *single, const char *path)
{
    char what[64], differences[2000];
    tow_params *row = NULL, *plain = NULL;
    must(tow_params_subtree(tow_train_params(together), path, &row) == TOW_OK, "row");
    must(tow_params_subtree(tow_train_params(single), path, &plain) == TOW_OK, "plain");
    must(tow_params_count(row) == 6, "kernel and bias of three layers");
    tow_params_compare_text(row, plain, differences, sizeof differences);
    if (differences[0]) fprintf(stderr, "%s\n", differences);
    snprintf(what, sizeof what, "%s, %s", path, when);
    must(tow_params_equal(row, plain), what);
    tow_params_free(row);
    tow_params_free(plain);
}

static void check(int64_t unseen)
{
    ensemble model;
    tow_array *batch[2] = {NULL, NULL};
    const int64_t dims[] = {BATCH, SIDE, SIDE, 1};
    must(tow_array_create(context, tow_make_type(TOW_F32, 4, dims), &batch[0]) == TOW_OK, "images");
    must(tow_array_create(context, tow_make_type(TOW_I32, 1, dims), &batch[1]) == TOW_OK, "labels");
    ensemble_make(&model, MEMBERS, WIDTH);
    tow_train_state *together = start(TOW_MODULE(&model), &unseen, batch), *singles[MEMBERS];
    for (int m = 0; m < MEMBERS; m++) {
        char at[16], path[32];
        snprintf(at, sizeof at, "%d", m);
        snprintf(path, sizeof path, "members/%d", m);
        const alone single = {.module = {&alone_class}, .member = &model.member, .at = at};
        singles[m] = start(TOW_MODULE(&single), &unseen, batch);
        compare("at first", together, singles[m], path);
    }
    train(together, batch);
    for (int m = 0; m < MEMBERS; m++) {
        char path[32];
        snprintf(path, sizeof path, "members/%d", m);
        train(singles[m], batch);
        compare("after training", together, singles[m], path);
        tow_train_free(singles[m]);
    }
    tow_train_free(together);
    tow_array_release(batch[0]);
    tow_array_release(batch[1]);
}

int main(void)
{
    for (int threads = 1; threads <= 3; threads += 2) {
        must(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = threads), &context) == TOW_OK, "context");
        check(-1);
        check(4);
        tow_context_free(context);
        context = NULL;
    }
    printf("ensemble test: members are what they are alone\n");
    return 0;
}
