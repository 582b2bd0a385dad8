/* Views of storages. */
#ifndef TOW_SRC_PLAN_VIEW_H
#define TOW_SRC_PLAN_VIEW_H

#include "src/plan/ir.h"

/* Makes *y, the result of an instruction that only rearranges, on view x, without moving data. False if e is
 * not of that kind or the result is not a view of x. */
bool tow__view_of(const tow__instruction *inst, const tow__view *x, tow_type type, tow__view *y);
/* All of its storage, row-major. */
bool tow__is_whole(const tow_program *p, const tow__view *x);
/* What a kernel gets; data stays NULL. */
tow__buffer tow__view_buffer(const tow__view *x);

#endif
