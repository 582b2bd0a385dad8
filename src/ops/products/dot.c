/* dot_general: sums of products over contracted axes, for every index of the batch axes.
 *   result axes: batch, free axes of the left operand, free axes of the right operand, each in order
 * Linear in either operand. A cotangent is again one dot_general and, only where its axes come out in another order, a
 * transpose. */
#include "src/ops/rules.h"

/* Marks `axes` in used[]; checks range and that no axis appears twice. */
static tow_status mark_axes(const tow__typing *ty, size_t side, const tow__ints *axes, bool *used)
{
    for (int i = 0; i < axes->n; i++) {
        int64_t axis = axes->v[i];
        if (axis < 0 || axis >= ty->in[side].rank)
            return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "axis %lld is outside operand %zu, which is %s",
                                  (long long)axis, side, tow__type_name(ty->in[side]).text);
        if (used[axis])
            return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                                  "axis %lld of operand %zu is named twice; an axis is a batch axis, "
                                  "contracted, or free",
                                  (long long)axis, side);
        used[axis] = true;
    }
    return TOW_OK;
}

static tow_status pair_axes(const tow__typing *ty, const char *what, const tow__ints *left, const tow__ints *right)
{
    if (left->n != right->n)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "%d %s axes of the left operand but %d of the right; they go in pairs", left->n, what,
                              right->n);
    for (int i = 0; i < left->n; i++) {
        int64_t a = ty->in[0].dims[left->v[i]], b = ty->in[1].dims[right->v[i]];
        if (a != b)
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                  "%s axis %lld of %s and axis %lld of %s must have one size, found %lld "
                                  "and %lld",
                                  what, (long long)left->v[i], tow__type_name(ty->in[0]).text, (long long)right->v[i],
                                  tow__type_name(ty->in[1]).text, (long long)a, (long long)b);
    }
    return TOW_OK;
}

static tow_status dot_type(const tow__typing *ty)
{
    const tow__dot_params *p = ty->params;
    const tow__ints *axes[2][2] = {{&p->lhs_batch, &p->lhs_contract}, {&p->rhs_batch, &p->rhs_contract}};
    bool used[2][TOW_MAX_RANK] = {{false}};
    tow_dtype dtype;
    tow_status status = tow__product_dtype(ty, p->preferred, &dtype);
    if (status != TOW_OK) return status;
    for (size_t side = 0; side < 2; side++)
        for (int i = 0; i < 2; i++)
            if ((status = mark_axes(ty, side, axes[side][i], used[side])) != TOW_OK) return status;
    if ((status = pair_axes(ty, "batch", &p->lhs_batch, &p->rhs_batch)) != TOW_OK) return status;
    if ((status = pair_axes(ty, "contracted", &p->lhs_contract, &p->rhs_contract)) != TOW_OK) return status;

    if (p->mapped < 0 || p->mapped > p->lhs_batch.n)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "mapped counts batch axes, of which there are %d; found %lld",
                              p->lhs_batch.n, (long long)p->mapped);

    int64_t dims[2 * TOW_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < p->lhs_batch.n; i++) dims[rank++] = ty->in[0].dims[p->lhs_batch.v[i]];
    for (size_t side = 0; side < 2; side++)
        for (int d = 0; d < ty->in[side].rank; d++)
            if (!used[side][d]) dims[rank++] = ty->in[side].dims[d];
    if (rank > TOW_MAX_RANK)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "the result would have rank %d, at most %d is possible; reshape axes "
                              "together",
                              rank, TOW_MAX_RANK);
    ty->out[0] = tow_make_type(dtype, rank, dims);
    return tow__require_valid(ty, ty->out[0]);
}

static tow_value bind_dot(tow_value x, tow_value y, const tow__dot_params *p)
{
    return tow__op(&tow__dot_general_p, p, 2, (tow_value[]){x, y});
}

static void dot_jvp(tow__jvp *r)
{
    const tow__dot_params *p = r->e->params;
    tow__jvp_primal(r);
    tow_value a = tow_is_null(r->dx[0]) ? tow__null() : bind_dot(r->dx[0], r->x[1], p);
    tow_value b = tow_is_null(r->dx[1]) ? tow__null() : bind_dot(r->x[0], r->dx[1], p);
    r->dy[0] = tow__add_or(a, b);
}

