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
    for (int j = 0; j < TOW__BLOCK_NUMBERS; j++)
        q[j] = (i8)(i32)nearbyintf((counts ? x[j] : 0) * (counts ? factor : 0));
    return counts ? largest / 127 : finite ? 0 : NAN;
}

/* A row of x in integers. */
typedef struct tow__activations {
    const i8 *q;      /* [32 blocks] */
    const f32 *scale; /* [blocks] */
    const i32 *sum;   /* [blocks] of q: engines multiply with w + c, from 0 on, and subtract c times the sum */
} tow__activations;

enum {
    TOW__FEW_OUTPUTS = 8,   /* rows of the weight that are multiplied together with a single row of x */
    TOW__PANEL_ROWS = 4,    /* rows of x that are multiplied with a panel at a time */
    TOW__PANEL_BLOCKS = 32, /* blocks along K in a panel */
    TOW__PANEL_OUTPUTS = 16 /* rows of the weight in a panel, at most */
};

/* Blocks of some rows of the weight, as an engine multiplies with them. */
typedef struct tow__quantized_panel {
    _Alignas(64) u8 bytes[TOW__PANEL_BLOCKS][TOW__PANEL_OUTPUTS * TOW__BLOCK_NUMBERS];
    f32 d[TOW__PANEL_BLOCKS][TOW__PANEL_OUTPUTS];
} tow__quantized_panel;

/* The loops of one engine on one type of blocks. w: the first block of row 0, rows being `step` bytes apart. */
typedef struct tow__quantized_loops {
    int panel_outputs; /* 0: it has no panels */
    /* y[0..n), n <= TOW__FEW_OUTPUTS, of one row of x. */
    void (*few)(const char *w, int64_t step, int n, int64_t blocks, const tow__activations *x, f32 *y);
    /* blocks <= TOW__PANEL_BLOCKS of n rows, n <= panel_outputs; further ones are anything. */
    void (*pack)(const char *w, int64_t step, int n, int64_t blocks, tow__quantized_panel *panel);
    /* Continues y[r][0..panel_outputs) of TOW__PANEL_ROWS rows of x over the blocks of a panel, which are the first of
     * x. Rows may be the same. */
    void (*multiply)(const tow__quantized_panel *panel, int64_t blocks, const tow__activations x[TOW__PANEL_ROWS],
                     f32 *const y[TOW__PANEL_ROWS]);
} tow__quantized_loops;

/* Engines, the faster first; `runs` says whether this processor has the instructions. */
typedef struct tow__quantized_engine {
    const char *name;
    bool (*runs)(void);
    tow__quantized_loops q8_0, q4_0;
} tow__quantized_engine;
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
