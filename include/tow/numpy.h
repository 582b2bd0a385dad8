/* The vocabulary of jax.numpy and jax.nn that model code uses, as functions over the operations of ops.h: each records
 * what the function of that name records in JAX, and adds no primitives. Axes may be negative. */
#ifndef TOW_NUMPY_H
#define TOW_NUMPY_H

#include "tow/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- einsum ------------------------------------------------------------------------------------------------------ */

/* Sums of products by NumPy's notation: tow_einsum("bthd,bshd->bhts", 2, (tow_value[]){q, k}). Labels are letters;
 * those that the result lacks are summed. Without "->" the result has the labels that occur once, in the order of the
 * letters (capitals first). A label twice in an operand is its diagonal. "..." are further axes, which broadcast. More
 * than two operands are multiplied pair by pair, in the order with the fewest multiplications (up to 6; else always the
 * cheapest pair next). n: number of operands, of one type of numbers. */
TOW_API tow_value tow_einsum(const char *spec, size_t n, const tow_value *operands);

/* ---- a scalar on either side: x op y, and y op x; a constant of x's dtype ---------------------------------------- */
#define TOW_SCALAR_LIST(X)                                                                                             \
    X(sub)                                                                                                             \
    X(div)                                                                                                             \
    X(rem)                                                                                                             \
    X(pow)                                                                                                             \
    X(max)                                                                                                             \
    X(min)                                                                                                             \
    X(eq)                                                                                                              \
    X(ne)                                                                                                              \
    X(lt)                                                                                                              \
    X(le)                                                                                                              \
    X(gt)                                                                                                              \
    X(ge)
#define X(name) TOW_API tow_value tow_##name##_scalar(tow_value x, double y);
TOW_SCALAR_LIST(X)
#undef X
TOW_API tow_value tow_rsub_scalar(tow_value x, double y); /* y - x */
TOW_API tow_value tow_rdiv_scalar(tow_value x, double y); /* y / x */
TOW_API tow_value tow_rpow_scalar(tow_value x, double y); /* y^x */

/* ---- elementwise ------------------------------------------------------------------------------------------------- */
/* min(max(x, low), high), with half a gradient at the bounds, as in jnp.clip (tow_clamp has none). NULL value: no
 * bound. */
TOW_API tow_value tow_clip(tow_value x, tow_value low, tow_value high);
/* Quotient rounded down, and the remainder that goes with it, which has y's sign: Python's // and %. Integers divided
 * by zero as in JAX: x // 0 is -1, or -2 for positive x; x % 0 is 0. */
TOW_API tow_value tow_floor_divide(tow_value x, tow_value y);
TOW_API tow_value tow_mod(tow_value x, tow_value y);
/* log(exp(x) + exp(y)) without overflow. */
TOW_API tow_value tow_logaddexp(tow_value x, tow_value y);
TOW_API tow_value tow_isnan(tow_value x); /* bool */
TOW_API tow_value tow_isinf(tow_value x); /* bool */
TOW_API tow_value tow_reciprocal(tow_value x);

/* ---- reductions; n_axes 0: all axes ------------------------------------------------------------------------------ */
/* With the reduced axes left in place with size 1. */
#define X(name) TOW_API tow_value tow_reduce_##name##_keepdims(tow_value x, int n_axes, const int *axes);
TOW_REDUCTION_LIST(X)
#undef X
TOW_API tow_value tow_mean_keepdims(tow_value x, int n_axes, const int *axes);
/* Mean square distance from the mean, over n - correction elements, and its root. */
TOW_API tow_value tow_var(tow_value x, int n_axes, const int *axes, double correction, bool keepdims);
TOW_API tow_value tow_std(tow_value x, int n_axes, const int *axes, double correction, bool keepdims);
/* Root of the sum of squares. */
TOW_API tow_value tow_norm(tow_value x, int n_axes, const int *axes, bool keepdims);

/* ---- shapes ------------------------------------------------------------------------------------------------------ */
/* n > 0 values of one type along a new axis of the result. */
TOW_API tow_value tow_stack(size_t n, const tow_value *x, int axis);
/* x cut into n parts of equal size along the axis: parts[n]. Returns parts[0], null on errors. */
TOW_API tow_value tow_split(tow_value x, size_t n, int axis, tow_value *parts);
/* x cut before the positions at[0] <= at[1] <= ...: parts[n + 1]. */
TOW_API tow_value tow_split_at(tow_value x, size_t n, const int64_t *at, int axis, tow_value *parts);
/* x repeated as a whole reps[i] times along its axes; axes that reps or x lack count as 1, from the left. */
TOW_API tow_value tow_tile(tow_value x, int n, const int64_t *reps);
/* Each element along the axis repeated so many times. */
TOW_API tow_value tow_repeat(tow_value x, int64_t repeats, int axis);
/* Elements move by `shift` places towards the end of the axis; those that leave it come in at the other end. */
TOW_API tow_value tow_roll(tow_value x, int64_t shift, int axis);
TOW_API tow_value tow_swapaxes(tow_value x, int axis1, int axis2);
TOW_API tow_value tow_moveaxis(tow_value x, int from, int to);
TOW_API tow_value tow_ravel(tow_value x); /* one axis */

