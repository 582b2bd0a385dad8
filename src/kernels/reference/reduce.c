/* Reductions and argmax, one result at a time. The order of reduce.h is kept, so that the vector kernels can be
 * compared bit by bit. */
#include "src/kernels/reductions/reduce.h"

#include "src/kernels/math.h"
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
                lane[l] = COMBINE(lane[l], x[tow__strided_offset(r, start + i)]);                                      \
            }                                                                                                          \
            for (int half = TOW__LANES / 2; half > 0; half /= 2)                                                       \
                for (int l = 0; l < half; l++) lane[l] = COMBINE(lane[l], lane[l + half]);                             \
            total = start == 0 ? lane[0] : COMBINE(total, lane[0]);                                                    \
        }                                                                                                              \
        ((T *)job->call->out[0].data)[k] = total;                                                                      \
    }
#define ADD(a, b)       ((a) + (b))
#define MUL(a, b)       ((a) * (b))
#define OR(a, b)        ((a) | (b))
#define AND(a, b)       ((a) & (b))
#define OR_BYTES(a, b)  ((b8)((a) | (b)))
#define AND_BYTES(a, b) ((b8)((a) & (b)))
#define GREATER(a, b)   ((a) > (b) ? (a) : (b))
#define LESS(a, b)      ((a) < (b) ? (a) : (b))
REDUCE(sum, f32, 0, ADD)
REDUCE(sum, f64, 0, ADD)
REDUCE(sum, u32, 0, ADD)
REDUCE(prod, f32, 1, MUL)
REDUCE(prod, f64, 1, MUL)
REDUCE(prod, u32, 1, MUL)
REDUCE(max, f32, -INFINITY, tow__max_f32)
REDUCE(max, f64, -(f64)INFINITY, tow__max_f64)
REDUCE(max, i32, INT32_MIN, GREATER)
REDUCE(max, u32, 0, GREATER)
REDUCE(max, b8, 0, OR_BYTES)
REDUCE(min, f32, INFINITY, tow__min_f32)
REDUCE(min, f64, (f64)INFINITY, tow__min_f64)
REDUCE(min, i32, INT32_MAX, LESS)
REDUCE(min, u32, UINT32_MAX, LESS)
REDUCE(min, b8, 1, AND_BYTES)
REDUCE(or, u32, 0, OR)
REDUCE(or, b8, 0, OR_BYTES)
REDUCE(and, u32, UINT32_MAX, AND)
REDUCE(and, b8, 1, AND_BYTES)

/* Signed sums, products and bit operations are the unsigned ones. */
#define RUN(name, F32, F64, I32, U32, BOOL)                                                                            \
    static void run_reduce_##name(const tow__kernel_call *call)                                                        \
    {                                                                                                                  \
        static void (*const one[])(const reduce_job *, int64_t) = {F32, F64, I32, U32, BOOL};                          \
        reduce(call, one[call->in[0].dtype]);                                                                          \
    }
RUN(sum, sum_f32, sum_f64, sum_u32, sum_u32, NULL)
RUN(prod, prod_f32, prod_f64, prod_u32, prod_u32, NULL)
RUN(max, max_f32, max_f64, max_i32, max_u32, max_b8)
RUN(min, min_f32, min_f64, min_i32, min_u32, min_b8)
RUN(or, NULL, NULL, or_u32, or_u32, or_b8)
RUN(and, NULL, NULL, and_u32, and_u32, and_b8)

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
ARGMAX(f32)
ARGMAX(f64)
ARGMAX(i32)
ARGMAX(u32)
ARGMAX(b8)

static void run_argmax(const tow__kernel_call *call)
{
    static void (*const one[])(const reduce_job *, int64_t) = {argmax_f32, argmax_f64, argmax_i32, argmax_u32,
                                                               argmax_b8};
    const tow__axis_params *p = call->params;
    tow__axes_params axes = {{1, {p->axis}}};
    tow__kernel_call as_reduction = *call;
    as_reduction.params = &axes;
    reduce(&as_reduction, one[call->in[0].dtype]);
}

enum {
    NUMBERS = TOW__FLOATS | 1 << TOW_I32 | 1 << TOW_U32,
    LOGICAL = 1 << TOW_I32 | 1 << TOW_U32 | 1 << TOW_BOOL
};
static const tow__kernel kernels[] = {
    {"argmax", TOW__ALL_DTYPES, run_argmax, NULL, "reference"},
    {"reduce_and", LOGICAL, run_reduce_and, NULL, "reference"},
    {"reduce_max", TOW__ALL_DTYPES, run_reduce_max, NULL, "reference"},
    {"reduce_min", TOW__ALL_DTYPES, run_reduce_min, NULL, "reference"},
    {"reduce_or", LOGICAL, run_reduce_or, NULL, "reference"},
    {"reduce_prod", NUMBERS, run_reduce_prod, NULL, "reference"},
    {"reduce_sum", NUMBERS, run_reduce_sum, NULL, "reference"},
};
const tow__kernel_table tow__reference_reduce = {kernels, sizeof kernels / sizeof kernels[0]};
