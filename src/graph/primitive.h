/* A primitive is one descriptor. This header is what the files of src/ops fill and what every pass reads. Operations
 * that only plans make (src/plan/operations.h) have descriptors as well. Passes compare descriptors and ask for their
 * traits, never for names.
 *
 * Rules are written with the public operations of ops.h: they record into the trace they are given. A missing rule has
 * a documented default:
 *   jvp        NULL: if `transpose` is given the primitive is linear in its operands of float type that carry tangents
 *                    (jvp = the same primitive on the tangents; for a primitive linear in each of several operands
 *                    jointly, such as add or concatenate, zero tangents are instantiated);
 *                    else if `decompose` is given, the decomposition is differentiated; else all derivatives are zero.
 *   transpose  NULL: only if no tangent ever flows into it.
 *   batch      NULL: if `decompose` is given, the decomposition is batched; else the primitive becomes the body of a
 *              scan
 *                    over the rows, which is right for every primitive and slow. So everything can be batched.
 *   decompose  NULL: a base primitive, for which src/plan must know a kernel.
 *   view       NULL: the result needs elements of its own.
 * A tiling rule and a cost have no default: TOW__PRIMITIVE asks for both.
 */
#ifndef TOW_SRC_PRIMITIVE_H
#define TOW_SRC_PRIMITIVE_H

#include "src/base/dtypes.h"
#include "src/base/params.h"
#include "src/base/view.h"
#include "src/graph/graph.h"
#include "src/graph/graph_params.h"
#include "tow/primitive.h"

typedef enum tow__kind {
    TOW__ELEMENTWISE, /* all operands and outputs have one shape */
    TOW__REDUCTION,
    TOW__DOT, /* dot_general */
    TOW__CONVOLUTION,
    TOW__MOVE,   /* rearranges or selects elements: reshape, slice, gather, ... */
    TOW__SOURCE, /* no operands: const, iota */
    TOW__RANDOM,
    TOW__NAME,
    TOW__REGION,   /* has nested graphs that passes walk through (src/graph/region.h): call, scan, ... */
    TOW__COMPOSITE /* decomposes */
} tow__kind;

typedef enum tow__param_kind {
    TOW__P_INT,       /* int64_t */
    TOW__P_PLAN,      /* int64_t that only plans set: neither printed nor read */
    TOW__P_OF_HALVES, /* int64_t that plans set to 1 where the equation had operands of 16 bits before it was widened */
    TOW__P_COUNT,     /* int64_t that is mostly 0: neither printed nor read then */
    TOW__P_FLOAT,     /* double */
    TOW__P_AMOUNT,    /* double that is mostly 0: neither printed nor read then */
    TOW__P_BOOL,      /* bool */
    TOW__P_DTYPE,     /* tow_dtype */
    TOW__P_SUM_DTYPE, /* int64_t: 1 + a tow_dtype, or 0 for none; neither printed nor read then */
    TOW__P_INTS,      /* tow__ints */
    TOW__P_TYPES,     /* tow__types (the array is copied into the arena) */
    TOW__P_STRING,    /* const char * (copied into the arena) */
    TOW__P_GRAPH,     /* tow_graph * (retained by the equation) */
    TOW__P_GRAPHS,    /* tow__graphs (the array is copied into the arena, each graph is retained) */
    TOW__P_ARRAY,     /* tow_array * (retained) */
    TOW__P_POLICY     /* const tow_policy * (deep-copied) */
} tow__param_kind;

/* Parameters that only plans set are neither printed nor read. */
static inline bool tow__is_of_plans(tow__param_kind kind) { return kind == TOW__P_PLAN || kind == TOW__P_OF_HALVES; }

/* One field of a primitive's parameter struct: gives printing, parsing, copying, comparison and hashing. */
typedef struct tow__param {
    const char *name;
    tow__param_kind kind;
    size_t offset;
} tow__param;

/* The argument of a type rule, which fills out[] and returns TOW_OK, or calls tow__fail(ctx, ...) and returns its
 * status. The message needs no source line or scope: bind prepends them and the operand types. */
typedef struct tow__typing {
    tow_context *ctx;
    const char *name; /* the primitive */
    const void *params;
    size_t n_in;
    const tow_type *in;
    size_t n_out;
    tow_type *out;
    const tow_primitive *primitive;
} tow__typing;

