/* A while that keeps states: the known loop keeps at most `slots` of them, however many iterations follow, and the
 * linear loop is a replay_while, whose transpose makes the others again.
 *
 * The states are those that Wang, Moin and Iaccarino keep (Minimal repetition dynamic checkpointing algorithm for
 * unsteady adjoint calculation, SIAM Journal on Scientific Computing 31, 2009), but for those of level 0, which are
 * only kept before all slots are taken: others would be given up within `slots` iterations.
 *
 *   kept states    0 .. last, in the order of their iterations, with levels that never rise; state 0 has the highest
 *   the first iterations, as many as there are slots: each keeps its state, at level 0
 *   after them     if slots behind `last` are free: the state goes there, at level 1
 *                  else it takes the place of the first state with the level of the last one, at the next level, and
 *                  the states behind that place are given up
 *   the next state is kept after as many iterations as slots are free then, and one
 *
 * So n iterations run forward at most t times more than once, for the least t with C(slots + t, t) >= n: as often as if
 * n had been known (tests/unit/autodiff/test_online.c).
 *
 *   outer loop     while the condition holds: keep the state, then the iterations before the next one that is kept
 *                  (carries, condition, number, last, positions, levels, kept) */
#include "src/autodiff/regions/record.h"
#include "src/autodiff/regions/schedule.h"
#include "src/ops/rules.h"
#include "tow/control.h"
#include "tow/ops.h"

/* The places of further carries behind the known ones. */
enum {
    HOLDS,  /* bool [], whether one more iteration begins */
    NUMBER, /* i32 [], iterations that have run */
    LAST,
    POSITIONS,
    LEVELS,
    KEPT
};

typedef struct sweep {
    const tow__loop_split *l;
    int64_t slots, most; /* most: iterations, 0: no bound */
    tow__tier tier;
    uint32_t n_consts, n_carry;
    uint32_t *carry_output; /* [n_carry] outputs of the known body that are known carries */
    tow_graph *condition;   /* without what it does not need */
    tow_value *operands;    /* known consts, known carries */
    tow_value end;          /* in the body of the inner loop: the iteration before which it ends */
} sweep;

static tow_type scalar(tow_dtype dtype) { return tow_make_type(dtype, 0, NULL); }

static tow_value integer(tow_trace *t, int64_t i) { return tow_scalar(t, TOW_I32, (double)i); }

static int64_t most_of(const sweep *w) { return w->most > 0 ? w->most : INT32_MAX; }

/* ---- iterations -------------------------------------------------------------------------------------------------- */

/* The condition at these known carries. */
static tow_value condition_at(tow_trace *t, const sweep *w, const tow_value *carries)
{
    const tow__loop_split *l = w->l;
    tow_value *in = tow__trace_alloc(t, w->condition->n_inputs + 1, sizeof *in), holds = {0};
    uint32_t n = 0;
    if (!in) return holds;
    for (uint32_t i = 0; i < tow__first_rest(l); i++) {
        if (l->unknown[i]) continue;
        in[i] = n < w->n_consts ? tow__import(t, w->operands[n]) : carries[n - w->n_consts];
        n++;
    }
    tow__inline(t, w->condition, in, &holds);
    return holds;
}

/* in: carries, condition, number */
static void before_end(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const sweep *w = user;
    (void)t;
    out[0] = tow_and(in[w->n_carry + HOLDS], tow_lt(in[w->n_carry + NUMBER], tow__import(t, w->end)));
}

