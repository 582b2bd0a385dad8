/* The public transformations, composed of the passes: jvp, then partial evaluation with the primals known, then
 * transpose. */
#include "src/autodiff/limit/limit.h"
#include "src/autodiff/linear.h"
#include "src/autodiff/regions/custom.h"
#include "src/autodiff/transformations/differentiate.h"
#include "src/base/arithmetic.h"
#include "tow/ops.h"

tow_status tow__choose_inputs(const tow_graph *g, const char *caller, size_t n_wrt, const size_t *wrt, bool *chosen)
{
    if (n_wrt > 0 && !wrt)
        return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                         "%s: expected a list of %zu inputs to differentiate, found NULL; 0 inputs and NULL mean "
                         "all float inputs",
                         caller, n_wrt);
    for (size_t i = 0; i < n_wrt; i++) {
        if (wrt[i] >= g->n_inputs)
            return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                             "%s: asked to differentiate input %zu of a graph with %u inputs (0 to %u)", caller, wrt[i],
                             g->n_inputs, g->n_inputs ? g->n_inputs - 1 : 0);
        if (i > 0 && wrt[i] <= wrt[i - 1])
            return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                             "%s: the inputs to differentiate must increase, found %zu after %zu", caller, wrt[i],
                             wrt[i - 1]);
        tow_type type = g->vars[g->inputs[wrt[i]]].type;
        if (!tow_dtype_is_float(type.dtype)) {
            const char *name = g->input_names[wrt[i]];
            return tow__fail(
                g->ctx, TOW_TYPE_MISMATCH,
                "%s: input %zu%s%s is %s; only inputs of f32, f64, bf16 and f16 have derivatives, leave it out", caller,
                wrt[i], name ? " " : "", name ? name : "", tow__type_name(type).text);
        }
        chosen[wrt[i]] = true;
    }
    for (size_t i = 0; i < g->n_inputs && n_wrt == 0; i++)
        chosen[i] = tow_dtype_is_float(g->vars[g->inputs[i]].type.dtype);
    return TOW_OK;
}

/* The results themselves do not depend on tangents, unless a rule of custom_jvp makes its result of them. */
static tow_status check_results_known(const tow_graph *g, const char *caller, const tow__partial *split)
{
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (split->out_unknown[i])
            return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                             "%s: output %u depends on a tangent: the rule of a custom_jvp computes its result from "
                             "tangents; compute results from primals alone",
                             caller, i);
    return TOW_OK;
}

/* Dead equations go first, as they do from the body of a region: a dead reader of the statistics of a composite would
 * rule its fused pair out, and the bits of a gradient would depend on what nobody reads. */
tow_status tow__differentiate(const tow_graph *g, const char *caller, size_t n_wrt, const size_t *wrt,
                              tow__manner manner, tow__parts *parts)
{
    *parts = (tow__parts){.g = g};
    tow_status status = TOW_OK;
    tow__arena_init(&parts->arena, g->ctx);
    size_t n_in = g->n_inputs, n_out = g->n_outputs, n = n_in;
    parts->chosen = tow__arena_alloc(&parts->arena, n_in, sizeof(bool));
    parts->nonzero = tow__arena_alloc(&parts->arena, n_out, sizeof(bool));
    bool *unknown = tow__arena_alloc(&parts->arena, 2 * n_in, sizeof(bool));
    bool *available = tow__arena_alloc(&parts->arena, 2 * n_in, sizeof(bool));
    tow_graph *live = NULL, *jvp = NULL;
    TRY(parts->chosen && parts->nonzero && unknown && available ? TOW_OK : TOW_OUT_OF_MEMORY);
    TRY(tow__choose_inputs(g, caller, n_wrt, wrt, parts->chosen));
    TRY(tow_graph_dce(g, &live));
    TRY(tow__jvp_graph(live, NULL, true, parts->chosen, parts->nonzero, &jvp));
    for (size_t i = 0; i < n_in; i++) available[i] = true;
    for (; n < jvp->n_inputs; n++) unknown[n] = available[n] = true;
    TRY(tow__partial_eval(jvp, unknown, available, manner, NULL, NULL, &parts->split));
    TRY(check_results_known(g, caller, &parts->split));
    TRY(tow__thin(&parts->split, jvp->n_inputs, unknown, manner.runs_once));
    for (size_t i = 0, j = n_out; i < n_out; i++) /* a tangent that does not depend on the inputs' tangents is zero */
        if (parts->nonzero[i]) parts->nonzero[i] = parts->split.out_unknown[j++];
    for (size_t i = 0; i < n_in; i++) parts->n_used += parts->split.input_used[i];
done:
    tow_graph_release(live);
    tow_graph_release(jvp);
    if (status != TOW_OK) tow__parts_free(parts);
    return status;
}

