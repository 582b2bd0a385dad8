/* Groups whose processes fail, differ or stand still. Tests processes.c, watchdog.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/group/group.h"
#include "tests/unit/support/counting_allocator.h"

static tow_context *ctx;

static int setup(void **state)
{
    (void)state;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    return tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &ctx) == TOW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tow_context_free(ctx);
    return 0;
}

typedef int body_function(tow_context *context, tow_group *group, void *user);

static char printed[1 << 14]; /* by the processes */

/* Runs processes, all of which end, and reads what they print to standard error. */
static tow_status run(int count, double watchdog, body_function *body, void *user)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    const int kept = dup(STDERR_FILENO);
    assert_true(kept >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    const tow_status status =
        tow_processes_run(ctx, &TOW_PROCESSES_OPTIONS(.count = count, .watchdog = watchdog), body, user);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    rewind(file);
    printed[fread(printed, 1, sizeof printed - 1, file)] = '\0';
    fclose(file);
    assert_true(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    return status;
}

static void expect_in(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}

static void expect_failure(tow_status status, const char *message)
{
    if (status != TOW_INTERRUPTED) fail_msg("found \"%s\"; printed: %s", tow_status_text(status), printed);
    expect_in(tow_context_error(ctx), message);
}

/* ---- a rank that ends -------------------------------------------------------------------------------------------- */

typedef enum way {
    RETURNS,
    EXITS,
    EXITS_WITH_0,
    KILLED,
    ABORTS,
    ABORTS_WITH_256, /* whose lowest 8 bits say success */
    ABORTS_ALONE,
    FAULTS
} way;

static int fails(tow_context *context, tow_group *group, void *user)
{
    (void)context;
    if (tow_group_barrier(group)) return 9;
    if (tow_group_rank(group) == 1) switch (*(const way *)user) {
        case RETURNS:
            return 3;
        case EXITS:
            _exit(4);
        case EXITS_WITH_0:
            _exit(0);
        case KILLED:
            raise(SIGKILL);
            break;
        case ABORTS:
            tow_group_abort(group, 7, "the file '%s' is not there", "data.txt");
        case ABORTS_WITH_256:
            tow_group_abort(group, 256, "256 errors");
        case ABORTS_ALONE:
            tow_group_abort(NULL, 256, "256 errors");
        case FAULTS:
            signal(SIGSEGV, SIG_DFL); /* cmocka would go on in this process */
            raise(SIGSEGV);
            break;
        }
    tow_group_barrier(group);
    return 0;
}

static void a_rank_ends(void **state)
{
    static const char *const says[] = {[RETURNS] = "ended with status 3",
                                       [EXITS] = "ended with status 4",
                                       [EXITS_WITH_0] = "ended before its function returned",
                                       [KILLED] = "was killed by signal 9",
                                       [ABORTS] = "ended with status 7",
                                       [ABORTS_WITH_256] = "ended with status 1",
                                       [ABORTS_ALONE] = "ended with status 1",
                                       [FAULTS] = NULL}; /* sanitizers end with a status of their own */
    (void)state;
    for (way how = RETURNS; how <= FAULTS; how++)
        for (int count = 2; count <= 4; count += 2) {
            expect_failure(run(count, 0, fails, &how), "rank 1 (process ");
            if (says[how]) expect_in(tow_context_error(ctx), says[how]);
            if (how == ABORTS) {
                expect_in(printed, "tow: rank 1 (");
                expect_in(printed, "): the file 'data.txt' is not there\n");
            }
        }
}

static int returns(tow_context *context, tow_group *group, void *user)
{
    (void)context, (void)group;
    return *(const int *)user;
}

/* Results are exit statuses; 256, whose last bits are 0, is a failure, too. */
static void results(void **state)
{
    (void)state;
    int result = 0;
    assert_int_equal(run(2, 0, returns, &result), TOW_OK);
    assert_string_equal(printed, "");
    result = 256;
    expect_failure(run(1, 0, returns, &result), "rank 0 (process ");
    assert_int_equal(tow_processes_run(ctx, NULL, NULL, NULL), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_processes_run(NULL, NULL, returns, &result), TOW_INVALID_ARGUMENT);
    assert_int_equal(run(65, 0, returns, &result), TOW_INVALID_ARGUMENT);
    expect_in(tow_context_error(ctx), "from 1 to 64 processes, found 65");
    assert_int_equal(run(-1, 0, returns, &result), TOW_INVALID_ARGUMENT);
    expect_failure(run(2, -1, returns, &result), "ended with status 1");
    expect_in(printed, "expected .watchdog of at least 0 seconds, or INFINITY, found -1");
}

/* ---- no memory --------------------------------------------------------------------------------------------------- */

static counting counts;

static int sums(tow_context *context, tow_group *group, void *user)
{
    const long before = counts.blocks;
    tow_array *array = NULL;
    counts.calls = 0;
    if (tow_group_rank(group) == 0) counts.fail_at = *(const long *)user;
    int64_t n = 100;
    tow_status status = tow_array_create(context, tow_make_type(TOW_F32, 1, &n), &array);
    if (!status) status = tow_group_all_reduce(group, 8, array);
    if (!status) status = tow_group_all_gather(group, array);
    if (!status) status = tow_group_check_same(group, 1, &(tow_group_fact){"model", "gpt"});
    if (!status) status = tow_group_barrier(group);
    tow_array_release(array);
    if (status && status != TOW_OUT_OF_MEMORY) return 2;
    if (counts.wrong_sizes) return 3;
    if (status) return 1;
    return counts.blocks == before ? 0 : 4;
}

/* Each allocation in turn fails at one rank: it says so, and all end. */
static void no_memory(void **state)
{
    (void)state;
    tow_context *usual = ctx;
    counts = (counting){.fail_at = -1};
    assert_int_equal(
        tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1, .allocator = {counting_resize, &counts}), &ctx), TOW_OK);
    bool succeeded = false;
    for (long fail_at = 0; fail_at < 200 && !succeeded; fail_at++) {
        const tow_status status = run(2, 0, sums, &fail_at);
        succeeded = status == TOW_OK;
        if (!succeeded) expect_failure(status, "rank 0 (process ");
        if (!succeeded) expect_in(tow_context_error(ctx), "ended with status 1");
    }
    assert_true(succeeded);
    tow_context_free(ctx);
    assert_int_equal(counts.blocks, 0);
    assert_int_equal(counts.wrong_sizes, 0);
    ctx = usual;
}

