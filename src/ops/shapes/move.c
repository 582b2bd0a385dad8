/* Primitives that rearrange elements: reshape transpose slice pad concatenate rev. All are linear. */
#include "src/ops/rules.h"

/* ---- reshape ----------------------------------------------------------------------------------------------------- */

static tow_status reshape_type(const tow__typing *ty)
{
    const tow__shape_params *p = ty->params;
    ty->out[0] = tow_make_type(ty->in[0].dtype, p->shape.n, p->shape.v);
    tow_status status = tow__require_valid(ty, ty->out[0]);
    if (status != TOW_OK) return status;
    if (tow_type_element_count(ty->in[0]) != tow_type_element_count(ty->out[0]))
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "%s has %lld elements, the new shape %s has %lld; they must be equal",
                              tow__type_name(ty->in[0]).text, (long long)tow_type_element_count(ty->in[0]),
                              tow__type_name(ty->out[0]).text, (long long)tow_type_element_count(ty->out[0]));
    return TOW_OK;
}

static void reshape_transpose(tow__transpose *r)
{
    r->dx[0] = tow_reshape(r->ct[0], r->in_types[0].rank, r->in_types[0].dims);
}

/* The batch axis keeps its place where the axes before it stay a group of their own; else it goes to the front. */
static void reshape_batch(tow__batch *r)
{
    const tow__shape_params *p = r->e->params;
    int64_t before = 1, group = 1;
    int axis = 0, place = r->x[0].axis;
    for (int d = 0; d < place; d++) before *= r->in[0].dims[d];
    while (group != before && axis < p->shape.n) group *= p->shape.v[axis++];
    if (group != before) axis = place = 0;
    tow_value x = tow__batch_operand(r, 0, place);
    tow__batch_bind(r, &(tow__shape_params){tow__with_entry(p->shape, axis, r->size)}, &x, axis);
}

static bool view_reshape(const void *params, const tow__view *x, tow__view *y)
{
    (void)params;
    return tow__view_reshape(x, y->type, y);
}

TOW__PRIMITIVE(reshape, TOW__MOVE, tow__no_tiling, tow__element_cost, .view = view_reshape, .takes_blocks = true,
               .inputs = 1, .outputs = 1, .type = reshape_type, .transpose = reshape_transpose, .batch = reshape_batch,
               TOW__PARAMS(tow__shape_params, TOW__PARAM(tow__shape_params, shape, TOW__P_INTS)));

/* Replaces the one -1 in shape by what the number of elements leaves. */
static bool infer_dimension(tow_value x, int rank, int64_t *shape)
{
    int unknown = -1;
    int64_t rest = 1, count = tow_type_element_count(tow_value_type(x));
    for (int i = 0; i < rank; i++) {
        if (shape[i] == -1 && unknown >= 0) {
            tow__op_fail(x, "reshape", TOW_INVALID_ARGUMENT,
                         "axes %d and %d are both -1; only one size can be inferred", unknown, i);
            return false;
        }
        if (shape[i] == -1)
            unknown = i;
        else
            rest *= shape[i] < 0 || shape[i] > count ? 0 : shape[i];
    }
    if (unknown < 0) return true;
    if (rest <= 0 || count % rest != 0) {
        tow__op_fail(x, "reshape", TOW_SHAPE_MISMATCH,
                     "axis %d of the new shape cannot be inferred: the others do not divide the "
                     "%lld elements of %s",
                     unknown, (long long)count, tow__type_name(tow_value_type(x)).text);
        return false;
    }
    shape[unknown] = count / rest;
    return true;
}

tow_value tow_reshape(tow_value x, int rank, const int64_t *shape)
{
    if (tow_is_null(x)) return x;
    if (rank < 0 || rank > TOW_MAX_RANK)
        return tow__op_fail(x, "reshape", TOW_INVALID_ARGUMENT, "rank %d is outside [0, %d]", rank, TOW_MAX_RANK);
    if (!tow__given(x, "reshape", rank == 0 || shape, "a shape")) return tow__null();
    tow__shape_params p = {tow__ints_of(rank, shape)};
    if (!infer_dimension(x, rank, p.shape.v)) return tow__null();
    tow_type type = tow_value_type(x);
    if (tow_type_equal(type, tow_make_type(type.dtype, rank, p.shape.v))) return x;
    return tow__op(&tow__reshape_p, &p, 1, &x);
}

