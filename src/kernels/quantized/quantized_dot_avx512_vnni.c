/* quantized_dot for AVX-512 with VNNI, in vectors of 256 bits. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512vl,avx512vnni"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avx512f,avx512vl,avx512vnni")
#endif
#include <immintrin.h>

#include "src/kernels/quantized/quantized_dot.h"

TOW__INLINE __m256i dot(__m256i sums, __m256i u, __m256i x) { return _mm256_dpbusd_epi32(sums, u, x); }

#define VNNI
#define NAME(name) name##_avx512_vnni
#include "src/kernels/quantized/quantized_dot.inc"

static bool runs(void) { return tow__has_avx512() && __builtin_cpu_supports("avx512vnni"); }

const tow__quantized_engine tow__quantized_avx512_vnni = {.name = "avx512vnni", .runs = runs, LOOPS};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
