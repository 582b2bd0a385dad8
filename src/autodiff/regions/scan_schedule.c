/* The known loop of a scheduled scan: it keeps the states with which some iterations begin, in place of all of them.
 *
 *   sweep    scan over the kept states: (carries, stacks) -> (carries, stacks), ys: the state with which it begins
 *                iterations from that state to the next kept one: (carries, stacks) -> (carries, stacks)
 *
 * With states in a file (tier.c), the kept ones are carries of the sweep, too, of which each state is written to its
 * slot.
 *
 * Stacks are ys of the loop, and residuals that are no states: arrays [length, ...] of which each iteration writes its
 * row, in place. The kept ones have a row for each slot. */
#include "src/autodiff/regions/scan_schedule.h"
#include "src/autodiff/regions/record.h"
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

/* (carries, stacks, [kept, slot]), (first iteration, end) -> (carries, stacks, [kept, slot]), (carries as they were) */
static void run_to_next(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow__scan_sweep *w = user;
    const size_t n = (size_t)w->n_carry + w->n_stacks, n_kept = w->tier.file_rows > 0 ? w->n_carry : 0;
    const tow_value slot = in[n + n_kept], *x = in + n + (n_kept ? n_kept + 1 : 0);
    const tow_fori_options bounds = TOW_FORI_OPTIONS(.lower = x[0], .upper = x[1], .max_iterations = w->p->length);
    for (size_t c = 0; c < n_kept; c++) out[n + c] = tow__tier_write(t, &w->tier, c, in[n + c], in[c], slot);
    if (n_kept) out[n + n_kept] = tow_add_scalar(slot, 1);
    tow_fori_function(t, 0, 0, run_iteration, w, &bounds, n, in, out);
    for (size_t c = n_kept; c < w->n_carry; c++)
        out[n + c] = tow__in_shape(in[c], tow__stack_row(tow_value_type(in[c])));
}

/* The iterations with which kept states begin, and the ends of those that run from them. False: no memory. */
static bool make_bounds(tow_trace *t, const tow__scan_sweep *w, tow_value bounds[2])
{
    const size_t rows = (size_t)w->l->form.slots + 1;
    const tow_type type = tow_make_type(TOW_I32, 1, (int64_t[]){(int64_t)rows + 1});
    int32_t *positions = tow__trace_alloc(t, rows + 1, sizeof *positions);
    if (!positions) return false;
    tow__binomial_positions(w->p->length, w->l->form.slots, positions);
    positions[rows] = (int32_t)w->p->length;
    const tow_value both = tow_constant_data(t, type, positions);
    bounds[0] = tow_slice_axis(both, 0, 0, (int64_t)rows);
    bounds[1] = tow_slice_axis(both, 0, 1, (int64_t)rows + 1);
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
    tow_value *all = tow__trace_alloc(t, n + w->n_carry + 1, sizeof *all), bounds[2];
    if (!operands || !all) return false;
    list_operands(w, operands);
    const tow_type *types = tow__types_of(t, w->n_carry, operands + w->n_consts);
    const int64_t rows = l->form.slots + 1, file_rows = l->form.file_slots;
    if (!types || !tow__tier_begin(t, &w->tier, file_rows, w->n_carry, types) || !make_bounds(t, w, bounds))
        return false;
    w->operands = operands;
    memcpy(all, operands + w->n_consts, w->n_carry * sizeof *all);
    for (uint32_t k = 0; k < w->n_stacks; k++)
        all[w->n_carry + k] = tow__empty_stack(t, tow_graph_output_type(g, w->stack_output[k]), w->p->length);
    const size_t n_kept = file_rows > 0 ? w->n_carry : 0;
    for (size_t c = 0; c < n_kept; c++) all[n + c] = tow__empty_stack(t, types[c], rows - file_rows);
    if (n_kept) all[n + n_kept] = tow_scalar(t, TOW_I32, 0);
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = rows);
    w->kept = all + n;
    tow_scan_function(t, run_to_next, w, &options, n_kept ? n + n_kept + 1 : n, all, 2, bounds, w->n_carry - n_kept,
                      all, w->kept + n_kept);
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

/* Hands the files over; returns how many operands that is. */
static size_t list_files(const tow__scan_sweep *w, tow_value *in)
{
    const size_t n = w->tier.file_rows > 0 ? 2 * (size_t)w->n_carry : 0;
    for (size_t i = 0; i < n; i++) in[i] = tow__split_residual(w->l->s, w->tier.values[i], TOW__INPUT, false);
    return n;
}

bool tow__scan_sweep_replay(const tow__scan_sweep *w, const tow_value *residuals, tow_value *rows)
{
    const tow__loop_split *l = w->l;
    tow__split *s = l->s;
    tow__replay_params params = {.length = w->p->length,
                                 .reverse = w->p->reverse,
                                 .consts = w->n_consts,
                                 .carry = w->n_carry,
                                 .slots = l->form.slots,
                                 .file_slots = l->form.file_slots};
    tow_value *in = tow__trace_alloc(s->u, l->part.known->n_inputs + 2 * (size_t)w->n_carry, sizeof *in);
    tow_value *states = tow__trace_alloc(s->u, w->n_carry, sizeof *states);
    if (!in || !states) return false;
    params.body = tow__advance_graph(l, w->carry_output, w->n_carry);
    if (!params.body) return false;
    size_t n = 0;
    for (uint32_t i = 0, known = 0; i < l->n_in; i++) {
        if (l->unknown[i]) continue;
        if (known == w->n_consts + w->n_carry) n += list_files(w, in + n);
        const bool carry = known >= w->n_consts && known < w->n_consts + w->n_carry;
        in[n++] = carry ? tow__split_residual(s, w->kept[known - w->n_consts], TOW__INPUT, false)
                        : tow__split_staged(s, l->e->in[tow__operand_behind(l, i)]);
        known++;
    }
    if (n == w->n_consts + w->n_carry) n += list_files(w, in + n);
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
