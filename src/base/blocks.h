/* Blocks of numbers in few bits (TOW_BLOCK_DTYPE_LIST in tow/base.h), byte for byte as in GGUF files. */
#ifndef TOW_SRC_BLOCKS_H
#define TOW_SRC_BLOCKS_H

#include "src/base/numbers.h"

enum {
    TOW__BLOCK_NUMBERS = 32,       /* of Q8_0 and Q4_0, and in a group of activations (quantized_dot) */
    TOW__MOST_BLOCK_NUMBERS = 256, /* in any block: those of Q4_K and Q6_K, */
    TOW__MOST_BLOCK_BYTES = 210,   /* and of any block */
    TOW__BLOCK_DTYPES = 4,         /* from TOW_Q8_0 on */
    TOW__NAN_SCALE = 0x7E00        /* as f16: of a block whose numbers are all NaN */
};

/* Elements of TOW_Q8_0, TOW_Q4_0, TOW_Q4_K and TOW_Q6_K. All are aligned to 2 bytes. */
typedef struct tow__q8_0 {
    f16 scale;
    i8 q[TOW__BLOCK_NUMBERS];
} tow__q8_0;
typedef struct tow__q4_0 {
    f16 scale;
    u8 q[TOW__BLOCK_NUMBERS / 2]; /* numbers j and 16 + j, plus 8, in the lower and the upper half of byte j */
} tow__q4_0;
enum {
    TOW__Q4_K_BYTES = TOW__MOST_BLOCK_NUMBERS / 2,
    TOW__Q6_K_BYTES = TOW__MOST_BLOCK_NUMBERS / 4
};
/* 8 groups of 32 numbers. Bytes 32 i to 32 i + 31 have groups 2 i and 2 i + 1 in their lower and upper halves. */
typedef struct tow__q4_k {
    f16 scale, minimum;
    u8 levels[12]; /* tow__q4_k_levels_of reads them */
    u8 q[TOW__Q4_K_BYTES];
} tow__q4_k;
/* 8 groups of 32 numbers plus 32, in two halves of four. In a half, bits 0 to 3 are in 64 bytes, of groups 0 and 1 in
 * their lower, of 2 and 3 in their upper halves; bits 4 and 5 in 32 bytes, of group i in bits 2 i and 2 i + 1. */
typedef struct tow__q6_k {
    u8 low[2 * TOW__Q6_K_BYTES], high[TOW__Q6_K_BYTES];
    i8 levels[16]; /* of 16 numbers each */
    f16 scale;
} tow__q6_k;
_Static_assert(sizeof(tow__q8_0) == 34 && sizeof(tow__q4_0) == 18, "blocks have no gaps");
_Static_assert(sizeof(tow__q4_k) == 144 && sizeof(tow__q6_k) == 210, "blocks have no gaps");

/* The scale and the minimum of a group, 6 bits each: of groups 0 to 3 they are the lower bits of bytes 0 to 7; of the
 * others, bits 0 to 3 are in bytes 8 to 11, and bits 4 and 5 above those of groups 0 to 3. */
static inline void tow__q4_k_levels_of(const tow__q4_k *block, int group, int *scale, int *minimum)
{
    const u8 *levels = block->levels;
    const int i = group & 3;
    *scale = group < 4 ? levels[i] & 63 : (levels[8 + i] & 15) | levels[i] >> 6 << 4;
    *minimum = group < 4 ? levels[4 + i] & 63 : levels[8 + i] >> 4 | levels[4 + i] >> 6 << 4;
}
/* Number j of group `group` of 32, from 0 to 15, */
static inline int tow__q4_k_at(const tow__q4_k *block, int group, int j)
{
    return block->q[group / 2 * 32 + j] >> (group % 2 * 4) & 15;
}
/* and from 0 to 63. */
static inline int tow__q6_k_at(const tow__q6_k *block, int group, int j)
{
    const int half = group / 4, part = group % 4;
    const int low = block->low[64 * half + part % 2 * 32 + j] >> (part / 2 * 4) & 15;
    return low | (block->high[32 * half + j] >> (2 * part) & 3) << 4;
}

/* A type of blocks: its size, and how blocks are made and read. */
typedef struct tow__block_form {
    int numbers;     /* in a block */
    size_t scale_at; /* the byte of a scale, of f16, that makes all numbers NaN if it is */
    void (*quantize)(int64_t n, const f32 *numbers, void *blocks);
    void (*dequantize)(int64_t n, const void *blocks, f32 *numbers);
} tow__block_form;
/* dtype: of blocks. */
const tow__block_form *tow__block_form_of(tow_dtype dtype);

/* n blocks of numbers: tow_array_convert in tow/base.h says which bytes they have. */
void tow__quantize_blocks(tow_dtype dtype, int64_t n, const f32 *numbers, void *blocks);
/* The numbers of n blocks. Those of Q8_0, Q4_0 and Q6_K are exact: a scale has 11 bits, and what it is multiplied with
 * has 8 or 13. Those of Q4_K are the difference of two exact products, rounded once. */
void tow__dequantize_blocks(tow_dtype dtype, int64_t n, const void *blocks, f32 *numbers);
/* The columns of a matrix [rows, columns] as rows of n blocks each, and back: rows are the numbers of n blocks. */
void tow__quantize_columns(tow_dtype dtype, int64_t columns, int64_t n, const f32 *matrix, void *blocks);
void tow__dequantize_columns(tow_dtype dtype, int64_t columns, int64_t n, const void *blocks, f32 *matrix);
/* Number `index` of the blocks. */
f32 tow__block_number(tow_dtype dtype, const void *blocks, int64_t index);

#endif
