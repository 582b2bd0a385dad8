/* The forward analysis of reach.h. */
#include "src/autodiff/reach.h"

tow__reach *tow__reach_begin(const tow__reach_walk *w, const tow_graph *g)
{
    tow__reach *r = tow__arena_alloc(w->arena, 1, sizeof *r);
    if (!r) return NULL;
    *r = (tow__reach){.g = g,
                      .var = tow__arena_alloc(w->arena, g->n_vars, sizeof *r->var),
                      .used = tow__arena_alloc(w->arena, g->n_vars, sizeof *r->used),
                      .seen = tow__arena_alloc(w->arena, g->n_equations, sizeof *r->seen),
                      .body = tow__arena_alloc(w->arena, g->n_equations, sizeof *r->body)};
    if (!r->var || !r->used || !r->seen || !r->body) return NULL;
    tow__used_values(g, r->used);
    return r;
}

static const tow_graph *body_of(const tow__equation *e)
{
    if (e->primitive == &tow__scan_p) return ((const tow__scan_params *)e->params)->body;
    if (e->primitive == &tow__remat_p) return ((const tow__remat_params *)e->params)->body;
    if (e->primitive == &tow__call_p) return ((const tow__call_params *)e->params)->body;
    return NULL;
}

/* Marks the results of equation i, which has a body. */
static tow_status reach_region(const tow__reach_walk *w, tow__reach *r, uint32_t i)
{
    const tow__equation *e = &r->g->equations[i];
    const tow_graph *body = body_of(e);
    if (!r->body[i] && !(r->body[i] = tow__reach_begin(w, body))) return TOW_OUT_OF_MEMORY;
    bool *in = tow__alloc(w->ctx, e->n_in, sizeof *in);
    if (!in) return TOW_OUT_OF_MEMORY;
    for (uint32_t j = 0; j < e->n_in; j++) in[j] = r->var[e->in[j]];
    const tow__scan_params *p = e->primitive == &tow__scan_p ? e->params : NULL;
    tow_status status = p ? tow__reach_loop(w, r->body[i], p, in) : tow__reach_spread(w, r->body[i], in);
    for (uint32_t j = 0; j < e->n_out; j++) {
        r->var[e->out[j]] |= r->body[i]->var[body->outputs[j]];
        if (p && j < p->carry) r->var[e->out[j]] |= in[p->consts + j];
    }
    tow__free(w->ctx, in, e->n_in, sizeof *in);
    return status;
}

/* Marks the results to which the equation's rule gives tangents. What the rule records is of no use. */
static tow_status reach_by_rule(const tow__reach_walk *w, tow__reach *r, const tow__equation *e)
{
    tow_trace *t = w->rules;
    tow_value *x = tow__trace_alloc(t, 2 * ((size_t)e->n_in + e->n_out), sizeof *x), *dx = x + e->n_in,
              *y = x + 2 * (size_t)e->n_in, *dy = y + e->n_out;
    bool *used = tow__trace_alloc(t, e->n_out, sizeof *used);
    if (!x || !used) return tow__report(t);
    for (uint32_t j = 0; j < e->n_in; j++) {
        x[j] = tow__input(t, r->g->vars[e->in[j]].type, NULL);
        if (r->var[e->in[j]]) dx[j] = x[j];
    }
    for (uint32_t j = 0; j < e->n_out; j++) used[j] = r->used[e->out[j]];
    tow__jvp rule = {.t = t, .e = e, .x = x, .dx = dx, .y = y, .dy = dy, .reverse = w->reverse, .used = used};
    tow__set_source(t, &e->source);
    tow__equation_jvp(&rule);
    tow__set_source(t, NULL);
    for (uint32_t j = 0; j < e->n_out; j++) r->var[e->out[j]] |= !tow_is_null(dy[j]);
    return tow__failed(t) ? tow__report(t) : TOW_OK;
}

static tow_status reach_equation(const tow__reach_walk *w, tow__reach *r, uint32_t i)
{
    const tow__equation *e = &r->g->equations[i];
    uint32_t reached = 0;
    for (uint32_t j = 0; j < e->n_in; j++) reached += r->var[e->in[j]];
    if (reached == r->seen[i]) return TOW_OK;
    r->seen[i] = reached;
    if (body_of(e)) return reach_region(w, r, i);
    if (w->rules) return reach_by_rule(w, r, e);
    for (uint32_t j = 0; j < e->n_out; j++) r->var[e->out[j]] = true;
    return TOW_OK;
}

tow_status tow__reach_spread(const tow__reach_walk *w, tow__reach *r, const bool *in)
{
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < r->g->n_inputs; i++) r->var[r->g->inputs[i]] |= in[i];
    for (uint32_t i = 0; i < r->g->n_equations && status == TOW_OK; i++) status = reach_equation(w, r, i);
    return status;
}

tow_status tow__reach_loop(const tow__reach_walk *w, tow__reach *r, const tow__scan_params *p, bool *in)
{
    for (bool changed = true; changed;) {
        changed = false;
        tow_status status = tow__reach_spread(w, r, in);
        if (status != TOW_OK) return status;
        for (int64_t i = 0; i < p->carry; i++)
            if (r->var[r->g->outputs[i]] && !in[p->consts + i]) in[p->consts + i] = changed = true;
    }
    return TOW_OK;
}
