/* Products on the matrix unit of x86-64 (AMX), which multiplies bf16 and sums in f32, with the accuracy of f32.
 *
 * A number is the sum of three bf16, exactly: the nearest one, the one nearest to the rest, and what is left. Of the
 * nine products of two such sums six are made; those left out are together below 2^-23 of the product, barely above
 * 2^-24 at most. This is what TPUs do for f32 with precision "highest", and what XLA calls BF16_BF16_F32_X6.
 *
 *   x = x1 + x2 + x3        x y = x1 y3 + x1 y2 + x2 y2 + x2 y1 + x3 y1 + x1 y1 + (x2 y3 + x3 y2 + x3 y3)
 *
 * Bits of an element. k is cut into blocks as in the own kernel (tow__gemm_kc). In each, a row of A or a column of
 * B whose largest element is below 2^-32 or from 2^16 on is first multiplied with the power of two that brings this
 * element into [1, 2): so nothing overflows, and of each pair of elements at most 2^-58 of the product of these
 * largest ones underflows. Groups of 32 elements of k, in which element i and element i + 16 are neighbors, pass in
 * order through the unit, each with the six products in the order above; the sum begins with 0. Then the powers are
 * taken back, and blocks are added in order. All that depends on the row, the column and k alone. If a row or a column
 * has an infinity, a NaN or a number of 2^64 or more in the block, its elements are those of the own kernel.
 *
 *   C          | panel | panel | ...        a panel is 32 columns: two tiles of B, three parts each
 *   rows of    | strip |                    a strip is 32 rows: two tiles of A, three parts each
 *   a block    | strip |                    of A's split rows, which stay in the second cache
 *
 * All rows of a block are split first: whole lines in order, fetched ahead, because A is mostly far from the caches.
 * Each panel is split while the one before it is multiplied, unless B was packed, which is its panels split for many
 * products.
 *
 * An operand that is stored in 16 bits is read as it is: a bf16 is one bf16, an f16 the sum of two, exactly. The other
 * parts are zeros, so their products are left out, which changes no bits: four are left of f16 and f16, three of bf16
 * and f32, five of f16 and f32.
 *
 * Tiles are 16 rows of 64 bytes: of A, row i has the pairs (k, k + 16) of row i; of B, row r has the pairs of r and r
 * + 16 for each column. */
#include "src/kernels/halves.h"
#include "src/kernels/products/gemm_own.h"

