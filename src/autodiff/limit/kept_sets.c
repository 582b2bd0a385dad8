/* Values of a body to keep: a sequence of sets, from all that the backward pass reads to none.
 *
 * A value that is not kept is made again from those that are, so what it costs depends on them. From one set to the
 * next the value goes that frees most bytes for a second. Values that a policy insists on stay, or go first.
 *
 *   keeps   N = what the backward pass reads        seconds(K) = of the equations that lead from K to N
 *   next    K without argmin_v (seconds(K - v) - seconds(K)) / (bytes(K) - bytes(K - v)) */
#include "src/autodiff/limit/limit.h"
#include "src/autodiff/regions/record.h"
#include "src/autodiff/transformations/differentiate.h"
#include "src/graph/region.h"

enum {
    MOST_STEPS = 256 /* larger bodies give up several values at a time */
};

/* ---- stripping --------------------------------------------------------------------------------------------------- */

static void record_stripped(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                            const void *user);

/* The body of a region with a limit: what it does not keep, nobody keeps. */
static void record_limited(tow_trace *t, const tow__equation *e, tow_value *x, tow_value *y)
{
    tow__remat_params limited;
    if (tow__limit_region(e, NULL, &limited) != TOW_OK) {
        tow__adopt_error(t);
        return;
    }
    tow__inline_by(t, limited.body, record_stripped, limited.policy, x, y);
    tow_graph_release(limited.body);
}

/* Records e, marked with what a policy around it insists on; the body of a region in its place. */
static void record_stripped(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                            const void *user)
{
    const tow_policy *policy = user;
    const tow__remat_params *region = tow__written_region(e);
    if (region && region->limit && !policy) {
        record_limited(t, e, x, y);
        return;
    }
    if (region) {
        tow__inline_by(t, region->body, record_stripped, policy ? policy : region->policy, x, y);
        return;
    }
    tow__source source = e->source;
    const tow_verdict verdict = policy ? tow__policy_ask(policy, g, e) : TOW_PREFER_SAVE;
    const bool must = verdict == TOW_MUST_SAVE || verdict == TOW_MUST_RECOMPUTE;
    if (must) source.mark = tow__mark(0, verdict);
    tow__set_source(t, &source);
    tow__rebind(t, e, x, y);
    tow__set_source(t, NULL);
}

/* ---- marking ----------------------------------------------------------------------------------------------------- */

typedef struct marking {
    const tow_graph *g;
    const uint8_t *verdict;
} marking;

static void record_marked(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                          const void *user)
{
    const marking *m = user;
    const uint32_t number = (uint32_t)(e - g->equations);
    tow__source source = e->source;
    source.mark = tow__mark(number, (tow_verdict)m->verdict[number]);
    tow__set_source(t, &source);
    tow__rebind(t, e, x, y);
    tow__set_source(t, NULL);
}

/* ---- what the backward pass reads -------------------------------------------------------------------------------- */

typedef struct body_state {
    const tow_graph *g;
    size_t *need;    /* [equations] bytes of residuals that it makes */
    size_t *result;  /* bytes of its results */
    double *seconds; /* to make it again */
    uint8_t *forced; /* verdict + 1; 0: none */
    bool *kept;
    bool *seen;
    uint32_t *stack;
} body_state;

