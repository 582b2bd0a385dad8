/* Fusion: elementwise instructions on arrays of one shape become one instruction, a row program
 * (src/kernels/elementwise/fused.h, fuse/row_program.c).
 *
 * Instructions are walked in order. Each starts a group of its own. An elementwise one is merged with groups that make
 * its operands or read them too. The schedule is a list of groups by position:
 *
 *   position   0        1      2        3          merging 0 and 3: group 0 moves down to position 3 if no group
 *   group      mul,add  dot    reduce   tanh       between reads its results, or group 3 moves up to position 0 if no
 *                                                  group between makes its operands: the move that keeps fewer bytes
 *                                                  alive is made
 *
 * A product takes part as well: instructions that read its result become a program that runs on finished strips of it.
 *
 * Groups with other groups between them merge only if no more bytes are alive than before, so that fusion does not undo
 * what a remat policy saves. This holds across the passes of a gradient as well: values that only the backward pass
 * reads are computed there, and derivatives whose operands are ready are computed together with their function.
 * Products stay in the forward or backward pass to which they belong.
 *
 * A second walk over the groups retries merges: a partial group may have failed the liveness test that the complete
 * group passes. Then groups merge only if fewer bytes are alive. Values that only their own group reads become
 * temporaries of the program and lose their storage.
 *
 * A product has no epilogue if one of these holds:
 *   - it is no plain product of two operands that writes all of a storage (is_product);
 *   - no elementwise instruction whose results are as large reads its result (tile_of, can_pair);
 *   - the reader belongs to the other pass of a gradient, or is more than WINDOW positions away (can_pair);
 *   - the reader, or one between, waits for another group that waits for the product, so neither can move
 *     (look_between);
 *   - the reader belongs to an update, which works in place (analysis/updates.c);
 *   - as a row program with reductions, the reader stores fewer bytes than as an epilogue (is_better_reduced);
 *   - there are groups between, and more bytes would be alive after the merge (is_worth_merging);
 *   - the reader takes the product in another shape or order, such as transposed (add_operand in row_program.c);
 *   - the group would make an operand of the product (add_product there), no result has the product's type
 *     (find_accumulator there), or operands, results, temporaries or operations are too many (the others there). */
#include "src/plan/analysis/columns.h"
#include "src/plan/analysis/cost.h"
#include "src/plan/analysis/view.h"
#include "src/plan/fuse/fuse_state.h"
#include "src/plan/lower/lower.h"

enum {
    WINDOW = 48 /* positions between merged groups, at most: the pass stays linear */
};

/* ---- kinds of instructions --------------------------------------------------------------------------------------- */

/* True for a product that writes all of a storage, in a type that row programs support. */
static bool is_product(const tow__fuse_state *f, const tow__instruction *inst)
{
    return inst->kernel && tow__is_plain(inst) && inst->op->product && inst->n_out == 1 &&
           tow__is_whole(f->p, &inst->out[0]) &&
           tow__kernel_variant(inst->op->name, TOW__WITH_EPILOGUE, inst->out[0].type.dtype);
}

static tow__tile tile_of(const tow__fuse_state *f, const tow__instruction *inst)
{
    tow__buffer buffers[TOW__FUSED_ARITY + TOW__FUSED_RESULTS];
    if (!inst->kernel || !inst->n_in || !inst->n_out) return NULL;
    if (inst->n_in > TOW__FUSED_ARITY || inst->n_out > TOW__FUSED_RESULTS) return NULL;
    for (uint32_t i = 0; i < inst->n_in; i++) {
        if (inst->in[i].type.rank > 0 && !tow__same_dims(inst->in[i].type, inst->out[0].type)) return NULL;
        buffers[i] = tow__view_buffer(&inst->in[i]);
    }
    for (uint32_t i = 0; i < inst->n_out; i++) {
        if (!tow__is_whole(f->p, &inst->out[i]) || !tow__same_dims(inst->out[i].type, inst->out[0].type)) return NULL;
        buffers[inst->n_in + i] = tow__view_buffer(&inst->out[i]);
    }
    tow__kernel_call call = {
        .n_in = inst->n_in, .n_out = inst->n_out, .in = buffers, .out = buffers + inst->n_in, .params = inst->params};
    return tow__kernel_tile(inst->kernel, &call);
}

