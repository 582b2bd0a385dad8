/* Lowering: from flat nodes to steps on views. Nodes that rearrange become views, constants become storages, scans
 * become loops (lower/lower_scan.c), the rest kernel calls. The producer of an output writes it in place where it can.
 * Small functions of constants are computed here, once. */
#include <math.h>

#include "src/base/arithmetic.h"
#include "src/kernels/products/dot.h"
#include "src/plan/plan.h"

enum {
    FOLDED = 512, /* bytes of results that are computed when the program is compiled */
    FOLDED_IN = 4,
    FOLDED_OUT = 2
};

uint32_t tow__add_storage(tow_program *p, tow__plan *plan, tow__storage_kind kind, uint32_t index, size_t bytes)
{
    tow__storage *all = tow__extend(&p->memory, p->storages, p->n_storages, &p->storages_capacity, sizeof *all);
    if (!all) return TOW__NONE;
    p->storages = all;
    all[p->n_storages] = (tow__storage){
        .kind = kind,
        .plan = plan,
        .bytes = bytes,
        .need = tow__round_up(bytes),
        .index = index,
        .representative = p->n_storages,
        .first = TOW__NONE,
        .base = TOW__NONE,
        .next = TOW__NONE,
    };
    *(plan->n_storages++ ? &all[plan->last_storage].next : &plan->first_storage) = p->n_storages;
    plan->last_storage = p->n_storages;
    return p->n_storages++;
}

tow__instruction *tow__add_instruction(tow__lowering *l, const tow_primitive *op, uint32_t n_in, uint32_t n_out)
{
    tow__plan *plan = l->plan;
    tow__instruction *insts =
        tow__extend(&l->p->memory, plan->insts, plan->n_insts, &plan->insts_capacity, sizeof *insts);
    if (!insts) return NULL;
    plan->insts = insts;
    tow__instruction *inst = &insts[plan->n_insts];
    *inst = (tow__instruction){.op = op, .base = op, .n_in = n_in, .n_out = n_out, .scratch = TOW__NONE};
    inst->in = tow__arena_alloc(&l->p->memory, n_in, sizeof *inst->in);
    inst->out = tow__arena_alloc(&l->p->memory, n_out, sizeof *inst->out);
    if (!inst->in || !inst->out) return NULL;
    plan->n_insts++;
    return inst;
}

tow_status tow__append_instruction(tow_program *p, tow__plan *plan, const tow__instruction *inst)
{
    tow__instruction *insts = tow__extend(&p->memory, plan->insts, plan->n_insts, &plan->insts_capacity, sizeof *insts);
    if (!insts) return TOW_OUT_OF_MEMORY;
    plan->insts = insts;
    insts[plan->n_insts++] = *inst;
    return TOW_OK;
}

tow_status tow__scratch_bytes(tow__arena *scratch, const tow__instruction *inst, tow__team *team, size_t *bytes)
{
    *bytes = 0;
    if (!inst->kernel->scratch) return TOW_OK;
    tow__buffer *buffers = tow__arena_alloc(scratch, (size_t)inst->n_in + inst->n_out, sizeof *buffers);
    if (!buffers) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < inst->n_in; i++) buffers[i] = tow__view_buffer(&inst->in[i]);
    for (uint32_t i = 0; i < inst->n_out; i++) buffers[inst->n_in + i] = tow__view_buffer(&inst->out[i]);
    tow__kernel_call call = {.n_in = inst->n_in,
                             .n_out = inst->n_out,
                             .in = buffers,
                             .out = buffers + inst->n_in,
                             .params = inst->params,
                             .team = team};
    *bytes = inst->kernel->scratch(&call);
    return TOW_OK;
}

tow_status tow__add_scratch(tow__lowering *l, tow__instruction *inst)
{
    size_t bytes;
    tow_status status = tow__scratch_bytes(l->scratch, inst, l->plan->team, &bytes);
    if (status != TOW_OK || !bytes) return status;
    inst->scratch = tow__add_storage(l->p, l->plan, TOW__S_ARENA, 0, bytes);
    return inst->scratch == TOW__NONE ? TOW_OUT_OF_MEMORY : TOW_OK;
}

