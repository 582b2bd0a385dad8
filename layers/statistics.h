/* What BatchNorm, GroupNorm and InstanceNorm share: mean and variance over some axes, and normalisation with them,
 *
 *   y = (x - mean) * (rsqrt(var + epsilon) * scale) + bias.
 *
 * The variance is mean((x - mean)^2), in two passes, as LayerNorm's is. */
#ifndef TOW_LAYERS_STATISTICS_H
#define TOW_LAYERS_STATISTICS_H

#include "layers/layer.h"

/* Over n axes, which stay with size 1. n 0: the mean is x and the variance 0. mask: a null value, or a bool value that
 * broadcasts to x and says which elements count. */
void tow__statistics(tow_value x, tow_value mask, int n, const int *axes, tow_value *mean, tow_value *variance);

/* The options of a norm that has a scale and a bias. */
typedef struct tow__affine {
    double epsilon;
    bool no_scale, no_bias;
    tow_initializer scale_init, bias_init;
} tow__affine;
/* Reports a negative epsilon, or one that is no number. */
bool tow__check_epsilon(tow_scope *scope, const char *layer, double epsilon);
/* mean, variance: broadcast to x. scale and bias have n axes of sizes dims, and the shape `spread` beside x. */
tow_value tow__normalize(tow_scope *scope, const tow__affine *a, tow_value x, tow_value mean, tow_value variance, int n,
                         const int64_t *dims, int rank, const int64_t *spread);
/* The mask among the inputs of a norm, a null value if there is none. False, reported: not bool, or it does not broadcast to x. */
bool tow__read_mask(tow_scope *scope, const char *layer, size_t n_in, const tow_value *in, tow_value *mask);

#endif
