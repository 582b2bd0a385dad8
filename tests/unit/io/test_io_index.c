/* Several safetensors files with an index, mapped files whose data are left alone, and conversion on request.
 * Tests safetensors_index.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/file_faults.h"
#include "tests/unit/support/io_files.h"

static void path_of(const fixture *f, const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", f->directory, name);
}

/* A file of tensors "NAME" f32[2] of the number, with metadata. */
static void write_shard(const fixture *f, const char *file, size_t n, const char *const *names, float number)
{
    char path[128];
    tow_tensors *tensors;
    const float x[2] = {number, -number};
    tow_array *array = array_of(f, tow_make_type(TOW_F32, 1, (int64_t[]){2}), x);
    path_of(f, file, path);
    assert_int_equal(tow_tensors_create(f->ctx, &tensors), TOW_OK);
    for (size_t i = 0; i < n; i++) assert_int_equal(tow_tensors_add(tensors, names[i], array), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata(tensors, "format", file), TOW_OK);
    assert_int_equal(tow_safetensors_write(path, tensors), TOW_OK);
    tow_tensors_free(tensors);
    tow_array_release(array);
}

static void write_shards(const fixture *f)
{
    write_shard(f, "one", 2, (const char *const[]){"a", "b"}, 1);
    write_shard(f, "two", 2, (const char *const[]){"c", "unlisted"}, 2);
}

static const char good[] =
    "{\"metadata\": {\"total_size\": 24, \"list\": [1.5e3, true, null, {}], \"text\": \"\\u00e9\"},\n"
    " \"weight_map\": {\"a\": \"one\", \"c\": \"two\", \"b\": \"one\"}}\n";

static void an_index_joins_files(void **state)
{
    fixture *f = *state;
    char path[128];
    path_of(f, "model.safetensors.index.json", path);
    write_shards(f);
    write_bytes(path, good, sizeof good - 1);
    for (int map = 0; map < 2; map++) {
        tow_tensors *tensors;
        if ((map ? tow_safetensors_mmap : tow_safetensors_read)(f->ctx, path, &tensors) != TOW_OK)
            fail_msg("%s", tow_context_error(f->ctx));
        static const char *const names[] = {"a", "b", "c", "unlisted"};
        assert_int_equal(tow_tensors_count(tensors), 4);
        for (size_t i = 0; i < 4; i++) {
            const float want = i < 2 ? 1 : 2;
            assert_string_equal(tow_tensors_name(tensors, i), names[i]);
            assert_true(*(const float *)tow_array_data(tow_tensors_find(tensors, names[i])) == want);
        }
        assert_string_equal(tow_tensors_metadata(tensors, "format"), "one");
        tow_tensors_free(tensors);
    }
}

/* If two files hold a name, the index decides, whatever their order. */
static void an_index_chooses_between_copies(void **state)
{
    fixture *f = *state;
    char path[128];
    path_of(f, "index", path);
    write_shard(f, "one", 2, (const char *const[]){"a", "b"}, 1);
    write_shard(f, "two", 2, (const char *const[]){"a", "b"}, 2);
    static const char *const texts[] = {"{\"weight_map\": {\"a\": \"one\", \"b\": \"two\"}}",
                                        "{\"weight_map\": {\"b\": \"two\", \"a\": \"one\"}}"};
    for (size_t i = 0; i < 4; i++) {
        tow_tensors *tensors;
        write_bytes(path, texts[i % 2], strlen(texts[i % 2]));
        if ((i < 2 ? tow_safetensors_mmap : tow_safetensors_read)(f->ctx, path, &tensors) != TOW_OK)
            fail_msg("%s", tow_context_error(f->ctx));
        assert_int_equal(tow_tensors_count(tensors), 2);
        assert_true(*(const float *)tow_array_data(tow_tensors_find(tensors, "a")) == 1);
        assert_true(*(const float *)tow_array_data(tow_tensors_find(tensors, "b")) == 2);
        tow_tensors_free(tensors);
    }
}

