/* Operations on traced values. Arithmetic helpers of two operands broadcast by NumPy's rule and record the broadcasts;
 * all other operations take exactly the shapes that they state. A failing operation returns the null value.
 *
 * Axes, ranks and counts of axes are int; sizes and positions along an axis are int64_t.
 *
 * Every operation is a function and a macro of the same name that adds the source line of the call; take the address of
 * the function as usual (tow_relu as an activation). */
#ifndef TOW_OPS_H
#define TOW_OPS_H

#include "tow/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- constants: no operand, so they take the trace --------------------------------------------------------------- */
TOW_API tow_value tow_constant(tow_trace *trace, tow_array *value); /* retained; its data must stay as they are */
TOW_API tow_value tow_constant_data(tow_trace *trace, tow_type type, const void *data); /* copied */
/* []. Here and in all that follow, an integer constant that is not a whole number in range is an error; u32 takes
 * numbers from -2^31 on, modulo 2^32. */
TOW_API tow_value tow_scalar(tow_trace *trace, tow_dtype dtype, double value);
TOW_API tow_value tow_full(tow_trace *trace, tow_type type, double value); /* a scalar, broadcast */
TOW_API tow_value tow_iota(tow_trace *trace, tow_type type, int axis);     /* 0, 1, 2, ... along axis */
/* Constants of x's type. */
TOW_API tow_value tow_full_like(tow_value x, double value);
TOW_API tow_value tow_zeros_like(tow_value x);
/* i32 of x's shape, counting along axis (negative: from the end). */
TOW_API tow_value tow_iota_like(tow_value x, int axis);

/* ---- elementwise, one operand: float unless said otherwise ------------------------------------------------------- */
#define TOW_UNARY_LIST(X)                                                                                              \
    X(neg)                                                                                                             \
    X(abs)                                                                                                             \
    X(sign)                                                                                                            \
    X(floor)                                                                                                           \
    X(ceil)                                                                                                            \
    X(round) /* half to even */                                                                                        \
    X(exp)                                                                                                             \
    X(expm1)                                                                                                           \
    X(log)                                                                                                             \
    X(log1p)                                                                                                           \
    X(sqrt)                                                                                                            \
    X(rsqrt)                                                                                                           \
    X(sin)                                                                                                             \
    X(cos)                                                                                                             \
    X(tanh)                                                                                                            \
    X(logistic)                                                                                                        \
    X(erf)                                                                                                             \
    X(erf_inv)                                                                                                         \
    X(erfc) /* 1 - erf(x) */                                                                                           \
    X(cbrt)                                                                                                            \
    X(exp2) /* 2^x */                                                                                                  \
    X(tan)                                                                                                             \
    X(asin)                                                                                                            \
    X(acos)                                                                                                            \
    X(atan)                                                                                                            \
    X(sinh)                                                                                                            \
    X(cosh)                                                                                                            \
    X(asinh)                                                                                                           \
    X(acosh)                                                                                                           \
    X(atanh)                                                                                                           \
    X(lgamma)     /* log |gamma(x)| */                                                                                 \
    X(digamma)    /* its derivative; NaN at 0, -1, -2, ... */                                                          \
    X(bessel_i0e) /* e^-|x| I0(x), a modified Bessel function; i1e: I1 */                                              \
    X(bessel_i1e)                                                                                                      \
    X(is_finite)        /* bool: neither infinite nor NaN */                                                           \
    X(population_count) /* integers: bits that are set */                                                              \
    X(clz)              /* integers: zeros before the highest bit that is set */                                       \
    X(not )             /* bool, integers: bitwise */                                                                  \
    X(stop_gradient)                                                                                                   \
    X(relu)                                                                                                            \
    X(silu)                                                                                                            \
    X(square)
