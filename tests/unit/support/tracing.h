/* A context that counts its allocations, and graphs of functions of f32[3]. One test program includes it once, after
 * cmocka. */
#ifndef TOW_TESTS_TRACING_H
#define TOW_TESTS_TRACING_H

#include "tests/unit/support/counting_allocator.h"
#include "tow/ops.h"

static counting counted;
static tow_context *ctx;

static inline int setup(void **state)
{
    (void)state;
    tow_context_options options = counting_options(&counted, -1);
    return tow_context_create(&options, &ctx) == TOW_OK ? 0 : -1;
}

/* Nothing may be left, whatever the test did. */
static inline int teardown(void **state)
{
    (void)state;
    tow_context_free(ctx);
    if (counted.blocks != 0) print_error("%ld blocks leaked\n", counted.blocks);
    return counted.blocks == 0 && counted.wrong_sizes == 0 ? 0 : -1;
}

static inline tow_type vector(int64_t n) { return tow_make_type(TOW_F32, 1, &n); }

static inline tow_graph *trace(tow_function function, size_t n_inputs, size_t n_outputs)
{
    tow_graph *g = NULL;
    const tow_type types[] = {vector(3), vector(3), vector(3)};
    if (tow_trace_function(ctx, function, NULL, n_inputs, types, NULL, n_outputs, &g) != TOW_OK)
        print_error("%s\n", tow_context_error(ctx));
    assert_non_null(g);
    assert_int_equal(tow_graph_check(g), TOW_OK);
    return g;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
