/* Convolutions whose groups have one feature each (depthwise), and the gradients of their kernels: channels are lanes
 * of vectors, and there is nothing to multiply as matrices. Chains of multiply-adds are as long as those of the
 * products that conv_rows.c and conv_sums.c make, so that groups of one feature have the bits of any others. */
#include <string.h>

#include "src/kernels/conv/conv.h"
#include "src/kernels/conv/lanes.h"
#include "src/kernels/halves.h"
#include "src/kernels/products/gemm_own.h"

enum {
    LANES = TOW__CONV_LANES
};

const tow__conv_lanes *tow__conv_lanes_of(tow_dtype dtype, const tow__gemm_choice *choice)
{
    const bool doubles = dtype == TOW_F64;
#if defined(__x86_64__)
    const tow__gemm_set set = choice != NULL ? (tow__gemm_set)choice->set : TOW__GEMM_AUTO;
    if ((set == TOW__GEMM_AUTO || set == TOW__GEMM_AVX512) && tow__has_avx512())
        return doubles ? &tow__conv_lanes_avx512_f64 : &tow__conv_lanes_avx512;
    if (set != TOW__GEMM_PLAIN && tow__has_avx2()) return doubles ? &tow__conv_lanes_avx2_f64 : &tow__conv_lanes_avx2;
#else
    (void)choice;
#endif
    return doubles ? &tow__conv_lanes_plain_f64 : &tow__conv_lanes_plain;
}

typedef struct channels_job {
    const tow__conv_run *r;
    const tow__conv *c;
    const tow__conv_lanes *lanes;
    tow_dtype stored;  /* of both operands, if that has 16 bits; else 0 */
    const char *x, *w; /* channels are neighbors */
    int64_t x_strides[TOW_MAX_RANK], w_strides[TOW_MAX_RANK], x_entry, w_input, per_block, pieces;
} channels_job;

/* Elements of an operand as [axes..., channels], where its channels are no neighbors. */
static int64_t elements(const int64_t *dims, int n)
{
    int64_t count = 1;
    for (int i = 0; i < n; i++) count *= dims[i];
    return count;
}

/* The type in which vectors read both operands, if that has 16 bits; else 0. */
static tow_dtype stored_in(const tow__conv *c)
{
    return c->x_dtype == c->w_dtype ? tow__half_or_none(c->x_dtype) : (tow_dtype)0;
}

/* An operand of type `dtype` is used where it lies. */
static bool lies(const tow__conv *c, tow_dtype dtype, int64_t stride)
{
    return stride == (int64_t)tow__element_bytes(dtype) && (stored_in(c) || !tow__is_half(dtype));
}

/* Bytes of an element as vectors read it. */
static int64_t read_size(const tow__conv *c) { return stored_in(c) ? c->x_size : c->size; }

/* All elements, widened: of an operand of 16 bits beside one of f32. */
static void widen_all(const tow__strided *in, tow_dtype dtype, f32 *to)
{
    uint16_t tile[TOW__TILE];
    for (int64_t i = 0, n; i < in->count; i += n) {
        n = tow__min(TOW__TILE, in->count - i);
        tow__strided_read(in, i, n, tile);
        tow__widen_run(dtype, n, tile, 1, to + i);
    }
}

/* The operand with neighboring channels: in place, or copied to *scratch. strides: of its n axes, the last of which
 * are the channels; they become those of the copy. */
static const char *with_lanes(const tow__conv_run *r, tow_dtype dtype, const char *from, int n, const int64_t *dims,
                              int64_t *strides, char **scratch)
{
    const int64_t size = read_size(r->c), stored = (int64_t)tow__element_bytes(dtype);
    int64_t step = 1, count = elements(dims, n), apart[TOW_MAX_RANK + 1];
    if (lies(r->c, dtype, strides[n - 1])) return from;
    for (int i = 0; i < n; i++) apart[i] = strides[i] / stored;
    tow__strided in = tow__strided_of((char *)(uintptr_t)from, dtype, n, dims, apart);
    tow__strided out = tow__strided_of(*scratch, dtype, 1, &count, &step);
    const char *to = *scratch;
    if (stored == size)
        tow__strided_store(r->team, &out, &in);
    else
        widen_all(&in, dtype, (f32 *)(void *)*scratch);
    *scratch += tow__conv_round((size_t)(count * size));
    step = size;
    for (int i = n - 1; i >= 0; i--) {
        strides[i] = step;
        step *= dims[i];
    }
    return to;
}

static size_t copied_bytes(const tow__conv *c, tow_dtype dtype, int64_t stride, const int64_t *dims, int n)
{
    return lies(c, dtype, stride) ? 0 : tow__conv_round((size_t)(elements(dims, n) * read_size(c)));
}

