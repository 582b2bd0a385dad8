/* Tangent, inverse trigonometric, hyperbolic and inverse hyperbolic functions: elementwise on floats.
 *
 * As in unary.c each rule keeps one array at most, and its formula stands above it. */
#include "src/ops/rules.h"
#include "src/ops/shapes/broadcast.h"

/* Records y, and gives dx; null if there is nothing to differentiate. */
static tow_value primal(tow__jvp *r)
{
    tow__jvp_primal(r);
    return r->dx[0];
}

/* 1 + sign x^2 */
static tow_value one_plus_square(tow_value x, bool minus)
{
    tow_value one = tow_full_like(x, 1), square = tow_square(x);
    return minus ? tow_sub(one, square) : tow_add(one, square);
}

/* tan(x): dx + (dx y) y, so that the output is all that is kept */
static void tan_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_add(dx, tow_mul(tow_mul(dx, r->y[0]), r->y[0]));
}

/* asin(x): dx c, c = 1/sqrt(1 - x^2) */
static void asin_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_mul(dx, tow_rsqrt(one_plus_square(r->x[0], true)));
}

/* acos(x): -(dx c), c = 1/sqrt(1 - x^2) */
static void acos_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_neg(tow_mul(dx, tow_rsqrt(one_plus_square(r->x[0], true))));
}

/* atan(x): dx / c, c = 1 + x^2 */
static void atan_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_div(dx, one_plus_square(r->x[0], false));
}

/* sinh(x): dx c, c = cosh(x) */
static void sinh_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_mul(dx, tow_cosh(r->x[0]));
}

/* cosh(x): dx c, c = sinh(x) */
static void cosh_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_mul(dx, tow_sinh(r->x[0]));
}

/* asinh(x): dx c, c = 1/sqrt(x^2 + 1) */
static void asinh_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_mul(dx, tow_rsqrt(one_plus_square(r->x[0], false)));
}

/* acosh(x): dx c, c = 1/sqrt(x^2 - 1) */
static void acosh_jvp(tow__jvp *r)
{
    tow_value dx = primal(r), square = tow_square(r->x[0]);
    r->dy[0] = tow_mul(dx, tow_rsqrt(tow_sub(square, tow_full_like(square, 1))));
}

/* atanh(x): dx / c, c = (1 + x) (1 - x) */
static void atanh_jvp(tow__jvp *r)
{
    tow_value dx = primal(r), one = tow_full_like(r->x[0], 1);
    r->dy[0] = tow_div(dx, tow_mul(tow_add(one, r->x[0]), tow_sub(one, r->x[0])));
}

/* The angle of (x, y) for operands y, x: dy c1 - dx c2, c1 = x / (x^2 + y^2), c2 = y / (x^2 + y^2); one coefficient for
 * each differentiated operand */
static void atan2_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    tow_value y = r->x[0], x = r->x[1], square = tow_add(tow_square(y), tow_square(x)), a = tow__null(),
              b = tow__null();
    if (!tow_is_null(r->dx[0])) a = tow_mul(r->dx[0], tow_div(x, square));
    if (!tow_is_null(r->dx[1])) b = tow_neg(tow_mul(r->dx[1], tow_div(y, square)));
    r->dy[0] = tow__add_or(a, b);
}

#define UNARY(op)                                                                                                      \
    TOW__ELEMENTWISE_PRIMITIVE(op, .inputs = 1, .outputs = 1, .type = tow__type_same_float, .jvp = op##_jvp);          \
    tow_value tow_##op(tow_value x) { return tow__op1(&tow__##op##_p, x); }
UNARY(tan)
UNARY(asin)
UNARY(acos)
UNARY(atan)
UNARY(sinh)
UNARY(cosh)
UNARY(asinh)
UNARY(acosh)
UNARY(atanh)

TOW__ELEMENTWISE_PRIMITIVE(atan2, .operands = "y, x", .inputs = 2, .outputs = 1, .type = tow__type_same_float,
                           .jvp = atan2_jvp);
tow_value tow_atan2(tow_value y, tow_value x) { return tow__broadcast_op2(&tow__atan2_p, y, x); }
