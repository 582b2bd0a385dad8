/* The builder of one graph: vars, equations, inputs and captures in growing arrays, moved into the graph's arena when
 * it closes. Appending takes constant time on average. */
#include "src/graph/builder.h"

/* ---- growing arrays -------------------------------------------------------------------------------------------- */

void *tow__vector_push(tow_context *ctx, tow__vector *v, size_t size)
{
    if (v->count == v->capacity) {
        if (v->capacity > UINT32_MAX / 4) {
            tow__fail(ctx, TOW_OUT_OF_MEMORY, "out of memory: a graph holds at most %u values", v->capacity);
            return NULL;
        }
        uint32_t capacity = v->capacity ? 2 * v->capacity : 8;
        void *data = tow__grow(ctx, v->data, v->capacity, capacity, size);
        if (!data) return NULL;
        v->data = data;
        v->capacity = capacity;
    }
    return memset((char *)v->data + size * v->count++, 0, size);
}

void tow__vector_free(tow_context *ctx, tow__vector *v, size_t size)
{
    tow__free(ctx, v->data, v->capacity, size);
    *v = (tow__vector){0};
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

bool tow__builder_init(tow__builder *b, tow_context *ctx, uint32_t serial)
{
    *b = (tow__builder){.serial = serial, .graph = tow__alloc(ctx, 1, sizeof *b->graph)};
    if (!b->graph) return false;
    b->graph->ctx = ctx;
    tow__context_hold(ctx);
    atomic_init(&b->graph->references, 1);
    b->graph->depth = 1;
    tow__arena_init(&b->graph->arena, ctx);
    return true;
}

static void free_vectors(tow__builder *b, tow_context *ctx)
{
    tow__vector_free(ctx, &b->vars, sizeof(tow__var));
    tow__vector_free(ctx, &b->equations, sizeof(tow__equation));
    tow__vector_free(ctx, &b->inputs, sizeof(tow__named_input));
    tow__vector_free(ctx, &b->captures, sizeof(tow__capture));
    tow__free(ctx, b->slots, b->n_slots, sizeof *b->slots);
    *b = (tow__builder){0};
}

/* Lends the equations to the graph, so that releasing it releases what they hold. */
void tow__builder_free(tow__builder *b, tow_context *ctx)
{
    if (!b->graph) return;
    b->graph->equations = b->equations.data;
    b->graph->n_equations = b->equations.count;
    tow_graph_release(b->graph);
    free_vectors(b, ctx);
}

/* ---- captures -------------------------------------------------------------------------------------------------- */

static uint32_t *slot_of(const tow__builder *b, uint32_t outer)
{
    const tow__capture *captures = b->captures.data;
    uint32_t mask = b->n_slots - 1, i = (uint32_t)(outer * UINT64_C(0x9e3779b97f4a7c15) >> 32) & mask;
    while (b->slots[i] != 0 && captures[b->slots[i] - 1].outer != outer) i = (i + 1) & mask;
    return &b->slots[i];
}

const tow__capture *tow__builder_find(const tow__builder *b, uint32_t outer)
{
    uint32_t index = b->n_slots > 0 ? *slot_of(b, outer) : 0;
    return index > 0 ? (const tow__capture *)b->captures.data + index - 1 : NULL;
}

/* Keeps the table at most half full. */
static bool grow_slots(tow__builder *b)
{
    tow_context *ctx = b->graph->ctx;
    uint32_t n_slots = b->n_slots ? 2 * b->n_slots : 16;
    uint32_t *slots = tow__alloc(ctx, n_slots, sizeof *slots);
    if (!slots) return false;
    tow__free(ctx, b->slots, b->n_slots, sizeof *slots);
    b->slots = slots;
    b->n_slots = n_slots;
    const tow__capture *captures = b->captures.data;
    for (uint32_t i = 0; i < b->captures.count; i++) *slot_of(b, captures[i].outer) = i + 1;
    return true;
}

bool tow__builder_capture(tow__builder *b, tow__capture capture)
{
    if (2 * (b->captures.count + 1) > b->n_slots && !grow_slots(b)) return false;
    tow__capture *new = tow__vector_push(b->graph->ctx, &b->captures, sizeof *new);
    if (!new) return false;
    *new = capture;
    *slot_of(b, capture.outer) = b->captures.count;
    return true;
}

/* ---- recording ------------------------------------------------------------------------------------------------- */

uint32_t tow__builder_var(tow__builder *b, tow_type type, uint32_t equation, uint32_t index)
{
    tow__var *var = tow__vector_push(b->graph->ctx, &b->vars, sizeof *var);
    if (!var) return TOW__INPUT;
    type = tow_make_type(type.dtype, type.rank, type.dims); /* dims beyond the rank are 0 */
    *var = (tow__var){.type = type, .equation = equation, .index = index};
    return b->vars.count - 1;
}

bool tow__builder_input(tow__builder *b, uint32_t var, const char *name)
{
    const char *copy = tow__arena_string(&b->graph->arena, name);
    if (name && !copy) return false;
    tow__named_input *input = tow__vector_push(b->graph->ctx, &b->inputs, sizeof *input);
    if (!input) return false;
    *input = (tow__named_input){.var = var, .name = copy};
    return true;
}

/* Equations of one line or scope follow each other, so the last copy mostly serves again. */
static bool copy_source_text(tow__arena *arena, const char *text, const char **last)
{
    if (text && *last && strcmp(text, *last) == 0) return true;
    if (!text) return *last = NULL, true;
    return (*last = tow__arena_string(arena, text)) != NULL;
}

/* Levels of the graphs in an equation. */
static uint32_t nested_depth(const tow__equation *e)
{
    uint32_t depth = 0;
    for (uint32_t i = 0, n = tow__nested_count(e->primitive, e->params); i < n; i++) {
        const tow_graph *nested = tow__nested(e->primitive, e->params, i);
        if (nested->depth > depth) depth = nested->depth;
    }
    return depth;
}

const tow__equation *tow__builder_equation(tow__builder *b, const tow_primitive *primitive, const void *params,
                                           uint32_t n_in, const uint32_t *in, uint32_t n_out, const tow_type *types,
                                           const tow__source *source)
{
    tow__arena *arena = &b->graph->arena;
    tow__equation e = {.primitive = primitive, .n_in = n_in, .n_out = n_out};
    uint32_t vars_before = b->vars.count;
    if (!tow__params_copy(arena, primitive, params, &e.params)) return NULL;
    if (!copy_source_text(arena, source->here, &b->last.here)) return NULL;
    if (!copy_source_text(arena, source->scope, &b->last.scope)) return NULL;
    if (!copy_source_text(arena, source->why.policy, &b->last.why.policy)) return NULL;
    e.source = b->last;
    e.source.why = source->why;
    e.source.why.policy = b->last.why.policy;
    e.source.rows = source->rows;
    e.source.phase = source->phase;
    e.source.mark = source->mark;
    e.in = tow__arena_copy(arena, in, n_in, sizeof *in);
    e.out = tow__arena_alloc(arena, n_out, sizeof *e.out);
    if (!e.in || !e.out) return NULL;
    for (uint32_t i = 0; i < n_out; i++)
        if ((e.out[i] = tow__builder_var(b, types[i], b->equations.count, i)) == TOW__INPUT) {
            b->vars.count = vars_before;
            return NULL;
        }
    tow__equation *new = tow__vector_push(b->graph->ctx, &b->equations, sizeof *new);
    if (!new) {
        b->vars.count = vars_before;
        return NULL;
    }
    *new = e;
    if (nested_depth(new) >= b->graph->depth) b->graph->depth = nested_depth(new) + 1;
    tow__params_retain(primitive, e.params); /* last, so that nothing has to be undone */
    return new;
}

/* ---- closing --------------------------------------------------------------------------------------------------- */

/* Inputs: captures in order of first use, then the explicit ones. */
static bool close_inputs(tow__builder *b)
{
    tow_graph *g = b->graph;
    const tow__capture *captures = b->captures.data;
    const tow__named_input *inputs = b->inputs.data;
    uint32_t n_captures = b->captures.count, n = n_captures + b->inputs.count;
    g->inputs = tow__arena_alloc(&g->arena, n, sizeof *g->inputs);
    g->input_names = tow__arena_alloc(&g->arena, n, sizeof *g->input_names);
    if (!g->inputs || !g->input_names) return false;
    for (uint32_t i = 0; i < n; i++) {
        g->inputs[i] = i < n_captures ? captures[i].var : inputs[i - n_captures].var;
        g->input_names[i] = i < n_captures ? NULL : inputs[i - n_captures].name;
        g->vars[g->inputs[i]].index = i;
    }
    g->n_inputs = n;
    return true;
}

/* Inputs first, in order, then results in order of the equations: graphs that compute the same in the same order are
 * then equal value by value, however their captures came about. */
static bool renumber(tow__builder *b, const uint32_t *outputs)
{
    tow_graph *g = b->graph;
    uint32_t n = b->vars.count, next = 0;
    const tow__var *old = b->vars.data;
    tow__equation *equations = b->equations.data;
    bool in_order = true;
    for (uint32_t i = 0; i < g->n_inputs && in_order; i++) in_order = g->inputs[i] == i;
    if (in_order) return true;
    uint32_t *names = tow__alloc(g->ctx, n, sizeof *names);
    if (!names) return false;
    for (uint32_t i = 0; i < g->n_inputs; i++) names[g->inputs[i]] = next++;
    for (uint32_t v = 0; v < n; v++)
        if (old[v].equation != TOW__INPUT) names[v] = next++; /* vars are made in the order of their equations */
    for (uint32_t v = 0; v < n; v++) g->vars[names[v]] = old[v];
    for (uint32_t i = 0; i < g->n_inputs; i++) g->vars[i].index = g->inputs[i] = i;
    for (uint32_t i = 0; i < g->n_outputs; i++) g->outputs[i] = names[outputs[i]];
    for (uint32_t i = 0; i < b->equations.count; i++) {
        for (uint32_t j = 0; j < equations[i].n_in; j++) equations[i].in[j] = names[equations[i].in[j]];
        for (uint32_t j = 0; j < equations[i].n_out; j++) equations[i].out[j] = names[equations[i].out[j]];
    }
    tow__free(g->ctx, names, n, sizeof *names);
    return true;
}

tow_graph *tow__builder_close(tow__builder *b, uint32_t n_outputs, const uint32_t *outputs)
{
    tow_graph *g = b->graph;
    tow_context *ctx = g->ctx;
    tow__equation *equations = tow__arena_copy(&g->arena, b->equations.data, b->equations.count, sizeof *equations);
    g->vars = tow__arena_copy(&g->arena, b->vars.data, b->vars.count, sizeof *g->vars);
    g->outputs = tow__arena_copy(&g->arena, outputs, n_outputs, sizeof *outputs);
    g->n_outputs = n_outputs;
    if (!equations || !g->vars || !g->outputs || !close_inputs(b) || !renumber(b, outputs)) {
        tow__builder_free(b, ctx);
        return NULL;
    }
    g->equations = equations;
    g->n_equations = b->equations.count;
    g->has_effects = tow__any_effect(equations, g->n_equations);
    g->n_vars = b->vars.count;
    free_vectors(b, ctx);
    return g;
}
