/* Verified programs: what a run makes again is compared with what it made first. A primitive that lies about its bits
 * in one of its calls is found wherever a value is made twice, and named; nothing else is.
 *
 * Tests ops/same_bits.c, kernels/same_bits.c, kernels/element_text.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/threaded_context.h"
#include "tow/tow.h"

enum {
    ROWS = 2,
    WIDTH = 3,
    COUNT = ROWS * WIDTH,
    LENGTH = 6,
    MOST_CALLS = 256
};

/* ---- a primitive that lies --------------------------------------------------------------------------------------- */

/* y = x / 2 with the derivative y, which is wrong but makes a gradient read y. In call `lie` the last element gets
 * another bit. */
typedef struct liar {
    int calls, lie;         /* -1: never */
    float seen[MOST_CALLS]; /* the first element of x in each call, which tells values apart */
} liar;

static liar the_liar;

static tow_status liar_type(const tow_primitive_rule *rule, const tow_type *in, tow_type *out)
{
    (void)rule;
    out[0] = in[0];
    return TOW_OK;
}

static void liar_run(const tow_kernel_call *call)
{
    const tow_buffer *x = &call->inputs[0];
    float *y = call->outputs[0].data;
    liar *l = call->user;
    if (l->calls < MOST_CALLS) l->seen[l->calls] = *(const float *)x->data;
    for (int64_t i = 0; i < x->dims[0]; i++)
        for (int64_t j = 0; j < x->dims[1]; j++)
            y[i * x->dims[1] + j] = ((const float *)x->data)[i * x->strides[0] + j * x->strides[1]] / 2;
    if (l->calls++ == l->lie) {
        uint32_t bits;
        memcpy(&bits, &y[COUNT - 1], sizeof bits);
        bits ^= 0x100;
        memcpy(&y[COUNT - 1], &bits, sizeof bits);
    }
}

static void liar_jvp(tow_trace *t, const tow_primitive_rule *rule, const tow_value *x, const tow_value *dx,
                     tow_value *y, tow_value *dy)
{
    tow_primitive_call(t, tow_primitive_find(rule->context, "liar"), NULL, x, y);
    dy[0] = tow_mul(dx[0], y[0]);
}

static tow_value lie(tow_trace *t, tow_value x)
{
    static const tow_primitive_definition definition = {.name = "liar",
                                                        .n_inputs = 1,
                                                        .n_outputs = 1,
                                                        .type = liar_type,
                                                        .kernel = {.run = liar_run},
                                                        .jvp = liar_jvp,
                                                        .user = &the_liar};
    tow_context *context = tow_trace_context(t);
    const tow_primitive *primitive = tow_primitive_find(context, "liar");
    tow_value y = {0};
    if (!primitive) OK(tow_primitive_define(context, &definition, &primitive));
    tow_primitive_call(t, primitive, NULL, &x, &y);
    return y;
}

/* ---- programs: x [ROWS, WIDTH] -> a scalar ----------------------------------------------------------------------- */

static void once(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    out[0] = tow_sin(tow_add_scalar(lie(t, tow_sin(in[0])), 1));
}

static void in_region(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(t, once, user, NULL, 1, in, 1, out);
}

/* Layers in a row without a region. */
static void row(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    out[0] = in[0];
    for (int i = 0; i < LENGTH; i++) once(t, out, out, user);
}

static void regions(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    out[0] = in[0];
    for (int i = 0; i < 3; i++) in_region(t, out, out, user);
}

static void two_regions(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(t, in_region, user, NULL, 1, in, 1, out);
    tow_remat_function(t, in_region, user, NULL, 1, out, 1, out);
}

static void scan(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_scan_function(t, once, user, &TOW_SCAN_OPTIONS(.length = LENGTH), 1, in, 0, NULL, 0, out, NULL);
}

static void scan_of_regions(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_scan_function(t, in_region, user, &TOW_SCAN_OPTIONS(.length = LENGTH), 1, in, 0, NULL, 0, out, NULL);
}

static void region_of_scan(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(t, scan, user, NULL, 1, in, 1, out);
}

static void scheduled(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = LENGTH, .schedule = {.slots = 2});
    tow_scan_function(t, once, user, &options, 1, in, 0, NULL, 0, out, NULL);
}

static void in_a_file(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = LENGTH, .schedule = {.slots = 2, .file_slots = 1});
    tow_scan_function(t, once, user, &options, 1, in, 0, NULL, 0, out, NULL);
}