/* Axes of the left operand (entries, spatial, channels) or of the kernel (inputs, spatial, channels). */
static int left_axes(const tow__conv *c, bool sums, int64_t *dims, int64_t *strides)
{
    dims[0] = sums ? c->inputs : c->batch;
    strides[0] = sums ? c->x_input : c->x_entry;
    for (int i = 0; i < c->spatial; i++) dims[1 + i] = c->axes[i].size, strides[1 + i] = c->x[i];
    dims[c->spatial + 1] = c->groups;
    strides[c->spatial + 1] = c->groups > 1 ? c->x_group : c->x_size;
    return c->spatial + 2;
}
static int kernel_axes(const tow__conv *c, int64_t *dims, int64_t *strides)
{
    dims[0] = c->inputs;
    strides[0] = c->w_input;
    for (int i = 0; i < c->spatial; i++) dims[1 + i] = c->axes[i].window, strides[1 + i] = c->w[i];
    dims[c->spatial + 1] = c->groups;
    strides[c->spatial + 1] = c->groups > 1 ? c->w_group : c->w_size;
    return c->spatial + 2;
}

static size_t scratch_channels(const tow__conv *c, bool sums)
{
    int64_t dims[TOW_MAX_RANK + 1], strides[TOW_MAX_RANK + 1];
    int n = left_axes(c, sums, dims, strides);
    size_t bytes = copied_bytes(c, c->x_dtype, strides[n - 1], dims, n);
    n = kernel_axes(c, dims, strides);
    return bytes + copied_bytes(c, c->w_dtype, strides[n - 1], dims, n);
}
static size_t scratch_forward(const tow__conv *c, int threads) { return (void)threads, scratch_channels(c, false); }
static size_t scratch_sums(const tow__conv *c, int threads) { return (void)threads, scratch_channels(c, true); }

