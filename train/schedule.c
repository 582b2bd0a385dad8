/* Learning-rate schedules: pure functions of the step, with the formulas of optax. */
#include <math.h>

#include "src/base/arithmetic.h"
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

tow_schedule tow_schedule_function(double (*function)(const void *user, int64_t step), const void *user)
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

double tow_schedule_at(const tow_schedule *schedule, int64_t step)
{
    TOW__ARITHMETIC(false);
    if (step < 0) step = 0;
    switch (schedule->kind) {
    case TOW_SCHEDULE_CONSTANT:
        break;
    case TOW_SCHEDULE_WARMUP_COSINE:
        return warmup_cosine(schedule, step);
    case TOW_SCHEDULE_FUNCTION:
        return schedule->function ? schedule->function(schedule->user, step) : NAN;
    }
    return schedule->peak_value;
}
