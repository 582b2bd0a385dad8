/* layer_norm and rms_norm over the last axis, and their derivatives (src/ops/norms/norm.c has the formulas).
 *
 * scratch:  | scale | bias |  x and ct row of every thread  |  parts: dscale, dbias of every block |
 *
 * Gradients of scale and bias are sums over rows: every block of rows, fixed by the shape, adds up its own part, and
 * the parts are added in order. */
#include "src/kernels/norms/rows.h"
#include "src/kernels/tables.h"

enum {
    PART_ROWS = 32,
    PARTS = 64
}; /* a part covers at least so many rows; about so many parts at most */

typedef struct norm_job {
    bool centered, sums;
    double epsilon;
    int64_t n, rows, per_block;
    tow__row_view x, ct;
    tow__strided mean, rstd;
    void *y, *mean_out, *rstd_out; /* y: the result, or dx, or NULL */
    char *shared, *private, *parts;
    size_t row_bytes;
} norm_job;

#define REAL       f32
#define NAME(name) name##_f32
#include "src/kernels/norms/norm.inc"

#define REAL       f64
#define NAME(name) name##_f64
#include "src/kernels/norms/norm.inc"

static int64_t rows_per_part(int64_t rows) { return tow__max(PART_ROWS, tow__ceil_div(rows, PARTS)); }

/* x is operand 0, scale operand 1 */
static norm_job begin(const tow__kernel_call *call)
{
    const tow__buffer *x = &call->in[0];
    norm_job job = {.x = tow__rows_of(x, x->rank - 1)};
    job.n = job.x.length;
    job.rows = job.x.rest.count;
    job.row_bytes = tow__row_bytes(job.n, x->dtype);
    job.shared = call->scratch;
    job.private = job.shared + 2 * job.row_bytes;
    job.parts = job.private + (size_t)tow__threads(call) * 2 * job.row_bytes;
    return job;
}

static void read_weights(norm_job *job, const tow__buffer *weights, int slot)
{
    const tow__row_view row = tow__rows_of(weights, 0);
    char *to = job->shared + (size_t)slot * job->row_bytes;
    const void *from = tow__row(&row, 0, to);
    if (from != to) memcpy(to, from, (size_t)job->n * tow__element_bytes(weights->dtype));
}

static void run_norm(const tow__kernel_call *call)
{
    norm_job job = begin(call);
    job.centered = call->n_in == 3;
    job.epsilon = ((const tow__norm_params *)call->params)->epsilon;
    job.per_block = tow__max(1, TOW__BLOCK / tow__max(1, job.n));
    job.y = call->out[0].data;
    job.mean_out = job.centered ? call->out[1].data : NULL;
    job.rstd_out = call->out[job.centered ? 2 : 1].data;
    read_weights(&job, &call->in[1], 0);
    if (job.centered) read_weights(&job, &call->in[2], 1);
    tow__team_run(call->team, tow__ceil_div(job.rows, job.per_block),
                  call->out[0].dtype == TOW_F64 ? norm_block_f64 : norm_block_f32, &job);
}

static size_t scratch_norm(const tow__kernel_call *call)
{
    const tow__buffer *x = &call->in[0];
    return (2 + 2 * (size_t)tow__threads(call)) * tow__row_bytes(x->dims[x->rank - 1], x->dtype);
}

static void add_parts(const tow__kernel_call *call, const norm_job *job, int64_t parts, int which, void *out)
{
    const bool wide = call->out[0].dtype == TOW_F64;
    int64_t step = 2 * (int64_t)(job->row_bytes / tow__element_bytes(call->out[0].dtype));
    const char *from = job->parts + (size_t)which * job->row_bytes;
    (wide ? add_parts_f64 : add_parts_f32)(job->n, parts, step, from, out);
}

/* (x, scale [, mean], rstd, ct) -> those of dx, dscale, dbias that wrt names */
static void run_norm_vjp(const tow__kernel_call *call)
{
    norm_job job = begin(call);
    int64_t wrt = ((const tow__norm_ad_params *)call->params)->wrt;
    size_t next = 0;
    job.centered = call->n_in == 5;
    if (job.centered) job.mean = tow__strided_buffer(&call->in[2]);
    job.rstd = tow__strided_buffer(&call->in[call->n_in - 2]);
    job.ct = tow__rows_of(&call->in[call->n_in - 1], call->in[0].rank - 1);
    job.per_block = rows_per_part(job.rows);
    job.sums = (wrt & ~1) != 0;
    job.y = wrt & 1 ? call->out[next++].data : NULL;
    read_weights(&job, &call->in[1], 0);
    int64_t parts = tow__ceil_div(job.rows, job.per_block);
    tow__team_run(call->team, parts, call->out[0].dtype == TOW_F64 ? norm_vjp_block_f64 : norm_vjp_block_f32, &job);
    if (wrt & 2) add_parts(call, &job, parts, 0, call->out[next++].data);
    if (wrt & 4) add_parts(call, &job, parts, 1, call->out[next].data);
}

static size_t scratch_norm_vjp(const tow__kernel_call *call)
{
    const tow__buffer *x = &call->in[0];
    tow__row_view rows = tow__rows_of(x, x->rank - 1);
    int64_t parts = tow__ceil_div(rows.rest.count, rows_per_part(rows.rest.count));
    return scratch_norm(call) + (size_t)parts * 2 * tow__row_bytes(rows.length, x->dtype);
}

enum { /* operands that may have 16 bits */
    X = 1 << 0,
    SCALE = 1 << 1,
    BIAS = 1 << 2,
    CT = 1 << 3,
    CENTERED_CT = 1 << 4
};
static const tow__kernel kernels[] = {
    {"layer_norm", TOW__WIDE_FLOATS, run_norm, scratch_norm, "vector", .halves = X | SCALE | BIAS},
    {"layer_norm_vjp", TOW__WIDE_FLOATS, run_norm_vjp, scratch_norm_vjp, "vector", .halves = X | SCALE | CENTERED_CT},
    {"rms_norm", TOW__WIDE_FLOATS, run_norm, scratch_norm, "vector", .halves = X | SCALE},
    {"rms_norm_vjp", TOW__WIDE_FLOATS, run_norm_vjp, scratch_norm_vjp, "vector", .halves = X | SCALE | CT},
};
const tow__kernel_table tow__kernels_norm = {kernels, sizeof kernels / sizeof kernels[0]};
