/* Bodies of loops that are recorded more than once: each copy says in its scopes which iterations it is of. The callers
 * of tow__set_iteration_scope say how scopes of iterations are called. */
#include "src/graph/builder.h"

/* The iterations that the body stands for. */
typedef struct iteration {
    tow__iteration_scope rename;
    const char *around;
    int64_t number, every;
} iteration;

static void record(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                   const void *user);

/* A region over renamed copies of its graphs. */
static void record_region(tow_trace *t, const tow__equation *e, const iteration *it, const tow_value *x, tow_value *y)
{
    void *params;
    tow_status status = TOW_OK;
    const uint32_t n = tow__nested_count(e->primitive, e->params);
    if (!tow__params_own(t, e->primitive, e->params, &params)) return;
    for (uint32_t i = 0; i < n; i++) tow__set_nested(e->primitive, params, i, NULL);
    for (uint32_t i = 0; i < n && status == TOW_OK; i++) {
        tow_graph *body = NULL;
        status = tow__copy_by(tow__nested(e->primitive, e->params, i), record, it, &body);
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
    const iteration *it = user;
    tow__source source = e->source;
    (void)g;
    if (source.scope) source.scope = it->rename(t, source.scope, it->around, it->number, it->every);
    if (e->source.scope && !source.scope) return;
    const bool renamed = source.scope != e->source.scope;
    tow__set_source(t, &source);
    if (renamed && tow__nested_count(e->primitive, e->params) > 0)
        record_region(t, e, it, x, y);
    else
        tow__rebind(t, e, x, y);
    tow__set_source(t, NULL);
}

void tow__inline_iteration(tow_trace *t, const tow_graph *g, int64_t number, int64_t every, const tow_value *in,
                           tow_value *out)
{
    const char *scope = tow__get_scope(t);
    const iteration it = {tow__get_iteration_scope(t), scope ? scope : "", number, every};
    if (it.rename)
        tow__inline_by(t, g, record, &it, in, out);
    else
        tow__inline(t, g, in, out);
}
