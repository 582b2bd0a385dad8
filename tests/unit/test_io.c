/* .npy and safetensors: round trips, files that NumPy wrote, hostile files, files damaged at every byte. What the file
 * system does to them is tested in test_io_system.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "tests/unit/io_files.h"

/* A safetensors file from a header text and a number of zero bytes of data. */
static void write_safetensors(const char *path, const char *header, size_t data)
{
    unsigned char bytes[4096] = {0};
    uint64_t length = strlen(header);
    memcpy(bytes, &length, sizeof length);
    memcpy(bytes + 8, header, length);
    write_bytes(path, bytes, 8 + length + data);
}

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

static void assert_array(const tow_array *array, tow_type type, const void *data)
{
    assert_non_null(array);
    assert_true(tow_type_equal(tow_array_type(array), type));
    assert_memory_equal(tow_array_data(array), data, tow_type_bytes(type));
}

/* ---- .npy -------------------------------------------------------------------------------------------------------- */

static void npy_round_trip(void **state)
{
    fixture *f = *state;
    static const unsigned char bools[6] = {0, 1, 1, 0, 1, 0};
    static const double numbers[6] = {1.5, -2, 3e300, 0, 5, -0.0};
    for (int dtype = 0; dtype < TOW_DTYPE_COUNT; dtype++)
        for (int rank = 0; rank <= 3; rank++) {
            tow_type type = tow_make_type((tow_dtype)dtype, rank, (int64_t[]){rank == 1 ? 6 : 2, rank == 2 ? 3 : 1, 3});
            const void *data = dtype == TOW_BOOL ? (const void *)bools : numbers;
            tow_array *array = array_of(f, type, data), *back;
            assert_int_equal(tow_npy_write(f->path, array, f->ctx), TOW_OK);
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
    assert_int_equal(tow_npy_write(f->path, array, f->ctx), TOW_OK);
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
    static const int64_t wide[6] = {0, 3, 1, 4, 2, 5};
    tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){2, 3});
    tow_array *array;
    write_npy(f->path, "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }\n", columns, sizeof columns);
    assert_int_equal(tow_npy_read(f->ctx, f->path, &array), TOW_OK);
    assert_array(array, type, rows);
    tow_array_release(array);
    write_npy(f->path, "{'shape':(2,3),\"descr\":'<i8','fortran_order':True}", wide, sizeof wide);
    assert_int_equal(tow_npy_read(f->ctx, f->path, &array), TOW_OK);
    assert_array(array, type, rows);
    tow_array_release(array);
}

static void npy_narrows_integers_that_fit(void **state)
{
    fixture *f = *state;
    static const int64_t good[2] = {INT32_MIN, INT32_MAX}, bad[2] = {0, (int64_t)INT32_MAX + 1};
    static const int32_t expected[2] = {INT32_MIN, INT32_MAX};
    tow_array *array;
    write_npy(f->path, "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }", good, sizeof good);
    assert_int_equal(tow_npy_read(f->ctx, f->path, &array), TOW_OK);
    assert_array(array, tow_make_type(TOW_I32, 1, (int64_t[]){2}), expected);
    tow_array_release(array);
    write_npy(f->path, "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }", bad, sizeof bad);
    assert_int_equal(tow_npy_read(f->ctx, f->path, &array), TOW_UNSUPPORTED);
    assert_null(array);
    assert_message(f, "2147483648 at element 1");
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
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }", 12, TOW_UNSUPPORTED, ">f4"},
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (3,), }", 6, TOW_UNSUPPORTED, "<f2"},
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

/* ---- safetensors ------------------------------------------------------------------------------------------------- */

static void safetensors_round_trip(void **state)
{
    fixture *f = *state;
    tow_tensors *tensors = sample(f), *back;
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    assert_int_equal(tow_safetensors_read(f->ctx, f->path, &back), TOW_OK);
    assert_int_equal(tow_tensors_count(back), tow_tensors_count(tensors));
    for (size_t i = 0; i < tow_tensors_count(tensors); i++) {
        tow_array *array = tow_tensors_at(tensors, i);
        assert_array(tow_tensors_find(back, tow_tensors_name(tensors, i)), tow_array_type(array),
                     tow_array_data(array));
    }
    assert_string_equal(tow_tensors_metadata(back, "step"), "12");
    assert_string_equal(tow_tensors_metadata(back, "note"), "line\nbreak");
    assert_null(tow_tensors_metadata(back, "other"));
    assert_null(tow_tensors_find(back, "params"));
    tow_tensors_free(tensors);
    tow_tensors_free(back);
    unsigned char bytes[1024];
    uint64_t length;
    read_bytes(f->path, bytes, sizeof bytes);
    memcpy(&length, bytes, sizeof length);
    assert_int_equal(length % 8, 0);
}

