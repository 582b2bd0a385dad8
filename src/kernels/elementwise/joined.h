/* Ops of row programs that became one: a tile function computes them all, and no tile lies between them. */
#ifndef TOW_SRC_KERNELS_JOINED_H
#define TOW_SRC_KERNELS_JOINED_H

#include "src/kernels/elementwise/fused.h"

enum {
    TOW__JOINED_FUNCTIONS = 6
};

/* Joins ops of single precision: those whose result only one other reads, and functions with their slopes, whose
 * results are value, slope. Returns how many are left. Values from `first_temp` on are temporaries; repeated[value]:
 * all its elements are the same number; afterwards, whether only its first element is read. */
uint32_t tow__join_ops(tow__fused_op *ops, uint32_t n, uint32_t first_temp, bool *repeated);
/* The functions that an op computes, in order: one, unless it was joined. Returns how many. */
uint32_t tow__op_functions(const tow__fused_op *op, tow__function functions[TOW__JOINED_FUNCTIONS]);

#endif
