/* Inlining and ordering: what is done to a function before it is lowered. */
#ifndef TOW_SRC_PLAN_INLINE_H
#define TOW_SRC_PLAN_INLINE_H

#include "src/plan/ir.h"

/* Fills function f, except for what lives in `scratch`. scan: g is its body, which also goes through the passes on
 * values; or NULL. */
tow_status tow__inline_graph(tow_program *p, tow__arena *scratch, const tow_graph *g, const tow__scan_params *scan,
                             tow__body *f);
/* A new value of the function, or TOW__NONE. */
uint32_t tow__add_value(tow__arena *scratch, tow__body *f, tow_type type, uint32_t maker);
/* Brings the instructions that outputs need into the order in which they run, and drops the others. Marks values that
 * end in arrays of somebody else (`delivered`). */
tow_status tow__order(tow__body *f, tow__arena *scratch);

#endif
