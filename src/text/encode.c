/* Text to tokens: added tokens are cut out, the rest is normalized, split into words and cut into tokens. */
#include <inttypes.h>

#include "src/base/hash.h"
#include "src/text/tokenizer.h"

/* ---- encodings --------------------------------------------------------------------------------------------------- */

tow_status tow_encoding_create(tow_context *context, tow_encoding **encoding)
{
    if (encoding) *encoding = NULL;
    if (!context || !encoding) return tow__missing(context, __func__, "a context and a place for the encoding");
    *encoding = tow__alloc(context, 1, sizeof **encoding);
    if (!*encoding) return TOW_OUT_OF_MEMORY;
    (*encoding)->ctx = context;
    return TOW_OK;
}

static void free_arrays(tow_encoding *e)
{
    if (e->tokens) tow__free(e->ctx, e->tokens, e->capacity, sizeof *e->tokens);
    if (e->ids) tow__free(e->ctx, e->ids, e->capacity, sizeof *e->ids);
    if (e->margins) tow__free(e->ctx, e->margins, e->capacity, sizeof *e->margins);
}

void tow_encoding_free(tow_encoding *e)
{
    if (!e) return;
    free_arrays(e);
    tow__free(e->ctx, e, 1, sizeof *e);
}

size_t tow_encoding_count(const tow_encoding *e) { return e->count; }
const int32_t *tow_encoding_ids(const tow_encoding *e) { return e->ids; }
const tow_token *tow_encoding_tokens(const tow_encoding *e) { return e->tokens; }

static tow_status reserve(tow_encoding *e, size_t more)
{
    if (e->count + more <= e->capacity) return TOW_OK;
    tow_encoding n = {.ctx = e->ctx, .count = e->count, .capacity = e->capacity ? e->capacity : 64};
    while (n.capacity < e->count + more) n.capacity *= 2;
    n.tokens = tow__alloc(e->ctx, n.capacity, sizeof *n.tokens);
    n.ids = tow__alloc(e->ctx, n.capacity, sizeof *n.ids);
    n.margins = tow__alloc(e->ctx, n.capacity, sizeof *n.margins);
    if (!n.tokens || !n.ids || !n.margins) {
        free_arrays(&n);
        return TOW_OUT_OF_MEMORY;
    }
    if (e->count > 0) {
        memcpy(n.tokens, e->tokens, e->count * sizeof *n.tokens);
        memcpy(n.ids, e->ids, e->count * sizeof *n.ids);
        memcpy(n.margins, e->margins, e->count * sizeof *n.margins);
    }
    free_arrays(e);
    *e = n;
    return TOW_OK;
}

tow_status tow__encoding_push(tow_encoding *e, tow_token token, const tow__margins *margins)
{
    const tow_status status = reserve(e, 1);
    if (status != TOW_OK) return status;
    e->ids[e->count] = token.id;
    e->margins[e->count] = margins ? *margins : (tow__margins){0, 0};
    e->tokens[e->count++] = token;
    return TOW_OK;
}

/* ---- margins ----------------------------------------------------------------------------------------------------- */

/* White space at the beginning or the end of a text, and the character that stands for the byte of a space. */
static uint32_t count_white(const char *text, size_t length, bool at_end)
{
    uint32_t n = 0, c;
    for (size_t begin = 0, end = length; begin < end; n++) {
        size_t at = at_end ? end - 1 : begin;
        while (at_end && at > begin && tow__utf8_continues(text[at])) at--;
        const size_t bytes = (size_t)tow__utf8_get(text + at, &c);
        if (c != 0x120 && !(tow__classes(c) & TOW__SPACE)) break;
        *(at_end ? &end : &begin) = at_end ? at : at + bytes;
    }
    return n;
}

static tow__margins margins_of(const tow_tokenizer *t, const char *text, size_t length)
{
    if (!t->trim_offsets) return (tow__margins){0, 0};
    return (tow__margins){count_white(text, length, false), count_white(text, length, true)};
}

/* ---- one text ---------------------------------------------------------------------------------------------------- */

/* A text on its way. Without spans its bytes are those of the original. */
typedef struct encoder {
    tow_tokenizer *t;
    tow_encoding *encoding;
    const char *original;
    size_t length;
    const tow__text *text; /* that is cut now */
} encoder;

/* The bytes of the original from which the bytes begin to end of a text come. */
static tow__source_span span_of(const encoder *x, const tow__text *text, size_t begin, size_t end)
{
    if (text->spans) return (tow__source_span){text->spans[begin].begin, text->spans[end - 1].end};
    while (tow__utf8_continues(x->original[begin])) begin--;
    while (end < x->length && tow__utf8_continues(x->original[end])) end++;
    return (tow__source_span){(uint32_t)begin, (uint32_t)end};
}

