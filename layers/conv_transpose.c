/* ConvTranspose: x [batch..., spatial..., in] with stride - 1 zeros between its elements, correlated with a kernel:
 *
 *   y[i] = sum over j, k with stride j + low = i + dilation k of x[j] kernel[k] + bias.
 *
 * The zeros before and behind the elements are those of jax.lax.conv_transpose. */
#include "layers/convolution.h"
#include "src/scope/tree.h"
#include "tow/numpy.h"

/* Zeros around the elements: so many results that a Conv with this padding would make the input of them. */
static void pad(const tow_conv_transpose *m, int axis, tow_conv_options *o)
{
    int64_t stride = o->lhs_dilation[axis], reach = (m->kernel_size[axis] - 1) * o->rhs_dilation[axis];
    int64_t longer = reach + 1 > stride ? reach + 1 - stride : 0;
    int64_t both = reach + stride - 1; /* SAME */
    if (m->padding == TOW_CONV_EXPLICIT) {
        o->low[axis] = m->low[axis];
        o->high[axis] = m->high[axis];
        return;
    }
    if (m->padding == TOW_CONV_SAME) {
        o->low[axis] = stride > reach ? reach : (both + 1) / 2;
    } else {
        both += longer;
        o->low[axis] = reach;
    }
    o->high[axis] = both - o->low[axis];
}

/* y [N, spatial..., features] folded to n stride elements along each axis: zeros around it fill whole periods, which
 * are added up. The zero more, if their number is odd, stands before y, and behind it for a transposed kernel. */
static tow_value fold(tow_value y, tow_type x, int n, const int64_t *strides, bool transposed)
{
    for (int axis = 1; axis <= n && !tow_is_null(y); axis++) {
        tow_type type = tow_value_type(y);
        int64_t period = x.dims[axis] * strides[axis - 1], low[TOW_MAX_RANK] = {0}, high[TOW_MAX_RANK] = {0};
        if (period == 0) continue;
        int64_t missing =
            (3 * period - type.dims[axis] % (2 * period)) % (2 * period); /* to an odd number of periods */
        low[axis] = transposed ? missing / 2 : (missing + 1) / 2;
        high[axis] = missing - low[axis];
        y = tow_pad(y, tow_scalar(tow_value_trace(y), type.dtype, 0), low, high, NULL);
        int64_t dims[TOW_MAX_RANK + 1];
        for (int i = 0; i < axis; i++) dims[i] = type.dims[i];
        dims[axis] = (type.dims[axis] + missing) / period;
        dims[axis + 1] = period;
        for (int i = axis + 1; i < type.rank; i++) dims[i + 1] = type.dims[i];
        y = tow_reduce_sum(tow_reshape(y, type.rank + 1, dims), 1, &axis);
    }
    return y;
}

static bool check_options(tow_scope *scope, const tow_conv_transpose *m, int n)
{
    bool known = m->padding == TOW_CONV_SAME || m->padding == TOW_CONV_VALID || m->padding == TOW_CONV_CIRCULAR ||
                 m->padding == TOW_CONV_EXPLICIT;
    if (!tow__check_option(scope, "ConvTranspose", m->features > 0, "features", (double)m->features,
                           "a positive number") ||
        !tow__check_option(scope, "ConvTranspose", known, "padding", m->padding,
                           "TOW_CONV_SAME, _VALID, _CIRCULAR or _EXPLICIT") ||
        !tow__check_pads(scope, "ConvTranspose", m->padding == TOW_CONV_EXPLICIT, n, m->low, m->high))
        return false;
    if (m->padding != TOW_CONV_CIRCULAR || n + 3 <= TOW_MAX_RANK) return true;
    tow_scope_fail(scope, TOW_UNSUPPORTED, "ConvTranspose: TOW_CONV_CIRCULAR folds at most %d spatial axes, found %d",
                   TOW_MAX_RANK - 3, n);
    return false;
}

/* The kernel [kernel_size..., in, features] as it is applied. */
static tow_value make_kernel(tow_scope *scope, const tow_conv_transpose *m, int n, tow_value x,
                             const tow__dtypes *types, const tow_value *mask)
{
    tow_type type = tow_value_type(x);
    int64_t dims[TOW_MAX_RANK];
    int spatial[TOW_MAX_RANK];
    for (int i = 0; i < n; i++) {
        dims[i] = m->kernel_size[i];
        spatial[i] = i;
    }
    dims[n + m->transpose_kernel] = type.dims[type.rank - 1];
    dims[n + !m->transpose_kernel] = m->features;
    tow_value kernel = tow__masked_kernel(scope, "ConvTranspose", n + 2, dims, m->kernel_init, types, mask);
    if (!m->transpose_kernel || tow_is_null(kernel)) return kernel;
    return tow_swapaxes(tow_rev(kernel, n, spatial), n, n + 1);
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_conv_transpose *m = (const tow_conv_transpose *)module;
    tow_conv_options o = TOW_CONV_OPTIONS(.padding = TOW_PAD_EXPLICIT);
    tow__dtypes types;
    if (!tow__check_counts(scope, "ConvTranspose", n_in, 1, 2, n_out) ||
        !tow__check_float(scope, "ConvTranspose", 0, in[0], 1))
        return;
    int n = tow__spatial_axes(scope, "ConvTranspose", "kernel_size", m->kernel_size, in[0]);
    if (n == 0 || !check_options(scope, m, n) ||
        !tow__fill_sizes(scope, "ConvTranspose", "strides", n, m->strides, 1, o.lhs_dilation) ||
        !tow__fill_sizes(scope, "ConvTranspose", "kernel_dilation", n, m->kernel_dilation, 1, o.rhs_dilation) ||
        !tow__read_dtypes(scope, "ConvTranspose", m->dtype, m->param_dtype, 1, in, &types))
        return;
    tow_value x = tow__one_batch_axis(tow__as(in[0], types.compute), n);
    if (tow_is_null(x)) return;
    for (int i = 0; i < n; i++) pad(m, i, &o);
    tow_value y = tow_conv_general_dilated(x, make_kernel(scope, m, n, x, &types, n_in == 2 ? &in[1] : NULL), &o);
    if (m->padding == TOW_CONV_CIRCULAR) y = fold(y, tow_value_type(x), n, o.lhs_dilation, m->transpose_kernel);
    if (!m->no_bias) y = tow__add_bias(scope, y, m->bias_init, &types);
    out[0] = tow__batch_axes_of(y, tow_value_type(in[0]), n);
}

const tow_module_class tow_conv_transpose_class = {TOW__MADE_BY(TOW_CONV_TRANSPOSE, tow_conv_transpose),
                                                   .name = "ConvTranspose", .call = call,
                                                   .layout = TOW__LAYOUT(tow_conv_transpose)};
