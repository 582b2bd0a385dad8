/* softmax, log_softmax, logsumexp over one axis. All shift by the maximum, which has no part in the derivatives. */
#include <math.h>

#include "src/ops/rules.h"

static int64_t axis_of(const tow__equation *e) { return ((const tow__axis_params *)e->params)->axis; }

/* r without the axis, repeated along it: like x */
static tow_value along(tow_value r, tow_value x, int64_t axis)
{
    return tow__unreduce(r, tow_value_type(x), (tow__ints){.n = 1, .v = {axis}});
}

static tow_value maximum(tow_value x, int64_t axis)
{
    return tow_stop_gradient(tow_reduce_max(x, 1, (int[]){(int)axis}));
}

/* ---- y = exp(x - max) / sum: u - y sum(u), u = dx y; keeps its output -------------------------------------------- */

static void softmax_jvp(tow__jvp *r)
{
    int64_t axis = axis_of(r->e);
    tow__jvp_primal(r);
    tow_value y = r->y[0], u = tow_mul(r->dx[0], y);
    r->dy[0] = tow_sub(u, tow_mul(along(tow__sum_axis(u, axis), y, axis), y));
}

static void softmax_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t;
    int64_t axis = axis_of(e);
    tow_value p = tow_exp(tow_sub(x[0], along(maximum(x[0], axis), x[0], axis)));
    y[0] = tow_div(p, along(tow__sum_axis(p, axis), p, axis));
}

/* ---- y = x - max - log(sum(exp(x - max))): dx - sum(dx p), p = exp(y); keeps p -----------------------------------
 * The sum is negated, not what it is subtracted from: so is the transposed sum, and not the whole cotangent. */

static void log_softmax_jvp(tow__jvp *r)
{
    int64_t axis = axis_of(r->e);
    tow__jvp_primal(r);
    tow_value dx = r->dx[0], p = tow_exp(r->y[0]);
    r->dy[0] = tow_add(dx, along(tow_neg(tow__sum_axis(tow_mul(dx, p), axis)), dx, axis));
}

static void log_softmax_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t;
    int64_t axis = axis_of(e);
    tow_value shifted = tow_sub(x[0], along(maximum(x[0], axis), x[0], axis));
    y[0] = tow_sub(shifted, along(tow_log(tow__sum_axis(tow_exp(shifted), axis)), shifted, axis));
}

/* ---- y = max + log(sum(exp(x - max))): sum(dx p), p = exp(x - y); keeps p ---------------------------------------- */

static void logsumexp_jvp(tow__jvp *r)
{
    int64_t axis = axis_of(r->e);
    tow__jvp_primal(r);
    tow_value p = tow_exp(tow_sub(r->x[0], along(r->y[0], r->x[0], axis)));
    r->dy[0] = tow__sum_axis(tow_mul(r->dx[0], p), axis);
}

/* A maximum that is not finite is replaced by 0: infinities then come out as they should. */
static void logsumexp_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t;
    int64_t axis = axis_of(e);
    tow_value top = maximum(x[0], axis);
    top = tow_where(tow_lt(tow_abs(top), tow_full_like(top, (double)INFINITY)), top, tow_zeros_like(top));
    tow_value sum = tow__sum_axis(tow_exp(tow_sub(x[0], along(top, x[0], axis))), axis);
    y[0] = tow_add(tow_log(sum), top);
}

static tow_status logsumexp_type(const tow__typing *ty)
{
    tow_status status = tow__type_axis_float(ty);
    if (status == TOW_OK)
        ty->out[0] =
            tow__without_axes(ty->in[0], &(tow__ints){.n = 1, .v = {((const tow__axis_params *)ty->params)->axis}});
    return status;
}

#define OVER_AXIS(op, rule)                                                                                            \
    TOW__PRIMITIVE(op, TOW__COMPOSITE, tow__tile_along_axis, tow__element_cost, .reduces_axis = true, .inputs = 1,     \
                   .outputs = 1, .type = rule, .jvp = op##_jvp, .batch = tow__batch_along_axis,                        \
                   .decompose = op##_decompose,                                                                        \
                   TOW__PARAMS(tow__axis_params, TOW__PARAM(tow__axis_params, axis, TOW__P_INT)));                     \
    tow_value tow_##op(tow_value x, int axis)                                                                          \
    {                                                                                                                  \
        tow__axis_params p;                                                                                            \
        if (tow_is_null(x) || !tow__normal_axis(x, #op, axis, tow_value_type(x).rank, &p.axis)) return tow__null();    \
        return tow__op(&tow__##op##_p, &p, 1, &x);                                                                     \
    }
OVER_AXIS(softmax, tow__type_axis_float)
OVER_AXIS(log_softmax, tow__type_axis_float)
OVER_AXIS(logsumexp, logsumexp_type)
