/* The own kernel of matrix products in plain C: the same bits as on processors with vectors, at any price. Processors
 * without fused multiply-adds get them from double precision. */
#include <string.h>

#include "src/kernels/halves.h"
#include "src/kernels/products/gemm_own.h"

typedef f32 element;
enum {
    W = 4,
    ROWS = 4,
    BLOCK = 64,
    MASKS_FREE = 0
};
typedef f32 vector __attribute__((vector_size(4 * W)));
typedef int64_t lanes;

TOW__INLINE lanes first_lanes(int64_t n) { return n; }
TOW__INLINE vector zero(void) { return (vector){0}; }
TOW__INLINE vector splat(const f32 *x) { return (vector){*x, *x, *x, *x}; }
TOW__INLINE vector load(const f32 *x)
{
    vector v;
    memcpy(&v, x, sizeof v);
    return v;
}
TOW__INLINE vector load_lanes(const f32 *x, lanes l)
{
    vector v = {0};
    for (int i = 0; i < W; i++)
        if (i < l) v[i] = x[i];
    return v;
}
TOW__INLINE void store(f32 *x, vector v) { memcpy(x, &v, sizeof v); }
TOW__INLINE void store_lanes(f32 *x, lanes l, vector v)
{
    for (int i = 0; i < W; i++)
        if (i < l) x[i] = v[i];
}
TOW__INLINE vector add(vector x, vector y) { return x + y; }

#ifdef __FP_FAST_FMAF
TOW__INLINE vector multiply_add(vector x, vector y, vector z)
{
    for (int i = 0; i < W; i++) z[i] = __builtin_fmaf(x[i], y[i], z[i]);
    return z;
}
#else
typedef f64 wide __attribute__((vector_size(8 * W)));
typedef int64_t whole __attribute__((vector_size(8 * W)));

/* The product is exact in double precision. The sum is rounded to odd there (if it is inexact, its last bit becomes 1),
 * and with 53 >= 2 * 24 + 2 bits a second rounding then gives what one rounding gives. A function of its own: in the
 * sums of every tile it would be most of what compilers do for the whole library. */
static __attribute__((noinline)) vector multiply_add(vector x, vector y, vector z)
{
    wide p = __builtin_convertvector(x, wide) * __builtin_convertvector(y, wide), c = __builtin_convertvector(z, wide);
    wide sum = p + c, part = sum - p, error = (p - (sum - part)) + (c - part);
    whole bits = (whole)sum, inexact = (error < 0) | (error > 0); /* not for NaN, which infinities leave */
    whole down = (error < 0) ^ (sum < 0);                         /* the exact sum has the smaller magnitude */
    bits += inexact & ~(bits << 63 >> 63) & (1 + 2 * down);
    return __builtin_convertvector((wide)bits, vector);
}
#endif

TOW__INLINE void transpose(vector r[W])
{
    for (int i = 0; i < W; i++) {
        for (int j = 0; j < i; j++) {
            f32 x = r[i][j];
            r[i][j] = r[j][i];
            r[j][i] = x;
        }
    }
}

#define HALVES
#define HALVES_BY_LOOPS
#define TILE_ROWS 4
#define VERSION   tow__gemm_plain_version
#define TEXT      "own kernel, plain C"
#include "src/kernels/products/gemm_own.inc"

#define LANES_VERSION tow__conv_lanes_plain
#include "src/kernels/conv/lanes.inc"
