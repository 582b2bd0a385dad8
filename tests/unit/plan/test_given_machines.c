/* Decisions of passes on machines that are given: each follows the machine as arithmetic says, and no bits change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "src/plan/ir.h"
#include "src/plan/loop/loop.h"
#include "tests/unit/support/machines.h"
#include "tow/graph.h"
#include "tow/program.h"

#define FACTS "l1=32K,l2=512K,l3=32M,vector=32"

/* A program that is planned for a machine; its context is its own. */
static tow_program *plan(const char *machine, int threads, bool plan_only, const char *text)
{
    tow_context *ctx = NULL;
    tow_graph *g = NULL;
    tow_program *p = NULL;
    given_machine_begin(machine);
    if (tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = threads), &ctx) != TOW_OK ||
        tow_graph_parse(ctx, text, &g) != TOW_OK ||
        tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.plan_only = plan_only), &p) != TOW_OK)
        fail_msg("%s: %s", machine, tow_context_error(ctx));
    given_machine_end();
    tow_graph_release(g);
    return p;
}

static void end(tow_program *p)
{
    tow_context *ctx = p->ctx;
    tow_program_free(p);
    tow_context_free(ctx);
}

/* ---- tile -------------------------------------------------------------------------------------------------------- */

static const char products[] = "{ lambda ; x:f32[4096,64] v:f32[64,64] w:f32[64,64]. let\n"
                               "    a:f32[4096,64] = dot_general[lhs_contract=(1) rhs_contract=(0)] x v\n"
                               "    b:f32[4096,64] = tanh a\n"
                               "    c:f32[4096,64] = dot_general[lhs_contract=(1) rhs_contract=(0)] b w\n"
                               "  in (c) }";

static int64_t blocks_of(const char *machine)
{
    tow_program *p = plan(machine, 1, true, products);
    const tow__loop *loop = p->top->insts[0].loop;
    const int64_t blocks = loop ? loop->length : 0;
    end(p);
    return blocks;
}

/* A 64th of the time of 2 k n m operations is that of 4 k n bytes: m = 64 * 2 * operations / bytes, by second. */
static void blocks_follow_the_machine(void **state)
{
    (void)state;
    assert_int_equal(blocks_of(FACTS), 4096 / 256);                           /* 96 GFLOP/s, L3 48 GB/s */
    assert_int_equal(blocks_of(FACTS ",l3_rate=24"), 4096 / 512);             /* slower weights: more rows */
    assert_int_equal(blocks_of(FACTS ",f32=48"), 4096 / 128);                 /* slower products: fewer */
    assert_int_equal(blocks_of("l1=32K,l2=512K,l3=0,vector=32"), 4096 / 512); /* weights come from memory: 24 GB/s */
    assert_int_equal(blocks_of(FACTS ",memory_rate=1,shared_rate=1"), 4096 / 256); /* they do not */
    assert_int_equal(blocks_of(FACTS ",overhead=1000000"), 0);                     /* a millisecond each */
}

/* ---- parallelize ------------------------------------------------------------------------------------------------- */

static const char map[] = "{ lambda ; x:f32[8,1000]. let\n"
                          "    y:f32[8,1000] = scan[length=8 reverse=false consts=0 carry=0\n"
                          "      body={ lambda ; a:f32[1000]. let\n"
                          "          b:f32[1000] = tanh a\n"
                          "        in (b) }] x\n"
                          "  in (y) }";

static tow__schedule schedule_of(const char *machine)
{
    tow_program *p = plan(machine, 2, true, map);
    assert_non_null(p->top->insts[0].loop);
    const tow__schedule schedule = p->top->insts[0].loop->schedule;
    end(p);
    return schedule;
}

