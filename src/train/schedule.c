/* Learning-rate schedules: pure functions of the step, with the formulas of optax. */
#include <math.h>

#include "src/base/arithmetic.h"
#include "src/train/transforms.h"
#include "tow/optimizer.h"

tow_schedule tow_schedule_constant(double value)
{
    return (tow_schedule){.kind = TOW_SCHEDULE_CONSTANT, .peak_value = value};
}

tow_schedule tow_schedule_warmup_cosine(double init_value, double peak_value, int64_t warmup_steps, int64_t decay_steps,
                                        double end_value)
{
    return (tow_schedule){.kind = TOW_SCHEDULE_WARMUP_COSINE,
                          .init_value = init_value,
                          .peak_value = peak_value,
                          .end_value = end_value,
                          .warmup_steps = warmup_steps,
                          .decay_steps = decay_steps};
}

tow_schedule tow_schedule_function(double (*function)(int64_t step, const void *user), const void *user)
{
    return (tow_schedule){.kind = TOW_SCHEDULE_FUNCTION, .function = function, .user = user};
}

/* s < warmup:  init + (peak - init) s / warmup
 * else         end + (peak - end) (0.5 (1 + cos(pi t)))^exponent,  t = min((s - warmup) / (decay - warmup), 1) */
static __attribute__((noinline)) double warmup_cosine(const tow_schedule *schedule, int64_t step)
{
    if (step < schedule->warmup_steps) {
        double rest = 1.0 - (double)step / (double)schedule->warmup_steps;
        return (schedule->init_value - schedule->peak_value) * rest + schedule->peak_value;
    }
    int64_t length = schedule->decay_steps - schedule->warmup_steps;
    double t = step - schedule->warmup_steps >= length ? 1.0 : (double)(step - schedule->warmup_steps) / (double)length;
    double cosine = 0.5 * (1.0 + cos(3.14159265358979323846 * t));
    if (schedule->exponent != 0.0) cosine = pow(cosine, schedule->exponent);
    return schedule->end_value + (schedule->peak_value - schedule->end_value) * cosine;
}

/* ---- other kinds ------------------------------------------------------------------------------------------------- */

static const double pi = 3.14159265358979323846;

tow_schedule tow_schedule_polynomial(double init_value, double end_value, double power, int64_t steps, int64_t begin)
{
    return (tow_schedule){.kind = TOW_SCHEDULE_POLYNOMIAL,
                          .init_value = init_value,
                          .end_value = end_value,
                          .exponent = power,
                          .decay_steps = steps,
                          .warmup_steps = begin > 0 ? begin : 0};
}

tow_schedule tow_schedule_linear(double init_value, double end_value, int64_t steps, int64_t begin)
{
    return tow_schedule_polynomial(init_value, end_value, 1, steps, begin);
}

static __attribute__((noinline)) double polynomial(const tow_schedule *s, int64_t step)
{
    if (s->decay_steps <= 0 || step <= s->warmup_steps) return s->init_value;
    const int64_t since = step - s->warmup_steps, count = since < s->decay_steps ? since : s->decay_steps;
    const double left = 1.0 - (double)count / (double)s->decay_steps;
    return (s->init_value - s->end_value) * pow(left, s->exponent) + s->end_value;
}

tow_schedule tow_schedule_exponential(double init_value, int64_t steps, double rate, int64_t begin, bool staircase)
{
    return (tow_schedule){.kind = TOW_SCHEDULE_EXPONENTIAL,
                          .init_value = init_value,
                          .exponent = rate,
                          .decay_steps = steps,
                          .warmup_steps = begin > 0 ? begin : 0,
                          .staircase = staircase};
}

static __attribute__((noinline)) double exponential(const tow_schedule *s, int64_t step)
{
    if (s->decay_steps <= 0 || s->exponent == 0 || step <= s->warmup_steps) return s->init_value;
    const double turns = (double)(step - s->warmup_steps) / (double)s->decay_steps;
    return s->init_value * pow(s->exponent, s->staircase ? floor(turns) : turns);
}

tow_schedule tow_schedule_cosine(double init_value, int64_t steps, double alpha, double exponent)
{
    return (tow_schedule){.kind = TOW_SCHEDULE_COSINE,
                          .init_value = init_value,
                          .end_value = alpha,
                          .exponent = exponent,
                          .decay_steps = steps};
}

static __attribute__((noinline)) double half_cosine(const tow_schedule *s, int64_t step)
{
    if (s->decay_steps <= 0) return NAN;
    const double t = step < s->decay_steps ? (double)step / (double)s->decay_steps : 1.0;
    double wave = 0.5 * (1.0 + cos(pi * t));
    if (s->exponent != 0) wave = pow(wave, s->exponent);
    return s->init_value * ((1.0 - s->end_value) * wave + s->end_value);
}

tow_schedule tow_schedule_piecewise_constant(double init_value, size_t n, const int64_t *boundaries,
                                             const double *scales)
{
    return (tow_schedule){.kind = TOW_SCHEDULE_PIECEWISE_CONSTANT,
                          .init_value = init_value,
                          .n = n,
                          .boundaries = boundaries,
                          .scales = scales};
}

