/* NumPy's broadcasting as explicit equations, for public functions of several elementwise operands. */
#ifndef TOW_SRC_BROADCAST_H
#define TOW_SRC_BROADCAST_H

#include "src/graph/primitive.h"
#include "tow/ops.h"

/* Replaces x[0..n) by values of one shape, keeping the source line of x[0]. Operands that do not broadcast are left as
 * they are, so that the primitive's type rule reports them. False if one is null. */
bool tow__broadcast_all(size_t n, tow_value *x);
tow_value tow__broadcast_op2(const tow_primitive *p, tow_value x, tow_value y);

#endif
