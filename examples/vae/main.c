/* Trains a variational autoencoder on handwritten digits, with one optimizer each for encoder and decoder. It writes
 * digits that it has made up, held-out ones as it sees them, the curve of its loss, and its weights. `vae --help` lists
 * the options. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/run.h"
#include "digits/data.h"
#include "model.h"

enum {
    SAMPLES = 100,
    SHOWN = 10, /* held-out images, and what comes back of them */
    KEPT = 500  /* points of the curve at most */
};

/* One of two halves of the model: a list of its parameters, which share their arrays with the whole, and their
 * optimizer. */
typedef struct half {
    tow_params *params, *gradients;
    tow_scale_by_adam adam;
    tow_scale_by_learning_rate rate;
    const tow_gradient_transform *transforms[2];
    tow_chain chain;
    tow_optimizer_state *optimizer;
} half;

typedef struct vae_run {
    run base;
    int64_t batch;
    double decoder_rate;
    tow_loader *loader, *held_out;
    vae model;
    tow_params *params;
    tow_model_function *step, *evaluation;
    half encoder, decoder;
    int64_t done;
    size_t points;
    double steps[KEPT], losses[KEPT];
} vae_run;

static void read_options(int argc, char **argv, vae_run *r)
{
    *r = (vae_run){.base = {.program = "vae",
                            .purpose = "Trains a variational autoencoder on handwritten digits of 8 x 8 pixels.",
                            .options = {.steps = 10000, .learning_rate = 1e-3, .out = "out/vae"}},
                   .batch = 64,
                   .decoder_rate = 2e-3};
    const example_option own[] = {{"decoder-rate", "X", "The same of the decoder", OPTION_REAL, &r->decoder_rate, 0, 0},
                                  {"batch", "N", "Images per step", OPTION_WHOLE, &r->batch, 1, 1024},
                                  {0}};
    read_run_options(&r->base, argc, argv, own);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* Adam, with half a cosine from `peak` down to 0. */
static tow_status make_half(vae_run *r, const char *const *patterns, double peak, half *h)
{
    h->adam = TOW_SCALE_BY_ADAM();
    h->rate = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_cosine(peak, r->base.options.steps, 0, 0));
    h->transforms[0] = TOW_GRADIENT_TRANSFORM(&h->adam);
    h->transforms[1] = TOW_GRADIENT_TRANSFORM(&h->rate);
    h->chain = (tow_chain){.base = {&tow_chain_class, sizeof(tow_chain)}, .transforms = h->transforms, .n = 2};
    tow_status status = tow_params_select(r->params, patterns, &h->params);
    if (status) return status;
    return tow_optimizer_create(r->base.context, TOW_GRADIENT_TRANSFORM(&h->chain), h->params, NULL, &h->optimizer);
}

static tow_status make_functions(vae_run *r)
{
    static const char *const streams[] = {"noise", NULL};
    static const tow_model_options noisy = TOW_MODEL_OPTIONS(.streams = streams, .n_outputs = 3),
                                   plain = TOW_MODEL_OPTIONS(.n_outputs = 3, .deterministic = true);
    const tow_type images = tow_loader_type(r->loader, 0);
    tow_model_function_options options =
        TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .n_extra = 1, .loss = vae_loss, .n_aux = 2, .model = &noisy);
    tow_status status = tow_model_init_with(r->base.context, TOW_MODULE(&r->model), r->base.options.seed, 1, &images,
                                            &noisy, &r->params, NULL);
    if (!status)
        status = tow_model_function_create_value_and_grad(TOW_MODULE(&r->model), r->params, &options, &r->step);
    options = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .model = &plain);
    if (!status) status = tow_model_function_create(TOW_MODULE(&r->model), r->params, &options, &r->evaluation);
    return status;
}

static tow_status make(vae_run *r)
{
    static const char *const of_encoder[] = {"encoder/**", NULL}, *const of_decoder[] = {"decoder/**", NULL};
    vae_make(&r->model);
    tow_status status = make_functions(r);
    if (!status) status = make_half(r, of_encoder, r->base.options.learning_rate, &r->encoder);
    if (!status) status = make_half(r, of_decoder, r->decoder_rate, &r->decoder);
    return status;
}

