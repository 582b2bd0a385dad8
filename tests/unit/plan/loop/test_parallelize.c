/* Loops that are spread over threads by rows or by iterations, and what is deferred for it: which ones are, and that no
 * bits change by it.
 *
 * Tests parallelize.c, fission.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "src/plan/ir.h"
#include "tests/unit/support/failing_compiles.h"
#include "tow/autodiff.h"
#include "tow/graph.h"
#include "tow/program.h"

enum {
    MOST = 8 /* inputs and outputs */
};

typedef struct example {
    const char *text;
    int by_rows, by_iterations; /* loops that are spread */
    size_t wrt;                 /* inputs that are differentiated, or 0 */
} example;

static const example examples[] = {
    /* rows of a carry, kept before and after each layer; a bias that all rows share. Backward, weight gradients wait */
    {"{ lambda ; x:f32[32,48]\"x\" w:f32[66,48,48]\"w\" b:f32[66,48]\"b\". let\n"
     "    y:f32[32,48] = scan[length=66 reverse=false consts=0 carry=1\n"
     "      body={ lambda ; a:f32[32,48] w:f32[48,48] b:f32[48]. let\n"
     "          d:f32[32,48] = dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()] a w\n"
     "          e:f32[32,48] = broadcast_in_dim[shape=(32,48) axes=(1)] b\n"
     "          f:f32[32,48] = add d e\n"
     "          g:f32[32,48] = tanh f\n"
     "        in (g) }] x w b\n"
     "    s:f32[32,48] = mul y y\n"
     "    l:f32[] = reduce_sum[axes=(0,1)] s\n"
     "  in (l) }",
     2, 1, 3},
    /* two buffers in turn, from a transposed array; a matrix that all steps share */
    {"{ lambda ; x:f32[48,32]\"x\" w:f32[48,48]\"w\". let\n"
     "    t:f32[32,48] = transpose[permutation=(1,0)] x\n"
     "    y:f32[32,48] z:f32[12,32,48] = scan[length=12 reverse=true consts=1 carry=1\n"
     "      body={ lambda ; w:f32[48,48] a:f32[32,48]. let\n"
     "          d:f32[32,48] = dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()] a w\n"
     "          g:f32[32,48] = tanh d\n"
     "          h:f32[32,48] = sub g a\n"
     "        in (g, h) }] w t\n"
     "  in (y, z) }",
     1, 0, 0},
    /* what waits is the carry itself, of all steps at once; another output does not */
    {"{ lambda ; x:f32[32,48]\"x\" w:f32[12,48,48]\"w\". let\n"
     "    y:f32[32,48] z:f32[12,48,48] u:f32[12,32,48] = scan[length=12 reverse=true consts=0 carry=1\n"
     "      body={ lambda ; a:f32[32,48] w:f32[48,48]. let\n"
     "          d:f32[32,48] = dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()] a w\n"
     "          g:f32[32,48] = tanh d\n"
     "          h:f32[48,48] = dot_general[lhs_contract=(0) rhs_contract=(0) lhs_batch=() rhs_batch=()] a g\n"
     "        in (g, h, d) }] x w\n"
     "  in (y, z, u) }",
     1, 1, 0},
    /* 37 steps have no chunks */
    {"{ lambda ; x:f32[32,48]\"x\" w:f32[37,48,48]\"w\". let\n"
     "    y:f32[32,48] z:f32[37,48,48] = scan[length=37 reverse=false consts=0 carry=1\n"
     "      body={ lambda ; a:f32[32,48] w:f32[48,48]. let\n"
     "          d:f32[32,48] = dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()] a w\n"
     "          g:f32[32,48] = tanh d\n"
     "          h:f32[48,48] = dot_general[lhs_contract=(0) rhs_contract=(0) lhs_batch=() rhs_batch=()] a g\n"
     "        in (g, h) }] x w\n"
     "  in (y, z) }",
     0, 0, 0},
    /* an array whose rows do not come with those of the carry */
    {"{ lambda ; x:f32[32,48]\"x\" w:f32[48,48]\"w\". let\n"
     "    y:f32[32,48] = scan[length=12 reverse=false consts=2 carry=1\n"
     "      body={ lambda ; c:f32[32,48] w:f32[48,48] a:f32[32,48]. let\n"
     "          d:f32[32,48] = dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()] a w\n"
     "          g:f32[32,48] = tanh d\n"
     "          h:f32[32,48] = add g c\n"
     "        in (h) }] x w x\n"
     "  in (y) }",
     0, 0, 0},
    /* a sum over rows that goes on in the carry */
    {"{ lambda ; x:f32[32,48]\"x\" w:f32[48,48]\"w\". let\n"
     "    y:f32[32,48] = scan[length=12 reverse=false consts=1 carry=1\n"
     "      body={ lambda ; w:f32[48,48] a:f32[32,48]. let\n"
     "          d:f32[32,48] = dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()] a w\n"
     "          s:f32[48] = reduce_sum[axes=(0)] d\n"
     "          e:f32[32,48] = broadcast_in_dim[shape=(32,48) axes=(1)] s\n"
     "          f:f32[32,48] = sub d e\n"
     "          g:f32[32,48] = tanh f\n"
     "        in (g) }] w x\n"
     "  in (y) }",
     0, 0, 0},
    /* no carry: sums over rows in each step by itself */
    {"{ lambda ; x:f32[12,32,48]\"x\" w:f32[12,32,80]\"w\". let\n"
     "    y:f32[12,48,80] s:f32[12,48] = scan[length=12 reverse=true consts=0 carry=0\n"
     "      body={ lambda ; a:f32[32,48] w:f32[32,80]. let\n"
     "          s:f32[48] = reduce_sum[axes=(0)] a\n"
     "          d:f32[48,80] = dot_general[lhs_contract=(0) rhs_contract=(0) lhs_batch=() rhs_batch=()] a w\n"
     "        in (d, s) }] x w\n"
     "  in (y, s) }",
     0, 1, 0},
    /* rows that nobody reads take the place of the operand's, so others may not */
    {"{ lambda ; x:f32[12,96,96]\"x\". let\n"
     "    n:f32[12,96,96] = neg x\n"
     "    c:f32[12,96,96] s:f32[12,96,96] = scan[length=12 reverse=false consts=0 carry=0\n"
     "      body={ lambda ; a:f32[96,96]. let\n"
     "          c:f32[96,96] = cos a\n"
     "          s:f32[96,96] = sin a\n"
     "        in (c, s) }] n\n"
     "    y:f32[12,96,96] = rev[axes=(0,1)] s\n"
     "  in (y) }",
     0, 1, 0},
};

