/* Fetches the states of iterations one by one, from the last iteration to the first, and makes those that were not kept
 * again from those that were: see replay.c. The scan that reads the rows of a replay in reverse order fetches them in
 * their place. */
#include "src/autodiff/regions/schedule.h"
#include "tow/control.h"
#include "tow/ops.h"

/* The comparison of fetched states with those that the sweep has kept, where a gradient is verified. */
typedef struct fetch_comparison {
    tow__equation e; /* same_bits; no primitive: nothing is compared */
    tow_value kept;  /* the stack of all states */
} fetch_comparison;

/* A scan that fetches. Its body is recorded by a C function that finds here what it reads. */
typedef struct fetching_scan {
    tow__fetch f;
    const tow__bound_scan *scan;
    const uint32_t *state_of;         /* [operands of the scan] the carry whose states operand i has, or TOW__INPUT */
    const fetch_comparison *compared; /* [operands of the scan] what its states are compared with */
} fetching_scan;

static tow_type state_type(const tow__fetch *f, size_t c) { return tow_graph_input_type(f->advance, f->consts + c); }

/* ---- running forward --------------------------------------------------------------------------------------------- */

/* (number, state) -> state after that iteration */
static void run_iteration(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow__fetch *f = user;
    const tow_value row = tow__row_number(in[0], f->most, f->reverse);
    const tow_value *x = tow__iteration_inputs(t, f->advance, f->consts, f->carry, f->operands, in + 1, row);
    if (!x) return;
    tow__inline(t, f->advance, x, out);
}

