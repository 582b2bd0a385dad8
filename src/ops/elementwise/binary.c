/* Arithmetic of two operands of one shape: add sub mul div rem pow max min. Public functions broadcast by NumPy's rule
 * and record the broadcasts, so that the sums over repeated axes appear in the graph when it is transposed. */
#include "src/ops/rules.h"
#include "src/ops/shapes/broadcast.h"

/* ---- linear: x + y, x - y ---------------------------------------------------------------------------------------- */

static void add_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    r->dy[0] = tow__add_or(r->dx[0], r->dx[1]);
}

static void add_transpose(tow__transpose *r)
{
    if (r->linear[0]) r->dx[0] = r->ct[0];
    if (r->linear[1]) r->dx[1] = r->ct[0];
}

static void sub_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    tow_value dx = r->dx[0], dy = r->dx[1];
    r->dy[0] = tow_is_null(dy) ? dx : tow_is_null(dx) ? tow_neg(dy) : tow_sub(dx, dy);
}

static void sub_transpose(tow__transpose *r)
{
    if (r->linear[0]) r->dx[0] = r->ct[0];
    if (r->linear[1]) r->dx[1] = tow_neg(r->ct[0]);
}

/* ---- x y: dx y + x dy; keeps the opposite operand of each differentiated one ------------------------------------- */

static void mul_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    tow_value a = tow_is_null(r->dx[0]) ? tow__null() : tow_mul(r->dx[0], r->x[1]);
    tow_value b = tow_is_null(r->dx[1]) ? tow__null() : tow_mul(r->dx[1], r->x[0]);
    r->dy[0] = tow__add_or(a, b);
}

static void mul_transpose(tow__transpose *r)
{
    if (r->linear[0])
        r->dx[0] = tow_mul(r->ct[0], r->x[1]);
    else
        r->dx[1] = tow_mul(r->ct[0], r->x[0]);
}

/* ---- z = x / y: (dx - dy z) / y. Keeps y; with dy also z, or one coefficient c = z / y if x is not differentiated  */

static void div_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    tow_value z = r->y[0], y = r->x[1], dx = r->dx[0], dy = r->dx[1];
    if (tow_is_null(dy))
        r->dy[0] = tow_div(dx, y);
    else if (tow_is_null(dx))
        r->dy[0] = tow_neg(tow_mul(dy, tow_div(z, y)));
    else
        r->dy[0] = tow_div(tow_sub(dx, tow_mul(dy, z)), y);
}

static void div_transpose(tow__transpose *r) { r->dx[0] = tow_div(r->ct[0], r->x[1]); }

/* ---- x - y trunc(x/y): dx - dy c, c = trunc(x/y) ----------------------------------------------------------------- */

static void rem_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    tow_value dy = tow__null();
    if (!tow_is_null(r->dx[1])) {
        tow_value quotient = tow_div(r->x[0], r->x[1]);
        tow_value c = tow_mul(tow_sign(quotient), tow_floor(tow_abs(quotient)));
        dy = tow_neg(tow_mul(r->dx[1], c));
    }
    r->dy[0] = tow__add_or(r->dx[0], dy);
}

/* ---- z = x^y: dx c1 + dy c2, c1 = y x^(y-1) (0 where y = 0), c2 = z log(x) (log 1 where x = 0) ------------------- */

static void pow_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    tow_value x = r->x[0], y = r->x[1], a = tow__null(), b = tow__null();
    if (!tow_is_null(r->dx[0])) {
        tow_value zero = tow_zeros_like(y), one = tow_full_like(y, 1), flat = tow_eq(y, zero);
        tow_value power = tow_pow(x, tow_where(flat, one, tow_sub(y, one)));
        a = tow_mul(r->dx[0], tow_where(flat, zero, tow_mul(y, power)));
    }
    if (!tow_is_null(r->dx[1])) {
        tow_value positive = tow_where(tow_eq(x, tow_zeros_like(x)), tow_full_like(x, 1), x);
        b = tow_mul(r->dx[1], tow_mul(tow_log(positive), r->y[0]));
    }
    r->dy[0] = tow__add_or(a, b);
}

