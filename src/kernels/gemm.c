/* The engine table of matrix products. An engine is added by a file of its own and one line here. */
#include "src/kernels/gemm.h"

#include <string.h>

static const tow__gemm_engine *const engines[] = {
#ifdef TOW_HAVE_BLIS
    &tow__gemm_blis,
#endif
    &tow__gemm_reference,
};
enum {
    ENGINES = sizeof engines / sizeof engines[0]
};

const tow__gemm_engine *tow__gemm_default(void) { return engines[0]; }

const char *tow__gemm_describe(void) { return engines[0]->describe(); }

bool tow__gemm_plain(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride)
{
    if (rows <= 1 && columns <= 1) return true;
    if (rows <= 1) return column_stride > 0;
    if (columns <= 1) return row_stride > 0;
    return (column_stride > 0 && row_stride >= columns * column_stride) ||
           (row_stride > 0 && column_stride >= rows * row_stride);
}

static void clear(const tow__gemm *g)
{
    size_t bytes = tow__element_bytes(g->dtype);
    for (int64_t i = 0; i < g->m; i++) memset((char *)g->c + (size_t)(i * g->ldc) * bytes, 0, (size_t)g->n * bytes);
}

void tow__gemm_run(const tow__gemm *g, const tow__gemm_engine *engine)
{
    if (g->m == 0 || g->n == 0) return;
    if (g->k == 0) {
        if (!g->accumulate) clear(g);
        return;
    }
    for (int i = 0; engine == NULL; i++)
        if (engines[i]->applicable(g)) engine = engines[i];
    engine->run(g);
}
