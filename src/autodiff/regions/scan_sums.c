/* The starting values of the sums of cotangents of a transposed scan.
 *
 * In the iterations written out, the sum of a value grows in reverse order of its readers: first what stands after the
 * loop, then the rows of ys, because an array of all rows is made after the last iteration, then the bodies of the
 * iterations, from the last one back. A loop adds in the order of its iterations, so what comes before that is added to
 * the start of its sums:
 *
 *   chains      u -> k1 -> k2: u of iteration t is k1 in t + 1 and k2 in t + 2. Its sum travels back from k2 over k1
 *               to u. Rows of ys that hold u, k1 or k2 come before the contributions of iterations: where that matters,
 *               they are read one or more iterations earlier, from a shifted copy of all of them (TOW__STACKED)
 *   initial     sums go on from the caller's sums; where that matters, their first contributions are added to these in
 *    values     the iteration that makes them (TOW__CONTINUED)
 *   rings       carries that change places: sums go on from those of the initial values
 *   constants   all rows of ys that hold a constant come before the loop
 *
 * Sums that have no start begin with -0, the neutral element of floating-point addition. */
#include "src/autodiff/regions/scan_transpose.h"
#include "src/ops/rules.h"

/* n rows of -0. */
static tow_value neutral_rows(const tow__scan_loop *l, tow_type type, int64_t n)
{
    memmove(type.dims + 1, type.dims, (size_t)type.rank * sizeof *type.dims);
    type.rank++;
    type.dims[0] = n;
    return tow_full(l->r->t, type, -0.0);
}

/* ---- chains ------------------------------------------------------------------------------------------------------ */

TOW__OWN_FRAME static void find_chains(tow__scan_loop *l)
{
    for (uint32_t k = 0; k < l->carries; k++) l->positions[k].next = TOW__INPUT;
    for (uint32_t k = 0; k < l->carries; k++)
        if (l->flow[k].kind == TOW__FLOW_CARRY) l->positions[l->flow[k].index].next = k;
    for (uint32_t k = 0; k < l->carries; k++) {
        if (l->flow[k].kind == TOW__FLOW_CARRY) continue;
        uint32_t delay = 1;
        for (uint32_t c = k; c != TOW__INPUT; c = l->positions[c].next) {
            l->positions[c].delay = delay;
            l->positions[c].head = k;
            l->positions[k].length = delay++;
            l->positions[k].last = c;
        }
    }
}

/* The origin of the rows of output y in chain `head`: 0: the value that the body computes, d: the carry of delay d;
 * -1: not from this chain. */
static int64_t delay_of_row(const tow__scan_loop *l, uint32_t head, uint32_t y)
{
    uint32_t v = l->body->outputs[y];
    tow__flow f = l->flow[head];
    if (f.kind == TOW__FLOW_MADE && f.index == v) return 0;
    if (f.kind == TOW__FLOW_ELEMENT && l->body->inputs[f.index] == v) return 0;
    for (uint32_t k = head, d = 1; k != TOW__INPUT; k = l->positions[k].next, d++)
        if (l->body->inputs[tow__loop_carry_input(l, k)] == v) return d;
    return -1;
}

/* The number of ys with a cotangent that hold the value at this delay. */
static int ys_at_delay(const tow__scan_loop *l, uint32_t head, int64_t delay)
{
    int n = 0;
    for (uint32_t y = l->carries; y < l->n_out; y++) n += !tow_is_null(l->ct[y]) && delay_of_row(l, head, y) == delay;
    return n;
}

/* The carry of a chain with this delay. */
static uint32_t carry_at_delay(const tow__scan_loop *l, uint32_t head, uint32_t delay)
{
    while (--delay > 0) head = l->positions[head].next;
    return head;
}

/* The accumulation of the sums of a chain's values that has the bits of the iterations written out. A loop
 * visits a value in the order of falling delays: at each delay it adds the rows of ys that hold the value there, then
 * what the body contributes. `added` counts contributions on that way. Two contributions may change places, as addition
 * commutes; with a third one the order decides:
 *
 *   late rows        rows of ys are added behind other contributions, in place of before them
 *   continued sum    an initial value has a sum already, to which the loop must add one contribution after the other
 *   rows in between  rows of ys come between such a sum and the contributions of the body */
