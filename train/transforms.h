/* What the files of gradient transforms share. */
#ifndef TOW_TRAIN_TRANSFORMS_H
#define TOW_TRAIN_TRANSFORMS_H

#include "tow/optimizer.h"

/* A scalar as an array like g. */
tow_value tow__spread(tow_value scalar, tow_value g);
/* b m + (1-b) x */
tow_value tow__average(tow_value m, tow_value x, double b);
/* tow_update_number with the other sign, which is made once for all parameters. */
tow_value tow__update_negated(tow_update *update, const char *name, const tow_schedule *schedule, tow_dtype dtype);
/* In `all`: multiplies the gradient by a scalar of its type, when it is used next. */
void tow__update_scale(tow_update *update, size_t index, tow_value factor);
/* Is the option `name` at least 0 and below 1? If not, that is the trace's error. */
bool tow__is_share(tow_update *update, const char *name, double value);
static inline double tow__or_default(double value, double usual) { return value == 0 ? usual : value; }

#endif
