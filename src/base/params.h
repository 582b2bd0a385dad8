/* Parameter structs of the primitives that kernels compute: plain data, which graphs, plans and kernels read alike.
 * Those that hold graphs, policies or arrays are in src/graph/graph_params.h. The names of the fields are the names in
 * the textual form. Primitives that are in neither file have no parameters. */
#ifndef TOW_SRC_PARAMS_H
#define TOW_SRC_PARAMS_H

#include "tow/base.h"

typedef struct tow__ints {
    int32_t n;
    int64_t v[TOW_MAX_RANK];
} tow__ints;

static inline bool tow__ints_contain(const tow__ints *list, int64_t value)
{
    for (int i = 0; i < list->n; i++)
        if (list->v[i] == value) return true;
    return false;
}

/* sources */
typedef struct tow__iota_params {
    tow_dtype dtype;
    tow__ints shape;
    int64_t axis;
} tow__iota_params; /* iota */
typedef struct tow__empty_params {
    tow_dtype dtype;
    tow__ints shape;
} tow__empty_params; /* empty */

/* calls of host functions */
typedef struct tow__types {
    uint32_t n;
    const tow_type *v;
} tow__types;
typedef struct tow__call_host_params {
    const char *name; /* of the function, which the context knows */
    tow__types results;
    bool pure, whole_batch; /* what is said of the function */
} tow__call_host_params;    /* call_host */
typedef struct tow__debug_print_params {
    const char *format;    /* {} for a value */
} tow__debug_print_params; /* debug_print */
typedef struct tow__same_bits_params {
    const char *what;    /* the primitive that made the operands, */
    int64_t result;      /* and as which of its results */
} tow__same_bits_params; /* same_bits */

/* arrays with rows in a file */
typedef struct tow__spill_params {
    tow_dtype dtype;
    tow__ints shape;   /* of a row */
    int64_t file_rows; /* rows that the file has */
} tow__spill_params;   /* spill */
typedef struct tow__spill_rows_params {
    int64_t file_rows;    /* row i < file_rows is in the file */
} tow__spill_rows_params; /* spill_write, spill_read */

/* sums over processes */
typedef struct tow__group_params {
    const char *group;  /* the name of one that the context knows; "": the group of one */
    int64_t row_groups; /* of all processes, a power of two */
    int64_t first,
        of; /* reduce_scatter_start: the operand is a window of a layer of so many elements; of: 0: it is not */
} tow__group_params; /* all_reduce_start, reduce_scatter_start */

/* elementwise */
typedef struct tow__integer_pow_params {
    int64_t exponent;
} tow__integer_pow_params; /* integer_pow */
enum {
    TOW__POLYGAMMA_ORDERS = 100
};
typedef struct tow__polygamma_params {
    int64_t order;
} tow__polygamma_params; /* polygamma: that derivative of digamma */
typedef struct tow__precision_params {
    int64_t exponent_bits, mantissa_bits;
} tow__precision_params; /* reduce_precision */
typedef struct tow__dtype_params {
    tow_dtype dtype;
} tow__dtype_params; /* convert, bitcast, quantize */

/* products, reductions */
typedef struct tow__dot_params {                                /* dot_general */
    tow__ints lhs_contract, rhs_contract, lhs_batch, rhs_batch; /* result: batch, free lhs, free rhs, in order */
    int64_t preferred;     /* 1 + the dtype to sum in and of the result; 0: that of the operands */
    int64_t mapped;        /* so many of the batch axes are there because of vmap: policies do not count them */
    int64_t rows, columns; /* free elements of each side before a plan cut or joined products; 0: as they are */
    int64_t groups; /* the first contracted axes are so many equal blocks, a power of two, whose products are added as a
                       binary tree; 0: one product */
} tow__dot_params;
/* conv_general_dilated(lhs, rhs): lists have an entry for each spatial axis, in the kernel's order, or none: 1, 0 for
 * padding. See src/base/window.h. */
typedef struct tow__conv_params {
    const char *dimensions; /* "NHWC,HWIO->NHWC" */
    tow__ints strides, low, high, lhs_dilation, rhs_dilation;
    int64_t feature_groups, batch_groups;
    int64_t preferred; /* 1 + the dtype to sum in and of the result; 0: that of the operands */
    int64_t of_halves; /* 1: the user's graph states it on 16 bits, and a unit for them may run it */
} tow__conv_params;
/* reduce_window_sum, _max, _min, select_and_gather_add, select_and_scatter_add: `window` has an entry for each axis,
 * the others may be empty as above. The selecting ones look for the first maximum, or with `minimum` minimum, of a
 * window. */
