/* GGUF files that llama.cpp's package gguf wrote (tests/oracle/gguf_golden.py): every type of tensors and of metadata.
 * Files that Tow writes have their bytes. Tests stored.c, gguf_types.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "src/io/tensors.h"
#include "tests/unit/support/io_files.h"
#include "tow/gguf.h"

#define FILES TOW_TEST_DATA "/oracle/golden/gguf/"

static tow_tensors *read_set(const fixture *f, tow_status (*read)(tow_context *, const char *, tow_tensors **),
                             const char *path)
{
    tow_tensors *tensors;
    if (read(f->ctx, path, &tensors) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
    return tensors;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void tensors_of_every_type(void **state)
{
    fixture *f = *state;
    tow_tensors *expected = read_set(f, tow_safetensors_read, FILES "types.safetensors");
    tow_tensors *found = read_set(f, tow_gguf_mmap, FILES "types.gguf");
    tow_array *array;
    assert_int_equal(tow_tensors_count(found), tow_tensors_count(expected) + 1);
    for (size_t i = 0; i < tow_tensors_count(expected); i++) {
        const char *name = tow_tensors_name(expected, i);
        tow_array *wanted = tow_tensors_at(expected, i);
        const tow_type type = tow_array_type(wanted);
        assert_int_equal(tow_tensors_get_with(found, name, type.dtype, &array), TOW_OK);
        assert_array(array, type, tow_array_data(wanted));
        tow_array_release(array);
    }
    assert_int_equal(tow_tensors_get(found, "bf16", &array), TOW_OK);
    assert_int_equal(tow_array_type(array).dtype, TOW_BF16);
    tow_array_release(array);
    assert_int_equal(tow_tensors_get(found, "q5_1", &array), TOW_UNSUPPORTED);
    assert_message(f, "tensor 'q5_1': expected F32, F16");
    assert_message(f, "found Q5_1");
    assert_int_equal(tow_tensors_stored_dtype(found, (size_t)tow__tensors_lookup(found, "q5_1")), 0);
    assert_int_equal(tow_tensors_stored_dtype(found, (size_t)tow__tensors_lookup(found, "q6_k")), TOW_Q6_K);
    tow_tensors_free(found);
    assert_int_equal(tow_gguf_read(f->ctx, FILES "types.gguf", &found), TOW_UNSUPPORTED);
    tow_tensors_free(expected);
}

/* Any range of elements, also one that begins or ends within a block. */
static void ranges_of_blocks(void **state)
{
    fixture *f = *state;
    static const int64_t ranges[][2] = {{0, 768}, {5, 1}, {31, 2}, {250, 300}, {767, 1}, {256, 256}, {33, 700}, {4, 0}};
    static const char *const names[] = {"q8_0", "q4_0", "q4_k", "q6_k"};
    tow_tensors *expected = read_set(f, tow_safetensors_read, FILES "types.safetensors");
    tow_tensors *found = read_set(f, tow_gguf_mmap, FILES "types.gguf");
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        const float *all = tow_array_data(tow_tensors_find(expected, names[n]));
        const ptrdiff_t index = tow__tensors_lookup(found, names[n]);
        float part[768];
        assert_true(index >= 0);
        for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
            const int64_t first = ranges[r][0], count = ranges[r][1];
            assert_int_equal(tow__tensors_read_elements(found, (size_t)index, first, count, part), TOW_OK);
            assert_memory_equal(part, all + first, (size_t)count * sizeof *part);
        }
    }
    tow_tensors_free(found);
    tow_tensors_free(expected);
}

