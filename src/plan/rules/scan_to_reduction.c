/* A scan that only adds rows, or products of rows, to its carry, as loop distribution makes them, is one kernel call:
 *
 *   scan init xs { carry' = carry + x }         =>  reduce_sum xs, added to init in order
 *   scan init xs ys { carry' = carry + x y }    =>  dot_general xs ys, added to init in order */
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

/* The sum over all iterations, as an operation on the stacked rows: axis 0 is reduced, or the first one contracted. */
typedef struct reduction {
    const tow_primitive *op;
    tow__dot_params dot;   /* of dot_general, */
    tow__axes_params axes; /* or of reduce_sum */
    tow__addition accumulation;
} reduction;

static tow__ints behind_iterations(const tow__ints *axes)
{
    tow__ints all = {.n = axes->n + 1};
    for (int i = 0; i < axes->n; i++) all.v[i + 1] = axes->v[i] + 1;
    return all;
}

static reduction reduction_of(const tow__loop *loop, const tow__instruction *dot)
{
    reduction sum = {.op = dot ? &tow__dot_general_p : &tow__reduce_sum_p, .axes = {{1, {0}}}};
    sum.accumulation = (tow__addition){.in_order = true, .reverse = loop->reverse};
    if (!dot) return sum;
    const tow__dot_params *p = dot->params;
    sum.dot = *p;
    sum.dot.rows = sum.dot.columns = 0;
    if (p->lhs_contract.n >= TOW_MAX_RANK) return sum; /* which does not fit */
    sum.dot.lhs_contract = behind_iterations(&p->lhs_contract);
    sum.dot.rhs_contract = behind_iterations(&p->rhs_contract);
    return sum;
}

enum {
    OPERANDS = 3 /* of a reduction, at most */
};

/* The scan as a reduction; in: [OPERANDS] its operands, which are xs and then the initial value. */
static tow__instruction as_reduction(const tow__instruction *scan, const reduction *sum, tow__view *in)
{
    tow__instruction inst = *scan;
    for (uint32_t i = 0; i < inst.n_in; i++) in[i] = scan->in[i + 1 < inst.n_in ? i + 1 : 0];
    inst.op = sum->op;
    inst.params = sum->op == &tow__dot_general_p ? (const void *)&sum->dot : &sum->axes;
    inst.extras.accumulation = &sum->accumulation;
    inst.in = in;
    inst.loop = NULL;
    inst.kernel = tow__kernel_for(&inst, scan->out[0].type.dtype);
    return inst;
}

static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const tow__instruction *scan = &r->insts[at];
    const tow__loop *loop = scan->loop;
    const tow__body *body = loop->body;
    const uint32_t n = loop->n_xs;
    if (((const tow__scan_params *)scan->params)->carry != 1 || loop->n_carry != 1 || loop->n_ys != 0) return false;
    if (n < 1 || n > 2 || scan->n_in != 1 + n || body->n_insts != n) return false;
    const tow__instruction *dot = n == 2 ? &body->insts[0] : NULL;
    if (dot &&
        (dot->op != &tow__dot_general_p || !is_row(&loop->xs[0], &dot->in[0]) || !is_row(&loop->xs[1], &dot->in[1])))
        return false;
    for (uint32_t i = 0; dot && i < 2; i++) /* rows of 16 bits, summed in f32 */
        if (dot->in[i].type.dtype != dot->out[0].type.dtype) return false;
    if (dot && ((const tow__dot_params *)dot->params)->groups > 1) return false;
    if (!adds_to_carry(r, loop, &body->insts[n - 1], dot)) return false;
    reduction *sum = match;
    tow__view in[OPERANDS];
    *sum = reduction_of(loop, dot);
    const tow__instruction inst = as_reduction(scan, sum, in);
    return tow__kernel_takes(&inst, body->team);
}

/* The storages of the body stay without an instruction, and so without memory. */
static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    tow__instruction *inst = tow__copy_instruction(r, at);
    if (!inst) return TOW_OUT_OF_MEMORY;
    const reduction *sum = tow__arena_copy(&r->p->memory, match, 1, sizeof *sum);
    if (!sum) return TOW_OUT_OF_MEMORY;
    tow__view *out = inst->out;
    *inst = as_reduction(&r->insts[at], sum, inst->in);
    inst->out = out;
    inst->scratch = TOW__NONE;
    return tow__add_scratch(&r->l, inst);
}

const tow__rule tow__rule_scan_to_reduction = {
    .is_root = tow__is_loop, .match_bytes = sizeof(reduction), .matches = matches, .replace = replace};
