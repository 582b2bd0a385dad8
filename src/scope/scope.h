/* Scopes: where a layer stands while it is called. Shared by layers/ and transforms/. This header has the structs. A
 * file of the folder calls those that stand before it in this list alone:
 *
 *   scope      children, paths, messages, counters
 *   lift       the rules of the transforms around a scope
 *   streams    random keys
 *   frames     values in the bodies that are traced
 *   dtypes     element types
 *   store      parameters and variables as they are stored
 *   views      what the layers around a layer make of them
 *   variables  requests of a layer, which go through its views to the store
 *   layer      checks and parameters of layers
 *   sow        values that a call hands out
 *   calls      calling a layer
 *
 *   root -- "blocks" -- iteration (a level) -- "attn" -- "query"       path "blocks/{}/attn/query"
 *
 * A level is one scan being traced: the body sees rows of the stacked parameters and a traced index. All of this lives
 * in the memory of the trace. Paths are the identity of things: two scopes with one path are the same scope, and the
 * parameters, variables and counters of random streams are kept by path.
 *
 * A frame is one body being traced: the model's own, or that of a remat or a scan. Writing a variable changes its value
 * in the innermost frame; when the body closes, the new value becomes one more of its outputs and is written in the
 * frame around. So an update is an output of the forward pass like any other, and recomputing the body repeats none.
 * Bodies that a layer makes with tow_remat_function, tow_scan_function, tow_cond_function or the like have no frame:
 * there parameters, keys and variables are read as outer values, and nothing can be written or sown. */
#ifndef TOW_SRC_SCOPE_SCOPE_H
#define TOW_SRC_SCOPE_SCOPE_H

#include "src/base/keys.h"
#include "src/graph/graph.h"
#include "src/params/params.h"
#include "tow/module.h"

/* One scan around the code that is being traced. */
typedef struct tow__level {
    struct tow__level *outer;
    int depth; /* 0: outermost */
    int64_t length;
    tow_value index; /* i32[], the iteration */
} tow__level;

/* The condition or the body of a while around the code that is being traced. Nobody knows how many iterations there
 * are, so they have no place in paths; streams that are split fold the index into their root key, as Flax does: i in
 * the body, -i in the condition. */
typedef struct tow__repetition {
    tow_value index; /* i32[], the iteration */
    bool negative;   /* in the condition */
    bool used;       /* some key was made of the index */
} tow__repetition;

/* A value that was sown, in order. */
typedef struct tow__sown {
    struct tow__sown *next;
    const char *path; /* "intermediates/blocks/{}/hidden/0" */
    tow_value value;
    bool reduced;   /* tow_sow_with: one value of all calls */
    double initial; /* of it, where there is none before */
} tow__sown;

/* One body being traced. Arrays are NULL until they are needed, entries null where the frame around decides. */
typedef struct tow__frame {
    struct tow__frame *outer;
    tow_value *params; /* per parameter: its value in this body */
    tow_value *state;  /* per variable: its value in this body, as it entered or was last written */
    bool *written;     /* per variable */
    tow__sown *sown;
    uint32_t serial; /* of this frame; 0: the outermost */
    uint32_t body;   /* serial number of the builder that records the body */
    bool unreturned; /* within a body that has no frame, from which nothing written gets out */
    bool silent;     /* within the condition of a while, out of which nothing sown gets either: sowing does nothing */
} tow__frame;

typedef struct tow__model tow__model;
typedef struct tow__layer_call tow__layer_call; /* src/scope/calls.h */
typedef struct tow__call_log tow__call_log;
typedef struct tow__capture_state {
    bool done;          /* an output was handed out */
    const char *hidden; /* the path of a layer that matches in a body without a frame, or NULL */
} tow__capture_state;

typedef struct tow__scope_view tow__scope_view; /* src/scope/views.h */

/* The rules of a transform for the entries that the layer in it asks for (src/scope/lift.h). */
typedef struct tow__lift {
    const tow_lift_rule *variables,
        *streams; /* the first one that matches counts; end with .pattern NULL, may be NULL */
    bool *used;   /* per rule of variables: it matched something */
} tow__lift;

/* Components of a path, and calls of layers in one another: walks over them may recurse. */
enum {
    TOW__DEEPEST_SCOPE = 128
};

struct tow_scope {
    tow__model *model;
    tow_scope *parent;            /* NULL: root */
    const char *name;             /* last component of path */
    const char *path;             /* "" for the root */
    int depth;                    /* components of the path */
    tow__level *level;            /* innermost scan around, or NULL */
    bool iteration;               /* the component is the index of `level` */
    int axis;                     /* of a resolved iteration: where its axis is in what it stacks (names.h) */
    bool covered;                 /* an iteration whose number the iteration below counts on: it has no component */
    int64_t first, stride;        /* an iteration i is layer first + stride i of its stack */
    int64_t unit;                 /* with Flax's keys, layer k takes key k / unit of the split */
    bool mapped;                  /* a row of a vmap */
    bool flax_keys;               /* an iteration that is folded into the root key instead of the path */
    int64_t fixed;                /* iteration of an unrolled scan, else -1 */
    bool transparent;             /* no component: a place for `lift` */
    tow__repetition *repeated;    /* of a transparent scope: it is within this while; else NULL */
    bool lifted;                  /* here or above is a lift, or a while */
    const tow__lift *lift;        /* of an iteration or a transparent scope; may be NULL */
    tow__scope_view *view;        /* of parameters and variables here and below; NULL: as they are stored */
    bool kept;                    /* of what a view keeps beside a parameter (tow__open_beside) */
    tow_dtype dtype, param_dtype; /* the defaults of layers here and below (TOW_PRECISION); 0: none */
    const struct tow__storage_rules *storage; /* rules of types here and below (storage.h); NULL: none */
};

