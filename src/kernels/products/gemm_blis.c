/* Matrix products by BLIS, always with an explicit context: BLIS knows processors by name and falls to generic kernels,
 * five times slower, on those that are newer than itself. The context is looked up by what the processor can do. The
 * lookup is a hidden symbol, so this needs the static library.
 *
 * Bits. BLIS sums a block of k in one chain for each element, as the own kernel does, and adds blocks to C in order.
 * With blocks of the own kernel's length its bits are the own kernel's, which a trial proves (gemm_trial.h); so this
 * calls BLIS once for each of these blocks, with a copy of the context in which none of them is cut. The path for small
 * matrices ("sup") is off: it sums in an order that depends on the number of threads. If C is added to a sum of several
 * blocks, which BLIS has no memory for, the own kernel runs. */
#include "src/kernels/products/gemm_trial.h"

#ifdef TOW_HAVE_BLIS
#include <blis.h>
#include <pthread.h>

#include "src/kernels/products/gemm_own.h"

enum {
    CHOICE_SKX,
    CHOICE_HASWELL,
    CHOICE_ARMV8,
    CHOICE_OWN
};

static int choice(void)
{
#if defined(__x86_64__)
    if (tow__has_avx512()) return CHOICE_SKX;
    if (tow__has_avx2()) return CHOICE_HASWELL;
#elif defined(__aarch64__)
    return CHOICE_ARMV8;
#endif
    return CHOICE_OWN;
}

static cntx_t own_context;
static bool has_context;

static void make_context(void)
{
    static const arch_t names[] = {
#if defined(__x86_64__)
        [CHOICE_SKX] = BLIS_ARCH_SKX,
        [CHOICE_HASWELL] = BLIS_ARCH_HASWELL
#else
        [CHOICE_ARMV8] = BLIS_ARCH_CORTEXA57
#endif
    };
    bli_init();
    if (choice() == CHOICE_OWN) return;
    const cntx_t *context = bli_gks_lookup_nat_cntx(names[choice()]);
    if (context == NULL) return;
    blksz_t kc;
    own_context = *context;
    bli_blksz_init_easy(&kc, TOW__GEMM_KC, TOW__GEMM_KC, TOW__GEMM_KC, TOW__GEMM_KC);
    bli_cntx_set_blksz(BLIS_KC, &kc, BLIS_KR, &own_context);
    has_context = true;
}

/* The context for this processor, in which blocks of k are as long as the own kernel's; NULL: BLIS's own choice, which
 * has other bits. */
static const cntx_t *context(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_context);
    return has_context ? &own_context : NULL;
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

/* One block of k of a part of the rows. */
static void multiply(const tow__gemm *g, bool adds, rntm_t *runtime)
{
    cntx_t *cntx = (cntx_t *)(uintptr_t)context(); /* const for BLIS from version 1.0 on */
    layout a = strides(g->m, g->k, g->a_row, g->a_column), b = strides(g->k, g->n, g->b_row, g->b_column);
    layout c = strides(g->m, g->n, g->ldc, 1);
    /* BLIS takes its operands without const and does not write to them. */
    if (g->dtype == TOW_F32) {
        f32 one = 1, beta = adds ? 1 : 0;
        bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, g->m, g->n, g->k, &one, (f32 *)(uintptr_t)g->a, a.row,
                     a.column, (f32 *)(uintptr_t)g->b, b.row, b.column, &beta, g->c, c.row, c.column, cntx, runtime);
    } else {
        f64 one = 1, beta = adds ? 1 : 0;
        bli_dgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, g->m, g->n, g->k, &one, (f64 *)(uintptr_t)g->a, a.row,
                     a.column, (f64 *)(uintptr_t)g->b, b.row, b.column, &beta, g->c, c.row, c.column, cntx, runtime);
    }
}

/* C is added behind a sum of several blocks. */
static bool needs_separate_sums(const tow__gemm *g) { return g->accumulate && g->kc == 0 && g->k > tow__gemm_kc(g->k); }

