/* Public operations that the tests of primitives go past, because those take equations: that each is the primitive that
 * its name says, with its operands in order. Values are worked out by hand; random numbers come from threefry on the
 * host, which Flax's parameters are compared with.
 * Tests shapes/broadcast.c, indexing/dynamic_slice.c, indexing/index.c, shapes/move.c, reductions/reduce.c,
 * elementwise/select.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "src/base/keys.h"
#include "tests/unit/support/plain_context.h"
#include "tow/ops.h"
#include "tow/program.h"

enum {
    MOST = 12, /* results of a function */
    SEED = 7
};

#define VECTOR(dtype, type, ...)                                                                                       \
    tow_constant_data(trace, tow_make_type(dtype, 1, (int64_t[]){sizeof((type[]){__VA_ARGS__}) / sizeof(type)}),       \
                      (type[]){__VA_ARGS__})
#define FLOATS(...) VECTOR(TOW_F32, float, __VA_ARGS__)
#define INTS(...)   VECTOR(TOW_I32, int32_t, __VA_ARGS__)

static tow_array *results[MOST];

static void evaluate(tow_function function, size_t n)
{
    tow_graph *graph = NULL;
    OK(tow_trace_function(ctx, function, NULL, 0, NULL, NULL, n, &graph));
    OK(tow_evaluate(graph, NULL, results));
    tow_graph_release(graph);
}

static void release(size_t n)
{
    for (size_t i = 0; i < n; i++) tow_array_release(results[i]);
}

#define expect_values(index, type, ...)                                                                                \
    do {                                                                                                               \
        assert_int_equal(tow_type_bytes(tow_array_type(results[index])), sizeof((type[]){__VA_ARGS__}));               \
        assert_memory_equal(tow_array_data(results[index]), ((type[]){__VA_ARGS__}), sizeof((type[]){__VA_ARGS__}));   \
    } while (0)

static void elementwise(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)in, (void)user;
    out[0] = tow_rem(FLOATS(-7, 7.5F), FLOATS(3, -2));
    out[1] = tow_ne(INTS(1, 2), INTS(1, 3));
    out[2] = tow_not(out[1]);
    out[3] = tow_shift_left(INTS(1, 5), INTS(4, 1));
    out[4] = tow_ceil(FLOATS(-1.5F, 0.25F));
    out[5] = tow_round(FLOATS(2.5F, -1.5F));
}

static void elementwise_operations(void **state)
{
    (void)state;
    evaluate(elementwise, 6);
    expect_values(0, float, -1, 1.5F);
    expect_values(1, uint8_t, 0, 1);
    expect_values(2, uint8_t, 1, 0);
    expect_values(3, int32_t, 16, 10);
    expect_values(4, float, -1, 1);
    expect_values(5, float, 2, -2);
    release(6);
}

static void rows_and_reductions(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)in, (void)user;
    tow_value x = tow_reshape(FLOATS(1, 5, 5, 7, 2, 7), 2, (int64_t[]){2, 3});
    tow_value large = tow_gt(x, tow_full_like(x, 2)), indices = INTS(2, 0, 2), updates = FLOATS(1, 2, 4);
    out[0] = tow_argmax(x, -1);
    out[1] = tow_reduce_min(x, 1, (int[]){0});
    out[2] = tow_reduce_and(large, 1, (int[]){0});
    out[3] = tow_reduce_or(large, 1, (int[]){1});
    out[4] = tow_scatter_add(indices, updates, 3);
    out[5] = tow_index_add(FLOATS(10, 20, 30), indices, updates);
}

static void operations_on_rows(void **state)
{
    (void)state;
    evaluate(rows_and_reductions, 6);
    expect_values(0, int32_t, 1, 0);
    expect_values(1, float, 1, 2, 5);
    expect_values(2, uint8_t, 0, 0, 1);
    expect_values(3, uint8_t, 1, 1);
    expect_values(4, float, 2, 0, 5);
    expect_values(5, float, 12, 20, 35);
    release(6);
}

static void draws(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)in, (void)user;
    const int64_t shape[] = {2, 3};
    tow_value key = tow_random_key(trace, SEED);
    out[0] = tow_random_split(key, 4);
    out[1] = tow_random_uniform(key, 2, shape, 0, 1);
    out[2] = tow_random_uniform(key, 2, shape, -2, 3);
    out[3] = tow_random_normal(key, 2, shape);
}

static void random_numbers(void **state)
{
    (void)state;
    const tow__key key = tow__key_from_seed(SEED);
    evaluate(draws, 4);
    const uint32_t *keys = tow_array_data(results[0]);
    const float *unit = tow_array_data(results[1]), *wide = tow_array_data(results[2]),
                *normal = tow_array_data(results[3]);
    assert_int_equal(tow_type_element_count(tow_array_type(results[0])), 8);
    for (uint32_t i = 0; i < 4; i++) assert_memory_equal(keys + 2 * i, tow__key_fold_in(key, i).k, sizeof key.k);
    for (uint32_t i = 0; i < 6; i++) {
        const tow__key word = tow__threefry(key, 0, i);
        const float u = (float)((word.k[0] ^ word.k[1]) >> 9) * 0x1p-23F;
        assert_true(unit[i] == u);
        assert_true(wide[i] == fmaxf(-2, fmaf(u, 5, -2)));
        /* The distribution function of what is drawn is uniform: 2 u - 1 is the error function, to float rounding. */
        assert_true(fabs(erf((double)normal[i] / sqrt(2)) - (2 * (double)u - 1)) < 1e-6);
    }
    release(4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(elementwise_operations), cmocka_unit_test(operations_on_rows),
                                       cmocka_unit_test(random_numbers)};
    return cmocka_run_group_tests_name("public operations", tests, setup, teardown);
}
