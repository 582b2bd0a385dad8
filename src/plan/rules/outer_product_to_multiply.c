/* A product over one element is an elementwise product of repeated operands:
 *
 *   dot_general x [m, 1] y [1, n]   =>   mul x [m, n] strides (x_0, 0), y [m, n] strides (0, y_1)
 *
 * So it can be part of a row program: outer products that are summed, as gradients of a weight that sees one row at a
 * time, are one pass over the sum. The pass cannot be left out: an engine that begins its sum with 0 makes 0 of a
 * product that is -0, and a program has one of them whatever else is rewritten. */
#include "src/plan/lower/lower.h"
#include "src/plan/rules/rewrite.h"

static bool is_product(const tow_primitive *op) { return op == &tow__dot_general_p; }

static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const tow__instruction *inst = &r->insts[at];
    const tow__dot_params *p = inst->params;
    (void)match;
    for (int i = 0; i < p->lhs_contract.n; i++)
        if (inst->in[0].type.dims[p->lhs_contract.v[i]] != 1) return false;
    return tow__kernel_of(&tow__mul_p, inst->out[0].type.dtype) != NULL;
}

/* An operand of a product as a view of the result, of which its free axes are those from `first` on. */
static void repeat_operand(tow__view *x, const tow__ints *batch, const tow__ints *contract, tow_type type, int first)
{
    tow__view y = *x;
    y.type = type;
    memset(y.strides, 0, sizeof y.strides);
    for (int i = 0; i < batch->n; i++) y.strides[i] = x->strides[batch->v[i]];
    for (int axis = 0; axis < x->type.rank; axis++)
        if (!tow__ints_contain(batch, axis) && !tow__ints_contain(contract, axis))
            y.strides[first++] = x->strides[axis];
    *x = y;
}

static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    const tow__dot_params *p = r->insts[at].params;
    tow__instruction *inst = tow__copy_instruction(r, at);
    (void)match;
    if (!inst) return TOW_OUT_OF_MEMORY;
    const tow_type type = inst->out[0].type;
    const int rows = inst->in[0].type.rank - p->lhs_contract.n;
    repeat_operand(&inst->in[0], &p->lhs_batch, &p->lhs_contract, type, p->lhs_batch.n);
    repeat_operand(&inst->in[1], &p->rhs_batch, &p->rhs_contract, type, rows);
    inst->op = &tow__mul_p;
    inst->kernel = tow__kernel_of(&tow__mul_p, type.dtype);
    inst->params = NULL;
    return tow__add_scratch(&r->l, inst);
}

const tow__rule tow__rule_outer_product_to_multiply = {.is_root = is_product, .matches = matches, .replace = replace};
