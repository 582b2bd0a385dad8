/* Forward mode: records primal values and tangents of a graph, equation by equation. A null tangent is a zero.
 * Equations without nonzero tangents are recorded as they are, so jvp recomputes nothing. */
#include "src/autodiff/reach.h"
#include "src/ops/wide.h"
#include "tow/ops.h"

void tow__used_values(const tow_graph *g, bool *used)
{
    for (uint32_t i = 0; i < g->n_equations; i++)
        for (uint32_t j = 0; j < g->equations[i].n_in; j++) used[g->equations[i].in[j]] = true;
    for (uint32_t i = 0; i < g->n_outputs; i++) used[g->outputs[i]] = true;
}

/* y = f(x) with f linear in its float operands: dy = f(dx), absent tangents as zeros. */
static void linear_jvp(tow__jvp *r)
{
    const tow__equation *e = r->e;
    tow__rebind(r->t, e, r->x, r->y);
    tow_value *in = tow__trace_alloc(r->t, e->n_in, sizeof *in);
    if (!in) return;
    for (uint32_t i = 0; i < e->n_in; i++) {
        bool carries = tow_dtype_is_float(tow_value_type(r->x[i]).dtype);
        in[i] = !carries ? r->x[i] : tow_is_null(r->dx[i]) ? tow_zeros_like(r->x[i]) : r->dx[i];
    }
    tow__rebind(r->t, e, in, r->dy);
    for (uint32_t i = 0; i < e->n_out; i++)
        if (!tow_dtype_is_float(tow_value_type(r->y[i]).dtype)) r->dy[i] = (tow_value){0};
}

tow_graph *tow__decomposition(tow_trace *t, const tow__equation *e, const tow_type *in_types)
{
    tow_trace *inner = tow__trace_begin(tow_trace_context(t));
    tow_value *in = inner ? tow__trace_alloc(inner, e->n_in, sizeof *in) : NULL;
    tow_value *out = inner ? tow__trace_alloc(inner, e->n_out, sizeof *out) : NULL;
    tow_graph *g = NULL;
    if (in && out && !tow__failed(t)) {
        tow__set_source(inner, &e->source);
        for (uint32_t i = 0; i < e->n_in; i++) in[i] = tow__input(inner, in_types[i], NULL);
        /* it takes the operands' shapes for granted, which null values do not have */
        if (!tow__failed(inner)) tow__decompose(inner, e, in, out);
        tow__trace_end(inner, e->n_out, out, true, &g);
    } else {
        tow__trace_abandon(inner);
    }
    if (!g) tow__adopt_error(t);
    return g;
}

static void jvp_decomposed(tow__jvp *r)
{
    tow_type *types = tow__trace_alloc(r->t, r->e->n_in, sizeof *types);
    for (uint32_t i = 0; types && i < r->e->n_in; i++) types[i] = tow_value_type(r->x[i]);
    tow_graph *g = types ? tow__decomposition(r->t, r->e, types) : NULL;
    if (g) tow__jvp_inline(r->t, g, NULL, r->reverse, r->x, r->dx, r->y, r->dy);
    tow_graph_release(g);
}

void tow__equation_jvp(tow__jvp *r)
{
    const tow_primitive *p = r->e->primitive;
    bool nonzero = false;
    r->decomposed = jvp_decomposed;
    for (uint32_t i = 0; i < r->e->n_in; i++) nonzero |= !tow_is_null(r->dx[i]);
    if (!nonzero)
        tow__rebind(r->t, r->e, r->x, r->y);
    else if (p->jvp)
        p->jvp(r);
    else if (p->transpose && (p->linear || !p->decompose))
        linear_jvp(r);
    else if (p->decompose)
        jvp_decomposed(r);
    else
        tow__rebind(r->t, r->e, r->x, r->y); /* all derivatives are zero */
}

