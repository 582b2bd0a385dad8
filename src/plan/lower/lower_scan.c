/* Lowers scans. A scan is one instruction of its function, with a function of its own for the body and a loop that runs
 * it.
 *
 * The body is planned once. Its arena is one storage of the function around. Rows of xs are read and rows of ys are
 * written in place. Iteration 0 reads the initial value of a carry in place, so that no carry is copied, unless its
 * initial value is strided.
 *
 * A carry that ys stack as it enters (reverse mode keeps it) is stored in those rows: the iteration before writes it
 * there. If other ys stack the carry as it leaves, both stacks are views of one array with one row more:
 *
 *   array      | r0 | r1 | r2 | ... | rn |        r0: the initial value; rn: the result
 *   entering     r0 . . . . . . rn-1
 *   leaving           r1 . . . . . .  rn          in reverse order if the scan runs in reverse
 *
 * Where the other carries are stored is decided when the aliasing of the body is known (memory/overwrite.c). */
#include "src/plan/analysis/columns.h"
#include "src/plan/lower/lower.h"
#include "src/plan/pass.h"

/* The operands of a scan, by role. */
typedef struct scan {
    const tow__scan_params *params;
    const tow__instruction *inst;
    tow__body *body;
    uint32_t n_consts, n_carry, n_xs, n_ys;
} scan;

static const tow__view *operand(const tow__lowering *l, const scan *s, uint32_t i)
{
    return &l->env[s->inst->operands[i]];
}

/* No iteration: the results are the init values, and ys have no rows. */
static tow_status lower_nothing(tow__lowering *l, const scan *s)
{
    for (uint32_t j = 0; j < s->n_carry; j++) l->env[s->inst->results[j]] = *operand(l, s, s->n_consts + j);
    for (uint32_t j = 0; j < s->n_ys; j++) {
        uint32_t value = s->inst->results[s->n_carry + j];
        uint32_t empty = tow__add_storage(l->p, l->body, TOW__S_ARENA, 0, 0);
        if (empty == TOW__NONE) return TOW_OUT_OF_MEMORY;
        l->env[value] = tow__view_whole(empty, l->body->types[value]);
    }
    return TOW_OK;
}

/* A carry that the body forwards unchanged is a constant of the loop. */
static bool is_unchanged(const scan *s, uint32_t j) { return s->body->outputs[j] == s->body->inputs[s->n_consts + j]; }

static tow_type row_type(tow_type type)
{
    for (int i = 1; i < TOW_MAX_RANK; i++) type.dims[i - 1] = type.dims[i];
    type.dims[TOW_MAX_RANK - 1] = 0;
    type.rank--;
    return type;
}

/* Views of the body's inputs. */
static tow_status bind_inputs(tow__lowering *outer, const scan *s, tow__loop *loop, tow__lowering *b)
{
    tow_program *p = outer->p;
    const uint32_t *inputs = s->body->inputs;
    for (uint32_t i = 0; i < s->n_consts; i++) { b->env[inputs[i]] = *operand(outer, s, i); }
    for (uint32_t j = 0; j < s->n_carry; j++) {
        const tow__view *init = operand(outer, s, s->n_consts + j);
        uint32_t input = inputs[s->n_consts + j];
        if (is_unchanged(s, j)) {
            b->env[input] = *init;
            continue;
        }
        tow__carry *c = &loop->carry[loop->n_carry];
        c->init = *init;
        c->spare = c->entering = c->leaving = TOW__NONE;
        c->in = tow__add_storage(p, b->body, TOW__S_CARRY_IN, loop->n_carry++, tow_type_bytes(init->type));
        if (c->in == TOW__NONE) return TOW_OUT_OF_MEMORY;
        b->env[input] = tow__view_whole(c->in, init->type);
    }
    for (uint32_t j = 0; j < s->n_xs; j++) {
        tow__rows *x = &loop->xs[j];
        x->array = *operand(outer, s, s->n_consts + s->n_carry + j);
        x->stride = (ptrdiff_t)(x->array.strides[0] * (int64_t)tow_dtype_size(x->array.type.dtype));
        tow_type type = row_type(x->array.type);
        x->row = tow__add_storage(p, b->body, TOW__S_ROW_IN, j, tow_type_bytes(type));
        if (x->row == TOW__NONE) return TOW_OUT_OF_MEMORY;
        tow__view row = tow__view_whole(x->row, type);
        for (int i = 0; i < type.rank; i++) row.strides[i] = x->array.strides[i + 1];
        b->env[inputs[s->n_consts + s->n_carry + j]] = row;
    }
    return TOW_OK;
}

