/* .npy and safetensors: round trips, files that NumPy wrote, hostile files, full disks, replacement as a whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tow/io.h"

typedef struct fixture {
    tow_context *ctx;
    char directory[64];
    char path[96];
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (f == NULL) return -1;
    strcpy(f->directory, "/tmp/tow-test-io-XXXXXX");
    if (mkdtemp(f->directory) == NULL || tow_context_create(NULL, &f->ctx) != TOW_OK) return -1;
    snprintf(f->path, sizeof f->path, "%s/file", f->directory);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", f->directory);
    int failed = system(command);
    tow_context_destroy(f->ctx);
    free(f);
    return failed;
}

static void write_bytes(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static size_t read_bytes(const char *path, unsigned char *data, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(data, 1, capacity, file);
    fclose(file);
    return n;
}

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

static void assert_message(const fixture *f, const char *part)
{
    const char *text = tow_context_error(f->ctx);
    if (strstr(text, part) == NULL) fail_msg("expected a message with \"%s\", found \"%s\"", part, text);
}

static tow_array *array_of(const fixture *f, tow_type type, const void *data)
{
    tow_array *array = NULL;
    assert_int_equal(tow_array_from_data(f->ctx, type, data, &array), TOW_OK);
    return array;
}

static void assert_array(const tow_array *array, tow_type type, const void *data)
{
    assert_non_null(array);
    assert_true(tow_type_equal(tow_array_type(array), type));
    assert_memory_equal(tow_array_data(array), data, tow_type_bytes(type));
}

/* ---- .npy --------------------------------------------------------------------------------------------------------- */

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

/* ---- safetensors -------------------------------------------------------------------------------------------------- */

static tow_tensors *sample(const fixture *f)
{
    tow_tensors *tensors;
    static const float a[6] = {1, 2, 3, 4, 5, 6};
    static const unsigned char b[3] = {1, 0, 1};
    static const double c[2] = {0.1, -7};
    static const int32_t d = -5;
    assert_int_equal(tow_tensors_create(f->ctx, &tensors), TOW_OK);
    tow_array *arrays[] = {array_of(f, tow_make_type(TOW_F32, 2, (int64_t[]){2, 3}), a),
                           array_of(f, tow_make_type(TOW_BOOL, 1, (int64_t[]){3}), b),
                           array_of(f, tow_make_type(TOW_F64, 1, (int64_t[]){2}), c),
                           array_of(f, tow_make_type(TOW_I32, 0, NULL), &d),
                           array_of(f, tow_make_type(TOW_U32, 2, (int64_t[]){0, 4}), "")};
    static const char *const names[] = {"params/a", "b", "c \"quoted\"", "d/\xc3\xa9", "empty"};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(tow_tensors_add(tensors, names[i], arrays[i]), TOW_OK);
        tow_array_release(arrays[i]);
    }
    assert_int_equal(tow_tensors_set_metadata(tensors, "step", "1"), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata(tensors, "note", "line\nbreak"), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata(tensors, "step", "12"), TOW_OK);
    return tensors;
}

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

/* ---- files damaged at every byte ------------------------------------------------------------------------------------- */

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

/* ---- the file system ---------------------------------------------------------------------------------------------------- */

static size_t count_files(const fixture *f)
{
    char command[160], text[32] = "";
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", f->directory);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(text, sizeof text, pipe));
    pclose(pipe);
    return (size_t)strtoul(text, NULL, 10);
}

static void unreadable_files(void **state)
{
    fixture *f = *state;
    tow_array *array;
    tow_tensors *tensors;
    assert_int_equal(tow_npy_read(f->ctx, f->path, &array), TOW_IO_ERROR);
    assert_message(f, "No such file");
    assert_int_equal(tow_safetensors_read(f->ctx, f->directory, &tensors), TOW_IO_ERROR);
    assert_message(f, "a directory");
    assert_int_equal(mkfifo(f->path, 0600), 0);
    assert_int_equal(tow_npy_read(f->ctx, f->path, &array), TOW_IO_ERROR);
    assert_message(f, "regular file");
    assert_int_equal(tow_npy_read(f->ctx, NULL, &array), TOW_INVALID_ARGUMENT);
}

static void unwritable_files(void **state)
{
    fixture *f = *state;
    tow_tensors *tensors = sample(f);
    char path[128];
    assert_int_equal(tow_safetensors_write(f->directory, tensors), TOW_IO_ERROR);
    assert_message(f, "a directory");
    snprintf(path, sizeof path, "%s/absent/file", f->directory);
    assert_int_equal(tow_safetensors_write(path, tensors), TOW_IO_ERROR);
    assert_message(f, path);
    assert_int_equal(tow_safetensors_write("", tensors), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_safetensors_write(NULL, tensors), TOW_INVALID_ARGUMENT);
    tow_tensors_free(tensors);
}

