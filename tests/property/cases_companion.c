/* Companions of composites: NAME_jvp is linear in the tangents, NAME_vjp is its transpose. Their references
 * differentiate the reference of the composite numerically, and the residuals among their operands are computed by it
 * from the others.
 *
 *   operands   the composite's float operands, its residuals (and labels or mask, in the composite's own places),
 *              then the tangents of the operands that are differentiated (jvp) or the cotangent (vjp) */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/property/property.h"

enum {
    ROOM = 512, /* elements of any array here */
    MOST = 6    /* operands of a composite */
};

/* The way in which a companion's operands relate to those of the composite. */
typedef struct relation {
    property_case forward; /* the composite: shapes, params, reference */
    int place[MOST]; /* operand of the companion that is operand i of the composite; -1: the composite's is all zeros */
    int residual[3]; /* operand of the companion that is output i of the composite; -1: none */
    size_t n_wrt;
    int wrt[3];   /* operands of the composite that are differentiated */
    int tangents; /* place of the first tangent, or of the cotangent */
} relation;

#define F .dtype = TOW_F64
static const tow__norm_params norm = {0.01};
static const tow__attention_params plain = {.scale = 0.7}, causal = {.causal = true, .scale = 0.7},
                                   everything = {.causal = true, .scale = 0.7, .cap = 1.25, .window = 2};

static const relation layer_norm = {.forward = {.params = &norm,
                                                .n_in = 3,
                                                .n_out = 3,
                                                .value = property_layer_norm,
                                                .in = {{F, S2(2, 5)}, {F, S1(5)}, {F, S1(5)}}},
                                    .place = {0, 1, -1},
                                    .residual = {-1, 2, 3},
                                    .n_wrt = 3,
                                    .wrt = {0, 1, 2},
                                    .tangents = 4};
static const relation layer_norm_x = {.forward = {.params = &norm,
                                                  .n_in = 3,
                                                  .n_out = 3,
                                                  .value = property_layer_norm,
                                                  .in = {{F, S2(2, 5)}, {F, S1(5)}, {F, S1(5)}}},
                                      .place = {0, 1, -1},
                                      .residual = {-1, 2, 3},
                                      .n_wrt = 1,
                                      .wrt = {0},
                                      .tangents = 4};
static const relation layer_norm_scale = {.forward = {.params = &norm,
                                                      .n_in = 3,
                                                      .n_out = 3,
                                                      .value = property_layer_norm,
                                                      .in = {{F, S2(2, 5)}, {F, S1(5)}, {F, S1(5)}}},
                                          .place = {0, 1, -1},
                                          .residual = {-1, 2, 3},
                                          .n_wrt = 2,
                                          .wrt = {1, 2},
                                          .tangents = 4};
static const relation rms_norm_scale = {
    .forward = {.params = &norm, .n_in = 2, .n_out = 2, .value = property_rms_norm, .in = {{F, S2(2, 5)}, {F, S1(5)}}},
    .place = {0, 1},
    .residual = {-1, 2},
    .n_wrt = 1,
    .wrt = {1},
    .tangents = 3};
static const relation rms_norm = {
    .forward = {.params = &norm, .n_in = 2, .n_out = 2, .value = property_rms_norm, .in = {{F, S2(2, 5)}, {F, S1(5)}}},
    .place = {0, 1},
    .residual = {-1, 2},
    .n_wrt = 2,
    .wrt = {0, 1},
    .tangents = 3};
static const relation rms_norm_x = {
    .forward = {.params = &norm, .n_in = 2, .n_out = 2, .value = property_rms_norm, .in = {{F, S2(2, 5)}, {F, S1(5)}}},
    .place = {0, 1},
    .residual = {-1, 2},
    .n_wrt = 1,
    .wrt = {0},
    .tangents = 3};
static const relation norm_of_vector = {.forward = {.params = &norm,
                                                    .n_in = 3,
                                                    .n_out = 3,
                                                    .value = property_layer_norm,
                                                    .in = {{F, S1(5)}, {F, S1(5)}, {F, S1(5)}}},
                                        .place = {0, 1, -1},
                                        .residual = {-1, 2, 3},
                                        .n_wrt = 3,
                                        .wrt = {0, 1, 2},
                                        .tangents = 4};
