/* Shared by the type rules of regions. */
#ifndef TOW_SRC_AUTODIFF_REGION_TYPES_H
#define TOW_SRC_AUTODIFF_REGION_TYPES_H

#include "src/graph/region.h"
#include "src/ops/rules.h"

/* Operands must be what the body's inputs are; results become what its outputs are. */
tow_status tow__body_type(const tow__typing *ty, const tow_graph *body);
/* Input i of a body, which `what` names, must be what operand i + lead is. */
tow_status tow__inputs_agree(const tow__typing *ty, const tow_graph *body, const char *what, size_t lead, size_t n);
/* Results of a body that are carries must be what its inputs from `first` on are. */
tow_status tow__carries_keep_types(const tow__typing *ty, const tow_graph *body, size_t first);
/* Of a loop whose results are carries: constants and carries, behind `lead` operands, are all operands. */
tow_status tow__loop_counts_fit(const tow__typing *ty, int64_t consts, int64_t max_iterations, size_t lead);

#endif
