/* .npy: round trips, files that NumPy wrote, hostile files, files damaged at every byte. The things that the file
 * system does to them is tested in test_io_system.c.
 * Tests kind.c, npy.c, npy_header.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/io_files.h"

/* A version 1.0 .npy from a header text and data. */
static void write_npy(const char *path, const char *header, const void *data, size_t size)
{
    unsigned char bytes[4096] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    size_t length = strlen(header);
    bytes[8] = (unsigned char)(length & 255);
    bytes[9] = (unsigned char)(length >> 8);
    memcpy(bytes + 10, header, length);
    memcpy(bytes + 10 + length, data, size);
    write_bytes(path, bytes, 10 + length + size);
}

static void npy_round_trip(void **state)
{
    fixture *f = *state;
    static const unsigned char bools[6] = {0, 1, 1, 0, 1, 0};
    static const double numbers[6] = {1.5, -2, 3e300, 0, 5, -0.0};
    for (int dtype = 1; dtype < TOW_DTYPE_END; dtype++)
        for (int rank = 0; rank <= 3; rank++) {
            tow_type type = tow_make_type((tow_dtype)dtype, rank, (int64_t[]){rank == 1 ? 6 : 2, rank == 2 ? 3 : 1, 3});
            const void *data = dtype == TOW_BOOL ? (const void *)bools : numbers;
            tow_array *array = array_of(f, type, data), *back;
            assert_int_equal(tow_npy_write(f->ctx, f->path, array), TOW_OK);
            assert_int_equal(tow_npy_read(f->ctx, f->path, &back), TOW_OK);
            assert_array(back, type, data);
            tow_array_release(array);
            tow_array_release(back);
            unsigned char bytes[256];
            size_t size = read_bytes(f->path, bytes, sizeof bytes);
            assert_int_equal((size - tow_type_bytes(type)) % 64, 0); /* NumPy aligns the data */
        }
}

static void npy_empty(void **state)
{
    fixture *f = *state;
    tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){0, 5});
    tow_array *array = array_of(f, type, ""), *back;
    assert_int_equal(tow_npy_write(f->ctx, f->path, array), TOW_OK);
    assert_int_equal(tow_npy_read(f->ctx, f->path, &back), TOW_OK);
    assert_true(tow_type_equal(tow_array_type(back), type));
    tow_array_release(array);
    tow_array_release(back);
}

static void npy_fortran_order_is_transposed(void **state)
{
    fixture *f = *state;
    /* [[0,1,2],[3,4,5]] by columns */
    static const int32_t columns[6] = {0, 3, 1, 4, 2, 5}, rows[6] = {0, 1, 2, 3, 4, 5};
    static const int64_t wide[6] = {0, 3, 1, 4, 2, 5}, wide_rows[6] = {0, 1, 2, 3, 4, 5};
    tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){2, 3});
    tow_array *array;
    write_npy(f->path, "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }\n", columns, sizeof columns);
    assert_int_equal(tow_npy_read(f->ctx, f->path, &array), TOW_OK);
    assert_array(array, type, rows);
    tow_array_release(array);
    write_npy(f->path, "{'shape':(2,3),\"descr\":'<i8','fortran_order':True}", wide, sizeof wide);
    assert_int_equal(tow_npy_read(f->ctx, f->path, &array), TOW_OK);
    type.dtype = TOW_I64;
    assert_array(array, type, wide_rows);
    tow_array_release(array);
    assert_int_equal(tow_npy_read_with(f->ctx, f->path, TOW_I32, &array), TOW_OK);
    type.dtype = TOW_I32;
    assert_array(array, type, rows);
    tow_array_release(array);
}

/* Larger than a piece, in three axes: element [i,j,k] is (i * 70 + j) * 50 + k. */
static void npy_fortran_order_in_pieces(void **state)
{
    fixture *f = *state;
    enum {
        I = 30,
        J = 70,
        K = 50,
        N = I * J * K
    };
    static const char header[] = "{'descr': '<i8', 'fortran_order': True, 'shape': (30, 70, 50), }";
    const size_t start = 10 + sizeof header - 1, size = start + N * sizeof(int64_t);
    unsigned char *bytes = calloc(size, 1);
    assert_non_null(bytes);
    memcpy(bytes, "\x93NUMPY\1\0", 8);
    bytes[8] = sizeof header - 1;
    memcpy(bytes + 10, header, sizeof header - 1);
    size_t at = start;
    for (int k = 0; k < K; k++)
        for (int j = 0; j < J; j++)
            for (int i = 0; i < I; i++, at += sizeof(int64_t)) {
                const int64_t element = (i * J + j) * K + k;
                memcpy(bytes + at, &element, sizeof element);
            }
    write_bytes(f->path, bytes, size);
    free(bytes);
    tow_array *array;
    assert_int_equal(tow_npy_read(f->ctx, f->path, &array), TOW_OK);
    const int64_t *data = tow_array_data(array);
    for (int i = 0; i < N; i++) assert_int_equal(data[i], i);
    tow_array_release(array);
    assert_int_equal(tow_npy_read_with(f->ctx, f->path, TOW_F64, &array), TOW_OK);
    const double *numbers = tow_array_data(array);
    for (int i = 0; i < N; i++) assert_true(numbers[i] == i);
    tow_array_release(array);
}

