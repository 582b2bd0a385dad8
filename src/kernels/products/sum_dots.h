/* Sums over the iterations of a scan: the plan makes them of a scan whose body does nothing but add to its carry. */
#ifndef TOW_SRC_KERNELS_STEPS_H
#define TOW_SRC_KERNELS_STEPS_H

#include "src/base/params.h"
#include "src/kernels/kernel.h"

/* Sums in order (tow__addition), of which the last operand is `init`:
 *
 *   dot_general   x [steps, ...], y [steps, ...], init [m, n]: init + x_0 y_0 + x_1 y_1 ..., where axis 0 is the first
 *                 contracted one, and x_t y_t the product of two matrices with one contracted axis each, or of two
 *                 vectors with none
 *   reduce_sum    x [steps, ...], init: init + x_0 + x_1 ..., over axis 0
 *
 * The order is that of the iterations, from the last one with `reverse`; the bits are those of products and additions
 * done one by one. */

enum {
    TOW__SUM_DOTS_WIDTH = 32,  /* columns of a panel */
    TOW__SUM_DOTS_PANELS = 16, /* panels of a block: all use what is packed of x */
    TOW__SUM_DOTS_ROWS = 128   /* of x and y that are packed at a time; a step has no more */
};

/* C[rows, columns] += X_t^T Y_t for each step t in order. x: element (t, p, i) at t x_step + p x_depth + i x_row, y:
 * element (t, p, j) at t y_step + p y_depth + j; steps may run backwards. Each product is one chain of multiply-adds
 * from 0 over the depth (from -0 over a depth of 1), and is then added to C. Steps have no more than TOW__SUM_DOTS_ROWS
 * rows together. During the sum, the operands of the `ahead` iterations that follow are prefetched. */
typedef struct tow__sum_dots {
    int64_t steps, ahead, rows, columns, depth;
    const float *x;
    int64_t x_step, x_depth, x_row;
    const float *y;
    int64_t y_step, y_depth;
    float *c;
    int64_t ldc;
} tow__sum_dots;

#if defined(__x86_64__)
void tow__sum_dots_avx2(const tow__sum_dots *s);
void tow__sum_dots_avx512(const tow__sum_dots *s);
#endif

#endif
