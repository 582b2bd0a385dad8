/* Bodies of loops that are recorded more than once: each copy says in its scopes which iterations it is of. */
#include <inttypes.h>
#include <stdio.h>

#include "src/graph/builder.h"

/* What replaces "{}" behind scope[0..length). */
typedef struct iteration {
    const char *scope;
    size_t length;
    char component[48];
} iteration;

/* Where "{}" begins in the scope, or NULL if the equation is of no iteration of the loop. */
static const char *find_component(const iteration *it, const char *scope)
{
    if (!scope || strncmp(scope, it->scope, it->length) != 0) return NULL;
    scope += it->length;
    if (it->length > 0 && *scope++ != '/') return NULL;
    return strncmp(scope, "{}", 2) == 0 && (scope[2] == '/' || !scope[2]) ? scope : NULL;
}

static const char *rename_scope(tow_trace *t, const iteration *it, const char *scope, const char *at)
{
    const size_t size = strlen(scope) + sizeof it->component;
    char *renamed = tow__trace_alloc(t, size, 1);
    if (renamed) snprintf(renamed, size, "%.*s%s%s", (int)(at - scope), scope, it->component, at + 2);
    return renamed;
}

static void record(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                   const void *user);

static tow_status rename_graph(const tow_graph *g, const iteration *it, tow_graph **result)
{
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++) in[i] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    tow__inline_by(t, g, record, it, in, out);
    return tow__trace_end(t, g->n_outputs, out, false, result);
}

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
        status = rename_graph(tow__nested(e->primitive, e->params, i), it, &body);
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
    const char *at = find_component(it, e->source.scope);
    tow__source source = e->source;
    (void)g;
    if (at) source.scope = rename_scope(t, it, source.scope, at);
    if (at && !source.scope) return;
    tow__set_source(t, &source);
    if (at && tow__nested_count(e->primitive, e->params) > 0)
        record_region(t, e, it, x, y);
    else
        tow__rebind(t, e, x, y);
    tow__set_source(t, NULL);
}

void tow__inline_iteration(tow_trace *t, const tow_graph *g, int64_t number, int64_t every, const tow_value *in,
                           tow_value *out)
{
    const char *scope = tow__get_scope(t);
    iteration it = {.scope = scope ? scope : "", .length = scope ? strlen(scope) : 0};
    if (every)
        snprintf(it.component, sizeof it.component, "{%" PRId64 "+%" PRId64 "}", number, every);
    else
        snprintf(it.component, sizeof it.component, "%" PRId64, number);
    tow__inline_by(t, g, record, &it, in, out);
}
