/* The activations of jax.nn that are no primitives, as functions over the operations of ops.h. Those of one value can
 * be the .activation of a layer, as tow_relu, tow_silu, tow_tanh and tow_logistic (sigmoid) of ops.h can. All take
 * floats. Derivatives are those of JAX, also where a function has a corner. */
#ifndef TOW_ACTIVATIONS_H
#define TOW_ACTIVATIONS_H

#include "tow/numpy.h"

#ifdef __cplusplus
extern "C" {
#endif

TOW_API tow_value tow_relu6(tow_value x);          /* min(max(x, 0), 6) */
TOW_API tow_value tow_leaky_relu(tow_value x);     /* tow_leaky_relu_with(x, 0.01) */
TOW_API tow_value tow_elu(tow_value x);            /* tow_elu_with(x, 1) */
TOW_API tow_value tow_selu(tow_value x);           /* 1.0507009873554805 tow_elu_with(x, 1.6732632423543772) */
TOW_API tow_value tow_celu(tow_value x);           /* tow_celu_with(x, 1) */
TOW_API tow_value tow_softplus(tow_value x);       /* log(1 + exp(x)) */
TOW_API tow_value tow_log_sigmoid(tow_value x);    /* -softplus(-x), the logarithm of tow_logistic(x) */
TOW_API tow_value tow_mish(tow_value x);           /* x tanh(softplus(x)) */
TOW_API tow_value tow_squareplus(tow_value x);     /* tow_squareplus_with(x, 4) */
TOW_API tow_value tow_soft_sign(tow_value x);      /* x / (1 + |x|) */
TOW_API tow_value tow_hard_tanh(tow_value x);      /* x between -1 and 1 */
TOW_API tow_value tow_hard_sigmoid(tow_value x);   /* relu6(x + 3) / 6 */
TOW_API tow_value tow_hard_silu(tow_value x);      /* x hard_sigmoid(x) */
TOW_API tow_value tow_sparse_plus(tow_value x);    /* 0 up to -1, x from 1 on, (x + 1)^2 / 4 between them */
TOW_API tow_value tow_sparse_sigmoid(tow_value x); /* min(max(x + 1, 0), 2) / 2 */

TOW_API tow_value tow_leaky_relu_with(tow_value x, double slope); /* x where x >= 0, else slope x */
TOW_API tow_value tow_elu_with(tow_value x, double alpha);        /* x where x > 0, else alpha (exp(x) - 1) */
TOW_API tow_value tow_celu_with(tow_value x, double alpha);       /* max(x, 0) + alpha (exp(min(x, 0) / alpha) - 1) */
TOW_API tow_value tow_squareplus_with(tow_value x, double b);     /* (x + sqrt(x^2 + b)) / 2 */
/* a logistic(b) of the halves a and b of x along an axis, which must be of even size; axes may be negative. */
TOW_API tow_value tow_glu(tow_value x, int axis);
/* (x - mean) rsqrt(var + epsilon) over these axes; n_axes 0: all. The variance is mean((x - mean)^2), in two passes,
 * and not mean(x^2) - mean^2 as that of jax.nn is by default. */
TOW_API tow_value tow_standardize(tow_value x, int n_axes, const int *axes, double epsilon);

/* ---- the macros that add the source line (ops_lines.h) ----------------------------------------------------------- */
#ifndef TOW_NO_SOURCE_LINES
/* clang-format off */
#define tow_relu6(x) tow_relu6(tow_at((x), TOW_HERE))
#define tow_leaky_relu(x) tow_leaky_relu(tow_at((x), TOW_HERE))
#define tow_elu(x) tow_elu(tow_at((x), TOW_HERE))
#define tow_selu(x) tow_selu(tow_at((x), TOW_HERE))
#define tow_celu(x) tow_celu(tow_at((x), TOW_HERE))
#define tow_softplus(x) tow_softplus(tow_at((x), TOW_HERE))
#define tow_log_sigmoid(x) tow_log_sigmoid(tow_at((x), TOW_HERE))
#define tow_mish(x) tow_mish(tow_at((x), TOW_HERE))
#define tow_squareplus(x) tow_squareplus(tow_at((x), TOW_HERE))
#define tow_soft_sign(x) tow_soft_sign(tow_at((x), TOW_HERE))
#define tow_hard_tanh(x) tow_hard_tanh(tow_at((x), TOW_HERE))
#define tow_hard_sigmoid(x) tow_hard_sigmoid(tow_at((x), TOW_HERE))
#define tow_hard_silu(x) tow_hard_silu(tow_at((x), TOW_HERE))
#define tow_sparse_plus(x) tow_sparse_plus(tow_at((x), TOW_HERE))
#define tow_sparse_sigmoid(x) tow_sparse_sigmoid(tow_at((x), TOW_HERE))
#define tow_leaky_relu_with(x, ...) tow_leaky_relu_with(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_elu_with(x, ...) tow_elu_with(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_celu_with(x, ...) tow_celu_with(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_squareplus_with(x, ...) tow_squareplus_with(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_glu(x, ...) tow_glu(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_standardize(x, ...) tow_standardize(tow_at((x), TOW_HERE), __VA_ARGS__)
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
