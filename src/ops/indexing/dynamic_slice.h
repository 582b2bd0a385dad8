/* Batching rules of dynamic_slice and dynamic_update_slice (src/ops/indexing/index.c). */
#ifndef TOW_SRC_OPS_DYNAMIC_SLICE_H
#define TOW_SRC_OPS_DYNAMIC_SLICE_H

#include "src/graph/primitive.h"

void tow__batch_dynamic_slice(tow__batch *r);
void tow__batch_dynamic_update_slice(tow__batch *r);

#endif
