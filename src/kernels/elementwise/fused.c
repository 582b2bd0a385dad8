/* Runs row programs (fused.h) on whole operands.
 *
 * Operands that are contiguous along the last axis, after merging axes that all operands can merge, are used where they
 * lie; elements that repeat are written into a tile, once per row or once at all; everything else is gathered. If the
 * last axis is short, a tile covers several rows, and operands that are not contiguous as a whole are gathered; a row
 * that all rows have in common is written into a tile as often as it fits, once at all. */
#include "src/kernels/elementwise/fused.h"

#include <string.h>

#include "src/kernels/tables.h"

enum {
    STACK = 32 << 10,  /* bytes of all tiles of one thread */
    NEAR = 24 << 10,   /* bytes of tiles that should stay in the nearest cache */
    CROWDED = 8 << 10, /* the same where many arrays stream past, which are fetched early; ops of short tiles overlap */
    FEW = 3,           /* arrays that leave the cache to the tiles: large ones often lie alike, and share few ways */
    LONGEST = 1024,    /* elements of a tile */
    GRAIN = 64,        /* tiles are multiples of this */
    SHORT_ROW = 256,   /* rows shorter than this share tiles, */
    HALF = LONGEST / 2 /* and those up to this where no operand would have to be gathered for that */
};

#define NANOSECONDS 0.1 /* of one operation on one element, about */

/* ---- layout ------------------------------------------------------------------------------------------------------ */

static bool merges(const tow__fused *program, const tow__buffer *const *in, const tow__fused_layout *l, int last,
                   int axis)
{
    for (uint32_t i = 0; i < program->n_in; i++)
        if (l->strides[i][last] != in[i]->strides[axis] * in[i]->dims[axis]) return false;
    return true;
}

static void merge_axes(const tow__fused *program, const tow__buffer *const *in, const tow__buffer *out,
                       tow__fused_layout *l)
{
    int n = 0;
    for (int axis = 0; axis < out->rank; axis++) {
        if (out->dims[axis] == 1) continue;
        bool merged = n > 0 && merges(program, in, l, n - 1, axis);
        if (!merged) l->dims[n++] = 1;
        l->dims[n - 1] *= out->dims[axis];
        for (uint32_t i = 0; i < program->n_in; i++) l->strides[i][n - 1] = in[i]->strides[axis];
    }
    if (n == 0) { /* one element */
        l->dims[n++] = 1;
        for (uint32_t i = 0; i < program->n_in; i++) l->strides[i][0] = 1;
    }
    l->rank = n - 1;
    l->row = l->dims[n - 1];
    l->count = l->row;
    for (int i = 0; i < l->rank; i++) l->count *= l->dims[i];
}

static tow__access access_of(const tow__fused *program, const tow__fused_layout *l, uint32_t operand)
{
    const int64_t *strides = l->strides[operand];
    bool same = true;
    for (int i = 0; i < l->rank; i++) same &= strides[i] == 0;
    if (program->single[operand]) return TOW__SINGLE;
    if (same && strides[l->rank] == 0) return TOW__REPEATED;
    if (l->shared)
        return l->whole[operand] ? TOW__CONTIGUOUS : same && strides[l->rank] == 1 ? TOW__SAME_ROW : TOW__GATHERED;
    return strides[l->rank] == 1 ? TOW__CONTIGUOUS : strides[l->rank] == 0 ? TOW__PER_ROW : TOW__GATHERED;
}

/* Elements of a tile such that all tiles stay in L1; the program's limits keep them on the stack in any case. */
static int64_t tile_length(const tow__fused *program, const tow__fused_layout *l)
{
    int64_t bytes = 1, streams = 0, streamed = 0;
    for (uint32_t i = 0; i < program->n_in; i++) {
        if (l->access[i] == TOW__CONTIGUOUS)
            streams++, streamed += 2 * program->sizes[i]; /* of this tile and of the next */
        else if (l->access[i] != TOW__SINGLE)
            bytes += program->sizes[i];
    }
    for (uint32_t i = 0; i < program->n_out; i++)
        if (program->read_after_write[i]) bytes += program->sizes[program->n_in + i];
    for (uint32_t i = 0; i < program->n_temps; i++) bytes += program->sizes[program->n_in + program->n_out + i];
    const int64_t most = streams > FEW ? CROWDED / (bytes + streamed) : NEAR / bytes;
    return tow__max(GRAIN, tow__min(LONGEST, most / GRAIN * GRAIN));
}
_Static_assert(GRAIN * 8 * TOW__FUSED_VALUES <= STACK && NEAR <= STACK,
               "the shortest tiles of the largest program fit");

