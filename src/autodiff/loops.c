/* The common form of loops (loops.h). */
#include "src/autodiff/loops.h"
#include "src/graph/builder.h"

bool tow__loop_of(const tow__equation *e, tow__region_form *form) { return tow__region_of(e, form) && form->repeats; }

/* The condition over the inputs of the new body. Inputs that it does not need may have vanished. */
static tow_status move_condition(const tow_graph *condition, const tow_graph *body, const uint32_t *place,
                                 tow_graph **result)
{
    tow_graph *live = NULL;
    tow_value *in, *out;
    tow_status status = tow__dce(condition, NULL, false, NULL, &live);
    if (status != TOW_OK) return status;
    tow_trace *t = tow__trace_begin_over(live, &in, &out);
    tow_value *inputs = t ? tow__trace_alloc(t, body->n_inputs, sizeof *inputs) : NULL;
    if (!inputs) {
        tow__trace_abandon(t);
        tow_graph_release(live);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < body->n_inputs; i++) inputs[i] = tow__input(t, tow_graph_input_type(body, i), NULL);
    for (uint32_t i = 0; i < live->n_inputs; i++)
        if (place[i] != TOW__INPUT) in[i] = inputs[place[i]];
    tow__inline(t, live, in, out);
    status = tow__trace_end(t, 1, out, false, result);
    tow_graph_release(live);
    return status;
}

void tow__loop_bind(tow_trace *t, const tow__equation *e, tow_graph *body, uint32_t consts, uint32_t carry,
                    const uint32_t *place, size_t n_in, const tow_value *in, tow_value *out)
{
    const tow_primitive *p = e->primitive;
    tow__region_form form;
    void *params;
    tow_status status = TOW_OK;
    tow__region_of(e, &form);
    if (!tow__params_own(t, p, e->params, &params)) return;
    for (uint32_t i = 0; i < form.conditions; i++) tow__set_nested(p, params, i, NULL);
    tow__set_nested(p, params, form.conditions, body);
    p->region->resize(params, consts, carry);
    for (uint32_t i = 0; i < form.conditions && status == TOW_OK; i++) {
        tow_graph *condition = NULL;
        status = move_condition(tow__nested(p, e->params, i), body, place, &condition);
        tow__set_nested(p, params, i, condition);
    }
    if (status == TOW_OK)
        tow__bind(t, p, params, n_in, in, body->n_outputs, out);
    else
        tow__adopt_error(t);
    for (uint32_t i = 0; i < form.conditions; i++) tow_graph_release(tow__nested(p, params, i));
}
