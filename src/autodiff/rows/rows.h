/* Row groups: sums over the rows of a batch as binary trees.
 *
 * A graph whose inputs have the rows of a batch along an axis becomes one with the same results in which every sum over
 * rows is made in a fixed order: the rows are cut into G blocks of one size, a power of two of them, each block is
 * summed by itself, and the sums of the blocks are added up as a binary tree:
 *
 *     s[0,8) = s[0,4) + s[4,8),   s[0,4) = s[0,2) + s[2,4),   s[0,2) = s[0,1) + s[1,2)
 *
 * Whoever holds the rows of a subtree, a micro-batch for instance, makes its sum from these rows alone: a part.
 *
 *   rows.c      walks through a graph with the axis along which each value has rows
 *   moves.c     where rows are in the results of reshape, transpose, ..., of which plans make views
 *   cut.c       the rows of a part, of a value that does not depend on rows (a mask that is drawn, for instance)
 *   sums.c      equations that sum over rows, for one block after the other, depth first: log2 G sums are alive at most
 *   processes.c sums of parts that are in other processes, by collectives
 *   regions.c   bodies; in loops that add up sums over rows, one carry for each block
 *   conversions.c   what bodies of the backward pass convert last of all, converted behind them
 *
 * Rules of tiling and of sums, of descriptors, say what an equation does to rows (src/graph/primitive.h). */
#ifndef TOW_SRC_AUTODIFF_ROWS_H
#define TOW_SRC_AUTODIFF_ROWS_H

#include "src/autodiff/autodiff.h"
#include "src/graph/region.h"
#include "src/group/group.h"

/* The blocks that a graph is for. */
typedef struct tow__row_blocks {
    int64_t groups;         /* of the whole batch, a power of two */
    int64_t count;          /* of this part, a power of two */
    bool part;              /* others have the other rows, or may have: sums over rows are not complete */
    tow_value first;        /* of a part: i32[], a value of the graph that is recorded, the number of its first block */
    const tow_group *group; /* whose processes have the other parts: sums become those of all rows where they are made;
                               NULL: whoever makes the parts adds them up */
    bool scatters;          /* processes keep their shares of these sums, of elements in the order of the last reader */
} tow__row_blocks;

typedef struct tow__late_sum tow__late_sum;

/* A value of the graph, in the new one. */
typedef struct tow__row_value {
    tow_value value;
    int axis;                 /* that has the rows; TOW__WHOLE: the value does not depend on single rows */
    const tow_primitive *sum; /* over rows, which nothing but moves has changed since; of a part, over its rows alone:
                                 what joins two of them, add for sums; NULL: no sum */
    bool unknown;             /* depends on a sum over rows that a part does not have; value is null */
    tow__late_sum *late;      /* a sum that is recorded block by block where an accumulator adds it; value is null */
    tow_value cut; /* of a value without rows: what is cut of it along cut_axis for the blocks at hand; or null */
    int cut_axis;
    tow_value addend;  /* of an unknown index_add in a graph that is no body: what the rows at hand add */
    tow_value *blocks; /* of an accumulator: [count] what is added up of each block; value is null */
    bool waits;        /* a small sum that is to become that over all processes together with others */
} tow__row_value;

/* An equation as rules see it. */
typedef struct tow__row_equation {
    const tow__equation *e;
    tow__row_value *x;   /* [n_in] */
    int *at, *from;      /* [n_in] where rows are, and what a rule says */
    tow__operation o;    /* types of the whole batch, as dense views */
    tow_value *in, *out; /* [n_in], [n_out] room */
} tow__row_equation;

/* The walk through one graph. */
typedef struct tow__row_walk {
    tow_trace *t;
    const tow_graph *g;
    const tow__row_blocks *blocks;
    tow__row_value *values; /* [g->n_vars] */
    const bool *late;       /* [g->n_vars] sums that are added to what is there of each block; or NULL */
    const bool *turned;     /* [g->n_vars] values that one transpose reads, and nothing else; NULL: nobody asks */
    bool nested;            /* g is the body of a region */
} tow__row_walk;

static inline bool tow__has_rows(const tow__row_value *x) { return x->axis != TOW__WHOLE; }
static inline bool tow__is_part(const tow__row_blocks *b) { return b->part; }
/* Sums over rows are not complete where they are made. */
static inline bool tow__waits_for_others(const tow__row_blocks *b) { return b->part && !b->group; }
static inline int64_t tow__rows_of_part(const tow__row_blocks *b, int64_t n) { return n / b->groups * b->count; }

/* ---- rows.c ------------------------------------------------------------------------------------------------------ */

/* Records all equations of walk->g; inputs are in walk->values. */
void tow__rows_walk(tow__row_walk *walk);
/* A walk through g; NULL: no memory. */
tow__row_walk *tow__rows_begin(tow_trace *t, const tow_graph *g, const tow__row_blocks *blocks);
/* Makes a sum over the rows of this process that over the rows of all, if there are others. */
void tow__rows_complete(const tow__row_walk *walk, tow__row_value *y);
/* Of g, in which the equation's results are outputs: [n_vars] the sums that are late because results are; NULL: no
 * memory. */
