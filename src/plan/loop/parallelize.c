/* Parallelizes loops with small bodies: threads synchronize once per loop, not in every iteration.
 *
 *   by rows        every instruction keeps rows apart (analysis/tiling.c): the values of a loop are cut into blocks
 *                    thread 0   block 0: iteration 0, 1, 2, ...
 *                    thread 1   block 1: iteration 0, 1, 2, ...
 *   by iterations  the loop has no carry: each iteration is a job
 *                    thread 0   iteration 0, 1, ...        thread 1   iteration n/2, n/2 + 1, ...
 *
 * All threads share each instruction of the last length % threads iterations, also in tile groups, if that takes less
 * time than one round more in which some threads wait.
 *
 * Each thread has a copy of the body's arena. Shapes fix the blocks, and kernels give a row the same bits alone and
 * among others, so no bits change. A loop is parallelized if the cost model finds it faster, so large bodies are
 * not: their instructions keep all threads busy by themselves, the threads share the operands of an iteration, and one
 * arena suffices. */
#include <math.h>

#include "src/kernels/strided.h"
#include "src/plan/analysis/columns.h"
#include "src/plan/analysis/tiling.h"
#include "src/plan/loop/loop.h"
#include "src/plan/lower/lower.h"
#include "src/plan/pass.h"

/* Seconds decide (analysis/cost.h). */
/* The share of the time of a product's operations that reading weights from L3 takes */
#define FEWEST_ROWS (1.0 / 2)  /* in a block of the fewest rows, about as many as registers hold, */
#define ENOUGH_ROWS (1.0 / 64) /* and in one of so many rows that more gain nothing */

typedef struct parallelize_state {
    tow_program *p;
    tow__loop *loop;
    tow__body *body;
    tow__arena *scratch;
    int64_t blocks;
    const tow__cost *cost;
    const tow__tiling *tiling;
    bool *parted, *shared; /* [n_storages] a block uses its own rows of it; a block reads all of it */
} parallelize_state;

/* True if every instruction of the body is a kernel with results that any thread may run. */
static bool has_kernels(const tow__loop *loop)
{
    for (uint32_t i = 0; i < loop->body->n_insts; i++)
        if (!loop->body->insts[i].kernel || !loop->body->insts[i].n_out || loop->body->insts[i].op->host) return false;
    return loop->body->n_insts > 0;
}

/* Is it worth so many bytes, of copies of the arena, that threads take pieces of the loop and meet once, instead of
 * sharing each instruction? alone: seconds of all iterations of what one thread has to do after another. */
static bool pays(const parallelize_state *s, double alone, double copies)
{
    const double before = (double)s->loop->length * s->cost->shared;
    return tow__is_worth(&s->p->machine, before, alone + s->p->machine.rates.meeting, copies);
}

/* ---- by rows ----------------------------------------------------------------------------------------------------- */

/* Seconds of the rounds in which threads take so many blocks of all rows through all iterations. */
static double seconds_by_rows(const parallelize_state *s, int64_t rows, int64_t blocks)
{
    const tow__machine *m = &s->p->machine;
    double block = 0;
    for (uint32_t i = 0; i < s->body->n_insts; i++) block += tow__seconds(m, &s->body->insts[i], rows / blocks, NULL);
    return (double)s->loop->length * block * (double)tow__ceil_div(blocks, m->threads);
}

/* The smallest number of blocks that keeps the threads busy, so that products keep many rows; 1: no blocks. */
static int64_t choose_blocks(const parallelize_state *s)
{
    const tow__machine *m = &s->p->machine;
    const int64_t enough = tow__rows_for_share(m, TOW__IN_L3, ENOUGH_ROWS, 1),
                  fewest_rows = tow__rows_for_share(m, TOW__IN_L3, FEWEST_ROWS, 1);
    int64_t rows = 0, least = INT64_MAX, threads = m->threads;
    for (uint32_t i = 0; i < s->body->n_insts; i++) {
        const tow__instruction *inst = &s->body->insts[i];
        if (!s->tiling->is_tileable[i]) return 1;
        const int64_t own = inst->out[0].type.dims[s->tiling->axis[i]];
        if (rows == 0) rows = own;
        if (rows != own) return 1;
        if (inst->op == &tow__dot_general_p) {
            int64_t inner = tow__inner_rows(inst, s->tiling->from[i][0]);
            least = inner < least ? inner : least;
        }
    }
    if (least == INT64_MAX) return 1; /* no product: blocks gain nothing for passes over memory */
    const int64_t fewest = tow__max(rows * least / enough, threads);
    for (int64_t blocks = fewest; blocks <= rows && blocks <= fewest + TOW__MOST_TRIED; blocks++) {
        if (rows * least / blocks < fewest_rows) return 1;
        if (rows % blocks == 0 && tow__is_balanced(blocks, threads))
            return pays(s, seconds_by_rows(s, rows, blocks), 0) ? blocks : 1; /* copies of a block each */
    }
    return 1;
}

