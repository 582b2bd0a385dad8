/* A graph as partial evaluation takes it: regions that repeat nothing are replaced by their bodies, and what does not
 * change from iteration to iteration stands before its loop.
 *
 *   calls, remat with everything_saveable       their equations stand among those around them
 *   equations in the body of a loop that
 *   depend on known constants of it alone       stand before the loop, which gets their results as constants
 *
 * What leaves a loop is asked for by the policy like the equations around the loop: it is a residual once, or is made
 * again once, before the loop. Two kinds stay, because a constant of the loop costs more than they do: numbers,
 * counters and moves of them; and views and conversions of constants. Equations that read what is unknown stay, because
 * cotangents add up in the order of the iterations. */
#include "src/autodiff/partial.h"
#include "src/autodiff/reach.h"
#include "src/ops/table.h"

/* ---- regions that repeat nothing --------------------------------------------------------------------------------- */

static const tow_graph *transparent_body(const tow__equation *e)
{
    const tow__region *region = e->primitive->region;
    return region && region->transparent ? region->transparent(e) : NULL;
}

/* Records the body of a region among the values of the graph around it. False: no memory. */
static bool inline_body(tow_trace *t, const tow__equation *e, const tow_graph *body, tow_value *values)
{
    tow_value *in = tow__trace_alloc(t, e->n_in, sizeof *in), *out = tow__trace_alloc(t, e->n_out, sizeof *out);
    if (!in || !out) return false;
    for (uint32_t i = 0; i < e->n_in; i++) in[i] = values[e->in[i]];
    tow__set_source(t, &e->source);
    tow__inline(t, body, in, out);
    for (uint32_t i = 0; i < e->n_out; i++) values[e->out[i]] = out[i];
    return true;
}

/* A copy of a graph while it is recorded: values[v] stands for its value v. */
typedef struct copy {
    tow_trace *t;
    tow_value *values, *outputs;
} copy;

