/* Products of groups of rows (src/ops/products/ragged_dot.c) as matrix products, one for each group.
 *
 * Work is cut into blocks of rows of the result: of x in ragged_dot, of a group's matrix in ragged_dot_contract. The
 * engine cuts, so blocks and threads change no bits. Operands whose strides are not those of a plain matrix (gemm.h)
 * are copied into scratch memory first:
 *
 *   scratch [copy of x] [copy of y] [what the engine wants for each thread] */
#include "src/kernels/products/gemm_own.h"

#include <string.h>

#include "src/kernels/tables.h"

enum {
    ROWS = 128, /* of a block */
    ALIGNED = 64
};

typedef struct ragged_job {
    const tow__kernel_call *call;
    tow__gemm product; /* type, n, choice; the rest by block */
    const tow__gemm_engine *engine;
    const char *x, *y;
    int64_t x_strides[2], y_strides[3]; /* elements */
    int64_t blocks;                     /* of a group, in ragged_dot_contract */
    size_t size, engine_bytes;
    char *scratch; /* of the engine */
    bool adds;     /* to what the result holds already */
} ragged_job;

static size_t aligned(size_t bytes) { return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED; }

/* The last two axes are a matrix that products take as it is, and no axis repeats. */
static bool is_plain(const tow__buffer *x)
{
    const int r = x->rank;
    return (r == 2 || x->dims[0] <= 1 || x->strides[0] > 0) &&
           tow__gemm_plain(x->dims[r - 2], x->dims[r - 1], x->strides[r - 2], x->strides[r - 1]);
}

static int64_t elements(const tow__buffer *x)
{
    int64_t count = 1;
    for (int d = 0; d < x->rank; d++) count *= x->dims[d];
    return count;
}

static size_t copy_bytes(const tow__buffer *x)
{
    return is_plain(x) ? 0 : aligned((size_t)elements(x) * tow__element_bytes(x->dtype));
}

/* The elements and strides of an operand, copied to *scratch, which moves on, if it is not plain. */
static const char *operand(const tow__buffer *x, char **scratch, int64_t *strides)
{
    if (is_plain(x)) {
        for (int d = 0; d < x->rank; d++) strides[d] = x->strides[d];
        return x->data;
    }
    char *copy = *scratch;
    const tow__strided view = tow__strided_of(x->data, x->dtype, x->rank, x->dims, x->strides);
    for (int64_t at = 0; at < view.count; at += TOW__BLOCK)
        tow__strided_read(&view, at, tow__min(TOW__BLOCK, view.count - at), copy + (size_t)at * view.size);
    *scratch += copy_bytes(x);
    strides[x->rank - 1] = 1;
    for (int d = x->rank - 2; d >= 0; d--) strides[d] = strides[d + 1] * x->dims[d + 1];
    return copy;
}

/* The product of the largest group that there could be, by which an engine is chosen once. */
static tow__gemm whole_product(const tow__kernel_call *call, bool contracts)
{
    const tow__buffer *x = &call->in[0], *y = &call->in[1];
    const int64_t rows = x->dims[0], columns = x->dims[1], n = y->dims[y->rank - 1];
    return (tow__gemm){.dtype = call->out[0].dtype,
                       .threads = 1,
                       .m = contracts ? columns : rows,
                       .n = n,
                       .k = contracts ? rows : columns,
                       .rows = contracts ? columns : rows,
                       .columns = n,
                       .ldc = n,
                       .a_row = contracts ? 1 : columns,
                       .a_column = contracts ? columns : 1,
                       .b_row = n,
                       .b_column = 1,
                       .choice = call->team != NULL ? call->team->products : NULL};
}

static size_t engine_bytes(const tow__gemm *whole)
{
    tow__gemm part = *whole;
    part.m = tow__min(part.m, ROWS);
    return aligned(tow__gemm_scratch(&part, tow__gemm_choose(whole)));
}

static size_t scratch_of(const tow__kernel_call *call, bool contracts)
{
    const tow__gemm whole = whole_product(call, contracts);
    return copy_bytes(&call->in[0]) + copy_bytes(&call->in[1]) + engine_bytes(&whole) * (size_t)tow__threads(call);
}

