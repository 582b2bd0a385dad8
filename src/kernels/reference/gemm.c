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

static f32 element_of(tow_dtype dtype, const void *data, int64_t at)
{
    return dtype == TOW_BF16  ? tow__from_bf16(((const bf16 *)data)[at])
           : dtype == TOW_F16 ? tow__from_f16(((const f16 *)data)[at])
                              : ((const f32 *)data)[at];
}

static void store_element(tow_dtype dtype, void *data, int64_t at, f32 x)
{
    if (dtype == TOW_BF16)
        ((bf16 *)data)[at] = tow__bits_to_bf16(tow__bits_of_f32(x));
    else if (dtype == TOW_F16)
        ((f16 *)data)[at] = tow__bits_to_f16(tow__bits_of_f32(x));
    else
        ((f32 *)data)[at] = x;
}

/* The same sums of operands that are stored in 16 bits, or whose result is. */
static void gemm_halves(const tow__gemm *g)
{
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            const int64_t at = i * g->ldc + j;
            f32 sum = 0;
            for (int64_t p = 0; p < g->k; p++)
                sum += element_of(g->a_dtype, g->a, i * g->a_row + p * g->a_column) *
                       element_of(g->b_dtype, g->b, p * g->b_row + j * g->b_column);
            store_element(g->c_dtype, g->c, at, g->accumulate ? element_of(g->c_dtype, g->c, at) + sum : sum);
        }
    }
}

static bool applicable(const tow__gemm *g)
{
    (void)g;
    return true;
}

static void run(const tow__gemm *g)
{
    if (tow__gemm_has_halves(g))
        gemm_halves(g);
    else if (g->dtype == TOW_F32)
        gemm_f32(g);
    else
        gemm_f64(g);
}

static const char *describe(void) { return "reference"; }

const tow__gemm_engine tow__gemm_reference = {"reference", "reference", applicable, run,
                                              describe,    false,       true,       .halves = true};
