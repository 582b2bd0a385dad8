/* sort, top_k, searchsorted, argmin. Their results are numbered by i32 indices; tangents of sort and top_k are gathered
 * by these, which are all that is kept. */
#include "src/ops/indexing/indexing.h"
#include "src/ops/rules.h"
#include "tow/ops.h"

static tow_status countable_axis(const tow__typing *ty, int64_t axis)
{
    tow_status status = tow__require_axis(ty, axis);
    if (status != TOW_OK || ty->in[0].dims[axis] <= INT32_MAX) return status;
    return tow__type_fail(ty, TOW_UNSUPPORTED, "axis %lld of %s has more than 2^31 - 1 elements", (long long)axis,
                          tow__type_name(ty->in[0]).text);
}

tow__op_cost tow__sort_cost(const tow__operation *o)
{
    int64_t size = o->in[0].type.dims[((const tow__axis_params *)o->params)->axis];
    double digits = 1;
    for (; size > 1; size /= 2) digits++;
    tow__op_cost cost = tow__element_cost(o);
    cost.estimate *= digits;
    return cost;
}

/* ---- sort(x...) -> y... ------------------------------------------------------------------------------------------ */

static tow_status sort_type(const tow__typing *ty)
{
    const tow__sort_params *p = ty->params;
    if (ty->n_in == 0) return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "expected at least one operand, found none");
    tow_status status = tow__require_count(ty, ty->n_in, ty->n_in);
    if (status == TOW_OK) status = countable_axis(ty, p->axis);
    if (status != TOW_OK) return status;
    if (p->num_keys < 1 || (uint64_t)p->num_keys > ty->n_in)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "num_keys must be in [1, %zu], found %lld", ty->n_in,
                              (long long)p->num_keys);
    for (size_t i = 0; i < ty->n_in; i++) {
        tow_type type = ty->in[i];
        type.dtype = ty->in[0].dtype;
        if (!tow_type_equal(type, ty->in[0]))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                  "operands that are sorted together must have one shape, found %s and %s",
                                  tow__type_name(ty->in[0]).text, tow__type_name(ty->in[i]).text);
        ty->out[i] = ty->in[i];
    }
    return TOW_OK;
}

/* Sorts the place of each element along and takes the tangents from these places. */
static void sort_jvp(tow__jvp *r)
{
    const tow__sort_params *p = r->e->params;
    size_t n = r->e->n_in;
    tow_value *x = tow__trace_alloc(r->t, n + 1, sizeof *x), *y = tow__trace_alloc(r->t, n + 1, sizeof *y);
    if (!x || !y) return;
    for (size_t i = 0; i < n; i++) x[i] = r->x[i];
    x[n] = tow_iota_like(x[0], (int)p->axis);
    if (tow_is_null(x[n])) return;
    tow__bind(r->t, &tow__sort_p, p, n + 1, x, n + 1, y);
    tow_value order = tow__index_vectors(y[n]);
    for (size_t i = 0; i < n; i++) {
        r->y[i] = y[i];
        if (!tow_is_null(r->dx[i])) r->dy[i] = tow__take_at(r->dx[i], order, (int)p->axis);
    }
}

static void sort_batch(tow__batch *r)
{
    tow__sort_params p = *(const tow__sort_params *)r->e->params;
    int axis = tow__batch_axis(r);
    tow_value *in = tow__trace_alloc(r->t, r->e->n_in, sizeof *in);
    p.axis = tow__shifted(p.axis, axis);
    for (uint32_t i = 0; in && i < r->e->n_in; i++) in[i] = tow__batch_operand(r, i, axis);
    if (in) tow__batch_bind(r, &p, in, axis);
}

TOW__PRIMITIVE(sort, TOW__MOVE, tow__tile_along_axis, tow__sort_cost, .inputs = -1, .outputs = -1, .type = sort_type,
               .jvp = sort_jvp, .batch = sort_batch,
               TOW__PARAMS(tow__sort_params, TOW__PARAM(tow__sort_params, axis, TOW__P_INT),
                           TOW__PARAM(tow__sort_params, num_keys, TOW__P_INT)));

tow_value tow_sort_together(size_t n, const tow_value *x, size_t num_keys, int axis, tow_value *results)
{
    tow__sort_params p = {.num_keys = num_keys > INT32_MAX ? INT32_MAX : (int64_t)num_keys};
    if (n == 0 || !x) return tow__null_because(TOW__NULL_SORT);
    if (!results) return tow__null();
    if (tow__any_null(n, x) || !tow__normal_axis(x[0], "sort", axis, tow_value_type(x[0]).rank, &p.axis))
        for (size_t i = 0; i < n; i++) results[i] = tow__null();
    else
        tow__bind(x[0].trace, &tow__sort_p, &p, n, x, n, results);
    return results[0];
}

tow_value tow_sort(tow_value x, int axis, bool descending)
{
    tow_value y = tow__null();
    if (tow_is_null(x)) return x;
    y = tow_sort_together(1, &x, 1, axis, &y);
    return descending ? tow_rev(y, 1, &axis) : y;
}

tow_value tow_argsort(tow_value x, int axis, bool descending)
{
    if (tow_is_null(x)) return x;
    tow_value v[2] = {x, tow_iota_like(x, axis)};
    if (tow_is_null(v[1])) return v[1];
    for (int i = 0; descending && i < 2; i++) v[i] = tow_rev(v[i], 1, &axis);
    if (tow_is_null(tow_sort_together(2, v, 1, axis, v))) return tow__null();
    return descending ? tow_rev(v[1], 1, &axis) : v[1];
}

/* ---- top_k(x) -> values, indices --------------------------------------------------------------------------------- */

