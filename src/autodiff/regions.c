/* remat, call, scan, vmap and checkpoint_name as operations that C functions record. */
#include "src/autodiff/regions.h"
#include "src/autodiff/batch.h"
#include "src/ops/rules.h"

tow_value(tow_checkpoint_name)(tow_value x, const char *name)
{
    if (tow_is_null(x)) return x;
    if (!name || !*name) {
        tow_trace_fail(x.trace, TOW_INVALID_ARGUMENT, "checkpoint_name: expected a name, found an empty one");
        return (tow_value){0};
    }
    tow__name_params params = {.name = name};
    return tow__bind1(x.trace, &tow__name_p, &params, 1, &x);
}

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

/* Outputs of a region that are its inputs, or equal to an earlier output, bypass the region: the caller's own value is
 * returned, so that a region changes neither the residuals nor the order in which cotangents are added. */
static void bind_region(tow_trace *t, const tow_primitive *p, void *params, size_t body_offset, tow__traced_body *b,
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

/* ---- remat, call ------------------------------------------------------------------------------------------------- */

/* False, with the error in the trace, if nobody may write a remat with this policy around this region. Its names are
 * checked when the trace ends, against those of all regions that have this policy. */
static bool policy_is_fine(tow_trace *t, const tow_policy *policy, const tow_graph *region)
{
    tow_context *ctx = tow_trace_context(t);
    tow_status status = tow__policy_check(t, policy, region, 0);
    if (status != TOW_OK) tow_trace_fail(t, status, "%s", ctx->error);
    return status == TOW_OK;
}

void tow_remat_function(tow_trace *trace, tow_function function, void *user, const tow_policy *policy, size_t n_inputs,
                        const tow_value *inputs, size_t n_outputs, tow_value *outputs)
{
    const tow_value *operands = tow__operands_of(trace, "remat", function != NULL, (tow__listed){n_inputs, inputs},
                                                 (tow__listed){0}, (tow__listed){n_outputs, outputs}, (tow__listed){0});
    tow__clear(n_outputs, outputs);
    if (!operands) return;
    tow__traced_body b = {0};
    tow_type *types = tow__types_of(trace, n_inputs, operands);
    if (!types || !tow__trace_body(trace, function, user, n_inputs, types, n_outputs, &b)) return;
    tow__remat_params params = {.policy = policy};
    if (policy_is_fine(trace, policy, b.graph))
        bind_region(trace, &tow__remat_p, &params, offsetof(tow__remat_params, body), &b, n_inputs, operands, n_outputs,
                    outputs);
    tow_graph_release(b.graph);
}

void tow_call(tow_trace *trace, tow_function function, void *user, const char *name, size_t n_inputs,
              const tow_value *inputs, size_t n_outputs, tow_value *outputs)
{
    const tow_value *operands = tow__operands_of(trace, "call", function != NULL, (tow__listed){n_inputs, inputs},
                                                 (tow__listed){0}, (tow__listed){n_outputs, outputs}, (tow__listed){0});
    tow__clear(n_outputs, outputs);
    if (!operands) return;
    tow__traced_body b = {0};
    tow_type *types = tow__types_of(trace, n_inputs, operands);
    if (!types || !tow__trace_body(trace, function, user, n_inputs, types, n_outputs, &b)) return;
    tow__call_params params = {.name = name ? name : "function"};
    bind_region(trace, &tow__call_p, &params, offsetof(tow__call_params, body), &b, n_inputs, operands, n_outputs,
                outputs);
    tow_graph_release(b.graph);
}

typedef struct graph_call {
    const tow_graph *graph;
} graph_call;

static void call_graph(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow__inline(t, ((const graph_call *)user)->graph, in, out);
}

void tow_remat_graph(tow_trace *trace, const tow_graph *graph, const tow_policy *policy, const tow_value *inputs,
                     tow_value *outputs)
{
    graph_call call = {.graph = graph};
    if (!graph) {
        tow_trace_fail(trace, TOW_INVALID_ARGUMENT, "tow_remat_graph: expected a graph, found NULL; pass one");
        return;
    }
    tow_remat_function(trace, call_graph, &call, policy, graph->n_inputs, inputs, graph->n_outputs, outputs);
}

/* ---- scan -------------------------------------------------------------------------------------------------------- */

/* The length from options and xs, or -1 after an error. */
static int64_t scan_length(tow_trace *t, const tow_scan_options *options, size_t n_xs, const tow_value *xs)
{
    int64_t length = -1;
    const bool given = options && (options->has_length || (options->length != 0 && options->length != -1));
    if (given) {
        length = options->length;
        if (length < 0) {
            tow_trace_fail(t, TOW_INVALID_ARGUMENT, "scan: length is %lld, expected 0 or more", (long long)length);
            return -1;
        }
    }
    for (size_t i = 0; i < n_xs; i++) {
        tow_type type = tow_value_type(xs[i]);
        if (type.rank == 0) {
            tow_trace_fail(t, TOW_SHAPE_MISMATCH,
                           "scan: xs[%zu] is the scalar %s, expected an array with a leading axis to loop over", i,
                           tow__type_name(type).text);
            return -1;
        }
        if (length >= 0 && type.dims[0] != length) {
            tow_trace_fail(t, TOW_SHAPE_MISMATCH,
                           "scan: xs[%zu] is %s, so its leading axis has %lld elements, but %s %lld; make them equal",
                           i, tow__type_name(type).text, (long long)type.dims[0],
                           i == 0 || given ? "the length is" : "xs[0] has", (long long)length);
            return -1;
        }
        length = type.dims[0];
    }
    if (length < 0)
        tow_trace_fail(t, TOW_INVALID_ARGUMENT, "scan: there are no xs to loop over, so options must give a length");
    return length;
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

/* True if the body forwards the carry: returns it as it is. Such a carry never changes. */
static bool is_forwarded(const tow__traced_body *b, size_t carry)
{
    return b->graph->outputs[carry] == b->graph->inputs[b->n_captures + carry];
}

/* The body with the carries that it forwards as further constants: (captures, forwarded, carry, xs) -> (carry, ys), so
 * that residuals among them are kept once, not for every iteration. order: the new order of its inputs. */
static tow_status without_forwarded(const tow__traced_body *b, size_t n_carry, size_t *order, tow_graph **result)
{
    const tow_graph *g = b->graph;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    size_t n = 0, n_out = 0, end = b->n_captures + n_carry;
    for (size_t i = 0; i < b->n_captures; i++) order[n++] = i;
    for (size_t i = b->n_captures; i < end; i++)
        if (is_forwarded(b, i - b->n_captures)) order[n++] = i;
    for (size_t i = b->n_captures; i < g->n_inputs; i++)
        if (i >= end || !is_forwarded(b, i - b->n_captures)) order[n++] = i;
    for (size_t i = 0; i < n; i++)
        in[order[i]] = tow__input(t, g->vars[g->inputs[order[i]]].type, g->input_names[order[i]]);
    tow__inline(t, g, in, out);
    for (size_t i = 0; i < g->n_outputs; i++)
        if (i >= n_carry || !is_forwarded(b, i)) out[n_out++] = out[i];
    return tow__trace_end(t, n_out, out, false, result);
}

/* Binds the loop over body b. operands: of all its inputs; out: of all its outputs. */
static void bind_scan(tow_trace *t, const tow__traced_body *b, int64_t length, bool reverse, size_t n_carry,
                      const tow_value *operands, size_t n_out, tow_value *out)
{
    size_t n_in = b->graph->n_inputs, n_forwarded = 0;
    size_t *order = tow__trace_alloc(t, n_in, sizeof *order);
    tow_value *in = tow__trace_alloc(t, n_in, sizeof *in), *results = tow__trace_alloc(t, n_out, sizeof *results);
    if (!order || !in || !results) return;
    for (size_t i = 0; i < n_carry; i++) n_forwarded += is_forwarded(b, i);
    tow_graph *graph = b->graph;
    if (n_forwarded > 0 && without_forwarded(b, n_carry, order, &graph) != TOW_OK) {
        tow__adopt_error(t);
        return;
    }
    for (size_t i = 0; i < n_in; i++) in[i] = operands[n_forwarded > 0 ? order[i] : i];
    tow__scan_params params = {.body = graph,
                               .length = length,
                               .reverse = reverse,
                               .consts = (int64_t)(b->n_captures + n_forwarded),
                               .carry = (int64_t)(n_carry - n_forwarded)};
    if (n_out > n_forwarded) tow__bind(t, &tow__scan_p, &params, n_in, in, n_out - n_forwarded, results);
    for (size_t i = 0, next = 0; i < n_out; i++)
        out[i] = i < n_carry && is_forwarded(b, i) ? operands[b->n_captures + i] : results[next++];
    if (graph != b->graph) tow_graph_release(graph);
}

/* ---- several iterations in one body ------------------------------------------------------------------------------ */

/* A body of k iterations over the body b: in: carry, xs [k, ...]; out: carry, ys [k, ...]. */
typedef struct unrolled {
    const tow__traced_body *b;
    int64_t k, first;     /* its iterations begin with iteration `first` of the loop that was asked for */
    bool reverse, looped; /* looped: and are one turn of a loop, whose turn i begins with first + k i */
    size_t n_carry, n_xs, n_ys;
} unrolled;

static tow_value row_of(tow_value x, int64_t i)
{
    tow_type type = tow_value_type(x);
    return tow_reshape(tow_slice_axis(x, 0, i, i + 1), type.rank - 1, type.dims + 1);
}

static void several_iterations(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const unrolled *u = user;
    const size_t n_captures = u->b->n_captures, n = n_captures + u->n_carry + u->n_xs, k = (size_t)u->k;
    tow_value *x = tow__trace_alloc(t, n + 1, sizeof *x), *y = tow__trace_alloc(t, u->n_carry + u->n_ys + 1, sizeof *y);
    tow_value *rows = tow__trace_alloc(t, k * (u->n_ys + 1), sizeof *rows);
    if (!x || !y || !rows) return;
    for (size_t i = 0; i < n_captures; i++) x[i] = tow__import(t, u->b->captures[i]);
    for (size_t i = 0; i < u->n_carry; i++) y[i] = in[i];
    for (size_t step = 0; step < k && !tow__failed(t); step++) {
        const size_t row = u->reverse ? k - 1 - step : step;
        for (size_t i = 0; i < u->n_carry; i++) x[n_captures + i] = y[i];
        for (size_t i = 0; i < u->n_xs; i++) x[n_captures + u->n_carry + i] = row_of(in[u->n_carry + i], (int64_t)row);
        tow__inline_iteration(t, u->b->graph, u->first + (int64_t)row, u->looped ? u->k : 0, x, y);
        for (size_t i = 0; i < u->n_ys; i++) rows[i * k + row] = tow_expand_dims(y[u->n_carry + i], 0);
    }
    if (tow__failed(t)) return;
    for (size_t i = 0; i < u->n_carry; i++) out[i] = y[i];
    for (size_t i = 0; i < u->n_ys; i++) out[u->n_carry + i] = tow_concatenate(k, rows + i * k, 0);
}

/* x [a b, ...] -> [a, b, ...]; the other way about with join. */
static tow_value split_axis(tow_value x, int64_t a, int64_t b)
{
    tow_type type = tow_value_type(x);
    int64_t dims[TOW_MAX_RANK + 1] = {a, b};
    if (type.rank == 0) return x; /* after an error */
    memcpy(dims + 2, type.dims + 1, (size_t)(type.rank - 1) * sizeof *dims);
    return tow_reshape(x, type.rank + 1, dims);
}

static tow_value join_axes(tow_value x)
{
    tow_type type = tow_value_type(x);
    type.dims[1] *= type.dims[0];
    return tow_reshape(x, type.rank - 1, type.dims + 1);
}

/* Reports unless so many equations may be written out. What an iteration takes besides its body is counted in. */
static bool may_unroll(tow_trace *t, const unrolled *u)
{
    const int64_t each = (int64_t)u->b->graph->n_equations + 2 * (int64_t)u->n_xs + (int64_t)u->n_ys,
                  most = TOW__MOST_UNROLLED / (each > 0 ? each : 1);
    if (u->k <= most || u->k == 1) return true;
    tow_trace_fail(
        t, TOW_INVALID_ARGUMENT,
        "scan: unroll writes out %lld iterations of %lld equations, more than %d equations in all; expected at "
        "most %lld iterations, or 0: a loop without it gives the same bits",
        (long long)u->k, (long long)each, (int)TOW__MOST_UNROLLED, (long long)(most > 0 ? most : 1));
    return false;
}

/* The loop over bodies of u.k iterations, and behind it those that are left over. in: carry, xs; out: carry, ys. */
static void bind_unrolled(tow_trace *t, unrolled u, int64_t length, const tow_value *in, tow_value *out)
{
    const int64_t turns = length / u.k, rest = length % u.k, from = u.reverse ? rest : 0, looped = turns * u.k;
    const size_t n_in = u.n_carry + u.n_xs;
    tow_value *xs = tow__trace_alloc(t, n_in + 1, sizeof *xs),
              *ys = tow__trace_alloc(t, u.n_carry + u.n_ys + 1, sizeof *ys);
    if (!xs || !ys) return;
    for (size_t i = 0; i < u.n_xs; i++)
        xs[i] = split_axis(tow_slice_axis(in[u.n_carry + i], 0, from, from + looped), turns, u.k);
    const tow_scan_options options = {.length = turns, .has_length = true, .reverse = u.reverse};
    u.first = from;
    u.looped = true;
    if (tow__failed(t)) return;
    tow_scan_function(t, several_iterations, &u, &options, u.n_carry, in, u.n_xs, xs, u.n_ys, out, out + u.n_carry);
    for (size_t i = 0; i < u.n_ys && !tow__failed(t); i++) out[u.n_carry + i] = join_axes(out[u.n_carry + i]);
    if (rest == 0 || tow__failed(t)) return;
    u.k = rest;
    u.first = u.reverse ? 0 : looped;
    u.looped = false;
    for (size_t i = 0; i < u.n_carry; i++) xs[i] = out[i];
    for (size_t i = 0; i < u.n_xs; i++)
        xs[u.n_carry + i] = tow_slice_axis(in[u.n_carry + i], 0, u.reverse ? 0 : looped, u.reverse ? rest : length);
    several_iterations(t, xs, ys, &u);
    for (size_t i = 0; i < u.n_carry; i++) out[i] = ys[i];
    for (size_t i = u.n_carry; i < u.n_carry + u.n_ys && !tow__failed(t); i++) {
        const tow_value parts[] = {u.reverse ? ys[i] : out[i], u.reverse ? out[i] : ys[i]};
        out[i] = tow_concatenate(2, parts, 0);
    }
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

void tow_scan_function(tow_trace *trace, tow_function function, void *user, const tow_scan_options *options,
                       size_t n_carry, const tow_value *carry, size_t n_xs, const tow_value *xs, size_t n_ys,
                       tow_value *carry_out, tow_value *ys)
{
    tow_value *explicit_in =
        tow__operands_of(trace, "scan", function != NULL, (tow__listed){n_carry, carry}, (tow__listed){n_xs, xs},
                         (tow__listed){n_carry, carry_out}, (tow__listed){n_ys, ys});
    tow__clear(n_carry, carry_out);
    tow__clear(n_ys, ys);
    if (!explicit_in) return;
    int64_t length = scan_length(trace, options, n_xs, explicit_in + n_carry);
    tow_type *types = tow__types_of(trace, n_carry + n_xs, explicit_in);
    if (length < 0 || !types) return;
    const int64_t unroll = options ? options->unroll : 0;
    if (unroll < 0) {
        tow_trace_fail(trace, TOW_INVALID_ARGUMENT, "scan: unroll is %lld, expected a positive number, or 0 for one",
                       (long long)unroll);
        return;
    }
    for (size_t i = n_carry; i < n_carry + n_xs; i++) {
        types[i].rank--;
        memmove(types[i].dims, types[i].dims + 1, (size_t)types[i].rank * sizeof types[i].dims[0]);
        types[i].dims[types[i].rank] = 0;
    }
    tow__traced_body b = {0};
    if (!tow__trace_body(trace, function, user, n_carry + n_xs, types, n_carry + n_ys, &b)) return;
    tow_value *operands = tow__join(trace, b.n_captures, b.captures, n_carry + n_xs, explicit_in);
    tow_value *results = tow__trace_alloc(trace, n_carry + n_ys, sizeof *results);
    if (operands && results && tow__carries_agree(trace, "scan", b.graph, n_carry, explicit_in)) {
        const bool reverse = options && options->reverse;
        const unrolled u = {.b = &b,
                            .k = unroll < length ? unroll : length,
                            .reverse = reverse,
                            .n_carry = n_carry,
                            .n_xs = n_xs,
                            .n_ys = n_ys};
        if (!may_unroll(trace, &u)) {
            tow_graph_release(b.graph);
            return;
        }
        if (u.k > 1)
            bind_unrolled(trace, u, length, explicit_in, results);
        else
            bind_scan(trace, &b, length, reverse, n_carry, operands, n_carry + n_ys, results);
        if (n_carry) memcpy(carry_out, results, n_carry * sizeof *results);
        if (n_ys) memcpy(ys, results + n_carry, n_ys * sizeof *results);
    }
    tow_graph_release(b.graph);
}

/* ---- vmap -------------------------------------------------------------------------------------------------------- */

/* Inputs with their batch axes, and the types of their rows. */
typedef struct mapped_inputs {
    tow__mapped *x;
    tow_type *rows;
    int64_t size; /* of the batch axes; -1: no input has one */
    size_t sized; /* the input that says so */
} mapped_inputs;

static bool map_input(tow_trace *t, const tow_vmap_options *options, size_t i, tow_value value, mapped_inputs *in)
{
    tow_type type = tow_value_type(value);
    int axis = options && options->in_axes ? options->in_axes[i] : 0, at;
    if (!tow__mapped_axis(axis, type.rank, &at)) {
        tow_trace_fail(
            t, TOW_INVALID_ARGUMENT,
            "vmap: input %zu is %s, which has no axis %d to map over; give one in [%d, %d), or TOW_NOT_MAPPED", i,
            tow__type_name(type).text, axis, -type.rank, type.rank);
        return false;
    }
    in->x[i] = (tow__mapped){.value = value, .axis = at};
    in->rows[i] = type;
    if (at == TOW__UNBATCHED) return true;
    int64_t size = type.dims[at];
    if (in->size >= 0 && size != in->size) {
        bool given = in->sized == SIZE_MAX;
        tow_trace_fail(t, TOW_SHAPE_MISMATCH,
                       "vmap: input %zu is %s, so axis %d has %lld rows, but %s %lld; mapped axes have one size: make "
                       "them equal, or give TOW_NOT_MAPPED for an input that all rows share",
                       i, tow__type_name(type).text, at, (long long)size,
                       given ? "the size in the options is" : "an earlier input has", (long long)in->size);
        return false;
    }
    if (in->size < 0) in->sized = i;
    in->size = size;
    in->rows[i] = tow__without_axes(type, &(tow__ints){.n = 1, .v = {at}});
    return true;
}

/* False on a sticky error. */
static bool map_inputs(tow_trace *t, const tow_vmap_options *options, size_t n, const tow_value *values,
                       mapped_inputs *in)
{
    const bool given = options && (options->has_size || (options->size != 0 && options->size != -1));
    *in = (mapped_inputs){.x = tow__trace_alloc(t, n, sizeof *in->x),
                          .rows = tow__trace_alloc(t, n, sizeof *in->rows),
                          .size = given ? options->size : -1,
                          .sized = SIZE_MAX};
    if (!in->x || !in->rows) return false;
    if (given && options->size < 0) {
        tow_trace_fail(t, TOW_INVALID_ARGUMENT, "vmap: the size is %lld, expected 0 or more", (long long)options->size);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (!map_input(t, options, i, values[i], in)) return false;
    if (in->size < 0)
        tow_trace_fail(t, TOW_INVALID_ARGUMENT,
                       "vmap: no input is mapped, so the number of rows is unknown; map one, or give a size");
    return in->size >= 0;
}

void tow_vmap_function(tow_trace *trace, tow_function function, void *user, const tow_vmap_options *options,
                       size_t n_inputs, const tow_value *inputs, size_t n_outputs, tow_value *outputs)
{
    const tow_value *operands = tow__operands_of(trace, "vmap", function != NULL, (tow__listed){n_inputs, inputs},
                                                 (tow__listed){0}, (tow__listed){n_outputs, outputs}, (tow__listed){0});
    mapped_inputs in;
    tow__traced_body b = {0};
    tow__clear(n_outputs, outputs);
    if (!operands || !map_inputs(trace, options, n_inputs, operands, &in)) return;
    if (!tow__trace_body(trace, function, user, n_inputs, in.rows, n_outputs, &b)) return;
    tow__mapped *all = tow__trace_alloc(trace, b.graph->n_inputs, sizeof *all);
    for (size_t i = 0; all && i < b.n_captures; i++)
        all[i] = (tow__mapped){.value = b.captures[i], .axis = TOW__UNBATCHED};
    if (all && n_inputs) memcpy(all + b.n_captures, in.x, n_inputs * sizeof *in.x);
    if (all) tow__vmap_inline(trace, b.graph, in.size, false, all, options ? options->out_axes : NULL, outputs);
    tow_graph_release(b.graph);
}
