/* Tile groups: runs of instructions along which an axis (sequences, or rows of a batch) passes through untouched: axis
 * 0 of all results, or, where that gives no blocks, an axis of an operand wherever it passes (analysis/axis.h). A tile
 * group computes one block of rows, a tile, with all of its instructions before it begins the next one.
 *
 *   instructions   a  b  W  c  d  M  e          W: a weight gradient, a sum over rows that e does not read
 *   parallel      [a  b  c  d]  W  M  e         M mixes rows, and e reads its result
 *   ordered       [a  b  W+ c  d]  M  e         W+ adds what this tile contributes
 *
 * A tile group is a loop: tiles of operands are its xs, tiles of results its ys, and values that only the group reads
 * are kept in an arena of the size of a tile. There are two kinds.
 *
 * Parallel tiles: a thread takes its tiles through all instructions of the group without barriers. Only the remainder
 * is shared by all threads (loop/parallelize.c). Instructions that mix rows are deferred until the group ends. A group
 * ends when the operands of deferred instructions would keep too many bytes alive.
 *
 * Ordered tiles: tiles follow each other, and gradients of weights and biases grow tile by tile. So the operands of
 * those sums, the hidden layer of a feed-forward block and its cotangent, are never stored as a whole. All threads
 * share the work on each instruction of a tile. Ordered groups are formed first, and only where they save much memory.
 * A tile holds a multiple of the rows that the product's kernel sums before it adds to the result, so the order of the
 * sum stays the kernel's own; reductions hand on the sum of the segment that they have begun. Within a memory limit
 * an ordered group may go on from the forward into the backward pass (remat/frontier.c).
 *
 * The size of tiles follows from shapes and from load balance. Every kernel gives a row the same bits alone and among
 * others, so tile groups change no bits. */
#include "src/kernels/strided.h"
#include "src/plan/analysis/columns.h"
#include "src/plan/analysis/tiling.h"
#include "src/plan/loop/loop.h"
#include "src/plan/lower/lower.h"
#include "src/plan/tile/tile.h"
#include "src/plan/tile/tiler.h"

/* Seconds decide (analysis/cost.h). Reading weights again takes, of the time of a product's operations, */
#define ENOUGH_ROWS  (1.0 / 64) /* in a block of so many rows that more gain nothing, about */
#define FEWEST_ROWS  (1.0 / 16) /* in a block of the fewest rows, while all threads read theirs */
#define ORDERED_ROWS (1.0 / 40) /* in an ordered tile, where sums are read and written twice over */

enum {
    TILES = 4, /* of the widest reduced operand in a block without products, that fit into L2 */
    /* Limits for the sake of memory, not of speed: */
    DEFERRED_SHARE = 8, /* deferred instructions may keep 1/8 of the plan's peak alive */
    SAVED_SHARE = 3     /* an ordered tile group saves 1/3 of the plan's peak, at least */
};

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Greatest common divisor of the leading axes of products and sequence kernels, or 0. *inner: fewest rows of a product
 * per row of the leading axis. *whole: bytes of the largest operand that an instruction reads as a whole. */
static int64_t common_rows(const tow__tiler *f, int64_t *inner, size_t *whole)
{
    int64_t common = 0;
    *inner = INT64_MAX;
    *whole = 0;
    for (uint32_t i = 0; i < f->n_insts; i++) {
        const tow__instruction *inst = &f->insts[i];
        bool heavy = inst->kernel && inst->op->product;
        if (!heavy || !f->tiling->is_tileable[i]) continue;
        common = gcd(common, inst->out[0].type.dims[f->tiling->axis[i]]);
        const int from = f->tiling->from[i][0];
        *inner = tow__min(*inner, tow__inner_rows(inst, from == TOW__WHOLE ? 0 : from));
        for (uint32_t j = 0; j < inst->n_in; j++)
            if (f->tiling->from[i][j] == TOW__WHOLE && tow_type_bytes(inst->in[j].type) > *whole)
                *whole = tow_type_bytes(inst->in[j].type);
    }
    return *inner < 1 ? 0 : common;
}

/* The smallest number of blocks, `least` or a few more, that divides the rows and keeps all threads busy; 1 if there is
 * none. */
