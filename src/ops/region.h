/* Primitives with a nested graph, and the name tag. Their derivative rules are part of src/autodiff. */
#ifndef TOW_SRC_REGION_H
#define TOW_SRC_REGION_H

#include "src/graph/primitive.h"

extern const tow_primitive tow__name_p, tow__call_p, tow__remat_p, tow__scan_p;

#endif
