/* Shared by the printer and the reader of the textual form (docs/textual-form.md). */
#ifndef TOW_SRC_GRAPH_TEXT_H
#define TOW_SRC_GRAPH_TEXT_H

#include "src/base/locale.h"
#include "src/graph/builder.h"

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
