/* tow_primitive_check: primitives that are right pass, and of every check one that is wrong does not: it is found by
 * that check, with a message that says where.
 * Tests batching.c, derivatives.c, failing.c, kernel.c, round_trip.c, sizes.c, tiling.c, value.c, values.c. */
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

/* The defects of the primitive. */
typedef enum fault {
    NONE,
    VALUE,
    STRIDES,
    UNWRITTEN,
    OVERRUN,
    SCRATCH,
    OPERAND,
    JVP,
    TANGENT_TYPE,
    SECOND,
    TRANSPOSE,
    BATCH,
    BATCH_AXIS,
    TILING,
    TEXT,
    SIZES,
    MEMORY
} fault;

/* ---- y = x^2 w + x, with the kernel's own notion of what is wrong ------------------------------------------------ */

typedef struct mix_parameters {
    int64_t times;  /* y, so often */
    int64_t secret; /* is not a parameter: it does not survive printing */
} mix_parameters;

static const tow_attribute mix_fields[] = {
    {.name = "times", .kind = TOW_ATTRIBUTE_INT, .offset = offsetof(mix_parameters, times)},
};

static fault fault_of(void *user) { return *(const fault *)user; }

static tow_status mix_type(const tow_primitive_rule *rule, const tow_type *in, tow_type *out)
{
    if (!tow_dtype_is_float(in[0].dtype) || !tow_type_equal(in[0], in[1]) || in[0].rank != 2)
        return tow_primitive_fail(rule, TOW_SHAPE_MISMATCH, "expected two matrices of one float type");
    out[0] = in[0];
    return TOW_OK;
}

static double element(const tow_buffer *b, const int64_t *at, bool ignore_strides)
{
    int64_t i = 0;
    for (int d = 0; d < b->rank; d++) i = ignore_strides ? i * b->dims[d] + at[d] : i + at[d] * b->strides[d];
    return b->dtype == TOW_F32 ? (double)((const float *)b->data)[i] : ((const double *)b->data)[i];
}

static void set(const tow_buffer *b, int64_t i, double value)
{
    if (b->dtype == TOW_F32)
        ((float *)b->data)[i] = (float)value;
    else
        ((double *)b->data)[i] = value;
}

static void mix_rows(int64_t begin, int64_t end, void *argument)
{
    const tow_kernel_call *call = argument;
    const tow_buffer *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->outputs[0];
    const mix_parameters *p = call->attributes;
    const fault f = fault_of(call->user);
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < y->dims[1]; j++) {
            const int64_t at[] = {i, j}, first[] = {0, j}, k = i * y->dims[1] + j;
            const double u = element(x, at, f == STRIDES), v = element(w, at, f == STRIDES);
            double value = (double)p->times * (u * u * v + u);
            if (f == VALUE && i == 2 && j == 1) value += 0.25;
            if (f == TILING) value += element(x, first, false); /* row 0 is another one in every block */
            if (f == TEXT) value += (double)p->secret;
            if (f == UNWRITTEN && k == 3) continue;
            set(y, k, value);
        }
}

static void mix_run(const tow_kernel_call *call)
{
    const fault f = fault_of(call->user);
    const tow_buffer *y = &call->outputs[0];
    tow_kernel_call copy = *call;
    tow_kernel_parallel(call, y->dims[0], mix_rows, &copy);
    if (f == OVERRUN) set(y, y->dims[0] * y->dims[1], 1);
    if (f == SCRATCH) ((char *)call->scratch)[16] = 1;
    if (f == OPERAND && y->dims[0] * y->dims[1] > 0) set(&call->inputs[0], 0, 7);
}

static size_t mix_scratch(const tow_kernel_call *call) { return fault_of(call->user) == SCRATCH ? 16 : 0; }

static void mix_reference(const tow_kernel_call *call)
{
    static const fault none = NONE;
    tow_kernel_call copy = *call;
    if (fault_of(call->user) == VALUE) copy.user = (void *)&none;
    mix_rows(0, call->outputs[0].dims[0], &copy);
}

