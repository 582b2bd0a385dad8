/* A JSON text as a tree: what tokenizer.json is read from. */
#ifndef TOW_SRC_TEXT_DOM_H
#define TOW_SRC_TEXT_DOM_H

#include "src/base/base.h"

typedef enum tow__node_kind {
    TOW__NODE_NULL,
    TOW__NODE_BOOL,
    TOW__NODE_NUMBER, /* an integer, or, without .integral, another number */
    TOW__NODE_STRING,
    TOW__NODE_ARRAY,
    TOW__NODE_OBJECT
} tow__node_kind;

/* Nodes refer to one another by index; 0 is the root, and in .next and .first: none. */
typedef struct tow__node {
    uint8_t kind;
    bool integral, boolean;
    uint32_t next, first, count;
    const char *key; /* of a member; NULL: none */
    const char *string;
    int64_t integer;
    double number; /* of both kinds of numbers */
} tow__node;

typedef struct tow__dom {
    tow_context *ctx;
    char *text; /* [length + 1], a copy; strings are in it */
    size_t length;
    tow__node *nodes;
    size_t count, capacity;
} tow__dom;

/* Errors: TOW_BAD_FORMAT with path and byte. The dom is to be freed also after an error. */
tow_status tow__dom_parse(tow_context *ctx, const char *path, const char *text, size_t length, tow__dom *dom);
void tow__dom_free(tow__dom *dom);
/* The member of an object, or NULL if there is none, or it is null, or `object` is NULL or no object. */
const tow__node *tow__dom_get(const tow__dom *dom, const tow__node *object, const char *key);
/* Elements and members in order; NULL behind the last one, and of NULL. */
const tow__node *tow__dom_first(const tow__dom *dom, const tow__node *node);
const tow__node *tow__dom_next(const tow__dom *dom, const tow__node *node);
/* The member, also if it is null; NULL: there is none. */
const tow__node *tow__dom_member(const tow__dom *dom, const tow__node *object, const char *key);
/* "a string" and so on, for messages. */
const char *tow__dom_kind(const tow__node *node);

#endif
