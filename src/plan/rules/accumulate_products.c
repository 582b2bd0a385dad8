/* A product that a loop adds to its carry, as gradients of a weight are, is added where the carry lies:
 *
 *   carry' = dot_general(add) x y carry   =>   carry' = dot_general x y + carry
 *
 * This holds for every product whose kernel can add, where that gives the bits of a product and an addition. Others
 * keep the addition as their epilogue, and the carry two buffers. */
#include "src/kernels/elementwise/fused.h"
#include "src/plan/analysis/view.h"
#include "src/plan/lower/lower.h"
#include "src/plan/rules/rewrite.h"

static bool is_product(const tow_primitive *op) { return op->product != TOW__NO_PRODUCT; }

/* Is the program one addition of the product, value 0, and operand 1? */
static bool only_adds(const tow__fused *program)
{
    const tow__fused_op *op = &program->ops[0];
    return program->n_ops == 1 && program->n_in == 2 && program->n_out == 1 && !op->joined &&
           op->function == TOW__FN_add && op->in[0] + op->in[1] == 1;
}

/* The last operand is the carry as it enters, and the result the same carry as it leaves. */
static bool updates_carry(const tow__rewrite *r, const tow__instruction *inst)
{
    const tow__view *x = &inst->in[inst->n_in - 1];
    const tow__storage *old = &r->p->storages[x->storage], *new = &r->p->storages[inst->out[0].storage];
    return old->kind == TOW__S_CARRY_IN && new->kind == TOW__S_CARRY_OUT && old->index == new->index &&
           old->body == r->s->body &&tow__is_whole(r->p, x);
}

/* The product of `inst`, added to the last operand. */
static void add_to_last(tow__instruction *inst)
{
    static const tow__addition adds = {.in_order = false};
    inst->extras = (tow__extras){.accumulation = &adds};
    inst->kernel = tow__kernel_for(inst, inst->out[0].type.dtype);
}

static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const tow__instruction *inst = &r->insts[at];
    (void)match;
    if (tow__variant_of(&inst->extras) != TOW__WITH_EPILOGUE || inst->n_out != 1) return false;
    if (!only_adds(inst->extras.epilogue->program) || !updates_carry(r, inst)) return false;
    tow__instruction sum = *inst;
    add_to_last(&sum);
    return tow__kernel_takes(&sum, r->s->body->team);
}

static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    tow__instruction *inst = tow__copy_instruction(r, at);
    (void)match;
    if (!inst) return TOW_OUT_OF_MEMORY;
    add_to_last(inst);
    return tow__add_scratch(&r->l, inst);
}

const tow__rule tow__rule_accumulate_products = {.is_root = is_product, .matches = matches, .replace = replace};
