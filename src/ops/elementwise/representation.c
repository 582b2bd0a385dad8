/* Functions of the representation of floats: is_finite, nextafter, reduce_precision. */
#include "src/ops/rules.h"
#include "src/ops/shapes/broadcast.h"

/* ---- is_finite(x) -> bool: neither infinite nor NaN; no derivative ----------------------------------------------- */

static tow_status is_finite_type(const tow__typing *ty)
{
    tow_status status = tow__type_same_float(ty);
    ty->out[0].dtype = TOW_BOOL;
    return status;
}

TOW__ARITHMETIC_PRIMITIVE(is_finite, .inputs = 1, .outputs = 1, .type = is_finite_type);

tow_value tow_is_finite(tow_value x) { return tow__op1(&tow__is_finite_p, x); }

/* ---- nextafter(x, y): the number next to x in the direction of y ------------------------------------------------- */

/* JAX has no derivative of it either: that of a grid of numbers says nothing about the function that was meant. */
static void nextafter_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    tow__op_fail(r->y[0], "nextafter", TOW_UNSUPPORTED,
                 "it has no derivative; put tow_stop_gradient around operands that are differentiated");
}

TOW__ELEMENTWISE_PRIMITIVE(nextafter, .inputs = 2, .outputs = 1, .type = tow__type_same_float, .jvp = nextafter_jvp);

tow_value tow_nextafter(tow_value x, tow_value y) { return tow__broadcast_op2(&tow__nextafter_p, x, y); }

/* ---- reduce_precision(x): rounded to so many bits, kept in x's type ---------------------------------------------- */

static tow_status reduce_precision_type(const tow__typing *ty)
{
    const tow__precision_params *p = ty->params;
    if (p->exponent_bits < 1 || p->mantissa_bits < 0)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "at least 1 bit of exponent and 0 bits of mantissa are needed, found %lld and %lld",
                              (long long)p->exponent_bits, (long long)p->mantissa_bits);
    return tow__type_same_float(ty);
}

/* Taken as linear: tangents and cotangents are rounded in the same way. */
static void reduce_precision_transpose(tow__transpose *r)
{
    r->dx[0] = tow__op(&tow__reduce_precision_p, r->e->params, 1, r->ct);
}

TOW__ARITHMETIC_PRIMITIVE(reduce_precision, .inputs = 1, .outputs = 1, .type = reduce_precision_type,
                           .transpose = reduce_precision_transpose,
                           TOW__PARAMS(tow__precision_params,
                                       TOW__PARAM(tow__precision_params, exponent_bits, TOW__P_INT),
                                       TOW__PARAM(tow__precision_params, mantissa_bits, TOW__P_INT)));

tow_value tow_reduce_precision(tow_value x, int exponent_bits, int mantissa_bits)
{
    return tow__op(&tow__reduce_precision_p, &(tow__precision_params){exponent_bits, mantissa_bits}, 1, &x);
}
