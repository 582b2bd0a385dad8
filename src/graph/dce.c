/* Dead code elimination.
 *
 * One backward walk per graph marks live vars. Regions are walked through: operands that live outputs of their bodies
 * need are live; of loops, a carry is live if its final value is, or if a live output of the body depends on it.
 * Marks only ever grow, and the marks of nested graphs are kept in a tree beside the graphs:
 *
 *   marks of g ── var[v]            live vars of g
 *              ── region[e] ── out[], in[]   live outputs and operands of equation e
 *                           ── marks of its bodies
 *
 * so a region is walked again only when one more of its outputs is found to be live. The live part is then recorded
 * anew. Equations with effects are live, whoever reads their results. All bodies of a region have the same inputs: what
 * is live in one of them stays an input of all. */
#include "src/graph/builder.h"
#include "src/graph/region.h"

typedef struct marks marks;

typedef struct region {
    bool *out, *in; /* [n_out], [n_in + 1] of the equation; in[lead ...] are those of its bodies, in their order */
    bool walked;
    uint32_t n_bodies;
    marks **bodies;
} region;

struct marks {
    const tow_graph *g;
    bool *var;
    region *regions; /* [n_equations] */
};

static marks *new_marks(tow__arena *arena, const tow_graph *g)
{
    marks *m = tow__arena_alloc(arena, 1, sizeof *m);
    if (!m) return NULL;
    m->g = g;
    m->var = tow__arena_alloc(arena, g->n_vars, sizeof *m->var);
    m->regions = tow__arena_alloc(arena, g->n_equations, sizeof *m->regions);
    return m->var && m->regions ? m : NULL;
}

/* Fills in the marks of an equation with bodies; false: out of memory. */
static bool start_region(tow__arena *arena, const tow__equation *e, region *r)
{
    if (r->bodies) return true;
    uint32_t n = tow__nested_count(e->primitive, e->params);
    r->out = tow__arena_alloc(arena, e->n_out, sizeof *r->out);
    r->in = tow__arena_alloc(arena, (size_t)e->n_in + 1, sizeof *r->in);
    marks **bodies = tow__arena_alloc(arena, n, sizeof *r->bodies);
    if (!r->out || !r->in || !bodies) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!(bodies[i] = new_marks(arena, tow__nested(e->primitive, e->params, i)))) return false;
    r->bodies = bodies;
    r->n_bodies = n;
    return true;
}

static bool mark(tow__arena *arena, marks *m, const bool *used);

/* Input i of a body that is live in one of them. */
static bool lives_inside(const region *r, size_t i)
{
    for (uint32_t b = 0; b < r->n_bodies; b++)
        if (r->bodies[b]->var[r->bodies[b]->g->inputs[i]]) return true;
    return false;
}

/* Conditions, which stand in front, are needed whole. */
static bool mark_bodies(tow__arena *arena, region *r, const tow__region_form *form)
{
    for (uint32_t b = 0; b < r->n_bodies; b++)
        if (!mark(arena, r->bodies[b], b < form->conditions ? NULL : r->out)) return false;
    return true;
}

/* Carries until nothing changes: a live carry makes its init and its new value in the body live. */
static bool mark_loop(tow__arena *arena, region *r, const tow__region_form *form)
{
    bool *in = r->in + form->lead;
    if (form->stops) r->out[0] = true;
    for (bool grown = true; grown;) {
        grown = false;
        if (!mark_bodies(arena, r, form)) return false;
        for (uint32_t i = 0; i < form->carry; i++)
            if (!r->out[i] && lives_inside(r, form->consts + i)) grown = r->out[i] = true;
    }
    for (uint32_t i = 0; i < form->body->n_inputs; i++) {
        bool is_carry = i >= form->consts && i < form->consts + form->carry;
        in[i] = is_carry ? r->out[i - form->consts] : lives_inside(r, i);
    }
    return true;
}

