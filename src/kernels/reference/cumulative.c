/* Cumulative operations along an axis, in an order that depends on its length alone, so that every kernel, number of
 * threads and cut along other axes has these bits. Maxima, minima and integers do not depend on an order: each result
 * is made of the one before. Sums, products and logsumexp of floats have a tree, as a chain of n sums would err by up
 * to n roundings:
 *
 *   blocks     of 16 elements: p[t], the elements of the block up to its own, one after the other
 *   totals     of the blocks, the last p of each, are scanned in the same way: P[b]
 *   result     y[t] = P[b-1] + p[t] in block b; p[t] in the first one
 *
 * so y[t] has 16 roundings for each level, of which there are log16(n). With `reverse` elements are counted from the
 * end. */
#include <string.h>

#include "src/base/params.h"
#include "src/kernels/math.h"
#include "src/kernels/math_f32.h"
#include "src/kernels/reference/by_type.h"
#include "src/kernels/tables.h"

enum {
    BLOCK = 16,
    LEVELS = 16, /* 16^16 elements */
    STRIP = 32   /* columns that go along the axis together */
};

/* Operand and result [outer, length, inner], the result in order. Tasks are strips of columns. */
typedef struct cumulative_job {
    tow__strided x;
    char *out;
    int64_t length, inner, strips;
    int64_t piece; /* rows between looks whether the run is cancelled */
    bool reverse;
} cumulative_job;

/* The columns of one task: [rows][width], row t at y + t * step elements. */
typedef struct strip {
    int64_t first, step, width; /* first: the element of row 0 */
} strip;

/* Copies the operand of the task into the result. */
static strip begin_strip(const cumulative_job *job, int64_t task, size_t size)
{
    const int64_t outer = task / job->strips, column = task % job->strips * STRIP;
    const int64_t base = outer * job->length * job->inner + column, last = (job->length - 1) * job->inner;
    strip s = {.first = base, .step = job->inner, .width = tow__min(job->inner - column, STRIP)};
    if (job->strips == 1) tow__strided_read(&job->x, base, job->length * job->inner, job->out + base * (int64_t)size);
    for (int64_t t = 0; job->strips > 1 && t < job->length; t++) {
        if (t % job->piece == 0 && tow__cancelled()) break;
        tow__strided_read(&job->x, base + t * job->inner, s.width, job->out + (base + t * job->inner) * (int64_t)size);
    }
    if (job->reverse) s.first += last, s.step = -s.step;
    return s;
}

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

#define CHAIN(name, T, COMBINE)                                                                                        \
    static void name##_##T(void *user, int64_t task)                                                                   \
    {                                                                                                                  \
        const cumulative_job *job = user;                                                                              \
        const strip s = begin_strip(job, task, sizeof(T));                                                             \
        T *row = (T *)(void *)job->out + s.first;                                                                      \
        for (int64_t t = 1; t < job->length; t++, row += s.step) {                                                     \
            if (t % job->piece == 0 && tow__cancelled()) return;                                                       \
            for (int64_t i = 0; i < s.width; i++) row[s.step + i] = (T)COMBINE(row[i], row[s.step + i]);               \
        }                                                                                                              \
    }

/* Levels above the elements. part[l]: the p of level l so far; before[l]: the P of the blocks of level l that are
 * behind, if there are any (begun[l]); filled[l]: totals in the block of level l so far.
 *
 *   block      p in place, then P[b-1] added to all of it; its total is that of p
 *   push       adds the total of a block to the level above, and so on where that has filled a block */