static tow__accumulation choose_accumulation(const tow__scan_loop *l, uint32_t head)
{
    bool late_rows = false, continued_sum = false, rows_in_between = false;
    const uint32_t length = l->positions[head].length;
    int added = 0;
    for (uint32_t delay = length;; delay--) {
        const int ys = ys_at_delay(l, head, delay);
        late_rows |= ys > 0 && added > 0 && added + ys > 2;
        rows_in_between |= delay == length ? ys > 1 : ys > 0 && delay > 0;
        added += ys;
        if (delay == 0) break;
        const uint32_t k = carry_at_delay(l, head, delay), i = tow__loop_carry_input(l, k);
        added += tow__contributions(l->body, l->body->inputs[i]);
        continued_sum |= added >= 2 && !tow_is_null(l->r->dx[i]);
        added += delay > 1 && !tow_is_null(l->r->ct[k]); /* the final value of this carry */
    }
    if (late_rows || (continued_sum && rows_in_between)) return TOW__STACKED;
    return continued_sum ? TOW__CONTINUED : TOW__PLAIN;
}

/* The sum, before the loop is transposed, of the value that the carry of delay d holds at the end. The value was
 * computed inside of the loop, or is an initial value. */
static tow_value added_after(const tow__scan_loop *l, uint32_t head, uint32_t d)
{
    tow_value ct = l->r->ct[carry_at_delay(l, head, d)];
    if (d <= l->p->length) return ct;
    return tow__add_or(l->r->dx[tow__loop_carry_input(l, carry_at_delay(l, head, d - (uint32_t)l->p->length))], ct);
}

/* The rows of ct of y, each `shift` iterations later; the first ones are -0. */
static tow_value shifted(const tow__scan_loop *l, uint32_t y, int64_t shift)
{
    tow_value ct = l->r->ct[y];
    int64_t n = l->p->length;
    if (shift == 0) return ct;
    tow_value none = neutral_rows(l, l->body->vars[l->body->outputs[y]].type, shift < n ? shift : n);
    if (shift >= n) return none;
    if (l->p->reverse) return tow_concatenate(2, (tow_value[]){tow_slice_axis(ct, 0, shift, n), none}, 0);
    return tow_concatenate(2, (tow_value[]){none, tow_slice_axis(ct, 0, 0, n - shift)}, 0);
}

/* The caller's sums of the initial values, each in the row of the iteration in which the last carry holds that
 * value; null if there are none. */
static tow_value initial_rows(const tow__scan_loop *l, uint32_t head)
{
    uint32_t length = l->positions[head].length;
    int64_t n = length < l->p->length ? length : l->p->length;
    tow_type type = tow__loop_input_type(l, tow__loop_carry_input(l, head));
    tow_value *parts = tow__trace_alloc(l->r->t, (size_t)n + 1, sizeof *parts);
    bool any = false;
    size_t rest = n < l->p->length;
    if (!parts) return (tow_value){0};
    for (int64_t t = 0; t < n; t++) {
        tow_value sum = l->r->dx[tow__loop_carry_input(l, carry_at_delay(l, head, length - (uint32_t)t))];
        any |= !tow_is_null(sum);
        tow_value row = tow_is_null(sum) ? neutral_rows(l, type, 1) : tow_expand_dims(sum, 0);
        parts[l->p->reverse ? n - 1 - t + (int64_t)rest : t] = row;
    }
    if (rest) parts[l->p->reverse ? 0 : n] = neutral_rows(l, type, l->p->length - n);
    return any ? tow_concatenate((size_t)n + rest, parts, 0) : (tow_value){0};
}

/* Adds all that comes before the contributions of the body: what was added after the loop, then the ys from the last to
 * the first. */
static void stack_chain(tow__scan_loop *l, uint32_t head)
{
    tow__chain_position *chain = &l->positions[head];
    chain->rows = initial_rows(l, head);
    for (uint32_t d = 1; d <= chain->length; d++)
        l->start[tow__loop_carry_input(l, carry_at_delay(l, head, d))] = added_after(l, head, d);
    for (uint32_t y = l->n_out; y-- > l->carries;) {
        int64_t at = tow_is_null(l->ct[y]) ? -1 : delay_of_row(l, head, y);
        if (at < 0) continue;
        chain->rows = tow__add_or(chain->rows, shifted(l, y, chain->length - at));
        for (int64_t d = at + 1; d <= chain->length; d++) {
            int64_t t = l->p->length - d + at;
            tow_value *start = &l->start[tow__loop_carry_input(l, carry_at_delay(l, head, (uint32_t)d))];
            if (t >= 0) *start = tow__add_or(*start, tow__scan_row(l->r->ct[y], tow__loop_row(l, t)));
        }
        l->ct[y] = (tow_value){0};
    }
}

