/* Pool: tow_max_pool, tow_avg_pool and tow_min_pool as a layer. AdaptivePool: pools to a given size. */
#include "layers/convolution.h"
#include "src/scope/tree.h"

static bool check_kind(tow_scope *scope, const char *layer, tow_pool_kind kind)
{
    return tow__check_option(scope, layer, kind >= TOW_POOL_MAX && kind <= TOW_POOL_MIN, "kind", kind,
                             "TOW_POOL_MAX, TOW_POOL_AVG or TOW_POOL_MIN");
}

static tow_value pool(tow_pool_kind kind, tow_value x, const tow_pool_options *o)
{
    if (kind == TOW_POOL_AVG) return tow_avg_pool(x, o);
    return kind == TOW_POOL_MAX ? tow_max_pool(x, o) : tow_min_pool(x, o);
}

static void call_pool(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    const tow_pool *m = (const tow_pool *)module;
    tow_pool_options o = TOW_POOL_OPTIONS(.padding = m->padding, .exclude_padding = m->exclude_padding);
    if (!tow__check_counts(scope, "Pool", n_in, 1, 1, n_out) || !check_kind(scope, "Pool", m->kind)) return;
    o.spatial = tow__spatial_axes(scope, "Pool", "window", m->window, in[0]);
    if (o.spatial == 0 || !tow__fill_sizes(scope, "Pool", "strides", o.spatial, m->strides, 1, o.strides) ||
        !tow__check_pads(scope, "Pool", m->padding == TOW_PAD_EXPLICIT, o.spatial, m->low, m->high))
        return;
    for (int i = 0; i < o.spatial; i++) {
        o.window[i] = m->window[i];
        o.low[i] = m->low[i];
        o.high[i] = m->high[i];
    }
    out[0] = pool(m->kind, in[0], &o);
}

/* ---- AdaptivePool ------------------------------------------------------------------------------------------------ */

enum {
    MOST_WINDOWS = 4096 /* of sizes of their own: each is an operation */
};

/* One window that covers the whole axis. */
static tow_value pool_axis(tow_pool_kind kind, tow_value x, int axis)
{
    tow_type type = tow_value_type(x);
    tow_pool_options o = TOW_POOL_OPTIONS(.spatial = type.rank - 1 - axis);
    for (int i = 0; i < o.spatial; i++) o.window[i] = i == 0 ? type.dims[axis] : 1;
    return pool(kind, x, &o);
}

/* The axis with `size` elements, each pooled from a window of its own; one operation where all windows are equal. */
static tow_value adapt(tow_pool_kind kind, tow_value x, int axis, int64_t size)
{
    tow_type type = tow_value_type(x);
    int64_t n = type.dims[axis];
    if (size == n) return x;
    if (n % size == 0) {
        tow_pool_options o = TOW_POOL_OPTIONS(.spatial = type.rank - 1 - axis);
        for (int i = 0; i < o.spatial; i++) o.window[i] = o.strides[i] = i == 0 ? n / size : 1;
        return pool(kind, x, &o);
    }
    tow_value y = {0};
    for (int64_t i = 0, whole = n / size, rest = n % size; i < size; i++) {
        int64_t start = i * whole + i * rest / size, limit = (i + 1) * whole + ((i + 1) * rest + size - 1) / size;
        tow_value piece = pool_axis(kind, tow_slice_axis(x, axis, start, limit), axis);
        y = i == 0 ? piece : tow_concatenate(2, (tow_value[]){y, piece}, axis);
        if (tow_is_null(y)) break;
    }
    return y;
}

static void call_adaptive(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    const tow_adaptive_pool *m = (const tow_adaptive_pool *)module;
    int64_t sizes[TOW_MAX_RANK];
    if (!tow__check_counts(scope, "AdaptivePool", n_in, 1, 1, n_out) || !check_kind(scope, "AdaptivePool", m->kind))
        return;
    for (int i = 0; i < TOW_MAX_RANK; i++) sizes[i] = m->size[i] == -1 ? 1 : m->size[i];
    int n = tow__spatial_axes(scope, "AdaptivePool", "size", sizes, in[0]);
    tow_type type = tow_value_type(in[0]);
    tow_value x = in[0];
    for (int i = n - 1; i >= 0; i--) { /* the last axis first: ties go to the first element in row-major order */
        int axis = type.rank - 1 - n + i;
        if (m->size[i] == -1) continue;
        if (!tow__check_option(scope, "AdaptivePool", m->size[i] <= MOST_WINDOWS || type.dims[axis] % m->size[i] == 0,
                               "size", (double)m->size[i], "at most 4096 windows, or a divisor of the axis"))
            return;
        if (type.dims[axis] == 0) {
            tow_scope_fail(scope, TOW_SHAPE_MISMATCH, "AdaptivePool: axis %d of the input %s has no elements to pool",
                           axis, tow__type_name(type).text);
            return;
        }
        x = adapt(m->kind, x, axis, m->size[i]);
        if (tow_is_null(x)) return;
    }
    if (n > 0) out[0] = x;
}

const tow_module_class tow_pool_class = {TOW__MADE_BY(TOW_POOL, tow_pool), .name = "Pool", .call = call_pool,
                                         .layout = TOW__LAYOUT(tow_pool)};
const tow_module_class tow_adaptive_pool_class = {TOW__MADE_BY(TOW_ADAPTIVE_POOL, tow_adaptive_pool),
                                                  .name = "AdaptivePool", .call = call_adaptive,
                                                  .layout = TOW__LAYOUT(tow_adaptive_pool)};
