/* See options.h. */
#include "src/base/options.h"

#include <stdio.h>
#include <string.h>

#include "src/base/base.h"
#include "tow/base.h"

enum {
    LARGEST = 1 << 14, /* no struct is larger; a size beyond it is memory that nobody has set */
    NAME = 64
};

/* The name of the macro: "tow_load_options" -> "TOW_LOAD_OPTIONS". */
static void macro_of(const tow__struct_kind *kind, char text[NAME])
{
    const char *from = kind->macro ? kind->macro : kind->name;
    size_t i = 0;
    for (; from[i] && i + 1 < NAME; i++)
        text[i] = from[i] >= 'a' && from[i] <= 'z' ? (char)(from[i] - 'a' + 'A') : from[i];
    text[i] = '\0';
}

/* The first byte that this library does not know and that is set; `found` if there is none. */
static size_t first_unknown(const void *given, size_t known, size_t found)
{
    const unsigned char *bytes = given;
    while (known < found && bytes[known] == 0) known++;
    return known < found ? known : found;
}

size_t tow__struct_fault(const tow__struct_kind *kind, const void *given, size_t found, char *text, size_t size)
{
    char macro[NAME];
    int length = 0;
    macro_of(kind, macro);
    if (size > 0) text[0] = '\0';
    if (found < sizeof(size_t) || found > LARGEST || found % sizeof(size_t) != 0)
        length = snprintf(text, size, "%s: expected a struct with its size, found size %zu; make it with %s(...)",
                          kind->name, found, macro);
    else if (first_unknown(given, kind->size, found) < found)
        length = snprintf(text, size,
                          "%s: byte %zu of %zu is set, but this library (%s) knows %zu bytes of what %s(...) makes; "
                          "leave out the options of later versions, or run with a later library",
                          kind->name, first_unknown(given, kind->size, found), found, tow_version(), kind->size, macro);
    return length < 0 ? 0 : (size_t)length;
}

void tow__struct_copy(const tow__struct_kind *kind, const void *given, size_t found, void *own)
{
    memset(own, 0, kind->size);
    memcpy(own, given, found < kind->size ? found : kind->size);
}

/* The size that a struct of options begins with. */
static size_t size_of(const void *options)
{
    size_t size;
    memcpy(&size, options, sizeof size);
    return size;
}

size_t tow__options_fault(const tow__struct_kind *kind, const void *given, char *text, size_t size)
{
    return tow__struct_fault(kind, given, size_of(given), text, size);
}

void tow__options_copy(const tow__struct_kind *kind, const void *given, void *own)
{
    tow__struct_copy(kind, given, size_of(given), own);
    memcpy(own, &kind->size, sizeof kind->size);
}

bool tow__options_take(tow_context *ctx, const tow__struct_kind *kind, void *options, void *own)
{
    const void *given;
    char text[320];
    memcpy(&given, options, sizeof given);
    if (!given) return true;
    if (tow__options_fault(kind, given, text, sizeof text) > 0) {
        if (ctx) tow__fail(ctx, TOW_INVALID_ARGUMENT, "%s", text);
        return false;
    }
    tow__options_copy(kind, given, own);
    memcpy(options, &own, sizeof own);
    return true;
}
