/* Plans within a limit of bytes: recomputation elimination, the frontier of plans, its model of time. */
#ifndef TOW_SRC_PLAN_REMAT_H
#define TOW_SRC_PLAN_REMAT_H

#include "src/graph/variants.h"
#include "src/plan/ir.h"

typedef struct tow__pricing tow__pricing;

/* A plan that was made. */
typedef struct tow__plan_point {
    uint32_t variant; /* number of the graph */
    tow__remat_choice choice;
    size_t bytes;   /* inputs, outputs, constants and arena */
    double seconds; /* modelled */
    double flops;   /* of products */
} tow__plan_point;

/* Points in order: each takes more bytes and fewer seconds than the one before. At least one. */
typedef struct tow__frontier {
    tow__plan_point *points;
    uint32_t n;
    uint32_t n_plans;          /* that were made for it; 0: it was known */
    tow__plan_point unlimited; /* the plan without a limit: the graph as it was written */
} tow__frontier;

/* compile.c: one plan. */
tow_status tow__compile_with_choice(tow_context *ctx, const tow_graph *graph, const tow_compile_options *options,
                                    int threads, tow__remat_choice choice, tow_program **program);
/* The frontier of the variants; it does not depend on options->memory_limit. Points are in the arena. No plan is made
 * if variants->frontiers has it; otherwise it is added there. */
tow_status tow__find_frontier(tow__arena *arena, const tow__variants *variants, const tow_compile_options *options,
                              int threads, tow__frontier *frontier);
/* The same as tow_memory_curve lists it. */
tow_status tow__list_plans(tow_context *ctx, const tow__variants *variants, const tow_compile_options *options,
                           int threads, size_t size, tow_memory_point *points, size_t *n);
/* The fastest point that takes no more bytes; NULL: all take more. */
const tow__plan_point *tow__pick_point(const tow__frontier *frontier, size_t limit);
/* The fastest plan within options->memory_limit. Error: TOW_INVALID_ARGUMENT if there is none. */
tow_status tow__compile_within(tow_context *ctx, const tow__variants *variants, const tow_compile_options *options,
                               int threads, tow_program **program);
/* frontier.c: the program of a point; or its plan alone, without memory and comparisons. */
tow_status tow__make_point(const tow__variants *variants, tow_context *ctx, const tow_compile_options *options,
                           int threads, const tow__plan_point *point, tow_program **program);
tow_status tow__plan_of_point(const tow__variants *variants, tow_context *ctx, const tow_compile_options *options,
                              int threads, const tow__plan_point *point, tow_program **program);
/* one_choice.c: the point that all processes of variants->group take; collective. f: what rank 0 has found, which
 * others have not looked for. Error: TOW_INVALID_ARGUMENT in all of them if a limit is below the least of rank 0. */
tow_status tow__choose_together(const tow__variants *variants, tow_context *ctx, const tow_compile_options *options,
                                int threads, const tow__frontier *f, tow__plan_point *point);
/* one_choice.c: while rank 0 searches, the others wait for the end of it, and each plan that it has made, by
 * tow__search_goes_on, tells them that it is alive, as a search may take longer than a watchdog waits; collective. */
tow_status tow__search_goes_on(struct tow_group *group, bool goes_on);
tow_status tow__wait_for_search(struct tow_group *group);
/* one_choice.c: the machine by which rank 0 compares plans and values, in all processes; collective. Prices of parts of
 * a loss must be the same everywhere: they say which variants there are. */
tow_status tow__price_together(struct tow_group *group, tow__pricing *pricing);
/* one_choice.c: processes look for a plan together if one of them has a limit. *limit: that of this process, 0 if there
 * is none, which becomes SIZE_MAX if another has one; collective. */
tow_status tow__limit_together(tow_context *ctx, struct tow_group *group, size_t *limit);
/* compile.c: the same, after a look at the options. For callers who make their graphs of variants of a loss. */
tow_status tow__compile_variants(tow_context *ctx, const tow__variants *variants, const tow_compile_options *options,
                                 tow_program **program);
/* refuse_limit.c: the error for a limit below what plan p takes, which is the least that is possible. */
tow_status tow__refuse_limit(const tow_program *p, const tow__variants *variants, size_t limit);
/* seconds.c: the machine by which plans and values are compared, the same one for all plans of a process. */
tow__machine tow__price_machine(int threads);
/* A run of the plan on it, by the cost model. */
double tow__modelled_seconds(const tow_program *p, const tow__machine *machine);
/* Floating-point operations of the products of a run, exactly: two for each multiply-add. */
double tow__modelled_flops(const tow_program *p);
/* Bytes of a run, as a limit counts them: inputs, outputs, constants and arena. */
size_t tow__run_bytes(const tow_program *p);
/* Prices of the equations of a graph and of parts of it. */
struct tow__pricing {
    tow__price price;
    tow_context *ctx;
    tow__machine machine;
    tow__view *views;
    uint32_t n_views;
};
tow_status tow__pricing_begin(tow_context *ctx, const tow_graph *g, int threads, tow__pricing *pricing);
void tow__pricing_end(tow__pricing *pricing); /* also after an error */
/* Leaves out those repeated instructions that p->choice says, counts products in
 * p->n_repeated. Before the merges below. */
tow_status tow__eliminate_recomputation(tow_program *p, tow__arena *scratch, tow__body *f);

#endif
