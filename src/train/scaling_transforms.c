/* Gradient transforms that scale by statistics of gradients and parameters: RMSprop, Adagrad, AMSGrad, Lion, LAMB,
 * Adafactor, Muon. Formulas and their order of operations are those of Optax 0.2.8. */
#include <float.h>
#include <math.h>

#include "src/scope/layer.h"
#include "src/train/transforms.h"
#include "tow/numpy.h"
#include "tow/ops.h"
#include "tow/optimizer.h"

/* ---- moments ----------------------------------------------------------------------------------------------------- */

static tow_value rms_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const tow_scale_by_rms *o = (const tow_scale_by_rms *)self;
    const tow__option decay = tow__option_of(u, "decay", &o->decay, &tow__usual_b1),
                      eps = tow__option_of(u, "eps", &o->eps, &tow__usual_eps);
    (void)p;
    if (!tow__is_share(&decay) || !tow__is_option(&eps, 0) || !tow__is_number(u, "initial_scale", o->initial_scale, 0))
        return (tow_value){0};
    tow_value old = tow_slot_with(u, "nu", tow_value_type(g), o->initial_scale);
    tow_value nu = tow__average(old, tow_mul(g, g), &decay), mu = {0};
    tow_set_slot(u, "nu", nu);
    if (o->centered) {
        mu = tow__average(tow_slot(u, "mu"), g, &decay);
        tow_set_slot(u, "mu", mu);
    }
    if (o->bias_correction) {
        tow_value bias = tow__bias(u, "bias", &decay, false, g);
        nu = tow_div(nu, bias);
        if (o->centered) mu = tow_div(mu, bias);
    }
    if (o->centered) nu = tow_sub(nu, tow_mul(mu, mu));
    if (o->eps_outside) return tow_div(g, tow__plus_option(tow_sqrt(nu), &eps));
    return tow_mul(g, tow_rsqrt(tow__plus_option(nu, &eps)));
}
const tow_gradient_transform_class tow_scale_by_rms_class = {TOW__MADE_BY(TOW_SCALE_BY_RMS, tow_scale_by_rms),
                                                             .name = "rms", .each = rms_each};

static tow_value rss_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const tow_scale_by_rss *o = (const tow_scale_by_rss *)self;
    static const double usual_eps = 1e-7;
    const double initial = o->initial_accumulator == 0 ? 0.1 : o->initial_accumulator;
    const tow__option eps = tow__option_of(u, "eps", &o->eps, &usual_eps);
    (void)p;
    if (!tow__is_number(u, "initial_accumulator", initial, 0) || !tow__is_option(&eps, 0)) return (tow_value){0};
    tow_value sum = tow_add(tow_mul(g, g), tow_slot_with(u, "sum", tow_value_type(g), initial));
    tow_set_slot(u, "sum", sum);
    tow_value zero = tow_full_like(g, 0), scale = tow_rsqrt(tow__plus_option(sum, &eps));
    return tow_mul(tow_where(tow_gt(sum, zero), scale, zero), g);
}
const tow_gradient_transform_class tow_scale_by_rss_class = {TOW__MADE_BY(TOW_SCALE_BY_RSS, tow_scale_by_rss),
                                                             .name = "rss", .each = rss_each};

/* As Adam, by the largest corrected second moment so far. */
static tow_value amsgrad_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const tow_scale_by_amsgrad *o = (const tow_scale_by_amsgrad *)self;
    tow__adam a;
    (void)p;
    if (!tow__adam_options(u, &a, &o->b1, &o->b2, &o->eps, &tow__usual_eps, &o->eps_root)) return (tow_value){0};
    tow__first_moment(u, &a, g, o->mu_dtype);
    if (tow_is_null(a.m)) return a.m;
    tow__second_moment(u, &a, g);
    tow_value most = tow_max(tow__slot_of_squares(u, "nu_max"), tow_div(a.v, tow__bias(u, "bias2", &a.b2, false, g)));
    tow_set_slot(u, "nu_max", most);
    return tow__as(tow__over_root(&a, tow__corrected_first(u, &a, g, false), most), tow_value_type(g).dtype);
}
const tow_gradient_transform_class tow_scale_by_amsgrad_class = {
    TOW__MADE_BY(TOW_SCALE_BY_AMSGRAD, tow_scale_by_amsgrad), .name = "amsgrad", .each = amsgrad_each};

