/* The memory that .npy and safetensors take: that of the context, in proportion to headers, once for data, none for
 * data that are mapped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "src/io/tensors.h"
#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/io_files.h"

/* Applications may give jansson an allocator of their own; no memory of it must reach another one, or the reverse. */
static void *refuse_memory(size_t size)
{
    (void)size;
    return NULL;
}
static void refuse_to_free(void *pointer) { assert_null(pointer); }

static void allocators_of_the_application(void **state)
{
    fixture *f = *state;
    json_malloc_t allocate;
    json_free_t release;
    tow_tensors *tensors = sample(f), *back = NULL;
    json_get_alloc_funcs(&allocate, &release);
    json_set_alloc_funcs(refuse_memory, refuse_to_free);
    const tow_status written = tow_safetensors_write(f->path, tensors);
    const tow_status read = written == TOW_OK ? tow_safetensors_read(f->ctx, f->path, &back) : written;
    json_set_alloc_funcs(allocate, release);
    assert_int_equal(written, TOW_OK);
    assert_int_equal(read, TOW_OK);
    tow_tensors_free(back);
    tow_tensors_free(tensors);
}

/* A file whose header is `count` times an entry, between begin and end, and has no data. */
static size_t write_header(const char *path, const char *begin, const char *entry, int count, const char *end)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    uint64_t length = 0;
    assert_int_equal(fwrite(&length, sizeof length, 1, file), 1);
    assert_true(fputs(begin, file) >= 0);
    for (int i = 0; i < count; i++) assert_true(fprintf(file, entry, i) > 0);
    assert_true(fputs(end, file) >= 0);
    length = (uint64_t)ftell(file) - 8;
    rewind(file);
    assert_int_equal(fwrite(&length, sizeof length, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    return (size_t)length;
}

/* Whatever a header holds, reading it takes at most seven times its length, all of the context's memory. */
static void headers_take_bounded_memory(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *begin, *entry, *end;
        tow_status status;
    } cases[] = {
        {"{\"-\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
         ",\"%x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}", "}", TOW_OK},
        {"{\"-\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
         ",\"%x\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,0]}", "}", TOW_BAD_FORMAT},
        {"{\"__metadata__\":{\"-\":\"\"", ",\"%x\":\"\"", "}}", TOW_BAD_FORMAT},
        {"{\"__metadata__\":{\"-\":\"\"", ",\"tow.xxh3/%x\":\"\"", "}}", TOW_BAD_FORMAT},
        {"{\"a\":{\"shape\":[0", ",%d", "]}}", TOW_BAD_FORMAT}, /* no dtype */
        {"{\"a\":", "{\"%x\":", "", TOW_BAD_FORMAT},
        {"{\"", "{%x", "\":1}", TOW_BAD_FORMAT},
        {"[", "[%x", "", TOW_BAD_FORMAT},
        {"{", "[%x", "", TOW_BAD_FORMAT},
    };
    counting c;
    tow_context_options options = counting_options(&c, -1);
    tow_context *ctx;
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const size_t length = write_header(f->path, cases[i].begin, cases[i].entry, 50000, cases[i].end);
        const size_t idle = c.bytes;
        tow_tensors *tensors;
        c.peak = idle;
        assert_int_equal(tow__safetensors_open(ctx, f->path, &tensors), cases[i].status);
        if (c.peak - idle > 7 * length + 4096)
            fail_msg("case %zu: a header of %zu bytes takes %zu", i, length, c.peak - idle);
        tow_tensors_free(tensors);
        assert_int_equal(c.bytes, idle);
    }
    tow_context_free(ctx);
    assert_int_equal(c.blocks, 0);
}

/* ---- files that are mapped --------------------------------------------------------------------------------------- */

/* Values, changes of the array that never reach the file, and replacement of the file, which never reaches the
 * array. */
