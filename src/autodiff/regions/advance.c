/* The graph that makes a state of the one before, for loops that make states again (scan_schedule.c,
 * while_schedule.c). */
#include "src/autodiff/regions/schedule.h"

/* The first operation of g, or of a graph in it, that must not run again: it has an effect and results, or gives other
 * bits in another call. NULL: there is none. */
static const tow_primitive *find_unrepeatable(const tow_graph *g)
{
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        const tow_primitive *found = NULL;
        for (uint32_t k = 0, n = tow__nested_count(e->primitive, e->params); k < n && !found; k++)
            found = find_unrepeatable(tow__nested(e->primitive, e->params, k));
        if (found) return found;
        if (e->primitive->varies || tow__has_effect(e)) return e->primitive;
    }
    return NULL;
}

/* False, with an error: states cannot be made again. */
static bool may_replay(tow_trace *t, const tow__equation *e, const tow_graph *body)
{
    const tow_primitive *found = find_unrepeatable(body);
    const char *scope = e->source.scope;
    if (found)
        tow_trace_fail(t, TOW_UNSUPPORTED,
                       "%s%s%s: its schedule runs iterations again, but the carries depend on %s, which runs once; "
                       "take the schedule away, or that operation out of the loop",
                       scope ? scope : "", scope ? ": " : "", e->primitive->name, found->name);
    return !found;
}

tow_graph *tow__advance_graph(const tow__loop_split *l, const uint32_t *output, uint32_t n)
{
    const tow_graph *g = l->part.known;
    tow_trace *t = l->s->u;
    bool *used = tow__trace_alloc(t, g->n_outputs, sizeof *used);
    tow_graph *quiet = NULL, *result = NULL;
    if (!used) return NULL;
    for (uint32_t k = 0; k < n; k++) used[output[k]] = true;
    tow_status status = tow__without_effects(g, &quiet);
    if (status == TOW_OK) status = tow__dce(quiet, used, false, NULL, &result);
    tow_graph_release(quiet);
    if (status != TOW_OK) {
        tow__adopt_error(t);
        return NULL;
    }
    if (may_replay(t, l->e, result)) return result;
    tow_graph_release(result);
    return NULL;
}
