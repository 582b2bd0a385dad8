/* Views of a plan: what an equation that only rearranges makes of a view, without a copy. */
#include "src/plan/analysis/view.h"
#include "src/plan/ir.h"

bool tow__view_of(const tow__instruction *inst, const tow__view *x, tow_type type, tow__view *y)
{
    if (!inst->op->view) return false;
    *y = *x;
    y->type = type;
    return inst->op->view(inst->params, x, y);
}

tow__buffer tow__view_buffer(const tow__view *x)
{
    tow__buffer buffer = {.dtype = x->type.dtype, .rank = x->type.rank};
    memcpy(buffer.dims, x->type.dims, sizeof buffer.dims);
    memcpy(buffer.strides, x->strides, sizeof buffer.strides);
    return buffer;
}

bool tow__is_whole(const tow_program *p, const tow__view *x)
{
    return x->offset == 0 && tow__view_contiguous(x) && p->storages[x->storage].bytes == tow_type_bytes(x->type);
}

uint32_t tow__home_of(const tow_program *p, const tow__body *body, uint32_t storage)
{
    const tow__storage *s = &p->storages[storage];
    const tow__loop *loop = body->loop;
    if (s->body != body) return TOW__NONE;
    if (s->kind == TOW__S_OUTPUT) return p->donors[s->index]; /* the storages of inputs come first */
    if (s->kind == TOW__S_CARRY_OUT) return loop->carry[s->index].in;
    if (s->kind != TOW__S_ROW_OUT || tow__by_blocks(loop) || !body->outer) return TOW__NONE;
    const uint32_t home = tow__home_of(p, body->outer, loop->ys[s->index].array.storage);
    for (uint32_t i = 0; home != TOW__NONE && i < loop->n_xs; i++)
        if (loop->xs[i].array.storage == home && loop->xs[i].shift == loop->ys[s->index].shift) return loop->xs[i].row;
    return TOW__NONE;
}