tow_value tow_expand_dims(tow_value x, int axis)
{
    tow_type type = tow_value_type(x);
    int64_t at = 0;
    if (tow_is_null(x) || !tow__normal_axis(x, "expand_dims", axis, type.rank + 1, &at)) return tow__null_from(x);
    if (type.rank == TOW_MAX_RANK)
        return tow__op_fail(x, "expand_dims", TOW_SHAPE_MISMATCH, "%s has the largest rank already",
                            tow__type_name(type).text);
    for (int d = type.rank++; d > at; d--) type.dims[d] = type.dims[d - 1];
    type.dims[at] = 1;
    return tow_reshape(x, type.rank, type.dims);
}

tow_value tow_squeeze(tow_value x, int axis)
{
    tow_type type = tow_value_type(x);
    int64_t at = 0;
    if (tow_is_null(x) || !tow__normal_axis(x, "squeeze", axis, type.rank, &at)) return tow__null_from(x);
    if (type.dims[at] != 1)
        return tow__op_fail(x, "squeeze", TOW_SHAPE_MISMATCH, "axis %d of %s must have size 1 to be removed", axis,
                            tow__type_name(type).text);
    type = tow__without_axes(type, &(tow__ints){.n = 1, .v = {at}});
    return tow_reshape(x, type.rank, type.dims);
}

/* ---- transpose: result axis i is operand axis permutation[i] ----------------------------------------------------- */

static tow_status transpose_type(const tow__typing *ty)
{
    const tow__transpose_params *p = ty->params;
    bool used[TOW_MAX_RANK] = {false};
    tow_type x = ty->in[0];
    bool valid = p->permutation.n == x.rank;
    ty->out[0] = x;
    for (int i = 0; valid && i < x.rank; i++) {
        int64_t axis = p->permutation.v[i];
        valid = axis >= 0 && axis < x.rank && !used[axis];
        if (!valid) break;
        used[axis] = true;
        ty->out[0].dims[i] = x.dims[axis];
    }
    return valid ? TOW_OK
                 : tow__type_fail(ty, TOW_INVALID_ARGUMENT, "the permutation must name each of the %d axes of %s once",
                                  x.rank, tow__type_name(x).text);
}

static void transpose_transpose(tow__transpose *r)
{
    const tow__ints *p = &((const tow__transpose_params *)r->e->params)->permutation;
    int inverse[TOW_MAX_RANK] = {0};
    for (int i = 0; i < p->n; i++) inverse[p->v[i]] = i;
    r->dx[0] = tow_transpose(r->ct[0], p->n, inverse);
}

static void transpose_batch(tow__batch *r)
{
    const tow__transpose_params *p = r->e->params;
    int axis = r->x[0].axis;
    tow__transpose_params front = {tow__with_entry(tow__all_shifted(p->permutation, axis), 0, axis)};
    tow__batch_bind(r, &front, &r->x[0].value, 0);
}

static bool view_transpose(const void *params, const tow__view *x, tow__view *y)
{
    const tow__transpose_params *p = params;
    for (int i = 0; i < y->type.rank; i++) y->strides[i] = x->strides[p->permutation.v[i]];
    return true;
}

TOW__PRIMITIVE(transpose, TOW__MOVE, tow__no_tiling, tow__element_cost, .view = view_transpose, .takes_blocks = true,
               .inputs = 1, .outputs = 1, .type = transpose_type, .transpose = transpose_transpose,
               .batch = transpose_batch,
               TOW__PARAMS(tow__transpose_params, TOW__PARAM(tow__transpose_params, permutation, TOW__P_INTS)));

