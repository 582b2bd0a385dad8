/* Reductions and argmax.
 * Tests kernels/reference/reduce.c. */
#include <math.h>

#include "tests/property/property.h"

/* Folds x along the axes of the params, from `start`. */
static void fold(const property_case *c, const double *x, double *y, double start, double (*step)(double a, double b))
{
    const tow__ints *axes = &((const tow__axes_params *)c->params)->axes;
    const property_input *in = &c->in[0];
    int64_t results = 1;
    for (int d = 0; d < in->rank; d++) {
        bool reduced = false;
        for (int k = 0; k < axes->n; k++) reduced = reduced || axes->v[k] == d;
        if (!reduced) results *= in->dims[d];
    }
    for (int64_t i = 0; i < results; i++) y[i] = start;
    for (int64_t i = 0; i < property_count(in); i++) {
        int64_t at = 0;
        for (int d = 0; d < in->rank; d++) {
            bool reduced = false;
            for (int k = 0; k < axes->n; k++) reduced = reduced || axes->v[k] == d;
            const property_axis a = property_axis_of(in, d);
            if (!reduced) at = at * in->dims[d] + i / a.after % a.size;
        }
        y[at] = step(y[at], x[i]);
    }
}

static double plus(double a, double b) { return a + b; }
static double times(double a, double b) { return a * b; }
static double and_bits(double a, double b) { return (uint32_t)a & (uint32_t)b; }
static double or_bits(double a, double b) { return (uint32_t)a | (uint32_t)b; }
static double xor_bits(double a, double b) { return (uint32_t)a ^ (uint32_t)b; }

static void sum(const property_case *c, double *const *in, double *const *out) { fold(c, in[0], out[0], 0, plus); }
static void product(const property_case *c, double *const *in, double *const *out) { fold(c, in[0], out[0], 1, times); }
static void most(const property_case *c, double *const *in, double *const *out)
{
    fold(c, in[0], out[0], -INFINITY, fmax);
}
static void least(const property_case *c, double *const *in, double *const *out)
{
    fold(c, in[0], out[0], INFINITY, fmin);
}
static void all_bools(const property_case *c, double *const *in, double *const *out)
{
    fold(c, in[0], out[0], 1, and_bits);
}
static void any(const property_case *c, double *const *in, double *const *out) { fold(c, in[0], out[0], 0, or_bits); }
static void parity(const property_case *c, double *const *in, double *const *out)
{
    fold(c, in[0], out[0], 0, xor_bits);
}
static void all_words(const property_case *c, double *const *in, double *const *out)
{
    fold(c, in[0], out[0], 4294967295.0, and_bits);
}

static void least_number(const property_case *c, double *const *in, double *const *out)
{
    fold(c, in[0], out[0], -2147483648.0, fmax);
}
static void greatest_byte(const property_case *c, double *const *in, double *const *out)
{
    fold(c, in[0], out[0], 255, fmin);
}

static void first_maximum(const property_case *c, double *const *in, double *const *out)
{
    const property_axis a = property_axis_of(&c->in[0], ((const tow__axis_params *)c->params)->axis);
    for (int64_t i = 0; i < a.before; i++)
        for (int64_t k = 0; k < a.after; k++) {
            int64_t best = 0;
            for (int64_t j = 1; j < a.size; j++)
                if (in[0][(i * a.size + j) * a.after + k] > in[0][(i * a.size + best) * a.after + k]) best = j;
            out[0][i * a.after + k] = (double)best;
        }
}

static const tow__axes_params last = {INTS(2)}, middle = {INTS(1)}, first = {INTS(0)}, outer = {INTS(0, 2)},
                              every = {INTS(0, 1, 2)};
static const tow__axes_params only = {INTS(0)}, rows = {INTS(1)};
static const tow__axis_params axis0 = {0}, axis1 = {1};

#define CUBE                                                                                                           \
    {                                                                                                                  \
        .dtype = TOW_F64, S3(2, 3, 4)                                                                                  \
    }
