/* The plain C twin of every elementwise kernel: one loop per operation and type, scalar libm. */
#include <string.h>

#include "src/base/params.h"
#include "src/kernels/math.h"
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
#define NAME(name) name##_i32
#include "src/kernels/reference/integer.inc"
#undef INT
#undef NAME

#define INT        u32
#define NAME(name) name##_u32
#include "src/kernels/reference/integer.inc"
#undef INT
#undef NAME

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

#define SELECT(T)                                                                                                      \
    TOW__CLONES static void select_##T(int64_t n, void *const *out, const void *const *in, const void *params)         \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const b8 *p = in[0];                                                                                           \
        const T *x = in[1], *y = in[2];                                                                                \
        T *z = out[0];                                                                                                 \
        TOW__VECTORIZE                                                                                                 \
        for (int64_t i = 0; i < n; i++) z[i] = p[i] ? x[i] : y[i];                                                     \
    }
SELECT(f32)
SELECT(f64)
SELECT(i32)
SELECT(u32)
SELECT(b8)
#undef SELECT

static tow__tile pick_select(const tow__kernel_call *call)
{
    static const tow__tile tiles[] = {select_f32, select_f64, select_i32, select_u32, select_b8};
    return tiles[call->out[0].dtype];
}

#define CONVERT(FROM, TO, expression)                                                                                  \
    TOW__CLONES static void convert_##FROM##_##TO(int64_t n, void *const *out, const void *const *in,                  \
                                                  const void *params)                                                  \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const FROM *px = in[0];                                                                                        \
        TO *y = out[0];                                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const FROM x = px[i];                                                                                      \
            y[i] = (TO)(expression);                                                                                   \
        }                                                                                                              \
    }
#define CONVERT_FLOAT(F)                                                                                               \
    CONVERT(F, f32, x)                                                                                                 \
    CONVERT(F, f64, x) CONVERT(F, i32, tow__to_i32((f64)x)) CONVERT(F, u32, tow__to_u32((f64)x)) CONVERT(F, b8, x != 0)
#define CONVERT_INTEGER(F)                                                                                             \
    CONVERT(F, f32, x) CONVERT(F, f64, x) CONVERT(F, i32, x) CONVERT(F, u32, x) CONVERT(F, b8, x != 0)
CONVERT_FLOAT(f32)
CONVERT_FLOAT(f64)
CONVERT_INTEGER(i32)
CONVERT_INTEGER(u32)
CONVERT_INTEGER(b8)

static tow__tile pick_convert(const tow__kernel_call *call)
{
#define ROW(F)                                                                                                         \
    {                                                                                                                  \
        convert_##F##_f32, convert_##F##_f64, convert_##F##_i32, convert_##F##_u32, convert_##F##_b8                   \
    }
    static const tow__tile tiles[TOW_DTYPE_COUNT][TOW_DTYPE_COUNT] = {ROW(f32), ROW(f64), ROW(i32), ROW(u32), ROW(b8)};
#undef ROW
    return tiles[call->in[0].dtype][call->out[0].dtype];
}

static void bitcast_tile(int64_t n, void *const *out, const void *const *in, const void *params)
{
    (void)params;
    memmove(out[0], in[0], (size_t)n * sizeof(u32));
}

static tow__tile pick_bitcast(const tow__kernel_call *call)
{
    (void)call;
    return bitcast_tile;
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

/* The tiles of a function by dtype: f32 f64 i32 u32 bool. functions.h has the functions with their sets. */
#define FLOATS(name)   name##_f32, name##_f64, NULL, NULL, NULL
#define NUMBERS(name)  name##_f32, name##_f64, name##_i32, name##_u32, NULL
#define ALL(name)      name##_f32, name##_f64, name##_i32, name##_u32, name##_bool
#define INTEGERS(name) NULL, NULL, name##_i32, name##_u32, NULL
#define LOGICAL(name)  NULL, NULL, name##_i32, name##_u32, name##_bool
#define X(name, set)                                                                                                   \
    static tow__tile pick_##name(const tow__kernel_call *call)                                                         \
    {                                                                                                                  \
        static const tow__tile tiles[TOW_DTYPE_COUNT] = {set(name)};                                                   \
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
    SET_FLOATS = TOW__FLOATS,
    SET_INTEGERS = 1 << TOW_I32 | 1 << TOW_U32,
    SET_NUMBERS = SET_FLOATS | SET_INTEGERS,
    SET_LOGICAL = SET_INTEGERS | 1 << TOW_BOOL,
    SET_UNSIGNED = 1 << TOW_U32,
    SET_ALL = TOW__ALL_DTYPES
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
