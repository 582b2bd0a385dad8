/* The loops of quantized_dot for VNNI on processors with AVX2: its instruction VPDPBUSD is computed by others, as
 * Intel's Software Developer's Manual says, so that tests see what the loops give. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#include <immintrin.h>

#include "src/kernels/quantized/quantized_dot.h"

/* sums + the products of bytes 4 i to 4 i + 3, of which none is larger than 255 * 128, in 32 bits. */
TOW__INLINE __m256i dot(__m256i sums, __m256i u, __m256i x)
{
    for (int shift = 0; shift < 32; shift += 8) {
        const __m256i factor = _mm256_and_si256(_mm256_srli_epi32(u, shift), _mm256_set1_epi32(255));
        const __m256i number = _mm256_srai_epi32(_mm256_slli_epi32(x, 24 - shift), 24);
        sums = _mm256_add_epi32(sums, _mm256_mullo_epi32(factor, number));
    }
    return sums;
}

#define VNNI
#define NAME(name) name##_vnni_emulated
#include "src/kernels/quantized/quantized_dot.inc"

static bool runs(void) { return tow__has_avx2(); } /* such processors convert f16, too */

const tow__quantized_engine tow__quantized_vnni_emulated = {.name = "emulated vnni", .runs = runs, LOOPS};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
