/* Public operations over windows: padding by name, pooling as in Flax, cumulative operations, and what their messages
 * say. Values are worked out by hand, or are those of jax.lax and flax.linen for the same numbers. The results that
 * primitives compute in general is compared with JAX in test_windows_golden.c.
 * Tests conv.c, window.c, ops/indexing/windows.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/unit/support/plain_context.h"
#include "tow/autodiff.h"
#include "tow/ops.h"
#include "tow/program.h"

enum {
    MOST = 8
};

#define FLOATS(rank_, ...)                                                                                             \
    tow_constant_data(trace, tow_make_type(TOW_F32, rank_, (const int64_t[]){__VA_ARGS__}), numbers)

static const float numbers[] = {1, 3, 3, 2, 3, 3, -1, 4, 0, 5, 2, 2, 7, -3, 1, 6};
static tow_array *results[MOST];

static void evaluate(tow_function function, size_t n)
{
    tow_graph *graph = NULL;
    OK(tow_trace_function(ctx, function, NULL, 0, NULL, NULL, n, &graph));
    OK(tow_evaluate(graph, NULL, results));
    tow_graph_release(graph);
}

static void expect(size_t index, size_t n, const float *values)
{
    assert_int_equal(tow_type_element_count(tow_array_type(results[index])), n);
    for (size_t i = 0; i < n; i++) {
        float found = ((float *)tow_array_data(results[index]))[i];
        if (!(fabsf(found - values[i]) <= 1e-6F * fabsf(values[i])))
            fail_msg("result %zu[%zu]: expected %g, found %g", index, i, (double)values[i], (double)found);
    }
    tow_array_release(results[index]);
}
#define EXPECT(index, ...) expect(index, sizeof((float[]){__VA_ARGS__}) / sizeof(float), (const float[]){__VA_ARGS__})

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* x: [1, 6, 1] = 1 3 3 2 3 3 */
static void pools(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)in, (void)user;
    tow_value x = FLOATS(3, 1, 6, 1);
    tow_pool_options o = TOW_POOL_OPTIONS(.spatial = 1, .window = {3}, .strides = {2}, .padding = TOW_PAD_SAME);
    out[0] = tow_avg_pool(x, &o);
    o.exclude_padding = true;
    out[1] = tow_avg_pool(x, &o);
    out[2] = tow_max_pool(x, &o);
    out[3] = tow_min_pool(x, &TOW_POOL_OPTIONS(.spatial = 1, .window = {2}));
    o.padding = TOW_PAD_SAME_LOWER;
    out[4] = tow_max_pool(x, &o);
    out[5] = tow_max_pool(FLOATS(2, 6, 1), &TOW_POOL_OPTIONS(.spatial = 1, .window = {3}, .strides = {3}));
}

static void pools_are_those_of_flax(void **state)
{
    (void)state;
    evaluate(pools, 6);
    EXPECT(0, 7.0F / 3, 8.0F / 3, 2);
    EXPECT(1, 7.0F / 3, 8.0F / 3, 3);
    EXPECT(2, 3, 3, 3);
    EXPECT(3, 1, 3, 2, 2, 3);
    EXPECT(4, 3, 3, 3);
    EXPECT(5, 3, 3);
}

static void convolutions(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)in, (void)user;
    tow_value x = FLOATS(3, 1, 6, 1), w = FLOATS(3, 2, 1, 1); /* the kernel is 1 3 */
    out[0] = tow_conv_general_dilated(x, w, NULL);
    out[1] = tow_conv_general_dilated(x, w, &TOW_CONV_OPTIONS(.padding = TOW_PAD_SAME));
    out[2] = tow_conv_general_dilated(x, w, &TOW_CONV_OPTIONS(.padding = TOW_PAD_SAME_LOWER));
    out[3] = tow_conv_general_dilated(
        x, w, &TOW_CONV_OPTIONS(.padding = TOW_PAD_EXPLICIT, .low = {-1}, .high = {-2}, .rhs_dilation = {2}));
    out[4] = tow_conv_general_dilated(FLOATS(3, 1, 1, 6), FLOATS(3, 1, 1, 2),
                                      &TOW_CONV_OPTIONS(.dimensions = "NCW,OIW->NCW", .lhs_dilation = {2}));
}

static void padding_has_names(void **state)
{
    (void)state;
    evaluate(convolutions, 5);
    EXPECT(0, 10, 12, 9, 11, 12);
    EXPECT(1, 10, 12, 9, 11, 12, 3);
    EXPECT(2, 3, 10, 12, 9, 11, 12);
    EXPECT(3, 9);
    EXPECT(4, 1, 9, 3, 9, 3, 6, 2, 9, 3, 9);
}

