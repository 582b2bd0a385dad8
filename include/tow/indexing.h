/* Sorting, searching, and indexed access in general form: what jax.lax has under these names, with its semantics. Axes
 * may be negative. The simple forms, rows of a table, are tow_gather, tow_scatter_add and tow_index_add in ops.h;
 * numpy.h has tow_take and tow_take_along_axis. */
#ifndef TOW_INDEXING_H
#define TOW_INDEXING_H

#include "tow/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

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
#include "tow/indexing_lines.h"
#endif

#ifdef __cplusplus
}
#endif
#endif
