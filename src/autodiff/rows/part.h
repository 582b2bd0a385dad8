/* The graph of a part of the rows of a batch, for those who hold no more: micro-batches, processes.
 *
 *   part   (inputs, those with rows cut to the part's; number of its first group i32[])
 *          -> (outputs with rows..., sums...)
 *   rest   (inputs without rows..., sums over all rows...) -> outputs without rows...
 *
 * Sums of parts are those of subtrees: added up as the tree goes on they are the sums that the graph of all rows makes,
 * bit for bit. Sizes of the whole batch stay in constants: 1/B of a mean is that of the batch. */
#ifndef TOW_SRC_AUTODIFF_ROWS_PART_H
#define TOW_SRC_AUTODIFF_ROWS_PART_H

#include "src/graph/graph.h"
#include "src/group/group.h"

typedef struct tow__row_part {
    tow_context *ctx;
    tow_graph *part, *rest;
    uint32_t n_rows, n_sums;     /* outputs of `part` */
    int *in_axes, *axes;         /* of inputs and outputs of the graph: with the rows; TOW__WHOLE: they have none */
    const tow_primitive **joins; /* [n_sums] what joins the sums of two parts: add, or max of maxima, ... */
    bool *adds; /* [n_vars of the graph] the sum for this value is added to the operand of its index_add */
    tow__arena arena;
} tow__row_part;

/* in_axes: as in tow_row_groups. count: groups of the part, a power of two. Free p also after an error.
 * Errors: those of tow_row_groups. */
tow_status tow__row_part_create(const tow_graph *g, int64_t groups, int64_t count, const int *in_axes,
                                tow__row_part *p);
void tow__row_part_free(tow__row_part *p);

/* The rows of this process: `count` of all groups, from `first` on. */
typedef struct tow__row_share {
    int64_t groups, first, count;
    tow_group *group; /* that has the others; NULL: there are no others */
    bool scatters;    /* processes keep their shares of sums over all rows */
} tow__row_share;

/* The share of this process in so many row groups. Error: TOW_INVALID_ARGUMENT. */
tow_status tow__row_share_of(tow_context *ctx, tow_group *group, int64_t groups, tow__row_share *share);

/* axes[i]: that of output i which has the rows of the batch; TOW__WHOLE: the output is of all rows. Errors: those of
 * tow_row_groups. */
tow_status tow__row_axes_of_outputs(const tow_graph *g, const tow__row_share *share, const int *in_axes, int *axes);
/* The graph of all rows, or of those of a process, whose sums are over all rows, too: in one piece, and of n parts that
 * run one after the other (micro_batches.c). */
tow_status tow__row_groups_whole(const tow_graph *g, const tow__row_share *share, const int *in_axes,
                                 tow_graph **result);
struct tow__sharding; /* src/autodiff/sharding/sharding.h */
/* shards: inputs and outputs of which processes have shares, which is how the result has them; NULL: none. */
tow_status tow__row_groups_in_parts(const tow_graph *g, const tow__row_share *share, int64_t n, const int *in_axes,
                                    const struct tow__sharding *shards, tow_graph **result);

#endif