static void cumulative(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)in, (void)user;
    tow_value x = FLOATS(2, 2, 3);
    out[0] = tow_cumsum(x, -1, false);
    out[1] = tow_cumprod(x, 0, true);
    out[2] = tow_cummax(x, 1, true);
    out[3] = tow_cummin(x, 0, false);
    out[4] = tow_cumlogsumexp(x, -1, false);
}

static void cumulative_operations(void **state)
{
    (void)state;
    evaluate(cumulative, 5);
    EXPECT(0, 1, 4, 7, 2, 5, 8);
    EXPECT(1, 2, 9, 9, 2, 3, 3);
    EXPECT(2, 3, 3, 3, 3, 3, 3);
    EXPECT(3, 1, 3, 3, 1, 3, 3);
    EXPECT(4, 1, 3.126928F, 3.7586237F, 2, 3.3132617F, 3.8619948F);
}

/* ---- edges ------------------------------------------------------------------------------------------------------- */

static void gradient(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    tow_value y = tow_reduce_window_max(in[0], &TOW_WINDOW_OPTIONS(.window = {2}));
    out[0] = tow_reduce_sum(y, 0, NULL);
}

/* A NaN is taken for larger than what stands before it, and what stands behind it for larger than the NaN. */
static void gradients_beside_nan_are_those_of_jax(void **state)
{
    (void)state;
    const tow_type type = tow_make_type(TOW_F32, 1, (const int64_t[]){4});
    const float values[] = {1, NAN, 2, 0};
    tow_graph *graph = NULL, *grad = NULL;
    tow_array *x = NULL;
    OK(tow_trace_function(ctx, gradient, NULL, 1, &type, NULL, 1, &graph));
    OK(tow_grad(graph, 0, NULL, false, &grad));
    OK(tow_array_create(ctx, type, &x));
    memcpy(tow_array_data(x), values, sizeof values);
    OK(tow_evaluate(grad, &x, results));
    EXPECT(0, 0, 1, 2, 0);
    tow_array_release(x);
    tow_graph_release(grad);
    tow_graph_release(graph);
}

/* Windows so long that walking over their padding would take years. */
static void long_windows_cost_what_they_meet(void **state)
{
    static const char text[] =
        "{ lambda ; a:f32[3]. let b:f32[1] = reduce_window_sum[window=(1000000000000) low=(500000000000) "
        "high=(499999999997)] a c:f32[1] = reduce_window_max[window=(1000000000000) low=(500000000000) "
        "high=(2499999999993) base_dilation=(2) window_dilation=(3)] a in (b, c) }";
    (void)state;
    tow_graph *graph = NULL;
    OK(tow_graph_parse(ctx, text, &graph));
    tow_array *x = NULL;
    OK(tow_array_create(ctx, tow_graph_input_type(graph, 0), &x));
    memcpy(tow_array_data(x), numbers, 3 * sizeof *numbers);
    OK(tow_evaluate(graph, &x, results));
    EXPECT(0, 7);
    EXPECT(1, 3);
    tow_graph_release(graph);
    tow_array_release(x);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

typedef struct bad_text {
    const char *equation, *says;
} bad_text;

#define CONV(types, params) types " let c:f32[1] = conv_general_dilated[" params " batch_groups=1] a b in (c) }"
#define IMAGES              "{ lambda ; a:f32[2,5,5,4] b:f32[3,3,2,6]."

static const bad_text bad_texts[] = {
    {CONV(IMAGES, "dimensions=\"NHWC,HWIO->NHWC\" feature_groups=1"), "found 4 features for 1 groups of 2"},
    {CONV(IMAGES, "dimensions=\"NHWC,HWIO->NHWC\" feature_groups=0"), "must be at least 1, found 0"},
    {CONV(IMAGES, "feature_groups=2"), "found none"},
    {CONV(IMAGES, "dimensions=\"NHWC,HWIO\" feature_groups=2"), "found \"NHWC,HWIO\""},
    {CONV(IMAGES, "dimensions=\"NHHC,HWIO->NHWC\" feature_groups=2"), "expected dimension numbers"},
    {CONV(IMAGES, "dimensions=\"NWC,WIO->NWC\" feature_groups=2"), "operand 0 must have rank 3"},
    {CONV(IMAGES, "dimensions=\"NHWC,HWIO->NHWC\" rhs_dilation=(1,0) feature_groups=2"),
     "rhs_dilation must be at least 1, found 0 for spatial axis 1"},
    {CONV(IMAGES, "dimensions=\"NHWC,HWIO->NHWC\" strides=(1) feature_groups=2"), "one entry for each of 2"},
    {CONV(IMAGES, "dimensions=\"NHWC,HWIO->NHWC\" low=(4611686018427387904,0) feature_groups=2"), "overflow"},
    {CONV("{ lambda ; a:f32[2,5,5,6] b:f32[3,3,2,4].", "dimensions=\"NHWC,HWIO->NHWC\" feature_groups=3"),
     "4 features do not divide into 3 groups"},
    {"{ lambda ; a:f32[3,5,4] b:f32[3,4,6]. let c:f32[1] = conv_general_dilated[dimensions=\"NWC,WIO->NWC\" "
     "feature_groups=1 batch_groups=2] a b in (c) }",
     "batch of 3 does not divide into 2"},
    {"{ lambda ; a:f32[2,5,4] b:f32[3,2,6]. let c:f32[1] = conv_general_dilated[dimensions=\"NWC,WIO->NWC\" "
     "feature_groups=2 batch_groups=2] a b in (c) }",
     "cannot both exceed 1"},
    {"{ lambda ; a:f32[2,5,4] b:f64[3,4,6]. let c:f32[1] = conv_general_dilated[dimensions=\"NWC,WIO->NWC\" "
     "feature_groups=1 batch_groups=1] a b in (c) }",
     "one element type"},
    {"{ lambda ; a:f32[5]. let c:f32[1] = reduce_window_sum[window=(0)] a in (c) }", "window must be at least 1"},
    {"{ lambda ; a:f32[5]. let c:f32[1] = reduce_window_max[window=(1,1)] a in (c) }", "each of 1 axes, found 2"},
    {"{ lambda ; a:bool[5]. let c:bool[1] = reduce_window_max[window=(1)] a in (c) }", "must be of type"},
    {"{ lambda ; a:f32[5]. let c:f32[5] = reduce_window_min[window=(1) base_dilation=(2305843009213693952)] a in (c) }",
     "overflow"},
    {"{ lambda ; a:f32[3] b:f32[5]. let c:f32[5] = select_and_scatter_add[window=(2)] a b in (c) }",
     "an element for each window, f32[4], found f32[3]"},
    {"{ lambda ; a:i32[3]. let c:i32[3] = cumlogsumexp[axis=0] a in (c) }", "f32, f64"},
    {"{ lambda ; a:f32[3]. let c:f32[3] = cumprod[axis=1] a in (c) }", "axis 1 is outside [0, 1)"},
};

static void messages_of_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_texts / sizeof *bad_texts; i++) {
        tow_graph *graph = NULL;
        assert_int_not_equal(tow_graph_parse(ctx, bad_texts[i].equation, &graph), TOW_OK);
        if (!strstr(tow_context_error(ctx), bad_texts[i].says))
            fail_msg("expected '%s' in: %s", bad_texts[i].says, tow_context_error(ctx));
    }
}

