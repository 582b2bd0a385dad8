/* Layers that a transform calls in its own scope and records aside, so that it knows what they write and sow before it
 * binds what it makes of them: remat, the branches of a choice, derivatives. Nothing about their parameters and random
 * keys changes. */
#ifndef TOW_TRANSFORMS_ASIDE_H
#define TOW_TRANSFORMS_ASIDE_H

#include "src/scope/frames.h"
#include "src/scope/scope.h"
#include "tow/module.h"

typedef struct tow__aside {
    const char *transform;    /* "remat", for messages */
    tow_scope *scope, *inner; /* of the transform; inner: with its rules */
    const tow__lift *lift;
} tow__aside;
/* False: an error sticks. */
bool tow__aside_begin(tow__aside *aside, tow_scope *scope, const char *transform, const tow_lift_rule *variables,
                      const tow_lift_rule *streams);
/* Records the layer for inputs of the types of `in`. False: an error sticks. */
bool tow__aside_record(const tow__aside *aside, const tow_module *layer, size_t n_in, const tow_value *in, size_t n_out,
                       tow__recorded_body *body);
/* After all layers were recorded: an error for a rule that nothing matched. */
void tow__aside_end(const tow__aside *aside);

#endif