/* The carry whose rows are to be ys j as it enters, or NULL. */
static tow__carry *kept_carry(const scan *s, const tow__loop *loop, const tow__lowering *b, uint32_t j)
{
    const tow__storage *x = &b->p->storages[b->env[s->body->outputs[s->n_carry + j]].storage];
    if (x->kind != TOW__S_CARRY_IN || x->body != b->body) return NULL;
    tow__carry *c = &loop->carry[x->index];
    return c->entering == TOW__NONE ? c : NULL;
}

/* ys that are inputs of the body: a carry moves into the rows; others are copied first, which ends their lives early.
 */
static bool is_handed_out(const scan *s, uint32_t j)
{
    return s->body->makers[s->body->outputs[s->n_carry + j]] == TOW__INPUT;
}

/* For each value of the body the carry that ys stack as it enters and that leaves as this value, or NULL. NULL: out of
 * memory. */
static tow__carry **leaving_carries(tow__arena *scratch, const scan *s, tow__loop *loop)
{
    tow__carry **carries = tow__arena_alloc(scratch, s->body->n_values, sizeof *carries);
    for (uint32_t i = 0, k = 0; carries && i < s->n_carry; i++) {
        if (is_unchanged(s, i)) continue;
        tow__carry *c = &loop->carry[k++], **at = &carries[s->body->outputs[i]];
        if (c->entering != TOW__NONE && !*at) *at = c;
    }
    return carries;
}

/* Lets ys that stack a carry as it enters and as it leaves share one array, unless an output or a surrounding loop
 * provides the memory of one of them. */
static tow_status join_stacks(const tow__lowering *outer, const scan *s, tow__loop *loop)
{
    const uint32_t *values = s->inst->results + s->n_carry;
    const bool *delivered = outer->body->delivered;
    tow__carry **carries = leaving_carries(outer->scratch, s, loop);
    if (!carries) return TOW_OUT_OF_MEMORY;
    for (uint32_t j = 0; j < s->n_ys; j++) {
        tow__carry *c = is_handed_out(s, j) ? NULL : carries[s->body->outputs[s->n_carry + j]];
        if (!c || delivered[values[j]] || delivered[values[c->entering]]) continue;
        c->leaving = j;
        loop->ys[j].carry = c;
    }
    return TOW_OK;
}

static tow_status hand_out_inputs(const scan *s, tow__loop *loop, tow__lowering *b)
{
    tow_status status = TOW_OK;
    for (uint32_t j = 0; j < s->n_ys && status == TOW_OK; j++) {
        if (!is_handed_out(s, j)) continue;
        tow__carry *c = kept_carry(s, loop, b, j);
        if (c) {
            c->entering = j;
            loop->ys[j].row = TOW__NONE;
            loop->ys[j].carry = c;
        } else {
            status = tow__deliver(b, s->body->outputs[s->n_carry + j], TOW__S_ROW_OUT, j, &loop->ys[j].row);
        }
    }
    return status;
}

static tow_status bind_carries(tow__lowering *outer, const scan *s, tow__loop *loop, tow__lowering *b)
{
    tow_status status = TOW_OK;
    for (uint32_t j = 0, k = 0; j < s->n_carry; j++) {
        tow__view *result = &outer->env[s->inst->results[j]];
        if (is_unchanged(s, j)) {
            *result = *operand(outer, s, s->n_consts + j);
            continue;
        }
        tow__carry *c = &loop->carry[k];
        TRY(tow__deliver(b, s->body->outputs[j], TOW__S_CARRY_OUT, k++, &c->out));
        if (c->leaving != TOW__NONE) continue; /* see bind_stacks */
        tow_type type = outer->body->types[s->inst->results[j]];
        c->result = tow__add_storage(outer->p, outer->body, TOW__S_ARENA, 0, tow_type_bytes(type));
        if (c->result == TOW__NONE) return TOW_OUT_OF_MEMORY;
        tow__copy_maker(outer->p, c->out, c->result);
        *result = tow__view_whole(c->result, type);
    }
done:
    return status;
}