/* state of iteration `from` -> that of iteration `to` */
static void run_forward(tow_trace *t, const tow__fetch *f, tow_value from, tow_value to, tow_value *state)
{
    const tow_fori_options bounds = TOW_FORI_OPTIONS(.lower = from, .upper = to, .max_iterations = f->most);
    tow_fori_function(t, 0, 0, run_iteration, (void *)f, &bounds, f->carry, state, state);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

enum {
    MOST_REPETITIONS = 4096,
    MOST_ROWS = 1024 /* of tables; with more slots there are 4 repetitions at most, which are reckoned as they come */
};

static int64_t most_of(const tow__fetch *f) { return f->most > 0 ? f->most : INT32_MAX; }

/* ---- keeping states ---------------------------------------------------------------------------------------------- */

enum {
    NUMBER = TOW__FETCH_NUMBER,
    LAST = TOW__FETCH_LAST,
    POSITIONS = TOW__FETCH_POSITIONS,
    KEPT = TOW__FETCH_KEPT
};

/* Repetitions in tables; more would keep states less well: with 2 slots, from 8 million iterations on. */
static int64_t table_width(const tow__fetch *f)
{
    const int64_t width = tow__binomial_repetitions(most_of(f), f->slots) + 1;
    return width < MOST_REPETITIONS ? width : MOST_REPETITIONS;
}

/* C(s + r, r), at most the iterations, for r = 0, 1, ...: i32 [repetitions + 1], with s = row + more slots. Above `row`
 * slots alone the last one is above every number of iterations. Products are exact, or too large for rounding to
 * matter: a number of iterations times 5 at most, or above every one. */
static tow_value reach_of(tow_trace *t, const tow__fetch *f, tow_value row, int more)
{
    if (f->slots <= MOST_ROWS) return tow_gather(more ? f->reach : f->reach_of_less, row);
    const int64_t width = table_width(f);
    tow_value *parts = tow__trace_alloc(t, (size_t)width, sizeof *parts);
    const tow_value s = tow_add_scalar(tow_convert(row, TOW_F64), more), n = tow_scalar(t, TOW_F64, (double)most_of(f));
    tow_value reach = tow_scalar(t, TOW_F64, 1);
    for (int64_t r = 0; parts && r < width; r++) {
        const tow_value last = tow_scalar(t, TOW_I32, INT32_MAX);
        const bool above = more && r + 1 == width;
        parts[r] = tow_expand_dims(above ? last : tow_convert(tow_min(reach, n), TOW_I32), 0);
        reach = tow_div(tow_mul(tow_min(reach, n), tow_add_scalar(s, (double)(r + 1))),
                        tow_scalar(t, TOW_F64, (double)(r + 1)));
    }
    return parts ? tow_concatenate((size_t)width, parts, 0) : (tow_value){0};
}

/* tow__binomial_split of the n = i + 1 - cur iterations that are left, with s = slots - last slots: for the least t
 * with reach(s, t) >= n, max(n - reach(s - 1, t), reach(s, t - 2)). */
static tow_value next_advance(tow_trace *t, const tow__fetch *f, const tow_value *in)
{
    const tow_value n = tow_add_scalar(tow_sub(f->i, in[NUMBER]), 1), zero = tow_scalar(t, TOW_I32, 0);
    const tow_value row = tow_add_scalar(tow_neg(in[LAST]), (double)(f->slots - 1)); /* s - 1 */
    const tow_value reach = reach_of(t, f, row, 1), less = reach_of(t, f, row, 0);
    const tow_value repetitions = tow_reduce_sum(tow_convert(tow_lt(reach, n), TOW_I32), 1, (int[]){0});
    const tow_value least = tow_gather(reach, tow_max(tow_add_scalar(repetitions, -2), zero));
    return tow_max(tow_sub(n, tow_gather(less, repetitions)), least);
}

static void keeps_more(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow__fetch *f = user;
    (void)t;
    out[0] = tow_and(tow_lt(in[LAST], tow_scalar(t, TOW_I32, (double)(f->slots - 1))),
                     tow_lt(tow_add_scalar(in[NUMBER], 1), f->i));
}

static void run_and_keep(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow__fetch *f = user;
    const size_t n = f->carry;
    const tow_value to = tow_add(in[NUMBER], next_advance(t, f, in));
    for (size_t c = 0; c < n; c++) out[KEPT + n + c] = in[KEPT + n + c];
    run_forward(t, f, in[NUMBER], to, out + KEPT + n);
    out[NUMBER] = to;
    out[LAST] = tow_add_scalar(in[LAST], 1);
    out[POSITIONS] = tow__with_row(t, in[POSITIONS], to, out[LAST]);
    for (size_t c = 0; c < n; c++)
        out[KEPT + c] = tow__tier_write(t, &f->tier, c, in[KEPT + c], out[KEPT + n + c], out[LAST]);
}

void tow__fetch_state(tow_trace *t, tow__fetch *f, const tow_value *in, tow_value *out, tow_value *state)
{
    const size_t n = f->carry;
    tow_value *all = tow__trace_alloc(t, KEPT + 2 * n, sizeof *all);
    if (!all) return;
    f->i = in[NUMBER];
    memcpy(all, in, (KEPT + n) * sizeof *all);
    all[NUMBER] = tow_gather(in[POSITIONS], in[LAST]);
    for (size_t c = 0; c < n; c++)
        all[KEPT + n + c] = tow__tier_read(t, &f->tier, c, in[KEPT + c], in[LAST], state_type(f, c));
    if (f->slots > 1)
        tow_while_function(t, keeps_more, run_and_keep, f, &TOW_WHILE_OPTIONS(.max_iterations = f->slots), KEPT + 2 * n,
                           all, all);
    memcpy(state, all + KEPT + n, n * sizeof *state);
    run_forward(t, f, all[NUMBER], f->i, state);
    const tow_value is_last = tow_eq(tow_gather(all[POSITIONS], all[LAST]), f->i);
    out[NUMBER] = tow_add_scalar(f->i, -1);
    out[LAST] = tow_sub(all[LAST], tow_convert(is_last, TOW_I32));
    out[POSITIONS] = all[POSITIONS];
    memcpy(out + KEPT, all + KEPT, n * sizeof *out);
}

bool tow__fetch_tables(tow_trace *t, tow__fetch *f)
{
    const int64_t slots = f->slots, n = most_of(f), width = slots > 1 ? table_width(f) : 0;
    if (slots == 1 || slots > MOST_ROWS) return true;
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){slots, width});
    int32_t *reach = tow__trace_alloc(t, (size_t)(slots * width), sizeof *reach),
            *less = tow__trace_alloc(t, (size_t)(slots * width), sizeof *less);
    if (!reach || !less) return false;
    for (int64_t s = 0; s < slots; s++)
        for (int64_t r = 0; r < width; r++) {
            reach[s * width + r] = r + 1 < width ? (int32_t)tow__binomial_reach(s + 1, r, n) : INT32_MAX;
            less[s * width + r] = s ? (int32_t)tow__binomial_reach(s, r, n) : 1;
        }
    f->reach = tow_constant_data(t, type, reach);
    f->reach_of_less = tow_constant_data(t, type, less);
    return !tow__failed(t);
}

