/* Convolutions whose result is narrow along w, or in which a row of the kernel is short: by products over many
 * positions.
 *
 *   y[p, o] = sum over taps of   X[element that p and the tap meet][i]  .  W[tap][i][o]
 *
 * Products of rows of w (conv_rows.c) would have few rows here, each of which reads all of the kernel, or few elements
 * to sum. So a block of positions, which goes on through all spatial axes and the batch, is gathered in a tile that
 * stays in the L2 cache: for each position the elements that some taps meet, with zeros for padding. One product then
 * multiplies the tile with those taps of the kernel, and the next taps are added. With a dilated left operand the
 * result positions are divided into phases along each axis, each of which meets a subset of the taps and no holes;
 * their products are made in a second tile and stored from there, as are results whose features are not neighbors. */
#include <string.h>

#include "src/kernels/conv/conv.h"
#include "src/kernels/halves.h"
#include "src/kernels/products/gemm_own.h"

enum {
    TILE_BYTES = 384 << 10, /* of gathered elements, about */
    MOST_ROWS = 448,        /* positions of a tile */
    LEAST_ROWS = 28,
    STRIP = 14,         /* blocks are multiples of this where they can be */
    LEAST_COLUMNS = 64, /* features of a slice */
    PANEL = TOW__GEMM_PACKED_COLUMNS,
    PACKED_BLOCKS = 4 /* for each thread: from so many on the kernel is packed once for all */
};

/* One phase of an axis: results first, first + step, ... (count), whose taps are k0, k0 + tap_step, ... (taps of them)
 * and meet elements element + q * element_row + j * element_tap at result number q and tap number j. */
typedef struct axis_phase {
    int64_t first, step, count;
    int64_t k0, tap_step, taps;
    int64_t element, element_row, element_tap;
} axis_phase;

/* A phase of all axes: a convolution of its own, of a left operand without holes. */
typedef struct gathered_phase {
    axis_phase axes[TOW_MAX_RANK];
    int64_t positions, taps; /* of one batch entry */
} gathered_phase;

typedef struct gathered_job {
    const tow__conv_run *r;
    const tow__conv *c;
    gathered_phase phase;
    int64_t phases[TOW_MAX_RANK], all_phases; /* along each axis */
    int64_t rows, columns;                    /* positions and features of a block; at most */
    int64_t row_blocks, slices;
    int64_t taps_at_once; /* taps of a tile */
    bool kernel_in_place, packs, tiled;
    char *dense, *packed, *own;
    size_t dense_bytes, packed_bytes, tile_bytes, result_bytes, thread_bytes;
} gathered_job;

static int64_t common_divisor(int64_t a, int64_t b) { return b == 0 ? a : common_divisor(b, a % b); }

static int64_t phases_of(const tow__window_axis *a)
{
    return a->base_dilation / common_divisor(a->base_dilation, a->stride);
}

static axis_phase phase_of(const tow__window_axis *a, int64_t first)
{
    const int64_t by_row = common_divisor(a->base_dilation, a->stride);
    const tow__taps t = tow__window_first_tap(a, first);
    axis_phase p = {.first = first, .step = a->base_dilation / by_row, .k0 = t.first, .tap_step = t.step};
    p.element = t.element;
    p.element_row = a->stride / by_row;
    p.element_tap = t.element_step;
    p.count = first < a->result ? (a->result - 1 - first) / p.step + 1 : 0;
    p.taps = t.step > 0 && t.first < a->window ? (a->window - 1 - t.first) / t.step + 1 : 0;
    return p;
}

static gathered_phase find_phase(const gathered_job *job, int64_t index)
{
    gathered_phase p = {.positions = 1, .taps = 1};
    for (int i = job->c->spatial - 1; i >= 0; i--) {
        p.axes[i] = phase_of(&job->c->axes[i], index % job->phases[i]);
        p.positions *= p.axes[i].count;
        p.taps *= p.axes[i].taps;
        index /= job->phases[i];
    }
    return p;
}

