/* Transpose of scan: a scan in the other direction.
 *
 *   scan         (c, k, x)                           -> (k, y)
 *   transpose    (c, [sum of ct c, ct k], [x, ct y]) -> ([sum of ct c, ct k], [ct x])
 *
 * Cotangents add up in the order of the iterations written out. Sums of constants are carries that start from what the
 * caller has accumulated already; where there is nothing yet they start from -0, the neutral element of floating-point
 * addition. The cotangent of a carry is a sum, too, of what the later iterations add. A body may hand values on:
 *
 *   carries of one chain      u -> k1 -> k2: u of iteration t is k1 in t + 1 and k2 in t + 2; its sum travels back
 *                             from k2 over k1 to u
 *   ys of a chain             rows of u, k1 or k2 come before the terms of iterations: where that matters they are
 *                             read one or more iterations earlier, from a shifted copy of all of them (STACKED)
 *   initial values            go on from the caller's sums; where that matters their first terms are added to these
 *                             in the iteration that adds them (CHOSEN)
 *   rings                     carries that change places: sums go on from those of the initial values
 *   ys that are constants     all rows come before the loop
 *
 * Scans in which carries or operands coincide are rewritten before (scan_normal.c). There remain carries of a ring of
 * which some, but not all, start from one value or from a constant, and loops that would become too large: what meets
 * there is added in another order. */
#include "src/autodiff/scan_flow.h"
#include "src/ops/rules.h"

typedef enum manner {
    PLAIN,
    CHOSEN,
    STACKED
} manner;

/* A carry's place: depth 1 takes the value of the body, depth d + 1 that of depth d; 0: in a ring. */
typedef struct place {
    uint32_t depth, head; /* head: the carry of depth 1 */
    uint32_t next;        /* the carry of depth + 1, or TOW__INPUT */
    uint32_t length;      /* of a head: carries in the chain */
    uint32_t last;        /* of a head: the deepest carry */
    manner manner;        /* of a head */
    tow_value rows; /* of a head: STACKED: what the sum of the deepest carry starts from, iteration by iteration */
} place;

typedef struct loop {
    tow__transpose *r;
    const tow__scan_params *p;
    const tow_graph *body;
    uint32_t consts, carries, xs, n_in, n_out; /* xs: index of the first */
    bool *linear;                              /* [n_in] inputs of the body */
    tow__flow *flow;
    place *places;    /* [carries] */
    tow_value *ct;    /* [n_out] of ys, null where it does not enter the loop as it is */
    tow_value *start; /* [n_in] of constants and carries: what their sums start from */
    bool *goes_on;    /* [n_in] the result is the new sum, not a term of it */
    bool *nothing;    /* [n_in] the body adds nothing */
} loop;

static tow_type input_type(const loop *l, uint32_t i) { return l->body->vars[l->body->inputs[i]].type; }
static uint32_t carry_input(const loop *l, uint32_t k) { return l->consts + k; }
/* The row that iteration t reads and writes. */
static int64_t row_index(const loop *l, int64_t t) { return l->p->reverse ? l->p->length - 1 - t : t; }

/* n rows of -0. */
static tow_value neutral_rows(const loop *l, tow_type type, int64_t n)
{
    memmove(type.dims + 1, type.dims, (size_t)type.rank * sizeof *type.dims);
    type.rank++;
    type.dims[0] = n;
    return tow_full(l->r->t, type, -0.0);
}

/* ---- chains ------------------------------------------------------------------------------------------------------ */

TOW__OWN_FRAME static void find_places(loop *l)
{
    for (uint32_t k = 0; k < l->carries; k++) l->places[k].next = TOW__INPUT;
    for (uint32_t k = 0; k < l->carries; k++)
        if (l->flow[k].kind == TOW__FLOW_CARRY) l->places[l->flow[k].index].next = k;
    for (uint32_t k = 0; k < l->carries; k++) {
        if (l->flow[k].kind == TOW__FLOW_CARRY) continue;
        uint32_t depth = 1;
        for (uint32_t c = k; c != TOW__INPUT; c = l->places[c].next) {
            l->places[c].depth = depth;
            l->places[c].head = k;
            l->places[k].length = depth++;
            l->places[k].last = c;
        }
    }
}

