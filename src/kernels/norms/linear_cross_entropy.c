/* The cross-entropy of logits x w in tiles of at most 256 rows and 512 classes.
 *
 * Forward, a thread makes the tiles of 512 classes in turn and keeps, of each row of a tile, its maximum and its sum of
 * exponentials, and the logit of the label if it is there; a second pass joins the parts of each row.
 *
 * Backward, a panel of cotangents of logits is made tile by tile, then multiplied with w for dx and with x for dw:
 *
 *              classes ->   panel
 *      rows  | . . . . . . | dl    | . . |       dx[rows] += dl w[panel]'      dw[panel] += x[rows]' dl
 *       |
 *
 * A panel is as wide as a block of classes (tow__loss_block) and has as many rows as PANEL_ROWS and BAND allow; the
 * order of sums depends on shapes alone, and that over classes on their number alone. So blocks of classes may come one
 * by one, each with the weights of these classes alone: linear_cross_entropy_parts gives the statistics of the tiles of
 * a block, which linear_cross_entropy_join joins, and a derivative of a block is the term of that panel.
 *
 * Both at once (src/plan/rules/fuse_loss_and_gradient.c), logits are made once: those of the rows of a panel, for all
 * classes, stay until the panels have used them. Their number is what BAND numbers allow, with one pass or
 * two, so the bits agree.
 *
 * x and w may be stored in 16 bits. The own kernel and the matrix unit read them as they are stored; where products of
 * f32 run on another engine, they are widened into copies. Either way the bits are those of widened operands: where
 * conversions stand, and how many of the rows a process has, decides nothing. */
#include "src/kernels/norms/rows.h"

#include "src/kernels/products/gemm.h"
#include "src/kernels/tables.h"
#include <stdio.h>

enum {
    ROWS = 256, /* of a tile */
    CLASSES = TOW__LOSS_TILE,
    SHARE_ROWS = 256,    /* of dx, that one block of work adds to */
    SHARE_CLASSES = 448, /* of dw, at most */
    SHARE_LEAST = 128,   /* if there are so many */
    SHARE_UNIT = 32,     /* columns of dx and classes of dw are cut at multiples of this */
    PANEL_ROWS = 8192,   /* of a panel at most */
    LEAST_ROWS = 256,    /* of a panel, if there are so many: with fewer, w and dw pass through memory too often */
    HALF_UNIT = 16,      /* half of the rows is rounded up to multiples of this */
    BAND = 1 << 22,      /* numbers of all classes of a panel's rows, about */
    STATISTICS = 3       /* numbers of a tile of a row */
};

#define REAL       f32
#define NAME(name) name##_f32
#include "src/kernels/norms/linear_cross_entropy.inc"

#define REAL       f64
#define NAME(name) name##_f64
#include "src/kernels/norms/linear_cross_entropy.inc"

/* dl, the product that makes it, and those that use it. */
typedef struct job {
    const tow__kernel_call *call;
    tow_dtype dtype;
    int64_t size;           /* of an element */
    int64_t n, c, v;        /* rows, features, classes that w has */
    int64_t classes;        /* of the whole */
    bool rows;              /* w is [V, C] */
    tow__gemm_operand x, w; /* x: [n, c]; w: [c, v] */
    size_t x_copy, w_copy;  /* bytes of scratch for a copy; 0: used where it lies */
    tow__strided labels, lse, ct;
    const tow__buffer *cotangent; /* of which `ct` is the view */
    const tow__gemm_engine *logits_engine, *dx_engine, *dw_engine;
    int64_t tiles;                   /* of classes */
    int64_t panel_rows, panel_width; /* backward */
    int64_t panel_stride;            /* of its rows: no multiple of a page, whose columns would share a cache set */
    size_t engine_bytes;             /* of scratch per thread */
    bool whole;                      /* the panel is a band: all classes of its rows are there */
    int64_t dx_columns, dw_classes;  /* of a share */
    int64_t part_row;                /* of x, the first one that `parts` is for */
    int64_t part_rows;
    int64_t next_row, next_tile; /* numbers of `parts` from those of a row and a tile to the next ones */
    char *parts, *tile, *panel, *engine;
    void *loss, *row_lse, *dx, *dw;
    int64_t first_row, row_count, first_class, class_count; /* the panel at hand */
} job;

