/* GroupNorm: statistics of each example over groups of its features; InstanceNorm: of each feature by itself. */
#include "layers/statistics.h"
#include "src/scope/tree.h"

/* The number of groups that C features make; 0 after an error. */
static int64_t count_groups(tow_scope *scope, const tow_group_norm *m, int64_t features)
{
    if (!tow__check_option(scope, "GroupNorm", m->groups >= 0, "groups", (double)m->groups, "a positive number") ||
        !tow__check_option(scope, "GroupNorm", m->group_size >= 0, "group_size", (double)m->group_size,
                           "a positive number"))
        return 0;
    if (m->groups && m->group_size) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "GroupNorm: .groups = %lld and .group_size = %lld; set one of them",
                       (long long)m->groups, (long long)m->group_size);
        return 0;
    }
    int64_t divisor = m->group_size ? m->group_size : m->groups ? m->groups : 32;
    if (features > 0 && features % divisor == 0) return m->group_size ? features / divisor : divisor;
    tow_scope_fail(scope, TOW_SHAPE_MISMATCH, "GroupNorm: %lld features do not divide into groups; found .%s = %lld",
                   (long long)features, m->group_size ? "group_size" : "groups", (long long)divisor);
    return 0;
}

/* Axes of x [B, ..., C] that statistics are taken over, C the last of them. */
static bool reduced_axes(tow_scope *scope, const tow_group_norm *m, tow_type x, int *axes, int *n)
{
    if (!tow__read_axes_of(scope, "GroupNorm", "reduction_axes", x, m->n_reduction_axes, m->reduction_axes, axes, n))
        return false;
    if (m->n_reduction_axes == 0) {
        *n = 0;
        for (int axis = 1; axis < x.rank - 1; axis++) axes[(*n)++] = axis;
        axes[(*n)++] = x.rank - 1;
    }
    if (axes[*n - 1] == x.rank - 1) return true;
    tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "GroupNorm: .reduction_axes leave out the last axis of %s; add -1",
                   tow__type_name(x).text);
    return false;
}

/* x [B, ..., C] as [B, ..., G, C / G], and what the parameters are beside it. */
static void call_group_norm(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                            tow_value *out)
{
    const tow_group_norm *m = (const tow_group_norm *)module;
    tow_value mask, mean, variance;
    tow__affine affine = {
        m->epsilon > 0 ? m->epsilon : 1e-6, m->no_scale, m->no_bias, m->scale_init, m->bias_init, {0}};
    if (!tow__check_counts(scope, "GroupNorm", n_in, 1, 2, n_out) ||
        !tow__check_float(scope, "GroupNorm", 0, in[0], 1) || !tow__check_epsilon(scope, "GroupNorm", m->epsilon) ||
        !tow__read_mask(scope, "GroupNorm", n_in, in, &mask) ||
        !tow__read_norm_dtypes(scope, "GroupNorm", m->dtype, m->param_dtype, !m->no_scale || !m->no_bias, in[0],
                               &affine.types))
        return;
    tow_type type = tow_value_type(in[0]);
    int64_t features = type.dims[type.rank - 1], groups = count_groups(scope, m, features), dims[TOW_MAX_RANK + 1];
    if (groups == 0 || !tow__check_option(scope, "GroupNorm: input", type.rank < TOW_MAX_RANK, "rank", type.rank,
                                          "one axis less, for the groups"))
        return;
    int axes[TOW_MAX_RANK], n = 0;
    if (!reduced_axes(scope, m, type, axes, &n)) return;
    axes[n - 1] = type.rank; /* C / G for C */
    memcpy(dims, type.dims, (size_t)type.rank * sizeof *dims);
    dims[type.rank - 1] = groups;
    dims[type.rank] = features / groups;
    tow_value x = tow_reshape(in[0], type.rank + 1, dims);
    if (tow_is_null(x)) return;
    if (!tow_is_null(mask)) mask = tow_reshape(tow_broadcast_to(mask, type.rank, type.dims), type.rank + 1, dims);
    tow__statistics(tow__as(x, affine.types.stats), mask, m->fast_variance, n, axes, &mean, &variance);
    tow_value y = tow__normalize(scope, &affine, x, mean, variance, 1, &features, 2, &dims[type.rank - 1]);
    out[0] = tow_reshape(y, type.rank, type.dims);
}

static void call_instance_norm(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in,
                               size_t n_out, tow_value *out)
{
    const tow_instance_norm *m = (const tow_instance_norm *)module;
    tow_value mask, mean, variance;
    tow__affine affine = {
        m->epsilon > 0 ? m->epsilon : 1e-6, m->no_scale, m->no_bias, m->scale_init, m->bias_init, {0}};
    if (!tow__check_counts(scope, "InstanceNorm", n_in, 1, 2, n_out) ||
        !tow__check_float(scope, "InstanceNorm", 0, in[0], 2) ||
        !tow__check_epsilon(scope, "InstanceNorm", m->epsilon) ||
        !tow__read_mask(scope, "InstanceNorm", n_in, in, &mask) ||
        !tow__read_norm_dtypes(scope, "InstanceNorm", m->dtype, m->param_dtype, !m->no_scale || !m->no_bias, in[0],
                               &affine.types))
        return;
    tow_type type = tow_value_type(in[0]);
    int features[TOW_MAX_RANK], axes[TOW_MAX_RANK], n = 0, n_axes = 0;
    int64_t dims[TOW_MAX_RANK], spread[TOW_MAX_RANK];
    if (!tow__read_axes(scope, "InstanceNorm", type, m->n_axes, m->axes, features, &n)) return;
    if (features[0] == 0) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "InstanceNorm: axis 0 of %s counts examples and cannot be one of .axes",
                       tow__type_name(type).text);
        return;
    }
    tow__spread_features(type, n, features, dims, spread);
    for (int axis = 1, next = 0; axis < type.rank; axis++)
        if (next < n && features[next] == axis)
            next++;
        else
            axes[n_axes++] = axis;
    tow__statistics(tow__as(in[0], affine.types.stats), mask, m->fast_variance, n_axes, axes, &mean, &variance);
    out[0] = tow__normalize(scope, &affine, in[0], mean, variance, n, dims, type.rank, spread);
}

const tow_module_class tow_group_norm_class = {TOW__MADE_BY(TOW_GROUP_NORM, tow_group_norm), .name = "GroupNorm",
                                               .call = call_group_norm, .layout = TOW__LAYOUT(tow_group_norm)};
const tow_module_class tow_instance_norm_class = {TOW__MADE_BY(TOW_INSTANCE_NORM, tow_instance_norm),
                                                  .name = "InstanceNorm", .call = call_instance_norm,
                                                  .layout = TOW__LAYOUT(tow_instance_norm)};
