/* Chains of multiply-adds along lanes of channels, in a version for each instruction set: the same bits. */
#ifndef TOW_SRC_KERNELS_CONV_LANES_H
#define TOW_SRC_KERNELS_CONV_LANES_H

#include "src/kernels/products/gemm.h"

enum {
    TOW__CONV_LANES = 64, /* channels of a piece of a sum over positions */
    TOW__CONV_TAPS = 512  /* whose addresses are kept */
};

/* Taps in order, in runs: each is a chain of multiply-adds, and runs are added. */
typedef struct tow__tap_list {
    int64_t n, runs;
    const f32 *x[TOW__CONV_TAPS], *w[TOW__CONV_TAPS];
    int64_t ends[TOW__CONV_TAPS]; /* of runs */
} tow__tap_list;

typedef struct tow__conv_lanes {
    /* y[i] = the sum over the taps of x[i] w[i], added to y[i] if it `adds`, for i < n. */
    void (*taps)(int64_t n, const tow__tap_list *list, bool adds, f32 *y);
    /* chain[i] += sum over k < n of x[k x_step + i] w[k w_step + i] for i < lanes, at most TOW__CONV_LANES: a chain that goes
     * on where the last one ended. */
    void (*positions)(int64_t lanes, int64_t n, const f32 *x, int64_t x_step, const f32 *w, int64_t w_step, f32 *chain);
} tow__conv_lanes;

extern const tow__conv_lanes tow__conv_lanes_plain;
#if defined(__x86_64__)
extern const tow__conv_lanes tow__conv_lanes_avx2, tow__conv_lanes_avx512;
#endif
/* Those of the instruction set that `choice` asks for, or the best below it that the processor has. */
const tow__conv_lanes *tow__conv_lanes_of(const tow__gemm_choice *choice);

#endif