static double piecewise_constant(const tow_schedule *s, int64_t step)
{
    double value = s->init_value;
    if (s->n > 0 && (!s->boundaries || !s->scales)) return NAN;
    for (size_t i = 0; i < s->n; i++)
        if (step >= s->boundaries[i]) value *= s->scales[i];
    return value;
}

static tow_schedule onecycle_of(int64_t steps, double peak_value, bool cosine)
{
    return (tow_schedule){
        .kind = TOW_SCHEDULE_ONECYCLE, .peak_value = peak_value, .decay_steps = steps, .cosine = cosine};
}

tow_schedule tow_schedule_linear_onecycle(int64_t steps, double peak_value)
{
    return onecycle_of(steps, peak_value, false);
}

tow_schedule tow_schedule_cosine_onecycle(int64_t steps, double peak_value)
{
    return onecycle_of(steps, peak_value, true);
}

/* Between knots: (step, value). */
static __attribute__((noinline)) double onecycle(const tow_schedule *s, int64_t step)
{
    if (s->decay_steps <= 0) return NAN;
    const double low = s->peak_value / 25, last = low / 1e4;
    const int64_t up = (int64_t)(0.3 * (double)s->decay_steps), down = (int64_t)(0.85 * (double)s->decay_steps);
    const int64_t at[] = {0, up, s->cosine ? s->decay_steps : down, s->decay_steps};
    const double values[] = {low, s->peak_value, s->cosine ? last : low, last};
    for (int i = 0; i < 3; i++) {
        if (step >= at[i + 1]) continue;
        const double t = (double)(step - at[i]) / (double)(at[i + 1] - at[i]);
        const double share = s->cosine ? 0.5 * (1.0 - cos(pi * t)) : t;
        return values[i] + (values[i + 1] - values[i]) * share;
    }
    return last;
}

tow_schedule tow_schedule_joined(size_t n, const tow_schedule *schedules, const int64_t *boundaries)
{
    return (tow_schedule){.kind = TOW_SCHEDULE_JOINED, .n = n, .schedules = schedules, .boundaries = boundaries};
}

/* The schedule that counts at this step, which becomes the step that it counts; NULL: there is none. Boundaries may be
 * in any order, and the last one that has passed decides, as in Optax. */
static const tow_schedule *find_joined(const tow_schedule *s, int64_t *step)
{
    while (s->kind == TOW_SCHEDULE_JOINED) {
        size_t i = 0;
        if (s->n == 0 || !s->schedules || (s->n > 1 && !s->boundaries)) return NULL;
        for (size_t next = 1; next < s->n; next++)
            if (*step >= s->boundaries[next - 1]) i = next;
        if (i > 0) *step -= s->boundaries[i - 1];
        s = &s->schedules[i];
    }
    return s;
}

bool tow__schedule_complete(const tow_schedule *s)
{
    if (isnan(s->init_value) || isnan(s->peak_value) || isnan(s->end_value) || isnan(s->exponent)) return false;
    switch (s->kind) {
    case TOW_SCHEDULE_FUNCTION:
        return s->function != NULL;
    case TOW_SCHEDULE_PIECEWISE_CONSTANT:
        if (s->n > 0 && (!s->boundaries || !s->scales)) return false;
        for (size_t i = 0; i < s->n; i++)
            if (isnan(s->scales[i])) return false;
        return true;
    case TOW_SCHEDULE_JOINED:
        if (s->n == 0 || !s->schedules || (s->n > 1 && !s->boundaries)) return false;
        for (size_t i = 0; i < s->n; i++)
            if (!tow__schedule_complete(&s->schedules[i])) return false;
        return true;
    case TOW_SCHEDULE_COSINE:
    case TOW_SCHEDULE_ONECYCLE:
        return s->decay_steps > 0;
    default:
        return (unsigned)s->kind <= TOW_SCHEDULE_JOINED;
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static double value_at(const tow_schedule *schedule, int64_t step)
{
    const tow_schedule *s = find_joined(schedule, &step);
    if (!s) return NAN;
    switch (s->kind) {
    case TOW_SCHEDULE_CONSTANT:
        return s->peak_value;
    case TOW_SCHEDULE_WARMUP_COSINE:
        return warmup_cosine(s, step);
    case TOW_SCHEDULE_FUNCTION:
        return s->function ? s->function(step, s->user) : NAN;
    case TOW_SCHEDULE_POLYNOMIAL:
        return polynomial(s, step);
    case TOW_SCHEDULE_EXPONENTIAL:
        return exponential(s, step);
    case TOW_SCHEDULE_COSINE:
        return half_cosine(s, step);
    case TOW_SCHEDULE_PIECEWISE_CONSTANT:
        return piecewise_constant(s, step);
    case TOW_SCHEDULE_ONECYCLE:
        return onecycle(s, step);
    case TOW_SCHEDULE_JOINED:
        break;
    }
    return NAN;
}

double tow_schedule_at(const tow_schedule *schedule, int64_t step)
{
    TOW__ARITHMETIC(false);
    return value_at(schedule, step < 0 ? 0 : step);
}