/* ---- max, min: select(z == x, select(z == y, (dx + dy)/2, dx), select(z == y, dy, 0)); keeps two bool masks ------ */

/* If an operand is NaN, so is z, which equals neither: no gradient. */
static void extremum_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    tow_value x = r->x[0], y = r->x[1], first = tow_eq(x, r->y[0]), second = tow_eq(y, r->y[0]);
    tow_value dx = tow__or_zeros(r->dx[0], x), none = tow_zeros_like(y);
    tow_value dy = tow_is_null(r->dx[1]) ? none : tow_where(second, r->dx[1], none);
    tow_value half = tow_mul_scalar(tow__add_or(r->dx[0], r->dx[1]), 0.5);
    r->dy[0] = tow_where(first, tow_where(second, half, dx), dy);
}

/* ---- x y + z, rounded once: dx y + x dy + dz; keeps the opposite factor of each differentiated one --------------- */

static void fma_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    tow_value a = tow_is_null(r->dx[0]) ? tow__null() : tow_mul(r->dx[0], r->x[1]);
    tow_value b = tow_is_null(r->dx[1]) ? tow__null() : tow_mul(r->dx[1], r->x[0]);
    r->dy[0] = tow__add_or(tow__add_or(a, b), r->dx[2]);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

#define BINARY .inputs = 2, .outputs = 1

TOW__ARITHMETIC_PRIMITIVE(add, BINARY, .type = tow__type_same_number, .jvp = add_jvp, .transpose = add_transpose);
TOW__ARITHMETIC_PRIMITIVE(sub, BINARY, .type = tow__type_same_number, .jvp = sub_jvp, .transpose = sub_transpose);
TOW__ARITHMETIC_PRIMITIVE(mul, BINARY, .type = tow__type_same_number, .jvp = mul_jvp, .transpose = mul_transpose,
                          .linear_in = tow__linear_in_one);
TOW__ARITHMETIC_PRIMITIVE(div, BINARY, .type = tow__type_same_number, .jvp = div_jvp, .transpose = div_transpose,
                          .linear_in = tow__linear_in_first);
TOW__ARITHMETIC_PRIMITIVE(fma, .inputs = 3, .outputs = 1, .type = tow__type_same_float, .jvp = fma_jvp);
TOW__ELEMENTWISE_PRIMITIVE(rem, BINARY, .type = tow__type_same_number, .jvp = rem_jvp);
TOW__ELEMENTWISE_PRIMITIVE(pow, BINARY, .type = tow__type_same_float, .jvp = pow_jvp);
TOW__ARITHMETIC_PRIMITIVE(max, BINARY, .type = tow__type_same_number, .jvp = extremum_jvp);
TOW__ARITHMETIC_PRIMITIVE(min, BINARY, .type = tow__type_same_number, .jvp = extremum_jvp);

/* ---- public functions -------------------------------------------------------------------------------------------- */

#define PUBLIC(op)                                                                                                     \
    tow_value tow_##op(tow_value x, tow_value y) { return tow__broadcast_op2(&tow__##op##_p, x, y); }
PUBLIC(add)
PUBLIC(sub)
PUBLIC(mul)
PUBLIC(div)
PUBLIC(rem)
PUBLIC(pow)
PUBLIC(max)
PUBLIC(min)

tow_value tow_fma(tow_value x, tow_value y, tow_value z)
{
    tow_value v[3] = {x, y, z};
    return tow__broadcast_all(3, v) ? tow__op(&tow__fma_p, NULL, 3, v) : tow__null();
}

tow_value tow_add_scalar(tow_value x, double y) { return tow_add(x, tow_full_like(x, y)); }
tow_value tow_mul_scalar(tow_value x, double y) { return tow_mul(x, tow_full_like(x, y)); }
