/* Single elements of every type, arrays that are converted, and what convert does with them: floats of 16 bits against
 * their definition, integers against their ranges.
 * Tests element.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/base/numbers.h"
#include "tests/unit/support/elements.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

/* ---- floats of 16 bits ------------------------------------------------------------------------------------------- */

static const struct {
    tow_dtype dtype;
    int fraction;
    uint16_t infinite;
} halves[] = {{TOW_BF16, 7, 0x7F80}, {TOW_F16, 10, 0x7C00}};

static bool is_nan(int h, uint16_t bits) { return (bits & 0x7FFF) > halves[h].infinite; }

static void every_half_has_its_value(void **state)
{
    (void)state;
    for (int h = 0; h < 2; h++)
        for (int bits = 0; bits <= UINT16_MAX; bits++) {
            const uint16_t x = (uint16_t)bits;
            const double value = half_value(x, halves[h].fraction);
            const double found = tow__load_element(halves[h].dtype, &x, 0).f;
            assert_true(is_nan(h, x) ? isnan(found) : found == value);
            assert_int_equal(signbit(found) != 0, x >> 15);
        }
}

/* Numbers around and between two neighbors: each end, the middle, and next to the middle. */
static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    for (int h = 0; h < 2; h++)
        for (int bits = 0; bits < halves[h].infinite; bits++) {
            const double low = half_value((uint16_t)bits, halves[h].fraction);
            const double unit = half_value((uint16_t)(bits + 1), halves[h].fraction) - low;
            const double step = isinf(unit) ? low - half_value((uint16_t)(bits - 1), halves[h].fraction) : unit;
            const double middle = low + step / 2;
            const double numbers[] = {low,    nextafter(low, 0),           nextafter(middle, 0),
                                      middle, nextafter(middle, INFINITY), low + step};
            for (int k = 0; k < 12; k++) {
                const double x = k < 6 ? numbers[k] : -numbers[k - 6];
                uint16_t found;
                tow__store_element(halves[h].dtype, &found, 0, x);
                if (found != half_bits(x, halves[h].fraction))
                    fail_msg("%s: %a became %x", tow_dtype_name(halves[h].dtype), x, found);
            }
        }
}

/* f32 has a way of its own. */
static void rounding_from_f32(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < UINT64_C(1) << 32; i += 4099) {
        const float x = tow__f32_of_bits((uint32_t)i);
        if (isnan(x)) continue;
        assert_int_equal(tow__bits_to_bf16((uint32_t)i), half_bits((double)x, 7));
        assert_int_equal(tow__bits_to_f16((uint32_t)i), half_bits((double)x, 10));
    }
}

static void rounding_of_large_integers_is_done_once(void **state)
{
    (void)state;
    /* 2^62 + 2^54 is in the middle of two bf16; a bit more decides, but is lost in an f64 and in an f32. */
    const int64_t middle = (INT64_C(1) << 62) + (INT64_C(1) << 54),
                  numbers[] = {middle, middle + 1, -middle - 1, middle - 1, INT64_MAX, INT64_MIN};
    const uint16_t expected[] = {0x5E80, 0x5E81, 0xDE81, 0x5E80, 0x5F00, 0xDF00};
    uint16_t found[6];
    tow__convert_elements(TOW_BF16, found, TOW_I64, numbers, 6);
    assert_memory_equal(found, expected, sizeof found);
}

/* ---- integers ---------------------------------------------------------------------------------------------------- */

static const struct {
    double value;
    int64_t i8, u8, i32, u32, i64;
    uint64_t u64;
} integers[] = {
    {0.99, 0, 0, 0, 0, 0, 0},
    {-1.5, -1, 0, -1, 0, -1, 0},
    {127.9, 127, 127, 127, 127, 127, 127},
    {-128.9, -128, 0, -128, 0, -128, 0},
    {300, 127, 255, 300, 300, 300, 300},
    {4294967295.5, 127, 255, INT32_MAX, UINT32_MAX, 4294967295, 4294967295},
    {0x1p63, 127, 255, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_C(1) << 63},
    {0x1p64, 127, 255, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX},
    {-0x1p63, -128, 0, INT32_MIN, 0, INT64_MIN, 0},
    {-INFINITY, -128, 0, INT32_MIN, 0, INT64_MIN, 0},
    {NAN, 0, 0, 0, 0, 0, 0},
};

