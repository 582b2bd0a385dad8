/* Memory limits: the same bits for every limit, no plan above it, no slower plan for more bytes, an error below the
 * least that is possible; of scans and of graphs without remat, too.
 *
 * Tests eliminate_recomputation.c, seconds.c. Tests autodiff/limit/kept_sets.c,
 * autodiff/limit/scan_runs.c, autodiff/limit/loss_variants.c, autodiff/limit/origin.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/graph/variants.h"
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

static size_t total(const tow_program *p)
{
    const tow_program_bytes b = tow_program_get_bytes(p);
    return b.inputs + b.outputs + b.constants + b.arena;
}

/* Every plan of the curve is within its bytes, each takes fewer seconds than the one before, and all give the same
 * bits; below the first one is an error. */
static void expect_curve_holds(const tow_graph *g, int threads)
{
    enum {
        MOST_POINTS = 128
    };
    tow_memory_point points[MOST_POINTS];
    tow_array *expected[MOST + 1], *y[MOST + 1];
    const size_t n_out = tow_graph_output_count(g);
    const tow_compile_options options = TOW_COMPILE_OPTIONS(.threads = threads);
    size_t n;
    tow_program *p;
    OK(tow_memory_curve(ctx, g, &options, MOST_POINTS, points, &n));
    assert_in_range(n, 1, MOST_POINTS);
    run(compile(g, TOW_COMPILE_OPTIONS(.threads = 1, .no_fusion = true, .no_regions = true)), g, expected);
    for (size_t i = 0; i < n; i++) {
        if (i > 0) assert_true(points[i].bytes > points[i - 1].bytes && points[i].seconds < points[i - 1].seconds);
        const size_t between = i + 1 < n ? points[i + 1].bytes - 1 : SIZE_MAX;
        p = compile(g, TOW_COMPILE_OPTIONS(.threads = threads, .memory_limit = points[i].bytes));
        assert_int_equal(total(p), points[i].bytes);
        run(p, g, y);
        expect_same(n_out, expected, y);
        release(n_out, y);
        p = compile(g, TOW_COMPILE_OPTIONS(.threads = threads, .memory_limit = between, .plan_only = true));
        assert_int_equal(total(p), points[i].bytes);
        tow_program_free(p);
    }
    assert_int_equal(
        tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.threads = threads, .memory_limit = points[0].bytes - 1), &p),
        TOW_INVALID_ARGUMENT);
    char least[64];
    snprintf(least, sizeof least, "at least %zu bytes", points[0].bytes);
    assert_non_null(strstr(tow_context_error(ctx), least));
    assert_non_null(strstr(tow_context_error(ctx), "arena"));
    release(n_out, expected);
}

static void expect_limits_hold(recipe r, bool scan)
{
    tow_graph *g = gradient_of(&r, scan);
    for (int threads = 1; threads <= 3; threads += 2) expect_curve_holds(g, threads);
    tow_graph_release(g);
}

static void limits_hold_and_change_no_bit(void **state)
{
    (void)state;
    expect_limits_hold((recipe){.rows = 48, .width = 24, .hidden = 100}, false);
    expect_limits_hold((recipe){.rows = 48, .width = 24, .hidden = 100, .remat = true}, false);
    expect_limits_hold((recipe){.rows = 48, .width = 24, .hidden = 100, .whole = true}, false);
    expect_limits_hold((recipe){.rows = 30, .width = 16, .hidden = 40, .remat = true, .whole = true}, false);
    expect_limits_hold((recipe){.rows = 1024, .width = 32, .hidden = 128, .remat = true}, false); /* row regions */
    expect_limits_hold((recipe){.rows = 1024, .width = 16, .hidden = 100, .biased = true}, false);
    expect_limits_hold((recipe){.rows = 1536, .width = 16, .hidden = 200}, false); /* blocks in order */
}

static void limits_hold_for_scans(void **state)
{
    (void)state;
    expect_limits_hold((recipe){.rows = 48, .width = 24, .hidden = 100}, true);
    expect_limits_hold((recipe){.rows = 48, .width = 24, .hidden = 100, .remat = true}, true);
    expect_limits_hold((recipe){.rows = 700, .width = 16, .hidden = 100, .biased = true}, true);
}

/* Without a region of the user's a scan takes no more at the least than one with regions, and there are plans for
 * different numbers of layers that keep their hidden values. */
