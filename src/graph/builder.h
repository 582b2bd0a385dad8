/* Inside src/graph: the builder of one graph, and parameters handled by their table. */
#ifndef TOW_SRC_BUILDER_H
#define TOW_SRC_BUILDER_H

#include "src/graph/graph.h"
#include "src/graph/primitive.h"

/* ---- parameters, by the primitive's table (params.c) ----------------------------------------------------------- */

/* A copy in `arena`, strings and policies included (of a policy, the names that the nested graph has), graphs and
 * arrays not yet retained. False: out of memory. */
bool tow__params_copy(tow__arena *arena, const tow_primitive *primitive, const void *params, const void **copy);
/* Puts a graph in the place of nested graph `index`. */
void tow__set_nested(const tow_primitive *primitive, void *params, uint32_t index, tow_graph *graph);
/* A copy in the memory of the trace whose graphs may be replaced; none is retained. False: out of memory, which
 * sticks. */
bool tow__params_own(tow_trace *t, const tow_primitive *primitive, const void *params, void **own);
/* The name of a parameter whose graph or array is NULL, or NULL if there is none. */
const char *tow__missing_param(const tow_primitive *primitive, const void *params);
void tow__params_retain(const tow_primitive *primitive, const void *params);
void tow__params_release(const tow_primitive *primitive, const void *params);
bool tow__params_equal(const tow_primitive *primitive, const void *a, const void *b);
uint64_t tow__params_hash(uint64_t seed, const tow_primitive *primitive, const void *params);
/* Graphs are equal if they have the same inputs, equations (without sources) and outputs, in order. */
bool tow__graph_equal(const tow_graph *a, const tow_graph *b);

/* ---- the builder of one graph (builder.c) ---------------------------------------------------------------------- */

/* An outer value that the body uses: its id in the trace, and the value that stands for it here. */
typedef struct tow__capture {
    uint32_t outer, inner; /* ids of values of the trace */
    uint32_t var;
} tow__capture;

/* An array that grows by doubling. */
typedef struct tow__vector {
    void *data;
    uint32_t count, capacity;
} tow__vector;

/* The next element (zeroed), or NULL with the error set in ctx. */
void *tow__vector_push(tow_context *ctx, tow__vector *v, size_t size);
void tow__vector_free(tow_context *ctx, tow__vector *v, size_t size);

typedef struct tow__named_input {
    uint32_t var;
    const char *name;
} tow__named_input;

typedef struct tow__builder {
    tow_graph *graph;      /* its arena holds what equations point to; the rest is in the vectors until it closes */
    uint32_t serial;       /* never used twice within a trace */
    tow__vector vars;      /* tow__var */
    tow__vector equations; /* tow__equation */
    tow__vector inputs;    /* tow__named_input, explicit ones */
    tow__vector captures;  /* tow__capture, in order of first use */
    uint32_t *slots;       /* hash table: outer id -> 1 + index into captures; 0: free */
    uint32_t n_slots;
    tow__source last; /* the last source copied into the arena */
} tow__builder;

bool tow__builder_init(tow__builder *b, tow_context *ctx, uint32_t serial);
/* Frees everything, nested graphs included. */
void tow__builder_free(tow__builder *b, tow_context *ctx);
/* A new var, or TOW__INPUT (out of memory). */
uint32_t tow__builder_var(tow__builder *b, tow_type type, uint32_t equation, uint32_t index);
/* The capture of outer value `outer`, or NULL. */
const tow__capture *tow__builder_find(const tow__builder *b, uint32_t outer);
bool tow__builder_capture(tow__builder *b, tow__capture capture);
bool tow__builder_input(tow__builder *b, uint32_t var, const char *name);
/* Appends an equation; its outputs are new vars of `types`. NULL: out of memory, and nothing was added. */
const tow__equation *tow__builder_equation(tow__builder *b, const tow_primitive *primitive, const void *params,
                                           uint32_t n_in, const uint32_t *in, uint32_t n_out, const tow_type *types,
                                           const tow__source *source);
/* Moves everything into the graph, which the caller then owns, and frees the builder. NULL: out of memory. */
tow_graph *tow__builder_close(tow__builder *b, uint32_t n_outputs, const uint32_t *outputs);

/* tow__equation: those recorded so far in the outermost builder (trace.c). */
const tow__vector *tow__trace_equations(const tow_trace *t);
/* The source that tow__set_source was last given (trace.c), so that it can be put back. */
const tow__source *tow__get_source(const tow_trace *t);

#endif
