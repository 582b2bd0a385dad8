/* Transforms around whole optimizers: Lookahead, schedule-free, sharpness-aware minimization. Their slots have the
 * types of the parameters; copies of parameters begin in the first update. Formulas and their order of operations are
 * those of Optax 0.2.8. */
#include <float.h>
#include <math.h>

#include "src/base/dtypes.h"
#include "src/scope/layer.h"
#include "src/train/recording.h"
#include "src/train/transforms.h"
#include "tow/numpy.h"

static tow_value choose(tow_value condition, tow_value a, tow_value b)
{
    return tow_where(tow__spread(condition, a), a, b);
}

static bool check_period(tow_update *u, const char *name, int64_t period, int64_t least)
{
    if (period >= least) return true;
    tow_trace_fail(u->trace, TOW_INVALID_ARGUMENT, "optimizer: %s: expected a sync_period of at least %lld, found %lld",
                   name, (long long)least, (long long)period);
    return false;
}

/* ---- lookahead --------------------------------------------------------------------------------------------------- */

/* With d = p + update - slow: the slow parameters move by s d, and the fast ones become the slow ones: update - (1-s)
 * d. */
static void lookahead_all(tow_update *u, const tow_gradient_transform *self)
{
    static const double usual_step = 0.5;
    const tow_lookahead *o = (const tow_lookahead *)self;
    const tow__option step = tow__option_of(u, "slow_step_size", &o->slow_step_size, &usual_step);
    if (!check_period(u, "lookahead", o->sync_period, 1) || !tow__is_option(&step, 0)) return;
    tow_value first = tow__first_update(u), sync = tow__is_last_of(u, &o->sync_period);
    const tow__inner_run run = {.modulus = o->reset_state ? o->sync_period : 0,
                                .restart = o->reset_state ? sync : (tow_value){0}};
    tow__update_run_inner(u, o->inner, &run);
    for (size_t i = 0; i < tow_update_parameter_count(u) && !tow__failed(u->trace); i++) {
        tow_value p = tow_update_parameter(u, i), fast = tow_update_gradient(u, i);
        tow_value slow = choose(first, p, tow__parameter_slot(u, i, "slow")), way = tow_sub(tow_add(p, fast), slow);
        tow__set_parameter_slot(u, i, "slow", choose(sync, tow_add(slow, tow__times_option(way, &step)), slow));
        tow_update_set_gradient(u, i, choose(sync, tow_sub(fast, tow__times_rest(way, &step)), fast));
    }
}
const tow_gradient_transform_class tow_lookahead_class = {TOW__MADE_BY(TOW_LOOKAHEAD, tow_lookahead),
                                                          .name = "lookahead", .all = lookahead_all};

/* ---- schedule-free ----------------------------------------------------------------------------------------------- */

static double next_rate(int64_t step, const void *self)
{
    return tow_schedule_at(&((const tow_schedule_free *)self)->learning_rate, step + 1);
}

/* c = w / sum of all w, w = (largest rate)^power; 0 where that is 0. */
static tow_value weight(tow_update *u, const tow_schedule_free *o)
{
    static const double usual_power = 2;
    const tow__option power = tow__option_of(u, "weight_power", &o->weight_power, &usual_power);
    const tow_type f64 = tow_make_type(TOW_F64, 0, NULL);
    if (!tow__is_option(&power, 0)) return (tow_value){0};
    if (!tow__schedule_complete(&o->learning_rate)) {
        tow_trace_fail(u->trace, TOW_INVALID_ARGUMENT, "optimizer: schedule_free: expected a .learning_rate");
        return (tow_value){0};
    }
    tow_value rate = tow_update_function(u, "learning_rate", next_rate, o, TOW_F64);
    tow_value largest = tow_max(tow_slot_with(u, "max_rate", f64, 0), rate),
              w = tow_pow(largest, tow__option_scalar(&power, TOW_F64));
    tow_value sum = tow_add(tow_slot_with(u, "weight_sum", f64, 0), w), zero = tow_scalar(u->trace, TOW_F64, 0);
    tow_set_slot(u, "max_rate", largest);
    tow_set_slot(u, "weight_sum", sum);
    return tow_where(tow_eq(sum, zero), zero, tow_div(w, sum));
}

static void schedule_free_all(tow_update *u, const tow_gradient_transform *self)
{
    const tow_schedule_free *o = (const tow_schedule_free *)self;
    const tow__option b1 = tow__option_of(u, "b1", &o->b1, &tow__usual_b1);
    if (!tow__is_share(&b1)) return;
    tow_value first = tow__first_update(u), c = weight(u, o);
    if (tow_is_null(c)) return;
    tow__update_run_inner(u, o->inner, &(tow__inner_run){0});
    for (size_t i = 0; i < tow_update_parameter_count(u) && !tow__failed(u->trace); i++) {
        tow_value y = tow_update_parameter(u, i), z = choose(first, y, tow__parameter_slot(u, i, "z"));
        const tow_dtype dtype = tow_value_type(y).dtype;
        tow_value by = tow__spread(tow__option_scalar(&b1, dtype), y), next = tow_add(z, tow_update_gradient(u, i));
        tow_value x = tow_div(tow_sub(y, tow__times_rest(z, &b1)), by);
        x = tow_add(tow_mul(tow__spread(tow__as(tow_rsub_scalar(c, 1), dtype), x), x),
                    tow_mul(tow__spread(tow__as(c, dtype), x), next));
        tow_value mixed = tow_add(tow__times_option(x, &b1), tow__times_rest(next, &b1));
        tow__set_parameter_slot(u, i, "z", next);
        tow_update_set_gradient(u, i, tow_sub(mixed, y));
    }
}
const tow_gradient_transform_class tow_schedule_free_class = {TOW__MADE_BY(TOW_SCHEDULE_FREE, tow_schedule_free),
                                                              .name = "schedule_free", .all = schedule_free_all};

