/* Kernels that sum over the iterations of a scan ("steps" in their names). The result is cut into panels that stay in
 * L1 during all iterations, so it is read and written once and not once per iteration; threads share the panels. */
#include "src/kernels/products/sum_dots.h"

#include <string.h>

#include "src/kernels/products/gemm_own.h"
#include "src/kernels/tables.h"

enum {
    PANEL_BYTES = 16 << 10, /* of the result */
    UNIT_ROWS = 64,         /* of it, on the matrix unit, where each panel splits its operands */
    COLUMNS = 512           /* elements of the result that sum_rows takes at a time */
};

/* One matrix per iteration, or a vector that is a matrix of depth 1. Strides along axes of size 1 are 1, as
 * dot_general has them, so that both get the same engine. */
typedef struct factor {
    int64_t count, depth, free_stride, depth_stride, step_stride;
} factor;

static factor factor_of(const tow__buffer *b, const tow__ints *contract)
{
    int axis = contract->n > 1 ? (int)contract->v[1] : 0, other = axis > 0 ? 3 - axis : 1;
    factor f = {.count = b->dims[other],
                .depth = axis > 0 ? b->dims[axis] : 1,
                .free_stride = b->strides[other],
                .depth_stride = b->strides[axis],
                .step_stride = b->strides[0]};
    if (f.count == 1) f.free_stride = 1;
    if (f.depth == 1) f.depth_stride = 1;
    return f;
}

static bool is_plain(const factor *f) { return tow__gemm_plain(f->count, f->depth, f->free_stride, f->depth_stride); }

/* Rows behind the axis of the iterations are contiguous. */
static bool has_plain_rows(const tow__buffer *x)
{
    int64_t stride = 1;
    for (int i = x->rank - 1; i > 0; i--) {
        if (x->dims[i] != 1 && x->strides[i] != stride) return false;
        stride *= x->dims[i];
    }
    return true;
}

static bool takes_rows(const tow__kernel_call *call) { return has_plain_rows(&call->in[0]); }

static bool takes_dots(const tow__kernel_call *call)
{
    const tow__dot_params *p = call->params;
    const tow__buffer *x = &call->in[0], *y = &call->in[1];
    const int rank = 1 + p->lhs_contract.n;
    if (x->dtype != call->out[0].dtype || y->dtype != call->out[0].dtype) return false;
    if (x->rank != rank || y->rank != rank || p->lhs_batch.n > 0 || rank > 3) return false;
    factor a = factor_of(x, &p->lhs_contract), b = factor_of(y, &p->rhs_contract);
    return is_plain(&a) && is_plain(&b);
}

static const tow__buffer *init_of(const tow__kernel_call *call) { return &call->in[call->n_in - 1]; }