/* True if the kernel is [taps, inputs, features] in memory. */
static bool is_dense_kernel(const tow__conv *c)
{
    int64_t step = c->inputs * c->w_input;
    if (c->w_feature != c->w_size || c->w_input < c->features * c->w_size) return false;
    for (int i = c->spatial - 1; i >= 0; i--) {
        if (c->axes[i].window > 1 && c->w[i] != step) return false;
        step *= c->axes[i].window;
    }
    return true;
}

/* True if positions follow each other in the result at one distance, from entry to entry as well. */
static bool is_even(const tow__conv *c)
{
    int64_t step = c->y[c->spatial - 1];
    for (int i = c->spatial - 1; i >= 0; i--) {
        if (c->axes[i].result > 1 && c->y[i] != step) return false;
        step *= c->axes[i].result;
    }
    return c->batch == 1 || c->y_entry == step;
}

static void plan_blocks(gathered_job *job, int threads)
{
    const tow__conv *c = job->c;
    const int64_t positions = tow__max(1, c->batch * c->positions / job->all_phases);
    job->taps_at_once = tow__conv_taps_at_once(c);
    const int64_t k = job->taps_at_once * c->inputs;
    int64_t rows = tow__min(MOST_ROWS, tow__max(LEAST_ROWS, TILE_BYTES / (k * tow__conv_tile_size(c))));
    rows = tow__min(rows, tow__ceil_div(tow__ceil_div(positions, threads), STRIP) * STRIP);
    job->rows = rows < STRIP ? rows : rows / STRIP * STRIP;
    job->row_blocks = tow__ceil_div(positions, job->rows);
    const int64_t most = tow__max(1, c->features / LEAST_COLUMNS);
    job->slices = job->row_blocks * c->groups >= 2 * threads ? 1 : tow__min(most, threads);
    job->columns = tow__ceil_div(tow__ceil_div(c->features, job->slices), PANEL) * PANEL;
    job->slices = tow__ceil_div(c->features, job->columns);
}

/* Scratch memory of a product of a tile, at most. */
static size_t product_bytes(const gathered_job *job, int64_t k)
{
    tow__gemm g = {.dtype = TOW_F32, .a_dtype = TOW_BF16, .b_dtype = TOW_BF16, .m = job->rows, .n = job->columns};
    size_t bytes = 0;
    if (job->c->unit == NULL) return (size_t)((job->rows * tow__min(k, TOW__GEMM_KC) + 64) * job->c->size);
    for (g.k = k; g.k > 0; g.k -= job->c->inputs) { /* a phase may have fewer taps */
        const size_t need = tow__gemm_scratch(&g, job->c->unit);
        if (need > bytes) bytes = need;
    }
    return bytes;
}

static void plan(gathered_job *job, const tow__conv *c, int threads)
{
    job->c = c;
    job->all_phases = 1;
    bool holes = false; /* some taps meet holes: the kernel has rows that a phase does not use */
    for (int i = 0; i < c->spatial; i++) {
        job->all_phases *= job->phases[i] = phases_of(&c->axes[i]);
        holes = holes || c->axes[i].base_dilation > 1;
    }
    plan_blocks(job, threads);
    job->tiled = holes || c->y_feature != c->size || !is_even(c);
    job->kernel_in_place = !holes && is_dense_kernel(c);
    job->packs = c->unit == NULL && job->row_blocks * c->groups >= (int64_t)PACKED_BLOCKS * threads;
    const int64_t kernel = c->taps * c->inputs, panels = tow__ceil_div(c->features, PANEL) * PANEL;
    job->dense_bytes =
        job->kernel_in_place ? 0 : tow__conv_round((size_t)(c->groups * kernel * c->features * c->w_size));
    job->packed_bytes = job->packs ? tow__conv_round((size_t)(c->groups * kernel * panels * c->size)) : 0;
    const int64_t k = job->taps_at_once * c->inputs;
    job->tile_bytes = tow__conv_round((size_t)(job->rows * k * tow__conv_tile_size(c)));
    job->result_bytes = job->tiled ? tow__conv_round((size_t)(job->rows * job->columns * c->size)) : 0;
    job->thread_bytes = job->tile_bytes + job->result_bytes + tow__conv_round(product_bytes(job, k));
}