static void floats_saturate(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof integers / sizeof *integers; k++) {
        uint64_t data = 0;
#define CHECK(symbol, field)                                                                                           \
    tow__store_element(symbol, &data, 0, integers[k].value);                                                           \
    assert_true(tow__load_element(symbol, &data, 0).i == integers[k].field);
        CHECK(TOW_I8, i8)
        CHECK(TOW_I32, i32)
        CHECK(TOW_I64, i64)
#undef CHECK
#define CHECK(symbol, field)                                                                                           \
    tow__store_element(symbol, &data, 0, integers[k].value);                                                           \
    assert_true(tow__load_element(symbol, &data, 0).u == (uint64_t)integers[k].field);
        CHECK(TOW_U8, u8)
        CHECK(TOW_U32, u32)
        CHECK(TOW_U64, u64)
#undef CHECK
    }
}

static void ranges(void **state)
{
    (void)state;
    assert_true(tow__dtype_holds(TOW_I8, -128) && !tow__dtype_holds(TOW_I8, 128) && !tow__dtype_holds(TOW_I8, 0.5));
    assert_true(tow__dtype_holds(TOW_U8, 255) && !tow__dtype_holds(TOW_U8, 256) && !tow__dtype_holds(TOW_U8, -1));
    assert_true(tow__dtype_holds(TOW_I64, -0x1p63) && !tow__dtype_holds(TOW_I64, 0x1p63));
    assert_true(tow__dtype_holds(TOW_U64, 0x1p63) && !tow__dtype_holds(TOW_U64, 0x1p64));
    assert_true(!tow__dtype_holds(TOW_I64, NAN) && tow__dtype_holds(TOW_BF16, 0.1) && !tow__dtype_holds(TOW_BOOL, 2));
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

static tow_array *floats(int64_t n, const float *data)
{
    tow_array *array = NULL;
    OK(tow_array_from_data(ctx, tow_make_type(TOW_F32, 1, &n), data, &array));
    return array;
}

static void arrays_are_converted_and_printed(void **state)
{
    (void)state;
    static const struct {
        tow_dtype dtype;
        const char *text;
    } expected[] = {
        {TOW_BF16, "[1.008 -3.406 300 3.39e+38 nan]"},
        {TOW_F16, "[1.0039 -3.4004 300 inf nan]"},
        {TOW_I8, "[1 -3 127 127 0]"},
        {TOW_U8, "[1 0 255 255 0]"},
        {TOW_I64, "[1 -3 300 9223372036854775807 0]"},
        {TOW_U64, "[1 0 300 18446744073709551615 0]"},
        {TOW_BOOL, "[true true true true true]"},
    };
    tow_array *wide = floats(5, (const float[]){1.004F, -3.4F, 300, 3.39e38F, NAN}), *narrow = NULL;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        char text[200];
        OK(tow_array_convert(wide, expected[i].dtype, &narrow));
        tow_array_text(narrow, text, sizeof text);
        assert_string_equal(text, expected[i].text);
        tow_array_release(narrow);
    }
    assert_int_equal(tow_array_convert(wide, (tow_dtype)TOW_DTYPE_END, &narrow), TOW_INVALID_ARGUMENT);
    assert_null(narrow);
    assert_int_equal(tow_array_convert(NULL, TOW_F32, &narrow), TOW_INVALID_ARGUMENT);
    tow_array_release(wide);
}

/* ---- what programs do -------------------------------------------------------------------------------------------- */

static void convert_all(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    for (int d = 1; d < TOW_DTYPE_END; d++)
        out[d - 1] = tow_reshape(tow_convert(in[0], (tow_dtype)d), 1, (int64_t[]){-1});
}

/* Values that are hard for some type, as each type has them. */
static const double hard[] = {0,       -0.0,   1,          -1,         0.5,      2.5,         127.5,     -128.5,
                              255.75,  65504,  65520,      -65519,     0x1p-24,  0x1p-25,     0x1.8p-24, 0x1p-133,
                              3.39e38, 3.4e38, 0x1p31,     -0x1p31,    0x1p32,   0x1p53,      0x1p63,    -0x1p63,
                              0x1p64,  1e300,  1.00390625, 1.01171875, 16777217, 4294967295., INFINITY,  -INFINITY,
                              NAN,     -NAN,   1e-300,     257};

