/* The graph: typed SSA, and the trace that builds it. Shared by ops, autodiff and plan.
 *
 *   graph g:   inputs ──> equations in order ──> outputs
 *              every value is an index into vars; vars[v].equation says who makes it (TOW__INPUT: a graph input)
 *   A graph is closed and, once built, never changes; nested graphs hang in parameters of equations (remat, scan,
 *   call), which hold a reference each. All memory of a graph is in its arena.
 *
 *   trace:     a stack of builders; operations record into the innermost one. A value of an outer builder that an inner
 *              one uses becomes an extra input of the inner graph (closure conversion), in order of first use.
 */
#ifndef TOW_SRC_GRAPH_H
#define TOW_SRC_GRAPH_H

#include "src/base/base.h"
#include "src/base/options.h"
#include "tow/graph.h"
#include "tow/primitive.h"

#define TOW__INPUT UINT32_MAX

/* The axis of an equation's results along which the rows of each vmap around it lie, outermost first. */
typedef struct tow__row_axes {
    uint8_t n;
    int8_t axis[TOW_MAX_RANK]; /* TOW__ROWS_SHARED: the results are the same for all rows; TOW__ROWS_UNKNOWN */
} tow__row_axes;
enum {
    TOW__ROWS_SHARED = -1,
    TOW__ROWS_UNKNOWN = -2
};

/* The pass of a gradient that an equation belongs to. Differentiation marks it, and functions that make other graphs of
 * a graph keep it, with the source. The later one of two phases counts. */
typedef enum tow__phase {
    TOW__FORWARD,   /* the forward pass, or no gradient */
    TOW__BACKWARD,  /* the transpose */
    TOW__RECOMPUTED /* makes again in the backward pass what remat does not keep */
} tow__phase;

/* The origin of an equation, for reports: the equation that somebody wrote and that it stands for, the derivative rule
 * that recorded it, and the answer of a policy about keeping its results. */
typedef struct tow__reason {
    uint32_t number;           /* of the equation that was written, never used twice in a context; 0: none */
    uint32_t line;             /* of the text that was read; 0: none was */
    uint8_t verdict;           /* tow_verdict + 1, of the policy that was asked last; 0: none was */
    const tow_primitive *rule; /* the one whose derivative rule recorded the equation; NULL: none */
    const char *policy;        /* the policy that was asked, as text; NULL: there was none */
} tow__reason;

typedef struct tow__source {
    const char *here;  /* "file.c:12", or NULL */
    const char *scope; /* "blocks/attn", or NULL */
    tow__row_axes rows;
    tow__phase phase;
    tow__reason why;
    uint32_t mark; /* what the search for a plan within a memory limit says about the results: number of the equation
                      from 1 on (0: an override), TOW__MARK_BITS of verdict + 1; 0: nothing (policy.h) */
} tow__source;

typedef struct tow__var {
    tow_type type;
    uint32_t equation; /* who makes it, or TOW__INPUT */
    uint32_t index;    /* which of its outputs (or of the inputs in order of creation) */
} tow__var;

typedef struct tow__equation {
    const tow_primitive *primitive;
    const void *params; /* primitive->params_size bytes in the graph's arena, NULL if none */
    uint32_t n_in, n_out;
    uint32_t *in, *out; /* vars */
    tow__source source;
} tow__equation;

struct tow_graph {
    tow_context *ctx;
    atomic_size_t references;
    tow__arena arena;
    tow__var *vars;
    uint32_t n_vars;
    tow__equation *equations;
    uint32_t n_equations;
    uint32_t *inputs;
    const char **input_names; /* entries may be NULL */
    uint32_t n_inputs;
    uint32_t *outputs;
    uint32_t n_outputs;
    bool has_effects;                 /* of an equation, here or in a nested graph (effects.c) */
    uint32_t depth;                   /* levels of nested graphs, this one counted */
    const struct tow__origin *origin; /* of a gradient: what it is the gradient of (variants.h); or NULL */
};

/* Levels of a graph that somebody writes, in C or as text. Differentiation makes none deeper than what it is given, so
 * whatever is printed can be read again; all walks over nested graphs may recurse. Only plans nest further. */
enum {
    TOW__DEEPEST_GRAPH = 64
};

/* Equations that a loop may be written out to (tow_scan_options.unroll, tow_scan.unrolled): some 20 seconds of
 * compilation. */
enum {
    TOW__MOST_UNROLLED = 1 << 20
};

/* For functions that a caller may give NULL in place of a graph. */
static inline tow_context *tow__context_of(const tow_graph *g) { return g ? g->ctx : NULL; }

/* ---- traces ------------------------------------------------------------------------------------------------------ */

/* A trace that passes use: begin, add inputs, record, end. Tracing a C function is this plus one call. */
tow_trace *tow__trace_begin(tow_context *ctx); /* NULL: out of memory */
/* Closes the outermost builder; frees the trace. On any sticky error returns its status and *graph = NULL.
 * Runs dead code elimination if `dce`. */