static int runs_often(tow_context *context, tow_group *group, void *user)
{
    static float data[3][1000], scratch[1000];
    static const tow__collective_kind kinds[3] = {TOW__ALL_REDUCE, TOW__ALL_GATHER, TOW__BARRIER};
    tow__collective *c[3];
    long calls = 0;
    (void)user;
    for (int k = 0; k < 3; k++) {
        const tow__collective_options o = {.kind = kinds[k], .dtype = TOW_F32, .n = 1000, .row_groups = 4};
        if (tow__collective_create(context, group, &o, &c[k])) return 1;
    }
    for (int round = 0; round < 20; round++) {
        for (int k = 0; k < 3; k++)
            if (tow__collective_start(c[k], (void *[]){data[k]}, scratch)) return 2;
        for (int k = 0; k < 3; k++)
            if (tow__collective_wait(c[k])) return 3;
        if (round == 0) calls = counts.calls;
    }
    for (int k = 0; k < 3; k++) tow__collective_free(c[k]);
    return counts.calls == calls ? 0 : 4;
}

/* Collectives are made once; their runs allocate nothing. */
static void runs_allocate_nothing(void **state)
{
    (void)state;
    tow_context *usual = ctx;
    counts = (counting){.fail_at = -1};
    assert_int_equal(
        tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1, .allocator = {counting_resize, &counts}), &ctx), TOW_OK);
    const tow_status status = run(3, 0, runs_often, NULL);
    if (status != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    tow_context_free(ctx);
    ctx = usual;
}

/* ---- programs that differ ---------------------------------------------------------------------------------------- */

