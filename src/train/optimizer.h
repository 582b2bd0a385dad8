/* The options of AdamW and SGD (tow_standard_optimizer) as a chain of gradient transforms. */
#ifndef TOW_SRC_TRAIN_OPTIMIZER_H
#define TOW_SRC_TRAIN_OPTIMIZER_H

#include "src/base/base.h"
#include "tow/train.h"

/* Checks the options and fills in the defaults. Error: TOW_INVALID_ARGUMENT. */
tow_status tow__optimizer_resolve(tow_context *ctx, const tow_standard_optimizer *options,
                                  tow_standard_optimizer *resolved);
const char *tow__optimizer_name(const tow_standard_optimizer *optimizer);

/* The transforms of a chain, which point to one another: not to be moved. */
typedef struct tow__optimizer_transforms {
    tow_clip_by_global_norm clip;
    tow_scale_by_adam adam;
    tow_trace_gradients trace;
    tow_add_decayed_weights decay;
    tow_scale_by_learning_rate rate;
    const tow_gradient_transform *list[4];
    tow_chain chain;
} tow__optimizer_transforms;

/* Of options that were resolved. */
void tow__optimizer_chain(const tow_standard_optimizer *optimizer, tow__optimizer_transforms *transforms);

#endif
