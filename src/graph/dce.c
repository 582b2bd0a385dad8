/* Dead code elimination.
 *
 * One backward walk per graph marks live vars. Regions are walked through: of call, remat and cond the operands that
 * live outputs need are live; of loops, a carry is live if its final value is, or if a live output of the body depends on it.
 * Marks only ever grow, and the marks of nested graphs are kept in a tree beside the graphs:
 *
 *   marks of g ── var[v]            live vars of g
 *              ── region[e] ── out[], in[]   live outputs and operands of equation e
 *                           ── marks of its bodies
 *
 * so a region is walked again only when one more of its outputs is found to be live. The live part is then recorded
 * anew. What has effects is live, whoever reads its results. Branches of a cond, and the condition and the body of a
 * while, have the same inputs: what is live in one of them stays an input of all. */
#include "src/graph/builder.h"

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

typedef enum region_kind {
    PLAIN,
    CALL,
    REMAT,
    SCAN,
    COND,
    WHILE,
    FORI,
    KINDS
} region_kind;

typedef struct walk {
    tow__arena *arena;
    const tow_primitive *kinds[KINDS];
} walk;

static region_kind kind_of(const walk *w, const tow__equation *e)
{
    if (e->primitive->kind != TOW__REGION) return PLAIN;
    for (int kind = CALL; kind < KINDS; kind++)
        if (e->primitive == w->kinds[kind]) return (region_kind)kind;
    return PLAIN;
}

/* Operands that stand before those of the bodies: the index of cond, the count of fori. */
static uint32_t lead_of(region_kind kind) { return kind == COND || kind == FORI; }

/* How many of the bodies' inputs are constants, and carries. */
static void count_carries(const walk *w, const tow__equation *e, size_t *consts, size_t *carry)
{
    const tow__scan_params *scan = e->params;
    const tow__while_params *loop = e->params;
    const tow__fori_params *fori = e->params;
    region_kind kind = kind_of(w, e);
    *consts = (size_t)(kind == SCAN ? scan->consts : kind == WHILE ? loop->consts : fori->consts);
    *carry = kind == SCAN ? (size_t)scan->carry : e->n_out;
}

static marks *new_marks(walk *w, const tow_graph *g)
{
    marks *m = tow__arena_alloc(w->arena, 1, sizeof *m);
    if (!m) return NULL;
    m->g = g;
    m->var = tow__arena_alloc(w->arena, g->n_vars, sizeof *m->var);
    m->regions = tow__arena_alloc(w->arena, g->n_equations, sizeof *m->regions);
    return m->var && m->regions ? m : NULL;
}

/* Fills in the marks of an equation with bodies; false: out of memory. */
static bool start_region(walk *w, const tow__equation *e, region *r)
{
    if (r->bodies) return true;
    uint32_t n = tow__nested_count(e->primitive, e->params);
    r->out = tow__arena_alloc(w->arena, e->n_out, sizeof *r->out);
    r->in = tow__arena_alloc(w->arena, (size_t)e->n_in + 1, sizeof *r->in);
    marks **bodies = tow__arena_alloc(w->arena, n, sizeof *r->bodies);
    if (!r->out || !r->in || !bodies) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!(bodies[i] = new_marks(w, tow__nested(e->primitive, e->params, i)))) return false;
    r->bodies = bodies;
    r->n_bodies = n;
    return true;
}

static bool mark(walk *w, marks *m, const bool *used);

/* Input i of a body that is live in one of them. */
static bool lives_inside(const region *r, size_t i)
{
    for (uint32_t b = 0; b < r->n_bodies; b++)
        if (r->bodies[b]->var[r->bodies[b]->g->inputs[i]]) return true;
    return false;
}

/* The last body gives the results of a loop; a condition before it is needed whole. */
static bool mark_bodies(walk *w, region *r, region_kind kind)
{
    for (uint32_t b = 0; b < r->n_bodies; b++)
        if (!mark(w, r->bodies[b], kind == WHILE && b == 0 ? NULL : r->out)) return false;
    return true;
}

/* Carries until nothing changes: a live carry makes its init and its new value in the body live. */
static bool mark_loop(walk *w, const tow__equation *e, region *r)
{
    region_kind kind = kind_of(w, e);
    size_t consts, carry;
    bool *in = r->in + lead_of(kind);
    count_carries(w, e, &consts, &carry);
    if (kind == SCAN && ((const tow__scan_params *)e->params)->stops) r->out[0] = true;
    for (bool grown = true; grown;) {
        grown = false;
        if (!mark_bodies(w, r, kind)) return false;
        for (size_t i = 0; i < carry; i++)
            if (!r->out[i] && lives_inside(r, consts + i)) grown = r->out[i] = true;
    }
    for (size_t i = 0; i < r->bodies[0]->g->n_inputs; i++) {
        bool is_carry = i >= consts && i < consts + carry;
        in[i] = is_carry ? r->out[i - consts] : lives_inside(r, i);
    }
    return true;
}