/* The direction is made of the average before this gradient with b1, the average goes on with b2. */
static tow_value lion_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    static const double usual_b2 = 0.99;
    const tow_scale_by_lion *o = (const tow_scale_by_lion *)self;
    const tow__option b1 = tow__option_of(u, "b1", &o->b1, &tow__usual_b1);
    tow__adam a = {.b1 = tow__option_of(u, "b2", &o->b2, &usual_b2)};
    (void)p;
    if (!tow__is_share(&b1) || !tow__is_share(&a.b1)) return (tow_value){0};
    tow__first_moment(u, &a, g, o->mu_dtype);
    if (tow_is_null(a.m)) return a.m;
    tow_value direction = tow__average(a.before, g, &b1);
    return tow__as(tow_sign(direction), tow_value_type(g).dtype);
}
const tow_gradient_transform_class tow_scale_by_lion_class = {TOW__MADE_BY(TOW_SCALE_BY_LION, tow_scale_by_lion),
                                                              .name = "lion", .each = lion_each};

static tow_value ema_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const tow_ema_gradients *o = (const tow_ema_gradients *)self;
    const tow__option decay = tow__option_of(u, "decay", &o->decay, &o->decay);
    (void)p;
    if (!tow__is_share(&decay)) return (tow_value){0};
    tow_value before = tow__moment_slot(u, "ema", g, "accumulator_dtype", o->accumulator_dtype);
    if (tow_is_null(before)) return before;
    tow_value m = tow__average(before, g, &decay);
    tow_set_slot(u, "ema", tow__as(m, tow_value_type(before).dtype));
    return tow__as(o->debias ? tow_div(m, tow__bias(u, "bias", &decay, false, m)) : m, tow_value_type(g).dtype);
}
const tow_gradient_transform_class tow_ema_gradients_class = {TOW__MADE_BY(TOW_EMA_GRADIENTS, tow_ema_gradients),
                                                              .name = "ema", .each = ema_each};

/* ---- by the norm of a parameter ---------------------------------------------------------------------------------- */

static tow_value trust_ratio_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const tow_scale_by_trust_ratio *o = (const tow_scale_by_trust_ratio *)self;
    static const double usual_coefficient = 1;
    const tow__option coefficient = tow__option_of(u, "coefficient", &o->coefficient, &usual_coefficient),
                      eps = tow__option_of(u, "eps", &o->eps, &tow__zero);
    if (!tow__is_option(&coefficient, 0) || !tow__is_option(&eps, 0)) return (tow_value){0};
    tow__root of_p = tow__root_of_squares(1, &p), of_g = tow__root_of_squares(1, &g);
    tow_value zero = tow_full_like(of_g.value, 0),
              some_zero = tow_or(tow_eq(of_p.value, zero), tow_eq(of_g.value, zero));
    tow__factor factor =
        tow__factor_over(tow__option_scalar(&coefficient, TOW_F64), of_p, of_g, tow__option_scalar(&eps, TOW_F64));
    factor = tow__factor_unless(some_zero, &factor);
    return tow__factor_apply(&factor, g);
}
const tow_gradient_transform_class tow_scale_by_trust_ratio_class = {
    TOW__MADE_BY(TOW_SCALE_BY_TRUST_RATIO, tow_scale_by_trust_ratio), .name = "trust_ratio", .each = trust_ratio_each};

static tow_value block_clip_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    static const double usual_threshold = 1;
    const tow__option threshold =
        tow__option_of(u, "threshold", &((const tow_clip_by_block_rms *)self)->threshold, &usual_threshold);
    (void)p;
    if (!tow__is_option(&threshold, DBL_MIN)) return (tow_value){0};
    tow__factor factor = tow__factor_clip(tow__root_of_mean(g), tow__option_scalar(&threshold, TOW_F64), 0);
    return tow__factor_apply(&factor, g);
}
const tow_gradient_transform_class tow_clip_by_block_rms_class = {
    TOW__MADE_BY(TOW_CLIP_BY_BLOCK_RMS, tow_clip_by_block_rms), .name = "block_clip", .each = block_clip_each};

