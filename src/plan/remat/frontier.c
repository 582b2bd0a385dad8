/* The frontier of a graph: bytes of a run and its modelled seconds, each point a plan that was made. A memory limit
 * (tow_compile_options.memory_limit) picks the fastest point within it.
 *
 * Only a plan tells its arena, with tile groups and aliasing as they are, so plans are made without memory and
 * compared. The list of plans does not depend on the limit, so more bytes never give a slower plan:
 *
 *   variants      graphs that compute the same bits and keep other values (tow__variants), number 0 as it was written
 *   of each       forward, then backward | interleaved
 *   of number 0   recomputation as written | eliminated for products, latest first, in steps | eliminated altogether
 *
 * "Interleaved" lets a block of rows go through the forward and the backward pass before the next block begins
 * (tile/tile_groups.c): what is kept between them is a block then, not an array. */
#include <stdlib.h>

#include "src/plan/ir.h"
#include "src/plan/remat/remat.h"

enum {
    STEPS = 8 /* numbers of products that are tried between none and all */
};

typedef struct search {
    tow_context *ctx;
    tow_compile_options options;
    int threads;
    tow__machine machine;
    tow__arena *arena;
    tow__plan_point *points;
    uint32_t n, capacity;
} search;

static size_t bytes_of(const tow_program *p)
{
    return p->bytes.inputs + p->bytes.outputs + p->bytes.constants + p->bytes.arena;
}

/* Plans one point. repeated (may be NULL): products that remat repeats in the graph as it is. */
static tow_status measure(search *s, const tow_graph *graph, uint32_t variant, tow__remat_choice choice,
                          uint32_t *repeated)
{
    tow_program *p;
    tow_status status = tow__compile_with_choice(s->ctx, graph, &s->options, s->threads, choice, &p);
    if (status != TOW_OK) return status;
    const tow__plan_point point = {
        .variant = variant, .choice = choice, .bytes = bytes_of(p), .seconds = tow__modelled_seconds(p, &s->machine)};
    if (repeated) *repeated = p->n_repeated;
    tow_program_free(p);
    tow__plan_point *grown = tow__extend(s->arena, s->points, s->n, &s->capacity, sizeof *grown);
    if (!grown) return TOW_OUT_OF_MEMORY;
    s->points = grown;
    s->points[s->n++] = point;
    return TOW_OK;
}

/* The graph as it was written: what its regions make again may be kept. */
static tow_status measure_written(search *s, const tow_graph *graph)
{
    tow_status status = TOW_OK;
    uint32_t repeated = 0;
    const int orders = s->options.no_regions ? 1 : 2;
    for (int order = 0; order < orders; order++) {
        const bool interleaved = order == 1;
        TRY(measure(s, graph, 0, (tow__remat_choice){.interleaved = interleaved}, &repeated));
        TRY(measure(s, graph, 0, (tow__remat_choice){.all = true, .interleaved = interleaved}, NULL));
        for (uint32_t i = 1, before = 0; i <= STEPS; i++) {
            const uint32_t products = (uint32_t)((uint64_t)repeated * i / STEPS);
            if (products == before) continue;
            before = products;
            TRY(measure(s, graph, 0, (tow__remat_choice){.products = products, .interleaved = interleaved}, NULL));
        }
    }
done:
    return status;
}

static tow_status measure_variant(search *s, const tow__variants *v, uint32_t i)
{
    tow_graph *graph = NULL;
    tow_status status = v->make(v->user, i, &graph);
    if (status != TOW_OK) return status;
    TRY(measure(s, graph, i, (tow__remat_choice){0}, NULL));
    if (!s->options.no_regions) TRY(measure(s, graph, i, (tow__remat_choice){.interleaved = true}, NULL));
done:
    tow_graph_release(graph);
    return status;
}

