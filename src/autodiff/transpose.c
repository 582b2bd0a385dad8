/* Reverse mode: records the transpose of a linear graph. Cotangents of a value add up in reverse order of its readers,
 * one addition per reader. A nested region continues the sums of its caller (they enter as operands), so the order of
 * additions, and with it every bit, is the same with and without regions. */
#include "src/autodiff/linear.h"
#include "src/ops/control.h"
#include "tow/ops.h"

static bool has_linear_operand(const tow__equation *e, const bool *linear)
{
    for (uint32_t i = 0; i < e->n_in; i++)
        if (linear[e->in[i]]) return true;
    return false;
}

bool *tow__linear_values(tow_trace *t, const tow_graph *g, const bool *linear_inputs)
{
    bool *linear = tow__trace_alloc(t, g->n_vars, sizeof *linear);
    if (!linear) return NULL;
    for (uint32_t i = 0; i < g->n_inputs; i++) linear[g->inputs[i]] = linear_inputs[i];
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        bool any = has_linear_operand(e, linear);
        for (uint32_t j = 0; j < e->n_out; j++)
            linear[e->out[j]] = any;
    }
    return linear;
}

void tow__transpose_body(tow_trace *t, const tow_graph *g, const bool *linear, const tow_value *in, const tow_value *ct,
                         tow_value *dx)
{
    bool *available = tow__trace_alloc(t, g->n_inputs, sizeof *available);
    if (!available) return;
    for (uint32_t i = 0; i < g->n_inputs; i++) available[i] = true;
    tow__partial p;
    if (tow__partial_eval(g, linear, available, (tow__manner){.runs_once = true}, NULL, NULL, &p) != TOW_OK) {
        tow__adopt_error(t);
        return;
    }
    uint32_t n_u = p.unknown->n_inputs, n_k = p.known->n_outputs;
    tow_value *known_in = tow__trace_alloc(t, g->n_inputs, sizeof *known_in),
              *known_out = tow__trace_alloc(t, n_k, sizeof *known_out);
    tow_value *u_in = tow__trace_alloc(t, n_u, sizeof *u_in), *u_dx = tow__trace_alloc(t, n_u, sizeof *u_dx);
    tow_value *u_ct = tow__trace_alloc(t, g->n_outputs, sizeof *u_ct);
    bool *u_linear = tow__trace_alloc(t, n_u, sizeof *u_linear);
    if (known_in && known_out && u_in && u_dx && u_ct && u_linear) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < g->n_inputs; i++)
            if (!linear[i]) known_in[n++] = in[i];
        tow__inline(t, p.known, known_in, known_out);
        n = 0;
        for (uint32_t i = 0; i < g->n_inputs; i++) {
            if (!p.input_used[i]) continue;
            u_in[n] = in[i];
            u_dx[n] = dx[i];
            u_linear[n++] = linear[i];
        }
        for (uint32_t i = 0; i < p.n_residuals; i++) u_in[n++] = known_out[n_k - p.n_residuals + i];
        n = 0;
        for (uint32_t i = 0; i < g->n_outputs; i++)
            if (p.out_staged[i]) u_ct[n++] = ct[i];
        tow__transpose_inline(t, p.unknown, u_linear, u_in, u_ct, u_dx);
        n = 0;
        for (uint32_t i = 0; i < g->n_inputs; i++) {
            if (!p.input_used[i]) continue;
            if (linear[i]) dx[i] = u_dx[n];
            n++;
        }
    }
    tow__partial_free(&p);
}

/* remat: one region that repeats and transposes. Operands: nonlinear values, cotangents, sums so far; results: new
 * sums. No linear operand stands twice. */
