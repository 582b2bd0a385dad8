/* Address binding: makes the executable program (src/run/program.h) of a plan whose buffers are assigned. Addresses
 * that never change are written once; what depends on a base gets a relocation. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/host.h"
#include "src/base/spill.h"
#include "src/ops/collective.h"
#include "src/plan/analysis/view.h"
#include "src/plan/ir.h"
#include "src/plan/memory/memory.h"

enum {
    PREFETCHED_BYTES = 1 << 17 /* of a row that are fetched for the next iteration at most: they are to fit into L2 */
};

typedef struct numbered_relocation {
    uint32_t base;
    tow__relocation relocation;
} numbered_relocation;

typedef struct binder {
    tow_program *p;
    tow__arena *scratch;
    numbered_relocation *relocations;
    uint32_t n, capacity, n_bases;
    uint32_t copy;         /* of the body that is being bound: the number of its thread; */
    bool together;         /* or for all threads, on the arena of the first one; */
    const tow__loop *loop; /* which belongs to this loop, or NULL */
} binder;

/* Inputs and outputs have the first bases, each moving storage of a loop one of its own, or one for each thread. */
static void number_bases(binder *b)
{
    tow_program *p = b->p;
    uint32_t n_inputs = p->graph->n_inputs;
    b->n_bases = n_inputs + p->graph->n_outputs;
    for (uint32_t i = 0; i < p->n_storages; i++) {
        tow__storage *s = &p->storages[i];
        if (s->kind == TOW__S_INPUT)
            s->base = s->index;
        else if (s->kind == TOW__S_OUTPUT)
            s->base = p->donors[s->index] != TOW__NONE ? p->donors[s->index] : n_inputs + s->index;
        else if (s->kind != TOW__S_ARENA && s->kind != TOW__S_CONSTANT) {
            s->base = b->n_bases;
            b->n_bases += s->body->copies ? s->body->copies : 1;
        }
    }
}

/* Offsets of the arenas of loops in that of the program, outer loops before inner ones. */
static void offset_arenas(tow_program *p, tow__body *body)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        tow__loop *loop = body->insts[i].loop;
        if (!loop) continue;
        loop->body->arena_offset = body->arena_offset + p->storages[loop->body->block].offset;
        offset_arenas(p, loop->body);
    }
}

/* The arena of a function, or of the thread that is being bound. */
static char *arena_of(const binder *b, const tow__body *body)
{
    return b->p->executable.arena + body->arena_offset + (body->copies ? b->copy * body->bytes : 0);
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static tow_status relocate(binder *b, uint32_t base, void **where, ptrdiff_t offset)
{
    numbered_relocation *all = tow__extend(b->scratch, b->relocations, b->n, &b->capacity, sizeof *all);
    if (!all) return TOW_OUT_OF_MEMORY;
    b->relocations = all;
    all[b->n++] = (numbered_relocation){base, {where, offset}};
    return TOW_OK;
}

/* *where = an address in the arena, now and when a shared arena has moved. */
static tow_status bind_to_arena(binder *b, void **where, char *address)
{
    const tow__executable *x = &b->p->executable;
    *where = address;
    return x->shared_arena ? relocate(b, x->arena_base, where, address - x->arena) : TOW_OK;
}

/* *where = address of element 0 of the view, now or whenever its base moves. */
static tow_status bind_view(binder *b, void **where, const tow__view *x)
{
    const tow_program *p = b->p;
    const tow__storage *s = &p->storages[tow__representative(p, x->storage)];
    ptrdiff_t offset = (ptrdiff_t)(x->offset * (int64_t)tow_dtype_size(x->type.dtype));
    if (s->kind == TOW__S_ARENA) return bind_to_arena(b, where, arena_of(b, s->body) + s->offset + offset);
    if (s->kind == TOW__S_CONSTANT) { /* kernels do not write operands */
        union {
            const void *constant;
            char *data;
        } address = {s->data};
        *where = address.data + offset;
        return TOW_OK;
    }
    return relocate(b, s->base + (s->body->copies ? b->copy : 0), where, offset);
}

static tow_status bind_data(binder *b, char **where, const tow__view *x)
{
    union {
        char **bytes;
        void **any;
    } target = {where};
    return bind_view(b, target.any, x);
}

static tow_status bind_storage(binder *b, char **where, uint32_t storage)
{
    return bind_data(b, where, &(tow__view){.storage = storage});
}

static tow_status bind_buffers(binder *b, const tow__view *views, uint32_t n, const tow__buffer **result)
{
    tow__buffer *buffers = tow__arena_alloc(&b->p->memory, n, sizeof *buffers);
    if (!buffers) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        buffers[i] = tow__view_buffer(&views[i]);
        tow_status status = bind_view(b, &buffers[i].data, &views[i]);
        if (status != TOW_OK) return status;
    }
    *result = buffers;
    return TOW_OK;
}

