/* Constants of a scan that its products use turned: x w^T with few rows x. The kernel would turn them in every
 * iteration again, which takes longer than the product; so they are copied once, turned, before the loop. Their bits
 * stay. */
#include "src/plan/plan.h"

enum {
    FEW_ROWS = 64, /* with more, turning is hidden behind the product */
    FEW_ITERATIONS = 4
};

static bool want_turned(const tow__flat *body, uint32_t value);

/* Node is a product of few rows with `value` (a matrix) that sums along the last axis of it, or a scan with such ones. */
static bool wants_turned(const tow__flat *body, const tow__node *node, uint32_t value)
{
    if (node->body) {
        int64_t consts = ((const tow__scan_params *)node->e->params)->consts;
        for (int64_t i = 0; i < consts; i++)
            if (node->in[i] == value && want_turned(node->body, node->body->inputs[i])) return true;
        return false;
    }
    if (!TOW__IS(node->e, dot_general) || node->in[1] != value || node->in[0] == value) return false;
    const tow__dot_params *p = node->e->params;
    if (p->rhs_batch.n > 0 || p->rhs_contract.n != 1 || p->rhs_contract.v[0] != 1) return false;
    int64_t columns = body->types[value].dims[0];
    return columns > 0 && tow_type_count(body->types[node->out[0]]) / columns < FEW_ROWS;
}

static bool want_turned(const tow__flat *body, uint32_t value)
{
    for (uint32_t i = 0; i < body->n_order; i++)
        if (wants_turned(body, &body->nodes[body->order[i]], value)) return true;
    return false;
}

/* x is input `value` of the body of scan `node`, a constant: becomes a view of a turned copy where products want that. */
tow_status tow__pretranspose(tow__lowering *outer, const tow__node *node, uint32_t value, tow__view *x)
{
    const tow__flat *body = node->body;
    if (outer->p->left_out[TOW__PASS_pretranspose]) return TOW_OK;
    if (x->type.rank != 2 || x->strides[1] != 1 || x->type.dims[0] < 2 || x->type.dims[1] < 2) return TOW_OK;
    if (((const tow__scan_params *)node->e->params)->length < FEW_ITERATIONS) return TOW_OK;
    if (!want_turned(body, value)) return TOW_OK;
    tow__view turned = *x;
    turned.type.dims[0] = x->type.dims[1];
    turned.type.dims[1] = x->type.dims[0];
    turned.strides[0] = x->strides[1];
    turned.strides[1] = x->strides[0];
    uint32_t s = tow__add_storage(outer->p, outer->plan, TOW__S_ARENA, 0, tow_type_bytes(x->type));
    if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
    tow_status status = tow__add_copy(outer, &turned, s, node->backward);
    *x = tow__view_whole(s, x->type);
    x->strides[0] = 1;
    x->strides[1] = x->type.dims[0];
    return status;
}
