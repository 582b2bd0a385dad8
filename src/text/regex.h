/* Regular expressions that are not written by hand (words.c): by PCRE2, if the library is built with it. */
#ifndef TOW_SRC_TEXT_REGEX_H
#define TOW_SRC_TEXT_REGEX_H

#include "src/base/base.h"

typedef struct tow__regex tow__regex;

/* Compiles a pattern as the package `tokenizers` means it, in the syntax of Oniguruma. Errors, without a path:
 * TOW_BAD_FORMAT; TOW_UNSUPPORTED for what means something else in PCRE2, for patterns that match nothing, and without
 * PCRE2. */
tow_status tow__regex_create(tow_context *ctx, const char *pattern, tow__regex **regex);
void tow__regex_free(tow__regex *regex);
/* Bytes of the shortest match, at least 1. */
size_t tow__regex_shortest(const tow__regex *regex);
/* Allows a number of steps, which the length of a text gives, until the next call. */
void tow__regex_allow(tow__regex *regex, size_t length);
/* The next match in text[at..end), of which only text[begin..end) is seen; false if there is none, or after a failure.
 * */
bool tow__regex_find(tow__regex *regex, const char *text, size_t begin, size_t at, size_t end, size_t *match_begin,
                     size_t *match_end);
/* TOW_OK, or what a search failed of, with a message: TOW_INVALID_ARGUMENT for a text that takes too many steps. */
tow_status tow__regex_status(const tow__regex *regex);

#endif
