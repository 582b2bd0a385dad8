/* Primitives that a user defines: a rotary embedding with its gradient in one kernel, and a sparse matrix (CSR) times a
 * dense one, against values worked out here; text, policies, batching, and errors of definitions. Tests define.c,
 * kernels/defined.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

/* ---- rotary embedding: x [T, D] and angles [T, D/2]; each pair (x[2k], x[2k+1]) turned by its angle -------------- */

typedef struct rotary_parameters {
    bool back;
    int64_t times; /* of the angle */
} rotary_parameters;

static const tow_attribute rotary_fields[] = {
    {.name = "back", .kind = TOW_ATTRIBUTE_BOOL, .offset = offsetof(rotary_parameters, back)},
    {.name = "times", .kind = TOW_ATTRIBUTE_INT, .offset = offsetof(rotary_parameters, times)},
};

static tow_status rotary_type(const tow_primitive_rule *rule, const tow_type *in, tow_type *out)
{
    if (in[0].dtype != TOW_F32 || in[1].dtype != TOW_F32 || in[0].rank != 2 || in[1].rank != 2)
        return tow_primitive_fail(rule, TOW_TYPE_MISMATCH, "expected f32[T,D] and f32[T,D/2]");
    if (in[0].dims[0] != in[1].dims[0] || in[0].dims[1] != 2 * in[1].dims[1])
        return tow_primitive_fail(rule, TOW_SHAPE_MISMATCH, "the angles must be half as wide as x");
    out[0] = in[0];
    return TOW_OK;
}

static void rotary_rows(int64_t begin, int64_t end, void *argument)
{
    const tow_kernel_call *call = argument;
    const rotary_parameters *p = call->attributes;
    const tow_buffer *x = &call->inputs[0], *a = &call->inputs[1];
    const float *from = x->data, *angle = a->data;
    float *to = call->outputs[0].data;
    const int64_t pairs = a->dims[1];
    for (int64_t t = begin; t < end; t++)
        for (int64_t k = 0; k < pairs; k++) {
            const float by = (float)p->times * (p->back ? -1.0f : 1.0f) * angle[t * a->strides[0] + k * a->strides[1]];
            const float c = cosf(by), s = sinf(by);
            const float u = from[t * x->strides[0] + 2 * k * x->strides[1]];
            const float v = from[t * x->strides[0] + (2 * k + 1) * x->strides[1]];
            to[t * 2 * pairs + 2 * k] = u * c - v * s;
            to[t * 2 * pairs + 2 * k + 1] = u * s + v * c;
        }
}

static void rotary_run(const tow_kernel_call *call)
{
    tow_kernel_parallel(call, call->inputs[0].dims[0], rotary_rows, (void *)call);
}

/* Linear in x: the tangent is rotated likewise. */
static void rotary_jvp(tow_trace *t, const tow_primitive_rule *rule, const tow_value *x, const tow_value *dx,
                       tow_value *y, tow_value *dy)
{
    const tow_primitive *rotary = tow_primitive_find(rule->context, "rotary");
    tow_primitive_call(t, rotary, rule->attributes, x, y);
    if (!tow_is_null(dx[0])) tow_primitive_call(t, rotary, rule->attributes, (const tow_value[]){dx[0], x[1]}, dy);
}

/* The angles turn back. */
static void rotary_transpose(tow_trace *t, const tow_primitive_rule *rule, const tow_type *types, const bool *linear,
                             const tow_value *x, const tow_value *ct, tow_value *dx)
{
    rotary_parameters p = *(const rotary_parameters *)rule->attributes;
    (void)types;
    p.back = !p.back;
    if (linear[0] && !linear[1])
        tow_primitive_call(t, tow_primitive_find(rule->context, "rotary"), &p, (const tow_value[]){ct[0], x[1]}, dx);
    else
        tow_trace_fail(t, TOW_UNSUPPORTED, "rotary is not differentiated by its angles");
}

static double rotary_cost(const tow_primitive_rule *rule, const tow_type *in, const tow_type *out)
{
    (void)rule, (void)out;
    return 3.0 * (double)tow_type_element_count(in[0]);
}