static int64_t round_blocks(const tow__tiler *f, int64_t rows, int64_t least, int64_t most)
{
    const tow__machine *m = &f->p->machine;
    double seconds = 0, meetings = 0;
    for (uint32_t i = 0; i < f->n_insts; i++) {
        if (f->insts[i].loop || !f->tiling->is_tileable[i]) continue;
        seconds += f->cost->seconds[i];
        meetings += m->rates.meeting;
    }
    if (least < 2) least = 2;
    if (most > rows) most = rows;
    if (most > least + TOW__MOST_TRIED) most = least + TOW__MOST_TRIED;
    for (int64_t blocks = least; blocks <= most; blocks++) {
        const double alone = seconds / (double)blocks, shared = alone / m->threads + meetings;
        if (rows % blocks == 0 &&
            (tow__is_balanced(blocks, m->threads) || tow__remainder_pays(m, blocks, alone, shared)))
            return blocks;
    }
    return 1;
}

/* Number of blocks, so that products keep enough rows in a block: every block reads the weights again, from beyond L2.
 * The arguments are the results of common_rows. */
static int64_t choose_blocks(const tow__tiler *f, int64_t common, int64_t inner, size_t whole)
{
    const tow__machine *m = &f->p->machine;
    const tow__memory_level level = tow__weight_level(m, (double)whole);
    if (common < 2) return 1;
    return round_blocks(f, common, common * inner / tow__rows_for_share(m, level, ENOUGH_ROWS, 1),
                        common * inner / tow__rows_for_share(m, level, FEWEST_ROWS, m->threads));
}

/* Number of blocks in a function without products: rows of a block stay in cache from the instruction that makes them
 * to the instructions that reduce them or read the result. All of these become one pass over memory. */
static int64_t choose_reduction_blocks(const tow__tiler *f)
{
    int64_t common = 0;
    size_t widest = 0;
    for (uint32_t i = 0; i < f->n_insts; i++) {
        const tow__instruction *inst = &f->insts[i];
        if (!tow__reduces_axis(inst) || !f->tiling->is_tileable[i]) continue;
        common = gcd(common, inst->out[0].type.dims[f->tiling->axis[i]]);
        if (tow_type_bytes(inst->in[0].type) > widest) widest = tow_type_bytes(inst->in[0].type);
    }
    const int64_t l2 = f->p->machine.l2.bytes, least = l2 > 0 ? (int64_t)widest / tow__max(1, l2 / TILES) : 1;
    return least < 2 || common < 2 ? 1 : round_blocks(f, common, least, 4 * least);
}

static int64_t common_multiple(int64_t a, int64_t b) { return a / gcd(a, b) * b; }

/* Units that a block must be a multiple of, so that the sum of an instruction may be cut between blocks. */
static int64_t least_units(const tow__tiler *f, uint32_t i, int64_t *per_unit)
{
    tow__grain grain = tow__sum_grain(f, &f->insts[i]);
    *per_unit = grain.per_unit;
    return grain.depth / gcd(grain.depth, grain.per_unit);
}

/* Defers a reduction that would make blocks larger until the tile group ends. */
static void defer_reduction(tow__tiler *f, uint32_t at)
{
    const uint32_t i = f->inside[at];
    f->roles[i] = TOW__NOT_TILEABLE;
    memmove(f->inside + at, f->inside + at + 1, (--f->n_inside - at) * sizeof *f->inside);
    uint32_t k = f->n_deferred++;
    for (; k > 0 && f->deferred[k - 1] > i; k--) f->deferred[k] = f->deferred[k - 1];
    f->deferred[k] = i;
}

/* Units that every block must be a multiple of, so that all products that sum over rows may be cut between blocks.
 * *rows: rows of such a sum in one unit, at least; INT64_MAX: no instruction is such a product. */
static int64_t product_units(const tow__tiler *f, int64_t *rows)
{
    int64_t units = 1, per_unit;
    *rows = INT64_MAX;
    for (uint32_t i = 0; i < f->n_inside && units < f->units; i++) {
        if (f->roles[f->inside[i]] != TOW__CONTRACTS_AXIS) continue;
        units = common_multiple(units, least_units(f, f->inside[i], &per_unit));
        *rows = tow__min(*rows, per_unit);
    }
    return units;
}

