/* conv_general_dilated one element at a time, straight from its definition: the twin that the fast kernels are compared
 * with, and what runs types that they do not have. */
#include "src/base/window.h"
#include "src/kernels/strided.h"
#include "src/kernels/tables.h"

typedef struct conv_job {
    const tow__kernel_call *call;
    tow__conv_axes axes;
    tow__window_axis spatial[TOW_MAX_RANK];
    int64_t batch, features, inputs;            /* of the result; of the kernel */
    int64_t positions, taps;                    /* spatial elements of the result and of the kernel */
    int64_t per_batch_group, per_feature_group; /* features of the result */
} conv_job;

/* Offsets of the elements that tap k of position p multiplies; false: it meets padding. */
static bool find_tap(const conv_job *job, int64_t p, int64_t k, int64_t *x, int64_t *w)
{
    const tow__buffer *lhs = &job->call->in[0], *rhs = &job->call->in[1];
    *x = *w = 0;
    for (int i = job->axes.spatial - 1; i >= 0; i--) {
        const tow__window_axis *a = &job->spatial[i];
        int64_t element = tow__window_element(a, p % a->result, k % a->window);
        if (element < 0) return false;
        *x += element * lhs->strides[job->axes.lhs[2 + i]];
        *w += k % a->window * rhs->strides[job->axes.rhs[2 + i]];
        p /= a->result;
        k /= a->window;
    }
    return true;
}

/* The place of element (batch entry n, position p, feature o) of the result. */
static int64_t result_offset(const conv_job *job, int64_t n, int64_t p, int64_t o)
{
    const tow__buffer *out = &job->call->out[0];
    int64_t at = n * out->strides[job->axes.out[0]] + o * out->strides[job->axes.out[1]];
    for (int i = job->axes.spatial - 1; i >= 0; i--) {
        at += p % job->spatial[i].result * out->strides[job->axes.out[2 + i]];
        p /= job->spatial[i].result;
    }
    return at;
}

#define CONV(T)                                                                                                        \
    static T element_##T(const conv_job *job, int64_t n, int64_t p, int64_t o)                                         \
    {                                                                                                                  \
        const tow__buffer *lhs = &job->call->in[0], *rhs = &job->call->in[1];                                          \
        const int *la = job->axes.lhs, *ra = job->axes.rhs;                                                            \
        int64_t entry = o / job->per_batch_group * job->batch + n, first = o / job->per_feature_group * job->inputs;   \
        int64_t x_step = lhs->strides[la[1]], w_step = rhs->strides[ra[1]], x_at, w_at;                                \
        const T *x = (const T *)lhs->data + entry * lhs->strides[la[0]] + first * x_step;                              \
        const T *w = (const T *)rhs->data + o * rhs->strides[ra[0]];                                                   \
        T sum = 0;                                                                                                     \
        for (int64_t k = 0; k < job->taps; k++) {                                                                      \
            if (!find_tap(job, p, k, &x_at, &w_at)) continue;                                                          \
            for (int64_t i = 0; i < job->inputs; i++) sum = (T)(sum + x[x_at + i * x_step] * w[w_at + i * w_step]);    \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void position_##T(void *user, int64_t block)                                                                \
    {                                                                                                                  \
        const conv_job *job = user;                                                                                    \
        int64_t n = block / job->positions, p = block % job->positions;                                                \
        for (int64_t o = 0; o < job->features; o++)                                                                    \
            ((T *)job->call->out[0].data)[result_offset(job, n, p, o)] = element_##T(job, n, p, o);                    \
    }
CONV(f32)
CONV(f64)
CONV(u8)
CONV(u32)
CONV(u64)

static void run_conv(const tow__kernel_call *call)
{
    static void (*const body[TOW_DTYPE_END])(void *, int64_t) = {
        [TOW_F32] = position_f32, [TOW_F64] = position_f64, [TOW_I8] = position_u8,   [TOW_U8] = position_u8,
        [TOW_I32] = position_u32, [TOW_U32] = position_u32, [TOW_I64] = position_u64, [TOW_U64] = position_u64};
    const tow__conv_params *p = call->params;
    const tow__buffer *lhs = &call->in[0], *rhs = &call->in[1], *out = &call->out[0];
    conv_job job = {.call = call, .positions = 1, .taps = 1};
    if (tow__buffer_count(out) == 0) return;
    tow__conv_axes_read(p->dimensions, &job.axes);
    for (int i = 0; i < job.axes.spatial; i++) {
        job.spatial[i] = tow__conv_axis(p, &job.axes, i, lhs->dims, rhs->dims);
        tow__window_result(&job.spatial[i]);
        job.positions *= job.spatial[i].result;
        job.taps *= job.spatial[i].window;
    }
    job.batch = out->dims[job.axes.out[0]];
    job.features = out->dims[job.axes.out[1]];
    job.inputs = rhs->dims[job.axes.rhs[1]];
    job.per_batch_group = job.features / p->batch_groups;
    job.per_feature_group = job.features / p->feature_groups;
    double work = (double)tow__buffer_count(out) * (double)job.taps * (double)job.inputs; /* about a nanosecond each */
    tow__team_run(tow__team_for(call->team, work), job.batch * job.positions, body[out->dtype], &job);
}

static const tow__kernel kernels[] = {{"conv_general_dilated", TOW__WIDE_NUMBERS, run_conv, NULL, "reference"}};
const tow__kernel_table tow__reference_conv = {kernels, 1};
