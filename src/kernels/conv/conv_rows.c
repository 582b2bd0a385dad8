/* Convolutions with few taps, by products.
 *
 *   y[n, p, o] = sum over taps (kd, kh) of
 *                X[row of p and (kd, kh)][position of p, kw and i]  .  W[kd, kh][kw and i][o]
 *
 * Along w, the taps kw of a position meet neighbors, so (kw, i) is one run in memory, and positions are rows a fixed
 * distance apart: a product of a row of the result with the kernel for one (kd, kh). A left operand with this layout
 * and no padding along w is used in place; else rows that a block of the result needs are copied with their padding,
 * which is as much as the operand itself and not its patches. With a dilated left operand every result position p has
 * the taps of its phase, p modulo a period, and each phase is a convolution of its own. Runs are added in the order of
 * taps. */
#include <string.h>

#include "src/kernels/conv/conv.h"
#include "src/kernels/halves.h"
#include "src/kernels/products/gemm_own.h"

enum {
    POSITIONS = 448,        /* of a block, about */
    NEAR_BYTES = 384 << 10, /* of copied rows of a block, about */
    MOST_ROWS = 32,         /* of h */
    FAR_ROW = 4096,         /* bytes; rows a multiple of this apart meet in the same few lines of a cache */
    PANEL = TOW__GEMM_PACKED_COLUMNS
};

/* One phase of w: results first, first + step, ... (count), whose taps are k0, k0 + tap_step, ... (taps of them) and
 * meet elements element + q * element_row + j * element_tap at result number q and tap number j. */
typedef struct phase {
    int64_t first, step, count;
    int64_t k0, taps, element;
} phase;

typedef struct rows_job {
    const tow__conv_run *r;
    const tow__conv *c;
    const tow__window_axis *h, *w;
    int64_t phases, tap_step, element_row, element_tap;
    int64_t low,
        high;      /* elements of w that any result meets: low <= e < high, beyond the operand where there is padding */
    bool in_place; /* the left operand is used where it lies, */
    bool far;      /* as one that comes from memory, or whose rows do not stay in a cache */
    int64_t h_rows, w_results;         /* results of a block: of h, and of each phase of w */
    int64_t h_blocks, w_blocks, outer; /* blocks along each; results of the other axes */
    int64_t outer_taps, slots, pitch;  /* taps of all axes but w; copied rows, and elements of one */
    char *dense, *packed;
    int64_t columns; /* features, whole panels */
    bool tiled;      /* a block of the result is made in a tile [rows][span of w][features], then transposed */
    int64_t span;    /* results of w of a block */
    char *own;       /* scratch memory of threads */
    size_t rows_bytes, tile_bytes, thread_bytes;
    int64_t k; /* elements of a row of the kernel, for each feature */
} rows_job;

static phase phase_of(const rows_job *job, int64_t first)
{
    const tow__window_axis *w = job->w;
    tow__taps t = tow__window_first_tap(w, first);
    phase p = {.first = first, .step = job->phases, .k0 = t.first, .element = t.element};
    p.count = first < w->result ? (w->result - 1 - first) / job->phases + 1 : 0;
    p.taps = t.step > 0 && t.first < w->window ? (w->window - 1 - t.first) / t.step + 1 : 0;
    return p;
}

/* The beginning of the taps of a phase in a row of the kernel that is sorted by k modulo tap_step. */
static int64_t kernel_place(const rows_job *job, int64_t k0)
{
    int64_t each = job->w->window / job->tap_step, more = job->w->window % job->tap_step;
    return k0 * each + tow__min(k0, more);
}

static int64_t common_divisor(int64_t a, int64_t b) { return b == 0 ? a : common_divisor(b, a % b); }

static void find_range(rows_job *job)
{
    bool any = false;
    for (int64_t i = 0; i < job->phases && i < job->w->result; i++) {
        phase p = phase_of(job, i);
        if (p.count == 0 || p.taps == 0) continue;
        int64_t end = p.element + (p.count - 1) * job->element_row + (p.taps - 1) * job->element_tap + 1;
        job->low = any ? tow__min(job->low, p.element) : p.element;
        job->high = any ? tow__max(job->high, end) : end;
        any = true;
    }
}

