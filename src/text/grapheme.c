/* Extended grapheme clusters: what a reader takes for one character (Unicode Standard Annex 29, whose rules have these
 * names). */
#include "src/text/unicode.h"

/* Classes in the low four bits, as scripts/unicode_tables.py prints them, and in the next two those of Indic conjuncts.
 * */
enum {
    OTHER,
    CR,
    LF,
    CONTROL,
    EXTEND,
    ZWJ,
    SPACING_MARK,
    PREPEND,
    L,
    V,
    T,
    LV,
    LVT,
    REGIONAL,
    PICTURE,
    CLASS = 15,
    CONSONANT = 1 << 4,
    LINKER = 2 << 4,
    CONJUNCT_EXTEND = 3 << 4,
    CONJUNCT = 3 << 4
};

/* The state of a cluster so far that decides whether it goes on. */
typedef struct state {
    uint8_t before; /* the class of its last character */
    bool picture;   /* a picture, marks, and a joiner at the end (GB11) */
    bool marks;     /* a picture and marks */
    bool consonant; /* a consonant and marks (GB9c), and */
    bool linked;    /* among these a linker */
    bool odd;       /* an odd number of regional indicators at its end */
} state;

static void add(state *s, uint8_t class)
{
    const int kind = class & CLASS, conjunct = class & CONJUNCT;
    s->picture = kind == ZWJ && s->marks;
    s->marks = kind == PICTURE || (kind == EXTEND && s->marks);
    s->linked = s->consonant && (conjunct == LINKER || (conjunct == CONJUNCT_EXTEND && s->linked));
    s->consonant = conjunct == CONSONANT || (s->consonant && (conjunct == LINKER || conjunct == CONJUNCT_EXTEND));
    s->odd = kind == REGIONAL && !s->odd;
    s->before = class;
}

static bool goes_on(const state *s, uint8_t class)
{
    const int a = s->before & CLASS, b = class & CLASS;
    if (a == CR || a == LF || a == CONTROL || b == CR || b == LF || b == CONTROL)
        return a == CR && b == LF;                                                 /* GB3 to 5 */
    if (a == L && (b == L || b == V || b == LV || b == LVT)) return true;          /* GB6 */
    if ((a == LV || a == V) && (b == V || b == T)) return true;                    /* GB7 */
    if ((a == LVT || a == T) && b == T) return true;                               /* GB8 */
    if (b == EXTEND || b == ZWJ || b == SPACING_MARK || a == PREPEND) return true; /* GB9, 9a, 9b */
    if (s->linked && (class & CONJUNCT) == CONSONANT) return true;                 /* GB9c */
    if (s->picture && b == PICTURE) return true;                                   /* GB11 */
    return s->odd && b == REGIONAL;                                                /* GB12, 13 */
}

size_t tow__grapheme_end(const char *text, size_t at, size_t end)
{
    state s = {0};
    for (bool first = true; at < end; first = false) {
        uint32_t c;
        const int length = tow__utf8_get(text + at, &c);
        const uint8_t class = tow__grapheme_class(c);
        if (!first && !goes_on(&s, class)) break;
        add(&s, class);
        at += (size_t)length;
    }
    return at;
}
