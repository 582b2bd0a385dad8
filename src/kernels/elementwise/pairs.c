/* Two functions as one tile function: two arithmetic ones, of which one reads what the other makes, or a sum and a
 * function of it (half the calls of a row program, and no tile between them), or gelu and its slope, which have an
 * exponential in common. Each rounds as it does alone. */
#include "src/kernels/elementwise/pairs.h"

#include <string.h>

#include "src/kernels/math_f32.h"

/* X(name, operands, value): t = first(x [, y]) */
#define FIRST(X)                                                                                                       \
    X(add, 2, x + y)                                                                                                   \
    X(sub, 2, x - y)                                                                                                   \
    X(mul, 2, x *y)                                                                                                    \
    X(neg, 1, -x)
/* X(first, operands of it, t, name, operand that t is, value): second(t, w) or second(w, t) */
#define SECOND(X, first, n, t)                                                                                         \
    X(first, n, t, add, 0, (t) + w)                                                                                    \
    X(first, n, t, add, 1, w + (t))                                                                                    \
    X(first, n, t, sub, 0, (t)-w)                                                                                      \
    X(first, n, t, sub, 1, w - (t))                                                                                    \
    X(first, n, t, mul, 0, (t)*w)                                                                                      \
    X(first, n, t, mul, 1, w *(t))

#define PAIR(first, n_in, t, second, place, value)                                                                     \
    TOW__CLONES static void first##_##second##_##place(int64_t n, void *const *out, const void *const *in,             \
                                                       const void *params)                                             \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const f32 *px = in[0], *py = in[n_in - 1], *pw = in[n_in];                                                     \
        f32 *z = out[0];                                                                                               \
        TOW__VECTORIZE                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const f32 x = px[i], y = py[i], w = pw[i];                                                                 \
            (void)y;                                                                                                   \
            z[i] = (value);                                                                                            \
        }                                                                                                              \
    }
#define PAIRS(first, n, t) SECOND(PAIR, first, n, t)
FIRST(PAIRS)

/* X(function, value): a bias and an activation */
#define OF_SUM(X)                                                                                                      \
    X(tanh, tow__tanh_f32(t))                                                                                          \
    X(logistic, tow__logistic_f32(t))                                                                                  \
    X(silu, tow__silu_f32(t))                                                                                          \
    X(relu, t <= 0 ? 0.0f : t)
#define SUM_THEN(function, value)                                                                                      \
    TOW__CLONES static void add_##function(int64_t n, void *const *out, const void *const *in, const void *params)     \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const f32 *px = in[0], *py = in[1];                                                                            \
        f32 *z = out[0];                                                                                               \
        TOW__VECTORIZE                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const f32 t = px[i] + py[i];                                                                               \
            z[i] = (value);                                                                                            \
        }                                                                                                              \
    }
OF_SUM(SUM_THEN)

static const struct {
    tow__function first, second;
    int place;
    tow__tile tile;
} pairs[] = {
#define SUM_ROW(function, value) {TOW__FN_add, TOW__FN_##function, 0, add_##function},
    OF_SUM(SUM_ROW)
#define ROW(first, n, t, second, place, value) {TOW__FN_##first, TOW__FN_##second, place, first##_##second##_##place},
#define ROWS(first, n, t)                      SECOND(ROW, first, n, t)
        FIRST(ROWS)};

tow__tile tow__pair_tile(tow__function first, tow__function second, int place)
{
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (pairs[i].place == place && pairs[i].first == first && pairs[i].second == second) return pairs[i].tile;
    return NULL;
}

/* Value and slope of the same element; either may take its memory. (Those of silu have too little in common.) */
#define WITH_SLOPE(gelu)                                                                                               \
    TOW__CLONES static void gelu##_with_slope(int64_t n, void *const *out, const void *const *in, const void *params)  \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const f32 *px = in[0];                                                                                         \
        f32 *y = out[0], *dy = out[1];                                                                                 \
        TOW__VECTORIZE                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const f32 x = px[i];                                                                                       \
            y[i] = tow__##gelu##_f32(x);                                                                               \
            dy[i] = tow__##gelu##_slope_f32(x);                                                                        \
        }                                                                                                              \
    }
WITH_SLOPE(gelu_tanh)
WITH_SLOPE(gelu_erf)

