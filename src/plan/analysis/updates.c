/* Updates: elementwise instructions that write in the place of something which the function reads, of donated inputs
 * and of rows of them, and those that make what they write. An optimizer's arithmetic on one parameter is an update. */
#include "src/plan/analysis/analysis.h"
#include "src/plan/analysis/columns.h"
#include "src/plan/analysis/view.h"
#include "src/plan/pass.h"

static bool replaces_something(const tow_program *p, const tow__body *body, const tow__uses *uses,
                               const tow__instruction *inst)
{
    for (uint32_t k = 0; k < inst->n_out; k++) {
        const uint32_t home = tow__home_of(p, body, inst->out[k].storage);
        const bool carry = p->storages[inst->out[k].storage].kind == TOW__S_CARRY_OUT; /* it may have two buffers */
        if (!carry && home != TOW__NONE && uses->reads[home]) return true;
    }
    return false;
}

bool *tow__find_updates(tow__function_state *s)
{
    const tow__uses *uses = tow__get_uses(s);
    bool *feeds = tow__borrow(s->p, s->scratch, sizeof *feeds, 0); /* [n_storages] */
    bool *updates = tow__arena_alloc(s->scratch, s->body->n_insts, sizeof *updates);
    if (!uses || !feeds || !updates) return NULL;
    for (uint32_t i = s->body->n_insts; i-- > 0;) {
        const tow__instruction *inst = &s->body->insts[i];
        bool found = replaces_something(s->p, s->body, uses, inst);
        for (uint32_t k = 0; k < inst->n_out; k++) found |= feeds[inst->out[k].storage];
        updates[i] = found && !inst->loop && inst->op->kind == TOW__ELEMENTWISE;
        for (uint32_t j = 0; j < inst->n_in && updates[i]; j++)
            if (tow__is_whole(s->p, &inst->in[j]))
                feeds[inst->in[j].storage] = true; /* not a number for all elements */
    }
    tow__give_back(s->p, feeds, s->body->insts, s->body->n_insts, NULL);
    return updates;
}
