/* sort and top_k.
 *
 * sort: pairs of a key (upper 32 bits) and the index of its element (lower 32 bits) go through a stable radix sort by
 * bytes, once for every 32 bits of every key, from the last key to the first and from low bits to high. Then each
 * operand is read in the order of the indices. Rows are shared by threads; a row belongs to one thread.
 *
 * top_k: a heap of the k best so far, with the worst of them at the root. */
#include "src/base/params.h"
#include "src/kernels/sorting/keys.h"
#include "src/kernels/tables.h"

enum {
    FEW = 24, /* pairs that are sorted by insertion */
    DIGIT = 256
};

typedef uint64_t pair;

static inline u32 index_of(pair p) { return (u32)p; }

/* Rows are looked at in pieces of so many elements, between which a cancelled run ends. */
enum {
    PIECE = 1 << 20
};

/* ---- sorting pairs by their upper halves, stably ----------------------------------------------------------------- */

static void insertion_sort(int64_t n, pair *a)
{
    for (int64_t i = 1; i < n; i++) {
        pair p = a[i];
        int64_t at = i;
        for (; at > 0 && a[at - 1] >> 32 > p >> 32; at--) a[at] = a[at - 1];
        a[at] = p;
    }
}

static bool in_order(int64_t n, const pair *a)
{
    for (int64_t i = 1; i < n; i++)
        if (a[i - 1] >> 32 > a[i] >> 32) return false;
    return true;
}

/* Passes in which all digits are equal are left out. The result is in *a; *a and *spare change places. */
static void radix_sort(int64_t n, pair **a, pair **spare)
{
    u32 counts[4][DIGIT] = {{0}};
    for (int64_t i = 0; i < n; i++)
        for (int d = 0; d < 4; d++) counts[d][(*a)[i] >> (32 + 8 * d) & (DIGIT - 1)]++;
    for (int d = 0; d < 4; d++) {
        const int shift = 32 + 8 * d;
        pair *from = *a, *to = *spare;
        u32 sum = 0;
        if (counts[d][from[0] >> shift & (DIGIT - 1)] == n) continue;
        for (int i = 0; i < DIGIT; i++) {
            u32 count = counts[d][i];
            counts[d][i] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++) {
            if (i % PIECE == PIECE - 1 && tow__cancelled()) return;
            to[counts[d][from[i] >> shift & (DIGIT - 1)]++] = from[i];
        }
        *a = to;
        *spare = from;
    }
}

static void sort_pairs(int64_t n, pair **a, pair **spare)
{
    if (n <= FEW)
        insertion_sort(n, *a);
    else if (!in_order(n, *a))
        radix_sort(n, a, spare);
}

/* ---- by type: keys, and reading in order ------------------------------------------------------------------------- */

#define TYPE(T)                                                                                                        \
    /* The word of each element's key from bit `shift` on. */                                                          \
    static void key_##T(int64_t n, pair *a, const void *data, int64_t stride, int shift)                               \
    {                                                                                                                  \
        const T *x = data;                                                                                             \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            u32 at = index_of(a[i]);                                                                                   \
            a[i] = (tow__sort_key_##T(x[(int64_t)at * stride]) >> shift) << 32 | at;                                   \
        }                                                                                                              \
    }                                                                                                                  \
    static void read_##T(int64_t n, const pair *a, void *out, int64_t out_stride, const void *data, int64_t stride)    \
    {                                                                                                                  \
        const T *x = data;                                                                                             \
        T *y = out;                                                                                                    \
        for (int64_t i = 0; i < n; i++) y[i * out_stride] = x[(int64_t)index_of(a[i]) * stride];                       \
    }
#define X(symbol, T) TYPE(T)
TOW__DTYPE_TYPES(X)
#undef X
#undef TYPE

