/* Models in several GGUF files: those that the package gguf wrote (tests/oracle/gguf_golden.py) are what one file is,
 * parts that are missing or of another model are refused. Tests gguf_split.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "src/io/tensors.h"
#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/file_faults.h"
#include "tests/unit/support/io_files.h"
#include "tow/gguf.h"

#define FILES TOW_TEST_DATA "/oracle/golden/gguf/"

typedef tow_status (*open_set)(tow_context *context, const char *path, tow_tensors **tensors);
static const open_set readers[] = {tow_gguf_read, tow_gguf_mmap};

static void copy_file(const char *from, const char *to)
{
    static unsigned char bytes[1 << 14];
    write_bytes(to, bytes, read_bytes(from, bytes, sizeof bytes));
}

/* DIRECTORY/model-00001-of-00003.gguf */
static void name_part(const fixture *f, int part, char path[128])
{
    snprintf(path, 128, "%s/model-%05d-of-00003.gguf", f->directory, part);
}

/* Copies part `from` of the golden files as part `to`. */
static void copy_part(const fixture *f, int from, int to)
{
    char golden[256], path[128];
    snprintf(golden, sizeof golden, FILES "split-%05d-of-00003.gguf", from);
    name_part(f, to, path);
    copy_file(golden, path);
}

static void refused(const fixture *f, const char *path, tow_status status, const char *message)
{
    tow_tensors *tensors;
    for (size_t i = 0; i < 2; i++) {
        tow_context_clear_error(f->ctx);
        const tow_status found = readers[i](f->ctx, path, &tensors);
        if (found != status) fail_msg("expected \"%s\", status %d: %s", message, found, tow_context_error(f->ctx));
        assert_null(tensors);
        assert_message(f, message);
    }
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void as_one_file(void **state)
{
    fixture *f = *state;
    tow_tensors *t, *one;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(readers[i](f->ctx, FILES "split-00001-of-00003.gguf", &t), TOW_OK);
        assert_int_equal(readers[i](f->ctx, FILES "numbers_q8_0.gguf", &one), TOW_OK);
        assert_int_equal(tow_tensors_count(t), 3);
        for (size_t k = 0; k < 3; k++) {
            tow_array *array = tow_tensors_at(one, k);
            assert_string_equal(tow_tensors_name(t, k), tow_tensors_name(one, k));
            assert_array(tow_tensors_at(t, k), tow_array_type(array), tow_array_data(array));
        }
        tow_tensors_free(one);
        tow_tensors_free(t);
    }
}

/* Mapped files are written as one, blocks as they are, with the metadata of a file that never was in parts. */
static void joined(void **state)
{
    fixture *f = *state;
    static unsigned char one[1 << 14], written[1 << 14];
    const size_t size = read_bytes(FILES "numbers_q8_0.gguf", one, sizeof one);
    tow_tensors *t;
    assert_int_equal(tow_gguf_mmap(f->ctx, FILES "split-00001-of-00003.gguf", &t), TOW_OK);
    assert_string_equal(tow_tensors_metadata_key(t, 2), "tokenizer.ggml.tokens");
    assert_null(tow_tensors_metadata_key(t, 3));
    assert_int_equal(tow_gguf_write(f->path, t, NULL), TOW_OK);
    assert_int_equal(read_bytes(f->path, written, sizeof written), size);
    assert_memory_equal(written, one, size);
    tow_tensors_free(t);
}

/* Each tensor is a part of its own mapped file, and lives as long as its array. */
static void mapped_in_place(void **state)
{
    fixture *f = *state;
    tow_tensors *t;
    tow_array *blocks, *norm;
    assert_int_equal(tow_gguf_mmap(f->ctx, FILES "split-00001-of-00003.gguf", &t), TOW_OK);
    const ptrdiff_t matrix = tow__tensors_lookup(t, "matrix"), rest = tow__tensors_lookup(t, "rest");
    assert_true(tow__tensors_have_view(t, (size_t)rest));
    assert_int_equal(tow_tensors_get_with(t, "matrix", TOW_Q8_0, &blocks), TOW_OK);
    assert_ptr_equal(tow_array_data(blocks), tow__tensors_mapped(t, (size_t)matrix, TOW_Q8_0));
    assert_int_equal(tow_tensors_get(t, "norm", &norm), TOW_OK);
    const void *mapped = tow__tensors_mapped(t, (size_t)tow__tensors_lookup(t, "norm"), TOW_F32);
    assert_ptr_equal(tow_array_data(norm), mapped);
    tow_tensors_free(t);
    assert_true(tow_array_data(norm) == mapped && ((const float *)mapped)[0] != 0);
    tow_array_release(blocks);
    tow_array_release(norm);
}

/* ---- parts that are others --------------------------------------------------------------------------------------- */

static void missing(void **state)
{
    fixture *f = *state;
    char first[128], second[128];
    name_part(f, 1, first);
    name_part(f, 2, second);
    copy_part(f, 1, 1);
    copy_part(f, 3, 3);
    refused(f, first, TOW_IO_ERROR, second);
    copy_part(f, 2, 2);
    refused(f, second, TOW_INVALID_ARGUMENT, "expected the first file of the model");
    assert_message(f, first);
    assert_message(f, "found file 2 of 3");
    copy_part(f, 1, 2);
    refused(f, first, TOW_BAD_FORMAT, "00002-of-00003.gguf: expected file 2 of 3, found that it is file 1 of 3");
    copy_part(f, 3, 2);
    refused(f, first, TOW_BAD_FORMAT, "expected file 2 of 3, found that it is file 3 of 3");
    copy_file(FILES "numbers_q8_0.gguf", second);
    refused(f, first, TOW_BAD_FORMAT, "expected file 2 of 3 of a model, found one without split.no and split.count");
    write_bytes(second, "GGUF", 4);
    refused(f, first, TOW_BAD_FORMAT, "00002-of-00003.gguf: expected 4 more bytes");
    copy_file(first, f->path);
    refused(f, f->path, TOW_BAD_FORMAT, "expected a name that ends with -00001-of-00003.gguf");
}

