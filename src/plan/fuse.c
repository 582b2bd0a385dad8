/* Fusion: elementwise steps on arrays of one shape become one step, a row program (src/kernels/fused.h).
 *
 * Steps are walked in order. Each starts a group of its own; if it is elementwise, it is merged with groups that make
 * or read what it reads. The schedule is a list of groups by position:
 *
 *   position   0        1      2        3          merging 0 and 3: group 0 moves down to position 3 if nobody between
 *   group      mul,add  dot    reduce   tanh       reads its results, or group 3 moves up to position 0 if nobody
 *                                                  between makes its operands; whichever keeps fewer bytes alive
 *
 * A product takes part as well: steps that read its result become a program that runs on finished strips of it.
 *
 * Groups with anything between them are merged only if that keeps no more bytes alive than before, so that fusion does
 * not undo what a remat policy saves; and forward and backward steps are never mixed. Values that only their own group
 * reads become temporaries of the program and lose their storage. */
#include "src/kernels/pairs.h"
#include "src/plan/plan.h"

enum {
    WINDOW = 48 /* positions between groups that are looked at; keeps the pass linear */
};

typedef struct group {
    uint32_t *members; /* steps, ascending */
    uint32_t n, position;
    tow_type shape; /* of the results; its dtype says nothing */
    int64_t count;
    uint32_t product; /* the member that is one, or TOW__NONE */
    bool fusible, backward;
} group;

typedef struct fuser {
    tow_program *p;
    tow__plan *plan;
    tow__arena *scratch;
    tow__tile *tiles;   /* [n_steps] NULL: not elementwise */
    group *groups;      /* [n_steps] */
    uint32_t *group_of; /* [n_steps] */
    uint32_t *order;    /* [n_steps] position -> group, or TOW__NONE where one has moved away */
    uint32_t n_order;
    uint32_t *producer;    /* [n_storages] step, or TOW__NONE */
    uint32_t *last_reader; /* [n_storages] step that reads it last, or TOW__NONE */
    uint32_t *reads;       /* [n_storages] operands of steps that read it */
    uint32_t *recent;      /* [n_storages] elementwise step that read it most recently, or TOW__NONE */
} fuser;

/* ---- what is elementwise ------------------------------------------------------------------------------------------ */

static bool is_whole(const tow_program *p, const tow__view *x)
{
    return x->offset == 0 && tow__view_contiguous(x) && p->storages[x->storage].bytes == tow_type_bytes(x->type);
}

static bool same_dims(tow_type a, tow_type b)
{
    b.dtype = a.dtype;
    return tow_type_equal(a, b);
}

/* A product that computes all of a storage, in a type in which programs can go on. */
static bool is_product(const fuser *f, const tow__step *step)
{
    return step->kernel && strcmp(step->primitive, "dot_general") == 0 && step->n_in == 2 && step->n_out == 1 &&
           is_whole(f->p, &step->out[0]);
}

static tow__tile tile_of(const fuser *f, const tow__step *step)
{
    tow__buffer buffers[TOW__FUSED_ARITY + TOW__FUSED_RESULTS];
    if (!step->kernel || step->n_in > TOW__FUSED_ARITY || step->n_out > TOW__FUSED_RESULTS || !step->n_in) return NULL;
    for (uint32_t i = 0; i < step->n_in; i++) {
        if (step->in[i].type.rank > 0 && !same_dims(step->in[i].type, step->out[0].type)) return NULL;
        buffers[i] = tow__view_buffer(&step->in[i]);
    }
    for (uint32_t i = 0; i < step->n_out; i++) {
        if (!is_whole(f->p, &step->out[i]) || !same_dims(step->out[i].type, step->out[0].type)) return NULL;
        buffers[step->n_in + i] = tow__view_buffer(&step->out[i]);
    }
    tow__kernel_call call = {
        .n_in = step->n_in, .n_out = step->n_out, .in = buffers, .out = buffers + step->n_in, .params = step->params};
    return tow__kernel_tile(step->kernel, &call);
}

