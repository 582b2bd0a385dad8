/* LayerNorm: (x - mean) * rsqrt(var + epsilon) * scale + bias;  RMSNorm: x * rsqrt(mean(x^2) + epsilon) * scale. */
#include "layers/statistics.h"

static const double default_epsilon = 1e-6;

/* The parameter `name` [D] of x [..., D], or a constant if the layer goes without. */
static tow_value vector(tow_scope *scope, const char *name, bool absent, tow_value x, double constant,
                        tow_initializer init, const tow__norm_dtypes *types)
{
    tow_type type = tow_value_type(x);
    const tow__dtypes stored = {.compute = types->work, .params = types->params};
    int64_t features = type.dims[type.rank - 1];
    if (absent) return tow_full(tow_scope_trace(scope), tow_make_type(types->work, 1, &features), constant);
    return tow__param(scope, name, 1, &features, tow__init_or(init, tow_init_constant(constant)), &stored);
}

static void call_layer_norm(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                            tow_value *out)
{
    const tow_layer_norm *m = (const tow_layer_norm *)module;
    tow__norm_dtypes types;
    if (!tow__check_counts(scope, "LayerNorm", n_in, 1, 1, n_out) ||
        !tow__check_float(scope, "LayerNorm", 0, in[0], 1) || !tow__check_epsilon(scope, "LayerNorm", m->epsilon) ||
        !tow__read_norm_dtypes(scope, "LayerNorm", m->dtype, m->param_dtype, !m->no_scale || !m->no_bias, in[0],
                               &types))
        return;
    tow_value x = tow__as(in[0], types.work);
    tow_value scale = vector(scope, "scale", m->no_scale, x, 1, m->scale_init, &types);
    tow_value bias = vector(scope, "bias", m->no_bias, x, 0, m->bias_init, &types);
    out[0] = tow__as(tow_normalize_layer(x, scale, bias, m->epsilon > 0 ? m->epsilon : default_epsilon), types.out);
}

static void call_rms_norm(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    const tow_rms_norm *m = (const tow_rms_norm *)module;
    tow__norm_dtypes types;
    if (!tow__check_counts(scope, "RMSNorm", n_in, 1, 1, n_out) || !tow__check_float(scope, "RMSNorm", 0, in[0], 1) ||
        !tow__check_epsilon(scope, "RMSNorm", m->epsilon) ||
        !tow__read_norm_dtypes(scope, "RMSNorm", m->dtype, m->param_dtype, !m->no_scale, in[0], &types))
        return;
    tow_value x = tow__as(in[0], types.work);
    tow_value scale = vector(scope, "scale", m->no_scale, x, 1, m->scale_init, &types);
    out[0] = tow__as(tow_normalize_rms(x, scale, m->epsilon > 0 ? m->epsilon : default_epsilon), types.out);
}

const tow_module_class tow_layer_norm_class = {.name = "LayerNorm", .call = call_layer_norm};
const tow_module_class tow_rms_norm_class = {.name = "RMSNorm", .call = call_rms_norm};
