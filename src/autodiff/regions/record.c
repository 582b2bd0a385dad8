/* Shared by the operations that record nested graphs from C functions. */
#include "src/autodiff/regions/record.h"

void tow__clear(size_t n, tow_value *values)
{
    for (size_t i = 0; values && i < n; i++) values[i] = (tow_value){0};
}

static bool all_current(tow_trace *t, size_t n, const tow_value *values)
{
    for (size_t i = 0; i < n; i++)
        if (!tow__is_current(t, values[i])) return false;
    return true;
}

bool tow__run_function(tow_trace *t, tow_function function, void *user, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    if (tow__failed(t)) return false;
    function(t, in, out, user);
    tow__check_guards(t, "outputs", n_out, out);
    return !tow__failed(t);
}

bool tow__trace_body(tow_trace *t, tow_function function, void *user, size_t n_in, const tow_type *types, size_t n_out,
                     tow__traced_body *b)
{
    tow_value *in = tow__trace_alloc(t, n_in, sizeof *in), *out = tow__guarded_alloc(t, n_out);
    if (!in || !out || !tow__may_nest(t, 1)) return false;
    tow__push(t);
    for (size_t i = 0; i < n_in; i++) in[i] = tow__input(t, types[i], NULL);
    tow__run_function(t, function, user, in, n_out, out);
    for (size_t i = 0; i < n_out && !tow__failed(t); i++)
        if (tow_is_null(out[i]))
            tow_trace_fail(t, TOW_INVALID_ARGUMENT, "output %zu of %zu %s%s", i, n_out,
                           tow__null_text(out[i], NULL) ? "is " : "",
                           tow__null_text(out[i], "was never written by the traced function"));
    b->graph = tow__pop(t, n_out, out, &b->n_captures, &b->captures);
    if (!b->graph || tow__may_nest(t, b->graph->depth)) return b->graph != NULL;
    tow_graph_release(b->graph);
    b->graph = NULL;
    return false;
}

tow_type *tow__types_of(tow_trace *t, size_t n, const tow_value *values)
{
    tow_type *types = tow__trace_alloc(t, n, sizeof *types);
    for (size_t i = 0; types && i < n; i++) types[i] = tow_value_type(values[i]);
    return types;
}

tow_value *tow__join(tow_trace *t, size_t n, const tow_value *a, size_t m, const tow_value *b)
{
    tow_value *all = tow__trace_alloc(t, n + m, sizeof *all);
    if (all && n) memcpy(all, a, n * sizeof *a);
    if (all && m) memcpy(all + n, b, m * sizeof *b);
    return all;
}

/* ---- captured values --------------------------------------------------------------------------------------------- */

size_t tow__find_capture(const tow__captures *all, tow_value v)
{
    size_t i = 0;
    while (i < all->n && all->values[i].id != v.id) i++;
    return i;
}

bool tow__unite_captures(tow_trace *t, size_t n, const tow__traced_body *bodies, tow__captures *all)
{
    size_t most = all->n;
    for (size_t k = 0; k < n; k++) most += bodies[k].n_captures;
    tow_value *values = tow__trace_alloc(t, most, sizeof *values);
    if (!values) return false;
    if (all->n) memcpy(values, all->values, all->n * sizeof *values);
    all->values = values;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < bodies[k].n_captures; i++)
            if (tow__find_capture(all, bodies[k].captures[i]) == all->n) values[all->n++] = bodies[k].captures[i];
    return true;
}

/* The graph of b over the inputs (all captured values, explicit ones). */
static tow_status widen(const tow__captures *all, const tow__traced_body *b, tow_graph **result)
{
    const tow_graph *g = b->graph;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    tow_value *captured = t ? tow__trace_alloc(t, all->n, sizeof *captured) : NULL;
    if (!captured) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < all->n; i++) captured[i] = tow__input(t, tow_value_type(all->values[i]), NULL);
    for (size_t i = 0; i < b->n_captures; i++) in[i] = captured[tow__find_capture(all, b->captures[i])];
    for (size_t i = b->n_captures; i < g->n_inputs; i++)
        in[i] = tow__input(t, tow_graph_input_type(g, i), g->input_names[i]);
    tow__inline(t, g, in, out);
    return tow__trace_end(t, g->n_outputs, out, false, result);
}

