/* Forms in which files store elements: integers of 16 bits, and the blocks of GGUF, whose layout and arithmetic are
 * those of ggml's reference (ggml-quants.c), f32 rounded after each operation. */
#include "src/base/blocks.h"
#include "src/io/tensors.h"

enum {
    SUPER = TOW__BLOCK_ELEMENTS,         /* elements of Q4_K and Q6_K */
    Q4_K_BYTES = 2 + 2 + 12 + SUPER / 2, /* d, m, scales and minima, q */
    Q6_K_BYTES = SUPER * 3 / 4 + 16 + 2  /* low bits of q, high bits of q, scales, d */
};
_Static_assert((int)Q6_K_BYTES == (int)TOW__BLOCK_BYTES, "the largest block");

static f32 load_half(const unsigned char *bytes) { return tow__from_f16((f16)(bytes[0] | bytes[1] << 8)); }

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

static void decode_i16(const unsigned char *blocks, int64_t count, void *elements)
{
    memcpy(elements, blocks, (size_t)count * 2);
    tow__widen_16_bits(elements, (size_t)count, true);
}

static void decode_u16(const unsigned char *blocks, int64_t count, void *elements)
{
    memcpy(elements, blocks, (size_t)count * 2);
    tow__widen_16_bits(elements, (size_t)count, false);
}

static void decode_q8_0(const unsigned char *blocks, int64_t count, void *elements)
{
    tow__dequantize_blocks(TOW_Q8_0, count, blocks, elements);
}

static void decode_q4_0(const unsigned char *blocks, int64_t count, void *elements)
{
    tow__dequantize_blocks(TOW_Q4_0, count, blocks, elements);
}

/* Scale and minimum of 32 elements, 6 bits each: the first four of both are the low bits of bytes 0 to 7; of the other
 * four, the low bits are in bytes 8 to 11 and the high bits above the first four. */
static void load_scale_and_minimum(const unsigned char *packed, int group, f32 *scale, f32 *minimum)
{
    const int low = group & 3;
    if (group < 4) {
        *scale = (f32)(packed[low] & 63);
        *minimum = (f32)(packed[low + 4] & 63);
    } else {
        *scale = (f32)((packed[low + 8] & 15) | (packed[low] >> 6) << 4);
        *minimum = (f32)((packed[low + 8] >> 4) | (packed[low + 4] >> 6) << 4);
    }
}

static void decode_q4_k(const unsigned char *blocks, int64_t count, void *elements)
{
    f32 *y = elements;
    for (int64_t i = 0; i < count; i++, blocks += Q4_K_BYTES) {
        const f32 d = load_half(blocks), m = load_half(blocks + 2);
        for (int group = 0; group < SUPER / 32; group++, y += 32) {
            const unsigned char *q = blocks + 16 + group / 2 * 32; /* even groups in the low bits */
            f32 scale, minimum;
            load_scale_and_minimum(blocks + 4, group, &scale, &minimum);
            scale *= d;
            minimum *= m;
            for (int j = 0; j < 32; j++) y[j] = scale * (f32)(group % 2 == 0 ? q[j] & 15 : q[j] >> 4) - minimum;
        }
    }
}

static void decode_q6_k(const unsigned char *blocks, int64_t count, void *elements)
{
    f32 *y = elements;
    for (int64_t i = 0; i < count; i++, blocks += Q6_K_BYTES) {
        const unsigned char *low = blocks, *high = blocks + SUPER / 2, *scales = blocks + SUPER * 3 / 4;
        const f32 d = load_half(scales + 16);
        for (int half = 0; half < 2; half++, low += 64, high += 32, scales += 8)
            for (int part = 0; part < 4; part++, y += 32) /* parts 0 and 1 in the low bits of `low` */
                for (int j = 0; j < 32; j++) {
                    const int bits = low[part % 2 * 32 + j] >> part / 2 * 4 & 15, more = high[j] >> 2 * part & 3;
                    y[j] = d * (f32)(i8)scales[2 * part + j / 16] * (f32)((bits | more << 4) - 32);
                }
    }
}

const tow__stored_form tow__stored_forms[TOW__STORED_COUNT] = {
    [TOW__STORED_I16] = {1, 2, decode_i16},
    [TOW__STORED_U16] = {1, 2, decode_u16},
    [TOW__STORED_Q8_0] = {TOW__BLOCK_NUMBERS, sizeof(tow__q8_0), decode_q8_0, TOW_Q8_0},
    [TOW__STORED_Q4_0] = {TOW__BLOCK_NUMBERS, sizeof(tow__q4_0), decode_q4_0, TOW_Q4_0},
    [TOW__STORED_Q4_K] = {SUPER, Q4_K_BYTES, decode_q4_k},
    [TOW__STORED_Q6_K] = {SUPER, Q6_K_BYTES, decode_q6_k},
};