/* ---- the scan ---------------------------------------------------------------------------------------------------- */

/* in: carries of the scan, i, last, positions, kept..., its xs that are no states; out: its carries, i - 1, last,
 * positions, kept..., its ys. */
static void fetching_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    fetching_scan *s = user;
    const tow__scan_params *p = s->scan->params;
    const size_t n_carry = (size_t)p->carry, consts = (size_t)p->consts, added = KEPT + s->f.carry;
    const tow_value *rows = in + n_carry + added;
    tow_value *state = tow__trace_alloc(t, s->f.carry, sizeof *state);
    tow_value *x = tow__trace_alloc(t, s->scan->n_in, sizeof *x), *y = tow__trace_alloc(t, s->scan->n_out, sizeof *y);
    if (!state || !x || !y) return;
    tow__fetch_state(t, &s->f, in + n_carry, out + n_carry, state);
    for (size_t i = 0; i < s->scan->n_in; i++) {
        const uint32_t c = s->state_of[i];
        if (i < consts)
            x[i] = tow__import(t, s->scan->operands[i]);
        else if (i < consts + n_carry)
            x[i] = in[i - consts];
        else
            x[i] = c == TOW__INPUT ? *rows++ : tow__in_shape(state[c], tow__stack_row(state_type(&s->f, c)));
        if (c != TOW__INPUT && s->compared[i].e.primitive) {
            const tow_value both[] = {x[i], *rows++};
            tow__set_source(t, &s->compared[i].e.source);
            tow__rebind(t, &s->compared[i].e, both, &x[i]);
            tow__set_source(t, NULL);
        }
    }
    tow__inline(t, p->body, x, y);
    memcpy(out, y, n_carry * sizeof *out);
    memcpy(out + n_carry + added, y + n_carry, (s->scan->n_out - n_carry) * sizeof *out);
}

/* i, last, positions, kept... as the loop starts. */
static void start_keeping(tow_trace *t, const tow__fetch *f, tow_value *start)
{
    const int64_t slots = f->slots, rows = slots + 1;
    int32_t *positions = tow__trace_alloc(t, (size_t)rows, sizeof *positions);
    if (!positions) return;
    tow__binomial_positions(f->most, slots, positions);
    const bool twice = positions[slots] == positions[slots - 1];
    start[NUMBER] = tow_scalar(t, TOW_I32, (double)(f->most - 1));
    start[LAST] = tow_scalar(t, TOW_I32, (double)(twice ? slots - 1 : slots));
    start[POSITIONS] = tow_constant_data(t, tow_make_type(TOW_I32, 1, &rows), positions);
    memcpy(start + KEPT, f->operands + f->consts, f->carry * sizeof *start);
}

