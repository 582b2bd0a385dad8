/* Comparisons, logic, bits, integer arithmetic, sources. A double holds every 32-bit integer exactly. */
#include <math.h>
#include <string.h>

#include "tests/property/property.h"

static double eq(double x, double y) { return x == y; }
static double ne(double x, double y) { return x != y; }
static double lt(double x, double y) { return x < y; }
static double le(double x, double y) { return x <= y; }
static double gt(double x, double y) { return x > y; }
static double ge(double x, double y) { return x >= y; }

static uint32_t bits(double x) { return (uint32_t)x; }
static double and_bits(double x, double y) { return bits(x) & bits(y); }
static double or_bits(double x, double y) { return bits(x) | bits(y); }
static double xor_bits(double x, double y) { return bits(x) ^ bits(y); }
static double left(double x, double y) { return (uint32_t)(bits(x) << bits(y)); }
static double right(double x, double y) { return bits(x) >> bits(y); }
static int32_t as_signed(double x) { return (int32_t)bits(x); }
static double right_arithmetic(double x, double y)
{
    const int64_t shifted = as_signed(x) / ((int64_t)1 << (int)y) - (as_signed(x) % ((int64_t)1 << (int)y) < 0);
    return (uint32_t)shifted;
}
static double floor_quotient(double x, double y) { return floor(ldexp(x, -(int)y)); }
static double set_bits(double x)
{
    int n = 0;
    for (int i = 0; i < 32; i++) n += (bits(x) >> i & 1) != 0;
    return n;
}
static double leading_zeros(double x) { return x == 0 ? 32 : 31 - ilogb(x); }
static double not_bits(double x) { return (uint32_t)~bits(x); }
static double not_bool(double x) { return x == 0; }
static double add_wrapping(double x, double y) { return (uint32_t)(bits(x) + bits(y)); }
static double mul_wrapping(double x, double y) { return (uint32_t)(bits(x) * bits(y)); }
static double sub_signed(double x, double y) { return x - y; }
static double quotient(double x, double y) { return trunc(x / y); }

static double float_bits(double x)
{
    const float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static void count_axis1(const property_case *c, double *const *in, double *const *out)
{
    (void)c, (void)in;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 2; k++) out[0][(i * 4 + j) * 2 + k] = j;
}

/* const [[1.5, -2], [0.25, 8]], recorded by value */
static const double constant_data[] = {1.5, -2, 0.25, 8};

static void record_constant(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    (void)in, (void)c;
    out[0] = tow_constant_data(trace, tow_make_type(TOW_F64, 2, (int64_t[]){2, 2}), constant_data);
}

static void constant_value(const property_case *c, double *const *in, double *const *out)
{
    (void)c, (void)in;
    memcpy(out[0], constant_data, sizeof constant_data);
}

static const tow__dtype_params to_u32 = {TOW_U32};
static const tow__iota_params counting = {.dtype = TOW_I32, .shape = INTS(3, 4, 2), .axis = 1};
static const tow__iota_params counting_f32 = {.dtype = TOW_F32, .shape = INTS(3, 4, 2), .axis = 1};

#define FLOATS                                                                                                         \
    {                                                                                                                  \
        .dtype = TOW_F64, S2(3, 5)                                                                                     \
    }
#define SMALL                                                                                                          \
    {                                                                                                                  \
        .dtype = TOW_I32, S1(12)                                                                                       \
    }
#define WORDS                                                                                                          \
    {                                                                                                                  \
        .dtype = TOW_U32, S1(12), .low = 0, .high = 4294967295.0                                                       \
    }
