/* Growing text. Failure is remembered instead of returned, so that printers need one check at their end. */
#include <stdio.h>

#include "src/base/base.h"

void tow__string_init(tow__string *s, tow_context *ctx) { *s = (tow__string){.ctx = ctx}; }

void tow__string_free(tow__string *s)
{
    tow__free(s->ctx, s->text, s->capacity, 1);
    *s = (tow__string){.ctx = s->ctx};
}

static bool reserve(tow__string *s, size_t more)
{
    size_t needed = s->length + more + 1;
    if (needed <= s->capacity) return true;
    size_t capacity = s->capacity ? s->capacity : 128;
    while (capacity < needed) capacity *= 2;
    char *text = tow__grow(s->ctx, s->text, s->capacity, capacity, 1);
    if (!text) {
        s->failed = true;
        return false;
    }
    s->text = text;
    s->capacity = capacity;
    return true;
}

void tow__string_add(tow__string *s, const char *format, ...)
{
    if (s->failed) return;
    size_t room = s->capacity - s->length;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(s->text ? s->text + s->length : NULL, room, format, args);
    va_end(args);
    if (length < 0) {
        s->failed = true;
        return;
    }
    if ((size_t)length >= room) { /* did not fit: once more with room */
        if (s->text) s->text[s->length] = '\0';
        if (!reserve(s, (size_t)length)) return;
        va_start(args, format);
        vsnprintf(s->text + s->length, (size_t)length + 1, format, args);
        va_end(args);
    }
    s->length += (size_t)length;
}

void tow__string_add_type(tow__string *s, tow_type type) { tow__string_add(s, "%s", tow__type_name(type).text); }

/* ---- text in quotes -------------------------------------------------------------------------------------------- */

tow__escaped tow__escape(char c)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char u = (unsigned char)c;
    if (c == '"' || c == '\\') return (tow__escaped){{'\\', c}};
    if (u < 0x20 || u == 0x7f) return (tow__escaped){{'\\', 'x', digits[u >> 4], digits[u & 15]}};
    return (tow__escaped){{c}};
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

const char *tow__unescape(const char *text, char *c)
{
    *c = *text++;
    if (*c != '\\') return *c ? text : NULL;
    char kind = *text;
    *c = kind == 'n' ? '\n' : kind == 't' ? '\t' : kind;
    if (kind == '"' || kind == '\\' || kind == 'n' || kind == 't') return text + 1;
    int high = kind == 'x' ? hex_digit(text[1]) : -1, low = high >= 0 ? hex_digit(text[2]) : -1;
    *c = (char)(high * 16 + low);
    return high >= 0 && low >= 0 && *c ? text + 3 : NULL;
}

void tow__string_add_quoted(tow__string *s, const char *text)
{
    tow__string_add(s, "\"");
    for (; *text; text++) tow__string_add(s, "%s", tow__escape(*text).text);
    tow__string_add(s, "\"");
}

size_t tow__string_export(const tow__string *s, char *text, size_t size)
{
    if (size > 0) {
        size_t n = s->length < size - 1 ? s->length : size - 1;
        if (n > 0) memcpy(text, s->text, n);
        text[n] = '\0';
    }
    return s->length;
}
