/* See norms.h. */
#include "src/train/norms.h"

#include <float.h>
#include <math.h>

#include "src/group/halving.h"
#include "tow/numpy.h"

/* Squares of |x| < 2^-450 lose places, those above 2^511 are infinite. Elements times SMALLER and LARGER have squares
 * that do neither where they matter. */
#define SMALLER 0x1p-700
#define LARGER  0x1p600
#define LEAST   0x1p-900 /* a sum of squares from here on is right as it is */

static tow_value like(tow_value x, double value) { return tow_full_like(x, value); }

/* Sum of (x unit)^2 over the axes, all of them for n_axes = 0, in f64. */
static tow_value sum_of_squares(tow_value x, double unit, int n_axes, const int *axes)
{
    tow_value wide = tow_value_type(x).dtype == TOW_F64 ? x : tow_convert(x, TOW_F64);
    if (unit != 1) wide = tow_mul_scalar(wide, unit);
    tow_value square = tow_mul(wide, wide);
    return n_axes ? tow_reduce_sum_keepdims(square, n_axes, axes) : tow_reduce_sum(square, 0, NULL);
}

/* sums: of squares as they are, made smaller, made larger; the latter null without f64. */
static tow__root root_of(const tow_value *sums)
{
    if (tow_is_null(sums[1])) return (tow__root){tow_sqrt(sums[0]), (tow_value){0}};
    tow_value large = tow_gt(sums[0], like(sums[0], DBL_MAX)), small = tow_lt(sums[0], like(sums[0], LEAST));
    tow_value sum = tow_where(large, sums[1], tow_where(small, sums[2], sums[0]));
    tow_value one = like(sums[0], 1);
    tow_value unit = tow_where(large, like(sums[0], 1 / SMALLER), tow_where(small, like(sums[0], 1 / LARGER), one));
    return (tow__root){tow_sqrt(sum), unit};
}

static bool is_wide(tow_value x) { return tow_value_type(x).dtype == TOW_F64; }

/* x as [rows, elements of one]. */
static tow_value flat_rows(tow_value x)
{
    const tow_type type = tow_value_type(x);
    int64_t dims[2] = {type.dims[0], 1};
    for (int i = 1; i < type.rank; i++) dims[1] *= type.dims[i];
    return tow_reshape(x, 2, dims);
}

/* x as [layers, lines, elements of one]. */
static tow_value lines_of(tow_value x, int64_t layers)
{
    const int64_t n = tow_type_element_count(tow_value_type(x)), each = layers > 0 ? n / layers : 0;
    const int64_t line = each > 0 ? tow__share_line(each) : 1;
    return tow_reshape(x, 3, (int64_t[]){layers, each / line, line});
}

static tow_value sum_of_lines(tow_value x, double unit, int64_t layers)
{
    tow_value wide = lines_of(x, layers);
    if (!is_wide(wide)) wide = tow_convert(wide, TOW_F64);
    if (unit != 1) wide = tow_mul_scalar(wide, unit);
    return tow_reduce_sum(tow_reduce_sum(tow_mul(wide, wide), 1, (int[]){2}), 0, NULL);
}

/* layers: NULL: not by lines. */
static tow__root roots(size_t n, const tow_value *x, bool by_rows, const int64_t *layers)
{
    static const double units[] = {1, SMALLER, LARGER};
    static const int axis = 1;
    tow_value sums[3] = {{0}, {0}, {0}};
    bool wide = false;
    for (size_t i = 0; i < n; i++) wide = wide || is_wide(x[i]);
    for (int k = 0; k < (wide ? 3 : 1); k++)
        for (size_t i = 0; i < n; i++) {
            tow_value sum = layers ? sum_of_lines(x[i], units[k], layers[i])
                                   : sum_of_squares(by_rows ? flat_rows(x[i]) : x[i], units[k], by_rows, &axis);
            sums[k] = i == 0 ? sum : tow_add(sums[k], sum);
        }
    return root_of(sums);
}

tow__root tow__root_of_squares(size_t n, const tow_value *x) { return roots(n, x, false, NULL); }
tow__root tow__root_of_lines(size_t n, const tow_value *x, const int64_t *layers) { return roots(n, x, false, layers); }
tow__root tow__roots_of_rows(size_t n, const tow_value *x) { return roots(n, x, true, NULL); }