/* ---- merging ----------------------------------------------------------------------------------------------------- */

static bool makes(const tow__fuse_state *f, const tow__group *g, uint32_t storage)
{
    uint32_t inst = f->uses->producer[storage];
    return inst != TOW__NONE && f->group_of[inst] == (uint32_t)(g - f->groups);
}

static uint32_t count_reads(const tow__fuse_state *f, const tow__group *g, uint32_t storage)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const tow__instruction *inst = &f->body->insts[g->members[i]];
        for (uint32_t j = 0; j < inst->n_in; j++) n += inst->in[j].storage == storage;
    }
    return n;
}

static bool reads(const tow__fuse_state *f, const tow__group *g, uint32_t storage)
{
    return count_reads(f, g, storage) > 0;
}

/* Does b read what a makes? */
static bool reads_from(const tow__fuse_state *f, const tow__group *b, const tow__group *a)
{
    for (uint32_t i = 0; i < b->n; i++) {
        const tow__instruction *inst = &f->body->insts[b->members[i]];
        for (uint32_t j = 0; j < inst->n_in; j++)
            if (makes(f, a, inst->in[j].storage)) return true;
    }
    return false;
}

typedef struct gap {
    bool empty, sinks, rises; /* nothing between; a may move down to b; b may move up to a */
} gap;

/* Does a write, in its place, what b reads? (Carries have two buffers then, which is what they cost.) */
static bool replaces_what_is_read(const tow__fuse_state *f, const tow__group *a, const tow__group *b)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const tow__instruction *inst = &f->body->insts[a->members[i]];
        for (uint32_t k = 0; k < inst->n_out; k++) {
            const uint32_t out = inst->out[k].storage;
            if (f->p->storages[out].kind == TOW__S_CARRY_OUT) continue;
            const uint32_t home = tow__home_of(f->p, f->body, out);
            if (home != TOW__NONE && reads(f, b, home)) return true;
        }
    }
    return false;
}

/* An update does not rise over a function of the caller's, which may end the run: see the pipeline. */
static gap look_between(const tow__fuse_state *f, const tow__group *a, const tow__group *b)
{
    gap between = {.empty = true, .sinks = true, .rises = !(b->updates && f->p->calls_host)};
    for (uint32_t i = a->position + 1; i < b->position; i++) {
        if (f->order[i] == TOW__NONE) continue;
        const tow__group *g = &f->groups[f->order[i]];
        between.empty = false;
        if (between.sinks) between.sinks = !reads_from(f, g, a) && !replaces_what_is_read(f, g, a);
        if (between.rises) between.rises = !reads_from(f, b, g) && !replaces_what_is_read(f, b, g);
    }
    return between;
}

static int64_t arena_bytes(const tow__fuse_state *f, uint32_t storage)
{
    const tow__storage *s = &f->p->storages[storage];
    return s->kind == TOW__S_ARENA && s->body == f->body ? (int64_t)s->bytes : 0;
}

/* Does a group between positions `first` and `last` read it? */
static bool is_read_between(const tow__fuse_state *f, uint32_t first, uint32_t last, uint32_t storage)
{
    for (uint32_t i = first + 1; i < last; i++)
        if (f->order[i] != TOW__NONE && reads(f, &f->groups[f->order[i]], storage)) return true;
    return false;
}

/* Is operand j of an instruction of group a the last use of a storage that the group does not make itself? A storage
 * that the instruction reads several times counts once. */
static bool is_last_use(const tow__fuse_state *f, const tow__group *a, uint32_t member, uint32_t j)
{
    const tow__instruction *inst = &f->body->insts[member];
    const uint32_t s = inst->in[j].storage;
    for (uint32_t i = 0; i < j; i++)
        if (inst->in[i].storage == s) return false;
    return f->uses->last_reader[s] == member && !makes(f, a, s);
}

/* Bytes of operands whose live range ends with group a: it becomes longer if a moves down to b, and shorter if a moves
 * up to b.
 *
 * If a moves up, operands that a group between the two reads stay alive anyway. When fusion retries, they count against
 * the move: without it, a could overwrite them. */
