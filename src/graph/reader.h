/* Inside the reader of the textual form: the text with its position, and what reads the parts of an equation. All
 * functions that return bool return false after an error, whose text with line and column is then in the context. */
#ifndef TOW_SRC_GRAPH_READER_H
#define TOW_SRC_GRAPH_READER_H

#include "src/graph/text.h"

typedef struct tow__reader {
    tow_context *ctx;
    tow_trace *t;
    const char *text;
    size_t at, length;
    size_t counted, line; /* newlines before `counted` */
    tow_status status;    /* of the first error */
} tow__reader;

typedef struct tow__word {
    const char *text;
    size_t length;
} tow__word;

/* ---- reader.c: characters, words, numbers, types --------------------------------------------------------------- */

/* Reports at position `at`. Always false. */
__attribute__((format(printf, 4, 5))) bool tow__reader_fail(tow__reader *r, size_t at, tow_status status,
                                                            const char *format, ...);
/* The line of position `at`, from 1 on, counted from the position asked for before. */
uint32_t tow__reader_line(tow__reader *r, size_t at);
/* Puts line and column before the context's error (of a type rule, a policy). Always false. */
bool tow__reader_wrap(tow__reader *r, size_t at);
/* "expected WHAT, found ..." here. Always false. */
bool tow__reader_expected(tow__reader *r, const char *what);
void tow__reader_skip(tow__reader *r); /* blanks and comments */
/* The next character after blanks; '\0' at the end. */
char tow__reader_peek(tow__reader *r);
bool tow__reader_accept(tow__reader *r, char c);
bool tow__reader_expect(tow__reader *r, char c);
/* The next word [A-Za-z_][A-Za-z0-9_]*, or length 0. Does not move. */
tow__word tow__reader_peek_word(tow__reader *r);
/* The character after the next word and blanks. */
char tow__reader_after_word(tow__reader *r);
bool tow__reader_keyword(tow__reader *r, const char *keyword);
bool tow__word_is(tow__word w, const char *text);
bool tow__read_word(tow__reader *r, const char *what, tow__word *w);
bool tow__read_int(tow__reader *r, int64_t *value);
bool tow__read_type(tow__reader *r, tow_type *type);
/* A quoted string, unescaped, in memory of the trace. */
bool tow__read_string(tow__reader *r, const char **text);
/* A scalar of dtype into *value (tow_dtype_size bytes). */
bool tow__read_scalar(tow__reader *r, tow_dtype dtype, void *value);

/* ---- read_params.c: [name=value ...] --------------------------------------------------------------------------- */

/* Fills params (zeroed, params_size bytes); result: declared type of the first result, or NULL. */
bool tow__read_params(tow__reader *r, const tow_primitive *primitive, const tow_type *result, void *params);
/* Frees what tow__read_params made, also after an error. */
void tow__free_read_params(const tow_primitive *primitive, void *params);

/* ---- parse.c --------------------------------------------------------------------------------------------------- */
bool tow__read_nested(tow__reader *r, tow_graph **graph);
/* The number of letters that must be changed, added or removed to make w the candidate; for hints. */
size_t tow__word_distance(tow__word w, const char *candidate);

#endif
