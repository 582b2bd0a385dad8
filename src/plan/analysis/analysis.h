/* Analyses of the instructions of a function: facts that several passes ask for. Each is computed when a pass first
 * asks for it, kept for those that ask later, and dropped by a pass that changed the instructions (tow__invalidate).
 * With checks wanted, the verifier compares what is kept with a fresh computation after every pass.
 *
 *   analysis    what it knows                                               asked by
 *   uses        who makes a storage, who reads it, how often                fuse, tile, fuse-reductions
 *   liveness    from when to when a storage is accessed; the bytes alive    parallelize, tile, alias
 *   cost        work, and seconds on the machine (cost.h)                   parallelize, split-norm-gradient, tile,
 *                                                                           distribute-remainder
 *   tiling      who computes rows independently, from which operands        parallelize, split-norm-gradient, tile
 *
 * Arrays over storages are columns (columns.c). They end where the program's storages ended when they were computed. */
#ifndef TOW_SRC_PLAN_ANALYSIS_H
#define TOW_SRC_PLAN_ANALYSIS_H

#include "src/plan/analysis/cost.h"
#include "src/plan/ir.h"

/* By instructions of this function. */
typedef struct tow__uses {
    uint32_t *producer;    /* [n_storages] the last instruction that writes it, or TOW__NONE */
    uint32_t *last_reader; /* [n_storages] the last instruction that reads it, or TOW__NONE */
    uint32_t *reads;       /* [n_storages] operands that name it */
    uint32_t *named;       /* [n_named] storages of which any of this is known */
    uint32_t n_named;
} tow__uses;

/* Instructions `first` to `last` access the storage, which belongs to the function. */
typedef struct tow__live_range {
    uint32_t storage, first, last;
    bool is_result; /* of an instruction; else an operand only, or the workspace of one instruction */
} tow__live_range;

typedef struct tow__liveness {
    tow__live_range *ranges; /* [n] by the first access */
    uint32_t n;
    size_t *alive; /* [n_insts] bytes of results in the arena that are alive while the instruction runs */
    size_t peak;   /* the most of them */
} tow__liveness;

/* Of instructions that are no loops, on the machine of the program; loops, whose bodies are functions of their own,
 * cost nothing here. */
typedef struct tow__cost {
    tow__work *work; /* [n_insts] */
    double *seconds; /* [n_insts] of one thread */
    double total;    /* the sum of them */
    double shared;   /* seconds if all threads share each instruction that gains from it */
} tow__cost;

/* Along which axis instructions compute blocks independently of each other: axis 0 of all results, their rows, or an
 * axis that is propagated (analysis/axis.h). */
typedef struct tow__tiling {
    bool *is_tileable; /* [n_insts] */
    int *axis;         /* [n_insts] of the results */
    int **from;        /* [n_insts] [operands] the axis of which it needs the same block; TOW__WHOLE: it needs all */
} tow__tiling;

typedef struct tow__analyses {
    tow__uses *uses;
    tow__liveness *liveness;
    tow__cost *cost;
    tow__tiling *tiling;
} tow__analyses;

/* NULL: out of memory. */
const tow__uses *tow__get_uses(tow__function_state *s);
const tow__liveness *tow__get_liveness(tow__function_state *s);
const tow__cost *tow__get_cost(tow__function_state *s);
const tow__tiling *tow__get_tiling(tow__function_state *s);
/* The instructions of the function are others now, or read or write other storages or types. Also in the end, so that
 * columns are free again. */
void tow__invalidate(tow__function_state *s);
/* Do the analyses that are kept say what fresh ones do? The message names the pass that left them so. */
tow_status tow__verify_analyses(tow__function_state *s, const char *pass);

/* ---- each in a file of its own ----------------------------------------------------------------------------------- */

tow__uses *tow__find_uses(tow_program *p, const tow__body *body, tow__arena *scratch);
void tow__free_uses(tow_program *p, const tow__uses *uses);
tow__liveness *tow__find_liveness(tow_program *p, const tow__body *body, tow__arena *scratch);
tow__cost *tow__find_cost(const tow_program *p, const tow__body *body, tow__arena *scratch);
tow__tiling *tow__find_tiling(const tow__body *body, tow__arena *scratch);

/* [n_insts] The instruction belongs to an update (analysis/updates.c). Not kept. NULL: out of memory. */
bool *tow__find_updates(tow__function_state *s);

/* ---- bytes alive ------------------------------------------------------------------------------------------------- */

/* alive[i], of n_insts + 1 items that are 0 at first, becomes the bytes alive while instruction i runs; returns the
 * most. Call tow__add_alive for every interval of instructions before. */
static inline void tow__add_alive(size_t *alive, uint32_t first, uint32_t last, size_t bytes)
{
    alive[first] += bytes;
    alive[last + 1] -= bytes; /* differences may wrap around, sums do not */
}

size_t tow__sum_alive(size_t *alive, uint32_t n_insts);

#endif
