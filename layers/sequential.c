/* Sequential: layers one after the other. */
#include "layers/children.h"
#include "src/scope/tree.h"

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_sequential *m = (const tow_sequential *)module;
    if (!tow__check_children(scope, "Sequential", "layers", m->n_layers, m->layers)) return;
    tow_value x = {0};
    for (size_t i = 0; i < m->n_layers; i++) {
        bool last = i + 1 == m->n_layers;
        tow_value y = {0}; /* of its own: a layer may clear its results before it reads its inputs */
        tow__call_child(scope, "layers", i, m->layers[i], i ? 1 : n_in, i ? &x : in, last ? n_out : 1, last ? out : &y);
        x = y;
    }
}

const tow_module_class tow_sequential_class = {
    TOW__MADE_BY(TOW_SEQUENTIAL, tow_sequential), .name = "Sequential", .call = call,
    .layout = TOW__LAYOUT_OF(tow_sequential, TOW_MEMBER_LIST(tow_sequential, layers, n_layers))};
