/* The frontier of a graph: bytes of a run and its modelled seconds, each point a plan that was made. A memory limit
 * (tow_compile_options.memory_limit) picks the fastest point within it.
 *
 * Only a plan tells its arena, with tile groups and aliasing as they are, so plans are made without memory and
 * compared. The list of plans does not depend on the limit, so more bytes never give a slower plan:
 *
 *   variants      graphs that compute the same bits and keep other values (tow__variants), number 0 as it was written
 *   of each       tile groups, forward, then backward | interleaved | none
 *   of number 0   recomputation as written | eliminated for products, latest first, in steps | eliminated altogether
 *
 * "Interleaved" lets a block of rows go through the forward and the backward pass before the next block begins
 * (tile/tile_groups.c): what is kept between them is a block then, not an array. */
#include <stdlib.h>

#include "src/group/agreement.h"
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
    bool undecided;          /* all plans are made until it is known */
    bool tiles, interleaves; /* whether there are tile groups, and whether interleaving changes them */
    tow_group *waiting;      /* processes that wait for the search; NULL: nobody does */
} search;

/* Plans one point. repeated (may be NULL): products that remat repeats in the graph as it is. */
static tow_status measure(search *s, const tow_graph *graph, uint32_t variant, tow__remat_choice choice,
                          uint32_t *repeated)
{
    tow_program *p;
    tow_status status = tow__compile_with_choice(s->ctx, graph, &s->options, s->threads, choice, &p);
    if (status != TOW_OK) return status;
    const tow__plan_point point = {.variant = variant,
                                   .choice = choice,
                                   .bytes = tow__run_bytes(p),
                                   .seconds = tow__modelled_seconds(p, &s->machine),
                                   .flops = tow__modelled_flops(p)};
    if (repeated) *repeated = p->n_repeated;
    tow_program_free(p);
    tow__plan_point *grown = tow__extend(s->arena, s->points, s->n, &s->capacity, sizeof *grown);
    if (!grown) return TOW_OUT_OF_MEMORY;
    s->points = grown;
    s->points[s->n++] = point;
    return tow__search_goes_on(s->waiting, true);
}

/* Does the last plan differ from point `from`? */
static bool differ(const search *s, uint32_t from)
{
    const tow__plan_point *a = &s->points[from], *b = &s->points[s->n - 1];
    return a->bytes != b->bytes || a->seconds < b->seconds || a->seconds > b->seconds;
}

/* The same as three plans: with tile groups, with interleaved ones and without. */
static tow_status measure_ways(search *s, const tow_graph *graph, uint32_t variant, tow__remat_choice choice,
                               uint32_t *repeated)
{
    tow_status status = measure(s, graph, variant, choice, repeated);
    const uint32_t first = s->n - 1;
    if (s->options.no_regions || status != TOW_OK) return status;
    if (s->tiles || s->undecided) {
        choice.untiled = true;
        TRY(measure(s, graph, variant, choice, NULL));
        s->tiles |= differ(s, first);
    }
    if (s->interleaves || s->undecided) {
        choice.untiled = false;
        choice.interleaved = true;
        TRY(measure(s, graph, variant, choice, NULL));
        s->interleaves |= differ(s, first);
    }
done:
    return status;
}

/* The graph as it was written: what its regions make again may be kept. */
static tow_status measure_written(search *s, const tow_graph *graph)
{
    uint32_t repeated = 0, before = 0;
    tow_status status = measure_ways(s, graph, 0, (tow__remat_choice){0}, &repeated);
    if (status != TOW_OK) return status;
    TRY(measure_ways(s, graph, 0, (tow__remat_choice){.all = true}, NULL));
    for (uint32_t i = 1; i <= STEPS; i++) {
        const uint32_t products = (uint32_t)((uint64_t)repeated * i / STEPS);
        if (products == before) continue;
        before = products;
        TRY(measure_ways(s, graph, 0, (tow__remat_choice){.products = products}, NULL));
    }
done:
    return status;
}

/* A variant that cannot be cut into micro-batches, for instance, is no point. */
static tow_status measure_variant(search *s, const tow__variants *v, uint32_t i)
{
    tow_graph *graph = NULL;
    tow_status status = v->make(v->user, i, &graph);
    if (status == TOW_UNSUPPORTED) return TOW_OK;
    if (status == TOW_OK) status = measure_ways(s, graph, i, (tow__remat_choice){0}, NULL);
    tow_graph_release(graph);
    return status;
}

