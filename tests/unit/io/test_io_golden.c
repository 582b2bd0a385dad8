/* Files that NumPy, ml_dtypes and safetensors wrote (tests/oracle/files_golden.py): every element type, by rows, by
 * columns and with the highest byte first, in archives, and in several files with an index. Files that Tow writes have
 * their bytes. Tests convert.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "tests/unit/support/io_files.h"

#define FILES TOW_TEST_DATA "/oracle/golden/files/"

enum {
    N = 6
};

/* The bits of the elements, as in the script. */
typedef struct expectation {
    tow_dtype dtype;
    uint64_t bits[N];
} expectation;
static const expectation expected[] = {
    {TOW_F32, {0, 0x80000000, 0x3FC00000, 0x7F800000, 1, 0xFF7FFFFF}},
    {TOW_F64, {0, UINT64_C(1) << 63, 0x3FF8000000000000, 0x7FF0000000000000, 1, 0xFFEFFFFFFFFFFFFF}},
    {TOW_BF16, {0, 0x8000, 0x3FC0, 0x7F80, 1, 0xFF7F}},
    {TOW_F16, {0, 0x8000, 0x3E00, 0x7C00, 1, 0xFBFF}},
    {TOW_I8, {0x80, 0xFF, 0, 1, 2, 0x7F}},
    {TOW_U8, {0, 1, 2, 3, 0xFE, 0xFF}},
    {TOW_I32, {0x80000000, 0xFFFFFFFF, 0, 1, 2, 0x7FFFFFFF}},
    {TOW_U32, {0, 1, 2, 3, 0xFFFFFFFE, 0xFFFFFFFF}},
    {TOW_I64, {UINT64_C(1) << 63, UINT64_MAX, 0, 1, (UINT64_C(1) << 53) + 1, INT64_MAX}},
    {TOW_U64, {0, 1, 2, 3, UINT64_C(1) << 63, UINT64_MAX}},
    {TOW_BOOL, {0, 1, 1, 0, 1, 0}},
};
enum {
    TYPES = sizeof expected / sizeof *expected
};

static void assert_expected(const tow_array *array, const expectation *e)
{
    unsigned char data[N * 8];
    const size_t size = tow_dtype_size(e->dtype);
    for (size_t i = 0; i < N; i++) memcpy(data + i * size, &e->bits[i], size); /* the low bytes come first */
    assert_array(array, tow_make_type(e->dtype, 2, (int64_t[]){2, 3}), data);
}

static bool is_there(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

static void npy_of_every_type(void **state)
{
    fixture *f = *state;
    static const char *const kinds[] = {"", "_columns", "_swapped"};
    size_t read = 0;
    for (size_t i = 0; i < TYPES; i++)
        for (size_t k = 0; k < 3; k++) {
            char path[256];
            snprintf(path, sizeof path, FILES "%s%s.npy", tow_dtype_name(expected[i].dtype), kinds[k]);
            if (k == 2 && !is_there(path)) continue;
            for (int map = 0; map < 2; map++) {
                tow_array *array;
                if ((map ? tow_npy_mmap : tow_npy_read)(f->ctx, path, &array) != TOW_OK)
                    fail_msg("%s", tow_context_error(f->ctx));
                assert_expected(array, &expected[i]);
                tow_array_release(array);
                read++;
            }
        }
    assert_int_equal(read, 2 * (2 * TYPES + 7));
}

static void npy_is_written_as_numpy_does(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < TYPES; i++) {
        char path[256];
        unsigned char theirs[512], ours[512];
        tow_array *array;
        snprintf(path, sizeof path, FILES "%s.npy", tow_dtype_name(expected[i].dtype));
        assert_int_equal(tow_npy_read(f->ctx, path, &array), TOW_OK);
        assert_int_equal(tow_npy_write(f->ctx, f->path, array), TOW_OK);
        const size_t size = read_bytes(path, theirs, sizeof theirs);
        assert_int_equal(read_bytes(f->path, ours, sizeof ours), size);
        assert_memory_equal(ours, theirs, size);
        tow_array_release(array);
    }
}

static void assert_set(const tow_tensors *tensors)
{
    assert_int_equal(tow_tensors_count(tensors), TYPES);
    for (size_t i = 0; i < TYPES; i++)
        assert_expected(tow_tensors_find(tensors, tow_dtype_name(expected[i].dtype)), &expected[i]);
}

static void archives(void **state)
{
    fixture *f = *state;
    static const char *const paths[] = {FILES "stored.npz", FILES "deflated.npz"};
    for (size_t p = 0; p < 2; p++) {
        tow_tensors *tensors;
        if (tow_npz_read(f->ctx, paths[p], &tensors) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
        assert_set(tensors);
        tow_tensors_free(tensors);
    }
}

static void safetensors_of_every_type(void **state)
{
    fixture *f = *state;
    static const char *const paths[] = {FILES "all.safetensors", FILES "model.safetensors.index.json"};
    for (size_t p = 0; p < 2; p++)
        for (int map = 0; map < 2; map++) {
            tow_tensors *tensors;
            if ((map ? tow_safetensors_mmap : tow_safetensors_read)(f->ctx, paths[p], &tensors) != TOW_OK)
                fail_msg("%s", tow_context_error(f->ctx));
            assert_set(tensors);
            assert_string_equal(tow_tensors_metadata(tensors, "format"), "np");
            assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK); /* one file of them */
            tow_tensors_free(tensors);
            assert_int_equal(tow_safetensors_read(f->ctx, f->path, &tensors), TOW_OK);
            assert_set(tensors);
            tow_tensors_free(tensors);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(npy_of_every_type),
        TEST(npy_is_written_as_numpy_does),
        TEST(archives),
        TEST(safetensors_of_every_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
