/* Kernels that move, select or make elements without arithmetic on them, except that scatter_add adds. Each is written
 * as views: a region of the output or of an operand is an offset and strides, and one routine copies views. */
#include <math.h>
#include <string.h>

#include "src/base/params.h"
#include "src/kernels/halves.h"
#include "src/kernels/math.h"
#include "src/kernels/tables.h"

static char *element(const tow__buffer *b, int64_t offset)
{
    return (char *)b->data + offset * (int64_t)tow__element_bytes(b->dtype);
}

/* ---- copy, iota, random_bits ------------------------------------------------------------------------------------ */

/* Contiguous pieces that follow each other in each row of the output: a copy is one piece of one row. Small ones are
 * moved without further ado, many large rows in blocks. */
enum {
    MOST_PIECES = 8,
    SMALL = 16 << 10, /* bytes: of the output, or of a block */
    LEAST_BLOCKS = 4
};
typedef struct pieces {
    int64_t rows; /* 0: not of this kind */
    int64_t block;
    size_t row, bytes[MOST_PIECES]; /* of the output, of each operand */
} pieces;

/* Pieces along `axis`. */
static void prepare_pieces(const tow__kernel_call *call, int64_t axis, pieces *p)
{
    const tow__buffer *out = &call->out[0];
    size_t size = tow__element_bytes(out->dtype), bytes = (size_t)tow__buffer_count(out) * size;
    *p = (pieces){.rows = 0};
    int64_t rows = 1;
    for (int64_t i = 0; i < axis; i++) rows *= out->dims[i];
    if (call->n_in > MOST_PIECES || rows == 0) return;
    p->row = bytes / (size_t)rows;
    p->block = bytes <= SMALL ? rows : (int64_t)(SMALL / (p->row ? p->row : 1));
    if (bytes > SMALL && (p->block < 1 || rows < LEAST_BLOCKS * p->block)) return;
    for (size_t i = 0; i < call->n_in; i++) {
        if (!tow__buffer_contiguous(&call->in[i])) return;
        p->bytes[i] = (size_t)(tow__buffer_count(&call->in[i]) / rows) * size;
    }
    p->rows = rows;
}

typedef struct pieces_job {
    const tow__kernel_call *call;
    const pieces *p;
} pieces_job;

static void move_block(void *user, int64_t block)
{
    const pieces_job *job = user;
    const pieces *p = job->p;
    int64_t first = block * p->block, limit = tow__min(first + p->block, p->rows);
    char *out = (char *)job->call->out[0].data + (size_t)first * p->row;
    for (int64_t row = first; row < limit; row++)
        for (size_t i = 0; i < job->call->n_in; i++) {
            memcpy(out, (const char *)job->call->in[i].data + (size_t)row * p->bytes[i], p->bytes[i]);
            out += p->bytes[i];
        }
}

static void move_pieces(const tow__kernel_call *call, const pieces *p)
{
    pieces_job job = {call, p};
    tow__team_run(call->team, tow__ceil_div(p->rows, p->block), move_block, &job);
}

static void prepare_copy(const tow__kernel_call *call, void *state)
{
    bool repeats = tow__buffer_count(&call->in[0]) != tow__buffer_count(&call->out[0]);
    if (repeats)
        ((pieces *)state)->rows = 0;
    else
        prepare_pieces(call, 0, state);
}

static void run_copy(const tow__kernel_call *call)
{
    const pieces *p = call->state;
    if (p && p->rows) {
        move_pieces(call, p);
        return;
    }
    tow__strided to = tow__strided_buffer(&call->out[0]), from = tow__strided_repeated(&call->in[0], to.count);
    tow__strided_store(call->team, &to, &from);
}

typedef struct iota_job {
    const tow__buffer *out;
    int64_t count, length, inner; /* of the axis; elements per step of it */
} iota_job;

/* first, first + step, ... */
#define COUNT(T)                                                                                                       \
    static void count_##T(int64_t n, int64_t first, int64_t step, void *out)                                           \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) ((T *)out)[i] = (T)(first + i * step);                                         \
    }
COUNT(f32)
COUNT(f64)
COUNT(u8)
COUNT(u32)
COUNT(u64)
#define COUNT_HALVES(T)                                                                                                \
    static void count_##T(int64_t n, int64_t first, int64_t step, void *out)                                           \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) ((T *)out)[i] = tow__bits_to_##T(tow__odd_of_i64(first + i * step));           \
    }
COUNT_HALVES(bf16)
COUNT_HALVES(f16)