/* Tiles of whole rows, if a row fits, for operands that have one row for all. */
static void share_rows(const tow__fused *program, tow__fused_layout *l)
{
    int64_t rows = l->tile / l->row;
    for (uint32_t i = 0; i < program->n_in; i++) {
        if (l->access[i] != TOW__SAME_ROW) continue;
        if (rows > 0)
            l->tile = rows * l->row;
        else
            l->access[i] = TOW__GATHERED;
    }
}

static void cut_tiles(const tow__fused *program, tow__fused_layout *l, bool shared)
{
    l->shared = shared;
    for (uint32_t i = 0; i < program->n_in; i++) l->access[i] = access_of(program, l, i);
    l->room = l->tile = tile_length(program, l);
}

/* True if tiles hold several rows, and all operands are contiguous or have one row or one element for all. */
static bool shares_well(const tow__fused *program, const tow__fused_layout *l)
{
    bool gathers = false;
    for (uint32_t i = 0; i < program->n_in; i++) gathers = gathers || l->access[i] == TOW__GATHERED;
    return !gathers && l->tile >= 2 * l->row;
}

void tow__fused_prepare(const tow__fused *program, const tow__buffer *const *in, const tow__buffer *const *out,
                        tow__fused_layout *l)
{
    merge_axes(program, in, out[0], l);
    for (uint32_t i = 0; i < program->n_in; i++) l->whole[i] = tow__buffer_contiguous(in[i]);
    cut_tiles(program, l, l->rank > 0 && l->row <= HALF);
    if (l->shared && l->row >= SHORT_ROW && !shares_well(program, l)) cut_tiles(program, l, false);
    share_rows(program, l);
}

static bool only_moves(const tow__fused_job *job)
{
    bool moves = true;
    for (uint32_t i = 0; i < job->program->n_in; i++) moves &= job->layout->access[i] != TOW__GATHERED;
    for (uint32_t k = 0; k < job->program->n_out; k++) moves &= !job->staged[k];
    return moves;
}

