/* The description that a primitive with nested graphs gives of them, besides the rules that all primitives have: which
 * of its operands are those of the graphs, how often they run, and all that no rule of primitive.h covers. Passes and
 * reports ask the descriptor; no file but a region's own compares with it (structure/regions).
 *
 *   operands   (lead, operands of the bodies)
 *   bodies     (operands, [number of the iteration]) -> results        one of `branches` graphs runs
 *   loops      (consts, carry, rest) -> (carry, ys)                    rest: rows of operands, or the number
 *
 * Passes walk through the bodies of primitives of kind TOW__REGION and may replace them: dead code elimination drops
 * inputs and outputs of all bodies alike. Calls with rules of their own (custom_jvp, ...) keep theirs as they are. */
#ifndef TOW_SRC_GRAPH_REGION_H
#define TOW_SRC_GRAPH_REGION_H

#include "src/graph/primitive.h"

enum {
    TOW__DATA_DECIDE = -1 /* the number of iterations is not known before the program runs */
};

/* The use of the nested graphs of one equation. */
typedef struct tow__region_form {
    const tow_graph *body;  /* the first graph that computes results */
    uint32_t lead;          /* operands in front of those of the bodies: the index of a choice, the count of a loop */
    uint32_t conditions;    /* graphs before `body`, with its inputs, that say whether one more iteration begins */
    uint32_t branches;      /* graphs from `body` on, of which one runs; further ones are rules */
    bool repeats;           /* a loop: an iteration hands its carries to the next one */
    uint32_t consts, carry; /* of a loop, how many */
    bool counts;            /* the last input of the bodies is the number of the iteration, and no operand */
    bool reverse;           /* the first iteration has the last row, or the highest number */
    bool stops;             /* carry 0 is a bool: no iteration begins once it is false */
    int64_t length;         /* iterations, 1 if it does not repeat; TOW__DATA_DECIDE */
    int64_t most;           /* iterations at most where data decide; 0: no bound */
    int64_t slots;          /* of a loop with a schedule: states that reverse mode keeps; else 0 */
    int64_t file_slots;     /* so many of them in a file */
} tow__region_form;

/* The form that plans give an equation. */
typedef enum tow__planned {
    TOW__AS_PARTS,  /* its decomposition */
    TOW__IN_PLACE, /* the equations of its body, in its place */
    TOW__AS_LOOP    /* an instruction with a body; parameters are tow__scan_params. All loops decompose into such */
} tow__planned;

struct tow__split;

struct tow__region {
    tow__planned planned;
    /* Fills in how the equation uses its graphs, but for `body`. The form is one body that runs once at first. */
    void (*form)(const tow__equation *e, tow__region_form *form);
    /* Of a loop: sets the numbers of constants and carries in its parameters. */
    void (*resize)(void *params, int64_t consts, int64_t carry);
    /* The body, where the region repeats and keeps nothing by itself, so that partial evaluation puts the body in its
     * place; else NULL. NULL: it never does. */
    const tow_graph *(*transparent)(const tow__equation *e);
    /* Partial evaluation (autodiff/partial.h), where an operand is unknown or a policy decides. NULL: the equation is
     * known or unknown as a whole. */
    void (*split)(struct tow__split *s, const tow__equation *e);
};

/* False if the equation has no nested graphs. */
static inline bool tow__region_of(const tow__equation *e, tow__region_form *form)
{
    *form = (tow__region_form){.branches = 1, .length = 1};
    if (!e->primitive->region) return false;
    e->primitive->region->form(e, form);
    form->body = tow__nested(e->primitive, e->params, form->conditions);
    return true;
}

static inline bool tow__is_loop(const tow_primitive *p) { return p->region && p->region->planned == TOW__AS_LOOP; }

/* Do passes walk through the bodies of the equation? */
static inline bool tow__is_region(const tow__equation *e) { return e->primitive->kind == TOW__REGION; }

#endif