/* Where output y is taken from chain `head`: 0: the body's value, d: the carry of depth d; -1: not from there. */
static int64_t depth_of(const loop *l, uint32_t head, uint32_t y)
{
    uint32_t v = l->body->outputs[y];
    tow__flow f = l->flow[head];
    if (f.kind == TOW__FLOW_MADE && f.index == v) return 0;
    if (f.kind == TOW__FLOW_ELEMENT && l->body->inputs[f.index] == v) return 0;
    for (uint32_t k = head, d = 1; k != TOW__INPUT; k = l->places[k].next, d++)
        if (l->body->inputs[carry_input(l, k)] == v) return d;
    return -1;
}

static int ys_at(const loop *l, uint32_t head, int64_t depth)
{
    int n = 0;
    for (uint32_t y = l->carries; y < l->n_out; y++) n += !tow_is_null(l->ct[y]) && depth_of(l, head, y) == depth;
    return n;
}

/* The carry of a chain at depth d. */
static uint32_t at_depth(const loop *l, uint32_t head, uint32_t d)
{
    while (--d > 0) head = l->places[head].next;
    return head;
}

/* How the sums of a chain's values must be made. Two terms may be added in either order. */
static manner choose_manner(const loop *l, uint32_t head)
{
    bool stacked = false, chosen = false, between = false;
    uint32_t length = l->places[head].length;
    int terms = 0;
    for (uint32_t d = length + 1; d-- > 0;) {
        int ys = ys_at(l, head, d);
        stacked |= ys > 0 && terms > 0 && terms + ys > 2;
        between |= d == length ? ys > 1 : ys > 0 && d > 0;
        terms += ys;
        if (d == 0) break;
        uint32_t k = at_depth(l, head, d);
        terms += tow__terms(l->body, l->body->inputs[carry_input(l, k)]);
        chosen |= terms >= 2 && !tow_is_null(l->r->dx[carry_input(l, k)]);
        terms += d > 1 && !tow_is_null(l->r->ct[k]);
    }
    return stacked || (chosen && between) ? STACKED : chosen ? CHOSEN : PLAIN;
}

/* What has been added to the value that is at depth d when the loop is over: it was made inside, or is an initial
 * value. */
static tow_value added_after(const loop *l, uint32_t head, uint32_t d)
{
    tow_value ct = l->r->ct[at_depth(l, head, d)];
    if (d <= l->p->length) return ct;
    return tow__add_or(l->r->dx[carry_input(l, at_depth(l, head, d - (uint32_t)l->p->length))], ct);
}

/* ct of y, by `shift` iterations later, -0 before that. */
static tow_value shifted(const loop *l, uint32_t y, int64_t shift)
{
    tow_value ct = l->r->ct[y];
    int64_t n = l->p->length;
    if (shift == 0) return ct;
    tow_value none = neutral_rows(l, l->body->vars[l->body->outputs[y]].type, shift < n ? shift : n);
    if (shift >= n) return none;
    if (l->p->reverse) return tow_concatenate(2, (tow_value[]){tow_slice_axis(ct, 0, shift, n), none}, 0);
    return tow_concatenate(2, (tow_value[]){none, tow_slice_axis(ct, 0, 0, n - shift)}, 0);
}

