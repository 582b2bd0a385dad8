/* Software pipelining of exchanges between processes: in a loop over rows, what travels does so while another iteration
 * is computed.
 *
 *   An operand that is known before the iteration, a row of a stack, is gathered an iteration ahead:
 *
 *     loop: w, b = all_gather_start(row i)      w0, b0 = all_gather_start(row 0)
 *           w = all_gather_wait(w, b)       =>  loop, carries (w, b) from (w0, b0):
 *           ... w ...                             w', b' = all_gather_start(row i + 1)     not in the last iteration
 *                                                 w = all_gather_wait(w, b)
 *                                                 ... w ...
 *
 *   A sum that an iteration only stacks is waited for an iteration later:
 *
 *     loop: x = ...                             loop, carries (s, b):
 *           s, b = reduce_scatter_start(x)  =>    row i - 1 = reduce_scatter_wait(s, b)    not in the first iteration,
 *           row i = reduce_scatter_wait(s, b)     x = ...                                  and once more at the end
 *                                                 s', b' = reduce_scatter_start(x)
 *
 *   Likewise where an iteration does more with the sum, element by element, and stacks that: an update of parameters
 *   moves with the wait, and accesses the rows of the iteration before.
 *
 * What is in flight from one iteration to the next is a carry, so lifetimes, aliasing, buffers and the checker treat it
 * like any other: gathered rows have two buffers in turn, as the next row arrives while this one is read, and partial
 * sums one, because the wait stands in front of what makes the next ones. An instruction that works for another
 * iteration says so (tow__instruction.shift), and so do the rows that it accesses (tow__rows.shift).
 *
 * Outside of loops, and in loops where they cannot travel from one iteration to the next, at most two gathers of inputs
 * are in flight, and at most two sums of which a process gets its share. A gather begins directly behind the wait for
 * the last gather but one, so that it travels while what reads the last one is computed:
 *
 *     all_gather_start(k)  ..  k-2 = all_gather_wait  all_gather_start(k)  .. k-2 ..  k-1 = all_gather_wait  .. k-1 ..
 *
 * and a sum ends at the latest when the next but one begins, or the next one behind a loop, beside which it has had
 * the time to travel, although its reader, an update, comes much later: what is summed is whole until then. Gathers
 * for the first row of a loop, which end in it, begin as early as the last loop, or the last gather, before them. So
 * at most two iterations' rows are gathered at once. No gather moves over a loop. */
#include "src/ops/collective.h"
#include "src/plan/analysis/view.h"
#include "src/plan/loop/loop.h"
#include "src/plan/lower/lower.h"
#include "src/plan/pass.h"

enum {
    ZERO = 16 /* bytes of the constant from which carries begin that no iteration reads: at least one element */
};

/* A loop that is being pipelined. */
typedef struct pipeline {
    tow_program *p;
    tow__arena *scratch;
    tow__lowering outer; /* the function around */
    tow__instruction *inst;
    tow__loop *loop;
    tow__body *body;
    uint32_t *reads; /* [n_storages] operands of the body, and of loops in it, that are in the storage */
    bool *moves;     /* [n_insts] it moves with a wait */
    bool changed;
} pipeline;

/* ---- what can be pipelined --------------------------------------------------------------------------------------- */

static bool is_own(const pipeline *l, uint32_t storage, tow__storage_kind kind)
{
    const tow__storage *s = &l->p->storages[storage];
    return s->body == l->body && s->kind == kind && s->representative == storage;
}

static void count_reads(const pipeline *l, const tow__body *body)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        for (uint32_t j = 0; j < inst->n_in; j++) l->reads[inst->in[j].storage]++;
        if (inst->loop) count_reads(l, inst->loop->body);
    }
}

/* The wait that alone reads both results of start `s`; TOW__NONE: there is none. */
static uint32_t wait_of(const pipeline *l, uint32_t s, const tow_primitive *op)
{
    const tow__instruction *start = &l->body->insts[s];
    for (uint32_t k = 0; k < 2; k++)
        if (!is_own(l, start->out[k].storage, TOW__S_ARENA) || !tow__is_whole(l->p, &start->out[k]) ||
            l->reads[start->out[k].storage] != 1)
            return TOW__NONE;
    for (uint32_t i = s + 1; i < l->body->n_insts; i++) {
        const tow__instruction *wait = &l->body->insts[i];
        if (wait->op != op || wait->in[1].storage != start->out[1].storage) continue;
        const bool fits = wait->in[0].storage == start->out[0].storage && tow__is_whole(l->p, &wait->in[0]) &&
                          tow__is_plain(wait) && wait->shift == 0;
        return fits ? i : TOW__NONE;
    }
    return TOW__NONE;
}

