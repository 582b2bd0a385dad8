/* A scan that only adds rows, or products of rows, to its carry, as loop distribution makes them, is one kernel call:
 *
 *   scan init xs { carry' = carry + x }         =>  sum_rows init xs
 *   scan init xs ys { carry' = carry + x y }    =>  sum_dots init xs ys */
#include "src/kernels/products/sum_dots.h"
#include "src/plan/analysis/view.h"
#include "src/plan/lower/lower.h"
#include "src/plan/rules/rewrite.h"

/* Is x the row of xs that an iteration has at hand, all of it? */
static bool is_row(const tow__rows *xs, const tow__view *x)
{
    if (x->storage != xs->row || x->offset != 0 || x->type.rank + 1 != xs->array.type.rank) return false;
    for (int i = 0; i < x->type.rank; i++)
        if (x->type.dims[i] != xs->array.type.dims[i + 1] || x->strides[i] != xs->array.strides[i + 1]) return false;
    return true;
}

static bool is_all_of(const tow__rewrite *r, const tow__view *x, uint32_t storage)
{
    return x->storage == storage && tow__is_whole(r->p, x);
}

/* Is it carry + x, where x is the row, or what `dot` makes? */
static bool adds_to_carry(const tow__rewrite *r, const tow__loop *loop, const tow__instruction *add,
                          const tow__instruction *dot)
{
    if (add->op != &tow__add_p || !is_all_of(r, &add->out[0], loop->carry[0].out)) return false;
    for (uint32_t j = 0; j < 2; j++) {
        const tow__view *x = &add->in[1 - j];
        if (is_all_of(r, &add->in[j], loop->carry[0].in) &&
            (dot ? is_all_of(r, x, dot->out[0].storage) : is_row(&loop->xs[0], x)))
            return true;
    }
    return false;
}

static const tow_primitive *reduction_of(uint32_t n_xs) { return n_xs == 2 ? &tow__sum_dots_p : &tow__sum_rows_p; }

static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const tow__instruction *scan = &r->insts[at];
    const tow__loop *loop = scan->loop;
    const tow__body *body = loop->body;
    tow__sum_dots_params *params = match;
    const uint32_t n = loop->n_xs;
    if (((const tow__scan_params *)scan->params)->carry != 1 || loop->n_carry != 1 || loop->n_ys != 0) return false;
    if (n < 1 || n > 2 || scan->n_in != 1 + n || body->n_insts != n) return false;
    const tow__instruction *dot = n == 2 ? &body->insts[0] : NULL;
    if (dot &&
        (dot->op != &tow__dot_general_p || !is_row(&loop->xs[0], &dot->in[0]) || !is_row(&loop->xs[1], &dot->in[1])))
        return false;
    if (!adds_to_carry(r, loop, &body->insts[n - 1], dot)) return false;
    *params = (tow__sum_dots_params){.reverse = loop->reverse};
    if (dot) params->dot = *(const tow__dot_params *)dot->params;
    params->dot.rows = params->dot.columns = 0;
    tow__buffer buffers[3];
    for (uint32_t i = 0; i <= n; i++) buffers[i] = tow__view_buffer(&scan->in[i]);
    return tow__kernel_of(reduction_of(n), scan->out[0].type.dtype) && tow__sum_dots_fit(1 + n, buffers, params);
}

/* The storages of the body stay without an instruction, and so without memory. */
static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    tow__instruction *inst = tow__copy_instruction(r, at);
    if (!inst) return TOW_OUT_OF_MEMORY;
    inst->params = tow__arena_copy(&r->p->memory, match, 1, sizeof(tow__sum_dots_params));
    if (!inst->params) return TOW_OUT_OF_MEMORY;
    inst->op = inst->base = reduction_of(inst->loop->n_xs);
    inst->loop = NULL;
    inst->kernel = tow__kernel_of(inst->op, inst->out[0].type.dtype);
    return tow__add_scratch(&r->l, inst);
}

const tow__rule tow__rule_scan_to_reduction = {
    .is_root = tow__is_loop, .match_bytes = sizeof(tow__sum_dots_params), .matches = matches, .replace = replace};