/* Marks the storages of which a block of the instruction uses its rows, or all; false if rows cannot be cut. */
static bool note_inst(parallelize_state *s, uint32_t index)
{
    const tow__instruction *inst = &s->body->insts[index];
    for (uint32_t i = 0; i < inst->n_out; i++) {
        if (!tow__fits_tiles(s->p, &inst->out[i], s->tiling->axis[index], s->blocks)) return false;
        s->parted[inst->out[i].storage] = true;
    }
    for (uint32_t i = 0; i < inst->n_in; i++) {
        const tow__view *x = &inst->in[i];
        const tow__storage *storage = &s->p->storages[x->storage];
        const int axis = s->tiling->from[index][i];
        bool part = axis != TOW__WHOLE && !tow__repeats_rows(x, axis);
        bool moves = storage->body == s->body && !storage->data;
        if (part && (!moves || !tow__fits_tiles(s->p, x, axis, s->blocks))) return false;
        (part ? s->parted : s->shared)[x->storage] = true;
    }
    return true;
}

static bool keeps_rows_apart(parallelize_state *s)
{
    for (uint32_t i = 0; i < s->body->n_insts; i++)
        if (!note_inst(s, i)) return false;
    for (uint32_t j = 0; j < s->loop->n_carry; j++) {
        uint32_t in = s->loop->carry[j].in;
        s->parted[in] = true;
        if (s->p->storages[in].bytes != s->p->storages[s->loop->carry[j].out].bytes) return false;
    }
    for (uint32_t j = 0; j < s->loop->n_ys; j++)
        if (s->loop->ys[j].row == TOW__NONE && !s->loop->ys[j].carry) return false; /* an output sink takes the rows */
    for (uint32_t i = 0; i < s->body->n_insts; i++) {
        const tow__instruction *inst = &s->body->insts[i];
        for (uint32_t j = 0; j < inst->n_in; j++)
            if (s->parted[inst->in[j].storage] && s->shared[inst->in[j].storage]) return false;
    }
    return true;
}

static ptrdiff_t part_of(const parallelize_state *s, uint32_t storage)
{
    return s->parted[storage] ? (ptrdiff_t)(s->p->storages[storage].bytes / (size_t)s->blocks) : 0;
}

/* Shrinks views, storages and rows of the loop to one block. */
static void cut_rows(parallelize_state *s)
{
    tow__loop *loop = s->loop;
    for (uint32_t i = 0; i < s->body->n_insts; i++) {
        tow__instruction *inst = &s->body->insts[i];
        for (uint32_t j = 0; j < inst->n_in; j++)
            if (s->tiling->from[i][j] != TOW__WHOLE) inst->in[j].type.dims[s->tiling->from[i][j]] /= s->blocks;
        for (uint32_t j = 0; j < inst->n_out; j++) inst->out[j].type.dims[s->tiling->axis[i]] /= s->blocks;
    }
    for (uint32_t j = 0; j < loop->n_carry; j++) loop->carry[j].part = part_of(s, loop->carry[j].in);
    for (uint32_t j = 0; j < loop->n_xs; j++) loop->xs[j].part = part_of(s, loop->xs[j].row);
    for (uint32_t j = 0; j < loop->n_ys; j++)
        if (loop->ys[j].row != TOW__NONE) loop->ys[j].part = part_of(s, loop->ys[j].row);
    for (uint32_t i = tow__first_storage(s->body); i != TOW__NONE; i = s->p->storages[i].next) {
        tow__storage *x = &s->p->storages[i];
        if (!s->parted[i]) continue;
        x->bytes /= (size_t)s->blocks;
        x->need = tow__round_up(x->bytes);
    }
    loop->blocks = s->blocks;
    loop->schedule = TOW__PARALLEL_ROWS;
}

