/* The own kernel of matrix products as an engine: picks the version for the processor. */
#include "src/kernels/products/gemm_own.h"

/* The version of a type that `choice` asks for, or the best below it that the processor can run. */
static const tow__gemm_version *version(tow_dtype dtype, const tow__gemm_choice *choice)
{
    const bool doubles = dtype == TOW_F64;
#if defined(__x86_64__)
    tow__gemm_set set = choice != NULL ? (tow__gemm_set)choice->set : TOW__GEMM_AUTO;
    if ((set == TOW__GEMM_AUTO || set == TOW__GEMM_AVX512) && tow__has_avx512())
        return doubles ? &tow__gemm_avx512_f64_version : &tow__gemm_avx512_version;
    if (set != TOW__GEMM_PLAIN && tow__has_avx2())
        return doubles ? &tow__gemm_avx2_f64_version : &tow__gemm_avx2_version;
#else
    (void)choice;
#endif
    return doubles ? &tow__gemm_plain_f64_version : &tow__gemm_plain_version;
}

static bool applicable(const tow__gemm *g)
{
    if (g->dtype != TOW_F32 && (g->dtype != TOW_F64 || tow__gemm_has_halves(g))) return false;
    return g->a_row >= 0 && g->a_column >= 0 && g->b_row >= 0 && g->b_column >= 0;
}

static void run(const tow__gemm *g) { version(g->dtype, g->choice)->run(g); }

void tow__gemm_run_series(const tow__gemm_series *s) { version(s->dtype, s->choice)->run_series(s); }

void tow__gemm_lay_strips(const tow__gemm_strips *s, int64_t first, int64_t count, const void *from, int64_t row,
                          int64_t column)
{
    version(s->dtype, s->choice)->lay_strips(s, first, count, from, row, column);
}

void tow__gemm_lay_panels(const tow__gemm_panels *s, int64_t first, int64_t count, const void *from, int64_t row,
                          int64_t column)
{
    version(s->dtype, s->choice)->lay_panels(s, first, count, from, row, column);
}

void tow__gemm_run_windows(const tow__gemm_windows *s) { version(s->strips->dtype, s->strips->choice)->run_windows(s); }

static const char *describe(void) { return version(TOW_F32, NULL)->text; }

static size_t scratch(const tow__gemm *g) { return version(g->dtype, g->choice)->scratch(g); }

static size_t packed(const tow__gemm *g) { return version(g->dtype, g->choice)->packed(g); }

static void pack(const tow__gemm *g) { version(g->dtype, g->choice)->pack(g); }

const tow__gemm_engine tow__gemm_own = {
    "own",          "own kernel",       applicable,       run,         describe, true, true, .in_parts = true,
    .halves = true, .scratch = scratch, .packed = packed, .pack = pack};