static void count_bool(int64_t n, int64_t first, int64_t step, void *out)
{
    for (int64_t i = 0; i < n; i++) ((b8 *)out)[i] = first + i * step != 0;
}

/* Signed numbers have the bits of unsigned ones. */
static void count(tow_dtype dtype, int64_t n, int64_t first, int64_t step, void *out)
{
    static void (*const counts[TOW_DTYPE_END])(int64_t, int64_t, int64_t, void *) = {
        [TOW_F32] = count_f32, [TOW_F64] = count_f64, [TOW_BF16] = count_bf16, [TOW_F16] = count_f16,
        [TOW_I32] = count_u32, [TOW_U32] = count_u32, [TOW_I8] = count_u8,     [TOW_U8] = count_u8,
        [TOW_I64] = count_u64, [TOW_U64] = count_u64, [TOW_BOOL] = count_bool};
    counts[dtype](n, first, step, out);
}

/* Along the last axis elements count, along others each stays for `inner` elements. */
static void iota_block(void *user, int64_t block)
{
    const iota_job *job = user;
    int64_t end = tow__min((block + 1) * TOW__BLOCK, job->count);
    for (int64_t i = block * TOW__BLOCK, n; i < end; i += n) {
        int64_t value = i / job->inner % job->length, step = job->inner == 1;
        n = tow__min(end - i, step ? job->length - value : job->inner - i % job->inner);
        count(job->out->dtype, n, value, step, element(job->out, i));
    }
}

/* Nobody reads the elements before something else is written. */
static void run_empty(const tow__kernel_call *call) { (void)call; }

static void run_iota(const tow__kernel_call *call)
{
    const tow__buffer *out = &call->out[0];
    int64_t axis = ((const tow__iota_params *)call->params)->axis;
    iota_job job = {.out = out, .count = tow__buffer_count(out), .length = out->dims[axis], .inner = 1};
    for (int i = (int)axis + 1; i < out->rank; i++) job.inner *= out->dims[i];
    tow__team_run(call->team, tow__ceil_div(job.count, TOW__BLOCK), iota_block, &job);
}

typedef struct bits_job {
    u32 key[2], *out;
    int64_t count;
} bits_job;

/* bits[i] = a ^ b with (a, b) = threefry(key; i >> 32, i): JAX's partitionable layout. */
static void bits_block(void *user, int64_t block)
{
    const bits_job *job = user;
    int64_t end = tow__min((block + 1) * TOW__BLOCK, job->count);
    for (int64_t i = block * TOW__BLOCK; i < end; i++) {
        u32 a = (u32)((uint64_t)i >> 32), b = (u32)i;
        tow__threefry2x32(job->key[0], job->key[1], &a, &b);
        job->out[i] = a ^ b;
    }
}

static void run_random_bits(const tow__kernel_call *call)
{
    bits_job job = {.out = call->out[0].data, .count = tow__buffer_count(&call->out[0])};
    tow__strided key = tow__strided_buffer(&call->in[0]);
    tow__strided_read(&key, 0, 2, job.key);
    tow__team_run(call->team, tow__ceil_div(job.count, TOW__BLOCK), bits_block, &job);
}

/* ---- pad, concatenate, dynamic_slice, dynamic_update_slice ------------------------------------------------------ */

/* Operand element i of an axis goes to low + i (1 + interior) where that lies inside the output. */
static void run_pad(const tow__kernel_call *call)
{
    const tow__pad_params *p = call->params;
    const tow__buffer *x = &call->in[0], *out = &call->out[0];
    tow__strided all = tow__strided_buffer(out), value = tow__strided_repeated(&call->in[1], all.count);
    tow__strided_store(call->team, &all, &value);

    int64_t dims[TOW_MAX_RANK], strides[TOW_MAX_RANK], from = 0, to = 0;
    for (int i = 0; i < x->rank; i++) {
        int64_t step = x->dims[i] > 1 ? p->interior.v[i] + 1 : 1, low = p->low.v[i];
        int64_t first = low < 0 ? tow__ceil_div(-low, step) : 0;
        int64_t limit = out->dims[i] - low > 0 ? tow__ceil_div(out->dims[i] - low, step) : 0;
        dims[i] = tow__max(0, tow__min(x->dims[i], limit) - first);
        strides[i] = out->strides[i] * step;
        from += first * x->strides[i];
        to += (low + first * step) * out->strides[i];
    }
    for (int i = 0; i < x->rank; i++)
        if (dims[i] == 0) return; /* nothing of the operand is left; from and to point nowhere */
    tow__strided region = tow__strided_of(element(out, to), out->dtype, x->rank, dims, strides);
    tow__strided source = tow__strided_of(element(x, from), x->dtype, x->rank, dims, x->strides);
    tow__strided_store(call->team, &region, &source);
}