/* x as a view of the whole shape: a scalar repeats, another shape of as many elements is reshaped. */
static bool spread(const tow__view *x, const tow_type *shape, tow__view *y)
{
    tow_type type = *shape;
    type.dtype = x->type.dtype;
    if (x->type.rank == 0) {
        *y = *x;
        y->type = type;
        for (int i = 0; i < TOW_MAX_RANK; i++) y->strides[i] = 0;
        return true;
    }
    return tow__view_reshape(x, type, y);
}

/* ---- row programs -------------------------------------------------------------------------------------------------- */

/* A group as a step: what it reads and makes. Values are numbered as in the program. */
typedef struct draft {
    tow__fused_op ops[TOW__FUSED_OPS];
    tow__view in[TOW__FUSED_IN], out[TOW__FUSED_OUT];
    uint8_t sizes[TOW__FUSED_TEMPS];
    uint32_t n_ops, n_in, n_out, n_temps;
    uint32_t product, home; /* step, or TOW__NONE; the result in whose memory it is computed */
    bool keeps_product;     /* somebody outside reads it */
} draft;

enum {
    /* numbers in a draft before operands and results are counted */
    FIRST_OUT = TOW__FUSED_IN,
    FIRST_TEMP = TOW__FUSED_IN + TOW__FUSED_OUT
};

/* Values made inside the group while its program is written. */
typedef struct made {
    uint32_t storage, number, last_op;
} made;

typedef struct writer {
    const fuser *f;
    tow_type shape;
    uint32_t members[2 * TOW__FUSED_OPS], n;
    draft *d;
    made made[TOW__FUSED_RESULTS * TOW__FUSED_OPS];
    uint32_t n_made;
    bool used[TOW__FUSED_TEMPS];
} writer;

static made *find_made(writer *w, uint32_t storage)
{
    for (uint32_t i = 0; i < w->n_made; i++)
        if (w->made[i].storage == storage) return &w->made[i];
    return NULL;
}

static bool reads_storage(const tow__step *step, uint32_t storage)
{
    for (uint32_t i = 0; i < step->n_in; i++)
        if (step->in[i].storage == storage) return true;
    return false;
}

/* Does anybody outside the group need the value? *last: the last member that reads it, as an op. */
static bool is_needed_outside(const writer *w, uint32_t storage, uint32_t *last)
{
    const fuser *f = w->f;
    uint32_t reads = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const tow__step *step = &f->plan->steps[w->members[i]];
        for (uint32_t j = 0; j < step->n_in; j++) reads += step->in[j].storage == storage;
        if (reads_storage(step, storage)) *last = i;
    }
    return f->p->storages[storage].kind != TOW__S_ARENA || f->reads[storage] > reads;
}

static bool add_operand(writer *w, const tow__view *x, uint8_t *number)
{
    draft *d = w->d;
    made *inside = find_made(w, x->storage);
    if (inside) { /* only as the member before made it: element by element */
        if (!is_whole(w->f->p, x)) return false;
        *number = (uint8_t)inside->number;
        return true;
    }
    tow__view y;
    if (!spread(x, &w->shape, &y)) return false;
    for (uint32_t i = 0; i < d->n_in; i++)
        if (tow__view_same(&d->in[i], &y)) {
            *number = (uint8_t)i;
            return true;
        }
    if (d->n_in == TOW__FUSED_IN) return false;
    *number = (uint8_t)d->n_in;
    d->in[d->n_in++] = y;
    return true;
}

/* Tiles of temporaries that nobody reads after op `last` are free again. */
static void release_temps(writer *w, uint32_t last)
{
    for (uint32_t i = 0; i < w->n_made; i++) {
        made *value = &w->made[i];
        if (value->number < FIRST_TEMP || value->last_op != last) continue;
        w->used[value->number - FIRST_TEMP] = false;
        value->last_op = TOW__NONE;
    }
}