/* Axes of `type` that are in neither list, in order. */
static tow__ints free_axes(tow_type type, const tow__ints *batch, const tow__ints *contract)
{
    tow__ints result = {0};
    for (int d = 0; d < type.rank; d++) {
        bool named = false;
        for (int i = 0; i < batch->n; i++) named = named || batch->v[i] == d;
        for (int i = 0; i < contract->n; i++) named = named || contract->v[i] == d;
        if (!named) result.v[result.n++] = d;
    }
    return result;
}

static tow__ints range(int start, int n)
{
    tow__ints result = {.n = n};
    for (int i = 0; i < n; i++) result.v[i] = start + i;
    return result;
}

/* Cotangent of one operand (`side`), the other being w: contract ct with w over w's free axes, in ct's type, which is
 * that of the sums, and round the result to the operand's.
 *   left:  ct [batch, free of x, free of w] . w -> [batch, free of x, w's contracted axes in w's order]
 *   right: w . ct [batch, free of w, free of x] -> [batch, w's contracted axes in w's order, free of x]
 * and each of these axes belongs to one axis of x. */
static void dot_transpose(tow__transpose *r)
{
    const tow__dot_params *p = r->e->params;
    bool left = r->linear[0];
    int side = left ? 0 : 1;
    const tow__ints *batch = left ? &p->lhs_batch : &p->rhs_batch, *w_batch = left ? &p->rhs_batch : &p->lhs_batch;
    const tow__ints *contract = left ? &p->lhs_contract : &p->rhs_contract;
    const tow__ints *w_contract = left ? &p->rhs_contract : &p->lhs_contract;
    tow__ints x_free = free_axes(r->in_types[side], batch, contract);
    tow__ints w_free = free_axes(r->in_types[1 - side], w_batch, w_contract);
    tow__ints ct_batch = range(0, batch->n), ct_w = range(batch->n + (left ? x_free.n : 0), w_free.n);

    /* x's contracted axes in the order in which w has them */
    tow__ints order = {0};
    for (int d = 0; d < r->in_types[1 - side].rank; d++)
        for (int i = 0; i < w_contract->n; i++)
            if (w_contract->v[i] == d) order.v[order.n++] = contract->v[i];

    tow_value w = tow_convert(r->x[1 - side], tow__dtype(r->ct[0])), dx;
    if (left)
        dx = bind_dot(r->ct[0], w,
                      &(tow__dot_params){.lhs_contract = ct_w,
                                         .rhs_contract = w_free,
                                         .lhs_batch = ct_batch,
                                         .rhs_batch = *w_batch,
                                         .mapped = p->mapped});
    else
        dx = bind_dot(w, r->ct[0],
                      &(tow__dot_params){.lhs_contract = w_free,
                                         .rhs_contract = ct_w,
                                         .lhs_batch = *w_batch,
                                         .rhs_batch = ct_batch,
                                         .mapped = p->mapped});

    int permutation[TOW_MAX_RANK] = {0}, place = 0;
    const tow__ints *parts[3] = {batch, left ? &x_free : &order, left ? &order : &x_free};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < parts[k]->n; i++) permutation[parts[k]->v[i]] = place++;
    dx = tow_convert(dx, r->in_types[side].dtype);
    r->dx[side] = place == 0 ? dx : tow_transpose(dx, place, permutation);
}

/* ---- batching ---------------------------------------------------------------------------------------------------- */

/* The operand's lists of axes once it has a batch axis at `at`. */
static void shift_lists(tow__ints *batch, tow__ints *contract, int at)
{
    *batch = tow__all_shifted(*batch, at);
    *contract = tow__all_shifted(*contract, at);
}

/* Place of axis `at` among the operand's free axes. */
static int place_among_free(tow_type type, const tow__ints *batch, const tow__ints *contract, int at)
{
    tow__ints axes = free_axes(type, batch, contract);
    int place = 0;
    while (place < axes.n && axes.v[place] != at) place++;
    return place;
}

/* One product for all rows. Both operands batched: one more batch axis, the first. Only one: one more free axis of it.
 * The sizes of the whole product, `rows` and `columns`, stay 0, those of all rows: an element has bits that depend on
 * its row, its column and the contracted axes alone, on all engines with portable bits, and the engine that is best for
 * all rows runs. */
