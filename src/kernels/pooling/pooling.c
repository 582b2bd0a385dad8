/* Reductions over windows, and what windows select.
 *
 *   axes of x:  outer ones | the row axis | a run of elements that lie together, whose windows are single elements
 *
 * Results are computed by tiles: some lanes of the row axis (windows that follow each other along it) times a piece
 * of the run, at one index of the outer axes. A tap of a window (one of each outer axis, and tap k of the row axis)
 * is one loop over the lanes that it does not lead into padding or into a hole of a dilated operand: they are in
 * steps of `base_dilation`, in lowest terms. So what meets no element costs nothing, divisions are one for each row
 * and not for each window, and the gradient of an average over windows (a sum over windows of a dilated cotangent)
 * runs as fast as the average. Features last have lanes times channels in one loop, features first lanes alone.
 * Taps that meet few lanes cost more to find than to combine: where a tile has one lane, or taps of single elements
 * meet few, windows are computed one by one, all taps along the row in one loop.
 *
 * Taps of a window are combined in row-major order: the bits are those of the reference. What is scattered meets
 * where windows overlap; so threads share leading axes and pieces of a run of channels. */
#include <string.h>

#include "src/base/window.h"
#include "src/kernels/math.h"
#include "src/kernels/tables.h"

enum {
    TILE = 1024,    /* elements of a tile of a reduction, */
    SELECTED = 512, /* of one of a selection, whose elements are on the stack, */
    CHANNELS = 128, /* and of the run in it */
    ROW_TAPS = 64,  /* taps of the row axis, */
    WINDOWS = 32,   /* or windows of it, that are found once for a call */
    FEW = 6         /* elements that are hardly worth a loop of their own */
};

typedef struct window_job window_job;
typedef struct walk walk;

/* Windows `lane` .. lane + lanes of the row axis, elements `first` .. first + n of the run. `out`: where in the
 * result the element of its first window and first element is. */
typedef struct tile {
    int64_t lane, lanes, first, n, out;
} tile;

struct window_job {
    const tow__buffer *x; /* what windows select in or reduce */
    tow__buffer other;    /* of x's shape: what is gathered from, or scattered to */
    const char *t;        /* what is scattered, one element for each window, in order */
    char *out;
    int rank, leading; /* outer axes; of them, those that threads may share */
    tow__window_axis axes[TOW_MAX_RANK], row;
    int64_t x_row, other_row;     /* from element to element of the row axis */
    int64_t windows, shared;      /* over all outer axes; over the leading ones */
    int64_t run, n, lanes;        /* elements of the run in all, and in a tile; windows of the row axis in a tile */
    int64_t pieces, row_pieces;   /* of the run; of the row axis */
    int64_t per_block;            /* tiles */
    bool by_window;               /* each window of the row axis has a loop over its taps */
    tow__taps taps[ROW_TAPS];     /* see row_tap */
    tow__taps of_window[WINDOWS]; /* see row_window */
    bool minimum;
    void (*one)(const window_job *job, walk *w, const tile *t);
};

static bool is_single(const tow__window_axis *a)
{
    return a->window == 1 && a->stride == 1 && a->base_dilation == 1 && a->low == 0 && a->high == 0;
}

/* The lanes that meet an element at tap k of the row axis: first, first + step, ... meet elements element, element +
 * element_step, ... */
static tow__taps find_row_tap(const tow__window_axis *a, int64_t k)
{
    if (a->base_dilation > 1) { /* taps and windows change places in the equation of window.h */
        tow__window_axis b = *a;
        b.window = a->result;
        b.stride = a->window_dilation;
        b.window_dilation = a->stride;
        return tow__window_taps(&b, k);
    }
    const int64_t at = k * a->window_dilation - a->low; /* lane p meets element p * stride + at */
    const int64_t first = at < 0 ? (a->stride - 1 - at) / a->stride : 0;
    const int64_t end = at < a->size ? tow__min((a->size - 1 - at) / a->stride + 1, a->result) : 0;
    return (tow__taps){.first = first,
                       .step = 1,
                       .element = first * a->stride + at,
                       .element_step = a->stride,
                       .count = tow__max(0, end - first)};
}

static inline tow__taps row_tap(const window_job *job, int64_t k)
{
    return k < ROW_TAPS ? job->taps[k] : find_row_tap(&job->row, k);
}

