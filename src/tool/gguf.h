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

/* Sets a number, or an array of numbers or texts. */
tow_status tool_set_integer(tool_gguf *g, const char *key, tow_metadata_type type, int64_t integer);
tow_status tool_set_array(tool_gguf *g, const char *key, tow_metadata_type element, size_t count, const void *elements);

enum { /* types of tokens in GGUF files */
    TOOL_NORMAL = 1,
    TOOL_UNKNOWN,
    TOOL_CONTROL,
    TOOL_USER_DEFINED,
    TOOL_UNUSED,
    TOOL_BYTE
};

/* gguf_tokenizer.c: sets the metadata of the tokenizer. generation: generation_config.json, or NULL. root:
 * tokenizer.json. */
tow_status tool_set_tokenizer(tool_gguf *g, const json_t *config, const json_t *generation, const json_t *root);

/* check_tokenizer.c: a way in which texts are normalized and cut, which GGUF files have a name for. */
typedef struct tool_splitting {
    const char *pre;              /* tokenizer.ggml.pre */
    const char *normalizer, *cut; /* the steps of both sections of tokenizer.json, separated by ", " */
    bool bytes;                   /* on bytes, as GPT-2 does; else on characters, as SentencePiece does */
    bool ignore_merges;           /* which the name implies */
    bool prefix;                  /* a space is put in front of texts */
    const char *extra;            /* when it is put there, as GGUF files do not have it; NULL: as they have it */
} tool_splitting;

/* Finds the one whose GGUF file gives the tokens that tokenizer.json gives. Warnings are printed where spaces in front
 * of texts or added tokens in them may be others. Errors: TOW_UNSUPPORTED with the section that no GGUF file says, and
 * what was found. */
tow_status tool_check_tokenizer(tool_gguf *g, const json_t *root, bool bytes, const tool_splitting **splitting);
/* The merges of a tokenizer on characters against those that scores of tokens lead to. types: by id. */
tow_status tool_check_merges(tool_gguf *g, const json_t *model, const int32_t *types, size_t count);
/* "a b" of a merge "a b" or ["a", "b"], malloc'ed; NULL: it is none. */
char *tool_merge_text(const json_t *merge);
/* True if the section of tokenizer.json, or one in its list, is of the type. */
bool tool_has_type(const json_t *section, const char *type, const char *list_name);

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
/* Moves the directory's config.json aside while its weights are replaced, so that no half replaced directory looks like
 * a model. Then: puts it back, where the weights stayed, or removes it. */
tow_status tool_transformers_set_aside(tool *t, const char *directory);
void tool_transformers_put_back(const char *directory, bool stayed);
/* Writes them and tokenizer.json. */
tow_status tool_transformers_write(tool *t, const tool_transformers *f, const char *directory);
void tool_transformers_end(tool_transformers *f);

#endif