/* ---- triangles and constants ------------------------------------------------------------------------------------- */
/* x, in the last two axes with zeros above (tril) or below (triu) the diagonal k, which is above the main one if k >
 * 0. */
TOW_API tow_value tow_tril(tow_value x, int64_t k);
TOW_API tow_value tow_triu(tow_value x, int64_t k);
/* 1 where an index (an integer) equals the place along the new axis of n places, else 0. axis: of the result. */
TOW_API tow_value tow_one_hot(tow_value indices, int64_t n, int axis, tow_dtype dtype);
/* [rows, columns], 1 on the diagonal k. */
TOW_API tow_value tow_eye(tow_trace *trace, tow_dtype dtype, int64_t rows, int64_t columns, int64_t k);
/* start, start + step, ... : n numbers. */
TOW_API tow_value tow_arange(tow_trace *trace, tow_dtype dtype, double start, double step, int64_t n);
/* n numbers from start to stop, both included (a float dtype). */
TOW_API tow_value tow_linspace(tow_trace *trace, tow_dtype dtype, double start, double stop, int64_t n);

/* ---- indices: negative ones count from the end, those outside give NaN (the least i32, the largest u32, true) ---- */
/* The parts of x at indices integers [I...] along the axis, which becomes the axes I... */
TOW_API tow_value tow_take(tow_value x, tow_value indices, int axis);
/* The elements of x at indices of x's rank; other axes go along, and broadcast where one has size 1. */
TOW_API tow_value tow_take_along_axis(tow_value x, tow_value indices, int axis);

/* ==== activations ================================================================================================= */

/* The activations of jax.nn that are no primitives, as functions over the operations of ops.h. Those of one value can
 * be the .activation of a layer, as tow_relu, tow_silu, tow_tanh and tow_logistic (sigmoid) of ops.h can. All take
 * floats. Derivatives are those of JAX, also where a function has a corner. */

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
#define tow_sub_scalar(x, ...) tow_sub_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_div_scalar(x, ...) tow_div_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_rem_scalar(x, ...) tow_rem_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_pow_scalar(x, ...) tow_pow_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_max_scalar(x, ...) tow_max_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_min_scalar(x, ...) tow_min_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_eq_scalar(x, ...) tow_eq_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_ne_scalar(x, ...) tow_ne_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_lt_scalar(x, ...) tow_lt_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_le_scalar(x, ...) tow_le_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_gt_scalar(x, ...) tow_gt_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_ge_scalar(x, ...) tow_ge_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_rsub_scalar(x, ...) tow_rsub_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_rdiv_scalar(x, ...) tow_rdiv_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_rpow_scalar(x, ...) tow_rpow_scalar(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_clip(x, ...) tow_clip(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_floor_divide(x, ...) tow_floor_divide(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_mod(x, ...) tow_mod(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_logaddexp(x, ...) tow_logaddexp(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_isnan(x) tow_isnan(tow_at((x), TOW_HERE))
#define tow_isinf(x) tow_isinf(tow_at((x), TOW_HERE))
#define tow_reciprocal(x) tow_reciprocal(tow_at((x), TOW_HERE))
#define tow_reduce_sum_keepdims(x, ...) tow_reduce_sum_keepdims(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_reduce_max_keepdims(x, ...) tow_reduce_max_keepdims(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_reduce_min_keepdims(x, ...) tow_reduce_min_keepdims(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_reduce_prod_keepdims(x, ...) tow_reduce_prod_keepdims(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_reduce_and_keepdims(x, ...) tow_reduce_and_keepdims(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_reduce_or_keepdims(x, ...) tow_reduce_or_keepdims(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_mean_keepdims(x, ...) tow_mean_keepdims(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_var(x, ...) tow_var(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_std(x, ...) tow_std(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_norm(x, ...) tow_norm(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_split(x, ...) tow_split(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_split_at(x, ...) tow_split_at(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_tile(x, ...) tow_tile(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_repeat(x, ...) tow_repeat(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_roll(x, ...) tow_roll(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_swapaxes(x, ...) tow_swapaxes(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_moveaxis(x, ...) tow_moveaxis(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_ravel(x) tow_ravel(tow_at((x), TOW_HERE))
#define tow_tril(x, ...) tow_tril(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_triu(x, ...) tow_triu(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_one_hot(x, ...) tow_one_hot(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_take(x, ...) tow_take(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_take_along_axis(x, ...) tow_take_along_axis(tow_at((x), TOW_HERE), __VA_ARGS__)
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