bool tow__capture_all(tow_trace *t, const tow__captures *all, tow__traced_body *b)
{
    tow_graph *whole = NULL;
    bool as_they_are = b->n_captures == all->n;
    for (size_t i = 0; i < all->n && as_they_are; i++) as_they_are = b->captures[i].id == all->values[i].id;
    if (as_they_are) return true;
    if (widen(all, b, &whole) != TOW_OK) {
        tow__adopt_error(t);
        return false;
    }
    tow_graph_release(b->graph);
    *b = (tow__traced_body){.graph = whole, .n_captures = all->n, .captures = all->values};
    return true;
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

void tow__bind_region(tow_trace *t, const tow_primitive *p, void *params, size_t body_offset, tow__traced_body *b,
                      size_t n_in, const tow_value *in, size_t n_out, tow_value *out)
{
    tow_graph *g = b->graph;
    tow_value *operands = tow__join(t, b->n_captures, b->captures, n_in, in);
    bool *kept = tow__trace_alloc(t, n_out, sizeof *kept);
    tow_value *results = tow__trace_alloc(t, n_out, sizeof *results);
    size_t *first = tow__trace_alloc(t, g->n_vars, sizeof *first); /* 1 + the first output that is the value */
    if (!operands || !kept || !results || !first) return;
    size_t n_kept = 0;
    for (size_t i = 0; i < n_out; i++) {
        kept[i] = g->vars[g->outputs[i]].equation != TOW__INPUT && first[g->outputs[i]] == 0;
        if (first[g->outputs[i]] == 0) first[g->outputs[i]] = i + 1;
        n_kept += kept[i];
    }
    tow_graph *reduced = NULL;
    if (tow__dce(g, kept, false, NULL, &reduced) != TOW_OK) {
        tow__adopt_error(t);
        return;
    }
    memcpy((char *)params + body_offset, &reduced, sizeof reduced);
    if (n_kept || reduced->has_effects) tow__bind(t, p, params, g->n_inputs, operands, n_kept, results);
    size_t next = 0;
    for (size_t i = 0; i < n_out; i++) {
        const tow__var *v = &g->vars[g->outputs[i]];
        out[i] = v->equation == TOW__INPUT ? operands[v->index]
                 : kept[i]                 ? results[next++]
                                           : out[first[g->outputs[i]] - 1];
    }
    tow_graph_release(reduced);
}

static bool is_missing(tow__listed l) { return l.n > 0 && !l.values; }

tow_value *tow__operands_of(tow_trace *t, const char *op, bool has_function, tow__listed a, tow__listed b,
                            tow__listed out, tow__listed more_out)
{
    if (!tow__records(t, NULL)) return NULL;
    if (!has_function || is_missing(a) || is_missing(b) || is_missing(out) || is_missing(more_out)) {
        tow_trace_fail(t, TOW_INVALID_ARGUMENT,
                       "%s: expected a function, %zu inputs and places for %zu outputs, found NULL; pass what is "
                       "missing",
                       op, a.n + b.n, out.n + more_out.n);
        return NULL;
    }
    return all_current(t, a.n, a.values) && all_current(t, b.n, b.values) ? tow__join(t, a.n, a.values, b.n, b.values)
                                                                          : NULL;
}

const tow_value *tow__trace_call(tow_trace *t, const char *op, tow_function function, void *user, tow__listed inputs,
                                 size_t n_out, tow_value *out, tow__traced_body *b)
{
    const tow_value *operands = tow__operands_of(t, op, function != NULL, inputs, (tow__listed){0},
                                                 (tow__listed){n_out, out}, (tow__listed){0});
    tow__clear(n_out, out);
    if (!operands) return NULL;
    const tow_type *types = tow__types_of(t, inputs.n, operands);
    return types && tow__trace_body(t, function, user, inputs.n, types, n_out, b) ? operands : NULL;
}

bool tow__carries_agree(tow_trace *t, const char *op, const tow_graph *g, size_t n_carry, const tow_value *carry)
{
    for (size_t i = 0; i < n_carry; i++) {
        tow_type in = tow_value_type(carry[i]), out = g->vars[g->outputs[i]].type;
        if (tow_type_equal(in, out)) continue;
        tow_trace_fail(
            t, TOW_TYPE_MISMATCH,
            "%s: carry %zu enters the body as %s and leaves it as %s; a carry keeps its type in every iteration "
            "(convert or reshape it at the end of the body, or start from another initial value)",
            op, i, tow__type_name(in).text, tow__type_name(out).text);
        return false;
    }
    return true;
}