bool *tow__rows_late_outputs(const tow__row_walk *walk, const tow__equation *e, const tow_graph *g);
/* Makes a late sum that over the rows at hand, and of all; other values stay. */
void tow__rows_end_late(const tow__row_walk *walk, tow__row_value *x);
/* The type of a value that has rows along `axis`, for the blocks at hand. */
tow_type tow__rows_type(const tow__row_blocks *b, tow_type type, int axis);
/* The error of an equation that does with rows what no group can do by itself. */
void tow__rows_fail(tow_trace *t, const tow__equation *e, const char *why);

/* ---- conversions.c ----------------------------------------------------------------------------------------------- */

/* g with conversions of what bodies of the backward pass give behind these bodies: sums over rows leave as they are. */
tow_status tow__rows_move_conversions(const tow_graph *g, tow_graph **result);

/* ---- moves.c ----------------------------------------------------------------------------------------------------- */

/* Is the equation a move? *axis: of the result, which has the rows; TOW__WHOLE: they are in groups no longer.
 * params: [params_size] a copy of the equation's, becomes that for the blocks at hand. */
bool tow__rows_move(const tow__row_equation *r, const tow__row_blocks *b, int *axis, void *params);

/* ---- cut.c ------------------------------------------------------------------------------------------------------- */

/* Value `var`, which has no rows, cut along `axis` to those of the blocks at hand. */
tow_value tow__rows_cut(const tow__row_walk *w, uint32_t var, int axis);

/* ---- sums.c ------------------------------------------------------------------------------------------------------ */

/* Block k of n along an axis; x itself for TOW__WHOLE. */
tow_value tow__rows_slice(tow_value x, int axis, int64_t n, int64_t k);
/* Records an equation that sums over rows; r->from and r->in are filled, r->in with the blocks at hand. */
void tow__rows_sum(tow_trace *t, const tow__row_equation *r, const tow__row_blocks *b, tow_value *y);
/* The results of an equation, sums that are recorded later: block by block, where something adds them to what it has of
 * the block. r is as for tow__rows_sum. */
void tow__rows_later(tow_trace *t, const tow__row_equation *r, const tow__row_blocks *b, tow__row_value *y);
/* The result of an equation that moves a late sum, or adds two (and; NULL: it moves). */
tow__row_value tow__rows_later_of(tow_trace *t, const tow__equation *e, tow__late_sum *of, tow__late_sum *and);
/* Does the equation of g move a late sum as it moves its blocks? */
bool tow__rows_moves_late(const tow_graph *g, const tow__equation *e);
/* A late sum of which the blocks at hand are given. */
tow__row_value tow__rows_given(tow_trace *t, const tow_value *blocks);
/* Block k of those at hand. */
tow_value tow__rows_block(tow_trace *t, const tow__late_sum *sum, const tow__row_blocks *b, int64_t k);
/* All blocks at hand, recorded here; NULL: no memory. */
tow_value *tow__rows_blocks(tow_trace *t, const tow__late_sum *sum, const tow__row_blocks *b);
/* The tree over the blocks at hand, depth first. */
tow_value tow__rows_late_total(tow_trace *t, const tow__late_sum *sum, const tow__row_blocks *b);
/* Marks the value, and what moves and additions make it of: all are to be late sums if they are sums and nothing else
 * reads them. uses: how many read each value. */
void tow__rows_mark_late(const tow_graph *g, const uint32_t *uses, uint32_t var, bool *late);
/* uses: [n_vars] readers of values, outputs counted. */
void tow__rows_count_uses(const tow_graph *g, uint32_t *uses);
/* The tree over what is given for each of n blocks. */
tow_value tow__rows_tree(int64_t n, const tow_value *blocks);
/* The operation on the results of two blocks of an equation: add for sums, max for maxima, ... */
const tow_primitive *tow__rows_joining(const tow_primitive *reduction);
/* x with join(x, y) = y for every y, of this type. */
tow_value tow__rows_identity(tow_trace *t, const tow_primitive *join, tow_type type);

/* ---- processes.c ------------------------------------------------------------------------------------------------- */

/* The sum of the rows of all processes, of which x is that of this one's. join: what joins two of them. */
tow_value tow__rows_of_all(tow_trace *t, const tow_group *group, int64_t groups, const tow_primitive *join,
                           tow_value x);

/* ---- regions.c --------------------------------------------------------------------------------------------------- */

void tow__rows_region(const tow__row_walk *w, const tow__row_equation *r, tow__row_value *y);
/* Is operand i of the equation a carry of a loop that adds to it, and nothing else? *k: the result that is it. */
bool tow__rows_goes_on(const tow__row_walk *w, const tow__equation *e, uint32_t i, uint32_t *k);

#endif
