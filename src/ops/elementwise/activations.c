/* See activations.h. A branch that is not taken and would overflow is computed of a harmless number instead, so that no
 * derivative is an infinity times zero. */
#include "tow/numpy.h"

#include "src/ops/rules.h"

/* ---- piecewise linear -------------------------------------------------------------------------------------------- */

/* x between the bounds; the gradient passes strictly inside. */
static tow_value inside(tow_value x, double low, double high)
{
    if (tow_is_null(x)) return x;
    tow_trace *trace = tow_value_trace(x);
    return tow_clamp(tow_scalar(trace, tow__dtype(x), low), x, tow_scalar(trace, tow__dtype(x), high));
}

tow_value tow_relu6(tow_value x) { return inside(x, 0, 6); }

tow_value tow_leaky_relu_with(tow_value x, double slope)
{
    return tow_where(tow_ge_scalar(x, 0), x, tow_mul_scalar(x, slope));
}

/* The gradient passes at the bounds, too. */
tow_value tow_hard_tanh(tow_value x)
{
    tow_value at_least = tow_where(tow_lt_scalar(x, -1), tow_full_like(x, -1), x);
    return tow_where(tow_gt_scalar(x, 1), tow_full_like(x, 1), at_least);
}

tow_value tow_hard_sigmoid(tow_value x) { return tow_div_scalar(tow_relu6(tow_add_scalar(x, 3)), 6); }
tow_value tow_hard_silu(tow_value x) { return tow_mul(x, tow_hard_sigmoid(x)); }

tow_value tow_sparse_sigmoid(tow_value x)
{
    return tow_mul_scalar(tow_clip(tow_add_scalar(x, 1), tow_full_like(x, 0), tow_full_like(x, 2)), 0.5);
}

tow_value tow_sparse_plus(tow_value x)
{
    tow_value middle = tow_div_scalar(tow_square(tow_add_scalar(x, 1)), 4);
    tow_value right = tow_where(tow_ge_scalar(x, 1), x, middle);
    return tow_where(tow_le_scalar(x, -1), tow_zeros_like(x), right);
}

/* ---- smooth ------------------------------------------------------------------------------------------------------ */

tow_value tow_elu_with(tow_value x, double alpha)
{
    tow_value positive = tow_gt_scalar(x, 0), below = tow_where(positive, tow_zeros_like(x), x);
    return tow_where(positive, x, tow_mul_scalar(tow_expm1(below), alpha));
}

tow_value tow_celu_with(tow_value x, double alpha)
{
    tow_value positive = tow_gt_scalar(x, 0), below = tow_where(positive, tow_zeros_like(x), x);
    return tow_where(positive, x, tow_mul_scalar(tow_expm1(tow_div_scalar(below, alpha)), alpha));
}

tow_value tow_selu(tow_value x)
{
    return tow_mul_scalar(tow_elu_with(x, 1.6732632423543772848170429916717), 1.0507009873554804934193349852946);
}

/* x + log(1 + exp(-x)) where x > 0, else log(1 + exp(x)): nothing overflows, and derivatives of all orders are right at
 * 0. */
tow_value tow_softplus(tow_value x)
{
    tow_value positive = tow_gt_scalar(x, 0);
    tow_value rest = tow_log1p(tow_exp(tow_where(positive, tow_neg(x), x)));
    return tow_where(positive, tow_add(x, rest), rest);
}

tow_value tow_log_sigmoid(tow_value x) { return tow_neg(tow_softplus(tow_neg(x))); }
tow_value tow_mish(tow_value x) { return tow_mul(x, tow_tanh(tow_softplus(x))); }
tow_value tow_soft_sign(tow_value x) { return tow_div(x, tow_add_scalar(tow_abs(x), 1)); }

tow_value tow_squareplus_with(tow_value x, double b)
{
    return tow_div_scalar(tow_add(x, tow_sqrt(tow_add_scalar(tow_square(x), b))), 2);
}

tow_value tow_leaky_relu(tow_value x) { return tow_leaky_relu_with(x, 0.01); }
tow_value tow_elu(tow_value x) { return tow_elu_with(x, 1); }
tow_value tow_celu(tow_value x) { return tow_celu_with(x, 1); }
tow_value tow_squareplus(tow_value x) { return tow_squareplus_with(x, 4); }

/* ---- over axes --------------------------------------------------------------------------------------------------- */

tow_value tow_glu(tow_value x, int axis)
{
    tow_value halves[2] = {{0}};
    tow_split(x, 2, axis, halves);
    return tow_mul(halves[0], tow_logistic(halves[1]));
}

tow_value tow_standardize(tow_value x, int n_axes, const int *axes, double epsilon)
{
    tow_value centered = tow_sub(x, tow_mean_keepdims(x, n_axes, axes));
    tow_value variance = tow_mean_keepdims(tow_square(centered), n_axes, axes);
    return tow_mul(centered, tow_rsqrt(tow_add_scalar(variance, epsilon)));
}
