/* remat: a region whose values are made again in the backward pass instead of being kept, but for those that its policy
 * lets be kept.
 *
 *   jvp         (x, dx)                   the same region around the differentiated body
 *   split       known half inline; the unknown half stays one region, which repeats what its policy does not keep
 *   transpose   (x, ct of y, sums so far) one region that repeats, then adds to the caller's sums */
#include "src/autodiff/batch.h"
#include "src/autodiff/limit/limit.h"
#include "src/autodiff/partial.h"
#include "src/autodiff/policy_log.h"
#include "src/autodiff/regions/record.h"
#include "src/autodiff/regions/types.h"

static bool lacks_function(const tow_policy *p)
{
    return p && ((p->kind == TOW_POLICY_CUSTOM && !p->decide) || lacks_function(p->a) || lacks_function(p->b));
}

static tow_status remat_type(const tow__typing *ty)
{
    if (lacks_function(((const tow__remat_params *)ty->params)->policy))
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "a custom policy has no function; give tow_policy_custom one");
    return tow__body_type(ty, ((const tow__remat_params *)ty->params)->body);
}

/* ---- forward mode ------------------------------------------------------------------------------------------------ */

/* The tangent that output `at` of the body forwards: an operand, or a result that stands before it; else the
 * result itself. The caller then knows both as one value, whose cotangents add up in one order. */
static tow_value same_tangent(const tow_graph *body, uint32_t first, uint32_t at, const tow_value *in,
                              const tow_value *out)
{
    for (uint32_t i = 0; i < body->n_inputs; i++)
        if (body->inputs[i] == body->outputs[at]) return in[i];
    for (uint32_t i = first; i < at; i++)
        if (body->outputs[i] == body->outputs[at]) return out[i];
    return out[at];
}

/* The region of r->e around its differentiated body. Operands: x..., nonzero dx...; results: y..., nonzero dy....
 * reach: of the body. */