static ragged_job job_of(const tow__kernel_call *call, bool contracts)
{
    char *scratch = call->scratch;
    ragged_job job = {
        .call = call, .product = whole_product(call, contracts), .adds = call->extras.accumulation != NULL};
    job.product.accumulate = job.adds;
    job.engine = tow__gemm_choose(&job.product);
    job.engine_bytes = engine_bytes(&job.product);
    job.x = operand(&call->in[0], &scratch, job.x_strides);
    job.y = operand(&call->in[1], &scratch, job.y_strides);
    job.size = tow__element_bytes(call->out[0].dtype);
    job.scratch = scratch;
    return job;
}

/* The rows [*start, *end) of the next group, where *end was the end of the one before; at most all m. */
static void next_group(const tow__buffer *sizes, int64_t group, int64_t m, int64_t *start, int64_t *end)
{
    const int32_t size = ((const int32_t *)sizes->data)[group * sizes->strides[0]];
    *start = *end;
    *end = tow__min(m, *start + tow__max(size, 0));
}

/* Elements first .. first + n of the result, of which all products have no terms. */
static void add_nothing(const ragged_job *job, int64_t first, int64_t n)
{
    char *out = (char *)job->call->out[0].data + (size_t)first * job->size;
    if (!job->adds)
        memset(out, 0, (size_t)n * job->size);
    else
        for (int64_t i = 0; i < n; i++) ((f32 *)out)[i] += 0; /* -0 becomes 0 */
}

/* Rows of the result are complete: elements first .. first + n. */
static void finish(const ragged_job *job, int64_t first, int64_t n)
{
    const tow__epilogue *epilogue = job->call->epilogue;
    if (epilogue && n > 0) epilogue->run(epilogue->user, first, 1, 0, n);
}

/* Rows [first, end) of x, which may belong to several groups. */
static void dot_block(void *user, int64_t block)
{
    const ragged_job *job = user;
    const tow__buffer *x = &job->call->in[0], *sizes = &job->call->in[2];
    const int64_t m = x->dims[0], groups = sizes->dims[0], n = job->product.n;
    const int64_t first = block * ROWS, last = tow__min(m, first + ROWS);
    char *out = job->call->out[0].data;
    int64_t start = 0, end = 0;
    tow__gemm g = job->product;
    g.scratch = tow__scratch_of_thread(job->scratch, job->engine_bytes);
    g.a_row = job->x_strides[0], g.a_column = job->x_strides[1];
    g.b_row = job->y_strides[1], g.b_column = job->y_strides[2];
    for (int64_t i = 0; i < groups && end < last; i++) {
        next_group(sizes, i, m, &start, &end);
        const int64_t from = tow__max(start, first), to = tow__min(end, last);
        if (from >= to) continue;
        g.m = to - from;
        g.a = job->x + (size_t)(from * g.a_row) * job->size;
        g.b = job->y + (size_t)(i * job->y_strides[0]) * job->size;
        g.c = out + (size_t)(from * n) * job->size;
        tow__gemm_run(&g, job->engine);
    }
    const int64_t rest = tow__max(first, tow__min(end, last));
    add_nothing(job, rest * n, (last - rest) * n);
    finish(job, first * n, (last - first) * n);
}

/* Rows [first, end) of the matrix of one group. */
static void contract_block(void *user, int64_t block)
{
    const ragged_job *job = user;
    const tow__buffer *x = &job->call->in[0], *sizes = &job->call->in[2];
    const int64_t group = block / job->blocks, k = x->dims[1], n = job->product.n;
    const int64_t first = block % job->blocks * ROWS;
    int64_t start = 0, end = 0;
    for (int64_t i = 0; i <= group; i++) next_group(sizes, i, x->dims[0], &start, &end);
    tow__gemm g = job->product;
    g.scratch = tow__scratch_of_thread(job->scratch, job->engine_bytes);
    g.m = tow__min(ROWS, k - first);
    g.k = end - start;
    g.a_row = job->x_strides[1], g.a_column = job->x_strides[0];
    g.b_row = job->y_strides[0], g.b_column = job->y_strides[1];
    g.a = job->x + (size_t)(start * g.a_column + first * g.a_row) * job->size;
    g.b = job->y + (size_t)(start * g.b_row) * job->size;
    g.c = (char *)job->call->out[0].data + (size_t)((group * k + first) * n) * job->size;
    if (g.k > 0)
        tow__gemm_run(&g, job->engine);
    else
        add_nothing(job, (group * k + first) * n, g.m * n);
    finish(job, (group * k + first) * n, g.m * n);
}

