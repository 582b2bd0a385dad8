/* The public view of the table of primitives: their names, for tools that count what a program runs. */
#include "src/graph/primitive.h"

const char *tow_primitive_name(size_t index)
{
    return index < tow__primitive_count ? tow__primitives[index]->name : NULL;
}