/* The wait for a gather that can begin an iteration ahead: its operand is a row, which no iteration waits for. */
static uint32_t wait_of_gather(const pipeline *l, uint32_t s)
{
    const tow__instruction *start = &l->body->insts[s];
    if (!TOW__COMPUTES(start, all_gather_start) || !tow__is_plain(start) || start->shift != 0) return TOW__NONE;
    if (!is_own(l, start->in[0].storage, TOW__S_ROW_IN)) return TOW__NONE;
    const uint32_t w = wait_of(l, s, &tow__all_gather_wait_p);
    if (w == TOW__NONE) return TOW__NONE;
    const tow__view *whole = &l->body->insts[w].out[0];
    return is_own(l, whole->storage, TOW__S_ARENA) && tow__is_whole(l->p, whole) ? w : TOW__NONE;
}

static bool is_of_body(const pipeline *l, uint32_t storage) { return l->p->storages[storage].body == l->body; }

/* Number of operands, of instructions in the set, that lie in the storage. */
static uint32_t reads_inside(const pipeline *l, uint32_t storage)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->body->n_insts; i++)
        for (uint32_t j = 0; l->moves[i] && j < l->body->insts[i].n_in; j++)
            n += l->body->insts[i].in[j].storage == storage;
    return n;
}

/* Is everything that makes the storage, and that reads it, in the set? */
static bool is_inside(const pipeline *l, uint32_t storage)
{
    for (uint32_t i = 0; i < l->body->n_insts; i++)
        for (uint32_t k = 0; !l->moves[i] && k < l->body->insts[i].n_out; k++)
            if (l->body->insts[i].out[k].storage == storage) return false;
    return l->reads[storage] == reads_inside(l, storage);
}

static bool reads_set(const pipeline *l, const tow__instruction *inst)
{
    for (uint32_t i = 0; i < l->body->n_insts; i++)
        for (uint32_t k = 0; l->moves[i] && k < l->body->insts[i].n_out; k++)
            for (uint32_t j = 0; j < inst->n_in; j++)
                if (inst->in[j].storage == l->body->insts[i].out[k].storage) return true;
    return false;
}

static bool is_elementwise(const tow__instruction *inst)
{
    return !inst->loop && inst->op->kind == TOW__ELEMENTWISE && !inst->op->host && inst->shift == 0 &&
           inst->scratch == TOW__NONE && tow__is_plain(inst);
}

/* The set: what depends on the wait, and what only that reads. False: it has more than elementwise instructions. */
static bool collect(const pipeline *l, uint32_t w)
{
    memset(l->moves, 0, l->body->n_insts * sizeof *l->moves);
    l->moves[w] = true;
    for (uint32_t i = w + 1; i < l->body->n_insts; i++) {
        if (!reads_set(l, &l->body->insts[i])) continue;
        if (!is_elementwise(&l->body->insts[i])) return false;
        l->moves[i] = true;
    }
    for (uint32_t i = l->body->n_insts; i-- > 0;) {
        const tow__instruction *inst = &l->body->insts[i];
        bool only = !l->moves[i] && is_elementwise(inst), any = false;
        for (uint32_t k = 0; k < inst->n_out && only; k++) {
            const uint32_t s = inst->out[k].storage, inside = reads_inside(l, s);
            only = is_own(l, s, TOW__S_ARENA) && inside == l->reads[s];
            any |= inside > 0;
        }
        l->moves[i] |= only && any;
    }
    return true;
}

/* Operands come from the wait, from outside of the loop, or are rows; results stay in the set, or are rows. */
static bool can_move(const pipeline *l, const tow__instruction *inst, bool waits)
{
    for (uint32_t j = 0; j < inst->n_in && !waits; j++) {
        const uint32_t s = inst->in[j].storage;
        if (!is_of_body(l, s) || l->p->storages[s].kind == TOW__S_CONSTANT) continue;
        const bool row = is_own(l, s, TOW__S_ROW_IN) && l->loop->xs[l->p->storages[s].index].shift == 0;
        const bool made = is_own(l, s, TOW__S_ARENA) || is_own(l, s, TOW__S_ROW_OUT);
        if (!row && !(made && is_inside(l, s))) return false;
    }
    for (uint32_t k = 0; k < inst->n_out; k++) {
        const uint32_t s = inst->out[k].storage;
        if (!is_inside(l, s)) return false;
        if (is_own(l, s, TOW__S_ARENA)) continue;
        if (!is_own(l, s, TOW__S_ROW_OUT)) return false;
        const tow__rows *ys = &l->loop->ys[l->p->storages[s].index];
        if (ys->row != s || ys->carry || ys->shift != 0) return false;
    }
    return true;
}

