/* Runs row programs (fused.h) on whole operands.
 *
 * Operands that are contiguous along the last axis, after merging axes that all operands can merge, are used where they
 * lie; elements that repeat are written into a tile, once per row or once at all; everything else is gathered. If the
 * last axis is short, a tile covers several rows, and operands that are not contiguous as a whole are gathered. */
#include "src/kernels/fused.h"

#include <string.h>

#include "src/kernels/tables.h"

enum {
    STACK = 64 << 10, /* bytes of all tiles of one thread */
    NEAR = 24 << 10,  /* bytes of tiles that should stay in the nearest cache */
    LONGEST = 1024,   /* elements of a tile */
    GRAIN = 64,       /* tiles are multiples of this */
    SHORT_ROW = 256   /* rows shorter than this share tiles */
};

typedef enum access {
    IN_PLACE, /* contiguous along rows */
    REPEATED, /* one element for all rows */
    PER_ROW,  /* one element per row */
    GATHERED
} access;

/* What follows from shapes and strides alone. Axes: those of the results, merged where all operands allow it. */
typedef struct layout {
    int64_t count, row, tile; /* elements in all; of the last merged axis; of one tile */
    bool shared;              /* rows share tiles: operands are read as a whole */
    int rank;                 /* of the axes before the last */
    int64_t dims[TOW_MAX_RANK];
    access access[TOW__FUSED_IN];
    int64_t strides[TOW__FUSED_IN][TOW_MAX_RANK]; /* the last axis at [rank] */
} layout;

typedef struct fused_job {
    const tow__fused *program;
    const tow__kernel_call *call;
    layout layout;
    bool staged[TOW__FUSED_OUT]; /* results that take the memory of operands that are still to be read */
    tow__strided gathered[TOW__FUSED_IN];
} fused_job;

void tow__fused_run_ops(const tow__fused *program, int64_t n, char *const *at)
{
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const tow__fused_op *op = &program->ops[i];
        const void *in[TOW__FUSED_ARITY] = {NULL}; /* some functions have an operand less */
        void *out[TOW__FUSED_RESULTS];
        for (int j = 0; j < op->n_in; j++) in[j] = at[op->in[j]];
        for (int j = 0; j < op->n_out; j++) out[j] = at[op->out[j]];
        op->tile(n, out, in, op->params);
    }
}

/* ---- layout ------------------------------------------------------------------------------------------------------- */

static bool merges(const tow__kernel_call *call, const layout *l, int last, int axis)
{
    for (size_t i = 0; i < call->n_in; i++)
        if (l->strides[i][last] != call->in[i].strides[axis] * call->in[i].dims[axis]) return false;
    return true;
}

static void merge_axes(const tow__kernel_call *call, layout *l)
{
    const tow__buffer *out = &call->out[0];
    int n = 0;
    for (int axis = 0; axis < out->rank; axis++) {
        if (out->dims[axis] == 1) continue;
        bool merged = n > 0 && merges(call, l, n - 1, axis);
        if (!merged) l->dims[n++] = 1;
        l->dims[n - 1] *= out->dims[axis];
        for (size_t i = 0; i < call->n_in; i++) l->strides[i][n - 1] = call->in[i].strides[axis];
    }
    if (n == 0) { /* one element */
        l->dims[n++] = 1;
        for (size_t i = 0; i < call->n_in; i++) l->strides[i][0] = 1;
    }
    l->rank = n - 1;
    l->row = l->dims[n - 1];
    l->count = l->row;
    for (int i = 0; i < l->rank; i++) l->count *= l->dims[i];
}

static access access_of(const layout *l, size_t operand)
{
    const int64_t *strides = l->strides[operand];
    int64_t step = l->row;
    bool whole = strides[l->rank] == 1, constant = strides[l->rank] == 0;
    for (int i = l->rank - 1; i >= 0; i--) {
        whole &= strides[i] == step;
        constant &= strides[i] == 0;
        step *= l->dims[i];
    }
    if (constant) return REPEATED;
    if (l->shared) return whole ? IN_PLACE : GATHERED;
    return strides[l->rank] == 1 ? IN_PLACE : strides[l->rank] == 0 ? PER_ROW : GATHERED;
}

/* Elements of a tile such that all tiles stay near; the program's limits keep them on the stack in any case. */
static int64_t tile_length(const tow__fused *program, const layout *l)
{
    int64_t bytes = 1;
    for (uint32_t i = 0; i < program->n_in; i++)
        if (l->access[i] != IN_PLACE) bytes += program->sizes[i];
    for (uint32_t i = 0; i < program->n_out; i++)
        if (program->late[i]) bytes += program->sizes[program->n_in + i];
    for (uint32_t i = 0; i < program->n_temps; i++) bytes += program->sizes[program->n_in + program->n_out + i];
    return tow__max(2 * GRAIN, tow__min(LONGEST, NEAR / bytes / GRAIN * GRAIN));
}
_Static_assert(2 * GRAIN * 8 * TOW__FUSED_VALUES <= STACK, "the shortest tiles of the largest program fit");

static void lay_out(const tow__kernel_call *call, layout *l)
{
    const tow__fused *program = call->params;
    merge_axes(call, l);
    l->shared = l->rank > 0 && l->row < SHORT_ROW;
    for (size_t i = 0; i < call->n_in; i++) l->access[i] = access_of(l, i);
    l->tile = tile_length(program, l);
}

