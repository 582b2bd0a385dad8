/* Added tokens, which are cut out of a text before anything else sees it: the longest one at the first place where one is. */
#include <stdlib.h>

#include "src/text/tokenizer.h"

static int by_first_byte(const void *a, const void *b)
{
    const tow__added *x = a, *y = b;
    const unsigned char p = (unsigned char)x->content[0], q = (unsigned char)y->content[0];
    if (p != q) return p < q ? -1 : 1;
    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void tow__added_sort(tow__added_set *set)
{
    if (set->count > 1) qsort(set->items, set->count, sizeof *set->items, by_first_byte);
    for (int b = 0; b <= 256; b++) {
        uint32_t n = 0;
        while (n < set->count && (unsigned char)set->items[n].content[0] < b) n++;
        set->first[b] = n;
    }
}

static const tow__added *match_at(const tow__added_set *set, const char *text, size_t left)
{
    const unsigned char byte = (unsigned char)text[0];
    for (uint32_t i = set->first[byte]; i < set->first[byte + 1]; i++) {
        const tow__added *a = &set->items[i];
        if (a->length <= left && memcmp(a->content, text, a->length) == 0) return a;
    }
    return NULL;
}

static size_t character_before(const char *text, size_t at)
{
    do at--;
    while (tow__utf8_continues(text[at]));
    return at;
}

static bool word_before(const char *text, size_t at)
{
    uint32_t c;
    if (at == 0) return false;
    tow__utf8_get(text + character_before(text, at), &c);
    return tow__classes(c) & TOW__WORD;
}

static bool word_at(const char *text, size_t at, size_t length)
{
    uint32_t c;
    if (at >= length) return false;
    tow__utf8_get(text + at, &c);
    return tow__classes(c) & TOW__WORD;
}

/* A match with the white space that belongs to it; none of it before `limit`. */
static tow__range widen(const tow__added *a, const char *text, size_t length, size_t at, size_t limit)
{
    size_t begin = at, end = at + a->length;
    uint32_t c;
    while (a->lstrip && begin > limit) {
        const size_t before = character_before(text, begin);
        tow__utf8_get(text + before, &c);
        if (!(tow__classes(c) & TOW__SPACE)) break;
        begin = before;
    }
    while (a->rstrip && end < length) {
        const size_t next = end + (size_t)tow__utf8_get(text + end, &c);
        if (!(tow__classes(c) & TOW__SPACE)) break;
        end = next;
    }
    return (tow__range){(uint32_t)begin, (uint32_t)end};
}

tow_status tow__added_split(const tow__added_set *set, const char *text, size_t length, tow__added_visitor visit,
                            void *user)
{
    tow_status status = TOW_OK;
    size_t done = 0;
    for (size_t at = 0; at < length && set->count > 0;) {
        const unsigned char byte = (unsigned char)text[at];
        const tow__added *a = set->first[byte] < set->first[byte + 1] ? match_at(set, text + at, length - at) : NULL;
        if (!a) {
            at++;
            continue;
        }
        const size_t end = at + a->length;
        if (a->single_word && (word_before(text, at) || word_at(text, end, length))) {
            at = end;
            continue;
        }
        const tow__range range = widen(a, text, length, at, done);
        if (range.begin > done) TRY(visit(user, done, range.begin, TOW__NO_ID));
        TRY(visit(user, range.begin, range.end, a->id));
        done = at = range.end;
    }
    if (done < length) TRY(visit(user, done, length, TOW__NO_ID));
done:
    return status;
}