static int prepare(vae_run *r)
{
    if (open_run(&r->base) != SUCCESS) return FAILURE;
    r->loader = digits_open(r->base.context, true, r->batch, r->base.options.seed);
    if (!r->loader) return tow_context_status(r->base.context) == TOW_INVALID_ARGUMENT ? BAD_OPTION : FAILURE;
    r->held_out = digits_open(r->base.context, false, 0, 0);
    if (!r->held_out || !make_directory("vae", r->base.options.out)) return FAILURE;
    return make(r) == TOW_OK ? SUCCESS : complain(&r->base);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* The gradients of a half, in the order of its parameters. They are the function's own arrays, so the list is made
 * once. */
static tow_status update(half *h, const tow_params *gradients, const char *const *patterns)
{
    tow_status status = h->gradients ? TOW_OK : tow_params_select(gradients, patterns, &h->gradients);
    return status ? status : tow_optimizer_update(h->optimizer, tow_params_arrays(h->gradients));
}

/* One backward pass, two updates. */
static tow_status take_step(vae_run *r, double *loss)
{
    static const char *const of_encoder[] = {"encoder/**", NULL}, *const of_decoder[] = {"decoder/**", NULL};
    tow_array *const *batch;
    tow_model_results results;
    tow_status status = tow_loader_next(r->loader, &batch);
    if (status) return status;
    const tow_model_arguments arguments =
        TOW_MODEL_ARGUMENTS(.inputs = batch, .extra = batch, .seed = r->base.options.seed, .step = (uint32_t)r->done);
    status = tow_model_function_call(r->step, &arguments, &results);
    if (!status) status = update(&r->encoder, results.gradients, of_encoder);
    if (!status) status = update(&r->decoder, results.gradients, of_decoder);
    *loss = results.loss;
    r->done++;
    return status;
}

static void note(vae_run *r, double loss)
{
    const int64_t every = (r->base.options.steps + KEPT - 1) / KEPT;
    if (r->done % every != 0 || r->points == KEPT) return;
    r->steps[r->points] = (double)r->done;
    r->losses[r->points++] = loss;
}

static int train(vae_run *r)
{
    const common_options *o = &r->base.options;
    progress p;
    const progress_options shown = {
        .program = "vae", .steps = o->steps, .unit = "images", .units_per_step = r->batch, .log = o->log};
    if (!progress_start(&p, &shown)) return FAILURE;
    int status = SUCCESS;
    catch_interrupts();
    while (status == SUCCESS && !interrupted() && r->done < o->steps) {
        double loss = NAN;
        if (take_step(r, &loss) != TOW_OK) status = complain(&r->base);
        note(r, loss);
        if (status == SUCCESS && !progress_step(&p, r->done, loss, NAN)) status = FAILURE;
    }
    return end_training(&p, status, r->done, "");
}

/* ---- what a run leaves ------------------------------------------------------------------------------------------- */

/* Writes n images of logits [n, 64]. */
static tow_status draw(vae_run *r, const float *logits, int64_t n, int64_t columns, const char *name)
{
    tow_array *images = NULL, *pixels = NULL;
    char *path = path_in("vae", r->base.options.out, name);
    if (!path) return TOW_OUT_OF_MEMORY;
    tow_status status =
        tow_array_create(r->base.context, tow_make_type(TOW_F32, 3, (int64_t[]){n, SIDE, SIDE}), &images);
    if (!status) {
        float *data = tow_array_data(images);
        for (int64_t i = 0; i < n * PIXELS; i++) data[i] = 1 / (1 + expf(-logits[i]));
        status = tow_image_grid(r->base.context, images, &TOW_GRID_OPTIONS(.columns = columns, .zoom = 6), &pixels);
    }
    if (!status) status = tow_png_write(r->base.context, path, pixels);
    tow_array_release(images);
    tow_array_release(pixels);
    free(path);
    return status;
}

/* Digits that nobody wrote: the decoder alone, a part of the model with the whole's parameters, of random codes. */
static tow_status draw_samples(vae_run *r)
{
    tow_params *part = NULL;
    tow_model_function *decode = NULL;
    tow_array *codes = NULL;
    tow_model_results results;
    const tow_model_function_options options = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1);
    tow_status status = tow_params_subtree(r->params, "decoder", &part);
    if (!status) status = tow_model_function_create(TOW_MODULE(&r->model.decoder), part, &options, &decode);
    if (!status)
        status = tow_array_create(r->base.context, tow_make_type(TOW_F32, 2, (int64_t[]){SAMPLES, CODE}), &codes);
    if (!status) {
        float *code = tow_array_data(codes);
        for (int i = 0; i < SAMPLES * CODE; i++) code[i] = (float)random_normal(r->base.options.seed + 1, (uint64_t)i);
        status = tow_model_function_call(decode, &TOW_MODEL_ARGUMENTS(.inputs = &codes), &results);
    }
    if (!status) status = draw(r, tow_array_data(results.outputs[0]), SAMPLES, 10, "samples.png");
    tow_array_release(codes);
    tow_model_function_free(decode);
    tow_params_free(part);
    return status;
}

