/* Shared by the parts of the program. */
#ifndef CHAT_H
#define CHAT_H

#include <tow/tow.h>

#include "common/common.h"
#include "common/golden.h"
#include "model.h"

typedef struct chat {
    const char *path, *prompt, *prompts, *check, *dtype, *cache_dtype;
    const char *layout; /* NULL: none was named */
    int64_t tokens, top_k, threads, positions, rows;
    double temperature, top_p, repetition_penalty;
    uint64_t seed;
    bool greedy, ignore_end, bare;
    tow_context *context;
    tow_tokenizer *tokenizer;
    chat_config config;
    chat_model model;
    chat_model_options options;
    const tow_module *module; /* the model, with its types */
    tow_params *params;
    tow_weight_dtypes *dtypes; /* of a GGUF file; NULL: one for all */
} chat;

/* Prints the message of the context. Gives FAILURE. */
int chat_complain(const chat *c);
/* The same, of a line of a file. */
int chat_complain_of_line(const chat *c, const char *file, int64_t number);

tow_sampling chat_sampling(const chat *c);

/* load.c: the configuration, the tokenizer unless only logits are checked, and the weights. */
int chat_load(chat *c);
void chat_unload(chat *c);
/* talk.c: goes on with the prompt, or answers line after line of the standard input. */
int chat_talk(chat *c);
/* serve.c: goes on with each line of a file, several at a time. */
int chat_serve(chat *c);

/* interrupt.c: Ctrl-C ends the answer at hand, by the context's cancellation; where there is none, it ends the
 * program. */

void chat_catch_interrupts(tow_context *context);
/* Between the two Ctrl-C is counted. begin: the answer begins, and nothing is cancelled. end: true if it was. */
void chat_answer_begins(void);
bool chat_answer_ends(void);

/* ---- text.c ---- */

/* The tokens of a text in memory that the caller frees; NULL with a message. first: with what the tokenizer puts around
 * a text. */
int32_t *chat_encode(chat *c, const char *text, bool first, int64_t *count);

/* False with a message that has the number of the line: it has a zero byte, or is not UTF-8. */
bool chat_takes_line(chat *c, const char *file, int64_t number, const char *line, size_t length);

/* Text as its tokens come: whole characters alone. */
typedef struct chat_stream {
    tow_tokenizer *tokenizer;
    int32_t *tokens;
    size_t count, room;
    size_t begin, shown; /* tokens from begin to shown give the text that was shown last */
    bool failed;         /* memory is missing */
} chat_stream;

/* An answer begins behind the tokens of a prompt, whose text is not given. False: no memory. */
bool chat_stream_begin(chat_stream *s, const int32_t *prompt, int64_t n);
/* The text that one more token completes: "" or whole characters, in memory that the caller frees. NULL: no memory. */
char *chat_stream_add(chat_stream *s, int32_t token);
/* The text that is left at the end, in which a part of a character is U+FFFD. */
char *chat_stream_end(chat_stream *s);
void chat_stream_free(chat_stream *s);

/* ---- layout.c ---- */

/* The texts around the lines of a user. */
typedef struct chat_layout {
    const char *name;
    const char *first;  /* in front of all */
    const char *before; /* in front of each line */
    const char *after;  /* behind it, in front of the answer */
    const char *next;   /* behind an answer: begins with .end */
    const char *end;    /* the token that ends an answer, besides those of config.json; NULL: none */
} chat_layout;

/* NULL with a message if there is none of that name. name NULL: plain. */
const chat_layout *chat_find_layout(const char *name);

#endif
