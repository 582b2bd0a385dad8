/* Sharding: a graph some of whose values exist as shares, one in each process of a group.
 *
 * The share of a value is that of its elements, which are layers of one size in row-major order: of [layers, n] it is
 * [layers, n / N], in each layer the elements that tow_group_share says. Whatever works element by element, and moves
 * that keep the order of elements, give shares of shares. All else reads whole values, which are gathered where they
 * are made. So the graph says which values are shared, and no rule about optimizers or models is needed:
 *
 *     slot (share) ----+
 *     gradient (whole) +--> new slot (share), new parameter (share) --> gathered --> new parameter (whole)
 *     norm of all gradients (whole): made in every process
 *
 * A value that could be either is made as its readers want it: as a share if no reader wants the whole. Once something
 * makes the whole of a value necessary, what is made of it and of other whole values is whole as well, so nothing is
 * gathered twice on one way. Elements have the same bits in a share and in the whole.
 *
 *   analysis.c   which values are shares, which are wanted whole
 *   inline.c     records the graph */
#ifndef TOW_SRC_AUTODIFF_SHARDING_H
#define TOW_SRC_AUTODIFF_SHARDING_H

#include "src/autodiff/autodiff.h"
#include "src/group/group.h"

/* A value of the graph. */
typedef struct tow__sharded_value {
    int64_t layers;         /* of the share that there is, or that readers want; 0: neither */
    bool is_share;          /* made of shares: the whole has to be gathered */
    bool gathered;          /* it is, for a reader that needs the whole */
    bool wants_whole;       /* a reader does */
    bool wants_share;       /* likewise */
    tow_value whole, share; /* in the new graph; null: not made */
} tow__sharded_value;

/* The inputs and outputs of a graph that are shares. */
typedef struct tow__sharding {
    tow_group *group;
    const int64_t *in, *out; /* [inputs], [outputs] the number of layers of a share; 0: whole */
} tow__sharding;

/* Finds which values are shares. values: [g->n_vars], zeros. */
void tow__sharding_analyze(const tow_graph *g, const tow__sharding *sharding, tow__sharded_value *values);
/* Is a value that is made by this equation of whole values as easily made as a share? */
bool tow__sharding_follows(const tow_graph *g, const tow__equation *e, int64_t layers);
/* Records all equations of g, as tow__inline does. Inputs and outputs that are shares are [layers, n / N]. */
void tow__sharding_inline(tow_trace *t, const tow_graph *g, const tow__sharding *sharding, const tow_value *in,
                          tow_value *out);

/* The type of the share of rank `rank`, of so many layers. */
tow_type tow__sharding_type(const tow_group *group, tow_type whole, int64_t layers);
/* This process's share of x, [layers, n / N]. */
tow_value tow__sharding_cut(const tow_group *group, tow_value x, int64_t layers);

#endif