static const relation rms_of_vector = {
    .forward = {.params = &norm, .n_in = 2, .n_out = 2, .value = property_rms_norm, .in = {{F, S1(5)}, {F, S1(5)}}},
    .place = {0, 1},
    .residual = {-1, 2},
    .n_wrt = 2,
    .wrt = {0, 1},
    .tangents = 3};
static const relation attention = {.forward = {.params = &causal,
                                               .n_in = 3,
                                               .n_out = 2,
                                               .value = property_attention,
                                               .in = {{F, S4(2, 3, 4, 2)}, {F, S4(2, 3, 2, 2)}, {F, S4(2, 3, 2, 3)}}},
                                   .place = {0, 1, 2},
                                   .residual = {3, 4},
                                   .n_wrt = 3,
                                   .wrt = {0, 1, 2},
                                   .tangents = 5};
static const relation attention_masked = {.forward = {.params = &plain,
                                                      .n_in = 4,
                                                      .n_out = 2,
                                                      .value = property_attention,
                                                      .in = {{F, S4(2, 3, 2, 2)},
                                                             {F, S4(2, 4, 2, 2)},
                                                             {F, S4(2, 4, 2, 3)},
                                                             {.dtype = TOW_BOOL, S4(1, 2, 3, 4)}}},
                                          .place = {0, 1, 2, 5},
                                          .residual = {3, 4},
                                          .n_wrt = 2,
                                          .wrt = {0, 2},
                                          .tangents = 6};
static const relation attention_further = {.forward = {.params = &everything,
                                                       .n_in = 6,
                                                       .n_out = 2,
                                                       .value = property_attention,
                                                       .in = {{F, S4(2, 3, 2, 2)},
                                                              {F, S4(2, 4, 2, 2)},
                                                              {F, S4(2, 4, 2, 3)},
                                                              {.dtype = TOW_BOOL, S4(1, 2, 3, 4)},
                                                              {F, S4(2, 1, 3, 4)},
                                                              {.dtype = TOW_I32, S1(2), .low = 0, .high = 3}}},
                                           .place = {0, 1, 2, 5, 6, 7},
                                           .residual = {3, 4},
                                           .n_wrt = 3,
                                           .wrt = {0, 1, 2},
                                           .tangents = 8};
static const relation cross_entropy = {.forward = {.n_in = 2,
                                                   .n_out = 2,
                                                   .value = property_cross_entropy,
                                                   .in = {{F, S2(3, 5)}, {.dtype = TOW_I32, S1(3)}}},
                                       .place = {0, 1},
                                       .residual = {-1, 2},
                                       .n_wrt = 1,
                                       .wrt = {0},
                                       .tangents = 3};

static const tow__linear_cross_entropy_params columns_of_w = {false}, rows_of_w = {true};
static const relation linear_cross_entropy = {
    .forward = {.params = &columns_of_w,
                .n_in = 3,
                .n_out = 2,
                .value = property_linear_cross_entropy,
                .in = {{F, S2(3, 4)}, {F, S2(4, 5)}, {.dtype = TOW_I32, S1(3)}}},
    .place = {0, 1, 2},
    .residual = {-1, 3},
    .n_wrt = 2,
    .wrt = {0, 1},
    .tangents = 4};
static const relation linear_cross_entropy_table = {
    .forward = {.params = &rows_of_w,
                .n_in = 3,
                .n_out = 2,
                .value = property_linear_cross_entropy,
                .in = {{F, S2(3, 4)}, {F, S2(5, 4)}, {.dtype = TOW_I32, S1(3)}}},
    .place = {0, 1, 2},
    .residual = {-1, 3},
    .n_wrt = 1,
    .wrt = {1},
    .tangents = 4};

static const struct {
    const char *label; /* which relation a case has: by its label */
    const relation *relation;
} relations[] = {{"layer_norm", &layer_norm},
                 {"layer_norm, x only", &layer_norm_x},
                 {"layer_norm, scale and bias", &layer_norm_scale},
                 {"rms_norm", &rms_norm},
                 {"rms_norm, x only", &rms_norm_x},
                 {"rms_norm, scale", &rms_norm_scale},
                 {"layer_norm of a vector", &norm_of_vector},
                 {"rms_norm of a vector", &rms_of_vector},
                 {"attention, causal, grouped", &attention},
                 {"attention, masked", &attention_masked},
                 {"attention, all options", &attention_further},
                 {"cross-entropy", &cross_entropy},
                 {"linear cross-entropy", &linear_cross_entropy},
                 {"linear cross-entropy, table only", &linear_cross_entropy_table}};