static const tow_primitive *define_rotary(void)
{
    const tow_primitive *rotary;
    const tow_primitive_definition d = {.name = "rotary",
                                        .n_inputs = 2,
                                        .n_outputs = 1,
                                        .attributes = rotary_fields,
                                        .n_attributes = 2,
                                        .attributes_size = sizeof(rotary_parameters),
                                        .type = rotary_type,
                                        .kernel = {.run = rotary_run},
                                        .jvp = rotary_jvp,
                                        .transpose = rotary_transpose,
                                        .tiling = TOW_TILING_ROWS,
                                        .cost = rotary_cost};
    OK(tow_primitive_define(ctx, &d, &rotary));
    return rotary;
}

/* sum of rotary(x, a) w */
static void rotary_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const rotary_parameters p = {.times = 2};
    tow_value y;
    tow_primitive_call(t, user, &p, in, &y);
    out[0] = tow_reduce_sum(tow_mul(y, in[2]), 0, NULL);
}

static void run(const tow_graph *graph, size_t n, const float *const *data, float *out)
{
    tow_array *in[8], *result;
    tow_program *program;
    for (size_t i = 0; i < n; i++) OK(tow_array_from_data(ctx, tow_graph_input_type(graph, i), data[i], &in[i]));
    OK(tow_array_create(ctx, tow_graph_output_type(graph, 0), &result));
    OK(tow_compile(ctx, graph, NULL, &program));
    OK(tow_program_run(program, in, &result));
    memcpy(out, tow_array_data(result), tow_type_bytes(tow_array_type(result)));
    for (size_t i = 0; i < n; i++) tow_array_release(in[i]);
    tow_array_release(result);
    tow_program_free(program);
}

enum {
    T = 3,
    D = 4
};
static const float x[T * D] = {1, 2, -1, 0.5f, 3, -2, 0.25f, 1, -1, -1, 2, 4};
static const float angles[T * D / 2] = {0.5f, -1, 0.25f, 2, -0.75f, 1};
static const float weights[T * D] = {1, -1, 2, 0.5f, 0.25f, 3, -2, 1, 1, 0.5f, -0.5f, 2};

static tow_graph *trace_rotary(void)
{
    static const int64_t wide[] = {T, D}, narrow[] = {T, D / 2};
    const tow_type types[] = {tow_make_type(TOW_F32, 2, wide), tow_make_type(TOW_F32, 2, narrow),
                              tow_make_type(TOW_F32, 2, wide)};
    tow_graph *graph;
    union {
        const tow_primitive *constant;
        void *user;
    } rotary = {define_rotary()};
    OK(tow_trace_function(ctx, rotary_loss, rotary.user, 3, types, NULL, 1, &graph));
    return graph;
}

static void test_rotary(void **state)
{
    (void)state;
    const float *const data[] = {x, angles, weights};
    tow_graph *graph = trace_rotary(), *gradient, *read;
    float loss, found[T * D];
    double expected = 0;
    char text[4096];
    OK(tow_grad(graph, 1, (const size_t[]){0}, false, &gradient));
    run(graph, 3, data, &loss);
    run(gradient, 3, data, found);
    for (int i = 0; i < T * D / 2; i++) {
        const double c = cos(2.0 * angles[i]), s = sin(2.0 * angles[i]), u = x[2 * i], v = x[2 * i + 1];
        const double a = weights[2 * i], b = weights[2 * i + 1];
        expected += a * (u * c - v * s) + b * (u * s + v * c);
        assert_true(fabs(found[2 * i] - (a * c + b * s)) < 1e-5);
        assert_true(fabs(found[2 * i + 1] - (b * c - a * s)) < 1e-5);
    }
    assert_true(fabs(loss - expected) < 1e-4);
    /* what is printed is read again */
    assert_in_range(tow_graph_text(gradient, text, sizeof text), 1, sizeof text - 1);
    assert_non_null(strstr(text, "rotary[back=true times=2]"));
    OK(tow_graph_parse(ctx, text, &read));
    run(read, 3, data, found);
    tow_graph_release(read);
    tow_graph_release(gradient);
    tow_graph_release(graph);
}