static int64_t dying_bytes(const tow__fuse_state *f, const tow__group *a, const tow__group *b)
{
    const bool rises = a->position > b->position;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const tow__instruction *inst = &f->body->insts[a->members[i]];
        for (uint32_t j = 0; j < inst->n_in; j++) {
            const uint32_t s = inst->in[j].storage;
            if (!is_last_use(f, a, a->members[i], j)) continue;
            const bool stays = rises && is_read_between(f, b->position, a->position, s);
            if (stays && f->retries) bytes -= arena_bytes(f, s);
            if (!stays && !makes(f, b, s)) bytes += arena_bytes(f, s);
        }
    }
    return bytes;
}

/* *inner: bytes of results of group a that become temporaries if b joins it. *outer: bytes of its other results. */
static void result_bytes(const tow__fuse_state *f, const tow__group *a, const tow__group *b, int64_t *inner,
                         int64_t *outer)
{
    *inner = *outer = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const tow__instruction *inst = &f->body->insts[a->members[i]];
        for (uint32_t k = 0; k < inst->n_out; k++) {
            uint32_t s = inst->out[k].storage, own = count_reads(f, a, s), other = count_reads(f, b, s);
            if (f->uses->reads[s] == own && arena_bytes(f, s)) continue; /* a temporary of a already */
            *(f->uses->reads[s] == own + other ? inner : outer) += arena_bytes(f, s);
        }
    }
}

/* Seconds of writing a value of the function, or reading it. */
static double moving_seconds(const tow__fuse_state *f, uint32_t storage)
{
    return tow__moving_seconds(&f->p->machine, (double)arena_bytes(f, storage));
}

/* Seconds of writing the results of group a whose only reader is group b. */
static double handed_seconds(const tow__fuse_state *f, const tow__group *a, const tow__group *b)
{
    double seconds = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const tow__instruction *inst = &f->body->insts[a->members[i]];
        for (uint32_t k = 0; k < inst->n_out; k++) {
            uint32_t s = inst->out[k].storage, n = count_reads(f, b, s);
            if (n > 0 && f->uses->reads[s] == n + count_reads(f, a, s)) seconds += moving_seconds(f, s);
        }
    }
    return seconds;
}

/* True if group b stores less, in seconds, as a row program with reductions than as an epilogue of the product of group
 * a. For example, with a = {dot, tanh}, b = {mul}, and another reader of d:
 *
 *   y = dot(x, w)          as an epilogue      dot(tanh, mul) stores d and q, reduce_sum reads q
 *   d = tanh(y)            with reductions     dot(tanh) stores d, fused_reduce(mul, reduce_sum) reads d and never
 *   q = mul(d, d)                              stores q
 *   s = reduce_sum(q)
 *
 * An epilogue stores all results of b that are read outside of b. With reductions, a stores its results that only b
 * reads; b stores no result that only reductions read, and may write the others in the memory of its operands.
 * Reductions join in the pass fuse-reductions; if that is left out, f->reduced is 0 and so the answer is false. */
static bool is_better_reduced(const tow__fuse_state *f, const tow__group *a, const tow__group *b)
{
    double stored = 0, only_reduced = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        const tow__instruction *inst = &f->body->insts[b->members[i]];
        for (uint32_t k = 0; k < inst->n_out; k++) {
            uint32_t s = inst->out[k].storage, outside = f->uses->reads[s] - count_reads(f, b, s);
            if (outside > 0) stored += moving_seconds(f, s);
            if (outside > 0 && outside == f->reduced[s]) only_reduced += moving_seconds(f, s);
        }
    }
    return only_reduced > 0 && handed_seconds(f, a, b) < stored;
}

/* Moves group `from` into `to`, which keeps its position. */
static tow_status absorb(tow__fuse_state *f, tow__group *to, tow__group *from, tow_type shape)
{
    uint32_t n = to->n + from->n, i = 0, j = 0, k = 0;
    uint32_t *members = tow__arena_alloc(f->scratch, n, sizeof *members);
    if (!members) return TOW_OUT_OF_MEMORY;
    while (k < n)
        members[k++] =
            j == from->n || (i < to->n && to->members[i] < from->members[j]) ? to->members[i++] : from->members[j++];
    for (k = 0; k < from->n; k++) f->group_of[from->members[k]] = (uint32_t)(to - f->groups);
    f->order[from->position] = TOW__NONE;
    from->n = 0;
    to->members = members;
    to->n = n;
    to->shape = shape;
    to->updates |= from->updates;
    if (from->product != TOW__NONE) to->product = from->product;
    return TOW_OK;
}

