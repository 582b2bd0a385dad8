/* Names of values and scalars in the textual form. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

static void write_float(double value, bool single, char text[TOW__SCALAR_BYTES])
{
    int most = single ? 9 : 17;
    for (int digits = 1; digits <= most; digits++) {
        snprintf(text, TOW__SCALAR_BYTES, "%.*g", digits, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value) break;
    }
    if (!strpbrk(text, ".e")) strcat(text, ".0"); /* floats look like floats */
}

static void write_special(double value, uint64_t bits, uint64_t usual_nan, char text[TOW__SCALAR_BYTES])
{
    if (isinf(value))
        snprintf(text, TOW__SCALAR_BYTES, value < 0 ? "-inf" : "inf");
    else if (bits == usual_nan)
        snprintf(text, TOW__SCALAR_BYTES, "nan");
    else
        snprintf(text, TOW__SCALAR_BYTES, "nan:%" PRIx64, bits);
}

static const uint32_t nan32 = UINT32_C(0x7fc00000);
static const uint64_t nan64 = UINT64_C(0x7ff8000000000000);

static void write_f32(const void *value, char text[TOW__SCALAR_BYTES])
{
    float x;
    uint32_t bits;
    memcpy(&x, value, sizeof x);
    memcpy(&bits, value, sizeof bits);
    if (isfinite(x))
        write_float((double)x, true, text);
    else
        write_special((double)x, bits, nan32, text);
}

static void write_f64(const void *value, char text[TOW__SCALAR_BYTES])
{
    double x;
    uint64_t bits;
    memcpy(&x, value, sizeof x);
    memcpy(&bits, value, sizeof bits);
    if (isfinite(x))
        write_float(x, false, text);
    else
        write_special(x, bits, nan64, text);
}

void tow__scalar_write(tow_dtype dtype, const void *value, char text[TOW__SCALAR_BYTES])
{
    switch (dtype) {
    case TOW_F32:
        write_f32(value, text);
        break;
    case TOW_F64:
        write_f64(value, text);
        break;
    case TOW_I32:
        snprintf(text, TOW__SCALAR_BYTES, "%" PRId32, *(const int32_t *)value);
        break;
    case TOW_U32:
        snprintf(text, TOW__SCALAR_BYTES, "%" PRIu32, *(const uint32_t *)value);
        break;
    case TOW_BOOL:
        snprintf(text, TOW__SCALAR_BYTES, *(const uint8_t *)value ? "true" : "false");
        break;
    }
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static const char *read_nan_bits(const char *text, bool single, void *value)
{
    char *end;
    errno = 0;
    uint64_t bits = strtoull(text + 4, &end, 16);
    uint64_t exponent = single ? UINT64_C(0x7f800000) : UINT64_C(0x7ff0000000000000);
    uint64_t fraction = single ? UINT64_C(0x007fffff) : UINT64_C(0x000fffffffffffff);
    bool is_nan = (bits & exponent) == exponent && (bits & fraction) != 0 && (!single || bits <= UINT32_MAX);
    if (*end != '\0' || end == text + 4 || text[4] == '-' || text[4] == '+' || errno != 0 || !is_nan)
        return "the bits of a NaN in hexadecimal";
    uint32_t low = (uint32_t)bits;
    memcpy(value, single ? (const void *)&low : (const void *)&bits, single ? sizeof low : sizeof bits);
    return NULL;
}

static const char *read_float(const char *text, bool single, void *value)
{
    char *end;
    if (strncmp(text, "nan:", 4) == 0) return read_nan_bits(text, single, value);
    if (strcmp(text, "nan") == 0) {
        memcpy(value, single ? (const void *)&nan32 : (const void *)&nan64, single ? sizeof nan32 : sizeof nan64);
        return NULL;
    }
    if (strspn(text, "+-0123456789.eEinf") != strlen(text)) return "a number";
    float x = single ? strtof(text, &end) : 0.0F;
    double y = single ? (double)x : strtod(text, &end);
    if (*end != '\0' || end == text) return "a number";
    if (isinf(y) && !strstr(text, "inf"))
        return single ? "a number within the range of f32" : "a number within the range of f64";
    memcpy(value, single ? (const void *)&x : (const void *)&y, single ? sizeof x : sizeof y);
    return NULL;
}

static const char *read_integer(const char *text, bool is_signed, void *value)
{
    char *end;
    errno = 0;
    long long x = strtoll(text, &end, 10);
    if (*end != '\0' || end == text) return "a whole number";
    if (errno != 0 || x < (is_signed ? INT32_MIN : 0) || x > (is_signed ? (long long)INT32_MAX : (long long)UINT32_MAX))
        return is_signed ? "a whole number within the range of i32" : "a whole number within the range of u32";
    uint32_t low = (uint32_t)x;
    memcpy(value, &low, sizeof low);
    return NULL;
}

const char *tow__scalar_read(tow_dtype dtype, const char *text, size_t length, void *value)
{
    char word[128];
    if (length == 0 || length >= sizeof word || text[0] == ' ') return "a number";
    memcpy(word, text, length);
    word[length] = '\0';
    switch (dtype) {
    case TOW_F32:
        return read_float(word, true, value);
    case TOW_F64:
        return read_float(word, false, value);
    case TOW_I32:
        return read_integer(word, true, value);
    case TOW_U32:
        return read_integer(word, false, value);
    case TOW_BOOL:
        if (strcmp(word, "true") != 0 && strcmp(word, "false") != 0) return "true or false";
        *(uint8_t *)value = word[0] == 't';
        return NULL;
    }
    return "a value of a known element type";
}
