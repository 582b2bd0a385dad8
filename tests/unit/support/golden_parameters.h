/* The parameters, gradients and lines of tests/oracle/golden/optax.txt and training.txt. One test program includes it
 * once, after running_layer.h. */
#ifndef TOW_TESTS_GOLDEN_PARAMETERS_H
#define TOW_TESTS_GOLDEN_PARAMETERS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/running_layer.h"

enum {
    PARAMETERS = 3
};
static const char *const paths[PARAMETERS] = {"b", "k", "w"};

static inline tow_type type_of(size_t i, tow_dtype dtype)
{
    static const int64_t dims[PARAMETERS][2] = {{7, 0}, {6, 4}, {4, 6}};
    return tow_make_type(dtype, i ? 2 : 1, dims[i]);
}

/* Values of parameter `parameter` at `step`; parameters themselves are those at 1000. */
static inline void fill(tow_array *x, size_t parameter, int step)
{
    const tow_type type = tow_array_type(x);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        const double value = (double)((7919 * i + 31 * (int64_t)parameter + 17 * step) % 257 - 128) / 64;
        if (type.dtype == TOW_F64)
            ((double *)tow_array_data(x))[i] = value;
        else
            ((float *)tow_array_data(x))[i] = (float)value;
    }
}

static inline double element_of(const tow_array *x, int64_t i)
{
    const void *data = tow_array_data(x);
    return tow_array_type(x).dtype == TOW_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

/* Compares arrays with the lines "name dtype parameter values..." of a file; returns how many there were. NaN equals
 * NaN. */
static inline int compare_lines(const char *file_name, const char *name, double tolerance, tow_array *const *arrays)
{
    static char line[1 << 14];
    const tow_dtype dtype = tow_array_type(arrays[0]).dtype;
    char path[256];
    int found = 0;
    snprintf(path, sizeof path, "%s/oracle/golden/%s", TOW_TEST_DATA, file_name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        char which[32], type[8], parameter[8];
        int read;
        assert_int_equal(sscanf(line, "%31s %7s %7s%n", which, type, parameter, &read), 3);
        if (strcmp(which, name) != 0 || strcmp(type, tow_dtype_name(dtype)) != 0) continue;
        size_t index = 0;
        while (strcmp(paths[index], parameter) != 0) index++;
        char *at = line + read;
        for (int64_t i = 0; i < tow_type_element_count(type_of(index, dtype)); i++) {
            const double expected = strtod(at, &at), value = element_of(arrays[index], i);
            if (isnan(expected) ? !isnan(value) : !(fabs(value - expected) <= tolerance * fmax(1, fabs(expected))))
                fail_msg("%s, %s, %s[%d]: expected %.17g, found %.17g", name, type, parameter, (int)i, expected, value);
        }
        found++;
    }
    fclose(file);
    return found;
}

/* Parameters and gradients of one type. */
typedef struct golden_problem {
    tow_array *parameters[PARAMETERS], *gradients[PARAMETERS];
    tow_params *params;
} golden_problem;

static inline golden_problem make_golden_problem(tow_dtype dtype)
{
    golden_problem p = {0};
    for (size_t i = 0; i < PARAMETERS; i++) {
        OK(tow_array_create(ctx, type_of(i, dtype), &p.parameters[i]));
        OK(tow_array_create(ctx, type_of(i, dtype), &p.gradients[i]));
        fill(p.parameters[i], i, 1000);
    }
    OK(tow_params_from_arrays(ctx, PARAMETERS, paths, p.parameters, &p.params));
    return p;
}

static inline void fill_gradients(golden_problem *p, int step)
{
    for (size_t i = 0; i < PARAMETERS; i++) fill(p->gradients[i], i, step);
}

static inline void free_golden_problem(golden_problem *p)
{
    tow_params_free(p->params);
    for (size_t i = 0; i < PARAMETERS; i++) {
        tow_array_release(p->parameters[i]);
        tow_array_release(p->gradients[i]);
    }
}

#endif
