/* Norms of gradients and parameters, and factors made of them, for numbers of any size that the element type has.
 *
 * A norm is value * unit, both f64[], where the unit is a power of two: squares of f32, f16 and bf16 fit f64, so it is
 * 1 for them (a null value); sums of squares of f64 may be infinite or 0 where the norm is neither, so these are added
 * up three times, as they are, large ones made smaller and small ones larger, and the sum that fits counts (Blue, A
 * portable Fortran program to find the Euclidean norm of a vector, 1978). */
#ifndef TOW_SRC_TRAIN_NORMS_H
#define TOW_SRC_TRAIN_NORMS_H

#include "tow/ops.h"

typedef struct tow__root {
    tow_value value, unit; /* unit null: 1 */
} tow__root;

/* The root of the sum of the squares of all elements of x[0..n). n is positive. */
tow__root tow__root_of_squares(size_t n, const tow_value *x);
/* The same, of arrays [layers, elements...], by sums of lines of each layer, which processes share (tow__share_line):
 * layers[i] of x[i]. */
tow__root tow__root_of_lines(size_t n, const tow_value *x, const int64_t *layers);
/* The same for each row of the first axis, which all have: [rows, 1]. */
tow__root tow__roots_of_rows(size_t n, const tow_value *x);
/* The root of the mean of the squares of x; 0 of no elements. */
tow__root tow__root_of_mean(tow_value x);
/* The roots of sums over some axes, which stay with size 1: arrays. */
tow__root tow__roots_along(tow_value x, int n_axes, const int *axes);
/* value * unit, which may be infinite. */
tow_value tow__root_value(tow__root root);

/* before * ratio * after of such numbers in any type: what a gradient is multiplied with. */
typedef struct tow__factor {
    tow_value before, ratio, after; /* f64; before and after may be null: 1 */
    tow_value first, second;        /* the same of f32: a power of two, and the rest */
} tow__factor;
/* before and after: powers of two, or null. */
tow__factor tow__factor_make(tow_value before, tow_value ratio, tow_value after);
/* x times the factor, of the type of x, where the factor is a scalar or of the shape of x. Products of 16-bit numbers
 * are rounded once. */
tow_value tow__factor_apply(const tow__factor *factor, tow_value x);

/* coefficient numerator / (root + eps), coefficient and eps f64 scalars that are not negative. */
tow__factor tow__factor_over(tow_value coefficient, tow__root numerator, tow__root root, tow_value eps);
/* 1 where root < limit, else limit / max(root, least), limit f64 and finite. A root that is NaN gives NaN. */
tow__factor tow__factor_clip(tow__root root, tow_value limit, double least);
/* The factor 1 where the condition holds, else the factor. */
tow__factor tow__factor_unless(tow_value condition, const tow__factor *factor);

#endif
