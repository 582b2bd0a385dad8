/* Reductions over windows, and what windows select.
 *
 *   axes of x:  outer ones | the row axis | a run of elements that lie together, whose windows are single elements
 *
 * Results are computed by tiles: some lanes of the row axis (windows that follow each other along it) times a piece
 * of the run, at one index of the outer axes. There are three kinds of loops:
 *   by channels  a window at a time: what it meets is combined in registers, for a vector of the run after the other.
 *                For runs (features last) and windows that meet enough to repay the start of such a loop.
 *   by lanes     a tap of a window (one of each outer axis, and tap k of the row axis) is one loop over the lanes that
 *                it does not lead into padding or into a hole of a dilated operand: they are in steps of
 *                `base_dilation`, in lowest terms. So what meets no element costs nothing, and divisions are one for
 *                each row and not for each window. For features first, and for the few taps of windows of a dilated
 *                operand, the gradients of averages over windows that do not overlap.
 *   by windows   where taps meet too few lanes for that: all taps of a window along the row in one loop.
 *
 * Taps of a window are combined in row-major order in all of them: the bits are those of the reference. Scattered
 * elements meet where windows overlap; so threads share leading axes and pieces of a run of channels. */
#include <string.h>

#include "src/kernels/pooling/windows.h"
#include "src/kernels/tables.h"

enum {
    TILE = 1024,      /* elements of a tile of a reduction, */
    CHANNELS = 128,   /* and of the run in one of a selection */
    LEAST_RUN = 8,    /* that repays loops by channels, */
    LEAST_WORK = 160, /* and elements that a window of a reduction meets; */
    STREAMED = 32,    /* elements of the image under a window, */
    WIDE_RUN = 128    /* and of a run, from which a reduction reads memory in order */
};

static bool is_single(const tow__window_axis *a)
{
    return a->window == 1 && a->stride == 1 && a->base_dilation == 1 && a->low == 0 && a->high == 0;
}

/* The lanes that meet an element at tap k of the row axis: first, first + step, ... meet elements element, element +
 * element_step, ... */
tow__taps tow__find_row_tap(const tow__window_axis *a, int64_t k)
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

/* True: tiles have one lane, or a tap of the row axis is for few lanes of one element, and taps of windows are found
 * once, or there are no more windows than taps. */
static bool is_by_window(const tow__window_job *job)
{
    const tow__window_axis *row = &job->row;
    if (job->lanes == 1) return true;
    return job->run == 1 && tow__min(row->result, row->size) <= TOW__FEW &&
           row->result <= tow__max(TOW__ROW_WINDOWS, row->window);
}

/* The row axis is the last one before the run; if there is none, or if `holes` may not be in it, an axis of one
 * element. */
static void choose_row(tow__window_job *job, bool holes)
{
    job->row =
        (tow__window_axis){.size = 1, .window = 1, .result = 1, .stride = 1, .base_dilation = 1, .window_dilation = 1};
    if (job->rank > 0 && (holes || job->axes[job->rank - 1].base_dilation == 1)) {
        job->row = job->axes[--job->rank];
        job->x_row = job->x->strides[job->rank];
        job->other_row = job->other.strides[job->rank];
    }
}

/* True: taps of the outer axes can be listed, and windows repay loops of their own. Those of reductions save a load and
 * a store of the result for each element that a window meets, and cost what sweeps over all lanes do once. A reduction
 * of whole rows of wide runs reads memory in order instead: pieces of runs would touch a page for every other
 * element. */
static bool is_by_channels(const tow__window_job *job, bool selects)
{
    double listed = 1, met = (double)tow__max(1, job->row.window / job->row.base_dilation);
    for (int i = 0; i < job->rank; i++) {
        const tow__window_axis *a = &job->axes[i];
        listed *= (double)tow__max(1, tow__min(a->window, a->size));
        met *= (double)tow__max(1, a->window / a->base_dilation);
    }
    if (job->run < LEAST_RUN || listed > TOW__OUTER_TAPS) return false;
    if (selects) return true;
    if (job->row.result == 1 && met >= STREAMED && job->run >= WIDE_RUN) return false;
    return met * (double)job->run >= LEAST_WORK;
}

/* True: each element along the axis is in one window. */
static bool is_partition(const tow__window_axis *a)
{
    return a->low == 0 && a->base_dilation == 1 && a->window_dilation == 1 && a->window * a->result == a->size &&
           (a->stride == a->window || a->result == 1);
}

static bool is_partitioned(const tow__window_job *job)
{
    for (int i = 0; i < job->rank; i++)
        if (!is_partition(&job->axes[i])) return false;
    return is_partition(&job->row);
}

