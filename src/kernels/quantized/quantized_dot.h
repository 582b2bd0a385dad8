/* quantized_dot: rows x [K] times a weight [N, blocks of K numbers] of few bits. Both are made of groups g of 32
 * numbers; in a group of the weight, number n, k is (src/base/blocks.h)
 *
 *   Q8_0, Q4_0   d[n, g] w[n, k]
 *   Q4_K         d[n, g] w[n, k] - m[n, g],  d and m being the products of the block's f16 with the group's levels
 *   Q6_K         d[n, g] w[n, k],  w[n, k] being the product of a level, of 16 numbers, with a number from -32 to 31
 *
 * Every engine gives the numbers of this definition, bit by bit:
 *
 *   of each group g of x   largest = the greatest |x[k]|,  factor = 127 / largest
 *                          scale[g] = largest / 127,  q[k] = the integer nearest to x[k] factor, ties to even
 *                          largest is infinite or NaN: scale NaN, q 0; factor is infinite: both are 0
 *   y[n] = 0, then for g = 0, 1, ...:
 *          y[n] = fma(d[n, g] scale[g], sum over the group of w[n, k] q[k], y[n])
 *          y[n] = fma(-m[n, g], scale[g] (sum over the group of q[k]), y[n])                         in Q4_K alone
 *
 * all in f32, each operation rounded to nearest; d and m are exact. Sums of a group are integers below 2^24, so engines
 * may add in any order there. */
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
    for (int j = 0; j < TOW__BLOCK_NUMBERS; j++)
        q[j] = (i8)(i32)nearbyintf((counts ? x[j] : 0) * (counts ? factor : 0));
    return counts ? largest / 127 : finite ? 0 : NAN;
}

/* A row of x in integers. */
typedef struct tow__activations {
    const i8 *q;      /* [32 groups] */
    const f32 *scale; /* [groups] */
    const i32 *sum;   /* [groups] of q: engines multiply with w + c, from 0 on, and subtract c times the sum */
    const i32 *half;  /* [groups] of the first 16 of them */
} tow__activations;

enum {
    TOW__FEW_OUTPUTS = 8,   /* rows of the weight that are multiplied together with a single row of x */
    TOW__PANEL_ROWS = 4,    /* rows of x that are multiplied with a panel at a time */
    TOW__PANEL_GROUPS = 32, /* groups along K in a panel: whole blocks of every type */
    TOW__PANEL_OUTPUTS = 16 /* rows of the weight in a panel, at most */
};

/* Blocks of some rows of the weight, as an engine multiplies with them. */
typedef struct tow__quantized_panel {
    _Alignas(64) u8 bytes[TOW__PANEL_GROUPS][TOW__PANEL_OUTPUTS * TOW__BLOCK_NUMBERS];
    f32 d[TOW__PANEL_GROUPS][TOW__PANEL_OUTPUTS];
    f32 more[2][TOW__PANEL_GROUPS][TOW__PANEL_OUTPUTS]; /* Q4_K: -m in the first; Q6_K: levels of both halves */
} tow__quantized_panel;

/* The loops of one engine on one type of blocks; those of the plain engine if `few` is NULL. w: the first block of row
 * 0, rows being `step` bytes apart. */
typedef struct tow__quantized_loops {
    int panel_outputs; /* 0: it has no panels */
    /* y[0..n), n <= TOW__FEW_OUTPUTS, of one row of x. */
    void (*few)(const char *w, int64_t step, int n, int64_t blocks, const tow__activations *x, f32 *y);
    /* groups <= TOW__PANEL_GROUPS, whole blocks, of n rows, n <= panel_outputs; further ones are anything. */
    void (*pack)(const char *w, int64_t step, int n, int64_t groups, tow__quantized_panel *panel);
    /* Continues y[r][0..panel_outputs) of TOW__PANEL_ROWS rows of x over the groups of a panel, which are the first of
     * x. Rows may be the same. */
    void (*multiply)(const tow__quantized_panel *panel, int64_t groups, const tow__activations x[TOW__PANEL_ROWS],
                     f32 *const y[TOW__PANEL_ROWS]);
} tow__quantized_loops;

/* Engines, the faster first; `runs` says whether this processor has the instructions. */
typedef struct tow__quantized_engine {
    const char *name;
    bool (*runs)(void);
    tow__quantized_loops loops[TOW__BLOCK_DTYPES]; /* by tow__blocks_index */
} tow__quantized_engine;
static inline int tow__blocks_index(tow_dtype dtype) { return (int)dtype - (int)TOW_Q8_0; }
extern const tow__quantized_engine *const tow__quantized_engines[];
extern const size_t tow__quantized_engine_count;
extern const tow__quantized_engine tow__quantized_plain;
#if defined(__x86_64__)
#if defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11
#define TOW__HAVE_AVX_VNNI /* the compiler has it */
extern const tow__quantized_engine tow__quantized_avx_vnni;
#endif
extern const tow__quantized_engine tow__quantized_avx2, tow__quantized_avx512_vnni;
/* The loops for VNNI, with its instruction computed by those of AVX2: for tests. */
extern const tow__quantized_engine tow__quantized_vnni_emulated;
#endif
/* The product on a certain engine: for tests. */
void tow__quantized_dot_on(const tow__quantized_engine *engine, const tow__kernel_call *call);

#endif
