/* Starts processes that are a group over shared memory, and watches them: when one fails, all end. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include "src/base/options.h"
#include "src/group/group.h"

enum {
    MOST = 64
};

typedef struct started {
    pid_t pids[MOST]; /* 0: has ended, or has not been started */
    int count;
    int failed; /* the first rank that failed; -1: none */
    int how;    /* its status, as waitpid tells it */
    const tow__board *board;
} started;

/* ---- in a new process -------------------------------------------------------------------------------------------- */

/* Ends this process when the one that started it ends, which may have happened already. */
static void end_with(pid_t parent)
{
#if defined(__linux__)
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
#else
    (void)parent;
#endif
}

static int run_rank(tow_context *ctx, tow__board *board, int rank, const tow_processes_options *o,
                    int (*body)(tow_context *context, tow_group *group, void *user), void *user)
{
    tow_group_functions functions;
    tow_group *group = NULL;
    tow_status status = tow__board_join(ctx, board, rank, &functions);
    if (!status)
        status =
            tow_group_create(ctx, &functions, &TOW_GROUP_OPTIONS(.name = o->name, .watchdog = o->watchdog), &group);
    if (status) {
        fprintf(stderr, "tow: rank %d (process %lld): %s\n", rank, (long long)getpid(), tow_context_error(ctx));
        return 1;
    }
    const int result = body(ctx, group, user);
    tow_group_free(group);
    if (result == 0) tow__board_set_returned(board, rank);
    return result;
}

/* ---- in the process that starts them ----------------------------------------------------------------------------- */

/* The exit status keeps eight bits of a result. */
static int exit_status_of(int result) { return (result & 0xff) || result == 0 ? result & 0xff : 1; }

static void kill_all(started *s)
{
    for (int r = 0; r < s->count; r++)
        if (s->pids[r] > 0) kill(s->pids[r], SIGKILL);
    for (int r = 0; r < s->count; r++) {
        while (s->pids[r] > 0 && waitpid(s->pids[r], NULL, 0) < 0 && errno == EINTR) continue;
        s->pids[r] = 0;
    }
}

/* Notes who has ended; true while some have not. */
static bool look(started *s)
{
    bool any = false;
    for (int r = 0; r < s->count && s->failed < 0; r++) {
        int how = 0;
        if (s->pids[r] == 0) continue;
        const pid_t ended = waitpid(s->pids[r], &how, WNOHANG);
        any = true;
        if (ended == 0 || (ended < 0 && errno == EINTR)) continue;
        s->pids[r] = 0;
        if (how != 0 || !tow__board_has_returned(s->board, r)) {
            s->failed = r;
            s->how = how;
        }
    }
    return any && s->failed < 0;
}

static tow_status tell(tow_context *ctx, const started *s, pid_t pid)
{
    if (WIFSIGNALED(s->how))
        return tow__fail(ctx, TOW_INTERRUPTED,
                         "rank %d (process %lld) was killed by signal %d (%s); all others were ended", s->failed,
                         (long long)pid, WTERMSIG(s->how), strsignal(WTERMSIG(s->how)));
    if (s->how == 0)
        return tow__fail(ctx, TOW_INTERRUPTED,
                         "rank %d (process %lld) ended before its function returned; all others were ended", s->failed,
                         (long long)pid);
    return tow__fail(ctx, TOW_INTERRUPTED, "rank %d (process %lld) ended with status %d; all others were ended",
                     s->failed, (long long)pid, WEXITSTATUS(s->how));
}

tow_status tow_processes_run(tow_context *context, const tow_processes_options *options,
                             int (*body)(tow_context *context, tow_group *group, void *user), void *user)
{
    tow_processes_options own = {.count = 1};
    const tow_processes_options *o = options;
    if (!context || !body) return tow__missing(context, __func__, "a context and a function");
    if (!TOW__OPTIONS_TAKE(context, tow_processes_options, o, &own)) return TOW_INVALID_ARGUMENT;
    if (!o) o = &own;
    started s = {.count = o->count == 0 ? 1 : o->count, .failed = -1};
    if (s.count < 1 || s.count > MOST)
        return tow__fail(context, TOW_INVALID_ARGUMENT, "expected .count from 1 to %d processes, found %d", MOST,
                         o->count);
#if !defined(__linux__)
    return tow__fail(context, TOW_UNSUPPORTED, "groups over shared memory need Linux; use MPI (tow/mpi.h)");
#endif
    tow__board *board = tow__board_create(s.count);
    if (!board)
        return tow__fail(context, TOW_OUT_OF_MEMORY, "no memory that %d processes share: %s", s.count, strerror(errno));
    s.board = board;
    pid_t pids[MOST];
    const pid_t parent = getpid();
    tow_status status = TOW_OK;
    fflush(NULL);
    for (int r = 0; r < s.count && !status; r++) {
        pids[r] = s.pids[r] = fork();
        if (s.pids[r] == 0) {
            end_with(parent);
            const int result = run_rank(context, board, r, o, body, user);
            fflush(NULL);
            _exit(exit_status_of(result));
        }
        if (s.pids[r] > 0) continue;
        s.pids[r] = 0;
        status = tow__fail(context, TOW_OUT_OF_MEMORY, "process %d of %d cannot be started: %s", r, s.count,
                           strerror(errno));
    }
    while (!status && look(&s)) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    kill_all(&s);
    tow__board_free(board);
    return status || s.failed < 0 ? status : tell(context, &s, pids[s.failed]);
}