/* The tokens of a word: remembered, or made and remembered. */
static void cut_word(tow_tokenizer *t, const char *word, size_t length)
{
    tow__cached *c = NULL;
    uint64_t hash = 0;
    t->pieces.count = 0;
    if (length <= TOW__CACHE_WORD) {
        hash = tow__hash(t->ctx->hash_seed, word, length);
        c = &t->cache[hash & (TOW__CACHE_SIZE - 1)];
        if (c->hash == hash && c->length == length && memcmp(c->word, word, length) == 0) {
            for (int i = 0; i < c->count; i++) tow__pieces_add(&t->pieces, c->ids[i], c->begins[i], c->ends[i]);
            return;
        }
    }
    switch (t->model) {
    case TOW__BPE:
        tow__bpe_word(&t->bpe, &t->vocabulary, word, length, &t->pieces);
        break;
    case TOW__WORDPIECE:
        tow__wordpiece_word(&t->wordpiece, &t->vocabulary, word, length, &t->pieces);
        break;
    case TOW__WORDLEVEL:
        tow__wordlevel_word(t->wordlevel_unk, &t->vocabulary, word, length, &t->pieces);
        break;
    case TOW__UNIGRAM:
        tow__unigram_word(&t->unigram, &t->vocabulary, word, length, &t->pieces);
        break;
    }
    if (!c || t->pieces.failed || t->pieces.unknown || t->pieces.count > TOW__CACHE_PIECES) return;
    c->hash = hash;
    c->length = (uint8_t)length;
    c->count = (uint8_t)t->pieces.count;
    memcpy(c->word, word, length);
    for (size_t i = 0; i < t->pieces.count; i++) {
        c->ids[i] = t->pieces.items[i].id;
        c->begins[i] = (uint8_t)t->pieces.items[i].begin;
        c->ends[i] = (uint8_t)t->pieces.items[i].end;
    }
}

static tow_status encode_word(encoder *x, const tow__text *text, tow__text_range word)
{
    tow_tokenizer *t = x->t;
    tow_encoding *e = x->encoding;
    cut_word(t, text->bytes + word.begin, word.end - word.begin);
    if (t->pieces.unknown)
        return tow__fail(
            t->ctx, TOW_INVALID_ARGUMENT,
            "tow_tokenizer_encode: there is no token for a part of '%.*s', and the model has no unknown token",
            (int)(word.end - word.begin < 100 ? word.end - word.begin : 100), text->bytes + word.begin);
    tow_status status = t->pieces.failed ? TOW_OUT_OF_MEMORY : reserve(e, t->pieces.count);
    for (size_t i = 0; i < t->pieces.count && status == TOW_OK; i++) {
        const tow__piece *p = &t->pieces.items[i];
        const tow__source_span span = span_of(x, text, word.begin + p->begin, word.begin + p->end);
        const tow__entry *entry = &t->vocabulary.entries[p->id];
        e->ids[e->count] = p->id;
        /* an unknown token of Unigram is called what it stands for */
        const bool unknown = t->model == TOW__UNIGRAM && p->id == t->unigram.unk;
        e->margins[e->count] = unknown ? margins_of(t, text->bytes + word.begin + p->begin, p->end - p->begin)
                                       : margins_of(t, entry->token, entry->length);
        e->tokens[e->count++] = (tow_token){.id = p->id, .begin = span.begin, .end = span.end};
    }
    return status;
}

static bool begins_with(const tow__text *text, size_t begin, size_t end, const char *prefix)
{
    const size_t length = strlen(prefix);
    return end - begin >= length && memcmp(text->bytes + begin, prefix, length) == 0;
}

/* A copy of a piece with the replacement for spaces, and one before it. */
static void replace_spaces(const encoder *x, const tow__splitter *split, const tow__text *from, size_t begin,
                           size_t end, tow__text *to)
{
    const tow__source_span first = span_of(x, from, begin, begin + 1);
    const bool wanted =
        split->prepend == TOW__PREPEND_ALWAYS || (split->prepend == TOW__PREPEND_FIRST && first.begin == 0);
    const bool there = from->bytes[begin] == ' ' || begins_with(from, begin, end, split->pattern);
    const size_t length = strlen(split->pattern);
    if (wanted && !there) tow__text_add(to, split->pattern, length, first);
    for (size_t i = begin; i < end; i++) {
        const tow__source_span span = span_of(x, from, i, i + 1);
        if (from->bytes[i] == ' ')
            tow__text_add(to, split->pattern, length, span);
        else
            tow__text_add(to, from->bytes + i, 1, span);
    }
}

/* A copy of a piece behind a space, if it does not begin with one. */
static void add_space(const encoder *x, const tow__text *from, size_t begin, size_t end, tow__text *to)
{
    if (from->bytes[begin] != ' ') tow__text_add(to, " ", 1, span_of(x, from, begin, begin + 1));
    for (size_t i = begin; i < end; i++) tow__text_add(to, from->bytes + i, 1, span_of(x, from, i, i + 1));
}