void tow__parts_free(tow__parts *parts)
{
    tow__partial_free(&parts->split);
    tow__arena_free(&parts->arena);
}

/* Inputs of the graph as inputs of a new trace. */
static void add_inputs(tow_trace *t, const tow_graph *g, tow_value *x)
{
    for (uint32_t i = 0; i < g->n_inputs; i++) x[i] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
}

/* Operands of the unknown graph are used primals, used tangents, residuals: fills `in` and marks the tangents in
 * `linear`. primals: [n_used] in order; dx: per graph input, or NULL. */
static void unknown_operands(const tow__parts *parts, const tow_value *primals, const tow_value *dx,
                             const tow_value *residuals, tow_value *in, bool *linear)
{
    const tow_graph *g = parts->g;
    size_t n = 0, tangent = g->n_inputs;
    for (; n < parts->n_used; n++) in[n] = primals[n];
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        if (!parts->chosen[i] || !parts->split.input_used[tangent++]) continue;
        linear[n] = true;
        in[n++] = dx ? dx[i] : (tow_value){0};
    }
    for (uint32_t i = 0; i < parts->split.n_residuals; i++) in[n++] = residuals[i];
}

/* Records the backward pass: ct per graph output (null: zero) to gradients per graph input (null where not chosen). */
static void backward(tow_trace *t, const tow__parts *parts, const tow_value *primals, const tow_value *residuals,
                     const tow_value *ct, tow_value *gradients)
{
    const tow_graph *g = parts->g, *u = parts->split.unknown;
    tow_value *in = tow__trace_alloc(t, u->n_inputs, sizeof *in), *dx = tow__trace_alloc(t, u->n_inputs, sizeof *dx);
    tow_value *u_ct = tow__trace_alloc(t, u->n_outputs, sizeof *u_ct);
    bool *linear = tow__trace_alloc(t, u->n_inputs, sizeof *linear);
    if (!in || !dx || !u_ct || !linear) return;
    unknown_operands(parts, primals, NULL, residuals, in, linear);
    size_t n = 0, tangent = g->n_inputs;
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (parts->nonzero[i]) u_ct[n++] = ct[i];
    tow__transpose_inline(t, u, linear, in, u_ct, dx);
    n = parts->n_used;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        if (!parts->chosen[i]) continue;
        gradients[i] = parts->split.input_used[tangent++] ? dx[n++] : (tow_value){0};
        if (tow_is_null(gradients[i])) gradients[i] = tow_full(t, g->vars[g->inputs[i]].type, 0);
    }
}

static void copy_used(const tow__parts *parts, const tow_value *x, tow_value *primals)
{
    size_t n = 0;
    for (uint32_t i = 0; i < parts->g->n_inputs; i++)
        if (parts->split.input_used[i]) primals[n++] = x[i];
}

/* ---- jvp --------------------------------------------------------------------------------------------------------- */

