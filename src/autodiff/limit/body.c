/* See body.h. */
#include "src/autodiff/limit/body.h"

#include "src/autodiff/regions/record.h"
#include "src/autodiff/transformations/differentiate.h"
#include "src/graph/region.h"
#include "src/ops/table.h"

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

void tow__record_marked(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_verdict verdict,
                        const tow_value *x, tow_value *y)
{
    tow__source source = e->source;
    source.mark = tow__mark((uint32_t)(e - g->equations), verdict);
    tow__set_source(t, &source);
    tow__rebind(t, e, x, y);
    tow__set_source(t, NULL);
}

static void record_numbered(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                            const void *user)
{
    (void)user;
    tow__record_marked(t, g, e, TOW_MUST_RECOMPUTE, x, y);
}

/* ---- what the backward pass reads -------------------------------------------------------------------------------- */

bool tow__is_alias(const tow__equation *e)
{
    return e->primitive->kind == TOW__NAME || (e->primitive->view && e->n_in == 1);
}

/* The equation behind aliases that makes var; TOW__INPUT: none. */
static uint32_t maker_of(const tow_graph *g, uint32_t var)
{
    uint32_t made = g->vars[var].equation;
    while (made != TOW__INPUT && tow__is_alias(&g->equations[made])) made = g->vars[g->equations[made].in[0]].equation;
    return made;
}

