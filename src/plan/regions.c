/* Row regions: runs of steps along which axis 0 (sequences, or rows of a batch) passes through untouched. A region runs
 * block by block; a thread takes its blocks through all steps of the region without meeting the others.
 *
 *   steps        a  b  W  c  d  M  e          W: weight gradient of something b made (mixes rows, nobody here waits for it)
 *   becomes     [a  b  c  d]  W  M  e         M: mixes rows, and e waits for it
 *
 * A region is a loop whose iterations are independent: blocks of operands are its xs, blocks of results its ys, and what
 * only the region reads lies in a block-sized arena of the thread. Steps that mix rows are put off to the end of the
 * region; so that what they read does not pile up, a region ends when that exceeds a limit.
 *
 * Blocks are fixed by shapes. Since every kernel gives a row the same bits alone and among others, regions change none. */
#include "src/plan/plan.h"

enum {
    BLOCK_ROWS = 256,     /* rows of a block, about, where there are more */
    LEAST_ROWS = 64,      /* fewer make products slow */
    LEAST_WORK = 1 << 20, /* operations per block that are worth a region */
    DEFERRED_SHARE = 8    /* steps that were put off may keep 1/8 of the plan's peak alive */
};

/* Where a storage is made, as far as the region at hand is concerned. */
typedef enum made {
    OUTSIDE,
    INSIDE,
    DEFERRED
} made;

typedef struct former {
    tow_program *p;
    tow__plan *plan;
    tow__arena *scratch;
    const tow__step *steps; /* as lowered */
    uint32_t n_steps;
    int64_t blocks;
    uint32_t n_storages; /* before this pass */
    uint32_t *last_read; /* [n_storages] last step that reads it */
    uint32_t *reads;     /* [n_storages] operands that name it */
    made *made;          /* [n_storages] */
    bool *counted;       /* [n_storages] its bytes count as deferred */
    uint32_t *inside;    /* steps of the region at hand */
    uint32_t *deferred;  /* steps put off */
    uint32_t n_inside, n_deferred;
    uint32_t reach; /* step at which the collection ended */
    size_t deferred_bytes, deferred_limit;
    bool *split;  /* of the step at hand */
    bool *splits; /* [n_steps] whether it may be inside a region */
} former;

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

/* Products and sequence kernels decide: what their leading axes have in common is cut so that products keep enough rows
 * in a block, and the second cache enough room for it. */
static int64_t choose_blocks(const former *f)
{
    int64_t common = 0, inner = INT64_MAX;
    for (uint32_t i = 0; i < f->n_steps; i++) {
        const tow__step *step = &f->steps[i];
        bool heavy = step->kernel &&
                     (strcmp(step->primitive, "dot_general") == 0 || strncmp(step->primitive, "attention", 9) == 0);
        if (!heavy || !tow__step_splits(step, f->split)) continue;
        common = gcd(common, step->out[0].type.dims[0]);
        if (tow__inner_rows(step) < inner) inner = tow__inner_rows(step);
    }
    if (common < 2 || inner < 1) return 1;
    int64_t most = common * inner / LEAST_ROWS, blocks = common * inner / BLOCK_ROWS;
    for (blocks = blocks > 2 ? blocks : 2; blocks <= most && blocks <= common; blocks++)
        if (common % blocks == 0 && tow__balanced(blocks, f->p->team.threads)) return blocks;
    return 1;
}

/* Whether the step may be in a region, going by itself alone. */
static bool splits(const former *f, const tow__step *step)
{
    if (!tow__step_splits(step, f->split)) return false;
    for (uint32_t i = 0; i < step->n_out; i++)
        if (!tow__fits_blocks(f->p, &step->out[i], f->blocks)) return false;
    for (uint32_t i = 0; i < step->n_in; i++) {
        const tow__view *x = &step->in[i];
        if (!f->split[i]) continue;
        if (tow__repeats(x) ? x->type.dims[0] % f->blocks != 0 : !tow__fits_blocks(f->p, x, f->blocks)) return false;
    }
    return true;
}

