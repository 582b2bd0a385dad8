/* Uses: who makes each storage that the instructions of a function name, and who reads it. */
#include "src/plan/analysis/analysis.h"
#include "src/plan/analysis/columns.h"

static void name(tow__uses *u, uint32_t storage)
{
    if (u->reads[storage] == 0 && u->producer[storage] == TOW__NONE) u->named[u->n_named++] = storage;
}

static bool borrow(tow_program *p, const tow__body *body, tow__arena *scratch, tow__uses *u)
{
    size_t most = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) most += body->insts[i].n_in + body->insts[i].n_out;
    u->producer = tow__borrow(p, scratch, sizeof *u->producer, 0xFF);
    u->last_reader = tow__borrow(p, scratch, sizeof *u->last_reader, 0xFF);
    u->reads = tow__borrow(p, scratch, sizeof *u->reads, 0);
    u->named = tow__arena_alloc(scratch, most, sizeof *u->named);
    return u->producer && u->last_reader && u->reads && u->named;
}

tow__uses *tow__find_uses(tow_program *p, const tow__body *body, tow__arena *scratch)
{
    tow__uses *u = tow__arena_alloc(scratch, 1, sizeof *u);
    if (!u || !borrow(p, body, scratch, u)) return NULL;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        for (uint32_t j = 0; j < inst->n_in; j++) {
            name(u, inst->in[j].storage);
            u->reads[inst->in[j].storage]++;
            u->last_reader[inst->in[j].storage] = i;
        }
        for (uint32_t j = 0; j < inst->n_out; j++) {
            name(u, inst->out[j].storage);
            u->producer[inst->out[j].storage] = i;
        }
    }
    return u;
}

void tow__free_uses(tow_program *p, const tow__uses *u)
{
    tow__give_back_named(p, u->producer, u->named, u->n_named);
    tow__give_back_named(p, u->last_reader, u->named, u->n_named);
    tow__give_back_named(p, u->reads, u->named, u->n_named);
}