static bool add_temp(writer *w, size_t size, uint32_t *number)
{
    draft *d = w->d;
    for (uint32_t i = 0; i < d->n_temps; i++)
        if (!w->used[i] && d->sizes[i] == size) {
            w->used[i] = true;
            *number = FIRST_TEMP + i;
            return true;
        }
    if (d->n_temps == TOW__FUSED_TEMPS) return false;
    w->used[d->n_temps] = true;
    d->sizes[d->n_temps] = (uint8_t)size;
    *number = FIRST_TEMP + d->n_temps++;
    return true;
}

static bool add_result(writer *w, const tow__view *x, uint32_t op, uint8_t *number)
{
    draft *d = w->d;
    made *value = &w->made[w->n_made];
    value->storage = x->storage;
    value->last_op = op;
    if (is_needed_outside(w, x->storage, &value->last_op)) {
        if (d->n_out == TOW__FUSED_OUT) return false;
        value->number = FIRST_OUT + d->n_out;
        if (!spread(x, &w->shape, &d->out[d->n_out])) return false;
        d->n_out++;
        value->last_op = TOW__NONE;
    } else if (!add_temp(w, tow_dtype_size(x->type.dtype), &value->number)) {
        return false;
    }
    *number = (uint8_t)value->number;
    w->n_made++;
    return true;
}

/* The product is operand 0 of the program. It needs its own operands as a whole, so none may be made inside. */
static bool add_product(writer *w, uint32_t i)
{
    const tow__step *step = &w->f->plan->steps[w->members[i]];
    uint32_t last;
    for (uint32_t j = 0; j < step->n_in; j++)
        if (find_made(w, step->in[j].storage)) return false;
    w->d->keeps_product = is_needed_outside(w, step->out[0].storage, &last);
    w->made[w->n_made++] = (made){step->out[0].storage, 0, TOW__NONE};
    return true;
}

static bool add_op(writer *w, uint32_t i)
{
    const tow__step *step = &w->f->plan->steps[w->members[i]];
    tow__fused_op *op = &w->d->ops[w->d->n_ops++];
    *op = (tow__fused_op){.tile = w->f->tiles[w->members[i]],
                          .params = step->params,
                          .primitive = step->primitive,
                          .dtype = step->out[0].type.dtype,
                          .n_in = (uint8_t)step->n_in,
                          .n_out = (uint8_t)step->n_out};
    for (uint32_t j = 0; j < step->n_in; j++)
        if (!add_operand(w, &step->in[j], &op->in[j])) return false;
    /* A tile function may write what it reads, but with two results one could meet the operands of the other. */
    if (step->n_out == 1) release_temps(w, i);
    for (uint32_t j = 0; j < step->n_out; j++)
        if (!add_result(w, &step->out[j], i, &op->out[j])) return false;
    release_temps(w, i);
    return true;
}

/* The product is computed in its own storage if that is kept, else in the last result of its type. */
static bool find_home(draft *d)
{
    if (d->product == TOW__NONE) return true;
    d->home = d->n_out;
    if (d->keeps_product) return d->n_out < TOW__FUSED_OUT;
    while (d->home > 0)
        if (d->out[--d->home].type.dtype == d->in[0].type.dtype) return true;
    return false;
}

/* False if the members of both groups (b may be NULL) cannot run as one program on this shape. */
static bool write_program(const fuser *f, const group *a, const group *b, tow_type shape, draft *d)
{
    writer w = {.f = f, .shape = shape, .d = d};
    uint32_t i = 0, j = 0, n_b = b ? b->n : 0;
    if (a->n + n_b > TOW__FUSED_OPS) return false;
    while (i < a->n || j < n_b)
        w.members[w.n++] = j == n_b || (i < a->n && a->members[i] < b->members[j]) ? a->members[i++] : b->members[j++];
    d->n_in = d->n_out = d->n_temps = d->n_ops = 0;
    d->product = b && b->product != TOW__NONE ? b->product : a->product;
    d->keeps_product = false;
    if (d->product != TOW__NONE) d->in[d->n_in++] = f->plan->steps[d->product].out[0];
    for (uint32_t k = 0; k < w.n; k++)
        if (!(w.members[k] == d->product ? add_product(&w, k) : add_op(&w, k))) return false;
    return d->n_out > 0 && find_home(d);
}

