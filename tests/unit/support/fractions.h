/* Numbers for layers, the same in the scripts of tests/oracle: element i of an array is ((7919 i) mod 257 - 128) /
 * 64. */
#ifndef TOW_TESTS_FRACTIONS_H
#define TOW_TESTS_FRACTIONS_H

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

static inline double fraction(int64_t i) { return (double)((i * 7919) % 257 - 128) / 64; }

/* f32 or f64, whose elements begin with number `first`. */
static inline tow_array *fractions(tow_type type, int64_t first)
{
    tow_array *array;
    OK(tow_array_create(ctx, type, &array));
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        if (type.dtype == TOW_F64)
            ((double *)tow_array_data(array))[i] = fraction(first + i);
        else
            ((float *)tow_array_data(array))[i] = (float)fraction(first + i);
    }
    return array;
}

/* Of an array of f32 or f64. */
static inline double element(const tow_array *array, int64_t i)
{
    const void *data = tow_array_data((tow_array *)array);
    return tow_array_type(array).dtype == TOW_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

/* A loss: sum over outputs k of sum(output k * fractions from number 100 k on); aux: the outputs. user: a size_t, how
 * many; NULL: one. */
static inline void weighted_sum(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                                tow_value *aux, void *user)
{
    const size_t n = user ? *(size_t *)user : 1;
    (void)extra;
    for (size_t k = 0; k < n; k++) {
        tow_array *weights = fractions(tow_value_type(outputs[k]), 100 * (int64_t)k);
        tow_value sum = tow_reduce_sum(tow_mul(outputs[k], tow_constant(t, weights)), 0, NULL);
        *loss = k ? tow_add(*loss, sum) : sum;
        aux[k] = outputs[k];
        tow_array_release(weights);
    }
}

#endif
