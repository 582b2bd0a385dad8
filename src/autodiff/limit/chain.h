/* The fastest way to run a chain of blocks forward and backward within so many bytes: dynamic programming over parts
 * of the chain, exact for schedules in which what is kept stays until it is read (Rotor: Beaumont, Eyraud-Dubois,
 * Herrmann, Joly, Shilova, "Optimal checkpointing for heterogeneous chains", 2019, theorem 1; with several ways to keep
 * the values of a block as in Rockmate, 2023). */
#ifndef TOW_SRC_AUTODIFF_LIMIT_CHAIN_H
#define TOW_SRC_AUTODIFF_LIMIT_CHAIN_H

#include "src/base/base.h"

/* A way to keep the values of a block from its forward to its backward pass. */
typedef struct tow__chain_option {
    uint64_t bytes;   /* kept, with the block's results */
    uint64_t working; /* at the most in its backward pass: what is kept and made again, cotangents, workspace */
    double seconds;   /* to make the rest again */
} tow__chain_option;

typedef struct tow__chain_block {
    double seconds;     /* of its forward pass */
    uint64_t results;   /* bytes of its results; their cotangents take as many */
    uint64_t temporary; /* bytes of workspace of its forward pass */
    bool runs_once;     /* it is in no part that runs again */
    uint32_t n_options;
    const tow__chain_option *options;
} tow__chain_block;

typedef struct tow__chain {
    uint32_t n;
    const tow__chain_block *blocks;
    /* [n][n + 1] crossing[a][b]: bytes of values that blocks a to b - 1 make and later ones read. NULL: results of
     * block b - 1. */
    const uint64_t *crossing;
} tow__chain;

/* A step says what becomes of a block or of several. Steps stand in the order of the forward pass. */
typedef enum tow__chain_step_kind {
    TOW__CHAIN_BLOCK, /* block `first` keeps option `option` */
    TOW__CHAIN_OPEN,  /* blocks first to last - 1 keep nothing and run again before their backward pass, by the steps */
    TOW__CHAIN_CLOSE  /* up to here */
} tow__chain_step_kind;

typedef struct tow__chain_step {
    tow__chain_step_kind kind;
    uint32_t first, last, option;
} tow__chain_step;

/* The solutions of a chain for all limits up to `most` bytes, of which quantum bytes each are told apart: n^2 / 2 *
 * most / quantum entries. */
typedef struct tow__chain_table tow__chain_table;
tow_status tow__chain_solve(tow__arena *arena, const tow__chain *chain, uint64_t most, uint64_t quantum,
                            tow__chain_table **table);
/* Seconds beyond one forward and one backward pass; INFINITY: so few bytes are not enough. */
double tow__chain_seconds(const tow__chain_table *table, uint64_t bytes);
/* *steps: in the arena of the table. */
tow_status tow__chain_steps(const tow__chain_table *table, uint64_t bytes, tow__chain_step **steps, uint32_t *n);

#endif
