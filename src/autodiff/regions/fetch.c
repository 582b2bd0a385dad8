/* The loop that reads the rows of a replay in reverse order, and fetches them one by one. See replay.c. */
#include "src/autodiff/regions/schedule.h"
#include "tow/control.h"
#include "tow/ops.h"

/* A loop that fetches. Its bodies are recorded by C functions that find here what they read. */
typedef struct fetch {
    const tow__bound_scan *scan;
    const tow__replay_params *p;
    const tow_value *operands;      /* of the replay */
    const uint32_t *state_of;       /* [operands of the scan] the carry whose states operand i has, or TOW__INPUT */
    tow_value reach, reach_of_less; /* [slots, repetitions + 1] i32: of s + 1 slots, and of s */
    tow_value i;                    /* the iteration whose state is fetched, in the body that fetches it */
} fetch;

static size_t carries_of(const fetch *f) { return (size_t)f->p->carry; }

static tow_type state_type(const fetch *f, size_t c)
{
    return tow_graph_input_type(f->p->body, (size_t)f->p->consts + c);
}

/* ---- running forward --------------------------------------------------------------------------------------------- */

/* (number, state) -> state after that iteration */
static void run_iteration(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const fetch *f = user;
    const tow__replay_params *p = f->p;
    const tow_graph *g = p->body;
    const tow_value row = tow__row_number(in[0], p->length, p->reverse);
    const tow_value *x = tow__iteration_inputs(t, g, (size_t)p->consts, (size_t)p->carry, f->operands, in + 1, row);
    if (!x) return;
    tow__inline(t, g, x, out);
}

/* state of iteration `from` -> that of iteration `to` */
static void run_forward(tow_trace *t, const fetch *f, tow_value from, tow_value to, tow_value *state)
{
    const tow_fori_options bounds = TOW_FORI_OPTIONS(.lower = from, .upper = to, .max_iterations = f->p->length);
    tow_fori_function(t, 0, 0, run_iteration, (void *)f, &bounds, carries_of(f), state, state);
}

/* ---- keeping states ---------------------------------------------------------------------------------------------- */

/* To keep states, the loop carries i, last, positions, kept...; while a state is fetched cur, last, positions,
 * kept..., state... */
enum {
    NUMBER, /* i or cur */
    LAST,
    POSITIONS,
    KEPT
};

/* tow__binomial_split of the n = i + 1 - cur iterations that are left, with s = slots - last slots: for the least t
 * with reach(s, t) >= n, max(n - reach(s - 1, t), reach(s, t - 2)). */
static tow_value next_advance(tow_trace *t, const fetch *f, const tow_value *in)
{
    const tow_value n = tow_add_scalar(tow_sub(f->i, in[NUMBER]), 1), zero = tow_scalar(t, TOW_I32, 0);
    const tow_value row = tow_add_scalar(tow_neg(in[LAST]), (double)(f->p->slots - 1));
    const tow_value reach = tow_gather(f->reach, row), less = tow_gather(f->reach_of_less, row);
    const tow_value repetitions = tow_reduce_sum(tow_convert(tow_lt(reach, n), TOW_I32), 1, (int[]){0});
    const tow_value least = tow_gather(reach, tow_max(tow_add_scalar(repetitions, -2), zero));
    return tow_max(tow_sub(n, tow_gather(less, repetitions)), least);
}

static void keeps_more(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const fetch *f = user;
    (void)t;
    out[0] = tow_and(tow_lt(in[LAST], tow_scalar(t, TOW_I32, (double)(f->p->slots - 1))),
                     tow_lt(tow_add_scalar(in[NUMBER], 1), f->i));
}