/* ---- what kernels fetch for the next iteration ------------------------------------------------------------------- */

/* True for a row of the loop, which is another one in the next iteration. If that runs on another thread, or if there
 * is none, nobody uses what has been fetched. */
static bool moves_on(const binder *b, const tow__body *body, const tow__view *x)
{
    const tow__storage *s = &b->p->storages[tow__representative(b->p, x->storage)];
    return s->kind == TOW__S_ROW_IN && s->body == body;
}

/* *where = address of such a view in the next iteration: that of this iteration, moved by a row. */
static tow_status bind_next_row(binder *b, const void **where, const tow__view *x)
{
    ptrdiff_t stride = b->loop->xs[b->p->storages[tow__representative(b->p, x->storage)].index].stride;
    union {
        const void **constant;
        void **any;
    } target = {where};
    tow_status status = bind_view(b, target.any, x);
    if (status == TOW_OK) b->relocations[b->n - 1].relocation.offset += b->loop->reverse ? -stride : stride;
    return status;
}

static bool prefetches(const tow__instruction *inst) { return inst->kernel && inst->kernel->prefetches; }

static bool is_listed(const uint32_t *list, int n, uint32_t storage)
{
    for (int i = 0; i < n; i++)
        if (list[i] == storage) return true;
    return false;
}

/* The rows that the next iteration reads, except those that instructions fetch for themselves. Of a large row, the call
 * fetches the beginning. */
static tow_status bind_later_rows(binder *b, const tow__body *body, tow__kernel_call *call)
{
    tow_status status = TOW_OK;
    uint32_t listed[TOW__SPANS];
    int n = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        for (uint32_t j = 0; j < inst->n_in && n < TOW__SPANS; j++) {
            const tow__view *x = &inst->in[j];
            if (!moves_on(b, body, x) || (j == 1 && prefetches(inst))) continue;
            if (!tow__view_contiguous(x) || is_listed(listed, n, tow__representative(b->p, x->storage))) continue;
            size_t bytes = (size_t)tow_type_element_count(x->type) * tow_dtype_size(x->type.dtype);
            call->read_next[n].bytes = bytes < PREFETCHED_BYTES ? bytes : PREFETCHED_BYTES;
            TRY(bind_next_row(b, &call->read_next[n].data, x));
            listed[n++] = tow__representative(b->p, x->storage);
        }
    }
done:
    return status;
}

/* Each instruction that looks ahead fetches the next row of its operand 1; the last such instruction fetches the other
 * operands of all instructions. */