static void find_readers(tow__body_values *v)
{
    const tow_graph *g = v->g;
    for (uint32_t var = 0; var < g->n_vars; var++) v->maker[var] = maker_of(g, var);
    for (uint32_t k = 0; k < g->n_equations; k++) {
        const tow__equation *e = &g->equations[k];
        if (e->primitive == &tow__linear_cross_entropy_p) {
            const uint32_t made = v->maker[e->in[0]];
            v->pinned[k] = true;
            if (made != TOW__INPUT) v->pinned[made] = true;
        }
        v->last[k] = k;
        for (uint32_t i = 0; i < e->n_out; i++) v->result[k] += tow_type_bytes(g->vars[e->out[i]].type);
        for (uint32_t i = 0; i < e->n_in; i++) {
            const uint32_t made = v->maker[e->in[i]];
            if (made != TOW__INPUT) v->last[made] = k;
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const uint32_t made = v->maker[g->outputs[i]];
        if (made != TOW__INPUT) v->last[made] = g->n_equations;
    }
}

/* A residual that equation `made` of the known graph makes for equation k of the body. */
static void add_need(tow__body_values *v, const tow_graph *known, uint32_t var, uint32_t k)
{
    const tow__equation *e = &v->g->equations[k], *made = &known->equations[known->vars[var].equation];
    const bool result = made->primitive == e->primitive && known->vars[var].index < e->n_out;
    if (!result && !tow__is_alias(e)) {
        v->own[k] += tow_type_bytes(known->vars[var].type);
        return;
    }
    const uint32_t maker = e->n_out ? v->maker[e->out[0]] : TOW__INPUT;
    if (maker != TOW__INPUT) v->needed[maker] = true;
}

size_t tow__residual_bytes_of(const tow__body_values *v, uint32_t k)
{
    return v->own[k] + (v->needed[k] ? v->result[k] : 0);
}

/* Differentiates the numbered body: residuals carry the mark of the equation that made them. */
static tow_status find_needs(tow__body_values *v)
{
    tow_graph *numbered = NULL;
    tow__parts parts;
    tow_status status = tow__copy_by(v->g, record_numbered, NULL, &numbered);
    const bool before = tow__verify_gradients(v->g->ctx, false);
    if (status == TOW_OK)
        status = tow__differentiate(numbered, "memory limit", 0, NULL, (tow__manner){.runs_once = true}, &parts);
    tow__verify_gradients(v->g->ctx, before);
    tow_graph_release(numbered);
    if (status != TOW_OK) return status;
    const tow_graph *k = parts.split.known;
    for (uint32_t i = 0; i < parts.split.n_residuals; i++) {
        const uint32_t var = k->outputs[k->n_outputs - parts.split.n_residuals + i], made = k->vars[var].equation;
        const uint32_t mark = made == TOW__INPUT ? 0 : k->equations[made].source.mark >> TOW__MARK_BITS;
        v->working += tow_type_bytes(k->vars[var].type);
        if (mark && mark <= v->g->n_equations) add_need(v, k, var, mark - 1);
    }
    tow__parts_free(&parts);
    return TOW_OK;
}

static bool alloc_values(tow__arena *arena, tow__body_values *v)
{
    const size_t n = (size_t)v->g->n_equations + 1;
    v->maker = tow__arena_alloc(arena, (size_t)v->g->n_vars + 1, sizeof *v->maker);
    v->needed = tow__arena_alloc(arena, n, sizeof *v->needed);
    v->pinned = tow__arena_alloc(arena, n, sizeof *v->pinned);
    v->own = tow__arena_alloc(arena, n, sizeof *v->own);
    v->result = tow__arena_alloc(arena, n, sizeof *v->result);
    v->seconds = tow__arena_alloc(arena, n, sizeof *v->seconds);
    v->last = tow__arena_alloc(arena, n, sizeof *v->last);
    v->forced = tow__arena_alloc(arena, n, 1);
    v->kept = tow__arena_alloc(arena, n, sizeof *v->kept);
    v->seen = tow__arena_alloc(arena, n, sizeof *v->seen);
    v->stack = tow__arena_alloc(arena, n, sizeof *v->stack);
    v->from = tow__arena_alloc(arena, n, sizeof *v->from);
    v->to = tow__arena_alloc(arena, n, sizeof *v->to);
    v->change = tow__arena_alloc(arena, n + 1, sizeof *v->change);
    if (!v->maker || !v->from || !v->to || !v->change) return false;
    return v->needed && v->pinned && v->own && v->result && v->seconds && v->last && v->forced && v->kept && v->seen &&
           v->stack;
}

tow_status tow__body_values_find(tow__arena *arena, const tow_graph *body, const tow__price *price,
                                 tow_graph **stripped, tow__body_values *v)
{
    *v = (tow__body_values){0};
    tow_status status = tow__copy_by(body, record_stripped, NULL, stripped);
    if (status != TOW_OK) return status;
    v->g = *stripped;
    v->end = v->g->n_equations;
    if (!alloc_values(arena, v)) return TOW_OUT_OF_MEMORY;
    find_readers(v);
    status = find_needs(v);
    for (uint32_t k = 0; k < v->g->n_equations; k++) {
        v->forced[k] = (uint8_t)(v->g->equations[k].source.mark & ((1u << TOW__MARK_BITS) - 1));
        if (!tow__is_alias(&v->g->equations[k])) v->seconds[k] = price->seconds(price, v->g, &v->g->equations[k]);
    }
    return status;
}

/* ---- costs ------------------------------------------------------------------------------------------------------- */

enum {
    RUNS = 1,  /* the equation is made again, or what its derivative rule makes of its operands is kept */
    RESULT = 2 /* its results are kept */
};

/* Somebody reads the results of equation k, or only what its derivative rule makes. */
static void demand(tow__body_values *v, uint32_t k, bool results, tow__keep_cost *c, uint32_t *n)
{
    if (k < v->begin || k >= v->end) return;
    if (v->kept[k] && results && !(v->seen[k] & RESULT)) {
        c->bytes += v->result[k];
        v->seen[k] |= RESULT;
    }
    if (v->seen[k] & RUNS) return;
    v->seen[k] |= RUNS;
    if (v->kept[k])
        c->bytes += v->own[k];
    else
        v->stack[(*n)++] = k;
}

tow__keep_cost tow__keep_cost_of(tow__body_values *v)
{
    const tow_graph *g = v->g;
    tow__keep_cost c = {0};
    uint32_t n = 0;
    memset(v->seen + v->begin, 0, (v->end - v->begin) * sizeof *v->seen);
    for (uint32_t k = v->begin; k < v->end; k++)
        if (v->needed[k] || v->own[k]) demand(v, k, v->needed[k], &c, &n);
    while (n > 0) {
        const uint32_t k = v->stack[--n];
        c.seconds += v->seconds[k];
        for (uint32_t i = 0; i < g->equations[k].n_in; i++) {
            const uint32_t made = v->maker[g->equations[k].in[i]];
            if (made != TOW__INPUT) demand(v, made, true, &c, &n);
        }
    }
    for (uint32_t k = v->begin; k < v->end && v->end < g->n_equations; k++)
        if (!(v->seen[k] & RESULT) && v->last[k] >= v->end && g->equations[k].n_in > 0) c.bytes += v->result[k];
    return c;
}

/* ---- the peak of a backward pass ---------------------------------------------------------------------------------
 *
 * The backward pass comes to equations end - 1, ..., begin in turn. Results of k that it reads are alive from the last
 * reader of k on until k, as the cotangent is; what is kept is alive from the beginning on. */

static void add_alive(tow__body_values *v, uint32_t from, uint32_t to, size_t bytes)
{
    v->change[from] += (int64_t)bytes;
    v->change[to + 1] -= (int64_t)bytes;
}

/* The results of equation k are read at place `at`; if they are not kept, k is made again for that. */
static void read_at(tow__body_values *v, uint32_t k, uint32_t at)
{
    if (k < v->begin || k >= v->end) return;
    if (!v->seen[k]) v->from[k] = v->to[k] = at;
    v->seen[k] = RESULT;
    if (at < v->from[k]) v->from[k] = at;
    if (at > v->to[k]) v->to[k] = at;
}

size_t tow__backward_bytes(tow__body_values *v)
{
    const tow_graph *g = v->g;
    memset(v->seen + v->begin, 0, (v->end - v->begin) * sizeof *v->seen);
    memset(v->change + v->begin, 0, (v->end - v->begin + 2) * sizeof *v->change);
    for (uint32_t k = v->end; k-- > v->begin;) {
        const tow__equation *e = &g->equations[k];
        const uint32_t last = v->last[k] < v->end ? v->last[k] : v->end - 1;
        if (tow__is_alias(e)) continue;
        add_alive(v, k, last, v->result[k]); /* the cotangent */
        if (v->needed[k]) read_at(v, k, k), read_at(v, k, last);
        if (v->last[k] >= v->end && v->end < g->n_equations) read_at(v, k, last);
        if (v->kept[k]) {
            add_alive(v, k, v->end - 1, v->own[k] + (v->seen[k] ? v->result[k] : 0));
            continue;
        }
        if (v->seen[k]) add_alive(v, v->from[k], v->to[k], v->result[k]);
        if (v->own[k]) add_alive(v, k, k, v->own[k]);
        if (!v->seen[k] && !v->own[k]) continue;
        for (uint32_t i = 0; i < e->n_in; i++) {
            const uint32_t made = v->maker[e->in[i]];
            if (made != TOW__INPUT) read_at(v, made, v->seen[k] ? v->to[k] : k);
            if (made != TOW__INPUT && v->own[k]) read_at(v, made, k);
        }
    }
    int64_t bytes = 0, most = 0;
    for (uint32_t k = v->begin; k < v->end; k++) {
        bytes += v->change[k];
        if (bytes > most) most = bytes;
    }
    return (size_t)most;
}

bool tow__is_forced(const tow__body_values *v)
{
    for (uint32_t k = v->begin; k < v->end; k++)
        if (v->forced[k]) return true;
    return false;
}

bool tow__write_verdicts(tow__arena *arena, const tow__body_values *v, uint8_t **verdict)
{
    *verdict = tow__arena_alloc(arena, (size_t)(v->end - v->begin) + 1, 1);
    for (uint32_t k = v->begin; *verdict && k < v->end; k++) {
        const uint32_t made = v->g->equations[k].n_out ? v->maker[v->g->equations[k].out[0]] : k;
        const bool kept = v->kept[k] || (made != TOW__INPUT && made >= v->begin && made < v->end && v->kept[made]);
        (*verdict)[k - v->begin] = v->forced[k] ? (uint8_t)(v->forced[k] - 1)
                                   : kept       ? TOW_PREFER_SAVE
                                                : TOW_PREFER_RECOMPUTE;
    }
    return *verdict != NULL;
}

bool tow__may_cut(const tow__body_values *v, uint32_t at)
{
    for (uint32_t k = 0; k < v->g->n_equations; k++) {
        const tow__equation *e = &v->g->equations[k];
        if (v->forced[k] != TOW_MUST_RECOMPUTE + 1) continue;
        const uint32_t made = tow__is_alias(e) ? v->maker[e->out[0]] : k;
        if (made != TOW__INPUT && made < at && v->last[made] >= at) return false;
    }
    return true;
}

size_t tow__crossing_bytes(const tow__body_values *v, uint32_t first, uint32_t at)
{
    size_t bytes = 0;
    for (uint32_t k = first; k < at; k++)
        if (v->last[k] >= at && v->g->equations[k].n_in > 0) bytes += v->result[k];
    return bytes;
}
