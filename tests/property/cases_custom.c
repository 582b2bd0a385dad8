/* Calls with rules of their own: rules that are right, written otherwise than differentiation would, so that all checks
 * of other primitives hold for them. */
#include <math.h>

#include "tests/property/property.h"
#include "tow/autodiff.h"

/* ---- y = sin(x w) + x, z = sum of x x; w from outside of all functions in some cases ----------------------------- */

typedef struct outer {
    const tow_value *w; /* NULL: w is the second input */
} outer;

static tow_value weight(const outer *o, const tow_value *in) { return o->w ? *o->w : in[1]; }

static void function(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = tow_add(tow_sin(tow_mul(in[0], weight(user, in))), in[0]);
    out[1] = tow_reduce_sum(tow_square(in[0]), 0, NULL);
}

/* dy = cos(x w) (w dx + x dw) + dx, dz = 2 sum of x dx */
static void rule(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const outer *o = user;
    const size_t n = o->w ? 1 : 2;
    const tow_value *dx = in + n;
    function(trace, in, out, user);
    tow_value inner = tow_mul(weight(o, in), dx[0]);
    if (!o->w && !tow_is_null(dx[1])) inner = tow_add(inner, tow_mul(in[0], dx[1]));
    out[2] = tow_add(tow_mul(tow_cos(tow_mul(in[0], weight(o, in))), inner), dx[0]);
    out[3] = tow_mul_scalar(tow_reduce_sum(tow_mul(in[0], dx[0]), 0, NULL), 2);
}

/* residuals: cos(x w), x */
static void forward(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    function(trace, in, out, user);
    out[2] = tow_cos(tow_mul(in[0], weight(user, in)));
    out[3] = in[0];
    if (!((const outer *)user)->w) out[4] = in[1];
}

/* ct of x = ct of y (cos(x w) w + 1) + 2 x ct of z, ct of w = ct of y cos(x w) x */
static void backward(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const outer *o = user;
    const size_t n = o->w ? 2 : 3;
    const tow_value w = o->w ? *o->w : in[2], y = in[n], z = in[n + 1], scaled = tow_mul(y, in[0]);
    (void)trace;
    out[0] = tow_add(tow_add(tow_mul(scaled, w), y), tow_mul_scalar(tow_mul(in[1], z), 2));
    if (!o->w) out[1] = tow_mul(scaled, in[1]);
}

static void wave(const property_case *c, double *const *in, double *const *out)
{
    out[1][0] = 0;
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) {
        out[0][i] = sin(in[0][i] * in[1][i]) + in[0][i];
        out[1][0] += in[0][i] * in[0][i];
    }
}

static void record_jvp(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    static const tow_custom_options options = TOW_CUSTOM_OPTIONS(.name = "wave");
    outer o = {c->label ? &in[1] : NULL};
    tow_custom_jvp_function(trace, function, rule, &o, &options, c->label ? 1 : 2, in, 2, out);
}

static void record_vjp(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    static const tow_custom_options options = TOW_CUSTOM_OPTIONS(.name = "wave");
    outer o = {c->label ? &in[1] : NULL};
    tow_custom_vjp_function(trace, function, forward, backward, &o, &options, c->label ? 1 : 2, in, c->label ? 2 : 3, 2,
                            out);
}

/* ---- rows of a product: x [3, 2], w [2, 2], inside a loop under remat -------------------------------------------- */

static void product(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_tanh(tow_matmul(in[0], in[1]));
}

/* residuals: x, w, y */
static void product_forward(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    product(trace, in, out, user);
    out[1] = in[0];
    out[2] = in[1];
    out[3] = tow_checkpoint_name(out[0], "y");
}

static void product_backward(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const int swap[] = {1, 0};
    tow_value ct = tow_mul(in[3], tow_add_scalar(tow_neg(tow_square(in[2])), 1));
    (void)trace, (void)user;
    out[0] = tow_matmul(ct, tow_transpose(in[1], 2, swap));
    out[1] = tow_matmul(tow_transpose(in[0], 2, swap), ct);
}

static void iteration(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_value operands[] = {in[0], *(const tow_value *)user};
    tow_custom_vjp_function(trace, product, product_forward, product_backward, NULL, NULL, 2, operands, 3, 1, out);
}

static void twice(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = 2, .has_length = true);
    tow_scan_function(trace, iteration, user, &options, 1, in, 0, NULL, 0, out, NULL);
}

static void record_loop(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    tow_value w = in[1];
    (void)c;
    tow_remat_function(trace, twice, &w, NULL, 1, in, 1, out);
}

static void recurrence(const property_case *c, double *const *in, double *const *out)
{
    double x[6], y[6];
    (void)c;
    for (int i = 0; i < 6; i++) x[i] = in[0][i];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 2; j++) y[2 * i + j] = tanh(x[2 * i] * in[1][j] + x[2 * i + 1] * in[1][2 + j]);
        for (int i = 0; i < 6; i++) x[i] = y[i];
    }
    for (int i = 0; i < 6; i++) out[0][i] = x[i];
}

/* ---- a rule that calls its own function: exp x, with dy = y dx and y = f(x) -------------------------------------- */

static void exponential(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_exp(in[0]);
}

static void recursive_jvp(tow_trace *trace, const tow_value *in, tow_value *out, void *user);

static void recursive_rule(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    recursive_jvp(trace, in, out, user);
    out[1] = tow_mul(out[0], in[1]);
}

static void recursive_jvp(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_custom_jvp_function(trace, exponential, recursive_rule, user, NULL, 1, in, 1, out);
}

static void record_recursive_jvp(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    (void)c;
    recursive_jvp(trace, in, out, NULL);
}

static void exponentials(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) out[0][i] = exp(in[0][i]);
}

#define V(n)                                                                                                           \
    {                                                                                                                  \
        .dtype = TOW_F64, S1(n)                                                                                        \
    }
#define CONSTANT(n)                                                                                                    \
    {                                                                                                                  \
        .dtype = TOW_F64, S1(n), .constant = true                                                                      \
    }
#define JVP(text, w)                                                                                                   \
    {                                                                                                                  \
        .primitive = "custom_jvp", .label = text, .n_in = 2, .n_out = 2, .build = record_jvp, .value = wave,           \
        .loose = 2, .in = {                                                                                            \
            V(5),                                                                                                      \
            w                                                                                                          \
        }                                                                                                              \
    }
#define VJP(text, w)                                                                                                   \
    {                                                                                                                  \
        .primitive = "custom_vjp", .label = text, .n_in = 2, .n_out = 2, .build = record_vjp, .value = wave,           \
        .reverse_only = true, .loose = 2, .in = {                                                                      \
            V(5),                                                                                                      \
            w                                                                                                          \
        }                                                                                                              \
    }

static const property_case cases[] = {
    JVP(NULL, V(5)),
    JVP("one weight from outside", CONSTANT(5)),
    VJP(NULL, V(5)),
    VJP("one weight from outside", CONSTANT(5)),
    {.primitive = "custom_self",
     .n_in = 1,
     .build = record_recursive_jvp,
     .value = exponentials,
     .loose = 2,
     .in = {V(5)}},
    {.primitive = "custom_vjp",
     .label = "in a loop under remat",
     .n_in = 2,
     .build = record_loop,
     .value = recurrence,
     .reverse_only = true,
     .loose = 4,
     .in = {{TOW_F64, S2(3, 2)}, {TOW_F64, S2(2, 2)}}},
};

const property_table custom_cases = TABLE(cases);