#define X(name) TOW_API tow_value tow_##name(tow_value x);
TOW_UNARY_LIST(X)
#undef X
/* x^exponent: of floats, whose exponent may be negative, or of integers, which wrap. */
TOW_API tow_value tow_integer_pow(tow_value x, int64_t exponent);
/* Float to integer truncates, anything to bool is x != 0. */
TOW_API tow_value tow_convert(tow_value x, tow_dtype dtype);
TOW_API tow_value tow_bitcast(tow_value x, tow_dtype dtype); /* between 4-byte types */
/* The derivative of digamma of this order, in [0, 100]; 0: digamma itself. */
TOW_API tow_value tow_polygamma(tow_value x, int order);
/* x rounded to nearest even as a float of so many bits (5 and 10: f16; 8 and 7: bf16), in x's type. Beyond its largest
 * number infinite, below its smallest normal number 0. Tangents and cotangents are rounded likewise. */
TOW_API tow_value tow_reduce_precision(tow_value x, int exponent_bits, int mantissa_bits);
/* 0.5x(1+tanh(sqrt(2/pi)(x+0.044715x^3))): jax.nn.gelu; and 0.5x(1+erf(x/sqrt 2)), which is approximate=False. */
TOW_API tow_value tow_gelu(tow_value x);
TOW_API tow_value tow_gelu_erf(tow_value x);

/* ---- elementwise, two operands: equal dtypes, NumPy broadcasting ------------------------------------------------- */
#define TOW_BINARY_LIST(X)                                                                                             \
    X(add)                                                                                                             \
    X(sub)                                                                                                             \
    X(mul)                                                                                                             \
    X(div)                                                                                                             \
    X(rem) /* sign of x, as C */                                                                                       \
    X(pow)                                                                                                             \
    X(max)                                                                                                             \
    X(min)                                                                                                             \
    X(eq)                                                                                                              \
    X(ne)                                                                                                              \
    X(lt)                                                                                                              \
    X(le)                                                                                                              \
    X(gt)                                                                                                              \
    X(ge)                                                                                                              \
    X(and)                                                                                                             \
    X(or)                                                                                                              \
    X(xor)                                                                                                             \
    X(atan2)             /* the angle of the point (y, x): operands y, x */                                            \
    X(nextafter)         /* the number next to x towards y; no derivative */                                           \
    X(igamma)            /* P(a, x), the regularized lower incomplete gamma function: operands a, x */                 \
    X(igammac)           /* 1 - P(a, x), the upper one, with all its digits */                                         \
    X(igamma_grad_a)     /* dP(a, x)/da; no derivative with respect to a */                                            \
    X(random_gamma_grad) /* dx/da of a sample x of the gamma distribution of shape a; no derivative */                 \
    X(zeta)              /* the Hurwitz zeta function sum_k (q + k)^-s, s > 1: operands s, q; no derivative by s */    \
    X(shift_left)        /* shifts by less than 0 or more than 31 bits leave 0, arithmetic ones the sign */            \
    X(shift_right)       /* logical */                                                                                 \
    X(shift_right_arithmetic)
#define X(name) TOW_API tow_value tow_##name(tow_value x, tow_value y);
TOW_BINARY_LIST(X)
#undef X
/* x op constant of x's dtype */
TOW_API tow_value tow_add_scalar(tow_value x, double y);
TOW_API tow_value tow_mul_scalar(tow_value x, double y);
/* x y + z, rounded once. All three broadcast. */
TOW_API tow_value tow_fma(tow_value x, tow_value y, tow_value z);
/* I_x(a, b), the regularized incomplete beta function, a, b >= 0, 0 <= x <= 1. All three broadcast. It has a derivative
 * with respect to x alone, as in lax: TOW_UNSUPPORTED where a or b is differentiated. */
TOW_API tow_value tow_betainc(tow_value a, tow_value b, tow_value x);
/* x where predicate (bool), else y. All three broadcast. */
TOW_API tow_value tow_where(tow_value predicate, tow_value x, tow_value y);
/* cases[which] element by element, of n > 0 cases of one type. which: bool (for at most 2 cases), an integer, of their
 * shape or a scalar; below 0 it counts as 0, from n on as n - 1. */
TOW_API tow_value tow_select_n(tow_value which, size_t n, const tow_value *cases);
/* min(max(x, low), high); low and high: x's shape or scalars. The gradient passes strictly inside only, as that of
 * jax.lax.clamp; tow_clip (numpy.h) is jax.numpy.clip, which has half a gradient at the bounds. */
