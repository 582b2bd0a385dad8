/* The peak of fused multiply-adds alone: the calibration loop that bench/compare runs before each command.
 *
 *     peak */
#include "bench.h"

int main(int argc, char **argv)
{
    bench b;
    bench_start(&b, "peak", argc, argv, (const bench_option[]){{0}});
    return bench_finish(&b, 0);
}
