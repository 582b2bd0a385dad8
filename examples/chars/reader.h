/* A program that reads texts piece by piece with the parameters of a train state, and carries of its own. */
#ifndef CHARS_READER_H
#define CHARS_READER_H

#include "model.h"

typedef struct reader {
    tow_context *context;
    tow_program *program;
    size_t n_params, n_carries, n_inputs;
    tow_array **inputs; /* parameters..., carries..., tokens, labels; the first and the carries are not owned */
    tow_array *outputs[1 + MOST_LAYERS]; /* the result, new carries */
    tow_array *carries[2][MOST_LAYERS];  /* read by a call, and written by it */
    tow_array *tokens, *labels;          /* i32 [batch, time]; labels NULL if there are none */
} reader;

/* For pieces [batch, time]; result: losses [batch, time] with labels, otherwise logits [batch, time, vocabulary]. */
tow_status reader_create(tow_context *context, const chars *model, const tow_params *params, int64_t batch,
                         int64_t time, bool labels, reader *r);
void reader_free(reader *r);
/* Forgets what was read. */
void reader_reset(reader *r);
/* Reads tokens (and labels): outputs[0] is the result, and the carries are those after the last token. */
tow_status reader_read(reader *r);

#endif