/* Cuts the loop into blocks of rows if every instruction allows it; *done: true if it is cut. */
static tow_status parallelize_rows(parallelize_state *s, bool *done)
{
    *done = false;
    s->blocks = choose_blocks(s);
    if (s->blocks < 2) return TOW_OK;
    s->parted = tow__borrow(s->p, s->scratch, sizeof *s->parted, 0);
    s->shared = tow__borrow(s->p, s->scratch, sizeof *s->shared, 0);
    if (!s->parted || !s->shared) return TOW_OUT_OF_MEMORY;
    *done = keeps_rows_apart(s);
    if (*done) cut_rows(s);
    for (uint32_t j = 0; j < s->loop->n_carry; j++) tow__blank(s->p, s->parted, s->loop->carry[j].in);
    tow__give_back(s->p, s->parted, s->body->insts, s->body->n_insts, NULL);
    tow__give_back(s->p, s->shared, s->body->insts, s->body->n_insts, NULL);
    return TOW_OK;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* Gives each thread its own copy of the body's arena, and each kernel scratch memory for one thread. */
static tow_status give_to_threads(parallelize_state *s)
{
    tow__lowering l = {.p = s->p, .body = s->body, .scratch = s->scratch};
    tow_status status = TOW_OK;
    s->body->team = &s->p->solo;
    s->body->copies = (uint32_t)s->p->team.threads;
    for (uint32_t i = 0; i < s->body->n_insts; i++) {
        s->body->insts[i].scratch = TOW__NONE;
        TRY(tow__add_scratch(&l, &s->body->insts[i]));
    }
done:
    return status;
}

bool tow__remainder_pays(const tow__machine *m, int64_t pieces, double alone, double shared)
{
    const int64_t rest = pieces % m->threads;
    return pieces > m->threads && rest > 0 && (double)rest * shared < (1 - TOW__GAIN) * alone;
}

/* Seconds if each iteration is a job, and all threads share those that are left over, if that pays; INFINITY:
 * iterations wait for each other. */
static double seconds_by_iterations(const parallelize_state *s)
{
    const tow__loop *loop = s->loop;
    const int64_t threads = s->p->machine.threads;
    const double alone = s->cost->total, shared = s->cost->shared;
    for (uint32_t j = 0; j < loop->n_ys; j++)
        if (loop->ys[j].row == TOW__NONE) return INFINITY;
    if (loop->n_carry > 0) return INFINITY;
    if (tow__remainder_pays(&s->p->machine, loop->length, alone, shared))
        return (double)(loop->length / threads) * alone + (double)(loop->length % threads) * shared;
    return (double)tow__ceil_div(loop->length, threads) * alone;
}

tow_status tow__parallelize_loop(tow__function_state *f)
{
    tow__loop *loop = f->loop;
    parallelize_state s = {.p = f->p, .loop = loop, .body = f->body, .scratch = f->scratch};
    if (s.p->team.threads < 2 || s.p->machine.threads < 2 || loop->stops || !has_kernels(loop)) return TOW_OK;
    s.cost = tow__get_cost(f);
    if (!s.cost) return TOW_OUT_OF_MEMORY;
    s.tiling = tow__get_tiling(f);
    const tow__liveness *liveness = tow__get_liveness(f);
    if (!s.tiling || !liveness) return TOW_OUT_OF_MEMORY;
    tow_status status = TOW_OK;
    const double alone = seconds_by_iterations(&s), copies = (double)liveness->peak * (s.p->machine.threads - 1);
    bool done = pays(&s, alone, copies);
    if (!done && pays(&s, alone, 0)) return TOW_OK; /* rows would gain less, and take copies as well */
    if (done)
        loop->schedule = TOW__PARALLEL_ITERATIONS;
    else
        status = parallelize_rows(&s, &done);
    if (status == TOW_OK && !done) { /* rows may be another axis than axis 0 */
        status = tow__find_named_tiling(f, &s.tiling);
        if (status == TOW_OK && s.tiling) status = parallelize_rows(&s, &done);
    }
    if (status != TOW_OK || !done) return status;
    tow__invalidate(f);
    return give_to_threads(&s);
}

tow_status tow__distribute_remainder(tow__function_state *f)
{
    tow__loop *loop = f->loop;
    tow__body *body = f->body;
    const int64_t threads = f->p->machine.threads, rest = loop->length % threads;
    if (f->p->team.threads < 2 || !tow__is_parallel(loop->schedule) || loop->length < threads || rest == 0)
        return TOW_OK;
    const tow__cost *cost = tow__get_cost(f);
    if (!cost) return TOW_OUT_OF_MEMORY;
    if (!tow__remainder_pays(&f->p->machine, loop->length, cost->total, cost->shared)) return TOW_OK;
    loop->shared = rest;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        size_t bytes;
        tow_status status = tow__scratch_bytes(f->scratch, &body->insts[i], &f->p->team, &bytes);
        if (status != TOW_OK) return status;
        body->scratch = bytes > body->scratch ? bytes : body->scratch;
    }
    return TOW_OK;
}
