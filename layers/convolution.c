/* See convolution.h. */
#include "layers/convolution.h"

#include "tow/numpy.h"

int tow__spatial_axes(tow_scope *scope, const char *layer, const char *option, const int64_t *sizes, tow_value x)
{
    int n = tow__count_sizes(scope, layer, option, TOW_MAX_RANK, sizes);
    tow_type type = tow_value_type(x);
    if (n == 0) return 0;
    if (n + 2 > TOW_MAX_RANK) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s: .%s has %d entries; expected at most %d, one for each axis",
                       layer, option, n, TOW_MAX_RANK - 2);
        return 0;
    }
    if (type.rank > n) return n;
    tow_scope_fail(
        scope, TOW_SHAPE_MISMATCH,
        "%s: expected [batch..., spatial..., features] with %d spatial axes, as many as .%s has entries, found %s",
        layer, n, option, tow__type_name(type).text);
    return 0;
}

bool tow__check_pads(tow_scope *scope, const char *layer, bool explicit_pads, int n, const int64_t *low,
                     const int64_t *high)
{
    for (int i = explicit_pads ? n : 0; i < TOW_MAX_RANK; i++) {
        if (low[i] == 0 && high[i] == 0) continue;
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "%s: .low[%d] = %lld, .high[%d] = %lld; expected them with explicit padding only, for the %d "
                       "spatial axes; set .padding",
                       layer, i, (long long)low[i], i, (long long)high[i], n);
        return false;
    }
    return true;
}

tow_value tow__one_batch_axis(tow_value x, int spatial)
{
    tow_type type = tow_value_type(x);
    int batch = type.rank - spatial - 1;
    int64_t dims[TOW_MAX_RANK] = {1};
    if (batch == 1) return x;
    for (int i = 0; i < batch; i++) dims[0] *= type.dims[i];
    for (int i = batch; i < type.rank; i++) dims[1 + i - batch] = type.dims[i];
    return tow_reshape(x, spatial + 2, dims);
}

tow_value tow__batch_axes_of(tow_value y, tow_type x, int spatial)
{
    tow_type type = tow_value_type(y);
    int batch = x.rank - spatial - 1;
    int64_t dims[TOW_MAX_RANK];
    if (batch == 1 || tow_is_null(y)) return y;
    for (int i = 0; i < batch; i++) dims[i] = x.dims[i];
    for (int i = 1; i < type.rank; i++) dims[batch + i - 1] = type.dims[i];
    return tow_reshape(y, x.rank, dims);
}

/* x, then its elements from the last but one back to the second: one period of x mirrored at both ends. */
static tow_value mirrored_period(tow_value x, int axis)
{
    int64_t n = tow_value_type(x).dims[axis];
    if (n <= 2) return x;
    tow_value inside = tow_rev(tow_slice_axis(x, axis, 1, n - 1), 1, &axis);
    return tow_concatenate(2, (tow_value[]){x, inside}, axis);
}

tow_value tow__extend_axis(tow_value x, int axis, int64_t low, int64_t high, bool mirrored)
{
    int64_t wanted = low + tow_value_type(x).dims[axis] + high;
    if (low == 0 && high == 0) return x;
    tow_value period = mirrored ? mirrored_period(x, axis) : x, y = {0};
    int64_t n = tow_value_type(period).dims[axis];
    if (n == 0) return x;
    int64_t at = (n - low % n) % n;
    if (wanted / n > 3) {
        int64_t reps[TOW_MAX_RANK];
        for (int i = 0; i < TOW_MAX_RANK; i++) reps[i] = i == axis ? (at + wanted + n - 1) / n : 1;
        return tow_slice_axis(tow_tile(period, tow_value_type(period).rank, reps), axis, at, at + wanted);
    }
    for (int64_t done = 0; done < wanted;) {
        int64_t count = n - at < wanted - done ? n - at : wanted - done;
        tow_value piece = tow_slice_axis(period, axis, at, at + count);
        y = done == 0 ? piece : tow_concatenate(2, (tow_value[]){y, piece}, axis);
        if (tow_is_null(y)) return y;
        done += count;
        at = 0;
    }
    return y;
}

tow_value tow__masked_kernel(tow_scope *scope, const char *layer, int rank, const int64_t *dims, tow_initializer init,
                             const tow__dtypes *types, const tow_value *mask)
{
    tow_type wanted = tow_make_type(types->compute, rank, dims);
    tow_value kernel =
        tow__param(scope, "kernel", rank, dims, tow__init_or(init, tow_initializer_lecun_normal()), types);
    if (!mask || tow_is_null(kernel)) return kernel;
    tow_type found = tow_value_type(*mask);
    found.dtype = wanted.dtype;
    if (!tow_type_equal(wanted, found)) {
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH, "%s: expected a mask of the kernel's shape %s, found %s", layer,
                       tow__type_name(wanted).text, tow__type_name(tow_value_type(*mask)).text);
        return (tow_value){0};
    }
    return tow_mul(kernel, tow_convert(*mask, wanted.dtype));
}