/* carries, condition, number -> those after one iteration */
static void run_iteration(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const sweep *w = user;
    const tow_graph *g = w->l->part.known;
    const tow_value *x = tow__iteration_inputs(t, g, w->n_consts, w->n_carry, w->operands, in, (tow_value){0});
    tow_value *y = tow__trace_alloc(t, g->n_outputs, sizeof *y);
    if (!x || !y) return;
    tow__inline(t, g, x, y);
    for (uint32_t c = 0; c < w->n_carry; c++) out[c] = y[w->carry_output[c]];
    out[w->n_carry + HOLDS] = condition_at(t, w, out);
    out[w->n_carry + NUMBER] = tow_add_scalar(in[w->n_carry + NUMBER], 1);
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

/* The slot and the level of a state, and the iterations that run before the next one is kept. */
typedef struct choice {
    tow_value slot, level, iterations;
} choice;

/* in: from HOLDS on */
static choice choose(tow_trace *t, const sweep *w, const tow_value *in)
{
    const tow_value number = in[NUMBER], all = integer(t, w->slots), one = integer(t, 1), none = integer(t, 0);
    const tow_value early = tow_lt(number, all), full = tow_eq(in[LAST], tow_add_scalar(all, -1));
    const tow_value lowest = tow_gather(in[LEVELS], in[LAST]);
    const tow_value higher = tow_reduce_sum(tow_convert(tow_gt(in[LEVELS], lowest), TOW_I32), 1, (int[]){0});
    const tow_value later_slot = tow_where(full, higher, tow_add_scalar(in[LAST], 1));
    const tow_value later_level = tow_where(full, tow_add_scalar(lowest, 1), one);
    const tow_value first_level = tow_where(tow_eq(number, none), integer(t, INT32_MAX), none);
    choice c = {.slot = tow_where(early, number, later_slot), .level = tow_where(early, first_level, later_level)};
    const tow_value left = tow_sub(integer(t, most_of(w)), number);
    const tow_value before_next = w->slots == 1 ? left : tow_sub(all, c.slot);
    const tow_value filling = tow_lt(tow_add_scalar(number, 1), all);
    c.iterations = tow_min(tow_where(filling, one, before_next), left);
    return c;
}

/* Keeps the state, and runs the iterations before the next one that is kept. */
static void keep_and_run(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    sweep *w = user;
    const tow_value *state = in + w->n_carry;
    tow_value *next = out + w->n_carry;
    const choice c = choose(t, w, state);
    if (tow__failed(t)) return;
    w->end = tow_add(state[NUMBER], c.iterations);
    next[LAST] = c.slot;
    next[POSITIONS] = tow__with_row(t, state[POSITIONS], state[NUMBER], c.slot);
    next[LEVELS] = tow__with_row(t, state[LEVELS], c.level, c.slot);
    for (uint32_t k = 0; k < w->n_carry; k++)
        next[KEPT + k] = tow__tier_write(t, &w->tier, k, state[KEPT + k], in[k], c.slot);
    const int64_t longest = w->slots == 1 ? w->most : w->slots; /* a bound for derivatives of the derivative */
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = w->most > 0 ? longest : 0);
    tow_while_function(t, before_end, run_iteration, w, &options, w->n_carry + 2, in, out);
}

static void goes_on(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const sweep *w = user;
    out[0] = tow_and(in[w->n_carry + HOLDS], tow_lt(in[w->n_carry + NUMBER], integer(t, most_of(w))));
}

/* ---- the known loop ---------------------------------------------------------------------------------------------- */

static bool sweep_begin(sweep *w, const tow__loop_split *l)
{
    tow_trace *t = l->s->k;
    const uint32_t rest = tow__first_rest(l);
    *w = (sweep){.l = l, .slots = l->form.slots, .most = l->form.most};
    w->carry_output = tow__trace_alloc(t, l->carry, sizeof *w->carry_output);
    w->operands = tow__trace_alloc(t, rest, sizeof *w->operands);
    if (!w->carry_output || !w->operands) return false;
    for (uint32_t i = 0, n = 0; i < rest; i++) {
        if (l->unknown[i]) continue;
        w->operands[n++] = l->s->vars[l->e->in[tow__operand_behind(l, i)]].known;
        w->n_consts += i < l->consts;
    }
    for (uint32_t i = 0, n = 0; i < l->carry; i++) {
        if (!l->carry_unknown[i]) w->carry_output[w->n_carry++] = n;
        n += !l->part.out_unknown[i];
    }
    const tow_graph *condition = tow__nested(l->e->primitive, l->e->params, 0);
    if (tow__dce(condition, NULL, false, NULL, &w->condition) == TOW_OK) return true;
    tow__adopt_error(t);
    return false;
}

