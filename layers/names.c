/* See names.h. */
#include "layers/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/io/json.h"

/* Digits at *at, behind which it is then. */
static bool read_number(const char **at, int64_t *number)
{
    const size_t digits = strspn(*at, "0123456789");
    *number = digits > 0 && digits < 19 ? strtoll(*at, NULL, 10) : 0;
    *at += digits;
    return digits > 0 && digits < 19;
}

bool tow__numbering_read(const char *component, size_t length, tow__numbering *n)
{
    *n = (tow__numbering){.levels = 1, .strides = {1}};
    if (length < 2 || component[0] != '{' || component[length - 1] != '}') return false;
    if (length == 2) return true;
    const char *at = component + 1;
    if (!read_number(&at, &n->first) || *at != '+') return false;
    n->levels = 0;
    do {
        at++;
        if (n->levels == TOW_MAX_RANK || !read_number(&at, &n->strides[n->levels]) || n->strides[n->levels] == 0)
            return false;
        n->levels++;
    } while (*at == ',');
    return at == component + length - 1;
}

int64_t tow__numbering_layer(const tow__numbering *n, const int64_t *index)
{
    int64_t layer = n->first;
    for (int i = 0; i < n->levels; i++) layer += n->strides[i] * index[i];
    return layer;
}

bool tow__numbering_index(const tow__numbering *n, int64_t layer, int64_t *index)
{
    layer -= n->first;
    for (int i = 0; i < n->levels && layer >= 0; i++) {
        index[i] = layer / n->strides[i];
        layer %= n->strides[i];
    }
    return layer == 0;
}

size_t tow__numbering_write(const tow__numbering *n, char *text)
{
    if (n->levels == 1 && n->first == 0 && n->strides[0] == 1) return (size_t)sprintf(text, "{}");
    int length = sprintf(text, "{%" PRId64, n->first);
    for (int i = 0; i < n->levels; i++) length += sprintf(text + length, "%c%" PRId64, i ? ',' : '+', n->strides[i]);
    return (size_t)(length + sprintf(text + length, "}"));
}

const char *tow__component_fault(const char *name)
{
    if (!name || !name[0]) return "is empty";
    if (strchr(name, '/')) return "has a '/', which separates components";
    tow__numbering numbering;
    if (tow__numbering_read(name, strlen(name), &numbering)) return "stands for the iterations of a scan";
    if (strcmp(name, "__metadata__") == 0) return "is reserved in safetensors files";
    if (!tow__is_utf8(name)) return "is not UTF-8, as names in safetensors files are";
    return NULL;
}
