/* Averages as checkpoints and the program of a training step see them. */
#ifndef TOW_SRC_TRAIN_AVERAGE_H
#define TOW_SRC_TRAIN_AVERAGE_H

#include "tow/ops.h"
#include "tow/train.h"

/* tow_average_create; without a program if a training state updates the average, in the program of its steps. */
tow_status tow__average_create(tow_context *context, const tow_params *params, const tow_average_options *options,
                               bool with_program, tow_average **average);
/* The arrays that an update writes: the lists below, then rounded averages of parameters of 16 bits. Returns how many
 * there are. */
size_t tow__average_arrays(const tow_average *average, tow_array *const **arrays);
/* Records an update: arrays... as above, and the new parameters -> out..., what the arrays become. weight: f64[]. */
void tow__record_average(const tow_average *average, const tow_value *arrays, const tow_value *params, tow_value weight,
                         tow_value *out);
/* The weight of the parameters in the next update. */
double tow__average_weight(const tow_average *average);
/* After an update. */
void tow__average_updated(tow_average *average);
/* The averages, in f32 at least; checkpoints save these lists. */
tow_params *tow__average_state(const tow_average *average);
int64_t tow__average_count(const tow_average *average);
/* After the lists were read from a file. */
void tow__average_loaded(tow_average *average, int64_t count);
/* As if made now, of the parameters as they are. */
void tow__average_restart(tow_average *average);
size_t tow__average_bytes(const tow_average *average);

#endif
