/* quantized_dot for AVX2 with AVX-VNNI. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avxvnni")
#endif
#include <immintrin.h>

#include "src/kernels/quantized/quantized_dot.h"

TOW__INLINE __m256i dot(__m256i sums, __m256i u, __m256i x) { return _mm256_dpbusd_avx_epi32(sums, u, x); }

#define VNNI
#define NAME(name) name##_avx_vnni
#include "src/kernels/quantized/quantized_dot.inc"

static bool runs(void)
{
    return tow__has_avx2() && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avxvnni");
}

const tow__quantized_engine tow__quantized_avx_vnni = {.name = "avxvnni", .runs = runs, LOOPS};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
