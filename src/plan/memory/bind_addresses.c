/* Turns a placed plan into calls with addresses. What never moves is written once; what depends on a slot gets a patch.
 */
#include <stdlib.h>

#include "src/plan/plan.h"

enum {
    LATER_BYTES = 1 << 17 /* of a row that are fetched for the next iteration at most: they are to fit a near cache */
};

typedef struct numbered_patch {
    uint32_t slot;
    tow__patch patch;
} numbered_patch;

typedef struct linker {
    tow_program *p;
    tow__arena *scratch;
    numbered_patch *patches;
    uint32_t n, capacity;
    uint32_t copy;         /* of the body that is being linked, */
    bool together;         /* or all threads on the first one; */
    const tow__loop *loop; /* which belongs to this loop, or NULL */
} linker;

/* Inputs and outputs have the first slots, each moving storage of a loop one of its own. */
static void number_slots(tow_program *p)
{
    uint32_t n_inputs = p->graph->n_inputs;
    p->n_slots = n_inputs + p->graph->n_outputs;
    for (uint32_t i = 0; i < p->n_storages; i++) {
        tow__storage *s = &p->storages[i];
        if (s->kind == TOW__S_INPUT)
            s->slot = s->index;
        else if (s->kind == TOW__S_OUTPUT)
            s->slot = n_inputs + s->index;
        else if (s->kind != TOW__S_ARENA && s->kind != TOW__S_CONSTANT) {
            s->slot = p->n_slots;
            p->n_slots += s->plan->copies ? s->plan->copies : 1;
        }
    }
}

/* Arena offsets of the blocks of loops, outer before inner. */
static void base_plans(tow_program *p, tow__plan *plan)
{
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        tow__loop *loop = plan->insts[i].loop;
        if (!loop) continue;
        loop->body->base = plan->base + p->storages[loop->body->block].offset;
        base_plans(p, loop->body);
    }
}

/* *where = address of element 0 of the view, now or whenever its slot moves. */
static tow_status link_address(linker *k, void **where, const tow__view *x)
{
    const tow_program *p = k->p;
    const tow__storage *s = &p->storages[tow__representative(p, x->storage)];
    ptrdiff_t offset = (ptrdiff_t)(x->offset * (int64_t)tow_dtype_size(x->type.dtype));
    if (s->kind == TOW__S_ARENA) {
        size_t shift = s->plan->copies ? k->copy * s->plan->bytes : 0;
        *where = p->arena + s->plan->base + shift + s->offset + offset;
        return TOW_OK;
    }
    if (s->kind == TOW__S_CONSTANT) { /* kernels do not write operands */
        union {
            const void *constant;
            char *data;
        } address = {s->data};
        *where = address.data + offset;
        return TOW_OK;
    }
    numbered_patch *all = tow__extend(k->scratch, k->patches, k->n, &k->capacity, sizeof *all);
    if (!all) return TOW_OUT_OF_MEMORY;
    k->patches = all;
    all[k->n++] = (numbered_patch){s->slot + (s->plan->copies ? k->copy : 0), {where, offset}};
    return TOW_OK;
}

static tow_status link_storage(linker *k, char **where, uint32_t storage)
{
    tow__view whole = {.storage = storage};
    union {
        char **bytes;
        void **any;
    } target = {where};
    return link_address(k, target.any, &whole);
}

static tow_status link_data(linker *k, char **where, const tow__view *x)
{
    union {
        char **bytes;
        void **any;
    } target = {where};
    return link_address(k, target.any, x);
}

static tow_status link_buffers(linker *k, const tow__view *views, uint32_t n, const tow__buffer **result)
{
    tow__buffer *buffers = tow__arena_alloc(&k->p->memory, n, sizeof *buffers);
    if (!buffers) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        buffers[i] = tow__view_buffer(&views[i]);
        tow_status status = link_address(k, &buffers[i].data, &views[i]);
        if (status != TOW_OK) return status;
    }
    *result = buffers;
    return TOW_OK;
}

/* A row of the loop, which is another one in the next iteration. If that runs on another thread, or is none, then what
 * is fetched of it is not used. */
static bool moves_on(const linker *k, const tow__plan *plan, const tow__view *x)
{
    const tow__storage *s = &k->p->storages[tow__representative(k->p, x->storage)];
    return s->kind == TOW__S_ROW_IN && s->plan == plan;
}

/* *where = address of such a view in the next iteration: as in this one, but for the patch, moved by a row. */
static tow_status link_next_row(linker *k, const void **where, const tow__view *x)
{
    ptrdiff_t stride = k->loop->xs[k->p->storages[tow__representative(k->p, x->storage)].index].stride;
    union {
        const void **constant;
        void **any;
    } target = {where};
    tow_status status = link_address(k, target.any, x);
    if (status == TOW_OK) k->patches[k->n - 1].patch.offset += k->loop->reverse ? -stride : stride;
    return status;
}

