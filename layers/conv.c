/* Conv: a correlation along the spatial axes of x [batch..., spatial..., in],
 *
 *   y[i] = sum over k, c of x[stride i + dilation k - low, c] kernel[k, c] + bias,
 *
 * where x outside of its axes is zero, or what the padding says. */
#include "layers/convolution.h"
#include "src/scope/tree.h"

static const char *const padding_names[] = {"SAME", "VALID", "CAUSAL", "CIRCULAR", "REFLECT", "EXPLICIT", "SAME_LOWER"};

static bool check_padding(tow_scope *scope, const char *layer, const tow_conv *m, int n, const tow_conv_options *o)
{
    bool known = m->padding >= TOW_CONV_SAME && m->padding <= TOW_CONV_SAME_LOWER, dilated = false;
    if (!tow__check_option(scope, layer, known, "padding", m->padding, "a tow_conv_padding")) return false;
    if (m->padding == TOW_CONV_CAUSAL && n != 1) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "%s: TOW_CONV_CAUSAL is for one spatial axis, .kernel_size has %d; use TOW_CONV_EXPLICIT", layer,
                       n);
        return false;
    }
    for (int i = 0; i < n; i++) dilated = dilated || o->lhs_dilation[i] > 1;
    if (dilated && m->padding != TOW_CONV_EXPLICIT && m->padding != TOW_CONV_VALID && m->padding != TOW_CONV_CAUSAL) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "%s: TOW_CONV_%s is not defined with .input_dilation; use TOW_CONV_EXPLICIT, or ConvTranspose",
                       layer, padding_names[m->padding]);
        return false;
    }
    return tow__check_pads(scope, layer, m->padding == TOW_CONV_EXPLICIT, n, m->low, m->high);
}

/* The options of the operation, and x [N, spatial..., in] with the elements that it does not pad with zeros. */
static tow_value pad(tow_scope *scope, const char *layer, const tow_conv *m, int n, tow_value x, tow_conv_options *o)
{
    static const tow_padding plain[] = {
        [TOW_CONV_SAME] = TOW_PAD_SAME,       [TOW_CONV_SAME_LOWER] = TOW_PAD_SAME_LOWER,
        [TOW_CONV_CAUSAL] = TOW_PAD_EXPLICIT, [TOW_CONV_EXPLICIT] = TOW_PAD_EXPLICIT,
        [TOW_CONV_VALID] = TOW_PAD_VALID,     [TOW_CONV_CIRCULAR] = TOW_PAD_VALID,
        [TOW_CONV_REFLECT] = TOW_PAD_VALID};
    o->padding = plain[m->padding];
    for (int i = 0; i < n; i++) {
        int64_t reach = (m->kernel_size[i] - 1) * o->rhs_dilation[i];
        if (m->padding == TOW_CONV_CAUSAL) o->low[i] = reach;
        if (m->padding == TOW_CONV_EXPLICIT) o->low[i] = m->low[i], o->high[i] = m->high[i];
        if (m->padding != TOW_CONV_CIRCULAR && m->padding != TOW_CONV_REFLECT) continue;
        if (reach > 0 && tow_value_type(x).dims[1 + i] == 0) {
            tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                           "%s: TOW_CONV_%s has nothing to pad with: spatial axis %d of the input %s is empty", layer,
                           padding_names[m->padding], i, tow__type_name(tow_value_type(x)).text);
            return (tow_value){0};
        }
        x = tow__extend_axis(x, 1 + i, reach / 2, (reach + 1) / 2, m->padding == TOW_CONV_REFLECT);
    }
    return x;
}

static bool check_features(tow_scope *scope, const char *layer, const tow_conv *m, int64_t in, int64_t groups)
{
    if (!tow__check_option(scope, layer, m->features > 0, "features", (double)m->features, "a positive number") ||
        !tow__check_option(scope, layer, m->groups >= 0, "groups", (double)m->groups, "a positive number"))
        return false;
    if (in % groups == 0 && m->features % groups == 0) return true;
    tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                   "%s: .groups = %lld must divide the %lld features of the input and .features = %lld", layer,
                   (long long)groups, (long long)in, (long long)m->features);
    return false;
}

bool tow__read_conv(tow_scope *scope, const char *layer, const tow_conv *m, size_t n_in, const tow_value *in,
                    size_t n_out, tow__conv_call *c)
{
    *c = (tow__conv_call){.o = TOW_CONV_OPTIONS(.feature_groups = m->groups ? m->groups : 1)};
    if (!tow__check_counts(scope, layer, n_in, 1, 2, n_out) || !tow__check_float(scope, layer, 0, in[0], 1))
        return false;
    c->type = tow_value_type(in[0]);
    c->features = c->type.dims[c->type.rank - 1];
    c->n = tow__spatial_axes(scope, layer, "kernel_size", m->kernel_size, in[0]);
    if (c->n == 0 || !check_features(scope, layer, m, c->features, c->o.feature_groups) ||
        !tow__fill_sizes(scope, layer, "strides", c->n, m->strides, 1, c->o.strides) ||
        !tow__fill_sizes(scope, layer, "input_dilation", c->n, m->input_dilation, 1, c->o.lhs_dilation) ||
        !tow__fill_sizes(scope, layer, "kernel_dilation", c->n, m->kernel_dilation, 1, c->o.rhs_dilation) ||
        !check_padding(scope, layer, m, c->n, &c->o) ||
        !tow__read_dtypes(scope, layer, m->dtype, m->param_dtype, 1, in, &c->types))
        return false;
    c->x = pad(scope, layer, m, c->n, tow__one_batch_axis(tow__as(in[0], c->types.compute), c->n), &c->o);
    c->mask = n_in == 2 ? &in[1] : NULL;
    return !tow_is_null(c->x);
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_conv *m = (const tow_conv *)module;
    tow__conv_call c;
    int64_t dims[TOW_MAX_RANK];
    if (!tow__read_conv(scope, "Conv", m, n_in, in, n_out, &c)) return;
    for (int i = 0; i < c.n; i++) dims[i] = m->kernel_size[i];
    dims[c.n] = c.features / c.o.feature_groups;
    dims[c.n + 1] = m->features;
    tow_value kernel = tow__masked_kernel(scope, "Conv", c.n + 2, dims, m->kernel_init, &c.types, c.mask);
    tow_value y = tow_conv_general_dilated(c.x, kernel, &c.o);
    if (!m->no_bias) y = tow__add_bias(scope, y, m->bias_init, &c.types);
    out[0] = tow__batch_axes_of(y, c.type, c.n);
}

const tow_module_class tow_conv_class = {TOW__MADE_BY(TOW_CONV, tow_conv), .name = "Conv", .call = call,
                                         .layout = TOW__LAYOUT(tow_conv)};
