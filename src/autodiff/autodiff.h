/* The passes of differentiation, as functions inside a trace: each reads a closed graph and records into the trace's
 * innermost builder. The compositions (linearize, vjp, grad) are in vjp.c.
 *
 *   jvp                 graph, x, dx              -> y, dy
 *   partial evaluation  graph, known?, policy     -> known graph, unknown graph, residuals between them
 *   transpose           linear graph, ct of y     -> ct of x
 */
#ifndef TOW_SRC_AUTODIFF_H
#define TOW_SRC_AUTODIFF_H

#include "src/graph/policy.h"
#include "src/graph/primitive.h"
#include "src/ops/table.h"

/* ---- jvp.c ------------------------------------------------------------------------------------------------------- */

/* Records primal outputs y and tangents dy (null: zero) of g at x, dx (null: zero). `reverse`: the tangent part will be
 * transposed, so composites may use their fused pair. reach: which values of g get tangents (reach.h), if the caller
 * has found out for a loop around g; else NULL. */
void tow__jvp_inline(tow_trace *t, const tow_graph *g, const tow__reach *reach, bool reverse, const tow_value *x,
                     const tow_value *dx, tow_value *y, tow_value *dy);
/* The rule of one equation, by what its primitive offers. */
void tow__equation_jvp(tow__jvp *r);
/* The decomposition of e on operands of these types as a graph of its own; NULL with a sticky error of t. */
tow_graph *tow__decomposition(tow_trace *t, const tow__equation *e, const tow_type *in_types);
/* Sets used[v] if value v has a reader or is an output. */
void tow__used_values(const tow_graph *g, bool *used);

/* jvp of a whole graph: inputs (x..., dx of those with in_nonzero), outputs (y..., dy of those with out_nonzero).
 * out_nonzero comes in as what must be there (zeros are instantiated) and goes out as what is. */
tow_status tow__jvp_graph(const tow_graph *g, const tow__reach *reach, bool reverse, const bool *in_nonzero,
                          bool *out_nonzero, tow_graph **result);

/* ---- partial.c --------------------------------------------------------------------------------------------------- */

/* The two graphs that partial evaluation makes of g. All arrays belong to `arena`.
 *   known:   (known inputs...) -> (known outputs..., residuals...)
 *   unknown: (inputs with input_used..., residuals...) -> (outputs with out_staged...)
 * An output is known (out_unknown false), staged (the unknown graph computes it), or both. */
typedef struct tow__partial {
    tow_graph *known, *unknown;
    uint32_t n_residuals;
    bool *out_unknown; /* [outputs] depends on an unknown input */
    bool *out_staged;  /* [outputs] is an output of `unknown`; all unknown ones are */
    bool *input_used;  /* [inputs] is an input of `unknown` */
    bool *pinned;      /* [n_residuals] a policy insists on it */
    tow__arena arena;
} tow__partial;

/* The splits of the regions of a graph, for a caller that splits the graph several times with the same unknown inputs
 * and the same policy: what is available outside of a region does not change how it is split, so each is split once. */
typedef struct tow__split_region {
    bool done;
    tow__partial part;
    bool *available;        /* of a loop: [inputs of its body], in the arena of the memo */
    tow__partial *branches; /* [n_branches] of a cond, likewise */
    uint32_t n_branches;
} tow__split_region;

typedef struct tow__split_memo {
    tow__split_region *regions; /* [n_regions] by equation, NULL before the graph is split first */
    uint32_t n_regions;
    tow__arena arena;
} tow__split_memo;

/* The answers of a policy while its region, and the loops and choices in it, are split: how many values it saves, and
 * how many of these are inputs under a name. */
typedef struct tow__policy_tally {
    uint32_t saved, inputs;
} tow__policy_tally;

/* The options of a split. */
typedef struct tow__manner {
    const tow_policy *policy; /* NULL: everything is saved (not inside a remat) */
    bool stage_known; /* known outputs that the unknown graph can recompute are outputs of it, too (inside an outer
                                 remat) */
    bool runs_once;   /* the unknown graph, for each run of the known one: arithmetic may be repeated in it */
    tow__policy_tally *tally;    /* of `policy`; NULL: nobody asks */
    struct tow__policy_log *log; /* of the policies of regions in the graph (policy_log.h); NULL: nobody asks */
} tow__manner;

/* in_available[i]: known input i can be read by the unknown graph as an input of its own; otherwise it becomes a
 * residual when needed. force_staged (may be NULL): outputs that the unknown graph must have, by way of residuals if
 * need be. memo (may be NULL): what earlier calls found. */
tow_status tow__partial_eval(const tow_graph *g, const bool *in_unknown, const bool *in_available, tow__manner manner,
                             const bool *force_staged, tow__split_memo *memo, tow__partial *p);
void tow__partial_free(tow__partial *p);
/* Gives up residuals that the unknown graph can make from what it is given anyway (thin.c): by moves alone, or with
 * arithmetic as well. in_unknown: [n_inputs] as above. On failure p is as it was, or half of it is; free it. */
tow_status tow__thin(tow__partial *p, uint32_t n_inputs, const bool *in_unknown, bool arithmetic);
void tow__split_memo_free(tow__split_memo *memo);

/* ---- transpose.c ------------------------------------------------------------------------------------------------- */

/* Records the transpose of g, which is linear in its inputs with linear[i]. in[i]: value of a nonlinear input.
 * ct[j]: cotangent of output j, null = zero. dx[i] for linear inputs: in: what has been accumulated so far (null:
 * nothing), out: that plus what g adds, term by term in reverse order of the equations, as if g's equations stood in
 * the caller. */
void tow__transpose_inline(tow_trace *t, const tow_graph *g, const bool *linear, const tow_value *in,
                           const tow_value *ct, tow_value *dx);

/* Inside a body that stands for g: repeats what is not linear in inputs with linear[i], then transposes what is. */
void tow__transpose_body(tow_trace *t, const tow_graph *g, const bool *linear, const tow_value *in, const tow_value *ct,
                         tow_value *dx);

/* linear[v]: value v of g depends on a linear input. NULL: no memory. */
bool *tow__linear_values(tow_trace *t, const tow_graph *g, const bool *linear_inputs);

#endif
