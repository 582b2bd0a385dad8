/* The common form of loops (loops.h). */
#include "src/autodiff/loops.h"

bool tow__loop_of(const tow__equation *e, tow__loop_form *form)
{
    const tow__scan_params *scan = e->params;
    const tow__while_params *loop = e->params;
    const tow__fori_params *fori = e->params;
    if (e->primitive == &tow__scan_p)
        *form = (tow__loop_form){scan->body, 0, (uint32_t)scan->consts, (uint32_t)scan->carry};
    else if (e->primitive == &tow__while_p)
        *form = (tow__loop_form){loop->body, 0, (uint32_t)loop->consts, e->n_out};
    else if (e->primitive == &tow__fori_p)
        *form = (tow__loop_form){fori->body, 1, (uint32_t)fori->consts, e->n_out};
    else
        return false;
    return true;
}

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
    if (e->primitive == &tow__scan_p) {
        tow__scan_params params = *(const tow__scan_params *)e->params;
        params.body = body, params.consts = consts, params.carry = carry;
        tow__bind(t, e->primitive, &params, n_in, in, body->n_outputs, out);
    } else if (e->primitive == &tow__fori_p) {
        tow__fori_params params = *(const tow__fori_params *)e->params;
        params.body = body, params.consts = consts;
        tow__bind(t, e->primitive, &params, n_in, in, body->n_outputs, out);
    } else {
        tow__while_params params = *(const tow__while_params *)e->params;
        tow_graph *condition = NULL;
        if (move_condition(params.condition, body, place, &condition) != TOW_OK) {
            tow__adopt_error(t);
            return;
        }
        params.condition = condition, params.body = body, params.consts = consts;
        tow__bind(t, e->primitive, &params, n_in, in, body->n_outputs, out);
        tow_graph_release(condition);
    }
}