/* ---- forming ----------------------------------------------------------------------------------------------------- */

/* May the step run inside? Nothing it reads may be put off, and what it reads as a whole may not be made inside. */
static bool joins(const former *f, const tow__step *step)
{
    if (!splits(f, step)) return false;
    for (uint32_t i = 0; i < step->n_in; i++) {
        made where = f->made[step->in[i].storage];
        if (where == DEFERRED) return false;
        if (where == INSIDE && (!f->split[i] || tow__repeats(&step->in[i]))) return false;
    }
    return true;
}

static void mark(former *f, const tow__step *step, made where)
{
    for (uint32_t i = 0; i < step->n_out; i++) f->made[step->out[i].storage] = where;
}

/* Bytes that live longer because step i waits until the end of the region. */
static size_t extends(former *f, uint32_t i)
{
    const tow__step *step = &f->steps[i];
    size_t bytes = 0;
    for (uint32_t j = 0; j < step->n_in; j++) {
        uint32_t s = step->in[j].storage;
        const tow__storage *storage = &f->p->storages[s];
        if (storage->kind != TOW__S_ARENA || storage->plan != f->plan || f->counted[s] || f->last_read[s] > i) continue;
        f->counted[s] = true;
        bytes += storage->bytes;
    }
    return bytes;
}

static void defer(former *f, uint32_t i)
{
    f->deferred[f->n_deferred++] = i;
    f->deferred_bytes += extends(f, i);
    mark(f, &f->steps[i], DEFERRED);
}

/* Collects a region from step `first` on; returns the step after its last one. Steps at the end that were put off
 * without need are given back. */
static uint32_t collect(former *f, uint32_t first)
{
    uint32_t i = first, end = first;
    f->n_inside = f->n_deferred = 0;
    f->deferred_bytes = 0;
    uint32_t deferred_at_end = 0;
    for (; i < f->n_steps; i++) {
        const tow__step *step = &f->steps[i];
        if (step->backward != f->steps[first].backward || step->loop) break;
        if (f->splits[i] && joins(f, step)) {
            f->inside[f->n_inside++] = i;
            mark(f, step, INSIDE);
            end = i + 1;
            deferred_at_end = f->n_deferred;
            continue;
        }
        if (f->deferred_bytes > f->deferred_limit) break;
        defer(f, i);
    }
    f->n_deferred = deferred_at_end;
    f->reach = i;
    return end;
}

static void forget(former *f, uint32_t first)
{
    for (uint32_t i = first; i < f->reach; i++) {
        mark(f, &f->steps[i], OUTSIDE);
        for (uint32_t j = 0; j < f->steps[i].n_in; j++) f->counted[f->steps[i].in[j].storage] = false;
    }
}

