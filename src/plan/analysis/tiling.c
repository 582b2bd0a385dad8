/* Which instructions compute rows independently, and how an operand takes part in that: tiling rules, asked for axis 0. */
#include "src/plan/analysis/tiling.h"
#include "src/plan/analysis/analysis.h"

static int64_t rows(const tow__view *x) { return x->type.rank ? x->type.dims[0] : 0; }

bool tow__reduces_axis(const tow__instruction *inst) { return inst->op->reduces_axis; }

/* Rows of products are rows of the left operand: blocks of them are products of as many columns. */
bool tow__is_tileable(const tow__instruction *inst, int *from)
{
    const tow__operation o = tow__operation_of(inst);
    for (uint32_t i = 0; i < inst->n_in; i++) from[i] = TOW__WHOLE;
    if (!inst->kernel || !inst->n_out || rows(&inst->out[0]) < 2 || inst->extras.part) return false;
    if (inst->extras.reductions || (inst->extras.accumulation && inst->extras.accumulation->in_order)) return false;
    for (uint32_t i = 1; i < inst->n_out; i++)
        if (rows(&inst->out[i]) != rows(&inst->out[0])) return false;
    if (!inst->op->tile(&o, 0, from)) return false;
    for (uint32_t i = 0; i < inst->n_in; i++)
        if (from[i] > 0) return false;
    return inst->op->kind != TOW__DOT || from[0] == 0;
}

tow__tiling *tow__find_tiling(const tow__body *body, tow__arena *scratch)
{
    tow__tiling *t = tow__arena_alloc(scratch, 1, sizeof *t);
    size_t operands = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) operands += body->insts[i].n_in;
    int *from = tow__arena_alloc(scratch, operands, sizeof *from);
    if (!t || !from) return NULL;
    t->is_tileable = tow__arena_alloc(scratch, body->n_insts, sizeof *t->is_tileable);
    t->from = tow__arena_alloc(scratch, body->n_insts, sizeof *t->from);
    if (!t->is_tileable || !t->from) return NULL;
    for (uint32_t i = 0; i < body->n_insts; from += body->insts[i++].n_in) {
        t->from[i] = from;
        t->is_tileable[i] = tow__is_tileable(&body->insts[i], from);
    }
    return t;
}

/* ---- blocks of rows ---------------------------------------------------------------------------------------------- */

bool tow__is_balanced(int64_t blocks, int64_t threads)
{
    int64_t rounds = (blocks + threads - 1) / threads;
    return 4 * blocks >= 3 * rounds * threads;
}

int64_t tow__inner_rows(const tow__instruction *inst)
{
    const tow_type *x = &inst->in[0].type;
    int64_t inner = x->rank > 1 ? x->dims[1] : 1, count = 1;
    if (inst->op != &tow__dot_general_p) return inner;
    const tow__dot_params *p = inst->params;
    for (int i = 1; i < x->rank; i++) count *= x->dims[i];
    for (int i = 0; i < p->lhs_contract.n; i++)
        count /= (x->dims[p->lhs_contract.v[i]] ? x->dims[p->lhs_contract.v[i]] : 1);
    return count;
}

bool tow__fits_tiles(const tow_program *p, const tow__view *x, int64_t n)
{
    const tow__storage *s = &p->storages[x->storage];
    int64_t size = (int64_t)tow_dtype_size(x->type.dtype);
    if (s->bytes == 0 || s->bytes % (size_t)(n * size) || x->type.dims[0] % n) return false;
    int64_t part = (int64_t)s->bytes / size / n, per_block = x->type.dims[0] / n;
    int64_t low = x->offset, high = x->offset;
    if (x->strides[0] * per_block != part) return false;
    for (int a = 0; a < x->type.rank; a++) {
        int64_t reach = ((a ? x->type.dims[a] : per_block) - 1) * x->strides[a];
        if (reach < 0)
            low += reach;
        else
            high += reach;
    }
    return low >= 0 && high < part;
}

bool tow__repeats_rows(const tow__view *x) { return x->strides[0] == 0 && x->type.dims[0] > 1; }
