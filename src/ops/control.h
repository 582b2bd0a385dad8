/* Primitives whose nested graphs run a number of times that the data decide: cond, while, fori; and empty, an array that
 * nobody reads. Their derivative rules are part of src/autodiff. */
#ifndef TOW_SRC_CONTROL_H
#define TOW_SRC_CONTROL_H

#include "src/graph/primitive.h"

extern const tow_primitive tow__cond_p, tow__while_p, tow__fori_p, tow__empty_p;

#endif