static void every_second(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = LENGTH, .schedule = {.every = 2});
    tow_scan_function(t, once, user, &options, 1, in, 0, NULL, 0, out, NULL);
}

static void below(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_lt(in[1], tow_scalar(t, TOW_I32, 4));
}

static void count_on(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    once(t, in, out, user);
    out[1] = tow_add_scalar(in[1], 1);
}

static void loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value both[] = {in[0], tow_scalar(t, TOW_I32, 0)};
    tow_while_function(t, below, count_on, user, &TOW_WHILE_OPTIONS(.max_iterations = 5), 2, both, both);
    out[0] = both[0];
}

static void region_of_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(t, loop, user, NULL, 1, in, 1, out);
}

static void choice(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_value positive = tow_lt(tow_reduce_sum(in[0], 0, NULL), tow_scalar(t, TOW_F32, 100));
    tow_cond_function(t, positive, in_region, once, user, 1, in, 1, out);
}

static void region_of_choice(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(t, choice, user, NULL, 1, in, 1, out);
}

static void sum_of(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_function *function = user;
    (*function)(t, in, out, NULL);
    out[0] = tow_reduce_sum(tow_sin(out[0]), 0, NULL);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

typedef struct setting {
    const char *name;
    tow_function function;
    bool limited; /* by the least memory limit that is possible */
    int twice;    /* so many calls at least make a value that another one makes, too */
} setting;

static const setting settings[] = {
    {"a row of layers within a limit", row, true, 2},
    {"a region", in_region, false, 2},
    {"regions", regions, false, 6},
    {"nested regions", two_regions, false, 4},
    {"a scan of regions", scan_of_regions, false, 2 * LENGTH},
    {"a region of a scan", region_of_scan, false, 2 * LENGTH},
    {"a scan within a limit", scan, true, 2},
    {"a scheduled scan", scheduled, false, 2 * LENGTH},
    {"a scan with states in a file", in_a_file, false, 2 * LENGTH},
    {"a scan that keeps every second state", every_second, false, LENGTH},
    {"a region of a while", region_of_loop, false, 8},
    {"a region of a choice", region_of_choice, false, 2},
};

static const float input[COUNT] = {0.25F, -0.5F, 0.75F, 1, -1.25F, 1.5F};

static tow_graph *gradient_of(tow_function function)
{
    const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, WIDTH});
    tow_graph *loss, *gradient;
    OK(tow_trace_function(ctx, sum_of, &function, 1, &type, NULL, 1, &loss));
    OK(tow_value_and_grad(loss, 0, NULL, false, &gradient));
    tow_graph_release(loss);
    return gradient;
}

static tow_program *compile(const setting *s, bool verify, int threads)
{
    tow_graph *gradient = gradient_of(s->function);
    tow_program *program;
    tow_memory_point least = {0};
    size_t n;
    tow_compile_options options = TOW_COMPILE_OPTIONS(.threads = threads);
    if (s->limited) OK(tow_memory_curve(ctx, gradient, &options, 1, &least, &n));
    options.memory_limit = least.bytes;
    options.verify = verify;
    OK(tow_compile(ctx, gradient, &options, &program));
    OK(tow_program_check(program));
    tow_graph_release(gradient);
    return program;
}

/* One run in which call `lie` lies. out: the loss and the gradient. */
static tow_status run(tow_program *p, int lie, const float *x, float *out)
{
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, WIDTH}), tow_make_type(TOW_F32, 0, NULL)};
    tow_array *in, *results[2];
    OK(tow_array_from_data(ctx, types[0], x, &in));
    OK(tow_array_create(ctx, types[1], &results[0]));
    OK(tow_array_create(ctx, types[0], &results[1]));
    the_liar = (liar){.lie = lie};
    tow_context_clear_error(ctx);
    const tow_status status = tow_program_run(p, &in, results);
    memcpy(out, tow_array_data(results[0]), sizeof *out);
    memcpy(out + 1, tow_array_data(results[1]), COUNT * sizeof *out);
    tow_array_release(in);
    for (int i = 0; i < 2; i++) tow_array_release(results[i]);
    return status;
}

/* A run that nobody lies in ends well and has the bits of a program that is not verified, and a single lie is found if
 * and only if the value of that call is made more than once. */
