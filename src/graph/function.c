/* Tracing of C functions, and recording the equations of a graph again. */
#include "src/base/arithmetic.h"
#include "src/base/counts.h"
#include "src/graph/builder.h"
#include "tow/autodiff.h"

/* ---- outputs of C functions ------------------------------------------------------------------------------------ */

enum {
    GUARDS = 64
};
static const tow_value guard = {.here = "a guard", .id = UINT32_MAX, .serial = UINT32_MAX};

tow_value *tow__guarded_alloc(tow_trace *t, size_t n)
{
    tow_value *values = tow__trace_alloc(t, n < SIZE_MAX - GUARDS ? n + GUARDS : n, sizeof *values);
    for (size_t i = 0; values && i < GUARDS; i++) values[n + i] = guard;
    return values;
}

static bool is_guard(tow_value v)
{
    return !v.trace && v.here == guard.here && v.id == guard.id && v.serial == guard.serial;
}

void tow__check_guards(tow_trace *t, const char *what, size_t n, const tow_value *values)
{
    size_t written = n + GUARDS;
    while (written > n && is_guard(values[written - 1])) written--;
    if (written > n)
        tow_trace_fail(t, TOW_INVALID_ARGUMENT,
                       "%s[%zu] was written by a traced function, expected %zu value%s; write no others, or ask for "
                       "more",
                       what, written - 1, n, n == 1 ? "" : "s");
}

/* ---- tracing --------------------------------------------------------------------------------------------------- */

tow_status tow_trace_function(tow_context *context, tow_function function, void *user, size_t n_inputs,
                              const tow_type *input_types, const char *const *input_names, size_t n_outputs,
                              tow_graph **graph)
{
    if (graph) *graph = NULL;
    if (!context || !function || !graph)
        return tow__missing(context, __func__, "a context, a function and a place for the graph");
    if (!input_types && n_inputs > 0) return tow__missing(context, __func__, "%zu input_types", n_inputs);
    tow_status status = tow__check_count(context, __func__, "n_inputs", n_inputs);
    if (!status) status = tow__check_count(context, __func__, "n_outputs", n_outputs);
    if (status) return status;
    TOW__ARITHMETIC(false);
    tow_trace *t = tow__trace_begin(context);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *inputs = tow__trace_alloc(t, n_inputs, sizeof *inputs);
    tow_value *outputs = inputs ? tow__guarded_alloc(t, n_outputs) : NULL;
    for (size_t i = 0; outputs && i < n_inputs; i++)
        inputs[i] = tow__input(t, input_types[i], input_names ? input_names[i] : NULL);
    if (outputs && !tow__failed(t)) {
        function(t, inputs, outputs, user);
        tow__check_guards(t, "outputs", n_outputs, outputs);
    }
    return tow__trace_end(t, outputs ? n_outputs : 0, outputs, false, graph);
}

/* ---- recording again ------------------------------------------------------------------------------------------- */

/* Keeps the equation's source unless the pass has set one. */
void tow__rebind(tow_trace *t, const tow__equation *e, const tow_value *in, tow_value *out)
{
    const tow__source *source = t ? tow__get_source(t) : NULL;
    tow__source own = e->source;
    if (source && source->phase > own.phase) own.phase = source->phase;
    if (source && source->mark) own.mark = source->mark;
    if (source && source->why.number) own.why = source->why;
    if (t && !(source && (source->here || source->scope))) tow__set_source(t, &own);
    tow__bind(t, e->primitive, e->params, e->n_in, in, e->n_out, out);
    if (t) tow__set_source(t, source);
}

bool tow__rebind_among(tow_trace *t, const tow__equation *e, tow_value *values)
{
    tow_value *operands = tow__trace_alloc(t, (size_t)e->n_in + e->n_out, sizeof *operands);
    if (!operands) return false;
    for (uint32_t j = 0; j < e->n_in; j++) operands[j] = values[e->in[j]];
    tow__set_source(t, &e->source);
    tow__rebind(t, e, operands, operands + e->n_in);
    for (uint32_t j = 0; j < e->n_out; j++) values[e->out[j]] = operands[e->n_in + j];
    return true;
}

