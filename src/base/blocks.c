/* Quantizing as the gguf package of llama.cpp does it (gguf-py/gguf/quants.py), and back. */
#include "src/base/blocks.h"

#include "src/base/clones.h"

enum {
    N = TOW__BLOCK_NUMBERS
};

/* ---- numbers to blocks ------------------------------------------------------------------------------------------- */

/* The place of the number of largest magnitude, the first of those that are as large; -1: one is infinite or NaN. */
static int largest_at(const f32 x[N])
{
    int at = 0;
    for (int j = 0; j < N; j++) {
        if (!isfinite(x[j])) return -1;
        if (fabsf(x[j]) > fabsf(x[at])) at = j;
    }
    return at;
}

static f16 to_f16(f32 x) { return tow__bits_to_f16(tow__bits_of_f32(x)); }

/* 1 / scale, or 0 for a scale that is 0 or so small that f16 has it as 0. */
static f32 factor_of(f32 scale)
{
    const f32 factor = scale == 0 ? 0 : 1 / scale;
    return isfinite(factor) ? factor : 0;
}

TOW__CLONES static void quantize_q8_0(int64_t n, const f32 *numbers, tow__q8_0 *blocks)
{
    for (int64_t i = 0; i < n; i++) {
        const f32 *x = numbers + i * N;
        const int at = largest_at(x);
        const f32 scale = at < 0 ? 0 : fabsf(x[at]) / 127, factor = factor_of(scale);
        blocks[i].scale = at < 0 ? TOW__NAN_SCALE : to_f16(scale);
        for (int j = 0; j < N; j++) {
            const f64 y = (f64)((at < 0 ? 0 : x[j]) * factor);
            blocks[i].q[j] = (i8)(i32)(y + copysign(0.5, y));
        }
    }
}

/* 0 to 15. Product and sum are rounded, each once, as in the gguf package; llama.cpp's compiler may fuse both. */
static inline u8 quantize_q4(f32 x, f32 factor)
{
    const f32 product = x * factor, y = product + 8.5F;
    return (u8)(i32)(y >= 15 ? 15 : y);
}

TOW__CLONES static void quantize_q4_0(int64_t n, const f32 *numbers, tow__q4_0 *blocks)
{
    for (int64_t i = 0; i < n; i++) {
        const f32 *x = numbers + i * N;
        const int at = largest_at(x);
        const f32 scale = at < 0 ? 0 : x[at] / -8, factor = factor_of(scale);
        blocks[i].scale = at < 0 ? TOW__NAN_SCALE : to_f16(scale);
        for (int j = 0; j < N / 2; j++) {
            const u8 low = quantize_q4(at < 0 ? 0 : x[j], factor),
                     high = quantize_q4(at < 0 ? 0 : x[N / 2 + j], factor);
            blocks[i].q[j] = (u8)(low | high << 4);
        }
    }
}

void tow__quantize_blocks(tow_dtype dtype, int64_t n, const f32 *numbers, void *blocks)
{
    if (dtype == TOW_Q8_0)
        quantize_q8_0(n, numbers, blocks);
    else
        quantize_q4_0(n, numbers, blocks);
}

/* ---- blocks to numbers ------------------------------------------------------------------------------------------- */

TOW__CLONES static void dequantize_q8_0(int64_t n, const tow__q8_0 *blocks, f32 *numbers)
{
    for (int64_t i = 0; i < n; i++, numbers += N) {
        const f32 scale = tow__from_f16(blocks[i].scale);
        for (int j = 0; j < N; j++) numbers[j] = scale * (f32)blocks[i].q[j];
    }
}

TOW__CLONES static void dequantize_q4_0(int64_t n, const tow__q4_0 *blocks, f32 *numbers)
{
    for (int64_t i = 0; i < n; i++, numbers += N) {
        const f32 scale = tow__from_f16(blocks[i].scale);
        for (int j = 0; j < N / 2; j++) {
            numbers[j] = scale * (f32)((blocks[i].q[j] & 15) - 8);
            numbers[N / 2 + j] = scale * (f32)((blocks[i].q[j] >> 4) - 8);
        }
    }
}

void tow__dequantize_blocks(tow_dtype dtype, int64_t n, const void *blocks, f32 *numbers)
{
    if (dtype == TOW_Q8_0)
        dequantize_q8_0(n, blocks, numbers);
    else
        dequantize_q4_0(n, blocks, numbers);
}

f32 tow__block_number(tow_dtype dtype, const void *blocks, int64_t index)
{
    f32 numbers[N];
    const int64_t block = index / N;
    tow__dequantize_blocks(dtype, 1, (const char *)blocks + block * (int64_t)tow_dtype_size(dtype), numbers);
    return numbers[index % N];
}

/* ---- columns of matrices ----------------------------------------------------------------------------------------- */

enum {
    COLUMNS = 16 /* that are turned at a time */
};

void tow__quantize_columns(tow_dtype dtype, int64_t columns, int64_t n, const f32 *matrix, void *blocks)
{
    const int64_t size = (int64_t)tow_dtype_size(dtype);
    f32 turned[COLUMNS][N];
    for (int64_t first = 0; first < columns; first += COLUMNS) {
        const int64_t count = columns - first < COLUMNS ? columns - first : COLUMNS;
        for (int64_t b = 0; b < n; b++) {
            for (int64_t j = 0; j < N; j++)
                for (int64_t c = 0; c < count; c++) turned[c][j] = matrix[(b * N + j) * columns + first + c];
            for (int64_t c = 0; c < count; c++)
                tow__quantize_blocks(dtype, 1, turned[c], (char *)blocks + ((first + c) * n + b) * size);
        }
    }
}

void tow__dequantize_columns(tow_dtype dtype, int64_t columns, int64_t n, const void *blocks, f32 *matrix)
{
    const int64_t size = (int64_t)tow_dtype_size(dtype);
    f32 turned[COLUMNS][N];
    for (int64_t first = 0; first < columns; first += COLUMNS) {
        const int64_t count = columns - first < COLUMNS ? columns - first : COLUMNS;
        for (int64_t b = 0; b < n; b++) {
            for (int64_t c = 0; c < count; c++)
                tow__dequantize_blocks(dtype, 1, (const char *)blocks + ((first + c) * n + b) * size, turned[c]);
            for (int64_t j = 0; j < N; j++)
                for (int64_t c = 0; c < count; c++) matrix[(b * N + j) * columns + first + c] = turned[c][j];
        }
    }
}
