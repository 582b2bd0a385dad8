/* ConvLocal: a Conv with a kernel of its own at each place,
 *
 *   y[i] = sum over c, k of x[stride i + dilation k - low, c] kernel[i, (c, k)] + bias[i].
 *
 * What a place sees, [features * kernel_size], is put together of one slice for each element of a kernel; all places
 * are then one product, of which they are the batch. */
#include "layers/convolution.h"
#include "src/scope/tree.h"
#include "tow/numpy.h"

static const char layer[] = "ConvLocal";
enum {
    MOST_TAPS = 4096 /* of a kernel: each is an operation */
};

/* The number of results of an axis of n elements, and the zeros that it is padded with. */
static int64_t places(const tow__conv_call *c, int axis, int64_t n, int64_t size, int64_t *low, int64_t *high)
{
    const tow_conv_options *o = &c->o;
    int64_t stride = o->strides[axis], reach = (size - 1) * o->rhs_dilation[axis] + 1;
    int64_t length = n > 0 ? (n - 1) * o->lhs_dilation[axis] + 1 : 0;
    *low = o->low[axis], *high = o->high[axis];
    if (o->padding == TOW_PAD_SAME || o->padding == TOW_PAD_SAME_LOWER) {
        int64_t results = (length + stride - 1) / stride, both = (results - 1) * stride + reach - length;
        if (both < 0 || results == 0) both = 0;
        *low = o->padding == TOW_PAD_SAME ? both / 2 : (both + 1) / 2;
        *high = both - *low;
    }
    length += *low + *high;
    return length < reach ? 0 : (length - reach) / stride + 1;
}

/* The part of one call that tow__conv_call does not have. */
typedef struct local {
    const tow__conv_call *c;
    const int64_t *kernel_size;
    int64_t counts[TOW_MAX_RANK]; /* places along each axis */
    tow_value padded;             /* [N, padded..., features] */
} local;

/* The elements of x that element `tap` of the kernels, row-major, meets: [N, places..., features, 1]. */
static tow_value slice_for(const local *l, int64_t tap)
{
    const tow_conv_options *o = &l->c->o;
    tow_type type = tow_value_type(l->padded);
    int64_t start[TOW_MAX_RANK] = {0}, limit[TOW_MAX_RANK], strides[TOW_MAX_RANK];
    for (int i = 0; i < type.rank; i++) limit[i] = type.dims[i], strides[i] = 1;
    for (int i = l->c->n - 1; i >= 0; i--) {
        start[1 + i] = l->counts[i] > 0 ? tap % l->kernel_size[i] * o->rhs_dilation[i] : 0;
        limit[1 + i] = l->counts[i] > 0 ? start[1 + i] + (l->counts[i] - 1) * o->strides[i] + 1 : 0;
        strides[1 + i] = o->strides[i];
        tap /= l->kernel_size[i];
    }
    return tow_expand_dims(tow_slice(l->padded, start, limit, strides), -1);
}

/* Those of `count` elements of the kernels: [N, places..., features, count]. */
static tow_value slices_for(const local *l, int64_t first, int64_t count)
{
    if (count == 1) return slice_for(l, first);
    tow_value halves[2] = {slices_for(l, first, count / 2), slices_for(l, first + count / 2, count - count / 2)};
    return tow_is_null(halves[0]) || tow_is_null(halves[1]) ? (tow_value){0} : tow_concatenate(2, halves, -1);
}

/* The dimensions of the kernel, [places..., features * taps, .features], and the padded input. Returns the number of
 * taps, the elements of a kernel that a feature meets; 0 after an error. */