static void scans_need_no_regions(void **state)
{
    (void)state;
    recipe plain = {.rows = 1024, .width = 128, .hidden = 512}, with = plain;
    with.remat = true;
    tow_memory_point points[128], points_with[128];
    size_t n, n_with;
    tow_graph *g = gradient_of(&plain, true), *g_with = gradient_of(&with, true);
    OK(tow_memory_curve(ctx, g, &TOW_COMPILE_OPTIONS(.threads = 1), 128, points, &n));
    OK(tow_memory_curve(ctx, g_with, &TOW_COMPILE_OPTIONS(.threads = 1), 128, points_with, &n_with));
    assert_int_equal(points[0].bytes, points_with[0].bytes);
    assert_true(n >= LAYERS);
    assert_true(points[n - 1].bytes - points[0].bytes >= 2 * sizeof(float) * (size_t)(plain.rows * plain.hidden));
    tow_graph_release(g);
    tow_graph_release(g_with);
}

/* One region around everything: when its forward pass ends, its backward pass begins. */
static void what_costs_nothing_is_kept(void **state)
{
    (void)state;
    recipe r = {.rows = 48, .width = 24, .hidden = 100, .whole = true};
    tow_graph *g = gradient_of(&r, false);
    tow_program *strict = compile(g, TOW_COMPILE_OPTIONS(.plan_only = true)),
                *p = compile(g, TOW_COMPILE_OPTIONS(.plan_only = true, .memory_limit = total(strict)));
    assert_true(arena(p) <= arena(strict));
    assert_true(products(p) < products(strict));
    tow_program_free(strict);
    tow_program_free(p);
    tow_graph_release(g);
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
    run(compile(gradient, TOW_COMPILE_OPTIONS(.memory_limit = SIZE_MAX)), gradient, got);
    expect_same(n, want, got);
    release(n, want);
    release(n, got);
    tow_graph_release(gradient);
    tow_graph_release(loss);
}

/* Of a search among many graphs, allocations further and further apart. */
static void expect_some_failures_survive(const tow_graph *g)
{
    const tow_compile_options options =
        TOW_COMPILE_OPTIONS(.plan_only = true, .no_regions = true, .memory_limit = SIZE_MAX, .threads = 1);
    tow_program *program;
    const long blocks = memory.blocks;
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long n = 0; status != TOW_OK; n += 1 + n / 6) {
        memory.calls = 0;
        memory.fail_at = n;
        status = tow_compile(ctx, g, &options, &program);
        memory.fail_at = -1;
        if (status == TOW_OK) break;
        assert_int_equal(status, TOW_OUT_OF_MEMORY);
        assert_null(program);
        tow__frontiers_free(g->origin->frontiers); /* found before the failure, or searched for again below */
        assert_int_equal(memory.blocks, blocks);
    }
    tow_program_free(program);
}

static void allocations_that_fail_are_reported(void **state)
{
    (void)state;
    recipe r = {.rows = 6, .width = 4, .hidden = 8, .remat = true};
    tow_graph *g = gradient_of(&r, false);
    tow_graph *alone; /* of which nothing is known: one variant */
    OK(tow_graph_dce(g, &alone));
    expect_compile_survives(
        &memory, ctx, alone,
        &TOW_COMPILE_OPTIONS(.plan_only = true, .no_regions = true, .memory_limit = SIZE_MAX, .threads = 1));
    tow_graph_release(alone);
    expect_some_failures_survive(g);
    expect_compile_survives(
        &memory, ctx, g,
        &TOW_COMPILE_OPTIONS(.plan_only = true, .no_regions = true, .memory_limit = SIZE_MAX, .threads = 1));
    tow_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(limits_hold_and_change_no_bit, setup, teardown),
        cmocka_unit_test_setup_teardown(limits_hold_for_scans, setup, teardown),
        cmocka_unit_test_setup_teardown(scans_need_no_regions, setup, teardown),
        cmocka_unit_test_setup_teardown(what_costs_nothing_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(products_of_other_sizes_are_no_repetitions, setup, teardown),
        cmocka_unit_test_setup_teardown(allocations_that_fail_are_reported, setup, teardown),
    };
    return cmocka_run_group_tests_name("memory limits", tests, NULL, NULL);
}