/* The sums of the initial values so far as rows of the iterations in which they are at the end of the chain; or null. */
static tow_value initial_rows(const loop *l, uint32_t head)
{
    uint32_t length = l->places[head].length;
    int64_t n = length < l->p->length ? length : l->p->length;
    tow_type type = input_type(l, carry_input(l, head));
    tow_value *parts = tow__trace_alloc(l->r->t, (size_t)n + 1, sizeof *parts);
    bool any = false;
    size_t rest = n < l->p->length;
    if (!parts) return (tow_value){0};
    for (int64_t t = 0; t < n; t++) {
        tow_value sum = l->r->dx[carry_input(l, at_depth(l, head, length - (uint32_t)t))];
        any |= !tow_is_null(sum);
        tow_value row = tow_is_null(sum) ? neutral_rows(l, type, 1) : tow_expand_dims(sum, 0);
        parts[l->p->reverse ? n - 1 - t + (int64_t)rest : t] = row;
    }
    if (rest) parts[l->p->reverse ? 0 : n] = neutral_rows(l, type, l->p->length - n);
    return any ? tow_concatenate((size_t)n + rest, parts, 0) : (tow_value){0};
}

/* All that comes before the terms of the body: what was added after the loop, then ys from the last to the first. */
static void stack_chain(loop *l, uint32_t head)
{
    place *chain = &l->places[head];
    chain->rows = initial_rows(l, head);
    for (uint32_t d = 1; d <= chain->length; d++)
        l->start[carry_input(l, at_depth(l, head, d))] = added_after(l, head, d);
    for (uint32_t y = l->n_out; y-- > l->carries;) {
        int64_t at = tow_is_null(l->ct[y]) ? -1 : depth_of(l, head, y);
        if (at < 0) continue;
        chain->rows = tow__add_or(chain->rows, shifted(l, y, chain->length - at));
        for (int64_t d = at + 1; d <= chain->length; d++) {
            int64_t t = l->p->length - d + at;
            tow_value *start = &l->start[carry_input(l, at_depth(l, head, (uint32_t)d))];
            if (t >= 0) *start = tow__add_or(*start, tow__scan_row(l->r->ct[y], row_index(l, t)));
        }
        l->ct[y] = (tow_value){0};
    }
}

static void start_chain(loop *l, uint32_t head)
{
    place *chain = &l->places[head];
    chain->manner = choose_manner(l, head);
    for (uint32_t d = 1; d <= chain->length; d++) {
        uint32_t k = at_depth(l, head, d), i = carry_input(l, k);
        l->goes_on[i] = chain->manner != PLAIN;
        l->start[i] = chain->manner == CHOSEN ? added_after(l, head, d) : l->r->ct[k];
    }
    if (chain->manner == STACKED) stack_chain(l, head);
}

static void add_row(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add(in[0], in[1]);
}

/* Adds the rows first, first + step, ... of ct to a sum of `type`, from the last to the first. */
static tow_value add_rows(const loop *l, tow_value sum, tow_type type, tow_value ct, int64_t first, int64_t step)
{
    const tow_scan_options backwards = {.reverse = true};
    tow_type all = tow_value_type(ct);
    int64_t start[TOW_MAX_RANK] = {first}, stride[TOW_MAX_RANK];
    for (int d = 0; d < TOW_MAX_RANK; d++) stride[d] = d == 0 ? step : 1;
    if (first >= l->p->length) return sum;
    ct = tow_slice(ct, start, all.dims, stride);
    if (tow_is_null(sum)) sum = tow_full(l->r->t, type, -0.0);
    tow_scan_function(l->r->t, add_row, NULL, &backwards, 1, &sum, 1, &ct, 0, &sum, NULL);
    return sum;
}

/* Constants: rows of ys that hand them out come first. */
static void start_constant(loop *l, uint32_t i)
{
    l->start[i] = l->r->dx[i];
    l->goes_on[i] = true;
    for (uint32_t y = l->n_out; y-- > l->carries;) {
        if (l->body->outputs[y] != l->body->inputs[i] || tow_is_null(l->ct[y])) continue;
        l->start[i] = add_rows(l, l->start[i], input_type(l, i), l->ct[y], 0, 1);
        l->ct[y] = (tow_value){0};
    }
}

