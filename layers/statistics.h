/* Shared by norms: mean and variance over some axes, and normalization with them,
 *
 *   y = (x - mean) * (rsqrt(var + epsilon) * scale) + bias.
 *
 * The variance is mean((x - mean)^2), in two passes, or with .fast_variance max(mean(x^2) - mean^2, 0), in one. */
#ifndef TOW_LAYERS_STATISTICS_H
#define TOW_LAYERS_STATISTICS_H

#include "src/scope/layer.h"
#include "tow/layers.h"

/* Over n axes, which stay with size 1. n 0: the mean is x and the variance 0. mask: a null value, or a bool value that
 * broadcasts to x and says which elements count. mean NULL: x counts as centered, *variance is mean(x^2). */
void tow__statistics(tow_value x, tow_value mask, bool fast, int n, const int *axes, tow_value *mean,
                     tow_value *variance);

/* Element types of a norm, as in Flax: statistics are f32 at least, whatever the input, and only the result is
 * rounded. */
typedef struct tow__norm_dtypes {
    tow_dtype stats;  /* of x and its statistics: .dtype or that of x, f32 for floats of 16 bits */
    tow_dtype work;   /* of the normalization: what x, statistics and parameters promote to */
    tow_dtype params; /* stored */
    tow_dtype out;    /* .dtype, or what x and the parameters promote to */
} tow__norm_dtypes;
/* False after an error. has_params: the norm has a scale or a bias. */
bool tow__read_norm_dtypes(tow_scope *scope, const char *layer, tow_dtype dtype, tow_dtype param_dtype, bool has_params,
                           tow_value x, tow__norm_dtypes *types);

/* The options of a norm that has a scale and a bias. */
typedef struct tow__affine {
    double epsilon;
    bool no_scale, no_bias;
    tow_initializer scale_init, bias_init;
    tow__norm_dtypes types;
} tow__affine;
/* Reports a negative epsilon, or one that is no number. */
bool tow__check_epsilon(tow_scope *scope, const char *layer, double epsilon);
/* mean, variance: broadcast to x; a null mean is 0. scale and bias have n axes of sizes dims, and the shape `spread`
 * beside x. The result is of type types.out. */
tow_value tow__normalize(tow_scope *scope, const tow__affine *a, tow_value x, tow_value mean, tow_value variance, int n,
                         const int64_t *dims, int rank, const int64_t *spread);
/* The axes of the features of x: *n of the axes in `features`, which are sorted, with their sizes dims[*n], and the
 * shape of a parameter beside x, spread[rank], with 1 for other axes. */
void tow__spread_features(tow_type x, int n, const int *features, int64_t *dims, int64_t *spread);
/* The mask among the inputs of a norm, a null value if there is none. False, reported: not bool, or it does not
 * broadcast to x. */
bool tow__read_mask(tow_scope *scope, const char *layer, size_t n_in, const tow_value *in, tow_value *mask);

#endif