/* True if the kinds of groups a and b allow one instruction; a comes first. A product takes in readers of its result,
 * in its own pass of a gradient, unless the readers store fewer bytes as a row program with reductions. */
static bool can_pair(const tow__fuse_state *f, const tow__group *a, const tow__group *b)
{
    if (a == b || !a->fusible || !b->fusible || a->count != b->count || a->shift != b->shift) return false;
    if (b->position - a->position > WINDOW) return false;
    if (a->product == TOW__NONE && b->product == TOW__NONE) return true;
    if (a->backward != b->backward || (a->product != TOW__NONE && b->product != TOW__NONE)) return false;
    if (b->updates) return false; /* strips of products add up where results lie */
    return reads_from(f, b, a) && !(a->product != TOW__NONE && is_better_reduced(f, a, b));
}

/* Bytes by which live values grow between groups a and b if they merge at the position of b (a sinks), or at that of a
 * (b rises); INT64_MAX: the move is not possible. */
typedef struct growth {
    int64_t if_a_sinks, if_b_rises;
} growth;

/* Results of a that only a and b read become temporaries. If a sinks, operands that died with it live on until b. If b
 * rises, its other results are alive from a on, and operands that died with it die earlier. */
static growth find_growth(const tow__fuse_state *f, const tow__group *a, const tow__group *b, gap between)
{
    int64_t temporary, stored, of_b_temporary, of_b_stored;
    result_bytes(f, a, b, &temporary, &stored);
    result_bytes(f, b, a, &of_b_temporary, &of_b_stored);
    return (growth){between.sinks ? dying_bytes(f, a, b) - temporary : INT64_MAX,
                    between.rises ? of_b_stored - temporary - dying_bytes(f, b, a) : INT64_MAX};
}

/* Groups with other groups between them merge only if no more bytes are alive than before; when fusion retries, only if
 * fewer are. */
static bool is_worth_merging(const tow__fuse_state *f, growth g, gap between)
{
    const int64_t least = tow__min(g.if_a_sinks, g.if_b_rises);
    return f->retries ? least < 0 : least <= 0 || between.empty;
}

/* True if one program computes both groups on *shape, which becomes that of the merged group. */
static bool find_shape(const tow__fuse_state *f, const tow__group *a, const tow__group *b, tow_type *shape)
{
    const bool products = a->product != TOW__NONE || b->product != TOW__NONE;
    tow__candidate c;
    *shape = b->product != TOW__NONE ? b->shape : a->shape;
    if (tow__write_program(f, a, b, *shape, &c)) return true;
    *shape = b->shape;
    return !products && !tow__same_dims(*shape, a->shape) && tow__write_program(f, a, b, *shape, &c);
}

