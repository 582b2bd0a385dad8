/* Texts that remember where their bytes come from, and lists of words and of tokens. */
#include "src/text/tokenizer.h"

void tow__text_init(tow__text *text, tow_context *ctx) { *text = (tow__text){.ctx = ctx}; }

void tow__text_free(tow__text *text)
{
    if (text->bytes) tow__free(text->ctx, text->bytes, text->capacity, 1);
    if (text->spans) tow__free(text->ctx, text->spans, text->capacity, sizeof *text->spans);
    tow__text_init(text, text->ctx);
}

bool tow__text_reserve(tow__text *text, size_t capacity)
{
    if (text->failed) return false;
    if (capacity <= text->capacity) return true;
    if (capacity > INT32_MAX) {
        text->failed = true;
        tow__fail(text->ctx, TOW_OUT_OF_MEMORY, "a text of %zu bytes after normalization; expected less than 2 GiB",
                  capacity);
        return false;
    }
    if (capacity < 2 * text->capacity) capacity = 2 * text->capacity;
    if (capacity < 256) capacity = 256;
    char *bytes = tow__alloc(text->ctx, capacity, 1);
    tow__source_span *spans = bytes ? tow__alloc(text->ctx, capacity, sizeof *spans) : NULL;
    if (!spans) {
        if (bytes) tow__free(text->ctx, bytes, capacity, 1);
        text->failed = true;
        return false;
    }
    if (text->length > 0) {
        memcpy(bytes, text->bytes, text->length);
        memcpy(spans, text->spans, text->length * sizeof *spans);
    }
    const size_t length = text->length;
    const uint32_t origin = text->origin;
    tow__text_free(text);
    text->bytes = bytes;
    text->spans = spans;
    text->length = length;
    text->capacity = capacity;
    text->origin = origin;
    return true;
}

void tow__text_add(tow__text *text, const char *bytes, size_t length, tow__source_span span)
{
    if (length == 0 || !tow__text_reserve(text, text->length + length)) return;
    memcpy(text->bytes + text->length, bytes, length);
    for (size_t i = 0; i < length; i++) text->spans[text->length + i] = span;
    text->length += length;
}

void tow__text_copy(tow__text *text, const tow__text *from, size_t begin, size_t end)
{
    const size_t length = end - begin;
    if (begin >= end || !tow__text_reserve(text, text->length + length)) return;
    memcpy(text->bytes + text->length, from->bytes + begin, length);
    memcpy(text->spans + text->length, from->spans + begin, length * sizeof *text->spans);
    text->length += length;
}

void tow__text_add_char(tow__text *text, uint32_t c, tow__source_span span)
{
    char bytes[4];
    tow__text_add(text, bytes, (size_t)tow__utf8_put(c, bytes), span);
}

void tow__text_add_original(tow__text *text, const char *original, size_t begin, size_t end)
{
    if (begin == end || !tow__text_reserve(text, text->length + (end - begin))) return;
    memcpy(text->bytes + text->length, original + begin, end - begin);
    tow__source_span *spans = text->spans + text->length;
    for (size_t i = begin; i < end;) {
        uint32_t c;
        const size_t length = (size_t)tow__utf8_get(original + i, &c);
        for (size_t j = 0; j < length; j++) *spans++ = (tow__source_span){(uint32_t)i, (uint32_t)(i + length)};
        i += length;
    }
    text->length += end - begin;
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

void tow__changer_init(tow__changer *x, const tow__text *from, tow__text *to)
{
    *x = (tow__changer){.from = from, .to = to};
}

static void skip_character(tow__changer *x)
{
    if (x->at < x->from->length) x->at++;
    while (x->at < x->from->length && tow__utf8_continues(x->from->bytes[x->at])) x->at++;
}

void tow__changer_put(tow__changer *x, uint32_t c, int64_t change)
{
    const tow__text *from = x->from;
    const size_t at = change <= 0 && x->at < from->length ? x->at : x->at - (x->at > 0);
    const bool nothing = from->length == 0 || (change > 0 && x->at == 0);
    tow__text_add_char(x->to, c, nothing ? (tow__source_span){from->origin, from->origin} : from->spans[at]);
    if (change > 0) return;
    skip_character(x);
    for (; change < 0 && x->at < from->length; change++) skip_character(x);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

void tow__ranges_add(tow__ranges *r, size_t begin, size_t end)
{
    if (begin >= end || r->failed) return;
    if (r->count == r->capacity) {
        const size_t capacity = r->capacity ? 2 * r->capacity : 64;
        tow__text_range *items = tow__grow(r->ctx, r->items, r->capacity, capacity, sizeof *items);
        if (!items) {
            r->failed = true;
            return;
        }
        r->items = items;
        r->capacity = capacity;
    }
    r->items[r->count++] = (tow__text_range){(uint32_t)begin, (uint32_t)end};
}

void tow__ranges_free(tow__ranges *r)
{
    if (r->items) tow__free(r->ctx, r->items, r->capacity, sizeof *r->items);
    *r = (tow__ranges){.ctx = r->ctx};
}

void tow__pieces_add(tow__pieces *p, int32_t id, size_t begin, size_t end)
{
    if (p->failed) return;
    if (p->count == p->capacity) {
        const size_t capacity = p->capacity ? 2 * p->capacity : 64;
        tow__piece *items = tow__grow(p->ctx, p->items, p->capacity, capacity, sizeof *items);
        if (!items) {
            p->failed = true;
            return;
        }
        p->items = items;
        p->capacity = capacity;
    }
    p->items[p->count++] = (tow__piece){id, (uint32_t)begin, (uint32_t)end};
}

void tow__pieces_free(tow__pieces *p)
{
    if (p->items) tow__free(p->ctx, p->items, p->capacity, sizeof *p->items);
    *p = (tow__pieces){.ctx = p->ctx};
}