/* Numbers without gaps; for each result, whether operands are read after it is made. */
static tow__fused *finish_program(const fuser *f, draft *d)
{
    tow__arena *memory = &f->p->memory;
    tow__fused *program = tow__arena_alloc(memory, 1, sizeof *program);
    if (!program) return NULL;
    uint32_t closed[FIRST_TEMP + TOW__FUSED_TEMPS];
    for (uint32_t i = 0; i < FIRST_TEMP + TOW__FUSED_TEMPS; i++)
        closed[i] = i < FIRST_OUT ? i : i < FIRST_TEMP ? i - FIRST_OUT + d->n_in : i - FIRST_TEMP + d->n_in + d->n_out;
    for (uint32_t i = 0; i < d->n_ops; i++) {
        for (uint32_t j = 0; j < d->ops[i].n_in; j++) d->ops[i].in[j] = (uint8_t)closed[d->ops[i].in[j]];
        for (uint32_t j = 0; j < d->ops[i].n_out; j++) d->ops[i].out[j] = (uint8_t)closed[d->ops[i].out[j]];
    }
    uint32_t first_temp = d->n_in + d->n_out, made_at[TOW__FUSED_OUT] = {0}, last_operand = 0;
    d->n_ops = tow__join_pairs(d->ops, d->n_ops, first_temp);
    for (uint32_t i = 0; i < d->n_ops; i++) {
        const tow__fused_op *op = &d->ops[i];
        for (uint32_t j = 0; j < op->n_in; j++)
            if (op->in[j] < d->n_in) last_operand = i;
        for (uint32_t j = 0; j < op->n_out; j++)
            if (op->out[j] >= d->n_in && op->out[j] < first_temp) made_at[op->out[j] - d->n_in] = i;
    }
    *program = (tow__fused){.n_ops = d->n_ops, .n_in = d->n_in, .n_out = d->n_out, .n_temps = d->n_temps};
    for (uint32_t i = 0; i < d->n_in; i++) program->sizes[i] = (uint8_t)tow_dtype_size(d->in[i].type.dtype);
    for (uint32_t i = 0; i < d->n_out; i++) {
        program->sizes[d->n_in + i] = (uint8_t)tow_dtype_size(d->out[i].type.dtype);
        program->late[i] = last_operand > made_at[i];
    }
    memcpy(program->sizes + d->n_in + d->n_out, d->sizes, d->n_temps);
    program->ops = tow__arena_copy(memory, d->ops, d->n_ops, sizeof *d->ops);
    return program->ops ? program : NULL;
}

/* ---- merging -------------------------------------------------------------------------------------------------------- */

static bool makes(const fuser *f, const group *g, uint32_t storage)
{
    uint32_t step = f->producer[storage];
    return step != TOW__NONE && f->group_of[step] == (uint32_t)(g - f->groups);
}

/* Does b read what a makes? */
static bool reads_from(const fuser *f, const group *b, const group *a)
{
    for (uint32_t i = 0; i < b->n; i++) {
        const tow__step *step = &f->plan->steps[b->members[i]];
        for (uint32_t j = 0; j < step->n_in; j++)
            if (makes(f, a, step->in[j].storage)) return true;
    }
    return false;
}

typedef struct gap {
    bool empty, sinks, rises; /* nothing between; a may move down to b; b may move up to a */
} gap;