TOW_API tow_value tow_clamp(tow_value low, tow_value x, tow_value high);

/* ---- products and reductions; axes may be negative --------------------------------------------------------------- */
typedef struct tow_dot_dims {
    int n_contract, n_batch;
    int lhs_contract[TOW_MAX_RANK], rhs_contract[TOW_MAX_RANK], lhs_batch[TOW_MAX_RANK], rhs_batch[TOW_MAX_RANK];
} tow_dot_dims;
/* result: batch dimensions, free dimensions of x, free dimensions of y, each in order. Numbers of one type: integers
 * wrap; products of bf16 and f16 are summed in f32 and rounded once. */
TOW_API tow_value tow_dot_general(tow_value x, tow_value y, tow_dot_dims dims);
/* The same, summed in another type, which is that of the result (JAX's preferred_element_type): f32 of bf16 products,
 * i32 of i8 products. A float, or an integer of the same sign; no narrower than the operands. Cotangents of the
 * operands are summed in it, too, and rounded to the operands' type. Error: another type. */
TOW_API tow_value tow_dot_general_with(tow_value x, tow_value y, tow_dot_dims dims, tow_dtype preferred);
/* Last axis of x with the last but one (or only) axis of y: numpy.dot. x: [..., k], y: [..., k, n] or [k]. */
TOW_API tow_value tow_dot(tow_value x, tow_value y);
/* numpy.matmul: leading axes are batch dimensions and broadcast. */
TOW_API tow_value tow_matmul(tow_value x, tow_value y);
/* The product of groups of rows, each with a matrix of its own, as experts have them (jax.lax.ragged_dot). x: [m, k],
 * y: [g, k, n], sizes: [g], integers; result [m, n]: the first sizes[0] rows of x times y[0], the next sizes[1] times
 * y[1], and so on. Rows behind the last group are 0; what does not fit into m rows is left out, and a size below 0
 * counts as 0. */
TOW_API tow_value tow_ragged_dot(tow_value x, tow_value y, tow_value sizes);
/* Products of groups of rows with each other, which the derivative with respect to y is made of. x: [m, k], y: [m, n],
 * sizes: [g]; result [g, k, n]: transpose(x of group i) times y of group i, 0 for an empty group. */
TOW_API tow_value tow_ragged_dot_contract(tow_value x, tow_value y, tow_value sizes);

/* The treatment of windows at the ends of an axis. */
typedef enum tow_padding {
    TOW_PAD_VALID,      /* not at all: windows lie inside */
    TOW_PAD_SAME,       /* so that there are ceil(size / stride) results; an odd one goes behind the axis */
    TOW_PAD_SAME_LOWER, /* the same, but an odd one goes before it */
    TOW_PAD_EXPLICIT    /* low elements before and high behind each axis; negative ones cut */
} tow_padding;
/* Lists have an entry for each spatial axis, in the order of the kernel's axes; all zero means 1 (padding: 0). */
typedef struct tow_conv_options {
    size_t size TOW__SIZE(tow_conv_options); /* set by TOW_CONV_OPTIONS */
    /* The letters of the axes of the left operand, the kernel and the result: N batch, C features, O and I the kernel's
     * features of the result and of the left operand, other letters or digits spatial axes. NULL: channels last,
     * "NHWC,HWIO->NHWC" and likewise for other numbers of spatial axes. JAX's default is "NCHW,OIHW->NCHW". */
    const char *dimensions;
    tow_padding padding;
    int64_t low[TOW_MAX_RANK], high[TOW_MAX_RANK]; /* TOW_PAD_EXPLICIT */
    int64_t strides[TOW_MAX_RANK];
    int64_t lhs_dilation[TOW_MAX_RANK], rhs_dilation[TOW_MAX_RANK]; /* elements lie so far apart, with zeros between */
    int64_t feature_groups; /* 0: 1. Features in and out are so many groups that do not meet; C = groups * I */
    int64_t batch_groups;   /* 0: 1. Group g of the features meets part g of the batch, of which the result has one */
} tow_conv_options;
#define TOW_CONV_OPTIONS(...) TOW__OPTIONS(tow_conv_options, __VA_ARGS__)
/* jax.lax.conv_general_dilated: a correlation (the kernel is not flipped). With NHWC and HWIO
 *   lhs: [N, H, W, groups I], rhs: [KH, KW, I, O] -> [N, H', W', O],
 *   H' = floor((low + high + dilated H - dilated KH) / stride) + 1, at least 0; dilated n = (n - 1) dilation + 1.
 * Any number of spatial axes up to 6; numbers of one type. options may be NULL. Policies take it for a dot with batch
 * dimensions: dots_saveable keeps it, dots_with_no_batch_dims_saveable does not. Errors: features that do not divide
 * into groups, strides and dilations below 1, sizes that overflow. */
