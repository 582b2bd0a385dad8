/* Recordings of runs: when each call began and ended, on which thread. */
#ifndef TOW_SRC_RUN_RECORD_H
#define TOW_SRC_RUN_RECORD_H

#include "src/base/clock.h"
#include "src/run/program.h"

typedef struct tow__event {
    const struct tow__instruction *origin; /* of the call */
    int64_t block;                         /* of rows, or an iteration; -1: none */
    double start, end;
} tow__event;

/* The record of one thread. A full lane counts what it drops. */
typedef struct tow__lane {
    tow__event *events;
    size_t n, capacity, dropped;
} tow__lane;

struct tow__recording {
    tow_context *ctx;
    double start; /* of the run */
    int n_lanes;
    tow__lane *lanes;
};

/* Microseconds. */
static inline double tow__record_now(void) { return 1e-3 * (double)tow__nanoseconds(); }

/* Called by `thread` alone for its lane. */
static inline void tow__record(tow__recording *r, int thread, const struct tow__instruction *origin, int64_t block,
                               double start)
{
    tow__lane *lane = &r->lanes[thread];
    if (lane->n < lane->capacity)
        lane->events[lane->n++] = (tow__event){origin, block, start, tow__record_now()};
    else
        lane->dropped++;
}

/* Takes the memory of a recording, or gives it back. */
tow_status tow__record_runs(tow__executable *x, bool on);
/* Before a run. */
void tow__recording_reset(tow__recording *r);
/* NULL is accepted. */
void tow__recording_free(tow__recording *r);

#endif
