/* call: a function with a name. Differentiation puts its body in its place; batching and text keep the call. */
#include "src/autodiff/batch.h"
#include "src/autodiff/regions/record.h"
#include "src/autodiff/regions/types.h"

static tow_status call_type(const tow__typing *ty)
{
    return tow__body_type(ty, ((const tow__call_params *)ty->params)->body);
}

static void call_jvp(tow__jvp *r)
{
    const tow__call_params *params = r->e->params;
    tow__jvp_inline(r->t, params->body, r->reach, r->reverse, r->x, r->dx, r->y, r->dy);
}

static const tow_graph *call_transparent(const tow__equation *e) { return ((const tow__call_params *)e->params)->body; }

static void call_form(const tow__equation *e, tow__region_form *form) { (void)e, (void)form; }

static const tow__region call_region = {.planned = TOW__IN_PLACE, .form = call_form, .transparent = call_transparent};

TOW__PRIMITIVE(call, TOW__REGION, tow__no_tiling, tow__element_cost, .inputs = -1, .outputs = -1, .type = call_type,
               .region = &call_region, .jvp = call_jvp, .batch = tow__batch_region,
               TOW__PARAMS(tow__call_params, TOW__PARAM(tow__call_params, name, TOW__P_STRING),
                           TOW__PARAM(tow__call_params, body, TOW__P_GRAPH)));

void tow_call_function(tow_trace *trace, tow_function function, void *user, const char *name, size_t n_inputs,
                       const tow_value *inputs, size_t n_outputs, tow_value *outputs)
{
    tow__traced_body b = {0};
    const tow_value *operands =
        tow__trace_call(trace, "call", function, user, (tow__listed){n_inputs, inputs}, n_outputs, outputs, &b);
    if (!operands) return;
    tow__call_params params = {.name = name ? name : "function"};
    tow__bind_region(trace, &tow__call_p, &params, offsetof(tow__call_params, body), &b, n_inputs, operands, n_outputs,
                     outputs);
    tow_graph_release(b.graph);
}
