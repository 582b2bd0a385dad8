/* softmax, log_softmax, logsumexp along any axis; softmax cross-entropy and its derivative along the last. A block is a
 * number of rows fixed by their length. Rows that are not contiguous pass through scratch memory of the thread. */
#include "src/kernels/rows.h"
#include "src/kernels/tables.h"

enum {
    TOGETHER = 16, /* short rows that are worked on at once: a vector of f32, which one of them would not fill */
    SHORT = 32     /* elements of such a row at most */
};

#define REAL       f32
#define BITS       i32
#define NAME(name) name##_f32
#include "src/kernels/softmax.inc"
#undef REAL
#undef BITS
#undef NAME

#define REAL       f64
#define BITS       int64_t
#define NAME(name) name##_f64
#include "src/kernels/softmax.inc"
#undef REAL
#undef BITS
#undef NAME

static int64_t rows_per_block(int64_t length) { return tow__max(1, TOW__BLOCK / tow__max(1, length)); }

/* ---- along any axis --------------------------------------------------------------------------------------------- */

typedef struct axis_job {
    tow__rows x;
    void (*row)(int64_t n, const void *x, void *y), (*rows)(int64_t n, const void *x, void *y); /* one, TOGETHER */
    char *out, *scratch;
    int64_t inner; /* elements between neighbours of a row of the output */
    size_t row_bytes;
    bool scalar; /* a row gives one element */
    bool dense;  /* rows are short and lie one behind the other */
} axis_job;

static void scatter(const axis_job *job, void *row, int64_t r)
{
    int64_t outer = r / job->inner, i = r % job->inner, size = (int64_t)job->x.rest.size;
    tow__strided to = tow__strided_of(job->out + (outer * job->x.length * job->inner + i) * size, job->x.dtype, 1,
                                      &job->x.length, &job->inner);
    tow__strided from = tow__strided_of(row, job->x.dtype, 1, &job->x.length, &(int64_t){1});
    tow__strided_store(NULL, &to, &from);
}

static void axis_block(void *user, int64_t block)
{
    const axis_job *job = user;
    int64_t n = job->x.length, per_block = rows_per_block(n);
    int64_t end = tow__min((block + 1) * per_block, job->x.rest.count);
    char *buffer = job->scratch + (size_t)tow__team_thread() * 2 * job->row_bytes;
    int64_t r = block * per_block;
    for (; job->dense && r + TOGETHER <= end; r += TOGETHER) {
        size_t size = job->x.rest.size, step = (job->scalar ? 1 : (size_t)n) * size;
        job->rows(n, job->x.rest.data + (size_t)(r * n) * size, job->out + (size_t)r * step);
    }
    for (; r < end; r++) {
        const void *x = tow__row(&job->x, r, buffer);
        bool direct = job->scalar || job->inner == 1;
        size_t step = (job->scalar ? 1 : (size_t)n) * job->x.rest.size;
        char *y = direct ? job->out + (size_t)r * step : buffer + job->row_bytes;
        job->row(n, x, y);
        if (!direct) scatter(job, y, r);
    }
}

static int64_t axis_of(const tow__kernel_call *call) { return ((const tow__axis_params *)call->params)->axis; }

static size_t scratch_axis(const tow__kernel_call *call)
{
    return (size_t)tow__threads(call) * 2 * tow__row_bytes(call->in[0].dims[axis_of(call)], call->in[0].dtype);
}

/* One operand and one result, both [length of the axis] or a scalar, for single rows and for several. */
typedef struct axis_kernel {
    void (*f32_row)(int64_t n, const void *x, void *y), (*f64_row)(int64_t n, const void *x, void *y);
    void (*f32_rows)(int64_t n, const void *x, void *y), (*f64_rows)(int64_t n, const void *x, void *y);
    bool scalar;
} axis_kernel;