static void find_row(tow__window_job *job)
{
    if (job->by_channels || job->by_window)
        for (int64_t p = 0; p < tow__min(TOW__ROW_WINDOWS, job->row.result); p++)
            job->of_window[p] = tow__window_taps(&job->row, p);
    else
        for (int64_t k = 0; k < tow__min(TOW__ROW_TAPS, job->row.window); k++)
            job->taps[k] = tow__find_row_tap(&job->row, k);
}

static void describe(tow__window_job *job, const tow__kernel_call *call, const tow__buffer *x, bool selects)
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
    const int64_t most = selects ? TOW__SELECTED : TILE;
    job->n = tow__max(1, tow__min(job->run, selects ? CHANNELS : TILE));
    job->lanes = tow__max(1, tow__min(job->row.result, most / job->n));
    job->by_channels = is_by_channels(job, selects);
    job->partitions = is_partitioned(job);
    if (!job->by_channels && job->lanes < job->row.base_dilation)
        job->lanes = 1; /* hardly a tap would meet two of them */
    job->by_window = is_by_window(job);
    find_row(job);
    job->pieces = tow__ceil_div(job->run, job->n);
    job->row_pieces = tow__ceil_div(job->row.result, job->lanes);
}

/* Tile `row_piece`, `piece` of window `window` of the outer axes. */
static tow__window_tile tile_at(const tow__window_job *job, int64_t window, int64_t row_piece, int64_t piece)
{
    tow__window_tile t = {.lane = row_piece * job->lanes, .first = piece * job->n};
    t.lanes = tow__min(job->lanes, job->row.result - t.lane);
    t.n = tow__min(job->n, job->run - t.first);
    t.out = (window * job->row.result + t.lane) * job->run + t.first;
    return t;
}

/* ---- taps -------------------------------------------------------------------------------------------------------- */

static void find_taps(const tow__window_job *job, tow__walk *w, int i)
{
    const tow__taps t = tow__window_taps(&job->axes[i], w->at[i]);
    w->elements[i] = t.element;
    w->counts[i] = w->left[i] = t.count - 1;
    w->x_steps[i] = t.element_step * job->x->strides[i];
    w->other_steps[i] = t.element_step * job->other.strides[i];
}

/* Lists the places of taps of axes: all of them, for loops by channels, and back to the first ones. */
static void list_taps(const tow__window_job *job, tow__walk *w)
{
    w->n = 0;
    if (!job->by_channels || !tow__walk_meets(job, w)) return;
    do {
        w->x_taps[w->n] = w->x;
        w->other_taps[w->n++] = w->other;
    } while (tow__walk_next(job, w));
}

/* Its first taps, where taps of axes are found. */
static void go_to_first(const tow__window_job *job, tow__walk *w)
{
    w->x = w->other = 0;
    for (int i = 0; i < job->rank; i++) {
        if (w->counts[i] < 0) return;
        w->x += w->elements[i] * job->x->strides[i];
        w->other += w->elements[i] * job->other.strides[i];
    }
}

static void begin(const tow__window_job *job, int64_t window, tow__walk *w)
{
    for (int i = job->rank - 1; i >= 0; i--) {
        w->at[i] = window % job->axes[i].result;
        window /= job->axes[i].result;
        find_taps(job, w, i);
    }
    go_to_first(job, w);
    list_taps(job, w);
}

