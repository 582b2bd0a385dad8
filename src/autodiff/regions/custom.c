/* custom_jvp, custom_vjp: a function and its derivative as nested graphs.
 *
 *   custom_jvp   y, dy = rule(x, dx) in both modes; reverse mode transposes what the rule made of dx
 *   custom_vjp   reverse mode only: y, residuals = forward(x), then
 *                    dy = custom_tangents(residuals, dx)      linear in dx, cannot be computed
 *                whose transpose is ct of x = backward(residuals, ct of y)
 *
 * The rule and the forward function are recorded among the equations around the call, so their values are residuals
 * like any others, and policies and names see them one by one. A call that is not differentiated is one equation. */
#include "src/autodiff/regions/custom.h"

#include <stdarg.h>
#include <stdio.h>

#include "src/autodiff/autodiff.h"
#include "src/ops/rules.h"

/* ---- types ------------------------------------------------------------------------------------------------------- */

/* A list of types that a nested graph must have, filled front to back. */
typedef struct wanted {
    tow_type *types;
    size_t n;
} wanted;

static void want(wanted *w, tow_type type) { w->types[w->n++] = type; }

static void want_all(wanted *w, size_t n, const tow_type *types)
{
    for (size_t i = 0; i < n; i++) want(w, types[i]);
}

/* Results of g from number `first` on. */
static void want_results(wanted *w, const tow_graph *g, size_t first)
{
    for (size_t i = first; i < g->n_outputs; i++) want(w, tow_graph_output_type(g, i));
}

static void want_tangents(wanted *w, size_t n, const tow_type *types)
{
    for (size_t i = 0; i < n; i++)
        if (tow__has_tangent(types[i])) want(w, types[i]);
}

/* The inputs, or the results, of the nested graph `what` must be the wanted ones. */
static tow_status compare(const tow__typing *ty, const char *what, const tow_graph *g, bool results, const wanted *w)
{
    const char *kind = results ? "results" : "inputs";
    size_t n = results ? g->n_outputs : g->n_inputs;
    if (n != w->n)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "the %s must have %zu %s, found %zu", what, w->n, kind, n);
    for (size_t i = 0; i < n; i++) {
        tow_type found = results ? tow_graph_output_type(g, i) : tow_graph_input_type(g, i);
        if (!tow_type_equal(found, w->types[i]))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "%s %zu of the %s must be %s, found %s",
                                  results ? "result" : "input", i, what, tow__type_name(w->types[i]).text,
                                  tow__type_name(found).text);
    }
    return TOW_OK;
}

/* The body gives the types of the results; the groups of operands must fit. */
static tow_status body_types(const tow__typing *ty, const tow_graph *body, int64_t captured, int64_t fixed, wanted *w)
{
    if (captured < 0 || fixed < 0 || (uint64_t)captured > ty->n_in || (uint64_t)fixed > ty->n_in - (uint64_t)captured)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "%lld captured values and %lld fixed inputs are not among %zu operands",
                              (long long)captured, (long long)fixed, ty->n_in);
    want_all(w, ty->n_in, ty->in);
    tow_status status = tow__require_count(ty, ty->n_in, body->n_outputs);
    if (status == TOW_OK) status = compare(ty, "body", body, false, w);
    for (size_t i = 0; status == TOW_OK && i < ty->n_out; i++) ty->out[i] = tow_graph_output_type(body, i);
    return status;
}

static tow_status custom_jvp_type(const tow__typing *ty)
{
    const tow__custom_jvp_params *p = ty->params;
    size_t first = (size_t)(p->captured + p->fixed);
    wanted w = {.types = tow__alloc(ty->ctx, 2 * (ty->n_in + ty->n_out), sizeof *w.types)};
    if (!w.types) return TOW_OUT_OF_MEMORY;
    tow_status status = TOW_OK;
    TRY(body_types(ty, p->body, p->captured, p->fixed, &w));
    want_tangents(&w, ty->n_in - first, ty->in + first);
    TRY(compare(ty, "rule", p->rule, false, &w));
    w.n = 0;
    want_all(&w, ty->n_out, ty->out);
    want_tangents(&w, ty->n_out, ty->out);
    TRY(compare(ty, "rule", p->rule, true, &w));
done:
    tow__free(ty->ctx, w.types, 2 * (ty->n_in + ty->n_out), sizeof *w.types);
    return status;
}

