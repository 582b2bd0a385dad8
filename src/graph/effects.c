/* Effects: what happens besides results. An equation with one is kept, once, in its place. */
#include "src/graph/builder.h"
#include "src/graph/region.h"

/* Rules take the place of what gives the value, so the value alone counts. */
static bool has_effect_inside(const tow__equation *e)
{
    tow__region_form form;
    if (!tow__region_of(e, &form)) return false;
    for (uint32_t i = 0; i < form.conditions + form.branches; i++)
        if (tow__nested(e->primitive, e->params, i)->has_effects) return true;
    return false;
}

bool tow__has_effect(const tow__equation *e)
{
    return e->primitive->effect ? e->primitive->effect(e->params) : has_effect_inside(e);
}

bool tow__any_effect(const tow__equation *equations, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (tow__has_effect(&equations[i])) return true;
    return false;
}

tow_status tow__own_without_effects(tow_trace *t, const tow__equation *e, void **params)
{
    const uint32_t n = tow__nested_count(e->primitive, e->params);
    tow_status status = TOW_OK;
    if (!tow__params_own(t, e->primitive, e->params, params)) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) tow__set_nested(e->primitive, *params, i, NULL);
    for (uint32_t i = 0; i < n && status == TOW_OK; i++) {
        tow_graph *body = NULL;
        status = tow__without_effects(tow__nested(e->primitive, e->params, i), &body);
        tow__set_nested(e->primitive, *params, i, body);
    }
    return status;
}

void tow__release_owned(const tow_primitive *primitive, void *params)
{
    for (uint32_t i = tow__nested_count(primitive, params); i-- > 0;)
        tow_graph_release(tow__nested(primitive, params, i));
}

/* The region with effects of its bodies left out. */
static tow_status rebind_without(tow_trace *t, const tow__equation *e, const tow_value *in, tow_value *out)
{
    void *params = NULL;
    tow_status status = tow__own_without_effects(t, e, &params);
    if (status == TOW_OK) tow__bind(t, e->primitive, params, e->n_in, in, e->n_out, out);
    tow__release_owned(e->primitive, params);
    return status;
}

static tow_status rebind(tow_trace *t, const tow__equation *e, tow_value *values)
{
    tow_value *in = tow__trace_alloc(t, e->n_in, sizeof *in), *out = tow__trace_alloc(t, e->n_out, sizeof *out);
    if (!in || !out) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < e->n_in; i++) in[i] = values[e->in[i]];
    tow__set_source(t, &e->source);
    tow_status status = rebind_without(t, e, in, out);
    tow__set_source(t, NULL);
    for (uint32_t i = 0; i < e->n_out; i++) values[e->out[i]] = out[i];
    return status;
}

tow_status tow__without_effects(const tow_graph *g, tow_graph **result)
{
    tow_status status = TOW_OK;
    *result = NULL;
    if (!g->has_effects) {
        *result = tow__graph_share(g);
        return TOW_OK;
    }
    tow_trace *t = tow__trace_begin(g->ctx);
    tow_value *values = t ? tow__trace_alloc(t, (size_t)g->n_vars + g->n_outputs, sizeof *values) : NULL;
    if (!values) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        values[g->inputs[i]] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    for (uint32_t i = 0; i < g->n_equations && status == TOW_OK; i++) {
        const tow__equation *e = &g->equations[i];
        if (!tow__has_effect(e)) {
            if (!tow__rebind_among(t, e, values)) break;
        } else if (!e->primitive->effect) {
            status = rebind(t, e, values);
        } else if (e->n_out > 0) {
            status =
                tow__fail(g->ctx, TOW_UNSUPPORTED,
                          "%s: the loop around it has no bound on its iterations, so differentiation repeats the loop, "
                          "and may not repeat what has effects; give the while max_iterations, or make the function "
                          "pure",
                          e->primitive->name);
        }
    }
    if (status != TOW_OK) {
        tow__trace_abandon(t);
        return status;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) values[g->n_vars + i] = values[g->outputs[i]];
    return tow__trace_end(t, g->n_outputs, values + g->n_vars, false, result);
}
