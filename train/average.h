/* What checkpoints need of averages. */
#ifndef TOW_TRAIN_AVERAGE_H
#define TOW_TRAIN_AVERAGE_H

#include "tow/train.h"

/* What is averaged, in f32 at least; these lists are what is saved. */
tow_params *tow__average_state(const tow_average *average);
int64_t tow__average_count(const tow_average *average);
/* After the lists were read from a file. */
tow_status tow__average_loaded(tow_average *average, int64_t count);
/* As if made now, of the parameters as they are. */
tow_status tow__average_restart(tow_average *average);
size_t tow__average_bytes(const tow_average *average);

#endif
