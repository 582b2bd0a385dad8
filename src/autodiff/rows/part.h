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

typedef struct tow__row_part {
    tow_context *ctx;
    tow_graph *part, *rest;
    uint32_t n_rows, n_sums; /* outputs of `part` */
    int *in_axes, *axes;     /* of inputs and outputs of the graph: with the rows; TOW__WHOLE: they have none */
    bool *adds;              /* [n_vars of the graph] the sum for this value is added to the operand of its index_add */
    tow__arena arena;
} tow__row_part;

/* in_axes: as in tow_row_groups. count: groups of the part, a power of two. Free p also after an error.
 * Errors: those of tow_row_groups. */
tow_status tow__row_part_create(const tow_graph *g, int64_t groups, int64_t count, const int *in_axes,
                                tow__row_part *p);
void tow__row_part_free(tow__row_part *p);

/* The graph of all rows: in one piece, and of n parts that run one after the other (micro_batches.c). */
tow_status tow__row_groups_whole(const tow_graph *g, int64_t groups, const int *in_axes, tow_graph **result);
tow_status tow__row_groups_in_parts(const tow_graph *g, int64_t groups, int64_t n, const int *in_axes,
                                    tow_graph **result);

#endif