/* dy = times ((2 x w + 1) dx + x^2 dw) */
static void mix_jvp(tow_trace *t, const tow_primitive_rule *rule, const tow_value *x, const tow_value *dx, tow_value *y,
                    tow_value *dy)
{
    const fault f = fault_of(rule->user);
    const mix_parameters *p = rule->attributes;
    tow_primitive_call(t, tow_primitive_find(rule->context, "mix"), p, x, y);
    if (f == MEMORY) { /* an error becomes another one */
        tow_graph *graph;
        if (tow_graph_parse(rule->context, "{ lambda ; a:f32[]. let\n  in (a) }\n", &graph) != TOW_OK)
            tow_trace_fail(t, TOW_INVALID_ARGUMENT, "something is wrong");
        else
            tow_graph_release(graph);
    }
    tow_value sum = {0};
    if (!tow_is_null(dx[0])) {
        tow_value slope = tow_add_scalar(tow_mul_scalar(tow_mul(x[0], x[1]), f == JVP ? 3 : 2), 1);
        if (f == SECOND) slope = tow_stop_gradient(slope);
        sum = tow_mul(slope, dx[0]);
    }
    if (!tow_is_null(dx[1])) {
        tow_value term = tow_mul(tow_mul(x[0], x[0]), dx[1]);
        sum = tow_is_null(sum) ? term : tow_add(sum, term);
    }
    dy[0] = tow_mul_scalar(sum, (double)p->times);
    if (f == TANGENT_TYPE) dy[0] = tow_reduce_sum(dy[0], 1, (int[]){0});
    if (f == SIZES && tow_value_type(x[0]).dims[1] == 0)
        tow_trace_fail(t, TOW_UNSUPPORTED, "no columns, no derivative");
}

/* All operands with the rows in front: [size, M, N] as [size M, N]. */
static void mix_batch(tow_trace *t, const tow_primitive_rule *rule, int64_t size, const tow_value *x, const int *axes,
                      tow_value *y, int *y_axes)
{
    const fault f = fault_of(rule->user);
    tow_value all[2];
    tow_type type = {0};
    for (int i = 0; i < 2; i++) {
        all[i] = x[i];
        if (axes[i] == TOW_NOT_MAPPED)
            all[i] = tow_broadcast_to(x[i], 3,
                                      (int64_t[]){size, tow_value_type(x[i]).dims[0], tow_value_type(x[i]).dims[1]});
        else if (axes[i] > 0 && f != BATCH)
            all[i] = tow_transpose(x[i], 3, axes[i] == 1 ? (int[]){1, 0, 2} : (int[]){2, 0, 1});
        type = tow_value_type(all[i]);
        all[i] = tow_reshape(all[i], 2, (int64_t[]){type.dims[0] * type.dims[1], type.dims[2]});
    }
    tow_primitive_call(t, tow_primitive_find(rule->context, "mix"), rule->attributes, all, y);
    y[0] = tow_reshape(y[0], 3, type.dims);
    y_axes[0] = f == BATCH_AXIS ? 1 : 0;
}

/* ---- a linear one: y = x with the columns in the other order, times a parameter ---------------------------------- */

static tow_status flip_type(const tow_primitive_rule *rule, const tow_type *in, tow_type *out)
{
    if (!tow_dtype_is_float(in[0].dtype) || in[0].rank != 2)
        return tow_primitive_fail(rule, TOW_SHAPE_MISMATCH, "expected a matrix of floats");
    out[0] = in[0];
    return TOW_OK;
}

static void flip_run(const tow_kernel_call *call)
{
    const tow_buffer *x = &call->inputs[0], *y = &call->outputs[0];
    const mix_parameters *p = call->attributes;
    for (int64_t i = 0; i < y->dims[0]; i++)
        for (int64_t j = 0; j < y->dims[1]; j++)
            set(y, i * y->dims[1] + j, (double)p->times * element(x, (int64_t[]){i, y->dims[1] - 1 - j}, false));
}

static void flip_transpose(tow_trace *t, const tow_primitive_rule *rule, const tow_type *types, const bool *linear,
                           const tow_value *x, const tow_value *ct, tow_value *dx)
{
    mix_parameters p = *(const mix_parameters *)rule->attributes;
    (void)types, (void)linear, (void)x;
    if (fault_of(rule->user) == TRANSPOSE) p.times++;
    tow_primitive_call(t, tow_primitive_find(rule->context, "flip"), &p, ct, dx);
}