static tow_status bind_next_rows(binder *b, const tow__body *body, uint32_t index, tow__kernel_call *call)
{
    const tow__instruction *inst = &body->insts[index];
    tow_status status = TOW_OK;
    if (!prefetches(inst) || !b->loop || b->loop->body != body) return TOW_OK;
    if (moves_on(b, body, &inst->in[1])) TRY(bind_next_row(b, &call->next_operand, &inst->in[1]));
    for (uint32_t i = index + 1; i < body->n_insts; i++)
        if (prefetches(&body->insts[i])) return TOW_OK;
    TRY(bind_later_rows(b, body, call));
done:
    return status;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static tow_status prepare_call(binder *b, tow__call *call)
{
    if (!call->kernel->prepare) return TOW_OK;
    void *state = tow__arena_alloc(&b->p->memory, 1, call->kernel->state_bytes);
    if (!state) return TOW_OUT_OF_MEMORY;
    call->kernel->prepare(&call->arguments, state);
    call->arguments.state = state;
    return TOW_OK;
}

/* Each array with rows in the file has a part of it. */
static tow_status bind_region(binder *b, const tow__instruction *inst, tow__host_site *site)
{
    const tow__spill_params *params = inst->params;
    site->region = tow__arena_alloc(&b->p->memory, 1, sizeof *site->region);
    if (!site->region) return TOW_OUT_OF_MEMORY;
    const tow_type row = tow_make_type(params->dtype, params->shape.n, params->shape.v);
    tow__spill_add(&b->p->executable.spill, site->region, params->file_rows, tow_type_bytes(row));
    return TOW_OK;
}

static tow_status add_collective(binder *b, const tow__instruction *inst, const tow__host_site *site, const char *what,
                                 uint32_t *number)
{
    tow__collective *collective;
    const tow_status status =
        tow__collective_of_start(b->p->ctx, inst->op, inst->params, inst->in[0].type, what, &collective);
    return status == TOW_OK ? tow__collectives_add(site->collectives, collective, number) : status;
}

/* Each exchange between processes is named after the place where it was recorded. */
static tow_status bind_collective(binder *b, const tow__instruction *inst, tow__host_site *site)
{
    char what[200];
    uint32_t second;
    const bool gathers = TOW__COMPUTES(inst, all_gather_start);
    snprintf(what, sizeof what, "%s of %s%s%s%s%s", gathers ? "gathering" : "sum",
             tow__type_name(inst->out[0].type).text, site->scope ? " in " : "", site->scope ? site->scope : "",
             site->here ? ", " : "", site->here ? site->here : "");
    site->in_turn = inst->shift > 0;
    const tow_status status = add_collective(b, inst, site, what, &site->collective);
    return status == TOW_OK && site->in_turn ? add_collective(b, inst, site, what, &second) : status;
}

/* A call of a host function knows where it was recorded and how it ends the run. */
static tow_status bind_site(binder *b, const tow__body *body, const tow__instruction *inst, tow__kernel_call *arguments)
{
    tow_program *p = b->p;
    tow__host_site *site = tow__arena_alloc(&p->memory, 1, sizeof *site);
    if (!site) return TOW_OUT_OF_MEMORY;
    *site = (tow__host_site){.ctx = p->ctx,
                             .failure = &p->executable.failure,
                             .spill = &p->executable.spill,
                             .collectives = &p->executable.collectives,
                             .deferred = inst->deferred};
    if (inst->source) site->here = inst->source->here, site->scope = inst->source->scope;
    if (TOW__COMPUTES(inst, call_host))
        site->host = tow__host_find(p->ctx, ((const tow__call_host_params *)inst->params)->name);
    for (const tow__body *f = body; f->loop && site->n_rows < (int)(sizeof site->rows / sizeof *site->rows);
         f = f->outer)
        if (!f->loop->stops) site->rows[site->n_rows++] = &f->loop->row;
    arguments->user = site;
    if (tow__starts_collective(inst->op)) return bind_collective(b, inst, site);
    return TOW__COMPUTES(inst, spill) ? bind_region(b, inst, site) : TOW_OK;
}

static tow_status bind_call(binder *b, const tow__body *body, uint32_t index, tow__call *call)
{
    const tow__instruction *inst = &body->insts[index];
    tow__kernel_call *arguments = &call->arguments;
    tow_status status = TOW_OK;
    *arguments = (tow__kernel_call){.n_in = inst->n_in,
                                    .n_out = inst->n_out,
                                    .params = inst->params,
                                    .extras = inst->extras,
                                    .team = b->together ? &b->p->team : body->team,
                                    .defined = tow__defined_kernel(inst->op),
                                    .user = tow__defined_user(inst->op)};
    TRY(bind_buffers(b, inst->in, inst->n_in, &arguments->in));
    TRY(bind_buffers(b, inst->out, inst->n_out, &arguments->out));
    if (b->together)
        TRY(bind_to_arena(b, &arguments->scratch, b->p->executable.arena + body->arena_offset + body->bytes));
    else if (inst->scratch != TOW__NONE)
        TRY(bind_view(b, &arguments->scratch, &(tow__view){.storage = inst->scratch}));
    if (inst->op->host) TRY(bind_site(b, body, inst, arguments));
    TRY(bind_next_rows(b, body, index, arguments));
    TRY(prepare_call(b, call));
done:
    return status;
}

static tow_status bind_loop(binder *b, tow__loop *loop, tow__executable_loop **result);

/* The storages of the arena that nobody reads after each call, for builds that poison them. */
static tow_status list_freed(binder *b, const tow__body *body, tow__code *code)
{
#ifdef NDEBUG
    (void)b, (void)body, (void)code;
#else
    const uint32_t n = body->n_insts ? body->insts[body->n_insts - 1].dead_end : 0;
    tow__range *freed = tow__arena_alloc(&b->p->memory, n, sizeof *freed);
    uint32_t *begin = tow__arena_alloc(&b->p->memory, (size_t)body->n_insts + 1, sizeof *begin);
    if (!freed || !begin) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        const tow__storage *s = &b->p->storages[body->dead[i]];
        freed[i] = (tow__range){s->offset, s->bytes};
    }
    for (uint32_t i = 0; i < body->n_insts; i++) begin[i + 1] = body->insts[i].dead_end;
    code->freed = freed;
    code->freed_begin = begin;
#endif
    return TOW_OK;
}

