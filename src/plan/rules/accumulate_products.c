/* A product that a loop adds to its carry, row of x by row of y, as gradients of a weight are, is added where the
 * carry lies:
 *
 *   carry' = fused_dot_general x y carry (add)   =>   dot_general_add x y carry */
#include "src/kernels/elementwise/fused.h"
#include "src/kernels/products/dot.h"
#include "src/plan/analysis/view.h"
#include "src/plan/lower/lower.h"
#include "src/plan/rules/rewrite.h"

static bool is_product(const tow_primitive *op) { return op == &tow__dot_general_p; }

/* Is the program one addition of the product, value 0, and operand 1? */
static bool only_adds(const tow__fused *program)
{
    const tow__fused_op *op = &program->ops[0];
    return program->n_ops == 1 && program->n_in == 2 && program->n_out == 1 && !op->joined &&
           op->function == TOW__FN_add && op->in[0] + op->in[1] == 1;
}

/* Operand 2 is the carry as it enters, and the result the same carry as it leaves. */
static bool updates_carry(const tow__rewrite *r, const tow__instruction *inst)
{
    const tow__storage *old = &r->p->storages[inst->in[2].storage], *new = &r->p->storages[inst->out[0].storage];
    return old->kind == TOW__S_CARRY_IN && new->kind == TOW__S_CARRY_OUT && old->index == new->index &&
           old->body == r->s->body &&tow__is_whole(r->p, &inst->in[2]);
}

static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const tow__instruction *inst = &r->insts[at];
    (void)match;
    if (inst->op != &tow__fused_dot_general_p || inst->n_in != 3 || inst->n_out != 1) return false;
    const tow__fused_product_params *fused = inst->params;
    const tow__dot_params *p = &fused->of.dot;
    if (!only_adds(fused->program) || !updates_carry(r, inst) || inst->out[0].type.dtype != TOW_F32) return false;
    if (p->lhs_batch.n || p->lhs_contract.n != 1 || p->lhs_contract.v[0] || p->rhs_contract.v[0]) return false;
    tow__buffer in[2] = {tow__view_buffer(&inst->in[0]), tow__view_buffer(&inst->in[1])},
                out = tow__view_buffer(&inst->out[0]);
    tow__kernel_call call = {.n_in = 2, .n_out = 1, .in = in, .out = &out, .params = p, .team = r->s->body->team};
    return in[0].dims[0] > 0 && in[0].dims[0] <= tow__dot_kc(&call);
}

static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    tow__instruction *inst = tow__copy_instruction(r, at);
    (void)match;
    if (!inst) return TOW_OUT_OF_MEMORY;
    inst->op = &tow__dot_general_add_p;
    inst->kernel = tow__kernel_of(inst->op, TOW_F32);
    return tow__add_scratch(&r->l, inst);
}

const tow__rule tow__rule_accumulate_products = {.is_root = is_product, .matches = matches, .replace = replace};
