/* The normalizer Precompiled: the map of characters of a SentencePiece model, as the package `tokenizers` applies it. A
 * grapheme cluster of less than 6 bytes becomes the text of the shortest key that it begins with; of other clusters,
 * and of those that begin with no key, every character does likewise. */
#include "src/text/tokenizer.h"

enum {
    MOST_CLUSTER = 5 /* bytes of clusters that are looked up as a whole */
};

/* Units of Darts: bit 8 says that a key ends here, whose value is the unit at the offset. */
static uint32_t unit_at(const tow__charsmap *m, size_t at)
{
    const unsigned char *b = m->units + 4 * at;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static size_t offset_of(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6); }

/* The text for the shortest key that is a prefix, or NULL. */
static const char *find(const tow__charsmap *m, const char *key, size_t length, size_t *found)
{
    size_t at = offset_of(unit_at(m, 0));
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = (unsigned char)key[i];
        at ^= byte;
        if (byte == 0 || at >= m->n_units) return NULL;
        const uint32_t unit = unit_at(m, at);
        if ((unit & (1u << 31 | 0xff)) != byte) return NULL;
        at ^= offset_of(unit);
        if (at >= m->n_units) return NULL;
        if (unit >> 8 & 1) {
            const size_t begin = unit_at(m, at) & 0x7fffffff;
            if (begin > m->length || tow__utf8_continues(m->texts[begin])) return NULL;
            *found = strlen(m->texts + begin);
            return m->texts + begin;
        }
    }
    return NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The value of a digit of base 64, or -1. */
static int digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes base 64 with padding. False if it is none. */
static bool decode_base64(const char *text, unsigned char *bytes, size_t *length)
{
    const size_t n = strlen(text);
    *length = 0;
    if (n % 4 != 0) return false;
    for (size_t i = 0; i < n; i += 4) {
        const int padding = i + 4 < n ? 0 : (text[i + 3] == '=') + (text[i + 3] == '=' && text[i + 2] == '=');
        uint32_t group = 0;
        for (int k = 0; k < 4; k++) {
            const int value = k < 4 - padding ? digit(text[i + (size_t)k]) : 0;
            if (value < 0) return false;
            group = group << 6 | (uint32_t)value;
        }
        for (int k = 0; k < 3 - padding; k++) bytes[(*length)++] = (unsigned char)(group >> (16 - 8 * k));
    }
    return true;
}

static bool is_text(const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        int broken;
        const int n = tow__utf8_check(text + at, length - at, &broken);
        if (n == 0) return false;
        at += (size_t)n;
    }
    return true;
}

/* The bytes of the trie, a little-endian number, the trie, and texts, each with a zero byte behind it. */
const char *tow__charsmap_read(tow__arena *memory, const char *base64, const tow__charsmap **map)
{
    static const char *const expected = "a precompiled_charsmap in base 64 of a trie and UTF-8 texts";
    size_t length;
    unsigned char *bytes = tow__arena_alloc(memory, strlen(base64) / 4 * 3 + 8, 1);
    tow__charsmap *m = bytes ? tow__arena_alloc(memory, 1, sizeof *m) : NULL;
    *map = m;
    if (!m) return NULL;
    if (!decode_base64(base64, bytes, &length) || length < 8) return expected;
    const size_t trie = (size_t)bytes[0] | (size_t)bytes[1] << 8 | (size_t)bytes[2] << 16 | (size_t)bytes[3] << 24;
    if (trie > length - 4 || trie < 4 || trie % 4 != 0) return expected;
    m->units = bytes + 4;
    m->n_units = trie / 4;
    m->texts = (const char *)bytes + 4 + trie;
    m->length = length - 4 - trie;
    bytes[length] = '\0';
    for (size_t at = 0, n; at < m->length; at += n + 1) {
        n = strlen(m->texts + at);
        if (n > m->longest) m->longest = n;
    }
    return is_text(m->texts, m->length) ? NULL : expected;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static int64_t count_characters(const char *text, size_t length)
{
    int64_t n = 0;
    for (size_t i = 0; i < length; i++) n += !tow__utf8_continues(text[i]);
    return n;
}

/* Characters are put when it is known how many are removed behind them. */
typedef struct writer {
    tow__changer changer;
    uint32_t c;
    int64_t change;
    bool pending;
} writer;

static void put(writer *w, uint32_t c, int64_t change)
{
    if (w->pending) tow__changer_put(&w->changer, w->c, w->change);
    w->c = c;
    w->change = change;
    w->pending = true;
}

/* Of n characters in place of `old`, those that are too many are additions; behind the last one, those that are too few
 * are removed. If there are none, that is the last one before. */
static void put_text(writer *w, const char *text, size_t length, int64_t old)
{
    const int64_t n = count_characters(text, length);
    int64_t i = 0;
    for (size_t at = 0; at < length; i++) {
        uint32_t c;
        at += (size_t)tow__utf8_get(text + at, &c);
        put(w, c, n - old > 0 && i >= old ? 1 : 0);
    }
    if (n < old && w->pending) w->change += n - old;
}

/* A cluster, or one of its characters. False if it has no text. */
static bool replace(const tow__charsmap *m, writer *w, const char *text, size_t length)
{
    size_t found = 0;
    const char *with = find(m, text, length, &found);
    if (with) put_text(w, with, found, count_characters(text, length));
    return with != NULL;
}

void tow__charsmap_apply(const tow__charsmap *m, const tow__text *from, tow__text *to)
{
    writer w = {.pending = false};
    tow__changer_init(&w.changer, from, to);
    for (size_t at = 0, end; at < from->length; at = end) {
        end = tow__grapheme_end(from->bytes, at, from->length);
        if (end - at <= MOST_CLUSTER && replace(m, &w, from->bytes + at, end - at)) continue;
        for (size_t next; at < end; at = next) {
            uint32_t c;
            next = at + (size_t)tow__utf8_get(from->bytes + at, &c);
            if (!replace(m, &w, from->bytes + at, next - at)) put(&w, c, 0);
        }
    }
    if (w.pending) tow__changer_put(&w.changer, w.c, w.change);
}