/* False: no memory. */
static bool begin_copy(copy *c, const tow_graph *g)
{
    *c = (copy){.t = tow__trace_begin(g->ctx)};
    if (!c->t) return false;
    c->values = tow__trace_alloc(c->t, g->n_vars, sizeof *c->values);
    c->outputs = tow__trace_alloc(c->t, g->n_outputs, sizeof *c->outputs);
    if (!c->values || !c->outputs) {
        tow__trace_abandon(c->t);
        return false;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        c->values[g->inputs[i]] = tow__input(c->t, g->vars[g->inputs[i]].type, g->input_names[i]);
    return true;
}

static tow_status end_copy(copy *c, const tow_graph *g, tow_graph **result)
{
    for (uint32_t i = 0; i < g->n_outputs; i++) c->outputs[i] = c->values[g->outputs[i]];
    return tow__trace_end(c->t, g->n_outputs, c->outputs, false, result);
}

/* Regions at the top level that repeat nothing replaced by their bodies; *result is retained. */
static tow_status without_regions(const tow_graph *g, tow_graph **result)
{
    uint32_t i = 0;
    copy c;
    *result = NULL;
    while (i < g->n_equations && !transparent_body(&g->equations[i])) i++;
    if (i == g->n_equations) {
        *result = tow__graph_share(g);
        return TOW_OK;
    }
    if (!begin_copy(&c, g)) return TOW_OUT_OF_MEMORY;
    for (i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        const tow_graph *body = transparent_body(e);
        if (!(body ? inline_body(c.t, e, body, c.values) : tow__rebind_among(c.t, e, c.values))) break;
    }
    tow_graph *flat = NULL;
    tow_status status = end_copy(&c, g, &flat);
    if (status == TOW_OK) status = without_regions(flat, result);
    tow_graph_release(flat);
    return status;
}

/* ---- invariant equations of a loop ------------------------------------------------------------------------------- */

/* The place of a value of a loop's body after flattening. */
typedef enum fate {
    STAYS,  /* depends on the iteration, or on what is unknown */
    NUMBER, /* made of constants alone by moves: stays, and is made outside as well where that is needed */
    VIEW,   /* made again from a constant of the loop: likewise */
    LEAVES
} fate;

/* A loop of which equations leave. */
typedef struct loop {
    const tow__equation *e;
    tow__region_form form; /* of the flat body */
    fate *fates;           /* [n_vars] */
    uint32_t *root;        /* [n_vars] the value behind names */
    bool *crosses;         /* [n_vars] of roots that leave: read in the loop */
    bool *outside;         /* [n_equations] recorded before the loop */
    bool *inside;          /* [n_equations] recorded in it */
    uint32_t n_crossing;   /* constants that the loop gets */
} loop;

static fate fate_of(const loop *l, const tow__equation *e)
{
    bool numbers = true;
    for (uint32_t j = 0; j < e->n_in; j++) {
        const fate f = l->fates[e->in[j]];
        if (f == STAYS) return STAYS;
        numbers &= f == NUMBER;
    }
    if (tow__is_region(e) || tow__has_effect(e)) return STAYS;
    if (e->primitive == &tow__name_p) return l->fates[e->in[0]];
    if (e->primitive->kind == TOW__SOURCE) return NUMBER;
    if (numbers && e->primitive->kind == TOW__MOVE && e->n_in == 1) return NUMBER;
    return tow__is_never_smaller(l->form.body, e) ? VIEW : LEAVES;
}

/* known: [consts] operands of the loop. */
static void find_fates(loop *l, const bool *known)
{
    const tow_graph *g = l->form.body;
    for (uint32_t v = 0; v < g->n_vars; v++) l->root[v] = v;
    for (uint32_t i = 0; i < l->form.consts; i++) l->fates[g->inputs[i]] = known[i] ? VIEW : STAYS;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        const fate f = fate_of(l, e);
        for (uint32_t j = 0; j < e->n_out; j++) l->fates[e->out[j]] = f;
        if (e->primitive == &tow__name_p) l->root[e->out[0]] = l->root[e->in[0]];
    }
}

static bool any_needed(const tow__equation *e, const bool *needed)
{
    for (uint32_t j = 0; j < e->n_out; j++)
        if (needed[e->out[j]]) return true;
    return false;
}

static bool leaves(const loop *l, const tow__equation *e) { return e->n_out > 0 && l->fates[e->out[0]] == LEAVES; }

/* Marks the values that the loop still computes, and those that it reads of the equations that leave it. needed:
 * [n_vars] */
static void find_inside(loop *l, bool *needed)
{
    const tow_graph *g = l->form.body;
    for (uint32_t i = 0; i < g->n_outputs; i++) needed[l->root[g->outputs[i]]] = needed[g->outputs[i]] = true;
    for (uint32_t i = g->n_equations; i-- > 0;) {
        const tow__equation *e = &g->equations[i];
        if (leaves(l, e)) continue;
        const bool stays = e->n_out == 0 || l->fates[e->out[0]] == STAYS;
        l->inside[i] = stays || any_needed(e, needed);
        for (uint32_t j = 0; j < e->n_in && l->inside[i]; j++) needed[l->root[e->in[j]]] = needed[e->in[j]] = true;
    }
    for (uint32_t v = 0; v < g->n_vars; v++) {
        l->crosses[v] = needed[v] && l->root[v] == v && l->fates[v] == LEAVES;
        l->n_crossing += l->crosses[v];
    }
}

/* Marks the values that are computed before the loop: those that cross into it, its names, and their operands. */
static void find_outside(loop *l, bool *needed)
{
    const tow_graph *g = l->form.body;
    for (uint32_t v = 0; v < g->n_vars; v++) needed[v] = l->crosses[l->root[v]];
    for (uint32_t i = g->n_equations; i-- > 0;) {
        const tow__equation *e = &g->equations[i];
        l->outside[i] = any_needed(e, needed);
        for (uint32_t j = 0; j < e->n_in && l->outside[i]; j++) needed[e->in[j]] = true;
    }
}

