/* The pass of a gradient, forward or backward, that makes and reads values, and so which values are residuals. */
#include "src/plan/analysis/phase.h"

/* The storage of the surrounding function that an instruction of a tile group names, itself or as a block. */
static uint32_t outside(const tow_program *p, const tow__loop *loop, uint32_t s)
{
    const tow__storage *storage = &p->storages[s];
    if (storage->body == loop->body && storage->kind == TOW__S_ROW_IN) s = loop->xs[storage->index].array.storage;
    if (storage->body == loop->body && storage->kind == TOW__S_ROW_OUT) s = loop->ys[storage->index].array.storage;
    return tow__representative(p, s);
}

bool tow__is_backward(const tow_program *p, const tow__instruction *inst, uint32_t root, bool write)
{
    const tow__loop *loop = inst->loop;
    for (uint32_t i = 0; loop && loop->mixed && i < loop->body->n_insts; i++) {
        const tow__instruction *inner = &loop->body->insts[i];
        const tow__view *views = write ? inner->out : inner->in;
        for (uint32_t j = 0; j < (write ? inner->n_out : inner->n_in); j++)
            if (outside(p, loop, views[j].storage) == root && (write || inner->backward)) return inner->backward;
    }
    return inst->backward;
}

/* Bytes of a function's arena that are written by the forward pass and still read by the backward pass. A loop whose
 * body is a whole gradient, of a micro-batch, has its own. */
static size_t residuals_of(const tow_program *p, const tow__body *body)
{
    size_t bytes = 0;
    for (uint32_t i = tow__first_storage(body); i != TOW__NONE; i = p->storages[i].next) {
        const tow__storage *s = &p->storages[i];
        if (!tow__in_arena(p, i)) continue;
        if (tow__is_backward(p, &body->insts[s->first], i, true)) continue;
        if (tow__is_backward(p, &body->insts[s->last], i, false)) bytes += s->bytes;
    }
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__loop *loop = body->insts[i].loop;
        if (loop && loop->body->is_gradient) bytes += residuals_of(p, loop->body);
    }
    return bytes;
}

size_t tow__residual_bytes(const tow_program *p) { return residuals_of(p, p->top); }
