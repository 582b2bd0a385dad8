/* convert-weights --architecture: what its two files share. */
#ifndef TOW_SRC_TOOL_GGUF_H
#define TOW_SRC_TOOL_GGUF_H

#include "src/tool/tool.h"

/* A kind of model: its name in GGUF files, and the tables of its names in both kinds of files. */
typedef struct tool_architecture {
    const char *name, *theirs, *gguf;
} tool_architecture;

/* weights.c: error TOW_NOT_FOUND with the names that there are. */
tow_status tool_find_architecture(tool *t, const char *name, const tool_architecture **architecture);

/* A GGUF file to be written. */
typedef struct tool_gguf {
    tool *tool;
    const char *directory; /* of the weights, config.json and tokenizer.json */
    tow_gguf_type type;    /* of matrices */
    const tool_architecture *architecture;
    tow_tensors *metadata;
} tool_gguf;

/* Finds the architecture, by its name or, if that is "auto", by config.json, and sets the metadata of an empty set. */
tow_status tool_gguf_begin(tool_gguf *g, const char *name);

#endif
