/* Trains a diffusion model on handwritten digits and draws new ones with it. It prints how near the digits that it
 * draws are to real ones, and writes them, how they come up from noise, its weights and its curve of losses. `diffusion
 * --help` lists the options. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/run.h"
#include "digits.h"
#include "sample.h"

enum {
    ZOOM = 5,
    POINTS = 2000 /* of the curve, at most */
};

typedef struct diffusion_run {
    run base;
    int64_t batch;
    const char *tensorboard; /* directory, or NULL */
    tow_loader *loader;
    diffusion_model model;
    tow_train_state *state;
    sampler sampler;
    double steps[POINTS], losses[POINTS];
    size_t n_points;
} diffusion_run;

static void read_options(int argc, char **argv, diffusion_run *r)
{
    *r = (diffusion_run){.base = {.program = "diffusion",
                                  .purpose = "Trains a diffusion model on handwritten digits and draws new ones.",
                                  .options = {.steps = 2500, .learning_rate = 4e-3, .out = "out/diffusion"}},
                         .batch = 64};
    const example_option own[] = {IMAGE_OPTIONS(&r->batch, &r->tensorboard), {0}};
    read_run_options(&r->base, argc, argv, own);
}

/* The mean of the squared errors: a tow_loss_function. */
static void mean_error(tow_trace *trace, const tow_value *errors, const tow_value *extra, tow_value *loss,
                       tow_value *aux, void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(errors[0], 0, NULL);
}

static tow_status make_state(diffusion_run *r)
{
    const common_options *o = &r->base.options;
    static const char *const streams[] = {"noise", NULL};
    const tow_model_options model = TOW_MODEL_OPTIONS(.streams = streams);
    const tow_type types[] = {tow_loader_type(r->loader, 0), tow_loader_type(r->loader, 1)};
    char description[256];
    tow_loader_describe(r->loader, description, sizeof description);
    diffusion_make(&r->model);
    const tow_average_options average = /* samples are drawn with the averages */
        TOW_AVERAGE_OPTIONS(.decay = o->steps < 1000 ? 0.98 : 0.995);
    const tow_train_options train =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate =
                                            tow_schedule_warmup_cosine(0, o->learning_rate, o->steps / 20, o->steps, 0),
                                        .clip_norm = 1},
                          .seed = o->seed, .n_inputs = 2, .input_types = types, .loss = mean_error, .model = &model,
                          .average = &average, .description = description);
    tow_status status = tow_train_create(r->base.context, TOW_MODULE(&r->model), &train, &r->state);
    if (status) return status;
    return sampler_create(r->base.context, TOW_MODULE(&r->model), tow_train_averages(r->state), &r->sampler);
}

static int prepare(diffusion_run *r)
{
    if (open_run(&r->base) != SUCCESS) return FAILURE;
    r->loader = digits_open(r->base.context, r->batch, r->base.options.seed);
    if (!r->loader || !make_directory("diffusion", r->base.options.out)) return FAILURE;
    return make_state(r) == TOW_OK ? SUCCESS : complain(&r->base);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static int step(diffusion_run *r, progress *p, double *mean)
{
    const int64_t done = tow_train_step_count(r->state) + 1, every = (r->base.options.steps - 1) / POINTS + 1;
    double loss;
    if (step_on_next(&r->base, r->loader, r->state, &loss) != SUCCESS) return FAILURE;
    *mean = done == 1 ? loss : 0.98 * *mean + 0.02 * loss; /* single losses jump with the steps that are drawn */
    if (done % every == 0 && r->n_points < POINTS) {
        r->steps[r->n_points] = (double)done;
        r->losses[r->n_points++] = loss;
    }
    return progress_step(p, done, loss, done % 200 == 0 || done == r->base.options.steps ? *mean : NAN) ? SUCCESS
                                                                                                        : FAILURE;
}

static int train(diffusion_run *r)
{
    const common_options *o = &r->base.options;
    progress p;
    const progress_options shown = {.program = "diffusion",
                                    .steps = o->steps,
                                    .unit = "images",
                                    .units_per_step = r->batch,
                                    .measure = "mean",
                                    .measure_key = "mean_loss",
                                    .log = o->log,
                                    .events = r->tensorboard};
    if (!progress_start(&p, &shown)) return FAILURE;
    int status = SUCCESS;
    double mean = 0;
    catch_interrupts();
    while (status == SUCCESS && !interrupted() && tow_train_step_count(r->state) < o->steps)
        status = step(r, &p, &mean);
    return end_training(&p, status, tow_train_step_count(r->state), "; nothing is drawn");
}

/* ---- what a run leaves ------------------------------------------------------------------------------------------- */

static tow_status write_grid(const diffusion_run *r, tow_array *images, int64_t columns, const char *name)
{
    const tow_grid_options grid =
        TOW_GRID_OPTIONS(.columns = columns, .zoom = ZOOM, .gap = 2, .low = -1, .high = 1, .ground = 96);
    tow_array *pixels = NULL;
    char *path = path_in("diffusion", r->base.options.out, name);
    tow_status status = path ? tow_image_grid(r->base.context, images, &grid, &pixels) : TOW_OUT_OF_MEMORY;
    if (!status) status = tow_png_write(r->base.context, path, pixels);
    tow_array_release(pixels);
    free(path);
    return status;
}

static tow_status write_curve(const diffusion_run *r)
{
    const tow_series curve = {.n = r->n_points, .x = r->steps, .y = r->losses};
    const tow_chart chart = TOW_CHART(.title = "Squared error of the predicted noise", .x_label = "step", .n_series = 1,
                                      .series = &curve, .log_y = true, .smoothing = 0.95);
    return write_chart(&r->base, "loss.svg", &chart);
}

static int finish(diffusion_run *r, int status)
{
    if (save_weights(&r->base, r->state) != TOW_OK || write_curve(r) != TOW_OK) return complain(&r->base);
    if (status == INTERRUPTED) return status;
    double start = seconds_now();
    if (sample(&r->sampler, r->base.options.seed) != TOW_OK) return complain(&r->base);
    if (interrupted()) return INTERRUPTED;
    printf("drew %d digits in %.1f s\n", SAMPLES, seconds_now() - start);
    if (!digits_compare(r->base.context, r->sampler.images, r->base.options.seed)) return FAILURE;
    if (write_grid(r, r->sampler.images, EACH, "samples.png") != TOW_OK ||
        write_grid(r, r->sampler.film, FILM, "film.png") != TOW_OK)
        return complain(&r->base);
    return SUCCESS;
}

int main(int argc, char **argv)
{
    static diffusion_run r;
    read_options(argc, argv, &r);
    int status = prepare(&r);
    if (status == SUCCESS) status = train(&r);
    if (status == SUCCESS || status == INTERRUPTED) status = finish(&r, status);
    status = finish_output("diffusion", status);
    sampler_free(&r.sampler);
    tow_train_free(r.state);
    tow_loader_free(r.loader);
    tow_context_free(r.base.context);
    return status;
}
