/* conv_general_dilated: a window of the left operand (dilated, padded) for each result position, times the kernel.
 *   out[n, p, o] = sum over k, i of lhs[n, p * stride + k * rhs_dilation - low, group(o) * I + i] * rhs[k, i, o]
 * with feature groups; with b batch groups the features o of group g see the batch entries g * (N / b) + n alone.
 * Nothing is flipped. Linear in either operand, and both cotangents are convolutions again, with the roles of axes
 * exchanged: their formulas are those of JAX. */
#include "src/base/window.h"
#include "src/ops/rules.h"
#include "src/ops/tiling.h"

/* ---- types ------------------------------------------------------------------------------------------------------- */

static tow_status check_list(const tow__typing *ty, const char *name, const tow__ints *list, int spatial, bool positive)
{
    if (list->n != 0 && list->n != spatial)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "%s needs one entry for each of %d spatial axes, found %d",
                              name, spatial, list->n);
    for (int i = 0; positive && i < list->n; i++)
        if (list->v[i] < 1)
            return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "%s must be at least 1, found %lld for spatial axis %d",
                                  name, (long long)list->v[i], i);
    return TOW_OK;
}

static tow_status check_lists(const tow__typing *ty, const tow__conv_params *p, int spatial)
{
    tow_status status = check_list(ty, "strides", &p->strides, spatial, true);
    if (status == TOW_OK) status = check_list(ty, "low", &p->low, spatial, false);
    if (status == TOW_OK) status = check_list(ty, "high", &p->high, spatial, false);
    if (status == TOW_OK) status = check_list(ty, "lhs_dilation", &p->lhs_dilation, spatial, true);
    return status == TOW_OK ? check_list(ty, "rhs_dilation", &p->rhs_dilation, spatial, true) : status;
}

/* Sizes of batch and feature axes against the groups. */
static tow_status check_groups(const tow__typing *ty, const tow__conv_params *p, const tow__conv_axes *axes)
{
    const int64_t *lhs = ty->in[0].dims, *rhs = ty->in[1].dims;
    int64_t batch = lhs[axes->lhs[0]], features = lhs[axes->lhs[1]], out = rhs[axes->rhs[0]], in = rhs[axes->rhs[1]];
    int64_t groups = p->feature_groups, parts = p->batch_groups, together;
    if (groups < 1 || parts < 1)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "feature_groups and batch_groups must be at least 1, found %lld "
                              "and %lld",
                              (long long)groups, (long long)parts);
    if (groups > 1 && parts > 1)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "feature_groups and batch_groups cannot both exceed 1, found "
                              "%lld and %lld",
                              (long long)groups, (long long)parts);
    if (__builtin_mul_overflow(in, groups, &together) || together != features)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "the left operand must have feature_groups times as many features "
                              "as the kernel takes, found %lld features for %lld groups of %lld",
                              (long long)features, (long long)groups, (long long)in);
    if (out % groups != 0 || out % parts != 0)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "the kernel's %lld features do not divide into %lld groups",
                              (long long)out, (long long)(groups > 1 ? groups : parts));
    if (batch % parts != 0)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "the batch of %lld does not divide into %lld batch groups",
                              (long long)batch, (long long)parts);
    return TOW_OK;
}

static tow_status check_operands(const tow__typing *ty, tow__conv_axes *axes, tow_dtype *dtype)
{
    const tow__conv_params *p = ty->params;
    tow_status status = tow__product_dtype(ty, p->preferred, dtype);
    if (status != TOW_OK) return status;
    if (!tow__conv_axes_read(p->dimensions, axes))
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "expected dimension numbers such as \"NHWC,HWIO->NHWC\" (left operand, kernel, result; N "
                              "batch, C features, O and I features of the kernel, any other letters spatial axes), "
                              "found %s%.60s%s",
                              p->dimensions ? "\"" : "", p->dimensions ? p->dimensions : "none",
                              p->dimensions ? "\"" : "");
    for (size_t i = 0; i < 2 && status == TOW_OK; i++) status = tow__require_rank(ty, i, axes->spatial + 2);
    return status;
}