/* Fewest bytes first; of equal bytes the fastest; of equal points that found first, which is written most simply. */
static int by_bytes(const void *a, const void *b)
{
    const tow__plan_point *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? -1 : 1;
    if (x->variant != y->variant) return x->variant < y->variant ? -1 : 1;
    if (x->choice.products != y->choice.products) return x->choice.products < y->choice.products ? -1 : 1;
    return (x->choice.all + 2 * x->choice.interleaved) - (y->choice.all + 2 * y->choice.interleaved);
}

/* Points that take more bytes than another one and are not faster go. */
static uint32_t keep_best(tow__plan_point *points, uint32_t n)
{
    uint32_t kept = 0;
    if (n) qsort(points, n, sizeof *points, by_bytes);
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || points[i].seconds < points[kept - 1].seconds) points[kept++] = points[i];
    return kept;
}

tow_status tow__find_frontier(tow__arena *arena, const tow__variants *variants, const tow_compile_options *options,
                              int threads, tow__frontier *frontier)
{
    search s = {.ctx = arena->ctx,
                .options = *options,
                .threads = threads,
                .machine = tow__price_machine(threads),
                .arena = arena};
    tow_graph *written = NULL;
    s.options.plan_only = true;
    s.options.verify = false;
    s.options.shared_arena = NULL;
    s.options.after_pass = NULL;
    s.options.memory_limit = SIZE_MAX;
    tow_status status = variants->make(variants->user, 0, &written);
    if (status == TOW_OK) status = measure_written(&s, written);
    tow_graph_release(written);
    for (uint32_t i = 1; i < variants->n && status == TOW_OK; i++) status = measure_variant(&s, variants, i);
    *frontier = (tow__frontier){.points = s.points, .n = status == TOW_OK ? keep_best(s.points, s.n) : 0};
    return status;
}

static tow_status make_point(const tow__variants *v, tow_context *ctx, const tow_compile_options *options, int threads,
                             const tow__plan_point *point, tow_program **program)
{
    tow_graph *graph = NULL;
    const bool before = tow__verify_gradients(ctx, options->verify || ctx->verifies);
    tow_status status = v->make(v->user, point->variant, &graph);
    tow__verify_gradients(ctx, before);
    if (status == TOW_OK) status = tow__compile_with_choice(ctx, graph, options, threads, point->choice, program);
    tow_graph_release(graph);
    if (status == TOW_OK && v->note && *v->note) {
        (*program)->limit_note = tow__arena_copy(&(*program)->memory, v->note, strlen(v->note) + 1, 1);
        if (!(*program)->limit_note) status = TOW_OUT_OF_MEMORY;
    }
    if (status != TOW_OK) {
        tow_program_free(*program);
        *program = NULL;
    }
    return status;
}

/* No point is within the limit: the error says the least that is possible and what it consists of. */
static tow_status refuse(const tow__variants *v, tow_context *ctx, const tow_compile_options *options, int threads,
                         const tow__plan_point *least)
{
    tow_compile_options plan = *options;
    tow_program *p = NULL;
    plan.plan_only = true;
    plan.verify = false;
    plan.shared_arena = NULL;
    plan.after_pass = NULL;
    tow_status status = make_point(v, ctx, &plan, threads, least, &p);
    if (status == TOW_OK) status = tow__refuse_limit(p, v, options->memory_limit);
    tow_program_free(p);
    return status;
}

tow_status tow__compile_within(tow_context *ctx, const tow__variants *variants, const tow_compile_options *options,
                               int threads, tow_program **program)
{
    tow__arena arena;
    tow__frontier f = {0};
    tow__arena_init(&arena, ctx);
    tow_status status = tow__find_frontier(&arena, variants, options, threads, &f);
    uint32_t i = f.n; /* more bytes, fewer seconds: the last point within the limit is the fastest of them */
    while (i > 0 && f.points[i - 1].bytes > options->memory_limit) i--;
    if (status == TOW_OK)
        status = i > 0 ? make_point(variants, ctx, options, threads, &f.points[i - 1], program)
                       : refuse(variants, ctx, options, threads, &f.points[0]);
    tow__arena_free(&arena);
    return status;
}
