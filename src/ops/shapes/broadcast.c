/* broadcast_in_dim and what is built on it: NumPy's broadcasting, constants of a shape. */
#include "src/ops/shapes/broadcast.h"

#include "src/ops/rules.h"

/* broadcast_in_dim(x [d...]) -> [shape]: axis i of x is axis axes[i] of the result, stretched if its size is 1. */
static tow_status broadcast_type(const tow__typing *ty)
{
    const tow__broadcast_params *p = ty->params;
    tow_type x = ty->in[0], y = tow_make_type(x.dtype, p->shape.n, p->shape.v);
    tow_status status = tow__require_valid(ty, y);
    if (status != TOW_OK) return status;
    if (p->axes.n != x.rank)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "expected %d axes, one for each axis of %s, found %d", x.rank,
                              tow__type_name(x).text, p->axes.n);
    for (int i = 0; i < p->axes.n; i++) {
        int64_t axis = p->axes.v[i];
        if (axis < 0 || axis >= y.rank || (i > 0 && axis <= p->axes.v[i - 1]))
            return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                                  "axes must increase within [0, %d), found %lld at place %d; transpose "
                                  "the operand first if its axes change order",
                                  y.rank, (long long)axis, i);
        if (x.dims[i] != y.dims[axis] && x.dims[i] != 1)
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                  "axis %d of %s does not broadcast to axis %lld of %s: it must have size "
                                  "%lld or 1",
                                  i, tow__type_name(x).text, (long long)axis, tow__type_name(y).text,
                                  (long long)y.dims[axis]);
    }
    ty->out[0] = y;
    return TOW_OK;
}

/* Sums the cotangent over the axes that repeat; one reduction over new and stretched axes, then the 1s are put back. */
static void broadcast_transpose(tow__transpose *r)
{
    const tow__broadcast_params *p = r->e->params;
    tow_type x = r->in_types[0];
    int axes[TOW_MAX_RANK], n = 0, next = 0;
    for (int d = 0; d < p->shape.n; d++) {
        bool mapped = next < p->axes.n && p->axes.v[next] == d;
        if (!mapped || x.dims[next] != p->shape.v[d]) axes[n++] = d;
        next += mapped;
    }
    tow_value ct = r->ct[0];
    if (n > 0) ct = tow_reduce_sum(ct, n, axes);
    r->dx[0] = tow_reshape(ct, x.rank, x.dims);
}

/* The batch axis comes behind the axis that it is behind in the operand. */
static void broadcast_batch(tow__batch *r)
{
    tow__broadcast_params p = *(const tow__broadcast_params *)r->e->params;
    int axis = r->x[0].axis, place = axis > 0 ? (int)p.axes.v[axis - 1] + 1 : 0;
    p.shape = tow__with_entry(p.shape, place, r->size);
    p.axes = tow__with_entry(tow__all_shifted(p.axes, place), axis, place);
    tow__batch_bind(r, &p, &r->x[0].value, place);
}

static bool view_broadcast(const void *params, const tow__view *x, tow__view *y)
{
    const tow__broadcast_params *p = params;
    for (int i = 0; i < y->type.rank; i++) y->strides[i] = 0;
    for (int i = 0; i < x->type.rank; i++)
        if (x->type.dims[i] == y->type.dims[p->axes.v[i]]) y->strides[p->axes.v[i]] = x->strides[i];
    return true;
}

TOW__PRIMITIVE(broadcast_in_dim, TOW__MOVE, tow__no_tiling, tow__element_cost, .view = view_broadcast,
               .takes_blocks = true, .inputs = 1, .outputs = 1, .type = broadcast_type,
               .transpose = broadcast_transpose, .batch = broadcast_batch,
               TOW__PARAMS(tow__broadcast_params, TOW__PARAM(tow__broadcast_params, shape, TOW__P_INTS),
                           TOW__PARAM(tow__broadcast_params, axes, TOW__P_INTS)));

static bool shape_fits(tow_value x, const char *op, int rank, const int64_t *shape)
{
    if (rank >= 0 && rank <= TOW_MAX_RANK) return tow__given(x, op, rank == 0 || shape, "a shape");
    tow__op_fail(x, op, TOW_INVALID_ARGUMENT, "rank %d is outside [0, %d]", rank, TOW_MAX_RANK);
    return false;
}

tow_value tow_broadcast_in_dim(tow_value x, int rank, const int64_t *shape, const int *axes)
{
    if (tow_is_null(x) || !shape_fits(x, "broadcast_in_dim", rank, shape)) return tow__null_from(x);
    tow_type type = tow_value_type(x);
    if (!tow__given(x, "broadcast_in_dim", type.rank == 0 || axes, "an axis for each axis of the operand"))
        return tow__null();
    tow__broadcast_params p = {.shape = tow__ints_of(rank, shape), .axes = {.n = type.rank}};
    bool same = rank == type.rank;
    for (int i = 0; i < type.rank; i++) {
        p.axes.v[i] = axes[i];
        same = same && axes[i] == i && shape[i] == type.dims[i];
    }
    return same ? x : tow__op(&tow__broadcast_in_dim_p, &p, 1, &x);
}

tow_value tow_broadcast_to(tow_value x, int rank, const int64_t *shape)
{
    if (tow_is_null(x) || !shape_fits(x, "broadcast_to", rank, shape)) return tow__null_from(x);
    tow_type type = tow_value_type(x);
    if (type.rank > rank)
        return tow__op_fail(x, "broadcast_to", TOW_SHAPE_MISMATCH,
                            "%s has more axes than the shape of rank %d that it should "
                            "broadcast to; reduce or reshape it",
                            tow__type_name(type).text, rank);
    int axes[TOW_MAX_RANK];
    for (int i = 0; i < type.rank; i++) axes[i] = rank - type.rank + i;
    return tow_broadcast_in_dim(x, rank, shape, axes);
}

bool tow__broadcast_all(size_t n, tow_value *x)
{
    enum {
        MOST = 3
    };
    tow_type types[MOST] = {{0}}, result;
    if (n > MOST || tow__any_null(n, x)) return false;
    for (size_t i = 0; i < n; i++) types[i] = tow_value_type(x[i]);
    if (!tow__broadcast_type(n, types, &result)) return true;
    for (size_t i = 0; i < n; i++)
        x[i] = tow_at(tow_broadcast_to(tow_at(x[i], x[0].here), result.rank, result.dims), x[0].here);
    return !tow__any_null(n, x);
}

tow_value tow__broadcast_op2(const tow_primitive *p, tow_value x, tow_value y)
{
    tow_value v[2] = {x, y};
    return tow__broadcast_all(2, v) ? tow__op(p, NULL, 2, v) : tow__null_of(p->name, 2, v);
}
