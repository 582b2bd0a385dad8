/* Products in f32 on the matrix unit of x86-64 (AMX), which multiplies bf16 and sums in f32.
 *
 * A number is the sum of three bf16, exactly: the nearest one, the one nearest to the rest, and what is left. Of the nine
 * products of two such sums six are made; those left out are below 2^-23 of the product together. This is what
 * TPUs do for f32 with precision "highest", and what XLA calls BF16_BF16_F32_X6.
 *
 *   x = x1 + x2 + x3        x y = x1 y3 + x1 y2 + x2 y2 + x2 y1 + x3 y1 + x1 y1 + (x2 y3 + x3 y2 + x3 y3)
 *
 * Bits of an element. k is cut into blocks as in the own kernel (tow__gemm_depth). In each, the row of A and the column of
 * B are first multiplied with the power of two that brings their largest element into [1, 2): so nothing that matters
 * underflows, and nothing overflows. Groups of 32 elements of k, in which element i and element i + 16 are neighbours,
 * pass in order through the unit, each with the six products in the order above; the sum begins with 0. Then the powers
 * are taken back, and blocks are added in order. All that depends on the row, the column and k alone. Where a row or a
 * column has an infinity or a NaN in the block, its elements are those of the own kernel.
 *
 *   C          | panel | panel | ...        a panel is 32 columns: two tiles of B, three parts each
 *   rows of    | strip |                    a strip is 32 rows: two tiles of A, three parts each
 *   a block    | strip |                    of A's split rows, which stay in the second cache
 *
 * Tiles are 16 rows of 64 bytes: of A, row i has the pairs (k, k + 16) of row i; of B, row r has the pairs of r and r + 16
 * for each column. */
#include "src/kernels/gemm_own.h"

#if defined(__x86_64__) && defined(__linux__)
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("amx-tile,amx-bf16,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))), \
                             apply_to = function)
#else
#pragma GCC target("amx-tile,amx-bf16,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#include <immintrin.h>

enum {
    W = 16,
    STRIP = 2 * W,                    /* rows */
    PANEL = 2 * W,                    /* columns */
    GROUP = 2 * W,                    /* elements of k of a tile */
    TILE = W * GROUP,                 /* bf16 of a tile */
    PARTS = 3,                        /* of a number */
    PIECE = 2 * PARTS * TILE,         /* bf16 of a strip or a panel for one group */
    BLOCK = 512,                      /* rows of A at a time */
    SUMS = 1 << 18,                   /* elements of sums beside C, about */
    GROUPS = TOW__GEMM_DEPTH / GROUP, /* of a block of k, at most */
    AHEAD = 4,                        /* rows by which operands are fetched before they are measured, */
    AHEAD_ITEMS = 24,                 /* the same for short pieces of rows */
};

_Static_assert((int)TOW__GEMM_DEPTH % (int)GROUP == 0, "a block of k is whole groups");

typedef __m512 vector;
typedef __mmask16 lanes;

static inline __attribute__((always_inline)) lanes first_lanes(int64_t n)
{
    return (lanes)(n >= W ? 0xFFFFu : n <= 0 ? 0u : (1u << n) - 1);
}

#include "src/kernels/transpose_avx512.inc"

#include "src/kernels/gemm_amx_split.inc"

/* ---- tiles --------------------------------------------------------------------------------------------------------- */

typedef struct configuration {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} configuration;

static void configure(void)
{
    configuration c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.bytes[i] = 4 * W;
        c.rows[i] = W;
    }
    _tile_loadconfig(&c);
}

/* Tiles 0 .. 3: sums; 4, 5: of A; 6, 7: of B. */
#define LOAD_A(x)                                                                                                      \
    do {                                                                                                               \
        _tile_loadd(4, a + 2 * (x)*TILE, 2 * GROUP);                                                                   \
        if (two_rows) _tile_loadd(5, a + (2 * (x) + 1) * TILE, 2 * GROUP);                                             \
    } while (0)
#define LOAD_B(x)                                                                                                      \
    do {                                                                                                               \
        _tile_loadd(6, b + 2 * (x)*TILE, 2 * GROUP);                                                                   \
        if (two_columns) _tile_loadd(7, b + (2 * (x) + 1) * TILE, 2 * GROUP);                                          \
    } while (0)