static tow_status conv_type(const tow__typing *ty)
{
    const tow__conv_params *p = ty->params;
    tow__conv_axes axes;
    tow_dtype dtype;
    tow_status status = check_operands(ty, &axes, &dtype);
    if (status == TOW_OK) status = check_lists(ty, p, axes.spatial);
    if (status == TOW_OK) status = check_groups(ty, p, &axes);
    if (status != TOW_OK) return status;
    tow_type out = {.dtype = dtype, .rank = axes.spatial + 2};
    out.dims[axes.out[0]] = ty->in[0].dims[axes.lhs[0]] / p->batch_groups;
    out.dims[axes.out[1]] = ty->in[1].dims[axes.rhs[0]];
    for (int i = 0; i < axes.spatial; i++) {
        tow__window_axis a = tow__conv_axis(p, &axes, i, ty->in[0].dims, ty->in[1].dims);
        if (!tow__window_result(&a))
            return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                                  "spatial axis %d: sizes, strides, padding and dilations "
                                  "overflow; all must stay below 2^%d",
                                  i, TOW__WINDOW_BITS);
        out.dims[axes.out[2 + i]] = a.result;
    }
    ty->out[0] = out;
    return tow__require_valid(ty, out);
}

/* ---- derivatives ------------------------------------------------------------------------------------------------- */

static tow_value bind_conv(tow_value lhs, tow_value rhs, const tow__conv_params *p)
{
    return tow__op(&tow__conv_general_dilated_p, p, 2, (tow_value[]){lhs, rhs});
}

static void conv_jvp(tow__jvp *r)
{
    const tow__conv_params *p = r->e->params;
    tow__jvp_primal(r);
    tow_value a = tow_is_null(r->dx[0]) ? tow__null() : bind_conv(r->dx[0], r->x[1], p);
    tow_value b = tow_is_null(r->dx[1]) ? tow__null() : bind_conv(r->x[0], r->dx[1], p);
    r->dy[0] = tow__add_or(a, b);
}

/* Axis `from` is split into (groups, rest), and `groups` becomes the outer part of axis `to`. */
static tow_value move_groups(tow_value x, int64_t groups, int from, int to)
{
    tow_type type = tow_value_type(x);
    int64_t split[TOW_MAX_RANK + 1], joined[TOW_MAX_RANK];
    int order[TOW_MAX_RANK + 1], n = 0;
    if (groups == 1 || tow_is_null(x)) return x;
    if (type.rank == TOW_MAX_RANK) { /* no axis is left for the groups: spatial axes become one meanwhile */
        int64_t merged[TOW_MAX_RANK];
        int first = 0, rank = 0, places[TOW_MAX_RANK];
        while (first == from || first == to || first + 1 == from || first + 1 == to) first++;
        for (int d = 0; d < type.rank; d++) {
            places[d] = d == first + 1 ? rank - 1 : rank;
            if (d == first + 1)
                merged[rank - 1] *= type.dims[d];
            else
                merged[rank++] = type.dims[d];
        }
        x = move_groups(tow_reshape(x, rank, merged), groups, places[from], places[to]);
        type.dims[from] /= groups;
        type.dims[to] *= groups;
        return tow_reshape(x, type.rank, type.dims);
    }
    for (int d = 0; d < type.rank; d++) {
        if (d == from) split[n++] = groups;
        split[n++] = d == from ? type.dims[d] / groups : type.dims[d];
        joined[d] = d == from ? type.dims[d] / groups : d == to ? type.dims[d] * groups : type.dims[d];
    }
    n = 0;
    for (int d = 0; d < type.rank; d++) {
        if (d == to) order[n++] = from;
        order[n++] = d >= from ? d + 1 : d;
    }
    return tow_reshape(tow_transpose(tow_reshape(x, n, split), n, order), type.rank, joined);
}

/* The first two of a list of axes. */
static void swap(int *axes)
{
    int first = axes[0];
    axes[0] = axes[1], axes[1] = first;
}