/* Without a batching rule the rows are a loop; each has the bits of the primitive on it. */
static void test_batched(void **state)
{
    (void)state;
    float all[2][T * D], one[T * D], value[2], alone;
    tow_graph *graph, *batched;
    const tow_primitive *rotary = tow_primitive_find(ctx, "rotary");
    assert_non_null(rotary);
    OK(tow_graph_parse(ctx,
                       "{ lambda ; x:f32[3,4] a:f32[3,2] w:f32[3,4]. let\n"
                       "    y:f32[3,4] = rotary[back=false times=2] x a\n"
                       "    z:f32[3,4] = mul y w\n"
                       "    s:f32[] = reduce_sum[axes=(0,1)] z\n"
                       "  in (s) }\n",
                       &graph));
    OK(tow_vmap(graph, 2, (const int[]){0, TOW_NOT_MAPPED, TOW_NOT_MAPPED}, NULL, &batched));
    memcpy(all[0], x, sizeof x);
    memcpy(all[1], weights, sizeof weights);
    memcpy(one, weights, sizeof weights);
    run(batched, 3, (const float *const[]){all[0], angles, weights}, value);
    run(graph, 3, (const float *const[]){x, angles, weights}, &alone);
    assert_memory_equal(&alone, &value[0], sizeof alone);
    run(graph, 3, (const float *const[]){one, angles, weights}, &alone);
    assert_memory_equal(&alone, &value[1], sizeof alone);
    tow_graph_release(batched);
    tow_graph_release(graph);
}

/* ---- sparse times dense: values [N], columns [N], row starts [M + 1], dense [K, C] -> [M, C] --------------------- */

static tow_status csr_type(const tow_primitive_rule *rule, const tow_type *in, tow_type *out)
{
    if (in[0].rank != 1 || in[1].rank != 1 || in[2].rank != 1 || in[3].rank != 2 || in[2].dims[0] < 1)
        return tow_primitive_fail(rule, TOW_SHAPE_MISMATCH,
                                  "expected values [N], columns [N], row starts [M+1] and a matrix");
    if (in[0].dtype != TOW_F32 || in[1].dtype != TOW_I32 || in[2].dtype != TOW_I32 || in[3].dtype != TOW_F32)
        return tow_primitive_fail(rule, TOW_TYPE_MISMATCH,
                                  "expected f32 values and matrix, i32 columns and row starts");
    out[0] = tow_make_type(TOW_F32, 2, (const int64_t[]){in[2].dims[0] - 1, in[3].dims[1]});
    return TOW_OK;
}

static size_t csr_scratch(const tow_kernel_call *call) { return (size_t)call->inputs[3].dims[1] * sizeof(double); }

static void csr_run(const tow_kernel_call *call)
{
    const tow_buffer *v = &call->inputs[0], *c = &call->inputs[1], *r = &call->inputs[2], *d = &call->inputs[3];
    const int32_t *columns = c->data, *starts = r->data;
    const float *values = v->data, *dense = d->data;
    const int64_t rows = r->dims[0] - 1, width = d->dims[1];
    double *sums = call->scratch;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < width; k++) sums[k] = 0;
        for (int32_t e = starts[i * r->strides[0]]; e < starts[(i + 1) * r->strides[0]]; e++)
            for (int64_t k = 0; k < width; k++)
                sums[k] += (double)values[e * v->strides[0]] *
                           dense[columns[e * c->strides[0]] * d->strides[0] + k * d->strides[1]];
        for (int64_t k = 0; k < width; k++) ((float *)call->outputs[0].data)[i * width + k] = (float)sums[k];
    }
}

/* A policy of dots keeps its result, and without a rule it has no derivative. */
static void test_csr(void **state)
{
    (void)state;
    const tow_primitive *csr;
    const tow_primitive_definition d = {.name = "csr_matmul",
                                        .n_inputs = 4,
                                        .n_outputs = 1,
                                        .type = csr_type,
                                        .kernel = {.run = csr_run, .scratch = csr_scratch},
                                        .dot = TOW_PLAIN_DOT};
    OK(tow_primitive_define(ctx, &d, &csr));
    assert_ptr_equal(csr, tow_primitive_find(ctx, "csr_matmul"));
    tow_graph *graph, *gradient;
    OK(tow_graph_parse(ctx,
                       "{ lambda ; v:f32[3] c:i32[3] r:i32[3] m:f32[2,2]. let\n"
                       "    t:f32[2,2] = transpose[permutation=(1,0)] m\n"
                       "    y:f32[2,2] = csr_matmul v c r t\n"
                       "  in (y) }\n",
                       &graph));
    /* [[2, 0], [-1, 3]] times [[1, 10], [2, 20]] transposed */
    float found[4];
    const int32_t columns[] = {0, 0, 1}, starts[] = {0, 1, 3};
    run(graph, 4,
        (const float *const[]){(const float[]){2, -1, 3}, (const void *)columns, (const void *)starts,
                               (const float[]){1, 10, 2, 20}},
        found);
    const float expected[] = {2, 4, 29, 58};
    assert_memory_equal(found, expected, sizeof expected);
    tow_graph_release(graph);
    OK(tow_graph_parse(ctx,
                       "{ lambda ; v:f32[3] c:i32[3] r:i32[3] m:f32[2,2]. let\n"
                       "    y:f32[2,2] = csr_matmul v c r m\n"
                       "    s:f32[] = reduce_sum[axes=(0,1)] y\n"
                       "  in (s) }\n",
                       &graph));
    assert_int_equal(tow_grad(graph, 0, NULL, false, &gradient), TOW_UNSUPPORTED);
    assert_non_null(strstr(tow_context_error(ctx), "csr_matmul has no derivative"));
    tow_graph_release(graph);
    assert_int_not_equal(tow_graph_parse(ctx,
                                         "{ lambda ; v:f32[3] c:i32[3] r:i32[3] m:f32[2]. let\n"
                                         "    y:f32[2,2] = csr_matmul v c r m\n  in (y) }\n",
                                         &graph),
                         TOW_OK);
    assert_non_null(strstr(tow_context_error(ctx), "expected values [N]"));
}

