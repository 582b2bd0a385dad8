/* The gradient transforms that there are. Formulas and their order of operations are those of Optax; numbers that depend on
 * the step are computed in double precision. */
#include <float.h>
#include <math.h>

#include "layers/params.h"
#include "layers/pattern.h"
#include "layers/tree.h"
#include "src/graph/graph.h"
#include "tow/numpy.h"
#include "tow/ops.h"
#include "tow/optimizer.h"
#include "train/transforms.h"

tow_value tow__spread(tow_value scalar, tow_value g)
{
    const tow_type type = tow_value_type(g);
    return tow_broadcast_to(scalar, type.rank, type.dims);
}

/* ---- composites -------------------------------------------------------------------------------------------------- */

static void chain_all(tow_update *u, const tow_gradient_transform *self)
{
    const tow_chain *o = (const tow_chain *)self;
    for (size_t i = 0; i < o->n; i++) tow_update_run(u, o->transforms[i]);
}
const tow_gradient_transform_class tow_chain_class = {.name = "chain", .all = chain_all, .separate = true};

static bool check_left(tow_context *ctx, const char *caller, const char *what, const void *p, const void *frame)
{
    if (!p || !tow__is_left_behind(p, frame)) return true;
    tow__fail(
        ctx, TOW_INVALID_ARGUMENT,
        "%s: %s was made in a function that has returned, and is gone; make transforms static, or members of a struct "
        "that the caller holds, and TOW_CHAIN beside them",
        caller, what);
    return false;
}

bool tow__check_transform_stack(tow_context *ctx, const char *caller, const tow_gradient_transform *transform,
                                const void *frame)
{
    if (!transform) return true;
    if (!check_left(ctx, caller, "a gradient transform", transform, frame)) return false;
    if (transform->cls != &tow_chain_class) return true;
    const tow_chain *chain = (const tow_chain *)transform;
    if (!check_left(ctx, caller, "the list of a chain of gradient transforms", chain->transforms, frame)) return false;
    for (size_t i = 0; i < chain->n; i++)
        if (!tow__check_transform_stack(ctx, caller, chain->transforms[i], frame)) return false;
    return true;
}

/* Parameter i matches the pattern of a rule. */
static bool rule_matches(const tow_partition_rule *rule, const tow_update *u, size_t i)
{
    return tow__param_matches(rule->pattern, tow_update_path(u, i), tow_update_kind(u, i));
}

/* The first rule that parameter i matches; o->n: none. */
static size_t rule_of(const tow_partition *o, const tow_update *u, size_t i)
{
    size_t rule = 0;
    while (rule < o->n && !rule_matches(&o->rules[rule], u, i)) rule++;
    return rule;
}

static void partition_all(tow_update *u, const tow_gradient_transform *self)
{
    const tow_partition *o = (const tow_partition *)self;
    const size_t n = tow_update_count(u);
    size_t *indices = tow__trace_alloc(tow_update_trace(u), n + 1, sizeof *indices);
    if (!indices) return;
    for (size_t i = 0; i < n; i++)
        if (rule_of(o, u, i) == o->n)
            tow_trace_fail(tow_update_trace(u), TOW_NOT_FOUND,
                           "optimizer: no rule of the partition matches parameter %s; end with the pattern \"**\"",
                           tow_update_path(u, i));
    for (size_t rule = 0; rule < o->n && tow__update_is_first(u); rule++) {
        size_t i = 0;
        while (i < n && !rule_matches(&o->rules[rule], u, i)) i++;
        if (i == n && n > 0)
            tow_trace_fail(
                tow_update_trace(u), TOW_NOT_FOUND,
                "optimizer: no parameter matches rule \"%s\" of the partition; the first parameter is %s, of kind "
                "%s",
                o->rules[rule].pattern ? o->rules[rule].pattern : "(NULL)", tow_update_path(u, 0),
                tow_param_kind_name(tow_update_kind(u, 0)));
    }
    for (size_t rule = 0; rule < o->n; rule++) {
        size_t k = 0;
        for (size_t i = 0; i < n; i++)
            if (rule_of(o, u, i) == rule) indices[k++] = i;
        tow_update_run_on(u, o->rules[rule].transform, k, indices);
    }
}
const tow_gradient_transform_class tow_partition_class = {.name = "partition", .all = partition_all, .separate = true};