tow_value tow_transpose(tow_value x, int rank, const int *permutation)
{
    if (tow_is_null(x)) return x;
    int have = tow_value_type(x).rank;
    if (rank != 0 && rank != have)
        return tow__op_fail(x, "transpose", TOW_INVALID_ARGUMENT,
                            "the permutation has %d entries for an operand of rank %d", rank, have);
    if (!tow__given(x, "transpose", rank == 0 || permutation, "a permutation")) return tow__null();
    tow__transpose_params p = {.permutation = {.n = have}};
    bool identity = true;
    for (int i = 0; i < have; i++) {
        if (rank == 0)
            p.permutation.v[i] = have - 1 - i;
        else if (!tow__normal_axis(x, "transpose", permutation[i], have, &p.permutation.v[i]))
            return tow__null();
        identity = identity && p.permutation.v[i] == i;
    }
    return identity ? x : tow__op(&tow__transpose_p, &p, 1, &x);
}

/* ---- slice: elements start, start + stride, ... below limit ------------------------------------------------------ */

static tow_status slice_type(const tow__typing *ty)
{
    const tow__slice_params *p = ty->params;
    tow_type x = ty->in[0];
    if (p->start.n != x.rank || p->limit.n != x.rank || p->stride.n != x.rank)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "start, limit and stride need one entry for each of the %d axes of %s", x.rank,
                              tow__type_name(x).text);
    ty->out[0] = x;
    for (int d = 0; d < x.rank; d++) {
        int64_t start = p->start.v[d], limit = p->limit.v[d], stride = p->stride.v[d];
        if (start < 0 || limit < start || limit > x.dims[d] || stride < 1)
            return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                                  "axis %d: 0 <= start <= limit <= %lld and stride >= 1 must hold, found "
                                  "start %lld, limit %lld, stride %lld",
                                  d, (long long)x.dims[d], (long long)start, (long long)limit, (long long)stride);
        ty->out[0].dims[d] = limit == start ? 0 : 1 + (limit - start - 1) / stride;
    }
    return TOW_OK;
}

static void slice_transpose(tow__transpose *r)
{
    const tow__slice_params *p = r->e->params;
    tow_type x = r->in_types[0], y = tow_value_type(r->ct[0]);
    int64_t high[TOW_MAX_RANK], interior[TOW_MAX_RANK];
    for (int d = 0; d < x.rank; d++) {
        int64_t end = y.dims[d] == 0 ? p->start.v[d] : p->start.v[d] + (y.dims[d] - 1) * p->stride.v[d] + 1;
        high[d] = x.dims[d] - end;
        interior[d] = y.dims[d] > 1 ? p->stride.v[d] - 1 : 0;
    }
    const double zero = p->shares ? -0.0 : 0; /* -0 is what every number is added to without a change */
    r->dx[0] = tow_pad(r->ct[0], tow_scalar(r->t, x.dtype, zero), p->start.v, high, interior);
}

static void slice_batch(tow__batch *r)
{
    tow__slice_params p = *(const tow__slice_params *)r->e->params;
    int axis = r->x[0].axis;
    p.start = tow__with_entry(p.start, axis, 0);
    p.limit = tow__with_entry(p.limit, axis, r->size);
    p.stride = tow__with_entry(p.stride, axis, 1);
    tow__batch_bind(r, &p, &r->x[0].value, axis);
}

/* Offsets stay inside the storage when the result is empty; a stride between no two elements may be any number. */
static bool view_slice(const void *params, const tow__view *x, tow__view *y)
{
    const tow__slice_params *p = params;
    for (int i = 0; i < y->type.rank; i++) {
        int64_t stride = i < p->stride.n && y->type.dims[i] > 1 ? p->stride.v[i] : 1;
        if (tow_type_element_count(y->type)) y->offset += p->start.v[i] * x->strides[i];
        y->strides[i] = x->strides[i] * stride;
    }
    return true;
}

TOW__PRIMITIVE(slice, TOW__MOVE, tow__no_tiling, tow__element_cost, .view = view_slice, .takes_blocks = true,
               .inputs = 1, .outputs = 1, .type = slice_type, .transpose = slice_transpose, .batch = slice_batch,
               TOW__PARAMS(tow__slice_params, TOW__PARAM(tow__slice_params, start, TOW__P_INTS),
                           TOW__PARAM(tow__slice_params, limit, TOW__P_INTS),
                           TOW__PARAM(tow__slice_params, stride, TOW__P_INTS),
                           TOW__PARAM(tow__slice_params, shares, TOW__P_PLAN)));