static void prepare_concatenate(const tow__kernel_call *call, void *state)
{
    prepare_pieces(call, ((const tow__axis_params *)call->params)->axis, state);
}

static void run_concatenate(const tow__kernel_call *call)
{
    const tow__buffer *out = &call->out[0];
    const pieces *p = call->state;
    if (p && p->rows) {
        move_pieces(call, p);
        return;
    }
    int64_t axis = ((const tow__axis_params *)call->params)->axis, at = 0;
    for (size_t i = 0; i < call->n_in; i++) {
        const tow__buffer *x = &call->in[i];
        tow__strided region =
            tow__strided_of(element(out, at * out->strides[axis]), out->dtype, out->rank, x->dims, out->strides);
        tow__strided source = tow__strided_buffer(x);
        tow__strided_store(call->team, &region, &source);
        at += x->dims[axis];
    }
}

/* Offset of the window of `sizes` in `whole`, its start clamped so that it lies inside. start: integers, one per
 * axis. */
static int64_t window_offset(const tow__buffer *whole, const int64_t *sizes, const tow__buffer *start)
{
    int64_t offset = 0;
    for (int i = 0; i < whole->rank; i++) {
        int64_t s = tow__load_index(start[i].data, start[i].dtype, 0);
        offset += tow__max(0, tow__min(s, whole->dims[i] - sizes[i])) * whole->strides[i];
    }
    return offset;
}

static void run_dynamic_slice(const tow__kernel_call *call)
{
    const tow__buffer *x = &call->in[0], *out = &call->out[0];
    int64_t offset = window_offset(x, out->dims, call->in + 1);
    tow__strided to = tow__strided_buffer(out),
                 from = tow__strided_of(element(x, offset), x->dtype, x->rank, out->dims, x->strides);
    tow__strided_store(call->team, &to, &from);
}

static void run_dynamic_update_slice(const tow__kernel_call *call)
{
    const tow__buffer *x = &call->in[0], *update = &call->in[1], *out = &call->out[0];
    if (x->data != out->data) run_copy(call);
    int64_t offset = window_offset(out, update->dims, call->in + 2);
    tow__strided to = tow__strided_of(element(out, offset), out->dtype, out->rank, update->dims, out->strides);
    tow__strided from = tow__strided_buffer(update);
    tow__strided_store(call->team, &to, &from);
}

/* ---- gather, scatter_add, index_add ------------------------------------------------------------------------------ */

/* The row that index i names among `rows`: negative ones count from the end; -1 if there is none. */
static int64_t row_index(const tow__strided *indices, tow_dtype dtype, int64_t i, int64_t rows)
{
    int64_t index = tow__load_index(indices->data, dtype, tow__strided_offset(indices, i));
    if (index < 0) index += rows;
    return index >= 0 && index < rows ? index : -1;
}

typedef struct gather_job {
    const tow__buffer *table, *out;
    tow_dtype index_dtype;
    tow__strided indices, row; /* row: row 0 of the table */
    int64_t rows_per_block;
} gather_job;

static void gather_block(void *user, int64_t block)
{
    const gather_job *job = user;
    const tow__buffer *table = job->table;
    int64_t end = tow__min((block + 1) * job->rows_per_block, job->indices.count);
    for (int64_t i = block * job->rows_per_block; i < end; i++) {
        int64_t row = row_index(&job->indices, job->index_dtype, i, table->dims[0]);
        char *to = element(job->out, i * job->row.count);
        tow__strided from = job->row;
        if (row < 0) {
            tow__fill_missing(job->out->dtype, from.count, to);
        } else {
            from.data = element(table, row * table->strides[0]);
            tow__strided_read(&from, 0, from.count, to);
        }
    }
}

static void run_gather(const tow__kernel_call *call)
{
    const tow__buffer *table = &call->in[0];
    gather_job job = {.table = table, .out = &call->out[0], .index_dtype = call->in[1].dtype};
    job.indices = tow__strided_buffer(&call->in[1]);
    job.row = tow__strided_of(table->data, table->dtype, table->rank - 1, table->dims + 1, table->strides + 1);
    if (job.row.count == 0) return;
    job.rows_per_block = tow__max(1, TOW__BLOCK / job.row.count);
    tow__team_run(call->team, tow__ceil_div(job.indices.count, job.rows_per_block), gather_block, &job);
}

enum {
    SCATTER_COLUMNS = 64 /* columns of a row that one block adds, for all indices in order */
};