/* The kernels for arm64 add what they write to +0, in which a sum of -0 loses its sign. */
static bool loses_signs(void) { return choice() == CHOICE_ARMV8; }

/* C = -0, to which sums are added without a change of any bit. */
static void clear(const tow__gemm *g)
{
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            if (g->dtype == TOW_F32)
                ((f32 *)g->c)[i * g->ldc + j] = -0.0f;
            else
                ((f64 *)g->c)[i * g->ldc + j] = -0.0;
        }
}

static void run_rows(const tow__gemm *g, rntm_t *runtime)
{
    const int64_t kc = g->kc > 0 ? g->kc : tow__gemm_kc(g->k), size = (int64_t)tow__element_bytes(g->dtype);
    const bool adds = g->accumulate || loses_signs();
    tow__gemm block = *g;
    if (adds && !g->accumulate) clear(g);
    for (int64_t first = 0; first < g->k; first += kc) {
        block.k = tow__min(kc, g->k - first);
        block.a = (const char *)g->a + first * g->a_column * size;
        block.b = (const char *)g->b + first * g->b_row * size;
        multiply(&block, adds || first > 0, runtime);
    }
}

/* BLIS does not look whether the run is cancelled, and has no epilogue: so it gets some rows at a time, which take
 * milliseconds. */
static void run(const tow__gemm *g)
{
    enum {
        WORK = 1 << 28, /* multiply-adds of a part */
        ROWS = 168      /* a multiple of the rows of tiles, and of what BLIS holds in L2 */
    };
    if (needs_separate_sums(g)) {
        tow__gemm_own.run(g);
        return;
    }
    rntm_t runtime = BLIS_RNTM_INITIALIZER;
    bli_rntm_set_num_threads(g->threads, &runtime);
    bli_rntm_disable_l3_sup(&runtime);
    const int64_t of_row = tow__max(1, g->n * g->k), size = (int64_t)tow__element_bytes(g->dtype);
    const int64_t rows = tow__ceil_div(tow__max(1, WORK / of_row), ROWS) * ROWS;
    tow__gemm part = *g;
    for (int64_t row = 0; row < g->m && !tow__cancelled(); row += rows) {
        part.m = tow__min(rows, g->m - row);
        part.a = (const char *)g->a + row * g->a_row * size;
        part.c = (char *)g->c + row * g->ldc * size;
        run_rows(&part, &runtime);
    }
    if (g->epilogue && !tow__cancelled()) tow__gemm_epilogue_on_all(g);
}

/* There is no machine code to be made: BLIS may stand in for products of any size. */
static bool make(const tow__gemm *g, int way, tow__gemm_code *code)
{
    if (way > 0 || g->dtype != TOW_F32 || context() == NULL || needs_separate_sums(g)) return false;
    *code = (tow__gemm_code){.engine = &tow__gemm_blis, .m = g->m, .n = g->n};
    return true;
}

static void unmake(const tow__gemm_code *code) { (void)code; }

/* The own kernel may run. */
static size_t scratch(const tow__gemm *g) { return tow__gemm_own.scratch(g); }

static const char *describe(void)
{
    static const char *const texts[] = {
        [CHOICE_SKX] = "blis " TOW_BLIS_VERSION ", skx kernels (explicit context)",
        [CHOICE_HASWELL] = "blis " TOW_BLIS_VERSION ", haswell kernels (explicit context)",
        [CHOICE_ARMV8] = "blis " TOW_BLIS_VERSION ", armv8 kernels (explicit context)",
        [CHOICE_OWN] = "blis " TOW_BLIS_VERSION ", kernels of its own choice",
    };
    return texts[choice()];
}

const tow__gemm_engine tow__gemm_blis = {
    "blis", "BLIS",           applicable,         run,          describe,        true,
    true,   .in_parts = true, .scratch = scratch, .make = make, .unmake = unmake};
#endif
