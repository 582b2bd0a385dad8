/* Roots, powers of two and special functions of one operand: cbrt, exp2, erfc, lgamma, digamma, polygamma, bessel_i0e,
 * bessel_i1e. Those of several are in incomplete.c.
 *
 * As in unary.c each rule keeps one array at most, and its formula stands above it. */
#include "src/ops/rules.h"

/* Records y, and gives dx; null if there is nothing to differentiate. */
static tow_value primal(tow__jvp *r)
{
    tow__jvp_primal(r);
    return r->dx[0];
}

/* cbrt(x): dx/3 / y / y */
static void cbrt_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_div(tow_div(tow_mul_scalar(dx, 1.0 / 3), r->y[0]), r->y[0]);
}

/* 2^x: log(2) dx y */
static void exp2_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_mul(tow_mul_scalar(dx, 0.69314718055994530942), r->y[0]);
}

/* erfc(x) = 1 - erf(x): -2/sqrt(pi) dx c, c = exp(-x x) */
static void erfc_jvp(tow__jvp *r)
{
    tow_value dx = primal(r), c = tow_exp(tow_neg(tow_square(r->x[0])));
    r->dy[0] = tow_mul(tow_mul_scalar(dx, -1.12837916709551257390), c);
}

/* log |gamma(x)|: dx c, c = digamma(x) */
static void lgamma_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_mul(dx, tow_digamma(r->x[0]));
}

/* gamma'(x) / gamma(x): dx c, c = polygamma(1, x) */
static void digamma_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_mul(dx, tow_polygamma(r->x[0], 1));
}

/* The derivative of digamma of this order: dx c, c = polygamma(order + 1, x). The highest order has none. */
static void polygamma_jvp(tow__jvp *r)
{
    int64_t order = ((const tow__polygamma_params *)r->e->params)->order;
    tow_value dx = primal(r);
    r->dy[0] = tow_mul(dx, tow_polygamma(r->x[0], (int)order + 1));
}

/* y = e^-|x| I0(x): dx c, c = i1e(x) - sign(x) y */
static void bessel_i0e_jvp(tow__jvp *r)
{
    tow_value dx = primal(r), x = r->x[0];
    r->dy[0] = tow_mul(dx, tow_sub(tow_bessel_i1e(x), tow_mul(tow_sign(x), r->y[0])));
}

/* y = e^-|x| I1(x): dx c, c = i0e(x) - y (sign(x) + 1/x), at 0 the limit 1/2 */
static void bessel_i1e_jvp(tow__jvp *r)
{
    tow_value dx = primal(r), x = r->x[0], one = tow_full_like(x, 1), half = tow_full_like(x, 0.5);
    tow_value small = tow_lt(tow_abs(x), tow_full_like(x, 1e-20)), safe = tow_where(small, one, x);
    tow_value over = tow_div(tow_where(small, half, r->y[0]), safe); /* y/x */
    tow_value c = tow_sub(tow_sub(tow_bessel_i0e(x), tow_mul(tow_sign(x), r->y[0])), over);
    r->dy[0] = tow_mul(dx, c);
}

static tow_status polygamma_type(const tow__typing *ty)
{
    int64_t order = ((const tow__polygamma_params *)ty->params)->order;
    if (order < 0 || order > TOW__POLYGAMMA_ORDERS)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "the order must be in [0, %d], found %lld",
                              TOW__POLYGAMMA_ORDERS, (long long)order);
    return tow__type_same_float(ty);
}

#define UNARY(op)                                                                                                      \
    TOW__ELEMENTWISE_PRIMITIVE(op, .inputs = 1, .outputs = 1, .type = tow__type_same_float, .jvp = op##_jvp);          \
    tow_value tow_##op(tow_value x) { return tow__op1(&tow__##op##_p, x); }
UNARY(cbrt)
UNARY(exp2)
UNARY(erfc)
UNARY(lgamma)
UNARY(digamma)
UNARY(bessel_i0e)
UNARY(bessel_i1e)

TOW__ELEMENTWISE_PRIMITIVE(polygamma, .inputs = 1, .outputs = 1, .type = polygamma_type, .jvp = polygamma_jvp,
                           TOW__PARAMS(tow__polygamma_params, TOW__PARAM(tow__polygamma_params, order, TOW__P_INT)));

tow_value tow_polygamma(tow_value x, int order)
{
    return tow__op(&tow__polygamma_p, &(tow__polygamma_params){order}, 1, &x);
}
