/* A character model: an embedding, layers of GRUs whose carries are variables, and a product with the vocabulary. */
#ifndef CHARS_MODEL_H
#define CHARS_MODEL_H

#include <tow/tow.h>

enum {
    MOST_LAYERS = 8
};

typedef struct chars {
    tow_module module;
    tow_embed tokens;
    tow_gru_cell cell;
    tow_rnn rnn; /* the same struct for all layers: the scopes make the difference */
    tow_dense head;
    int64_t layers;
} chars;

/* tokens i32 [batch, time] -> logits [batch, time, vocabulary];
 * tokens, labels i32 [batch, time] -> loss [batch, time].
 * Layer i begins with the variable "carry" "gru_i/h" [batch, width] and, where "carry" is mutable, writes what it ends
 * with. */
void chars_make(chars *m, int64_t vocabulary, int64_t width, int64_t layers);

/* The mean of the losses. */
void chars_loss(tow_trace *trace, const tow_value *losses, const tow_value *extra, tow_value *loss, tow_value *aux,
                void *user);

#endif