/* The taps of window `lane` of the row axis. */
static tow__taps row_window(const window_job *job, int64_t lane)
{
    return lane < WINDOWS ? job->of_window[lane] : tow__window_taps(&job->row, lane);
}

/* True: tiles have one lane, or a tap of the row axis is for few lanes of one element, and taps of windows are found
 * once, or there are no more windows than taps. */
static bool is_by_window(const window_job *job)
{
    const tow__window_axis *row = &job->row;
    if (job->lanes == 1) return true;
    return job->run == 1 && tow__min(row->result, row->size) <= FEW && row->result <= tow__max(WINDOWS, row->window);
}

/* The row axis is the last one before the run; if there is none, or if `holes` may not be in it, an axis of one
 * element. */
static void choose_row(window_job *job, bool holes)
{
    job->row =
        (tow__window_axis){.size = 1, .window = 1, .result = 1, .stride = 1, .base_dilation = 1, .window_dilation = 1};
    if (job->rank > 0 && (holes || job->axes[job->rank - 1].base_dilation == 1)) {
        job->row = job->axes[--job->rank];
        job->x_row = job->x->strides[job->rank];
        job->other_row = job->other.strides[job->rank];
    }
}

static void find_row(window_job *job)
{
    job->by_window = is_by_window(job);
    if (job->by_window)
        for (int64_t p = 0; p < tow__min(WINDOWS, job->row.result); p++)
            job->of_window[p] = tow__window_taps(&job->row, p);
    else
        for (int64_t k = 0; k < tow__min(ROW_TAPS, job->row.window); k++) job->taps[k] = find_row_tap(&job->row, k);
}

static void describe(window_job *job, const tow__kernel_call *call, const tow__buffer *x, bool selects)
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
    choose_row(job, !selects);
    while (job->leading < job->rank && is_single(&job->axes[job->leading])) job->shared *= x->dims[job->leading++];
    for (int i = 0; i < job->rank; i++) job->windows *= job->axes[i].result;
    const int64_t most = selects ? SELECTED : TILE;
    job->n = tow__max(1, tow__min(job->run, selects ? CHANNELS : TILE));
    job->lanes = tow__max(1, tow__min(job->row.result, most / job->n));
    if (job->lanes < job->row.base_dilation) job->lanes = 1; /* hardly a tap would meet two of them */
    find_row(job);
    job->pieces = tow__ceil_div(job->run, job->n);
    job->row_pieces = tow__ceil_div(job->row.result, job->lanes);
}

/* Tile `row_piece`, `piece` of window `window` of the outer axes. */
static tile tile_at(const window_job *job, int64_t window, int64_t row_piece, int64_t piece)
{
    tile t = {.lane = row_piece * job->lanes, .first = piece * job->n};
    t.lanes = tow__min(job->lanes, job->row.result - t.lane);
    t.n = tow__min(job->n, job->run - t.first);
    t.out = (window * job->row.result + t.lane) * job->run + t.first;
    return t;
}

/* ---- taps -------------------------------------------------------------------------------------------------------- */

/* The taps of one window of the outer axes: `left` of each axis behind the present one, and where it is in x and in
 * the other array. */
struct walk {
    int64_t at[TOW_MAX_RANK]; /* the window */
    int64_t elements[TOW_MAX_RANK], counts[TOW_MAX_RANK], left[TOW_MAX_RANK], x_steps[TOW_MAX_RANK],
        other_steps[TOW_MAX_RANK];
    int64_t x, other;
};

static void find_taps(const window_job *job, walk *w, int i)
{
    const tow__taps t = tow__window_taps(&job->axes[i], w->at[i]);
    w->elements[i] = t.element;
    w->counts[i] = w->left[i] = t.count - 1;
    w->x_steps[i] = t.element_step * job->x->strides[i];
    w->other_steps[i] = t.element_step * job->other.strides[i];
}

/* Its first taps, where taps of axes are found. */
static void go_to_first(const window_job *job, walk *w)
{
    w->x = w->other = 0;
    for (int i = 0; i < job->rank; i++) {
        if (w->counts[i] < 0) return;
        w->x += w->elements[i] * job->x->strides[i];
        w->other += w->elements[i] * job->other.strides[i];
    }
}

static void begin(const window_job *job, int64_t window, walk *w)
{
    for (int i = job->rank - 1; i >= 0; i--) {
        w->at[i] = window % job->axes[i].result;
        window /= job->axes[i].result;
        find_taps(job, w, i);
    }
    go_to_first(job, w);
}