static void tensors_names_differ(void **state)
{
    fixture *f = *state;
    tow_tensors *tensors;
    float x = 1;
    tow_array *array = array_of(f, tow_make_type(TOW_F32, 0, NULL), &x);
    assert_int_equal(tow_tensors_create(f->ctx, &tensors), TOW_OK);
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(tow_tensors_add(tensors, name, array), TOW_OK);
    }
    assert_int_equal(tow_tensors_add(tensors, "t512", array), TOW_INVALID_ARGUMENT);
    assert_message(f, "t512");
    assert_int_equal(tow_tensors_add(tensors, "__metadata__", array), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_tensors_count(tensors), 1000);
    assert_string_equal(tow_tensors_name(tensors, 999), "t999");
    assert_int_equal(tow_tensors_add(tensors, "\xff\xfe", array), TOW_OK);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_INVALID_ARGUMENT);
    assert_message(f, "UTF-8");
    assert_int_equal(access(f->path, F_OK), -1);
    tow_array_release(array);
    tow_tensors_free(tensors);
    assert_int_equal(tow_tensors_create(f->ctx, &tensors), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata(tensors, "cup", "caf\xe9"), TOW_OK);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_INVALID_ARGUMENT);
    assert_message(f, "metadata in a safetensors file are UTF-8, found 'caf\xe9' as 'cup'");
    assert_int_equal(tow_tensors_set_metadata(tensors, "cup", "caf\xc3\xa9 \xf0\x9f\x8d\xb5"), TOW_OK);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    tow_tensors_free(tensors);
}

typedef struct bad_safetensors {
    const char *header;
    size_t data;
    tow_status status;
    const char *message;
} bad_safetensors;

static void safetensors_hostile_headers(void **state)
{
    fixture *f = *state;
    static const bad_safetensors cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, TOW_BAD_FORMAT,
         "do not lie within the 4 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 12, TOW_BAD_FORMAT, "belong to no tensor"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT,
         "expected 8 bytes for f32[2]"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],"
         "\"data_offsets\":[0,8]}}",
         8, TOW_BAD_FORMAT, "overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[8,12]}}",
         12, TOW_BAD_FORMAT, "gap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, TOW_BAD_FORMAT, "gap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,4]}}", 8, TOW_BAD_FORMAT, "data_offsets [8, 4]"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 8, TOW_BAD_FORMAT, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 8, TOW_BAD_FORMAT, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
         TOW_BAD_FORMAT, "addressed"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, TOW_UNSUPPORTED,
         "at most 8 axes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, ">= 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, ">= 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":3,\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, "list of numbers"},
        {"{\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, TOW_UNSUPPORTED, "BF16"},
        {"{\"a\":{\"dtype\":\"X9\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, "X9"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, "dtype"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, "tensor 'a'"},
        {"{\"a\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":0}}", 1, TOW_BAD_FORMAT,
         "tensor 'a'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_"
         "offsets\":[4,8]}}",
         8, TOW_BAD_FORMAT, "duplicate"},
        {"{\"__metadata__\":{\"a\":1}}", 0, TOW_BAD_FORMAT, "metadata 'a'"},
        {"{\"__metadata__\":\"a\"}", 0, TOW_BAD_FORMAT, "__metadata__"},
        {"[1,2]", 0, TOW_BAD_FORMAT, "object"},
        {"{\"a\":", 0, TOW_BAD_FORMAT, "JSON"},
        {"{} {}", 0, TOW_BAD_FORMAT, "JSON"},
        {"", 0, TOW_BAD_FORMAT, "JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tow_tensors *tensors;
        write_safetensors(f->path, cases[i].header, cases[i].data);
        assert_int_equal(tow_safetensors_read(f->ctx, f->path, &tensors), cases[i].status);
        assert_null(tensors);
        assert_message(f, f->path);
        assert_message(f, cases[i].message);
    }
}

