/* Who sends what to whom so that a sum over a tree of ranks takes as many bytes as a ring: recursive halving, nearest
 * neighbours first.
 *
 * Leaves of the tree are subtrees of row groups, each with its sum, an array of n elements. At a node, the leaves below
 * its left child hold the sum of that child, each of them some ranges of it; so do those below the right child. They
 * exchange halves: afterwards each holds ranges of the node's sum, half as much as before. At the root each leaf holds
 * its owner's share.
 *
 *     share      0         2         1         3          of four leaves, in the array from left to right
 *     level 0    0 <-> 2             1 <-> 3              second: each sends the other's quarter
 *     level 1    0 <-----> 1, 2 <-----> 3                 first: each sends half of the array
 *
 * In the other direction, from the root to the leaves, the same transfers gather the shares. */
#ifndef TOW_SRC_GROUP_HALVING_H
#define TOW_SRC_GROUP_HALVING_H

#include "src/base/base.h"

enum {
    TOW__TREE_LEVELS = 16, /* of trees, at most */
    TOW__MOST_ROW_GROUPS = 1 << TOW__TREE_LEVELS
};

/* Elements [offset, offset + count). */
typedef struct tow__range_of {
    int64_t offset, count;
} tow__range_of;

/* A leaf: row groups [begin, end), a subtree. */
typedef struct tow__leaf {
    int begin, end, rank;
} tow__leaf;

/* Elements that leaf `from` sends to leaf `to`, of which one at least belongs to this rank. */
typedef struct tow__transfer {
    int level, from, to; /* level 0 is the root's */
    int64_t offset, count;
} tow__transfer;

typedef struct tow__halving {
    tow_context *ctx;
    tow__leaf *leaves;              /* from left to right */
    int n_leaves, rank, own, n_own; /* own leaves are neighbours */
    tow__transfer *transfers;       /* by level, the deepest first */
    size_t n, capacity;
    tow__range_of share; /* of this rank */
} tow__halving;

/* The maximal subtrees of row groups [begin, end), from left to right, with this rank; returns their number. leaves may
 * be NULL. */
int tow__subtrees(int rank, int begin, int end, int row_groups, tow__leaf *leaves);

/* first_group: as in tow__collective_options, count + 1 entries, each rank with at least one group. shares: of all
 * ranks, which cover the n elements. */
tow_status tow__halving_create(tow_context *ctx, int rank, int count, int row_groups, const int *first_group,
                               const tow__range_of *shares, tow__halving *halving);
void tow__halving_free(tow__halving *halving);

/* The unit of the shares of n elements: a power of two, 16 at least, of which there are 4096 or more if n has so
 * many. */
int64_t tow__share_unit(int64_t n);
/* The longest lines of a power of two of elements that a unit has a whole number of, as has n: each share has a whole
 * number of lines. */
int64_t tow__share_line(int64_t n);
/* Shares in units of so many elements, in the order of the tree, into shares[count]. A unit of 0: that of n. */
void tow__shares(int count, int64_t n, int64_t unit, tow__range_of *shares);
/* That of one rank. */
tow__range_of tow__share_of(int rank, int count, int64_t n, int64_t unit);
/* Elements [first, first + n) of an array of `of` elements, of which each process has its share. */
typedef struct tow__window {
    int64_t first, of; /* of: 0: the array has n elements, all of which are meant */
} tow__window;
/* The elements of the window that are in a rank's share, counted from the first one of the window. */
tow__range_of tow__share_in_window(int rank, int count, int64_t n, int64_t unit, tow__window window);
/* The row groups that ranks own: first_group[count + 1]. */
void tow__row_groups(int count, int row_groups, int *first_group);
/* Is it a power of two, and not below count? */
bool tow__row_groups_valid(int count, int row_groups);

#endif