/* To the window behind, the first one behind the last. */
static void advance(const window_job *job, walk *w)
{
    for (int i = job->rank - 1; i >= 0; i--) {
        const bool wraps = ++w->at[i] == job->axes[i].result;
        if (wraps) w->at[i] = 0;
        if (job->axes[i].result > 1) find_taps(job, w, i);
        if (!wraps) break;
    }
    go_to_first(job, w);
}

/* False: the window meets nothing. */
static bool meets(const window_job *job, const walk *w)
{
    for (int i = 0; i < job->rank; i++)
        if (w->counts[i] < 0) return false;
    return true;
}

/* To the next taps; false, and back at the first ones, behind the last. */
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

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* Taps first, first + step, ... < end of the row axis: all that meet an element at one of the lanes of a tile. */
typedef struct row_range {
    int64_t first, end, step;
} row_range;

static row_range row_taps(const window_job *job, const tile *t)
{
    const tow__window_axis *a = &job->row;
    row_range r = {0, a->window, 1};
    if (a->window <= ROW_TAPS) return r; /* those that meet nothing are found at once */
    const int64_t last = t->lane + t->lanes - 1;
    r.first = tow__max(0, -floor_div(last * a->stride - a->low, a->window_dilation));
    r.end = floor_div((a->size - 1) * a->base_dilation + a->low - t->lane * a->stride, a->window_dilation) + 1;
    r.end = tow__min(a->window, r.end);
    return r;
}

/* A loop over `rows` times `columns` elements of an array of a tile (y, with n columns) and of x. */
typedef struct sweep {
    int64_t rows, columns, y, y_row, y_column, x, x_row, x_column;
} sweep;

