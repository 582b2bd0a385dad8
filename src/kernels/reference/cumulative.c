/* Cumulative operations: y[t] = y[t-1] + x[t] along the axis, or from the end, in this order, so that every kernel has
 * these bits. */
#include "src/base/params.h"
#include "src/kernels/math.h"
#include "src/kernels/math_f32.h"
#include "src/kernels/reference/by_type.h"
#include "src/kernels/tables.h"

typedef struct cumulative_job {
    tow__strided x;
    char *out;
    int64_t length, inner;
    int64_t piece; /* steps between looks whether the run is cancelled */
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
        for (int64_t t = 1; t < job->length; t++, row += step) {                                                       \
            if (t % job->piece == 0 && tow__cancelled()) return;                                                       \
            for (int64_t i = 0; i < job->inner; i++) y[row + step + i] = (T)COMBINE(y[row + i], y[row + step + i]);    \
        }                                                                                                              \
    }
#define CUMULATIVE_WORDS(T)                                                                                            \
    CUMULATIVE(sum, T, ADD)                                                                                            \
    CUMULATIVE(prod, T, MULTIPLY)
#define CUMULATIVE_ORDERED(symbol, T)                                                                                  \
    CUMULATIVE(max, T, GREATER)                                                                                        \
    CUMULATIVE(min, T, LESS)
#define CUMULATIVE_FLOATS(T)                                                                                           \
    CUMULATIVE_WORDS(T)                                                                                                \
    CUMULATIVE(max, T, tow__max_##T)                                                                                   \
    CUMULATIVE(min, T, tow__min_##T)                                                                                   \
    CUMULATIVE(logsumexp, T, logaddexp_##T)
CUMULATIVE_FLOATS(f32)
CUMULATIVE_FLOATS(f64)
CUMULATIVE_WORDS(u8)
CUMULATIVE_WORDS(u32)
CUMULATIVE_WORDS(u64)
TOW__INTEGER_TYPES(CUMULATIVE_ORDERED)

static void run(const tow__kernel_call *call, void (*const body[])(void *, int64_t))
{
    const tow__cumsum_params *p = call->params;
    const tow__buffer *out = &call->out[0];
    cumulative_job job = {.out = out->data, .length = out->dims[p->axis], .inner = 1, .reverse = p->reverse};
    job.x = tow__strided_buffer(&call->in[0]);
    for (int i = (int)p->axis + 1; i < out->rank; i++) job.inner *= out->dims[i];
    job.piece = tow__max(1, 65536 / tow__max(1, job.inner));
    if (job.x.count > 0) tow__team_run(call->team, job.x.count / (job.length * job.inner), body[out->dtype], &job);
}

#define RUN(name, ...)                                                                                                 \
    static void run_cum##name(const tow__kernel_call *call)                                                            \
    {                                                                                                                  \
        static void (*const body[TOW_DTYPE_COUNT])(void *, int64_t) = {__VA_ARGS__};                                   \
        run(call, body);                                                                                               \
    }
RUN(sum, FLOATS(sum), WORDS(sum))
RUN(prod, FLOATS(prod), WORDS(prod))
RUN(max, FLOATS(max), INTEGERS(max))
RUN(min, FLOATS(min), INTEGERS(min))
RUN(logsumexp, FLOATS(logsumexp))

enum {
    NUMBERS = TOW__WIDE_NUMBERS
};
static const tow__kernel kernels[] = {
    {"cumlogsumexp", TOW__WIDE_FLOATS, run_cumlogsumexp, NULL, "reference"},
    {"cummax", NUMBERS, run_cummax, NULL, "reference"},
    {"cummin", NUMBERS, run_cummin, NULL, "reference"},
    {"cumprod", NUMBERS, run_cumprod, NULL, "reference"},
    {"cumsum", NUMBERS, run_cumsum, NULL, "reference"},
};
const tow__kernel_table tow__reference_cumulative = {kernels, sizeof kernels / sizeof kernels[0]};
