/* May a result of an instruction have the memory of one of its operands? Aliasing asks before it joins two storages,
 * and the plan checker asks again. Later readers of the operand are not looked at here. */
#include "src/plan/analysis/view.h"
#include "src/plan/lower/lower.h"
#include "src/plan/memory/memory.h"

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* May output k of a kernel overwrite operand i? */
static bool allows(tow__aliasing aliasing, uint32_t k, uint32_t i, uint32_t n_in)
{
    switch (aliasing) {
    case TOW__ALIAS_NONE:
        return false;
    case TOW__ALIAS_ANY:
        return k == 0;
    case TOW__ALIAS_EACH:
        return true;
    case TOW__ALIAS_FIRST:
        return k == 0 && i == 0;
    case TOW__ALIAS_LAST:
        return k == 0 && i + 1 == n_in;
    }
    return false;
}

/* A kernel reads operands of the output's shape element by element. So it may overwrite the memory of operand j if
 * every operand in that memory is the whole of it, in row-major order, and of the output's type. */
static bool kernel_may_overwrite(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t j)
{
    const tow__aliasing aliasing = tow__aliasing_of(inst);
    if (aliasing == TOW__ALIAS_NONE || (k > 0 && aliasing != TOW__ALIAS_EACH)) return false;
    const uint32_t memory = tow__representative(p, inst->in[j].storage);
    for (uint32_t i = 0; i < inst->n_in; i++) {
        const tow__view *x = &inst->in[i];
        if (tow__representative(p, x->storage) != memory) continue;
        if (!tow__is_whole(p, x) || !tow_type_equal(x->type, inst->out[k].type)) return false;
        if (!allows(aliasing, k, i, inst->n_in)) return false;
    }
    return true;
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* Rows of result `k` of a loop, or blocks of them, may take the place of those of operand j if no other operand is in
 * that memory and the body reads a row of operand j for the last time before it begins to write that of the result, or
 * with the instruction that begins. */
static bool rows_may_overwrite(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t j);

/* A scan reads initial value k in iteration 0 only, and all other operands until its end, when it writes the results.
 * So result k may have the memory of initial value k, unless another operand is in that memory or the new values of
 * early iterations are written to the result while the initial value is still read. */
static bool scan_may_overwrite(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t j)
{
    const tow__view *x = &inst->in[j];
    if (k >= inst->loop->n_carry) return rows_may_overwrite(p, inst, k, j);
    if (j != k || !inst->alone[j]) return false;
    if (!tow__is_whole(p, x) || x->type.dtype != inst->out[k].type.dtype) return false;
    const tow__carry *c = &inst->loop->carry[k];
    switch (c->storage) {
    case TOW__CARRY_IN_PLACE:
        return !c->copies;
    case TOW__CARRY_ALTERNATES: /* iteration 0 writes the spare buffer if the number of iterations is even */
        if (inst->loop->stops || c->ahead) return !c->copies && c->spare != TOW__NONE;
        return !c->copies && inst->loop->length % 2 == 0;
    case TOW__CARRY_IN_ROWS: /* the initial value is copied to its row first */
        return true;
    case TOW__CARRY_IN_ALL_ROWS:
        return false;
    }
    return false;
}

static bool may_overwrite_storage(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t storage);

/* May instruction `at` of the body write a row of memory `row_out` over the row `row_in` that it reads? */
static bool writes_over_row(const tow_program *p, const tow__body *body, uint32_t at, uint32_t row_out, uint32_t row_in)
{
    const tow__instruction *inst = &body->insts[at];
    for (uint32_t k = 0; k < inst->n_out; k++)
        if (tow__representative(p, inst->out[k].storage) == row_out) return may_overwrite_storage(p, inst, k, row_in);
    return false;
}

/* Rows of xs: are they read before those of ys are written in their place? Those of a later iteration are. */
static bool rows_precede(const tow_program *p, const tow__loop *loop, const tow__rows *xs, const tow__rows *ys)
{
    const uint32_t row_in = xs->row;
    if (row_in == TOW__NONE || p->storages[row_in].bytes != p->storages[ys->row].bytes) return false;
    if (xs->shift != ys->shift) return xs->shift > ys->shift;
    const uint32_t row_out = tow__representative(p, ys->row);
    const uint32_t last_read = p->storages[row_in].last, first_write = p->storages[row_out].first;
    if (last_read == TOW__NONE || last_read < first_write) return true;
    return last_read == first_write && writes_over_row(p, loop->body, first_write, row_out, row_in);
}

static bool is_shifted(const tow__loop *loop)
{
    for (uint32_t i = 0; i < loop->n_xs; i++)
        if (loop->xs[i].shift != 0) return true;
    return false;
}

/* Other operands in that memory may be rows of other iterations alone. */
static bool rows_may_overwrite(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t j)
{
    const tow__loop *loop = inst->loop;
    if (k - loop->n_carry >= loop->n_ys) return false; /* a sum */
    const tow__rows *to = &loop->ys[k - loop->n_carry];
    if (to->row == TOW__NONE || to->carry || (!inst->alone[j] && !is_shifted(loop))) return false;
    const uint32_t memory = tow__representative(p, inst->in[j].storage);
    for (uint32_t i = inst->alone[j] ? j : 0; i < (inst->alone[j] ? j + 1 : inst->n_in); i++) {
        if (tow__representative(p, inst->in[i].storage) != memory) continue;
        if (i < loop->n_carry || i - loop->n_carry >= loop->n_xs || !tow__is_whole(p, &inst->in[i])) return false;
        if (inst->in[i].type.rank == 0 || !rows_precede(p, loop, &loop->xs[i - loop->n_carry], to)) return false;
    }
    return true;
}

/* ---- all instructions -------------------------------------------------------------------------------------------- */

bool tow__may_overwrite(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t j)
{
    return !inst->loop                  ? kernel_may_overwrite(p, inst, k, j)
           : tow__by_blocks(inst->loop) ? rows_may_overwrite(p, inst, k, j)
                                        : scan_may_overwrite(p, inst, k, j);
}

static bool may_overwrite_storage(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t storage)
{
    for (uint32_t j = 0; j < inst->n_in; j++)
        if (tow__representative(p, inst->in[j].storage) == storage) return tow__may_overwrite(p, inst, k, j);
    return false;
}

/* ---- carries ----------------------------------------------------------------------------------------------------- */

uint32_t tow__last_read(const tow_program *p, uint32_t carry_in)
{
    return p->storages[carry_in].first == TOW__NONE ? TOW__NONE : p->storages[carry_in].last;
}

bool tow__written_while_read(const tow_program *p, const tow__body *body, uint32_t in, uint32_t out)
{
    const uint32_t new_value = tow__representative(p, out);
    const uint32_t last_read = tow__last_read(p, in), first_write = p->storages[new_value].first;
    if (last_read == TOW__NONE || first_write == TOW__NONE || last_read < first_write) return false;
    return last_read > first_write || !writes_over_row(p, body, first_write, new_value, in);
}

bool tow__carry_alternates(const tow_program *p, const tow__body *body, uint32_t in, uint32_t out)
{
    if (body->loop->carry[p->storages[in].index].entering != TOW__NONE) return true;
    return tow__written_while_read(p, body, in, out);
}

/* The storage of carry c between iterations. */
static tow__carry_storage choose_storage(const tow_program *p, const tow__loop *loop, const tow__carry *c)
{
    if (c->leaving != TOW__NONE) return TOW__CARRY_IN_ALL_ROWS;
    if (c->entering != TOW__NONE) return TOW__CARRY_IN_ROWS;
    return tow__carry_alternates(p, loop->body, c->in, c->out) ? TOW__CARRY_ALTERNATES : TOW__CARRY_IN_PLACE;
}

tow_status tow__choose_carry_storage(tow_program *p, tow__loop *loop)
{
    for (uint32_t j = 0; j < loop->n_carry; j++) {
        tow__carry *c = &loop->carry[j];
        c->storage = choose_storage(p, loop, c);
        c->copies = c->entering != TOW__NONE || !tow__view_contiguous(&c->init);
        if (c->storage != TOW__CARRY_ALTERNATES || (loop->length == 1 && !c->copies)) continue;
        c->spare = tow__add_storage(p, loop->body->outer, TOW__S_ARENA, 0, p->storages[c->result].bytes);
        if (c->spare == TOW__NONE) return TOW_OUT_OF_MEMORY;
        tow__copy_maker(p, c->result, c->spare);
    }
    return TOW_OK;
}