static size_t scratch_gathered(const tow__conv *c, int threads)
{
    gathered_job job = {.packs = false};
    plan(&job, c, threads);
    return job.dense_bytes + job.packed_bytes + (size_t)threads * job.thread_bytes;
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

/* Tap number j (row-major over all axes) of a phase: its index along each axis. */
static void split_tap(const gathered_phase *p, int spatial, int64_t j, int64_t *index)
{
    for (int i = spatial - 1; i >= 0; i--) {
        index[i] = j % p->axes[i].taps;
        j /= p->axes[i].taps;
    }
}

/* A B of the product with taps [tap, tap + taps): where it lies and the elements from row to row. */
static const char *kernel_at(const gathered_job *job, int64_t group, int64_t tap, int64_t *row)
{
    const tow__conv *c = job->c;
    *row = job->kernel_in_place ? c->w_input / c->w_size : c->features;
    if (job->kernel_in_place) return job->r->w + group * c->w_group + tap * c->inputs * c->w_input;
    return job->dense + (group * job->phase.taps + tap) * c->inputs * c->features * c->w_size;
}

static char *packed_at(const gathered_job *job, int64_t group, int64_t tap)
{
    const int64_t panels = tow__ceil_div(job->c->features, PANEL) * PANEL;
    return job->packed + (group * job->phase.taps + tap) * job->c->inputs * panels * job->c->size;
}

/* One tap of one group to the dense kernel. */
static void copy_tap(void *user, int64_t index)
{
    const gathered_job *job = user;
    const tow__conv *c = job->c;
    const int64_t group = index / job->phase.taps, tap = index % job->phase.taps;
    int64_t at[TOW_MAX_RANK], row;
    const char *from = job->r->w + group * c->w_group;
    split_tap(&job->phase, c->spatial, tap, at);
    for (int i = 0; i < c->spatial; i++) {
        const axis_phase *a = &job->phase.axes[i];
        from += (a->k0 + at[i] * a->tap_step) * c->w[i];
    }
    char *to = (char *)(uintptr_t)kernel_at(job, group, tap, &row);
    tow__conv_copy(c, from, c->inputs, c->w_input, c->features, c->w_feature, to);
}

/* The taps of one tile of one group to panels. */
static void pack_taps(void *user, int64_t index)
{
    const gathered_job *job = user;
    const tow__conv *c = job->c;
    const int64_t tiles = tow__ceil_div(job->phase.taps, job->taps_at_once);
    const int64_t group = index / tiles, tap = index % tiles * job->taps_at_once;
    tow__gemm g = {.dtype = c->dtype, .threads = 1, .n = c->features, .b_column = 1, .choice = &job->r->choice};
    g.k = tow__min(job->taps_at_once, job->phase.taps - tap) * c->inputs;
    g.b_dtype = tow__half_or_none(c->w_dtype);
    g.b = kernel_at(job, group, tap, &g.b_row);
    g.packed = packed_at(job, group, tap);
    tow__gemm_pack(&g, &tow__gemm_own);
}

/* ---- the left operand -------------------------------------------------------------------------------------------- */

/* Some positions that differ along w alone: `count` of them, result number q of the phase and on; the element of the
 * left operand with index 0 along w, one of each other axis, or none of these (`meets` false). */
typedef struct stretch {
    int64_t q, count;
    const char *x;
    bool meets;
} stretch;

/* One tap along w of a stretch: its `inputs` elements for each position, `row` bytes from one to the next. */
static void gather_tap(const gathered_job *job, const stretch *s, int64_t j, char *to, int64_t row)
{
    const tow__conv *c = job->c;
    const axis_phase *w = &job->phase.axes[c->spatial - 1];
    const int64_t step = c->x[c->spatial - 1], bytes = c->inputs * tow__conv_tile_size(c);
    const int64_t first = w->element + s->q * w->element_row + j * w->element_tap; /* met by the first position */
    int64_t begin = 0, end = s->meets ? s->count : 0;
    while (begin < end && first + begin * w->element_row < 0) begin++;
    while (begin < end && first + (end - 1) * w->element_row >= c->axes[c->spatial - 1].size) end--;
    if (begin == end) begin = end = 0;
    for (int64_t i = 0; i < s->count; i++)
        if (i < begin || i >= end) memset(to + i * row, 0, (size_t)bytes);
    if (begin == end) return;
    const char *from = s->x + (first + begin * w->element_row) * step;
    const int64_t input = c->inputs == 1 ? c->x_size : c->x_input;
    tow__conv_read(c, from, end - begin, w->element_row * step, c->inputs, input, to + begin * row, row);
}

/* All `taps` along w, which meet neighbors: one run of elements for each position. */
static void gather_run(const gathered_job *job, const stretch *s, int64_t taps, char *to, int64_t row)
{
    const tow__conv *c = job->c;
    const axis_phase *w = &job->phase.axes[c->spatial - 1];
    const int64_t bytes = c->inputs * tow__conv_tile_size(c), size = c->axes[c->spatial - 1].size;
    for (int64_t i = 0; i < s->count; i++, to += row) {
        const int64_t first = w->element + (s->q + i) * w->element_row;
        const int64_t begin = s->meets ? tow__max(0, tow__min(taps, -first)) : 0;
        const int64_t end = s->meets ? tow__max(begin, tow__min(taps, size - first)) : 0;
        if (begin > 0) memset(to, 0, (size_t)(begin * bytes));
        tow__conv_read(c, s->x + (first + begin) * c->inputs * c->x_size, 1, 0, (end - begin) * c->inputs, c->x_size,
                       to + begin * bytes, 0);
        if (end < taps) memset(to + end * bytes, 0, (size_t)((taps - end) * bytes));
    }
}

/* The stretch at position p of all positions of all entries, of `left` positions at most. */
static stretch find_stretch(const gathered_job *job, int64_t group, int64_t p, int64_t left, int64_t *index)
{
    const tow__conv *c = job->c;
    const int last = c->spatial - 1;
    const axis_phase *w = &job->phase.axes[last];
    stretch s = {.q = p % w->count};
    s.count = tow__min(left, w->count - s.q);
    p /= w->count;
    for (int i = last - 1; i >= 0; i--) {
        index[i] = p % job->phase.axes[i].count;
        p /= job->phase.axes[i].count;
    }
    index[last] = p; /* the entry */
    s.x = job->r->x + p * c->x_entry + group * c->x_group;
    return s;
}

/* Moves a stretch to what it meets with these taps of the axes but w. */
static stretch at_taps(const gathered_job *job, stretch s, const int64_t *index, const int64_t *tap)
{
    const tow__conv *c = job->c;
    s.meets = true;
    for (int i = 0; i < c->spatial - 1; i++) {
        const axis_phase *a = &job->phase.axes[i];
        const int64_t element = a->element + index[i] * a->element_row + tap[i] * a->element_tap;
        s.meets = s.meets && element >= 0 && element < c->axes[i].size;
        s.x += element * c->x[i];
    }
    return s;
}

/* Taps [tap, tap + taps) of positions [p, p + rows) to a tile. */
static void gather(const gathered_job *job, int64_t group, int64_t p, int64_t rows, int64_t tap, int64_t taps,
                   char *tile)
{
    const tow__conv *c = job->c;
    const int last = c->spatial - 1;
    const axis_phase *w = &job->phase.axes[last];
    const int64_t bytes = c->inputs * tow__conv_tile_size(c), row = taps * bytes;
    const bool lies = c->x_input == c->x_size || c->inputs == 1;
    const bool runs = lies && w->element_tap == 1 && c->x[last] == c->inputs * c->x_size;
    int64_t index[TOW_MAX_RANK], at[TOW_MAX_RANK];
    for (int64_t done = 0, n; done < rows; done += n, tile += n * row) {
        const stretch here = find_stretch(job, group, p + done, rows - done, index);
        n = here.count;
        for (int64_t t = 0, some; t < taps; t += some) {
            split_tap(&job->phase, c->spatial, tap + t, at);
            const stretch s = at_taps(job, here, index, at);
            some = runs && at[last] == 0 ? tow__min(w->taps, taps - t) : 1;
            if (some > 1)
                gather_run(job, &s, some, tile + t * bytes, row);
            else
                gather_tap(job, &s, at[last], tile + t * bytes, row);
        }
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* A block of the result: positions [p, p + rows) of the phase, features [column, column + columns) of a group. */
typedef struct block {
    const gathered_job *job;
    int64_t group, p, rows, column, columns;
    char *tile, *result;
    void *scratch;
} block;

/* The place of position p of the phase in the result. */
static char *place_of(const block *b, int64_t p)
{
    const tow__conv *c = b->job->c;
    char *y = b->job->r->y + b->group * c->y_group + b->column * c->y_feature;
    for (int i = c->spatial - 1; i >= 0; i--) {
        const axis_phase *a = &b->job->phase.axes[i];
        y += (a->first + p % a->count * a->step) * c->y[i];
        p /= a->count;
    }
    return y + p * c->y_entry;
}

static void multiply(const block *b, int64_t tap, int64_t taps, bool last, char *y, int64_t ldc)
{
    const gathered_job *job = b->job;
    const tow__conv *c = job->c;
    const tow__epilogue *epilogue = job->tiled || !last ? NULL : job->r->epilogue;
    tow__gemm g = {.m = b->rows, .n = b->columns, .k = taps * c->inputs, .a_column = 1, .b_column = 1};
    g.kc = tow__gemm_kc(g.k);
    g.accumulate = tap > 0;
    g.a = b->tile;
    g.a_row = g.k;
    g.a_dtype = c->unit != NULL ? c->x_dtype : (tow_dtype)0;
    g.b = kernel_at(job, b->group, tap, &g.b_row) + b->column * c->w_size;
    g.b_dtype = tow__half_or_none(c->w_dtype);
    if (c->unit != NULL) g.kc = 0;
    if (job->packs) g.packed = packed_at(job, b->group, tap);
    g.packed_column = b->column;
    g.c = y;
    g.ldc = ldc;
    g.scratch = b->scratch;
    tow__epilogue_place finished = {epilogue, (y - job->r->y) / c->size, ldc};
    if (epilogue != NULL) {
        g.epilogue = tow__epilogue_on_rectangle;
        g.user = &finished;
        for (int i = 0; i < TOW__EPILOGUE_OPERANDS && epilogue->operands[i]; i++)
            g.epilogue_operands[i] = (const char *)epilogue->operands[i] + (y - job->r->y);
    }
    tow__conv_product(job->r, &g);
}

/* Brings n results along w from the tile to where they belong. */
static void store_stretch(const block *b, int64_t p, const char *from, int64_t n)
{
    const tow__conv *c = b->job->c;
    const axis_phase *w = &b->job->phase.axes[c->spatial - 1];
    char *y = place_of(b, p);
    const int64_t step = w->step * c->y[c->spatial - 1], size = c->size;
    if (c->y_feature == size) {
        for (int64_t i = 0; i < n; i++) memcpy(y + i * step, from + i * b->columns * size, (size_t)(b->columns * size));
        tow__conv_epilogue(b->job->r, y, n, step, b->columns);
    } else if (step == size) {
        tow__transpose_matrix((size_t)size, b->columns, n, y, c->y_feature / size, from, b->columns);
        tow__conv_epilogue(b->job->r, y, b->columns, c->y_feature, n);
    } else {
        for (int64_t i = 0; i < n; i++)
            for (int64_t o = 0; o < b->columns; o++)
                memcpy(y + i * step + o * c->y_feature, from + (i * b->columns + o) * size, (size_t)size);
        for (int64_t i = 0; i < n; i++) tow__conv_epilogue(b->job->r, y + i * step, b->columns, c->y_feature, 1);
    }
}

static void store_block(const block *b)
{
    const tow__conv *c = b->job->c;
    const int64_t count = b->job->phase.axes[c->spatial - 1].count;
    for (int64_t done = 0, n; done < b->rows; done += n) {
        n = tow__min(b->rows - done, count - (b->p + done) % count);
        store_stretch(b, b->p + done, b->result + done * b->columns * c->size, n);
    }
}

static void run_block(void *user, int64_t index, int thread)
{
    const gathered_job *job = user;
    const tow__conv *c = job->c;
    char *own = job->own + (size_t)thread * job->thread_bytes;
    block b = {.job = job, .tile = own, .result = own + job->tile_bytes};
    b.scratch = own + job->tile_bytes + job->result_bytes;
    b.column = index % job->slices * job->columns, index /= job->slices;
    b.p = index % job->row_blocks * job->rows;
    b.group = index / job->row_blocks;
    b.columns = tow__min(job->columns, c->features - b.column);
    b.rows = tow__min(job->rows, c->batch * job->phase.positions - b.p);
    if (b.rows <= 0) return;
    char *y = job->tiled ? b.result : place_of(&b, b.p);
    const int64_t ldc = job->tiled ? b.columns : c->y[c->spatial - 1] / c->size;
    if (job->phase.taps == 0) memset(b.result, 0, (size_t)(b.rows * b.columns * c->size));
    for (int64_t tap = 0, taps; tap < job->phase.taps; tap += taps) {
        taps = tow__min(job->taps_at_once, job->phase.taps - tap);
        if (tap > 0 && tow__cancelled()) return;
        gather(job, b.group, b.p, b.rows, tap, taps, b.tile);
        multiply(&b, tap, taps, tap + taps == job->phase.taps, y, ldc);
    }
    if (job->tiled) store_block(&b);
}

static void run_phase(gathered_job *job)
{
    const tow__conv *c = job->c;
    const int64_t tiles = tow__ceil_div(job->phase.taps, job->taps_at_once);
    if (!job->kernel_in_place) tow__team_run(job->r->team, c->groups * job->phase.taps, copy_tap, job);
    if (job->packs) tow__team_run(job->r->team, c->groups * tiles, pack_taps, job);
    job->row_blocks = tow__ceil_div(c->batch * job->phase.positions, job->rows);
    tow__team_run_indexed(job->r->team, c->groups * job->row_blocks * job->slices, run_block, job);
}

static void run_gathered(const tow__conv_run *r)
{
    gathered_job job = {.r = r};
    plan(&job, r->c, r->threads);
    job.dense = r->scratch;
    job.packed = r->scratch + job.dense_bytes;
    job.own = r->scratch + job.dense_bytes + job.packed_bytes;
    for (int64_t i = 0; i < job.all_phases; i++) {
        job.phase = find_phase(&job, i);
        if (job.phase.positions > 0) run_phase(&job);
    }
}

const tow__conv_way tow__conv_gathered = {"own",
                                          "own kernel: gathers taps in tiles that stay in L2, and multiplies these",
                                          .transposes = true, .scratch = scratch_gathered, .run = run_gathered};
