/* Operands of 16 bits that were widened for a kernel which reads them as they are stored:
 *
 *   w: f32 = convert x: bf16,  y: f32 = conv_general_dilated w, k   =>   y: f32 = conv_general_dilated x, k
 *
 * No array of f32 exists then: the kernel widens x piece by piece as it reads it (`halves` of kernels). The bits stay,
 * except where a unit for bf16 multiplies two operands that are both stored in bf16: that is for equations which the
 * user's graph states on 16 bits, and never for f32 of converted numbers, whose conversions may stand anywhere. So it
 * is a property of the graph which of them it is, and the rule cannot be left out. */
#include "src/plan/rules/rewrite.h"

enum {
    MOST = 8 /* operands of such a kernel */
};

static bool is_root(const tow_primitive *op) { return op->kind != TOW__ELEMENTWISE && !op->view; }

/* The value of 16 bits that operand i widens; TOW__NONE: it widens none. of_graph: its equation has 16 bits itself. */
static uint32_t stored(const tow__rewrite *r, const tow__instruction *inst, uint32_t i, bool *of_graph)
{
    const tow__instruction *maker = tow__maker_of(r, inst->operands[i]);
    if (!(inst->kernel->halves >> i & 1) || !maker || !TOW__COMPUTES(maker, convert)) return TOW__NONE;
    const uint32_t from = maker->operands[0];
    if (!tow__is_half(r->f->types[from].dtype) || r->f->types[maker->results[0]].dtype != TOW_F32) return TOW__NONE;
    *of_graph = ((const tow__dtype_params *)maker->params)->widens;
    return from;
}

/* Finds the operands that the instruction is to read. False: it reads them already. */
static bool find_operands(const tow__rewrite *r, const tow__instruction *inst, uint32_t *operands)
{
    bool any = false, of_graph = true;
    for (uint32_t i = 0; i < inst->n_in; i++) {
        bool of_this = false; /* of an operand that is no conversion, or not any more */
        const uint32_t from = stored(r, inst, i, &of_this);
        operands[i] = from == TOW__NONE ? inst->operands[i] : from;
        if (i < 2) of_graph = of_graph && of_this;
    }
    const tow_type *types = r->f->types;
    const bool both = inst->n_in > 1 && types[operands[0]].dtype == TOW_BF16 && types[operands[1]].dtype == TOW_BF16;
    if (both && inst->kernel->units && !of_graph) operands[0] = inst->operands[0];
    for (uint32_t i = 0; i < inst->n_in; i++) any = any || operands[i] != inst->operands[i];
    return any;
}

static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const tow__instruction *inst = &r->f->insts[at];
    if (!inst->kernel || inst->kernel->halves == 0 || inst->n_in > MOST) return false;
    return find_operands(r, inst, match);
}

static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    const tow__instruction *inst = &r->f->insts[at];
    const tow__computation stays = {inst->op, inst->params, 0, inst->n_in, match};
    return tow__change_instruction(r, at, &stays, 0, NULL);
}

const tow__rule tow__rule_read_as_stored = {.on_values = true,
                                            .is_root = is_root,
                                            .match_bytes = MOST * sizeof(uint32_t),
                                            .matches = matches,
                                            .replace = replace};
