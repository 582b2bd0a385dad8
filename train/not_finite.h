/* What a step says when its loss or its gradients are not finite. */
#ifndef TOW_TRAIN_NOT_FINITE_H
#define TOW_TRAIN_NOT_FINITE_H

#include "train/state.h"

/* Runs the graph of the step again, equation by equation, on what stands in state->inputs, and returns TOW_CHECK_FAILED with
 * the place where the first NaN or infinity came up. finite: the gradients are. */
tow_status tow__fail_not_finite(tow_train_state *state, const tow_graph *step_graph, double loss, bool finite);

#endif
