/* The cost model on a machine made by hand, whose rates are round numbers: seconds of every kind of instruction against
 * arithmetic, seconds that never fall as rows grow, loops by schedule and number of iterations, and equations with
 * regions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "src/plan/pass.h"
#include "tests/unit/support/machines.h"
#include "tow/graph.h"
#include "tow/program.h"

/* One thread: 100 GFLOP/s, 10 G functions/s; 100, 50, 25, 10 GB/s; threads meet in 5 us, a call takes 0.1 us. */
#define RATES                                                                                                          \
    "l1=32K,l2=512K,l3=32M,vector=32,f32=100,f64=50,functions=10,l1_rate=100,l2_rate=50,l3_rate=25,memory_rate=10,"    \
    "shared_rate=15,meeting=5000,overhead=100"

static tow_context *ctx;
static tow__machine one, two;

static int setup(void **state)
{
    (void)state;
    if (!tow__machine_read(RATES ",threads=1", &one) || !tow__machine_read(RATES ",threads=2", &two)) return -1;
    given_machine_begin(RATES ",threads=1");
    return tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &ctx) ? -1 : 0;
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

static void expect_microseconds(double seconds, double microseconds)
{
    if (fabs(1e6 * seconds - microseconds) > 1e-9 * microseconds)
        fail_msg("expected %.9g us, found %.9g", microseconds, 1e6 * seconds);
}

static tow_program *compile(const char *text, tow_compile_options options)
{
    tow_graph *g;
    tow_program *p;
    options.plan_only = true;
    OK(tow_graph_parse(ctx, text, &g));
    OK(tow_compile(ctx, g, &options, &p));
    tow_graph_release(g);
    return p;
}

static const tow_compile_options as_written = TOW_COMPILE_OPTIONS(.no_fusion = true, .no_regions = true);

static const char product[] = "{ lambda ; x:f32[64,96] w:f32[96,128]. let\n"
                              "    y:f32[64,128] = dot_general[lhs_contract=(1) rhs_contract=(0)] x w\n"
                              "  in (y) }";

/* 2 * 64 * 96 * 128 operations; x, w and y have 24, 48 and 32 KiB, which L2 holds. */
static void a_product(void **state)
{
    (void)state;
    tow_program *p = compile(product, as_written);
    const tow__instruction *dot = &p->top->insts[0];
    const double flops = 2.0 * 64 * 96 * 128 / 100e3, x = 24.0 * 1024, w = 48.0 * 1024, y = 32.0 * 1024;
    expect_microseconds(tow__seconds(&one, dot, 0, NULL), flops + (x + w + y) / 50e3 + 0.1);
    /* half of the rows: half of the operations, of x and of y, which L1 holds now; all of w */
    expect_microseconds(tow__seconds(&one, dot, 32, NULL), flops / 2 + (x + y) / 2 / 100e3 + w / 50e3 + 0.1);
    /* rows in L2, weights in memory */
    const tow__where where = {.rows = TOW__IN_L2, .whole = TOW__IN_MEMORY};
    expect_microseconds(tow__seconds(&one, dot, 32, &where), flops / 2 + (x + y) / 2 / 50e3 + w / 10e3 + 0.1);
    /* two threads share it: 9.5 us for each, and 5.1 for the call */
    expect_microseconds(tow__instruction_seconds(&two, dot), (flops + (x + w + y) / 50e3) / 2 + 5 + 0.1);
    expect_microseconds(tow__body_seconds(&two, p->top), (flops + (x + w + y) / 50e3) / 2 + 5 + 0.1);
    tow_program_free(p);
}

/* f64: half as fast, twice the bytes. */
static void a_product_of_doubles(void **state)
{
    (void)state;
    tow_program *p = compile("{ lambda ; x:f64[64,96] w:f64[96,128]. let\n"
                             "    y:f64[64,128] = dot_general[lhs_contract=(1) rhs_contract=(0)] x w\n"
                             "  in (y) }",
                             as_written);
    expect_microseconds(tow__seconds(&one, &p->top->insts[0], 0, NULL),
                        2.0 * 64 * 96 * 128 / 50e3 + 2 * 104.0 * 1024 / 50e3 + 0.1);
    tow_program_free(p);
}