tow_status tow__trace_end(tow_trace *t, size_t n_outputs, const tow_value *outputs, bool dce, tow_graph **graph);
void tow__trace_abandon(tow_trace *t); /* frees without a result; NULL accepted */
/* Begins a trace in which g will be inlined, with room for what stands for its inputs and its outputs. NULL: out of
 * memory. */
tow_trace *tow__trace_begin_over(const tow_graph *g, tow_value **in, tow_value **out);

bool tow__failed(const tow_trace *t); /* an error sticks */
/* True if operations do anything: not without a trace, after an error, or in a trace that has ended, of which the
 * context hears. here (may be NULL): who asks. */
bool tow__records(const tow_trace *t, const char *here);
/* The sticky error, which is repeated in the context, where traces that began since have cleared it; or TOW_OK. */
tow_status tow__report(tow_trace *t);
/* Makes the error that stands in the context (of a failed inner pass) the sticky error of the trace. */
void tow__adopt_error(tow_trace *t);
/* Equations recorded so far in the innermost builder. */
uint32_t tow__recorded(const tow_trace *t);
/* Equations belong to this phase from here on, or to that of their source. Returns the phase before. */
tow__phase tow__set_phase(tow_trace *t, tow__phase phase);
/* The equations recorded so far are the forward pass of a gradient, also those of the backward pass of another one. */
void tow__mark_forward(tow_trace *t);
/* Policies around the regions of the trace, for their checkpoint names (policy.h); and memory that lives as long as
 * it. */
struct tow__named_policies *tow__trace_policies(tow_trace *t);
/* A checkpoint name that no region of its policy has is an error at the first of them. The end of a trace looks
 * itself. */
void tow__check_policies(tow_trace *t);
tow__arena *tow__trace_arena(tow_trace *t);
/* Number of the innermost builder, which no other one of the trace has or had. */
uint32_t tow__innermost_serial(const tow_trace *t);
/* A new input of the innermost builder. name may be NULL. */
tow_value tow__input(tow_trace *t, tow_type type, const char *name);

/* Nested bodies. Between push and pop, operations record into the body; outer values used there become captures.
 * Pop closes the body: its inputs are captures first, then explicit inputs in order of creation. The captured outer
 * values (valid in the surrounding builder) are returned in *captures (trace memory, n_captures long), so a caller
 * binds the equation with operands captures ++ explicit. Returns NULL on a sticky error (the builder is popped all the
 * same). */
void tow__push(tow_trace *t);
/* True if a body with `depth` levels of graphs, itself counted, may be nested in the innermost builder. If not, the
 * error sticks. For what somebody writes. */
bool tow__may_nest(tow_trace *t, uint32_t depth);
tow_graph *tow__pop(tow_trace *t, size_t n_outputs, const tow_value *outputs, size_t *n_captures, tow_value **captures);

/* The value `v` as a value of the innermost builder: itself, or captured through all builders between.
 * bind does this for its operands. Null value on error. */
tow_value tow__import(tow_trace *t, tow_value v);
/* Null values that say why they are null: an operation on no operands knows no trace that it could tell. Operations
 * hand them on. */
typedef enum tow__null_cause {
    TOW__NULL_UNKNOWN,
    TOW__NULL_CONCATENATE,
    TOW__NULL_STACK,
    TOW__NULL_EINSUM,
    TOW__NULL_SORT
} tow__null_cause;
tow_value tow__null_because(tow__null_cause cause);
/* "what tow_concatenate makes of no values (give it at least one)", or `otherwise`. */
const char *tow__null_text(tow_value null, const char *otherwise);
/* The equation of the innermost builder that makes v, as its result number *result. False: there is none. *e is a copy,
 * whose lists live as long as the trace. */
bool tow__made_by(tow_trace *t, tow_value v, tow__equation *e, uint32_t *result);
/* Value number `var` of the innermost builder, an operand of such an equation. */
tow_value tow__value_of(tow_trace *t, uint32_t var);
/* True if import would give a value; false with the same error. For what asks only for the type, which a value without
 * a place does not have. */
bool tow__is_current(tow_trace *t, tow_value v);

/* The only way in: records `primitive` on `in`, with params copied (nested graphs retained), types by the primitive's
 * rule. Fills out[0..n_out) with values, or null values after an error. n_out must be what the type rule yields (for
 * variadic primitives the caller knows it). */
void tow__bind(tow_trace *t, const tow_primitive *primitive, const void *params, size_t n_in, const tow_value *in,
               size_t n_out, tow_value *out);
tow_value tow__bind1(tow_trace *t, const tow_primitive *primitive, const void *params, size_t n_in,
                     const tow_value *in);
/* The types of the results that bind would record for operands of these types. An error sticks to the trace. */
tow_status tow__infer(tow_trace *t, const tow_primitive *primitive, const void *params, size_t n_in, const tow_type *in,
                      size_t n_out, tow_type *out);

/* Source that following equations get instead of the operands' `here` (passes set it per equation); NULL ends it. */
void tow__set_source(tow_trace *t, const tow__source *source);
/* The scope of what is recorded from here on ("blocks/attn"), which changes with the next push or pop; NULL: none. */
const char *tow__get_scope(const tow_trace *t);
/* The pointer that the caller of a function that is being traced leaves for calls inside of it; NULL at first
 * (custom_function.c). */