/* forward: as many results as the body, then residuals, which backward gets. */
static tow_status custom_vjp_type(const tow__typing *ty)
{
    const tow__custom_vjp_params *p = ty->params;
    size_t first = (size_t)(p->captured + p->fixed), n_results = p->forward->n_outputs,
           room = ty->n_in + ty->n_out + n_results;
    wanted w = {.types = tow__alloc(ty->ctx, room, sizeof *w.types)};
    if (!w.types) return TOW_OUT_OF_MEMORY;
    tow_status status = TOW_OK;
    TRY(body_types(ty, p->body, p->captured, p->fixed, &w));
    TRY(compare(ty, "forward function", p->forward, false, &w));
    w.n = 0;
    want_all(&w, ty->n_out, ty->out);
    want_results(&w, p->forward, ty->n_out);
    TRY(compare(ty, "forward function", p->forward, true, &w));
    w.n = 0;
    want_all(&w, (size_t)p->captured, ty->in);
    want_results(&w, p->forward, ty->n_out);
    want_tangents(&w, ty->n_out, ty->out);
    TRY(compare(ty, "backward function", p->backward, false, &w));
    w.n = 0;
    want_tangents(&w, ty->n_in - first, ty->in + first);
    TRY(compare(ty, "backward function", p->backward, true, &w));
done:
    tow__free(ty->ctx, w.types, room, sizeof *w.types);
    return status;
}

static tow_status custom_tangents_type(const tow__typing *ty)
{
    const tow__custom_tangents_params *p = ty->params;
    const tow_graph *b = p->backward;
    size_t n_res = (size_t)p->residuals;
    if (p->residuals < 0 || n_res > b->n_inputs)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "%lld residuals are not among %u inputs",
                              (long long)p->residuals, b->n_inputs);
    tow_status status = tow__require_count(ty, n_res + b->n_outputs, b->n_inputs - n_res);
    if (status != TOW_OK) return status;
    for (size_t i = 0; i < ty->n_in; i++) {
        tow_type type = i < n_res ? tow_graph_input_type(b, i) : tow_graph_output_type(b, i - n_res);
        if (!tow_type_equal(type, ty->in[i]))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "operand %zu must be %s, found %s", i,
                                  tow__type_name(type).text, tow__type_name(ty->in[i]).text);
    }
    for (size_t i = 0; i < ty->n_out; i++) ty->out[i] = tow_graph_input_type(b, n_res + i);
    return TOW_OK;
}

/* ---- derivatives ------------------------------------------------------------------------------------------------- */

/* Fails with the line of the call in front. */
__attribute__((format(printf, 3, 4))) static void fail(tow_trace *t, const tow__equation *e, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    if (vsnprintf(text, sizeof text, format, args) < 0) text[0] = '\0';
    va_end(args);
    tow_trace_fail(t, TOW_UNSUPPORTED, "%s%s%s", e->source.here ? e->source.here : "", e->source.here ? ": " : "",
                   text);
}

static const char *shown(const char *name) { return name ? name : "(without a name)"; }

static void fail_forward(tow_trace *t, const tow__equation *e, const char *name)
{
    fail(t, e,
         "forward mode (jvp, linearize, jacfwd) meets custom_vjp %s, which has a rule for reverse mode only; use grad, "
         "vjp "
         "or jacrev, or give it a rule with tow_custom_jvp_function",
         shown(name));
}

/* False, with the error, if a captured value has a tangent: the rule does not know it. */
static bool captures_are_constant(const tow__jvp *r, const char *name, int64_t captured)
{
    for (int64_t i = 0; i < captured; i++) {
        if (tow_is_null(r->dx[i])) continue;
        fail(r->t, r->e,
             "%s %s uses an outer value (%s) that is differentiated, of which its rule knows nothing; pass it as an "
             "input, "
             "or use tow_stop_gradient of it",
             r->e->primitive->name, shown(name), tow__type_name(tow_value_type(r->x[i])).text);
        return false;
    }
    return true;
}

static bool any_tangent(const tow__jvp *r, size_t first)
{
    for (size_t i = first; i < r->e->n_in; i++)
        if (!tow_is_null(r->dx[i])) return true;
    return false;
}

/* The first results, which are those of the body, in y; tangents of those that are floats in dy. */
static void take_tangents(tow__jvp *r, const tow_graph *body, const tow_value *results)
{
    const tow_value *next = results + r->e->n_out;
    for (uint32_t i = 0; i < r->e->n_out; i++) {
        r->y[i] = results[i];
        if (tow__has_tangent(tow_graph_output_type(body, i))) r->dy[i] = *next++;
    }
}

