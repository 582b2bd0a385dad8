/* A loss and its gradient in one step: logits that are made for linear_cross_entropy serve its derivative as well.
 *
 *   loss, lse = linear_cross_entropy x w labels
 *   dx, dw    = linear_cross_entropy_vjp x w labels lse ct     where ct does not depend on the loss
 *
 * The kernel of both gives the bits of one after the other. */
#include "src/plan/plan.h"

/* True if `value` depends on the results of node `on`, or may do. Nodes read what nodes before them make, except for
 * what has been merged, so the walk goes down. */
static tow_status depends(const tow__flat *f, tow__arena *scratch, uint32_t value, uint32_t on, bool *result)
{
    uint32_t first = f->makers[value];
    *result = first == on;
    if (first == TOW__INPUT || first <= on) return TOW_OK;
    bool *reached = tow__arena_alloc(scratch, (size_t)first + 1, sizeof *reached);
    if (!reached) return TOW_OUT_OF_MEMORY;
    reached[first] = true;
    for (uint32_t n = first; n > on; n--)
        for (uint32_t i = 0; reached[n] && i < f->nodes[n].e->n_in; i++) {
            uint32_t maker = f->makers[f->nodes[n].in[i]];
            if (maker == TOW__INPUT) continue;
            if (maker > n) {
                *result = true;
                return TOW_OK;
            }
            reached[maker] = true;
        }
    *result = reached[on];
    return TOW_OK;
}

/* Node `at`, a derivative, also makes what node `forward` has made. */
static tow_status merge(tow_program *p, tow__arena *scratch, tow__flat *f, uint32_t at, uint32_t forward)
{
    tow__node *node = &f->nodes[at];
    const tow__node *loss = &f->nodes[forward];
    uint32_t n_out = node->e->n_out + 2, in[4] = {node->in[0], node->in[1], node->in[2], node->in[4]}, out[4];
    out[0] = loss->out[0];
    out[1] = loss->out[1];
    for (uint32_t i = 2; i < n_out; i++) out[i] = node->out[i - 2];
    tow__equation *e = tow__arena_alloc(&p->memory, 1, sizeof *e);
    if (!e) return TOW_OUT_OF_MEMORY;
    *e = (tow__equation){.primitive = &tow__linear_cross_entropy_and_vjp_p,
                         .params = node->e->params,
                         .n_in = 4,
                         .n_out = n_out,
                         .source = node->e->source};
    node->e = e;
    node->in = tow__arena_copy(scratch, in, 4, sizeof *in);
    node->out = tow__arena_copy(scratch, out, n_out, sizeof *out);
    if (!node->in || !node->out) return TOW_OUT_OF_MEMORY;
    node->kernel = tow__kernel_of(e->primitive, f->types[in[0]].dtype);
    f->makers[out[0]] = f->makers[out[1]] = at;
    return TOW_OK;
}

tow_status tow__fuse_loss_and_gradient(tow_program *p, tow__arena *scratch, tow__flat *f)
{
    for (uint32_t at = 0; at < f->n_nodes; at++) {
        const tow__node *node = &f->nodes[at];
        if (!TOW__IS(node->e, linear_cross_entropy_vjp)) continue;
        uint32_t forward = f->makers[node->in[3]];
        if (forward == TOW__INPUT || forward >= at) continue;
        const tow__node *loss = &f->nodes[forward];
        bool waits = true;
        if (!TOW__IS(loss->e, linear_cross_entropy) || loss->out[1] != node->in[3]) continue;
        if (memcmp(loss->in, node->in, 3 * sizeof *loss->in) != 0) continue;
        tow_status status = depends(f, scratch, node->in[4], forward, &waits);
        if (status == TOW_OK && !waits) status = merge(p, scratch, f, at, forward);
        if (status != TOW_OK) return status;
    }
    return TOW_OK;
}
