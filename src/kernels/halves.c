/* Runs of numbers of 16 bits, widened. */
#include "src/kernels/halves.h"

#include "src/base/clones.h"

#define WIDEN(T)                                                                                                       \
    TOW__CLONES static void widen_##T(int64_t n, const T *x, f32 *y)                                                   \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) y[i] = tow__from_##T(x[i]);                                                    \
    }                                                                                                                  \
    static void widen_apart_##T(int64_t n, const T *x, int64_t stride, f32 *y)                                         \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) y[i] = tow__from_##T(x[i * stride]);                                           \
    }
WIDEN(bf16)
WIDEN(f16)

void tow__widen_run(tow_dtype dtype, int64_t n, const void *x, int64_t stride, f32 *y)
{
    if (dtype == TOW_BF16 && stride == 1)
        widen_bf16(n, x, y);
    else if (dtype == TOW_BF16)
        widen_apart_bf16(n, x, stride, y);
    else if (stride == 1)
        widen_f16(n, x, y);
    else
        widen_apart_f16(n, x, stride, y);
}

const void *tow__widened(tow_dtype dtype, const void *x, f32 *room)
{
    if (!tow__is_half(dtype)) return x;
    tow__widen_run(dtype, 1, x, 1, room);
    return room;
}
