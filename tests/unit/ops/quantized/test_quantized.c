/* Blocks of few bits: their bytes against the gguf package, what moves them, products with them against plain loops
 * over the definition, gradients through them, and what refuses them.
 * Tests base/blocks.c, ops/quantized/blocks.c, kernels/quantized/blocks.c, kernels/reference/quantized.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

static const tow_dtype blocks[] = {TOW_Q8_0, TOW_Q4_0};
enum {
    KINDS = sizeof blocks / sizeof *blocks,
    N = 32
};

static uint32_t state_of_random = 1;
/* From [-1, 1), a multiple of 2^-16. */
static float draw(void)
{
    state_of_random = state_of_random * 1664525u + 1013904223u;
    return (float)(int32_t)(state_of_random >> 15 & 0x1FFFF) * 0x1p-16F - 1;
}

static tow_array *drawn(int rank, const int64_t *dims)
{
    tow_array *x;
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, rank, dims), &x));
    float *data = tow_array_data(x);
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(x)); i++) data[i] = draw();
    return x;
}

static tow_array *converted(const tow_array *x, tow_dtype dtype)
{
    tow_array *y;
    OK(tow_array_convert(x, dtype, &y));
    return y;
}

static void assert_bytes(const tow_array *a, const tow_array *b)
{
    assert_true(tow_type_equal(tow_array_type(a), tow_array_type(b)));
    assert_memory_equal(tow_array_data(a), tow_array_data(b), tow_type_bytes(tow_array_type(a)));
}

/* Evaluates what `record` records on the operands: one result. */
static tow_array *evaluated(tow_function record, void *user, size_t n, tow_array *const *in)
{
    tow_type types[4];
    tow_graph *g;
    tow_array *y = NULL;
    for (size_t i = 0; i < n; i++) types[i] = tow_array_type(in[i]);
    OK(tow_trace_function(ctx, record, user, n, types, NULL, 1, &g));
    OK(tow_evaluate(g, in, &y));
    tow_graph_release(g);
    return y;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void read_hex(FILE *file, size_t n, unsigned char *bytes)
{
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        assert_int_equal(fscanf(file, "%2x", &byte), 1);
        bytes[i] = (unsigned char)byte;
    }
}

static void bytes_are_those_of_gguf(void **state)
{
    (void)state;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/quantized.txt", "r");
    unsigned char bytes[4 * N], expected[34];
    int rows = 0;
    assert_non_null(file);
    while (!feof(file)) {
        read_hex(file, sizeof bytes, bytes);
        tow_array *x;
        OK(tow_array_from_data(ctx, tow_make_type(TOW_F32, 1, (int64_t[]){N}), bytes, &x));
        for (int k = 0; k < KINDS; k++) {
            tow_array *found = converted(x, blocks[k]);
            const size_t size = tow_dtype_size(blocks[k]);
            read_hex(file, size, expected);
            if (memcmp(tow_array_data(found), expected, size) != 0)
                fail_msg("row %d as %s differs", rows, tow_dtype_name(blocks[k]));
            tow_array_release(found);
        }
        tow_array_release(x);
        rows++;
        if (fscanf(file, " ") == EOF) break;
    }
    fclose(file);
    assert_int_equal(rows, 79);
}

/* Value of an f16, by its definition. */
static double half(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY) : bits & 0x8000 ? -value : value;
}

/* Number j of a block, as GGUF defines it: scale and integer. */
static double scale_of(const unsigned char *block) { return half((uint16_t)(block[0] | block[1] << 8)); }
static int integer_of(tow_dtype dtype, const unsigned char *block, int j)
{
    if (dtype == TOW_Q8_0) return block[2 + j] < 128 ? block[2 + j] : block[2 + j] - 256;
    return (j < 16 ? block[2 + j] & 15 : block[2 + j - 16] >> 4) - 8;
}

