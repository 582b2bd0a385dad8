/* AVX512_BF16 of gemm_bf16.h in plain C, slowly, so that tests see on all machines what the loops give. Sums are
 * those of VDPBF16PS in Intel's Software Developer's Manual. */
#include <math.h>
#include <string.h>

#include "src/kernels/halves.h"
#include "src/kernels/products/gemm_bf16.h"

#include "src/kernels/products/gemm_bf16_plain.inc"

static f32 add_group(f32 sum, const uint16_t *a, const uint16_t *b)
{
    for (int64_t p = 0; p < GROUP; p += 2, b += 2 * PANEL) {
        sum = multiply_add(sum, a[p + 1], b[1]);
        sum = multiply_add(sum, a[p], b[0]);
    }
    return sum;
}

const tow__gemm_bf16_version tow__gemm_bf16_dots_emulated = {"vectors of bf16, emulated", everywhere, run_emulated,
                                                             pack_emulated};