/* ---- of single parameters ---------------------------------------------------------------------------------------- */

static tow_value set_to_zero_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)u, (void)self, (void)p;
    return tow_full_like(g, 0);
}
const tow_gradient_transform_class tow_set_to_zero_class = {.name = "set_to_zero", .each = set_to_zero_each};

static tow_value scale_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)p;
    if (!tow__is_number(u, "factor", ((const tow_scale *)self)->factor, -DBL_MAX)) return (tow_value){0};
    return tow_mul_scalar(g, ((const tow_scale *)self)->factor);
}
const tow_gradient_transform_class tow_scale_class = {.name = "scale", .each = scale_each};

static tow_value learning_rate_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)p;
    const tow_dtype dtype = tow_value_type(g).dtype;
    const tow_schedule *schedule = &((const tow_scale_by_learning_rate *)self)->schedule;
    const tow_value rate = tow__update_negated(u, "value", schedule, dtype);
    if (tow_is_null(rate)) return rate; /* no schedule: there is an error already */
    if (!tow__is_number(u, "learning rate at step 0", tow_schedule_at(schedule, 0), -DBL_MAX)) return (tow_value){0};
    /* the sign of a NaN stays what it was in the gradient */
    return tow_mul(tow__spread(rate, g), g);
}
const tow_gradient_transform_class tow_scale_by_learning_rate_class = {.name = "learning_rate",
                                                                       .each = learning_rate_each};

/* ---- adam -------------------------------------------------------------------------------------------------------- */

static double bias(const void *b, int64_t step) { return 1.0 - pow(*(const double *)b, (double)step + 1.0); }
static double next_bias(const void *b, int64_t step) { return bias(b, step + 1); }

tow_value tow__bias(tow_update *u, const char *name, const double *b, bool next, tow_value x)
{
    return tow__spread(tow_update_function(u, name, next ? next_bias : bias, b, tow_value_type(x).dtype), x);
}

tow_value tow__average(tow_value m, tow_value x, double b)
{
    return tow_add(tow_mul_scalar(x, 1.0 - b), tow_mul_scalar(m, b));
}

bool tow__is_share(tow_update *u, const char *name, double value)
{
    if (value >= 0.0 && (float)value < 1.0f) return true;
    tow_trace_fail(tow_update_trace(u), TOW_INVALID_ARGUMENT, "optimizer: expected %s in [0, 1), found %.9g", name,
                   value);
    return false;
}

bool tow__is_number(tow_update *u, const char *name, double value, double least)
{
    if (isfinite(value) && value >= least) return true;
    tow_trace_fail(tow_update_trace(u), TOW_INVALID_ARGUMENT, "optimizer: expected a finite %s%s, found %.9g", name,
                   least > 0    ? " above 0"
                   : least == 0 ? " that is not negative"
                                : "",
                   value);
    return false;
}

const double tow__usual_b1 = 0.9, tow__usual_b2 = 0.999;

bool tow__moments(tow_update *u, tow_value g, double b1, double b2, tow_value *m, tow_value *v)
{
    if (!tow__is_share(u, "b1", b1) || !tow__is_share(u, "b2", b2)) return false;
    *m = tow__average(tow_slot(u, "mu"), g, b1);
    *v = tow__average(tow_slot(u, "nu"), tow_mul(g, g), b2);
    tow_set_slot(u, "mu", *m);
    tow_set_slot(u, "nu", *v);
    return true;
}

