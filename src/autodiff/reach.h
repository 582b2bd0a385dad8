/* The values that inputs of a graph reach, found by a forward analysis that walks through the bodies of regions.
 *
 *   tangents     a value is reached if jvp gives it a tangent, as the rules of the primitives decide
 *   dependence   a value is reached if an operand of its equation is
 *
 * The results for nested bodies are in a tree of the shape of the graphs:
 *
 *   tow__reach of g ── var[v]      reached values of g
 *                   ── body[e]     tow__reach of the bodies of equation e, NULL if no operand is reached
 *
 * Values only ever become reached, and an equation is looked at again only when one more of its operands is. So the
 * carries of nested loops, each of which needs a fixpoint over its body, take time that grows with the product of the
 * sizes of a body and of its inputs, and not exponentially with the depth. */
#ifndef TOW_SRC_REACH_H
#define TOW_SRC_REACH_H

#include "src/autodiff/loops.h"

struct tow__reach {
    const tow_graph *g;
    bool *var;         /* [n_vars] */
    bool *used;        /* [n_vars] has a reader or is an output */
    uint32_t *seen;    /* [n_equations] reached operands when the equation was looked at last */
    tow__reach **body; /* [n_equations] */
    tow__reach *next;  /* of the next branch of the same cond, or of the condition beside the body of a while */
};

/* The criterion of a walk. rules: a trace into which jvp rules are recorded to see what they do; NULL: dependence. */
typedef struct tow__reach_walk {
    tow_context *ctx;
    tow__arena *arena;
    tow_trace *rules;
    bool reverse;
} tow__reach_walk;

/* The state of nothing reached yet; NULL: no memory. */
tow__reach *tow__reach_begin(const tow__reach_walk *w, const tow_graph *g);
/* Marks what the inputs in[] reach, in addition to what is marked already. */
tow_status tow__reach_spread(const tow__reach_walk *w, tow__reach *r, const bool *in);
/* The same for a loop over the graph: a carry that the body reaches is reached from the next iteration on. in: of the
 * inputs of the body; carries that are reached inside are set. */
tow_status tow__reach_loop(const tow__reach_walk *w, tow__reach *r, const tow__region_form *form, bool *in);
/* The same for an equation with bodies, whose states *states becomes. in: [n_in + 1] of its operands, and one that is
 * free for the body of a fori; out: [n_out] what is reached is set. */
tow_status tow__reach_region(const tow__reach_walk *w, const tow__equation *e, tow__reach **states, bool *in,
                             bool *out);

#endif
