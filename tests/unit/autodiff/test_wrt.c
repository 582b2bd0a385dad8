/* Inputs that are differentiated when none is named: all float inputs, in every function that asks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

static const char text[] = "{ lambda ; i:i32[2]\"i\" x:f32[2]\"x\" y:f32[2]\"y\". let\n"
                           "    a:f32[2] = mul x y\n"
                           "    b:f32[2] = sin a\n"
                           "    loss:f32[] = reduce_sum[axes=(0)] b\n"
                           "  in (loss) }\n";

static tow_graph *parse(const char *source)
{
    tow_graph *graph;
    OK(tow_graph_parse(ctx, source, &graph));
    return graph;
}

/* Text of a graph that is released. */
static char *text_of(tow_graph *graph)
{
    size_t size = tow_graph_text(graph, NULL, 0) + 1;
    char *copy = test_malloc(size);
    tow_graph_text(graph, copy, size);
    tow_graph_release(graph);
    return copy;
}

static void expect_equal(tow_graph *a, tow_graph *b)
{
    char *one = text_of(a), *other = text_of(b);
    assert_string_equal(one, other);
    test_free(one);
    test_free(other);
}

static void test_none_named(void **state)
{
    (void)state;
    const size_t both[] = {1, 2};
    tow_graph *graph = parse(text), *a[2], *b[2];
    OK(tow_grad(graph, 0, NULL, false, &a[0]));
    OK(tow_grad(graph, 2, both, false, &b[0]));
    assert_int_equal(tow_graph_output_count(a[0]), 2);
    expect_equal(a[0], b[0]);
    OK(tow_value_and_grad(graph, 0, NULL, false, &a[0]));
    OK(tow_value_and_grad(graph, 2, both, false, &b[0]));
    assert_int_equal(tow_graph_output_count(a[0]), 3);
    expect_equal(a[0], b[0]);
    OK(tow_jvp(graph, 0, NULL, &a[0]));
    OK(tow_jvp(graph, 2, both, &b[0]));
    expect_equal(a[0], b[0]);
    OK(tow_linearize(graph, 0, NULL, &a[0], &a[1]));
    OK(tow_linearize(graph, 2, both, &b[0], &b[1]));
    expect_equal(a[0], b[0]);
    expect_equal(a[1], b[1]);
    OK(tow_vjp(graph, 0, NULL, &a[0], &a[1]));
    OK(tow_vjp(graph, 2, both, &b[0], &b[1]));
    assert_int_equal(tow_graph_output_count(a[1]), 2);
    expect_equal(a[0], b[0]);
    expect_equal(a[1], b[1]);
    tow_residuals none, two;
    OK(tow_saved_residuals(graph, 0, NULL, &none));
    OK(tow_saved_residuals(graph, 2, both, &two));
    assert_int_equal(none.count, 2); /* x and y, of which the cosine is made */
    assert_int_equal(none.count, two.count);
    assert_int_equal(none.bytes, two.bytes);
    tow_residuals_free(&none);
    tow_residuals_free(&two);
    tow_graph_release(graph);
}

static void test_no_float_input(void **state)
{
    (void)state;
    tow_graph *result, *graph = parse("{ lambda ; i:i32[]. let\n"
                                      "    loss:f32[] = convert[dtype=f32] i\n"
                                      "  in (loss) }\n");
    assert_int_equal(tow_grad(graph, 0, NULL, false, &result), TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "is a float"));
    assert_null(result);
    tow_graph_release(graph);
}

/* One type for axes and counts of axes, another for sizes: a change of either breaks callers' arrays. */
static void test_types_of_axes(void **state)
{
    (void)state;
    tow_value (*reduce)(tow_value, int, const int *) = (tow_reduce_sum);
    tow_value (*transpose)(tow_value, int, const int *) = (tow_transpose);
    tow_value (*broadcast)(tow_value, int, const int64_t *, const int *) = (tow_broadcast_in_dim);
    tow_value (*concatenate)(size_t, const tow_value *, int) = (tow_concatenate);
    tow_value (*slice)(tow_value, int, int64_t, int64_t) = (tow_slice_axis);
    tow_value (*dropout)(tow_value, tow_value, double, int, const int *) = (tow_dropout_with_key);
    assert_true(reduce && transpose && broadcast && concatenate && slice && dropout);
    _Static_assert(sizeof((tow_dense_general){0}.axes[0]) == sizeof(int), "axes of DenseGeneral");
    _Static_assert(sizeof((tow_dropout){0}.broadcast_axes[0]) == sizeof(int), "axes of Dropout");
    _Static_assert(sizeof((tow_dot_dims){0}.lhs_contract[0]) == sizeof(int), "axes of products");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none_named),
        cmocka_unit_test(test_no_float_input),
        cmocka_unit_test(test_types_of_axes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