static void transpose_region(tow__transpose *r)
{
    const tow__equation *e = r->e;
    tow__remat_params params = *(const tow__remat_params *)e->params;
    size_t most = 2 * (size_t)e->n_in + e->n_out;
    tow_value *operands = tow__trace_alloc(r->t, most, sizeof *operands),
              *results = tow__trace_alloc(r->t, e->n_in, sizeof *results);
    tow_value *in = tow__trace_alloc(r->t, e->n_in, sizeof *in), *dx = tow__trace_alloc(r->t, e->n_in, sizeof *dx);
    tow_value *ct = tow__trace_alloc(r->t, e->n_out, sizeof *ct),
              *start = tow__trace_alloc(r->t, e->n_in, sizeof *start);
    bool *changed = tow__trace_alloc(r->t, e->n_in, sizeof *changed);
    if (!operands || !results || !in || !dx || !ct || !start || !changed) return;

    size_t n = 0, n_changed = 0, n_captures;
    tow_value *captures;
    tow__push(r->t);
    for (uint32_t i = 0; i < e->n_in; i++)
        if (!r->linear[i]) in[i] = tow__input(r->t, r->in_types[i], NULL), operands[n++] = r->x[i];
    for (uint32_t i = 0; i < e->n_out; i++)
        if (!tow_is_null(r->ct[i])) ct[i] = tow__input(r->t, tow_value_type(r->ct[i]), NULL), operands[n++] = r->ct[i];
    for (uint32_t i = 0; i < e->n_in; i++)
        if (r->linear[i] && !tow_is_null(r->dx[i]))
            dx[i] = start[i] = tow__input(r->t, r->in_types[i], NULL), operands[n++] = r->dx[i];
    tow__transpose_body(r->t, params.body, r->linear, in, ct, dx);
    for (uint32_t i = 0; i < e->n_in; i++) {
        changed[i] = r->linear[i] && !tow_is_null(dx[i]) && (tow_is_null(start[i]) || dx[i].id != start[i].id);
        if (changed[i]) results[n_changed++] = dx[i];
    }
    params.body = tow__pop(r->t, n_changed, results, &n_captures, &captures);
    if (!params.body) return;
    params.differentiated = true;
    tow__set_source(r->t, &e->source);
    if (n_captures)
        tow_trace_fail(r->t, TOW_INTERNAL_ERROR, "the transpose of a remat region captured %zu outer values",
                       n_captures);
    else if (n_changed || params.body->has_effects)
        tow__bind(r->t, &tow__remat_p, &params, n, operands, n_changed, results);
    tow_graph_release(params.body);
    n = 0;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (changed[i]) r->dx[i] = results[n++];
}

/* The body with input i replaced by input first[i] <= i where they differ. */
static tow_status merge_inputs(const tow_graph *body, const uint32_t *first, tow_graph **result)
{
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(body, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < body->n_inputs; i++)
        in[i] = first[i] == i ? tow__input(t, body->vars[body->inputs[i]].type, body->input_names[i]) : in[first[i]];
    tow__inline(t, body, in, out);
    return tow__trace_end(t, body->n_outputs, out, false, result);
}

/* remat. A linear operand that stands twice becomes one input of the region, so that what comes from either place is
 * added in the order of the equations inside. */
