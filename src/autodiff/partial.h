/* The state of one partial evaluation, shared by partial.c (the walk) and scan_partial.c (the rule of scan). */
#ifndef TOW_SRC_PARTIAL_H
#define TOW_SRC_PARTIAL_H

#include "src/autodiff/autodiff.h"
#include "tow/ops.h"

/* The knowledge about one value of the graph that is split. `known` and `staged` are handles in the two traces. */
typedef struct tow__pvar {
    bool unknown;       /* depends on an unknown input */
    bool available;     /* the unknown graph can make it by itself: as an input, or by repeating its equation */
    bool constant;      /* a scalar constant, a counter, or a move of one */
    bool pinned;        /* the policy insists that it is kept */
    bool again;         /* repeated whatever the policy says: a constant, or a view or conversion of what is at hand */
    uint8_t verdict;    /* tow_verdict + 1 of the policy that was asked; 0: none was */
    tow_value known;    /* in the known trace; null for unknown values */
    tow_value staged;   /* in the unknown trace; null until it is needed there */
    uint32_t root;      /* the value behind checkpoint names; itself if it is no output of a name */
    uint32_t named;     /* of a root: the output of the first name that tags it, or TOW__INPUT */
    uint32_t next_name; /* of the output of a name: that of another one that tags the same root, or TOW__INPUT */
    tow_verdict tags;   /* of a root with names: what the policy says about them */
} tow__pvar;

typedef struct tow__residual_slot {
    tow_value known;
    uint32_t root; /* of the graph that is split, or TOW__INPUT for values of nested graphs */
    bool pinned;   /* a policy insists on it */
} tow__residual_slot;

typedef struct tow__split {
    const tow_graph *g;
    const tow_policy *policy; /* NULL: not inside a remat, everything is saved */
    const char *policy_text;  /* NULL until an equation needs it */
    bool runs_once;           /* the unknown graph, for each run of the known one */
    tow_trace *k, *u;         /* the traces of the known and of the unknown graph */
    tow__pvar *vars;
    tow__residual_slot *residuals;
    uint32_t n_residuals, capacity;
    tow__split_memo *memo; /* NULL: the graph is split once */
    bool verifies; /* what is made again is compared with what was made first, which is kept for it */
    tow__policy_tally *tally;
    struct tow__policy_log *log;
} tow__split;

/* The value in the unknown trace: made on demand by repeating equations, or handed over as a residual. */
tow_value tow__split_staged(tow__split *s, uint32_t var);
/* Hands a value of the known trace over as a residual. root, pinned: see above. */
tow_value tow__split_residual(tow__split *s, tow_value known, uint32_t root, bool pinned);
/* The comparison of two values that result i of e has; its source stays set. */
tow_value tow__split_same_bits(tow_trace *t, const tow__equation *e, uint32_t i, tow_value again, tow_value kept);
/* The value that stands for result i of known equation e, which the unknown graph makes again as `again`: itself, or
 * what comes out of the comparison with the value that is kept for it, if the split verifies. */
tow_value tow__split_compared(tow__split *s, const tow__equation *e, uint32_t i, tow_value again);
/* g with regions that repeat nothing replaced by their bodies, and with what does not change from iteration to
 * iteration in front of its loop (flatten.c). *result is retained. */
tow_status tow__flatten(const tow_graph *g, const bool *in_unknown, tow_graph **result);
/* A view or conversion of one operand of g that is at least as large as the operand: made again from it, never kept. */
bool tow__is_never_smaller(const tow_graph *g, const tow__equation *e);

/* The options of the splits of bodies of loops and choices. */
static inline tow__manner tow__manner_of(const tow__split *s)
{
    return (tow__manner){.policy = s->policy,
                         .stage_known = s->policy != NULL,
                         .runs_once = s->runs_once,
                         .tally = s->tally,
                         .log = s->log};
}

/* The memory of the split of equation e; NULL: the caller keeps none. */
static inline tow__split_region *tow__split_remembered(const tow__split *s, const tow__equation *e)
{
    return s->memo ? &s->memo->regions[e - s->g->equations] : NULL;
}

/* Records e in the unknown trace: all its results are unknown. */
void tow__split_record_unknown(tow__split *s, const tow__equation *e);

/* The equation that makes value `var` of g, if it has no operands: a constant, which is made again where it is read. */
static inline const tow__equation *tow__source_of(const tow_graph *g, uint32_t var)
{
    const tow__equation *e = g->vars[var].equation == TOW__INPUT ? NULL : &g->equations[g->vars[var].equation];
    return e && e->n_in == 0 && e->n_out == 1 ? e : NULL;
}

#endif
