/* conv_general_dilated: axes are sorted, and one of the ways of conv.h runs. */
#include "src/kernels/conv/conv.h"

#include <stdio.h>
#include <string.h>

#include "src/kernels/conv/lanes.h"
#include "src/kernels/products/gemm_own.h"
#include "src/kernels/tables.h"

enum {
    MOST_TAPS = 64, /* along an axis, of a result that is summed over positions */
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

void tow__conv_copy(const tow__conv *c, const char *from, int64_t rows, int64_t row, int64_t columns, int64_t column,
                    char *to)
{
    const int64_t size = c->size;
    if (rows <= 0 || columns <= 0) return;
    if (column == size && row == columns * size) {
        memcpy(to, from, (size_t)(rows * row));
    } else if (column == size) {
        for (int64_t i = 0; i < rows; i++) memcpy(to + i * columns * size, from + i * row, (size_t)(columns * size));
    } else if (row == size && column > 0) {
        tow__transpose_matrix((size_t)size, rows, columns, to, columns, from, column / size);
    } else {
        for (int64_t i = 0; i < rows; i++)
            tow__copy_run((size_t)size, columns, to + i * columns * size, from + i * row, column / size);
    }
}

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
    const int64_t size = c->size;
    c->spatial = axes->spatial;
    c->groups = p->feature_groups * p->batch_groups;
    c->batch = y->dims[axes->out[0]];
    c->inputs = w->dims[axes->rhs[1]];
    c->features = y->dims[axes->out[1]] / c->groups;
    c->x_entry = x->strides[axes->lhs[0]] * size;
    c->x_input = x->strides[axes->lhs[1]] * size;
    c->x_group = p->feature_groups > 1 ? c->inputs * c->x_input : c->batch * c->x_entry;
    c->w_input = w->strides[axes->rhs[1]] * size;
    c->w_feature = w->strides[axes->rhs[0]] * size;
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
        c->x[i] = x->strides[axes->lhs[2 + i]] * size;
        c->w[i] = w->strides[axes->rhs[2 + i]] * size;
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
    return c->gathers ? &tow__conv_gathered : &tow__conv_rows;
}

static conv_job job_of(const tow__kernel_call *call)
{
    const tow__conv_params *p = call->params;
    conv_job job = {.transposes = false};
    tow__conv_axes_read(p->dimensions, &job.axes);
    fill(&job.c, &job.axes, call);
    job.c.gathers = wants_gathering(&job.c);
    job.way = choose(&job.c, p);
    const bool in_blocks = job.way->transposes && job.c.spatial > 0 && job.c.y[job.c.spatial - 1] == job.c.size;
    job.transposes = job.c.y_feature != job.c.size && !in_blocks;
    if (job.transposes) lay_out(&job.c, job.way->batch_last);
    if (job.way == &tow__conv_rows || job.way == &tow__conv_gathered) join_axes(&job.c);
    add_single_axes(&job.c);
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
    for (size_t i = 0; i < 2; i++)
        if (tow__buffer_count(&call->in[i]) == 0) return 0;
    if (tow__buffer_count(&call->out[0]) == 0) return 0;
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
    if (tow__buffer_count(&call->in[1]) == 0 || tow__buffer_count(&call->in[0]) == 0) {
        memset(y->data, 0, (size_t)tow__buffer_count(y) * tow__element_bytes(y->dtype));
        if (call->epilogue != NULL) tow__epilogue_on_all(call->team, call->epilogue, tow__buffer_count(y));
        return;
    }
    conv_job job = job_of(call);
    run_job(call, &job);
}

static const char *engine_of(const tow__kernel_call *call) { return job_of(call).way->engine; }

static size_t reason(const tow__kernel_call *call, char *text, size_t size)
{
    const int length = snprintf(text, size, "%s", job_of(call).way->reason);
    return length < 0 ? 0 : (size_t)length;
}

static const tow__kernel kernels[] = {{.primitive = "conv_general_dilated",
                                       .dtypes = TOW__WIDE_FLOATS,
                                       .run = run_conv,
                                       .runs_epilogue = true,
                                       .scratch = scratch_conv,
                                       .engine_of = engine_of,
                                       .reason = reason}};
const tow__kernel_table tow__kernels_conv = {kernels, 1};
