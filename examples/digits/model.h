/* The model: three convolutions, each behind a BatchNorm, and a dense layer. */
#ifndef DIGITS_MODEL_H
#define DIGITS_MODEL_H

#include <tow/tow.h>

enum {
    CLASSES = 10,
    SIDE = 8 /* of an image, in pixels */
};

/* images f32 [batch, 8, 8, 1] -> logits [batch, 10] */
typedef struct digits_model {
    tow_module module;
    tow_conv conv1, conv2, conv3;
    tow_batch_norm norm;
    tow_pool pool;
    tow_dropout dropout;
    tow_dense head;
} digits_model;

void digits_make(digits_model *model);

/* The mean cross-entropy of logits and labels i32 [batch]: a tow_loss_function. */
void digits_loss(tow_trace *trace, const tow_value *logits, const tow_value *labels, tow_value *loss, tow_value *aux,
                 void *user);

#endif
