/* Names as components of paths. */
#ifndef TOW_LAYERS_NAMES_H
#define TOW_LAYERS_NAMES_H

#include "src/base/names.h"

/* Why `name` cannot be one component of a path; NULL: it can. Paths are names of tensors in files, so a component is what
 * such a file can hold, and what can be told from its neighbours and from an iteration. */
const char *tow__component_fault(const char *name);

#endif
