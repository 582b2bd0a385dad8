/* conv_general_dilated: axes are sorted, and one of the ways of conv.h runs. */
#include "src/kernels/conv/conv.h"

#include <stdio.h>
#include <string.h>

#include "src/kernels/conv/lanes.h"
#include "src/kernels/halves.h"
#include "src/kernels/products/gemm_own.h"
#include "src/kernels/tables.h"

enum {
    MOST_TAPS = 64, /* along an axis, of a result that is summed over positions */
    MANY = 64,      /* rows and columns, as units for bf16 see them */
    NARROW = 20,    /* results along w below which a product of theirs is too small */
    SHORT = 48      /* elements that a row of the kernel sums, below which a product with it is too small */
};

/* ---- the convolution as loops ------------------------------------------------------------------------------------ */

static bool is_single(const tow__window_axis *a)
{
    return a->window == 1 && a->stride == 1 && a->base_dilation == 1 && a->low == 0 && a->high == 0;
}

/* Joins spatial axes of 1x1 kernels whose elements follow each other. */
static void join_axes(tow__conv *c)
{
    for (int i = c->spatial - 2; i >= 0; i--) {
        tow__window_axis *a = &c->axes[i], *b = &c->axes[i + 1];
        if (!is_single(a) || !is_single(b)) continue;
        if (c->x[i] != c->x[i + 1] * b->size || c->y[i] != c->y[i + 1] * b->result) continue;
        b->size *= a->size;
        b->result *= a->result;
        for (int k = i; k + 1 < c->spatial; k++) {
            c->axes[k] = c->axes[k + 1];
            c->x[k] = c->x[k + 1], c->w[k] = c->w[k + 1], c->y[k] = c->y[k + 1];
        }
        c->spatial--;
    }
}

static void add_single_axes(tow__conv *c)
{
    while (c->spatial < 2) {
        for (int k = c->spatial; k > 0; k--) {
            c->axes[k] = c->axes[k - 1];
            c->x[k] = c->x[k - 1], c->w[k] = c->w[k - 1], c->y[k] = c->y[k - 1];
        }
        c->axes[0] = (tow__window_axis){1, 1, 1, 1, 0, 0, 1, 1};
        c->x[0] = c->w[0] = c->y[0] = 0;
        c->spatial++;
    }
}

/* Strides of a result whose features are neighbors, in the order in which a way writes it: batch first, or last. */
static void lay_out(tow__conv *c, bool sums)
{
    int64_t step = c->features * c->groups * c->size;
    if (sums) c->y_entry = step, step *= c->batch;
    for (int i = c->spatial - 1; i >= 0; i--) {
        c->y[i] = step;
        step *= c->axes[i].result;
    }
    if (!sums) c->y_entry = step;
    c->y_feature = c->size;
    c->y_group = c->features * c->size;
}

/* Elements of `size` bytes. */
static void copy(int64_t size, const char *from, int64_t rows, int64_t row, int64_t columns, int64_t column, char *to,
                 int64_t to_row)
{
    if (column == size && row == columns * size && to_row == row) {
        memcpy(to, from, (size_t)(rows * row));
    } else if (column == size) {
        for (int64_t i = 0; i < rows; i++) memcpy(to + i * to_row, from + i * row, (size_t)(columns * size));
    } else if (row == size && column > 0 && size > 2) {
        tow__transpose_matrix((size_t)size, rows, columns, to, to_row / size, from, column / size);
    } else {
        for (int64_t i = 0; i < rows; i++)
            tow__copy_run((size_t)size, columns, to + i * to_row, from + i * row, column / size);
    }
}

/* Elements of 16 bits that lie side by side from row to row: some at a time become a small matrix, which is
 * transposed. */
