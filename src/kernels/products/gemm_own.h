/* Inside the own kernel of matrix products: what its versions for instruction sets share. See gemm_own.inc. */
#ifndef TOW_SRC_KERNELS_GEMM_OWN_H
#define TOW_SRC_KERNELS_GEMM_OWN_H

#include "src/kernels/products/gemm.h"

enum {
    TOW__GEMM_KC = 384 /* longest block of k; part of the definition of the bits */
};

/* Length of the blocks of k (the last may be shorter), 0 if there are none: decided by k alone. */
static inline int64_t tow__gemm_kc(int64_t k)
{
    if (k == 0) return 0;
    int64_t blocks = tow__ceil_div(k, TOW__GEMM_KC);
    return tow__min(k, tow__ceil_div(tow__ceil_div(k, blocks), 16) * 16);
}

typedef struct tow__gemm_version {
    const char *text;
    void (*run)(const tow__gemm *g); /* m, n, k > 0; of its type */
    size_t (*scratch)(const tow__gemm *g);
    size_t (*packed)(const tow__gemm *g);
    void (*pack)(const tow__gemm *g);
} tow__gemm_version;

extern const tow__gemm_version tow__gemm_plain_version, tow__gemm_plain_f64_version;
#if defined(__x86_64__)
extern const tow__gemm_version tow__gemm_avx2_version, tow__gemm_avx512_version;
extern const tow__gemm_version tow__gemm_avx2_f64_version, tow__gemm_avx512_f64_version;
#endif

/* In gemm_amx_run.c: f32; m, n, k > 0; only if tow__gemm_amx_usable. */
void tow__gemm_amx_run(const tow__gemm *g);
size_t tow__gemm_amx_scratch(const tow__gemm *g);
size_t tow__gemm_amx_packed(const tow__gemm *g);
void tow__gemm_amx_pack(const tow__gemm *g);

#endif