/* Carry k of a ring ends with the initial value of carry `from`, whose sum goes on: rows of ys come first. */
static void start_ring(loop *l, uint32_t k)
{
    tow__flow final = tow__scan_final(l->p, l->flow, k);
    uint32_t from = final.index, i = carry_input(l, k);
    int64_t round = 1;
    if (final.kind != TOW__FLOW_CARRY) { /* two carries read this one: scan_normal.c has made them one before */
        tow_trace_fail(l->r->t, TOW_INTERNAL_ERROR, "scan: carry %u is neither in a chain nor in a ring", (unsigned)k);
        return;
    }
    for (uint32_t c = l->flow[k].index; c != k; c = l->flow[c].index) round++;
    l->goes_on[i] = true;
    l->start[i] = tow__add_or(l->r->dx[carry_input(l, from)], l->r->ct[k]);
    for (uint32_t y = l->n_out; y-- > l->carries;) {
        if (tow_is_null(l->r->ct[y])) continue;
        for (uint32_t c = k, n = 0; n < round; c = l->flow[c].index, n++) {
            if (l->body->outputs[y] != l->body->inputs[carry_input(l, c)]) continue;
            int64_t t = 0; /* the first iteration in which carry c has the value */
            for (uint32_t q = c; q != from; q = l->flow[q].index) t++;
            int64_t first = l->p->reverse ? (l->p->length - 1 - t) % round : t;
            if (t < l->p->length) l->start[i] = add_rows(l, l->start[i], input_type(l, i), l->r->ct[y], first, round);
            l->ct[y] = (tow_value){0};
        }
    }
}

TOW__OWN_FRAME static void start_sums(loop *l)
{
    for (uint32_t i = 0; i < l->consts; i++)
        if (l->linear[i]) start_constant(l, i);
    for (uint32_t k = 0; k < l->carries; k++) {
        if (l->flow[k].kind != TOW__FLOW_CARRY) start_chain(l, k);
        if (l->places[k].depth == 0) start_ring(l, k);
    }
}

/* ---- the body ---------------------------------------------------------------------------------------------------- */

/* Initial value i has a sum that a chain goes on from inside the loop. */
static bool is_chosen(const loop *l, uint32_t i)
{
    if (i < l->consts || i >= l->xs || tow_is_null(l->r->dx[i])) return false;
    const place *pl = &l->places[i - l->consts];
    if (pl->depth == 0 || l->places[pl->head].manner != CHOSEN) return false;
    return l->places[pl->head].length - pl->depth < l->p->length;
}

static bool any_chosen(const loop *l)
{
    for (uint32_t i = l->consts; i < l->xs; i++)
        if (is_chosen(l, i)) return true;
    return false;
}

/* What the sum of the deepest carry starts from in this iteration. sums: [n_in] those of the chosen initial values. */
TOW__OWN_FRAME static tow_value choose_start(const loop *l, tow_trace *t, uint32_t head, const tow_value *sums,
                                             tow_value position)
{
    tow_value start = {0};
    for (uint32_t k = head; k != TOW__INPUT; k = l->places[k].next) {
        uint32_t i = carry_input(l, k);
        if (!is_chosen(l, i)) continue;
        int64_t row = row_index(l, l->places[head].length - l->places[k].depth);
        tow_value here = tow_eq(position, tow_scalar(t, TOW_I32, (double)row));
        start = tow_select(here, sums[i], tow_is_null(start) ? tow_full(t, input_type(l, i), -0.0) : start);
    }
    return start;
}

/* One cotangent for each value that the body hands out: ys are added to the carry's from the last to the first. */
TOW__OWN_FRAME static void join_outputs(const loop *l, tow_value *ct)
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

