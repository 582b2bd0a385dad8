/* The limits of the machine, measured: the figures that benchmarks are held against. */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include <stdbool.h>
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

/* Such multiply-adds over several stretches of time, in whatever state the machine is: gflop / seconds is the peak that
 * the threads sustain. The rates of the threads are added up, as if none waited for another. Starts as {0}. */
typedef struct bench_sustained {
    double gflop, seconds;
    double best; /* GFLOP/s of the best burst of about a millisecond */
} bench_sustained;

/* Adds a stretch of about so many seconds, at least two bursts; nothing if threads cannot be made. With `cached` each
 * multiply-add reads from and writes to the first-level cache: where a neighbor runs on the same cores as a second
 * hardware thread, that is as slow as most programs are, while arithmetic on registers hardly notices. */
void bench_sustained_add(bench_sustained *sum, int threads, bench_isa isa, bool cached, double seconds);

/* Gbyte/s that all threads together move when they copy (bytes read plus bytes written) or only read arrays of `bytes`
 * (a multiple of 64) per thread; the best of several passes, 0 if there is no memory. */
double bench_copy_bandwidth(int threads, size_t bytes);
double bench_read_bandwidth(int threads, size_t bytes);

#endif
