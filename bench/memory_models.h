/* Losses of models whose bytes bench_memory plans and whose steps bench_memory_clock times within limits. */
#ifndef BENCH_MEMORY_MODELS_H
#define BENCH_MEMORY_MODELS_H

#include "bench.h"

/* A model. The policy stands around each of its layers or blocks; NULL: it has no regions. */
typedef struct memory_model {
    const char *name, *what;
    /* The loss, and how many of its inputs, the first ones, are parameters. unrolled: without loops over layers. */
    tow_graph *(*loss)(bench *b, const struct memory_model *m, const tow_policy *policy, bool unrolled,
                       size_t *n_params);
    /* A training state with AdamW, whose updates happen as soon as gradients are complete; NULL: there is none. */
    tow_train_state *(*training)(bench *b, const struct memory_model *m, bool unrolled);
    bool has_loop;                               /* over its layers, or over time */
    int64_t batch, size, width, layers, classes; /* size: of images, sequences; width: features, those of the first
                                                     layer where others have more */
} memory_model;

/* Ends the program if there is none. */
const memory_model *memory_model_named(const char *name);
/* Value and gradients of the parameters. */
tow_graph *memory_gradient(bench *b, const memory_model *m, const tow_policy *policy, bool unrolled);

#endif
