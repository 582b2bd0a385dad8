/* Normalisers: each one writes a new text from the one before, with the places that its characters come from. */
#include "src/text/tokenizer.h"

/* The next character and the place that it comes from. */
typedef struct reader {
    const tow__text *text;
    size_t at;
    uint32_t c;
    tow__span span;
} reader;

static bool next(reader *r)
{
    if (r->at >= r->text->length) return false;
    r->span = r->text->spans[r->at];
    r->at += (size_t)tow__utf8_get(r->text->bytes + r->at, &r->c);
    return true;
}

/* ---- decomposition and composition --------------------------------------------------------------------------------- */

/* Marks that wait for their order. Where they come from goes by places, not by characters: the first one written has the place of
 * the first one read; what a character was decomposed to besides its first part has the place of what is before it. */
typedef struct marks {
    tow__text *to;
    struct {
        uint32_t c;
        int class;
        bool more; /* no first part */
    } items[64];
    size_t n;
    tow__span places[65]; /* of characters read whose first part is not written */
    size_t n_places;
    tow__span last;
} marks;

static void write_mark(marks *m, uint32_t c, bool more)
{
    if (!more && m->n_places > 0) {
        m->last = m->places[0];
        memmove(m->places, m->places + 1, --m->n_places * sizeof *m->places);
    }
    tow__text_add_char(m->to, c, m->last);
}

static void write_marks(marks *m)
{
    for (size_t k = 0; k < m->n; k++) write_mark(m, m->items[k].c, m->items[k].more);
    m->n = 0;
}

/* Decomposes all characters. Marks behind one character are put in the order of their classes, those of one class stay in theirs;
 * of more than 64, the first 64 and so on. */
static void decompose(const tow__text *from, tow__text *to)
{
    reader r = {.text = from};
    marks m = {.to = to};
    while (next(&r)) {
        uint32_t parts[TOW__MOST_DECOMPOSED];
        const int count = tow__decompose_character(r.c, parts);
        if (m.n_places == 65) write_marks(&m);
        m.places[m.n_places++] = r.span;
        for (int i = 0; i < count; i++) {
            const int class = tow__combining_class(parts[i]);
            if (class == 0 || m.n == 64) write_marks(&m);
            if (class == 0) {
                write_mark(&m, parts[i], i > 0);
                continue;
            }
            size_t k = m.n++;
            for (; k > 0 && m.items[k - 1].class > class; k--) m.items[k] = m.items[k - 1];
            m.items[k].c = parts[i];
            m.items[k].class = class;
            m.items[k].more = i > 0;
        }
    }
    write_marks(&m);
}

/* A character that waits for what may be composed with it. */
typedef struct waiting {
    uint32_t c;
    int class;
    tow__span span;
} waiting;

/* Composes decomposed text: a mark joins the last starter unless one of its class, or a starter, is between them. */
static void compose(const tow__text *from, tow__text *to)
{
    reader r = {.text = from};
    waiting group[65]; /* a starter and what is behind it */
    size_t n = 0;
    int last_class = -1;
    while (next(&r)) {
        const int class = tow__combining_class(r.c);
        if (n > 0 && group[0].class == 0) {
            const bool blocked = last_class >= class && last_class >= 0;
            const uint32_t joined = blocked ? 0 : tow__compose_characters(group[0].c, r.c);
            if (joined && (class > 0 || n == 1)) {
                group[0].c = joined; /* which keeps the place of the starter */
                continue;
            }
        }
        if (class == 0 || n == 65) {
            for (size_t k = 0; k < n; k++) tow__text_add_char(to, group[k].c, group[k].span);
            n = 0;
        }
        group[n++] = (waiting){r.c, class, r.span};
        last_class = class == 0 ? -1 : class;
    }
    for (size_t k = 0; k < n; k++) tow__text_add_char(to, group[k].c, group[k].span);
}

/* ---- single characters ------------------------------------------------------------------------------------------- */

static void lowercase(const tow__text *from, tow__text *to)
{
    reader r = {.text = from};
    while (next(&r)) {
        tow__text_add_char(to, tow__lower_case(r.c), r.span);
        if (r.c == 0x130) tow__text_add_char(to, 0x307, r.span);
    }
}

