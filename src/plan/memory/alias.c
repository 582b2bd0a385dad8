/* Aliasing: a result takes over the memory of an operand that dies with the instruction (memory/overwrite.c says where
 * it may). */
#include "src/plan/analysis/columns.h"
#include "src/plan/analysis/view.h"
#include "src/plan/lower/lower.h"
#include "src/plan/memory/memory.h"
#include "src/plan/pass.h"

static void set_lifetimes(tow_program *p, const tow__liveness *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        tow__storage *s = &p->storages[l->ranges[i].storage];
        s->first = l->ranges[i].first;
        s->last = l->ranges[i].last;
    }
}

static bool needs_two(const tow_program *p, const tow__body *body, uint32_t in, uint32_t o)
{
    return p->storages[o].kind == TOW__S_CARRY_OUT ? tow__carry_alternates(p, body, in, o)
                                                   : tow__written_while_read(p, body, in, o);
}

/* May earlier value s move into the storage of output o? Where the output replaces an old value, only if that does not
 * make two buffers of one. */
static bool may_join(const tow_program *p, const tow__body *body, uint32_t o, uint32_t s)
{
    uint32_t in = tow__home_of(p, body, o);
    if (in == TOW__NONE) return true;
    uint32_t read = tow__last_read(p, in);
    return read == TOW__NONE || p->storages[s].first > read || needs_two(p, body, in, o);
}

/* In a tile group, a result row should take over no other storage of the tile if the instruction may write it over an
 * operand row: then whole arrays share memory, which is worth more than a tile. */
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

/* True if an output before output k has taken storage s: if nobody reads that output, s still dies at this
 * instruction. */
static bool is_taken(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t s)
{
    for (uint32_t j = 0; j < k; j++)
        if (tow__representative(p, inst->out[j].storage) == s) return true;
    return false;
}

/* The first operand of instruction i that dies and may be overwritten by output k; TOW__NONE if there is none. */
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

/* Fills instruction->alone. */
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
    tow__defer_waits(p, body);
    return TOW_OK;
}
