/* Convolutions that are sums over many positions and have few results for each pair of features, as the gradients of
 * kernels are: for each result position p (a tap of the forward convolution),
 *
 *   y[p, b, o] = sum over c and blocks of positions k of   X[c][k and p][b]^T  .  W[k][o][c]
 *
 * A block of positions of w (the cotangent) is copied once with gaps at the ends of its rows, and what it meets of the
 * left operand once as well, in rows of the same pitch; then the positions that each p needs are one window of equal
 * steps, and all p share both copies, which have the form that tiles of products read (tow__gemm_run_windows). A window
 * dilation d (a stride of the forward convolution) makes d x d images of every d-th element. On a unit for bf16 the
 * copies stay bf16, position by position, and each p is a product of its own. */
#include <string.h>

#include "src/kernels/conv/conv.h"
#include "src/kernels/halves.h"
#include "src/kernels/products/gemm_own.h"

enum {
    RUN = TOW__GEMM_KC, /* positions of a block, about */
    MOST = 64,          /* results along an axis */
    WINDOWS = 32,       /* results that share a strip while it is in the first cache */
    SLICE = 32,         /* rows of a slice are a multiple of this */
    WORTH_SLICING = 64  /* rows from which threads share them; else they share result positions */
};

/* Results along one axis: p meets image slot[p] at element k + shift[p] for position k. */
typedef struct images {
    int64_t n, phase[MOST]; /* distinct images; image i has elements phase[i] + window_dilation * index */
    int64_t slot[MOST], shift[MOST], low, high; /* shifts: low <= shift <= high */
} images;

typedef struct sums_job {
    const tow__conv_run *r;
    const tow__conv *c;
    const tow__window_axis *h, *w;
    images along_h, along_w;
    int64_t pitch, block_rows, image; /* positions of a row, rows of h, positions of an image */
    int64_t slices, slice, tap_slices, taps;
    size_t x_bytes, w_bytes, unit_bytes, thread_bytes;
} sums_job;

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static void find_images(const tow__window_axis *a, images *im)
{
    im->n = im->low = im->high = 0;
    for (int64_t p = 0; p < a->result; p++) {
        int64_t offset = p * a->stride - a->low, shift = floor_div(offset, a->window_dilation);
        int64_t residue = offset - shift * a->window_dilation, slot = 0;
        while (slot < im->n && im->phase[slot] != residue) slot++;
        if (slot == im->n) im->phase[im->n++] = residue;
        im->slot[p] = slot;
        im->shift[p] = shift;
        im->low = p == 0 ? shift : tow__min(im->low, shift);
        im->high = p == 0 ? shift : tow__max(im->high, shift);
    }
}

/* Elements from row to row of what a block copies of w: as many as all results together meet. */
static int64_t pitch_of(const tow__window_axis *w, const images *im) { return w->window + im->high - im->low; }

int64_t tow__conv_block_rows(const tow__window_axis *h, const tow__window_axis *w)
{
    images im;
    find_images(w, &im);
    return tow__max(1, tow__min(h->window, RUN / pitch_of(w, &im)));
}

/* Positions of a block of so many rows: as many as all results use, from the first of the first row on. */
static int64_t positions_of(const sums_job *job, int64_t rows) { return (rows - 1) * job->pitch + job->w->window; }

/* A product on the unit, for `rows` rows of the result, of so many positions. */
static tow__gemm product_of(const sums_job *job, int64_t rows, int64_t positions)
{
    const tow__conv *c = job->c;
    return (tow__gemm){.dtype = c->dtype,
                       .a_dtype = c->x_dtype,
                       .b_dtype = c->w_dtype,
                       .m = rows,
                       .n = c->features,
                       .k = positions,
                       .a_row = 1,
                       .a_column = rows,
                       .b_row = c->features,
                       .b_column = 1,
                       .ldc = c->y_entry / c->size};
}

/* Its scratch memory, at most: the last block has fewer rows. */
static size_t unit_bytes(const sums_job *job)
{
    size_t bytes = 0;
    for (int64_t rows = job->block_rows; rows > 0 && job->c->unit != NULL; rows--) {
        const tow__gemm g = product_of(job, job->slice, positions_of(job, rows));
        const size_t need = tow__gemm_scratch(&g, job->c->unit);
        if (need > bytes) bytes = need;
    }
    return bytes;
}

