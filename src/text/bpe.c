/* Byte-pair encoding: the pair of neighbors that was merged first in training becomes one symbol, the leftmost first
 * among equals, until there is none. (Sennrich et al., "Neural machine translation of rare words with subword units",
 * 2016.)
 *
 * Short words look through all pairs for each merge; long ones, which may be whole texts, have a queue: n log n. */
#include <stdio.h>

#include "src/text/tokenizer.h"

enum {
    SHORT = 32 /* symbols of words without a queue */
};

typedef struct tow__symbol {
    int32_t id; /* TOW__NO_ID: it became a part of one before it */
    uint32_t length;
    int32_t previous, next; /* -1: none */
} tow__symbol;

typedef struct tow__merge_candidate {
    uint32_t rank;
    int32_t at; /* the left symbol */
    int32_t left, right, id;
} tow__merge_candidate;

/* ---- merges ------------------------------------------------------------------------------------------------------ */

tow_status tow__bpe_create(tow_context *ctx, size_t n_merges, tow__bpe *bpe)
{
    size_t n = 16;
    while (n < 2 * n_merges) n *= 2;
    bpe->keys = tow__alloc(ctx, n, sizeof *bpe->keys);
    bpe->merges = tow__alloc(ctx, n, sizeof *bpe->merges);
    bpe->n_slots = n;
    if (!bpe->keys || !bpe->merges) return TOW_OUT_OF_MEMORY;
    memset(bpe->keys, 0xff, n * sizeof *bpe->keys);
    return TOW_OK;
}

void tow__bpe_free(tow_context *ctx, tow__bpe *bpe)
{
    if (bpe->keys) tow__free(ctx, bpe->keys, bpe->n_slots, sizeof *bpe->keys);
    if (bpe->merges) tow__free(ctx, bpe->merges, bpe->n_slots, sizeof *bpe->merges);
    if (bpe->symbols) tow__free(ctx, bpe->symbols, bpe->n_symbols, sizeof *bpe->symbols);
    if (bpe->queue) tow__free(ctx, bpe->queue, bpe->n_queue, sizeof *bpe->queue);
}