tow_status tow__add_copy(tow__lowering *l, const tow__view *x, uint32_t storage, bool backward)
{
    tow__view from = *x;
    if (tow_type_bytes(x->type) == 0) return TOW_OK;
    tow__instruction *inst = tow__add_instruction(l, &tow__copy_p, 1, 1);
    if (!inst) return TOW_OUT_OF_MEMORY;
    inst->kernel = l->p->copy;
    inst->in[0] = from;
    inst->out[0] = tow__view_whole(storage, from.type);
    inst->backward = backward;
    return tow__add_scratch(l, inst);
}

tow_status tow__deliver(tow__lowering *l, uint32_t value, tow__storage_kind kind, uint32_t index, uint32_t *storage)
{
    const tow__view *x = &l->env[value];
    tow__storage *s = &l->p->storages[x->storage];
    size_t bytes = tow_type_bytes(x->type);
    if (s->kind == TOW__S_ARENA && s->plan == l->plan && s->bytes == bytes && tow__view_contiguous(x)) {
        s->kind = kind;
        s->index = index;
        *storage = x->storage;
        return TOW_OK;
    }
    *storage = tow__add_storage(l->p, l->plan, kind, index, bytes);
    if (*storage == TOW__NONE) return TOW_OUT_OF_MEMORY;
    bool backward = l->plan->n_insts && l->plan->insts[l->plan->n_insts - 1].backward;
    return tow__add_copy(l, x, *storage, backward);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static tow_status lower_const(tow__lowering *l, const tow__node *node)
{
    tow_array *array = ((const tow__const_params *)node->e->params)->value;
    tow_type type = tow_array_type(array);
    uint32_t s = tow__add_storage(l->p, l->plan, TOW__S_CONSTANT, 0, tow_type_bytes(type));
    if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
    l->p->storages[s].data = tow_array_data(array);
    l->p->bytes.constants += tow_type_bytes(type);
    l->env[node->out[0]] = tow__view_whole(s, type);
    return TOW_OK;
}

/* A view; or, if the strides of x do not allow it (reshape), a view of a copy. */
static tow_status lower_move(tow__lowering *l, const tow__node *node)
{
    tow__view x = l->env[node->in[0]];
    tow__view *y = &l->env[node->out[0]];
    tow_type type = l->flat->types[node->out[0]];
    if (tow__view_of(node->e, &x, type, y)) return TOW_OK;
    uint32_t s = tow__add_storage(l->p, l->plan, TOW__S_ARENA, 0, tow_type_bytes(x.type));
    if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
    *y = tow__view_whole(s, type);
    return tow__add_copy(l, &x, s, node->backward);
}

/* Parameters of a product with the sizes that it has before it is cut. NULL: out of memory. */
static const void *whole_params(tow__lowering *l, const tow__node *node)
{
    const tow__dot_params *p = node->e->params;
    if (!TOW__IS(node->e, dot_general) || p->rows > 0) return p;
    tow__dot_params *whole = tow__arena_alloc(&l->p->memory, 1, sizeof *whole);
    if (!whole) return NULL;
    *whole = *p;
    tow__dot_sizes(whole, l->flat->types[node->in[0]], l->flat->types[node->in[1]]);
    return whole;
}

/* An operand of a product as a view of the result, of which its free axes are those from `first` on. */
static void spread_operand(tow__view *x, const tow__ints *batch, const tow__ints *contract, tow_type type, int first)
{
    tow__view y = *x;
    y.type = type;
    memset(y.strides, 0, sizeof y.strides);
    for (int i = 0; i < batch->n; i++) y.strides[i] = x->strides[batch->v[i]];
    for (int axis = 0; axis < x->type.rank; axis++)
        if (!tow__ints_contain(batch, axis) && !tow__ints_contain(contract, axis))
            y.strides[first++] = x->strides[axis];
    *x = y;
}

/* A product over one element is an elementwise product of repeated operands, and so can be part of a row program:
 * outer products that are summed, as gradients of a weight that sees one row at a time, are one pass over the sum. */
static void become_outer(tow__instruction *inst)
{
    const tow__dot_params *p = inst->params;
    const tow_type type = inst->out[0].type;
    const tow__kernel *kernel = tow__kernel_of(&tow__mul_p, type.dtype);
    for (int i = 0; i < p->lhs_contract.n; i++)
        if (inst->in[0].type.dims[p->lhs_contract.v[i]] != 1) return;
    if (!kernel) return;
    int rows = inst->in[0].type.rank - p->lhs_contract.n;
    spread_operand(&inst->in[0], &p->lhs_batch, &p->lhs_contract, type, p->lhs_batch.n);
    spread_operand(&inst->in[1], &p->rhs_batch, &p->rhs_contract, type, rows);
    inst->op = inst->base = &tow__mul_p;
    inst->kernel = kernel;
    inst->params = NULL;
}

/* Memory of a new constant, which its maker fills. NULL: out of memory. */
static void *add_constant(tow__lowering *l, size_t bytes, uint32_t *storage)
{
    *storage = tow__add_storage(l->p, l->plan, TOW__S_CONSTANT, 0, bytes);
    void *data = tow__arena_alloc(&l->p->memory, bytes, 1);
    if (*storage == TOW__NONE || !data) return NULL;
    l->p->storages[*storage].data = data;
    l->p->bytes.constants += bytes;
    return data;
}

/* The element that a constant operand repeats, in `value`; false: it is no constant, or has several. */
static bool repeated_constant(const tow__lowering *l, const tow__view *x, double *value)
{
    const tow__storage *s = &l->p->storages[x->storage];
    if (s->kind != TOW__S_CONSTANT || (x->type.dtype != TOW_F32 && x->type.dtype != TOW_F64)) return false;
    for (int i = 0; i < x->type.rank; i++)
        if (x->type.dims[i] != 1 && x->strides[i] != 0) return false;
    *value = x->type.dtype == TOW_F32 ? ((const float *)s->data)[x->offset] : ((const double *)s->data)[x->offset];
    return true;
}

/* A quotient by a power of two, as many means are, is the product with its inverse, to the bit and several times as
 * fast. */
static tow_status become_multiple(tow__lowering *l, tow__instruction *inst)
{
    const tow_dtype dtype = inst->out[0].type.dtype;
    const tow__kernel *kernel = tow__kernel_of(&tow__mul_p, dtype);
    double value;
    int exponent;
    if (!kernel || !repeated_constant(l, &inst->in[1], &value) || fabs(frexp(value, &exponent)) != 0.5) return TOW_OK;
    /* The inverse must be there in this type, and where subnormal numbers are flushed, too. */
    if (dtype == TOW_F32 ? !isnormal((float)(1 / value)) : !isnormal(1 / value)) return TOW_OK;
    void *data = add_constant(l, tow_dtype_size(dtype), &inst->in[1].storage);
    if (!data) return TOW_OUT_OF_MEMORY;
    if (dtype == TOW_F32)
        *(float *)data = (float)(1 / value);
    else
        *(double *)data = 1 / value;
    inst->in[1].offset = 0;
    inst->op = inst->base = &tow__mul_p;
    inst->kernel = kernel;
    return TOW_OK;
}

/* ---- constants of constants -------------------------------------------------------------------------------------- */

/* An elementwise function of constants with small results, which its kernel can compute now. */
static bool can_fold(const tow__lowering *l, const tow__node *node)
{
    const tow__equation *e = node->e;
    size_t bytes = 0;
    if (l->p->left_out[TOW__PASS_fold_constants]) return false;
    if (e->primitive->kind != TOW__ELEMENTWISE || !node->kernel || node->kernel->scratch) return false;
    if (e->n_in == 0 || e->n_in > FOLDED_IN || e->n_out > FOLDED_OUT) return false;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (l->p->storages[l->env[node->in[i]].storage].kind != TOW__S_CONSTANT) return false;
    for (uint32_t i = 0; i < e->n_out; i++) bytes += tow_type_bytes(l->flat->types[node->out[i]]);
    return bytes > 0 && bytes <= FOLDED;
}

static tow_status fold(tow__lowering *l, const tow__node *node)
{
    tow_program *p = l->p;
    const tow__equation *e = node->e;
    tow__buffer in[FOLDED_IN], out[FOLDED_OUT];
    for (uint32_t i = 0; i < e->n_in; i++) {
        const tow__view *x = &l->env[node->in[i]];
        const char *data = p->storages[x->storage].data;
        in[i] = tow__view_buffer(x);
        in[i].data = (char *)data + x->offset * (int64_t)tow_dtype_size(x->type.dtype);
    }
    for (uint32_t i = 0; i < e->n_out; i++) {
        tow_type type = l->flat->types[node->out[i]];
        uint32_t s;
        void *data = add_constant(l, tow_type_bytes(type), &s);
        if (!data) return TOW_OUT_OF_MEMORY;
        l->env[node->out[i]] = tow__view_whole(s, type);
        out[i] = tow__view_buffer(&l->env[node->out[i]]);
        out[i].data = data;
    }
    TOW__ARITHMETIC(p->flush_subnormals);
    node->kernel->run(
        &(tow__kernel_call){.n_in = e->n_in, .n_out = e->n_out, .in = in, .out = out, .params = e->params});
    return TOW_OK;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static tow_status lower_kernel(tow__lowering *l, const tow__node *node)
{
    const tow__equation *e = node->e;
    size_t bytes = 0;
    for (uint32_t i = 0; i < e->n_out; i++) {
        tow_type type = l->flat->types[node->out[i]];
        uint32_t s = tow__add_storage(l->p, l->plan, TOW__S_ARENA, 0, tow_type_bytes(type));
        if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
        l->env[node->out[i]] = tow__view_whole(s, type);
        bytes += tow_type_bytes(type);
    }
    if (!bytes) return TOW_OK; /* nothing to write */
    tow__instruction *inst = tow__add_instruction(l, e->primitive, e->n_in, e->n_out);
    if (!inst) return TOW_OUT_OF_MEMORY;
    inst->params = whole_params(l, node);
    if (e->params && !inst->params) return TOW_OUT_OF_MEMORY;
    inst->backward = node->backward;
    inst->kernel = node->kernel;
    for (uint32_t i = 0; i < e->n_in; i++) inst->in[i] = l->env[node->in[i]];
    for (uint32_t i = 0; i < e->n_out; i++) inst->out[i] = l->env[node->out[i]];
    if (TOW__IS(e, dot_general)) become_outer(inst);
    if (TOW__IS(e, div) && !l->p->left_out[TOW__PASS_divide_to_multiply] && become_multiple(l, inst) != TOW_OK)
        return TOW_OUT_OF_MEMORY;
    return tow__add_scratch(l, inst);
}

/* Numbers along one axis, repeated along the others: a view of one row of them. */
static tow_status lower_iota(tow__lowering *l, const tow__node *node)
{
    const tow_type type = l->flat->types[node->out[0]];
    const int axis = (int)((const tow__iota_params *)node->e->params)->axis;
    const tow_type row = tow_make_type(type.dtype, 1, &type.dims[axis]);
    const tow__iota_params params = {.axis = 0};
    uint32_t s = tow__add_storage(l->p, l->plan, TOW__S_ARENA, 0, tow_type_bytes(row));
    if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
    tow__view *x = &l->env[node->out[0]];
    *x = tow__view_whole(s, type);
    memset(x->strides, 0, sizeof x->strides);
    x->strides[axis] = 1;
    if (tow_type_count(type) == 0) return TOW_OK; /* nothing to write */
    tow__instruction *inst = tow__add_instruction(l, node->e->primitive, 0, 1);
    if (!inst) return TOW_OUT_OF_MEMORY;
    inst->params = tow__arena_copy(&l->p->memory, &params, 1, sizeof params);
    if (!inst->params) return TOW_OUT_OF_MEMORY;
    inst->backward = node->backward;
    inst->kernel = node->kernel;
    inst->out[0] = tow__view_whole(s, row);
    return TOW_OK;
}

/* Kept out of tow__lower, whose frame is on the stack once for each level of nested scans. */
__attribute__((noinline)) static tow_status lower_node(tow__lowering *l, const tow__node *node)
{
    const tow_primitive *primitive = node->e->primitive;
    return primitive == &tow__const_p  ? lower_const(l, node)
           : primitive == &tow__iota_p ? lower_iota(l, node)
           : primitive->view           ? lower_move(l, node)
           : can_fold(l, node)         ? fold(l, node)
                                       : lower_kernel(l, node);
}

tow_status tow__lower(tow__lowering *l)
{
    for (uint32_t i = 0; i < l->flat->n_order; i++) {
        const tow__node *node = &l->flat->nodes[l->flat->order[i]];
        uint32_t first = l->plan->n_insts;
        tow_status status = node->body ? tow__lower_loop(l, node) : lower_node(l, node);
        if (status != TOW_OK) return status;
        for (uint32_t k = first; k < l->plan->n_insts; k++) l->plan->insts[k].source = &node->e->source;
    }
    return TOW_OK;
}
