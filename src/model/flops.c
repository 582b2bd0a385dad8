/* See flops.h. */
#include "src/model/flops.h"

#include "src/graph/region.h"

/* The receiver of counts: to the caller, or to a sum. */
typedef struct counter {
    tow_context *ctx;
    tow__flops_visitor visit;
    void *user;
} counter;

static tow_status count_graph(const counter *c, const tow_graph *g, double times, const char *scope);

static void add_to_sum(void *sum, const char *scope, double flops)
{
    (void)scope;
    *(double *)sum += flops;
}

/* Counts the operations of one run of the graph. */
static tow_status sum_graph(const counter *c, const tow_graph *g, double *sum)
{
    *sum = 0;
    return count_graph(&(counter){c->ctx, add_to_sum, sum}, g, 1, "");
}

/* The branch that does most. */
static tow_status find_dearest(const counter *c, const tow__equation *e, const tow__region_form *form,
                               const tow_graph **dearest)
{
    double most = -1;
    for (uint32_t k = form->conditions; k < form->conditions + form->branches; k++) {
        const tow_graph *branch = tow__nested(e->primitive, e->params, k);
        double flops;
        tow_status status = sum_graph(c, branch, &flops);
        if (status) return status;
        if (flops > most) {
            most = flops;
            *dearest = branch;
        }
    }
    return TOW_OK;
}

/* The graphs of a region, or what gives the value of a call with a rule of its own, as often as they run. */
static tow_status count_region(const counter *c, const tow__equation *e, const tow__region_form *form, double times,
                               const char *scope)
{
    const int64_t bound = form->most > 0 ? form->most : 1;
    const double runs = times * (double)(form->length == TOW__DATA_DECIDE ? bound : form->length);
    const tow_graph *body = form->body;
    tow_status status = form->branches > 1 ? find_dearest(c, e, form, &body) : TOW_OK;
    if (runs == 0) return status;
    for (uint32_t k = 0; k < form->conditions && !status; k++)
        status = count_graph(c, tow__nested(e->primitive, e->params, k), runs, scope);
    return status ? status : count_graph(c, body, runs, scope);
}

/* Counts the parts of a composite. */
static tow_status count_parts(const counter *c, const tow_graph *g, const tow__equation *e, double times,
                              const char *scope)
{
    tow_trace *t = tow__trace_begin(c->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *x = tow__trace_alloc(t, e->n_in + 1U, sizeof *x), *y = tow__trace_alloc(t, e->n_out + 1U, sizeof *y);
    tow_graph *parts = NULL;
    for (uint32_t i = 0; x && i < e->n_in; i++) x[i] = tow__input(t, g->vars[e->in[i]].type, NULL);
    tow__set_source(t, &(tow__source){.scope = scope});
    if (x && y) e->primitive->decompose(t, e, x, y);
    tow_status status = tow__trace_end(t, x && y ? e->n_out : 0, y, true, &parts);
    if (!status) status = count_graph(c, parts, times, scope);
    tow_graph_release(parts);
    return status;
}

/* The operations that the cost rule counts. */
static tow_status rule_flops(const counter *c, const tow_graph *g, const tow__equation *e, double *flops)
{
    tow__view *views = tow__alloc(c->ctx, (size_t)e->n_in + e->n_out + 1, sizeof *views);
    if (!views) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < e->n_in; i++) views[i] = tow__view_whole(i, g->vars[e->in[i]].type);
    for (uint32_t i = 0; i < e->n_out; i++) views[e->n_in + i] = tow__view_whole(e->n_in + i, g->vars[e->out[i]].type);
    const tow__operation o = {.params = e->params,
                              .n_in = e->n_in,
                              .n_out = e->n_out,
                              .in = views,
                              .out = views + e->n_in,
                              .primitive = e->primitive};
    *flops = e->primitive->cost(&o).exact;
    tow__free(c->ctx, views, (size_t)e->n_in + e->n_out + 1, sizeof *views);
    return TOW_OK;
}

static tow_status count_equation(const counter *c, const tow_graph *g, const tow__equation *e, double times,
                                 const char *outer)
{
    const char *scope = e->source.scope ? e->source.scope : outer;
    tow__region_form form;
    if (tow__region_of(e, &form)) return count_region(c, e, &form, times, scope);
    double flops = 0;
    tow_status status = rule_flops(c, g, e, &flops);
    if (!status && flops == TOW__COST_OF_PARTS) return count_parts(c, g, e, times, scope);
    if (!status && flops > 0) c->visit(c->user, scope, times * flops);
    return status;
}

static tow_status count_graph(const counter *c, const tow_graph *g, double times, const char *scope)
{
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < g->n_equations && !status; i++)
        status = count_equation(c, g, &g->equations[i], times, scope);
    return status;
}

tow_status tow__count_flops(const tow_graph *graph, tow__flops_visitor visit, void *user)
{
    return count_graph(&(counter){graph->ctx, visit, user}, graph, 1, "");
}
