/* Offsets in the arena: several greedy placements, of which the smallest is kept.
 *
 * Each walks the intervals in some order and puts every one into the smallest gap that fits between those already
 * placed that are alive at the same time, else behind them. Orders: by size, by duration, by size times duration, by
 * first step. */
#include <stdlib.h>

#include "src/plan/plan.h"

typedef struct ordered {
    uint64_t key;
    uint32_t index;
} ordered;

/* Larger keys first; ties by index, so that plans are the same everywhere. */
static int compare(const void *a, const void *b)
{
    const ordered *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static uint64_t duration(const tow__interval *x) { return (uint64_t)x->last - x->first + 1; }
static uint64_t by_size(const tow__interval *x) { return x->bytes; }
static uint64_t by_duration(const tow__interval *x) { return duration(x) << 32 | (x->bytes >> 6 & UINT32_MAX); }
static uint64_t by_area(const tow__interval *x) { return (x->bytes >> 6) * duration(x); }
static uint64_t by_time(const tow__interval *x) { return UINT32_MAX - x->first; }

static uint64_t (*const orders[])(const tow__interval *x) = {by_size, by_duration, by_area, by_time};

static bool meet(const tow__interval *a, const tow__interval *b) { return a->first <= b->last && b->first <= a->last; }

/* placed: indices of placed intervals by increasing offset. */
static size_t best_gap(const tow__interval *all, const tow__interval *x, const uint32_t *placed, uint32_t n)
{
    size_t end = 0, best = 0, best_size = SIZE_MAX; /* end of what is placed below the current gap */
    for (uint32_t i = 0; i < n; i++) {
        const tow__interval *other = &all[placed[i]];
        if (!meet(x, other)) continue;
        if (other->offset > end && other->offset - end >= x->bytes && other->offset - end < best_size) {
            best = end;
            best_size = other->offset - end;
        }
        if (other->offset + other->bytes > end) end = other->offset + other->bytes;
    }
    return best_size == SIZE_MAX ? end : best;
}

static size_t place_in_order(tow__interval *all, uint32_t n, const ordered *order, uint32_t *placed)
{
    size_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        tow__interval *x = &all[order[i].index];
        x->offset = best_gap(all, x, placed, i);
        if (x->offset + x->bytes > total) total = x->offset + x->bytes;
        uint32_t at = i;
        for (; at > 0 && all[placed[at - 1]].offset > x->offset; at--) placed[at] = placed[at - 1];
        placed[at] = order[i].index;
    }
    return total;
}

/* Most bytes that are needed at one step: a running sum over starts and ends. */
static size_t lower_bound(const tow__interval *all, uint32_t n, uint32_t n_steps, size_t *starts, size_t *ends)
{
    size_t live = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        starts[all[i].first] += all[i].need;
        ends[all[i].last] += all[i].need;
    }
    for (uint32_t i = 0; i < n_steps; i++) {
        live += starts[i];
        if (live > most) most = live;
        live -= ends[i];
    }
    return most;
}

tow_status tow__place(tow_context *ctx, tow__interval *all, uint32_t n, uint32_t n_steps, size_t *total, size_t *bound)
{
    *total = *bound = 0;
    if (!n) return TOW_OK;
    size_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (__builtin_add_overflow(sum, all[i].bytes, &sum) || sum > SIZE_MAX / 4)
            return tow__fail(ctx, TOW_OUT_OF_MEMORY,
                             "out of memory: the values of the program take more than %zu bytes", SIZE_MAX / 4);
    tow__arena memory;
    tow__arena_init(&memory, ctx);
    tow_status status = TOW_OUT_OF_MEMORY;
    ordered *order = tow__arena_alloc(&memory, n, sizeof *order);
    uint32_t *placed = tow__arena_alloc(&memory, n, sizeof *placed);
    size_t *best = tow__arena_alloc(&memory, n, sizeof *best);
    size_t *events = tow__arena_alloc(&memory, 2 * (size_t)n_steps, sizeof *events);
    if (!order || !placed || !best || !events) goto done;
    *bound = lower_bound(all, n, n_steps, events, events + n_steps);
    *total = SIZE_MAX;
    for (size_t k = 0; k<sizeof orders / sizeof *orders && * total> * bound; k++) {
        for (uint32_t i = 0; i < n; i++) order[i] = (ordered){orders[k](&all[i]), i};
        qsort(order, n, sizeof *order, compare);
        size_t bytes = place_in_order(all, n, order, placed);
        if (bytes >= *total) continue;
        *total = bytes;
        for (uint32_t i = 0; i < n; i++) best[i] = all[i].offset;
    }
    for (uint32_t i = 0; i < n; i++) all[i].offset = best[i];
    status = TOW_OK;
done:
    tow__arena_free(&memory);
    return status;
}

static bool has_place(const tow_program *p, uint32_t s) { return tow__in_arena(p, s) && p->storages[s].bytes; }

/* All copies. The scratch memory of shared iterations begins behind the first one. */
static void size_block(tow_program *p, const tow__plan *plan)
{
    size_t copies = plan->copies ? plan->copies : 1, all = plan->bytes * copies, need = plan->need * copies;
    size_t shared = plan->bytes + tow__round_up(plan->scratch);
    p->storages[plan->block].bytes = all > shared ? all : shared;
    p->storages[plan->block].need = need > plan->scratch ? need : plan->scratch;
}

tow_status tow__place_plan(tow_program *p, tow__plan *plan, tow__arena *scratch)
{
    uint32_t n = 0;
    for (uint32_t s = tow__first_storage(plan); s != TOW__NONE; s = p->storages[s].next) n += has_place(p, s);
    tow__interval *intervals = tow__arena_alloc(scratch, n, sizeof *intervals);
    uint32_t *which = tow__arena_alloc(scratch, n, sizeof *which);
    if (!intervals || !which) return TOW_OUT_OF_MEMORY;
    n = 0;
    for (uint32_t s = tow__first_storage(plan); s != TOW__NONE; s = p->storages[s].next) {
        const tow__storage *x = &p->storages[s];
        if (!has_place(p, s)) continue;
        intervals[n] =
            (tow__interval){.first = x->first, .last = x->last, .bytes = tow__round_up(x->bytes), .need = x->need};
        which[n++] = s;
    }
    tow_status status = tow__place(p->ctx, intervals, n, plan->n_steps, &plan->bytes, &plan->need);
    if (status != TOW_OK) return status;
    for (uint32_t i = 0; i < n; i++) p->storages[which[i]].offset = intervals[i].offset;
    if (plan->outer) size_block(p, plan);
    return TOW_OK;
}
