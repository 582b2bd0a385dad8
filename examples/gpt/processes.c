/* Starts the processes of a run. MPI is asked for only where it has started the program: its library, a component of
 * its own, is loaded then. */
#include "processes.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/common.h"

#ifndef GPT_MPI_LIBRARY
#define GPT_MPI_LIBRARY "libtow_mpi.so"
#endif

bool started_by_mpi(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (getenv(sizes[i])) return true;
    return false;
}

int usable_cpus(void)
{
    cpu_set_t set;
    const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? n : 1;
}

/* ---- mpirun ------------------------------------------------------------------------------------------------------ */

typedef tow_status (*create_function)(tow_context *context, const void *communicator, const tow_group_options *options,
                                      tow_group **group);

static int run_with_mpi(tow_context *context, double watchdog,
                        int (*body)(tow_context *context, tow_group *group, void *user), void *user)
{
    void *library = dlopen(GPT_MPI_LIBRARY, RTLD_NOW | RTLD_GLOBAL); /* MPI loads parts of itself that need it */
    void *symbol = library ? dlsym(library, "tow_mpi_create") : NULL;
    create_function create;
    tow_group *group = NULL;
    if (!symbol) {
        fprintf(stderr,
                "gpt: this program was started by mpirun, and the library that joins its processes cannot be loaded: "
                "%s; build Tow with -DTOW_MPI=ON, or start gpt --processes N without mpirun\n",
                dlerror());
        return FAILURE;
    }
    memcpy(&create, &symbol, sizeof create);
    if (create(context, NULL, &TOW_GROUP_OPTIONS(.watchdog = watchdog), &group) != TOW_OK)
        return report_error("gpt", context);
    const int status = body(context, group, user);
    tow_group_free(group);
    return status;
}

/* ---- fork -------------------------------------------------------------------------------------------------------- */

/* Shared by all processes. */
typedef struct board {
    volatile sig_atomic_t ends; /* the one that was started has got SIGTERM */
    int interrupted;
} board;

typedef struct forked {
    int (*body)(tow_context *context, tow_group *group, void *user);
    void *user;
} forked;

static board *shared; /* NULL: there is one process, or MPI has started them */

static void tell_all(int signal_number)
{
    (void)signal_number;
    shared->ends = 1;
}

bool asked_to_end(void) { return shared && shared->ends != 0; }

static int run_forked(tow_context *context, tow_group *group, void *user)
{
    const forked *f = user;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    const int status = f->body(context, group, f->user);
    if (status != INTERRUPTED) return status;
    shared->interrupted = 1;
    return SUCCESS;
}

static int fork_all(tow_context *context, int64_t count, double watchdog,
                    int (*body)(tow_context *context, tow_group *group, void *user), void *user)
{
    forked f = {body, user};
    void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fputs("gpt: out of memory\n", stderr);
        return FAILURE;
    }
    shared = memory;
    signal(SIGINT, SIG_IGN); /* Ctrl-C is for the processes that train, which end by themselves */
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = tell_all, .sa_flags = SA_RESTART}, NULL);
    const tow_processes_options options = TOW_PROCESSES_OPTIONS(.count = (int)count, .watchdog = watchdog);
    const tow_status status = tow_processes_run(context, &options, run_forked, &f);
    const bool was_interrupted = shared->interrupted != 0;
    signal(SIGTERM, SIG_DFL);
    shared = NULL;
    munmap(memory, sizeof *shared);
    if (status != TOW_OK) return report_error("gpt", context);
    return was_interrupted ? INTERRUPTED : SUCCESS;
}

int run_in_processes(tow_context *context, int64_t count, double watchdog,
                     int (*body)(tow_context *context, tow_group *group, void *user), void *user)
{
    if (started_by_mpi()) return run_with_mpi(context, watchdog, body, user);
    return count > 1 ? fork_all(context, count, watchdog, body, user) : body(context, NULL, user);
}

int plan_for_processes(tow_context *context, int64_t rank, int64_t count,
                       int (*body)(tow_context *context, tow_group *group, void *user), void *user)
{
    tow_group *group = NULL;
    if (tow_group_plan_only(context, (int)rank, (int)count, NULL, &group) != TOW_OK)
        return report_error("gpt", context);
    const int status = body(context, group, user);
    tow_group_free(group);
    return status;
}
