/* Reductions and argmax, one result at a time. The order of reduce.h is kept, so that the vector kernels can be
 * compared bit by bit. */
#include "src/kernels/reductions/reduce.h"

#include "src/kernels/math.h"
#include "src/kernels/reference/by_type.h"
#include "src/kernels/tables.h"

typedef struct reduce_job {
    const tow__kernel_call *call;
    tow__reduction_axes x;
    void (*one)(const struct reduce_job *job, int64_t k);
    int64_t per_block;
} reduce_job;

static void reduce_block(void *user, int64_t block)
{
    const reduce_job *job = user;
    int64_t end = tow__min((block + 1) * job->per_block, job->x.kept.count);
    for (int64_t k = block * job->per_block; k < end; k++) job->one(job, k);
}

static void reduce(const tow__kernel_call *call, void (*one)(const reduce_job *, int64_t))
{
    reduce_job job = {.call = call, .one = one};
    job.x = tow__reduction_axes_of(&call->in[0], &((const tow__axes_params *)call->params)->axes);
    job.per_block = tow__max(1, TOW__BLOCK / tow__max(1, job.x.reduced.count));
    tow__team_run(call->team, tow__ceil_div(job.x.kept.count, job.per_block), reduce_block, &job);
}

/* One result: identity, then every segment. */
#define REDUCE(name, T, identity, COMBINE)                                                                             \
    static void name##_##T(const reduce_job *job, int64_t k)                                                           \
    {                                                                                                                  \
        const tow__strided *r = &job->x.reduced;                                                                       \
        const T *x = (const T *)job->call->in[0].data + tow__strided_offset(&job->x.kept, k);                          \
        T total = (identity);                                                                                          \
        for (int64_t start = 0; start < r->count; start += TOW__SEGMENT) {                                             \
            T lane[TOW__LANES];                                                                                        \
            int64_t n = tow__min(TOW__SEGMENT, r->count - start);                                                      \
            for (int l = 0; l < TOW__LANES; l++) lane[l] = (identity);                                                 \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                int l = (int)(i % TOW__LANES);                                                                         \
                lane[l] = (T)COMBINE(lane[l], x[tow__strided_offset(r, start + i)]);                                   \
            }                                                                                                          \
            for (int half = TOW__LANES / 2; half > 0; half /= 2)                                                       \
                for (int l = 0; l < half; l++) lane[l] = (T)COMBINE(lane[l], lane[l + half]);                          \
            total = start == 0 ? lane[0] : (T)COMBINE(total, lane[0]);                                                 \
        }                                                                                                              \
        ((T *)job->call->out[0].data)[k] = total;                                                                      \
    }
#define ADD(a, b)       ((a) + (b))
#define MUL(a, b)       ((a) * (b))
#define OR(a, b)        ((a) | (b))
#define AND(a, b)       ((a) & (b))
#define XOR(a, b)       ((a) ^ (b))
#define OR_BYTES(a, b)  ((b8)((a) | (b)))
#define AND_BYTES(a, b) ((b8)((a) & (b)))
#define XOR_BYTES(a, b) ((b8)((a) ^ (b)))
#define GREATER(a, b)   ((a) > (b) ? (a) : (b))
#define LESS(a, b)      ((a) < (b) ? (a) : (b))
#define REDUCE_WORDS(T)                                                                                                \
    REDUCE(sum, T, 0, ADD)                                                                                             \
    REDUCE(prod, T, 1, MUL)                                                                                            \
    REDUCE(or, T, 0, OR)                                                                                               \
    REDUCE(xor, T, 0, XOR)                                                                                             \
    REDUCE(and, T, (T)-1, AND)
#define REDUCE_ORDERED(T, LEAST, MOST)                                                                                 \
    REDUCE(max, T, LEAST, GREATER)                                                                                     \
    REDUCE(min, T, MOST, LESS)