/* NULL: these are not a function and its slope that have one. */
static tow__tile with_slope_tile(const tow__fused_op *value, const tow__fused_op *slope)
{
    if (value->function != TOW__FN_gelu || slope->function != TOW__FN_gelu_grad) return NULL;
    bool approximate = ((const tow__gelu_params *)value->params)->approximate;
    if (approximate != ((const tow__gelu_params *)slope->params)->approximate) return NULL;
    return approximate ? gelu_tanh_with_slope : gelu_erf_with_slope;
}

/* The op that reads value v, which ops[i] makes, if it is the only one and can take the op's place; else n. *place: as
 * which operand. */
static uint32_t only_reader(const tow__fused_op *ops, uint32_t n, uint32_t i, int *place)
{
    const tow__fused_op *made = &ops[i];
    uint32_t reader = n;
    bool gone = false; /* an operand of ops[i] has been overwritten */
    for (uint32_t k = i + 1; k < n; k++) {
        for (int j = 0; j < ops[k].n_in; j++) {
            if (ops[k].in[j] != made->out[0]) continue;
            if (reader != n || gone) return n;
            reader = k;
            *place = j;
        }
        for (int j = 0; j < ops[k].n_out; j++) {
            if (ops[k].out[j] == made->out[0]) return reader;
            for (int x = 0; x < made->n_in; x++) gone |= ops[k].out[j] == made->in[x];
        }
    }
    return reader;
}

static bool is_single(const tow__fused_op *op) { return op->dtype == TOW_F32 && op->n_out == 1 && !op->first; }

static bool writes(const tow__fused_op *op, uint8_t value)
{
    return op->out[0] == value || (op->n_out > 1 && op->out[1] == value);
}

static bool touches(const tow__fused_op *op, uint8_t value)
{
    for (int j = 0; j < op->n_in; j++)
        if (op->in[j] == value) return true;
    return writes(op, value);
}

/* ops[k] reads what ops[i] reads, and could as well run right after it. */
static bool runs_beside(const tow__fused_op *ops, uint32_t i, uint32_t k)
{
    const uint8_t x = ops[i].in[0];
    if (ops[k].in[0] != x || writes(&ops[i], x) || writes(&ops[i], ops[k].out[0])) return false;
    for (uint32_t j = i + 1; j < k; j++)
        if (touches(&ops[j], ops[k].out[0]) || writes(&ops[j], x)) return false;
    return true;
}

static bool is_function(const tow__fused_op *op) { return is_single(op) && op->n_in == 1; }

/* A function and its slope, in whatever order. */
static uint32_t join_slopes(tow__fused_op *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = i + 1; k < n && is_function(&ops[i]); k++) {
            if (!is_function(&ops[k]) || !runs_beside(ops, i, k)) continue;
            tow__tile forward = with_slope_tile(&ops[i], &ops[k]), backward = with_slope_tile(&ops[k], &ops[i]);
            if (!forward && !backward) continue;
            const tow__fused_op value = forward ? ops[i] : ops[k], slope = forward ? ops[k] : ops[i];
            ops[i] = slope;
            ops[i].tile = forward ? forward : backward;
            ops[i].first = value.function;
            ops[i].n_out = 2;
            ops[i].out[0] = value.out[0], ops[i].out[1] = slope.out[0];
            memmove(&ops[k], &ops[k + 1], (n - k - 1) * sizeof *ops);
            n--;
        }
    }
    return n;
}

uint32_t tow__join_pairs(tow__fused_op *ops, uint32_t n, uint32_t first_temp)
{
    for (uint32_t i = 0; i < n;) {
        int place = 0;
        const tow__fused_op a = ops[i];
        uint32_t at = is_single(&a) && a.out[0] >= first_temp ? only_reader(ops, n, i, &place) : n;
        tow__fused_op *b = &ops[at];
        tow__tile tile = at < n && is_single(b) ? tow__pair_tile(a.function, b->function, place) : NULL;
        if (!tile) {
            i++;
            continue;
        }
        const uint8_t others = (uint8_t)(b->n_in - 1), other = b->in[others - place];
        b->tile = tile;
        b->first = a.function;
        b->n_in = (uint8_t)(a.n_in + others);
        memcpy(b->in, a.in, a.n_in);
        if (others) b->in[a.n_in] = other;
        memmove(&ops[i], &ops[i + 1], (n - i - 1) * sizeof *ops);
        n--;
    }
    return join_slopes(ops, n);
}
