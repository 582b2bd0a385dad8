/* .npy and safetensors among what surrounds them: paths that cannot be read or written, full disks, replacement as a
 * whole beside other writers, and every allocation failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/io_files.h"

/* ---- the file system --------------------------------------------------------------------------------------------- */

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
    snprintf(path, sizeof path, "%s.tmp", f->path); /* a pipe in the place of the temporary file must not hang */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_IO_ERROR);
    assert_message(f, path);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_IO_ERROR);
    assert_message(f, "remove it");
    close(reader);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tow_safetensors_write("", tensors), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_safetensors_write(NULL, tensors), TOW_INVALID_ARGUMENT);
    tow_tensors_free(tensors);
}

/* A full disk: the device that is always full, and a limit on the size of files. The old file alone remains. */
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

/* ---- failing allocations ----------------------------------------------------------------------------------------- */

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

/* Reading with 0, 1, 2, ... allocations allowed, until it succeeds: a status each time, and nothing leaks. */
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
    const struct CMUnitTest tests[] = {
        TEST(unreadable_files),
        TEST(unwritable_files),
        TEST(full_disk),
        TEST(a_left_over_temporary_file_is_taken_over),
        TEST(two_writers_are_kept_apart),
        TEST(symbolic_links_keep_pointing),
        TEST(every_allocation_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