#define FOLD(name, function)                                                                                           \
    {.primitive = name, .label = "last axis", .params = &last, .n_in = 1, .value = function, .in = {CUBE}},            \
        {.primitive = name, .label = "middle axis", .params = &middle, .n_in = 1, .value = function, .in = {CUBE}},    \
        {.primitive = name, .label = "first axis", .params = &first, .n_in = 1, .value = function, .in = {CUBE}},      \
        {.primitive = name, .label = "outer axes", .params = &outer, .n_in = 1, .value = function, .in = {CUBE}},      \
    {                                                                                                                  \
        .primitive = name, .label = "all axes", .params = &every, .n_in = 1, .value = function, .in = {CUBE},          \
        .loose = 4                                                                                                     \
    }
#define LOGIC(name, bools, words)                                                                                      \
    {.primitive = name,                                                                                                \
     .label = "bool",                                                                                                  \
     .params = &rows,                                                                                                  \
     .n_in = 1,                                                                                                        \
     .value = bools,                                                                                                   \
     .in = {{.dtype = TOW_BOOL, S2(8, 3)}}},                                                                           \
    {                                                                                                                  \
        .primitive = name, .label = "u32", .params = &only, .n_in = 1, .value = words, .in = {                         \
            {.dtype = TOW_U32, S2(2, 5), .low = 0, .high = 4294967295.0}                                               \
        }                                                                                                              \
    }

static const property_case cases[] = {
    FOLD("reduce_sum", sum),
    FOLD("reduce_max", most),
    FOLD("reduce_min", least),
    FOLD("reduce_prod", product),
    LOGIC("reduce_and", all_bools, all_words),
    LOGIC("reduce_or", any, any),
    LOGIC("reduce_xor", parity, parity),
    {.primitive = "reduce_sum",
     .label = "long",
     .params = &only,
     .n_in = 1,
     .value = sum,
     .loose = 40,
     .no_derivative = true,
     .in = {{.dtype = TOW_F64, S1(5003)}}},
    {.primitive = "reduce_sum",
     .label = "nothing",
     .params = &only,
     .n_in = 1,
     .value = sum,
     .in = {{.dtype = TOW_F64, S2(0, 3)}}},
    {.primitive = "reduce_max",
     .label = "nothing",
     .params = &only,
     .n_in = 1,
     .value = most,
     .no_derivative = true, /* differences of infinities */
     .in = {{.dtype = TOW_F64, S2(0, 3)}}},
    {.primitive = "reduce_min",
     .label = "nothing",
     .params = &only,
     .n_in = 1,
     .value = least,
     .no_derivative = true, /* differences of infinities */
     .in = {{.dtype = TOW_F64, S2(0, 3)}}},
    {.primitive = "reduce_max",
     .label = "no i32",
     .params = &rows,
     .n_in = 1,
     .value = least_number,
     .in = {{.dtype = TOW_I32, S2(3, 0)}}},
    {.primitive = "reduce_min",
     .label = "no u8",
     .params = &rows,
     .n_in = 1,
     .value = greatest_byte,
     .in = {{.dtype = TOW_U8, S2(3, 0)}}},
    {.primitive = "reduce_sum",
     .label = "i32",
     .params = &rows,
     .n_in = 1,
     .value = sum,
     .in = {{.dtype = TOW_I32, S2(3, 9), .low = -9, .high = 9}}},
    {.primitive = "argmax",
     .params = &axis1,
     .n_in = 1,
     .value = first_maximum,
     .in = {{.dtype = TOW_F64, S3(2, 5, 3)}}},
    {.primitive = "argmax",
     .label = "first of equals",
     .params = &axis0,
     .n_in = 1,
     .value = first_maximum,
     .in = {{.dtype = TOW_I32, S2(9, 4)}}},
};

const property_table reduction_cases = TABLE(cases);