static const struct {
    void (*key)(int64_t n, pair *a, const void *data, int64_t stride, int shift);
    void (*read)(int64_t n, const pair *a, void *out, int64_t out_stride, const void *data, int64_t stride);
} types[TOW_DTYPE_END] = {
#define X(symbol, T) [symbol] = {key_##T, read_##T},
    TOW__DTYPE_TYPES(X)
#undef X
};

static const char *row_of(const tow__buffer *b, int axis, int64_t r)
{
    return (const char *)b->data + tow__row_offset(b, axis, r) * (int64_t)tow__element_bytes(b->dtype);
}

/* ---- sort -------------------------------------------------------------------------------------------------------- */

typedef struct sort_job {
    const tow__kernel_call *call;
    int axis;
    int64_t n, rows, per_block, num_keys;
} sort_job;

static size_t pairs_bytes(int64_t n) { return ((size_t)n * 2 * sizeof(pair) + 63) / 64 * 64; }

static size_t scratch_sort(const tow__kernel_call *call)
{
    return pairs_bytes(call->in[0].dims[((const tow__sort_params *)call->params)->axis]) * (size_t)tow__threads(call);
}

static void sort_row(const sort_job *job, int64_t r, pair *a, pair *spare)
{
    const tow__kernel_call *call = job->call;
    const int64_t n = job->n;
    for (int64_t i = 0; i < n; i++) a[i] = (pair)i;
    for (int64_t k = job->num_keys - 1; k >= 0; k--) {
        const tow__buffer *x = &call->in[k];
        const char *row = row_of(x, job->axis, r);
        for (int shift = 0; shift < 8 * (int)tow__element_bytes(x->dtype); shift += 32) {
            if (tow__cancelled()) return;
            types[x->dtype].key(n, a, row, x->strides[job->axis], shift);
            sort_pairs(n, &a, &spare);
        }
    }
    for (size_t i = 0; i < call->n_in; i++) {
        const tow__buffer *x = &call->in[i], *y = &call->out[i];
        if (tow__cancelled()) return;
        types[x->dtype].read(n, a, (char *)(uintptr_t)row_of(y, job->axis, r), y->strides[job->axis],
                             row_of(x, job->axis, r), x->strides[job->axis]);
    }
}

static void sort_block(void *user, int64_t block)
{
    const sort_job *job = user;
    pair *a = tow__scratch_of_thread(job->call->scratch, pairs_bytes(job->n));
    const int64_t end = tow__min((block + 1) * job->per_block, job->rows);
    for (int64_t r = block * job->per_block; r < end; r++) sort_row(job, r, a, a + job->n);
}

static void run_sort(const tow__kernel_call *call)
{
    const tow__sort_params *p = call->params;
    const tow__buffer *x = &call->in[0];
    sort_job job = {.call = call, .axis = (int)p->axis, .n = x->dims[p->axis], .num_keys = p->num_keys};
    job.rows = tow__row_count(x, job.axis);
    if (job.n == 0 || job.rows == 0) return;
    job.per_block = tow__max(1, TOW__BLOCK / job.n);
    tow__team_run(call->team, tow__ceil_div(job.rows, job.per_block), sort_block, &job);
}

/* ---- top_k ------------------------------------------------------------------------------------------------------- */

typedef struct ranked {
    uint64_t key;
    u32 index;
} ranked;

/* a comes behind b: it is smaller, or equal and later. */
static inline bool is_behind(ranked a, ranked b) { return a.key != b.key ? a.key < b.key : a.index > b.index; }