#define REDUCE_FLOATS(T)                                                                                               \
    REDUCE(sum, T, 0, ADD)                                                                                             \
    REDUCE(prod, T, 1, MUL)                                                                                            \
    REDUCE(max, T, -(T)INFINITY, tow__max_##T)                                                                         \
    REDUCE(min, T, (T)INFINITY, tow__min_##T)
REDUCE_FLOATS(f32)
REDUCE_FLOATS(f64)
REDUCE_WORDS(u8)
REDUCE_WORDS(u32)
REDUCE_WORDS(u64)
REDUCE_ORDERED(i8, INT8_MIN, INT8_MAX)
REDUCE_ORDERED(u8, 0, UINT8_MAX)
REDUCE_ORDERED(i32, INT32_MIN, INT32_MAX)
REDUCE_ORDERED(u32, 0, UINT32_MAX)
REDUCE_ORDERED(i64, INT64_MIN, INT64_MAX)
REDUCE_ORDERED(u64, 0, UINT64_MAX)
REDUCE(max, b8, 0, OR_BYTES)
REDUCE(min, b8, 1, AND_BYTES)
REDUCE(xor, b8, 0, XOR_BYTES)

#define RUN(name, ...)                                                                                                 \
    static void run_reduce_##name(const tow__kernel_call *call)                                                        \
    {                                                                                                                  \
        static void (*const one[TOW_DTYPE_END])(const reduce_job *, int64_t) = {__VA_ARGS__};                          \
        reduce(call, one[call->in[0].dtype]);                                                                          \
    }
RUN(sum, FLOATS(sum), WORDS(sum))
RUN(prod, FLOATS(prod), WORDS(prod))
RUN(max, FLOATS(max), INTEGERS(max), [TOW_BOOL] = max_b8)
RUN(min, FLOATS(min), INTEGERS(min), [TOW_BOOL] = min_b8)
RUN(or, WORDS(or), [TOW_BOOL] = max_b8)
RUN(and, WORDS(and), [TOW_BOOL] = min_b8)
RUN(xor, WORDS(xor), [TOW_BOOL] = xor_b8)

/* ---- argmax: the first of equal maxima; NaN counts as the largest ----------------------------------------------- */

#define ARGMAX(T)                                                                                                      \
    static void argmax_##T(const reduce_job *job, int64_t k)                                                           \
    {                                                                                                                  \
        const tow__strided *r = &job->x.reduced;                                                                       \
        const T *x = (const T *)job->call->in[0].data + tow__strided_offset(&job->x.kept, k);                          \
        int64_t stride = r->rank > 0 ? r->strides[0] : 0, best = 0;                                                    \
        for (int64_t i = 1; i < r->count; i++) {                                                                       \
            T a = x[i * stride], b = x[best * stride];                                                                 \
            if (a > b || (a != a && b == b)) best = i;                                                                 \
        }                                                                                                              \
        ((i32 *)job->call->out[0].data)[k] = (i32)best;                                                                \
    }
#define X(symbol, T) ARGMAX(T)
ARGMAX(f32)
ARGMAX(f64)
TOW__INTEGER_TYPES(X)
ARGMAX(b8)
#undef X

static void run_argmax(const tow__kernel_call *call)
{
    static void (*const one[TOW_DTYPE_END])(const reduce_job *, int64_t) = {FLOATS(argmax),
                                                                            INTEGERS(argmax), [TOW_BOOL] = argmax_b8};
    const tow__axis_params *p = call->params;
    tow__axes_params axes = {{1, {p->axis}}};
    tow__kernel_call as_reduction = *call;
    as_reduction.params = &axes;
    reduce(&as_reduction, one[call->in[0].dtype]);
}

enum {
    COMPARED = TOW__WIDE_NUMBERS | 1 << TOW_BOOL
};
static const tow__kernel kernels[] = {
    {"argmax", COMPARED, run_argmax, NULL, "reference"},
    {"reduce_and", TOW__BITS, run_reduce_and, NULL, "reference"},
    {"reduce_max", COMPARED, run_reduce_max, NULL, "reference"},
    {"reduce_min", COMPARED, run_reduce_min, NULL, "reference"},
    {"reduce_or", TOW__BITS, run_reduce_or, NULL, "reference"},
    {"reduce_prod", TOW__WIDE_NUMBERS, run_reduce_prod, NULL, "reference"},
    {"reduce_sum", TOW__WIDE_NUMBERS, run_reduce_sum, NULL, "reference"},
    {"reduce_xor", TOW__BITS, run_reduce_xor, NULL, "reference"},
};
const tow__kernel_table tow__reference_reduce = {kernels, sizeof kernels / sizeof kernels[0]};