static int64_t find_places(tow_scope *scope, int64_t features, local *l, int64_t *dims)
{
    const tow__conv_call *c = l->c;
    int64_t taps = 1, low[TOW_MAX_RANK] = {0}, high[TOW_MAX_RANK] = {0}, interior[TOW_MAX_RANK] = {0};
    if (!tow__check_option(scope, layer, c->n + 3 <= TOW_MAX_RANK, "kernel_size", c->n, "at most 5 entries")) return 0;
    for (int i = 0; i < c->n; i++) {
        int64_t n = tow_value_type(c->x).dims[1 + i];
        l->counts[i] = dims[i] = places(c, i, n, l->kernel_size[i], &low[1 + i], &high[1 + i]);
        interior[1 + i] = c->o.lhs_dilation[i] - 1;
        taps = taps > MOST_TAPS ? taps : taps * l->kernel_size[i];
    }
    if (!tow__check_option(scope, layer, taps <= MOST_TAPS, "kernel_size", (double)taps, "at most 4096 elements"))
        return 0;
    dims[c->n] = c->features * taps;
    dims[c->n + 1] = features;
    tow_value zero = tow_scalar(tow_value_trace(c->x), c->types.compute, 0);
    l->padded = tow_pad(c->x, zero, low, high, interior);
    return tow_is_null(l->padded) ? 0 : taps;
}

/* [N, places..., features * taps] */
static tow_value patches(const local *l, const int64_t *kernel_dims, int64_t taps)
{
    int64_t dims[TOW_MAX_RANK] = {tow_value_type(l->padded).dims[0]};
    for (int i = 0; i <= l->c->n; i++) dims[1 + i] = kernel_dims[i];
    return tow_reshape(slices_for(l, 0, taps), l->c->n + 2, dims);
}

/* patches [N, places..., P] times kernel [places..., P, features] -> [N, places..., features] */
static tow_value multiply(tow_value patches, tow_value kernel, int n)
{
    tow_dot_dims d = {.n_batch = n, .n_contract = 1, .lhs_contract = {n + 1}, .rhs_contract = {n}};
    for (int i = 0; i < n; i++) d.lhs_batch[i] = 1 + i, d.rhs_batch[i] = i;
    return tow_moveaxis(tow_dot_general(patches, kernel, d), n, 0);
}

/* The options of a Conv that reads them. */
static tow_conv as_conv(const tow_conv_local *m)
{
    tow_conv c = {.features = m->features, .padding = m->padding, .dtype = m->dtype, .param_dtype = m->param_dtype};
    for (int i = 0; i < TOW_MAX_RANK; i++) {
        c.kernel_size[i] = m->kernel_size[i];
        c.strides[i] = m->strides[i];
        c.low[i] = m->low[i];
        c.high[i] = m->high[i];
        c.input_dilation[i] = m->input_dilation[i];
        c.kernel_dilation[i] = m->kernel_dilation[i];
    }
    return c;
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_conv_local *m = (const tow_conv_local *)module;
    tow_conv conv = as_conv(m);
    tow__conv_call c;
    local l = {.c = &c, .kernel_size = m->kernel_size};
    int64_t dims[TOW_MAX_RANK];
    if (!tow__read_conv(scope, layer, &conv, n_in, in, n_out, &c)) return;
    int64_t taps = find_places(scope, m->features, &l, dims);
    if (taps == 0) return;
    tow_value kernel = tow__masked_kernel(scope, layer, c.n + 2, dims, m->kernel_init, &c.types, c.mask);
    if (tow_is_null(kernel)) return;
    tow_value y = multiply(patches(&l, dims, taps), kernel, c.n);
    dims[c.n] = m->features;
    if (!m->no_bias) {
        tow_initializer init = tow__init_or(m->bias_init, tow_initializer_zeros());
        y = tow_add(y, tow__param(scope, "bias", c.n + 1, dims, init, &c.types));
    }
    out[0] = tow__batch_axes_of(y, c.type, c.n);
}

const tow_module_class tow_conv_local_class = {TOW__MADE_BY(TOW_CONV_LOCAL, tow_conv_local), .name = "ConvLocal",
                                               .call = call, .layout = TOW__LAYOUT(tow_conv_local)};
