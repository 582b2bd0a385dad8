/* Loading parameters and variables from safetensors files: exactly, converted on request, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "tests/unit/support/directories.h"
#include "tests/unit/support/running_layer.h"

static char directory[64], path[96];

static int setup_files(void **state)
{
    strcpy(directory, "/tmp/tow-test-load-XXXXXX");
    if (setup(state) != 0 || !mkdtemp(directory)) return -1;
    snprintf(path, sizeof path, "%s/file", directory);
    return 0;
}

static int teardown_files(void **state)
{
    const int failed = remove_directory(directory);
    return teardown(state) + failed;
}

/* kernel f32[2,2], bias f32[2]; NaN everywhere, so that what is loaded shows. */
static tow_params *dense_params(void)
{
    tow_dense model = TOW_DENSE(.features = 2);
    tow_params *params = NULL;
    const tow_type type = TYPE(TOW_F32, 1, 2);
    OK(tow_model_init(ctx, TOW_MODULE(&model), 1, 1, &type, &params));
    for (size_t i = 0; i < tow_params_count(params); i++)
        memset(tow_array_data(tow_params_array(params, i)), 0xff,
               tow_type_bytes(tow_array_type(tow_params_array(params, i))));
    return params;
}

static void add(tow_tensors *tensors, const char *name, tow_type type, const void *data)
{
    tow_array *array = NULL;
    OK(tow_array_from_data(ctx, type, data, &array));
    OK(tow_tensors_add(tensors, name, array));
    tow_array_release(array);
}

static const uint16_t kernel_bf16[4] = {0x3f80, 0xc000, 0x3e80, 0x4040}; /* 1, -2, 0.25, 3 */
static const float kernel_f32[4] = {1, -2, 0.25f, 3}, bias_f32[2] = {0.5f, (float)(1 / 3.)};
static const double bias_f64[2] = {0.5, 1 / 3.};

/* As a file of bf16 and f64, with a tensor that no parameter has under another prefix. */
static void write_file(tow_dtype kernel, int64_t rows)
{
    tow_tensors *tensors = NULL;
    OK(tow_tensors_create(ctx, &tensors));
    add(tensors, "m/kernel", TYPE(kernel, rows, 2), kernel_bf16);
    add(tensors, "m/bias", TYPE(TOW_F64, 2), bias_f64);
    add(tensors, "other", TYPE(TOW_F64, 2), bias_f64);
    OK(tow_safetensors_write(path, tensors));
    tow_tensors_free(tensors);
}

static bool untouched(const tow_params *params)
{
    for (size_t i = 0; i < tow_params_count(params); i++) {
        const tow_array *array = tow_params_array(params, i);
        const unsigned char *bytes = tow_array_data(array);
        for (size_t k = 0; k < tow_type_bytes(tow_array_type(array)); k++)
            if (bytes[k] != 0xff) return false;
    }
    return true;
}

static void weights_of_other_types_convert_on_request(void **state)
{
    (void)state;
    const tow_load_options convert = TOW_LOAD_OPTIONS(.convert = true);
    tow_params *params = dense_params();
    tow_tensors *tensors = NULL;
    write_file(TOW_BF16, 2);
    expect_error(
        tow_params_load(params, "m/", path, NULL), TOW_TYPE_MISMATCH, path,
        "m/kernel: expected f32[2,2], found bf16[2,2]; to convert it, load it with .convert of tow_load_options");
    assert_true(untouched(params));
    for (int from_set = 0; from_set < 3; from_set++) {
        if (from_set == 0) OK(tow_params_load(params, "m/", path, &convert));
        if (from_set == 1) OK(tow_safetensors_mmap(ctx, path, &tensors));
        if (from_set == 2) OK(tow_safetensors_read(ctx, path, &tensors));
        if (from_set > 0) OK(tow_params_from_tensors_with(params, "m/", tensors, &convert));
        assert_memory_equal(tow_array_data(tow_params_find(params, "kernel")), kernel_f32, sizeof kernel_f32);
        assert_memory_equal(tow_array_data(tow_params_find(params, "bias")), bias_f32, sizeof bias_f32);
        tow_tensors_free(tensors);
        tensors = NULL;
        tow_params_free(params);
        params = dense_params();
    }
    write_file(TOW_BF16, 1);
    expect_error(tow_params_load(params, "m/", path, &convert), TOW_TYPE_MISMATCH, path,
                 "m/kernel: expected f32[2,2], found bf16[1,2]; use the file of a model with the same sizes, or set "
                 ".allow_mismatch of tow_load_options, which leaves the parameter as it is");
    expect_error(
        tow_params_load(params, "n/", path, &convert), TOW_NOT_FOUND, path,
        "n/kernel: missing; expected f32[2,2]; use the file of a model with the same layers and options, or set "
        ".allow_missing of tow_load_options, which leaves it as it is");
    expect_error(tow_params_load(params, "", path, &TOW_LOAD_OPTIONS(.convert = true, .allow_missing = true)),
                 TOW_NOT_FOUND, path,
                 "m/bias: f64[2] in the file, but the model has no such parameter or variable; use a model with the "
                 "same layers and options, or set .allow_unused of tow_load_options, which leaves the tensor out");
    expect_error(tow_params_load(params, "m/", "/nowhere/at/all", &convert), TOW_IO_ERROR, "/nowhere/at/all");
    assert_true(untouched(params));
    tow_params_free(params);
}