/* The slot "z" of this transform: the group whose prefix ends so. */
static tow_params *find_z(const tow_optimizer_state *state)
{
    static const char end[] = "schedule_free/z/";
    for (size_t i = 0; i < tow_optimizer_slot_count(state); i++) {
        const char *prefix = tow_optimizer_slot_prefix(state, i);
        const size_t n = strlen(prefix);
        if (n >= sizeof end - 1 && strcmp(prefix + n - (sizeof end - 1), end) == 0) return tow_optimizer_slot(state, i);
    }
    return NULL;
}

typedef struct mixture {
    double b1;
    bool begun;
} mixture;

/* arrays: y, z */
static tow_status mix(const char *path, size_t n, tow_array *const *arrays, tow_array *result, void *user)
{
    const mixture *m = user;
    const tow_type type = tow_array_type(result);
    (void)path, (void)n;
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        const double y = tow__load_element(type.dtype, tow_array_data(arrays[0]), i).f;
        const double z = tow__load_element(tow_array_type(arrays[1]).dtype, tow_array_data(arrays[1]), i).f;
        tow__store_element(type.dtype, tow_array_data(result), i, m->begun ? (y - (1 - m->b1) * z) / m->b1 : y);
    }
    return TOW_OK;
}

tow_status tow_schedule_free_params(const tow_optimizer_state *state, const tow_schedule_free *transform,
                                    tow_params **params)
{
    if (params) *params = NULL;
    if (!state || !transform || !params)
        return tow__missing(state ? state->ctx : NULL, __func__,
                            "a state, its transform and a place for the parameters");
    tow_schedule_free own;
    char text[320];
    if (tow__struct_fault(TOW__STRUCT_KIND(tow_schedule_free), transform, transform->base.size, text, sizeof text))
        return tow__fail(state->ctx, TOW_INVALID_ARGUMENT, "%s", text);
    tow__struct_copy(TOW__STRUCT_KIND(tow_schedule_free), transform, transform->base.size, &own);
    const tow_params *z = find_z(state);
    if (!z)
        return tow__fail(
            state->ctx, TOW_NOT_FOUND,
            "tow_schedule_free_params: the optimizer has no TOW_SCHEDULE_FREE; give the one that it was made with");
    mixture m = {own.b1 == 0 ? tow__usual_b1 : own.b1, tow_optimizer_step_count(state) > 0};
    tow_params *wholes[2] = {NULL, NULL}; /* of shares; else the same arrays */
    tow_status status = tow_params_gather(state->kept ? state->kept : state->params, &wholes[0]);
    if (status == TOW_OK) status = tow_params_gather(z, &wholes[1]);
    if (status == TOW_OK) status = tow_params_zip(2, (const tow_params *const *)wholes, mix, &m, params);
    for (int i = 0; i < 2; i++) tow_params_free(wholes[i]);
    return status;
}

/* ---- sam --------------------------------------------------------------------------------------------------------- */

static const int64_t usual_period = 2;

/* The gradients, as they are now. */
static tow_value *gradients_of(tow_update *u)
{
    const size_t n = tow_update_parameter_count(u);
    tow_value *gradients = tow__trace_alloc(u->trace, n + 1, sizeof *gradients);
    for (size_t i = 0; gradients && i < n; i++) gradients[i] = tow_update_gradient(u, i);
    return gradients;
}

/* Updates but the last one of a period: p += -ascent(g). The last one, from where they began: p += begin - p +
 * inner(g). */
static void sam_all(tow_update *u, const tow_gradient_transform *self)
{
    const tow_sam *o = (const tow_sam *)self;
    const int64_t *period = o->sync_period ? &o->sync_period : &usual_period;
    const size_t n = tow_update_parameter_count(u);
    if (!check_period(u, "sam", *period, 2)) return;
    tow_value begins = tow__is_first_of(u, period), last = tow__is_last_of(u, period);
    tow_value *given = gradients_of(u), *start = tow__trace_alloc(u->trace, n + 1, sizeof *start);
    if (!given || !start) return;
    tow__inner_run climb = {.keep = tow_not(last)};
    if (!o->keep_ascent_state) climb = (tow__inner_run){.modulus = *period, .restart = last};
    tow__update_run_inner(u, o->ascent, &climb);
    tow_value *ascent = gradients_of(u);
    for (size_t i = 0; ascent && i < n; i++) {
        tow_update_set_gradient(u, i, given[i]);
        start[i] = choose(begins, tow_update_parameter(u, i), tow__parameter_slot(u, i, "start"));
        tow__set_parameter_slot(u, i, "start", start[i]);
    }
    if (!ascent || tow__failed(u->trace)) return;
    tow__update_run_inner(u, o->inner, &(tow__inner_run){.divisor = *period, .keep = last, .parameters = start});
    for (size_t i = 0; i < n && !tow__failed(u->trace); i++) {
        tow_value back = tow_sub(start[i], tow_update_parameter(u, i));
        tow_update_set_gradient(u, i, choose(last, tow_add(back, tow_update_gradient(u, i)), tow_neg(ascent[i])));
    }
}
const tow_gradient_transform_class tow_sam_class = {TOW__MADE_BY(TOW_SAM, tow_sam), .name = "sam", .all = sam_all};