/* What tap k of the row axis meets in a tile. False: nothing. */
__attribute__((always_inline)) static inline bool find_sweep(const window_job *job, const walk *w, const tile *t,
                                                             int64_t k, sweep *s)
{
    const tow__taps tap = row_tap(job, k);
    int64_t skipped, end = tap.count;
    const int64_t before = t->lane - tap.first; /* lanes from the first one of the tap to the tile, */
    const int64_t beyond = before + t->lanes;   /* and to the end of the tile */
    if (tap.step == 1) {
        skipped = tow__max(0, before);
        end = tow__min(end, beyond);
    } else {
        if (end == 0 || beyond <= 0) return false; /* of no lanes, the step may be 0 */
        skipped = before > 0 ? tow__ceil_div(before, tap.step) : 0;
        if ((end - 1) * tap.step >= beyond) end = tow__ceil_div(beyond, tap.step);
    }
    if (skipped >= end) return false;
    const int64_t x_row = tap.element_step * job->x_row, y_row = tap.step * t->n;
    *s = (sweep){.rows = end - skipped, .columns = t->n, .y_row = y_row, .y_column = 1, .x_row = x_row, .x_column = 1};
    s->y = (tap.first + skipped * tap.step - t->lane) * t->n;
    s->x = w->x + tap.element * job->x_row + skipped * x_row + t->first;
    if (t->n == 1) {
        s->columns = s->rows;
        s->rows = 1;
        s->y_column = y_row;
        s->x_column = x_row;
    } else if (x_row == t->n && y_row == t->n) {
        s->columns *= s->rows;
        s->rows = 1;
    }
    return true;
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

#define ADD(a, b)     ((a) + (b))
#define GREATER(a, b) ((a) > (b) ? (a) : (b))
#define LESS(a, b)    ((a) < (b) ? (a) : (b))

/* A tile has the whole run, or a single lane: its elements are together in the result. */
#define REDUCE(name, T, identity, COMBINE)                                                                             \
    TOW__CLONES static void add_##name##_##T(int64_t n, T *restrict y, const T *restrict x, int64_t x_step)            \
    {                                                                                                                  \
        if (x_step == 1)                                                                                               \
            for (int64_t i = 0; i < n; i++) y[i] = COMBINE(y[i], x[i]);                                                \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) y[i] = COMBINE(y[i], x[i * x_step]);                                       \
    }                                                                                                                  \
    TOW__CLONES static void sweep_##name##_##T(const sweep *s, T *restrict y, const T *restrict x)                     \
    {                                                                                                                  \
        const int64_t n = s->columns, x_step = s->x_column, y_step = s->y_column;                                      \
        if (y_step != 1)                                                                                               \
            for (int64_t i = 0; i < n; i++) y[i * y_step] = COMBINE(y[i * y_step], x[i * x_step]);                     \
        else                                                                                                           \
            for (int64_t r = 0; r < s->rows; r++, y += s->y_row, x += s->x_row)                                        \
                for (int64_t i = 0; i < n; i++) y[i] = COMBINE(y[i], x[i]);                                            \
    }                                                                                                                  \
    static void windows_##name##_##T(const window_job *job, const walk *w, const tile *t, T *restrict y)               \
    {                                                                                                                  \
        for (int64_t p = 0; p < t->lanes; p++, y += t->n) {                                                            \
            const tow__taps taps = row_window(job, t->lane + p);                                                       \
            if (taps.count == 0) continue;                                                                             \
            const T *x = (const T *)job->x->data + w->x + taps.element * job->x_row + t->first;                        \
            const int64_t step = taps.element_step * job->x_row;                                                       \
            if (t->n == 1) {                                                                                           \
                T all = *y;                                                                                            \
                for (int64_t k = 0; k < taps.count; k++) all = COMBINE(all, x[k * step]);                              \
                *y = all;                                                                                              \
            } else                                                                                                     \
                for (int64_t k = 0; k < taps.count; k++) add_##name##_##T(t->n, y, x + k * step, 1);                   \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_##T(const window_job *job, walk *w, const tile *t)                                              \
    {                                                                                                                  \
        T *y = (T *)(void *)job->out + t->out;                                                                         \
        const T *x = job->x->data;                                                                                     \
        for (int64_t i = 0; i < t->lanes * t->n; i++) y[i] = (identity);                                               \
        if (!meets(job, w)) return;                                                                                    \
        if (job->by_window) {                                                                                          \
            do windows_##name##_##T(job, w, t, y);                                                                     \
            while (next(job, w));                                                                                      \
            return;                                                                                                    \
        }                                                                                                              \
        const row_range taps = row_taps(job, t);                                                                       \
        do {                                                                                                           \
            for (int64_t k = taps.first; k < taps.end; k++) {                                                          \
                sweep s;                                                                                               \
                if (!find_sweep(job, w, t, k, &s)) continue;                                                           \
                if (s.rows == 1 && s.y_column == 1)                                                                    \
                    add_##name##_##T(s.columns, y + s.y, x + s.x, s.x_column);                                         \
                else {                                                                                                 \
                    const sweep whole = s; /* so s can be in registers */                                              \
                    sweep_##name##_##T(&whole, y + s.y, x + s.x);                                                      \
                }                                                                                                      \
            }                                                                                                          \
        } while (next(job, w));                                                                                        \
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

#define NOWHERE(I) ((I)(UINT64_C(1) << (8 * sizeof(I) - 1)))

/* True: offsets within the other array, less those of a window of the row axis, fit 32 bits. */
static bool offsets_are_short(const window_job *job)
{
    double most = ((double)job->row.result * (double)job->row.stride) * fabs((double)job->other_row);
    for (int i = 0; i < job->other.rank; i++)
        most += fabs((double)job->other.strides[i]) * (double)tow__max(1, job->other.dims[i]);
    return most < 0x1p31;
}

/* at[i]: where the other array has what element i of the tile selects, less the offset of its lane and of its place
 * in the run, which a tap does not change; NOWHERE if its window meets nothing. Another element takes the place of
 * the best so far unless that is at least (at most) as large; so does a NaN. The best of no elements is NaN, too,
 * and so gives way to any. */
#define BETTER(T, I, STAYS, x_column)                                                                                  \
    for (int64_t i = 0; i < s->columns; i++) {                                                                         \
        const T value = x[i * (x_column)];                                                                             \
        const bool stays = best[i] STAYS value;                                                                        \
        best[i] = stays ? best[i] : value;                                                                             \
        at[i] = stays ? at[i] : other;                                                                                 \
    }
#define SELECT(T, I)                                                                                                   \
    TOW__CLONES static void better_##T##_##I(const sweep *s, bool minimum, const T *restrict x, I other,               \
                                             T *restrict best, I *restrict at)                                         \
    {                                                                                                                  \
        for (int64_t r = 0; r < s->rows; r++, best += s->y_row, at += s->y_row, x += s->x_row) {                       \
            if (s->x_column == 1) {                                                                                    \
                if (minimum)                                                                                           \
                    BETTER(T, I, <=, 1)                                                                                \
                else                                                                                                   \
                    BETTER(T, I, >=, 1)                                                                                \
            } else if (minimum)                                                                                        \
                BETTER(T, I, <=, s->x_column)                                                                          \
            else                                                                                                       \
                BETTER(T, I, >=, s->x_column)                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void windows_##T##_##I(const window_job *job, const walk *w, const tile *t, T *restrict best,               \
                                  I *restrict at)                                                                      \
    {                                                                                                                  \
        const sweep s = {.rows = 1, .columns = t->n, .x_column = 1};                                                   \
        for (int64_t p = 0; p < t->lanes; p++, best += t->n, at += t->n) {                                             \
            const tow__taps taps = row_window(job, t->lane + p);                                                       \
            if (taps.count == 0) continue;                                                                             \
            const T *x = (const T *)job->x->data + w->x + taps.element * job->x_row + t->first;                        \
            const int64_t step = taps.element_step * job->x_row, other_step = taps.element_step * job->other_row;      \
            int64_t other = w->other + (taps.element - (t->lane + p) * job->row.stride) * job->other_row;              \
            for (int64_t k = 0; k < taps.count; k++, x += step, other += other_step) {                                 \
                if (t->n > FEW) {                                                                                      \
                    better_##T##_##I(&s, job->minimum, x, (I)other, best, at);                                         \
                    continue;                                                                                          \
                }                                                                                                      \
                for (int64_t i = 0; i < t->n; i++) {                                                                   \
                    if (job->minimum ? best[i] <= x[i] : best[i] >= x[i]) continue;                                    \
                    best[i] = x[i];                                                                                    \
                    at[i] = (I)other;                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void select_##T##_##I(const window_job *job, walk *w, const tile *t, I *at)                                 \
    {                                                                                                                  \
        T best[SELECTED];                                                                                              \
        const T *x = job->x->data;                                                                                     \
        sweep s;                                                                                                       \
        for (int64_t i = 0; i < t->lanes * t->n; i++) {                                                                \
            best[i] = (T)NAN;                                                                                          \
            at[i] = NOWHERE(I);                                                                                        \
        }                                                                                                              \
        if (!meets(job, w)) return;                                                                                    \
        if (job->by_window) {                                                                                          \
            do windows_##T##_##I(job, w, t, best, at);                                                                 \
            while (next(job, w));                                                                                      \
            return;                                                                                                    \
        }                                                                                                              \
        const row_range taps = row_taps(job, t);                                                                       \
        do {                                                                                                           \
            for (int64_t k = taps.first; k < taps.end; k++) {                                                          \
                const int64_t element = k * job->row.window_dilation - job->row.low; /* of lane 0 */                   \
                if (find_sweep(job, w, t, k, &s))                                                                      \
                    better_##T##_##I(&s, job->minimum, x + s.x, (I)(w->other + element * job->other_row), best + s.y,  \
                                     at + s.y);                                                                        \
            }                                                                                                          \
        } while (next(job, w));                                                                                        \
    }                                                                                                                  \
    static void gather_##T##_##I(const window_job *job, walk *w, const tile *t)                                        \
    {                                                                                                                  \
        I at[SELECTED];                                                                                                \
        const int64_t lane_step = job->row.stride * job->other_row;                                                    \
        select_##T##_##I(job, w, t, at);                                                                               \
        for (int64_t p = 0; p < t->lanes; p++) {                                                                       \
            const T *from = (const T *)job->other.data + t->first;                                                     \
            const int64_t lane = (t->lane + p) * lane_step;                                                            \
            const I *where = at + p * t->n;                                                                            \
            T *y = (T *)(void *)job->out + t->out + p * job->run;                                                      \
            for (int64_t i = 0; i < t->n; i++) y[i] = where[i] != NOWHERE(I) ? from[where[i] + lane + i] : 0;          \
        }                                                                                                              \
    }                                                                                                                  \
    static void scatter_##T##_##I(const window_job *job, walk *w, const tile *t)                                       \
    {                                                                                                                  \
        I at[SELECTED];                                                                                                \
        const int64_t lane_step = job->row.stride * job->other_row;                                                    \
        select_##T##_##I(job, w, t, at);                                                                               \
        for (int64_t p = 0; p < t->lanes; p++) {                                                                       \
            const T *from = (const T *)(const void *)job->t + t->out + p * job->run;                                   \
            const int64_t lane = (t->lane + p) * lane_step + t->first;                                                 \
            const I *where = at + p * t->n;                                                                            \
            T *y = (T *)(void *)job->out;                                                                              \
            for (int64_t i = 0; i < t->n; i++)                                                                         \
                if (where[i] != NOWHERE(I)) y[where[i] + lane + i] += from[i];                                         \
        }                                                                                                              \
    }
SELECT(f32, i32)
SELECT(f32, int64_t)
SELECT(f64, int64_t)

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* Tiles in any order. */
static void tile_block(void *user, int64_t block)
{
    const window_job *job = user;
    const int64_t each = job->row_pieces * job->pieces; /* of a window of the outer axes */
    const int64_t from = block * job->per_block, end = tow__min(from + job->per_block, job->windows * each);
    int64_t window = from / each, at = from % each;
    walk w;
    begin(job, window, &w);
    for (int64_t i = from; i < end; i++) {
        const tile t = tile_at(job, window, at / job->pieces, at % job->pieces);
        job->one(job, &w, &t);
        if (++at < each) continue;
        at = 0;
        window++;
        advance(job, &w);
    }
}

static void run_tiles(const tow__kernel_call *call, window_job *job)
{
    int64_t work = job->lanes * job->n;
    for (int i = 0; i < job->rank; i++)
        work = tow__min(work * tow__min(job->axes[i].window, job->axes[i].size + 1), TOW__BLOCK);
    work = tow__min(work * tow__min(job->row.window, job->row.size + 1), TOW__BLOCK);
    job->per_block = tow__max(1, TOW__BLOCK / tow__max(1, work));
    const int64_t tiles = job->windows * job->row_pieces * job->pieces;
    tow__team_run(call->team, tow__ceil_div(tiles, job->per_block), tile_block, job);
}

/* All windows of one index of the leading axes and of one piece of the run, in order. */
static void ordered_block(void *user, int64_t block)
{
    const window_job *job = user;
    const int64_t each = job->windows / job->shared, from = block / job->pieces * each;
    walk w;
    begin(job, from, &w);
    for (int64_t window = from; window < from + each; window++, advance(job, &w))
        for (int64_t row_piece = 0; row_piece < job->row_pieces; row_piece++) {
            const tile t = tile_at(job, window, row_piece, block % job->pieces);
            job->one(job, &w, &t);
        }
}

#define RUN(name, ...)                                                                                                 \
    static void run_##name(const tow__kernel_call *call)                                                               \
    {                                                                                                                  \
        static void (*const one[])(const window_job *, walk *, const tile *) = {__VA_ARGS__};                          \
        window_job job = {.one = one[call->in[0].dtype]};                                                              \
        describe(&job, call, &call->in[0], false);                                                                     \
        run_tiles(call, &job);                                                                                         \
    }
RUN(sum, sum_f32, sum_f64, sum_u32, sum_u32)
RUN(max, max_f32, max_f64, max_i32, max_u32)
RUN(min, min_f32, min_f64, min_i32, min_u32)

static void run_gather(const tow__kernel_call *call)
{
    window_job job = {.one = gather_f64_int64_t, .other = call->in[0]};
    describe(&job, call, &call->in[1], true);
    if (call->out[0].dtype == TOW_F32) job.one = offsets_are_short(&job) ? gather_f32_i32 : gather_f32_int64_t;
    run_tiles(call, &job);
}

static size_t scatter_scratch(const tow__kernel_call *call)
{
    const tow__buffer *t = &call->in[0];
    return tow__buffer_contiguous(t) ? 0 : (size_t)tow__buffer_count(t) * tow__element_bytes(t->dtype);
}

static void run_scatter(const tow__kernel_call *call)
{
    const tow__buffer *t = &call->in[0], *out = &call->out[0];
    window_job job = {.one = scatter_f64_int64_t, .other = *out, .t = t->data};
    describe(&job, call, &call->in[1], true);
    if (out->dtype == TOW_F32) job.one = offsets_are_short(&job) ? scatter_f32_i32 : scatter_f32_int64_t;
    memset(out->data, 0, (size_t)tow__buffer_count(out) * tow__element_bytes(out->dtype));
    if (!tow__buffer_contiguous(t)) {
        int64_t count = tow__buffer_count(t);
        tow__strided to = tow__strided_of(call->scratch, t->dtype, 1, &count, &(int64_t){1}),
                     from = tow__strided_buffer(t);
        tow__strided_store(call->team, &to, &from);
        job.t = call->scratch;
    }
    if (job.windows > 0) tow__team_run(call->team, job.shared * job.pieces, ordered_block, &job);
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
