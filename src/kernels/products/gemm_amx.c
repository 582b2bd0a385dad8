/* The matrix unit of x86-64 (AMX) as an engine: whether it is there, and for which products it is worth it. The
 * products themselves are in gemm_amx_run.c, with the accuracy and the bits of f32, however operands are stored, and
 * gemm_bf16_amx.c, of two operands of bf16, which only run where tow__gemm_amx_usable has said yes. */
#include "src/kernels/products/gemm_bf16.h"
#include "src/kernels/products/gemm_own.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LEAST = 128,         /* rows, columns and k from which the unit gains */
    LEAST_WORK = 1 << 22 /* rows * columns * k; of a block of k, which is what parts along k know as well */
};

#ifdef TOW_EMULATED_AMX
static bool may_use_unit(void) { return true; }
static const char *describe(void) { return "matrix unit, emulated AMX"; }
#else
/* Asked of the processor itself: not all compilers know the names of these features. Sums are rounded by AVX512_BF16,
 * which all of these processors have. */
static bool has_unit(void)
{
    enum {
        LEAF = 7,
        BF16 = 1 << 22, /* of edx */
        TILE = 1 << 24,
        VECTORS = 1 << 5 /* of eax of subleaf 1 */
    };
    unsigned a, b, c, d = 0;
    if (!__get_cpuid_count(LEAF, 0, &a, &b, &c, &d) || !(d & BF16) || !(d & TILE)) return false;
    return __get_cpuid_count(LEAF, 1, &a, &b, &c, &d) && (a & VECTORS);
}

static bool may_use_unit(void)
{
    enum {
        GET = 0x1022, /* of arch_prctl(2): ARCH_GET_XCOMP_PERM */
        REQUEST = 0x1023,
        TILE_DATA = 18
    };
    unsigned long allowed = 0;
    if (!has_unit() || syscall(SYS_arch_prctl, GET, &allowed) != 0) return false;
    return (allowed >> TILE_DATA & 1) || syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

static const char *describe(void) { return "matrix unit, AMX"; }
#endif

bool tow__gemm_amx_usable(void) { return tow__has_avx512() && may_use_unit(); }

/* By rows, columns and k of the whole product, which cuts do not change. */
static bool gains(const tow__gemm *g)
{
    if (tow__gemm_of_bf16(g)) return tow__gemm_bf16_gains(g);
    int64_t k = g->kc > 0 ? g->kc : tow__gemm_kc(g->k);
    int64_t rows = g->rows > 0 ? g->rows : g->m, columns = g->columns > 0 ? g->columns : g->n;
    return rows >= LEAST && columns >= LEAST && k >= LEAST && rows * columns >= LEAST_WORK / k;
}

static bool applicable(const tow__gemm *g)
{
    if (!g->choice || !g->choice->matrix_unit) return false;
    if (tow__gemm_of_bf16(g)) return tow__gemm_bf16_fits(g);
    return g->dtype == TOW_F32 && g->a_row >= 0 && g->a_column >= 0 && g->b_row >= 0 && g->b_column >= 0;
}

static void run(const tow__gemm *g)
{
    if (tow__gemm_of_bf16(g))
        tow__gemm_bf16_amx.run(g);
    else
        tow__gemm_amx_run(g);
}
static size_t scratch(const tow__gemm *g)
{
    return tow__gemm_of_bf16(g) ? tow__gemm_bf16_scratch(g) : tow__gemm_amx_scratch(g);
}
static size_t packed(const tow__gemm *g)
{
    return tow__gemm_of_bf16(g) ? tow__gemm_bf16_packed(g) : tow__gemm_amx_packed(g);
}
static void pack(const tow__gemm *g)
{
    if (tow__gemm_of_bf16(g))
        tow__gemm_bf16_amx.pack(g);
    else
        tow__gemm_amx_pack(g);
}
#else
bool tow__gemm_amx_usable(void) { return false; }
static bool gains(const tow__gemm *g)
{
    (void)g;
    return false;
}
static bool applicable(const tow__gemm *g)
{
    (void)g;
    return false;
}
static void run(const tow__gemm *g) { (void)g; }
static size_t scratch(const tow__gemm *g)
{
    (void)g;
    return 0;
}
static size_t packed(const tow__gemm *g) { return scratch(g); }
static void pack(const tow__gemm *g) { (void)g; }
static const char *describe(void) { return "matrix unit"; }
#endif

const tow__gemm_engine tow__gemm_amx = {"amx",
                                        "matrix unit",
                                        applicable,
                                        run,
                                        describe,
                                        true,
                                        true,
                                        .in_parts = true,
                                        .halves = true,
                                        .gains = gains,
                                        .scratch = scratch,
                                        .packed = packed,
                                        .pack = pack};
