/* Blocks of 256 numbers, Q4_K and Q6_K: how near their numbers are to those that they are made of, products with them
 * against plain loops over the definition, what moves them, and what refuses them. The bytes of GGUF's blocks are
 * compared with the gguf package's numbers in unit/gguf_golden.
 * Tests base/blocks.c, ops/quantized/blocks.c, kernels/reference/quantized.c, kernels/indexing/windows.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/elements.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

static const tow_dtype types[] = {TOW_Q4_K, TOW_Q6_K};
enum {
    N = 256
};

static uint32_t state_of_random = 4;
/* From [-1, 1), a multiple of 2^-16. */
static float draw(void)
{
    state_of_random = state_of_random * 1664525u + 1013904223u;
    return (float)(int32_t)(state_of_random >> 15 & 0x1FFFF) * 0x1p-16F - 1;
}

static tow_array *drawn(int64_t rows, int64_t columns)
{
    tow_array *x;
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){rows, columns}), &x));
    for (int64_t i = 0; i < rows * columns; i++) ((float *)tow_array_data(x))[i] = draw();
    return x;
}

static tow_array *converted(const tow_array *x, tow_dtype dtype)
{
    tow_array *y;
    OK(tow_array_convert(x, dtype, &y));
    return y;
}

static tow_array *evaluated(tow_function record, size_t n, tow_array *const *in)
{
    tow_type in_types[2];
    tow_graph *g;
    tow_array *y = NULL;
    for (size_t i = 0; i < n; i++) in_types[i] = tow_array_type(in[i]);
    OK(tow_trace_function(ctx, record, NULL, n, in_types, NULL, 1, &g));
    OK(tow_evaluate(g, in, &y));
    tow_graph_release(g);
    return y;
}

/* ---- the definition of the types --------------------------------------------------------------------------------- */

static double half(const unsigned char *at) { return half_value((uint16_t)(at[0] | at[1] << 8), 10); }

/* Number i of a block is d w - m. */
typedef struct number {
    double d, m;
    int w;
} number;

static number number_q4_k(const unsigned char *block, int i)
{
    const int g = i / 32, low = g % 4;
    const unsigned char *s = block + 4;
    const int scale = g < 4 ? s[g] % 64 : s[8 + low] % 16 + s[low] / 64 * 16;
    const int minimum = g < 4 ? s[4 + g] % 64 : s[8 + low] / 16 + s[4 + low] / 64 * 16;
    const int both = block[16 + 32 * (g / 2) + i % 32];
    return (number){half(block) * scale, half(block + 2) * minimum, g % 2 ? both / 16 : both % 16};
}

static number number_q6_k(const unsigned char *block, int i)
{
    const int part = i % 128 / 32, low = block[64 * (i / 128) + 32 * (part % 2) + i % 32];
    const int high = block[128 + 32 * (i / 128) + i % 32] >> 2 * part & 3, level = (signed char)block[192 + i / 16];
    return (number){half(block + 208), 0, level * ((part / 2 ? low / 16 : low % 16) + 16 * high - 32)};
}