static void metadata_of_every_type(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *key;
        tow_metadata_type type;
        int64_t integer;
        double number;
    } numbers[] = {
        {"t.u8", TOW_METADATA_U8, 200, 200},
        {"t.i8", TOW_METADATA_I8, -100, -100},
        {"t.u16", TOW_METADATA_U16, 60000, 60000},
        {"t.i16", TOW_METADATA_I16, -30000, -30000},
        {"t.u32", TOW_METADATA_U32, 4000000000, 4e9},
        {"t.i32", TOW_METADATA_I32, -2000000000, -2e9},
        {"t.f32", TOW_METADATA_F32, 0, (double)0.1F},
        {"t.bool", TOW_METADATA_BOOL, 1, 1},
        {"t.u64", TOW_METADATA_U64, -1, 18446744073709551616.0},
        {"t.i64", TOW_METADATA_I64, INT64_MIN, -9223372036854775808.0},
        {"t.f64", TOW_METADATA_F64, 0, 0.1},
    };
    tow_tensors *t = read_set(f, tow_gguf_mmap, FILES "types.gguf");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const tow_metadata_value v = tow_tensors_metadata_value(t, numbers[i].key);
        assert_int_equal(v.type, numbers[i].type);
        assert_true(v.integer == numbers[i].integer);
        assert_true(v.number == numbers[i].number);
    }
    assert_string_equal(tow_tensors_metadata(t, "t.string"), "gr\xc3\xb6\xc3\x9f"
                                                             "e");
    assert_null(tow_tensors_metadata(t, "t.u8"));
    const tow_metadata_value strings = tow_tensors_metadata_value(t, "t.strings");
    assert_int_equal(strings.element, TOW_METADATA_STRING);
    assert_int_equal(strings.count, 3);
    assert_string_equal(((const char *const *)strings.elements)[0], "");
    assert_string_equal(((const char *const *)strings.elements)[1], "a");
    const tow_metadata_value ints = tow_tensors_metadata_value(t, "t.ints");
    assert_int_equal(ints.element, TOW_METADATA_I32);
    assert_int_equal(((const int32_t *)ints.elements)[1], -2);
    const tow_metadata_value floats = tow_tensors_metadata_value(t, "t.floats");
    assert_int_equal(floats.count, 2);
    assert_true(((const float *)floats.elements)[1] == -1.5F);
    const tow_metadata_value bools = tow_tensors_metadata_value(t, "t.bools");
    assert_true(((const bool *)bools.elements)[2] && !((const bool *)bools.elements)[1]);
    assert_string_equal(tow_tensors_metadata_key(t, 0), "general.architecture");
    assert_string_equal(tow_tensors_metadata_key(t, 16), "t.bools");
    assert_null(tow_tensors_metadata_key(t, 17));
    assert_int_equal(tow_tensors_metadata_value(t, "none").type, TOW_METADATA_NONE);
    tow_tensors_free(t);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void assert_same_files(const char *ours, const char *theirs)
{
    static unsigned char a[1 << 14], b[1 << 14];
    const size_t size = read_bytes(theirs, b, sizeof b);
    assert_int_equal(read_bytes(ours, a, sizeof a), size);
    for (size_t i = 0; i < size; i++)
        if (a[i] != b[i]) fail_msg("%s: byte %zu is %02x, expected %02x", theirs, i, a[i], b[i]);
}

static void bytes_of_every_type(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *name;
        tow_gguf_type type;
    } types[] = {{"f32", TOW_GGUF_F32},   {"f16", TOW_GGUF_F16},   {"bf16", TOW_GGUF_BF16},
                 {"q8_0", TOW_GGUF_Q8_0}, {"q4_0", TOW_GGUF_Q4_0}, {"f32", TOW_GGUF_AS_IT_IS}};
    static const char *const names[] = {"matrix", "norm", "rest"};
    static const char *const tokens[] = {"a", "bc"};
    tow_tensors *read = read_set(f, tow_safetensors_read, FILES "numbers.safetensors"), *t;
    assert_int_equal(tow_tensors_create(f->ctx, &t), TOW_OK);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(tow_tensors_add(t, names[i], tow_tensors_find(read, names[i])), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata(t, "general.architecture", "gpt2"), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata_value(t, "gpt2.block_count",
                                                    (tow_metadata_value){.type = TOW_METADATA_U32, .integer = 3}),
                     TOW_OK);
    assert_int_equal(tow_tensors_set_metadata_value(t, "tokenizer.ggml.tokens",
                                                    (tow_metadata_value){.type = TOW_METADATA_ARRAY,
                                                                         .element = TOW_METADATA_STRING,
                                                                         .count = 2,
                                                                         .elements = tokens}),
                     TOW_OK);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char theirs[256];
        snprintf(theirs, sizeof theirs, FILES "numbers_%s.gguf", types[i].name);
        if (tow_gguf_write(f->path, t, &TOW_GGUF_WRITE_OPTIONS(.type = types[i].type)) != TOW_OK)
            fail_msg("%s", tow_context_error(f->ctx));
        assert_same_files(f->path, theirs);
    }
    tow_tensors_free(t);
    tow_tensors_free(read);
}

/* A mapped file is written with its own bytes, blocks included. */
static void a_copy_has_the_bytes(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"f32", "f16", "bf16", "q8_0", "q4_0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        snprintf(path, sizeof path, FILES "numbers_%s.gguf", names[i]);
        tow_tensors *t = read_set(f, tow_gguf_mmap, path);
        if (tow_gguf_write(f->path, t, NULL) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
        assert_same_files(f->path, path);
        tow_tensors_free(t);
    }
}

/* ---- few bits ---------------------------------------------------------------------------------------------------- */