static void types_tell_numbers_and_bytes(void **state)
{
    (void)state;
    const tow_type type = tow_make_type(TOW_Q8_0, 2, (int64_t[]){3, 4});
    char text[100];
    tow_type_text(type, text, sizeof text);
    assert_string_equal(text, "q8_0[3,4]");
    assert_int_equal(tow_type_bytes(type), 3 * 4 * 34);
    assert_int_equal(tow_type_bytes(tow_make_type(TOW_Q4_0, 1, (int64_t[]){5})), 5 * 18);
    assert_int_equal(tow_dtype_numbers(TOW_Q4_0), 32);
    assert_int_equal(tow_dtype_numbers(TOW_F16), 1);
    assert_int_equal(tow_dtype_numbers((tow_dtype)0), 0);
    for (int d = TOW_DTYPE_END; d < TOW_Q8_0; d++) assert_int_equal(tow_dtype_size((tow_dtype)d), 0);
    assert_false(tow_dtype_is_float(TOW_Q8_0));
    assert_false(tow_dtype_is_integer(TOW_Q8_0));
}

static void arrays_are_converted_both_ways(void **state)
{
    (void)state;
    static const tow_dtype floats[] = {TOW_F32, TOW_F64, TOW_BF16, TOW_F16};
    tow_array *x = drawn(2, (int64_t[]){3, 64});
    for (int k = 0; k < KINDS; k++) {
        tow_array *q = converted(x, blocks[k]), *back = converted(q, TOW_F32), *again;
        assert_int_equal(tow_array_type(q).dims[1], 2);
        for (int i = 0; i < 3 * 64; i++) {
            const unsigned char *block =
                (unsigned char *)tow_array_data(q) + (size_t)(i / N) * tow_dtype_size(blocks[k]);
            const double number = scale_of(block) * integer_of(blocks[k], block, i % N);
            assert_true(((float *)tow_array_data(back))[i] == (float)number);
        }
        for (size_t f = 1; f < sizeof floats / sizeof *floats; f++) {
            /* numbers of the other types go by way of f32 */
            tow_array *as = converted(x, floats[f]), *wide = converted(as, TOW_F32), *expected;
            again = converted(as, blocks[k]);
            expected = converted(wide, blocks[k]);
            assert_bytes(again, expected);
            tow_array_release(again), tow_array_release(expected), tow_array_release(wide), tow_array_release(as);
            again = converted(q, floats[f]);
            expected = converted(back, floats[f]);
            assert_bytes(again, expected);
            tow_array_release(again), tow_array_release(expected);
        }
        again = converted(q, blocks[k]);
        assert_bytes(again, q);
        char text[4000], numbers[4000];
        tow_array_text(q, text, sizeof text);
        tow_array_text(back, numbers, sizeof numbers);
        assert_string_equal(text, numbers);
        tow_array_release(again), tow_array_release(q), tow_array_release(back);
    }
    tow_array_release(x);
}

static void hard_numbers(void **state)
{
    (void)state;
    float numbers[4][N] = {{0}};
    numbers[0][3] = NAN;
    numbers[1][3] = -INFINITY;
    numbers[2][3] = 0x1p-149F;
    numbers[3][3] = 3.4e38F;
    for (int k = 0; k < KINDS; k++) {
        tow_array *x, *q, *back;
        OK(tow_array_from_data(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){4, N}), numbers, &x));
        q = converted(x, blocks[k]);
        back = converted(q, TOW_F32);
        const float *y = tow_array_data(back);
        for (int j = 0; j < N; j++) {
            assert_true(isnan(y[j]) && isnan(y[N + j]));
            assert_true(y[2 * N + j] == 0);
        }
        assert_true(isinf(y[3 * N + 3])); /* as its scale is in f16 */
        tow_array_release(x), tow_array_release(q), tow_array_release(back);
    }
}