/* Number 0, then the one in the middle, which say whether tile groups make a difference, then the others. */
static tow_status measure_all(search *s, const tow__variants *v)
{
    const uint32_t middle = v->n / 2;
    tow_graph *written = NULL;
    s->undecided = true;
    tow_status status = v->make(v->user, 0, &written);
    if (status == TOW_OK) status = measure_written(s, written);
    tow_graph_release(written);
    if (status == TOW_OK && middle > 0) status = measure_variant(s, v, middle);
    s->undecided = false;
    for (uint32_t i = 1; i < v->n && status == TOW_OK; i++)
        if (i != middle) status = measure_variant(s, v, i);
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
    const tow__remat_choice *c = &x->choice, *d = &y->choice;
    return (c->all + 2 * c->interleaved + 4 * c->untiled) - (d->all + 2 * d->interleaved + 4 * d->untiled);
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

static tow_status search_frontier(tow__arena *arena, const tow__variants *variants, const tow_compile_options *options,
                                  int threads, tow__frontier *frontier)
{
    search s = {.ctx = arena->ctx,
                .options = *options,
                .threads = threads,
                .machine = tow__price_machine(threads),
                .arena = arena,
                .waiting = variants->others_wait ? variants->group : NULL};
    s.options.plan_only = true;
    s.options.verify = false;
    s.options.shared_arena = NULL;
    s.options.after_pass = NULL;
    s.options.memory_limit = SIZE_MAX;
    tow_status status = measure_all(&s, variants);
    const tow__plan_point first = s.n > 0 ? s.points[0] : (tow__plan_point){0};
    *frontier = (tow__frontier){
        .points = s.points, .n = status == TOW_OK ? keep_best(s.points, s.n) : 0, .n_plans = s.n, .unlimited = first};
    return status;
}

/* ---- what was found before --------------------------------------------------------------------------------------- */

/* All that a frontier depends on besides the graph and its context: `of`, options, the machine. */
static void write_key(const tow__variants *v, const tow_compile_options *o, int threads, tow__string *key)
{
    const tow__machine m = tow__price_machine(threads);
    const tow__cache *const caches[] = {&m.l1, &m.l2, &m.l3};
    tow__string_add(key, "%s; threads %d %d, vectors %d, options %d %d %d %d", v->of ? v->of : "", threads, m.threads,
                    m.vector_bytes, key->ctx->verifies, o->no_regions, o->no_fusion, o->flush_subnormals);
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++)
        tow__string_add(key, ", cache %lld %lld", (long long)caches[i]->bytes, (long long)caches[i]->ways);
    tow__string_add(key, ", rates %a %a %a %a %a %a", m.rates.f32, m.rates.f64, m.rates.functions, m.rates.shared,
                    m.rates.meeting, m.rates.call);
    for (int i = 0; i < TOW__LEVELS; i++) tow__string_add(key, " %a", m.rates.bytes[i]);
    for (size_t i = 0; i < o->n_donations; i++)
        tow__string_add(key, ", %zu is %zu", o->donations[i].output, o->donations[i].input);
    for (const char *const *pass = o->without; pass && *pass; pass++) tow__string_add(key, ", without %s", *pass);
}

/* The frontier that is known under the key, else that which a search finds, which is known from then on. */
static tow_status find_by_key(tow__arena *arena, const tow__variants *v, const tow_compile_options *options,
                              int threads, const char *key, tow__frontier *frontier)
{
    size_t size;
    const tow__plan_point *known = tow__frontiers_find(v->frontiers, v->loss, key, &size);
    if (!known) {
        tow_status status = search_frontier(arena, v, options, threads, frontier);
        const size_t n = (size_t)frontier->n + 1; /* the last one is the plan without a limit */
        tow__plan_point *all = status == TOW_OK ? tow__arena_alloc(arena, n, sizeof *all) : NULL;
        if (status != TOW_OK) return status;
        if (!all) return TOW_OUT_OF_MEMORY;
        for (uint32_t i = 0; i < frontier->n; i++) all[i] = frontier->points[i];
        all[frontier->n] = frontier->unlimited;
        return tow__frontiers_add(v->frontiers, v->loss, key, all, n * sizeof *known, frontier->n_plans);
    }
    const uint32_t n = (uint32_t)(size / sizeof *known - 1);
    tow__plan_point *points = tow__arena_copy(arena, known, (size_t)n + 1, sizeof *known);
    if (!points) return TOW_OUT_OF_MEMORY;
    *frontier = (tow__frontier){.points = points, .n = n, .unlimited = points[n]};
    return TOW_OK;
}

tow_status tow__find_frontier(tow__arena *arena, const tow__variants *variants, const tow_compile_options *options,
                              int threads, tow__frontier *frontier)
{
    tow__string key;
    if (!variants->frontiers || variants->frontiers->ctx != arena->ctx)
        return search_frontier(arena, variants, options, threads, frontier);
    *frontier = (tow__frontier){0};
    tow__string_init(&key, arena->ctx);
    write_key(variants, options, threads, &key);
    tow_status status =
        key.failed ? TOW_OUT_OF_MEMORY : find_by_key(arena, variants, options, threads, key.text, frontier);
    tow__string_free(&key);
    return status;
}

static tow_memory_point public_point(const tow__plan_point *p)
{
    return (tow_memory_point){p->bytes, p->seconds, p->flops};
}