/* Binds the places of rows of ys inside and outside. */
static tow_status bind_rows(tow__lowering *outer, const scan *s, tow__loop *loop, tow__lowering *b)
{
    tow_status status = TOW_OK;
    for (uint32_t j = 0; j < s->n_ys; j++) {
        tow__rows *y = &loop->ys[j];
        uint32_t value = s->inst->results[s->n_carry + j];
        tow_type type = outer->body->types[value];
        const bool leaves = y->carry && y->carry->entering != j;
        if (leaves)
            y->row = TOW__NONE;
        else if (!is_handed_out(s, j))
            TRY(tow__deliver(b, s->body->outputs[s->n_carry + j], TOW__S_ROW_OUT, j, &y->row));
        if (leaves) continue; /* see bind_leaving */
        size_t bytes = tow_type_bytes(type);
        if (y->carry && y->carry->leaving != TOW__NONE) bytes += bytes / (size_t)loop->length;
        const tow__placed_value *part = &outer->parts[value];
        const bool placed = !y->carry && part->storage != TOW__NONE;
        uint32_t storage = placed ? part->storage : tow__add_storage(outer->p, outer->body, TOW__S_ARENA, 0, bytes);
        if (storage == TOW__NONE) return TOW_OUT_OF_MEMORY;
        if (!placed) tow__copy_maker(outer->p, y->carry ? y->carry->in : y->row, storage);
        outer->env[value] = tow__view_whole(storage, type);
        if (placed) outer->env[value].offset = part->offset;
    }
done:
    return status;
}

/* Makes the result of carry c the last row of the array that holds its entering rows. That array has one row more than
 * the scan has iterations; the entering rows begin at its other end. */
static void bind_stacks(const tow__lowering *outer, const scan *s, const tow__loop *loop, tow__carry *c,
                        tow__view *result, tow_type type)
{
    const uint32_t *values = s->inst->results + s->n_carry;
    tow__view *entering = &outer->env[values[c->entering]];
    int64_t row = entering->strides[0];
    if (loop->reverse) entering->offset = row;
    c->result = entering->storage;
    *result = tow__view_whole(c->result, type);
    result->offset = loop->reverse ? 0 : loop->length * row;
}

/* Makes ys j, which stack carry c as it leaves, a view of the array that holds its entering rows: each row is the
 * entering row of the next iteration. */
static void bind_leaving(const tow__lowering *outer, const scan *s, uint32_t j, const tow__carry *c)
{
    const uint32_t *values = s->inst->results + s->n_carry;
    const tow__view *entering = &outer->env[values[c->entering]];
    outer->env[values[j]] = *entering;
    outer->env[values[j]].offset = entering->strides[0] - entering->offset;
}

/* Storages for the results, outside and inside. */
static tow_status bind_outputs(tow__lowering *outer, const scan *s, tow__loop *loop, tow__lowering *b)
{
    tow_status status = TOW_OK;
    TRY(bind_carries(outer, s, loop, b));
    TRY(bind_rows(outer, s, loop, b));
    for (uint32_t j = 0, k = 0; j < s->n_carry; j++) {
        uint32_t value = s->inst->results[j];
        if (is_unchanged(s, j)) continue;
        tow__carry *c = &loop->carry[k++];
        if (c->leaving != TOW__NONE) bind_stacks(outer, s, loop, c, &outer->env[value], outer->body->types[value]);
    }
    for (uint32_t j = 0; j < s->n_ys; j++) {
        tow__rows *y = &loop->ys[j];
        if (y->carry && y->carry->entering != j) bind_leaving(outer, s, j, y->carry);
        y->array = outer->env[s->inst->results[s->n_carry + j]];
        y->stride = (ptrdiff_t)(y->array.strides[0] * (int64_t)tow_dtype_size(y->array.type.dtype));
    }
done:
    return status;
}

/* The storages of functions around that the body, and loops inside it, read: one view each. */
static tow__view *outer_reads(tow_program *p, tow__arena *scratch, const tow__body *body, uint32_t *n)
{
    size_t most = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) most += body->insts[i].n_in;
    tow__view *reads = tow__arena_alloc(scratch, most, sizeof *reads);
    bool *seen = tow__borrow(p, scratch, sizeof *seen, 0);
    if (!reads || !seen) return NULL;
    *n = 0;
    for (uint32_t i = 0; i < body->n_insts; i++)
        for (uint32_t j = 0; j < body->insts[i].n_in; j++) {
            const tow__view *x = &body->insts[i].in[j];
            const tow__storage *s = &p->storages[x->storage];
            if (s->body == body || s->kind == TOW__S_CONSTANT || seen[x->storage]) continue;
            seen[x->storage] = true;
            reads[(*n)++] = *x;
        }
    tow__give_back(p, seen, body->insts, body->n_insts, NULL);
    return reads;
}