static bool looks_ahead(const tow__instruction *inst) { return inst->kernel && inst->kernel->looks_ahead; }

static bool is_listed(const uint32_t *list, int n, uint32_t storage)
{
    for (int i = 0; i < n; i++)
        if (list[i] == storage) return true;
    return false;
}

/* What the next iteration reads of its rows, but for what steps fetch for themselves; of large ones the beginning. */
static tow_status link_later(linker *k, const tow__plan *plan, tow__kernel_call *call)
{
    tow_status status = TOW_OK;
    uint32_t listed[TOW__SPANS];
    int n = 0;
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        const tow__instruction *inst = &plan->insts[i];
        for (uint32_t j = 0; j < inst->n_in && n < TOW__SPANS; j++) {
            const tow__view *x = &inst->in[j];
            if (!moves_on(k, plan, x) || (j == 1 && looks_ahead(inst))) continue;
            if (!tow__view_contiguous(x) || is_listed(listed, n, tow__representative(k->p, x->storage))) continue;
            size_t bytes = (size_t)tow_type_count(x->type) * tow_dtype_size(x->type.dtype);
            call->later[n].bytes = bytes < LATER_BYTES ? bytes : LATER_BYTES;
            TRY(link_next_row(k, &call->later[n].data, x));
            listed[n++] = tow__representative(k->p, x->storage);
        }
    }
done:
    return status;
}

/* Each step that looks ahead does so for its own operand 1, the last one for the other operands of all. */
static tow_status link_next(linker *k, const tow__plan *plan, tow__instruction *inst, uint32_t index)
{
    tow_status status = TOW_OK;
    if (!looks_ahead(inst) || !k->loop || k->loop->body != plan) return TOW_OK;
    if (moves_on(k, plan, &inst->in[1])) TRY(link_next_row(k, &inst->call.next, &inst->in[1]));
    for (uint32_t i = index + 1; i < plan->n_insts; i++)
        if (looks_ahead(&plan->insts[i])) return TOW_OK;
    TRY(link_later(k, plan, &inst->call));
done:
    return status;
}

static tow_status prepare_call(linker *k, tow__instruction *inst)
{
    const tow__kernel *kernel = inst->kernel;
    if (!kernel->prepare) return TOW_OK;
    void *state = tow__arena_alloc(&k->p->memory, 1, kernel->state_bytes);
    if (!state) return TOW_OUT_OF_MEMORY;
    kernel->prepare(&inst->call, state);
    inst->call.state = state;
    return TOW_OK;
}

static tow_status link_call(linker *k, const tow__plan *plan, tow__instruction *inst, uint32_t index)
{
    tow_status status = TOW_OK;
    inst->call = (tow__kernel_call){.n_in = inst->n_in,
                                    .n_out = inst->n_out,
                                    .params = inst->params,
                                    .team = k->together ? &k->p->team : plan->team};
    TRY(link_buffers(k, inst->in, inst->n_in, &inst->call.in));
    TRY(link_buffers(k, inst->out, inst->n_out, &inst->call.out));
    if (k->together) {
        inst->call.scratch = k->p->arena + plan->base + plan->bytes;
    } else if (inst->scratch != TOW__NONE) {
        tow__view whole = {.storage = inst->scratch};
        TRY(link_address(k, &inst->call.scratch, &whole));
    }
    TRY(link_next(k, plan, inst, index));
    TRY(prepare_call(k, inst));
done:
    return status;
}

static tow_status link_plan(linker *k, tow__plan *plan);
static tow_status link_copies(linker *k, tow__plan *plan);

static tow_status link_loop(linker *k, tow__loop *loop)
{
    tow_status status = TOW_OK;
    for (uint32_t j = 0; j < loop->n_carry; j++) {
        tow__carry *c = &loop->carry[j];
        tow__view result = tow__view_whole(c->result, c->init.type);
        c->copy_in = tow__view_buffer(&c->init);
        c->copy_out = tow__view_buffer(&result);
        TRY(link_address(k, &c->copy_in.data, &c->init));
        TRY(link_data(k, &c->init_data, &c->init));
        TRY(link_storage(k, &c->result_data, c->result));
        if (c->spare != TOW__NONE) TRY(link_storage(k, &c->spare_data, c->spare));
    }
    for (uint32_t j = 0; j < loop->n_xs; j++) TRY(link_data(k, &loop->xs[j].data, &loop->xs[j].array));
    for (uint32_t j = 0; j < loop->n_ys; j++) TRY(link_data(k, &loop->ys[j].data, &loop->ys[j].array));
    const tow__loop *around = k->loop;
    k->loop = loop;
    status = loop->body->copies ? link_copies(k, loop->body) : link_plan(k, loop->body);
    k->loop = around;
done:
    return status;
}