/* logit(p) of the pixels, as far as floats go: what `draw` makes p of again. */
static void pixels_to_logits(const float *pixels, float *logits)
{
    for (int i = 0; i < PIXELS; i++) logits[i] = logf((pixels[i] + 1e-6f) / (1 - pixels[i] + 1e-6f));
}

/* The error per image of all held-out ones, and a picture of some above what comes back of them. */
static tow_status test(vae_run *r)
{
    tow_array *const *batch;
    tow_model_results results;
    static float both[2 * SHOWN * PIXELS];
    tow_status status = tow_loader_seek(r->held_out, 0);
    if (!status) status = tow_loader_next(r->held_out, &batch);
    if (!status) status = tow_model_function_call(r->evaluation, &TOW_MODEL_ARGUMENTS(.inputs = batch), &results);
    if (status) return status;
    const float *images = tow_array_data(batch[0]), *logits = tow_array_data(results.outputs[0]);
    const int64_t n = tow_array_type(batch[0]).dims[0];
    double squares = 0;
    for (int64_t i = 0; i < n * PIXELS; i++) {
        const double error = 1 / (1 + exp(-(double)logits[i])) - (double)images[i];
        squares += error * error;
    }
    printf("error of a pixel of %lld held-out digits: %.4f\n", (long long)n, sqrt(squares / (double)(n * PIXELS)));
    for (int i = 0; i < SHOWN; i++) pixels_to_logits(images + (ptrdiff_t)i * PIXELS, both + (ptrdiff_t)i * PIXELS);
    memcpy(both + SHOWN * PIXELS, logits, SHOWN * PIXELS * sizeof *logits);
    return draw(r, both, 2L * SHOWN, SHOWN, "held-out.png");
}

static tow_status draw_curve(vae_run *r)
{
    const tow_series series = {.n = r->points, .x = r->steps, .y = r->losses};
    const tow_chart chart = TOW_CHART(.title = "Loss per image", .x_label = "step", .y_label = "nats", .n_series = 1,
                                      .series = &series, .smoothing = 0.95);
    return write_chart(&r->base, "loss.svg", &chart);
}

static tow_status save(vae_run *r)
{
    tow_tensors *tensors = NULL;
    char *path = path_in("vae", r->base.options.out, "vae.safetensors");
    tow_status status = path ? tow_tensors_create(r->base.context, &tensors) : TOW_OUT_OF_MEMORY;
    if (!status) status = tow_params_to_tensors(r->params, "params/", tensors);
    if (!status) status = tow_safetensors_write(path, tensors);
    if (!status) printf("weights: %s\n", path);
    tow_tensors_free(tensors);
    free(path);
    return status;
}

static tow_status finish(vae_run *r)
{
    tow_status status = test(r);
    if (!status) status = draw_samples(r);
    if (!status && r->points > 0) status = draw_curve(r);
    return status ? status : save(r);
}

static void free_half(half *h)
{
    tow_optimizer_free(h->optimizer);
    tow_params_free(h->gradients);
    tow_params_free(h->params);
}

int main(int argc, char **argv)
{
    static vae_run r;
    read_options(argc, argv, &r);
    int status = prepare(&r);
    if (status == SUCCESS) status = train(&r);
    if ((status == SUCCESS || status == INTERRUPTED) && finish(&r) != TOW_OK) status = complain(&r.base);
    status = finish_output("vae", status);
    free_half(&r.encoder);
    free_half(&r.decoder);
    tow_model_function_free(r.step);
    tow_model_function_free(r.evaluation);
    tow_params_free(r.params);
    tow_loader_free(r.loader);
    tow_loader_free(r.held_out);
    tow_context_free(r.base.context);
    return status;
}