static void bad_shapes_are_refused(void **state)
{
    (void)state;
    tow_array *x = drawn(2, (int64_t[]){2, 33}), *scalar = drawn(0, NULL), *q = NULL;
    assert_int_equal(tow_array_convert(x, TOW_Q8_0, &q), TOW_SHAPE_MISMATCH);
    assert_null(q);
    assert_non_null(strstr(tow_context_error(ctx), "f32[2,33]"));
    assert_int_equal(tow_array_convert(scalar, TOW_Q4_0, &q), TOW_SHAPE_MISMATCH);
    const tow_type huge = tow_make_type(TOW_Q4_0, 1, (int64_t[]){INT64_C(1) << 55});
    assert_int_equal(tow_array_borrow(ctx, huge, x, &q), TOW_OK);
    tow_array *wide = NULL;
    assert_int_equal(tow_array_convert(q, TOW_F32, &wide), TOW_INVALID_ARGUMENT); /* more than 2^60 bytes */
    assert_null(wide);
    tow_array_release(q), tow_array_release(x), tow_array_release(scalar);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static void quantize(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = tow_quantize(in[0], *(const tow_dtype *)user);
}
static void dequantize(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = tow_dequantize(in[0], *(const tow_dtype *)user);
}
static void quantize_turned(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = tow_quantize(tow_transpose(in[0], 0, NULL), *(const tow_dtype *)user);
}
static void dequantize_turned(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_dequantize(tow_transpose(in[0], 0, NULL), TOW_F32);
}

static void operations_do_what_arrays_do(void **state)
{
    (void)state;
    tow_array *x = drawn(3, (int64_t[]){2, 3, 1056}), *matrix = drawn(2, (int64_t[]){64, 96}), *turned;
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){96, 64}), &turned));
    for (int i = 0; i < 96 * 64; i++)
        ((float *)tow_array_data(turned))[i] = ((float *)tow_array_data(matrix))[i % 64 * 96 + i / 64];
    for (int k = 0; k < KINDS; k++) {
        tow_dtype dtype = blocks[k], f16 = TOW_F16;
        tow_array *expected = converted(x, dtype), *q = evaluated(quantize, &dtype, 1, &x), *y, *z;
        assert_bytes(q, expected);
        y = evaluated(dequantize, &f16, 1, &q);
        z = converted(q, TOW_F16);
        assert_bytes(y, z);
        tow_array_release(expected), tow_array_release(q), tow_array_release(y), tow_array_release(z);
        expected = converted(turned, dtype);
        q = evaluated(quantize_turned, &dtype, 1, &matrix);
        assert_bytes(q, expected);
        /* blocks whose rows are not in order */
        y = evaluated(dequantize_turned, NULL, 1, &q); /* [2, 96] of blocks */
        z = converted(q, TOW_F32);                     /* [96, 64] */
        for (int i = 0; i < 2 * 96 * N; i++) {
            const int row = i / (96 * N), b = i / N % 96;
            assert_true(((float *)tow_array_data(y))[i] == ((float *)tow_array_data(z))[b * 64 + row * N + i % N]);
        }
        tow_array_release(expected), tow_array_release(q), tow_array_release(y), tow_array_release(z);
    }
    tow_array_release(x), tow_array_release(matrix), tow_array_release(turned);
}

static void moves(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    const int32_t indices[] = {2, -1, 9}; /* the last one is outside */
    tow_value rows = tow_gather(in[0], tow_constant_data(trace, tow_make_type(TOW_I32, 1, (int64_t[]){3}), indices));
    rows = tow_concatenate(2, (tow_value[]){rows, tow_slice_axis(in[0], 0, 1, 3)}, 0); /* [5, 2] */
    rows = tow_transpose(tow_transpose(tow_reshape(rows, 3, (int64_t[]){5, 1, 2}), 3, (int[]){2, 1, 0}), 0, NULL);
    tow_value zero = tow_scalar(trace, TOW_I32, 0), one = tow_scalar(trace, TOW_I32, 1);
    rows = tow_dynamic_update_slice(tow_reshape(rows, 2, (int64_t[]){5, 2}), tow_slice_axis(in[0], 0, 0, 1),
                                    (tow_value[]){one, zero}); /* row 1 becomes row 0 */
    out[0] = tow_dequantize(tow_dynamic_slice(rows, (tow_value[]){one, zero}, (int64_t[]){4, 2}), TOW_F32);
}

