/* Trains an ensemble of networks on handwritten digits as one model, by vmap. It prints how much better calibrated
 * their mean is than a single member, and how much they disagree about held-out digits and about images unlike those
 * that they learned from, and draws both. `ensemble --help` lists the options. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/run.h"
#include "evaluate.h"
#include "model.h"
#include "pictures.h"
#include "sets.h"

typedef struct ensemble_run {
    run base;
    int64_t members, width, batch, unseen;
    tow_loader *loader;
    ensemble model;
    tow_train_state *state;
    evaluation evaluation;
    progress progress;
    bool failed; /* and a message has been printed */
} ensemble_run;

/* Prints the message of the context, unless another one has been printed. */
static int complain_once(const ensemble_run *r)
{
    return r->failed || tow_context_status(r->base.context) == TOW_OK ? FAILURE : complain(&r->base);
}

static void read_options(int argc, char **argv, ensemble_run *r)
{
    *r = (ensemble_run){.base = {.program = "ensemble",
                                 .purpose = "Trains an ensemble of networks on handwritten digits of 8 x 8 pixels.",
                                 .options = {.steps = 1000, .learning_rate = 3e-3, .out = "out/ensemble"}},
                        .members = 8,
                        .width = 128,
                        .batch = 64,
                        .unseen = 7};
    const example_option own[] = {
        {"members", "N", "Networks of the ensemble", OPTION_WHOLE, &r->members, 1, 256},
        {"width", "N", "Units of each of the two hidden layers of a network", OPTION_WHOLE, &r->width, 1, 4096},
        {"batch", "N", "Images per step; all members see the same", OPTION_WHOLE, &r->batch, 1, 1024},
        {"unseen", "DIGIT", "Leave this digit out of training; -1: none", OPTION_WHOLE, &r->unseen, -1, CLASSES - 1},
        {0}};
    read_run_options(&r->base, argc, argv, own);
}

static tow_status make_state(ensemble_run *r)
{
    char description[256]; /* of the batches, so that a checkpoint refuses to go on with others */
    tow_loader_describe(r->loader, description, sizeof description);
    const common_options *o = &r->base.options;
    const tow_type images = tow_loader_type(r->loader, 0), labels = tow_loader_type(r->loader, 1);
    ensemble_make(&r->model, r->members, r->width);
    const tow_train_options train =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate =
                                            tow_schedule_warmup_cosine(0, o->learning_rate, o->steps / 10, o->steps, 0),
                                        .weight_decay = 1e-2},
                          .seed = o->seed, .n_inputs = 1, .input_types = &images, .n_extra = 1, .extra_types = &labels,
                          .loss = ensemble_loss, .loss_user = &r->unseen, .description = description);
    tow_status status = tow_train_create(r->base.context, TOW_MODULE(&r->model), &train, &r->state);
    if (status) return status;
    return evaluation_create("ensemble", r->base.context, &r->model, tow_train_params(r->state), r->unseen, o->seed,
                             &r->evaluation);
}

static int prepare(ensemble_run *r)
{
    if (open_run(&r->base) != SUCCESS) return FAILURE;
    r->loader = open_training("ensemble", r->base.context, r->batch, r->base.options.seed);
    if (!r->loader) return tow_context_status(r->base.context) == TOW_INVALID_ARGUMENT ? BAD_OPTION : FAILURE;
    if (!make_directory("ensemble", r->base.options.out)) return FAILURE;
    return make_state(r) == TOW_OK ? SUCCESS : complain_once(r);
}

/* ---- training: the functions of a tow_train_loop ----------------------------------------------------------------- */

static tow_status next_batch(tow_train_state *state, tow_array **inputs, bool *end, void *user)
{
    ensemble_run *r = user;
    tow_array *const *batch;
    tow_status status = tow_loader_next(r->loader, &batch);
    if (status) return status;
    (void)state;
    inputs[0] = batch[0];
    inputs[1] = batch[1];
    *end = false;
    return TOW_OK;
}

/* Shows the mean loss of the members; after each fourth epoch, and the last update, the accuracy of the ensemble on
 * what is held out. */
static tow_status after_step(tow_train_progress *at, void *user)
{
    ensemble_run *r = user;
    const int64_t done = tow_train_step_count(at->state), every = 4 * tow_loader_batch_count(r->loader);
    double accuracy = NAN;
    tow_train_set_data_position(at->state, tow_loader_position(r->loader));
    if (done % every == 0 || done == r->base.options.steps) {
        const image_set *set = &r->evaluation.sets[HELD_OUT];
        tow_status status = evaluate(&r->evaluation, HELD_OUT);
        if (status) return status;
        accuracy =
            score(probabilities_of(&r->evaluation, HELD_OUT, r->members), tow_array_data(set->labels), set->n).accuracy;
    }
    at->stop = interrupted();
    if (progress_step(&r->progress, done, at->loss / (double)r->members, accuracy)) return TOW_OK;
    r->failed = true;
    return TOW_IO_ERROR;
}

static int train(ensemble_run *r)
{
    const common_options *o = &r->base.options;
    const progress_options shown = {.program = "ensemble",
                                    .steps = o->steps,
                                    .unit = "images",
                                    .units_per_step = r->batch,
                                    .measure = "accuracy",
                                    .measure_key = "accuracy",
                                    .log = o->log};
    char *path = path_in("ensemble", o->out, "ensemble.safetensors");
    if (!path || !progress_start(&r->progress, &shown)) {
        free(path);
        return FAILURE;
    }
    const tow_train_loop loop =
        TOW_TRAIN_LOOP(.user = r, .batch = next_batch, .steps = o->steps, .on_step = after_step, .path = path);
    catch_interrupts();
    tow_status status = tow_train_run(r->state, &loop, NULL);
    if (!progress_end(&r->progress)) r->failed = true;
    if (!status && interrupted()) printf("stopped after step %lld\n", (long long)tow_train_step_count(r->state));
    if (!status) printf("weights: %s\n", path);
    free(path);
    if (status || r->failed) return complain_once(r);
    return interrupted() ? INTERRUPTED : SUCCESS;
}

/* Writes the files that a run leaves, also one that was stopped. */
static tow_status finish(ensemble_run *r)
{
    tow_status status = TOW_OK;
    for (int i = 0; i < N_SETS && !status; i++) status = evaluate(&r->evaluation, i);
    if (status) return status;
    evaluation_print(&r->evaluation);
    return draw_pictures("ensemble", &r->evaluation, r->base.options.out);
}

int main(int argc, char **argv)
{
    static ensemble_run r;
    read_options(argc, argv, &r);
    int status = prepare(&r);
    if (status == SUCCESS) status = train(&r);
    if ((status == SUCCESS || status == INTERRUPTED) && finish(&r) != TOW_OK) status = complain_once(&r);
    status = finish_output("ensemble", status);
    evaluation_free(&r.evaluation);
    tow_train_free(r.state);
    tow_loader_free(r.loader);
    tow_context_free(r.base.context);
    return status;
}
