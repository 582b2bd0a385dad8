/* A loss and its gradient in one instruction: logits that are made for linear_cross_entropy serve its derivative as
 * well.
 *
 *   loss, lse = linear_cross_entropy x w labels
 *   dx, dw    = linear_cross_entropy_vjp x w labels lse ct     where ct does not depend on the loss
 *   =>  loss, lse, dx, dw = linear_cross_entropy_and_vjp x w labels ct
 *
 * The kernel of both gives the bits of one after the other. */
#include "src/plan/rules/rewrite.h"

static bool is_vjp(const tow_primitive *op) { return op == &tow__linear_cross_entropy_vjp_p; }

/* True if `value` depends on the results of instruction `on`, or may do. Instructions read what those before them make,
 * except for what has been merged, so the walk goes down. */
static bool depends(tow__rewrite *r, uint32_t value, uint32_t on)
{
    const tow__body *f = r->f;
    const uint32_t first = f->makers[value];
    if (first == TOW__INPUT || first <= on) return first == on;
    bool *reached = tow__arena_alloc(r->scratch, (size_t)first + 1, sizeof *reached);
    if (!reached) r->status = TOW_OUT_OF_MEMORY;
    if (!reached) return true;
    reached[first] = true;
    for (uint32_t n = first; n > on; n--)
        for (uint32_t i = 0; reached[n] && i < f->insts[n].n_in; i++) {
            uint32_t maker = f->makers[f->insts[n].operands[i]];
            if (maker == TOW__INPUT) continue;
            if (maker > n) return true;
            reached[maker] = true;
        }
    return reached[on];
}

static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const tow__instruction *vjp = &r->f->insts[at], *loss = tow__maker_of(r, vjp->operands[3]);
    const uint32_t forward = r->f->makers[vjp->operands[3]];
    (void)match;
    return loss && forward < at && TOW__COMPUTES(loss, linear_cross_entropy) && loss->results[1] == vjp->operands[3] &&
           memcmp(loss->operands, vjp->operands, 3 * sizeof *loss->operands) == 0 &&
           !depends(r, vjp->operands[4], forward);
}

static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    const tow__instruction *vjp = &r->f->insts[at], *loss = tow__maker_of(r, vjp->operands[3]);
    const uint32_t in[] = {vjp->operands[0], vjp->operands[1], vjp->operands[2], vjp->operands[4]};
    uint32_t n_out = 0, out[4] = {loss->results[0], loss->results[1]};
    (void)match;
    for (n_out = 2; n_out < vjp->n_out + 2; n_out++) out[n_out] = vjp->results[n_out - 2];
    const tow__computation both = {&tow__linear_cross_entropy_and_vjp_p, vjp->params, 0, 4, in};
    return tow__change_instruction(r, at, &both, n_out, out);
}

const tow__rule tow__rule_fuse_loss_and_gradient = {
    .on_values = true, .is_root = is_vjp, .matches = matches, .replace = replace};
