/* Outputs that a consumer takes piece by piece: instructions that call it as soon as a piece is complete and nobody
 * needs what the consumer overwrites any more. A scan hands over the rows of its stacked results one by one, so they
 * are never stacked. */
#include "src/plan/lower/output_sink.h"
#include "src/plan/ir.h"
#include "src/plan/lower/lower.h"

static void run_consume(const tow__kernel_call *call)
{
    const tow__sink_params *c = call->params;
    c->consumer->consume(c->consumer->user, *c->row * c->count, c->count, call->in[0].data);
}

static const tow__kernel kernel = {.primitive = "output_sink", .run = run_consume, .engine = "caller"};

tow_status tow__set_consumers(tow_program *p, const tow_compile_options *options)
{
    const tow_graph *g = p->graph;
    p->consumers = tow__arena_alloc(&p->memory, g->n_outputs, sizeof *p->consumers);
    p->consumed = tow__arena_alloc(&p->memory, g->n_outputs, sizeof *p->consumed);
    if (!p->consumers || !p->consumed) return TOW_OUT_OF_MEMORY;
    if (options && options->n_consumers > 0 && !options->consumers)
        return tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                         "tow_compile: n_consumers is %zu, but consumers is NULL; pass an array of so many",
                         options->n_consumers);
    for (size_t i = 0; options && i < options->n_consumers; i++) {
        const tow_consumer *c = &options->consumers[i];
        if (!c->consume || c->output >= g->n_outputs || c->input >= g->n_inputs || p->consumers[c->output].consume)
            return tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                             "tow_compile: consumer %zu: expected a function, one of %u outputs that no other consumer "
                             "takes, and one of %u inputs; found output %zu, input %zu",
                             i, g->n_outputs, g->n_inputs, c->output, c->input);
        tow_type from = g->vars[g->outputs[c->output]].type, to = g->vars[g->inputs[c->input]].type;
        if (!tow_type_equal(from, to))
            return tow__fail(p->ctx, TOW_TYPE_MISMATCH,
                             "tow_compile: consumer %zu: expected an output and an input of one type, found %s and %s",
                             i, tow__type_name(from).text, tow__type_name(to).text);
        p->consumers[c->output] = *c;
        p->n_consumers++;
    }
    return TOW_OK;
}

/* ---- rows of a loop ---------------------------------------------------------------------------------------------- */

static bool reads(const tow__instruction *inst, uint32_t value)
{
    for (uint32_t i = 0; i < inst->n_in; i++)
        if (inst->operands[i] == value) return true;
    return false;
}

/* No instruction reads the value, and one output at most is it. */
static bool is_alone(const tow__lowering *l, uint32_t value)
{
    const tow__body *f = l->body;
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_insts; i++)
        if (reads(&l->insts[i], value)) return false;
    for (uint32_t i = 0; i < f->n_outputs; i++) n += f->outputs[i] == value;
    return n == 1;
}

/* The loop reads the input row by row, once or not at all, and no instruction after it reads the input or what lies in
 * its memory: views, and what scans before hand through. */
static bool is_last_reader(const tow__lowering *l, const tow__instruction *loop, uint32_t input)
{
    const tow__body *f = l->body;
    const tow__scan_params *scan = loop->params;
    bool *there = tow__arena_alloc(l->scratch, f->n_values, sizeof *there); /* in the memory of the input */
    if (!there) return false;
    there[input] = true;
    bool after = false;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < l->n_insts; i++) {
        const tow__instruction *inst = &l->insts[i];
        for (uint32_t j = 0; j < inst->n_in; j++) {
            if (!there[inst->operands[j]]) continue;
            bool row = inst == loop && j >= scan->consts + scan->carry && inst->operands[j] == input;
            rows += row;
            if (after || (inst == loop && !row) || rows > 1) return false;
        }
        after |= inst == loop;
        for (uint32_t j = 0; j < inst->n_out && !after; j++)
            there[inst->results[j]] = l->env[inst->results[j]].storage == l->env[input].storage;
    }
    for (uint32_t i = 0; i < f->n_outputs; i++) /* copied to the output at the end, unless it has been consumed */
        if (there[f->outputs[i]] && !l->p->consumed[i]) return false;
    return true;
}