static bool worthwhile(const former *f)
{
    double work = 0;
    for (uint32_t i = 0; i < f->n_inside; i++) work += tow__step_work(&f->steps[f->inside[i]]);
    return f->n_inside > 1 && work >= (double)LEAST_WORK * (double)f->blocks;
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

typedef struct builder {
    former *f;
    tow__loop *loop;
    tow__plan *body;
    uint32_t *row_in, *row_out; /* [n_storages] the body's storage for a block, or TOW__NONE */
    uint32_t *reads_inside;     /* [n_storages] */
    bool *whole;                /* [n_storages] listed among what is read as a whole */
    tow__view *wholes;
    uint32_t n_wholes;
} builder;

/* All of a storage as blocks [blocks, elements]. */
static tow__view as_blocks(const former *f, const tow__view *x)
{
    int64_t size = (int64_t)tow_dtype_size(x->type.dtype);
    int64_t n = (int64_t)f->p->storages[x->storage].bytes / size;
    return tow__view_whole(x->storage,
                           (tow_type){.dtype = x->type.dtype, .rank = 2, .dims = {f->blocks, n / f->blocks}});
}

static uint32_t add_rows(builder *b, const tow__view *x, tow__storage_kind kind)
{
    former *f = b->f;
    uint32_t *n = kind == TOW__S_ROW_IN ? &b->loop->n_xs : &b->loop->n_ys;
    tow__rows *r = kind == TOW__S_ROW_IN ? &b->loop->xs[*n] : &b->loop->ys[*n];
    size_t bytes = f->p->storages[x->storage].bytes / (size_t)f->blocks;
    r->array = as_blocks(f, x);
    r->stride = (ptrdiff_t)bytes;
    r->row = tow__add_storage(f->p, b->body, kind, (*n)++, bytes);
    return r->row;
}

static bool internal(const builder *b, uint32_t s)
{
    const tow__storage *storage = &b->f->p->storages[s];
    return storage->kind == TOW__S_ARENA && b->reads_inside[s] == b->f->reads[s];
}

/* The body's storage for block-sized result x, which becomes its own block or a row of ys. */
static uint32_t result_storage(builder *b, const tow__view *x)
{
    tow__storage *s = &b->f->p->storages[x->storage];
    if (!internal(b, x->storage)) return b->row_out[x->storage] = add_rows(b, x, TOW__S_ROW_OUT);
    s->plan = b->body;
    s->bytes /= (size_t)b->f->blocks;
    s->need = tow__round_up(s->bytes);
    return x->storage;
}

static tow_status operand_view(builder *b, const tow__view *x, bool split, tow__view *y)
{
    former *f = b->f;
    uint32_t s = x->storage;
    *y = *x;
    if (split) y->type.dims[0] /= f->blocks;
    if (split && !tow__repeats(x)) {
        if (f->made[s] == INSIDE) {
            y->storage = b->row_out[s] == TOW__NONE ? s : b->row_out[s];
            return TOW_OK;
        }
        if (b->row_in[s] == TOW__NONE) b->row_in[s] = add_rows(b, x, TOW__S_ROW_IN);
        y->storage = b->row_in[s];
        return y->storage == TOW__NONE ? TOW_OUT_OF_MEMORY : TOW_OK;
    }
    if (!b->whole[s] && f->p->storages[s].kind != TOW__S_CONSTANT) {
        b->whole[s] = true;
        b->wholes[b->n_wholes++] = *x;
    }
    return TOW_OK;
}

static tow_status add_block_step(builder *b, const tow__step *step)
{
    former *f = b->f;
    tow_status status = TOW_OK;
    tow__lowering l = {.p = f->p, .plan = b->body, .scratch = f->scratch};
    tow__step *copy = tow__add_step(&l, step->primitive, step->n_in, step->n_out);
    if (!copy) return TOW_OUT_OF_MEMORY;
    copy->kernel = step->kernel;
    copy->params = step->params;
    copy->backward = step->backward;
    copy->source = step->source;
    tow__step_splits(step, f->split);
    for (uint32_t i = 0; i < step->n_in; i++) TRY(operand_view(b, &step->in[i], f->split[i], &copy->in[i]));
    for (uint32_t i = 0; i < step->n_out; i++) {
        copy->out[i] = step->out[i];
        copy->out[i].type.dims[0] /= f->blocks;
        copy->out[i].storage = result_storage(b, &step->out[i]);
        if (copy->out[i].storage == TOW__NONE) return TOW_OUT_OF_MEMORY;
    }
    status = tow__add_scratch(&l, copy);
done:
    return status;
}

static tow_status begin_region(builder *b)
{
    former *f = b->f;
    size_t operands = 0, results = 0;
    for (uint32_t i = 0; i < f->n_inside; i++) {
        operands += f->steps[f->inside[i]].n_in;
        results += f->steps[f->inside[i]].n_out;
    }
    tow__arena *memory = &f->p->memory;
    b->loop = tow__arena_alloc(memory, 1, sizeof *b->loop);
    b->body = tow__arena_alloc(memory, 1, sizeof *b->body);
    if (!b->loop || !b->body) return TOW_OUT_OF_MEMORY;
    *b->loop = (tow__loop){.length = f->blocks, .parallel = true, .body = b->body};
    b->loop->xs = tow__arena_alloc(memory, operands, sizeof *b->loop->xs);
    b->loop->ys = tow__arena_alloc(memory, results, sizeof *b->loop->ys);
    b->wholes = tow__arena_alloc(f->scratch, operands, sizeof *b->wholes);
    b->body->outer = f->plan;
    b->body->team = &f->p->solo;
    b->body->copies = (uint32_t)f->p->team.threads;
    b->body->block = tow__add_storage(f->p, f->plan, TOW__S_ARENA, 0, 0);
    bool all = b->loop->xs && b->loop->ys && b->wholes && b->body->block != TOW__NONE;
    return all ? TOW_OK : TOW_OUT_OF_MEMORY;
}

/* The region as a step of the surrounding plan: in = xs, then what is read as a whole; out = ys. */
static tow_status add_region_step(builder *b, tow__lowering *l)
{
    const tow__loop *loop = b->loop;
    tow__step *step = tow__add_step(l, "region", loop->n_xs + b->n_wholes, loop->n_ys);
    if (!step) return TOW_OUT_OF_MEMORY;
    step->loop = b->loop;
    step->scratch = b->body->block;
    step->backward = b->f->steps[b->f->inside[0]].backward;
    for (uint32_t j = 0; j < loop->n_xs; j++) step->in[j] = loop->xs[j].array;
    for (uint32_t j = 0; j < b->n_wholes; j++) step->in[loop->n_xs + j] = b->wholes[j];
    for (uint32_t j = 0; j < loop->n_ys; j++) step->out[j] = loop->ys[j].array;
    return TOW_OK;
}

static tow_status build_region(former *f, tow__lowering *l)
{
    tow_program *p = f->p;
    tow_status status = TOW_OK;
    builder b = {.f = f};
    b.row_in = tow__arena_alloc(f->scratch, f->n_storages, sizeof *b.row_in);
    b.row_out = tow__arena_alloc(f->scratch, f->n_storages, sizeof *b.row_out);
    b.reads_inside = tow__arena_alloc(f->scratch, f->n_storages, sizeof *b.reads_inside);
    b.whole = tow__arena_alloc(f->scratch, f->n_storages, sizeof *b.whole);
    if (!b.row_in || !b.row_out || !b.reads_inside || !b.whole) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_storages; i++) b.row_in[i] = b.row_out[i] = TOW__NONE;
    for (uint32_t i = 0; i < f->n_inside; i++) {
        const tow__step *step = &f->steps[f->inside[i]];
        for (uint32_t j = 0; j < step->n_in; j++) b.reads_inside[step->in[j].storage]++;
    }
    TRY(begin_region(&b));
    for (uint32_t i = 0; i < f->n_inside; i++) TRY(add_block_step(&b, &f->steps[f->inside[i]]));
    TRY(tow__reuse(p, b.body));
    TRY(tow__place_plan(p, b.body, f->scratch));
    p->storages[b.body->block].bytes = b.body->bytes * b.body->copies;
    p->storages[b.body->block].need = b.body->need * b.body->copies;
    TRY(add_region_step(&b, l));
done:
    return status;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* The steps from *at on, as one region and what was put off, or as they are. */
static tow_status form_from(former *f, tow__lowering *l, uint32_t *at)
{
    tow_status status = TOW_OK;
    uint32_t first = *at;
    if (!f->splits[first]) return tow__keep_step(f->p, f->plan, &f->steps[(*at)++]);
    *at = collect(f, first);
    if (worthwhile(f)) {
        TRY(build_region(f, l));
        for (uint32_t i = 0; i < f->n_deferred; i++) TRY(tow__keep_step(f->p, f->plan, &f->steps[f->deferred[i]]));
    } else {
        for (uint32_t i = first; i < *at; i++) TRY(tow__keep_step(f->p, f->plan, &f->steps[i]));
    }
    forget(f, first);
done:
    return status;
}

static uint32_t widest_step(const tow__plan *plan)
{
    uint32_t widest = 1;
    for (uint32_t i = 0; i < plan->n_steps; i++)
        if (plan->steps[i].n_in > widest) widest = plan->steps[i].n_in;
    return widest;
}

/* Most bytes alive at one step if the steps ran as they stand. */
static tow_status set_limit(former *f)
{
    size_t live = 0, most = 0;
    bool *begun = tow__arena_alloc(f->scratch, f->n_storages, sizeof *begun);
    size_t *ends = tow__arena_alloc(f->scratch, (size_t)f->n_steps, sizeof *ends);
    if (!begun || !ends) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_steps; i++) {
        for (uint32_t j = 0; j < f->steps[i].n_out; j++) {
            uint32_t s = f->steps[i].out[j].storage;
            const tow__storage *storage = &f->p->storages[s];
            if (storage->kind != TOW__S_ARENA || begun[s]) continue;
            begun[s] = true;
            live += storage->bytes;
            ends[f->reads[s] ? f->last_read[s] : i] += storage->bytes;
        }
        if (live > most) most = live;
        live -= ends[i];
    }
    f->deferred_limit = most / DEFERRED_SHARE;
    return TOW_OK;
}