static void flip_decompose(tow_trace *t, const tow_primitive_rule *rule, const tow_value *x, tow_value *y)
{
    (void)t;
    y[0] = tow_mul_scalar(tow_rev(x[0], 1, (int[]){1}), (double)((const mix_parameters *)rule->attributes)->times);
}

/* ---- what is found ----------------------------------------------------------------------------------------------- */

static tow_primitive_definition mix_definition(fault *f)
{
    return (tow_primitive_definition){.name = "mix",
                                      .n_inputs = 2,
                                      .n_outputs = 1,
                                      .attributes = mix_fields,
                                      .n_attributes = 1,
                                      .attributes_size = sizeof(mix_parameters),
                                      .user = f,
                                      .type = mix_type,
                                      .kernel = {.run = mix_run, .scratch = mix_scratch},
                                      .reference = {.run = mix_reference},
                                      .jvp = mix_jvp,
                                      .batch = mix_batch,
                                      .tiling = TOW_TILING_ROWS};
}

static tow_primitive_definition flip_definition(fault *f)
{
    tow_primitive_definition d = mix_definition(f);
    d.name = "flip";
    d.n_inputs = 1;
    d.type = flip_type;
    d.kernel = (tow_kernel){.run = flip_run};
    d.reference = (tow_kernel){0};
    d.jvp = NULL;
    d.batch = NULL;
    d.linear = true;
    d.transpose = flip_transpose;
    d.decompose = flip_decompose;
    return d;
}

typedef struct seen {
    tow_check_failure first;
    char text[1024];
    size_t n;
} seen;

static void see(const tow_check_failure *failure, void *user)
{
    seen *s = user;
    if (s->n++ > 0) return;
    s->first = *failure;
    snprintf(s->text, sizeof s->text, "%s", failure->text);
}

static const mix_parameters parameters = {.times = 2, .secret = 5};

/* In a context of its own; the first failure in *s. */
static tow_status check(fault f, bool flips, const tow_check_options *options, seen *s, tow_check_summary *summary)
{
    const tow_check_input inputs[] = {{.type = {TOW_F32, 2, {4, 3}}}, {.type = {TOW_F64, 2, {4, 3}}}};
    const tow_check_case cases[] = {{.label = "4 by 3", .inputs = inputs, .attributes = &parameters}};
    const tow_primitive_definition d = flips ? flip_definition(&f) : mix_definition(&f);
    const tow_check_options all =
        TOW_CHECK_OPTIONS(.report = see, .user = s, .without = options ? options->without : 0);
    tow_context *own = NULL;
    const tow_primitive *p;
    *s = (seen){0};
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 2), &own), TOW_OK);
    assert_int_equal(tow_primitive_define(own, &d, &p), TOW_OK);
    const tow_status status = tow_primitive_check(own, p, 1, cases, &all, summary);
    if (status != TOW_OK) {
        assert_non_null(strstr(tow_context_error(own), flips ? "flip, case 0 (4 by 3), " : "mix, case 0 (4 by 3), "));
        assert_non_null(strstr(tow_context_error(own), s->text));
    }
    tow_context_free(own);
    return status;
}

static void test_right(void **state)
{
    (void)state;
    seen s;
    tow_check_summary summary;
    for (int flips = 0; flips < 2; flips++) {
        const tow_status status = check(NONE, flips, NULL, &s, &summary);
        if (status != TOW_OK) fail_msg("%s: %s", tow_check_name(s.first.kind), s.text);
        assert_int_equal(s.n, 0);
        assert_int_equal(summary.cases, 1);
        assert_int_equal(summary.failures, 0);
        assert_int_equal(summary.done, (1u << (TOW_CHECK_MEMORY + 1)) - 1); /* every check compared something */
    }
}

