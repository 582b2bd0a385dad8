/* A graph in which one value is kept, or is not, whatever its regions and policies say: for reports on what would
 * change. Value and names of it get the same verdict, as a name tags the value. */
#include "src/autodiff/limit/limit.h"
#include "src/graph/builder.h"
#include "src/graph/policy.h"
#include "src/ops/table.h"

typedef struct overriding {
    uint32_t number;
    tow_verdict verdict;
    const bool *chosen; /* [equations of the graph at hand] */
} overriding;

static void record(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                   const void *user);

/* chosen[k]: equation k makes or names the value, of which one has the number. */
static void choose(const tow_graph *g, uint32_t number, uint32_t *root, bool *wanted, bool *chosen)
{
    for (uint32_t v = 0; v < g->n_vars; v++) root[v] = v;
    for (uint32_t k = 0; k < g->n_equations; k++) {
        const tow__equation *e = &g->equations[k];
        if (e->primitive == &tow__name_p) root[e->out[0]] = root[e->in[0]];
        for (uint32_t i = 0; e->source.why.number == number && i < e->n_out; i++) wanted[root[e->out[i]]] = true;
    }
    for (uint32_t k = 0; k < g->n_equations; k++)
        for (uint32_t i = 0; i < g->equations[k].n_out; i++) chosen[k] |= wanted[root[g->equations[k].out[i]]];
}

tow_status tow__override_verdict(const tow_graph *g, uint32_t number, tow_verdict verdict, tow_graph **result)
{
    tow__arena arena;
    tow_status status = TOW_OUT_OF_MEMORY;
    *result = NULL;
    tow__arena_init(&arena, g->ctx);
    uint32_t *root = tow__arena_alloc(&arena, (size_t)g->n_vars + 1, sizeof *root);
    bool *wanted = tow__arena_alloc(&arena, (size_t)g->n_vars + 1, sizeof *wanted);
    bool *chosen = tow__arena_alloc(&arena, (size_t)g->n_equations + 1, sizeof *chosen);
    if (root && wanted && chosen) {
        choose(g, number, root, wanted, chosen);
        status = tow__copy_by(g, record, &(overriding){number, verdict, chosen}, result);
    }
    tow__arena_free(&arena);
    return status;
}

static void record_region(tow_trace *t, const tow__equation *e, const overriding *o, const tow_value *x, tow_value *y)
{
    void *params;
    tow_status status = TOW_OK;
    const uint32_t n = tow__nested_count(e->primitive, e->params);
    if (!tow__params_own(t, e->primitive, e->params, &params)) return;
    for (uint32_t i = 0; i < n; i++) tow__set_nested(e->primitive, params, i, NULL);
    for (uint32_t i = 0; i < n && status == TOW_OK; i++) {
        tow_graph *body = NULL;
        status = tow__override_verdict(tow__nested(e->primitive, e->params, i), o->number, o->verdict, &body);
        tow__set_nested(e->primitive, params, i, body);
    }
    if (status == TOW_OK)
        tow__bind(t, e->primitive, params, e->n_in, x, e->n_out, y);
    else
        tow__adopt_error(t);
    tow__release_owned(e->primitive, params);
}

static void record(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                   const void *user)
{
    const overriding *o = user;
    tow__source source = e->source;
    if (o->chosen[e - g->equations]) source.mark = tow__override(o->verdict);
    tow__set_source(t, &source);
    if (tow__nested_count(e->primitive, e->params) > 0)
        record_region(t, e, o, x, y);
    else
        tow__rebind(t, e, x, y);
    tow__set_source(t, NULL);
}