/* The wait for a sum that the loop only stacks, or what is made of it element by element, with l->moves. A sum of the
 * whole that is stacked lies in its row, where it needs no carry (memory/defer_waits.c). */
static uint32_t wait_of_sum(const pipeline *l, uint32_t s)
{
    const tow__instruction *start = &l->body->insts[s];
    const bool scatters = TOW__COMPUTES(start, reduce_scatter_start);
    if (!scatters && !TOW__COMPUTES(start, all_reduce_start)) return TOW__NONE;
    if (!tow__is_plain(start) || start->shift != 0) return TOW__NONE;
    const uint32_t w = wait_of(l, s, scatters ? &tow__reduce_scatter_wait_p : &tow__all_reduce_wait_p);
    if (w == TOW__NONE) return TOW__NONE;
    const tow__view *sum = &l->body->insts[w].out[0];
    if (!scatters && !(is_own(l, sum->storage, TOW__S_ARENA) && tow__is_whole(l->p, sum))) return TOW__NONE;
    if (!collect(l, w)) return TOW__NONE;
    for (uint32_t i = 0; i < l->body->n_insts; i++)
        if (l->moves[i] && !can_move(l, &l->body->insts[i], i == w)) return TOW__NONE;
    return w;
}

/* ---- carries and rows -------------------------------------------------------------------------------------------- */

/* Adds a carry of the type of x whose new value is in the storage of x and whose old one is in storage `in`. */
static tow_status add_carry(pipeline *l, uint32_t in, const tow__view *x, const tow__view *init)
{
    tow_program *p = l->p;
    tow__loop *loop = l->loop;
    const uint32_t n = loop->n_carry, out = x->storage;
    tow__carry *all = tow__arena_alloc(&p->memory, (size_t)n + 1, sizeof *all);
    const uint32_t result = tow__add_storage(p, l->body->outer, TOW__S_ARENA, 0, tow_type_bytes(x->type));
    if (!all || result == TOW__NONE) return TOW_OUT_OF_MEMORY;
    if (n) memcpy(all, loop->carry, n * sizeof *all);
    for (uint32_t j = 0; j < loop->n_ys; j++)
        if (loop->ys[j].carry) loop->ys[j].carry = all + (loop->ys[j].carry - loop->carry);
    all[n] = (tow__carry){.in = in,
                          .out = out,
                          .result = result,
                          .entering = TOW__NONE,
                          .leaving = TOW__NONE,
                          .spare = TOW__NONE,
                          .init = *init};
    tow__copy_maker(p, out, result);
    p->storages[in].kind = TOW__S_CARRY_IN;
    p->storages[out].kind = TOW__S_CARRY_OUT;
    p->storages[in].index = p->storages[out].index = n;
    loop->carry = all;
    loop->n_carry++;
    return TOW_OK;
}

/* A carry that enters in a new storage, which the view *x of the wait takes. */
static tow_status add_carry_for(pipeline *l, tow__view *x, const tow__view *init)
{
    const tow__view leaves = *x;
    const uint32_t in = tow__add_storage(l->p, l->body, TOW__S_CARRY_IN, 0, tow_type_bytes(x->type));
    if (in == TOW__NONE) return TOW_OUT_OF_MEMORY;
    tow__copy_maker(l->p, leaves.storage, in);
    x->storage = in;
    return add_carry(l, in, &leaves, init);
}

