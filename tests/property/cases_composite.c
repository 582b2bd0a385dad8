/* Composites: softmax and its relatives, norms, attention, cross-entropy. References are the textbook formulas.
 * Tests ops/attention/attention.c, ops/losses/cross_entropy.c, ops/random/dropout.c, ops/losses/linear_cross_entropy.c,
 * ops/norms/norm.c, ops/norms/softmax.c. Tests ops/quantized/dynamic.c. */
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

/* ---- attention: q [B, T, H, D], k [B, S, G, D], v [B, S, G, E] [, mask] [, bias], both [B|1, H|1, T|1, S|1] [, offset
 * [] or [B]] ----------------------------------------- */

/* Element (b, h, t, s) of what broadcasts to the logits. */
static double broadcast_element(const property_input *o, const double *x, int64_t b, int64_t h, int64_t t, int64_t s)
{
    const int64_t *m = o->dims;
    int64_t row = ((m[0] == 1 ? 0 : b) * m[1] + (m[1] == 1 ? 0 : h)) * m[2] + (m[2] == 1 ? 0 : t);
    return x[row * m[3] + (m[3] == 1 ? 0 : s)];
}

/* The logit of key s for query t of head h: (scale q.k), capped, and the bias; the lowest number where the key is
 * hidden. */
static double logit_of(const property_case *c, double *const *in, int64_t b, int64_t h, int64_t t, int64_t s)
{
    const tow__attention_params *p = c->params;
    const int64_t T = c->in[0].dims[1], H = c->in[0].dims[2], D = c->in[0].dims[3], S = c->in[1].dims[1],
                  G = c->in[1].dims[2];
    double logit = 0, bias = 0, position = (double)(t + S - T);
    bool visible = true;
    for (size_t i = 3; i < c->n_in; i++) {
        const property_input *o = &c->in[i];
        if (o->dtype == TOW_BOOL) visible = broadcast_element(o, in[i], b, h, t, s) != 0;
        if (o->dtype == TOW_I32) position = (double)t + in[i][o->rank > 0 ? b : 0];
        if (o->dtype == TOW_F64) bias = broadcast_element(o, in[i], b, h, t, s);
    }
    if (p->causal && (double)s > position) visible = false;
    if (p->window > 0 && fabs(position - (double)s) >= (double)p->window) visible = false;
    for (int64_t d = 0; d < D; d++)
        logit += p->scale * in[0][((b * T + t) * H + h) * D + d] * in[1][((b * S + s) * G + h / (H / G)) * D + d];
    if (p->cap > 0) logit = p->cap * tanh(logit / p->cap);
    return visible ? logit + bias : -DBL_MAX; /* a row without any visible key is uniform */
}

