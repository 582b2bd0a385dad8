/* Residual: y = projection(x) + scale f(x), f the layer inside, called in the scope of the residual itself. */
#include "layers/children.h"
#include "src/scope/calls.h"
#include "src/scope/tree.h"

/* y times the parameter "scale" [its last axis]. */
static tow_value learned_scale(tow_scope *scope, tow_initializer init, tow_value y)
{
    tow_type type = tow_value_type(y);
    if (type.rank == 0) {
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH, "Residual: .scale_init needs features to scale, found %s",
                       tow__type_name(type).text);
        return (tow_value){0};
    }
    tow_value scale = tow_param(scope, "scale", 1, &type.dims[type.rank - 1], init);
    return tow_mul(y, tow__as(scale, type.dtype));
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_residual_layer *m = (const tow_residual_layer *)module;
    if (n_in == 0 || n_out == 0) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "Residual: expected at least 1 input and 1 output, found %zu and %zu", n_in, n_out);
        return;
    }
    tow_value x = in[0], sum[2] = {x}; /* before outputs are written, which may be the inputs */
    if (!tow__check_option(scope, "Residual", m->scale - m->scale == 0, "scale", m->scale, "a finite number") ||
        !tow__check_float(scope, "Residual", 0, x, 0))
        return;
    tow__call_here(scope, m->inner, n_in, in, n_out, out);
    if (m->projection) tow__call_child_named(scope, "projection", m->projection, 1, &x, 1, &sum[0]);
    if (tow__scope_failed(scope)) return;
    sum[1] = out[0];
    if (!tow_initializer_is_default(&m->scale_init)) sum[1] = learned_scale(scope, m->scale_init, sum[1]);
    if (m->scale != 0 && m->scale != 1) sum[1] = tow_mul_scalar(sum[1], m->scale);
    if (tow__scope_failed(scope)) return;
    tow__promote_floats(2, sum);
    if (!tow_type_equal(tow_value_type(sum[0]), tow_value_type(sum[1]))) {
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                       "Residual: the layer gives %s, which cannot be added to %s %s; set .projection to a layer that "
                       "gives its shape",
                       tow__type_name(tow_value_type(sum[1])).text, m->projection ? "the projection" : "its input",
                       tow__type_name(tow_value_type(sum[0])).text);
        out[0] = (tow_value){0};
        return;
    }
    out[0] = tow_add(sum[0], sum[1]);
}

const tow_module_class tow_residual_layer_class = {
    TOW__MADE_BY(TOW_RESIDUAL, tow_residual_layer), .name = "Residual", .call = call,
    .layout = TOW__LAYOUT_OF(tow_residual_layer, TOW_MEMBER(tow_residual_layer, inner, TOW_MEMBER_LAYER),
                             TOW_MEMBER(tow_residual_layer, projection, TOW_MEMBER_LAYER))};
