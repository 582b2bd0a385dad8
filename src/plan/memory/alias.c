/* Lifetimes, and in-place reuse: an output takes the memory of an operand that nobody reads afterwards. */
#include "src/plan/analysis/columns.h"
#include "src/plan/analysis/view.h"
#include "src/plan/lower/lower.h"
#include "src/plan/memory/memory.h"
#include "src/plan/pass.h"

uint32_t tow__representative(const tow_program *p, uint32_t storage)
{
    while (p->storages[storage].representative != storage) storage = p->storages[storage].representative;
    return storage;
}

static void set_lifetimes(tow_program *p, const tow__liveness *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        tow__storage *s = &p->storages[l->ranges[i].storage];
        s->first = l->ranges[i].first;
        s->last = l->ranges[i].last;
    }
}

/* Output k, operand i. */
static bool may_take(tow__aliasing aliasing, uint32_t k, uint32_t i, uint32_t n_in)
{
    switch (aliasing) {
    case TOW__ALIAS_NONE:
        return false;
    case TOW__ALIAS_ANY:
        return k == 0;
    case TOW__ALIAS_EACH:
        return true;
    case TOW__ALIAS_FIRST:
        return k == 0 && i == 0;
    case TOW__ALIAS_LAST:
        return k == 0 && i + 1 == n_in;
    }
    return false;
}

/* A kernel reads operands of the output's shape element by element, so every view of s must be the whole of s in
 * row-major order. A loop reads init value k in iteration 0 only, but all other operands until its end; the result is
 * written then. */
static bool region_may_overwrite(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t j);

static bool scan_may_overwrite(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t j)
{
    const tow__view *x = &inst->in[j];
    if (j != k || k >= inst->loop->n_carry || !inst->alone[j]) return false;
    if (!tow__is_whole(p, x) || x->type.dtype != inst->out[k].type.dtype) return false;
    const tow__carry *c = &inst->loop->carry[k];
    switch (c->storage) {
    case TOW__CARRY_IN_PLACE:
        return !c->copies;
    case TOW__CARRY_ALTERNATES: /* iteration 0 writes the spare buffer if the number of iterations is even */
        return !c->copies && inst->loop->length % 2 == 0;
    case TOW__CARRY_IN_ROWS: /* the initial value is copied to its row first */
        return true;
    case TOW__CARRY_IN_ALL_ROWS:
        return false;
    }
    return false;
}

bool tow__may_overwrite(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t j)
{
    if (inst->loop && tow__by_blocks(inst->loop)) return region_may_overwrite(p, inst, k, j);
    if (inst->loop) return scan_may_overwrite(p, inst, k, j);
    const tow__aliasing aliasing = inst->op->aliasing;
    if (aliasing == TOW__ALIAS_NONE || (k > 0 && aliasing != TOW__ALIAS_EACH)) return false;
    const uint32_t s = tow__representative(p, inst->in[j].storage);
    for (uint32_t i = 0; i < inst->n_in; i++) {
        const tow__view *x = &inst->in[i];
        if (tow__representative(p, x->storage) != s) continue;
        if (!tow__is_whole(p, x) || !tow_type_equal(x->type, inst->out[k].type)) return false;
        if (!may_take(aliasing, k, i, inst->n_in)) return false;
    }
    return true;
}

/* The same for storage s. */
static bool may_overwrite_storage(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t s)
{
    for (uint32_t j = 0; j < inst->n_in; j++)
        if (tow__representative(p, inst->in[j].storage) == s) return tow__may_overwrite(p, inst, k, j);
    return false;
}

/* Blocks of result k take the place of blocks of operand j if the body reads its memory only so, and not after it has
 * begun to write the result. */