tow_status tow__list_loop_reads(tow_program *p, tow__instruction *inst, tow__arena *scratch)
{
    const tow__loop *loop = inst->loop;
    uint32_t n_reads = 0, n = 0;
    const tow__view *reads = outer_reads(p, scratch, loop->body, &n_reads);
    if (!reads) return TOW_OUT_OF_MEMORY;
    const uint32_t n_flags = loop->stops && !loop->new_flags;
    inst->n_in = loop->n_carry + loop->n_xs + n_reads + n_flags;
    inst->in = tow__arena_alloc(&p->memory, inst->n_in, sizeof *inst->in);
    if (!inst->in) return TOW_OUT_OF_MEMORY;
    for (uint32_t j = 0; j < loop->n_carry; j++) inst->in[n++] = loop->carry[j].init;
    for (uint32_t j = 0; j < loop->n_xs; j++) inst->in[n++] = loop->xs[j].array;
    for (uint32_t j = 0; j < n_reads; j++) inst->in[n++] = reads[j];
    if (n_flags) inst->in[n++] = loop->flag;
    return TOW_OK;
}

/* Attaches the loop and its results to the instruction. */
static tow_status add_loop_inst(tow__lowering *l, const scan *s, tow__loop *loop)
{
    tow__instruction lowered = *s->inst;
    uint32_t n = 0;
    if (loop->stops) lowered.op = loop->new_flags ? &tow__while_p : &tow__cond_p;
    lowered.operands = lowered.results = NULL;
    lowered.loop = loop;
    lowered.scratch = loop->body->block;
    lowered.n_out = loop->n_carry + loop->n_ys;
    lowered.out = tow__arena_alloc(&l->p->memory, lowered.n_out, sizeof *lowered.out);
    if (!lowered.out) return TOW_OUT_OF_MEMORY;
    for (uint32_t j = 0; j < s->n_carry; j++)
        if (!is_unchanged(s, j)) lowered.out[n++] = l->env[s->inst->results[j]];
    for (uint32_t j = 0; j < s->n_ys; j++) lowered.out[n++] = l->env[s->inst->results[s->n_carry + j]];
    tow_status status = tow__list_loop_reads(l->p, &lowered, l->scratch);
    return status == TOW_OK ? tow__append_instruction(l->p, l->body, &lowered) : status;
}

/* A loop around the body of the scan, which belongs to function `outer`. NULL: out of memory. */
static tow__loop *new_loop(tow_program *p, tow__body *outer, const scan *s)
{
    tow__loop *loop = tow__arena_alloc(&p->memory, 1, sizeof *loop);
    if (!loop) return NULL;
    *loop = (tow__loop){.length = s->params->length,
                        .reverse = s->params->reverse,
                        .stops = s->params->stops,
                        .new_flags = s->params->stops && !is_unchanged(s, 0),
                        .body = s->body,
                        .n_xs = s->n_xs,
                        .n_ys = s->n_ys,
                        .carry = tow__arena_alloc(&p->memory, s->n_carry, sizeof *loop->carry),
                        .xs = tow__arena_alloc(&p->memory, s->n_xs, sizeof *loop->xs),
                        .ys = tow__arena_alloc(&p->memory, s->n_ys, sizeof *loop->ys)};
    s->body->outer = outer;
    s->body->loop = loop;
    s->body->team = &p->team;
    s->body->block = tow__add_storage(p, outer, TOW__S_ARENA, 0, 0);
    return loop->carry && loop->xs && loop->ys && s->body->block != TOW__NONE ? loop : NULL;
}

tow_status tow__lower_scan(tow__lowering *l, const tow__instruction *inst)
{
    const tow__scan_params *params = inst->params;
    const uint32_t n_consts = (uint32_t)params->consts, n_carry = (uint32_t)params->carry;
    scan s = {.params = params,
              .inst = inst,
              .body = inst->body,
              .n_consts = n_consts,
              .n_carry = n_carry,
              .n_xs = inst->body->n_inputs - n_consts - n_carry,
              .n_ys = inst->body->n_outputs - n_carry};
    tow__lowering b;
    tow_status status = TOW_OK;
    if (params->length == 0) return lower_nothing(l, &s);
    tow__loop *loop = new_loop(l->p, l->body, &s);
    if (!loop) return TOW_OUT_OF_MEMORY;
    if (loop->stops) loop->flag = *operand(l, &s, s.n_consts);
    TRY(tow__begin_lowering(&b, l->p, s.body, l->scratch));
    TRY(bind_inputs(l, &s, loop, &b));
    TRY(hand_out_inputs(&s, loop, &b));
    TRY(join_stacks(l, &s, loop));
    TRY(tow__lower(&b));
    TRY(bind_outputs(l, &s, loop, &b));
    tow__function_state f = {.p = l->p, .scratch = l->scratch, .kind = TOW__SCAN_BODY, .body = s.body, .loop = loop};
    TRY(tow__end_pass(&f, TOW__PASS_lower));
    TRY(add_loop_inst(l, &s, loop));
done:
    return status;
}