/* y, dy = rule(x, dx) */
static void custom_jvp_jvp(tow__jvp *r)
{
    const tow__custom_jvp_params *p = r->e->params;
    size_t first = (size_t)(p->captured + p->fixed), n = r->e->n_in;
    tow_graph *rule;
    if (!captures_are_constant(r, p->name, p->captured)) return;
    if (!any_tangent(r, first)) {
        tow__rebind(r->t, r->e, r->x, r->y);
        return;
    }
    tow_value *in = tow__trace_alloc(r->t, p->rule->n_inputs, sizeof *in),
              *out = tow__trace_alloc(r->t, p->rule->n_outputs, sizeof *out);
    if (!in || !out) return;
    memcpy(in, r->x, n * sizeof *in);
    for (size_t i = first; i < r->e->n_in; i++)
        if (tow__has_tangent(tow_graph_input_type(p->body, i))) in[n++] = r->dx[i];
    if (tow__tie(r->e, p->rule, &rule) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    tow__inline_zeros(r->t, rule, in, out);
    for (uint32_t i = 0; i < r->e->n_out; i++)
        if (tow_is_null(out[i])) out[i] = tow__zeros(r->t, tow_graph_output_type(rule, i));
    take_tangents(r, p->body, out);
    tow_graph_release(rule);
}

/* The backward function with only those results that are wanted, and without the residuals that these do not need.
 * kept: [residuals] those that stay. */
static tow_status reduce_backward(const tow_graph *backward, size_t n_residuals, const bool *wanted_outputs, bool *kept,
                                  tow_graph **result)
{
    tow_graph *live = NULL;
    tow_value *in, *out;
    tow_status status = tow__dce(backward, wanted_outputs, false, kept, &live);
    if (status != TOW_OK) return status;
    tow_trace *t = tow__trace_begin_over(live, &in, &out);
    TRY(t ? TOW_OK : TOW_OUT_OF_MEMORY);
    for (size_t i = 0; i < live->n_inputs; i++)
        if (i >= n_residuals || kept[i]) in[i] = tow__input(t, live->vars[live->inputs[i]].type, NULL);
    tow__inline(t, live, in, out);
    status = tow__trace_end(t, live->n_outputs, out, false, result);
done:
    tow_graph_release(live);
    return status;
}

/* dy = custom_tangents(residuals, dx): residuals are captured values, then those of the forward function. */
static void record_tangents(tow__jvp *r, const tow_graph *backward, const tow_value *residuals)
{
    const tow__custom_vjp_params *p = r->e->params;
    size_t n_res = (size_t)p->captured + p->forward->n_outputs - r->e->n_out, n_ct = backward->n_inputs - n_res, n = 0;
    bool *wanted_outputs = tow__trace_alloc(r->t, backward->n_outputs, sizeof *wanted_outputs);
    bool *kept = tow__trace_alloc(r->t, backward->n_inputs, sizeof *kept);
    tow_value *in = tow__trace_alloc(r->t, n_res + backward->n_outputs, sizeof *in);
    tow_value *results = tow__trace_alloc(r->t, r->e->n_out + n_ct, sizeof *results);
    if (!wanted_outputs || !kept || !in || !results) return;
    for (size_t i = (size_t)(p->captured + p->fixed), j = 0; i < r->e->n_in; i++)
        if (tow__has_tangent(tow_graph_input_type(p->body, i))) wanted_outputs[j++] = !tow_is_null(r->dx[i]);
    tow__custom_tangents_params params = {.name = p->name};
    if (reduce_backward(backward, n_res, wanted_outputs, kept, &params.backward) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    for (size_t i = 0; i < n_res; i++)
        if (kept[i]) in[n++] = i < (size_t)p->captured ? r->x[i] : residuals[i - (size_t)p->captured];
    params.residuals = (int64_t)n;
    for (size_t i = (size_t)(p->captured + p->fixed); i < r->e->n_in; i++)
        if (!tow_is_null(r->dx[i])) in[n++] = r->dx[i];
    memcpy(results, r->y, r->e->n_out * sizeof *results);
    tow__bind(r->t, &tow__custom_tangents_p, &params, n, in, n_ct, results + r->e->n_out);
    tow_graph_release(params.backward);
    take_tangents(r, p->body, results);
}

/* y, residuals = forward(x) */
static void custom_vjp_jvp(tow__jvp *r)
{
    const tow__custom_vjp_params *p = r->e->params;
    if (!captures_are_constant(r, p->name, p->captured)) return;
    if (!any_tangent(r, (size_t)(p->captured + p->fixed))) {
        tow__rebind(r->t, r->e, r->x, r->y);
        return;
    }
    if (!r->reverse) {
        fail_forward(r->t, r->e, p->name);
        return;
    }
    tow_value *out = tow__trace_alloc(r->t, p->forward->n_outputs, sizeof *out);
    tow_graph *forward = NULL, *backward = NULL;
    if (!out) return;
    if (tow__tie(r->e, p->forward, &forward) == TOW_OK && tow__tie(r->e, p->backward, &backward) == TOW_OK) {
        tow__inline(r->t, forward, r->x, out);
        memcpy(r->y, out, r->e->n_out * sizeof *out);
        record_tangents(r, backward, out + r->e->n_out);
    } else {
        tow__adopt_error(r->t);
    }
    tow_graph_release(forward);
    tow_graph_release(backward);
}

/* Whoever differentiates what has not been transposed is in forward mode. */
static void custom_tangents_jvp(tow__jvp *r)
{
    fail_forward(r->t, r->e, ((const tow__custom_tangents_params *)r->e->params)->name);
}

static bool custom_tangents_linear_in(const tow__equation *e, const bool *depends)
{
    return tow__linear_behind(e, depends, (size_t)((const tow__custom_tangents_params *)e->params)->residuals);
}

/* ct of x = backward(residuals, ct of y) */
static void custom_tangents_transpose(tow__transpose *r)
{
    const tow__custom_tangents_params *p = r->e->params;
    const tow_graph *b = p->backward;
    size_t n_res = (size_t)p->residuals;
    tow_value *in = tow__trace_alloc(r->t, b->n_inputs, sizeof *in),
              *out = tow__trace_alloc(r->t, b->n_outputs, sizeof *out);
    if (!in || !out) return;
    for (size_t i = 0; i < n_res; i++) in[i] = r->x[i];
    for (size_t i = n_res; i < b->n_inputs; i++) {
        tow_value ct = r->ct[i - n_res];
        in[i] = tow_is_null(ct) ? tow__zeros(r->t, tow_graph_input_type(b, i)) : ct;
    }
    tow__inline(r->t, b, in, out);
    for (size_t i = n_res; i < r->e->n_in; i++)
        if (r->linear[i]) r->dx[i] = out[i - n_res];
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void custom_jvp_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    tow__inline(t, ((const tow__custom_jvp_params *)e->params)->body, x, y);
}

static void custom_vjp_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    tow__inline(t, ((const tow__custom_vjp_params *)e->params)->body, x, y);
}

static void custom_tangents_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)x, (void)y;
    fail_forward(t, e, ((const tow__custom_tangents_params *)e->params)->name);
}