static void check_setting(const setting *s, int threads)
{
    float expected[1 + COUNT], got[1 + COUNT];
    tow_program *plain = compile(s, false, threads), *verified = compile(s, true, threads);
    OK(run(plain, -1, input, expected));
    if (run(verified, -1, input, got) != TOW_OK) fail_msg("%s: %s", s->name, tow_context_error(ctx));
    assert_memory_equal(got, expected, sizeof got);
    const liar honest = the_liar;
    assert_in_range(honest.calls, 1, MOST_CALLS - 1);
    int found = 0;
    for (int k = 0; k < honest.calls; k++) {
        int same = 0;
        for (int i = 0; i < honest.calls; i++) same += honest.seen[i] == honest.seen[k];
        const tow_status status = run(verified, k, input, got);
        if ((status == TOW_CHECK_FAILED) != (same > 1))
            fail_msg("%s: a lie in call %d of %d, a value that is made %d times: status %d, %s", s->name, k,
                     honest.calls, same, (int)status, tow_context_error(ctx));
        if (status != TOW_CHECK_FAILED) continue;
        assert_non_null(strstr(tow_context_error(ctx), "result 0 has other bits when it is made again"));
        found++;
    }
    if (found < s->twice) fail_msg("%s: %d lies of %d were found, expected %d", s->name, found, honest.calls, s->twice);
    if (run(verified, -1, input, got) != TOW_OK) fail_msg("%s: %s", s->name, tow_context_error(ctx));
    tow_program_free(plain);
    tow_program_free(verified);
}

static void test_lies(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (int threads = 1; threads <= 2; threads++) check_setting(&settings[i], threads);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void expect_message(const char *part)
{
    if (!strstr(tow_context_error(ctx), part)) fail_msg("expected \"%s\", found \"%s\"", part, tow_context_error(ctx));
}

static void test_message(void **state)
{
    (void)state;
    float out[1 + COUNT];
    tow_program *p = compile(&(setting){.function = in_region}, true, 1);
    assert_int_equal(run(p, 1, input, out), TOW_CHECK_FAILED); /* sin 1.5 / 2 = 0.49874750 */
    expect_message("test_same_bits.c:");
    expect_message("liar: result 0 has other bits when it is made again: at [1, 2] of f32[2,3] it was 0x3eff5bd5 "
                   "(0.4987475), and is 0x3eff5ad5 (0.49873987)");
    tow_program_free(p);
    p = compile(&(setting){.function = scan_of_regions}, true, 1);
    assert_int_equal(run(p, LENGTH + 1, input, out),
                     TOW_CHECK_FAILED); /* iterations are made again from the last one */
    expect_message("made again, in iteration 4: at [1, 2] of f32[2,3] it was 0x");
    tow_program_free(p);
    p = compile(&(setting){.function = scheduled}, true, 1);
    assert_int_equal(run(p, LENGTH, input, out), TOW_CHECK_FAILED);
    expect_message(", in iteration ");
    tow_program_free(p);
}

/* NaNs with equal bits are equal. */
static void test_nan(void **state)
{
    (void)state;
    float x[COUNT], out[1 + COUNT];
    const uint32_t nans[] = {0x7fc00000, 0xffc00001, 0x7f800000, 0x80000000};
    memcpy(x, input, sizeof x);
    memcpy(x, nans, sizeof nans);
    tow_program *p = compile(&(setting){.function = regions}, true, 1);
    OK(run(p, -1, x, out));
    assert_int_equal(run(p, 4, x, out), TOW_CHECK_FAILED);
    tow_program_free(p);
}

/* x y + x / y: the backward pass divides once more, in place of keeping the quotient. */
static void quotient(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add(tow_mul(in[0], tow_exp(in[0])), tow_div(in[0], tow_exp(in[0])));
}

/* Values that are made again although there is no region are compared, too. */
static void test_thin(void **state)
{
    (void)state;
    float out[1 + COUNT], expected[1 + COUNT];
    const setting s = {.function = quotient};
    tow_program *plain = compile(&s, false, 1), *verified = compile(&s, true, 1);
    OK(run(plain, -1, input, expected));
    OK(run(verified, -1, input, out));
    assert_memory_equal(out, expected, sizeof out);
    assert_int_equal(tow_program_operation_count(plain, "same_bits"), 0);
    assert_int_equal(tow_program_operation_count(verified, "div"), tow_program_operation_count(plain, "div"));
    assert_in_range(tow_program_operation_count(verified, "same_bits"), 1, 3);
    tow_program_free(plain);
    tow_program_free(verified);
}

/* A graph that does not say of what it is the gradient is verified only if it compares already. */
static void test_other_graphs(void **state)
{
    (void)state;
    tow_graph *gradient = gradient_of(regions), *mapped, *forward;
    tow_program *p;
    OK(tow_vmap(gradient, 2, NULL, NULL, &mapped));
    assert_int_equal(tow_compile(ctx, mapped, &TOW_COMPILE_OPTIONS(.verify = true), &p), TOW_UNSUPPORTED);
    expect_message("make it in a context with .verify");
    tow_graph_release(mapped);
    tow_graph_release(gradient);
    const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, WIDTH});
    tow_function function = regions;
    OK(tow_trace_function(ctx, sum_of, &function, 1, &type, NULL, 1, &forward));
    OK(tow_compile(ctx, forward, &TOW_COMPILE_OPTIONS(.verify = true), &p)); /* makes nothing again */
    assert_int_equal(tow_program_operation_count(p, "same_bits"), 0);
    tow_program_free(p);
    tow_graph_release(forward);
}

