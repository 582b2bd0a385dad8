/* An update (analysis/updates.c) stands at the end of the graph. Here it moves up to where all that it reads is made
 * and everybody else has read what it replaces: directly behind the gradient, if the parameter is not needed any more,
 * so that the gradient dies early.
 *
 *   0  dx = dot(dy, w)                           0  dx = dot(dy, w)
 *   1  dw = dot(x, dy)                           1  dw = dot(x, dy)
 *   2  ...                           ──>         4  w' = w - a dw        in the place of w
 *   4  w' = w - a dw                             2  ...
 *
 * Instructions that compute small numbers of inputs alone (rates) go first. If functions of the caller's are called,
 * which may end the run, all stay: a run must be able to finish the replacements that it has begun. */
#include "src/plan/analysis/columns.h"
#include "src/plan/analysis/view.h"
#include "src/plan/memory/memory.h"
#include "src/plan/pass.h"

enum {
    SMALL = 64 /* bytes of results that may be alive all the time */
};

/* ---- when they run ----------------------------------------------------------------------------------------------- */

typedef struct hastening {
    const tow_program *p;
    tow__body *body;
    const tow__uses *uses;
    const bool *updates;
    bool *first;           /* [n_insts] small, and of inputs alone: it runs before all others */
    uint32_t *others_read; /* [n_storages] after so many instructions nobody but updates reads it */
    uint32_t *times;       /* [n_insts] of updates: after how many of the instructions */
} hastening;

static uint32_t producer_of(const hastening *h, const tow__view *x) { return h->uses->producer[x->storage]; }

static bool runs_first(const hastening *h, const tow__instruction *inst)
{
    size_t bytes = 0;
    if (inst->loop || inst->op->kind != TOW__ELEMENTWISE) return false;
    for (uint32_t k = 0; k < inst->n_out; k++) {
        bytes += tow_type_bytes(inst->out[k].type);
        if (h->p->storages[inst->out[k].storage].kind != TOW__S_ARENA) return false;
    }
    for (uint32_t j = 0; j < inst->n_in; j++) {
        const uint32_t made = producer_of(h, &inst->in[j]);
        if (made != TOW__NONE && !h->first[made]) return false;
    }
    return bytes <= SMALL;
}

static void find_own_times(const hastening *h)
{
    for (uint32_t i = 0; i < h->body->n_insts; i++) {
        const tow__instruction *inst = &h->body->insts[i];
        h->first[i] = !h->updates[i] && runs_first(h, inst);
        for (uint32_t j = 0; j < inst->n_in && !h->updates[i]; j++) h->others_read[inst->in[j].storage] = i + 1;
    }
    for (uint32_t i = 0; i < h->body->n_insts; i++) {
        const tow__instruction *inst = &h->body->insts[i];
        uint32_t time = 0;
        for (uint32_t j = 0; j < inst->n_in && h->updates[i]; j++) {
            const uint32_t made = producer_of(h, &inst->in[j]);
            if (made != TOW__NONE && !h->updates[made] && !h->first[made] && made + 1 > time) time = made + 1;
        }
        for (uint32_t k = 0; k < inst->n_out && h->updates[i]; k++) {
            const uint32_t home = tow__home_of(h->p, h->body, inst->out[k].storage);
            if (home != TOW__NONE && h->others_read[home] > time) time = h->others_read[home];
        }
        h->times[i] = time;
    }
}

/* Updates that read one another's results get the latest of their times. */
static void join_times(const hastening *h)
{
    for (bool changes = true; changes;) {
        changes = false;
        for (uint32_t i = 0; i < h->body->n_insts; i++) {
            const tow__instruction *inst = &h->body->insts[i];
            for (uint32_t j = 0; j < inst->n_in && h->updates[i]; j++) {
                const uint32_t made = producer_of(h, &inst->in[j]);
                if (made == TOW__NONE || !h->updates[made] || h->times[made] == h->times[i]) continue;
                h->times[made] = h->times[i] = h->times[made] > h->times[i] ? h->times[made] : h->times[i];
                changes = true;
            }
        }
    }
}

/* None runs later than it would: others may read what it makes. */
static void bound_times(const hastening *h)
{
    for (uint32_t i = 0; i < h->body->n_insts; i++)
        if (h->times[i] > i) h->times[i] = i;
}

/* [n_insts] the first update of each time, and the next one of the same time after each: in their order. */
typedef struct schedule {
    uint32_t *begin, *next;
} schedule;

static tow_status reorder(const hastening *h, tow__arena *scratch)
{
    const uint32_t n = h->body->n_insts;
    tow__instruction *insts = tow__arena_alloc(scratch, n, sizeof *insts);
    schedule s = {tow__arena_alloc(scratch, (size_t)n + 1, sizeof *s.begin),
                  tow__arena_alloc(scratch, n, sizeof *s.next)};
    uint32_t count = 0;
    if (!insts || !s.begin || !s.next) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i <= n; i++) s.begin[i] = TOW__NONE;
    for (uint32_t i = n; i-- > 0;) {
        if (!h->updates[i]) continue;
        s.next[i] = s.begin[h->times[i]];
        s.begin[h->times[i]] = i;
    }
    for (uint32_t i = 0; i < n; i++)
        if (h->first[i]) insts[count++] = h->body->insts[i];
    for (uint32_t time = 0; time <= n; time++) {
        for (uint32_t i = s.begin[time]; i != TOW__NONE; i = s.next[i]) insts[count++] = h->body->insts[i];
        if (time < n && !h->updates[time] && !h->first[time]) insts[count++] = h->body->insts[time];
    }
    memcpy(h->body->insts, insts, n * sizeof *insts);
    return TOW_OK;
}

tow_status tow__hasten_updates(tow__function_state *s)
{
    hastening h = {.p = s->p, .body = s->body, .uses = tow__get_uses(s), .updates = tow__find_updates(s)};
    const uint32_t n = s->body->n_insts;
    bool any = false;
    if (!h.uses || !h.updates) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) any |= h.updates[i];
    if (!any || s->p->calls_host) return TOW_OK;
    h.first = tow__arena_alloc(s->scratch, n, sizeof *h.first);
    h.times = tow__arena_alloc(s->scratch, n, sizeof *h.times);
    h.others_read = tow__borrow(s->p, s->scratch, sizeof *h.others_read, 0);
    if (!h.first || !h.times || !h.others_read) return TOW_OUT_OF_MEMORY;
    find_own_times(&h);
    join_times(&h);
    bound_times(&h);
    tow_status status = reorder(&h, s->scratch);
    tow__give_back(s->p, h.others_read, s->body->insts, n, NULL);
    tow__invalidate(s);
    return status;
}
