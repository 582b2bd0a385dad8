/* The reader's characters: positions and errors, words, numbers, types, strings. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/dtypes.h"
#include "src/graph/reader.h"

/* ---- errors ---------------------------------------------------------------------------------------------------- */

static void position(const tow__reader *r, size_t at, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < at && i < r->length; i++) {
        ++*column;
        if (r->text[i] == '\n') ++*line, *column = 1;
    }
}

uint32_t tow__reader_line(tow__reader *r, size_t at)
{
    while (r->counted > at) r->line -= r->text[--r->counted] == '\n';
    for (; r->counted < at && r->counted < r->length; r->counted++) r->line += r->text[r->counted] == '\n';
    return r->line < UINT32_MAX ? (uint32_t)r->line + 1 : 0;
}

bool tow__reader_fail(tow__reader *r, size_t at, tow_status status, const char *format, ...)
{
    if (r->status != TOW_OK) return false;
    va_list args;
    va_start(args, format);
    tow__fail_v(r->ctx, status, format, args);
    va_end(args);
    return tow__reader_wrap(r, at);
}

bool tow__reader_wrap(tow__reader *r, size_t at)
{
    if (r->status != TOW_OK) return false;
    size_t line, column;
    position(r, at, &line, &column);
    r->status = r->ctx->status != TOW_OK ? r->ctx->status : TOW_INTERNAL_ERROR;
    tow__fail(r->ctx, r->status, "line %zu, column %zu: %s", line, column, r->ctx->error);
    return false;
}

bool tow__reader_expected(tow__reader *r, const char *what)
{
    tow__reader_skip(r);
    size_t n = tow__reader_peek_word(r).length;
    if (r->at >= r->length)
        return tow__reader_fail(r, r->at, TOW_BAD_FORMAT, "expected %s, found the end of the text", what);
    if (n == 0) n = 1;
    if (n > 40) n = 40;
    if (!isprint((unsigned char)r->text[r->at]))
        return tow__reader_fail(r, r->at, TOW_BAD_FORMAT, "expected %s, found the byte 0x%02x", what,
                                (unsigned)(unsigned char)r->text[r->at]);
    return tow__reader_fail(r, r->at, TOW_BAD_FORMAT, "expected %s, found '%.*s'", what, (int)n, r->text + r->at);
}

/* ---- characters and words -------------------------------------------------------------------------------------- */

void tow__reader_skip(tow__reader *r)
{
    for (; r->at < r->length; r->at++) {
        if (r->text[r->at] == '#')
            while (r->at + 1 < r->length && r->text[r->at + 1] != '\n') r->at++;
        else if (!strchr(" \t\r\n", r->text[r->at]))
            return;
    }
}

char tow__reader_peek(tow__reader *r)
{
    tow__reader_skip(r);
    return r->at < r->length ? r->text[r->at] : '\0';
}

bool tow__reader_accept(tow__reader *r, char c)
{
    if (tow__reader_peek(r) != c) return false;
    r->at++;
    return true;
}

bool tow__reader_expect(tow__reader *r, char c)
{
    char what[] = {'\'', c, '\'', '\0'};
    return tow__reader_accept(r, c) || tow__reader_expected(r, what);
}

static bool in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

tow__word tow__reader_peek_word(tow__reader *r)
{
    tow__reader_skip(r);
    tow__word w = {r->text + r->at, 0};
    if (r->at < r->length && r->text[r->at] >= '0' && r->text[r->at] <= '9') return w;
    while (r->at + w.length < r->length && in_word(w.text[w.length])) w.length++;
    return w;
}

char tow__reader_after_word(tow__reader *r)
{
    size_t here = r->at;
    r->at += tow__reader_peek_word(r).length;
    char c = tow__reader_peek(r);
    r->at = here;
    return c;
}

bool tow__word_is(tow__word w, const char *text)
{
    return strlen(text) == w.length && memcmp(w.text, text, w.length) == 0;
}

bool tow__reader_keyword(tow__reader *r, const char *keyword)
{
    tow__word w = tow__reader_peek_word(r);
    if (!tow__word_is(w, keyword)) return tow__reader_expected(r, keyword);
    r->at += w.length;
    return true;
}

bool tow__read_word(tow__reader *r, const char *what, tow__word *w)
{
    *w = tow__reader_peek_word(r);
    if (w->length == 0) return tow__reader_expected(r, what);
    r->at += w->length;
    return true;
}