static void elements_move_like_others(void **state)
{
    (void)state;
    tow_array *x = drawn(2, (int64_t[]){4, 64});
    for (int k = 0; k < KINDS; k++) {
        tow_array *q = converted(x, blocks[k]), *numbers = converted(q, TOW_F32), *y = evaluated(moves, NULL, 1, &q);
        static const int expected[] = {0, -1, 1, 2};
        assert_int_equal(tow_array_type(y).dims[0], 4);
        for (int i = 0; i < 4 * 64; i++) {
            const float found = ((float *)tow_array_data(y))[i], *from = tow_array_data(numbers);
            if (expected[i / 64] < 0)
                assert_true(isnan(found));
            else
                assert_true(found == from[expected[i / 64] * 64 + i % 64]);
        }
        tow_array_release(q), tow_array_release(numbers), tow_array_release(y);
    }
    tow_array_release(x);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static void product(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_quantized_dot(in[0], in[1]);
}

/* The product of one row with one row of the weight, as quantized_dot.h defines it. */
static float defined_product(const float *x, tow_dtype dtype, const unsigned char *w, int64_t n_blocks)
{
    float y = 0;
    for (int64_t b = 0; b < n_blocks; b++, x += N, w += tow_dtype_size(dtype)) {
        float largest = 0;
        int sum = 0;
        for (int j = 0; j < N; j++) largest = fmaxf(largest, fabsf(x[j]));
        const float factor = 127 / largest, scale = isinf(factor) ? 0 : largest / 127;
        for (int j = 0; j < N && scale > 0; j++) sum += (int)nearbyintf(x[j] * factor) * integer_of(dtype, w, j);
        y = fmaf((float)scale_of(w) * scale, (float)sum, y);
    }
    return y;
}

static void check_product(tow_dtype dtype, int64_t rows, int64_t n, int64_t n_blocks, float magnitude)
{
    tow_array *x = drawn(2, (int64_t[]){rows, n_blocks * N}), *numbers = drawn(2, (int64_t[]){n, n_blocks * N});
    float *at = tow_array_data(x);
    for (int64_t i = 0; i < rows * n_blocks * N; i++) at[i] *= i / N % 3 == 1 ? 0.01F * magnitude : magnitude;
    for (int64_t i = 0; i < rows * n_blocks; i += 7)
        for (int j = 0; j < N; j++) at[i * N + j] = 0;
    tow_array *w = converted(numbers, dtype), *y = evaluated(product, NULL, 2, (tow_array *[]){x, w});
    unsigned char *bytes = tow_array_data(w);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            const float expected = defined_product(at + r * n_blocks * N, dtype,
                                                   bytes + (size_t)(i * n_blocks) * tow_dtype_size(dtype), n_blocks);
            const float found = ((float *)tow_array_data(y))[r * n + i];
            if (memcmp(&expected, &found, sizeof found) != 0)
                fail_msg("%s, %d rows, [%d, %d]: row %d, output %d is %a, expected %a", tow_dtype_name(dtype),
                         (int)rows, (int)n, (int)n_blocks, (int)r, (int)i, (double)found, (double)expected);
        }
    tow_array_release(x), tow_array_release(numbers), tow_array_release(w), tow_array_release(y);
}

static void products_have_the_bits_of_the_definition(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, n, n_blocks;
    } shapes[] = {{1, 1, 1},  {1, 8, 3},   {1, 37, 24},  {2, 16, 5},  {3, 9, 2},   {4, 16, 1},  {5, 40, 33},
                  {7, 15, 4}, {8, 64, 24}, {13, 50, 40}, {33, 17, 3}, {1, 300, 8}, {64, 48, 2}, {1, 16, 0}};
    for (int k = 0; k < KINDS; k++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            check_product(blocks[k], shapes[i].rows, shapes[i].n, shapes[i].n_blocks, 1);
        check_product(blocks[k], 2, 20, 6, 1e-30F);
        check_product(blocks[k], 5, 20, 6, 1e-37F); /* some blocks count as 0 */
        check_product(blocks[k], 5, 20, 6, 1e30F);
    }
}

/* All bytes, also those that quantizing never makes, -128 among them. */
static void any_bytes_are_multiplied(void **state)
{
    (void)state;
    enum {
        ROWS = 6,
        OUT = 24,
        BLOCKS = 7
    };
    tow_array *x = drawn(2, (int64_t[]){ROWS, BLOCKS * N}), *w, *y;
    float *numbers = tow_array_data(x);
    for (int i = 0; i < 2 * N; i++) numbers[i] = i % 2 ? -1 : 1; /* -127 and 127 */
    for (int k = 0; k < KINDS; k++) {
        OK(tow_array_create(ctx, tow_make_type(blocks[k], 2, (int64_t[]){OUT, BLOCKS}), &w));
        const size_t size = tow_dtype_size(blocks[k]);
        unsigned char *bytes = tow_array_data(w);
        for (size_t i = 0; i < OUT * BLOCKS * size; i++) bytes[i] = i < 3 * size ? 0x80 : (unsigned char)(draw() * 128);
        for (size_t b = 0; b < OUT * BLOCKS; b++) bytes[b * size + 1] &= 0xBF; /* finite scales */
        y = evaluated(product, NULL, 2, (tow_array *[]){x, w});
        for (int i = 0; i < ROWS * OUT; i++) {
            const float expected = defined_product(numbers + i / OUT * BLOCKS * N, blocks[k],
                                                   bytes + (size_t)(i % OUT) * BLOCKS * size, BLOCKS);
            assert_memory_equal((float *)tow_array_data(y) + i, &expected, sizeof expected);
        }
        tow_array_release(w), tow_array_release(y);
    }
    tow_array_release(x);
}

