/* A team of threads: the caller and workers that belong to a context. Blocks are numbered by shapes; where the number
 * of threads decides how work is cut, it is between elements of results, never within a sum. They are handed out
 * statically: thread t of n runs blocks t*blocks/n .. (t+1)*blocks/n.
 *
 * All teams of a context share one crew of workers, which start when the first team that has use for them is made and
 * end with the context. Idle workers spin for a tenth of a millisecond, so that handing out work costs about a
 * microsecond, and then sleep. While the crew is busy (a body that runs a team, two threads that share a context
 * against the rules) and in a forked child, which has no workers, everything runs on the caller: slower, never wrong.
 */
#ifndef TOW_SRC_TEAM_H
#define TOW_SRC_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tow/base.h"

typedef struct tow__crew tow__crew;

/* {1} is a complete team of the caller alone. */
typedef struct tow__team {
    int threads;
    tow__crew *crew;                         /* NULL: everything runs on the caller */
    const struct tow__gemm_choice *products; /* what the context says (src/kernels/products/gemm.h); NULL: the rule */
} tow__team;

enum {
    TOW__WORTH_WAKING = 8000 /* nanoseconds of work from which threads gain more than their meeting costs */
};

/* A team of tow__team_size(threads) threads at most; starts the workers that it needs. Nothing has to be freed. Errors:
 * TOW_OUT_OF_MEMORY (also when the system gives no more threads). */
tow_status tow__team_create(tow_context *ctx, int threads, tow__team *team);

/* Calls body(user, block) for block in [0, blocks), on the team if threads > 1 and blocks > 1, and returns when all are
 * done. A body runs no team of its own. If the run is cancelled (cancel.h), blocks are left out. */
void tow__team_run(const tow__team *team, int64_t blocks, void (*body)(void *user, int64_t block), void *user);
/* The same for a body that picks scratch memory by the thread that runs it, 0 .. team->threads - 1. */
void tow__team_run_indexed(const tow__team *team, int64_t blocks, void (*body)(void *user, int64_t block, int thread),
                           void *user);
/* The team for work that takes one thread about `nanoseconds`: NULL, the caller alone, if that is not worth waking
 * others. The estimate comes from shapes alone. */
static inline const tow__team *tow__team_for(const tow__team *team, double nanoseconds)
{
    return nanoseconds < (double)TOW__WORTH_WAKING ? NULL : team;
}
/* Inside a body: which thread of the team runs it, 0 .. team->threads - 1. Picks scratch memory, never work. */
int tow__team_thread(void);
/* CPUs that the affinity mask allows. */
int tow__cpu_count(void);
/* The number of threads, of `threads`, that run: no more than there are such CPUs. */
int tow__team_size(int threads);

/* Ends the workers of a context. NULL is accepted. */
void tow__crew_free(tow_context *ctx, tow__crew *crew);

#endif
