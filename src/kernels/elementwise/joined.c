/* Ops that become one tile function: two arithmetic ones, of which one reads what the other makes; a sum and a function
 * of it; gelu and its slope, which have an exponential in common; and the longer expressions of optimizers, which are
 * averages of moments, the direction of Adam and a step along it. Each operation rounds as it does alone.
 *
 * A joined op is an op like others, so it may be joined again: rows of the table below name what is joined by function
 * and by row. Its operands are those of the op that is evaluated first, then those of the other one but for what the
 * first one made. */
#include "src/kernels/elementwise/joined.h"

#include <math.h>
#include <string.h>

#include "src/kernels/math_f32.h"

/* ---- two ops ----------------------------------------------------------------------------------------------------- */

/* X(name, operands, value): t = first(x [, y]); of the powers, squares alone */
#define FIRST(X)                                                                                                       \
    X(add, 2, x + y)                                                                                                   \
    X(sub, 2, x - y)                                                                                                   \
    X(mul, 2, x *y)                                                                                                    \
    X(neg, 1, -x)                                                                                                      \
    X(integer_pow, 1, x *x)
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

/* ---- more of them ------------------------------------------------------------------------------------------------ */

/* X(name, what makes t, the row that joined it, what reads t, the row that joined that, which of its operands t is,
 * operands in all, SCALARS(operands that are often one number, each as a bit), value); ALONE: it is a single
 * function. */
#define A 1
#define B 2
#define C 4
#define D 8
#define E 16
#define AVERAGES(X)                                                                                                    \
    X(products_0, mul, ALONE, add, mul_add_0, 2, 4, B | D, c * d + a * b)                                              \
    X(products_1, mul, ALONE, add, mul_add_1, 2, 4, B | D, a * b + c * d)                                              \
    X(product_of_three_0_0, mul, mul_mul_0, add, mul_add_0, 2, 5, C | E, d * e + a * b * c)                            \
    X(product_of_three_0_1, mul, mul_mul_0, add, mul_add_1, 2, 5, C | E, a * b * c + d * e)                            \
    X(product_of_three_1_0, mul, mul_mul_1, add, mul_add_0, 2, 5, C | E, d * e + c * (a * b))                          \
    X(product_of_three_1_1, mul, mul_mul_1, add, mul_add_1, 2, 5, C | E, c * (a * b) + d * e)                          \
    X(square_and_product_0_0, mul, integer_pow_mul_0, add, mul_add_0, 2, 4, B | D, c * d + a * a * b)                  \
    X(square_and_product_0_1, mul, integer_pow_mul_0, add, mul_add_1, 2, 4, B | D, a * a * b + c * d)                  \
    X(square_and_product_1_0, mul, integer_pow_mul_1, add, mul_add_0, 2, 4, B | D, c * d + b * (a * a))                \
    X(square_and_product_1_1, mul, integer_pow_mul_1, add, mul_add_1, 2, 4, B | D, b * (a * a) + c * d)
#define DIRECTIONS(X)                                                                                                  \
    X(div_sqrt, div, ALONE, sqrt, ALONE, 0, 2, B, sqrtf(a / b))                                                        \
    X(div_sqrt_add, sqrt, div_sqrt, add, ALONE, 0, 3, B | C, sqrtf(a / b) + c)                                         \
    X(over_div_sqrt_add, add, div_sqrt_add, div, ALONE, 1, 4, B | C, d / (sqrtf(a / b) + c))                           \
    X(div_over_div_sqrt_add, div, ALONE, div, over_div_sqrt_add, 3, 5, B | D | E, a / b / (sqrtf(c / d) + e))          \
    X(sqrt_add, sqrt, ALONE, add, ALONE, 0, 2, B, sqrtf(a) + b)                                                        \
    X(over_sqrt_add, add, sqrt_add, div, ALONE, 1, 3, B, c / (sqrtf(a) + b))
