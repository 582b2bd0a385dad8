/* Composites: softmax and its relatives, norms, attention, cross-entropy. References are the textbook formulas. */
#include <float.h>
#include <math.h>

#include "tests/property/property.h"

/* ---- softmax, log_softmax, logsumexp along one axis
 * -------------------------------------------------------------------------- */

static double log_sum_exp(const double *x, const property_axis *a, int64_t i, int64_t k)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->size; j++) most = fmax(most, x[(i * a->size + j) * a->after + k]);
    for (int64_t j = 0; j < a->size; j++) sum += exp(x[(i * a->size + j) * a->after + k] - most);
    return most + log(sum);
}

static void along_axis(const property_case *c, const double *x, double *y, bool logarithm)
{
    const property_axis a = property_axis_of(&c->in[0], ((const tow__axis_params *)c->params)->axis);
    for (int64_t i = 0; i < a.before; i++)
        for (int64_t k = 0; k < a.after; k++) {
            const double lse = log_sum_exp(x, &a, i, k);
            for (int64_t j = 0; j < a.size; j++) {
                const int64_t at = (i * a.size + j) * a.after + k;
                y[at] = logarithm ? x[at] - lse : exp(x[at] - lse);
            }
        }
}

static void softmax(const property_case *c, double *const *in, double *const *out)
{
    along_axis(c, in[0], out[0], false);
}
static void log_softmax(const property_case *c, double *const *in, double *const *out)
{
    along_axis(c, in[0], out[0], true);
}
static void logsumexp(const property_case *c, double *const *in, double *const *out)
{
    const property_axis a = property_axis_of(&c->in[0], ((const tow__axis_params *)c->params)->axis);
    for (int64_t i = 0; i < a.before; i++)
        for (int64_t k = 0; k < a.after; k++) out[0][i * a.after + k] = log_sum_exp(in[0], &a, i, k);
}

/* ---- norms over the last axis
 * ---------------------------------------------------------------------------------------------------- */

void property_layer_norm(const property_case *c, double *const *in, double *const *out)
{
    const double epsilon = ((const tow__norm_params *)c->params)->epsilon;
    const property_axis a = property_axis_of(&c->in[0], c->in[0].rank - 1);
    for (int64_t i = 0; i < a.before; i++) {
        const double *x = in[0] + i * a.size;
        double mean = 0, variance = 0;
        for (int64_t j = 0; j < a.size; j++) mean += x[j] / (double)a.size;
        for (int64_t j = 0; j < a.size; j++) variance += (x[j] - mean) * (x[j] - mean) / (double)a.size;
        out[1][i] = mean;
        out[2][i] = 1 / sqrt(variance + epsilon);
        for (int64_t j = 0; j < a.size; j++) out[0][i * a.size + j] = (x[j] - mean) * out[2][i] * in[1][j] + in[2][j];
    }
}

void property_rms_norm(const property_case *c, double *const *in, double *const *out)
{
    const double epsilon = ((const tow__norm_params *)c->params)->epsilon;
    const property_axis a = property_axis_of(&c->in[0], c->in[0].rank - 1);
    for (int64_t i = 0; i < a.before; i++) {
        const double *x = in[0] + i * a.size;
        double square = 0;
        for (int64_t j = 0; j < a.size; j++) square += x[j] * x[j] / (double)a.size;
        out[1][i] = 1 / sqrt(square + epsilon);
        for (int64_t j = 0; j < a.size; j++) out[0][i * a.size + j] = x[j] * out[1][i] * in[1][j];
    }
}

/* ---- attention: q [B, T, H, D], k [B, S, G, D], v [B, S, G, E] [, mask [B|1, H|1, T|1, S|1]]
 * ----------------------------------------- */

void property_attention(const property_case *c, double *const *in, double *const *out)
{
    const tow__attention_params *p = c->params;
    const int64_t *q = c->in[0].dims, *k = c->in[1].dims, *m = c->in[3].dims;
    const int64_t T = q[1], H = q[2], D = q[3], S = k[1], G = k[2], E = c->in[2].dims[3];
    const double scale = p->scale;
    for (int64_t b = 0; b < q[0]; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t t = 0; t < T; t++) {
                const int64_t g = h / (H / G);
                double logits[16], most = -INFINITY, sum = 0; /* S <= 16 in all cases */
                for (int64_t s = 0; s < S; s++) {
                    bool visible = !p->causal || s <= t + S - T;
                    if (c->n_in == 4)
                        visible =
                            visible &&
                            in[3][(((m[0] == 1 ? 0 : b) * m[1] + (m[1] == 1 ? 0 : h)) * m[2] + (m[2] == 1 ? 0 : t)) *
                                      m[3] +
                                  (m[3] == 1 ? 0 : s)] != 0;
                    logits[s] = visible ? 0 : -DBL_MAX; /* a row without any visible key is uniform */
                    for (int64_t d = 0; visible && d < D; d++)
                        logits[s] +=
                            scale * in[0][((b * T + t) * H + h) * D + d] * in[1][((b * S + s) * G + g) * D + d];
                    most = fmax(most, logits[s]);
                }
                for (int64_t s = 0; s < S; s++) sum += exp(logits[s] - most);
                out[1][(b * H + h) * T + t] = most + log(sum);
                for (int64_t e = 0; e < E; e++) {
                    double y = 0;
                    for (int64_t s = 0; s < S; s++)
                        y += exp(logits[s] - most) / sum * in[2][((b * S + s) * G + g) * E + e];
                    out[0][((b * T + t) * H + h) * E + e] = y;
                }
            }
}

