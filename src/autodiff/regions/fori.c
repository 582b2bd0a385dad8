/* fori: the body runs for i = 0 .. count - 1, or the other way round: what differentiation makes of a while whose
 * iterations are known.
 *
 *   fori         (count, c, k)                     -> k
 *   transpose    (count, c, [sum of ct c, ct k])   -> [sum of ct c, ct k]     the iterations the other way round
 *
 * Its decomposition, which plans run, is a while that counts. Rules are in loop_jvp.c, while_partial.c and
 * batch_control.c. */
#include "src/autodiff/regions/control.h"
#include "src/autodiff/regions/types.h"

/* ---- type -------------------------------------------------------------------------------------------------------- */

static tow_status fori_type(const tow__typing *ty)
{
    const tow__fori_params *p = ty->params;
    tow_status status = tow__require_count(ty, p->body->n_inputs, p->body->n_outputs);
    if (status == TOW_OK) status = tow__loop_counts_fit(ty, p->consts, p->max_iterations, 1);
    if (status != TOW_OK) return status;
    tow_type i32 = tow_make_type(TOW_I32, 0, NULL);
    if (!tow_type_equal(ty->in[0], i32))
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "the count must be i32[], found %s",
                              tow__type_name(ty->in[0]).text);
    if (!tow_type_equal(tow_graph_input_type(p->body, ty->n_in - 1), i32))
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "the last input of the body counts iterations: it must be i32[]");
    status = tow__inputs_agree(ty, p->body, "the body", 1, ty->n_in - 1);
    return status == TOW_OK ? tow__carries_keep_types(ty, p->body, (size_t)p->consts) : status;
}

/* ---- decomposition ----------------------------------------------------------------------------------------------- */

/* (count, consts, i, carry): i < count forward, i > 0 in reverse */
static tow_status fori_condition(const tow__fori_params *p, tow_graph **result)
{
    tow_trace *t = tow__trace_begin(p->body->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_type i32 = tow_make_type(TOW_I32, 0, NULL);
    tow_value count = tow__input(t, i32, NULL), i = {0};
    for (uint32_t k = 0; k + 1 < p->body->n_inputs; k++) {
        if (k == p->consts) i = tow__input(t, i32, NULL);
        tow__input(t, tow_graph_input_type(p->body, k), NULL);
    }
    if (p->consts + 1 == p->body->n_inputs) i = tow__input(t, i32, NULL);
    tow_value holds = p->reverse ? tow_gt(i, tow_scalar(t, TOW_I32, 0)) : tow_lt(i, count);
    return tow__trace_end(t, 1, &holds, false, result);
}

/* (count, consts, i, carry) -> (next i, carry) */
static tow_status fori_body(const tow__fori_params *p, tow_graph **result)
{
    const tow_graph *g = p->body;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_type i32 = tow_make_type(TOW_I32, 0, NULL);
    tow_value *all = tow__trace_alloc(t, (size_t)g->n_outputs + 1, sizeof *all);
    tow__input(t, i32, NULL);
    for (uint32_t k = 0; k < p->consts; k++) in[k] = tow__input(t, tow_graph_input_type(g, k), NULL);
    tow_value i = tow__input(t, i32, NULL), next = tow_add_scalar(i, p->reverse ? -1 : 1);
    for (uint32_t k = (uint32_t)p->consts; k + 1 < g->n_inputs; k++)
        in[k] = tow__input(t, tow_graph_input_type(g, k), NULL);
    in[g->n_inputs - 1] = p->reverse ? next : i;
    tow__inline(t, g, in, out);
    if (all) all[0] = next;
    if (all) memcpy(all + 1, out, g->n_outputs * sizeof *all);
    return tow__trace_end(t, all ? (size_t)g->n_outputs + 1 : 0, all, false, result);
}

static void fori_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__fori_params *p = e->params;
    tow__while_params params = {.consts = p->consts + 1, .max_iterations = p->max_iterations};
    tow_value *in = tow__trace_alloc(t, (size_t)e->n_in + 1, sizeof *in);
    tow_value *out = tow__trace_alloc(t, (size_t)e->n_out + 1, sizeof *out);
    if (!in || !out) return;
    size_t lead = (size_t)p->consts + 1;
    memcpy(in, x, lead * sizeof *in);
    in[lead] = p->reverse ? x[0] : tow_scalar(t, TOW_I32, 0);
    memcpy(in + lead + 1, x + lead, e->n_out * sizeof *in);
    if (fori_condition(p, &params.condition) == TOW_OK && fori_body(p, &params.body) == TOW_OK)
        tow__bind(t, &tow__while_p, &params, (size_t)e->n_in + 1, in, (size_t)e->n_out + 1, out);
    else
        tow__adopt_error(t);
    tow_graph_release(params.condition);
    tow_graph_release(params.body);
    memcpy(y, out + 1, e->n_out * sizeof *y);
}

/* ---- transpose --------------------------------------------------------------------------------------------------- */

/* All carries are linear: partial evaluation has made stacks of those that are not. Sums of constants are carries that
 * start from what the caller has accumulated already; where there is nothing yet they start from zeros. */
