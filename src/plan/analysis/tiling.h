/* Tiling of instructions: what a block of rows of their results needs, and how much work it is. */
#ifndef TOW_SRC_PLAN_TILING_H
#define TOW_SRC_PLAN_TILING_H

#include "src/plan/analysis/analysis.h"

/* True if the instruction computes rows (axis 0 of its results) independently of each other. from[i] is 0 where it
 * needs the same rows of operand i only, else TOW__WHOLE. */
bool tow__is_tileable(const tow__instruction *inst, int *from);
/* Finds the cut of the function along an axis that need not be axis 0 of anything: the axis of one of its operands
 * along which most work can be cut, propagated (analysis/axis.h). *tiling: NULL: there is none, or too little work. */
tow_status tow__find_named_tiling(tow__function_state *s, const tow__tiling **tiling);
/* Is it one of those that reduce rows: sums and maxima along them, softmax, norms? */
bool tow__reduces_axis(const tow__instruction *inst);
/* Floating-point operations: those of products exactly. */
double tow__flops(const tow__instruction *inst);
/* Rows of a product or of queries that belong to one element of operand 0 along `axis`, which is cut. */
int64_t tow__inner_rows(const tow__instruction *inst, int axis);
/* True if x is the same all along the axis: whatever block is read. */
bool tow__repeats_rows(const tow__view *x, int axis);
/* True if block b of x, of `blocks` blocks along the axis, lies in part b of its storage, for all b. */
bool tow__fits_tiles(const tow_program *p, const tow__view *x, int axis, int64_t blocks);
/* True if `blocks` pieces of equal work keep so many threads busy for three quarters of the time at least. */
bool tow__is_balanced(int64_t blocks, int64_t threads);

#endif
