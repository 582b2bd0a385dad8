/* Reductions over windows, and what windows select.
 *
 *   axes of x:  leading ones, whose windows are single elements | windowed ones | a run of elements that lie together,
 *               whose windows are single elements (channels)
 *
 * A window is walked tap by tap, and each tap is a loop over lanes: the elements of the run. Where there is no run, as with
 * features first, the lanes are windows that follow each other along the last axis, and the taps along that axis are loops over
 * those lanes that they do not lead into padding. Taps that meet padding or the holes of a dilated operand are never looked at,
 * so a window costs what it meets. Taps are combined in row-major order: the bits are those of the reference. What is
 * scattered meets where windows overlap; so threads share leading axes and pieces of a run of channels. */
#include <string.h>

#include "src/base/window.h"
#include "src/kernels/math.h"
#include "src/kernels/tables.h"

enum {
    PIECE = 128 /* elements of a run at a time */
};

typedef struct window_job window_job;
struct window_job {
    const tow__buffer *x; /* what windows select in or reduce */
    tow__buffer other;    /* of x's shape: what is gathered from, or scattered to */
    const char *t;        /* what is scattered, one element for each window, in order */
    char *out;
    int rank, leading; /* axes before the run; of them, those that threads may share */
    tow__window_axis axes[TOW_MAX_RANK];
    int64_t windows, shared;        /* over all axes before the run; over the leading ones */
    int64_t run, pieces, per_block; /* lanes in all, and in pieces of PIECE */
    bool minimum;
    bool along; /* lanes are windows along axes[rank], which is none of the `rank` axes that are walked */
    int64_t x_step, other_step; /* from lane to lane */
    void (*one)(const window_job *job, int64_t window, int64_t first, int64_t n);
};

static bool is_single(const tow__window_axis *a)
{
    return a->window == 1 && a->stride == 1 && a->base_dilation == 1 && a->low == 0 && a->high == 0;
}

static void describe(window_job *job, const tow__kernel_call *call, const tow__buffer *x)
{
    int64_t step = 1;
    job->x = x;
    job->out = call->out[0].data;
    job->rank = x->rank;
    job->run = job->windows = job->shared = 1;
    job->minimum = ((const tow__window_params *)call->params)->minimum;
    for (int i = 0; i < x->rank; i++) {
        job->axes[i] = tow__window_axis_of(call->params, i, x->dims[i]);
        tow__window_result(&job->axes[i]);
    }
    for (; job->rank > 0; job->rank--, step *= x->dims[job->rank]) {
        const int last = job->rank - 1;
        if (!is_single(&job->axes[last]) || x->strides[last] != step) break;
        if (job->other.rank > 0 && job->other.strides[last] != step) break;
        job->run *= x->dims[last];
    }
    job->x_step = job->other_step = 1;
    job->along = job->run == 1 && job->rank > 0 && job->axes[job->rank - 1].base_dilation == 1;
    if (job->along) {
        const tow__window_axis *a = &job->axes[--job->rank];
        job->run = a->result;
        job->x_step = a->stride * x->strides[job->rank];
        job->other_step = a->stride * job->other.strides[job->rank];
    }
    while (job->leading < job->rank && is_single(&job->axes[job->leading])) job->shared *= x->dims[job->leading++];
    for (int i = 0; i < job->rank; i++) job->windows *= job->axes[i].result;
    job->pieces = tow__ceil_div(job->run, PIECE);
}

/* The taps of one window: `left` of each axis behind the present one, and where it is in x and in the other array. */
typedef struct walk {
    int64_t counts[TOW_MAX_RANK], left[TOW_MAX_RANK], x_steps[TOW_MAX_RANK], other_steps[TOW_MAX_RANK];
    int64_t x, other;
} walk;

/* False: the window meets nothing. */
static bool begin(const window_job *job, int64_t window, walk *w)
{
    bool meets = true;
    w->x = w->other = 0;
    for (int i = job->rank - 1; i >= 0; i--) {
        const tow__window_axis *a = &job->axes[i];
        tow__taps t = tow__window_taps(a, window % a->result);
        window /= a->result;
        meets = meets && t.count > 0;
        w->counts[i] = w->left[i] = t.count - 1;
        w->x += t.element * job->x->strides[i];
        w->x_steps[i] = t.element_step * job->x->strides[i];
        w->other += t.element * job->other.strides[i];
        w->other_steps[i] = t.element_step * job->other.strides[i];
    }
    return meets;
}

