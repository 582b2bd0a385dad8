/* A primitive is one descriptor. This header is what the files of src/ops fill and what every pass reads.
 *
 * Rules are written with the public operations of ops.h: they record into the trace they are given. A missing rule has
 * a documented default:
 *   jvp        NULL: if `transpose` is given the primitive is linear in its operands of float type that carry tangents
 *                    (jvp = the same primitive on the tangents; for a primitive linear in each of several operands
 *                    jointly, such as add or concatenate, zero tangents are instantiated);
 *                    else if `decompose` is given, the decomposition is differentiated; else all derivatives are zero.
 *   transpose  NULL: only if no tangent ever flows into it.
 *   decompose  NULL: a base primitive, for which src/plan must know a kernel.
 */
#ifndef TOW_SRC_PRIMITIVE_H
#define TOW_SRC_PRIMITIVE_H

#include "src/graph/graph.h"
#include "src/ops/params.h"

typedef enum tow__kind {
    TOW__ELEMENTWISE, /* all operands and outputs have one shape */
    TOW__REDUCTION,
    TOW__DOT,    /* dot_general */
    TOW__MOVE,   /* rearranges or selects elements: reshape, slice, gather, ... */
    TOW__SOURCE, /* no operands: const, iota */
    TOW__RANDOM,
    TOW__NAME,
    TOW__REGION,   /* has a nested graph: call, remat, scan */
    TOW__COMPOSITE /* decomposes; counts as dots for policies if .batched_dot or .plain_dot */
} tow__kind;

typedef enum tow__param_kind {
    TOW__P_INT,    /* int64_t */
    TOW__P_PLAN,   /* int64_t that only plans set: neither printed nor read */
    TOW__P_FLOAT,  /* double */
    TOW__P_BOOL,   /* bool */
    TOW__P_DTYPE,  /* tow_dtype */
    TOW__P_INTS,   /* tow__ints */
    TOW__P_STRING, /* const char * (copied into the arena) */
    TOW__P_GRAPH,  /* tow_graph * (retained by the equation) */
    TOW__P_ARRAY,  /* tow_array * (retained) */
    TOW__P_POLICY  /* const tow_policy * (deep-copied) */
} tow__param_kind;

/* One field of a primitive's parameter struct: gives printing, parsing, copying, comparison and hashing. */
typedef struct tow__param {
    const char *name;
    tow__param_kind kind;
    size_t offset;
} tow__param;

/* What a type rule gets. It fills out[] and returns TOW_OK, or calls tow__fail(ctx, ...) and returns its status. The
 * message needs no source line or scope: bind prepends them and the operand types. */
typedef struct tow__typing {
    tow_context *ctx;
    const char *name; /* the primitive */
    const void *params;
    size_t n_in;
    const tow_type *in;
    size_t n_out;
    tow_type *out;
} tow__typing;

typedef tow_status (*tow__type_rule)(const tow__typing *ty);

typedef struct tow__reach tow__reach;

/* What a jvp rule gets. x: primal operands; dx: their tangents, null value = zero. It records and fills y (all n_out
 * primal outputs) and dy (null value = zero). */
typedef struct tow__jvp {
    tow_trace *t;
    const tow__equation *e;
    const tow_value *x, *dx;
    tow_value *y, *dy;
    bool reverse;            /* the result will be transposed: composites may use their fused pair */
    const bool *used;        /* used[i]: output i has a reader (or is a graph output) */
    const tow__reach *reach; /* of a region inside a loop: what gets tangents in its body; NULL: not known */
} tow__jvp;

/* Differentiates the primitive's decomposition instead: the rule where there is none, and what rules of composites do
 * in forward mode and for higher orders (src/autodiff/jvp.c). */
void tow__jvp_decomposed(tow__jvp *r);

/* What a transpose rule gets. linear[i]: operand i carries a tangent; x[i] is valid only where !linear[i].
 * ct[j]: cotangent of output j, null = zero (at least one is not). It fills dx[i] for linear operands (null = zero). */
typedef struct tow__transpose {
    tow_trace *t;
    const tow__equation *e;
    const tow_value *x;
    const bool *linear;
    const uint32_t *first; /* [n_in] the first operand that is the same value */
    const tow_type *in_types;
    const tow_value *ct;
    tow_value *dx;
} tow__transpose;

struct tow_primitive {
    const char *name;
    int inputs, outputs; /* -1: variable */
    tow__kind kind;
    bool batched_dot; /* composite that policies treat as a dot with batch dimensions (attention) */
    bool plain_dot;   /* composite that policies treat as a dot without them (linear_cross_entropy) */
    bool continues;   /* transpose gets in dx what has been accumulated so far (null: nothing), and adds to that */
    size_t params_size;
    const tow__param *params; /* ends with {0} */
    tow__type_rule type;
    void (*jvp)(tow__jvp *r);
    void (*transpose)(tow__transpose *r);
    void (*decompose)(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y);
    const char *const *output_names; /* composites: names of all outputs, NULL-terminated; NULL: none */
};

/* All primitives, sorted by name. */
extern const tow_primitive *const tow__primitives[];
extern const size_t tow__primitive_count;
const tow_primitive *tow__primitive_find(const char *name, size_t length); /* NULL if unknown */

#endif
