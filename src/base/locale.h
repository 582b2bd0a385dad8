/* Numbers are written and read with a decimal point, whatever the locale of the program is. */
#ifndef TOW_SRC_LOCALE_H
#define TOW_SRC_LOCALE_H

#include <locale.h>

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

#endif
