/* The model: a small U-Net that tells what noise was added to an image, given how much of it and which digit is
 * shown. */
#ifndef DIFFUSION_MODEL_H
#define DIFFUSION_MODEL_H

#include <tow/tow.h>

enum {
    CLASSES = 10,
    SIDE = 8,    /* of an image, in pixels */
    STEPS = 200, /* of noise: after the last one nothing but noise is left */
    NARROW = 32, /* channels at 8 x 8, */
    WIDE = 64,   /* and at 4 x 4 */
    EMBEDDING = 128
};

/* A residual block: norm, silu, conv, plus the embedding, norm, silu, conv, added to what came in. */
typedef struct res_block {
    tow_group_norm norm;
    tow_conv conv, skip; /* skip: 1 x 1, where the number of channels changes */
    tow_dense embed;
} res_block;

/* Training: images f32 [batch, 8, 8, 1] from -1 to 1, labels i32 [batch] -> squared errors f32 [batch, 8, 8, 1], with
 * steps and noise of the stream "noise". Sampling: noisy images, labels, steps i32 [batch] -> noise. */
typedef struct diffusion_model {
    tow_module module;
    tow_embed labels;
    tow_dense time[2];
    tow_conv first, down, last;
    tow_conv_transpose up;
    tow_group_norm norm;
    res_block narrow, wide;
} diffusion_model;

void diffusion_make(diffusion_model *model);

/* The part of the image's variance that is left after step t of 0 .. STEPS - 1 (Nichol and Dhariwal 2021, equation 17):
 * f(t + 1) / f(0) with f(t) = cos^2(pi / 2 (t / STEPS + s) / (1 + s)), s = 0.008. */
double signal_after(int step);

#endif
