/* Elementwise primitives of one float operand, with their derivative rules and public functions.
 *
 * Each rule keeps one array at most: the operand x or the primitive's own output y where the formula allows it, else
 * one coefficient c. The formula stands above each rule; docs/residuals.md is the table of all of them. */
#include "src/ops/rules.h"

/* ---- rules: y = f(x), dy = f'(x) dx ------------------------------------------------------------------------------ */

/* Records y, and gives dx; null if there is nothing to differentiate. */
static tow_value primal(tow__jvp *r)
{
    tow__jvp_primal(r);
    return r->dx[0];
}

/* -x: linear */
static void neg_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_neg(dx);
}
static void neg_transpose(tow__transpose *r) { r->dx[0] = tow_neg(r->ct[0]); }

/* |x|: select(x >= 0, dx, -dx); keeps the bool mask */
static void abs_jvp(tow__jvp *r)
{
    tow_value dx = primal(r), mask = tow_ge(r->x[0], tow_zeros_like(r->x[0]));
    r->dy[0] = tow_where(mask, dx, tow_neg(dx));
}

/* exp(x): dx y */
static void exp_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_mul(dx, r->y[0]);
}

/* exp(x) - 1: dx y + dx */
static void expm1_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_add(tow_mul(dx, r->y[0]), dx);
}

/* log(x): dx / x */
static void log_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_div(dx, r->x[0]);
}

/* log(1 + x): dx / c, c = 1 + x */
static void log1p_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_div(dx, tow_add_scalar(r->x[0], 1));
}

/* sqrt(x): dx/2 / y */
static void sqrt_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_div(tow_mul_scalar(dx, 0.5), r->y[0]);
}

/* 1/sqrt(x): -dx/2 y y y; in this order, from either end, nothing overflows that the result does not */
static void rsqrt_jvp(tow__jvp *r)
{
    tow_value y, dx = primal(r);
    y = r->y[0];
    r->dy[0] = tow_mul(tow_mul(tow_mul_scalar(tow_mul(dx, y), -0.5), y), y);
}

/* sin(x): dx c, c = cos(x) */
static void sin_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_mul(dx, tow_cos(r->x[0]));
}

/* cos(x): -(dx c), c = sin(x) */
static void cos_jvp(tow__jvp *r)
{
    tow_value dx = primal(r);
    r->dy[0] = tow_neg(tow_mul(dx, tow_sin(r->x[0])));
}

/* tanh(x): dx - dx y y, so that the output is all that is kept */
static void tanh_jvp(tow__jvp *r)
{
    tow_value y, dx = primal(r);
    y = r->y[0];
    r->dy[0] = tow_sub(dx, tow_mul(tow_mul(dx, y), y));
}

/* 1/(1 + exp(-x)): u - u y, u = dx y */
static void logistic_jvp(tow__jvp *r)
{
    tow_value y, u, dx = primal(r);
    y = r->y[0];
    u = tow_mul(dx, y);
    r->dy[0] = tow_sub(u, tow_mul(u, y));
}

/* erf(x): 2/sqrt(pi) dx c, c = exp(-x x) */
static void erf_jvp(tow__jvp *r)
{
    tow_value dx = primal(r), c = tow_exp(tow_neg(tow_square(r->x[0])));
    r->dy[0] = tow_mul(tow_mul_scalar(dx, 1.12837916709551257390), c);
}

/* erf_inv(x): sqrt(pi)/2 dx c, c = exp(y y) */
static void erf_inv_jvp(tow__jvp *r)
{
    tow_value c, dx = primal(r);
    c = tow_exp(tow_square(r->y[0]));
    r->dy[0] = tow_mul(tow_mul_scalar(dx, 0.88622692545275801365), c);
}

/* x^n: n dx x^(n-1). n = 0: zero; 1: dx; 2: keeps x; -1: -dx y y, keeps y; else keeps x^(n-1). The lowest n has no n-1:
 * there n+1 gives the same numbers. */