static tow_value block_rms_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    static const double usual_scale = 1e-3;
    const tow__option least =
        tow__option_of(u, "min_scale", &((const tow_scale_by_param_block_rms *)self)->min_scale, &usual_scale);
    if (!tow__is_option(&least, 0)) return (tow_value){0};
    tow_value rms = tow__root_value(tow__root_of_mean(p)); /* at most the largest element, so in range */
    tow__factor factor =
        tow__factor_make((tow_value){0}, tow_max(rms, tow__option_scalar(&least, TOW_F64)), (tow_value){0});
    return tow__factor_apply(&factor, g);
}
const tow_gradient_transform_class tow_scale_by_param_block_rms_class = {
    TOW__MADE_BY(TOW_SCALE_BY_PARAM_BLOCK_RMS, tow_scale_by_param_block_rms), .name = "block_rms",
    .each = block_rms_each};

/* ---- adafactor --------------------------------------------------------------------------------------------------- */

static double factored_decay(int64_t step, const void *self)
{
    const tow_scale_by_factored_rms *o = self;
    return 1.0 - pow((double)step + 1.0, -(o->decay_rate == 0 ? 0.8 : o->decay_rate));
}

/* The largest axis and the second largest, the later of equal ones first; false: no two are large enough. */
static bool find_factors(tow_type type, int64_t least, int *largest, int *second)
{
    *largest = *second = -1;
    for (int i = 0; i < type.rank; i++) {
        if (*largest < 0 || type.dims[i] >= type.dims[*largest]) {
            *second = *largest;
            *largest = i;
        } else if (*second < 0 || type.dims[i] >= type.dims[*second]) {
            *second = i;
        }
    }
    return type.rank >= 2 && type.dims[*second] >= least;
}

static tow_type without_axis(tow_type type, int axis)
{
    int64_t dims[TOW_MAX_RANK];
    for (int i = 0, k = 0; i < type.rank; i++)
        if (i != axis) dims[k++] = type.dims[i];
    return tow_make_type(type.dtype, type.rank - 1, dims);
}

/* d old + (1-d) new, with d a scalar that changes, in the type of d; the type of the result is that of old. */
static tow_value mixed(tow_value old, tow_value new, tow_value decay)
{
    const tow_dtype stored = tow_value_type(old).dtype, wide = tow_value_type(decay).dtype;
    old = tow__as(old, wide);
    tow_value d = tow__spread(decay, old), rest = tow__spread(tow_rsub_scalar(decay, 1), old);
    return tow__as(tow_add(tow_mul(d, old), tow_mul(rest, tow__as(new, wide))), stored);
}

/* x with an axis of one element put back, spread along it. */
static tow_value spread_axis(tow_value x, tow_type type, int axis)
{
    int axes[TOW_MAX_RANK], n = 0;
    for (int i = 0; i < type.rank; i++)
        if (i != axis) axes[n++] = i;
    return tow_broadcast_in_dim(x, type.rank, type.dims, axes);
}

/* v_row: means of the squares over the largest axis, v_col: over the second largest one;
 * g (v_row / mean(v_row))^-1/2 v_col^-1/2, or g v^-1/2 of small parameters. (Shazeer and Stern, 2018) */
static tow_value factored_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const tow_scale_by_factored_rms *o = (const tow_scale_by_factored_rms *)self;
    const tow_type type = tow_value_type(g);
    const int64_t least = o->min_dim_size_to_factor ? o->min_dim_size_to_factor : 128;
    static const double usual_eps = 1e-30;
    const tow__option eps = tow__option_of(u, "eps", &o->eps, &usual_eps);
    tow_value square = tow__plus_option(tow_mul(g, g), &eps);
    /* In 16 bits the decay is 1 after some thousand steps, and averages would not change any more. */
    tow_value decay = tow_update_function(u, "decay", factored_decay, o, type.dtype == TOW_F64 ? TOW_F64 : TOW_F32);
    int d0, d1;
    (void)p;
    if (!tow__is_number(u, "decay_rate", o->decay_rate, 0) || !tow__is_option(&eps, 0)) return (tow_value){0};
    if (o->whole || !find_factors(type, least, &d0, &d1)) {
        tow_value v = mixed(tow__slot_of_squares(u, "v"), square, decay);
        tow_set_slot(u, "v", v);
        return tow_mul(g, tow_rsqrt(v));
    }
    tow_value row = mixed(tow_slot_with(u, "v_row", without_axis(type, d0), 0), tow_mean(square, 1, &d0), decay);
    tow_value column = mixed(tow_slot_with(u, "v_col", without_axis(type, d1), 0), tow_mean(square, 1, &d1), decay);
    tow_set_slot(u, "v_row", row);
    tow_set_slot(u, "v_col", column);
    const int reduced = d1 > d0 ? d1 - 1 : d1;
    tow_value mean = spread_axis(tow_mean(row, 1, &reduced), tow_value_type(row), reduced);
    tow_value by_row = spread_axis(tow_rsqrt(tow_div(row, mean)), type, d0);
    return tow_mul(tow_mul(g, by_row), spread_axis(tow_rsqrt(column), type, d1));
}
const tow_gradient_transform_class tow_scale_by_factored_rms_class = {
    TOW__MADE_BY(TOW_SCALE_BY_FACTORED_RMS, tow_scale_by_factored_rms), .name = "factored_rms", .each = factored_each};