static tow_status bind_code(binder *b, const tow__body *body, tow__code *code)
{
    tow_status status = TOW_OK;
    code->n = body->n_insts;
    union {
        char **bytes;
        void **any;
    } arena = {&code->arena};
    TRY(bind_to_arena(b, arena.any, arena_of(b, body)));
    code->calls = tow__arena_alloc(&b->p->memory, body->n_insts, sizeof *code->calls);
    if (!code->calls) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        tow__call *call = &code->calls[i];
        call->origin = &body->insts[i];
        call->kernel = body->insts[i].kernel;
        call->shift = body->insts[i].shift;
        if (body->insts[i].loop)
            TRY(bind_loop(b, body->insts[i].loop, &call->loop));
        else
            TRY(bind_call(b, body, i, call));
    }
    TRY(list_freed(b, body, code));
done:
    return status;
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

static tow_status bind_carry(binder *b, const tow__carry *c, tow__executable_carry *x)
{
    tow_status status = TOW_OK;
    const tow__view result = tow__view_whole(c->result, c->init.type);
    *x = (tow__executable_carry){.storage = c->storage,
                                 .in = b->p->storages[c->in].base,
                                 .out = b->p->storages[c->out].base,
                                 .copies = c->copies,
                                 .ahead = c->ahead,
                                 .rows = c->entering,
                                 .part = c->part,
                                 .copy_in = tow__view_buffer(&c->init),
                                 .copy_out = tow__view_buffer(&result)};
    TRY(bind_view(b, &x->copy_in.data, &c->init));
    TRY(bind_data(b, &x->init, &c->init));
    TRY(bind_storage(b, &x->result, c->result));
    if (c->spare != TOW__NONE) TRY(bind_storage(b, &x->spare, c->spare));
done:
    return status;
}

static tow_status bind_rows(binder *b, const tow__loop *loop, const tow__rows *rows, uint32_t n,
                            tow__executable_rows **result)
{
    tow__executable_rows *x = *result = tow__arena_alloc(&b->p->memory, n, sizeof *x);
    if (!x) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        x[i].base = rows[i].row == TOW__NONE ? TOW__NONE : b->p->storages[rows[i].row].base;
        x[i].stride = rows[i].stride;
        x[i].part = rows[i].part;
        tow__view array = rows[i].array;
        if (rows[i].shift != 0) array.offset += (loop->reverse ? -rows[i].shift : rows[i].shift) * array.strides[0];
        tow_status status = bind_data(b, &x[i].data, &array);
        if (status != TOW_OK) return status;
    }
    return TOW_OK;
}

