/* Matrix products by BLIS, always with an explicit context: BLIS knows processors by name and falls to generic kernels,
 * five times slower, on those that are newer than itself. The context is looked up by what the processor can do. The
 * lookup is a hidden symbol, so this needs the static library.
 *
 * The path for small matrices ("sup") is off: it sums in an order that depends on the number of threads. What is left
 * adds up every element of C in the same order whatever the threads and the split of rows and columns. */
#include "src/kernels/products/gemm.h"

#ifdef TOW_HAVE_BLIS
#include <blis.h>

enum {
    CHOICE_SKX,
    CHOICE_HASWELL,
    CHOICE_OWN
};

static int choice(void)
{
#if defined(__x86_64__)
    if (tow__has_avx512()) return CHOICE_SKX;
    if (tow__has_avx2()) return CHOICE_HASWELL;
#endif
    return CHOICE_OWN;
}

/* The context for this processor; NULL: BLIS's own choice. bli_init registers all contexts once, from any thread. */
static const cntx_t *context(void)
{
    bli_init();
#if defined(__x86_64__)
    int c = choice();
    if (c == CHOICE_SKX) return bli_gks_lookup_nat_cntx(BLIS_ARCH_SKX);
    if (c == CHOICE_HASWELL) return bli_gks_lookup_nat_cntx(BLIS_ARCH_HASWELL);
#endif
    return NULL;
}

/* BLIS wants strides that are positive and do not overlap. */
static bool applicable(const tow__gemm *g)
{
    return tow__gemm_plain(g->m, g->k, g->a_row, g->a_column) && tow__gemm_plain(g->k, g->n, g->b_row, g->b_column);
}

typedef struct layout {
    inc_t row, column;
} layout;

/* Strides along axes of size 1 may be anything in a tow__gemm; BLIS checks them, so they become those of a plain
 * matrix. */
static layout strides(int64_t rows, int64_t columns, int64_t row, int64_t column)
{
    if (rows == 1 && columns == 1) return (layout){1, 1};
    if (columns == 1) return (layout){row, row == 1 ? rows : 1};
    if (rows == 1) return (layout){column == 1 ? columns : 1, column};
    return (layout){row, column};
}

static void run(const tow__gemm *g)
{
    rntm_t runtime = BLIS_RNTM_INITIALIZER;
    bli_rntm_set_num_threads(g->threads, &runtime);
    bli_rntm_disable_l3_sup(&runtime);
    cntx_t *cntx = (cntx_t *)(uintptr_t)context(); /* const for BLIS from version 1.0 on */
    layout a = strides(g->m, g->k, g->a_row, g->a_column), b = strides(g->k, g->n, g->b_row, g->b_column);
    layout c = strides(g->m, g->n, g->ldc, 1);
    /* BLIS takes its operands without const and does not write to them. */
    if (g->dtype == TOW_F32) {
        f32 one = 1, beta = g->accumulate ? 1 : 0;
        bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, g->m, g->n, g->k, &one, (f32 *)(uintptr_t)g->a, a.row,
                     a.column, (f32 *)(uintptr_t)g->b, b.row, b.column, &beta, g->c, c.row, c.column, cntx, &runtime);
    } else {
        f64 one = 1, beta = g->accumulate ? 1 : 0;
        bli_dgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, g->m, g->n, g->k, &one, (f64 *)(uintptr_t)g->a, a.row,
                     a.column, (f64 *)(uintptr_t)g->b, b.row, b.column, &beta, g->c, c.row, c.column, cntx, &runtime);
    }
}

static const char *describe(void)
{
    static const char *const texts[] = {
        [CHOICE_SKX] = "blis " TOW_BLIS_VERSION ", skx kernels (explicit context)",
        [CHOICE_HASWELL] = "blis " TOW_BLIS_VERSION ", haswell kernels (explicit context)",
        [CHOICE_OWN] = "blis " TOW_BLIS_VERSION ", kernels of its own choice",
    };
    return texts[choice()];
}

const tow__gemm_engine tow__gemm_blis = {"blis", "BLIS", applicable, run, describe, false, true};
#endif