/* Operands in front of those of the bodies, and the number of the iteration, stay. */
static bool mark_region(tow__arena *arena, const tow__equation *e, region *r, const bool *live)
{
    bool grown = !r->walked;
    tow__region_form form;
    tow__region_of(e, &form);
    if (!start_region(arena, e, r)) return false;
    for (uint32_t i = 0; i < e->n_out; i++)
        if (live[e->out[i]] && !r->out[i]) grown = r->out[i] = true;
    if (!grown) return true;
    r->walked = true;
    if (!(form.repeats ? mark_loop(arena, r, &form) : mark_bodies(arena, r, &form))) return false;
    for (uint32_t i = form.lead; i < e->n_in && !form.repeats; i++) r->in[i] = lives_inside(r, i - form.lead);
    for (uint32_t i = 0; i < form.lead; i++) r->in[i] = true;
    if (form.counts) r->in[e->n_in] = true;
    return true;
}

/* Effects are kept, whoever reads the results. */
static bool is_kept(const tow__equation *e, const bool *live)
{
    for (uint32_t i = 0; i < e->n_out; i++)
        if (live[e->out[i]]) return true;
    return tow__has_effect(e);
}

/* used: [outputs], NULL: all. False: out of memory. */
static bool mark(tow__arena *arena, marks *m, const bool *used)
{
    const tow_graph *g = m->g;
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (!used || used[i]) m->var[g->outputs[i]] = true;
    for (uint32_t i = g->n_equations; i-- > 0;) {
        const tow__equation *e = &g->equations[i];
        if (!is_kept(e, m->var)) continue;
        region *r = tow__is_region(e) ? &m->regions[i] : NULL;
        if (r && !mark_region(arena, e, r, m->var)) return false;
        for (uint32_t j = 0; j < e->n_in; j++)
            if (!r || r->in[j]) m->var[e->in[j]] = true;
    }
    return true;
}

/* ---- recording what is live ------------------------------------------------------------------------------------ */

static bool all(const bool *flags, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!flags[i]) return false;
    return true;
}

static int64_t count(const bool *flags, size_t n)
{
    int64_t k = 0;
    for (size_t i = 0; i < n; i++) k += flags[i];
    return k;
}

static bool whole(const marks *m);

/* Nothing of the equation and its bodies is dead. */
static bool region_is_whole(const tow__equation *e, const region *r)
{
    if (!all(r->out, e->n_out) || !all(r->in, e->n_in)) return false;
    for (uint32_t i = 0; i < r->n_bodies; i++)
        if (!whole(r->bodies[i])) return false;
    return true;
}

/* Nothing in the graph is dead, so that it can stay as it is. */
static bool whole(const marks *m)
{
    for (uint32_t i = 0; i < m->g->n_equations; i++) {
        const tow__equation *e = &m->g->equations[i];
        if (!is_kept(e, m->var)) return false;
        if (tow__is_region(e) && !region_is_whole(e, &m->regions[i])) return false;
    }
    return true;
}

/* keep_in, keep_out: NULL: all. */
static tow_status record(const marks *m, const bool *keep_in, const bool *keep_out, tow_graph **result);

/* The bodies without what is dead, in params; those that were made are to be released. */
static tow_status record_bodies(const tow__equation *e, const tow__region_form *form, const region *r, void *params)
{
    bool same = region_is_whole(e, r);
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < r->n_bodies; i++) tow__set_nested(e->primitive, params, i, NULL);
    for (uint32_t i = 0; i < r->n_bodies && status == TOW_OK; i++) {
        tow_graph *body = NULL;
        if (same)
            body = tow__graph_share(r->bodies[i]->g);
        else
            status = record(r->bodies[i], r->in + form->lead, i < form->conditions ? NULL : r->out, &body);
        tow__set_nested(e->primitive, params, i, body);
    }
    return status;
}

/* The numbers of constants and carries that are left. */
static void set_counts(const tow__equation *e, const tow__region_form *form, const region *r, void *params)
{
    const bool *in = r->in + form->lead;
    if (form->repeats)
        e->primitive->region->resize(params, count(in, form->consts), count(in + form->consts, form->carry));
}

