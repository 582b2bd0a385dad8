/* Tokens of JSON (RFC 8259). Resolving escapes never makes a string longer, so strings are resolved where they
 * stand. */
#include "src/io/json.h"

#include <stdio.h>

/* ---- UTF-8 ------------------------------------------------------------------------------------------------------- */

/* Bytes of the character at `text`, whose end is a zero byte; 0 if it is malformed. */
static int utf8_length(const unsigned char *c)
{
    const int length = *c < 0x80                 ? 1
                       : *c >= 0xc2 && *c < 0xe0 ? 2
                       : (*c & 0xf0) == 0xe0     ? 3
                       : *c >= 0xf0 && *c < 0xf5 ? 4
                                                 : 0;
    if ((*c == 0xe0 && c[1] < 0xa0) || (*c == 0xed && c[1] > 0x9f) || (*c == 0xf0 && c[1] < 0x90) ||
        (*c == 0xf4 && c[1] > 0x8f))
        return 0;
    for (int i = 1; i < length; i++)
        if ((c[i] & 0xc0) != 0x80) return 0;
    return length;
}

bool tow__is_utf8(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        const int length = utf8_length(c);
        if (length == 0) return false;
        c += length;
    }
    return true;
}

static char *put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    *to++ = (char)(first[more] | code >> (6 * more));
    for (int i = more - 1; i >= 0; i--) *to++ = (char)(0x80 | (code >> (6 * i) & 0x3f));
    return to;
}

/* ---- punctuation and numbers ------------------------------------------------------------------------------------- */

tow_status tow__json_malformed(const tow__json *json, const char *expected)
{
    char found[32] = "the end";
    const unsigned char c = (unsigned char)*json->at;
    if (json->at != json->end) snprintf(found, sizeof found, c > ' ' && c < 127 ? "'%c'" : "byte 0x%02x", c);
    return tow__fail(json->ctx, TOW_BAD_FORMAT, "%s: %s is not valid JSON: expected %s at byte %td of it, found %s",
                     json->path, json->what, expected, json->at - json->start, found);
}

static void skip_spaces(tow__json *json) { json->at += strspn(json->at, " \t\n\r"); }

bool tow__json_accept(tow__json *json, char c)
{
    skip_spaces(json);
    if (*json->at != c) return false;
    json->at++;
    return true;
}

tow_status tow__json_expect(tow__json *json, char c)
{
    const char expected[] = {'\'', c, '\'', '\0'};
    return tow__json_accept(json, c) ? TOW_OK : tow__json_malformed(json, expected);
}

tow_status tow__json_next(tow__json *json, size_t index, char close, bool *more)
{
    *more = !tow__json_accept(json, close);
    if (!*more || index == 0) return TOW_OK;
    const char expected[] = {'\'', ',', '\'', ' ', 'o', 'r', ' ', '\'', close, '\'', '\0'};
    return tow__json_accept(json, ',') ? TOW_OK : tow__json_malformed(json, expected);
}

bool tow__json_integer(tow__json *json, int64_t *value)
{
    skip_spaces(json);
    const char *c = json->at;
    const bool negative = *c == '-';
    int64_t n = 0;
    c += negative;
    if (*c < '0' || *c > '9' || (*c == '0' && c[1] >= '0' && c[1] <= '9')) return false;
    for (; *c >= '0' && *c <= '9'; c++) {
        const int digit = negative ? '0' - *c : *c - '0';
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, digit, &n)) return false;
    }
    if (*c == '.' || *c == 'e' || *c == 'E') return false;
    json->at += c - json->at;
    *value = n;
    return true;
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

/* The four digits at `text`; false if they are not there. */
static bool hex4(const char *text, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    return true;
}

static const char escapes[] = "\"\\/bfnrt", escaped[] = "\"\\/\b\f\n\r\t";

