/* Names of values and scalars in the textual form. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/dtypes.h"
#include "src/graph/text.h"

/* ---- names ----------------------------------------------------------------------------------------------------- */

void tow__name_write(uint32_t number, char text[TOW__NAME_BYTES])
{
    char reversed[TOW__NAME_BYTES];
    int n = 0;
    for (uint64_t rest = (uint64_t)number + 1; rest > 0 && n < TOW__NAME_BYTES - 1; rest = (rest - 1) / 26)
        reversed[n++] = (char)('a' + (rest - 1) % 26);
    for (int i = 0; i < n; i++) text[i] = reversed[n - 1 - i];
    text[n] = '\0';
}

uint32_t tow__name_after(uint32_t last)
{
    static const char *const reserved[] = {"in", "let", "lambda"};
    uint32_t number = last == TOW__NAME_NONE ? 0 : last + 1;
    char text[TOW__NAME_BYTES];
    tow__name_write(number, text);
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(text, reserved[i]) == 0) return number + 1; /* no two reserved words follow each other */
    return number;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* The representation of a float type. */
typedef struct format {
    uint64_t exponent, fraction, nan; /* bits of infinity; of the fraction; of the usual NaN */
    size_t size;
} format;

static const format formats[TOW_DTYPE_END] = {
    [TOW_F32] = {0x7F800000, 0x007FFFFF, 0x7FC00000, 4},
    [TOW_F64] = {0x7FF0000000000000, 0x000FFFFFFFFFFFFF, 0x7FF8000000000000, 8},
    [TOW_BF16] = {0x7F80, 0x007F, 0x7FC0, 2},
    [TOW_F16] = {0x7C00, 0x03FF, 0x7E00, 2},
};

static uint64_t bits_of(const format *f, const void *value)
{
    union {
        uint16_t half;
        uint32_t single;
        uint64_t number;
    } v = {.number = 0};
    memcpy(&v, value, f->size);
    return f->size == 2 ? v.half : f->size == 4 ? v.single : v.number;
}

static void set_bits(const format *f, void *value, uint64_t bits)
{
    const uint16_t half = (uint16_t)bits;
    const uint32_t single = (uint32_t)bits;
    memcpy(value,
           f->size == 2   ? (const void *)&half
           : f->size == 4 ? (const void *)&single
                          : (const void *)&bits,
           f->size);
}

/* The nearest element to the number that the text spells. */
static double read_nearest(tow_dtype dtype, const char *text, char **end, void *value)
{
    const double number = dtype == TOW_F32 ? (double)strtof(text, end) : strtod(text, end);
    tow__store_element(dtype, value, 0, number);
    return tow__load_element(dtype, value, 0).f;
}

/* The fewest digits that read back as the same element. */
static void write_finite(tow_dtype dtype, double value, char text[TOW__SCALAR_BYTES])
{
    char *end;
    uint64_t element;
    for (int digits = 1; digits <= tow__float_digits(dtype); digits++) {
        snprintf(text, TOW__SCALAR_BYTES, "%.*g", digits, value);
        if (read_nearest(dtype, text, &end, &element) == value) break;
    }
    if (!strpbrk(text, ".e")) strcat(text, ".0"); /* floats look like floats */
}

static void write_float(tow_dtype dtype, const void *at, char text[TOW__SCALAR_BYTES])
{
    const format *f = &formats[dtype];
    const double value = tow__load_element(dtype, at, 0).f;
    const uint64_t bits = bits_of(f, at);
    if (isfinite(value))
        write_finite(dtype, value, text);
    else if (isinf(value))
        snprintf(text, TOW__SCALAR_BYTES, value < 0 ? "-inf" : "inf");
    else if (bits == f->nan)
        snprintf(text, TOW__SCALAR_BYTES, "nan");
    else
        snprintf(text, TOW__SCALAR_BYTES, "nan:%" PRIx64, bits);
}

void tow__scalar_write(tow_dtype dtype, const void *value, char text[TOW__SCALAR_BYTES])
{
    const tow__element e = tow__load_element(dtype, value, 0);
    if (e.kind == TOW__A_FLOAT)
        write_float(dtype, value, text);
    else if (e.kind == TOW__A_SIGNED)
        snprintf(text, TOW__SCALAR_BYTES, "%" PRId64, e.i);
    else if (e.kind == TOW__AN_UNSIGNED)
        snprintf(text, TOW__SCALAR_BYTES, "%" PRIu64, e.u);
    else
        snprintf(text, TOW__SCALAR_BYTES, e.u != 0 ? "true" : "false");
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static const char *read_nan_bits(const format *f, const char *text, void *value)
{
    char *end;
    errno = 0;
    uint64_t bits = strtoull(text + 4, &end, 16);
    bool fits = f->size == 8 || bits >> (8 * f->size) == 0;
    bool is_nan = (bits & f->exponent) == f->exponent && (bits & f->fraction) != 0 && fits;
    if (*end != '\0' || end == text + 4 || text[4] == '-' || text[4] == '+' || errno != 0 || !is_nan)
        return "the bits of a NaN in hexadecimal";
    set_bits(f, value, bits);
    return NULL;
}

static const char *read_float(tow_dtype dtype, const char *text, void *value)
{
#define X(symbol, name, size) [symbol] = "a number within the range of " name,
    static const char *const ranges[] = { TOW_DTYPE_LIST(X) };
#undef X
    const format *f = &formats[dtype];
    char *end;
    if (strncmp(text, "nan:", 4) == 0) return read_nan_bits(f, text, value);
    if (strcmp(text, "nan") == 0) {
        set_bits(f, value, f->nan);
        return NULL;
    }
    if (strspn(text, "+-0123456789.eEinf") != strlen(text)) return "a number";
    const double nearest = read_nearest(dtype, text, &end, value);
    if (*end != '\0' || end == text) return "a number";
    return isinf(nearest) && !strstr(text, "inf") ? ranges[dtype] : NULL;
}

static const char *read_integer(tow_dtype dtype, const char *text, void *value)
{
#define X(symbol, name, size) [symbol] = "a whole number within the range of " name,
    static const char *const ranges[] = { TOW_DTYPE_LIST(X) };
#undef X
    const int unused = 64 - 8 * (int)tow_dtype_size(dtype);
    const bool is_signed = tow__dtype_in(dtype, TOW__SIGNED), negative = text[0] == '-';
    char *end;
    errno = 0;
    const uint64_t magnitude = strtoull(text + negative, &end, 10);
    if (*end != '\0' || end == text + negative || strspn(text + negative, "+0123456789") != strlen(text + negative))
        return "a whole number";
    const uint64_t most = is_signed ? (UINT64_MAX >> (unused + 1)) + negative : negative ? 0 : UINT64_MAX >> unused;
    if (errno != 0 || magnitude > most) return ranges[dtype];
    const uint64_t bits = negative ? 0 - magnitude : magnitude;
    tow__convert_elements(dtype, value, TOW_U64, &bits, 1);
    return NULL;
}

const char *tow__scalar_read(tow_dtype dtype, const char *text, size_t length, void *value)
{
    char word[128];
    if (length == 0 || length >= sizeof word || text[0] == ' ') return "a number";
    memcpy(word, text, length);
    word[length] = '\0';
    if (tow__dtype_in(dtype, TOW__FLOATS)) return read_float(dtype, word, value);
    if (tow__dtype_in(dtype, TOW__INTEGERS)) return read_integer(dtype, word, value);
    if (strcmp(word, "true") != 0 && strcmp(word, "false") != 0) return "true or false";
    *(uint8_t *)value = word[0] == 't';
    return NULL;
}
