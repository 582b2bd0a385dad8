/* softmax, log_softmax, logsumexp along any axis; softmax cross-entropy and its derivative along the last. A block is a
 * number of rows fixed by the shape.
 *
 * Long contiguous rows are worked on one by one; all others, several at once, as a strip in scratch memory of the
 * thread, so that a vector has one element of each row:
 *
 *   tile [n][width]     element i of row r of the strip at i * width + r
 *
 * Along an axis that is not the last, rows lie side by side already: the operand is read and the result is written as
 * it lies, in pieces of `width` elements, which are a few cache lines each. Other rows are gathered and scattered. */
#include "src/kernels/norms/rows.h"
#include "src/kernels/tables.h"

enum {
    GROUP = 16,               /* a strip has a multiple of so many rows: a vector of f32 */
    WIDEST = 64,              /* and so many at most: in pieces of four lines, memory is read as fast as in order */
    NARROW = 32,              /* rows of a strip whose tile would be larger than NEAR_TILE */
    NEAR_TILE = 256 << 10,    /* bytes: such a tile stays in the second cache */
    LARGEST_TILE = 512 << 10, /* bytes of any tile */
    SHORT = 32,               /* elements, at most, of a row that does not fill vectors by itself */
    BLOCKS = 8,               /* that long rows are cut into, if there are so many groups */
    AHEAD = 16,               /* how many pieces before it is needed one is fetched: it may be on another page */
    LINE = 64,                /* bytes that are fetched at once */
    STREAMS = 8               /* rows gathered or scattered at once: lines of more may share a set of the cache */
};

/* Element i of row r is x[i * x_step + r] and y[i * y_step + r]. The rows are copied into the tile, and x, which is not
 * written, may be there already. Without a tile they are read where they lie, several times. */
typedef struct strip {
    int64_t n, width; /* elements of a row; rows */
    void *x, *tile, *y;
    int64_t x_step, y_step;
} strip;

#define REAL       f32
#define BITS       i32
#define NAME(name) name##_f32
#include "src/kernels/norms/softmax.inc"

#define REAL       f64
#define BITS       int64_t
#define NAME(name) name##_f64
#include "src/kernels/norms/softmax.inc"

/* The same as gather_f32, of 16 bits. */
#define GATHER_HALVES(T)                                                                                               \
    TOW__CLONES static void gather_##T(int64_t n, int64_t width, const void *in, const int64_t *from, int64_t step,    \
                                       void *tile)                                                                     \
    {                                                                                                                  \
        const T *x = in;                                                                                               \
        f32 *to = tile;                                                                                                \
        for (int64_t first = 0; first < width; first += STREAMS)                                                       \
            for (int64_t i = 0; i < n; i++)                                                                            \
                for (int64_t r = first; r < first + STREAMS; r++)                                                      \
                    to[i * width + r] = tow__from_##T(x[from[r] + i * step]);                                          \
    }
GATHER_HALVES(bf16)
GATHER_HALVES(f16)

static int64_t rows_per_block(int64_t length) { return tow__max(1, TOW__BLOCK / tow__max(1, length)); }

/* ---- along any axis --------------------------------------------------------------------------------------------- */

typedef struct axis_functions {
    void (*row)(int64_t n, const void *x, void *y);
    void (*strip)(const strip *s);
    void (*gather)(int64_t n, int64_t width, const void *x, const int64_t *from, int64_t step, void *tile);
    void (*scatter)(int64_t n, int64_t width, const void *tile, void *y, const int64_t *to, int64_t step);
} axis_functions;

typedef struct axis_job {
    const axis_functions *f;
    tow__row_view x, y;
    bool along;               /* rows are contiguous in operand and result */
    bool half;                /* the operand has 16 bits, and is widened into rows and tiles */
    bool strips, tiled;       /* strips are worth it; a tile has room for one */
    int64_t width, per_block; /* rows of a strip at most, and of a block */
    char *scratch;
    size_t scratch_bytes; /* of a thread */
} axis_job;

static int64_t axis_of(const tow__kernel_call *call) { return ((const tow__axis_params *)call->params)->axis; }