/* The kernels, on every pair of types, do what single elements do. */
static void kernels_convert_like_elements(void **state)
{
    (void)state;
    const int64_t n = sizeof hard / sizeof *hard;
    for (int from = 1; from < TOW_DTYPE_END; from++) {
        tow_type type = tow_make_type((tow_dtype)from, 1, &n);
        tow_graph *graph = NULL;
        tow_array *in = NULL, *out[TOW_DTYPE_END] = {NULL}, *expected = NULL;
        OK(tow_array_create(ctx, type, &in));
        for (int64_t i = 0; i < n; i++) tow__store_element(type.dtype, tow_array_data(in), i, hard[i]);
        OK(tow_trace_function(ctx, convert_all, NULL, 1, &type, NULL, TOW_DTYPE_END - 1, &graph));
        OK(tow_evaluate(graph, &in, out + 1));
        for (int to = 1; to < TOW_DTYPE_END; to++) {
            OK(tow_array_convert(in, (tow_dtype)to, &expected));
            for (int64_t i = 0; i < n; i++) {
                const size_t size = tow_dtype_size((tow_dtype)to);
                const char *a = (const char *)tow_array_data(out[to]) + (size_t)i * size,
                           *b = (const char *)tow_array_data(expected) + (size_t)i * size;
                if (memcmp(a, b, size) != 0)
                    fail_msg("%s to %s: element %d differs", tow_dtype_name(type.dtype), tow_dtype_name((tow_dtype)to),
                             (int)i);
            }
            tow_array_release(expected);
            tow_array_release(out[to]);
        }
        tow_array_release(in);
        tow_graph_release(graph);
    }
}

/* Moves keep the bits of every element, whatever they stand for. */
static void move_all(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    const int64_t low[2] = {0, 0}, high[2] = {0, 1};
    tow_value square = tow_reshape(in[0], 2, (int64_t[]){256, 256});
    tow_value turned = tow_transpose(tow_transpose(square, 0, NULL), 0, NULL), pieces[2];
    pieces[0] = tow_slice(turned, (int64_t[]){0, 0}, (int64_t[]){256, 100}, NULL);
    pieces[1] = tow_slice(turned, (int64_t[]){0, 100}, (int64_t[]){256, 256}, NULL);
    tow_value joined = tow_concatenate(2, pieces, 1);
    tow_value padded = tow_pad(joined, tow_scalar(trace, tow_value_type(joined).dtype, 0), low, high, NULL);
    tow_value cut = tow_slice(padded, low, (int64_t[]){256, 256}, NULL);
    tow_value chosen = tow_where(tow_eq(tow_iota(trace, tow_make_type(TOW_I32, 2, (int64_t[]){256, 256}), 0),
                                        tow_full(trace, tow_make_type(TOW_I32, 2, (int64_t[]){256, 256}), 3)),
                                 cut, joined);
    tow_value rows = tow_gather(chosen, tow_iota(trace, tow_make_type(TOW_U8, 1, (int64_t[]){256}), 0));
    tow_value reversed = tow_rev(tow_rev(rows, 1, (int[]){0}), 1, (int[]){0});
    out[0] = tow_transpose(reversed, 0, NULL);
}

static void moves_keep_every_bit(void **state)
{
    (void)state;
    const int64_t n = 65536;
    for (int h = 0; h < 2; h++) {
        tow_type type = tow_make_type(halves[h].dtype, 1, &n);
        tow_graph *graph = NULL;
        tow_array *in = NULL, *out = NULL;
        OK(tow_array_create(ctx, type, &in));
        uint16_t *x = tow_array_data(in);
        for (int i = 0; i < 65536; i++) x[i] = (uint16_t)i;
        OK(tow_trace_function(ctx, move_all, NULL, 1, &type, NULL, 1, &graph));
        OK(tow_evaluate(graph, &in, &out));
        const uint16_t *y = tow_array_data(out);
        for (int i = 0; i < 65536; i++) assert_int_equal(y[i], x[i % 256 * 256 + i / 256]);
        tow_array_release(in);
        tow_array_release(out);
        tow_graph_release(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_has_its_value),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(rounding_from_f32),
        cmocka_unit_test(rounding_of_large_integers_is_done_once),
        cmocka_unit_test(floats_saturate),
        cmocka_unit_test(ranges),
        cmocka_unit_test(arrays_are_converted_and_printed),
        cmocka_unit_test(kernels_convert_like_elements),
        cmocka_unit_test(moves_keep_every_bit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
