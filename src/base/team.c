/* Runs numbered blocks on OpenMP threads. Without OpenMP everything runs on the caller, with the same results: who runs
 * a block never changes what the block computes. */
#include "src/base/team.h"

#include <sched.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

static void run_range(int64_t begin, int64_t end, void (*body)(void *, int64_t), void *user)
{
    for (int64_t block = begin; block < end; block++) body(user, block);
}

void tow__team_run(const tow__team *team, int64_t blocks, void (*body)(void *user, int64_t block), void *user)
{
#ifdef _OPENMP
    int threads = team != NULL ? team->threads : 1;
    if (blocks < threads) threads = (int)blocks;
    if (threads > 1) {
#pragma omp parallel num_threads(threads)
        {
            /* The runtime may give fewer threads than asked for, so the split uses what there is. */
            int64_t n = omp_get_num_threads(), t = omp_get_thread_num();
            run_range(t * blocks / n, (t + 1) * blocks / n, body, user);
        }
        return;
    }
#else
    (void)team;
#endif
    run_range(0, blocks, body, user);
}

int tow__team_thread(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

int tow__cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
