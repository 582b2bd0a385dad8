/* dot_general one element at a time, straight from its definition: the twin that the mapping onto matrix products is
 * compared with. */
#include "src/base/params.h"
#include "src/kernels/strided.h"
#include "src/kernels/tables.h"

/* Free axes of an operand: neither batch nor contracted, in order. */
static tow__ints free_axes(int rank, const tow__ints *batch, const tow__ints *contract)
{
    tow__ints axes = {0};
    for (int i = 0; i < rank; i++) {
        bool taken = false;
        for (int j = 0; j < batch->n; j++) taken |= batch->v[j] == i;
        for (int j = 0; j < contract->n; j++) taken |= contract->v[j] == i;
        if (!taken) axes.v[axes.n++] = i;
    }
    return axes;
}

static tow__strided axes_view(const tow__buffer *x, const tow__ints *axes)
{
    int64_t dims[TOW_MAX_RANK], strides[TOW_MAX_RANK];
    for (int i = 0; i < axes->n; i++) {
        dims[i] = x->dims[axes->v[i]];
        strides[i] = x->strides[axes->v[i]];
    }
    return tow__strided_of(x->data, x->dtype, axes->n, dims, strides);
}

typedef struct operand {
    tow__strided batch, free, contract;
} operand;
typedef struct dot_job {
    const tow__kernel_call *call;
    operand x, y;
} dot_job;

static operand classify(const tow__buffer *x, const tow__ints *batch, const tow__ints *contract)
{
    tow__ints rest = free_axes(x->rank, batch, contract);
    return (operand){axes_view(x, batch), axes_view(x, &rest), axes_view(x, contract)};
}

#define ROW(T)                                                                                                         \
    static void row_##T(void *user, int64_t row)                                                                       \
    {                                                                                                                  \
        const dot_job *job = user;                                                                                     \
        int64_t batch = row / job->x.free.count, i = row % job->x.free.count, n = job->y.free.count;                   \
        const T *x = (const T *)job->call->in[0].data + tow__strided_offset(&job->x.batch, batch) +                    \
                     tow__strided_offset(&job->x.free, i);                                                             \
        const T *y = (const T *)job->call->in[1].data + tow__strided_offset(&job->y.batch, batch);                     \
        for (int64_t j = 0; j < n; j++) {                                                                              \
            const T *column = y + tow__strided_offset(&job->y.free, j);                                                \
            T sum = 0;                                                                                                 \
            for (int64_t k = 0; k < job->x.contract.count; k++)                                                        \
                sum = (T)(sum + x[tow__strided_offset(&job->x.contract, k)] *                                          \
                                    column[tow__strided_offset(&job->y.contract, k)]);                                 \
            ((T *)job->call->out[0].data)[row * n + j] = sum;                                                          \
        }                                                                                                              \
    }
ROW(f32)
ROW(f64)
ROW(u8)
ROW(u32)
ROW(u64)

static void run_dot_general(const tow__kernel_call *call)
{
    /* Signed products are the unsigned ones. */
    static void (*const body[TOW_DTYPE_END])(void *, int64_t) = {
        [TOW_F32] = row_f32, [TOW_F64] = row_f64, [TOW_I8] = row_u8,   [TOW_U8] = row_u8,
        [TOW_I32] = row_u32, [TOW_U32] = row_u32, [TOW_I64] = row_u64, [TOW_U64] = row_u64};
    const tow__dot_params *p = call->params;
    dot_job job = {call, classify(&call->in[0], &p->lhs_batch, &p->lhs_contract),
                   classify(&call->in[1], &p->rhs_batch, &p->rhs_contract)};
    int64_t rows = job.x.batch.count * job.x.free.count;
    tow__team_run(call->team, rows, body[call->out[0].dtype], &job);
}

/* ---- groups of rows ---------------------------------------------------------------------------------------------- */

/* The group of a row, or -1 behind the last one. */
static int64_t group_of(const tow__buffer *sizes, int64_t row)
{
    for (int64_t i = 0, end = 0; i < sizes->dims[0]; i++) {
        end += tow__max(((const int32_t *)sizes->data)[i * sizes->strides[0]], 0);
        if (row < end) return i;
    }
    return -1;
}

/* x [m, k], y [g, k, n] -> [m, n], a row at a time; x [m, k], y [m, n] -> [g, k, n], a group at a time */
#define RAGGED(T)                                                                                                      \
    static void ragged_row_##T(void *user, int64_t row)                                                                \
    {                                                                                                                  \
        const tow__kernel_call *call = user;                                                                           \
        const tow__buffer *x = &call->in[0], *y = &call->in[1];                                                        \
        const int64_t group = group_of(&call->in[2], row), n = y->dims[2];                                             \
        for (int64_t j = 0; j < n; j++) {                                                                              \
            T sum = 0;                                                                                                 \
            for (int64_t k = 0; k < x->dims[1] && group >= 0; k++)                                                     \
                sum += ((const T *)x->data)[row * x->strides[0] + k * x->strides[1]] *                                 \
                       ((const T *)y->data)[group * y->strides[0] + k * y->strides[1] + j * y->strides[2]];            \
            ((T *)call->out[0].data)[row * n + j] = sum;                                                               \
        }                                                                                                              \
    }                                                                                                                  \
    static void ragged_group_##T(void *user, int64_t group)                                                            \
    {                                                                                                                  \
        const tow__kernel_call *call = user;                                                                           \
        const tow__buffer *x = &call->in[0], *y = &call->in[1];                                                        \
        const int64_t k = x->dims[1], n = y->dims[1];                                                                  \
        for (int64_t i = 0; i < k * n; i++) {                                                                          \
            T sum = 0;                                                                                                 \
            for (int64_t row = 0; row < x->dims[0]; row++)                                                             \
                if (group_of(&call->in[2], row) == group)                                                              \
                    sum += ((const T *)x->data)[row * x->strides[0] + i / n * x->strides[1]] *                         \
                           ((const T *)y->data)[row * y->strides[0] + i % n * y->strides[1]];                          \
            ((T *)call->out[0].data)[group * k * n + i] = sum;                                                         \
        }                                                                                                              \
    }
RAGGED(f32)
RAGGED(f64)

static void run_ragged_dot(const tow__kernel_call *call)
{
    tow__kernel_call own = *call;
    tow__team_run(call->team, call->in[0].dims[0], call->out[0].dtype == TOW_F32 ? ragged_row_f32 : ragged_row_f64,
                  &own);
}

static void run_ragged_dot_contract(const tow__kernel_call *call)
{
    tow__kernel_call own = *call;
    tow__team_run(call->team, call->in[2].dims[0], call->out[0].dtype == TOW_F32 ? ragged_group_f32 : ragged_group_f64,
                  &own);
}

static const tow__kernel kernels[] = {
    {"dot_general", TOW__WIDE_NUMBERS, run_dot_general, NULL, "reference"},
    {"ragged_dot", TOW__WIDE_FLOATS, run_ragged_dot, NULL, "reference"},
    {"ragged_dot_contract", TOW__WIDE_FLOATS, run_ragged_dot_contract, NULL, "reference"},
};
const tow__kernel_table tow__reference_dot = {kernels, sizeof kernels / sizeof kernels[0]};