/* heap[0..n) has every element behind its children, but for heap[at]. */
static void sink(ranked *heap, int64_t n, int64_t at)
{
    const ranked moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_behind(heap[child + 1], heap[child])) child++;
        if (!is_behind(heap[child], moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* The k best of n elements, in order, to heap. */
#define TOP(T)                                                                                                         \
    static void top_##T(int64_t n, int64_t k, const void *data, int64_t stride, ranked *heap)                          \
    {                                                                                                                  \
        const T *x = data;                                                                                             \
        for (int64_t i = 0; i < k; i++) heap[i] = (ranked){tow__total_key_##T(x[i * stride]), (u32)i};                 \
        for (int64_t i = k / 2 - 1; i >= 0; i--) sink(heap, k, i);                                                     \
        for (int64_t i = k; i < n; i++) {                                                                              \
            const uint64_t key = tow__total_key_##T(x[i * stride]);                                                    \
            if (key <= heap[0].key) continue;                                                                          \
            heap[0] = (ranked){key, (u32)i};                                                                           \
            sink(heap, k, 0);                                                                                          \
        }                                                                                                              \
        for (int64_t last = k - 1; last > 0; last--) {                                                                 \
            const ranked worst = heap[0];                                                                              \
            heap[0] = heap[last];                                                                                      \
            heap[last] = worst;                                                                                        \
            sink(heap, last, 0);                                                                                       \
        }                                                                                                              \
    }
#define X(symbol, T) TOP(T)
TOW__FLOAT_TYPES(X)
TOW__INTEGER_TYPES(X)
#undef X
#undef TOP

typedef struct top_k_job {
    const tow__kernel_call *call;
    int axis;
    int64_t n, k, rows, per_block;
} top_k_job;

static size_t heap_bytes(int64_t k) { return ((size_t)k * sizeof(ranked) + 63) / 64 * 64; }

static size_t scratch_top_k(const tow__kernel_call *call)
{
    return heap_bytes(((const tow__top_k_params *)call->params)->k) * (size_t)tow__threads(call);
}

static void top_k_row(const top_k_job *job, int64_t r, ranked *heap)
{
    static void (*const top[TOW_DTYPE_END])(int64_t, int64_t, const void *, int64_t, ranked *) = {
#define X(symbol, T) [symbol] = top_##T,
        TOW__FLOAT_TYPES(X) TOW__INTEGER_TYPES(X)
#undef X
    };
    const tow__buffer *x = &job->call->in[0], *y = &job->call->out[0], *at = &job->call->out[1];
    const size_t size = tow__element_bytes(x->dtype);
    const int64_t step = x->strides[job->axis], to = y->strides[job->axis], at_to = at->strides[job->axis];
    const char *row = row_of(x, job->axis, r);
    char *values = (char *)(uintptr_t)row_of(y, job->axis, r);
    i32 *indices = (i32 *)(uintptr_t)row_of(at, job->axis, r);
    top[x->dtype](job->n, job->k, row, step, heap);
    for (int64_t i = 0; i < job->k; i++) {
        memcpy(values + i * to * (int64_t)size, row + (int64_t)heap[i].index * step * (int64_t)size, size);
        indices[i * at_to] = (i32)heap[i].index;
    }
}

static void top_k_block(void *user, int64_t block)
{
    const top_k_job *job = user;
    ranked *heap = tow__scratch_of_thread(job->call->scratch, heap_bytes(job->k));
    const int64_t end = tow__min((block + 1) * job->per_block, job->rows);
    for (int64_t r = block * job->per_block; r < end; r++) top_k_row(job, r, heap);
}

static void run_top_k(const tow__kernel_call *call)
{
    const tow__top_k_params *p = call->params;
    const tow__buffer *x = &call->in[0];
    top_k_job job = {.call = call, .axis = (int)p->axis, .n = x->dims[p->axis], .k = p->k};
    job.rows = tow__row_count(x, job.axis);
    if (job.k == 0 || job.rows == 0) return;
    job.per_block = tow__max(1, TOW__BLOCK / job.n);
    tow__team_run(call->team, tow__ceil_div(job.rows, job.per_block), top_k_block, &job);
}

static const tow__kernel kernels[] = {
    {"sort", TOW__ALL_DTYPES, run_sort, scratch_sort, "radix"},
    {"top_k", TOW__NUMBERS, run_top_k, scratch_top_k, "heap"},
};
const tow__kernel_table tow__kernels_sort = {kernels, sizeof kernels / sizeof kernels[0]};