static gap look_between(const fuser *f, const group *a, const group *b)
{
    gap between = {true, true, true};
    for (uint32_t i = a->position + 1; i < b->position; i++) {
        if (f->order[i] == TOW__NONE) continue;
        const group *g = &f->groups[f->order[i]];
        between.empty = false;
        if (f->plan->steps[g->members[0]].n_out == 0) between.sinks = false; /* may overwrite what has been read */
        if (between.sinks) between.sinks = !reads_from(f, g, a);
        if (between.rises) between.rises = !reads_from(f, b, g);
    }
    return between;
}

static int64_t arena_bytes(const fuser *f, uint32_t storage)
{
    const tow__storage *s = &f->p->storages[storage];
    return s->kind == TOW__S_ARENA && s->plan == f->plan ? (int64_t)s->bytes : 0;
}

/* Bytes of operands of group a (not made by itself or b) that nobody needs after a. */
static int64_t dying_bytes(const fuser *f, const group *a, const group *b)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const tow__step *step = &f->plan->steps[a->members[i]];
        for (uint32_t j = 0; j < step->n_in; j++) {
            uint32_t s = step->in[j].storage;
            bool again = false;
            for (uint32_t k = 0; k < j; k++) again |= step->in[k].storage == s;
            if (!again && f->last_reader[s] == a->members[i] && !makes(f, a, s) && !makes(f, b, s))
                bytes += arena_bytes(f, s);
        }
    }
    return bytes;
}

/* Bytes of results of group a that become temporaries if b joins it, and of those that do not. */
static void result_bytes(const fuser *f, const group *a, const group *b, int64_t *inner, int64_t *outer)
{
    *inner = *outer = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const tow__step *step = &f->plan->steps[a->members[i]];
        for (uint32_t k = 0; k < step->n_out; k++) {
            uint32_t s = step->out[k].storage, own = 0, other = 0;
            for (uint32_t j = 0; j < a->n; j++)
                for (uint32_t x = 0; x < f->plan->steps[a->members[j]].n_in; x++)
                    own += f->plan->steps[a->members[j]].in[x].storage == s;
            for (uint32_t j = 0; j < b->n; j++)
                for (uint32_t x = 0; x < f->plan->steps[b->members[j]].n_in; x++)
                    other += f->plan->steps[b->members[j]].in[x].storage == s;
            if (f->reads[s] == own && arena_bytes(f, s)) continue; /* a temporary of a already */
            *(f->reads[s] == own + other ? inner : outer) += arena_bytes(f, s);
        }
    }
}

/* Moves group `from` into `to`, which keeps its position. */
static tow_status absorb(fuser *f, group *to, group *from, tow_type shape)
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
    if (from->product != TOW__NONE) to->product = from->product;
    return TOW_OK;
}

/* Merges two groups if that is possible and worth it; *merged is the group that remains. */
static tow_status try_merge(fuser *f, group *x, group *y, group **merged)
{
    group *a = x->position < y->position ? x : y, *b = a == x ? y : x;
    draft d;
    *merged = NULL;
    if (a == b || !a->fusible || !b->fusible || a->backward != b->backward || a->count != b->count) return TOW_OK;
    bool products = a->product != TOW__NONE || b->product != TOW__NONE;
    if (products && ((a->product != TOW__NONE && b->product != TOW__NONE) || !reads_from(f, b, a))) return TOW_OK;
    if (b->position - a->position > WINDOW) return TOW_OK;
    gap between = look_between(f, a, b);
    if (!between.sinks && !between.rises) return TOW_OK;
    int64_t inner, outer, kept, rest;
    result_bytes(f, a, b, &inner, &outer);
    result_bytes(f, b, a, &rest, &kept);
    int64_t sinking = between.sinks ? dying_bytes(f, a, b) - inner : INT64_MAX;
    int64_t rising = between.rises ? kept - inner - dying_bytes(f, b, a) : INT64_MAX;
    if (!between.empty && sinking > 0 && rising > 0) return TOW_OK;
    tow_type shape = b->product != TOW__NONE ? b->shape : a->shape;
    if (!write_program(f, a, b, shape, &d)) {
        shape = b->shape;
        if (products || same_dims(shape, a->shape) || !write_program(f, a, b, shape, &d)) return TOW_OK;
    }
    bool sinks = between.sinks && sinking <= rising;
    *merged = sinks ? b : a;
    return sinks ? absorb(f, b, a, shape) : absorb(f, a, b, shape);
}

