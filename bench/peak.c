/* The peak of fused multiply-adds, best and sustained, and the rate of the calibration loop that bench/compare runs
 * before each command: multiply-adds from and to the first-level cache.
 *
 *     peak */
#include "bench.h"

#define SECONDS 0.1

int main(int argc, char **argv)
{
    bench b;
    bench_sustained cached = {0};
    bench_start(&b, "peak", argc, argv, (const bench_option[]){{0}});
    bench_sustained_add(&b.sustained, (int)b.threads, bench_best_isa(), false, SECONDS);
    bench_sustained_add(&cached, (int)b.threads, bench_best_isa(), true, SECONDS);
    if (cached.seconds > 0) {
        bench_set(&b, "calibration_gflops", json_real(cached.gflop / cached.seconds));
        bench_set(&b, "calibration_best_gflops", json_real(cached.best));
    }
    return bench_finish(&b, 0);
}