static void run_axis(const tow__kernel_call *call, const axis_kernel *k)
{
    const tow__buffer *x = &call->in[0];
    int64_t axis = axis_of(call);
    axis_job job = {.x = tow__rows_of(x, axis),
                    .out = call->out[0].data,
                    .scratch = call->scratch,
                    .inner = 1,
                    .scalar = k->scalar};
    job.row = x->dtype == TOW_F32 ? k->f32_row : k->f64_row;
    job.rows = x->dtype == TOW_F32 ? k->f32_rows : k->f64_rows;
    for (int i = (int)axis + 1; i < x->rank; i++) job.inner *= x->dims[i];
    job.dense = job.inner == 1 && job.x.length > 0 && job.x.length <= SHORT && tow__buffer_contiguous(x);
    job.row_bytes = tow__row_bytes(job.x.length, x->dtype);
    tow__team_run(call->team, tow__ceil_div(job.x.rest.count, rows_per_block(job.x.length)), axis_block, &job);
}

#define RUN(name, scalar)                                                                                              \
    static void run_##name(const tow__kernel_call *call)                                                               \
    {                                                                                                                  \
        static const axis_kernel kernel = {name##_row_f32, name##_row_f64, name##_block_f32, name##_block_f64,         \
                                           scalar};                                                                    \
        run_axis(call, &kernel);                                                                                       \
    }
RUN(softmax, false)
RUN(log_softmax, false)
RUN(logsumexp, true)

/* ---- cross-entropy ---------------------------------------------------------------------------------------------- */

typedef struct entropy_job {
    const tow__kernel_call *call;
    tow__rows logits;
    tow__strided labels, lse, ct; /* one element per row */
    size_t row_bytes;
    bool dense; /* as for an axis; forward */
} entropy_job;

static const void *element(const tow__strided *s, int64_t i)
{
    return s->data + tow__strided_offset(s, i) * (int64_t)s->size;
}

/* Forward, for TOGETHER short rows: log-sum-exps first. */
static void cross_entropies(const entropy_job *job, int64_t first)
{
    int64_t n = job->logits.length;
    bool single = job->logits.dtype == TOW_F32;
    size_t size = job->logits.rest.size;
    const char *x = job->logits.rest.data + (size_t)(first * n) * size;
    char *loss = (char *)job->call->out[0].data + (size_t)first * size,
         *lse = (char *)job->call->out[1].data + (size_t)first * size;
    (single ? logsumexp_block_f32 : logsumexp_block_f64)(n, x, lse);
    for (int64_t r = 0; r < TOGETHER; r++, x += (size_t)n * size, loss += size, lse += size)
        (single ? label_loss_f32 : label_loss_f64)(n, x, *(const i32 *)element(&job->labels, first + r), lse, loss);
}

static void entropy_block(void *user, int64_t block)
{
    const entropy_job *job = user;
    const tow__kernel_call *call = job->call;
    int64_t n = job->logits.length, per_block = rows_per_block(n);
    int64_t end = tow__min((block + 1) * per_block, job->logits.rest.count), r = block * per_block;
    char *buffer = (char *)call->scratch + (size_t)tow__team_thread() * job->row_bytes, *out = call->out[0].data;
    bool single = job->logits.dtype == TOW_F32;
    size_t size = job->logits.rest.size;
    for (; job->dense && r + TOGETHER <= end; r += TOGETHER) cross_entropies(job, r);
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
            const void *lse = element(&job->lse, r), *ct = element(&job->ct, r);
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
    job.dense =
        call->n_out == 2 && job.logits.length > 0 && job.logits.length <= SHORT && tow__buffer_contiguous(logits);
    tow__team_run(call->team, tow__ceil_div(job.logits.rest.count, rows_per_block(job.logits.length)), entropy_block,
                  &job);
}

static size_t scratch_cross_entropy(const tow__kernel_call *call)
{
    const tow__buffer *logits = &call->in[0];
    return (size_t)tow__threads(call) * tow__row_bytes(logits->dims[logits->rank - 1], logits->dtype);
}

static const tow__kernel kernels[] = {
    {"log_softmax", TOW__FLOATS, 0, run_log_softmax, scratch_axis, "vector"},
    {"logsumexp", TOW__FLOATS, 0, run_logsumexp, scratch_axis, "vector"},
    {"softmax", TOW__FLOATS, 0, run_softmax, scratch_axis, "vector"},
    {"softmax_cross_entropy", TOW__FLOATS, 0, run_cross_entropy, scratch_cross_entropy, "vector"},
    {"softmax_cross_entropy_vjp", TOW__FLOATS, 0, run_cross_entropy, scratch_cross_entropy, "vector"},
};
const tow__kernel_table tow__kernels_softmax = {kernels, sizeof kernels / sizeof kernels[0]};
