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