tow_value tow_slice(tow_value x, const int64_t *start, const int64_t *limit, const int64_t *stride)
{
    if (tow_is_null(x)) return x;
    tow_type type = tow_value_type(x);
    if (!tow__given(x, "slice", type.rank == 0 || (start && limit), "start and limit of each axis")) return tow__null();
    tow__slice_params p = {tow__ints_of(type.rank, start), tow__ints_of(type.rank, limit), {.n = type.rank}};
    bool whole = true;
    for (int d = 0; d < type.rank; d++) {
        p.stride.v[d] = stride ? stride[d] : 1;
        whole = whole && start[d] == 0 && limit[d] == type.dims[d] && p.stride.v[d] == 1;
    }
    return whole ? x : tow__op(&tow__slice_p, &p, 1, &x);
}

tow_value tow_slice_axis(tow_value x, int axis, int64_t start, int64_t limit)
{
    tow_type type = tow_value_type(x);
    int64_t starts[TOW_MAX_RANK] = {0}, at = 0;
    if (tow_is_null(x) || !tow__normal_axis(x, "slice_axis", axis, type.rank, &at)) return tow__null_from(x);
    starts[at] = start;
    type.dims[at] = limit;
    return tow_slice(x, starts, type.dims, NULL);
}

/* ---- pad(x, value []): low and high elements at the ends (negative: cut), interior between neighbors ------------ */

/* Size of an axis of `size` after padding; -1 where it is negative or a number is beyond any axis. */
static int64_t padded(int64_t size, int64_t low, int64_t high, int64_t interior)
{
    const int64_t limit = INT64_C(1) << 60;
    int64_t between = 0;
    if (low < -limit || low > limit || high < -limit || high > limit || interior < 0 || interior > limit) return -1;
    if (size > 0 && __builtin_mul_overflow(size - 1, interior, &between)) return -1;
    if (between > limit) return -1;
    return low + size + between + high;
}

static tow_status pad_type(const tow__typing *ty)
{
    const tow__pad_params *p = ty->params;
    tow_type x = ty->in[0];
    tow_status status = tow__require_rank(ty, 1, 0);
    if (status != TOW_OK) return status;
    if (ty->in[1].dtype != x.dtype)
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "the padding value must be %s[] as the operand, found %s",
                              tow_dtype_name(x.dtype), tow__type_name(ty->in[1]).text);
    if (p->low.n != x.rank || p->high.n != x.rank || p->interior.n != x.rank)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "low, high and interior need one entry for each of the %d axes of %s", x.rank,
                              tow__type_name(x).text);
    ty->out[0] = x;
    for (int d = 0; d < x.rank; d++) {
        ty->out[0].dims[d] = padded(x.dims[d], p->low.v[d], p->high.v[d], p->interior.v[d]);
        if (ty->out[0].dims[d] < 0)
            return tow__type_fail(
                ty, TOW_INVALID_ARGUMENT,
                "axis %d: interior must not be negative, low and high must not cut more than there "
                "is, and none may exceed 2^60; found low %lld, high %lld, interior %lld for size %lld",
                d, (long long)p->low.v[d], (long long)p->high.v[d], (long long)p->interior.v[d], (long long)x.dims[d]);
    }
    return tow__require_valid(ty, ty->out[0]);
}

/* The part of ct that x's elements went to: undo the ends (what was cut off gets zeros), then step over the
 * interior. */
static tow_value unpad(tow__transpose *r, tow_value ct)
{
    const tow__pad_params *p = r->e->params;
    tow_type x = r->in_types[0];
    int64_t low[TOW_MAX_RANK], high[TOW_MAX_RANK], zero[TOW_MAX_RANK] = {0}, stride[TOW_MAX_RANK];
    for (int d = 0; d < x.rank; d++) {
        if (x.dims[d] == 0) return tow__zeros(r->t, x);
        low[d] = -p->low.v[d];
        high[d] = -p->high.v[d];
        stride[d] = p->interior.v[d] + 1;
    }
    ct = tow_pad(ct, tow_scalar(r->t, x.dtype, 0), low, high, NULL);
    return tow_slice(ct, zero, tow_value_type(ct).dims, stride);
}

