/* DenseGeneral: contracts several axes of x into several feature axes, with leading batch axes that have own kernels.
 *
 *   x [batch, free, contracted] . kernel [batch, contracted, features] -> [batch, free, features]
 *
 * where each name stands for any number of axes. */
#include "src/scope/layer.h"
#include "src/scope/tree.h"
#include "tow/layers.h"

typedef struct axes {
    int batch, contract, features; /* how many */
    int contracted[TOW_MAX_RANK];  /* of x, increasing */
} axes;

/* The marked axes of x, in Flax's order whatever the caller's: the shape of the kernel depends on it. */
static void sort_axes(const bool *marked, int rank, int *sorted)
{
    for (int axis = 0; axis < rank; axis++)
        if (marked[axis]) *sorted++ = axis;
}

static bool read_axes(tow_scope *scope, const tow_dense_general *m, tow_type x, axes *a)
{
    a->batch = m->n_batch_dims;
    a->contract = m->n_axes ? m->n_axes : 1;
    a->features = tow__count_sizes(scope, "DenseGeneral", "features", TOW_MAX_RANK, m->features);
    if (a->features == 0 ||
        !tow__check_option(scope, "DenseGeneral", a->batch >= 0 && a->batch < TOW_MAX_RANK, "n_batch_dims", a->batch,
                           "fewer than the rank") ||
        !tow__check_option(scope, "DenseGeneral", a->contract > 0 && a->contract <= x.rank - a->batch, "n_axes",
                           a->contract, "as many as the input has besides batch axes") ||
        !tow__check_option(scope, "DenseGeneral", a->batch + a->contract + a->features <= TOW_MAX_RANK, "features",
                           a->features, "fewer axes: the kernel exceeds the greatest rank") ||
        !tow__check_axes(scope, "DenseGeneral", "axes", m->n_axes, m->axes))
        return false;
    bool seen[TOW_MAX_RANK] = {false};
    for (int i = 0; i < a->contract; i++) {
        int axis = m->n_axes ? m->axes[i] : -1;
        int found = axis;
        if (axis < 0) axis += x.rank;
        if (axis < a->batch || axis >= x.rank || seen[axis]) {
            tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                           "DenseGeneral: .axes[%d] = %d; expected distinct axes of %s after %d batch axes", i, found,
                           tow__type_name(x).text, a->batch);
            return false;
        }
        seen[axis] = true;
    }
    sort_axes(seen, x.rank, a->contracted);
    return true;
}

/* y + bias, bias [batch..., features...] spread over the free axes of y. */
static tow_value add_bias(tow_scope *scope, const tow_dense_general *m, const axes *a, const tow__dtypes *types,
                          tow_value y)
{
    tow_type type = tow_value_type(y);
    int64_t dims[TOW_MAX_RANK], spread[TOW_MAX_RANK];
    int n = 0, first_feature = type.rank - a->features;
    for (int i = 0; i < type.rank; i++) {
        bool own = i < a->batch || i >= first_feature;
        spread[i] = own ? type.dims[i] : 1;
        if (own) dims[n++] = type.dims[i];
    }
    tow_initializer init = tow__init_or(m->bias_init, tow_initializer_zeros());
    tow_value bias = tow__param(scope, "bias", n, dims, init, types);
    if (a->batch > 0) bias = tow_reshape(bias, type.rank, spread);
    return tow_add(y, bias);
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_dense_general *m = (const tow_dense_general *)module;
    axes a = {0};
    tow__dtypes types;
    if (!tow__check_counts(scope, "DenseGeneral", n_in, 1, 1, n_out) ||
        !tow__check_float(scope, "DenseGeneral", 0, in[0], 1) || !read_axes(scope, m, tow_value_type(in[0]), &a) ||
        !tow__read_weight_dtypes(scope, "DenseGeneral", m->dtype, m->param_dtype, 1, in, &types))
        return;
    tow_type type = tow_value_type(in[0]);
    tow_dot_dims dot = {.n_contract = a.contract, .n_batch = a.batch};
    int64_t dims[TOW_MAX_RANK];
    int n = 0;
    for (; n < a.batch; n++) {
        dims[n] = type.dims[n];
        dot.lhs_batch[n] = dot.rhs_batch[n] = n;
    }
    for (int i = 0; i < a.contract; ++i, ++n) {
        dims[n] = type.dims[a.contracted[i]];
        dot.lhs_contract[i] = a.contracted[i];
        dot.rhs_contract[i] = n;
    }
    for (int i = 0; i < a.features; i++) dims[n++] = m->features[i];
    tow_initializer init = tow__init_or(m->kernel_init, tow_initializer_lecun_normal());
    init.matrix_of = a.batch + a.contract; /* drawn as the flattening (batch * contracted, features), as in Flax */
    tow_value y = tow__product_with_param(scope, "kernel", n, dims, init, &types, tow__as(in[0], types.compute), &dot);
    out[0] = m->no_bias || tow_is_null(y) ? y : add_bias(scope, m, &a, &types, y);
}

const tow_module_class tow_dense_general_class = {TOW__MADE_BY(TOW_DENSE_GENERAL, tow_dense_general),
                                                  .name = "DenseGeneral", .call = call,
                                                  .layout = TOW__LAYOUT(tow_dense_general)};