/* tanh takes as long as 16 sums; a chain is read and written once, and called once. */
static void row_programs(void **state)
{
    (void)state;
    static const char chain[] = "{ lambda ; x:f32[10,100]. let\n    a:f32[10,100] = tanh x\n"
                                "    b:f32[10,100] = mul a x\n    c:f32[10,100] = add b x\n  in (c) }";
    tow_program *p = compile(chain, TOW_COMPILE_OPTIONS(.no_regions = true)), *q = compile(chain, as_written);
    assert_int_equal(p->top->n_insts, 1);
    expect_microseconds(tow__body_seconds(&one, p->top), 1000 * (16 + 1 + 1) / 10e3 + 8000 / 100e3 + 0.1);
    assert_int_equal(q->top->n_insts, 3);
    expect_microseconds(tow__body_seconds(&one, q->top),
                        1000 * (16 + 1 + 1) / 10e3 + (8000 + 12000 + 12000) / 100e3 + 3 * 0.1);
    expect_microseconds(tow__seconds(&one, &p->top->insts[0], 5, NULL), 500 * 18 / 10e3 + 4000 / 100e3 + 0.1);
    tow_program_free(p);
    tow_program_free(q);
}

/* An epilogue adds its functions to the product, and the result is written once. */
static void a_product_with_an_epilogue(void **state)
{
    (void)state;
    tow_program *p = compile("{ lambda ; x:f32[64,96] w:f32[96,128]. let\n"
                             "    y:f32[64,128] = dot_general[lhs_contract=(1) rhs_contract=(0)] x w\n"
                             "    z:f32[64,128] = tanh y\n  in (z) }",
                             TOW_COMPILE_OPTIONS(.no_regions = true));
    assert_int_equal(p->top->n_insts, 1);
    expect_microseconds(tow__body_seconds(&one, p->top),
                        2.0 * 64 * 96 * 128 / 100e3 + 64 * 128 * 16 / 10e3 + 104.0 * 1024 / 50e3 + 0.1);
    tow_program_free(p);
}

/* 6,000 elements become 6; each of both is a function. 24,000 bytes lie in L2, 24 in L1. */
static void reductions(void **state)
{
    (void)state;
    static const char sum[] = "{ lambda ; x:f32[6,1000]. let\n    y:f32[6] = reduce_sum[axes=(1)] x\n  in (y) }";
    tow_program *p = compile(sum, as_written);
    expect_microseconds(tow__body_seconds(&one, p->top), 6006 / 10e3 + 24000 / 50e3 + 24 / 100e3 + 0.1);
    tow_program_free(p);
    /* joined to the row program that makes its operand, which is not stored: two functions and the sum */
    p = compile("{ lambda ; x:f32[6,1000]. let\n    a:f32[6,1000] = mul x x\n    b:f32[6,1000] = add a x\n"
                "    y:f32[6] = reduce_sum[axes=(1)] b\n  in (y) }",
                TOW_COMPILE_OPTIONS(.no_regions = true));
    assert_int_equal(p->top->n_insts, 1);
    expect_microseconds(tow__body_seconds(&one, p->top), 6000 * 3 / 10e3 + 24000 / 50e3 + 24 / 100e3 + 0.1);
    tow_program_free(p);
}

/* q, k, v and the output [2, 32, 4, 16]: 64 KiB each, in L2; logits and their sums of v over 32 * 33 / 2 pairs. */
static void attention(void **state)
{
    (void)state;
    tow_program *p = compile("{ lambda ; q:f32[2,32,4,16] k:f32[2,32,4,16] v:f32[2,32,4,16]. let\n"
                             "    y:f32[2,32,4,16] l:f32[2,4,32] = attention[causal=true scale=0.25] q k v\n  in (y) }",
                             as_written);
    const tow__instruction *inst = &p->top->insts[0];
    const double bytes = 4 * 2 * 32 * 4 * 16, lse = inst->n_out > 1 ? 4 * 2 * 4 * 32 : 0;
    expect_microseconds(tow__body_seconds(&one, p->top), 2.0 * (16 + 16) * 2 * 4 * (32 * 33 / 2) / 100e3 +
                                                             4 * bytes / (bytes > 16384 ? 50e3 : 100e3) + lse / 100e3 +
                                                             0.1);
    tow_program_free(p);
}

/* [4, 8, 8, 3] by [3, 3, 3, 16] to [4, 8, 8, 16]: 27 multiply-adds for each result. */
static void convolutions(void **state)
{
    (void)state;
    tow_program *p = compile(
        "{ lambda ; x:f32[4,8,8,3] w:f32[3,3,3,16]. let\n"
        "    y:f32[4,8,8,16] = conv_general_dilated[dimensions=\"NHWC,HWIO->NHWC\" strides=(1,1) low=(1,1) high=(1,1) "
        "lhs_dilation=(1,1) rhs_dilation=(1,1) feature_groups=1 batch_groups=1] "
        "x w\n  in (y) }",
        as_written);
    expect_microseconds(tow__body_seconds(&one, p->top), 2.0 * 27 * 4 * 8 * 8 * 16 / 100e3 +
                                                             4 * (4 * 8 * 8 * 3 + 27 * 16 + 4 * 8 * 8 * 16) / 100e3 +
                                                             0.1);
    tow_program_free(p);
}

