/* Matrix products by libxsmm 1.17, which compiles a kernel for each shape of tile when it is first asked for. C is
 * cut into tiles; those of one product have at most four shapes.
 *
 * libxsmm is column-major, so it computes transposed: its first operand is B, which it cannot transpose; its second
 * is A. Where it gives no kernel (no right to make code, no room for more), the own kernel computes the tile.
 *
 * The first product in a process pays for its initialisation and for compiling, so the rule does not pick this
 * engine. */
#include "src/kernels/products/gemm.h"

#ifdef TOW_HAVE_LIBXSMM
#include <libxsmm.h>
#include <limits.h>

enum {
    ROWS = 64, /* of a tile of C */
    COLUMNS = 64,
    DEPTH = 512
};

static bool fits(int64_t stride) { return stride > 0 && stride <= INT_MAX; }

static bool applicable(const tow__gemm *g)
{
    bool straight = g->b_column == 1 && g->b_row >= g->n && fits(g->b_row) && fits(g->ldc);
    return g->dtype == TOW_F32 && straight &&
           ((g->a_column == 1 && g->a_row >= g->k && fits(g->a_row)) || (g->a_row == 1 && fits(g->a_column)));
}

static libxsmm_smmfunction kernel(const tow__gemm *g, bool along_k, int64_t rows, int64_t columns, int64_t k, bool adds)
{
    libxsmm_blasint ldb = (libxsmm_blasint)g->b_row, ldc = (libxsmm_blasint)g->ldc;
    libxsmm_blasint lda = (libxsmm_blasint)(along_k ? g->a_row : g->a_column);
    int flags = along_k ? LIBXSMM_GEMM_FLAG_NONE : LIBXSMM_GEMM_FLAG_TRANS_B, prefetch = LIBXSMM_GEMM_PREFETCH_NONE;
    float one = 1, beta = adds ? 1 : 0;
    return libxsmm_smmdispatch((libxsmm_blasint)columns, (libxsmm_blasint)rows, (libxsmm_blasint)k, &ldb, &lda, &ldc,
                               &one, &beta, &flags, &prefetch);
}

/* One tile of a whole product: rows and columns from (row, column), k from first. */
static void run_tile(const tow__gemm *g, bool along_k, int64_t row, int64_t column, int64_t first)
{
    tow__gemm tile = *g;
    tile.m = tow__min(ROWS, g->m - row);
    tile.n = tow__min(COLUMNS, g->n - column);
    tile.k = tow__min(DEPTH, g->k - first);
    tile.accumulate = g->accumulate || first > 0;
    tile.a = (const f32 *)g->a + row * g->a_row + first * g->a_column;
    tile.b = (const f32 *)g->b + first * g->b_row + column;
    tile.c = (f32 *)g->c + row * g->ldc + column;
    tile.epilogue = NULL;
    tile.scratch = NULL;
    libxsmm_smmfunction run = kernel(g, along_k, tile.m, tile.n, tile.k, tile.accumulate);
    if (run)
        run(tile.b, tile.a, tile.c);
    else
        tow__gemm_own.run(&tile);
}

static void run(const tow__gemm *g)
{
    bool along_k = g->a_column == 1 && g->a_row >= g->k;
    for (int64_t row = 0; row < g->m; row += ROWS)
        for (int64_t column = 0; column < g->n; column += COLUMNS)
            for (int64_t first = 0; first < g->k; first += DEPTH) run_tile(g, along_k, row, column, first);
}

static const char *describe(void) { return "libxsmm " LIBXSMM_VERSION; }

const tow__gemm_engine tow__gemm_xsmm = {"xsmm", applicable, run, describe, false, false};
#endif