static void npy_converts_on_request(void **state)
{
    fixture *f = *state;
    static const int64_t good[2] = {INT32_MIN, INT32_MAX}, bad[2] = {0, (int64_t)INT32_MAX + 1}, negative[2] = {1, -1};
    static const int32_t expected[2] = {INT32_MIN, INT32_MAX};
    static const float rounded[2] = {-0x1p31f, 0x1p31f}, halves[2] = {1.5f, 1 + 0x1p-8f};
    static const uint16_t halves_bf16[2] = {0x3fc0, 0x3f80}; /* a tie, which goes to the even neighbor */
    static const char header[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }";
    const int64_t two = 2;
    tow_array *array;
    write_npy(f->path, header, good, sizeof good);
    assert_int_equal(tow_npy_read(f->ctx, f->path, &array), TOW_OK);
    assert_array(array, tow_make_type(TOW_I64, 1, &two), good);
    tow_array_release(array);
    assert_int_equal(tow_npy_read_with(f->ctx, f->path, TOW_I32, &array), TOW_OK);
    assert_array(array, tow_make_type(TOW_I32, 1, &two), expected);
    tow_array_release(array);
    assert_int_equal(tow_npy_read_with(f->ctx, f->path, TOW_F32, &array), TOW_OK);
    assert_array(array, tow_make_type(TOW_F32, 1, &two), rounded);
    tow_array_release(array);
    write_npy(f->path, header, bad, sizeof bad);
    assert_int_equal(tow_npy_read_with(f->ctx, f->path, TOW_I32, &array), TOW_TYPE_MISMATCH);
    assert_null(array);
    assert_message(f, "expected integers that fit i32, found 2147483648 at element 1; read them as i64");
    write_npy(f->path, header, negative, sizeof negative);
    assert_int_equal(tow_npy_read_with(f->ctx, f->path, TOW_U64, &array), TOW_TYPE_MISMATCH);
    assert_message(f, "found -1 at element 1");
    assert_int_equal(tow_npy_read_with(f->ctx, f->path, TOW_BOOL, &array), TOW_TYPE_MISMATCH);
    assert_message(f, "expected bool, found i64[2], which does not convert to it");
    assert_int_equal(tow_npy_read_with(f->ctx, f->path, (tow_dtype)99, &array), TOW_INVALID_ARGUMENT);
    write_npy(f->path, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", halves, sizeof halves);
    assert_int_equal(tow_npy_read_with(f->ctx, f->path, TOW_BF16, &array), TOW_OK);
    assert_array(array, tow_make_type(TOW_BF16, 1, &two), halves_bf16);
    tow_array_release(array);
    assert_int_equal(tow_npy_read_with(f->ctx, f->path, TOW_I64, &array), TOW_TYPE_MISMATCH);
    assert_message(f, f->path);
}

typedef struct bad_npy {
    const char *header;
    size_t data;
    tow_status status;
    const char *message;
} bad_npy;

static void npy_bad_headers(void **state)
{
    fixture *f = *state;
    static const bad_npy cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", 8, TOW_BAD_FORMAT,
         "expected 12 bytes of data for f32[3], found 8"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", 16, TOW_BAD_FORMAT, "expected 12 bytes"},
        {"{'descr': '>c8', 'fortran_order': False, 'shape': (3,), }", 24, TOW_UNSUPPORTED, ">c8"},
        {"{'descr': '<V3', 'fortran_order': False, 'shape': (3,), }", 9, TOW_UNSUPPORTED, "<V3"},
        {"{'descr': '', 'fortran_order': False, 'shape': (3,), }", 9, TOW_UNSUPPORTED, "found ''"},
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (3,), }", 12, TOW_BAD_FORMAT, "expected 6 bytes"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", 12, TOW_UNSUPPORTED, "structured"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (3,), }", 12, TOW_BAD_FORMAT, "True or False"},
        {"{'descr': '<f4', 'fortran_order': False, }", 12, TOW_BAD_FORMAT, "no shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", 12, TOW_BAD_FORMAT, "dimension"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)", 12, TOW_BAD_FORMAT, "'}'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'extra': 1}", 12, TOW_BAD_FORMAT, "extra"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (3,), }", 12, TOW_BAD_FORMAT, "descr"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", 4, TOW_UNSUPPORTED,
         "at most 8 axes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296,4294967296), }", 4, TOW_BAD_FORMAT,
         "addressed"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 4, TOW_BAD_FORMAT,
         "below 2^63"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } x", 12, TOW_BAD_FORMAT, "end of the header"},
        {"", 0, TOW_BAD_FORMAT, "'{'"},
    };
    static const unsigned char zeros[64] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tow_array *array;
        write_npy(f->path, cases[i].header, zeros, cases[i].data);
        assert_int_equal(tow_npy_read(f->ctx, f->path, &array), cases[i].status);
        assert_null(array);
        assert_message(f, f->path);
        assert_message(f, cases[i].message);
    }
}

static void npy_bools_are_checked(void **state)
{
    fixture *f = *state;
    tow_array *array;
    write_npy(f->path, "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", "\1\2", 2);
    assert_int_equal(tow_npy_read(f->ctx, f->path, &array), TOW_BAD_FORMAT);
    assert_message(f, "bytes 0 and 1");
}

static tow_status read_npy(tow_context *ctx, const char *path, void **result)
{
    tow_array *array;
    tow_status status = tow_npy_read(ctx, path, &array);
    *result = array;
    tow_array_release(array);
    return status;
}

static void npy_damaged(void **state)
{
    fixture *f = *state;
    static const float x[6] = {1, 2, 3, 4, 5, 6};
    tow_array *array = array_of(f, tow_make_type(TOW_F32, 2, (int64_t[]){2, 3}), x);
    assert_int_equal(tow_npy_write(f->ctx, f->path, array), TOW_OK);
    tow_array_release(array);
    damage(f, read_npy, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(npy_round_trip),
        TEST(npy_empty),
        TEST(npy_fortran_order_is_transposed),
        TEST(npy_fortran_order_in_pieces),
        TEST(npy_converts_on_request),
        TEST(npy_bad_headers),
        TEST(npy_bools_are_checked),
        TEST(npy_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
