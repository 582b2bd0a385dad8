/* See statistics.h. */
#include <math.h>

#include "layers/statistics.h"

#include "tow/numpy.h"

/* The mean of the elements that count, of which there are `count`; a null mask: of all. */
static tow_value mean_where(tow_value x, tow_value mask, tow_value count, int n, const int *axes)
{
    if (tow_is_null(mask)) return tow_mean_keepdims(x, n, axes);
    return tow_div(tow_reduce_sum_keepdims(tow_where(mask, x, tow_zeros_like(x)), n, axes), count);
}

void tow__statistics(tow_value x, tow_value mask, bool fast, int n, const int *axes, tow_value *mean,
                     tow_value *variance)
{
    tow_value count = {0};
    if (n == 0) {
        if (mean) *mean = x;
        *variance = mean ? tow_zeros_like(x) : tow_square(x);
        return;
    }
    if (!tow_is_null(mask)) {
        tow_type type = tow_value_type(x);
        mask = tow_broadcast_to(mask, type.rank, type.dims);
        count = tow_reduce_sum_keepdims(tow_convert(mask, type.dtype), n, axes);
    }
    if (mean) *mean = mean_where(x, mask, count, n, axes);
    tow_value centered = mean && !fast ? tow_sub(x, *mean) : x;
    *variance = mean_where(tow_square(centered), mask, count, n, axes);
    if (mean && fast) *variance = tow_max_scalar(tow_sub(*variance, tow_square(*mean)), 0);
}

bool tow__read_norm_dtypes(tow_scope *scope, const char *layer, tow_dtype dtype, tow_dtype param_dtype, bool has_params,
                           tow_value x, tow__norm_dtypes *types)
{
    tow_dtype of_x = tow_value_type(x).dtype;
    if (!tow__param_dtype(scope, layer, param_dtype, &types->params) ||
        !tow__compute_dtype(scope, layer, dtype, 1, &x, NULL, &types->stats) ||
        !tow__compute_dtype(scope, layer, dtype, 1, &x, has_params ? &types->params : NULL, &types->out))
        return false;
    types->stats = tow_promote_types(types->stats, TOW_F32);
    types->work = tow_promote_types(types->stats, of_x);
    if (has_params) types->work = tow_promote_types(types->work, types->params);
    return true;
}

bool tow__check_epsilon(tow_scope *scope, const char *layer, double epsilon)
{
    return tow__check_option(scope, layer, epsilon >= 0 && isfinite(epsilon), "epsilon", epsilon, "a positive number");
}

void tow__spread_features(tow_type x, int n, const int *features, int64_t *dims, int64_t *spread)
{
    for (int axis = 0; axis < x.rank; axis++) spread[axis] = 1;
    for (int i = 0; i < n; i++) spread[features[i]] = dims[i] = x.dims[features[i]];
}

tow_value tow__normalize(tow_scope *scope, const tow__affine *a, tow_value x, tow_value mean, tow_value variance, int n,
                         const int64_t *dims, int rank, const int64_t *spread)
{
    const tow__dtypes types = {.compute = a->types.work, .params = a->types.params};
    tow_value factor = tow_rsqrt(tow_add_scalar(tow__as(variance, types.compute), a->epsilon));
    tow_value y = tow__as(x, types.compute);
    if (!tow_is_null(mean)) y = tow_sub(y, tow__as(mean, types.compute));
    if (!a->no_scale) {
        tow_initializer init = tow__init_or(a->scale_init, tow_initializer_ones());
        tow_value scale = tow__param(scope, "scale", n, dims, init, &types);
        factor = tow_mul(factor, tow_reshape(scale, rank, spread));
    }
    y = tow_mul(y, factor);
    if (a->no_bias) return tow__as(y, a->types.out);
    tow_initializer init = tow__init_or(a->bias_init, tow_initializer_zeros());
    tow_value bias = tow__param(scope, "bias", n, dims, init, &types);
    return tow__as(tow_add(y, tow_reshape(bias, rank, spread)), a->types.out);
}

bool tow__read_mask(tow_scope *scope, const char *layer, size_t n_in, const tow_value *in, tow_value *mask)
{
    *mask = n_in == 2 ? in[1] : (tow_value){0};
    if (n_in < 2) return true;
    tow_type x = tow_value_type(in[0]), found = tow_value_type(in[1]);
    bool fits = found.dtype == TOW_BOOL && found.rank <= x.rank;
    for (int i = 0; i < found.rank && fits; i++) {
        int64_t size = found.dims[i];
        fits = size == 1 || size == x.dims[x.rank - found.rank + i];
    }
    if (!fits)
        tow_scope_fail(scope, found.dtype == TOW_BOOL ? TOW_SHAPE_MISMATCH : TOW_TYPE_MISMATCH,
                       "%s: input 1: expected a mask of type bool that broadcasts to %s, found %s", layer,
                       tow__type_name(x).text, tow__type_name(found).text);
    return fits;
}
