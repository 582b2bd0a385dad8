/* Lowering: from flat nodes to steps on views. Nodes that rearrange become views, constants become storages, scans
 * become loops (lower/lower_scan.c), the rest kernel calls. The producer of an output writes it in place where it
 * can. */
#include "src/kernels/products/dot.h"
#include "src/plan/plan.h"

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

void *tow__become_constant(tow__lowering *l, uint32_t storage, size_t bytes)
{
    void *data = tow__arena_alloc(&l->p->memory, bytes, 1);
    if (!data) return NULL;
    l->p->storages[storage].kind = TOW__S_CONSTANT;
    l->p->storages[storage].data = data;
    l->p->bytes.constants += bytes;
    return data;
}

void *tow__add_constant(tow__lowering *l, size_t bytes, uint32_t *storage)
{
    *storage = tow__add_storage(l->p, l->plan, TOW__S_ARENA, 0, bytes);
    return *storage == TOW__NONE ? NULL : tow__become_constant(l, *storage, bytes);
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
    return tow__add_scratch(l, inst);
}

/* Kept out of tow__lower, whose frame is on the stack once for each level of nested scans. */
__attribute__((noinline)) static tow_status lower_node(tow__lowering *l, const tow__node *node)
{
    const tow_primitive *primitive = node->e->primitive;
    return primitive == &tow__const_p ? lower_const(l, node)
           : primitive->view          ? lower_move(l, node)
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
