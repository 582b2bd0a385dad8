/* Operands that are stored in 16 bits or in blocks of numbers (src/base/blocks.h), decoded to f32. Each number is
 * exact, so attention has the bits that it has on the decoded arrays. Results of 16 bits are those of f32, rounded
 * once. */
#include "src/base/blocks.h"
#include "src/base/clones.h"
#include "src/kernels/attention/attention.h"
#include "src/kernels/halves.h"

TOW__CLONES static void decode_bf16(int64_t n, const bf16 *from, f32 *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = tow__from_bf16(from[i]);
}

TOW__CLONES static void decode_f16(int64_t n, const f16 *from, f32 *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = tow__from_f16(from[i]);
}

/* n elements that follow one another. */
static void decode(tow_dtype dtype, int64_t n, const void *from, f32 *to)
{
    if (dtype == TOW_BF16)
        decode_bf16(n, from, to);
    else if (dtype == TOW_F16)
        decode_f16(n, from, to);
    else
        tow__dequantize_blocks(dtype, n, from, to);
}

void tow__heads_decode(const tow__heads *x, int64_t b, int64_t head, int64_t first, int64_t rows, f32 *to, int64_t ld,
                       int64_t end)
{
    const int64_t numbers = tow_dtype_numbers(x->dtype), n = x->width / numbers;
    const int64_t size = (int64_t)tow__element_bytes(x->dtype);
    for (int64_t i = 0; i < rows; i++, to += ld) {
        const char *row = tow__head_row(x, b, head, first + i);
        if (x->column == 1)
            decode(x->dtype, n, row, to);
        else
            for (int64_t e = 0; e < n; e++) decode(x->dtype, 1, row + e * x->column * size, to + e * numbers);
        for (int64_t d = x->width; d < end; d++) to[d] = 0;
    }
}

TOW__CLONES static void narrow_to_bf16(int64_t n, const f32 *from, bf16 *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = (bf16)(tow__rounded_to_bf16(tow__bits_of_f32(from[i])) >> 16);
}

TOW__CLONES static void narrow_to_f16(int64_t n, const f32 *from, f16 *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = tow__bits_to_f16(tow__bits_of_f32(from[i]));
}

void tow__narrow_row(tow_dtype dtype, int64_t n, const f32 *from, void *to)
{
    if (dtype == TOW_BF16)
        narrow_to_bf16(n, from, to);
    else
        narrow_to_f16(n, from, to);
}
