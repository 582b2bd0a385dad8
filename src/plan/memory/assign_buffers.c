/* Buffer assignment: chooses offsets in the arena. Several greedy orders are tried, and the smallest arena is kept.
 *
 * In each order, an interval takes the smallest gap that fits between the placed intervals that are alive at the same
 * time, or follows all of them if no gap fits. Orders: by size, by duration, by size times duration, by first
 * instruction.
 *
 * A binary tree over the instructions records the taken bytes of each instruction: a leaf stands for one instruction, a
 * node for the span of its leaves. Ranges that touch are merged, so there are few ranges even if many intervals are
 * alive. The time to find a gap grows with the number of ranges, not of intervals. */
#include <stdlib.h>

#include "src/plan/analysis/analysis.h"
#include "src/plan/memory/memory.h"

typedef struct ordered {
    uint64_t key;
    uint32_t index;
} ordered;

/* Larger keys come first. Ties are broken by index, so that plans are the same on every system. */
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

/* ---- taken bytes ------------------------------------------------------------------------------------------------- */

typedef struct range {
    size_t begin, end;
} range;

/* Ranges in ascending order, which neither overlap nor touch. */
typedef struct ranges {
    range *items;
    uint32_t n, capacity;
} ranges;

typedef struct tree {
    tow__arena *memory;
    uint32_t leaves;
    /* [2 * leaves] each. The children of node i are nodes 2 i and 2 i + 1; instruction k is leaf leaves + k. Bytes that
     * are in `always` of an ancestor need not be in the ranges of a node. */
    ranges *always;    /* bytes of intervals that are alive during the whole span */
    ranges *sometimes; /* bytes of intervals that are alive at some instruction of the span */
} tree;

enum {
    MOST_LISTS = 4 * 33 /* per level, two nodes at the ends of a span and two inside it */
};