#define STEPS(X)                                                                                                       \
    X(step_0_0_0, add, mul_add_0, add, mul_add_0, 0, 5, B | D, (a * b + c) * d + e)                                    \
    X(step_0_0_1, add, mul_add_0, add, mul_add_0, 1, 5, B | D, d * (a * b + c) + e)                                    \
    X(step_0_1_0, add, mul_add_0, add, mul_add_1, 0, 5, B | D, e + (a * b + c) * d)                                    \
    X(step_0_1_1, add, mul_add_0, add, mul_add_1, 1, 5, B | D, e + d * (a * b + c))                                    \
    X(step_1_0_0, add, mul_add_1, add, mul_add_0, 0, 5, B | D, (c + a * b) * d + e)                                    \
    X(step_1_0_1, add, mul_add_1, add, mul_add_0, 1, 5, B | D, d * (c + a * b) + e)                                    \
    X(step_1_1_0, add, mul_add_1, add, mul_add_1, 0, 5, B | D, e + (c + a * b) * d)                                    \
    X(step_1_1_1, add, mul_add_1, add, mul_add_1, 1, 5, B | D, e + d * (c + a * b))
#define LONGER(X) AVERAGES(X) DIRECTIONS(X) STEPS(X)

/* Operands in `scalars` have the same number everywhere. */
#define TILE(name, n_in, scalars, value)                                                                               \
    TOW__CLONES static void name(int64_t n, void *const *out, const void *const *in, const void *params)               \
    {                                                                                                                  \
        (void)params;                                                                                                  \
        const f32 *pa = in[0], *pb = in[1], *pc = in[n_in > 2 ? 2 : 0], *pd = in[n_in > 3 ? 3 : 0],                    \
                  *pe = in[n_in > 4 ? 4 : 0];                                                                          \
        const f32 sb = *pb, sc = *pc, sd = *pd, se = *pe;                                                              \
        f32 *z = out[0];                                                                                               \
        TOW__VECTORIZE                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const f32 a = pa[i], b = (scalars)&B ? sb : pb[i], c = (scalars)&C ? sc : pc[i];                           \
            const f32 d = (scalars)&D ? sd : pd[i], e = (scalars)&E ? se : pe[i];                                      \
            (void)a, (void)b, (void)c, (void)d, (void)e;                                                               \
            z[i] = (value);                                                                                            \
        }                                                                                                              \
    }
