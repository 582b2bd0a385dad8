/* gather_general and the scatters: windows of an array at computed places.
 *
 *   array [x]     <- windows at computed places ->     windows [batch axes and window axes, in any order]
 *
 * Both walk the batch axes in row-major order, with the offsets in the array, in the windows and in the indices side by
 * side, and treat each window as a strided block. A gather shares batches among threads. A scatter, whose order defines
 * what stays and the bits of sums, shares one axis along which windows cannot meet: a batching axis, or an axis of the
 * window without computed places; if there is none, it runs on the caller. */
#include <string.h>

#include "src/base/blocks.h"
#include "src/base/params.h"
#include "src/kernels/math.h"
#include "src/kernels/tables.h"

/* to[i] = to[i] op from[i] */
typedef void (*combine)(int64_t n, void *to, int64_t to_step, const void *from, int64_t from_step);

typedef struct axis_steps {
    int64_t size, array, windows, indices; /* steps in elements */
    bool alone;                            /* windows at two places of this axis do not meet */
} axis_steps;

typedef struct windows {
    int n_batch, n_window, n_index;
    axis_steps batch[TOW_MAX_RANK], window[TOW_MAX_RANK];
    int64_t count; /* of batches */
    /* Elements of the index vectors: steps in the array; the largest start with which the window lies inside. */
    int64_t step[TOW_MAX_RANK], most[TOW_MAX_RANK], index_step;
    tow_dtype index_dtype;
    bool clip;
    char *array;
    const char *indices;
    size_t size; /* of an element */
} windows;

/* The lists of dimension numbers of both primitives. */
typedef struct numbers {
    const tow__ints *window, *collapsed, *batching, *indices_batching, *index_map;
} numbers;

/* array: what is read or written at computed places; w: its windows. */
static windows windows_between(const tow__buffer *array, const tow__buffer *indices, const tow__buffer *w, numbers n)
{
    windows s = {.index_dtype = indices->dtype, .array = array->data, .indices = indices->data, .count = 1};
    int64_t sizes[TOW_MAX_RANK];
    s.size = tow__element_bytes(array->dtype);
    for (int d = 0; d < array->rank; d++) sizes[d] = 1;
    for (int d = 0, axis = 0; d < w->rank; d++) {
        if (!tow__ints_contain(n.window, d)) {
            s.batch[s.n_batch] = (axis_steps){w->dims[d], 0, w->strides[d], indices->strides[s.n_batch], false};
            s.count *= w->dims[d];
            s.n_batch++;
            continue;
        }
        while (tow__ints_contain(n.collapsed, axis) || tow__ints_contain(n.batching, axis)) axis++;
        const bool alone = !tow__ints_contain(n.index_map, axis);
        s.window[s.n_window++] = (axis_steps){w->dims[d], array->strides[axis], w->strides[d], 0, alone};
        sizes[axis++] = w->dims[d];
    }
    for (int i = 0; i < n.batching->n; i++) {
        axis_steps *b = &s.batch[n.indices_batching->v[i]];
        b->array = array->strides[n.batching->v[i]];
        b->alone = true;
    }
    s.n_index = n.index_map->n;
    s.index_step = indices->strides[indices->rank - 1];
    for (int i = 0; i < s.n_index; i++) {
        const int64_t axis = n.index_map->v[i];
        s.step[i] = array->strides[axis];
        s.most[i] = array->dims[axis] - sizes[axis];
    }
    return s;
}