/* Code for each thread that runs iterations, and code for all of them together. */
static tow_status bind_codes(binder *b, const tow__loop *loop, tow__executable_loop *x)
{
    const tow__loop *around = b->loop;
    tow_status status = TOW_OK;
    x->n_codes = loop->body->copies ? loop->body->copies : 1;
    x->codes = tow__arena_alloc(&b->p->memory, x->n_codes, sizeof *x->codes);
    if (!x->codes) return TOW_OUT_OF_MEMORY;
    b->loop = loop;
    if (!loop->body->copies) {
        TRY(bind_code(b, loop->body, x->codes));
    } else {
        for (b->copy = 0; b->copy < x->n_codes; b->copy++) TRY(bind_code(b, loop->body, &x->codes[b->copy]));
        b->copy = 0;
        b->together = loop->shared > 0;
        if (b->together) TRY(bind_code(b, loop->body, &x->together));
    }
done:
    b->loop = around;
    if (loop->body->copies) b->copy = 0;
    b->together = false;
    return status;
}

static tow_status bind_loop(binder *b, tow__loop *loop, tow__executable_loop **result)
{
    tow_status status = TOW_OK;
    tow__executable_loop *x = *result = tow__arena_alloc(&b->p->memory, 1, sizeof *x);
    if (!x) return TOW_OUT_OF_MEMORY;
    *x = (tow__executable_loop){.schedule = loop->schedule,
                                .reverse = loop->reverse,
                                .stops = loop->stops,
                                .length = loop->length,
                                .blocks = loop->blocks,
                                .shared = loop->shared,
                                .n_carry = loop->n_carry,
                                .n_xs = loop->n_xs,
                                .n_ys = loop->n_ys,
                                .row = &loop->row};
    for (uint32_t i = 0; i < loop->body->n_insts; i++) {
        x->settles |= loop->body->insts[i].deferred;
        x->shifts |= loop->body->insts[i].shift != 0;
        x->drains |= loop->body->insts[i].shift < 0;
    }
    x->carry = tow__arena_alloc(&b->p->memory, loop->n_carry, sizeof *x->carry);
    if (!x->carry) return TOW_OUT_OF_MEMORY;
    for (uint32_t j = 0; j < loop->n_carry; j++) TRY(bind_carry(b, &loop->carry[j], &x->carry[j]));
    TRY(bind_rows(b, loop, loop->xs, loop->n_xs, &x->xs));
    TRY(bind_rows(b, loop, loop->ys, loop->n_ys, &x->ys));
    if (loop->stops && !loop->new_flags) TRY(bind_data(b, &x->flag, &loop->flag));
    TRY(bind_codes(b, loop, x));
done:
    return status;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

/* Storages of the function's arena by the instruction after which nobody accesses them. */
static tow_status list_dead(binder *b, tow__body *body)
{
    tow_program *p = b->p;
    uint32_t n = 0, *starts = tow__arena_alloc(b->scratch, (size_t)body->n_insts + 1, sizeof *starts);
    if (!starts) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = tow__first_storage(body); i != TOW__NONE; i = p->storages[i].next)
        if (tow__in_arena(p, i) && !p->storages[i].in_flight) starts[p->storages[i].last + 1]++, n++;
    body->dead = tow__arena_alloc(&p->memory, n, sizeof *body->dead);
    if (!body->dead) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        starts[i + 1] += starts[i];
        body->insts[i].dead_begin = body->insts[i].dead_end = starts[i];
    }
    for (uint32_t i = tow__first_storage(body); i != TOW__NONE; i = p->storages[i].next)
        if (tow__in_arena(p, i) && !p->storages[i].in_flight)
            body->dead[body->insts[p->storages[i].last].dead_end++] = i;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        tow_status status = body->insts[i].loop ? list_dead(b, body->insts[i].loop->body) : TOW_OK;
        if (status != TOW_OK) return status;
    }
    return TOW_OK;
}

