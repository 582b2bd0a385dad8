/* Activations: relu, silu, gelu, and the derivatives of the last two as elementwise primitives of their own, so that
 * one coefficient is all that is kept. */
#include "src/ops/rules.h"

#define ACTIVATION(op, ...)                                                                                            \
    TOW__ELEMENTWISE_PRIMITIVE(op, .inputs = 1, .outputs = 1, .type = tow__type_same_float, __VA_ARGS__);

/* ---- relu(x) = max(x, 0): select(x > 0, dx, 0); keeps the bool mask ---------------------------------------------- */

static void relu_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    tow_value zeros = tow_zeros_like(r->x[0]);
    r->dy[0] = tow_where(tow_gt(r->x[0], zeros), r->dx[0], zeros);
}

static void relu_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t, (void)e;
    y[0] = tow_max(x[0], tow_zeros_like(x[0]));
}

ACTIVATION(relu, .arithmetic = true, .jvp = relu_jvp, .decompose = relu_decompose)

/* ---- silu(x) = x s, s = logistic(x): dx c, c = silu_grad(x) = s (1 + x (1 - s)) ---------------------------------- */

static void silu_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    r->dy[0] = tow_mul(r->dx[0], tow__op1(&tow__silu_grad_p, r->x[0]));
}

static void silu_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t, (void)e;
    y[0] = tow_mul(x[0], tow_logistic(x[0]));
}

static void silu_grad_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t, (void)e;
    tow_value s = tow_logistic(x[0]), one = tow_full_like(s, 1);
    y[0] = tow_mul(s, tow_add(tow_mul(x[0], tow_sub(one, s)), one));
}

ACTIVATION(silu, .jvp = silu_jvp, .decompose = silu_decompose)
ACTIVATION(silu_grad, .decompose = silu_grad_decompose)

/* ---- gelu(x): dx c, c = gelu_grad(x)
 * ------------------------------------------------------------------------------------------------ approximate: x/2 (1
 * + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3) (Hendrycks & Gimpel, "Gaussian error linear units", 2016)
 *   derivative: (1 + t)/2 + x/2 (1 - t^2) u', t = tanh(u), u' = sqrt(2/pi) (1 + 3 0.044715 x^2)
 * exact: x/2 (1 + erf(x/sqrt 2));  derivative: (1 + erf(x/sqrt 2))/2 + x exp(-x^2/2)/sqrt(2 pi) */

static const double sqrt_2_over_pi = 0.79788456080286535588, cubic = 0.044715;
static const double sqrt_half = 0.70710678118654752440, inverse_sqrt_2pi = 0.39894228040143267794;

static bool approximate(const tow__equation *e) { return ((const tow__gelu_params *)e->params)->approximate; }

/* tanh(u) of the approximate form; square: x^2 */
static tow_value gelu_tanh(tow_value x, tow_value square)
{
    tow_value inner = tow_mul(x, tow_add_scalar(tow_mul_scalar(square, cubic), 1));
    return tow_tanh(tow_mul_scalar(inner, sqrt_2_over_pi));
}

static void gelu_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t;
    tow_value v = x[0];
    tow_value bent = approximate(e) ? gelu_tanh(v, tow_square(v)) : tow_erf(tow_mul_scalar(v, sqrt_half));
    y[0] = tow_mul(tow_mul_scalar(v, 0.5), tow_add_scalar(bent, 1));
}

static void gelu_grad_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t;
    tow_value v = x[0], square = tow_square(v);
    if (approximate(e)) {
        tow_value bent = gelu_tanh(v, square);
        tow_value du = tow_mul_scalar(tow_add_scalar(tow_mul_scalar(square, 3 * cubic), 1), sqrt_2_over_pi);
        tow_value slope = tow_mul(tow_sub(tow_full_like(v, 1), tow_square(bent)), du);
        y[0] = tow_add(tow_mul_scalar(tow_add_scalar(bent, 1), 0.5), tow_mul(tow_mul_scalar(v, 0.5), slope));
    } else {
        tow_value phi = tow_mul_scalar(tow_exp(tow_mul_scalar(square, -0.5)), inverse_sqrt_2pi);
        tow_value cdf = tow_mul_scalar(tow_add_scalar(tow_erf(tow_mul_scalar(v, sqrt_half)), 1), 0.5);
        y[0] = tow_add(cdf, tow_mul(v, phi));
    }
}

static void gelu_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    r->dy[0] = tow_mul(r->dx[0], tow__op(&tow__gelu_grad_p, r->e->params, 1, r->x));
}

#define GELU_PARAMS TOW__PARAMS(tow__gelu_params, TOW__PARAM(tow__gelu_params, approximate, TOW__P_BOOL))
ACTIVATION(gelu, .jvp = gelu_jvp, .decompose = gelu_decompose, GELU_PARAMS)
ACTIVATION(gelu_grad, .decompose = gelu_grad_decompose, GELU_PARAMS)

/* ---- public functions -------------------------------------------------------------------------------------------- */

tow_value tow_relu(tow_value x) { return tow__op1(&tow__relu_p, x); }
tow_value tow_silu(tow_value x) { return tow__op1(&tow__silu_p, x); }
tow_value tow_gelu(tow_value x) { return tow__op(&tow__gelu_p, &(tow__gelu_params){true}, 1, &x); }
tow_value tow_gelu_erf(tow_value x) { return tow__op(&tow__gelu_p, &(tow__gelu_params){false}, 1, &x); }