static tow_context *ctx;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(ctx));                                       \
    } while (0)

static size_t bytes_of(const tow_array *x) { return tow_type_bytes(tow_array_type(x)); }

static void fill(tow_array *x, uint32_t seed)
{
    tow_type type = tow_array_type(x);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        seed = seed * 1664525u + 1013904223u;
        ((float *)tow_array_data(x))[i] = ((float)(seed >> 8) / 16777216.0f - 0.5f) * 0.5f;
    }
}

static void count_loops(const tow__body *plan, int *by_rows, int *by_iterations)
{
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        const tow__loop *loop = plan->insts[i].loop;
        if (!loop) continue;
        *by_rows += loop->schedule == TOW__PARALLEL_ROWS;
        *by_iterations += loop->schedule == TOW__PARALLEL_ITERATIONS;
        count_loops(loop->body, by_rows, by_iterations);
    }
}

/* Results of a program with these options; `count`: NULL, or what it should be spread like if there are two threads. */
static void run(const tow_graph *g, const tow_compile_options *options, const example *count, tow_array **results)
{
    tow_program *p;
    tow_array *inputs[MOST];
    OK(tow_compile(ctx, g, options, &p));
    OK(tow_program_check(p));
    int by_rows = 0, by_iterations = 0;
    count_loops(p->top, &by_rows, &by_iterations);
    if (count && p->team.threads > 1) {
        assert_int_equal(by_rows, count->by_rows);
        assert_int_equal(by_iterations, count->by_iterations);
    } else {
        assert_int_equal(by_rows + by_iterations, 0);
    }
    for (size_t i = 0; i < tow_graph_input_count(g); i++) {
        OK(tow_array_create(ctx, tow_graph_input_type(g, i), &inputs[i]));
        fill(inputs[i], (uint32_t)i + 1);
    }
    for (size_t i = 0; i < tow_graph_output_count(g); i++)
        OK(tow_array_create(ctx, tow_graph_output_type(g, i), &results[i]));
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < tow_graph_output_count(g); i++)
            memset(tow_array_data(results[i]), 0xff, bytes_of(results[i]));
        OK(tow_program_run(p, inputs, results));
    }
    for (size_t i = 0; i < tow_graph_input_count(g); i++) tow_array_release(inputs[i]);
    tow_program_free(p);
}

static void expect_same(const example *e)
{
    tow_graph *g, *gradient;
    OK(tow_graph_parse(ctx, e->text, &g));
    if (e->wrt > 0) {
        OK(tow_value_and_grad(g, e->wrt, (size_t[]){0, 1, 2}, false, &gradient));
        tow_graph_release(g);
        g = gradient;
    }
    tow_array *expected[MOST], *found[MOST];
    const tow_compile_options plain = TOW_COMPILE_OPTIONS(.threads = 1, .no_regions = true, .no_fusion = true);
    const tow_compile_options others[] = {TOW_COMPILE_OPTIONS(.threads = 1), TOW_COMPILE_OPTIONS(.threads = 2),
                                          TOW_COMPILE_OPTIONS(.threads = 2, .no_fusion = true)};
    run(g, &plain, NULL, expected);
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        run(g, &others[k], others[k].threads > 1 ? e : NULL, found);
        for (size_t i = 0; i < tow_graph_output_count(g); i++) {
            assert_memory_equal(tow_array_data(expected[i]), tow_array_data(found[i]), bytes_of(expected[i]));
            tow_array_release(found[i]);
        }
    }
    for (size_t i = 0; i < tow_graph_output_count(g); i++) tow_array_release(expected[i]);
    tow_graph_release(g);
}