/* An iteration takes 0.8 us with 20 * 10^9 functions a second. */
static void loops_are_parallel_where_that_saves_time(void **state)
{
    (void)state;
    if (tow__team_size(2) < 2) skip();
#define RATE ",functions=20,overhead=1"
    /* 8 iterations one after the other 6.9 us; side by side 3.4, and 1 to meet */
    assert_int_equal(schedule_of(FACTS ",threads=2,meeting=1000" RATE), TOW__PARALLEL_ITERATIONS);
    assert_int_equal(schedule_of(FACTS ",threads=2,meeting=10000" RATE), TOW__SEQUENTIAL); /* 10 to meet */
    assert_int_equal(schedule_of(FACTS ",threads=2,meeting=0" RATE), TOW__SEQUENTIAL);     /* sharing costs nothing */
    assert_int_equal(schedule_of(FACTS ",threads=1,meeting=1000" RATE), TOW__SEQUENTIAL);
}

/* Two iterations of two products [256,64] [64,64], 21 us each, and a value of 64 KiB between them. */
static const char copies[] = "{ lambda ; x:f32[2,256,64] w:f32[64,64]. let\n"
                             "    y:f32[2,256,64] = scan[length=2 reverse=false consts=1 carry=0\n"
                             "      body={ lambda ; w:f32[64,64] a:f32[256,64]. let\n"
                             "          b:f32[256,64] = dot_general[lhs_contract=(1) rhs_contract=(0)] a w\n"
                             "          c:f32[256,64] = dot_general[lhs_contract=(1) rhs_contract=(0)] b w\n"
                             "        in (c) }] w x\n"
                             "  in (y) }";

/* Threads that meet once save 2 * (2 * (21 / 2 + 5)) - 2 * 21 - 5 = 15 us. A copy of 64 KiB takes 3 us to bring from
 * memory at 24 GB/s, and 64 at 1 GB/s. */
static void loops_are_parallel_where_that_is_worth_the_bytes(void **state)
{
    (void)state;
    if (tow__team_size(2) < 2) skip();
    static const char *const machines[] = {FACTS ",threads=2,f32=100,memory_rate=24",
                                           FACTS ",threads=2,f32=100,memory_rate=1,shared_rate=1"};
    static const tow__schedule expected[] = {TOW__PARALLEL_ITERATIONS, TOW__SEQUENTIAL};
    for (int i = 0; i < 2; i++) {
        tow_program *p = plan(machines[i], 2, true, copies);
        assert_non_null(p->top->insts[0].loop);
        assert_int_equal(p->top->insts[0].loop->schedule, expected[i]);
        end(p);
    }
}

/* Two threads, three pieces: the last one by both of them, or by one of them in a round of its own. */
static void remainders_are_shared_where_that_saves_time(void **state)
{
    (void)state;
    const tow__machine two = {.threads = 2}, four = {.threads = 4};
    assert_true(tow__remainder_pays(&two, 3, 20e-6, 15e-6));
    assert_false(tow__remainder_pays(&two, 3, 20e-6, 19e-6)); /* saves less than a sixteenth */
    assert_false(tow__remainder_pays(&two, 4, 20e-6, 1e-6));  /* nothing is left over */
    assert_false(tow__remainder_pays(&two, 1, 20e-6, 1e-6));  /* there is no round before */
    assert_true(tow__remainder_pays(&four, 6, 20e-6, 9e-6));  /* two pieces of 9 us */
    assert_false(tow__remainder_pays(&four, 7, 20e-6, 9e-6));
}

/* ---- loops of graphs --------------------------------------------------------------------------------------------- */

/* y does not wait for the carry n, and sums over the rows of t. */
static const char splittable[] = "{ lambda ; w:f32[64,64] h:f32[64,64] xs:f32[64,64,64]. let\n"
                                 "    n:f32[64,64] ys:f32[64,64,64] = scan[length=64 reverse=false consts=1 carry=1\n"
                                 "      body={ lambda ; w:f32[64,64] h:f32[64,64] x:f32[64,64]. let\n"
                                 "          t:f32[64,64] = tanh h\n"
                                 "          n:f32[64,64] = dot_general[lhs_contract=(1) rhs_contract=(0)] t w\n"
                                 "          y:f32[64,64] = dot_general[lhs_contract=(0) rhs_contract=(0)] t x\n"
                                 "        in (n, y) }] w h xs\n"
                                 "  in (n, ys) }";

