/* Blocks of 32 numbers in few bits (TOW_BLOCK_DTYPE_LIST in tow/base.h), byte for byte as in GGUF files. */
#ifndef TOW_SRC_BLOCKS_H
#define TOW_SRC_BLOCKS_H

#include "src/base/numbers.h"

enum {
    TOW__BLOCK_NUMBERS = 32,
    TOW__NAN_SCALE = 0x7E00 /* as f16: of a block whose numbers are all NaN */
};

/* Elements of TOW_Q8_0 and TOW_Q4_0. Both are aligned to 2 bytes. */
typedef struct tow__q8_0 {
    f16 scale;
    i8 q[TOW__BLOCK_NUMBERS];
} tow__q8_0;
typedef struct tow__q4_0 {
    f16 scale;
    u8 q[TOW__BLOCK_NUMBERS / 2]; /* numbers j and 16 + j, plus 8, in the lower and the upper half of byte j */
} tow__q4_0;
_Static_assert(sizeof(tow__q8_0) == 34 && sizeof(tow__q4_0) == 18, "blocks have no gaps");

/* n blocks of 32 numbers each: tow_array_convert in tow/base.h says which bytes they have. */
void tow__quantize_blocks(tow_dtype dtype, int64_t n, const f32 *numbers, void *blocks);
/* The numbers of n blocks. They are exact: a scale has 11 bits, and what it is multiplied with has 8. */
void tow__dequantize_blocks(tow_dtype dtype, int64_t n, const void *blocks, f32 *numbers);
/* The columns of a matrix [32 n, columns] as rows of n blocks each, and back. */
void tow__quantize_columns(tow_dtype dtype, int64_t columns, int64_t n, const f32 *matrix, void *blocks);
void tow__dequantize_columns(tow_dtype dtype, int64_t columns, int64_t n, const void *blocks, f32 *matrix);
/* Number `index` of the blocks. */
f32 tow__block_number(tow_dtype dtype, const void *blocks, int64_t index);

#endif
