/* Tests which engine runs each product of a program, and why: what programs tell is what runs.
 *
 * Tests engines.c, print.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "src/kernels/products/gemm_trial.h"
#include "tests/unit/support/counting_allocator.h"
#include "tow/autodiff.h"
#include "tow/ops.h"
#include "tow/program.h"

enum {
    LENGTH = 5,
    WIDTH = 48,
    LARGE = 192
};

static counting memory;

static tow_context *context_with(const char *engine, int threads)
{
    tow_context *ctx;
    memory = (counting){.fail_at = -1};
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.allocator = {.resize = counting_resize, .user = &memory},
                                                            .threads = threads, .engine = engine);
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    return ctx;
}

static void end(tow_context *ctx)
{
    tow_context_free(ctx);
    assert_int_equal(memory.blocks, 0);
}

/* in: x, w */
static void layer(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_tanh(tow_dot(in[0], in[1]));
}

/* in: x [WIDTH, WIDTH], ws [LENGTH, WIDTH, WIDTH] */
static void layers(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_value y;
    tow_scan_function(trace, layer, user, NULL, 1, in, 1, in + 1, 0, &y, NULL);
    out[0] = tow_reduce_sum(tow_mul(y, y), 0, NULL);
}

static tow_program *compile_layers(tow_context *ctx, int64_t width, bool plan_only)
{
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){width, width}),
                              tow_make_type(TOW_F32, 3, (int64_t[]){LENGTH, width, width})};
    tow_graph *loss = NULL, *gradient = NULL;
    tow_program *program = NULL;
    assert_int_equal(tow_trace_function(ctx, layers, NULL, 2, types, NULL, 1, &loss), TOW_OK);
    assert_int_equal(tow_value_and_grad(loss, 2, (const size_t[]){0, 1}, false, &gradient), TOW_OK);
    assert_int_equal(tow_compile(ctx, gradient, &TOW_COMPILE_OPTIONS(.plan_only = plan_only), &program), TOW_OK);
    tow_graph_release(loss);
    tow_graph_release(gradient);
    return program;
}

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Engine and reason name the same; returns the number of entries. */
static size_t check_entries(const tow_program *program, const char *reason)
{
    static const char *const names[][2] = {{"own", "own kernel: "},
                                           {"xsmm", "libxsmm: "},
                                           {"blis", "BLIS: "},
                                           {"amx", "matrix unit: "},
                                           {"reference", "reference: "}};
    tow_program_engine e;
    size_t n = 0, backward = 0;
    for (; tow_program_get_engine(program, n, &e); n++) {
        if (reason) assert_string_equal(e.reason, reason);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strcmp(e.engine, names[i][0]) == 0) assert_true(begins_with(e.reason, names[i][1]));
        assert_non_null(strstr(e.instruction, "dot"));
        assert_true(e.result.rank >= 2);
        backward += e.backward;
    }
    assert_false(tow_program_get_engine(program, n + 1, &e));
    assert_in_range(backward, 1, n - 1);
    return n;
}

/* Also within loops, and in both passes. */
static void every_product_has_an_engine_and_a_reason(void **state)
{
    (void)state;
    tow_context *ctx = context_with("own", 1);
    tow_program *program = compile_layers(ctx, WIDTH, true);
    assert_in_range(check_entries(program, "own kernel: forced by TOW_ENGINE or an option"), 3, 5);
    tow_program_free(program);
    end(ctx);
    ctx = context_with(NULL, 1);
    program = compile_layers(ctx, WIDTH, true);
    assert_in_range(check_entries(program, NULL), 3, 5);
    tow_program_free(program);
    end(ctx);
}

/* Compilation makes no trial; the first run of a program makes those of its products. */
static void trials_wait_for_the_first_run(void **state)
{
    (void)state;
    tow_context *ctx = context_with("-amx", 1);
    const tow__gemm_tally before = tow__gemm_count_trials();
    tow_program *program = compile_layers(ctx, WIDTH, false);
    const tow__gemm_tally compiled = tow__gemm_count_trials();
    assert_memory_equal(&before, &compiled, sizeof before);
    tow_program_free(program);
    end(ctx);
}

static void product(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_dot(in[0], in[1]);
}

