/* The frontiers of thirty losses: 1,000 limits of each pick plans that are within them, and more bytes never take more
 * seconds; layers of unequal bytes are cut as they should be; the number of plans of a search does not depend on the
 * depth of a model.
 *
 * Tests frontier.c, src/graph/frontiers.c, autodiff/limit/blocks.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/graph/graph.h"
#include "src/plan/remat/remat.h"
#include "tests/unit/support/limit_graphs.h"
#include "tests/unit/support/threaded_context.h"
#include "tow/tow.h"

enum {
    LIMITS = 1000,
    ROWS = 48
};

/* A gradient with its frontier. */
typedef struct curve {
    tow_graph *gradient;
    tow__variants variants;
    tow__frontier frontier;
    tow__arena arena;
} curve;

static tow_graph *gradient_of(tow_graph *loss, size_t n)
{
    tow_graph *gradient;
    size_t wrt[LIMIT_INPUTS];
    for (size_t i = 0; i < n; i++) wrt[i] = i;
    OK(tow_value_and_grad(loss, n, wrt, false, &gradient));
    tow_graph_release(loss);
    return gradient;
}

static void begin(curve *c, tow_graph *gradient)
{
    tow__pricing pricing;
    *c = (curve){.gradient = gradient};
    tow__arena_init(&c->arena, ctx);
    OK(tow__pricing_begin(ctx, gradient->origin->loss, 1, &pricing));
    OK(gradient->origin->variants(gradient, &pricing.price, &c->variants));
    tow__pricing_end(&pricing);
    OK(tow__find_frontier(&c->arena, &c->variants, &TOW_COMPILE_OPTIONS(.threads = 1), 1, &c->frontier));
    assert_true(c->frontier.n > 0);
}

static void end(curve *c)
{
    c->gradient->origin->free_variants(&c->variants);
    tow_graph_release(c->gradient);
    tow__arena_free(&c->arena);
}

/* A plan of its own for each point takes the bytes of the point. */
static void expect_bytes(const curve *c, const tow__plan_point *point)
{
    tow_graph *graph;
    tow_program *p;
    OK(c->variants.make(c->variants.user, point->variant, &graph));
    OK(tow__compile_with_choice(ctx, graph,
                                &TOW_COMPILE_OPTIONS(.threads = 1, .plan_only = true, .memory_limit = SIZE_MAX), 1,
                                point->choice, &p));
    OK(tow_program_check(p));
    const tow_program_bytes b = tow_program_get_bytes(p);
    assert_int_equal(b.inputs + b.outputs + b.constants + b.arena, point->bytes);
    tow_program_free(p);
    tow_graph_release(graph);
}

static void more_bytes_never_take_more_time(void **state)
{
    (void)state;
    for (int kind = 0; kind < LIMIT_GRAPHS; kind++) {
        tow_graph *loss;
        size_t n;
        curve c;
        OK(limit_loss(ctx, kind, ROWS, &loss, &n));
        begin(&c, gradient_of(loss, n));
        for (uint32_t i = 0; i < c.frontier.n; i++) expect_bytes(&c, &c.frontier.points[i]);
        const size_t least = c.frontier.points[0].bytes, most = c.frontier.points[c.frontier.n - 1].bytes;
        double last = HUGE_VAL;
        for (size_t k = 0; k < LIMITS; k++) {
            const size_t limit = least - least / 10 + (most - least + least / 5) * k / LIMITS;
            const tow__plan_point *point = tow__pick_point(&c.frontier, limit);
            if (limit < least) assert_null(point);
            if (limit >= least) assert_non_null(point);
            if (!point) continue;
            assert_true(point->bytes <= limit && point->seconds <= last);
            last = point->seconds;
        }
        end(&c);
    }
}

/* ---- a second time ----------------------------------------------------------------------------------------------- */

static tow_graph *some_gradient(void)
{
    tow_graph *loss;
    size_t n;
    OK(limit_loss(ctx, 0, ROWS, &loss, &n));
    return gradient_of(loss, n);
}

/* The plan within a limit, as text and bytes; the number of plans that have been made for its graph. */
static uint64_t plan_within(const tow_graph *gradient, tow_compile_options options, char *text, size_t size)
{
    tow_program *p;
    options.plan_only = true;
    OK(tow_compile(ctx, gradient, &options, &p));
    assert_in_range(tow_program_text(p, text, size), 1, size - 1);
    tow_program_free(p);
    return gradient->origin->frontiers->plans;
}

/* A graph is searched once: its curve, then plans for every limit of it, which are those of a graph that was not
 * searched before. */
