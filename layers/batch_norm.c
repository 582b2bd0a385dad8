/* BatchNorm: normalizes each feature over all other axes, with statistics of the batch in training and running means of
 * those otherwise. The running means are variables: new values are outputs of the forward pass. */
#include "layers/statistics.h"
#include "src/scope/tree.h"

/* Axes of x that are not features. */
static int other_axes(tow_type x, int n, const int *features, int *others)
{
    int count = 0, next = 0;
    for (int axis = 0; axis < x.rank; axis++)
        if (next < n && features[next] == axis)
            next++;
        else
            others[count++] = axis;
    return count;
}

/* variable = momentum variable + (1 - momentum) now */
static void update(tow_scope *scope, const char *name, double momentum, tow_value variable, tow_value now)
{
    tow_type type = tow_value_type(variable);
    now = tow_convert(tow_reshape(tow_stop_gradient(now), type.rank, type.dims), type.dtype);
    tow_set_variable(scope, "batch_stats", name,
                     tow_add(tow_mul_scalar(variable, momentum), tow_mul_scalar(now, 1 - momentum)));
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_batch_norm *m = (const tow_batch_norm *)module;
    double momentum = m->momentum == 0 ? 0.99 : m->momentum;
    tow_value mask, mean, variance, x = in[0];
    tow__affine affine = {
        m->epsilon > 0 ? m->epsilon : 1e-5, m->no_scale, m->no_bias, m->scale_init, m->bias_init, {0}};
    if (!tow__check_counts(scope, "BatchNorm", n_in, 1, 2, n_out) || !tow__check_float(scope, "BatchNorm", 0, x, 1) ||
        !tow__check_epsilon(scope, "BatchNorm", m->epsilon) ||
        !tow__check_option(scope, "BatchNorm", momentum > 0 && momentum <= 1, "momentum", momentum,
                           "a number from 0 to 1") ||
        !tow__read_mask(scope, "BatchNorm", n_in, in, &mask) ||
        !tow__read_norm_dtypes(scope, "BatchNorm", m->dtype, m->param_dtype, !m->no_scale || !m->no_bias, x,
                               &affine.types))
        return;
    tow_type type = tow_value_type(x);
    int features[TOW_MAX_RANK], others[TOW_MAX_RANK], n = 0;
    int64_t dims[TOW_MAX_RANK], spread[TOW_MAX_RANK];
    if (!tow__read_axes(scope, "BatchNorm", type, m->n_axes, m->axes, features, &n)) return;
    int n_others = other_axes(type, n, features, others);
    tow__spread_features(type, n, features, dims, spread);
    tow_type kept = tow_make_type(TOW_F32, n, dims);
    tow_value kept_mean = tow_variable(scope, "batch_stats", "mean", kept, tow_initializer_zeros());
    tow_value kept_variance = tow_variable(scope, "batch_stats", "var", kept, tow_initializer_ones());
    if (tow__scope_failed(scope)) return;
    if (m->use_running_average || tow_scope_is_deterministic(scope)) {
        mean = tow_reshape(kept_mean, type.rank, spread);
        variance = tow_reshape(kept_variance, type.rank, spread);
    } else {
        tow__statistics(tow__as(x, affine.types.stats), mask, m->fast_variance, n_others, others, &mean, &variance);
        update(scope, "mean", momentum, kept_mean, mean);
        update(scope, "var", momentum, kept_variance, variance);
    }
    out[0] = tow__normalize(scope, &affine, x, mean, variance, n, dims, type.rank, spread);
}

const tow_module_class tow_batch_norm_class = {TOW__MADE_BY(TOW_BATCH_NORM, tow_batch_norm), .name = "BatchNorm",
                                               .call = call, .layout = TOW__LAYOUT(tow_batch_norm)};
