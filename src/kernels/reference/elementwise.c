/* The plain C twin of every elementwise kernel: one loop per operation and type, scalar libm. */
#include <string.h>

#include "src/base/params.h"
#include "src/kernels/bessel.h"
#include "src/kernels/incomplete.h"
#include "src/kernels/math.h"
#include "src/kernels/reference/by_type.h"
#include "src/kernels/reference/convert.h"
#include "src/kernels/special.h"
#include "src/kernels/tables.h"

#define REAL       f32
#define M(name)    name##f
#define NAME(name) name##_f32
#include "src/kernels/reference/float.inc"
#undef REAL
#undef M
#undef NAME

#define REAL       f64
#define M(name)    name
#define NAME(name) name##_f64
#include "src/kernels/reference/float.inc"
#undef REAL
#undef M
#undef NAME

#define INT        i32
#define SIGNED     i32
#define UNSIGNED   u32
#define WORD       u32
#define WIDTH      32
#define NAME(name) name##_i32
#include "src/kernels/reference/integer.inc"

#define INT        u32
#define SIGNED     i32
#define UNSIGNED   u32
#define WORD       u32
#define WIDTH      32
#define NAME(name) name##_u32
#include "src/kernels/reference/integer.inc"

#define INT        i8
#define SIGNED     i8
#define UNSIGNED   u8
#define WORD       u32
#define WIDTH      8
#define NAME(name) name##_i8
#include "src/kernels/reference/integer.inc"

#define INT        u8
#define SIGNED     i8
#define UNSIGNED   u8
#define WORD       u32
#define WIDTH      8
#define NAME(name) name##_u8
#include "src/kernels/reference/integer.inc"

#define INT        i64
#define SIGNED     i64
#define UNSIGNED   u64
#define WORD       u64
#define WIDTH      64
#define NAME(name) name##_i64
#include "src/kernels/reference/integer.inc"

#define INT        u64
#define SIGNED     i64
#define UNSIGNED   u64
#define WORD       u64
#define WIDTH      64
#define NAME(name) name##_u64
#include "src/kernels/reference/integer.inc"

/* ---- floats of 16 bits: what is lost in f32 ---------------------------------------------------------------------- */

/* The next one in the direction of y: their magnitudes count on from one to the next. */
TOW__INLINE u32 nextafter_half(u32 x, u32 y, f32 value, f32 towards)
{
    if (value != value || towards != towards) return value != value ? x : y;
    if (value == towards) return y;
    if ((x & 0x7FFF) == 0) return (y & 0x8000) | 1;
    return (value < towards) == (value > 0) ? x + 1 : x - 1;
}
#define NEXTAFTER(T)                                                                                                   \
    static void nextafter_##T(int64_t n, void *const *out, const void *const *in, const void *params)                  \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const T *x = in[0], *y = in[1];                                                                                \
        T *z = out[0];                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            z[i] = (T)nextafter_half(x[i], y[i], tow__from_##T(x[i]), tow__from_##T(y[i]));                            \
    }
NEXTAFTER(bf16)
NEXTAFTER(f16)
#undef NEXTAFTER

/* ---- bool: bytes that are 0 or 1 -------------------------------------------------------------------------------- */

static void not_bool(int64_t n, void *const *out, const void *const *in, const void *params)
{
    (void)params;
    const b8 *x = in[0];
    b8 *y = out[0];
    for (int64_t i = 0; i < n; i++) y[i] = !x[i];
}

static void stop_gradient_bool(int64_t n, void *const *out, const void *const *in, const void *params)
{
    (void)params;
    memmove(out[0], in[0], (size_t)n);
}

#define BINARY(name, expression)                                                                                       \
    TOW__CLONES static void name##_bool(int64_t n, void *const *out, const void *const *in, const void *params)        \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const b8 *px = in[0], *py = in[1];                                                                             \
        b8 *z = out[0];                                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const b8 x = px[i], y = py[i];                                                                             \
            z[i] = (b8)(expression);                                                                                   \
        }                                                                                                              \
    }
BINARY(max, x | y)
BINARY(min, x &y)
BINARY(and, x &y)
BINARY(or, x | y)
BINARY(xor, x ^ y)
BINARY(eq, x == y)
BINARY(ne, x != y)
BINARY(lt, x < y)
BINARY(le, x <= y)
BINARY(gt, x > y)
BINARY(ge, x >= y)
#undef BINARY

/* ---- select, convert, bitcast, threefry2x32 --------------------------------------------------------------------- */

