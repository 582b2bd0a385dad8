/* Contests (gemm_trial.h): the first runs of a product go to the own kernel and to an engine with the same bits, two by
 * two in turn. The second run of each two is timed: what the first one leaves in caches, and fetches for the next, is
 * the engine's own doing. The best time of each counts, so neither a cold cache nor another process decides. */
#include <time.h>

#include "src/kernels/products/gemm_trial.h"

enum {
    RUNS = TOW__CONTEST_RUNS
};

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

bool tow__gemm_contest_times(tow__gemm_contest *contest, tow__gemm_times *times)
{
    if (atomic_load_explicit(&contest->ended, memory_order_acquire) < RUNS) return false;
    times->own = (double)atomic_load_explicit(&contest->best[0], memory_order_relaxed);
    times->other = (double)atomic_load_explicit(&contest->best[1], memory_order_relaxed);
    return true;
}

static void run_on(const tow__gemm *g, bool other)
{
    const tow__gemm_engine *engine = other ? g->code->engine : &tow__gemm_own;
    engine->run(g);
    if (g->epilogue && !engine->runs_epilogue) tow__gemm_epilogue_on_all(g);
}

/* Keeps the lesser of both. */
static void keep(atomic_llong *best, long long time)
{
    long long known = atomic_load(best);
    while ((known == 0 || time < known) && !atomic_compare_exchange_weak(best, &known, time)) {}
}

/* A part of the product that is small beside the whole says little. */
static bool counts(const tow__gemm *g) { return 2 * g->m * g->n >= g->code->m * g->code->n; }

void tow__gemm_compete(const tow__gemm *g)
{
    tow__gemm_contest *contest = g->code->contest;
    tow__gemm_times times;
    if (tow__gemm_contest_times(contest, &times)) {
        run_on(g, times.other <= times.own);
        return;
    }
    const int run = counts(g) ? atomic_fetch_add(&contest->begun, 1) : RUNS;
    if (run >= RUNS) { /* other threads are about to decide */
        run_on(g, false);
        return;
    }
    const bool other = run / 2 % 2 == 1;
    const int64_t start = now();
    run_on(g, other);
    const double time = 1e6 * (double)(now() - start) / ((double)g->m * (double)g->n * (double)g->k);
    if (tow__cancelled()) {
        atomic_fetch_sub(&contest->begun, 1); /* it may have ended early */
        return;
    }
    if (run % 2 == 1) keep(&contest->best[other], 1 + (long long)time);
    atomic_fetch_add_explicit(&contest->ended, 1, memory_order_release);
}
