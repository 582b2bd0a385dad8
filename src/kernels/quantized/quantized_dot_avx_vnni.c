/* quantized_dot for AVX2 with AVX-VNNI. */
#include "src/kernels/quantized/quantized_dot.h"

#if defined(TOW__HAVE_AVX_VNNI)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avxvnni")
#endif
#include <cpuid.h>
#include <immintrin.h>

TOW__INLINE __m256i dot(__m256i sums, __m256i u, __m256i x) { return _mm256_dpbusd_avx_epi32(sums, u, x); }

#define VNNI
#define NAME(name) name##_avx_vnni
#include "src/kernels/quantized/quantized_dot.inc"

/* Bit 4 of EAX of leaf 7, subleaf 1: compilers do not all know a name for it. */
static bool runs(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return tow__has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1) != 0;
}

const tow__quantized_engine tow__quantized_avx_vnni = {.name = "avxvnni", .runs = runs, LOOPS};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