/* ---- running ------------------------------------------------------------------------------------------------------- */

/* State of one block: where values are, and where the current row begins in each operand. */
typedef struct cursor {
    char *at[TOW__FUSED_VALUES];
    char *tiles[TOW__FUSED_VALUES]; /* of values that need one */
    const char *rows[TOW__FUSED_IN];
} cursor;

static void place_tiles(const fused_job *job, cursor *c, char *memory)
{
    const tow__fused *program = job->program;
    const layout *l = &job->layout;
    for (uint32_t i = 0; i < program->n_in + program->n_out + program->n_temps; i++) {
        bool needed = i < program->n_in                    ? l->access[i] != IN_PLACE
                      : i < program->n_in + program->n_out ? job->staged[i - program->n_in]
                                                           : true;
        if (!needed) continue;
        c->at[i] = c->tiles[i] = memory;
        memory += l->tile * program->sizes[i];
    }
}

static void fill(const fused_job *job, cursor *c, access which, int64_t n)
{
    const tow__fused *program = job->program;
    for (uint32_t i = 0; i < program->n_in; i++)
        if (job->layout.access[i] == which)
            tow__copy_run(program->sizes[i], n, c->tiles[i], which == REPEATED ? job->call->in[i].data : c->rows[i], 0);
}

static void start_row(const fused_job *job, cursor *c, int64_t row)
{
    const layout *l = &job->layout;
    int64_t coordinate[TOW_MAX_RANK];
    for (int i = l->rank - 1; i >= 0; i--) {
        coordinate[i] = row % l->dims[i];
        row /= l->dims[i];
    }
    for (uint32_t k = 0; k < job->program->n_in; k++) {
        int64_t offset = 0;
        for (int i = 0; i < l->rank; i++) offset += coordinate[i] * l->strides[k][i];
        c->rows[k] = (const char *)job->call->in[k].data + offset * job->program->sizes[k];
    }
    fill(job, c, PER_ROW, tow__min(l->tile, l->row));
}

/* Elements start .. start + n: of row `column` elements on, or of the whole if rows share tiles. */
static void run_tile(const fused_job *job, cursor *c, int64_t start, int64_t column, int64_t n)
{
    const tow__fused *program = job->program;
    const layout *l = &job->layout;
    for (uint32_t i = 0; i < program->n_in; i++) {
        int64_t size = program->sizes[i], stride = l->strides[i][l->rank];
        union {
            const char *constant;
            char *data;
        } row = {l->shared ? job->call->in[i].data : c->rows[i]};
        if (l->access[i] == IN_PLACE)
            c->at[i] = row.data + (l->shared ? start : column) * size;
        else if (l->access[i] == GATHERED && l->shared)
            tow__strided_read(&job->gathered[i], start, n, c->tiles[i]);
        else if (l->access[i] == GATHERED)
            tow__copy_run((size_t)size, n, c->tiles[i], row.data + column * stride * size, stride);
    }
    for (uint32_t k = 0; k < program->n_out; k++)
        if (!job->staged[k])
            c->at[program->n_in + k] = (char *)job->call->out[k].data + start * program->sizes[program->n_in + k];
    tow__fused_run_ops(program, n, c->at);
    for (uint32_t k = 0; k < program->n_out; k++) {
        size_t size = program->sizes[program->n_in + k];
        if (job->staged[k])
            memcpy((char *)job->call->out[k].data + (size_t)start * size, c->tiles[program->n_in + k],
                   (size_t)n * size);
    }
}

static void fused_block(void *user, int64_t block)
{
    const fused_job *job = user;
    const layout *l = &job->layout;
    _Alignas(64) char memory[STACK];
    cursor c;
    int64_t start = block * TOW__BLOCK, end = tow__min(start + TOW__BLOCK, l->count);
    place_tiles(job, &c, memory);
    fill(job, &c, REPEATED, tow__min(l->tile, end - start));
    if (l->shared) {
        for (int64_t n; start < end; start += n) {
            n = tow__min(l->tile, end - start);
            run_tile(job, &c, start, 0, n);
        }
        return;
    }
    while (start < end) {
        int64_t column = start % l->row, stop = tow__min(end, start - column + l->row);
        start_row(job, &c, start / l->row);
        for (int64_t n; start < stop; start += n, column += n) {
            n = tow__min(l->tile, stop - start);
            run_tile(job, &c, start, column, n);
        }
    }
}

static void run_fused(const tow__kernel_call *call)
{
    fused_job job;
    job.program = call->params;
    job.call = call;
    lay_out(call, &job.layout);
    for (size_t k = 0; k < call->n_out; k++) {
        job.staged[k] = false;
        for (size_t i = 0; job.program->late[k] && i < call->n_in; i++)
            job.staged[k] |= call->in[i].data == call->out[k].data;
    }
    if (job.layout.shared)
        for (size_t i = 0; i < call->n_in; i++)
            if (job.layout.access[i] == GATHERED) job.gathered[i] = tow__strided_buffer(&call->in[i]);
    tow__team_run(call->team, tow__ceil_div(job.layout.count, TOW__BLOCK), fused_block, &job);
}

static const tow__kernel kernels[] = {
    {.primitive = "fused",
     .dtypes = TOW__ALL_DTYPES,
     .flags = TOW__IN_PLACE | TOW__IN_PLACE_EACH,
     .run = run_fused,
     .engine = "vector"},
};
const tow__kernel_table tow__kernels_fused = {kernels, 1};
