/* Row programs of groups of elementwise instructions (fuse/fuse.c): operands, results and temporaries get numbers,
 * temporaries share tiles, and some ops become one (src/kernels/elementwise/joined.h). A group that needs more
 * numbers than there are has no program. */
#include "src/kernels/elementwise/joined.h"
#include "src/plan/analysis/view.h"
#include "src/plan/fuse/fuse_state.h"

/* x as a view of the whole shape: a scalar repeats, another shape of as many elements is reshaped. */
static bool broadcast_over(const tow__view *x, const tow_type *shape, tow__view *y)
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

enum {
    /* numbers in a candidate before operands and results are counted */
    FIRST_OUT = TOW__FUSED_IN,
    FIRST_TEMP = TOW__FUSED_IN + TOW__FUSED_OUT
};

/* Values made inside the group while its program is written. */
typedef struct made {
    uint32_t storage, number, last_op;
} made;

typedef struct row_program_state {
    const tow__fuse_state *f;
    tow_type shape;
    uint32_t members[2 * TOW__FUSED_OPS], n;
    tow__candidate *c;
    made made[TOW__FUSED_RESULTS * TOW__FUSED_OPS];
    uint32_t n_made;
    bool used[TOW__FUSED_TEMPS];
} row_program_state;

static made *find_made(row_program_state *w, uint32_t storage)
{
    for (uint32_t i = 0; i < w->n_made; i++)
        if (w->made[i].storage == storage) return &w->made[i];
    return NULL;
}

static bool reads_storage(const tow__instruction *inst, uint32_t storage)
{
    for (uint32_t i = 0; i < inst->n_in; i++)
        if (inst->in[i].storage == storage) return true;
    return false;
}

/* Does anybody outside the group need the value? *last: the last member that reads it, as an op. */
static bool is_needed_outside(const row_program_state *w, uint32_t storage, uint32_t *last)
{
    const tow__fuse_state *f = w->f;
    uint32_t reads = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const tow__instruction *inst = &f->body->insts[w->members[i]];
        for (uint32_t j = 0; j < inst->n_in; j++) reads += inst->in[j].storage == storage;
        if (reads_storage(inst, storage)) *last = i;
    }
    return f->p->storages[storage].kind != TOW__S_ARENA || f->uses->reads[storage] > reads;
}

static bool add_operand(row_program_state *w, const tow__view *x, uint8_t *number)
{
    tow__candidate *c = w->c;
    made *inside = find_made(w, x->storage);
    if (inside) { /* a value of the group is read element by element, as it was made */
        if (!tow__is_whole(w->f->p, x)) return false;
        *number = (uint8_t)inside->number;
        return true;
    }
    tow__view y;
    if (!broadcast_over(x, &w->shape, &y)) return false;
    for (uint32_t i = 0; i < c->n_in; i++)
        if (tow__view_same(&c->in[i], &y)) {
            *number = (uint8_t)i;
            return true;
        }
    if (c->n_in == TOW__FUSED_IN) return false;
    *number = (uint8_t)c->n_in;
    c->in[c->n_in++] = y;
    return true;
}

/* Tiles of temporaries that nobody reads after op `last` are free again. */
static void release_temps(row_program_state *w, uint32_t last)
{
    for (uint32_t i = 0; i < w->n_made; i++) {
        made *value = &w->made[i];
        if (value->number < FIRST_TEMP || value->last_op != last) continue;
        w->used[value->number - FIRST_TEMP] = false;
        value->last_op = TOW__NONE;
    }
}

static bool add_temp(row_program_state *w, size_t size, uint32_t *number)
{
    tow__candidate *c = w->c;
    for (uint32_t i = 0; i < c->n_temps; i++)
        if (!w->used[i] && c->sizes[i] == size) {
            w->used[i] = true;
            *number = FIRST_TEMP + i;
            return true;
        }
    if (c->n_temps == TOW__FUSED_TEMPS) return false;
    w->used[c->n_temps] = true;
    c->sizes[c->n_temps] = (uint8_t)size;
    *number = FIRST_TEMP + c->n_temps++;
    return true;
}

static bool add_result(row_program_state *w, const tow__view *x, uint32_t op, uint8_t *number)
{
    tow__candidate *c = w->c;
    made *value = &w->made[w->n_made];
    value->storage = x->storage;
    value->last_op = op;
    if (is_needed_outside(w, x->storage, &value->last_op)) {
        if (c->n_out == TOW__FUSED_OUT) return false;
        value->number = FIRST_OUT + c->n_out;
        if (!broadcast_over(x, &w->shape, &c->out[c->n_out])) return false;
        c->n_out++;
        value->last_op = TOW__NONE;
    } else if (!add_temp(w, tow_dtype_size(x->type.dtype), &value->number)) {
        return false;
    }
    *number = (uint8_t)value->number;
    w->n_made++;
    return true;
}

/* The product is operand 0 of the program. It needs its own operands as a whole, so none may be made inside. */
static bool add_product(row_program_state *w, uint32_t i)
{
    const tow__instruction *inst = &w->f->body->insts[w->members[i]];
    uint32_t last;
    for (uint32_t j = 0; j < inst->n_in; j++)
        if (find_made(w, inst->in[j].storage)) return false;
    w->c->keeps_product = is_needed_outside(w, inst->out[0].storage, &last);
    w->made[w->n_made++] = (made){inst->out[0].storage, 0, TOW__NONE};
    return true;
}

