/* Transforms by norms of units of parameters and of all gradients: adaptive gradient clipping, normalization. */
#include <float.h>

#include "src/graph/graph.h"
#include "src/train/recording.h"
#include "src/train/transforms.h"
#include "tow/numpy.h"

/* The axes that the norm of a unit is over, and how many; 0: all of them; -1 after an error. */
static int unit_axes(tow_update *u, const tow_adaptive_grad_clip *o, tow_type type, int *axes)
{
    int long_axes = 0;
    for (int i = 0; i < type.rank; i++) long_axes += type.dims[i] != 1;
    if (o->n_axes == 0 && long_axes <= 1) return 0;
    const int n = o->n_axes ? o->n_axes : type.rank <= 3 ? 1 : type.rank - 1;
    bool taken[TOW_MAX_RANK] = {false}, fits = n > 0 && n <= type.rank && (o->n_axes || type.rank <= 5);
    for (int i = 0; i < n && fits; i++) {
        const int axis = !o->n_axes ? i : o->axes[i] < 0 ? o->axes[i] + type.rank : o->axes[i];
        fits = axis >= 0 && axis < type.rank && !taken[axis];
        if (fits) taken[axes[i] = axis] = true;
    }
    if (fits) return n;
    tow_trace_fail(u->trace, TOW_INVALID_ARGUMENT,
                   "optimizer: adaptive_grad_clip of parameter %s: %s has no such axes; expected a parameter of up to "
                   "five axes, or in .axes different ones of its own",
                   tow_update_path(u, 0), tow__type_name(type).text);
    return -1;
}

static tow_value adaptive_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    static const double usual_eps = 1e-3;
    const tow_adaptive_grad_clip *o = (const tow_adaptive_grad_clip *)self;
    const tow__option clipping = tow__option_of(u, "clipping", &o->clipping, &o->clipping),
                      eps = tow__option_of(u, "eps", &o->eps, &usual_eps);
    int axes[TOW_MAX_RANK];
    if (!tow__is_option(&clipping, DBL_MIN) || !tow__is_option(&eps, 0)) return (tow_value){0};
    const int n = unit_axes(u, o, tow_value_type(g), axes);
    if (n < 0) return (tow_value){0};
    tow_value of_p = tow__root_value(tow__roots_along(p, n, axes));
    tow_value least = tow__spread(tow__option_scalar(&eps, TOW_F64), of_p), most = tow_max(of_p, least);
    most = tow_mul(most, tow__spread(tow__option_scalar(&clipping, TOW_F64), most));
    tow__factor factor = tow__factor_clip(tow__roots_along(g, n, axes), most, 1e-6);
    return tow__factor_apply(&factor, g);
}
const tow_gradient_transform_class tow_adaptive_grad_clip_class = {
    TOW__MADE_BY(TOW_ADAPTIVE_GRAD_CLIP, tow_adaptive_grad_clip), .name = "adaptive_clip", .each = adaptive_each};

static void normalize_all(tow_update *u, const tow_gradient_transform *self)
{
    (void)self;
    tow__root norm = tow__update_norm(u);
    if (tow_is_null(norm.value)) return;
    const tow__root one = {tow_scalar(u->trace, TOW_F64, 1), {0}};
    tow__factor factor = tow__factor_over(one.value, one, norm, tow_scalar(u->trace, TOW_F64, 0));
    for (size_t i = 0; i < tow_update_parameter_count(u); i++) tow__update_scale(u, i, &factor);
}
const tow_gradient_transform_class tow_normalize_class = {TOW__MADE_BY(TOW_NORMALIZE, tow_normalize),
                                                          .name = "normalize", .all = normalize_all};
