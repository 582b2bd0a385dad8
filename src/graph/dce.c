/* Dead code elimination.
 *
 * One backward walk per graph marks live vars. Regions are walked through: of call and remat the operands that live
 * outputs need are live; of scan, a carry is live if its final value is, or if a live output of the body depends on it.
 * Marks only ever grow, and the marks of nested graphs are in a tree of the shape of the graphs:
 *
 *   marks of g ── var[v]            live vars of g
 *              ── region[e] ── out[], in[]   live outputs and operands of equation e
 *                           ── marks of its body
 *
 * so a region is walked again only when one more of its outputs is found to be live. The live part is then recorded
 * anew. */
#include "src/graph/builder.h"

typedef struct marks marks;

typedef struct region {
    bool *out, *in; /* of the equation; for scan also of the body, whose order of inputs and outputs is the same */
    bool walked;
    marks *body;
} region;

struct marks {
    const tow_graph *g;
    bool *var;
    region *regions; /* [n_equations] */
};

typedef enum region_kind {
    PLAIN,
    CALL,
    REMAT,
    SCAN
} region_kind;

typedef struct walk {
    tow__arena *arena;
    const tow_primitive *call, *remat, *scan;
} walk;

static region_kind kind_of(const walk *w, const tow__equation *e)
{
    if (e->primitive->kind != TOW__REGION) return PLAIN;
    return e->primitive == w->call ? CALL : e->primitive == w->remat ? REMAT : e->primitive == w->scan ? SCAN : PLAIN;
}

static const tow_graph *body_of(const walk *w, const tow__equation *e)
{
    switch (kind_of(w, e)) {
    case CALL:
        return ((const tow__call_params *)e->params)->body;
    case REMAT:
        return ((const tow__remat_params *)e->params)->body;
    case SCAN:
        return ((const tow__scan_params *)e->params)->body;
    case PLAIN:
        break;
    }
    return NULL;
}

/* ---- marking --------------------------------------------------------------------------------------------------- */

static marks *new_marks(walk *w, const tow_graph *g)
{
    marks *m = tow__arena_alloc(w->arena, 1, sizeof *m);
    if (!m) return NULL;
    m->g = g;
    m->var = tow__arena_alloc(w->arena, g->n_vars, sizeof *m->var);
    m->regions = tow__arena_alloc(w->arena, g->n_equations, sizeof *m->regions);
    return m->var && m->regions ? m : NULL;
}

static bool start_region(walk *w, const tow__equation *e, region *r)
{
    if (r->body) return true;
    r->out = tow__arena_alloc(w->arena, e->n_out, sizeof *r->out);
    r->in = tow__arena_alloc(w->arena, e->n_in, sizeof *r->in);
    r->body = r->out && r->in ? new_marks(w, body_of(w, e)) : NULL;
    return r->body != NULL;
}

static bool mark(walk *w, marks *m, const bool *used);

/* Carries until nothing changes: a live carry makes its init and its new value in the body live. */
static bool mark_scan(walk *w, const tow__equation *e, region *r)
{
    const tow__scan_params *p = e->params;
    const tow_graph *body = p->body;
    size_t consts = (size_t)p->consts, carry = (size_t)p->carry;
    for (bool grown = true; grown;) {
        grown = false;
        if (!mark(w, r->body, r->out)) return false;
        for (size_t i = 0; i < carry; i++)
            if (!r->out[i] && r->body->var[body->inputs[consts + i]]) grown = r->out[i] = true;
    }
    for (size_t i = 0; i < e->n_in; i++) {
        bool is_carry = i >= consts && i < consts + carry;
        r->in[i] = is_carry ? r->out[i - consts] : r->body->var[body->inputs[i]];
    }
    return true;
}

static bool mark_region(walk *w, const tow__equation *e, region *r, const bool *live)
{
    bool grown = !r->walked;
    if (!start_region(w, e, r)) return false;
    for (uint32_t i = 0; i < e->n_out; i++)
        if (live[e->out[i]] && !r->out[i]) grown = r->out[i] = true;
    if (!grown) return true;
    r->walked = true;
    if (kind_of(w, e) == SCAN) return mark_scan(w, e, r);
    if (!mark(w, r->body, r->out)) return false;
    for (uint32_t i = 0; i < e->n_in; i++) r->in[i] = r->body->var[r->body->g->inputs[i]];
    return true;
}

static bool any_live(const tow__equation *e, const bool *live)
{
    for (uint32_t i = 0; i < e->n_out; i++)
        if (live[e->out[i]]) return true;
    return false;
}