TOW_API tow_value tow_conv_general_dilated(tow_value lhs, tow_value rhs, const tow_conv_options *options);
/* The same, summed in another type, which is that of the result, as tow_dot_general_with does. */
TOW_API tow_value tow_conv_general_dilated_with(tow_value lhs, tow_value rhs, const tow_conv_options *options,
                                                tow_dtype preferred);

#define TOW_REDUCTION_LIST(X)                                                                                          \
    X(sum)                                                                                                             \
    X(max)                                                                                                             \
    X(min)                                                                                                             \
    X(prod)                                                                                                            \
    X(and)                                                                                                             \
    X(or)                                                                                                              \
    X(xor)
/* n_axes 0: all axes. The reduced axes vanish. Sums of equal shape are taken in one fixed order. and, or, xor: of
 * bools and, bit by bit, of integers. Of an empty axis the result is what changes nothing: 0, 1 (prod), -inf or the
 * least number of the type (max), inf or the greatest (min), all bits (and), none (or, xor). */
#define X(name) TOW_API tow_value tow_reduce_##name(tow_value x, int n_axes, const int *axes);
TOW_REDUCTION_LIST(X)
#undef X
TOW_API tow_value tow_mean(tow_value x, int n_axes, const int *axes); /* of floats */
/* i32, the axis vanishes; the first of equal maxima. */
TOW_API tow_value tow_argmax(tow_value x, int axis);
/* Sums, products, extremes, and logarithms of sums of exponentials (floats) of all elements up to each one along the
 * axis; reverse: from each one on. Floats are combined in blocks of 16, whose totals are scanned in the same way, so
 * that the order depends on the length of the axis alone. If equal elements compete, derivatives are those of jax.lax,
 * which each pair of a binary tree shares equally. */
TOW_API tow_value tow_cumsum(tow_value x, int axis, bool reverse);
TOW_API tow_value tow_cumprod(tow_value x, int axis, bool reverse);
TOW_API tow_value tow_cummax(tow_value x, int axis, bool reverse);
TOW_API tow_value tow_cummin(tow_value x, int axis, bool reverse);
TOW_API tow_value tow_cumlogsumexp(tow_value x, int axis, bool reverse);

/* Windows have an entry for each axis of x; lists that are all zero mean 1 (padding: 0). */
typedef struct tow_window_options {
    size_t size TOW__SIZE(tow_window_options); /* set by TOW_WINDOW_OPTIONS */
    int64_t window[TOW_MAX_RANK];
    int64_t strides[TOW_MAX_RANK];
    tow_padding padding;
    int64_t low[TOW_MAX_RANK], high[TOW_MAX_RANK]; /* TOW_PAD_EXPLICIT */
    int64_t base_dilation[TOW_MAX_RANK], window_dilation[TOW_MAX_RANK];
} tow_window_options;
#define TOW_WINDOW_OPTIONS(...) TOW__OPTIONS(tow_window_options, __VA_ARGS__)
/* jax.lax.reduce_window with sum, max and min: of the elements that each window meets, which padding and the holes of a
 * dilated x are not; of none it is 0, or the least or greatest number of the type. Axis sizes are those of
 * tow_conv_general_dilated. The gradient of an extremum goes to the first element in row-major order that has it. */