static axis_job prepare_axis(const tow__kernel_call *call)
{
    const tow__buffer *x = &call->in[0], *y = &call->out[0];
    axis_job job = {.x = tow__rows_of(x, axis_of(call)), .scratch = call->scratch, .width = GROUP};
    job.y =
        y->rank < x->rank ? (tow__row_view){tow__strided_buffer(y), y->dtype, 1, 1} : tow__rows_of(y, axis_of(call));
    job.half = tow__is_half(x->dtype);
    job.along = tow__rows_contiguous(&job.x) && tow__rows_contiguous(&job.y);
    int64_t n = job.x.length, bytes = n * (int64_t)tow__element_bytes(y->dtype);
    job.per_block = rows_per_block(n);
    job.strips = n > 0 && (n <= SHORT || !job.along);
    if (!job.strips) {
        if (job.half) job.scratch_bytes = tow__row_bytes(n, x->dtype);
        return job;
    }
    job.tiled = NARROW * bytes <= LARGEST_TILE;
    job.width = job.tiled && WIDEST * bytes > NEAR_TILE ? NARROW : WIDEST;
    int64_t rows = job.x.rest.count, least = tow__max(job.per_block, tow__min(job.width, rows / BLOCKS));
    job.per_block = tow__ceil_div(rows, tow__max(1, tow__ceil_div(rows, least))); /* blocks of about the same size */
    job.per_block = tow__max(1, tow__ceil_div(job.per_block, GROUP)) * GROUP;
    job.width = tow__min(job.width, job.per_block);
    job.scratch_bytes = tow__row_bytes(n, x->dtype) * (size_t)(job.tiled ? job.width : 2);
    return job;
}

/* The number of rows from r on that lie side by side; 0: none do. */
static int64_t neighbors(const tow__strided *rest, int64_t r)
{
    int last = rest->rank - 1;
    return last >= 0 && rest->strides[last] == 1 ? rest->dims[last] - r % rest->dims[last] : 0;
}

/* Finds the beginnings of rows r .. r + rows; further ones up to `width` are the last one again. */
static void places_of(const tow__strided *rest, int64_t r, int64_t rows, int64_t width, int64_t *at)
{
    int last = rest->rank - 1;
    for (int64_t i = 0; i < width;) {
        int64_t row = r + tow__min(i, rows - 1), place = tow__strided_offset(rest, row), run = 1;
        if (i + 1 < rows) run = tow__min(rows - i, rest->dims[last] - row % rest->dims[last]);
        for (; run > 0; run--, place += last >= 0 ? rest->strides[last] : 0) at[i++] = place;
    }
}

static void run_row(const axis_job *job, int64_t r, char *buffer)
{
    const tow__row_view *x = &job->x, *y = &job->y;
    const void *from = tow__row(x, r, buffer);
    char *to = y->rest.data + tow__strided_offset(&y->rest, r) * (int64_t)y->rest.size;
    if (tow__rows_contiguous(y)) {
        job->f->row(x->length, from, to);
        return;
    }
    char *row = buffer + tow__row_bytes(x->length, x->dtype);
    job->f->row(x->length, from, row);
    tow__strided result = tow__strided_of(row, y->dtype, 1, &y->length, &(int64_t){1});
    tow__strided place = tow__strided_of(to, y->dtype, 1, &y->length, &y->stride);
    tow__strided_store(NULL, &place, &result);
}

/* Rows that begin at `at` to the tile. */
static void gather(const axis_job *job, int64_t width, const int64_t *at, void *tile)
{
    const tow__row_view *x = &job->x;
    if (x->dtype == TOW_BF16)
        gather_bf16(x->length, width, x->rest.data, at, x->stride, tile);
    else if (x->dtype == TOW_F16)
        gather_f16(x->length, width, x->rest.data, at, x->stride, tile);
    else
        job->f->gather(x->length, width, x->rest.data, at, x->stride, tile);
}

