/* Inlines a graph: makes functions of instructions on values.
 *
 * Bodies of calls and remats become instructions of the function around them, names and stop_gradient become their
 * operands, composites without a kernel become their decompositions. The body of a scan becomes a function of its own.
 * Equal equations are not merged, which would undo recomputation; within the bytes that the caller allows for it,
 * remat/eliminate_recomputation.c does.
 *
 * Instructions stand in the order of the graph, and lower/order.c decides in which order they run. Those that run late,
 * directly before their first reader, are marked here: sources, and what remat makes again for the backward pass. */
#include "src/plan/lower/inline.h"
#include "src/kernels/products/dot.h"
#include "src/ops/collective.h"
#include "src/ops/wide.h"
#include "src/plan/pass.h"

/* The state of inlining: facts about the equations that are being inlined. */
typedef struct inliner {
    tow_program *p;
    tow__arena *scratch;
    tow__body *body;
    bool backward; /* in the backward pass, which is what follows its first equation */
} inliner;

static tow_status inline_graph(inliner *in, const tow_graph *g, const uint32_t *inputs, uint32_t *outputs);

uint32_t tow__add_value(tow__arena *scratch, tow__body *f, tow_type type, uint32_t maker)
{
    tow_type *types = tow__extend(scratch, f->types, f->n_values, &f->types_capacity, sizeof *types);
    if (types) f->types = types;
    uint32_t *makers = tow__extend(scratch, f->makers, f->n_values, &f->makers_capacity, sizeof *makers);
    if (makers) f->makers = makers;
    if (!types || !makers) return TOW__NONE;
    types[f->n_values] = type;
    makers[f->n_values] = maker;
    return f->n_values++;
}

/* ---- equations by kind ------------------------------------------------------------------------------------------- */

enum {
    FEW = 64 /* elements, which take next to no time and memory */
};

/* Waits stand where their results are read, so that other work is done before: views of a sum, and the few numbers that
 * are made of few, the loss for instance, do not read it yet. */
static bool awaits(const tow__body *f, const tow_graph *g, const tow__equation *e, const uint32_t *operands)
{
    bool any = false;
    if (tow__awaits_collective(e->primitive)) return true;
    if (tow__has_effect(e) || tow__is_region(e) || e->n_out != 1) return false;
    if (!e->primitive->view && tow_type_element_count(g->vars[e->out[0]].type) > FEW) return false;
    for (uint32_t i = 0; i < e->n_in; i++) {
        const uint32_t maker = f->makers[operands[i]];
        any |= maker != TOW__INPUT && f->insts[maker].awaits;
        if (tow_type_element_count(f->types[operands[i]]) > FEW && !e->primitive->view) return false;
    }
    return any;
}

/* operands: their values; results: receives those of the results. */
static tow_status add_inst(inliner *in, const tow_graph *g, const tow__equation *e, const tow__kernel *kernel,
                           const uint32_t *operands, uint32_t *results)
{
    tow__body *f = in->body;
    tow__instruction *insts = tow__extend(in->scratch, f->insts, f->n_insts, &f->insts_capacity, sizeof *insts);
    if (!insts) return TOW_OUT_OF_MEMORY;
    f->insts = insts;
    const bool repeated = e->source.phase == TOW__RECOMPUTED;
    for (uint32_t i = 0; i < e->n_out; i++) {
        results[i] = tow__add_value(in->scratch, f, g->vars[e->out[i]].type, f->n_insts);
        if (results[i] == TOW__NONE) return TOW_OUT_OF_MEMORY;
    }
    tow__instruction inst = {
        .op = e->primitive,
        .kernel = kernel,
        .params = e->params,
        .n_in = e->n_in,
        .n_out = e->n_out,
        .source = &e->source,
        .operands = tow__arena_copy(in->scratch, operands, e->n_in, sizeof *operands),
        .results = tow__arena_copy(in->scratch, results, e->n_out, sizeof *results),
        .effect = tow__has_effect(e),
        .late = !tow__has_effect(e) && (e->n_in == 0 || repeated),
        .awaits = awaits(f, g, e, operands),
        .backward = in->backward,
        .scratch = TOW__NONE,
    };
    if (!inst.operands || !inst.results) return TOW_OUT_OF_MEMORY;
    if (e->primitive->kind == TOW__REGION) {
        const tow__scan_params *scan = e->params;
        inst.body = tow__arena_alloc(&in->p->memory, 1, sizeof *inst.body);
        if (!inst.body) return TOW_OUT_OF_MEMORY;
        tow_status status = tow__inline_graph(in->p, in->scratch, scan->body, scan, inst.body);
        if (status != TOW_OK) return status;
    }
    f->insts[f->n_insts++] = inst;
    return TOW_OK;
}

static tow_status inline_alias(const uint32_t *operands, uint32_t *results)
{
    results[0] = operands[0];
    return TOW_OK;
}

/* The decomposition of the equation is a graph of its own, which the program keeps: instructions point to its
 * parameters. */
