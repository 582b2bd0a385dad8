/* A team of threads for one context or program. Blocks are numbered by shapes, never by the number of threads, and
 * handed out statically: thread t of n runs blocks t*blocks/n .. (t+1)*blocks/n. */
#ifndef TOW_SRC_TEAM_H
#define TOW_SRC_TEAM_H

#include <stddef.h>
#include <stdint.h>

typedef struct tow__team {
    int threads;
} tow__team;

/* Calls body(user, block) for block in [0, blocks), on the team if threads > 1 and blocks > 1, and returns when all are
 * done. A body runs no team of its own. */
void tow__team_run(const tow__team *team, int64_t blocks, void (*body)(void *user, int64_t block), void *user);
/* Inside a body: which thread of the team runs it, 0 .. team->threads - 1. Picks scratch memory, never work. */
int tow__team_thread(void);
/* CPUs that the affinity mask allows. */
int tow__cpu_count(void);

#endif
