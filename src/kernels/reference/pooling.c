/* Reductions over windows, one window at a time, straight from their definition. */
#include <string.h>

#include "src/base/window.h"
#include "src/kernels/reference/window_reductions.h"
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

#define REDUCE(name, T, identity, COMBINE)                                                                             \
    static void name##_##T(void *user, int64_t p)                                                                      \
    {                                                                                                                  \
        const window_job *job = user;                                                                                  \
        T y = (identity);                                                                                              \
        int64_t at;                                                                                                    \
        for (int64_t k = 0; k < job->taps; k++)                                                                        \
            if (find(job, p, k, job->x, &at) >= 0) y = (T)COMBINE(y, ((const T *)job->x->data)[at]);                   \
        ((T *)job->call->out[0].data)[p] = y;                                                                          \
    }
WINDOW_REDUCTIONS(REDUCE)

static void reduce(const tow__kernel_call *call, void (*const body[])(void *, int64_t))
{
    window_job job = job_of(call, &call->in[0]);
    tow__team_run(call->team, job.windows, body[call->in[0].dtype], &job);
}

#define RUN(name, integers)                                                                                            \
    static void run_##name(const tow__kernel_call *call)                                                               \
    {                                                                                                                  \
        static void (*const body[TOW_DTYPE_END])(void *, int64_t) = {FLOATS(name), integers(name)};                    \
        reduce(call, body);                                                                                            \
    }
RUN(sum, WORDS)
RUN(max, INTEGERS)
RUN(min, INTEGERS)

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
    NUMBERS = TOW__WIDE_NUMBERS
};
static const tow__kernel kernels[] = {
    {"reduce_window_max", NUMBERS, run_max, NULL, "reference"},
    {"reduce_window_min", NUMBERS, run_min, NULL, "reference"},
    {"reduce_window_sum", NUMBERS, run_sum, NULL, "reference"},
    {"select_and_gather_add", TOW__WIDE_FLOATS, run_gather, NULL, "reference"},
    {"select_and_scatter_add", TOW__WIDE_FLOATS, run_scatter, NULL, "reference"},
};
const tow__kernel_table tow__reference_pooling = {kernels, sizeof kernels / sizeof kernels[0]};