tow_status tow__list_plans(tow_context *ctx, const tow__variants *variants, const tow_compile_options *options,
                           int threads, size_t size, tow_memory_point *points, size_t *n)
{
    tow__arena arena;
    tow__frontier f = {0};
    tow__arena_init(&arena, ctx);
    tow_status status = tow__find_frontier(&arena, variants, options, threads, &f);
    for (uint32_t i = 0; i < f.n && i < size; i++) points[i] = public_point(&f.points[i]);
    *n = f.n;
    tow__arena_free(&arena);
    return status;
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

tow_status tow__make_point(const tow__variants *v, tow_context *ctx, const tow_compile_options *options, int threads,
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

tow_status tow__plan_of_point(const tow__variants *v, tow_context *ctx, const tow_compile_options *options, int threads,
                              const tow__plan_point *point, tow_program **program)
{
    tow_compile_options plan = *options;
    plan.plan_only = true;
    plan.verify = false;
    plan.shared_arena = NULL;
    plan.after_pass = NULL;
    return tow__make_point(v, ctx, &plan, threads, point, program);
}

/* No point is within the limit: the error says the least that is possible and what it consists of. */
static tow_status refuse(const tow__variants *v, tow_context *ctx, const tow_compile_options *options, int threads,
                         const tow__plan_point *least)
{
    tow_program *p = NULL;
    tow_status status = tow__plan_of_point(v, ctx, options, threads, least, &p);
    if (status == TOW_OK) status = tow__refuse_limit(p, v, options->memory_limit);
    tow_program_free(p);
    return status;
}

/* More bytes, fewer seconds: the last point within the limit is the fastest of them. */
const tow__plan_point *tow__pick_point(const tow__frontier *frontier, size_t limit)
{
    uint32_t i = frontier->n;
    while (i > 0 && frontier->points[i - 1].bytes > limit) i--;
    return i > 0 ? &frontier->points[i - 1] : NULL;
}

static tow_status compile_alone(tow__arena *arena, const tow__variants *variants, const tow_compile_options *options,
                                int threads, tow_program **program)
{
    tow__frontier f = {0};
    tow_status status = tow__find_frontier(arena, variants, options, threads, &f);
    const tow__plan_point *point = tow__pick_point(&f, options->memory_limit);
    if (status == TOW_OK)
        status = point ? tow__make_point(variants, arena->ctx, options, threads, point, program)
                       : refuse(variants, arena->ctx, options, threads, &f.points[0]);
    if (status == TOW_OK) (*program)->unlimited = public_point(&f.unlimited);
    return status;
}

/* The plan without a limit, for reports of a process that has not searched. */
static tow_status find_unlimited(tow__arena *arena, const tow__variants *variants, const tow_compile_options *options,
                                 int threads, tow__plan_point *unlimited)
{
    search s = {.ctx = arena->ctx, .options = *options, .machine = tow__price_machine(threads), .arena = arena};
    tow_program *p = NULL;
    tow_status status = tow__plan_of_point(variants, s.ctx, options, threads, &(tow__plan_point){0}, &p);
    if (status == TOW_OK)
        *unlimited = (tow__plan_point){.bytes = tow__run_bytes(p),
                                       .seconds = tow__modelled_seconds(p, &s.machine),
                                       .flops = tow__modelled_flops(p)};
    tow_program_free(p);
    return status;
}

/* Rank 0, for which the others wait. */
static tow_status search_for_all(tow__arena *arena, const tow__variants *variants, const tow_compile_options *options,
                                 int threads, tow__frontier *f)
{
    tow__variants v = *variants;
    v.others_wait = true;
    const tow_status status = tow__find_frontier(arena, &v, options, threads, f);
    const tow_status told = tow__search_goes_on(v.group, false);
    return status ? status : told;
}

static tow_status wait_for_search(tow__arena *arena, const tow__variants *variants, const tow_compile_options *options,
                                  int threads, tow__frontier *f)
{
    const tow_status status = find_unlimited(arena, variants, options, threads, &f->unlimited);
    const tow_status told = tow__wait_for_search(variants->group);
    return status ? status : told;
}

/* Rank 0 searches, the others take what it has chosen. */
static tow_status compile_together(tow__arena *arena, const tow__variants *variants, const tow_compile_options *options,
                                   int threads, tow_program **program)
{
    tow__frontier f = {0};
    tow__plan_point point;
    tow_status status =
        (tow__group_leads(variants->group) ? search_for_all : wait_for_search)(arena, variants, options, threads, &f);
    status = tow__group_agree(arena->ctx, variants->group, status);
    if (status == TOW_OK) status = tow__choose_together(variants, arena->ctx, options, threads, &f, &point);
    if (status == TOW_OK) status = tow__make_point(variants, arena->ctx, options, threads, &point, program);
    if (status == TOW_OK) (*program)->unlimited = public_point(&f.unlimited);
    return status;
}

tow_status tow__compile_within(tow_context *ctx, const tow__variants *variants, const tow_compile_options *options,
                               int threads, tow_program **program)
{
    tow__arena arena;
    tow__arena_init(&arena, ctx);
    const tow_status status = (tow_group_count(variants->group) > 1 ? compile_together : compile_alone)(
        &arena, variants, options, threads, program);
    tow__arena_free(&arena);
    return status;
}
