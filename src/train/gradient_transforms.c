/* The gradient transforms that there are. Formulas and their order of operations are those of Optax; numbers that
 * depend on the step are computed in double precision. */
#include <float.h>
#include <math.h>

#include "src/graph/graph.h"
#include "src/params/pattern.h"
#include "src/scope/layer.h"
#include "src/scope/tree.h"
#include "src/train/recording.h"
#include "src/train/transforms.h"
#include "tow/numpy.h"
#include "tow/ops.h"
#include "tow/optimizer.h"

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
const tow_gradient_transform_class tow_chain_class = {TOW__MADE_BY(TOW_CHAIN, tow_chain), .name = "chain",
                                                      .all = chain_all};

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
    if (transform->cls != &tow_chain_class || transform->size < sizeof(tow_chain)) return true;
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
    const size_t n = tow_update_parameter_count(u);
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
        tow_update_run_with(u, o->rules[rule].transform, k, indices);
    }
}
const tow_gradient_transform_class tow_partition_class = {TOW__MADE_BY(TOW_PARTITION, tow_partition),
                                                          .name = "partition", .all = partition_all};

/* ---- of single parameters ---------------------------------------------------------------------------------------- */

static tow_value set_to_zero_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)u, (void)self, (void)p;
    return tow_full_like(g, 0);
}
const tow_gradient_transform_class tow_set_to_zero_class = {TOW__MADE_BY(TOW_SET_TO_ZERO, tow_set_to_zero),
                                                            .name = "set_to_zero", .each = set_to_zero_each};

static tow_value scale_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)p;
    const double *given = &((const tow_scale *)self)->factor;
    const tow__option factor = tow__option_of(u, "factor", given, given);
    return tow__is_option(&factor, -DBL_MAX) ? tow__times_option(g, &factor) : (tow_value){0};
}
const tow_gradient_transform_class tow_scale_class = {TOW__MADE_BY(TOW_SCALE, tow_scale), .name = "scale",
                                                      .each = scale_each};

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
const tow_gradient_transform_class tow_scale_by_learning_rate_class = {
    TOW__MADE_BY(TOW_SCALE_BY_LEARNING_RATE, tow_scale_by_learning_rate), .name = "learning_rate",
    .each = learning_rate_each};

/* ---- adam -------------------------------------------------------------------------------------------------------- */

bool tow__adam_options(tow_update *u, tow__adam *a, const double *b1, const double *b2, const double *eps,
                       const double *usual_eps, const double *eps_root)
{
    a->b1 = tow__option_of(u, "b1", b1, &tow__usual_b1);
    a->b2 = tow__option_of(u, "b2", b2, &tow__usual_b2);
    a->eps = tow__option_of(u, "eps", eps, usual_eps);
    a->eps_root = tow__option_of(u, "eps_root", eps_root, &tow__zero);
    a->m = a->v = a->before = (tow_value){0};
    return tow__is_option(&a->eps, 0) && tow__is_option(&a->eps_root, 0) && tow__is_share(&a->b1) &&
           tow__is_share(&a->b2);
}

tow_value tow__moment_slot(tow_update *u, const char *name, tow_value g, const char *option, tow_dtype dtype)
{
    tow_type type = tow_value_type(g);
    if (dtype) type.dtype = dtype;
    if (tow_dtype_is_float(type.dtype)) return tow_slot_with(u, name, type, 0);
    tow_trace_fail(tow_update_trace(u), TOW_INVALID_ARGUMENT,
                   "optimizer: .%s: expected a float type, or 0 for that of the parameter, found %d", option,
                   (int)dtype);
    return (tow_value){0};
}

void tow__first_moment(tow_update *u, tow__adam *a, tow_value g, tow_dtype mu_dtype)
{
    a->before = tow__moment_slot(u, "mu", g, "mu_dtype", mu_dtype);
    if (tow_is_null(a->before)) return;
    a->m = tow__average(a->before, g, &a->b1);
    tow_set_slot(u, "mu", tow__as(a->m, tow_value_type(a->before).dtype));
}

void tow__second_moment(tow_update *u, tow__adam *a, tow_value g)
{
    a->v = tow__average(tow__slot_of_squares(u, "nu"), tow_mul(g, g), &a->b2);
    tow_set_slot(u, "nu", a->v);
}

tow_value tow__corrected_first(tow_update *u, const tow__adam *a, tow_value g, bool nesterov)
{
    tow_value bias = tow__bias(u, "bias1", &a->b1, false, a->m);
    if (!nesterov) return tow_div(a->m, bias);
    tow_value ahead = tow_div(a->m, tow__bias(u, "next_bias1", &a->b1, true, a->m));
    tow_value now = tow_div(tow__as(g, tow_value_type(a->m).dtype), bias);
    return tow_add(tow__times_option(ahead, &a->b1), tow__times_rest(now, &a->b1));
}

tow_value tow__over_root(const tow__adam *a, tow_value x, tow_value v)
{
    if (a->eps_root.schedule || *a->eps_root.value != 0) v = tow__plus_option(v, &a->eps_root);
    tow_value root = tow__plus_option(tow_sqrt(v), &a->eps);
    return tow_div(x, tow__as(root, tow_value_type(x).dtype));
}