static void plan(sums_job *job, const tow__conv *c, int threads)
{
    const int last = c->spatial - 1;
    job->c = c;
    job->w = &c->axes[last];
    job->h = &c->axes[last - 1];
    find_images(job->w, &job->along_w);
    find_images(job->h, &job->along_h);
    job->pitch = pitch_of(job->w, &job->along_w);
    job->block_rows = tow__conv_block_rows(job->h, job->w);
    job->image = (job->block_rows + job->along_h.high - job->along_h.low) * job->pitch;
    job->taps = job->h->result * job->w->result;
    bool many = c->batch >= WORTH_SLICING;
    job->slice = many ? tow__ceil_div(tow__ceil_div(c->batch, threads), SLICE) * SLICE : c->batch;
    job->slices = tow__ceil_div(c->batch, job->slice);
    job->tap_slices = many ? 1 : tow__min(threads, job->taps);
    int64_t copies = job->along_h.n * job->along_w.n * job->image * job->slice;
    job->x_bytes = tow__conv_round((size_t)(copies * tow__conv_tile_size(c)));
    int64_t columns = tow__ceil_div(c->features, TOW__GEMM_PACKED_COLUMNS) * TOW__GEMM_PACKED_COLUMNS;
    job->w_bytes = tow__conv_round((size_t)(job->block_rows * job->pitch * columns * c->size));
    job->unit_bytes = tow__conv_round(unit_bytes(job));
    job->thread_bytes = job->x_bytes + job->w_bytes + job->unit_bytes;
}

int64_t tow__conv_block_positions(const tow__conv *c)
{
    images im;
    const tow__window_axis *w = &c->axes[c->spatial - 1], *h = w - 1;
    find_images(w, &im);
    return (tow__conv_block_rows(h, w) - 1) * pitch_of(w, &im) + w->window;
}

static size_t scratch_sums(const tow__conv *c, int threads)
{
    sums_job job = {.slices = 0};
    plan(&job, c, threads);
    return (size_t)threads * job.thread_bytes;
}

/* A share of the results: rows [row, row + rows) of one group, result positions (h, w) [tap, tap_end). */
typedef struct share {
    const sums_job *job;
    int64_t group, row, rows, tap, tap_end;
    char *x, *w;
    void *scratch; /* of the unit */
} share;

/* `count` positions of the kernel, `step` bytes apart, from position `at` on; w NULL: zeros. */
static void lay_kernel(const share *s, const tow__gemm_panels *to, int64_t at, int64_t count, const char *w,
                       int64_t step)
{
    const tow__conv *c = s->job->c;
    char *row = s->w + at * c->features * c->w_size;
    if (c->unit == NULL)
        tow__gemm_lay_panels(to, at, count, w, step / c->w_size, w != NULL ? c->w_feature / c->w_size : 1);
    else if (w != NULL)
        tow__conv_copy(c, w, count, step, c->features, c->w_feature, row);
    else
        memset(row, 0, (size_t)(count * c->features * c->w_size));
}

/* The same of the left operand. */
static void lay_image(const share *s, const tow__gemm_strips *to, int64_t at, int64_t count, const char *x,
                      int64_t step)
{
    const tow__conv *c = s->job->c;
    const int64_t bytes = s->rows * c->x_size;
    if (c->unit == NULL)
        tow__gemm_lay_strips(to, at, count, x, x != NULL ? c->x_entry / c->x_size : 0, step / c->x_size);
    else if (x != NULL)
        tow__conv_read(c, x, count, step, s->rows, c->x_entry, s->x + at * bytes, bytes);
    else
        memset(s->x + at * bytes, 0, (size_t)(count * bytes));
}

/* Rows [kh, kh + rows) of the kernel, with gaps of zeros behind each but the last. */
static tow__gemm_panels copy_kernel(const share *s, const char *w, int64_t kh, int64_t rows)
{
    const sums_job *job = s->job;
    const tow__conv *c = job->c;
    const int64_t window = job->w->window, *strides = c->w + c->spatial - 2;
    const tow__gemm_panels to = {.dtype = c->dtype,
                                 .n = c->features,
                                 .k = positions_of(job, rows),
                                 .data = s->w,
                                 .choice = &job->r->choice,
                                 .stored = tow__half_or_none(c->w_dtype)};
    for (int64_t i = 0; i < rows; i++) {
        lay_kernel(s, &to, i * job->pitch, window, w + (kh + i) * strides[0], strides[1]);
        if (i + 1 < rows) lay_kernel(s, &to, i * job->pitch + window, job->pitch - window, NULL, 0);
    }
    return to;
}

