/* Checks a plan by simulation, without trusting its lifetimes. Every value occupies bytes of memory, writing a value
 * destroys all others that it overlaps, and every operand of an instruction must still be valid. Values are storages
 * before aliasing joins them, so the check also finds a value that is overwritten in place too early.
 *
 * Valid values never overlap, because writing one destroys those values that it overlaps. So the plan's storages are
 * sorted by place once, and a tree over this order finds the overlapped values without a look at the others. */
#include <stdlib.h>

#include "src/plan/ir.h"
#include "src/plan/memory/memory.h"

/* The memory of a storage: bytes [begin, end) of a space. Space 0 is the plan's arena. Space 1 stands for constants,
 * which are never written. The other spaces are the caller's arrays and the rows and carries of a loop. */
typedef struct place {
    uint64_t space;
    size_t begin, end;
} place;

typedef struct checker {
    const tow_program *p;
    const tow__body *body;
    const tow__loop *loop; /* the loop that runs `body`, or NULL */
    bool shifts;           /* instructions of it work for other iterations */
    /* [n_storages] arrays that the checkers of all plans share; each checker uses the entries of its plan's storages */
    bool *valid; /* the value is in memory */
    place *places;
    uint32_t *ranks; /* position in `sorted` */
    uint32_t *rows;  /* index of the loop's xs whose array has this representative, or TOW__NONE */
    /* private to the plan's checker */
    uint32_t *sorted; /* [n_sorted] storages in the order of places */
    uint32_t n_sorted, leaves;
    /* [2 * leaves] leaf leaves + i: the storage of rank i is valid; node n: a storage below 2n or 2n + 1 is valid */
    bool *any;
} checker;

/* The storage whose memory it is in: an output that takes the place of an input is in the input's. */
static uint32_t memory_of(const tow_program *p, uint32_t storage)
{
    uint32_t s = tow__representative(p, storage);
    const bool donated = p->storages[s].kind == TOW__S_OUTPUT && p->donors[p->storages[s].index] != TOW__NONE;
    return donated ? p->donors[p->storages[s].index] : s; /* the storages of inputs come first */
}

/* Rows that a loop writes may share memory with the rows that it reads: with those of the same iteration. */
static place row_place(const checker *c, const tow__storage *s, size_t bytes)
{
    const tow__rows *ys = &c->loop->ys[s->index];
    const uint32_t memory = memory_of(c->p, ys->array.storage);
    uint32_t i = c->rows[memory];
    while (i < c->loop->n_xs &&
           (c->loop->xs[i].shift != ys->shift || memory_of(c->p, c->loop->xs[i].array.storage) != memory))
        i++;
    if (i < c->loop->n_xs) return (place){(uint64_t)(TOW__S_ROW_IN + 1) << 32 | i, 0, bytes};
    return (place){(uint64_t)(TOW__S_ROW_OUT + 1) << 32 | s->index, 0, bytes};
}

static place find_place(const checker *c, uint32_t storage)
{
    const tow__storage *s = &c->p->storages[memory_of(c->p, storage)];
    size_t bytes = c->p->storages[storage].bytes;
    if (s->kind == TOW__S_ARENA) return (place){0, s->offset, s->offset + bytes};
    if (s->kind == TOW__S_CONSTANT) return (place){1, 0, bytes};
    if (s->kind == TOW__S_ROW_OUT) return row_place(c, s, bytes);
    uint64_t kind = s->kind;
    if (kind == TOW__S_CARRY_OUT && c->loop->carry[s->index].storage == TOW__CARRY_IN_PLACE)
        kind = TOW__S_CARRY_IN; /* one buffer */
    return (place){(kind + 1) << 32 | s->index, 0, bytes};
}

static bool overlap(place a, place b) { return a.space == b.space && a.begin < b.end && b.begin < a.end; }