static tow_status top_k_type(const tow__typing *ty)
{
    const tow__top_k_params *p = ty->params;
    tow_status status = countable_axis(ty, p->axis);
    if (status == TOW_OK) status = tow__require_dtype(ty, 0, TOW__NUMBERS);
    if (status != TOW_OK) return status;
    if (p->k < 0 || p->k > ty->in[0].dims[p->axis])
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "k must be in [0, %lld], the size of axis %lld, found %lld",
                              (long long)ty->in[0].dims[p->axis], (long long)p->axis, (long long)p->k);
    ty->out[0] = ty->out[1] = ty->in[0];
    ty->out[0].dims[p->axis] = ty->out[1].dims[p->axis] = p->k;
    ty->out[1].dtype = TOW_I32;
    return TOW_OK;
}

static void top_k_jvp(tow__jvp *r)
{
    const tow__top_k_params *p = r->e->params;
    tow__jvp_primal(r);
    r->dy[0] = tow__take_at(r->dx[0], tow__index_vectors(r->y[1]), (int)p->axis);
}

static void top_k_batch(tow__batch *r)
{
    tow__top_k_params p = *(const tow__top_k_params *)r->e->params;
    p.axis = tow__shifted(p.axis, r->x[0].axis);
    tow__batch_bind(r, &p, &r->x[0].value, r->x[0].axis);
}

static bool tile_top_k(const tow__operation *o, int axis, int *from)
{
    from[0] = axis;
    return ((const tow__top_k_params *)o->params)->axis != axis;
}

TOW__PRIMITIVE(top_k, TOW__MOVE, tile_top_k, tow__sort_cost, .inputs = 1, .outputs = 2, .type = top_k_type,
               .jvp = top_k_jvp, .batch = top_k_batch,
               TOW__PARAMS(tow__top_k_params, TOW__PARAM(tow__top_k_params, axis, TOW__P_INT),
                           TOW__PARAM(tow__top_k_params, k, TOW__P_INT)));

tow_value tow_top_k(tow_value x, int64_t k, int axis, tow_value *values, tow_value *indices)
{
    tow__top_k_params p = {.k = k};
    tow_value y[2] = {{0}};
    if (!tow_is_null(x) && tow__normal_axis(x, "top_k", axis, tow_value_type(x).rank, &p.axis))
        tow__bind(x.trace, &tow__top_k_p, &p, 1, &x, 2, y);
    if (values) *values = y[0];
    if (indices) *indices = y[1];
    return y[0];
}

/* ---- searchsorted(a [n], v) -> i32 ------------------------------------------------------------------------------- */

static tow_status searchsorted_type(const tow__typing *ty)
{
    tow_status status = tow__require_rank(ty, 0, 1);
    if (status == TOW_OK) status = countable_axis(ty, 0);
    if (status == TOW_OK) status = tow__require_dtype(ty, 0, TOW__NUMBERS);
    if (status != TOW_OK) return status;
    if (ty->in[0].dtype != ty->in[1].dtype)
        return tow__type_fail(ty, TOW_TYPE_MISMATCH,
                              "operands must have one element type, found %s and %s; convert one with tow_convert",
                              tow__type_name(ty->in[0]).text, tow__type_name(ty->in[1]).text);
    ty->out[0] = ty->in[1];
    ty->out[0].dtype = TOW_I32;
    return TOW_OK;
}

/* More numbers to search for; of several arrays to search in, one after the other. */
static void searchsorted_batch(tow__batch *r)
{
    if (tow__is_batched(r->x[0]))
        r->looped(r);
    else
        tow__batch_bind(r, r->e->params, (tow_value[]){r->x[0].value, r->x[1].value}, r->x[1].axis);
}

static bool tile_searchsorted(const tow__operation *o, int axis, int *from)
{
    (void)o;
    from[0] = TOW__WHOLE;
    from[1] = axis;
    return true;
}

TOW__PRIMITIVE(searchsorted, TOW__MOVE, tile_searchsorted, tow__element_cost, .operands = "sorted, v", .inputs = 2,
               .outputs = 1, .type = searchsorted_type, .batch = searchsorted_batch,
               TOW__PARAMS(tow__searchsorted_params, TOW__PARAM(tow__searchsorted_params, right, TOW__P_BOOL)));

tow_value tow_searchsorted(tow_value sorted, tow_value v, bool right)
{
    return tow__op(&tow__searchsorted_p, &(tow__searchsorted_params){right}, 2, (tow_value[]){sorted, v});
}

/* ---- argmin: where the opposite order has its maximum ------------------------------------------------------------ */

static void argmin_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t;
    bool is_float = tow_dtype_is_float(tow__dtype(x[0])); /* -x of the least integer is itself; ~x reverses all */
    y[0] = tow_argmax(is_float ? tow_neg(x[0]) : tow_not(x[0]), (int)((const tow__axis_params *)e->params)->axis);
}

TOW__PRIMITIVE(argmin, TOW__COMPOSITE, tow__tile_along_axis, tow__element_cost, .reduces_axis = true, .inputs = 1,
               .outputs = 1, .type = tow__type_argmax, .batch = tow__batch_along_axis, .decompose = argmin_decompose,
               TOW__PARAMS(tow__axis_params, TOW__PARAM(tow__axis_params, axis, TOW__P_INT)));

tow_value tow_argmin(tow_value x, int axis)
{
    tow__axis_params p;
    if (tow_is_null(x) || !tow__normal_axis(x, "argmin", axis, tow_value_type(x).rank, &p.axis)) return tow__null();
    return tow__op(&tow__argmin_p, &p, 1, &x);
}