#define TILES(name, first, joined1, second, joined2, place, n_in, scalars, value)                                      \
    TILE(name, n_in, 0, value)                                                                                         \
    TILE(name##_of_scalars, n_in, scalars, value)
LONGER(TILES)

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* Rows by name; what an op has in .joined. */
enum {
    J_ALONE,
#define SUM_ROW(function, value) J_add_##function,
    OF_SUM(SUM_ROW)
#undef SUM_ROW
#define ROW(first, n, t, second, place, value) J_##first##_##second##_##place,
#define ROWS(first, n, t)                      SECOND(ROW, first, n, t)
    FIRST(ROWS)
#undef ROW
#define ROW(name, ...) J_##name,
        LONGER(ROW)
#undef ROW
            J_with_slope
};

/* Pairs of an operation and the one that reads its result as operand `place`. */
static const struct {
    uint8_t first, first_joined, second, second_joined;
    int place;
    tow__tile tile;
    tow__tile of_scalars; /* where the operands `scalars` are one number each; NULL: there is none */
    uint8_t scalars;
} table[] = {[J_ALONE] = {0},
#define SUM_ROW(function, value)                                                                                       \
    [J_add_##function] = {TOW__FN_add, J_ALONE, TOW__FN_##function, J_ALONE, 0, add_##function},
             OF_SUM(SUM_ROW)
#define ROW(first, n, t, second, place, value)                                                                         \
    [J_##first##_##second##_##                                                                                         \
        place] = {TOW__FN_##first, J_ALONE, TOW__FN_##second, J_ALONE, place, first##_##second##_##place},
                 FIRST(ROWS)
#undef ROW
#define ROW(name, first, joined1, second, joined2, place, n_in, scalars, value)                                        \
    [J_##name] = {TOW__FN_##first, J_##joined1, TOW__FN_##second, J_##joined2, place, name, name##_of_scalars, scalars},
                     LONGER(ROW)
#undef ROW
                         [J_with_slope] = {TOW__FN_gelu, J_ALONE, TOW__FN_gelu_grad, J_ALONE, -1, NULL}};

enum {
    N_ROWS = sizeof table / sizeof table[0]
};

/* The row that joins a with b, which reads its result as operand `place`; J_ALONE: there is none. */
static uint8_t find_row(const tow__fused_op *a, const tow__fused_op *b, int place)
{
    if (a->function == TOW__FN_integer_pow && ((const tow__integer_pow_params *)a->params)->exponent != 2)
        return J_ALONE;
    for (uint8_t i = 1; i < N_ROWS; i++)
        if (table[i].place == place && table[i].first == a->function && table[i].first_joined == a->joined &&
            table[i].second == b->function && table[i].second_joined == b->joined)
            return i;
    return J_ALONE;
}

static uint32_t add_functions(uint8_t function, uint8_t joined, tow__function *functions, uint32_t n)
{
    if (joined == J_ALONE) {
        functions[n] = (tow__function)function;
        return n + 1;
    }
    n = add_functions(table[joined].first, table[joined].first_joined, functions, n);
    return add_functions(table[joined].second, table[joined].second_joined, functions, n);
}

uint32_t tow__op_functions(const tow__fused_op *op, tow__function functions[TOW__JOINED_FUNCTIONS])
{
    return add_functions((uint8_t)op->function, op->joined, functions, 0);
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

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

static bool is_single(const tow__fused_op *op) { return op->dtype == TOW_F32 && op->n_out == 1; }

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

static bool is_function(const tow__fused_op *op) { return is_single(op) && op->joined == J_ALONE && op->n_in == 1; }

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
            ops[i].joined = J_with_slope;
            ops[i].n_out = 2;
            ops[i].out[0] = value.out[0], ops[i].out[1] = slope.out[0];
            memmove(&ops[k], &ops[k + 1], (n - k - 1) * sizeof *ops);
            n--;
        }
    }
    return n;
}

/* *b, which reads what a makes as operand `place`, becomes both. */
static void join(const tow__fused_op *a, tow__fused_op *b, int place, uint8_t row)
{
    uint8_t in[TOW__FUSED_ARITY], n = 0;
    for (int j = 0; j < a->n_in; j++) in[n++] = a->in[j];
    for (int j = 0; j < b->n_in; j++)
        if (j != place) in[n++] = b->in[j];
    memcpy(b->in, in, n);
    b->n_in = n;
    b->joined = row;
    b->tile = table[row].tile;
}

static bool takes_single(const tow__fused_op *op, int operand)
{
    return op->tile == table[op->joined].of_scalars && table[op->joined].scalars >> operand & 1;
}

/* Operands that are one number each need no tiles: repeated[value] becomes whether all readers of the value are
 * such. */
static void take_scalars(tow__fused_op *ops, uint32_t n, bool *repeated)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t row = ops[i].joined;
        bool all = table[row].of_scalars != NULL;
        for (int j = 0; j < ops[i].n_in; j++) all &= !(table[row].scalars >> j & 1) || repeated[ops[i].in[j]];
        if (all) ops[i].tile = table[row].of_scalars;
    }
    for (uint32_t i = 0; i < n; i++)
        for (int j = 0; j < ops[i].n_in; j++) repeated[ops[i].in[j]] &= takes_single(&ops[i], j);
}

uint32_t tow__join_ops(tow__fused_op *ops, uint32_t n, uint32_t first_temp, bool *repeated)
{
    for (bool again = true; again;) { /* what was joined may be joined with what comes before it */
        again = false;
        for (uint32_t i = 0; i < n;) {
            int place = 0;
            const tow__fused_op a = ops[i];
            uint32_t at = is_single(&a) && a.out[0] >= first_temp ? only_reader(ops, n, i, &place) : n;
            uint8_t row = at < n && is_single(&ops[at]) ? find_row(&a, &ops[at], place) : J_ALONE;
            if (row == J_ALONE) {
                i++;
                continue;
            }
            join(&a, &ops[at], place, row);
            memmove(&ops[i], &ops[i + 1], (n - i - 1) * sizeof *ops);
            n--;
            again = true;
        }
    }
    take_scalars(ops, n, repeated);
    return join_slopes(ops, n);
}
