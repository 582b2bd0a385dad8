/* quantized_dot: rows x [K] times a weight [N, K / 32] in blocks of few bits, weight number n, k being d[n, b] w[n, k]
 * for k in block b (src/base/blocks.h). Every engine gives the numbers of this definition, bit by bit:
 *
 *   of each block b of x   largest = the greatest |x[k]|,  factor = 127 / largest
 *                          scale[b] = largest / 127,  q[k] = the integer nearest to x[k] factor, ties to even
 *                          largest is infinite or NaN: scale NaN, q 0; factor is infinite: both are 0
 *   y[n] = 0, then for b = 0, 1, ...:
 *          y[n] = fma(d[n, b] scale[b], sum over the block of w[n, k] q[k], y[n])
 *
 * all in f32, each operation rounded to nearest. Sums of a block are integers below 2^20, so engines may add in any
 * order there. */
#ifndef TOW_SRC_QUANTIZED_DOT_H
#define TOW_SRC_QUANTIZED_DOT_H

#include "src/base/blocks.h"
#include "src/kernels/tables.h"

/* 32 numbers as integers; returns their scale. */
static inline f32 tow__quantize_activations(const f32 *x, i8 *q)
{
    u32 most = 0; /* magnitudes as their bits: NaN is above infinity */
    for (int j = 0; j < TOW__BLOCK_NUMBERS; j++) {
        const u32 bits = tow__bits_of_f32(x[j]) & 0x7FFFFFFF;
        most = bits > most ? bits : most;
    }
    const f32 largest = tow__f32_of_bits(most), factor = 127 / largest;
    const bool finite = most < 0x7F800000, counts = finite && isfinite(factor);
    for (int j = 0; j < TOW__BLOCK_NUMBERS; j++) q[j] = (i8)(counts ? (i32)nearbyintf(x[j] * factor) : 0);
    return counts ? largest / 127 : finite ? 0 : NAN;
}

#endif