/* The first graph gives the value. */
static void value_form(const tow__equation *e, tow__region_form *form) { (void)e, (void)form; }

const tow__region tow__value_region = {.form = value_form};

TOW__PRIMITIVE(custom_jvp, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .inputs = -1, .outputs = -1,
               .type = custom_jvp_type, .region = &tow__value_region, .jvp = custom_jvp_jvp,
               .batch = tow__batch_custom_jvp, .decompose = custom_jvp_decompose,
               TOW__PARAMS(tow__custom_jvp_params, TOW__PARAM(tow__custom_jvp_params, name, TOW__P_STRING),
                           TOW__PARAM(tow__custom_jvp_params, captured, TOW__P_COUNT),
                           TOW__PARAM(tow__custom_jvp_params, fixed, TOW__P_COUNT),
                           TOW__PARAM(tow__custom_jvp_params, body, TOW__P_GRAPH),
                           TOW__PARAM(tow__custom_jvp_params, rule, TOW__P_GRAPH)));

TOW__PRIMITIVE(custom_vjp, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .inputs = -1, .outputs = -1,
               .type = custom_vjp_type, .region = &tow__value_region, .jvp = custom_vjp_jvp,
               .batch = tow__batch_custom_vjp, .decompose = custom_vjp_decompose,
               TOW__PARAMS(tow__custom_vjp_params, TOW__PARAM(tow__custom_vjp_params, name, TOW__P_STRING),
                           TOW__PARAM(tow__custom_vjp_params, captured, TOW__P_COUNT),
                           TOW__PARAM(tow__custom_vjp_params, fixed, TOW__P_COUNT),
                           TOW__PARAM(tow__custom_vjp_params, body, TOW__P_GRAPH),
                           TOW__PARAM(tow__custom_vjp_params, forward, TOW__P_GRAPH),
                           TOW__PARAM(tow__custom_vjp_params, backward, TOW__P_GRAPH)));

TOW__PRIMITIVE(custom_tangents, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .inputs = -1, .outputs = -1,
               .type = custom_tangents_type, .jvp = custom_tangents_jvp, .transpose = custom_tangents_transpose,
               .linear_in = custom_tangents_linear_in, .decompose = custom_tangents_decompose,
               TOW__PARAMS(tow__custom_tangents_params, TOW__PARAM(tow__custom_tangents_params, name, TOW__P_STRING),
                           TOW__PARAM(tow__custom_tangents_params, residuals, TOW__P_COUNT),
                           TOW__PARAM(tow__custom_tangents_params, backward, TOW__P_GRAPH)));
