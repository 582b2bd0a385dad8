/* Values of a body, or of a block of its equations, to keep: a sequence of sets, from all that the backward pass reads
 * to none.
 *
 * A value that is not kept is made again from those that are, so what it costs depends on them. Of few values all sets
 * are compared. Of more, from one set to the next the value goes that frees most bytes for a second, and a local search
 * goes on from these sets. Values that a policy insists on stay, or go first; results that later blocks read stay.
 *
 *   keeps   N = what the backward pass reads        seconds(K) = of the equations that lead from K to N
 *   next    K without argmin_v (seconds(K - v) - seconds(K)) / (bytes(K) - bytes(K - v)) */
#include "src/autodiff/limit/body.h"
#include "src/autodiff/regions/record.h"
#include "src/graph/region.h"

enum {
    FEW = 10,        /* values of which all sets are compared */
    CLASSES = 64,    /* of bytes, for each of which the best set is looked for */
    MOST_SWAPS = 24, /* values of which pairs change places */
    MOST_ROUNDS = 8
};

typedef struct set_search {
    tow__arena *arena;
    tow__body_values *v;
    tow__kept_set *sets;
    uint32_t n, capacity;
    uint32_t *free; /* equations whose results may be kept or not */
    uint32_t n_free;
} set_search;

static bool add_set(set_search *s, tow__keep_cost c)
{
    tow__kept_set set = {.bytes = c.bytes, .working = tow__backward_bytes(s->v), .seconds = c.seconds};
    tow__kept_set *grown = tow__list_extend(s->arena, s->sets, s->n, &s->capacity, sizeof *grown);
    if (!grown || !tow__write_verdicts(s->arena, s->v, &set.verdict)) return false;
    s->sets = grown;
    s->sets[s->n++] = set;
    return true;
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static bool is_kept_anyway(const tow__body_values *v, uint32_t k)
{
    if (v->forced[k]) return v->forced[k] == TOW_MUST_SAVE + 1;
    if (v->pinned[k]) return true;
    return v->end < v->g->n_equations && v->last[k] >= v->end && v->g->equations[k].n_in > 0;
}

/* Keeps what has to be and what the backward pass reads; lists what is free. */
static bool begin_search(set_search *s)
{
    tow__body_values *v = s->v;
    s->free = tow__arena_alloc(s->arena, (size_t)(v->end - v->begin) + 1, sizeof *s->free);
    if (!s->free) return false;
    for (uint32_t k = v->begin; k < v->end; k++) {
        const tow__equation *e = &v->g->equations[k];
        const bool anyway = is_kept_anyway(v, k), never = v->forced[k] == TOW_MUST_RECOMPUTE + 1;
        v->kept[k] = anyway || (tow__residual_bytes_of(v, k) > 0 && !never);
        if (!anyway && !never && e->n_in > 0 && !tow__is_alias(e)) s->free[s->n_free++] = k;
    }
    return true;
}

/* ---- all sets ---------------------------------------------------------------------------------------------------- */

/* Behind the first set, those that keep no value for nothing: each keeps fewer bytes, or makes less again, than every
 * other one. */
static bool list_all(set_search *s)
{
    tow__body_values *v = s->v;
    const uint32_t n = 1u << s->n_free;
    tow__keep_cost *costs = tow__arena_alloc(s->arena, n, sizeof *costs);
    if (!costs) return false;
    for (uint32_t subset = 0; subset < n; subset++) {
        for (uint32_t i = 0; i < s->n_free; i++) v->kept[s->free[i]] = subset >> i & 1;
        costs[subset] = tow__keep_cost_of(v);
    }
    double seconds = -1; /* more seconds, fewer bytes, from one to the next */
    size_t bytes = s->sets[0].bytes;
    for (;;) {
        uint32_t best = n;
        for (uint32_t i = 0; i < n; i++) {
            if (costs[i].seconds <= seconds || costs[i].bytes >= bytes) continue;
            if (best == n || costs[i].seconds < costs[best].seconds ||
                (costs[i].seconds <= costs[best].seconds && costs[i].bytes < costs[best].bytes))
                best = i;
        }
        if (best == n) return true;
        for (uint32_t i = 0; i < s->n_free; i++) v->kept[s->free[i]] = best >> i & 1;
        if (!add_set(s, costs[best])) return false;
        seconds = costs[best].seconds;
        bytes = costs[best].bytes;
    }
}

/* ---- neighbors ---------------------------------------------------------------------------------------------------
 *
 * Local search among the sets that are best for their bytes: each is compared with those that keep one value more or
 * one less, of few values also with those that keep another one, until none of them is better. */

typedef struct best_set {
    bool *kept; /* [n_free]; NULL: there is none with so many bytes */
    tow__keep_cost cost;
    bool compared; /* with its neighbors */
} best_set;

typedef struct best_sets {
    best_set of[CLASSES + 1]; /* by bytes: at most i / CLASSES of what is kept at first */
    size_t all;
    bool failed;
} best_sets;

static bool is_better(tow__keep_cost a, tow__keep_cost b)
{
    return a.seconds < b.seconds || (a.seconds <= b.seconds && a.bytes < b.bytes);
}

/* The set that is kept now. */
static void offer(const set_search *s, best_sets *best)
{
    const tow__keep_cost c = tow__keep_cost_of(s->v);
    if (c.bytes > best->all) return;
    best_set *b = &best->of[best->all ? (c.bytes * CLASSES + best->all - 1) / best->all : 0];
    if (b->kept && !is_better(c, b->cost)) return;
    if (!b->kept) b->kept = tow__arena_alloc(s->arena, (size_t)s->n_free + 1, sizeof *b->kept);
    if (!b->kept) best->failed = true;
    for (uint32_t i = 0; b->kept && i < s->n_free; i++) b->kept[i] = s->v->kept[s->free[i]];
    b->cost = c;
    b->compared = false;
}

static void restore(const set_search *s, const bool *kept)
{
    for (uint32_t i = 0; i < s->n_free; i++) s->v->kept[s->free[i]] = kept[i];
}

static void compare_neighbors(const set_search *s, best_set *b, best_sets *best)
{
    bool *kept = s->v->kept;
    b->compared = true;
    restore(s, b->kept);
    for (uint32_t i = 0; i < s->n_free && !best->failed; i++) {
        const uint32_t k = s->free[i];
        kept[k] = !kept[k];
        offer(s, best);
        for (uint32_t j = 0; j < i && s->n_free <= MOST_SWAPS; j++) {
            const uint32_t other = s->free[j];
            if (kept[k] == kept[other]) continue;
            kept[other] = !kept[other];
            offer(s, best);
            kept[other] = !kept[other];
        }
        kept[k] = !kept[k];
        if (!b->compared) return; /* a better one has taken its place */
    }
}

/* ---- one by one -------------------------------------------------------------------------------------------------- */

/* The value that frees most bytes for a second; TOW__INPUT: none is left. */
static uint32_t next_to_go(const set_search *s, tow__keep_cost now)
{
    tow__body_values *v = s->v;
    uint32_t best = TOW__INPUT;
    double least = 0;
    for (uint32_t i = 0; i < s->n_free; i++) {
        const uint32_t k = s->free[i];
        if (!v->kept[k]) continue;
        v->kept[k] = false;
        const tow__keep_cost c = tow__keep_cost_of(v);
        v->kept[k] = true;
        if (c.bytes >= now.bytes) continue;
        const double price = (c.seconds - now.seconds) / (double)(now.bytes - c.bytes);
        if (best == TOW__INPUT || price < least) best = k, least = price;
    }
    return best;
}

static void give_up_one_by_one(const set_search *s, best_sets *best)
{
    tow__keep_cost now = tow__keep_cost_of(s->v);
    offer(s, best);
    for (uint32_t k; !best->failed && (k = next_to_go(s, now)) != TOW__INPUT;) {
        s->v->kept[k] = false;
        now = tow__keep_cost_of(s->v);
        offer(s, best);
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static bool search_near(set_search *s)
{
    best_sets best = {.all = s->sets[0].bytes};
    give_up_one_by_one(s, &best);
    uint32_t rounds = 0;
    for (bool changed = true; changed && rounds < MOST_ROUNDS && !best.failed; rounds++) {
        changed = false;
        for (uint32_t i = 0; i <= CLASSES && !best.failed; i++) {
            best_set *b = &best.of[i];
            if (!b->kept || b->compared) continue;
            compare_neighbors(s, b, &best);
            changed = true;
        }
    }
    for (uint32_t i = CLASSES + 1; i-- > 0 && !best.failed;) { /* the first set keeps all */
        const best_set *b = &best.of[i];
        if (!b->kept || b->cost.bytes >= s->sets[s->n - 1].bytes) continue;
        while (s->n > 1 && s->sets[s->n - 1].seconds >= b->cost.seconds) s->n--;
        restore(s, b->kept);
        if (!add_set(s, b->cost)) return false;
    }
    return !best.failed;
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

/* Leaves sets on the lower convex hull of (bytes, seconds), which begins and ends with the first and the last. */
static uint32_t keep_hull(tow__kept_set *sets, uint32_t n_sets)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_sets; i++) {
        const tow__kept_set next = sets[i];
        while (n > 1) {
            const tow__kept_set *a = &sets[n - 2], *b = &sets[n - 1];
            const double first = (b->seconds - a->seconds) * (double)(a->bytes - next.bytes),
                         both = (next.seconds - a->seconds) * (double)(a->bytes - b->bytes);
            if (first < both) break;
            n--;
        }
        sets[n++] = next;
    }
    return n;
}

/* Sets whose bytes differ by less than a `most`-th of all go, but for the first and the last. */
static uint32_t thin_out(tow__kept_set *sets, uint32_t n_sets, uint32_t most)
{
    uint32_t n = 0;
    const size_t all = sets[0].bytes;
    for (uint32_t i = 0; i < n_sets; i++) {
        const bool last = i + 1 == n_sets;
        if (last && n > 1 && sets[n - 1].bytes == sets[i].bytes) n--;
        if (!last && n > 0 && sets[n - 1].bytes - sets[i].bytes < all / most) continue;
        sets[n++] = sets[i];
    }
    return n;
}

tow_status tow__search_kept_sets(tow__arena *arena, tow__body_values *values, bool hull, uint32_t most,
                                 tow__kept_set **sets, uint32_t *n)
{
    set_search s = {.arena = arena, .v = values};
    if (!begin_search(&s)) return TOW_OUT_OF_MEMORY;
    if (!add_set(&s, tow__keep_cost_of(values))) return TOW_OUT_OF_MEMORY;
    if (!(s.n_free <= FEW ? list_all(&s) : search_near(&s))) return TOW_OUT_OF_MEMORY;
    if (hull) s.n = keep_hull(s.sets, s.n);
    *n = thin_out(s.sets, s.n, most);
    *sets = s.sets;
    return TOW_OK;
}

tow_status tow__find_kept_sets(tow__arena *arena, const tow_graph *body, const tow__price *price, bool hull,
                               uint32_t most, tow__kept_sets *sets)
{
    tow__body_values v;
    *sets = (tow__kept_sets){0};
    tow_status status = tow__body_values_find(arena, body, price, &sets->body, &v);
    if (status != TOW_OK) return status;
    sets->working = v.working;
    return tow__search_kept_sets(arena, &v, hull, most, &sets->sets, &sets->n);
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

const tow_policy *tow__policy_of_marked(const tow_graph *g, uint32_t begin, uint32_t end, const uint8_t *verdict)
{
    bool kept = true;
    for (uint32_t k = begin; k < end; k++)
        if (tow__is_region(&g->equations[k]) && verdict[k - begin] < TOW_PREFER_SAVE) kept = false;
    return tow__marked_policy(kept);
}

static bool must_recompute(const tow_graph *g, const uint8_t *verdict)
{
    for (uint32_t k = 0; k < g->n_equations; k++)
        if (verdict[k] == TOW_MUST_RECOMPUTE) return true;
    return false;
}

tow_status tow__as_region(const tow_graph *body, const tow_policy *policy, tow_graph **region)
{
    tow_value *x, *y;
    tow_trace *t = tow__trace_begin_over(body, &x, &y);
    *region = NULL;
    if (!t) return TOW_OUT_OF_MEMORY;
    const tow__remat_params p = {.body = (tow_graph *)(uintptr_t)body, .policy = policy};
    for (uint32_t i = 0; i < body->n_inputs; i++)
        x[i] = tow__input(t, body->vars[body->inputs[i]].type, body->input_names[i]);
    tow__bind(t, &tow__remat_p, &p, body->n_inputs, x, body->n_outputs, y);
    return tow__trace_end(t, body->n_outputs, y, false, region);
}

static void record_verdict(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                           const void *user)
{
    const uint8_t *verdict = user;
    tow__record_marked(t, g, e, (tow_verdict)verdict[e - g->equations], x, y);
}

tow_status tow__mark_set(const tow__kept_sets *sets, uint32_t set, tow_graph **body, const tow_policy **policy)
{
    const tow_graph *g = sets->body;
    *policy = tow__policy_of_marked(g, 0, g->n_equations, sets->sets[set].verdict);
    return tow__copy_by(g, record_verdict, sets->sets[set].verdict, body);
}

tow_status tow__keep_set(const tow__kept_sets *sets, uint32_t set, tow_graph **body)
{
    const tow_graph *g = sets->body;
    const uint8_t *verdict = sets->sets[set].verdict;
    tow_graph *marked = NULL;
    *body = NULL;
    if (set == 0 && !must_recompute(g, verdict)) {
        *body = tow__graph_share(g);
        return TOW_OK;
    }
    const tow_policy *policy;
    tow_status status = tow__mark_set(sets, set, &marked, &policy);
    if (status != TOW_OK) return status;
    status = tow__as_region(marked, policy, body);
    tow_graph_release(marked);
    return status;
}