/* The images of the left operand that positions of a block meet, one after the other. */
static tow__gemm_strips strips_of(const share *s)
{
    const sums_job *job = s->job;
    return (tow__gemm_strips){.dtype = job->c->dtype,
                              .stored = tow__half_or_none(job->c->x_dtype),
                              .m = s->rows,
                              .positions = job->along_h.n * job->along_w.n * job->image,
                              .data = s->x,
                              .choice = &job->r->choice};
}

/* One row of an image, at position `at`: elements phase + (index + low) * step of w, as many as the pitch. x NULL: all
 * are padding. */
static void copy_image_row(const share *s, const tow__gemm_strips *to, int64_t at, const char *x, int64_t residue)
{
    const sums_job *job = s->job;
    const tow__window_axis *w = job->w;
    const int64_t step = w->window_dilation, low = job->along_w.low, stride = job->c->x[job->c->spatial - 1];
    int64_t begin = low * step + residue < 0 ? tow__ceil_div(-low * step - residue, step) : 0;
    int64_t end = w->size > residue && x != NULL ? (w->size - 1 - residue) / step + 1 - low : 0;
    end = tow__max(0, tow__min(end, job->pitch));
    begin = tow__min(begin, end);
    lay_image(s, to, at, begin, NULL, 0);
    if (begin < end)
        lay_image(s, to, at + begin, end - begin, x + ((begin + low) * step + residue) * stride, step * stride);
    lay_image(s, to, at + end, job->pitch - end, NULL, 0);
}

/* Copies the elements of the left operand that positions [kh, kh + rows) meet, for all result positions. */
static void copy_images(const share *s, const tow__gemm_strips *to, const char *x, int64_t kh, int64_t rows)
{
    const sums_job *job = s->job;
    const tow__window_axis *h = job->h;
    const int64_t used = rows + job->along_h.high - job->along_h.low;
    for (int64_t i = 0; i < job->along_h.n; i++)
        for (int64_t j = 0; j < job->along_w.n; j++)
            for (int64_t row = 0; row < used; row++) {
                const int64_t at = (i * job->along_w.n + j) * job->image + row * job->pitch;
                const int64_t element = (kh + row + job->along_h.low) * h->window_dilation + job->along_h.phase[i];
                const bool meets = element >= 0 && element < h->size;
                copy_image_row(s, to, at, meets ? x + element * job->c->x[job->c->spatial - 2] : NULL,
                               job->along_w.phase[j]);
            }
}

/* The position with which what result position t meets begins. */
static int64_t first_of(const sums_job *job, int64_t t)
{
    const int64_t ph = t / job->w->result, pw = t % job->w->result;
    const int64_t image = job->along_h.slot[ph] * job->along_w.n + job->along_w.slot[pw];
    const int64_t row = job->along_h.shift[ph] - job->along_h.low, column = job->along_w.shift[pw] - job->along_w.low;
    return image * job->image + row * job->pitch + column;
}

/* The distance of result position t from the outer one, in bytes. */
static int64_t place_of(const sums_job *job, int64_t t)
{
    const int64_t *y = job->c->y + job->c->spatial - 2;
    return t / job->w->result * y[0] + t % job->w->result * y[1];
}

/* Adds a block to results of the share, some at a time: [tap, end). y: of the outer result position. */
static void add_windows(const share *s, tow__gemm_windows *g, char *y, int64_t tap, int64_t end)
{
    tow__gemm_window windows[WINDOWS];
    for (int64_t t = tap; t < end; t++)
        windows[t - tap] = (tow__gemm_window){first_of(s->job, t), y + place_of(s->job, t)};
    g->windows = windows;
    g->count = end - tap;
    tow__gemm_run_windows(g);
}

/* The same on the unit: a product for each result position. */
static void multiply_on_unit(const share *s, int64_t positions, char *y, bool adds)
{
    const sums_job *job = s->job;
    for (int64_t t = s->tap; t < s->tap_end; t++) {
        tow__gemm g = product_of(job, s->rows, positions);
        g.a = s->x + first_of(job, t) * s->rows * job->c->x_size;
        g.b = s->w;
        g.c = y + place_of(job, t);
        g.accumulate = adds;
        g.scratch = s->scratch;
        tow__conv_product(job->r, &g);
    }
}

