/* Convolutions whose groups have one feature each (depthwise), and the gradients of their kernels: channels are lanes of
 * vectors, and there is nothing to multiply as matrices. Chains of multiply-adds are as long as those of the products that
 * conv_rows.c and conv_sums.c make, so that groups of one feature have the bits of any others. */
#include <string.h>

#include "src/kernels/conv/conv.h"
#include "src/kernels/math.h"
#include "src/kernels/products/gemm_own.h"

enum {
    LANES = 64,     /* channels at a time */
    MOST_TAPS = 512 /* whose addresses are kept */
};

typedef struct channels_job {
    const tow__conv_run *r;
    const tow__conv *c;
    const f32 *x, *w; /* channels are neighbours */
    int64_t x_strides[TOW_MAX_RANK], w_strides[TOW_MAX_RANK], x_entry, w_input, per_block, pieces;
} channels_job;

/* Elements of an operand as [axes..., channels], where its channels are no neighbours. */
static int64_t elements(const int64_t *dims, int n)
{
    int64_t count = 1;
    for (int i = 0; i < n; i++) count *= dims[i];
    return count;
}

/* The operand with neighbouring channels: in place, or copied to *scratch. strides: of its n axes, the last of which are
 * the channels; they become those of the copy. */
static const f32 *with_lanes(const tow__team *team, const f32 *from, int n, const int64_t *dims, int64_t *strides,
                             char **scratch)
{
    if (strides[n - 1] == 1) return from;
    tow__strided in = tow__strided_of((f32 *)(uintptr_t)from, TOW_F32, n, dims, strides);
    int64_t step = 1, count = elements(dims, n);
    tow__strided out = tow__strided_of(*scratch, TOW_F32, 1, &count, &step);
    f32 *to = (f32 *)(void *)*scratch;
    tow__strided_store(team, &out, &in);
    *scratch += tow__conv_round((size_t)count * sizeof(f32));
    for (int i = n - 1; i >= 0; i--) {
        strides[i] = step;
        step *= dims[i];
    }
    return to;
}

static size_t copied_bytes(int64_t stride, const int64_t *dims, int n)
{
    return stride == 1 ? 0 : tow__conv_round((size_t)elements(dims, n) * sizeof(f32));
}

/* Axes of the left operand (entries, spatial, channels) or of the kernel (inputs, spatial, channels). */
static int left_axes(const tow__conv *c, bool sums, int64_t *dims, int64_t *strides)
{
    dims[0] = sums ? c->inputs : c->batch;
    strides[0] = sums ? c->x_input : c->x_entry;
    for (int i = 0; i < c->spatial; i++) dims[1 + i] = c->axes[i].size, strides[1 + i] = c->x[i];
    dims[c->spatial + 1] = c->groups;
    strides[c->spatial + 1] = c->groups > 1 ? c->x_group : 1;
    return c->spatial + 2;
}
static int kernel_axes(const tow__conv *c, int64_t *dims, int64_t *strides)
{
    dims[0] = c->inputs;
    strides[0] = c->w_input;
    for (int i = 0; i < c->spatial; i++) dims[1 + i] = c->axes[i].window, strides[1 + i] = c->w[i];
    dims[c->spatial + 1] = c->groups;
    strides[c->spatial + 1] = c->groups > 1 ? c->w_group : 1;
    return c->spatial + 2;
}

static size_t scratch_channels(const tow__conv *c, bool sums)
{
    int64_t dims[TOW_MAX_RANK + 1], strides[TOW_MAX_RANK + 1];
    int n = left_axes(c, sums, dims, strides);
    size_t bytes = copied_bytes(strides[n - 1], dims, n);
    n = kernel_axes(c, dims, strides);
    return bytes + copied_bytes(strides[n - 1], dims, n);
}
static size_t scratch_forward(const tow__conv *c, int threads) { return (void)threads, scratch_channels(c, false); }
static size_t scratch_sums(const tow__conv *c, int threads) { return (void)threads, scratch_channels(c, true); }