/* Differentiates the marked body: residuals carry the mark of the equation that made them. */
static tow_status find_needs(body_state *s, tow__kept_sets *sets)
{
    tow_graph *marked = NULL;
    tow__parts parts;
    uint8_t *all = tow__alloc(s->g->ctx, s->g->n_equations + 1, 1);
    tow_status status = all ? TOW_OK : TOW_OUT_OF_MEMORY;
    if (status == TOW_OK) status = tow__copy_by(s->g, record_marked, &(marking){s->g, all}, &marked);
    if (all) tow__free(s->g->ctx, all, s->g->n_equations + 1, 1);
    const bool before = tow__verify_gradients(s->g->ctx, false);
    if (status == TOW_OK)
        status = tow__differentiate(marked, "memory limit", 0, NULL, (tow__manner){.runs_once = true}, &parts);
    tow__verify_gradients(s->g->ctx, before);
    tow_graph_release(marked);
    if (status != TOW_OK) return status;
    const tow_graph *k = parts.split.known;
    for (uint32_t i = 0; i < parts.split.n_residuals; i++) {
        const uint32_t var = k->outputs[k->n_outputs - parts.split.n_residuals + i];
        const uint32_t made = k->vars[var].equation;
        const uint32_t mark = made == TOW__INPUT ? 0 : k->equations[made].source.mark >> TOW__MARK_BITS;
        const size_t bytes = tow_type_bytes(k->vars[var].type);
        sets->working += bytes;
        if (mark && mark <= s->g->n_equations) s->need[mark - 1] += bytes;
    }
    tow__parts_free(&parts);
    return TOW_OK;
}

/* ---- the cost of a set ------------------------------------------------------------------------------------------- */

typedef struct cost {
    double seconds;
    size_t bytes;
} cost;

static void visit(body_state *s, uint32_t k, uint32_t *n)
{
    if (s->seen[k]) return;
    s->seen[k] = true;
    s->stack[(*n)++] = k;
}

static cost cost_of(body_state *s)
{
    const tow_graph *g = s->g;
    cost c = {0};
    uint32_t n = 0;
    memset(s->seen, 0, g->n_equations);
    for (uint32_t k = 0; k < g->n_equations; k++)
        if (s->need[k]) visit(s, k, &n);
    while (n > 0) {
        const uint32_t k = s->stack[--n];
        if (s->kept[k]) {
            c.bytes += s->need[k] ? s->need[k] : s->result[k];
            continue;
        }
        c.seconds += s->seconds[k];
        for (uint32_t i = 0; i < g->equations[k].n_in; i++) {
            const uint32_t made = g->vars[g->equations[k].in[i]].equation;
            if (made != TOW__INPUT) visit(s, made, &n);
        }
    }
    return c;
}

/* The value that frees most bytes for a second; TOW__INPUT: none is left. */
static uint32_t next_to_go(body_state *s, cost now)
{
    uint32_t best = TOW__INPUT;
    double least = 0;
    for (uint32_t k = 0; k < s->g->n_equations; k++) {
        if (!s->kept[k] || s->forced[k] == TOW_MUST_SAVE + 1) continue;
        s->kept[k] = false;
        const cost c = cost_of(s);
        s->kept[k] = true;
        if (c.bytes >= now.bytes) continue;
        const double price = (c.seconds - now.seconds) / (double)(now.bytes - c.bytes);
        if (best == TOW__INPUT || price < least) best = k, least = price;
    }
    return best;
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

static bool add_set(tow__arena *arena, const body_state *s, cost c, tow__kept_set *set)
{
    *set = (tow__kept_set){.bytes = c.bytes, .seconds = c.seconds};
    set->verdict = tow__arena_alloc(arena, (size_t)s->g->n_equations + 1, 1);
    for (uint32_t k = 0; set->verdict && k < s->g->n_equations; k++)
        set->verdict[k] = s->forced[k] ? (uint8_t)(s->forced[k] - 1)
                          : s->kept[k] ? TOW_PREFER_SAVE
                                       : TOW_PREFER_RECOMPUTE;
    return set->verdict != NULL;
}

static tow_status give_up_one_by_one(tow__arena *arena, body_state *s, tow__kept_sets *sets)
{
    uint32_t n_kept = 0;
    for (uint32_t k = 0; k < s->g->n_equations; k++) n_kept += s->kept[k];
    const uint32_t at_once = n_kept / MOST_STEPS + 1;
    sets->sets = tow__arena_alloc(arena, (size_t)n_kept + 2, sizeof *sets->sets);
    if (!sets->sets) return TOW_OUT_OF_MEMORY;
    cost now = cost_of(s);
    if (!add_set(arena, s, now, &sets->sets[sets->n++])) return TOW_OUT_OF_MEMORY;
    for (uint32_t k, i = 1; (k = next_to_go(s, now)) != TOW__INPUT; i++) {
        s->kept[k] = false;
        now = cost_of(s);
        if (i % at_once) continue;
        if (!add_set(arena, s, now, &sets->sets[sets->n++])) return TOW_OUT_OF_MEMORY;
    }
    return add_set(arena, s, now, &sets->sets[sets->n++]) ? TOW_OK : TOW_OUT_OF_MEMORY;
}

/* Leaves sets on the lower convex hull of (bytes, seconds), which begins and ends with the first and the last. */
static void keep_hull(tow__kept_sets *sets)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sets->n; i++) {
        const tow__kept_set next = sets->sets[i];
        while (n > 1) {
            const tow__kept_set *a = &sets->sets[n - 2], *b = &sets->sets[n - 1];
            const double first = (b->seconds - a->seconds) * (double)(a->bytes - next.bytes),
                         both = (next.seconds - a->seconds) * (double)(a->bytes - b->bytes);
            if (first < both) break;
            n--;
        }
        sets->sets[n++] = next;
    }
    sets->n = n;
}