/* A copy moves its bytes and computes nothing: 2 * 4 MiB and 4 bytes above an eighth of L3 come from memory. */
static void copies(void **state)
{
    (void)state;
    tow_program *p = compile("{ lambda ; x:f32[1025,1024]. let\n    y:f32[1024,1025] = transpose[permutation=(1,0)] x\n"
                             "  in (y) }",
                             as_written);
    expect_microseconds(tow__body_seconds(&one, p->top), 2 * 4.0 * 1025 * 1024 / 10e3 + 0.1);
    /* two threads: 15 GB/s together; 5 us to meet */
    expect_microseconds(tow__body_seconds(&two, p->top), 2 * 4.0 * 1025 * 1024 / 15e3 + 5 + 0.1);
    tow_program_free(p);
}

static const char scan[] = "{ lambda ; x:f32[64,96] w:f32[7,96,96]. let\n"
                           "    y:f32[64,96] = scan[length=7 reverse=false consts=0 carry=1\n"
                           "      body={ lambda ; a:f32[64,96] w:f32[96,96]. let\n"
                           "          d:f32[64,96] = dot_general[lhs_contract=(1) rhs_contract=(0)] a w\n"
                           "        in (d) }] x w\n"
                           "  in (y) }";

/* Of an iteration: x and y have 24 KiB each, w 36. */
static const double of_iteration = 2.0 * 64 * 96 * 96 / 100e3 + 84.0 * 1024 / 50e3;

/* As often as there are iterations, in the way of the schedule. */
static void loops(void **state)
{
    (void)state;
    tow_program *p = compile(scan, as_written);
    tow__loop *loop = p->top->insts[0].loop;
    assert_non_null(loop);
    assert_int_equal(loop->body->n_insts, 1);
    expect_microseconds(tow__body_seconds(&one, p->top), 7 * (of_iteration + 0.1));
    const double shared = of_iteration / 2 + 5 + 0.1;
    expect_microseconds(tow__body_seconds(&two, p->top), 7 * shared);
    const tow__schedule before = loop->schedule;
    loop->schedule = TOW__PARALLEL_ITERATIONS; /* four rounds */
    expect_microseconds(tow__body_seconds(&two, p->top), 4 * (of_iteration + 0.1) + 5);
    loop->shared = 1; /* three rounds, and one iteration together */
    expect_microseconds(tow__body_seconds(&two, p->top), 3 * (of_iteration + 0.1) + shared + 5);
    loop->shared = 0;
    loop->schedule = TOW__PARALLEL_ROWS; /* two rounds of blocks, seven times */
    loop->blocks = 3;
    expect_microseconds(tow__body_seconds(&two, p->top), 2 * 7 * (of_iteration + 0.1) + 5);
    loop->schedule = before;
    loop->stops = true; /* data decide: at most seven, or nobody knows */
    expect_microseconds(tow__body_seconds(&one, p->top), 7 * (of_iteration + 0.1));
    loop->length = INT64_MAX;
    expect_microseconds(tow__body_seconds(&one, p->top), of_iteration + 0.1);
    loop->length = 7;
    loop->stops = false;
    tow_program_free(p);
}

static double equation(const char *text, uint32_t i)
{
    tow_graph *g;
    tow__view views[16];
    OK(tow_graph_parse(ctx, text, &g));
    assert_true(tow__most_views(g) <= 16);
    const double seconds = tow__equation_seconds(&one, g, &g->equations[i], views);
    tow_graph_release(g);
    return seconds;
}

/* The cost of making the results of an equation again. */
static void equations(void **state)
{
    (void)state;
    expect_microseconds(equation(product, 0), 2.0 * 64 * 96 * 128 / 100e3 + 104.0 * 1024 / 50e3 + 0.1);
    expect_microseconds(equation(scan, 0), 7 * (of_iteration + 0.1));
    assert_true(equation("{ lambda ; x:f32[8,2]. let\n    y:f32[16] = reshape[shape=(16)] x\n  in (y) }", 0) == 0);
    /* of two branches the dearer one: 1,000 tanh */
    expect_microseconds(equation("{ lambda ; c:i32[] x:f32[1000]. let\n"
                                 "    y:f32[1000] = cond[branches=({ lambda ; x:f32[1000]. let\n"
                                 "        y:f32[1000] = neg x\n      in (y) } { lambda ; x:f32[1000]. let\n"
                                 "        y:f32[1000] = tanh x\n      in (y) })] c x\n  in (y) }",
                                 0),
                        1000 * 16 / 10e3 + 8000 / 100e3 + 0.1);
}

