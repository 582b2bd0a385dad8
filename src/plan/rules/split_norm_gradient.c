/* The derivative of a norm by its input goes by rows and can be tiled; those by scale and bias sum over rows:
 *
 *   dx, dscale, dbias = layer_norm_vjp ...   =>   dx = layer_norm_vjp ...;  dscale, dbias = layer_norm_vjp ...
 *
 * This is for functions that are tiled, and for those whose weights are so large that threads share the rows of each
 * instruction instead; elsewhere nothing is gained by reading the operands twice. */
#include "src/plan/lower/lower.h"
#include "src/plan/rules/rewrite.h"
#include "src/plan/tile/tile.h"

enum {
    BY_INPUT = 1 /* bit of params.wrt */
};

static bool is_norm_vjp(const tow_primitive *op) { return op == &tow__layer_norm_vjp_p || op == &tow__rms_norm_vjp_p; }

static bool is_tiled(tow__rewrite *r) { return tow__works_by_rows(r->s, &r->status); }

static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const int64_t wrt = ((const tow__norm_ad_params *)r->insts[at].params)->wrt;
    (void)match;
    return r->insts[at].kernel && (wrt & BY_INPUT) && wrt != BY_INPUT;
}

static tow_status add_part(tow__rewrite *r, const tow__instruction *inst, int64_t wrt, uint32_t first, uint32_t n_out)
{
    tow__instruction *part = tow__add_instruction(&r->l, inst->op, inst->n_in, n_out);
    tow__norm_ad_params *params = tow__arena_copy(&r->p->memory, inst->params, 1, sizeof *params);
    if (!part || !params) return TOW_OUT_OF_MEMORY;
    params->wrt = wrt;
    part->kernel = inst->kernel;
    part->params = params;
    part->backward = inst->backward;
    part->source = inst->source;
    memcpy(part->in, inst->in, inst->n_in * sizeof *part->in);
    memcpy(part->out, inst->out + first, n_out * sizeof *part->out);
    return tow__add_scratch(&r->l, part);
}

static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    const tow__instruction *inst = &r->insts[at];
    const int64_t wrt = ((const tow__norm_ad_params *)inst->params)->wrt;
    (void)match;
    tow_status status = add_part(r, inst, BY_INPUT, 0, 1);
    return status == TOW_OK ? add_part(r, inst, wrt & ~(int64_t)BY_INPUT, 1, inst->n_out - 1) : status;
}

const tow__rule tow__rule_split_norm_gradient = {
    .is_root = is_norm_vjp, .applies = is_tiled, .matches = matches, .replace = replace};