#define COMPARE(name)                                                                                                  \
    {.primitive = #name, .n_in = 2, .binary = name, .in = {FLOATS, FLOATS}},                                           \
    {                                                                                                                  \
        .primitive = #name, .label = "i32, many equal", .n_in = 2, .binary = name, .in = { SMALL, SMALL }              \
    }
#define BITS(text, function)                                                                                           \
    {.primitive = text, .n_in = 2, .binary = function, .in = {WORDS, WORDS}},                                          \
    {                                                                                                                  \
        .primitive = text, .label = "bool", .n_in = 2, .binary = function, .in = {                                     \
            {.dtype = TOW_BOOL, S1(12)},                                                                               \
            {.dtype = TOW_BOOL, S1(12)}                                                                                \
        }                                                                                                              \
    }
#define SHIFT(text, function)                                                                                          \
    {                                                                                                                  \
        .primitive = text, .n_in = 2, .binary = function, .in = {                                                      \
            WORDS,                                                                                                     \
            {.dtype = TOW_U32, S1(12), .low = 0, .high = 31}                                                           \
        }                                                                                                              \
    }

static const property_case cases[] = {
    COMPARE(eq),
    COMPARE(ne),
    COMPARE(lt),
    COMPARE(le),
    COMPARE(gt),
    COMPARE(ge),
    BITS("and", and_bits),
    BITS("or", or_bits),
    BITS("xor", xor_bits),
    SHIFT("shift_left", left),
    SHIFT("shift_right", right),
    SHIFT("shift_right_arithmetic", right_arithmetic),
    {.primitive = "shift_right_arithmetic",
     .label = "i32",
     .n_in = 2,
     .binary = floor_quotient,
     .in = {{.dtype = TOW_I32, S1(12), .low = -1000, .high = 1000}, {.dtype = TOW_I32, S1(12), .low = 0, .high = 31}}},
    {.primitive = "population_count", .n_in = 1, .unary = set_bits, .in = {WORDS}},
    {.primitive = "clz", .n_in = 1, .unary = leading_zeros, .in = {WORDS}},
    {.primitive = "clz",
     .label = "small numbers",
     .n_in = 1,
     .unary = leading_zeros,
     .in = {{.dtype = TOW_I32, S1(12), .low = 0, .high = 5}}},
    {.primitive = "not", .n_in = 1, .unary = not_bits, .in = {WORDS}},
    {.primitive = "not", .label = "bool", .n_in = 1, .unary = not_bool, .in = {{.dtype = TOW_BOOL, S1(12)}}},
    {.primitive = "add", .label = "u32 wraps", .n_in = 2, .binary = add_wrapping, .in = {WORDS, WORDS}},
    {.primitive = "mul", .label = "u32 wraps", .n_in = 2, .binary = mul_wrapping, .in = {WORDS, WORDS}},
    {.primitive = "sub", .label = "i32", .n_in = 2, .binary = sub_signed, .in = {SMALL, SMALL}},
    {.primitive = "div",
     .label = "i32, towards zero",
     .n_in = 2,
     .binary = quotient,
     .in = {{.dtype = TOW_I32, S1(12), .low = -50, .high = 50}, {.dtype = TOW_I32, S1(12), .low = 1, .high = 7}}},
    {.primitive = "rem",
     .label = "i32, sign of x",
     .n_in = 2,
     .binary = fmod,
     .in = {{.dtype = TOW_I32, S1(12), .low = -50, .high = 50}, {.dtype = TOW_I32, S1(12), .low = 1, .high = 7}}},
    {.primitive = "max", .label = "i32", .n_in = 2, .binary = fmax, .in = {SMALL, SMALL}},
    {.primitive = "bitcast",
     .label = "f32 to u32",
     .params = &to_u32,
     .n_in = 1,
     .unary = float_bits,
     .in = {{.dtype = TOW_F32, S1(8), .low = -5, .high = 5}}},
    {.primitive = "iota", .params = &counting, .value = count_axis1},
    {.primitive = "iota", .label = "f32", .params = &counting_f32, .value = count_axis1},
    {.primitive = "const", .build = record_constant, .value = constant_value},
};

const property_table integer_cases = TABLE(cases);
