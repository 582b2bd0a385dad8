/* Machines for which programs are planned in tests: what plans decide depends on them, bits do not. They are far apart,
 * so each threshold of the compiler has one of them on each side. */
#ifndef TOW_TESTS_MACHINES_H
#define TOW_TESTS_MACHINES_H

#include <stdio.h>
#include <stdlib.h>

/* Between begin and end, programs are planned for this machine; NULL: the one that it is without. They do not nest. */
static char machine_before[512];

static inline void given_machine_begin(const char *machine)
{
    const char *now = getenv("TOW_MACHINE");
    snprintf(machine_before, sizeof machine_before, "%s", now ? now : "");
    if (machine) setenv("TOW_MACHINE", machine, 1);
}

static inline void given_machine_end(void) { setenv("TOW_MACHINE", machine_before, 1); /* "": none is given */ }

enum {
    N_GIVEN_MACHINES = 6
};

static const char *const given_machines[N_GIVEN_MACHINES] = {
    /* tiny caches that cost nothing, threads that meet at once: everything is cut as finely as it can be */
    "l1=256,l2=1K,l3=8K,vector=32,threads=64,l3_rate=100000,memory_rate=50000,shared_rate=1000000,meeting=0,overhead=0",
    /* the same for one thread, with slow memory */
    "l1=256,l2=1K,l3=8K,vector=32,threads=1,l3_rate=100,memory_rate=1,meeting=0,overhead=0",
    /* huge caches, two threads */
    "l1=1G,l2=16G,l3=256G,vector=64,threads=2,meeting=0,overhead=0",
    /* threads and calls that cost a second: nothing is shared or cut */
    "l1=32K,l2=512K,l3=32M,vector=32,threads=64,meeting=1000000000,overhead=1000000000",
    /* no caches at all, slow products, fast memory */
    "l1=0,l2=0,l3=0,vector=0,threads=3,f32=1,f64=1,memory_rate=100000,shared_rate=100000,meeting=1,overhead=1",
    /* a processor of today */
    "l1=32K,l2=512K,l3=32M,vector=32,threads=2",
};

#endif
