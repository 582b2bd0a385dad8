/* Single elements by dtype: for texts, files, constants and arrays of the caller. Kernels have loops for each type. */
#include "src/base/base.h"
#include "src/base/blocks.h"
#include "src/base/numbers.h"

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static f64 load_float(tow_dtype dtype, const void *at)
{
    union {
        f32 single;
        f64 number;
        u32 bits;
        bf16 half;
    } v = {.number = 0};
    memcpy(&v, at, tow_dtype_size(dtype));
    if (dtype == TOW_F64) return v.number;
    if (dtype == TOW_F32) return (f64)v.single;
    return (f64)(dtype == TOW_BF16 ? tow__from_bf16(v.half) : tow__from_f16(v.half));
}

static i64 load_signed(tow_dtype dtype, const void *at)
{
    union {
        i8 byte;
        i32 word;
        i64 number;
    } v = {.number = 0};
    memcpy(&v, at, tow_dtype_size(dtype));
    return dtype == TOW_I8 ? v.byte : dtype == TOW_I32 ? v.word : v.number;
}

static u64 load_unsigned(tow_dtype dtype, const void *at)
{
    union {
        u8 byte;
        u32 word;
        u64 number;
    } v = {.number = 0};
    memcpy(&v, at, tow_dtype_size(dtype));
    return dtype == TOW_U64 ? v.number : dtype == TOW_U32 ? v.word : v.byte;
}

tow__element tow__load_element(tow_dtype dtype, const void *data, int64_t index)
{
    const void *at = (const char *)data + index * (int64_t)tow_dtype_size(dtype);
    tow__element e = {.kind = TOW__A_FLOAT};
    if (tow__is_blocks(dtype)) {
        e.f = (f64)tow__block_number(dtype, data, index);
    } else if (tow__dtype_in(dtype, TOW__FLOATS)) {
        e.f = load_float(dtype, at);
    } else if (tow__dtype_in(dtype, TOW__SIGNED)) {
        e.kind = TOW__A_SIGNED;
        e.i = load_signed(dtype, at);
        e.f = (f64)e.i;
    } else {
        e.kind = dtype == TOW_BOOL ? TOW__A_BOOL : TOW__AN_UNSIGNED;
        e.u = load_unsigned(dtype, at);
        e.f = (f64)e.u;
    }
    return e;
}

/* ---- storing ----------------------------------------------------------------------------------------------------- */

#define STORE(T, value)                                                                                                \
    do {                                                                                                               \
        const T stored = (value);                                                                                      \
        memcpy(at, &stored, sizeof stored);                                                                            \
    } while (0)

static void store_bits(tow_dtype dtype, void *at, u64 bits)
{
    if (tow_dtype_size(dtype) == 1)
        STORE(u8, (u8)bits);
    else if (tow_dtype_size(dtype) == 4)
        STORE(u32, (u32)bits);
    else
        STORE(u64, bits);
}

static void store_half(tow_dtype dtype, void *at, u32 odd)
{
    STORE(bf16, dtype == TOW_BF16 ? tow__bits_to_bf16(odd) : tow__bits_to_f16(odd));
}

static void store_value(tow_dtype dtype, void *at, f64 value)
{
    switch (dtype) {
#define X(symbol, T)                                                                                                   \
    case symbol:                                                                                                       \
        STORE(T, tow__to_##T(value));                                                                                  \
        break;
        TOW__INTEGER_TYPES(X)
#undef X
    case TOW_BOOL:
        STORE(b8, value != 0);
        break;
    case TOW_F32:
        STORE(f32, (f32)value);
        break;
    case TOW_F64:
        STORE(f64, value);
        break;
    case TOW_BF16:
    case TOW_F16:
        store_half(dtype, at, tow__odd_of_f64(value));
        break;
    case TOW_Q8_0: /* a number alone is no block */
    case TOW_Q4_0:
    case TOW_Q4_K:
    case TOW_Q6_K:
        break;
    }
}

void tow__store_element(tow_dtype dtype, void *data, int64_t index, f64 value)
{
    store_value(dtype, (char *)data + index * (int64_t)tow_dtype_size(dtype), value);
}

/* ---- converting -------------------------------------------------------------------------------------------------- */

/* Integers beyond 2^53 are no f64, so they go their own way: bits are cut off, floats are rounded once. */
static void convert_integer(tow_dtype dtype, void *at, tow__element e)
{
    const bool negative = e.kind == TOW__A_SIGNED && e.i < 0;
    const u64 bits = e.kind == TOW__A_SIGNED ? (u64)e.i : e.u;
    if (dtype == TOW_BOOL)
        STORE(b8, bits != 0);
    else if (tow__is_half(dtype))
        store_half(dtype, at, tow__odd_of_u64(negative ? 0 - bits : bits, negative));
    else if (dtype == TOW_F64)
        STORE(f64, e.f);
    else if (dtype == TOW_F32)
        STORE(f32, negative ? (f32)e.i : (f32)bits);
    else
        store_bits(dtype, at, bits);
}

static void make_blocks(tow_dtype dtype, void *to, tow_dtype from_dtype, const void *from, int64_t n)
{
    f32 numbers[TOW__MOST_BLOCK_NUMBERS];
    const int64_t size = (int64_t)tow_dtype_size(dtype), held = tow_dtype_numbers(dtype);
    if (from_dtype == TOW_F32) {
        tow__quantize_blocks(dtype, n / held, from, to);
        return;
    }
    for (int64_t i = 0; i < n / held; i++) {
        for (int64_t j = 0; j < held; j++) numbers[j] = (f32)tow__load_element(from_dtype, from, i * held + j).f;
        tow__quantize_blocks(dtype, 1, numbers, (char *)to + i * size);
    }
}

/* Whole files are converted so. */
#define CONVERT(to_symbol, To, from_symbol, From, expression)                                                          \
    static void from_symbol##_to_##to_symbol(void *to, const void *from, int64_t n)                                    \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            From x;                                                                                                    \
            memcpy(&x, (const char *)from + i * (int64_t)sizeof x, sizeof x);                                          \
            const To y = (expression);                                                                                 \
            memcpy((char *)to + i * (int64_t)sizeof y, &y, sizeof y);                                                  \
        }                                                                                                              \
    }