/* Elements are moved as they are, so types of one size share a tile. */
#define SELECT(T)                                                                                                      \
    TOW__CLONES static void select_##T(int64_t n, void *const *out, const void *const *in, const void *params)         \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const b8 *p = in[0];                                                                                           \
        const T *x = in[1], *y = in[2];                                                                                \
        T *z = out[0];                                                                                                 \
        TOW__VECTORIZE                                                                                                 \
        for (int64_t i = 0; i < n; i++) z[i] = p[i] ? x[i] : y[i];                                                     \
    }                                                                                                                  \
    static void bitcast_##T(int64_t n, void *const *out, const void *const *in, const void *params)                    \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        memmove(out[0], in[0], (size_t)n * sizeof(T));                                                                 \
    }
SELECT(u8)
SELECT(uint16_t)
SELECT(u32)
SELECT(u64)
#undef SELECT

enum {
    SIZES = 4 /* of elements, in bytes: 1, 2, 4, 8 */
};
static tow__tile pick_size(const tow__tile tiles[SIZES], tow_dtype dtype)
{
    const size_t size = tow__element_bytes(dtype);
    return tiles[size == 8 ? 3 : size / 2];
}

static tow__tile pick_select(const tow__kernel_call *call)
{
    static const tow__tile tiles[SIZES] = {select_u8, select_uint16_t, select_u32, select_u64};
    return pick_size(tiles, call->out[0].dtype);
}

static tow__tile pick_bitcast(const tow__kernel_call *call)
{
    static const tow__tile tiles[SIZES] = {bitcast_u8, bitcast_uint16_t, bitcast_u32, bitcast_u64};
    return pick_size(tiles, call->out[0].dtype);
}

static tow__tile pick_convert(const tow__kernel_call *call)
{
    return tow__convert_tile(call->in[0].dtype, call->out[0].dtype);
}

/* (k0, k1, x0, x1) -> (y0, y1) */
TOW__CLONES static void threefry2x32_tile(int64_t n, void *const *out, const void *const *in, const void *params)
{
    (void)params;
    const u32 *k0 = in[0], *k1 = in[1], *x0 = in[2], *x1 = in[3];
    u32 *y0 = out[0], *y1 = out[1];
    for (int64_t i = 0; i < n; i++) {
        u32 a = x0[i], b = x1[i];
        tow__threefry2x32(k0[i], k1[i], &a, &b);
        y0[i] = a;
        y1[i] = b;
    }
}

static tow__tile pick_threefry2x32(const tow__kernel_call *call)
{
    (void)call;
    return threefry2x32_tile;
}

/* ---- tables ----------------------------------------------------------------------------------------------------- */

/* The tiles of a function by dtype. functions.h has the functions with their sets. Floats of 16 bits have none: plans
 * compute them in f32. */
#define NUMBERS(name)    FLOATS(name), INTEGERS(name)
#define ALL_FLOATS(name) FLOATS(name), [TOW_BF16] = name##_bf16, [TOW_F16] = name##_f16
#define LOGICAL(name)    INTEGERS(name), [TOW_BOOL] = name##_bool
#define ALL(name)        FLOATS(name), LOGICAL(name)
#define X(name, set)                                                                                                   \
    static tow__tile pick_##name(const tow__kernel_call *call)                                                         \
    {                                                                                                                  \
        static const tow__tile tiles[TOW_DTYPE_END] = {set(name)};                                                     \
        return tiles[call->in[0].dtype];                                                                               \
    }
TOW__MAPPED_FUNCTION_LIST(X)
#undef X

#define RUN(name)                                                                                                      \
    static void run_##name(const tow__kernel_call *call) { tow__map(call, pick_##name(call)); }
#define X(name, set) RUN(name)
TOW__FUNCTION_LIST(X)
#undef X

enum {
    SET_FLOATS = TOW__WIDE_FLOATS,
    SET_ALL_FLOATS = TOW__FLOATS,
    SET_INTEGERS = TOW__INTEGERS,
    SET_NUMBERS = TOW__WIDE_NUMBERS,
    SET_LOGICAL = TOW__BITS,
    SET_WORDS = 1 << TOW_U32,
    SET_ALL = TOW__WIDE_NUMBERS | 1 << TOW_BOOL,
    SET_EVERY = TOW__ALL_DTYPES
};

static const tow__kernel kernels[] = {
#define X(name, set)                                                                                                   \
    {.primitive = #name,                                                                                               \
     .dtypes = SET_##set,                                                                                              \
     .run = run_##name,                                                                                                \
     .engine = "reference",                                                                                            \
     .function = TOW__FN_##name,                                                                                       \
     .state_bytes = sizeof(tow__map_layout),                                                                           \
     .prepare = tow__map_prepare},
    TOW__FUNCTION_LIST(X)
#undef X
};
const tow__kernel_table tow__reference_elementwise = {kernels, sizeof kernels / sizeof kernels[0]};

static const tow__pick picks[] = {
#define X(name, set) pick_##name,
    TOW__FUNCTION_LIST(X)
#undef X
};
const tow__pick *const tow__picks_reference = picks;