/* The padding value gets what did not go to the operand. */
static void pad_transpose(tow__transpose *r)
{
    tow_value to_x = unpad(r, r->ct[0]);
    if (r->linear[0]) r->dx[0] = to_x;
    if (r->linear[1]) r->dx[1] = tow_sub(tow_reduce_sum(r->ct[0], 0, NULL), tow_reduce_sum(to_x, 0, NULL));
}

/* Rows padded with numbers of their own: padded with zeros, which are then replaced. */
static void pad_by_rows(tow__batch *r, const tow__pad_params *p, const tow__pad_params *whole, int axis)
{
    tow_type type = r->in[0];
    tow_value x = tow__batch_operand(r, 0, axis), value = tow__batch_operand(r, 1, 0);
    tow_value padded = tow_pad(x, tow_scalar(r->t, type.dtype, 0), whole->low.v, whole->high.v, whole->interior.v);
    type.dtype = TOW_BOOL;
    tow_value inside =
        tow_pad(tow_full(r->t, type, 1), tow_scalar(r->t, TOW_BOOL, 0), p->low.v, p->high.v, p->interior.v);
    tow_type y = tow_value_type(padded);
    inside = tow__batched_at((tow__mapped){.value = inside, .axis = TOW__UNBATCHED}, r->size, axis);
    value = tow_broadcast_in_dim(value, y.rank, y.dims, (int[]){axis});
    r->y[0] = (tow__mapped){.value = tow_where(inside, padded, value), .axis = axis};
}

static void pad_batch(tow__batch *r)
{
    const tow__pad_params *p = r->e->params;
    int axis = tow__is_batched(r->x[0]) ? r->x[0].axis : 0;
    tow__pad_params whole = {tow__with_entry(p->low, axis, 0), tow__with_entry(p->high, axis, 0),
                             tow__with_entry(p->interior, axis, 0)};
    if (tow__is_batched(r->x[1]))
        pad_by_rows(r, p, &whole, axis);
    else
        tow__batch_bind(r, &whole, (tow_value[]){r->x[0].value, r->x[1].value}, axis);
}

/* (x, value): axes that get nothing. */
static bool tile_pad(const tow__operation *o, int axis, int *from)
{
    const tow__pad_params *p = o->params;
    from[0] = axis;
    from[1] = TOW__WHOLE;
    return p->low.v[axis] == 0 && p->high.v[axis] == 0 && p->interior.v[axis] == 0;
}

TOW__PRIMITIVE(pad, TOW__MOVE, tile_pad, tow__element_cost, .operands = "x, value", .inputs = 2, .outputs = 1,
               .type = pad_type, .transpose = pad_transpose, .batch = pad_batch,
               TOW__PARAMS(tow__pad_params, TOW__PARAM(tow__pad_params, low, TOW__P_INTS),
                           TOW__PARAM(tow__pad_params, high, TOW__P_INTS),
                           TOW__PARAM(tow__pad_params, interior, TOW__P_INTS)));

tow_value tow_pad(tow_value x, tow_value value, const int64_t *low, const int64_t *high, const int64_t *interior)
{
    static const int64_t none[TOW_MAX_RANK] = {0};
    if (tow__any_null(2, (tow_value[]){x, value})) return tow__null();
    int rank = tow_value_type(x).rank;
    if (!tow__given(x, "pad", rank == 0 || (low && high), "low and high of each axis")) return tow__null();
    tow__pad_params p = {tow__ints_of(rank, low), tow__ints_of(rank, high),
                         tow__ints_of(rank, interior ? interior : none)};
    bool nothing = true;
    for (int d = 0; d < rank; d++) nothing = nothing && p.low.v[d] == 0 && p.high.v[d] == 0 && p.interior.v[d] == 0;
    return nothing ? x : tow__op(&tow__pad_p, &p, 2, (tow_value[]){x, value});
}

