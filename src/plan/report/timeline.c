/* Timeline of live bytes by group. The first walk through the plans lists the groups. Further walks list coarser
 * groups, until a picture can tell them apart. The last walk adds up bytes. */
#include "src/plan/report/timeline.h"
#include "src/ops/collective.h"
#include "src/plan/analysis/phase.h"

enum {
    WRITTEN_OUT = 4000, /* places of a loop whose iterations are written out, at most */
    DEEPEST = 4         /* components of a scope that distinguish groups, at most */
};

typedef struct walk {
    tow__timeline *t;
    bool *scratch, *block;      /* [n_storages] scratch of a kernel; arena of a loop's body */
    int depth[TOW__LIVE_KINDS]; /* components of scopes that distinguish the groups of a kind */
    bool counts;                /* the last walk: bytes are added to the groups */
    bool crowded;               /* there are more groups than the timeline has room for */
} walk;

static uint32_t plan_length(const tow__body *body);

static uint32_t iterations_shown(const tow__loop *loop)
{
    if (tow__is_parallel(loop->schedule) || loop->stops || loop->length < 1) return 1;
    return (double)loop->length * plan_length(loop->body) <= WRITTEN_OUT ? (uint32_t)loop->length : 1;
}

static uint32_t inst_length(const tow__instruction *inst)
{
    return inst->loop ? iterations_shown(inst->loop) * plan_length(inst->loop->body) : 1;
}

/* Number of places in one pass through a plan. */
static uint32_t plan_length(const tow__body *body)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) n += inst_length(&body->insts[i]);
    return n ? n : 1;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* Length of the first `depth` components of a scope. */
static size_t prefix_length(const char *scope, int depth)
{
    size_t length = 0;
    for (int i = 0; scope && i < depth && scope[length]; i++) {
        length += i > 0; /* the '/' */
        length += strcspn(scope + length, "/");
    }
    return length;
}

/* The storage in a loop's body that holds result `s` of the loop, or TOW__NONE. */
static uint32_t inner_storage(const tow_program *p, const tow__instruction *inst, uint32_t s)
{
    const tow__loop *loop = inst->loop;
    uint32_t k = 0;
    while (k < inst->n_out && tow__representative(p, inst->out[k].storage) != s) k++;
    if (k == inst->n_out) return TOW__NONE;
    if (k < loop->n_carry) return tow__representative(p, loop->carry[k].out);
    if (k - loop->n_carry >= loop->n_ys) return TOW__NONE; /* a sum of a tile group */
    if (loop->ys[k - loop->n_carry].row != TOW__NONE) return tow__representative(p, loop->ys[k - loop->n_carry].row);
    for (uint32_t i = 0; i < loop->n_carry; i++)
        if (loop->carry[i].entering == k - loop->n_carry) return tow__representative(p, loop->carry[i].out);
    return TOW__NONE;
}

/* The scope of the equation that makes the storage. A result of a loop is made by an equation of the loop's body. */
static const char *scope_of(const tow_program *p, const tow__body *around, uint32_t s)
{
    const tow__instruction *inst = &around->insts[p->storages[s].first];
    while (inst->loop) {
        const char *scope = inst->source ? inst->source->scope : NULL;
        const tow__body *body = inst->loop->body;
        s = inner_storage(p, inst, s);
        if (s == TOW__NONE || p->storages[s].body != body || p->storages[s].first >= body->n_insts) return scope;
        inst = &body->insts[p->storages[s].first];
    }
    return inst->source ? inst->source->scope : NULL;
}

/* Finds or adds the group; NULL with `crowded` set if there is no room. */
static tow__live_group *find_group(walk *w, tow__live_kind kind, const char *scope)
{
    tow__timeline *t = w->t;
    size_t length = prefix_length(scope, w->depth[kind]);
    for (uint32_t i = 0; i < t->n_groups; i++) {
        const tow__live_group *g = &t->groups[i];
        if (g->kind == kind && g->length == length && (length == 0 || memcmp(g->scope, scope, length) == 0))
            return &t->groups[i];
    }
    w->crowded |= t->n_groups == TOW__LIVE_GROUPS;
    if (w->crowded) return NULL;
    t->groups[t->n_groups] = (tow__live_group){.kind = kind, .scope = scope, .length = length};
    return &t->groups[t->n_groups++];
}

/* Is a value of the backward pass read last by what writes in the place of donated inputs? It is a gradient then, of
 * which an update makes new parameters. */
