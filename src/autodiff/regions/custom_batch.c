/* Batching of calls with custom rules: the same call of batched functions. All results get their batch axis in front,
 * so that the body and the rule agree about it whatever each of them makes of an unbatched operand. If a rule calls its
 * own function, which must stay the same function, then all operands have their batch axis in front, too. */
#include "src/autodiff/batch.h"
#include "src/autodiff/regions/custom.h"
#include "src/ops/batching.h"
#include "src/ops/rules.h"

/* Operands as the call has them for all rows: as they are, or batched in front. NULL: no memory. */
static tow__mapped *call_operands(const tow__batch *r, bool in_front)
{
    tow__mapped *x = tow__trace_alloc(r->t, r->e->n_in, sizeof *x);
    for (uint32_t i = 0; x && i < r->e->n_in; i++) {
        x[i] = r->x[i];
        if (in_front) x[i] = (tow__mapped){.value = tow__batched_at(r->x[i], r->size, 0), .axis = 0};
    }
    return x;
}

/* g for all rows: its first inputs have the axes of the operands x, further ones those in more_in; its first n_front
 * results have their axis in front, further ones where it falls, which out_axes says. */
static tow_graph *batch_function(const tow__batch *r, const tow__mapped *x, const tow_graph *g, const int *more_in,
                                 size_t n_front, int *out_axes)
{
    tow_graph *batched = NULL;
    int *axes = tow__trace_alloc(r->t, g->n_inputs, sizeof *axes);
    if (!axes) return NULL;
    for (uint32_t i = 0; i < g->n_inputs; i++) axes[i] = i < r->e->n_in ? x[i].axis : more_in[i - r->e->n_in];
    for (uint32_t i = 0; i < g->n_outputs; i++) out_axes[i] = i < n_front ? 0 : TOW__AS_IT_FALLS;
    if (tow__batch_graph(g, NULL, r->size, axes, out_axes, &batched) != TOW_OK) tow__adopt_error(r->t);
    return batched;
}

/* Binds the call on the operands x. */
static void bind(tow__batch *r, const tow__mapped *x, const void *params)
{
    tow_value *in = tow__trace_alloc(r->t, r->e->n_in, sizeof *in);
    if (!in) return;
    for (uint32_t i = 0; i < r->e->n_in; i++) in[i] = x[i].value;
    tow__batch_bind(r, params, in, 0);
}

void tow__batch_custom_self(tow__batch *r)
{
    tow__custom_self_params p = *(const tow__custom_self_params *)r->e->params;
    const tow__mapped *x = call_operands(r, true);
    int *axes = tow__trace_alloc(r->t, r->e->n_out, sizeof *axes);
    if (!x || !axes) return;
    p.body = batch_function(r, x, p.body, NULL, r->e->n_out, axes);
    if (p.body) bind(r, x, &p);
    tow_graph_release(p.body);
}

void tow__batch_custom_jvp(tow__batch *r)
{
    tow__custom_jvp_params p = *(const tow__custom_jvp_params *)r->e->params;
    const tow__mapped *x = call_operands(r, tow__calls_itself(p.rule));
    int *tangents = tow__trace_alloc(r->t, r->e->n_in, sizeof *tangents), n = 0;
    int *axes = tow__trace_alloc(r->t, 2 * (size_t)r->e->n_out, sizeof *axes);
    if (!x || !tangents || !axes) return;
    for (uint32_t i = (uint32_t)(p.captured + p.fixed); i < r->e->n_in; i++)
        if (tow__has_tangent(r->in[i])) tangents[n++] = x[i].axis;
    p.body = batch_function(r, x, p.body, NULL, r->e->n_out, axes);
    p.rule = p.body ? batch_function(r, x, p.rule, tangents, 2 * (size_t)r->e->n_out, axes) : NULL;
    if (p.rule) bind(r, x, &p);
    tow_graph_release(p.body);
    tow_graph_release(p.rule);
}

/* A cotangent as its operand is: with its batch axis there, or summed over the rows if all of them share the
 * operand. */
static tow_value like_operand(int64_t size, tow__mapped operand, tow__mapped ct)
{
    if (tow__is_batched(operand)) return tow__batched_at(ct, size, operand.axis);
    return tow__is_batched(ct) ? tow__sum_axis(ct.value, ct.axis) : ct.value;
}

/* residual_axes: of the residuals of the forward function. */
static tow_status batch_backward(const tow__batch *r, const tow__mapped *x, const tow__custom_vjp_params *p,
                                 const int *residual_axes, tow_graph **result)
{
    const tow_graph *g = p->backward;
    size_t captured = (size_t)p->captured, n_res = captured + p->forward->n_outputs - r->e->n_out;
    int *axes = tow__trace_alloc(r->t, g->n_inputs, sizeof *axes);
    if (!axes) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < g->n_inputs; i++)
        axes[i] = i < captured ? x[i].axis : i < n_res ? residual_axes[i - captured] : 0;
    tow__batched_graph b;
    const tow_status status = tow__batch_begin(g, r->size, axes, &b);
    if (status != TOW_OK) return status;
    tow__batch_inline(b.trace, g, NULL, r->size, b.in, b.out);
    size_t n = 0;
    for (uint32_t i = (uint32_t)(p->captured + p->fixed); i < r->e->n_in; i++)
        if (tow__has_tangent(r->in[i])) b.results[n] = like_operand(r->size, x[i], b.out[n]), n++;
    return tow__trace_end(b.trace, n, b.results, false, result);
}

void tow__batch_custom_vjp(tow__batch *r)
{
    tow__custom_vjp_params p = *(const tow__custom_vjp_params *)r->e->params;
    const tow__custom_vjp_params row = p;
    const tow__mapped *x = call_operands(r, tow__calls_itself(row.forward) || tow__calls_itself(row.backward));
    int *axes = tow__trace_alloc(r->t, row.forward->n_outputs, sizeof *axes);
    if (!x || !axes) return;
    p.forward = p.backward = NULL;
    p.body = batch_function(r, x, row.body, NULL, r->e->n_out, axes);
    if (p.body) p.forward = batch_function(r, x, row.forward, NULL, r->e->n_out, axes);
    if (p.forward && batch_backward(r, x, &row, axes + r->e->n_out, &p.backward) != TOW_OK) tow__adopt_error(r->t);
    if (p.backward) bind(r, x, &p);
    tow_graph_release(p.body);
    tow_graph_release(p.forward);
    tow_graph_release(p.backward);
}
