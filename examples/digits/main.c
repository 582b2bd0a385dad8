/* Trains a convolutional network on handwritten digits. It prints how many of the held-out ones it reads correctly and
 * which it confuses, and writes its weights, the images that it misread, its first filters and its curve of accuracy.
 * `digits --help` lists the options. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/run.h"
#include "data.h"
#include "evaluate.h"
#include "model.h"

typedef struct digits_run {
    run base;
    int64_t batch;
    const char *tensorboard; /* directory, or NULL */
    tow_loader *loader, *held_out;
    digits_model model;
    tow_train_state *state;
    evaluation evaluation;
} digits_run;

static void read_options(int argc, char **argv, digits_run *r)
{
    *r = (digits_run){.base = {.program = "digits",
                               .purpose = "Trains a convolutional network on handwritten digits of 8 x 8 pixels.",
                               .options = {.steps = 1100, .learning_rate = 3e-3, .out = "out/digits"}},
                      .batch = 64};
    const example_option own[] = {IMAGE_OPTIONS(&r->batch, &r->tensorboard), {0}};
    read_run_options(&r->base, argc, argv, own);
}

static tow_status make_state(digits_run *r)
{
    char description[256]; /* of the batches, so that a checkpoint refuses to go on with others */
    tow_loader_describe(r->loader, description, sizeof description);
    const common_options *o = &r->base.options;
    static const char *const streams[] = {"dropout", NULL};
    const tow_model_options model = TOW_MODEL_OPTIONS(.streams = streams);
    const tow_type images = tow_loader_type(r->loader, 0), labels = tow_loader_type(r->loader, 1);
    digits_make(&r->model);
    const tow_train_options train =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate =
                                            tow_schedule_warmup_cosine(0, o->learning_rate, o->steps / 10, o->steps, 0),
                                        .weight_decay = 1e-2},
                          .seed = o->seed, .n_inputs = 1, .input_types = &images, .n_extra = 1, .extra_types = &labels,
                          .loss = digits_loss, .model = &model, .description = description);
    tow_status status = tow_train_create(r->base.context, TOW_MODULE(&r->model), &train, &r->state);
    return status ? status
                  : evaluation_create(r->base.context, r->held_out, TOW_MODULE(&r->model), r->state, &r->evaluation);
}

static int prepare(digits_run *r)
{
    if (open_run(&r->base) != SUCCESS) return FAILURE;
    r->loader = digits_open(r->base.context, true, r->batch, r->base.options.seed);
    if (!r->loader) return tow_context_status(r->base.context) == TOW_INVALID_ARGUMENT ? BAD_OPTION : FAILURE;
    r->held_out = digits_open(r->base.context, false, 0, 0);
    if (!r->held_out || !make_directory("digits", r->base.options.out)) return FAILURE;
    return make_state(r) == TOW_OK ? SUCCESS : complain(&r->base);
}

/* One update; after each epoch, and the last update, the accuracy on what is held out. */
static int step(digits_run *r, progress *p)
{
    const int64_t done = tow_train_step_count(r->state), per_epoch = tow_loader_batch_count(r->loader);
    double loss, accuracy = NAN;
    if (step_on_next(&r->base, r->loader, r->state, &loss) != SUCCESS) return FAILURE;
    if ((done + 1) % per_epoch == 0 || done + 1 == r->base.options.steps) {
        if (evaluate(&r->evaluation) != TOW_OK) return complain(&r->base);
        accuracy = r->evaluation.accuracy;
        if (!evaluation_note(&r->evaluation, done + 1)) return FAILURE;
    }
    return progress_step(p, done + 1, loss, accuracy) ? SUCCESS : FAILURE;
}

static int train(digits_run *r)
{
    const common_options *o = &r->base.options;
    progress p;
    const progress_options shown = {.program = "digits",
                                    .steps = o->steps,
                                    .unit = "images",
                                    .units_per_step = r->batch,
                                    .measure = "accuracy",
                                    .measure_key = "accuracy",
                                    .log = o->log,
                                    .events = r->tensorboard};
    if (!progress_start(&p, &shown)) return FAILURE;
    int status = SUCCESS;
    catch_interrupts();
    while (status == SUCCESS && !interrupted() && tow_train_step_count(r->state) < o->steps) status = step(r, &p);
    return end_training(&p, status, tow_train_step_count(r->state), "");
}

/* Writes the files that a run leaves, also one that was stopped. */
static tow_status finish(digits_run *r)
{
    tow_status status = evaluate(&r->evaluation);
    if (!status) evaluation_print(&r->evaluation);
    if (!status) status = evaluation_draw(&r->evaluation, r->state, r->base.options.out);
    return status ? status : save_weights(&r->base, r->state);
}

int main(int argc, char **argv)
{
    static digits_run r;
    read_options(argc, argv, &r);
    int status = prepare(&r);
    if (status == SUCCESS) status = train(&r);
    if ((status == SUCCESS || status == INTERRUPTED) && finish(&r) != TOW_OK) status = complain(&r.base);
    status = finish_output("digits", status);
    evaluation_free(&r.evaluation);
    tow_train_free(r.state);
    tow_loader_free(r.loader);
    tow_loader_free(r.held_out);
    tow_context_free(r.base.context);
    return status;
}