TOW_API tow_value tow_reduce_window_sum(tow_value x, const tow_window_options *options);
TOW_API tow_value tow_reduce_window_max(tow_value x, const tow_window_options *options);
TOW_API tow_value tow_reduce_window_min(tow_value x, const tow_window_options *options);
typedef struct tow_pool_options {
    size_t size TOW__SIZE(tow_pool_options); /* set by TOW_POOL_OPTIONS */
    int spatial;                             /* how many spatial axes, those before the last axis of x */
    int64_t window[TOW_MAX_RANK];            /* [spatial] */
    int64_t strides[TOW_MAX_RANK];           /* [spatial]; all zero: 1, as in Flax */
    tow_padding padding;
    int64_t low[TOW_MAX_RANK], high[TOW_MAX_RANK]; /* [spatial]; TOW_PAD_EXPLICIT */
    bool exclude_padding; /* averages are over elements of x alone; Flax's count_include_pad=False */
} tow_pool_options;
#define TOW_POOL_OPTIONS(...) TOW__OPTIONS(tow_pool_options, __VA_ARGS__)
/* flax.linen.max_pool, min_pool, avg_pool. x: [batch axes..., spatial..., features]; averages are of floats. */
TOW_API tow_value tow_max_pool(tow_value x, const tow_pool_options *options);
TOW_API tow_value tow_min_pool(tow_value x, const tow_pool_options *options);
TOW_API tow_value tow_avg_pool(tow_value x, const tow_pool_options *options);

/* ---- moving elements: arrays of start, limit, low, ... have an entry for each axis of x; single axes may be negative
 * --- */
/* Axis i of x becomes axis axes[i] of the result (increasing); other axes repeat. Axes of size 1 stretch. */
TOW_API tow_value tow_broadcast_in_dim(tow_value x, int rank, const int64_t *shape, const int *axes);
TOW_API tow_value tow_broadcast_to(tow_value x, int rank, const int64_t *shape); /* NumPy's rule */
TOW_API tow_value tow_reshape(tow_value x, int rank, const int64_t *shape);      /* one dimension may be -1 */
TOW_API tow_value tow_transpose(tow_value x, int rank, const int *permutation);  /* rank 0: reverse all axes */
TOW_API tow_value tow_expand_dims(tow_value x, int axis);                        /* a new axis of size 1 */
TOW_API tow_value tow_squeeze(tow_value x, int axis);                            /* an axis of size 1 vanishes */
/* Elements start, start + stride, ... below limit of each axis. stride NULL: 1. */
TOW_API tow_value tow_slice(tow_value x, const int64_t *start, const int64_t *limit, const int64_t *stride);
/* Elements [start, limit) of one axis, all of the others. */
TOW_API tow_value tow_slice_axis(tow_value x, int axis, int64_t start, int64_t limit);
/* `sizes` elements from `start` on: integer scalars, clamped so that the part lies in x. */
TOW_API tow_value tow_dynamic_slice(tow_value x, const tow_value *start, const int64_t *sizes);
/* x with the part of update's shape from `start` on, clamped likewise, replaced by update. */
TOW_API tow_value tow_dynamic_update_slice(tow_value x, tow_value update, const tow_value *start);
/* value [] before (low) and behind (high) each axis, and between neighbors (interior NULL: 0). low, high < 0 cut. */
TOW_API tow_value tow_pad(tow_value x, tow_value value, const int64_t *low, const int64_t *high,
                          const int64_t *interior);
/* n > 0 values that differ in the size of this axis only. */
TOW_API tow_value tow_concatenate(size_t n, const tow_value *x, int axis);
/* Reverses the order along these axes; n_axes 0: along all. */
TOW_API tow_value tow_rev(tow_value x, int n_axes, const int *axes);
/* Rows of table [V, ...] at indices (integers) [I...]: [I..., ...]. Indices -V to -1 are the rows 0 to V-1, counted
 * from the end; outside of [-V, V) a row is NaN (0 in tables of integers and booleans) and gets no gradient. */
