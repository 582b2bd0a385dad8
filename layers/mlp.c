/* MLP: Dense layers with an activation between them; children Dense_0, Dense_1, ... */
#include <stdio.h>

#include "src/scope/layer.h"
#include "src/scope/tree.h"
#include "tow/layers.h"

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_mlp *m = (const tow_mlp *)module;
    if (!tow__check_counts(scope, "MLP", n_in, 1, 1, n_out)) return;
    int n = tow__count_sizes(scope, "MLP", "features", TOW_MLP_LIMIT, m->features);
    tow_activation activation = m->activation ? m->activation : tow_relu;
    tow_value x = in[0];
    for (int i = 0; i < n; i++) {
        tow_dense dense = TOW_DENSE(.features = m->features[i], .no_bias = m->no_bias, .kernel_init = m->kernel_init,
                                    .bias_init = m->bias_init, .dtype = m->dtype, .param_dtype = m->param_dtype);
        char name[24];
        snprintf(name, sizeof name, "Dense_%d", i);
        x = tow_apply(scope, name, &dense, x);
        if (i + 1 < n || m->activate_last) x = activation(x);
    }
    if (n > 0) out[0] = x;
}

const tow_module_class tow_mlp_class = {TOW__MADE_BY(TOW_MLP, tow_mlp), .name = "MLP", .call = call,
                                        .layout = TOW__LAYOUT(tow_mlp)};