/* The rows of another iteration, in a storage of their own, which *storage becomes. */
static tow_status shift_rows(pipeline *l, int shift, uint32_t *storage)
{
    tow_program *p = l->p;
    tow__loop *loop = l->loop;
    const uint32_t n = loop->n_xs;
    const tow__rows rows = loop->xs[p->storages[*storage].index];
    for (uint32_t i = 0; i < n; i++)
        if (loop->xs[i].shift == shift && tow__view_same(&loop->xs[i].array, &rows.array)) {
            *storage = loop->xs[i].row;
            return TOW_OK;
        }
    tow__rows *all = tow__arena_alloc(&p->memory, (size_t)n + 1, sizeof *all);
    const uint32_t row = tow__add_storage(p, l->body, TOW__S_ROW_IN, n, p->storages[*storage].bytes);
    if (!all || row == TOW__NONE) return TOW_OUT_OF_MEMORY;
    memcpy(all, loop->xs, n * sizeof *all);
    all[n] = rows;
    all[n].row = row;
    all[n].shift = shift;
    loop->xs = all;
    loop->n_xs++;
    *storage = row;
    return TOW_OK;
}

/* ---- both directions --------------------------------------------------------------------------------------------- */

/* View x of a row as the first iteration reads it. */
static tow__view first_row(const pipeline *l, const tow__view *x)
{
    const tow__view *array = &l->loop->xs[l->p->storages[x->storage].index].array;
    tow__view y = *x;
    y.storage = array->storage;
    y.offset += array->offset + (l->loop->reverse ? l->loop->length - 1 : 0) * array->strides[0];
    return y;
}

/* The gather of the first row, in the function around. */
static tow_status add_first_gather(pipeline *l, const tow__instruction *start, tow__view started[2])
{
    for (int k = 0; k < 2; k++) {
        const uint32_t s = tow__add_storage(l->p, l->outer.body, TOW__S_ARENA, 0, tow_type_bytes(start->out[k].type));
        if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
        tow__copy_maker(l->p, start->out[k].storage, s);
        started[k] = tow__view_whole(s, start->out[k].type);
    }
    tow__instruction *first = tow__add_instruction(&l->outer, start->op, 1, 2);
    if (!first) return TOW_OUT_OF_MEMORY;
    tow__view *in = first->in, *out = first->out;
    *first = *start;
    first->in = in;
    first->out = out;
    in[0] = first_row(l, &start->in[0]);
    out[0] = started[0];
    out[1] = started[1];
    return TOW_OK;
}

/* The wait makes its result where the carry is, so readers have it without a copy. */
static tow_status gather_ahead(pipeline *l, uint32_t s, uint32_t w)
{
    tow__instruction *start = &l->body->insts[s], *wait = &l->body->insts[w];
    tow__view started[2];
    tow_status status = TOW_OK;
    TRY(add_first_gather(l, start, started));
    TRY(shift_rows(l, 1, &start->in[0].storage));
    start->shift = 1;
    TRY(add_carry(l, wait->out[0].storage, &start->out[0], &started[0]));
    l->loop->carry[l->loop->n_carry - 1].ahead = true;
    wait->in[0].storage = wait->out[0].storage;
    TRY(add_carry_for(l, &wait->in[1], &started[1]));
    l->loop->carry[l->loop->n_carry - 1].ahead = true;
    l->changed = true;
done:
    return status;
}

/* Zeros of a type, which no iteration reads. */
static tow__view nothing(tow_type type, uint32_t zero)
{
    tow__view x = tow__view_whole(zero, type);
    memset(x.strides, 0, sizeof x.strides);
    return x;
}

/* The first instruction that writes what the start takes, which may be made in the place of the partial sums. */
static uint32_t first_writer(const pipeline *l, uint32_t s)
{
    const uint32_t storage = l->body->insts[s].in[0].storage;
    for (uint32_t i = 0; i < s; i++)
        for (uint32_t k = 0; k < l->body->insts[i].n_out; k++)
            if (l->body->insts[i].out[k].storage == storage) return i;
    return s;
}

/* Moves the set in front of instruction `to`, in its order. */
static tow_status move_set_up(const pipeline *l, uint32_t to)
{
    const uint32_t n = l->body->n_insts;
    tow__instruction *insts = l->body->insts, *all = tow__arena_alloc(l->scratch, n, sizeof *all);
    uint32_t count = 0;
    if (!all) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < to; i++)
        if (!l->moves[i]) all[count++] = insts[i];
    for (uint32_t i = 0; i < n; i++)
        if (l->moves[i]) all[count++] = insts[i];
    for (uint32_t i = to; i < n; i++)
        if (!l->moves[i]) all[count++] = insts[i];
    memcpy(insts, all, n * sizeof *insts);
    return TOW_OK;
}

