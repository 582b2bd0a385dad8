/* A variational autoencoder of 8 x 8 images (Kingma and Welling, 2014): an encoder that says which codes an image may
 * have, and a decoder that draws an image of a code. */
#ifndef VAE_MODEL_H
#define VAE_MODEL_H

#include <tow/tow.h>

enum {
    SIDE = 8,
    PIXELS = SIDE * SIDE,
    CODE = 8,    /* numbers of a code */
    HIDDEN = 256 /* units of the layer between */
};

/* images [batch, 8, 8, 1] from 0 to 1 -> logits of the pixels [batch, 64], means and log-variances of the codes [batch,
 * 8]. The code is drawn with the key of stream "noise"; in evaluation it is the mean. */
typedef struct vae {
    tow_module module;
    tow_mlp encoder, decoder;
} vae;

void vae_make(vae *model);
/* extra[0]: the images. Per image: minus the logarithm of a lower bound of its probability, in nats. aux: the two terms
 * of it, the error of the image that comes back and the divergence of its codes from N(0, 1). */
void vae_loss(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss, tow_value *aux,
              void *user);

#endif
