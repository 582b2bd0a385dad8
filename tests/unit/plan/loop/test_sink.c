/* Updates of stacks, of which gradients are the stacked results of a scan, move into the scan and work in place; where
 * something else needs the gradients or the old values, they stay outside. The same bits without the passes.
 *
 * Tests sink.c, memory/hasten_updates.c, analysis/updates.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/failing_compiles.h"
#include "tests/unit/support/threaded_context.h"
#include "tow/graph.h"
#include "tow/program.h"

enum {
    MOST = 6
};

/* A backward pass over four layers, and updates by its gradients: inputs x w m rate, outputs a cotangent, w and m. */
#define BACKWARD(rest)                                                                                                 \
    "{ lambda ; x:f32[8,32] w:f32[4,32,32] m:f32[4,32,32] rate:f32[]. let\n"                                           \
    "    c:f32[8,32] g:f32[4,32,32] = scan[length=4 reverse=true consts=1 carry=1\n"                                   \
    "      body={ lambda ; x:f32[8,32] c:f32[8,32] w:f32[32,32]. let\n"                                                \
    "          g:f32[32,32] = dot_general[lhs_contract=(0) rhs_contract=(0)] x c\n"                                    \
    "          d:f32[8,32] = dot_general[lhs_contract=(1) rhs_contract=(1)] c w\n"                                     \
    "          t:f32[8,32] = tanh d\n"                                                                                 \
    "        in (t, g) }] x x w\n"                                                                                     \
    "    a:f32[4,32,32] = broadcast_in_dim[shape=(4,32,32) axes=()] rate\n"                                            \
    "    n:f32[4,32,32] = add m g\n"                                                                                   \
    "    u:f32[4,32,32] = mul a n\n"                                                                                   \
    "    v:f32[4,32,32] = sub w u\n" rest

typedef struct graph_case {
    const char *name, *text;
    bool sinks; /* no gradients are stacked */
    uint64_t copies;
} graph_case;

static const graph_case cases[] = {
    {"an update", BACKWARD("  in (c, v, n) }"), true, 0},
    {"gradients that are an output, too", BACKWARD("  in (c, v, n, g) }"), false, 0},
    {"a norm of all gradients",
     BACKWARD("    q:f32[4,32,32] = mul g g\n    s:f32[] = reduce_sum[axes=(0,1,2)] q\n  in (c, v, n, s) }"), false, 0},
    {"an old value that is read later",
     BACKWARD("    q:f32[4,32,32] = tanh w\n    s:f32[] = reduce_sum[axes=(0,1,2)] q\n  in (c, v, n, s) }"), false, 0},
    {"a new value that is read later", BACKWARD("    s:f32[4] = reduce_sum[axes=(1,2)] v\n  in (c, v, n, s) }"), false,
     0},
};

static const tow_donation donations[] = {{1, 1}, {2, 2}};

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void fill(tow_array *x, int seed)
{
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(x)); i++)
        ((float *)tow_array_data(x))[i] = (float)((i * 7919 + seed) % 257 - 128) / 1024;
}

/* The outputs of three runs, in which donated arrays are handed on. */
static tow_program_bytes run(const tow_graph *g, const tow_compile_options *options, tow_array **in, tow_array **out,
                             uint64_t *copies)
{
    tow_program *program;
    OK(tow_compile(ctx, g, options, &program));
    for (size_t i = 0; i < tow_graph_input_count(g); i++) {
        OK(tow_array_create(ctx, tow_graph_input_type(g, i), &in[i]));
        fill(in[i], (int)i);
    }
    for (size_t i = 0; i < tow_graph_output_count(g); i++)
        OK(tow_array_create(ctx, tow_graph_output_type(g, i), &out[i]));
    for (int k = 0; k < 3; k++) {
        OK(tow_program_run(program, in, out));
        for (size_t i = 0; options->n_donations == 0 && i < 2; i++)
            memcpy(tow_array_data(in[donations[i].input]), tow_array_data(out[donations[i].output]),
                   tow_type_bytes(tow_array_type(in[donations[i].input])));
    }
    OK(tow_program_check(program));
    const tow_program_bytes bytes = tow_program_get_bytes(program);
    *copies = tow_program_operation_count(program, "copy");
    tow_program_free(program);
    return bytes;
}

static void release(tow_array **arrays)
{
    for (int i = 0; i < MOST; i++) tow_array_release(arrays[i]);
}