typedef tow_status (*tow__type_rule)(const tow__typing *ty);

typedef struct tow__reach tow__reach;
typedef struct tow__region tow__region;

/* The argument of a jvp rule. x: primal operands; dx: their tangents, null value = zero. The rule records and fills y
 * (all n_out primal outputs) and dy (null value = zero). */
typedef struct tow__jvp {
    tow_trace *t;
    const tow__equation *e;
    const tow_value *x, *dx;
    tow_value *y, *dy;
    bool reverse;            /* the result will be transposed: composites may use their fused pair */
    const bool *used;        /* used[i]: output i has a reader (or is a graph output) */
    const tow__reach *reach; /* of a region inside a loop: what gets tangents in its body; NULL: not known */
    /* Differentiates the primitive's decomposition instead: what happens where there is no rule, and what rules of
     * composites do in forward mode and for higher orders. */
    void (*decomposed)(struct tow__jvp *r);
} tow__jvp;

/* The argument of a transpose rule. linear[i]: operand i carries a tangent; x[i] is valid only where !linear[i].
 * ct[j]: cotangent of output j, null = zero (at least one is not). The rule fills dx[i] for linear operands (null =
 * zero). */
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

/* A value of a batched program. axis: which of its axes counts the rows; TOW__UNBATCHED: all rows share the value. */
typedef struct tow__mapped {
    tow_value value;
    int axis;
    tow_value scalar; /* null, or the scalar that all elements of an unbatched value are */
} tow__mapped;

enum {
    TOW__UNBATCHED = -1
};

/* The argument of a batching rule: an equation, and operands of which at least one is batched. The rule records one
 * equation for all rows (src/ops/batching.h has those of whole families) and fills y; all results have a batch axis,
 * wherever it is. Row i of each result must have the bits of the equation on row i of the operands, on an engine whose
 * products do not depend on what shares a call. */
typedef struct tow__batch {
    tow_trace *t;
    const tow__equation *e;
    int64_t size;             /* rows */
    const tow_type *in, *out; /* types of the equation, which are those of a row */
    const tow__mapped *x;
    tow__mapped *y; /* unbatched null values at first */
    /* The two defaults, for a rule that does not cover everything. */
    void (*decomposed)(struct tow__batch *r);
    void (*looped)(struct tow__batch *r);
    const tow__reach *reach; /* of a region inside a loop: what is batched in its body; NULL: not known */
} tow__batch;

/* An operation as the rules of a plan see it: types and layouts, no elements. */
typedef struct tow__operation {
    const void *params;
    uint32_t n_in, n_out;
    const tow__view *in, *out;
    const tow_primitive *primitive;
} tow__operation;

enum {
    TOW__WHOLE = -1 /* of an operand, every block of the results needs all */
};

/* True if `axis` of all results may be computed block by block: the block of the results with elements [begin, end)
 * along that axis depends only on the block [begin, end) of operand i along its axis from[i], or on all of operand i
 * where from[i] is TOW__WHOLE, and computing it by itself gives the bits of the whole. For products this holds with the
 * sizes of the whole in the parameters `rows` and `columns`. */
typedef bool (*tow__tiling_rule)(const tow__operation *o, int axis, int *from);

/* True if the results are sums, or other reductions, over `axis` of operand i, to be joined as their elements are: the
 * results for [0, n) are those for [0, k) and for [k, n) added up (or the greater ones, ...), but for the order of
 * additions. A block needs the same block of operand j along its axis from[j], or all of it where from[j] is
 * TOW__WHOLE, which it is before the call. */
typedef bool (*tow__sum_rule)(const tow__operation *o, uint32_t i, int axis, int *from);

/* The cost of an operation, in floating-point operations. */
typedef struct tow__op_cost {
    double exact; /* what reports count (src/model/flops.h); TOW__COST_OF_PARTS: what the decomposition does */
    double
        estimate; /* what decisions of plans compare: that of products exactly, a guess by elements of anything else */
} tow__op_cost;

enum {
    TOW__COST_OF_PARTS = -1
};

typedef tow__op_cost (*tow__cost_rule)(const tow__operation *o);

/* The products, for which plans cut tiles, and which policies treat as dots: most of their work is multiplying and
 * adding. */
