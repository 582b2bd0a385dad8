/* Loop-invariant operands that products of few rows read transposed are transposed once, before the loop:
 *
 *   scan ... { u = dot_general h w, contracting axis 1 of w }
 *   =>  t = copy w^T;  scan ... { u = dot_general h t^T }
 *
 * The kernel would transpose w in every iteration again, which takes longer than the product. The bits stay. */
#include "src/plan/analysis/cost.h"
#include "src/plan/rules/rewrite.h"

enum {
    FEW_ITERATIONS = 4 /* of n transpositions one is left: three quarters of their time are saved at least */
};

/* Is the storage one of the loop's body, or of a loop inside it? `body` is the function that reads it. */
static bool is_inside(const tow_program *p, const tow__loop *loop, const tow__body *body, uint32_t storage)
{
    const tow__body *plan = p->storages[storage].body;
    for (; body != loop->body; body = body->outer)
        if (body == plan) return true;
    return plan == loop->body;
}

/* A product of few rows of a matrix that comes from outside of the loop and is contracted along its last axis. */
static bool wants_transposed(const tow_program *p, const tow__loop *loop, const tow__body *body,
                             const tow__instruction *inst)
{
    if (inst->op != &tow__dot_general_p) return false;
    const tow__dot_params *dot = inst->params;
    const tow__view *x = &inst->in[1];
    if (is_inside(p, loop, body, x->storage) || tow__view_same(x, &inst->in[0])) return false;
    if (x->type.rank != 2 || x->strides[1] != 1 || x->type.dims[0] < 2 || x->type.dims[1] < 2) return false;
    if (dot->rhs_batch.n > 0 || dot->rhs_contract.n != 1 || dot->rhs_contract.v[0] != 1) return false;
    return tow_type_element_count(inst->out[0].type) / x->type.dims[0] < tow__enough_rows(&p->machine);
}

/* The operand of the first such product in the body or in loops inside it, in a storage below `end`; NULL: there is
 * none. */
static const tow__view *find_operand(const tow_program *p, const tow__loop *loop, const tow__body *body, uint32_t end)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        const tow__view *found = inst->loop                              ? find_operand(p, loop, inst->loop->body, end)
                                 : wants_transposed(p, loop, body, inst) ? &inst->in[1]
                                                                         : NULL;
        if (found && found->storage < end) return found;
    }
    return NULL;
}

static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const tow__loop *loop = r->insts[at].loop;
    (void)match;
    return loop->length >= FEW_ITERATIONS && !loop->stops && find_operand(r->p, loop, loop->body, TOW__NONE);
}

static tow__view transposed(const tow__view *x)
{
    tow__view y = *x;
    y.type.dims[0] = x->type.dims[1];
    y.type.dims[1] = x->type.dims[0];
    y.strides[0] = x->strides[1];
    y.strides[1] = x->strides[0];
    return y;
}

/* Instructions of the body that read x, or its transpose, read `copy`, or its transpose. */
static tow_status redirect(tow__rewrite *r, tow__body *body, const tow__view *x, const tow__view *copy)
{
    const tow__view x_t = transposed(x), copy_t = transposed(copy);
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        tow__instruction *inst = &body->insts[i];
        if (inst->loop) {
            TRY(redirect(r, inst->loop->body, x, copy));
            TRY(tow__list_loop_reads(r->p, inst, r->scratch));
            continue;
        }
        for (uint32_t j = 0; j < inst->n_in; j++)
            if (tow__view_same(&inst->in[j], x))
                inst->in[j] = *copy;
            else if (tow__view_same(&inst->in[j], &x_t))
                inst->in[j] = copy_t;
    }
done:
    return status;
}

/* The copies themselves are not transposed again, though others may read them so. */
static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    tow__instruction scan = r->insts[at];
    const uint32_t end = r->p->n_storages;
    const tow__view *operand;
    tow_status status = TOW_OK;
    (void)match;
    while ((operand = find_operand(r->p, scan.loop, scan.loop->body, end))) {
        const tow__view x = *operand, x_t = transposed(&x);
        uint32_t s = tow__add_storage(r->p, r->s->body, TOW__S_ARENA, 0, tow_type_bytes(x.type));
        if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
        const tow__view whole = tow__view_whole(s, x_t.type), copy = transposed(&whole);
        TRY(tow__add_copy(&r->l, &x_t, s, scan.backward));
        TRY(redirect(r, scan.loop->body, &x, &copy));
    }
    TRY(tow__list_loop_reads(r->p, &scan, r->scratch));
    TRY(tow__append_instruction(r->p, r->s->body, &scan));
done:
    return status;
}

const tow__rule tow__rule_pretranspose = {.is_root = tow__is_loop, .matches = matches, .replace = replace};
