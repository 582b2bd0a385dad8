/* Conversions of what loops and regions of the backward pass give, moved behind these.
 *
 * The gradient of a parameter of f32 that is used as bf16 is a sum over rows, in bf16, and then its conversion. A body
 * of a part of the rows cannot convert a sum of which it has a part; behind the body all parts can be added first.
 * Converting rows one by one, or a stack of them, gives the same bits. */
#include "src/autodiff/loops.h"
#include "src/autodiff/rows/rows.h"
#include "src/graph/builder.h"
#include "src/ops/rules.h"
#include "tow/ops.h"

/* The graph that is recorded anew. */
typedef struct mover {
    const tow_graph *g;
    tow_trace *t;
    tow_value *values;                /* [n_vars of g] */
    uint32_t *uses;                   /* [n_vars of g] readers, outputs counted */
    const tow__equation **conversion; /* [n_outputs] that is moved behind the graph; NULL: none */
    uint32_t *moved;                  /* how many, with those of bodies */
} mover;

static tow_status move_out(const tow_graph *g, uint32_t first, const tow__equation **conversion, uint32_t *moved,
                           tow_graph **result);

static bool alloc_mover(mover *m)
{
    const tow_graph *g = m->g;
    m->values = tow__trace_alloc(m->t, (size_t)g->n_vars + 1, sizeof *m->values);
    m->uses = tow__trace_alloc(m->t, (size_t)g->n_vars + 1, sizeof *m->uses);
    if (!m->values || !m->uses) return false;
    for (uint32_t i = 0; i < g->n_equations; i++)
        for (uint32_t k = 0; k < g->equations[i].n_in; k++) m->uses[g->equations[i].in[k]]++;
    for (uint32_t i = 0; i < g->n_outputs; i++) m->uses[g->outputs[i]]++;
    return true;
}

/* The conversion, of the backward pass, that makes output i and nothing else; or NULL. */
static const tow__equation *conversion_of(const mover *m, uint32_t i)
{
    const uint32_t var = m->g->outputs[i], at = m->g->vars[var].equation;
    const tow__equation *e = at == TOW__INPUT ? NULL : &m->g->equations[at];
    return e && e->primitive == &tow__convert_p && m->uses[var] == 1 && e->source.phase != TOW__FORWARD ? e : NULL;
}

/* Binds the region e with another body. */
static void bind_body(tow_trace *t, const tow__equation *e, const tow__region_form *form, tow_graph *body,
                      const tow_value *in, tow_value *out)
{
    uint32_t *place = tow__trace_alloc(t, (size_t)body->n_inputs + 1, sizeof *place);
    void *params;
    if (!place) return;
    for (uint32_t i = 0; i < body->n_inputs; i++) place[i] = i;
    if (form->repeats) {
        tow__loop_bind(t, e, body, form->consts, form->carry, place, e->n_in, in, out);
    } else if (tow__params_own(t, e->primitive, e->params, &params)) {
        tow__set_nested(e->primitive, params, form->conditions, body);
        tow__bind(t, e->primitive, params, e->n_in, in, e->n_out, out);
    }
}

static void record_region(const mover *m, const tow__equation *e, const tow__region_form *form)
{
    const tow__equation **conversion = tow__trace_alloc(m->t, (size_t)form->body->n_outputs + 1, sizeof *conversion);
    tow_value *in = tow__trace_alloc(m->t, (size_t)e->n_in + e->n_out + 1, sizeof *in), *out = in ? in + e->n_in : NULL;
    tow_graph *body = NULL;
    if (!conversion || !in) return;
    if (move_out(form->body, form->repeats ? form->carry : 0, conversion, m->moved, &body) != TOW_OK) {
        tow__adopt_error(m->t);
        return;
    }
    for (uint32_t i = 0; i < e->n_in; i++) in[i] = m->values[e->in[i]];
    tow__set_source(m->t, &e->source);
    bind_body(m->t, e, form, body, in, out);
    for (uint32_t i = 0; i < e->n_out && !tow__failed(m->t); i++) {
        if (conversion[i]) tow__set_source(m->t, &conversion[i]->source);
        m->values[e->out[i]] = conversion[i] ? tow_convert(out[i], m->g->vars[e->out[i]].type.dtype) : out[i];
    }
    tow_graph_release(body);
}

static void record_equations(const mover *m)
{
    for (uint32_t i = 0; i < m->g->n_equations && !tow__failed(m->t); i++) {
        const tow__equation *e = &m->g->equations[i];
        tow__region_form form;
        bool is_moved = false;
        for (uint32_t k = 0; m->conversion && k < m->g->n_outputs; k++) is_moved |= m->conversion[k] == e;
        if (is_moved) continue;
        if (tow__is_region(e) && tow__region_of(e, &form) && form.branches == 1 && e->source.phase != TOW__FORWARD)
            record_region(m, e, &form);
        else
            tow__rebind_among(m->t, e, m->values);
    }
}

/* g, whose outputs from `first` on are what is converted. conversion: [n_outputs] becomes what was moved; NULL: outputs
 * stay. */
static tow_status move_out(const tow_graph *g, uint32_t first, const tow__equation **conversion, uint32_t *moved,
                           tow_graph **result)
{
    mover m = {.g = g, .t = tow__trace_begin(g->ctx), .conversion = conversion, .moved = moved};
    tow_value *out = m.t ? tow__trace_alloc(m.t, (size_t)g->n_outputs + 1, sizeof *out) : NULL;
    if (!out || !alloc_mover(&m)) {
        tow__trace_abandon(m.t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = first; conversion && i < g->n_outputs; i++) {
        conversion[i] = conversion_of(&m, i);
        *moved += conversion[i] != NULL;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        m.values[g->inputs[i]] = tow__input(m.t, g->vars[g->inputs[i]].type, g->input_names[i]);
    record_equations(&m);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        out[i] = m.values[conversion && conversion[i] ? conversion[i]->in[0] : g->outputs[i]];
    return tow__trace_end(m.t, g->n_outputs, out, false, result);
}

/* From one body into the one around it, until all are in g itself. */
tow_status tow__rows_move_conversions(const tow_graph *g, tow_graph **result)
{
    uint32_t moved = 1;
    tow_status status = TOW_OK;
    *result = tow__graph_share(g);
    while (moved > 0 && status == TOW_OK) {
        tow_graph *before = *result;
        *result = NULL;
        moved = 0;
        status = move_out(before, 0, NULL, &moved, result);
        tow_graph_release(before);
    }
    return status;
}