/* ---- concatenate ------------------------------------------------------------------------------------------------- */

static tow_status concatenate_type(const tow__typing *ty)
{
    const tow__axis_params *p = ty->params;
    if (ty->n_in == 0) return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "expected at least one operand, found none");
    tow_status status = tow__require_axis(ty, p->axis);
    if (status != TOW_OK) return status;
    tow_type y = ty->in[0];
    for (size_t i = 1; i < ty->n_in; i++) {
        tow_type x = ty->in[i];
        int64_t size = p->axis < x.rank ? x.dims[p->axis] : 0;
        x.dims[p->axis] = ty->in[0].dims[p->axis];
        if (!tow_type_equal(x, ty->in[0]))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "operands may differ in axis %lld only, found %s and %s",
                                  (long long)p->axis, tow__type_name(ty->in[0]).text, tow__type_name(ty->in[i]).text);
        y.dims[p->axis] += size;
        if (!tow__type_valid(y)) break; /* before a sum of many sizes overflows */
    }
    ty->out[0] = y;
    return tow__require_valid(ty, y);
}

static void concatenate_transpose(tow__transpose *r)
{
    int axis = (int)((const tow__axis_params *)r->e->params)->axis;
    int64_t start = 0;
    for (uint32_t i = 0; i < r->e->n_in; i++) {
        int64_t size = r->in_types[i].dims[axis];
        if (r->linear[i]) r->dx[i] = tow_slice_axis(r->ct[0], axis, start, start + size);
        start += size;
    }
}

TOW__PRIMITIVE(concatenate, TOW__MOVE, tow__tile_along_axis, tow__element_cost, .takes_blocks = true, .inputs = -1,
               .outputs = 1, .type = concatenate_type, .transpose = concatenate_transpose,
               .batch = tow__batch_along_axis,
               TOW__PARAMS(tow__axis_params, TOW__PARAM(tow__axis_params, axis, TOW__P_INT)));

tow_value tow_concatenate(size_t n, const tow_value *x, int axis)
{
    tow__axis_params p;
    if (n == 0 || !x) return tow__null_because(TOW__NULL_CONCATENATE);
    if (tow__any_null(n, x)) return tow__null_of("concatenate", n, x);
    if (!tow__normal_axis(x[0], "concatenate", axis, tow_value_type(x[0]).rank, &p.axis)) return tow__null();
    return n == 1 ? x[0] : tow__op(&tow__concatenate_p, &p, n, x);
}

/* ---- rev: reverses axes; its own transpose ----------------------------------------------------------------------- */

static tow_status rev_type(const tow__typing *ty)
{
    ty->out[0] = ty->in[0];
    return tow__require_axes(ty, &((const tow__axes_params *)ty->params)->axes);
}

static void rev_transpose(tow__transpose *r) { r->dx[0] = tow__op(&tow__rev_p, r->e->params, 1, r->ct); }

static bool view_rev(const void *params, const tow__view *x, tow__view *y)
{
    const tow__axes_params *p = params;
    for (int i = 0; i < p->axes.n; i++) {
        int64_t axis = p->axes.v[i];
        if (tow_type_element_count(y->type)) y->offset += (y->type.dims[axis] - 1) * x->strides[axis];
        y->strides[axis] = -x->strides[axis];
    }
    return true;
}

TOW__PRIMITIVE(rev, TOW__MOVE, tow__no_tiling, tow__element_cost, .view = view_rev, .inputs = 1, .outputs = 1,
               .type = rev_type, .transpose = rev_transpose, .batch = tow__batch_over_axes,
               TOW__PARAMS(tow__axes_params, TOW__PARAM(tow__axes_params, axes, TOW__P_INTS)));

tow_value tow_rev(tow_value x, int n_axes, const int *axes)
{
    tow__axes_params p;
    if (tow_is_null(x) || !tow__normal_axes(x, "rev", n_axes, axes, &p.axes)) return tow__null_from(x);
    return tow__op(&tow__rev_p, &p, 1, &x);
}