static const relation *relation_of(const property_case *c)
{
    for (size_t i = 0; i < sizeof relations / sizeof *relations; i++)
        if (strcmp(relations[i].label, c->label) == 0) return relations[i].relation;
    abort(); /* a label that is not in the table above */
}

/* Operands of the composite, copied out of those of the companion. */
typedef struct operands {
    double x[MOST][ROOM], y[3][ROOM];
} operands;

static void forward(const relation *r, operands *o)
{
    double *in[MOST], *out[3];
    for (int i = 0; i < MOST; i++) in[i] = o->x[i];
    for (int i = 0; i < 3; i++) out[i] = o->y[i];
    memset(o->y, 0, sizeof o->y);
    r->forward.value(&r->forward, in, out);
}

static void take_operands(const relation *r, double *const *in, operands *o)
{
    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < r->forward.n_in; i++)
        if (r->place[i] >= 0)
            memcpy(o->x[i], in[r->place[i]], (size_t)property_count(&r->forward.in[i]) * sizeof(double));
}

static void fill_residuals(const property_case *c, double *const *in)
{
    const relation *r = relation_of(c);
    operands o;
    take_operands(r, in, &o);
    forward(r, &o);
    for (size_t i = 0; i < r->forward.n_out; i++)
        if (r->residual[i] >= 0)
            memcpy(in[r->residual[i]], o.y[i], (size_t)property_count(&c->in[r->residual[i]]) * sizeof(double));
}

/* Derivative of output 0 along dx by Richardson's rule on central differences; n results. */
static void slope(const relation *r, const operands *o, double dx[MOST][ROOM], double *dy, int64_t n)
{
    static const double steps[4] = {2e-3, -2e-3, 1e-3, -1e-3}, weights[4] = {-1.0 / 3, 1.0 / 3, 4.0 / 3, -4.0 / 3};
    memset(dy, 0, (size_t)n * sizeof *dy);
    for (int s = 0; s < 4; s++) {
        operands moved = *o;
        for (int i = 0; i < MOST; i++)
            for (int k = 0; k < ROOM; k++) moved.x[i][k] += steps[s] * dx[i][k];
        forward(r, &moved);
        for (int64_t k = 0; k < n; k++) dy[k] += weights[s] * moved.y[0][k] / (2 * fabs(steps[s]));
    }
}

/* Elements of output 0 of the composite. */
static int64_t results(const relation *r)
{
    const property_input *x = &r->forward.in[0];
    if (r == &cross_entropy || r->forward.value == property_linear_cross_entropy) return x->dims[0];
    const int64_t last = r->forward.value == property_attention ? r->forward.in[2].dims[3] : x->dims[x->rank - 1];
    return property_count(x) / x->dims[x->rank - 1] * last;
}

static void jvp(const property_case *c, double *const *in, double *const *out)
{
    const relation *r = relation_of(c);
    operands o;
    double dx[MOST][ROOM] = {{0}};
    take_operands(r, in, &o);
    for (size_t j = 0; j < r->n_wrt; j++)
        memcpy(dx[r->wrt[j]], in[(size_t)r->tangents + j],
               (size_t)property_count(&r->forward.in[r->wrt[j]]) * sizeof(double));
    slope(r, &o, dx, out[0], results(r));
}

/* Element k of a cotangent is the derivative along the k-th unit vector, times ct. */
static void vjp(const property_case *c, double *const *in, double *const *out)
{
    const relation *r = relation_of(c);
    const int64_t n = results(r);
    operands o;
    take_operands(r, in, &o);
    for (size_t j = 0; j < r->n_wrt; j++)
        for (int64_t k = 0; k < property_count(&r->forward.in[r->wrt[j]]); k++) {
            double dx[MOST][ROOM] = {{0}}, dy[ROOM];
            dx[r->wrt[j]][k] = 1;
            slope(r, &o, dx, dy, n);
            out[j][k] = 0;
            for (int64_t i = 0; i < n; i++) out[j][k] += dy[i] * in[r->tangents][i];
        }
}