static bool region_may_overwrite(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t j)
{
    const tow__loop *loop = inst->loop;
    if (k >= loop->n_ys) return false; /* a sum */
    if (j >= loop->n_xs || !inst->alone[j] || !tow__is_whole(p, &inst->in[j])) return false;
    uint32_t out = loop->ys[k].row, in = loop->xs[j].row;
    if (in == TOW__NONE || inst->in[0].type.rank == 0) return false;
    uint32_t root = tow__representative(p, out), write = p->storages[root].first, read = p->storages[in].last;
    if (p->storages[in].bytes != p->storages[out].bytes) return false;
    if (read == TOW__NONE || read < write) return true;
    if (read > write) return false;
    const tow__instruction *last = &loop->body->insts[write];
    for (uint32_t i = 0; i < last->n_out; i++)
        if (tow__representative(p, last->out[i].storage) == root) return may_overwrite_storage(p, last, i, in);
    return false;
}

/* The step that reads the carry last as it enters. No step writes that storage and none shares it, so it is the last
 * access of all. */
static uint32_t last_read(const tow_program *p, uint32_t in)
{
    return p->storages[in].first == TOW__NONE ? TOW__NONE : p->storages[in].last;
}

bool tow__carry_alternates(const tow_program *p, const tow__body *body, uint32_t in, uint32_t out)
{
    uint32_t read = last_read(p, in), root = tow__representative(p, out), write = p->storages[root].first;
    if (body->loop->carry[p->storages[in].index].entering != TOW__NONE) return true;
    if (read == TOW__NONE || write == TOW__NONE || read < write) return false;
    if (read > write) return true;
    const tow__instruction *inst = &body->insts[write];
    for (uint32_t k = 0; k < inst->n_out; k++)
        if (tow__representative(p, inst->out[k].storage) == root) return !may_overwrite_storage(p, inst, k, in);
    return true;
}

/* Where carry c lies between iterations. */
static tow__carry_storage choose_storage(const tow_program *p, const tow__loop *loop, const tow__carry *c)
{
    if (c->leaving != TOW__NONE) return TOW__CARRY_IN_ALL_ROWS;
    if (c->entering != TOW__NONE) return TOW__CARRY_IN_ROWS;
    return tow__carry_alternates(p, loop->body, c->in, c->out) ? TOW__CARRY_ALTERNATES : TOW__CARRY_IN_PLACE;
}

tow_status tow__choose_carry_storage(tow_program *p, tow__loop *loop)
{
    for (uint32_t j = 0; j < loop->n_carry; j++) {
        tow__carry *c = &loop->carry[j];
        c->storage = choose_storage(p, loop, c);
        c->copies = c->entering != TOW__NONE || !tow__view_contiguous(&c->init);
        if (c->storage != TOW__CARRY_ALTERNATES || (loop->length == 1 && !c->copies)) continue;
        c->spare = tow__add_storage(p, loop->body->outer, TOW__S_ARENA, 0, p->storages[c->result].bytes);
        if (c->spare == TOW__NONE) return TOW_OUT_OF_MEMORY;
    }
    return TOW_OK;
}

/* May earlier value s move into the storage of output o? Into a carry's buffer only if that does not make it two. */
static bool may_join(const tow_program *p, const tow__body *body, uint32_t o, uint32_t s)
{
    if (p->storages[o].kind != TOW__S_CARRY_OUT) return true;
    uint32_t in = body->loop->carry[p->storages[o].index].in, read = last_read(p, in);
    return read == TOW__NONE || p->storages[s].first > read || tow__carry_alternates(p, body, in, o);
}

/* In a region, result rows had better be free until the step that may write them over operand rows: then whole arrays
 * can share memory, for the price of a block. */
static bool spoils_rows(const tow_program *p, const tow__body *body, uint32_t i, uint32_t k)
{
    const tow__instruction *inst = &body->insts[i];
    const tow__storage *out = &p->storages[inst->out[k].storage];
    if (!body->copies || out->kind != TOW__S_ROW_OUT) return false;
    for (uint32_t j = 0; j < inst->n_in; j++) {
        const tow__storage *row = &p->storages[inst->in[j].storage];
        if (row->kind == TOW__S_ROW_IN && row->body == body && row->bytes == out->bytes && row->last == i &&
            tow__may_overwrite(p, inst, k, j))
            return true;
    }
    return false;
}

