/* Elementwise kernels in single precision as vector code; other types use the plain C loops.
 *
 * This folder has the functions (here), chains of them (fused.h) and ops of chains that became one (joined.h).
 *
 * Bits. Each element depends on its operands alone. math_f32.h defines the functions, with multiply-adds where they are
 * written, so every instruction set gives the same bits; chains have those of their parts.
 *
 * Engines. TOW__CLONES compiles a function once per instruction set, and the loader picks the version. Types that have
 * no vector code run the plain twins (reference/elementwise.c): registry.c picks by primitive and type. */
#include "src/base/params.h"
#include "src/kernels/math_f32.h"
#include "src/kernels/tables.h"

/* A kernel that has one tile function, whatever the parameters. */
#define SIMPLE(name)                                                                                                   \
    static tow__tile pick_##name(const tow__kernel_call *call)                                                         \
    {                                                                                                                  \
        (void)call;                                                                                                    \
        return name##_tile;                                                                                            \
    }

#define UNARY(name, expression)                                                                                        \
    TOW__CLONES static void name##_tile(int64_t n, void *const *out, const void *const *in, const void *params)        \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const f32 *px = in[0];                                                                                         \
        f32 *y = out[0];                                                                                               \
        TOW__VECTORIZE                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const f32 x = px[i];                                                                                       \
            y[i] = (expression);                                                                                       \
        }                                                                                                              \
    }                                                                                                                  \
    SIMPLE(name)

#define BINARY(name, RESULT, expression)                                                                               \
    TOW__CLONES static void name##_tile(int64_t n, void *const *out, const void *const *in, const void *params)        \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const f32 *px = in[0], *py = in[1];                                                                            \
        RESULT *z = out[0];                                                                                            \
        TOW__VECTORIZE                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const f32 x = px[i], y = py[i];                                                                            \
            z[i] = (RESULT)(expression);                                                                               \
        }                                                                                                              \
    }                                                                                                                  \
    SIMPLE(name)

UNARY(neg, -x)
UNARY(abs, fabsf(x))
UNARY(sign, x > 0 ? 1.0f : x < 0 ? -1.0f : x)
UNARY(square, x *x)
UNARY(floor, floorf(x))
UNARY(ceil, ceilf(x))
UNARY(round, rintf(x))
UNARY(sqrt, sqrtf(x))
UNARY(rsqrt, 1.0f / sqrtf(x))
UNARY(relu, x <= 0 ? 0.0f : x)
UNARY(exp, tow__exp_f32(x))
UNARY(expm1, tow__expm1_f32(x))
UNARY(log, tow__log_f32(x))
UNARY(log1p, tow__log1p_f32(x))
UNARY(tanh, tow__tanh_f32(x))
UNARY(logistic, tow__logistic_f32(x))
UNARY(silu, tow__silu_f32(x))
UNARY(silu_grad, tow__silu_slope_f32(x))
UNARY(erf, tow__erf_f32(x))
UNARY(erf_inv, tow__erf_inv_f32(x))
BINARY(add, f32, x + y)
BINARY(sub, f32, x - y)
BINARY(mul, f32, x *y)
BINARY(div, f32, x / y)
BINARY(max, f32, tow__max_f32(x, y))
BINARY(min, f32, tow__min_f32(x, y))
BINARY(eq, b8, x == y)
BINARY(ne, b8, x != y)
BINARY(lt, b8, x < y)
BINARY(le, b8, x <= y)
BINARY(gt, b8, x > y)
BINARY(ge, b8, x >= y)

/* Bytes that are 0 or 1 become masks of all bits. */
TOW__CLONES static void select_tile(int64_t n, void *const *out, const void *const *in, const void *params)
{
    (void)params;
    const b8 *p = in[0];
    const u32 *x = in[1], *y = in[2];
    u32 *z = out[0];
    TOW__VECTORIZE
    for (int64_t i = 0; i < n; i++) {
        u32 mask = 0u - p[i];
        z[i] = (x[i] & mask) | (y[i] & ~mask);
    }
}

/* A bool alone does not tell the type of the choices, so this kernel stands for f32 choices only. */
SIMPLE(select)

TOW__CLONES static void clamp_tile(int64_t n, void *const *out, const void *const *in, const void *params)
{
    (void)params;
    const f32 *low = in[0], *x = in[1], *high = in[2];
    f32 *y = out[0];
    TOW__VECTORIZE
    for (int64_t i = 0; i < n; i++) y[i] = tow__min_f32(tow__max_f32(x[i], low[i]), high[i]);
}
SIMPLE(clamp)

/* Square and multiply, tile by tile, with the bits of the scalar loop: the exponent is the same for all elements. */
TOW__CLONES static void integer_pow_tile(int64_t n, void *const *out, const void *const *in, const void *params)
{
    int64_t exponent = ((const tow__integer_pow_params *)params)->exponent;
    const f32 *x = in[0];
    f32 *y = out[0];
    if (exponent == 2) { /* nearly always */
        TOW__VECTORIZE
        for (int64_t i = 0; i < n; i++) y[i] = x[i] * x[i];
        return;
    }
    for (int64_t start = 0; start < n; start += TOW__TILE) {
        int64_t length = tow__min(TOW__TILE, n - start);
        f32 power[TOW__TILE], result[TOW__TILE];
        for (int64_t i = 0; i < length; i++) power[i] = x[start + i], result[i] = 1;
        for (uint64_t e = exponent < 0 ? 0 - (uint64_t)exponent : (uint64_t)exponent; e != 0; e >>= 1) {
            if (e & 1)
                for (int64_t i = 0; i < length; i++) result[i] *= power[i];
            for (int64_t i = 0; i < length; i++) power[i] *= power[i];
        }
        if (exponent < 0)
            for (int64_t i = 0; i < length; i++) result[i] = 1.0f / result[i];
        for (int64_t i = 0; i < length; i++) y[start + i] = result[i];
    }
}
SIMPLE(integer_pow)

