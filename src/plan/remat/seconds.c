/* Seconds by which plans of one graph, and values of it, are compared within a memory limit: those of the cost model
 * (analysis/cost.h), for one machine that does not depend on the plan. */
#include <math.h>

#include "src/base/arithmetic.h"
#include "src/plan/analysis/cost.h"
#include "src/plan/remat/remat.h"

tow__machine tow__price_machine(int threads)
{
    tow__machine m;
    const bool given = tow__machine_given(&m);
    if (!given) m = *tow__machine_here();
    if (m.threads == 0) m.threads = threads;
    if (!given) m.rates = tow__machine_nominal(&m);
    return m;
}

double tow__modelled_seconds(const tow_program *p, const tow__machine *machine)
{
    return tow__body_seconds(machine, p->top);
}

/* A machine that does one floating-point operation of a product per second and all else in no time. */
double tow__modelled_flops(const tow_program *p)
{
    tow__machine m = p->machine;
    m.threads = 1;
    m.rates = (tow__rates){.f32 = 1, .f64 = 1, .functions = INFINITY, .shared = INFINITY};
    for (int i = 0; i < TOW__LEVELS; i++) m.rates.bytes[i] = INFINITY;
    return tow__body_seconds(&m, p->top);
}

size_t tow__run_bytes(const tow_program *p)
{
    return p->bytes.inputs + p->bytes.outputs + p->bytes.constants + p->bytes.arena;
}

tow_memory_point tow_program_memory_point(const tow_program *p)
{
    TOW__ARITHMETIC(false);
    const tow__machine machine = tow__price_machine(p->team.threads);
    return (tow_memory_point){tow__run_bytes(p), tow__modelled_seconds(p, &machine), tow__modelled_flops(p)};
}

tow_memory_point tow_program_unlimited_point(const tow_program *p)
{
    return p->unlimited.bytes > 0 ? p->unlimited : tow_program_memory_point(p);
}

static double equation_seconds(const tow__price *price, const tow_graph *g, const tow__equation *e)
{
    const tow__pricing *p = price->user;
    return tow__equation_seconds(&p->machine, g, e, p->views);
}

tow_status tow__pricing_begin(tow_context *ctx, const tow_graph *g, int threads, tow__pricing *p)
{
    *p = (tow__pricing){.ctx = ctx, .machine = tow__price_machine(threads), .n_views = tow__most_views(g) + 1};
    p->views = tow__alloc(ctx, p->n_views, sizeof *p->views);
    p->price = (tow__price){equation_seconds, p};
    return p->views ? TOW_OK : TOW_OUT_OF_MEMORY;
}

void tow__pricing_end(tow__pricing *p)
{
    if (p->views) tow__free(p->ctx, p->views, p->n_views, sizeof *p->views);
    *p = (tow__pricing){0};
}