/* Sets whose bytes differ by less than a `most`-th of all go, but for the first and the last. */
static void thin_out(tow__kept_sets *sets, uint32_t most)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sets->n; i++) {
        const bool last = i + 1 == sets->n;
        if (last && n > 1 && sets->sets[n - 1].bytes == sets->sets[i].bytes) n--;
        if (!last && n > 0 && sets->sets[n - 1].bytes - sets->sets[i].bytes < sets->sets[0].bytes / most) continue;
        sets->sets[n++] = sets->sets[i];
    }
    sets->n = n;
}

/* ---- cuts ---------------------------------------------------------------------------------------------------------
 *
 * Making everything again at once takes as much as keeping it. So further sets keep what is alive at a few places of
 * the body, and the parts between them are made again one at a time: the square root rule where all parts are alike. */

/* The equation behind views that makes var; TOW__INPUT: none. */
static uint32_t maker_behind_views(const tow_graph *g, uint32_t var)
{
    uint32_t made = g->vars[var].equation;
    while (made != TOW__INPUT && g->equations[made].primitive->view && g->equations[made].n_in == 1)
        made = g->vars[g->equations[made].in[0]].equation;
    return made;
}

/* Bytes of results that are made before equation `at` and read from there on. last: [equations] last reader. keep:
 * marks them. */
static size_t alive_at(body_state *s, const uint32_t *last, uint32_t at, bool keep)
{
    size_t bytes = 0;
    for (uint32_t k = 0; k < at; k++) {
        if (last[k] < at || s->forced[k] == TOW_MUST_RECOMPUTE + 1 || s->g->equations[k].n_in == 0) continue;
        bytes += s->result[k];
        if (keep) s->kept[k] = true;
    }
    return bytes;
}