/* To the window behind, the first one behind the last. */
static void advance(const tow__window_job *job, tow__walk *w)
{
    for (int i = job->rank - 1; i >= 0; i--) {
        const bool wraps = ++w->at[i] == job->axes[i].result;
        if (wraps) w->at[i] = 0;
        if (job->axes[i].result > 1) find_taps(job, w, i);
        if (!wraps) break;
    }
    go_to_first(job, w);
    list_taps(job, w);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* Tiles in any order. */
static void tile_block(void *user, int64_t block)
{
    const tow__window_job *job = user;
    const int64_t each = job->row_pieces * job->pieces; /* of a window of the outer axes */
    const int64_t from = block * job->per_block, end = tow__min(from + job->per_block, job->windows * each);
    int64_t window = from / each, at = from % each;
    tow__walk w;
    begin(job, window, &w);
    for (int64_t i = from; i < end; i++) {
        const tow__window_tile t = tile_at(job, window, at / job->pieces, at % job->pieces);
        job->one(job, &w, &t);
        if (++at < each) continue;
        at = 0;
        window++;
        advance(job, &w);
    }
}

static void run_tiles(const tow__kernel_call *call, tow__window_job *job)
{
    int64_t work = job->lanes * job->n;
    for (int i = 0; i < job->rank; i++)
        work = tow__min(work * tow__min(job->axes[i].window, job->axes[i].size + 1), TOW__BLOCK);
    work = tow__min(work * tow__min(job->row.window, job->row.size + 1), TOW__BLOCK);
    job->per_block = tow__max(1, TOW__BLOCK / tow__max(1, work));
    const int64_t tiles = job->windows * job->row_pieces * job->pieces;
    tow__team_run(call->team, tow__ceil_div(tiles, job->per_block), tile_block, job);
}

/* A piece of the run of what is scattered to, at one index of the leading axes. */
static void clear(const tow__window_job *job, int64_t index, const tow__window_tile *t)
{
    const int64_t size = (int64_t)tow__element_bytes(job->other.dtype);
    const int64_t rows = tow__buffer_count(&job->other) / tow__max(1, job->shared * job->run);
    char *y = job->out + (index * rows * job->run + t->first) * size;
    if (t->n == job->run)
        memset(y, 0, (size_t)(rows * t->n * size));
    else
        for (int64_t r = 0; r < rows; r++) memset(y + r * job->run * size, 0, (size_t)(t->n * size));
}

/* All windows of one index of the leading axes and of one piece of the run, in order. */
static void ordered_block(void *user, int64_t block)
{
    const tow__window_job *job = user;
    const int64_t each = job->windows / job->shared, from = block / job->pieces * each;
    tow__walk w;
    const tow__window_tile first = tile_at(job, from, 0, block % job->pieces);
    clear(job, block / job->pieces, &first);
    if (each == 0) return;
    begin(job, from, &w);
    for (int64_t window = from; window < from + each; window++, advance(job, &w))
        for (int64_t row_piece = 0; row_piece < job->row_pieces; row_piece++) {
            const tow__window_tile t = tile_at(job, window, row_piece, block % job->pieces);
            job->one(job, &w, &t);
        }
}

static void run_reduction(const tow__kernel_call *call, const tow__window_function *by_type)
{
    tow__window_job job = {.one = by_type[call->in[0].dtype]};
    describe(&job, call, &call->in[0], false);
    run_tiles(call, &job);
}
static void run_sum(const tow__kernel_call *call) { run_reduction(call, tow__window_sum); }
static void run_max(const tow__kernel_call *call) { run_reduction(call, tow__window_max); }
static void run_min(const tow__kernel_call *call) { run_reduction(call, tow__window_min); }

/* True: offsets within the other array, less those of a window of the row axis, fit 32 bits. */
static bool offsets_are_short(const tow__window_job *job)
{
    double most = ((double)job->row.result * (double)job->row.stride) * fabs((double)job->other_row);
    for (int i = 0; i < job->other.rank; i++)
        most += fabs((double)job->other.strides[i]) * (double)tow__max(1, job->other.dims[i]);
    return most < 0x1p31;
}

static void run_gather(const tow__kernel_call *call)
{
    tow__window_job job = {.other = call->in[0]};
    describe(&job, call, &call->in[1], true);
    job.one = tow__window_gather[call->out[0].dtype == TOW_F64][offsets_are_short(&job)];
    run_tiles(call, &job);
}

static size_t scatter_scratch(const tow__kernel_call *call)
{
    const tow__buffer *t = &call->in[0];
    return tow__buffer_contiguous(t) ? 0 : (size_t)tow__buffer_count(t) * tow__element_bytes(t->dtype);
}

/* Each element of what is scattered to is written once where windows partition them and loops go by channels. */
static void run_scatter(const tow__kernel_call *call)
{
    const tow__buffer *t = &call->in[0], *out = &call->out[0];
    tow__window_job job = {.other = *out, .t = t->data};
    describe(&job, call, &call->in[1], true);
    job.one = tow__window_scatter[out->dtype == TOW_F64][offsets_are_short(&job)];
    if (!tow__buffer_contiguous(t)) {
        int64_t count = tow__buffer_count(t);
        tow__strided to = tow__strided_of(call->scratch, t->dtype, 1, &count, &(int64_t){1}),
                     from = tow__strided_buffer(t);
        tow__strided_store(call->team, &to, &from);
        job.t = call->scratch;
    }
    if (job.by_channels && job.partitions)
        run_tiles(call, &job);
    else
        tow__team_run(call->team, job.shared * job.pieces, ordered_block, &job);
}

static const tow__kernel kernels[] = {
    {"reduce_window_max", TOW__WIDE_NUMBERS, run_max, NULL, "vector"},
    {"reduce_window_min", TOW__WIDE_NUMBERS, run_min, NULL, "vector"},
    {"reduce_window_sum", TOW__WIDE_NUMBERS, run_sum, NULL, "vector"},
    {"select_and_gather_add", TOW__WIDE_FLOATS, run_gather, NULL, "vector"},
    {"select_and_scatter_add", TOW__WIDE_FLOATS, run_scatter, scatter_scratch, "vector"},
};
const tow__kernel_table tow__kernels_pooling = {kernels, sizeof kernels / sizeof kernels[0]};