/* Merges two groups if that is possible and worth it; *merged is the group that remains. */
static tow_status try_merge(tow__fuse_state *f, tow__group *x, tow__group *y, tow__group **merged)
{
    tow__group *a = x->position < y->position ? x : y, *b = a == x ? y : x;
    tow_type shape;
    *merged = NULL;
    if (!can_pair(f, a, b)) return TOW_OK;
    const gap between = look_between(f, a, b);
    if (!between.sinks && !between.rises) return TOW_OK;
    const growth g = find_growth(f, a, b, between);
    if (!is_worth_merging(f, g, between) || !find_shape(f, a, b, &shape)) return TOW_OK;
    const bool sinks = between.sinks && g.if_a_sinks <= g.if_b_rises;
    *merged = sinks ? b : a;
    return sinks ? absorb(f, b, a, shape) : absorb(f, a, b, shape);
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static uint32_t *alloc_none(tow__arena *arena, size_t n)
{
    uint32_t *array = tow__arena_alloc(arena, n, sizeof *array);
    if (array) memset(array, 0xFF, n * sizeof *array);
    return array;
}

tow_status tow__begin_fusion(tow__fuse_state *f, tow__function_state *s)
{
    *f = (tow__fuse_state){.s = s, .p = s->p, .body = s->body, .scratch = s->scratch, .uses = tow__get_uses(s)};
    uint32_t n_insts = f->body->n_insts;
    f->tiles = tow__arena_alloc(f->scratch, n_insts, sizeof *f->tiles);
    f->groups = tow__arena_alloc(f->scratch, n_insts, sizeof *f->groups);
    f->group_of = alloc_none(f->scratch, n_insts);
    f->order = alloc_none(f->scratch, n_insts);
    f->recent = tow__borrow(f->p, f->scratch, sizeof *f->recent, 0xFF);
    f->reduced = tow__borrow(f->p, f->scratch, sizeof *f->reduced, 0);
    if (!f->uses || !f->tiles || !f->groups || !f->group_of || !f->order || !f->recent || !f->reduced)
        return TOW_OUT_OF_MEMORY;
    const bool reduces = !f->p->left_out[TOW__PASS_fuse_reductions];
    for (uint32_t i = 0; i < n_insts; i++) {
        const tow__instruction *inst = &f->body->insts[i];
        f->tiles[i] = tile_of(f, inst);
        if (reduces && tow__is_fusible_reduction(f, inst)) f->reduced[inst->in[0].storage]++;
    }
    return TOW_OK;
}

void tow__end_fusion(tow__fuse_state *f)
{
    tow__give_back(f->p, f->recent, f->body->insts, f->body->n_insts, NULL);
    tow__give_back(f->p, f->reduced, f->body->insts, f->body->n_insts, NULL);
}

/* Merges the group of instruction i with the group of instruction `inst` if possible; *met: set if they merged. */
static tow_status try_merge_with(tow__fuse_state *f, uint32_t i, uint32_t inst, bool *met)
{
    tow__group *merged = NULL;
    if (inst == TOW__NONE || inst >= i) return TOW_OK;
    tow_status status = try_merge(f, &f->groups[f->group_of[inst]], &f->groups[f->group_of[i]], &merged);
    *met |= merged != NULL;
    return status;
}

static tow_status place_inst(tow__fuse_state *f, uint32_t i)
{
    const tow__instruction *inst = &f->body->insts[i];
    tow__group *g = &f->groups[i];
    tow_status status = TOW_OK;
    *g = (tow__group){
        .n = 1, .position = f->n_order, .product = TOW__NONE, .backward = inst->backward, .updates = f->updates[i]};
    g->shift = inst->shift;
    if (is_product(f, inst)) g->product = i;
    g->fusible = f->tiles[i] || g->product != TOW__NONE;
    g->members = tow__arena_alloc(f->scratch, 1, sizeof *g->members);
    if (!g->members) return TOW_OUT_OF_MEMORY;
    g->members[0] = i;
    f->group_of[i] = i;
    f->order[f->n_order++] = i;
    if (!g->fusible) return TOW_OK;
    g->shape = inst->out[0].type;
    g->count = (int64_t)tow_type_element_count(g->shape);
    if (g->product != TOW__NONE) return TOW_OK; /* its readers join it later */
    for (bool met = true; met;) {               /* a merge may clear the way for another one */
        met = false;
        for (uint32_t j = 0; j < inst->n_in; j++)
            TRY(try_merge_with(f, i, f->uses->producer[inst->in[j].storage], &met));
    }
    for (uint32_t j = 0; j < inst->n_in; j++) { /* other readers of the same data, unless it is small */
        uint32_t s = inst->in[j].storage;
        if (f->p->storages[s].bytes < (size_t)g->count * tow_dtype_size(inst->in[j].type.dtype)) continue;
        TRY(try_merge_with(f, i, f->recent[s], &(bool){false}));
        f->recent[s] = i;
    }
done:
    return status;
}

/* A product with its epilogue: the operands of the product come first, then the other operands of the epilogue. */
static tow_status emit_product(tow__fuse_state *f, const tow__candidate *c, const tow__fused *program,
                               tow__instruction *inst)
{
    const tow__instruction *product = &f->body->insts[c->product];
    tow__arena *memory = &f->p->memory;
    tow__row_epilogue *epilogue = tow__arena_alloc(memory, 1, sizeof *epilogue);
    *inst = *product;
    inst->n_in = product->n_in + c->n_in - 1;
    inst->n_out = c->n_out + c->keeps_product;
    inst->scratch = TOW__NONE;
    inst->in = tow__arena_alloc(memory, inst->n_in, sizeof *inst->in);
    inst->out = tow__arena_alloc(memory, inst->n_out, sizeof *inst->out);
    if (!epilogue || !inst->in || !inst->out) return TOW_OUT_OF_MEMORY;
    *epilogue = (tow__row_epilogue){.program = program, .product = product->kernel, .accumulator = c->accumulator};
    inst->extras.epilogue = epilogue;
    inst->kernel = tow__kernel_for(inst, product->out[0].type.dtype);
    for (uint32_t i = 0; i < inst->n_in; i++)
        inst->in[i] = i < product->n_in ? product->in[i] : c->in[i - product->n_in + 1];
    memcpy(inst->out, c->out, c->n_out * sizeof *c->out);
    if (c->keeps_product) inst->out[c->n_out] = product->out[0];
    tow__lowering l = {.p = f->p, .body = f->body, .scratch = f->scratch};
    return tow__add_scratch(&l, inst);
}

/* True if an elementwise instruction reads an operand that has gaps or is repeated. A row program reads most of these
 * in place. */
static bool reads_spaced(const tow__fuse_state *f, uint32_t i)
{
    const tow__instruction *inst = &f->body->insts[i];
    for (uint32_t j = 0; f->tiles[i] && j < inst->n_in; j++) {
        tow__buffer x = tow__view_buffer(&inst->in[j]);
        if (x.rank > 0 && !tow__buffer_contiguous(&x)) return true;
    }
    return false;
}

static tow_status emit(tow__fuse_state *f, const tow__group *g, tow__instruction *inst)
{
    tow__candidate c;
    bool wanted = g->n > 1 || reads_spaced(f, g->members[0]);
    if (!wanted || !tow__write_program(f, g, NULL, g->shape, &c)) {
        if (g->n > 1)
            return tow__fail(f->p->ctx, TOW_INTERNAL_ERROR,
                             "a group of %u instructions cannot be fused; please report this", g->n);
        *inst = f->body->insts[g->members[0]];
        return TOW_OK;
    }
    const tow__fused *program = tow__finish_program(f, &c);
    if (!program) return TOW_OUT_OF_MEMORY;
    if (c.product != TOW__NONE) return emit_product(f, &c, program, inst);
    *inst = (tow__instruction){.op = &tow__fused_p,
                               .kernel = tow__kernel_of(&tow__fused_p, TOW_F32),
                               .params = program,
                               .n_in = c.n_in,
                               .n_out = c.n_out,
                               .scratch = TOW__NONE,
                               .backward = g->backward,
                               .shift = g->shift,
                               .source = f->body->insts[g->members[0]].source};
    inst->in = tow__arena_copy(&f->p->memory, c.in, c.n_in, sizeof *c.in);
    inst->out = tow__arena_copy(&f->p->memory, c.out, c.n_out, sizeof *c.out);
    return inst->in && inst->out ? TOW_OK : TOW_OUT_OF_MEMORY;
}

const tow__fused *tow__row_program_of(const tow__instruction *inst)
{
    if (TOW__COMPUTES(inst, fused)) return inst->params;
    return inst->extras.epilogue ? inst->extras.epilogue->program : NULL;
}

tow_status tow__fuse(tow__function_state *s)
{
    tow__body *body = s->body;
    tow__fuse_state f;
    tow_status status = TOW_OK;
    uint32_t n = 0;
    TRY(tow__begin_fusion(&f, s));
    f.updates = tow__find_updates(s);
    if (!f.updates) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < body->n_insts; i++) TRY(place_inst(&f, i));
    f.retries = true;
    for (uint32_t i = 0; i < body->n_insts; i++)
        for (uint32_t j = 0; j < body->insts[i].n_in; j++)
            TRY(try_merge_with(&f, i, f.uses->producer[body->insts[i].in[j].storage], &(bool){false}));
    tow__instruction *insts = tow__arena_alloc(&s->p->memory, body->n_insts, sizeof *insts);
    if (!insts) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f.n_order; i++)
        if (f.order[i] != TOW__NONE) TRY(emit(&f, &f.groups[f.order[i]], &insts[n++]));
    tow__end_fusion(&f);
    body->insts = insts;
    body->insts_capacity = body->n_insts;
    body->n_insts = n;
    tow__invalidate(s);
done:
    return status;
}
