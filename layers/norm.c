/* LayerNorm: (x - mean) * rsqrt(var + epsilon) * scale + bias;  RMSNorm: x * rsqrt(mean(x^2) + epsilon) * scale.
 *
 * Over the last axis, with features on it, both are fused operations; otherwise they are written out (statistics.h). */
#include "layers/statistics.h"
#include "src/scope/tree.h"

/* One call of either norm. */
typedef struct norm {
    const char *name;
    bool centered; /* LayerNorm */
    bool fast;
    tow_value mask;
    int n_reduced, n_features;
    int reduced[TOW_MAX_RANK], features[TOW_MAX_RANK]; /* sorted axes */
    tow__affine affine;
} norm;

/* False after an error. */
static bool read_call(tow_scope *scope, const tow_layer_norm *l, size_t n_in, const tow_value *in, size_t n_out,
                      norm *m)
{
    if (!tow__check_counts(scope, m->name, n_in, 1, 2, n_out) || !tow__check_float(scope, m->name, 0, in[0], 1) ||
        !tow__check_epsilon(scope, m->name, l->epsilon) || !tow__read_mask(scope, m->name, n_in, in, &m->mask))
        return false;
    tow_type x = tow_value_type(in[0]);
    m->fast = l->fast_variance;
    m->affine =
        (tow__affine){l->epsilon > 0 ? l->epsilon : 1e-6, l->no_scale, l->no_bias, l->scale_init, l->bias_init, {0}};
    return tow__read_axes_of(scope, m->name, "reduction_axes", x, l->n_reduction_axes, l->reduction_axes, m->reduced,
                             &m->n_reduced) &&
           tow__read_axes_of(scope, m->name, "feature_axes", x, l->n_feature_axes, l->feature_axes, m->features,
                             &m->n_features) &&
           tow__read_norm_dtypes(scope, m->name, l->dtype, l->param_dtype, !l->no_scale || !l->no_bias, in[0],
                                 &m->affine.types);
}

/* The parameter `name` [D] of x [..., D], or a constant if the layer goes without. */
static tow_value vector(tow_scope *scope, const char *name, bool absent, tow_value x, double constant,
                        tow_initializer init, const tow__norm_dtypes *types)
{
    tow_type type = tow_value_type(x);
    const tow__dtypes stored = {.compute = types->work, .params = types->params};
    int64_t features = type.dims[type.rank - 1];
    if (absent) return tow_full(tow_scope_trace(scope), tow_make_type(types->work, 1, &features), constant);
    return tow__param(scope, name, 1, &features, tow__init_or(init, tow_initializer_constant(constant)), &stored);
}

static tow_value fused(tow_scope *scope, const norm *m, tow_value x)
{
    const tow__affine *a = &m->affine;
    x = tow__as(x, a->types.work);
    tow_value scale = vector(scope, "scale", a->no_scale, x, 1, a->scale_init, &a->types);
    if (!m->centered) return tow__as(tow_normalize_rms(x, scale, a->epsilon), a->types.out);
    tow_value bias = vector(scope, "bias", a->no_bias, x, 0, a->bias_init, &a->types);
    return tow__as(tow_normalize_layer(x, scale, bias, a->epsilon), a->types.out);
}

static tow_value written_out(tow_scope *scope, const norm *m, tow_value x)
{
    tow_type type = tow_value_type(x);
    tow_value mean = {0}, variance;
    int64_t dims[TOW_MAX_RANK], spread[TOW_MAX_RANK];
    tow__spread_features(type, m->n_features, m->features, dims, spread);
    tow__statistics(tow__as(x, m->affine.types.stats), m->mask, m->fast, m->n_reduced, m->reduced,
                    m->centered ? &mean : NULL, &variance);
    return tow__normalize(scope, &m->affine, x, mean, variance, m->n_features, dims, type.rank, spread);
}

static bool is_last(int n, const int *axes, tow_value x) { return n == 1 && axes[0] == tow_value_type(x).rank - 1; }

static void call_norm(tow_scope *scope, const char *name, bool centered, const tow_layer_norm *l, size_t n_in,
                      const tow_value *in, size_t n_out, tow_value *out)
{
    norm m = {.name = name, .centered = centered};
    if (!read_call(scope, l, n_in, in, n_out, &m)) return;
    bool rows = is_last(m.n_reduced, m.reduced, in[0]) && is_last(m.n_features, m.features, in[0]);
    out[0] = rows && !m.fast && tow_is_null(m.mask) ? fused(scope, &m, in[0]) : written_out(scope, &m, in[0]);
}

static void call_layer_norm(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                            tow_value *out)
{
    call_norm(scope, "LayerNorm", true, (const tow_layer_norm *)module, n_in, in, n_out, out);
}

static void call_rms_norm(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    const tow_rms_norm *m = (const tow_rms_norm *)module;
    tow_layer_norm l = {.epsilon = m->epsilon,
                        .no_scale = m->no_scale,
                        .no_bias = true,
                        .scale_init = m->scale_init,
                        .dtype = m->dtype,
                        .param_dtype = m->param_dtype,
                        .n_reduction_axes = m->n_reduction_axes,
                        .n_feature_axes = m->n_feature_axes};
    memcpy(l.reduction_axes, m->reduction_axes, sizeof l.reduction_axes);
    memcpy(l.feature_axes, m->feature_axes, sizeof l.feature_axes);
    call_norm(scope, "RMSNorm", false, &l, n_in, in, n_out, out);
}

const tow_module_class tow_layer_norm_class = {TOW__MADE_BY(TOW_LAYER_NORM, tow_layer_norm), .name = "LayerNorm",
                                               .call = call_layer_norm, .layout = TOW__LAYOUT(tow_layer_norm)};
const tow_module_class tow_rms_norm_class = {TOW__MADE_BY(TOW_RMS_NORM, tow_rms_norm), .name = "RMSNorm",
                                             .call = call_rms_norm, .layout = TOW__LAYOUT(tow_rms_norm)};