static void differentiate_body(tow__jvp *r, tow__remat_params params, const tow__reach *reach)
{
    const tow__equation *e = r->e;
    bool *in_nonzero = tow__trace_alloc(r->t, e->n_in, sizeof *in_nonzero);
    bool *out_nonzero = tow__trace_alloc(r->t, e->n_out, sizeof *out_nonzero);
    tow_value *in = tow__trace_alloc(r->t, 2 * (size_t)e->n_in, sizeof *in);
    tow_value *out = tow__trace_alloc(r->t, 2 * (size_t)e->n_out, sizeof *out);
    if (!in_nonzero || !out_nonzero || !in || !out) return;
    size_t n_in = e->n_in;
    for (uint32_t i = 0; i < e->n_in; i++) {
        in[i] = r->x[i];
        in_nonzero[i] = !tow_is_null(r->dx[i]);
        if (in_nonzero[i]) in[n_in++] = r->dx[i];
    }
    tow_graph *body = NULL;
    if (tow__jvp_graph(params.body, reach, r->reverse, in_nonzero, out_nonzero, &body) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    params.body = body;
    tow__bind(r->t, &tow__remat_p, &params, n_in, in, body->n_outputs, out);
    uint32_t next = e->n_out;
    for (uint32_t i = 0; i < e->n_out; i++) {
        r->y[i] = out[i];
        r->dy[i] = out_nonzero[i] ? same_tangent(body, e->n_out, next++, in, out) : (tow_value){0};
    }
    tow_graph_release(body);
}

/* remat: the same region around the differentiated body. Reverse mode first chooses what a region with a limit
 * keeps. */
static void remat_jvp(tow__jvp *r)
{
    const tow__remat_params *params = r->e->params;
    if (!r->reverse || params->differentiated || params->limit == 0) {
        differentiate_body(r, *params, r->reach);
        return;
    }
    tow__remat_params limited;
    bool *active = tow__trace_alloc(r->t, r->e->n_in, sizeof *active);
    for (uint32_t i = 0; active && i < r->e->n_in; i++) active[i] = !tow_is_null(r->dx[i]);
    if (!active || tow__limit_region(r->e, active, &limited) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    differentiate_body(r, limited, NULL);
    tow_graph_release(limited.body);
}

/* ---- partial evaluation ------------------------------------------------------------------------------------------ */

/* remat: the known half is recorded inline; the unknown half stays one region, which repeats what its policy (or the
 * policy of the region around it) does not keep. */
static void remat_split(tow__split *s, const tow__equation *e)
{
    static const tow_policy nothing = {.kind = TOW_POLICY_NOTHING};
    tow__remat_params params = *(const tow__remat_params *)e->params;
    const tow_policy *policy = s->policy ? s->policy : params.policy ? params.policy : &nothing;
    tow__policy_tally tally = {0};
    tow__manner manner = tow__manner_of(s);
    manner.policy = policy;
    if (!s->policy) manner.tally = &tally;
    bool *unknown = tow__trace_alloc(s->u, e->n_in, sizeof *unknown),
         *available = tow__trace_alloc(s->u, e->n_in, sizeof *available);
    if (!unknown || !available) return;
    for (uint32_t i = 0; i < e->n_in; i++) {
        unknown[i] = s->vars[e->in[i]].unknown;
        available[i] = true;
    }
    tow__split_region own = {0}, *split = s->memo ? tow__split_remembered(s, e) : &own;
    if (!split->done &&
        tow__partial_eval(params.body, unknown, available, manner, NULL, NULL, &split->part) != TOW_OK) {
        tow__adopt_error(s->u);
        return;
    }
    if (!split->done && s->log && !s->policy) tow__log_policy(s->log, e, &tally, split->part.n_residuals > 0);
    split->done = true;
    const tow__partial p = split->part;
    size_t n_in = 0, n_known_out = p.known->n_outputs;
    tow_value *in = tow__trace_alloc(s->k, e->n_in, sizeof *in),
              *out = tow__trace_alloc(s->k, n_known_out, sizeof *out);
    tow_value *u_in = tow__trace_alloc(s->u, p.unknown->n_inputs, sizeof *u_in);
    tow_value *u_out = tow__trace_alloc(s->u, p.unknown->n_outputs, sizeof *u_out);
    if (!in || !out || !u_in || !u_out) goto done;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (!unknown[i]) in[n_in++] = s->vars[e->in[i]].known;
    tow__inline(s->k, p.known, in, out);

    n_in = 0;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (p.input_used[i]) u_in[n_in++] = tow__split_staged(s, e->in[i]);
    for (uint32_t i = 0; i < p.n_residuals; i++)
        u_in[n_in++] = tow__split_residual(s, out[n_known_out - p.n_residuals + i], TOW__INPUT, p.pinned[i]);
    bool linear = false;
    for (uint32_t i = 0; i < e->n_out; i++) linear |= p.out_unknown[i];
    params.body = p.unknown;
    params.differentiated |= linear;
    if (linear && tow__is_marked_policy(params.policy)) params.policy = NULL; /* it has been asked, and has no text */
    tow__set_source(s->u, &e->source);
    if (p.unknown->n_outputs) tow__bind(s->u, &tow__remat_p, &params, n_in, u_in, p.unknown->n_outputs, u_out);

    size_t known_next = 0, staged_next = 0;
    for (uint32_t i = 0; i < e->n_out; i++) {
        tow__pvar *v = &s->vars[e->out[i]];
        v->unknown = p.out_unknown[i];
        if (!v->unknown) v->known = out[known_next++];
        tow_value staged = p.out_staged[i] ? u_out[staged_next++] : (tow_value){0};
        bool kept = !v->unknown && v->named != TOW__INPUT && v->tags >= TOW_PREFER_SAVE;
        if (!kept) v->staged = staged;
        v->available = !tow_is_null(v->staged);
    }
done:
    if (split == &own) tow__partial_free(&own.part);
}

/* ---- transpose --------------------------------------------------------------------------------------------------- */

/* One region that repeats and transposes. Operands: nonlinear values, cotangents, sums so far; results: new
 * sums. No linear operand stands twice. */
static void transpose_region(tow__transpose *r)
{
    const tow__equation *e = r->e;
    tow__remat_params params = *(const tow__remat_params *)e->params;
    size_t most = 2 * (size_t)e->n_in + e->n_out;
    tow_value *operands = tow__trace_alloc(r->t, most, sizeof *operands),
              *results = tow__trace_alloc(r->t, e->n_in, sizeof *results);
    tow_value *in = tow__trace_alloc(r->t, e->n_in, sizeof *in), *dx = tow__trace_alloc(r->t, e->n_in, sizeof *dx);
    tow_value *ct = tow__trace_alloc(r->t, e->n_out, sizeof *ct),
              *start = tow__trace_alloc(r->t, e->n_in, sizeof *start);
    bool *changed = tow__trace_alloc(r->t, e->n_in, sizeof *changed);
    if (!operands || !results || !in || !dx || !ct || !start || !changed) return;

    size_t n = 0, n_changed = 0, n_captures;
    tow_value *captures;
    tow__push(r->t);
    for (uint32_t i = 0; i < e->n_in; i++)
        if (!r->linear[i]) in[i] = tow__input(r->t, r->in_types[i], NULL), operands[n++] = r->x[i];
    for (uint32_t i = 0; i < e->n_out; i++)
        if (!tow_is_null(r->ct[i])) ct[i] = tow__input(r->t, tow_value_type(r->ct[i]), NULL), operands[n++] = r->ct[i];
    for (uint32_t i = 0; i < e->n_in; i++)
        if (r->linear[i] && !tow_is_null(r->dx[i]))
            dx[i] = start[i] = tow__input(r->t, r->in_types[i], NULL), operands[n++] = r->dx[i];
    tow__transpose_body(r->t, params.body, r->linear, in, ct, dx);
    for (uint32_t i = 0; i < e->n_in; i++) {
        changed[i] = r->linear[i] && !tow_is_null(dx[i]) && (tow_is_null(start[i]) || dx[i].id != start[i].id);
        if (changed[i]) results[n_changed++] = dx[i];
    }
    params.body = tow__pop(r->t, n_changed, results, &n_captures, &captures);
    if (!params.body) return;
    params.differentiated = true;
    tow__set_source(r->t, &e->source);
    if (n_captures)
        tow_trace_fail(r->t, TOW_INTERNAL_ERROR, "the transpose of a remat region captured %zu outer values",
                       n_captures);
    else if (n_changed || params.body->has_effects)
        tow__bind(r->t, &tow__remat_p, &params, n, operands, n_changed, results);
    tow_graph_release(params.body);
    n = 0;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (changed[i]) r->dx[i] = results[n++];
}

/* The body with input i replaced by input first[i] <= i where they differ. */
static tow_status merge_inputs(const tow_graph *body, const uint32_t *first, tow_graph **result)
{
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(body, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < body->n_inputs; i++)
        in[i] = first[i] == i ? tow__input(t, body->vars[body->inputs[i]].type, body->input_names[i]) : in[first[i]];
    tow__inline(t, body, in, out);
    return tow__trace_end(t, body->n_outputs, out, false, result);
}

/* A linear operand that stands twice becomes one input of the region, so that what comes from either place is
 * added in the order of the equations inside. */
static void remat_transpose(tow__transpose *r)
{
    const tow__equation *e = r->e;
    uint32_t *first = tow__trace_alloc(r->t, e->n_in, sizeof *first), n = 0;
    if (!first) return;
    for (uint32_t i = 0; i < e->n_in; i++) {
        first[i] = r->linear[i] ? r->first[i] : i;
        n += first[i] == i;
    }
    if (n == e->n_in) {
        transpose_region(r);
        return;
    }
    tow__remat_params params = *(const tow__remat_params *)e->params;
    tow__equation merged = {.primitive = e->primitive, .params = &params, .n_in = n, .n_out = e->n_out, .out = e->out};
    tow__transpose inner = {.t = r->t, .e = &merged, .ct = r->ct};
    merged.source = e->source;
    merged.in = tow__trace_alloc(r->t, n, sizeof *merged.in);
    tow_value *x = tow__trace_alloc(r->t, n, sizeof *x), *dx = tow__trace_alloc(r->t, n, sizeof *dx);
    bool *linear = tow__trace_alloc(r->t, n, sizeof *linear);
    tow_type *types = tow__trace_alloc(r->t, n, sizeof *types);
    if (!merged.in || !x || !dx || !linear || !types) return;
    n = 0;
    for (uint32_t i = 0; i < e->n_in; i++) {
        if (first[i] != i) continue;
        merged.in[n] = e->in[i], x[n] = r->x[i], dx[n] = r->dx[i], linear[n] = r->linear[i];
        types[n++] = r->in_types[i];
    }
    inner.x = x, inner.dx = dx, inner.linear = linear, inner.in_types = types;
    if (merge_inputs(params.body, first, &params.body) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    transpose_region(&inner);
    tow_graph_release(params.body);
    n = 0;
    for (uint32_t i = 0; i < e->n_in; i++) r->dx[i] = first[i] == i ? dx[n++] : (tow_value){0};
}

/* ---- descriptor -------------------------------------------------------------------------------------------------- */

/* A region that keeps everything stays around other ones, for which it decides. */
static bool has_remat(const tow_graph *g)
{
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (e->primitive == &tow__remat_p) return true;
        for (uint32_t k = 0, n = tow__nested_count(e->primitive, e->params); k < n; k++)
            if (has_remat(tow__nested(e->primitive, e->params, k))) return true;
    }
    return false;
}

static const tow_graph *remat_transparent(const tow__equation *e)
{
    const tow__remat_params *p = e->params;
    const bool keeps_all = p->policy && p->policy->kind == TOW_POLICY_EVERYTHING;
    return keeps_all && !has_remat(p->body) ? p->body : NULL;
}

static void remat_form(const tow__equation *e, tow__region_form *form) { (void)e, (void)form; }

static const tow__region remat_region = {
    .planned = TOW__IN_PLACE, .form = remat_form, .transparent = remat_transparent, .split = remat_split};

TOW__PRIMITIVE(remat, TOW__REGION, tow__no_tiling, tow__element_cost, .inputs = -1, .outputs = -1, .type = remat_type,
               .region = &remat_region, .jvp = remat_jvp, .transpose = remat_transpose, .continues = true,
               .batch = tow__batch_region,
               TOW__PARAMS(tow__remat_params, TOW__PARAM(tow__remat_params, policy, TOW__P_POLICY),
                           TOW__PARAM(tow__remat_params, limit, TOW__P_COUNT),
                           TOW__PARAM(tow__remat_params, differentiated, TOW__P_BOOL),
                           TOW__PARAM(tow__remat_params, body, TOW__P_GRAPH)));

const tow__remat_params *tow__written_region(const tow__equation *e)
{
    const tow__remat_params *p = e->primitive == &tow__remat_p ? e->params : NULL;
    return p && !p->differentiated ? p : NULL;
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

/* False, with the error in the trace, if nobody may write a remat with this policy around this region. Its names are
 * checked when the trace ends, against those of all regions that have this policy. */
static bool policy_is_fine(tow_trace *t, const tow_policy *policy, const tow_graph *region)
{
    tow_context *ctx = tow_trace_context(t);
    tow_status status = tow__policy_check(t, policy, region, 0);
    if (status != TOW_OK) tow_trace_fail(t, status, "%s", ctx->error);
    return status == TOW_OK;
}

void tow__remat_within(tow_trace *trace, tow_function function, void *user, const tow_policy *policy, size_t limit,
                       size_t n_inputs, const tow_value *inputs, size_t n_outputs, tow_value *outputs)
{
    tow__traced_body b = {0};
    const tow_value *operands =
        tow__trace_call(trace, "remat", function, user, (tow__listed){n_inputs, inputs}, n_outputs, outputs, &b);
    if (!operands) return;
    tow__remat_params params = {.policy = policy, .limit = limit < INT64_MAX ? (int64_t)limit : INT64_MAX};
    if (policy_is_fine(trace, policy, b.graph))
        tow__bind_region(trace, &tow__remat_p, &params, offsetof(tow__remat_params, body), &b, n_inputs, operands,
                         n_outputs, outputs);
    tow_graph_release(b.graph);
}

void tow_remat_function(tow_trace *trace, tow_function function, void *user, const tow_policy *policy, size_t n_inputs,
                        const tow_value *inputs, size_t n_outputs, tow_value *outputs)
{
    tow__remat_within(trace, function, user, policy, 0, n_inputs, inputs, n_outputs, outputs);
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
