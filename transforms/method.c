/* method as a layer: another function of the layer in it, in the same scope. */
#include "src/scope/calls.h"
#include "src/scope/tree.h"
#include "tow/transforms.h"

static void call_method(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const tow_method *m = (const tow_method *)module;
    if (m->function && m->inner) {
        m->function(scope, m->inner, n_in, in, n_out, out);
        if (m->name) tow__capture_method(scope, m->name, n_out, out);
    } else
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "method: found no %s; give a layer and .function",
                       m->inner ? ".function" : "layer");
}

const tow_module_class tow_method_class = {TOW__MADE_BY(TOW_METHOD, tow_method), .name = "method", .call = call_method,
                                           .layout = TOW__LAYOUT_OF(tow_method,
                                                                    TOW_MEMBER(tow_method, inner, TOW_MEMBER_LAYER),
                                                                    TOW_MEMBER(tow_method, name, TOW_MEMBER_TEXT))};