static void widen_across(tow_dtype dtype, const char *from, int64_t rows, int64_t columns, int64_t column, char *to,
                         int64_t to_row)
{
    enum {
        LINE = 64,
        LINES = 16
    };
    f32 lines[LINES][LINE];
    const int64_t half = (int64_t)sizeof(uint16_t), size = (int64_t)sizeof(f32);
    for (int64_t i = 0; i < rows; i += LINE) {
        const int64_t n = tow__min(LINE, rows - i);
        for (int64_t j = 0; j < columns; j += LINES) {
            const int64_t some = tow__min(LINES, columns - j);
            for (int64_t l = 0; l < some; l++)
                tow__widen_run(dtype, n, from + i * half + (j + l) * column, 1, lines[l]);
            tow__transpose_matrix(sizeof(f32), n, some, to + i * to_row + j * size, to_row / size, lines, LINE);
        }
    }
}

static void widen(tow_dtype dtype, const char *from, int64_t rows, int64_t row, int64_t columns, int64_t column,
                  char *to, int64_t to_row)
{
    const int64_t half = (int64_t)sizeof(uint16_t);
    if (row == half && column != half && column > 0) {
        widen_across(dtype, from, rows, columns, column, to, to_row);
    } else if (column == half && row == columns * half && to_row == columns * (int64_t)sizeof(f32)) {
        tow__widen_run(dtype, rows * columns, from, 1, (f32 *)(void *)to);
    } else {
        for (int64_t i = 0; i < rows; i++)
            tow__widen_run(dtype, columns, from + i * row, column / half, (f32 *)(void *)(to + i * to_row));
    }
}

void tow__conv_copy(const tow__conv *c, const char *from, int64_t rows, int64_t row, int64_t columns, int64_t column,
                    char *to)
{
    if (rows > 0 && columns > 0) copy(c->w_size, from, rows, row, columns, column, to, columns * c->w_size);
}

void tow__conv_read(const tow__conv *c, const char *from, int64_t rows, int64_t row, int64_t columns, int64_t column,
                    char *to, int64_t to_row)
{
    if (rows <= 0 || columns <= 0) return;
    if (tow__conv_widens(c))
        widen(c->x_dtype, from, rows, row, columns, column, to, to_row);
    else
        copy(c->x_size, from, rows, row, columns, column, to, to_row);
}

/* There is nothing to sum, or no result: no way is chosen. */
static bool is_empty(const tow__kernel_call *call)
{
    return tow__buffer_count(&call->in[0]) == 0 || tow__buffer_count(&call->in[1]) == 0 ||
           tow__buffer_count(&call->out[0]) == 0;
}

/* Of a call that is not empty. */
typedef struct conv_job {
    tow__conv c;
    tow__conv_axes axes;
    const tow__conv_way *way;
    bool transposes; /* the result is made in scratch memory and transposed as a whole */
} conv_job;

static void fill(tow__conv *c, const tow__conv_axes *axes, const tow__kernel_call *call)
{
    const tow__buffer *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    const tow__conv_params *p = call->params;
    c->dtype = y->dtype;
    c->size = (int64_t)tow__element_bytes(c->dtype);
    c->x_dtype = x->dtype, c->w_dtype = w->dtype;
    c->x_size = (int64_t)tow__element_bytes(x->dtype), c->w_size = (int64_t)tow__element_bytes(w->dtype);
    const int64_t size = c->size, x_size = c->x_size, w_size = c->w_size;
    c->spatial = axes->spatial;
    c->groups = p->feature_groups * p->batch_groups;
    c->batch = y->dims[axes->out[0]];
    c->inputs = w->dims[axes->rhs[1]];
    c->features = y->dims[axes->out[1]] / c->groups;
    c->x_entry = x->strides[axes->lhs[0]] * x_size;
    c->x_input = x->strides[axes->lhs[1]] * x_size;
    c->x_group = p->feature_groups > 1 ? c->inputs * c->x_input : c->batch * c->x_entry;
    c->w_input = w->strides[axes->rhs[1]] * w_size;
    c->w_feature = w->strides[axes->rhs[0]] * w_size;
    c->w_group = c->features * c->w_feature;
    c->y_entry = y->strides[axes->out[0]] * size;
    c->y_feature = y->dims[axes->out[1]] > 1 ? y->strides[axes->out[1]] * size : size;
    c->y_group = c->features * c->y_feature;
    c->positions = c->taps = 1;
    for (int i = 0; i < c->spatial; i++) {
        c->axes[i] = tow__conv_axis(p, axes, i, x->dims, w->dims);
        tow__window_result(&c->axes[i]);
        c->positions *= c->axes[i].result;
        c->taps *= c->axes[i].window;
        c->x[i] = x->strides[axes->lhs[2 + i]] * x_size;
        c->w[i] = w->strides[axes->rhs[2 + i]] * w_size;
        c->y[i] = y->strides[axes->out[2 + i]] * size;
    }
}