/* Elements that a block of at most w_results of each phase meets. */
static int64_t pitch_of(const rows_job *job)
{
    int64_t pitch = 0;
    for (int64_t i = 0; i < job->phases && i < job->w->result; i++) {
        phase p = phase_of(job, i);
        int64_t results = tow__min(p.count, job->w_results);
        if (p.taps == 0 || results == 0) continue;
        pitch = tow__max(pitch,
                         p.element - job->low + (results - 1) * job->element_row + (p.taps - 1) * job->element_tap + 1);
    }
    return tow__max(pitch, 1);
}

static int64_t slots_of(const rows_job *job, int64_t rows)
{
    const tow__window_axis *h = job->h;
    return ((rows - 1) * h->stride + (h->window - 1) * h->window_dilation) / h->base_dilation + 2;
}

static void plan(rows_job *job, const tow__conv *c)
{
    const int last = c->spatial - 1;
    job->c = c;
    job->w = &c->axes[last];
    job->h = &c->axes[last - 1];
    int64_t by_row = common_divisor(job->w->base_dilation, job->w->stride);
    int64_t by_tap = common_divisor(job->w->base_dilation, job->w->window_dilation);
    job->phases = job->w->base_dilation / by_row;
    job->element_row = job->w->stride / by_row;
    job->tap_step = job->w->base_dilation / by_tap;
    job->element_tap = job->w->window_dilation / by_tap;
    find_range(job);
    const bool runs = (c->inputs == 1 || c->x_input == c->size) && !tow__conv_widens(c);
    const bool follow = job->w->window == 1 || job->element_tap > 1 || c->x[last] == c->inputs * c->size;
    job->in_place = runs && follow && job->low >= 0 && job->high <= job->w->size && c->x[last] >= 0;
    job->w_results = tow__min(POSITIONS, (job->w->result - 1) / job->phases + 1);
    job->h_rows = tow__max(1, tow__min(job->h->result, POSITIONS / tow__min(job->w->result, POSITIONS)));
    job->h_rows = tow__min(job->h_rows, MOST_ROWS);
    job->pitch = pitch_of(job);
    job->slots = tow__min(slots_of(job, job->h_rows), tow__max(job->h->size, 1));
    while (!job->in_place && job->h_rows > 1 && job->slots * job->pitch * c->inputs * c->size > NEAR_BYTES) {
        job->h_rows = (job->h_rows + 1) / 2;
        job->slots = tow__min(slots_of(job, job->h_rows), tow__max(job->h->size, 1));
    }
    job->h_blocks = tow__ceil_div(job->h->result, job->h_rows);
    job->w_blocks = tow__ceil_div((job->w->result - 1) / job->phases + 1, job->w_results);
    job->outer = 1;
    job->outer_taps = job->h->window;
    for (int i = 0; i < last - 1; i++) {
        job->outer *= c->axes[i].result;
        job->outer_taps *= c->axes[i].window;
    }
    job->columns = tow__ceil_div(c->features, PANEL) * PANEL;
    job->k = job->w->window * c->inputs;
    job->far = job->in_place && (c->taps == 1 || job->element_row * c->x[last] % FAR_ROW == 0);
    job->rows_bytes = job->in_place ? 0 : tow__conv_round((size_t)(job->slots * job->pitch * c->inputs * c->size));
    job->tiled = c->y_feature != c->size;
    job->span = tow__min(job->w_results * job->phases, job->w->result);
    job->tile_bytes = job->tiled ? tow__conv_round((size_t)(job->h_rows * job->span * c->features * c->size)) : 0;
    int64_t strip = job->far ? tow__min(job->w_results, 512) * tow__min(job->k, TOW__GEMM_KC) + 64 : 0;
    job->thread_bytes = job->rows_bytes + job->tile_bytes + tow__conv_round((size_t)(strip * c->size));
}

static size_t dense_bytes(const rows_job *job)
{
    return tow__conv_round((size_t)(job->c->groups * job->outer_taps * job->k * job->c->features * job->c->w_size));
}
static size_t packed_bytes(const rows_job *job)
{
    return tow__conv_round((size_t)(job->c->groups * job->outer_taps * job->k * job->columns * job->c->size));
}

