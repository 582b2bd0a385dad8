/* Defined primitives among others: in regions, under policies and vmap, in plans with tiles and threads, while
 * allocations fail. The primitive is x^2 in C, so every program has a twin in built-in primitives with the same
 * bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tow/tow.h"

static tow_status square_type(const tow_primitive_rule *rule, const tow_type *in, tow_type *out)
{
    if (in[0].dtype != TOW_F32) return tow_primitive_fail(rule, TOW_TYPE_MISMATCH, "expected f32");
    out[0] = in[0];
    return TOW_OK;
}

/* user: counts the calls, if there is one thread. */
static void square_range(int64_t begin, int64_t end, void *argument)
{
    const tow_kernel_call *call = argument;
    const tow_buffer *x = &call->inputs[0];
    for (int64_t i = begin; i < end; i++) {
        int64_t at = 0, rest = i;
        for (int d = x->rank; d-- > 0; rest /= x->dims[d]) at += rest % x->dims[d] * x->strides[d];
        const float e = ((const float *)x->data)[at];
        ((float *)call->outputs[0].data)[i] = e * e;
    }
}

static void square_run(const tow_kernel_call *call)
{
    tow_kernel_call copy = *call;
    int64_t count = 1;
    for (int d = 0; d < call->outputs[0].rank; d++) count *= call->outputs[0].dims[d];
    if (call->user) ++*(int *)call->user;
    tow_kernel_parallel(call, count, square_range, &copy);
}

/* Another function, to tell who runs. */
static void cube_run(const tow_kernel_call *call)
{
    const float x = *(const float *)call->inputs[0].data;
    *(float *)call->outputs[0].data = x * x * x;
}

/* dy = 2 x dx, as integer_pow has it */
static void square_jvp(tow_trace *t, const tow_primitive_rule *rule, const tow_value *x, const tow_value *dx,
                       tow_value *y, tow_value *dy)
{
    tow_primitive_call(t, tow_primitive_find(rule->context, "sq"), NULL, x, y);
    dy[0] = tow_mul(dx[0], tow_mul_scalar(x[0], 2));
}

/* Reads y, so that y is a residual or made again: dy = y dx */
static void reading_jvp(tow_trace *t, const tow_primitive_rule *rule, const tow_value *x, const tow_value *dx,
                        tow_value *y, tow_value *dy)
{
    tow_primitive_call(t, tow_primitive_find(rule->context, "sq"), NULL, x, y);
    dy[0] = tow_mul(y[0], dx[0]);
}

static void square_batch(tow_trace *t, const tow_primitive_rule *rule, int64_t size, const tow_value *x,
                         const int *axes, tow_value *y, int *y_axes)
{
    (void)size;
    tow_primitive_call(t, tow_primitive_find(rule->context, "sq"), NULL, x, y);
    y_axes[0] = axes[0];
}

static void square_decompose(tow_trace *t, const tow_primitive_rule *rule, const tow_value *x, tow_value *y)
{
    (void)t, (void)rule;
    y[0] = tow_integer_pow(x[0], 2);
}

static const tow_primitive_definition square = {.name = "sq",
                                                .n_inputs = 1,
                                                .n_outputs = 1,
                                                .type = square_type,
                                                .kernel = {.run = square_run},
                                                .jvp = square_jvp,
                                                .tiling = TOW_TILING_ELEMENTWISE};

static tow_context *context_with(const tow_primitive_definition *d, int threads, bool portable)
{
    tow_context *ctx = NULL;
    const tow_primitive *p;
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.threads = threads, .portable_bits = portable);
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    if (tow_primitive_define(ctx, d, &p) != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    return ctx;
}

