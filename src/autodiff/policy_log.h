/* The effect of the policies of a graph's regions when it is differentiated, and sentences about those that have none.
 * Splits of regions fill it (remat.c), lists of residuals ask (residuals.c). Only the outermost region around a value
 * decides what crosses from forward to backward, so only those are in it. */
#ifndef TOW_SRC_POLICY_LOG_H
#define TOW_SRC_POLICY_LOG_H

#include "src/autodiff/autodiff.h"

typedef struct tow__policy_entry tow__policy_entry;

typedef struct tow__policy_log {
    tow__arena *arena; /* of all that it keeps */
    tow__policy_entry *first, *last;
    bool failed; /* out of memory */
} tow__policy_log;

/* Region e has been split: its policy saves so many values, and keeps any of them or not. tally NULL: nothing in e is
 * differentiated. Equations that are no regions which somebody wrote, and policies that are to save nothing, are
 * left out. */
void tow__log_policy(tow__policy_log *log, const tow__equation *e, const tow__policy_tally *tally, bool keeps);
/* One sentence for each policy and reason, in the arena of the log. */
tow_status tow__policy_notes(tow__policy_log *log, size_t *n, const char *const **notes);

#endif
