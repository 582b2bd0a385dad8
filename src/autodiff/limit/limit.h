/* Other ways to compute the gradient of a loss, for plans within a memory limit: the same bits, with other values kept
 * between the forward and the backward pass.
 *
 *   a loss without scans   blocks of equations, each of which keeps a set of its values, and parts of the chain of
 *                          blocks that run again before their backward pass                  (blocks.c, chain.c)
 *   scans of a loss        the last iterations keep one set of the body's values, the first ones a smaller one, or are
 *                          grouped                                                           (scan_runs.c)
 *   a body, a block        sets of values to keep, from all that are read to none            (body.c, kept_sets.c)
 *
 * loss_variants.c lists what there is of a loss. */
#ifndef TOW_SRC_AUTODIFF_LIMIT_H
#define TOW_SRC_AUTODIFF_LIMIT_H

#include "src/graph/graph.h"
#include "src/graph/graph_params.h"
#include "src/graph/variants.h"
#include "tow/autodiff.h"

/* The values of a body that are kept. Numbers are estimates by which sets are compared, of one run of the body. */
typedef struct tow__kept_set {
    size_t bytes;     /* of what is kept */
    size_t working;   /* at the most in the backward pass */
    double seconds;   /* to make the rest again */
    uint8_t *verdict; /* [equations of the body] tow_verdict */
} tow__kept_set;

/* The sets of a body, with its regions stripped: each keeps fewer bytes and makes more again than the one before. The
 * first one keeps all that the backward pass reads. */
typedef struct tow__kept_sets {
    tow_graph *body;
    tow__kept_set *sets;
    uint32_t n;
    size_t working; /* bytes of all residuals of one run */
} tow__kept_sets;

/* *sets: in the arena, but for the body, which the caller releases; n is 0 if the body has nothing to choose. most: at
 * most so many. hull: only those on the convex hull, which mixtures of others are no better than. */
tow_status tow__find_kept_sets(tow__arena *arena, const tow_graph *body, const tow__price *price, bool hull,
                               uint32_t most, tow__kept_sets *sets);
/* *region: body as one region with this policy (NULL: keeps nothing), which the caller releases. */
tow_status tow__as_region(const tow_graph *body, const tow_policy *policy, tow_graph **region);
/* *body: as above with its verdicts as marks, *policy: of a region that obeys them. */
tow_status tow__mark_set(const tow__kept_sets *sets, uint32_t set, tow_graph **body, const tow_policy **policy);
/* body as one region that keeps this set; body itself, retained, if it is the first. */
tow_status tow__keep_set(const tow__kept_sets *sets, uint32_t set, tow_graph **body);

/* Chooses what the region of e, which has a limit, keeps. active: [inputs] they have tangents; NULL: all floats.
 * limited: its parameters then, without a limit; the caller releases limited->body, whose equations that are not kept
 * insist on it. Error: TOW_INVALID_ARGUMENT if what the policy insists on takes more than the limit. */
tow_status tow__limit_region(const tow__equation *e, const bool *active, tow__remat_params *limited);

/* Ways to run a loss without scans as a chain of blocks, from many bytes to few (blocks.c). */
typedef struct tow__block_plans {
    tow_graph *body; /* the loss with its regions stripped, which the caller releases */
    struct tow__blocks *blocks;
    uint32_t n;
} tow__block_plans;
/* *plans: in the arena, but for the body; n is 0 if there is nothing to choose. most: at most so many. */
tow_status tow__find_block_plans(tow__arena *arena, const tow_graph *loss, const tow__price *price, uint32_t most,
                                 tow__block_plans *plans);
/* *graph: the loss in this way, which the caller releases. */
tow_status tow__block_plan(const tow__block_plans *plans, uint32_t i, tow_graph **graph);

/* The changes of a scan that change no bits (scan_cuts.c). */
typedef struct tow__cuts {
    const char *why_not; /* it may not be cut into runs; NULL: it may */
    bool groups;         /* its iterations may be grouped */
} tow__cuts;
/* Of equation e of g, a scan. */
tow_status tow__scan_cuts(const tow_graph *g, const tow__equation *e, tow__cuts *cuts);
/* The carry that is row y behind the last iteration of a run, and from which that row is read, so that the sum of its
 * cotangent begins with it; p->carry: the row is read from the rows. */
uint32_t tow__row_in_carry(const tow__scan_params *p, uint32_t y);

/* One run of iterations of a scan. */
typedef struct tow__scan_run {
    int64_t iterations;
    const tow_graph *body;
    int64_t group; /* so many iterations are one region, whose body is a scan of `body`; 0, 1: none */
} tow__scan_run;

/* Records scan e on operands x as runs one after the other, in the order of iterations. */
void tow__record_scan_runs(tow_trace *t, const tow__equation *e, const tow__scan_run *runs, uint32_t n,
                           const tow_value *x, tow_value *y);

/* The variants of a loss; number 0 is the loss. All are retained by the list. */
typedef struct tow__loss_variants tow__loss_variants;
/* price: of the equations of the loss, while this is called. */
tow_status tow__loss_variants_create(const tow_graph *loss, const tow__price *price, tow__loss_variants **list);
void tow__loss_variants_free(tow__loss_variants *list); /* NULL is accepted */
/* A line for each scan that may not be cut; lives as long as the list. */
const char *tow__loss_variants_note(const tow__loss_variants *list);
uint32_t tow__loss_variants_count(const tow__loss_variants *list);
/* *graph: number i, which the caller releases. */
tow_status tow__loss_variant(const tow__loss_variants *list, uint32_t i, tow_graph **graph);

/* g with another verdict on the values that equation `number` (tow__reason) makes or names, wherever it stands: what
 * regions and policies say about them does not count. */
tow_status tow__override_verdict(const tow_graph *g, uint32_t number, tow_verdict verdict, tow_graph **result);

/* Says what gradient is the gradient of; the arrays are copied. */
tow_status tow__set_origin(tow_graph *gradient, const tow_graph *loss, size_t n_wrt, const size_t *wrt, bool value,
                           bool has_aux);
/* The same for a step with value and gradient in it, which make_step makes of another loss. */
typedef tow_status (*tow__make_step)(const tow__origin *origin, const tow_graph *loss, tow_graph **graph);
tow_status tow__set_step_origin(tow_graph *step, const tow_graph *loss, size_t n_wrt, const size_t *wrt, bool has_aux,
                                tow__make_step make_step, void *user);

#endif