const tow_consumer *tow__row_sink(const tow__lowering *l, const tow__instruction *inst, uint32_t value)
{
    const tow_program *p = l->p;
    const tow__body *f = l->body;
    if (l->body != p->top || p->n_consumers == 0) return NULL;
    for (uint32_t i = 0; i < f->n_outputs; i++) {
        const tow_consumer *c = &p->consumers[i];
        if (f->outputs[i] != value || !c->consume) continue;
        return is_alone(l, value) && is_last_reader(l, inst, f->inputs[c->input]) ? c : NULL;
    }
    return NULL;
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

/* Moves the last instruction of the plan up to where its operands allow it. */
static void move_up(tow__body *body)
{
    tow__instruction inst = body->insts[body->n_insts - 1];
    uint32_t at = body->n_insts - 1;
    for (; at > 0; at--) {
        const tow__instruction *before = &body->insts[at - 1];
        bool needed = false;
        for (uint32_t j = 0; j < before->n_out; j++) needed |= before->out[j].storage == inst.in[0].storage;
        for (uint32_t j = 0; j < before->n_in; j++)
            needed |= inst.n_in > 1 && before->in[j].storage == inst.in[1].storage;
        if (needed) break;
        body->insts[at] = *before;
    }
    inst.backward = at > 0 && body->insts[at - 1].backward;
    body->insts[at] = inst;
}

/* May a consumer overwrite the memory of x? */
static bool is_endangered(const tow_program *p, const tow__view *x)
{
    const tow__storage *s = &p->storages[x->storage];
    bool found = s->kind == TOW__S_ROW_IN;
    for (uint32_t i = 0; i < p->graph->n_outputs && s->kind == TOW__S_INPUT; i++)
        found |= p->consumers[i].consume && p->consumers[i].input == s->index;
    return found;
}

tow_status tow__copy_for_sink(tow__lowering *l, tow__view *x)
{
    if (tow__view_contiguous(x) && !is_endangered(l->p, x)) return TOW_OK;
    uint32_t s = tow__add_storage(l->p, l->body, TOW__S_ARENA, 0, tow_type_bytes(x->type));
    if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
    bool backward = l->body->n_insts && l->body->insts[l->body->n_insts - 1].backward;
    tow_status status = tow__add_copy(l, x, s, backward);
    *x = tow__view_whole(s, x->type);
    return status;
}

tow_status tow__add_sink(tow__lowering *l, const tow_consumer *consumer, const tow__view *x, const tow__view *input,
                         const int64_t *row)
{
    tow__sink_params *params = tow__arena_alloc(&l->p->memory, 1, sizeof *params);
    tow__instruction *inst = params ? tow__add_instruction(l, &tow__output_sink_p, input ? 2 : 1, 0) : NULL;
    if (!inst) return TOW_OUT_OF_MEMORY;
    *params = (tow__sink_params){consumer, row, tow_type_count(x->type)};
    inst->kernel = &kernel;
    inst->params = params;
    inst->in[0] = *x;
    if (input) inst->in[1] = *input;
    move_up(l->body);
    return TOW_OK;
}

tow_status tow__sink_outputs(tow__lowering *l)
{
    tow_program *p = l->p;
    const tow__body *f = l->body;
    tow_status status = TOW_OK;
    tow__view *from = tow__arena_alloc(l->scratch, f->n_outputs, sizeof *from);
    if (!from) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_outputs; i++) { /* before the first consumer overwrites what is to be copied */
        if (!p->consumers[i].consume || p->consumed[i]) continue;
        from[i] = l->env[f->outputs[i]];
        TRY(tow__copy_for_sink(l, &from[i]));
    }
    for (uint32_t i = 0; i < f->n_outputs; i++) {
        const tow_consumer *c = &p->consumers[i];
        if (c->consume && !p->consumed[i]) TRY(tow__add_sink(l, c, &from[i], &l->env[f->inputs[c->input]], &p->no_row));
    }
done:
    return status;
}
