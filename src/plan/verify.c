/* The verifier: what a pass must leave behind, checked after each one. check.c checks a whole program, with the places
 * of its storages; here a single function is looked at, before they have any. */
#include "src/plan/pass.h"

/* ---- instructions on values -------------------------------------------------------------------------------------- */

static tow_status bad_inst(tow_context *ctx, const tow__body *body, const char *pass, uint32_t i, const char *what)
{
    return tow__fail(ctx, TOW_INTERNAL_ERROR, "pass %s left instruction %u (%s) %s (please report this)", pass, i,
                     body->insts[i].op ? body->insts[i].op->name : "no operation", what);
}

static bool names_values(const uint32_t *values, uint32_t n, uint32_t n_values)
{
    for (uint32_t i = 0; i < n; i++)
        if (values[i] >= n_values) return false;
    return true;
}

/* Is every operand made before? Instructions stand in the order in which they run once outputs are marked. */
static bool can_run(const tow__body *body, uint32_t i)
{
    const tow__instruction *inst = &body->insts[i];
    for (uint32_t j = 0; j < inst->n_in; j++)
        if (body->makers[inst->operands[j]] != TOW__INPUT && body->makers[inst->operands[j]] >= i) return false;
    return true;
}

tow_status tow__verify_values(tow_context *ctx, const tow__body *body, const char *pass)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        if (!names_values(inst->operands, inst->n_in, body->n_values))
            return bad_inst(ctx, body, pass, i, "with a wrong operand");
        if (!names_values(inst->results, inst->n_out, body->n_values))
            return bad_inst(ctx, body, pass, i, "with a wrong result");
    }
    for (uint32_t v = 0; v < body->n_values; v++)
        if (body->makers[v] != TOW__INPUT && body->makers[v] >= body->n_insts)
            return tow__fail(ctx, TOW_INTERNAL_ERROR, "pass %s left value %u without a maker (please report this)",
                             pass, v);
    for (uint32_t i = 0; body->delivered && i < body->n_insts; i++)
        if (!can_run(body, i)) return bad_inst(ctx, body, pass, i, "before what makes its operands");
    return TOW_OK;
}

/* ---- instructions on views --------------------------------------------------------------------------------------- */

/* Elements of a view lie inside its storage. Rows that a loop reads may lie with gaps in an array of the function
 * around. */
static bool fits(const tow_program *p, const tow__view *x)
{
    if (x->storage >= p->n_storages) return false;
    const tow__storage *s = &p->storages[x->storage];
    int64_t low = x->offset, high = x->offset, size = (int64_t)tow_dtype_size(x->type.dtype);
    if (s->kind == TOW__S_ROW_IN) return true;
    if (tow_type_element_count(x->type) == 0 || s->bytes == 0)
        return true; /* without bytes: another has taken its place */
    for (int a = 0; a < x->type.rank; a++) {
        int64_t reach = (x->type.dims[a] - 1) * x->strides[a];
        *(reach < 0 ? &low : &high) += reach;
    }
    return low >= 0 && (high + 1) * size <= (int64_t)s->bytes;
}

static bool all_fit(const tow_program *p, const tow__view *views, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!fits(p, &views[i])) return false;
    return true;
}

static const char *fault_of(const tow_program *p, const tow__instruction *inst)
{
    if (!inst->op) return "without an operation";
    if (!inst->kernel != !!inst->loop) return "with both a kernel and a body, or neither";
    if (!all_fit(p, inst->in, inst->n_in)) return "reading outside of a storage";
    if (!all_fit(p, inst->out, inst->n_out)) return "writing outside of a storage";
    return NULL;
}

tow_status tow__verify_views(const tow_program *p, const tow__body *body, const char *pass)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const char *fault = fault_of(p, &body->insts[i]);
        if (fault) return bad_inst(p->ctx, body, pass, i, fault);
    }
    return TOW_OK;
}
