/* gather, scatter_add and index_add of rows without gaps, by indices of 4 bytes without gaps; all others are left to
 * the plain twins (reference/move.c), which have the same bits.
 *
 * Rows are anywhere in memory, so those of the next indices are fetched. A row of sums adds in the order of the
 * indices: threads share columns, or rows where those are short, never indices. That order defines the bits.
 *
 * Updates of 16 bits are widened as they are added to sums of f32.
 *
 * Engines. TOW__CLONES compiles the loops once per instruction set, and the loader picks the version. */
#include <string.h>

#include "src/base/params.h"
#include "src/kernels/math.h"
#include "src/kernels/tables.h"

enum {
    AHEAD = 12,            /* indices before it is needed a row is fetched */
    LINE = 64,             /* bytes that are fetched at once */
    MOST_FETCHED = 4,      /* lines of a row; processors fetch what follows by themselves */
    COLUMNS = 64,          /* of sums, that a thread adds at a time */
    LIST = 512,            /* indices that are sorted out at a time */
    RUN = 1024,            /* bytes, at least, of neighboring rows of sums that belong to one thread */
    ZERO_BYTES = 256 << 10 /* that one block writes */
};

/* `table` is read by gather and added to by the others; `rows` are what gather makes and the others add. */
typedef struct index_job {
    const i32 *indices;
    bool is_unsigned;
    int64_t count; /* of indices */
    char *table, *rows;
    int64_t n_rows, step, bytes; /* of the table; bytes from row to row of it, and of a row */
    tow_dtype dtype;
    int64_t per_block;      /* gather: indices */
    int64_t columns, parts; /* scatter: of a row; into which rows are shared, a power of two */
    int shift;              /* 1 << shift neighboring rows belong to one part */
    tow__strided places;    /* scatter: of the rows that are added */
} index_job;

/* The row that an index names; -1: none. Negative ones count from the end. */
TOW__INLINE int64_t row_of(const index_job *job, int64_t i)
{
    int64_t row = job->is_unsigned ? (int64_t)(u32)job->indices[i] : job->indices[i];
    if (row < 0) row += job->n_rows;
    return row >= 0 && row < job->n_rows ? row : -1;
}

TOW__INLINE void fetch_row(const index_job *job, int64_t i)
{
    int64_t row = row_of(job, i);
    if (row < 0) return;
    const char *at = job->table + row * job->step;
    for (int64_t b = 0; b < tow__min(job->bytes, MOST_FETCHED * LINE); b += LINE) __builtin_prefetch(at + b);
}

/* Do the axes from `first` on lie without gaps? */
static bool rows_lie(const tow__buffer *x, int first)
{
    tow__buffer row = *x;
    row.rank = x->rank - first;
    memcpy(row.dims, x->dims + first, (size_t)row.rank * sizeof *row.dims);
    memcpy(row.strides, x->strides + first, (size_t)row.rank * sizeof *row.strides);
    return tow__buffer_contiguous(&row);
}

/* Indices without gaps, of 4 bytes. */
static bool words(const tow__buffer *indices)
{
    return tow__element_bytes(indices->dtype) == sizeof(i32) && tow__buffer_contiguous(indices);
}

static index_job job_of(const tow__buffer *table, const tow__buffer *indices, const void *rows)
{
    index_job job = {.indices = indices->data, .is_unsigned = indices->dtype == TOW_U32, .table = table->data};
    const int64_t size = (int64_t)tow__element_bytes(table->dtype);
    job.count = tow__buffer_count(indices);
    job.rows = (char *)(uintptr_t)rows;
    job.n_rows = table->dims[0];
    job.step = table->strides[0] * size;
    job.columns = 1;
    for (int i = 1; i < table->rank; i++) job.columns *= table->dims[i];
    job.bytes = job.columns * size;
    job.dtype = table->dtype;
    return job;
}

/* ---- gather ------------------------------------------------------------------------------------------------------ */

TOW__CLONES static void gather_rows(const index_job *job, int64_t first, int64_t end)
{
    const int64_t bytes = job->bytes;
    char *to = job->rows + first * bytes;
    for (int64_t i = first; i < end; i++, to += bytes) {
        int64_t row = row_of(job, i), b = 0;
        if (i + AHEAD < end) fetch_row(job, i + AHEAD);
        if (row < 0) {
            tow__fill_missing(job->dtype, job->columns, to);
            continue;
        }
        const char *from = job->table + row * job->step;
        for (; b + LINE <= bytes; b += LINE) memcpy(to + b, from + b, LINE);
        for (; b + 16 <= bytes; b += 16) memcpy(to + b, from + b, 16);
        for (; b + 4 <= bytes; b += 4) memcpy(to + b, from + b, 4);
        for (; b < bytes; b++) to[b] = from[b];
    }
}

static void gather_block(void *user, int64_t block)
{
    const index_job *job = user;
    gather_rows(job, block * job->per_block, tow__min((block + 1) * job->per_block, job->count));
}

static void run_gather(const tow__kernel_call *call)
{
    const tow__buffer *table = &call->in[0], *indices = &call->in[1];
    if (!words(indices) || !rows_lie(table, 1)) {
        tow__kernel_reference("gather", table->dtype)->run(call);
        return;
    }
    index_job job = job_of(table, indices, call->out[0].data);
    if (job.bytes == 0) return;
    job.per_block = tow__max(1, TOW__BLOCK / job.columns);
    tow__team_run(call->team, tow__ceil_div(job.count, job.per_block), gather_block, &job);
}

/* ---- scatter_add, index_add -------------------------------------------------------------------------------------- */

/* The indices in [first, end) whose rows belong to a part: those rows, and where what is added to them lies. Returns
 * how many. */
