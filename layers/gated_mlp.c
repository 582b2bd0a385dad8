/* GatedMLP: down(activation(gate(x)) * up(x)). */
#include "src/scope/layer.h"
#include "src/scope/tree.h"
#include "tow/attention.h"
#include "tow/autodiff.h"

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_gated_mlp *m = (const tow_gated_mlp *)module;
    if (!tow__check_counts(scope, "GatedMLP", n_in, 1, 1, n_out) || !tow__check_float(scope, "GatedMLP", 0, in[0], 1) ||
        !tow__check_option(scope, "GatedMLP", m->features > 0, "features", (double)m->features, "a positive number"))
        return;
    scope = tow__scope_with_dtypes(scope, "GatedMLP", m->dtype, m->param_dtype);
    if (!scope) return;
    tow_type type = tow_value_type(in[0]);
    tow_dense hidden = TOW_DENSE(.features = m->features, .no_bias = m->no_bias, .kernel_init = m->kernel_init,
                                 .bias_init = m->bias_init);
    tow_dense down =
        TOW_DENSE(.features = m->out_features ? m->out_features : type.dims[type.rank - 1], .no_bias = m->no_bias,
                  .kernel_init = tow__init_or(m->down_kernel_init, m->kernel_init), .bias_init = m->bias_init);
    tow_value gate = tow_checkpoint_name(tow_apply(scope, "gate", &hidden, in[0]), "mlp_gate");
    tow_value up = tow_checkpoint_name(tow_apply(scope, "up", &hidden, in[0]), "mlp_pre");
    tow_value y = tow_mul((m->activation ? m->activation : tow_silu)(gate), up);
    out[0] = tow_checkpoint_name(tow_apply(scope, "down", &down, tow_checkpoint_name(y, "mlp_act")), "mlp_out");
}

const tow_module_class tow_gated_mlp_class = {TOW__MADE_BY(TOW_GATED_MLP, tow_gated_mlp), .name = "GatedMLP",
                                              .call = call, .layout = TOW__LAYOUT(tow_gated_mlp)};