/* Adds rows [kh, kh + rows) of the kernel w, and what they meet of x, to all results of the share. */
static void add_block(const share *s, const char *x, const char *w, char *y, int64_t kh, int64_t rows, bool adds)
{
    const tow__gemm_panels panels = copy_kernel(s, w, kh, rows); /* once for all results, as are the images */
    const tow__gemm_strips strips = strips_of(s);
    copy_images(s, &strips, x, kh, rows);
    if (s->job->c->unit != NULL) {
        multiply_on_unit(s, panels.k, y, adds);
        return;
    }
    tow__gemm_windows g = {.strips = &strips, .panels = &panels, .kc = tow__gemm_kc(panels.k), .adds = adds};
    g.ldc = s->job->c->y_entry / s->job->c->size;
    for (int64_t t = s->tap; t < s->tap_end; t += WINDOWS) add_windows(s, &g, y, t, tow__min(t + WINDOWS, s->tap_end));
}

bool tow__conv_outer(const tow__conv *c, const int64_t *x_strides, const int64_t *w_strides, int64_t p, int64_t k,
                     int64_t *x, int64_t *w, int64_t *y)
{
    *x = *w = *y = 0;
    bool meets = true;
    for (int i = c->spatial - 3; i >= 0; i--) {
        const tow__window_axis *a = &c->axes[i];
        int64_t element = tow__window_element(a, p % a->result, k % a->window);
        meets = meets && element >= 0;
        *x += element * x_strides[i];
        *w += k % a->window * w_strides[i];
        *y += p % a->result * c->y[i];
        p /= a->result;
        k /= a->window;
    }
    return meets;
}

static void clear(const share *s, char *y)
{
    const tow__conv *c = s->job->c;
    for (int64_t t = s->tap; t < s->tap_end; t++)
        for (int64_t i = 0; i < s->rows; i++)
            memset(y + place_of(s->job, t) + i * c->y_entry, 0, (size_t)(c->features * c->size));
}

static void run_epilogue(const share *s, const char *y)
{
    const tow__conv *c = s->job->c;
    for (int64_t t = s->tap; t < s->tap_end; t++)
        tow__conv_epilogue(s->job->r, y + place_of(s->job, t), s->rows, c->y_entry, c->features);
}

static void run_share(void *user, int64_t index, int thread)
{
    const sums_job *job = user;
    const tow__conv *c = job->c;
    share s = {.job = job};
    char *own = job->r->scratch + (size_t)thread * job->thread_bytes;
    s.x = own, s.w = own + job->x_bytes;
    s.scratch = job->unit_bytes > 0 ? s.w + job->w_bytes : NULL;
    int64_t part = index % job->tap_slices;
    s.tap = part * job->taps / job->tap_slices, s.tap_end = (part + 1) * job->taps / job->tap_slices;
    s.row = index / job->tap_slices % job->slices * job->slice;
    s.rows = tow__min(job->slice, c->batch - s.row);
    s.group = index / job->tap_slices / job->slices;
    int64_t outer_results = 1, outer_taps = 1, x_at, w_at, y_at;
    for (int i = 0; i < c->spatial - 2; i++) outer_results *= c->axes[i].result, outer_taps *= c->axes[i].window;
    for (int64_t p = 0; p < outer_results; p++) {
        bool adds = false;
        tow__conv_outer(c, c->x, c->w, p, 0, &x_at, &w_at, &y_at);
        char *y = job->r->y + s.group * c->y_group + s.row * c->y_entry + y_at;
        for (int64_t input = 0; input < c->inputs; input++)
            for (int64_t k = 0; k < outer_taps; k++) {
                if (!tow__conv_outer(c, c->x, c->w, p, k, &x_at, &w_at, &y_at)) continue;
                const char *x = job->r->x + s.group * c->x_group + s.row * c->x_entry + input * c->x_input + x_at;
                const char *w = job->r->w + s.group * c->w_group + input * c->w_input + w_at;
                for (int64_t kh = 0; kh < job->h->window; kh += job->block_rows, adds = true) {
                    int64_t rows = tow__min(job->block_rows, job->h->window - kh);
                    if (adds && tow__cancelled()) return;
                    add_block(&s, x, w, y, kh, rows, adds);
                }
            }
        if (!adds) clear(&s, y);
        run_epilogue(&s, y);
    }
}

static void run_sums(const tow__conv_run *r)
{
    sums_job job = {.r = r};
    plan(&job, r->c, r->threads);
    tow__team_run_indexed(r->team, job.c->groups * job.slices * job.tap_slices, run_share, &job);
}

const tow__conv_way tow__conv_sums = {"own", "own kernel: all results share copies of both operands",
                                      .batch_last = true, .scratch = scratch_sums, .run = run_sums};
