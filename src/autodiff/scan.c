/* Forward mode and transpose of scan.
 *
 *   scan                (consts, carry, xs)                 -> (carry, ys)
 *   jvp                 (c dc, k dk, x dx)                  -> (k dk, y dy)          same direction
 *   transpose           (c, [sum of ct c, ct k], [x, ct y]) -> ([sum of ct c, ct k], [ct x])   direction flipped
 *
 * A carry's tangent is nonzero if it starts nonzero or the body makes it so: a fixpoint over the body. In the transpose,
 * gradients of constants are carries that start from what the caller has accumulated already, so that terms add up in the
 * order of unrolled code; where there is nothing yet they start from -0, the neutral element of floating-point addition. */
#include "src/autodiff/autodiff.h"
#include "tow/ops.h"

/* ---- jvp --------------------------------------------------------------------------------------------------------------------- */

/* Which operands and results carry tangents. in: [n_in], out: [n_out], both start from what the operands say. */
static tow_status tangent_fixpoint(const tow_graph *body, const tow__scan_params *p, bool reverse, bool *in, bool *out)
{
    for (;;) {
        bool changed = false;
        memset(out, 0, body->n_outputs * sizeof *out);
        tow_graph *ignored = NULL;
        tow_status status = tow__jvp_graph(body, reverse, in, out, &ignored);
        tow_graph_release(ignored);
        if (status != TOW_OK) return status;
        for (int64_t i = 0; i < p->carry; i++) {
            changed |= out[i] && !in[p->consts + i];
            in[p->consts + i] |= out[i];
            out[i] = in[p->consts + i];
        }
        if (!changed) return TOW_OK;
    }
}

/* The body of the jvp in scan's order: each group of operands and results as primals, then tangents. */
static tow_status jvp_body(const tow_graph *body, const tow__scan_params *p, bool reverse, const bool *in,
                           const bool *out, tow_graph **result)
{
    tow_trace *t = tow__trace_begin(body->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    uint32_t n_in = body->n_inputs, n_out = body->n_outputs;
    const uint32_t in_ends[] = {(uint32_t)p->consts, (uint32_t)(p->consts + p->carry), n_in};
    const uint32_t out_ends[] = {(uint32_t)p->carry, n_out};
    tow_value *x = tow__trace_alloc(t, 2 * (size_t)n_in, sizeof *x), *dx = x + n_in;
    tow_value *y = tow__trace_alloc(t, 4 * (size_t)n_out, sizeof *y), *dy = y + n_out, *all = y + 2 * (size_t)n_out;
    if (!x || !y) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t group = 0, i = 0; group < 3; group++) {
        uint32_t start = i;
        for (; i < in_ends[group]; i++) x[i] = tow__input(t, body->vars[body->inputs[i]].type, body->input_names[i]);
        for (uint32_t j = start; j < i; j++)
            if (in[j]) dx[j] = tow__input(t, body->vars[body->inputs[j]].type, NULL);
    }
    tow__jvp_inline(t, body, reverse, x, dx, y, dy);
    size_t n = 0;
    for (uint32_t group = 0, i = 0; group < 2; group++) {
        uint32_t start = i;
        for (; i < out_ends[group]; i++) all[n++] = y[i];
        for (uint32_t j = start; j < i; j++)
            if (out[j]) all[n++] = tow_is_null(dy[j]) ? tow_zeros_like(y[j]) : dy[j];
    }
    return tow__trace_end(t, n, all, false, result);
}