static void updates_have_the_same_bits(void **state)
{
    (void)state;
    static const char *const neither[] = {"sink-into-loops", "hasten-updates", NULL};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        tow_graph *g;
        tow_array *in[3][MOST] = {{NULL}}, *out[3][MOST] = {{NULL}};
        uint64_t copies[3];
        OK(tow_graph_parse(ctx, cases[c].text, &g));
        const tow_compile_options plain = TOW_COMPILE_OPTIONS(),
                                  donates = TOW_COMPILE_OPTIONS(.donations = donations, .n_donations = 2),
                                  outside =
                                      TOW_COMPILE_OPTIONS(.donations = donations, .n_donations = 2, .without = neither);
        run(g, &plain, in[0], out[0], &copies[0]);
        const tow_program_bytes inner = run(g, &donates, in[1], out[1], &copies[1]),
                                outer = run(g, &outside, in[2], out[2], &copies[2]);
        for (int k = 1; k < 3; k++) {
            for (size_t i = 0; i < 2; i++) /* the donated arrays hold what became of them */
                assert_memory_equal(tow_array_data(in[k][1 + i]), tow_array_data(in[0][1 + i]),
                                    4 * 32 * 32 * sizeof(float));
            assert_memory_equal(tow_array_data(out[k][0]), tow_array_data(out[0][0]), 8 * 32 * sizeof(float));
            for (size_t i = 3; i < tow_graph_output_count(g); i++)
                assert_memory_equal(tow_array_data(out[k][i]), tow_array_data(out[0][i]),
                                    tow_type_bytes(tow_array_type(out[0][i])));
        }
        const size_t stack = 4 * 32 * 32 * sizeof(float), row = stack / 4;
        if (copies[1] != cases[c].copies || (cases[c].sinks && inner.arena + stack - 2 * row > outer.arena) ||
            inner.arena > outer.arena)
            fail_msg("%s: %llu copies, %zu bytes, %zu without", cases[c].name, (unsigned long long)copies[1],
                     inner.arena, outer.arena);
        for (int k = 0; k < 3; k++) release(in[k]), release(out[k]);
        tow_graph_release(g);
    }
}

/* A loop in a loop: rows of a carry of the outer one are updated in the inner one. */
static void loops_in_loops(void **state)
{
    (void)state;
    static const char text[] = "{ lambda ; w:f32[4,32,32] xs:f32[3,8,32]. let\n"
                               "    v:f32[4,32,32] = scan[length=3 reverse=false consts=0 carry=1\n"
                               "      body={ lambda ; w:f32[4,32,32] x:f32[8,32]. let\n"
                               "          c:f32[8,32] g:f32[4,32,32] = scan[length=4 reverse=true consts=1 carry=1\n"
                               "            body={ lambda ; x:f32[8,32] c:f32[8,32] w:f32[32,32]. let\n"
                               "                g:f32[32,32] = dot_general[lhs_contract=(0) rhs_contract=(0)] x c\n"
                               "                d:f32[8,32] = dot_general[lhs_contract=(1) rhs_contract=(1)] c w\n"
                               "                t:f32[8,32] = tanh d\n"
                               "              in (t, g) }] x x w\n"
                               "          v:f32[4,32,32] = add w g\n"
                               "        in (v) }] w xs\n"
                               "  in (v) }";
    static const char *const neither[] = {"sink-into-loops", "hasten-updates", NULL};
    tow_graph *g;
    tow_array *in[2][MOST] = {{NULL}}, *out[2][MOST] = {{NULL}};
    size_t arenas[2];
    OK(tow_graph_parse(ctx, text, &g));
    for (int k = 0; k < 2; k++) {
        tow_program *program;
        OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.without = k ? neither : NULL), &program));
        for (size_t i = 0; i < 2; i++) {
            OK(tow_array_create(ctx, tow_graph_input_type(g, i), &in[k][i]));
            fill(in[k][i], (int)i);
        }
        OK(tow_array_create(ctx, tow_graph_output_type(g, 0), &out[k][0]));
        OK(tow_program_run(program, in[k], out[k]));
        OK(tow_program_check(program));
        arenas[k] = tow_program_get_bytes(program).arena;
        tow_program_free(program);
    }
    assert_memory_equal(tow_array_data(out[0][0]), tow_array_data(out[1][0]), 4 * 32 * 32 * sizeof(float));
    assert_true(arenas[0] < arenas[1]);
    for (int k = 0; k < 2; k++) release(in[k]), release(out[k]);
    tow_graph_release(g);
}

static void allocations_may_fail(void **state)
{
    (void)state;
    counting count = {.fail_at = -1};
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.allocator = {.resize = counting_resize, .user = &count});
    tow_context *other;
    tow_graph *g;
    assert_int_equal(tow_context_create(&options, &other), TOW_OK);
    assert_int_equal(tow_graph_parse(other, cases[0].text, &g), TOW_OK);
    expect_compile_survives(&count, other, g,
                            &TOW_COMPILE_OPTIONS(.donations = donations, .n_donations = 2, .plan_only = true));
    tow_graph_release(g);
    tow_context_free(other);
    assert_int_equal(count.blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(updates_have_the_same_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(loops_in_loops, setup, teardown),
        cmocka_unit_test_setup_teardown(allocations_may_fail, setup, teardown),
    };
    return cmocka_run_group_tests_name("sink", tests, NULL, NULL);
}
