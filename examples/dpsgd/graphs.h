/* The graphs of a private step, for any model. */
#ifndef DPSGD_GRAPHS_H
#define DPSGD_GRAPHS_H

#include <tow/tow.h>

/* The most that an example may change an update, and the noise that hides it. */
typedef struct dp_privacy {
    double clip;     /* the norm that the gradient of an example has at most */
    double noise;    /* standard deviation of the noise, as a multiple of clip */
    double expected; /* examples in a step, on average */
} dp_privacy;

/* gradient: (parameters..., example..., loss's extra input) -> (loss, gradients...) of ONE example
 * (tow_value_and_grad). *graph: (parameters..., sums..., the same inputs of n examples, present f32[n]) -> (loss f32[],
 * sums...): adds to the sums the gradients of all examples, each clipped first and then times `present`, which is 1 or
 * 0. loss is the sum of losses. */
tow_status dp_clipped_sums(tow_context *context, const tow_graph *gradient, const tow_params *params, int64_t n,
                           const dp_privacy *privacy, tow_graph **graph);
/* *graph: (sums..., key u32[2]) -> ((sums + noise) / expected...). */
tow_status dp_noisy_means(tow_context *context, const tow_params *params, const dp_privacy *privacy, tow_graph **graph);
/* *graph: key u32[2] -> f32[n], uniform in [0, 1): example i takes part in the step where the number is below the
 * rate. */
tow_status dp_draws(tow_context *context, int64_t n, tow_graph **graph);

#endif
