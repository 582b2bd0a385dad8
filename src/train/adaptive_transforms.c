/* Transforms by averages of moments beside Adam's own: AdaBelief, Yogi, AdaMax, Adadelta, RAdam. Formulas and their
 * order of operations are those of Optax 0.2.8. */
#include <math.h>

#include "src/scope/layer.h"
#include "src/train/transforms.h"
#include "tow/numpy.h"

static tow_value belief_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    static const double usual_eps = 1e-16;
    const tow_scale_by_belief *o = (const tow_scale_by_belief *)self;
    const double *root = o->eps_root == 0 ? &usual_eps : &o->eps_root;
    tow__adam a;
    (void)p;
    if (!tow__adam_options(u, &a, &o->b1, &o->b2, &o->eps, &usual_eps, root)) return (tow_value){0};
    tow__first_moment(u, &a, g, 0);
    tow_value error = tow_sub(g, a.m);
    tow_value s =
        tow__plus_option(tow__average(tow__slot_of_squares(u, "nu"), tow_mul(error, error), &a.b2), &a.eps_root);
    tow_set_slot(u, "nu", s);
    tow_value first = tow__corrected_first(u, &a, g, o->nesterov);
    s = tow_div(s, tow__bias(u, "bias2", &a.b2, false, g));
    return tow_div(first, tow__plus_option(tow_sqrt(s), &a.eps));
}
const tow_gradient_transform_class tow_scale_by_belief_class = {TOW__MADE_BY(TOW_SCALE_BY_BELIEF, tow_scale_by_belief),
                                                                .name = "belief", .each = belief_each};

static tow_value yogi_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    static const double usual_eps = 1e-3;
    const tow_scale_by_yogi *o = (const tow_scale_by_yogi *)self;
    const double initial = o->initial_accumulator == 0 ? 1e-6 : o->initial_accumulator;
    tow__adam a;
    (void)p;
    if (!tow__is_number(u, "initial_accumulator", initial, 0) ||
        !tow__adam_options(u, &a, &o->b1, &o->b2, &o->eps, &usual_eps, &o->eps_root))
        return (tow_value){0};
    a.m = tow__average(tow_slot_with(u, "mu", tow_value_type(g), initial), g, &a.b1);
    tow_value v = tow_slot_with(u, "nu", tow_value_type(g), initial), square = tow_mul(g, g);
    v = tow_sub(v, tow_mul(tow__times_rest(tow_sign(tow_sub(v, square)), &a.b2), square));
    tow_set_slot(u, "mu", a.m);
    tow_set_slot(u, "nu", v);
    tow_value first = tow__corrected_first(u, &a, g, false);
    return tow__over_root(&a, first, tow_div(v, tow__bias(u, "bias2", &a.b2, false, g)));
}
const tow_gradient_transform_class tow_scale_by_yogi_class = {TOW__MADE_BY(TOW_SCALE_BY_YOGI, tow_scale_by_yogi),
                                                              .name = "yogi", .each = yogi_each};

static tow_value adamax_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const tow_scale_by_adamax *o = (const tow_scale_by_adamax *)self;
    tow__adam a;
    (void)p;
    if (!tow__adam_options(u, &a, &o->b1, &o->b2, &o->eps, &tow__usual_eps, &tow__zero)) return (tow_value){0};
    tow__first_moment(u, &a, g, 0);
    tow_value most =
        tow_max(tow__plus_option(tow_abs(g), &a.eps), tow__times_option(tow__slot_of_squares(u, "nu"), &a.b2));
    tow_set_slot(u, "nu", most);
    return tow_div(tow__corrected_first(u, &a, g, false), most);
}
const tow_gradient_transform_class tow_scale_by_adamax_class = {TOW__MADE_BY(TOW_SCALE_BY_ADAMAX, tow_scale_by_adamax),
                                                                .name = "adamax", .each = adamax_each};