/* The draw of a parameter or of the initial value of a variable. */
typedef struct tow__recipe {
    const tow_scope *scope; /* resolved */
    const tow_scope *keys;  /* the one whose path its key is made of */
    tow_initializer init;
    uint32_t counter;
    int levels;        /* axes that are iterations */
    uint32_t recorded; /* how many the store had recorded before it, redrawn ones counted again */
    bool stale;        /* drawn in a trace that does not count: the next request draws anew */
} tow__recipe;

/* The parameters, by their paths; or the variables of all other collections, by "collection/path". */
typedef struct tow__store {
    tow_params *list;     /* initializing: recorded here; else given */
    tow__recipe *recipes; /* initializing: one per entry */
    uint32_t recipe_capacity, recorded;
    bool *used; /* else: the model asked for it */
} tow__store;

/* The state of one tracing of a model. */
struct tow__model {
    tow_context *ctx;
    tow_trace *trace;
    tow__store params, state;
    tow__frame *frame;                      /* innermost; the outermost holds the graph's inputs */
    uint32_t frames;                        /* that were opened */
    const char *const *mutable_collections; /* may be NULL */
    tow__names sown_collections;            /* into which something was to be sown */
    const char *at;                         /* path of the scope in which the model is called, "" for the root */
    bool initializing, deterministic;
    tow_scan_keys keys;
    int calls;                    /* of layers that have not returned */
    tow__layer_call *open_call;   /* the innermost of them */
    tow__call_log *log;           /* NULL: calls are not listed */
    const char *const *capture;   /* patterns of layers whose outputs are sown; may be NULL */
    tow__capture_state *captured; /* per pattern */
    size_t n_streams;
    const char *const *streams;
    tow_value *stream_keys;
    tow__names counter_names; /* "stream:path" */
    uint32_t *counters;
    uint32_t counter_capacity;
    tow_graph **graphs; /* initializing: by which values will be drawn; released with the model */
    uint32_t n_graphs;
};

/* An iteration of a scan: of a loop, which is traced once, if level is not NULL; else iteration `fixed` of an unrolled
 * one. */
typedef struct tow__turn {
    tow__level *level;
    int64_t fixed;
    int64_t first, stride, unit; /* as in tow_scope */
    bool covered, flax_keys, mapped;
    const tow__lift *lift;
} tow__turn;
tow_scope *tow__scope_iteration(tow_scope *scope, const tow__turn *turn);
/* The scope of the parameter at a path that begins in `from`, "../embed/embedding", and its *name, "embedding". NULL:
 * it is no such path, or an error sticks. */
tow_scope *tow__scope_at(const tow_scope *from, const char *path, const char **name);
/* True if a scan draws as Flax's. */
static inline bool tow__flax_keys(const tow_scope *scope, tow_scan_keys keys)
{
    return (keys == TOW_KEYS_DEFAULT ? scope->model->keys : keys) == TOW_KEYS_FLAX;
}
/* The component that stands for a resolved or plain iteration in the path, the covered ones above it included. Returns
 * false and the number where all are unrolled. */
bool tow__scope_numbering(const tow_scope *scope, tow__numbering *numbering);
/* The same scope with a place for rules and for a while, both of which may be NULL. Out of memory, reported: the scope
 * itself. */
tow_scope *tow__scope_lifted(tow_scope *scope, const tow__lift *lift, tow__repetition *repeated);
bool tow__scope_failed(const tow_scope *scope);
/* True, reported, if `depth` is too deep for components of a path or for calls of layers in one another. */
bool tow__too_deep(tow_scope *scope, int depth);
/* The component is an iteration of a scan, a loop's or an unrolled one, and no child with a name. */
static inline bool tow__scope_is_iteration(const tow_scope *scope) { return scope->iteration || scope->fixed >= 0; }
/* An error about a parameter or variable: the text begins with its path, so the scope is not put in front. The first
 * error sticks. */
__attribute__((format(printf, 3, 4))) void tow__params_fail(tow__model *model, tow_status status, const char *format,
                                                            ...);
/* Increments and returns the counter of a stream in a scope; 0: out of memory, reported. */
uint32_t tow__scope_count(tow_scope *scope, const char *stream);
/* Frees what the model allocated outside the trace. */
void tow__model_free(tow__model *model);
/* True if `collection` is among `list` (NULL-terminated, or NULL). */
bool tow__collection_listed(const char *const *list, const char *collection);
/* True if `path` ("collection/...") is in `collection`. */
bool tow__path_in(const char *path, const char *collection);

#endif
