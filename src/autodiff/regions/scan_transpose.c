/* Transpose of scan: a scan in the other direction.
 *
 *   scan         (c, k, x)                           -> (k, y)
 *   transpose    (c, [sum of ct c, ct k], [x, ct y]) -> ([sum of ct c, ct k], [ct x])
 *
 * Cotangents add up in the order of the iterations written out, so the bits are theirs. Sums of constants are carries
 * that start from the caller's sums. The cotangent of a carry is a sum, too, to which the later iterations have
 * contributed; scan_sums.c says from which value each sum starts.
 *
 * Scans in which carries or operands coincide are rewritten before (scan_normal.c). Two kinds of scans remain in which
 * some contributions are added in another order: those with a ring of carries of which some, but not all, start from
 * one value or from a constant, and loops whose rewritten program would become too large. */
#include "src/autodiff/regions/scan_transpose.h"
#include "src/autodiff/regions/schedule.h"
#include "src/ops/rules.h"

/* ---- the body ---------------------------------------------------------------------------------------------------- */

/* True if carry i starts from a value whose sum is continued inside the loop. */
static bool is_continued(const tow__scan_loop *l, uint32_t i)
{
    if (i < l->consts || i >= l->xs || tow_is_null(l->r->dx[i])) return false;
    const tow__chain_position *pl = &l->positions[i - l->consts];
    if (pl->delay == 0 || l->positions[pl->head].accumulation != TOW__CONTINUED) return false;
    return l->positions[pl->head].length - pl->delay < l->p->length;
}

static bool any_continued(const tow__scan_loop *l)
{
    for (uint32_t i = l->consts; i < l->xs; i++)
        if (is_continued(l, i)) return true;
    return false;
}

/* The starting value of the sum of the last carry of a chain in this iteration: the caller's sum of the initial value
 * that this carry holds now, or -0. sums: [n_in] of the continued initial values. */
TOW__OWN_FRAME static tow_value initial_sum_here(const tow__scan_loop *l, tow_trace *t, uint32_t head,
                                                 const tow_value *sums, tow_value position)
{
    tow_value start = {0};
    for (uint32_t k = head; k != TOW__INPUT; k = l->positions[k].next) {
        uint32_t i = tow__loop_carry_input(l, k);
        if (!is_continued(l, i)) continue;
        int64_t row = tow__loop_row(l, l->positions[head].length - l->positions[k].delay);
        tow_value here = tow_eq(position, tow_scalar(t, TOW_I32, (double)row));
        start = tow_where(here, sums[i], tow_is_null(start) ? tow_full(t, tow__loop_input_type(l, i), -0.0) : start);
    }
    return start;
}

/* One cotangent for each value that the body returns: those of ys are added to the carry's, from the last y to the
 * first. */
TOW__OWN_FRAME static void join_outputs(const tow__scan_loop *l, tow_value *ct)
{
    for (uint32_t n = 0; n < l->n_out; n++) {
        uint32_t i = n < l->carries ? n : l->n_out - 1 - (n - l->carries), to = i;
        for (uint32_t m = 0; m < n && to == i; m++) {
            uint32_t j = m < l->carries ? m : l->n_out - 1 - (m - l->carries);
            if (l->body->outputs[j] == l->body->outputs[i]) to = j;
        }
        if (to == i) continue;
        ct[to] = tow__add_or(ct[to], ct[i]);
        ct[i] = (tow_value){0};
    }
}

/* Values in the transposed body. */
typedef struct body_values {
    tow_value *in, *dx, *sums, *out; /* [n_in] */
    tow_value *ct;                   /* [n_out] */
} body_values;

/* Records the inputs of the transposed body, and what its sums start from. */
TOW__OWN_FRAME static void record_inputs(const tow__scan_loop *l, tow_trace *t, const body_values *b)
{
    tow_value position = {0};
    for (uint32_t i = 0; i < l->consts; i++)
        if (!l->linear[i]) b->in[i] = tow__input(t, tow__loop_input_type(l, i), NULL);
    for (uint32_t i = l->consts; i < l->xs; i++)
        if (is_continued(l, i)) b->sums[i] = tow__input(t, tow__loop_input_type(l, i), NULL);
    for (uint32_t i = 0; i < l->consts; i++)
        if (l->linear[i]) b->dx[i] = tow__input(t, tow__loop_input_type(l, i), NULL);
    for (uint32_t k = 0; k < l->carries; k++)
        b->ct[k] = tow__input(t, tow__loop_input_type(l, tow__loop_carry_input(l, k)), NULL);
    for (uint32_t i = l->xs; i < l->n_in; i++)
        if (!l->linear[i]) b->in[i] = tow__input(t, tow__loop_input_type(l, i), NULL);
    for (uint32_t y = l->carries; y < l->n_out; y++)
        if (!tow_is_null(l->ct[y])) b->ct[y] = tow__input(t, l->body->vars[l->body->outputs[y]].type, NULL);
    for (uint32_t k = 0; k < l->carries; k++)
        if (!tow_is_null(l->positions[k].rows))
            b->dx[tow__loop_carry_input(l, l->positions[k].last)] =
                tow__input(t, tow__loop_input_type(l, tow__loop_carry_input(l, k)), NULL);
    if (any_continued(l)) position = tow__input(t, tow_make_type(TOW_I32, 0, NULL), NULL);
    for (uint32_t k = 0; k < l->carries; k++)
        if (l->positions[k].delay == 1 && l->positions[k].accumulation == TOW__CONTINUED)
            b->dx[tow__loop_carry_input(l, l->positions[k].last)] = initial_sum_here(l, t, k, b->sums, position);
    join_outputs(l, b->ct);
}

