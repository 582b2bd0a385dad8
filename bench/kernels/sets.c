/* Times the loops of set_loop.c. */
#include "kernels/sets.h"

#include "bench.h"

enum {
    N = 2048,
    PASSES = 50,
    ROUNDS = 40
};

const char *const set_names[SET_FUNCTIONS] = {
#define X(name, function) [SET_##function] = name,
    SET_LIST(X)
#undef X
};

double sets_measure(int f, bench_isa isa)
{
#if defined(__x86_64__)
    static const set_loop loops[] = {set_loop_plain, set_loop_avx2, set_loop_avx512};
#else
    static const set_loop loops[] = {set_loop_plain, NULL, NULL};
#endif
    float x[N], y[N];
    double best = 1e30;
    if (!loops[isa]) return 0;
    for (int i = 0; i < N; i++) x[i] = 0.5f + 3.0f * (float)i / N;
    for (int round = 0; round < ROUNDS; round++) {
        double start = bench_now();
        for (int pass = 0; pass < PASSES; pass++) {
            loops[isa](f, N, x, y);
            __asm__ volatile("" : : "r"(y) : "memory"); /* every pass counts */
        }
        double seconds = bench_now() - start;
        if (seconds < best) best = seconds;
    }
    return (double)N * PASSES / best * 1e-9;
}