static void exchange(int64_t *a, int64_t *b)
{
    int64_t first = *a;
    *a = *b, *b = first;
}

/* Binds a convolution whose lists are in the order of `axes`: text has them in the order of the kernel's axes. */
static tow_value bind_axes(tow_value lhs, tow_value rhs, tow__conv_axes *axes, tow__conv_params *p)
{
    tow__ints *lists[] = {&p->strides, &p->low, &p->high, &p->lhs_dilation, &p->rhs_dilation};
    char text[TOW__CONV_TEXT];
    for (int last = axes->spatial - 1; last > 0; last--)
        for (int i = 0; i < last; i++) {
            if (axes->rhs[2 + i] < axes->rhs[3 + i]) continue;
            swap(&axes->lhs[2 + i]), swap(&axes->rhs[2 + i]), swap(&axes->out[2 + i]);
            for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
                if (lists[k]->n > 0) exchange(&lists[k]->v[i], &lists[k]->v[i + 1]);
        }
    tow__conv_axes_write(axes, text);
    p->dimensions = text;
    return bind_conv(lhs, rhs, p);
}

static tow__ints spatial_list(int spatial) { return (tow__ints){.n = spatial}; }

/* ct . reversed kernel: the strides become dilation and the dilation strides. Batch groups become feature groups of ct,
 * whose results are parts of the batch. */
static tow_value transpose_lhs(const tow__conv_params *p, const tow__conv_axes *axes, tow_value ct, tow_value rhs,
                               tow_type lhs)
{
    tow_type kernel = tow_value_type(rhs), out = tow_value_type(ct);
    const int64_t groups = p->feature_groups > 1 ? p->feature_groups : p->batch_groups;
    tow__conv_params q = {.feature_groups = groups, .batch_groups = 1, .rhs_dilation = p->rhs_dilation};
    tow__conv_axes t = {.spatial = axes->spatial};
    memcpy(t.lhs, axes->out, sizeof t.lhs);
    memcpy(t.rhs, axes->rhs, sizeof t.rhs);
    memcpy(t.out, axes->lhs, sizeof t.out);
    swap(t.rhs);
    q.strides = p->lhs_dilation;
    q.lhs_dilation = p->strides;
    q.low = q.high = spatial_list(axes->spatial);
    for (int i = 0; i < axes->spatial; i++) {
        tow__window_axis a = tow__conv_axis(p, axes, i, lhs.dims, kernel.dims);
        int64_t reach = tow__dilated(a.window, a.window_dilation);
        q.low.v[i] = reach - 1 - a.low;
        q.high.v[i] = tow__dilated(a.size, a.base_dilation) + reach - 1 - q.low.v[i] -
                      tow__dilated(out.dims[axes->out[2 + i]], a.stride);
    }
    rhs = move_groups(rhs, groups, axes->rhs[0], axes->rhs[1]);
    if (axes->spatial > 0) rhs = tow_rev(rhs, axes->spatial, &axes->rhs[2]);
    return move_groups(bind_axes(ct, rhs, &t, &q), p->batch_groups, axes->lhs[1], axes->lhs[0]);
}

/* lhs with batch and features exchanged . ct as a kernel, whose sum is over the batch and over positions. */
static tow_value transpose_rhs(const tow__conv_params *p, const tow__conv_axes *axes, tow_value ct, tow_value lhs,
                               tow_type kernel)
{
    tow_type x = tow_value_type(lhs), out = tow_value_type(ct);
    tow__conv_params q = {.feature_groups = p->batch_groups, .batch_groups = p->feature_groups};
    tow__conv_axes t = {.spatial = axes->spatial};
    memcpy(t.lhs, axes->lhs, sizeof t.lhs);
    memcpy(t.rhs, axes->out, sizeof t.rhs);
    memcpy(t.out, axes->rhs, sizeof t.out);
    swap(t.lhs), swap(t.rhs), swap(t.out);
    q.strides = p->rhs_dilation;
    q.lhs_dilation = p->lhs_dilation;
    q.rhs_dilation = p->strides;
    q.low = q.high = spatial_list(axes->spatial);
    for (int i = 0; i < axes->spatial; i++) {
        tow__window_axis a = tow__conv_axis(p, axes, i, x.dims, kernel.dims);
        q.low.v[i] = a.low;
        q.high.v[i] = tow__dilated(out.dims[axes->out[2 + i]], a.stride) - tow__dilated(a.size, a.base_dilation) +
                      tow__dilated(a.window, a.window_dilation) - a.low - 1;
    }
    return bind_axes(lhs, ct, &t, &q);
}