/* ---- muon -------------------------------------------------------------------------------------------------------- */

static const double usual_beta = 0.95;

/* A = X X^T;  X <- a X + (b A + c A A) X */
static tow_value newton_schulz(tow_value x)
{
    tow_value square = tow_matmul(x, tow_transpose(x, 2, (int[]){1, 0}));
    tow_value b = tow_add(tow_mul_scalar(square, -4.7750), tow_mul_scalar(tow_matmul(square, square), 2.0315));
    return tow_add(tow_mul_scalar(x, 3.4445), tow_matmul(b, x));
}

/* False, reported: the parameter is no matrix, or one that is not multiplied with. */
static bool check_matrix(tow_update *u, tow_type type, int row_axes)
{
    const tow_param_kind kind = tow_update_kind(u, 0);
    const bool shape = row_axes >= 0 && (row_axes == 0 ? type.rank == 2 : type.rank > row_axes);
    if (shape && kind != TOW_PARAM_BIAS && kind != TOW_PARAM_SCALE) return true;
    tow_trace_fail(tow_update_trace(u), TOW_INVALID_ARGUMENT,
                   "optimizer: muon of parameter %s: expected a matrix, found %s%s%s; %sgive it other parameters with "
                   "TOW_PARTITION, which can name kinds (\"//kernel\")",
                   tow_update_path(u, 0), shape ? "a " : "",
                   shape ? tow_param_kind_name(kind) : tow__type_name(type).text,
                   shape ? ", whose elements belong to no product" : "",
                   shape ? "" : "say with .row_axes how many of its axes are rows, or ");
    return false;
}

/* The momentum of a matrix, made nearly orthogonal. (Jordan, 2024) */
static tow_value muon_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const tow_scale_by_muon *o = (const tow_scale_by_muon *)self;
    const tow_type type = tow_value_type(g);
    tow__adam a = {.b1 = tow__option_of(u, "beta", &o->beta, &usual_beta)};
    const tow__option eps = tow__option_of(u, "eps", &o->eps, &tow__usual_eps);
    (void)p;
    if (!tow__is_share(&a.b1) || !tow__is_option(&eps, 0) || !check_matrix(u, type, o->row_axes)) return (tow_value){0};
    a.m = tow__average(tow_slot(u, "mu"), g, &a.b1);
    tow_set_slot(u, "mu", a.m);
    tow_value x = tow__corrected_first(u, &a, g, !o->plain_momentum);
    int64_t dims[2] = {1, 1};
    for (int i = 0; i < type.rank; i++) dims[i >= (o->row_axes ? o->row_axes : 1)] *= type.dims[i];
    const bool tall = dims[0] > dims[1];
    x = tow_reshape(x, 2, dims);
    if (tall) x = tow_transpose(x, 2, (int[]){1, 0});
    const tow__root one = {tow_scalar(tow_update_trace(u), TOW_F64, 1), {0}};
    tow__factor factor =
        tow__factor_over(one.value, one, tow__root_of_squares(1, &x), tow__option_scalar(&eps, TOW_F64));
    x = tow__factor_apply(&factor, x);
    const int steps = o->steps ? o->steps : 5;
    for (int i = 0; i < steps; i++) x = newton_schulz(x);
    if (tall) x = tow_transpose(x, 2, (int[]){1, 0});
    const double wide = (double)dims[1] / (double)(dims[0] ? dims[0] : 1);
    return tow_reshape(tow_mul_scalar(x, sqrt(wide > 1 ? wide : 1)), type.rank, type.dims);
}
const tow_gradient_transform_class tow_scale_by_muon_class = {TOW__MADE_BY(TOW_SCALE_BY_MUON, tow_scale_by_muon),
                                                              .name = "muon", .each = muon_each};