static number number_of(tow_dtype dtype, const unsigned char *block, int i)
{
    return dtype == TOW_Q4_K ? number_q4_k(block, i) : number_q6_k(block, i);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static float range_of(const float *x, int n)
{
    float least = 0, most = 0;
    for (int i = 0; i < n; i++) least = fminf(least, x[i]), most = fmaxf(most, x[i]);
    return most - least;
}

/* Every number is within a step of its group, but for the rounding of scales: a step has 15 (Q4_K) or 63 (Q6_K) of the
 * range, and levels are exact to 1 / 126 or 1 / 254 of the largest. */
static void numbers_are_near(void **state)
{
    (void)state;
    tow_array *x = drawn(5, 2 * N);
    float *numbers = tow_array_data(x);
    for (int i = 0; i < N; i++) numbers[i] *= i < 32 ? 0 : (float)(1 + i / 32);
    for (int i = 0; i < N; i++) numbers[2 * N + i] += 3; /* all are positive, */
    for (int i = 0; i < N; i++) numbers[4 * N + i] -= 2; /* or negative */
    for (size_t k = 0; k < 2; k++) {
        tow_array *q = converted(x, types[k]), *back = converted(q, TOW_F32);
        const unsigned char *bytes = tow_array_data(q);
        assert_int_equal(tow_array_type(q).dims[1], 2);
        for (int i = 0; i < 10 * N; i++) {
            const number z = number_of(types[k], bytes + (size_t)(i / N) * tow_dtype_size(types[k]), i % N);
            const float found = ((float *)tow_array_data(back))[i], width = range_of(numbers + i / N * N, N);
            assert_true(found == (float)(z.d * z.w - z.m));
            assert_true(fabsf(found - numbers[i]) <= width * (types[k] == TOW_Q4_K ? 1 / 20.0F : 1 / 60.0F));
        }
        tow_array *again = converted(q, types[k]);
        assert_memory_equal(tow_array_data(again), bytes, tow_type_bytes(tow_array_type(q)));
        tow_array_release(again), tow_array_release(q), tow_array_release(back);
    }
    tow_array_release(x);
}

static void hard_numbers(void **state)
{
    (void)state;
    static float numbers[4][N];
    numbers[0][3] = NAN;
    numbers[1][200] = -INFINITY;
    numbers[2][3] = 0x1p-149F;
    numbers[3][3] = 3.4e38F, numbers[3][4] = -3.4e38F;
    for (size_t k = 0; k < 2; k++) {
        tow_array *x, *q, *back;
        OK(tow_array_from_data(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){4, N}), numbers, &x));
        q = converted(x, types[k]);
        back = converted(q, TOW_F32);
        const float *y = tow_array_data(back);
        for (int j = 0; j < N; j++) {
            assert_true(isnan(y[j]) && isnan(y[N + j]));
            assert_true(y[2 * N + j] == 0);
        }
        assert_true(!isfinite(y[3 * N + 3])); /* its scale is beyond f16 */
        tow_array_release(x), tow_array_release(q), tow_array_release(back);
    }
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static void product(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_quantized_dot(in[0], in[1]);
}

/* The product of one row with one row of the weight, as quantized_dot.h defines it. */
static float defined_product(const float *x, tow_dtype dtype, const unsigned char *w, int n_blocks)
{
    float y = 0;
    for (int i = 0; i < N * n_blocks; i += 32, x += 32) {
        const unsigned char *block = w + (size_t)(i / N) * tow_dtype_size(dtype);
        const number first = number_of(dtype, block, i % N);
        float largest = 0;
        int sum = 0, all = 0;
        for (int j = 0; j < 32; j++) largest = fmaxf(largest, fabsf(x[j]));
        const float factor = 127 / largest, scale = isinf(factor) ? 0 : largest / 127;
        for (int j = 0; j < 32 && scale > 0; j++) {
            const int q = (int)nearbyintf(x[j] * factor);
            sum += q * number_of(dtype, block, i % N + j).w;
            all += q;
        }
        y = fmaf((float)first.d * scale, (float)sum, y);
        if (dtype == TOW_Q4_K) y = fmaf(-(float)first.m, scale * (float)all, y);
    }
    return y;
}

