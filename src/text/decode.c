/* Tokens to text: a list of strings goes through the decoders of the file, and is joined. */
#include <stdlib.h>

#include "src/text/tokenizer.h"

/* Strings one after the other. */
typedef struct strings {
    tow__text text; /* whose spans are not used */
    tow__ranges items;
} strings;

static void init(strings *s, tow_context *ctx)
{
    tow__text_init(&s->text, ctx);
    s->items = (tow__ranges){.ctx = ctx};
}

static void free_strings(strings *s)
{
    tow__text_free(&s->text);
    tow__ranges_free(&s->items);
}

static void add(strings *s, const char *text, size_t length)
{
    tow__text_add(&s->text, text, length, (tow__source_span){0, 0});
}

/* Ends a string that began at byte `begin`; empty ones count, too. */
static void end(strings *s, size_t begin)
{
    tow__ranges_add(&s->items, begin, s->text.length + 1); /* + 1: empty strings are kept; taken off by `get` */
}

static const char *get(const strings *s, size_t i, size_t *length)
{
    const tow__text_range r = s->items.items[i];
    *length = r.end - 1 - r.begin;
    return s->text.bytes + r.begin;
}

/* ---- byte level -------------------------------------------------------------------------------------------------- */

/* Adds bytes; what is no UTF-8 becomes U+FFFD. */
static void add_lossy(strings *s, const char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        int broken;
        const int n = tow__utf8_check(bytes + at, length - at, &broken);
        if (n > 0)
            add(s, bytes + at, (size_t)n);
        else
            add(s, "\xef\xbf\xbd", 3);
        at += (size_t)(n > 0 ? n : broken);
    }
}

/* The bytes that the characters of a token stand for, or, if one stands for none, its own. */
static void add_bytes(strings *s, const char *token, size_t length)
{
    const size_t begin = s->text.length;
    for (size_t at = 0; at < length;) {
        uint32_t c;
        at += (size_t)tow__utf8_get(token + at, &c);
        const int byte = tow__character_byte(c);
        if (byte < 0) {
            s->text.length = begin;
            add(s, token, length);
            return;
        }
        add(s, &(char){(char)byte}, 1);
    }
}

static void byte_level(const strings *from, strings *to)
{
    strings bytes;
    init(&bytes, from->text.ctx);
    for (size_t i = 0; i < from->items.count; i++) {
        size_t length;
        const char *token = get(from, i, &length);
        add_bytes(&bytes, token, length);
    }
    if (bytes.text.failed)
        to->text.failed = true;
    else if (bytes.text.length > 0)
        add_lossy(to, bytes.text.bytes, bytes.text.length);
    end(to, 0);
    free_strings(&bytes);
}