void tow__fused_begin(tow__fused_job *job, const tow__fused *program, const tow__fused_layout *layout,
                      const tow__buffer *const *in, const tow__buffer *const *out)
{
    job->program = program;
    job->layout = layout;
    for (uint32_t i = 0; i < program->n_in; i++) {
        job->in[i] = in[i]->data;
        if (layout->shared && layout->access[i] == TOW__GATHERED) job->gathered[i] = tow__strided_buffer(in[i]);
    }
    for (uint32_t k = 0; k < program->n_out; k++) {
        job->out[k] = out[k]->data;
        job->staged[k] = false;
        for (uint32_t i = 0; i < program->n_in; i++)
            job->staged[k] |= (program->read_after_write[k] >> i & 1) && job->in[i] == job->out[k];
    }
    job->moves = only_moves(job);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The places of values, and the beginning of the current row in each operand. */
typedef struct cursor {
    const char *in[TOW__FUSED_VALUES]; /* of all values: those made before are read again */
    char *out[TOW__FUSED_VALUES];      /* of results and temporaries */
    char *tiles[TOW__FUSED_VALUES];    /* of values that need one */
    const char *rows[TOW__FUSED_IN];
    int64_t longest;   /* elements that a tile gets at most */
    char *const *room; /* of results that lie elsewhere than in job->out; */
    int64_t origin;    /* the element at its beginning */
    int64_t column;    /* with which the tiles of rows that all have in common begin; -1: they are not written yet */
} cursor;

static void place_tiles(const tow__fused_job *job, cursor *c, char *memory)
{
    const tow__fused *program = job->program;
    const tow__fused_layout *l = job->layout;
    for (uint32_t i = 0; i < program->n_in + program->n_out + program->n_temps; i++) {
        bool needed = i < program->n_in ? l->access[i] != TOW__CONTIGUOUS && l->access[i] != TOW__SINGLE
                      : i < program->n_in + program->n_out ? job->staged[i - program->n_in]
                                                           : true;
        if (!needed) continue;
        c->in[i] = c->out[i] = c->tiles[i] = memory;
        memory += l->room * program->sizes[i];
    }
}

static void fill_repeated(const tow__fused_job *job, cursor *c)
{
    for (uint32_t i = 0; i < job->program->n_in; i++) {
        if (job->layout->access[i] == TOW__SINGLE) c->in[i] = job->in[i];
        if (job->layout->access[i] == TOW__REPEATED)
            tow__copy_run(job->program->sizes[i], c->longest, c->tiles[i], job->in[i], 0);
    }
}

/* Rows that all rows have in common, from `column` on. */
static void fill_rows(const tow__fused_job *job, cursor *c, int64_t column)
{
    const int64_t row = job->layout->row;
    if (c->column == column) return;
    c->column = column;
    for (uint32_t i = 0; i < job->program->n_in; i++) {
        if (job->layout->access[i] != TOW__SAME_ROW) continue;
        const int64_t size = job->program->sizes[i];
        for (int64_t n, at = 0, from = column; at < c->longest; at += n, from = 0) {
            n = tow__min(row - from, c->longest - at);
            memcpy(c->tiles[i] + at * size, job->in[i] + from * size, (size_t)(n * size));
        }
    }
}

static void start_row(const tow__fused_job *job, cursor *c, int64_t row)
{
    const tow__fused_layout *l = job->layout;
    int64_t coordinate[TOW_MAX_RANK], longest = tow__min(c->longest, l->row);
    if (l->rank == 1) {
        coordinate[0] = row;
    } else {
        for (int i = l->rank - 1; i >= 0; i--) {
            coordinate[i] = row % l->dims[i];
            row /= l->dims[i];
        }
    }
    for (uint32_t k = 0; k < job->program->n_in; k++) {
        int64_t offset = 0;
        for (int i = 0; i < l->rank; i++) offset += coordinate[i] * l->strides[k][i];
        c->rows[k] = job->in[k] + offset * job->program->sizes[k];
        if (l->access[k] == TOW__PER_ROW) tow__copy_run(job->program->sizes[k], longest, c->tiles[k], c->rows[k], 0);
    }
}

static void run_ops(const tow__fused *program, int64_t n, const cursor *c)
{
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const tow__fused_op *op = &program->ops[i];
        const void *in[TOW__FUSED_ARITY] = {NULL}; /* some functions have an operand less */
        void *out[TOW__FUSED_RESULTS];
        for (int j = 0; j < op->n_in; j++) in[j] = c->in[op->in[j]];
        for (int j = 0; j < op->n_out; j++) out[j] = c->out[op->out[j]];
        op->tile(n, out, in, op->params);
    }
}

/* Sets the places of results that are written in place, for the tile that begins with element `start`. */
static void place_results(const tow__fused_job *job, cursor *c, int64_t start)
{
    const tow__fused *program = job->program;
    for (uint32_t k = 0; k < program->n_out; k++) {
        const uint32_t value = program->n_in + k;
        if (job->staged[k]) continue;
        char *to = c->room[k] ? c->room[k] + (start - c->origin) * program->sizes[value]
                              : job->out[k] + start * program->sizes[value];
        c->in[value] = c->out[value] = to;
    }
}

static const char *contiguous(const tow__fused_job *job, const cursor *c, uint32_t i, int64_t start, int64_t column)
{
    const int64_t size = job->program->sizes[i];
    return job->layout->shared ? job->in[i] + start * size : c->rows[i] + column * size;
}