static void prepare(channels_job *job, const tow__conv_run *r, bool sums)
{
    const tow__conv *c = r->c;
    int64_t dims[TOW_MAX_RANK + 1], strides[TOW_MAX_RANK + 1];
    char *scratch = r->scratch;
    *job = (channels_job){.r = r, .c = c, .pieces = tow__ceil_div(c->groups, LANES)};
    int n = left_axes(c, sums, dims, strides);
    job->x = with_lanes(r->team, r->x, n, dims, strides, &scratch);
    job->x_entry = strides[0];
    memcpy(job->x_strides, strides + 1, (size_t)c->spatial * sizeof *strides);
    n = kernel_axes(c, dims, strides);
    job->w = with_lanes(r->team, r->w, n, dims, strides, &scratch);
    job->w_input = strides[0];
    memcpy(job->w_strides, strides + 1, (size_t)c->spatial * sizeof *strides);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Taps in order, in runs: each is a chain of multiply-adds, and runs are added. */
typedef struct tap_list {
    int64_t n, runs;
    const f32 *x[MOST_TAPS], *w[MOST_TAPS];
    int64_t ends[MOST_TAPS]; /* of runs */
} tap_list;

TOW__INLINE void lanes_of_taps(int64_t n, const tap_list *t, int64_t i, bool adds, f32 *y)
{
    f32 total[LANES];
    for (int64_t l = 0; l < n; l++) total[l] = adds ? y[i + l] : 0;
    for (int64_t k = 0, r = 0; r < t->runs; r++) {
        f32 sum[LANES];
        for (int64_t l = 0; l < n; l++) sum[l] = 0;
        for (; k < t->ends[r]; k++) {
            const f32 *a = t->x[k] + i, *b = t->w[k] + i;
            for (int64_t l = 0; l < n; l++) sum[l] = tow__fma(a[l], b[l], sum[l]);
        }
        for (int64_t l = 0; l < n; l++) total[l] = r > 0 || adds ? total[l] + sum[l] : sum[l];
    }
    for (int64_t l = 0; l < n; l++) y[i + l] = total[l];
}

/* y[i] = the sum over the taps of x[i] w[i], added to y[i] if it `adds` */
TOW__CLONES static void multiply_taps(int64_t n, const tap_list *t, bool adds, f32 *restrict y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) lanes_of_taps(LANES, t, i, adds, y);
    if (i < n) lanes_of_taps(n - i, t, i, adds, y);
}

/* The taps of one position along w, at offsets of the other axes. */
static void add_row_of_taps(const channels_job *job, tap_list *list, const tow__taps *t, const f32 *x, const f32 *w)
{
    const int last = job->c->spatial - 1;
    const tow__window_axis *axis = &job->c->axes[last];
    const int64_t all = (axis->window - 1 - t->first % t->step) / t->step + 1, kc = tow__gemm_kc(all);
    for (int64_t j = 0; j < t->count; j++) {
        list->x[list->n] = x + (t->element + j * t->element_step) * job->x_strides[last];
        list->w[list->n++] = w + (t->first + j * t->step) * job->w_strides[last];
        bool ends = t->element_step > 1 || (t->first / t->step + j + 1) % kc == 0;
        if (ends || j + 1 == t->count) list->ends[list->runs++] = list->n;
    }
}

static void one_position(const channels_job *job, int64_t index)
{
    const tow__conv *c = job->c;
    const int last = c->spatial - 1;
    tap_list list = {.n = 0, .runs = 0};
    tow__taps taps[TOW_MAX_RANK];
    int64_t rows = 1;
    f32 *y = job->r->y;
    for (int i = last; i >= 0; i--) {
        taps[i] = tow__window_taps(&c->axes[i], index % c->axes[i].result);
        y += index % c->axes[i].result * c->y[i];
        index /= c->axes[i].result;
        if (i < last) rows *= taps[i].count;
    }
    const f32 *x = job->x + index * job->x_entry;
    bool adds = false;
    y += index * c->y_entry;
    for (int64_t k = 0; k < rows && taps[last].count > 0; k++) {
        int64_t rest = k, a = 0, b = 0;
        for (int i = last - 1; i >= 0; i--) {
            int64_t j = rest % taps[i].count;
            rest /= taps[i].count;
            a += (taps[i].element + j * taps[i].element_step) * job->x_strides[i];
            b += (taps[i].first + j * taps[i].step) * job->w_strides[i];
        }
        if (list.n + taps[last].count > MOST_TAPS) {
            multiply_taps(c->groups, &list, adds, y);
            adds = true;
            list.n = list.runs = 0;
        }
        add_row_of_taps(job, &list, &taps[last], x + a, job->w + b);
    }
    if (list.n > 0 || !adds) multiply_taps(c->groups, &list, adds, y);
}

static void forward_block(void *user, int64_t block)
{
    const channels_job *job = user;
    int64_t end = tow__min((block + 1) * job->per_block, job->c->batch * job->c->positions);
    for (int64_t i = block * job->per_block; i < end; i++) one_position(job, i);
}

static void run_forward(const tow__conv_run *r)
{
    channels_job job;
    prepare(&job, r, false);
    job.per_block = tow__max(1, TOW__BLOCK / tow__max(1, r->c->groups * tow__min(r->c->taps, 64)) * 4);
    tow__team_run(r->team, tow__ceil_div(r->c->batch * r->c->positions, job.per_block), forward_block, &job);
}

/* ---- sums over positions ----------------------------------------------------------------------------------------- */

