/* Operands of 16 bits that were widened for a kernel which reads them as they are stored:
 *
 *   w: f32 = convert x: bf16,  y: f32 = conv_general_dilated w, k   =>   y: f32 = conv_general_dilated x, k
 *
 * No array of f32 exists then: the kernel widens x piece by piece as it reads it (`halves` of kernels). The bits stay.
 * Products of two stored operands run on units for bf16 only where the equation says that the user's graph states it on
 * 16 bits (`of_halves`), and those have bits that depend on this rule: it cannot be left out. */
#include "src/plan/rules/rewrite.h"

enum {
    MOST = 8 /* operands of such a kernel */
};

static bool is_root(const tow_primitive *op) { return op->kind != TOW__ELEMENTWISE && !op->view; }

/* The value of 16 bits that is widened to make this one; TOW__NONE: there is none. */
static uint32_t source_of(const tow__rewrite *r, uint32_t value)
{
    const tow__instruction *maker = tow__maker_of(r, value);
    if (!maker || !TOW__COMPUTES(maker, convert) || r->f->types[value].dtype != TOW_F32) return TOW__NONE;
    return tow__is_half(r->f->types[maker->operands[0]].dtype) ? maker->operands[0] : TOW__NONE;
}

/* The same for operand i, which may be a view of what is widened: a kernel whose positions are turned around. */
static uint32_t stored(const tow__rewrite *r, const tow__instruction *inst, uint32_t i)
{
    if (!(inst->kernel->halves >> i & 1)) return TOW__NONE;
    const uint32_t from = source_of(r, inst->operands[i]);
    const tow__instruction *maker = tow__maker_of(r, inst->operands[i]);
    const bool is_view = maker && maker->op->view && maker->n_in == 1;
    return from == TOW__NONE && is_view ? source_of(r, maker->operands[0]) : from;
}

/* from: [n_in] what `stored` says of each operand. */
static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const tow__instruction *inst = &r->f->insts[at];
    if (!inst->kernel || inst->kernel->halves == 0 || inst->n_in > MOST) return false;
    uint32_t *from = match;
    bool any = false;
    for (uint32_t i = 0; i < inst->n_in; i++) {
        from[i] = stored(r, inst, i);
        any = any || from[i] != TOW__NONE;
    }
    return any;
}

/* The value that instruction `at` is to read in place of `operand`: the stored one, or the view of it. TOW__NONE: no
 * memory. */
static uint32_t as_stored(tow__rewrite *r, uint32_t at, uint32_t operand, uint32_t from)
{
    if (source_of(r, operand) == from) return from;
    const tow__instruction *maker = tow__maker_of(r, operand);
    tow_type type = r->f->types[operand];
    type.dtype = r->f->types[from].dtype;
    const tow__computation view = {maker->op, maker->params, 0, 1, &from};
    return tow__new_instruction(r, &r->f->insts[at], &view, type);
}

static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    const uint32_t *from = match, n = r->f->insts[at].n_in;
    uint32_t operands[MOST];
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t operand = r->f->insts[at].operands[i];
        operands[i] = from[i] == TOW__NONE ? operand : as_stored(r, at, operand, from[i]);
        if (operands[i] == TOW__NONE) return TOW_OUT_OF_MEMORY;
    }
    const tow__instruction *inst = &r->f->insts[at];
    const tow__computation stays = {inst->op, inst->params, 0, n, operands};
    return tow__change_instruction(r, at, &stays, 0, NULL);
}

const tow__rule tow__rule_read_as_stored = {.on_values = true,
                                            .is_root = is_root,
                                            .match_bytes = MOST * sizeof(uint32_t),
                                            .matches = matches,
                                            .replace = replace};