static const tow__norm_ad_params norm_all = {0.01, 7}, norm_x = {0.01, 1}, rms_all = {0.01, 3},
                                 norm_scale_bias = {0.01, 6}, rms_scale = {0.01, 2};
static const tow__attention_ad_params attention_all = {.causal = true, .scale = 0.7, .wrt = 7},
                                      attention_qv = {.masked = true, .scale = 0.7, .wrt = 5},
                                      attention_options = {.causal = true,
                                                           .masked = true,
                                                           .biased = true,
                                                           .shifted = true,
                                                           .scale = 0.7,
                                                           .cap = 1.25,
                                                           .window = 2,
                                                           .wrt = 7};

/* Operands that are residuals or differentiated elsewhere. */
#define FIXED     .dtype = TOW_F64, .constant = true
#define STATISTIC FIXED, .statistic = true
#define COMPANION(name, text, p, inputs, function, ...)                                                                \
    {                                                                                                                  \
        .primitive = name, .label = text, .params = p, .n_in = inputs, .value = function, .prepare = fill_residuals,   \
        .loose = 16, .loose_f64 = 1e4, __VA_ARGS__                                                                     \
    }
#define FURTHER                                                                                                        \
    {FIXED, S4(2, 3, 2, 2)}, {FIXED, S4(2, 4, 2, 2)}, {FIXED, S4(2, 4, 2, 3)}, {FIXED, S4(2, 3, 2, 3)},                \
        {STATISTIC, S3(2, 2, 3)}, {.dtype = TOW_BOOL, S4(1, 2, 3, 4)}, {FIXED, S4(2, 1, 3, 4)},                        \
    {                                                                                                                  \
        .dtype = TOW_I32, S1(2), .low = 0, .high = 3                                                                   \
    }
#define LAYER_NORM                                                                                                     \
    {FIXED, S2(2, 5)}, {FIXED, S1(5)}, {STATISTIC, S1(2)}, { STATISTIC, S1(2) }
#define RMS_NORM                                                                                                       \
    {FIXED, S2(2, 5)}, {FIXED, S1(5)}, { STATISTIC, S1(2) }
#define ATTENTION                                                                                                      \
    {FIXED, S4(2, 3, 4, 2)}, {FIXED, S4(2, 3, 2, 2)}, {FIXED, S4(2, 3, 2, 3)}, {FIXED, S4(2, 3, 4, 3)},                \
    {                                                                                                                  \
        STATISTIC, S3(2, 4, 3)                                                                                         \
    }
#define MASKED                                                                                                         \
    {FIXED, S4(2, 3, 2, 2)}, {FIXED, S4(2, 4, 2, 2)}, {FIXED, S4(2, 4, 2, 3)}, {FIXED, S4(2, 3, 2, 3)},                \
        {STATISTIC, S3(2, 2, 3)},                                                                                      \
    {                                                                                                                  \
        .dtype = TOW_BOOL, S4(1, 2, 3, 4)                                                                              \
    }
#define LOGITS                                                                                                         \
    {FIXED, S2(3, 5)}, {.dtype = TOW_I32, S1(3), .low = 0, .high = 4}, { STATISTIC, S1(3) }

#define LINEAR                                                                                                         \
    {FIXED, S2(3, 4)}, {FIXED, S2(4, 5)}, {.dtype = TOW_I32, S1(3), .low = 0, .high = 4}, { STATISTIC, S1(3) }
#define TABLE_ONLY                                                                                                     \
    {FIXED, S2(3, 4)}, {FIXED, S2(5, 4)}, {.dtype = TOW_I32, S1(3), .low = 0, .high = 4}, { STATISTIC, S1(3) }
static const tow__linear_cross_entropy_ad_params linear_all = {.wrt = 3}, linear_table = {.rows = true, .wrt = 2};