void tow__scan_jvp(tow__jvp *r)
{
    const tow__equation *e = r->e;
    const tow__scan_params *p = e->params;
    uint32_t n_in = e->n_in, n_out = e->n_out;
    bool *in = tow__trace_alloc(r->t, n_in, sizeof *in), *out = tow__trace_alloc(r->t, n_out, sizeof *out);
    tow_value *operands = tow__trace_alloc(r->t, 2 * (size_t)n_in, sizeof *operands);
    tow_value *results = tow__trace_alloc(r->t, 2 * (size_t)n_out, sizeof *results);
    if (!in || !out || !operands || !results) return;
    for (uint32_t i = 0; i < n_in; i++) in[i] = !tow_is_null(r->dx[i]);
    tow_graph *body = NULL;
    if (tangent_fixpoint(p->body, p, r->reverse, in, out) != TOW_OK ||
        jvp_body(p->body, p, r->reverse, in, out, &body) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    tow__scan_params params = {.body = body, .length = p->length, .reverse = p->reverse};
    const uint32_t ends[] = {(uint32_t)p->consts, (uint32_t)(p->consts + p->carry), n_in};
    int64_t *counts[] = {&params.consts, &params.carry, &(int64_t){0}};
    size_t n = 0;
    for (uint32_t group = 0, i = 0; group < 3; group++) {
        uint32_t start = i;
        size_t before = n;
        for (; i < ends[group]; i++) operands[n++] = r->x[i];
        for (uint32_t j = start; j < i; j++)
            if (in[j]) operands[n++] = tow_is_null(r->dx[j]) ? tow_zeros_like(r->x[j]) : r->dx[j];
        *counts[group] = (int64_t)(n - before);
    }
    tow__bind(r->t, &tow__scan_p, &params, n, operands, body->n_outputs, results);
    tow_graph_release(body);
    n = 0;
    for (uint32_t i = 0, end = (uint32_t)p->carry; i < n_out; end = n_out) {
        uint32_t start = i;
        for (; i < end; i++) r->y[i] = results[n++];
        for (uint32_t j = start; j < i; j++) r->dy[j] = out[j] ? results[n++] : (tow_value){0};
    }
}

/* ---- transpose ------------------------------------------------------------------------------------------------------------------ */

/* Operands of the forward scan, sorted by role. Inside the body all carries are linear, whatever their initial values are. */
typedef struct roles {
    const tow__equation *e;
    const tow__scan_params *p;
    const bool *linear;
    bool *body_linear; /* [n_in] */
} roles;

static bool is_const(const roles *ro, uint32_t i) { return i < ro->p->consts; }
static bool is_carry(const roles *ro, uint32_t i) { return !is_const(ro, i) && i < ro->p->consts + ro->p->carry; }

/* Body of the transposed scan: (c, [sum ct c, ct k], [x, ct y]) -> ([sum ct c, ct k], [ct x]). */
static tow_status transposed_body(const roles *ro, const tow_value *ct_out, tow_graph **result)
{
    const tow_graph *body = ro->p->body;
    uint32_t n_in = ro->e->n_in, n_out = ro->e->n_out, carries = (uint32_t)ro->p->carry,
             consts = (uint32_t)ro->p->consts;
    tow_trace *t = tow__trace_begin(body->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow_value *in = tow__trace_alloc(t, 3 * (size_t)n_in, sizeof *in), *dx = in + n_in, *out = in + 2 * (size_t)n_in;
    tow_value *ct = tow__trace_alloc(t, n_out, sizeof *ct);
    if (!in || !ct) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
#define TYPE(i) body->vars[body->inputs[i]].type
    for (uint32_t i = 0; i < consts; i++)
        if (!ro->linear[i]) in[i] = tow__input(t, TYPE(i), NULL);
    for (uint32_t i = 0; i < consts; i++)
        if (ro->linear[i]) dx[i] = tow__input(t, TYPE(i), NULL);
    for (uint32_t i = 0; i < carries; i++) ct[i] = tow__input(t, TYPE(consts + i), NULL);
    for (uint32_t i = consts + carries; i < n_in; i++)
        if (!ro->linear[i]) in[i] = tow__input(t, TYPE(i), NULL);
    for (uint32_t i = carries; i < n_out; i++)
        if (!tow_is_null(ct_out[i])) ct[i] = tow__input(t, body->vars[body->outputs[i]].type, NULL);
    tow__transpose_inline(t, body, ro->body_linear, in, ct, dx);
    size_t n = 0;
    for (uint32_t i = 0; i < n_in; i++) {
        if (!ro->body_linear[i]) continue;
        out[n++] = tow_is_null(dx[i]) ? tow_full(t, TYPE(i), 0) : dx[i];
    }
#undef TYPE
    return tow__trace_end(t, n, out, false, result);
}

void tow__scan_transpose(tow__transpose *r)
{
    const tow__equation *e = r->e;
    const tow__scan_params *p = e->params;
    roles ro = {.e = e, .p = p, .linear = r->linear};
    ro.body_linear = tow__trace_alloc(r->t, e->n_in, sizeof(bool));
    tow_value *operands = tow__trace_alloc(r->t, 2 * (size_t)e->n_in + e->n_out, sizeof *operands);
    tow_value *results = tow__trace_alloc(r->t, e->n_in, sizeof *results);
    if (!ro.body_linear || !operands || !results) return;
    for (uint32_t i = 0; i < e->n_in; i++) ro.body_linear[i] = r->linear[i] || is_carry(&ro, i);
    if (p->length == 0) { /* the loop is the identity on its carries */
        for (uint32_t i = 0; i < e->n_in; i++)
            if (is_carry(&ro, i)) r->dx[i] = r->ct[i - p->consts];
        return;
    }
    tow_graph *body = NULL;
    if (transposed_body(&ro, r->ct, &body) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    tow__scan_params params = {.body = body, .length = p->length, .reverse = !p->reverse};
    size_t n = 0;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (is_const(&ro, i) && !r->linear[i]) operands[n++] = r->x[i];
    params.consts = (int64_t)n;
    for (uint32_t i = 0; i < e->n_in; i++) {
        if (!ro.body_linear[i] || !(is_const(&ro, i) || is_carry(&ro, i))) continue;
        tow_value start = is_const(&ro, i) ? r->dx[i] : r->ct[i - p->consts];
        operands[n++] = tow_is_null(start) ? tow_full(r->t, r->in_types[i], -0.0) : start;
    }
    params.carry = (int64_t)n - params.consts;
    for (uint32_t i = (uint32_t)(p->consts + p->carry); i < e->n_in; i++)
        if (!r->linear[i]) operands[n++] = r->x[i];
    for (uint32_t i = (uint32_t)p->carry; i < e->n_out; i++)
        if (!tow_is_null(r->ct[i])) operands[n++] = r->ct[i];
    tow__bind(r->t, &tow__scan_p, &params, n, operands, body->n_outputs, results);
    tow_graph_release(body);
    n = 0;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (ro.body_linear[i]) r->dx[i] = results[n++];
}