static tow_status add_cuts(tow__arena *arena, body_state *s, tow__kept_sets *sets)
{
    static const uint32_t cuts[] = {1, 2, 3, 5, 8, 13, 21, 34};
    const uint32_t n = s->g->n_equations, n_cuts = sizeof cuts / sizeof *cuts;
    uint32_t *last = tow__arena_alloc(arena, (size_t)n + 1, sizeof *last);
    tow__kept_set *all = tow__arena_alloc(arena, (size_t)sets->n + n_cuts, sizeof *all);
    if (!last || !all) return TOW_OUT_OF_MEMORY;
    memcpy(all, sets->sets, sets->n * sizeof *all);
    sets->sets = all;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < s->g->equations[k].n_in; i++) {
            const uint32_t made = maker_behind_views(s->g, s->g->equations[k].in[i]);
            if (made != TOW__INPUT) last[made] = k;
        }
    for (uint32_t c = 0; c < n_cuts && 2 * cuts[c] < n; c++) {
        const uint32_t part = n / (cuts[c] + 1);
        memset(s->kept, 0, n * sizeof *s->kept);
        for (uint32_t i = 1; i <= cuts[c]; i++) {
            const uint32_t middle = (uint32_t)((uint64_t)n * i / (cuts[c] + 1));
            uint32_t best = middle;
            for (uint32_t at = middle - part / 3; at <= middle + part / 3; at++)
                if (alive_at(s, last, at, false) < alive_at(s, last, best, false)) best = at;
            alive_at(s, last, best, true);
        }
        for (uint32_t k = 0; k < n; k++) s->kept[k] |= s->forced[k] == TOW_MUST_SAVE + 1;
        if (!add_set(arena, s, cost_of(s), &sets->sets[sets->n++])) return TOW_OUT_OF_MEMORY;
    }
    return TOW_OK;
}

static bool alloc_state(tow__arena *arena, body_state *s)
{
    const size_t n = (size_t)s->g->n_equations + 1;
    s->need = tow__arena_alloc(arena, n, sizeof *s->need);
    s->result = tow__arena_alloc(arena, n, sizeof *s->result);
    s->seconds = tow__arena_alloc(arena, n, sizeof *s->seconds);
    s->forced = tow__arena_alloc(arena, n, 1);
    s->kept = tow__arena_alloc(arena, n, sizeof *s->kept);
    s->seen = tow__arena_alloc(arena, n, sizeof *s->seen);
    s->stack = tow__arena_alloc(arena, n, sizeof *s->stack);
    return s->need && s->result && s->seconds && s->forced && s->kept && s->seen && s->stack;
}

tow_status tow__find_kept_sets(tow__arena *arena, const tow_graph *body, const tow__price *price, bool hull,
                               uint32_t most, tow__kept_sets *sets)
{
    *sets = (tow__kept_sets){0};
    tow_status status = tow__copy_by(body, record_stripped, NULL, &sets->body);
    if (status != TOW_OK) return status;
    body_state s = {.g = sets->body};
    if (!alloc_state(arena, &s)) return TOW_OUT_OF_MEMORY;
    status = find_needs(&s, sets);
    if (status != TOW_OK) return status;
    for (uint32_t k = 0; k < s.g->n_equations; k++) {
        const tow__equation *e = &s.g->equations[k];
        s.forced[k] = (uint8_t)(e->source.mark & ((1u << TOW__MARK_BITS) - 1));
        s.seconds[k] = price->seconds(price, s.g, e);
        for (uint32_t i = 0; i < e->n_out; i++) s.result[k] += tow_type_bytes(s.g->vars[e->out[i]].type);
        s.kept[k] = s.need[k] > 0 && s.forced[k] != TOW_MUST_RECOMPUTE + 1;
    }
    status = give_up_one_by_one(arena, &s, sets);
    if (status != TOW_OK) return status;
    if (hull) keep_hull(sets);
    thin_out(sets, most);
    return hull ? TOW_OK : add_cuts(arena, &s, sets);
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

/* Do loops of the body keep what they make? They do if all of them are kept. */
static bool loops_are_kept(const tow_graph *g, const uint8_t *verdict)
{
    for (uint32_t k = 0; k < g->n_equations; k++)
        if (tow__is_region(&g->equations[k]) && verdict[k] < TOW_PREFER_SAVE) return false;
    return true;
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

tow_status tow__mark_set(const tow__kept_sets *sets, uint32_t set, tow_graph **body, const tow_policy **policy)
{
    const uint8_t *verdict = sets->sets[set].verdict;
    *policy = tow__marked_policy(loops_are_kept(sets->body, verdict));
    return tow__copy_by(sets->body, record_marked, &(marking){sets->body, verdict}, body);
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
