/* Batching: a graph for one row becomes a graph for all rows. The pass and the rules of regions share this. */
#ifndef TOW_SRC_AUTODIFF_BATCH_H
#define TOW_SRC_AUTODIFF_BATCH_H

#include "src/autodiff/autodiff.h"

enum {
    TOW__AS_IT_FALLS = -2 /* of an output: wherever its batch axis is, or unbatched */
};

/* Records g for `size` rows: in[i] are its inputs, out[j] becomes its outputs. Equations that no batched value reaches
 * are recorded as they are, once. reach: which values of g are batched, if the caller has found out for a loop around
 * g; else NULL. */
void tow__batch_inline(tow_trace *t, const tow_graph *g, const tow__reach *reach, int64_t size, const tow__mapped *in,
                       tow__mapped *out);
/* A graph for `size` rows: in_axes[i] says where input i has its batch axis, or TOW__UNBATCHED. out_axes[j] comes in as
 * where output j must have it (an unbatched output is repeated), TOW__UNBATCHED for an output that is, or
 * TOW__AS_IT_FALLS, and goes out as what is. */
tow_status tow__batch_graph(const tow_graph *g, const tow__reach *reach, int64_t size, const int *in_axes,
                            int *out_axes, tow_graph **result);

/* The graph of g for all rows, while it is recorded. */
typedef struct tow__batched_graph {
    tow_trace *trace;
    tow__mapped *in, *out; /* of g; the inputs are there, the outputs have room */
    tow_value *results;    /* room for [g->n_outputs] */
} tow__batched_graph;
/* in_axes: as above. */
tow_status tow__batch_begin(const tow_graph *g, int64_t size, const int *in_axes, tow__batched_graph *b);

/* The rule of regions with one body that runs once: the same region around the batched body, so that policies and names
 * stay. */
void tow__batch_region(tow__batch *r);

#endif