/* The region with its dead outputs and operands dropped, on values[] of the old graph. */
static tow_status record_region(tow_trace *t, const tow__equation *e, const region *r, tow_value *operands,
                                tow_value *results)
{
    void *params;
    tow__region_form form;
    tow__region_of(e, &form);
    if (!tow__params_own(t, e->primitive, e->params, &params)) return TOW_OUT_OF_MEMORY;
    tow_status status = record_bodies(e, &form, r, params);
    size_t n_in = 0, n_out = (size_t)count(r->out, e->n_out);
    if (status == TOW_OK) {
        set_counts(e, &form, r, params);
        for (uint32_t i = 0; i < e->n_in; i++)
            if (r->in[i]) operands[n_in++] = operands[i];
        tow__bind(t, e->primitive, params, n_in, operands, n_out, results);
    }
    for (uint32_t i = 0; i < r->n_bodies; i++) tow_graph_release(tow__nested(e->primitive, params, i));
    if (status != TOW_OK) return status;
    for (uint32_t i = e->n_out; i-- > 0;) results[i] = r->out[i] ? results[--n_out] : (tow_value){0};
    return TOW_OK;
}

static tow_status record_equations(tow_trace *t, const marks *m, tow_value *values)
{
    const tow_graph *g = m->g;
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < g->n_equations && status == TOW_OK; i++) {
        const tow__equation *e = &g->equations[i];
        if (!is_kept(e, m->var)) continue;
        tow_value *operands = tow__alloc(g->ctx, (size_t)e->n_in + e->n_out, sizeof *operands);
        if (!operands) return TOW_OUT_OF_MEMORY;
        tow_value *results = operands + e->n_in;
        for (uint32_t j = 0; j < e->n_in; j++) operands[j] = values[e->in[j]];
        tow__set_source(t, &e->source);
        if (tow__is_region(e))
            status = record_region(t, e, &m->regions[i], operands, results);
        else
            tow__rebind(t, e, operands, results);
        for (uint32_t j = 0; j < e->n_out; j++) values[e->out[j]] = results[j];
        tow__free(g->ctx, operands, (size_t)e->n_in + e->n_out, sizeof *operands);
    }
    tow__set_source(t, NULL);
    return status;
}

static tow_status record(const marks *m, const bool *keep_in, const bool *keep_out, tow_graph **result)
{
    const tow_graph *g = m->g;
    uint32_t n_outputs = 0;
    tow_value *values = tow__alloc(g->ctx, (size_t)g->n_vars + g->n_outputs, sizeof *values);
    tow_trace *t = values ? tow__trace_begin(g->ctx) : NULL;
    tow_status status = t ? TOW_OK : TOW_OUT_OF_MEMORY;
    if (!t) goto done;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (!keep_in || keep_in[i]) values[g->inputs[i]] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    TRY(record_equations(t, m, values));
    tow_value *outputs = values + g->n_vars;
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (!keep_out || keep_out[i]) outputs[n_outputs++] = values[g->outputs[i]];
    status = tow__trace_end(t, n_outputs, outputs, false, result);
    t = NULL;
done:
    tow__trace_abandon(t);
    tow__free(g->ctx, values, (size_t)g->n_vars + g->n_outputs, sizeof *values);
    return status;
}

/* ---- entry points ---------------------------------------------------------------------------------------------- */

tow_status tow__dce(const tow_graph *g, const bool *used, bool drop_inputs, bool *kept_inputs, tow_graph **result)
{
    *result = NULL;
    tow__arena arena;
    tow__arena_init(&arena, g->ctx);
    marks *m = new_marks(&arena, g);
    bool *needed = m && mark(&arena, m, used) ? tow__arena_alloc(&arena, g->n_inputs, sizeof *needed) : NULL;
    tow_status status = TOW_OUT_OF_MEMORY;
    if (needed) {
        for (uint32_t i = 0; i < g->n_inputs; i++) needed[i] = m->var[g->inputs[i]];
        status = record(m, drop_inputs ? needed : NULL, used, result);
    }
    if (status == TOW_OK && kept_inputs && g->n_inputs > 0) memcpy(kept_inputs, needed, g->n_inputs * sizeof *needed);
    tow__arena_free(&arena);
    return status;
}

tow_status tow_graph_dce(const tow_graph *graph, tow_graph **result)
{
    if (result) *result = NULL;
    if (!graph || !result) return tow__missing(tow__context_of(graph), __func__, "a graph and a place for the result");
    tow_status status = tow__dce(graph, NULL, false, NULL, result);
    if (status == TOW_OK) status = tow__verify(*result, "dead code elimination");
    if (status == TOW_OK) return TOW_OK;
    tow_graph_release(*result);
    *result = NULL;
    return status;
}
