/* Batching (vmap): records a graph once for all rows, equation by equation. A value whose rows differ has one more
 * axis, which the rules of the primitives leave where it falls; all rows share any other value.
 *
 * A primitive without a rule has its decomposition batched, or becomes the body of a scan over the rows. */
#include "src/autodiff/batch.h"

#include "src/autodiff/reach.h"
#include "src/graph/builder.h"
#include "src/ops/batching.h"
#include "src/ops/table.h"
#include "tow/ops.h"

static tow_type row_type(const tow_graph *g, uint32_t var) { return g->vars[var].type; }

/* ---- defaults ---------------------------------------------------------------------------------------------------- */

static void batch_decomposed(tow__batch *r)
{
    tow_graph *g = tow__decomposition(r->t, r->e, r->in);
    if (g) tow__batch_inline(r->t, g, NULL, r->size, r->x, r->y);
    tow_graph_release(g);
}

/* The equation as the body of a scan: (unbatched operands, rows of batched ones) -> results. */
TOW__OWN_FRAME static tow_status loop_body(const tow__batch *r, tow_graph **body)
{
    const tow__equation *e = r->e;
    tow_trace *t = tow__trace_begin(tow_trace_context(r->t));
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *in = tow__trace_alloc(t, e->n_in, sizeof *in), *out = tow__trace_alloc(t, e->n_out, sizeof *out);
    for (int batched = 0; batched < 2 && out; batched++)
        for (uint32_t i = 0; in && i < e->n_in; i++)
            if (tow__is_batched(r->x[i]) == batched) in[i] = tow__input(t, r->in[i], NULL);
    if (in && out) tow__rebind(t, e, in, out);
    return tow__trace_end(t, in && out ? e->n_out : 0, out, false, body);
}