/* ---- the pass -------------------------------------------------------------------------------------------------------- */

static uint32_t *alloc_none(tow__arena *arena, size_t n)
{
    uint32_t *array = tow__arena_alloc(arena, n, sizeof *array);
    if (array) memset(array, 0xFF, n * sizeof *array);
    return array;
}

static tow_status prepare(fuser *f)
{
    uint32_t n_steps = f->plan->n_steps, n_storages = f->p->n_storages;
    f->tiles = tow__arena_alloc(f->scratch, n_steps, sizeof *f->tiles);
    f->groups = tow__arena_alloc(f->scratch, n_steps, sizeof *f->groups);
    f->group_of = alloc_none(f->scratch, n_steps);
    f->order = alloc_none(f->scratch, n_steps);
    f->producer = alloc_none(f->scratch, n_storages);
    f->last_reader = alloc_none(f->scratch, n_storages);
    f->recent = alloc_none(f->scratch, n_storages);
    f->reads = tow__arena_alloc(f->scratch, n_storages, sizeof *f->reads);
    if (!f->tiles || !f->groups || !f->group_of || !f->order || !f->producer || !f->last_reader || !f->recent ||
        !f->reads)
        return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n_steps; i++) {
        const tow__step *step = &f->plan->steps[i];
        f->tiles[i] = tile_of(f, step);
        for (uint32_t j = 0; j < step->n_in; j++) {
            f->reads[step->in[j].storage]++;
            f->last_reader[step->in[j].storage] = i;
        }
        for (uint32_t j = 0; j < step->n_out; j++) f->producer[step->out[j].storage] = i;
    }
    return TOW_OK;
}

/* Merges the group of step i with group `other`, if that works. */
static tow_status meet(fuser *f, uint32_t i, uint32_t step, bool *met)
{
    group *merged = NULL;
    if (step == TOW__NONE || step >= i) return TOW_OK;
    tow_status status = try_merge(f, &f->groups[f->group_of[step]], &f->groups[f->group_of[i]], &merged);
    *met |= merged != NULL;
    return status;
}

static tow_status place_step(fuser *f, uint32_t i)
{
    const tow__step *step = &f->plan->steps[i];
    group *g = &f->groups[i];
    tow_status status = TOW_OK;
    *g = (group){.n = 1, .position = f->n_order, .product = TOW__NONE, .backward = step->backward};
    if (is_product(f, step)) g->product = i;
    g->fusible = f->tiles[i] || g->product != TOW__NONE;
    g->members = tow__arena_alloc(f->scratch, 1, sizeof *g->members);
    if (!g->members) return TOW_OUT_OF_MEMORY;
    g->members[0] = i;
    f->group_of[i] = i;
    f->order[f->n_order++] = i;
    if (!g->fusible) return TOW_OK;
    g->shape = step->out[0].type;
    g->count = (int64_t)tow_type_count(g->shape);
    if (g->product != TOW__NONE) return TOW_OK; /* others join it */
    for (bool met = true; met;) {               /* one that has joined stands between others no longer */
        met = false;
        for (uint32_t j = 0; j < step->n_in; j++) TRY(meet(f, i, f->producer[step->in[j].storage], &met));
    }
    for (uint32_t j = 0; j < step->n_in; j++) { /* who reads the same data, unless that is small */
        uint32_t s = step->in[j].storage;
        if (f->p->storages[s].bytes < (size_t)g->count * tow_dtype_size(step->in[j].type.dtype)) continue;
        TRY(meet(f, i, f->recent[s], &(bool){false}));
        f->recent[s] = i;
    }
done:
    return status;
}

