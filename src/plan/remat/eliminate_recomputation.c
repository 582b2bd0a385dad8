/* Recomputation is left out as far as the caller's memory limit allows (tow_compile_options.memory_limit).
 *
 *   forward     z = dot x w1    h = gelu z    y = dot h w2    loss
 *   recomputed  z'              h'            y'              cotangents of y', h', z' ...
 *
 * A forward product and its repetition have the same value, bit for bit. Reusing the forward value avoids recomputation
 * but extends its live range, which may raise the peak or not: right after a forward pass, where the backward pass
 * begins, it often does not. The backward pass needs the latest values first, so the latest products are kept.
 * remat/frontier.c finds their number.
 *
 * If not everything can be kept, only what multiplies is (products, attention, losses over products, whole scans): the
 * rest costs about as much to read as to make again. Bodies of scans are left alone, but for whole gradients, of
 * micro-batches. */
#include <stdlib.h>

#include "src/base/hash.h"
#include "src/graph/builder.h"
#include "src/graph/policy.h"
#include "src/plan/ir.h"
#include "src/plan/remat/remat.h"

typedef struct repetition {
    uint32_t forward, again; /* instructions */
    bool multiplies;
} repetition;

typedef struct numbering {
    const tow__body *f;
    uint32_t *number; /* [n_values] the first value that is the same */
    uint32_t *table;  /* instructions; TOW__NONE: free */
    uint32_t n_table;
    uint64_t seed;
} numbering;

/* ---- value numbering --------------------------------------------------------------------------------------------- */

static uint64_t hash_inst(const numbering *t, const tow__instruction *inst)
{
    uint64_t h = tow__params_hash(t->seed, inst->op, inst->params);
    for (uint32_t i = 0; i < inst->n_in; i++) h = tow__hash(h, &t->number[inst->operands[i]], sizeof *t->number);
    return h;
}

static bool equal(const numbering *t, const tow__instruction *a, const tow__instruction *b)
{
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out) return false;
    for (uint32_t i = 0; i < a->n_in; i++)
        if (t->number[a->operands[i]] != t->number[b->operands[i]]) return false;
    return tow__params_equal(a->op, a->params, b->params);
}

/* The first instruction that equals instruction n: n itself if there was none before. */
static uint32_t first_equal(numbering *t, uint32_t n)
{
    const tow__instruction *inst = &t->f->insts[n];
    uint32_t mask = t->n_table - 1, i = (uint32_t)hash_inst(t, inst) & mask;
    while (t->table[i] != TOW__NONE && !equal(t, &t->f->insts[t->table[i]], inst)) i = (i + 1) & mask;
    if (t->table[i] == TOW__NONE) t->table[i] = n;
    return t->table[i];
}

/* Does the instruction come from a region with a limit of its own, which made it on purpose? */
static bool insists(const tow__instruction *inst)
{
    const uint32_t verdict = inst->source ? inst->source->mark & ((1u << TOW__MARK_BITS) - 1) : 0;
    return verdict == TOW_MUST_RECOMPUTE + 1;
}

static bool multiplies(const tow__instruction *inst) { return inst->op->product || tow__is_loop(inst->op); }

/* ---- repetitions ------------------------------------------------------------------------------------------------- */

/* Products first, and among them those that were made last. */
static int latest_first(const void *a, const void *b)
{
    const repetition *x = a, *y = b;
    if (x->multiplies != y->multiplies) return x->multiplies ? -1 : 1;
    if (x->forward != y->forward) return x->forward > y->forward ? -1 : 1;
    return x->again < y->again ? -1 : x->again > y->again;
}

/* *list: in scratch, latest first. */
static tow_status find_repetitions(tow__arena *scratch, const tow__body *f, repetition **list, uint32_t *n)
{
    numbering t = {.f = f, .n_table = 16, .seed = scratch->ctx->hash_seed};
    while (t.n_table / 2 <= f->n_insts) t.n_table *= 2;
    t.number = tow__arena_alloc(scratch, f->n_values, sizeof *t.number);
    t.table = tow__arena_alloc(scratch, t.n_table, sizeof *t.table);
    *list = tow__arena_alloc(scratch, f->n_insts, sizeof **list);
    *n = 0;
    if (!t.number || !t.table || !*list) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_values; i++) t.number[i] = i;
    for (uint32_t i = 0; i < t.n_table; i++) t.table[i] = TOW__NONE;
    for (uint32_t i = 0; i < f->n_insts; i++) {
        const tow__instruction *inst = &f->insts[i];
        if (TOW__COMPUTES(inst, same_bits)) { /* the value that it compares */
            t.number[inst->results[0]] = t.number[inst->operands[0]];
            continue;
        }
        uint32_t first = first_equal(&t, i);
        if (first == i) continue;
        for (uint32_t j = 0; j < inst->n_out; j++) t.number[inst->results[j]] = t.number[f->insts[first].results[j]];
        if (inst->late && !f->insts[first].late && !insists(inst))
            (*list)[(*n)++] = (repetition){first, i, multiplies(inst)};
    }
    qsort(*list, *n, sizeof **list, latest_first);
    return TOW_OK;
}

tow_status tow__eliminate_recomputation(tow_program *p, tow__arena *scratch, tow__body *f)
{
    repetition *list;
    uint32_t n, *now = tow__arena_alloc(scratch, f->n_values, sizeof *now);
    tow_status status = now ? find_repetitions(scratch, f, &list, &n) : TOW_OUT_OF_MEMORY;
    if (status != TOW_OK) return status;
    for (uint32_t i = 0; i < f->n_values; i++) now[i] = i;
    uint32_t n_products = 0;
    while (n_products < n && list[n_products].multiplies) n_products++;
    if (n_products > 0) p->n_repeated = n_products; /* one function has them: the program, or one micro-batch of it */
    const uint32_t kept = p->choice.products < n_products ? p->choice.products : n_products;
    for (uint32_t i = 0; i < (p->choice.all ? n : kept); i++) {
        const tow__instruction *forward = &f->insts[list[i].forward], *again = &f->insts[list[i].again];
        for (uint32_t j = 0; j < again->n_out; j++) now[again->results[j]] = forward->results[j];
    }
    for (uint32_t i = 0; i < f->n_insts; i++)
        for (uint32_t j = 0; j < f->insts[i].n_in; j++) f->insts[i].operands[j] = now[f->insts[i].operands[j]];
    for (uint32_t i = 0; i < f->n_outputs; i++) f->outputs[i] = now[f->outputs[i]];
    return TOW_OK;
}