static tow_value adam_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const tow_scale_by_adam *o = (const tow_scale_by_adam *)self;
    const double *b1 = tow__option(&o->b1, &tow__usual_b1), *b2 = tow__option(&o->b2, &tow__usual_b2);
    tow_value m, v;
    (void)p;
    if (!tow__is_number(u, "eps", o->eps, 0) || !tow__moments(u, g, *b1, *b2, &m, &v)) return (tow_value){0};
    tow_value bias1 = tow__bias(u, "bias1", b1, false, g), bias2 = tow__bias(u, "bias2", b2, false, g);
    tow_value first = tow_div(m, bias1);
    if (o->nesterov) {
        tow_value ahead = tow_div(m, tow__bias(u, "next_bias1", b1, true, g));
        first = tow_add(tow_mul_scalar(ahead, *b1), tow_mul_scalar(tow_div(g, bias1), 1 - *b1));
    }
    return tow_div(first, tow_add_scalar(tow_sqrt(tow_div(v, bias2)), tow__or_default(o->eps, 1e-8)));
}
const tow_gradient_transform_class tow_scale_by_adam_class = {.name = "adam", .each = adam_each};

/* ---- momentum, decay, clipping ----------------------------------------------------------------------------------- */

static tow_value trace_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)p;
    const tow_trace_gradients *o = (const tow_trace_gradients *)self;
    if (!tow__is_number(u, "decay", o->decay, -DBL_MAX)) return (tow_value){0};
    tow_value m = tow_add(g, tow_mul_scalar(tow_slot(u, "trace"), o->decay));
    tow_set_slot(u, "trace", m);
    return o->nesterov ? tow_add(g, tow_mul_scalar(m, o->decay)) : m;
}
const tow_gradient_transform_class tow_trace_gradients_class = {.name = "sgd", .each = trace_each};

static tow_value decay_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const tow_add_decayed_weights *o = (const tow_add_decayed_weights *)self;
    if (!tow__is_number(u, "weight_decay", o->weight_decay, -DBL_MAX)) return (tow_value){0};
    if (!o->decay_all && !tow__param_kind_decays(tow_update_kind(u, 0))) return g;
    return tow_add(g, tow_mul_scalar(p, o->weight_decay));
}
const tow_gradient_transform_class tow_add_decayed_weights_class = {.name = "decay", .each = decay_each};

static tow_value clip_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)p;
    const double most = ((const tow_clip_elements *)self)->max_delta;
    if (!tow__is_number(u, "max_delta", most, 0)) return (tow_value){0};
    return tow_clamp(tow_full_like(g, -most), g, tow_full_like(g, most));
}
const tow_gradient_transform_class tow_clip_elements_class = {.name = "clip_elements", .each = clip_each};

static void clip_all(tow_update *u, const tow_gradient_transform *self)
{
    const double most = ((const tow_clip_by_global_norm *)self)->max_norm;
    const size_t n = tow_update_count(u);
    tow_trace *t = tow_update_trace(u);
    if (!tow__is_number(u, "max_norm", most, DBL_MIN)) return;
    tow_value *gradients = tow__trace_alloc(t, n + 1, sizeof *gradients);
    if (!gradients) return;
    for (size_t i = 0; i < n; i++) gradients[i] = tow_update_gradient(u, i);
    if (n == 0) gradients[0] = tow_scalar(t, TOW_F64, 0);
    tow__root norm = tow__root_of_squares(n ? n : 1, gradients);
    tow_update_report(u, "norm", tow__root_value(norm));
    /* a NaN norm reaches all parameters, and is seen */
    tow__factor factor = tow__factor_clip(norm, tow_scalar(t, TOW_F64, most));
    for (size_t i = 0; i < n; i++) tow__update_scale(u, i, &factor);
}
const tow_gradient_transform_class tow_clip_by_global_norm_class = {.name = "clip", .all = clip_all};