static void store_init(const tow__kernel_call *call)
{
    if (init_of(call)->data == call->out[0].data) return;
    tow__strided to = tow__strided_buffer(&call->out[0]), from = tow__strided_buffer(init_of(call));
    tow__strided_store(call->team, &to, &from);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

typedef struct dot_job {
    tow__gemm product; /* of one iteration, on the whole result */
    const tow__gemm_engine *engine;
    void (*tiles)(const tow__sum_dots *); /* NULL: the engine runs step by step */
    const char *x, *y;
    char *out;
    int64_t steps, first, x_step, y_step; /* bytes from step to step */
    int64_t panel;                        /* rows */
    int64_t blocks;                       /* of columns */
    int64_t size;
    size_t engine_bytes; /* of scratch memory for each thread, where the engine would need a large stack without */
    char *scratch;
} dot_job;

_Static_assert((int)TOW__SUM_DOTS_ROWS <= (int)TOW__GEMM_KC, "a step is one chain");

/* With the own engine, if its registers can do it: one chain per element and iteration. */
static void (*tiles_for(const dot_job *job))(const tow__sum_dots *)
{
#if defined(__x86_64__)
    const tow__gemm *g = &job->product;
    if (job->engine != &tow__gemm_own || g->dtype != TOW_F32 || g->k < 1 || g->k > TOW__SUM_DOTS_ROWS ||
        g->b_column != 1)
        return NULL;
    if (tow__has_avx512()) return tow__sum_dots_avx512;
    if (tow__has_avx2()) return tow__sum_dots_avx2;
#else
    (void)job;
#endif
    return NULL;
}

/* A block of columns, chunk by chunk of iterations. */
static void run_columns(void *user, int64_t block)
{
    const dot_job *job = user;
    const tow__gemm *g = &job->product;
    int64_t panels = tow__ceil_div(g->n, TOW__SUM_DOTS_WIDTH), direction = job->first > 0 ? -1 : 1;
    int64_t column = block * panels / job->blocks * TOW__SUM_DOTS_WIDTH;
    int64_t limit = tow__min((block + 1) * panels / job->blocks * TOW__SUM_DOTS_WIDTH, g->n);
    int64_t chunk = TOW__SUM_DOTS_ROWS / g->k;
    tow__sum_dots sum = {.rows = g->m,
                         .columns = limit - column,
                         .depth = g->k,
                         .x_step = direction * job->x_step / job->size,
                         .x_depth = g->a_column,
                         .x_row = g->a_row,
                         .y_step = direction * job->y_step / job->size,
                         .y_depth = g->b_row,
                         .c = (f32 *)(void *)job->out + column,
                         .ldc = g->ldc};
    for (int64_t i = 0; i < job->steps; i += chunk) {
        int64_t step = job->first + direction * i;
        sum.steps = tow__min(chunk, job->steps - i);
        sum.ahead = tow__min(chunk, job->steps - i - sum.steps);
        sum.x = (const f32 *)(const void *)(job->x + step * job->x_step);
        sum.y = (const f32 *)(const void *)(job->y + step * job->y_step) + column;
        job->tiles(&sum);
    }
}

/* As many blocks of columns as make rows of x go a long way, and all threads busy. */
static int64_t column_blocks(const tow__kernel_call *call, int64_t columns)
{
    int64_t panels = tow__ceil_div(columns, TOW__SUM_DOTS_WIDTH), threads = tow__threads(call);
    int64_t rounds = tow__ceil_div(tow__ceil_div(panels, TOW__SUM_DOTS_PANELS), threads);
    return tow__min(rounds * threads, panels);
}

/* C += a b for a column and a row: elementwise products, as lower.c makes of those over one element. */
#define ADD_OUTER(T)                                                                                                   \
    TOW__CLONES static void add_outer_##T(const tow__gemm *g)                                                          \
    {                                                                                                                  \
        const T *a = g->a, *b = g->b;                                                                                  \
        for (int64_t i = 0; i < g->m; i++) {                                                                           \
            T *c = (T *)g->c + i * g->ldc, x = a[i * g->a_row];                                                        \
            for (int64_t j = 0; j < g->n; j++) c[j] += x * b[j * g->b_column];                                         \
        }                                                                                                              \
    }
ADD_OUTER(f32)
ADD_OUTER(f64)

static void run_panel(void *user, int64_t block, int thread)
{
    const dot_job *job = user;
    tow__gemm g = job->product;
    int64_t row = block * job->panel;
    g.m = tow__min(job->panel, g.m - row);
    g.c = job->out + row * g.ldc * job->size;
    if (job->engine_bytes > 0 && job->scratch) g.scratch = job->scratch + (size_t)thread * job->engine_bytes;
    const char *x = job->x + job->first * job->x_step + row * g.a_row * job->size;
    const char *y = job->y + job->first * job->y_step;
    int64_t direction = job->first > 0 ? -1 : 1;
    for (int64_t i = 0; i < job->steps; i++) {
        if (i % 64 == 63 && tow__cancelled()) return;
        g.a = x + direction * i * job->x_step;
        g.b = y + direction * i * job->y_step;
        if (g.k != 1)
            tow__gemm_run(&g, job->engine);
        else if (g.dtype == TOW_F32)
            add_outer_f32(&g);
        else
            add_outer_f64(&g);
    }
}

static dot_job dot_job_of(const tow__kernel_call *call)
{
    const tow__dot_params *p = call->params;
    const tow__buffer *in = call->in;
    factor x = factor_of(&in[0], &p->lhs_contract), y = factor_of(&in[1], &p->rhs_contract);
    int64_t size = (int64_t)tow__element_bytes(in[0].dtype), steps = in[0].dims[0];
    dot_job job = {.product = {.dtype = in[0].dtype,
                               .accumulate = true,
                               .threads = 1,
                               .m = x.count,
                               .n = y.count,
                               .k = x.depth,
                               .rows = p->rows,
                               .columns = p->columns,
                               .a_row = x.free_stride,
                               .a_column = x.depth_stride,
                               .b_row = y.depth_stride,
                               .b_column = y.free_stride,
                               .ldc = y.count},
                   .x = in[0].data,
                   .y = in[1].data,
                   .out = call->out[0].data,
                   .steps = steps,
                   .first = call->extras.accumulation->reverse ? steps - 1 : 0,
                   .x_step = x.step_stride * size,
                   .y_step = y.step_stride * size,
                   .panel = tow__max(1, PANEL_BYTES / (y.count * size)),
                   .blocks = column_blocks(call, y.count),
                   .size = size};
    job.product.choice = call->team ? call->team->products : NULL;
    job.engine = tow__gemm_choose(&job.product);
    job.tiles = tiles_for(&job);
    if (job.engine == &tow__gemm_amx) {
        job.panel = tow__max(job.panel, UNIT_ROWS);
        tow__gemm g = job.product;
        g.m = tow__min(job.panel, g.m);
        job.engine_bytes = (tow__gemm_scratch(&g, job.engine) + 63) / 64 * 64;
    }
    return job;
}

static size_t scratch_sum_dots(const tow__kernel_call *call)
{
    return (size_t)tow__threads(call) * dot_job_of(call).engine_bytes;
}

static void run_sum_dots(const tow__kernel_call *call)
{
    dot_job job = dot_job_of(call);
    job.scratch = call->scratch;
    store_init(call);
    if (job.tiles)
        tow__team_run(call->team, job.blocks, run_columns, &job);
    else
        tow__team_run_indexed(call->team, tow__ceil_div(job.product.m, job.panel), run_panel, &job);
}

static size_t reason_of_sum_dots(const tow__kernel_call *call, char *text, size_t size)
{
    dot_job job = dot_job_of(call);
    return tow__gemm_explain(&job.product, job.engine,
                             job.tiles ? "sums of all iterations stay in its registers" : "adds products to a sum",
                             text, size);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

#define ADD_ROWS(T)                                                                                                    \
    TOW__CLONES static void add_rows_##T(int64_t n, T *restrict out, int64_t rows, const T *x, int64_t row)            \
    {                                                                                                                  \
        for (int64_t i = 0; i < rows; i++)                                                                             \
            for (int64_t j = 0; j < n; j++) out[j] += x[i * row + j];                                                  \
    }
ADD_ROWS(f32)
ADD_ROWS(f64)

typedef struct add_job {
    tow_dtype dtype;
    char *out;
    const char *x; /* the first row to be added */
    int64_t count, rows, row;
} add_job;

static void add_block(void *user, int64_t block)
{
    const add_job *job = user;
    int64_t first = block * COLUMNS, n = tow__min(COLUMNS, job->count - first);
    if (job->dtype == TOW_F32)
        add_rows_f32(n, (f32 *)job->out + first, job->rows, (const f32 *)job->x + first, job->row);
    else
        add_rows_f64(n, (f64 *)job->out + first, job->rows, (const f64 *)job->x + first, job->row);
}

static void run_sum_rows(const tow__kernel_call *call)
{
    const tow__buffer *x = &call->in[0];
    const tow__addition *p = call->extras.accumulation;
    int64_t rows = x->dims[0], row = x->strides[0], size = (int64_t)tow__element_bytes(x->dtype);
    add_job job = {.dtype = x->dtype,
                   .out = call->out[0].data,
                   .x = (const char *)x->data + (p->reverse ? (rows - 1) * row * size : 0),
                   .count = tow__buffer_count(&call->out[0]),
                   .rows = rows,
                   .row = p->reverse ? -row : row};
    store_init(call);
    tow__team_run(call->team, tow__ceil_div(job.count, COLUMNS), add_block, &job);
}

static const tow__kernel kernels[] = {
    {.primitive = "reduce_sum",
     .variant = TOW__ADDING_IN_ORDER,
     .dtypes = TOW__WIDE_FLOATS,
     .run = run_sum_rows,
     .takes = takes_rows,
     .engine = "vector"},
    {.primitive = "dot_general",
     .variant = TOW__ADDING_IN_ORDER,
     .dtypes = TOW__WIDE_FLOATS,
     .run = run_sum_dots,
     .takes = takes_dots,
     .scratch = scratch_sum_dots,
     .engine = "sum_dots",
     .reason = reason_of_sum_dots},
};
const tow__kernel_table tow__kernels_steps = {kernels, sizeof kernels / sizeof kernels[0]};