static void run_strip(const axis_job *job, int64_t r, int64_t rows, bool near_x, bool near_y, void *tile)
{
    const tow__row_view *x = &job->x, *y = &job->y;
    int64_t size = (int64_t)y->rest.size, width = tow__max(rows, GROUP), at[WIDEST];
    strip s = {x->length, width, tile, job->tiled ? tile : NULL, tile, width, width};
    if (near_y) {
        s.y = y->rest.data + tow__strided_offset(&y->rest, r) * size;
        s.y_step = y->stride;
    }
    if (near_x) {
        s.x = x->rest.data + tow__strided_offset(&x->rest, r) * size;
        s.x_step = x->stride;
    } else {
        places_of(&x->rest, r, rows, width, at);
        gather(job, width, at, tile);
    }
    job->f->strip(&s);
    if (near_y) return;
    places_of(&y->rest, r, rows, width, at);
    job->f->scatter(y->length, width, tile, y->rest.data, at, y->stride);
}

/* Some rows from r on; returns how many. A strip ends where rows no longer lie side by side, if it has a group then. */
static int64_t run_rows(const axis_job *job, int64_t r, int64_t end, char *buffer)
{
    int64_t rows = tow__min(job->width, end - r);
    int64_t near_x = neighbors(&job->x.rest, r), near_y = neighbors(&job->y.rest, r);
    if (near_x > 0) rows = tow__min(rows, tow__max(GROUP, near_x));
    if (near_y > 0) rows = tow__min(rows, tow__max(GROUP, near_y));
    if (rows > GROUP) rows -= rows % GROUP;
    bool whole = rows >= GROUP, lies_x = whole && near_x >= rows && !job->half, lies_y = whole && near_y >= rows;
    bool together = job->strips && (whole || (job->x.length <= SHORT && !job->along));
    if (together && (job->tiled || (lies_x && lies_y)))
        run_strip(job, r, rows, lies_x, lies_y, buffer);
    else
        for (int64_t i = r; i < r + rows; i++) run_row(job, i, buffer);
    return rows;
}

static void axis_block(void *user, int64_t block)
{
    const axis_job *job = user;
    int64_t r = block * job->per_block, end = tow__min(r + job->per_block, job->x.rest.count);
    char *buffer = tow__scratch_of_thread(job->scratch, job->scratch_bytes);
    while (r < end) r += run_rows(job, r, end, buffer);
}

static size_t scratch_axis(const tow__kernel_call *call)
{
    return (size_t)tow__threads(call) * prepare_axis(call).scratch_bytes;
}

/* functions: for f32 and f64 */
static void run_axis(const tow__kernel_call *call, const axis_functions *functions)
{
    axis_job job = prepare_axis(call);
    job.f = &functions[call->out[0].dtype == TOW_F64];
    tow__team_run(call->team, tow__ceil_div(job.x.rest.count, job.per_block), axis_block, &job);
}

#define FUNCTIONS(name, type)                                                                                          \
    {                                                                                                                  \
        name##_row_##type, name##_strip_##type, gather_##type, scatter_##type                                          \
    }
#define RUN(name)                                                                                                      \
    static void run_##name(const tow__kernel_call *call)                                                               \
    {                                                                                                                  \
        static const axis_functions functions[2] = {FUNCTIONS(name, f32), FUNCTIONS(name, f64)};                       \
        run_axis(call, functions);                                                                                     \
    }
RUN(softmax)
RUN(log_softmax)
RUN(logsumexp)

/* ---- cross-entropy ---------------------------------------------------------------------------------------------- */

typedef struct entropy_job {
    const tow__kernel_call *call;
    tow__row_view logits;
    tow__strided labels, lse, ct; /* one element per row */
    size_t row_bytes;
    bool dense; /* as for an axis; forward */
} entropy_job;

static const void *element(const tow__strided *s, int64_t i)
{
    return s->data + tow__strided_offset(s, i) * (int64_t)s->size;
}

/* Forward, for GROUP short rows: log-sum-exps first. */
static void cross_entropies(const entropy_job *job, int64_t first)
{
    int64_t n = job->logits.length;
    bool single = job->logits.dtype == TOW_F32;
    size_t size = job->logits.rest.size;
    const char *x = job->logits.rest.data + (size_t)(first * n) * size;
    char *loss = (char *)job->call->out[0].data + (size_t)first * size,
         *lse = (char *)job->call->out[1].data + (size_t)first * size;
    _Alignas(64) char tile[SHORT * GROUP * sizeof(f64)];
    strip s = {n, GROUP, tile, tile, lse, GROUP, GROUP};
    int64_t at[GROUP];
    for (int64_t r = 0; r < GROUP; r++) at[r] = r * n;
    (single ? gather_f32 : gather_f64)(n, GROUP, x, at, 1, tile);
    (single ? logsumexp_strip_f32 : logsumexp_strip_f64)(&s);
    for (int64_t r = 0; r < GROUP; r++, x += (size_t)n * size, loss += size, lse += size)
        (single ? label_loss_f32 : label_loss_f64)(n, x, *(const i32 *)element(&job->labels, first + r), lse, loss);
}