TOW_API tow_value tow_gather(tow_value table, tow_value indices);
/* zeros [rows, ...] plus updates [I..., ...] at the rows indices [I...], in the order of the indices. Indices
 * -rows to -1 count from the end, updates at others outside of [0, rows) are dropped. */
TOW_API tow_value tow_scatter_add(tow_value indices, tow_value updates, int64_t rows);
/* x [V, ...] plus updates [I..., ...] at the rows indices [I...], likewise. */
TOW_API tow_value tow_index_add(tow_value x, tow_value indices, tow_value updates);

/* ---- random numbers: pure functions of a key u32[2], equal to JAX's threefry 2x32 bit for bit -------------------- */
TOW_API tow_value tow_random_key(tow_trace *trace, uint64_t seed);                /* jax.random.PRNGKey */
TOW_API tow_value tow_random_fold_in(tow_value key, tow_value data);              /* data: u32[] */
TOW_API tow_value tow_random_split(tow_value key, int64_t n);                     /* u32[n,2] */
TOW_API tow_value tow_random_bits(tow_value key, int rank, const int64_t *shape); /* u32 */
TOW_API tow_value tow_random_uniform(tow_value key, int rank, const int64_t *shape, double low, double high); /* f32 */
TOW_API tow_value tow_random_normal(tow_value key, int rank, const int64_t *shape);                           /* f32 */
TOW_API tow_value tow_random_bernoulli(tow_value key, double p, int rank, const int64_t *shape);              /* bool */

/* ---- composites -------------------------------------------------------------------------------------------------- */
/* exp(x) / sum(exp(x)) along the axis, its logarithm, and log(sum(exp(x))), none of which overflows. */
TOW_API tow_value tow_softmax(tow_value x, int axis);
TOW_API tow_value tow_log_softmax(tow_value x, int axis);
TOW_API tow_value tow_logsumexp(tow_value x, int axis); /* the axis vanishes */
/* Over the last axis. x: [..., D]; scale, bias: [D]. layer_norm: (x-mean)*rsqrt(var+epsilon)*scale+bias, two-pass
 * variance. */
TOW_API tow_value tow_normalize_layer(tow_value x, tow_value scale, tow_value bias, double epsilon);
/* x*rsqrt(mean(x^2)+epsilon)*scale. */
TOW_API tow_value tow_normalize_rms(tow_value x, tow_value scale, double epsilon);
typedef struct tow_attention_options {
    size_t size TOW__SIZE(tow_attention_options); /* set by TOW_ATTENTION_OPTIONS */
    bool causal;
    double scale;   /* 0: 1/sqrt(D) */
    tow_value mask; /* bool, rank 4, broadcastable to [B, H, T, S]; null value: none */
    /* of the type of q, likewise; added to the logits. Its gradient needs all logits: then they are in memory */
    tow_value bias;
    tow_value offset; /* i32 [] or [B]: the position of query 0 among the keys; null value: S - T */
    int64_t window;   /* keys at this distance or farther are hidden; 0: none */
    double logit_cap; /* logits become cap tanh(logit / cap), before the bias; 0: they stay */
} tow_attention_options;
#define TOW_ATTENTION_OPTIONS(...) TOW__OPTIONS(tow_attention_options, __VA_ARGS__)
/* q: [B, T, H, D], k: [B, S, G, D], v: [B, S, G, E], G divides H -> [B, T, H, E]. Keeps output and log-sum-exp only,
 * and computes what causality and windows leave visible; no array [T, S] is made. Key j is visible to query i, whose
 * position is p = i + S - T or i + offset, if j <= p (causal), |p - j| < window, and the mask says so; a query that
 * sees nothing sees all. Beside q of f32, k and v may be stored in bf16 or f16, or in q8_0 or q4_0 with blocks along
 * the last axis: they are decoded while they are read, which gives the bits of their numbers in f32. options may be
 * NULL. */