/* Axes of the window that follow each other in both arrays become one; those of size 1 vanish. */
static void merge_window(windows *s)
{
    int n = 0;
    for (int d = 0; d < s->n_window; d++) {
        const axis_steps a = s->window[d];
        axis_steps *last = n > 0 ? &s->window[n - 1] : NULL;
        if (a.size == 1) continue;
        if (last && last->array == a.array * a.size && last->windows == a.windows * a.size)
            *last = (axis_steps){last->size * a.size, a.array, a.windows, 0, false};
        else
            s->window[n++] = a;
    }
    s->n_window = n;
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

typedef struct walk {
    int64_t at[TOW_MAX_RANK], array, windows, indices; /* of the batch; offsets in elements */
} walk;

static walk walk_from(const windows *s, int64_t batch)
{
    walk w = {.array = 0};
    for (int d = s->n_batch - 1; d >= 0; d--) {
        const axis_steps *a = &s->batch[d];
        w.at[d] = batch % a->size;
        batch /= a->size;
        w.array += w.at[d] * a->array;
        w.windows += w.at[d] * a->windows;
        w.indices += w.at[d] * a->indices;
    }
    return w;
}

static void walk_on(const windows *s, walk *w)
{
    for (int d = s->n_batch - 1; d >= 0; d--) {
        const axis_steps *a = &s->batch[d];
        const int64_t by = ++w->at[d] < a->size ? 1 : 1 - a->size;
        w->array += by * a->array;
        w->windows += by * a->windows;
        w->indices += by * a->indices;
        if (by == 1) return;
        w->at[d] = 0;
    }
}

/* The offset of the window in the array; clamped: moved so that it lies inside; else false if it does not. */
static bool window_start(const windows *s, const walk *w, bool clamped, int64_t *offset)
{
    *offset = w->array;
    for (int i = 0; i < s->n_index; i++) {
        const int64_t start = tow__load_index(s->indices, s->index_dtype, w->indices + i * s->index_step);
        if (!clamped && (start < 0 || start > s->most[i])) return false;
        *offset += tow__max(0, tow__min(start, s->most[i])) * s->step[i];
    }
    return true;
}

/* Combines one window: to[...] op from[...], the last axis in runs. to_array: `to` is the array. */
static void combine_window(const windows *s, combine run, char *to, const char *from, bool to_array, bool repeat)
{
    int64_t at[TOW_MAX_RANK] = {0};
    const int last = s->n_window - 1;
    const int64_t size = (int64_t)s->size;
    if (last < 0) {
        run(1, to, 1, from, 1);
        return;
    }
    for (;;) {
        const axis_steps *a = &s->window[last];
        run(a->size, to, to_array ? a->array : a->windows, from, repeat ? 0 : to_array ? a->windows : a->array);
        int d = last - 1;
        for (; d >= 0; d--) {
            a = &s->window[d];
            const int64_t by = ++at[d] < a->size ? 1 : 1 - a->size;
            to += by * (to_array ? a->array : a->windows) * size;
            if (!repeat) from += by * (to_array ? a->windows : a->array) * size;
            if (by == 1) break;
            at[d] = 0;
        }
        if (d < 0) return;
    }
}

/* ---- what is done with elements ---------------------------------------------------------------------------------- */

#define COMBINE(name, T, expression)                                                                                   \
    static void name##_##T(int64_t n, void *to, int64_t to_step, const void *from, int64_t from_step)                  \
    {                                                                                                                  \
        T *px = to;                                                                                                    \
        const T *py = from;                                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T x = px[i * to_step], y = py[i * from_step];                                                        \
            (void)x;                                                                                                   \
            px[i * to_step] = (expression);                                                                            \
        }                                                                                                              \
    }
#define COPY(T)                                                                                                        \
    static void copy_##T(int64_t n, void *to, int64_t to_step, const void *from, int64_t from_step)                    \
    {                                                                                                                  \
        if (to_step == 1 && from_step == 1)                                                                            \
            memcpy(to, from, (size_t)n * sizeof(T));                                                                   \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) ((T *)to)[i * to_step] = ((const T *)from)[i * from_step];                 \
    }
COPY(b8)
COPY(uint16_t)
COPY(u32)
COPY(uint64_t)
#define BLOCKS(type)                                                                                                   \
    typedef tow__##type type;                                                                                          \
    COPY(type)
BLOCKS(q8_0)
BLOCKS(q4_0)
BLOCKS(q4_k)
BLOCKS(q6_k)
#define COMBINE_INTEGERS(T)                                                                                            \
    COMBINE(min, T, x < y ? x : y)                                                                                     \
    COMBINE(max, T, x > y ? x : y)
#define COMBINE_WRAPPING(T)                                                                                            \
    COMBINE(add, T, (T)(x + y))                                                                                        \
    COMBINE(mul, T, (T)((T)x * y))                                                                                     \
    COMBINE_INTEGERS(T)
