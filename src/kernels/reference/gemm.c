/* The plain C matrix product. Each element of C is one sum over k in order, so neither blocking nor threads change it;
 * columns go in strips so that the inner loop runs along rows of B and C where these are contiguous. */
#include "src/kernels/products/gemm.h"

enum {
    STRIP = 64
};

#define GEMM(T)                                                                                                        \
    static void gemm_##T(const tow__gemm *g)                                                                           \
    {                                                                                                                  \
        const T *a = g->a, *b = g->b;                                                                                  \
        for (int64_t i = 0; i < g->m; i++) {                                                                           \
            for (int64_t first = 0; first < g->n; first += STRIP) {                                                    \
                int64_t width = tow__min(STRIP, g->n - first);                                                         \
                T sum[STRIP] = {0}, *c = (T *)g->c + i * g->ldc + first;                                               \
                for (int64_t p = 0; p < g->k; p++) {                                                                   \
                    T x = a[i * g->a_row + p * g->a_column];                                                           \
                    const T *row = b + p * g->b_row + first * g->b_column;                                             \
                    if (g->b_column == 1)                                                                              \
                        for (int64_t j = 0; j < width; j++) sum[j] += x * row[j];                                      \
                    else                                                                                               \
                        for (int64_t j = 0; j < width; j++) sum[j] += x * row[j * g->b_column];                        \
                }                                                                                                      \
                for (int64_t j = 0; j < width; j++) c[j] = g->accumulate ? c[j] + sum[j] : sum[j];                     \
            }                                                                                                          \
        }                                                                                                              \
    }
GEMM(f32)
GEMM(f64)

static bool applicable(const tow__gemm *g)
{
    (void)g;
    return true;
}

static void run(const tow__gemm *g)
{
    if (g->dtype == TOW_F32)
        gemm_f32(g);
    else
        gemm_f64(g);
}

static const char *describe(void) { return "reference"; }

const tow__gemm_engine tow__gemm_reference = {"reference", "reference", applicable, run, describe, false, true};