/* 48 rows of each iteration are multiplied by one matrix. */
#define ROWS(matrix, contracted)                                                                                       \
    "{ lambda ; w:f32[" matrix "] h:f32[48,96] xs:f32[64,48,64]. let\n"                                                \
    "    last:f32[48,96] = scan[length=64 reverse=false consts=1 carry=1\n"                                            \
    "      body={ lambda ; w:f32[" matrix "] h:f32[48,96] x:f32[48,64]. let\n"                                         \
    "          u:f32[48,96] = dot_general[lhs_contract=(1) rhs_contract=(" contracted ")] x w\n"                       \
    "          v:f32[48,96] = add h u\n          n:f32[48,96] = tanh v\n        in (n) }] w h xs\n  in (last) }"

/* Iterations of an iteration of the first loop; 0: that contains none. *before: instructions in front of it. */
static int64_t inner_loop(const char *machine, int threads, const char *text, uint32_t *before)
{
    tow_program *p = plan(machine, threads, true, text);
    int64_t length = 0;
    *before = 0;
    while (!p->top->insts[*before].loop) ++*before;
    const tow__body *body = p->top->insts[*before].loop->body;
    for (uint32_t i = 0; i < body->n_insts && length == 0; i++)
        if (body->insts[i].loop) length = body->insts[i].loop->length;
    end(p);
    return length;
}

/* An iteration takes one thread 18 us: its products 5.5 us each, 4,096 tanh 6.8. Shared, they take as long, because
 * threads would meet for 5 us each; in strips of 32, threads take 9 us and meet for 10 in a strip. */
static void loops_are_split_where_that_saves_time(void **state)
{
    (void)state;
    uint32_t before;
    if (tow__team_size(2) < 2) skip();
    assert_int_equal(inner_loop(FACTS ",threads=2", 2, splittable, &before), 32);
    assert_int_equal(inner_loop(FACTS ",threads=2,meeting=0", 2, splittable, &before), 0); /* sharing costs nothing */
    assert_int_equal(inner_loop(FACTS ",threads=2,meeting=1000000", 2, splittable, &before), 0); /* 2 ms in a strip */
    assert_int_equal(inner_loop(FACTS ",threads=1", 2, splittable, &before), 0);
}

/* [m, k] [k, n]: 2 k n m operations at 96 GFLOP/s, and 4 k n bytes at 48 GB/s, take equal times with 4 rows, and the
 * bytes a 16th with 64. An L3 that is ten times as fast makes 6.4 of that. */
static void products_move_where_they_wait_for_weights(void **state)
{
    (void)state;
    uint32_t before;
    assert_int_equal(inner_loop(FACTS, 1, ROWS("64,96", "0"), &before), 0);
    assert_int_equal(before, 1); /* the product of all rows */
    inner_loop(FACTS ",l3_rate=480", 1, ROWS("64,96", "0"), &before);
    assert_int_equal(before, 0);
}

/* u, 18 KiB of each of 64 iterations, stays in an L3 of 32 MiB; without one, 28 iterations fill an L2 of 512 KiB, and
 * 16 is the most of them that divide 64. */
static void strips_follow_the_caches(void **state)
{
    (void)state;
    uint32_t before;
    assert_int_equal(inner_loop("l1=32K,l2=512K,l3=0,vector=32", 1, ROWS("64,96", "0"), &before), 16);
    assert_int_equal(inner_loop("l1=32K,l2=1M,l3=0,vector=32", 1, ROWS("64,96", "0"), &before), 32);
    assert_int_equal(inner_loop("l1=32K,l2=2M,l3=0,vector=32", 1, ROWS("64,96", "0"), &before), 0); /* all 64 */
    assert_int_equal(inner_loop(FACTS, 1, ROWS("64,96", "0"), &before), 0);
}

