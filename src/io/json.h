/* JSON as the headers and indices of safetensors files have it: read token by token from a text in memory, which is
 * changed in place, so that reading allocates nothing; and strings to write. */
#ifndef TOW_SRC_IO_JSON_H
#define TOW_SRC_IO_JSON_H

#include "src/base/base.h"

typedef struct tow__json {
    tow_context *ctx;
    const char *path; /* of the file, and */
    const char *what; /* the text is ("the header"), for messages */
    char *start, *at; /* `at` is the next byte to read */
    char *end;        /* where a zero byte stands */
} tow__json;

/* TOW_BAD_FORMAT: what was expected, where, and what was found. */
tow_status tow__json_malformed(const tow__json *json, const char *expected);
/* Skips spaces. True if the next byte is `c`, which is skipped as well. */
bool tow__json_accept(tow__json *json, char c);
/* Skips spaces and `c`. Errors: TOW_BAD_FORMAT. */
tow_status tow__json_expect(tow__json *json, char c);
/* Goes to member or element `index` of an object or list whose first bracket was read and whose last one is `close`.
 * Sets *more to false, and skips the bracket, if there is none. */
tow_status tow__json_next(tow__json *json, size_t index, char close, bool *more);
/* A string: UTF-8 without control characters, escapes resolved, a zero byte behind it. It stays valid with the text.
 * Errors: TOW_BAD_FORMAT, also for an escaped zero byte. */
tow_status tow__json_string(tow__json *json, char **string);
/* Skips spaces. True if an integer that fits stands there, which is read. */
bool tow__json_integer(tow__json *json, int64_t *value);

/* Skips a value of any kind. Errors: TOW_BAD_FORMAT, also for values nested more than 32 deep. */
tow_status tow__json_skip(tow__json *json);
/* Skips spaces; nothing else may be left. */
tow_status tow__json_end(tow__json *json);

/* Adds "string" with escapes. */
void tow__json_add_string(tow__string *text, const char *string);
/* The same of any bytes: what is no UTF-8 becomes U+FFFD, so that the JSON is valid. */
void tow__json_add_text(tow__string *text, const char *string);

/* True if a text is UTF-8 as RFC 3629 has it: neither overlong forms nor surrogates, at most U+10FFFF. */
bool tow__is_utf8(const char *text);

#endif