/* Makes `units` a multiple of the units that the reductions need, up to `most`. Reductions that need more are deferred
 * until the tile group ends. */
static int64_t add_reductions(tow__tiler *f, int64_t units, int64_t most)
{
    int64_t per_unit;
    for (uint32_t i = 0; i < f->n_inside;) {
        const bool reduces = f->roles[f->inside[i]] == TOW__REDUCES_AXIS;
        const int64_t common = reduces ? common_multiple(units, least_units(f, f->inside[i], &per_unit)) : units;
        if (common > most && common > units) {
            defer_reduction(f, i);
            continue;
        }
        units = common;
        i++;
    }
    return units;
}

/* Units of an ordered tile: every sum may be cut between tiles, and a tile has as many rows as it takes to hide that it
 * reads and writes all of the sums, or a little more. f->units: one tile, so there is nothing to gain. */
static int64_t choose_block(tow__tiler *f)
{
    const int64_t least = tow__rows_for_share(&f->p->machine, TOW__IN_MEMORY, ORDERED_ROWS / 2, 1);
    int64_t rows, units = product_units(f, &rows);
    if (units >= f->units || rows == INT64_MAX) return f->units;
    units *= (least + units * rows - 1) / (units * rows);
    units = add_reductions(f, units, tow__min(2 * units, f->units) - 1);
    return tow__min(units, f->units);
}

/* ---- collecting -------------------------------------------------------------------------------------------------- */

/* May instruction i join the group? None of its operands may be defined later, an operand that every tile needs as a
 * whole may not be defined inside, and a sum is worth joining only if the group makes its operand. */
static bool may_join(const tow__tiler *f, uint32_t i)
{
    const tow__instruction *inst = &f->insts[i];
    bool any = false;
    if (f->roles[i] == TOW__NOT_TILEABLE || inst->shift != 0) return false;
    tow__axis_role_of(f, inst);
    for (uint32_t j = 0; j < inst->n_in; j++) {
        tow__defined where = f->defined[inst->in[j].storage];
        if (where == TOW__DEFINED_LATER) return false;
        const bool whole = f->from[j] == TOW__WHOLE || tow__repeats_rows(&inst->in[j], f->from[j]);
        if (where == TOW__DEFINED_INSIDE && whole) return false;
        any |= where == TOW__DEFINED_INSIDE;
    }
    return any || f->roles[i] == TOW__PARALLEL_AXIS;
}

static void mark(tow__tiler *f, const tow__instruction *inst, tow__defined where)
{
    for (uint32_t i = 0; i < inst->n_out; i++) f->defined[inst->out[i].storage] = where;
}

/* Bytes whose live range becomes longer if instruction i is deferred until the end of the tile group. */
static size_t extends(tow__tiler *f, uint32_t i)
{
    const tow__instruction *inst = &f->insts[i];
    size_t bytes = 0;
    for (uint32_t j = 0; j < inst->n_in; j++) {
        uint32_t s = inst->in[j].storage;
        const tow__storage *storage = &f->p->storages[s];
        bool is_own = storage->kind == TOW__S_ARENA && storage->body == f->body;
        if (!is_own || f->counted[s] || f->uses->last_reader[s] > i) continue;
        f->counted[s] = true;
        bytes += storage->bytes;
    }
    return bytes;
}

static void defer(tow__tiler *f, uint32_t i)
{
    f->deferred[f->n_deferred++] = i;
    f->deferred_bytes += extends(f, i);
    mark(f, &f->insts[i], TOW__DEFINED_LATER);
}

/* Collects a tile group from instruction `first` on; returns the instruction after its last one. Instructions deferred
 * after the last one are not part of it. */