/* Integers of variables must fit, whichever is looked at first. */
static void integers_must_fit(void **state)
{
    (void)state;
    const tow_load_options convert = TOW_LOAD_OPTIONS(.convert = true);
    running model = {.module = {&running_class}};
    tow_params *params = NULL, *variables = NULL;
    const tow_type type = TYPE(TOW_F32, 1, 2);
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 1, 1, &type, NULL, &params, &variables));
    static const int64_t counts[] = {7, INT64_C(1) << 40};
    static const float mean[2] = {1, 2};
    for (int i = 0; i < 2; i++) {
        tow_tensors *tensors = NULL;
        OK(tow_tensors_create(ctx, &tensors));
        add(tensors, "batch_stats/mean", TYPE(TOW_F32, 2), mean);
        add(tensors, "counters/calls", SCALAR(TOW_I64), &counts[i]);
        OK(tow_safetensors_write(path, tensors));
        tow_tensors_free(tensors);
        float *loaded = tow_array_data(tow_params_find(variables, "batch_stats/mean"));
        loaded[0] = 9;
        if (i == 0) {
            OK(tow_params_load(variables, "", path, &convert));
            assert_int_equal(*(int32_t *)tow_array_data(tow_params_find(variables, "counters/calls")), 7);
            assert_true(loaded[0] == 1);
        } else {
            expect_error(tow_params_load(variables, "", path, &convert), TOW_TYPE_MISMATCH, path,
                         "tensor 'counters/calls': expected integers that fit i32, found 1099511627776 at element 0");
            assert_true(loaded[0] == 9);
        }
    }
    tow_tensors *floats = NULL;
    OK(tow_tensors_create(ctx, &floats));
    add(floats, "batch_stats/mean", TYPE(TOW_F32, 2), mean);
    add(floats, "counters/calls", SCALAR(TOW_F32), mean);
    expect_error(tow_params_from_tensors_with(variables, "", floats, &convert), TOW_TYPE_MISMATCH,
                 "counters/calls: expected i32[], found f32[]; floats are not converted to integers");
    tow_tensors_free(floats);
    tow_params_free(params);
    tow_params_free(variables);
}

/* Arrays of the mapped file take the place of the parameters' own where type and shape are equal; others are copied. */
static void in_place(void **state)
{
    (void)state;
    static const char *const names[] = {"one", "blocks/{}/two"};
    static const float numbers[6] = {1, 2, 3, 4, 5, 6};
    static const double wide[3] = {7, 8, 9};
    const tow_load_options options = TOW_LOAD_OPTIONS(.in_place = true, .convert = true);
    for (int converted = 0; converted < 2; converted++) {
        tow_array *arrays[2];
        tow_tensors *tensors;
        tow_params *params, *again;
        OK(tow_tensors_create(ctx, &tensors));
        if (converted)
            add(tensors, "one", TYPE(TOW_F64, 3), wide);
        else
            add(tensors, "one", TYPE(TOW_F32, 3), numbers);
        add(tensors, "blocks/0/two", TYPE(TOW_F32, 3), numbers);
        add(tensors, "blocks/1/two", TYPE(TOW_F32, 3), numbers + 3);
        OK(tow_safetensors_write(path, tensors));
        tow_tensors_free(tensors);
        OK(tow_array_create(ctx, TYPE(TOW_F32, 3), &arrays[0]));
        OK(tow_array_create(ctx, TYPE(TOW_F32, 2, 3), &arrays[1]));
        OK(tow_params_from_arrays(ctx, 2, names, arrays, &params));
        OK(tow_params_copy(params, &again));
        OK(tow_params_load(params, "", path, &options));
        float *one = tow_array_data(tow_params_find(params, "one"));
        assert_true((one == tow_array_data(arrays[0])) == converted);
        assert_ptr_equal(tow_array_data(tow_params_find(params, "blocks/{}/two")), tow_array_data(arrays[1]));
        assert_true(one[2] == (converted ? 9 : 3));
        assert_memory_equal(tow_array_data(arrays[1]), numbers, sizeof numbers);
        one[2] = -1; /* of memory alone */
        OK(tow_params_load(again, "", path, &TOW_LOAD_OPTIONS(.convert = true)));
        assert_true(((float *)tow_array_data(tow_params_find(again, "one")))[2] == (converted ? 9 : 3));
        tow_array_release(arrays[0]);
        tow_array_release(arrays[1]);
        tow_params_free(params);
        tow_params_free(again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(in_place, setup_files, teardown_files),
        cmocka_unit_test_setup_teardown(weights_of_other_types_convert_on_request, setup_files, teardown_files),
        cmocka_unit_test_setup_teardown(integers_must_fit, setup_files, teardown_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