/* Binds the known loop and sets the known results. kept: [KEPT + n_carry] what it hands over, from HOLDS on. */
static bool sweep_bind(sweep *w, tow_value *kept)
{
    const tow__loop_split *l = w->l;
    tow_trace *t = l->s->k;
    const size_t n = (size_t)w->n_carry + KEPT + w->n_carry;
    tow_value *all = tow__trace_alloc(t, n, sizeof *all), *state = all ? all + w->n_carry : NULL;
    if (!all) return false;
    const tow_type *types = tow__types_of(t, w->n_carry, w->operands + w->n_consts);
    if (!types || !tow__tier_begin(t, &w->tier, l->form.file_slots, w->n_carry, types)) return false;
    memcpy(all, w->operands + w->n_consts, w->n_carry * sizeof *all);
    state[HOLDS] = condition_at(t, w, all);
    state[NUMBER] = state[LAST] = integer(t, 0);
    state[POSITIONS] = state[LEVELS] = tow__zeros(t, tow__stack_of(scalar(TOW_I32), w->slots));
    for (uint32_t k = 0; k < w->n_carry; k++)
        state[KEPT + k] = tow__empty_stack(t, types[k], w->slots - l->form.file_slots);
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = w->most);
    tow_while_function(t, goes_on, keep_and_run, w, &options, n, all, all);
    if (tow__failed(t)) return false;
    for (uint32_t i = 0, c = 0; i < l->carry; i++)
        if (!l->carry_unknown[i]) l->s->vars[l->e->out[i]].known = all[c++];
    memcpy(kept, state, (KEPT + w->n_carry) * sizeof *kept);
    return true;
}

/* ---- the linear loop --------------------------------------------------------------------------------------------- */

/* The residuals of an iteration from its state: (known consts, known carries) -> residuals. */
static tow_graph *residual_graph(const tow__loop_split *l)
{
    const uint32_t n = l->part.n_residuals;
    const uint32_t first = l->part.known->n_outputs - n;
    uint32_t *output = tow__trace_alloc(l->s->u, n, sizeof *output);
    for (uint32_t r = 0; output && r < n; r++) output[r] = first + r;
    return output ? tow__advance_graph(l, output, n) : NULL;
}

/* Does the linear loop have input i of the body, besides the known ones? */
static bool enters(const tow__loop_split *l, uint32_t i)
{
    const bool carry = i >= l->consts;
    return l->unknown[i] && (carry || l->part.input_used[i]);
}

/* (known consts, unknown consts, states, carries) -> carries */
static tow_status linear_body(const sweep *w, const tow_graph *residuals, tow_graph **result)
{
    const tow__loop_split *l = w->l;
    const tow_graph *g = l->part.unknown;
    const uint32_t rest = tow__first_rest(l);
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    tow_value *known = t ? tow__trace_alloc(t, residuals->n_inputs + 1, sizeof *known) : NULL;
    tow_value *of = t ? tow__trace_alloc(t, rest, sizeof *of) : NULL; /* inputs of the body */
    uint32_t n = 0;
    if (!known || !of) {
        tow__trace_abandon(t);
        return TOW_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < l->consts; i++)
        if (!l->unknown[i]) known[n++] = of[i] = tow__input(t, tow_graph_input_type(l->form.body, i), NULL);
    for (uint32_t i = 0; i < l->consts; i++)
        if (enters(l, i)) of[i] = tow__input(t, tow_graph_input_type(l->form.body, i), NULL);
    for (uint32_t i = l->consts; i < rest; i++)
        if (!l->unknown[i]) known[n++] = of[i] = tow__input(t, tow_graph_input_type(l->form.body, i), NULL);
    for (uint32_t i = l->consts; i < rest; i++)
        if (enters(l, i)) of[i] = tow__input(t, tow_graph_input_type(l->form.body, i), NULL);
    n = 0;
    for (uint32_t i = 0; i < rest; i++)
        if (l->part.input_used[i]) in[n++] = of[i];
    tow__inline(t, residuals, known, in + n);
    tow__inline(t, g, in, out);
    return tow__trace_end(t, g->n_outputs, out, false, result);
}

