/* When nothing has moved for too long, every process prints where it stands, the lowest one that answers prints who has
 * not arrived, and all end.
 *
 *   waits a while    receives of reports from all others are begun
 *   at the limit     or when the first report comes: prints a line, sends it to all as a report
 *   a grace later    ranks whose report has not come have not arrived: stopped, computing, or ended
 *
 * A process that is stopped for a while, or kept from the processors, is not to take that for a standstill of the
 * others: each look counts a fraction of the limit at most. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/clock.h"
#include "src/group/group.h"

enum {
    DEFAULT_SECONDS = 60,
    LOOKS = 16, /* that a standstill takes at least */
    EARLY = 64, /* reports are received from this part of the limit on */
    REPORT_TAG = TOW_MESSAGE_TAGS - 1,
    SECOND = 1000000000
};

static size_t others(const tow_group *group) { return (size_t)group->carrier.count - 1; }

tow_status tow__watch_init(tow_group *group, double seconds)
{
    tow__watch *w = &group->watch;
    if (isnan(seconds) || seconds < 0)
        return tow__fail(group->ctx, TOW_INVALID_ARGUMENT,
                         "expected .watchdog of at least 0 seconds, or INFINITY, found %g", seconds);
    if (seconds == 0) seconds = DEFAULT_SECONDS;
    w->limit = seconds < 1e9 ? (int64_t)(seconds * SECOND) : INT64_MAX;
    if (w->limit == INT64_MAX || group->carrier.count == 1) return TOW_OK;
    w->reports = tow__alloc(group->ctx, others(group) + 1, sizeof *w->reports);
    w->messages = tow__alloc(group->ctx, 2 * others(group), sizeof *w->messages);
    return w->reports && w->messages ? TOW_OK : TOW_OUT_OF_MEMORY;
}

void tow__watch_free(tow_group *group)
{
    tow__watch *w = &group->watch;
    if (w->reports) tow__free(group->ctx, w->reports, others(group) + 1, sizeof *w->reports);
    if (w->messages) tow__free(group->ctx, w->messages, 2 * others(group), sizeof *w->messages);
    *w = (tow__watch){.limit = INT64_MAX};
}

void tow__watch_reset(tow_group *group)
{
    group->watch.idle = 0;
    group->watch.last = group->watch.limit < INT64_MAX ? tow__nanoseconds() : 0;
}

/* Nanoseconds since the last look that count, of a time of `limit`. */
static int64_t counted(tow__watch *w, int64_t limit)
{
    const int64_t now = tow__nanoseconds(), passed = now - w->last, most = limit / LOOKS;
    w->last = now;
    return passed < most ? passed : most;
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

/* Messages [first, first + others) to or from all others. */
static void *begin(tow_group *group, size_t first, bool sends)
{
    tow__watch *w = &group->watch;
    void *request = NULL;
    size_t n = first;
    for (int r = 0; r < group->carrier.count; r++)
        if (r != group->carrier.rank)
            w->messages[n++] =
                (tow_message){r, sends, false, &w->reports[sends ? group->carrier.rank : r], sizeof *w->reports};
    if (group->carrier.exchange(w->messages + first, others(group), REPORT_TAG, &request, group->carrier.user))
        return NULL;
    return request;
}

/* Moves reports, and waits so many seconds for them. */
static void move(tow_group *group, double seconds)
{
    tow__watch *w = &group->watch;
    size_t left;
    if (w->sends && (group->carrier.test(w->sends, 0, &left, group->carrier.user) || left == 0)) w->sends = NULL;
    if (w->receives && (group->carrier.test(w->receives, seconds, &left, group->carrier.user) || left == 0))
        w->receives = NULL;
}

/* True if the rank's report has come. */
static bool reports(const tow_group *group, int rank)
{
    const size_t i = (size_t)(rank < group->carrier.rank ? rank : rank - 1);
    return group->watch.messages[i].done;
}

static int count_reports(const tow_group *group, int below)
{
    int n = 0;
    for (int r = 0; r < below; r++) n += r != group->carrier.rank && reports(group, r);
    return n;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void print_own(tow_group *group, const tow__collective *c)
{
    const int rank = group->carrier.rank;
    char text[TOW__REPORT_BYTES] = "", where[TOW__REPORT_BYTES / 2] = "";
    tow__collective_text(c, text, sizeof text);
    if (group->where) group->where(where, sizeof where, group->where_user);
    where[sizeof where - 1] = '\0';
    snprintf(group->watch.reports[rank].text, TOW__REPORT_BYTES, "%.200s%s%.250s", text, *where ? "; " : "", where);
    fprintf(stderr, "tow: rank %d (%s): nothing has moved for %.3g s: %s\n", rank, group->hosts[rank],
            (double)group->watch.limit / SECOND, group->watch.reports[rank].text);
    fflush(stderr);
}

static void print_missing(tow_group *group)
{
    int missing = 0;
    for (int r = 0; r < group->carrier.count; r++) {
        if (r == group->carrier.rank || reports(group, r)) continue;
        fprintf(stderr, "tow: rank %d (%s) has not arrived: it is stopped, has ended, or computes\n", r,
                group->hosts[r]);
        missing++;
    }
    if (missing == 0)
        fputs("tow: all ranks have arrived, but wait for different things: their programs differ\n", stderr);
    fputs("tow: all processes of the group end\n", stderr);
    fflush(stderr);
}

/* A time in which the others can answer. */
static void wait_for_reports(tow_group *group, int n)
{
    tow__watch *w = &group->watch;
    const int64_t grace = w->limit < SECOND ? SECOND : w->limit > 5LL * SECOND ? 5LL * SECOND : w->limit;
    int64_t waited = 0;
    w->last = tow__nanoseconds();
    while (waited < grace && count_reports(group, group->carrier.count) < n) {
        const int64_t before = tow__nanoseconds();
        move(group, 1e-2);
        waited += counted(w, grace);
        if (tow__nanoseconds() - before < SECOND / 1000) /* a carrier that does not wait */
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static void end_all(tow_group *group, const tow__collective *c)
{
    const int count = group->carrier.count;
    print_own(group, c);
    if (!group->watch.begun) group->watch.receives = begin(group, 0, false);
    group->watch.begun = true;
    group->watch.sends = begin(group, others(group), true);
    wait_for_reports(group, count - 1);
    if (count_reports(group, group->carrier.rank) == 0)
        print_missing(group);
    else
        wait_for_reports(group, count); /* the lowest one says the rest, and ends all */
    group->carrier.abort(1, group->carrier.user);
    _Exit(1);
}

void tow__watch_idle(tow_group *group, tow__collective *c)
{
    tow__watch *w = &group->watch;
    if (w->limit == INT64_MAX) return;
    w->idle += counted(w, w->limit);
    if (w->idle < w->limit / EARLY) return;
    if (!w->begun) {
        w->begun = true;
        w->receives = begin(group, 0, false);
    }
    move(group, 0);
    if (w->idle >= w->limit || count_reports(group, group->carrier.count) > 0) end_all(group, c);
}
