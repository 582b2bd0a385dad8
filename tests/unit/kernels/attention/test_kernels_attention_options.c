/* Windows, caps, biases and offsets of attention at sizes of many strips and cuts. Tests attention.c, attention_f32.c,
 * attention_f64.c: outputs against sums written out in double precision, gradients in single against those in double
 * precision, whose kernel is other code. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

typedef struct shape {
    const char *name;
    int64_t b, t, s, h, g, d, e;
    bool causal, masked, biased;
    int64_t window;
    double cap;
    int32_t offset; /* INT32_MIN: none */
} shape;

static const shape shapes[] = {
    {"a window", 1, 300, 300, 2, 1, 16, 24, true, false, false, 70, 0, INT32_MIN},
    {"a window of one", 1, 70, 70, 2, 2, 20, 16, true, false, false, 1, 0, INT32_MIN},
    {"a window to both sides", 2, 200, 150, 2, 1, 8, 16, false, false, false, 20, 0, INT32_MIN},
    {"queries far before the keys", 1, 130, 40, 1, 1, 16, 16, true, false, false, 9, 0, INT32_MIN},
    {"queries far behind the keys", 1, 130, 100, 2, 1, 16, 16, true, false, false, 9, 0, 60},
    {"the first keys are never seen", 1, 20, 500, 2, 1, 16, 16, true, false, false, 33, 0, INT32_MIN},
    {"a window of several cuts", 1, 66, 5000, 1, 1, 16, 16, true, false, false, 4500, 0, INT32_MIN},
    {"a cap", 2, 90, 90, 4, 2, 16, 16, true, false, false, 0, 0.7, INT32_MIN},
    {"a cap and a mask", 2, 65, 129, 2, 2, 10, 6, false, true, false, 0, 1.5, INT32_MIN},
    {"a bias", 2, 65, 129, 2, 1, 16, 16, true, false, true, 0, 0, INT32_MIN},
    {"everything", 2, 140, 140, 4, 2, 16, 16, true, true, true, 50, 2, 3},
    {"one row of a cache", 2, 1, 700, 4, 2, 16, 16, true, false, false, 0, 0, 401},
    {"some rows of a cache, a window", 1, 5, 700, 2, 1, 16, 20, true, false, false, 100, 0, 300},
    {"an offset outside", 1, 3, 40, 2, 1, 16, 16, true, false, false, 4, 0, -1000},
};

/* ---- operands ---------------------------------------------------------------------------------------------------- */

enum {
    Q,
    K,
    V,
    CT,
    MASK,
    BIAS,
    OFFSET,
    OPERANDS
};

static double draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(*seed >> 8) / (1 << 24) - 0.5;
}

static tow_type type_of(const shape *c, int i, tow_dtype dtype)
{
    const int64_t dims[OPERANDS][4] = {
        [Q] = {c->b, c->t, c->h, c->d},  [K] = {c->b, c->s, c->g, c->d}, [V] = {c->b, c->s, c->g, c->e},
        [CT] = {c->b, c->t, c->h, c->e}, [MASK] = {c->b, 1, c->t, c->s}, [BIAS] = {1, c->h, c->t, c->s}};
    if (i == OFFSET) return tow_make_type(TOW_I32, 0, NULL);
    return tow_make_type(i == MASK ? TOW_BOOL : dtype, 4, dims[i]);
}

/* The same numbers, exact in f32, in both types. */
static tow_array *operand(const shape *c, int i, tow_dtype dtype)
{
    tow_array *array;
    uint32_t seed = 77u + (uint32_t)i;
    OK(tow_array_create(ctx, type_of(c, i, dtype), &array));
    void *data = tow_array_data(array);
    for (int64_t k = 0, n = tow_type_element_count(tow_array_type(array)); k < n; k++) {
        float x = (float)draw(&seed);
        if (i == OFFSET)
            *(int32_t *)data = c->offset;
        else if (i == MASK)
            ((bool *)data)[k] = x > 0 && k / c->s % 7 != 3; /* some queries see nothing */
        else if (dtype == TOW_F64)
            ((double *)data)[k] = 4 * (double)x;
        else
            ((float *)data)[k] = 4 * x;
    }
    return array;
}

/* ---- the function: sum of out * ct, and out ---------------------------------------------------------------------- */

static void record(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const shape *c = user;
    tow_attention_options o =
        TOW_ATTENTION_OPTIONS(.causal = c->causal, .scale = 0.6, .window = c->window, .logit_cap = c->cap);
    (void)trace;
    if (c->masked) o.mask = in[MASK];
    if (c->biased) o.bias = in[BIAS];
    if (c->offset != INT32_MIN) o.offset = in[OFFSET];
    out[1] = tow_attention(in[Q], in[K], in[V], &o);
    out[0] = tow_reduce_sum(tow_mul(out[1], in[CT]), 0, NULL);
}

