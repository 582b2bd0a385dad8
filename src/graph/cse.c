/* Common subexpressions: an equation that equals an earlier one (primitive, parameters, operands) is replaced by it.
 *
 * Merging happens within one graph and, separately, within each nested graph; never across the border of a region, so
 * that what a remat recomputes stays recomputed. The forward and the backward pass of a gradient are also kept
 * apart: a value that is cheap to compute twice is not kept alive across them. */
#include "src/base/hash.h"
#include "src/graph/builder.h"

typedef struct entry {
    uint64_t hash;
    const tow_primitive *primitive;
    const void *params;
    uint32_t n_in, n_out;
    const tow_value *in, *out;
    bool backward;
} entry;

typedef struct merge {
    const tow_graph *g;
    tow_trace *t;
    tow_value *values; /* [n_vars of g] */
    entry *table;      /* open addressing; primitive NULL: free */
    uint32_t n_table;
    uint32_t merged; /* equations that went, or whose nested graphs changed */
} merge;

static tow_status cse(const tow_graph *g, tow_graph **result);

/* ---- the table ------------------------------------------------------------------------------------------------- */

static bool entry_equal(const entry *a, const entry *b)
{
    if (a->hash != b->hash || a->primitive != b->primitive || a->n_in != b->n_in || a->n_out != b->n_out) return false;
    if (a->backward != b->backward) return false;
    for (uint32_t i = 0; i < a->n_in; i++)
        if (a->in[i].id != b->in[i].id) return false;
    return tow__params_equal(a->primitive, a->params, b->params);
}

static entry *find_slot(const merge *m, const entry *e)
{
    uint32_t mask = m->n_table - 1, i = (uint32_t)e->hash & mask;
    while (m->table[i].primitive && !entry_equal(&m->table[i], e)) i = (i + 1) & mask;
    return &m->table[i];
}

static uint64_t hash_call(uint64_t seed, const tow_primitive *primitive, const void *params, uint32_t n_in,
                          const tow_value *in)
{
    uint64_t h = tow__params_hash(seed, primitive, params);
    for (uint32_t i = 0; i < n_in; i++) h = tow__hash(h, &in[i].id, sizeof in[i].id);
    return h;
}

/* ---- equations ------------------------------------------------------------------------------------------------- */

static void release_nested(const tow_primitive *primitive, const void *params)
{
    for (uint32_t i = tow__nested_count(primitive, params); i-- > 0;)
        tow_graph_release(tow__nested(primitive, params, i));
}

/* A copy of the parameters that holds references to the merged nested graphs. */
static tow_status own_params(merge *m, const tow__equation *e, void **own)
{
    uint32_t n = tow__nested_count(e->primitive, e->params);
    tow_status status = TOW_OK;
    if (!tow__params_own(m->t, e->primitive, e->params, own)) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) tow__set_nested(e->primitive, *own, i, NULL);
    for (uint32_t i = 0; i < n && status == TOW_OK; i++) {
        tow_graph *nested = tow__nested(e->primitive, e->params, i), *new = NULL;
        status = cse(nested, &new);
        tow__set_nested(e->primitive, *own, i, new);
        if (new != nested) m->merged++;
    }
    return status;
}

static tow_status merge_equation(merge *m, const tow__equation *e)
{
    void *own = NULL;
    tow_status status = TOW_OK;
    tow_value *in = tow__trace_alloc(m->t, (size_t)e->n_in + e->n_out, sizeof *in);
    if (!in) return TOW_OUT_OF_MEMORY;
    tow_value *out = in + e->n_in;
    if (tow__nested_count(e->primitive, e->params) > 0) TRY(own_params(m, e, &own));
    for (uint32_t i = 0; i < e->n_in; i++) in[i] = m->values[e->in[i]];
    entry new = {.primitive = e->primitive,
                 .params = own ? own : e->params,
                 .n_in = e->n_in,
                 .n_out = e->n_out,
                 .in = in,
                 .out = out,
                 .backward = e->source.phase != TOW__FORWARD};
    new.hash = hash_call(m->g->ctx->hash_seed, new.primitive, new.params, new.n_in, in);
    entry *slot = tow__has_effect(e) ? &new : find_slot(m, &new); /* effects happen as often as they stand there */
    if (slot->primitive && slot != &new) {
        m->merged++;
    } else {
        tow__set_source(m->t, &e->source);
        tow__bind(m->t, e->primitive, new.params, e->n_in, in, e->n_out, out);
        *slot = new;
    }
    for (uint32_t i = 0; i < e->n_out; i++) m->values[e->out[i]] = slot->out[i];
done:
    release_nested(e->primitive, own); /* those that were recorded are held by their equation */
    return status;
}

/* ---- graphs ---------------------------------------------------------------------------------------------------- */

static tow_status merge_graph(merge *m)
{
    const tow_graph *g = m->g;
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        m->values[g->inputs[i]] = tow__input(m->t, g->vars[g->inputs[i]].type, g->input_names[i]);
    for (uint32_t i = 0; i < g->n_equations && status == TOW_OK && !tow__failed(m->t); i++)
        status = merge_equation(m, &g->equations[i]);
    tow__set_source(m->t, NULL);
    return status;
}

/* The same graph, retained, if there is nothing to merge. */
static tow_status cse(const tow_graph *g, tow_graph **result)
{
    tow_context *ctx = g->ctx;
    merge m = {.g = g, .n_table = 16};
    tow_status status = TOW_OK;
    tow_value *outputs = NULL;
    *result = NULL;
    while (m.n_table / 2 <= g->n_equations) m.n_table *= 2;
    m.values = tow__alloc(ctx, g->n_vars, sizeof *m.values);
    m.table = m.values ? tow__alloc(ctx, m.n_table, sizeof *m.table) : NULL;
    m.t = m.table ? tow__trace_begin(ctx) : NULL;
    outputs = m.t ? tow__trace_alloc(m.t, g->n_outputs, sizeof *outputs) : NULL;
    if (!outputs) {
        status = TOW_OUT_OF_MEMORY;
        goto done;
    }
    TRY(merge_graph(&m));
    if (m.merged == 0 && !tow__failed(m.t)) {
        *result = tow__graph_share(g);
        goto done;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) outputs[i] = m.values[g->outputs[i]];
    status = tow__trace_end(m.t, g->n_outputs, outputs, false, result);
    m.t = NULL;
done:
    tow__trace_abandon(m.t);
    tow__free(ctx, m.table, m.n_table, sizeof *m.table);
    tow__free(ctx, m.values, g->n_vars, sizeof *m.values);
    return status;
}

tow_status tow_graph_cse(const tow_graph *graph, tow_graph **result)
{
    if (result) *result = NULL;
    if (!graph || !result) return tow__missing(tow__context_of(graph), __func__, "a graph and a place for the result");
    tow_status status = cse(graph, result);
    if (status == TOW_OK) status = tow__verify(*result, "merging of common subexpressions");
    if (status == TOW_OK) return TOW_OK;
    tow_graph_release(*result);
    *result = NULL;
    return status;
}