static bool mark_region(walk *w, const tow__equation *e, region *r, const bool *live)
{
    bool grown = !r->walked;
    region_kind kind = kind_of(w, e);
    uint32_t lead = lead_of(kind);
    if (!start_region(w, e, r)) return false;
    for (uint32_t i = 0; i < e->n_out; i++)
        if (live[e->out[i]] && !r->out[i]) grown = r->out[i] = true;
    if (!grown) return true;
    r->walked = true;
    if (lead) r->in[0] = true;
    if (kind == FORI) r->in[e->n_in] = true; /* the body's i */
    if (kind == SCAN || kind == WHILE || kind == FORI) {
        if (!mark_loop(w, e, r)) return false;
        if (kind == FORI) r->in[e->n_in] = true;
        return true;
    }
    if (!mark_bodies(w, r, kind)) return false;
    for (uint32_t i = lead; i < e->n_in; i++) r->in[i] = lives_inside(r, i - lead);
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
static bool mark(walk *w, marks *m, const bool *used)
{
    const tow_graph *g = m->g;
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (!used || used[i]) m->var[g->outputs[i]] = true;
    for (uint32_t i = g->n_equations; i-- > 0;) {
        const tow__equation *e = &g->equations[i];
        if (!is_kept(e, m->var)) continue;
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

static bool whole(const walk *w, const marks *m);

/* Nothing of the equation and its bodies is dead. */
static bool region_is_whole(const walk *w, const tow__equation *e, const region *r)
{
    if (!all(r->out, e->n_out) || !all(r->in, e->n_in)) return false;
    for (uint32_t i = 0; i < r->n_bodies; i++)
        if (!whole(w, r->bodies[i])) return false;
    return true;
}

/* Nothing in the graph is dead, so that it can stay as it is. */
static bool whole(const walk *w, const marks *m)
{
    for (uint32_t i = 0; i < m->g->n_equations; i++) {
        const tow__equation *e = &m->g->equations[i];
        if (!is_kept(e, m->var)) return false;
        if (kind_of(w, e) != PLAIN && !region_is_whole(w, e, &m->regions[i])) return false;
    }
    return true;
}

/* keep_in, keep_out: NULL: all. */
static tow_status record(walk *w, const marks *m, const bool *keep_in, const bool *keep_out, tow_graph **result);

/* The bodies without what is dead, in params; those that were made are to be released. */
static tow_status record_bodies(walk *w, const tow__equation *e, const region *r, void *params)
{
    region_kind kind = kind_of(w, e);
    bool same = region_is_whole(w, e, r);
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < r->n_bodies; i++) tow__set_nested(e->primitive, params, i, NULL);
    for (uint32_t i = 0; i < r->n_bodies && status == TOW_OK; i++) {
        tow_graph *body = NULL;
        if (same)
            body = tow__graph_share(r->bodies[i]->g);
        else
            status = record(w, r->bodies[i], r->in + lead_of(kind), kind == WHILE && i == 0 ? NULL : r->out, &body);
        tow__set_nested(e->primitive, params, i, body);
    }
    return status;
}

/* The numbers of constants and carries that are left. */
static void set_counts(const walk *w, const tow__equation *e, const region *r, void *params)
{
    tow__scan_params *scan = params;
    size_t consts, carry;
    region_kind kind = kind_of(w, e);
    if (kind != SCAN && kind != WHILE && kind != FORI) return;
    count_carries(w, e, &consts, &carry);
    int64_t left = count(r->in + lead_of(kind), consts);
    if (kind == SCAN) scan->consts = left, scan->carry = count(r->in + consts, carry);
    if (kind == WHILE) ((tow__while_params *)params)->consts = left;
    if (kind == FORI) ((tow__fori_params *)params)->consts = left;
}

/* The region with its dead outputs and operands dropped, on values[] of the old graph. */
static tow_status record_region(walk *w, tow_trace *t, const tow__equation *e, const region *r, tow_value *operands,
                                tow_value *results)
{
    void *params;
    if (!tow__params_own(t, e->primitive, e->params, &params)) return TOW_OUT_OF_MEMORY;
    tow_status status = record_bodies(w, e, r, params);
    size_t n_in = 0, n_out = (size_t)count(r->out, e->n_out);
    if (status == TOW_OK) {
        set_counts(w, e, r, params);
        for (uint32_t i = 0; i < e->n_in; i++)
            if (r->in[i]) operands[n_in++] = operands[i];
        tow__bind(t, e->primitive, params, n_in, operands, n_out, results);
    }
    for (uint32_t i = 0; i < r->n_bodies; i++) tow_graph_release(tow__nested(e->primitive, params, i));
    if (status != TOW_OK) return status;
    for (uint32_t i = e->n_out; i-- > 0;) results[i] = r->out[i] ? results[--n_out] : (tow_value){0};
    return TOW_OK;
}

static tow_status record_equations(walk *w, tow_trace *t, const marks *m, tow_value *values, uint32_t *n_forward)
{
    const tow_graph *g = m->g;
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < g->n_equations && status == TOW_OK; i++) {
        const tow__equation *e = &g->equations[i];
        if (!is_kept(e, m->var)) continue;
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
    walk w = {.arena = &arena};
    static const char *const names[KINDS] = {
        [CALL] = "call", [REMAT] = "remat", [SCAN] = "scan", [COND] = "cond", [WHILE] = "while", [FORI] = "fori"};
    for (int kind = CALL; kind < KINDS; kind++) w.kinds[kind] = tow__primitive_find(names[kind], strlen(names[kind]));
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
