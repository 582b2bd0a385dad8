/* Widening, inlining and ordering: what is done to a function before it is lowered. */
#ifndef TOW_SRC_PLAN_INLINE_H
#define TOW_SRC_PLAN_INLINE_H

#include "src/plan/ir.h"

/* The graph with equations on floats of 16 bits in wider types, where there is no kernel for them (lower/widen.c); `g`
 * itself, retained, if there are none. team: says which engine runs a product. */
tow_status tow__widen_graph(const tow_graph *g, const tow__team *team, tow_graph **result);
/* The type by which kernels are chosen: a float of 16 bits, for which few have code; else of the first float operand,
 * else of operand 0; of the result if there are none, or if operand 0 are indices. */
tow_dtype tow__dtype_of_kernel(const tow_graph *g, const tow__equation *e);
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