/* Lists the operands of the linear loop; returns how many there are. *consts: how many of them are consts. */
static size_t linear_operands(const sweep *w, const tow_value *kept, tow_value *in, size_t *consts)
{
    const tow__loop_split *l = w->l;
    tow__split *s = l->s;
    size_t n = 0;
    static const int handed[] = {NUMBER, LAST, POSITIONS};
    for (int i = 0; i < 3; i++) in[n++] = tow__split_residual(s, kept[handed[i]], TOW__INPUT, false);
    for (uint32_t k = 0; k < w->n_carry; k++) in[n++] = tow__split_residual(s, kept[KEPT + k], TOW__INPUT, false);
    for (uint32_t k = 0; k < 2 * w->n_carry && w->tier.file_rows > 0; k++)
        in[n++] = tow__split_residual(s, w->tier.values[k], TOW__INPUT, false);
    const size_t first_const = n;
    for (uint32_t i = 0; i < l->consts; i++)
        if (!l->unknown[i]) in[n++] = tow__split_staged(s, l->e->in[i]);
    for (uint32_t i = 0; i < tow__first_rest(l); i++)
        if (enters(l, i)) in[n++] = tow__split_staged(s, l->e->in[i]);
    *consts = n - first_const - l->part.unknown->n_outputs;
    return n;
}

static bool linear_bind(const sweep *w, const tow_value *kept)
{
    const tow__loop_split *l = w->l;
    tow__split *s = l->s;
    const uint32_t n_out = l->part.unknown->n_outputs;
    tow_value *in = tow__trace_alloc(s->u, 3 + 3 * (size_t)w->n_carry + l->n_in, sizeof *in),
              *out = tow__trace_alloc(s->u, n_out, sizeof *out);
    tow__replay_while_params params = {
        .states = w->n_carry, .slots = w->slots, .file_slots = l->form.file_slots, .max_iterations = w->most};
    size_t consts;
    if (!in || !out) return false;
    if (n_out == 0) return true;
    tow_graph *residuals = residual_graph(l);
    params.advance = residuals ? tow__advance_graph(l, w->carry_output, w->n_carry) : NULL;
    if (params.advance && linear_body(w, residuals, &params.body) != TOW_OK) tow__adopt_error(s->u);
    if (params.body) {
        const size_t n = linear_operands(w, kept, in, &consts);
        params.consts = (int64_t)consts;
        tow__set_source(s->u, &l->e->source);
        tow__bind(s->u, &tow__replay_while_p, &params, n, in, n_out, out);
    }
    for (uint32_t i = 0, n = 0; i < l->n_out; i++)
        if (l->part.out_staged[i]) s->vars[l->e->out[i]].staged = out[n++];
    tow_graph_release(residuals);
    tow_graph_release(params.advance);
    tow_graph_release(params.body);
    return !tow__failed(s->u);
}

void tow__while_split_keeping(tow__loop_split *l)
{
    sweep w;
    /* first copies of all iterations would need memory that nobody can bound: nothing in the loop is compared */
    const bool verifies = tow__verify_gradients(l->s->g->ctx, false), fine = tow__loop_split_body(l);
    tow__verify_gradients(l->s->g->ctx, verifies);
    if (!fine) return;
    if (sweep_begin(&w, l)) {
        tow_value *kept = tow__trace_alloc(l->s->k, KEPT + (size_t)w.n_carry, sizeof *kept);
        if (kept && sweep_bind(&w, kept) && linear_bind(&w, kept)) tow__loop_split_results(l);
    }
    tow_graph_release(w.condition);
}