COMBINE(add, f32, x + y)
COMBINE(add, f64, x + y)
COMBINE(mul, f32, x *y)
COMBINE(mul, f64, x *y)
COMBINE(min, f32, tow__min_f32(x, y))
COMBINE(min, f64, tow__min_f64(x, y))
COMBINE(max, f32, tow__max_f32(x, y))
COMBINE(max, f64, tow__max_f64(x, y))
COMBINE_WRAPPING(u8)
COMBINE_WRAPPING(u32)
COMBINE_WRAPPING(u64)
COMBINE_INTEGERS(i8)
COMBINE_INTEGERS(i32)
COMBINE_INTEGERS(i64)

static combine copy_of(tow_dtype dtype)
{
    const size_t size = tow__element_bytes(dtype);
    static const combine of_blocks[TOW__DTYPE_LIMIT] = {
        [TOW_Q8_0] = copy_q8_0, [TOW_Q4_0] = copy_q4_0, [TOW_Q4_K] = copy_q4_k, [TOW_Q6_K] = copy_q6_k};
    if (tow__is_blocks(dtype)) return of_blocks[dtype];
    return size == 1 ? copy_b8 : size == 2 ? copy_uint16_t : size == 4 ? copy_u32 : copy_uint64_t;
}

/* ---- gather ------------------------------------------------------------------------------------------------------ */

typedef struct gather_job {
    windows s;
    char *out;
    bool fill;
    uint64_t fill_value; /* its bytes come first */
    combine copy;
    int64_t per_block;
} gather_job;

static void gather_block(void *user, int64_t block)
{
    const gather_job *job = user;
    const windows *s = &job->s;
    const int64_t size = (int64_t)s->size, first = block * job->per_block;
    const int64_t end = tow__min(first + job->per_block, s->count);
    walk w = walk_from(s, first);
    for (int64_t b = first; b < end; b++, walk_on(s, &w)) {
        int64_t start;
        const bool missing = !window_start(s, &w, !job->fill, &start);
        combine_window(s, job->copy, job->out + w.windows * size,
                       missing ? (const char *)&job->fill_value : s->array + start * size, false, missing);
    }
}

static uint64_t fill_bits(tow_dtype dtype, double value)
{
    uint64_t bits = 0;
    tow__store_element(dtype, &bits, 0, value);
    return bits;
}

static void run_gather_general(const tow__kernel_call *call)
{
    const tow__gather_params *p = call->params;
    const tow__buffer *x = &call->in[0], *out = &call->out[0];
    const numbers n = {&p->offset_dims, &p->collapsed_slice_dims, &p->operand_batching_dims,
                       &p->start_indices_batching_dims, &p->start_index_map};
    gather_job job = {.s = windows_between(x, &call->in[1], out, n), .out = out->data, .fill = p->fill};
    const int64_t count = tow__buffer_count(out);
    if (count == 0) return;
    merge_window(&job.s);
    job.fill_value = fill_bits(x->dtype, p->fill_value);
    job.copy = copy_of(x->dtype);
    job.per_block = tow__max(1, TOW__BLOCK / (count / job.s.count));
    tow__team_run(call->team, tow__ceil_div(job.s.count, job.per_block), gather_block, &job);
}

/* ---- scatter ----------------------------------------------------------------------------------------------------- */

typedef struct scatter_job {
    windows s;
    const char *updates;
    combine run;
    int batch, window; /* the axis that blocks share, one of both; -1: it is none of these */
    int64_t parts;
} scatter_job;

