/* convert-weights --architecture: what its files share. */
#ifndef TOW_SRC_TOOL_GGUF_H
#define TOW_SRC_TOOL_GGUF_H

#include "src/tool/tool.h"

/* A kind of model: its name in GGUF files, and the tables of its names in both kinds of files. */
typedef struct tool_architecture {
    const char *name, *theirs, *gguf;
} tool_architecture;

/* weights.c: error TOW_NOT_FOUND with the names that there are. */
tow_status tool_find_architecture(tool *t, const char *name, const tool_architecture **architecture);

/* A number of config.json under its names there, and the end of its key in GGUF files. */
typedef struct tool_number {
    const char *key, *names[3];
    tow_metadata_type type;
    const char *only; /* of this architecture alone; NULL: of all */
} tool_number;
extern const tool_number tool_numbers[]; /* gguf.c; ends with .key NULL */

/* A GGUF file to be written. */
typedef struct tool_gguf {
    tool *tool;
    const char *directory; /* of the weights, config.json and tokenizer.json */
    tow_gguf_type type;    /* of matrices */
    const tool_architecture *architecture;
    tow_tensors *metadata; /* and tensors that are no weights */
    tow_gguf_model model;  /* that they make */
} tool_gguf;

/* Finds the architecture, by its name or, if that is "auto", by config.json, and sets the metadata of an empty set. */
tow_status tool_gguf_begin(tool_gguf *g, const char *name);

/* Gemma 2's query_pre_attn_scalar, which has no key in GGUF: llama.cpp takes it from the size of a head, and in the
 * model of 46 layers from the features of the model for each head. */
int64_t tool_gemma2_scalar(const tow_gguf_model *model);

/* transformers.c: what a directory of transformers has beside the weights of a GGUF file. */
typedef struct tool_transformers {
    const tow_tensors *tensors; /* of the file */
    const tow_gguf_model *model;
    const tool_architecture *architecture;
    json_t *config, *tokenizer_config; /* NULL: there is none */
} tool_transformers;

/* Makes config.json, and tokenizer_config.json if the file has a tokenizer. Errors: what they cannot say. */
tow_status tool_transformers_begin(tool *t, tool_transformers *f);
/* Writes them and tokenizer.json. */
tow_status tool_transformers_write(tool *t, const tool_transformers *f, const char *directory);
void tool_transformers_end(tool_transformers *f);

#endif