static size_t find_slot(const tow__bpe *b, uint64_t key)
{
    size_t slot = (size_t)((key ^ key >> 29) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (b->n_slots - 1);
    while (b->keys[slot] != key && b->keys[slot] != UINT64_MAX) slot = (slot + 1) & (b->n_slots - 1);
    return slot;
}

static uint64_t key_of(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

void tow__bpe_add(tow__bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    const size_t slot = find_slot(b, key_of(left, right));
    b->keys[slot] = key_of(left, right);
    b->merges[slot] = (tow__merge){rank, id};
}

static tow__merge find_merge(const tow__bpe *b, int32_t left, int32_t right)
{
    const uint64_t key = key_of(left, right);
    const size_t slot = find_slot(b, key);
    return b->keys[slot] == key ? b->merges[slot] : (tow__merge){UINT32_MAX, TOW__NO_ID};
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

uint32_t tow__byte_character(unsigned char byte)
{
    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173)) return byte;
    return byte <= 32 ? 256u + byte : byte <= 160 ? 256u + 33u + (byte - 127u) : 256u + 67u; /* 173 */
}

int tow__character_byte(uint32_t c)
{
    if (c < 256) return (c >= 33 && c <= 126) || (c >= 161 && c != 173) ? (int)c : -1;
    if (c < 256 + 33) return (int)c - 256;
    if (c < 256 + 67) return (int)c - 256 - 33 + 127;
    return c == 256 + 67 ? 173 : -1;
}

/* ---- symbols of a word ------------------------------------------------------------------------------------------- */

static bool reserve(tow__bpe *b, size_t n, tow__pieces *pieces)
{
    if (n <= b->n_symbols) return true;
    size_t capacity = b->n_symbols ? b->n_symbols : 64;
    while (capacity < n) capacity *= 2;
    tow__symbol *symbols = tow__grow(pieces->ctx, b->symbols, b->n_symbols, capacity, sizeof *symbols);
    if (!symbols) {
        pieces->failed = true;
        return false;
    }
    b->symbols = symbols;
    b->n_symbols = capacity;
    return true;
}

/* Bytes of the character that stands for a byte. */
static uint32_t byte_width(char byte) { return tow__byte_character((unsigned char)byte) < 0x80 ? 1 : 2; }

/* Symbols of bytes. Lengths are those of the characters that stand for bytes, of two or one. */
static size_t byte_symbols(tow__bpe *b, const char *word, size_t length)
{
    size_t n = 0;
    bool unknown = false; /* the last symbol: its id alone does not tell, the unknown token may be a byte's, too */
    for (size_t i = 0; i < length; i++) {
        const uint32_t bytes = byte_width(word[i]);
        const int32_t id = b->bytes[(unsigned char)word[i]];
        const bool fuses = b->fuse_unk && unknown;
        unknown = id == TOW__NO_ID && b->unk != TOW__NO_ID;
        if (id != TOW__NO_ID) {
            b->symbols[n++] = (tow__symbol){.id = id, .length = bytes};
        } else if (b->unk != TOW__NO_ID) {
            if (fuses)
                b->symbols[n - 1].length += bytes;
            else
                b->symbols[n++] = (tow__symbol){.id = b->unk, .length = bytes};
        }
    }
    return n;
}

/* The id of a character, with the prefix or the suffix that its place in the word asks for. */
static int32_t character_id(const tow__bpe *b, const tow__vocabulary *v, const char *c, size_t length, bool first,
                            bool last)
{
    const char *prefix = first ? "" : b->prefix, *suffix = last ? b->suffix : "";
    char text[64];
    if (!*prefix && !*suffix) return tow__vocabulary_find_model(v, c, length);
    const int n = snprintf(text, sizeof text, "%s%.*s%s", prefix, (int)length, c, suffix);
    return n > 0 && (size_t)n < sizeof text ? tow__vocabulary_find_model(v, text, (size_t)n) : TOW__NO_ID;
}

static bool falls_back(const tow__bpe *b, const char *c, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (b->bytes[(unsigned char)c[i]] == TOW__NO_ID) return false;
    return b->byte_fallback;
}

static size_t character_symbols(tow__bpe *b, const tow__vocabulary *v, const char *word, size_t length)
{
    size_t n = 0, unknown = 0; /* bytes of an unknown token that is not written yet */
    uint32_t c;
    for (size_t at = 0, next; at < length; at = next) {
        next = at + (size_t)tow__utf8_get(word + at, &c);
        const int32_t id = character_id(b, v, word + at, next - at, at == 0, next == length);
        if (id != TOW__NO_ID) {
            if (unknown > 0) b->symbols[n++] = (tow__symbol){.id = b->unk, .length = (uint32_t)unknown};
            unknown = 0;
            b->symbols[n++] = (tow__symbol){.id = id, .length = (uint32_t)(next - at)};
        } else if (falls_back(b, word + at, next - at)) {
            for (; at < next; at++)
                b->symbols[n++] = (tow__symbol){.id = b->bytes[(unsigned char)word[at]], .length = 1};
        } else if (b->unk != TOW__NO_ID) {
            if (unknown > 0 && !b->fuse_unk) {
                b->symbols[n++] = (tow__symbol){.id = b->unk, .length = (uint32_t)unknown};
                unknown = 0;
            }
            unknown += next - at;
        }
    }
    if (unknown > 0) b->symbols[n++] = (tow__symbol){.id = b->unk, .length = (uint32_t)unknown};
    return n;
}

/* ---- merging ----------------------------------------------------------------------------------------------------- */

/* merges[i]: of symbols i and i + 1. */
static size_t merge_short(const tow__bpe *b, size_t n)
{
    tow__symbol *s = b->symbols;
    tow__merge merges[SHORT];
    for (size_t i = 0; i + 1 < n; i++) merges[i] = find_merge(b, s[i].id, s[i + 1].id);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (merges[i].rank < merges[best].rank) best = i;
        if (merges[best].rank == UINT32_MAX) break;
        s[best].id = merges[best].id;
        s[best].length += s[best + 1].length;
        n--;
        for (size_t i = best + 1; i < n; i++) {
            s[i] = s[i + 1];
            merges[i - 1] = merges[i];
        }
        if (best + 1 < n) merges[best] = find_merge(b, s[best].id, s[best + 1].id);
        if (best > 0) merges[best - 1] = find_merge(b, s[best - 1].id, s[best].id);
    }
    return n;
}

static bool before(const tow__merge_candidate *a, const tow__merge_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

/* A heap; its root is the next merge. */
static void push(tow__merge_candidate *queue, size_t *n, tow__merge_candidate c)
{
    size_t i = (*n)++;
    for (; i > 0 && before(&c, &queue[(i - 1) / 2]); i = (i - 1) / 2) queue[i] = queue[(i - 1) / 2];
    queue[i] = c;
}

static tow__merge_candidate pop(tow__merge_candidate *queue, size_t *n)
{
    const tow__merge_candidate top = queue[0], last = queue[--*n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *n) break;
        if (child + 1 < *n && before(&queue[child + 1], &queue[child])) child++;
        if (!before(&queue[child], &last)) break;
        queue[i] = queue[child];
        i = child;
    }
    queue[i] = last;
    return top;
}