#define MULTIPLY                                                                                                       \
    do {                                                                                                               \
        _tile_dpbf16ps(0, 4, 6);                                                                                       \
        if (two_columns) _tile_dpbf16ps(1, 4, 7);                                                                      \
        if (two_rows) _tile_dpbf16ps(2, 5, 6);                                                                         \
        if (two_rows && two_columns) _tile_dpbf16ps(3, 5, 7);                                                          \
    } while (0)

/* What the rest of the processor does while the matrix unit multiplies, a share for each group of k: it delivers the sums
 * of the strip before, splits the next panel, and fetches what it will be made of after that. */
typedef struct meanwhile {
    const scales *a, *b; /* of the sums */
    f32 *sums, *c, *first_c;
    int64_t ldc, row, rows, columns;
    int64_t rows_per_turn;
    bool adds;
    source next; /* panel */
    const scales *next_scales;
    uint16_t *next_panel;
    int64_t next_columns, depth;
    int64_t part, parts, turn, turns; /* of the next panel; of all strips and groups */
    const f32 *ahead;
    int64_t ahead_item, ahead_items, ahead_group; /* pieces of 32 elements; the next group's are ahead_group away */
} meanwhile;

/* C = or += sums, without the powers of two: `count` rows. */
static inline __attribute__((always_inline)) void deliver(meanwhile *w, int64_t count, bool scaled, bool adds)
{
    const lanes low = first_lanes(w->columns), high = first_lanes(w->columns - W);
    const vector b_low = _mm512_loadu_ps(w->b->exponent), b_high = _mm512_loadu_ps(w->b->exponent + W);
    int64_t limit = tow__min(w->rows, w->row + count);
    for (; w->row < limit; w->row++) {
        const f32 *sums = w->sums + w->row * PANEL;
        f32 *c = w->c + w->row * w->ldc;
        vector x = _mm512_load_ps(sums), y = _mm512_load_ps(sums + W);
        if (scaled) {
            vector e = _mm512_set1_ps(w->a->exponent[w->row]);
            x = _mm512_scalef_ps(x, _mm512_add_ps(e, b_low));
            y = _mm512_scalef_ps(y, _mm512_add_ps(e, b_high));
        }
        if (adds) {
            x = _mm512_add_ps(_mm512_maskz_loadu_ps(low, c), x);
            y = _mm512_add_ps(_mm512_maskz_loadu_ps(high, c + W), y);
        }
        _mm512_mask_storeu_ps(c, low, x);
        _mm512_mask_storeu_ps(c + W, high, y);
    }
}

static void deliver_rows(meanwhile *w, int64_t count)
{
    if (w->adds)
        deliver(w, count, true, true);
    else
        deliver(w, count, true, false);
}

static __attribute__((noinline)) void work(meanwhile *w)
{
    deliver_rows(w, w->rows_per_turn);
    w->turn++;
    for (; w->part * w->turns < w->turn * w->parts; w->part++)
        split_part(&w->next, w->next_columns, w->depth, w->next_scales, w->part, w->next_panel);
    const f32 *ahead = w->ahead;
    for (int64_t i = 0; i < w->ahead_items; i++, ahead += w->ahead_item) {
        __builtin_prefetch(ahead, 0, 2);
        __builtin_prefetch(ahead + GROUP - 1, 0, 2);
    }
    w->ahead += w->ahead_group;
}

/* sums [32, 32] = a strip times a panel, `groups` of k */
static inline __attribute__((always_inline)) void multiply(const bool two_rows, const bool two_columns, int64_t groups,
                                                           const uint16_t *a, const uint16_t *b, f32 *sums,
                                                           meanwhile *w)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t g = 0; g < groups; g++, a += PIECE, b += PIECE) {
        LOAD_A(0);
        LOAD_B(2);
        MULTIPLY;
        LOAD_B(1);
        MULTIPLY;
        LOAD_A(1);
        MULTIPLY;
        work(w);
        LOAD_B(0);
        MULTIPLY;
        LOAD_A(2);
        MULTIPLY;
        LOAD_A(0);
        MULTIPLY;
    }
    _tile_stored(0, sums, 4 * PANEL);
    if (two_columns) _tile_stored(1, sums + W, 4 * PANEL);
    if (two_rows) _tile_stored(2, sums + W * PANEL, 4 * PANEL);
    if (two_rows && two_columns) _tile_stored(3, sums + W * PANEL + W, 4 * PANEL);
}

