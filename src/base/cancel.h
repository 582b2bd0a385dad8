/* Cancelling programs from another thread or a signal handler, and ending them at a deadline.
 *
 * A context has a word that says whether somebody asked (tow_context_cancel), and the number of the request that it
 * works for, with a word for the number of the last request that somebody cancelled (tow_request_cancel) and a
 * deadline. Numbers are given out once, so whoever cancels a request that has ended cancels nothing. A run that may be
 * cancelled looks at these at places that are at most a few milliseconds of work apart: between blocks of work
 * (team.c), between iterations of loops and calls of kernels (src/run), and inside of kernels whose blocks may take
 * long. A run that sees a reason remembers it for the whole run, so that everything after it is skipped, too, even if
 * the word is reset meanwhile; what was skipped is never read as a result, because the run ends with TOW_CANCELLED. */
#ifndef TOW_SRC_CANCEL_H
#define TOW_SRC_CANCEL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "tow/base.h"

/* Why a run ends early. */
typedef enum tow__cancel_reason {
    TOW__GOES_ON,
    TOW__ASKED,          /* tow_context_cancel */
    TOW__REQUEST_ASKED,  /* tow_request_cancel */
    TOW__DEADLINE_PASSED /* that of tow_request_begin */
} tow__cancel_reason;

/* Of one run. */
typedef struct tow__cancellation {
    const tow_context *ctx; /* that may be asked; NULL: this run and all within it go to their end */
    tow_request request;    /* of the context when the run began; 0: none */
    int64_t deadline;       /* of the request, nanoseconds of CLOCK_MONOTONIC; INT64_MAX: none */
    atomic_int seen;        /* the reason that was seen first */
} tow__cancellation;

/* The word that a run of a program of `ctx` looks at from here on; ctx NULL: nothing cancels it. */
void tow__cancellation_begin(tow__cancellation *c, const tow_context *ctx);
/* The programs that this thread runs are cancelled by `c` from here on (NULL: nothing can cancel it); returns what it
 * was before, to be put back. */
tow__cancellation *tow__cancellation_enter(tow__cancellation *c);
tow__cancellation *tow__cancellation_now(void);
/* Nothing can: for what must go to its end once it began, and for what that calls. */
tow__cancellation *tow__cancellation_shield(void);
/* Does this thread work for a shielded run? */
bool tow__cancellation_shielded(void);

/* Has the run that this thread works for been cancelled? Then stop: results are not read. A few nanoseconds; with a
 * deadline, a look at the clock. */
bool tow__cancelled(void);
/* The reason for which the context's programs would end now, and the failure that says so: `what` is cut off, and
 * `consequence` is what has become of it. */
tow__cancel_reason tow__cancel_reason_of(const tow_context *ctx);
tow_status tow__fail_cancelled(tow_context *ctx, tow__cancel_reason reason, const char *what, const char *consequence);

#endif