/* Inputs of the transposed body, and what its sums start from. */
TOW__OWN_FRAME static void begin_body(const loop *l, tow_trace *t, const body_values *b)
{
    tow_value position = {0};
    for (uint32_t i = 0; i < l->consts; i++)
        if (!l->linear[i]) b->in[i] = tow__input(t, input_type(l, i), NULL);
    for (uint32_t i = l->consts; i < l->xs; i++)
        if (is_chosen(l, i)) b->sums[i] = tow__input(t, input_type(l, i), NULL);
    for (uint32_t i = 0; i < l->consts; i++)
        if (l->linear[i]) b->dx[i] = tow__input(t, input_type(l, i), NULL);
    for (uint32_t k = 0; k < l->carries; k++) b->ct[k] = tow__input(t, input_type(l, carry_input(l, k)), NULL);
    for (uint32_t i = l->xs; i < l->n_in; i++)
        if (!l->linear[i]) b->in[i] = tow__input(t, input_type(l, i), NULL);
    for (uint32_t y = l->carries; y < l->n_out; y++)
        if (!tow_is_null(l->ct[y])) b->ct[y] = tow__input(t, l->body->vars[l->body->outputs[y]].type, NULL);
    for (uint32_t k = 0; k < l->carries; k++)
        if (!tow_is_null(l->places[k].rows))
            b->dx[carry_input(l, l->places[k].last)] = tow__input(t, input_type(l, carry_input(l, k)), NULL);
    if (any_chosen(l)) position = tow__input(t, tow_make_type(TOW_I32, 0, NULL), NULL);
    for (uint32_t k = 0; k < l->carries; k++)
        if (l->places[k].depth == 1 && l->places[k].manner == CHOSEN)
            b->dx[carry_input(l, l->places[k].last)] = choose_start(l, t, k, b->sums, position);
    join_outputs(l, b->ct);
}

/* Outputs of the transposed body in b->out; returns how many. */
TOW__OWN_FRAME static size_t end_body(const loop *l, tow_trace *t, const body_values *b)
{
    size_t n = 0;
    for (uint32_t i = 0; i < l->n_in; i++) {
        l->nothing[i] = tow_is_null(b->dx[i]);
        if (!l->linear[i] || (l->nothing[i] && i >= l->xs)) continue;
        b->out[n++] = l->nothing[i] ? tow_full(t, input_type(l, i), -0.0) : b->dx[i];
    }
    return n;
}

/* (c, [chosen sums], | [sum ct c, ct k], | [x, ct y, stacked rows, position]) -> ([sum ct c, ct k], [ct x]). */
static tow_status transposed_body(const loop *l, tow_graph **result)
{
    tow_trace *t = tow__trace_begin(l->body->ctx);
    if (!t) return TOW_OUT_OF_MEMORY;
    body_values b = {.in = tow__trace_alloc(t, 4 * (size_t)l->n_in, sizeof *b.in),
                     .ct = tow__trace_alloc(t, l->n_out, sizeof *b.ct)};
    if (!b.in || !b.ct) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    b.dx = b.in + l->n_in, b.sums = b.dx + l->n_in, b.out = b.sums + l->n_in;
    begin_body(l, t, &b);
    tow__transpose_inline(t, l->body, l->linear, b.in, b.ct, b.dx);
    return tow__trace_end(t, end_body(l, t, &b), b.out, false, result);
}

/* ---- the rule ---------------------------------------------------------------------------------------------------- */

/* Operands of the transposed scan in the order of its body; sets the counts. */
TOW__OWN_FRAME static size_t list_operands(const loop *l, tow__scan_params *params, tow_value *operands)
{
    size_t n = 0;
    for (uint32_t i = 0; i < l->consts; i++)
        if (!l->linear[i]) operands[n++] = l->r->x[i];
    for (uint32_t i = l->consts; i < l->xs; i++)
        if (is_chosen(l, i)) operands[n++] = l->r->dx[i];
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
        if (!tow_is_null(l->places[k].rows)) operands[n++] = l->places[k].rows;
    if (any_chosen(l)) operands[n++] = tow_iota(l->r->t, tow_make_type(TOW_I32, 1, (int64_t[]){l->p->length}), 0);
    return n;
}