static void entropy_block(void *user, int64_t block)
{
    const entropy_job *job = user;
    const tow__kernel_call *call = job->call;
    int64_t n = job->logits.length, per_block = rows_per_block(n);
    int64_t end = tow__min((block + 1) * per_block, job->logits.rest.count), r = block * per_block;
    char *buffer = tow__scratch_of_thread(call->scratch, job->row_bytes), *out = call->out[0].data;
    bool single = call->out[0].dtype == TOW_F32;
    size_t size = tow__element_bytes(call->out[0].dtype);
    f32 room;
    for (; job->dense && r + GROUP <= end; r += GROUP) cross_entropies(job, r);
    for (; r < end; r++) {
        const void *x = tow__row(&job->logits, r, buffer);
        i32 label = *(const i32 *)element(&job->labels, r);
        if (call->n_out == 2) { /* forward: loss, lse */
            char *loss = out + (size_t)r * size, *lse = (char *)call->out[1].data + (size_t)r * size;
            if (single)
                cross_entropy_row_f32(n, x, label, loss, lse);
            else
                cross_entropy_row_f64(n, x, label, loss, lse);
        } else {
            const void *lse = element(&job->lse, r), *ct = tow__element_of(&job->ct, &call->in[3], r, &room);
            char *dx = out + (size_t)(r * n) * size;
            if (single)
                cross_entropy_vjp_row_f32(n, x, label, lse, ct, dx);
            else
                cross_entropy_vjp_row_f64(n, x, label, lse, ct, dx);
        }
    }
}

static void run_cross_entropy(const tow__kernel_call *call)
{
    const tow__buffer *logits = &call->in[0];
    entropy_job job = {
        .call = call, .logits = tow__rows_of(logits, logits->rank - 1), .labels = tow__strided_buffer(&call->in[1])};
    if (call->n_in == 4) {
        job.lse = tow__strided_buffer(&call->in[2]);
        job.ct = tow__strided_buffer(&call->in[3]);
    }
    job.row_bytes = tow__row_bytes(job.logits.length, logits->dtype);
    job.dense = /* short rows of 16 bits are widened one by one */
        call->n_out == 2 && !tow__is_half(logits->dtype) && job.logits.length > 0 && job.logits.length <= SHORT &&
        tow__buffer_contiguous(logits);
    tow__team_run(call->team, tow__ceil_div(job.logits.rest.count, rows_per_block(job.logits.length)), entropy_block,
                  &job);
}

static size_t scratch_cross_entropy(const tow__kernel_call *call)
{
    const tow__buffer *logits = &call->in[0];
    return (size_t)tow__threads(call) * tow__row_bytes(logits->dims[logits->rank - 1], logits->dtype);
}

enum { /* operands that may have 16 bits */
    X = 1 << 0,
    CT = 1 << 3
};
static const tow__kernel kernels[] = {
    {"log_softmax", TOW__WIDE_FLOATS, run_log_softmax, scratch_axis, "vector", .halves = X},
    {"logsumexp", TOW__WIDE_FLOATS, run_logsumexp, scratch_axis, "vector", .halves = X},
    {"softmax", TOW__WIDE_FLOATS, run_softmax, scratch_axis, "vector", .halves = X},
    {"softmax_cross_entropy", TOW__WIDE_FLOATS, run_cross_entropy, scratch_cross_entropy, "vector", .halves = X},
    {"softmax_cross_entropy_vjp", TOW__WIDE_FLOATS, run_cross_entropy, scratch_cross_entropy, "vector",
     .halves = X | CT},
};
const tow__kernel_table tow__kernels_softmax = {kernels, sizeof kernels / sizeof kernels[0]};