static void remat_transpose(tow__transpose *r)
{
    const tow__equation *e = r->e;
    uint32_t *first = tow__trace_alloc(r->t, e->n_in, sizeof *first), n = 0;
    if (!first) return;
    for (uint32_t i = 0; i < e->n_in; i++) {
        first[i] = r->linear[i] ? r->first[i] : i;
        n += first[i] == i;
    }
    if (n == e->n_in) {
        transpose_region(r);
        return;
    }
    tow__remat_params params = *(const tow__remat_params *)e->params;
    tow__equation merged = {.primitive = e->primitive, .params = &params, .n_in = n, .n_out = e->n_out, .out = e->out};
    tow__transpose inner = {.t = r->t, .e = &merged, .ct = r->ct};
    merged.source = e->source;
    merged.in = tow__trace_alloc(r->t, n, sizeof *merged.in);
    tow_value *x = tow__trace_alloc(r->t, n, sizeof *x), *dx = tow__trace_alloc(r->t, n, sizeof *dx);
    bool *linear = tow__trace_alloc(r->t, n, sizeof *linear);
    tow_type *types = tow__trace_alloc(r->t, n, sizeof *types);
    if (!merged.in || !x || !dx || !linear || !types) return;
    n = 0;
    for (uint32_t i = 0; i < e->n_in; i++) {
        if (first[i] != i) continue;
        merged.in[n] = e->in[i], x[n] = r->x[i], dx[n] = r->dx[i], linear[n] = r->linear[i];
        types[n++] = r->in_types[i];
    }
    inner.x = x, inner.dx = dx, inner.linear = linear, inner.in_types = types;
    if (merge_inputs(params.body, first, &params.body) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    transpose_region(&inner);
    tow_graph_release(params.body);
    n = 0;
    for (uint32_t i = 0; i < e->n_in; i++) r->dx[i] = first[i] == i ? dx[n++] : (tow_value){0};
}

/* Adds the contribution of one reader. */
static void accumulate(tow_value *sum, tow_value contribution)
{
    if (tow_is_null(contribution)) return;
    *sum = tow_is_null(*sum) ? contribution : tow_add(*sum, contribution);
}

/* One equation, from the cotangents of its results to those of its linear operands. */
static void transpose_equation(tow__transpose *r, const tow_graph *g, const bool *linear, tow_value *sums)
{
    const tow__equation *e = r->e;
    const tow_primitive *p = e->primitive;
    tow__nonlinear found;
    if (!tow__is_linear(g, e, linear, &found)) {
        tow_trace_fail(r->t, TOW_UNSUPPORTED,
                       "%s, so reverse mode cannot transpose it; make the rule that records it linear in its tangents, "
                       "or use forward mode",
                       found.text);
        return;
    }
    bool continues_all =
        p == &tow__remat_p || p == &tow__scan_p || p == &tow__cond_p || p == &tow__fori_p || p->continues;
    for (uint32_t i = 0; i < e->n_in; i++) {
        /* an operand that stands twice has one running sum: only its first place continues it */
        bool continues = r->linear[i] && r->first[i] == i && continues_all;
        r->dx[i] = continues ? sums[e->in[i]] : (tow_value){0};
        if (continues) sums[e->in[i]] = (tow_value){0};
    }
    if (p == &tow__remat_p) {
        remat_transpose(r);
    } else if (p == &tow__scan_p) {
        tow__scan_transpose(r);
    } else if (p == &tow__cond_p) {
        tow__cond_transpose(r);
    } else if (p == &tow__fori_p) {
        tow__fori_transpose(r);
    } else if (p == &tow__while_p) {
        tow_trace_fail(
            r->t, TOW_UNSUPPORTED,
            "%s%swhile: reverse mode does not work for a loop without a bound on its iterations; give it "
            "max_iterations, use a scan or a fori whose bounds are numbers, or stop the derivative with "
            "tow_stop_gradient",
            e->source.scope ? e->source.scope : "", e->source.scope ? ": " : "");
        return;
    } else if (p == &tow__name_p) {
        r->dx[0] = r->ct[0];
    } else {
        p->transpose(r);
    }
    for (uint32_t i = 0; i < e->n_in; i++)
        if (r->linear[i]) accumulate(&sums[e->in[i]], r->dx[i]);
}

/* first[i]: the first operand of e that is the value of operand i. place: [n_vars], zeros before and after. */
static void find_first(const tow__equation *e, uint32_t *place, uint32_t *first)
{
    for (uint32_t i = 0; i < e->n_in; i++) {
        if (place[e->in[i]] == 0) place[e->in[i]] = i + 1;
        first[i] = place[e->in[i]] - 1;
    }
    for (uint32_t i = 0; i < e->n_in; i++) place[e->in[i]] = 0;
}

/* What does not depend on tangents runs forward, each equation directly before the first transposed one that needs it.
 * first[i], next[e]: lists of what is due before linear equation i, in order; TOW__INPUT ends them. first[n_equations]: what
 * is due at once. */
typedef struct due {
    uint32_t *first, *next;
} due;

/* False: no memory. */
static bool find_due(tow_trace *t, const tow_graph *g, const bool *linear, due *d)
{
    uint32_t *by_value =
        tow__trace_alloc(t, g->n_vars, sizeof *by_value); /* 1 + the last linear equation that needs it */
    d->first = tow__trace_alloc(t, (size_t)g->n_equations + 1, sizeof *d->first);
    d->next = tow__trace_alloc(t, g->n_equations, sizeof *d->next);
    if (!by_value || !d->first || !d->next) return false;
    for (uint32_t i = 0; i <= g->n_equations; i++) d->first[i] = TOW__INPUT;
    for (uint32_t i = 0; i < g->n_outputs; i++) by_value[g->outputs[i]] = g->n_equations + 1;
    for (uint32_t i = g->n_equations; i-- > 0;) {
        const tow__equation *e = &g->equations[i];
        uint32_t at = i + 1;
        if (!has_linear_operand(e, linear)) {
            at = tow__has_effect(e) ? g->n_equations + 1 : 0;
            for (uint32_t j = 0; j < e->n_out; j++) at = by_value[e->out[j]] > at ? by_value[e->out[j]] : at;
            if (at == 0) continue; /* nothing reads it */
            d->next[i] = d->first[at - 1];
            d->first[at - 1] = i;
        }
        for (uint32_t j = 0; j < e->n_in; j++)
            if (by_value[e->in[j]] < at) by_value[e->in[j]] = at;
    }
    return true;
}

/* Records what is due before linear equation i. False: no memory. */
static bool record_due(tow_trace *t, const tow_graph *g, const due *d, uint32_t i, tow_value *values)
{
    for (uint32_t e = d->first[i]; e != TOW__INPUT; e = d->next[e])
        if (!tow__rebind_among(t, &g->equations[e], values)) return false;
    tow__set_source(t, NULL);
    return true;
}

void tow__transpose_inline(tow_trace *t, const tow_graph *g, const bool *linear_inputs, const tow_value *in,
                           const tow_value *ct, tow_value *dx)
{
    tow_value *values = tow__trace_alloc(t, g->n_vars, sizeof *values),
              *sums = tow__trace_alloc(t, g->n_vars, sizeof *sums);
    bool *linear = tow__linear_values(t, g, linear_inputs);
    size_t widest = 1;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        size_t width = g->equations[i].n_in > g->equations[i].n_out ? g->equations[i].n_in : g->equations[i].n_out;
        if (width > widest) widest = width;
    }
    tow_value *buffer = tow__trace_alloc(t, 3 * widest, sizeof *buffer);
    bool *is_linear = tow__trace_alloc(t, widest, sizeof *is_linear);
    tow_type *types = tow__trace_alloc(t, widest, sizeof *types);
    uint32_t *place = tow__trace_alloc(t, g->n_vars, sizeof *place),
             *first = tow__trace_alloc(t, widest, sizeof *first);
    if (!values || !sums || !linear || !buffer || !is_linear || !types || !place || !first) return;

    for (uint32_t i = 0; i < g->n_inputs; i++) {
        if (linear_inputs[i])
            sums[g->inputs[i]] = dx[i];
        else
            values[g->inputs[i]] = in[i];
    }
    due d;
    if (!find_due(t, g, linear, &d) || !record_due(t, g, &d, g->n_equations, values)) return;
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (linear[g->outputs[i]]) accumulate(&sums[g->outputs[i]], ct[i]);

    for (uint32_t i = g->n_equations; i-- > 0 && !tow__failed(t);) {
        const tow__equation *e = &g->equations[i];
        bool any = false;
        if (!has_linear_operand(e, linear)) continue;
        if (!record_due(t, g, &d, i, values)) return;
        for (uint32_t j = 0; j < e->n_out; j++) {
            buffer[j] = sums[e->out[j]];
            any |= !tow_is_null(buffer[j]);
        }
        if (!any) continue;
        tow__transpose r = {.t = t,
                            .e = e,
                            .ct = buffer,
                            .x = buffer + widest,
                            .dx = buffer + 2 * widest,
                            .linear = is_linear,
                            .first = first,
                            .in_types = types};
        find_first(e, place, first);
        for (uint32_t j = 0; j < e->n_in; j++) {
            is_linear[j] = linear[e->in[j]];
            types[j] = g->vars[e->in[j]].type;
            buffer[widest + j] = is_linear[j] ? (tow_value){0} : values[e->in[j]];
        }
        tow__set_source(t, &e->source);
        transpose_equation(&r, g, linear, sums);
        tow__set_source(t, NULL);
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (linear_inputs[i]) dx[i] = sums[g->inputs[i]];
}