CONVERT(f32, f32, bf16, bf16, tow__from_bf16(x))
CONVERT(f32, f32, f16, f16, tow__from_f16(x))
CONVERT(bf16, bf16, f32, u32, tow__bits_to_bf16(x))
CONVERT(f16, f16, f32, u32, tow__bits_to_f16(x))
CONVERT(bf16, bf16, f16, f16, tow__bits_to_bf16(tow__bits_of_f32(tow__from_f16(x))))
CONVERT(f16, f16, bf16, bf16, tow__bits_to_f16(tow__bits_of_f32(tow__from_bf16(x))))

/* Between f32 and floats of 16 bits, or NULL. */
static void (*loop_of(tow_dtype to, tow_dtype from))(void *, const void *, int64_t)
{
    static const struct {
        tow_dtype to, from;
        void (*run)(void *, const void *, int64_t);
    } loops[] = {{TOW_F32, TOW_BF16, bf16_to_f32}, {TOW_F32, TOW_F16, f16_to_f32},   {TOW_BF16, TOW_F32, f32_to_bf16},
                 {TOW_F16, TOW_F32, f32_to_f16},   {TOW_BF16, TOW_F16, f16_to_bf16}, {TOW_F16, TOW_BF16, bf16_to_f16}};
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
        if (loops[i].to == to && loops[i].from == from) return loops[i].run;
    return NULL;
}

void tow__convert_elements(tow_dtype to_dtype, void *to, tow_dtype from_dtype, const void *from, int64_t n)
{
    const int64_t size = (int64_t)tow_dtype_size(to_dtype);
    if (to_dtype == from_dtype) {
        if (n > 0) memcpy(to, from, (size_t)(n / tow_dtype_numbers(to_dtype) * size));
        return;
    }
    if (tow__is_blocks(to_dtype)) {
        make_blocks(to_dtype, to, from_dtype, from, n);
        return;
    }
    if (tow__is_blocks(from_dtype) && to_dtype == TOW_F32) {
        tow__dequantize_blocks(from_dtype, n / tow_dtype_numbers(from_dtype), from, to);
        return;
    }
    void (*const loop)(void *, const void *, int64_t) = loop_of(to_dtype, from_dtype);
    if (loop) {
        loop(to, from, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const tow__element e = tow__load_element(from_dtype, from, i);
        if (e.kind == TOW__A_FLOAT)
            tow__store_element(to_dtype, to, i, e.f);
        else
            convert_integer(to_dtype, (char *)to + i * size, e);
    }
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

bool tow__dtype_holds(tow_dtype dtype, f64 value)
{
    const int bits = 8 * (int)tow_dtype_size(dtype);
    if (tow__dtype_in(dtype, TOW__FLOATS)) return true;
    if (tow__is_blocks(dtype)) return false;
    if (dtype == TOW_BOOL) return value == 0 || value == 1;
    if (value != floor(value)) return false;
    return tow__dtype_in(dtype, TOW__SIGNED) ? value >= -ldexp(1, bits - 1) && value < ldexp(1, bits - 1)
                                             : value >= 0 && value < ldexp(1, bits);
}

int tow__float_digits(tow_dtype dtype)
{
    return dtype == TOW_F64 ? 17 : dtype == TOW_F32 ? 9 : dtype == TOW_F16 ? 5 : 4;
}
