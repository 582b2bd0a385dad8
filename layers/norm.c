/* LayerNorm: (x - mean) * rsqrt(var + epsilon) * scale + bias;  RMSNorm: x * rsqrt(mean(x^2) + epsilon) * scale. */
#include "layers/layer.h"

static const double default_epsilon = 1e-6;

/* The parameter `name` [D] in the type of x [..., D], or a constant if the layer goes without. */
static tow_value vector(tow_scope *scope, const char *name, bool absent, tow_value x, double constant,
                        tow_initializer init)
{
    tow_type type = tow_value_type(x);
    int64_t features = type.dims[type.rank - 1];
    if (absent) return tow_full(tow_scope_trace(scope), tow_make_type(type.dtype, 1, &features), constant);
    return tow__param_like(scope, name, 1, &features, tow__init_or(init, tow_init_constant(constant)), x);
}

static void call_layer_norm(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                            tow_value *out)
{
    const tow_layer_norm *m = (const tow_layer_norm *)module;
    if (!tow__check_counts(scope, "LayerNorm", n_in, 1, 1, n_out) ||
        !tow__check_float(scope, "LayerNorm", 0, in[0], 1) ||
        !tow__check_option(scope, "LayerNorm", m->epsilon >= 0, "epsilon", m->epsilon, "a positive number"))
        return;
    tow_value scale = vector(scope, "scale", m->no_scale, in[0], 1, m->scale_init);
    tow_value bias = vector(scope, "bias", m->no_bias, in[0], 0, m->bias_init);
    out[0] = tow_normalize_layer(in[0], scale, bias, m->epsilon > 0 ? m->epsilon : default_epsilon);
}

static void call_rms_norm(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    const tow_rms_norm *m = (const tow_rms_norm *)module;
    if (!tow__check_counts(scope, "RMSNorm", n_in, 1, 1, n_out) || !tow__check_float(scope, "RMSNorm", 0, in[0], 1) ||
        !tow__check_option(scope, "RMSNorm", m->epsilon >= 0, "epsilon", m->epsilon, "a positive number"))
        return;
    tow_value scale = vector(scope, "scale", m->no_scale, in[0], 1, m->scale_init);
    out[0] = tow_normalize_rms(in[0], scale, m->epsilon > 0 ? m->epsilon : default_epsilon);
}

const tow_module_class tow_layer_norm_class = {.name = "LayerNorm", .call = call_layer_norm};
const tow_module_class tow_rms_norm_class = {.name = "RMSNorm", .call = call_rms_norm};
