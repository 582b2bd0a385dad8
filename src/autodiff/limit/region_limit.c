/* A region with a limit of its own (TOW_REMAT(.limit)): what it keeps is chosen when it is differentiated, as the kept
 * set of its body with the least to make again, of those whose residuals take no more bytes.
 *
 * Residuals that the region makes count, its arguments do not: others made them. Every set has what the policy of the
 * region insists on. A candidate is differentiated, so its bytes are those of the gradient. The seconds by which sets
 * are compared are those of no machine, so that a graph has the same residuals everywhere. */
#include "src/autodiff/limit/limit.h"
#include "src/autodiff/transformations/differentiate.h"
#include "src/base/view.h"
#include "src/graph/region.h"

enum {
    MOST_SETS = 64
};

/* ---- seconds ----------------------------------------------------------------------------------------------------- */

static double price_of_graph(const tow__price *price, const tow_graph *g)
{
    double seconds = 0;
    for (uint32_t k = 0; k < g->n_equations; k++) seconds += price->seconds(price, g, &g->equations[k]);
    return seconds;
}

/* A nominal core: 32 operations and 8 bytes in a nanosecond. */
static double price_of(const tow__price *price, const tow_graph *g, const tow__equation *e)
{
    const double operations_per_second = 32e9, bytes_per_second = 8e9;
    tow__view *views = (tow__view *)(uintptr_t)price->user;
    tow__region_form form;
    if (e->primitive->view) return 0;
    if (tow__region_of(e, &form)) {
        double seconds = 0;
        for (uint32_t k = 0; k < form.conditions + form.branches; k++)
            seconds += price_of_graph(price, tow__nested(e->primitive, e->params, k));
        return seconds * (double)(form.length > 0 ? form.length : form.most > 0 ? form.most : 1);
    }
    size_t bytes = 0;
    for (uint32_t i = 0; i < e->n_in + e->n_out; i++) {
        const tow_type type = g->vars[i < e->n_in ? e->in[i] : e->out[i - e->n_in]].type;
        views[i] = tow__view_whole(i, type);
        bytes += tow_type_bytes(type);
    }
    const tow__operation o = {e->params, e->n_in, e->n_out, views, views + e->n_in, e->primitive};
    return e->primitive->cost(&o).estimate / operations_per_second + (double)bytes / bytes_per_second;
}