static bool next(const window_job *job, walk *w)
{
    for (int i = job->rank - 1; i >= 0; i--) {
        if (w->left[i] > 0) {
            w->left[i]--;
            w->x += w->x_steps[i];
            w->other += w->other_steps[i];
            return true;
        }
        w->left[i] = w->counts[i];
        w->x -= w->counts[i] * w->x_steps[i];
        w->other -= w->counts[i] * w->other_steps[i];
    }
    return false;
}

/* Lanes begin .. end of a piece that meet a tap, and where lane `begin` meets it in x and in the other array. */
typedef struct lane_tap {
    int64_t begin, end, x, other;
} lane_tap;

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* Taps [*from, end) along the lanes [first, first + n) that meet an element at one of them; gives the end. */
static int64_t lane_taps(const window_job *job, int64_t first, int64_t n, int64_t *from)
{
    *from = 0;
    if (!job->along) return 1;
    const tow__window_axis *a = &job->axes[job->rank];
    const int64_t last = first + n - 1;
    *from = tow__max(0, -floor_div(last * a->stride - a->low, a->window_dilation));
    return tow__min(a->window, floor_div(a->size - 1 + a->low - first * a->stride, a->window_dilation) + 1);
}

/* Tap k along the lanes of those that w has come to, for lanes [first, first + n). */
static lane_tap find_lanes(const window_job *job, const walk *w, int64_t k, int64_t first, int64_t n)
{
    if (!job->along) return (lane_tap){0, n, w->x + first, w->other + first};
    const tow__window_axis *a = &job->axes[job->rank];
    const int64_t at = k * a->window_dilation - a->low; /* lane p meets the element p * stride + at */
    lane_tap t = {.begin = tow__max(first, -floor_div(at, a->stride)) - first};
    t.end = tow__min(first + n, floor_div(a->size - 1 - at, a->stride) + 1) - first;
    const int64_t element = (first + t.begin) * a->stride + at;
    t.x = w->x + element * job->x->strides[job->rank];
    t.other = w->other + element * job->other.strides[job->rank];
    return t;
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

#define ADD(a, b)     ((a) + (b))
#define GREATER(a, b) ((a) > (b) ? (a) : (b))
#define LESS(a, b)    ((a) < (b) ? (a) : (b))

#define REDUCE(name, T, identity, COMBINE)                                                                             \
    TOW__CLONES static void add_##name##_##T(int64_t n, T *restrict y, const T *restrict x, int64_t step)              \
    {                                                                                                                  \
        if (step == 1)                                                                                                 \
            for (int64_t i = 0; i < n; i++) y[i] = COMBINE(y[i], x[i]);                                                \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) y[i] = COMBINE(y[i], x[i * step]);                                         \
    }                                                                                                                  \
    static void name##_##T(const window_job *job, int64_t window, int64_t first, int64_t n)                            \
    {                                                                                                                  \
        T y[PIECE];                                                                                                    \
        walk w;                                                                                                        \
        int64_t from;                                                                                                  \
        const int64_t end = lane_taps(job, first, n, &from);                                                           \
        for (int64_t i = 0; i < n; i++) y[i] = (identity);                                                             \
        if (begin(job, window, &w)) {                                                                                  \
            const T *x = job->x->data;                                                                                 \
            do {                                                                                                       \
                for (int64_t k = from; k < end; k++) {                                                                 \
                    const lane_tap t = find_lanes(job, &w, k, first, n);                                               \
                    if (t.begin < t.end) add_##name##_##T(t.end - t.begin, y + t.begin, x + t.x, job->x_step);         \
                }                                                                                                      \
            } while (next(job, &w));                                                                                   \
        }                                                                                                              \
        memcpy((T *)(void *)job->out + window * job->run + first, y, (size_t)n * sizeof *y);                           \
    }