tow_status tow_jvp(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_graph **result)
{
    if (result) *result = NULL;
    if (!graph || !result) return tow__missing(tow__context_of(graph), "jvp", "a graph and a place for the result");
    TOW__ARITHMETIC(false);
    tow_status status = TOW_OK;
    tow__arena arena;
    tow_graph *jvp = NULL;
    tow__arena_init(&arena, graph->ctx);
    bool *in = tow__arena_alloc(&arena, graph->n_inputs, sizeof *in),
         *out = tow__arena_alloc(&arena, graph->n_outputs, sizeof *out);
    TRY(in && out ? TOW_OK : TOW_OUT_OF_MEMORY);
    TRY(tow__choose_inputs(graph, "jvp", n_wrt, wrt, in));
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        out[i] = tow_dtype_is_float(graph->vars[graph->outputs[i]].type.dtype);
    TRY(tow__jvp_graph(graph, NULL, false, in, out, &jvp));
    TRY(tow_graph_dce(jvp, result));
done:
    tow_graph_release(jvp);
    tow__arena_free(&arena);
    return status;
}

/* ---- linearize, vjp ---------------------------------------------------------------------------------------------- */

/* x -> (y, used primals, residuals) */
static tow_status forward_graph(const tow__parts *parts, tow_graph **result)
{
    const tow_graph *g = parts->g, *k = parts->split.known;
    tow_trace *t = tow__trace_begin(g->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    size_t n_res = parts->split.n_residuals, n = g->n_outputs;
    tow_value *x = tow__trace_alloc(t, g->n_inputs, sizeof *x), *y = tow__trace_alloc(t, k->n_outputs, sizeof *y);
    tow_value *out = tow__trace_alloc(t, n + parts->n_used + n_res, sizeof *out);
    if (!x || !y || !out) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    add_inputs(t, g, x);
    tow__inline(t, k, x, y);
    memcpy(out, y, n * sizeof *y);
    copy_used(parts, x, out + n);
    memcpy(out + n + parts->n_used, y + k->n_outputs - n_res, n_res * sizeof *y);
    return tow__trace_end(t, n + parts->n_used + n_res, out, true, result);
}

/* The inputs of the second graph: used primals, then residuals. */
static tow_value *residual_inputs(tow_trace *t, const tow__parts *parts)
{
    const tow_graph *g = parts->g, *k = parts->split.known;
    size_t n_res = parts->split.n_residuals, n = 0;
    tow_value *in = tow__trace_alloc(t, parts->n_used + n_res, sizeof *in);
    if (!in) return NULL;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (parts->split.input_used[i]) in[n++] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    for (size_t i = 0; i < n_res; i++)
        in[n++] = tow__input(t, k->vars[k->outputs[k->n_outputs - n_res + i]].type, NULL);
    return in;
}

/* The unknown graph is linear in its tangents, unless a user's rule is not. */
static tow_status check_linear(const tow__parts *parts)
{
    const tow_graph *g = parts->g, *u = parts->split.unknown;
    bool *linear = tow__alloc(g->ctx, u->n_inputs, sizeof *linear);
    size_t n = parts->n_used, tangent = g->n_inputs;
    if (!linear) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (parts->chosen[i] && parts->split.input_used[tangent++]) linear[n++] = true;
    tow_status status = tow__check_linear(u, "linearize", linear);
    tow__free(g->ctx, linear, u->n_inputs, sizeof *linear);
    return status;
}

/* (residuals, dx) -> dy */
static tow_status linear_graph(const tow__parts *parts, tow_graph **result)
{
    const tow_graph *g = parts->g, *u = parts->split.unknown;
    if (tow_graph_primitive_count(u, tow__custom_tangents_p.name) > 0)
        return tow__fail(
            g->ctx, TOW_UNSUPPORTED,
            "linearize meets a custom_vjp, which has a rule for reverse mode only; use grad, vjp or jacrev, or "
            "give it a rule with tow_custom_jvp_function");
    tow_status status = check_linear(parts);
    if (status != TOW_OK) return status;
    tow_trace *t = tow__trace_begin(g->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *residuals = residual_inputs(t, parts), *dx = tow__trace_alloc(t, g->n_inputs, sizeof *dx);
    tow_value *in = tow__trace_alloc(t, u->n_inputs, sizeof *in), *dy = tow__trace_alloc(t, u->n_outputs, sizeof *dy);
    tow_value *out = tow__trace_alloc(t, g->n_outputs, sizeof *out);
    bool *linear = tow__trace_alloc(t, u->n_inputs, sizeof *linear);
    if (!residuals || !dx || !in || !dy || !out || !linear) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (parts->chosen[i]) dx[i] = tow__input(t, g->vars[g->inputs[i]].type, NULL);
    unknown_operands(parts, residuals, dx, residuals + parts->n_used, in, linear);
    tow__inline(t, u, in, dy);
    size_t n = 0, next = 0;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        tow_type type = g->vars[g->outputs[i]].type;
        if (tow_dtype_is_float(type.dtype)) out[n++] = parts->nonzero[i] ? dy[next++] : tow_full(t, type, 0);
    }
    return tow__trace_end(t, n, out, true, result);
}

/* (residuals, ct of float outputs) -> ct of the chosen inputs */
tow_status tow__backward_graph(const tow__parts *parts, tow_graph **result)
{
    const tow_graph *g = parts->g;
    tow_trace *t = tow__trace_begin(g->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *residuals = residual_inputs(t, parts), *ct = tow__trace_alloc(t, g->n_outputs, sizeof *ct);
    tow_value *gradients = tow__trace_alloc(t, g->n_inputs, sizeof *gradients);
    if (!residuals || !ct || !gradients) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        tow_type type = g->vars[g->outputs[i]].type;
        if (tow_dtype_is_float(type.dtype)) ct[i] = tow__input(t, type, NULL);
    }
    backward(t, parts, residuals, residuals + parts->n_used, ct, gradients);
    size_t n = 0;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (parts->chosen[i]) gradients[n++] = gradients[i];
    return tow__trace_end(t, n, gradients, true, result);
}

/* A pair of graphs: both or none. */
static tow_status pair(const tow_graph *graph, const char *caller, size_t n_wrt, const size_t *wrt, tow_graph **first,
                       tow_graph **second, tow_status (*make_second)(const tow__parts *, tow_graph **))
{
    if (first) *first = NULL;
    if (second) *second = NULL;
    if (!graph || !first || !second)
        return tow__missing(tow__context_of(graph), caller, "a graph and places for two results");
    TOW__ARITHMETIC(false);
    tow__parts parts;
    const tow__manner manner = {.runs_once = make_second == tow__backward_graph};
    tow_status status = tow__differentiate(graph, caller, n_wrt, wrt, manner, &parts);
    if (status != TOW_OK) return status;
    TRY(forward_graph(&parts, first));
    TRY(make_second(&parts, second));
done:
    tow__parts_free(&parts);
    if (status != TOW_OK) {
        tow_graph_release(*first);
        *first = NULL;
    }
    return status;
}

tow_status tow_linearize(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_graph **forward,
                         tow_graph **linear)
{
    return pair(graph, "linearize", n_wrt, wrt, forward, linear, linear_graph);
}

tow_status tow_vjp(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_graph **forward,
                   tow_graph **backward_result)
{
    return pair(graph, "vjp", n_wrt, wrt, forward, backward_result, tow__backward_graph);
}

/* ---- grad -------------------------------------------------------------------------------------------------------- */

static tow_status check_loss(const tow_graph *g, const char *caller, bool has_aux)
{
    if (g->n_outputs == 0)
        return tow__fail(g->ctx, TOW_INVALID_ARGUMENT, "%s: the graph has no output to differentiate", caller);
    if (!has_aux && g->n_outputs > 1)
        return tow__fail(
            g->ctx, TOW_INVALID_ARGUMENT,
            "%s: the graph has %u outputs; output 0 is the loss, the others are handed through with has_aux", caller,
            g->n_outputs);
    tow_type type = g->vars[g->outputs[0]].type;
    if (type.rank != 0 || !tow_dtype_is_float(type.dtype))
        return tow__fail(g->ctx, TOW_SHAPE_MISMATCH,
                         "%s: output 0 is %s, expected a float scalar (reduce it, or use vjp)", caller,
                         tow__type_name(type).text);
    return TOW_OK;
}

tow_status tow__check_any_float(const tow_graph *g, const char *caller)
{
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (tow_dtype_is_float(g->vars[g->inputs[i]].type.dtype)) return TOW_OK;
    return tow__fail(g->ctx, TOW_TYPE_MISMATCH, "%s: none of the %u inputs is a float; a gradient needs one that is",
                     caller, g->n_inputs);
}

static tow_status gradient(const tow_graph *g, const char *caller, size_t n_wrt, const size_t *wrt, bool value,
                           bool has_aux, tow_graph **result)
{
    if (result) *result = NULL;
    if (!g || !result) return tow__missing(tow__context_of(g), caller, "a graph and a place for the result");
    TOW__ARITHMETIC(false);
    tow_status status = check_loss(g, caller, has_aux);
    if (status != TOW_OK) return status;
    tow__parts parts;
    if ((status = tow__check_any_float(g, caller)) != TOW_OK) return status;
    const tow__manner manner = {.runs_once = true};
    if ((status = tow__differentiate(g, caller, n_wrt, wrt, manner, &parts)) != TOW_OK) return status;
    const tow_graph *k = parts.split.known;
    tow_graph *whole = NULL;
    tow_trace *t = tow__trace_begin(g->ctx);
    TRY(t ? TOW_OK : TOW_OUT_OF_MEMORY);
    size_t n_in = g->n_inputs, n_out = g->n_outputs, n = 0;
    tow_value *x = tow__trace_alloc(t, 3 * n_in, sizeof *x), *y = tow__trace_alloc(t, k->n_outputs, sizeof *y);
    tow_value *ct = tow__trace_alloc(t, n_out, sizeof *ct), *out = tow__trace_alloc(t, n_in + n_out, sizeof *out);
    if (!x || !y || !ct || !out) {
        tow__trace_abandon(t);
        TRY(TOW_OUT_OF_MEMORY);
    }
    tow_value *primals = x + n_in, *gradients = x + 2 * n_in;
    add_inputs(t, g, x);
    tow__inline(t, k, x, y);
    if (!tow__failed(t)) tow__mark_forward(t);
    tow__set_phase(t, TOW__BACKWARD);
    copy_used(&parts, x, primals);
    ct[0] = tow_scalar(t, g->vars[g->outputs[0]].type.dtype, 1);
    backward(t, &parts, primals, y + k->n_outputs - parts.split.n_residuals, ct, gradients);
    for (size_t i = value ? 0 : 1; i < n_out && (value || has_aux); i++)
        if (value) out[n++] = y[i];
    for (size_t i = 0; i < n_in; i++)
        if (parts.chosen[i]) out[n++] = gradients[i];
    for (size_t i = 1; i < n_out && !value && has_aux; i++) out[n++] = y[i];
    TRY(tow__trace_end(t, n, out, false, &whole));
    TRY(tow_graph_dce(whole, result));
    TRY(tow__verify(*result, caller));
    TRY(tow__set_origin(*result, g, n_wrt, wrt, value, has_aux));
done:
    tow_graph_release(whole);
    tow__parts_free(&parts);
    if (status != TOW_OK) {
        tow_graph_release(*result);
        *result = NULL;
    }
    return status;
}

tow_status tow_grad(const tow_graph *graph, size_t n_wrt, const size_t *wrt, bool has_aux, tow_graph **result)
{
    return gradient(graph, "grad", n_wrt, wrt, false, has_aux, result);
}

tow_status tow_value_and_grad(const tow_graph *graph, size_t n_wrt, const size_t *wrt, bool has_aux, tow_graph **result)
{
    return gradient(graph, "value_and_grad", n_wrt, wrt, true, has_aux, result);
}

tow_status tow_remat_whole(const tow_graph *graph, const tow_policy *policy, tow_graph **result)
{
    if (result) *result = NULL;
    if (!graph || !result) return tow__missing(tow__context_of(graph), __func__, "a graph and a place for the result");
    tow_value *x, *y;
    tow_trace *t = tow__trace_begin_over(graph, &x, &y);
    if (!t) return TOW_OUT_OF_MEMORY;
    add_inputs(t, graph, x);
    tow_remat_graph(t, graph, policy, x, y);
    return tow__trace_end(t, graph->n_outputs, y, false, result);
}
