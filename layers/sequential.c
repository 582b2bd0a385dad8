/* Sequential: layers one after the other, layer i called layers_i; and functions as layers. */
#include <stdio.h>

#include "layers/layer.h"

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_sequential *m = (const tow_sequential *)module;
    if (m->n_layers == 0 || !m->layers) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "Sequential: no layers; expected TOW_SEQUENTIAL(TOW_MODULE(&first), ...)");
        return;
    }
    tow_value x = {0};
    for (size_t i = 0; i < m->n_layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "layers_%zu", i);
        bool last = i + 1 == m->n_layers;
        tow_value y = {0}; /* of its own: a layer may clear its results before it reads its inputs */
        tow_apply_module_n(scope, name, m->layers[i], i ? 1 : n_in, i ? &x : in, last ? n_out : 1, last ? out : &y);
        x = y;
    }
}

static void call_activation(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                            tow_value *out)
{
    const tow_activation_layer *m = (const tow_activation_layer *)module;
    if (!tow__check_counts(scope, "Activation", n_in, 1, 1, n_out)) return;
    if (!m->activation)
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "Activation: no function; expected TOW_ACTIVATION(tow_relu) or the like");
    else
        out[0] = m->activation(in[0]);
}

tow_value tow_gelu_tanh(tow_value x) { return tow_gelu(x, true); }
tow_value tow_gelu_erf(tow_value x) { return tow_gelu(x, false); }

const tow_module_class tow_sequential_class = {.name = "Sequential", .call = call};
const tow_module_class tow_activation_class = {.name = "Activation", .call = call_activation};
