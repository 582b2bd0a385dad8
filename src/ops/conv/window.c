/* Reductions over windows, and pooling over them.
 *   reduce_window_sum, _max, _min: y[p] = the sum (maximum, minimum) of x where the window at p meets it
 *   select_and_gather_add(t, x):   y[p] = t at the element of x that the window at p selects
 *   select_and_scatter_add(t, x):  y = zeros, plus t[p] at that element for each p in order
 * A window selects its first maximum in row-major order (with `minimum` the first minimum), as in JAX. Padding and
 * holes of a dilated operand are no part of a window; a window that meets nothing gives the identity and selects
 * nothing. */
#include "src/base/window.h"
#include "src/ops/rules.h"

/* ---- types ------------------------------------------------------------------------------------------------------- */

static tow_status check_list(const tow__typing *ty, const char *name, const tow__ints *list, int rank, bool required,
                             bool positive)
{
    if (list->n != rank && (required || list->n != 0))
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "%s needs one entry for each of %d axes, found %d", name, rank,
                              list->n);
    for (int i = 0; positive && i < list->n; i++)
        if (list->v[i] < 1)
            return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "%s must be at least 1, found %lld for axis %d", name,
                                  (long long)list->v[i], i);
    return TOW_OK;
}

/* The type of what windows over x give. */
static tow_status window_result(const tow__typing *ty, tow_type x, tow_type *result)
{
    const tow__window_params *p = ty->params;
    tow_status status = check_list(ty, "window", &p->window, x.rank, true, true);
    if (status == TOW_OK) status = check_list(ty, "strides", &p->strides, x.rank, false, true);
    if (status == TOW_OK) status = check_list(ty, "low", &p->low, x.rank, false, false);
    if (status == TOW_OK) status = check_list(ty, "high", &p->high, x.rank, false, false);
    if (status == TOW_OK) status = check_list(ty, "base_dilation", &p->base_dilation, x.rank, false, true);
    if (status == TOW_OK) status = check_list(ty, "window_dilation", &p->window_dilation, x.rank, false, true);
    if (status != TOW_OK) return status;
    *result = x;
    for (int i = 0; i < x.rank; i++) {
        tow__window_axis a = tow__window_axis_of(p, i, x.dims[i]);
        if (!tow__window_result(&a))
            return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                                  "axis %d: sizes, strides, padding and dilations overflow; "
                                  "all must stay below 2^%d",
                                  i, TOW__WINDOW_BITS);
        result->dims[i] = a.result;
    }
    return tow__require_valid(ty, *result);
}

static tow_status reduce_window_type(const tow__typing *ty)
{
    tow_status status = tow__require_dtype(ty, 0, TOW__NUMBERS);
    return status == TOW_OK ? window_result(ty, ty->in[0], &ty->out[0]) : status;
}

static tow_status gather_type(const tow__typing *ty)
{
    tow_status status = tow__require_dtype(ty, 0, TOW__FLOATS);
    if (status == TOW_OK) status = tow__require_same(ty, 0);
    return status == TOW_OK ? window_result(ty, ty->in[1], &ty->out[0]) : status;
}

static tow_status scatter_type(const tow__typing *ty)
{
    tow_type expected;
    tow_status status = tow__require_dtype(ty, 1, TOW__FLOATS);
    if (status == TOW_OK) status = window_result(ty, ty->in[1], &expected);
    if (status != TOW_OK) return status;
    if (!tow_type_equal(ty->in[0], expected))
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "operand 0 must have an element for each window, %s, found %s",
                              tow__type_name(expected).text, tow__type_name(ty->in[0]).text);
    ty->out[0] = ty->in[1];
    return TOW_OK;
}

/* ---- derivatives ------------------------------------------------------------------------------------------------- */

/* The windows of the cotangent whose sums are those of the operand: strides and base dilation change places, and
 * padding is what a convolution with ones has (conv.c). */