static void integer_pow_jvp(tow__jvp *r)
{
    int64_t n = ((const tow__integer_pow_params *)r->e->params)->exponent;
    tow_value y, x = r->x[0], dx = primal(r);
    y = r->y[0];
    if (n == 0) return;
    if (n == 1)
        r->dy[0] = dx;
    else if (n == -1)
        r->dy[0] = tow_neg(tow_mul(tow_mul(dx, y), y));
    else
        r->dy[0] =
            tow_mul(tow_mul_scalar(dx, (double)n), n == 2 ? x : tow_integer_pow(x, n == INT64_MIN ? n + 1 : n - 1));
}

/* Integers have no inverse. */
static tow_status integer_pow_type(const tow__typing *ty)
{
    int64_t n = ((const tow__integer_pow_params *)ty->params)->exponent;
    tow_status status = tow__type_same_number(ty);
    if (status != TOW_OK || n >= 0) return status;
    return tow__require_dtype(ty, 0, TOW__FLOATS);
}

static void stop_gradient_transpose(tow__transpose *r) { r->dx[0] = tow__null(); }

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

#define UNARY .inputs = 1, .outputs = 1

TOW__ARITHMETIC_PRIMITIVE(neg, UNARY, .type = tow__type_same_number, .jvp = neg_jvp, .transpose = neg_transpose);
TOW__ARITHMETIC_PRIMITIVE(abs, UNARY, .type = tow__type_same_number, .jvp = abs_jvp);
/* Steps: all derivatives are zero. */
TOW__ARITHMETIC_PRIMITIVE(sign, UNARY, .type = tow__type_same_number);
TOW__ARITHMETIC_PRIMITIVE(floor, UNARY, .type = tow__type_same_float);
TOW__ARITHMETIC_PRIMITIVE(ceil, UNARY, .type = tow__type_same_float);
TOW__ARITHMETIC_PRIMITIVE(round, UNARY, .type = tow__type_same_float);
/* The identity whose derivatives of every order are zero. Batching makes select(mask, x, stop_gradient(x)) of operands
 * of a choice, also of tangents in custom rules; reverse mode lets nothing through there, either. */
TOW__ARITHMETIC_PRIMITIVE(stop_gradient, UNARY, .type = tow__type_same_any, .jvp = tow__jvp_primal,
                          .transpose = stop_gradient_transpose);

#define FLOAT_UNARY(op) TOW__ELEMENTWISE_PRIMITIVE(op, UNARY, .type = tow__type_same_float, .jvp = op##_jvp);
FLOAT_UNARY(exp)
FLOAT_UNARY(expm1)
FLOAT_UNARY(log)
FLOAT_UNARY(log1p)
FLOAT_UNARY(sqrt)
FLOAT_UNARY(rsqrt)
FLOAT_UNARY(sin)
FLOAT_UNARY(cos)
FLOAT_UNARY(tanh)
FLOAT_UNARY(logistic)
FLOAT_UNARY(erf)
FLOAT_UNARY(erf_inv)

TOW__ARITHMETIC_PRIMITIVE(integer_pow, UNARY, .type = integer_pow_type, .jvp = integer_pow_jvp,
                          TOW__PARAMS(tow__integer_pow_params,
                                      TOW__PARAM(tow__integer_pow_params, exponent, TOW__P_INT)));

/* ---- public functions -------------------------------------------------------------------------------------------- */

#define PUBLIC(op)                                                                                                     \
    tow_value tow_##op(tow_value x) { return tow__op1(&tow__##op##_p, x); }
PUBLIC(neg)
PUBLIC(abs)
PUBLIC(sign)
PUBLIC(floor)
PUBLIC(ceil)
PUBLIC(round)
PUBLIC(stop_gradient)
PUBLIC(exp)
PUBLIC(expm1)
PUBLIC(log)
PUBLIC(log1p)
PUBLIC(sqrt)
PUBLIC(rsqrt)
PUBLIC(sin)
PUBLIC(cos)
PUBLIC(tanh)
PUBLIC(logistic)
PUBLIC(erf)
PUBLIC(erf_inv)

tow_value tow_integer_pow(tow_value x, int64_t exponent)
{
    return tow__op(&tow__integer_pow_p, &(tow__integer_pow_params){exponent}, 1, &x);
}

tow_value tow_square(tow_value x) { return tow_integer_pow(x, 2); }