/* ---- loops --------------------------------------------------------------------------------------------------------- */

typedef struct job {
    const tow__gemm *g;
    int64_t depth;             /* of a block of k */
    uint16_t *strips, *panels; /* two panels */
    scales *rows;              /* of the strips */
    f32 *sums;                 /* of two strips and a panel */
} job;

/* Rows of C and one block of k. */
typedef struct piece {
    int64_t row, rows, first, depth;
} piece;

static source rows_of(const tow__gemm *g, int64_t row, int64_t first)
{
    return (source){(const f32 *)g->a + row * g->a_row + first * g->a_column, g->a_row, g->a_column};
}
static source columns_of(const tow__gemm *g, int64_t column, int64_t first)
{
    return (source){(const f32 *)g->b + first * g->b_row + column * g->b_column, g->b_column, g->b_row};
}

static void split_rows(const job *j, const piece *x)
{
    int64_t groups = tow__ceil_div(x->depth, GROUP);
    for (int64_t i = 0; i < x->rows; i += STRIP) {
        int64_t rows = tow__min(STRIP, x->rows - i);
        source s = rows_of(j->g, x->row + i, x->first);
        find_scales(&s, rows, x->depth, &j->rows[i / STRIP]);
        split_strip(&s, rows, x->depth, &j->rows[i / STRIP], j->strips + i / STRIP * groups * PIECE);
    }
}

/* Elements of rows and columns with infinities or NaNs. All others are delivered first. */
static __attribute__((noinline)) void run_special(const job *j, const piece *x, int64_t row, int64_t column,
                                                  meanwhile *w)
{
    f32 own[STRIP * PANEL], kept[STRIP * PANEL];
    tow__gemm g = *j->g;
    int64_t rows = w->rows, columns = w->columns;
    g.accumulate = false;
    g.m = rows, g.n = columns, g.k = g.depth = x->depth;
    g.a = rows_of(j->g, row, x->first).data, g.b = columns_of(j->g, column, x->first).data, g.c = own;
    g.ldc = PANEL;
    g.scratch = NULL, g.finish = NULL, g.next_b = NULL;
    tow__gemm_avx512_version.run(&g);
    for (int64_t i = 0; i < rows; i++) memcpy(kept + i * PANEL, w->c + i * w->ldc, (size_t)columns * sizeof *kept);
    deliver_rows(w, STRIP);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t y = 0; y < columns; y++)
            if ((w->a->special >> i & 1) || (w->b->special >> y & 1))
                w->c[i * w->ldc + y] = w->adds ? kept[i * PANEL + y] + own[i * PANEL + y] : own[i * PANEL + y];
}

/* The panel at `column` of a piece, split into `to`. */
typedef struct panel {
    source from;
    int64_t columns;
    scales scale;
    uint16_t *parts;
} panel;

static panel begin_panel(const job *j, const piece *x, int64_t column, int64_t limit, uint16_t *parts)
{
    panel b = {.from = columns_of(j->g, column, x->first), .columns = tow__min(PANEL, limit - column), .parts = parts};
    find_scales(&b.from, b.columns, x->depth, &b.scale);
    return b;
}

/* The share of strip `row` of the piece in fetching the panel at `column`. */
static void look_ahead(const job *j, const piece *x, int64_t column, int64_t row, meanwhile *w)
{
    const tow__gemm *g = j->g;
    bool straight = g->b_column == 1;
    w->ahead_items = w->ahead_group = 0;
    if (column >= g->n || (!straight && g->b_row != 1)) return;
    int64_t strips = tow__ceil_div(x->rows, STRIP), share = tow__ceil_div(GROUP, strips);
    w->ahead_item = straight ? g->b_row : g->b_column;
    w->ahead_group = straight ? GROUP * g->b_row : GROUP;
    w->ahead_items = tow__max(0, tow__min(share, GROUP - row / STRIP * share));
    w->ahead = columns_of(g, column, x->first).data + row / STRIP * share * w->ahead_item;
}

