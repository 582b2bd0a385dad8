/* A body whose values are kept or made again: what its backward pass reads, and what that costs. */
#ifndef TOW_SRC_AUTODIFF_LIMIT_BODY_H
#define TOW_SRC_AUTODIFF_LIMIT_BODY_H

#include "src/autodiff/limit/limit.h"

typedef struct tow__body_values {
    const tow_graph *g;
    uint32_t *maker; /* [vars] the equation behind aliases that makes it; TOW__INPUT: none */
    size_t *result;  /* [equations] bytes of its results */
    bool *needed;    /* they are residuals */
    size_t *own;     /* bytes of other residuals that its derivative rule makes of its operands */
    double *seconds; /* to make it again */
    uint32_t
        *last;    /* [equations] the last one that reads its results, behind views; n_equations: an output of g is one;
                        itself: nobody */
    bool *pinned; /* kept for free: a loss over a product, which makes its gradient beside it, and what it multiplies */
    uint8_t *forced; /* verdict of a policy of the user's + 1; 0: none */
    size_t working;  /* bytes of all residuals */
    /* For costs, which are of equations begin to end - 1: what stands before them is there. */
    uint32_t begin, end;
    bool *kept;
    uint8_t *seen;
    uint32_t *stack;
    uint32_t *from, *to; /* [equations] places of the backward pass at which results that are made again are alive */
    int64_t *change;     /* [equations + 1] bytes that are alive more before equation k than behind it */
} tow__body_values;

/* An equation that gives its operand another shape or name: it takes no bytes and no time. */
bool tow__is_alias(const tow__equation *e);
/* Bytes of the equation's residuals. */
size_t tow__residual_bytes_of(const tow__body_values *v, uint32_t k);

/* *stripped: body without its regions, which the caller releases; *values: of it, of all equations. */
tow_status tow__body_values_find(tow__arena *arena, const tow_graph *body, const tow__price *price,
                                 tow_graph **stripped, tow__body_values *values);

typedef struct tow__keep_cost {
    double seconds;
    size_t bytes;
} tow__keep_cost;

/* Bytes of what is kept and read, by the backward pass or behind the end; seconds to make the rest again. */
tow__keep_cost tow__keep_cost_of(tow__body_values *v);
/* Bytes at the most in the backward pass of equations begin to end - 1: what is kept, what is made again, directly
 * before its first reader, and cotangents. */
size_t tow__backward_bytes(tow__body_values *v);
/* Does a policy of the user's say what becomes of one of these? */
bool tow__is_forced(const tow__body_values *v);
/* kept and read again, as an array of the tow_verdict of each equation from begin to end - 1. */
bool tow__write_verdicts(tow__arena *arena, const tow__body_values *v, uint8_t **verdict);
/* False if a policy insists that a value is made again that is made before equation `at` and read from there on: the
 * results of a region are kept. */
bool tow__may_cut(const tow__body_values *v, uint32_t at);
/* Bytes of results of equations first to at - 1 that `at` or a later one reads. */
size_t tow__crossing_bytes(const tow__body_values *v, uint32_t first, uint32_t at);

/* The sets of the equations begin to end - 1 (limit.h), of which no verdict is for an equation before begin: verdicts
 * are counted from there. hull: only those on the convex hull. */
tow_status tow__search_kept_sets(tow__arena *arena, tow__body_values *values, bool hull, uint32_t most,
                                 tow__kept_set **sets, uint32_t *n);

/* The policy of a region around the marked equations begin to end - 1: do loops in it keep what they make? They do if
 * all of them are kept. verdict: [0] of equation begin. */
const tow_policy *tow__policy_of_marked(const tow_graph *g, uint32_t begin, uint32_t end, const uint8_t *verdict);

/* Room for one more item in a list in an arena; NULL: out of memory. */
static inline void *tow__list_extend(tow__arena *arena, void *items, uint32_t n, uint32_t *capacity, size_t size)
{
    if (n < *capacity) return items;
    const uint32_t more = *capacity ? 2 * *capacity : 16;
    void *grown = tow__arena_alloc(arena, more, size);
    if (!grown) return NULL;
    if (n) memcpy(grown, items, n * size);
    *capacity = more;
    return grown;
}

/* Records equation e of g with a mark: its number, and what is said of it. */
void tow__record_marked(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_verdict verdict,
                        const tow_value *x, tow_value *y);

#endif