/* In a context that verifies, all gradients compare. */
static void test_context(void **state)
{
    (void)state;
    const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, WIDTH});
    tow_context *before = ctx;
    tow_graph *loss, *gradient, *mapped;
    tow_program *p;
    tow_function function = scan_of_regions;
    OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1, .verify = true), &ctx));
    OK(tow_trace_function(ctx, sum_of, &function, 1, &type, NULL, 1, &loss));
    OK(tow_grad(loss, 0, NULL, false, &gradient));
    OK(tow_vmap(gradient, 2, NULL, NULL, &mapped));
    OK(tow_compile(ctx, mapped, &TOW_COMPILE_OPTIONS(.verify = true), &p));
    assert_int_equal(tow_program_operation_count(p, "same_bits"), 5 * LENGTH);
    tow_program_free(p);
    tow_graph_release(loss);
    tow_graph_release(gradient);
    tow_graph_release(mapped);
    tow_context_free(ctx);
    ctx = before;
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* A layer that lies, between two that learn. */
typedef struct liar_layer {
    tow_module module;
} liar_layer;

static void call_liar(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)scope, (void)module, (void)n_in, (void)n_out;
    once(tow_value_trace(in[0]), in, out, NULL);
}

static void square_loss(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                        tow_value *aux, void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(tow_square(outputs[0]), 0, NULL);
}

/* A step that meets a difference says where, and changes nothing: the next one is the one that it would have been. */
static void test_step(void **state)
{
    static const tow_module_class liar_class = {.name = "Liar", .call = call_liar};
    const liar_layer layer = {.module.cls = &liar_class};
    (void)state;
    const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, WIDTH});
    tow_dense first_layer = TOW_DENSE(.features = WIDTH), last_layer = TOW_DENSE(.features = WIDTH);
    tow_remat region = TOW_REMAT(&layer);
    tow_sequential model = TOW_SEQUENTIAL(&first_layer.module, &region.module, &last_layer.module);
    for (int early = 0; early < 2; early++) {
        tow_train_state *t;
        tow_array *x;
        double first, again;
        OK(tow_train_create(ctx, TOW_MODULE(&model),
                            &TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.1}},
                                               .n_inputs = 1, .input_types = &type, .loss = square_loss,
                                               .early_update = early, .verify = true),
                            &t));
        OK(tow_array_from_data(ctx, type, input, &x));
        the_liar = (liar){.lie = 1};
        assert_int_equal(tow_train_step(t, &x, &first), TOW_CHECK_FAILED);
        expect_message("liar: result 0 has other bits");
        expect_message("layers_1");
        the_liar = (liar){.lie = -1};
        OK(tow_train_step(t, &x, &first));
        tow_train_free(t);
        OK(tow_train_create(ctx, TOW_MODULE(&model),
                            &TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.1}},
                                               .n_inputs = 1, .input_types = &type, .loss = square_loss,
                                               .early_update = early),
                            &t));
        OK(tow_train_step(t, &x, &again));
        assert_memory_equal(&first, &again, sizeof first);
        tow_array_release(x);
        tow_train_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lies), cmocka_unit_test(test_message),      cmocka_unit_test(test_nan),
        cmocka_unit_test(test_thin), cmocka_unit_test(test_other_graphs), cmocka_unit_test(test_context),
        cmocka_unit_test(test_step),
    };
    return cmocka_run_group_tests_name("same_bits", tests, setup, teardown);
}