/* All strips of a piece times panel b, at `column` of C. */
static void run_panel(const job *j, const piece *x, const panel *b, int64_t column, meanwhile *w)
{
    int64_t groups = tow__ceil_div(x->depth, GROUP);
    f32 *sums = j->sums, *other = j->sums + STRIP * PANEL;
    for (int64_t i = 0; i < x->rows; i += STRIP) {
        int64_t rows = tow__min(STRIP, x->rows - i);
        const uint16_t *strip = j->strips + i / STRIP * groups * PIECE;
        look_ahead(j, x, column + 2 * PANEL, i, w);
        if (rows > W && b->columns > W)
            multiply(true, true, groups, strip, b->parts, sums, w);
        else if (rows > W)
            multiply(true, false, groups, strip, b->parts, sums, w);
        else if (b->columns > W)
            multiply(false, true, groups, strip, b->parts, sums, w);
        else
            multiply(false, false, groups, strip, b->parts, sums, w);
        deliver_rows(w, STRIP);
        w->a = &j->rows[i / STRIP];
        w->sums = sums;
        w->c = w->first_c + i * w->ldc;
        w->row = 0, w->rows = rows;
        w->rows_per_turn = tow__ceil_div(rows, groups);
        if (w->a->special | b->scale.special) run_special(j, x, x->row + i, column, w);
        f32 *swap = sums;
        sums = other, other = swap;
    }
    deliver_rows(w, STRIP);
}

/* Columns [from, limit) of a piece to c, rows ldc apart. */
static void run_panels(const job *j, const piece *x, int64_t from, int64_t limit, f32 *c, int64_t ldc, bool adds)
{
    int64_t groups = tow__ceil_div(x->depth, GROUP);
    panel now = begin_panel(j, x, from, limit, j->panels), next;
    for (int64_t unit = 0; unit < 2 * groups; unit++)
        split_part(&now.from, now.columns, x->depth, &now.scale, unit, now.parts);
    for (int64_t at = from; at < limit; at += PANEL, now = next) {
        meanwhile w = {.b = &now.scale, .first_c = c + (at - from), .ldc = ldc, .columns = now.columns, .adds = adds};
        if (at + PANEL < limit) {
            next =
                begin_panel(j, x, at + PANEL, limit, now.parts == j->panels ? j->panels + groups * PIECE : j->panels);
            w.next = next.from, w.next_scales = &next.scale, w.next_panel = next.parts, w.next_columns = next.columns;
            w.parts = 2 * groups, w.turns = groups * tow__ceil_div(x->rows, STRIP), w.depth = x->depth;
        }
        run_panel(j, x, &now, at, &w);
    }
}

static piece piece_of(const job *j, int64_t row, int64_t block, int64_t first)
{
    return (piece){row, tow__min(block, j->g->m - row), first, tow__min(j->depth, j->g->k - first)};
}

static void run_blocks(const job *j, int64_t block)
{
    const tow__gemm *g = j->g;
    for (int64_t row = 0; row < g->m; row += block) {
        for (int64_t first = 0; first < g->k; first += j->depth) {
            piece x = piece_of(j, row, block, first);
            bool adds = g->accumulate || first > 0, last = first + x.depth >= g->k;
            split_rows(j, &x);
            bool finishes = last && g->finish != NULL;
            int64_t step = finishes ? TOW__GEMM_FINISH_COLUMNS : g->n;
            for (int64_t from = 0; from < g->n; from += step) {
                int64_t limit = tow__min(from + step, g->n);
                run_panels(j, &x, from, limit, (f32 *)g->c + row * g->ldc + from, g->ldc, adds);
                if (finishes) g->finish(g->user, row, x.rows, from, limit - from);
            }
        }
    }
}