static tow_status prepare(former *f)
{
    f->n_storages = f->p->n_storages;
    f->last_read = tow__arena_alloc(f->scratch, f->n_storages, sizeof *f->last_read);
    f->reads = tow__arena_alloc(f->scratch, f->n_storages, sizeof *f->reads);
    f->made = tow__arena_alloc(f->scratch, f->n_storages, sizeof *f->made);
    f->counted = tow__arena_alloc(f->scratch, f->n_storages, sizeof *f->counted);
    f->inside = tow__arena_alloc(f->scratch, f->n_steps, sizeof *f->inside);
    f->deferred = tow__arena_alloc(f->scratch, f->n_steps, sizeof *f->deferred);
    f->splits = tow__arena_alloc(f->scratch, f->n_steps, sizeof *f->splits);
    if (!f->last_read || !f->reads || !f->made || !f->counted || !f->inside || !f->deferred || !f->splits)
        return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_steps; i++)
        for (uint32_t j = 0; j < f->steps[i].n_in; j++) {
            f->last_read[f->steps[i].in[j].storage] = i;
            f->reads[f->steps[i].in[j].storage]++;
        }
    return set_limit(f);
}

tow_status tow__form_regions(tow_program *p, tow__plan *plan, tow__arena *scratch)
{
    tow__lowering l = {.p = p, .plan = plan, .scratch = scratch};
    tow_status status = TOW_OK;
    if (p->no_regions) return TOW_OK;
    former f = {.p = p, .plan = plan, .scratch = scratch, .steps = plan->steps, .n_steps = plan->n_steps};
    f.split = tow__arena_alloc(scratch, widest_step(plan), sizeof *f.split);
    if (!f.split) return TOW_OUT_OF_MEMORY;
    f.blocks = choose_blocks(&f);
    if (f.blocks < 2) return TOW_OK;
    TRY(tow__part_sums(p, plan));
    f.steps = plan->steps;
    f.n_steps = plan->n_steps;
    TRY(prepare(&f));
    for (uint32_t i = 0; i < f.n_steps; i++) f.splits[i] = splits(&f, &f.steps[i]);
    plan->steps = NULL;
    plan->n_steps = plan->steps_capacity = 0;
    for (uint32_t i = 0; i < f.n_steps;) TRY(form_from(&f, &l, &i));
done:
    return status;
}
