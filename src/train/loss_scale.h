/* Dynamic loss scaling: the gradients of f16 are those of the loss times a power of two, so that small ones are no
 * subnormal numbers or zeros. Updates whose gradients overflow are left out, and the scale is halved; after a period
 * without, it is doubled. (Micikevicius and others, Mixed precision training, 2018) */
#ifndef TOW_SRC_TRAIN_LOSS_SCALE_H
#define TOW_SRC_TRAIN_LOSS_SCALE_H

#include "src/train/recording.h"
#include "src/train/state.h"

/* Sets what the options say; false: an error of the context. */
tow_status tow__loss_scale_begin(tow_optimizer_state *state, const tow_optimizer_options *options);
/* The gradient, layers in front or not, of the loss itself. */
tow_value tow__unscale(tow_update *update, tow_value gradient);
/* The scale for the next update, after one whose gradients were finite or not. */
void tow__loss_scale_after(tow_optimizer_state *state, bool finite);

/* The graph of a loss whose output 0 has the gradient of the loss times one more input, scale f32[], which is last. A
 * state without a scale: the graph itself, a new reference. */
tow_status tow__scale_loss(const tow_train_state *state, const tow_graph *loss, tow_graph **scaled);
/* That input among the numbers of a step. */
tow_value tow__step_scale(const tow_train_state *state, const tow_value *numbers);

#endif
