/* Chains of multiply-adds along lanes of channels, in a version for each instruction set and type: the same bits. */
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
    const char *x[TOW__CONV_TAPS], *w[TOW__CONV_TAPS];
    int64_t ends[TOW__CONV_TAPS]; /* of runs */
} tow__tap_list;

/* TOW__CONV_LANES elements, of which those behind the lanes in use are zeros and stay so. */
typedef struct tow__conv_chain {
    _Alignas(64) char elements[TOW__CONV_LANES * sizeof(f64)];
} tow__conv_chain;

typedef struct tow__conv_lanes {
    /* y[i] = the sum over the taps of x[i] w[i], added to y[i] if it `adds`, for i < n. stored: the type of x and w, if
     * that has 16 bits; else 0. */
    void (*taps)(tow_dtype stored, int64_t n, const tow__tap_list *list, bool adds, void *y);
    /* chain[i] += sum over k < n of x[k][i] w[k][i] for i < lanes, at most TOW__CONV_LANES: a chain that goes on where
     * the last one ended. Steps are in bytes. */
    void (*positions)(tow_dtype stored, int64_t lanes, int64_t n, const char *x, int64_t x_step, const char *w,
                      int64_t w_step, tow__conv_chain *chain);
    /* Ends a chain: y[i] += chain[i], which begins anew. */
    void (*end)(int64_t lanes, tow__conv_chain *chain, void *y);
} tow__conv_lanes;

extern const tow__conv_lanes tow__conv_lanes_plain, tow__conv_lanes_plain_f64;
#if defined(__x86_64__)
extern const tow__conv_lanes tow__conv_lanes_avx2, tow__conv_lanes_avx512;
extern const tow__conv_lanes tow__conv_lanes_avx2_f64, tow__conv_lanes_avx512_f64;
#endif
/* Those of a type for the instruction set that `choice` asks for, or the best below it that the processor has. */
const tow__conv_lanes *tow__conv_lanes_of(tow_dtype dtype, const tow__gemm_choice *choice);

#endif
