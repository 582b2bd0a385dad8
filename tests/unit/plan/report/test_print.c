/* Time in printed plans: what the cost model says of each instruction and of a run, and what a recorded run took.
 *
 * Tests print.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/machines.h"
#include "tow/graph.h"
#include "tow/program.h"

static tow_context *ctx;
static const char machine[] =
    "l1=32K,l2=512K,l3=32M,vector=32,threads=1,f32=100,functions=10,l1_rate=100,l2_rate=50,overhead=100";

static int setup(void **state)
{
    (void)state;
    given_machine_begin(machine);
    return tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &ctx) == TOW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tow_context_free(ctx);
    given_machine_end();
    return 0;
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(ctx));                                       \
    } while (0)

/* 2 * 64 * 96 * 128 operations take 15.72864 us, 104 KiB of L2 2.12992, the call 0.1: 17.95856. The sum of 32 elements:
 * 0.0032 us, 384 bytes of L1 0.00384, the call 0.1: 0.10704. */
static const char text[] = "{ lambda ; x:f32[64,96] w:f32[96,128] a:f32[32]. let\n"
                           "    y:f32[64,128] = dot_general[lhs_contract=(1) rhs_contract=(0)] x w\n"
                           "    b:f32[32] = add a a\n"
                           "  in (y, b) }";

static tow_program *compile(bool plan_only)
{
    tow_graph *g;
    tow_program *p;
    OK(tow_graph_parse(ctx, text, &g));
    OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.plan_only = plan_only, .threads = 1), &p));
    tow_graph_release(g);
    return p;
}

static void expect_text(const tow_program *p, const char *const *parts, size_t n)
{
    const size_t length = tow_program_text(p, NULL, 0);
    char *plan = malloc(length + 1), *at = plan;
    assert_non_null(plan);
    tow_program_text(p, plan, length + 1);
    for (size_t i = 0; i < n; i++) {
        char *found = strstr(at, parts[i]);
        if (!found) fail_msg("\"%s\" is not behind what precedes it in:\n%s", parts[i], plan);
        at = found + strlen(parts[i]);
    }
    free(plan);
}

static void time_is_modelled(void **state)
{
    (void)state;
    tow_program *p = compile(true);
    static const char *const parts[] = {" = dot_general(",
                                        "  live ",
                                        "  18.0 us",
                                        " = add(",
                                        "  live ",
                                        "  0.107 us",
                                        "per run; 18.1 us by the cost model\n"};
    expect_text(p, parts, sizeof parts / sizeof *parts);
    tow_program_free(p);
}

static void recorded_time_stands_beside_it(void **state)
{
    (void)state;
    tow_program *p = compile(false);
    tow_array *arrays[5];
    static const int64_t dims[][2] = {{64, 96}, {96, 128}, {32}, {64, 128}, {32}};
    static const int ranks[] = {2, 2, 1, 2, 1};
    for (int i = 0; i < 5; i++) OK(tow_array_create(ctx, tow_make_type(TOW_F32, ranks[i], dims[i]), &arrays[i]));
    OK(tow_program_record(p, true));
    OK(tow_program_run(p, arrays, arrays + 3));
    static const char *const parts[] = {" = dot_general(", "  18.0 us, took ", " = add(", "  0.107 us, took ",
                                        "by the cost model, took "};
    expect_text(p, parts, sizeof parts / sizeof *parts);
    for (int i = 0; i < 5; i++) tow_array_release(arrays[i]);
    tow_program_free(p);
}

static void machines_that_are_none_are_refused(void **state)
{
    (void)state;
    tow_context *context;
    char description[2048];
    tow_context_describe(ctx, description, sizeof description);
    assert_non_null(strstr(description, "plans: given: f32 100, f64 48 GFLOP/s; L1 100, L2 50,"));
    setenv("TOW_MACHINE", "l1=32KB", 1);
    assert_int_equal(tow_context_create(NULL, &context), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(context), "TOW_MACHINE: expected KEY=NUMBER,... with whole numbers"));
    assert_non_null(strstr(tow_context_error(context), "found \"l1=32KB\""));
    assert_true(tow_context_options_check(NULL, description, sizeof description) > 0);
    tow_context_free(context);
    setenv("TOW_MACHINE", machine, 1);
    setenv("TOW_INSTRUCTIONS", "sse", 1);
    assert_int_equal(tow_context_create(NULL, &context), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(context), "TOW_INSTRUCTIONS: expected avx2 or avx512"));
    tow_context_free(context);
    unsetenv("TOW_INSTRUCTIONS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_is_modelled),
        cmocka_unit_test(recorded_time_stands_beside_it),
        cmocka_unit_test(machines_that_are_none_are_refused),
    };
    return cmocka_run_group_tests_name("print", tests, setup, teardown);
}
