/* Transpose of fori: the iterations the other way round.
 *
 *   fori         (count, c, k)                     -> k
 *   transpose    (count, c, [sum of ct c, ct k])   -> [sum of ct c, ct k]
 *
 * All carries are linear: partial evaluation has made stacks of those that are not. Sums of constants are carries that
 * start from what the caller has accumulated already; where there is nothing yet they start from zeros. */
#include "src/autodiff/loops.h"
#include "src/ops/rules.h"

typedef struct loop {
    tow__transpose *r;
    const tow__fori_params *p;
    uint32_t consts, n_in; /* of the body, without the number of the iteration */
    bool *linear;          /* [n_in + 1] */
} loop;

static tow_type input_type(const loop *l, uint32_t i) { return tow_graph_input_type(l->p->body, i); }

/* (c, sum of ct c, ct k, i) -> (sum of ct c, ct k) */
static tow_status transposed_body(const loop *l, tow_graph **result)
{
    const tow_graph *g = l->p->body;
    tow_trace *t = tow__trace_begin(g->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *in = tow__trace_alloc(t, 3 * ((size_t)l->n_in + 1), sizeof *in), *dx = in + l->n_in + 1,
              *out = dx + l->n_in + 1;
    tow_value *ct = tow__trace_alloc(t, g->n_outputs, sizeof *ct);
    if (!in || !ct) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    size_t n = 0;
    for (uint32_t i = 0; i < l->consts; i++)
        if (!l->linear[i]) in[i] = tow__input(t, input_type(l, i), NULL);
    for (uint32_t i = 0; i < l->consts; i++)
        if (l->linear[i]) dx[i] = tow__input(t, input_type(l, i), NULL);
    for (uint32_t k = 0; k < g->n_outputs; k++) ct[k] = tow__input(t, input_type(l, l->consts + k), NULL);
    in[l->n_in] = tow__input(t, tow_make_type(TOW_I32, 0, NULL), NULL);
    tow__transpose_inline(t, g, l->linear, in, ct, dx);
    for (uint32_t i = 0; i < l->n_in; i++)
        if (l->linear[i]) out[n++] = tow_is_null(dx[i]) ? tow__zeros(t, input_type(l, i)) : dx[i];
    return tow__trace_end(t, n, out, false, result);
}

/* What a sum or a cotangent starts from. */
static tow_value start_of(const loop *l, uint32_t i)
{
    tow__transpose *r = l->r;
    tow_value start = i < l->consts ? r->dx[1 + i] : r->ct[i - l->consts];
    return tow_is_null(start) ? tow__zeros(r->t, input_type(l, i)) : start;
}

void tow__fori_transpose(tow__transpose *r)
{
    loop l = {.r = r, .p = r->e->params, .consts = (uint32_t)((const tow__fori_params *)r->e->params)->consts};
    tow__fori_params params = *l.p;
    l.n_in = r->e->n_in - 1;
    l.linear = tow__trace_alloc(r->t, (size_t)l.n_in + 1, sizeof *l.linear);
    tow_value *in = tow__trace_alloc(r->t, (size_t)l.n_in + 1, sizeof *in),
              *out = tow__trace_alloc(r->t, l.n_in, sizeof *out);
    if (!l.linear || !in || !out) return;
    size_t n = 0;
    for (uint32_t i = 0; i < l.n_in; i++) l.linear[i] = r->linear[1 + i] || i >= l.consts;
    if (transposed_body(&l, &params.body) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    in[n++] = r->x[0];
    for (uint32_t i = 0; i < l.consts; i++)
        if (!l.linear[i]) in[n++] = r->x[1 + i];
    params.consts = (int64_t)n - 1;
    params.reverse = !l.p->reverse;
    for (uint32_t i = 0; i < l.n_in; i++)
        if (l.linear[i]) in[n++] = start_of(&l, i);
    tow__bind(r->t, &tow__fori_p, &params, n, in, params.body->n_outputs, out);
    tow_graph_release(params.body);
    n = 0;
    for (uint32_t i = 0; i < l.n_in; i++) {
        if (!l.linear[i]) continue;
        tow_value *dx = &r->dx[1 + i], result = out[n++];
        *dx = i < l.consts ? result : tow__add_or(*dx, result);
    }
}
