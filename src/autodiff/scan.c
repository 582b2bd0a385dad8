/* Forward mode of scan.
 *
 *   scan                (consts, carry, xs)                 -> (carry, ys)
 *   jvp                 (c dc, k dk, x dx)                  -> (k dk, y dy)
 *
 * A carry's tangent is nonzero if it starts nonzero or the body makes it so: a fixpoint over the body. Final tangents
 * that are one value in the iterations written out, or an operand's, are one value here: its cotangents add up in one
 * order. */
#include "src/autodiff/reach.h"
#include "src/autodiff/scan_flow.h"
#include "tow/ops.h"

/* Which operands carry tangents, and what gets them in the body. in: [n_in], starts from what the operands say. */
static tow__reach *tangent_fixpoint(tow__arena *arena, const tow__scan_params *p, bool reverse, bool *in)
{
    tow_context *ctx = p->body->ctx;
    tow__reach_walk walk = {.ctx = ctx, .arena = arena, .rules = tow__trace_begin(ctx), .reverse = reverse};
    tow__reach *reach = walk.rules ? tow__reach_begin(&walk, p->body) : NULL;
    if (reach && tow__reach_loop(&walk, reach, p, in) != TOW_OK) reach = NULL;
    tow__trace_abandon(walk.rules);
    return reach;
}

/* The body of the jvp in scan's order: each group of operands and results as primals, then tangents. */
static tow_status jvp_body(const tow__scan_params *p, const tow__reach *reach, bool reverse, const bool *in,
                           const bool *out, tow_graph **result)
{
    const tow_graph *body = p->body;
    tow_trace *t = tow__trace_begin(body->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    uint32_t n_in = body->n_inputs, n_out = body->n_outputs;
    const uint32_t in_ends[] = {(uint32_t)p->consts, (uint32_t)(p->consts + p->carry), n_in};
    const uint32_t out_ends[] = {(uint32_t)p->carry, n_out};
    tow_value *x = tow__trace_alloc(t, 2 * (size_t)n_in, sizeof *x), *dx = x + n_in;
    tow_value *y = tow__trace_alloc(t, 4 * (size_t)n_out, sizeof *y), *dy = y + n_out, *all = y + 2 * (size_t)n_out;
    if (!x || !y) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t group = 0, i = 0; group < 3; group++) {
        uint32_t start = i;
        for (; i < in_ends[group]; i++) x[i] = tow__input(t, body->vars[body->inputs[i]].type, body->input_names[i]);
        for (uint32_t j = start; j < i; j++)
            if (in[j]) dx[j] = tow__input(t, body->vars[body->inputs[j]].type, NULL);
    }
    tow__jvp_inline(t, body, reach, reverse, x, dx, y, dy);
    size_t n = 0;
    for (uint32_t group = 0, i = 0; group < 2; group++) {
        uint32_t start = i;
        for (; i < out_ends[group]; i++) all[n++] = y[i];
        for (uint32_t j = start; j < i; j++)
            if (out[j]) all[n++] = tow_is_null(dy[j]) ? tow_zeros_like(y[j]) : dy[j];
    }
    return tow__trace_end(t, n, all, false, result);
}

void tow__scan_jvp(tow__jvp *r)
{
    const tow__equation *e = r->e;
    const tow__scan_params *p = e->params;
    uint32_t n_in = e->n_in, n_out = e->n_out;
    bool *in = tow__trace_alloc(r->t, n_in, sizeof *in), *out = tow__trace_alloc(r->t, n_out, sizeof *out);
    tow_value *operands = tow__trace_alloc(r->t, 2 * (size_t)n_in, sizeof *operands);
    tow_value *results = tow__trace_alloc(r->t, 2 * (size_t)n_out, sizeof *results);
    if (!in || !out || !operands || !results) return;
    tow__arena arena;
    tow__arena_init(&arena, p->body->ctx);
    const tow__reach *reach = r->reach;
    tow_graph *body = NULL;
    for (uint32_t i = 0; i < n_in; i++) {
        in[i] = reach ? reach->var[p->body->inputs[i]] : !tow_is_null(r->dx[i]);
        if (!in[i] && !tow_is_null(r->dx[i]))
            tow_trace_fail(r->t, TOW_INTERNAL_ERROR, "scan: operand %u has a tangent that was not foreseen", i);
    }
    if (!reach) reach = tangent_fixpoint(&arena, p, r->reverse, in);
    for (uint32_t i = 0; reach && i < n_out; i++)
        out[i] = i < p->carry ? in[p->consts + i] : reach->var[p->body->outputs[i]];
    if (!reach || jvp_body(p, reach, r->reverse, in, out, &body) != TOW_OK) tow__adopt_error(r->t);
    tow__arena_free(&arena);
    if (!body) return;
    tow__scan_params params = {.body = body, .length = p->length, .reverse = p->reverse};
    const uint32_t ends[] = {(uint32_t)p->consts, (uint32_t)(p->consts + p->carry), n_in};
    int64_t *counts[] = {&params.consts, &params.carry, &(int64_t){0}};
    size_t n = 0;
    for (uint32_t group = 0, i = 0; group < 3; group++) {
        uint32_t start = i;
        size_t before = n;
        for (; i < ends[group]; i++) operands[n++] = r->x[i];
        for (uint32_t j = start; j < i; j++)
            if (in[j]) operands[n++] = tow_is_null(r->dx[j]) ? tow_zeros_like(r->x[j]) : r->dx[j];
        *counts[group] = (int64_t)(n - before);
    }
    tow__bind(r->t, &tow__scan_p, &params, n, operands, body->n_outputs, results);
    tow__forward_carries(r->t, &params, p->carry, operands, results);
    tow_graph_release(body);
    n = 0;
    for (uint32_t i = 0, end = (uint32_t)p->carry; i < n_out; end = n_out) {
        uint32_t start = i;
        for (; i < end; i++) r->y[i] = results[n++];
        for (uint32_t j = start; j < i; j++) r->dy[j] = out[j] ? results[n++] : (tow_value){0};
    }
}