void property_attention(const property_case *c, double *const *in, double *const *out)
{
    const int64_t T = c->in[0].dims[1], H = c->in[0].dims[2], S = c->in[1].dims[1], G = c->in[1].dims[2],
                  E = c->in[2].dims[3];
    for (int64_t b = 0; b < c->in[0].dims[0]; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t t = 0; t < T; t++) {
                double logits[16], most = -INFINITY, sum = 0; /* S <= 16 in all cases */
                for (int64_t s = 0; s < S; s++) most = fmax(most, logits[s] = logit_of(c, in, b, h, t, s));
                for (int64_t s = 0; s < S; s++) sum += exp(logits[s] - most);
                out[1][(b * H + h) * T + t] = most + log(sum);
                for (int64_t e = 0; e < E; e++) {
                    double y = 0;
                    for (int64_t s = 0; s < S; s++)
                        y += exp(logits[s] - most) / sum * in[2][((b * S + s) * G + h / (H / G)) * E + e];
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

/* ---- 8 bits with a map ------------------------------------------------------------------------------------------ */

/* The numbers of a map in ascending order, with an exponent of ten and the middles of equal parts of [0.1, 1]. */
static void dynamic_map(bool nonnegative, double *map)
{
    int n = 0;
    map[n++] = 0;
    map[n++] = 1;
    for (int i = 0; i < 7; i++)
        for (int parts = 1 << (i + nonnegative), k = 0; k < parts; k++) {
            const double x = pow(10, i - 6) * (0.1 + 0.9 * (2 * k + 1) / (2.0 * parts));
            map[n++] = (double)(float)x;
            if (!nonnegative) map[n++] = -(double)(float)x;
        }
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && map[k] < map[k - 1]; k--) {
            const double x = map[k];
            map[k] = map[k - 1];
            map[k - 1] = x;
        }
}

/* x [..., n] -> codes [..., n], sizes [...] */
static void quantize_dynamic(const property_case *c, double *const *in, double *const *out)
{
    const property_axis a = property_axis_of(&c->in[0], c->in[0].rank - 1);
    double map[256];
    dynamic_map(((const tow__dynamic_params *)c->params)->nonnegative, map);
    for (int64_t r = 0; r < a.before; r++) {
        const double *x = in[0] + r * a.size;
        double size = 0;
        for (int64_t i = 0; i < a.size; i++) size = fmax(size, fabs(x[i]));
        for (int64_t i = 0; i < a.size; i++) {
            int nearest = 0;
            const double share = size == 0 ? 0 : x[i] / size;
            for (int k = 1; k < 256; k++)
                if (fabs(map[k] - share) < fabs(map[nearest] - share)) nearest = k;
            out[0][r * a.size + i] = map[nearest] == 0 && map[0] == 0 && share > 0 ? nearest + 1 : nearest;
        }
        out[1][r] = size;
    }
}

/* codes [..., n], sizes [...] -> x [..., n] */
static void dequantize_dynamic(const property_case *c, double *const *in, double *const *out)
{
    const property_axis a = property_axis_of(&c->in[0], c->in[0].rank - 1);
    double map[256];
    dynamic_map(((const tow__dynamic_params *)c->params)->nonnegative, map);
    for (int64_t i = 0; i < a.before * a.size; i++)
        out[0][i] = (double)((float)map[(int)in[0][i]] * (float)in[1][i / a.size]);
}

static const tow__dynamic_params any_sign = {false}, no_negatives = {true};

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

/* The statistics of one tile: the greatest logit, the sum of exp(logit - greatest), that of the label. */
static void parts_of_loss(const property_case *c, double *const *in, double *const *out)
{
    const int64_t depth = c->in[0].dims[1], classes = c->in[1].dims[0];
    for (int64_t i = 0; i < c->in[0].dims[0]; i++) {
        double logits[8], *part = out[0] + 3 * i;
        part[0] = -(double)INFINITY, part[1] = 0, part[2] = (double)NAN;
        for (int64_t v = 0; v < classes; v++) {
            logits[v] = 0;
            for (int64_t d = 0; d < depth; d++) logits[v] += in[0][i * depth + d] * in[1][v * depth + d];
            part[0] = fmax(part[0], logits[v]);
            if (v == (int64_t)in[2][i]) part[2] = logits[v];
        }
        for (int64_t v = 0; v < classes; v++) part[1] += exp(logits[v] - part[0]);
    }
}

/* parts [n, 2, 3], of tiles of 512 classes */
static void join_of_loss(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < c->in[0].dims[0]; i++) {
        const double *part = in[0] + 6 * i, label = in[1][i];
        out[1][i] = log(part[1] * exp(part[0]) + part[4] * exp(part[3]));
        out[0][i] = label < 0 || label >= 1024 ? (double)NAN : out[1][i] - part[label < 512 ? 2 : 5];
    }
}

static const tow__linear_cross_entropy_parts_params part_of_table = {true, 1000};
static const tow__linear_cross_entropy_params columns_of_w = {false}, rows_of_w = {true};
static const tow__axis_params last = {2}, middle = {1}, only = {0};
static const tow__norm_params small = {1e-6}, large = {0.1};
static const tow__attention_params plain = {.scale = 0.5}, causal = {.causal = true, .scale = 0.5},
                                   causal_scaled = {.causal = true, .scale = 2}, near = {.scale = 0.5, .window = 2},
                                   causal_near = {.causal = true, .scale = 0.5, .window = 2},
                                   capped = {.scale = 1, .cap = 0.75},
                                   all_of_them = {.causal = true, .scale = 1, .cap = 1.5, .window = 3};

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
#define FURTHER(text, p, inputs, ...)                                                                                  \
    {                                                                                                                  \
        .primitive = "attention", .label = text, .params = &p, .n_in = inputs, .n_out = 2, .first_only = true,         \
        .value = property_attention, .loose = 8, .in = {                                                               \
            {F, S4(2, 3, 4, 4)},                                                                                       \
            {F, S4(2, 5, 2, 4)},                                                                                       \
            {F, S4(2, 5, 2, 3)},                                                                                       \
            __VA_ARGS__                                                                                                \
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
    MASKED("a window and a mask, some rows empty", near, S4(1, 4, 3, 5)),
    ATTENTION("a window to both sides", near, 4, 5, 2, 1, .first_only = true),
    ATTENTION("a window, both results", causal_near, 3, 5, 2, 2, .first_only = false),
    ATTENTION("a window, more queries than keys", causal_near, 5, 3, 2, 2, .first_only = true),
    ATTENTION("a cap", capped, 3, 4, 2, 1, .first_only = true),
    ATTENTION("a cap, both results", capped, 2, 3, 2, 2, .first_only = false),
    FURTHER("a bias", plain, 4, {F, S4(2, 4, 3, 5)}),
    FURTHER("a bias for each head and a cap", capped, 4, {F, S4(1, 4, 1, 5)}),
    FURTHER("a constant bias", all_of_them, 4, {F, S4(2, 1, 3, 1), .constant = true}),
    FURTHER("an offset", causal, 4, {.dtype = TOW_I32, .rank = 0, .low = -1, .high = 3}),
    FURTHER("an offset of each sequence, a window to both sides", near, 4,
            {.dtype = TOW_I32, S1(2), .low = -2, .high = 4}),
    FURTHER("all of them", all_of_them, 6, {.dtype = TOW_BOOL, S4(2, 1, 3, 5)}, {F, S4(1, 4, 3, 5)},
            {.dtype = TOW_I32, S1(2), .low = 0, .high = 4}),
    FURTHER("all of them, the bias constant", all_of_them, 6, {.dtype = TOW_BOOL, S4(2, 1, 3, 5)},
            {F, S4(1, 4, 3, 5), .constant = true}, {.dtype = TOW_I32, S1(2), .low = 0, .high = 4}),
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
    {.primitive = "linear_cross_entropy_parts",
     .params = &part_of_table,
     .n_in = 3,
     .value = parts_of_loss,
     .in = {{F, S2(3, 4)}, {F, S2(5, 4)}, {.dtype = TOW_I32, S1(3), .low = 0, .high = 4}},
     .loose = 8},
    {.primitive = "linear_cross_entropy_parts",
     .label = "labels outside",
     .params = &part_of_table,
     .n_in = 3,
     .value = parts_of_loss,
     .in = {{F, S2(3, 4)}, {F, S2(5, 4)}, {.dtype = TOW_I32, S1(3), .low = -600, .high = 600}},
     .no_derivative = true,
     .loose = 8},
    {.primitive = "linear_cross_entropy_join",
     .n_in = 2,
     .n_out = 2,
     .value = join_of_loss,
     .in = {{F, S3(3, 2, 3), .low = 0.5, .high = 2}, {.dtype = TOW_I32, S1(3), .low = 0, .high = 1023}},
     .loose = 8},
    {.primitive = "linear_cross_entropy_join",
     .label = "labels outside",
     .n_in = 2,
     .n_out = 2,
     .value = join_of_loss,
     .in = {{F, S3(5, 2, 3), .low = 0.5, .high = 2}, {.dtype = TOW_I32, S1(5), .low = -1024, .high = 2048}},
     .no_derivative = true,
     .loose = 8},
    {.primitive = "quantize_dynamic",
     .params = &any_sign,
     .n_in = 1,
     .n_out = 2,
     .value = quantize_dynamic,
     .no_derivative = true,
     .in = {{.dtype = TOW_F32, S3(2, 3, 40), .low = -3, .high = 3}}},
    {.primitive = "quantize_dynamic",
     .label = "no negative numbers",
     .params = &no_negatives,
     .n_in = 1,
     .n_out = 2,
     .value = quantize_dynamic,
     .no_derivative = true,
     .in = {{.dtype = TOW_F32, S2(3, 256), .low = 0, .high = 2}}},
    {.primitive = "quantize_dynamic",
     .label = "zeros",
     .params = &any_sign,
     .n_in = 1,
     .n_out = 2,
     .value = quantize_dynamic,
     .no_derivative = true,
     .in = {{.dtype = TOW_F32, S2(2, 5), .low = 0, .high = 0}}},
    {.primitive = "dequantize_dynamic",
     .params = &any_sign,
     .n_in = 2,
     .n_out = 1,
     .value = dequantize_dynamic,
     .loose = 4,
     .no_derivative = true,
     .in = {{.dtype = TOW_U8, S3(2, 3, 40), .low = 0, .high = 255}, {.dtype = TOW_F32, S2(2, 3), .low = 0, .high = 3}}},
    {.primitive = "dequantize_dynamic",
     .label = "no negative numbers",
     .params = &no_negatives,
     .n_in = 2,
     .n_out = 1,
     .value = dequantize_dynamic,
     .loose = 4,
     .no_derivative = true,
     .in = {{.dtype = TOW_U8, S2(3, 256), .low = 0, .high = 255}, {.dtype = TOW_F32, S1(3), .low = 0, .high = 3}}},
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
