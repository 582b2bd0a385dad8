/* Elements of arrays of any type as doubles: what tests fill, read and compare memory with. Integers of 64 bits that a
 * double cannot hold are compared by their bytes instead. Floats of 16 bits are made here from their definition, not
 * with the conversions under test. */
#ifndef TOW_TESTS_ELEMENTS_H
#define TOW_TESTS_ELEMENTS_H

#include <math.h>

#include "tow/base.h"

/* A float of 16 bits that has so many bits of fraction: sign, exponent, fraction. */
static inline double half_value(uint16_t bits, int fraction_bits)
{
    const int fraction = bits & ((1 << fraction_bits) - 1), exponent = (bits & 0x7FFF) >> fraction_bits;
    const int most = (1 << (15 - fraction_bits)) - 1, bias = most / 2;
    double value = exponent == 0 ? ldexp(fraction, 1 - bias - fraction_bits)
                                 : ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    if (exponent == most) value = fraction != 0 ? (double)NAN : (double)INFINITY;
    return bits >> 15 ? -value : value;
}

/* The nearest one, ties to even. */
static inline uint16_t half_bits(double value, int fraction_bits)
{
    const int most = (1 << (15 - fraction_bits)) - 1, bias = most / 2;
    const uint16_t sign = signbit(value) ? 0x8000 : 0, infinite = (uint16_t)(most << fraction_bits);
    int exponent;
    if (isnan(value)) return (uint16_t)(sign | infinite | 1 << (fraction_bits - 1));
    if (isinf(value) || value == 0) return isinf(value) ? sign | infinite : sign;
    frexp(value, &exponent); /* value < 2^exponent */
    const int unit = (exponent - 1 < 1 - bias ? 1 - bias : exponent - 1) - fraction_bits;
    const double units =
        rint(ldexp(fabs(value), -unit)); /* of the last bit: the exponent counts on where they overflow */
    const double bits = units + ldexp(unit + fraction_bits + bias - 1, fraction_bits);
    return (uint16_t)(sign | (bits >= infinite ? infinite : (uint16_t)bits));
}

/* Element `index` of memory that holds elements of the type. */
static inline double element_get(tow_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case TOW_F32:
        return (double)((const float *)data)[index];
    case TOW_F64:
        return ((const double *)data)[index];
    case TOW_BF16:
        return half_value(((const uint16_t *)data)[index], 7);
    case TOW_F16:
        return half_value(((const uint16_t *)data)[index], 10);
    case TOW_I8:
        return ((const int8_t *)data)[index];
    case TOW_I32:
        return ((const int32_t *)data)[index];
    case TOW_I64:
        return (double)((const int64_t *)data)[index];
    case TOW_U32:
        return ((const uint32_t *)data)[index];
    case TOW_U64:
        return (double)((const uint64_t *)data)[index];
    case TOW_U8:
    case TOW_BOOL:
        return ((const uint8_t *)data)[index];
    case TOW_Q8_0: /* blocks hold several numbers */
    case TOW_Q4_0:
    case TOW_Q4_K:
    case TOW_Q6_K:
        break;
    }
    return 0;
}

/* Stores a number that the type has, or the nearest float of the type. */
static inline void element_set(tow_dtype dtype, void *data, int64_t index, double value)
{
    switch (dtype) {
    case TOW_F32:
        ((float *)data)[index] = (float)value;
        break;
    case TOW_F64:
        ((double *)data)[index] = value;
        break;
    case TOW_BF16:
        ((uint16_t *)data)[index] = half_bits(value, 7);
        break;
    case TOW_F16:
        ((uint16_t *)data)[index] = half_bits(value, 10);
        break;
    case TOW_I8:
        ((int8_t *)data)[index] = (int8_t)value;
        break;
    case TOW_I32:
        ((int32_t *)data)[index] = (int32_t)value;
        break;
    case TOW_I64:
        ((int64_t *)data)[index] = (int64_t)value;
        break;
    case TOW_U8:
        ((uint8_t *)data)[index] = (uint8_t)value;
        break;
    case TOW_U32:
        ((uint32_t *)data)[index] = (uint32_t)value;
        break;
    case TOW_U64:
        ((uint64_t *)data)[index] = (uint64_t)value;
        break;
    case TOW_BOOL:
        ((uint8_t *)data)[index] = value != 0;
        break;
    case TOW_Q8_0:
    case TOW_Q4_0:
    case TOW_Q4_K:
    case TOW_Q6_K:
        break;
    }
}

static inline double array_element(const tow_array *array, int64_t index)
{
    return element_get(tow_array_type(array).dtype, tow_array_data(array), index);
}

static inline void set_array_element(tow_array *array, int64_t index, double value)
{
    element_set(tow_array_type(array).dtype, tow_array_data(array), index, value);
}

#endif
