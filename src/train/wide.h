/* Parameters of 16 bits that are updated in f32: transforms see f32, and what they make is rounded into the parameter.
 *
 *   .master                the parameter in f32 is kept in the slot master/weights, and rounded into the parameter
 *   .stochastic_rounding   the sum of parameter and update is rounded to one of its two neighbors, to the nearer one
 *                          with the greater probability */
#ifndef TOW_SRC_TRAIN_WIDE_H
#define TOW_SRC_TRAIN_WIDE_H

#include "src/train/recording.h"

/* Is the parameter updated in f32 though it is stored in 16 bits? */
bool tow__update_widens(const tow_optimizer_state *state, uint32_t parameter);
/* The type of a parameter as transforms see it. */
tow_type tow__update_type(const tow_optimizer_state *state, uint32_t parameter);
/* The parameter `stored`, layers in front, as transforms see it; and a gradient of it. */
tow_value tow__update_widen(tow_update *update, uint32_t parameter, tow_value stored);
tow_value tow__update_widen_gradient(tow_update *update, uint32_t parameter, tow_value gradient);
/* Rounds a new value, layers in front, to what is stored; the master becomes the value itself. */
tow_value tow__update_narrow(tow_update *update, uint32_t parameter, tow_value value);

#endif
