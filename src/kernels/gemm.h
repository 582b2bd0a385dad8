/* Matrix products, whatever library computes them.
 *
 *   C[m, n] (row-major, rows ldc apart) = A[m, k] B[k, n], or C += with accumulate
 *
 * Strides are in elements and positive: transposes are strides. An engine gives each element of C bits that depend on
 * its row of A, its column of B and k alone: not on threads, nor on which rows and columns share the call. So callers
 * may cut m and n as they like. */
#ifndef TOW_SRC_KERNELS_GEMM_H
#define TOW_SRC_KERNELS_GEMM_H

#include "src/kernels/strided.h"

typedef struct tow__gemm {
    tow_dtype dtype; /* TOW_F32 or TOW_F64 */
    bool accumulate; /* C += */
    int threads;     /* that the engine may use; 1 inside a team's body, and for engines that have none */
    int64_t m, n, k;
    const void *a;
    int64_t a_row, a_column;
    const void *b;
    int64_t b_row, b_column;
    void *c;
    int64_t ldc;
} tow__gemm;

typedef struct tow__gemm_engine {
    const char *name;
    bool (*applicable)(const tow__gemm *g); /* depends on types, shapes and strides alone */
    void (*run)(const tow__gemm *g);
    const char *(*describe)(void);
} tow__gemm_engine;

extern const tow__gemm_engine tow__gemm_reference;
#ifdef TOW_HAVE_BLIS
extern const tow__gemm_engine tow__gemm_blis;
#endif

/* Runs g on `engine`, or with NULL on the first engine that is applicable. m, n or k may be 0. */
void tow__gemm_run(const tow__gemm *g, const tow__gemm_engine *engine);
/* The engine that most products use. */
const tow__gemm_engine *tow__gemm_default(void);
/* True if strides address rows * columns different elements in a plain row- or column-like layout. */
bool tow__gemm_plain(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride);

#endif