static bool add_op(row_program_state *w, uint32_t i)
{
    const tow__instruction *inst = &w->f->body->insts[w->members[i]];
    tow__fused_op *op = &w->c->ops[w->c->n_ops++];
    *op = (tow__fused_op){.tile = w->f->tiles[w->members[i]],
                          .params = inst->params,
                          .function = inst->kernel->function,
                          .dtype = inst->out[0].type.dtype,
                          .n_in = (uint8_t)inst->n_in,
                          .n_out = (uint8_t)inst->n_out};
    for (uint32_t j = 0; j < inst->n_in; j++)
        if (!add_operand(w, &inst->in[j], &op->in[j])) return false;
    /* A tile function may write what it reads, but with two results one could meet the operands of the other. */
    if (inst->n_out == 1) release_temps(w, i);
    for (uint32_t j = 0; j < inst->n_out; j++)
        if (!add_result(w, &inst->out[j], i, &op->out[j])) return false;
    release_temps(w, i);
    return true;
}

/* The product is computed in its own storage if that is kept, else in the last result of its type. */
static bool find_accumulator(tow__candidate *c)
{
    if (c->product == TOW__NONE) return true;
    c->accumulator = c->n_out;
    if (c->keeps_product) return c->n_out < TOW__FUSED_OUT;
    while (c->accumulator > 0)
        if (c->out[--c->accumulator].type.dtype == c->in[0].type.dtype) return true;
    return false;
}

bool tow__write_program(const tow__fuse_state *f, const tow__group *a, const tow__group *b, tow_type shape,
                        tow__candidate *c)
{
    row_program_state w = {.f = f, .shape = shape, .c = c};
    uint32_t i = 0, j = 0, n_b = b ? b->n : 0;
    if (a->n + n_b > TOW__FUSED_OPS) return false;
    while (i < a->n || j < n_b)
        w.members[w.n++] = j == n_b || (i < a->n && a->members[i] < b->members[j]) ? a->members[i++] : b->members[j++];
    c->n_in = c->n_out = c->n_temps = c->n_ops = 0;
    c->product = b && b->product != TOW__NONE ? b->product : a->product;
    c->keeps_product = false;
    if (c->product != TOW__NONE) c->in[c->n_in++] = f->body->insts[c->product].out[0];
    for (uint32_t k = 0; k < w.n; k++)
        if (!(w.members[k] == c->product ? add_product(&w, k) : add_op(&w, k))) return false;
    return c->n_out > 0 && find_accumulator(c);
}

/* One number for all elements. */
static bool is_repeated(const tow__view *x)
{
    for (int i = 0; i < x->type.rank; i++)
        if (x->type.dims[i] != 1 && x->strides[i] != 0) return false;
    return true;
}

tow__fused *tow__finish_program(const tow__fuse_state *f, tow__candidate *c)
{
    tow__arena *memory = &f->p->memory;
    tow__fused *program = tow__arena_alloc(memory, 1, sizeof *program);
    if (!program) return NULL;
    uint32_t closed[FIRST_TEMP + TOW__FUSED_TEMPS];
    for (uint32_t i = 0; i < FIRST_TEMP + TOW__FUSED_TEMPS; i++)
        closed[i] = i < FIRST_OUT ? i : i < FIRST_TEMP ? i - FIRST_OUT + c->n_in : i - FIRST_TEMP + c->n_in + c->n_out;
    for (uint32_t i = 0; i < c->n_ops; i++) {
        for (uint32_t j = 0; j < c->ops[i].n_in; j++) c->ops[i].in[j] = (uint8_t)closed[c->ops[i].in[j]];
        for (uint32_t j = 0; j < c->ops[i].n_out; j++) c->ops[i].out[j] = (uint8_t)closed[c->ops[i].out[j]];
    }
    uint32_t first_temp = c->n_in + c->n_out, made_at[TOW__FUSED_OUT] = {0}, last_read[TOW__FUSED_IN] = {0};
    bool repeated[TOW__FUSED_VALUES] = {false};
    for (uint32_t i = 0; i < c->n_in; i++) repeated[i] = is_repeated(&c->in[i]);
    c->n_ops = tow__join_ops(c->ops, c->n_ops, first_temp, repeated);
    for (uint32_t i = 0; i < c->n_ops; i++) {
        const tow__fused_op *op = &c->ops[i];
        for (uint32_t j = 0; j < op->n_in; j++)
            if (op->in[j] < c->n_in) last_read[op->in[j]] = i;
        for (uint32_t j = 0; j < op->n_out; j++)
            if (op->out[j] >= c->n_in && op->out[j] < first_temp) made_at[op->out[j] - c->n_in] = i;
    }
    *program = (tow__fused){.n_ops = c->n_ops, .n_in = c->n_in, .n_out = c->n_out, .n_temps = c->n_temps};
    for (uint32_t i = 0; i < c->n_in; i++) {
        program->sizes[i] = (uint8_t)tow_dtype_size(c->in[i].type.dtype);
        program->single[i] = repeated[i];
    }
    for (uint32_t i = 0; i < c->n_out; i++) {
        program->sizes[c->n_in + i] = (uint8_t)tow_dtype_size(c->out[i].type.dtype);
        for (uint32_t j = 0; j < c->n_in; j++)
            program->read_after_write[i] |= (uint32_t)(last_read[j] > made_at[i]) << j;
    }
    memcpy(program->sizes + c->n_in + c->n_out, c->sizes, c->n_temps);
    program->ops = tow__arena_copy(memory, c->ops, c->n_ops, sizeof *c->ops);
    return program->ops ? program : NULL;
}
