/* Recording runs. All memory is taken when recording is switched on; a run only fills it. */
#include "src/run/record.h"

enum {
    MOST_EVENTS = 1 << 20 /* per thread; what comes later is counted, not kept */
};

/* Events of one run on one thread, at most. */
static double count_events(const tow__code *code, bool first_thread)
{
    double n = first_thread ? code->n : 0;
    for (uint32_t i = 0; i < code->n; i++) {
        const tow__executable_loop *loop = code->calls[i].loop;
        if (!loop) continue;
        const bool rows = loop->schedule == TOW__PARALLEL_ROWS, any_thread = rows || tow__is_parallel(loop->schedule);
        const double events = any_thread ? loop->codes[0].n : count_events(&loop->codes[0], first_thread);
        const double iterations = loop->length < MOST_EVENTS ? (double)loop->length : MOST_EVENTS;
        n += iterations * (rows ? (double)loop->blocks : 1) * events;
    }
    return n;
}

void tow__recording_free(tow__recording *r)
{
    if (!r) return;
    for (int i = 0; r->lanes && i < r->n_lanes; i++)
        tow__free(r->ctx, r->lanes[i].events, r->lanes[i].capacity, sizeof *r->lanes[i].events);
    tow__free(r->ctx, r->lanes, (size_t)r->n_lanes, sizeof *r->lanes);
    tow__free(r->ctx, r, 1, sizeof *r);
}

void tow__recording_reset(tow__recording *r)
{
    for (int i = 0; i < r->n_lanes; i++) r->lanes[i].n = r->lanes[i].dropped = 0;
    r->start = tow__record_now();
}

tow_status tow__record_runs(tow__executable *x, bool on)
{
    if (on && x->recording) return TOW_OK;
    if (!on) {
        tow__recording_free(x->recording);
        x->recording = NULL;
        return TOW_OK;
    }
    tow__recording *r = tow__alloc(x->ctx, 1, sizeof *r);
    if (!r) return TOW_OUT_OF_MEMORY;
    r->ctx = x->ctx;
    r->n_lanes = x->team->threads > 1 ? x->team->threads : 1;
    r->lanes = tow__alloc(x->ctx, (size_t)r->n_lanes, sizeof *r->lanes);
    for (int i = 0; r->lanes && i < r->n_lanes; i++) {
        double n = count_events(&x->code, i == 0);
        r->lanes[i].capacity = n < MOST_EVENTS ? (size_t)n + 1 : MOST_EVENTS;
        r->lanes[i].events = tow__alloc(x->ctx, r->lanes[i].capacity, sizeof *r->lanes[i].events);
        if (r->lanes[i].events) continue;
        r->lanes[i].capacity = 0;
        tow__recording_free(r);
        return TOW_OUT_OF_MEMORY;
    }
    if (!r->lanes) {
        tow__recording_free(r);
        return TOW_OUT_OF_MEMORY;
    }
    x->recording = r;
    return TOW_OK;
}