static tow_status wrong(const checker *c, uint32_t inst, uint32_t storage, const char *what)
{
    const tow__storage *s = &c->p->storages[storage];
    return tow__fail(
        c->p->ctx, TOW_INTERNAL_ERROR,
        "the plan is wrong at instruction %u (%s): storage %u (%zu bytes at offset %zu) %s; please report this", inst,
        c->body->insts[inst].op->name, storage, s->bytes, c->p->storages[tow__representative(c->p, storage)].offset,
        what);
}

static bool is_own(const checker *c, uint32_t storage)
{
    const tow__storage *s = &c->p->storages[storage];
    return s->body == c->body && s->kind != TOW__S_CONSTANT && s->bytes;
}

/* True for a result of the surrounding function to which each tile of an ordered group adds. */
static bool is_sum(const checker *c, uint32_t storage)
{
    return c->loop && c->loop->schedule == TOW__ORDERED_TILES && c->p->storages[storage].body != c->body;
}

/* ---- valid storages ---------------------------------------------------------------------------------------------- */

static void set_valid(checker *c, uint32_t storage, bool valid)
{
    if (!is_own(c, storage)) return;
    uint32_t node = c->leaves + c->ranks[storage];
    c->valid[storage] = c->any[node] = valid;
    while (node /= 2) c->any[node] = c->any[2 * node] || c->any[2 * node + 1];
}

/* The valid storage of the greatest rank below `rank`, or TOW__NONE. */
static uint32_t last_valid(const checker *c, uint32_t rank)
{
    uint32_t node = c->leaves + rank;
    while (node > 1 && (node % 2 == 0 || !c->any[node - 1])) node /= 2;
    if (node <= 1) return TOW__NONE;
    node--;
    while (node < c->leaves) node = 2 * node + c->any[2 * node + 1];
    return c->sorted[node - c->leaves];
}

/* The number of the plan's storages that begin before place `to` ends. */
static uint32_t rank_of_end(const checker *c, place to)
{
    uint32_t low = 0, high = c->n_sorted;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        place x = c->places[c->sorted[middle]];
        if (x.space < to.space || (x.space == to.space && x.begin < to.end))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Makes the storage valid, and the storages that overlap it invalid. */
static void write_storage(checker *c, uint32_t storage)
{
    if (!is_own(c, storage)) return;
    place to = c->places[storage];
    uint32_t end = rank_of_end(c, to);
    for (uint32_t i; (i = last_valid(c, end)) != TOW__NONE && overlap(to, c->places[i]);) set_valid(c, i, false);
    set_valid(c, storage, true);
}

static int compare(place a, place b)
{
    if (a.space != b.space) return a.space < b.space ? -1 : 1;
    return a.begin < b.begin ? -1 : a.begin > b.begin;
}

typedef struct placed {
    place place;
    uint32_t storage, index; /* index: of the operand, if the storage is one */
} placed;

static int compare_placed(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    int order = compare(x->place, y->place);
    return order ? order : x->storage < y->storage ? -1 : x->storage > y->storage;
}

/* Sorts the plan's own storages by place. */
static tow_status sort_storages(checker *c, tow__arena *scratch)
{
    const tow_program *p = c->p;
    placed *all = tow__arena_alloc(scratch, c->body->n_storages, sizeof *all);
    if (!all) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = c->loop ? c->loop->n_xs : 0; i-- > 0;) c->rows[memory_of(p, c->loop->xs[i].array.storage)] = i;
    for (uint32_t s = tow__first_storage(c->body); s != TOW__NONE; s = p->storages[s].next)
        if (is_own(c, s)) all[c->n_sorted++] = (placed){c->places[s] = find_place(c, s), s, 0};
    for (uint32_t i = 0; c->loop && i < c->loop->n_xs; i++)
        c->rows[memory_of(p, c->loop->xs[i].array.storage)] = TOW__NONE;
    qsort(all, c->n_sorted, sizeof *all, compare_placed);
    c->leaves = 1;
    while (c->leaves < c->n_sorted + 1) c->leaves *= 2; /* last_valid also takes rank n_sorted */
    c->any = tow__arena_alloc(scratch, 2 * (size_t)c->leaves, sizeof *c->any);
    c->sorted = tow__arena_alloc(scratch, c->n_sorted, sizeof *c->sorted);
    if (!c->any || !c->sorted) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < c->n_sorted; i++) c->ranks[c->sorted[i] = all[i].storage] = i;
    return TOW_OK;
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

