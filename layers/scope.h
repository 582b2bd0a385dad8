/* Scopes: where a layer stands while it is called. Shared by layers/ and transforms/.
 *
 *   root -- "blocks" -- iteration (a level) -- "attn" -- "query"       path "blocks/{}/attn/query"
 *
 * A level is one scan being traced: the body sees rows of the stacked parameters and a traced index. All of this lives
 * in the memory of the trace. Paths are the identity of things: two scopes with one path are the same scope, and the
 * parameters and counters of random streams are kept by path. */
#ifndef TOW_LAYERS_SCOPE_H
#define TOW_LAYERS_SCOPE_H

#include "layers/keys.h"
#include "layers/params.h"
#include "src/graph/graph.h"
#include "tow/module.h"

/* One scan around the code that is being traced. */
typedef struct tow__level {
    struct tow__level *outer;
    int depth; /* 0: outermost */
    int64_t length;
    tow_value index; /* i32[], the iteration */
    tow_value *rows; /* per parameter of the model: its row in this iteration, or null; NULL while initialising */
} tow__level;

typedef struct tow__model tow__model;

struct tow_scope {
    tow__model *model;
    tow_scope *parent; /* NULL: root */
    const char *name;  /* last component of path */
    const char *path;  /* "" for the root */
    tow__level *level; /* innermost scan around, or NULL */
    bool iteration;    /* the component is the index of `level` */
    bool flax_keys;    /* an iteration that is folded into the root key instead of the path */
    int64_t fixed;     /* iteration of an unrolled scan, else -1 */
};

/* How a parameter is drawn. */
typedef struct tow__recipe {
    const tow_scope *scope;
    tow_initializer init;
    uint32_t counter;
    bool stale; /* drawn in a trace that does not count: the next request draws anew */
} tow__recipe;

/* What one tracing of a model shares. */
struct tow__model {
    tow_context *ctx;
    tow_trace *trace;
    tow_params *params;   /* initialising: recorded here; else given */
    tow__recipe *recipes; /* initialising: one per parameter */
    uint32_t recipe_capacity;
    tow_value *values; /* else: the graph's inputs, one per parameter */
    bool *used;
    bool initialising, deterministic;
    size_t n_streams;
    const char *const *streams;
    tow_value *stream_keys;
    tow__names counter_names; /* "stream:path" */
    uint32_t *counters;
    uint32_t counter_capacity;
};

/* ---- scope.c ----------------------------------------------------------------------------------------------------- */

/* Child of `scope` for one iteration of a scan. level: the loop is traced once; NULL: iteration `fixed` of an
 * unrolled one. */
tow_scope *tow__scope_iteration(tow_scope *scope, tow__level *level, int64_t fixed, bool flax_keys);
/* Calls a layer in this very scope and checks that it wrote its outputs. */
void tow__call_here(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                    tow_value *out);
bool tow__scope_failed(const tow_scope *scope);
/* An error about a parameter: the text begins with its path, so the scope is not put in front. The first error
 * sticks. */
__attribute__((format(printf, 3, 4))) void tow__params_fail(tow__model *model, tow_status status, const char *format,
                                                            ...);
/* Increments and returns the counter of a stream in a scope; 0: out of memory, reported. */
uint32_t tow__scope_count(tow_scope *scope, const char *stream);
/* Frees what the model allocated outside the trace. */
void tow__model_free(tow__model *model);

/* ---- variables.c ------------------------------------------------------------------------------------------------- */

/* Key of draw `counter` of `scope` on the host: Flax's rule, with index[depth] the iterations of the scans around. */
tow__key tow__scope_key(const tow_scope *scope, tow__key root, const int64_t *index, uint32_t counter);
/* Value of parameter `index` at this scope's level: the graph's input, or the row of the innermost scan that has
 * one. */
tow_value tow__param_value(const tow_scope *scope, uint32_t index);

#endif
