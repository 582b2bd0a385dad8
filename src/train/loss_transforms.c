/* Transforms that take the loss: Polyak's step size, and a scale that falls when the loss does not. Their numbers are
 * f64. */
#include <float.h>
#include <math.h>

#include "src/graph/graph.h"
#include "src/train/recording.h"
#include "src/train/transforms.h"
#include "tow/numpy.h"

static tow_value scalar(tow_update *u, double value) { return tow_scalar(u->trace, TOW_F64, value); }

/* ---- polyak ------------------------------------------------------------------------------------------------------ */

/* step = min(max_learning_rate, gap / (n^2 + eps)), as before ratio after with before = after = 1/unit for n = value
 * unit: gap / (n^2 + eps) = 1/unit gap / (value^2 + eps/unit^2) 1/unit. */
static void polyak_all(tow_update *u, const tow_gradient_transform *self)
{
    static const double usual_rate = 1;
    const tow_scale_by_polyak *o = (const tow_scale_by_polyak *)self;
    const tow__option f_min = tow__option_of(u, "f_min", &o->f_min, &tow__zero),
                      most = tow__option_of(u, "max_learning_rate", &o->max_learning_rate, &usual_rate),
                      eps = tow__option_of(u, "eps", &o->eps, &tow__zero);
    tow_value loss = tow_update_loss(u);
    if (tow_is_null(loss) || !tow__is_option(&f_min, -DBL_MAX) || !tow__is_option(&most, 0) || !tow__is_option(&eps, 0))
        return;
    tow__root norm = tow__update_norm(u);
    if (tow_is_null(norm.value)) return;
    tow_value gap = tow_sub(loss, tow__option_scalar(&f_min, TOW_F64)), zero = scalar(u, 0);
    if (o->plus) gap = tow_max(gap, zero);
    tow_value offset = tow__option_scalar(&eps, TOW_F64), unit = {0}, one = scalar(u, 1);
    tow_value n = tow__root_value(norm), square = tow_add(tow_mul(n, n), offset);
    if (!tow_is_null(norm.unit)) {
        unit = tow_div(one, norm.unit);
        offset = tow_mul(tow_mul(offset, unit), unit);
    }
    tow_value limit = tow__option_scalar(&most, TOW_F64),
              ratio = tow_div(gap, tow_add(tow_mul(norm.value, norm.value), offset));
    tow_value usual = tow_is_null(unit) ? ratio : tow_mul(tow_mul(ratio, unit), unit);
    tow_value tiny = tow_le(square, scalar(u, DBL_EPSILON)), cut = tow_or(tiny, tow_gt(usual, limit));
    if (!tow_is_null(unit)) unit = tow_where(cut, one, unit);
    tow__factor factor = tow__factor_make(unit, tow_where(tiny, zero, tow_where(cut, limit, ratio)), unit);
    for (size_t i = 0; i < tow_update_parameter_count(u); i++) tow__update_scale(u, i, &factor);
}
const tow_gradient_transform_class tow_scale_by_polyak_class = {TOW__MADE_BY(TOW_SCALE_BY_POLYAK, tow_scale_by_polyak),
                                                                .name = "polyak", .all = polyak_all};

/* ---- reduce on plateau ------------------------------------------------------------------------------------------- */

static const tow_type f64 = {.dtype = TOW_F64};

static bool check_plateau(tow_update *u, const tow_reduce_on_plateau *o, double factor, double rtol)
{
    const bool numbers = tow__is_number(u, "factor", factor, DBL_MIN) && tow__is_number(u, "rtol", rtol, 0) &&
                         tow__is_number(u, "atol", o->atol, 0) && tow__is_number(u, "min_scale", o->min_scale, 0);
    if (!numbers) return false;
    if (factor < 1 && rtol <= 1 && o->patience >= 0 && o->cooldown >= 0 && o->accumulation >= 0) return true;
    tow_trace_fail(
        u->trace, TOW_INVALID_ARGUMENT,
        "optimizer: reduce_on_plateau: expected a factor below 1, rtol at most 1, and patience, cooldown and "
        "accumulation that are not negative, found %.9g, %.9g, %lld, %lld and %lld",
        factor, rtol, (long long)o->patience, (long long)o->cooldown, (long long)o->accumulation);
    return false;
}

/* Each `accumulation` losses have one mean:
 *   improved = mean < (1 - rtol) best - atol;  bad = improved ? 0 : bad + 1
 *   where the cooldown is over: bad = patience: scale = max(scale factor, min_scale), bad = 0, cooldown again;
 *                               else cooldown - 1, bad = 0 */
static void plateau_all(tow_update *u, const tow_gradient_transform *self)
{
    const tow_reduce_on_plateau *o = (const tow_reduce_on_plateau *)self;
    const double rtol = o->rtol == 0 && o->atol == 0 ? 1e-4 : o->rtol, factor = o->factor == 0 ? 0.1 : o->factor;
    const double size = o->accumulation == 0 ? 1 : (double)o->accumulation;
    tow_value loss = tow_update_loss(u);
    if (tow_is_null(loss) || !check_plateau(u, o, factor, rtol)) return;
    tow_value scale = tow_slot_with(u, "scale", f64, 1), best = tow_slot_with(u, "best", f64, INFINITY);
    tow_value bad = tow_slot_with(u, "bad", f64, 0), cooldown = tow_slot_with(u, "cooldown", f64, 0);
    tow_value count = tow_slot_with(u, "count", f64, 0), mean = tow_slot_with(u, "mean", f64, 0);
    if (tow_is_null(mean)) return;
    tow_value zero = scalar(u, 0), counted = tow_add_scalar(count, 1);
    mean = tow_div(tow_add(tow_mul(count, mean), loss), counted);
    tow_value complete = tow_ge(counted, scalar(u, size));
    tow_value improved = tow_lt(mean, tow_add_scalar(tow_mul_scalar(best, 1 - rtol), -o->atol));
    tow_value in_a_row = tow_where(improved, zero, tow_add_scalar(bad, 1)), cooling = tow_gt(cooldown, zero);
    tow_value reached = tow_eq(in_a_row, scalar(u, o->patience == 0 ? 10 : (double)o->patience));
    tow_value reduced = tow_where(reached, tow_mul_scalar(scale, factor), scale);
    tow_value new_scale = tow_where(cooling, scale, tow_max(reduced, scalar(u, o->min_scale)));
    tow_value new_bad = tow_where(tow_or(cooling, reached), zero, in_a_row);
    tow_value new_cooldown =
        tow_where(cooling, tow_add_scalar(cooldown, -1), tow_where(reached, scalar(u, (double)o->cooldown), zero));
    scale = tow_where(complete, new_scale, scale);
    tow_set_slot(u, "scale", scale);
    tow_set_slot(u, "best", tow_where(tow_and(complete, improved), mean, best));
    tow_set_slot(u, "bad", tow_where(complete, new_bad, bad));
    tow_set_slot(u, "cooldown", tow_where(complete, new_cooldown, cooldown));
    tow_set_slot(u, "count", tow_where(complete, zero, counted));
    tow_set_slot(u, "mean", tow_where(complete, zero, mean));
    tow_update_report(u, "scale", scale);
    tow__factor by = tow__factor_make((tow_value){0}, scale, (tow_value){0});
    for (size_t i = 0; i < tow_update_parameter_count(u); i++) tow__update_scale(u, i, &by);
}
const tow_gradient_transform_class tow_reduce_on_plateau_class = {
    TOW__MADE_BY(TOW_REDUCE_ON_PLATEAU, tow_reduce_on_plateau), .name = "reduce_on_plateau", .all = plateau_all};