/* Elements start .. start + n: of the current row from `column` on, or of the whole if rows share tiles. */
static void run_tile(const tow__fused_job *job, cursor *c, int64_t start, int64_t column, int64_t n)
{
    const tow__fused *program = job->program;
    const tow__fused_layout *l = job->layout;
    for (uint32_t i = 0; i < program->n_in; i++) {
        int64_t size = program->sizes[i], stride = l->strides[i][l->rank];
        if (l->access[i] == TOW__CONTIGUOUS)
            c->in[i] = contiguous(job, c, i, start, column);
        else if (l->access[i] == TOW__GATHERED && l->shared)
            tow__strided_read(&job->gathered[i], start, n, c->tiles[i]);
        else if (l->access[i] == TOW__GATHERED)
            tow__copy_run((size_t)size, n, c->tiles[i], c->rows[i] + column * stride * size, stride);
    }
    place_results(job, c, start);
    run_ops(program, n, c);
    for (uint32_t k = 0; k < program->n_out; k++) {
        size_t size = program->sizes[program->n_in + k];
        if (job->staged[k]) memcpy(job->out[k] + (size_t)start * size, c->tiles[program->n_in + k], (size_t)n * size);
    }
}

/* ---- tiles that only move on ------------------------------------------------------------------------------------- */

/* Of each op, where its results and then its operands are, and how many bytes that moves on with a tile. Short tiles
 * pay if little is to be done between ops: the processor then works on several at once, and divisions of one hide the
 * others. */
enum {
    PLACES = 8,
    FEW_OPS = 16 /* of programs that go this way: threads of callers may have small stacks */
};
_Static_assert(TOW__FUSED_RESULTS + TOW__FUSED_ARITY <= PLACES, "an op has places for all its operands");
typedef struct moving {
    void *at[PLACES * FEW_OPS];
    size_t by[PLACES * FEW_OPS];
} moving;

/* Value v as a place of an op. */
static void place(const tow__fused_job *job, const void *at, uint32_t v, moving *m, uint32_t index)
{
    const tow__fused *program = job->program;
    const bool moves =
        v < program->n_in ? job->layout->access[v] == TOW__CONTIGUOUS : v < program->n_in + program->n_out;
    m->at[index] = (void *)(uintptr_t)at;
    m->by[index] = moves ? (size_t)job->layout->tile * program->sizes[v] : 0;
}

static void place_all(const tow__fused_job *job, cursor *c, int64_t start, int64_t column, moving *m)
{
    const tow__fused *program = job->program;
    for (uint32_t i = 0; i < program->n_in; i++)
        if (job->layout->access[i] == TOW__CONTIGUOUS) c->in[i] = contiguous(job, c, i, start, column);
    place_results(job, c, start);
    memset(m->at, 0, PLACES * program->n_ops * sizeof *m->at); /* some functions have an operand less */
    memset(m->by, 0, PLACES * program->n_ops * sizeof *m->by);
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const tow__fused_op *op = &program->ops[i];
        for (uint32_t j = 0; j < op->n_out; j++) place(job, c->out[op->out[j]], op->out[j], m, PLACES * i + j);
        for (uint32_t j = 0; j < op->n_in; j++)
            place(job, c->in[op->in[j]], op->in[j], m, PLACES * i + TOW__FUSED_RESULTS + j);
    }
}

static void run_moving(const tow__fused_job *job, cursor *c, int64_t start, int64_t column, int64_t n)
{
    const tow__fused_op *ops = job->program->ops;
    const uint32_t n_ops = job->program->n_ops;
    moving m;
    place_all(job, c, start, column, &m);
    for (int64_t length; n > 0; n -= length) {
        length = tow__min(job->layout->tile, n);
        for (uint32_t i = 0; i < n_ops; i++) {
            void *const *places = &m.at[PLACES * i];
            ops[i].tile(length, places, (const void *const *)places + TOW__FUSED_RESULTS, ops[i].params);
        }
        for (uint32_t k = 0; k < PLACES * n_ops; k++) m.at[k] = (void *)((uintptr_t)m.at[k] + m.by[k]);
    }
}

