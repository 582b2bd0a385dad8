/* GPT-2 in the words of Tow, with the sizes of a config.json of Hugging Face's transformers. */
#ifndef GPT2_MODEL_H
#define GPT2_MODEL_H

#include <tow/tow.h>

typedef struct gpt2_config {
    int64_t vocabulary, positions, width, layers, heads, hidden;
    double epsilon;
} gpt2_config;

/* Reads DIRECTORY/config.json. Prints a message and returns false if it is not that of a GPT-2. */
bool gpt2_read_config(const char *directory, gpt2_config *config);

typedef struct gpt2 {
    tow_module module;
    tow_embed tokens;
    tow_learned_positions positions;
    tow_transformer_block block;
    tow_scan blocks;
    tow_layer_norm norm;
} gpt2;

/* decode: calls go on where the call before ended, with a cache of all positions, and give the logits of the last one
 * alone. */
void gpt2_make(gpt2 *model, const gpt2_config *config, bool decode);

#endif
