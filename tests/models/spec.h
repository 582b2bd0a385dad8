/* A random model as data: drawn from a seed, changed into variants, built as layers, printed as a C program, shrunk. */
#ifndef TOW_TESTS_MODELS_SPEC_H
#define TOW_TESTS_MODELS_SPEC_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/models/compute.h"
#include "tests/models/made.h"

enum {
    MOST_OPS = 4,
    MOST_APPLICATIONS = 64 /* of layers, with all stacks unrolled */
};

/* X(symbol, most children, needs rank 3): what a node does is in the table of nodes.c. */
#define KINDS(X)                                                                                                       \
    X(N_OPS, 0, false)                                                                                                 \
    X(N_DENSE, 0, false)                                                                                               \
    X(N_GENERAL, 0, false)                                                                                             \
    X(N_MLP, 0, false)                                                                                                 \
    X(N_LAYER_NORM, 0, false)                                                                                          \
    X(N_RMS_NORM, 0, false)                                                                                            \
    X(N_DROPOUT, 0, false)                                                                                             \
    X(N_GATE, 0, false)                                                                                                \
    X(N_RUNNING, 0, false)                                                                                             \
    X(N_ATTENTION, 0, true)                                                                                            \
    X(N_TRANSFORMER, 0, true)                                                                                          \
    X(N_CHAIN, MOST_CHILDREN, false)                                                                                   \
    X(N_REMAT, 1, false)                                                                                               \
    X(N_SCAN, 1, false)                                                                                                \
    X(N_RESIDUAL, 1, false)                                                                                            \
    X(N_SHARED, 1, false)                                                                                              \
    X(N_IN_REMAT, 1, false)                                                                                            \
    X(N_IN_CALL, 1, false)                                                                                             \
    X(N_CHOICE, 1, false)                                                                                              \
    X(N_UNTIL, 1, false)                                                                                               \
    X(N_LOOP, 1, true)                                                                                                 \
    X(N_CELLS, 1, true)                                                                                                \
    X(N_RECURRENT, 0, true)                                                                                            \
    X(N_BIDIRECTIONAL, 0, true)                                                                                        \
    X(N_CONV_LSTM, 0, true)                                                                                            \
    X(N_ATTEND, 0, true)                                                                                               \
    X(N_BLOCK, 0, true)                                                                                                \
    X(N_GATED, 0, false)                                                                                               \
    X(N_FEATURE, 0, false)                                                                                             \
    X(N_TIME_CONV, 0, true)                                                                                            \
    X(N_SEQUENTIAL, 1, false)                                                                                          \
    X(N_PARALLEL, 2, false)                                                                                            \
    X(N_SCALED_RESIDUAL, 1, false)                                                                                     \
    X(N_METHOD, 1, false)                                                                                              \
    X(N_PRECISE, 1, false)                                                                                             \
    X(N_LORA, 1, false)                                                                                                \
    X(N_WEIGHT_NORM, 1, false)                                                                                         \
    X(N_SPECTRAL_NORM, 1, false)                                                                                       \
    X(N_RULED, 1, false)                                                                                               \
    X(N_REMAT_SCAN, 1, false)                                                                                          \
    X(N_STACK, 2, false)                                                                                               \
    X(N_MEMBERS, 1, false)                                                                                             \
    X(N_MAPPED, 1, true)                                                                                               \
    X(N_AXIS_CELLS, 1, true)                                                                                           \
    X(N_COND, 2, false)                                                                                                \
    X(N_WHILE, 1, false)

typedef enum kind {
#define X(symbol, children, rank3) symbol,
    KINDS(X)
#undef X
    KIND_COUNT
} kind;

/* Numbers mean, of those that made.h does not make: DENSE, GENERAL, MLP, TRANSFORMER: a features; GENERAL, ATTENTION,
 * TRANSFORMER: b heads; SCAN, SHARED, UNTIL: a iterations or applications; DROPOUT: a axis that shares a draw, or
 * -1. */
typedef struct node {
    kind kind;
    int64_t a, b;
    bool flag, other; /* no_bias, rms_norm or causal, unrolled and others: see nodes.c */
    int policy;       /* of REMAT and IN_REMAT */
    int ops[MOST_OPS], n_ops;
    int options[MOST_OPTIONS]; /* of what made.h makes: 0 to 3, 0 the default */
    int n_children;
    struct node *children[MOST_CHILDREN];
} node;

typedef struct model {
    uint32_t seed;
    int rank; /* of x: [rows, D] or [batch, time, D] */
    int64_t dims[3];
    int64_t tokens; /* 0: the input is x; else rows of the embedding of .dims[rank-1] features */
    bool tied;
    int loss;
    tow_standard_optimizer optimizer;
    node *body; /* a chain */
} model;

/* ---- tables ------------------------------------------------------------------------------------------------------ */

extern const struct policy_entry {
    const char *text;
    bool names; /* refers to "h" */
} model_policies[];
extern const int model_policy_count;
int model_op(const char *name); /* index, or -1 */
int model_op_count(void);       /* without planted faults */

/* ---- spec.c ------------------------------------------------------------------------------------------------------ */

/* fault: the name of a planted operation that is put in the model, or NULL. */
model draw_model(uint32_t seed, const char *fault);
model copy_model(const model *m);
void free_model(model *m);
node *copy_node(const node *n);
void free_node(node *n);
/* Width of the result for x of this rank and width; -1 if the node does not take it. */
int64_t node_width(const node *n, int rank, int64_t width);
bool model_is_valid(const model *m);
problem model_problem(const model *m);
/* Calls visit for a node and all below it. */
void visit_nodes(node *n, void (*visit)(node *n, void *user), void *user);
bool has_kind(const node *n, kind wanted);
/* Its layer is around an owner (made.h), which o[4] gives variables. */
bool is_owner(const node *n);
/* A TransformerBlock with .decode. */
bool block_decodes(const node *n);

/* ---- nodes.c ----------------------------------------------------------------------------------------------------- */

/* The layers of a model; freed with free_built. */
typedef struct built {
    void *memory[1024];
    int n;
} built;
const tow_module *build_model(built *b, side *s, const model *m);
void free_built(built *b);
/* A function `static results NAME(const problem *p)` that computes the model in this way. */
void print_side(FILE *file, const char *name, const model *m, const how *h);
void print_problem(FILE *file, const model *m);

/* ---- shrink.c ---------------------------------------------------------------------------------------------------- */

/* Makes m smaller while fails(m). */
void shrink_model(model *m, bool (*fails)(const model *m, void *user), void *user);

#endif