REDUCE(sum, f32, 0, ADD)
REDUCE(sum, f64, 0, ADD)
REDUCE(sum, u32, 0, ADD)
REDUCE(max, f32, -INFINITY, tow__max_f32)
REDUCE(max, f64, -(f64)INFINITY, tow__max_f64)
REDUCE(max, i32, INT32_MIN, GREATER)
REDUCE(max, u32, 0, GREATER)
REDUCE(min, f32, INFINITY, tow__min_f32)
REDUCE(min, f64, (f64)INFINITY, tow__min_f64)
REDUCE(min, i32, INT32_MAX, LESS)
REDUCE(min, u32, UINT32_MAX, LESS)

/* ---- selection --------------------------------------------------------------------------------------------------- */

#define NOWHERE INT64_MIN

/* at[i]: where the other array has what lane i selects, NOWHERE if its window meets nothing. Another element takes the place of
 * the best so far unless that is at least (at most) as large; so does a NaN. */
#define SELECT(T)                                                                                                      \
    TOW__CLONES static void better_##T(int64_t n, bool minimum, const T *restrict x, int64_t x_step, int64_t other,    \
                                       int64_t other_step, T *restrict best, int64_t *restrict at)                     \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T value = x[i * x_step];                                                                             \
            const bool stays = (at[i] != NOWHERE) & (minimum ? best[i] <= value : best[i] >= value);                   \
            best[i] = stays ? best[i] : value;                                                                         \
            at[i] = stays ? at[i] : other + i * other_step;                                                            \
        }                                                                                                              \
    }                                                                                                                  \
    static void select_##T(const window_job *job, int64_t window, int64_t first, int64_t n, int64_t *at)               \
    {                                                                                                                  \
        T best[PIECE] = {0};                                                                                           \
        walk w;                                                                                                        \
        int64_t from;                                                                                                  \
        const int64_t end = lane_taps(job, first, n, &from);                                                           \
        for (int64_t i = 0; i < n; i++) at[i] = NOWHERE;                                                               \
        if (!begin(job, window, &w)) return;                                                                           \
        const T *x = job->x->data;                                                                                     \
        do {                                                                                                           \
            for (int64_t k = from; k < end; k++) {                                                                     \
                const lane_tap t = find_lanes(job, &w, k, first, n);                                                   \
                better_##T(t.end - t.begin, job->minimum, x + t.x, job->x_step, t.other, job->other_step,              \
                           best + t.begin, at + t.begin);                                                              \
            }                                                                                                          \
        } while (next(job, &w));                                                                                       \
    }                                                                                                                  \
    static void gather_##T(const window_job *job, int64_t window, int64_t first, int64_t n)                            \
    {                                                                                                                  \
        int64_t at[PIECE];                                                                                             \
        T *y = (T *)(void *)job->out + window * job->run + first;                                                      \
        const T *t = job->other.data;                                                                                  \
        select_##T(job, window, first, n, at);                                                                         \
        for (int64_t i = 0; i < n; i++) y[i] = at[i] != NOWHERE ? t[at[i]] : 0;                                        \
    }                                                                                                                  \
    static void scatter_##T(const window_job *job, int64_t window, int64_t first, int64_t n)                           \
    {                                                                                                                  \
        int64_t at[PIECE];                                                                                             \
        T *y = (T *)(void *)job->out;                                                                                  \
        const T *t = (const T *)(const void *)job->t + window * job->run + first;                                      \
        select_##T(job, window, first, n, at);                                                                         \
        for (int64_t i = 0; i < n; i++)                                                                                \
            if (at[i] != NOWHERE) y[at[i]] += t[i];                                                                    \
    }
SELECT(f32)
SELECT(f64)

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void run_piece(const window_job *job, int64_t window, int64_t piece)
{
    int64_t first = piece * PIECE;
    job->one(job, window, first, tow__min(PIECE, job->run - first));
}

/* Windows in any order. */
static void window_block(void *user, int64_t block)
{
    const window_job *job = user;
    int64_t end = tow__min((block + 1) * job->per_block, job->windows);
    for (int64_t window = block * job->per_block; window < end; window++)
        for (int64_t piece = 0; piece < job->pieces; piece++) run_piece(job, window, piece);
}

