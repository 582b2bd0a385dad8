/* Products of operands that are stored in bf16 on units that multiply pairs of bf16 and sum in f32: the matrix unit
 * (AMX, TDPBF16PS) and vectors (AVX512_BF16, VDPBF16PS). Neither operand becomes f32.
 *
 * Bits of an element: one chain from 0 over groups of k, in order, with zeros behind the last element of k. Numbers
 * below 2^-126 count as zeros, as operands and as sums.
 *   - amx: a group is 32 elements. The products of its even elements are a chain of fused multiply-adds from 0, those
 *     of its odd ones another; both chains together are added to the sum.
 *   - dots: a group is 2 elements. The product of the odd one is added to the sum, then that of the even one.
 * All that depends on the row, the column and k alone, whatever is cut. With `accumulate` the element is made alone and
 * added to C; a C of bf16 is rounded once, as everywhere.
 *
 * A unit and what emulates it in plain C are versions of the same loops (gemm_bf16.inc), so tests compare the loops
 * with their definition on all machines. */
#ifndef TOW_SRC_KERNELS_GEMM_BF16_H
#define TOW_SRC_KERNELS_GEMM_BF16_H

#include "src/kernels/products/gemm.h"

enum {
    TOW__BF16_STRIP = 32,   /* rows of A that are multiplied at a time */
    TOW__BF16_PANEL = 32,   /* columns of B likewise */
    TOW__BF16_GROUP = 32,   /* k is filled up with zeros to a multiple of these */
    TOW__BF16_DEPTH = 1024, /* of k at a time, at most: sums that wait for more cost more than the first cache gains */
    TOW__BF16_LITTLE_DEPTH = 256, /* the same without scratch memory */
    TOW__BF16_SQUARE = TOW__BF16_STRIP * TOW__BF16_PANEL
};

typedef struct tow__gemm_bf16_version {
    const char *text;
    bool (*usable)(void);
    void (*run)(const tow__gemm *g);  /* m, n, k > 0; only if it is usable */
    void (*pack)(const tow__gemm *g); /* n, k > 0; likewise: what tow__gemm_pack says */
} tow__gemm_bf16_version;

#if defined(__x86_64__) && defined(__linux__)
#define TOW__BF16_UNITS
extern const tow__gemm_bf16_version tow__gemm_bf16_amx, tow__gemm_bf16_dots;
#endif
extern const tow__gemm_bf16_version tow__gemm_bf16_amx_emulated, tow__gemm_bf16_dots_emulated;

/* The blocks of a product: B is packed `columns` by `depth` at a time, and where k has several such blocks, sums of
 * `rows` by `columns` wait for the next one. All are multiples of 32, which no bits depend on. Scratch memory has first
 * a strip of A, then panels of B, then sums. */
typedef struct tow__gemm_bf16_plan {
    int64_t depth, rows, columns;
    size_t panels, sums, bytes; /* where they begin, and the size of all */
    bool waits;                 /* k has several blocks */
} tow__gemm_bf16_plan;

tow__gemm_bf16_plan tow__gemm_bf16_cut(const tow__gemm *g);
/* The smallest blocks: one strip and one panel of TOW__BF16_LITTLE_DEPTH at most. */
tow__gemm_bf16_plan tow__gemm_bf16_cut_small(const tow__gemm *g);

/* True if units can run it: both operands are bf16, C is that or f32, and the product is whole. */
bool tow__gemm_bf16_fits(const tow__gemm *g);
/* True if it is large enough, by rows, columns and k of the whole, which cuts do not change. */
bool tow__gemm_bf16_gains(const tow__gemm *g);
size_t tow__gemm_bf16_scratch(const tow__gemm *g);
/* Bytes of a packed B: all panels, each with all of k. */
size_t tow__gemm_bf16_packed(const tow__gemm *g);

/* True if the processor has AVX512_BF16, and it is faster there than fused multiply-adds of f32, which is measured
 * once. */
bool tow__gemm_bf16_dots_gain(void);

#endif