/* ---- gelu and its derivative ------------------------------------------------------------------------------------- */

#define GELU(name)                                                                                                     \
    TOW__CLONES static void name##_tile(int64_t n, void *const *out, const void *const *in, const void *params)        \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const f32 *x = in[0];                                                                                          \
        f32 *y = out[0];                                                                                               \
        TOW__VECTORIZE                                                                                                 \
        for (int64_t i = 0; i < n; i++) y[i] = tow__##name##_f32(x[i]);                                                \
    }
GELU(gelu_tanh)
GELU(gelu_erf)
GELU(gelu_tanh_slope)
GELU(gelu_erf_slope)

static bool approximate(const tow__kernel_call *call) { return ((const tow__gelu_params *)call->params)->approximate; }

static tow__tile pick_gelu(const tow__kernel_call *call) { return approximate(call) ? gelu_tanh_tile : gelu_erf_tile; }

static tow__tile pick_gelu_grad(const tow__kernel_call *call)
{
    return approximate(call) ? gelu_tanh_slope_tile : gelu_erf_slope_tile;
}

/* ---- sine and cosine: tiles with an element beyond what vector code can reduce take the scalar way --------------- */

TOW__CLONES static bool within(int64_t n, const f32 *x, f32 limit)
{
    i32 beyond = 0;
    for (int64_t i = 0; i < n; i++) beyond |= !(fabsf(x[i]) <= limit);
    return !beyond;
}

#define SINE(name, first)                                                                                              \
    TOW__CLONES static void name##_vector(int64_t n, f32 *y, const f32 *x)                                             \
    {                                                                                                                  \
        TOW__VECTORIZE                                                                                                 \
        for (int64_t i = 0; i < n; i++) y[i] = tow__##name##_f32(x[i]);                                                \
    }                                                                                                                  \
    static void name##_tile(int64_t n, void *const *out, const void *const *in, const void *params)                    \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const f32 *x = in[0];                                                                                          \
        f32 *y = out[0];                                                                                               \
        if (within(n, x, TOW__TURN_LIMIT)) {                                                                           \
            name##_vector(n, y, x);                                                                                    \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            tow__turned t = fabsf(x[i]) <= TOW__TURN_LIMIT ? tow__turn(x[i]) : tow__turn_large(x[i]);                  \
            y[i] = tow__sin_turned(t.r, t.quadrant + (first));                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    SIMPLE(name)
SINE(sin, 0)
SINE(cos, 1)

#define NAMES(X)                                                                                                       \
    X(abs)                                                                                                             \
    X(add)                                                                                                             \
    X(ceil)                                                                                                            \
    X(clamp)                                                                                                           \
    X(cos)                                                                                                             \
    X(div)                                                                                                             \
    X(eq)                                                                                                              \
    X(erf)                                                                                                             \
    X(erf_inv)                                                                                                         \
    X(exp)                                                                                                             \
    X(expm1)                                                                                                           \
    X(floor)                                                                                                           \
    X(ge)                                                                                                              \
    X(gelu)                                                                                                            \
    X(gelu_grad)                                                                                                       \
    X(gt)                                                                                                              \
    X(integer_pow)                                                                                                     \
    X(le)                                                                                                              \
    X(log)                                                                                                             \
    X(log1p)                                                                                                           \
    X(logistic)                                                                                                        \
    X(lt)                                                                                                              \
    X(max)                                                                                                             \
    X(min)                                                                                                             \
    X(mul)                                                                                                             \
    X(ne)                                                                                                              \
    X(neg)                                                                                                             \
    X(relu)                                                                                                            \
    X(round)                                                                                                           \
    X(rsqrt)                                                                                                           \
    X(select)                                                                                                          \
    X(sign)                                                                                                            \
    X(silu)                                                                                                            \
    X(silu_grad)                                                                                                       \
    X(sin)                                                                                                             \
    X(sqrt)                                                                                                            \
    X(square)                                                                                                          \
    X(sub)                                                                                                             \
    X(tanh)
#define X(name)                                                                                                        \
    static void run_##name(const tow__kernel_call *call) { tow__map(call, pick_##name(call)); }
NAMES(X)
#undef X

static const tow__kernel kernels[] = {
#define X(name)                                                                                                        \
    {.primitive = #name,                                                                                               \
     .dtypes = 1 << TOW_F32,                                                                                           \
     .run = run_##name,                                                                                                \
     .engine = "vector",                                                                                               \
     .function = TOW__FN_##name,                                                                                       \
     .state_bytes = sizeof(tow__map_layout),                                                                           \
     .prepare = tow__map_prepare},
    NAMES(X)
#undef X
};
const tow__kernel_table tow__kernels_elementwise = {kernels, sizeof kernels / sizeof kernels[0]};

static const tow__pick picks[] = {
#define X(name) pick_##name,
    NAMES(X)
#undef X
};
const tow__pick *const tow__picks_elementwise = picks;