static void dot_batch(tow__batch *r)
{
    tow__dot_params p = *(const tow__dot_params *)r->e->params;
    const tow__mapped *x = &r->x[0], *y = &r->x[1];
    tow_value in[2] = {x->value, y->value};
    int axis = 0;
    if (tow__is_batched(*x)) shift_lists(&p.lhs_batch, &p.lhs_contract, x->axis);
    if (tow__is_batched(*y)) shift_lists(&p.rhs_batch, &p.rhs_contract, y->axis);
    if (tow__is_batched(*x) && tow__is_batched(*y)) {
        p.lhs_batch = tow__with_entry(p.lhs_batch, 0, x->axis);
        p.rhs_batch = tow__with_entry(p.rhs_batch, 0, y->axis);
        p.mapped++;
    } else if (tow__is_batched(*x)) {
        axis = p.lhs_batch.n + place_among_free(tow_value_type(in[0]), &p.lhs_batch, &p.lhs_contract, x->axis);
    } else {
        axis = p.lhs_batch.n + free_axes(r->in[0], &p.lhs_batch, &p.lhs_contract).n +
               place_among_free(tow_value_type(in[1]), &p.rhs_batch, &p.rhs_contract, y->axis);
    }
    tow__batch_bind(r, &p, in, axis);
}

/* The axis of an operand that is the result's axis `free`, counted among those that are neither batch axes nor
 * contracted; -1: it has fewer. */
static int free_axis(const tow_type *x, const tow__ints *batch, const tow__ints *contract, int free)
{
    for (int a = 0; a < x->rank; a++)
        if (!tow__ints_contain(batch, a) && !tow__ints_contain(contract, a) && free-- == 0) return a;
    return -1;
}

/* Axes of the result are batch axes of both operands, then free axes of the left one, then of the right one. Operands
 * behind the two, which are read when the product is finished, have the shape of the result or are scalars. */
static bool tile_dot(const tow__operation *o, int axis, int *from)
{
    const tow__dot_params *p = o->params;
    const tow_type *x = tow__in_type(o, 0), *y = tow__in_type(o, 1);
    int batch = p->lhs_batch.n, left = x->rank - batch - p->lhs_contract.n;
    from[0] = from[1] = TOW__WHOLE;
    if (axis < batch) {
        from[0] = (int)p->lhs_batch.v[axis];
        from[1] = (int)p->rhs_batch.v[axis];
    } else if (axis < batch + left) {
        from[0] = free_axis(x, &p->lhs_batch, &p->lhs_contract, axis - batch);
    } else {
        from[1] = free_axis(y, &p->rhs_batch, &p->rhs_contract, axis - batch - left);
    }
    for (uint32_t i = 2; i < o->n_in; i++) {
        from[i] = tow__in_type(o, i)->rank ? axis : TOW__WHOLE;
        if (from[i] == axis && !tow__same_extent(o, axis, i, axis)) return false;
    }
    return true;
}

/* Contracted axes, of both operands together. */
static bool sum_dot(const tow__operation *o, uint32_t i, int axis, int *from)
{
    const tow__dot_params *p = o->params;
    const tow__ints *own = i == 0 ? &p->lhs_contract : &p->rhs_contract;
    for (int k = 0; i < 2 && k < own->n; k++) {
        if (own->v[k] != axis) continue;
        from[0] = (int)p->lhs_contract.v[k];
        from[1] = (int)p->rhs_contract.v[k];
        return true;
    }
    return false;
}

static tow__op_cost dot_cost(const tow__operation *o)
{
    const tow__dot_params *p = o->params;
    double depth = 1;
    for (int i = 0; i < p->lhs_contract.n; i++) depth *= (double)tow__in_type(o, 0)->dims[p->lhs_contract.v[i]];
    return tow__exact_cost(2 * depth * tow__elements(&o->out[0]));
}

TOW__PRIMITIVE(dot_general, TOW__DOT, tile_dot, dot_cost, .sums = sum_dot, .product = TOW__PLAIN_PRODUCT,
               .operands = "lhs, rhs", .inputs = 2, .outputs = 1, .type = dot_type, .jvp = dot_jvp,
               .transpose = dot_transpose, .linear_in = tow__linear_in_one, .batch = dot_batch,
               TOW__PARAMS(tow__dot_params, TOW__PARAM(tow__dot_params, lhs_contract, TOW__P_INTS),
                           TOW__PARAM(tow__dot_params, rhs_contract, TOW__P_INTS),
                           TOW__PARAM(tow__dot_params, lhs_batch, TOW__P_INTS),
                           TOW__PARAM(tow__dot_params, rhs_batch, TOW__P_INTS),
                           TOW__PARAM(tow__dot_params, preferred, TOW__P_SUM_DTYPE),
                           TOW__PARAM(tow__dot_params, mapped, TOW__P_COUNT),
                           TOW__PARAM(tow__dot_params, rows, TOW__P_PLAN),
                           TOW__PARAM(tow__dot_params, columns, TOW__P_PLAN),
                           TOW__PARAM(tow__dot_params, groups, TOW__P_PLAN)));