static void a_graph_is_searched_once(void **state)
{
    (void)state;
    enum {
        SIZE = 1 << 17
    };
    char *again = malloc(SIZE), *alone = malloc(SIZE);
    assert_true(again && alone);
    tow_graph *gradient = some_gradient();
    tow_memory_point points[64], same[64];
    size_t n, m;
    OK(tow_memory_curve(ctx, gradient, &TOW_COMPILE_OPTIONS(.threads = 1), 64, points, &n));
    const uint64_t plans = gradient->origin->frontiers->plans;
    assert_in_range(plans, 2, 64);
    OK(tow_memory_curve(ctx, gradient, &TOW_COMPILE_OPTIONS(.threads = 1), 64, same, &m));
    assert_int_equal(n, m);
    assert_memory_equal(points, same, n * sizeof *points);
    for (size_t i = 0; i < n && i < 64; i++) {
        const tow_compile_options options = TOW_COMPILE_OPTIONS(.threads = 1, .memory_limit = points[i].bytes);
        tow_graph *fresh = some_gradient();
        assert_int_equal(plan_within(gradient, options, again, SIZE), plans);
        assert_int_equal(plan_within(fresh, options, alone, SIZE), plans);
        assert_string_equal(again, alone);
        tow_graph_release(fresh);
    }
    tow_program *p;
    assert_int_equal(
        tow_compile(ctx, gradient, &TOW_COMPILE_OPTIONS(.threads = 1, .memory_limit = points[0].bytes - 1), &p),
        TOW_INVALID_ARGUMENT);
    assert_int_equal(gradient->origin->frontiers->plans, plans);
    tow_graph_release(gradient);
    free(again);
    free(alone);
}

/* Each of the options on which a frontier depends has one of its own. */
static void other_options_are_searched(void **state)
{
    (void)state;
    static const char *const without[] = {"tile", NULL};
    const tow_donation donation = {1, 0};
    const tow_compile_options options[] = {
        TOW_COMPILE_OPTIONS(.threads = 1),
        TOW_COMPILE_OPTIONS(.threads = 2),
        TOW_COMPILE_OPTIONS(.threads = 1, .no_regions = true),
        TOW_COMPILE_OPTIONS(.threads = 1, .no_fusion = true),
        TOW_COMPILE_OPTIONS(.threads = 1, .flush_subnormals = true),
        TOW_COMPILE_OPTIONS(.threads = 1, .without = without),
        TOW_COMPILE_OPTIONS(.threads = 1, .donations = &donation, .n_donations = 1),
    };
    tow_graph *gradient = some_gradient();
    tow_memory_point points[64];
    size_t n;
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < sizeof options / sizeof *options; i++) {
            const uint64_t before = gradient->origin->frontiers->plans;
            OK(tow_memory_curve(ctx, gradient, &options[i], 64, points, &n));
            assert_int_equal(gradient->origin->frontiers->plans > before, round == 0);
        }
    assert_int_equal(gradient->origin->frontiers->n, sizeof options / sizeof *options);
    tow_graph_release(gradient);
}

/* Of many the first ones go. */
static void few_frontiers_are_kept(void **state)
{
    (void)state;
    tow__frontiers f = {.ctx = ctx};
    tow_graph *graph = some_gradient();
    char key[16];
    size_t size;
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "%d", i);
        OK(tow__frontiers_add(&f, i == 250 ? graph : NULL, key, &i, sizeof i, 2));
    }
    assert_int_equal(f.n, 100);
    assert_int_equal(f.plans, 600);
    tow_graph_release(graph); /* shared, so alive */
    assert_null(tow__frontiers_find(&f, NULL, "199", &size));
    assert_null(tow__frontiers_find(&f, NULL, "250", &size));
    for (int i = 200; i < 300; i++) {
        snprintf(key, sizeof key, "%d", i);
        const int *found = tow__frontiers_find(&f, i == 250 ? graph : NULL, key, &size);
        assert_true(found && *found == i && size == sizeof i);
    }
    tow__frontiers_free(&f);
    assert_int_equal(f.n, 0);
    assert_null(f.first);
}

/* ---- depth ------------------------------------------------------------------------------------------------------- */

static void layer(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add(in[0], tow_dot(tow_gelu(tow_dot(in[0], in[1])), in[2]));
}

typedef struct deep {
    int64_t layers;
    bool scan;
} deep;

static void deep_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const deep *d = user;
    tow_value x = in[0];
    if (d->scan) tow_scan_function(t, layer, user, NULL, 1, in, 2, in + 1, 0, &x, NULL);
    for (int64_t i = 0; i < d->layers && !d->scan; i++) layer(t, (tow_value[]){x, in[1], in[2]}, &x, user);
    out[0] = tow_reduce_sum(tow_square(x), 0, NULL);
}

