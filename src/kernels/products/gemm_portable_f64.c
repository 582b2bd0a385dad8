/* The own kernel of matrix products in plain C and double precision: the same bits as on processors with vectors, at
 * any price. Processors without fused multiply-adds get them from the C library. */
#include <string.h>

#include "src/kernels/products/gemm_own.h"

typedef f64 element;
enum {
    W = 2,
    ROWS = 2,
    BLOCK = 32,
    MASKS_FREE = 0
};
typedef f64 vector __attribute__((vector_size(8 * W)));
typedef int64_t lanes;

TOW__INLINE lanes first_lanes(int64_t n) { return n; }
TOW__INLINE vector zero(void) { return (vector){0}; }
TOW__INLINE vector splat(const f64 *x) { return (vector){*x, *x}; }
TOW__INLINE vector load(const f64 *x)
{
    vector v;
    memcpy(&v, x, sizeof v);
    return v;
}
TOW__INLINE vector load_lanes(const f64 *x, lanes l)
{
    vector v = {0};
    for (int i = 0; i < W; i++)
        if (i < l) v[i] = x[i];
    return v;
}
TOW__INLINE void store(f64 *x, vector v) { memcpy(x, &v, sizeof v); }
TOW__INLINE void store_lanes(f64 *x, lanes l, vector v)
{
    for (int i = 0; i < W; i++)
        if (i < l) x[i] = v[i];
}
TOW__INLINE vector add(vector x, vector y) { return x + y; }

TOW__INLINE vector multiply_add(vector x, vector y, vector z)
{
    for (int i = 0; i < W; i++) z[i] = __builtin_fma(x[i], y[i], z[i]);
    return z;
}

TOW__INLINE void transpose(vector r[W])
{
    for (int i = 0; i < W; i++) {
        for (int j = 0; j < i; j++) {
            f64 x = r[i][j];
            r[i][j] = r[j][i];
            r[j][i] = x;
        }
    }
}

#define TILE_ROWS 2
#define VERSION   tow__gemm_plain_f64_version
#define TEXT      "own kernel, plain C"
#include "src/kernels/products/gemm_own.inc"

#define LANES_VERSION tow__conv_lanes_plain_f64
#include "src/kernels/conv/lanes.inc"