static tow_status inline_parts(inliner *in, const tow_graph *g, const tow__equation *e, const uint32_t *operands,
                               uint32_t *results)
{
    tow_program *p = in->p;
    tow_graph *parts = NULL;
    tow_graph **kept =
        tow__extend(&p->memory, p->decompositions, p->n_decompositions, &p->decompositions_capacity, sizeof *kept);
    tow_value *x = tow__arena_alloc(in->scratch, e->n_in, sizeof *x),
              *y = tow__arena_alloc(in->scratch, e->n_out, sizeof *y);
    if (!kept || !x || !y) return TOW_OUT_OF_MEMORY;
    p->decompositions = kept;
    tow_trace *t = tow__trace_begin(p->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow__set_source(t, &e->source);
    for (uint32_t i = 0; i < e->n_in; i++) x[i] = tow__input(t, g->vars[e->in[i]].type, NULL);
    if (!tow__failed(t)) tow__decompose(t, e, x, y); /* null values have no shapes */
    tow_status status = tow__trace_end(t, e->n_out, y, true, &parts);
    if (status != TOW_OK) return status;
    status = tow__widen_graph(parts, &p->team, &kept[p->n_decompositions]);
    tow_graph_release(parts);
    if (status != TOW_OK) return status;
    return inline_graph(in, kept[p->n_decompositions++], operands, results);
}

static tow_status inline_equation(inliner *in, const tow_graph *g, const tow__equation *e, const uint32_t *operands,
                                  uint32_t *results)
{
    const tow__region *region = e->primitive->region;
    if (e->primitive->kind == TOW__NAME || TOW__IS(e, stop_gradient)) return inline_alias(operands, results);
    if (TOW__IS(e, select) && operands[1] == operands[2]) return inline_alias(operands + 1, results);
    if (region && region->planned == TOW__IN_PLACE)
        return inline_graph(in, tow__nested(e->primitive, e->params, 0), operands, results);
    if (TOW__IS(e, const) || tow__is_loop(e->primitive) || e->primitive->view)
        return add_inst(in, g, e, NULL, operands, results);
    tow_dtype dtype = tow__dtype_of_kernel(g, e);
    const tow__kernel *kernel = tow__kernel_of(e->primitive, dtype);
    if (kernel) return add_inst(in, g, e, kernel, operands, results);
    if (e->primitive->decompose) return inline_parts(in, g, e, operands, results);
    return tow__fail(in->p->ctx, TOW_UNSUPPORTED, "%s: there is no kernel for %s; convert the operands to another type",
                     e->primitive->name, tow_dtype_name(dtype));
}

static tow_status inline_graph(inliner *in, const tow_graph *g, const uint32_t *inputs, uint32_t *outputs)
{
    uint32_t *values = tow__arena_alloc(in->scratch, g->n_vars, sizeof *values);
    uint32_t widest = 1;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        if (g->equations[i].n_in > widest) widest = g->equations[i].n_in;
        if (g->equations[i].n_out > widest) widest = g->equations[i].n_out;
    }
    uint32_t *operands = tow__arena_alloc(in->scratch, widest, sizeof *operands),
             *results = tow__arena_alloc(in->scratch, widest, sizeof *results);
    if (!values || !operands || !results) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++) values[g->inputs[i]] = inputs[i];
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (e->source.phase != TOW__FORWARD) in->backward = true;
        for (uint32_t j = 0; j < e->n_in; j++) operands[j] = values[e->in[j]];
        tow_status status = inline_equation(in, g, e, operands, results);
        if (status != TOW_OK) return status;
        for (uint32_t j = 0; j < e->n_out; j++) values[e->out[j]] = results[j];
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) outputs[i] = values[g->outputs[i]];
    return TOW_OK;
}

static bool has_both_passes(const tow__body *f)
{
    bool forward = false, backward = false;
    for (uint32_t i = 0; i < f->n_insts; i++)
        if (f->insts[i].n_in > 0) *(f->insts[i].backward ? &backward : &forward) = true;
    return forward && backward;
}

tow_status tow__inline_graph(tow_program *p, tow__arena *scratch, const tow_graph *g, const tow__scan_params *scan,
                             tow__body *f)
{
    inliner in = {.p = p, .scratch = scratch, .body = f};
    f->n_inputs = g->n_inputs;
    f->n_outputs = g->n_outputs;
    f->inputs = tow__arena_alloc(scratch, g->n_inputs, sizeof *f->inputs);
    f->outputs = tow__arena_alloc(scratch, g->n_outputs, sizeof *f->outputs);
    if (!f->inputs || !f->outputs) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        f->inputs[i] = tow__add_value(scratch, f, g->vars[g->inputs[i]].type, TOW__INPUT);
        if (f->inputs[i] == TOW__NONE) return TOW_OUT_OF_MEMORY;
    }
    tow_status status = inline_graph(&in, g, f->inputs, f->outputs);
    if (status == TOW_OK) f->is_gradient = has_both_passes(f);
    if (status != TOW_OK || !scan) return status;
    tow__function_state s = {.p = p, .scratch = scratch, .kind = TOW__SCAN_BODY, .body = f};
    status = tow__end_pass(&s, TOW__PASS_inline);
    return status == TOW_OK ? tow__run_passes(&s, TOW__ON_VALUES, 0) : status;
}