static void safetensors_header_length_beyond_the_file(void **state)
{
    fixture *f = *state;
    static const uint64_t lengths[] = {UINT64_MAX, INT64_MAX, 100000001, 1000, 9};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        unsigned char bytes[16];
        tow_tensors *tensors;
        memcpy(bytes, &lengths[i], 8);
        memcpy(bytes + 8, "{}      ", 8);
        write_bytes(f->path, bytes, sizeof bytes);
        assert_int_equal(tow_safetensors_read(f->ctx, f->path, &tensors), TOW_BAD_FORMAT);
        assert_null(tensors);
        assert_message(f, "header");
    }
}

static void safetensors_deep_json(void **state)
{
    fixture *f = *state;
    static unsigned char bytes[8 + 100000];
    uint64_t length = sizeof bytes - 8;
    memcpy(bytes, &length, 8);
    memset(bytes + 8, '[', length);
    tow_tensors *tensors;
    write_bytes(f->path, bytes, sizeof bytes);
    assert_int_equal(tow_safetensors_read(f->ctx, f->path, &tensors), TOW_BAD_FORMAT);
}

/* ---- files damaged at every byte --------------------------------------------------------------------------------- */

typedef tow_status (*reader)(tow_context *ctx, const char *path, void **result);

static tow_status read_npy(tow_context *ctx, const char *path, void **result)
{
    tow_array *array;
    tow_status status = tow_npy_read(ctx, path, &array);
    *result = array;
    tow_array_release(array);
    return status;
}

static tow_status read_safetensors(tow_context *ctx, const char *path, void **result)
{
    tow_tensors *tensors;
    tow_status status = tow_safetensors_read(ctx, path, &tensors);
    *result = tensors;
    tow_tensors_free(tensors);
    return status;
}

/* Every truncation is an error; every flipped bit gives a status and no crash (sanitizers watch for leaks). */
static void damage(const fixture *f, reader read)
{
    unsigned char good[2048], bad[2048];
    size_t size = read_bytes(f->path, good, sizeof good);
    assert_in_range(size, 1, sizeof good - 1);
    void *result;
    for (size_t n = 0; n < size; n++) {
        write_bytes(f->path, good, n);
        tow_context_clear_error(f->ctx);
        assert_int_not_equal(read(f->ctx, f->path, &result), TOW_OK);
        assert_null(result);
        assert_message(f, f->path);
    }
    for (size_t n = 0; n < size; n++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(bad, good, size);
            bad[n] = (unsigned char)(bad[n] ^ (1 << bit));
            write_bytes(f->path, bad, size);
            tow_status status = read(f->ctx, f->path, &result);
            assert_true((status == TOW_OK) == (result != NULL));
            assert_true(status == TOW_OK || status == TOW_BAD_FORMAT || status == TOW_UNSUPPORTED);
        }
}

static void npy_damaged(void **state)
{
    fixture *f = *state;
    static const float x[6] = {1, 2, 3, 4, 5, 6};
    tow_array *array = array_of(f, tow_make_type(TOW_F32, 2, (int64_t[]){2, 3}), x);
    assert_int_equal(tow_npy_write(f->path, array, f->ctx), TOW_OK);
    tow_array_release(array);
    damage(f, read_npy);
}

static void safetensors_damaged(void **state)
{
    fixture *f = *state;
    tow_tensors *tensors = sample(f);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    tow_tensors_free(tensors);
    damage(f, read_safetensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(npy_round_trip),
        TEST(npy_empty),
        TEST(npy_fortran_order_is_transposed),
        TEST(npy_narrows_integers_that_fit),
        TEST(npy_bad_headers),
        TEST(npy_bools_are_checked),
        TEST(safetensors_round_trip),
        TEST(tensors_names_differ),
        TEST(safetensors_hostile_headers),
        TEST(safetensors_header_length_beyond_the_file),
        TEST(safetensors_deep_json),
        TEST(npy_damaged),
        TEST(safetensors_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