static void run_and_keep(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const fetch *f = user;
    const size_t n = carries_of(f);
    const tow_value to = tow_add(in[NUMBER], next_advance(t, f, in));
    for (size_t c = 0; c < n; c++) out[KEPT + n + c] = in[KEPT + n + c];
    run_forward(t, f, in[NUMBER], to, out + KEPT + n);
    out[NUMBER] = to;
    out[LAST] = tow_add_scalar(in[LAST], 1);
    out[POSITIONS] = tow__with_row(t, in[POSITIONS], to, out[LAST]);
    for (size_t c = 0; c < n; c++) out[KEPT + c] = tow__with_row(t, in[KEPT + c], out[KEPT + n + c], out[LAST]);
}

/* Fetches the state of iteration in[NUMBER]. in, out: i, last, positions, kept...; state: becomes the state. */
static void fetch_state(tow_trace *t, fetch *f, const tow_value *in, tow_value *out, tow_value *state)
{
    const size_t n = carries_of(f);
    tow_value *all = tow__trace_alloc(t, KEPT + 2 * n, sizeof *all);
    if (!all) return;
    f->i = in[NUMBER];
    memcpy(all, in, (KEPT + n) * sizeof *all);
    all[NUMBER] = tow_gather(in[POSITIONS], in[LAST]);
    for (size_t c = 0; c < n; c++) all[KEPT + n + c] = tow__row_at(in[KEPT + c], in[LAST], state_type(f, c));
    if (f->p->slots > 1)
        tow_while_function(t, keeps_more, run_and_keep, f, &TOW_WHILE_OPTIONS(.max_iterations = f->p->slots),
                           KEPT + 2 * n, all, all);
    memcpy(state, all + KEPT + n, n * sizeof *state);
    run_forward(t, f, all[NUMBER], f->i, state);
    const tow_value is_last = tow_eq(tow_gather(all[POSITIONS], all[LAST]), f->i);
    out[NUMBER] = tow_add_scalar(f->i, -1);
    out[LAST] = tow_sub(all[LAST], tow_convert(is_last, TOW_I32));
    out[POSITIONS] = all[POSITIONS];
    memcpy(out + KEPT, all + KEPT, n * sizeof *out);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* in: carries of the scan, i, last, positions, kept..., its xs that are no states; out: its carries, i - 1, last,
 * positions, kept..., its ys. */
static void fetching_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    fetch *f = user;
    const tow__scan_params *p = f->scan->params;
    const size_t n_carry = (size_t)p->carry, consts = (size_t)p->consts, added = KEPT + carries_of(f);
    const tow_value *rows = in + n_carry + added;
    tow_value *state = tow__trace_alloc(t, carries_of(f), sizeof *state);
    tow_value *x = tow__trace_alloc(t, f->scan->n_in, sizeof *x), *y = tow__trace_alloc(t, f->scan->n_out, sizeof *y);
    if (!state || !x || !y) return;
    fetch_state(t, f, in + n_carry, out + n_carry, state);
    for (size_t i = 0; i < f->scan->n_in; i++) {
        const uint32_t c = f->state_of[i];
        if (i < consts)
            x[i] = tow__import(t, f->scan->operands[i]);
        else if (i < consts + n_carry)
            x[i] = in[i - consts];
        else
            x[i] = c == TOW__INPUT ? *rows++ : tow__in_shape(state[c], tow__stack_row(state_type(f, c)));
    }
    tow__inline(t, p->body, x, y);
    memcpy(out, y, n_carry * sizeof *out);
    memcpy(out + n_carry + added, y + n_carry, (f->scan->n_out - n_carry) * sizeof *out);
}

/* The tables of tow__binomial_reach. False: no memory. */
static bool make_tables(tow_trace *t, fetch *f)
{
    const int64_t slots = f->p->slots, n = f->p->length, width = tow__binomial_repetitions(n, slots) + 1;
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){slots, width});
    if (slots == 1) return true;
    int32_t *reach = tow__trace_alloc(t, (size_t)(slots * width), sizeof *reach),
            *less = tow__trace_alloc(t, (size_t)(slots * width), sizeof *less);
    if (!reach || !less) return false;
    for (int64_t s = 0; s < slots; s++)
        for (int64_t r = 0; r < width; r++) {
            reach[s * width + r] = (int32_t)tow__binomial_reach(s + 1, r, n);
            less[s * width + r] = s ? (int32_t)tow__binomial_reach(s, r, n) : 1;
        }
    f->reach = tow_constant_data(t, type, reach);
    f->reach_of_less = tow_constant_data(t, type, less);
    return !tow__failed(t);
}

