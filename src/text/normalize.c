/* Normalizers: each one writes a new text from the one before, with the places that its characters come from. */
#include "src/text/tokenizer.h"

/* The next character and the place that it comes from. */
typedef struct reader {
    const tow__text *text;
    size_t at;
    uint32_t c;
    tow__source_span span;
} reader;

static bool next(reader *r)
{
    if (r->at >= r->text->length) return false;
    r->span = r->text->spans[r->at];
    r->at += (size_t)tow__utf8_get(r->text->bytes + r->at, &r->c);
    return true;
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

/* The next match at or behind `at`. */
static bool find(const tow__normal *step, const tow__text *text, size_t at, size_t *begin, size_t *end)
{
    if (step->regex) return tow__regex_find(step->regex, text->bytes, 0, at, text->length, begin, end);
    const size_t length = strlen(step->from);
    const char *found =
        text->length - at >= length ? memmem(text->bytes + at, text->length - at, step->from, length) : NULL;
    if (!found) return false;
    *begin = (size_t)(found - text->bytes);
    *end = *begin + length;
    return true;
}

/* The content has the place of the last character that it replaces. */
static void replace(const tow__normal *step, const tow__text *from, tow__text *to)
{
    const size_t length = strlen(step->to);
    size_t at = 0, begin, end;
    if (step->regex) tow__regex_allow(step->regex, from->length);
    for (; at < from->length && find(step, from, at, &begin, &end); at = end) {
        tow__text_copy(to, from, at, begin);
        tow__text_add(to, step->to, length, from->spans[end - 1]);
    }
    tow__text_copy(to, from, at, from->length);
}

static void prepend(const tow__text *from, const char *content, tow__text *to)
{
    if (from->length > 0) tow__text_add(to, content, strlen(content), from->spans[0]);
    tow__text_copy(to, from, 0, from->length);
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
    tow__text_copy(to, from, begin, end);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void swap(tow__text *text, tow__text *other)
{
    const tow__text t = *text;
    *text = *other;
    *other = t;
    text->failed = text->failed || other->failed;
    text->origin = t.origin;
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
        tow__normal_form(text, false, false, other);
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
    case TOW__NFD:
    case TOW__NFKC:
    case TOW__NFKD:
        tow__normal_form(text, step->kind == TOW__NFC || step->kind == TOW__NFKC,
                         step->kind == TOW__NFKC || step->kind == TOW__NFKD, other);
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
        replace(step, text, other);
        break;
    case TOW__STRIP:
        strip(text, step->left, step->right, other);
        break;
    case TOW__PRECOMPILED:
        tow__charsmap_apply(step->map, text, other);
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

tow_status tow__normalize_status(const tow__normal *steps, int n, const tow__text *text)
{
    tow_status status = text->failed ? TOW_OUT_OF_MEMORY : TOW_OK;
    for (int i = 0; i < n && status == TOW_OK; i++)
        if (steps[i].regex) status = tow__regex_status(steps[i].regex);
    return status;
}