static void join(tow_program *p, uint32_t o, uint32_t s)
{
    tow__storage *out = &p->storages[o], *operand = &p->storages[s];
    if (out->kind == TOW__S_ARENA) {
        out->representative = s;
        operand->last = out->last;
    } else { /* the caller's array or a slot: the operand is made there in the first place */
        operand->representative = o;
        out->first = operand->first;
    }
}

/* True if an output before output k has taken storage s: if nobody reads that output, s still dies at this step. */
static bool is_taken(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t s)
{
    for (uint32_t j = 0; j < k; j++)
        if (tow__representative(p, inst->out[j].storage) == s) return true;
    return false;
}

/* The first operand of step i that dies and may be overwritten by output k; TOW__NONE if there is none. */
static uint32_t find_donor(const tow_program *p, const tow__body *body, uint32_t i, uint32_t k)
{
    const tow__instruction *inst = &body->insts[i];
    uint32_t o = inst->out[k].storage;
    if (!p->storages[o].bytes || p->storages[o].representative != o || p->storages[o].first != i) return TOW__NONE;
    if (spoils_rows(p, body, i, k)) return TOW__NONE;
    const bool scan = inst->loop && !tow__by_blocks(inst->loop); /* result k may take operand k only */
    for (uint32_t j = scan ? k : 0; j < (scan ? k + 1 : inst->n_in); j++) {
        uint32_t s = tow__representative(p, inst->in[j].storage);
        const tow__storage *operand = &p->storages[s];
        if (operand->kind != TOW__S_ARENA || operand->body != body || operand->last != i || operand->first >= i)
            continue;
        if (operand->bytes != p->storages[o].bytes || !tow__may_overwrite(p, inst, k, j)) continue;
        if (!is_taken(p, inst, k, s) && may_join(p, body, o, s)) return s;
    }
    return TOW__NONE;
}

/* Fills step->alone. */
static tow_status find_alone(tow_program *p, tow__instruction *inst, tow__arena *scratch)
{
    uint32_t *count = tow__borrow(p, scratch, sizeof *count, 0);
    inst->alone = tow__arena_alloc(&p->memory, inst->n_in, sizeof *inst->alone);
    if (!count || !inst->alone) return TOW_OUT_OF_MEMORY;
    for (uint32_t j = 0; j < inst->n_in; j++) count[tow__representative(p, inst->in[j].storage)]++;
    for (uint32_t j = 0; j < inst->n_in; j++) inst->alone[j] = count[tow__representative(p, inst->in[j].storage)] == 1;
    for (uint32_t j = 0; j < inst->n_in; j++) count[tow__representative(p, inst->in[j].storage)] = 0;
    tow__give_back(p, count, NULL, 0, NULL);
    return TOW_OK;
}

tow_status tow__alias_results(tow__function_state *s)
{
    tow_program *p = s->p;
    tow__body *body = s->body;
    const tow__liveness *liveness = tow__get_liveness(s);
    if (!liveness) return TOW_OUT_OF_MEMORY;
    set_lifetimes(p, liveness);
    for (uint32_t i = 0; i < body->n_insts; i++) {
        tow_status status = body->insts[i].loop ? find_alone(p, &body->insts[i], s->scratch) : TOW_OK;
        if (status != TOW_OK) return status;
        const tow__instruction *inst = &body->insts[i];
        bool whole = !inst->loop || tow__by_blocks(inst->loop);
        uint32_t n = whole ? inst->n_out : inst->loop->n_carry;
        for (uint32_t k = 0; k < n && k < inst->n_out; k++) {
            uint32_t donor = find_donor(p, body, i, k);
            if (donor != TOW__NONE) join(p, inst->out[k].storage, donor);
        }
    }
    return TOW_OK;
}
