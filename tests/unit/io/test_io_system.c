/* .npy and safetensors among what surrounds them: paths that cannot be read or written, full disks, replacement as a
 * whole beside other writers, and every allocation failing in turn.
 * Tests atomic_file.c, input_file.c. */
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

#include "tests/unit/support/io_files.h"

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
    assert_int_equal(tow_npy_write(f->ctx, "/dev/full", array), TOW_IO_ERROR);
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
    tow_status status = tow_npy_write(f->ctx, f->path, array);
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

/* The file that a killed writer leaves is called FILE.16 hexadecimal digits.tmp. */
static const char left_over[] = ".0123456789abcdef.tmp";

static void name_beside(const fixture *f, const char *suffix, char path[128])
{
    snprintf(path, 128, "%s%s", f->path, suffix);
}

static void a_left_over_temporary_file_is_removed(void **state)
{
    fixture *f = *state;
    char temporary[128];
    tow_tensors *tensors = sample(f), *back;
    name_beside(f, left_over, temporary);
    write_bytes(temporary, "of a killed process, and longer than nothing", 40);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    assert_int_equal(count_files(f), 1);
    assert_int_equal(tow_safetensors_read(f->ctx, f->path, &back), TOW_OK);
    tow_tensors_free(back);
    tow_tensors_free(tensors);
}

/* Files that others have put beside the file stay what they were, also under names like those of temporary files:
 * nothing is written to it, it is not removed, and it does not become the file. */
static void files_of_others_are_left_alone(void **state)
{
    fixture *f = *state;
    static const char *const suffixes[] = {".tmp",
                                           ".0123456789abcdef.tmp",
                                           ".0123456789abcdeF.tmp",
                                           ".0123456789abcde.tmp",
                                           ".0123456789abcdef0.tmp",
                                           "x.0123456789abcdef.tmp",
                                           ".0123456789abcdef.tmpx"};
    enum {
        LINK,
        SYMBOLIC_LINK,
        PIPE,
        DIRECTORY,
        KINDS
    };
    tow_tensors *tensors = sample(f);
    char victim[128], beside[128];
    unsigned char bytes[16];
    struct stat before, after;
    snprintf(victim, sizeof victim, "%s/victim", f->directory);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            write_bytes(victim, "precious", 8);
            assert_int_equal(chmod(victim, 0604), 0);
            name_beside(f, suffixes[i], beside);
            assert_int_equal(kind == LINK            ? link(victim, beside)
                             : kind == SYMBOLIC_LINK ? symlink(victim, beside)
                             : kind == PIPE          ? mkfifo(beside, 0666)
                                                     : mkdir(beside, 0777),
                             0);
            assert_int_equal(lstat(beside, &before), 0);
            if (tow_safetensors_write(f->path, tensors) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
            assert_int_equal(lstat(beside, &after), 0);
            assert_true(before.st_ino == after.st_ino && before.st_mode == after.st_mode);
            assert_int_equal(read_bytes(victim, bytes, sizeof bytes), 8);
            assert_memory_equal(bytes, "precious", 8);
            assert_int_equal(stat(f->path, &after), 0);
            assert_true(before.st_ino != after.st_ino);
            assert_int_equal(count_files(f), 3);
            assert_int_equal(remove(beside), 0);
        }
    tow_tensors_free(tensors);
}

static void two_writers_are_kept_apart(void **state)
{
    fixture *f = *state;
    char temporary[128];
    tow_tensors *tensors = sample(f);
    name_beside(f, left_over, temporary);
    int fd = open(temporary, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_IO_ERROR);
    assert_message(f, "another process");
    assert_message(f, temporary);
    assert_int_equal(access(temporary, F_OK), 0);
    close(fd);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    assert_int_equal(count_files(f), 1);
    tow_tensors_free(tensors);
}

/* The permissions of a file survive its replacement; a new one gets those that the umask leaves. */
static void permissions_are_kept(void **state)
{
    fixture *f = *state;
    static const mode_t modes[] = {0600, 0640, 0666, 0400, 0755};
    tow_tensors *tensors = sample(f);
    struct stat info;
    const mode_t old = umask(027);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    assert_int_equal(stat(f->path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(chmod(f->path, modes[i]), 0);
        assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
        assert_int_equal(stat(f->path, &info), 0);
        assert_int_equal(info.st_mode & 07777, modes[i]);
    }
    if (geteuid() == 0) { /* others cannot give files away */
        assert_int_equal(chown(f->path, 12, 34), 0);
        assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
        assert_int_equal(stat(f->path, &info), 0);
        assert_true(info.st_uid == 12 && info.st_gid == 34 && (info.st_mode & 07777) == 0755);
    }
    umask(old);
    tow_tensors_free(tensors);
}

/* A name of the greatest length leaves no room for a suffix. */
static void long_names(void **state)
{
    fixture *f = *state;
    tow_tensors *tensors = sample(f);
    char path[512], name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    snprintf(path, sizeof path, "%s/%s", f->directory, name);
    for (int i = 0; i < 2; i++) assert_int_equal(tow_safetensors_write(path, tensors), TOW_OK);
    assert_int_equal(count_files(f), 1);
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
    assert_int_equal(tow_npy_write(f->ctx, link_path, array), TOW_OK);
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

static void *limited(void *pointer, size_t old_size, size_t size, void *user)
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

/* Reading and writing with 0, 1, 2, ... allocations allowed, until it succeeds: a status each time, and nothing
 * leaks. */
static void every_allocation_fails_in_turn(void **state)
{
    fixture *f = *state;
    tow_tensors *tensors = sample(f);
    assert_int_equal(tow_safetensors_write(f->path, tensors), TOW_OK);
    tow_tensors_free(tensors);
    budget b = {.allowed = 1000000};
    tow_context *ctx;
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.allocator = {limited, &b}, .threads = 1), &ctx), TOW_OK);
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
    assert_int_equal(tow_safetensors_read(ctx, f->path, &tensors), TOW_OK);
    idle = b.in_use;
    status = TOW_OUT_OF_MEMORY;
    for (n = 0; status != TOW_OK; n++) {
        b.allowed = n;
        status = tow_safetensors_write(f->path, tensors);
        if (status != TOW_OK) assert_int_equal(status, TOW_OUT_OF_MEMORY);
        assert_int_equal(b.in_use, idle);
        assert_int_equal(count_files(f), 1);
        assert_true(n < 1000);
    }
    assert_true(n > 5);
    tow_tensors_free(tensors);
    b.allowed = 1000000;
    tow_context_free(ctx);
    assert_int_equal(b.in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(unreadable_files),
        TEST(unwritable_files),
        TEST(full_disk),
        TEST(a_left_over_temporary_file_is_removed),
        TEST(files_of_others_are_left_alone),
        TEST(two_writers_are_kept_apart),
        TEST(permissions_are_kept),
        TEST(long_names),
        TEST(symbolic_links_keep_pointing),
        TEST(every_allocation_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
