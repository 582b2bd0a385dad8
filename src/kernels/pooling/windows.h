/* Shared by the files of this folder: the job of a reduction over windows or a selection by them, its tiles, and the
 * taps of windows. pooling.c says how results are cut into tiles, and which of three kinds of loops computes one. */
#ifndef TOW_SRC_KERNELS_POOLING_WINDOWS_H
#define TOW_SRC_KERNELS_POOLING_WINDOWS_H

#include "src/base/window.h"
#include "src/kernels/math.h"

enum {
    TOW__ROW_TAPS = 64,     /* taps of the row axis, */
    TOW__ROW_WINDOWS = 64,  /* or windows of it, that are found once for a call */
    TOW__OUTER_TAPS = 256,  /* taps of a window of the outer axes that are listed */
    TOW__SELECTED = 512,    /* elements of a tile of a selection, which are on the stack, */
    TOW__PIECE_BYTES = 128, /* and of a run that is computed in registers */
    TOW__FEW = 6            /* elements that are hardly worth a loop of their own */
};

typedef struct tow__window_job tow__window_job;
typedef struct tow__walk tow__walk;

/* Windows `lane` .. lane + lanes of the row axis, elements `first` .. first + n of the run. `out`: where in the
 * result the element of its first window and first element is. */
typedef struct tow__window_tile {
    int64_t lane, lanes, first, n, out;
} tow__window_tile;

typedef void (*tow__window_function)(const tow__window_job *job, tow__walk *w, const tow__window_tile *t);

struct tow__window_job {
    const tow__buffer *x; /* what windows select in or reduce */
    tow__buffer other;    /* of x's shape: what is gathered from, or scattered to */
    const char *t;        /* what is scattered, one element for each window, in order */
    char *out;
    int rank, leading; /* outer axes; of them, those that threads may share */
    tow__window_axis axes[TOW_MAX_RANK], row;
    int64_t x_row, other_row;   /* from element to element of the row axis */
    int64_t windows, shared;    /* over all outer axes; over the leading ones */
    int64_t run, n, lanes;      /* elements of the run in all, and in a tile; windows of the row axis in a tile */
    int64_t pieces, row_pieces; /* of the run; of the row axis */
    int64_t per_block;          /* tiles */
    bool by_channels;           /* each window has a loop over its taps for each piece of the run, in registers; */
    bool by_window;             /* or else each window of the row axis has a loop over its taps of that axis */
    bool partitions;            /* each element of x is in one window */
    bool minimum;
    tow__taps taps[TOW__ROW_TAPS];         /* see tow__row_tap */
    tow__taps of_window[TOW__ROW_WINDOWS]; /* see tow__row_window */
    tow__window_function one;
};

/* The taps of one window of the outer axes: `left` of each axis behind the present one, and where it is in x and in
 * the other array. All of them, in order, are listed where loops go by channels. */
struct tow__walk {
    int64_t at[TOW_MAX_RANK]; /* the window */
    int64_t elements[TOW_MAX_RANK], counts[TOW_MAX_RANK], left[TOW_MAX_RANK], x_steps[TOW_MAX_RANK],
        other_steps[TOW_MAX_RANK];
    int64_t x, other;
    int64_t n, x_taps[TOW__OUTER_TAPS], other_taps[TOW__OUTER_TAPS];
};

/* ---- axes -------------------------------------------------------------------------------------------------------- */

/* The lanes that meet an element at tap k of the row axis: first, first + step, ... meet elements element, element +
 * element_step, ... */
tow__taps tow__find_row_tap(const tow__window_axis *row, int64_t k);

static inline tow__taps tow__row_tap(const tow__window_job *job, int64_t k)
{
    return k < TOW__ROW_TAPS ? job->taps[k] : tow__find_row_tap(&job->row, k);
}

/* The taps of window `lane` of the row axis. */
static inline tow__taps tow__row_window(const tow__window_job *job, int64_t lane)
{
    const tow__window_axis *a = &job->row;
    const int64_t at = lane * a->stride - a->low;
    if (lane < TOW__ROW_WINDOWS) return job->of_window[lane];
    if (a->base_dilation == 1 && at >= 0 && at + (a->window - 1) * a->window_dilation < a->size)
        return (tow__taps){.step = 1, .count = a->window, .element = at, .element_step = a->window_dilation};
    return tow__window_taps(a, lane);
}

/* False: the window of the outer axes meets nothing. */
static inline bool tow__walk_meets(const tow__window_job *job, const tow__walk *w)
{
    for (int i = 0; i < job->rank; i++)
        if (w->counts[i] < 0) return false;
    return true;
}

/* To the next taps; false, and back at the first ones, behind the last. */
static inline bool tow__walk_next(const tow__window_job *job, tow__walk *w)
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

/* ---- loops over lanes ------------------------------------------------------------------------------------------ */

static inline int64_t tow__floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* Taps first, first + step, ... < end of the row axis: all that meet an element at one of the lanes of a tile. */
typedef struct tow__row_range {
    int64_t first, end, step;
} tow__row_range;

static inline tow__row_range tow__row_taps(const tow__window_job *job, const tow__window_tile *t)
{
    const tow__window_axis *a = &job->row;
    tow__row_range r = {0, a->window, 1};
    if (a->window <= TOW__ROW_TAPS) return r; /* those that meet nothing are found at once */
    const int64_t last = t->lane + t->lanes - 1;
    r.first = tow__max(0, -tow__floor_div(last * a->stride - a->low, a->window_dilation));
    r.end = tow__floor_div((a->size - 1) * a->base_dilation + a->low - t->lane * a->stride, a->window_dilation) + 1;
    r.end = tow__min(a->window, r.end);
    return r;
}

/* A loop over `rows` times `columns` elements of an array of a tile (y, with n columns) and of x. */
typedef struct tow__sweep {
    int64_t rows, columns, y, y_row, y_column, x, x_row, x_column;
} tow__sweep;

/* Finds the elements that tap k of the row axis meets in a tile. False: none. */
TOW__INLINE bool tow__find_sweep(const tow__window_job *job, const tow__walk *w, const tow__window_tile *t, int64_t k,
                                 tow__sweep *s)
{
    const tow__taps tap = tow__row_tap(job, k);
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
    *s = (tow__sweep){
        .rows = end - skipped, .columns = t->n, .y_row = y_row, .y_column = 1, .x_row = x_row, .x_column = 1};
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

/* ---- what is done to a tile, by type of element; [TOW_DTYPE_END] ----------------------------------------------- */

extern const tow__window_function tow__window_sum[], tow__window_max[], tow__window_min[];
/* [elements are f64][offsets within the other array fit 32 bits] */
extern const tow__window_function tow__window_gather[2][2], tow__window_scatter[2][2];

#endif
