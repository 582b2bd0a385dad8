/* Orders the instructions of a function: in the order of the graph, except late ones and those that wait for other
 * processes, which run directly before their first reader. Instructions that no output needs, and that have no effect,
 * are left out. Effects keep their order, but for those waits. */
#include "src/plan/lower/inline.h"

/* Puts the maker of the value on the stack of instructions whose operands are still to be looked at. */
static void need(const tow__body *f, uint32_t value, bool *needed, uint32_t *stack, uint32_t *n)
{
    uint32_t maker = f->makers[value];
    if (maker == TOW__INPUT || needed[maker]) return;
    needed[maker] = true;
    stack[(*n)++] = maker;
}

/* needed[i]: an output, or an effect, depends on instruction i. */
static bool *needed_insts(const tow__body *f, tow__arena *scratch)
{
    bool *needed = tow__arena_alloc(scratch, f->n_insts, sizeof *needed);
    uint32_t *stack = tow__arena_alloc(scratch, f->n_insts, sizeof *stack), n = 0;
    if (!needed || !stack) return NULL;
    for (uint32_t i = 0; i < f->n_outputs; i++) need(f, f->outputs[i], needed, stack, &n);
    for (uint32_t i = 0; i < f->n_insts; i++)
        if (f->insts[i].effect && !needed[i]) needed[i] = true, stack[n++] = i;
    while (n > 0) {
        const tow__instruction *inst = &f->insts[stack[--n]];
        for (uint32_t i = 0; i < inst->n_in; i++) need(f, inst->operands[i], needed, stack, &n);
    }
    return needed;
}

typedef struct ordering {
    const tow__body *f;
    bool *done;           /* [n_insts] the instruction is in the order */
    uint32_t *order, n;   /* [n_insts] the order so far */
    uint32_t *stack, *at; /* [n_insts] instructions that wait for operands, and for which one */
} ordering;

/* Runs instruction i after the late ones that it reads, depth first. The stack is explicit because chains can be
 * long. */
static void emit(ordering *o, uint32_t i)
{
    uint32_t depth = 0;
    if (o->done[i]) return;
    o->stack[depth] = i;
    o->at[depth++] = 0;
    while (depth) {
        const tow__instruction *inst = &o->f->insts[o->stack[depth - 1]];
        uint32_t *j = &o->at[depth - 1], maker = TOW__INPUT;
        while (*j < inst->n_in && ((maker = o->f->makers[inst->operands[*j]]) == TOW__INPUT || o->done[maker])) (*j)++;
        if (*j < inst->n_in) {
            o->stack[depth] = maker;
            o->at[depth++] = 0;
        } else {
            uint32_t ready = o->stack[--depth];
            o->done[ready] = true;
            o->order[o->n++] = ready;
        }
    }
}

/* The function gets its instructions in the new order. */
static tow_status reorder(tow__body *f, const uint32_t *order, uint32_t n, tow__arena *scratch)
{
    tow__instruction *insts = tow__arena_alloc(scratch, n, sizeof *insts);
    if (!insts) return TOW_OUT_OF_MEMORY;
    for (uint32_t v = 0; v < f->n_values; v++)
        if (f->makers[v] != TOW__INPUT) f->makers[v] = TOW__NONE;
    for (uint32_t i = 0; i < n; i++) {
        insts[i] = f->insts[order[i]];
        for (uint32_t j = 0; j < insts[i].n_out; j++) f->makers[insts[i].results[j]] = i;
    }
    f->insts = insts;
    f->n_insts = f->insts_capacity = n;
    return TOW_OK;
}

static tow_status find_delivered(tow__body *f, tow__arena *scratch)
{
    f->delivered = tow__arena_alloc(scratch, f->n_values, sizeof *f->delivered);
    if (!f->delivered) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_outputs; i++) {
        uint32_t x = f->outputs[i];
        while (!f->delivered[x]) {
            f->delivered[x] = true;
            if (f->makers[x] == TOW__INPUT || !f->insts[f->makers[x]].op->view) break;
            x = f->insts[f->makers[x]].operands[0];
        }
    }
    return TOW_OK;
}

tow_status tow__order(tow__body *f, tow__arena *scratch)
{
    if (find_delivered(f, scratch) != TOW_OK) return TOW_OUT_OF_MEMORY;
    ordering o = {.f = f};
    const bool *needed = needed_insts(f, scratch);
    o.done = tow__arena_alloc(scratch, f->n_insts, sizeof *o.done);
    o.order = tow__arena_alloc(scratch, f->n_insts, sizeof *o.order);
    o.stack = tow__arena_alloc(scratch, f->n_insts, sizeof *o.stack);
    o.at = tow__arena_alloc(scratch, f->n_insts, sizeof *o.at);
    if (!needed || !o.done || !o.order || !o.stack || !o.at) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_insts; i++)
        if (needed[i] && !f->insts[i].late && !f->insts[i].awaits) emit(&o, i);
    for (uint32_t i = 0; i < f->n_insts; i++) /* late ones that only outputs read */
        if (needed[i]) emit(&o, i);
    return reorder(f, o.order, o.n, scratch);
}
