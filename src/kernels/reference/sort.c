/* sort, top_k and searchsorted in the plainest way: merge sort of indices that compares elements as they are. */
#include "src/base/params.h"
#include "src/kernels/sorting/keys.h"
#include "src/kernels/tables.h"

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* x[i] < y[j] in the order in which NaNs are equal and last. */
#define LESS_FLOAT(T)                                                                                                  \
    static bool less_##T(const void *x, int64_t i, const void *y, int64_t j)                                           \
    {                                                                                                                  \
        const T a = ((const T *)x)[i], b = ((const T *)y)[j];                                                          \
        return a < b || (a == a && b != b);                                                                            \
    }
#define LESS(T)                                                                                                        \
    static bool less_##T(const void *x, int64_t i, const void *y, int64_t j)                                           \
    {                                                                                                                  \
        return ((const T *)x)[i] < ((const T *)y)[j];                                                                  \
    }
#define LESS_HALF(T)                                                                                                   \
    static bool less_##T(const void *x, int64_t i, const void *y, int64_t j)                                           \
    {                                                                                                                  \
        const f32 a = tow__from_##T(((const T *)x)[i]), b = tow__from_##T(((const T *)y)[j]);                          \
        return less_f32(&a, 0, &b, 0);                                                                                 \
    }
#define X(symbol, T) LESS(T)
LESS_FLOAT(f32)
LESS_FLOAT(f64)
LESS_HALF(bf16)
LESS_HALF(f16)
TOW__INTEGER_TYPES(X)
LESS(b8)
#undef X
static bool (*const less[TOW_DTYPE_END])(const void *, int64_t, const void *, int64_t) = {
#define X(symbol, T) [symbol] = less_##T,
    TOW__DTYPE_TYPES(X)
#undef X
};

static uint64_t total_key(tow_dtype dtype, const void *x, int64_t i)
{
    switch (dtype) {
#define X(symbol, T)                                                                                                   \
    case symbol:                                                                                                       \
        return tow__total_key_##T(((const T *)x)[i]);
        TOW__FLOAT_TYPES(X)
        TOW__INTEGER_TYPES(X)
#undef X
    case TOW_BOOL:
        return ((const b8 *)x)[i];
    case TOW_Q8_0: /* blocks are not sorted */
    case TOW_Q4_0:
    case TOW_Q4_K:
    case TOW_Q6_K:
        break;
    }
    return 0;
}

/* A row of the operands. total: the first operand from its largest element on, in its total order. */
typedef struct row {
    const tow__kernel_call *call;
    int axis;
    int64_t r, num_keys;
    bool total;
} row;

static bool comes_before(const row *w, u32 i, u32 j)
{
    for (int64_t k = 0; k < w->num_keys; k++) {
        const tow__buffer *x = &w->call->in[k];
        const int64_t first = tow__row_offset(x, w->axis, w->r), step = x->strides[w->axis];
        const int64_t a = first + i * step, b = first + j * step;
        if (w->total) return total_key(x->dtype, x->data, a) > total_key(x->dtype, x->data, b);
        if (less[x->dtype](x->data, a, x->data, b)) return true;
        if (less[x->dtype](x->data, b, x->data, a)) return false;
    }
    return false;
}

/* ---- merge sort -------------------------------------------------------------------------------------------------- */

/* The sorted indices, in one of the two arrays. */
static const u32 *merge_sort(const row *w, int64_t n, u32 *a, u32 *b)
{
    for (int64_t i = 0; i < n; i++) a[i] = (u32)i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t first = 0; first < n; first += 2 * width) {
            const int64_t middle = tow__min(first + width, n), end = tow__min(first + 2 * width, n);
            for (int64_t i = first, j = middle, at = first; at < end; at++)
                b[at] = j < end && (i == middle || comes_before(w, a[j], a[i])) ? a[j++] : a[i++];
        }
        u32 *other = a;
        a = b;
        b = other;
    }
    return a;
}

