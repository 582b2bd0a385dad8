/* Cost: floating-point operations of instructions, those of products exactly. */
#include "src/plan/analysis/analysis.h"
#include "src/plan/analysis/tiling.h"

double tow__flops(const tow__instruction *inst)
{
    const tow__operation o = tow__operation_of(inst);
    return inst->op->cost(&o).estimate;
}

tow__cost *tow__find_cost(const tow__body *body, tow__arena *scratch)
{
    tow__cost *c = tow__arena_alloc(scratch, 1, sizeof *c);
    if (!c) return NULL;
    c->flops = tow__arena_alloc(scratch, body->n_insts, sizeof *c->flops);
    if (!c->flops) return NULL;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        if (!body->insts[i].loop) c->flops[i] = tow__flops(&body->insts[i]);
        c->total += c->flops[i];
    }
    return c;
}