static void run_tiles(const tow__fused_job *job, cursor *c, int64_t start, int64_t column, int64_t n)
{
    if (job->moves && n > job->layout->tile && job->program->n_ops <= FEW_OPS) {
        run_moving(job, c, start, column, n);
        return;
    }
    for (int64_t length, end = start + n; start < end; start += length, column += length) {
        length = tow__min(job->layout->tile, end - start);
        run_tile(job, c, start, column, length);
    }
}

/* Elements start .. end, over as many rows as they touch. */
static void run_stretch(const tow__fused_job *job, cursor *c, int64_t start, int64_t end)
{
    const tow__fused_layout *l = job->layout;
    if (l->shared) {
        fill_rows(job, c, start % l->row);
        run_tiles(job, c, start, 0, end - start);
        return;
    }
    for (int64_t n, row = start / l->row, column = start % l->row; start < end; start += n, row++, column = 0) {
        n = tow__min(end - start, l->row - column);
        start_row(job, c, row);
        run_tiles(job, c, start, column, n);
    }
}

void tow__fused_run(const tow__fused_job *job, int64_t first, int64_t times, int64_t step, int64_t n)
{
    static char *const nowhere[TOW__FUSED_OUT] = {NULL};
    tow__fused_run_into(job, nowhere, first, times, step, n);
}

void tow__fused_run_into(const tow__fused_job *job, char *const *room, int64_t first, int64_t times, int64_t step,
                         int64_t n)
{
    const tow__fused_layout *l = job->layout;
    _Alignas(64) char memory[STACK];
    cursor c;
    if (step == n) { /* whole rows follow each other */
        n *= times;
        times = 1;
    }
    c.longest = tow__min(l->tile, n);
    c.column = -1;
    c.room = room;
    place_tiles(job, &c, memory);
    fill_repeated(job, &c);
    int64_t row = first / l->row, column = first % l->row;
    if (l->shared || step != l->row || column + n > l->row) {
        for (int64_t i = 0; i < times; i++) {
            c.origin = first + i * (step - n);
            run_stretch(job, &c, first + i * step, first + i * step + n);
        }
        return;
    }
    for (int64_t i = 0; i < times; i++) { /* the same columns of rows below each other */
        c.origin = first + i * (step - n);
        start_row(job, &c, row + i);
        run_tiles(job, &c, first + i * step, column, n);
    }
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

static void point_at(const tow__kernel_call *call, const tow__buffer **in, const tow__buffer **out)
{
    for (size_t i = 0; i < call->n_in; i++) in[i] = &call->in[i];
    for (size_t i = 0; i < call->n_out; i++) out[i] = &call->out[i];
}

static void prepare_fused(const tow__kernel_call *call, void *state)
{
    const tow__buffer *in[TOW__FUSED_IN], *out[TOW__FUSED_OUT];
    point_at(call, in, out);
    tow__fused_prepare(call->params, in, out, state);
}

static void fused_block(void *user, int64_t block)
{
    const tow__fused_job *job = user;
    int64_t start = block * TOW__BLOCK;
    tow__fused_run(job, start, 1, 0, tow__min(TOW__BLOCK, job->layout->count - start));
}

static void run_fused(const tow__kernel_call *call)
{
    const tow__buffer *in[TOW__FUSED_IN], *out[TOW__FUSED_OUT];
    const tow__fused *program = call->params;
    const tow__fused_layout *layout = call->state;
    tow__fused_layout own;
    tow__fused_job job;
    point_at(call, in, out);
    if (!layout) tow__fused_prepare(program, in, out, &own);
    tow__fused_begin(&job, program, layout ? layout : &own, in, out);
    double nanoseconds = NANOSECONDS * (double)program->n_ops * (double)job.layout->count;
    tow__team_run(tow__team_for(call->team, nanoseconds), tow__ceil_div(job.layout->count, TOW__BLOCK), fused_block,
                  &job);
}

static const tow__kernel kernels[] = {
    {.primitive = "fused",
     .dtypes = TOW__ALL_DTYPES,
     .run = run_fused,
     .engine = "vector",
     .state_bytes = sizeof(tow__fused_layout),
     .prepare = prepare_fused},
};
const tow__kernel_table tow__kernels_fused = {kernels, sizeof kernels / sizeof kernels[0]};