static tow_status shift_set(pipeline *l)
{
    for (uint32_t i = 0; i < l->body->n_insts; i++) {
        tow__instruction *inst = &l->body->insts[i];
        if (!l->moves[i]) continue;
        inst->shift = -1;
        for (uint32_t j = 0; j < inst->n_in; j++) {
            if (!is_own(l, inst->in[j].storage, TOW__S_ROW_IN)) continue;
            const tow_status status = shift_rows(l, -1, &inst->in[j].storage);
            if (status != TOW_OK) return status;
        }
        for (uint32_t k = 0; k < inst->n_out; k++) {
            const tow__storage *out = &l->p->storages[inst->out[k].storage];
            if (out->kind == TOW__S_ROW_OUT) l->loop->ys[out->index].shift = -1;
        }
    }
    return TOW_OK;
}

/* A sum of the whole stays where it is while it is read: it is the carry. Of another one, the wait copies the share. */
static tow_status wait_behind(pipeline *l, uint32_t s, uint32_t w, uint32_t zero)
{
    tow__instruction *wait = &l->body->insts[w];
    const tow__view init[2] = {nothing(wait->in[0].type, zero), nothing(wait->in[1].type, zero)};
    tow_status status = TOW_OK;
    if (TOW__COMPUTES(wait, all_reduce_wait)) {
        TRY(add_carry(l, wait->out[0].storage, &wait->in[0], &init[0]));
        wait->in[0].storage = wait->out[0].storage;
    } else {
        TRY(add_carry_for(l, &wait->in[0], &init[0]));
    }
    TRY(add_carry_for(l, &wait->in[1], &init[1]));
    TRY(shift_set(l));
    TRY(move_set_up(l, first_writer(l, s)));
    l->changed = true;
done:
    return status;
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

static tow_status pipeline_sums(pipeline *l)
{
    uint32_t zero = TOW__NONE;
    for (uint32_t s = 0; s < l->body->n_insts; s++) {
        const uint32_t w = wait_of_sum(l, s);
        if (w == TOW__NONE) continue;
        if (zero == TOW__NONE) {
            void *data = tow__add_constant(&l->outer, ZERO, &zero);
            if (!data) return TOW_OUT_OF_MEMORY;
            memset(data, 0, ZERO);
        }
        tow_status status = wait_behind(l, s, w, zero);
        if (status != TOW_OK) return status;
        while (l->body->insts[s].shift != 0 || !tow__starts_collective(l->body->insts[s].op))
            s++; /* it has moved down */
    }
    return TOW_OK;
}

static tow_status pipeline_gathers(pipeline *l)
{
    for (uint32_t s = 0; s < l->body->n_insts; s++) {
        const uint32_t w = wait_of_gather(l, s);
        tow_status status = w == TOW__NONE ? TOW_OK : gather_ahead(l, s, w);
        if (status != TOW_OK) return status;
    }
    return TOW_OK;
}

/* The results of the loop: new carries come behind the others. */
static tow_status list_results(const pipeline *l, uint32_t n_before)
{
    const tow__loop *loop = l->loop;
    const uint32_t n = loop->n_carry + loop->n_ys;
    tow__view *out = tow__arena_alloc(&l->p->memory, n, sizeof *out);
    if (!out) return TOW_OUT_OF_MEMORY;
    for (uint32_t j = 0; j < n_before; j++) out[j] = l->inst->out[j];
    for (uint32_t j = n_before; j < loop->n_carry; j++)
        out[j] = tow__view_whole(loop->carry[j].result, loop->carry[j].init.type);
    for (uint32_t j = 0; j < loop->n_ys; j++) out[loop->n_carry + j] = l->inst->out[n_before + j];
    l->inst->out = out;
    l->inst->n_out = n;
    return TOW_OK;
}

static bool exchanges_anything(const tow__body *body)
{
    for (uint32_t i = 0; i < body->n_insts; i++)
        if (TOW__COMPUTES(&body->insts[i], all_gather_start) || TOW__COMPUTES(&body->insts[i], reduce_scatter_start) ||
            TOW__COMPUTES(&body->insts[i], all_reduce_start))
            return true;
    return false;
}

/* Adds gathers of first rows to the function around, whose list of instructions is being made. */
static tow_status pipeline_loop(tow__function_state *s, tow__instruction *inst)
{
    tow__loop *loop = inst->loop;
    pipeline l = {.p = s->p,
                  .scratch = s->scratch,
                  .outer = {.p = s->p, .body = s->body, .scratch = s->scratch},
                  .inst = inst,
                  .loop = loop,
                  .body = loop->body};
    const uint32_t n_before = loop->n_carry;
    tow_status status = TOW_OK;
    if (loop->schedule != TOW__SEQUENTIAL || loop->stops || loop->length < 2) return TOW_OK;
    if (!exchanges_anything(l.body)) return TOW_OK; /* or all loops together would take memory for all storages each */
    l.reads = tow__arena_alloc(s->scratch, s->p->n_storages, sizeof *l.reads);
    l.moves = tow__arena_alloc(s->scratch, l.body->n_insts, sizeof *l.moves);
    if (!l.reads || !l.moves) return TOW_OUT_OF_MEMORY;
    count_reads(&l, l.body);
    TRY(pipeline_gathers(&l));
    TRY(pipeline_sums(&l));
    if (!l.changed) return TOW_OK;
    TRY(list_results(&l, n_before));
    TRY(tow__list_loop_reads(s->p, inst, s->scratch));
done:
    return status;
}

/* ---- outside of loops -------------------------------------------------------------------------------------------- */

enum {
    FLIGHTS = 2 /* of a kind at once: one more begins when the first of them has ended */
};

/* The exchanges of one kind that the list has begun, and that have a wait of their own in it. */
typedef struct flights {
    uint32_t waits[FLIGHTS]; /* their numbers in the old list, the latest one last; TOW__NONE: none */
    bool passed;             /* by a loop, since the latest one has begun */
} flights;

/* A function whose instructions are put into a new order. */
typedef struct placing {
    const tow_program *p;
    const tow__body *body; /* with the instructions in the old order */
    uint32_t *wait_of;     /* [n_insts] of a start: its wait, if it may move; TOW__NONE */
    bool *done;            /* [n_insts] it is in the new order */
    uint32_t *order, n;    /* the new order so far */
    flights gathers, sums;
} placing;

static bool is_free(const placing *o, uint32_t storage)
{
    const tow__storage *s = &o->p->storages[storage];
    return s->body == o->body && s->kind == TOW__S_ARENA && s->representative == storage;
}

/* May the result be written earlier? Not where it takes the place of what others still read. */
static bool may_be_early(const placing *o, uint32_t storage)
{
    const tow__storage *s = &o->p->storages[storage];
    return is_free(o, storage) || (s->kind == TOW__S_OUTPUT && o->p->donors[s->index] == TOW__NONE);
}

static bool gathers_input(const placing *o, const tow__instruction *inst)
{
    return TOW__COMPUTES(inst, all_gather_start) && inst->shift == 0 &&
           o->p->storages[inst->in[0].storage].kind == TOW__S_INPUT;
}

static bool scatters_sum(const tow__instruction *inst)
{
    return TOW__COMPUTES(inst, reduce_scatter_start) && inst->shift == 0;
}

/* Finds the waits by the buffers that starts have written before them. */
static tow_status find_waits(const placing *o, tow__arena *scratch)
{
    uint32_t *start_of = tow__arena_alloc(scratch, o->p->n_storages, sizeof *start_of);
    if (!start_of) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < o->body->n_insts; i++) {
        const tow__instruction *inst = &o->body->insts[i];
        o->wait_of[i] = TOW__NONE;
        if (inst->loop) continue;
        if ((gathers_input(o, inst) || scatters_sum(inst)) && is_free(o, inst->out[1].storage))
            start_of[inst->out[1].storage] = i + 1;
        const bool waits = TOW__COMPUTES(inst, all_gather_wait) || TOW__COMPUTES(inst, reduce_scatter_wait);
        const uint32_t start = waits ? start_of[inst->in[1].storage] : 0;
        if (start > 0 && inst->shift == 0 && may_be_early(o, inst->out[0].storage)) o->wait_of[start - 1] = i;
    }
    return TOW_OK;
}