/* used: [outputs], NULL: all. False: out of memory. */
static bool mark(walk *w, marks *m, const bool *used)
{
    const tow_graph *g = m->g;
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (!used || used[i]) m->var[g->outputs[i]] = true;
    for (uint32_t i = g->n_equations; i-- > 0;) {
        const tow__equation *e = &g->equations[i];
        if (!any_live(e, m->var)) continue;
        region *r = kind_of(w, e) == PLAIN ? NULL : &m->regions[i];
        if (r && !mark_region(w, e, r, m->var)) return false;
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

/* Nothing in the graph is dead, so that it can stay as it is. */
static bool whole(const walk *w, const marks *m)
{
    for (uint32_t i = 0; i < m->g->n_equations; i++) {
        const tow__equation *e = &m->g->equations[i];
        const region *r = &m->regions[i];
        if (!any_live(e, m->var)) return false;
        if (kind_of(w, e) != PLAIN && !(all(r->out, e->n_out) && all(r->in, e->n_in) && whole(w, r->body)))
            return false;
    }
    return true;
}

/* keep_in, keep_out: NULL: all. */
static tow_status record(walk *w, const marks *m, const bool *keep_in, const bool *keep_out, tow_graph **result);

typedef union region_params {
    tow__call_params call;
    tow__remat_params remat;
    tow__scan_params scan;
} region_params;

/* The region with its dead outputs and operands dropped, on values[] of the old graph. */
static tow_status record_region(walk *w, tow_trace *t, const tow__equation *e, const region *r, tow_value *operands,
                                tow_value *results)
{
    region_params params;
    tow_graph *body = NULL;
    tow_status status = TOW_OK;
    if (all(r->out, e->n_out) && all(r->in, e->n_in) && whole(w, r->body))
        body = tow__graph_share(r->body->g);
    else
        status = record(w, r->body, r->in, r->out, &body);
    if (status != TOW_OK) return status;
    memcpy(&params, e->params, e->primitive->params_size);
    switch (kind_of(w, e)) {
    case CALL:
        params.call.body = body;
        break;
    case REMAT:
        params.remat.body = body;
        break;
    case SCAN: {
        size_t consts = (size_t)params.scan.consts, carry = (size_t)params.scan.carry;
        params.scan.body = body;
        params.scan.consts = count(r->in, consts);
        params.scan.carry = count(r->in + consts, carry);
        break;
    }
    case PLAIN:
        break;
    }
    size_t n_in = 0, n_out = (size_t)count(r->out, e->n_out);
    for (uint32_t i = 0; i < e->n_in; i++)
        if (r->in[i]) operands[n_in++] = operands[i];
    tow__bind(t, e->primitive, &params, n_in, operands, n_out, results);
    tow_graph_release(body);
    for (uint32_t i = e->n_out; i-- > 0;) results[i] = r->out[i] ? results[--n_out] : (tow_value){0};
    return TOW_OK;
}

static tow_status record_equations(walk *w, tow_trace *t, const marks *m, tow_value *values, uint32_t *n_forward)
{
    const tow_graph *g = m->g;
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < g->n_equations && status == TOW_OK; i++) {
        const tow__equation *e = &g->equations[i];
        if (!any_live(e, m->var)) continue;
        if (i < g->forward_equations) ++*n_forward;
        tow_value *operands = tow__alloc(g->ctx, (size_t)e->n_in + e->n_out, sizeof *operands);
        if (!operands) return TOW_OUT_OF_MEMORY;
        tow_value *results = operands + e->n_in;
        for (uint32_t j = 0; j < e->n_in; j++) operands[j] = values[e->in[j]];
        tow__set_source(t, &e->source);
        if (kind_of(w, e) == PLAIN)
            tow__rebind(t, e, operands, results);
        else
            status = record_region(w, t, e, &m->regions[i], operands, results);
        for (uint32_t j = 0; j < e->n_out; j++) values[e->out[j]] = results[j];
        tow__free(g->ctx, operands, (size_t)e->n_in + e->n_out, sizeof *operands);
    }
    tow__set_source(t, NULL);
    return status;
}

static tow_status record(walk *w, const marks *m, const bool *keep_in, const bool *keep_out, tow_graph **result)
{
    const tow_graph *g = m->g;
    uint32_t n_forward = 0, n_outputs = 0;
    tow_value *values = tow__alloc(g->ctx, (size_t)g->n_vars + g->n_outputs, sizeof *values);
    tow_trace *t = values ? tow__trace_begin(g->ctx) : NULL;
    tow_status status = t ? TOW_OK : TOW_OUT_OF_MEMORY;
    if (!t) goto done;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (!keep_in || keep_in[i]) values[g->inputs[i]] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    TRY(record_equations(w, t, m, values, &n_forward));
    tow_value *outputs = values + g->n_vars;
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (!keep_out || keep_out[i]) outputs[n_outputs++] = values[g->outputs[i]];
    status = tow__trace_end(t, n_outputs, outputs, false, result);
    t = NULL;
    if (status == TOW_OK) (*result)->forward_equations = n_forward;
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
    walk w = {&arena, tow__primitive_find("call", 4), tow__primitive_find("remat", 5), tow__primitive_find("scan", 4)};
    marks *m = new_marks(&w, g);
    bool *needed = m && mark(&w, m, used) ? tow__arena_alloc(&arena, g->n_inputs, sizeof *needed) : NULL;
    tow_status status = TOW_OUT_OF_MEMORY;
    if (needed) {
        for (uint32_t i = 0; i < g->n_inputs; i++) needed[i] = m->var[g->inputs[i]];
        status = record(&w, m, drop_inputs ? needed : NULL, used, result);
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