static size_t scratch_rows(const tow__conv *c, int threads)
{
    rows_job job = {.low = 0};
    plan(&job, c);
    return dense_bytes(&job) + packed_bytes(&job) + (size_t)threads * job.thread_bytes;
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

/* Offset of tap `index` (row-major over all axes but w) in the kernel. */
static int64_t tap_offset(const tow__conv *c, int64_t index)
{
    int64_t offset = 0;
    for (int i = c->spatial - 2; i >= 0; i--) {
        offset += index % c->axes[i].window * c->w[i];
        index /= c->axes[i].window;
    }
    return offset;
}

/* Elements of a row of the kernel that belong to one product: all taps of a class, or one tap where they do not meet
 * neighbors. */
static int64_t kernel_run(const rows_job *job, int64_t taps)
{
    return (job->element_tap == 1 ? taps : 1) * job->c->inputs;
}

/* One (group, outer tap): taps sorted by class, each [inputs][features], then packed for products. */
static void prepare_kernel(void *user, int64_t block)
{
    const rows_job *job = user;
    const tow__conv *c = job->c;
    const int last = c->spatial - 1;
    const char *from = job->r->w + block / job->outer_taps * c->w_group + tap_offset(c, block % job->outer_taps);
    char *to = job->dense + block * job->k * c->features * c->w_size;
    for (int64_t k0 = 0; k0 < job->tap_step && k0 < c->axes[last].window; k0++) {
        int64_t taps = (c->axes[last].window - 1 - k0) / job->tap_step + 1, at = kernel_place(job, k0) * c->inputs;
        for (int64_t j = 0; j < taps; j++) {
            const char *tap = from + (k0 + j * job->tap_step) * c->w[last];
            tow__conv_copy(c, tap, c->inputs, c->w_input, c->features, c->w_feature,
                           to + (at + j * c->inputs) * c->features * c->w_size);
        }
        const int64_t run = kernel_run(job, taps);
        for (int64_t p = 0; p < taps * c->inputs; p += run) {
            tow__gemm g = {.dtype = c->dtype, .threads = 1, .n = c->features, .k = run, .b_row = c->features};
            g.b_dtype = tow__half_or_none(c->w_dtype);
            g.b_column = 1;
            g.b = to + (at + p) * c->features * c->w_size;
            g.packed = job->packed + (block * job->k + at + p) * job->columns * c->size;
            g.choice = &job->r->choice;
            tow__gemm_pack(&g, &tow__gemm_own);
        }
    }
}

/* ---- rows of the left operand ------------------------------------------------------------------------------------ */

/* Elements [first, first + n) of a row of w, n * inputs numbers; zeros outside of the operand. */
static void copy_row(const rows_job *job, const char *x, int64_t first, int64_t n, char *to)
{
    const tow__conv *c = job->c;
    const int64_t row = c->inputs * c->size, step = c->x[c->spatial - 1], size = job->w->size;
    const int64_t begin = tow__max(0, tow__min(n, -first)), end = tow__max(begin, tow__min(n, size - first));
    memset(to, 0, (size_t)(begin * row));
    memset(to + end * row, 0, (size_t)((n - end) * row));
    tow__conv_read(c, x + (first + begin) * step, end - begin, step, c->inputs, c->x_input, to + begin * row, row);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* A block: results [oh, oh + rows) of h and [q, q + w_results) of every phase of w, at one index of the other
 * axes, of one batch entry and group. */
typedef struct block {
    const rows_job *job;
    int64_t group, oh, rows, q;
    const char *x; /* of the entry and group */
    char *y;       /* where row `oh` and result q of the first phase go, for the group: in the result, or the tile */
    int64_t y_row, y_step;
    tow__taps outer[TOW_MAX_RANK];
    char *copied, *tile;
    void *scratch;
    int64_t slot, left; /* element of h of the first copied row, of w of its first element */
} block;

static bool find_rows(const block *b, int64_t *first, int64_t *end)
{
    bool any = false;
    for (int64_t i = 0; i < b->rows; i++) {
        tow__taps t = tow__window_taps(b->job->h, b->oh + i);
        if (t.count == 0) continue;
        int64_t last = t.element + (t.count - 1) * t.element_step + 1;
        *first = any ? tow__min(*first, t.element) : t.element;
        *end = any ? tow__max(*end, last) : last;
        any = true;
    }
    return any;
}

/* Results of a phase in the block. */
static int64_t results_of(const block *b, const phase *p) { return tow__min(b->job->w_results, p->count - b->q); }

/* Products of rows of the block with the same taps of one row of the kernel. */
typedef struct row_products {
    const block *b;
    const phase *p;
    int64_t tap; /* of all axes but w */
    int64_t count;
    tow__gemm_member members[MOST_ROWS];
} row_products;

static void run_rows_epilogue(void *user, const tow__gemm_member *member, int64_t row, int64_t rows, int64_t column,
                              int64_t columns)
{
    const row_products *rp = user;
    const rows_job *job = rp->b->job;
    const int64_t ldc = rp->p->step * rp->b->y_step / job->c->size;
    tow__epilogue_place place = {job->r->epilogue, ((const char *)member->c - job->r->y) / job->c->size, ldc};
    tow__epilogue_on_rectangle(&place, row, rows, column, columns);
}

/* Products of operands that are not near one by one, with all that the own kernel does for these. place: of B. */
static void multiply_far(const row_products *rp, const tow__gemm_series *s, int64_t place)
{
    const rows_job *job = rp->b->job;
    const tow__conv *c = job->c;
    for (int64_t i = 0; i < s->count; i++) {
        char *y = s->members[i].c;
        tow__epilogue_place finished = {job->r->epilogue, (y - job->r->y) / c->size, s->ldc};
        tow__gemm g = {
            .dtype = s->dtype, .accumulate = s->members[i].adds, .m = s->m, .n = s->n, .k = s->k, .kc = s->kc};
        g.a = s->members[i].a, g.a_row = s->a_row, g.a_column = 1;
        g.b = job->dense + place * c->features * c->w_size, g.b_row = c->features, g.b_column = 1;
        g.b_dtype = tow__half_or_none(c->w_dtype);
        g.packed = job->packed + place * job->columns * c->size;
        g.c = y, g.ldc = s->ldc;
        g.scratch = rp->b->scratch;
        if (s->epilogue != NULL && s->members[i].completes) {
            g.epilogue = tow__epilogue_on_rectangle;
            g.user = &finished;
            for (int j = 0; j < TOW__EPILOGUE_OPERANDS && job->r->epilogue->operands[j]; j++)
                g.epilogue_operands[j] = (const char *)job->r->epilogue->operands[j] + (y - job->r->y);
        }
        tow__conv_product(job->r, &g);
    }
}

/* Runs the products that were collected. Those with taps that do not meet neighbors are one for each tap. */
static void multiply_collected(row_products *rp)
{
    const block *b = rp->b;
    const rows_job *job = b->job;
    const tow__conv *c = job->c;
    const int64_t step = job->in_place ? c->x[c->spatial - 1] : c->inputs * c->size, run = kernel_run(job, rp->p->taps);
    const int64_t place = (b->group * job->outer_taps + rp->tap) * job->k + kernel_place(job, rp->p->k0) * c->inputs;
    const int64_t products = rp->p->taps * c->inputs / run;
    tow__gemm_series s = {.dtype = c->dtype, .m = results_of(b, rp->p), .n = c->features, .k = run};
    s.kc = tow__gemm_kc(run);
    s.a_row = job->element_row * step / c->size;
    s.ldc = rp->p->step * b->y_step / c->size;
    s.members = rp->members;
    s.count = rp->count;
    s.choice = &job->r->choice;
    s.user = rp;
    for (int64_t j = 0; j < products; j++) {
        if (j + 1 == products && !job->tiled && job->r->epilogue != NULL) s.epilogue = run_rows_epilogue;
        s.packed = job->packed + (place + j * run) * job->columns * c->size;
        if (job->far)
            multiply_far(rp, &s, place + j * run);
        else
            tow__gemm_run_series(&s);
        for (int64_t i = 0; i < rp->count; i++) {
            rp->members[i].a = (const char *)rp->members[i].a + job->element_tap * step;
            rp->members[i].adds = true;
        }
    }
    rp->count = 0;
}

/* Adds the product of one row. x: the row of the left operand; last: it completes the result, on which the epilogue may
 * run. */
static void collect_row(row_products *rp, int64_t row, const char *x, bool adds, bool last)
{
    const block *b = rp->b;
    const rows_job *job = b->job;
    const tow__conv *c = job->c;
    const int64_t step = job->in_place ? c->x[c->spatial - 1] : c->inputs * c->size;
    x += (rp->p->element + b->q * job->element_row - (job->in_place ? 0 : b->left)) * step;
    char *y = b->y + row * b->y_row + rp->p->first * b->y_step;
    rp->members[rp->count++] = (tow__gemm_member){x, y, adds, last};
}

/* A row of results that meet no tap. */
static void clear_row(const block *b, const phase *p, int64_t row)
{
    const tow__conv *c = b->job->c;
    char *y = b->y + row * b->y_row + p->first * b->y_step;
    for (int64_t q = 0; q < results_of(b, p); q++)
        memset(y + q * p->step * b->y_step, 0, (size_t)(c->features * c->size));
    if (!b->job->tiled) tow__conv_epilogue(b->job->r, y, results_of(b, p), p->step * b->y_step, c->features);
}

/* The tap kh of one row of the result, if the row has it, at one tap of the outer axes, for which the left operand
 * begins at x. */
static void collect_tap(row_products *rp, int64_t row, int64_t kh, const char *x, bool first, bool last)
{
    const block *b = rp->b;
    const rows_job *job = b->job;
    const tow__conv *c = job->c;
    const tow__taps t = tow__window_taps(job->h, b->oh + row);
    if (t.count == 0 || kh < t.first || (kh - t.first) % t.step != 0) return;
    const int64_t j = (kh - t.first) / t.step, element = t.element + j * t.element_step;
    if (j >= t.count) return;
    const char *from = job->in_place ? x + element * c->x[c->spatial - 2]
                                     : b->copied + (element - b->slot) * job->pitch * c->inputs * c->size;
    collect_row(rp, row, from, !first || j > 0, last && j + 1 == t.count);
}

/* All taps kh of all rows of a block. The rows share the taps, so that each row of the kernel is read once. */
static void multiply_rows(const block *b, const char *x, int64_t outer_tap, bool first, bool last)
{
    const rows_job *job = b->job;
    for (int64_t i = 0; i < job->phases; i++) {
        const phase p = phase_of(job, i);
        if (p.count <= b->q) continue;
        for (int64_t row = 0; row < b->rows && first; row++)
            if (p.taps == 0 || tow__window_taps(job->h, b->oh + row).count == 0) clear_row(b, &p, row);
        row_products rp = {.b = b, .p = &p, .count = 0};
        for (int64_t kh = 0; kh < job->h->window && p.taps > 0; kh++) {
            rp.tap = outer_tap * job->h->window + kh;
            for (int64_t row = 0; row < b->rows; row++) collect_tap(&rp, row, kh, x, first, last);
            if (rp.count > 0) multiply_collected(&rp);
        }
    }
}

/* Copies what the block needs at one outer tap. */
static void copy_rows(block *b, const char *x)
{
    const rows_job *job = b->job;
    const tow__conv *c = job->c;
    int64_t end = 0;
    b->left = job->low + b->q * job->element_row;
    if (!find_rows(b, &b->slot, &end)) return;
    for (int64_t i = b->slot; i < end; i++)
        copy_row(job, x + i * c->x[c->spatial - 2], b->left, job->pitch,
                 b->copied + (i - b->slot) * job->pitch * c->inputs * c->size);
}

/* All taps of the outer axes, in order. */
static void run_taps(block *b)
{
    const rows_job *job = b->job;
    const tow__conv *c = job->c;
    const int outer = c->spatial - 2;
    int64_t combinations = 1;
    for (int i = 0; i < outer; i++) combinations *= b->outer[i].count;
    for (int64_t k = 0; k < combinations; k++) {
        if (k > 0 && tow__cancelled()) return;
        const char *x = b->x;
        int64_t tap = 0, rest = k, weight = 1;
        for (int i = outer - 1; i >= 0; i--) {
            const tow__taps *t = &b->outer[i];
            int64_t j = rest % t->count;
            rest /= t->count;
            x += (t->element + j * t->element_step) * c->x[i];
            tap += (t->first + j * t->step) * weight;
            weight *= c->axes[i].window;
        }
        if (!job->in_place) copy_rows(b, x);
        multiply_rows(b, x, tap, k == 0, k + 1 == combinations);
    }
    for (int64_t i = 0; combinations == 0 && i < job->phases; i++) {
        phase p = phase_of(job, i);
        for (int64_t row = 0; row < b->rows && p.count > b->q; row++) clear_row(b, &p, row);
    }
}

/* Brings a tile to where it belongs in the result, and runs the epilogue there. y: of row `oh` and result q. */
static void store_tile(const block *b, char *y)
{
    const rows_job *job = b->job;
    const tow__conv *c = job->c;
    const int64_t n = tow__min(job->span, job->w->result - b->q * job->phases), step = c->y[c->spatial - 2];
    const int64_t row = job->span * c->features * c->size, at_once = n * c->size == step ? b->rows : 1;
    for (int64_t i = 0; i < b->rows; i += at_once) {
        tow__transpose_matrix((size_t)c->size, c->features, at_once * n, y + i * step, c->y_feature / c->size,
                              b->tile + i * row, c->features);
        tow__conv_epilogue(job->r, y + i * step, c->features, c->y_feature, at_once * n);
    }
}

static void run_block(void *user, int64_t index, int thread)
{
    const rows_job *job = user;
    const tow__conv *c = job->c;
    block b = {.job = job};
    char *own = job->own + (size_t)thread * job->thread_bytes;
    b.copied = own;
    b.tile = own + job->rows_bytes;
    b.scratch = own + job->rows_bytes + job->tile_bytes;
    b.q = index % job->w_blocks * job->w_results, index /= job->w_blocks;
    b.oh = index % job->h_blocks * job->h_rows, index /= job->h_blocks;
    b.rows = tow__min(job->h_rows, job->h->result - b.oh);
    b.y_row = job->tiled ? job->span * c->features * c->size : c->y[c->spatial - 2];
    b.y_step = job->tiled ? c->features * c->size : c->y[c->spatial - 1];
    int64_t outer = index % job->outer, entry = index / job->outer;
    char *y = job->r->y + entry * c->y_entry + b.oh * c->y[c->spatial - 2] + b.q * job->phases * c->y[c->spatial - 1];
    for (int i = c->spatial - 3; i >= 0; i--) {
        b.outer[i] = tow__window_taps(&c->axes[i], outer % c->axes[i].result);
        y += outer % c->axes[i].result * c->y[i];
        outer /= c->axes[i].result;
    }
    for (b.group = 0; b.group < c->groups; b.group++, y += c->y_group) {
        if (b.group > 0 && tow__cancelled()) return;
        b.x = job->r->x + entry * c->x_entry + b.group * c->x_group;
        b.y = job->tiled ? b.tile : y;
        run_taps(&b);
        if (job->tiled) store_tile(&b, y);
    }
}

static void run_rows(const tow__conv_run *r)
{
    rows_job job = {.r = r};
    plan(&job, r->c);
    job.dense = r->scratch;
    job.packed = r->scratch + dense_bytes(&job);
    job.own = r->scratch + dense_bytes(&job) + packed_bytes(&job);
    tow__team_run(r->team, job.c->groups * job.outer_taps, prepare_kernel, &job);
    tow__team_run_indexed(r->team, job.c->batch * job.outer * job.h_blocks * job.w_blocks, run_block, &job);
}

const tow__conv_way tow__conv_rows = {"own", "own kernel: few taps, whose rows are multiplied where they are",
                                      .transposes = true, .scratch = scratch_rows, .run = run_rows};
