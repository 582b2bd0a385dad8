/* quantized_dot for AVX2 with FMA. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#include <immintrin.h>

#include "src/kernels/quantized/quantized_dot.h"

#define NAME(name) name##_avx2
#include "src/kernels/quantized/quantized_dot.inc"

static bool runs(void) { return tow__has_avx2(); } /* such processors convert f16, too */

const tow__quantized_engine tow__quantized_avx2 = {.name = "avx2", .runs = runs, LOOPS};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