typedef struct loop {
    tow__transpose *r;
    const tow__fori_params *p;
    uint32_t consts, n_in; /* of the body, without the number of the iteration */
    bool *linear;          /* [n_in + 1] */
} loop;

static tow_type input_type(const loop *l, uint32_t i) { return tow_graph_input_type(l->p->body, i); }

/* (c, sum of ct c, ct k, i) -> (sum of ct c, ct k) */
static tow_status transposed_body(const loop *l, tow_graph **result)
{
    const tow_graph *g = l->p->body;
    tow_trace *t = tow__trace_begin(g->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow__set_phase(t, TOW__BACKWARD);
    tow_value *in = tow__trace_alloc(t, 3 * ((size_t)l->n_in + 1), sizeof *in), *dx = in + l->n_in + 1,
              *out = dx + l->n_in + 1;
    tow_value *ct = tow__trace_alloc(t, g->n_outputs, sizeof *ct);
    if (!in || !ct) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    size_t n = 0;
    for (uint32_t i = 0; i < l->consts; i++)
        if (!l->linear[i]) in[i] = tow__input(t, input_type(l, i), NULL);
    for (uint32_t i = 0; i < l->consts; i++)
        if (l->linear[i]) dx[i] = tow__input(t, input_type(l, i), NULL);
    for (uint32_t k = 0; k < g->n_outputs; k++) ct[k] = tow__input(t, input_type(l, l->consts + k), NULL);
    in[l->n_in] = tow__input(t, tow_make_type(TOW_I32, 0, NULL), NULL);
    tow__transpose_inline(t, g, l->linear, in, ct, dx);
    for (uint32_t i = 0; i < l->n_in; i++)
        if (l->linear[i]) out[n++] = tow_is_null(dx[i]) ? tow__zeros(t, input_type(l, i)) : dx[i];
    return tow__trace_end(t, n, out, false, result);
}

/* The initial value of a sum or a cotangent. */
static tow_value start_of(const loop *l, uint32_t i)
{
    tow__transpose *r = l->r;
    tow_value start = i < l->consts ? r->dx[1 + i] : r->ct[i - l->consts];
    return tow_is_null(start) ? tow__zeros(r->t, input_type(l, i)) : start;
}

static void fori_transpose(tow__transpose *r)
{
    loop l = {.r = r, .p = r->e->params, .consts = (uint32_t)((const tow__fori_params *)r->e->params)->consts};
    tow__fori_params params = *l.p;
    l.n_in = r->e->n_in - 1;
    l.linear = tow__trace_alloc(r->t, (size_t)l.n_in + 1, sizeof *l.linear);
    tow_value *in = tow__trace_alloc(r->t, (size_t)l.n_in + 1, sizeof *in),
              *out = tow__trace_alloc(r->t, l.n_in, sizeof *out);
    if (!l.linear || !in || !out) return;
    size_t n = 0;
    for (uint32_t i = 0; i < l.n_in; i++) l.linear[i] = r->linear[1 + i] || i >= l.consts;
    if (transposed_body(&l, &params.body) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    in[n++] = r->x[0];
    for (uint32_t i = 0; i < l.consts; i++)
        if (!l.linear[i]) in[n++] = r->x[1 + i];
    params.consts = (int64_t)n - 1;
    params.reverse = !l.p->reverse;
    for (uint32_t i = 0; i < l.n_in; i++)
        if (l.linear[i]) in[n++] = start_of(&l, i);
    tow__bind(r->t, &tow__fori_p, &params, n, in, params.body->n_outputs, out);
    tow_graph_release(params.body);
    n = 0;
    for (uint32_t i = 0; i < l.n_in; i++) {
        if (!l.linear[i]) continue;
        tow_value *dx = &r->dx[1 + i], result = out[n++];
        *dx = i < l.consts ? result : tow__add_or(*dx, result);
    }
}

/* ---- descriptor -------------------------------------------------------------------------------------------------- */

static void fori_form(const tow__equation *e, tow__region_form *form)
{
    const tow__fori_params *p = e->params;
    form->lead = 1;
    form->repeats = form->counts = true;
    form->consts = (uint32_t)p->consts;
    form->carry = e->n_out;
    form->reverse = p->reverse;
    form->length = TOW__DATA_DECIDE;
    form->most = p->max_iterations;
}

static void fori_resize(void *params, int64_t consts, int64_t carry)
{
    (void)carry;
    ((tow__fori_params *)params)->consts = consts;
}

static const tow__region fori_region = {.form = fori_form, .resize = fori_resize, .split = tow__while_split};

TOW__PRIMITIVE(fori, TOW__REGION, tow__no_tiling, tow__element_cost, .operands = "count, consts..., carry...",
               .inputs = -1, .outputs = -1, .type = fori_type, .region = &fori_region, .jvp = tow__loop_jvp,
               .transpose = fori_transpose, .continues = true, .batch = tow__batch_fori, .decompose = fori_decompose,
               TOW__PARAMS(tow__fori_params, TOW__PARAM(tow__fori_params, max_iterations, TOW__P_INT),
                           TOW__PARAM(tow__fori_params, reverse, TOW__P_BOOL),
                           TOW__PARAM(tow__fori_params, consts, TOW__P_INT),
                           TOW__PARAM(tow__fori_params, body, TOW__P_GRAPH)));