/* ---- public functions -------------------------------------------------------------------------------------------- */

static bool take_axes(tow_value x, int n, const int *axes, tow__ints *result)
{
    result->n = n;
    for (int i = 0; i < n; i++)
        if (!tow__normal_axis(x, "dot_general", axes[i], tow_value_type(x).rank, &result->v[i])) return false;
    return true;
}

static tow_value dot_general(tow_value x, tow_value y, tow_dot_dims dims, int64_t preferred)
{
    tow__dot_params p = {.preferred = preferred};
    if (tow__any_null(2, (tow_value[]){x, y})) return tow__null();
    if (dims.n_contract < 0 || dims.n_contract > TOW_MAX_RANK || dims.n_batch < 0 || dims.n_batch > TOW_MAX_RANK)
        return tow__op_fail(x, "dot_general", TOW_INVALID_ARGUMENT,
                            "%d contracted and %d batch axes; each count must be 0 to %d", dims.n_contract,
                            dims.n_batch, TOW_MAX_RANK);
    tow_value y_here = tow_at(y, x.here);
    if (!take_axes(x, dims.n_contract, dims.lhs_contract, &p.lhs_contract) ||
        !take_axes(y_here, dims.n_contract, dims.rhs_contract, &p.rhs_contract) ||
        !take_axes(x, dims.n_batch, dims.lhs_batch, &p.lhs_batch) ||
        !take_axes(y_here, dims.n_batch, dims.rhs_batch, &p.rhs_batch))
        return tow__null();
    return bind_dot(x, y, &p);
}

tow_value tow_dot_general(tow_value x, tow_value y, tow_dot_dims dims) { return dot_general(x, y, dims, 0); }

tow_value tow_dot_general_with(tow_value x, tow_value y, tow_dot_dims dims, tow_dtype preferred)
{
    return dot_general(x, y, dims, 1 + (int64_t)preferred);
}

tow_value tow_dot(tow_value x, tow_value y)
{
    if (tow__any_null(2, (tow_value[]){x, y})) return tow__null();
    tow_type tx = tow_value_type(x), ty = tow_value_type(y);
    if (tx.rank == 0 || ty.rank == 0)
        return tow__op_fail(x, "dot", TOW_SHAPE_MISMATCH,
                            "operands need at least one axis, found %s and %s; use tow_mul", tow__type_name(tx).text,
                            tow__type_name(ty).text);
    int contracted = ty.rank == 1 ? 0 : ty.rank - 2;
    return tow_dot_general(
        x, y, (tow_dot_dims){.n_contract = 1, .lhs_contract = {tx.rank - 1}, .rhs_contract = {contracted}});
}

/* x repeated to the batch shape of `batch` (leading axes), its last two axes unchanged. */
static tow_value with_batch(tow_value x, tow_type batch)
{
    tow_type type = tow_value_type(x);
    for (int i = 0; i < 2; i++) batch.dims[batch.rank + i] = type.dims[type.rank - 2 + i];
    return tow_broadcast_to(x, batch.rank + 2, batch.dims);
}

tow_value tow_matmul(tow_value x, tow_value y)
{
    if (tow__any_null(2, (tow_value[]){x, y})) return tow__null();
    tow_type tx = tow_value_type(x), ty = tow_value_type(y);
    if (tx.rank == 0 || ty.rank <= 2) return tow_dot(x, y);
    if (tx.rank == 1) /* [k] . [..., k, n]: the free axis of y follows its batch axes */
        return tow_squeeze(tow_matmul(tow_expand_dims(x, 0), y), -2);
    tow_type batch, parts[2] = {tx, ty};
    for (int i = 0; i < 2; i++) {
        parts[i].rank -= 2;
        parts[i].dims[parts[i].rank] = parts[i].dims[parts[i].rank + 1] = 0;
    }
    if (!tow__broadcast_type(2, parts, &batch))
        return tow__op_fail(x, "matmul", TOW_SHAPE_MISMATCH,
                            "the leading axes of %s and %s do not broadcast; they must be equal or 1",
                            tow__type_name(tx).text, tow__type_name(ty).text);
    tow_dot_dims dims = {.n_contract = 1, .lhs_contract = {-1}, .rhs_contract = {-2}, .n_batch = batch.rank};
    for (int i = 0; i < batch.rank; i++) dims.lhs_batch[i] = dims.rhs_batch[i] = i;
    return tow_dot_general(tow_at(with_batch(x, batch), x.here), with_batch(y, batch), dims);
}