static uint32_t collect(tow__tiler *f, uint32_t first)
{
    uint32_t i = first, end = first;
    f->n_inside = f->n_deferred = 0;
    f->deferred_bytes = 0;
    uint32_t deferred_at_end = 0;
    for (; i < f->n_insts; i++) {
        const tow__instruction *inst = &f->insts[i];
        bool goes_on = inst->backward == f->insts[first].backward || (f->ordered && f->p->choice.interleaved);
        if (!goes_on || inst->loop) break;
        if (may_join(f, i)) {
            f->inside[f->n_inside++] = i;
            mark(f, inst, f->roles[i] == TOW__PARALLEL_AXIS ? TOW__DEFINED_INSIDE : TOW__DEFINED_LATER);
            end = i + 1;
            deferred_at_end = f->n_deferred;
            continue;
        }
        if (f->deferred_bytes > f->peak / DEFERRED_SHARE) break;
        defer(f, i);
    }
    f->n_deferred = deferred_at_end;
    f->reach = i;
    return end;
}

static void forget(tow__tiler *f, uint32_t first)
{
    for (uint32_t i = first; i < f->reach; i++) {
        mark(f, &f->insts[i], TOW__DEFINED_OUTSIDE);
        for (uint32_t j = 0; j < f->insts[i].n_in; j++) {
            f->counted[f->insts[i].in[j].storage] = false;
            f->reads_inside[f->insts[i].in[j].storage] = 0;
        }
    }
}

/* The time of a block hides that its instructions are called once more for each of them. */
static bool hides_calls(const tow__tiler *f)
{
    const double calls = (double)f->n_inside * f->p->machine.rates.call;
    double seconds = 0;
    for (uint32_t i = 0; i < f->n_inside; i++) seconds += f->cost->seconds[f->inside[i]];
    return f->n_inside > 1 && calls * (double)f->units <= TOW__CALLS_SHARE * seconds;
}

/* Fills f->reads_inside, until `forget`. */
static void count_reads_inside(tow__tiler *f)
{
    for (uint32_t i = 0; i < f->n_inside; i++) {
        const tow__instruction *inst = &f->insts[f->inside[i]];
        for (uint32_t j = 0; j < inst->n_in; j++) f->reads_inside[inst->in[j].storage]++;
    }
}

/* True if tiling loses an in-place reuse: outside of a tile group this instruction would overwrite s, its last use. */
static bool overwrites(const tow__tiler *f, const tow__instruction *inst, uint32_t s)
{
    const tow__aliasing aliasing = tow__aliasing_of(inst);
    if (!inst->kernel || (aliasing != TOW__ALIAS_ANY && aliasing != TOW__ALIAS_EACH)) return false;
    for (uint32_t k = 0; k < inst->n_out; k++)
        if (f->p->storages[inst->out[k].storage].bytes == f->p->storages[s].bytes) return true;
    return false;
}

/* *saved: bytes of operands of sums that are never stored as a whole in an ordered tile group, minus the bytes of
 * in-place reuses that tiling loses. */
static tow_status find_saved(const tow__tiler *f, size_t *saved)
{
    bool *seen = tow__borrow(f->p, f->scratch, sizeof *seen, 0);
    size_t stays = 0;
    *saved = 0;
    if (!seen) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_inside; i++) {
        const tow__instruction *inst = &f->insts[f->inside[i]];
        bool sums = f->roles[f->inside[i]] != TOW__PARALLEL_AXIS;
        for (uint32_t j = 0; j < inst->n_in; j++) {
            uint32_t s = inst->in[j].storage;
            const tow__storage *storage = &f->p->storages[s];
            bool inside = f->defined[s] == TOW__DEFINED_INSIDE;
            if (storage->kind != TOW__S_ARENA || seen[s] || (inside && !sums)) continue;
            seen[s] = true;
            if (inside && f->reads_inside[s] == f->uses->reads[s]) *saved += storage->bytes;
            if (!inside && f->uses->last_reader[s] == f->inside[i] && overwrites(f, inst, s)) stays += storage->bytes;
        }
    }
    *saved = *saved > stays ? *saved - stays : 0;
    tow__give_back(f->p, seen, f->insts, f->n_inside, f->inside);
    return TOW_OK;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* Builds an ordered tile group of the collected instructions; a smaller last tile becomes a loop of its own. *built:
 * false if the group saves too little. */
