/* Options of transforms: numbers, or schedules where TOW_INJECT_HYPERPARAMS gives them some. A number stays a constant
 * of the program. */
#include <math.h>

#include "src/graph/graph.h"
#include "src/scope/layer.h"
#include "src/train/recording.h"
#include "src/train/transforms.h"
#include "tow/numpy.h"

const double tow__usual_b1 = 0.9, tow__usual_b2 = 0.999, tow__usual_eps = 1e-8, tow__zero = 0;

const tow_schedule *tow__injected(tow_update *u, const char *name)
{
    const char *key = tow__joined(u->trace, u->owner, "/", name);
    for (const tow__injection *i = u->injections; i && key; i = i->outer) {
        const size_t n = strlen(i->base);
        if (strncmp(key, i->base, n) != 0) continue;
        for (size_t k = 0; k < i->from->n; k++) {
            if (strcmp(i->from->options[k].name, key + n) != 0) continue;
            i->used[k] = true;
            return &i->from->options[k].schedule;
        }
    }
    return NULL;
}

tow__option tow__option_of(tow_update *u, const char *name, const double *value, const double *usual)
{
    return (tow__option){u, name, *value == 0 ? usual : value, tow__injected(u, name)};
}

double tow__option_value(const tow__option *b) { return b->schedule ? tow_schedule_at(b->schedule, 0) : *b->value; }

tow_value tow_update_option(tow_update *u, const char *name, double value, tow_dtype dtype)
{
    const tow_schedule *schedule = name ? tow__injected(u, name) : NULL;
    return schedule ? tow_update_number(u, name, schedule, dtype) : tow_scalar(u->trace, dtype, value);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

bool tow__is_share(const tow__option *b)
{
    const double value = tow__option_value(b);
    if (value >= 0.0 && (float)value < 1.0f) return true;
    tow_trace_fail(b->u->trace, TOW_INVALID_ARGUMENT, "optimizer: expected %s in [0, 1), found %.9g", b->name, value);
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

bool tow__is_option(const tow__option *b, double least)
{
    return tow__is_number(b->u, b->name, tow__option_value(b), least);
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

tow_value tow__option_scalar(const tow__option *b, tow_dtype dtype)
{
    if (!b->schedule) return tow_scalar(b->u->trace, dtype, *b->value);
    return tow_update_number(b->u, b->name, b->schedule, dtype);
}

tow_value tow__option_rest(const tow__option *b, tow_dtype dtype)
{
    if (!b->schedule) return tow_scalar(b->u->trace, dtype, 1 - *b->value);
    tow_value rest = tow_rsub_scalar(tow_update_number(b->u, b->name, b->schedule, TOW_F64), 1);
    return dtype == TOW_F64 ? rest : tow_convert(rest, dtype);
}

tow_value tow__times_option(tow_value x, const tow__option *b)
{
    if (!b->schedule) return tow_mul_scalar(x, *b->value);
    return tow_mul(x, tow__spread(tow__option_scalar(b, tow_value_type(x).dtype), x));
}

tow_value tow__times_rest(tow_value x, const tow__option *b)
{
    if (!b->schedule) return tow_mul_scalar(x, 1.0 - *b->value);
    return tow_mul(x, tow__spread(tow__option_rest(b, tow_value_type(x).dtype), x));
}

tow_value tow__plus_option(tow_value x, const tow__option *b)
{
    if (!b->schedule) return tow_add_scalar(x, *b->value);
    return tow_add(x, tow__spread(tow__option_scalar(b, tow_value_type(x).dtype), x));
}

tow_value tow__average(tow_value m, tow_value x, const tow__option *b)
{
    /* an average that is kept in another type is multiplied in that type, as Optax does */
    tow_value new = tow__times_rest(x, b), old = tow__times_option(m, b);
    const tow_dtype wide = tow_promote_types(tow_value_type(new).dtype, tow_value_type(old).dtype);
    return tow_add(tow__as(new, wide), tow__as(old, wide));
}

/* ---- numbers of steps -------------------------------------------------------------------------------------------- */

static double step_count(int64_t step, const void *none)
{
    (void)none;
    return (double)step + 1;
}

tow_value tow__step_count(tow_update *u) { return tow_update_function(u, "step", step_count, NULL, TOW_F64); }

static double bias(int64_t step, const void *b) { return 1.0 - pow(*(const double *)b, (double)step + 1.0); }
static double next_bias(int64_t step, const void *b) { return bias(step + 1, b); }

tow_value tow__bias(tow_update *u, const char *name, const tow__option *b, bool next, tow_value x)
{
    const tow_dtype dtype = tow_value_type(x).dtype;
    if (!b->schedule) return tow__spread(tow_update_function(u, name, next ? next_bias : bias, b->value, dtype), x);
    tow_value t = tow__step_count(u), power = tow_pow(tow__option_scalar(b, TOW_F64), next ? tow_add_scalar(t, 1) : t);
    tow_value scalar = tow_rsub_scalar(power, 1);
    return tow__spread(dtype == TOW_F64 ? scalar : tow_convert(scalar, dtype), x);
}

static double is_first(int64_t step, const void *none)
{
    (void)none;
    return step <= 0;
}

tow_value tow__first_update(tow_update *u)
{
    tow_value first = tow_update_function(u, "first", is_first, NULL, TOW_F64);
    return tow_ne(first, tow_full_like(first, 0));
}

static double ends_period(int64_t step, const void *period) { return (step + 1) % *(const int64_t *)period == 0; }
static double begins_period(int64_t step, const void *period) { return step % *(const int64_t *)period == 0; }

tow_value tow__is_last_of(tow_update *u, const int64_t *period)
{
    tow_value last = tow_update_function(u, "last", ends_period, period, TOW_F64);
    return tow_ne(last, tow_full_like(last, 0));
}

tow_value tow__is_first_of(tow_update *u, const int64_t *period)
{
    tow_value first = tow_update_function(u, "begins", begins_period, period, TOW_F64);
    return tow_ne(first, tow_full_like(first, 0));
}
