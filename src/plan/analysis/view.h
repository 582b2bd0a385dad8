/* Views of storages. */
#ifndef TOW_SRC_PLAN_VIEW_H
#define TOW_SRC_PLAN_VIEW_H

#include "src/plan/ir.h"

/* Makes *y, the result of an instruction that only rearranges, on view x, without moving data. False if e is
 * not of that kind or the result is not a view of x. */
bool tow__view_of(const tow__instruction *inst, const tow__view *x, tow_type type, tow__view *y);
/* All of its storage, row-major. */
bool tow__is_whole(const tow_program *p, const tow__view *x);
/* The buffer that a kernel gets; data stays NULL. */
tow__buffer tow__view_buffer(const tow__view *x);

/* The storage whose memory an output of the function would best take, because it replaces what is there: of a carry, as
 * it enters; of a donated input; the row of xs whose array the array of ys replaces so. TOW__NONE: there is none. */
uint32_t tow__home_of(const tow_program *p, const tow__body *body, uint32_t storage);

#endif
