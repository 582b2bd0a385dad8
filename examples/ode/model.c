/* See model.h. With u the hares and v the lynxes,
 *     u' = a u - b u v,    v' = -c v + d u v,
 * and with the logarithms x = (log u, log v), which keep populations positive,
 *     x' = (a, -c) + (-b, d) * exp(reversed x).  (Lotka, 1925; Volterra, 1926) */
#include "model.h"

#include "hares.h"

/* The values that a step needs besides the state; outer values of all loops. */
typedef struct rates {
    tow_value alone, together; /* (a, -c), (-b, d): f64[2] */
    nesting regions;
} rates;

static tow_value slope(const rates *r, tow_value x)
{
    return tow_add(r->alone, tow_mul(r->together, tow_exp(tow_rev(x, 1, (const int[]){0}))));
}

/* One step of the classical method of order 4. (Kutta, 1901) */
static void step(tow_trace *trace, const tow_value *x, tow_value *y, void *user)
{
    const rates *r = user;
    const double h = 1.0 / YEAR_STEPS;
    (void)trace;
    tow_value k1 = slope(r, *x);
    tow_value k2 = slope(r, tow_add(*x, tow_mul_scalar(k1, h / 2)));
    tow_value k3 = slope(r, tow_add(*x, tow_mul_scalar(k2, h / 2)));
    tow_value k4 = slope(r, tow_add(*x, tow_mul_scalar(k3, h)));
    tow_value middle = tow_mul_scalar(tow_add(k2, k3), 2);
    *y = tow_add(*x, tow_mul_scalar(tow_add(tow_add(k1, middle), k4), h / 6));
}

static void repeat(tow_trace *trace, tow_function body, const rates *r, int64_t length, const tow_value *x,
                   tow_value *y)
{
    const tow_scan_options options =
        TOW_SCAN_OPTIONS(.length = length, .schedule = {.slots = r->regions == SLOTS ? 8 : 0});
    tow_scan_function(trace, body, (void *)r, &options, 1, x, 0, NULL, 0, y, NULL);
}

static void plain_year(tow_trace *trace, const tow_value *x, tow_value *y, void *user)
{
    repeat(trace, step, user, YEAR_STEPS, x, y);
}

static void steps_of_part(tow_trace *trace, const tow_value *x, tow_value *y, void *user)
{
    repeat(trace, step, user, 25, x, y);
}

static void part(tow_trace *trace, const tow_value *x, tow_value *y, void *user)
{
    tow_remat_function(trace, steps_of_part, user, NULL, 1, x, 1, y);
}

static void year_of_parts(tow_trace *trace, const tow_value *x, tow_value *y, void *user)
{
    repeat(trace, part, user, YEAR_STEPS / 25, x, y);
}

/* out: the state, and once more as what the loop over years collects. */
static void year(tow_trace *trace, const tow_value *x, tow_value *out, void *user)
{
    const rates *r = user;
    if (r->regions == NO_REGION || r->regions == SLOTS)
        plain_year(trace, x, out, user);
    else
        tow_remat_function(trace, r->regions == NESTED ? year_of_parts : plain_year, user, NULL, 1, x, 1, out);
    out[1] = out[0];
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* [x[i], -x[j]] */
static tow_value signed_pair(tow_value x, int64_t plus, int64_t minus)
{
    return tow_concatenate(
        2, (const tow_value[]){tow_slice_axis(x, 0, plus, plus + 1), tow_neg(tow_slice_axis(x, 0, minus, minus + 1))},
        0);
}

static rates rates_of(tow_value theta, nesting regions)
{
    tow_value rate = tow_exp(theta), together = signed_pair(rate, 3, 2);
    return (rates){signed_pair(rate, 0, 1), tow_rev(together, 1, (const int[]){0}), regions};
}

void ode_loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    rates r = rates_of(in[0], *(const nesting *)user);
    tow_value first = tow_slice_axis(in[0], 0, 4, 6), last, rest;
    const tow_scan_options options =
        TOW_SCAN_OPTIONS(.length = YEARS, .schedule = {.slots = r.regions == SLOTS ? 4 : 0});
    tow_scan_function(trace, year, &r, &options, 1, &first, 0, NULL, 1, &last, &rest);
    tow_value years = tow_concatenate(2, (const tow_value[]){tow_reshape(first, 2, (const int64_t[]){1, 2}), rest}, 0);
    out[0] = tow_mean(tow_square(tow_sub(years, in[1])), 0, NULL);
}

/* The state, and once more as what the loop collects; then the steps until the next point. */
static void point(tow_trace *trace, const tow_value *x, tow_value *out, void *user)
{
    out[1] = *x;
    repeat(trace, step, user, STEPS / POINTS, x, out);
}

void ode_trajectory(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    rates r = rates_of(in[0], NO_REGION);
    tow_value first = tow_slice_axis(in[0], 0, 4, 6), last;
    (void)user;
    tow_scan_function(trace, point, &r, &TOW_SCAN_OPTIONS(.length = POINTS), 1, &first, 0, NULL, 1, &last, out);
}