/* C + A B with several blocks of k, which are summed beside C, because C comes last. */
static void run_sums(const job *j, int64_t block, f32 *sums, int64_t ld)
{
    const tow__gemm *g = j->g;
    for (int64_t row = 0; row < g->m; row += block) {
        for (int64_t from = 0; from < g->n; from += ld) {
            int64_t limit = tow__min(from + ld, g->n), rows = tow__min(block, g->m - row);
            for (int64_t first = 0; first < g->k; first += j->depth) {
                piece x = piece_of(j, row, block, first);
                split_rows(j, &x);
                run_panels(j, &x, from, limit, sums, ld, first > 0);
            }
            for (int64_t at = from, columns; at < limit; at += columns) {
                columns = tow__min(TOW__GEMM_FINISH_COLUMNS, limit - at);
                for (int64_t i = 0; i < rows; i++) {
                    f32 *c = (f32 *)g->c + (row + i) * g->ldc + at;
                    const f32 *sum = sums + i * ld + (at - from);
                    for (int64_t y = 0; y < columns; y++) c[y] += sum[y];
                }
                if (g->finish != NULL) g->finish(g->user, row, rows, at, columns);
            }
        }
    }
}

/* ---- the engine ---------------------------------------------------------------------------------------------------- */

static int64_t depth_of(const tow__gemm *g) { return g->depth > 0 ? g->depth : tow__gemm_depth(g->k); }
static bool sums_beside(const tow__gemm *g) { return g->accumulate && g->k > depth_of(g) && g->depth == 0; }

static int64_t sum_columns(const tow__gemm *g, int64_t block)
{
    int64_t rows = tow__min(g->m, block), most = tow__max(1, SUMS / (rows * PANEL)) * PANEL;
    return tow__min(tow__ceil_div(g->n, PANEL) * PANEL, most);
}

static size_t strip_bytes(int64_t depth) { return (size_t)(tow__ceil_div(depth, GROUP) * PIECE) * sizeof(uint16_t); }

static size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Scratch memory: strips, two panels, sums of two strips, scales of strips, sums beside C. */
typedef struct parts {
    size_t panels, sums, rows, beside, bytes; /* where they begin, and what all take */
} parts;

static parts divide_scratch(const tow__gemm *g, int64_t block)
{
    int64_t rows = tow__min(g->m, block), strips = tow__ceil_div(rows, STRIP), depth = depth_of(g);
    parts p = {.panels = (size_t)strips * strip_bytes(depth)};
    p.sums = p.panels + 2 * strip_bytes(depth);
    p.rows = p.sums + 2 * STRIP * PANEL * sizeof(f32);
    p.beside = p.bytes = p.rows + round_up((size_t)strips * sizeof(scales));
    /* Enough for fewer rows as well, which get more columns at a time. */
    int64_t sums = tow__min(SUMS, rows * tow__ceil_div(g->n, PANEL) * PANEL);
    if (sums_beside(g)) p.bytes += (size_t)sums * sizeof(f32);
    return p;
}

size_t tow__gemm_amx_scratch(const tow__gemm *g) { return divide_scratch(g, BLOCK).bytes; }

static void run_with(const tow__gemm *g, int64_t block, int64_t columns, char *memory)
{
    parts p = divide_scratch(g, block);
    job j = {.g = g, .depth = depth_of(g)};
    j.strips = (uint16_t *)(void *)memory;
    j.panels = (uint16_t *)(void *)(memory + p.panels);
    j.sums = (f32 *)(void *)(memory + p.sums);
    j.rows = (scales *)(void *)(memory + p.rows);
    if (sums_beside(g))
        run_sums(&j, block, (f32 *)(void *)(memory + p.beside), columns);
    else
        run_blocks(&j, block);
}

enum {
    HERE = 3 * GROUPS * PIECE * 2 + 1024 + 3 * STRIP * PANEL * 4 /* bytes for one strip, and sums as wide as a panel */
};

/* Without scratch memory: strip by strip, and panel by panel if there are sums. */
static __attribute__((noinline)) void run_here(const tow__gemm *g)
{
    char memory[HERE] __attribute__((aligned(64)));
    run_with(g, STRIP, PANEL, memory);
}

void tow__gemm_amx_run(const tow__gemm *g)
{
    configure();
    if (g->scratch != NULL)
        run_with(g, BLOCK, sum_columns(g, BLOCK), g->scratch);
    else
        run_here(g);
    _tile_release();
}
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
