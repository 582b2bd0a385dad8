/* The matrix unit of gemm_bf16.h in plain C, slowly, so that tests see on all machines what the loops give. Sums are
 * those of TDPBF16PS in Intel's Software Developer's Manual. */
#include <math.h>
#include <string.h>

#include "src/kernels/halves.h"
#include "src/kernels/products/gemm_bf16.h"

#include "src/kernels/products/gemm_bf16_plain.inc"

static f32 add_group(f32 sum, const uint16_t *a, const uint16_t *b)
{
    f32 even = 0, odd = 0;
    for (int64_t p = 0; p < GROUP; p += 2, b += 2 * PANEL) {
        even = multiply_add(even, a[p], b[0]);
        odd = multiply_add(odd, a[p + 1], b[1]);
    }
    return flushed(sum + flushed(even + odd));
}

const tow__gemm_bf16_version tow__gemm_bf16_amx_emulated = {"matrix unit on bf16, emulated", everywhere, run_emulated,
                                                            pack_emulated};