/* Resolves the escape behind a backslash at json->at; moves both ends. */
static tow_status resolve(tow__json *json, char **to)
{
    const char *found = json->at[1] != '\0' ? strchr(escapes, json->at[1]) : NULL;
    uint32_t code, low;
    if (found) {
        *(*to)++ = escaped[found - escapes];
        json->at += 2;
        return TOW_OK;
    }
    if (json->at[1] != 'u' || !hex4(json->at + 2, &code)) return tow__json_malformed(json, "an escape");
    if (code == 0 || (code >= 0xdc00 && code < 0xe000))
        return tow__json_malformed(json, "neither \\u0000 nor the second half of a surrogate pair");
    json->at += 6;
    if (code >= 0xd800 && code < 0xdc00) {
        if (json->at[0] != '\\' || json->at[1] != 'u' || !hex4(json->at + 2, &low) || low < 0xdc00 || low > 0xdfff)
            return tow__json_malformed(json, "the second half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        json->at += 6;
    }
    *to = put_utf8(*to, code);
    return TOW_OK;
}

tow_status tow__json_string(tow__json *json, char **string)
{
    if (!tow__json_accept(json, '"')) return tow__json_malformed(json, "a string");
    char *to = json->at;
    *string = json->at;
    while (*json->at != '"') {
        if (*json->at == '\\') {
            tow_status status = resolve(json, &to);
            if (status != TOW_OK) return status;
            continue;
        }
        const int length = utf8_length((const unsigned char *)json->at);
        if (length == 0 || (unsigned char)*json->at < 0x20)
            return tow__json_malformed(json, length == 0 ? "UTF-8" : "a character or '\"'");
        memmove(to, json->at, (size_t)length);
        to += length;
        json->at += length;
    }
    json->at++; /* before the byte is overwritten: an empty string ends where it begins */
    *to = '\0';
    return TOW_OK;
}

/* ---- values that nobody needs ------------------------------------------------------------------------------------ */

enum {
    DEEPEST = 32
};

static tow_status skip_value(tow__json *json, int depth);

/* Members or elements up to the bracket. */
static tow_status skip_all(tow__json *json, char close, int depth)
{
    tow_status status = TOW_OK;
    bool more;
    for (size_t i = 0;; i++) {
        char *name;
        TRY(tow__json_next(json, i, close, &more));
        if (!more) break;
        if (close == '}') {
            TRY(tow__json_string(json, &name));
            TRY(tow__json_expect(json, ':'));
        }
        TRY(skip_value(json, depth + 1));
    }
done:
    return status;
}

static tow_status skip_value(tow__json *json, int depth)
{
    static const char *const words[] = {"true", "false", "null"};
    char *string;
    if (depth > DEEPEST) return tow__json_malformed(json, "values nested at most 32 deep");
    if (tow__json_accept(json, '{')) return skip_all(json, '}', depth);
    if (tow__json_accept(json, '[')) return skip_all(json, ']', depth);
    if (*json->at == '"') return tow__json_string(json, &string);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncmp(json->at, words[i], strlen(words[i])) != 0) continue;
        json->at += strlen(words[i]);
        return TOW_OK;
    }
    const size_t number =
        *json->at == '-' || (*json->at >= '0' && *json->at <= '9') ? strspn(json->at, "+-.0123456789eE") : 0;
    json->at += number;
    return number > 0 ? TOW_OK : tow__json_malformed(json, "a value");
}

tow_status tow__json_skip(tow__json *json) { return skip_value(json, 0); }

tow_status tow__json_end(tow__json *json)
{
    skip_spaces(json);
    return json->at == json->end ? TOW_OK : tow__json_malformed(json, "nothing behind the object");
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Bytes of the character of UTF-8 at c; 0: there is none. Overlong forms, surrogates and what is beyond U+10FFFF are no
 * characters. */
static size_t character_bytes(const unsigned char *c)
{
    if (c[0] < 0x80) return 1;
    const size_t n = c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;
    if (c[0] < 0xc2 || c[0] > 0xf4) return 0;
    for (size_t i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80) return 0;
    const bool overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    const bool beyond = (c[0] == 0xed && c[1] >= 0xa0) || (c[0] == 0xf4 && c[1] >= 0x90);
    return overlong || beyond ? 0 : n;
}

void tow__json_add_text(tow__string *text, const char *string)
{
    tow__string whole = {.ctx = text->ctx};
    for (const char *c = string; *c;) {
        const size_t n = character_bytes((const unsigned char *)c);
        tow__string_add(&whole, "%.*s", n ? (int)n : 3, n ? c : "\xef\xbf\xbd");
        c += n ? n : 1;
    }
    text->failed |= whole.failed;
    tow__json_add_string(text, whole.text ? whole.text : "");
    tow__string_free(&whole);
}

void tow__json_add_string(tow__string *text, const char *string)
{
    tow__string_add(text, "\"");
    for (const char *c = string; *c;) {
        size_t plain = 0;
        while ((unsigned char)c[plain] >= 0x20 && c[plain] != '"' && c[plain] != '\\') plain++;
        if (plain > 0) tow__string_add(text, "%.*s", (int)plain, c);
        c += plain;
        if (*c == '\0') break;
        const char *found = strchr(escaped, *c);
        if (found)
            tow__string_add(text, "\\%c", escapes[found - escaped]);
        else
            tow__string_add(text, "\\u%04x", (unsigned)(unsigned char)*c);
        c++;
    }
    tow__string_add(text, "\"");
}
