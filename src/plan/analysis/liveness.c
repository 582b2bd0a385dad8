/* Liveness: from which to which instruction each storage of a function is accessed, and how many bytes are alive. */
#include "src/plan/analysis/analysis.h"
#include "src/plan/analysis/columns.h"

size_t tow__sum_alive(size_t *alive, uint32_t n_insts)
{
    size_t most = 0;
    for (uint32_t i = 0; i < n_insts; i++) {
        if (i > 0) alive[i] += alive[i - 1];
        if (alive[i] > most) most = alive[i];
    }
    return most;
}

typedef struct ranges {
    const tow_program *p;
    const tow__body *body;
    tow__liveness *l;
    uint32_t *index; /* [n_storages] of its range, or TOW__NONE */
} ranges;

/* Instructions are walked in order, so the first access of a storage that an instruction writes is its first write. */
static void touch(ranges *r, uint32_t storage, uint32_t inst, bool is_result)
{
    if (r->p->storages[storage].body != r->body) return;
    if (r->index[storage] == TOW__NONE) {
        r->index[storage] = r->l->n;
        r->l->ranges[r->l->n++] = (tow__live_range){.storage = storage, .first = inst};
    }
    tow__live_range *x = &r->l->ranges[r->index[storage]];
    x->last = inst;
    x->is_result |= is_result;
}

static void touch_all(ranges *r, uint32_t i)
{
    const tow__instruction *inst = &r->body->insts[i];
    for (uint32_t j = 0; j < inst->n_in; j++) touch(r, inst->in[j].storage, i, false);
    for (uint32_t j = 0; j < inst->n_out; j++) touch(r, inst->out[j].storage, i, true);
    if (inst->scratch != TOW__NONE) touch(r, inst->scratch, i, false);
    for (uint32_t j = 0; inst->loop && j < inst->loop->n_carry; j++)
        if (inst->loop->carry[j].spare != TOW__NONE) touch(r, inst->loop->carry[j].spare, i, false);
}

static size_t most_ranges(const tow__body *body)
{
    size_t most = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        most += (size_t)inst->n_in + inst->n_out + 1 + (inst->loop ? inst->loop->n_carry : 0);
    }
    return most < body->n_storages ? most : body->n_storages;
}

static void free_index(tow_program *p, const ranges *r)
{
    for (uint32_t i = 0; i < r->l->n; i++) r->index[r->l->ranges[i].storage] = TOW__NONE;
    tow__give_back(p, r->index, NULL, 0, NULL);
}

tow__liveness *tow__find_liveness(tow_program *p, const tow__body *body, tow__arena *scratch)
{
    tow__liveness *l = tow__arena_alloc(scratch, 1, sizeof *l);
    ranges r = {.p = p, .body = body, .l = l, .index = tow__borrow(p, scratch, sizeof *r.index, 0xFF)};
    if (!l || !r.index) return NULL;
    l->ranges = tow__arena_alloc(scratch, most_ranges(body), sizeof *l->ranges);
    l->alive = tow__arena_alloc(scratch, (size_t)body->n_insts + 1, sizeof *l->alive);
    if (!l->ranges || !l->alive) return NULL;
    for (uint32_t i = 0; i < body->n_insts; i++) touch_all(&r, i);
    for (uint32_t i = 0; i < l->n; i++) {
        const tow__live_range *x = &l->ranges[i];
        const tow__storage *storage = &p->storages[x->storage];
        if (x->is_result && storage->kind == TOW__S_ARENA) tow__add_alive(l->alive, x->first, x->last, storage->bytes);
    }
    l->peak = tow__sum_alive(l->alive, body->n_insts);
    free_index(p, &r);
    return l;
}