static void rotary_decompose(tow_trace *t, const tow_primitive_rule *rule, const tow_value *in, tow_value *out)
{
    (void)t, (void)rule;
    out[0] = in[0];
}

static void test_bad_definitions(void **state)
{
    (void)state;
    const tow_primitive_definition good = {
        .name = "good", .n_inputs = 4, .n_outputs = 1, .type = csr_type, .kernel = {.run = csr_run}};
    struct {
        tow_primitive_definition d;
        const char *message;
    } cases[16];
    size_t n = 0;
    for (; n < sizeof cases / sizeof *cases; n++) cases[n].d = good;
    static const tow_attribute twice[] = {{"a", TOW_ATTRIBUTE_BOOL, 0}, {"a", TOW_ATTRIBUTE_BOOL, 1}};
    n = 0;
    cases[n].d.name = NULL, cases[n++].message = "expected a name";
    cases[n].d.name = "two words", cases[n++].message = "expected a name";
    cases[n].d.name = "sin", cases[n++].message = "there is a primitive of this name";
    cases[n].d.type = NULL, cases[n++].message = "expected a type rule";
    cases[n].d.kernel.run = NULL, cases[n++].message = "expected a kernel or a decomposition";
    cases[n].d.n_outputs = 0, cases[n++].message = "expected 1 to 16 operands and results";
    cases[n].d.n_inputs = 17, cases[n++].message = "expected 1 to 16 operands and results";
    cases[n].d.linear = true, cases[n++].message = "linear and transpose belong together";
    cases[n].d.transpose = rotary_transpose, cases[n++].message = "a transpose needs linear or a jvp";
    cases[n].d.reference.run = csr_run, cases[n].d.kernel.run = NULL, cases[n].d.decompose = rotary_decompose;
    cases[n++].message = "expected a kernel beside the reference";
    cases[n].d.varies = true, cases[n].d.tiling = TOW_TILING_ROWS,
    cases[n++].message = "expected no tiling of what varies";
    cases[n].d.kernel = (tow_kernel){.scratch = csr_scratch}, cases[n].d.decompose = rotary_decompose;
    cases[n++].message = "expected a function that uses the scratch memory";
    cases[n].d.no_derivative = true, cases[n].d.jvp = rotary_jvp, cases[n++].message = "found several";
    cases[n].d.n_attributes = 1, cases[n++].message = "and no list";
    cases[n].d.attributes = twice, cases[n].d.n_attributes = 2, cases[n].d.attributes_size = 2;
    cases[n++].message = "two attributes have the name a";
    cases[n].d.attributes = rotary_fields, cases[n].d.n_attributes = 2, cases[n].d.attributes_size = 8;
    cases[n++].message = "attribute times is not within the 8 bytes";
    for (size_t i = 0; i < n; i++) {
        const tow_primitive *p;
        assert_int_equal(tow_primitive_define(ctx, &cases[i].d, &p), TOW_INVALID_ARGUMENT);
        assert_null(p);
        if (!strstr(tow_context_error(ctx), cases[i].message))
            fail_msg("\"%s\" is not in: %s", cases[i].message, tow_context_error(ctx));
    }
    assert_int_equal(tow_primitive_define(NULL, &good, NULL), TOW_INVALID_ARGUMENT);
    assert_null(tow_primitive_find(ctx, "good"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_batched),
        cmocka_unit_test(test_csr),
        cmocka_unit_test(test_bad_definitions),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