/* The plan's own storages that one instruction reads and writes. */
typedef struct access {
    placed *read, *written; /* sorted by place */
    uint32_t n_read, n_written;
} access;

/* Index of the first operand that ends behind the beginning of place `to`. Operands are valid, so no two overlap. */
static uint32_t first_read(const access *x, place to)
{
    uint32_t low = 0, high = x->n_read;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        place r = x->read[middle].place;
        if (r.space < to.space || (r.space == to.space && r.end <= to.begin))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* An instruction may overwrite an operand only if its kernel allows it. */
static tow_status check_write(checker *c, uint32_t i, const access *x, uint32_t storage, uint32_t output)
{
    const tow__instruction *inst = &c->body->insts[i];
    if (!c->p->storages[storage].bytes || is_sum(c, storage)) return TOW_OK;
    if (!is_own(c, storage)) return wrong(c, i, storage, "is written, but does not belong to the plan");
    place to = c->places[storage];
    if (to.space == 0 && to.end > c->body->bytes) return wrong(c, i, storage, "lies outside the arena");
    for (uint32_t j = first_read(x, to); j < x->n_read && overlap(to, x->read[j].place); j++) {
        bool same = compare(to, x->read[j].place) == 0 && x->read[j].place.end == to.end;
        if (!same || output == TOW__NONE || !tow__may_overwrite(c->p, inst, output, x->read[j].index))
            return wrong(c, i, storage, "is written over an operand");
    }
    return TOW_OK;
}

/* Lists the storages that one instruction writes: outputs, scratch, spare buffers. */
static uint32_t list_written(const tow__instruction *inst, uint32_t *written)
{
    uint32_t n = 0;
    for (uint32_t j = 0; j < inst->n_out; j++) written[n++] = inst->out[j].storage;
    if (inst->scratch != TOW__NONE) written[n++] = inst->scratch;
    for (uint32_t j = 0; inst->loop && j < inst->loop->n_carry; j++)
        if (inst->loop->carry[j].spare != TOW__NONE) written[n++] = inst->loop->carry[j].spare;
    return n;
}

/* Lists the plan's own storages among `storages`, sorted by place; returns their number. */
static uint32_t sort_places(const checker *c, uint32_t n, const uint32_t *storages, placed *list)
{
    uint32_t k = 0;
    for (uint32_t j = 0; j < n; j++)
        if (is_own(c, storages[j])) list[k++] = (placed){c->places[storages[j]], storages[j], j};
    qsort(list, k, sizeof *list, compare_placed);
    return k;
}

/* The storages that one instruction writes must not overlap each other. */
static tow_status check_writes(checker *c, uint32_t i, tow__arena *scratch)
{
    const tow__instruction *inst = &c->body->insts[i];
    const uint32_t most = inst->n_out + 1 + (inst->loop ? inst->loop->n_carry : 0);
    uint32_t *written = tow__arena_alloc(scratch, most, sizeof *written),
             *read = tow__arena_alloc(scratch, inst->n_in, sizeof *read);
    access x = {.read = tow__arena_alloc(scratch, inst->n_in, sizeof *x.read),
                .written = tow__arena_alloc(scratch, most, sizeof *x.written)};
    if (!written || !read || !x.read || !x.written) return TOW_OUT_OF_MEMORY;
    for (uint32_t j = 0; j < inst->n_in; j++) read[j] = inst->in[j].storage;
    uint32_t n = list_written(inst, written);
    x.n_read = sort_places(c, inst->n_in, read, x.read);
    x.n_written = sort_places(c, n, written, x.written);
    for (uint32_t j = 0; j < n; j++) {
        tow_status status = check_write(c, i, &x, written[j], j < inst->n_out ? j : TOW__NONE);
        if (status != TOW_OK) return status;
    }
    for (uint32_t j = 1; j < x.n_written; j++)
        if (x.written[j].storage != x.written[j - 1].storage && overlap(x.written[j].place, x.written[j - 1].place))
            return wrong(c, i, x.written[j].storage, "overlaps another result of the instruction");
    for (uint32_t j = 0; j < n; j++) write_storage(c, written[j]);
    return TOW_OK;
}

/* ---- instructions for other iterations --------------------------------------------------------------------------- */

static bool is_of_body(const checker *c, uint32_t storage) { return c->p->storages[storage].body == c->body; }

static int shift_of(const checker *c, uint32_t storage)
{
    const tow__storage *s = &c->p->storages[storage];
    if (!is_of_body(c, storage)) return 0;
    return s->kind == TOW__S_ROW_IN    ? c->loop->xs[s->index].shift
           : s->kind == TOW__S_ROW_OUT ? c->loop->ys[s->index].shift
                                       : 0;
}

/* Does an instruction for another iteration than `shift` says make what is in the storage? */
static bool is_made_for_other(const checker *c, uint32_t storage, int shift)
{
    for (uint32_t i = 0; i < c->body->n_insts; i++)
        for (uint32_t k = 0; k < c->body->insts[i].n_out; k++)
            if (c->body->insts[i].out[k].storage == storage && c->body->insts[i].shift != shift) return true;
    return false;
}

static bool has_shifts(const tow__body *body)
{
    for (uint32_t i = 0; i < body->n_insts; i++)
        if (body->insts[i].shift != 0) return true;
    return false;
}

/* Is a row that the body writes one of those that a later iteration is still to read? */
static bool is_read_later(const checker *c, uint32_t storage)
{
    const tow__rows *ys = &c->loop->ys[c->p->storages[storage].index];
    const uint32_t memory = memory_of(c->p, ys->array.storage);
    for (uint32_t i = 0; i < c->loop->n_xs; i++)
        if (c->loop->xs[i].shift < ys->shift && memory_of(c->p, c->loop->xs[i].array.storage) == memory) return true;
    return false;
}

/* Does instruction i access rows, and values, of the iteration that it works for? Carries lead from one to another. */
static tow_status check_shift(const checker *c, uint32_t i)
{
    const tow__instruction *inst = &c->body->insts[i];
    for (uint32_t j = 0; j < inst->n_in; j++) {
        const uint32_t s = inst->in[j].storage;
        const tow__storage_kind kind = c->p->storages[s].kind;
        if (kind == TOW__S_ROW_IN ? shift_of(c, s) != inst->shift
                                  : kind == TOW__S_ARENA && is_made_for_other(c, s, inst->shift))
            return wrong(c, i, s, "is read, but belongs to another iteration");
    }
    for (uint32_t j = 0; j < inst->n_out; j++) {
        const uint32_t s = inst->out[j].storage;
        if (c->p->storages[s].kind != TOW__S_ROW_OUT) continue;
        if (shift_of(c, s) != inst->shift) return wrong(c, i, s, "is written, but belongs to another iteration");
        if (is_read_later(c, s)) return wrong(c, i, s, "is written before a later iteration reads it");
    }
    if (inst->shift == 0 || (c->loop && c->loop->schedule == TOW__SEQUENTIAL && !c->loop->stops)) return TOW_OK;
    return wrong(c, i, inst->out[0].storage, "is of another iteration, where iterations have no order");
}

static tow_status check_plan(const checker *around, const tow__body *body, const tow__loop *loop, tow__arena *scratch);

static tow_status check_inst(checker *c, uint32_t i, tow__arena *scratch)
{
    const tow__instruction *inst = &c->body->insts[i];
    tow_status status = TOW_OK;
    for (uint32_t j = 0; j < inst->n_in; j++)
        if (is_own(c, inst->in[j].storage) && !c->valid[inst->in[j].storage])
            return wrong(c, i, inst->in[j].storage, "is read but was not written, or was overwritten");
    for (uint32_t j = 0; j < inst->n_out; j++)
        if (c->p->storages[inst->out[j].storage].in_flight && !c->valid[inst->out[j].storage])
            return wrong(c, i, inst->out[j].storage,
                         "was overwritten while the exchange of an iteration went on in it");
    for (uint32_t j = inst->loop && inst->loop->continues ? inst->loop->n_ys : inst->n_out; j < inst->n_out; j++)
        if (is_own(c, inst->out[j].storage) && !c->valid[inst->out[j].storage])
            return wrong(c, i, inst->out[j].storage, "is added to but was not written, or was overwritten");
    if (c->shifts) TRY(check_shift(c, i));
    if (inst->loop) TRY(check_plan(c, inst->loop->body, inst->loop, scratch));
    TRY(check_writes(c, i, scratch));
done:
    return status;
}

/* Storages defined on entry. */
static bool is_given(tow__storage_kind kind)
{
    return kind == TOW__S_INPUT || kind == TOW__S_ROW_IN || kind == TOW__S_CARRY_IN;
}
/* Storages that must be defined on exit. */
static bool is_due(tow__storage_kind kind)
{
    return kind == TOW__S_OUTPUT || kind == TOW__S_ROW_OUT || kind == TOW__S_CARRY_OUT;
}

/* True for an entering carry that is stored in a row of the ys that stack it. */
static bool stays_in_rows(const tow__loop *loop, const tow__storage *s)
{
    return s->kind == TOW__S_CARRY_IN && loop->carry[s->index].entering != TOW__NONE;
}

static tow_status check_plan(const checker *around, const tow__body *body, const tow__loop *loop, tow__arena *scratch)
{
    const tow_program *p = around->p;
    checker c = {.p = p,
                 .body = body,
                 .loop = loop,
                 .shifts = has_shifts(body),
                 .valid = around->valid,
                 .places = around->places,
                 .ranks = around->ranks,
                 .rows = around->rows};
    tow_status status = TOW_OK;
    TRY(sort_storages(&c, scratch));
    for (uint32_t s = tow__first_storage(body); s != TOW__NONE; s = p->storages[s].next)
        if (is_given(p->storages[s].kind) || p->storages[s].in_flight) set_valid(&c, s, true);
    for (uint32_t i = 0; i < body->n_insts; i++) TRY(check_inst(&c, i, scratch));
    for (uint32_t s = tow__first_storage(body); s != TOW__NONE; s = p->storages[s].next)
        if (is_own(&c, s) &&
            (is_due(p->storages[s].kind) || p->storages[s].in_flight || stays_in_rows(loop, &p->storages[s])) &&
            p->storages[s].representative == s && !c.valid[s])
            return tow__fail(
                p->ctx, TOW_INTERNAL_ERROR,
                "the plan is wrong: result %u of %s is not there after the last instruction; please report this",
                p->storages[s].index, loop ? "a loop body" : "the program");
done:
    return status;
}

tow_status tow_program_check(const tow_program *p)
{
    if (!p) return tow__missing(NULL, __func__, "a program");
    tow__arena scratch;
    tow__arena_init(&scratch, p->ctx);
    checker none = {.p = p,
                    .valid = tow__arena_alloc(&scratch, p->n_storages, sizeof *none.valid),
                    .places = tow__arena_alloc(&scratch, p->n_storages, sizeof *none.places),
                    .ranks = tow__arena_alloc(&scratch, p->n_storages, sizeof *none.ranks),
                    .rows = tow__arena_alloc(&scratch, p->n_storages, sizeof *none.rows)};
    tow_status status = TOW_OUT_OF_MEMORY;
    if (none.valid && none.places && none.ranks && none.rows) {
        memset(none.rows, 0xFF, p->n_storages * sizeof *none.rows);
        status = check_plan(&none, p->top, NULL, &scratch);
    }
    tow__arena_free(&scratch);
    return status;
}
