/* Cancelling programs from another thread or a signal handler.
 *
 * A context has a word that says whether somebody asked (tow_cancel). A run that may be cancelled looks at it at places that
 * are at most a few milliseconds of work apart: between blocks of work (team.c), between iterations of loops and calls of
 * kernels (src/run), and inside of kernels whose blocks may take long. What sees it remembers so for the whole run, so that
 * everything after it is skipped, too, even if the word is reset meanwhile; what was skipped is never read as a result,
 * because the run ends with TOW_CANCELLED. */
#ifndef TOW_SRC_CANCEL_H
#define TOW_SRC_CANCEL_H

#include <stdatomic.h>
#include <stdbool.h>

/* Of one run. */
typedef struct tow__cancellation {
    const atomic_int *asked; /* of the context; NULL: this run and all within it go to their end */
    atomic_int seen;
} tow__cancellation;

/* What this thread runs now is cancelled by `c` from here on (NULL: nothing can cancel it); returns what it was before, to be
 * put back. */
tow__cancellation *tow__cancellation_enter(tow__cancellation *c);
tow__cancellation *tow__cancellation_now(void);
/* Nothing can: for what must go to its end once it began, and for what that calls. */
tow__cancellation *tow__cancellation_shield(void);
/* Does this thread work for a shielded run? */
bool tow__cancellation_shielded(void);

/* Has the run that this thread works for been cancelled? Then stop: results are not read. A few nanoseconds. */
bool tow__cancelled(void);

#endif