/* True if a cotangent enters the loop. */
TOW__OWN_FRAME static bool has_cotangents(const loop *l)
{
    bool any = false;
    for (uint32_t i = l->consts; i < l->xs; i++) any |= !tow_is_null(l->start[i]);
    for (uint32_t k = 0; k < l->carries; k++) any |= !tow_is_null(l->places[k].rows);
    for (uint32_t y = l->carries; y < l->n_out; y++) any |= !tow_is_null(l->ct[y]);
    return any;
}

/* New sums from the results. xs that are one array get their rows from the last operand to the first. */
TOW__OWN_FRAME static void take_results(loop *l, const tow_value *results)
{
    size_t n = 0;
    tow_value *dx = l->r->dx;
    for (uint32_t i = 0; i < l->xs; i++) {
        if (!l->linear[i]) continue;
        tow_value result = results[n++];
        if (l->nothing[i]) continue;
        dx[i] = l->goes_on[i] ? result : tow__add_or(dx[i], result);
    }
    for (uint32_t i = l->xs; i < l->n_in; i++) n += l->linear[i] && !l->nothing[i];
    for (uint32_t i = l->n_in; i-- > l->xs;) {
        if (!l->linear[i] || l->nothing[i]) continue;
        uint32_t first = l->r->first[i];
        dx[first] = tow__add_or(dx[first], results[--n]);
    }
}

static void transpose_loop(loop *l)
{
    tow__transpose *r = l->r;
    tow__scan_params params = {.length = l->p->length, .reverse = !l->p->reverse};
    tow_value *operands = tow__trace_alloc(r->t, 3 * (size_t)l->n_in + l->n_out + 1, sizeof *operands);
    tow_value *results = tow__trace_alloc(r->t, l->n_in, sizeof *results);
    if (!operands || !results) return;
    start_sums(l);
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
    tow__bind(r->t, &tow__scan_p, &params, n, operands, params.body->n_outputs, results);
    tow_graph_release(params.body);
    take_results(l, results);
}

/* False: no memory. */
static bool find_flow(loop *l)
{
    bool *values = tow__linear_values(l->r->t, l->body, l->linear);
    if (values) tow__scan_flow(l->p, values, l->flow);
    return values != NULL;
}

void tow__scan_transpose(tow__transpose *r)
{
    const tow__equation *e = r->e;
    const tow__scan_params *p = e->params;
    loop l = {.r = r, .p = p, .body = p->body, .consts = (uint32_t)p->consts, .carries = (uint32_t)p->carry};
    l.xs = l.consts + l.carries, l.n_in = e->n_in, l.n_out = e->n_out;
    if (p->length == 0) { /* the loop is the identity on its carries */
        for (uint32_t k = 0; k < l.carries; k++)
            r->dx[carry_input(&l, k)] = tow__add_or(r->dx[carry_input(&l, k)], r->ct[k]);
        return;
    }
    l.linear = tow__trace_alloc(r->t, l.n_in, sizeof *l.linear);
    l.flow = tow__trace_alloc(r->t, l.carries, sizeof *l.flow);
    l.places = tow__trace_alloc(r->t, l.carries, sizeof *l.places);
    l.ct = tow__trace_alloc(r->t, l.n_out, sizeof *l.ct);
    l.start = tow__trace_alloc(r->t, l.n_in, sizeof *l.start);
    l.goes_on = tow__trace_alloc(r->t, l.n_in, sizeof(bool));
    l.nothing = tow__trace_alloc(r->t, l.n_in, sizeof(bool));
    if (!l.linear || !l.flow || !l.places || !l.ct || !l.start || !l.goes_on || !l.nothing) return;
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
    if (!separate || find_flow(&l)) {
        find_places(&l);
        transpose_loop(&l);
    }
    if (separate) tow_graph_release(separated.body);
}