/* Blocks of a mapped file are handed out untouched, and written as they are; others are made of the numbers. */
static void arrays_of_blocks(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *name;
        tow_dtype dtype;
        tow_gguf_type type;
    } kinds[] = {{"q8_0", TOW_Q8_0, TOW_GGUF_Q8_0}, {"q4_0", TOW_Q4_0, TOW_GGUF_Q4_0}};
    static const char *const names[] = {"matrix", "norm", "rest"};
    for (size_t k = 0; k < 2; k++) {
        char path[256];
        snprintf(path, sizeof path, FILES "numbers_%s.gguf", kinds[k].name);
        tow_tensors *file = read_set(f, tow_gguf_mmap, path),
                    *plain = read_set(f, tow_safetensors_read, FILES "numbers.safetensors"), *t;
        tow_array *blocks, *made, *none;
        assert_int_equal(tow_tensors_get_with(file, "matrix", kinds[k].dtype, &blocks), TOW_OK);
        assert_true(tow_type_equal(tow_array_type(blocks), tow_make_type(kinds[k].dtype, 2, (int64_t[]){6, 3})));
        assert_int_equal(tow_tensors_get_with(plain, "matrix", kinds[k].dtype, &made), TOW_OK);
        assert_int_equal(tow_tensors_stored_dtype(file, 0), kinds[k].dtype);
        assert_int_equal(tow_tensors_stored_dtype(file, 1), TOW_F32);
        assert_int_equal(tow_tensors_stored_dtype(file, 3), 0);
        assert_int_equal(tow_tensors_stored_dtype(plain, 0), TOW_F32);
        assert_array(made, tow_array_type(blocks), tow_array_data(blocks));
        assert_int_equal(tow_tensors_get_with(plain, "rest", kinds[k].dtype, &none), TOW_TYPE_MISMATCH);
        assert_message(f, "a multiple of 32 on the last axis");
        assert_int_equal(tow_tensors_create(f->ctx, &t), TOW_OK);
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(tow_tensors_add(t, names[i], i == 0 ? blocks : tow_tensors_find(plain, names[i])), TOW_OK);
        for (size_t i = 0; tow_tensors_metadata_key(file, i); i++) {
            const char *key = tow_tensors_metadata_key(file, i);
            assert_int_equal(tow_tensors_set_metadata_value(t, key, tow_tensors_metadata_value(file, key)), TOW_OK);
        }
        for (int as_they_are = 0; as_they_are < 2; as_they_are++) {
            const tow_gguf_type type = as_they_are ? TOW_GGUF_AS_IT_IS : kinds[k].type;
            if (tow_gguf_write(f->path, t, &TOW_GGUF_WRITE_OPTIONS(.type = type)) != TOW_OK)
                fail_msg("%s", tow_context_error(f->ctx));
            assert_same_files(f->path, path);
        }
        tow_array_release(blocks);
        tow_array_release(made);
        tow_tensors_free(t);
        tow_tensors_free(plain);
        tow_tensors_free(file);
    }
}

/* Blocks of 256 numbers of a mapped file are handed out untouched, in place, and written as they are. */
static void arrays_of_large_blocks(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *name;
        tow_dtype dtype;
        int64_t bytes;
    } kinds[] = {{"q4_k", TOW_Q4_K, 144}, {"q6_k", TOW_Q6_K, 210}};
    tow_tensors *file = read_set(f, tow_gguf_mmap, FILES "types.gguf"), *t, *again;
    tow_tensors *numbers = read_set(f, tow_safetensors_read, FILES "types.safetensors");
    tow_array *blocks, *copy, *wide, *none;
    for (size_t k = 0; k < 2; k++) {
        assert_int_equal(tow_tensors_get_with(file, kinds[k].name, kinds[k].dtype, &blocks), TOW_OK);
        assert_true(tow_type_equal(tow_array_type(blocks), tow_make_type(kinds[k].dtype, 2, (int64_t[]){3, 1})));
        assert_int_equal(tow_type_bytes(tow_array_type(blocks)), 3 * kinds[k].bytes);
        const ptrdiff_t index = tow__tensors_lookup(file, kinds[k].name);
        assert_ptr_equal(tow_array_data(blocks), tow__tensors_mapped(file, (size_t)index, kinds[k].dtype));
        assert_int_equal(tow_array_convert(blocks, TOW_F32, &wide), TOW_OK);
        assert_array(wide, tow_array_type(wide), tow_array_data(tow_tensors_find(numbers, kinds[k].name)));
        assert_int_equal(tow_tensors_get_with(file, "f32", kinds[k].dtype, &none), TOW_TYPE_MISMATCH);
        assert_message(f, "a multiple of 256 on the last axis");
        assert_int_equal(tow_tensors_create(f->ctx, &t), TOW_OK);
        assert_int_equal(tow_tensors_add(t, "w", blocks), TOW_OK);
        assert_int_equal(tow_tensors_set_metadata(t, "general.architecture", "gpt2"), TOW_OK);
        if (tow_gguf_write(f->path, t, &TOW_GGUF_WRITE_OPTIONS(.type = TOW_GGUF_F16)) != TOW_OK)
            fail_msg("%s", tow_context_error(f->ctx));
        again = read_set(f, tow_gguf_mmap, f->path);
        assert_int_equal(tow_tensors_get_with(again, "w", kinds[k].dtype, &copy), TOW_OK);
        assert_array(copy, tow_array_type(blocks), tow_array_data(blocks));
        tow_array_release(blocks), tow_array_release(copy), tow_array_release(wide);
        tow_tensors_free(again), tow_tensors_free(t);
    }
    tow_tensors_free(numbers), tow_tensors_free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tensors_of_every_type), TEST(ranges_of_blocks), TEST(metadata_of_every_type), TEST(bytes_of_every_type),
        TEST(a_copy_has_the_bytes),  TEST(arrays_of_blocks), TEST(arrays_of_large_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
