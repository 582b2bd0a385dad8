/* The checker: every invariant of a graph, re-established from nothing but the graph and the rules of the primitives.
 */
#include <stdlib.h>

#include "src/graph/builder.h"

/* The place where an error was found: equations of nested graphs are named with those around them. */
typedef struct place {
    const struct place *outer;
    uint32_t equation;
    const tow_primitive *primitive;
} place;

__attribute__((format(printf, 4, 5))) static tow_status wrong(const tow_graph *g, const place *at, tow_status status,
                                                              const char *format, ...)
{
    tow__string s;
    tow__string_init(&s, g->ctx);
    for (; at; at = at->outer)
        tow__string_add(&s, "equation %u (%s)%s", at->equation, at->primitive ? at->primitive->name : "no primitive",
                        at->outer ? " in " : ": ");
    va_list args;
    va_start(args, format);
    tow__fail_v(g->ctx, status, format, args);
    va_end(args);
    if (s.text && !s.failed) tow__fail(g->ctx, status, "%s%s", s.text, g->ctx->error);
    tow__string_free(&s);
    return status;
}

static tow_status define(const tow_graph *g, const place *at, uint32_t var, uint32_t equation, uint32_t index,
                         bool *defined)
{
    if (var >= g->n_vars) return wrong(g, at, TOW_INTERNAL_ERROR, "value %u of %u does not exist", var, g->n_vars);
    if (defined[var]) return wrong(g, at, TOW_INTERNAL_ERROR, "value %u is defined twice", var);
    if (g->vars[var].equation != equation || g->vars[var].index != index)
        return wrong(g, at, TOW_INTERNAL_ERROR, "value %u does not say that it is made here", var);
    if (!tow__type_valid(g->vars[var].type))
        return wrong(g, at, TOW_INTERNAL_ERROR, "value %u has the malformed type %s", var,
                     tow__type_name(g->vars[var].type).text);
    defined[var] = true;
    return TOW_OK;
}

static tow_status use(const tow_graph *g, const place *at, uint32_t var, const bool *defined)
{
    if (var >= g->n_vars) return wrong(g, at, TOW_INTERNAL_ERROR, "value %u of %u does not exist", var, g->n_vars);
    if (!defined[var]) return wrong(g, at, TOW_INTERNAL_ERROR, "value %u is used before its definition", var);
    return TOW_OK;
}

static tow_status check_graph(const tow_graph *g, const place *outer);

static tow_status check_nested(const tow_graph *g, const tow__equation *e, const place *at)
{
    tow_status status = TOW_OK;
    const char *missing = tow__missing_param(e->primitive, e->params);
    if (missing) return wrong(g, at, TOW_INTERNAL_ERROR, "the parameter %s is missing", missing);
    for (uint32_t i = 0, n = tow__nested_count(e->primitive, e->params); i < n && status == TOW_OK; i++)
        status = check_graph(tow__nested(e->primitive, e->params, i), at);
    return status;
}

/* The types that the rule yields are the types of the outputs. */
TOW__OWN_FRAME static tow_status check_types(const tow_graph *g, const tow__equation *e, const place *at,
                                             tow_type *types)
{
    tow_type *out = types + e->n_in;
    for (uint32_t i = 0; i < e->n_in; i++) types[i] = g->vars[e->in[i]].type;
    for (uint32_t i = 0; i < e->n_out; i++) out[i] = (tow_type){0};
    tow__typing ty = {g->ctx, e->primitive->name, e->params, e->n_in, types, e->n_out, out, e->primitive};
    tow_status status = e->primitive->type(&ty);
    if (status != TOW_OK) return wrong(g, at, status, "%s", g->ctx->error);
    for (uint32_t i = 0; i < e->n_out; i++)
        if (!tow_type_equal(out[i], g->vars[e->out[i]].type))
            return wrong(g, at, TOW_INTERNAL_ERROR, "result %u has type %s, but the rule of the primitive says %s", i,
                         tow__type_name(g->vars[e->out[i]].type).text, tow__type_name(out[i]).text);
    return TOW_OK;
}

static tow_status check_equation(const tow_graph *g, uint32_t index, const place *outer, bool *defined)
{
    const tow__equation *e = &g->equations[index];
    place at = {outer, index, e->primitive};
    tow_status status = TOW_OK;
    if (!e->primitive) return wrong(g, &at, TOW_INTERNAL_ERROR, "the primitive is missing");
    if ((e->primitive->inputs >= 0 && (uint32_t)e->primitive->inputs != e->n_in) ||
        (e->primitive->outputs >= 0 && (uint32_t)e->primitive->outputs != e->n_out))
        return wrong(g, &at, TOW_INTERNAL_ERROR, "%u operands and %u results are not what the primitive has", e->n_in,
                     e->n_out);
    if (e->primitive->params_size > 0 && !e->params)
        return wrong(g, &at, TOW_INTERNAL_ERROR, "the parameters are missing");
    for (uint32_t i = 0; i < e->n_in; i++)
        if ((status = use(g, &at, e->in[i], defined)) != TOW_OK) return status;
    for (uint32_t i = 0; i < e->n_out; i++)
        if ((status = define(g, &at, e->out[i], index, i, defined)) != TOW_OK) return status;
    if ((status = check_nested(g, e, &at)) != TOW_OK) return status;
    size_t n_types = (size_t)e->n_in + e->n_out;
    tow_type *types = tow__alloc(g->ctx, n_types, sizeof *types);
    if (!types) return TOW_OUT_OF_MEMORY;
    status = check_types(g, e, &at, types);
    tow__free(g->ctx, types, n_types, sizeof *types);
    return status;
}

static tow_status check_graph(const tow_graph *g, const place *outer)
{
    tow_status status = TOW_OK;
    bool *defined = tow__alloc(g->ctx, g->n_vars, sizeof *defined);
    if (!defined) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++) TRY(define(g, outer, g->inputs[i], TOW__INPUT, i, defined));
    for (uint32_t i = 0; i < g->n_equations; i++) TRY(check_equation(g, i, outer, defined));
    for (uint32_t i = 0; i < g->n_outputs; i++) TRY(use(g, outer, g->outputs[i], defined));
    for (uint32_t v = 0; v < g->n_vars; v++)
        if (!defined[v])
            TRY(wrong(g, outer, TOW_INTERNAL_ERROR, "value %u is defined nowhere: the graph is not closed", v));
done:
    tow__free(g->ctx, defined, g->n_vars, sizeof *defined);
    return status;
}

tow_status tow_graph_check(const tow_graph *graph)
{
    return graph ? check_graph(graph, NULL) : tow__missing(NULL, __func__, "a graph");
}

/* ---- after each pass ------------------------------------------------------------------------------------------- */

bool tow__checks_wanted(void)
{
    const char *text = getenv("TOW_CHECK");
    if (text) return strcmp(text, "0") != 0;
#ifdef NDEBUG
    return false;
#else
    return true;
#endif
}

tow_status tow__verify(tow_graph *g, const char *pass)
{
    if (!tow__checks_wanted()) return TOW_OK;
    tow_status status = tow_graph_check(g);
    if (status == TOW_OK || status == TOW_OUT_OF_MEMORY) return status;
    return tow__fail(g->ctx, TOW_INTERNAL_ERROR, "%s made a malformed graph (please report this): %s", pass,
                     g->ctx->error);
}