static void mapped_files(void **state)
{
    fixture *f = *state;
    static const float x[6] = {1, 2, 3, 4, 5, 6}, other[6] = {0};
    tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){2, 3});
    tow_array *array = array_of(f, type, x), *zeros = array_of(f, type, other), *mapped, *row, *back;
    tow_tensors *tensors = sample(f), *set;
    assert_int_equal(tow_npy_write(f->ctx, f->path, array), TOW_OK);
    assert_int_equal(tow_npy_mmap(f->ctx, f->path, &mapped), TOW_OK);
    assert_memory_equal(tow_array_data(mapped), x, sizeof x);
    ((float *)tow_array_data(mapped))[0] = 7;
    assert_int_equal(tow_npy_read(f->ctx, f->path, &back), TOW_OK);
    assert_memory_equal(tow_array_data(back), x, sizeof x);
    assert_int_equal(tow_npy_write(f->ctx, f->path, zeros), TOW_OK);
    assert_memory_equal((float *)tow_array_data(mapped) + 1, x + 1, sizeof x - sizeof x[0]);
    assert_int_equal(tow_array_row(mapped, 1, &row), TOW_OK);
    tow_array_release(mapped); /* the row keeps the mapping */
    assert_memory_equal(tow_array_data(row), x + 3, 3 * sizeof x[0]);
    tow_array_release(row);

    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    assert_int_equal(tow_safetensors_mmap(f->ctx, f->path, &set), TOW_OK);
    assert_int_equal(tow_tensors_count(set), tow_tensors_count(tensors));
    for (size_t i = 0; i < tow_tensors_count(tensors); i++) {
        tow_array *a = tow_tensors_at(tensors, i), *b = tow_tensors_find(set, tow_tensors_name(tensors, i));
        assert_non_null(b);
        assert_true(tow_type_equal(tow_array_type(a), tow_array_type(b)));
        assert_memory_equal(tow_array_data(a), tow_array_data(b), tow_type_bytes(tow_array_type(a)));
    }
    assert_int_equal(tow_safetensors_write(f->path, set), TOW_OK); /* over the file that it is mapped from */
    tow_tensors_free(set);
    assert_int_equal(tow_safetensors_read(f->ctx, f->path, &set), TOW_OK);
    tow_tensors_free(set);
    tow_tensors_free(tensors);
    tow_array_release(array);
    tow_array_release(zeros);
    tow_array_release(back);
}

/* Odd lengths of headers put data where no float may be. */
static void mapped_data_that_are_not_aligned_are_copied(void **state)
{
    fixture *f = *state;
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    static const float x[2] = {1.5f, -2};
    for (size_t spaces = 0; spaces < 4; spaces++) {
        unsigned char bytes[256];
        const uint64_t length = sizeof header - 1 + spaces;
        memset(bytes, ' ', sizeof bytes);
        memcpy(bytes, &length, 8);
        memcpy(bytes + 8, header, sizeof header - 1);
        memcpy(bytes + 8 + length, x, sizeof x);
        write_bytes(f->path, bytes, 8 + (size_t)length + sizeof x);
        tow_tensors *set;
        assert_int_equal(tow_safetensors_mmap(f->ctx, f->path, &set), TOW_OK);
        assert_int_equal((uintptr_t)tow_array_data(tow_tensors_at(set, 0)) % sizeof(float), 0);
        assert_memory_equal(tow_array_data(tow_tensors_at(set, 0)), x, sizeof x);
        tow_tensors_free(set);
    }
}

/* Memory of the context: a mapped file takes none for its data, and data are read and converted without a second
 * copy. */
static void data_are_in_memory_once(void **state)
{
    fixture *f = *state;
    enum {
        N = 1 << 20,
        SLACK = 1 << 19
    };
    counting c;
    tow_context_options options = counting_options(&c, -1);
    tow_context *ctx;
    tow_array *array;
    tow_tensors *tensors;
    char npy[128];
    snprintf(npy, sizeof npy, "%s/npy", f->directory);
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    assert_int_equal(tow_array_create(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){2, N / 2}), &array), TOW_OK);
    assert_int_equal(tow_tensors_create(ctx, &tensors), TOW_OK);
    assert_int_equal(tow_tensors_add(tensors, "x", array), TOW_OK);
    const size_t bytes = N * sizeof(float), idle = c.peak = c.bytes;
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    assert_int_equal(tow_npy_write(ctx, npy, array), TOW_OK);
    assert_in_range(c.peak - idle, 0, SLACK);
    tow_tensors_free(tensors);
    tow_array_release(array);
    for (int map = 0; map < 2; map++) {
        const size_t before = c.peak = c.bytes;
        assert_int_equal((map ? tow_safetensors_mmap : tow_safetensors_read)(ctx, f->path, &tensors), TOW_OK);
        assert_in_range(c.peak - before, 0, (map ? 0 : bytes) + SLACK);
        tow_tensors_free(tensors);
        c.peak = c.bytes;
        assert_int_equal((map ? tow_npy_mmap : tow_npy_read)(ctx, npy, &array), TOW_OK);
        assert_in_range(c.peak - before, 0, (map ? 0 : bytes) + SLACK);
        tow_array_release(array);
        assert_int_equal(c.bytes, before);
    }
    tow_context_free(ctx);
    assert_int_equal(c.blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(allocators_of_the_application),
        TEST(headers_take_bounded_memory),
        TEST(mapped_files),
        TEST(mapped_data_that_are_not_aligned_are_copied),
        TEST(data_are_in_memory_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