/* Relocations by base: a counting sort. */
static tow_status sort_relocations(binder *b)
{
    tow__executable *x = &b->p->executable;
    x->bases = tow__arena_alloc(&b->p->memory, (size_t)b->n_bases + 1, sizeof *x->bases);
    x->relocations = tow__arena_alloc(&b->p->memory, b->n, sizeof *x->relocations);
    if (!x->bases || !x->relocations) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < b->n; i++) x->bases[b->relocations[i].base + 1].begin++;
    for (uint32_t i = 0; i < b->n_bases; i++) {
        x->bases[i + 1].begin += x->bases[i].begin;
        x->bases[i].end = x->bases[i].begin;
    }
    for (uint32_t i = 0; i < b->n; i++)
        x->relocations[x->bases[b->relocations[i].base].end++] = b->relocations[i].relocation;
    return TOW_OK;
}

/* The addresses of inputs and outputs of the plan in the caller's arrays. */
static tow_status list_ports(tow_program *p)
{
    const tow_graph *g = p->graph;
    tow__executable *x = &p->executable;
    x->n_ports_in = g->n_inputs;
    x->n_ports_out = g->n_outputs;
    x->ports = tow__arena_alloc(&p->memory, (size_t)g->n_inputs + g->n_outputs + 1, sizeof *x->ports);
    if (!x->ports) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        x->ports[i] = p->split.whole ? p->split.inputs[i] : (tow__port){.array = i};
    for (uint32_t i = 0; i < g->n_outputs; i++)
        x->ports[g->n_inputs + i] = p->split.whole ? p->split.outputs[i] : (tow__port){.array = i};
    return TOW_OK;
}

/* The arrays that a run takes. */
static tow_status list_arguments(tow_program *p)
{
    const tow_graph *g = p->split.whole ? p->split.whole : p->graph;
    const uint32_t *donors = p->split.whole ? p->split.donors : p->donors;
    tow__executable *x = &p->executable;
    x->n_inputs = g->n_inputs;
    x->n_outputs = g->n_outputs;
    x->inputs = tow__arena_alloc(&p->memory, g->n_inputs, sizeof *x->inputs);
    x->outputs = tow__arena_alloc(&p->memory, g->n_outputs, sizeof *x->outputs);
    if (!x->inputs || !x->outputs) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        x->inputs[i] = (tow__argument){.type = g->vars[g->inputs[i]].type, .name = g->input_names[i]};
    for (uint32_t i = 0; i < g->n_outputs; i++)
        x->outputs[i] = (tow__argument){.type = g->vars[g->outputs[i]].type, .absent = donors[i] != TOW__NONE};
    return list_ports(p);
}

/* Of its own, or of the shared arena: every value is written before it is read. */
static tow_status take_arena(tow_program *p)
{
    tow__executable *x = &p->executable;
    tow_status status = TOW_OK;
    x->arena_size = tow__round_up(p->top->bytes ? p->top->bytes : 1);
    if (x->shared_arena) status = tow__shared_arena_reserve(x->shared_arena, x->arena_size);
    if (status != TOW_OK) return status;
    x->arena = x->shared_arena ? x->shared_arena->memory : tow__alloc_raw(p->ctx, x->arena_size);
    return x->arena ? TOW_OK : TOW_OUT_OF_MEMORY;
}

tow_status tow__bind_addresses(tow_program *p, tow__arena *scratch)
{
    binder b = {.p = p, .scratch = scratch};
    tow__executable *x = &p->executable;
    tow_status status = TOW_OK;
    *x = (tow__executable){.ctx = p->ctx,
                           .team = &p->team,
                           .copy = p->copy,
                           .flush_subnormals = p->flush_subnormals,
                           .spill = {.ctx = p->ctx, .fd = -1},
                           .collectives = {.ctx = p->ctx},
                           .shared_arena = tow__shared_arena_retain(p->shared_arena)};
    offset_arenas(p, p->top);
    TRY(list_dead(&b, p->top));
    if (p->plan_only) return TOW_OK;
    TRY(take_arena(p));
    number_bases(&b);
    x->arena_base = b.n_bases++;
    TRY(list_arguments(p));
    TRY(bind_code(&b, p->top, &x->code));
    x->first_lasting = x->collectives.n_groups > 0 ? 0 : tow__first_lasting(p); /* others wait for what it sends */
    TRY(sort_relocations(&b));
done:
    return status;
}
