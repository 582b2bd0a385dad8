/* Spends a budget of bytes (tow_compile_options.keep_within). Only a plan tells its arena, with tile groups and
 * aliasing as they are, so plans are made without memory and compared:
 *
 *                       forward, then backward     interleaved
 *   everything is kept             *                    *
 *   all products are               *                    *
 *   as many as fit         * halving *          * halving *        where none of these four fits
 *
 * "Interleaved" lets a block of rows go through the forward and the backward pass before the next block begins
 * (tile/tile_groups.c): what is kept between them is a block then, not an array, and the arena may be smaller than with
 * remat.
 *
 * A plan fits if it takes no more than the budget or no more than remat does without. Of those that fit, one that makes
 * the fewest products again is taken, then one that exceeds the budget least, then one that is not interleaved, then
 * the smallest. */
#include "src/plan/ir.h"
#include "src/plan/remat/remat.h"

typedef struct search {
    tow_context *ctx;
    const tow_graph *graph;
    tow_compile_options options;
    int threads;
    uint32_t repeated; /* products */
    size_t fits;       /* bytes of an arena, at most */
    /* the best so far */
    tow__remat_budget best;
    uint32_t again; /* products that it makes again */
    size_t arena;
} search;

static tow_status measure(search *s, tow__remat_budget budget, size_t *arena)
{
    tow_program *p;
    tow_status status = tow__compile_with_budget(s->ctx, s->graph, &s->options, s->threads, budget, &p);
    if (status != TOW_OK) return status;
    *arena = p->bytes.arena;
    s->repeated = p->n_repeated;
    tow_program_free(p);
    return TOW_OK;
}

static size_t excess(const search *s, size_t arena)
{
    return arena > s->options.keep_within ? arena - s->options.keep_within : 0;
}

/* *fits: it does (never where the status is not TOW_OK); it is the best then, if it is. */
static tow_status consider(search *s, tow__remat_budget budget, bool *fits)
{
    size_t arena;
    *fits = false;
    tow_status status = measure(s, budget, &arena);
    if (status != TOW_OK) return status;
    *fits = arena <= s->fits;
    if (!*fits) return TOW_OK;
    uint32_t again = s->repeated - (budget.all ? s->repeated : budget.products);
    size_t now = excess(s, arena), before = excess(s, s->arena);
    bool better = again != s->again                           ? again < s->again
                  : now != before                             ? now < before
                  : budget.interleaved != s->best.interleaved ? s->best.interleaved
                                                              : arena < s->arena;
    if (!better) return TOW_OK;
    s->best = budget;
    s->again = again;
    s->arena = arena;
    return TOW_OK;
}

/* The most products that halving finds; the arena mostly grows with their number, but need not. */
static tow_status halve(search *s, bool interleaved)
{
    bool fits;
    tow_status status = TOW_OK;
    if (interleaved)
        status = consider(s, (tow__remat_budget){.interleaved = true}, &fits); /* else it is where we began */
    for (uint32_t kept = 0, most = s->repeated - 1; status == TOW_OK && kept < most;) {
        uint32_t next = kept + (most - kept + 1) / 2;
        status = consider(s, (tow__remat_budget){.products = next, .interleaved = interleaved}, &fits);
        if (fits)
            kept = next;
        else
            most = next - 1;
    }
    return status;
}

tow_status tow__search_budget(tow_context *ctx, const tow_graph *graph, const tow_compile_options *options, int threads,
                              tow__remat_budget *budget)
{
    search s = {.ctx = ctx, .graph = graph, .options = *options, .threads = threads};
    tow_status status = TOW_OK;
    bool fits, any = false;
    int orders = options->no_regions ? 1 : 2;
    s.options.plan_only = true;
    TRY(measure(&s, s.best, &s.arena));
    s.again = s.repeated;
    s.fits = s.arena > options->keep_within ? s.arena : options->keep_within;
    for (int interleaved = 0; interleaved < orders; interleaved++) {
        TRY(consider(&s, (tow__remat_budget){.all = true, .interleaved = interleaved}, &fits));
        any |= fits;
        if (s.repeated > 0) {
            TRY(consider(&s, (tow__remat_budget){.products = s.repeated, .interleaved = interleaved}, &fits));
            any |= fits;
        }
        if (s.again == 0 && excess(&s, s.arena) == 0) break; /* nothing is better */
    }
    for (int interleaved = 0; interleaved < orders && !any && s.repeated > 0; interleaved++)
        TRY(halve(&s, interleaved));
    *budget = s.best;
done:
    return status;
}