static size_t scratch_of(const tow__kernel_call *call)
{
    const int64_t axis = ((const tow__axis_params *)call->params)->axis;
    return (size_t)call->in[0].dims[axis] * 2 * sizeof(u32);
}

static void store(const row *w, const tow__buffer *y, int64_t i, const tow__buffer *x, int64_t from)
{
    const size_t size = tow__element_bytes(x->dtype);
    const int64_t to = tow__row_offset(y, w->axis, w->r) + i * y->strides[w->axis];
    from = tow__row_offset(x, w->axis, w->r) + from * x->strides[w->axis];
    memcpy((char *)y->data + (size_t)to * size, (const char *)x->data + from * (int64_t)size, size);
}

static void run_sort(const tow__kernel_call *call)
{
    const tow__sort_params *p = call->params;
    row w = {.call = call, .axis = (int)p->axis, .num_keys = p->num_keys};
    const int64_t n = call->in[0].dims[p->axis], rows = tow__row_count(&call->in[0], w.axis);
    u32 *a = call->scratch;
    for (w.r = 0; n > 0 && w.r < rows; w.r++) {
        const u32 *order = merge_sort(&w, n, a, a + n);
        for (size_t k = 0; k < call->n_in; k++)
            for (int64_t i = 0; i < n; i++) store(&w, &call->out[k], i, &call->in[k], order[i]);
    }
}

static void run_top_k(const tow__kernel_call *call)
{
    const tow__top_k_params *p = call->params;
    row w = {.call = call, .axis = (int)p->axis, .num_keys = 1, .total = true};
    const tow__buffer *at = &call->out[1];
    const int64_t n = call->in[0].dims[p->axis], rows = tow__row_count(&call->in[0], w.axis);
    u32 *a = call->scratch;
    for (w.r = 0; n > 0 && w.r < rows; w.r++) {
        const u32 *order = merge_sort(&w, n, a, a + n);
        for (int64_t i = 0; i < p->k; i++) {
            store(&w, &call->out[0], i, &call->in[0], order[i]);
            ((i32 *)at->data)[tow__row_offset(at, w.axis, w.r) + i * at->strides[w.axis]] = (i32)order[i];
        }
    }
}

/* ---- searchsorted ------------------------------------------------------------------------------------------------ */

typedef struct search_job {
    const tow__kernel_call *call;
    tow__strided v;
    bool right;
} search_job;

static void search_block(void *user, int64_t block)
{
    const search_job *job = user;
    const tow__buffer *a = &job->call->in[0];
    bool (*const before)(const void *, int64_t, const void *, int64_t) = less[a->dtype];
    i32 *out = job->call->out[0].data;
    const int64_t end = tow__min((block + 1) * TOW__TILE, job->v.count);
    for (int64_t i = block * TOW__TILE; i < end; i++) {
        const int64_t v = tow__strided_offset(&job->v, i);
        int64_t low = 0, high = a->dims[0];
        while (low < high) {
            const int64_t middle = low + (high - low) / 2, at = middle * a->strides[0];
            const bool beyond = job->right ? before(job->v.data, v, a->data, at) : !before(a->data, at, job->v.data, v);
            if (beyond)
                high = middle;
            else
                low = middle + 1;
        }
        out[i] = (i32)low;
    }
}

static void run_searchsorted(const tow__kernel_call *call)
{
    search_job job = {call, tow__strided_buffer(&call->in[1]), ((const tow__searchsorted_params *)call->params)->right};
    tow__team_run(call->team, tow__ceil_div(job.v.count, TOW__TILE), search_block, &job);
}

static const tow__kernel kernels[] = {
    {"searchsorted", TOW__NUMBERS, run_searchsorted, NULL, "reference"},
    {"sort", TOW__ALL_DTYPES, run_sort, scratch_of, "reference"},
    {"top_k", TOW__NUMBERS, run_top_k, scratch_of, "reference"},
};
const tow__kernel_table tow__reference_sort = {kernels, sizeof kernels / sizeof kernels[0]};
