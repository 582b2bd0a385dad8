/* What the machine can do at most, measured: the figures that benchmarks are held against. */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include <stddef.h>

/* Vector instruction sets that a probe or a kernel can be held to. */
typedef enum bench_isa {
    BENCH_PLAIN, /* what the compiler makes of plain C for any CPU of this architecture */
    BENCH_AVX2,  /* with FMA */
    BENCH_AVX512
} bench_isa;

/* The widest set of this CPU, and its name: "plain C", "AVX2", "AVX-512". */
bench_isa bench_best_isa(void);
const char *bench_isa_name(bench_isa isa);

/* GFLOP/s of independent fused multiply-adds on registers (two flops each), all threads at once. Plain C multiplies and
 * adds, as it may have no FMA. The best of several bursts of a few milliseconds; 0 if threads cannot be made. */
double bench_peak_gflops(int threads, bench_isa isa);

/* Gbyte/s that all threads together move when they copy (bytes read plus bytes written) or only read arrays of `bytes`
 * (a multiple of 64) per thread; the best of several passes, 0 if there is no memory. */
double bench_copy_bandwidth(int threads, size_t bytes);
double bench_read_bandwidth(int threads, size_t bytes);

#endif
