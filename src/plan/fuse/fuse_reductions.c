/* Reductions join the row program that makes their operand:
 *
 *   fused       d, s = (sub, integer_pow)(x, mean)      fused       d, v = (sub, integer_pow, reduce_sum)(x, mean)
 *   reduce_sum  v = (s)
 *
 * So s is stored only if another instruction reads it, and it is always reduced while it is in cache. The reduced axes
 * must be neighbors, except for axes of one element. All reductions of a program reduce the same axes. The largest
 * set joins, others stay apart. Reductions move up to the program, unless that extends live ranges too much. */
#include "src/kernels/reductions/reduce.h"
#include "src/plan/analysis/cost.h"
#include "src/plan/analysis/view.h"
#include "src/plan/fuse/fuse_state.h"
#include "src/plan/lower/lower.h"

enum {
    SMALL = 16,    /* elements per result, at least, for results whose memory does not matter */
    LOOKED_AT = 16 /* reductions of one instruction that are tried, at most: the pass stays linear */
};
#define MORE_CALL 0.5 /* of a call, that a row program with reductions takes longer to begin than the two apart */

typedef struct fuse_reductions_state {
    tow__fuse_state f;
    uint32_t *first, *next; /* [n_insts] reductions of an instruction's results, in order, or TOW__NONE */
    bool *joined;           /* [n_insts] the reduction is part of another instruction now */
} fuse_reductions_state;

bool tow__is_reduction(const tow_program *p, const tow__instruction *inst)
{
    return inst->kernel && tow__is_plain(inst) && inst->n_in == 1 && inst->n_out == 1 &&
           tow__is_whole(p, &inst->in[0]) && tow__is_whole(p, &inst->out[0]) &&
           tow__reducer_of(inst->kernel, inst->in[0].type.dtype);
}

bool tow__find_extents(const tow__instruction *inst, tow__extents *e)
{
    const tow__ints *axes = &((const tow__axes_params *)inst->params)->axes;
    *e = (tow__extents){1, 1, 1};
    for (int a = 0; a < inst->in[0].type.rank; a++) {
        int64_t n = inst->in[0].type.dims[a];
        bool reduced = tow__ints_contain(axes, a);
        if (reduced && n != 1 && e->columns > 1) return false;
        if (reduced)
            e->elements *= n;
        else if (e->elements == 1)
            e->outer *= n;
        else
            e->columns *= n;
    }
    return e->elements > 1 && e->outer > 0 && e->columns > 0;
}

/* Not to write and read the elements in L1 saves more than a longer call takes. */
static bool are_worth_a_program(const tow_program *p, const tow__extents *e)
{
    const tow__rates *r = &p->machine.rates;
    const double bytes = 2 * sizeof(f32) * (double)e->outer * (double)e->elements * (double)e->columns;
    return bytes / r->bytes[TOW__IN_L1] >= MORE_CALL * r->call;
}

bool tow__is_fusible_reduction(const tow__fuse_state *f, const tow__instruction *inst)
{
    tow__extents e;
    return tow__is_reduction(f->p, inst) && tow__find_extents(inst, &e) && are_worth_a_program(f->p, &e);
}

static bool same_extents(tow__extents a, tow__extents b)
{
    return a.outer == b.outer && a.elements == b.elements && a.columns == b.columns;
}

/* Instruction i as a row program. */
static tow_status program_of_inst(fuse_reductions_state *j, uint32_t i, tow__instruction *inst, bool *done)
{
    tow__fuse_state *f = &j->f;
    tow__candidate c;
    *inst = f->body->insts[i];
    *done = inst->kernel && inst->op == &tow__fused_p;
    if (*done || !f->tiles[i]) return TOW_OK;
    tow__group g = {.members = &i, .n = 1, .shape = inst->out[0].type, .product = TOW__NONE};
    *done = tow__write_program(f, &g, NULL, g.shape, &c) && c.n_out == inst->n_out;
    if (!*done) return TOW_OK;
    inst->n_in = c.n_in;
    inst->params = tow__finish_program(f, &c);
    inst->in = tow__arena_copy(&f->p->memory, c.in, c.n_in, sizeof *c.in);
    inst->out = tow__arena_copy(&f->p->memory, c.out, c.n_out, sizeof *c.out);
    return inst->params && inst->in && inst->out ? TOW_OK : TOW_OUT_OF_MEMORY;
}

