/* Cumulative operations: y[t] = y[t-1] + x[t] along the axis, or from the end, in this order, so that every kernel has
 * these bits. */
#include "src/base/params.h"
#include "src/kernels/math.h"
#include "src/kernels/math_f32.h"
#include "src/kernels/tables.h"

typedef struct cumulative_job {
    tow__strided x;
    char *out;
    int64_t length, inner;
    bool reverse;
} cumulative_job;

#define ADD(a, b)      ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define GREATER(a, b)  ((a) > (b) ? (a) : (b))
#define LESS(a, b)     ((a) < (b) ? (a) : (b))

/* m + log1p(exp(-|a - b|)); the difference of equal infinities is no number */
static f32 logaddexp_f32(f32 a, f32 b)
{
    f32 d = a - b;
    return d != d ? a + b : tow__max_f32(a, b) + tow__log1p_f32(tow__exp_f32(-fabsf(d)));
}
static f64 logaddexp_f64(f64 a, f64 b)
{
    f64 d = a - b;
    return d != d ? a + b : tow__max_f64(a, b) + log1p(exp(-fabs(d)));
}

#define CUMULATIVE(name, T, COMBINE)                                                                                   \
    static void name##_##T(void *user, int64_t outer)                                                                  \
    {                                                                                                                  \
        const cumulative_job *job = user;                                                                              \
        int64_t base = outer * job->length * job->inner, step = job->reverse ? -job->inner : job->inner;               \
        T *y = (T *)(void *)job->out;                                                                                  \
        tow__strided_read(&job->x, base, job->length * job->inner, y + base);                                          \
        int64_t row = job->reverse ? base + (job->length - 1) * job->inner : base;                                     \
        for (int64_t t = 1; t < job->length; t++, row += step)                                                         \
            for (int64_t i = 0; i < job->inner; i++) y[row + step + i] = COMBINE(y[row + i], y[row + step + i]);       \
    }
CUMULATIVE(sum, f32, ADD)
CUMULATIVE(sum, f64, ADD)
CUMULATIVE(sum, u32, ADD)
CUMULATIVE(prod, f32, MULTIPLY)
CUMULATIVE(prod, f64, MULTIPLY)
CUMULATIVE(prod, u32, MULTIPLY)
CUMULATIVE(max, f32, tow__max_f32)
CUMULATIVE(max, f64, tow__max_f64)
CUMULATIVE(max, i32, GREATER)
CUMULATIVE(max, u32, GREATER)
CUMULATIVE(min, f32, tow__min_f32)
CUMULATIVE(min, f64, tow__min_f64)
CUMULATIVE(min, i32, LESS)
CUMULATIVE(min, u32, LESS)
CUMULATIVE(logsumexp, f32, logaddexp_f32)
CUMULATIVE(logsumexp, f64, logaddexp_f64)

static void run(const tow__kernel_call *call, void (*const body[])(void *, int64_t))
{
    const tow__cumsum_params *p = call->params;
    const tow__buffer *out = &call->out[0];
    cumulative_job job = {.out = out->data, .length = out->dims[p->axis], .inner = 1, .reverse = p->reverse};
    job.x = tow__strided_buffer(&call->in[0]);
    for (int i = (int)p->axis + 1; i < out->rank; i++) job.inner *= out->dims[i];
    if (job.x.count > 0) tow__team_run(call->team, job.x.count / (job.length * job.inner), body[out->dtype], &job);
}

/* Signed sums and products are the unsigned ones. */
#define RUN(name, ...)                                                                                                 \
    static void run_cum##name(const tow__kernel_call *call)                                                            \
    {                                                                                                                  \
        static void (*const body[])(void *, int64_t) = {__VA_ARGS__};                                                  \
        run(call, body);                                                                                               \
    }
RUN(sum, sum_f32, sum_f64, sum_u32, sum_u32)
RUN(prod, prod_f32, prod_f64, prod_u32, prod_u32)
RUN(max, max_f32, max_f64, max_i32, max_u32)
RUN(min, min_f32, min_f64, min_i32, min_u32)
RUN(logsumexp, logsumexp_f32, logsumexp_f64)

enum {
    NUMBERS = TOW__FLOATS | 1 << TOW_I32 | 1 << TOW_U32
};
static const tow__kernel kernels[] = {
    {"cumlogsumexp", TOW__FLOATS, run_cumlogsumexp, NULL, "reference"},
    {"cummax", NUMBERS, run_cummax, NULL, "reference"},
    {"cummin", NUMBERS, run_cummin, NULL, "reference"},
    {"cumprod", NUMBERS, run_cumprod, NULL, "reference"},
    {"cumsum", NUMBERS, run_cumsum, NULL, "reference"},
};
const tow__kernel_table tow__reference_cumulative = {kernels, sizeof kernels / sizeof kernels[0]};
