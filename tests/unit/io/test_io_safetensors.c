/* safetensors: round trips, files of other writers, hostile headers, checksums, files damaged at every byte. The things
 * that the file system does to them is tested in test_io_system.c.
 * Tests json.c, safetensors_header.c, safetensors_open.c, safetensors_read.c, safetensors_write.c, tensors.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "tests/unit/support/io_files.h"

/* A safetensors file from a header text and a number of zero bytes of data. */
static void write_safetensors(const char *path, const char *header, size_t data)
{
    unsigned char bytes[4096] = {0};
    uint64_t length = strlen(header);
    memcpy(bytes, &length, sizeof length);
    memcpy(bytes + 8, header, length);
    write_bytes(path, bytes, 8 + length + data);
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
        {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, TOW_UNSUPPORTED,
         "found F8_E4M3; convert it first"},
        {"{\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, TOW_BAD_FORMAT, "expected 4 bytes"},
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
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT,
         "2^63"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551620]}}", 4, TOW_BAD_FORMAT,
         "2^63"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[9223372036854775804,9223372036854775807]}}", 4,
         TOW_BAD_FORMAT, "do not lie within"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[01],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, ">= 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1e0],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, ">= 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT,
         "each once"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, ">= 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},}", 4, TOW_BAD_FORMAT, "JSON"},
        {"{\"a\\q\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, "an escape"},
        {"{\"a\\u0000\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, "u0000"},
        {"{\"\\ud83c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, "surrogate"},
        {"{\"\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, "UTF-8"},
        {"{\"a\nb\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TOW_BAD_FORMAT, "a character"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, TOW_BAD_FORMAT, "duplicate metadata 'a'"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, TOW_BAD_FORMAT, "duplicate __metadata__"},
        {"{\"__metadata__\":{\"tow.xxh3/a\":\"0123456789abcdef\"}}", 0, TOW_BAD_FORMAT, "'a', which is not there"},
        {"{\"__metadata__\":{\"tow.xxh3\":\"0\"}}", 0, TOW_BAD_FORMAT, "16 hexadecimal digits"},
        {"{\"__metadata__\":{\"tow.xxh3\":\"0123456789ABCDEF\"}}", 0, TOW_BAD_FORMAT, "16 hexadecimal digits"},
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

/* Headers that JSON allows and Tow does not write: spaces, escapes, fields in another order, empty tensors where others
 * begin. */
/* Tensors that Tow cannot read are an error when somebody asks for one, and for what reads all. */
static void foreign_tensors_can_be_left_alone(void **state)
{
    fixture *f = *state;
    static const char *const foreign[][2] = {{"\"dtype\":\"F8_E4M3\",\"shape\":[2,2]", "F8_E4M3"},
                                             {"\"dtype\":\"F6_E2M3\",\"shape\":[5]", "F6_E2M3"},
                                             {"\"dtype\":\"F4\",\"shape\":[8]", "F4"},
                                             {"\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1]", "8 axes"}};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        char header[512];
        tow_tensors *set;
        tow_array *array;
        snprintf(header, sizeof header,
                 "{\"b\":{%s,\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
                 foreign[i][0]);
        write_safetensors(f->path, header, 12);
        assert_int_equal(tow_safetensors_read(f->ctx, f->path, &set), TOW_UNSUPPORTED);
        assert_message(f, foreign[i][1]);
        assert_int_equal(tow_safetensors_mmap(f->ctx, f->path, &set), TOW_OK);
        assert_int_equal(tow_tensors_count(set), 2);
        assert_int_equal(tow_tensors_type(set, 0).rank, -1);
        assert_array(tow_tensors_find(set, "a"), tow_make_type(TOW_F32, 1, (int64_t[]){2}), (float[]){0, 0});
        assert_null(tow_tensors_at(set, 0));
        assert_int_equal(tow_tensors_get(set, "b", &array), TOW_UNSUPPORTED);
        assert_int_equal(tow_tensors_get_with(set, "b", TOW_F64, &array), TOW_UNSUPPORTED);
        assert_message(f, "tensor 'b'");
        assert_message(f, foreign[i][1]);
        assert_int_equal(tow_safetensors_write(f->path, set), TOW_UNSUPPORTED);
        assert_int_equal(tow_npz_write(f->path, set, false), TOW_UNSUPPORTED);
        tow_tensors_free(set);
    }
}

/* Their sizes are checked as those of others. */
static void foreign_tensors_of_wrong_sizes(void **state)
{
    fixture *f = *state;
    static const char *const entries[][2] = {
        {"\"dtype\":\"F8_E4M3\",\"shape\":[5]", "expected 5 bytes for F8_E4M3"},
        {"\"dtype\":\"C64\",\"shape\":[4294967296,4294967296]", "more bytes than can be addressed"},
        {"\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2]", "expected 8 bytes"}};
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        char header[256];
        tow_tensors *set;
        snprintf(header, sizeof header, "{\"b\":{%s,\"data_offsets\":[0,4]}}", entries[i][0]);
        write_safetensors(f->path, header, 4);
        assert_int_equal(tow_safetensors_mmap(f->ctx, f->path, &set), TOW_BAD_FORMAT);
        assert_message(f, entries[i][1]);
    }
    write_safetensors(f->path,
                      "{\"__metadata__\":{\"tow.xxh3/b\":\"0123456789abcdef\",\"tow.xxh3\":\"0123456789abcdef\"},"
                      "\"b\":{\"dtype\":\"I16\",\"shape\":[2],\"data_offsets\":[0,4]}}",
                      4);
    tow_tensors *set;
    assert_int_equal(tow_safetensors_mmap(f->ctx, f->path, &set), TOW_BAD_FORMAT);
    assert_message(f, "checksum");
}

/* Integers of 16 bits become i32, as those of .npy files, read and mapped, by themselves, converted and written. */
static void integers_of_16_bits(void **state)
{
    fixture *f = *state;
    static const char header[] = "{\"i\":{\"dtype\":\"I16\",\"shape\":[3],\"data_offsets\":[0,6]},"
                                 "\"u\":{\"dtype\":\"U16\",\"shape\":[1,2],\"data_offsets\":[6,10]},"
                                 "\"x\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[10,14]}}";
    static const int16_t i[3] = {-32768, -1, 32767};
    static const uint16_t u[2] = {65535, 1};
    const float x = 1.5f;
    const tow_type i_type = tow_make_type(TOW_I32, 1, (int64_t[]){3});
    unsigned char bytes[512] = {0};
    const uint64_t length = sizeof header - 1;
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, sizeof header - 1);
    memcpy(bytes + 8 + length, i, sizeof i);
    memcpy(bytes + 8 + length + 6, u, sizeof u);
    memcpy(bytes + 8 + length + 10, &x, sizeof x);
    for (int map = 0; map < 2; map++) {
        tow_tensors *set;
        tow_array *as_i8 = NULL, *as_f64 = NULL;
        write_bytes(f->path, bytes, 8 + length + 14);
        if ((map ? tow_safetensors_mmap : tow_safetensors_read)(f->ctx, f->path, &set) != TOW_OK)
            fail_msg("%s", tow_context_error(f->ctx));
        assert_int_equal(tow_tensors_get_with(set, "i", TOW_I8, &as_i8), TOW_TYPE_MISMATCH);
        assert_message(f, "found -32768 at element 0");
        assert_int_equal(tow_tensors_get_with(set, "i", TOW_F64, &as_f64), TOW_OK);
        assert_array(as_f64, tow_make_type(TOW_F64, 1, (int64_t[]){3}), (double[]){-32768, -1, 32767});
        tow_array_release(as_f64);
        assert_array(tow_tensors_find(set, "i"), i_type, (int32_t[]){-32768, -1, 32767});
        assert_array(tow_tensors_find(set, "u"), tow_make_type(TOW_I32, 2, (int64_t[]){1, 2}), (int32_t[]){65535, 1});
        assert_array(tow_tensors_find(set, "x"), tow_make_type(TOW_F32, 0, NULL), &x);
        tow_tensors_free(set);
        assert_int_equal(tow_safetensors_mmap(f->ctx, f->path, &set), TOW_OK); /* written without being asked for */
        char copy[160];
        snprintf(copy, sizeof copy, "%s/copy.safetensors", f->directory);
        assert_int_equal(map ? tow_safetensors_write(copy, set) : tow_safetensors_write_sharded(copy, set, 12), TOW_OK);
        tow_tensors_free(set);
        assert_int_equal(tow_safetensors_read(f->ctx, copy, &set), TOW_OK);
        assert_array(tow_tensors_find(set, "i"), i_type, (int32_t[]){-32768, -1, 32767});
        tow_tensors_free(set);
    }
}

/* A file of another format is named as what it is. */
static void files_of_other_formats(void **state)
{
    fixture *f = *state;
    static const char safetensors[] = "\2\0\0\0\0\0\0\0{}";
    tow_array *array = NULL;
    tow_tensors *set = NULL;
    const float x = 1;
    tow_array *one = array_of(f, tow_make_type(TOW_F32, 0, NULL), &x);
    assert_int_equal(tow_npy_write(f->ctx, f->path, one), TOW_OK);
    tow_array_release(one);
    assert_int_equal(tow_safetensors_read(f->ctx, f->path, &set), TOW_BAD_FORMAT);
    assert_message(f, "expected a safetensors file, found a .npy file, which tow_npy_read reads");
    assert_int_equal(tow_npz_read(f->ctx, f->path, &set), TOW_BAD_FORMAT);
    assert_message(f, "expected a zip archive (.npz), found a .npy file");
    write_bytes(f->path, safetensors, sizeof safetensors - 1);
    assert_int_equal(tow_npy_read(f->ctx, f->path, &array), TOW_BAD_FORMAT);
    assert_message(f, "expected a .npy file, found a safetensors file, which tow_safetensors_read reads");
    assert_int_equal(tow_npz_read(f->ctx, f->path, &set), TOW_BAD_FORMAT);
    assert_message(f, "found a safetensors file");
    static const struct {
        const char *first, *message;
    } others[] = {{"PK\3\4-----------------", "found a zip archive"},
                  {"GGUF\3---------------", "found a GGUF file"},
                  {"\x89HDF\r\n\x1a\n---------", "found an HDF5 file"},
                  {"\x80\2}q\1-------------", "found a pickle"},
                  {"\x1f\x8b\x08-----------------", "gzip"},
                  {"version https://git-lfs", "Git LFS"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        write_bytes(f->path, others[i].first, strlen(others[i].first));
        assert_int_equal(tow_safetensors_mmap(f->ctx, f->path, &set), TOW_BAD_FORMAT);
        assert_message(f, others[i].message);
        assert_message(f, f->path);
    }
}

static void safetensors_of_other_writers(void **state)
{
    fixture *f = *state;
    static const char header[] =
        "{ \"\\u0061\\/\\ud83c\\udf75\" :\t{\"data_offsets\": [ 0 , 8 ],\r\n \"shape\":[ 2 ] , \"dtype\":\"F32\"},"
        "\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
        "\"z\":{\"dtype\":\"F32\",\"shape\":[-0,3],\"data_offsets\":[8,8]},"
        "\"__metadata__\":{\"format\":\"\\u00e9\\n\"}}  ";
    static const float zeros[2] = {0};
    tow_tensors *tensors;
    write_safetensors(f->path, header, 8);
    if (tow_safetensors_read(f->ctx, f->path, &tensors) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
    assert_int_equal(tow_tensors_count(tensors), 3);
    assert_array(tow_tensors_find(tensors, "a/\xf0\x9f\x8d\xb5"), tow_make_type(TOW_F32, 1, (int64_t[]){2}), zeros);
    assert_string_equal(tow_tensors_name(tensors, 0), "e");
    assert_string_equal(tow_tensors_metadata(tensors, "format"), "\xc3\xa9\n");
    tow_tensors_free(tensors);
}

/* ---- checksums --------------------------------------------------------------------------------------------------- */

static uint64_t header_length(const unsigned char *bytes)
{
    uint64_t length;
    memcpy(&length, bytes, sizeof length);
    return length;
}

/* The position of `text` in the header of a file. */
static size_t find_in_header(const unsigned char *bytes, const char *text)
{
    const size_t end = 8 + (size_t)header_length(bytes) - strlen(text);
    for (size_t i = 8; i <= end; i++)
        if (memcmp(bytes + i, text, strlen(text)) == 0) return i;
    fail_msg("there is no %s in the header", text);
    return 0;
}

/* The numbers are those of xxhash's own Python package (xxhash.xxh3_64), over the bytes of the tensors, and over the
 * header as src/io/tensors.h has it. */
static void safetensors_checksums_are_those_of_xxhash(void **state)
{
    fixture *f = *state;
    unsigned char bytes[2048];
    tow_tensors *tensors;
    static const float a[6] = {1, 2, 3, 4, 5, 6};
    tow_array *array = array_of(f, tow_make_type(TOW_F32, 2, (int64_t[]){2, 3}), a);
    assert_int_equal(tow_tensors_create(f->ctx, &tensors), TOW_OK);
    assert_int_equal(tow_tensors_add(tensors, "params/a \"\xc3\xa9\n", array), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata(tensors, "step", "12"), TOW_OK);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    read_bytes(f->path, bytes, sizeof bytes);
    find_in_header(bytes, "\"tow.xxh3/params/a \\\"\xc3\xa9\\n\":\"a6e707ccf7703447\"");
    find_in_header(bytes, "\"tow.xxh3\":\"09ca556c48a0e699\"");
    tow_array_release(array);
    tow_tensors_free(tensors);
}

static void safetensors_checksums_are_not_metadata(void **state)
{
    fixture *f = *state;
    tow_tensors *tensors = sample(f), *back;
    assert_int_equal(tow_tensors_set_metadata(tensors, "tow.xxh3", "x"), TOW_INVALID_ARGUMENT);
    assert_message(f, "tow.xxh3");
    assert_int_equal(tow_tensors_set_metadata(tensors, "tow.xxh3/b", "x"), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_tensors_set_metadata(tensors, "tow.xxh32", "x"), TOW_OK);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    assert_int_equal(tow_safetensors_read(f->ctx, f->path, &back), TOW_OK);
    assert_null(tow_tensors_metadata(back, "tow.xxh3"));
    assert_null(tow_tensors_metadata(back, "tow.xxh3/b"));
    assert_int_equal(tow_safetensors_write(f->path, back), TOW_OK); /* not twice */
    tow_tensors_free(back);
    assert_int_equal(tow_safetensors_read(f->ctx, f->path, &back), TOW_OK);
    tow_tensors_free(back);
    tow_tensors_free(tensors);
}

/* Data of a mapped file are looked at when they are asked for. */
static tow_status map_and_touch(const fixture *f, tow_tensors **tensors)
{
    tow_status status = tow_safetensors_mmap(f->ctx, f->path, tensors);
    for (size_t i = 0; status == TOW_OK && i < tow_tensors_count(*tensors); i++)
        if (!tow_tensors_at(*tensors, i)) status = tow_context_status(f->ctx);
    if (status != TOW_OK) {
        tow_tensors_free(*tensors);
        *tensors = NULL;
    }
    return status;
}

/* Damage of data names the tensor; of the header, says what is wrong with it. */
static void safetensors_damage_is_named(void **state)
{
    fixture *f = *state;
    tow_tensors *tensors = sample(f), *back;
    unsigned char good[2048], bad[2048];
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    tow_tensors_free(tensors);
    const size_t size = read_bytes(f->path, good, sizeof good), data = 8 + (size_t)header_length(good);
    const struct {
        const char *text; /* in the header; NULL: in the data, */
        size_t offset;    /* from there */
        unsigned char flip;
        const char *message;
    } cases[] = {
        {NULL, 3, 0x10, "tensor 'c \"quoted\"'"}, /* 8-byte elements first */
        {NULL, 40 + 2, 0x01, "tensor 'params/a'"},
        {NULL, 40 + 24 + 1, 0x80, "tensor 'd/\xc3\xa9'"},
        {NULL, 40 + 28 + 3, 0x01, "tensor 'bf16'"},
        {NULL, 40 + 28 + 8, 0x01, "tensor 'b'"}, /* 1 becomes 0: still a boolean */
        {"\"step\":\"12\"", 8, 0x01, "the names, types and metadata"},
        {"\"step\":\"12\"", 1, 0x01, "the names, types and metadata"},
        {"\"tow.xxh3/b\"", 3, 0x01, "tensor 'b': it has no checksum"},
        {"\"tow.xxh3/b\"", 10, 0x04, "'f', which is not there"},
        {"\"tow.xxh3\"", 3, 0x01, "expected one, not none"},
        {"\"shape\":[0,4]", 11, 0x01, "the names, types and metadata"}, /* [0,5] has no more bytes */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(bad, good, size);
        const size_t at = (cases[i].text != NULL ? find_in_header(good, cases[i].text) : data) + cases[i].offset;
        bad[at] = (unsigned char)(bad[at] ^ cases[i].flip);
        write_bytes(f->path, bad, size);
        for (int map = 0; map < 2; map++) {
            assert_int_equal(map ? map_and_touch(f, &back) : tow_safetensors_read(f->ctx, f->path, &back),
                             TOW_BAD_FORMAT);
            assert_null(back);
            assert_message(f, f->path);
            assert_message(f, cases[i].message);
            assert_message(f, "use another copy");
        }
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

static tow_status read_safetensors(tow_context *ctx, const char *path, void **result)
{
    tow_tensors *tensors;
    tow_status status = tow_safetensors_read(ctx, path, &tensors);
    *result = tensors;
    tow_tensors_free(tensors);
    return status;
}

static void safetensors_damaged(void **state)
{
    fixture *f = *state;
    static const uint16_t halves[3] = {0x3fc0, 0x8000, 0x7f80};
    static const unsigned char bools[3] = {1, 0, 1};
    tow_array *x = array_of(f, tow_make_type(TOW_BF16, 1, (int64_t[]){3}), halves);
    tow_array *y = array_of(f, tow_make_type(TOW_BOOL, 2, (int64_t[]){3, 1}), bools);
    tow_tensors *tensors;
    assert_int_equal(tow_tensors_create(f->ctx, &tensors), TOW_OK);
    assert_int_equal(tow_tensors_add(tensors, "\"x\"", x), TOW_OK);
    assert_int_equal(tow_tensors_add(tensors, "y", y), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata(tensors, "note", "line\nbreak"), TOW_OK);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    tow_tensors_free(tensors);
    tow_array_release(x);
    tow_array_release(y);
    damage(f, read_safetensors, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(safetensors_round_trip),
        TEST(tensors_names_differ),
        TEST(safetensors_hostile_headers),
        TEST(foreign_tensors_can_be_left_alone),
        TEST(foreign_tensors_of_wrong_sizes),
        TEST(integers_of_16_bits),
        TEST(files_of_other_formats),
        TEST(safetensors_of_other_writers),
        TEST(safetensors_checksums_are_those_of_xxhash),
        TEST(safetensors_checksums_are_not_metadata),
        TEST(safetensors_damage_is_named),
        TEST(safetensors_header_length_beyond_the_file),
        TEST(safetensors_deep_json),
        TEST(safetensors_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
