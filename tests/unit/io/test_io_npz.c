/* .npz: round trips, archives damaged at every byte, hostile directories, failing allocations and system calls.
 * Archives of NumPy are read in test_io_golden.c.
 * Tests inflate.c, npz.c, stream.c, zip_read.c, zip_stream.c, zip_write.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <unistd.h>
#include <zlib.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/file_faults.h"
#include "tests/unit/support/io_files.h"

static void assert_sample(const fixture *f, const tow_tensors *back)
{
    tow_tensors *tensors = sample(f);
    assert_int_equal(tow_tensors_count(back), tow_tensors_count(tensors));
    for (size_t i = 0; i < tow_tensors_count(tensors); i++) {
        tow_array *array = tow_tensors_at(tensors, i);
        assert_string_equal(tow_tensors_name(back, i), tow_tensors_name(tensors, i));
        assert_array(tow_tensors_at(back, i), tow_array_type(array), tow_array_data(array));
    }
    tow_tensors_free(tensors);
}

static void write_sample(const fixture *f, bool compress)
{
    tow_tensors *tensors = sample(f);
    if (tow_npz_write(f->path, tensors, compress) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
    tow_tensors_free(tensors);
}

static void npz_round_trip(void **state)
{
    fixture *f = *state;
    for (int compress = 0; compress < 2; compress++) {
        tow_tensors *back;
        unsigned char first[4096], second[4096];
        write_sample(f, compress);
        const size_t size = read_bytes(f->path, first, sizeof first);
        if (tow_npz_read(f->ctx, f->path, &back) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
        assert_sample(f, back);
        assert_int_equal(tow_npz_write(f->path, back, compress), TOW_OK);
        assert_int_equal(read_bytes(f->path, second, sizeof second), size); /* no time, no chance */
        assert_memory_equal(first, second, size);
        tow_tensors_free(back);
    }
}

static void npz_of_nothing(void **state)
{
    fixture *f = *state;
    tow_tensors *tensors;
    assert_int_equal(tow_tensors_create(f->ctx, &tensors), TOW_OK);
    assert_int_equal(tow_npz_write(f->path, tensors, true), TOW_OK);
    tow_tensors_free(tensors);
    assert_int_equal(tow_npz_read(f->ctx, f->path, &tensors), TOW_OK);
    assert_int_equal(tow_tensors_count(tensors), 0);
    tow_tensors_free(tensors);
}

/* Longer than zlib's buffers on both sides, of numbers that repeat and of numbers that do not. */
static void npz_of_many_pieces(void **state)
{
    fixture *f = *state;
    enum {
        COUNT = 300001
    };
    tow_array *array;
    tow_tensors *tensors, *back;
    const tow_type type = tow_make_type(TOW_U32, 1, (int64_t[]){COUNT});
    assert_int_equal(tow_array_create(f->ctx, type, &array), TOW_OK);
    assert_int_equal(tow_tensors_create(f->ctx, &tensors), TOW_OK);
    uint32_t *data = tow_array_data(array), random = 1;
    for (int i = 0; i < COUNT; i++) data[i] = i < COUNT / 2 ? 7 : (random = random * 1664525 + 1013904223);
    assert_int_equal(tow_tensors_add(tensors, "many", array), TOW_OK);
    for (int compress = 0; compress < 2; compress++) {
        assert_int_equal(tow_npz_write(f->path, tensors, compress), TOW_OK);
        assert_int_equal(tow_npz_read(f->ctx, f->path, &back), TOW_OK);
        assert_array(tow_tensors_find(back, "many"), type, data);
        tow_tensors_free(back);
    }
    tow_tensors_free(tensors);
    tow_array_release(array);
}