static tow_status build_ordered(tow__tiler *f, tow__lowering *l, bool *built)
{
    int64_t size = choose_block(f), blocks = f->units / size, rest = f->units % size;
    tow_status status = TOW_OK;
    size_t saved = 0;
    *built = false;
    if (size == f->units) return TOW_OK;
    count_reads_inside(f);
    TRY(find_saved(f, &saved));
    saved = saved / (size_t)f->units * (size_t)(f->units - size);
    *built = tow__machine_level(&f->p->machine, (double)saved) == TOW__IN_MEMORY && saved >= f->peak / SAVED_SHARE;
    if (!*built) return TOW_OK;
    TRY(tow__build_tile_group(f, l, 0, blocks, size, false));
    if (rest) TRY(tow__build_tile_group(f, l, blocks * size, 1, rest, true));
done:
    return status;
}

/* Turns the instructions from *at on into a tile group followed by the deferred ones, or appends them as they are. */
static tow_status form_from(tow__tiler *f, tow__lowering *l, uint32_t *at)
{
    tow_status status = TOW_OK;
    uint32_t first = *at;
    if (f->roles[first] != TOW__PARALLEL_AXIS) return tow__append_instruction(f->p, f->body, &f->insts[(*at)++]);
    *at = collect(f, first);
    bool built = !f->ordered && hides_calls(f);
    if (built) count_reads_inside(f);
    if (built && f->without_products) TRY(tow__is_profitable(f, &built));
    if (f->ordered)
        TRY(build_ordered(f, l, &built));
    else if (built)
        TRY(tow__build_tile_group(f, l, 0, f->units, 1, false));
    if (built) {
        for (uint32_t i = 0; i < f->n_deferred; i++)
            TRY(tow__append_instruction(f->p, f->body, &f->insts[f->deferred[i]]));
    } else {
        for (uint32_t i = first; i < *at; i++) TRY(tow__append_instruction(f->p, f->body, &f->insts[i]));
    }
    forget(f, first);
done:
    return status;
}

static uint32_t widest_inst(const tow__body *body)
{
    uint32_t widest = 2;
    for (uint32_t i = 0; i < body->n_insts; i++)
        if (body->insts[i].n_in > widest) widest = body->insts[i].n_in;
    return widest;
}

static bool is_row(const tow__storage *s) { return s->kind == TOW__S_ROW_IN || s->kind == TOW__S_ROW_OUT; }

static tow_status find_rows(tow__tiler *f)
{
    bool *seen = tow__borrow(f->p, f->scratch, sizeof *seen, 0);
    if (!seen) return TOW_OUT_OF_MEMORY;
    f->rows = 0;
    for (uint32_t i = 0; i < f->n_insts; i++) {
        const tow__instruction *inst = &f->insts[i];
        for (uint32_t j = 0; j < inst->n_in + inst->n_out; j++) {
            uint32_t s = (j < inst->n_in ? inst->in[j] : inst->out[j - inst->n_in]).storage;
            if (!seen[s] && is_row(&f->p->storages[s])) f->rows += f->p->storages[s].bytes;
            seen[s] = true;
        }
    }
    tow__give_back(f->p, seen, f->insts, f->n_insts, NULL);
    return TOW_OK;
}

static tow_status prepare(tow__tiler *f)
{
    const tow__liveness *liveness = tow__get_liveness(f->s);
    f->insts = f->body->insts;
    f->n_insts = f->body->n_insts;
    f->uses = tow__get_uses(f->s);
    f->cost = tow__get_cost(f->s);
    if (!f->named) f->tiling = tow__get_tiling(f->s);
    f->defined = tow__borrow(f->p, f->scratch, sizeof *f->defined, 0);
    f->counted = tow__borrow(f->p, f->scratch, sizeof *f->counted, 0);
    f->reads_inside = tow__borrow(f->p, f->scratch, sizeof *f->reads_inside, 0);
    f->inside = tow__arena_alloc(f->scratch, f->n_insts, sizeof *f->inside);
    f->deferred = tow__arena_alloc(f->scratch, f->n_insts, sizeof *f->deferred);
    f->roles = tow__arena_alloc(f->scratch, f->n_insts, sizeof *f->roles);
    f->lanes = tow__arena_alloc(f->scratch, f->n_insts, sizeof *f->lanes);
    /* Sized for the widest instruction now: tile groups that were formed before have more operands than others. */
    f->from = tow__arena_alloc(f->scratch, widest_inst(f->body), sizeof *f->from);
    if (!liveness || !f->uses || !f->cost || !f->tiling || !f->defined || !f->counted || !f->reads_inside ||
        !f->inside || !f->deferred || !f->roles || !f->from || !f->lanes)
        return TOW_OUT_OF_MEMORY;
    f->peak = liveness->peak;
    const bool *updates = tow__find_updates(f->s); /* they wait for others to read what they replace */
    if (!updates) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_insts; i++) {
        f->lanes[i] = TOW__NONE;
        f->roles[i] = updates[i] ? TOW__NOT_TILEABLE : tow__axis_role_of(f, &f->insts[i]);
    }
    return find_rows(f);
}

