/* See aside.h. */
#include "transforms/aside.h"
#include "src/scope/calls.h"
#include "src/scope/frames.h"
#include "src/scope/lift.h"

bool tow__aside_begin(tow__aside *a, tow_scope *scope, const char *transform, const tow_lift_rule *variables,
                      const tow_lift_rule *streams)
{
    *a = (tow__aside){transform, scope, scope, tow__lift_make(scope, transform, TOW__LIFT_ONCE, variables, streams)};
    if (a->lift) a->inner = tow__scope_lifted(scope, a->lift, NULL);
    return !tow__scope_failed(scope);
}

/* A call of the layer. */
typedef struct layer_call {
    tow_scope *scope;
    const tow_module *layer;
    size_t n_in, n_out;
} layer_call;

static void call_layer(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const layer_call *c = user;
    (void)t;
    tow__call_here(c->scope, c->layer, c->n_in, in, c->n_out, out);
}

bool tow__aside_record(const tow__aside *a, const tow_module *layer, size_t n_in, const tow_value *in, size_t n_out,
                       tow__recorded_body *body)
{
    tow__model *model = a->scope->model;
    layer_call c = {a->inner, layer, n_in, n_out};
    tow_type *types = tow__trace_alloc(model->trace, n_in, sizeof *types);
    if (!types) return false;
    for (size_t i = 0; i < n_in; i++) types[i] = tow_value_type(in[i]);
    return tow__body_record(model, call_layer, &c, n_in, types, n_out, body);
}

void tow__aside_end(const tow__aside *a) { tow__lift_check_used(a->scope, a->transform, a->lift); }