static void test_wrong(void **state)
{
    static const struct {
        fault fault;
        bool flips;
        tow_check_kind kind;
        const char *text;
        int64_t element; /* -1: any */
    } cases[] = {
        {VALUE, false, TOW_CHECK_VALUE, "result 0, element 7: the reference gives", 7},
        {STRIDES, false, TOW_CHECK_KERNEL, "transposed operands with gaps: result 0, element", -1},
        {UNWRITTEN, false, TOW_CHECK_KERNEL,
         "over other contents of its results and scratch memory: result 0, element 3", 3},
        {OVERRUN, false, TOW_CHECK_KERNEL, "row-major operands: it writes outside of result 0", -1},
        {SCRATCH, false, TOW_CHECK_KERNEL, "it writes outside of the 16 bytes of scratch memory", -1},
        {OPERAND, false, TOW_CHECK_KERNEL, "it writes to operand 0", -1},
        {JVP, false, TOW_CHECK_JVP, "tangent of result 0, element", -1},
        {TANGENT_TYPE, false, TOW_CHECK_JVP, "the tangent of result 0 must be f64[4,3], its jvp gives f64[3]", -1},
        {SECOND, false, TOW_CHECK_GRADIENT, "second derivative: tangent of result 0, element", -1},
        {TRANSPOSE, true, TOW_CHECK_TRANSPOSE, "<ct, J v> = ", -1},
        {BATCH, false, TOW_CHECK_BATCH, "", -1},
        {BATCH_AXIS, false, TOW_CHECK_BATCH, "its batching rule must write result 0", -1},
        {TILING, false, TOW_CHECK_TILING, "blocks of 1 along axis 0, of 4 elements, differ from the whole", -1},
        {TEXT, false, TOW_CHECK_TEXT, "has other bits", -1},
        {SIZES, false, TOW_CHECK_SIZES, "no columns, no derivative", -1},
        {MEMORY, false, TOW_CHECK_MEMORY, "expected the status \"out of memory\", found \"invalid argument\"", -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        seen s;
        tow_check_summary summary;
        /* the wrong tiling has wrong derivatives as well, and the secret a wrong value: other checks find those */
        const tow_check_options options =
            TOW_CHECK_OPTIONS(.without = cases[i].fault == TILING ? ~(1u << TOW_CHECK_TILING) : 0);
        const tow_status status = check(cases[i].fault, cases[i].flips, &options, &s, &summary);
        if (status != TOW_CHECK_FAILED || s.first.kind != cases[i].kind || !strstr(s.text, cases[i].text))
            fail_msg("case %zu: expected %s: %s, found %s: %s", i, tow_check_name(cases[i].kind), cases[i].text,
                     s.n ? tow_check_name(s.first.kind) : "nothing", s.text);
        if (cases[i].element >= 0) assert_int_equal(s.first.element, cases[i].element);
        assert_int_equal(summary.failures, s.n);
        assert_int_equal(summary.failures > 0, true);
    }
}

/* ---- what may not be checked ------------------------------------------------------------------------------------- */

static void test_arguments(void **state)
{
    (void)state;
    fault none = NONE;
    const tow_primitive_definition d = mix_definition(&none);
    const tow_primitive *p;
    const tow_check_input wrong[] = {{.type = {TOW_F32, 2, {4, 3}}}, {.type = {TOW_F32, 1, {3}}}};
    tow_check_case c = {.inputs = wrong};
    OK(tow_primitive_define(ctx, &d, &p));
    assert_int_equal(tow_primitive_check(NULL, p, 1, &c, NULL, NULL), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_primitive_check(ctx, NULL, 1, &c, NULL, NULL), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_primitive_check(ctx, p, 1, NULL, NULL, NULL), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_primitive_check(ctx, p, 1, &c, NULL, NULL), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "expected attributes, found NULL"));
    c.attributes = &parameters;
    assert_int_equal(tow_primitive_check(ctx, p, 1, &c, NULL, NULL), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "expected two matrices of one float type"));
    c.inputs = NULL;
    assert_int_equal(tow_primitive_check(ctx, p, 1, &c, NULL, NULL), TOW_INVALID_ARGUMENT);
    tow_context *other = NULL;
    OK(tow_context_create(NULL, &other));
    assert_int_equal(tow_primitive_check(other, p, 1, &c, NULL, NULL), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(other), "defined in this context"));
    tow_context_free(other);
    OK(tow_primitive_check(ctx, p, 0, NULL, NULL, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
