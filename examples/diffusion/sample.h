/* Drawing digits: from noise, step by step, to images. */
#ifndef DIFFUSION_SAMPLE_H
#define DIFFUSION_SAMPLE_H

#include "model.h"

enum {
    EACH = 10, /* images of each digit */
    SAMPLES = CLASSES * EACH,
    FILM = 10 /* moments that are kept of the way from noise to digits */
};

typedef struct sampler {
    tow_context *context;
    tow_program *program; /* parameters, images, labels, steps -> noise */
    tow_array **inputs;
    size_t n_inputs;
    tow_array *images, *labels, *steps, *noise;
    tow_array *film; /* f32 [CLASSES, FILM, 8, 8]: the first image of each digit on its way */
} sampler;

/* The parameters may change later; they live as long as the sampler. */
tow_status sampler_create(tow_context *context, const tow_module *model, const tow_params *params, sampler *s);
void sampler_free(sampler *s);
/* Leaves in s->images [SAMPLES, 8, 8, 1], from -1 to 1, row by row EACH images of each digit, and in s->film how the
 * first ones came up. */
tow_status sample(sampler *s, uint64_t seed);

#endif