static tow_value adam_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const tow_scale_by_adam *o = (const tow_scale_by_adam *)self;
    tow__adam a;
    (void)p;
    if (!tow__adam_options(u, &a, &o->b1, &o->b2, &o->eps, &tow__usual_eps, &o->eps_root)) return (tow_value){0};
    tow__first_moment(u, &a, g, o->mu_dtype);
    if (tow_is_null(a.m)) return a.m;
    tow__second_moment(u, &a, g);
    tow_value first = tow__corrected_first(u, &a, g, o->nesterov);
    tow_value second = tow_div(a.v, tow__bias(u, "bias2", &a.b2, false, g));
    return tow__as(tow__over_root(&a, first, second), tow_value_type(g).dtype);
}
const tow_gradient_transform_class tow_scale_by_adam_class = {TOW__MADE_BY(TOW_SCALE_BY_ADAM, tow_scale_by_adam),
                                                              .name = "adam", .each = adam_each};

/* ---- momentum, decay, clipping ----------------------------------------------------------------------------------- */

static tow_value trace_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)p;
    const tow_trace_gradients *o = (const tow_trace_gradients *)self;
    const tow__option decay = tow__option_of(u, "decay", &o->decay, &o->decay);
    if (!tow__is_option(&decay, -DBL_MAX)) return (tow_value){0};
    tow_value before = tow__moment_slot(u, "trace", g, "accumulator_dtype", o->accumulator_dtype);
    if (tow_is_null(before)) return before;
    const tow_dtype kept = tow_value_type(before).dtype, own = tow_value_type(g).dtype,
                    wide = tow_promote_types(own, kept);
    tow_value m = tow_add(tow__as(g, wide), tow__as(tow__times_option(before, &decay), wide));
    tow_set_slot(u, "trace", tow__as(m, kept));
    if (o->nesterov) m = tow_add(tow__as(g, wide), tow__times_option(m, &decay));
    return tow__as(m, own);
}
const tow_gradient_transform_class tow_trace_gradients_class = {TOW__MADE_BY(TOW_TRACE_GRADIENTS, tow_trace_gradients),
                                                                .name = "sgd", .each = trace_each};

static tow_value decay_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const tow_add_decayed_weights *o = (const tow_add_decayed_weights *)self;
    const tow__option decay = tow__option_of(u, "weight_decay", &o->weight_decay, &o->weight_decay);
    if (!tow__is_option(&decay, -DBL_MAX)) return (tow_value){0};
    if (!o->decay_all && !tow__param_kind_decays(tow_update_kind(u, 0))) return g;
    return tow_add(g, tow__times_option(p, &decay));
}
const tow_gradient_transform_class tow_add_decayed_weights_class = {
    TOW__MADE_BY(TOW_ADD_DECAYED_WEIGHTS, tow_add_decayed_weights), .name = "decay", .each = decay_each};

static tow_value clip_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)p;
    const double *given = &((const tow_clip_elements *)self)->max_delta;
    const tow__option most = tow__option_of(u, "max_delta", given, given);
    if (!tow__is_option(&most, 0)) return (tow_value){0};
    tow_value limit = tow__spread(tow__option_scalar(&most, tow_value_type(g).dtype), g);
    return tow_clamp(tow_neg(limit), g, limit);
}
const tow_gradient_transform_class tow_clip_elements_class = {TOW__MADE_BY(TOW_CLIP_ELEMENTS, tow_clip_elements),
                                                              .name = "clip_elements", .each = clip_each};

tow__root tow__update_norm(tow_update *u)
{
    const size_t n = tow_update_parameter_count(u);
    tow_trace *t = tow_update_trace(u);
    tow_value *gradients = tow__trace_alloc(t, n + 1, sizeof *gradients);
    int64_t *layers = tow__trace_alloc(t, n + 1, sizeof *layers);
    if (!gradients || !layers) return (tow__root){0};
    for (size_t i = 0; i < n; i++) {
        gradients[i] = tow_update_gradient(u, i);
        layers[i] = tow__layers_of(u->o->params, u->which[i]);
    }
    if (n > 0 && u->o->by_lines) return tow__root_of_lines(n, gradients, layers);
    if (n == 0) gradients[0] = tow_scalar(t, TOW_F64, 0);
    return tow__root_of_squares(n ? n : 1, gradients);
}

static void clip_all(tow_update *u, const tow_gradient_transform *self)
{
    const double *given = &((const tow_clip_by_global_norm *)self)->max_norm;
    const tow__option most = tow__option_of(u, "max_norm", given, given);
    if (!tow__is_option(&most, DBL_MIN)) return;
    tow__root norm = tow__update_norm(u);
    if (tow_is_null(norm.value)) return;
    tow_update_report(u, "norm", tow__root_value(norm));
    /* a NaN norm reaches all parameters, and is seen */
    tow__factor factor = tow__factor_clip(norm, tow__option_scalar(&most, TOW_F64), 0);
    for (size_t i = 0; i < tow_update_parameter_count(u); i++) tow__update_scale(u, i, &factor);
}
const tow_gradient_transform_class tow_clip_by_global_norm_class = {
    TOW__MADE_BY(TOW_CLIP_BY_GLOBAL_NORM, tow_clip_by_global_norm), .name = "clip", .all = clip_all};