tow__root tow__roots_along(tow_value x, int n_axes, const int *axes)
{
    tow_value sums[3] = {sum_of_squares(x, 1, n_axes, axes), {0}, {0}};
    if (is_wide(x)) {
        sums[1] = sum_of_squares(x, SMALLER, n_axes, axes);
        sums[2] = sum_of_squares(x, LARGER, n_axes, axes);
    }
    return root_of(sums);
}

tow__root tow__root_of_mean(tow_value x)
{
    const int64_t n = tow_type_element_count(tow_value_type(x));
    tow__root root = tow__root_of_squares(1, &x);
    root.value = tow_mul_scalar(root.value, 1 / sqrt((double)(n > 0 ? n : 1)));
    return root;
}

tow_value tow__root_value(tow__root root)
{
    return tow_is_null(root.unit) ? root.value : tow_mul(root.value, root.unit);
}

/* ---- factors ----------------------------------------------------------------------------------------------------- */

/* f32 has normal numbers from 2^-126 to 2^128. A factor beyond 2^120 is taken in two parts, since its product with a
 * gradient may be a usual number: the first is a power of two, the rest is in range for factors up to 2^220. */
tow__factor tow__factor_make(tow_value before, tow_value ratio, tow_value after)
{
    tow__factor f = {.before = before, .ratio = ratio, .after = after};
    tow_value whole = ratio;
    if (!tow_is_null(before)) whole = tow_mul(whole, before);
    if (!tow_is_null(after)) whole = tow_mul(whole, after);
    tow_value size = tow_abs(whole);
    tow_value small = tow_lt(size, like(size, 0x1p-120)), large = tow_gt(size, like(size, 0x1p120));
    tow_value power = tow_where(small, like(whole, 0x1p-100), tow_where(large, like(whole, 0x1p100), like(whole, 1)));
    f.first = tow_convert(power, TOW_F32);
    f.second = tow_convert(tow_div(whole, power), TOW_F32);
    return f;
}

static tow_value times(tow_value x, tow_value factor)
{
    const tow_type type = tow_value_type(x);
    return tow_is_null(factor) ? x : tow_mul(x, tow_broadcast_to(factor, type.rank, type.dims));
}

tow_value tow__factor_apply(const tow__factor *f, tow_value x)
{
    const tow_dtype dtype = tow_value_type(x).dtype;
    if (dtype == TOW_F64) return times(times(times(x, f->before), f->ratio), f->after);
    tow_value wide = dtype == TOW_F32 ? x : tow_convert(x, TOW_F32);
    wide = times(times(wide, f->first), f->second);
    return dtype == TOW_F32 ? wide : tow_convert(wide, dtype);
}

tow__factor tow__factor_over(tow_value coefficient, tow__root numerator, tow__root root, tow_value eps)
{
    tow_value above = tow_mul(numerator.value, coefficient), inverse = {0}, offset = eps;
    if (!tow_is_null(root.unit)) { /* a / (value unit + eps) = 1/unit a / (value + eps/unit) */
        inverse = tow_div(like(root.unit, 1), root.unit);
        offset = tow_mul(inverse, eps);
    }
    return tow__factor_make(inverse, tow_div(above, tow_add(root.value, offset)), numerator.unit);
}

tow__factor tow__factor_unless(tow_value condition, const tow__factor *f)
{
    const tow_value one = like(f->ratio, 1);
    tow_value before = tow_is_null(f->before) ? f->before : tow_where(condition, one, f->before);
    tow_value after = tow_is_null(f->after) ? f->after : tow_where(condition, one, f->after);
    return tow__factor_make(before, tow_where(condition, one, f->ratio), after);
}

tow__factor tow__factor_clip(tow__root root, tow_value limit, double least)
{
    tow_value below = tow_lt(tow__root_value(root), limit), one = like(root.value, 1), inverse = {0},
              value = root.value;
    if (!tow_is_null(root.unit)) inverse = tow_div(one, root.unit);
    if (least > 0) {
        tow_value floor = like(value, least);
        value = tow_max(value, tow_is_null(inverse) ? floor : tow_mul(floor, inverse));
    }
    if (!tow_is_null(inverse)) inverse = tow_where(below, one, inverse);
    return tow__factor_make(inverse, tow_where(below, one, tow_div(limit, value)), (tow_value){0});
}
