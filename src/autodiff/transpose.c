/* Reverse mode: records the transpose of a linear graph. Cotangents of a value add up in reverse order of its readers,
 * one addition per reader. A nested region continues the sums of its caller (they enter as operands), so the order of
 * additions, and with it every bit, is the same with and without regions. */
#include "src/autodiff/linear.h"
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
        for (uint32_t j = 0; j < e->n_out; j++) linear[e->out[j]] = any;
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
        const tow__phase phase = tow__set_phase(t, TOW__RECOMPUTED);
        tow__inline(t, p.known, known_in, known_out);
        tow__set_phase(t, phase);
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
    for (uint32_t i = 0; i < e->n_in; i++) {
        /* an operand that stands twice has one running sum: only its first place continues it */
        bool continues = r->linear[i] && r->first[i] == i && p->continues;
        r->dx[i] = continues ? sums[e->in[i]] : (tow_value){0};
        if (continues) sums[e->in[i]] = (tow_value){0};
    }
    p->transpose(r);
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

/* Equations that do not depend on tangents run forward, each directly before the first transposed one that needs it.
 * first[i], next[e]: lists of those that are due before linear equation i, in order; TOW__INPUT ends them.
 * first[n_equations]: those that are due at once. */
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
    const tow__phase phase = tow__set_phase(t, TOW__BACKWARD);
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
    tow__set_phase(t, phase);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (linear_inputs[i]) dx[i] = sums[g->inputs[i]];
}