static tow__window_params transposed(const tow__window_params *p, tow_type x, tow_type y)
{
    tow__window_params q = {.window = p->window, .window_dilation = p->window_dilation};
    q.strides = p->base_dilation;
    q.base_dilation = p->strides;
    q.low.n = q.high.n = x.rank;
    for (int i = 0; i < x.rank; i++) {
        tow__window_axis a = tow__window_axis_of(p, i, x.dims[i]);
        int64_t reach = tow__dilated(a.window, a.window_dilation);
        q.low.v[i] = reach - 1 - a.low;
        q.high.v[i] =
            tow__dilated(a.size, a.base_dilation) + reach - 1 - q.low.v[i] - tow__dilated(y.dims[i], a.stride);
    }
    return q;
}

static void reduce_window_sum_transpose(tow__transpose *r)
{
    tow_type x = r->in_types[0], y = tow_value_type(r->ct[0]);
    if (tow_type_element_count(x) == 0 || tow_type_element_count(y) == 0) {
        r->dx[0] = tow__zeros(r->t, x);
        return;
    }
    tow__window_params q = transposed(r->e->params, x, y);
    r->dx[0] = tow__op(&tow__reduce_window_sum_p, &q, 1, r->ct);
}

/* Keeps x: what is selected is looked for again. */
static void extremum_jvp(tow__jvp *r)
{
    tow__window_params p = *(const tow__window_params *)r->e->params;
    p.minimum = r->e->primitive == &tow__reduce_window_min_p;
    tow__jvp_primal(r);
    r->dy[0] = tow__op(&tow__select_and_gather_add_p, &p, 2, (tow_value[]){r->dx[0], r->x[0]});
}

/* Linear in operand 0; what operand 1 selects is constant almost everywhere. */
static void select_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    r->dy[0] = tow_is_null(r->dx[0]) ? tow__null()
                                     : tow__op(r->e->primitive, r->e->params, 2, (tow_value[]){r->dx[0], r->x[1]});
}

static void gather_transpose(tow__transpose *r)
{
    r->dx[0] = tow__op(&tow__select_and_scatter_add_p, r->e->params, 2, (tow_value[]){r->ct[0], r->x[1]});
}

static void scatter_transpose(tow__transpose *r)
{
    r->dx[0] = tow__op(&tow__select_and_gather_add_p, r->e->params, 2, (tow_value[]){r->ct[0], r->x[1]});
}