static void place(placing *o, uint32_t i, uint32_t at)
{
    memmove(&o->order[at + 1], &o->order[at], (o->n - at) * sizeof *o->order);
    o->order[at] = i;
    o->n++;
    o->done[i] = true;
}

/* The place behind all loops, and behind the gathers, or also the waits for gathers, that are in the order so far. */
static uint32_t behind_gathers(const placing *o, bool waits)
{
    uint32_t at = o->n;
    for (; at > 0; at--) {
        const tow__instruction *inst = &o->body->insts[o->order[at - 1]];
        if (inst->loop || TOW__COMPUTES(inst, all_gather_start)) break;
        if (waits && TOW__COMPUTES(inst, all_gather_wait)) break;
    }
    return at;
}

static uint32_t behind(const placing *o, uint32_t inst)
{
    for (uint32_t at = o->n; at > 0; at--)
        if (o->order[at - 1] == inst) return at;
    return 0;
}

/* Ends the exchange that is to be over before the start runs, and returns the place behind its wait. */
static uint32_t make_room(placing *o, flights *f, uint32_t start)
{
    const uint32_t first = f->waits[0];
    f->passed = false;
    if (first != TOW__NONE && !o->done[first]) place(o, first, o->n);
    memmove(f->waits, f->waits + 1, sizeof f->waits - sizeof *f->waits);
    f->waits[FLIGHTS - 1] = o->wait_of[start];
    return first == TOW__NONE ? 0 : behind(o, first);
}

