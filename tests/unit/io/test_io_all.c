/* Files that processes write and read together. Tests safetensors_all.c, and what atomic_file.c does for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/io/tensors.h"
#include "tests/unit/support/file_faults.h"
#include "tests/unit/support/group_flight.h"
#include "tests/unit/support/io_files.h"
#include "tests/unit/support/shared_sets.h"

/* The task of the processes of a test. */
typedef struct job {
    const char *path;
    int version;
    int rank; /* the one that something happens to */
    long call;
    int error;
    tow_status expected;
    const char *message; /* in all processes */
} job;

static size_t count_entries(const fixture *f)
{
    size_t n = 0;
    DIR *directory = opendir(f->directory);
    for (const struct dirent *entry; (entry = readdir(directory));) n += entry->d_name[0] != '.';
    closedir(directory);
    return n;
}

static tow_status run(const fixture *f, int count, int (*body)(tow_context *, tow_group *, void *), job *j)
{
    return tow_processes_run(f->ctx, &TOW_PROCESSES_OPTIONS(.count = count), body, j);
}

static void run_well(const fixture *f, int count, int (*body)(tow_context *, tow_group *, void *), job *j)
{
    if (run(f, count, body, j) != TOW_OK) fail_msg("%d processes: %s", count, tow_context_error(f->ctx));
}

/* The status and message of a collective are the same in all processes. */
static int expect_in_all(tow_group *group, const job *j, tow_context *context, tow_status status)
{
    EXPECT(status == j->expected);
    if (j->message && !strstr(tow_context_error(context), j->message)) {
        fprintf(stderr, "rank %d: '%s' is not in: %s\n", tow_group_rank(group), j->message, tow_context_error(context));
        return 1;
    }
    return 0;
}

static int write_body(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    OK(write_version(context, group, j->path, j->version));
    return 0;
}

/* ---- the same bytes ---------------------------------------------------------------------------------------------- */

static const int counts[] = {1, 2, 3, 4, 8};

static void bytes_are_those_of_one_process(void **state)
{
    const fixture *f = *state;
    enum {
        MOST = 1 << 18
    };
    unsigned char *expected = malloc(MOST), *found = malloc(MOST);
    job j = {.path = f->path, .version = 1};
    assert_int_equal(write_version(f->ctx, NULL, f->path, 1), TOW_OK);
    const size_t n = read_bytes(f->path, expected, MOST);
    assert_in_range(n, 10000, MOST - 1);
    assert_int_equal(version_of(f->ctx, f->path), 1);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        j.version = 2;
        run_well(f, counts[i], write_body, &j);
        assert_int_equal(version_of(f->ctx, f->path), 2);
        j.version = 1;
        run_well(f, counts[i], write_body, &j); /* replaces the file */
        assert_int_equal(read_bytes(f->path, found, MOST), n);
        assert_memory_equal(found, expected, n);
        assert_int_equal(count_entries(f), 1);
    }
    free(expected);
    free(found);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int read_body(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    tow_tensors *tensors = NULL;
    OK(tow_safetensors_mmap(context, j->path, &tensors));
    OK(tow_safetensors_check_all(group, tensors));
    for (int k = 0; k < N_TENSORS; k++) {
        const tow_type type = type_of(k);
        char name[32];
        int64_t first = 0, n = 0;
        tow_array *array = NULL;
        snprintf(name, sizeof name, "layer %d/kernel", k);
        OK(tow_tensors_get_share(tensors, name, group, &array));
        EXPECT(tow_group_share(tow_group_rank(group), tow_group_count(group), tow_type_element_count(type), &first,
                               &n) == TOW_OK);
        EXPECT(tow_type_equal(tow_array_type(array), tow_make_type(type.dtype, 1, &n)));
        const size_t size = tow_dtype_size(type.dtype);
        for (size_t i = 0; i < (size_t)n * size; i++)
            EXPECT(((unsigned char *)tow_array_data(array))[i] == byte_of(k, (size_t)first * size + i, j->version));
        tow_array_release(array);
    }
    tow_tensors_free(tensors);
    return 0;
}

