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
 * Some rows of a share of one layer are shares of a window: of these elements each process has those that are in its
 * share. So rows of a table are gathered block by block, and sums of blocks, which a concatenation joins, are scattered
 * block by block. blocks.c makes graphs that read tables so.
 *
 * Sums over elements that are to have the same bits for any number of processes are made in two steps: of lines, of
 * which shares have whole ones (tow__share_line), by the process that has them, and of what these give, which is
 * gathered, by all. A sum over processes of which only shares are wanted is scattered in place of being gathered. Rows
 * of shares go into the bodies of loops, whose iterations gather what they read, and shares that iterations make are
 * stacked.
 *
 *   blocks.c     tables that are read, and whose gradients are made, block by block
 *   analysis.c   which values are shares, which are wanted whole
 *   inline.c     records the graph
 *   bodies.c     bodies of loops, and of what runs once */
#ifndef TOW_SRC_AUTODIFF_SHARDING_H
#define TOW_SRC_AUTODIFF_SHARDING_H

#include "src/autodiff/autodiff.h"
#include "src/graph/region.h"
#include "src/group/group.h"

/* A value of the graph. */
typedef struct tow__sharded_value {
    int64_t layers;         /* of the share that there is, or that readers want; 0: neither */
    tow__window window;     /* of the share: the value is a window of one layer; of: 0: it is whole layers */
    bool is_share;          /* made of shares: the whole has to be gathered */
    bool gathered;          /* it is, for a reader that needs the whole */
    bool wants_whole;       /* a reader does */
    bool wants_share;       /* likewise */
    uint32_t wait;          /* of the buffer of an all_reduce_start: 1 + the equation that waits */
    tow_value whole, share; /* in the new graph; null: not made */
    tow__phase phase;       /* in which the whole was read last, */
    uint32_t read_after;    /* and after how many gathers of inputs */
} tow__sharded_value;

/* The inputs and outputs of a graph that are shares. */
typedef struct tow__sharding {
    tow_group *group;
    const int64_t *in, *out; /* [inputs], [outputs] the number of layers of a share; 0: whole */
    bool nested;             /* the body of a loop, at whose beginning shares are gathered; else before they are read */
} tow__sharding;

/* Finds which values are shares. values: [g->n_vars], zeros. */
void tow__sharding_analyze(const tow_graph *g, const tow__sharding *sharding, tow__sharded_value *values);
static inline bool tow__is_window(tow__window window) { return window.of > 0; }
/* The window that the elements of a value from `offset` on are, of which there are `count`, if it is none itself. */
static inline tow__window tow__window_in(tow__window outer, int64_t count, int64_t offset)
{
    return (tow__window){outer.first + offset, outer.of > 0 ? outer.of : count};
}
/* Is a value that is made by this equation of whole values as easily made as a share? */
bool tow__sharding_follows(const tow_graph *g, const tow__equation *e, int64_t layers);
/* Does the equation sum lines of elements, [layers, lines, line] -> [layers, lines], of which shares have whole ones?
 * Then sums of the lines of a share are what is gathered. layers: of the operand's share. */
bool tow__sharding_sums_lines(const tow_graph *g, const tow__equation *e, int64_t layers);
/* The layers of operand i, or of result k, in the body of a region, if that may be a share of so many layers outside;
 * 0: it may not. */
int64_t tow__sharding_enters(const tow_graph *g, const tow__equation *e, uint32_t i, int64_t layers);
int64_t tow__sharding_leaves(const tow_graph *g, const tow__equation *e, uint32_t k, int64_t layers);
/* Do readers want shares of the value alone? */
static inline bool tow__wants_share_alone(const tow__sharded_value *v)
{
    return v->wants_share && !v->wants_whole && v->layers > 0;
}
/* Records a region on operands values[e->in[i]], with the shares of operands and results that there are. False: no
 * operand or result is a share. */
bool tow__sharding_region(tow_trace *t, const tow_graph *g, const tow__equation *e, const tow__sharding *sharding,
                          tow__sharded_value *values);
/* Records all equations of g, as tow__inline does. Inputs and outputs that are shares are [layers, n / N]. */
void tow__sharding_inline(tow_trace *t, const tow_graph *g, const tow__sharding *sharding, const tow_value *in,
                          tow_value *out);
/* The same as a graph of its own. */
tow_status tow__sharding_graph(const tow_graph *g, const tow__sharding *sharding, tow_graph **result);

/* A graph with the same inputs, outputs and bits, before it is cut into row groups, in which tables that are shares of
 * one layer are read block by block, as their gradients are made: by lookups, by losses of products with them, and
 * element by element. g itself, retained, if there is no such table. */
tow_status tow__sharding_blocks(const tow_graph *g, const tow__sharding *sharding, tow_graph **result);

/* The type of the share of rank `rank`, of so many layers. */
tow_type tow__sharding_type(const tow_group *group, tow_type whole, int64_t layers);
/* This process's share of x, [layers, n / N]. */
tow_value tow__sharding_cut(const tow_group *group, tow_value x, int64_t layers);

#endif
