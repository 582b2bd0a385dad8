/* Losses of models whose bytes bench_memory plans: traced, differentiated and planned, never run. */
#ifndef BENCH_MEMORY_MODELS_H
#define BENCH_MEMORY_MODELS_H

#include "bench.h"

/* A model to plan. The policy stands around each of its layers or blocks; NULL: it has no regions. */
typedef struct memory_model {
    const char *name, *what;
    /* The loss, and how many of its inputs, the first ones, are parameters. unrolled: without loops over layers. */
    tow_graph *(*loss)(bench *b, const tow_policy *policy, bool unrolled, size_t *n_params);
    bool has_loop; /* over its layers */
} memory_model;

extern const memory_model memory_models[];
extern const size_t memory_models_count;

#endif
