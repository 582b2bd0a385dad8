/* Remat within a budget of bytes: the same bits for every budget, no arena above it or above what the plan takes
 * without, more products kept the larger it is, none made again where it is large; scans and graphs without remat are
 * as before.
 *
 * Tests eliminate_recomputation.c, search_budget.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/failing_compiles.h"
#include "tests/unit/support/threaded_context.h"
#include "tow/tow.h"

enum {
    LAYERS = 4,
    MOST = 2 * LAYERS + 1 /* inputs, and outputs of the gradient */
};

typedef struct recipe {
    int64_t rows, width, hidden;
    bool remat, whole, biased; /* whole: one region around everything, the loss included */
} recipe;

static void block(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    const recipe *r = user;
    tow_value h = tow_dot(in[0], in[1]);
    if (r->biased) h = tow_add(h, tow_squeeze(tow_slice_axis(in[2], 1, 0, 1), 1));
    out[0] = tow_add(in[0], tow_dot(tow_gelu(h), in[2]));
}

static void step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const recipe *r = user;
    if (r->remat)
        tow_remat_function(t, block, user, NULL, 3, in, 1, out);
    else
        block(t, in, out, user);
}

static void layers(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value x = in[0];
    for (int i = 0; i < LAYERS; i++) step(t, (tow_value[]){x, in[1 + 2 * i], in[2 + 2 * i]}, &x, user);
    out[0] = tow_reduce_sum(tow_square(x), 0, NULL);
}

static void loss_function(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const recipe *r = user;
    if (r->whole)
        tow_remat_function(t, layers, user, NULL, MOST, in, 1, out);
    else
        layers(t, in, out, user);
}

static void scanned(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value y;
    tow_scan_function(t, step, user, &TOW_SCAN_OPTIONS(), 1, in, 2, in + 1, 0, &y, NULL);
    out[0] = tow_reduce_sum(tow_square(y), 0, NULL);
}

static tow_graph *gradient_of(recipe *r, bool scan)
{
    tow_type x = tow_make_type(TOW_F32, 2, (int64_t[]){r->rows, r->width}), types[MOST] = {x};
    tow_graph *loss, *gradient;
    size_t n = scan ? 3 : MOST, wrt[MOST];
    for (size_t i = 0; i < n; i++) wrt[i] = i;
    for (size_t i = 1; i < n; i++) {
        int64_t in = i % 2 ? r->width : r->hidden, out = i % 2 ? r->hidden : r->width;
        types[i] = scan ? tow_make_type(TOW_F32, 3, (int64_t[]){LAYERS, in, out})
                        : tow_make_type(TOW_F32, 2, (int64_t[]){in, out});
    }
    OK(tow_trace_function(ctx, scan ? scanned : loss_function, r, n, types, NULL, 1, &loss));
    OK(tow_value_and_grad(loss, n, wrt, false, &gradient));
    tow_graph_release(loss);
    return gradient;
}

static tow_program *compile(const tow_graph *g, tow_compile_options options)
{
    tow_program *p;
    OK(tow_compile(ctx, g, &options, &p));
    OK(tow_program_check(p));
    return p;
}

static uint64_t products(const tow_program *p) { return tow_program_operation_count(p, "dot_general"); }
static size_t arena(const tow_program *p) { return tow_program_get_bytes(p).arena; }

/* Runs the program on inputs that follow from their number and releases it. */
static void run(tow_program *p, const tow_graph *g, tow_array **y)
{
    tow_array *x[MOST] = {NULL};
    for (size_t i = 0; i < tow_graph_input_count(g); i++) {
        OK(tow_array_create(ctx, tow_graph_input_type(g, i), &x[i]));
        uint32_t seed = (uint32_t)i + 3;
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(x[i])); k++) {
            seed = seed * 1664525u + 1013904223u;
            ((float *)tow_array_data(x[i]))[k] = ((float)(seed >> 8) / 16777216.0f - 0.5f) * 0.3f;
        }
    }
    for (size_t i = 0; i < tow_graph_output_count(g); i++)
        OK(tow_array_create(ctx, tow_graph_output_type(g, i), &y[i]));
    OK(tow_program_run(p, x, y));
    for (size_t i = 0; i < tow_graph_input_count(g); i++) tow_array_release(x[i]);
    tow_program_free(p);
}

static void expect_same(size_t n, tow_array **a, tow_array **b)
{
    for (size_t i = 0; i < n; i++)
        assert_memory_equal(tow_array_data(a[i]), tow_array_data(b[i]), tow_type_bytes(tow_array_type(a[i])));
}

static void release(size_t n, tow_array **y)
{
    for (size_t i = 0; i < n; i++) tow_array_release(y[i]);
}