/* A full disk: the device that is always full, and a limit on the size of files. The old file stays, no other remains. */
static void full_disk(void **state)
{
    fixture *f = *state;
    static float zeros[4096];
    tow_array *array = array_of(f, tow_make_type(TOW_F32, 1, (int64_t[]){4096}), zeros);
    struct stat before, after;
    assert_int_equal(stat("/dev/full", &before), 0);
    assert_int_equal(tow_npy_write("/dev/full", array, f->ctx), TOW_IO_ERROR);
    assert_message(f, "/dev/full: cannot write: No space left");
    assert_int_equal(stat("/dev/full", &after), 0);
    assert_true(S_ISCHR(after.st_mode) && before.st_ino == after.st_ino);

    write_bytes(f->path, "old", 3);
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 5000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    tow_status status = tow_npy_write(f->path, array, f->ctx);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, TOW_IO_ERROR);
    assert_message(f, "cannot write");
    assert_message(f, f->path);
    unsigned char bytes[8];
    assert_int_equal(read_bytes(f->path, bytes, sizeof bytes), 3);
    assert_memory_equal(bytes, "old", 3);
    assert_int_equal(count_files(f), 1);
    tow_array_release(array);
}

static void a_left_over_temporary_file_is_taken_over(void **state)
{
    fixture *f = *state;
    char temporary[128];
    tow_tensors *tensors = sample(f), *back;
    snprintf(temporary, sizeof temporary, "%s.tmp", f->path);
    write_bytes(temporary, "of a killed process, and longer than nothing", 40);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    assert_int_equal(count_files(f), 1);
    assert_int_equal(tow_safetensors_read(f->ctx, f->path, &back), TOW_OK);
    tow_tensors_free(back);
    tow_tensors_free(tensors);
}

static void two_writers_are_kept_apart(void **state)
{
    fixture *f = *state;
    char temporary[128];
    tow_tensors *tensors = sample(f);
    snprintf(temporary, sizeof temporary, "%s.tmp", f->path);
    int fd = open(temporary, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_IO_ERROR);
    assert_message(f, "another process");
    assert_int_equal(access(temporary, F_OK), 0);
    close(fd);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    tow_tensors_free(tensors);
}

static void symbolic_links_keep_pointing(void **state)
{
    fixture *f = *state;
    char link_path[128];
    struct stat info;
    float x = 3;
    tow_array *array = array_of(f, tow_make_type(TOW_F32, 0, NULL), &x), *back;
    snprintf(link_path, sizeof link_path, "%s/link", f->directory);
    write_bytes(f->path, "old", 3);
    assert_int_equal(symlink(f->path, link_path), 0);
    assert_int_equal(tow_npy_write(link_path, array, f->ctx), TOW_OK);
    assert_int_equal(lstat(link_path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(tow_npy_read(f->ctx, f->path, &back), TOW_OK);
    tow_array_release(back);
    tow_array_release(array);
}

/* ---- failing allocations -------------------------------------------------------------------------------------------------- */

typedef struct budget {
    long allowed;
    long in_use;
} budget;

static void *limited(void *user, void *pointer, size_t old_size, size_t size)
{
    budget *b = user;
    (void)old_size;
    if (size == 0) {
        if (pointer != NULL) b->in_use--;
        free(pointer);
        return NULL;
    }
    if (b->allowed-- <= 0) return NULL;
    if (pointer == NULL) {
        void *memory = NULL;
        if (posix_memalign(&memory, 64, size) != 0) return NULL;
        b->in_use++;
        return memory;
    }
    return realloc(pointer, size);
}

/* Reading and writing with 0, 1, 2, ... allocations allowed, until it succeeds: a status each time, and nothing leaks. */
static void every_allocation_fails_in_turn(void **state)
{
    fixture *f = *state;
    tow_tensors *tensors = sample(f);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    tow_tensors_free(tensors);
    budget b = {.allowed = 1000000};
    tow_context *ctx;
    assert_int_equal(tow_context_create(&(tow_context_options){.allocator = {limited, &b}, .threads = 1}, &ctx),
                     TOW_OK);
    long idle = b.in_use, n = 0;
    tow_status status = TOW_OUT_OF_MEMORY;
    for (; status != TOW_OK; n++) {
        b.allowed = n;
        status = tow_safetensors_read(ctx, f->path, &tensors);
        if (status != TOW_OK) assert_int_equal(status, TOW_OUT_OF_MEMORY);
        tow_tensors_free(tensors);
        assert_int_equal(b.in_use, idle);
        assert_true(n < 1000);
    }
    assert_true(n > 10);
    b.allowed = 1000000;
    tow_context_destroy(ctx);
    assert_int_equal(b.in_use, 0);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
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
        TEST(unreadable_files),
        TEST(unwritable_files),
        TEST(full_disk),
        TEST(a_left_over_temporary_file_is_taken_over),
        TEST(two_writers_are_kept_apart),
        TEST(symbolic_links_keep_pointing),
        TEST(every_allocation_fails_in_turn),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