static void rows_without_numbers_are_nan(void **state)
{
    (void)state;
    tow_array *x = drawn(2, (int64_t[]){5, 64}), *numbers = drawn(2, (int64_t[]){20, 64});
    ((float *)tow_array_data(x))[1 * 64 + 40] = NAN;
    ((float *)tow_array_data(x))[3 * 64 + 2] = INFINITY;
    for (int k = 0; k < KINDS; k++) {
        tow_array *w = converted(numbers, blocks[k]), *y = evaluated(product, NULL, 2, (tow_array *[]){x, w});
        for (int i = 0; i < 5 * 20; i++)
            assert_int_equal(isnan(((float *)tow_array_data(y))[i]) != 0, i / 20 == 1 || i / 20 == 3);
        tow_array_release(w), tow_array_release(y);
    }
    tow_array_release(x), tow_array_release(numbers);
}

static void turned_product(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    /* x [K, rows], w [blocks, n] */
    out[0] = tow_quantized_dot(tow_transpose(in[0], 0, NULL), tow_transpose(in[1], 0, NULL));
}
static void turn(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_transpose(in[0], 0, NULL);
}

static void operands_may_have_any_strides(void **state)
{
    (void)state;
    tow_array *x = drawn(2, (int64_t[]){6, 96}), *numbers = drawn(2, (int64_t[]){21, 96});
    for (int k = 0; k < KINDS; k++) {
        tow_array *w = converted(numbers, blocks[k]), *expected = evaluated(product, NULL, 2, (tow_array *[]){x, w});
        tow_array *xt = evaluated(turn, NULL, 1, &x), *wt = evaluated(turn, NULL, 1, &w);
        tow_array *y = evaluated(turned_product, NULL, 2, (tow_array *[]){xt, wt});
        assert_bytes(y, expected);
        tow_array_release(w), tow_array_release(expected), tow_array_release(xt), tow_array_release(wt),
            tow_array_release(y);
    }
    tow_array_release(x), tow_array_release(numbers);
}

/* ---- derivatives ------------------------------------------------------------------------------------------------- */

static void weighted(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_reduce_sum(tow_mul(tow_quantized_dot(in[0], in[1]), in[2]), 0, NULL);
}

