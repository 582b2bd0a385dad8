/* Pairs of ops of row programs. */
#ifndef TOW_SRC_KERNELS_PAIRS_H
#define TOW_SRC_KERNELS_PAIRS_H

#include "src/kernels/elementwise/fused.h"

/* second(first(x [, y]) [, w]), or with place 1 second(w, first(x [, y])), in single precision; operands x [, y] [, w].
 * NULL: there is no such function. */
tow__tile tow__pair_tile(tow__function first, tow__function second, int place);

/* Joins ops of single precision: those whose result only one other reads, and functions with their slopes, whose
 * results are value, slope. Returns how many are left. Values from `first_temp` on are temporaries. */
uint32_t tow__join_pairs(tow__fused_op *ops, uint32_t n, uint32_t first_temp);

#endif