static bool reads(const tow__instruction *reduction, const tow__view *x)
{
    return reduction->in[0].storage == x->storage;
}

/* True if the result of reduction r lives longer when r moves up to instruction i, past others than the n reductions
 * chosen before it, and its operand does not die in return. */
static bool extends_live_range(const fuse_reductions_state *j, uint32_t i, uint32_t n, uint32_t r,
                               const tow__extents *e)
{
    uint32_t x = j->f.body->insts[r].in[0].storage;
    bool dies = j->f.p->storages[x].kind == TOW__S_ARENA && j->f.uses->last_reader[x] == r;
    return r > i + 1 + n && e->elements < SMALL && !dies;
}

typedef struct choice {
    uint32_t n, of[TOW__FUSED_REDUCTIONS];
    tow__extents e;
} choice;

/* Reductions of instruction i, from reduction r on, that may join its program together. */
static choice choose_from(const fuse_reductions_state *j, uint32_t i, uint32_t r)
{
    choice c = {.n = 0};
    for (uint32_t k = 0; k < LOOKED_AT && r != TOW__NONE && c.n < TOW__FUSED_REDUCTIONS; k++, r = j->next[r]) {
        tow__extents own;
        if (!tow__find_extents(&j->f.body->insts[r], &own)) continue;
        if (c.n > 0 && !same_extents(own, c.e)) continue;
        if (extends_live_range(j, i, c.n, r, &own)) continue;
        c.e = own;
        c.of[c.n++] = r;
    }
    return c;
}

/* The choice with the most reductions. */
static choice choose(const fuse_reductions_state *j, uint32_t i)
{
    choice best = {.n = 0};
    uint32_t r = j->first[i];
    for (uint32_t k = 0; k < LOOKED_AT && r != TOW__NONE; k++, r = j->next[r]) {
        choice c = choose_from(j, i, r);
        if (c.n > best.n) best = c;
    }
    return best;
}

/* Adds a reduction, of one of the results of `program`, to the parameters. */
static void add_reduction(const tow__instruction *program, const tow__instruction *reduction,
                          tow__row_reductions *params)
{
    uint32_t k = 0;
    while (!reads(reduction, &program->out[k])) k++;
    uint32_t n = params->n_reductions++;
    tow_dtype dtype = reduction->in[0].type.dtype;
    params->reductions[n].name = reduction->op->name;
    params->reductions[n].reducer = tow__reducer_of(reduction->kernel, dtype);
    params->reductions[n].dtype = dtype;
    params->reductions[n].result = k;
}

/* True if result x of the program has to be stored: the chosen reductions are not its only readers. */
static bool is_stored(const fuse_reductions_state *j, const tow__view *x, const choice *c)
{
    uint32_t own = 0;
    for (uint32_t r = 0; r < c->n; r++) own += reads(&j->f.body->insts[c->of[r]], x);
    return own == 0 || j->f.p->storages[x->storage].kind != TOW__S_ARENA || j->f.uses->reads[x->storage] > own;
}

/* True if instruction i and the chosen reductions take less time apart: the program may keep more threads busy without
 * its reductions. */
static bool slows(const fuse_reductions_state *j, uint32_t i, const choice *c, const tow__instruction *joined)
{
    const tow__instruction *insts = j->f.body->insts;
    tow__machine m = j->f.p->machine;
    m.threads = (int)tow__min(m.threads, j->f.body->team->threads);
    double apart = tow__instruction_seconds(&m, &insts[i]);
    for (uint32_t r = 0; r < c->n; r++) apart += tow__instruction_seconds(&m, &insts[c->of[r]]);
    m.threads = (int)tow__min(m.threads, tow__fused_reduce_pieces(joined->extras.reductions, m.threads));
    return tow__instruction_seconds(&m, joined) > apart;
}