/* Results on numbers k/8, all in one array. */
static size_t run(const tow_graph *graph, const tow_compile_options *options, float *results)
{
    tow_context *ctx = tow_graph_context(graph);
    tow_array *in[4] = {NULL}, *out[4] = {NULL};
    tow_program *program = NULL;
    size_t n = 0;
    for (size_t i = 0; i < tow_graph_input_count(graph); i++) {
        const tow_type type = tow_graph_input_type(graph, i);
        assert_int_equal(tow_array_create(ctx, type, &in[i]), TOW_OK);
        for (int64_t k = 0; k < tow_type_element_count(type); k++)
            ((float *)tow_array_data(in[i]))[k] = (float)((k * 7 + 3) % 17 - 6) / 8;
    }
    for (size_t i = 0; i < tow_graph_output_count(graph); i++)
        assert_int_equal(tow_array_create(ctx, tow_graph_output_type(graph, i), &out[i]), TOW_OK);
    if (tow_compile(ctx, graph, options, &program) != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    assert_int_equal(tow_program_check(program), TOW_OK);
    assert_int_equal(tow_program_run(program, in, out), TOW_OK);
    for (size_t i = 0; i < tow_graph_output_count(graph); i++) {
        const int64_t count = tow_type_element_count(tow_graph_output_type(graph, i));
        memcpy(results + n, tow_array_data(out[i]), (size_t)count * sizeof *results);
        n += (size_t)count;
    }
    tow_program_free(program);
    for (size_t i = 0; i < 4; i++) tow_array_release(in[i]), tow_array_release(out[i]);
    return n;
}

static tow_graph *parse(tow_context *ctx, const char *text)
{
    tow_graph *graph = NULL;
    if (tow_graph_parse(ctx, text, &graph) != TOW_OK) fail_msg("%s in\n%s", tow_context_error(ctx), text);
    return graph;
}

/* ---- regions: the same bits as the twin, which has integer_pow[exponent=2] in place of sq ------------------------ */

#define FUNCTION(equations, result) "{ lambda ; x:f32[3]. let\n" equations "  in (" result ") }"
#define SUM(equations)              FUNCTION(equations " s:f32[] = reduce_sum[axes=(0)] y\n", "s") "\n"

static const char *const programs[] = {
    SUM(" y:f32[3] = sq x\n"),
    SUM(" z:f32[3] = sin x\n w:f32[3] = sq z\n y:f32[3] = sq w\n"),
    SUM(" y:f32[3] = remat[policy=\"nothing\" body=" FUNCTION(" z:f32[3] = sq x\n y:f32[3] = sin z\n w:f32[3] = sq y\n",
                                                              "w") "] x\n"),
    SUM(" y:f32[3] = remat[policy=\"dots\" body=" FUNCTION(
        " z:f32[3] = sq x\n y:f32[3] = remat[policy=\"nothing\" body=" FUNCTION(" y:f32[3] = sq x\n z:f32[3] = exp y\n",
                                                                                "z") "] z\n",
        "y") "] x\n"),
    SUM(" y:f32[3] = scan[length=4 reverse=false consts=0 carry=1 body=" FUNCTION(
        " z:f32[3] = sq x\n y:f32[3] = sin z\n", "y") "] x\n"),
    SUM(" y:f32[3] = scan[length=3 reverse=true consts=1 carry=1 body={ lambda ; c:f32[3] x:f32[3]. let\n"
        " d:f32[3] = sq c\n z:f32[3] = mul d x\n y:f32[3] = remat[policy=\"nothing\" body=" FUNCTION(
            " z:f32[3] = sq x\n y:f32[3] = cos z\n", "y") "] z\n"
                                                          "  in (y) }] x x\n"),
    SUM(" m:f32[] = reduce_max[axes=(0)] x\n c:f32[] = const[value=0.1]\n p:bool[] = gt m c\n"
        " y:f32[3] = cond[branches=(" FUNCTION(" y:f32[3] = sq x\n", "y") " " FUNCTION(
            " z:f32[3] = sin x\n y:f32[3] = sq z\n", "y") ")] p x\n"),
    SUM(" y:f32[3] = while[consts=0 max_iterations=5 condition=" FUNCTION(
        " m:f32[] = reduce_max[axes=(0)] x\n c:f32[] = const[value=0.01]\n p:bool[] = gt m c\n",
        "p") " body=" FUNCTION(" z:f32[3] = sq x\n y:f32[3] = sin z\n", "y") "] x\n"),
};

/* integer_pow for sq */
static void twin_of(const char *text, char *twin)
{
    while (*text) {
        if (strncmp(text, "= sq ", 5) != 0) {
            *twin++ = *text++;
            continue;
        }
        twin += sprintf(twin, "= integer_pow[exponent=2] ");
        text += 5;
    }
    *twin = '\0';
}

static void compare(tow_graph *a, tow_graph *b, const char *how, const char *text)
{
    float x[64], y[64];
    const size_t n = run(a, NULL, x);
    assert_int_equal(run(b, NULL, y), n);
    if (memcmp(x, y, n * sizeof *x) != 0) fail_msg("%s has other bits than its twin:\n%s", how, text);
    tow_graph_release(a);
    tow_graph_release(b);
}

static tow_graph *derived(const tow_graph *graph, int how)
{
    tow_graph *result = NULL, *gradient = NULL;
    tow_status status = TOW_OK;
    if (how == 0) status = tow_value_and_grad(graph, 0, NULL, false, &result);
    if (how == 1) status = tow_vmap(graph, 3, NULL, NULL, &result);
    if (how == 2) status = tow_jvp(graph, 0, NULL, &result);
    if (how == 3) {
        status = tow_grad(graph, 0, NULL, false, &gradient);
        if (status == TOW_OK) status = tow_vmap(gradient, 2, NULL, NULL, &result);
    }
    tow_graph_release(gradient);
    if (status != TOW_OK) fail_msg("%s", tow_context_error(tow_graph_context(graph)));
    return result;
}

/* With a rule for vmap, without any, and decomposed. */
static void test_regions(void **state)
{
    (void)state;
    tow_primitive_definition definitions[4] = {square, square, square, square};
    definitions[1].batch = square_batch;
    definitions[2].jvp = NULL, definitions[2].decompose = square_decompose;
    definitions[3].varies = true, definitions[3].tiling = TOW_TILING_NONE;
    for (size_t d = 0; d < 4; d++) {
        tow_context *ctx = context_with(&definitions[d], 1, true);
        for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
            char twin[4096];
            twin_of(programs[i], twin);
            tow_graph *a = parse(ctx, programs[i]), *b = parse(ctx, twin);
            for (int how = 0; how < 4; how++) compare(derived(a, how), derived(b, how), "what is derived", programs[i]);
            compare(a, b, "the program", programs[i]);
        }
        tow_context_free(ctx);
    }
}