/* The byte of a token <0xHH>, or -1. */
static int fallback_byte(const char *token, size_t length)
{
    char digits[3] = {0}, *stop;
    if (length != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>') return -1;
    memcpy(digits, token + 3, 2);
    const long byte = strtol(digits, &stop, 16);
    return *stop == '\0' && stop == digits + 2 && byte >= 0 && digits[0] != '+' && digits[0] != ' ' ? (int)byte : -1;
}

/* Bytes that follow one another as text, or, if they are no UTF-8, as one U+FFFD each. */
static void flush_bytes(strings *bytes, strings *to)
{
    bool good = true;
    const size_t length = bytes->text.length, begin = to->text.length;
    if (length == 0) return;
    for (size_t at = 0; at < length && good;) {
        int broken;
        const int n = tow__utf8_check(bytes->text.bytes + at, length - at, &broken);
        good = n > 0;
        at += (size_t)n;
    }
    if (good) {
        add(to, bytes->text.bytes, length);
        end(to, begin);
    }
    for (size_t i = 0; i < length && !good; i++) {
        const size_t one = to->text.length;
        add(to, "\xef\xbf\xbd", 3);
        end(to, one);
    }
    bytes->text.length = 0;
}

static void byte_fallback(const strings *from, strings *to)
{
    strings bytes;
    init(&bytes, from->text.ctx);
    for (size_t i = 0; i < from->items.count; i++) {
        size_t length;
        const char *token = get(from, i, &length);
        const int byte = fallback_byte(token, length);
        if (byte >= 0) {
            add(&bytes, &(char){(char)byte}, 1);
            continue;
        }
        flush_bytes(&bytes, to);
        const size_t begin = to->text.length;
        add(to, token, length);
        end(to, begin);
    }
    flush_bytes(&bytes, to);
    if (bytes.text.failed) to->text.failed = true;
    free_strings(&bytes);
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

static void add_replaced(strings *to, const char *token, size_t length, const char *from, const char *with)
{
    const size_t n = strlen(from);
    for (size_t at = 0; at < length;) {
        if (n > 0 && length - at >= n && memcmp(token + at, from, n) == 0) {
            add(to, with, strlen(with));
            at += n;
        } else {
            add(to, token + at++, 1);
        }
    }
}

static void add_replaced_regex(strings *to, const char *token, size_t length, tow__regex *from, const char *with)
{
    size_t at = 0, begin, end;
    for (; at < length && tow__regex_find(from, token, 0, at, length, &begin, &end); at = end) {
        add(to, token + at, begin - at);
        add(to, with, strlen(with));
    }
    add(to, token + at, length - at);
}

/* The number of times that `content` stands at the beginning, or at the end, `most` at most. */
static size_t repeats(const char *token, size_t length, const char *content, int64_t most, bool at_end)
{
    const size_t n = strlen(content);
    size_t bytes = 0;
    for (int64_t i = 0; i < most && n > 0 && length - bytes >= n; i++) {
        if (memcmp(at_end ? token + length - bytes - n : token + bytes, content, n) != 0) break;
        bytes += n;
    }
    return bytes;
}

/* Spaces before punctuation and contractions go, as in transformers' clean_up_tokenization. */
static void add_clean(strings *to, const char *token, size_t length)
{
    static const char *const pairs[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    strings a, b;
    init(&a, to->text.ctx);
    init(&b, to->text.ctx);
    add(&a, token, length);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && a.text.length > 0; i++) {
        b.text.length = 0;
        add_replaced(&b, a.text.bytes, a.text.length, pairs[i][0], pairs[i][1]);
        const strings swap = a;
        a = b;
        b = swap;
    }
    if (a.text.length > 0) add(to, a.text.bytes, a.text.length);
    if (a.text.failed || b.text.failed) to->text.failed = true;
    free_strings(&a);
    free_strings(&b);
}

static void add_wordpiece(const tow__text_decoder *d, strings *to, size_t i, const char *token, size_t length)
{
    const size_t prefix = strlen(d->from);
    strings word;
    init(&word, to->text.ctx);
    if (i > 0 && length >= prefix && memcmp(token, d->from, prefix) == 0) {
        add(&word, token + prefix, length - prefix);
    } else {
        if (i > 0) add(&word, " ", 1);
        add(&word, token, length);
    }
    if (word.text.length > 0 && d->cleanup) add_clean(to, word.text.bytes, word.text.length);
    if (word.text.length > 0 && !d->cleanup) add(to, word.text.bytes, word.text.length);
    if (word.text.failed) to->text.failed = true;
    free_strings(&word);
}

static void each(const tow__text_decoder *d, const strings *from, strings *to)
{
    for (size_t i = 0; i < from->items.count; i++) {
        size_t length;
        const size_t begin = to->text.length;
        const char *token = get(from, i, &length);
        if (d->kind == TOW__DECODE_WORDPIECE) {
            add_wordpiece(d, to, i, token, length);
        } else if (d->kind == TOW__DECODE_STRIP) {
            const size_t left = repeats(token, length, d->from, d->start, false);
            const size_t right = repeats(token + left, length - left, d->from, d->stop, true);
            add(to, token + left, length - left - right);
        } else if (d->kind == TOW__DECODE_METASPACE) {
            add_replaced(to, token, length, d->from, i == 0 && d->prepend != TOW__PREPEND_NEVER ? "" : " ");
        } else if (d->regex) {
            add_replaced_regex(to, token, length, d->regex, d->to);
        } else {
            add_replaced(to, token, length, d->from, d->to);
        }
        end(to, begin);
    }
}

static void fuse(const strings *from, strings *to, const char *between)
{
    for (size_t i = 0; i < from->items.count; i++) {
        size_t length;
        const char *token = get(from, i, &length);
        if (i > 0) add(to, between, strlen(between));
        add(to, token, length);
    }
    end(to, 0);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void run(const tow__text_decoder *d, const strings *from, strings *to)
{
    switch (d->kind) {
    case TOW__DECODE_BYTE_LEVEL:
        byte_level(from, to);
        break;
    case TOW__DECODE_BYTE_FALLBACK:
        byte_fallback(from, to);
        break;
    case TOW__DECODE_FUSE:
        fuse(from, to, "");
        break;
    default:
        if (d->regex) tow__regex_allow(d->regex, from->text.length);
        each(d, from, to);
        if (d->regex && tow__regex_status(d->regex) != TOW_OK) to->text.failed = true;
        break;
    }
}

static void replace(strings *s, strings *with, bool *failed)
{
    *failed = *failed || s->text.failed || s->items.failed || with->text.failed || with->items.failed;
    free_strings(s);
    *s = *with;
}

/* True if this text is that of a special token. An added token that is normalized counts by its normal form, as in the
 * package. */
static bool is_special_text(const tow_tokenizer *t, const char *text, size_t length)
{
    const int32_t id = tow__vocabulary_find(&t->vocabulary, text, length);
    return id != TOW__NO_ID && t->vocabulary.entries[id].special;
}

size_t tow_tokenizer_decode(tow_tokenizer *t, const int32_t *ids, size_t count, bool skip_special, char *text,
                            size_t size)
{
    strings s, next;
    bool failed = false;
    if (size > 0 && text) text[0] = '\0';
    if (!t || (!ids && count > 0)) {
        tow__missing(t ? t->ctx : NULL, __func__, "a tokenizer and ids");
        return 0;
    }
    init(&s, t->ctx);
    for (size_t i = 0; i < count; i++) {
        const char *token = tow_tokenizer_token(t, ids[i]);
        if (!token) continue;
        const size_t begin = s.text.length;
        const tow__entry *e = &t->vocabulary.entries[ids[i]];
        const char *written = e->decoded ? e->decoded : token;
        const size_t length = e->decoded ? strlen(written) : e->length;
        if (e->decoded && length == 0) continue;
        if (skip_special && is_special_text(t, written, length)) continue;
        add(&s, written, length);
        end(&s, begin);
    }
    for (int i = 0; i <= t->n_decoders; i++) {
        init(&next, t->ctx);
        if (i < t->n_decoders)
            run(&t->decoders[i], &s, &next);
        else
            fuse(&s, &next, t->n_decoders > 0 ? "" : " ");
        replace(&s, &next, &failed);
    }
    const size_t length = failed ? 0 : s.text.length;
    if (size > 0 && text) {
        const size_t n = length < size ? length : size - 1;
        if (n > 0) memcpy(text, s.text.bytes, n);
        text[n] = '\0';
    }
    free_strings(&s);
    return length;
}
