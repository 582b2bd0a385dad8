/* The model: token and position embeddings, a stack of Transformer blocks, a final norm, and the token embedding again
 * as output projection. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <tow/tow.h>

/* tokens i32 [batch, context] -> logits [batch, context, vocabulary]; tokens, labels -> cross-entropy [batch,
 * context] */
typedef struct gpt {
    tow_module module;
    tow_embed tokens, positions;
    tow_transformer_block block;
    tow_remat cheap; /* block, with a policy for what it keeps */
    tow_scan blocks; /* layers times block, or cheap */
    tow_layer_norm norm;
    tow_precision whole; /* the model, in the types of the shape */
} gpt;

typedef struct gpt_shape {
    int64_t vocabulary, layers, width, heads, context;
    const tow_policy *policy; /* NULL: no remat */
    bool unrolled;
    tow_dtype dtype, param_dtype; /* 0: those of the layers, f32 */
} gpt_shape;

/* Fills in `model`, whose parts point to each other: it must stay where it is. It is called through `whole`. */
void gpt_make(gpt *model, const gpt_shape *shape);

/* For tow_train_options.loss of a model with two inputs, tokens and labels: the mean of its losses [batch, context]. */
void gpt_loss(tow_trace *trace, const tow_value *losses, const tow_value *extra, tow_value *loss, tow_value *aux,
              void *user);

#endif