static void prepare(channels_job *job, const tow__conv_run *r, bool sums)
{
    const tow__conv *c = r->c;
    int64_t dims[TOW_MAX_RANK + 1], strides[TOW_MAX_RANK + 1];
    char *scratch = r->scratch;
    *job = (channels_job){.r = r, .c = c, .pieces = tow__ceil_div(c->groups, LANES), .stored = stored_in(c)};
    job->lanes = tow__conv_lanes_of(c->dtype, &r->choice);
    int n = left_axes(c, sums, dims, strides);
    job->x = with_lanes(r, c->x_dtype, r->x, n, dims, strides, &scratch);
    job->x_entry = strides[0];
    memcpy(job->x_strides, strides + 1, (size_t)c->spatial * sizeof *strides);
    n = kernel_axes(c, dims, strides);
    job->w = with_lanes(r, c->w_dtype, r->w, n, dims, strides, &scratch);
    job->w_input = strides[0];
    memcpy(job->w_strides, strides + 1, (size_t)c->spatial * sizeof *strides);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Taps of one position along w, at offsets of the other axes: one run, or a run each where they meet no neighbors. */
static void add_taps(const channels_job *job, tow__tap_list *list, const tow__taps *t, const char *x, const char *w)
{
    const int last = job->c->spatial - 1;
    for (int64_t j = 0; j < t->count; j++) {
        list->x[list->n] = x + (t->element + j * t->element_step) * job->x_strides[last];
        list->w[list->n++] = w + (t->first + j * t->step) * job->w_strides[last];
        if (t->element_step > 1 || j + 1 == t->count) list->ends[list->runs++] = list->n;
    }
}

/* Rows of taps of the axes but w that one row of results meets, in order. */
typedef struct tap_rows {
    int64_t n;
    int64_t number[TOW__CONV_TAPS]; /* of a row among all that such a position can meet */
    const char *x[TOW__CONV_TAPS], *w[TOW__CONV_TAPS];
} tap_rows;

/* Taps that positions like one that meets `t` can meet. */
static int64_t taps_met(const tow__window_axis *a, const tow__taps *t)
{
    return t->step > 0 ? (a->window - 1 - t->first % t->step) / t->step + 1 : 0;
}

/* `from` is the first row that is taken, of *all. */
static void find_tap_rows(const channels_job *job, const tow__taps *taps, const char *x, int64_t from, int64_t *all,
                          tap_rows *rows)
{
    const tow__conv *c = job->c;
    *all = 1;
    for (int i = 0; i < c->spatial - 1; i++) *all *= taps[i].count;
    rows->n = 0;
    for (int64_t k = from; k < *all && rows->n < TOW__CONV_TAPS; k++) {
        int64_t rest = k, a = 0, b = 0, number = 0, size = 1;
        for (int i = c->spatial - 2; i >= 0; i--) {
            int64_t j = rest % taps[i].count;
            rest /= taps[i].count;
            number += (taps[i].first / taps[i].step + j) * size;
            size *= taps_met(&c->axes[i], &taps[i]);
            a += (taps[i].element + j * taps[i].element_step) * job->x_strides[i];
            b += (taps[i].first + j * taps[i].step) * job->w_strides[i];
        }
        rows->number[rows->n] = number;
        rows->x[rows->n] = x + a;
        rows->w[rows->n++] = job->w + b;
    }
}

/* All taps of one position; adds: to what y has. Runs along w end where those of products do, which are no longer than
 * the list. */
static void one_position(const channels_job *job, const tap_rows *rows, const tow__taps *t, bool adds, char *y)
{
    const int64_t window = job->c->axes[job->c->spatial - 1].window, place = t->step > 0 ? t->first / t->step : 0;
    const int64_t kc = t->step > 0 ? tow__gemm_kc((window - 1 - t->first % t->step) / t->step + 1) : 1;
    tow__tap_list list;
    list.n = list.runs = 0;
    for (int64_t r = 0; r < rows->n; r++) {
        tow__taps run = *t;
        for (int64_t done = 0; done < t->count; done += run.count) {
            run.count = tow__min(t->count - done, t->element_step > 1 ? TOW__CONV_TAPS : kc - (place + done) % kc);
            run.first = t->first + done * t->step;
            run.element = t->element + done * t->element_step;
            if (list.n + run.count > TOW__CONV_TAPS) {
                job->lanes->taps(job->stored, job->c->groups, &list, adds, y);
                adds = true;
                list.n = list.runs = 0;
            }
            add_taps(job, &list, &run, rows->x[r], rows->w[r]);
        }
    }
    if (list.n > 0 || !adds) job->lanes->taps(job->stored, job->c->groups, &list, adds, y);
}

/* The same where groups of several features are gathered: all taps, in order, are one product, with its blocks. There
 * are no more of them than a list holds. */
static void one_gathered_position(const channels_job *job, const tap_rows *rows, const tow__taps *t, int64_t kc,
                                  char *y)
{
    const int last = job->c->spatial - 1;
    const int64_t width = taps_met(&job->c->axes[last], t);
    tow__tap_list list;
    list.n = list.runs = 0;
    for (int64_t r = 0, block = -1; r < rows->n; r++) {
        for (int64_t j = 0; j < t->count; j++) {
            const int64_t at = (rows->number[r] * width + t->first / t->step + j) / kc;
            if (at != block && list.n > 0) list.ends[list.runs++] = list.n;
            block = at;
            list.x[list.n] = rows->x[r] + (t->element + j * t->element_step) * job->x_strides[last];
            list.w[list.n++] = rows->w[r] + (t->first + j * t->step) * job->w_strides[last];
        }
    }
    if (list.n > 0) list.ends[list.runs++] = list.n;
    job->lanes->taps(job->stored, job->c->groups, &list, false, y);
}

/* The blocks of the product of all taps that such a position can meet. */
static int64_t gathered_kc(const tow__conv *c, const tow__taps *taps)
{
    int64_t all = 1;
    for (int i = 0; i < c->spatial; i++) all *= taps_met(&c->axes[i], &taps[i]);
    return all > 0 ? tow__gemm_kc(all) : 1;
}

/* One row of w of the result. */
static void forward_row(void *user, int64_t index)
{
    const channels_job *job = user;
    const tow__conv *c = job->c;
    const int last = c->spatial - 1;
    tow__taps taps[TOW_MAX_RANK];
    tap_rows rows;
    char *y = job->r->y;
    for (int i = last - 1; i >= 0; i--) {
        taps[i] = tow__window_taps(&c->axes[i], index % c->axes[i].result);
        y += index % c->axes[i].result * c->y[i];
        index /= c->axes[i].result;
    }
    const char *x = job->x + index * job->x_entry;
    y += index * c->y_entry;
    int64_t from = 0, all;
    do {
        find_tap_rows(job, taps, x, from, &all, &rows);
        for (int64_t p = 0; p < c->axes[last].result; p++) {
            tow__taps t = tow__window_taps(&c->axes[last], p);
            taps[last] = t;
            if (c->gathers)
                one_gathered_position(job, &rows, &t, gathered_kc(c, taps), y + p * c->y[last]);
            else
                one_position(job, &rows, &t, from > 0, y + p * c->y[last]);
        }
        from += rows.n;
    } while (from < all);
    tow__conv_epilogue(job->r, y, c->axes[last].result, c->y[last], c->groups);
}

static void run_forward(const tow__conv_run *r)
{
    channels_job job;
    prepare(&job, r, false);
    tow__team_run(r->team, r->c->batch * r->c->positions / r->c->axes[r->c->spatial - 1].result, forward_row, &job);
}

/* ---- sums over positions ----------------------------------------------------------------------------------------- */

/* A block of positions, [kh, kh + rows) of h and all of w, for one result position whose axes but h and w have been
 * met: what it is of is at x and w. y: the element. */
static void add_block(const channels_job *job, int64_t ph, int64_t pw, int64_t kh, int64_t rows, int64_t lanes,
                      const char *x, const char *w, char *y)
{
    const tow__conv *c = job->c;
    const int last = c->spatial - 1;
    const tow__taps t = tow__window_taps(&c->axes[last], pw);
    const int64_t kc = rows > 1 ? INT64_MAX : tow__gemm_kc(c->axes[last].window), step = job->x_strides[last];
    tow__conv_chain chain = {{0}};
    for (int64_t i = 0; i < rows; i++) {
        int64_t element = tow__window_element(&c->axes[last - 1], ph, kh + i);
        if (element < 0) continue;
        const char *from = x + element * job->x_strides[last - 1], *by = w + (kh + i) * job->w_strides[last - 1];
        for (int64_t j = 0, n; j < t.count; j += n) {
            int64_t left = kc - (t.first + j) % kc;
            n = tow__min(t.count - j, left);
            job->lanes->positions(job->stored, lanes, n, from + (t.element + j * t.element_step) * step,
                                  t.element_step * step, by + (t.first + j) * job->w_strides[last],
                                  job->w_strides[last], &chain);
            if (n == left) job->lanes->end(lanes, &chain, y);
        }
    }
    job->lanes->end(lanes, &chain, y);
}

/* One block of positions, at taps of the other axes, for all results of h and w. */
static void add_to_all(const channels_job *job, int64_t kh, int64_t rows, int64_t lanes, const char *x, const char *w,
                       char *y)
{
    const tow__conv *c = job->c;
    const int last = c->spatial - 1;
    for (int64_t ph = 0; ph < c->axes[last - 1].result; ph++)
        for (int64_t pw = 0; pw < c->axes[last].result; pw++)
            add_block(job, ph, pw, kh, rows, lanes, x, w, y + ph * c->y[last - 1] + pw * c->y[last]);
}

static void clear(const channels_job *job, int64_t lanes, char *y)
{
    const tow__conv *c = job->c;
    const int last = c->spatial - 1;
    for (int64_t ph = 0; ph < c->axes[last - 1].result; ph++)
        for (int64_t pw = 0; pw < c->axes[last].result; pw++)
            memset(y + ph * c->y[last - 1] + pw * c->y[last], 0, (size_t)(lanes * c->size));
}

/* All results of a piece of the channels. */
static void sums_block(void *user, int64_t piece)
{
    const channels_job *job = user;
    const tow__conv *c = job->c;
    const int last = c->spatial - 1;
    const tow__window_axis *h = &c->axes[last - 1];
    const int64_t first = piece * LANES, lanes = tow__min(LANES, c->groups - first);
    const int64_t block = tow__conv_block_rows(h, &c->axes[last]);
    int64_t outer_taps = 1, outer = 1, x_at, w_at, y_at;
    for (int i = 0; i < last - 1; i++) outer_taps *= c->axes[i].window, outer *= c->axes[i].result;
    for (int64_t p = 0; p < outer; p++) {
        tow__conv_outer(c, job->x_strides, job->w_strides, p, 0, &x_at, &w_at, &y_at);
        char *y = job->r->y + first * c->size + y_at;
        clear(job, lanes, y);
        for (int64_t input = 0; input < c->inputs; input++)
            for (int64_t k = 0; k < outer_taps; k++) {
                if (!tow__conv_outer(c, job->x_strides, job->w_strides, p, k, &x_at, &w_at, &y_at)) continue;
                const char *x = job->x + input * job->x_entry + first * read_size(c) + x_at;
                const char *w = job->w + input * job->w_input + first * read_size(c) + w_at;
                for (int64_t kh = 0; kh < h->window && !tow__cancelled(); kh += block)
                    add_to_all(job, kh, tow__min(block, h->window - kh), lanes, x, w, y);
            }
        for (int64_t ph = 0; ph < h->result; ph++)
            tow__conv_epilogue(job->r, y + ph * c->y[last - 1], c->axes[last].result, c->y[last], lanes);
    }
}

static void run_sums(const tow__conv_run *r)
{
    channels_job job;
    prepare(&job, r, true);
    tow__team_run(r->team, job.pieces, sums_block, &job);
}

const tow__conv_way tow__conv_channels = {"vector", "vector code: groups of one feature have no matrices to multiply",
                                          .scratch = scratch_forward, .run = run_forward};
const tow__conv_way tow__conv_channel_sums = {"vector",
                                              "vector code: groups of one feature have no matrices to multiply",
                                              .batch_last = true, .scratch = scratch_sums, .run = run_sums};
