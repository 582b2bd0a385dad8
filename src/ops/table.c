/* The table of all primitives. The order is that of strcmp, which binary search relies on. */
#include "src/ops/table.h"

const tow_primitive *const tow__primitives[] = {
#define X(name) &tow__##name##_p,
    TOW__PRIMITIVE_LIST(X)
#undef X
};

const size_t tow__primitive_count = sizeof tow__primitives / sizeof *tow__primitives;

/* strcmp of a name given by its length with a table name. */
static int compare(const char *name, size_t length, const char *entry)
{
    int order = strncmp(name, entry, length);
    return order != 0 ? order : entry[length] == '\0' ? 0 : -1;
}

const tow_primitive *tow__primitive_find(const char *name, size_t length)
{
    size_t low = 0, high = tow__primitive_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare(name, length, tow__primitives[middle]->name);
        if (order == 0) return tow__primitives[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