static tow_value adadelta_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    static const double usual_eps = 1e-6;
    const tow_scale_by_adadelta *o = (const tow_scale_by_adadelta *)self;
    const tow__option rho = tow__option_of(u, "rho", &o->rho, &tow__usual_b1),
                      eps = tow__option_of(u, "eps", &o->eps, &usual_eps);
    (void)p;
    if (!tow__is_share(&rho) || !tow__is_option(&eps, 0)) return (tow_value){0};
    tow_value e = tow__average(tow__slot_of_squares(u, "e_g"), tow_mul(g, g), &rho), x = tow__slot_of_squares(u, "e_x");
    tow_value ratio = tow_div(tow_sqrt(tow__plus_option(x, &eps)), tow_sqrt(tow__plus_option(e, &eps)));
    tow_value step = tow_mul(ratio, g);
    tow_set_slot(u, "e_g", e);
    tow_set_slot(u, "e_x", tow__average(x, tow_mul(step, step), &rho));
    return step;
}
const tow_gradient_transform_class tow_scale_by_adadelta_class = {
    TOW__MADE_BY(TOW_SCALE_BY_ADADELTA, tow_scale_by_adadelta), .name = "adadelta", .each = adadelta_each};

/* With ro_inf = 2 / (1-b2) - 1 and ro = ro_inf - 2 t b2^t / (1 - b2^t), the factor
 * r = sqrt((ro-4) (ro-2) ro_inf / ((ro_inf-4) (ro_inf-2) ro)), all f64[]; *known: ro >= threshold. */
static tow_value rectification(tow_update *u, const tow__adam *a, const tow__option *threshold, tow_value *known)
{
    tow_value b2 = tow__option_scalar(&a->b2, TOW_F64), t = tow__step_count(u), power = tow_pow(b2, t);
    tow_value limit = tow_add_scalar(tow_div(tow_full_like(b2, 2), tow_rsub_scalar(b2, 1)), -1);
    tow_value lost = tow_div(tow_mul(tow_mul_scalar(t, 2), power), tow_rsub_scalar(power, 1));
    tow_value ro = tow_sub(limit, lost);
    tow_value above = tow_mul(tow_mul(tow_add_scalar(ro, -4), tow_add_scalar(ro, -2)), limit);
    tow_value below = tow_mul(tow_mul(tow_add_scalar(limit, -4), tow_add_scalar(limit, -2)), ro);
    *known = tow_ge(ro, tow__option_scalar(threshold, TOW_F64));
    tow_value one = tow_full_like(above, 1); /* no root of a negative number where r is not used */
    return tow_sqrt(tow_where(*known, tow_div(above, below), one));
}

static tow_value radam_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    static const double usual_threshold = 5;
    const tow_scale_by_radam *o = (const tow_scale_by_radam *)self;
    const tow__option threshold = tow__option_of(u, "threshold", &o->threshold, &usual_threshold);
    tow__adam a;
    tow_value known;
    (void)p;
    if (!tow__is_option(&threshold, 0) ||
        !tow__adam_options(u, &a, &o->b1, &o->b2, &o->eps, &tow__usual_eps, &o->eps_root))
        return (tow_value){0};
    tow__first_moment(u, &a, g, 0);
    tow__second_moment(u, &a, g);
    tow_value r = tow__as(rectification(u, &a, &threshold, &known), tow_value_type(g).dtype);
    tow_value first = tow__corrected_first(u, &a, g, o->nesterov);
    tow_value second = tow_div(a.v, tow__bias(u, "bias2", &a.b2, false, g));
    tow_value rectified = tow__over_root(&a, tow_mul(tow__spread(r, first), first), second);
    return tow_where(tow__spread(known, g), rectified, first);
}
const tow_gradient_transform_class tow_scale_by_radam_class = {TOW__MADE_BY(TOW_SCALE_BY_RADAM, tow_scale_by_radam),
                                                               .name = "radam", .each = radam_each};

/* ---- without moments --------------------------------------------------------------------------------------------- */

static tow_value sign_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)u, (void)self, (void)p;
    return tow_sign(g);
}
const tow_gradient_transform_class tow_scale_by_sign_class = {TOW__MADE_BY(TOW_SCALE_BY_SIGN, tow_scale_by_sign),
                                                              .name = "sign", .each = sign_each};

static tow_value centralize_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const tow_type type = tow_value_type(g);
    int axes[TOW_MAX_RANK];
    (void)u, (void)self, (void)p;
    if (type.rank < 2) return g;
    for (int i = 1; i < type.rank; i++) axes[i - 1] = i;
    tow_value wide = tow__as(g, tow_promote_types(type.dtype, TOW_F32)), mean = tow_mean(wide, type.rank - 1, axes);
    int rows = 0;
    return tow__as(tow_sub(wide, tow_broadcast_in_dim(mean, type.rank, type.dims, &rows)), type.dtype);
}
const tow_gradient_transform_class tow_centralize_class = {TOW__MADE_BY(TOW_CENTRALIZE, tow_centralize),
                                                           .name = "centralize", .each = centralize_each};