/* Products of rows of w have as many rows as a phase of w has results, and sum what a phase of a row of the kernel
 * holds. */
static bool wants_gathering(const tow__conv *c)
{
    int64_t rows = 1, last = c->spatial - 1;
    for (int64_t i = last; i >= 0 && is_single(&c->axes[i]); i--) rows *= c->axes[i].result;
    if (c->taps > TOW__CONV_TAPS) return false; /* as many as channels of one feature list at once */
    if (last < 0 || is_single(&c->axes[last]))
        return rows < NARROW; /* these axes are one, and k is what it is in both */
    const tow__window_axis *w = &c->axes[last];
    return w->result / w->base_dilation < NARROW || w->window * c->inputs / w->base_dilation < SHORT;
}

/* Sums or not: by sizes alone, and not by those of the batch, the features and the groups. Channels have the same
 * bits. */
static const tow__conv_way *choose(const tow__conv *c, const tow__conv_params *p)
{
    bool sums = c->taps > c->positions;
    for (int i = 0; i < c->spatial; i++)
        if (c->axes[i].base_dilation > 1 || c->axes[i].result > MOST_TAPS) sums = false;
    if (!sums && p->feature_groups > 1 && c->inputs == 1 && c->features == 1) return &tow__conv_channels;
    if (sums && p->batch_groups > 1 && c->batch == 1 && c->features == 1) return &tow__conv_channel_sums;
    if (sums) return &tow__conv_sums;
    return c->gathers || c->unit != NULL ? &tow__conv_gathered : &tow__conv_rows;
}

/* The unit for bf16 that sums k elements at a time, chosen as `choose` chooses. NULL: both operands are not bf16, the
 * graph states a convolution of f32 whose operands happen to be stored so, or there is no unit that gains. */
static const tow__gemm_engine *unit_of(const tow__conv *c, int64_t k, const tow__kernel_call *call)
{
    const tow__conv_params *p = call->params;
    if (!p->of_halves || c->x_dtype != TOW_BF16 || c->w_dtype != TOW_BF16 || call->team == NULL) return NULL;
    tow__gemm g = {.dtype = TOW_F32, .a_dtype = TOW_BF16, .b_dtype = TOW_BF16, .m = MANY, .n = MANY, .k = k};
    g.a_row = k, g.a_column = 1, g.b_row = MANY, g.b_column = 1, g.ldc = MANY;
    g.choice = call->team->products;
    const tow__gemm_engine *engine = tow__gemm_choose(&g);
    return engine != &tow__gemm_own && engine != &tow__gemm_reference ? engine : NULL;
}

static conv_job job_of(const tow__kernel_call *call)
{
    const tow__conv_params *p = call->params;
    conv_job job = {.transposes = false};
    tow__conv_axes_read(p->dimensions, &job.axes);
    fill(&job.c, &job.axes, call);
    job.c.gathers = wants_gathering(&job.c);
    job.c.unit = unit_of(&job.c, tow__conv_taps_at_once(&job.c) * job.c.inputs, call);
    job.way = choose(&job.c, p);
    if (job.way != &tow__conv_gathered) job.c.unit = NULL;
    const bool in_blocks = job.way->transposes && job.c.spatial > 0 && job.c.y[job.c.spatial - 1] == job.c.size;
    job.transposes = job.c.y_feature != job.c.size && !in_blocks;
    if (job.transposes) lay_out(&job.c, job.way->batch_last);
    if (job.way == &tow__conv_rows || job.way == &tow__conv_gathered) join_axes(&job.c);
    add_single_axes(&job.c);
    if (job.way == &tow__conv_sums) job.c.unit = unit_of(&job.c, tow__conv_block_positions(&job.c), call);
    return job;
}