TOW_API tow_value tow_attention(tow_value q, tow_value k, tow_value v, const tow_attention_options *options);
/* logits: [..., V], labels: i32 [...] -> [...]. Labels outside [0, V) give NaN. */
TOW_API tow_value tow_softmax_cross_entropy(tow_value logits, tow_value labels);
/* The same for logits x w. With more than 1024 classes those of at most 256 rows, or 2^22 numbers, exist at a time, and
 * if they are more than 2^22 never all of them.
 * x: [..., C]; w: [C, V], or [V, C] if `rows` (an embedding table); labels: i32 [...] -> [...]. */
TOW_API tow_value tow_linear_cross_entropy(tow_value x, tow_value w, bool rows, tow_value labels);
/* Rows x f32[..., n] in 8 bits: codes u8[..., n], and sizes f32[...], the largest magnitude of each row. Codes are the
 * nearest numbers to x / size of a map with an exponent of ten and up to 6 bits of fraction, 7 if nonnegative, where x
 * has no negative numbers; then nothing but 0 becomes 0. (Dettmers and others, 8-bit optimizers via block-wise
 * quantization, 2021) A row with NaN or infinity is NaN when it is read. */
TOW_API void tow_quantize_dynamic(tow_value x, bool nonnegative, tow_value *codes, tow_value *sizes);
/* f32[..., n]: what the codes stand for, times the size of the row. */
TOW_API tow_value tow_dequantize_dynamic(tow_value codes, tow_value sizes, bool nonnegative);
/* x [..., 32 n], of floats, in blocks of few bits, dtype [..., n], TOW_Q8_0 or TOW_Q4_0, or x [..., 256 n] in TOW_Q4_K
 * or TOW_Q6_K, with the bytes that tow_array_convert gives; and the numbers in them as f32, which of Q4_K alone are
 * rounded, and then rounded to dtype. */
TOW_API tow_value tow_quantize(tow_value x, tow_dtype dtype);
TOW_API tow_value tow_dequantize(tow_value blocks, tow_dtype dtype);
/* x [..., K] times a weight [N, blocks of K numbers], whose rows are outputs as in GGUF files: [..., N] of x's type, as
 * jax.numpy.dot(x, weight.T) has it. x is rounded, too, in blocks of 32 along K: to integers of 8 bits, times a scale
 * of f32, the largest magnitude / 127. Sums within 32 numbers are of integers and so exact; those over K are fused
 * multiply-adds in their order. So results have the same bits on all machines, for any number of threads and of rows
 * beside each other. A row with a NaN or an infinity is NaN; blocks whose magnitudes are all below 3.8e-37 count as 0.
 * A product with the numbers themselves is tow_dot_general with tow_dequantize.
 * The gradient with respect to x is that of this product with the numbers; there is none for the weight. */
TOW_API tow_value tow_quantized_dot(tow_value x, tow_value weight);
/* x / (1-rate) where kept, else 0. rate in [0, 1]; axes in broadcast_axes share one draw. */
TOW_API tow_value tow_dropout_with_key(tow_value x, tow_value key, double rate, int n_broadcast_axes,
                                       const int *broadcast_axes);

/* ==== sorting, searching, indexed access ========================================================================== */

/* Sorting, searching, and indexed access in general form have the names and the semantics of jax.lax. Axes may be
 * negative. The simple forms, rows of a table, are tow_gather, tow_scatter_add and tow_index_add above; numpy.h has
 * tow_take and tow_take_along_axis. */

/* ---- sorting and searching --------------------------------------------------------------------------------------- */

/* All sorts are stable and ascending: -inf ... -0 and 0, which are equal, ... inf, then NaNs, which are equal to each
 * other. Tangents follow the order of the elements; the i32 indices of that order are what reverse mode keeps. */

/* x sorted along the axis. descending: the ascending order, reversed. */
TOW_API tow_value tow_sort(tow_value x, int axis, bool descending);
/* n operands of one shape (and any types), sorted together: by the first of them, where that is equal by the second,
 * and so on, by the first num_keys (1 to n). results: n values, for instance the operands' own array. Returns
 * results[0], null on errors. */
