/* Decoders of Hugging Face's transformers in the words of Tow: GPT-2, Llama and what is shaped like it (Mistral, Qwen 2
 * and 3, Gemma and Gemma 2), with the sizes of a config.json or of a GGUF file. */
#ifndef CHAT_MODEL_H
#define CHAT_MODEL_H

#include <tow/tow.h>

enum {
    MOST_ENDS = 8 /* tokens that end an answer */
};

typedef struct chat_config {
    const char *mapping; /* the table of weight names (tow_weight_mapping_read) */
    bool learned_positions, tied;
    bool one_plus;      /* norms multiply by 1 + the scale of the file */
    bool scaled_tokens; /* the rows of the table are multiplied by the root of their features */
    double logit_cap;   /* of the output; 0: none */
    int64_t vocabulary, positions, width, layers;
    bool layer_by_layer;  /* parameters are not stacked: the layers' have different types */
    int64_t local_window; /* every second layer, from the first one on, sees so many keys; 0: none */
    double epsilon;
    tow_transformer_block block; /* without what decoding needs */
    int32_t ends[MOST_ENDS + 1]; /* the files' and the layout's */
    size_t n_ends;
} chat_config;

/* Reads DIRECTORY/config.json. Prints a message of `program` and returns false for a model of another kind. */
bool chat_read_config(const char *program, const char *directory, chat_config *config);

/* The same from the metadata of a GGUF file. */
bool chat_read_gguf(const char *program, tow_context *context, const char *path, chat_config *config);

typedef struct chat_model {
    tow_module module;
    const chat_config *config;
    tow_embed tokens;
    tow_learned_positions positions;
    tow_transformer_block block, local;
    tow_scan blocks; /* of models whose layers are all alike */
    tow_layer_norm layer_norm;
    tow_rms_norm rms_norm;
    tow_dense head;
    bool decodes;
    tow_map_variables one_plus;
    tow_precision precision;
} chat_model;

typedef struct chat_model_options {
    tow_dtype dtype;       /* of the parameters; activations are f32 */
    const tow_dtype_rule *dtypes; /* of those whose types are others; may be NULL */
    tow_dtype cache_dtype; /* of keys and values */
    int64_t context; /* positions of the cache; 0: the model does not decode, and gives the logits of all positions */
} chat_model_options;

/* tokens i32 [B, T] -> logits f32 [B, T, V], or of a model that decodes [B, 1, V]. The result and `config` live
 * as long as `model`. */
const tow_module *chat_make_model(chat_model *model, const chat_config *config, const chat_model_options *options);

#endif
