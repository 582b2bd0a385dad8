/* Slots of f32 that are kept in 8 bits (.slot_bits): "mu" is codes u8[blocks, 256] of the layer's elements in their
 * order, and "mu_sizes" the largest magnitude of each block, f32[blocks]. They are read and written through tow_slot
 * and tow_set_slot like any other. */
#ifndef TOW_SRC_TRAIN_SLOTS_IN_BYTES_H
#define TOW_SRC_TRAIN_SLOTS_IN_BYTES_H

#include "src/train/recording.h"

/* Is a slot of this type, which begins with `value`, kept in 8 bits? */
bool tow__slot_in_bytes(const tow_update *update, tow_type type, double value);
/* The value of such a slot. */
tow_value tow__slot_from_bytes(tow_update *update, const char *name, tow_type type);
/* Sets the value of a slot that is kept in 8 bits; false: this one is not. */
bool tow__slot_to_bytes(tow_update *update, const char *name, tow_value value);

#endif
