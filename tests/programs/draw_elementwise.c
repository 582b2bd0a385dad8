/* Operations element by element: floats, integers, truth values. Arguments are brought to where a function is smooth
 * and of moderate size. */
#include "tests/programs/draw.h"

/* ---- floats ------------------------------------------------------------------------------------------------------ */

#define F(name, formula)                                                                                               \
    static tow_value name(tow_value x) { return formula; }
F(f_bell, tow_exp(tow_neg(tow_square(x))))
F(f_expm1, tow_expm1(tow_tanh(x)))
F(f_exp2, tow_exp2(tow_tanh(x)))
F(f_log, tow_log(tow_add_scalar(tow_abs(x), 0.5)))
F(f_log1p, tow_log1p(tow_square(x)))
F(f_sqrt, tow_sqrt(tow_add_scalar(tow_square(x), 0.5)))
F(f_rsqrt, tow_rsqrt(tow_add_scalar(tow_abs(x), 0.5)))
F(f_cbrt, tow_cbrt(tow_add_scalar(tow_square(x), 0.25)))
F(f_tan, tow_tan(tow_mul_scalar(tow_tanh(x), 0.75)))
F(f_asin, tow_asin(tow_mul_scalar(tow_sin(x), 0.75)))
F(f_acos, tow_acos(tow_mul_scalar(tow_tanh(x), 0.75)))
F(f_sinh, tow_sinh(tow_sin(x)))
F(f_cosh, tow_cosh(tow_tanh(x)))
F(f_acosh, tow_acosh(tow_add_scalar(tow_square(x), 1.5)))
F(f_atanh, tow_atanh(tow_mul_scalar(tow_sin(x), 0.5)))
F(f_erf_inv, tow_erf_inv(tow_mul_scalar(tow_tanh(x), 0.75)))
F(f_lgamma, tow_lgamma(tow_add_scalar(tow_tanh(x), 2)))
F(f_digamma, tow_digamma(tow_add_scalar(tow_logistic(x), 1)))
F(f_gelu, tow_gelu_erf(x))
F(f_fast_gelu, tow_gelu(x))
F(f_cube, tow_integer_pow(tow_tanh(x), 3))
F(f_inverse, tow_integer_pow(tow_add_scalar(tow_square(x), 1), -2))
F(f_affine, tow_add_scalar(tow_mul_scalar(x, 0.75), -0.25))
F(f_named, tow_checkpoint_name(tow_logistic(x), "a"))
F(f_tagged, tow_checkpoint_name(x, "b"))
F(f_there_and_back,
  tow_convert(tow_sin(tow_convert(x, tow_value_type(x).dtype == TOW_F32 ? TOW_F64 : TOW_F32)), tow_value_type(x).dtype))
F(f_clip, tow_clamp(tow_scalar(tow_value_trace(x), tow_value_type(x).dtype, -0.375), x,
                    tow_scalar(tow_value_trace(x), tow_value_type(x).dtype, 0.625)))
#undef F

/* Macros of ops.h add source lines to calls only; these are the functions. */
static tow_value (*const smooth[])(tow_value x) = {
    tow_tanh, tow_sin,    tow_cos, tow_logistic, tow_erf, tow_erfc,  tow_atan, tow_asinh, tow_silu,
    tow_neg,  tow_square, f_bell,  f_expm1,      f_exp2,  f_log,     f_log1p,  f_sqrt,    f_rsqrt,
    f_cbrt,   f_tan,      f_asin,  f_acos,       f_sinh,  f_cosh,    f_acosh,  f_atanh,   f_erf_inv,
    f_lgamma, f_digamma,  f_gelu,  f_fast_gelu,  f_cube,  f_inverse, f_affine, f_named,   f_tagged,
};
static tow_value (*const rough[])(tow_value x) = {
    tow_relu, tow_abs, tow_sign, tow_floor, tow_ceil, tow_round, f_clip, f_there_and_back,
};

tow_value draw_unary(drawing *d)
{
    tow_value x = draw_float(d);
    const int which = draw(d, 40);
    if (which == 0) { /* nextafter has no derivative */
        tow_value y = tow_stop_gradient(x);
        return draw(d, 2) ? y : tow_nextafter(y, tow_zeros_like(y));
    }
    if (which == 1) return tow_reduce_precision(x, 5, 10);
    if (which < 10) return rough[draw(d, sizeof rough / sizeof *rough)](x);
    return smooth[draw(d, sizeof smooth / sizeof *smooth)](x);
}