/* ---- cross-entropy of integer labels
 * --------------------------------------------------------------------------------------------------- */

void property_cross_entropy(const property_case *c, double *const *in, double *const *out)
{
    const property_axis a = property_axis_of(&c->in[0], c->in[0].rank - 1);
    for (int64_t i = 0; i < a.before; i++) {
        const int64_t label = (int64_t)in[1][i];
        out[1][i] = log_sum_exp(in[0], &a, i, 0);
        out[0][i] = label < 0 || label >= a.size ? (double)NAN : out[1][i] - in[0][i * a.size + label];
    }
}

/* x [n, C], w [C, V] or [V, C], labels [n] */
void property_linear_cross_entropy(const property_case *c, double *const *in, double *const *out)
{
    const bool rows = ((const tow__linear_cross_entropy_params *)c->params)->rows;
    const int64_t depth = c->in[0].dims[1], classes = c->in[1].dims[rows ? 0 : 1];
    for (int64_t i = 0; i < c->in[0].dims[0]; i++) {
        const int64_t label = (int64_t)in[2][i];
        double sum = 0, picked = (double)NAN;
        for (int64_t v = 0; v < classes; v++) {
            double logit = 0;
            for (int64_t d = 0; d < depth; d++)
                logit += in[0][i * depth + d] * in[1][rows ? v * depth + d : d * classes + v];
            sum += exp(logit);
            if (v == label) picked = logit;
        }
        out[1][i] = log(sum);
        out[0][i] = out[1][i] - picked;
    }
}

static const tow__linear_cross_entropy_params columns_of_w = {false}, rows_of_w = {true};
static const tow__axis_params last = {2}, middle = {1}, only = {0};
static const tow__norm_params small = {1e-6}, large = {0.1};
static const tow__attention_params plain = {.scale = 0.5}, causal = {.causal = true, .scale = 0.5},
                                   causal_scaled = {.causal = true, .scale = 2};

#define F .dtype = TOW_F64
#define CUBE                                                                                                           \
    {                                                                                                                  \
        F, S3(2, 3, 4), .low = -3, .high = 3                                                                           \
    }
#define AXIS(name, function)                                                                                           \
    {.primitive = name,                                                                                                \
     .label = "last axis",                                                                                             \
     .params = &last,                                                                                                  \
     .n_in = 1,                                                                                                        \
     .value = function,                                                                                                \
     .in = {CUBE},                                                                                                     \
     .loose = 4},                                                                                                      \
        {.primitive = name,                                                                                            \
         .label = "middle axis",                                                                                       \
         .params = &middle,                                                                                            \
         .n_in = 1,                                                                                                    \
         .value = function,                                                                                            \
         .in = {CUBE},                                                                                                 \
         .loose = 4},                                                                                                  \
    {                                                                                                                  \
        .primitive = name, .label = "far apart", .params = &only, .n_in = 1, .value = function, .no_derivative = true, \
        .in = {{F, S1(7), .low = -300, .high = 300}}, .loose = 4                                                       \
    }
#define NORM(name, text, p, inputs, outputs, function, ...)                                                            \
    {                                                                                                                  \
        .primitive = name, .label = text, .params = &p, .n_in = inputs, .n_out = outputs, .value = function,           \
        .loose = 8, __VA_ARGS__                                                                                        \
    }
#define ATTENTION(text, p, T, S, H, G, ...)                                                                            \
    {                                                                                                                  \
        .primitive = "attention", .label = text, .params = &p, .n_in = 3, .n_out = 2, .value = property_attention,     \
        .loose = 8, .in = {{F, S4(2, T, H, 4)}, {F, S4(2, S, G, 4)}, {F, S4(2, S, G, 3)}}, __VA_ARGS__                 \
    }