/* Lists the results of the transposed body in b->out; returns how many there are. */
TOW__OWN_FRAME static size_t list_results(const tow__scan_loop *l, tow_trace *t, const body_values *b)
{
    size_t n = 0;
    for (uint32_t i = 0; i < l->n_in; i++) {
        l->adds_nothing[i] = tow_is_null(b->dx[i]);
        if (!l->linear[i] || (l->adds_nothing[i] && i >= l->xs)) continue;
        b->out[n++] = l->adds_nothing[i] ? tow_full(t, tow__loop_input_type(l, i), -0.0) : b->dx[i];
    }
    return n;
}

/* (c, [continued sums], | [sum ct c, ct k], | [x, ct y, stacked rows, position]) -> ([sum ct c, ct k], [ct x]).
 * `position` is the index of the iteration; it is there if sums are continued. */
static tow_status transposed_body(const tow__scan_loop *l, tow_graph **result)
{
    tow_trace *t = tow__trace_begin(l->body->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    tow__set_phase(t, TOW__BACKWARD);
    body_values b = {.in = tow__trace_alloc(t, 4 * (size_t)l->n_in, sizeof *b.in),
                     .ct = tow__trace_alloc(t, l->n_out, sizeof *b.ct)};
    if (!b.in || !b.ct) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    b.dx = b.in + l->n_in, b.sums = b.dx + l->n_in, b.out = b.sums + l->n_in;
    record_inputs(l, t, &b);
    if (l->p->slots > 0) /* the iteration runs again beside its transpose */
        tow__transpose_body(t, l->body, l->linear, b.in, b.ct, b.dx);
    else
        tow__transpose_inline(t, l->body, l->linear, b.in, b.ct, b.dx);
    return tow__trace_end(t, list_results(l, t, &b), b.out, false, result);
}

/* ---- the rule ---------------------------------------------------------------------------------------------------- */

/* Operands of the transposed scan in the order of its body; sets the counts. */
TOW__OWN_FRAME static size_t list_operands(const tow__scan_loop *l, tow__scan_params *params, tow_value *operands)
{
    size_t n = 0;
    for (uint32_t i = 0; i < l->consts; i++)
        if (!l->linear[i]) operands[n++] = l->r->x[i];
    for (uint32_t i = l->consts; i < l->xs; i++)
        if (is_continued(l, i)) operands[n++] = l->r->dx[i];
    params->consts = (int64_t)n;
    for (uint32_t i = 0; i < l->xs; i++)
        if (l->linear[i])
            operands[n++] = tow_is_null(l->start[i]) ? tow_full(l->r->t, l->r->in_types[i], -0.0) : l->start[i];
    params->carry = (int64_t)n - params->consts;
    for (uint32_t i = l->xs; i < l->n_in; i++)
        if (!l->linear[i]) operands[n++] = l->r->x[i];
    for (uint32_t y = l->carries; y < l->n_out; y++)
        if (!tow_is_null(l->ct[y])) operands[n++] = l->ct[y];
    for (uint32_t k = 0; k < l->carries; k++)
        if (!tow_is_null(l->positions[k].rows)) operands[n++] = l->positions[k].rows;
    if (any_continued(l)) operands[n++] = tow_iota(l->r->t, tow_make_type(TOW_I32, 1, (int64_t[]){l->p->length}), 0);
    return n;
}

/* True if a cotangent enters the loop. */
TOW__OWN_FRAME static bool has_cotangents(const tow__scan_loop *l)
{
    bool any = false;
    for (uint32_t i = l->consts; i < l->xs; i++) any |= !tow_is_null(l->start[i]);
    for (uint32_t k = 0; k < l->carries; k++) any |= !tow_is_null(l->positions[k].rows);
    for (uint32_t y = l->carries; y < l->n_out; y++) any |= !tow_is_null(l->ct[y]);
    return any;
}

/* New sums from the results. xs that are one array get their rows from the last operand to the first. */
TOW__OWN_FRAME static void take_results(tow__scan_loop *l, const tow_value *results)
{
    size_t n = 0;
    tow_value *dx = l->r->dx;
    for (uint32_t i = 0; i < l->xs; i++) {
        if (!l->linear[i]) continue;
        tow_value result = results[n++];
        if (l->adds_nothing[i]) continue;
        dx[i] = l->continues[i] ? result : tow__add_or(dx[i], result);
    }
    for (uint32_t i = l->xs; i < l->n_in; i++) n += l->linear[i] && !l->adds_nothing[i];
    for (uint32_t i = l->n_in; i-- > l->xs;) {
        if (!l->linear[i] || l->adds_nothing[i]) continue;
        uint32_t first = l->r->first[i];
        dx[first] = tow__add_or(dx[first], results[--n]);
    }
}

static void transpose_loop(tow__scan_loop *l)
{
    tow__transpose *r = l->r;
    tow__scan_params params = {.length = l->p->length, .reverse = !l->p->reverse};
    tow_value *operands = tow__trace_alloc(r->t, 3 * (size_t)l->n_in + l->n_out + 1, sizeof *operands);
    tow_value *results = tow__trace_alloc(r->t, l->n_in, sizeof *results);
    if (!operands || !results) return;
    tow__scan_start_sums(l);
    if (!has_cotangents(l)) {
        for (uint32_t i = 0; i < l->consts; i++)
            if (l->linear[i]) r->dx[i] = l->start[i];
        return;
    }
    if (transposed_body(l, &params.body) != TOW_OK) {
        tow__adopt_error(r->t);
        return;
    }
    size_t n = list_operands(l, &params, operands);
    tow__bind_fetching(
        r->t,
        &(tow__bound_scan){
            .params = &params, .n_in = n, .n_out = params.body->n_outputs, .operands = operands, .results = results});
    tow_graph_release(params.body);
    take_results(l, results);
}

/* False: no memory. */
static bool find_flow(tow__scan_loop *l)
{
    bool *values = tow__linear_values(l->r->t, l->body, l->linear);
    if (values) tow__scan_flow(l->p, values, l->flow);
    return values != NULL;
}

void tow__scan_transpose(tow__transpose *r)
{
    const tow__equation *e = r->e;
    const tow__scan_params *p = e->params;
    tow__scan_loop l = {.r = r, .p = p, .body = p->body, .consts = (uint32_t)p->consts, .carries = (uint32_t)p->carry};
    l.xs = l.consts + l.carries, l.n_in = e->n_in, l.n_out = e->n_out;
    if (p->length == 0) { /* the loop is the identity on its carries */
        for (uint32_t k = 0; k < l.carries; k++)
            r->dx[tow__loop_carry_input(&l, k)] = tow__add_or(r->dx[tow__loop_carry_input(&l, k)], r->ct[k]);
        return;
    }
    l.linear = tow__trace_alloc(r->t, l.n_in, sizeof *l.linear);
    l.flow = tow__trace_alloc(r->t, l.carries, sizeof *l.flow);
    l.positions = tow__trace_alloc(r->t, l.carries, sizeof *l.positions);
    l.ct = tow__trace_alloc(r->t, l.n_out, sizeof *l.ct);
    l.start = tow__trace_alloc(r->t, l.n_in, sizeof *l.start);
    l.continues = tow__trace_alloc(r->t, l.n_in, sizeof(bool));
    l.adds_nothing = tow__trace_alloc(r->t, l.n_in, sizeof(bool));
    if (!l.linear || !l.flow || !l.positions || !l.ct || !l.start || !l.continues || !l.adds_nothing) return;
    for (uint32_t i = 0; i < l.n_in; i++) l.linear[i] = r->linear[i] || (i >= l.consts && i < l.xs);
    memcpy(l.ct, r->ct, l.n_out * sizeof *l.ct);
    tow__scan_params separated = *p;
    bool separate = false;
    if (!find_flow(&l) || tow__scan_normalize(r, l.flow, &separate)) return;
    if (separate) {
        if (tow__scan_separate(p, &separated.body) != TOW_OK) {
            tow__adopt_error(r->t);
            return;
        }
        l.p = &separated, l.body = separated.body;
    }
    if (!separate || find_flow(&l)) transpose_loop(&l);
    if (separate) tow_graph_release(separated.body);
}