/* results: sum, out, dq, dk, dv */
static void compute(const shape *c, tow_dtype dtype, tow_array **results)
{
    tow_type types[OPERANDS];
    tow_array *in[OPERANDS];
    tow_graph *graph, *gradient;
    for (int i = 0; i < OPERANDS; i++) {
        types[i] = type_of(c, i, dtype);
        in[i] = operand(c, i, dtype);
    }
    OK(tow_trace_function(ctx, record, (void *)c, OPERANDS, types, NULL, 2, &graph));
    OK(tow_value_and_grad(graph, 3, (size_t[]){Q, K, V}, true, &gradient));
    assert_int_equal(tow_graph_primitive_count(gradient, "attention_vjp"), 1);
    OK(tow_evaluate(gradient, in, results));
    for (int i = 0; i < OPERANDS; i++) tow_array_release(in[i]);
    tow_graph_release(graph);
    tow_graph_release(gradient);
}

/* ---- written out ------------------------------------------------------------------------------------------------- */

static bool is_visible(const shape *c, const bool *mask, int64_t b, int64_t t, int64_t s)
{
    int64_t position = t + (c->offset == INT32_MIN ? c->s - c->t : c->offset);
    if (c->causal && s > position) return false;
    if (c->window > 0 && llabs(position - s) >= c->window) return false;
    return !c->masked || mask[(b * c->t + t) * c->s + s];
}

/* Row (b, t, h) of the output. */
static void row_of(const shape *c, tow_array *const *in, int64_t b, int64_t t, int64_t h, double *out)
{
    const double *q = tow_array_data(in[Q]), *k = tow_array_data(in[K]), *v = tow_array_data(in[V]),
                 *bias = tow_array_data(in[BIAS]);
    int64_t group = h / (c->h / c->g);
    double *logits = malloc((size_t)c->s * sizeof *logits), most = -INFINITY, sum = 0;
    assert_non_null(logits);
    for (int64_t s = 0; s < c->s; s++) {
        double x = 0;
        for (int64_t d = 0; d < c->d; d++)
            x += 0.6 * q[((b * c->t + t) * c->h + h) * c->d + d] * k[((b * c->s + s) * c->g + group) * c->d + d];
        if (c->cap > 0) x = c->cap * tanh(x / c->cap);
        if (c->biased) x += bias[(h * c->t + t) * c->s + s];
        logits[s] = is_visible(c, tow_array_data(in[MASK]), b, t, s) ? x : -DBL_MAX;
        most = fmax(most, logits[s]);
    }
    memset(out, 0, (size_t)c->e * sizeof *out);
    for (int64_t s = 0; s < c->s; s++) {
        double p = exp(logits[s] - most);
        sum += p;
        for (int64_t e = 0; e < c->e; e++) out[e] += p * v[((b * c->s + s) * c->g + group) * c->e + e];
    }
    for (int64_t e = 0; e < c->e; e++) out[e] /= sum;
    free(logits);
}

static void expect_output(const shape *c, tow_array *y)
{
    tow_array *in[OPERANDS];
    double expected[64];
    for (int i = 0; i < OPERANDS; i++) in[i] = operand(c, i, TOW_F64);
    for (int64_t i = 0; i < c->b * c->t * c->h; i++) {
        row_of(c, in, i / c->h / c->t, i / c->h % c->t, i % c->h, expected);
        for (int64_t e = 0; e < c->e; e++)
            if (!(fabs(expected[e] - ((double *)tow_array_data(y))[i * c->e + e]) <= 1e-12 * (1 + fabs(expected[e]))))
                fail_msg("%s: element %d of row %d: expected %g, found %g", c->name, (int)e, (int)i, expected[e],
                         ((double *)tow_array_data(y))[i * c->e + e]);
    }
    for (int i = 0; i < OPERANDS; i++) tow_array_release(in[i]);
}

/* Sums of some hundred products of numbers near 1: 2e-5 of the largest result. */
static void expect_near(const shape *c, int which, tow_array *x, tow_array *y)
{
    const double *a = tow_array_data(x);
    const float *b = tow_array_data(y);
    double largest = 1, error = 0;
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(x)); i++) {
        double difference = fabs(a[i] - (double)b[i]);
        if (!(difference <= error)) error = difference; /* a NaN stays */
        largest = fmax(largest, fabs(a[i]));
    }
    if (!(error <= 2e-5 * largest))
        fail_msg("%s: result %d differs by %g, largest element %g", c->name, which, error, largest);
}

static void test_options(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        tow_array *wide[5], *single[5];
        compute(&shapes[i], TOW_F64, wide);
        compute(&shapes[i], TOW_F32, single);
        expect_output(&shapes[i], wide[1]);
        for (int k = 1; k < 5; k++) expect_near(&shapes[i], k, wide[k], single[k]);
        for (int k = 0; k < 5; k++) {
            tow_array_release(wide[k]);
            tow_array_release(single[k]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_options)};
    return cmocka_run_group_tests_name("attention_options", tests, setup, teardown);
}
