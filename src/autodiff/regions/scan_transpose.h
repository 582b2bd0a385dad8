/* The transpose of a scan, as its two files share it: scan_sums.c finds the value from which each sum of cotangents
 * starts, scan_transpose.c makes the loop that adds to them. docs/scan-derivatives.md says why each part is needed. */
#ifndef TOW_SRC_SCAN_TRANSPOSE_H
#define TOW_SRC_SCAN_TRANSPOSE_H

#include "src/autodiff/partial.h"
#include "src/autodiff/regions/scan_flow.h"

/* The way in which the loop accumulates the cotangents of the values of a chain. */
typedef enum tow__accumulation {
    TOW__PLAIN,     /* sums start from the cotangents of the final carries; the result is added to the caller's sum */
    TOW__CONTINUED, /* in the iteration that uses an initial value, its sum starts from the caller's sum */
    TOW__STACKED    /* rows of ys are added before the loop, to an array of starts with one row per iteration */
} tow__accumulation;

/* A carry's position in a chain. The carry of delay 1 takes the value that the body computes, that of delay d + 1 what
 * the carry of delay d holds. Delay 0: the carry is in a ring. */
typedef struct tow__chain_position {
    uint32_t delay, head;           /* head: the carry of delay 1 */
    uint32_t next;                  /* the carry of delay + 1, or TOW__INPUT */
    uint32_t length;                /* of a head: carries in the chain */
    uint32_t last;                  /* of a head: the carry of the longest delay */
    tow__accumulation accumulation; /* of a head */
    tow_value rows; /* of a head, if stacked: what the sum of the last carry starts from, iteration by iteration */
} tow__chain_position;

typedef struct tow__scan_loop {
    tow__transpose *r;
    const tow__scan_params *p;
    const tow_graph *body;
    uint32_t consts, carries, xs, n_in, n_out; /* xs: index of the first */
    bool *linear;                              /* [n_in] inputs of the body */
    tow__flow *flow;
    tow__chain_position *positions; /* [carries] */
    tow_value *ct;                  /* [n_out] of ys; null if all its rows were added before the loop */
    tow_value *start;               /* [n_in] of constants and carries: what their sums start from */
    bool *continues;                /* [n_in] the result is the caller's new sum, not a contribution to it */
    bool *adds_nothing;             /* [n_in] the body makes no contribution */
} tow__scan_loop;

static inline tow_type tow__loop_input_type(const tow__scan_loop *l, uint32_t i)
{
    return l->body->vars[l->body->inputs[i]].type;
}

static inline uint32_t tow__loop_carry_input(const tow__scan_loop *l, uint32_t k) { return l->consts + k; }

/* The row that iteration t reads and writes. */
static inline int64_t tow__loop_row(const tow__scan_loop *l, int64_t t)
{
    return l->p->reverse ? l->p->length - 1 - t : t;
}

/* The rules, of which r->dx[i] holds what has been accumulated for operand i on entry (null: nothing, or an earlier
 * operand is the same value) and the new sum on exit; and the split (scan_partial.c). */
void tow__scan_transpose(tow__transpose *r);
void tow__scan_split(tow__split *s, const tow__equation *e);

/* Finds the chains, then the start of each sum; takes those ys out of l->ct whose rows are added before the loop. */
void tow__scan_start_sums(tow__scan_loop *l);

#endif