/* Budgets from nothing to everything, each with every other option. */
static void expect_budgets_hold(recipe r)
{
    recipe plain = r;
    plain.remat = plain.whole = false;
    tow_graph *g = gradient_of(&r, false), *without = gradient_of(&plain, false);
    tow_program *strict = compile(g, TOW_COMPILE_OPTIONS(.plan_only = true)),
                *free_of_remat = compile(without, TOW_COMPILE_OPTIONS(.plan_only = true));
    size_t least = arena(strict), n_out = tow_graph_output_count(g);
    uint64_t most_products = products(strict), least_products = products(free_of_remat), last = most_products;
    const size_t hidden = sizeof(float) * (size_t)(r.rows * r.hidden);
    const size_t budgets[] = {0, 1, least + hidden, least + 2 * hidden, least + 3 * hidden, SIZE_MAX};
    tow_array *expected[MOST + 1], *y[MOST + 1];
    assert_true(most_products > least_products);
    tow_program_free(strict);
    tow_program_free(free_of_remat);
    run(compile(g, TOW_COMPILE_OPTIONS(.threads = 1)), g, expected);
    for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
        tow_program *p = compile(g, TOW_COMPILE_OPTIONS(.keep_within = budgets[b]));
        assert_true(arena(p) <= (least > budgets[b] ? least : budgets[b]));
        assert_true(products(p) <= last);
        if (b == 0) assert_int_equal(products(p), most_products);
        last = products(p);
        run(p, g, y);
        expect_same(n_out, expected, y);
        release(n_out, y);
        run(compile(
                g, TOW_COMPILE_OPTIONS(.keep_within = budgets[b], .threads = 1, .no_fusion = true, .no_regions = true)),
            g, y);
        expect_same(n_out, expected, y);
        release(n_out, y);
    }
    assert_int_equal(last, least_products);
    release(n_out, expected);
    tow_graph_release(g);
    tow_graph_release(without);
}

static void budgets_hold_and_change_no_bit(void **state)
{
    (void)state;
    expect_budgets_hold((recipe){.rows = 48, .width = 24, .hidden = 100, .remat = true});
    expect_budgets_hold((recipe){.rows = 48, .width = 24, .hidden = 100, .whole = true});
    expect_budgets_hold((recipe){.rows = 30, .width = 16, .hidden = 40, .remat = true, .whole = true});
    expect_budgets_hold((recipe){.rows = 1024, .width = 32, .hidden = 128, .remat = true}); /* row regions */
    expect_budgets_hold((recipe){.rows = 1024, .width = 32, .hidden = 128, .whole = true});
    expect_budgets_hold((recipe){.rows = 1536, .width = 16, .hidden = 400, .remat = true}); /* blocks in order */
    expect_budgets_hold((recipe){.rows = 1800, .width = 16, .hidden = 300, .whole = true});
}

static bool says(const tow_program *p, const char *what)
{
    size_t size = tow_program_text(p, NULL, 0) + 1;
    char *text = malloc(size);
    assert_non_null(text);
    tow_program_text(p, text, size);
    bool found = strstr(text, what);
    free(text);
    return found;
}

static void expect_interleaved(recipe plain)
{
    recipe whole = plain;
    whole.whole = true;
    tow_graph *g = gradient_of(&plain, false), *again = gradient_of(&whole, false);
    tow_program *p = compile(g, TOW_COMPILE_OPTIONS(.plan_only = true)),
                *budget = compile(g, TOW_COMPILE_OPTIONS(.plan_only = true, .keep_within = 1)),
                *strict = compile(again, TOW_COMPILE_OPTIONS(.plan_only = true)),
                *kept = compile(again, TOW_COMPILE_OPTIONS(.plan_only = true, .keep_within = arena(p) / 3));
    assert_true(arena(budget) < arena(p) / 3);
    assert_false(says(p, "in turn"));
    assert_true(says(budget, "in turn") && says(budget, "blocks in order"));
    assert_true(says(kept, "in turn") && says(kept, "blocks in order"));
    assert_int_equal(tow_program_get_bytes(budget).residuals, 0);
    assert_int_equal(products(budget), products(p));
    assert_int_equal(products(kept), products(p));
    tow_array *expected[MOST + 1], *y[MOST + 1];
    size_t n = tow_graph_output_count(g), within = arena(p) / 3;
    tow_program_free(p);
    tow_program_free(budget);
    tow_program_free(strict);
    tow_program_free(kept);
    run(compile(g, TOW_COMPILE_OPTIONS(.threads = 1, .no_fusion = true, .no_regions = true)), g, expected);
    for (int threads = 1; threads <= 3; threads++) {
        run(compile(g, TOW_COMPILE_OPTIONS(.threads = threads, .keep_within = 1)), g, y);
        expect_same(n, expected, y);
        release(n, y);
        run(compile(again, TOW_COMPILE_OPTIONS(.threads = threads, .keep_within = within)), again, y);
        expect_same(n, expected, y);
        release(n, y);
    }
    release(n, expected);
    tow_graph_release(g);
    tow_graph_release(again);
}