static int differs(tow_context *context, tow_group *group, void *user)
{
    const int odd = *(const int *)user;
    const bool is_odd = tow_group_rank(group) == odd;
    char seed[20];
    snprintf(seed, sizeof seed, "%d", is_odd ? 5 : 1);
    const tow_group_fact facts[] = {{"model", "gpt 6 x 384"}, {"seed", seed}, {"rate", is_odd ? "0.5" : "0.1"}};
    if (tow_group_check_same(group, 1, facts)) return 1; /* what is alike */
    if (tow_group_check_same(group, 3, facts) != TOW_INVALID_ARGUMENT) return 2;
    const char *message = tow_context_error(context);
    if (!strstr(message, odd == 0 ? "seed is 5 at rank 0 (" : "seed is 1 at rank 0 (")) return 3;
    if (odd == 2 && !strstr(message, "and 5 at rank 2 (")) return 4;
    if (odd == 0 && !strstr(message, "and 1 at rank 1 (")) return 5;
    const tow_group_fact other = {is_odd ? "layers" : "depth", "6"};
    if (tow_group_check_same(group, 1, &other) != TOW_INVALID_ARGUMENT) return 6;
    if (!strstr(tow_context_error(context), "'layers'") || !strstr(tow_context_error(context), "'depth'")) return 7;
    if (tow_group_check_same(group, is_odd ? 1 : 3, facts) != TOW_INVALID_ARGUMENT) return 8;
    return 0;
}

static void programs_differ(void **state)
{
    (void)state;
    int odd = 2;
    if (run(4, 0, differs, &odd) != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    odd = 0;
    if (run(2, 0, differs, &odd) != TOW_OK) fail_msg("%s", tow_context_error(ctx));
}

/* ---- a standstill ------------------------------------------------------------------------------------------------ */

static void where(char *text, size_t size, void *user)
{
    snprintf(text, size, "step %d, gpt.c:41", *(const int *)user);
}

static int stops(tow_context *context, tow_group *group, void *user)
{
    static int step;
    const int stopped = *(const int *)user;
    tow_group_set_where(group, where, &step);
    tow_array *array = NULL;
    int64_t n = 1000;
    if (tow_array_create(context, tow_make_type(TOW_F32, 1, &n), &array)) return 9;
    for (step = 0; step < 5; step++) {
        if (step == 3 && tow_group_rank(group) == stopped) raise(SIGSTOP);
        if (tow_group_all_reduce(group, 4, array)) return 9;
    }
    return 0;
}

/* One of four is stopped: the others say where they stand, and who has not arrived. */
static void a_rank_is_stopped(void **state)
{
    (void)state;
    int stopped = 2;
    expect_failure(run(4, 1, stops, &stopped), "ended with status 1");
    for (int rank = 0; rank < 4; rank++) {
        char line[80];
        snprintf(line, sizeof line, "tow: rank %d (", rank);
        expect_in(printed, line);
        expect_in(strstr(printed, line), rank == stopped ? "has not arrived" : "nothing has moved for 1 s: all_reduce");
    }
    expect_in(printed, "waits for 2; step 3, gpt.c:41\n");
    const char *first = strstr(printed, "has not arrived");
    assert_null(strstr(first + 1, "has not arrived"));
}

static int goes_astray(tow_context *context, tow_group *group, void *user)
{
    tow_array *array = NULL;
    int64_t n = 1000;
    (void)user;
    if (tow_array_create(context, tow_make_type(TOW_F32, 1, &n), &array)) return 9;
    if (tow_group_rank(group) == 0) return tow_group_broadcast(group, 1, array) ? 9 : 0;
    return tow_group_all_reduce(group, 2, array) || tow_group_barrier(group) ? 9 : 0;
}

/* Both wait, for different things. */
static void programs_part(void **state)
{
    (void)state;
    expect_failure(run(2, 1, goes_astray, NULL), "ended with status 1");
    expect_in(printed, "broadcast (collective 1)");
    expect_in(printed, "all ranks have arrived, but wait for different things");
}

/* A rank that is late, and a watchdog that never looks. */
static int is_late(tow_context *context, tow_group *group, void *user)
{
    (void)context, (void)user;
    if (tow_group_rank(group) == 1) usleep(100000);
    return tow_group_barrier(group) ? 9 : 0;
}

static void a_rank_is_late(void **state)
{
    (void)state;
    assert_int_equal(run(2, 0, is_late, NULL), TOW_OK);
    assert_int_equal(run(3, INFINITY, is_late, NULL), TOW_OK);
    assert_string_equal(printed, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_rank_ends),     cmocka_unit_test(results),
                                       cmocka_unit_test(no_memory),       cmocka_unit_test(runs_allocate_nothing),
                                       cmocka_unit_test(programs_differ), cmocka_unit_test(a_rank_is_stopped),
                                       cmocka_unit_test(programs_part),   cmocka_unit_test(a_rank_is_late)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
