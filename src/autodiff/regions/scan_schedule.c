/* The known loop of a scheduled scan: it keeps the states with which some iterations begin, in place of all of them.
 *
 *   sweep    scan over the kept states: (carries, stacks) -> (carries, stacks), ys: the state with which it begins
 *                iterations from that state to the next kept one: (carries, stacks) -> (carries, stacks)
 *
 * Stacks are ys of the loop, and residuals that are no states: arrays [length, ...] of which each iteration writes its
 * row, in place. The kept ones have a row for each slot. */
#include "src/autodiff/regions/scan_schedule.h"
#include "src/autodiff/regions/schedule.h"
#include "tow/control.h"
#include "tow/ops.h"

/* ---- results of the known body ----------------------------------------------------------------------------------- */

/* The value behind names. */
static uint32_t root_in(const tow_graph *g, uint32_t v)
{
    while (g->vars[v].equation != TOW__INPUT && g->equations[g->vars[v].equation].primitive == &tow__name_p)
        v = g->equations[g->vars[v].equation].in[0];
    return v;
}

/* The known carry that output o of the known body is at the beginning of the iteration, or TOW__INPUT. */
static uint32_t state_at(const tow__scan_sweep *w, uint32_t o)
{
    const tow_graph *g = w->l->part.known;
    const uint32_t root = root_in(g, g->outputs[o]);
    for (uint32_t c = 0; c < w->n_carry; c++)
        if (g->inputs[w->n_consts + c] == root) return c;
    return TOW__INPUT;
}

bool tow__scan_sweep_begin(tow__scan_sweep *w, const tow__loop_split *l)
{
    tow_trace *t = l->s->k;
    const tow_graph *g = l->part.known;
    *w = (tow__scan_sweep){.l = l, .p = l->e->params, .n_residuals = l->part.n_residuals};
    w->carry_output = tow__trace_alloc(t, l->carry, sizeof *w->carry_output);
    w->stack_output = tow__trace_alloc(t, g->n_outputs, sizeof *w->stack_output);
    w->state = tow__trace_alloc(t, w->n_residuals, sizeof *w->state);
    if (!w->carry_output || !w->stack_output || !w->state) return false;
    for (uint32_t i = 0; i < tow__first_rest(l); i++) {
        w->n_consts += i < l->consts && !l->unknown[i];
        w->n_carry += i >= l->consts && !l->unknown[i];
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_out; i++) {
        if (l->part.out_unknown[i]) continue;
        if (i < l->carry && !l->carry_unknown[i]) w->carry_output[w->n_outputs++] = n;
        if (i >= l->carry) w->stack_output[w->n_stacks++] = n;
        n++;
    }
    w->n_ys = w->n_stacks;
    for (uint32_t r = 0; r < w->n_residuals; r++) {
        w->state[r] = state_at(w, n + r);
        w->replays |= w->state[r] != TOW__INPUT;
        if (w->state[r] == TOW__INPUT || l->s->verifies) w->stack_output[w->n_stacks++] = n + r;
    }
    return true;
}

/* ---- the sweep --------------------------------------------------------------------------------------------------- */

/* (number, carries, stacks) -> (carries, stacks) */
static void run_iteration(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow__scan_sweep *w = user;
    const tow_graph *g = w->l->part.known;
    const tow_value row = tow__row_number(in[0], w->p->length, w->p->reverse);
    const tow_value *x = tow__iteration_inputs(t, g, w->n_consts, w->n_carry, w->operands, in + 1, row);
    tow_value *y = tow__trace_alloc(t, g->n_outputs, sizeof *y);
    if (!x || !y) return;
    tow__inline(t, g, x, y);
    for (uint32_t c = 0; c < w->n_carry; c++) out[c] = y[w->carry_output[c]];
    for (uint32_t k = 0; k < w->n_stacks; k++)
        out[w->n_carry + k] = tow__with_row(t, in[1 + w->n_carry + k], y[w->stack_output[k]], row);
}

/* (carries, stacks), (first iteration, end) -> (carries, stacks), (carries as they were) */
static void run_to_next(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow__scan_sweep *w = user;
    const size_t n = (size_t)w->n_carry + w->n_stacks;
    const tow_fori_options bounds =
        TOW_FORI_OPTIONS(.lower = in[n], .upper = in[n + 1], .max_iterations = w->p->length);
    tow_fori_function(t, 0, 0, run_iteration, w, &bounds, n, in, out);
    for (uint32_t c = 0; c < w->n_carry; c++) out[n + c] = tow__in_shape(in[c], tow__stack_row(tow_value_type(in[c])));
}

static tow_value empty_stack(tow_trace *t, tow_type type)
{
    tow__empty_params p = {.dtype = type.dtype, .shape = {.n = type.rank}};
    memcpy(p.shape.v, type.dims, sizeof p.shape.v);
    return tow__bind1(t, &tow__empty_p, &p, 0, NULL);
}

