/* Quantizing to Q8_0 and Q4_0 as the gguf package of llama.cpp does it (gguf-py/gguf/quants.py), to Q4_K and Q6_K by
 * the ranges of their groups, and back. */
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

TOW__CLONES static void quantize_q8_0(int64_t n, const f32 *numbers, void *to)
{
    tow__q8_0 *blocks = to;
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

TOW__CLONES static void quantize_q4_0(int64_t n, const f32 *numbers, void *to)
{
    tow__q4_0 *blocks = to;
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

enum {
    GROUPS = TOW__MOST_BLOCK_NUMBERS / N, /* of 32 numbers in a block of Q4_K and Q6_K */
    HALVES = 2 * GROUPS                   /* of 16 numbers */
};

static bool all_finite(const f32 x[TOW__MOST_BLOCK_NUMBERS])
{
    bool finite = true;
    for (int j = 0; j < TOW__MOST_BLOCK_NUMBERS; j++) finite = finite && isfinite(x[j]);
    return finite;
}

/* The nearest integer from `least` to `most`; 0 for a NaN. */
static inline int nearest(f32 x, int least, int most)
{
    if (x >= (f32)most) return most;
    if (x <= (f32)least) return least;
    return x == x ? (int)(x < 0 ? x - 0.5F : x + 0.5F) : 0;
}

static inline f32 quotient(f32 x, f32 y) { return y == 0 ? 0 : x / y; }

static void put_q4_k_levels(tow__q4_k *block, int group, int scale, int minimum)
{
    const int i = group & 3;
    if (group < 4) {
        block->levels[i] = (u8)(block->levels[i] | scale);
        block->levels[4 + i] = (u8)(block->levels[4 + i] | minimum);
    } else {
        block->levels[8 + i] = (u8)((scale & 15) | (minimum & 15) << 4);
        block->levels[i] = (u8)(block->levels[i] | scale >> 4 << 6);
        block->levels[4 + i] = (u8)(block->levels[4 + i] | minimum >> 4 << 6);
    }
}

/* Group g is from -minimum[g], 0 or below it, to that and 15 scale[g]. */
static void find_ranges(const f32 *x, f32 scale[GROUPS], f32 minimum[GROUPS])
{
    for (int g = 0; g < GROUPS; g++) {
        f32 least = 0, most = x[N * g];
        for (int j = 0; j < N; j++) {
            least = fminf(least, x[N * g + j]);
            most = fmaxf(most, x[N * g + j]);
        }
        scale[g] = (most - least) / 15;
        minimum[g] = -least;
    }
}

static f32 largest_of(int n, const f32 *x)
{
    f32 largest = 0;
    for (int i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
    return largest;
}

static void quantize_block_q4_k(const f32 *x, tow__q4_k *block)
{
    f32 scale[GROUPS], minimum[GROUPS];
    find_ranges(x, scale, minimum);
    block->scale = to_f16(largest_of(GROUPS, scale) / 63);
    block->minimum = to_f16(largest_of(GROUPS, minimum) / 63);
    const f32 d = tow__from_f16(block->scale), m = tow__from_f16(block->minimum);
    for (int g = 0; g < GROUPS; g++) {
        const int s = nearest(quotient(scale[g], d), 0, 63), t = nearest(quotient(minimum[g], m), 0, 63);
        put_q4_k_levels(block, g, s, t);
        for (int j = 0; j < N; j++) {
            const int q = nearest(quotient(x[N * g + j] + m * (f32)t, d * (f32)s), 0, 15);
            block->q[g / 2 * N + j] = (u8)(block->q[g / 2 * N + j] | q << (g % 2 * 4));
        }
    }
}

static void quantize_q4_k(int64_t n, const f32 *numbers, void *to)
{
    tow__q4_k *blocks = to;
    for (int64_t i = 0; i < n; i++, numbers += TOW__MOST_BLOCK_NUMBERS) {
        blocks[i] = (tow__q4_k){.scale = TOW__NAN_SCALE};
        if (all_finite(numbers)) quantize_block_q4_k(numbers, &blocks[i]);
    }
}

static void put_q6_k(tow__q6_k *block, int index, int q)
{
    const int half = index / 128, part = index / N % 4, j = index % N;
    u8 *low = &block->low[64 * half + part % 2 * N + j], *high = &block->high[N * half + j];
    *low = (u8)(*low | (q & 15) << (part / 2 * 4));
    *high = (u8)(*high | q >> 4 << (2 * part));
}

/* The number of largest magnitude in a group becomes -32 scales. */
static void quantize_block_q6_k(const f32 *x, tow__q6_k *block)
{
    f32 scale[HALVES];
    for (int g = 0; g < HALVES; g++) {
        f32 largest = 0;
        for (int j = 16 * g; j < 16 * g + 16; j++) largest = fabsf(x[j]) > fabsf(largest) ? x[j] : largest;
        scale[g] = largest / -32;
    }
    block->scale = to_f16(largest_of(HALVES, scale) / 127);
    const f32 d = tow__from_f16(block->scale);
    for (int g = 0; g < HALVES; g++) {
        block->levels[g] = (i8)nearest(quotient(scale[g], d), -127, 127);
        for (int j = 16 * g; j < 16 * g + 16; j++)
            put_q6_k(block, j, 32 + nearest(quotient(x[j], d * (f32)block->levels[g]), -32, 31));
    }
}

static void quantize_q6_k(int64_t n, const f32 *numbers, void *to)
{
    tow__q6_k *blocks = to;
    for (int64_t i = 0; i < n; i++, numbers += TOW__MOST_BLOCK_NUMBERS) {
        blocks[i] = (tow__q6_k){.scale = TOW__NAN_SCALE};
        if (all_finite(numbers)) quantize_block_q6_k(numbers, &blocks[i]);
    }
}

/* ---- blocks to numbers ------------------------------------------------------------------------------------------- */

TOW__CLONES static void dequantize_q8_0(int64_t n, const void *from, f32 *numbers)
{
    const tow__q8_0 *blocks = from;
    for (int64_t i = 0; i < n; i++, numbers += N) {
        const f32 scale = tow__from_f16(blocks[i].scale);
        for (int j = 0; j < N; j++) numbers[j] = scale * (f32)blocks[i].q[j];
    }
}

TOW__CLONES static void dequantize_q4_0(int64_t n, const void *from, f32 *numbers)
{
    const tow__q4_0 *blocks = from;
    for (int64_t i = 0; i < n; i++, numbers += N) {
        const f32 scale = tow__from_f16(blocks[i].scale);
        for (int j = 0; j < N / 2; j++) {
            numbers[j] = scale * (f32)((blocks[i].q[j] & 15) - 8);
            numbers[N / 2 + j] = scale * (f32)((blocks[i].q[j] >> 4) - 8);
        }
    }
}

TOW__CLONES static void dequantize_q4_k(int64_t n, const void *from, f32 *numbers)
{
    const tow__q4_k *block = from;
    for (int64_t i = 0; i < n; i++, block++) {
        const f32 d = tow__from_f16(block->scale), m = tow__from_f16(block->minimum);
        for (int g = 0; g < GROUPS; g++, numbers += N) {
            int s, t;
            tow__q4_k_levels_of(block, g, &s, &t);
            const f32 scale = d * (f32)s, minimum = m * (f32)t;
            for (int j = 0; j < N; j++) numbers[j] = scale * (f32)tow__q4_k_at(block, g, j) - minimum;
        }
    }
}

TOW__CLONES static void dequantize_q6_k(int64_t n, const void *from, f32 *numbers)
{
    const tow__q6_k *block = from;
    for (int64_t i = 0; i < n; i++, block++) {
        const f32 d = tow__from_f16(block->scale);
        for (int g = 0; g < GROUPS; g++, numbers += N) {
            const f32 first = d * (f32)block->levels[2 * g], second = d * (f32)block->levels[2 * g + 1];
            for (int j = 0; j < N / 2; j++) numbers[j] = first * (f32)(tow__q6_k_at(block, g, j) - 32);
            for (int j = N / 2; j < N; j++) numbers[j] = second * (f32)(tow__q6_k_at(block, g, j) - 32);
        }
    }
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

const tow__block_form *tow__block_form_of(tow_dtype dtype)
{
    static const tow__block_form forms[TOW__BLOCK_DTYPES] = {
        [TOW_Q8_0 - TOW_Q8_0] = {N, offsetof(tow__q8_0, scale), quantize_q8_0, dequantize_q8_0},
        [TOW_Q4_0 - TOW_Q8_0] = {N, offsetof(tow__q4_0, scale), quantize_q4_0, dequantize_q4_0},
        [TOW_Q4_K - TOW_Q8_0] = {TOW__MOST_BLOCK_NUMBERS, offsetof(tow__q4_k, scale), quantize_q4_k, dequantize_q4_k},
        [TOW_Q6_K - TOW_Q8_0] = {TOW__MOST_BLOCK_NUMBERS, offsetof(tow__q6_k, scale), quantize_q6_k, dequantize_q6_k},
    };
    return &forms[dtype - TOW_Q8_0];
}

void tow__quantize_blocks(tow_dtype dtype, int64_t n, const f32 *numbers, void *blocks)
{
    tow__block_form_of(dtype)->quantize(n, numbers, blocks);
}

void tow__dequantize_blocks(tow_dtype dtype, int64_t n, const void *blocks, f32 *numbers)
{
    tow__block_form_of(dtype)->dequantize(n, blocks, numbers);
}

f32 tow__block_number(tow_dtype dtype, const void *blocks, int64_t index)
{
    f32 numbers[TOW__MOST_BLOCK_NUMBERS];
    const int64_t held = tow_dtype_numbers(dtype), block = index / held;
    tow__dequantize_blocks(dtype, 1, (const char *)blocks + block * (int64_t)tow_dtype_size(dtype), numbers);
    return numbers[index % held];
}

/* ---- columns of matrices ----------------------------------------------------------------------------------------- */

enum {
    COLUMNS = 16 /* that are turned at a time */
};

void tow__quantize_columns(tow_dtype dtype, int64_t columns, int64_t n, const f32 *matrix, void *blocks)
{
    const int64_t size = (int64_t)tow_dtype_size(dtype);
    const int64_t held = tow_dtype_numbers(dtype);
    f32 turned[COLUMNS][TOW__MOST_BLOCK_NUMBERS];
    for (int64_t first = 0; first < columns; first += COLUMNS) {
        const int64_t count = columns - first < COLUMNS ? columns - first : COLUMNS;
        for (int64_t b = 0; b < n; b++) {
            for (int64_t j = 0; j < held; j++)
                for (int64_t c = 0; c < count; c++) turned[c][j] = matrix[(b * held + j) * columns + first + c];
            for (int64_t c = 0; c < count; c++)
                tow__quantize_blocks(dtype, 1, turned[c], (char *)blocks + ((first + c) * n + b) * size);
        }
    }
}

void tow__dequantize_columns(tow_dtype dtype, int64_t columns, int64_t n, const void *blocks, f32 *matrix)
{
    const int64_t size = (int64_t)tow_dtype_size(dtype);
    const int64_t held = tow_dtype_numbers(dtype);
    f32 turned[COLUMNS][TOW__MOST_BLOCK_NUMBERS];
    for (int64_t first = 0; first < columns; first += COLUMNS) {
        const int64_t count = columns - first < COLUMNS ? columns - first : COLUMNS;
        for (int64_t b = 0; b < n; b++) {
            for (int64_t c = 0; c < count; c++)
                tow__dequantize_blocks(dtype, 1, (const char *)blocks + ((first + c) * n + b) * size, turned[c]);
            for (int64_t j = 0; j < held; j++)
                for (int64_t c = 0; c < count; c++) matrix[(b * held + j) * columns + first + c] = turned[c][j];
        }
    }
}
