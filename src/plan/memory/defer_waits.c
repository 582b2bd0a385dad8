/* Deferred waits: sums over processes that a loop stacks travel while the next iterations run.
 *
 * In the body of a loop, a start writes partial sums into a row of the stacked result, a buffer receives what others
 * send, and a wait ends the exchange. If nothing else in the body touches the row, nobody needs the sum before the loop
 * has ended:
 *
 *     iteration i      row i, buffer = all_reduce_start(x)      waits for the exchange of iteration i - 1 first
 *                      row i = all_reduce_wait(row i, buffer)   does nothing
 *     end of the loop                                           waits for the last exchange of each sum
 *
 * The rows are memory of their own, so only the buffer has to stay: it is alive in the whole body. At most two
 * iterations' sums are in flight. */
#include "src/plan/ir.h"
#include "src/plan/memory/memory.h"

static bool is_in(const tow_program *p, const tow__view *views, uint32_t n, uint32_t memory)
{
    for (uint32_t j = 0; j < n; j++)
        if (tow__representative(p, views[j].storage) == memory) return true;
    return false;
}

/* The start whose exchange the wait ends: the last instruction before it that writes the buffer. */
static uint32_t start_of(const tow_program *p, const tow__body *body, uint32_t wait, uint32_t buffer)
{
    for (uint32_t i = wait; i-- > 0;)
        if (is_in(p, body->insts[i].out, body->insts[i].n_out, buffer))
            return TOW__COMPUTES(&body->insts[i], all_reduce_start) ? i : TOW__NONE;
    return TOW__NONE;
}

/* Does nothing but the two access this memory from the start on? */
static bool is_left_alone(const tow_program *p, const tow__body *body, uint32_t start, uint32_t wait, uint32_t memory)
{
    for (uint32_t i = start + 1; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        if (i != wait && (is_in(p, inst->in, inst->n_in, memory) || is_in(p, inst->out, inst->n_out, memory)))
            return false;
    }
    return true;
}

static bool can_wait(const tow_program *p, const tow__body *body, uint32_t i)
{
    const tow__instruction *inst = &body->insts[i];
    if (!TOW__COMPUTES(inst, all_reduce_wait) || !tow__is_plain(inst)) return false;
    const uint32_t row = tow__representative(p, inst->out[0].storage);
    const uint32_t buffer = tow__representative(p, inst->in[1].storage);
    const tow__storage *s = &p->storages[row];
    if (s->kind != TOW__S_ROW_OUT || s->body != body || tow__representative(p, inst->in[0].storage) != row)
        return false;
    if (p->storages[buffer].kind != TOW__S_ARENA || p->storages[buffer].body != body || buffer != inst->in[1].storage)
        return false;
    const tow__rows *rows = &body->loop->ys[s->index];
    if (rows->carry || rows->row == TOW__NONE || rows->stride == 0) return false;
    const uint32_t start = start_of(p, body, i, buffer);
    return start != TOW__NONE && is_left_alone(p, body, start, i, row) && is_left_alone(p, body, start, i, buffer);
}

void tow__defer_waits(tow_program *p, tow__body *body)
{
    const tow__loop *loop = body->loop;
    if (!loop || loop->schedule != TOW__SEQUENTIAL || loop->stops || body->copies) return;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        if (!can_wait(p, body, i)) continue;
        tow__storage *buffer = &p->storages[tow__representative(p, body->insts[i].in[1].storage)];
        body->insts[i].deferred = true;
        buffer->in_flight = true;
        buffer->first = 0;
        buffer->last = body->n_insts - 1;
    }
}