/* A matrix that a product contracts along its last axis is transposed by the product, or once in front of the loop. */
static void operands_are_transposed_where_products_wait_for_them(void **state)
{
    (void)state;
    static const char carried[] = "{ lambda ; w:f32[64,64] h:f32[48,64]. let\n"
                                  "    last:f32[48,64] = scan[length=8 reverse=false consts=1 carry=1\n"
                                  "      body={ lambda ; w:f32[64,64] h:f32[48,64]. let\n"
                                  "          n:f32[48,64] = dot_general[lhs_contract=(1) rhs_contract=(1)] h w\n"
                                  "        in (n) }] w h\n  in (last) }";
    uint32_t before;
    inner_loop(FACTS, 1, carried, &before);
    assert_int_equal(before, 1);
    inner_loop(FACTS ",l3_rate=480", 1, carried, &before);
    assert_int_equal(before, 0);
}

/* ---- fuse-reductions --------------------------------------------------------------------------------------------- */

static const char reduced[] = "{ lambda ; x:f32[10,40] y:f32[10,40]. let\n"
                              "    a:f32[10,40] = mul x y\n"
                              "    s:f32[10] = reduce_sum[axes=(1)] a\n"
                              "  in (s) }";

static uint32_t instructions_of(const char *machine)
{
    tow_program *p = plan(machine, 1, true, reduced);
    const uint32_t n = p->top->n_insts;
    end(p);
    return n;
}

/* 400 elements written to L1 and read again: 3,200 bytes, 22 ns at 144 GB/s, against half of a call. */
static void reductions_join_where_that_saves_time(void **state)
{
    (void)state;
    assert_int_equal(instructions_of(FACTS ",overhead=20"), 1);
    assert_int_equal(instructions_of(FACTS ",overhead=60"), 2);
    assert_int_equal(instructions_of(FACTS ",overhead=60,l1_rate=100"), 1); /* 32 ns */
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static void run(tow_program *p, tow_array **y)
{
    tow_array *x[3];
    for (size_t i = 0; i < tow_graph_input_count(p->graph); i++) {
        if (tow_array_create(p->ctx, tow_graph_input_type(p->graph, i), &x[i]) != TOW_OK) fail();
        float *data = tow_array_data(x[i]);
        const int64_t n = tow_type_element_count(tow_array_type(x[i]));
        for (int64_t k = 0; k < n; k++) data[k] = (float)((k * 7919 + (int64_t)i) % 1021) / 1021 - 0.5f;
    }
    if (tow_array_create(p->ctx, tow_graph_output_type(p->graph, 0), y) != TOW_OK ||
        tow_program_run(p, x, y) != TOW_OK || tow_program_check(p) != TOW_OK)
        fail_msg("%s", tow_context_error(p->ctx));
    for (size_t i = 0; i < tow_graph_input_count(p->graph); i++) tow_array_release(x[i]);
}

static void bits_do_not_depend_on_the_machine(void **state)
{
    (void)state;
    const char *const texts[] = {products, map, reduced};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        tow_array *expected, *found;
        tow_program *base = plan(FACTS, 1, false, texts[k]);
        run(base, &expected);
        const size_t bytes = tow_type_bytes(tow_array_type(expected));
        for (size_t i = 0; i < N_GIVEN_MACHINES; i++) {
            tow_program *p = plan(given_machines[i], 2, false, texts[k]);
            run(p, &found);
            if (memcmp(tow_array_data(expected), tow_array_data(found), bytes) != 0)
                fail_msg("other bits for %s", given_machines[i]);
            tow_array_release(found);
            end(p);
        }
        tow_array_release(expected);
        end(base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_follow_the_machine),
        cmocka_unit_test(loops_are_parallel_where_that_saves_time),
        cmocka_unit_test(loops_are_parallel_where_that_is_worth_the_bytes),
        cmocka_unit_test(remainders_are_shared_where_that_saves_time),
        cmocka_unit_test(loops_are_split_where_that_saves_time),
        cmocka_unit_test(products_move_where_they_wait_for_weights),
        cmocka_unit_test(strips_follow_the_caches),
        cmocka_unit_test(operands_are_transposed_where_products_wait_for_them),
        cmocka_unit_test(reductions_join_where_that_saves_time),
        cmocka_unit_test(bits_do_not_depend_on_the_machine),
    };
    return cmocka_run_group_tests_name("given_machines", tests, NULL, NULL);
}