/* The result where it was made, with the axes that it is to have. */
static void transpose_result(const tow__kernel_call *call, const conv_job *job, const tow__conv *made, char *from)
{
    const tow__buffer *y = &call->out[0];
    int64_t strides[TOW_MAX_RANK];
    strides[job->axes.out[0]] = made->y_entry / made->size;
    strides[job->axes.out[1]] = 1;
    for (int i = 0; i < job->axes.spatial; i++) strides[job->axes.out[2 + i]] = made->y[i] / made->size;
    tow__strided in = tow__strided_of(from, made->dtype, y->rank, y->dims, strides), out = tow__strided_buffer(y);
    tow__strided_store(call->team, &out, &in);
}

static size_t result_bytes(const tow__buffer *y)
{
    return tow__conv_round((size_t)tow__buffer_count(y) * tow__element_bytes(y->dtype));
}

static size_t scratch_conv(const tow__kernel_call *call)
{
    if (is_empty(call)) return 0;
    conv_job job = job_of(call);
    size_t result = job.transposes ? result_bytes(&call->out[0]) : 0;
    return result + job.way->scratch(&job.c, tow__threads(call));
}

static void run_job(const tow__kernel_call *call, const conv_job *job)
{
    const tow__buffer *y = &call->out[0];
    tow__conv_run r = {
        .c = &job->c, .x = call->in[0].data, .w = call->in[1].data, .y = y->data, .scratch = call->scratch};
    r.threads = tow__threads(call);
    if (call->team != NULL && call->team->products != NULL) r.choice = *call->team->products;
    if (job->transposes) {
        r.y = call->scratch;
        r.scratch += result_bytes(y);
    } else {
        r.epilogue = call->epilogue;
    }
    double work = (double)tow__buffer_count(y) * (double)job->c.taps * (double)job->c.inputs * 0.02;
    r.team = tow__team_for(call->team, work);
    job->way->run(&r);
    if (!job->transposes) return;
    tow__conv made = {.spatial = 0};
    fill(&made, &job->axes, call);
    lay_out(&made, job->way->batch_last);
    transpose_result(call, job, &made, r.y);
    if (call->epilogue != NULL) tow__epilogue_on_all(call->team, call->epilogue, tow__buffer_count(y));
}

static void run_conv(const tow__kernel_call *call)
{
    const tow__buffer *y = &call->out[0];
    if (tow__buffer_count(y) == 0) return;
    if (is_empty(call)) {
        memset(y->data, 0, (size_t)tow__buffer_count(y) * tow__element_bytes(y->dtype));
        if (call->epilogue != NULL) tow__epilogue_on_all(call->team, call->epilogue, tow__buffer_count(y));
        return;
    }
    conv_job job = job_of(call);
    run_job(call, &job);
}

static const char *engine_of(const tow__kernel_call *call)
{
    if (is_empty(call)) return "own";
    const conv_job job = job_of(call);
    return job.c.unit != NULL ? job.c.unit->name : job.way->engine;
}

static int write_reason(const tow__kernel_call *call, char *text, size_t size)
{
    if (is_empty(call)) return snprintf(text, size, "own kernel: nothing to sum");
    const conv_job job = job_of(call);
    if (job.c.unit == NULL) return snprintf(text, size, "%s", job.way->reason);
    return snprintf(text, size, "%s: multiplies copies of pieces, which stay bf16", job.c.unit->label);
}

static size_t reason(const tow__kernel_call *call, char *text, size_t size)
{
    const int length = write_reason(call, text, size);
    return length < 0 ? 0 : (size_t)length;
}

static const tow__kernel kernels[] = {{.primitive = "conv_general_dilated",
                                       .dtypes = TOW__WIDE_FLOATS,
                                       .run = run_conv,
                                       .runs_epilogue = true,
                                       .halves = 1 << 0 | 1 << 1,
                                       .scratch = scratch_conv,
                                       .engine_of = engine_of,
                                       .reason = reason}};
const tow__kernel_table tow__kernels_conv = {kernels, 1};