static void scatter_block(void *user, int64_t block)
{
    const scatter_job *job = user;
    const int64_t size = (int64_t)job->s.size;
    windows s = job->s;
    const char *updates = job->updates;
    if (job->batch >= 0 || job->window >= 0) {
        axis_steps *a = job->batch >= 0 ? &s.batch[job->batch] : &s.window[job->window];
        const int64_t first = block * a->size / job->parts, end = (block + 1) * a->size / job->parts;
        s.array += first * a->array * size;
        s.indices += first * a->indices * (int64_t)tow__element_bytes(s.index_dtype);
        updates += first * a->windows * size;
        if (job->batch >= 0) s.count = s.count / a->size * (end - first);
        a->size = end - first;
    }
    merge_window(&s);
    walk w = walk_from(&s, 0);
    for (int64_t b = 0; b < s.count; b++, walk_on(&s, &w)) {
        int64_t start;
        if (b % 4096 == 4095 && tow__cancelled()) return;
        if (!window_start(&s, &w, s.clip, &start)) continue;
        combine_window(&s, job->run, s.array + start * size, updates + w.windows * size, true, false);
    }
}

/* The largest axis along which windows do not meet; gives its size. */
static int64_t pick_axis(scatter_job *job)
{
    int64_t size = 0;
    job->batch = job->window = -1;
    for (int d = 0; d < job->s.n_batch; d++) {
        if (!job->s.batch[d].alone || job->s.batch[d].size <= size) continue;
        size = job->s.batch[d].size;
        job->batch = d;
    }
    for (int d = 0; d < job->s.n_window; d++) {
        if (!job->s.window[d].alone || job->s.window[d].size <= size) continue;
        size = job->s.window[d].size;
        job->batch = -1;
        job->window = d;
    }
    return size;
}

static void scatter(const tow__kernel_call *call, combine run)
{
    const tow__scatter_params *p = call->params;
    const tow__buffer *out = &call->out[0], *updates = &call->in[2];
    const numbers n = {&p->update_window_dims, &p->inserted_window_dims, &p->operand_batching_dims,
                       &p->scatter_indices_batching_dims, &p->scatter_dims_to_operand_dims};
    if (call->in[0].data != out->data) {
        tow__strided to = tow__strided_buffer(out), from = tow__strided_buffer(&call->in[0]);
        tow__strided_store(call->team, &to, &from);
    }
    const int64_t count = tow__buffer_count(updates);
    if (count == 0) return;
    scatter_job job = {.s = windows_between(out, &call->in[1], updates, n), .updates = updates->data, .run = run};
    job.s.clip = p->clip;
    job.parts = tow__max(1, tow__min(pick_axis(&job), tow__ceil_div(count, TOW__BLOCK)));
    tow__team_run(call->team, job.parts, scatter_block, &job);
}

/* Sums and products of signed numbers are those of unsigned ones. */
#define SCATTER(name, I8, I32, I64)                                                                                    \
    static void run_##name(const tow__kernel_call *call)                                                               \
    {                                                                                                                  \
        static const combine by_type[TOW_DTYPE_END] = {                                                                \
            [TOW_F32] = name##_f32, [TOW_F64] = name##_f64, [TOW_I8] = I8,   [TOW_U8] = name##_u8,                     \
            [TOW_I32] = I32,        [TOW_U32] = name##_u32, [TOW_I64] = I64, [TOW_U64] = name##_u64};                  \
        scatter(call, by_type[call->in[0].dtype]);                                                                     \
    }
SCATTER(add, add_u8, add_u32, add_u64)
SCATTER(mul, mul_u8, mul_u32, mul_u64)
SCATTER(min, min_i8, min_i32, min_i64)
SCATTER(max, max_i8, max_i32, max_i64)

static void run_set(const tow__kernel_call *call) { scatter(call, copy_of(call->in[0].dtype)); }

enum {
    NUMBERS = TOW__WIDE_NUMBERS
};
static const tow__kernel kernels[] = {
    {"gather_general", TOW__ALL_DTYPES, run_gather_general, NULL, "windows"},
    {"scatter_general", TOW__ANY_OR_BLOCKS, run_set, NULL, "windows"},
    {"scatter_general_add", NUMBERS, run_add, NULL, "windows"},
    {"scatter_general_mul", NUMBERS, run_mul, NULL, "windows"},
    {"scatter_general_min", NUMBERS, run_min, NULL, "windows"},
    {"scatter_general_max", NUMBERS, run_max, NULL, "windows"},
};
const tow__kernel_table tow__kernels_windows = {kernels, sizeof kernels / sizeof kernels[0]};
