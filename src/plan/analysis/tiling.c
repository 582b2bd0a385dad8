/* Which steps compute rows independently, and how an operand takes part in that: tiling rules, asked for axis 0. */
#include "src/plan/plan.h"

static int64_t rows(const tow__view *x) { return x->type.rank ? x->type.dims[0] : 0; }

static tow__operation operation_of(const tow__instruction *inst)
{
    return (tow__operation){inst->params, inst->n_in, inst->n_out, inst->in, inst->out};
}

double tow__flops(const tow__instruction *inst)
{
    tow__operation o = operation_of(inst);
    return inst->base->cost(&o);
}

bool tow__reduces_axis(const tow__instruction *inst) { return inst->base->reduces_axis; }

/* Rows of products are rows of the left operand: blocks of them are products of as many columns. */
bool tow__is_tileable(const tow__instruction *inst, int *from)
{
    tow__operation o = operation_of(inst);
    for (uint32_t i = 0; i < inst->n_in; i++) from[i] = TOW__WHOLE;
    if (!inst->kernel || !inst->n_out || rows(&inst->out[0]) < 2) return false;
    for (uint32_t i = 1; i < inst->n_out; i++)
        if (rows(&inst->out[i]) != rows(&inst->out[0])) return false;
    if (!inst->base->tile(&o, 0, from)) return false;
    for (uint32_t i = 0; i < inst->n_in; i++)
        if (from[i] > 0) return false;
    return inst->base->kind != TOW__DOT || from[0] == 0;
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
    if (inst->base != &tow__dot_general_p) return inner;
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