static bool is_gradient(const tow_program *p, const tow__body *body, const tow__storage *storage)
{
    const tow__instruction *last = &body->insts[storage->last];
    if (storage->last == storage->first) return false;
    for (uint32_t k = 0; k < last->n_out; k++) {
        const tow__storage *out = &p->storages[last->out[k].storage];
        if (out->kind == TOW__S_OUTPUT && p->donors[out->index] != TOW__NONE) return true;
    }
    return false;
}

/* Does it hold what others have, or what they send? */
static bool is_of_exchange(const tow_program *p, const tow__body *body, uint32_t s)
{
    const tow__storage *storage = &p->storages[s];
    const tow__instruction *first = &body->insts[storage->first];
    if (storage->made == &tow__all_gather_start_p || storage->made == &tow__all_gather_wait_p) return true;
    if (!tow__starts_collective(first->op) || first->n_out < 2) return false;
    return tow__representative(p, first->out[1].storage) == s;
}

static tow__live_kind kind_of(const walk *w, const tow__body *body, uint32_t s, bool backward)
{
    const tow__storage *storage = &w->t->p->storages[s];
    bool made_backward = backward || tow__is_backward(w->t->p, &body->insts[storage->first], s, true);
    if (w->scratch[s]) return TOW__LIVE_WORKSPACE;
    if (is_of_exchange(w->t->p, body, s)) return TOW__LIVE_EXCHANGE;
    if (made_backward) return is_gradient(w->t->p, body, storage) ? TOW__LIVE_GRADIENT : TOW__LIVE_BACKWARD;
    bool read_backward = tow__is_backward(w->t->p, &body->insts[storage->last], s, false);
    return read_backward ? TOW__LIVE_RESIDUAL : TOW__LIVE_FORWARD;
}

/* Adds bytes at places `begin` to `end` - 1. Entries are differences to the place before. */
static void add_bytes(tow__live_group *g, uint32_t begin, uint32_t end, size_t bytes)
{
    g->bytes[begin] += (int64_t)bytes;
    g->bytes[end] -= (int64_t)bytes;
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

static tow_status walk_plan(walk *w, const tow__body *body, uint32_t at, uint32_t copies, bool backward);

static tow_status walk_inst(walk *w, const tow__instruction *inst, uint32_t at, uint32_t copies, bool backward)
{
    tow__timeline *t = w->t;
    backward |= inst->backward;
    if (!inst->loop) {
        if (w->counts) t->places[at] = (tow__place_in_time){inst, backward, t->places[at].begins};
        return TOW_OK;
    }
    const tow__loop *loop = inst->loop;
    uint32_t length = plan_length(loop->body), shown = w->counts ? iterations_shown(loop) : 1;
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < shown; i++) {
        if (w->counts) t->places[at + i * length].begins |= !tow__is_parallel(loop->schedule);
        TRY(walk_plan(w, loop->body, at + i * length, copies * (loop->body->copies ? loop->body->copies : 1),
                      backward));
    }
done:
    return status;
}

static tow_status walk_plan(walk *w, const tow__body *around, uint32_t at, uint32_t copies, bool backward)
{
    const tow_program *p = w->t->p;
    tow_status status = TOW_OK;
    uint32_t *begin = tow__arena_alloc(&w->t->memory, (size_t)around->n_insts + 1, sizeof *begin);
    if (!begin) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < around->n_insts; i++) {
        begin[i] = at;
        TRY(walk_inst(w, &around->insts[i], at, copies, backward));
        at += inst_length(&around->insts[i]);
    }
    begin[around->n_insts] = at;
    for (uint32_t i = 0; i < around->n_insts && !w->crowded; i++) {
        const tow__body *body = around->insts[i].loop ? around->insts[i].loop->body : NULL;
        if (!body || !body->scratch) continue; /* shared iterations may need more than all copies have */
        const size_t extra = p->storages[body->block].bytes - body->bytes * body->copies;
        tow__live_group *g = extra ? find_group(w, TOW__LIVE_WORKSPACE, scope_of(p, around, body->block)) : NULL;
        if (w->counts && g) add_bytes(g, begin[i], begin[i + 1], extra * copies);
    }
    for (uint32_t s = tow__first_storage(around); s != TOW__NONE && !w->crowded; s = p->storages[s].next) {
        const tow__storage *x = &p->storages[s];
        if (!tow__in_arena(p, s) || w->block[s]) continue;
        tow__live_group *g = find_group(w, kind_of(w, around, s, backward), scope_of(p, around, s));
        if (w->counts && g) add_bytes(g, begin[x->first], begin[x->last + 1], tow__round_up(x->bytes) * copies);
    }
