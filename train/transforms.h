/* What the files of gradient transforms share. */
#ifndef TOW_TRAIN_TRANSFORMS_H
#define TOW_TRAIN_TRANSFORMS_H

#include "tow/optimizer.h"
#include "train/norms.h"

/* A scalar as an array like g. */
tow_value tow__spread(tow_value scalar, tow_value g);
/* b m + (1-b) x */
tow_value tow__average(tow_value m, tow_value x, double b);
/* tow_update_number with the other sign, which is made once for all parameters. */
tow_value tow__update_negated(tow_update *update, const char *name, const tow_schedule *schedule, tow_dtype dtype);
/* In `all`: multiplies the gradient by the factor, when it is used next. */
void tow__update_scale(tow_update *update, size_t index, const tow__factor *factor);
/* Is the option `name` at least 0 and below 1? If not, that is the trace's error. */
bool tow__is_share(tow_update *update, const char *name, double value);
/* Is it finite, and at least `least`? If not, that is the trace's error. */
bool tow__is_number(tow_update *update, const char *name, double value, double least);
/* False: tow_schedule_at is always NAN. */
bool tow__schedule_complete(const tow_schedule *schedule);
/* In `all`: the transform sees all parameters of the optimiser, and for the first time. */
bool tow__update_is_first(const tow_update *update);
/* Adam's moments of a gradient, which become the slots "mu" and "nu". False: one of the numbers is no share. */
bool tow__moments(tow_update *update, tow_value g, double b1, double b2, tow_value *m, tow_value *v);
extern const double tow__usual_b1, tow__usual_b2;
/* 1 - b^t, of the update that follows t - 1 finished ones, in the type of x and spread over it; `next`: of the one after it. b lives
 * as long as the optimiser. */
tow_value tow__bias(tow_update *update, const char *name, const double *b, bool next, tow_value x);
static inline const double *tow__option(const double *value, const double *usual)
{
    return *value == 0 ? usual : value;
}
static inline double tow__or_default(double value, double usual) { return value == 0 ? usual : value; }

/* False, reported: a transform, or the list of a chain in it, lies on the stack below `frame`, that of the public function that got it. */
bool tow__check_transform_stack(tow_context *ctx, const char *caller, const tow_gradient_transform *transform,
                                const void *frame);

#endif