/* Operands and results of the equation that has most of them. */
static uint32_t widest(const tow_graph *g)
{
    uint32_t most = 0;
    for (uint32_t k = 0; k < g->n_equations; k++) {
        const tow__equation *e = &g->equations[k];
        if (e->n_in + e->n_out > most) most = e->n_in + e->n_out;
        for (uint32_t i = 0; i < tow__nested_count(e->primitive, e->params); i++) {
            const uint32_t inner = widest(tow__nested(e->primitive, e->params, i));
            if (inner > most) most = inner;
        }
    }
    return most;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Bytes of the residuals of the body, in a region with this policy, that are no inputs of it. wrt: [n_wrt] its inputs
 * with tangents. Copies that are kept to verify what is made again do not count. */
static tow_status residual_bytes(const tow_graph *body, const tow_policy *policy, size_t n_wrt, const size_t *wrt,
                                 size_t *bytes)
{
    tow_graph *region = NULL;
    tow__parts parts;
    *bytes = 0;
    tow_status status = tow__as_region(body, policy, &region);
    const bool verifies = tow__verify_gradients(body->ctx, false);
    if (status == TOW_OK) status = tow__differentiate(region, "memory limit", n_wrt, wrt, (tow__manner){0}, &parts);
    tow__verify_gradients(body->ctx, verifies);
    tow_graph_release(region);
    if (status != TOW_OK) return status;
    const tow_graph *k = parts.split.known;
    for (uint32_t i = 0; i < parts.split.n_residuals; i++) {
        const uint32_t var = k->outputs[k->n_outputs - parts.split.n_residuals + i];
        if (k->vars[var].equation != TOW__INPUT) *bytes += tow_type_bytes(k->vars[var].type);
    }
    tow__parts_free(&parts);
    return TOW_OK;
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

typedef struct choosing {
    const tow__equation *e;
    const tow__remat_params *p;
    size_t *wrt;
    size_t n_wrt;
    bool *tried;  /* [sets] */
    size_t least; /* bytes of the sets that were tried */
    tow__remat_params *limited;
} choosing;

/* The fastest set that was not tried; sets->n: there is none. */
static uint32_t next_set(const choosing *c, const tow__kept_sets *sets)
{
    uint32_t best = sets->n;
    for (uint32_t i = 0; i < sets->n; i++)
        if (!c->tried[i] && (best == sets->n || sets->sets[i].seconds < sets->sets[best].seconds)) best = i;
    return best;
}

/* *fits: the residuals are within the limit, and the set is what c->limited keeps. */
static tow_status try_set(choosing *c, const tow__kept_sets *sets, uint32_t set, bool *fits)
{
    const tow_policy *policy;
    tow_graph *body = NULL;
    size_t bytes = 0;
    tow_status status = tow__mark_set(sets, set, &body, &policy);
    *fits = false;
    if (status == TOW_OK) status = residual_bytes(body, policy, c->n_wrt, c->wrt, &bytes);
    *fits = status == TOW_OK && bytes <= (size_t)c->p->limit;
    if (bytes < c->least) c->least = bytes;
    if (*fits) {
        c->limited->body = body;
        c->limited->policy = policy;
        c->limited->limit = 0;
        return TOW_OK;
    }
    tow_graph_release(body);
    return status;
}

/* Nobody else may keep what the set does not. The equation behind a name makes what is kept under the name. */
static void insist(const tow__kept_sets *sets, uint32_t set)
{
    const tow_graph *g = sets->body;
    uint8_t *verdict = sets->sets[set].verdict;
    for (uint32_t k = g->n_equations; k-- > 0;) {
        const uint32_t made =
            g->equations[k].primitive->kind == TOW__NAME ? g->vars[g->equations[k].in[0]].equation : TOW__INPUT;
        if (made != TOW__INPUT && verdict[k] == TOW_PREFER_SAVE && verdict[made] == TOW_PREFER_RECOMPUTE)
            verdict[made] = TOW_PREFER_SAVE;
    }
    for (uint32_t k = 0; k < g->n_equations; k++)
        if (verdict[k] == TOW_PREFER_RECOMPUTE && g->equations[k].primitive->kind != TOW__NAME)
            verdict[k] = TOW_MUST_RECOMPUTE;
}

static tow_status refuse(const choosing *c)
{
    const char *scope = c->e->source.scope, *here = c->e->source.here;
    return tow__fail(c->p->body->ctx, TOW_INVALID_ARGUMENT,
                     "remat%s%s%s%s: .limit: expected at least %zu bytes, which the residuals take that the policy "
                     "insists on, found %lld; raise the limit, or let the policy insist on less",
                     scope ? " in " : "", scope ? scope : "", here ? " at " : "", here ? here : "", c->least,
                     (long long)c->p->limit);
}

static tow_status choose(choosing *c, const tow__kept_sets *sets)
{
    for (uint32_t set; (set = next_set(c, sets)) < sets->n;) {
        bool fits;
        c->tried[set] = true;
        insist(sets, set);
        tow_status status = try_set(c, sets, set, &fits);
        if (status != TOW_OK || fits) return status;
    }
    return refuse(c);
}

static tow_status find_wrt(tow__arena *arena, const bool *active, choosing *c)
{
    const tow_graph *body = c->p->body;
    c->wrt = tow__arena_alloc(arena, (size_t)body->n_inputs + 1, sizeof *c->wrt);
    if (!c->wrt) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < body->n_inputs; i++)
        if (tow_dtype_is_float(body->vars[body->inputs[i]].type.dtype) && (!active || active[i]))
            c->wrt[c->n_wrt++] = i;
    return TOW_OK;
}

tow_status tow__limit_region(const tow__equation *e, const bool *active, tow__remat_params *limited)
{
    const tow__remat_params *p = e->params;
    choosing c = {.e = e, .p = p, .least = SIZE_MAX, .limited = limited};
    tow__arena arena;
    tow__kept_sets sets = {0};
    tow_status status = TOW_OK;
    *limited = *p;
    limited->body = NULL;
    tow__arena_init(&arena, p->body->ctx);
    TRY(find_wrt(&arena, active, &c));
    if (c.n_wrt == 0) { /* it keeps nothing */
        limited->body = tow__graph_share(p->body);
        goto done;
    }
    tow__view *views = tow__arena_alloc(&arena, (size_t)widest(p->body) + 1, sizeof *views);
    TRY(views ? TOW_OK : TOW_OUT_OF_MEMORY);
    const tow__price price = {price_of, views};
    tow_graph *region = NULL;
    TRY(tow__as_region(p->body, p->policy, &region)); /* its policy goes into the marks */
    status = tow__find_kept_sets(&arena, region, &price, false, MOST_SETS, &sets);
    tow_graph_release(region);
    TRY(status);
    c.tried = tow__arena_alloc(&arena, (size_t)sets.n + 1, sizeof *c.tried);
    TRY(c.tried ? TOW_OK : TOW_OUT_OF_MEMORY);
    TRY(choose(&c, &sets));
done:
    tow_graph_release(sets.body);
    tow__arena_free(&arena);
    return status;
}