static size_t lines(int64_t bytes) { return ((size_t)bytes + 63) / 64 * 64; }

/* ---- products --------------------------------------------------------------------------------------------------- */

static tow__gemm product(const job *j, int64_t m, int64_t n, int64_t k, tow__gemm_operand a, tow__gemm_operand b)
{
    const tow__gemm_choice *choice = j->call->team != NULL ? j->call->team->products : NULL;
    tow__gemm g = tow__gemm_of(j->dtype, m, n, k, a, b, choice);
    g.rows = m, g.columns = n; /* of all tiles of it */
    g.as_f32 = true;
    return g;
}

static tow__gemm_operand part(const job *j, tow__gemm_operand x, int64_t row, int64_t column)
{
    const int64_t size = x.half ? (int64_t)sizeof(uint16_t) : j->size;
    if (x.data) x.data = (const char *)x.data + (row * x.row + column * x.column) * size;
    return x;
}

static void run(const job *j, tow__gemm g, void *c, int64_t ldc, bool add, const tow__gemm_engine *engine, int thread)
{
    g.c = c;
    g.ldc = ldc;
    g.accumulate = add;
    g.scratch = j->engine_bytes > 0 ? j->engine + (size_t)thread * j->engine_bytes : NULL;
    tow__gemm_run(&g, engine);
}

static void need_scratch(job *j, tow__gemm g, const tow__gemm_engine *engine)
{
    size_t bytes = lines((int64_t)tow__gemm_scratch(&g, engine));
    if (bytes > j->engine_bytes) j->engine_bytes = bytes;
}