void tow__set_open_call(tow_trace *t, void *call);
void *tow__open_call(const tow_trace *t);
/* The equations of the innermost builder from `first` on are those that stand for e in a vmap, whose rows are axis
 * `axis` of their results; TOW__ROWS_SHARED, TOW__ROWS_UNKNOWN. */
void tow__mark_rows(tow_trace *t, uint32_t first, const tow__equation *e, int axis);
/* Memory that lives as long as the trace. Zeroed; NULL with a sticky error. */
void *tow__trace_alloc(tow_trace *t, size_t count, size_t size);
/* As tow__options_take (src/base/options.h), for functions that record: false after a sticky error. */
bool tow__trace_options(tow_trace *t, const tow__struct_kind *kind, void *options, void *own);
#define TOW__TRACE_OPTIONS(t, type, options, own)                                                                      \
    (TOW__SAME_TYPE(type, options, own), tow__trace_options(t, TOW__STRUCT_KIND(type), &(options), own))

/* Places for the n values that a C function is to write, with guards behind them, since it does not see n; NULL with a
 * sticky error. After the function, the check reports a write within the 64 places behind the last one. what: what the
 * function knows the places as. */
tow_value *tow__guarded_alloc(tow_trace *t, size_t n);
void tow__check_guards(tow_trace *t, const char *what, size_t n, const tow_value *values);

/* Records all equations of `g` in the innermost builder, inputs replaced by `in`; nested graphs stay nested. */
void tow__inline(tow_trace *t, const tow_graph *g, const tow_value *in, tow_value *out);
/* The same with something else recorded for each equation e of g. x: its operands, which may be changed; y: its
 * results, null at first. */
typedef void (*tow__recorder)(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                              const void *user);
void tow__inline_by(tow_trace *t, const tow_graph *g, tow__recorder record, const void *user, const tow_value *in,
                    tow_value *out);
/* *copy: a graph with the inputs of g, recorded in this way; the caller releases it. */
tow_status tow__copy_by(const tow_graph *g, tow__recorder record, const void *user, tow_graph **copy);
/* The name of the scope of an equation in the body of a loop where the body stands for iterations number, number +
 * every, ...
 * or, if `every` is 0, for that one alone. around: the scope of the loop, "" for none. In memory of the trace; `scope`
 * itself: it is of no iteration and stays. NULL: out of memory, reported. */
typedef const char *(*tow__iteration_scope)(tow_trace *t, const char *scope, const char *around, int64_t number,
                                            int64_t every);
/* Scopes of loops whose bodies are recorded more than once are called so from here on; NULL, at first: they stay. */
void tow__set_iteration_scope(tow_trace *t, tow__iteration_scope rename);
tow__iteration_scope tow__get_iteration_scope(const tow_trace *t);
/* As tow__inline, of the body g of a loop that is recorded more than once, with the scopes, in nested graphs, too, of
 * iterations number, number + every, ... or, if `every` is 0, of that one. */
void tow__inline_iteration(tow_trace *t, const tow_graph *g, int64_t number, int64_t every, const tow_value *in,
                           tow_value *out);
/* Re-binds one equation on new operands. */
void tow__rebind(tow_trace *t, const tow__equation *e, const tow_value *in, tow_value *out);
/* The same with its source on values [n_vars] of its graph, which receive the results. False: no memory. */
bool tow__rebind_among(tow_trace *t, const tow__equation *e, tow_value *values);

/* One more reference to a graph that is only read: counting changes nothing else in it. */
tow_graph *tow__graph_share(const tow_graph *g);

/* Does anything happen besides the results: is the equation, or one that its regions run, kept, once, in its place? */
bool tow__has_effect(const tow__equation *e);
bool tow__any_effect(const tow__equation *equations, uint32_t n);
/* The graph without what is there for its effects alone, for what repeats work. An equation with an effect and results
 * is an error. */
tow_status tow__without_effects(const tow_graph *g, tow_graph **result);
/* The parameters of a region over such bodies, and the end of their references, also after an error. */
tow_status tow__own_without_effects(tow_trace *t, const tow__equation *e, void **params);
void tow__release_owned(const tow_primitive *primitive, void *params);

/* DCE with outputs dropped: keeps outputs i with used[i] (NULL: all). kept_inputs (may be NULL; n_inputs long) receives
 * which inputs the rest still needs; with `drop_inputs` the unneeded ones are removed from the result. */
tow_status tow__dce(const tow_graph *g, const bool *used, bool drop_inputs, bool *kept_inputs, tow_graph **result);

/* Debug switch: passes call this on their result; it checks when the environment variable TOW_CHECK is set or in debug
 * builds. */
tow_status tow__verify(tow_graph *g, const char *pass);
/* Do passes verify what they made? In debug builds, and where TOW_CHECK is 1 in the environment. */
bool tow__checks_wanted(void);

#endif