static int64_t rows_of_part(const index_job *job, int64_t part, int64_t first, int64_t end, int64_t *at, int64_t *rows)
{
    int64_t n = 0;
    for (int64_t i = first; i < end; i++) { /* without a branch that nobody can predict */
        int64_t row = row_of(job, i);
        at[n] = i;
        rows[n] = row;
        n += row >= 0 && (row >> job->shift & (job->parts - 1)) == part;
    }
    for (int64_t i = 0; i < n; i++)
        at[i] = job->places.rank == 1 ? at[i] * job->places.strides[0] : tow__strided_offset(&job->places, at[i]);
    return n;
}

/* Rows of T are added to sums of S. */
#define ADD_ROWS(T, S, wide)                                                                                           \
    TOW__CLONES static void add_rows_##T(const index_job *job, int64_t n, const int64_t *at, const int64_t *rows,      \
                                         int64_t column, int64_t columns)                                              \
    {                                                                                                                  \
        const T *x = (const T *)(const void *)job->rows + column;                                                      \
        S *sums = (S *)(void *)job->table + column;                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T *from = x + at[i];                                                                                 \
            S *to = sums + rows[i] * job->columns;                                                                     \
            if (i + AHEAD < n)                                                                                         \
                for (int64_t c = 0; c < columns; c += LINE / (int64_t)sizeof(S))                                       \
                    __builtin_prefetch(sums + rows[i + AHEAD] * job->columns + c, 1);                                  \
            TOW__VECTORIZE                                                                                             \
            for (int64_t c = 0; c < columns; c++) to[c] += wide(from[c]);                                              \
        }                                                                                                              \
    }
ADD_ROWS(f32, f32, )
ADD_ROWS(f64, f64, )
ADD_ROWS(u32, u32, )
ADD_ROWS(bf16, f32, tow__from_bf16)
ADD_ROWS(f16, f32, tow__from_f16)

static void add_block(void *user, int64_t block)
{
    const index_job *job = user;
    int64_t at[LIST], rows[LIST], part = block % job->parts;
    int64_t column = block / job->parts * COLUMNS, columns = tow__min(COLUMNS, job->columns - column);
    for (int64_t first = 0; first < job->count; first += LIST) {
        if (first % (64 * LIST) == 63 * LIST && tow__cancelled()) return;
        int64_t n = rows_of_part(job, part, first, tow__min(first + LIST, job->count), at, rows);
        switch (job->dtype) {
        case TOW_F32:
            add_rows_f32(job, n, at, rows, column, columns);
            break;
        case TOW_F64:
            add_rows_f64(job, n, at, rows, column, columns);
            break;
        case TOW_BF16:
            add_rows_bf16(job, n, at, rows, column, columns);
            break;
        case TOW_F16:
            add_rows_f16(job, n, at, rows, column, columns);
            break;
        default:
            add_rows_u32(job, n, at, rows, column, columns);
        }
    }
}

/* index_add to operand 0, which is the result. */
static void add_rows(const tow__kernel_call *call)
{
    const tow__buffer *indices = &call->in[1], *updates = &call->in[2];
    if (!words(indices) || !rows_lie(updates, indices->rank)) {
        tow__kernel_reference("index_add", call->out[0].dtype)->run(call);
        return;
    }
    index_job job = job_of(&call->out[0], indices, updates->data);
    job.dtype = updates->dtype;
    job.places = tow__strided_of(updates->data, updates->dtype, indices->rank, updates->dims, updates->strides);
    int64_t blocks = tow__ceil_div(job.columns, COLUMNS);
    for (job.parts = 1; job.parts * blocks < tow__threads(call) && job.parts < 64;) job.parts *= 2;
    while (job.bytes << job.shift < RUN && job.bytes > 0) job.shift++;
    tow__team_run(call->team, blocks * job.parts, add_block, &job);
}

static void zero_block(void *user, int64_t block)
{
    const tow__buffer *out = user;
    size_t bytes = (size_t)tow__buffer_count(out) * tow__element_bytes(out->dtype), first = (size_t)block * ZERO_BYTES;
    memset((char *)out->data + first, 0, bytes - first < ZERO_BYTES ? bytes - first : ZERO_BYTES);
}

static void run_scatter_add(const tow__kernel_call *call)
{
    tow__buffer out = call->out[0], in[] = {out, call->in[0], call->in[1]};
    int64_t bytes = tow__buffer_count(&out) * (int64_t)tow__element_bytes(out.dtype);
    tow__team_run(call->team, tow__ceil_div(bytes, ZERO_BYTES), zero_block, &out);
    tow__kernel_call add = *call;
    add.n_in = 3;
    add.in = in;
    add_rows(&add);
}

static void run_index_add(const tow__kernel_call *call)
{
    tow__strided from = tow__strided_buffer(&call->in[0]), to = tow__strided_buffer(&call->out[0]);
    if (from.data != to.data) tow__strided_store(call->team, &to, &from);
    tow__buffer in[] = {call->out[0], call->in[1], call->in[2]};
    tow__kernel_call add = *call;
    add.in = in;
    add_rows(&add);
}

enum {
    NUMBERS = TOW__WORDS
};
static const tow__kernel kernels[] = {
    {"gather", TOW__MOVED_DTYPES, run_gather, NULL, "vector"},
    {"index_add", NUMBERS, run_index_add, NULL, "vector", .halves = 1 << 2},
    {"scatter_add", NUMBERS, run_scatter_add, NULL, "vector", .halves = 1 << 1},
};
const tow__kernel_table tow__kernels_index = {kernels, sizeof kernels / sizeof kernels[0]};