static void spreading_changes_no_bits(void **state)
{
    (void)state;
    tow_context_options options = TOW_CONTEXT_OPTIONS(.threads = 2);
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) expect_same(&examples[i]);
    tow_context_free(ctx);
}

/* The first example, in which loops are spread in both ways and something is deferred. */
static void allocations_may_fail(void **state)
{
    (void)state;
    counting count = {.fail_at = -1};
    tow_context_options options =
        TOW_CONTEXT_OPTIONS(.allocator = {.resize = counting_resize, .user = &count}, .threads = 2);
    tow_graph *g, *gradient;
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    OK(tow_graph_parse(ctx, examples[0].text, &g));
    OK(tow_value_and_grad(g, 3, (size_t[]){0, 1, 2}, false, &gradient));
    expect_compile_survives(&count, ctx, gradient, NULL);
    tow_graph_release(g);
    tow_graph_release(gradient);
    tow_context_free(ctx);
    assert_int_equal(count.blocks, 0);
    assert_int_equal(count.wrong_sizes, 0);
}

/* The products among the calls: the last one fetches what the others read of the next rows, each its own operand 1. */
static int expect_fetches(const tow__code *code, const char *w, const char *row, ptrdiff_t bytes)
{
    int products = 0;
    for (uint32_t i = 0; i < code->n; i++) {
        const tow__kernel_call *call = &code->calls[i].arguments;
        if (!code->calls[i].kernel->prefetches) continue;
        bool last = ++products == 2;
        assert_ptr_equal(call->next_operand, last ? NULL : w);
        assert_ptr_equal(call->read_next[0].data, last ? row : NULL);
        assert_int_equal(call->read_next[0].bytes, last ? bytes : 0);
        for (int j = 1; j < TOW__SPANS; j++) assert_int_equal(call->read_next[j].bytes, 0);
    }
    return products;
}

/* A row that is read twice, one that repeats, and two products, of which one has the same second operand throughout. */
static void products_fetch_the_next_rows(void **state)
{
    (void)state;
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 2), &ctx), TOW_OK);
    for (int variant = 0; variant < 4; variant++) {
        const bool reverse = variant % 2;
        char text[2048];
        snprintf(
            text, sizeof text,
            "{ lambda ; x:f32[32,48]\"x\" v:f32[48,48]\"v\" w:f32[9,48,48]\"w\" r:f32[9,32,48]\"r\" b:f32[9,48]\"b\".\n"
            "  let y:f32[32,48] = scan[length=9 reverse=%s consts=1 carry=1\n"
            "      body={ lambda ; v:f32[48,48] a:f32[32,48] w:f32[48,48] r:f32[32,48] b:f32[48]. let\n"
            "          c:f32[32,48] = broadcast_in_dim[shape=(32,48) axes=(1)] b\n"
            "          s:f32[32,48] = mul a r\n"
            "          d:f32[32,48] = dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()] s w\n"
            "          e:f32[32,48] = add d c\n"
            "          f:f32[32,48] = dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()] e v\n"
            "          g:f32[32,48] = sub f r\n"
            "        in (g) }] v x w r b\n"
            "  in (y) }",
            reverse ? "true" : "false");
        tow_graph *g;
        tow_program *p;
        tow_array *inputs[5], *result;
        OK(tow_graph_parse(ctx, text, &g));
        OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.threads = 1 + variant / 2), &p));
        const int threads = p->team.threads; /* no more than there are CPUs */
        for (size_t i = 0; i < 5; i++) {
            OK(tow_array_create(ctx, tow_graph_input_type(g, i), &inputs[i]));
            fill(inputs[i], (uint32_t)i + 1);
        }
        OK(tow_array_create(ctx, tow_graph_output_type(g, 0), &result));
        OK(tow_program_run(p, inputs, &result));
        assert_non_null(p->top->insts[0].loop);
        const tow__body *body = p->top->insts[0].loop->body;
        assert_int_equal(body->copies, threads > 1 ? threads : 0);
        /* behind the last row */
        const char *w = (const char *)tow_array_data(inputs[2]) + (reverse ? -1 : 9) * 48 * 48 * 4;
        const char *r = (const char *)tow_array_data(inputs[3]) + (reverse ? -1 : 9) * 32 * 48 * 4;
        const ptrdiff_t bytes = 32 * 48 * 4 / threads;
        for (int t = 0; t < threads; t++) {
            const tow__code *code = &p->executable.code.calls[0].loop->codes[t];
            assert_int_equal(expect_fetches(code, w, r + t * bytes, bytes), 2);
        }
        for (size_t i = 0; i < 5; i++) tow_array_release(inputs[i]);
        tow_array_release(result);
        tow_program_free(p);
        tow_graph_release(g);
    }
    tow_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(spreading_changes_no_bits),
                                       cmocka_unit_test(allocations_may_fail),
                                       cmocka_unit_test(products_fetch_the_next_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