void tow__jvp_inline(tow_trace *t, const tow_graph *g, const tow__reach *reach, bool reverse, const tow_value *x,
                     const tow_value *dx, tow_value *y, tow_value *dy)
{
    tow_value *primal = tow__trace_alloc(t, g->n_vars, sizeof *primal);
    tow_value *tangent = tow__trace_alloc(t, g->n_vars, sizeof *tangent);
    bool *used = tow__trace_alloc(t, g->n_vars, sizeof *used);
    size_t widest = 1;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        if (g->equations[i].n_in > widest) widest = g->equations[i].n_in;
        if (g->equations[i].n_out > widest) widest = g->equations[i].n_out;
    }
    tow_value *buffer = tow__trace_alloc(t, 4 * widest, sizeof *buffer);
    bool *out_used = tow__trace_alloc(t, widest, sizeof *out_used);
    if (!primal || !tangent || !used || !buffer || !out_used) return;
    tow__used_values(g, used);

    for (uint32_t i = 0; i < g->n_inputs; i++) {
        primal[g->inputs[i]] = x[i];
        tangent[g->inputs[i]] = dx[i];
    }
    for (uint32_t i = 0; i < g->n_equations && !tow__failed(t); i++) {
        const tow__equation *e = &g->equations[i];
        tow__jvp r = {.t = t,
                      .e = e,
                      .x = buffer,
                      .dx = buffer + widest,
                      .y = buffer + 2 * widest,
                      .dy = buffer + 3 * widest,
                      .reverse = reverse,
                      .used = out_used,
                      .reach = reach ? reach->body[i] : NULL};
        memset(r.y, 0, e->n_out * sizeof *r.y); /* not all of it: a wide equation would slow down all the others */
        memset(r.dy, 0, e->n_out * sizeof *r.dy);
        for (uint32_t j = 0; j < e->n_in; j++) {
            buffer[j] = primal[e->in[j]];
            buffer[widest + j] = tangent[e->in[j]];
        }
        for (uint32_t j = 0; j < e->n_out; j++) out_used[j] = used[e->out[j]];
        tow__source source = e->source;
        source.why.rule = e->primitive;
        source.why.verdict = 0, source.why.policy = NULL; /* of an earlier differentiation */
        tow__set_source(t, &source);
        tow__equation_jvp(&r);
        tow__set_source(t, NULL);
        for (uint32_t j = 0; j < e->n_out; j++) {
            primal[e->out[j]] = r.y[j];
            tangent[e->out[j]] = r.dy[j];
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        y[i] = primal[g->outputs[i]];
        dy[i] = tangent[g->outputs[i]];
    }
}

tow_status tow__jvp_graph(const tow_graph *g, const tow__reach *reach, bool reverse, const bool *in_nonzero,
                          bool *out_nonzero, tow_graph **result)
{
    *result = NULL;
    tow_trace *t = tow__trace_begin(g->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *x = tow__trace_alloc(t, g->n_inputs, sizeof *x), *dx = tow__trace_alloc(t, g->n_inputs, sizeof *dx);
    tow_value *y = tow__trace_alloc(t, 2 * (size_t)g->n_outputs, sizeof *y),
              *dy = tow__trace_alloc(t, g->n_outputs, sizeof *dy);
    if (!x || !dx || !y || !dy) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) x[i] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (in_nonzero[i]) dx[i] = tow__input(t, g->vars[g->inputs[i]].type, NULL);
    tow__jvp_inline(t, g, reach, reverse, x, dx, y, dy);
    size_t n = g->n_outputs;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (out_nonzero[i] && tow_is_null(dy[i])) dy[i] = tow_zeros_like(y[i]);
        out_nonzero[i] = !tow_is_null(dy[i]);
        if (out_nonzero[i]) y[n++] = dy[i];
    }
    tow_status status = tow__trace_end(t, n, y, false, result);
    if (status == TOW_OK) status = tow__verify(*result, "jvp");
    if (status != TOW_OK) {
        tow_graph_release(*result);
        *result = NULL;
    }
    return status;
}