#define MASKED(text, p, ...)                                                                                           \
    {                                                                                                                  \
        .primitive = "attention", .label = text, .params = &p, .n_in = 4, .n_out = 2, .value = property_attention,     \
        .loose = 8, .first_only = true, .in = {                                                                        \
            {F, S4(2, 3, 4, 4)},                                                                                       \
            {F, S4(2, 5, 2, 4)},                                                                                       \
            {F, S4(2, 5, 2, 3)},                                                                                       \
            {.dtype = TOW_BOOL, __VA_ARGS__}                                                                           \
        }                                                                                                              \
    }
#define ROWS                                                                                                           \
    {                                                                                                                  \
        F, S3(2, 3, 5), .low = -2, .high = 3                                                                           \
    }
#define COLUMNS                                                                                                        \
    {                                                                                                                  \
        F, S1(5), .low = 0.5, .high = 2                                                                                \
    }

static const property_case cases[] = {
    AXIS("softmax", softmax),
    AXIS("log_softmax", log_softmax),
    AXIS("logsumexp", logsumexp),
    NORM("layer_norm", "all results", small, 3, 3, property_layer_norm, .in = {ROWS, COLUMNS, COLUMNS}),
    NORM("layer_norm", "y only", small, 3, 3, property_layer_norm, .in = {ROWS, COLUMNS, COLUMNS}, .first_only = true),
    NORM("layer_norm", "x only differentiated", large, 3, 3, property_layer_norm, .first_only = true,
         .in = {ROWS, {F, S1(5), .constant = true}, {F, S1(5), .constant = true}}),
    NORM("rms_norm", "all results", small, 2, 2, property_rms_norm, .in = {ROWS, COLUMNS}),
    NORM("rms_norm", "y only", large, 2, 2, property_rms_norm, .in = {ROWS, COLUMNS}, .first_only = true),
    ATTENTION("both results", plain, 3, 5, 2, 2, .first_only = false),
    ATTENTION("out only", plain, 3, 5, 2, 2, .first_only = true),
    ATTENTION("causal", causal, 4, 4, 2, 2, .first_only = true),
    ATTENTION("causal, more keys than queries", causal, 3, 5, 2, 2, .first_only = true),
    ATTENTION("grouped heads", plain, 3, 4, 4, 2, .first_only = true),
    ATTENTION("causal, one group, another scale", causal_scaled, 4, 4, 3, 1, .first_only = true),
    MASKED("full mask, some rows empty", plain, S4(2, 4, 3, 5)),
    MASKED("mask per key", plain, S4(2, 1, 1, 5)),
    MASKED("causal and mask per query", causal, S4(1, 4, 3, 1)),
    {.primitive = "linear_cross_entropy",
     .label = "both results",
     .params = &columns_of_w,
     .n_in = 3,
     .n_out = 2,
     .value = property_linear_cross_entropy,
     .in = {{F, S2(3, 4)}, {F, S2(4, 5)}, {.dtype = TOW_I32, S1(3), .low = 0, .high = 4}},
     .loose = 8},
    {.primitive = "linear_cross_entropy",
     .label = "loss only, rows of a table",
     .params = &rows_of_w,
     .n_in = 3,
     .n_out = 2,
     .value = property_linear_cross_entropy,
     .in = {{F, S2(3, 4)}, {F, S2(5, 4)}, {.dtype = TOW_I32, S1(3), .low = 0, .high = 4}},
     .first_only = true,
     .loose = 8},
    {.primitive = "linear_cross_entropy",
     .label = "labels outside",
     .params = &columns_of_w,
     .n_in = 3,
     .n_out = 2,
     .value = property_linear_cross_entropy,
     .in = {{F, S2(3, 4)}, {F, S2(4, 2)}, {.dtype = TOW_I32, S1(3), .low = -3, .high = 5}},
     .no_derivative = true,
     .loose = 8},
    {.primitive = "softmax_cross_entropy",
     .label = "both results",
     .n_in = 2,
     .n_out = 2,
     .value = property_cross_entropy,
     .loose = 4,
     .in = {{F, S3(2, 3, 7), .low = -3, .high = 3}, {.dtype = TOW_I32, S2(2, 3), .low = 0, .high = 6}}},
    {.primitive = "softmax_cross_entropy",
     .label = "loss only",
     .n_in = 2,
     .n_out = 2,
     .value = property_cross_entropy,
     .loose = 4,
     .first_only = true,
     .in = {{F, S2(4, 7), .low = -3, .high = 3}, {.dtype = TOW_I32, S1(4), .low = 0, .high = 6}}},
    {.primitive = "softmax_cross_entropy",
     .label = "labels outside",
     .n_in = 2,
     .n_out = 2,
     .value = property_cross_entropy,
     .loose = 4,
     .no_derivative = true,
     .in = {{F, S2(2, 3)}, {.dtype = TOW_I32, S1(2), .low = 3, .high = 4}}},
};

const property_table composite_cases = TABLE(cases);
