/* Unicode's normal forms (Unicode Standard Annex 15): NFD, NFKD and, composed again, NFC and NFKC.
 *
 * Where a character comes from goes by counts, as in the package `tokenizers`: of what a character is decomposed to,
 * all parts but the first are additions; a mark that is composed with a character takes one addition, or one more
 * character of the text, away. Marks that change places keep their counts, so that places in the text stay in order. */
#include "src/text/tokenizer.h"

enum {
    FEW = 32,               /* marks that are sorted by insertion */
    FIRST_JOINED = 0x300,   /* characters below it are never the second part of a composition */
    FIRST_DECOMPOSED = 0xa0 /* characters below it have no decomposition of any kind */
};

/* A decomposed character. */
typedef struct part {
    uint32_t c;
    int32_t change; /* see tow__changer_put */
    int class;
} part;

typedef struct parts {
    tow_context *ctx;
    part few[2 * FEW], *items;
    size_t count, capacity, first_mark; /* from first_mark on there are only marks, not in order yet */
    bool failed;
} parts;

static void init(parts *p, tow_context *ctx)
{
    p->ctx = ctx;
    p->items = p->few;
    p->count = p->first_mark = 0;
    p->capacity = 2 * FEW;
    p->failed = false;
}

static void free_parts(parts *p)
{
    if (p->items != p->few) tow__free(p->ctx, p->items, p->capacity, sizeof *p->items);
}

static bool reserve(parts *p)
{
    if (p->count < p->capacity) return true;
    part *items = tow__alloc(p->ctx, 2 * p->capacity, sizeof *items);
    if (!items) {
        p->failed = true;
        return false;
    }
    memcpy(items, p->items, p->count * sizeof *items);
    const size_t capacity = 2 * p->capacity;
    free_parts(p);
    p->items = items;
    p->capacity = capacity;
    return true;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

static void sort_few(part *marks, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const part mark = marks[i];
        size_t k = i;
        for (; k > 0 && marks[k - 1].class > mark.class; k--) marks[k] = marks[k - 1];
        marks[k] = mark;
    }
}

static void sort_many(parts *p, part *marks, size_t n)
{
    size_t begins[257] = {0};
    part *sorted = tow__alloc(p->ctx, n, sizeof *sorted);
    if (!sorted) {
        p->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++) begins[marks[i].class + 1]++;
    for (int class = 0; class < 256; class ++) begins[class + 1] += begins[class];
    for (size_t i = 0; i < n; i++) sorted[begins[marks[i].class]++] = marks[i];
    memcpy(marks, sorted, n * sizeof *marks);
    tow__free(p->ctx, sorted, n, sizeof *sorted);
}

/* Puts marks in the order of their classes; those of one class stay in theirs. */
static void sort_marks(parts *p)
{
    part *marks = p->items + p->first_mark;
    const size_t n = p->count - p->first_mark;
    if (n <= FEW)
        sort_few(marks, n);
    else
        sort_many(p, marks, n);
    p->first_mark = p->count;
}

static void decompose(parts *p, uint32_t c, bool compatible)
{
    uint32_t to[TOW__MOST_DECOMPOSED];
    const int n = tow__decompose_character(c, compatible, to);
    for (int i = 0; i < n && reserve(p); i++) {
        const int class = tow__combining_class(to[i]);
        if (class == 0) sort_marks(p);
        p->items[p->count++] = (part){to[i], i > 0, class};
        if (class == 0) p->first_mark = p->count;
    }
}

/* ---- composition ------------------------------------------------------------------------------------------------- */

/* Composes in place: a character joins the last starter unless one of its class, or another starter, is between them.
 * */
static void compose(parts *p)
{
    size_t n = 0, starter = SIZE_MAX; /* starter: where it is, among the n that are written */
    int last_class = 0;               /* of what is behind the starter; 0: nothing */
    for (size_t i = 0; i < p->count; i++) {
        const part next = p->items[i];
        const bool blocked = starter == SIZE_MAX || (last_class > 0 && last_class >= next.class);
        const uint32_t joined = blocked ? 0 : tow__compose_characters(p->items[starter].c, next.c);
        if (joined) {
            p->items[starter].c = joined;
            p->items[starter].change += next.change - 1;
            continue;
        }
        if (next.class == 0) starter = n;
        last_class = next.class;
        p->items[n++] = next;
    }
    p->count = n;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void flush(parts *p, bool composed, tow__changer *changer)
{
    sort_marks(p);
    if (composed) compose(p);
    for (size_t i = 0; i < p->count; i++) tow__changer_put(changer, p->items[i].c, p->items[i].change);
    p->count = p->first_mark = 0;
}

/* Characters between which nothing can change are written as they are, and others in groups that end in front of such.
 * */
void tow__normal_form(const tow__text *from, bool composed, bool compatible, tow__text *to)
{
    const uint32_t plain = composed && !compatible ? FIRST_JOINED : FIRST_DECOMPOSED;
    tow__changer changer;
    parts p;
    tow__changer_init(&changer, from, to);
    init(&p, from->ctx);
    for (size_t at = 0; at < from->length && !p.failed;) {
        uint32_t c;
        at += (size_t)tow__utf8_get(from->bytes + at, &c);
        if (c < FIRST_JOINED && p.count > 0) flush(&p, composed, &changer);
        const bool last = at == from->length || (unsigned char)from->bytes[at] < 0xcc; /* of U+0300 */
        if (c < plain && last)
            tow__changer_put(&changer, c, 0);
        else
            decompose(&p, c, compatible);
    }
    flush(&p, composed, &changer);
    if (p.failed) to->failed = true;
    free_parts(&p);
}
