/* A scan whose body only adds to its one carry, as loop/distribute.c makes them, is one kernel call instead of a loop. */
#include "src/kernels/products/steps.h"
#include "src/plan/plan.h"

/* The addition to the carry and, unless a row is added as it is, the product that is added. */
typedef struct parts {
    const tow__node *add, *dot;
} parts;

static bool find_parts(const tow__node *node, parts *p)
{
    const tow__scan_params *scan = node->e->params;
    const tow__flat *body = node->body;
    if (scan->consts != 0 || scan->carry != 1 || body->n_outputs != 1 || body->n_order == 0) return false;
    uint32_t n_xs = body->n_inputs - 1;
    if (n_xs < 1 || n_xs > 2 || body->n_order != n_xs) return false;
    *p = (parts){.add = &body->nodes[body->order[n_xs - 1]], .dot = n_xs == 2 ? &body->nodes[body->order[0]] : NULL};
    if (!TOW__IS(p->add->e, add) || body->outputs[0] != p->add->out[0]) return false;
    uint32_t d = body->inputs[1];
    if (p->dot) {
        if (!TOW__IS(p->dot->e, dot_general) || p->dot->in[0] != d || p->dot->in[1] != body->inputs[2]) return false;
        d = p->dot->out[0];
    }
    const uint32_t *in = p->add->in;
    return (in[0] == body->inputs[0] && in[1] == d) || (in[1] == body->inputs[0] && in[0] == d);
}

tow_status tow__scan_to_reduction(tow__lowering *l, const tow__node *node, bool *done)
{
    const tow__scan_params *scan = node->e->params;
    parts found;
    *done = false;
    if (scan->length == 0 || !find_parts(node, &found)) return TOW_OK;
    tow__steps_params *params = tow__arena_alloc(&l->p->memory, 1, sizeof *params);
    if (!params) return TOW_OUT_OF_MEMORY;
    params->reverse = scan->reverse;
    if (found.dot) params->dot = *(const tow__dot_params *)found.dot->e->params;
    const tow_primitive *op = found.dot ? &tow__dot_steps_p : &tow__add_steps_p;
    tow_type type = l->flat->types[node->out[0]];
    const tow__kernel *kernel = tow__kernel_of(op, type.dtype);
    uint32_t n_in = node->e->n_in;
    tow__buffer buffers[3];
    for (uint32_t i = 0; i < n_in; i++) buffers[i] = tow__view_buffer(&l->env[node->in[i]]);
    if (!kernel || tow_type_bytes(type) == 0 || !tow__steps_fit(n_in, buffers, params)) return TOW_OK;
    uint32_t s = tow__add_storage(l->p, l->plan, TOW__S_ARENA, 0, tow_type_bytes(type));
    if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
    tow__instruction *inst = tow__add_instruction(l, op, n_in, 1);
    if (!inst) return TOW_OUT_OF_MEMORY;
    inst->params = params;
    inst->kernel = kernel;
    inst->backward = node->backward;
    for (uint32_t i = 0; i < n_in; i++) inst->in[i] = l->env[node->in[i]];
    inst->out[0] = l->env[node->out[0]] = tow__view_whole(s, type);
    *done = true;
    return tow__add_scratch(l, inst);
}