/* Index of the first range that ends at byte `at` or later. */
static uint32_t first_from(const ranges *r, size_t at)
{
    uint32_t low = 0, high = r->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (r->items[middle].end < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Adds x, merged with the ranges that it overlaps or touches. */
static bool add_range(tow__arena *memory, ranges *r, range x)
{
    uint32_t from = first_from(r, x.begin), to = from;
    for (; to < r->n && r->items[to].begin <= x.end; to++) {
        if (r->items[to].begin < x.begin) x.begin = r->items[to].begin;
        if (r->items[to].end > x.end) x.end = r->items[to].end;
    }
    range *items = tow__extend(memory, r->items, r->n, &r->capacity, sizeof *items);
    if (!items) return false;
    r->items = items;
    memmove(items + from + 1, items + to, (r->n - to) * sizeof *items);
    items[from] = x;
    r->n += 1 - (to - from);
    return true;
}

/* Lists the nodes whose spans together make up the interval's. */
static uint32_t list_nodes(const tree *t, const tow__interval *x, uint32_t nodes[MOST_LISTS])
{
    uint32_t n = 0, from = t->leaves + x->first, to = t->leaves + x->last + 1;
    for (; from < to; from /= 2, to /= 2) {
        if (from % 2) nodes[n++] = from++;
        if (to % 2) nodes[n++] = --to;
    }
    return n;
}

static bool add_interval(tree *t, const tow__interval *x)
{
    uint32_t nodes[MOST_LISTS], n = list_nodes(t, x, nodes);
    const range taken = {x->offset, x->offset + x->bytes};
    for (uint32_t i = 0; i < n; i++)
        if (!add_range(t->memory, &t->always[nodes[i]], taken)) return false;
    for (uint32_t node = t->leaves + x->first; node; node /= 2)
        if (!add_range(t->memory, &t->sometimes[node], taken)) return false;
    for (uint32_t node = t->leaves + x->last; node; node /= 2)
        if (!add_range(t->memory, &t->sometimes[node], taken)) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!add_range(t->memory, &t->sometimes[nodes[i]], taken)) return false;
    return true;
}

/* ---- gaps -------------------------------------------------------------------------------------------------------- */

/* Ranges of several nodes, walked together. */
typedef struct walk {
    const ranges *lists[MOST_LISTS];
    uint32_t at[MOST_LISTS], n;
} walk;

static void add_list(walk *w, const ranges *list)
{
    if (!list->n) return;
    w->lists[w->n] = list;
    w->at[w->n++] = 0;
}

/* Starts a walk over the bytes that are taken while x is alive. */
static void begin_walk(const tree *t, const tow__interval *x, walk *w)
{
    uint32_t nodes[MOST_LISTS], n = list_nodes(t, x, nodes), from = t->leaves + x->first, to = t->leaves + x->last;
    w->n = 0;
    for (uint32_t i = 0; i < n; i++) add_list(w, &t->sometimes[nodes[i]]);
    for (; from; from /= 2, to /= 2) {
        add_list(w, &t->always[from]);
        if (to != from) add_list(w, &t->always[to]);
    }
}

/* Moves *end past the taken bytes that follow it without a gap. Returns the beginning of the next range, SIZE_MAX if
 * there is none. */
static size_t next_begin(walk *w, size_t *end)
{
    size_t next = SIZE_MAX;
    for (bool moved = true; moved;) {
        moved = false;
        next = SIZE_MAX;
        for (uint32_t i = 0; i < w->n; i++) {
            const ranges *r = w->lists[i];
            for (; w->at[i] < r->n && r->items[w->at[i]].begin <= *end; w->at[i]++) {
                if (r->items[w->at[i]].end <= *end) continue;
                *end = r->items[w->at[i]].end;
                moved = true;
            }
            if (w->at[i] < r->n && r->items[w->at[i]].begin < next) next = r->items[w->at[i]].begin;
        }
    }
    return next;
}

/* Offset of the smallest gap that x fits into, the lowest of equal ones; the end of all taken bytes if no gap fits. */
static size_t best_gap(const tree *t, const tow__interval *x)
{
    walk w;
    size_t end = 0, best = 0, best_size = SIZE_MAX, next;
    begin_walk(t, x, &w);
    while ((next = next_begin(&w, &end)) != SIZE_MAX) {
        if (next - end >= x->bytes && next - end < best_size) {
            best = end;
            best_size = next - end;
        }
        end = next;
    }
    return best_size == SIZE_MAX ? end : best;
}

/* *total: size of the arena in this order. */
static tow_status place_in_order(tree *t, tow__interval *all, uint32_t n, const ordered *order, size_t *total)
{
    *total = 0;
    for (uint32_t i = 0; i < 2 * t->leaves; i++) t->always[i].n = t->sometimes[i].n = 0;
    for (uint32_t i = 0; i < n; i++) {
        tow__interval *x = &all[order[i].index];
        x->offset = best_gap(t, x);
        if (x->offset + x->bytes > *total) *total = x->offset + x->bytes;
        if (!add_interval(t, x)) return TOW_OUT_OF_MEMORY;
    }
    return TOW_OK;
}

static tow_status make_tree(tow__arena *memory, uint32_t n_insts, tree *t)
{
    *t = (tree){.memory = memory, .leaves = 1};
    while (t->leaves < n_insts) t->leaves *= 2;
    t->always = tow__arena_alloc(memory, 2 * (size_t)t->leaves, sizeof *t->always);
    t->sometimes = tow__arena_alloc(memory, 2 * (size_t)t->leaves, sizeof *t->sometimes);
    return t->always && t->sometimes ? TOW_OK : TOW_OUT_OF_MEMORY;
}

/* Largest number of bytes needed at one instruction. alive: [n_insts + 1], zeros. */
static size_t lower_bound(const tow__interval *all, uint32_t n, uint32_t n_insts, size_t *alive)
{
    for (uint32_t i = 0; i < n; i++) tow__add_alive(alive, all[i].first, all[i].last, all[i].need);
    return tow__sum_alive(alive, n_insts);
}

tow_status tow__assign_offsets(tow_context *ctx, tow__interval *all, uint32_t n, uint32_t n_insts, size_t *total,
                               size_t *bound)
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
    size_t *best = tow__arena_alloc(&memory, n, sizeof *best);
    size_t *alive = tow__arena_alloc(&memory, (size_t)n_insts + 1, sizeof *alive);
    tree t;
    if (!order || !best || !alive || make_tree(&memory, n_insts, &t) != TOW_OK) goto done;
    *bound = lower_bound(all, n, n_insts, alive);
    *total = SIZE_MAX;
    for (size_t k = 0; k<sizeof orders / sizeof *orders && * total> * bound; k++) {
        for (uint32_t i = 0; i < n; i++) order[i] = (ordered){orders[k](&all[i]), i};
        qsort(order, n, sizeof *order, compare);
        size_t bytes;
        if (place_in_order(&t, all, n, order, &bytes) != TOW_OK) goto done;
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

/* Sizes the loop's arena for all copies. The scratch memory of shared iterations begins behind the first copy. */
static void size_block(tow_program *p, const tow__body *body)
{
    size_t copies = body->copies ? body->copies : 1, all = body->bytes * copies, need = body->need * copies;
    size_t shared = body->bytes + tow__round_up(body->scratch);
    p->storages[body->block].bytes = all > shared ? all : shared;
    p->storages[body->block].need = need > body->scratch ? need : body->scratch;
}

tow_status tow__assign_buffers(tow_program *p, tow__body *body, tow__arena *scratch)
{
    uint32_t n = 0;
    for (uint32_t s = tow__first_storage(body); s != TOW__NONE; s = p->storages[s].next) n += has_place(p, s);
    tow__interval *intervals = tow__arena_alloc(scratch, n, sizeof *intervals);
    uint32_t *which = tow__arena_alloc(scratch, n, sizeof *which);
    if (!intervals || !which) return TOW_OUT_OF_MEMORY;
    n = 0;
    for (uint32_t s = tow__first_storage(body); s != TOW__NONE; s = p->storages[s].next) {
        const tow__storage *x = &p->storages[s];
        if (!has_place(p, s)) continue;
        intervals[n] =
            (tow__interval){.first = x->first, .last = x->last, .bytes = tow__round_up(x->bytes), .need = x->need};
        which[n++] = s;
    }
    tow_status status = tow__assign_offsets(p->ctx, intervals, n, body->n_insts, &body->bytes, &body->need);
    if (status != TOW_OK) return status;
    for (uint32_t i = 0; i < n; i++) p->storages[which[i]].offset = intervals[i].offset;
    if (body->outer) size_block(p, body);
    return TOW_OK;
}