/* x and another value that broadcasts with it. */
static tow_value partner(drawing *d, tow_value x)
{
    tow_value y = draw_float(d);
    const tow_type a = tow_value_type(x), b = tow_value_type(y);
    bool fits = true;
    for (int i = 1; i <= a.rank && i <= b.rank; i++) {
        const int64_t m = a.dims[a.rank - i], n = b.dims[b.rank - i];
        fits = fits && (m == n || m == 1 || n == 1);
    }
    if (fits) return y;
    return draw(d, 2) ? fitted(y, a) : tow_rev(x, 0, NULL);
}

tow_value draw_binary(drawing *d)
{
    tow_value x = draw_float(d);
    if (tow_value_type(x).rank == 0) x = tow_cos(x);
    tow_value y = partner(d, x);
    switch (draw(d, 14)) {
    case 0:
    case 1:
        return tow_add(x, y);
    case 2:
        return tow_sub(x, y);
    case 3:
    case 4:
        return tow_mul(x, y);
    case 5:
        return tow_div(x, tow_add_scalar(tow_square(y), 0.75));
    case 6:
        return tow_max(x, y);
    case 7:
        return tow_min(x, y);
    case 8:
        return tow_pow(tow_add_scalar(tow_abs(x), 0.5), tow_tanh(y));
    case 9:
        return tow_rem(x, tow_add_scalar(tow_square(y), 1));
    case 10:
        return tow_atan2(x, tow_add_scalar(tow_square(y), 0.5));
    case 11:
        return tow_fma(x, y, tow_sin(x));
    case 12:
        return tow_logaddexp(x, y);
    default:
        return tow_where(draw(d, 2) ? tow_gt(x, y) : tow_le(y, x), tow_tanh(x), y);
    }
}

/* ---- integers ---------------------------------------------------------------------------------------------------- */

static tow_value two_integers(drawing *d, tow_value x, tow_value y)
{
    switch (draw(d, 12)) {
    case 0:
        return tow_add(x, y);
    case 1:
        return tow_sub(x, y);
    case 2:
        return tow_mul(x, y);
    case 3:
        return tow_and(x, y);
    case 4:
        return tow_or(x, y);
    case 5:
        return tow_xor(x, y);
    case 6:
        return tow_shift_left(x, y);
    case 7:
        return tow_shift_right(x, y);
    case 8:
        return tow_shift_right_arithmetic(x, y);
    case 9:
        return tow_max(x, y);
    case 10:
        return tow_div(x, y);
    default:
        return tow_rem(x, y);
    }
}

tow_value draw_integers(drawing *d)
{
    const tow_dtype dtype = draw(d, 3) ? TOW_I32 : TOW_U32;
    tow_value x = draw_of(d, dtype);
    switch (draw(d, 10)) {
    case 0:
        return tow_not(x);
    case 1:
        return tow_population_count(x);
    case 2:
        return tow_clz(x);
    case 3:
        return tow_integer_pow(x, 2);
    case 4:
        return tow_convert(x, dtype == TOW_I32 ? TOW_U32 : TOW_I32);
    case 5:
        return tow_bitcast(x, dtype == TOW_I32 ? TOW_U32 : TOW_I32);
    case 6: /* a float again */
        return tow_sin(tow_convert(x, d->floats));
    case 7: {
        tow_value cases[] = {x, tow_not(x), tow_rev(x, 0, NULL)};
        return tow_select_n(x, 3, cases);
    }
    default: {
        tow_value y = draw_of(d, dtype);
        if (!tow_type_equal(tow_value_type(x), tow_value_type(y))) y = tow_rev(x, 0, NULL);
        return two_integers(d, x, y);
    }
    }
}

tow_value draw_truth(drawing *d)
{
    tow_value x = draw_float(d), y = partner(d, x), b = draw_of(d, TOW_BOOL);
    switch (draw(d, 9)) {
    case 0:
        return tow_lt(x, y);
    case 1:
        return tow_eq(x, tow_round(x));
    case 2:
        return tow_not(b);
    case 3:
        return tow_xor(b, tow_not(b));
    case 4:
        return tow_is_finite(x);
    case 5:
        return tow_reduce_or(b, 0, NULL);
    case 6:
        return tow_reduce_and(b, 0, NULL);
    case 7:
        return tow_convert(b, d->floats);
    default: {
        tow_value r = tow_sin(x);
        return tow_value_type(b).rank == 0 ? tow_where(b, x, r) : tow_where(tow_gt(x, r), r, x);
    }
    }
}