/* A product of two matrices of LARGE rows, run several times on the same numbers. The results agree. */
static void run_large(tow_context *ctx, int times, float *result, tow_program_engine *engine)
{
    const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){LARGE, LARGE});
    static float x[LARGE * LARGE], y[LARGE * LARGE];
    tow_graph *graph = NULL;
    tow_program *program = NULL;
    tow_array *in[2], *out;
    for (int i = 0; i < LARGE * LARGE; i++)
        x[i] = (float)(i * 37 % 101) - 50, y[i] = 0.01f * (float)(i * 61 % 97) - 0.3f;
    assert_int_equal(tow_trace_function(ctx, product, NULL, 2, (tow_type[]){type, type}, NULL, 1, &graph), TOW_OK);
    assert_int_equal(tow_compile(ctx, graph, NULL, &program), TOW_OK);
    assert_int_equal(tow_array_borrow(ctx, type, x, &in[0]), TOW_OK);
    assert_int_equal(tow_array_borrow(ctx, type, y, &in[1]), TOW_OK);
    assert_int_equal(tow_array_create(ctx, type, &out), TOW_OK);
    for (int i = 0; i < times; i++) {
        assert_int_equal(tow_program_run(program, in, &out), TOW_OK);
        if (i > 0) assert_memory_equal(result, tow_array_data(out), sizeof x);
        memcpy(result, tow_array_data(out), sizeof x);
    }
    assert_true(tow_program_get_engine(program, 0, engine));
    tow_array_release(in[0]), tow_array_release(in[1]), tow_array_release(out);
    tow_program_free(program);
    tow_graph_release(graph);
}

/* On the machine at hand one of both engines wins a large product, the program says which, and no bit changes. */
static void the_first_runs_choose_an_engine(void **state)
{
    (void)state;
    static float want[LARGE * LARGE], found[LARGE * LARGE];
    tow_program_engine engine;
    tow_context *ctx = context_with("own", 1);
    run_large(ctx, 1, want, &engine);
    assert_string_equal(engine.reason, "own kernel: forced by TOW_ENGINE or an option");
    end(ctx);
    ctx = context_with("-amx", 1);
    run_large(ctx, 2, found, &engine);
    const bool open = strstr(engine.reason, "the first runs time it and BLIS") != NULL;
    assert_memory_equal(found, want, sizeof want);
    run_large(ctx, TOW__CONTEST_RUNS, found, &engine);
    assert_memory_equal(found, want, sizeof want);
    if (open) {
        const bool blis = strcmp(engine.engine, "blis") == 0;
        assert_true(
            begins_with(engine.reason, blis ? "BLIS: bits of the own kernel, " : "own kernel: timed ahead of BLIS, "));
    } else {
        assert_string_equal(engine.engine, "own"); /* there is no BLIS, or it has no kernel for this machine */
    }
    run_large(ctx, 1, found, &engine);
    assert_memory_equal(found, want, sizeof want);
    end(ctx);
}

/* Threads that share rows run products of half of them; what is told is what they run, and so it is decided. */
static void parallel_loops_tell_what_they_run(void **state)
{
    (void)state;
    enum {
        ROWS = 128
    };
    tow_context *ctx = context_with("-amx", 2);
    tow_program *program = compile_layers(ctx, ROWS, false);
    const tow_type x = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, ROWS}),
                   ws = tow_make_type(TOW_F32, 3, (int64_t[]){LENGTH, ROWS, ROWS});
    const tow_type types[] = {x, ws, tow_make_type(TOW_F32, 0, NULL), x, ws};
    tow_array *arrays[5];
    tow_program_engine e;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(tow_array_create(ctx, types[i], &arrays[i]), TOW_OK);
        memset(tow_array_data(arrays[i]), 0, (size_t)tow_type_element_count(types[i]) * sizeof(float));
    }
    for (int i = 0; i < 2 * TOW__CONTEST_RUNS; i++)
        assert_int_equal(tow_program_run(program, arrays, arrays + 2), TOW_OK);
    for (size_t i = 0; tow_program_get_engine(program, i, &e); i++) assert_null(strstr(e.reason, "the first runs"));
    for (int i = 0; i < 5; i++) tow_array_release(arrays[i]);
    tow_program_free(program);
    end(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_product_has_an_engine_and_a_reason),
        cmocka_unit_test(trials_wait_for_the_first_run),
        cmocka_unit_test(the_first_runs_choose_an_engine),
        cmocka_unit_test(parallel_loops_tell_what_they_run),
    };
    return cmocka_run_group_tests_name("engines of products", tests, NULL, NULL);
}
