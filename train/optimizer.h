/* The optimisers' loops over arrays of parameters. They know no train state and no graphs. */
#ifndef TOW_TRAIN_OPTIMIZER_H
#define TOW_TRAIN_OPTIMIZER_H

#include "src/base/base.h"
#include "src/base/team.h"
#include "tow/train.h"

/* One array of parameters with its gradient and slots; all of `count` floats. Slots that the optimiser lacks are NULL. */
typedef struct tow__parameter {
    float *p, *m, *v;
    const float *g;
    int64_t count;
    bool decay;
} tow__parameter;

/* A range of one parameter. */
typedef struct tow__block {
    int64_t parameter, begin, end;
} tow__block;

/* What the loops of one update read. */
typedef struct tow__coefficients {
    float scale; /* of the gradients: clipping */
    float rate, decay;
    float b1, b2, c1, c2;    /* c = 1 - b */
    float bias1, bias2, eps; /* bias = 1 - b^t */
    bool nesterov;
} tow__coefficients;

/* Everything an update needs, made once. Blocks depend on the parameters' sizes alone, and the norm is summed block by
 * block in order, so results do not depend on the number of threads. */
typedef struct tow__updater {
    tow_optimizer optimizer; /* defaults filled in */
    tow__team team;
    tow__parameter *parameters;
    size_t n_parameters;
    tow__block *blocks;
    double *partial; /* [n_blocks] sums of squares */
    size_t n_blocks;
    tow__coefficients now; /* of the update at hand */
} tow__updater;

/* Checks the options and fills in the defaults. Error: TOW_INVALID_ARGUMENT. */
tow_status tow__optimizer_resolve(tow_context *ctx, const tow_optimizer *options, tow_optimizer *resolved);
/* Number of slots (0, 1 or 2) and the prefix of slot `index` in a checkpoint. */
size_t tow__optimizer_slots(const tow_optimizer *optimizer);
const char *tow__optimizer_slot_prefix(const tow_optimizer *optimizer, size_t index);
const char *tow__optimizer_name(const tow_optimizer *optimizer);

/* `parameters` was set by the caller, from tow__alloc, and is freed with the rest. */
tow_status tow__updater_init(tow_context *ctx, tow__updater *updater);
void tow__updater_free(tow_context *ctx, tow__updater *updater);
/* An update in pieces, whose gradients are never clipped: first the coefficients of the update after `step` finished
 * ones, then elements [first, first + count) of a parameter with their gradient, each once. */
void tow__update_begin(tow__updater *updater, int64_t step);
void tow__update_piece(tow__updater *updater, const tow__parameter *parameter, int64_t first, int64_t count,
                       const float *gradient);
/* One update after `step` finished ones. Returns the gradients' norm, or 0 if nothing is clipped. Allocates nothing. */
double tow__update(tow__updater *updater, int64_t step);

#endif