#if defined(__x86_64__) && defined(__linux__)
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(                                                                                          \
    __attribute__((target("amx-tile,amx-bf16,prfchw,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))),                   \
    apply_to = function)
#else
#pragma GCC target("amx-tile,amx-bf16,prfchw,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#include <immintrin.h>
#ifdef TOW_EMULATED_AMX
#include "src/kernels/products/amx_emulated.inc"
#endif

enum {
    W = 16,
    STRIP = 2 * W,                 /* rows */
    PANEL = 2 * W,                 /* columns */
    GROUP = 2 * W,                 /* elements of k of a tile */
    TILE = W * GROUP,              /* bf16 of a tile */
    PARTS = 3,                     /* of a number */
    PIECE = 2 * PARTS * TILE,      /* bf16 of a strip or a panel for one group, at most */
    BLOCK = 384,                   /* rows of A at a time */
    SUMS = 1 << 18,                /* elements of separate sums, about */
    GROUPS = TOW__GEMM_KC / GROUP, /* of a block of k, at most */
    LINES = 128,                   /* bytes of two lines of a cache, which are fetched together */
    CACHE_LINE = LINES / 2
};

_Static_assert((int)TOW__GEMM_KC % (int)GROUP == 0, "a block of k is whole groups");

typedef f32 element;
typedef __m512 vector;
typedef __mmask16 lanes;

static inline __attribute__((always_inline)) lanes first_lanes(int64_t n)
{
    return (lanes)(n >= W ? 0xFFFFu : n <= 0 ? 0u : (1u << n) - 1);
}

#include "src/kernels/products/transpose_avx512.inc"

#include "src/kernels/products/gemm_amx_narrow.inc"
#include "src/kernels/products/gemm_amx_split.inc"
#include "src/kernels/products/gemm_sums.inc"

#include "src/kernels/products/gemm_amx_multiply.inc"

/* ---- loops ------------------------------------------------------------------------------------------------------- */

enum {
    RING = 3 /* panels: one whose sums are being written back, one that is multiplied, one that is split */
};

/* The prefetches of panels of B, decided once per call. */
typedef struct panel_fetch {
    enum {
        FETCH_NOTHING,
        FETCH_PACKED,
        FETCH_ROWS,
        FETCH_COLUMNS
    } kind;
    /* Columns from the panel that is multiplied to the one that is fetched: the next one, but where that is split at
     * the same time, which reads it, the one after. */
    int64_t distance;
} panel_fetch;

/* A panel that is fetched: `count` lines of `length` bytes, `apart` from each other. */
typedef struct panel_lines {
    const char *from;
    int64_t count, length, apart;
} panel_lines;

/* Rows of C and one block of k, and where their columns `from` .. `limit` go. */
typedef struct piece {
    int64_t row, rows, first, kc, groups;
    int64_t from, limit;
    void *c;
    tow_dtype stored; /* of c, if that has 16 bits; else 0 */
    int64_t ldc;
    bool adds, runs_epilogue;
} piece;

typedef struct job {
    const tow__gemm *g;
    panel_fetch fetch;
    int64_t kc; /* of a block of k */
    slots slots;
    multiply_function multiply; /* of operands that are stored so */
    bool plain[2];              /* A, B: not multiplied with powers of two, so far */
    side *strips;               /* of a block of rows */
    uint16_t *a, *b;            /* tiles of all strips, and of two panels */
    f32 *sums;                  /* of two strips and a panel */
} job;

static int64_t kc_of(const tow__gemm *g) { return g->kc > 0 ? g->kc : tow__gemm_kc(g->k); }

/* bf16 of a strip or a panel of elements that are stored so, for one group. */
static int64_t piece_length(tow_dtype stored) { return (int64_t)2 * TILE * parts_of(stored); }

/* Of the tiles of a strip or a panel. */
static size_t strip_bytes(tow_dtype stored, int64_t kc)
{
    return (size_t)(tow__ceil_div(kc, GROUP) * piece_length(stored)) * sizeof(uint16_t);
}

static piece piece_of(const job *j, int64_t row, int64_t block, int64_t first)
{
    const tow__gemm *g = j->g;
    piece x = {.row = row, .rows = tow__min(block, g->m - row), .first = first, .limit = g->n};
    x.kc = tow__min(j->kc, g->k - first);
    x.groups = tow__ceil_div(x.kc, GROUP);
    return x;
}

static side strip_at(const job *j, const piece *x, int64_t row)
{
    const tow__gemm *g = j->g;
    const int64_t bytes = tow__gemm_a_bytes(g), length = piece_length(g->a_dtype);
    const char *from = (const char *)g->a + ((x->row + row) * g->a_row + x->first * g->a_column) * bytes;
    return (side){.from = {from, g->a_row * bytes, g->a_column * bytes, bytes, g->a_dtype},
                  .items = tow__min(STRIP, x->rows - row),
                  .kc = x->kc,
                  .piece = length,
                  .tiles = j->a + row / STRIP * x->groups * length};
}

static side panel_at(const job *j, const piece *x, int64_t column)
{
    const tow__gemm *g = j->g;
    const int64_t bytes = tow__gemm_b_bytes(g), length = piece_length(g->b_dtype);
    const char *from = (const char *)g->b + (x->first * g->b_row + column * g->b_column) * bytes;
    return (side){.from = {from, g->b_column * bytes, g->b_row * bytes, bytes, g->b_dtype},
                  .items = tow__min(PANEL, x->limit - column),
                  .kc = x->kc,
                  .piece = length,
                  .columns = true,
                  .tiles = j->b + (column - x->from) / PANEL % 2 * x->groups * length};
}

/* ---- packed panels ----------------------------------------------------------------------------------------------- */

/* B as it is kept for several products: panel by panel, and in each for each block of k its scales and its tiles. */
enum {
    HEAD = (int)(sizeof(scales) + 63) / 64 * 64
};

static size_t panel_bytes(const tow__gemm *g)
{
    int64_t kc = kc_of(g), whole = g->k / kc;
    return (size_t)tow__ceil_div(g->k, kc) * HEAD + (size_t)whole * strip_bytes(g->b_dtype, kc) +
           strip_bytes(g->b_dtype, g->k % kc);
}

static char *packed_at(const tow__gemm *g, int64_t column, int64_t first)
{
    int64_t panel = (g->packed_column + column) / PANEL, kc = kc_of(g);
    return (char *)g->packed + (size_t)panel * panel_bytes(g) +
           (size_t)(first / kc) * (HEAD + strip_bytes(g->b_dtype, kc));
}

static side packed_panel(const job *j, const piece *x, int64_t column)
{
    side s = panel_at(j, x, column);
    char *packed = packed_at(j->g, column, x->first);
    memcpy(&s.scale, packed, sizeof s.scale);
    s.tiles = (uint16_t *)(void *)(packed + HEAD);
    return s;
}

static void put(const write_back *d, int64_t at, f32 x)
{
    if (d->stored)
        store_narrow(d->stored, (uint16_t *)d->c + at, 1, _mm512_set1_ps(x));
    else
        ((f32 *)d->c)[at] = x;
}

/* Elements of rows and columns with infinities, NaNs or large numbers. All other elements are written back first. */
static __attribute__((noinline)) void run_special(const job *j, const side *a, const side *b, write_back *d)
{
    f32 own[STRIP * PANEL], kept[STRIP * PANEL] = {0};
    const tow__gemm g = {.dtype = TOW_F32,
                         .a_dtype = j->g->a_dtype,
                         .b_dtype = j->g->b_dtype,
                         .threads = 1,
                         .m = d->rows,
                         .n = d->columns,
                         .k = a->kc,
                         .kc = a->kc,
                         .a = a->from.data,
                         .a_row = j->g->a_row,
                         .a_column = j->g->a_column,
                         .b = b->from.data,
                         .b_row = j->g->b_row,
                         .b_column = j->g->b_column,
                         .c = own,
                         .ldc = PANEL};
    tow__gemm_avx512_version.run(&g);
    for (int64_t i = 0; i < d->rows && d->adds; i++)
        memcpy(kept + i * PANEL, (f32 *)d->c + i * d->ldc, (size_t)d->columns * sizeof *kept);
    write_back_rows(d, STRIP);
    for (int64_t i = 0; i < d->rows; i++)
        for (int64_t y = 0; y < d->columns; y++)
            if ((a->scale.special >> i & 1) || (b->scale.special >> y & 1))
                put(d, i * d->ldc + y, d->adds ? kept[i * PANEL + y] + own[i * PANEL + y] : own[i * PANEL + y]);
}

/* `lines` lines of `length` bytes that are `apart` from each other, spread over `count` slots. */
static stream stream_of(const char *from, int64_t lines, int64_t length, int64_t apart, int64_t count)
{
    stream s = {.at = from, .lines = lines, .pieces = tow__ceil_div(length, LINES)};
    s.left = s.pieces;
    s.line = apart - s.pieces * LINES;
    s.at_once = tow__ceil_div(lines * s.pieces, count);
    return s;
}

/* Plans the prefetches of panels of B. */
static panel_fetch plan_fetch(const tow__gemm *g)
{
    if (g->packed) return (panel_fetch){FETCH_PACKED, PANEL};
    if (g->b_column == 1) return (panel_fetch){FETCH_ROWS, 2 * PANEL};
    return (panel_fetch){g->b_row == 1 ? FETCH_COLUMNS : FETCH_NOTHING, 2 * PANEL};
}

/* The lines of the panel that is fetched while the one at `column` is multiplied. */
static panel_lines lines_ahead(const job *j, const piece *x, int64_t column)
{
    const tow__gemm *g = j->g;
    const int64_t next = column + j->fetch.distance, bytes = tow__gemm_b_bytes(g);
    const char *from = (const char *)g->b + (x->first * g->b_row + next * g->b_column) * bytes;
    if (next >= g->n) return (panel_lines){.count = 0};
    switch (j->fetch.kind) {
    case FETCH_PACKED:
        return (panel_lines){packed_at(g, next, x->first) + HEAD,
                             x->groups * piece_length(g->b_dtype) * (int64_t)sizeof(uint16_t) / LINES, LINES, LINES};
    case FETCH_ROWS:
        return (panel_lines){from, x->kc, PANEL * bytes, g->b_row * bytes};
    case FETCH_COLUMNS:
        return (panel_lines){from, PANEL, x->kc * bytes, g->b_column * bytes};
    default:
        return (panel_lines){.count = 0};
    }
}

/* The share of strip `row` in fetching the lines of a panel. */
static stream share_of_strip(const panel_lines *p, const piece *x, int64_t row, int64_t count)
{
    if (p->count == 0) return (stream){0};
    int64_t share = tow__ceil_div(p->count, tow__ceil_div(x->rows, STRIP)), first = row / STRIP * share;
    return stream_of(p->from + first * p->apart, tow__max(0, tow__min(share, p->count - first)), p->length, p->apart,
                     count);
}

/* All strips of a piece times panel b, at `column`. The last sums are left to be written back. */
static void run_panel(const job *j, const piece *x, const side *b, int64_t column, overlapped_work *w)
{
    const panel_lines ahead = lines_ahead(j, x, column);
    const int64_t bytes = x->stored ? sizeof(uint16_t) : sizeof(f32), fetches = j->slots.fetches * x->groups;
    for (int64_t row = 0; row < x->rows; row += STRIP) {
        const side *a = &j->strips[row / STRIP];
        f32 *sums = w->sums.sums == j->sums ? j->sums + STRIP * PANEL : j->sums;
        char *c = (char *)x->c + (row * x->ldc + column - x->from) * bytes;
        w->c = stream_of(c, a->items, PANEL * bytes, x->ldc * bytes, fetches);
        w->b = share_of_strip(&ahead, x, row, fetches);
        j->multiply(x->groups, a, b, w->panel.parts > 0, sums, w);
        write_back_rows(&w->sums, STRIP);
        w->sums = (write_back){.a = &a->scale,
                               .b = &b->scale,
                               .sums = sums,
                               .c = c,
                               .stored = x->stored,
                               .ldc = x->ldc,
                               .rows = a->items,
                               .columns = b->items,
                               .low = first_lanes(b->items),
                               .high = first_lanes(b->items - W),
                               .adds = x->adds};
        w->written_rows = tow__ceil_div(a->items, j->slots.write_backs * x->groups);
        if (a->scale.special | b->scale.special) run_special(j, a, b, &w->sums);
    }
}

/* Takes the panel at `column`, if there is one; its splitting it may only begin. */
static void begin_panel(job *j, const piece *x, int64_t column, side *s, overlapped_work *w)
{
    const tow__gemm *g = j->g;
    w->panel.part = w->panel.parts = 0;
    if (column >= x->limit) return;
    *s = g->packed != NULL ? packed_panel(j, x, column) : panel_at(j, x, column);
    if (g->packed) return;
    if (!j->plain[1] || (g->b_row != 1 && g->b_column != 1)) {
        j->plain[1] = split_sides(s, 1, false);
        return;
    }
    begin_split(&w->panel, s);
    w->split_rows = tow__ceil_div(cost_of(s), j->slots.splits * tow__ceil_div(x->rows, STRIP));
}

static void end_panel(job *j, side *s, overlapped_work *w)
{
    if (w->panel.parts == 0) return;
    end_split(&w->panel);
    if (!was_plain(s)) j->plain[1] = split_sides(s, 1, false);
}

static void run_piece(job *j, const piece *x)
{
    side ring[RING];
    overlapped_work w = {0};
    int64_t strips = tow__ceil_div(x->rows, STRIP), passed = x->from;
    for (int64_t i = 0; i < strips; i++) j->strips[i] = strip_at(j, x, i * STRIP);
    j->plain[0] = split_sides(j->strips, strips, j->plain[0]);
    begin_panel(j, x, x->from, &ring[0], &w);
    end_panel(j, &ring[0], &w);
    for (int64_t at = x->from, i = 0; at < x->limit; at += PANEL, i++) {
        side *next = &ring[(i + 1) % RING];
        if (i > 0 && tow__cancelled()) return;
        bool more = at + PANEL < x->limit;
        begin_panel(j, x, at + PANEL, next, &w);
        run_panel(j, x, &ring[i % RING], at, &w);
        end_panel(j, next, &w);
        int64_t done = tow__min(at + PANEL, x->limit);
        if (x->runs_epilogue ? more && done - passed < TOW__GEMM_EPILOGUE_COLUMNS : more) continue;
        write_back_rows(&w.sums, STRIP);
        if (x->runs_epilogue) j->g->epilogue(j->g->user, x->row, x->rows, passed, done - passed);
        passed = done;
    }
}

static void run_blocks(job *j, int64_t block)
{
    const tow__gemm *g = j->g;
    for (int64_t row = 0; row < g->m; row += block) {
        for (int64_t first = 0; first < g->k; first += j->kc) {
            piece x = piece_of(j, row, block, first);
            x.c = (char *)g->c + row * g->ldc * tow__gemm_c_bytes(g);
            x.stored = g->c_dtype;
            x.ldc = g->ldc;
            x.adds = g->accumulate || first > 0;
            x.runs_epilogue = g->epilogue != NULL && first + x.kc >= g->k;
            if (row + first > 0 && tow__cancelled()) return;
            run_piece(j, &x);
        }
    }
}

/* C + A B with several blocks of k, which are summed in memory of their own first, because C is added last; or a C of
 * 16 bits, which is rounded last. */
static void run_sums(job *j, int64_t block, f32 *sums, int64_t ld)
{
    const tow__gemm *g = j->g;
    for (int64_t row = 0; row < g->m; row += block) {
        for (int64_t from = 0; from < g->n; from += ld) {
            int64_t limit = tow__min(from + ld, g->n), rows = tow__min(block, g->m - row);
            for (int64_t first = 0; first < g->k; first += j->kc) {
                piece x = piece_of(j, row, block, first);
                x.from = from, x.limit = limit;
                x.c = sums, x.ldc = ld;
                x.adds = first > 0;
                if (row + from + first > 0 && tow__cancelled()) return;
                run_piece(j, &x);
            }
            deliver_sums(g, row, rows, from, limit, sums, ld);
        }
    }
}

/* ---- the engine -------------------------------------------------------------------------------------------------- */

static bool needs_separate_sums(const tow__gemm *g)
{
    return (g->accumulate || g->c_dtype) && g->k > kc_of(g) && g->kc == 0;
}

static int64_t sum_columns(const tow__gemm *g, int64_t block)
{
    int64_t rows = tow__min(g->m, block), most = tow__max(1, SUMS / (rows * PANEL)) * PANEL;
    return tow__min(tow__ceil_div(g->n, PANEL) * PANEL, most);
}

static size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Scratch memory: tiles of strips and of two panels, sums of two strips, the strips, separate sums. */
typedef struct scratch_layout {
    size_t panels, sums, strips, separate_sums, bytes; /* where each begins, and the size of all */
} scratch_layout;

static scratch_layout divide_scratch(const tow__gemm *g, int64_t block)
{
    int64_t rows = tow__min(g->m, block), strips = tow__ceil_div(rows, STRIP), kc = kc_of(g);
    scratch_layout p = {.panels = (size_t)strips * strip_bytes(g->a_dtype, kc)};
    p.sums = p.panels + 2 * strip_bytes(g->b_dtype, kc);
    p.strips = p.sums + 2 * STRIP * PANEL * sizeof(f32);
    p.separate_sums = p.bytes = p.strips + round_up((size_t)strips * sizeof(side));
    /* Enough for fewer rows as well, which get more columns at a time. */
    int64_t sums = tow__min(SUMS, rows * tow__ceil_div(g->n, PANEL) * PANEL);
    if (needs_separate_sums(g)) p.bytes += (size_t)sums * sizeof(f32);
    return p;
}

size_t tow__gemm_amx_scratch(const tow__gemm *g) { return divide_scratch(g, BLOCK).bytes; }

static void run_with(const tow__gemm *g, int64_t block, int64_t columns, char *memory)
{
    scratch_layout p = divide_scratch(g, block);
    const int a_parts = parts_of(g->a_dtype), b_parts = parts_of(g->b_dtype);
    job j = {.g = g, .fetch = plan_fetch(g), .kc = kc_of(g), .plain = {true, true}};
    j.multiply = multiply_parts[a_parts - 1][b_parts - 1];
    j.slots = slots_of(a_parts, b_parts);
    j.a = (uint16_t *)(void *)memory;
    j.b = (uint16_t *)(void *)(memory + p.panels);
    j.sums = (f32 *)(void *)(memory + p.sums);
    j.strips = (side *)(void *)(memory + p.strips);
    if (needs_separate_sums(g))
        run_sums(&j, block, (f32 *)(void *)(memory + p.separate_sums), columns);
    else
        run_blocks(&j, block);
}

enum {
    /* bytes for one strip, two panels, and sums as wide as one */
    HERE = 3 * GROUPS * PIECE * (int)sizeof(uint16_t) + (int)(sizeof(side) + 63) / 64 * 64 +
           3 * STRIP * PANEL * (int)sizeof(f32)
};

/* Without scratch memory: strip by strip and panel by panel. */
static __attribute__((noinline)) void run_here(const tow__gemm *g)
{
    char memory[HERE] __attribute__((aligned(64)));
    run_with(g, STRIP, PANEL, memory);
}

void tow__gemm_amx_run(const tow__gemm *g)
{
    configure();
    if (g->scratch)
        run_with(g, BLOCK, sum_columns(g, BLOCK), g->scratch);
    else
        run_here(g);
    _tile_release();
}

size_t tow__gemm_amx_packed(const tow__gemm *g) { return (size_t)tow__ceil_div(g->n, PANEL) * panel_bytes(g); }

void tow__gemm_amx_pack(const tow__gemm *g)
{
    enum {
        PANELS = 4 /* that are read together */
    };
    side panels[PANELS];
    job j = {.g = g, .kc = kc_of(g), .plain = {true, true}};
    for (int64_t first = 0; first < g->k; first += j.kc) {
        piece x = piece_of(&j, 0, STRIP, first);
        for (int64_t column = 0; column < g->n; column += PANELS * PANEL) {
            int64_t count = tow__min(PANELS, tow__ceil_div(g->n - column, PANEL));
            for (int64_t i = 0; i < count; i++) {
                panels[i] = panel_at(&j, &x, column + i * PANEL);
                panels[i].tiles = (uint16_t *)(void *)(packed_at(g, column + i * PANEL, first) + HEAD);
            }
            j.plain[1] = split_sides(panels, count, j.plain[1]);
            for (int64_t i = 0; i < count; i++)
                memcpy(packed_at(g, column + i * PANEL, first), &panels[i].scale, sizeof panels[i].scale);
        }
    }
}
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