/* False: no memory. */
static bool analyze(tow_trace *t, loop *l, const bool *known)
{
    const tow_graph *g = l->form.body;
    bool *needed = tow__trace_alloc(t, 2 * (size_t)g->n_vars, sizeof *needed);
    l->fates = tow__trace_alloc(t, g->n_vars, sizeof *l->fates);
    l->root = tow__trace_alloc(t, g->n_vars, sizeof *l->root);
    l->crosses = tow__trace_alloc(t, g->n_vars, sizeof *l->crosses);
    l->outside = tow__trace_alloc(t, g->n_equations, sizeof *l->outside);
    l->inside = tow__trace_alloc(t, g->n_equations, sizeof *l->inside);
    if (!needed || !l->fates || !l->root || !l->crosses || !l->outside || !l->inside) return false;
    find_fates(l, known);
    find_inside(l, needed);
    if (l->n_crossing > 0) find_outside(l, needed + g->n_vars);
    return true;
}

/* (consts, what has left, carry, rest) -> (carry, ys). place: [n_inputs] where the inputs have gone. */
static tow_status remaining_body(const loop *l, uint32_t *place, tow_graph **result)
{
    const tow_graph *g = l->form.body;
    const uint32_t consts = l->form.consts;
    tow_trace *t = tow__trace_begin(g->ctx);
    tow_value *values = t ? tow__trace_alloc(t, g->n_vars, sizeof *values) : NULL;
    tow_value *outputs = t ? tow__trace_alloc(t, g->n_outputs, sizeof *outputs) : NULL;
    if (!values || !outputs) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i <= g->n_inputs; i++) {
        for (uint32_t v = 0; i == consts && v < g->n_vars; v++)
            if (l->crosses[v]) values[v] = tow__input(t, g->vars[v].type, NULL);
        if (i == g->n_inputs) break;
        values[g->inputs[i]] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
        place[i] = i < consts ? i : i + l->n_crossing;
    }
    for (uint32_t v = 0; v < g->n_vars; v++) /* of names the root has come before */
        if (l->crosses[l->root[v]]) values[v] = values[l->root[v]];
    for (uint32_t i = 0; i < g->n_equations; i++)
        if (l->inside[i] && !tow__rebind_among(t, &g->equations[i], values)) break;
    for (uint32_t i = 0; i < g->n_outputs; i++) outputs[i] = values[g->outputs[i]];
    return tow__trace_end(t, g->n_outputs, outputs, false, result);
}

/* Records what leaves. crossing: becomes the operands for what crosses, under the last of their names. False: no
 * memory. */
static bool record_outside(const loop *l, copy *c, tow_value *crossing)
{
    const tow_graph *g = l->form.body;
    tow_value *values = tow__trace_alloc(c->t, g->n_vars, sizeof *values);
    if (!values) return false;
    for (uint32_t i = 0; i < l->form.consts; i++) values[g->inputs[i]] = c->values[l->e->in[l->form.lead + i]];
    for (uint32_t i = 0; i < g->n_equations; i++)
        if (l->outside[i] && !tow__rebind_among(c->t, &g->equations[i], values)) return false;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (l->outside[i] && e->primitive == &tow__name_p) values[l->root[e->out[0]]] = values[e->out[0]];
    }
    for (uint32_t v = 0; v < g->n_vars; v++)
        if (l->crosses[v]) *crossing++ = values[v];
    return true;
}

