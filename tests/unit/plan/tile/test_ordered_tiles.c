/* Regions whose blocks follow each other, so that weight gradients grow block by block: the same bits as whole
 * products, for blocks of equal size and with a rest; what the gradients read is never there as a whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "src/plan/ir.h"
#include "tests/unit/support/failing_compiles.h"
#include "tests/unit/support/graph_runs.h"
#include "tow/graph.h"
#include "tow/program.h"

enum {
    HIDDEN = 1040,
    OUTPUTS = 3
};

/* The backward pass of two products with a tanh between them, hidden values computed again: gradients of v, w and x. A
 * sequence of `inner` rows is one row of axis 0. */
static const char model[] =
    "{ lambda ; x:f32[%1$d,%2$d,24]\"x\" w:f32[24,1040]\"w\" v:f32[1040,24]\"v\" dy:f32[%1$d,%2$d,24]\"dy\". let\n"
    "    z:f32[%1$d,%2$d,1040] = dot_general[lhs_contract=(2) rhs_contract=(0) lhs_batch=() rhs_batch=()] x w\n"
    "    h:f32[%1$d,%2$d,1040] = tanh z\n"
    "    dh:f32[%1$d,%2$d,1040] = dot_general[lhs_contract=(2) rhs_contract=(1) lhs_batch=() rhs_batch=()] dy v\n"
    "    s:f32[%1$d,%2$d,1040] = mul h h\n"
    "    dz:f32[%1$d,%2$d,1040] = mul dh s\n"
    "    dv:f32[1040,24] = dot_general[lhs_contract=(0,1) rhs_contract=(0,1) lhs_batch=() rhs_batch=()] h dy\n"
    "    dw:f32[24,1040] = dot_general[lhs_contract=(0,1) rhs_contract=(0,1) lhs_batch=() rhs_batch=()] x dz\n"
    "    dx:f32[%1$d,%2$d,24] = dot_general[lhs_contract=(2) rhs_contract=(1) lhs_batch=() rhs_batch=()] dz w\n"
    "  in (dv, dw, dx) }";

static void begin(problem *p, int rows, int inner)
{
    char text[2 * sizeof model];
    tow_graph *graph;
    start_context(p);
    snprintf(text, sizeof text, model, rows, inner);
    OK(p, tow_graph_parse(p->ctx, text, &graph));
    set_graph(p, graph, 1);
}

/* Blocks that run in order; *rest: those that go on with sums of a loop before. */
static int64_t count_blocks(const tow_program *program, int64_t *rest)
{
    int64_t n = 0;
    *rest = 0;
    for (uint32_t i = 0; i < program->top->n_insts; i++) {
        const tow__loop *loop = program->top->insts[i].loop;
        if (!loop || loop->schedule != TOW__ORDERED_TILES) continue;
        n += loop->length;
        if (loop->continues) *rest += loop->length;
    }
    return n;
}

/* k 1920 is summed in 5 blocks of 384, which make 2 blocks of rows and a rest; k 2304 in 6, which make 3. */
static const struct {
    int rows, inner, blocks, rest;
} cases[] = {{1920, 1, 3, 1}, {2304, 1, 3, 0}, {20, 96, 3, 1}};

static void blocks_change_no_bits(void **state)
{
    (void)state;
    static const tow_compile_options variants[] = {TOW_COMPILE_OPTIONS(.threads = 1, .no_regions = true),
                                                   TOW_COMPILE_OPTIONS(.threads = 1),
                                                   TOW_COMPILE_OPTIONS(.threads = 2)};
    char *first[OUTPUTS], *again[OUTPUTS];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        problem p;
        begin(&p, cases[c].rows, cases[c].inner);
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            int64_t rest;
            tow_program *program = compile(&p, variants[v]);
            assert_int_equal(count_blocks(program, &rest), variants[v].no_regions ? 0 : cases[c].blocks);
            assert_int_equal(rest, variants[v].no_regions ? 0 : cases[c].rest);
            run_to(&p, program, v ? again : first);
            for (size_t i = 0; v && i < OUTPUTS; i++) {
                assert_memory_equal(first[i], again[i], bytes_of(p.outputs[i]));
                free(again[i]);
            }
            tow_program_free(program);
        }
        for (size_t i = 0; i < OUTPUTS; i++) free(first[i]);
        end(&p);
    }
}

/* Two of the hidden arrays, of which a block is there at a time. */
static void blocks_need_less_memory(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        problem p;
        begin(&p, cases[c].rows, cases[c].inner);
        tow_program *with = compile(&p, TOW_COMPILE_OPTIONS(.threads = 1, .plan_only = true));
        tow_program *without = compile(&p, TOW_COMPILE_OPTIONS(.threads = 1, .plan_only = true, .no_regions = true));
        size_t arena = tow_program_get_bytes(without).arena;
        assert_true(arena >= (size_t)(2 * cases[c].rows * cases[c].inner * HIDDEN) * sizeof(float));
        assert_true(2 * tow_program_get_bytes(with).arena < arena);
        assert_int_equal(tow_program_operation_count(with, "dot_general"), 5);
        assert_int_equal(tow_program_operation_count(with, "tanh"), tow_program_operation_count(without, "tanh"));
        tow_program_free(with);
        tow_program_free(without);
        end(&p);
    }
}

/* If blocks cannot be cut at whole rows, or if there is little to save, products run as a whole. */
static void other_products_stay_whole(void **state)
{
    (void)state;
    static const int sizes[][2] = {{5, 400}, {2, 1000}, {320, 1}};
    for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++) {
        problem p;
        int64_t rest;
        begin(&p, sizes[c][0], sizes[c][1]);
        tow_program *program = compile(&p, TOW_COMPILE_OPTIONS(.plan_only = true));
        assert_int_equal(count_blocks(program, &rest), 0);
        tow_program_free(program);
        end(&p);
    }
}

static void allocations_may_fail(void **state)
{
    (void)state;
    problem p;
    begin(&p, cases[0].rows, cases[0].inner);
    tow_compile_options options = TOW_COMPILE_OPTIONS(.plan_only = true);
    expect_compile_survives(&p.count, p.ctx, p.graph, &options);
    end(&p);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_change_no_bits),
        cmocka_unit_test(blocks_need_less_memory),
        cmocka_unit_test(other_products_stay_whole),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