/* Arena storages of the plan by the step after which nobody accesses them. */
static tow_status list_dead(linker *k, tow__plan *plan)
{
    tow_program *p = k->p;
    uint32_t n = 0, *starts = tow__arena_alloc(k->scratch, (size_t)plan->n_insts + 1, sizeof *starts);
    if (!starts) return TOW_OUT_OF_MEMORY;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = tow__first_storage(plan); i != TOW__NONE; i = p->storages[i].next) {
            const tow__storage *s = &p->storages[i];
            if (!tow__in_arena(p, i)) continue;
            if (pass == 0)
                starts[s->last + 1]++, n++;
            else
                plan->dead[plan->insts[s->last].dead_end++] = i;
        }
        if (pass == 1) break;
        plan->dead = tow__arena_alloc(&p->memory, n, sizeof *plan->dead);
        if (!plan->dead) return TOW_OUT_OF_MEMORY;
        for (uint32_t i = 0; i < plan->n_insts; i++) {
            starts[i + 1] += starts[i];
            plan->insts[i].dead_begin = plan->insts[i].dead_end = starts[i];
        }
    }
    return TOW_OK;
}

static tow_status link_plan(linker *k, tow__plan *plan)
{
    tow_status status = TOW_OK;
    TRY(list_dead(k, plan));
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        tow__instruction *inst = &plan->insts[i];
        if (inst->loop)
            TRY(link_loop(k, inst->loop));
        else
            TRY(link_call(k, plan, inst, i));
    }
done:
    return status;
}

/* The steps with calls of their own. */
static tow_status link_copy(linker *k, const tow__plan *plan, tow__instruction **result)
{
    tow_status status = TOW_OK;
    tow__instruction *insts = *result = tow__arena_copy(&k->p->memory, plan->insts, plan->n_insts, sizeof *insts);
    if (!insts) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < plan->n_insts; i++) TRY(link_call(k, plan, &insts[i], i));
done:
    return status;
}

/* One list of steps for each thread, and one for all of them together. */
static tow_status link_copies(linker *k, tow__plan *plan)
{
    tow_status status = TOW_OK;
    TRY(list_dead(k, plan));
    plan->linked = tow__arena_alloc(&k->p->memory, plan->copies, sizeof *plan->linked);
    if (!plan->linked) return TOW_OUT_OF_MEMORY;
    for (k->copy = 0; k->copy < plan->copies; k->copy++) TRY(link_copy(k, plan, &plan->linked[k->copy]));
    k->copy = 0;
    k->together = k->loop->shared > 0;
    if (k->together) TRY(link_copy(k, plan, &plan->together));
done:
    k->copy = 0;
    k->together = false;
    return status;
}

/* Patches by slot: a counting sort. */
static tow_status sort_patches(linker *k)
{
    tow_program *p = k->p;
    p->slots = tow__arena_alloc(&p->memory, (size_t)p->n_slots + 1, sizeof *p->slots);
    p->patches = tow__arena_alloc(&p->memory, k->n, sizeof *p->patches);
    if (!p->slots || !p->patches) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < k->n; i++) p->slots[k->patches[i].slot + 1].begin++;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        p->slots[i + 1].begin += p->slots[i].begin;
        p->slots[i].end = p->slots[i].begin;
    }
    for (uint32_t i = 0; i < k->n; i++) p->patches[p->slots[k->patches[i].slot].end++] = k->patches[i].patch;
    return TOW_OK;
}

/* For a program that will not run: only what its printer shows. */
static tow_status list_all_dead(linker *k, tow__plan *plan)
{
    tow_status status = TOW_OK;
    TRY(list_dead(k, plan));
    for (uint32_t i = 0; i < plan->n_insts; i++)
        if (plan->insts[i].loop) TRY(list_all_dead(k, plan->insts[i].loop->body));
done:
    return status;
}

static tow_status allocate_arena(tow_program *p)
{
    p->arena = tow__alloc_raw(p->ctx, p->arena_size); /* every value is written before it is read */
    if (!p->arena) return TOW_OUT_OF_MEMORY;
    return TOW_OK;
}

tow_status tow__bind_addresses(tow_program *p, tow__arena *scratch)
{
    linker k = {.p = p, .scratch = scratch};
    p->arena_size = tow__round_up(p->top->bytes ? p->top->bytes : 1);
    base_plans(p, p->top);
    if (p->plan_only) return list_all_dead(&k, p->top);
    tow_status status = allocate_arena(p);
    if (status != TOW_OK) return status;
    number_slots(p);
    status = link_plan(&k, p->top);
    return status == TOW_OK ? sort_patches(&k) : status;
}
