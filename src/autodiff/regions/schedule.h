/* Schedules of loops: which states reverse mode keeps of a long scan, and how it makes the others again.
 *
 *   sweep    the known loop, which keeps the states with which some iterations begin     (scan_schedule.c)
 *   replay   the states of all iterations from those that were kept                      (replay.c)
 *   fetch    in the loop that reads states from the last one to the first: one state at a time, in place of a replay
 *            (fetch.c)
 *
 * and of a while, whose iterations are not known before it ends:
 *
 *   online sweep    the known loop, which keeps states so that they serve however many iterations follow
 *                   (while_schedule.c)
 *   replay_while    the linear loop, whose transpose fetches (replay_while.c)
 *
 * Iterations are numbered in the order in which they run, from 0. */
#ifndef TOW_SRC_SCHEDULE_H
#define TOW_SRC_SCHEDULE_H

#include "src/autodiff/regions/loop_split.h"

/* ---- binomial.c: arithmetic of binomial schedules (Griewank and Walther, Algorithm 799) -------------------------- */

/* C(slots + repetitions, repetitions): the iterations that can be reversed from so many kept states if none runs
 * forward more often than that; at most `most`. */
int64_t tow__binomial_reach(int64_t slots, int64_t repetitions, int64_t most);
/* The least number of repetitions for n iterations with `slots` >= 1 states. */
int64_t tow__binomial_repetitions(int64_t n, int64_t slots);
/* So many of n >= 2 iterations run forward before the next state is kept, if `slots` >= 2 are free, counting the one
 * that holds the first state. */
int64_t tow__binomial_split(int64_t n, int64_t slots);
/* Iterations that run forward in all, those beside their derivatives counted: n + t n - C(slots + t, t - 1). */
int64_t tow__binomial_steps(int64_t n, int64_t slots);

/* ---- advance.c --------------------------------------------------------------------------------------------------- */

/* The graph that makes a state of the one before: (known consts, known carries, xs) -> known carries, of which
 * output[k] of the known body is the k-th, without effects, which have happened. NULL, with an error of the unknown
 * trace: an operation in it must not run again, or no memory. */
tow_graph *tow__advance_graph(const tow__loop_split *l, const uint32_t *output, uint32_t n);

/* ---- while_schedule.c -------------------------------------------------------------------------------------------- */

/* Splits a while that keeps states. */
void tow__while_split_keeping(tow__loop_split *l);

/* ---- tier.c ------------------------------------------------------------------------------------------------------ */

/* Kept states in two tiers: those of slot i < file_rows are in a file, those of slot i in row i - file_rows of a stack.
 * file_rows 0: all are in stacks. */
typedef struct tow__tier {
    int64_t file_rows;
    const tow_value *values; /* [2 n] token and staging (src/ops/spill.c) of the file of each of n carries; or NULL */
} tow__tier;

/* Begins files for states of these types. False: no memory, or an error. */
bool tow__tier_begin(tow_trace *t, tow__tier *tier, int64_t file_rows, size_t n, const tow_type *states);
/* The state of carry c in a slot, in this type. */
tow_value tow__tier_read(tow_trace *t, const tow__tier *tier, size_t c, tow_value stack, tow_value slot, tow_type type);
/* The stack with the state in a slot, in place where nothing else reads it. */
tow_value tow__tier_write(tow_trace *t, const tow__tier *tier, size_t c, tow_value stack, tow_value state,
                          tow_value slot);
/* n rows for such states, which hold anything. */
tow_value tow__empty_stack(tow_trace *t, tow_type row, int64_t n);

/* ---- fetch.c ----------------------------------------------------------------------------------------------------- */

/* The carries of a loop that fetches: the number of the iteration, the number of the last state kept, the iterations
 * that kept states belong to, i32 [rows], then the kept states of each carry [rows, ...]. */
enum {
    TOW__FETCH_NUMBER,
    TOW__FETCH_LAST,
    TOW__FETCH_POSITIONS,
    TOW__FETCH_KEPT
};

/* The loop whose states are made again. Its iteration i is advance: (consts, carry, rows i of further operands) ->
 * carry. */
typedef struct tow__fetch {
    const tow_graph *advance;
    size_t consts, carry;
    int64_t slots;                  /* states kept at a time, besides one that only the sweep has kept */
    int64_t most;                   /* iterations; where data decide, at most, or 0 */
    bool reverse;                   /* iteration 0 has the last row */
    const tow_value *operands;      /* consts, (not read), stacks of rows */
    tow__tier tier;                 /* where kept states are */
    tow_value reach, reach_of_less; /* [slots, repetitions + 1] i32, of s + 1 slots and of s: tow__fetch_tables */
    tow_value i;                    /* the iteration whose state is fetched, while it is */
} tow__fetch;

/* Makes the tables of tow__binomial_reach. False: no memory. */
bool tow__fetch_tables(tow_trace *t, tow__fetch *f);
/* Fetches the state of iteration in[TOW__FETCH_NUMBER] and gives up what was kept for it. in, out: as the carries
 * above; out has the number before; state: [carry]. */
void tow__fetch_state(tow_trace *t, tow__fetch *f, const tow_value *in, tow_value *out, tow_value *state);

/* ---- replay.c ---------------------------------------------------------------------------------------------------- */

/* A scan in place of which a transposed scan is bound, and what it would have been bound with. */
typedef struct tow__bound_scan {
    const tow__scan_params *params;
    size_t n_in, n_out;
    const tow_value *operands;
    tow_value *results;
} tow__bound_scan;

/* Binds a scan. If it reads the rows of a replay in reverse order, the scan fetches them one by one instead. */
void tow__bind_fetching(tow_trace *t, const tow__bound_scan *scan);
/* The iterations whose states the first sweep keeps: positions[0..slots), of n >= slots iterations, and
 * positions[slots], the last one, which is reversed first. */
void tow__binomial_positions(int64_t n, int64_t slots, int32_t *positions);
/* x [n, ...] at `index` i32 []: a row of a stack, in this shape. */
tow_value tow__row_at(tow_value stack, tow_value index, tow_type type);
/* The stack with `row` written at `index`, in place where nothing else reads it. */
tow_value tow__with_row(tow_trace *t, tow_value stack, tow_value row, tow_value index);
/* The number of a row for iteration `number` i32 []. */
tow_value tow__row_number(tow_value number, int64_t length, bool reverse);
/* The inputs of one iteration of a body: consts, carries, and row `row` of each further operand. NULL: no
 * memory is left. */
tow_value *tow__iteration_inputs(tow_trace *t, const tow_graph *body, size_t consts, size_t carry,
                                 const tow_value *operands, const tow_value *carries, tow_value row);
/* The type of a stack of n rows of this type. */
tow_type tow__stack_of(tow_type type, int64_t n);

#endif