static int check_body(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    tow_tensors *tensors = NULL;
    OK(tow_safetensors_mmap(context, j->path, &tensors));
    const int result = expect_in_all(group, j, context, tow_safetensors_check_all(group, tensors));
    tow_tensors_free(tensors);
    return result;
}

static void any_number_reads_shares(void **state)
{
    const fixture *f = *state;
    job j = {.path = f->path, .version = 3};
    run_well(f, 3, write_body, &j);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) run_well(f, counts[i], read_body, &j);
}

static void damage_is_found_in_all_processes(void **state)
{
    const fixture *f = *state;
    job j = {.path = f->path, .version = 3, .expected = TOW_BAD_FORMAT, .message = "the data have the checksum"};
    run_well(f, 2, write_body, &j);
    FILE *file = fopen(f->path, "r+b");
    assert_non_null(file);
    for (long at = -1; at > -9000; at -= 2900) { /* in the data of several tensors */
        assert_int_equal(fseek(file, at, SEEK_END), 0);
        const int byte = fgetc(file);
        assert_int_equal(fseek(file, at, SEEK_END), 0);
        fputc(byte ^ 1, file);
        fflush(file);
        for (int count = 1; count <= 3; count++) run_well(f, count, check_body, &j);
        assert_int_equal(fseek(file, at, SEEK_END), 0);
        fputc(byte, file);
        fflush(file);
    }
    fclose(file);
}

/* Of a tensor of 400 KiB a process of four reads 100 KiB. */
static int count_bytes_body(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    tow_tensors *tensors = NULL;
    tow_array *array = NULL;
    context->file_calls = &faulty;
    plan_fault(-1, 0);
    OK(tow__safetensors_open(context, j->path, &tensors));
    const uint64_t header = faults.bytes_read;
    OK(tow_tensors_get_share(tensors, "x", group, &array));
    EXPECT(faults.bytes_read - header == 102400);
    tow_array_release(array);
    tow_tensors_free(tensors);
    context->file_calls = NULL;
    return 0;
}

static void a_process_reads_its_share_alone(void **state)
{
    const fixture *f = *state;
    const int64_t n = 102400;
    tow_tensors *tensors = NULL;
    tow_array *array = NULL;
    job j = {.path = f->path};
    assert_int_equal(tow_array_create(f->ctx, tow_make_type(TOW_F32, 1, &n), &array), TOW_OK);
    assert_int_equal(tow_tensors_create(f->ctx, &tensors), TOW_OK);
    assert_int_equal(tow_tensors_add(tensors, "x", array), TOW_OK);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    tow_tensors_free(tensors);
    tow_array_release(array);
    run_well(f, 4, count_bytes_body, &j);
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* The disk of one rank is full: the file system refuses its writes. */
static int full_disk_body(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    if (tow_group_rank(group) == j->rank) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){12000, 12000}); /* behind the header, in front of the end */
    }
    return expect_in_all(group, j, context, write_version(context, group, j->path, j->version));
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    const fixture *f = *state;
    job j = {.path = f->path, .version = 1, .expected = TOW_IO_ERROR, .message = "cannot write: File too large"};
    run_well(f, 2, write_body, &j);
    j.version = 2;
    for (j.rank = 0; j.rank < 3; j.rank++) {
        run_well(f, 3, full_disk_body, &j);
        assert_int_equal(version_of(f->ctx, f->path), 1);
        assert_int_equal(count_entries(f), 1);
    }
    run_well(f, 3, write_body, &j);
    assert_int_equal(version_of(f->ctx, f->path), 2);
}

/* Set by the processes. */
static struct outcome {
    int failed, renamed;
} * outcome;

/* One system call of one rank fails, or is its last. */
static int fault_body(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    const bool own = tow_group_rank(group) == j->rank;
    context->file_calls = &faulty;
    plan_fault(own ? j->call : -1, j->error);
    const tow_status status = write_version(context, group, j->path, j->version);
    EXPECT(status == TOW_OK || status == TOW_IO_ERROR);
    if (own) outcome->failed = faults.failed != NULL;
    if (faults.renamed) outcome->renamed = 1;
    EXPECT(faults.failed || !own || status == TOW_OK);
    EXPECT(status == TOW_OK || strstr(tow_context_error(context), j->path) != NULL);
    return 0;
}