static void drop(const tow__text *from, unsigned classes, tow__text *to)
{
    reader r = {.text = from};
    while (next(&r))
        if (!(tow__classes(r.c) & classes)) tow__text_add_char(to, r.c, r.span);
}

static void clean(const tow__text *from, tow__text *to)
{
    reader r = {.text = from};
    while (next(&r)) {
        const unsigned classes = tow__classes(r.c);
        if (!(classes & TOW__CONTROL)) tow__text_add_char(to, classes & TOW__BLANK ? ' ' : r.c, r.span);
    }
}

static void space_chinese(const tow__text *from, tow__text *to)
{
    reader r = {.text = from};
    while (next(&r)) {
        const bool chinese = tow__classes(r.c) & TOW__CHINESE;
        if (chinese) tow__text_add_char(to, ' ', r.span);
        tow__text_add_char(to, r.c, r.span);
        if (chinese) tow__text_add_char(to, ' ', r.span);
    }
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

static void replace(const tow__text *from, const char *pattern, const char *content, tow__text *to)
{
    const size_t length = strlen(pattern), new_length = strlen(content);
    for (size_t i = 0; i < from->length;) {
        if (length > 0 && from->length - i >= length && memcmp(from->bytes + i, pattern, length) == 0) {
            const tow__span span = {from->spans[i].begin, from->spans[i + length - 1].end};
            tow__text_add(to, content, new_length, span);
            i += length;
        } else {
            tow__text_add(to, from->bytes + i, 1, from->spans[i]);
            i++;
        }
    }
}

static void prepend(const tow__text *from, const char *content, tow__text *to)
{
    if (from->length > 0) tow__text_add(to, content, strlen(content), from->spans[0]);
    for (size_t i = 0; i < from->length; i++) tow__text_add(to, from->bytes + i, 1, from->spans[i]);
}

static void strip(const tow__text *from, bool left, bool right, tow__text *to)
{
    size_t begin = 0, end = from->length;
    uint32_t c;
    while (left && begin < end) {
        const size_t length = (size_t)tow__utf8_get(from->bytes + begin, &c);
        if (!(tow__classes(c) & TOW__SPACE)) break;
        begin += length;
    }
    while (right && end > begin) {
        size_t at = end - 1;
        while (tow__utf8_continues(from->bytes[at])) at--;
        tow__utf8_get(from->bytes + at, &c);
        if (!(tow__classes(c) & TOW__SPACE)) break;
        end = at;
    }
    for (size_t i = begin; i < end; i++) tow__text_add(to, from->bytes + i, 1, from->spans[i]);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void swap(tow__text *text, tow__text *other)
{
    const tow__text t = *text;
    *text = *other;
    *other = t;
    text->failed = text->failed || other->failed;
    other->length = 0;
}

static void bert(const tow__normal *step, tow__text *text, tow__text *other)
{
    if (step->clean) {
        clean(text, other);
        swap(text, other);
    }
    if (step->chinese) {
        space_chinese(text, other);
        swap(text, other);
    }
    if (step->accents) {
        decompose(text, other);
        swap(text, other);
        drop(text, TOW__ACCENT, other);
        swap(text, other);
    }
    if (step->lower) {
        lowercase(text, other);
        swap(text, other);
    }
}

static void run(const tow__normal *step, tow__text *text, tow__text *other)
{
    switch (step->kind) {
    case TOW__NFC:
        decompose(text, other);
        swap(text, other);
        compose(text, other);
        break;
    case TOW__NFD:
        decompose(text, other);
        break;
    case TOW__LOWERCASE:
        lowercase(text, other);
        break;
    case TOW__STRIP_ACCENTS:
        drop(text, TOW__MARK, other);
        break;
    case TOW__PREPEND:
        prepend(text, step->to, other);
        break;
    case TOW__REPLACE:
        replace(text, step->from, step->to, other);
        break;
    case TOW__STRIP:
        strip(text, step->left, step->right, other);
        break;
    case TOW__BERT_NORMAL:
        bert(step, text, other);
        return;
    }
    swap(text, other);
}

void tow__normalize_text(const tow__normal *steps, int n, tow__text *text, tow__text *other)
{
    other->length = 0;
    for (int i = 0; i < n && !text->failed; i++) run(&steps[i], text, other);
}
