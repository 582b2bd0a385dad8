/* Shared by the files of gradient transforms. */
#ifndef TOW_SRC_TRAIN_TRANSFORMS_H
#define TOW_SRC_TRAIN_TRANSFORMS_H

#include "src/base/options.h"
#include "src/train/norms.h"
#include "tow/optimizer.h"

/* A scalar as an array like g. */
tow_value tow__spread(tow_value scalar, tow_value g);
/* An option of a transform: a number, which lives as long as the optimizer, or what a schedule makes of it. */
typedef struct tow__option {
    tow_update *u;
    const char *name;
    const double *value;
    const tow_schedule *schedule; /* NULL: the number */
} tow__option;
/* The option, with 0 for *usual. */
tow__option tow__option_of(tow_update *update, const char *name, const double *value, const double *usual);
/* The number, or the first one that the schedule says: for checks. */
double tow__option_value(const tow__option *option);
/* The option as a scalar; 1 - b as a scalar. */
tow_value tow__option_scalar(const tow__option *b, tow_dtype dtype);
tow_value tow__option_rest(const tow__option *b, tow_dtype dtype);
/* x b, x (1-b), x + b, b m + (1-b) x of an option b; the latter of the type that m and x promote to */
tow_value tow__times_option(tow_value x, const tow__option *b);
tow_value tow__times_rest(tow_value x, const tow__option *b);
tow_value tow__plus_option(tow_value x, const tow__option *b);
tow_value tow__average(tow_value m, tow_value x, const tow__option *b);
/* tow_slot for what has no negative numbers: averages of squares, largest magnitudes. */
tow_value tow__slot_of_squares(tow_update *update, const char *name);
/* The number of steps that will be finished with this update, t = 1, 2, ..., f64[]. */
tow_value tow__step_count(tow_update *update);
/* tow_update_number with the other sign, which is made once for all parameters. */
tow_value tow__update_negated(tow_update *update, const char *name, const tow_schedule *schedule, tow_dtype dtype);
/* ---- for transforms around others (in `all`) --------------------------------------------------------------------- */

/* The schedule that the option "owner/name" follows, or NULL. */
const tow_schedule *tow__injected(tow_update *update, const char *name);
/* The slot `name` of parameter `index`, whole, of its type, and its new value. */
tow_value tow__parameter_slot(tow_update *update, size_t index, const char *name);
void tow__set_parameter_slot(tow_update *update, size_t index, const char *name, tow_value value);
/* bool[]: true in the first update; where `period` updates are complete with this one, or begin with it. */
tow_value tow__first_update(tow_update *update);
tow_value tow__is_last_of(tow_update *update, const int64_t *period);
tow_value tow__is_first_of(tow_update *update, const int64_t *period);
/* The run of a transform inside another one. */
typedef struct tow__inner_run {
    int64_t divisor, modulus;    /* its number of finished updates: (steps / divisor) % modulus; 0: not divided, all */
    tow_value keep;              /* bool[]: its slots change only where this is true; null: always */
    tow_value restart;           /* bool[]: its slots begin again where this is true; null: never */
    const tow_value *parameters; /* what it sees in place of the parameters; NULL: these */
} tow__inner_run;
/* Runs it on all parameters; when it returns, everything is recorded. */
void tow__update_run_inner(tow_update *update, const tow_gradient_transform *inner, const tow__inner_run *run);

/* The gradients of single examples, [examples, ...], layers where they are in the parameter; and the one that is made
 * of them. */
tow_value tow__example_gradients(tow_update *update, size_t index);
void tow__set_aggregated(tow_update *update, size_t index, tow_value gradient);
/* The norm of all gradients. Out of memory, reported: a null value. */
tow__root tow__update_norm(tow_update *update);
/* In `all`: multiplies the gradient by the factor, when it is used next. */
void tow__update_scale(tow_update *update, size_t index, const tow__factor *factor);
/* Is the option at least 0 and below 1? If not, that is the trace's error. */
bool tow__is_share(const tow__option *option);
/* Is it finite, and at least `least`? */
bool tow__is_option(const tow__option *option, double least);
/* Is it finite, and at least `least`? If not, that is the trace's error. */
bool tow__is_number(tow_update *update, const char *name, double value, double least);
/* False: tow_schedule_at is always NAN. */
bool tow__schedule_complete(const tow_schedule *schedule);
/* In `all`: the transform sees all parameters of the optimizer, and for the first time. */
bool tow__update_is_first(const tow_update *update);
/* The options that the transforms of Adam's family have in common. */
typedef struct tow__adam {
    tow__option b1, b2, eps, eps_root;
    tow_value m, v, before; /* before: m before this update */
} tow__adam;
/* Reads and checks the options. False: one is out of range. */
bool tow__adam_options(tow_update *update, tow__adam *adam, const double *b1, const double *b2, const double *eps,
                       const double *usual_eps, const double *eps_root);
/* The slot of a moment like g, of `dtype` unless that is 0; `option` is what the caller calls it. Null: an error. */
tow_value tow__moment_slot(tow_update *update, const char *name, tow_value g, const char *option, tow_dtype dtype);
/* m = b1 m + (1-b1) g, which becomes the slot "mu", in memory of the type mu_dtype (0: of g). */
void tow__first_moment(tow_update *update, tow__adam *adam, tow_value g, tow_dtype mu_dtype);
/* v = b2 v + (1-b2) g^2, which becomes the slot "nu". */
void tow__second_moment(tow_update *update, tow__adam *adam, tow_value g);
/* m / (1-b1^t), or Nesterov's look ahead. */
tow_value tow__corrected_first(tow_update *update, const tow__adam *adam, tow_value g, bool nesterov);
/* x / (sqrt(v + eps_root) + eps) */
tow_value tow__over_root(const tow__adam *adam, tow_value x, tow_value v);
extern const double tow__usual_b1, tow__usual_b2, tow__usual_eps, tow__zero;
/* 1 - b^t, of the update that follows t - 1 finished ones, in the type of x and spread over it; `next`: of the one
 * after it. */
tow_value tow__bias(tow_update *update, const char *name, const tow__option *b, bool next, tow_value x);

/* False, reported: a transform, or the list of a chain in it, lies on the stack below `frame`, that of the public
 * function that got it. */
bool tow__check_transform_stack(tow_context *ctx, const char *caller, const tow_gradient_transform *transform,
                                const void *frame);

#endif