/* Puts what is added to where the sum is to be. */
static void begin_sum(const tow__kernel_call *call)
{
    const tow__buffer *out = &call->out[0], *sum = &call->in[call->n_in - 1];
    if (!call->extras.accumulation || sum->data == out->data) return;
    tow__strided to = tow__strided_buffer(out), from = tow__strided_buffer(sum);
    tow__strided_store(call->team, &to, &from);
}

static void run_ragged_dot(const tow__kernel_call *call)
{
    begin_sum(call);
    ragged_job job = job_of(call, false);
    if (job.product.n > 0) tow__team_run(call->team, tow__ceil_div(call->in[0].dims[0], ROWS), dot_block, &job);
}

static void run_ragged_dot_contract(const tow__kernel_call *call)
{
    begin_sum(call);
    ragged_job job = job_of(call, true);
    job.blocks = tow__ceil_div(call->in[0].dims[1], ROWS);
    if (job.product.n > 0) tow__team_run(call->team, call->in[2].dims[0] * job.blocks, contract_block, &job);
}

static size_t scratch_ragged_dot(const tow__kernel_call *call) { return scratch_of(call, false); }
static size_t scratch_ragged_dot_contract(const tow__kernel_call *call) { return scratch_of(call, true); }

static const char *engine_of_ragged_dot(const tow__kernel_call *call)
{
    const tow__gemm whole = whole_product(call, false);
    return tow__gemm_choose(&whole)->name;
}
static const char *engine_of_ragged_dot_contract(const tow__kernel_call *call)
{
    const tow__gemm whole = whole_product(call, true);
    return tow__gemm_choose(&whole)->name;
}

static size_t reason(const tow__kernel_call *call, bool contracts, char *text, size_t size)
{
    tow__gemm whole = whole_product(call, contracts);
    return tow__gemm_explain(&whole, tow__gemm_choose(&whole), "groups have any number of rows", text, size);
}
static size_t reason_of_ragged_dot(const tow__kernel_call *call, char *text, size_t size)
{
    return reason(call, false, text, size);
}
static size_t reason_of_ragged_dot_contract(const tow__kernel_call *call, char *text, size_t size)
{
    return reason(call, true, text, size);
}

/* The sum has the bits of a product and an addition if each element is one chain of multiply-adds, however many rows a
 * group has. */
static bool takes_sum(const tow__kernel_call *call, bool contracts)
{
    const tow__gemm whole = whole_product(call, contracts);
    return whole.dtype == TOW_F32 && whole.k > 0 && tow__gemm_choose(&whole)->in_parts &&
           whole.k <= tow__gemm_kc(whole.k);
}

static bool takes_sum_ragged_dot(const tow__kernel_call *call) { return takes_sum(call, false); }
static bool takes_sum_ragged_dot_contract(const tow__kernel_call *call) { return takes_sum(call, true); }

#define KERNEL(name, ...)                                                                                              \
    {.primitive = #name,                                                                                               \
     .dtypes = TOW__WIDE_FLOATS,                                                                                       \
     .run = run_##name,                                                                                                \
     .scratch = scratch_##name,                                                                                        \
     .engine_of = engine_of_##name,                                                                                    \
     .reason = reason_of_##name,                                                                                       \
     __VA_ARGS__},
#define KERNELS(name)                                                                                                  \
    KERNEL(name, .runs_epilogue = true) KERNEL(name, .variant = TOW__ADDING, .takes = takes_sum_##name)
static const tow__kernel kernels[] = {KERNELS(ragged_dot) KERNELS(ragged_dot_contract)};
const tow__kernel_table tow__kernels_ragged = {kernels, sizeof kernels / sizeof kernels[0]};