#define TREE(name, T, COMBINE)                                                                                         \
    typedef struct name##_levels_##T {                                                                                 \
        T part[LEVELS][STRIP], before[LEVELS][STRIP];                                                                  \
        uint8_t filled[LEVELS];                                                                                        \
        bool begun[LEVELS];                                                                                            \
    } name##_levels_##T;                                                                                               \
    static void name##_push_##T(name##_levels_##T *v, int64_t width, const T *total)                                   \
    {                                                                                                                  \
        for (int l = 1; l < LEVELS; l++) {                                                                             \
            T *part = v->part[l];                                                                                      \
            for (int64_t i = 0; i < width; i++) part[i] = v->filled[l] ? COMBINE(part[i], total[i]) : total[i];        \
            for (int64_t i = 0; i < width; i++)                                                                        \
                v->before[l - 1][i] = v->begun[l] ? COMBINE(v->before[l][i], part[i]) : part[i];                       \
            v->begun[l - 1] = true;                                                                                    \
            if (++v->filled[l] < BLOCK) return;                                                                        \
            v->filled[l] = 0;                                                                                          \
            total = part;                                                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    TOW__INLINE void name##_block_##T(T *y, int64_t rows, int64_t step, int64_t width, name##_levels_##T *v)           \
    {                                                                                                                  \
        for (int64_t t = 1; t < rows; t++)                                                                             \
            for (int64_t i = 0; i < width; i++) y[t * step + i] = COMBINE(y[(t - 1) * step + i], y[t * step + i]);     \
        memcpy(v->part[0], y + (rows - 1) * step, (size_t)width * sizeof(T));                                          \
        const T *before = v->before[0];                                                                                \
        for (int64_t t = 0; v->begun[0] && t < rows; t++)                                                              \
            for (int64_t i = 0; i < width; i++) y[t * step + i] = COMBINE(before[i], y[t * step + i]);                 \
    }                                                                                                                  \
    static void name##_##T(void *user, int64_t task)                                                                   \
    {                                                                                                                  \
        const cumulative_job *job = user;                                                                              \
        const strip s = begin_strip(job, task, sizeof(T));                                                             \
        T *y = (T *)(void *)job->out + s.first;                                                                        \
        name##_levels_##T v;                                                                                           \
        memset(v.filled, 0, sizeof v.filled);                                                                          \
        memset(v.begun, 0, sizeof v.begun);                                                                            \
        for (int64_t t = 0; t < job->length; t += BLOCK) {                                                             \
            const int64_t rows = tow__min(job->length - t, BLOCK);                                                     \
            if (t % job->piece == 0 && tow__cancelled()) return;                                                       \
            if (job->inner > 1) /* constants make the code of contiguous elements */                                   \
                name##_block_##T(y + t * s.step, rows, s.step, s.width, &v);                                           \
            else if (job->reverse)                                                                                     \
                name##_block_##T(y - t, rows, -1, 1, &v);                                                              \
            else                                                                                                       \
                name##_block_##T(y + t, rows, 1, 1, &v);                                                               \
            name##_push_##T(&v, s.width, v.part[0]);                                                                   \
        }                                                                                                              \
    }

#define CUMULATIVE_WORDS(T)                                                                                            \
    CHAIN(sum, T, ADD)                                                                                                 \
    CHAIN(prod, T, MULTIPLY)
#define CUMULATIVE_ORDERED(symbol, T)                                                                                  \
    CHAIN(max, T, GREATER)                                                                                             \
    CHAIN(min, T, LESS)
#define CUMULATIVE_FLOATS(T)                                                                                           \
    TREE(sum, T, ADD)                                                                                                  \
    TREE(prod, T, MULTIPLY)                                                                                            \
    CHAIN(max, T, tow__max_##T)                                                                                        \
    CHAIN(min, T, tow__min_##T)                                                                                        \
    TREE(logsumexp, T, logaddexp_##T)
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
    job.strips = tow__ceil_div(job.inner, STRIP);
    job.piece = 65536 / STRIP; /* a multiple of BLOCK */
    if (job.x.count > 0)
        tow__team_run(call->team, job.x.count / (job.length * job.inner) * job.strips, body[out->dtype], &job);
}

#define RUN(name, ...)                                                                                                 \
    static void run_cum##name(const tow__kernel_call *call)                                                            \
    {                                                                                                                  \
        static void (*const body[TOW_DTYPE_END])(void *, int64_t) = {__VA_ARGS__};                                     \
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