TOW_API tow_value tow_sort_together(size_t n, const tow_value *x, size_t num_keys, int axis, tow_value *results);
/* i32: the indices that sort x. Equal elements keep their order, also when descending (NaNs then come first). */
TOW_API tow_value tow_argsort(tow_value x, int axis, bool descending);
/* The k largest elements along the axis, largest first, and their indices (i32); either result may be NULL. Of equal
 * elements the first comes first. Here 0 is larger than -0, and NaN than inf (a NaN with sign is below -inf). Returns
 * the values. */
TOW_API tow_value tow_top_k(tow_value x, int64_t k, int axis, tow_value *values, tow_value *indices);
/* i32, the axis vanishes; the first of equal minima. The first NaN, if there is one. */
TOW_API tow_value tow_argmin(tow_value x, int axis);
/* i32 of v's shape: the place in sorted [n] before which each element of v belongs; among equal elements before the
 * first or, if `right`, behind the last. */
TOW_API tow_value tow_searchsorted(tow_value sorted, tow_value v, bool right);

/* ---- gather and scatter in general form -------------------------------------------------------------------------- */

/* The treatment of indices that name a place outside of the array. Negative indices are outside: they do not count from
 * the end. */
typedef enum tow_index_mode {
    TOW_INDEX_IN_BOUNDS, /* the caller promises that none does; else gather clips and scatter drops */
    TOW_INDEX_CLIP,      /* the window is moved so that it lies inside */
    TOW_INDEX_FILL       /* gather: the whole window has the fill value; scatter: it is dropped */
} tow_index_mode;

/* jax.lax.GatherDimensionNumbers. The last axis of the indices holds index vectors; its other axes are the batch
 * axes. */
typedef struct tow_gather_dims {
    int n_offset, n_collapsed, n_batching, n_index;
    int offset_dims[TOW_MAX_RANK];                 /* [n_offset] axes of the result that run over the window, sorted */
    int collapsed_slice_dims[TOW_MAX_RANK];        /* [n_collapsed] axes of x of window size 1 that vanish, sorted */
    int operand_batching_dims[TOW_MAX_RANK];       /* [n_batching] axes of x that go along with, sorted, ... */
    int start_indices_batching_dims[TOW_MAX_RANK]; /* [n_batching] ... these of the indices */
    int start_index_map[TOW_MAX_RANK];             /* [n_index] axes of x that the index vectors' elements belong to */
} tow_gather_dims;

/* x, indices: integers [..., n_index]; slice_sizes: size of the window along each axis of x. fill: of TOW_INDEX_FILL,
 * NULL: NaN, the least i32, the largest u32, true. */
TOW_API tow_value tow_gather_general(tow_value x, tow_value indices, const tow_gather_dims *dims,
                                     const int64_t *slice_sizes, tow_index_mode mode, const double *fill);

/* jax.lax.ScatterDimensionNumbers, the mirror image of the above. */
typedef struct tow_scatter_dims {
    int n_window, n_inserted, n_batching, n_index;
    int update_window_dims[TOW_MAX_RANK];
    int inserted_window_dims[TOW_MAX_RANK];
    int operand_batching_dims[TOW_MAX_RANK];
    int scatter_indices_batching_dims[TOW_MAX_RANK];
    int scatter_dims_to_operand_dims[TOW_MAX_RANK];
} tow_scatter_dims;

typedef enum tow_scatter_kind {
    TOW_SCATTER_SET, /* where windows overlap, the last one in the order of the indices stays */
    TOW_SCATTER_ADD,
    TOW_SCATTER_MUL, /* of floats, differentiated with respect to the updates only if unique_indices */
    TOW_SCATTER_MIN,
    TOW_SCATTER_MAX
} tow_scatter_kind;

/* x with the windows at the indices set to the updates, or combined with them one after the other. unique_indices: the
 * caller promises that no two windows overlap. */
TOW_API tow_value tow_scatter_general(tow_scatter_kind kind, tow_value x, tow_value indices, tow_value updates,
                                      const tow_scatter_dims *dims, tow_index_mode mode, bool unique_indices);

/* ---- the macros that add the source line ------------------------------------------------------------------------- */
#ifndef TOW_NO_SOURCE_LINES
#include "tow/ops_lines.h"
#endif

#ifdef __cplusplus
}
#endif
#endif
