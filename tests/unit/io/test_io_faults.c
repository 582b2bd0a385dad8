/* Checkpoints among faults: every call of the system that a save or a load makes fails in turn, in each way; a process
 * is killed before each of them; two write one path at once. Whatever happens, a failure has a status and a message,
 * the file is the old one or the whole new one, a state that was not loaded is what it was, and neither files, memory
 * nor descriptors are left. */
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/file_faults.h"
#include "tests/unit/support/training.h"

/* ---- what must not change ---------------------------------------------------------------------------------------- */

static size_t count_entries(const char *path)
{
    size_t n = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    while (readdir(directory) != NULL) n++;
    closedir(directory);
    return n;
}

static size_t open_files(void) { return count_entries("/proc/self/fd"); }

static bool equal_files(const char *a, const char *b)
{
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    assert_non_null(x);
    assert_non_null(y);
    int c, d;
    do {
        c = getc(x);
        d = getc(y);
    } while (c == d && c != EOF);
    fclose(x);
    fclose(y);
    return c == d;
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

/* A state of a small model in a context whose calls can fail, and the paths of two checkpoints of it. */
typedef struct scene {
    counting memory;
    tow_context *ctx;
    tow_dense model;
    training t;
    char path[96], old[96], new[96], again[96];
    size_t entries; /* in the directory, with `path` and without temporary files */
} scene;

static void set_scene(const fixture *f, scene *s)
{
    tow_context_options options = counting_options(&s->memory, -1);
    assert_int_equal(tow_context_create(&options, &s->ctx), TOW_OK);
    s->model = (tow_dense)TOW_DENSE(.features = 2);
    s->t = start(s->ctx, TOW_MODULE(&s->model), 3, 2, TOW_TRAIN_OPTIONS(.optimizer = usual, .evaluation = true));
    snprintf(s->path, sizeof s->path, "%s/checkpoint", f->directory);
    snprintf(s->old, sizeof s->old, "%s/old", f->directory);
    snprintf(s->new, sizeof s->new, "%s/new", f->directory);
    snprintf(s->again, sizeof s->again, "%s/again", f->directory);
    assert_int_equal(tow_train_save(s->t.state, s->old), TOW_OK);
    assert_int_equal(tow_train_save(s->t.state, s->path), TOW_OK);
    assert_int_equal(tow_train_save(s->t.state, s->again), TOW_OK);
    step(&s->t, 2);
    assert_int_equal(tow_train_save(s->t.state, s->new), TOW_OK);
    s->entries = count_entries(f->directory);
    plan_fault(-1, 0);
    s->ctx->file_calls = &faulty;
}

static void strike_scene(scene *s)
{
    stop(&s->t);
    tow_context_free(s->ctx);
    assert_int_equal(s->memory.blocks, 0);
    assert_int_equal(s->memory.wrong_sizes, 0);
}

static void copy_file(const char *from, const char *to, mode_t mode)
{
    char bytes[8192];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    const size_t n = fread(bytes, 1, sizeof bytes, in);
    assert_in_range(n, 1, sizeof bytes - 1);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(chmod(to, mode), 0);
}

/* ---- saving ------------------------------------------------------------------------------------------------------ */

/* Saves the new state over the old file while one call fails, or all from that one on. False if there were fewer. */
static bool save_with_fault(const fixture *f, scene *s, long n, int error, bool from_then_on, bool leftover)
{
    static const char *const never_forgiven[] = {"stat", "write", "fchmod", "fsync", "rename", NULL};
    char temporary[128];
    struct stat info;
    copy_file(s->old, s->path, 0640);
    snprintf(temporary, sizeof temporary, "%s.0123456789abcdef.tmp", s->path);
    if (leftover) copy_file(s->old, temporary, 0600);
    const size_t files = open_files();
    const long blocks = s->memory.blocks;
    tow_context_clear_error(s->ctx);
    plan_fault(n, error);
    faults.from_then_on = from_then_on;
    const tow_status status = tow_train_save(s->t.state, s->path);
    const char *failed = faults.failed;
    const bool renamed = faults.renamed;
    plan_fault(-1, 0);
    assert_int_equal(open_files(), files);
    assert_int_equal(s->memory.blocks, blocks);
    if (status != TOW_OK) {
        assert_int_equal(status, TOW_IO_ERROR);
        assert_non_null(strstr(tow_context_error(s->ctx), s->path));
    }
    if (error == EINTR || failed == NULL) {
        if (status != TOW_OK) fail_msg("%s", tow_context_error(s->ctx));
    } else if (is_one_of(failed, never_forgiven) || (strcmp(failed, "open") == 0 && !leftover && error != EACCES)) {
        /* EACCES may also be a directory that can be written and not be read */
        if (status == TOW_OK) fail_msg("call %ld, %s, failed without a word", n, failed);
    }
    assert_true(renamed || status != TOW_OK);
    assert_true(equal_files(s->path, renamed ? s->new : s->old));
    assert_int_equal(stat(s->path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
    if (!leftover && !from_then_on) assert_int_equal(count_entries(f->directory), s->entries);
    assert_int_equal(tow_train_save(s->t.state, s->path), TOW_OK); /* the next one works, and clears up */
    assert_true(equal_files(s->path, s->new));
    assert_int_equal(count_entries(f->directory), s->entries);
    return failed != NULL;
}

static void every_call_of_a_save_fails_in_turn(void **state)
{
    fixture *f = *state;
    static const char *const expected[] = {"open",   "close", "stat",  "lstat",  "fstat",  "flock",
                                           "fchmod", "write", "fsync", "rename", "unlink", NULL};
    static const int errors[] = {EIO, ENOSPC, EINTR, EACCES};
    scene s;
    set_scene(f, &s);
    memset(faults.seen, 0, sizeof faults.seen);
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++)
        for (int variant = 0; variant < 4; variant++) {
            const bool leftover = variant % 2 == 1, from_then_on = variant / 2 == 1;
            if (from_then_on && errors[e] == EINTR) continue; /* interrupted for ever */
            long n = 0;
            while (save_with_fault(f, &s, n, errors[e], from_then_on, leftover)) n++;
            assert_in_range(n, 15, 100);
        }
    for (size_t i = 0; i < N_CALLS; i++)
        if (is_one_of(call_names[i], expected) && !faults.seen[i]) fail_msg("%s never failed", call_names[i]);
    strike_scene(&s);
}

static void short_reads_and_writes_go_on(void **state)
{
    fixture *f = *state;
    scene s;
    set_scene(f, &s);
    plan_fault(-1, HALF);
    assert_int_equal(tow_train_save(s.t.state, s.path), TOW_OK);
    assert_true(equal_files(s.path, s.new));
    assert_int_equal(tow_train_load(s.t.state, s.old), TOW_OK);
    assert_true(faults.calls > 100);
    plan_fault(-1, 0);
    assert_int_equal(tow_train_save(s.t.state, s.path), TOW_OK);
    assert_true(equal_files(s.path, s.old));
    strike_scene(&s);
}

/* If the group of the old file cannot be kept, its permissions go to nobody else. */
static void groups_that_cannot_be_kept_lose_their_permissions(void **state)
{
    fixture *f = *state;
    struct stat info;
    scene s;
    if (geteuid() != 0) skip();
    set_scene(f, &s);
    assert_int_equal(chown(s.path, 12, 34), 0);
    assert_int_equal(chmod(s.path, 0664), 0);
    long n = 0;
    for (;; n++) { /* both attempts */
        plan_fault(n, EPERM);
        faults.from_then_on = false;
        assert_true(n < 100);
        assert_int_equal(chown(s.path, 12, 34), 0);
        assert_int_equal(chmod(s.path, 0664), 0);
        const tow_status status = tow_train_save(s.t.state, s.path);
        if (status == TOW_OK && faults.failed != NULL && strcmp(faults.failed, "fchown") == 0) break;
    }
    assert_int_equal(stat(s.path, &info), 0);
    assert_true(info.st_uid == 0 && info.st_gid == 34 && (info.st_mode & 07777) == 0664);
    strike_scene(&s);
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

typedef enum outcome {
    LOADED,
    UNCHANGED,
    TORN
} outcome;

/* Loads the old file into the new state while one call fails, or all from that one on. */
static outcome load_with_fault(scene *s, long n, int error, bool from_then_on)
{
    double loss;
    assert_int_equal(tow_train_load(s->t.state, s->new), TOW_OK);
    const size_t files = open_files();
    const long blocks = s->memory.blocks;
    tow_context_clear_error(s->ctx);
    plan_fault(n, error);
    faults.from_then_on = from_then_on;
    const tow_status status = tow_train_load(s->t.state, s->old);
    const char *failed = faults.failed;
    plan_fault(-1, 0);
    faults.failed = failed;
    assert_int_equal(open_files(), files);
    assert_int_equal(s->memory.blocks, blocks);
    if (status != TOW_OK) {
        assert_int_equal(status, TOW_IO_ERROR);
        assert_non_null(strstr(tow_context_error(s->ctx), s->old));
    }
    if (error == EINTR || failed == NULL || strcmp(failed, "close") == 0)
        assert_int_equal(status, TOW_OK);
    else
        assert_int_not_equal(status, TOW_OK);
    const tow_status saved = tow_train_save(s->t.state, s->again);
    if (saved == TOW_OK) {
        assert_true(equal_files(s->again, status == TOW_OK ? s->old : s->new));
        return status == TOW_OK ? LOADED : UNCHANGED;
    }
    assert_int_equal(saved, TOW_INVALID_ARGUMENT);
    assert_int_not_equal(status, TOW_OK);
    assert_non_null(strstr(tow_context_error(s->ctx), "a mixture"));
    assert_int_equal(tow_train_step(s->t.state, s->t.batch, &loss), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_train_evaluate(s->t.state, s->t.batch, &loss), TOW_INVALID_ARGUMENT);
    return TORN;
}

static void every_call_of_a_load_fails_in_turn(void **state)
{
    fixture *f = *state;
    static const int errors[] = {EIO, EINTR, ESTALE};
    scene s;
    set_scene(f, &s);
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++)
        for (int from_then_on = 0; from_then_on < 2; from_then_on++) {
            if (from_then_on && errors[e] == EINTR) continue;
            size_t outcomes[3] = {0};
            long n = 0;
            do outcomes[load_with_fault(&s, n, errors[e], from_then_on)]++;
            while (n++, faults.failed != NULL);
            if (errors[e] == EINTR) continue;
            assert_true(outcomes[UNCHANGED] >= 10); /* open, fstat, the header, and each of six arrays */
            assert_true(outcomes[TORN] >= 6);       /* each of them once more */
            assert_true(outcomes[LOADED] >= 2);     /* the last call closes the file */
        }
    assert_int_equal(tow_train_load(s.t.state, s.new), TOW_OK); /* after which the state is whole */
    assert_int_equal(tow_train_save(s.t.state, s.again), TOW_OK);
    assert_true(equal_files(s.again, s.new));
    strike_scene(&s);
}

/* A damaged array is found before anything changes, whichever it is. */
static void damaged_checkpoints_change_nothing(void **state)
{
    fixture *f = *state;
    unsigned char good[8192], bad[8192];
    scene s;
    set_scene(f, &s);
    FILE *file = fopen(s.old, "rb");
    assert_non_null(file);
    const size_t size = fread(good, 1, sizeof good, file);
    fclose(file);
    assert_in_range(size, 100, sizeof good - 1);
    for (size_t n = 0; n < size; n++) {
        memcpy(bad, good, size);
        bad[n] = (unsigned char)(bad[n] ^ 1 << n % 8);
        file = fopen(s.path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(bad, 1, size, file), size);
        assert_int_equal(fclose(file), 0);
        if (tow_train_load(s.t.state, s.path) == TOW_OK) fail_msg("bit %zu of byte %zu was not found", n % 8, n);
        if (n % 16 != 0 && n + 1 != size) continue;
        assert_int_equal(tow_train_save(s.t.state, s.again), TOW_OK);
        assert_true(equal_files(s.again, s.new));
    }
    strike_scene(&s);
}

/* A file of 8 GiB in the place of a checkpoint is refused by what its header says. */
static void files_of_other_models_are_refused_unread(void **state)
{
    fixture *f = *state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"tow-train-state-1\",\"optimizer\":\"adamw\",\"description\":\"\",\"step\":"
        "\"1\","
        "\"seed\":\"0\",\"data_position\":\"0\"},"
        "\"params/kernel\":{\"dtype\":\"F32\",\"shape\":[2147483648],\"data_offsets\":[0,8589934592]}}";
    const uint64_t length = sizeof header - 1;
    scene s;
    set_scene(f, &s);
    FILE *file = fopen(s.path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&length, sizeof length, 1, file), 1);
    assert_int_equal(fwrite(header, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(s.path, 8 + (off_t)length + (INT64_C(1) << 33)), 0);
    const size_t before = s.memory.peak = s.memory.bytes;
    assert_int_equal(tow_train_load(s.t.state, s.path), TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(s.ctx), "params/kernel: expected f32[3,2], found f32[2147483648]"));
    assert_in_range(faults.bytes_read, length, length + 100);
    assert_in_range(s.memory.peak - before, 0, 7 * length + 4096);
    strike_scene(&s);
}

/* Loading and saving take less memory than the arrays have, however large they are. */
static void checkpoints_take_no_second_copy(void **state)
{
    fixture *f = *state;
    enum {
        WIDTH = 700,
        SLACK = 400 << 10
    };
    counting c;
    tow_context_options options = counting_options(&c, -1);
    tow_context *ctx;
    tow_dense model = TOW_DENSE(.features = WIDTH);
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    training t = start(ctx, TOW_MODULE(&model), WIDTH, WIDTH, TOW_TRAIN_OPTIONS(.optimizer = usual));
    const size_t before = c.peak = c.bytes;
    assert_int_equal(tow_train_save(t.state, f->a), TOW_OK);
    assert_int_equal(tow_train_load(t.state, f->a), TOW_OK);
    assert_in_range(c.peak - before, 1, SLACK);
    assert_true((size_t)WIDTH * WIDTH * sizeof(float) > 4 * SLACK);
    stop(&t);
    tow_context_free(ctx);
    assert_int_equal(c.blocks, 0);
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

/* Killed before each call of a save: the file is the old one or the new one, and the next save clears up. */
static void kills_leave_one_version(void **state)
{
    fixture *f = *state;
    scene s;
    set_scene(f, &s);
    int old = 0, new = 0, ended = -1;
    for (long n = 0; ended != 0; n++) {
        copy_file(s.old, s.path, 0600);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            plan_fault(n, KILL);
            _exit(tow_train_save(s.t.state, s.path) == TOW_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_true(ended == 0 || (WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL));
        if (equal_files(s.path, s.old))
            old++;
        else if (equal_files(s.path, s.new))
            new ++;
        else
            fail_msg("killed before call %ld: the file is neither the old nor the new one", n);
        assert_in_range(count_entries(f->directory), s.entries, s.entries + 1);
        assert_int_equal(tow_train_save(s.t.state, s.path), TOW_OK);
        assert_int_equal(count_entries(f->directory), s.entries);
    }
    assert_true(old >= 12 && new >= 3);
    strike_scene(&s);
}

/* Saves over and over; true if at least one save worked and the others said why not. Another process may hold the file
 * for as long as the system lets this one wait. */
static bool write_repeatedly(scene *s)
{
    int written = 0;
    for (int i = 0; i < 60 || (written == 0 && i < 1000000); i++) {
        if (tow_train_save(s->t.state, s->path) == TOW_OK) {
            written++;
        } else if (strstr(tow_context_error(s->ctx), "another process is writing this file") == NULL) {
            fprintf(stderr, "a writer fails: %s\n", tow_context_error(s->ctx));
            return false;
        }
    }
    return written > 0;
}

/* Two writers at once, and a reader, which always finds a whole file of one of them. */
static void two_writers_at_once(void **state)
{
    fixture *f = *state;
    enum {
        WRITERS = 2
    };
    scene s;
    set_scene(f, &s);
    pid_t children[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] > 0) continue;
        if (i == 1 && tow_train_load(s.t.state, s.old) != TOW_OK) _exit(2);
        _exit(write_repeatedly(&s) ? 0 : 1);
    }
    int running = WRITERS, result;
    while (running > 0) {
        tow_tensors *tensors;
        if (tow_safetensors_read(s.ctx, s.path, &tensors) != TOW_OK) fail_msg("%s", tow_context_error(s.ctx));
        const char *steps = tow_tensors_metadata(tensors, "step");
        assert_true(strcmp(steps, "0") == 0 || strcmp(steps, "2") == 0);
        tow_tensors_free(tensors);
        for (int i = 0; i < WRITERS; i++)
            if (children[i] > 0 && waitpid(children[i], &result, WNOHANG) == children[i]) {
                assert_int_equal(result, 0);
                children[i] = 0;
                running--;
            }
    }
    assert_true(equal_files(s.path, s.old) || equal_files(s.path, s.new));
    assert_int_equal(count_entries(f->directory), s.entries);
    strike_scene(&s);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_call_of_a_save_fails_in_turn),
        TEST(short_reads_and_writes_go_on),
        TEST(groups_that_cannot_be_kept_lose_their_permissions),
        TEST(every_call_of_a_load_fails_in_turn),
        TEST(damaged_checkpoints_change_nothing),
        TEST(files_of_other_models_are_refused_unread),
        TEST(checkpoints_take_no_second_copy),
        TEST(kills_leave_one_version),
        TEST(two_writers_at_once),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
