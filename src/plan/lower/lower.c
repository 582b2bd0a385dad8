/* Lowering: instructions on values become instructions on views of storages. Instructions that rearrange become views,
 * constants become storages, scans get loops (lower/lower_scan.c), and the others get kernels' operands and results.
 * The producer of an output writes it in place where it can. */
#include "src/plan/lower/lower.h"
#include "src/kernels/products/dot.h"
#include "src/plan/analysis/view.h"
#include "src/plan/ir.h"

uint32_t tow__add_storage(tow_program *p, tow__body *body, tow__storage_kind kind, uint32_t index, size_t bytes)
{
    tow__storage *all = tow__extend(&p->memory, p->storages, p->n_storages, &p->storages_capacity, sizeof *all);
    if (!all) return TOW__NONE;
    p->storages = all;
    all[p->n_storages] = (tow__storage){
        .kind = kind,
        .body = body,
        .bytes = bytes,
        .need = tow__round_up(bytes),
        .index = index,
        .representative = p->n_storages,
        .first = TOW__NONE,
        .base = TOW__NONE,
        .next = TOW__NONE,
    };
    *(body->n_storages++ ? &all[body->last_storage].next : &body->first_storage) = p->n_storages;
    body->last_storage = p->n_storages;
    return p->n_storages++;
}

tow__instruction *tow__add_instruction(tow__lowering *l, const tow_primitive *op, uint32_t n_in, uint32_t n_out)
{
    tow__body *body = l->body;
    tow__instruction *insts =
        tow__extend(&l->p->memory, body->insts, body->n_insts, &body->insts_capacity, sizeof *insts);
    if (!insts) return NULL;
    body->insts = insts;
    tow__instruction *inst = &insts[body->n_insts];
    *inst = (tow__instruction){.op = op, .n_in = n_in, .n_out = n_out, .scratch = TOW__NONE};
    inst->in = tow__arena_alloc(&l->p->memory, n_in, sizeof *inst->in);
    inst->out = tow__arena_alloc(&l->p->memory, n_out, sizeof *inst->out);
    if (!inst->in || !inst->out) return NULL;
    body->n_insts++;
    return inst;
}

tow_status tow__append_instruction(tow_program *p, tow__body *body, const tow__instruction *inst)
{
    tow__instruction *insts = tow__extend(&p->memory, body->insts, body->n_insts, &body->insts_capacity, sizeof *insts);
    if (!insts) return TOW_OUT_OF_MEMORY;
    body->insts = insts;
    insts[body->n_insts++] = *inst;
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
                             .extras = inst->extras,
                             .team = team,
                             .defined = tow__defined_kernel(inst->op),
                             .user = tow__defined_user(inst->op)};
    *bytes = inst->kernel->scratch(&call);
    return TOW_OK;
}

enum {
    MOST_BUFFERS = 8 /* of a call that a kernel is asked about */
};

bool tow__kernel_takes(const tow__instruction *inst, tow__team *team)
{
    tow__buffer buffers[MOST_BUFFERS];
    const tow__kernel *kernel = inst->kernel;
    if (!kernel || !kernel->takes) return kernel != NULL;
    if (inst->n_in + inst->n_out > MOST_BUFFERS) return false;
    for (uint32_t i = 0; i < inst->n_in; i++) buffers[i] = tow__view_buffer(&inst->in[i]);
    for (uint32_t i = 0; i < inst->n_out; i++) buffers[inst->n_in + i] = tow__view_buffer(&inst->out[i]);
    return kernel->takes(&(tow__kernel_call){.n_in = inst->n_in,
                                             .n_out = inst->n_out,
                                             .in = buffers,
                                             .out = buffers + inst->n_in,
                                             .params = inst->params,
                                             .extras = inst->extras,
                                             .team = team});
}