static void clear_values(size_t n, tow_value *values)
{
    for (size_t i = 0; i < n; i++) values[i] = (tow_value){0};
}

/* values: [g->n_vars], inputs filled in. */
static void inline_equations(tow_trace *t, const tow_graph *g, tow__recorder record, const void *user,
                             tow_value *values)
{
    for (uint32_t i = 0; i < g->n_equations && !tow__failed(t); i++) {
        const tow__equation *e = &g->equations[i];
        tow_value *operands = values + g->n_vars; /* room for the most operands, then results, of one equation */
        tow_value *results = operands + e->n_in;
        for (uint32_t j = 0; j < e->n_in; j++) operands[j] = values[e->in[j]];
        clear_values(e->n_out, results);
        tow__set_source(t, &e->source);
        record(t, g, e, operands, results, user);
        for (uint32_t j = 0; j < e->n_out; j++) values[e->out[j]] = results[j];
    }
}

void tow__inline_by(tow_trace *t, const tow_graph *g, tow__recorder record, const void *user, const tow_value *in,
                    tow_value *out)
{
    size_t most = 0;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        size_t n = (size_t)g->equations[i].n_in + g->equations[i].n_out;
        if (n > most) most = n;
    }
    clear_values(g->n_outputs, out);
    if (!t || tow__failed(t)) return;
    size_t count = g->n_vars + most;
    tow_value *values = tow__alloc(g->ctx, count, sizeof *values);
    if (!values) {
        tow_trace_fail(t, TOW_OUT_OF_MEMORY, "out of memory while a graph is recorded again");
        return;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) values[g->inputs[i]] = in[i];
    const tow__source *source = tow__get_source(t);
    inline_equations(t, g, record, user, values);
    tow__set_source(t, source);
    for (uint32_t i = 0; i < g->n_outputs; i++) out[i] = values[g->outputs[i]];
    tow__free(g->ctx, values, count, sizeof *values);
}

tow_status tow__copy_by(const tow_graph *g, tow__recorder record, const void *user, tow_graph **copy)
{
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    *copy = NULL;
    if (!t) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++) in[i] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    tow__inline_by(t, g, record, user, in, out);
    return tow__trace_end(t, g->n_outputs, out, false, copy);
}

static void rebind(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                   const void *user)
{
    (void)g, (void)user;
    tow__rebind(t, e, x, y);
}

void tow__inline(tow_trace *t, const tow_graph *g, const tow_value *in, tow_value *out)
{
    tow__inline_by(t, g, rebind, NULL, in, out);
}

void tow_inline(tow_trace *trace, const tow_graph *graph, const tow_value *inputs, tow_value *outputs)
{
    if (!graph || (!inputs && graph->n_inputs > 0) || (!outputs && graph->n_outputs > 0)) {
        tow_trace_fail(trace, TOW_INVALID_ARGUMENT,
                       "tow_inline: expected a graph, its %u inputs and places for its %u outputs, found NULL; pass "
                       "what is missing",
                       graph ? graph->n_inputs : 0, graph ? graph->n_outputs : 0);
        if (graph && outputs) clear_values(graph->n_outputs, outputs);
        return;
    }
    for (uint32_t i = 0; trace && i < graph->n_inputs; i++) {
        tow_type expected = graph->vars[graph->inputs[i]].type, found = tow_value_type(inputs[i]);
        if (tow_is_null(inputs[i]) || tow_type_equal(expected, found)) continue;
        tow_trace_fail(trace, TOW_TYPE_MISMATCH, "input %u of an inlined graph: expected %s, found %s", i,
                       tow__type_name(expected).text, tow__type_name(found).text);
    }
    tow__inline(trace, graph, inputs, outputs);
}
