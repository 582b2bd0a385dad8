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

/* True if `value` depends on the results of node `on`, or may do. Nodes read what nodes before them make, except for
 * what has been merged, so the walk goes down. */
static bool depends(tow__rewrite *r, uint32_t value, uint32_t on)
{
    const tow__flat *f = r->f;
    const uint32_t first = f->makers[value];
    if (first == TOW__INPUT || first <= on) return first == on;
    bool *reached = tow__arena_alloc(r->scratch, (size_t)first + 1, sizeof *reached);
    if (!reached) r->status = TOW_OUT_OF_MEMORY;
    if (!reached) return true;
    reached[first] = true;
    for (uint32_t n = first; n > on; n--)
        for (uint32_t i = 0; reached[n] && i < f->nodes[n].e->n_in; i++) {
            uint32_t maker = f->makers[f->nodes[n].in[i]];
            if (maker == TOW__INPUT) continue;
            if (maker > n) return true;
            reached[maker] = true;
        }
    return reached[on];
}

static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const tow__node *vjp = &r->f->nodes[at], *loss = tow__maker_of(r, vjp->in[3]);
    const uint32_t forward = r->f->makers[vjp->in[3]];
    (void)match;
    return loss && forward < at && TOW__IS(loss->e, linear_cross_entropy) && loss->out[1] == vjp->in[3] &&
           memcmp(loss->in, vjp->in, 3 * sizeof *loss->in) == 0 && !depends(r, vjp->in[4], forward);
}

static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    const tow__node *vjp = &r->f->nodes[at], *loss = tow__maker_of(r, vjp->in[3]);
    const uint32_t in[] = {vjp->in[0], vjp->in[1], vjp->in[2], vjp->in[4]};
    uint32_t n_out = 0, out[4] = {loss->out[0], loss->out[1]};
    (void)match;
    for (n_out = 2; n_out < vjp->e->n_out + 2; n_out++) out[n_out] = vjp->out[n_out - 2];
    tow__equation *e = tow__arena_alloc(&r->p->memory, 1, sizeof *e);
    if (!e) return TOW_OUT_OF_MEMORY;
    *e = (tow__equation){.primitive = &tow__linear_cross_entropy_and_vjp_p,
                         .params = vjp->e->params,
                         .n_in = 4,
                         .n_out = n_out,
                         .source = vjp->e->source};
    return tow__change_node(r, at, e, in, out);
}

const tow__rule tow__rule_fuse_loss_and_gradient = {
    .on_nodes = true, .is_root = is_vjp, .matches = matches, .replace = replace};