done:
    return status;
}

static void mark_scratch(walk *w, const tow__body *body)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        if (inst->scratch != TOW__NONE) (inst->loop ? w->block : w->scratch)[inst->scratch] = true;
        if (!inst->loop) continue;
        if (inst->loop->body->block != TOW__NONE) w->block[inst->loop->body->block] = true;
        mark_scratch(w, inst->loop->body);
    }
}

/* Makes groups of the kind with the most groups coarser by one component of scopes; false if none is left. Residuals
 * count half, because readers look for them first. */
static bool coarsen(walk *w)
{
    uint32_t groups[TOW__LIVE_KINDS] = {0};
    int most = -1;
    for (uint32_t i = 0; i < w->t->n_groups; i++)
        groups[w->t->groups[i].kind] += w->t->groups[i].kind == TOW__LIVE_RESIDUAL ? 1 : 2;
    for (int kind = 0; kind < TOW__LIVE_KINDS; kind++)
        if (w->depth[kind] > 0 && (most < 0 || groups[kind] > groups[most])) most = kind;
    if (most >= 0) w->depth[most]--;
    return most >= 0;
}

/* Sorts groups by kind, then by scope, so that pictures of one program always look alike. */
static void sort_groups(tow__timeline *t)
{
    for (uint32_t i = 1; i < t->n_groups; i++)
        for (uint32_t j = i; j > 0 && t->groups[j].kind < t->groups[j - 1].kind; j--) {
            tow__live_group swap = t->groups[j];
            t->groups[j] = t->groups[j - 1];
            t->groups[j - 1] = swap;
        }
}

tow_status tow__timeline_make(const tow_program *p, uint32_t most, tow__timeline *t)
{
    tow_status status = TOW_OUT_OF_MEMORY;
    *t = (tow__timeline){.p = p, .n = plan_length(p->top)};
    tow__arena_init(&t->memory, p->ctx);
    walk w = {.t = t};
    for (int kind = 0; kind < TOW__LIVE_KINDS; kind++) w.depth[kind] = kind == TOW__LIVE_WORKSPACE ? 0 : DEEPEST;
    t->places = tow__arena_alloc(&t->memory, t->n, sizeof *t->places);
    t->total = tow__arena_alloc(&t->memory, t->n, sizeof *t->total);
    w.scratch = tow__arena_alloc(&t->memory, p->n_storages, sizeof *w.scratch);
    w.block = tow__arena_alloc(&t->memory, p->n_storages, sizeof *w.block);
    if (!t->places || !t->total || !w.scratch || !w.block) return status;
    mark_scratch(&w, p->top);
    do {
        w.crowded = false;
        t->n_groups = 0;
        TRY(walk_plan(&w, p->top, 0, 1, false));
    } while ((w.crowded || t->n_groups > most) && coarsen(&w));
    sort_groups(t);
    for (uint32_t i = 0; i < t->n_groups; i++) {
        t->groups[i].bytes = tow__arena_alloc(&t->memory, (size_t)t->n + 1, sizeof *t->groups[i].bytes);
        if (!t->groups[i].bytes) return TOW_OUT_OF_MEMORY;
    }
    w.counts = true;
    TRY(walk_plan(&w, p->top, 0, 1, false));
    for (uint32_t i = 0; i < t->n; i++) {
        for (uint32_t g = 0; g < t->n_groups; g++) {
            if (i > 0) t->groups[g].bytes[i] += t->groups[g].bytes[i - 1];
            t->total[i] += t->groups[g].bytes[i];
        }
        if (t->total[i] > t->total[t->peak]) t->peak = i;
    }
done:
    return status;
}

void tow__timeline_free(tow__timeline *t) { tow__arena_free(&t->memory); }

tow_status tow__live_bytes(const tow_program *p, size_t bytes[TOW__LIVE_KINDS])
{
    tow__timeline t;
    memset(bytes, 0, TOW__LIVE_KINDS * sizeof *bytes);
    const tow_status status = tow__timeline_make(p, TOW__LIVE_SHOWN, &t);
    for (uint32_t i = 0; i < t.n && status == TOW_OK; i++) {
        size_t alive[TOW__LIVE_KINDS] = {0};
        for (uint32_t g = 0; g < t.n_groups; g++) alive[t.groups[g].kind] += (size_t)t.groups[g].bytes[i];
        for (int k = 0; k < TOW__LIVE_KINDS; k++)
            if (alive[k] > bytes[k]) bytes[k] = alive[k];
    }
    tow__timeline_free(&t);
    return status;
}