/* Columns or classes of one of `shares` shares. */
static int64_t share(int64_t count, int64_t shares)
{
    return tow__max(1, tow__ceil_div(tow__ceil_div(count, shares), SHARE_UNIT)) * SHARE_UNIT;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* [rows, columns] of which the rows are the merged axes of `leading`. */
static tow__gemm_operand operand(const tow__strided *leading, const tow__buffer *whole, int64_t rows, int64_t columns,
                                 int64_t column, size_t *copy)
{
    const tow_dtype half = tow__half_or_none(whole->dtype);
    tow__gemm_operand x = {whole->data, leading->rank == 0 ? columns : leading->strides[0], column, half};
    if (columns <= 1) x.column = 1;
    if (rows <= 1) x.row = tow__max(1, columns * tow__max(1, x.column));
    bool merged = leading->rank == 1 || rows <= 1;
    if (merged && tow__gemm_plain(rows, columns, x.row, x.column)) return x;
    *copy = lines(rows * columns * (int64_t)leading->size);
    return (tow__gemm_operand){NULL, tow__max(1, columns), 1, half};
}

static void widen(tow__gemm_operand *x, int64_t rows, int64_t columns, int64_t size, size_t *copy)
{
    if (!x->half) return;
    *copy = lines(rows * columns * size);
    *x = (tow__gemm_operand){NULL, tow__max(1, columns), 1, 0};
}

/* The engine for the product of the same numbers as f32. rows: those of a tile, whatever number there is. */
static const tow__gemm_engine *engine_for(tow__gemm g, int64_t rows)
{
    g.a_dtype = g.b_dtype = 0;
    if (rows > 0) g.rows = rows;
    return tow__gemm_choose(&g);
}

static bool reads_halves(const tow__gemm_engine *engine) { return engine == NULL || engine->halves; }

static char *take(char *memory, size_t *used, size_t bytes)
{
    char *at = !memory ? NULL : memory + *used;
    *used += bytes;
    return at;
}

/* Rows of a panel: whole tiles where all classes of PANEL_ROWS are too many, and never all rows then. */
static int64_t rows_of_panel(int64_t n, int64_t v)
{
    int64_t rows = tow__max(LEAST_ROWS, BAND / v / LEAST_ROWS * LEAST_ROWS);
    if (n > BAND / v) rows = tow__min(rows, tow__ceil_div(tow__ceil_div(n, 2), HALF_UNIT) * HALF_UNIT);
    return tow__max(1, tow__min(n, tow__min(rows, PANEL_ROWS)));
}

static tow__gemm logits_of(const job *j) { return product(j, j->n, j->classes, j->c, j->x, j->w); }
static tow__gemm_operand panel_of(const job *j) { return (tow__gemm_operand){j->panel, j->panel_stride, 1, 0}; }
static tow__gemm dx_of(const job *j)
{
    return product(j, j->n, j->c, j->panel_width, panel_of(j), tow__gemm_transposed(j->w));
}
static tow__gemm dw_of(const job *j)
{
    return j->rows ? product(j, j->panel_width, j->c, j->panel_rows, tow__gemm_transposed(panel_of(j)), j->x)
                   : product(j, j->c, j->panel_width, j->panel_rows, tow__gemm_transposed(j->x), panel_of(j));
}

static void choose_engines(job *j, bool backward)
{
    j->logits_engine = engine_for(logits_of(j), ROWS);
    if (!backward) return;
    j->dx_engine = engine_for(dx_of(j), ROWS);
    j->dw_engine = engine_for(dw_of(j), 0);
}

/* classes: of the whole, if w is a block of it; 0: w is the whole. */
static job begin(const tow__kernel_call *call, bool rows, int64_t classes, bool backward, bool whole)
{
    const tow__buffer *x = &call->in[0], *w = &call->in[1];
    int last = x->rank - 1, features = rows ? 1 : 0;
    tow__strided leading = tow__strided_of(x->data, x->dtype, last, x->dims, x->strides);
    tow__strided w_rows = tow__strided_of(w->data, w->dtype, 1, w->dims, w->strides);
    job j = {.call = call,
             .dtype = tow__wide(x->dtype),
             .size = (int64_t)tow__element_bytes(tow__wide(x->dtype)),
             .n = leading.count,
             .c = x->dims[last],
             .v = w->dims[1 - features],
             .rows = rows,
             .whole = whole};
    j.classes = classes > 0 ? classes : j.v;
    j.x = operand(&leading, x, j.n, j.c, x->strides[last], &j.x_copy);
    j.w = operand(&w_rows, w, w->dims[0], w->dims[1], w->strides[1], &j.w_copy);
    if (rows) j.w = tow__gemm_transposed(j.w);
    j.tiles = tow__ceil_div(j.v, CLASSES);
    j.part_rows = j.n;
    if (backward) {
        j.panel_rows = rows_of_panel(j.n, j.classes);
        j.panel_width = tow__min(tow__ceil_div(j.classes, CLASSES) * CLASSES, tow__loss_block(j.classes));
        j.panel_stride = (whole ? j.tiles * CLASSES : j.panel_width) + 16;
    }
    choose_engines(&j, backward);
    if (!reads_halves(j.logits_engine) || !reads_halves(j.dx_engine) || !reads_halves(j.dw_engine)) {
        widen(&j.x, j.n, j.c, j.size, &j.x_copy);
        widen(&j.w, w->dims[0], w->dims[1], j.size, &j.w_copy);
        if (rows && j.w_copy > 0 && !j.w.half) j.w.row = 1, j.w.column = tow__max(1, w->dims[1]);
    }
    tow__gemm logits = logits_of(&j);
    logits.m = tow__min(ROWS, j.n);
    logits.n = tow__min(CLASSES, j.v);
    need_scratch(&j, logits, j.logits_engine);
    if (!backward) return j;
    tow__gemm dx = dx_of(&j), dw = dw_of(&j);
    j.dx_columns = share(j.c, tow__ceil_div(tow__threads(call), tow__ceil_div(j.panel_rows, SHARE_ROWS)));
    dx.m = tow__min(SHARE_ROWS, j.n);
    dx.n = tow__min(j.dx_columns, j.c);
    if (rows)
        dw.m = tow__min(SHARE_CLASSES, j.v);
    else
        dw.n = tow__min(SHARE_CLASSES, j.v);
    dx.accumulate = dw.accumulate = true;
    need_scratch(&j, dx, j.dx_engine);
    need_scratch(&j, dw, j.dw_engine);
    /* Those of the last panels sum fewer elements, perhaps in longer blocks, which take more room when they are
     * packed. */
    dx.k = j.v % j.panel_width;
    dw.k = j.n % j.panel_rows;
    if (dx.k > 0) need_scratch(&j, dx, j.dx_engine);
    if (dw.k > 0) need_scratch(&j, dw, j.dw_engine);
    return j;
}

/* Divides the scratch memory and returns its size; with NULL it only counts. */
static size_t divide_memory(job *j, char *memory, bool forward, bool backward)
{
    size_t threads = (size_t)tow__threads(j->call), n = 0;
    char *x = take(memory, &n, j->x_copy), *w = take(memory, &n, j->w_copy);
    if (j->x_copy > 0) j->x.data = x;
    if (j->w_copy > 0) j->w.data = w;
    j->engine = take(memory, &n, threads * j->engine_bytes);
    if (forward && backward) j->part_rows = j->panel_rows;
    j->next_row = 2;
    j->next_tile = 2 * j->part_rows;
    if (forward) j->parts = take(memory, &n, lines(j->next_tile * j->tiles * j->size));
    if (forward && !backward) j->tile = take(memory, &n, threads * lines(ROWS * CLASSES * j->size));
    if (backward) j->panel = take(memory, &n, lines(j->panel_rows * j->panel_stride * j->size));
    return n;
}

static const void *element(const tow__strided *s, int64_t i)
{
    return s->data + tow__strided_offset(s, i) * (int64_t)s->size;
}

enum {
    WIDENED = 16 /* rows of a block of work */
};

typedef struct widening {
    const tow__buffer *x;
    tow__strided rows;
    int64_t columns;
    f32 *to;
} widening;

static void widen_rows(void *user, int64_t block)
{
    const widening *w = user;
    const int64_t step = w->x->rank > 0 ? w->x->strides[w->x->rank - 1] : 1;
    for (int64_t r = block * WIDENED; r < tow__min((block + 1) * WIDENED, w->rows.count); r++)
        tow__widen_run(w->x->dtype, w->columns, element(&w->rows, r), step, w->to + r * w->columns);
}

static void copy_operand(const tow__kernel_call *call, const tow__buffer *x, const tow__gemm_operand *to)
{
    if (tow__is_half(x->dtype) && !to->half) {
        const int last = x->rank - 1;
        widening w = {x, tow__strided_of(x->data, x->dtype, last, x->dims, x->strides), x->dims[last],
                      (f32 *)(uintptr_t)to->data};
        tow__team_run(call->team, tow__ceil_div(w.rows.count, WIDENED), widen_rows, &w);
        return;
    }
    tow__strided from = tow__strided_buffer(x), copy = {0};
    copy = tow__strided_of((char *)(uintptr_t)to->data, x->dtype, 1, &from.count, &(int64_t){1});
    tow__strided_store(call->team, &copy, &from);
}

static void copy_operands(const job *j)
{
    if (j->x_copy > 0) copy_operand(j->call, &j->call->in[0], &j->x);
    if (j->w_copy > 0) copy_operand(j->call, &j->call->in[1], &j->w);
}

/* ---- forward ---------------------------------------------------------------------------------------------------- */

/* Reduces a tile of logits to the statistics that are kept; its rows are `stride` apart. */
static void reduce_tile(const job *j, int64_t row, int64_t rows, int64_t tile, int64_t classes, const char *logits,
                        int64_t stride)
{
    for (int64_t r = 0; r < rows; r++, logits += stride * j->size) {
        int64_t label = *(const i32 *)element(&j->labels, row + r) - tile * CLASSES;
        char *to = j->parts + (tile * j->next_tile + (row + r - j->part_row) * j->next_row) * j->size;
        char *picked = j->loss ? (char *)j->loss + (row + r) * j->size : to + 2 * j->size;
        if (j->dtype == TOW_F32)
            part_of_row_f32(classes, logits, to);
        else
            part_of_row_f64(classes, logits, to);
        if (label >= 0 && label < classes) memcpy(picked, logits + label * j->size, (size_t)j->size);
    }
}

static void forward_tiles(void *user, int64_t tile, int thread)
{
    const job *j = user;
    int64_t first = tile * CLASSES, classes = tow__min(CLASSES, j->v - first);
    char *logits = j->tile + (size_t)thread * lines(ROWS * CLASSES * j->size);
    for (int64_t row = 0; row < j->n && !tow__cancelled(); row += ROWS) {
        int64_t rows = tow__min(ROWS, j->n - row);
        run(j, product(j, rows, classes, j->c, part(j, j->x, row, 0), part(j, j->w, 0, first)), logits, classes, false,
            j->logits_engine, thread);
        reduce_tile(j, row, rows, tile, classes, logits, classes);
    }
}

enum {
    JOINED = 32 /* rows of a block of work */
};

static void join_rows(void *user, int64_t block)
{
    const job *j = user;
    char *loss = (char *)j->loss + j->part_row * j->size, *lse = (char *)j->row_lse + j->part_row * j->size;
    for (int64_t r = block * JOINED; r < tow__min((block + 1) * JOINED, tow__min(j->part_rows, j->n - j->part_row));
         r++) {
        if (j->dtype == TOW_F32)
            join_parts_f32(j->tiles, j->next_tile, j->parts + r * j->next_row * j->size, loss + r * j->size,
                           lse + r * j->size);
        else
            join_parts_f64(j->tiles, j->next_tile, j->parts + r * j->next_row * j->size, loss + r * j->size,
                           lse + r * j->size);
    }
}

static void fill_nan(const job *j, int64_t n, void *out)
{
    j->dtype == TOW_F32 ? fill_nan_f32(n, out) : fill_nan_f64(n, out);
}

static void take_operands(job *j)
{
    copy_operands(j);
    j->labels = tow__strided_buffer(&j->call->in[2]);
}

/* The results of the forward pass; those with labels that are no class stay NaN. */
static void start_forward(job *j)
{
    take_operands(j);
    j->loss = j->call->out[0].data;
    j->row_lse = j->call->out[1].data;
    fill_nan(j, j->n, j->loss);
}

static void run_forward(const tow__kernel_call *call)
{
    job j = begin(call, ((const tow__linear_cross_entropy_params *)call->params)->rows, 0, false, false);
    divide_memory(&j, call->scratch, true, false);
    start_forward(&j);
    if (j.n == 0) return;
    tow__team_run_indexed(call->team, j.tiles, forward_tiles, &j);
    tow__team_run(call->team, tow__ceil_div(j.n, JOINED), join_rows, &j);
}

static size_t scratch_forward(const tow__kernel_call *call)
{
    job j = begin(call, ((const tow__linear_cross_entropy_params *)call->params)->rows, 0, false, false);
    return divide_memory(&j, NULL, true, false);
}

/* ---- forward, of blocks of classes ------------------------------------------------------------------------------ */

static job begin_parts(const tow__kernel_call *call)
{
    const tow__linear_cross_entropy_parts_params *p = call->params;
    return begin(call, p->rows, p->classes, false, false);
}

/* The statistics of all tiles of a row lie together. */
static void run_parts(const tow__kernel_call *call)
{
    job j = begin_parts(call);
    divide_memory(&j, call->scratch, true, false);
    take_operands(&j);
    j.parts = call->out[0].data;
    j.next_tile = STATISTICS;
    j.next_row = STATISTICS * j.tiles;
    fill_nan(&j, j.n * j.next_row, j.parts);
    tow__team_run_indexed(call->team, j.tiles, forward_tiles, &j);
}

static size_t scratch_parts(const tow__kernel_call *call)
{
    job j = begin_parts(call);
    return divide_memory(&j, NULL, true, false);
}

/* parts [..., tiles, 3] and labels of [...] */
static job begin_join(const tow__kernel_call *call)
{
    const tow__buffer *parts = &call->in[0];
    job j = {.call = call,
             .dtype = parts->dtype,
             .size = (int64_t)tow__element_bytes(parts->dtype),
             .tiles = parts->dims[parts->rank - 2],
             .labels = tow__strided_buffer(&call->in[1]),
             .loss = call->out[0].data,
             .row_lse = call->out[1].data,
             .next_tile = STATISTICS};
    j.n = j.part_rows = j.labels.count;
    j.next_row = STATISTICS * j.tiles;
    return j;
}

static size_t scratch_join(const tow__kernel_call *call)
{
    return lines(tow__buffer_count(&call->in[0]) * (int64_t)tow__element_bytes(call->in[0].dtype));
}

/* The logit of the label of each row, from the tile that has it; NaN of a label that is no class. */
static void pick(const job *j)
{
    fill_nan(j, j->n, j->loss);
    for (int64_t r = 0; r < j->n; r++) {
        const int64_t label = *(const i32 *)element(&j->labels, r), tile = label / CLASSES;
        if (label < 0 || tile >= j->tiles) continue;
        memcpy((char *)j->loss + r * j->size, j->parts + (r * j->next_row + tile * j->next_tile + 2) * j->size,
               (size_t)j->size);
    }
}

static void run_join(const tow__kernel_call *call)
{
    job j = begin_join(call);
    tow__strided from = tow__strided_buffer(&call->in[0]), copy = {0};
    j.parts = call->scratch;
    copy = tow__strided_of(j.parts, j.dtype, 1, &from.count, &(int64_t){1});
    tow__strided_store(call->team, &copy, &from);
    pick(&j);
    tow__team_run(call->team, tow__ceil_div(j.n, JOINED), join_rows, &j);
}

/* ---- backward --------------------------------------------------------------------------------------------------- */

/* A tile of the panel: blocks count rows first, so that neighbors share classes. */
typedef struct tile {
    int64_t row, rows, first, classes; /* of the panel */
    char *logits;
} tile;

static tile tile_of(const job *j, int64_t block)
{
    int64_t row_blocks = tow__ceil_div(j->row_count, ROWS);
    tile t = {.row = block % row_blocks * ROWS, .first = block / row_blocks * CLASSES};
    t.rows = tow__min(ROWS, j->row_count - t.row);
    t.classes = tow__min(CLASSES, j->class_count - t.first);
    t.logits = j->panel + (t.row * j->panel_stride + t.first) * j->size;
    return t;
}

static void make_logits(const job *j, const tile *t, int thread)
{
    tow__gemm_operand x = part(j, j->x, j->first_row + t->row, 0), w = part(j, j->w, 0, j->first_class + t->first);
    run(j, product(j, t->rows, t->classes, j->c, x, w), t->logits, j->panel_stride, false, j->logits_engine, thread);
}

/* Logits of the panel's rows and some of its classes become cotangents. */
static void make_cotangents(const job *j, const tile *t)
{
    char *logits = t->logits;
    f32 room;
    for (int64_t r = 0; r < t->rows; r++, logits += j->panel_stride * j->size) {
        int64_t i = j->first_row + t->row + r, label = *(const i32 *)element(&j->labels, i) - j->first_class - t->first;
        const void *ct = tow__element_of(&j->ct, j->cotangent, i, &room);
        if (j->dtype == TOW_F32)
            logits_to_cotangents_f32(t->classes, label, element(&j->lse, i), ct, logits);
        else
            logits_to_cotangents_f64(t->classes, label, element(&j->lse, i), ct, logits);
    }
}

static void panel_tile(void *user, int64_t block, int thread)
{
    const job *j = user;
    const tile t = tile_of(j, block);
    if (!j->whole) make_logits(j, &t, thread);
    make_cotangents(j, &t);
}

/* A share of dx: some rows and columns. All panels of a band in order, or the panel at hand. */
static void add_to_dx(void *user, int64_t block, int thread)
{
    const job *j = user;
    int64_t parts = tow__ceil_div(j->c, j->dx_columns), row = block / parts * SHARE_ROWS,
            column = block % parts * j->dx_columns;
    int64_t rows = tow__min(SHARE_ROWS, j->row_count - row), columns = tow__min(j->dx_columns, j->c - column);
    char *dx = (char *)j->dx + ((j->first_row + row) * j->c + column) * j->size;
    tow__gemm_operand dl = part(j, panel_of(j), row, 0);
    for (int64_t first = 0, count; first < j->class_count && !tow__cancelled(); first += count) {
        int64_t at = j->first_class + first;
        count = tow__min(j->panel_width, j->class_count - first);
        run(j, product(j, rows, columns, count, part(j, dl, 0, first), tow__gemm_transposed(part(j, j->w, column, at))),
            dx, j->c, at > 0, j->dx_engine, thread);
    }
}

/* A share of dw: some classes, whose cotangents are made here if the panel is the band. */
static void add_to_dw(void *user, int64_t block, int thread)
{
    const job *j = user;
    int64_t first = block * j->dw_classes, classes = tow__min(j->dw_classes, j->class_count - first),
            at = j->first_class + first;
    tow__gemm_operand dl = part(j, panel_of(j), 0, first), x = part(j, j->x, j->first_row, 0);
    if (j->whole) make_cotangents(j, &(tile){0, j->row_count, first, classes, j->panel + first * j->size});
    bool add = j->first_row > 0;
    if (j->rows)
        run(j, product(j, classes, j->c, j->row_count, tow__gemm_transposed(dl), x),
            (char *)j->dw + at * j->c * j->size, j->c, add, j->dw_engine, thread);
    else
        run(j, product(j, j->c, classes, j->row_count, tow__gemm_transposed(x), dl), (char *)j->dw + at * j->size, j->v,
            add, j->dw_engine, thread);
}

static int64_t tiles_of_panel(const job *j)
{
    return tow__ceil_div(j->row_count, ROWS) * tow__ceil_div(j->class_count, CLASSES);
}

static void run_dx(job *j)
{
    int64_t shares = tow__ceil_div(j->row_count, SHARE_ROWS) * tow__ceil_div(j->c, j->dx_columns);
    tow__team_run_indexed(j->call->team, shares, add_to_dx, j);
}

static void run_dw(job *j)
{
    int64_t shares = tow__ceil_div(j->class_count, SHARE_CLASSES), threads = tow__threads(j->call);
    j->dw_classes = tow__max(SHARE_LEAST, share(j->class_count, tow__ceil_div(shares, threads) * threads));
    tow__team_run_indexed(j->call->team, tow__ceil_div(j->class_count, j->dw_classes), add_to_dw, j);
}

/* The rows of a panel, panel by panel. */
static void run_panels(job *j)
{
    for (j->first_class = 0; j->first_class < j->v; j->first_class += j->panel_width) {
        j->class_count = tow__min(j->panel_width, j->v - j->first_class);
        tow__team_run_indexed(j->call->team, tiles_of_panel(j), panel_tile, j);
        if (j->dx) run_dx(j);
        if (j->dw) run_dw(j);
    }
}

/* The rows of a band, whose logits are there: cotangents are made with dw, or alone. */
static void run_band(job *j)
{
    if (j->dw)
        run_dw(j);
    else
        tow__team_run_indexed(j->call->team, tiles_of_panel(j), panel_tile, j);
    if (j->dx) run_dx(j);
}

static void start_backward(job *j, const tow__buffer *lse, const tow__buffer *ct, const tow__buffer *out, int64_t wrt)
{
    j->lse = tow__strided_buffer(lse);
    j->ct = tow__strided_buffer(ct);
    j->cotangent = ct;
    if (wrt & 1) j->dx = out[0].data;
    if (wrt & 2) j->dw = out[wrt & 1].data;
    if (j->n == 0 && j->dw) memset(j->dw, 0, (size_t)(j->c * j->v * j->size));
}

/* (x, w, labels, lse, ct) -> those of dx, dw that wrt names */
static void run_backward(const tow__kernel_call *call)
{
    const tow__linear_cross_entropy_ad_params *p = call->params;
    job j = begin(call, p->rows, p->classes, true, false);
    divide_memory(&j, call->scratch, false, true);
    take_operands(&j);
    start_backward(&j, &call->in[3], &call->in[4], call->out, p->wrt);
    for (j.first_row = 0; j.first_row < j.n; j.first_row += j.panel_rows) {
        j.row_count = tow__min(j.panel_rows, j.n - j.first_row);
        run_panels(&j);
    }
}

static size_t scratch_backward(const tow__kernel_call *call)
{
    const tow__linear_cross_entropy_ad_params *p = call->params;
    job j = begin(call, p->rows, p->classes, true, false);
    return divide_memory(&j, NULL, false, true);
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

static void band_tile(void *user, int64_t block, int thread)
{
    const job *j = user;
    const tile t = tile_of(j, block);
    make_logits(j, &t, thread);
    reduce_tile(j, j->first_row + t.row, t.rows, t.first / CLASSES, t.classes, t.logits, j->panel_stride);
}

/* (x, w, labels, ct) -> loss, lse and those of dx, dw that wrt names */
static void run_both(const tow__kernel_call *call)
{
    const tow__linear_cross_entropy_ad_params *p = call->params;
    job j = begin(call, p->rows, 0, true, true);
    divide_memory(&j, call->scratch, true, true);
    start_forward(&j);
    start_backward(&j, &call->out[1], &call->in[3], call->out + 2, p->wrt);
    for (j.first_row = 0; j.first_row < j.n; j.first_row += j.panel_rows) {
        j.part_row = j.first_row;
        j.row_count = tow__min(j.panel_rows, j.n - j.first_row);
        j.first_class = 0;
        j.class_count = j.v;
        tow__team_run_indexed(call->team, tiles_of_panel(&j), band_tile, &j);
        tow__team_run(call->team, tow__ceil_div(j.row_count, JOINED), join_rows, &j);
        run_band(&j);
    }
}

static size_t scratch_both(const tow__kernel_call *call)
{
    job j = begin(call, ((const tow__linear_cross_entropy_ad_params *)call->params)->rows, 0, true, true);
    return divide_memory(&j, NULL, true, true);
}

static size_t explain(const tow__kernel_call *call, bool rows, char *text, size_t size)
{
    const tow__gemm_engine *engine = begin(call, rows, 0, false, false).logits_engine;
    const int length = snprintf(text, size, "%s: logits are reduced tile by tile as they are made", engine->label);
    return length < 0 ? 0 : (size_t)length;
}

static size_t reason_forward(const tow__kernel_call *call, char *text, size_t size)
{
    return explain(call, ((const tow__linear_cross_entropy_params *)call->params)->rows, text, size);
}

static size_t reason_parts(const tow__kernel_call *call, char *text, size_t size)
{
    return explain(call, ((const tow__linear_cross_entropy_parts_params *)call->params)->rows, text, size);
}

static size_t reason_backward(const tow__kernel_call *call, char *text, size_t size)
{
    return explain(call, ((const tow__linear_cross_entropy_ad_params *)call->params)->rows, text, size);
}

enum { /* operands that may have 16 bits */
    X = 1 << 0,
    W = 1 << 1,
    CT_OF_BOTH = 1 << 3,
    CT = 1 << 4
};
static const tow__kernel kernels[] = {
    {"linear_cross_entropy", TOW__WIDE_FLOATS, run_forward, scratch_forward, "tiles", .reason = reason_forward,
     .halves = X | W},
    {"linear_cross_entropy_and_vjp", TOW__WIDE_FLOATS, run_both, scratch_both, "bands", .reason = reason_backward,
     .halves = X | W | CT_OF_BOTH},
    {"linear_cross_entropy_join", TOW__WIDE_FLOATS, run_join, scratch_join, "tiles"},
    {"linear_cross_entropy_parts", TOW__WIDE_FLOATS, run_parts, scratch_parts, "tiles", .reason = reason_parts,
     .halves = X | W},
    {"linear_cross_entropy_vjp", TOW__WIDE_FLOATS, run_backward, scratch_backward, "panels", .reason = reason_backward,
     .halves = X | W | CT},
};
const tow__kernel_table tow__kernels_linear_cross_entropy = {kernels, sizeof kernels / sizeof kernels[0]};