static void bind_fetching(tow_trace *t, fetching_scan *fetching)
{
    const tow__bound_scan *s = fetching->scan;
    tow__fetch *f = &fetching->f;
    const size_t n_carry = (size_t)s->params->carry, first = (size_t)s->params->consts, end = first + n_carry;
    const size_t all = n_carry + KEPT + f->carry, n_ys = s->n_out - n_carry;
    tow_value *carry = tow__trace_alloc(t, all, sizeof *carry), *xs = tow__trace_alloc(t, s->n_in, sizeof *xs);
    size_t n_xs = 0;
    if (!carry || !xs || !tow__fetch_tables(t, f)) return;
    memcpy(carry, s->operands + first, n_carry * sizeof *carry);
    start_keeping(t, f, carry + n_carry);
    for (size_t i = end; i < s->n_in; i++)
        if (fetching->state_of[i] == TOW__INPUT)
            xs[n_xs++] = s->operands[i];
        else if (fetching->compared[i].e.primitive)
            xs[n_xs++] = fetching->compared[i].kept;
    const tow_scan_options options =
        TOW_SCAN_OPTIONS(.length = s->params->length, .has_length = true, .reverse = s->params->reverse);
    tow_scan_function(t, fetching_body, fetching, &options, all, carry, n_xs, xs, n_ys, carry, s->results + n_carry);
    memcpy(s->results, carry, n_carry * sizeof *carry);
}

/* The replay whose states the scan reads in reverse order, or none (params NULL). */
static tow__equation find_replay(tow_trace *t, const tow__bound_scan *s, uint32_t *state_of, fetch_comparison *compared)
{
    tow__equation found = {0};
    for (size_t i = 0; i < s->n_in; i++) {
        tow__equation e;
        uint32_t result;
        state_of[i] = TOW__INPUT;
        if (i < (size_t)(s->params->consts + s->params->carry)) continue;
        if (!tow__made_by(t, s->operands[i], &e, &result)) continue;
        fetch_comparison comparison = {.e = {0}};
        if (e.primitive == &tow__same_bits_p) {
            comparison = (fetch_comparison){.e = e, .kept = tow__value_of(t, e.in[1])};
            if (!tow__made_by(t, tow__value_of(t, e.in[0]), &e, &result)) continue;
        }
        if (e.primitive != &tow__replay_p) continue;
        const tow__replay_params *p = e.params;
        if (p->reverse == s->params->reverse || p->length != s->params->length) continue;
        if (found.params && found.out != e.out) continue;
        found = e;
        state_of[i] = result;
        compared[i] = comparison;
    }
    return found;
}

void tow__bind_fetching(tow_trace *t, const tow__bound_scan *scan)
{
    uint32_t *state_of = tow__trace_alloc(t, scan->n_in, sizeof *state_of);
    fetch_comparison *compared = tow__trace_alloc(t, scan->n_in, sizeof *compared);
    if (!state_of || !compared) return;
    const tow__equation replay = find_replay(t, scan, state_of, compared);
    if (!replay.params) {
        tow__bind(t, &tow__scan_p, scan->params, scan->n_in, scan->operands, scan->n_out, scan->results);
        return;
    }
    const tow__replay_params *p = replay.params;
    const size_t first_row = (size_t)(p->consts + p->carry), n_files = p->file_slots > 0 ? 2 * (size_t)p->carry : 0;
    tow_value *operands = tow__trace_alloc(t, replay.n_in, sizeof *operands), *files = operands + replay.n_in - n_files;
    fetching_scan fetching = {.f = {.advance = p->body,
                                    .consts = (size_t)p->consts,
                                    .carry = (size_t)p->carry,
                                    .slots = p->slots,
                                    .most = p->length,
                                    .reverse = p->reverse,
                                    .operands = operands,
                                    .tier = {p->file_slots, files}},
                              .scan = scan,
                              .state_of = state_of,
                              .compared = compared};
    if (!operands) return;
    for (size_t i = 0; i < replay.n_in; i++) {
        const bool row = i >= first_row + n_files, file = i >= first_row && !row;
        tow_value *to = row ? &operands[i - n_files] : file ? &files[i - first_row] : &operands[i];
        *to = tow__value_of(t, replay.in[i]);
    }
    bind_fetching(t, &fetching);
}