static void run_windows(const tow__kernel_call *call, window_job *job)
{
    int64_t work = tow__min(job->run, TOW__BLOCK);
    for (int i = 0; i < job->rank; i++)
        work = tow__min(work * tow__min(job->axes[i].window, job->axes[i].size + 1), TOW__BLOCK);
    job->per_block = tow__max(1, TOW__BLOCK / tow__max(1, work));
    if (job->run > 0) tow__team_run(call->team, tow__ceil_div(job->windows, job->per_block), window_block, job);
}

/* Pieces of lanes that scatter to different elements: channels. */
static int64_t pieces_apart(const window_job *job) { return job->along ? 1 : job->pieces; }

/* All windows of one index of the leading axes and of one piece of a run of channels, in order. */
static void ordered_block(void *user, int64_t block)
{
    const window_job *job = user;
    const int64_t each = job->windows / job->shared, at = block / pieces_apart(job), first = block % pieces_apart(job);
    for (int64_t window = at * each; window < (at + 1) * each; window++)
        for (int64_t piece = first; piece < job->pieces; piece += pieces_apart(job)) run_piece(job, window, piece);
}

#define RUN(name, ...)                                                                                                 \
    static void run_##name(const tow__kernel_call *call)                                                               \
    {                                                                                                                  \
        static void (*const one[])(const window_job *, int64_t, int64_t, int64_t) = {__VA_ARGS__};                     \
        window_job job = {.one = one[call->in[0].dtype]};                                                              \
        describe(&job, call, &call->in[0]);                                                                            \
        run_windows(call, &job);                                                                                       \
    }
RUN(sum, sum_f32, sum_f64, sum_u32, sum_u32)
RUN(max, max_f32, max_f64, max_i32, max_u32)
RUN(min, min_f32, min_f64, min_i32, min_u32)

static void run_gather(const tow__kernel_call *call)
{
    window_job job = {.one = call->out[0].dtype == TOW_F32 ? gather_f32 : gather_f64, .other = call->in[0]};
    describe(&job, call, &call->in[1]);
    run_windows(call, &job);
}

static size_t scatter_scratch(const tow__kernel_call *call)
{
    const tow__buffer *t = &call->in[0];
    return tow__buffer_contiguous(t) ? 0 : (size_t)tow__buffer_count(t) * tow__element_bytes(t->dtype);
}

static void run_scatter(const tow__kernel_call *call)
{
    const tow__buffer *t = &call->in[0], *out = &call->out[0];
    window_job job = {.one = out->dtype == TOW_F32 ? scatter_f32 : scatter_f64, .other = *out, .t = t->data};
    describe(&job, call, &call->in[1]);
    memset(out->data, 0, (size_t)tow__buffer_count(out) * tow__element_bytes(out->dtype));
    if (!tow__buffer_contiguous(t)) {
        int64_t count = tow__buffer_count(t);
        tow__strided to = tow__strided_of(call->scratch, t->dtype, 1, &count, &(int64_t){1}),
                     from = tow__strided_buffer(t);
        tow__strided_store(call->team, &to, &from);
        job.t = call->scratch;
    }
    if (job.windows > 0 && job.run > 0) tow__team_run(call->team, job.shared * pieces_apart(&job), ordered_block, &job);
}

enum {
    NUMBERS = TOW__WORDS
};
static const tow__kernel kernels[] = {
    {"reduce_window_max", NUMBERS, run_max, NULL, "vector"},
    {"reduce_window_min", NUMBERS, run_min, NULL, "vector"},
    {"reduce_window_sum", NUMBERS, run_sum, NULL, "vector"},
    {"select_and_gather_add", TOW__WIDE_FLOATS, run_gather, NULL, "vector"},
    {"select_and_scatter_add", TOW__WIDE_FLOATS, run_scatter, scatter_scratch, "vector"},
};
const tow__kernel_table tow__kernels_pooling = {kernels, sizeof kernels / sizeof kernels[0]};