/* Records the loop over its flat body, and what leaves it before. False: an error in the trace, or no memory. */
static bool record_loop(copy *c, const loop *l)
{
    const tow__equation *e = l->e;
    const uint32_t before = l->form.lead + l->form.consts;
    tow_graph *body = NULL;
    tow_value *in = tow__trace_alloc(c->t, (size_t)e->n_in + l->n_crossing, sizeof *in);
    tow_value *out = tow__trace_alloc(c->t, e->n_out, sizeof *out);
    uint32_t *place = tow__trace_alloc(c->t, l->form.body->n_inputs, sizeof *place);
    if (!in || !out || !place || !record_outside(l, c, in + before)) return false;
    if (remaining_body(l, place, &body) != TOW_OK) {
        tow__adopt_error(c->t);
        return false;
    }
    for (uint32_t i = 0; i < e->n_in; i++) in[i < before ? i : i + l->n_crossing] = c->values[e->in[i]];
    tow__set_source(c->t, &e->source);
    tow__loop_bind(c->t, e, body, l->form.consts + l->n_crossing, l->form.carry, place, e->n_in + l->n_crossing, in,
                   out);
    tow_graph_release(body);
    for (uint32_t i = 0; i < e->n_out; i++) c->values[e->out[i]] = out[i];
    return true;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* A loop of g. unknown: what of g is unknown. False: an error in the trace, or no memory. */
static bool flatten_loop(copy *c, const tow__equation *e, const tow__reach *unknown, const tow__reach *in_body)
{
    loop l = {.e = e};
    tow__loop_of(e, &l.form);
    const tow_graph *body = l.form.body;
    bool *known = tow__trace_alloc(c->t, l.form.consts, sizeof *known);
    bool *in = tow__trace_alloc(c->t, body->n_inputs, sizeof *in);
    tow_graph *flat = NULL;
    if (!known || !in) return false;
    for (uint32_t i = 0; i < l.form.consts; i++) known[i] = !unknown->var[e->in[l.form.lead + i]];
    for (uint32_t i = 0; i < body->n_inputs; i++) in[i] = in_body && in_body->var[body->inputs[i]];
    if (tow__flatten(body, in, &flat) != TOW_OK) {
        tow__adopt_error(c->t);
        return false;
    }
    l.form.body = flat;
    bool fine = analyze(c->t, &l, known);
    if (fine) fine = l.n_crossing == 0 && flat == body ? tow__rebind_among(c->t, e, c->values) : record_loop(c, &l);
    tow_graph_release(flat);
    return fine;
}

static bool is_loop(const tow__equation *e)
{
    tow__region_form form;
    return tow__loop_of(e, &form);
}

/* g without regions that repeat nothing, and with at least one loop. */
static tow_status flatten_loops(const tow_graph *g, const bool *in_unknown, tow_graph **result)
{
    tow__arena arena;
    tow__arena_init(&arena, g->ctx);
    const tow__reach_walk walk = {.ctx = g->ctx, .arena = &arena};
    tow__reach *unknown = tow__reach_begin(&walk, g);
    copy c = {0};
    tow_status status = unknown ? tow__reach_spread(&walk, unknown, in_unknown) : TOW_OUT_OF_MEMORY;
    if (status == TOW_OK && !begin_copy(&c, g)) status = TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; status == TOW_OK && i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (!(is_loop(e) ? flatten_loop(&c, e, unknown, unknown->body[i]) : tow__rebind_among(c.t, e, c.values))) break;
    }
    if (status == TOW_OK) status = end_copy(&c, g, result);
    tow__arena_free(&arena);
    return status;
}

tow_status tow__flatten(const tow_graph *g, const bool *in_unknown, tow_graph **result)
{
    tow_graph *open = NULL;
    uint32_t i = 0;
    *result = NULL;
    tow_status status = without_regions(g, &open);
    while (status == TOW_OK && i < open->n_equations && !is_loop(&open->equations[i])) i++;
    if (status == TOW_OK && i < open->n_equations)
        status = flatten_loops(open, in_unknown, result);
    else if (status == TOW_OK)
        *result = tow__graph_share(open);
    tow_graph_release(open);
    return status;
}
