/* Thread teams: every block runs once, threads own their index, nested and forked use falls back to the caller,
 * contexts in different threads are independent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/base/team.h"

enum {
    BLOCKS = 64
};

typedef struct counts {
    const tow__team *team;
    int blocks[BLOCKS]; /* how often each ran */
    int thread[BLOCKS]; /* who ran it */
    atomic_int inside[BLOCKS];
    atomic_int clashes; /* two bodies at once with one thread index */
} counts;

static void count_block(void *user, int64_t block, int thread)
{
    counts *c = user;
    if (atomic_fetch_add(&c->inside[thread], 1) != 0) atomic_fetch_add(&c->clashes, 1);
    c->blocks[block]++;
    c->thread[block] = thread;
    if (thread != tow__team_thread()) atomic_fetch_add(&c->clashes, 1);
    atomic_fetch_sub(&c->inside[thread], 1);
}

static void check_counts(const counts *c, int64_t blocks, int threads)
{
    assert_int_equal(atomic_load(&c->clashes), 0);
    int64_t used = blocks < threads ? blocks : threads;
    for (int64_t i = 0; i < BLOCKS; i++) {
        assert_int_equal(c->blocks[i], i < blocks);
        if (i >= blocks) continue;
        int t = c->thread[i];
        assert_true(t < used && t * blocks / used <= i && i < (t + 1) * blocks / used);
    }
}

static tow_context *context(int threads)
{
    tow_context *ctx;
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = threads), &ctx), TOW_OK);
    return ctx;
}

static void every_block_runs_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        tow_context *ctx = context(threads);
        tow__team team;
        assert_int_equal(tow__team_create(ctx, threads, &team), TOW_OK);
        assert_true(team.threads <= tow__cpu_count() && team.threads <= threads);
        for (int64_t blocks = 0; blocks <= BLOCKS; blocks++) {
            counts c = {0};
            tow__team_run_indexed(&team, blocks, count_block, &c);
            check_counts(&c, blocks, team.threads);
        }
        tow_context_free(ctx);
    }
}

/* Pauses longer than the spin, so that workers and the caller sleep and are woken. */
static void slow_block(void *user, int64_t block, int thread)
{
    if (thread > 0) nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    count_block(user, block, thread);
}

static void sleeping_threads_are_woken(void **state)
{
    (void)state;
    tow_context *ctx = context(2);
    tow__team team;
    assert_int_equal(tow__team_create(ctx, 2, &team), TOW_OK);
    for (int i = 0; i < 50; i++) {
        counts c = {0};
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        tow__team_run_indexed(&team, 2, slow_block, &c);
        check_counts(&c, 2, team.threads);
    }
    tow_context_free(ctx);
}

static void run_inner(void *user, int64_t block)
{
    counts *c = (counts *)user + block;
    int before = tow__team_thread();
    tow__team_run_indexed(c->team, 3, count_block, c);
    if (tow__team_thread() != before) atomic_fetch_add(&c->clashes, 1);
}

static void nested_teams_run_on_their_caller(void **state)
{
    (void)state;
    tow_context *ctx = context(2);
    tow__team team;
    assert_int_equal(tow__team_create(ctx, 2, &team), TOW_OK);
    counts inner[BLOCKS];
    memset(inner, 0, sizeof inner);
    for (int i = 0; i < BLOCKS; i++) inner[i].team = &team;
    tow__team_run(&team, BLOCKS, run_inner, inner);
    for (int i = 0; i < BLOCKS; i++) check_counts(&inner[i], 3, 1);
    tow_context_free(ctx);
}

/* In the child there are no workers: the team still works, and its context can be destroyed. */
static void teams_survive_a_fork(void **state)
{
    (void)state;
    tow_context *ctx = context(2);
    tow__team team;
    assert_int_equal(tow__team_create(ctx, 2, &team), TOW_OK);
    counts c = {0};
    tow__team_run_indexed(&team, BLOCKS, count_block, &c);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        memset(&c, 0, sizeof c);
        alarm(60);
        tow__team_run_indexed(&team, BLOCKS, count_block, &c);
        int good = 0;
        for (int i = 0; i < BLOCKS; i++) good += c.blocks[i] == 1 && c.thread[i] == 0;
        tow_context_free(ctx);
        _exit(good == BLOCKS ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    memset(&c, 0, sizeof c);
    tow__team_run_indexed(&team, BLOCKS, count_block, &c);
    check_counts(&c, BLOCKS, team.threads);
    tow_context_free(ctx);
}

static void *run_own_context(void *failures)
{
    tow_context *ctx;
    tow__team team;
    if (tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 2), &ctx) != TOW_OK) return failures;
    if (tow__team_create(ctx, 2, &team) != TOW_OK) return failures;
    for (int i = 0; i < 2000; i++) {
        counts c = {0};
        tow__team_run_indexed(&team, BLOCKS, count_block, &c);
        for (int k = 0; k < BLOCKS; k++)
            if (c.blocks[k] != 1) atomic_fetch_add((atomic_int *)failures, 1);
        if (atomic_load(&c.clashes)) atomic_fetch_add((atomic_int *)failures, 1);
    }
    tow_context_free(ctx);
    return NULL;
}

static void contexts_in_threads_are_independent(void **state)
{
    (void)state;
    pthread_t threads[3];
    atomic_int failures = 0;
    void *result;
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_own_context, &failures), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    assert_int_equal(atomic_load(&failures), 0);
}

static void *refuse(void *pointer, size_t old_size, size_t size, void *user)
{
    (void)old_size;
    if (size == 0) {
        free(pointer);
        return NULL;
    }
    return (*(int *)user)-- > 0 ? aligned_alloc(64, (size + 63) / 64 * 64) : NULL;
}

static void failing_allocations_are_reported(void **state)
{
    (void)state;
    if (tow__cpu_count() < 2) skip();
    int allocations = 1;
    tow_context *ctx;
    tow__team team;
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.allocator = {refuse, &allocations}, .threads = 2);
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    assert_int_equal(tow__team_create(ctx, 2, &team), TOW_OUT_OF_MEMORY);
    assert_true(strlen(tow_context_error(ctx)) > 0);
    allocations = 1;
    assert_int_equal(tow__team_create(ctx, 2, &team), TOW_OK);
    tow_context_free(ctx);
}

static void little_work_stays_with_the_caller(void **state)
{
    (void)state;
    tow__team team = {2, NULL};
    assert_null(tow__team_for(&team, 100));
    assert_ptr_equal(tow__team_for(&team, 1e6), &team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_runs_once),
        cmocka_unit_test(sleeping_threads_are_woken),
        cmocka_unit_test(nested_teams_run_on_their_caller),
        cmocka_unit_test(teams_survive_a_fork),
        cmocka_unit_test(contexts_in_threads_are_independent),
        cmocka_unit_test(failing_allocations_are_reported),
        cmocka_unit_test(little_work_stays_with_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
