/* Helpers of the tests of mappings: lists of named arrays with counted elements, as tensors and as parameters, and
 * comparisons. A test program includes it once, after cmocka. */
#ifndef TOW_TESTS_MAPPINGS_H
#define TOW_TESTS_MAPPINGS_H

#include "tests/unit/support/io_files.h"
#include "tow/tow.h"

#define TYPE(dtype, ...)                                                                                               \
    tow_make_type(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

#define ONE TYPE(TOW_F32, 1)

static inline void expect(const fixture *f, tow_status found, tow_status status, const char *message)
{
    if (found != status) fail_msg("status %d, expected %d: %s", found, status, tow_context_error(f->ctx));
    if (message) assert_message(f, message);
}
#define OK(call) expect(f, call, TOW_OK, NULL)

static inline tow_weight_mapping *parse(const fixture *f, const char *text)
{
    tow_weight_mapping *m;
    OK(tow_weight_mapping_parse(f->ctx, "rules", text, &m));
    return m;
}

/* f32 0, 1, 2, ... from `first` on. */
static inline tow_array *counted(tow_context *ctx, tow_type type, float first)
{
    tow_array *array;
    assert_int_equal(tow_array_create(ctx, type, &array), TOW_OK);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) ((float *)tow_array_data(array))[i] = first + (float)i;
    return array;
}

typedef struct named {
    const char *name;
    tow_type type;
} named;

/* Numbers go on from one array to the next. */
static inline tow_tensors *make_tensors(tow_context *ctx, size_t n, const named *arrays)
{
    tow_tensors *set;
    float next = 0;
    assert_int_equal(tow_tensors_create(ctx, &set), TOW_OK);
    for (size_t i = 0; i < n; i++) {
        tow_array *array = counted(ctx, arrays[i].type, next);
        next += (float)tow_type_element_count(arrays[i].type);
        assert_int_equal(tow_tensors_add(set, arrays[i].name, array), TOW_OK);
        tow_array_release(array);
    }
    return set;
}

static inline tow_params *make_params(tow_context *ctx, size_t n, const named *arrays)
{
    const char *paths[16];
    tow_array *values[16];
    tow_params *params;
    float next = 0;
    for (size_t i = 0; i < n; i++) {
        paths[i] = arrays[i].name;
        values[i] = counted(ctx, arrays[i].type, next);
        next += (float)tow_type_element_count(arrays[i].type);
    }
    assert_int_equal(tow_params_from_arrays(ctx, n, paths, values, &params), TOW_OK);
    for (size_t i = 0; i < n; i++) tow_array_release(values[i]);
    return params;
}

static inline void expect_floats(const tow_array *array, size_t n, const float *want)
{
    assert_non_null(array);
    assert_int_equal(tow_type_element_count(tow_array_type(array)), n);
    const float *found = tow_array_data(array);
    for (size_t i = 0; i < n; i++)
        if (found[i] != want[i]) fail_msg("element %zu: expected %g, found %g", i, (double)want[i], (double)found[i]);
}
#define FLOATS(array, ...)                                                                                             \
    expect_floats(array, sizeof((float[]){__VA_ARGS__}) / sizeof(float), (const float[]){__VA_ARGS__})

#endif