/* Parameters of `program` together with the chosen reductions. */
static void set_params(const fuse_reductions_state *j, const tow__instruction *program, const choice *c,
                       tow__row_reductions *params)
{
    *params = (tow__row_reductions){
        .n_results = program->n_out, .outer = c->e.outer, .elements = c->e.elements, .columns = c->e.columns};
    for (uint32_t r = 0; r < c->n; r++) add_reduction(program, &j->f.body->insts[c->of[r]], params);
    for (uint32_t k = 0; k < program->n_out; k++) params->stored[k] = is_stored(j, &program->out[k], c);
}

/* Lists the results of the merged instruction: stored results of the program, then the reductions. */
static uint32_t list_results(const fuse_reductions_state *j, const tow__instruction *program, const choice *c,
                             const tow__row_reductions *params, tow__view *out)
{
    uint32_t n_out = 0;
    for (uint32_t k = 0; k < program->n_out; k++)
        if (params->stored[k]) out[n_out++] = program->out[k];
    for (uint32_t r = 0; r < c->n; r++) out[n_out++] = j->f.body->insts[c->of[r]].out[0];
    return n_out;
}

static tow_status join(fuse_reductions_state *j, uint32_t i, tow__instruction *inst)
{
    tow__arena *memory = &j->f.p->memory;
    tow__instruction program;
    bool done;
    *inst = j->f.body->insts[i];
    choice c = choose(j, i);
    if (c.n == 0 || !are_worth_a_program(j->f.p, &c.e)) return TOW_OK;
    tow_status status = program_of_inst(j, i, &program, &done);
    if (status != TOW_OK || !done) return status;
    tow__row_reductions *params = tow__arena_alloc(memory, 1, sizeof *params);
    tow__view *out = tow__arena_alloc(memory, program.n_out + c.n, sizeof *out);
    if (!params || !out) return TOW_OUT_OF_MEMORY;
    set_params(j, &program, &c, params);
    tow__instruction joined = program;
    joined.n_out = list_results(j, &program, &c, params, out);
    joined.out = out;
    joined.op = &tow__fused_p;
    joined.extras.reductions = params;
    joined.kernel = tow__kernel_for(&joined, TOW_F32);
    if (slows(j, i, &c, &joined)) return TOW_OK;
    *inst = joined;
    for (uint32_t r = 0; r < c.n; r++) j->joined[c.of[r]] = true;
    tow__lowering l = {.p = j->f.p, .body = j->f.body, .scratch = j->f.scratch};
    return tow__add_scratch(&l, inst);
}

/* Lists the reductions that read the results of each instruction. */
static tow_status list_reductions(fuse_reductions_state *j)
{
    uint32_t n = j->f.body->n_insts;
    uint32_t *last = tow__arena_alloc(j->f.scratch, n, sizeof *last);
    j->first = tow__arena_alloc(j->f.scratch, n, sizeof *j->first);
    j->next = tow__arena_alloc(j->f.scratch, n, sizeof *j->next);
    j->joined = tow__arena_alloc(j->f.scratch, n, sizeof *j->joined);
    if (!last || !j->first || !j->next || !j->joined) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        const tow__instruction *inst = &j->f.body->insts[i];
        j->first[i] = j->next[i] = TOW__NONE;
        if (!tow__is_reduction(j->f.p, inst)) continue;
        uint32_t maker = j->f.uses->producer[inst->in[0].storage];
        if (maker >= i) continue; /* TOW__NONE: no instruction of the body makes it */
        *(j->first[maker] == TOW__NONE ? &j->first[maker] : &j->next[last[maker]]) = i;
        last[maker] = i;
    }
    return TOW_OK;
}

tow_status tow__fuse_reductions(tow__function_state *s)
{
    tow__body *body = s->body;
    fuse_reductions_state j = {.first = NULL};
    tow_status status = TOW_OK;
    uint32_t n = 0;
    TRY(tow__begin_fusion(&j.f, s));
    TRY(list_reductions(&j));
    tow__instruction *insts = tow__arena_alloc(&s->p->memory, body->n_insts, sizeof *insts);
    if (!insts) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < body->n_insts; i++)
        if (!j.joined[i]) TRY(join(&j, i, &insts[n++]));
    tow__end_fusion(&j.f);
    body->insts = insts;
    body->insts_capacity = body->n_insts;
    body->n_insts = n;
    tow__invalidate(s);
done:
    return status;
}