static void conv_transpose(tow__transpose *r)
{
    const tow__conv_params *p = r->e->params;
    int side = r->linear[0] ? 0 : 1;
    tow__conv_axes axes;
    tow__conv_axes_read(p->dimensions, &axes);
    /* in the type of the sums; the result is rounded to the operand's */
    const tow_dtype dtype = tow__dtype(r->ct[0]);
    bool empty = tow_type_element_count(tow_value_type(r->ct[0])) == 0;
    for (size_t i = 0; i < 2; i++) empty = empty || tow_type_element_count(r->in_types[i]) == 0;
    if (empty) /* sizes of nothing are lost in strides */
        r->dx[side] = tow__zeros(r->t, r->in_types[side]);
    else if (side == 0)
        r->dx[0] = transpose_lhs(p, &axes, r->ct[0], tow_convert(r->x[1], dtype), r->in_types[0]);
    else
        r->dx[1] = transpose_rhs(p, &axes, r->ct[0], tow_convert(r->x[0], dtype), r->in_types[1]);
    r->dx[side] = tow_convert(r->dx[side], r->in_types[side].dtype);
}

/* ---- batching ---------------------------------------------------------------------------------------------------- */

/* Rows become the outer part of axis `at` of each row's array. */
static tow_value join_rows(const tow__batch *r, uint32_t i, int at)
{
    tow_type type = r->in[i];
    type.dims[at] *= r->size;
    return tow_reshape(tow__batch_operand(r, i, at), type.rank, type.dims);
}

/* Rows of the left operand alone join its batch, rows of the kernel alone its features. Else they become groups, so
 * that what a group computes, and with it the way it is computed, stays as it is. */