static void start_chain(tow__scan_loop *l, uint32_t head)
{
    tow__chain_position *chain = &l->positions[head];
    chain->accumulation = choose_accumulation(l, head);
    for (uint32_t d = 1; d <= chain->length; d++) {
        uint32_t k = carry_at_delay(l, head, d), i = tow__loop_carry_input(l, k);
        l->continues[i] = chain->accumulation != TOW__PLAIN;
        l->start[i] = chain->accumulation == TOW__CONTINUED ? added_after(l, head, d) : l->r->ct[k];
    }
    if (chain->accumulation == TOW__STACKED) stack_chain(l, head);
}

static void add_row(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add(in[0], in[1]);
}

/* Adds the rows first, first + step, ... of ct to a sum of `type`, from the last to the first. */
static tow_value add_rows(const tow__scan_loop *l, tow_value sum, tow_type type, tow_value ct, int64_t first,
                          int64_t step)
{
    const tow_scan_options backwards = TOW_SCAN_OPTIONS(.reverse = true);
    tow_type all = tow_value_type(ct);
    int64_t start[TOW_MAX_RANK] = {first}, stride[TOW_MAX_RANK];
    for (int d = 0; d < TOW_MAX_RANK; d++) stride[d] = d == 0 ? step : 1;
    if (first >= l->p->length) return sum;
    ct = tow_slice(ct, start, all.dims, stride);
    if (tow_is_null(sum)) sum = tow_full(l->r->t, type, -0.0);
    tow_scan_function(l->r->t, add_row, NULL, &backwards, 1, &sum, 1, &ct, 0, &sum, NULL);
    return sum;
}

/* The rows of ys that hold a constant come before the contributions of iterations. */
static void start_constant(tow__scan_loop *l, uint32_t i)
{
    l->start[i] = l->r->dx[i];
    l->continues[i] = true;
    for (uint32_t y = l->n_out; y-- > l->carries;) {
        if (l->body->outputs[y] != l->body->inputs[i] || tow_is_null(l->ct[y])) continue;
        l->start[i] = add_rows(l, l->start[i], tow__loop_input_type(l, i), l->ct[y], 0, 1);
        l->ct[y] = (tow_value){0};
    }
}

/* Carry k of a ring ends with the initial value of carry `from`: the sum of that value goes on, with the rows of ys
 * that hold it, then with the contributions of iterations. */
static void start_ring(tow__scan_loop *l, uint32_t k)
{
    tow__flow final = tow__scan_final(l->p, l->flow, k);
    uint32_t from = final.index, i = tow__loop_carry_input(l, k);
    int64_t round = 1;
    if (final.kind != TOW__FLOW_CARRY) { /* two carries read this one: scan_normal.c has made them one before */
        tow_trace_fail(l->r->t, TOW_INTERNAL_ERROR, "scan: carry %u is neither in a chain nor in a ring", (unsigned)k);
        return;
    }
    for (uint32_t c = l->flow[k].index; c != k; c = l->flow[c].index) round++;
    l->continues[i] = true;
    l->start[i] = tow__add_or(l->r->dx[tow__loop_carry_input(l, from)], l->r->ct[k]);
    for (uint32_t y = l->n_out; y-- > l->carries;) {
        if (tow_is_null(l->r->ct[y])) continue;
        for (uint32_t c = k, n = 0; n < round; c = l->flow[c].index, n++) {
            if (l->body->outputs[y] != l->body->inputs[tow__loop_carry_input(l, c)]) continue;
            int64_t t = 0; /* the first iteration in which carry c has the value */
            for (uint32_t q = c; q != from; q = l->flow[q].index) t++;
            int64_t first = l->p->reverse ? (l->p->length - 1 - t) % round : t;
            if (t < l->p->length)
                l->start[i] = add_rows(l, l->start[i], tow__loop_input_type(l, i), l->r->ct[y], first, round);
            l->ct[y] = (tow_value){0};
        }
    }
}

TOW__OWN_FRAME void tow__scan_start_sums(tow__scan_loop *l)
{
    find_chains(l);
    for (uint32_t i = 0; i < l->consts; i++)
        if (l->linear[i]) start_constant(l, i);
    for (uint32_t k = 0; k < l->carries; k++) {
        if (l->flow[k].kind != TOW__FLOW_CARRY) start_chain(l, k);
        if (l->positions[k].delay == 0) start_ring(l, k);
    }
}
