/* AVX512_BF16 of gemm_bf16.h in plain C, slowly, so that tests see on all machines what the loops give. Sums are
 * those of VDPBF16PS in Intel's Software Developer's Manual. */
#include <math.h>
#include <string.h>

#include "src/kernels/halves.h"
#include "src/kernels/products/gemm_bf16.h"

#include "src/kernels/products/gemm_bf16_plain.inc"

#define RUN run_emulated
#include "src/kernels/products/gemm_bf16.inc"

static void begin_unit(void) {}
static void end_unit(void) {}

/* sum + the products of a group of 32 elements of k */
static f32 add_group(f32 sum, const uint16_t *a, const uint16_t *b)
{
    for (int64_t p = 0; p < GROUP; p += 2, b += 2 * PANEL) {
        sum = multiply_add(sum, a[p + 1], b[1]);
        sum = multiply_add(sum, a[p], b[0]);
    }
    return sum;
}

static void multiply(const uint16_t *a, int64_t pitch, int64_t rows, const uint16_t *b, int64_t columns, int64_t groups,
                     bool begins, f32 *sums, delivery *before)
{
    deliver(before, STRIP);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            f32 *sum = sums + i * PANEL + j;
            if (begins) *sum = 0;
            for (int64_t g = 0; g < groups; g++)
                *sum = add_group(*sum, a + i * pitch + g * GROUP, b + g * GROUP * PANEL + 2 * j);
        }
    }
}

static bool everywhere(void) { return true; }

const tow__gemm_bf16_version tow__gemm_bf16_dots_emulated = {"vectors of bf16, emulated", everywhere, run_emulated};