tow_status tow__add_scratch(tow__lowering *l, tow__instruction *inst)
{
    size_t bytes;
    tow_status status = tow__scratch_bytes(l->scratch, inst, l->body->team, &bytes);
    if (status != TOW_OK || !bytes) return status;
    inst->scratch = tow__add_storage(l->p, l->body, TOW__S_ARENA, 0, bytes);
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
    if (s->kind == TOW__S_ARENA && s->body == l->body && s->bytes == bytes && tow__view_contiguous(x)) {
        s->kind = kind;
        s->index = index;
        *storage = x->storage;
        return TOW_OK;
    }
    *storage = tow__add_storage(l->p, l->body, kind, index, bytes);
    if (*storage == TOW__NONE) return TOW_OUT_OF_MEMORY;
    bool backward = l->body->n_insts && l->body->insts[l->body->n_insts - 1].backward;
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
    *storage = tow__add_storage(l->p, l->body, TOW__S_ARENA, 0, bytes);
    return *storage == TOW__NONE ? NULL : tow__become_constant(l, *storage, bytes);
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

static tow_status lower_const(tow__lowering *l, const tow__instruction *inst)
{
    tow_array *array = ((const tow__const_params *)inst->params)->value;
    tow_type type = tow_array_type(array);
    uint32_t s = tow__add_storage(l->p, l->body, TOW__S_CONSTANT, 0, tow_type_bytes(type));
    if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
    l->p->storages[s].data = tow_array_data(array);
    l->p->bytes.constants += tow_type_bytes(type);
    l->env[inst->results[0]] = tow__view_whole(s, type);
    return TOW_OK;
}

/* A view; or, if the strides of x do not allow it (reshape), a view of a copy. */
static tow_status lower_move(tow__lowering *l, const tow__instruction *inst)
{
    tow__view x = l->env[inst->operands[0]];
    tow__view *y = &l->env[inst->results[0]];
    tow_type type = l->body->types[inst->results[0]];
    if (tow__view_of(inst, &x, type, y)) return TOW_OK;
    uint32_t s = tow__add_storage(l->p, l->body, TOW__S_ARENA, 0, tow_type_bytes(x.type));
    if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
    *y = tow__view_whole(s, type);
    return tow__add_copy(l, &x, s, inst->backward);
}

/* Parameters of a product with the sizes that it has before it is cut. NULL: out of memory. */
static const void *whole_params(tow__lowering *l, const tow__instruction *inst)
{
    const tow__dot_params *p = inst->params;
    if (!TOW__COMPUTES(inst, dot_general) || p->rows > 0) return p;
    tow__dot_params *whole = tow__arena_alloc(&l->p->memory, 1, sizeof *whole);
    if (!whole) return NULL;
    *whole = *p;
    tow__dot_sizes(whole, l->body->types[inst->operands[0]], l->body->types[inst->operands[1]]);
    return whole;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* Attaches views to the instruction. */
static tow_status lower_kernel(tow__lowering *l, const tow__instruction *inst)
{
    tow__instruction lowered = *inst;
    size_t bytes = 0;
    lowered.operands = lowered.results = NULL;
    for (uint32_t i = 0; i < inst->n_out; i++) {
        tow_type type = l->body->types[inst->results[i]];
        uint32_t s = tow__add_storage(l->p, l->body, TOW__S_ARENA, 0, tow_type_bytes(type));
        if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
        l->env[inst->results[i]] = tow__view_whole(s, type);
        bytes += tow_type_bytes(type);
    }
    if (!bytes && !inst->effect) return TOW_OK; /* nothing to write */
    lowered.params = whole_params(l, inst);
    lowered.in = tow__arena_alloc(&l->p->memory, inst->n_in, sizeof *lowered.in);
    lowered.out = tow__arena_alloc(&l->p->memory, inst->n_out, sizeof *lowered.out);
    if ((inst->params && !lowered.params) || !lowered.in || !lowered.out) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < inst->n_in; i++) lowered.in[i] = l->env[inst->operands[i]];
    for (uint32_t i = 0; i < inst->n_out; i++) lowered.out[i] = l->env[inst->results[i]];
    tow_status status = tow__add_scratch(l, &lowered);
    return status == TOW_OK ? tow__append_instruction(l->p, l->body, &lowered) : status;
}

/* Kept out of tow__lower, whose frame is on the stack once for each level of nested scans. */
__attribute__((noinline)) static tow_status lower_inst(tow__lowering *l, const tow__instruction *inst)
{
    const tow_primitive *primitive = inst->op;
    return primitive == &tow__const_p ? lower_const(l, inst)
           : primitive->view          ? lower_move(l, inst)
                                      : lower_kernel(l, inst);
}

tow_status tow__begin_lowering(tow__lowering *l, tow_program *p, tow__body *body, tow__arena *scratch)
{
    *l = (tow__lowering){.p = p, .body = body, .scratch = scratch, .insts = body->insts, .n_insts = body->n_insts};
    body->insts = NULL;
    body->n_insts = body->insts_capacity = 0;
    l->env = tow__arena_alloc(scratch, body->n_values, sizeof *l->env);
    return l->env ? TOW_OK : TOW_OUT_OF_MEMORY;
}

tow_status tow__lower(tow__lowering *l)
{
    for (uint32_t i = 0; i < l->n_insts; i++) {
        const tow__instruction *inst = &l->insts[i];
        uint32_t first = l->body->n_insts;
        tow_status status = inst->body ? tow__lower_scan(l, inst) : lower_inst(l, inst);
        if (status != TOW_OK) return status;
        for (uint32_t k = first; k < l->body->n_insts; k++) l->body->insts[k].source = inst->source;
    }
    return TOW_OK;
}

/* Is output i what lies in the input in whose place it is to be? */
static bool is_there(const tow__lowering *l, uint32_t i)
{
    const tow__view *x = &l->env[l->body->outputs[i]];
    return l->p->donors[i] != TOW__NONE && x->storage == l->p->donors[i] && tow__is_whole(l->p, x);
}

tow_status tow__lower_program(tow_program *p, tow__arena *scratch)
{
    tow__body *body = p->top;
    tow__lowering l;
    tow_status status = TOW_OK;
    TRY(tow__begin_lowering(&l, p, body, scratch));
    for (uint32_t i = 0; i < body->n_inputs; i++) {
        tow_type type = body->types[body->inputs[i]];
        uint32_t s = tow__add_storage(p, body, TOW__S_INPUT, i, tow_type_bytes(type));
        if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
        l.env[body->inputs[i]] = tow__view_whole(s, type);
        p->bytes.inputs += tow_type_bytes(type);
    }
    TRY(tow__lower(&l));
    for (uint32_t i = 0; i < body->n_outputs; i++) {
        uint32_t s;
        if (is_there(&l, i)) continue;
        TRY(tow__deliver(&l, body->outputs[i], TOW__S_OUTPUT, i, &s));
        if (p->donors[i] == TOW__NONE) p->bytes.outputs += tow_type_bytes(body->types[body->outputs[i]]);
    }
done:
    return status;
}