/* The part is what Tow's writer makes of these numbers and one tensor. */
static void write_part(const fixture *f, int part, const char *name, tow_metadata_value numbers[3])
{
    static const char *const keys[] = {"split.no", "split.count", "split.tensors.count"};
    char path[128];
    tow_tensors *t;
    tow_array *array = array_of(f, tow_make_type(TOW_F32, 1, (int64_t[]){2}), (float[]){1, (float)part});
    assert_int_equal(tow_tensors_create(f->ctx, &t), TOW_OK);
    assert_int_equal(tow_tensors_add(t, name, array), TOW_OK);
    for (int i = 0; i < 3; i++)
        if (numbers[i].type != TOW_METADATA_NONE)
            assert_int_equal(tow_tensors_set_metadata_value(t, keys[i], numbers[i]), TOW_OK);
    name_part(f, part, path);
    if (tow_gguf_write(path, t, NULL) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
    tow_tensors_free(t);
    tow_array_release(array);
}

static void write_parts(const fixture *f, const char *const names[3], int64_t count, int64_t tensors)
{
    for (int part = 1; part <= 3; part++)
        write_part(f, part, names[part - 1],
                   (tow_metadata_value[]){{.type = TOW_METADATA_U16, .integer = part - 1},
                                          {.type = TOW_METADATA_U16, .integer = part == 3 ? count : 3},
                                          {.type = TOW_METADATA_I32, .integer = tensors}});
}

static void wrong_counts(void **state)
{
    fixture *f = *state;
    char first[128];
    tow_tensors *t;
    name_part(f, 1, first);
    write_parts(f, (const char *const[]){"a", "b", "c"}, 3, 3);
    assert_int_equal(tow_gguf_mmap(f->ctx, first, &t), TOW_OK);
    assert_true(((float *)tow_array_data(tow_tensors_find(t, "c")))[1] == 3);
    tow_tensors_free(t);
    write_parts(f, (const char *const[]){"a", "b", "c"}, 3, 4);
    refused(f, first, TOW_BAD_FORMAT, "00001-of-00003.gguf: expected 4 tensors in 3 files, found 3");
    write_parts(f, (const char *const[]){"a", "b", "c"}, 4, 3);
    refused(f, first, TOW_BAD_FORMAT, "expected file 3 of 3, found that it is file 3 of 4");
    write_parts(f, (const char *const[]){"a", "b", "a"}, 3, 3);
    refused(f, first, TOW_BAD_FORMAT, "00003-of-00003.gguf: tensor 'a': duplicate name, here and in a file before");
    static const struct {
        tow_metadata_value count;
        const char *message; /* NULL: it is one file */
    } cases[] = {{{.type = TOW_METADATA_U16, .integer = 1}, NULL},
                 {{.type = TOW_METADATA_U16, .integer = 0}, NULL},
                 {{.type = TOW_METADATA_I32, .integer = -1}, "split.count: expected an integer, 0 to 99999"},
                 {{.type = TOW_METADATA_U64, .integer = INT64_MIN}, "split.count: expected an integer, 0 to 99999"},
                 {{.type = TOW_METADATA_F32, .number = 3}, "split.count: expected an integer"},
                 {{.type = TOW_METADATA_STRING, .text = "3"}, "split.count: expected an integer"},
                 {{.type = TOW_METADATA_U32, .integer = 2}, "expected a name that ends with -00001-of-00002.gguf"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_part(f, 1, "a", (tow_metadata_value[3]){[1] = cases[i].count});
        if (cases[i].message) {
            refused(f, first, TOW_BAD_FORMAT, cases[i].message);
        } else {
            assert_int_equal(tow_gguf_read(f->ctx, first, &t), TOW_OK);
            tow_tensors_free(t);
        }
    }
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static void allocations_fail_in_turn(void **state)
{
    (void)state;
    for (long n = 0;; n++) {
        counting c;
        tow_context_options options = counting_options(&c, n);
        tow_context *ctx;
        tow_tensors *tensors = NULL;
        if (tow_context_create(&options, &ctx) != TOW_OK) continue;
        const tow_status status = tow_gguf_read(ctx, FILES "split-00001-of-00003.gguf", &tensors);
        tow_tensors_free(tensors);
        assert_true(status == TOW_OK || status == TOW_OUT_OF_MEMORY);
        tow_context_free(ctx);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
        if (status == TOW_OK) break;
    }
}

static void system_calls_fail_in_turn(void **state)
{
    fixture *f = *state;
    tow_tensors *tensors;
    f->ctx->file_calls = &faulty;
    for (size_t i = 0; i < 2; i++)
        for (long n = 0;; n++) {
            plan_fault(n, EIO);
            const tow_status status = readers[i](f->ctx, FILES "split-00001-of-00003.gguf", &tensors);
            if (status != TOW_OK) assert_int_equal(status, TOW_IO_ERROR);
            assert_true((status == TOW_OK) == (tensors != NULL));
            tow_tensors_free(tensors);
            if (!faults.failed) break;
        }
    f->ctx->file_calls = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(as_one_file),
        TEST(joined),
        TEST(mapped_in_place),
        TEST(missing),
        TEST(wrong_counts),
        TEST(allocations_fail_in_turn),
        TEST(system_calls_fail_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
