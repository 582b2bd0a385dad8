/* Helpers of the tests of .npy and safetensors: a directory of its own for each test, bytes of files, arrays and a list
 * of tensors of every kind. A test program includes it once, after cmocka. */
#ifndef TOW_TESTS_IO_FILES_H
#define TOW_TESTS_IO_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/directories.h"
#include "tow/gguf.h"
#include "tow/io.h"

typedef struct fixture {
    tow_context *ctx;
    char directory[64];
    char path[96];
} fixture;

static inline int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (f == NULL) return -1;
    strcpy(f->directory, "/tmp/tow-test-io-XXXXXX");
    if (mkdtemp(f->directory) == NULL || tow_context_create(NULL, &f->ctx) != TOW_OK) return -1;
    snprintf(f->path, sizeof f->path, "%s/file", f->directory);
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    fixture *f = *state;
    int failed = remove_directory(f->directory);
    tow_context_free(f->ctx);
    free(f);
    return failed;
}

static inline void write_bytes(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline size_t read_bytes(const char *path, unsigned char *data, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(data, 1, capacity, file);
    fclose(file);
    return n;
}

static inline void assert_message(const fixture *f, const char *part)
{
    const char *text = tow_context_error(f->ctx);
    if (strstr(text, part) == NULL) fail_msg("expected a message with \"%s\", found \"%s\"", part, text);
}

static inline tow_metadata_value integer(tow_metadata_type type, int64_t value)
{
    return (tow_metadata_value){.type = type, .integer = value};
}

static inline tow_array *array_of(const fixture *f, tow_type type, const void *data)
{
    tow_array *array = NULL;
    assert_int_equal(tow_array_from_data(f->ctx, type, data, &array), TOW_OK);
    return array;
}

/* Names that need escapes and UTF-8, every element type, a scalar, an empty array, metadata. */
static inline tow_tensors *sample(const fixture *f)
{
    tow_tensors *tensors;
    static const float a[6] = {1, 2, 3, 4, 5, 6};
    static const unsigned char b[3] = {1, 0, 1};
    static const double c[2] = {0.1, -7};
    static const int32_t d = -5;
    static const uint16_t halves[3] = {0x3fc0, 0x8000, 0x7f80};
    static const int8_t bytes[1] = {-128};
    static const uint64_t large[2] = {UINT64_MAX, 1};
    assert_int_equal(tow_tensors_create(f->ctx, &tensors), TOW_OK);
    tow_array *arrays[] = {array_of(f, tow_make_type(TOW_F32, 2, (int64_t[]){2, 3}), a),
                           array_of(f, tow_make_type(TOW_BOOL, 1, (int64_t[]){3}), b),
                           array_of(f, tow_make_type(TOW_F64, 1, (int64_t[]){2}), c),
                           array_of(f, tow_make_type(TOW_I32, 0, NULL), &d),
                           array_of(f, tow_make_type(TOW_U32, 2, (int64_t[]){0, 4}), ""),
                           array_of(f, tow_make_type(TOW_BF16, 1, (int64_t[]){3}), halves),
                           array_of(f, tow_make_type(TOW_F16, 1, (int64_t[]){1}), halves),
                           array_of(f, tow_make_type(TOW_I8, 1, (int64_t[]){1}), bytes),
                           array_of(f, tow_make_type(TOW_U8, 0, NULL), bytes),
                           array_of(f, tow_make_type(TOW_I64, 1, (int64_t[]){1}), large),
                           array_of(f, tow_make_type(TOW_U64, 1, (int64_t[]){2}), large)};
    static const char *const names[] = {"params/a", "b",  "c \"quoted\"", "d/\xc3\xa9", "empty", "bf16",
                                        "f16",      "i8", "u8",           "i64",        "u64"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(tow_tensors_add(tensors, names[i], arrays[i]), TOW_OK);
        tow_array_release(arrays[i]);
    }
    assert_int_equal(tow_tensors_set_metadata(tensors, "step", "1"), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata(tensors, "note", "line\nbreak"), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata(tensors, "step", "12"), TOW_OK);
    return tensors;
}

static inline void assert_array(const tow_array *array, tow_type type, const void *data)
{
    assert_non_null(array);
    assert_true(tow_type_equal(tow_array_type(array), type));
    assert_memory_equal(tow_array_data(array), data, tow_type_bytes(type));
}

typedef tow_status (*reader)(tow_context *ctx, const char *path, void **result);

/* Every truncation is an error; every flipped bit gives a status and no crash (sanitizers watch for leaks), and is
 * found if the file has checksums. */
static inline void damage(const fixture *f, reader read, bool checksums)
{
    unsigned char good[4096], bad[4096];
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
            if (checksums && status == TOW_OK) fail_msg("bit %d of byte %zu was flipped and not found", bit, n);
            assert_true(status == TOW_OK || status == TOW_BAD_FORMAT || status == TOW_UNSUPPORTED);
        }
}

/* Each test has a context and a directory. */
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

#endif
