/* Elements of arrays of any type as doubles: what tests fill, read and compare memory with. Integers of 64 bits that a
 * double cannot hold are compared by their bytes instead. */
#ifndef TOW_TESTS_ELEMENTS_H
#define TOW_TESTS_ELEMENTS_H

#include "tow/base.h"

/* Element `index` of memory that holds elements of the type. */
static inline double element_get(tow_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case TOW_F32:
        return (double)((const float *)data)[index];
    case TOW_F64:
        return ((const double *)data)[index];
    case TOW_I32:
        return ((const int32_t *)data)[index];
    case TOW_U32:
        return ((const uint32_t *)data)[index];
    case TOW_BOOL:
        return ((const uint8_t *)data)[index];
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
    case TOW_I32:
        ((int32_t *)data)[index] = (int32_t)value;
        break;
    case TOW_U32:
        ((uint32_t *)data)[index] = (uint32_t)value;
        break;
    case TOW_BOOL:
        ((uint8_t *)data)[index] = value != 0;
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