static void batch_looped(tow__batch *r)
{
    const tow__equation *e = r->e;
    tow__scan_params params = {.length = r->size};
    tow_value *in = tow__trace_alloc(r->t, e->n_in, sizeof *in), *out = tow__trace_alloc(r->t, e->n_out, sizeof *out);
    if (!in || !out) return;
    if (loop_body(r, &params.body) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (!tow__is_batched(r->x[i])) in[n++] = r->x[i].value;
    params.consts = n;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (tow__is_batched(r->x[i])) in[n++] = tow__batch_operand(r, i, 0);
    tow__bind(r->t, &tow__scan_p, &params, n, in, e->n_out, out);
    tow_graph_release(params.body);
    for (uint32_t i = 0; i < e->n_out; i++) r->y[i] = (tow__mapped){.value = out[i], .axis = 0};
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

void tow__batch_region(tow__batch *r)
{
    const tow__equation *e = r->e;
    int *axes = tow__trace_alloc(r->t, (size_t)e->n_in + e->n_out, sizeof *axes), *out_axes = axes + e->n_in;
    tow_value *in = tow__trace_alloc(r->t, e->n_in, sizeof *in), *out = tow__trace_alloc(r->t, e->n_out, sizeof *out);
    tow_graph *batched = NULL;
    void *params;
    if (!axes || !in || !out || !tow__params_own(r->t, e->primitive, e->params, &params)) return;
    for (uint32_t i = 0; i < e->n_in; i++) {
        in[i] = r->x[i].value;
        axes[i] = r->x[i].axis;
    }
    for (uint32_t i = 0; i < e->n_out; i++) out_axes[i] = TOW__AS_IT_FALLS;
    if (tow__batch_graph(tow__nested(e->primitive, params, 0), r->reach, r->size, axes, out_axes, &batched) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    tow__set_nested(e->primitive, params, 0, batched);
    tow__bind(r->t, e->primitive, params, e->n_in, in, e->n_out, out);
    tow_graph_release(batched);
    for (uint32_t i = 0; i < e->n_out; i++) r->y[i] = (tow__mapped){.value = out[i], .axis = out_axes[i]};
}

/* ---- equations --------------------------------------------------------------------------------------------------- */

/* True if all results may get one axis more. */
TOW__OWN_FRAME static bool ranks_fit(const tow__batch *r)
{
    for (uint32_t i = 0; i < r->e->n_out; i++) {
        if (r->out[i].rank < TOW_MAX_RANK) continue;
        tow_trace_fail(
            r->t, TOW_UNSUPPORTED,
            "%s%svmap: result %u of %s is %s for one row, so for all rows it would have rank %d, at most %d is "
            "possible; reshape it to a smaller rank",
            r->e->source.here ? r->e->source.here : "", r->e->source.here ? ": " : "", i, r->e->primitive->name,
            tow__type_name(r->out[i]).text, r->out[i].rank + 1, TOW_MAX_RANK);
        return false;
    }
    return true;
}

/* An equation with a batched operand. */
static void batch_equation(tow__batch *r)
{
    const tow_primitive *p = r->e->primitive;
    if (!ranks_fit(r)) return;
    if (p->batch)
        p->batch(r);
    else if (p->decompose)
        batch_decomposed(r);
    else
        batch_looped(r);
}

/* An equation whose operands all rows share. */
TOW__OWN_FRAME static void record_once(tow__batch *r)
{
    const tow__equation *e = r->e;
    tow_value *in = tow__trace_alloc(r->t, (size_t)e->n_in + e->n_out, sizeof *in), *out = in + e->n_in;
    if (!in) return;
    for (uint32_t i = 0; i < e->n_in; i++) in[i] = r->x[i].value;
    tow__rebind(r->t, e, in, out);
    for (uint32_t i = 0; i < e->n_out; i++) r->y[i] = (tow__mapped){.value = out[i], .axis = TOW__UNBATCHED};
    if (e->primitive == &tow__broadcast_in_dim_p && r->in[0].rank == 0) r->y[0].scalar = in[0];
}

/* The axis of the rows in all results. */
static int common_axis(const tow__batch *r)
{
    _Static_assert((int)TOW__UNBATCHED == (int)TOW__ROWS_SHARED,
                   "results without a batch axis are the same for all rows");
    int axis = r->e->n_out > 0 ? r->y[0].axis : TOW__ROWS_UNKNOWN;
    for (uint32_t i = 1; i < r->e->n_out; i++)
        if (r->y[i].axis != axis) axis = TOW__ROWS_UNKNOWN;
    return axis;
}

/* Room for the operands and results of the widest equation. */
typedef struct widest {
    tow__mapped *x, *y;
    tow_type *in, *out;
} widest;

TOW__OWN_FRAME static bool make_room(tow_trace *t, const tow_graph *g, widest *room)
{
    size_t in = 1, out = 1;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        if (g->equations[i].n_in > in) in = g->equations[i].n_in;
        if (g->equations[i].n_out > out) out = g->equations[i].n_out;
    }
    room->x = tow__trace_alloc(t, in, sizeof *room->x);
    room->y = tow__trace_alloc(t, out, sizeof *room->y);
    room->in = tow__trace_alloc(t, in, sizeof *room->in);
    room->out = tow__trace_alloc(t, out, sizeof *room->out);
    return room->x && room->y && room->in && room->out;
}

void tow__batch_inline(tow_trace *t, const tow_graph *g, const tow__reach *reach, int64_t size, const tow__mapped *in,
                       tow__mapped *out)
{
    widest room;
    tow__mapped *values = tow__trace_alloc(t, g->n_vars, sizeof *values);
    if (!values || !make_room(t, g, &room)) return;
    for (uint32_t i = 0; i < g->n_inputs; i++) values[g->inputs[i]] = in[i];
    for (uint32_t i = 0; i < g->n_equations && !tow__failed(t); i++) {
        const tow__equation *e = &g->equations[i];
        tow__batch r = {.t = t,
                        .e = e,
                        .size = size,
                        .in = room.in,
                        .out = room.out,
                        .x = room.x,
                        .y = room.y,
                        .decomposed = batch_decomposed,
                        .looped = batch_looped,
                        .reach = reach ? reach->body[i] : NULL};
        bool batched = false;
        for (uint32_t j = 0; j < e->n_in; j++) {
            room.x[j] = values[e->in[j]];
            room.in[j] = row_type(g, e->in[j]);
            batched |= tow__is_batched(room.x[j]);
        }
        for (uint32_t j = 0; j < e->n_out; j++) {
            room.y[j] = (tow__mapped){.axis = TOW__UNBATCHED};
            room.out[j] = row_type(g, e->out[j]);
        }
        const uint32_t first = tow__recorded(t);
        tow__set_source(t, &e->source);
        if (batched)
            batch_equation(&r);
        else
            record_once(&r);
        tow__set_source(t, NULL);
        tow__mark_rows(t, first, e, common_axis(&r));
        for (uint32_t j = 0; j < e->n_out; j++) values[e->out[j]] = room.y[j];
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) out[i] = values[g->outputs[i]];
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

tow_status tow__batch_begin(const tow_graph *g, int64_t size, const int *in_axes, tow__batched_graph *b)
{
    tow_trace *t = tow__trace_begin(g->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    *b = (tow__batched_graph){.trace = t,
                              .in = tow__trace_alloc(t, g->n_inputs, sizeof *b->in),
                              .out = tow__trace_alloc(t, g->n_outputs, sizeof *b->out),
                              .results = tow__trace_alloc(t, g->n_outputs, sizeof *b->results)};
    if (!b->in || !b->out || !b->results) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        tow_type type = row_type(g, g->inputs[i]);
        if (in_axes[i] != TOW__UNBATCHED) type = tow__with_axis(type, in_axes[i], size);
        b->in[i] = (tow__mapped){.value = tow__input(t, type, g->input_names[i]), .axis = in_axes[i]};
    }
    return TOW_OK;
}

tow_status tow__batch_graph(const tow_graph *g, const tow__reach *reach, int64_t size, const int *in_axes,
                            int *out_axes, tow_graph **result)
{
    *result = NULL;
    tow__batched_graph b;
    tow_status status = tow__batch_begin(g, size, in_axes, &b);
    if (status != TOW_OK) return status;
    tow__batch_inline(b.trace, g, reach, size, b.in, b.out);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        b.results[i] = out_axes[i] < 0 ? b.out[i].value : tow__batched_at(b.out[i], size, out_axes[i]);
        if (out_axes[i] < 0) out_axes[i] = b.out[i].axis;
    }
    status = tow__trace_end(b.trace, g->n_outputs, b.results, false, result);
    if (status == TOW_OK) status = tow__verify(*result, "batching");
    if (status == TOW_OK) return status;
    tow_graph_release(*result);
    *result = NULL;
    return status;
}
