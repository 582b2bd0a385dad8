/* Primitives with a nested graph, and the name tag. Bodies mix linear, nonlinear and constant parts. */
#include <math.h>

#include "tests/property/property.h"

/* ---- name
 * -------------------------------------------------------------------------------------------------------------- */

static const tow__name_params tag = {"hidden"};

static double same(double x) { return x; }

/* ---- call, remat: sin(x y) + x, with y from outside of the body
 * ------------------------------------------------------------- */

static void body(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_value *outer = user;
    (void)trace;
    out[0] = tow_add(tow_sin(tow_mul(in[0], *outer)), in[0]);
}

static void record_call(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow_value y = in[1];
    (void)c;
    tow_call(trace, body, &y, "wave", 1, in, 1, out);
}

/* label is the policy in textual form */
static void record_remat(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow_value y = in[1];
    tow_policy *policy = NULL;
    if (tow_policy_parse(tow_trace_context(trace), c->label, &policy) != TOW_OK) return;
    tow_remat_function(trace, body, &y, policy, 1, in, 1, out);
    tow_policy_free(tow_trace_context(trace), policy);
}

static void wave(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) out[0][i] = sin(in[0][i] * in[1][i]) + in[0][i];
}

/* ---- scan: h <- tanh(w h + x), y = h h
 * ------------------------------------------------------------------------------------------ */

enum {
    WIDTH = 3
};

static void step(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_value *w = user;
    (void)trace;
    out[0] = tow_tanh(tow_add(tow_mul(*w, in[0]), in[1]));
    out[1] = tow_square(out[0]);
}

/* in: w [3], h [3], xs [length, 3]; label "reverse..." turns the loop round */
static void record_scan(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow_value w = in[0];
    const tow_scan_options options = {.reverse = c->label != NULL && c->label[0] == 'r'};
    tow_scan_function(trace, step, &w, &options, 1, &in[1], 1, &in[2], 1, &out[0], &out[1]);
}

static void recurrence(const property_case *c, double *const *in, double *const *out)
{
    const int64_t length = c->in[2].dims[0];
    for (int64_t k = 0; k < WIDTH; k++) out[0][k] = in[1][k];
    for (int64_t n = 0; n < length; n++) {
        const int64_t i = c->label != NULL && c->label[0] == 'r' ? length - 1 - n : n;
        for (int64_t k = 0; k < WIDTH; k++) {
            out[0][k] = tanh(in[0][k] * out[0][k] + in[2][i * WIDTH + k]);
            out[1][i * WIDTH + k] = out[0][k] * out[0][k];
        }
    }
}

/* No xs and no ys: x <- w x, four times, inside a remat region. */
static void multiply(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = tow_mul(in[0], *(const tow_value *)user);
}

static void four_times(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_scan_options options = {.length = 4, .has_length = true};
    tow_scan_function(trace, multiply, user, &options, 1, in, 0, NULL, 0, out, NULL);
}

static void record_power(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow_value w = in[0];
    (void)c;
    tow_remat_function(trace, four_times, &w, NULL, 1, &in[1], 1, out);
}

static void fourth_power(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) out[0][i] = pow(in[0][i], 4) * in[1][i];
}

#define V(n)                                                                                                           \
    {                                                                                                                  \
        .dtype = TOW_F64, S1(n)                                                                                        \
    }
#define REMAT(policy)                                                                                                  \
    {                                                                                                                  \
        .primitive = "remat", .label = policy, .n_in = 2, .build = record_remat, .value = wave, .loose = 2, .in = {    \
            V(5),                                                                                                      \
            V(5)                                                                                                       \
        }                                                                                                              \
    }
#define SCAN(text, length)                                                                                             \
    {                                                                                                                  \
        .primitive = "scan", .label = text, .n_in = 3, .n_out = 2, .build = record_scan, .value = recurrence,          \
        .loose = 4, .in = {                                                                                            \
            V(WIDTH),                                                                                                  \
            V(WIDTH),                                                                                                  \
            {.dtype = TOW_F64, S2(length, WIDTH)}                                                                      \
        }                                                                                                              \
    }

static const property_case cases[] = {
    {.primitive = "name", .params = &tag, .n_in = 1, .unary = same, .in = {V(5)}},
    {.primitive = "call", .n_in = 2, .build = record_call, .value = wave, .loose = 2, .in = {V(5), V(5)}},
    REMAT("nothing"),
    REMAT("everything"),
    REMAT("dots"),
    REMAT("not(nothing)"),
    SCAN(NULL, 4),
    SCAN("reverse", 4),
    SCAN("one step", 1),
    SCAN("no step", 0),
    SCAN("reverse, one step", 1),
    {.primitive = "scan",
     .label = "inputs constant but the weight",
     .n_in = 3,
     .n_out = 2,
     .build = record_scan,
     .value = recurrence,
     .loose = 4,
     .in = {V(WIDTH),
            {.dtype = TOW_F64, S1(WIDTH), .constant = true},
            {.dtype = TOW_F64, S2(3, WIDTH), .constant = true}}},
    {.primitive = "scan",
     .label = "without xs and ys, under remat",
     .n_in = 2,
     .build = record_power,
     .value = fourth_power,
     .loose = 4,
     .in = {V(3), V(3)}},
};

const property_table region_cases = TABLE(cases);