static void bad_indices(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *text;
        tow_status status;
        const char *message;
    } cases[] = {
        {"{\"weight_map\": {\"a\": \"three\"}}", TOW_IO_ERROR, "/three: cannot open"},
        {"{\"weight_map\": {\"a\": \"two\"}}", TOW_BAD_FORMAT, "expected the tensor 'a' in "},
        {"{\"weight_map\": {\"a\": \"two\", \"b\": \"one\"}}", TOW_BAD_FORMAT, "/two, found it in "},
        {"{\"weight_map\": {\"x\": \"one\"}}", TOW_BAD_FORMAT, "found it nowhere"},
        {"{\"weight_map\": {\"a\": \"../one\"}}", TOW_BAD_FORMAT, "a file beside the index, found '../one'"},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", TOW_BAD_FORMAT, "a file beside the index"},
        {"{\"weight_map\": {\"a\": \"..\"}}", TOW_BAD_FORMAT, "a file beside the index"},
        {"{\"weight_map\": {\"a\": \"\"}}", TOW_BAD_FORMAT, "a file beside the index, found ''"},
        {"{\"weight_map\": {\"a\": \"same\"}, \"weight_map\": {}}", TOW_BAD_FORMAT, "duplicate weight_map"},
        {"{\"weight_map\": {\"a\": \"one\", \"a2\": \"same\"}}", TOW_BAD_FORMAT, "expected the tensor 'a2' in "},
        {"{\"weight_map\": {\"a\": \"one\", \"c\": \"two\", \"d\": \"three_of_it\"}}", TOW_BAD_FORMAT,
         "tensor 'unlisted': duplicate name, here and in a file before"},
        {"{\"weight_map\": {\"a\": \"one\", \"b\": \"one\", \"a\": \"same\"}}", TOW_BAD_FORMAT,
         "duplicate name 'a' in the index"},
        {"{\"weight_map\": {\"a\": 1}}", TOW_BAD_FORMAT, "the index is not valid JSON: expected a string"},
        {"{\"weight_map\": [\"a\"]}", TOW_BAD_FORMAT, "expected '{'"},
        {"{\"metadata\": {}, }", TOW_BAD_FORMAT, "expected a string"},
        {"{\"metadata\": {}}", TOW_BAD_FORMAT, "expected an index with a weight_map, found none"},
        {"{\"metadata\": tru}", TOW_BAD_FORMAT, "expected a value"},
        {"{\"weight_map\": {}} {}", TOW_BAD_FORMAT, "nothing behind the object"},
        {"{", TOW_BAD_FORMAT, "found the end"},
        {"{\"weight_map\": {\"index\": \"index\"}}", TOW_BAD_FORMAT, "is this a safetensors file?"}, /* itself */
    };
    char path[128];
    path_of(f, "index", path);
    write_shards(f);
    write_shard(f, "same", 1, (const char *const[]){"a"}, 3);
    write_shard(f, "three_of_it", 2, (const char *const[]){"d", "unlisted"}, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_tensors *tensors;
        write_bytes(path, cases[i].text, strlen(cases[i].text));
        assert_int_equal(tow_safetensors_read(f->ctx, path, &tensors), cases[i].status);
        assert_null(tensors);
        assert_message(f, f->directory);
        assert_message(f, cases[i].message);
    }
    char deep[200];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"m\":", 5);
    tow_tensors *tensors;
    write_bytes(path, deep, sizeof deep);
    assert_int_equal(tow_safetensors_read(f->ctx, path, &tensors), TOW_BAD_FORMAT);
    assert_message(f, "nested at most 32 deep");
}

static void allocations_fail_in_turn(void **state)
{
    fixture *f = *state;
    char path[128];
    counting c;
    const tow_context_options options = counting_options(&c, -1);
    tow_context *ctx;
    path_of(f, "index", path);
    write_shards(f);
    write_bytes(path, good, sizeof good - 1);
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    for (int map = 0; map < 2; map++) {
        const long idle = c.blocks;
        tow_status status = TOW_OUT_OF_MEMORY;
        for (long n = 0; status != TOW_OK; n++) {
            tow_tensors *tensors;
            tow_array *array = NULL;
            c.calls = 0;
            c.fail_at = n;
            status = (map ? tow_safetensors_mmap : tow_safetensors_read)(ctx, path, &tensors);
            if (status == TOW_OK) status = tow_tensors_get(tensors, "c", &array);
            tow_array_release(array);
            if (status == TOW_OK) status = tow_tensors_get_with(tensors, "a", TOW_F64, &array);
            if (status != TOW_OK) assert_int_equal(status, TOW_OUT_OF_MEMORY);
            tow_array_release(array);
            tow_tensors_free(tensors);
            assert_int_equal(c.blocks, idle);
        }
        c.fail_at = -1;
    }
    tow_context_free(ctx);
    assert_int_equal(c.blocks, 0);
}

/* ---- data that are left alone ------------------------------------------------------------------------------------ */

/* Damage of a tensor is found by who asks for it, and by nobody else; memory is taken for nothing but what was
 * asked. */