/* A value that would be kept or made again for all rows is kept for a block, and nothing is made twice; without remat,
 * too. A block is no multiple of a segment of 1024 rows, of which sums are made; the last one is smaller. */
static void blocks_of_rows_go_through_both_parts(void **state)
{
    (void)state;
    expect_interleaved((recipe){.rows = 4096, .width = 16, .hidden = 160});
    expect_interleaved((recipe){.rows = 4100, .width = 16, .hidden = 160, .biased = true});
    expect_interleaved((recipe){.rows = 3000, .width = 128, .hidden = 300, .biased = true});
    expect_interleaved((recipe){.rows = 4100, .width = 10, .hidden = 200}); /* the loss fits no block: it waits */
}

/* One region around everything: when its forward pass ends, its backward pass begins. */
static void what_costs_nothing_is_kept(void **state)
{
    (void)state;
    recipe r = {.rows = 48, .width = 24, .hidden = 100, .whole = true};
    tow_graph *g = gradient_of(&r, false);
    tow_program *strict = compile(g, TOW_COMPILE_OPTIONS(.plan_only = true)),
                *p = compile(g, TOW_COMPILE_OPTIONS(.plan_only = true, .keep_within = 1));
    assert_true(arena(p) <= arena(strict));
    assert_true(products(p) < products(strict));
    tow_program_free(strict);
    tow_program_free(p);
    tow_graph_release(g);
}

static void scans_and_graphs_without_remat_are_as_before(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        recipe r = {.rows = 48, .width = 24, .hidden = 100, .remat = i == 0};
        tow_graph *g = gradient_of(&r, i == 0);
        tow_program *strict = compile(g, TOW_COMPILE_OPTIONS(.plan_only = true)),
                    *p = compile(g, TOW_COMPILE_OPTIONS(.plan_only = true, .keep_within = SIZE_MAX));
        assert_int_equal(arena(p), arena(strict));
        assert_int_equal(products(p), products(strict));
        tow_program_free(strict);
        tow_program_free(p);
        tow_graph_release(g);
    }
}

/* x [steps, rows, width], start [rows, width], w [width, width]: a scan whose product of few rows is made for all steps
 * at once, and the product of all rows, which may run on another engine; its repetition must be what it was itself. */
static void add_step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = tow_tanh(tow_add(in[0], tow_dot(in[1], *(const tow_value *)user)));
}

static void tanh_of_product(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_square(tow_tanh(tow_dot(in[0], in[1])));
}

static void twins(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_value w = in[2], last, all;
    tow_scan_function(t, add_step, &w, &TOW_SCAN_OPTIONS(), 1, &in[1], 1, &in[0], 0, &last, NULL);
    tow_remat_function(t, tanh_of_product, NULL, NULL, 2, (tow_value[]){in[0], w}, 1, &all);
    out[0] = tow_add(tow_reduce_sum(tow_square(last), 0, NULL), tow_reduce_sum(all, 0, NULL));
}

static void products_of_other_sizes_are_no_repetitions(void **state)
{
    (void)state;
    tow_type types[3] = {tow_make_type(TOW_F32, 3, (int64_t[]){6, 48, 128}),
                         tow_make_type(TOW_F32, 2, (int64_t[]){48, 128}),
                         tow_make_type(TOW_F32, 2, (int64_t[]){128, 128})};
    tow_graph *loss, *gradient;
    tow_array *want[MOST], *got[MOST];
    OK(tow_trace_function(ctx, twins, NULL, 3, types, NULL, 1, &loss));
    OK(tow_value_and_grad(loss, 3, (size_t[]){0, 1, 2}, false, &gradient));
    size_t n = tow_graph_output_count(gradient);
    run(compile(gradient, TOW_COMPILE_OPTIONS()), gradient, want);
    run(compile(gradient, TOW_COMPILE_OPTIONS(.keep_within = SIZE_MAX)), gradient, got);
    expect_same(n, want, got);
    release(n, want);
    release(n, got);
    tow_graph_release(gradient);
    tow_graph_release(loss);
}

static void allocations_that_fail_are_reported(void **state)
{
    (void)state;
    recipe r = {.rows = 6, .width = 4, .hidden = 8, .remat = true};
    tow_graph *g = gradient_of(&r, false);
    expect_compile_survives(&memory, ctx, g, &TOW_COMPILE_OPTIONS(.plan_only = true, .keep_within = 1));
    tow_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(budgets_hold_and_change_no_bit, setup, teardown),
        cmocka_unit_test_setup_teardown(blocks_of_rows_go_through_both_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(what_costs_nothing_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(scans_and_graphs_without_remat_are_as_before, setup, teardown),
        cmocka_unit_test_setup_teardown(products_of_other_sizes_are_no_repetitions, setup, teardown),
        cmocka_unit_test_setup_teardown(allocations_that_fail_are_reported, setup, teardown),
    };
    return cmocka_run_group_tests_name("remat within a budget", tests, NULL, NULL);
}
