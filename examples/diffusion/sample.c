/* Sampling (Ho, Jain and Abbeel 2020, algorithm 2). The program is the network; the few numbers per pixel around it are
 * computed here. */
#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"

enum {
    PIXELS = SIDE * SIDE,
    ALL = SAMPLES * PIXELS
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

static tow_status compile(sampler *s, const tow_module *model, const tow_params *params)
{
    const tow_type types[] = {tow_array_type(s->images), tow_array_type(s->labels), tow_array_type(s->steps)};
    const tow_model_options options = TOW_MODEL_OPTIONS(.deterministic = true);
    const size_t n = tow_params_count(params);
    tow_graph *graph = NULL;
    tow_status status = tow_model_forward_graph(model, params, 3, types, &options, &graph);
    if (!status) status = tow_compile(s->context, graph, NULL, &s->program);
    tow_graph_release(graph);
    if (status) return status;
    s->inputs = malloc((n + 3) * sizeof(tow_array *));
    if (!s->inputs) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < n; i++) s->inputs[s->n_inputs++] = tow_params_array(params, i);
    s->inputs[s->n_inputs++] = s->images;
    s->inputs[s->n_inputs++] = s->labels;
    s->inputs[s->n_inputs++] = s->steps;
    return TOW_OK;
}

tow_status sampler_create(tow_context *context, const tow_module *model, const tow_params *params, sampler *s)
{
    const tow_type images = tow_make_type(TOW_F32, 4, (int64_t[]){SAMPLES, SIDE, SIDE, 1});
    const tow_type numbers = tow_make_type(TOW_I32, 1, (int64_t[]){SAMPLES});
    const tow_type film = tow_make_type(TOW_F32, 3, (int64_t[]){CLASSES * FILM, SIDE, SIDE});
    *s = (sampler){.context = context};
    tow_status status = tow_array_create(context, images, &s->images);
    if (!status) status = tow_array_create(context, numbers, &s->labels);
    if (!status) status = tow_array_create(context, numbers, &s->steps);
    if (!status) status = tow_array_create(context, images, &s->noise);
    if (!status) status = tow_array_create(context, film, &s->film);
    if (status) return status;
    for (int i = 0; i < SAMPLES; i++) ((int32_t *)tow_array_data(s->labels))[i] = i / EACH;
    return compile(s, model, params);
}

void sampler_free(sampler *s)
{
    tow_program_free(s->program);
    free(s->inputs);
    tow_array_release(s->images);
    tow_array_release(s->labels);
    tow_array_release(s->steps);
    tow_array_release(s->noise);
    tow_array_release(s->film);
}

/* ---- sampling ---------------------------------------------------------------------------------------------------- */

/* One step back, of all pixels: the image that the noise points to, cut off at black and white, and of the noise what
 * the step before has (equations 6, 7 and 15). */
static void step_back(sampler *s, int step, uint64_t seed)
{
    float *x = tow_array_data(s->images);
    const float *noise = tow_array_data(s->noise);
    double signal = signal_after(step), before = step > 0 ? signal_after(step - 1) : 1;
    double alpha = fmax(signal / before, 1e-3), beta = 1 - alpha;
    double of_image = sqrt(before) * beta / (1 - signal), of_x = sqrt(alpha) * (1 - before) / (1 - signal);
    double deviation = sqrt(beta * (1 - before) / (1 - signal));
    for (int i = 0; i < ALL; i++) {
        double image = (x[i] - sqrt(1 - signal) * noise[i]) / sqrt(signal);
        image = fmax(-1, fmin(1, image));
        double fresh = step > 0 ? deviation * random_normal(seed, (uint64_t)(step * ALL + i)) : 0;
        x[i] = (float)(of_image * image + of_x * x[i] + fresh);
    }
}

/* Moment `at` of the film. */
static void keep_moment(const sampler *s, int at)
{
    for (int digit = 0; digit < CLASSES; digit++)
        memcpy((float *)tow_array_data(s->film) + (digit * FILM + at) * PIXELS,
               (const float *)tow_array_data(s->images) + digit * EACH * PIXELS, PIXELS * sizeof(float));
}

tow_status sample(sampler *s, uint64_t seed)
{
    float *x = tow_array_data(s->images);
    int32_t *steps = tow_array_data(s->steps);
    tow_status status = TOW_OK;
    for (int i = 0; i < ALL; i++) x[i] = (float)random_normal(seed, (uint64_t)(STEPS * ALL + i));
    keep_moment(s, 0);
    for (int step = STEPS - 1; step >= 0 && !status && !interrupted(); step--) {
        for (int i = 0; i < SAMPLES; i++) steps[i] = step;
        status = tow_program_run(s->program, s->inputs, &s->noise);
        step_back(s, step, seed);
        int done = STEPS - step;
        if (done % (STEPS / (FILM - 1)) == 0 && done < STEPS) keep_moment(s, done / (STEPS / (FILM - 1)));
    }
    keep_moment(s, FILM - 1);
    return status;
}