static void data_are_read_when_they_are_asked_for(void **state)
{
    fixture *f = *state;
    unsigned char bytes[4096];
    counting c;
    const tow_context_options options = counting_options(&c, -1);
    tow_context *ctx;
    tow_tensors *tensors;
    tow_array *array;
    write_shard(f, "file", 2, (const char *const[]){"a", "b"}, 1);
    const size_t size = read_bytes(f->path, bytes, sizeof bytes);
    bytes[size - 1] ^= 1; /* of b */
    write_bytes(f->path, bytes, size);
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    ctx->file_calls = &faulty;
    plan_fault(-1, 0);
    assert_int_equal(tow_safetensors_mmap(ctx, f->path, &tensors), TOW_OK);
    assert_in_range(faults.bytes_read, 1, size - 1); /* the length, the header's first byte again, the header */
    assert_int_equal(tow_tensors_type(tensors, 1).dims[0], 2);
    assert_int_equal(tow_tensors_type(tensors, 2).rank, -1);
    assert_non_null(tow_tensors_find(tensors, "a"));
    assert_null(tow_tensors_find(tensors, "b"));
    assert_int_equal(tow_tensors_get(tensors, "b", &array), TOW_BAD_FORMAT);
    assert_null(array);
    assert_non_null(strstr(tow_context_error(ctx), "tensor 'b': the data have the checksum"));
    assert_int_equal(tow_tensors_get_with(tensors, "b", TOW_F64, &array), TOW_BAD_FORMAT);
    assert_int_equal(tow_tensors_get(tensors, "none", &array), TOW_NOT_FOUND);
    assert_non_null(strstr(tow_context_error(ctx), "none: no such tensor; there are a b"));
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_BAD_FORMAT); /* which asks for all */
    tow_tensors_free(tensors);
    tow_context_free(ctx);
    assert_int_equal(c.blocks, 0);
}

/* ---- conversion -------------------------------------------------------------------------------------------------- */

static void tensors_convert_on_request(void **state)
{
    fixture *f = *state;
    tow_tensors *set = sample(f), *read, *mapped;
    assert_int_equal(tow_safetensors_write(f->path, set), TOW_OK);
    assert_int_equal(tow_safetensors_read(f->ctx, f->path, &read), TOW_OK);
    assert_int_equal(tow_safetensors_mmap(f->ctx, f->path, &mapped), TOW_OK);
    const tow_tensors *const sets[] = {set, read, mapped};
    static const float halves[3] = {1.5f, -0.0f, (float)INFINITY};
    static const double integer = -5, byte = -128;
    for (size_t s = 0; s < 3; s++) {
        tow_array *array;
        assert_int_equal(tow_tensors_get_with(sets[s], "bf16", TOW_F32, &array), TOW_OK);
        assert_array(array, tow_make_type(TOW_F32, 1, (int64_t[]){3}), halves);
        tow_array_release(array);
        assert_int_equal(tow_tensors_get_with(sets[s], "d/\xc3\xa9", TOW_F64, &array), TOW_OK);
        assert_array(array, tow_make_type(TOW_F64, 0, NULL), &integer);
        tow_array_release(array);
        assert_int_equal(tow_tensors_get_with(sets[s], "i8", TOW_F64, &array), TOW_OK);
        assert_array(array, tow_make_type(TOW_F64, 1, (int64_t[]){1}), &byte);
        tow_array_release(array);
        assert_int_equal(tow_tensors_get_with(sets[s], "b", TOW_I64, &array), TOW_OK);
        assert_array(array, tow_make_type(TOW_I64, 1, (int64_t[]){3}), (const int64_t[]){1, 0, 1});
        tow_array_release(array);
        assert_int_equal(tow_tensors_get_with(sets[s], "u64", TOW_I64, &array), TOW_TYPE_MISMATCH);
        assert_null(array);
        assert_message(f, "tensor 'u64': expected integers that fit i64, found 18446744073709551615 at element 0; load "
                          "it as u64");
        assert_int_equal(tow_tensors_get_with(sets[s], "bf16", TOW_I8, &array), TOW_TYPE_MISMATCH);
        assert_message(f, "bf16: expected i8, found bf16[3], which does not convert to it");
        assert_int_equal(tow_tensors_get_with(sets[s], "bf16", (tow_dtype)-1, &array), TOW_INVALID_ARGUMENT);
        assert_int_equal(tow_tensors_get_with(sets[s], "bf16", TOW_BF16, &array), TOW_OK); /* no copy */
        assert_ptr_equal(array, tow_tensors_find(sets[s], "bf16"));
        tow_array_release(array);
    }
    tow_tensors_free(set);
    tow_tensors_free(read);
    tow_tensors_free(mapped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_index_joins_files),     TEST(an_index_chooses_between_copies),       TEST(bad_indices),
        TEST(allocations_fail_in_turn), TEST(data_are_read_when_they_are_asked_for), TEST(tensors_convert_on_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