static const char *const kinds[] = {
    product,
    "{ lambda ; x:f32[64,200]. let\n    y:f32[64,200] = tanh x\n  in (y) }",
    "{ lambda ; x:f32[64,200] b:f32[200]. let\n    c:f32[64,200] = broadcast_in_dim[shape=(64,200) axes=(1)] b\n"
    "    y:f32[64,200] = add x c\n  in (y) }",
    "{ lambda ; x:f32[64,200]. let\n    y:f32[64] = reduce_max[axes=(1)] x\n  in (y) }",
    "{ lambda ; x:f32[64,200]. let\n    y:f32[200] = reduce_max[axes=(0)] x\n  in (y) }",
    "{ lambda ; x:f32[64,200]. let\n    y:f32[64,200] = log_softmax[axis=1] x\n  in (y) }",
    "{ lambda ; x:f32[64,8,8,3] w:f32[3,3,3,16]. let\n"
    "    y:f32[64,8,8,16] = conv_general_dilated[dimensions=\"NHWC,HWIO->NHWC\" strides=(1,1) low=(1,1) high=(1,1) "
    "lhs_dilation=(1,1) rhs_dilation=(1,1) feature_groups=1 batch_groups=1] x w\n  in (y) }",
};

/* More rows never take less time, wherever data lie; and data that are farther away never take less. */
static void seconds_are_monotone(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        tow_program *p = compile(kinds[k], as_written);
        const tow__instruction *inst = &p->top->insts[0];
        double before = 0;
        for (int64_t rows = 1; rows <= 70; rows++) {
            const double now = tow__seconds(&one, inst, rows, NULL);
            if (now < before) fail_msg("%s: %lld rows take less time", inst->op->name, (long long)rows);
            before = now;
            double near = 0;
            for (int level = TOW__IN_L1; level < TOW__LEVELS; level++) {
                const tow__where where = {.rows = (tow__memory_level)level, .whole = (tow__memory_level)level};
                const double far = tow__seconds(&one, inst, rows, &where);
                assert_true(far > near);
                near = far;
            }
        }
        assert_true(tow__seconds(&one, inst, 64, NULL) == tow__seconds(&one, inst, 0, NULL));
        tow_program_free(p);
    }
}

/* [rows, k] by [k, n]: 2 k n rows / 100 G operations against 4 k n / 25 GB: 8 rows take as long as the weights. */
static void rows_that_hide_weights(void **state)
{
    (void)state;
    assert_int_equal(tow__rows_for_share(&one, TOW__IN_L3, 1, 1), 8);
    assert_int_equal(tow__rows_for_share(&one, TOW__IN_L3, 1.0 / 64, 1), 512);
    assert_int_equal(tow__rows_for_share(&one, TOW__IN_MEMORY, 1, 1), 20);
    assert_int_equal(tow__rows_for_share(&two, TOW__IN_MEMORY, 1, 2), 27); /* each thread has 7.5 GB/s: 26.7 */
    assert_int_equal(tow__weight_level(&one, 1000), TOW__IN_L3);
    assert_int_equal(tow__weight_level(&one, 4.0 * (1 << 20)), TOW__IN_L3);
    assert_int_equal(tow__weight_level(&one, 4.0 * (1 << 20) + 1), TOW__IN_MEMORY);
    tow__machine without = one;
    without.l3.bytes = 0;
    assert_int_equal(tow__weight_level(&without, 1000), TOW__IN_MEMORY);
}

/* A sixteenth of 160 us are 10: 20,000 bytes at 10 GB/s take 2. */
static void what_bytes_are_worth(void **state)
{
    (void)state;
    assert_true(tow__is_worth(&one, 160e-6, 149e-6, 0));
    assert_false(tow__is_worth(&one, 160e-6, 151e-6, 0));
    assert_true(tow__is_worth(&one, 160e-6, 147e-6, 20000));
    assert_false(tow__is_worth(&one, 160e-6, 149e-6, 20000));
    assert_int_equal(tow__enough_rows(&one), 128); /* 4 / 25 G against 2 / 100 G: 8 rows; 16 times as many */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product),
        cmocka_unit_test(a_product_of_doubles),
        cmocka_unit_test(row_programs),
        cmocka_unit_test(a_product_with_an_epilogue),
        cmocka_unit_test(reductions),
        cmocka_unit_test(attention),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(copies),
        cmocka_unit_test(loops),
        cmocka_unit_test(equations),
        cmocka_unit_test(seconds_are_monotone),
        cmocka_unit_test(rows_that_hide_weights),
        cmocka_unit_test(what_bytes_are_worth),
    };
    return cmocka_run_group_tests_name("cost", tests, setup, teardown);
}
