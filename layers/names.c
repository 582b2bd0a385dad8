/* See names.h. */
#include "layers/names.h"

#include "src/io/json.h"

const char *tow__component_fault(const char *name)
{
    if (!name || !name[0]) return "is empty";
    if (strchr(name, '/')) return "has a '/', which separates components";
    if (strcmp(name, "{}") == 0) return "stands for the iterations of a scan";
    if (strcmp(name, "__metadata__") == 0) return "is reserved in safetensors files";
    if (!tow__is_utf8(name)) return "is not UTF-8, as names in safetensors files are";
    return NULL;
}