/* Writes all words anew, into another text than they are in. */
static const tow__text *write_words(encoder *x, const tow__splitter *split, const tow__text *from)
{
    tow_tokenizer *t = x->t;
    tow__text *to = from == &t->other ? &t->third : &t->other;
    to->length = 0;
    t->more_words.count = 0;
    for (size_t i = 0; i < t->words.count; i++) {
        const tow__text_range word = t->words.items[i];
        const size_t begin = to->length;
        if (split->kind == TOW__SPLIT_METASPACE)
            replace_spaces(x, split, from, word.begin, word.end, to);
        else
            add_space(x, from, word.begin, word.end, to);
        tow__ranges_add(&t->more_words, begin, to->length);
    }
    return to;
}

static void swap_words(tow_tokenizer *t)
{
    const tow__ranges swap = t->words;
    t->words = t->more_words;
    t->more_words = swap;
}

/* A text between added tokens: split into words, and these into tokens. */
static tow_status encode_piece(encoder *x, size_t begin, size_t end)
{
    tow_tokenizer *t = x->t;
    const tow__text *text = x->text;
    tow_status status = TOW_OK;
    t->words.count = 0;
    tow__ranges_add(&t->words, begin, end);
    for (int i = 0; i < t->n_splits; i++) {
        const tow__splitter *split = &t->splits[i];
        const bool writes = split->kind == TOW__SPLIT_METASPACE || split->kind == TOW__SPLIT_ADD_SPACE;
        if (writes) {
            text = write_words(x, split, text);
            swap_words(t);
        }
        if (split->kind == TOW__SPLIT_ADD_SPACE || (writes && !split->splits)) continue;
        tow__split_words(split, text, &t->words, &t->more_words);
        if (split->regex) TRY(tow__regex_status(split->regex));
        swap_words(t);
    }
    if (t->words.failed || t->more_words.failed || t->other.failed || t->third.failed) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < t->words.count; i++) TRY(encode_word(x, text, t->words.items[i]));
done:
    return status;
}

static tow_status push_added(encoder *x, size_t begin, size_t end, int32_t id)
{
    const tow__source_span span = span_of(x, x->text, begin, end);
    const tow__margins margins = margins_of(x->t, x->text->bytes + begin, end - begin);
    return tow__encoding_push(x->encoding, (tow_token){.id = id, .begin = span.begin, .end = span.end}, &margins);
}

static tow_status visit_normalized(void *user, size_t begin, size_t end, int32_t id)
{
    return id == TOW__NO_ID ? encode_piece(user, begin, end) : push_added(user, begin, end, id);
}

/* A piece of the original, or an added token. */
static tow_status visit_raw(void *user, size_t begin, size_t end, int32_t id)
{
    encoder *x = user;
    tow_tokenizer *t = x->t;
    const tow__text original = {.bytes = (char *)(uintptr_t)x->original, .length = x->length};
    x->text = &original;
    if (id != TOW__NO_ID) return push_added(x, begin, end, id);
    if (t->n_normals == 0 && t->normalized.count == 0) return encode_piece(x, begin, end);
    t->text.length = 0;
    t->text.origin = (uint32_t)begin;
    tow__text_add_original(&t->text, x->original, begin, end);
    tow__normalize_text(t->normals, t->n_normals, &t->text, &t->other);
    const tow_status status = tow__normalize_status(t->normals, t->n_normals, &t->text);
    if (status != TOW_OK) return status;
    x->text = &t->text;
    return tow__added_split(&t->normalized, t->text.bytes, t->text.length, visit_normalized, x);
}

/* Spaces at the ends of a token are not in its offsets: as many characters of the text. A single space of the first
 * token may be one that was put before the text. */
static void trim_offsets(const tow_tokenizer *t, const char *text, tow_token *token, tow__margins margins, bool first)
{
    uint32_t leading = margins.leading, trailing = margins.trailing, c;
    if (leading == 1 && (first || token->begin == 0) && t->trims_prefix_space) leading = 0;
    for (; leading > 0 && token->begin < token->end; leading--)
        token->begin += (size_t)tow__utf8_get(text + token->begin, &c);
    for (; trailing > 0 && token->end > token->begin; trailing--) do
            token->end--;
        while (tow__utf8_continues(text[token->end]));
}

void tow__trim_offsets(const tow_tokenizer *t, const char *text, tow_encoding *e, size_t first)
{
    for (size_t i = first; i < e->count && t->trim_offsets; i++)
        trim_offsets(t, text, &e->tokens[i], e->margins[i], i == first);
}

tow_status tow__encode_text(tow_tokenizer *t, const char *text, size_t length, tow_encoding *e)
{
    encoder x = {.t = t, .encoding = e, .original = text, .length = length};
    t->text.failed = t->other.failed = t->third.failed = t->pieces.unknown = t->words.failed = t->more_words.failed =
        t->pieces.failed = false;
    return tow__added_split(&t->raw, text, length, visit_raw, &x);
}
