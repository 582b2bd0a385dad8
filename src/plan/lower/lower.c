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
    tow__copy_maker(l->p, x->storage, *storage);
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

tow_status tow__begin_lowering(tow__lowering *l, tow_program *p, tow__body *body, tow__arena *scratch)
{
    *l = (tow__lowering){.p = p, .body = body, .scratch = scratch, .insts = body->insts, .n_insts = body->n_insts};
    body->insts = NULL;
    body->n_insts = body->insts_capacity = 0;
    l->env = tow__arena_alloc(scratch, body->n_values, sizeof *l->env);
    l->parts = tow__arena_alloc(scratch, body->n_values, sizeof *l->parts);
    if (!l->env || !l->parts) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < body->n_values; i++) l->parts[i].storage = TOW__NONE;
    return TOW_OK;
}

/* ---- concatenations of stacks ------------------------------------------------------------------------------------ */

/* Do the operands lie one after the other in the result? */
static bool is_contiguous(const tow__body *f, const tow__instruction *inst)
{
    const tow__axis_params *p = inst->params;
    for (int64_t i = 0; i < p->axis; i++)
        if (f->types[inst->results[0]].dims[i] != 1) return false;
    return true;
}

/* Marks stacked results of scans that only this concatenation reads: each scan writes its rows where they belong. */
static tow_status place_operands(tow__lowering *l, const tow__instruction *inst, const uint32_t *uses,
                                 const bool *is_stack)
{
    tow__placed_value *whole = &l->parts[inst->results[0]];
    int64_t offset = 0;
    for (uint32_t i = 0; i < inst->n_in; i++) {
        const uint32_t value = inst->operands[i];
        if (is_stack[value] && uses[value] == 1) {
            if (whole->storage == TOW__NONE)
                whole->storage =
                    tow__add_storage(l->p, l->body, TOW__S_ARENA, 0, tow_type_bytes(l->body->types[inst->results[0]]));
            if (whole->storage == TOW__NONE) return TOW_OUT_OF_MEMORY;
            l->parts[value] = (tow__placed_value){whole->storage, offset};
        }
        offset += tow_type_element_count(l->body->types[value]);
    }
    return TOW_OK;
}

static tow_status find_parts(tow__lowering *l)
{
    const tow__body *f = l->body;
    uint32_t *uses = tow__arena_alloc(l->scratch, f->n_values, sizeof *uses);
    bool *is_stack = tow__arena_alloc(l->scratch, f->n_values, sizeof *is_stack);
    if (!uses || !is_stack) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_outputs; i++) uses[f->outputs[i]]++;
    for (uint32_t k = 0; k < l->n_insts; k++) {
        const tow__instruction *inst = &l->insts[k];
        for (uint32_t i = 0; i < inst->n_in; i++) uses[inst->operands[i]]++;
        const tow__scan_params *scan = inst->body ? inst->params : NULL;
        for (uint32_t j = scan ? (uint32_t)scan->carry : 0; scan && scan->length > 0 && j < inst->n_out; j++)
            is_stack[inst->results[j]] = tow_type_bytes(f->types[inst->results[j]]) > 0;
    }
    tow_status status = TOW_OK;
    for (uint32_t k = 0; k < l->n_insts && status == TOW_OK; k++)
        if (TOW__COMPUTES(&l->insts[k], concatenate) && is_contiguous(f, &l->insts[k]))
            status = place_operands(l, &l->insts[k], uses, is_stack);
    return status;
}

/* Copies the operands that are not in their places. */
static tow_status lower_concatenation(tow__lowering *l, const tow__instruction *inst)
{
    const uint32_t storage = l->parts[inst->results[0]].storage;
    int64_t offset = 0;
    for (uint32_t i = 0; i < inst->n_in; i++) {
        const tow__view *x = &l->env[inst->operands[i]];
        const uint32_t before = l->body->n_insts;
        tow_status status = x->storage == storage ? TOW_OK : tow__add_copy(l, x, storage, inst->backward);
        if (status != TOW_OK) return status;
        if (l->body->n_insts > before) l->body->insts[before].out[0].offset = offset;
        offset += tow_type_element_count(x->type);
    }
    l->env[inst->results[0]] = tow__view_whole(storage, l->body->types[inst->results[0]]);
    return TOW_OK;
}

/* Kept out of tow__lower, whose frame is on the stack once for each level of nested scans. */
__attribute__((noinline)) static tow_status lower_inst(tow__lowering *l, const tow__instruction *inst)
{
    const tow_primitive *primitive = inst->op;
    if (inst->n_out == 1 && l->parts[inst->results[0]].storage != TOW__NONE) return lower_concatenation(l, inst);
    return primitive == &tow__const_p ? lower_const(l, inst)
           : primitive->view          ? lower_move(l, inst)
                                      : lower_kernel(l, inst);
}

/* For reports: the value of a new storage of this function is made by this instruction. */
static void note_maker(const tow__lowering *l, uint32_t storage, const tow__instruction *inst)
{
    tow__storage *s = &l->p->storages[storage];
    if (s->body != l->body) return;
    for (uint32_t i = 0; i < inst->n_out; i++)
        if (l->env[inst->results[i]].storage == storage) s->type = l->body->types[inst->results[i]];
    if (s->made) return;
    s->made = inst->op;
    s->source = inst->source;
}

void tow__copy_maker(tow_program *p, uint32_t from, uint32_t to)
{
    p->storages[to].made = p->storages[from].made;
    p->storages[to].source = p->storages[from].source;
}

tow_status tow__lower(tow__lowering *l)
{
    if (find_parts(l) != TOW_OK) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < l->n_insts; i++) {
        const tow__instruction *inst = &l->insts[i];
        uint32_t first = l->body->n_insts, storage = l->p->n_storages;
        tow_status status = inst->body ? tow__lower_scan(l, inst) : lower_inst(l, inst);
        if (status != TOW_OK) return status;
        for (; storage < l->p->n_storages; storage++) note_maker(l, storage, inst);
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
