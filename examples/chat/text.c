/* Text to tokens, and tokens to text as they come. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"

bool chat_takes_line(chat *c, const char *file, int64_t number, const char *line, size_t length)
{
    tow_encoding *encoding = NULL;
    const char *zero = memchr(line, '\0', length);
    tow_status status = TOW_OK;
    if (zero) {
        fprintf(stderr, "chat: %s: line %lld: expected a text, found a zero byte at byte %lld\n", file,
                (long long)number, (long long)(zero - line));
        return false;
    }
    status = tow_encoding_create(c->context, &encoding);
    if (status == TOW_OK) status = tow_tokenizer_encode(c->tokenizer, line, length, NULL, encoding);
    tow_encoding_free(encoding);
    if (status != TOW_OK) chat_complain_of_line(c, file, number);
    return status == TOW_OK;
}

int32_t *chat_encode(chat *c, const char *text, bool first, int64_t *count)
{
    tow_encoding *encoding = NULL;
    int32_t *ids = NULL;
    const tow_encode_options options = TOW_ENCODE_OPTIONS(.no_special = !first);
    if (tow_encoding_create(c->context, &encoding) == TOW_OK &&
        tow_tokenizer_encode(c->tokenizer, text, strlen(text), &options, encoding) == TOW_OK) {
        *count = (int64_t)tow_encoding_count(encoding);
        ids = calloc((size_t)*count + 1, sizeof *ids);
        if (ids && *count > 0) memcpy(ids, tow_encoding_ids(encoding), (size_t)*count * sizeof *ids);
        if (!ids) fprintf(stderr, "chat: out of memory\n");
    } else {
        chat_complain(c);
    }
    tow_encoding_free(encoding);
    return ids;
}

/* ---- streaming --------------------------------------------------------------------------------------------------- */

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* The text of tokens from .. to, in memory that the caller frees. A zero byte, at which texts of C end, is U+FFFD. */
static char *text_of(const chat_stream *s, size_t from, size_t to)
{
    const size_t length = tow_tokenizer_decode(s->tokenizer, s->tokens + from, to - from, true, NULL, 0);
    const size_t width = sizeof REPLACEMENT - 1, start = (width - 1) * length; /* the bytes are at the end at first */
    char *text = malloc(width * length + 1), *out = text;
    if (!text) return NULL;
    tow_tokenizer_decode(s->tokenizer, s->tokens + from, to - from, true, text + start, length + 1);
    for (size_t i = start; i < start + length; i++) {
        const char byte = text[i];
        memcpy(out, byte ? &byte : REPLACEMENT, byte ? 1 : width);
        out += byte ? 1 : width;
    }
    *out = '\0';
    return text;
}

static bool ends_in_part_of_character(const char *text)
{
    const size_t length = strlen(text), n = sizeof REPLACEMENT - 1;
    return length >= n && memcmp(text + length - n, REPLACEMENT, n) == 0;
}

/* The number of bytes, up to the beginning of a character, that two texts have in common. */
static size_t common_length(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    if (!a[n] && !b[n]) return n;
    while (n > 0 && (((unsigned char)a[n] & 0xc0) == 0x80 || ((unsigned char)b[n] & 0xc0) == 0x80)) n--;
    return n;
}

/* The text of all tokens behind that of those which were shown. It is decoded together with them, since what a token
 * stands for may depend on the tokens before it, as a space does. The text that was shown may become another one, as
 * that of byte tokens does when a later byte makes their run invalid: then the new one follows from where they differ.
 */
static char *new_text(chat_stream *s, bool all)
{
    char *before = text_of(s, s->begin, s->shown), *text = text_of(s, s->begin, s->count);
    if (before && text) {
        const size_t length = strlen(text), shown = common_length(before, text);
        const bool whole = all || !ends_in_part_of_character(text);
        if (whole && length > shown) {
            memmove(text, text + shown, length - shown + 1);
            s->begin = s->shown;
            s->shown = s->count;
        } else {
            text[0] = '\0';
        }
    } else {
        free(text);
        text = NULL;
        s->failed = true;
    }
    free(before);
    return text;
}

static bool push(chat_stream *s, int32_t token)
{
    if (s->count == s->room) {
        const size_t room = 2 * s->room + 64;
        int32_t *tokens = realloc(s->tokens, room * sizeof *tokens);
        s->failed = s->failed || !tokens;
        if (!tokens) return false;
        s->tokens = tokens;
        s->room = room;
    }
    s->tokens[s->count++] = token;
    return true;
}

/* A special token, or that of a byte. */
static bool has_no_text(const tow_tokenizer *tokenizer, int32_t id)
{
    const char *text = tow_tokenizer_token(tokenizer, id);
    return !text || tow_tokenizer_is_special(tokenizer, id) || (strlen(text) == 6 && strncmp(text, "<0x", 3) == 0);
}

/* Of the prompt, a token with text is enough, since it is the space in front of a first token that depends on it. Bytes
 * of the prompt would be parts of characters with those of the answer. */
bool chat_stream_begin(chat_stream *s, const int32_t *prompt, int64_t n)
{
    bool good = true;
    s->count = 0;
    while (n > 0 && has_no_text(s->tokenizer, prompt[n - 1])) n--;
    if (n > 0) good = push(s, prompt[n - 1]);
    s->begin = 0;
    s->shown = s->count;
    return good;
}

char *chat_stream_add(chat_stream *s, int32_t token) { return push(s, token) ? new_text(s, false) : NULL; }

char *chat_stream_end(chat_stream *s) { return new_text(s, true); }

void chat_stream_free(chat_stream *s)
{
    free(s->tokens);
    *s = (chat_stream){0};
}