/* Files need not be synced where no power is cut. */
static void sync_nothing(const fixture *f)
{
    plan_fault(-1, 0);
    f->ctx->file_calls = &faulty;
}

static void every_call_of_a_rank_fails_in_turn(void **state)
{
    const fixture *f = *state;
    outcome = mmap(NULL, sizeof *outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(outcome != MAP_FAILED);
    job j = {.path = f->path, .error = EIO};
    sync_nothing(f);
    for (j.rank = 0; j.rank < 2; j.rank++) {
        long calls = 0;
        for (j.call = 0; calls == 0; j.call++) {
            assert_int_equal(write_version(f->ctx, NULL, f->path, 1), TOW_OK);
            *outcome = (struct outcome){0};
            j.version = 2;
            run_well(f, 2, fault_body, &j);
            assert_int_equal(version_of(f->ctx, f->path), outcome->renamed ? 2 : 1);
            if (!outcome->failed) calls = j.call;
        }
        assert_in_range(calls, j.rank == 0 ? 45 : 20, 100); /* a call for each share that has elements is among them */
    }
    munmap(outcome, sizeof *outcome);
}

static void a_rank_that_is_killed_leaves_a_whole_file(void **state)
{
    const fixture *f = *state;
    job j = {.path = f->path, .error = KILL, .version = 2};
    outcome = mmap(NULL, sizeof *outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(outcome != MAP_FAILED);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    sync_nothing(f);
    for (j.rank = 0; j.rank < 2; j.rank++)
        for (j.call = 0;; j.call += j.call < 12 ? 1 : 9) {
            assert_int_equal(write_version(f->ctx, NULL, f->path, 1), TOW_OK);
            if (run(f, 2, fault_body, &j) == TOW_OK) break;
            const int version = version_of(f->ctx, f->path);
            assert_true(version == 1 || version == 2);
        }
    assert_int_equal(write_version(f->ctx, NULL, f->path, 1), TOW_OK); /* removes what they left */
    assert_int_equal(count_entries(f), 1);
    munmap(outcome, sizeof *outcome);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static int different_body(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    const int version = j->version + (tow_group_rank(group) == j->rank);
    return expect_in_all(group, j, context, write_version(context, group, j->path, version));
}

static int extra_tensor_body(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    tow_tensors *tensors = NULL;
    tow_array *array = NULL;
    OK(make_set(context, group, 1, &tensors));
    OK(tow_array_create(context, tow_make_type(TOW_F32, 0, NULL), &array));
    if (tow_group_rank(group) == j->rank) OK(tow_tensors_add(tensors, "another", array));
    const int result = expect_in_all(group, j, context, tow_safetensors_write_all(group, j->path, tensors));
    tow_array_release(array);
    tow_tensors_free(tensors);
    return result;
}

/* One rank has another number in a tensor that all have whole. */
static int another_value_body(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    tow_tensors *tensors = NULL;
    tow_array *array = NULL;
    OK(make_set(context, group, 2, &tensors));
    OK(tow_tensors_get(tensors, "layer 20/kernel", &array));
    if (tow_group_rank(group) == j->rank) ((char *)tow_array_data(array))[tow_type_bytes(type_of(20)) - 1] ^= 1;
    const int result = expect_in_all(group, j, context, tow_safetensors_write_all(group, j->path, tensors));
    tow_array_release(array);
    tow_tensors_free(tensors);
    return result;
}

static void different_sets_are_refused(void **state)
{
    const fixture *f = *state;
    job j = {.path = f->path, .version = 4, .rank = 2, .expected = TOW_INVALID_ARGUMENT};
    assert_int_equal(write_version(f->ctx, NULL, f->path, 1), TOW_OK);
    j.message = "step is 4 at rank 0";
    run_well(f, 3, different_body, &j);
    j.message = "digest of names and types";
    run_well(f, 3, extra_tensor_body, &j);
    j.message = "layer 20/kernel: expected the values that rank 0 (";
    for (j.rank = 0; j.rank < 3; j.rank++) run_well(f, 3, another_value_body, &j);
    assert_int_equal(version_of(f->ctx, f->path), 1);
    j.rank = 2;
    j.path = "/dev/null";
    j.expected = TOW_UNSUPPORTED;
    j.message = "/dev/null: expected a file that several processes can write";
    j.rank = -1;
    run_well(f, 2, different_body, &j);
    j.path = "/nowhere/at/all";
    j.expected = TOW_IO_ERROR;
    j.message = "/nowhere/at/all: cannot create a temporary file";
    run_well(f, 2, different_body, &j);
    assert_int_equal(version_of(f->ctx, f->path), 1);
}

static int share_body(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){10, 10});
    int64_t first, n;
    tow_tensors *tensors = NULL;
    tow_array *array = NULL, *wrong = NULL, *got = NULL;
    EXPECT(tow_group_share(tow_group_rank(group), tow_group_count(group), 100, &first, &n) == TOW_OK);
    OK(tow_tensors_create(context, &tensors));
    OK(tow_array_create(context, tow_make_type(TOW_F32, 1, &n), &array));
    OK(tow_array_create(context, tow_make_type(TOW_F32, 1, (int64_t[]){n + 1}), &wrong));
    EXPECT(tow_tensors_add_share(tensors, "x", type, group, wrong) == TOW_TYPE_MISMATCH);
    EXPECT(strstr(tow_context_error(context), "the share of rank") != NULL);
    OK(tow_tensors_add_share(tensors, "x", type, group, array));
    EXPECT(tow_tensors_add_share(tensors, "x", type, group, array) == TOW_INVALID_ARGUMENT);
    EXPECT(tow_tensors_add_share(tensors, "__metadata__", type, group, array) == TOW_INVALID_ARGUMENT);
    EXPECT(tow_type_equal(tow_tensors_type(tensors, 0), type));
    EXPECT(tow_tensors_find(tensors, "x") == NULL);
    EXPECT(tow_tensors_get(tensors, "x", &got) == TOW_UNSUPPORTED);
    EXPECT(tow_safetensors_write(j->path, tensors) == TOW_UNSUPPORTED);
    EXPECT(strstr(tow_context_error(context), "tow_safetensors_write_all") != NULL);
    EXPECT(tow_npz_write(j->path, tensors, false) == TOW_UNSUPPORTED);
    OK(tow_tensors_get_share(tensors, "x", group, &got));
    EXPECT(got == array);
    tow_array_release(got);
    EXPECT(tow_tensors_get_share(tensors, "y", group, &got) == TOW_NOT_FOUND && got == NULL);
    tow_array_release(array);
    tow_array_release(wrong);
    tow_tensors_free(tensors);
    return 0;
}

static void shares_are_no_tensors(void **state)
{
    const fixture *f = *state;
    job j = {.path = f->path};
    run_well(f, 2, share_body, &j);
}

/* A directory that the machines of a group do not share. */
static void files_that_others_made_are_looked_at(void **state)
{
    const fixture *f = *state;
    tow__output_file file;
    assert_int_equal(tow__output_join(f->ctx, "model", "/nowhere/model.tmp", 10, &file), TOW_IO_ERROR);
    assert_message(f, "model: cannot open /nowhere/model.tmp");
    assert_message(f, "a file system that they share");
    tow__output_close(&file);
    write_bytes(f->path, "abc", 3);
    assert_int_equal(tow__output_join(f->ctx, "model", f->path, 10, &file), TOW_IO_ERROR);
    assert_message(f, "a file of 10 bytes, as another process of the group made it, found 3");
    tow__output_close(&file);
    assert_int_equal(count_entries(f), 1); /* it is not removed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_are_those_of_one_process, setup, teardown),
        cmocka_unit_test_setup_teardown(any_number_reads_shares, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_is_found_in_all_processes, setup, teardown),
        cmocka_unit_test_setup_teardown(a_process_reads_its_share_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_disk_leaves_the_old_file, setup, teardown),
        cmocka_unit_test_setup_teardown(every_call_of_a_rank_fails_in_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(a_rank_that_is_killed_leaves_a_whole_file, setup, teardown),
        cmocka_unit_test_setup_teardown(different_sets_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(shares_are_no_tensors, setup, teardown),
        cmocka_unit_test_setup_teardown(files_that_others_made_are_looked_at, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