typedef struct scatter_job {
    const tow__buffer *out;
    tow_dtype index_dtype, dtype; /* of the updates: that of the result, or of 16 bits */
    tow__strided indices, updates;
    int64_t rows, columns;
} scatter_job;

#define ADD_RUN(T)                                                                                                     \
    static void add_run_##T(int64_t n, void *sum, const void *x)                                                       \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) ((T *)sum)[i] = (T)(((T *)sum)[i] + ((const T *)x)[i]);                        \
    }
ADD_RUN(f32)
ADD_RUN(f64)
ADD_RUN(u8)
ADD_RUN(u32)
ADD_RUN(u64)

static void add_run(tow_dtype dtype, int64_t n, void *sum, const void *x)
{
    static void (*const adds[TOW_DTYPE_END])(int64_t, void *, const void *) = {
        [TOW_F32] = add_run_f32, [TOW_F64] = add_run_f64, [TOW_I32] = add_run_u32, [TOW_U32] = add_run_u32,
        [TOW_I8] = add_run_u8,   [TOW_U8] = add_run_u8,   [TOW_I64] = add_run_u64, [TOW_U64] = add_run_u64};
    adds[dtype](n, sum, x);
}

static void scatter_block(void *user, int64_t block)
{
    const scatter_job *job = user;
    uint64_t tile[SCATTER_COLUMNS];
    f32 wide[SCATTER_COLUMNS];
    int64_t first = block * SCATTER_COLUMNS, n = tow__min(SCATTER_COLUMNS, job->columns - first);
    for (int64_t i = 0; i < job->indices.count; i++) {
        int64_t row = row_index(&job->indices, job->index_dtype, i, job->rows);
        if (i % TOW__BLOCK == TOW__BLOCK - 1 && tow__cancelled()) return;
        if (row < 0) continue;
        const void *x = tow__strided_tile(&job->updates, i * job->columns + first, n, tile);
        if (tow__is_half(job->dtype)) {
            tow__widen_run(job->dtype, n, x, 1, wide);
            x = wide;
        }
        add_run(job->out->dtype, n, element(job->out, row * job->columns + first), x);
    }
}

/* Adds to what is in the result. */
static void scatter(const tow__kernel_call *call, const tow__buffer *indices, const tow__buffer *updates)
{
    scatter_job job = {.out = &call->out[0], .index_dtype = indices->dtype, .rows = call->out[0].dims[0], .columns = 1};
    job.indices = tow__strided_buffer(indices);
    job.updates = tow__strided_buffer(updates);
    job.dtype = updates->dtype;
    for (int i = 1; i < job.out->rank; i++) job.columns *= job.out->dims[i];
    tow__team_run(call->team, tow__ceil_div(job.columns, SCATTER_COLUMNS), scatter_block, &job);
}

static void run_scatter_add(const tow__kernel_call *call)
{
    tow__buffer out = call->out[0];
    memset(out.data, 0, (size_t)tow__buffer_count(&out) * tow__element_bytes(out.dtype));
    scatter(call, &call->in[0], &call->in[1]);
}

static void run_index_add(const tow__kernel_call *call)
{
    if (call->in[0].data != call->out[0].data) run_copy(call);
    scatter(call, &call->in[1], &call->in[2]);
}

static const tow__kernel kernels[] = {
    {"concatenate", TOW__MOVED_DTYPES, run_concatenate, NULL, "reference", sizeof(pieces), prepare_concatenate},
    {"copy", TOW__MOVED_DTYPES, run_copy, NULL, "reference", sizeof(pieces), prepare_copy},
    {"dynamic_slice", TOW__MOVED_DTYPES, run_dynamic_slice, NULL, "reference"},
    {"dynamic_update_slice", TOW__MOVED_DTYPES, run_dynamic_update_slice, NULL, "reference"},
    {"gather", TOW__MOVED_DTYPES, run_gather, NULL, "reference"},
    {"index_add", TOW__WIDE_NUMBERS, run_index_add, NULL, "reference", .halves = 1 << 2},
    {"empty", TOW__MOVED_DTYPES, run_empty, NULL, "reference"},
    {"iota", TOW__ALL_DTYPES, run_iota, NULL, "reference"},
    {"pad", TOW__ALL_DTYPES, run_pad, NULL, "reference"},
    {"random_bits", 1 << TOW_U32, run_random_bits, NULL, "reference"},
    {"scatter_add", TOW__WIDE_NUMBERS, run_scatter_add, NULL, "reference", .halves = 1 << 1},
};
const tow__kernel_table tow__reference_move = {kernels, sizeof kernels / sizeof kernels[0]};