static void give_back(tow__tiler *f)
{
    const void *columns[] = {f->defined, f->counted, f->reads_inside};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        tow__give_back(f->p, columns[i], f->insts, f->n_insts, NULL);
}

/* Forms all tile groups of one kind; `units`: number of sections into which the axis is cut. */
static tow_status form(tow__tiler *f, bool ordered, int64_t units)
{
    tow__lowering l = {.p = f->p, .body = f->body, .scratch = f->scratch};
    f->ordered = ordered;
    f->units = units;
    tow_status status = prepare(f);
    if (status != TOW_OK) return status;
    f->body->insts = NULL;
    f->body->n_insts = f->body->insts_capacity = 0;
    for (uint32_t i = 0; i < f->n_insts;) TRY(form_from(f, &l, &i));
    give_back(f);
    tow__invalidate(f->s);
done:
    return status;
}

/* The cut of the function: blocks of `common` rows that products share, 0 if there are no products. */
typedef struct cut {
    int64_t common, blocks;
    size_t whole; /* bytes of the largest operand that blocks need as a whole */
} cut;

static void choose_cut_along(tow__tiler *f, cut *c)
{
    int64_t inner;
    c->common = common_rows(f, &inner, &c->whole);
    f->without_products = c->common == 0;
    c->blocks = f->without_products ? choose_reduction_blocks(f) : choose_blocks(f, c->common, inner, c->whole);
}

/* Along axis 0 of everything; where that gives no blocks, along an axis of an operand that is propagated. */
static tow_status choose_cut(tow__tiler *f, cut *c)
{
    f->insts = f->body->insts;
    f->n_insts = f->body->n_insts;
    f->cost = tow__get_cost(f->s);
    f->tiling = tow__get_tiling(f->s);
    if (!f->cost || !f->tiling) return TOW_OUT_OF_MEMORY;
    choose_cut_along(f, c);
    if (c->blocks > 1) return TOW_OK;
    const tow__tiling *leading = f->tiling, *named;
    tow_status status = tow__find_named_tiling(f->s, &named);
    cut other = {0};
    if (status != TOW_OK || !named) return status;
    f->tiling = named;
    choose_cut_along(f, &other);
    f->named = other.blocks > 1;
    if (f->named)
        *c = other;
    else
        f->tiling = leading;
    return TOW_OK;
}

/* Parallel loops and the bodies of tile groups are not tiled again. */
static bool may_tile(const tow__function_state *s)
{
    return s->kind != TOW__TILE_BODY && (s->kind == TOW__TOP || s->loop->schedule == TOW__SEQUENTIAL) &&
           !s->p->left_out[TOW__PASS_tile];
}

bool tow__works_by_rows(tow__function_state *s, tow_status *status)
{
    cut c = {0};
    tow__tiler f = {.s = s, .p = s->p, .body = s->body, .scratch = s->scratch};
    if (!may_tile(s)) return false;
    *status = choose_cut(&f, &c);
    return *status == TOW_OK &&
           (c.blocks >= 2 || (c.common >= 2 && tow__weight_level(&s->p->machine, (double)c.whole) == TOW__IN_MEMORY));
}

tow_status tow__form_tile_groups(tow__function_state *s)
{
    cut c = {0};
    tow__tiler f = {.s = s, .p = s->p, .body = s->body, .scratch = s->scratch};
    if (!may_tile(s)) return TOW_OK;
    tow_status status = choose_cut(&f, &c);
    if (status != TOW_OK || c.blocks < 2) return status;
    if (c.common && !f.named) TRY(form(&f, true, c.common));
    TRY(form(&f, false, c.blocks));
done:
    return status;
}
