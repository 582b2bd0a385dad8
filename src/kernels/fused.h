/* Row programs: chains of elementwise functions that run tile by tile, in one pass over memory.
 *
 *   operands ──> tile of a few hundred elements ──> ops, one after the other, on tiles in the nearest cache ──> results
 *
 * A program is a list of ops. Each calls the tile function of an elementwise kernel, so a fused chain has the bits of
 * its parts. Values are numbered: first the operands, then the results, then the temporaries, which exist only as one
 * tile on the stack. All operands and results have one shape; operands that repeat elements have strides of 0. Nothing
 * in a program depends on that shape, so it may run on any rows of it. */
#ifndef TOW_SRC_KERNELS_FUSED_H
#define TOW_SRC_KERNELS_FUSED_H

#include "src/kernels/strided.h"

enum {
    TOW__FUSED_OPS = 64,
    TOW__FUSED_IN = 24,
    TOW__FUSED_OUT = 12,
    TOW__FUSED_TEMPS = 16,
    TOW__FUSED_VALUES = TOW__FUSED_IN + TOW__FUSED_OUT + TOW__FUSED_TEMPS,
    TOW__FUSED_ARITY = 4,
    TOW__FUSED_RESULTS = 2
};

typedef struct tow__fused_op {
    tow__tile tile;
    const void *params;
    const char *primitive;
    uint8_t n_in, n_out;
    uint8_t in[TOW__FUSED_ARITY], out[TOW__FUSED_RESULTS];
} tow__fused_op;

typedef struct tow__fused {
    const tow__fused_op *ops;
    uint32_t n_ops;
    uint32_t n_in, n_out, n_temps;
    uint8_t sizes[TOW__FUSED_VALUES]; /* bytes of one element of each value */
    bool late[TOW__FUSED_OUT];        /* operands are read after this result is made: if it takes the memory of one, it
                                         waits in a tile until the end */
} tow__fused;

/* Where the values of one stretch of elements are: pointers that the caller fills for operands and results, and tiles
 * for temporaries. */
void tow__fused_run_ops(const tow__fused *program, int64_t n, char *const *at);
/* The tile function of a call of an elementwise kernel; NULL: it is not elementwise. */
tow__tile tow__kernel_tile(const tow__kernel *kernel, const tow__kernel_call *call);

#endif