/* A product with its program: operands are those of the product, then those of the program beside it. */
static tow_status emit_product(fuser *f, const draft *d, const tow__fused *program, tow__step *step)
{
    const tow__step *product = &f->plan->steps[d->product];
    tow__arena *memory = &f->p->memory;
    tow__dot_fused_params *params = tow__arena_alloc(memory, 1, sizeof *params);
    *step = *product;
    step->n_in = product->n_in + d->n_in - 1;
    step->n_out = d->n_out + d->keeps_product;
    step->kernel = tow__kernel_find("fused_dot_general", product->out[0].type.dtype);
    step->params = params;
    step->scratch = TOW__NONE;
    step->in = tow__arena_alloc(memory, step->n_in, sizeof *step->in);
    step->out = tow__arena_alloc(memory, step->n_out, sizeof *step->out);
    if (!params || !step->in || !step->out) return TOW_OUT_OF_MEMORY;
    *params = (tow__dot_fused_params){*(const tow__dot_params *)product->params, program, product->kernel, d->home};
    for (uint32_t i = 0; i < step->n_in; i++)
        step->in[i] = i < product->n_in ? product->in[i] : d->in[i - product->n_in + 1];
    memcpy(step->out, d->out, d->n_out * sizeof *d->out);
    if (d->keeps_product) step->out[d->n_out] = product->out[0];
    tow__lowering l = {.p = f->p, .plan = f->plan, .scratch = f->scratch};
    return tow__add_scratch(&l, step);
}

static tow_status emit(fuser *f, const group *g, tow__step *step)
{
    draft d;
    if (g->n == 1) {
        *step = f->plan->steps[g->members[0]];
        return TOW_OK;
    }
    if (!write_program(f, g, NULL, g->shape, &d))
        return tow__fail(f->p->ctx, TOW_INTERNAL_ERROR, "a group of %u steps cannot be fused; please report this",
                         g->n);
    const tow__fused *program = finish_program(f, &d);
    if (!program) return TOW_OUT_OF_MEMORY;
    if (d.product != TOW__NONE) return emit_product(f, &d, program, step);
    *step = (tow__step){.primitive = "fused",
                        .kernel = tow__kernel_find("fused", TOW_F32),
                        .params = program,
                        .n_in = d.n_in,
                        .n_out = d.n_out,
                        .scratch = TOW__NONE,
                        .backward = g->backward,
                        .source = f->plan->steps[g->members[0]].source};
    step->in = tow__arena_copy(&f->p->memory, d.in, d.n_in, sizeof *d.in);
    step->out = tow__arena_copy(&f->p->memory, d.out, d.n_out, sizeof *d.out);
    return step->in && step->out ? TOW_OK : TOW_OUT_OF_MEMORY;
}

const tow__fused *tow__step_program(const tow__step *step)
{
    if (!step->kernel) return NULL;
    if (strcmp(step->kernel->primitive, "fused") == 0) return step->params;
    if (strcmp(step->kernel->primitive, "fused_dot_general") != 0) return NULL;
    return ((const tow__dot_fused_params *)step->params)->program;
}

tow_status tow__fuse(tow_program *p, tow__plan *plan, tow__arena *scratch)
{
    fuser f = {.p = p, .plan = plan, .scratch = scratch};
    tow_status status = TOW_OK;
    uint32_t n = 0;
    if (p->no_fusion) return TOW_OK;
    TRY(prepare(&f));
    for (uint32_t i = 0; i < plan->n_steps; i++) TRY(place_step(&f, i));
    tow__step *steps = tow__arena_alloc(&p->memory, plan->n_steps, sizeof *steps);
    if (!steps) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f.n_order; i++)
        if (f.order[i] != TOW__NONE) TRY(emit(&f, &f.groups[f.order[i]], &steps[n++]));
    plan->steps = steps;
    plan->steps_capacity = plan->n_steps;
    plan->n_steps = n;
done:
    return status;
}