/* ---- policies: how often the kernel runs for a value and its gradient -------------------------------------------- */

static void test_policies(void **state)
{
    static const struct {
        const char *policy;
        tow_primitive_dot dot;
        bool varies;
        int calls;
    } cases[] = {
        {"everything", TOW_NO_DOT, false, 1},
        {"nothing", TOW_NO_DOT, false, 2},
        {"nothing", TOW_NO_DOT, true, 1},
        {"nothing", TOW_PLAIN_DOT, false, 2},
        {"dots", TOW_NO_DOT, false, 2},
        {"dots", TOW_NO_DOT, true, 1},
        {"dots", TOW_PLAIN_DOT, false, 1},
        {"dots", TOW_BATCHED_DOT, false, 1},
        {"dots_with_no_batch_dims", TOW_PLAIN_DOT, false, 1},
        {"dots_with_no_batch_dims", TOW_BATCHED_DOT, false, 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int calls = 0;
        float results[8];
        char text[512];
        tow_primitive_definition d = square;
        d.user = &calls, d.jvp = reading_jvp, d.dot = cases[i].dot, d.varies = cases[i].varies;
        if (d.varies) d.tiling = TOW_TILING_NONE;
        tow_context *ctx = context_with(&d, 1, false);
        snprintf(
            text, sizeof text,
            SUM(" y:f32[3] = remat[policy=\"%s\" body=" FUNCTION(" z:f32[3] = sq x\n y:f32[3] = sin z\n", "y") "] x\n"),
            cases[i].policy);
        tow_graph *graph = parse(ctx, text), *gradient;
        assert_int_equal(tow_value_and_grad(graph, 0, NULL, false, &gradient), TOW_OK);
        run(gradient, NULL, results);
        if (calls != cases[i].calls)
            fail_msg("case %zu, policy %s: expected %d calls, found %d", i, cases[i].policy, cases[i].calls, calls);
        tow_graph_release(gradient);
        tow_graph_release(graph);
        tow_context_free(ctx);
    }
}

/* ---- plans: tiles, threads --------------------------------------------------------------------------------------- */

static void test_tiles(void **state)
{
    static const char text[] = "{ lambda ; x:f32[1024,64] w:f32[64,64]. let\n"
                               "    a:f32[1024,64] = dot_general[lhs_contract=(1) rhs_contract=(0)] x w\n"
                               "    b:f32[1024,64] = sq a\n"
                               "    c:f32[1024,64] = dot_general[lhs_contract=(1) rhs_contract=(0)] b w\n"
                               "    d:f32[1024,64] = sq c\n"
                               "    e:f32[1024,64] = dot_general[lhs_contract=(1) rhs_contract=(0)] d w\n"
                               "  in (e) }\n";
    (void)state;
    float *expected = malloc(65536 * sizeof *expected), *found = malloc(65536 * sizeof *found);
    char *plan = malloc(1 << 16);
    tow_context *ctx = context_with(&square, 2, false);
    tow_graph *graph = parse(ctx, text);
    tow_program *program;
    assert_non_null(expected);
    assert_non_null(found);
    run(graph, &TOW_COMPILE_OPTIONS(.no_regions = true), expected);
    run(graph, NULL, found);
    assert_memory_equal(expected, found, 65536 * sizeof *found);
    /* both are in the tile group, between the products */
    assert_int_equal(tow_compile(ctx, graph, &TOW_COMPILE_OPTIONS(.plan_only = true), &program), TOW_OK);
    tow_program_text(program, plan, 1 << 16);
    const char *group = strstr(plan, "tile_group"), *first = group ? strstr(group, "= sq(") : NULL;
    assert_non_null(group);
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "= sq("));
    tow_program_free(program);
    tow_graph_release(graph);
    tow_context_free(ctx);
    free(expected);
    free(found);
    free(plan);
}