typedef enum tow__product_kind {
    TOW__NO_PRODUCT,
    TOW__PLAIN_PRODUCT,  /* a dot without batch dimensions, but for those that parameters of dot_general name */
    TOW__BATCHED_PRODUCT /* a dot with batch dimensions: attention, convolutions */
} tow__product_kind;

/* Makes *y, which has its type, storage and offset of x already, the result of the operation on x without moving
 * elements. False: it cannot be one. */
typedef bool (*tow__view_rule)(const void *params, const tow__view *x, tow__view *y);

/* The results that a kernel may write over operands of the same type that lie whole and in order. */
typedef enum tow__aliasing {
    TOW__ALIAS_NONE,
    TOW__ALIAS_ANY,   /* result 0 over any operand */
    TOW__ALIAS_EACH,  /* every result over any operand */
    TOW__ALIAS_FIRST, /* result 0 over operand 0 */
    TOW__ALIAS_LAST   /* result 0 over the last operand */
} tow__aliasing;

struct tow_primitive {
    const char *name;
    int inputs, outputs;  /* -1: variable */
    const char *operands; /* their names, for tables; NULL: x, y, z or x... */
    tow__kind kind;
    tow__tiling_rule tile;
    tow__sum_rule sums; /* NULL: the results are sums over no axis */
    tow__cost_rule cost;
    tow__view_rule view;
    tow__aliasing aliasing;
    tow__product_kind product;
    bool arithmetic;   /* to compute it again costs no more than to read what was kept of it */
    bool reduces_axis; /* each row, or a part of it, becomes fewer numbers or is compared with them, so that several
                          operations in turn read whole rows */
    bool linear;       /* with a transpose: its tangents are itself on tangents, also where it has a decomposition */
    /* With a transpose: is equation e linear in those of its float operands that depend on tangents? depends: [values
     * of the graph]. NULL: in all of them together. A product is linear in one operand alone. */
    bool (*linear_in)(const tow__equation *e, const bool *depends);
    bool (*effect)(const void *params); /* of these parameters: something happens besides the results; NULL: nothing */
    bool of_result;                     /* its kernel is that of the type of the result: operand 0 are indices */
    bool of_first;                      /* its kernel is that of the type of operand 0: others may be stored in less */
    bool takes_blocks;                  /* it takes and gives elements of several numbers (TOW_BLOCK_DTYPE_LIST) */
    bool host;                          /* runs on the thread that runs the program, and may end the run */
    bool varies;    /* two calls on the same operands may give other bits: it is never computed again */
    bool continues; /* transpose gets in dx what has been accumulated so far (null: nothing), and adds to that */
    size_t params_size;
    const tow__param *params; /* ends with {0} */
    tow__type_rule type;
    void (*jvp)(tow__jvp *r);
    void (*transpose)(tow__transpose *r);
    void (*batch)(tow__batch *r);
    void (*decompose)(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y);
    const tow__region *region;       /* of a primitive with nested graphs: how it uses them (src/graph/region.h) */
    const char *const *output_names; /* composites: names of all outputs, NULL-terminated; NULL: none */
    const tow_primitive_definition *definition; /* by a user of the library, whose functions the rules call; or NULL */
};

/* Defines tow__NAME_p with what no primitive can be without: TOW__PRIMITIVE(name, kind, tiling rule, cost,
 * fields...). */
#define TOW__PRIMITIVE(name_, kind_, tile_, cost_, ...)                                                                \
    const tow_primitive tow__##name_##_p = {.name = #name_, .kind = kind_, .tile = tile_, .cost = cost_, __VA_ARGS__}

/* The nested graphs of an equation with these parameters, in the order of the fields. Of parameters under construction
 * one may be NULL. */
uint32_t tow__nested_count(const tow_primitive *primitive, const void *params);
tow_graph *tow__nested(const tow_primitive *primitive, const void *params, uint32_t index);

/* All primitives of graphs, sorted by name. */
extern const tow_primitive *const tow__primitives[];
extern const size_t tow__primitive_count;
const tow_primitive *tow__primitive_find(const char *name, size_t length); /* NULL if unknown */
/* The one that was defined in the context; NULL: none (ops/define.c). */
const tow_primitive *tow__primitive_defined(const tow_context *ctx, const char *name, size_t length);

#endif