typedef struct tow__window_params {
    tow__ints window, strides, low, high, base_dilation, window_dilation;
    bool minimum;
} tow__window_params;
enum {
    TOW__DYNAMIC_ZERO = 127 /* the code of 0 where there are negative numbers: so many of them are below it */
};
typedef struct tow__dynamic_params {
    bool nonnegative;  /* the map has no negative numbers: the code of 0 is 0 */
} tow__dynamic_params; /* quantize_dynamic dequantize_dynamic */
typedef struct tow__axes_params {
    tow__ints axes;
} tow__axes_params; /* reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor; rev */
typedef struct tow__axis_params {
    int64_t axis;
} tow__axis_params; /* argmax (gives i32, first on ties), concatenate, softmax, log_softmax, logsumexp */
typedef struct tow__cumsum_params {
    int64_t axis;
    bool reverse;
} tow__cumsum_params; /* cumsum cumprod cummax cummin cumlogsumexp */

/* moves */
typedef struct tow__broadcast_params {
    tow__ints shape, axes;
} tow__broadcast_params; /* broadcast_in_dim: operand axis i is result axis axes[i] */
typedef struct tow__shape_params {
    tow__ints shape;
} tow__shape_params; /* reshape; random_bits */
typedef struct tow__transpose_params {
    tow__ints permutation;
} tow__transpose_params; /* transpose: result axis i is operand axis permutation[i] */
typedef struct tow__slice_params {
    tow__ints start, limit, stride;
    int64_t shares;  /* set where a stack is cut into runs: other slices give the rest of the operand's cotangent, which
                       is padded with -0, so that their sum has the bits of each */
} tow__slice_params; /* slice */
typedef struct tow__sizes_params {
    tow__ints sizes;
} tow__sizes_params; /* dynamic_slice (x, i32 index per axis; clamped as in XLA); dynamic_update_slice has none */
typedef struct tow__pad_params {
    tow__ints low, high, interior;
} tow__pad_params; /* pad (x, scalar); low and high may be negative */
typedef struct tow__rows_params {
    int64_t rows;
} tow__rows_params; /* scatter_add */
/* gather(table [V, ...], indices int [I...]) -> [I..., ...]: row indices[i] of table; negative indices count from the
 * end;
 *   an index outside gives NaN rows (0 for integers).
 * scatter_add(indices int [I...], updates [I..., ...]) -> [rows, ...]: zeros plus every update at its row, added in
 *   row-major order of indices; negative indices count from the end; outside: dropped.
 * index_add(x [V, ...], indices int [I...], updates [I..., ...]) -> [V, ...]: x plus every update at its row,
 * likewise. */

/* sort(x...) -> y...: the operands, of one shape, sorted along the axis by the first num_keys of them, which are
 * compared
 *   in turn; equal elements keep their order. -0 equals 0, NaNs are equal to each other and above all. */
typedef struct tow__sort_params {
    int64_t axis; /* first, as in tow__axis_params */
    int64_t num_keys;
} tow__sort_params;
/* top_k(x) -> values, indices i32: the k largest along the axis, largest first, of equal ones the first; the order is
 * total:
 *   NaNs with sign, -inf, ..., -0, 0, ..., inf, NaNs */
typedef struct tow__top_k_params {
    int64_t axis; /* first, as in tow__axis_params */
    int64_t k;
} tow__top_k_params;
/* searchsorted(a [n], v) -> i32 of v's shape: how many elements of the sorted a are less than v (right: or equal to
 * it) */
typedef struct tow__searchsorted_params {
    bool right;
} tow__searchsorted_params;

/* gather_general(x, indices [B..., n]): for each place of B a window of slice_sizes, as XLA's Gather with
 *   index_vector_dim = rank - 1. Windows that do not lie in x are moved inside, or with `fill` have fill_value. */
typedef struct tow__gather_params {
    tow__ints offset_dims, collapsed_slice_dims, operand_batching_dims, start_indices_batching_dims, start_index_map;
    tow__ints slice_sizes;
    bool clip, fill;
    double fill_value;
} tow__gather_params;
/* scatter_general_OP(x, indices [B..., n], updates) -> x with the windows of the updates set or combined, as XLA's
 * Scatter,
 *   in the row-major order of B. Windows that do not lie in x are dropped, or with `clip` moved inside. */
typedef struct tow__scatter_params {
    tow__ints update_window_dims, inserted_window_dims, operand_batching_dims, scatter_indices_batching_dims;
    tow__ints scatter_dims_to_operand_dims;
    bool clip, unique_indices;
} tow__scatter_params;

/* names */
typedef struct tow__name_params {
    const char *name;
} tow__name_params; /* name */

/* composites. Those with a fused pair have companions NAME_jvp (linear in the tangents) and NAME_vjp (its
 * transpose). */