static uint32_t plans_of(int64_t layers, bool scan)
{
    deep d = {layers, scan};
    const int64_t w1[] = {layers, 16, 64}, w2[] = {layers, 64, 16};
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){64, 16}),
                              tow_make_type(TOW_F32, scan ? 3 : 2, scan ? w1 : w1 + 1),
                              tow_make_type(TOW_F32, scan ? 3 : 2, scan ? w2 : w2 + 1)};
    tow_graph *loss;
    curve c;
    OK(tow_trace_function(ctx, deep_loss, &d, 3, types, NULL, 1, &loss));
    begin(&c, gradient_of(loss, 3));
    const uint32_t n = c.frontier.n_plans;
    end(&c);
    return n;
}

static void searches_are_flat_in_depth(void **state)
{
    (void)state;
    assert_in_range(plans_of(4, false), 2, 64);
    assert_in_range(plans_of(48, false), 2, 64);
    assert_in_range(plans_of(4, true), 2, 80);
    assert_in_range(plans_of(48, true), 2, 80);
    assert_in_range(plans_of(1000, true), 2, 80);
}

/* ---- stages ------------------------------------------------------------------------------------------------------ */

static const int blocks_of_stage[] = {3, 4, 6, 3};

/* Residual blocks in four stages, as in a ResNet: x [n, s, s, 4 f], by 1 x 1 to f features, by 3 x 3 to f, by 1 x 1 to
 * 4 f; half of the side and twice the features from one stage to the next. in: images, then the kernels. */
static void stages_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_conv_options same = TOW_CONV_OPTIONS(.padding = TOW_PAD_SAME);
    tow_value x = *in++;
    (void)t, (void)user;
    for (int stage = 0; stage < 4; stage++) {
        const tow_pool_options half = TOW_POOL_OPTIONS(.spatial = 2, .window = {2, 2}, .strides = {2, 2});
        if (stage > 0) x = tow_conv_general_dilated(tow_max_pool(x, &half), *in++, &same);
        for (int block = 0; block < blocks_of_stage[stage]; block++) {
            tow_value y = tow_gelu(tow_conv_general_dilated(x, *in++, &same));
            y = tow_gelu(tow_conv_general_dilated(y, *in++, &same));
            x = tow_gelu(tow_add(x, tow_conv_general_dilated(y, *in++, &same)));
        }
    }
    out[0] = tow_reduce_sum(tow_square(x), 0, NULL);
}

static tow_type kernel_type(int64_t window, int64_t from, int64_t to)
{
    return tow_make_type(TOW_F32, 4, (int64_t[]){window, window, from, to});
}

static uint32_t list_stages(tow_type *types)
{
    uint32_t n = 0;
    types[n++] = tow_make_type(TOW_F32, 4, (int64_t[]){8, 32, 32, 32});
    for (int stage = 0; stage < 4; stage++) {
        const int64_t f = 8 << stage;
        if (stage > 0) types[n++] = kernel_type(1, 2 * f, 4 * f);
        for (int block = 0; block < blocks_of_stage[stage]; block++) {
            types[n++] = kernel_type(1, 4 * f, f);
            types[n++] = kernel_type(3, f, f);
            types[n++] = kernel_type(1, f, 4 * f);
        }
    }
    return n;
}

/* The products of a block take 4, 9 and 4 units, backward twice as many. It keeps x, of 4 f features, and f, f and 4 f
 * that go into the activations. From the f and f its x can be made again, for the third product, 4 of the 51 units of a
 * step: for 8 % more operations the bytes are halved. */
static void blocks_have_equal_bytes(void **state)
{
    (void)state;
    tow_type types[64];
    tow_graph *loss;
    curve c;
    const uint32_t n = list_stages(types);
    OK(tow_trace_function(ctx, stages_loss, NULL, n, types, NULL, 1, &loss));
    begin(&c, gradient_of(loss, n));
    const tow__plan_point *all = &c.frontier.points[c.frontier.n - 1];
    double least = HUGE_VAL;
    for (uint32_t i = 0; i < c.frontier.n; i++) {
        const tow__plan_point *p = &c.frontier.points[i];
        if (p->flops <= 1.08 * all->flops) least = fmin(least, (double)p->bytes / (double)all->bytes);
    }
    assert_true(least <= 0.5);
    end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(more_bytes_never_take_more_time, setup, teardown),
        cmocka_unit_test_setup_teardown(blocks_have_equal_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(searches_are_flat_in_depth, setup, teardown),
        cmocka_unit_test_setup_teardown(a_graph_is_searched_once, setup, teardown),
        cmocka_unit_test_setup_teardown(other_options_are_searched, setup, teardown),
        cmocka_unit_test_setup_teardown(few_frontiers_are_kept, setup, teardown),
    };
    return cmocka_run_group_tests_name("frontiers", tests, NULL, NULL);
}