static void products_have_the_bits_of_the_definition(void **state)
{
    (void)state;
    static const int shapes[][3] = {{1, 1, 1}, {1, 24, 3}, {2, 9, 2}, {7, 35, 5}, {13, 16, 1}, {3, 8, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t k = 0; k < 2; k++) {
            const int rows = shapes[i][0], n = shapes[i][1], n_blocks = shapes[i][2];
            tow_array *x = drawn(rows, n_blocks * N), *numbers = drawn(n, n_blocks * N);
            tow_array *w = converted(numbers, types[k]), *y = evaluated(product, 2, (tow_array *[]){x, w});
            const size_t row = (size_t)n_blocks * tow_dtype_size(types[k]);
            for (int j = 0; j < rows * n; j++) {
                const float found = ((float *)tow_array_data(y))[j],
                            expected =
                                defined_product((float *)tow_array_data(x) + j / n * n_blocks * N, types[k],
                                                (unsigned char *)tow_array_data(w) + (size_t)(j % n) * row, n_blocks);
                if (memcmp(&found, &expected, sizeof found) != 0)
                    fail_msg("%s, %d x %d x %d: %d is %a, expected %a", tow_dtype_name(types[k]), rows, n, n_blocks, j,
                             (double)found, (double)expected);
            }
            tow_array_release(x), tow_array_release(numbers), tow_array_release(w), tow_array_release(y);
        }
}

static void moves(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    const int32_t indices[] = {2, -1, 9}; /* the last one is outside */
    const tow_value rows =
        tow_gather(in[0], tow_constant_data(trace, tow_make_type(TOW_I32, 1, (int64_t[]){3}), indices));
    out[0] = tow_dequantize(
        tow_transpose(tow_concatenate(2, (tow_value[]){rows, tow_slice_axis(in[0], 0, 1, 3)}, 0), 2, (int[]){1, 0}),
        TOW_F32);
}

/* [4, 2] blocks become [2, 5]. */
static void elements_move_like_others(void **state)
{
    (void)state;
    static const int expected[] = {2, 3, -1, 1, 2};
    tow_array *x = drawn(4, 2 * N);
    for (size_t k = 0; k < 2; k++) {
        tow_array *q = converted(x, types[k]), *numbers = converted(q, TOW_F32), *y = evaluated(moves, 1, &q);
        for (int i = 0; i < 10 * N; i++) {
            const int column = i / (5 * N), row = expected[i / N % 5];
            const float found = ((float *)tow_array_data(y))[i], *from = tow_array_data(numbers);
            if (row < 0)
                assert_true(isnan(found));
            else
                assert_true(found == from[row * 2 * N + column * N + i % N]);
        }
        tow_array_release(q), tow_array_release(numbers), tow_array_release(y);
    }
    tow_array_release(x);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static void sizes_and_refusals(void **state)
{
    (void)state;
    tow_array *x = drawn(2, 128), *q = NULL;
    assert_int_equal(tow_dtype_numbers(TOW_Q4_K), N);
    assert_int_equal(tow_dtype_numbers(TOW_Q6_K), N);
    assert_int_equal(tow_type_bytes(tow_make_type(TOW_Q4_K, 2, (int64_t[]){3, 2})), 3 * 2 * 144);
    assert_int_equal(tow_type_bytes(tow_make_type(TOW_Q6_K, 1, (int64_t[]){5})), 5 * 210);
    for (size_t k = 0; k < 2; k++) {
        assert_int_equal(tow_array_convert(x, types[k], &q), TOW_SHAPE_MISMATCH);
        assert_null(q);
        assert_non_null(strstr(tow_context_error(ctx), "blocks of 256 numbers"));
        const tow_type in[] = {tow_make_type(TOW_F32, 1, (int64_t[]){64}),
                               tow_make_type(types[k], 2, (int64_t[]){3, 2})};
        tow_graph *g = NULL;
        assert_int_equal(tow_trace_function(ctx, product, NULL, 2, in, NULL, 1, &g), TOW_SHAPE_MISMATCH);
        assert_non_null(strstr(tow_context_error(ctx), "in blocks of 256 numbers"));
        tow_graph_release(g);
    }
    tow_array_release(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_near),
        cmocka_unit_test(hard_numbers),
        cmocka_unit_test(products_have_the_bits_of_the_definition),
        cmocka_unit_test(elements_move_like_others),
        cmocka_unit_test(sizes_and_refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