static void consider(tow__bpe *b, size_t *n, int32_t at)
{
    const tow__symbol *left = &b->symbols[at];
    if (left->next < 0) return;
    const int32_t right = b->symbols[left->next].id;
    const tow__merge m = find_merge(b, left->id, right);
    if (m.rank != UINT32_MAX)
        push(b->queue, n,
             (tow__merge_candidate){.rank = m.rank, .at = at, .left = left->id, .right = right, .id = m.id});
}

static size_t merge_long(tow__bpe *b, size_t n, tow__pieces *pieces)
{
    tow__symbol *s = b->symbols;
    size_t queued = 0, kept = 0;
    /* each merge takes one candidate out and puts two in at most */
    if (b->n_queue < 2 * n) {
        tow__merge_candidate *queue = tow__grow(pieces->ctx, b->queue, b->n_queue, 2 * n, sizeof *queue);
        if (!queue) {
            pieces->failed = true;
            return 0;
        }
        b->queue = queue;
        b->n_queue = 2 * n;
    }
    for (size_t i = 0; i < n; i++) {
        s[i].previous = (int32_t)i - 1;
        s[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i < n; i++) consider(b, &queued, (int32_t)i);
    while (queued > 0) {
        const tow__merge_candidate c = pop(b->queue, &queued);
        tow__symbol *left = &s[c.at];
        if (left->id != c.left || left->next < 0 || s[left->next].id != c.right) continue; /* it changed since */
        tow__symbol *right = &s[left->next];
        left->id = c.id;
        left->length += right->length;
        left->next = right->next;
        right->id = TOW__NO_ID;
        if (left->next >= 0) s[left->next].previous = c.at;
        if (left->previous >= 0) consider(b, &queued, left->previous);
        consider(b, &queued, c.at);
    }
    for (size_t i = 0; i < n; i++)
        if (s[i].id != TOW__NO_ID) s[kept++] = s[i];
    return kept;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* The id of a whole word: a byte-level one is written with the characters that stand for its bytes. */
static int32_t whole_word(const tow__bpe *b, const tow__vocabulary *v, const char *word, size_t length)
{
    char text[512];
    size_t n = 0;
    if (!b->byte_level) return tow__vocabulary_find_model(v, word, length);
    for (size_t i = 0; i < length; i++) {
        if (n + 4 > sizeof text || n > v->longest) return TOW__NO_ID;
        n += (size_t)tow__utf8_put(tow__byte_character((unsigned char)word[i]), text + n);
    }
    return tow__vocabulary_find_model(v, text, n);
}

/* The pieces of symbols, whose lengths count characters that stand for bytes. Bytes that no token stands for leave no
 * gap, as in the package, so that a piece may begin or end inside of such a character: then it has the whole byte. */
static void add_byte_pieces(const tow__bpe *b, size_t n, const char *word, tow__pieces *pieces)
{
    size_t byte = 0, begin = 0, at = 0; /* the byte at `at`, whose character begins at `begin` */
    for (size_t i = 0; i < n; i++) {
        const size_t end = at + b->symbols[i].length, first = byte;
        size_t last = byte;
        while (begin + byte_width(word[last]) < end) begin += byte_width(word[last++]);
        tow__pieces_add(pieces, b->symbols[i].id, first, last + 1);
        at = end;
        byte = last;
        if (begin + byte_width(word[last]) == end) begin += byte_width(word[byte++]);
    }
}

void tow__bpe_word(tow__bpe *b, const tow__vocabulary *v, const char *word, size_t length, tow__pieces *pieces)
{
    const int32_t whole = b->ignore_merges ? whole_word(b, v, word, length) : TOW__NO_ID;
    if (whole != TOW__NO_ID) {
        tow__pieces_add(pieces, whole, 0, length);
        return;
    }
    if (!reserve(b, length, pieces)) return;
    size_t n = b->byte_level ? byte_symbols(b, word, length) : character_symbols(b, v, word, length);
    n = n <= SHORT ? merge_short(b, n) : merge_long(b, n, pieces);
    if (b->byte_level)
        add_byte_pieces(b, n, word, pieces);
    else
        for (size_t i = 0, at = 0; i < n; at += b->symbols[i++].length)
            tow__pieces_add(pieces, b->symbols[i].id, at, at + b->symbols[i].length);
}
