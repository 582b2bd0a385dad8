/* Processes that write versions of a file together, and one of them is killed at a random moment: the file is always
 * whole, and the next processes, of another number, go on. TOW_TEST_KILLS: how often; 20 without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "src/io/tensors.h"
#include "tests/unit/support/file_faults.h"
#include "tests/unit/support/group_flight.h"
#include "tests/unit/support/io_files.h"
#include "tests/unit/support/shared_sets.h"

typedef struct job {
    const char *path;
    int *written; /* shared: the last version that rank 0 has written */
    int rank;     /* that is killed, */
    int versions; /* after it has written so many, */
    long after;   /* and so many microseconds */
} job;

static void die(int number)
{
    (void)number;
    raise(SIGKILL);
}

static int write_on(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    const int first = *j->written + 1;
    const struct itimerval timer = {.it_value = {.tv_usec = j->after}};
    signal(SIGALRM, die);
    for (int version = first;; version++) {
        if (tow_group_rank(group) == j->rank && version == first + j->versions)
            EXPECT(setitimer(ITIMER_REAL, &timer, NULL) == 0);
        OK(write_version(context, group, j->path, version));
        if (tow_group_rank(group) == 0) *j->written = version;
        OK(tow_group_barrier(group));
    }
    return 0;
}

static size_t count_entries(const fixture *f)
{
    size_t n = 0;
    DIR *directory = opendir(f->directory);
    for (const struct dirent *entry; (entry = readdir(directory));) n += entry->d_name[0] != '.';
    closedir(directory);
    return n;
}

static void random_kills(void **state)
{
    const fixture *f = *state;
    const char *text = getenv("TOW_TEST_KILLS");
    const int kills = text ? atoi(text) : 20;
    static const int counts[] = {2, 3, 4, 8};
    uint64_t random = 88172645463325252ULL; /* xorshift of Marsaglia (2003) */
    int during = 0;
    job j = {.path = f->path,
             .written = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    assert_true(j.written != MAP_FAILED);
    plan_fault(-1, 0);
    f->ctx->file_calls = &faulty; /* which syncs nothing: no power is cut */
    assert_int_equal(write_version(f->ctx, NULL, f->path, *j.written = 1), TOW_OK);
    for (int i = 0; i < kills; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        const int count = counts[i % 4];
        j.rank = (int)(random % (unsigned)count);
        j.versions = (int)(random / 64 % 3);
        j.after = 1 + (long)(random / 1024 % 4000);
        assert_int_equal(tow_processes_run(f->ctx, &TOW_PROCESSES_OPTIONS(.count = count), write_on, &j),
                         TOW_INTERRUPTED);
        assert_message(f, "was killed by signal 9");
        const int found = version_of(f->ctx, f->path);
        if (found != *j.written && found != *j.written + 1)
            fail_msg("kill %d: expected version %d or the next one, found %d", i, *j.written, found);
        during += count_entries(f) > 1; /* a temporary file was left */
        *j.written = found;
    }
    if (*j.written == 1) fail_msg("no version was ever written: all kills were too early");
    print_message("%d kills, %d of them while a file was open, %d versions\n", kills, during, *j.written);
    assert_int_equal(write_version(f->ctx, NULL, f->path, 1), TOW_OK); /* removes what they left */
    assert_int_equal(count_entries(f), 1);
    munmap(j.written, sizeof(int));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(random_kills, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