typedef struct tow__gelu_params {
    bool approximate;
} tow__gelu_params; /* gelu, gelu_grad */
/* layer_norm(x [..., D], scale [D], bias [D]) -> y, mean [...], rstd [...];  rms_norm(x, scale) -> y, rstd */
typedef struct tow__norm_params {
    double epsilon;
} tow__norm_params;
/* layer_norm_jvp(x, scale, mean, rstd, dx?, dscale?, dbias?) -> dy; layer_norm_vjp(x, scale, mean, rstd, ct) -> those
 * of dx dscale dbias present. rms_norm_jvp(x, scale, rstd, dx?, dscale?) -> dy; rms_norm_vjp(x, scale, rstd, ct) -> ...
 * `wrt`: bit 0 x, bit 1 scale, bit 2 bias. */
typedef struct tow__norm_ad_params {
    double epsilon;
    int64_t wrt;
} tow__norm_ad_params;
/* attention(q [B, T, H, D], k [B, S, G, D], v [B, S, G, E] [, mask bool [B|1, H|1, T|1, S|1]] [, bias, of the type of q
 * and such a shape]
 *   [, offset i32 [] or [B]]) -> out [B, T, H, E], lse [B, H, T].  G divides H (grouped heads).
 *   logits = cap tanh((q*scale).k / cap) + bias, without cap (0): (q*scale).k + bias. Query i is at position p = i +
 *   offset of the keys, without an offset i + S - T. Hidden are, by select with the lowest finite number, so that a
 *   fully hidden row is uniform: what the mask says; causal: j > p; window (0: none): |p - j| >= window. */
typedef struct tow__attention_params {
    bool causal;
    double scale, cap;
    int64_t window;
} tow__attention_params;
/* attention_jvp(q, k, v, out, lse [, mask] [, bias] [, offset], dq?, dk?, dv?) -> dout;  attention_vjp(..., ct) ->
 * those present. wrt: bit 0 q, 1 k, 2 v. The bias is differentiated by the decomposition of attention. */
typedef struct tow__attention_ad_params {
    bool causal, masked, biased, shifted;
    double scale, cap;
    int64_t window, wrt;
} tow__attention_ad_params;
/* softmax_cross_entropy(logits [..., V], labels i32 [...]) -> loss [...], lse [...];  labels outside [0, V) give NaN.
 * softmax_cross_entropy_jvp(logits, labels, lse, dlogits) -> dloss;  softmax_cross_entropy_vjp(logits, labels, lse, ct)
 * -> dlogits */
/* linear_cross_entropy(x [..., C], w [C, V], or [V, C] with rows, labels i32 [...]) -> loss [...], lse [...]: of logits
 * x w. linear_cross_entropy_jvp(x, w, labels, lse, dx?, dw?) -> dloss;  linear_cross_entropy_vjp(x, w, labels, lse, ct)
 * -> those present. wrt: bit 0 x, 1 w. */
typedef struct tow__linear_cross_entropy_params {
    bool rows;
} tow__linear_cross_entropy_params;
typedef struct tow__linear_cross_entropy_ad_params {
    bool rows;
    int64_t wrt;
    int64_t classes; /* of the whole, of which w is a block (tow__loss_block); 0: w has all */
} tow__linear_cross_entropy_ad_params;
/* linear_cross_entropy_parts(x, w, labels) -> [..., tiles, 3] of a block w, whose first class label 0 means: of each
 * tile of logits the maximum, the sum of exp(logit - maximum), and the logit of the label, or NaN.
 * linear_cross_entropy_join(parts of all blocks [..., tiles, 3], labels) -> loss, lse */
typedef struct tow__linear_cross_entropy_parts_params {
    bool rows;
    int64_t classes; /* of the whole */
} tow__linear_cross_entropy_parts_params;

enum {
    TOW__LOSS_TILE = 512 /* classes */
};

/* Classes of a block: losses of so many classes, and their gradients, are sums over these blocks, for any number of
 * rows. Smaller ones where so few classes have large bands of rows (src/kernels/norms/linear_cross_entropy.c). */
static inline int64_t tow__loss_block(int64_t classes)
{
    enum {
        TILES = 8,      /* of a block at most: a power of two, as is their number */
        SMALL = 1 << 14 /* classes: of a half, rows of twice as many are in a band */
    };
    int64_t tiles = TILES;
    while (tiles > 1 && SMALL / (classes > 0 ? classes : 1) * tiles > TILES) tiles /= 2;
    return tiles * TOW__LOSS_TILE;
}
/* dropout(x, key u32[2]) -> y: keeps with probability 1 - rate, bernoulli(key) on `broadcast`-reduced shape; x / keep
 * where kept */
typedef struct tow__dropout_params {
    double rate;
    tow__ints broadcast; /* axes that share one draw */
} tow__dropout_params;

#endif