/* Rows are one more axis, along which windows are single elements. */
static void window_batch(tow__batch *r)
{
    tow__window_params p = *(const tow__window_params *)r->e->params;
    tow__ints *lists[] = {&p.window, &p.strides, &p.low, &p.high, &p.base_dilation, &p.window_dilation};
    const int64_t entry[] = {1, 1, 0, 0, 1, 1};
    const int axis = tow__batch_axis(r);
    tow_value in[2];
    for (uint32_t i = 0; i < r->e->n_in; i++) in[i] = tow__batch_operand(r, i, axis);
    for (int k = 0; k < 6; k++) /* lists of scalars have no entries, either */
        if (lists[k]->n > 0 || k == 0) *lists[k] = tow__with_entry(*lists[k], axis, entry[k]);
    tow__batch_bind(r, &p, in, axis);
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* Axes along which windows are single elements, each its own. */
static bool tile_window(const tow__operation *o, int axis, int *from)
{
    tow__window_axis a = tow__window_axis_of(o->params, axis, o->out[0].type.dims[axis]);
    for (uint32_t i = 0; i < o->n_in; i++) {
        from[i] = axis;
        if (!tow__same_extent(o, axis, i, axis)) return false;
    }
    return a.window == 1 && a.stride == 1 && a.base_dilation == 1 && a.low == 0 && a.high == 0;
}

static tow__op_cost window_cost(const tow__operation *o)
{
    const tow__window_params *p = o->params;
    double taps = 1, results = tow__elements(&o->out[0]);
    for (int i = 0; i < p->window.n; i++) taps *= (double)p->window.v[i];
    if (o->n_in > 1 && tow__elements(&o->in[0]) < results) results = tow__elements(&o->in[0]);
    tow__op_cost cost = tow__element_cost(o);
    cost.estimate += results * taps;
    return cost;
}

#define WINDOW_PARAMS                                                                                                  \
    TOW__PARAM(tow__window_params, window, TOW__P_INTS), TOW__PARAM(tow__window_params, strides, TOW__P_INTS),         \
        TOW__PARAM(tow__window_params, low, TOW__P_INTS), TOW__PARAM(tow__window_params, high, TOW__P_INTS),           \
        TOW__PARAM(tow__window_params, base_dilation, TOW__P_INTS),                                                    \
        TOW__PARAM(tow__window_params, window_dilation, TOW__P_INTS)
#define REDUCE_WINDOW(op, ...)                                                                                         \
    TOW__PRIMITIVE(reduce_window_##op, TOW__REDUCTION, tile_window, window_cost, .inputs = 1, .outputs = 1,            \
                   .type = reduce_window_type, .batch = window_batch, TOW__PARAMS(tow__window_params, WINDOW_PARAMS),  \
                   __VA_ARGS__);
#define SELECT(op, rule, transpose_)                                                                                   \
    TOW__PRIMITIVE(                                                                                                    \
        select_and_##op##_add, TOW__REDUCTION, tile_window, window_cost, .operands = "t, x", .inputs = 2,              \
        .outputs = 1, .type = rule, .jvp = select_jvp, .transpose = transpose_, .batch = window_batch,                 \
        TOW__PARAMS(tow__window_params, WINDOW_PARAMS, TOW__PARAM(tow__window_params, minimum, TOW__P_BOOL)));
REDUCE_WINDOW(sum, .transpose = reduce_window_sum_transpose)
REDUCE_WINDOW(max, .jvp = extremum_jvp)
REDUCE_WINDOW(min, .jvp = extremum_jvp)
SELECT(gather, gather_type, gather_transpose)
SELECT(scatter, scatter_type, scatter_transpose)

/* ---- public functions -------------------------------------------------------------------------------------------- */

static bool is_zero(const int64_t *v)
{
    for (int i = 0; i < TOW_MAX_RANK; i++)
        if (v[i] != 0) return false;
    return true;
}

static tow__ints entries(int rank, const int64_t *v, int64_t otherwise)
{
    bool given = !is_zero(v);
    tow__ints list = {.n = rank};
    for (int i = 0; i < rank; i++) list.v[i] = given ? v[i] : otherwise;
    return list;
}

static bool pad_by_name(tow_value x, const char *op, tow_padding padding, tow__window_params *p)
{
    tow_type type = tow_value_type(x);
    if (padding == TOW_PAD_VALID || padding == TOW_PAD_EXPLICIT) return true;
    if (padding != TOW_PAD_SAME && padding != TOW_PAD_SAME_LOWER) {
        tow__op_fail(x, op, TOW_INVALID_ARGUMENT,
                     "padding %d is none of TOW_PAD_VALID, TOW_PAD_SAME, "
                     "TOW_PAD_SAME_LOWER and TOW_PAD_EXPLICIT",
                     (int)padding);
        return false;
    }
    for (int i = 0; i < type.rank; i++) {
        tow__window_axis a = tow__window_axis_of(p, i, type.dims[i]);
        if (a.base_dilation > 1) {
            tow__op_fail(x, op, TOW_INVALID_ARGUMENT,
                         "TOW_PAD_SAME has no meaning for an operand that is dilated; "
                         "give TOW_PAD_EXPLICIT with low and high");
            return false;
        }
        if (!tow__window_result(&a)) return true; /* the type rule says why */
        tow__window_pad_same(&a, padding == TOW_PAD_SAME_LOWER);
        p->low.v[i] = a.low;
        p->high.v[i] = a.high;
    }
    return true;
}

static tow_value reduce_window(const tow_primitive *primitive, tow_value x, const tow_window_options *options)
{
    const char *op = primitive->name;
    if (tow_is_null(x) || !tow__given(x, op, options != NULL, "options with a window")) return tow__null();
    tow_window_options own;
    if (!TOW__TRACE_OPTIONS(x.trace, tow_window_options, options, &own)) return tow__null();
    int rank = tow_value_type(x).rank;
    tow__window_params p = {.window = tow__ints_of(rank, options->window)};
    if (options->padding != TOW_PAD_EXPLICIT && !(is_zero(options->low) && is_zero(options->high)))
        return tow__op_fail(x, op, TOW_INVALID_ARGUMENT,
                            "low and high are given, but the padding is not; give TOW_PAD_EXPLICIT");
    p.strides = entries(rank, options->strides, 1);
    p.low = entries(rank, options->low, 0);
    p.high = entries(rank, options->high, 0);
    p.base_dilation = entries(rank, options->base_dilation, 1);
    p.window_dilation = entries(rank, options->window_dilation, 1);
    return pad_by_name(x, op, options->padding, &p) ? tow__op(primitive, &p, 1, &x) : tow__null();
}

#define X(op)                                                                                                          \
    tow_value tow_reduce_window_##op(tow_value x, const tow_window_options *options)                                   \
    {                                                                                                                  \
        return reduce_window(&tow__reduce_window_##op##_p, x, options);                                                \
    }
X(sum)
X(max)
X(min)
#undef X

/* ---- pooling ----------------------------------------------------------------------------------------------------- */

/* Windows over the spatial axes of x: [batch axes..., spatial..., features]. */
static bool pool_windows(tow_value x, const char *op, const tow_pool_options *options, tow_pool_options *o,
                         tow_window_options *w)
{
    if (!tow__given(x, op, options != NULL, "options with a window")) return false;
    if (!TOW__TRACE_OPTIONS(x.trace, tow_pool_options, options, o)) return false;
    int rank = tow_value_type(x).rank, first = rank - 1 - o->spatial;
    if (o->spatial < 1 || first < 0) {
        tow__op_fail(x, op, TOW_INVALID_ARGUMENT,
                     "%d spatial axes do not fit an operand %s, whose last axis has the "
                     "features; give 1 to %d",
                     o->spatial, tow__type_name(tow_value_type(x)).text, rank - 1);
        return false;
    }
    *w = TOW_WINDOW_OPTIONS(.padding = o->padding);
    const bool strided = !is_zero(o->strides);
    for (int d = 0; d < rank; d++) {
        const int i = d - first;
        const bool spatial = i >= 0 && i < o->spatial;
        w->window[d] = spatial ? o->window[i] : 1;
        w->strides[d] = spatial && strided ? o->strides[i] : 1;
        w->low[d] = spatial ? o->low[i] : 0;
        w->high[d] = spatial ? o->high[i] : 0;
    }
    return true;
}

tow_value tow_max_pool(tow_value x, const tow_pool_options *options)
{
    tow_window_options w;
    tow_pool_options o;
    if (tow_is_null(x) || !pool_windows(x, "max_pool", options, &o, &w)) return tow__null();
    return tow_reduce_window_max(x, &w);
}

tow_value tow_min_pool(tow_value x, const tow_pool_options *options)
{
    tow_window_options w;
    tow_pool_options o;
    if (tow_is_null(x) || !pool_windows(x, "min_pool", options, &o, &w)) return tow__null();
    return tow_reduce_window_min(x, &w);
}

tow_value tow_avg_pool(tow_value x, const tow_pool_options *options)
{
    tow_window_options w;
    tow_pool_options o;
    if (tow_is_null(x) || !pool_windows(x, "avg_pool", options, &o, &w)) return tow__null();
    if (!tow_dtype_is_float(tow_value_type(x).dtype))
        return tow__op_fail(x, "avg_pool", TOW_TYPE_MISMATCH,
                            "%s has no averages of its own type; convert it to a float type first",
                            tow__type_name(tow_value_type(x)).text);
    if (tow__is_half(tow__dtype(x))) /* in f32, rounded once */
        return tow_convert(tow_avg_pool(tow_at(tow_convert(x, TOW_F32), x.here), &o), tow__dtype(x));
    tow_value sum = tow_reduce_window_sum(x, &w);
    if (tow_is_null(sum)) return sum;
    double count = 1;
    for (int i = 0; i < o.spatial; i++) count *= (double)o.window[i];
    if (!o.exclude_padding) return tow_div(tow_at(sum, x.here), tow_full_like(sum, count));
    /* Counts depend on the position alone. */
    tow_type ones = tow_value_type(x);
    for (int d = 0; d < ones.rank; d++)
        if (d < ones.rank - 1 - o.spatial || d == ones.rank - 1) ones.dims[d] = ones.dims[d] > 0;
    tow_value counts = tow_reduce_window_sum(tow_at(tow_full(x.trace, ones, 1), x.here), &w);
    return tow_div(tow_at(sum, x.here), counts);
}