static tow_value bad_call(tow_trace *trace, int number)
{
    tow_value x = FLOATS(3, 1, 6, 2), w = FLOATS(3, 2, 2, 1);
    switch (number) {
    case 0:
        return tow_conv_general_dilated(x, w, &TOW_CONV_OPTIONS(.padding = TOW_PAD_SAME, .lhs_dilation = {2}));
    case 1:
        return tow_conv_general_dilated(x, w, &TOW_CONV_OPTIONS(.low = {1}));
    case 2:
        return tow_conv_general_dilated(x, w, &TOW_CONV_OPTIONS(.strides = {-1}));
    case 3:
        return tow_max_pool(x, NULL);
    case 4:
        return tow_max_pool(x, &TOW_POOL_OPTIONS(.spatial = 3, .window = {1, 1, 1}));
    case 5:
        return tow_avg_pool(tow_convert(x, TOW_I32), &TOW_POOL_OPTIONS(.spatial = 1, .window = {2}));
    default:
        return tow_reduce_window_sum(x, &TOW_WINDOW_OPTIONS(.window = {1, 2, 1}, .padding = (tow_padding)9));
    }
}

static void call_badly(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)in;
    out[0] = bad_call(trace, *(const int *)user);
}

static void messages_of_calls(void **state)
{
    static const char *const says[] = {"no meaning for a left operand that is dilated",
                                       "give TOW_PAD_EXPLICIT",
                                       "strides must be at least 1, found -1",
                                       "options with a window",
                                       "3 spatial axes do not fit",
                                       "has no averages",
                                       "padding 9 is none of"};
    (void)state;
    for (int i = 0; i < (int)(sizeof says / sizeof *says); i++) {
        tow_graph *graph = NULL;
        assert_int_not_equal(tow_trace_function(ctx, call_badly, &i, 0, NULL, NULL, 1, &graph), TOW_OK);
        if (!strstr(tow_context_error(ctx), says[i])) fail_msg("expected '%s' in: %s", says[i], tow_context_error(ctx));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_are_those_of_flax),
        cmocka_unit_test(padding_has_names),
        cmocka_unit_test(cumulative_operations),
        cmocka_unit_test(gradients_beside_nan_are_those_of_jax),
        cmocka_unit_test(long_windows_cost_what_they_meet),
        cmocka_unit_test(messages_of_texts),
        cmocka_unit_test(messages_of_calls),
    };
    return cmocka_run_group_tests_name("windows", tests, setup, teardown);
}