static void conv_batch(tow__batch *r)
{
    tow__conv_params p = *(const tow__conv_params *)r->e->params;
    tow_value in[2] = {r->x[0].value, r->x[1].value};
    const bool left = tow__is_batched(r->x[0]), right = tow__is_batched(r->x[1]);
    tow__conv_axes axes;
    tow__conv_axes_read(p.dimensions, &axes);
    int at = axes.out[1];
    if (r->size == 0) { /* no groups */
        r->looped(r);
        return;
    }
    if (!right && p.batch_groups == 1) {
        in[0] = join_rows(r, 0, axes.lhs[0]);
        at = axes.out[0];
    } else if (!left && p.batch_groups == 1 && p.feature_groups == 1) {
        in[1] = join_rows(r, 1, axes.rhs[0]);
    } else {
        in[0] = join_rows(r, 0, p.batch_groups > 1 ? axes.lhs[0] : axes.lhs[1]);
        in[1] = join_rows(r, 1, axes.rhs[0]);
        if (p.batch_groups > 1)
            p.batch_groups *= r->size;
        else
            p.feature_groups *= r->size;
    }
    tow_value y = bind_conv(in[0], in[1], &p);
    tow_type rows = tow__with_axis(r->out[0], at, r->size);
    r->y[0] = (tow__mapped){.value = tow_reshape(y, rows.rank, rows.dims), .axis = at};
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* Batch entries are independent, and so are features of the result, but for groups. */
static bool tile_conv(const tow__operation *o, int axis, int *from)
{
    const tow__conv_params *p = o->params;
    tow__conv_axes axes;
    from[0] = from[1] = TOW__WHOLE;
    for (uint32_t i = 2; i < o->n_in; i++) { /* read behind the convolution when that is finished */
        from[i] = tow__in_type(o, i)->rank > 0 ? axis : TOW__WHOLE;
        if (from[i] == axis && !tow__same_extent(o, axis, i, axis)) return false;
    }
    if (p->batch_groups > 1 || !tow__conv_axes_read(p->dimensions, &axes)) return false;
    if (axis == axes.out[0])
        from[0] = axes.lhs[0];
    else if (axis == axes.out[1] && p->feature_groups == 1)
        from[1] = axes.rhs[0];
    else
        return false;
    return true;
}

/* Features of the operand: those of the derivative with respect to a kernel are batch entries. Batch groups, which are
 * feature groups of the convolution that is differentiated, have all of these features each. */
static bool sum_conv(const tow__operation *o, uint32_t i, int axis, int *from)
{
    const tow__conv_params *p = o->params;
    tow__conv_axes axes;
    if (p->feature_groups > 1 || !tow__conv_axes_read(p->dimensions, &axes)) return false;
    from[0] = axes.lhs[1];
    from[1] = axes.rhs[1];
    return i < 2 && axis == from[i];
}

static tow__op_cost conv_cost(const tow__operation *o)
{
    const tow__conv_params *p = o->params;
    const tow_type *kernel = tow__in_type(o, 1);
    tow__conv_axes axes;
    if (!tow__conv_axes_read(p->dimensions, &axes)) return tow__exact_cost(0);
    double features = (double)kernel->dims[axes.rhs[0]];
    return tow__exact_cost(features > 0 ? 2 * tow__elements(&o->out[0]) * tow__elements(&o->in[1]) / features : 0);
}

TOW__PRIMITIVE(conv_general_dilated, TOW__CONVOLUTION, tile_conv, conv_cost, .sums = sum_conv,
               .product = TOW__BATCHED_PRODUCT, .operands = "lhs, rhs", .inputs = 2, .outputs = 1, .type = conv_type,
               .jvp = conv_jvp, .transpose = conv_transpose, .linear_in = tow__linear_in_one, .batch = conv_batch,
               TOW__PARAMS(tow__conv_params, TOW__PARAM(tow__conv_params, dimensions, TOW__P_STRING),
                           TOW__PARAM(tow__conv_params, strides, TOW__P_INTS),
                           TOW__PARAM(tow__conv_params, low, TOW__P_INTS),
                           TOW__PARAM(tow__conv_params, high, TOW__P_INTS),
                           TOW__PARAM(tow__conv_params, lhs_dilation, TOW__P_INTS),
                           TOW__PARAM(tow__conv_params, rhs_dilation, TOW__P_INTS),
                           TOW__PARAM(tow__conv_params, feature_groups, TOW__P_INT),
                           TOW__PARAM(tow__conv_params, batch_groups, TOW__P_INT),
                           TOW__PARAM(tow__conv_params, preferred, TOW__P_SUM_DTYPE),
                           TOW__PARAM(tow__conv_params, of_halves, TOW__P_OF_HALVES)));

/* ---- public functions -------------------------------------------------------------------------------------------- */

/* `spatial` entries; all zero: `otherwise`. */
static tow__ints entries(int spatial, const int64_t *v, int64_t otherwise)
{
    tow__ints list = {.n = spatial};
    bool given = false;
    for (int i = 0; i < spatial; i++) given = given || v[i] != 0;
    for (int i = 0; i < spatial; i++) list.v[i] = given ? v[i] : otherwise;
    return list;
}

/* Padding by name needs the sizes; what is wrong with them is left to the type rule. */
static bool pad_by_name(tow_value lhs, tow_value rhs, const tow__conv_axes *axes, tow_padding padding,
                        tow__conv_params *p)
{
    tow_type x = tow_value_type(lhs), w = tow_value_type(rhs);
    if (padding == TOW_PAD_VALID || padding == TOW_PAD_EXPLICIT) return true;
    if (padding != TOW_PAD_SAME && padding != TOW_PAD_SAME_LOWER) {
        tow__op_fail(lhs, "conv_general_dilated", TOW_INVALID_ARGUMENT,
                     "padding %d is none of TOW_PAD_VALID, "
                     "TOW_PAD_SAME, TOW_PAD_SAME_LOWER and TOW_PAD_EXPLICIT",
                     (int)padding);
        return false;
    }
    if (x.rank != axes->spatial + 2 || w.rank != axes->spatial + 2) return true;
    for (int i = 0; i < axes->spatial; i++) {
        tow__window_axis a = tow__conv_axis(p, axes, i, x.dims, w.dims);
        if (a.base_dilation > 1) {
            tow__op_fail(lhs, "conv_general_dilated", TOW_INVALID_ARGUMENT,
                         "TOW_PAD_SAME has no meaning for a left "
                         "operand that is dilated; give TOW_PAD_EXPLICIT with low and high");
            return false;
        }
        if (!tow__window_result(&a)) return true;
        tow__window_pad_same(&a, padding == TOW_PAD_SAME_LOWER);
        p->low.v[i] = a.low;
        p->high.v[i] = a.high;
    }
    return true;
}

static bool is_zero(const int64_t *v)
{
    for (int i = 0; i < TOW_MAX_RANK; i++)
        if (v[i] != 0) return false;
    return true;
}

static tow_value conv_general_dilated(tow_value lhs, tow_value rhs, const tow_conv_options *options, int64_t preferred)
{
    tow_conv_options o = TOW_CONV_OPTIONS();
    if (!TOW__TRACE_OPTIONS(lhs.trace, tow_conv_options, options, &o)) return tow__null();
    tow__conv_axes axes = {0};
    char text[TOW__CONV_TEXT];
    if (tow__any_null(2, (tow_value[]){lhs, rhs})) return tow__null();
    int rank = tow_value_type(lhs).rank;
    tow__conv_params p = {.dimensions = o.dimensions != NULL ? o.dimensions : text, .preferred = preferred};
    if (o.dimensions == NULL && rank < 2)
        return tow__op_fail(lhs, "conv_general_dilated", TOW_SHAPE_MISMATCH,
                            "the left operand needs a batch and a feature axis, found %s",
                            tow__type_name(tow_value_type(lhs)).text);
    if (o.dimensions == NULL) axes = tow__conv_axes_last(rank - 2);
    if (o.dimensions == NULL || tow__conv_axes_read(o.dimensions, &axes)) {
        tow__conv_axes_write(&axes, text);
        p.dimensions = text;
    }
    if (o.padding != TOW_PAD_EXPLICIT && !(is_zero(o.low) && is_zero(o.high)))
        return tow__op_fail(lhs, "conv_general_dilated", TOW_INVALID_ARGUMENT,
                            "low and high are given, but the padding is not; give TOW_PAD_EXPLICIT");
    p.strides = entries(axes.spatial, o.strides, 1);
    p.lhs_dilation = entries(axes.spatial, o.lhs_dilation, 1);
    p.rhs_dilation = entries(axes.spatial, o.rhs_dilation, 1);
    p.low = entries(axes.spatial, o.low, 0);
    p.high = entries(axes.spatial, o.high, 0);
    p.feature_groups = o.feature_groups != 0 ? o.feature_groups : 1;
    p.batch_groups = o.batch_groups != 0 ? o.batch_groups : 1;
    if (!pad_by_name(lhs, rhs, &axes, o.padding, &p)) return tow__null();
    return bind_conv(lhs, rhs, &p);
}

tow_value tow_conv_general_dilated(tow_value lhs, tow_value rhs, const tow_conv_options *options)
{
    return conv_general_dilated(lhs, rhs, options, 0);
}

tow_value tow_conv_general_dilated_with(tow_value lhs, tow_value rhs, const tow_conv_options *options,
                                        tow_dtype preferred)
{
    return conv_general_dilated(lhs, rhs, options, 1 + (int64_t)preferred);
}
