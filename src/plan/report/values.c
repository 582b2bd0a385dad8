/* Who writes and who reads each value of a plan. */
#include "src/plan/report/values.h"
#include "src/plan/analysis/phase.h"

uint32_t tow__outer_storage(const tow_program *p, const tow__loop *loop, const tow__view *x)
{
    const tow__storage *s = &p->storages[x->storage];
    if (s->body != loop->body) return x->storage;
    if (s->kind == TOW__S_ROW_IN) return loop->xs[s->index].array.storage;
    if (s->kind == TOW__S_CARRY_IN) return loop->carry[s->index].init.storage;
    return TOW__NONE;
}

static void note_write(const tow_program *p, tow__plan_value *v, const tow__instruction *inst, uint32_t i,
                       const tow__view *x)
{
    if (v->from != TOW__NONE) return;
    v->from = v->to = i;
    v->type = x->type;
    v->backward = tow__is_backward(p, inst, tow__representative(p, x->storage), true);
}

static void note_read(const tow_program *p, tow__plan_value *v, const tow__instruction *inst, uint32_t i,
                      const tow__view *x)
{
    if (v->from == TOW__NONE) v->type = x->type;
    v->to = i;
    if (tow__is_backward(p, inst, tow__representative(p, x->storage), false)) v->last_read = i;
}

static void list_body(const tow_program *p, const tow__body *body, tow__plan_value *values)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        for (uint32_t j = 0; j < inst->n_in; j++)
            if (p->storages[inst->in[j].storage].body == body)
                note_read(p, &values[inst->in[j].storage], inst, i, &inst->in[j]);
        for (uint32_t j = 0; j < inst->n_out; j++)
            if (p->storages[inst->out[j].storage].body == body)
                note_write(p, &values[inst->out[j].storage], inst, i, &inst->out[j]);
        if (inst->loop) list_body(p, inst->loop->body, values);
    }
}

tow__plan_value *tow__list_values(const tow_program *p, tow__arena *arena)
{
    tow__plan_value *values = tow__arena_alloc(arena, (size_t)p->n_storages + 1, sizeof *values);
    for (uint32_t s = 0; values && s < p->n_storages; s++)
        values[s] = (tow__plan_value){.from = TOW__NONE, .last_read = TOW__NONE};
    if (values) list_body(p, p->top, values);
    return values;
}