static const property_case cases[] = {
    COMPANION("layer_norm_jvp", "layer_norm", &norm_all, 7, jvp,
              .in = {LAYER_NORM, {F, S2(2, 5)}, {F, S1(5)}, {F, S1(5)}}),
    COMPANION("layer_norm_jvp", "layer_norm, x only", &norm_x, 5, jvp, .in = {LAYER_NORM, {F, S2(2, 5)}}),
    COMPANION("layer_norm_vjp", "layer_norm", &norm_all, 5, vjp, .in = {LAYER_NORM, {F, S2(2, 5)}}, .n_out = 3),
    COMPANION("layer_norm_vjp", "layer_norm, x only", &norm_x, 5, vjp, .in = {LAYER_NORM, {F, S2(2, 5)}}),
    COMPANION("layer_norm_vjp", "layer_norm, scale and bias", &norm_scale_bias, 5, vjp,
              .in = {LAYER_NORM, {F, S2(2, 5)}}, .n_out = 2),
    COMPANION("layer_norm_vjp", "layer_norm of a vector", &norm_all, 5, vjp,
              .in = {{FIXED, S1(5)}, {FIXED, S1(5)}, {STATISTIC, S0}, {STATISTIC, S0}, {F, S1(5)}}, .n_out = 3),
    COMPANION("rms_norm_vjp", "rms_norm of a vector", &rms_all, 4, vjp,
              .in = {{FIXED, S1(5)}, {FIXED, S1(5)}, {STATISTIC, S0}, {F, S1(5)}}, .n_out = 2),
    COMPANION("rms_norm_jvp", "rms_norm", &rms_all, 5, jvp, .in = {RMS_NORM, {F, S2(2, 5)}, {F, S1(5)}}),
    COMPANION("rms_norm_vjp", "rms_norm", &rms_all, 4, vjp, .in = {RMS_NORM, {F, S2(2, 5)}}, .n_out = 2),
    COMPANION("rms_norm_jvp", "rms_norm, x only", &norm_x, 4, jvp, .in = {RMS_NORM, {F, S2(2, 5)}}),
    COMPANION("rms_norm_vjp", "rms_norm, scale", &rms_scale, 4, vjp, .in = {RMS_NORM, {F, S2(2, 5)}}),
    COMPANION("rms_norm_vjp", "rms_norm, x only", &norm_x, 4, vjp, .in = {RMS_NORM, {F, S2(2, 5)}}),
    COMPANION("attention_jvp", "attention, causal, grouped", &attention_all, 8, jvp,
              .in = {ATTENTION, {F, S4(2, 3, 4, 2)}, {F, S4(2, 3, 2, 2)}, {F, S4(2, 3, 2, 3)}}),
    COMPANION("attention_vjp", "attention, causal, grouped", &attention_all, 6, vjp,
              .in = {ATTENTION, {F, S4(2, 3, 4, 3)}}, .n_out = 3),
    COMPANION("attention_jvp", "attention, masked", &attention_qv, 8, jvp,
              .in = {MASKED, {F, S4(2, 3, 2, 2)}, {F, S4(2, 4, 2, 3)}}),
    COMPANION("attention_vjp", "attention, masked", &attention_qv, 7, vjp, .in = {MASKED, {F, S4(2, 3, 2, 3)}},
              .n_out = 2),
    COMPANION("attention_jvp", "attention, all options", &attention_options, 11, jvp,
              .in = {FURTHER, {F, S4(2, 3, 2, 2)}, {F, S4(2, 4, 2, 2)}, {F, S4(2, 4, 2, 3)}}),
    COMPANION("attention_vjp", "attention, all options", &attention_options, 9, vjp,
              .in = {FURTHER, {F, S4(2, 3, 2, 3)}}, .n_out = 3),
    COMPANION("linear_cross_entropy_jvp", "linear cross-entropy", &linear_all, 6, jvp,
              .in = {LINEAR, {F, S2(3, 4)}, {F, S2(4, 5)}}),
    COMPANION("linear_cross_entropy_vjp", "linear cross-entropy", &linear_all, 5, vjp, .in = {LINEAR, {F, S1(3)}},
              .n_out = 2),
    COMPANION("linear_cross_entropy_jvp", "linear cross-entropy, table only", &linear_table, 5, jvp,
              .in = {TABLE_ONLY, {F, S2(5, 4)}}),
    COMPANION("linear_cross_entropy_vjp", "linear cross-entropy, table only", &linear_table, 5, vjp,
              .in = {TABLE_ONLY, {F, S1(3)}}),
    COMPANION("softmax_cross_entropy_jvp", "cross-entropy", NULL, 4, jvp, .in = {LOGITS, {F, S2(3, 5)}}),
    COMPANION("softmax_cross_entropy_vjp", "cross-entropy", NULL, 4, vjp, .in = {LOGITS, {F, S1(3)}}),
};

const property_table companion_cases = TABLE(cases);
