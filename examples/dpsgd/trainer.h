/* Steps of differentially private SGD on the digits, and how well the held-out ones are read. */
#ifndef DPSGD_TRAINER_H
#define DPSGD_TRAINER_H

#include "data.h"
#include "graphs.h"

enum {
    MAX_PARAMS = 8
};

typedef struct trainer {
    tow_context *context;
    const digits_data *data;
    uint64_t seed;
    double rate; /* the probability with which a step takes an image */
    dp_privacy privacy;
    tow_mlp model;
    tow_params *params;
    size_t n_params;
    tow_program *draws, *sums, *means,
        *forward;          /* dp_draws, dp_clipped_sums, dp_noisy_means, logits of held-out images */
    tow_array *key, *draw; /* of a step: [2]; [n_train] */
    tow_array *images, *labels, *present, *loss;      /* of a chunk of images */
    tow_array *sum[2][MAX_PARAMS], *mean[MAX_PARAMS]; /* sums before a chunk, and after it */
    tow_array *test_images, *test_labels, *logits;
    tow_scale_by_adam adam;
    tow_scale_by_learning_rate learning_rate;
    const tow_gradient_transform *transforms[2];
    tow_chain chain;
    tow_optimizer_state *optimizer;
} trainer;

/* Clears *t and makes its model, programs and arrays. trainer_free frees what there is, after an error as well. */
tow_status trainer_create(tow_context *context, const digits_data *data, uint64_t seed, double rate,
                          const dp_privacy *privacy, double learning_rate, trainer *t);
void trainer_free(trainer *t);
/* One update. *loss: the mean loss of the images that it took; NAN if it took none. */
tow_status trainer_step(trainer *t, double *loss);
/* The share of held-out images that are read correctly. */
tow_status trainer_accuracy(trainer *t, double *accuracy);

#endif