/* sum[i] = (adds ? sum[i] : 0) + x[k x_step + i] w[k w_step + i] for k < n: a chain, which goes on where the last one
 * ended. */
TOW__CLONES static void multiply_positions(int64_t lanes, int64_t n, const f32 *x, int64_t x_step, const f32 *w,
                                           int64_t w_step, f32 *restrict chain)
{
    if (lanes == LANES) {
        f32 sum[LANES];
        for (int l = 0; l < LANES; l++) sum[l] = chain[l];
        for (int64_t k = 0; k < n; k++, x += x_step, w += w_step)
            for (int l = 0; l < LANES; l++) sum[l] = tow__fma(x[l], w[l], sum[l]);
        for (int l = 0; l < LANES; l++) chain[l] = sum[l];
        return;
    }
    for (int64_t k = 0; k < n; k++, x += x_step, w += w_step)
        for (int64_t l = 0; l < lanes; l++) chain[l] = tow__fma(x[l], w[l], chain[l]);
}

/* Ends a chain: it is added to y, and begins anew. */
static void end_chain(int64_t lanes, f32 *chain, f32 *y)
{
    for (int64_t l = 0; l < lanes; l++) y[l] += chain[l], chain[l] = 0;
}

/* A block of positions, [kh, kh + rows) of h and all of w, for one result position whose axes but h and w have been met: what
 * it is of is at x and w. y: the element. */
static void add_block(const channels_job *job, int64_t ph, int64_t pw, int64_t kh, int64_t rows, int64_t lanes,
                      const f32 *x, const f32 *w, f32 *y)
{
    const tow__conv *c = job->c;
    const int last = c->spatial - 1;
    const tow__taps t = tow__window_taps(&c->axes[last], pw);
    const int64_t kc = rows > 1 ? INT64_MAX : tow__gemm_kc(c->axes[last].window), step = job->x_strides[last];
    f32 chain[LANES] = {0};
    for (int64_t i = 0; i < rows; i++) {
        int64_t element = tow__window_element(&c->axes[last - 1], ph, kh + i);
        if (element < 0) continue;
        const f32 *from = x + element * job->x_strides[last - 1], *by = w + (kh + i) * job->w_strides[last - 1];
        for (int64_t j = 0, n; j < t.count; j += n) {
            int64_t left = kc - (t.first + j) % kc;
            n = tow__min(t.count - j, left);
            multiply_positions(lanes, n, from + (t.element + j * t.element_step) * step, t.element_step * step,
                               by + (t.first + j) * job->w_strides[last], job->w_strides[last], chain);
            if (n == left) end_chain(lanes, chain, y);
        }
    }
    end_chain(lanes, chain, y);
}

/* All that one result position sums, for lanes from `first` on. */
static void sum_position(const channels_job *job, int64_t position, int64_t first, int64_t lanes)
{
    const tow__conv *c = job->c;
    const int last = c->spatial - 1;
    const tow__window_axis *axis = &c->axes[last], *h = &c->axes[last - 1];
    const int64_t pw = position % axis->result, ph = position / axis->result % h->result;
    const int64_t rest = position / axis->result / h->result, block = tow__conv_block_rows(h, axis);
    int64_t outer_taps = 1, x_at, w_at, y_at;
    for (int i = 0; i < last - 1; i++) outer_taps *= c->axes[i].window;
    tow__conv_outer(c, job->x_strides, job->w_strides, rest, 0, &x_at, &w_at, &y_at);
    f32 *y = job->r->y + first + y_at + ph * c->y[last - 1] + pw * c->y[last];
    memset(y, 0, (size_t)lanes * sizeof *y);
    for (int64_t input = 0; input < c->inputs; input++)
        for (int64_t k = 0; k < outer_taps; k++) {
            if (!tow__conv_outer(c, job->x_strides, job->w_strides, rest, k, &x_at, &w_at, &y_at)) continue;
            for (int64_t kh = 0; kh < h->window; kh += block)
                add_block(job, ph, pw, kh, tow__min(block, h->window - kh), lanes,
                          job->x + input * job->x_entry + first + x_at, job->w + input * job->w_input + first + w_at, y);
        }
}

static void sums_block(void *user, int64_t piece)
{
    const channels_job *job = user;
    const int64_t first = piece * LANES, lanes = tow__min(LANES, job->c->groups - first);
    for (int64_t p = 0; p < job->c->positions; p++) sum_position(job, p, first, lanes);
}

static void run_sums(const tow__conv_run *r)
{
    channels_job job;
    prepare(&job, r, true);
    tow__team_run(r->team, job.pieces, sums_block, &job);
}

const tow__conv_way tow__conv_channels = {"vector", scratch_forward, run_forward};
const tow__conv_way tow__conv_channel_sums = {"vector", scratch_sums, run_sums};
