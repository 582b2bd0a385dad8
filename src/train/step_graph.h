/* The graph of a training step (step_graph.c), as programs.c compiles it and step.c runs it.
 *
 *   inputs     kept..., batch..., keys..., numbers... f64[], the average's weight f64[], skips bool[]
 *   outputs    kept..., loss, aux..., norm, finite, all finite
 *
 * `kept` is what goes from step to step, and is donated: parameters, the optimizer's slots, variables, averages,
 * reports. With n micro-batches, keys are [n, 2], and loss, aux, norm and finite have an axis [n] in front. The weight
 * is there with averages; skips, which says whether an update that is not finite is left out, and `all finite` (of the
 * mean gradients) with .skip_not_finite; norm and finite (of each micro-batch) with .check_finite. */
#ifndef TOW_SRC_TRAIN_STEP_GRAPH_H
#define TOW_SRC_TRAIN_STEP_GRAPH_H

#include "src/train/state.h"

/* The positions of what is not always there: 0 if it is not. */
typedef struct tow__step_layout {
    size_t batch, keys, numbers, weight, skips, n_inputs;
    size_t loss, aux, norm, finite, all_finite, n_outputs;
} tow__step_layout;

/* May a step be left out for what the program finds: what is not finite, or weights? (The weight alone does not keep an
 * early update from beginning.) */
bool tow__step_is_conditional(const tow_train_state *state);
tow__step_layout tow__step_layout_of(const tow_train_state *state);
/* The step on batches of these types. gradient: (params..., variables..., inputs..., keys...) -> (loss, aux...,
 * new variables..., gradients...) of one micro-batch, whose inputs have the types micro_types. */
tow_status tow__step_graph(tow_train_state *state, const tow_graph *gradient, const tow_type *types,
                           const tow_type *micro_types, tow_graph **graph);

#endif
