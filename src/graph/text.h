/* Shared by the printer and the reader of the textual form (docs/textual-form.md). */
#ifndef TOW_SRC_GRAPH_TEXT_H
#define TOW_SRC_GRAPH_TEXT_H

#include <locale.h>

#include "src/graph/builder.h"

/* Numbers are written and read with a decimal point, whatever the locale of the program is. */
typedef struct tow__locale {
    locale_t c, old;
} tow__locale;

static inline tow__locale tow__locale_enter(void)
{
    tow__locale l = {.c = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    if (l.c) l.old = uselocale(l.c);
    return l;
}

static inline void tow__locale_leave(tow__locale l)
{
    if (!l.c) return;
    uselocale(l.old);
    freelocale(l.c);
}

/* The number whose name follows that of `last` (TOW__NAME_NONE: the first one): 0, 1, 2, ... are a, b, ..., z, aa, ab,
 * ...; numbers of reserved words are left out. */
uint32_t tow__name_after(uint32_t last);
#define TOW__NAME_NONE UINT32_MAX
enum {
    TOW__NAME_BYTES = 8
};
void tow__name_write(uint32_t number, char text[TOW__NAME_BYTES]);

/* Scalars. Floats get the fewest digits that read back bit for bit; NaNs with unusual bits are nan:BITS in hexadecimal.
 */
enum {
    TOW__SCALAR_BYTES = 40
};
void tow__scalar_write(tow_dtype dtype, const void *value, char text[TOW__SCALAR_BYTES]);
/* Reads `length` bytes of text into *value. NULL, or what was expected instead. */
const char *tow__scalar_read(tow_dtype dtype, const char *text, size_t length, void *value);

/* Writes the graph; the string says whether memory ran out. */
void tow__graph_write(tow__string *s, const tow_graph *g, int indent);

#endif