/* ---- numbers and types ----------------------------------------------------------------------------------------- */

bool tow__read_int(tow__reader *r, int64_t *value)
{
    tow__reader_skip(r);
    size_t start = r->at, n = 0;
    char digits[32] = {0}, *end;
    while (start + n < r->length && (isdigit((unsigned char)r->text[start + n]) || (n == 0 && r->text[start] == '-')))
        n++;
    if (n == 0 || (n == 1 && r->text[start] == '-')) return tow__reader_expected(r, "a whole number");
    memcpy(digits, r->text + start, n < sizeof digits - 1 ? n : sizeof digits - 1);
    errno = 0;
    long long number = strtoll(digits, &end, 10);
    if (errno != 0 || n >= sizeof digits - 1)
        return tow__reader_fail(r, start, TOW_BAD_FORMAT, "expected a whole number of 64 bits, found %s%s", digits,
                                n >= sizeof digits - 1 ? "..." : "");
    *value = number;
    r->at += n;
    return true;
}

static bool read_dtype_of(tow__word w, tow_dtype *dtype)
{
    for (int i = 1; i < TOW__DTYPE_LIMIT; i++) {
        *dtype = (tow_dtype)i;
        if (tow__word_is(w, tow_dtype_name(*dtype))) return true;
    }
    return false;
}

bool tow__read_type(tow__reader *r, tow_type *type)
{
    *type = (tow_type){0};
    tow__reader_skip(r);
    size_t start = r->at;
    if (!read_dtype_of(tow__reader_peek_word(r), &type->dtype)) return tow__reader_expected(r, TOW__A_DTYPE_OR_BLOCKS);
    r->at += tow__reader_peek_word(r).length;
    if (!tow__reader_expect(r, '[')) return false;
    while (tow__reader_peek(r) != ']') {
        if (type->rank > 0 && !tow__reader_expect(r, ',')) return false;
        if (type->rank == TOW_MAX_RANK)
            return tow__reader_fail(r, start, TOW_BAD_FORMAT, "expected at most %d dimensions, found more",
                                    TOW_MAX_RANK);
        if (!tow__read_int(r, &type->dims[type->rank])) return false;
        type->rank++;
    }
    r->at++;
    if (tow__type_valid(*type)) return true;
    return tow__reader_fail(r, start, TOW_BAD_FORMAT,
                            "expected dimensions of at least 0 and less than 2^60 bytes in all, found %s",
                            tow__type_name(*type).text);
}

bool tow__read_scalar(tow__reader *r, tow_dtype dtype, void *value)
{
    tow__reader_skip(r);
    const char *word = r->text + r->at;
    size_t n = 0;
    while (r->at + n < r->length && (in_word(word[n]) || strchr("+-.:", word[n]))) n++;
    const char *expected = tow__scalar_read(dtype, word, n, value);
    if (!expected) {
        r->at += n;
        return true;
    }
    if (n == 0) return tow__reader_expected(r, expected);
    return tow__reader_fail(r, r->at, TOW_BAD_FORMAT, "expected %s, found '%.*s'", expected, n > 40 ? 40 : (int)n,
                            word);
}

/* ---- strings --------------------------------------------------------------------------------------------------- */

bool tow__read_string(tow__reader *r, const char **text)
{
    if (tow__reader_peek(r) != '"') return tow__reader_expected(r, "a string in quotes");
    size_t start = r->at++, n = 0, end = r->at;
    while (end < r->length && r->text[end] != '"') end += r->text[end] == '\\' && end + 1 < r->length ? 2 : 1;
    if (end >= r->length)
        return tow__reader_fail(r, start, TOW_BAD_FORMAT,
                                "expected a closing quote for this string, found the end of the text");
    char *copy = tow__trace_alloc(r->t, end - r->at + 1, 1);
    if (!copy) return tow__reader_wrap(r, start);
    while (r->at < end) {
        const char *next = tow__unescape(r->text + r->at, &copy[n++]);
        if (!next) return tow__reader_fail(r, r->at, TOW_BAD_FORMAT, "expected " TOW__ESCAPES " in a string");
        r->at = (size_t)(next - r->text);
    }
    r->at = end + 1;
    *text = copy;
    return true;
}