/* i, last, positions, kept... as the loop starts. */
static void start_keeping(tow_trace *t, const fetch *f, tow_value *start)
{
    const int64_t slots = f->p->slots, rows = slots + 1;
    int32_t *positions = tow__trace_alloc(t, (size_t)rows, sizeof *positions);
    if (!positions) return;
    tow__binomial_positions(f->p->length, slots, positions);
    const bool twice = positions[slots] == positions[slots - 1];
    start[NUMBER] = tow_scalar(t, TOW_I32, (double)(f->p->length - 1));
    start[LAST] = tow_scalar(t, TOW_I32, (double)(twice ? slots - 1 : slots));
    start[POSITIONS] = tow_constant_data(t, tow_make_type(TOW_I32, 1, &rows), positions);
    memcpy(start + KEPT, f->operands + f->p->consts, carries_of(f) * sizeof *start);
}

static void bind_fetching(tow_trace *t, fetch *f)
{
    const tow__bound_scan *s = f->scan;
    const size_t n_carry = (size_t)s->params->carry, first = (size_t)s->params->consts, end = first + n_carry;
    const size_t all = n_carry + KEPT + carries_of(f), n_ys = s->n_out - n_carry;
    tow_value *carry = tow__trace_alloc(t, all, sizeof *carry), *xs = tow__trace_alloc(t, s->n_in, sizeof *xs);
    size_t n_xs = 0;
    if (!carry || !xs || !make_tables(t, f)) return;
    memcpy(carry, s->operands + first, n_carry * sizeof *carry);
    start_keeping(t, f, carry + n_carry);
    for (size_t i = end; i < s->n_in; i++)
        if (f->state_of[i] == TOW__INPUT) xs[n_xs++] = s->operands[i];
    const tow_scan_options options =
        TOW_SCAN_OPTIONS(.length = s->params->length, .has_length = true, .reverse = s->params->reverse);
    tow_scan_function(t, fetching_body, f, &options, all, carry, n_xs, xs, n_ys, carry, s->results + n_carry);
    memcpy(s->results, carry, n_carry * sizeof *carry);
}

/* The replay whose states the scan reads in reverse order, or none (params NULL). */
static tow__equation find_replay(tow_trace *t, const tow__bound_scan *s, uint32_t *state_of)
{
    tow__equation found = {0};
    for (size_t i = 0; i < s->n_in; i++) {
        tow__equation e;
        uint32_t result;
        state_of[i] = TOW__INPUT;
        if (i < (size_t)(s->params->consts + s->params->carry)) continue;
        if (!tow__made_by(t, s->operands[i], &e, &result) || e.primitive != &tow__replay_p) continue;
        const tow__replay_params *p = e.params;
        if (p->reverse == s->params->reverse || p->length != s->params->length) continue;
        if (found.params && found.out != e.out) continue;
        found = e;
        state_of[i] = result;
    }
    return found;
}

void tow__bind_fetching(tow_trace *t, const tow__bound_scan *scan)
{
    uint32_t *state_of = tow__trace_alloc(t, scan->n_in, sizeof *state_of);
    if (!state_of) return;
    const tow__equation replay = find_replay(t, scan, state_of);
    if (!replay.params) {
        tow__bind(t, &tow__scan_p, scan->params, scan->n_in, scan->operands, scan->n_out, scan->results);
        return;
    }
    tow_value *operands = tow__trace_alloc(t, replay.n_in, sizeof *operands);
    fetch f = {.scan = scan, .p = replay.params, .operands = operands, .state_of = state_of};
    for (uint32_t i = 0; operands && i < replay.n_in; i++) operands[i] = tow__value_of(t, replay.in[i]);
    if (operands) bind_fetching(t, &f);
}