/* The gradient of sum(c * y) is c times the numbers of the weight. */
static void gradients_pass_to_x(void **state)
{
    (void)state;
    enum {
        ROWS = 3,
        OUT = 10
    };
    tow_array *x = drawn(2, (int64_t[]){ROWS, 64}), *numbers = drawn(2, (int64_t[]){OUT, 64}),
              *c = drawn(2, (int64_t[]){ROWS, OUT});
    for (int k = 0; k < KINDS; k++) {
        tow_array *w = converted(numbers, blocks[k]), *wide = converted(w, TOW_F32), *in[] = {x, w, c},
                  *out[2] = {NULL};
        tow_type types[] = {tow_array_type(x), tow_array_type(w), tow_array_type(c)};
        tow_graph *g, *grad;
        OK(tow_trace_function(ctx, weighted, NULL, 3, types, NULL, 1, &g));
        OK(tow_value_and_grad(g, 1, (size_t[]){0}, false, &grad));
        OK(tow_evaluate(grad, in, out));
        for (int i = 0; i < ROWS * 64; i++) {
            double sum = 0, most = 0;
            for (int j = 0; j < OUT; j++) {
                const double term = (double)((float *)tow_array_data(c))[i / 64 * OUT + j] *
                                    (double)((float *)tow_array_data(wide))[j * 64 + i % 64];
                sum += term;
                most += fabs(term);
            }
            assert_true(fabs((double)((float *)tow_array_data(out[1]))[i] - sum) <= 1e-6 * most);
        }
        tow_graph_release(grad);
        grad = NULL;
        assert_int_equal(tow_value_and_grad(g, 1, (size_t[]){1}, false, &grad), TOW_TYPE_MISMATCH);
        assert_non_null(strstr(tow_context_error(ctx), "q"));
        tow_graph_release(g);
        tow_array_release(w), tow_array_release(wide), tow_array_release(out[0]), tow_array_release(out[1]);
    }
    tow_array_release(x), tow_array_release(numbers), tow_array_release(c);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void add(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_add(in[0], in[0]);
}
static void convert(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_convert(in[0], TOW_F32);
}
static void select_one(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_where(tow_scalar(trace, TOW_BOOL, 1), in[0], in[0]);
}
static void sum_up(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_reduce_sum(in[0], 0, NULL);
}
static void zeros(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_zeros_like(in[0]);
}
static void to_blocks(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_convert(tow_dequantize(in[0], TOW_F32), TOW_Q8_0);
}

static void what_computes_refuses_blocks(void **state)
{
    (void)state;
    static const tow_function refuse[] = {add, convert, select_one, sum_up, zeros, to_blocks};
    const tow_type type = tow_make_type(TOW_Q8_0, 1, (int64_t[]){4});
    for (size_t i = 0; i < sizeof refuse / sizeof *refuse; i++) {
        tow_graph *g = NULL;
        assert_int_not_equal(tow_trace_function(ctx, refuse[i], NULL, 1, &type, NULL, 1, &g), TOW_OK);
        assert_null(g);
        assert_non_null(strstr(tow_context_error(ctx), "q8_0"));
    }
}

static void texts_have_them(void **state)
{
    (void)state;
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){2, 64}),
                              tow_make_type(TOW_Q4_0, 2, (int64_t[]){5, 2})};
    tow_graph *g, *back;
    char text[1000], again[1000];
    OK(tow_trace_function(ctx, product, NULL, 2, types, NULL, 1, &g));
    assert_true(tow_graph_text(g, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "q4_0[5,2]"));
    OK(tow_graph_parse(ctx, text, &back));
    tow_graph_text(back, again, sizeof again);
    assert_string_equal(text, again);
    tow_graph_release(g), tow_graph_release(back);
}

static void files_refuse_them(void **state)
{
    (void)state;
    tow_array *q;
    tow_tensors *tensors;
    OK(tow_array_create(ctx, tow_make_type(TOW_Q8_0, 1, (int64_t[]){4}), &q));
    assert_int_equal(tow_npy_write(ctx, "/nowhere/x.npy", q), TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "q8_0[4]"));
    OK(tow_tensors_create(ctx, &tensors));
    OK(tow_tensors_add(tensors, "w", q));
    assert_int_equal(tow_safetensors_write("/nowhere/x.safetensors", tensors), TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "w: "));
    assert_non_null(strstr(tow_context_error(ctx), "q8_0[4]"));
    tow_array *wide = NULL;
    assert_int_equal(tow_tensors_get_with(tensors, "w", TOW_F32, &wide), TOW_TYPE_MISMATCH);
    assert_null(wide);
    tow_tensors_free(tensors);
    tow_array_release(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_gguf),
        cmocka_unit_test(types_tell_numbers_and_bytes),
        cmocka_unit_test(arrays_are_converted_both_ways),
        cmocka_unit_test(hard_numbers),
        cmocka_unit_test(bad_shapes_are_refused),
        cmocka_unit_test(operations_do_what_arrays_do),
        cmocka_unit_test(elements_move_like_others),
        cmocka_unit_test(products_have_the_bits_of_the_definition),
        cmocka_unit_test(any_bytes_are_multiplied),
        cmocka_unit_test(rows_without_numbers_are_nan),
        cmocka_unit_test(operands_may_have_any_strides),
        cmocka_unit_test(gradients_pass_to_x),
        cmocka_unit_test(what_computes_refuses_blocks),
        cmocka_unit_test(texts_have_them),
        cmocka_unit_test(files_refuse_them),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