/* Contexts with portable bits run the reference. */
static void test_reference(void **state)
{
    (void)state;
    tow_primitive_definition d = square;
    float y[1];
    d.reference.run = cube_run;
    for (int portable = 0; portable < 2; portable++) {
        tow_context *ctx = context_with(&d, 1, portable);
        tow_graph *graph = parse(ctx, "{ lambda ; x:f32[]. let\n y:f32[] = sq x\n  in (y) }\n");
        run(graph, NULL, y);
        const float x = (float)(3 - 6) / 8;
        assert_true(y[0] == (portable ? x * x * x : x * x));
        tow_graph_release(graph);
        tow_context_free(ctx);
    }
}

/* ---- allocations that fail --------------------------------------------------------------------------------------- */

static tow_status do_everything(tow_context *ctx)
{
    const tow_primitive *p;
    tow_graph *graph = NULL, *gradient = NULL, *batched = NULL;
    tow_program *program = NULL;
    tow_status status = tow_primitive_define(ctx, &square, &p);
    if (!status) status = tow_graph_parse(ctx, programs[2], &graph);
    if (!status) status = tow_grad(graph, 0, NULL, false, &gradient);
    if (!status) status = tow_vmap(gradient, 3, NULL, NULL, &batched);
    if (!status) status = tow_compile(ctx, batched, NULL, &program);
    tow_program_free(program);
    tow_graph_release(batched);
    tow_graph_release(gradient);
    tow_graph_release(graph);
    return status;
}

static void test_allocations(void **state)
{
    (void)state;
    for (long n = 0;; n++) {
        counting count;
        tow_context *ctx = NULL;
        const tow_context_options options = counting_options(&count, -1);
        assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
        count.calls = 0;
        count.fail_at = n;
        const tow_status status = do_everything(ctx);
        const bool failed = count.calls > n;
        count.fail_at = -1;
        if (failed) assert_int_equal(status, TOW_OUT_OF_MEMORY);
        if (!failed) assert_int_equal(status, TOW_OK);
        tow_context_free(ctx);
        assert_int_equal(count.blocks, 0);
        assert_int_equal(count.wrong_sizes, 0);
        if (!failed) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regions),   cmocka_unit_test(test_policies),    cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_reference), cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
