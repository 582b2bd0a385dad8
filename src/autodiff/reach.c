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

static bool has_body(const tow__equation *e)
{
    return tow__is_region(e) && tow__nested_count(e->primitive, e->params) > 0;
}

static void mark_all(const tow__equation *e, bool *out)
{
    for (uint32_t j = 0; j < e->n_out; j++) out[j] = true;
}

/* The state of a body, made when it is reached first. */
static tow__reach *state_of(const tow__reach_walk *w, tow__reach **at, const tow_graph *g)
{
    if (!*at) *at = tow__reach_begin(w, g);
    return *at;
}

/* A choice: what is reached in any of the branches. */
static tow_status reach_branches(const tow__reach_walk *w, const tow__equation *e, tow__reach **states, const bool *in,
                                 bool *out)
{
    tow__reach **at = states;
    for (uint32_t k = 0, n = tow__nested_count(e->primitive, e->params); k < n; k++, at = &(*at)->next) {
        const tow_graph *g = tow__nested(e->primitive, e->params, k);
        if (!state_of(w, at, g)) return TOW_OUT_OF_MEMORY;
        tow_status status = tow__reach_spread(w, *at, in);
        if (status != TOW_OK) return status;
        for (uint32_t j = 0; j < e->n_out; j++) out[j] |= (*at)->var[g->outputs[j]];
    }
    return TOW_OK;
}

/* A loop. If a condition depends on what is reached, so does everything. */
static tow_status reach_repeated(const tow__reach_walk *w, const tow__equation *e, const tow__region_form *form,
                                 tow__reach **states, bool *in, bool *out)
{
    if (!state_of(w, states, form->body)) return TOW_OUT_OF_MEMORY;
    tow_status status = tow__reach_loop(w, *states, form, in);
    for (uint32_t j = 0; j < e->n_out; j++)
        out[j] |= (*states)->var[form->body->outputs[j]] || (j < form->carry && in[form->consts + j]);
    tow__reach **at = &(*states)->next;
    for (uint32_t k = 0; k < form->conditions && !w->rules && status == TOW_OK; k++, at = &(*at)->next) {
        const tow_graph *condition = tow__nested(e->primitive, e->params, k);
        if (!state_of(w, at, condition)) return TOW_OUT_OF_MEMORY;
        status = tow__reach_spread(w, *at, in);
        if ((*at)->var[condition->outputs[0]]) mark_all(e, out);
    }
    return status;
}

tow_status tow__reach_region(const tow__reach_walk *w, const tow__equation *e, tow__reach **states, bool *in, bool *out)
{
    tow__region_form form;
    tow__region_of(e, &form);
    for (uint32_t i = 0; i < form.lead && !w->rules; i++) {
        if (!in[i]) continue;
        mark_all(e, out);
        return TOW_OK;
    }
    in += form.lead;
    return form.repeats ? reach_repeated(w, e, &form, states, in, out) : reach_branches(w, e, states, in, out);
}

/* Marks the results of equation i, which has bodies. */
static tow_status reach_bodies(const tow__reach_walk *w, tow__reach *r, uint32_t i)
{
    const tow__equation *e = &r->g->equations[i];
    size_t n = (size_t)e->n_in + 1; /* the body of a fori has an input more */
    bool *in = tow__alloc(w->ctx, n + e->n_out, sizeof *in), *out = in + n;
    if (!in) return TOW_OUT_OF_MEMORY;
    for (uint32_t j = 0; j < e->n_in; j++) in[j] = r->var[e->in[j]];
    tow_status status = tow__reach_region(w, e, &r->body[i], in, out);
    for (uint32_t j = 0; j < e->n_out; j++) r->var[e->out[j]] |= out[j];
    tow__free(w->ctx, in, n + e->n_out, sizeof *in);
    return status;
}

/* Marks the results to which the equation's rule gives tangents. The equations that the rule records are thrown
 * away. */
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
    if (has_body(e)) return reach_bodies(w, r, i);
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

tow_status tow__reach_loop(const tow__reach_walk *w, tow__reach *r, const tow__region_form *form, bool *in)
{
    for (bool changed = true; changed;) {
        changed = false;
        tow_status status = tow__reach_spread(w, r, in);
        if (status != TOW_OK) return status;
        for (uint32_t i = 0; i < form->carry; i++)
            if (r->var[r->g->outputs[i]] && !in[form->consts + i]) in[form->consts + i] = changed = true;
    }
    return TOW_OK;
}
