/* Reading tokenizers: what the files that do so share. */
#ifndef TOW_SRC_TEXT_READ_H
#define TOW_SRC_TEXT_READ_H

#include "src/text/dom.h"
#include "src/text/tokenizer.h"

typedef struct tow__token_reader {
    tow_context *ctx;
    const char *path; /* of the file, for messages */
    tow_tokenizer *t;
    tow__dom dom;
    tow_status wrong; /* the first value of a wrong kind made this, with its message */
} tow__token_reader;

/* Errors with the path. */
__attribute__((format(printf, 3, 4))) tow_status tow__refuse(const tow__token_reader *r, tow_status status,
                                                             const char *format, ...);
/* Values of members, or what is given if there is none. One of another kind is remembered in r->wrong, with a message;
 * who reads a section looks there when he is done. Null is of another kind, except where `tokenizers` writes it for
 * values that are optional. */
const char *tow__take_string(tow__token_reader *r, const tow__node *object, const char *key, const char *otherwise);
bool tow__take_bool(tow__token_reader *r, const tow__node *object, const char *key, bool otherwise);
int64_t tow__take_integer(tow__token_reader *r, const tow__node *object, const char *key, int64_t otherwise);
/* A list or an object; NULL: there is none. */
const tow__node *tow__take_list(tow__token_reader *r, const tow__node *object, const char *key);
const tow__node *tow__take_object(tow__token_reader *r, const tow__node *object, const char *key);
/* The index of a string among names, which end with NULL. */
int tow__take_choice(tow__token_reader *r, const tow__node *object, const char *key, const char *const *names,
                     int otherwise);
/* A string that lives as long as the tokenizer. */
tow_status tow__keep(tow__token_reader *r, const char *text, const char **copy);
/* Adds a step: TOW_UNSUPPORTED if there are too many. */
tow_status tow__count_step(const tow__token_reader *r, int n, const char *what);

/* A type that a part of a section may have. */
typedef struct tow__part tow__part;
struct tow__part {
    const char *type; /* NULL: the end of a table */
    tow_status (*read)(tow__token_reader *r, const tow__node *node, const tow__part *p);
    int kind;
    const char *list; /* of its parts, if it is a sequence */
    const struct field *fields;
};
/* Reads a part, or all parts of a sequence, by the table `parts`. what: for messages. node may be NULL. */
tow_status tow__read_part(tow__token_reader *r, const tow__node *node, const tow__part *parts, const char *what,
                          int depth);

/* The sections of tokenizer.json; a node may be NULL. */
tow_status tow__read_model(tow__token_reader *r, const tow__node *model);
tow_status tow__read_normalizer(tow__token_reader *r, const tow__node *node);
tow_status tow__read_splitter(tow__token_reader *r, const tow__node *node);
tow_status tow__read_processor(tow__token_reader *r, const tow__node *node);
tow_status tow__read_decoder(tow__token_reader *r, const tow__node *node);
tow_status tow__read_added(tow__token_reader *r, const tow__node *list);
/* TOW_UNSUPPORTED if replacements could make a text much longer. */
tow_status tow__check_growth(const tow__token_reader *r);

/* For files of other forms (read_files.c): an empty tokenizer, and its end. */
tow_status tow__tokenizer_create(tow_context *ctx, tow_tokenizer **t);
tow_status tow__tokenizer_finish(tow__token_reader *r);
/* BPE of vocabulary and merges that are tokens. Errors: TOW_BAD_FORMAT for one that is not in the vocabulary. */
tow_status tow__add_merge(tow__token_reader *r, const char *left, size_t left_length, const char *right,
                          size_t right_length, uint32_t rank);
void tow__find_bytes(tow__token_reader *r);
/* An added token; where the vocabulary has it already, it keeps its id. */
tow_status tow__add_added(tow__token_reader *r, const char *content, int32_t id, bool special,
                          const tow__added *options);

#endif
