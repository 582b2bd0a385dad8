/* Forward mode of loops.
 *
 *   scan                (consts, carry, xs)                 -> (carry, ys)
 *   jvp                 (c dc, k dk, x dx)                  -> (k dk, y dy)
 *
 * and likewise for while and fori, which have no ys. A carry's tangent is nonzero if it starts nonzero or the body
 * makes it so: a fixpoint over the body. Final tangents of a scan that are one value in the iterations written out, or
 * an operand's, are one value here: its cotangents add up in one order. */
#include "src/autodiff/reach.h"
#include "src/autodiff/regions/control.h"
#include "tow/ops.h"

/* Finds the inputs of the body that carry tangents, and the values in it that get them. in: starts as the operands
 * say. */
static tow__reach *tangent_fixpoint(tow__arena *arena, const tow__region_form *form, bool reverse, bool *in)
{
    tow_context *ctx = form->body->ctx;
    tow__reach_walk walk = {.ctx = ctx, .arena = arena, .rules = tow__trace_begin(ctx), .reverse = reverse};
    tow__reach *reach = walk.rules ? tow__reach_begin(&walk, form->body) : NULL;
    if (reach && tow__reach_loop(&walk, reach, form, in) != TOW_OK) reach = NULL;
    tow__trace_abandon(walk.rules);
    return reach;
}

/* The body of the jvp in the order of loops: each group of operands and results as primals, then tangents. */
static tow_status jvp_body(const tow__region_form *form, const tow__reach *reach, bool reverse, const bool *in,
                           const bool *out, tow_graph **result)
{
    const tow_graph *body = form->body;
    tow_trace *t = tow__trace_begin(body->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    uint32_t n_in = body->n_inputs, n_out = body->n_outputs;
    const uint32_t in_ends[] = {form->consts, form->consts + form->carry, n_in};
    const uint32_t out_ends[] = {form->carry, n_out};
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

/* Operands of the jvp, group by group; returns how many. place[i]: where input i of the body has gone; counts: [3] */
static size_t list_operands(tow__jvp *r, const tow__region_form *form, const bool *in, tow_value *operands,
                            uint32_t *place, uint32_t *counts)
{
    uint32_t n = form->lead, n_in = r->e->n_in - form->lead;
    const uint32_t ends[] = {form->consts, form->consts + form->carry, n_in};
    if (form->lead) operands[0] = r->x[0];
    for (uint32_t group = 0, i = 0; group < 3; group++) {
        uint32_t start = i, before = n;
        for (; i < ends[group]; i++) {
            place[i] = n - form->lead;
            operands[n++] = r->x[form->lead + i];
        }
        for (uint32_t j = start; j < i; j++) {
            tow_value dx = r->dx[form->lead + j];
            if (in[j]) operands[n++] = tow_is_null(dx) ? tow_zeros_like(r->x[form->lead + j]) : dx;
        }
        counts[group] = n - before;
    }
    return n;
}

/* The values in the body that get tangents: as a loop around this one has found out, or by a fixpoint. */
static const tow__reach *find_tangents(tow__jvp *r, tow__arena *arena, const tow__region_form *form, bool *in)
{
    for (uint32_t i = 0; i + form->lead < r->e->n_in; i++) {
        bool given = !tow_is_null(r->dx[i + form->lead]);
        in[i] = r->reach ? r->reach->var[form->body->inputs[i]] : given;
        if (!in[i] && given)
            tow_trace_fail(r->t, TOW_INTERNAL_ERROR, "%s: operand %u has a tangent that was not foreseen",
                           r->e->primitive->name, i);
    }
    return r->reach ? r->reach : tangent_fixpoint(arena, form, r->reverse, in);
}

void tow__loop_jvp_forwarding(tow__jvp *r, tow__forwarding forward)
{
    const tow__equation *e = r->e;
    tow__region_form form;
    tow__loop_of(e, &form);
    uint32_t n_in = form.body->n_inputs, n_out = e->n_out, counts[3];
    bool *in = tow__trace_alloc(r->t, n_in, sizeof *in), *out = tow__trace_alloc(r->t, n_out, sizeof *out);
    tow_value *operands = tow__trace_alloc(r->t, 2 * (size_t)e->n_in, sizeof *operands);
    tow_value *results = tow__trace_alloc(r->t, 2 * (size_t)n_out, sizeof *results);
    uint32_t *place = tow__trace_alloc(r->t, n_in, sizeof *place);
    if (!in || !out || !operands || !results || !place) return;
    tow__arena arena;
    tow__arena_init(&arena, form.body->ctx);
    tow_graph *body = NULL;
    const tow__reach *reach = find_tangents(r, &arena, &form, in);
    for (uint32_t i = 0; reach && i < n_out; i++)
        out[i] = i < form.carry ? in[form.consts + i] : reach->var[form.body->outputs[i]];
    if (!reach || jvp_body(&form, reach, r->reverse, in, out, &body) != TOW_OK) tow__adopt_error(r->t);
    tow__arena_free(&arena);
    if (!body) return;
    size_t n = list_operands(r, &form, in, operands, place, counts);
    tow__loop_bind(r->t, e, body, counts[0], counts[1], place, n, operands, results);
    if (forward) forward(r->t, e, body, counts[0], counts[1], operands, results);
    tow_graph_release(body);
    n = 0;
    for (uint32_t i = 0, end = form.carry; i < n_out; end = n_out) {
        uint32_t start = i;
        for (; i < end; i++) r->y[i] = results[n++];
        for (uint32_t j = start; j < i; j++) r->dy[j] = out[j] ? results[n++] : (tow_value){0};
    }
}

void tow__loop_jvp(tow__jvp *r) { tow__loop_jvp_forwarding(r, NULL); }
