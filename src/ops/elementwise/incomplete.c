/* Special functions of several operands: the incomplete gamma functions and their derivatives by a, the incomplete
 * beta function, the zeta function.
 *
 * Derivatives with respect to x are densities, exponentials of sums whose terms cancel: of a = 1000 the terms are
 * 6900, the sum is 4. They are computed in double precision whatever the type, and rounded once. */
#include "src/ops/rules.h"
#include "src/ops/shapes/broadcast.h"

static tow_value wide(tow_value x) { return tow_convert(x, TOW_F64); }

/* ---- P(a, x): da c1 + dx c2, c1 = dP/da, c2 = x^(a-1) e^-x / gamma(a); igammac: their negatives ------------------ */

/* e^((a - 1) log x - x - log gamma(a)), in x's type */
static tow_value gamma_density(tow_value a, tow_value x)
{
    tow_value p = wide(a), z = wide(x);
    tow_value power = tow_mul(tow_sub(p, tow_full_like(p, 1)), tow_log(z));
    return tow_convert(tow_exp(tow_sub(tow_sub(power, z), tow_lgamma(p))), tow__dtype(x));
}

static void igamma_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    tow_value a = r->x[0], x = r->x[1], da = tow__null(), dx = tow__null();
    if (!tow_is_null(r->dx[0])) da = tow_mul(r->dx[0], tow_igamma_grad_a(a, x));
    if (!tow_is_null(r->dx[1])) dx = tow_mul(r->dx[1], gamma_density(a, x));
    r->dy[0] = tow__add_or(da, dx);
}

static void igammac_jvp(tow__jvp *r)
{
    igamma_jvp(r);
    r->dy[0] = tow_neg(r->dy[0]);
}

/* ---- dP/da: dx c, c = d^2 P / (da dx) = density (log x - digamma(a)) --------------------------------------------- */

static void igamma_grad_a_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    if (!tow_is_null(r->dx[0])) {
        tow__op_fail(r->y[0], "igamma_grad_a", TOW_UNSUPPORTED,
                     "a second derivative of the incomplete gamma functions with respect to a is not known; put "
                     "tow_stop_gradient around a");
        return;
    }
    tow_value a = r->x[0], x = r->x[1], p = wide(a);
    tow_value factor = tow_convert(tow_sub(tow_log(wide(x)), tow_digamma(p)), tow__dtype(x));
    r->dy[0] = tow_mul(r->dx[1], tow_mul(gamma_density(a, x), factor));
}

static void random_gamma_grad_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    tow__op_fail(r->y[0], "random_gamma_grad", TOW_UNSUPPORTED,
                 "a second derivative of samples of the gamma distribution is not known; put tow_stop_gradient around "
                 "operands that are differentiated");
}

/* ---- I_x(a, b): dx c, c = x^(a-1) (1 - x)^(b-1) / B(a, b) -------------------------------------------------------- */

static void betainc_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    if (!tow_is_null(r->dx[0]) || !tow_is_null(r->dx[1])) {
        tow__op_fail(r->y[0], "betainc", TOW_UNSUPPORTED,
                     "it has a derivative with respect to x alone; put tow_stop_gradient around a and b");
        return;
    }
    tow_value a = wide(r->x[0]), b = wide(r->x[1]), x = wide(r->x[2]), one = tow_full_like(x, 1);
    tow_value beta = tow_sub(tow_add(tow_lgamma(a), tow_lgamma(b)), tow_lgamma(tow_add(a, b)));
    tow_value left = tow_mul(tow_sub(a, one), tow_log(x)), right = tow_mul(tow_sub(b, one), tow_log1p(tow_neg(x)));
    tow_value c = tow_convert(tow_exp(tow_sub(tow_add(right, left), beta)), tow__dtype(r->x[2]));
    r->dy[0] = tow_mul(r->dx[2], c);
}

/* ---- zeta(s, q): dq c, c = -s zeta(s + 1, q) --------------------------------------------------------------------- */

static void zeta_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    if (!tow_is_null(r->dx[0])) {
        tow__op_fail(r->y[0], "zeta", TOW_UNSUPPORTED,
                     "it has a derivative with respect to q alone; put tow_stop_gradient around s");
        return;
    }
    tow_value s = r->x[0], one = tow_full_like(s, 1);
    r->dy[0] = tow_mul(r->dx[1], tow_neg(tow_mul(s, tow_zeta(tow_add(s, one), r->x[1]))));
}

#define BINARY(op, names)                                                                                              \
    TOW__ELEMENTWISE_PRIMITIVE(op, .inputs = 2, .outputs = 1, .operands = names, .type = tow__type_same_float,         \
                               .jvp = op##_jvp);                                                                       \
    tow_value tow_##op(tow_value x, tow_value y) { return tow__broadcast_op2(&tow__##op##_p, x, y); }
BINARY(igamma, "a, x")
BINARY(igammac, "a, x")
BINARY(igamma_grad_a, "a, x")
BINARY(random_gamma_grad, "a, x")
BINARY(zeta, "s, q")

TOW__ELEMENTWISE_PRIMITIVE(betainc, .inputs = 3, .outputs = 1, .operands = "a, b, x", .type = tow__type_same_float,
                           .jvp = betainc_jvp);

tow_value tow_betainc(tow_value a, tow_value b, tow_value x)
{
    tow_value v[3] = {a, b, x};
    return tow__broadcast_all(3, v) ? tow__op(&tow__betainc_p, NULL, 3, v) : tow__null();
}