static void npz_names(void **state)
{
    fixture *f = *state;
    const float x = 1;
    tow_array *array = array_of(f, tow_make_type(TOW_F32, 0, NULL), &x);
    tow_tensors *tensors;
    char *name = malloc(70000);
    assert_non_null(name);
    memset(name, 'n', 69999);
    name[69999] = '\0';
    assert_int_equal(tow_tensors_create(f->ctx, &tensors), TOW_OK);
    assert_int_equal(tow_tensors_add(tensors, name, array), TOW_OK);
    assert_int_equal(tow_npz_write(f->path, tensors, false), TOW_INVALID_ARGUMENT);
    assert_message(f, "expected names of at most 65535 bytes in a zip archive, found 70003");
    tow_tensors_free(tensors);
    assert_int_equal(tow_tensors_create(f->ctx, &tensors), TOW_OK);
    assert_int_equal(tow_tensors_add(tensors, "\xff", array), TOW_OK);
    assert_int_equal(tow_npz_write(f->path, tensors, false), TOW_INVALID_ARGUMENT);
    assert_message(f, "UTF-8");
    assert_int_equal(access(f->path, F_OK), -1);
    tow_tensors_free(tensors);
    tow_array_release(array);
    free(name);
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

static tow_status read_npz(tow_context *ctx, const char *path, void **result)
{
    tow_tensors *tensors;
    tow_status status = tow_npz_read(ctx, path, &tensors);
    *result = tensors;
    tow_tensors_free(tensors);
    return status;
}

static void npz_damaged(void **state)
{
    fixture *f = *state;
    static const float x[3] = {1, 2, 3};
    for (int compress = 0; compress < 2; compress++) {
        tow_array *array = array_of(f, tow_make_type(TOW_F32, 1, (int64_t[]){3}), x);
        tow_tensors *tensors;
        assert_int_equal(tow_tensors_create(f->ctx, &tensors), TOW_OK);
        assert_int_equal(tow_tensors_add(tensors, "x", array), TOW_OK);
        assert_int_equal(tow_npz_write(f->path, tensors, compress), TOW_OK);
        tow_tensors_free(tensors);
        tow_array_release(array);
        damage(f, read_npz, false);
    }
}

typedef struct archive {
    unsigned char bytes[8192];
    size_t size, directory, members, hole;
    unsigned char entries[2048];
} archive;

static void put(unsigned char *bytes, size_t *at, int size, uint64_t value)
{
    for (int i = 0; i < size; i++, value >>= 8) bytes[(*at)++] = (unsigned char)value;
}

/* A member as other programs write it, with numbers of 32 bits. */
static void add_member(archive *a, const char *name, unsigned method, const void *data, size_t packed, size_t size,
                       uint32_t crc)
{
    const size_t header = a->size, length = strlen(name);
    const uint64_t common[] = {20, 0, method, 0, 0x21};
    put(a->bytes, &a->size, 4, 0x04034b50);
    for (int i = 0; i < 5; i++) put(a->bytes, &a->size, 2, common[i]);
    put(a->bytes, &a->size, 4, crc);
    put(a->bytes, &a->size, 4, packed);
    put(a->bytes, &a->size, 4, size);
    put(a->bytes, &a->size, 2, length);
    put(a->bytes, &a->size, 2, 0);
    memcpy(a->bytes + a->size, name, length);
    memcpy(a->bytes + a->size + length, data, packed);
    a->size += length + packed;
    put(a->entries, &a->directory, 4, 0x02014b50);
    put(a->entries, &a->directory, 2, 20);
    for (int i = 0; i < 5; i++) put(a->entries, &a->directory, 2, common[i]);
    put(a->entries, &a->directory, 4, crc);
    put(a->entries, &a->directory, 4, packed);
    put(a->entries, &a->directory, 4, size);
    put(a->entries, &a->directory, 2, length);
    put(a->entries, &a->directory, 8, 0);
    put(a->entries, &a->directory, 4, 0);
    put(a->entries, &a->directory, 4, header);
    memcpy(a->entries + a->directory, name, length);
    a->directory += length;
    a->members++;
}

static void write_archive(const fixture *f, archive *a, const char *comment)
{
    const size_t start = a->size;
    memcpy(a->bytes + a->size, a->entries, a->directory);
    a->size += a->directory + a->hole;
    put(a->bytes, &a->size, 4, 0x06054b50);
    put(a->bytes, &a->size, 4, 0);
    put(a->bytes, &a->size, 2, a->members);
    put(a->bytes, &a->size, 2, a->members);
    put(a->bytes, &a->size, 4, a->directory);
    put(a->bytes, &a->size, 4, start);
    put(a->bytes, &a->size, 2, strlen(comment));
    memcpy(a->bytes + a->size, comment, strlen(comment));
    write_bytes(f->path, a->bytes, a->size + strlen(comment));
}

/* Data of a .npy of booleans. */
static size_t npy_bytes(unsigned char *bytes, const char *header, const void *data, size_t size)
{
    const size_t length = strlen(header);
    memcpy(bytes, "\x93NUMPY\1\0", 8);
    bytes[8] = (unsigned char)length;
    bytes[9] = 0;
    memcpy(bytes + 10, header, length);
    memcpy(bytes + 10 + length, data, size);
    return 10 + length + size;
}

static const char three_bytes[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }";

static void expect_refusal(const fixture *f, archive *a, tow_status status, const char *message)
{
    tow_tensors *tensors;
    write_archive(f, a, "");
    assert_int_equal(tow_npz_read(f->ctx, f->path, &tensors), status);
    assert_null(tensors);
    assert_message(f, f->path);
    assert_message(f, message);
}

static void npz_of_other_writers(void **state)
{
    fixture *f = *state;
    unsigned char npy[256];
    const size_t size = npy_bytes(npy, three_bytes, "\1\2\3", 3);
    const uint32_t crc = (uint32_t)crc32_z(0, npy, size);
    tow_tensors *tensors;
    archive a = {.size = 0};
    add_member(&a, "notes.txt", 0, "text", 4, 4, 0);
    add_member(&a, "a/b.npy", 0, npy, size, size, crc);
    add_member(&a, "empty/", 0, "", 0, 0, 0);
    write_archive(f, &a, "a comment with PK\5\6 in it");
    if (tow_npz_read(f->ctx, f->path, &tensors) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
    assert_int_equal(tow_tensors_count(tensors), 1);
    assert_array(tow_tensors_find(tensors, "a/b"), tow_make_type(TOW_U8, 1, (int64_t[]){3}), "\1\2\3");
    tow_tensors_free(tensors);
}

/* A member that Tow cannot read is an error for those who ask for it, and hides no other member. */
static void npz_members_that_cannot_be_read(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *header, *message;
    } cases[] = {
        {"{'descr': '<U5', 'fortran_order': False, 'shape': (3,), }", "found '<U5'"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", "found '|O'"},
        {"{'descr': '<c16', 'fortran_order': False, 'shape': (3,), }", "found '<c16'"},
        {"{'descr': [('x', '<f4'), ('y', '<f4')], 'fortran_order': False, 'shape': (3,), }", "structured"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 3), }", "at most 8 axes"},
    };
    unsigned char npy[256], bad[256];
    const size_t size = npy_bytes(npy, three_bytes, "\1\2\3", 3);
    const uint32_t crc = (uint32_t)crc32_z(0, npy, size);
    for (size_t i = 0; i < sizeof cases / sizeof *cases + 2; i++) {
        archive a = {.size = 0};
        tow_tensors *set;
        tow_array *array;
        const bool packed = i >= sizeof cases / sizeof *cases;
        const size_t bad_size = packed ? 7 : npy_bytes(bad, cases[i].header, "\1\2\3", 3);
        add_member(&a, "bad.npy", packed ? 12 : 0, bad, bad_size, bad_size, (uint32_t)crc32_z(0, bad, bad_size));
        if (i == sizeof cases / sizeof *cases) a.entries[8] = 1; /* encrypted */
        add_member(&a, "x.npy", 0, npy, size, size, crc);
        write_archive(f, &a, "");
        if (tow_npz_read(f->ctx, f->path, &set) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
        assert_int_equal(tow_tensors_count(set), 2);
        assert_array(tow_tensors_find(set, "x"), tow_make_type(TOW_U8, 1, (int64_t[]){3}), "\1\2\3");
        assert_int_equal(tow_tensors_type(set, 0).rank, -1);
        tow_context_clear_error(f->ctx);
        assert_int_equal(tow_tensors_get(set, "bad", &array), TOW_UNSUPPORTED);
        assert_message(f, "/bad.npy: ");
        assert_message(f, packed ? (a.entries[8] ? "encrypted" : "found method 12") : cases[i].message);
        assert_null(tow_tensors_find(set, "bad"));
        assert_int_equal(tow_tensors_get_with(set, "bad", TOW_F32, &array), TOW_UNSUPPORTED);
        tow_tensors_free(set);
    }
}

/* The directory and the local header each have the name; no checksum covers them. */
static void npz_flipped_names(void **state)
{
    fixture *f = *state;
    unsigned char npy[256], good[512];
    const size_t size = npy_bytes(npy, three_bytes, "\1\2\3", 3);
    archive a = {.size = 0};
    add_member(&a, "name.npy", 0, npy, size, size, (uint32_t)crc32_z(0, npy, size));
    const size_t names[] = {30, a.size + 46};
    write_archive(f, &a, "");
    const size_t whole = read_bytes(f->path, good, sizeof good);
    for (size_t i = 0; i < 2 * 8 * 8; i++) {
        tow_tensors *set;
        const size_t at = names[i / 64] + i % 64 / 8;
        good[at] ^= (unsigned char)(1 << i % 8);
        write_bytes(f->path, good, whole);
        assert_int_equal(tow_npz_read(f->ctx, f->path, &set), TOW_BAD_FORMAT);
        good[at] ^= (unsigned char)(1 << i % 8);
    }
}

static void npz_hostile(void **state)
{
    fixture *f = *state;
    unsigned char npy[256];
    const size_t size = npy_bytes(npy, three_bytes, "\1\2\3", 3);
    const uint32_t crc = (uint32_t)crc32_z(0, npy, size);
#define REFUSED(status, message, ...)                                                                                  \
    do {                                                                                                               \
        archive a = {.size = 0};                                                                                       \
        add_member(&a, __VA_ARGS__);                                                                                   \
        expect_refusal(f, &a, status, message);                                                                        \
    } while (0)
    REFUSED(TOW_BAD_FORMAT, "x.npy: the data have the CRC", "x.npy", 0, npy, size, size, crc + 1);
    REFUSED(TOW_BAD_FORMAT, "which cannot be", "x.npy", 0, npy, size, size + 1, crc);
    REFUSED(TOW_BAD_FORMAT, "which cannot be", "x.npy", 8, npy, size, 1 << 20, crc); /* more than deflate can do */
    REFUSED(TOW_BAD_FORMAT, "no stream of deflate", "x.npy", 8, "\7\7\7\7", 4, size, crc);
    REFUSED(TOW_BAD_FORMAT, "inflates to fewer bytes than it says", "x.npy", 8, "\3\0", 2, size, crc);
    REFUSED(TOW_BAD_FORMAT, "expected 3 bytes of data for u8[3], found 0", "x.npy", 0, npy, size - 3, size - 3,
            (uint32_t)crc32_z(0, npy, size - 3));
    REFUSED(TOW_BAD_FORMAT, "expected a .npy file", "x.npy", 0, "text", 4, 4, crc);
    REFUSED(TOW_BAD_FORMAT, "in UTF-8", "\xff.npy", 0, npy, size, size, crc);
#undef REFUSED
    archive none = {.size = 0}; /* fewer members than the directory has */
    add_member(&none, "x.npy", 0, npy, size, size, crc);
    none.members = 0;
    expect_refusal(f, &none, TOW_BAD_FORMAT, "more members in its directory than its end counts");
    archive hole = {.size = 0}; /* bytes between the directory and its end */
    add_member(&hole, "x.npy", 0, npy, size, size, crc);
    hole.hole = 7;
    expect_refusal(f, &hole, TOW_BAD_FORMAT, "a directory that does not reach to its end");
    archive a = {.size = 0};
    add_member(&a, "x.npy", 0, npy, size, size, crc);
    add_member(&a, "x.npy", 0, npy, size, size, crc);
    expect_refusal(f, &a, TOW_BAD_FORMAT, "x: a tensor of this name is there already");
    archive behind = {.size = 0};
    add_member(&behind, "x.npy", 0, npy, size, size, crc);
    behind.entries[42] = 0xff; /* where its local header begins */
    behind.entries[43] = 0x7f;
    expect_refusal(f, &behind, TOW_BAD_FORMAT, "behind the end of the file");
    archive shared = {.size = 0}; /* one member, listed often: more bytes than the file has */
    add_member(&shared, "x.npy", 0, npy, size, size, crc);
    for (int i = 0; i < 30; i++, shared.directory += 51) memcpy(shared.entries + shared.directory, shared.entries, 51);
    shared.members += 30;
    expect_refusal(f, &shared, TOW_BAD_FORMAT, "members with more bytes than it has");
    write_bytes(f->path, "text", 4);
    tow_tensors *tensors;
    assert_int_equal(tow_npz_read(f->ctx, f->path, &tensors), TOW_BAD_FORMAT);
    assert_message(f, "no end of its directory; is it whole?");
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static void npz_allocations_fail_in_turn(void **state)
{
    fixture *f = *state;
    for (int compress = 0; compress < 2; compress++) {
        counting c;
        const tow_context_options options = counting_options(&c, -1);
        tow_context *ctx;
        tow_tensors *tensors = NULL;
        write_sample(f, compress);
        assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
        tow_status status = TOW_OUT_OF_MEMORY;
        for (long n = 0, idle = c.blocks; status != TOW_OK; n++) {
            c.calls = 0;
            c.fail_at = n;
            status = tow_npz_read(ctx, f->path, &tensors);
            if (status == TOW_OK) break;
            assert_int_equal(status, TOW_OUT_OF_MEMORY);
            assert_null(tensors);
            assert_int_equal(c.blocks, idle);
        }
        status = TOW_OUT_OF_MEMORY;
        for (long n = 0, idle = c.blocks; status != TOW_OK; n++) {
            c.calls = 0;
            c.fail_at = n;
            status = tow_npz_write(f->path, tensors, compress);
            if (status != TOW_OK) assert_int_equal(status, TOW_OUT_OF_MEMORY);
            assert_int_equal(c.blocks, idle);
        }
        c.fail_at = -1;
        tow_tensors_free(tensors);
        tow_context_free(ctx);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
    }
}

static size_t count_files(const fixture *f)
{
    size_t n = 0;
    DIR *directory = opendir(f->directory);
    assert_non_null(directory);
    while (readdir(directory)) n++;
    closedir(directory);
    return n - 2;
}

/* The file is the old one or the new one, whatever fails; half reads and writes go on. */
static void npz_system_calls_fail_in_turn(void **state)
{
    fixture *f = *state;
    for (int compress = 0; compress < 2; compress++) {
        tow_tensors *tensors = sample(f), *back;
        f->ctx->file_calls = &faulty;
        for (long n = 0;; n++) {
            plan_fault(-1, 0);
            write_bytes(f->path, "old", 3);
            plan_fault(n, ENOSPC);
            const tow_status status = tow_npz_write(f->path, tensors, compress);
            const bool failed = faults.failed != NULL, renamed = faults.renamed;
            plan_fault(-1, 0);
            unsigned char bytes[4];
            if (!renamed) assert_int_equal(read_bytes(f->path, bytes, 4), 3);
            if (renamed) assert_int_equal(tow_npz_read(f->ctx, f->path, &back), TOW_OK);
            if (renamed) tow_tensors_free(back);
            assert_true(renamed || status == TOW_IO_ERROR);
            if (!failed) break;
        }
        for (long n = 0;; n++) {
            plan_fault(n, EIO);
            const tow_status status = tow_npz_read(f->ctx, f->path, &back);
            if (status == TOW_OK) assert_sample(f, back);
            if (status != TOW_OK) assert_int_equal(status, TOW_IO_ERROR);
            assert_true((status == TOW_OK) == (back != NULL));
            tow_tensors_free(back);
            if (!faults.failed) break;
        }
        plan_fault(-1, HALF);
        assert_int_equal(tow_npz_write(f->path, tensors, compress), TOW_OK);
        assert_int_equal(tow_npz_read(f->ctx, f->path, &back), TOW_OK);
        assert_sample(f, back);
        tow_tensors_free(back);
        tow_tensors_free(tensors);
        f->ctx->file_calls = NULL;
        tow_tensors *again = sample(f);
        assert_int_equal(tow_npz_write(f->path, again, compress), TOW_OK); /* clears up what unlink left */
        tow_tensors_free(again);
        assert_int_equal(count_files(f), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(npz_round_trip),
        TEST(npz_of_nothing),
        TEST(npz_of_many_pieces),
        TEST(npz_names),
        TEST(npz_damaged),
        TEST(npz_of_other_writers),
        TEST(npz_members_that_cannot_be_read),
        TEST(npz_flipped_names),
        TEST(npz_hostile),
        TEST(npz_allocations_fail_in_turn),
        TEST(npz_system_calls_fail_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
