/* Units for bf16 as engines (gemm_bf16.h): how products are cut for them, and for which they are worth it. */
#include "src/kernels/products/gemm_bf16.h"

enum {
    PANELS = 1 << 19, /* elements of packed panels, at most, so that they stay in the second cache, */
    SUMS = 1 << 18,   /* and of sums that wait */
    LEAST = 16,       /* rows and columns from which a unit gains */
    LEAST_DEPTH = 32  /* and k */
};

static int64_t round_to(int64_t n, int64_t multiple) { return tow__ceil_div(n, multiple) * multiple; }
static int64_t round_down(int64_t n, int64_t multiple) { return tow__max(n / multiple, 1) * multiple; }

static tow__gemm_bf16_plan cut(const tow__gemm *g, int64_t depth, int64_t most_rows, int64_t most_columns)
{
    const int64_t m = round_to(g->m, TOW__BF16_STRIP), n = round_to(g->n, TOW__BF16_PANEL);
    const int64_t blocks = tow__ceil_div(g->k, depth);
    tow__gemm_bf16_plan p = {.depth = round_to(tow__ceil_div(g->k, blocks), TOW__BF16_GROUP), .waits = blocks > 1};
    p.columns = tow__min(n, round_down(PANELS / p.depth, TOW__GEMM_EPILOGUE_COLUMNS));
    p.columns = tow__min(p.columns, most_columns);
    p.rows = p.waits ? tow__min(m, round_down(SUMS / p.columns, TOW__BF16_STRIP)) : m;
    p.rows = tow__min(p.rows, most_rows);
    p.panels = (size_t)(TOW__BF16_STRIP * p.depth) * sizeof(uint16_t);
    p.sums = p.panels + (size_t)(p.columns * p.depth) * sizeof(uint16_t);
    /* Enough for slices as well, which may get more rows or columns at a time. */
    p.bytes = p.sums + (p.waits ? (size_t)tow__min(m * n, SUMS) * sizeof(f32) : 0);
    return p;
}

tow__gemm_bf16_plan tow__gemm_bf16_cut(const tow__gemm *g) { return cut(g, TOW__BF16_DEPTH, INT64_MAX, INT64_MAX); }

tow__gemm_bf16_plan tow__gemm_bf16_cut_small(const tow__gemm *g)
{
    return cut(g, TOW__BF16_LITTLE_DEPTH, TOW__BF16_STRIP, TOW__BF16_PANEL);
}

size_t tow__gemm_bf16_scratch(const tow__gemm *g) { return tow__gemm_bf16_cut(g).bytes; }

size_t tow__gemm_bf16_packed(const tow__gemm *g)
{
    return (size_t)(round_to(g->n, TOW__BF16_PANEL) * round_to(g->k, TOW__BF16_GROUP)) * sizeof(uint16_t);
}

bool tow__gemm_bf16_fits(const tow__gemm *g)
{
    return g->dtype == TOW_F32 && tow__gemm_of_bf16(g) && g->c_dtype != TOW_F16 && g->kc == 0 && g->a_row >= 0 &&
           g->a_column >= 0 && g->b_row >= 0 && g->b_column >= 0;
}

bool tow__gemm_bf16_gains(const tow__gemm *g)
{
    const int64_t rows = g->rows > 0 ? g->rows : g->m, columns = g->columns > 0 ? g->columns : g->n;
    return rows >= LEAST && columns >= LEAST && g->k >= LEAST_DEPTH;
}

static bool applicable(const tow__gemm *g) { return g->choice != NULL && g->choice->dots && tow__gemm_bf16_fits(g); }

#ifdef TOW__BF16_UNITS
static void run(const tow__gemm *g) { tow__gemm_bf16_dots.run(g); }
static void pack(const tow__gemm *g) { tow__gemm_bf16_dots.pack(g); }
#else
static void run(const tow__gemm *g) { tow__gemm_bf16_dots_emulated.run(g); }
static void pack(const tow__gemm *g) { tow__gemm_bf16_dots_emulated.pack(g); }
#endif

static const char *describe(void) { return "vectors of bf16, AVX512_BF16"; }

const tow__gemm_engine tow__gemm_dots = {"avx512_bf16",
                                         "vectors of bf16",
                                         applicable,
                                         run,
                                         describe,
                                         .runs_epilogue = true,
                                         .cuts = true,
                                         .halves = true,
                                         .gains = tow__gemm_bf16_gains,
                                         .scratch = tow__gemm_bf16_scratch,
                                         .packed = tow__gemm_bf16_packed,
                                         .pack = pack};
