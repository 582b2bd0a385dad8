/* Forms in which files store elements: integers of 16 bits, and the blocks of GGUF, as
 * src/base/blocks.h decodes them. */
#include "src/base/blocks.h"
#include "src/io/tensors.h"

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

#define DECODE(type, dtype)                                                                                            \
    static void decode_##type(const unsigned char *blocks, int64_t count, void *elements)                              \
    {                                                                                                                  \
        tow__dequantize_blocks(dtype, count, blocks, elements);                                                        \
    }
DECODE(q8_0, TOW_Q8_0)
DECODE(q4_0, TOW_Q4_0)
DECODE(q4_k, TOW_Q4_K)
DECODE(q6_k, TOW_Q6_K)

const tow__stored_form tow__stored_forms[TOW__STORED_COUNT] = {
    [TOW__STORED_I16] = {1, 2, decode_i16},
    [TOW__STORED_U16] = {1, 2, decode_u16},
    [TOW__STORED_Q8_0] = {TOW__BLOCK_NUMBERS, sizeof(tow__q8_0), decode_q8_0, TOW_Q8_0},
    [TOW__STORED_Q4_0] = {TOW__BLOCK_NUMBERS, sizeof(tow__q4_0), decode_q4_0, TOW_Q4_0},
    [TOW__STORED_Q4_K] = {TOW__MOST_BLOCK_NUMBERS, sizeof(tow__q4_k), decode_q4_k, TOW_Q4_K},
    [TOW__STORED_Q6_K] = {TOW__MOST_BLOCK_NUMBERS, sizeof(tow__q6_k), decode_q6_k, TOW_Q6_K},
};
