/* Tuning of the own kernel (gemm_tuning.h): the rule, and the timings that it reads. */
#include "src/kernels/products/gemm_tuning.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "src/base/arithmetic.h"

enum {
    SOME_PANELS = 8,
    FEW_PANELS = 4, /* of C from which packing A gains where strides cost much */
    ROWS = 192,     /* of the products that are timed */
    FEW_ROWS = 64,
    PANELS = 12,   /* of C, which the first product has: some hundred columns */
    COLUMNS = 512, /* of the second one */
    OPERANDS = 4,  /* B of the second one, in turn: they do not stay in L2 */
    ROUNDS = 4
};
#define TIE  1.01
#define GAIN 0.98 /* of the time, at most, for what is not the rule without timings */

tow__gemm_tuning tow__gemm_tune(const tow__machine *machine, const tow__gemm_timings *t)
{
    tow__gemm_tuning tuning = {.packed_panels = 0};
    /* A block of A is used by one panel after the other, and shares L2 with panels and rows of C. */
    if (machine->l2.bytes > 0)
        tuning.block = tow__max(48, machine->l2.bytes / 16 * 11 / (TOW__GEMM_KC * (int64_t)sizeof(f32)) / 6 * 6);
    /* On a tie packing is preferred for C with some more panels: it is what depends least on other users of the
     * caches. */
    if (t->direct > 0 && t->packed < TIE * t->direct)
        tuning.packed_panels = t->packed < GAIN * t->direct ? FEW_PANELS : SOME_PANELS;
    if (t->to_l2 > 0 && t->to_l1 < GAIN * t->to_l2) tuning.fetch = TOW__FETCH_TO_L1;
    return tuning;
}

/* ---- timings ----------------------------------------------------------------------------------------------------- */

static tow__gemm_timings measured;
static tow__gemm_tuning untimed, timed;
static atomic_bool is_timed;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* The time of g with a tuning, if it is less than *best. */
static void time_product(tow__gemm *g, const tow__gemm_tuning *tuning, double *best)
{
    const tow__gemm_choice choice = {.tuning = tuning};
    g->choice = &choice;
    const double start = now();
    tow__gemm_own.run(g);
    const double t = now() - start;
    if (*best == 0 || t < *best) *best = t;
    g->choice = NULL;
}

static tow__gemm product_of(int64_t m, int64_t n, f32 *memory)
{
    tow__gemm g = {.dtype = TOW_F32, .threads = 1, .m = m, .n = n, .k = TOW__GEMM_KC};
    g.a_row = TOW__GEMM_KC, g.a_column = g.b_column = 1;
    g.b_row = g.ldc = n;
    g.a = memory;
    g.b = memory + m * g.k;
    return g;
}

static void time_packing(f32 *memory, void *scratch)
{
    const int64_t panel = tow__machine_here()->vector_bytes / (int64_t)sizeof(f32) * 2;
    const tow__gemm_tuning direct = {.packed_panels = 2 * PANELS}, packed = {.packed_panels = FEW_PANELS};
    tow__gemm g = product_of(ROWS, panel * PANELS, memory);
    g.c = memory + g.m * g.k + g.k * g.n;
    g.scratch = scratch;
    for (int i = 0; i < ROUNDS; i++) {
        time_product(&g, &direct, &measured.direct);
        time_product(&g, &packed, &measured.packed);
    }
}

static void time_fetching(f32 *memory)
{
    const tow__gemm_tuning to_l2 = {.fetch = TOW__FETCH_TO_L2}, to_l1 = {.fetch = TOW__FETCH_TO_L1};
    tow__gemm g = product_of(FEW_ROWS, COLUMNS, memory);
    const f32 *b = g.b;
    g.c = memory + g.m * g.k + OPERANDS * g.k * g.n;
    for (int i = 0; i < 2 * ROUNDS; i++) {
        g.b = b + i % OPERANDS * g.k * g.n;
        time_product(&g, i % 2 ? &to_l1 : &to_l2, i % 2 ? &measured.to_l1 : &measured.to_l2);
    }
}

static void measure(void)
{
    const int64_t most = FEW_ROWS * TOW__GEMM_KC + OPERANDS * TOW__GEMM_KC * COLUMNS + FEW_ROWS * COLUMNS;
    const size_t scratch = (size_t)((ROWS + 16) * TOW__GEMM_KC) * sizeof(f32);
    const size_t bytes = (size_t)most * sizeof(f32) + scratch;
    if (tow__machine_here()->vector_bytes > 0) {
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory != MAP_FAILED) {
            TOW__ARITHMETIC(false);
            memset(memory, 0, bytes);
            time_packing((f32 *)(void *)(memory + scratch), memory);
            time_fetching((f32 *)(void *)(memory + scratch));
            munmap(memory, bytes);
        }
    }
    timed = tow__gemm_tune(tow__machine_here(), &measured);
    atomic_store_explicit(&is_timed, true, memory_order_release);
}

void tow__gemm_time(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, measure);
}

tow__gemm_timings tow__gemm_timings_here(void)
{
    return atomic_load_explicit(&is_timed, memory_order_acquire) ? measured : (tow__gemm_timings){.direct = 0};
}

const tow__gemm_tuning *tow__gemm_tuning_at_most(const tow__gemm *g)
{
    static const tow__gemm_tuning most = {.packed_panels = FEW_PANELS};
    if (g->choice && g->choice->tuning) return g->choice->tuning;
    return g->n * g->k < TOW__TUNED ? &untimed : &most;
}

double tow__gemm_rate(void)
{
    const tow__gemm_timings t = tow__gemm_timings_here();
    const double columns = (double)tow__machine_here()->vector_bytes / sizeof(f32) * 2 * PANELS;
    const double best = t.packed > 0 && t.packed < t.direct ? t.packed : t.direct;
    return best > 0 ? 1e9 * 2 * ROWS * columns * TOW__GEMM_KC / best : 0;
}

const tow__gemm_tuning *tow__gemm_tuning_of(const tow__gemm *g)
{
    if (g->choice && g->choice->tuning) return g->choice->tuning;
    if (g->n * g->k < TOW__TUNED) return &untimed;
    return atomic_load_explicit(&is_timed, memory_order_acquire) ? &timed : &untimed;
}