/* The iterations with which kept states begin, and the ends of those that run from them. False: no memory. */
static bool make_bounds(tow_trace *t, const tow__scan_sweep *w, tow_value bounds[2])
{
    const size_t rows = (size_t)w->p->slots + 1;
    const tow_type type = tow_make_type(TOW_I32, 1, (int64_t[]){(int64_t)rows});
    int32_t *positions = tow__trace_alloc(t, rows + 1, sizeof *positions);
    if (!positions) return false;
    tow__binomial_positions(w->p->length, w->p->slots, positions);
    positions[rows] = (int32_t)w->p->length;
    bounds[0] = tow_constant_data(t, type, positions);
    bounds[1] = tow_constant_data(t, type, positions + 1);
    return true;
}

/* Lists the operands of the known body. */
static void list_operands(const tow__scan_sweep *w, tow_value *operands)
{
    const tow__loop_split *l = w->l;
    for (uint32_t i = 0, n = 0; i < l->n_in; i++)
        if (!l->unknown[i]) operands[n++] = l->s->vars[l->e->in[tow__operand_behind(l, i)]].known;
}

bool tow__scan_sweep_bind(tow__scan_sweep *w, tow_value *residuals)
{
    const tow__loop_split *l = w->l;
    tow_trace *t = l->s->k;
    const tow_graph *g = l->part.known;
    const size_t n = (size_t)w->n_carry + w->n_stacks;
    tow_value *operands = tow__trace_alloc(t, g->n_inputs, sizeof *operands);
    tow_value *all = tow__trace_alloc(t, n, sizeof *all), bounds[2];
    w->kept = tow__trace_alloc(t, w->n_carry, sizeof *w->kept);
    if (!operands || !all || !w->kept || !make_bounds(t, w, bounds)) return false;
    list_operands(w, operands);
    w->operands = operands;
    memcpy(all, operands + w->n_consts, w->n_carry * sizeof *all);
    for (uint32_t k = 0; k < w->n_stacks; k++)
        all[w->n_carry + k] = empty_stack(t, tow__stack_of(tow_graph_output_type(g, w->stack_output[k]), w->p->length));
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = w->p->slots + 1);
    tow_scan_function(t, run_to_next, w, &options, n, all, 2, bounds, w->n_carry, all, w->kept);
    if (tow__failed(t)) return false;
    uint32_t next = w->n_carry;
    for (uint32_t i = 0, c = 0; i < l->n_out; i++) {
        if (l->part.out_unknown[i]) continue;
        if (i < l->carry && !l->carry_unknown[i]) l->s->vars[l->e->out[i]].known = all[c++];
        if (i >= l->carry) l->s->vars[l->e->out[i]].known = all[next++];
    }
    for (uint32_t r = 0; r < w->n_residuals; r++)
        residuals[r] = w->state[r] == TOW__INPUT || l->s->verifies ? all[next++] : (tow_value){0};
    return true;
}

/* ---- the replay -------------------------------------------------------------------------------------------------- */

bool tow__scan_sweep_replay(const tow__scan_sweep *w, const tow_value *residuals, tow_value *rows)
{
    const tow__loop_split *l = w->l;
    tow__split *s = l->s;
    tow__replay_params params = {.length = w->p->length,
                                 .reverse = w->p->reverse,
                                 .consts = w->n_consts,
                                 .carry = w->n_carry,
                                 .slots = w->p->slots};
    tow_value *in = tow__trace_alloc(s->u, l->part.known->n_inputs, sizeof *in);
    tow_value *states = tow__trace_alloc(s->u, w->n_carry, sizeof *states);
    if (!in || !states) return false;
    params.body = tow__advance_graph(l, w->carry_output, w->n_carry);
    if (!params.body) return false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_in; i++) {
        if (l->unknown[i]) continue;
        const bool carry = n >= w->n_consts && n < w->n_consts + w->n_carry;
        in[n] = carry ? tow__split_residual(s, w->kept[n - w->n_consts], TOW__INPUT, false)
                      : tow__split_staged(s, l->e->in[tow__operand_behind(l, i)]);
        n++;
    }
    tow__set_source(s->u, &l->e->source);
    tow__bind(s->u, &tow__replay_p, &params, n, in, w->n_carry, states);
    tow_graph_release(params.body);
    for (uint32_t r = 0; r < w->n_residuals && !tow__failed(s->u); r++) {
        if (w->state[r] == TOW__INPUT) continue;
        rows[r] = states[w->state[r]];
        if (!s->verifies) continue;
        const tow_value kept = tow__split_residual(s, residuals[r], TOW__INPUT, true);
        rows[r] = tow__split_same_bits(s->u, l->e, w->state[r], rows[r], kept);
    }
    return !tow__failed(s->u);
}
