/* The ensemble: one network, mapped over its members, each of which has parameters of its own. */
#ifndef ENSEMBLE_MODEL_H
#define ENSEMBLE_MODEL_H

#include <tow/tow.h>

enum {
    CLASSES = 10,
    SIDE = 8, /* of an image, in pixels */
    PIXELS = SIDE * SIDE
};

/* images f32 [batch, 8, 8, 1] -> logits [members, batch, 10]. All members see the same images. */
typedef struct ensemble {
    tow_module module;
    tow_mlp member;         /* [batch, 64] -> [batch, 10] */
    tow_vmap_layer members; /* of that, with parameters [members, ...] */
} ensemble;

/* width: units of each of the two hidden layers. */
void ensemble_make(ensemble *model, int64_t members, int64_t width);

/* extra[0]: labels i32 [batch]. The sum over the members of the mean cross-entropy of the batch, so that the gradient
 * of each member is what it would be alone. user: const int64_t *, a digit whose images do not count, or -1. */
void ensemble_loss(tow_trace *trace, const tow_value *logits, const tow_value *labels, tow_value *loss, tow_value *aux,
                   void *user);

#endif