/* The same of a sum: all that a loop has passed end. */
static void make_room_for_sum(placing *o, uint32_t start)
{
    const uint32_t latest = o->sums.waits[FLIGHTS - 1];
    const bool passed = o->sums.passed && latest != TOW__NONE;
    make_room(o, &o->sums, start);
    if (!passed) return;
    if (!o->done[latest]) place(o, latest, o->n);
    o->sums.waits[0] = TOW__NONE;
}

/* A gather of an input moves up; all processes do the same, whose shares have other sizes: exchanges begin in one
 * order. That of the first row of a loop ends in the loop. */
static void place_next(placing *o, uint32_t i)
{
    const tow__instruction *inst = &o->body->insts[i];
    const bool ends = o->wait_of[i] != TOW__NONE;
    if (inst->loop) {
        place(o, i, o->n);
        o->sums.passed = true;
    } else if (gathers_input(o, inst)) {
        const uint32_t room = ends ? make_room(o, &o->gathers, i) : 0;
        const uint32_t last = behind_gathers(o, !ends);
        place(o, i, room > last ? room : last);
    } else {
        if (ends && scatters_sum(inst)) make_room_for_sum(o, i);
        place(o, i, o->n);
    }
}

static tow_status place_exchanges(tow__function_state *s)
{
    tow__body *body = s->body;
    const uint32_t n = body->n_insts;
    placing o = {.p = s->p,
                 .body = body,
                 .wait_of = tow__arena_alloc(s->scratch, n, sizeof *o.wait_of),
                 .done = tow__arena_alloc(s->scratch, n, sizeof *o.done),
                 .order = tow__arena_alloc(s->scratch, n, sizeof *o.order)};
    tow__instruction *insts = tow__arena_alloc(s->scratch, n, sizeof *insts);
    if (!o.wait_of || !o.done || !o.order || !insts) return TOW_OUT_OF_MEMORY;
    for (int k = 0; k < FLIGHTS; k++) o.gathers.waits[k] = o.sums.waits[k] = TOW__NONE;
    const tow_status status = find_waits(&o, s->scratch);
    if (status != TOW_OK) return status;
    for (uint32_t i = 0; i < n; i++)
        if (!o.done[i]) place_next(&o, i);
    for (uint32_t i = 0; i < n; i++) insts[i] = body->insts[o.order[i]];
    memcpy(body->insts, insts, n * sizeof *insts);
    return TOW_OK;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static bool exchanges_or_loops(const tow__body *body)
{
    if (exchanges_anything(body)) return true;
    for (uint32_t i = 0; i < body->n_insts; i++)
        if (body->insts[i].loop) return true;
    return false;
}

tow_status tow__pipeline_exchanges(tow__function_state *s)
{
    tow__body *body = s->body;
    const tow__instruction *insts = body->insts;
    const uint32_t n = body->n_insts;
    tow_status status = TOW_OK;
    if (!exchanges_or_loops(body)) return TOW_OK;
    body->insts = NULL;
    body->n_insts = body->insts_capacity = 0;
    for (uint32_t i = 0; i < n; i++) {
        tow__instruction inst = insts[i];
        if (inst.loop) TRY(pipeline_loop(s, &inst));
        TRY(tow__append_instruction(s->p, body, &inst));
    }
    if (exchanges_anything(body)) TRY(place_exchanges(s));
    tow__invalidate(s);
done:
    return status;
}
