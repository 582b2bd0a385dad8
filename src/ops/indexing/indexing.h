/* Shared by the files of general indexing. */
#ifndef TOW_SRC_OPS_INDEXING_H
#define TOW_SRC_OPS_INDEXING_H

#include "src/graph/primitive.h"
#include "tow/ops.h"

/* indices -> [..., 1], which several tow__take_at share. */
tow_value tow__index_vectors(tow_value indices);
/* x [..., n, ...], index vectors of i32 indices of x's shape but for the axis (0 <= axis) -> x at these places, all of
 * which lie inside. */
tow_value tow__take_at(tow_value x, tow_value vectors, int axis);
/* The dimension numbers of such a gather, whose indices have a last axis of size 1 more. */
tow_gather_dims tow__along_dims(int rank, int axis);

/* The number with which TOW_INDEX_FILL fills. */
double tow__usual_fill(tow_dtype dtype);
tow_value tow__bind_gather(tow_value x, tow_value indices, const tow__gather_params *p);

/* So many steps per element as there are binary digits in the size of the axis, which is the first parameter. */
tow__op_cost tow__sort_cost(const tow__operation *o);

#endif
