/* Logits against those of another implementation. */
#ifndef EXAMPLE_GOLDEN_H
#define EXAMPLE_GOLDEN_H

#include <tow/tow.h>

/* Prints the largest difference of the logits of `model` from those of a safetensors file, which has input_ids i32 [B,
 * T] and logits f32 [B, T, V]. Gives SUCCESS if it is at most 1e-5 of the largest logit, else FAILURE with a message of
 * `program`. */
int check_logits(const char *program, tow_context *context, const tow_module *model, const tow_params *params,
                 const char *path);

#endif
