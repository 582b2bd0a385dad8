/* Reductions over windows, one window at a time, straight from their definition. */
#include <string.h>

#include "src/base/window.h"
#include "src/kernels/math.h"
#include "src/kernels/tables.h"

/* Windows over x, whose axes are those of the operation. */
typedef struct window_job {
    const tow__kernel_call *call;
    const tow__buffer *x;
    tow__window_axis axes[TOW_MAX_RANK];
    int64_t windows, taps;
    bool minimum;
} window_job;

static window_job job_of(const tow__kernel_call *call, const tow__buffer *x)
{
    window_job job = {.call = call, .x = x, .windows = 1, .taps = 1};
    for (int i = 0; i < x->rank; i++) {
        job.axes[i] = tow__window_axis_of(call->params, i, x->dims[i]);
        tow__window_result(&job.axes[i]);
        job.windows *= job.axes[i].result;
        job.taps *= job.axes[i].window;
    }
    job.minimum = ((const tow__window_params *)call->params)->minimum;
    return job;
}

/* Row-major index in x of the element that tap k of window p meets, its offset in `buffer`; -1: none. */
static int64_t find(const window_job *job, int64_t p, int64_t k, const tow__buffer *buffer, int64_t *offset)
{
    int64_t index = 0, step = 1;
    *offset = 0;
    for (int i = job->x->rank - 1; i >= 0; i--) {
        const tow__window_axis *a = &job->axes[i];
        int64_t element = tow__window_element(a, p % a->result, k % a->window);
        if (element < 0) return -1;
        index += element * step;
        *offset += element * buffer->strides[i];
        step *= a->size;
        p /= a->result;
        k /= a->window;
    }
    return index;
}

#define ADD(a, b)     ((a) + (b))
#define GREATER(a, b) ((a) > (b) ? (a) : (b))
#define LESS(a, b)    ((a) < (b) ? (a) : (b))

#define REDUCE(name, T, identity, COMBINE)                                                                             \
    static void name##_##T(void *user, int64_t p)                                                                      \
    {                                                                                                                  \
        const window_job *job = user;                                                                                  \
        T y = (identity);                                                                                              \
        int64_t at;                                                                                                    \
        for (int64_t k = 0; k < job->taps; k++)                                                                        \
            if (find(job, p, k, job->x, &at) >= 0) y = COMBINE(y, ((const T *)job->x->data)[at]);                      \
        ((T *)job->call->out[0].data)[p] = y;                                                                          \
    }
REDUCE(sum, f32, 0, ADD)
REDUCE(sum, f64, 0, ADD)
REDUCE(sum, u32, 0, ADD)
REDUCE(max, f32, -INFINITY, tow__max_f32)
REDUCE(max, f64, -(f64)INFINITY, tow__max_f64)
REDUCE(max, i32, INT32_MIN, GREATER)
REDUCE(max, u32, 0, GREATER)
REDUCE(min, f32, INFINITY, tow__min_f32)
REDUCE(min, f64, (f64)INFINITY, tow__min_f64)
REDUCE(min, i32, INT32_MAX, LESS)
REDUCE(min, u32, UINT32_MAX, LESS)

static void reduce(const tow__kernel_call *call, void (*const body[])(void *, int64_t))
{
    window_job job = job_of(call, &call->in[0]);
    tow__team_run(call->team, job.windows, body[call->in[0].dtype], &job);
}

#define RUN(name, ...)                                                                                                 \
    static void run_##name(const tow__kernel_call *call)                                                               \
    {                                                                                                                  \
        static void (*const body[])(void *, int64_t) = {__VA_ARGS__};                                                  \
        reduce(call, body);                                                                                            \
    }
RUN(sum, sum_f32, sum_f64, sum_u32, sum_u32)
RUN(max, max_f32, max_f64, max_i32, max_u32)
RUN(min, min_f32, min_f64, min_i32, min_u32)

/* ---- the element that a window selects --------------------------------------------------------------------------- */

/* Another element takes the place of the best so far unless that is at least (at most) as large; so does a NaN. */
#define SELECT(T)                                                                                                      \
    static int64_t select_##T(const window_job *job, int64_t p)                                                        \
    {                                                                                                                  \
        const T *x = job->x->data;                                                                                     \
        int64_t best = -1, at, index;                                                                                  \
        T value = 0;                                                                                                   \
        for (int64_t k = 0; k < job->taps; k++) {                                                                      \
            if ((index = find(job, p, k, job->x, &at)) < 0) continue;                                                  \
            if (best >= 0 && (job->minimum ? value <= x[at] : value >= x[at])) continue;                               \
            best = index;                                                                                              \
            value = x[at];                                                                                             \
        }                                                                                                              \
        return best;                                                                                                   \
    }                                                                                                                  \
    static void gather_##T(void *user, int64_t p)                                                                      \
    {                                                                                                                  \
        const window_job *job = user;                                                                                  \
        tow__strided t = tow__strided_buffer(&job->call->in[0]);                                                       \
        int64_t i = select_##T(job, p);                                                                                \
        ((T *)job->call->out[0].data)[p] = i < 0 ? 0 : ((const T *)(void *)t.data)[tow__strided_offset(&t, i)];        \
    }                                                                                                                  \
    static void scatter_##T(const window_job *job)                                                                     \
    {                                                                                                                  \
        tow__strided t = tow__strided_buffer(&job->call->in[0]);                                                       \
        T *out = job->call->out[0].data;                                                                               \
        memset(out, 0, (size_t)tow__buffer_count(&job->call->out[0]) * sizeof *out);                                   \
        for (int64_t p = 0; p < job->windows; p++) {                                                                   \
            int64_t i = select_##T(job, p);                                                                            \
            if (i >= 0) out[i] += ((const T *)(void *)t.data)[tow__strided_offset(&t, p)];                             \
        }                                                                                                              \
    }
SELECT(f32)
SELECT(f64)

static void run_gather(const tow__kernel_call *call)
{
    window_job job = job_of(call, &call->in[1]);
    tow__team_run(call->team, job.windows, call->out[0].dtype == TOW_F32 ? gather_f32 : gather_f64, &job);
}

static void run_scatter(const tow__kernel_call *call)
{
    window_job job = job_of(call, &call->in[1]);
    if (call->out[0].dtype == TOW_F32)
        scatter_f32(&job);
    else
        scatter_f64(&job);
}

enum {
    NUMBERS = TOW__FLOATS | 1 << TOW_I32 | 1 << TOW_U32
};
static const tow__kernel kernels[] = {
    {"reduce_window_max", NUMBERS, run_max, NULL, "reference"},
    {"reduce_window_min", NUMBERS, run_min, NULL, "reference"},
    {"reduce_window_sum", NUMBERS, run_sum, NULL, "reference"},
    {"select_and_gather_add", TOW__FLOATS, run_gather, NULL, "reference"},
    {"select_and_scatter_add", TOW__FLOATS, run_scatter, NULL, "reference"},
};
const tow__kernel_table tow__reference_pooling = {kernels, sizeof kernels / sizeof kernels[0]};
